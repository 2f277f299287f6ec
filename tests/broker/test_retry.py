"""Messages sent back by consumers: what is tried again when, and what ends among the dead letters."""

from __future__ import annotations

import json
from typing import Any

import pytest
from small_broker import START_S, Peer, SmallBroker, properties

from txrocketmq.codec.headers import ConsumerSendMsgBackRequestHeader
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.message import MessageExt, MessageQueue
from txrocketmq.model.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from txrocketmq.model.topic import TopicConfig

BACK = RequestCode.CONSUMER_SEND_MSG_BACK
RETRY, DEAD = "%RETRY%G", "%DLQ%G"


def back_header(message: MessageExt, **fields: Any) -> ConsumerSendMsgBackRequestHeader:
    values = {
        "offset": message.physical_offset,
        "group": "G",
        "delay_level": 0,
        "origin_msg_id": message.uniq_key,
        "origin_topic": message.topic,
        "max_reconsume_times": 16,
        **fields,
    }
    return ConsumerSendMsgBackRequestHeader(**values)


def send_back(peer: Peer, message: MessageExt, version: int = 493, **fields: Any) -> None:
    answer = peer.ask(BACK, back_header(message, **fields), version=version)
    assert (answer.code, answer.remark) == (0, None)


def refused(peer: Peer, message: MessageExt, **fields: Any) -> tuple[int, str]:
    answer = peer.ask(BACK, back_header(message, **fields))
    return answer.code, answer.remark or ""


def received(peer: Peer, topic: str = "TopicA", offset: int = 0, queue_id: int = 0) -> MessageExt:
    (message,) = peer.pull(topic, queue_id, offset).messages
    return message


def sent(peer: Peer, body: bytes = b"hello", **found: str) -> MessageExt:
    peer.send(body=body, properties=properties(UNIQ_KEY="U1", TAGS="TagA", KEYS="k", **found))
    return received(peer)


# ----------------------------------------------------------------- BR-40


def test_the_first_retry_waits_ten_seconds_and_each_further_one_a_level_more(
    broker: SmallBroker, peer: Peer
) -> None:
    message = sent(peer)
    came = START_S
    for times, wait_s in enumerate((10, 30, 60, 120), start=1):
        send_back(peer, message)
        broker.clock.advance(wait_s - 0.5)
        assert peer.pull(RETRY, 0, times - 1).messages == []
        broker.clock.advance(0.5)
        message = received(peer, RETRY, times - 1)
        came += wait_s
        assert message.reconsume_times == times
        assert message.store_timestamp == came * 1000
        assert message.properties["DELAY"] == str(2 + times)


def test_a_transactions_message_that_is_given_up_is_a_dead_letter(
    broker: SmallBroker, peer: Peer
) -> None:
    text = properties(UNIQ_KEY="U1", TRAN_MSG="true", PGROUP="PG", DELAY="18", RETRY_TOPIC="TopicA")
    peer.send(RETRY, b"dead", reconsume_times=17, max_reconsume_times=16, properties=text)
    assert peer.pull(DEAD).bodies == [b"dead"]
    assert broker.store.max_offset(TRANS_HALF_TOPIC, 0) == 0


@pytest.mark.parametrize(("queues", "wanted"), [(1, 8), (4, 2), (0, 3)])
def test_retries_go_to_queues_that_are_read(
    broker: SmallBroker, peer: Peer, queues: int, wanted: int
) -> None:
    """The retry topic was made when the group wanted another number of queues, or an operator changed it."""
    topic = TopicConfig(topic_name=RETRY, read_queue_nums=queues, write_queue_nums=8)
    broker.core.topics.update([topic])
    broker.core.groups.update(SubscriptionGroupConfig(group_name="G", retry_queue_nums=wanted))
    message = sent(peer)
    for _ in range(30):
        send_back(peer, message, delay_level=1)
    broker.clock.advance(1.5)
    read = max(1, min(queues, wanted))
    counts = [broker.store.max_offset(RETRY, queue_id) for queue_id in range(read)]
    assert sum(counts) == 30
    assert all(counts)


def test_a_retry_is_the_message_with_its_first_id_topic_and_key(
    broker: SmallBroker, peer: Peer
) -> None:
    message = sent(peer, b"body", color="blue")
    send_back(peer, message)
    broker.clock.advance(10)
    again = received(peer, RETRY)
    assert (again.body, again.uniq_key, again.tags, again.keys) == (b"body", "U1", "TagA", "k")
    assert again.properties["ORIGIN_MESSAGE_ID"] == message.msg_id
    assert again.properties["RETRY_TOPIC"] == "TopicA"
    assert again.properties["WAIT"] == "false"
    assert again.properties["color"] == "blue"
    assert (again.born_timestamp, again.born_host) == (message.born_timestamp, message.born_host)
    assert again.store_host == message.store_host
    send_back(peer, again)
    broker.clock.advance(30)
    third = received(peer, RETRY, 1)
    assert third.properties["ORIGIN_MESSAGE_ID"] == message.msg_id
    assert third.properties["RETRY_TOPIC"] == "TopicA"
    assert third.reconsume_times == 2


