"""Pulls: the table of outcomes, filters, limits, permissions, waiting and waking."""

from __future__ import annotations

from typing import Any

import pytest
from small_broker import Peer, Pulled, SmallBroker, properties, pull_header, send_header
from test_heartbeat import beat, consumer

from txrocketmq.codec.bodies import encode_body
from txrocketmq.codec.headers import (
    HeartbeatRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
)
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.flags import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    build_subscription,
)
from txrocketmq.model.topic import TopicConfig

PULL = RequestCode.PULL_MESSAGE
SUCCESS = ResponseCode.SUCCESS
NOT_FOUND = ResponseCode.PULL_NOT_FOUND
RETRY = ResponseCode.PULL_RETRY_IMMEDIATELY
MOVED = ResponseCode.PULL_OFFSET_MOVED


def heartbeat(
    peer: Peer,
    topics: dict[str, str],
    group: str = "G",
    version: int = 1,
    model: MessageModel = MessageModel.CLUSTERING,
) -> None:
    data = HeartbeatData(
        client_id="client-1",
        consumer_data_set=[
            ConsumerData(
                group_name=group,
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=model,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
                subscription_data_set=[
                    build_subscription(topic, expression, sub_version=version)
                    for topic, expression in topics.items()
                ],
            )
        ],
    )
    answer = peer.ask(RequestCode.HEART_BEAT, HeartbeatRequestHeader(), encode_body(data))
    assert answer.code == 0, answer.remark


# ----------------------------------------------------------------- BR-17


@pytest.mark.parametrize(
    ("queue_id", "offset", "tags", "code", "remark", "next_offset"),
    [
        (0, 0, "*", SUCCESS, "FOUND", 5),
        (0, 3, "*", SUCCESS, "FOUND", 5),
        (0, 5, "*", NOT_FOUND, "OFFSET_OVERFLOW_ONE", 5),
        (0, 6, "*", MOVED, "OFFSET_OVERFLOW_BADLY", 5),
        (0, 1000, "*", MOVED, "OFFSET_OVERFLOW_BADLY", 5),
        (0, -1, "*", MOVED, "OFFSET_TOO_SMALL", 0),
        (0, 0, "TagZ", RETRY, "NO_MATCHED_MESSAGE", 5),
        (0, 1, "TagZ", RETRY, "NO_MATCHED_MESSAGE", 5),
        (1, 0, "*", NOT_FOUND, "NO_MESSAGE_IN_QUEUE", 0),
        (1, 7, "*", MOVED, "NO_MESSAGE_IN_QUEUE", 0),
    ],
)
def test_the_table_of_outcomes(
    broker: SmallBroker,
    peer: Peer,
    queue_id: int,
    offset: int,
    tags: str,
    code: int,
    remark: str,
    next_offset: int,
) -> None:
    for number in range(5):
        peer.send(body=b"%d" % number, properties=properties(TAGS="TagA"))
    pulled = peer.pull(queue_id=queue_id, offset=offset, subscription=tags)
    assert (pulled.code, pulled.remark) == (code, remark)
    end = 0 if queue_id else 5
    assert pulled.command.ext_fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(next_offset),
        "minOffset": "0",
        "maxOffset": str(end),
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }
    found = range(offset, 5) if code == SUCCESS else range(0)
    assert pulled.bodies == [b"%d" % number for number in found]


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        (
            {"topic": "Unknown"},
            ResponseCode.TOPIC_NOT_EXIST,
            "topic[Unknown] not exist, apply first please!",
        ),
        (
            {"queue_id": 4},
            ResponseCode.INVALID_PARAMETER,
            "queueId[4] is illegal, topic:[TopicA] topicConfig.readQueueNums:[4] "
            "consumer:[/192.0.2.10:40000]",
        ),
        ({"queue_id": -1}, ResponseCode.INVALID_PARAMETER, "queueId[-1] is illegal"),
        (
            {"consumer_group": "bad group"},
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            "subscription group not exist, bad group",
        ),
        (
            {"subscription": "||"},
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription failed",
        ),
        (
            {"subscription": "a > 1", "expression_type": "SQL92"},
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by SQL92",
        ),
        (
            {"sys_flag": 0},
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            "the consumer's group info not exist",
        ),
    ],
)
def test_refusals(peer: Peer, fields: dict[str, Any], code: int, words: str) -> None:
    peer.send()
    answer = peer.ask(PULL, pull_header(**fields))
    assert answer.code == code
    assert words in (answer.remark or "")


