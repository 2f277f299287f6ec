"""POP_MESSAGE: what is handed out, to whom it is refused, and what is noted of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pops import COMES_AGAIN_S, PopConsumer, Popped, make_topic, pass_time, pop_header
from small_broker import SmallBroker

from txrocketmq.codec.headers import (
    AckMessageRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.group import SubscriptionGroupConfig


@pytest.fixture
def consumer(broker: SmallBroker) -> PopConsumer:
    make_topic(broker, queues=2)
    return PopConsumer(broker)


def test_messages_are_handed_out_once_with_their_offsets(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    for number in range(3):
        consumer.peer.send(body=b"q0-%d" % number, queue_id=0)
    consumer.peer.send(body=b"q1-0", queue_id=1)
    popped = consumer.pop(max_msg_nums=32)
    assert (popped.code, popped.remark) == (0, "FOUND")
    assert sorted(popped.bodies) == [b"q0-0", b"q0-1", b"q0-2", b"q1-0"]
    infos = sorted((popped.header.msg_offset_info or "").split(";"))
    assert infos == ["0 0 0,1,2", "0 1 0"]
    assert sorted((popped.header.start_offset_info or "").split(";")) == ["0 0 0", "0 1 0"]
    assert (popped.header.rest_num, popped.header.invisible_time) == (0, 30_000)
    assert popped.header.pop_time == broker.now_ms()
    again = consumer.pop()
    assert (again.code, again.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
    assert (again.header.start_offset_info, again.header.msg_offset_info) == ("", "")


def test_no_more_than_asked_for_and_the_rest_is_told(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    for number in range(10):
        consumer.peer.send(body=b"%d" % number, queue_id=number % 2)
    popped = consumer.pop(max_msg_nums=3)
    assert len(popped.bodies) == 3
    assert popped.header.rest_num == 7
    one = consumer.pop(queue_id=1, max_msg_nums=32)
    two = consumer.pop(queue_id=0, max_msg_nums=32)
    assert sorted(popped.bodies + one.bodies + two.bodies) == sorted(b"%d" % n for n in range(10))


@pytest.mark.parametrize(("ascending", "order"), [(True, [3, 2, 1, 0]), (False, [0, 1, 2, 3])])
def test_queues_of_a_priority_topic_are_popped_in_their_order(
    broker: SmallBroker, consumer: PopConsumer, ascending: bool, order: list[int]
) -> None:
    broker.config.priority_order_asc = ascending
    make_topic(broker, queues=4, attributes={"message.type": "PRIORITY"})
    for _ in range(5):
        for queue_id in range(4):
            consumer.peer.send(queue_id=queue_id)
        found = [consumer.pop(max_msg_nums=1).messages[0].queue_id for _ in range(4)]
        assert found == order


def test_binary_headers_have_room_for_a_part_of_the_code_only(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    consumer.peer.send(queue_id=0)
    command = consumer.peer.ask(
        RequestCode.POP_MESSAGE, consumer.header("TopicA"), serialize_type=1
    )
    assert command.serialize_type == 1
    popped = Popped(command)
    assert popped.bodies == [b"hello"]
    header = AckMessageRequestHeader(
        consumer_group="G",
        topic="TopicA",
        queue_id=0,
        extra_info=popped.receipt(popped.messages[0]),
        offset=0,
    )
    assert consumer.peer.ask(RequestCode.ACK_MESSAGE, header, serialize_type=1).code == 0


# ----------------------------------------------------------------- permissions


@pytest.mark.parametrize("perm", [4, 6, 2, 0])
def test_the_permission_of_the_topic_is_felt_by_all_that_read(
    broker: SmallBroker, consumer: PopConsumer, perm: int
) -> None:
    consumer.peer.send(queue_id=0)
    make_topic(broker, queues=2, perm=perm)
    popped = consumer.pop()
    if perm & 4:
        assert popped.code == 0
        return
    assert popped.code == ResponseCode.NO_PERMISSION
    assert popped.remark == "the topic[TopicA] peeking message is forbidden"
    assert consumer.peer.pull().code == ResponseCode.NO_PERMISSION
    # Sends are not refused: producers honour the route.
    consumer.peer.send(queue_id=1)
    make_topic(broker, queues=2, perm=6)
    assert len(consumer.pop().bodies) == 2


def test_the_permission_of_the_broker_is_felt_at_once(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    consumer.peer.send(queue_id=0)
    broker.config.broker_permission = 2
    popped = consumer.pop()
    assert popped.code == ResponseCode.NO_PERMISSION
    assert popped.remark == "the broker[192.0.2.1] pop message is forbidden"
    broker.config.broker_permission = 6
    assert consumer.pop().bodies == [b"hello"]


def test_a_group_that_may_not_consume_pops_nothing(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    broker.core.groups.update(SubscriptionGroupConfig(group_name="G", consume_enable=False))
    popped = consumer.pop()
    assert popped.code == ResponseCode.NO_PERMISSION
    assert popped.remark == "subscription group no permission, G"


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"topic": "Nowhere"}, ResponseCode.TOPIC_NOT_EXIST, "topic[Nowhere] not exist"),
        ({"queue_id": 2}, ResponseCode.INVALID_PARAMETER, "queueId[2] is illegal, topic:[TopicA]"),
        ({"max_msg_nums": 33}, ResponseCode.INVALID_PARAMETER, "num is greater than 32"),
        ({"born_time": 1_000, "poll_time": 5}, ResponseCode.POLLING_TIMEOUT, "timeout too much"),
        (
            {"exp": "||"},
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription failed",
        ),
    ],
)
def test_what_cannot_be_popped_is_refused(
    consumer: PopConsumer, fields: dict[str, Any], code: int, words: str
) -> None:
    popped = Popped(
        consumer.peer.ask(
            RequestCode.POP_MESSAGE,
            pop_header(**{"born_time": consumer.broker.now_ms(), **fields}),
        )
    )
    assert popped.code == code
    assert words in (popped.remark or "")
    header = popped.header
    assert (header.pop_time, header.invisible_time, header.rest_num) == (0, 0, 0)


def test_an_unknown_group_that_may_not_be_made_is_refused(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    broker.config.auto_create_subscription_group = False
    popped = consumer.pop()
    assert popped.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_a_slave_hands_out_nothing(broker: SmallBroker, consumer: PopConsumer) -> None:
    consumer.peer.send(queue_id=0)
    broker.store_config.broker_role = "SLAVE"
    popped = consumer.pop()
    assert (popped.code, popped.messages) == (ResponseCode.SYSTEM_ERROR, [])
    assert "is a slave" in (popped.remark or "")
    broker.store_config.broker_role = "ASYNC_MASTER"
    assert consumer.pop().bodies == [b"hello"]


# ----------------------------------------------------------------- figures


def test_pops_and_acknowledgements_are_counted(broker: SmallBroker, consumer: PopConsumer) -> None:
    for _ in range(4):
        consumer.peer.send(queue_id=0)
    popped = consumer.pop()
    for message in popped.messages[:3]:
        consumer.ack(popped, message)
    broker.clock.advance(11)

    def sum_of(name: str, key: str) -> int:
        header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
        answer = consumer.peer.ask(RequestCode.VIEW_BROKER_STATS_DATA, header)
        assert answer.code == 0, answer.remark
        found: int = json.loads(answer.body)["statsMinute"]["sum"]
        return found

    assert sum_of("GROUP_CK_NUMS", "TopicA@G") == sum_of("BROKER_CK_NUMS", "ClusterA") == 1
    assert sum_of("GROUP_ACK_NUMS", "TopicA@G") == sum_of("BROKER_ACK_NUMS", "ClusterA") == 3
    assert sum_of("GROUP_GET_NUMS", "TopicA@G") == 4
    # One of the pop, three of acknowledgements; they are no traffic of users.
    log = "rmq_sys_REVIVE_LOG_ClusterA"
    assert sum_of("TOPIC_PUT_NUMS", log) == 4
    assert sum_of("TOPIC_PUT_SIZE", log) > 4 * 200
    assert sum_of("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "ClusterA") == 4
    assert sum_of("BROKER_PUT_NUMS", "ClusterA") == 8


def test_run_time_figures_tell_what_is_out_and_waits(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    def figures() -> dict[str, str]:
        answer = consumer.peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        table = json.loads(answer.body)["table"]
        return {name: value for name, value in table.items() if name.startswith("pop")}

    assert figures() == {}
    consumer.peer.send(queue_id=0)
    popped = consumer.pop()
    consumer.wait()
    assert figures() == {
        "popInFlight": "1",
        "popWaiting": "1",
        "popCheckPoints": "1",
        "popNextRevival": str(popped.header.pop_time + 30_000),
    }
    pass_time(broker, COMES_AGAIN_S)
    assert figures()["popRevived"] == "1"
