"""What of a pull reaches the handler, and how does it look there?"""

from __future__ import annotations

from received import received

from txrocketmq.client.consumer.incoming import matching, prepare, rename_for_application
from txrocketmq.codec.record import encode_batch
from txrocketmq.model.flags import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from txrocketmq.model.heartbeat import build_subscription
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message import MessageExt
from txrocketmq.model.names import retry_topic
from txrocketmq.model.properties import format_properties

ALL = build_subscription("TopicTest", "*")
WRAPPED = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG


def prepared(*messages: MessageExt) -> list[MessageExt]:
    return prepare(list(messages), ALL, 3, 77)


def test_tags_whose_hashes_collide_are_told_apart() -> None:
    assert tags_code("AaAa") == tags_code("BBBB")
    messages = [received(0, properties={"TAGS": tag}) for tag in ("AaAa", "BBBB", "other")]
    messages.append(received(3))
    wanted = build_subscription("TopicTest", "AaAa || more")
    assert matching(messages, wanted) == messages[:1]
    assert matching(messages, ALL) == messages
    assert matching(messages, build_subscription("TopicTest", "a > 1", "SQL92")) == messages


def test_messages_say_where_their_queue_begins_and_ends() -> None:
    with_end = received(5, properties={"KEYS": "k"})
    without_end = received(5, properties_text=b"KEYS\x01k")
    parsed = received(5, properties={"KEYS": "k"})
    assert parsed.properties == {"KEYS": "k"}
    for message in prepared(with_end, without_end, received(5), parsed):
        assert message.properties["MIN_OFFSET"] == "3"
        assert message.properties["MAX_OFFSET"] == "77"
        assert message.keys in ("k", None)


def test_a_batch_record_becomes_its_messages() -> None:
    inner = encode_batch(
        [(number, b"%d" % number, format_properties({"KEYS": f"k{number}"})) for number in range(3)]
    )
    batch = received(10, inner, sys_flag=WRAPPED, reconsume_times=2)
    found = prepared(received(9), batch, received(13))
    assert [message.queue_offset for message in found] == [9, 10, 11, 12, 13]
    assert [message.body for message in found[1:4]] == [b"0", b"1", b"2"]
    assert [message.keys for message in found[1:4]] == ["k0", "k1", "k2"]
    assert [message.flag for message in found[1:4]] == [0, 1, 2]
    assert {message.broker_name for message in found} == {"broker-a"}


def test_a_batch_that_cannot_be_read_stays_as_it_is() -> None:
    batch = received(10, b"\0\0\0", sys_flag=WRAPPED)
    assert prepared(batch) == [batch]
    once = received(10, b"\0\0\0", sys_flag=INNER_BATCH_FLAG)
    assert prepared(once) == [once]


def test_a_filter_hook_may_take_messages_out_and_its_failure_harms_nothing() -> None:
    def broken(messages: list[MessageExt]) -> None:
        raise ValueError

    def first_only(messages: list[MessageExt]) -> None:
        del messages[1:]

    messages = [received(1), received(2)]
    assert prepare(list(messages), ALL, 0, 9, [broken, first_only]) == messages[:1]


def test_retried_messages_show_their_own_topic() -> None:
    retry = retry_topic("ns%group")
    message = received(0, topic=retry, properties={"RETRY_TOPIC": "ns%TopicTest"})
    plain = received(1, topic=retry)
    rename_for_application([message, plain], retry, lambda name: name.removeprefix("ns%"))
    assert message.topic == "TopicTest"
    assert plain.topic == retry


def test_messages_of_a_pop_retry_topic_show_its_topic() -> None:
    retry = "%RETRY%group+TopicTest"
    message = received(0, topic=retry)
    rename_for_application([message], retry, lambda name: name, "TopicTest")
    assert message.topic == "TopicTest"


def test_names_of_a_name_space_are_shown_without_it() -> None:
    message = received(0, topic="ns%TopicTest")
    rename_for_application([message], "ns%TopicTest", lambda name: name.removeprefix("ns%"))
    assert message.topic == "TopicTest"