def test_permissions_refuse_with_the_kind_of_prohibition(broker: SmallBroker, peer: Peer) -> None:
    peer.send()
    broker.core.topics.update([TopicConfig(topic_name="WriteOnly", perm=2)])
    broker.core.groups.update(SubscriptionGroupConfig(group_name="Off", consume_enable=False))

    def refused(**fields: Any) -> tuple[int, str | None, dict[str, str] | None]:
        answer = peer.ask(PULL, pull_header(**fields))
        return answer.code, answer.remark, answer.ext_fields

    assert refused(topic="WriteOnly") == (
        ResponseCode.NO_PERMISSION,
        "the topic[WriteOnly] pulling message is forbidden",
        {"forbiddenType": "3"},
    )
    assert refused(consumer_group="Off") == (
        ResponseCode.NO_PERMISSION,
        "subscription group no permission, Off",
        {"forbiddenType": "2"},
    )
    broker.core.groups.update(
        SubscriptionGroupConfig(group_name="Loud", consume_broadcast_enable=False)
    )
    heartbeat(peer, {"TopicA": "*"}, "Loud", model=MessageModel.BROADCASTING)
    assert refused(consumer_group="Loud", sys_flag=0, sub_version=1) == (
        ResponseCode.NO_PERMISSION,
        "the consumer group[Loud] can not consume by broadcast way",
        {"forbiddenType": "4"},
    )
    broker.config.broker_permission = 2
    assert refused() == (
        ResponseCode.NO_PERMISSION,
        "the broker[192.0.2.1] pulling message is forbidden",
        {"forbiddenType": "1"},
    )


def test_lite_pull_is_the_same_and_can_be_switched_off(broker: SmallBroker, peer: Peer) -> None:
    peer.send()
    answer = peer.ask(RequestCode.LITE_PULL_MESSAGE, pull_header(sys_flag=4 | 16))
    assert Pulled(answer).bodies == [b"hello"]
    broker.config.lite_pull_message_enable = False
    answer = peer.ask(RequestCode.LITE_PULL_MESSAGE, pull_header())
    assert answer.code == ResponseCode.NO_PERMISSION
    assert peer.pull().bodies == [b"hello"]


# ----------------------------------------------------------------- BR-20, BR-21


def test_limits_of_one_answer(peer: Peer) -> None:
    for _ in range(40):
        peer.send(body=bytes(100))
    assert len(peer.pull(max_msg_nums=1000).messages) == 32
    assert len(peer.pull(max_msg_nums=3).messages) == 3
    first_size = peer.pull(max_msg_nums=1).messages[0].store_size
    assert len(peer.pull(max_msg_nums=32, max_msg_bytes=first_size * 2).messages) == 2
    for _ in range(3):
        peer.send(queue_id=1, body=bytes(200_000))
    assert len(peer.pull(queue_id=1, max_msg_nums=32).messages) == 1


def test_limits_of_one_answer_far_behind_and_the_hint_to_read_elsewhere() -> None:
    broker = SmallBroker(memory_bytes=100_000, slave_read_enable=True)
    peer = broker.connect()
    for _ in range(40):
        peer.send(body=bytes(1000))
    for _ in range(10):
        peer.send(queue_id=1, body=bytes(10_000))
    behind = peer.pull(max_msg_nums=32)
    assert (len(behind.messages), behind.header.suggest_which_broker_id) == (8, 1)
    ahead = peer.pull(queue_id=1, offset=9)
    assert (len(ahead.messages), ahead.header.suggest_which_broker_id) == (1, 0)
    for _ in range(3):
        peer.send(queue_id=2, body=bytes(40_000))
    for _ in range(10):
        peer.send(queue_id=3, body=bytes(10_000))
    assert len(peer.pull(queue_id=2).messages) == 1
    broker.stop()


def test_the_suggested_broker_follows_the_group_where_slaves_may_serve() -> None:
    broker = SmallBroker(slave_read_enable=True)
    peer = broker.connect()
    broker.core.groups.update(
        SubscriptionGroupConfig(
            group_name="G", broker_id=2, which_broker_when_consume_slowly=5, group_sys_flag=1
        )
    )
    peer.send()
    header = peer.pull().header
    assert (header.suggest_which_broker_id, header.group_sys_flag) == (2, 1)
    broker.stop()


# ----------------------------------------------------------------- BR-23, BR-24


def test_a_pull_can_carry_a_commit(peer: Peer) -> None:
    peer.send()
    question = QueryConsumerOffsetRequestHeader(consumer_group="G", topic="TopicA", queue_id=0)

    def committed() -> int:
        return peer.ask_for(
            QueryConsumerOffsetResponseHeader, RequestCode.QUERY_CONSUMER_OFFSET, question
        ).offset

    peer.pull(commit_offset=9)
    assert committed() == 0
    peer.pull(commit_offset=9, sys_flag=PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET)
    assert committed() == 9


