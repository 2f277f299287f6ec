"""Sends: what is stored, what is answered, what is refused with which words."""

from __future__ import annotations

from typing import Any

import pytest
from request_headers import long_send_header
from small_broker import (
    START_S,
    Peer,
    SmallBroker,
    assert_fired,
    properties,
    send_header,
)
from twisted.internet.defer import Deferred, succeed

from txrocketmq.codec.headers import SendMessageResponseHeader
from txrocketmq.codec.record import encode_batch
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.message import Message
from txrocketmq.model.topic import TopicConfig
from txrocketmq.store.results import PutMessageResult, PutMessageStatus
from txrocketmq.testing.pools import ManualPool

SEND, SEND_V2 = RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE
JSON, BINARY = 0, 1


def refused(peer: Peer, code: int, **fields: Any) -> str:
    """A send that is refused with a code; the remark."""
    answer = peer.ask(SEND_V2, send_header(**fields), fields.pop("body", b"x"))
    assert answer.code == code
    # As official brokers: the marks for traces travel with refusals, too.
    assert answer.ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    return answer.remark or ""


# ----------------------------------------------------------------- BR-06, BR-09


def test_the_answer_names_message_queue_and_offset(peer: Peer) -> None:
    text = properties(UNIQ_KEY="U" * 32, TAGS="TagA")
    first = peer.ask(SEND_V2, send_header(queue_id=2, properties=text), b"one")
    assert first.code == 0
    assert first.remark is None
    assert first.ext_fields == {
        "msgId": "C000020100002A9F0000000000000000",
        "queueId": "2",
        "queueOffset": "0",
        "transactionId": "U" * 32,
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    second = peer.send(queue_id=2)
    (stored,) = peer.pull(queue_id=2, offset=1).messages
    assert second.queue_offset == 1
    assert second.msg_id == stored.msg_id


@pytest.mark.parametrize("serialize_type", [JSON, BINARY])
@pytest.mark.parametrize(("code", "header"), [(SEND, long_send_header), (SEND_V2, send_header)])
def test_both_codes_and_both_encodings_store_the_same_message(
    peer: Peer, code: int, header: Any, serialize_type: int
) -> None:
    fields = {
        "queue_id": 1,
        "flag": 77,
        "sys_flag": 0x101,
        "properties": properties(UNIQ_KEY="U1", KEYS="k1 k2", TAGS="TagA", color="blå"),
        "reconsume_times": 0,
    }
    answer = peer.ask(
        code,
        header(**fields),
        b"body",
        ext_fields={"zzz": "unknown"},
        serialize_type=serialize_type,
        version=32767,
    )
    assert answer.code == 0
    assert answer.serialize_type == serialize_type
    (stored,) = peer.pull(queue_id=1).messages
    assert (stored.topic, stored.queue_id, stored.queue_offset) == ("TopicA", 1, 0)
    assert (stored.body, stored.flag, stored.sys_flag) == (b"body", 77, 0x101)
    assert stored.born_timestamp == START_S * 1000 - 5
    assert stored.born_host == ("192.0.2.10", 40000)
    assert stored.store_host == ("192.0.2.1", 10911)
    assert stored.properties == {
        "UNIQ_KEY": "U1",
        "KEYS": "k1 k2",
        "TAGS": "TagA",
        "color": "blå",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "ClusterA",
    }


@pytest.mark.parametrize("serialize_type", [JSON, BINARY])
def test_a_missing_required_field_is_named_and_the_link_stays_open(
    peer: Peer, serialize_type: int
) -> None:
    fields = {"a": "P", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
    answer = peer.ask(SEND_V2, ext_fields=fields, serialize_type=serialize_type)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "'b'" in (answer.remark or "")
    answer = peer.ask(SEND_V2, serialize_type=serialize_type)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert peer.send().queue_offset == 0


def test_an_empty_value_is_absent_in_binary(peer: Peer) -> None:
    header = send_header(properties="")
    for serialize_type in (JSON, BINARY):
        assert peer.ask(SEND_V2, header, b"x", serialize_type=serialize_type).code == 0
    assert [set(m.properties) for m in peer.pull().messages] == [
        {"UNIQ_KEY", "MSG_REGION", "TRACE_ON", "CLUSTER"}
    ] * 2


def test_ipv6_clients_and_brokers_have_56_digit_ids() -> None:
    broker = SmallBroker(broker_ip1="2001:db8::1")
    peer = broker.connect(host="2001:db8::9")
    answer = peer.send()
    assert answer.msg_id == "20010DB800000000000000000000000100002A9F0000000000000000"
    (stored,) = peer.pull().messages
    assert stored.born_host == ("2001:db8::9", 40000)
    assert stored.store_host == ("2001:db8::1", 10911)
    assert broker.core.address == "[2001:db8::1]:10911"
    broker.stop()


# ----------------------------------------------------------------- BR-07, BR-08


def test_a_batch_is_stored_as_consecutive_messages_with_a_list_of_ids(peer: Peer) -> None:
    messages = [
        Message(
            topic="TopicA",
            body=f"b{number}".encode(),
            flag=number,
            properties={"UNIQ_KEY": f"U{number}", "TAGS": "TagB", "WAIT": "true"},
        )
        for number in range(3)
    ]
    header = send_header(properties=properties(UNIQ_KEY="BATCH", WAIT="true"), batch=True)
    body = encode_batch([(m.flag, m.body, _text(m)) for m in messages])
    answer = peer.ask_for(SendMessageResponseHeader, BATCH, header, body)
    stored = peer.pull().messages
    assert [m.body for m in stored] == [b"b0", b"b1", b"b2"]
    assert [m.flag for m in stored] == [0, 1, 2]
    assert [m.queue_offset for m in stored] == [0, 1, 2]
    assert answer.msg_id == ",".join(m.msg_id for m in stored)
    assert (answer.queue_offset, answer.transaction_id) == (0, "BATCH")
    assert stored[1].properties == {"UNIQ_KEY": "U1", "TAGS": "TagB", "WAIT": "true"}
    # The same body may come with the code of a single send.
    again = peer.ask_for(SendMessageResponseHeader, SEND_V2, header, body)
    assert again.queue_offset == 3


def _text(message: Message) -> bytes:
    return properties(**message.properties).encode()


def test_a_batch_is_checked_as_a_whole(peer: Peer) -> None:
    answer = peer.ask(BATCH, send_header(batch=True), b"no batch at all")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    answer = peer.ask(BATCH, send_header("%RETRY%G", batch=True), b"")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert answer.remark == "batch request does not support retry group %RETRY%G"
    answer = peer.ask(BATCH, send_header(queue_id=99, batch=True), b"")
    assert answer.code == ResponseCode.INVALID_PARAMETER


def test_oneway_sends_are_stored_and_never_answered(peer: Peer) -> None:
    for header in (send_header(), send_header("bad topic!")):
        opaque = peer.tell(SEND_V2, header, b"quiet", flag=2)
        assert peer.answer(opaque) is None
    assert peer.pull().bodies == [b"quiet"]


# ----------------------------------------------------------------- BR-10 to BR-13


def test_a_topic_is_created_by_its_first_message(broker: SmallBroker, peer: Peer) -> None:
    peer.send("Fresh", default_topic_queue_nums=4)
    topic = broker.core.topics.get("Fresh")
    assert topic is not None
    assert (topic.write_queue_nums, topic.perm) == (4, 6)
    peer.send("Wide", default_topic_queue_nums=100)
    wide = broker.core.topics.get("Wide")
    assert wide is not None
    assert wide.write_queue_nums == 8


def test_without_automatic_creation_the_remark_names_the_topic() -> None:
    broker = SmallBroker(auto_create_topic_enable=False)
    remark = refused(broker.connect(), ResponseCode.TOPIC_NOT_EXIST, topic="Fresh")
    assert remark == (
        "topic[Fresh] not exist, apply first please!\n"
        "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    )
    broker.stop()


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("", "The specified topic is blank."),
        ("   ", "The specified topic is blank."),
        ("a b", "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("täg", "contains illegal characters"),
        ("T" * 128, "is longer than topic max length: 127"),
        ("%RETRY%" + "G" * 249, "it's longer than topic max length: 255"),
    ],
)
def test_illegal_topic_names_are_refused(peer: Peer, topic: str, words: str) -> None:
    assert words in refused(peer, ResponseCode.INVALID_PARAMETER, topic=topic)


def test_names_of_greatest_length_are_taken(peer: Peer) -> None:
    assert peer.send("T" * 127).queue_offset == 0
    assert peer.pull("T" * 127).bodies == [b"hello"]
    retry = "%RETRY%" + "G" * 120
    assert peer.send(retry).queue_offset == 0
    assert peer.pull(retry).bodies == [b"hello"]


@pytest.mark.parametrize(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    ],
)
def test_reserved_topics_are_refused(peer: Peer, topic: str) -> None:
    remark = refused(peer, ResponseCode.NO_PERMISSION, topic=topic)
    assert remark == f"Sending message to topic[{topic}] is forbidden."


def test_body_limit_with_size_and_limit_in_the_remark() -> None:
    broker = SmallBroker(mapped_file_size_commit_log=16 * 1024 * 1024)
    peer = broker.connect()
    limit = 4 * 1024 * 1024
    for size in (limit - 1, limit):
        assert peer.ask(SEND_V2, send_header(), bytes(size)).code == 0
    answer = peer.ask(SEND_V2, send_header(), bytes(limit + 1))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert answer.remark == (
        "the message is illegal, maybe msg body or properties length not matched. msg body length "
        "limit 4194304B, msg properties length limit 32KB. This message has a body of 4194305B "
        "and properties of 98B."
    )
    assert peer.pull(max_msg_nums=1).messages[0].body == bytes(limit - 1)
    broker.stop()


def test_properties_limit(peer: Peer) -> None:
    own = len(properties(MSG_REGION="DefaultRegion", TRACE_ON="true", CLUSTER="ClusterA"))
    room = 32767 - own - len(properties(UNIQ_KEY="U", n=""))
    fits = properties(UNIQ_KEY="U", n="v" * room)
    assert peer.ask(SEND_V2, send_header(properties=fits), b"").code == 0
    answer = peer.ask(SEND_V2, send_header(properties=fits + properties(m="1")), b"")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert peer.pull().messages[0].properties["n"] == "v" * room


def test_a_negative_queue_id_picks_one_a_large_one_is_refused(peer: Peer) -> None:
    found = {peer.send(queue_id=-1).queue_id for _ in range(60)}
    assert found == {0, 1, 2, 3}
    remark = refused(peer, ResponseCode.INVALID_PARAMETER, queue_id=4)
    assert remark == (
        "request queueId[4] is illegal, TopicConfig [topicName=TopicA, readQueueNums=4, "
        "writeQueueNums=4, perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false, "
        "attributes={}] Producer: 192.0.2.10:40000"
    )


def test_a_queue_that_is_only_read_from_can_still_be_written(
    broker: SmallBroker, peer: Peer
) -> None:
    broker.core.topics.update(
        [TopicConfig(topic_name="Shrinking", read_queue_nums=4, write_queue_nums=2)]
    )
    assert peer.send("Shrinking", queue_id=3).queue_id == 3
    assert refused(peer, ResponseCode.INVALID_PARAMETER, topic="Shrinking", queue_id=4)


# ----------------------------------------------------------------- permissions and times


def test_only_ordered_topics_feel_the_broker_permission(broker: SmallBroker, peer: Peer) -> None:
    broker.core.topics.update(
        [TopicConfig(topic_name="Ordered", order=True), TopicConfig(topic_name="ReadOnly", perm=4)]
    )
    broker.config.broker_permission = 4
    remark = refused(peer, ResponseCode.NO_PERMISSION, topic="Ordered")
    assert remark == "the broker[192.0.2.1] sending message is forbidden"
    # Clients honour the topic's permission through the route.
    assert peer.send("ReadOnly").queue_offset == 0


def test_sends_before_the_accept_time_are_refused() -> None:
    broker = SmallBroker(start_accept_send_request_time_stamp=(START_S + 10) * 1000)
    peer = broker.connect()
    remark = refused(peer, ResponseCode.SYSTEM_ERROR)
    assert remark == "broker unable to service, until 2023-11-14 22:13:30,000 UTC"
    broker.clock.advance(10)
    assert peer.send().queue_offset == 0
    broker.stop()


def test_region_and_trace_switch_follow_the_configuration(broker: SmallBroker, peer: Peer) -> None:
    broker.config.region_id = "North"
    broker.config.trace_on = False
    answer = peer.ask(SEND_V2, send_header(), b"x")
    assert (answer.ext_fields or {})["MSG_REGION"] == "North"
    (stored,) = peer.pull().messages
    assert (stored.properties["MSG_REGION"], stored.properties["TRACE_ON"]) == ("North", "false")


# ----------------------------------------------------------------- WT-10, S04


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a\x011\x02b\x012\x02", {"a": "1", "b": "2"}),
        ("a\x011\x02b\x012", {"a": "1", "b": "2"}),
        ("a\x011\x02a\x012\x02", {"a": "2"}),
        ("a\x01\x02\x01b\x02c\x02d\x014\x02", {"d": "4"}),
        ("a\x01b\x01c\x02", {"a": "b\x01c"}),
        ("\x02\x02a\x011\x02\x02", {"a": "1"}),
        ("k\x01,=中文😀\x02", {"k": ",=中文😀"}),
    ],
)
def test_odd_property_texts_lose_what_is_empty_and_keep_the_rest(
    peer: Peer, text: str, kept: dict[str, str]
) -> None:
    peer.send(body=b"before")
    peer.send(properties=text)
    peer.send(body=b"after")
    before, odd, after = peer.pull().messages
    own = {"UNIQ_KEY", "MSG_REGION", "TRACE_ON", "CLUSTER"}
    assert {k: v for k, v in odd.properties.items() if k not in own} == kept
    assert set(before.properties) == set(after.properties) == own


