"""Every field of the requests of POP, timers, replies and retries, one at a time, left out or set to what no client says."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from pops import PopConsumer, make_topic, pass_time
from small_broker import Peer, SmallBroker, properties, send_header
from timers import run
from tracebacks import Log, watched

from txrocketmq.broker.stored import stored_messages
from txrocketmq.codec.recall import RecallHandle
from txrocketmq.model.codes import RequestCode, ResponseCode

MAX_LONG = 2**63 - 1
NUMBERS = [
    "-1", "0", "1", "7", "32", "33", "65536", "2147483647", "-2147483648", "2147483648", str(MAX_LONG),
    str(-MAX_LONG - 1), str(MAX_LONG + 1), "1e3", "1.5", "", " ", "0x10", "٣", "9" * 500,
]  # fmt: skip
WORDS = ["", " ", "\0", "你好", "a" * 300, "x" * 40_000, "../../x", "%s{0}", "%RETRY%G", "%DLQ%G", "TopicB", "*", "null",
         "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_ClusterA"]  # fmt: skip
KINDS_OF_RECEIPT = range(8)


@pytest.fixture
def log() -> Iterator[Log]:
    with watched() as seen:
        yield seen


class Victim:
    """A broker with messages out in every way, and a peer that asks."""

    def __init__(self) -> None:
        self.broker = SmallBroker(
            recall_message_enable=True, enable_property_filter=True, store_reply_message_enable=True
        )
        make_topic(self.broker, queues=2)
        make_topic(self.broker, "Kept")
        self.consumer = PopConsumer(self.broker)
        self.peer: Peer = self.broker.connect(42_500)
        self.peer.send("Kept", b"before")
        for number in range(6):
            self.peer.send(body=b"%d" % number, queue_id=0)
        popped = self.consumer.pop(max_msg_nums=3)
        self.receipts = [popped.receipt(message) for message in popped.messages]
        self.message = popped.messages[0]
        ordered = self.consumer.pop(max_msg_nums=1, order=True, consumer_group="O")
        self.ordered_receipt = ordered.receipt(ordered.messages[0])

    def ask(self, code: int, fields: dict[str, str], body: bytes) -> Any:
        if not self.peer.protocol.is_open or self.peer.transport.disconnecting:
            self.peer = self.broker.connect(42_500)
        opaque = self.peer.tell(code, ext_fields=fields, body=body)
        answer = self.peer.answer(opaque)
        self.broker.clock.advance(0.001)
        return answer or self.peer.answer(opaque)

    def is_well(self) -> None:
        """It still takes and hands out messages, also after a restart."""
        peer = self.broker.connect(42_600)
        assert peer.send("Kept", b"after").queue_offset == 1
        assert peer.pull("Kept").bodies == [b"before", b"after"]
        pass_time(self.broker, 40)
        again = self.broker.restarted()
        assert again.connect().pull("Kept").bodies == [b"before", b"after"]
        make_topic(again, "Fresh")
        consumer = PopConsumer(again, "Fresh-group")
        consumer.peer.send("Fresh", b"fresh")
        assert consumer.pop("Fresh").bodies == [b"fresh"]
        pass_time(again, 40)
        assert consumer.pop("Fresh").bodies == [b"fresh"]
        again.stop()


def requests(victim: Victim) -> dict[str, tuple[int, dict[str, str]]]:
    """A request of each kind that is served."""
    now = str(victim.broker.now_ms())
    receipt = victim.receipts[0]
    queue = {"consumerGroup": "G", "topic": "TopicA", "queueId": "0"}
    message = {
        "a": "P",
        "b": "TopicA",
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": now,
        "h": "0",
    }
    timed = properties(UNIQ_KEY="0A", TIMER_DELAY_MS="3000")
    reply = properties(MSG_TYPE="reply", REPLY_TO_CLIENT="asker", CORRELATION_ID="c", TTL="3000")
    handle = RecallHandle("TopicA", "broker-a", str(victim.broker.now_ms() + 9000), "0A").encode()
    pop = {
        **queue, "maxMsgNums": "1", "invisibleTime": "30000", "pollTime": "0", "bornTime": now,
        "initMode": "0", "expType": "TAG", "exp": "*", "order": "false", "attemptId": "a",
    }  # fmt: skip
    ordered = {**queue, "consumerGroup": "O", "extraInfo": victim.ordered_receipt, "offset": "0"}
    return {
        "pop": (RequestCode.POP_MESSAGE, pop),
        "pop in order": (RequestCode.POP_MESSAGE, {**pop, "order": "true"}),
        "ack": (RequestCode.ACK_MESSAGE, {**queue, "extraInfo": receipt, "offset": "0"}),
        "ordered ack": (RequestCode.ACK_MESSAGE, ordered),
        "change": (
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            {**queue, "extraInfo": receipt, "offset": "0", "invisibleTime": "10000"},
        ),
        "ordered change": (
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            {**ordered, "invisibleTime": "10000"},
        ),
        "peek": (RequestCode.PEEK_MESSAGE, {**queue, "maxMsgNums": "1"}),
        "notification": (
            RequestCode.NOTIFICATION,
            {**queue, "pollTime": "0", "bornTime": now, "order": "false", "attemptId": "a"},
        ),
        "polling info": (RequestCode.POLLING_INFO, queue),
        "recall": (
            RequestCode.RECALL_MESSAGE,
            {"producerGroup": "P", "topic": "TopicA", "recallHandle": handle},
        ),
        "send back": (
            RequestCode.CONSUMER_SEND_MSG_BACK,
            {
                "offset": str(victim.message.physical_offset), "group": "G", "delayLevel": "1",
                "originMsgId": "x", "originTopic": "TopicA", "unitMode": "false",
                "maxReconsumeTimes": "3",
            },
        ),
        "timed": (RequestCode.SEND_MESSAGE_V2, {**message, "i": timed, "j": "0", "k": "false", "l": "1"}),
        "reply": (RequestCode.SEND_REPLY_MESSAGE_V2, {**message, "i": reply, "j": "0", "k": "false"}),
    }  # fmt: skip


NAMES = list(requests(Victim()))


def well_said(answer: Any, what: str) -> None:
    """The answer is one that clients can read, with a reason when it is a refusal."""
    if answer is None:
        return
    assert answer.code in {int(code) for code in ResponseCode}, f"{what}: {answer.code}"
    if answer.code == ResponseCode.SYSTEM_ERROR:
        for odd in ("Error:", "Exception", "struct", "int too large"):
            assert odd not in (answer.remark or ""), f"{what}: {answer.remark}"
    for name, value in (answer.ext_fields or {}).items():
        if value.lstrip("-").isdecimal():
            assert -MAX_LONG - 1 <= int(value) <= MAX_LONG, f"{what}: {name}={value}"


@pytest.mark.parametrize("name", NAMES)
def test_any_value_of_any_field_has_an_answer(name: str, log: Log) -> None:
    victim = Victim()
    code, usual = requests(victim)[name]
    for field in usual:
        for odd in [None, *NUMBERS, *WORDS]:
            fields = dict(usual)
            del fields[field]
            if odd is not None:
                fields[field] = odd
            what = f"{name} with {field}={odd!r}"[:200]
            well_said(victim.ask(code, fields, b"body"), what)
            assert log.tracebacks == [], f"{what}: {log.tracebacks}"
    victim.is_well()
    assert log.tracebacks == []


@pytest.mark.parametrize("part", KINDS_OF_RECEIPT)
@pytest.mark.parametrize(
    "code", [RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME]
)
def test_forged_receipts_have_an_answer(code: RequestCode, part: int, log: Log) -> None:
    victim = Victim()
    for receipt, group in ((victim.receipts[1], "G"), (victim.ordered_receipt, "O")):
        parts = receipt.split(" ")
        for odd in [*NUMBERS, *WORDS, "999"]:
            forged = " ".join([*parts[:part], odd, *parts[part + 1 :]])
            fields = {
                "consumerGroup": group, "topic": "TopicA", "queueId": "0", "extraInfo": forged,
                "offset": "0", "invisibleTime": "10000",
            }  # fmt: skip
            what = f"{code.name} with {forged[:150]}"
            well_said(victim.ask(code, fields, b""), what)
            assert log.tracebacks == [], f"{what}: {log.tracebacks}"
    victim.is_well()
    assert log.tracebacks == []


ODD_VALUES = [None, -1, 0, 2**31, 2**63 - 1, -(2**63), 2**64, 1.5, True, "7", "x", [], {}]


@pytest.mark.parametrize("field", ["b", "c", "it", "pt", "q", "r", "rq", "so", "t"])
def test_forged_batches_have_an_answer(field: str, log: Log) -> None:
    victim = Victim()
    start, pop_time, invisible, revive = victim.receipts[0].split(" ")[:4]
    usual = {
        "b": base64.b64encode(b"\x07").decode(), "c": "G", "it": int(invisible), "pt": int(pop_time),
        "q": 0, "r": "0", "rq": int(revive), "so": int(start), "t": "TopicA",
    }  # fmt: skip
    for odd in ODD_VALUES:
        for more in ({}, {"rq": 999, "c": "O"}):
            body = {"brokerName": "broker-a", "acks": [{**usual, **more, field: odd}]}
            what = f"batch with {body}"
            well_said(
                victim.ask(RequestCode.BATCH_ACK_MESSAGE, {}, json.dumps(body).encode()), what
            )
            assert log.tracebacks == [], f"{what}: {log.tracebacks}"
    victim.is_well()
    assert log.tracebacks == []


@pytest.mark.parametrize("times", [2**31 - 1, -(2**31), -1, 10**6])
@pytest.mark.parametrize("way", ["pop", "send back"])
def test_messages_that_claim_many_tries_come_again_or_are_given_up(
    times: int, way: str, log: Log
) -> None:
    broker = SmallBroker()
    make_topic(broker)
    consumer = PopConsumer(broker)
    consumer.peer.send(body=b"odd", reconsume_times=times)
    consumer.peer.send(body=b"usual")
    popped = consumer.pop()
    assert popped.bodies == [b"odd", b"usual"]
    if way == "pop":
        pass_time(broker, 40)
        assert sorted(consumer.pop().bodies) == [b"odd", b"usual"]
    else:
        for message in popped.messages:
            answer = consumer.peer.ask(
                RequestCode.CONSUMER_SEND_MSG_BACK,
                ext_fields={
                    "offset": str(message.physical_offset), "group": "G", "delayLevel": "0",
                    "maxReconsumeTimes": "3",
                },
            )  # fmt: skip
            assert answer.code == 0, answer.remark
        pass_time(broker, 40)
        found = bodies_of(broker, "%RETRY%G") + bodies_of(broker, "%DLQ%G")
        assert sorted(found) == [b"odd", b"usual"]
    broker.stop()
    assert log.tracebacks == []


def bodies_of(broker: SmallBroker, topic: str) -> list[bytes]:
    """All of queue 0 of a topic, which may be one that only the broker itself writes and reads."""
    end = broker.store.max_offset(topic, 0)
    if not end:
        return []
    found = broker.store.get_message(topic, 0, 0, end, 1 << 30, None)
    return [message.body for message in stored_messages(found) if message is not None]


ODD_TEXTS = ["-1", "2147483648", "9" * 19, "9" * 5000, "x", "٣", "1e9"]
TRUSTED = [
    "DELAY", "TIMER_ROLL_TIMES", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DELAY_MS", "REAL_TOPIC", "REAL_QID", "INNER_NUM",
    "INNER_BASE", "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "POP_CK", "1ST_POP_TIME",
    "MAX_RECONSUME_TIMES", "RECONSUME_TIME", "TRAN_PREPARED_QUEUE_OFFSET", "ORIGIN_MESSAGE_ID", "RETRY_TOPIC",
]  # fmt: skip
"""Properties that the broker itself sets and reads; clients can send them too."""


@pytest.mark.parametrize("name", TRUSTED)
def test_properties_that_the_broker_trusts_stop_nothing(name: str, log: Log) -> None:
    broker = SmallBroker(timer_roll_window_slot=4, transaction_time_out=1000)
    make_topic(broker)
    peer = broker.connect(42_700)
    ways = {
        "plain": {},
        "delayed": {"DELAY": "1"},
        "timed": {"TIMER_DELAY_MS": "2500"},
        "rolled": {"TIMER_DELAY_MS": "9000"},
        "half": {"TRAN_MSG": "true", "PGROUP": "P"},
    }
    for odd in ODD_TEXTS:
        for way, usual in ways.items():
            for sys_flag in (4 if way == "half" else 0, 0x40):
                text = properties(UNIQ_KEY="0A", **{**usual, name: odd})
                fields = {
                    "a": "P", "b": "TopicA", "c": "TBW102", "d": "4", "e": "0", "f": str(sys_flag),
                    "g": str(broker.now_ms()), "h": "0", "i": text, "j": "0", "k": "false",
                }  # fmt: skip
                what = f"{way} with {name}={odd[:30]}"
                opaque = peer.tell(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=b"odd")
                broker.clock.advance(0.001)
                well_said(peer.answer(opaque), what)
    usual = {"timed": {"TIMER_DELAY_MS": "9000"}, "delayed": {"DELAY": "1"}, "plain": {}}
    for way, found in usual.items():
        text = properties(UNIQ_KEY=way, **found)
        peer.tell(RequestCode.SEND_MESSAGE_V2, send_header(properties=text), way.encode())
    run(broker.clock, 15, 0.1)
    consumer = PopConsumer(broker)
    seen = set()
    for _ in range(40):
        seen.update(consumer.pop().bodies)
    assert set(usual) <= {body.decode() for body in seen}
    # All that was popped comes again, whatever it says of itself.
    count = broker.store.max_offset("TopicA", 0)
    pass_time(broker, 60)
    assert broker.store.max_offset("%RETRY%G_TopicA", 0) == count
    again = broker.restarted(timer_roll_window_slot=4)
    assert again.store.max_offset("TopicA", 0) >= count
    again.stop()
    assert log.tracebacks == []
