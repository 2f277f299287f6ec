"""Offsets of queues and groups, order locks, topics and groups on request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from small_broker import START_S, Peer, SmallBroker

from txrocketmq.codec.bodies import (
    KVTable,
    LockBatchRequestBody,
    LockBatchResponseBody,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
    UnlockBatchRequestBody,
    decode_body,
    encode_body,
)
from txrocketmq.codec.headers import (
    CreateTopicRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.message import MessageQueue
from txrocketmq.model.topic import TopicConfig

R = RequestCode


def commit(peer: Peer, offset: int, group: str = "G", topic: str = "TopicA") -> Any:
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group, topic=topic, queue_id=0, commit_offset=offset
    )
    return peer.ask(R.UPDATE_CONSUMER_OFFSET, header)


def query(peer: Peer, group: str = "G", **fields: Any) -> tuple[int, str]:
    header = QueryConsumerOffsetRequestHeader(
        consumer_group=group, topic="TopicA", queue_id=0, **fields
    )
    answer = peer.ask(R.QUERY_CONSUMER_OFFSET, header)
    return answer.code, (answer.ext_fields or {}).get("offset") or answer.remark or ""


# ----------------------------------------------------------------- BR-36


def test_commits_are_answered_and_found_again(broker: SmallBroker, peer: Peer) -> None:
    peer.send()
    broker.core.groups.find("G")
    answer = commit(peer, 3)
    assert (answer.code, answer.ext_fields) == (0, {})
    assert query(peer) == (0, "3")
    opaque = peer.tell(
        R.UPDATE_CONSUMER_OFFSET,
        UpdateConsumerOffsetRequestHeader(
            consumer_group="G", topic="TopicA", queue_id=0, commit_offset=4
        ),
        flag=2,
    )
    assert peer.answer(opaque) is None
    assert query(peer) == (0, "4")


def test_commits_of_unknown_groups_or_topics_are_refused(broker: SmallBroker, peer: Peer) -> None:
    answer = commit(peer, 3)
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert answer.remark == "Group G not exist!"
    broker.core.groups.find("G")
    answer = commit(peer, 3)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark == "Topic TopicA not exist!"


@pytest.mark.parametrize("queue_id", [-1, 4, 2**31 - 1])
def test_commits_for_queues_that_cannot_be_are_refused(
    broker: SmallBroker, peer: Peer, queue_id: int
) -> None:
    peer.send()
    broker.core.groups.find("G")
    answer = peer.ask(
        R.UPDATE_CONSUMER_OFFSET,
        UpdateConsumerOffsetRequestHeader(
            consumer_group="G", topic="TopicA", queue_id=queue_id, commit_offset=4
        ),
    )
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark == (
        f"queueId[{queue_id}] is illegal, topic:[TopicA] topicConfig.readQueueNums:[4]"
    )
    assert broker.core.offsets.to_wrapper().offset_table == {}


def test_a_new_group_starts_at_zero_on_a_young_queue_only() -> None:
    broker = SmallBroker(memory_bytes=100_000)
    peer = broker.connect()
    not_found = ResponseCode.QUERY_NOT_FOUND
    peer.send()
    assert query(peer) == (0, "0")
    assert query(peer, set_zero_if_not_found=False) == (
        not_found,
        "Not found, do not set to zero, maybe this group boot first",
    )
    # The queue's first message gets too far back to be in memory.
    for _ in range(50):
        peer.send(body=bytes(10_000))
    assert query(peer) == (
        not_found,
        "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
    )
    broker.stop()


def test_offsets_survive_a_restart(broker: SmallBroker) -> None:
    again = broker
    for round_number in range(3):
        peer = again.connect()
        peer.send()
        again.core.groups.find("G")
        assert query(peer) == (0, str(round_number))
        commit(peer, round_number + 1)
        again = again.restarted()
    again.stop()


def test_offsets_are_on_disk_within_the_period_without_any_stop(
    broker: SmallBroker, peer: Peer
) -> None:
    peer.send()
    broker.core.groups.find("G")
    commit(peer, 1)
    broker.clock.advance(5)
    assert b'"TopicA@G":{0:1}' in broker.disk.read_file("/store/config/consumerOffset.json")
    answer = peer.ask(R.GET_ALL_CONSUMER_OFFSET)
    assert b'"offsetTable":{"TopicA@G":{0:1}}' in answer.body


# ----------------------------------------------------------------- BR-39


@pytest.mark.parametrize(
    ("code", "header"),
    [
        (R.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="TopicA", queue_id=0)),
        (R.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic="TopicA", queue_id=0)),
        (
            R.SEARCH_OFFSET_BY_TIMESTAMP,
            SearchOffsetRequestHeader(topic="TopicA", queue_id=0, timestamp=0),
        ),
        (
            R.QUERY_CONSUMER_OFFSET,
            QueryConsumerOffsetRequestHeader(consumer_group="new", topic="TopicA", queue_id=0),
        ),
    ],
)
def test_nobody_guesses_offsets_of_a_queue_that_is_in_recovery(
    broker: SmallBroker, peer: Peer, code: RequestCode, header: object
) -> None:
    peer.send()
    recovering = {("TopicA", 0): "[RECOVERY]not known yet"}
    broker.store.recovering = lambda *queue: recovering.get(queue)  # type: ignore[method-assign]
    broker.store.incomplete = broker.store.recovering  # type: ignore[method-assign]
    answer = peer.ask(code, header)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, "[RECOVERY]not known yet")
    recovering.clear()
    assert peer.ask(code, header).code != ResponseCode.SYSTEM_BUSY


def test_bounds_and_times_of_a_queue(broker: SmallBroker, peer: Peer) -> None:
    for _ in range(3):
        peer.send()
        broker.clock.advance(10)

    def max_offset(queue_id: int) -> int:
        header = GetMaxOffsetRequestHeader(topic="TopicA", queue_id=queue_id)
        return peer.ask_for(GetMaxOffsetResponseHeader, R.GET_MAX_OFFSET, header).offset

    def min_offset(queue_id: int) -> int:
        header = GetMinOffsetRequestHeader(topic="TopicA", queue_id=queue_id)
        return peer.ask_for(GetMinOffsetResponseHeader, R.GET_MIN_OFFSET, header).offset

    def earliest(queue_id: int) -> int:
        header = GetEarliestMsgStoretimeRequestHeader(topic="TopicA", queue_id=queue_id)
        return peer.ask_for(
            GetEarliestMsgStoretimeResponseHeader, R.GET_EARLIEST_MSG_STORETIME, header
        ).timestamp

    assert (max_offset(0), min_offset(0), earliest(0)) == (3, 0, START_S * 1000)
    assert (max_offset(1), min_offset(1), earliest(1)) == (0, 0, -1)


@pytest.mark.parametrize(
    ("seconds", "boundary", "offset"),
    [
        (-5, "LOWER", 0),
        (0, "LOWER", 0),
        (5, "LOWER", 1),
        (10, "lower", 1),
        (10, None, 1),
        (15, "UPPER", 1),
        (20, "UPPER", 2),
        (25, "LOWER", 3),
        (25, "UPPER", 2),
    ],
)
def test_search_by_time(
    broker: SmallBroker, peer: Peer, seconds: int, boundary: str | None, offset: int
) -> None:
    for _ in range(3):
        peer.send()
        broker.clock.advance(10)
    header = SearchOffsetRequestHeader(
        topic="TopicA",
        queue_id=0,
        timestamp=(START_S + seconds) * 1000,
        boundary_type=boundary,
    )
    found = peer.ask_for(SearchOffsetResponseHeader, R.SEARCH_OFFSET_BY_TIMESTAMP, header)
    assert found.offset == offset


# ----------------------------------------------------------------- BR-34


def test_locks_over_the_wire(broker: SmallBroker, peer: Peer) -> None:
    queues = [
        MessageQueue(topic="TopicA", broker_name="broker-a", queue_id=number) for number in (0, 1)
    ]

    def lock(client: str) -> list[MessageQueue]:
        body = LockBatchRequestBody(consumer_group="G", client_id=client, mq_set=queues)
        answer = peer.ask(R.LOCK_BATCH_MQ, None, encode_body(body))
        assert answer.code == 0
        return sorted(decode_body(LockBatchResponseBody, answer.body).lock_okmq_set)

    assert lock("a") == queues
    assert lock("b") == []
    broker.clock.advance(30)
    assert lock("a") == queues
    broker.clock.advance(60)
    assert lock("b") == []
    body = UnlockBatchRequestBody(consumer_group="G", client_id="a", mq_set=queues[:1])
    assert peer.ask(R.UNLOCK_BATCH_MQ, None, encode_body(body)).code == 0
    assert lock("b") == queues[:1]
    broker.clock.advance(0.001)
    assert lock("b") == queues
    assert peer.ask(R.LOCK_BATCH_MQ, None, b"{}").code == ResponseCode.SYSTEM_ERROR


# ----------------------------------------------------------------- topics and groups on request


def create(peer: Peer, topic: str = "Made", **fields: Any) -> Any:
    values: dict[str, Any] = {
        "topic": topic,
        "default_topic": "TBW102",
        "read_queue_nums": 3,
        "write_queue_nums": 2,
        "perm": 6,
        "topic_filter_type": "SINGLE_TAG",
        "topic_sys_flag": 0,
        "order": False,
        "attributes": "",
        **fields,
    }
    return peer.ask(R.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(**values))


def test_a_topic_is_made_and_changed_on_request(broker: SmallBroker, peer: Peer) -> None:
    answer = create(peer)
    assert (answer.code, answer.remark) == (0, "not set any response code")
    topic = broker.core.topics.get("Made")
    assert topic == TopicConfig(topic_name="Made", read_queue_nums=3, write_queue_nums=2)
    version = broker.core.topics.data_version.counter
    create(peer)
    assert broker.core.topics.data_version.counter == version
    create(peer, order=True, perm=4)
    topic = broker.core.topics.get("Made")
    assert topic is not None
    assert (topic.order, topic.perm) == (True, 4)
    assert json.loads(broker.disk.read_file("/store/config/topics.json"))["topicConfigTable"][
        "Made"
    ]["order"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"topic": "a b"}, "contains illegal characters"),
        ({"topic": "TBW102"}, "The topic[TBW102] is conflict with system topic."),
        ({"topic": "rmq_sys_x"}, "The topic[rmq_sys_x] is conflict with system topic."),
        ({"perm": 9}, "perm 9"),
        ({"read_queue_nums": 65_537}, "readQueueNums 65537 is none of 0 to 65536"),
        ({"write_queue_nums": 2**31 - 1}, "writeQueueNums 2147483647 is none of 0 to 65536"),
        ({"read_queue_nums": -1}, "readQueueNums -1 is none of 0 to 65536"),
        ({"attributes": "+queue.type=Batch"}, "value is not in set"),
    ],
)
def test_topics_that_cannot_be_made(peer: Peer, fields: dict[str, Any], words: str) -> None:
    answer = create(peer, **fields)
    assert answer.code in (ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR)
    assert words in (answer.remark or "")


def test_all_topics_are_listed_whole_or_in_parts(broker: SmallBroker, peer: Peer) -> None:
    answer = peer.ask(R.GET_ALL_TOPIC_CONFIG)
    whole = decode_body(TopicConfigSerializeWrapper, answer.body)
    assert set(whole.topic_config_table) == {t.topic_name for t in broker.core.topics.all()}
    total = len(whole.topic_config_table)
    assert answer.ext_fields == {"totalTopicNum": str(total)}
    version = encode_body(broker.core.topics.data_version).decode()
    found: list[str] = []
    while len(found) < total:
        fields = {"topicSeq": str(len(found)), "maxTopicNum": "5", "dataVersion": version}
        answer = peer.ask(R.GET_ALL_TOPIC_CONFIG, ext_fields=fields)
        part = decode_body(TopicConfigSerializeWrapper, answer.body).topic_config_table
        assert len(part) == min(5, total - len(found))
        found += part
    assert sorted(found) == sorted(whole.topic_config_table)
    # Another version than ours: the asker starts anew.
    fields = {"topicSeq": "5", "maxTopicNum": "2", "dataVersion": ""}
    answer = peer.ask(R.GET_ALL_TOPIC_CONFIG, ext_fields=fields)
    again = decode_body(TopicConfigSerializeWrapper, answer.body).topic_config_table
    assert list(again) == sorted(whole.topic_config_table)[:2]


def test_groups_are_made_and_listed(broker: SmallBroker, peer: Peer) -> None:
    group = SubscriptionGroupConfig(group_name="Made", retry_max_times=3)
    answer = peer.ask(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, encode_body(group))
    assert answer.code == 0
    assert broker.core.groups.get("Made") == group
    bad = SubscriptionGroupConfig(group_name="no good")
    answer = peer.ask(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, encode_body(bad))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    answer = peer.ask(R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    table = decode_body(SubscriptionGroupWrapper, answer.body).subscription_group_table
    assert table["Made"].retry_max_times == 3
    assert answer.ext_fields == {"totalGroupNum": str(len(table))}
    answer = peer.ask(
        R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, ext_fields={"groupSeq": "0", "maxGroupNum": "2"}
    )
    part = decode_body(SubscriptionGroupWrapper, answer.body).subscription_group_table
    assert list(part) == sorted(table)[:2]


def test_runtime_figures(broker: SmallBroker, peer: Peer) -> None:
    peer.send()
    peer.pull()
    broker.clock.advance(3661)
    table = decode_body(KVTable, peer.ask(R.GET_BROKER_RUNTIME_INFO).body).table
    assert table["brokerVersionDesc"] == "V5_4_0"
    assert table["msgPutTotalTodayNow"] == "1"
    assert table["msgGetTotalTodayNow"] == "1"
    assert table["runtime"] == "[ 0 days, 1 hours, 1 minutes, 1 seconds ]"
