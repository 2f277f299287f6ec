"""What was popped and not acknowledged comes again; what was acknowledged in time does not. Also over a restart and a kill."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator

import pytest
from pops import (
    COMES_AGAIN_S,
    INVISIBLE_MS,
    PopConsumer,
    Popped,
    make_topic,
    pass_time,
    service,
)
from request_headers import send_header
from small_broker import SmallBroker
from transactions import killed
from twisted.internet.task import Clock

from txrocketmq.codec.headers import AckMessageRequestHeader
from txrocketmq.codec.record import encode_batch
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.message import MessageExt
from txrocketmq.model.names import REVIVE_GROUP, REVIVE_TOPIC_PREFIX
from txrocketmq.model.topic import TopicConfig
from txrocketmq.store.results import PutMessageResult, PutMessageStatus

REVIVE = f"{REVIVE_TOPIC_PREFIX}ClusterA"
RETRY_V1 = "%RETRY%G_TopicA"
RETRY_V2 = "%RETRY%G+TopicA"


@pytest.fixture
def consumer(broker: SmallBroker) -> PopConsumer:
    make_topic(broker)
    return PopConsumer(broker)


def send(consumer: PopConsumer, count: int, **fields: object) -> list[bytes]:
    found = [b"%d" % number for number in range(count)]
    for body in found:
        consumer.peer.send(body=body, **fields)
    return found


def revive_records(broker: SmallBroker) -> list[MessageExt]:
    peer = broker.connect(43_000)
    found: list[MessageExt] = []
    for queue_id in range(broker.config.revive_queue_num):
        found += peer.pull(REVIVE, queue_id, 0, consumer_group="CID_RMQ_SYS_LOOK").messages
    return found


def test_what_nobody_acknowledges_comes_again_and_what_is_acknowledged_does_not(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    send(consumer, 5)
    popped = consumer.pop()
    for message in popped.messages[:3]:
        assert consumer.ack(popped, message).code == 0
    pass_time(broker, 29)
    assert consumer.pop().messages == []
    pass_time(broker, COMES_AGAIN_S - 29)
    again = consumer.pop()
    assert again.bodies == [b"3", b"4"]
    first = again.messages[0]
    assert (first.topic, first.reconsume_times) == ("TopicA", 1)
    assert first.properties["1ST_POP_TIME"] == str(popped.header.pop_time)
    assert first.properties["ORIGIN_GROUP"] == "G"
    assert first.properties["POP_CK"] == (
        f"0 {again.header.pop_time} {INVISIBLE_MS} {again.header.revive_qid} 1 broker-a 0 0"
    )
    assert again.header.start_offset_info == "1 0 0"
    assert again.header.msg_offset_info == "1 0 0,1"
    for message in again.messages:
        assert consumer.ack(again, message).code == 0
    pass_time(broker, 2 * COMES_AGAIN_S)
    assert consumer.pop().messages == []


def test_it_comes_again_and_again_until_it_is_acknowledged(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    send(consumer, 1)
    first = consumer.pop()
    for times in (1, 2, 3):
        pass_time(broker, COMES_AGAIN_S)
        (message,) = consumer.pop().messages
        assert message.reconsume_times == times
        assert message.properties["1ST_POP_TIME"] == str(first.header.pop_time)


def test_the_retry_topic_is_made_under_the_name_that_is_in_use(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    send(consumer, 1)
    consumer.pop()
    broker.config.enable_retry_topic_v2 = True
    pass_time(broker, COMES_AGAIN_S)
    topic = broker.core.topics.get(RETRY_V2)
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
    assert broker.core.topics.get(RETRY_V1) is None
    found = {consumer.pop().header.start_offset_info for _ in range(40)}
    assert found == {"", "2 0 0"}


def test_both_names_are_looked_at_while_older_messages_may_be_left(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    send(consumer, 1)
    consumer.pop()
    pass_time(broker, COMES_AGAIN_S)
    assert broker.core.topics.get(RETRY_V1) is not None
    broker.config.enable_retry_topic_v2 = True
    broker.config.retrieve_message_from_pop_retry_topic_v1 = False
    assert [consumer.pop().bodies for _ in range(40)] == [[]] * 40
    broker.config.retrieve_message_from_pop_retry_topic_v1 = True
    found = [popped for _ in range(60) if (popped := consumer.pop()).messages]
    assert [popped.bodies for popped in found] == [[b"0"]]


def test_the_real_topic_is_told_if_asked(broker: SmallBroker, consumer: PopConsumer) -> None:
    broker.config.pop_response_return_actual_retry_topic = True
    send(consumer, 1)
    consumer.pop()
    pass_time(broker, COMES_AGAIN_S)
    (message,) = consumer.pop().messages
    assert message.topic == RETRY_V1
    assert "POP_CK" not in message.properties


def test_records_have_the_official_layout(broker: SmallBroker, consumer: PopConsumer) -> None:
    send(consumer, 2)
    popped = consumer.pop()
    consumer.ack(popped, popped.messages[1])
    point, ack = revive_records(broker)
    time_ms = popped.header.pop_time
    assert (
        point.properties_text
        == (
            f"TIMER_DELIVER_MS\x01{time_ms + INVISIBLE_MS - 1000}\x02"
            f"UNIQ_KEY\x01TopicA@0@0@G@{time_ms}@broker-a@ck\x02TAGS\x01ck\x02"
        ).encode()
    )
    assert (
        point.body
        == (
            f'{{"bm":0,"bn":"broker-a","c":"G","d":[0,1],"it":30000,"n":2,"pt":{time_ms},"q":0,'
            f'"reviveTime":{time_ms + INVISIBLE_MS},"ro":0,"so":0,"t":"TopicA"}}'
        ).encode()
    )
    assert (
        ack.properties_text
        == (
            f"TIMER_DELIVER_MS\x01{time_ms + INVISIBLE_MS}\x02"
            f"UNIQ_KEY\x01TopicA@0@1@G@{time_ms}@broker-a@ack\x02TAGS\x01ack\x02"
        ).encode()
    )
    assert (
        ack.body
        == (f'{{"ao":1,"bn":"broker-a","c":"G","pt":{time_ms},"q":0,"so":0,"t":"TopicA"}}').encode()
    )
    assert point.queue_id == ack.queue_id == popped.header.revive_qid
    assert point.born_host == point.store_host == ("192.0.2.1", 10911)


# ----------------------------------------------------------------- acknowledgements


def batch_ack(consumer: PopConsumer, popped: Popped, bits: list[int], **fields: object) -> int:
    size = max(bits, default=0) // 8 + 1
    data = sum(1 << bit for bit in bits).to_bytes(size, "little")
    header = popped.header
    entry = {
        "b": base64.b64encode(data).decode(),
        "c": consumer.group,
        "it": header.invisible_time,
        "pt": header.pop_time,
        "q": 0,
        "r": "0",
        "rq": header.revive_qid,
        "so": 0,
        "t": "TopicA",
        **fields,
    }
    body = json.dumps({"acks": [entry], "brokerName": "broker-a"}).encode()
    return consumer.peer.ask(RequestCode.BATCH_ACK_MESSAGE, None, body).code


def test_several_are_acknowledged_at_once(broker: SmallBroker, consumer: PopConsumer) -> None:
    send(consumer, 12)
    popped = consumer.pop()
    assert batch_ack(consumer, popped, [0, 2, 3, 9, 11, 500]) == 0
    _, ack = revive_records(broker)
    assert ack.tags == "bAck"
    assert json.loads(ack.body)["aol"] == [0, 2, 3, 9, 11]
    assert ack.uniq_key == f"TopicA@0@-1@G@{popped.header.pop_time}@broker-a@ack"
    pass_time(broker, COMES_AGAIN_S)
    assert consumer.pop().bodies == [b"1", b"4", b"5", b"6", b"7", b"8", b"10"]


def test_several_of_the_retry_topic_are_acknowledged_at_once(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    send(consumer, 3)
    consumer.pop()
    pass_time(broker, COMES_AGAIN_S)
    again = consumer.pop()
    assert batch_ack(consumer, again, [0, 2], r="1") == 0
    pass_time(broker, COMES_AGAIN_S)
    assert consumer.pop().bodies == [b"1"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"r": "7"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"rq": 8}, ResponseCode.MESSAGE_ILLEGAL),
        ({"b": base64.b64encode(b"\1" * 9000).decode()}, ResponseCode.MESSAGE_ILLEGAL),
        ({"t": "Nowhere"}, ResponseCode.SUCCESS),
    ],
)
def test_a_batch_that_names_nothing_real_is_refused_or_passed_over(
    broker: SmallBroker, consumer: PopConsumer, fields: dict[str, object], code: int
) -> None:
    send(consumer, 1)
    popped = consumer.pop()
    assert batch_ack(consumer, popped, [0], **fields) == code
    pass_time(broker, COMES_AGAIN_S)
    assert consumer.pop().bodies == [b"0"]


def test_an_empty_batch_is_no_message(consumer: PopConsumer) -> None:
    for body in (b"", b'{"acks":[]}'):
        answer = consumer.peer.ask(RequestCode.BATCH_ACK_MESSAGE, None, body)
        assert answer.code == ResponseCode.NO_MESSAGE


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"offset": 99}, ResponseCode.NO_MESSAGE, "commit:99, store:0~1"),
        ({"queue_id": 4}, ResponseCode.MESSAGE_ILLEGAL, "queueId[4] is illegal"),
        ({"queue_id": -1}, ResponseCode.MESSAGE_ILLEGAL, "queueId[-1] is illegal"),
        ({"topic": "Nowhere"}, ResponseCode.TOPIC_NOT_EXIST, "topic[Nowhere] not exist"),
        ({"extra_info": "0 1 2"}, ResponseCode.MESSAGE_ILLEGAL, "has 3 parts"),
        ({"extra_info": "0 x 2 0 0 b 0 0"}, ResponseCode.MESSAGE_ILLEGAL, "the pop time"),
        ({"extra_info": "0 1 2 77 0 b 0 0"}, ResponseCode.MESSAGE_ILLEGAL, "no revive queue 77"),
    ],
)
def test_an_acknowledgement_that_names_nothing_real_is_refused(
    consumer: PopConsumer, fields: dict[str, object], code: int, words: str
) -> None:
    send(consumer, 1)
    popped = consumer.pop()
    values = {
        "consumer_group": "G",
        "topic": "TopicA",
        "queue_id": 0,
        "offset": 0,
        "extra_info": popped.receipt(popped.messages[0]),
        **fields,
    }
    answer = consumer.peer.ask(RequestCode.ACK_MESSAGE, AckMessageRequestHeader(**values))
    assert answer.code == code
    assert words in (answer.remark or "")


def test_an_acknowledgement_may_be_repeated(broker: SmallBroker, consumer: PopConsumer) -> None:
    send(consumer, 2)
    popped = consumer.pop()
    for _ in range(3):
        assert consumer.ack(popped, popped.messages[0]).code == 0
    pass_time(broker, COMES_AGAIN_S)
    assert consumer.pop().bodies == [b"1"]


def test_an_acknowledgement_that_cannot_be_stored_is_refused(
    broker: SmallBroker, consumer: PopConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(consumer, 1)
    popped = consumer.pop()
    refuse_puts(broker, monkeypatch)
    answer = consumer.ack(popped, popped.messages[0])
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "not stored: SERVICE_NOT_AVAILABLE" in (answer.remark or "")


def refuse_puts(broker: SmallBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store takes nothing (a full disk)."""
    refused = PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)
    monkeypatch.setattr(broker.store, "put_message", lambda record: refused)