@pytest.mark.parametrize(("level", "queue_id"), [(1, 0), (5, 4), (18, 17), (1959, 17)])
def test_the_consumer_may_choose_the_level(peer: Peer, level: int, queue_id: int) -> None:
    send_back(peer, sent(peer), delay_level=level)
    assert received(peer, SCHEDULE_TOPIC, queue_id=queue_id).properties["REAL_TOPIC"] == RETRY


def test_the_retry_topic_has_the_groups_queues_and_both_permissions(
    broker: SmallBroker, peer: Peer
) -> None:
    broker.core.groups.update(SubscriptionGroupConfig(group_name="G", retry_queue_nums=3))
    message = sent(peer)
    for _ in range(40):
        send_back(peer, message, unit_mode=True)
    topic = broker.core.topics.get(RETRY)
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (3, 3, 6)
    assert topic.topic_sys_flag == 2
    broker.clock.advance(10.1)
    assert all(broker.store.max_offset(RETRY, queue_id) > 0 for queue_id in range(3))


def test_a_group_is_created_by_its_first_message_back(broker: SmallBroker, peer: Peer) -> None:
    send_back(peer, sent(peer), group="New")
    assert "New" in broker.core.groups
    assert "%RETRY%New" in broker.core.topics


def test_a_committed_transaction_is_tried_again_as_one(broker: SmallBroker, peer: Peer) -> None:
    peer.send(sys_flag=8, properties=properties(UNIQ_KEY="U1", TRAN_MSG="false"))
    send_back(peer, received(peer))
    broker.clock.advance(10)
    assert received(peer, RETRY).sys_flag == 8


def test_the_largest_message_can_be_sent_back_again_and_again() -> None:
    """S14: the copies have more properties than the original."""
    broker = SmallBroker(mapped_file_size_commit_log=64 << 20)
    peer = broker.connect()
    message = sent(peer, bytes(4 << 20))
    for times in range(3):
        send_back(peer, message, delay_level=1)
        broker.clock.advance(1.1)
        message = received(peer, RETRY, times)
        assert len(message.body) == 4 << 20
    broker.stop()


# ----------------------------------------------------------------- BR-41


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_a_message_is_dead_when_it_was_tried_as_often_as_the_consumer_says(
    broker: SmallBroker, peer: Peer, limit: int
) -> None:
    message = sent(peer)
    for times in range(limit):
        send_back(peer, message, max_reconsume_times=limit)
        broker.clock.advance(3600)
        message = received(peer, RETRY, times)
    assert DEAD not in broker.core.topics
    send_back(peer, message, max_reconsume_times=limit)
    dead = received(peer, DEAD)
    assert dead.reconsume_times == limit + 1
    assert dead.uniq_key == "U1"
    assert dead.properties["RETRY_TOPIC"] == "TopicA"
    assert dead.properties["DELAY"] == "0"
    topic = broker.core.topics.get(DEAD)
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
    stats = broker.core.stats
    assert stats.of_send_back("TopicA", "G").messages == limit + 1
    assert stats.of_dead_letter("TopicA", "G").messages == 1


def test_a_negative_level_gives_up_at_once(peer: Peer) -> None:
    send_back(peer, sent(peer), delay_level=-1)
    assert received(peer, DEAD).reconsume_times == 1


@pytest.mark.parametrize(("version", "asked"), [(493, None), (100, 0)])
def test_the_groups_limit_counts_where_the_consumer_has_none(
    broker: SmallBroker, peer: Peer, version: int, asked: int | None
) -> None:
    """Releases before 3.4.9 sent a number that was not meant."""
    broker.core.groups.update(SubscriptionGroupConfig(group_name="G", retry_max_times=1))
    message = sent(peer)
    send_back(peer, message, version, max_reconsume_times=asked)
    broker.clock.advance(10)
    send_back(peer, received(peer, RETRY), version, max_reconsume_times=asked)
    assert received(peer, DEAD).reconsume_times == 2


# ----------------------------------------------------------------- refusals


def test_without_retry_queues_a_message_back_is_forgotten(broker: SmallBroker, peer: Peer) -> None:
    message = sent(peer)
    broker.core.groups.update(SubscriptionGroupConfig(group_name="G", retry_queue_nums=0))
    send_back(peer, message)
    broker.clock.advance(3600)
    assert broker.store.queues() == [("TopicA", 0)]


