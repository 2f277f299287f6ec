"""What operators do with topics: create with attributes, several at once, delete with all that belongs to them."""

from __future__ import annotations

import json

import pytest
from operators import committed, create_group, create_topic, refused, tell, told
from small_broker import Peer, SmallBroker

from txrocketmq.model.codes import RequestCode, ResponseCode

R = RequestCode
OFFSETS = "/store/config/consumerOffset.json"


def kept(broker: SmallBroker, file: str = "topics.json") -> dict[str, object]:
    """A table as the next start would find it."""
    data = json.loads(broker.disk.read_file(f"/store/config/{file}"))
    found: dict[str, object] = data["topicConfigTable"]
    return found


def queue_files(broker: SmallBroker, topic: str) -> list[str]:
    return broker.disk.listdir(f"/store/consumequeue/{topic}")


# ----------------------------------------------------------------- BR-60


def test_attributes_are_added_changed_and_removed(broker: SmallBroker, peer: Peer) -> None:
    assert create_topic(peer, "T", attributes="+message.type=FIFO").code == 0
    assert told(peer, R.GET_TOPIC_CONFIG, topic="T")["attributes"] == {"message.type": "FIFO"}
    # Other settings change and the attributes stay.
    assert create_topic(peer, "T", 2).code == 0
    assert told(peer, R.GET_TOPIC_CONFIG, topic="T") == {
        "attributes": {"message.type": "FIFO"},
        "order": False,
        "perm": 6,
        "readQueueNums": 2,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "T",
        "topicSysFlag": 0,
        "writeQueueNums": 2,
    }
    assert create_topic(peer, "T", attributes="+message.type=NORMAL").code == 0
    assert told(peer, R.GET_TOPIC_CONFIG, topic="T")["attributes"] == {"message.type": "NORMAL"}
    assert create_topic(peer, "T", attributes="-message.type").code == 0
    assert told(peer, R.GET_TOPIC_CONFIG, topic="T")["attributes"] == {}
    again = broker.restarted()
    assert create_topic(again.connect(), "T", attributes="+message.type=DELAY").code == 0
    again.stop()


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ("+color=red", "unsupported key: color"),
        (
            "+message.type=LOUD",
            "value is not in set: [UNSPECIFIED, NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY, MIXED]",
        ),
        ("message.type=FIFO", "add/alter attribute format is wrong: message.type"),
        ("+message.type=", "add/alter attribute has no value: +message.type"),
        ("message.type", "delete attribute format is wrong: message.type"),
        (
            "-message.type",
            "only add attribute is supported while creating topic. key: message.type",
        ),
        ("+message.type=FIFO,+message.type=NORMAL", "key duplication: +message.type"),
        ("+queue.type=batchcq", "value is not in set: [BatchCQ, SimpleCQ]"),
        ("+cleanup.policy=KEEP", "value is not in set: [DELETE, COMPACTION]"),
        ("+reserve.time=-2", "value is not in range(-1, 9223372036854775807)"),
        ("+reserve.time=soon", 'For input string: "soon"'),
    ],
)
def test_attributes_that_cannot_be_set_are_refused_and_nothing_is_made(
    broker: SmallBroker, peer: Peer, change: str, remark: str
) -> None:
    answer = create_topic(peer, "T", attributes=change)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert broker.core.topics.get("T") is None


def test_an_existing_topic_keeps_its_kind(peer: Peer) -> None:
    assert create_topic(peer, "T", attributes="+queue.type=SimpleCQ").code == 0
    answer = create_topic(peer, "T", attributes="+queue.type=SimpleCQ")
    assert answer.remark == "attempt to update an unchangeable attribute. key: queue.type"
    answer = create_topic(peer, "T", attributes="-message.type")
    assert answer.remark == "attempt to delete a nonexistent key: message.type"


def test_topics_for_messages_of_all_kinds_need_a_broker_that_allows_them(
    broker: SmallBroker, peer: Peer
) -> None:
    answer = create_topic(peer, "T", attributes="+message.type=MIXED")
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark == "MIXED message type is not supported."
    broker.config.enable_mixed_message_type = True
    assert create_topic(peer, "T", attributes="+message.type=MIXED").code == 0


# ----------------------------------------------------------------- BR-61


def topic_list(*topics: dict[str, object]) -> bytes:
    return json.dumps({"topicConfigList": list(topics)}).encode()


def test_several_topics_are_made_at_once_and_announced(broker: SmallBroker, peer: Peer) -> None:
    body = topic_list(
        {"topicName": "One", "readQueueNums": 2, "writeQueueNums": 2},
        {"topicName": "Two", "attributes": {"+message.type": "FIFO"}},
    )
    answer = tell(peer, R.UPDATE_AND_CREATE_TOPIC_LIST, body)
    assert (answer.code, answer.remark) == (0, "not set any response code")
    assert told(peer, R.GET_TOPIC_CONFIG, topic="One")["readQueueNums"] == 2
    assert told(peer, R.GET_TOPIC_CONFIG, topic="Two")["attributes"] == {"message.type": "FIFO"}
    assert {"One", "Two"} <= kept(broker).keys()
    # An unchanged one does not keep the others from being made.
    body = topic_list(
        {"topicName": "One", "readQueueNums": 2, "writeQueueNums": 2}, {"topicName": "Three"}
    )
    assert tell(peer, R.UPDATE_AND_CREATE_TOPIC_LIST, body).code == 0
    assert "Three" in kept(broker)


