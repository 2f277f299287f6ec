"""What do a topic's attributes make of its messages: ``queue.type``, ``cleanup.policy``, ``reserve.time``?"""

from __future__ import annotations

import pytest
from operators import R, create_topic, told
from small_broker import Peer, SmallBroker, properties, pull_header, send_header

from txrocketmq.codec.headers import SendMessageResponseHeader
from txrocketmq.codec.record import encode_batch
from txrocketmq.model.codes import RequestCode, ResponseCode

SEND = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE
BATCH_TOPIC = "+queue.type=BatchCQ"
COMPACTED = "+cleanup.policy=COMPACTION"


def batch_of(*bodies: bytes) -> bytes:
    return encode_batch([(0, body, properties(UNIQ_KEY="U").encode()) for body in bodies])


def test_attributes_of_all_kinds_are_taken_and_kept(broker: SmallBroker, peer: Peer) -> None:
    wanted = {
        "queue.type": "BatchCQ",
        "cleanup.policy": "COMPACTION",
        "reserve.time": "3600000",
        "message.type": "NORMAL",
    }
    for number, (name, value) in enumerate(wanted.items()):
        assert create_topic(peer, f"T{number}", attributes=f"+{name}={value}").code == 0
    # Of these, two may be altered and removed.
    assert create_topic(peer, "T2", attributes="+reserve.time=-1").code == 0
    assert create_topic(peer, "T3", attributes="-message.type").code == 0
    for topic, name in (("T0", "queue.type"), ("T1", "cleanup.policy")):
        answer = create_topic(peer, topic, attributes=f"-{name}")
        assert answer.remark == f"attempt to update an unchangeable attribute. key: {name}"
    again = broker.restarted()
    kept = [
        told(again.connect(), R.GET_TOPIC_CONFIG, topic=f"T{number}")["attributes"]
        for number in range(4)
    ]
    assert kept == [
        {"queue.type": "BatchCQ"},
        {"cleanup.policy": "COMPACTION"},
        {"reserve.time": "-1"},
        {},
    ]
    again.stop()


def test_a_topic_with_a_time_of_its_own_is_served_as_any_other(peer: Peer) -> None:
    create_topic(peer, "T", attributes="+reserve.time=1")
    peer.send("T", b"one")
    assert peer.pull("T").bodies == [b"one"]


# ----------------------------------------------------------------- batch queues


@pytest.mark.parametrize("again", [False, True], ids=["at-once", "after-restart"])
def test_a_batch_is_one_message_that_consumers_unpack(
    broker: SmallBroker, peer: Peer, again: bool
) -> None:
    create_topic(peer, "B", attributes=BATCH_TOPIC)
    header = send_header("B", batch=True, properties=properties(UNIQ_KEY="BATCH", KEYS="k"))
    first = peer.ask_for(SendMessageResponseHeader, BATCH, header, batch_of(b"1", b"2", b"3"))
    second = peer.ask_for(SendMessageResponseHeader, BATCH, header, batch_of(b"4"))
    assert (first.queue_offset, second.queue_offset) == (0, 3)
    assert first.batch_uniq_id == first.transaction_id == "BATCH"
    assert "," not in first.msg_id
    if again:
        broker = broker.restarted()
        peer = broker.connect()
    pulled = peer.pull("B")
    assert (pulled.header.next_begin_offset, pulled.header.max_offset) == (4, 4)
    one, two = pulled.messages
    assert (one.body, two.body) == (batch_of(b"1", b"2", b"3"), batch_of(b"4"))
    assert one.sys_flag == 0xC0
    assert one.properties == {
        "UNIQ_KEY": "BATCH",
        "KEYS": "k",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "ClusterA",
        "INNER_NUM": "3",
        "INNER_BASE": "0",
    }
    assert one.msg_id == first.msg_id
    assert two.properties["INNER_BASE"] == "3"
    if again:
        broker.stop()


def test_a_held_pull_hears_of_a_batch(peer: Peer) -> None:
    create_topic(peer, "B", attributes=BATCH_TOPIC)
    header = send_header("B", batch=True, properties=properties(UNIQ_KEY="BATCH"))
    peer.ask(BATCH, header, batch_of(b"1", b"2"))
    waiting = peer.tell(
        RequestCode.PULL_MESSAGE,
        pull_header("B", offset=2, sys_flag=6, suspend_timeout_millis=20_000),
    )
    assert peer.answer(waiting) is None
    peer.ask(BATCH, header, batch_of(b"3"))
    peer._broker.clock.advance(0)
    answer = peer.answer(waiting)
    assert answer is not None
    assert answer.code == 0


def test_single_messages_lie_between_batches(peer: Peer) -> None:
    create_topic(peer, "B", attributes=BATCH_TOPIC)
    header = send_header("B", batch=True, properties=properties(UNIQ_KEY="BATCH"))
    assert peer.send("B", b"one").queue_offset == 0
    peer.ask(BATCH, header, batch_of(b"2", b"3"))
    assert peer.send("B", b"four").queue_offset == 3
    assert peer.pull("B").bodies == [b"one", batch_of(b"2", b"3"), b"four"]


def test_a_batch_without_a_unique_id_gets_one(peer: Peer) -> None:
    create_topic(peer, "B", attributes=BATCH_TOPIC)
    answer = peer.ask_for(
        SendMessageResponseHeader, BATCH, send_header("B", batch=True), batch_of(b"1", b"2")
    )
    assert answer.batch_uniq_id
    assert peer.pull("B").messages[0].uniq_key == answer.batch_uniq_id


@pytest.mark.parametrize("body", [b"", b"no batch at all"])
def test_what_is_no_batch_is_refused(peer: Peer, body: bytes) -> None:
    create_topic(peer, "B", attributes=BATCH_TOPIC)
    answer = peer.ask(BATCH, send_header("B", batch=True), body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


def test_other_topics_take_batches_as_before(peer: Peer) -> None:
    create_topic(peer, "S", attributes="+queue.type=SimpleCQ")
    peer.ask_for(
        SendMessageResponseHeader, BATCH, send_header("S", batch=True), batch_of(b"1", b"2")
    )
    assert peer.pull("S").bodies == [b"1", b"2"]


# ----------------------------------------------------------------- compaction


@pytest.mark.parametrize("keys", [None, " "])
def test_messages_of_a_compacted_topic_need_a_key(peer: Peer, keys: str | None) -> None:
    create_topic(peer, "C", attributes=COMPACTED)
    text = properties(UNIQ_KEY="U", **({} if keys is None else {"KEYS": keys}))
    answer = peer.ask(SEND, send_header("C", properties=text), b"one")
    assert (answer.code, answer.remark) == (
        ResponseCode.MESSAGE_ILLEGAL,
        "Required message key is missing",
    )
    peer.send("C", b"two", properties=properties(UNIQ_KEY="U", KEYS="k"))
    assert peer.pull("C").bodies == [b"two"]