def test_refusals_have_the_official_words(broker: SmallBroker, peer: Peer) -> None:
    message = sent(peer)
    assert refused(peer, message, offset=message.physical_offset + 1) == (
        ResponseCode.SYSTEM_ERROR,
        f"look message by offset failed, {message.physical_offset + 1}",
    )
    code, remark = refused(peer, message, group="no group!")
    assert code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert remark.startswith("subscription group not exist, no group! ")
    broker.core.topics.update(
        [TopicConfig(topic_name=RETRY, read_queue_nums=1, write_queue_nums=1, perm=4)]
    )
    assert refused(peer, message) == (
        ResponseCode.NO_PERMISSION,
        f"the topic[{RETRY}] sending message is forbidden",
    )
    broker.config.broker_permission = 4
    assert refused(peer, message) == (
        ResponseCode.NO_PERMISSION,
        "the broker[192.0.2.1] sending message is forbidden",
    )


def test_a_store_that_takes_nothing_is_told_by_its_status(broker: SmallBroker, peer: Peer) -> None:
    message = sent(peer)
    broker.store.refuse_writes("test", "full")
    assert refused(peer, message) == (ResponseCode.SYSTEM_ERROR, "SERVICE_NOT_AVAILABLE")


# ----------------------------------------------------------------- BR-42


def test_a_send_to_a_retry_topic_is_dead_only_beyond_the_limit(
    broker: SmallBroker, peer: Peer
) -> None:
    text = properties(UNIQ_KEY="U1", RETRY_TOPIC="TopicA", DELAY="1", WAIT="false")
    peer.send(RETRY, reconsume_times=2, max_reconsume_times=2, properties=text)
    broker.clock.advance(1.1)
    assert received(peer, RETRY).reconsume_times == 2
    answer = peer.send(RETRY, reconsume_times=3, max_reconsume_times=2, properties=text)
    assert (answer.queue_id, answer.queue_offset) == (0, 0)
    dead = received(peer, DEAD)
    assert dead.reconsume_times == 3
    assert dead.properties["DELAY"] == "-1"
    assert dead.properties["RETRY_TOPIC"] == "TopicA"
    assert broker.core.stats.of_topic(DEAD).messages == 1
    assert broker.core.stats.of_dead_letter("TopicA", "G").messages == 1


def test_without_a_limit_of_its_own_the_groups_counts(broker: SmallBroker, peer: Peer) -> None:
    peer.send(RETRY, reconsume_times=16)
    assert DEAD not in broker.core.topics
    peer.send(RETRY, reconsume_times=17)
    assert received(peer, DEAD).reconsume_times == 17


def test_a_group_that_consumes_in_order_sends_straight_to_the_dead_letters(
    broker: SmallBroker, peer: Peer
) -> None:
    queue = MessageQueue(topic="TopicA", broker_name="broker-a", queue_id=0)
    broker.core.locks.try_lock("G", [queue], "client")
    peer.send(RETRY, reconsume_times=1, max_reconsume_times=5, properties=properties(DELAY="1"))
    assert received(peer, DEAD).reconsume_times == 1
    broker.clock.advance(61)
    peer.send(RETRY, reconsume_times=1, max_reconsume_times=5, properties=properties(DELAY="1"))
    broker.clock.advance(1.1)
    assert received(peer, RETRY).reconsume_times == 1


def test_a_retry_of_a_transaction_is_no_transaction(broker: SmallBroker, peer: Peer) -> None:
    """Clients before 4.6.1 left TRAN_MSG in the message."""
    peer.send(RETRY, reconsume_times=1, properties=properties(TRAN_MSG="true", DELAY="1"))
    broker.clock.advance(1.1)
    assert received(peer, RETRY).reconsume_times == 1


# ----------------------------------------------------------------- BR-58


@pytest.mark.parametrize(
    "policy",
    [
        {
            "type": "EXPONENTIAL",
            "exponentialRetryPolicy": {"initial": 2000, "max": 60_000, "multiplier": 3},
        },
        {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, 7000]}},
    ],
)
def test_the_retry_policy_of_a_group_is_kept_for_those_who_act_by_it(policy: Any) -> None:
    """Proxies do; the broker itself counts by its delay levels, whatever the policy is."""
    broker = SmallBroker()
    peer = broker.connect()
    body = json.dumps({"groupName": "G", "groupRetryPolicy": policy}).encode()
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body).code == 0
    broker = broker.restarted()
    peer = broker.connect()
    fields = {"group": "G"}
    answer = peer.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, ext_fields=fields)
    kept = json.loads(answer.body)["groupRetryPolicy"]
    assert {name: value for name, value in kept.items() if name in policy} == policy
    send_back(peer, sent(peer))
    assert received(peer, SCHEDULE_TOPIC, queue_id=2).properties["DELAY"] == "3"
    broker.stop()
