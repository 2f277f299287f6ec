"""Traces: their text as official tools read it, and their way to the trace topic."""

from __future__ import annotations

from typing import Any

import pytest
from client_world import ClientWorld
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from txrocketmq.client.hooks import ConsumeContext
from txrocketmq.client.results import LocalTransactionState
from txrocketmq.client.trace import (
    MAX_WAITING,
    ConsumeTraceHook,
    TraceBean,
    TraceDispatcher,
    TraceRecord,
    TraceType,
    encode_trace,
    trace_keys,
)
from txrocketmq.codec.record import decode_record, encode_record
from txrocketmq.errors import MQClientError
from txrocketmq.model import properties as props
from txrocketmq.model.message import Message, MessageQueue, MessageRecord

BEAN = TraceBean(
    topic="T",
    msg_id="ID",
    offset_msg_id="OFF",
    tags="TagA",
    keys="k1 k2",
    store_host="192.0.2.2:10911",
    body_length=5,
    kind="delay",
    retry_times=2,
    transaction_id="TX",
    transaction_state="COMMIT_MESSAGE",
)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (TraceType.PUB, "Pub 17 R G T ID TagA k1_k2 192.0.2.2:10911 5 9 3 OFF true"),
        (TraceType.SUB_BEFORE, "SubBefore 17 R G RID ID 2 k1_k2"),
        (TraceType.SUB_AFTER, "SubAfter RID ID 9 true k1_k2 4 17 G"),
        (
            TraceType.END_TRANSACTION,
            "EndTransaction 17 R G T ID TagA k1_k2 192.0.2.2:10911 2 TX COMMIT_MESSAGE false",
        ),
        (TraceType.RECALL, "Recall 17 R G T ID true"),
    ],
)
def test_the_text_of_a_record(kind: TraceType, text: str) -> None:
    record = TraceRecord(
        type=kind,
        time=17,
        group="G",
        region="R",
        cost=9,
        request_id="RID",
        context_code=4,
        beans=[BEAN],
    )
    expected = text.replace(" ", "\x01").replace("_k2", " k2") + "\x02"
    assert encode_trace(record) == expected
    assert trace_keys(record) == {"ID", "k1", "k2"}


def test_what_is_not_known_is_written_as_java_writes_it() -> None:
    record = TraceRecord(type=TraceType.PUB, time=1, group="G", beans=[TraceBean(topic="T")])
    assert "\x01null\x01null\x01" in encode_trace(record)


def test_sends_and_verdicts_are_traced() -> None:
    world = ClientWorld()
    producer = world.producer(client={"enable_trace": True, "trace_topic": "TRACE"})
    message = Message("TopicTest", b"hello")
    message.keys = "order-1"
    result = world.wait(producer.send(message))
    world.wait(
        producer.send_in_transaction(
            Message("TopicTest", b"x"), lambda m, a: LocalTransactionState.COMMIT_MESSAGE
        )
    )
    assert world.stored("TRACE") == []
    world.network.run(6)
    [(_, _, body, properties)] = world.stored("TRACE")
    records = [line.split("\x01") for line in body.decode().split("\x02") if line]
    assert [record[0] for record in records] == ["Pub", "Pub", "EndTransaction"]
    assert records[0][3:6] == ["PG", "TopicTest", result.msg_id]
    assert records[0][12:] == [result.offset_msg_id, "true"]
    assert [record[11] for record in records[:2]] == ["0", "1"]
    assert {result.msg_id, "order-1"} <= set(properties[props.KEYS].split(" "))
    world.wait(producer.send(message))
    world.wait(producer.stop())
    assert len(world.stored("TRACE")) == 2


class Sent:
    """Takes trace messages."""

    def __init__(self, outcome: Any = None) -> None:
        self.messages: list[Message] = []
        self._outcome = outcome

    def __call__(self, message: Message) -> Deferred[Any]:
        self.messages.append(message)
        return fail(self._outcome) if self._outcome else succeed(None)


def record(topic: str = "T") -> TraceRecord:
    return TraceRecord(
        type=TraceType.PUB, time=1, group="G", beans=[TraceBean(topic=topic, msg_id="ID")]
    )


def test_batches_go_when_they_are_full_or_old_and_one_topic_by_itself() -> None:
    clock, sent = Clock(), Sent()
    dispatcher = TraceDispatcher(clock, sent, batch_num=3)
    dispatcher.start()
    dispatcher.append(record("A"))
    dispatcher.append(record("B"))
    assert sent.messages == []
    dispatcher.append(record("A"))
    assert [message.body.count(b"\x02") for message in sent.messages] == [2, 1]
    dispatcher.append(record("C"))
    clock.advance(5)
    assert len(sent.messages) == 3
    dispatcher.append(record("D"))
    dispatcher.stop()
    assert len(sent.messages) == 4
    assert clock.getDelayedCalls() == []


def test_traces_that_cannot_be_sent_harm_nobody() -> None:
    dispatcher = TraceDispatcher(Clock(), Sent(MQClientError("no")), batch_num=1)
    dispatcher.append(record())
    full = TraceDispatcher(Clock(), Sent(), batch_num=20)
    full._batch_num = MAX_WAITING * 2
    for _ in range(MAX_WAITING + 5):
        full.append(record())
    assert full.dropped == 5


def test_traces_that_nobody_answers_are_no_more_than_may_wait() -> None:
    asked: list[Deferred[Any]] = []

    def send(message: Message) -> Deferred[Any]:
        asked.append(Deferred())
        return asked[-1]

    dispatcher = TraceDispatcher(Clock(), send, batch_num=10)
    for _ in range(MAX_WAITING + 30):
        dispatcher.append(record())
    assert 30 - 10 < dispatcher.dropped <= 30
    sent = len(asked)
    assert sent <= MAX_WAITING // 10 + 1
    for answer in asked[:2]:
        answer.callback(None)
    for _ in range(20):
        dispatcher.append(record())
    assert len(asked) == sent + 2
    assert dispatcher.dropped <= 30


def test_consumption_is_traced_before_and_after() -> None:
    clock, sent = Clock(), Sent()
    dispatcher = TraceDispatcher(clock, sent, batch_num=2)
    hook = ConsumeTraceHook(dispatcher, lambda: int(clock.seconds() * 1000))
    messages = [
        decode_record(
            encode_record(MessageRecord(topic="T", queue_id=0, body=b"x", properties=text), 0, 0, 1)
        )[0]
        for text in (
            b"UNIQ_KEY\x01U1\x02MSG_REGION\x01R\x02",
            b"UNIQ_KEY\x01U2\x02TRACE_ON\x01false\x02",
        )
    ]
    queue = MessageQueue(topic="T", broker_name="b", queue_id=0)
    context = ConsumeContext("CG", messages, queue)
    hook.before_consume(context)
    clock.advance(0.5)
    context.success, context.return_type = False, "EXCEPTION"
    hook.after_consume(context)
    [message] = sent.messages
    before, after = (line.split("\x01") for line in message.body.decode().split("\x02")[:2])
    assert (before[0], before[2:4], before[5:]) == ("SubBefore", ["R", "CG"], ["U1", "0", "null"])
    assert after[:1] + after[2:] == ["SubAfter", "U1", "250", "false", "null", "2", "500", "CG"]
    assert before[4] == after[1]
    untraced = ConsumeContext("CG", messages[1:], queue)
    hook.before_consume(untraced)
    hook.after_consume(untraced)
    assert len(sent.messages) == 1