def test_the_brokers_own_properties_cannot_be_set_by_clients(peer: Peer) -> None:
    text = properties(CLUSTER="Fake", MSG_REGION="Fake", TRACE_ON="Fake", POP_CK="1 2 3", a="1")
    peer.send(properties=text)
    (stored,) = peer.pull().messages
    del stored.properties["UNIQ_KEY"]
    assert stored.properties == {
        "a": "1",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "ClusterA",
    }


# ----------------------------------------------------------------- what comes with later releases


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        ({"DELAY": "x"}, ResponseCode.MESSAGE_ILLEGAL, "the delay level 'x' is no number"),
        ({"DELAY": "3000000000"}, ResponseCode.MESSAGE_ILLEGAL, "is no number"),
        (
            {"TRAN_MSG": "true", "DELAY": "1"},
            ResponseCode.MESSAGE_ILLEGAL,
            "a transactional message cannot be delayed: it has DELAY",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_and_never_delivered_at_once(
    peer: Peer, found: dict[str, str], code: int, words: str
) -> None:
    peer.send(body=b"plain", properties=properties(DELAY="0", TRAN_MSG="false"))
    assert words in refused(peer, code, properties=properties(**found))
    assert peer.pull().bodies == [b"plain"]


def test_a_message_for_a_retry_topic_creates_it(broker: SmallBroker, peer: Peer) -> None:
    peer.send("%RETRY%G", default_topic="NoModel", reconsume_times=16)
    topic = broker.core.topics.get("%RETRY%G")
    assert topic is not None
    assert topic.write_queue_nums == 1
    (stored,) = peer.pull("%RETRY%G").messages
    assert stored.reconsume_times == 16


# ----------------------------------------------------------------- outcomes of the store


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (PutMessageStatus.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_DISK_TIMEOUT),
        (PutMessageStatus.FLUSH_SLAVE_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT),
        (PutMessageStatus.SLAVE_NOT_AVAILABLE, ResponseCode.SLAVE_NOT_AVAILABLE),
    ],
)
def test_stored_but_not_as_safe_as_wished_still_tells_where(
    broker: SmallBroker, peer: Peer, status: PutMessageStatus, code: int
) -> None:
    put = broker.store.put_message
    broker.store.put_message = (  # type: ignore[method-assign]
        lambda record: succeed(put(record).with_status(status))  # type: ignore[union-attr]
    )
    answer = peer.ask(SEND_V2, send_header(), b"x")
    assert answer.code == code
    assert answer.decode_header(SendMessageResponseHeader).queue_offset == 0


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (
            PutMessageStatus.SERVICE_NOT_AVAILABLE,
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "service not available now.",
        ),
        (
            PutMessageStatus.CREATE_MAPPED_FILE_FAILED,
            ResponseCode.SYSTEM_ERROR,
            "create mapped file failed, server is busy or broken.",
        ),
        (PutMessageStatus.MESSAGE_ILLEGAL, ResponseCode.MESSAGE_ILLEGAL, "limit 4194304B"),
        (PutMessageStatus.PROPERTIES_SIZE_EXCEEDED, ResponseCode.MESSAGE_ILLEGAL, "limit 32KB"),
        (PutMessageStatus.OS_PAGE_CACHE_BUSY, ResponseCode.SYSTEM_BUSY, "[PC_SYNCHRONIZED]"),
        (PutMessageStatus.UNKNOWN_ERROR, ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"),
        (
            PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH,
            ResponseCode.SYSTEM_ERROR,
            "in-sync replicas not enough",
        ),
        (PutMessageStatus.WHEEL_TIMER_NOT_ENABLE, ResponseCode.SYSTEM_ERROR, "not enabled"),
    ],
)
def test_what_the_store_does_not_take_is_told_with_the_official_code(
    broker: SmallBroker, peer: Peer, status: PutMessageStatus, code: int, words: str
) -> None:
    broker.store.put_message = (  # type: ignore[method-assign]
        lambda record: PutMessageResult(status)
    )
    assert words in refused(peer, code)


def test_a_synchronous_flush_is_waited_for_unless_the_message_says_no() -> None:
    broker = SmallBroker(flush_disk_type="SYNC_FLUSH")
    pool = ManualPool()
    broker.store.flusher._pool = pool
    peer = broker.connect()
    waiting = peer.tell(SEND_V2, send_header(), b"x")
    assert peer.answer(waiting) is None
    hurried = peer.tell(SEND_V2, send_header(properties=properties(WAIT="false")), b"y")
    assert peer.answer(hurried) is not None
    broker.clock.advance(0)
    pool.run()
    answer = peer.answer(waiting)
    assert answer is not None
    assert answer.code == 0
    late = peer.tell(SEND_V2, send_header(), b"z")
    broker.clock.advance(5.1)
    told = peer.answer(late)
    assert told is not None
    assert told.code == ResponseCode.FLUSH_DISK_TIMEOUT
    pool.run()
    stopping: Deferred[None] = broker.core.stop()
    assert_fired(stopping)