# ----------------------------------------------------------------- another time


def test_a_message_may_be_asked_for_earlier_or_later(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    send(consumer, 3)
    popped = consumer.pop()
    one, two, three = (popped.receipt(message) for message in popped.messages)
    consumer.change(one, 5_000)
    consumer.change(two, 90_000)
    consumer.ack_receipt(three)
    pass_time(broker, 8)
    assert consumer.pop().bodies == [b"0"]
    pass_time(broker, 60)
    assert b"1" not in consumer.pop().bodies
    pass_time(broker, 30)
    assert b"1" in consumer.pop().bodies


def test_the_new_receipt_acknowledges_and_the_old_one_does_not_any_more(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    send(consumer, 2)
    popped = consumer.pop()
    receipts = [popped.receipt(message) for message in popped.messages]
    pass_time(broker, 10)
    changed = [consumer.change(receipt, INVISIBLE_MS) for receipt in receipts]
    assert consumer.ack_receipt(changed[0]).code == 0
    assert consumer.ack_receipt(receipts[1]).code == 0
    pass_time(broker, COMES_AGAIN_S)
    assert consumer.pop().bodies == [b"1"]


def test_a_time_that_is_changed_in_the_same_millisecond_loses_nothing(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    send(consumer, 1)
    popped = consumer.pop()
    receipt = popped.receipt(popped.messages[0])
    # To the very same time, within the millisecond of the pop; and once more.
    receipt = consumer.change(receipt, INVISIBLE_MS)
    consumer.change(receipt, INVISIBLE_MS)
    pass_time(broker, COMES_AGAIN_S)
    assert consumer.pop().bodies == [b"0"]
    assert consumer.pop().messages == []


def test_a_time_that_cannot_be_stored_is_refused_and_the_old_one_counts(
    broker: SmallBroker, consumer: PopConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(consumer, 1)
    popped = consumer.pop()
    with monkeypatch.context() as patch:
        refuse_puts(broker, patch)
        with pytest.raises(AssertionError, match="the new time is not stored"):
            consumer.change(popped.receipt(popped.messages[0]), 300_000)
    pass_time(broker, COMES_AGAIN_S)
    assert consumer.pop().bodies == [b"0"]


# ----------------------------------------------------------------- nothing is lost


def test_what_cannot_be_noted_is_not_handed_out(
    broker: SmallBroker, consumer: PopConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(consumer, 2)
    with monkeypatch.context() as patch:
        refuse_puts(broker, patch)
        popped = consumer.pop()
        assert (popped.code, popped.messages) == (ResponseCode.POLLING_TIMEOUT, [])
        assert popped.header.rest_num >= 2
    assert consumer.pop().bodies == [b"0", b"1"]


def test_a_full_disk_delays_revival_and_loses_nothing(
    broker: SmallBroker, consumer: PopConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(consumer, 2)
    consumer.pop()
    with monkeypatch.context() as patch:
        refuse_puts(broker, patch)
        pass_time(broker, 2 * COMES_AGAIN_S)
    pass_time(broker, 7)
    assert consumer.pop().bodies == [b"0", b"1"]
    pass_time(broker, 7)
    assert consumer.pop().messages == []


def revive_offsets(broker: SmallBroker) -> list[int]:
    queues = range(broker.config.revive_queue_num)
    return [broker.core.offsets.query(REVIVE_GROUP, REVIVE, queue_id) for queue_id in queues]


def test_the_revive_group_stands_before_the_first_that_is_not_done(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    send(consumer, 1)
    popped = consumer.pop()
    queue_id = popped.header.revive_qid
    pass_time(broker, 3)
    assert revive_offsets(broker)[queue_id] == -1
    consumer.ack(popped, popped.messages[0])
    pass_time(broker, 3)
    # The check point and its acknowledgement.
    assert revive_offsets(broker)[queue_id] == 1


@pytest.mark.parametrize("kill", [False, True])
def test_a_restart_in_between_loses_nothing_and_forgets_no_acknowledgement(kill: bool) -> None:
    broker = SmallBroker()
    make_topic(broker)
    consumer = PopConsumer(broker)
    send(consumer, 8)
    popped = consumer.pop()
    for message in popped.messages[:5]:
        consumer.ack(popped, message)
    changed = consumer.change(popped.receipt(popped.messages[5]), 60_000)
    # The offsets are on disk, as every five seconds.
    pass_time(broker, 11)
    broker = restart(broker, kill)
    consumer = PopConsumer(broker)
    assert consumer.pop().messages == []
    pass_time(broker, COMES_AGAIN_S - 11)
    assert consumer.pop().bodies == [b"6", b"7"]
    consumer.ack_receipt(changed)
    pass_time(broker, 2 * COMES_AGAIN_S)
    assert sorted(consumer.pop().bodies) == [b"6", b"7"]
    broker.stop()


def test_a_kill_right_after_the_pop_makes_everything_come_again() -> None:
    broker = SmallBroker()
    make_topic(broker)
    consumer = PopConsumer(broker)
    send(consumer, 4)
    popped = consumer.pop()
    consumer.ack(popped, popped.messages[0])
    broker = restart(broker, True)
    make_topic(broker)
    consumer = PopConsumer(broker)
    # The group's offset was not saved yet: what it popped comes at once, the acknowledged one too.
    assert consumer.pop().bodies == [b"0", b"1", b"2", b"3"]
    broker.stop()


def restart(broker: SmallBroker, kill: bool, **settings: object) -> SmallBroker:
    return killed(broker, **settings) if kill else broker.restarted(**settings)


def test_nothing_comes_again_before_all_that_was_acknowledged_is_read() -> None:
    broker = SmallBroker(revive_queue_num=1)
    make_topic(broker)
    consumer = PopConsumer(broker)
    send(consumer, 40)
    pops = [consumer.pop(max_msg_nums=1) for _ in range(40)]
    pass_time(broker, 6)
    for popped in pops:
        consumer.ack(popped, popped.messages[0])
    broker.clock.advance(0)
    # The broker is down for a minute: all are due when it starts.
    clock = Clock()
    clock.advance(broker.clock.seconds() + 60)
    broker.disk.locked.clear()
    broker = SmallBroker(broker.disk, clock, revive_queue_num=1)
    pass_time(broker, 3)
    assert PopConsumer(broker).pop().messages == []
    assert broker.core.topics.get(RETRY_V1) is None
    broker.stop()


def test_a_huge_batch_of_acknowledgements_lets_others_have_their_turn(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    send(consumer, 3)
    popped = consumer.pop()
    header = popped.header
    entry = {"c": "G", "t": "TopicA", "r": "0", "so": 0, "q": 0, "rq": header.revive_qid}
    entry |= {"pt": header.pop_time, "it": header.invisible_time}
    offsets = [base64.b64encode(bytes([1 << bit])).decode() for bit in range(3)]
    first = [{**entry, "b": offsets[0]}, {**entry, "b": offsets[1]}] * 500
    body = json.dumps({"brokerName": "broker-a", "acks": [*first, {**entry, "b": offsets[2]}]})
    opaque = consumer.peer.tell(RequestCode.BATCH_ACK_MESSAGE, None, body.encode())
    assert consumer.peer.answer(opaque) is None
    assert 0 < service(broker).acks._parts.stats.acks["TopicA@G"].messages < 300
    # The others were served meanwhile; nobody waits for long.
    assert consumer.peer.send(body=b"between").queue_offset == 3
    for _ in range(20):
        broker.clock.advance(0)
    answer = consumer.peer.answer(opaque)
    assert answer is not None
    assert answer.code == 0
    pass_time(broker, COMES_AGAIN_S)
    assert consumer.pop().bodies == [b"between"]


def test_acknowledgements_of_topics_that_are_not_there_leave_nothing(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    send(consumer, 1)
    popped = consumer.pop()
    before = broker.store.max_physical_offset()
    for number in range(20):
        assert batch_ack(consumer, popped, [0], t=f"Nowhere{number}") == 0
    assert broker.store.max_physical_offset() == before
    assert list(broker.core.stats.acks) == []


def test_revival_passes_over_what_is_no_record(broker: SmallBroker, consumer: PopConsumer) -> None:
    send(consumer, 1)
    for tags, body in (("ck", b"{"), ("ack", b"[]"), ("bAck", b"{}"), ("other", b"x"), ("", b"")):
        consumer.peer.send(REVIVE, body, properties=f"TAGS\x01{tags}\x02" if tags else "")
    consumer.pop()
    pass_time(broker, COMES_AGAIN_S)
    assert consumer.pop().bodies == [b"0"]


@pytest.mark.parametrize("count", [-1, 128, 2**31 - 1, 2**62])
def test_a_check_point_of_more_messages_than_any_pop_has_is_passed_over(
    broker: SmallBroker, consumer: PopConsumer, count: int
) -> None:
    send(consumer, 1)
    claimed = {"t": "TopicA", "c": "G", "bn": "broker-a", "pt": broker.now_ms(), "n": count}
    consumer.peer.send(REVIVE, json.dumps(claimed).encode(), properties="TAGS\x01ck\x02")
    pass_time(broker, 5)
    assert service(broker).queues[0].waiting_count == 0
    assert consumer.pop().bodies == [b"0"]
    pass_time(broker, COMES_AGAIN_S)
    assert consumer.pop().bodies == [b"0"]


def test_a_message_whose_properties_are_full_comes_again(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    full = 32_767 - len(
        "MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01ClusterA\x02"
    )
    text = "UNIQ_KEY\x01A\x02"
    consumer.peer.send(body=b"full", properties=f"{text}X\x01{'x' * (full - len(text) - 3)}\x02")
    popped = consumer.pop()
    assert len(popped.messages[0].properties_text) == 32_767
    pass_time(broker, COMES_AGAIN_S)
    again = consumer.pop()
    assert again.bodies == [b"full"]
    assert (again.messages[0].properties["UNIQ_KEY"], len(again.messages[0].properties["X"])) == (
        "A",
        full - len(text) - 3,
    )
    assert consumer.ack(again, again.messages[0]).code == 0
    pass_time(broker, COMES_AGAIN_S)
    assert consumer.pop().bodies == []


def test_nothing_comes_again_to_a_group_or_topic_that_is_gone(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    send(consumer, 2)
    consumer.pop(max_msg_nums=1)
    consumer.pop(max_msg_nums=1)
    broker.core.topics.delete("TopicA")
    pass_time(broker, COMES_AGAIN_S)
    assert broker.core.topics.get(RETRY_V1) is None
    assert max(revive_offsets(broker)) == 1


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("acknowledged", [False, True])
def test_what_was_popped_of_a_deleted_topic_says_nothing_of_one_of_the_same_name(
    in_memory: bool, acknowledged: bool
) -> None:
    broker = SmallBroker(enable_pop_buffer_merge=in_memory)
    make_topic(broker, queues=1)
    consumer = PopConsumer(broker)
    send(consumer, 3)
    old = consumer.pop()
    assert len(old.messages) == 3
    told = {"topic": "TopicA"}
    assert consumer.peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields=told).code == 0
    make_topic(broker, queues=1)
    new = [b"new %d" % number for number in range(5)]
    for body in new:
        consumer.peer.send(body=body)
    if acknowledged:
        for message in old.messages:
            consumer.ack(old, message)
    pass_time(broker, 6)
    popped = consumer.pop()
    assert popped.bodies == new
    for message in popped.messages:
        assert consumer.ack(popped, message).code == 0
    pass_time(broker, 12)
    assert sum(queue.waiting_count for queue in service(broker).queues) == 0
    broker = killed(broker, enable_pop_buffer_merge=in_memory)
    consumer = PopConsumer(broker)
    pass_time(broker, COMES_AGAIN_S)
    assert consumer.pop().messages == []
    broker.stop()


def test_a_batch_that_is_one_record_comes_again_as_its_messages(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    attributes = {"queue.type": "BatchCQ"}
    broker.core.topics.update(
        [
            TopicConfig(
                topic_name="TopicB", read_queue_nums=1, write_queue_nums=1, attributes=attributes
            )
        ]
    )
    items = encode_batch([(0, b"%d" % number, b"KEYS\x01k%d\x02" % number) for number in range(3)])
    header = send_header("TopicB", batch=True, properties="UNIQ_KEY\x01B\x02")
    answer = consumer.peer.ask(RequestCode.SEND_BATCH_MESSAGE, header, items)
    assert answer.code == 0
    popped = consumer.pop("TopicB")
    assert popped.bodies == [items]
    pass_time(broker, COMES_AGAIN_S)
    again = consumer.pop("TopicB")
    assert again.bodies == [b"0", b"1", b"2"]
    assert [message.keys for message in again.messages] == ["k0", "k1", "k2"]
    assert {message.reconsume_times for message in again.messages} == {1}
    for message in again.messages:
        assert consumer.ack(again, message).code == 0
    pass_time(broker, COMES_AGAIN_S)
    assert consumer.pop("TopicB").messages == []
    assert sum(queue.waiting_count for queue in service(broker).queues) == 0


def test_two_pops_of_one_offset_and_one_time_lose_nothing(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    """A kill forgets where the group stood, and the clock is set back to where it was: both check points have one key."""
    bodies = send(consumer, 4)
    assert consumer.pop(max_msg_nums=1).bodies == bodies[:1]
    broker = killed(broker)
    consumer = PopConsumer(broker)
    again = consumer.pop()
    assert again.bodies == bodies
    assert consumer.ack(again, again.messages[3]).code == 0
    pass_time(broker, COMES_AGAIN_S)
    assert consumer.pop().bodies == bodies[:3]
    broker.stop()


def test_fewer_revive_queues_forget_nothing() -> None:
    broker = SmallBroker(revive_queue_num=4)
    make_topic(broker)
    consumer = PopConsumer(broker)
    send(consumer, 6)
    pops = [consumer.pop(max_msg_nums=1) for _ in range(6)]
    assert {popped.header.revive_qid for popped in pops} == {0, 1, 2, 3}
    broker = broker.restarted(revive_queue_num=1)
    consumer = PopConsumer(broker)
    assert consumer.ack(pops[3], pops[3].messages[0]).code == 0
    pass_time(broker, COMES_AGAIN_S)
    assert sorted(consumer.pop().bodies) == [b"0", b"1", b"2", b"4", b"5"]
    broker.stop()


# ----------------------------------------------------------------- check points in memory


@pytest.fixture
def merging() -> Iterator[PopConsumer]:
    broker = SmallBroker(enable_pop_buffer_merge=True)
    make_topic(broker)
    yield PopConsumer(broker)
    broker.stop()


def test_what_is_acknowledged_soon_is_never_written(merging: PopConsumer) -> None:
    broker = merging.broker
    send(merging, 3)
    popped = merging.pop()
    assert merging.pop().messages == []
    assert broker.core.offsets.query("G", "TopicA", 0) == 0
    for message in popped.messages:
        merging.ack(popped, message)
    assert broker.core.offsets.query("G", "TopicA", 0) == 3
    pass_time(broker, COMES_AGAIN_S)
    assert revive_records(broker) == []
    assert merging.pop().messages == []


@pytest.mark.parametrize("batch", [False, True])
def test_what_stays_too_long_is_written_with_its_acknowledgements(
    merging: PopConsumer, batch: bool
) -> None:
    broker = merging.broker
    broker.config.enable_pop_batch_ack = batch
    send(merging, 4)
    popped = merging.pop()
    merging.ack(popped, popped.messages[0])
    merging.ack(popped, popped.messages[2])
    assert revive_records(broker) == []
    pass_time(broker, 11)
    records = revive_records(broker)
    assert [record.tags for record in records] == (
        ["ck", "bAck"] if batch else ["ck", "ack", "ack"]
    )
    if batch:
        time_ms = popped.header.pop_time
        assert records[1].uniq_key == f"TopicA@0@[0, 2]@G@{time_ms}@bAck"
    assert broker.core.offsets.query("G", "TopicA", 0) == 4
    merging.ack(popped, popped.messages[3])
    pass_time(broker, COMES_AGAIN_S - 11)
    assert merging.pop().bodies == [b"1"]


def test_offsets_follow_in_the_order_of_the_pops(merging: PopConsumer) -> None:
    broker = merging.broker
    send(merging, 3)
    first, second, third = (merging.pop(max_msg_nums=1) for _ in range(3))
    merging.ack(second, second.messages[0])
    merging.ack(third, third.messages[0])
    assert broker.core.offsets.query("G", "TopicA", 0) == 0
    merging.ack(first, first.messages[0])
    assert broker.core.offsets.query("G", "TopicA", 0) == 3


@pytest.mark.parametrize("kill", [False, True])
def test_a_restart_with_check_points_in_memory_loses_nothing(kill: bool) -> None:
    broker = SmallBroker(enable_pop_buffer_merge=True)
    make_topic(broker)
    pass_time(broker, 6)
    consumer = PopConsumer(broker)
    send(consumer, 3)
    popped = consumer.pop()
    consumer.ack(popped, popped.messages[0])
    broker = restart(broker, kill, enable_pop_buffer_merge=True)
    consumer = PopConsumer(broker)
    if kill:
        # An acknowledgement in memory is forgotten with its check point.
        assert consumer.pop().bodies == [b"0", b"1", b"2"]
    else:
        assert consumer.pop().messages == []
        pass_time(broker, COMES_AGAIN_S)
        assert consumer.pop().bodies == [b"1", b"2"]
    broker.stop()


def test_a_short_invisible_time_is_not_kept_in_memory(merging: PopConsumer) -> None:
    send(merging, 1)
    merging.pop(invisible_time=4_000)
    assert [record.tags for record in revive_records(merging.broker)] == ["ck"]
    pass_time(merging.broker, 7)
    assert merging.pop().bodies == [b"0"]


# ----------------------------------------------------------------- any order of events


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_pops_acknowledgements_and_restarts(seed: int, merge: bool) -> None:
    chance = random.Random(seed)
    broker = SmallBroker(enable_pop_buffer_merge=merge)
    make_topic(broker, queues=3)
    consumer = PopConsumer(broker)
    sent: set[bytes] = set()
    done: set[bytes] = set()
    held: list[tuple[str, bytes, int]] = []
    for step in range(120):
        what = chance.randrange(10)
        now_ms = broker.now_ms()
        if what < 3:
            body = b"m%d" % step
            consumer.peer.send(body=body, queue_id=chance.randrange(3))
            sent.add(body)
        elif what < 6:
            popped = consumer.pop(max_msg_nums=chance.randrange(1, 5))
            for message in popped.messages:
                assert message.body not in done
                held.append((popped.receipt(message), message.body, now_ms + INVISIBLE_MS))
        elif what < 8 and held:
            receipt, body, until_ms = held.pop(chance.randrange(len(held)))
            if now_ms < until_ms:
                assert consumer.ack_receipt(receipt).code == 0
                done.add(body)
        elif what == 8 and held:
            index = chance.randrange(len(held))
            receipt, body, until_ms = held[index]
            if now_ms < until_ms:
                held[index] = consumer.change(receipt, 20_000), body, now_ms + 20_000
        elif what == 9 and chance.random() < 0.3:
            broker = broker.restarted(enable_pop_buffer_merge=merge)
            consumer = PopConsumer(broker)
        pass_time(broker, chance.choice((0, 0.001, 1, 4)))
    got: set[bytes] = set()
    for _ in range(12):
        pass_time(broker, COMES_AGAIN_S)
        popped = consumer.pop()
        for message in popped.messages:
            assert message.body not in done | got
            assert consumer.ack(popped, message).code == 0
            got.add(message.body)
    assert got | done == sent
    broker.stop()


def test_check_points_that_wait_are_bounded(broker: SmallBroker, consumer: PopConsumer) -> None:
    service(broker).points.max_waiting = 1
    queues = broker.config.revive_queue_num
    send(consumer, queues + 3)
    popped = [consumer.pop(max_msg_nums=1) for _ in range(queues)]
    assert [found.bodies for found in popped] == [[b"%d" % number] for number in range(queues)]
    assert consumer.pop(max_msg_nums=1).code == ResponseCode.POLLING_TIMEOUT
    first = popped[1]
    receipt = first.receipt(first.messages[0])
    parts = receipt.split(" ")
    fields = {
        "consumerGroup": "G", "topic": "TopicA", "queueId": parts[6], "extraInfo": receipt,
        "offset": parts[7], "invisibleTime": "10000",
    }  # fmt: skip
    answer = consumer.peer.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext_fields=fields)
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert answer.remark == "too many messages of revive queue 1 are out"
    assert consumer.ack(first, first.messages[0]).code == 0
    assert consumer.pop(max_msg_nums=1).bodies == [b"%d" % queues]
    pass_time(broker, COMES_AGAIN_S)
    assert consumer.pop(max_msg_nums=1).code == 0