def test_one_bad_topic_of_a_list_and_none_is_made(broker: SmallBroker, peer: Peer) -> None:
    body = topic_list({"topicName": "One"}, {"topicName": "TBW102"})
    assert refused(peer, R.UPDATE_AND_CREATE_TOPIC_LIST, body) == (
        ResponseCode.INVALID_PARAMETER,
        "The topic[TBW102] is conflict with system topic.",
    )
    assert broker.core.topics.get("One") is None


# ----------------------------------------------------------------- BR-62


def test_a_deleted_topic_is_gone_with_queues_files_offsets_and_pop_retry_topics(
    broker: SmallBroker, peer: Peer
) -> None:
    create_topic(peer, "T")
    create_topic(peer, "Other")
    create_topic(peer, "%RETRY%G_T")
    create_topic(peer, "%RETRY%G+T")
    create_topic(peer, "%RETRY%G")
    create_group(peer, "G")
    for topic in ("T", "%RETRY%G_T", "Other"):
        broker.core.offsets.commit("G", topic, 0, 1, "test")
        peer.send("Other")
        peer.send("T")
    broker.clock.advance(5)
    assert queue_files(broker, "T")
    answer = tell(peer, R.DELETE_TOPIC_IN_BROKER, topic="T")
    assert (answer.code, answer.remark) == (0, None)
    assert queue_files(broker, "T") == []
    assert queue_files(broker, "Other")
    assert committed(peer, "G", "Other") == 1
    broker.clock.advance(5)
    assert b'"offsetTable":{"Other@G":{0:1}}' in broker.disk.read_file(OFFSETS)
    names = kept(broker).keys()
    assert {"Other", "%RETRY%G"} <= names
    assert not {"T", "%RETRY%G_T", "%RETRY%G+T"} & names
    assert refused(peer, R.GET_TOPIC_CONFIG, topic="T") == (
        ResponseCode.TOPIC_NOT_EXIST,
        "No topic in this broker. topic: T",
    )
    # A topic of the same name starts anew, also after a restart that finds the old messages in the log.
    create_topic(peer, "T")
    assert peer.send("T").queue_offset == 0
    again = broker.restarted()
    assert again.connect().send("T").queue_offset == 1
    again.stop()


def test_pop_retry_topics_stay_when_told_so(broker: SmallBroker, peer: Peer) -> None:
    broker.config.clear_retry_topic_when_delete_topic = False
    create_topic(peer, "T")
    create_topic(peer, "%RETRY%G_T")
    broker.core.offsets.commit("G", "T", 0, 1, "test")
    told(peer, R.DELETE_TOPIC_IN_BROKER, topic="T")
    assert "%RETRY%G_T" in kept(broker)


def test_system_topics_and_nothing_cannot_be_deleted(broker: SmallBroker, peer: Peer) -> None:
    assert refused(peer, R.DELETE_TOPIC_IN_BROKER, topic="TBW102") == (
        ResponseCode.INVALID_PARAMETER,
        "The topic[TBW102] is conflict with system topic.",
    )
    assert refused(peer, R.DELETE_TOPIC_IN_BROKER, topic=" ") == (
        ResponseCode.INVALID_PARAMETER,
        "The specified topic is blank.",
    )
    assert tell(peer, R.DELETE_TOPIC_IN_BROKER, topic="NeverThere").code == 0


def test_a_deleted_topic_can_be_sent_to_only_where_topics_are_made_by_themselves(
    broker: SmallBroker, peer: Peer
) -> None:
    peer.send("T")
    broker.config.auto_create_topic_enable = False
    told(peer, R.DELETE_TOPIC_IN_BROKER, topic="T")
    with pytest.raises(AssertionError, match="topic\\[T\\] not exist"):
        peer.send("T", default_topic="NoSuchModel")
    broker.config.auto_create_topic_enable = True
    assert peer.send("T").queue_offset == 0


# ----------------------------------------------------------------- BR-74, the rest


def test_queues_of_topics_that_nobody_knows_are_cleaned(broker: SmallBroker, peer: Peer) -> None:
    peer.send("T")
    peer.send("Other")
    broker.clock.advance(5)
    # As when the table was copied from elsewhere.
    broker.core.topics.delete("T")
    assert tell(peer, R.CLEAN_UNUSED_TOPIC).code == 0
    assert queue_files(broker, "T") == []
    assert queue_files(broker, "Other")


def test_names_that_the_system_keeps_for_itself(peer: Peer) -> None:
    listed = told(peer, R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)["topicList"]
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "ClusterA", "broker-a"} <= set(listed)


# ----------------------------------------------------------------- BR-88


def test_unit_flags_travel_with_the_topic(broker: SmallBroker, peer: Peer) -> None:
    create_topic(peer, "T", topicSysFlag=3)
    assert told(peer, R.GET_TOPIC_CONFIG, topic="T")["topicSysFlag"] == 3
    peer.send("Unit", unit_mode=True)
    assert told(peer, R.GET_TOPIC_CONFIG, topic="Unit")["topicSysFlag"] == 1