def test_tags_filter_from_heartbeat_and_from_the_pull(peer: Peer) -> None:
    for tag in ("A", "B", "C", None):
        peer.send(
            body=(tag or "-").encode(), properties=properties(**({"TAGS": tag} if tag else {}))
        )
    assert peer.pull(subscription="A || C").bodies == [b"A", b"C"]
    heartbeat(peer, {"TopicA": "B||C"})
    assert peer.pull(sys_flag=0, sub_version=1, subscription=None).bodies == [b"B", b"C"]
    heartbeat(peer, {"TopicA": "*"}, version=2)
    assert peer.pull(sys_flag=0, sub_version=2, subscription=None).bodies == [
        b"A",
        b"B",
        b"C",
        b"-",
    ]


def test_what_one_client_says_of_a_tag_is_not_true_for_others(
    broker: SmallBroker, peer: Peer
) -> None:
    """The hashes in a heartbeat are the client's; one that is wrong about them must not blind those who use the same words."""
    peer.send(properties=properties(TAGS="A"))
    odd = {"topic": "TopicA", "subString": "A", "codeSet": [12345], "subVersion": 1}
    data = consumer("Odd", subscriptionDataSet=[odd])
    assert beat(broker.connect(41_000), data).code == 0
    mine = {"sys_flag": 0, "sub_version": 1, "subscription": None}
    assert peer.pull(consumer_group="Odd", **mine).bodies == []
    assert peer.pull(subscription="A").bodies == [b"hello"]
    heartbeat(peer, {"TopicA": "A"})
    assert peer.pull(**mine).bodies == [b"hello"]


def test_more_tags_than_anybody_has_are_refused(peer: Peer) -> None:
    peer.send(properties=properties(TAGS="A"))
    many = "||".join(["A", *(f"tag{number}" for number in range(5_000))])
    wanted = {"topic": "TopicA", "subString": many, "subVersion": 1}
    assert beat(peer, consumer(subscriptionDataSet=[wanted])).code == 0
    for pulled in (
        peer.pull(subscription=many),
        peer.pull(sys_flag=0, sub_version=1, subscription=None),
    ):
        assert pulled.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    few = many[:32_768].rpartition("||")[0]
    assert peer.pull(subscription=few).bodies == [b"hello"]


def test_a_subscription_that_the_broker_does_not_know_yet_is_told(peer: Peer) -> None:
    peer.send()
    peer.send("TopicB")
    heartbeat(peer, {"TopicA": "*"}, version=5)
    answer = peer.ask(PULL, pull_header(sys_flag=0, sub_version=6))
    assert answer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert answer.remark == "the consumer's subscription not latest"
    answer = peer.ask(PULL, pull_header("TopicB", sys_flag=0))
    assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    assert (answer.remark or "").startswith("the consumer's subscription not exist")


# ----------------------------------------------------------------- BR-18, BR-19


def waiting_pull(peer: Peer, offset: int = 0, hold_ms: int = 15_000, **fields: Any) -> int:
    return peer.tell(
        PULL,
        pull_header(
            offset=offset,
            sys_flag=PULL_SUSPEND | PULL_SUBSCRIPTION,
            suspend_timeout_millis=hold_ms,
            **fields,
        ),
    )


def pulled(peer: Peer, opaque: int) -> Pulled | None:
    answer = peer.answer(opaque)
    return None if answer is None else Pulled(answer)


def test_a_held_pull_is_answered_by_the_next_send(broker: SmallBroker, peer: Peer) -> None:
    peer.send()
    consumer = broker.connect(40001)
    opaque = waiting_pull(consumer, 1)
    assert pulled(consumer, opaque) is None
    assert broker.core.pull.held.count == 1
    peer.send(body=b"awaited")
    broker.clock.advance(0)
    found = pulled(consumer, opaque)
    assert found is not None
    assert (found.code, found.bodies) == (SUCCESS, [b"awaited"])
    assert found.command.opaque == opaque
    assert broker.core.pull.held.count == 0


def test_a_held_pull_on_a_queue_without_messages_is_woken_by_the_first(
    broker: SmallBroker, peer: Peer
) -> None:
    peer.send(queue_id=1)
    opaque = waiting_pull(peer, 0)
    assert pulled(peer, opaque) is None
    peer.send(body=b"first")
    broker.clock.advance(0)
    found = pulled(peer, opaque)
    assert found is not None
    assert found.bodies == [b"first"]


def test_a_held_pull_without_message_is_answered_when_its_time_is_over(
    broker: SmallBroker, peer: Peer
) -> None:
    peer.send()
    opaque = waiting_pull(peer, 1, 2_000)
    broker.clock.advance(1.99)
    assert pulled(peer, opaque) is None
    broker.clock.advance(0.02)
    found = pulled(peer, opaque)
    assert found is not None
    assert (found.code, found.remark) == (NOT_FOUND, "OFFSET_OVERFLOW_ONE")


def test_messages_with_other_tags_do_not_end_the_wait_but_move_the_offset(
    broker: SmallBroker, peer: Peer
) -> None:
    peer.send()
    opaque = waiting_pull(peer, 1, 2_000, subscription="Wanted")
    peer.send(properties=properties(TAGS="Other"))
    broker.clock.advance(1)
    assert pulled(peer, opaque) is None
    broker.clock.advance(1)
    found = pulled(peer, opaque)
    assert found is not None
    assert (found.code, found.header.next_begin_offset) == (RETRY, 2)


@pytest.mark.parametrize("offset", [3, 1000])
def test_only_not_found_is_held(peer: Peer, offset: int) -> None:
    peer.send()
    found = pulled(peer, waiting_pull(peer, offset))
    assert found is not None
    assert found.code == MOVED


def test_a_woken_pull_commits_no_offset(broker: SmallBroker, peer: Peer) -> None:
    peer.send()
    waiting = pull_header(
        offset=1,
        sys_flag=PULL_SUSPEND | PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET,
        suspend_timeout_millis=1000,
        commit_offset=1,
    )
    opaque = peer.tell(PULL, waiting)
    broker.core.offsets.commit("G", "TopicA", 0, 50, "another link")
    broker.clock.advance(1)
    assert pulled(peer, opaque) is not None
    assert broker.core.offsets.query("G", "TopicA", 0) == 50


def test_with_long_polling_off_the_wait_is_short(broker: SmallBroker, peer: Peer) -> None:
    broker.config.long_polling_enable = False
    peer.send()
    opaque = waiting_pull(peer, 1, 15_000)
    broker.clock.advance(0.99)
    assert pulled(peer, opaque) is None
    broker.clock.advance(0.01)
    assert pulled(peer, opaque) is not None


def test_held_pulls_are_bounded(broker: SmallBroker, peer: Peer) -> None:
    broker.config.pull_thread_pool_queue_capacity = 1
    peer.send()
    held = waiting_pull(peer, 1)
    found = pulled(peer, waiting_pull(peer, 1))
    assert pulled(peer, held) is None
    assert found is not None
    assert found.code == NOT_FOUND


def test_the_pulls_of_a_lost_link_are_forgotten(broker: SmallBroker, peer: Peer) -> None:
    peer.send()
    consumer = broker.connect(40001)
    waiting_pull(consumer, 1)
    consumer.close()
    assert broker.core.pull.held.count == 0
    peer.send()
    broker.clock.advance(20)


def test_a_stop_answers_held_pulls() -> None:
    broker = SmallBroker()
    peer = broker.connect()
    peer.send()
    opaque = waiting_pull(peer, 1)
    broker.stop()
    found = pulled(peer, opaque)
    assert found is not None
    assert found.code == NOT_FOUND


def test_a_topic_that_vanished_meanwhile_ends_the_wait(broker: SmallBroker, peer: Peer) -> None:
    peer.send()
    opaque = waiting_pull(peer, 1, 1000)
    broker.core.topics._table.pop("TopicA")
    broker.clock.advance(1)
    answer = peer.answer(opaque)
    assert answer is not None
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


def test_one_burst_of_sends_is_one_answer(broker: SmallBroker, peer: Peer) -> None:
    peer.send()
    consumer = broker.connect(40001)
    opaque = waiting_pull(consumer, 1)
    for number in range(8):
        peer.tell(RequestCode.SEND_MESSAGE_V2, send_header(), b"%d" % number)
    broker.clock.advance(0)
    found = pulled(consumer, opaque)
    assert found is not None
    assert found.bodies == [b"%d" % number for number in range(8)]


def test_long_expressions_are_not_kept(broker: SmallBroker, peer: Peer) -> None:
    peer.send(properties=properties(TAGS="A"))
    for number in range(3):
        assert peer.pull(subscription=f"A || {number}" + "x" * 2000).bodies == [b"hello"]
    assert broker.core.pull._subscriptions._filters == {}
    assert peer.pull(subscription="A || B").bodies == [b"hello"]
    assert list(broker.core.pull._subscriptions._filters) == ["A || B"]


def test_a_pull_looks_at_a_bounded_number_of_entries_whatever_it_asks_for(
    broker: SmallBroker, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txrocketmq.store.reader.MAX_PULL_UNITS", 5)
    for _ in range(12):
        peer.send(properties=properties(TAGS="A"))
    pulled = peer.pull(subscription="B", max_msg_nums=2**31 - 1)
    assert (pulled.code, pulled.header.next_begin_offset) == (20, 5)
    pulled = peer.pull(subscription="A", offset=5, max_msg_nums=2**31 - 1)
    assert (pulled.code, pulled.header.next_begin_offset) == (0, 10)
