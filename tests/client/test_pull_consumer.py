"""Does a pull consumer do what it is told, and nothing else?"""

from __future__ import annotations

from typing import Any

import pytest
from consumer_world import TOPIC, ConsumerWorld, queue
from zope.interface.verify import verifyObject

from txrocketmq.client.consumer.config import MessageSelector, PullConfig
from txrocketmq.client.consumer.pull import PullConsumer
from txrocketmq.client.interfaces import IConsumerRole
from txrocketmq.client.results import PullStatus
from txrocketmq.errors import MQClientError
from txrocketmq.testing.pools import ImmediatePool


def started(world: ConsumerWorld, name: str = "a", **settings: Any) -> PullConsumer:
    consumer = PullConsumer(
        world.clock,
        "CG",
        settings=PullConfig(**settings),
        instance=world.instance(instance_name=name),
        pool=ImmediatePool(),
        disk=world.disk,
    )
    world.wait(consumer.start())
    return consumer


def test_pulls_say_what_they_found() -> None:
    world = ConsumerWorld(queues=1)
    world.fill(5, 1)
    consumer = started(world)
    assert verifyObject(IConsumerRole, consumer)
    assert world.wait(consumer.fetch_subscribe_message_queues(TOPIC)) == [queue(0)]
    result = world.wait(consumer.pull(queue(0), "*", 1, 3))
    assert result.status is PullStatus.FOUND
    assert [message.body for message in result.messages] == [b"1", b"2", b"3"]
    assert (result.next_begin_offset, result.min_offset, result.max_offset) == (4, 0, 5)
    assert world.wait(consumer.pull(queue(0), "*", 5)).status is PullStatus.NO_NEW_MSG
    illegal = world.wait(consumer.pull(queue(0), "*", 50))
    assert illegal.status is PullStatus.OFFSET_ILLEGAL
    nothing = world.wait(consumer.pull(queue(0), "TagX", 0))
    assert (nothing.status, nothing.next_begin_offset) == (PullStatus.NO_MATCHED_MSG, 5)


def test_a_pull_may_wait_for_a_message() -> None:
    world = ConsumerWorld(queues=1)
    consumer = started(world)
    waiting = consumer.pull(queue(0), None, 0, block=True)
    world.network.run(3)
    assert not waiting.called
    world.put(b"x")
    result = world.wait(waiting)
    assert [message.body for message in result.messages] == [b"x"]


def test_messages_are_chosen_by_sql() -> None:
    world = ConsumerWorld(queues=1, enable_property_filter=True)
    for number in range(3):
        world.put(b"%d" % number, properties={"a": str(number)})
    consumer = started(world)
    selector = MessageSelector.by_sql("a = 1")
    result = world.wait(consumer.pull(queue(0), selector, 0))
    assert [message.body for message in result.messages] == [b"1"]


def test_arguments_that_cannot_be_are_refused() -> None:
    world = ConsumerWorld(queues=1)
    consumer = started(world)
    for offset, count in ((-1, 1), (0, 0)):
        with pytest.raises(MQClientError, match=r"< 0|<= 0"):
            world.wait(consumer.pull(queue(0), "*", offset, count))
    world.wait(consumer.stop())
    with pytest.raises(MQClientError, match="not started"):
        world.wait(consumer.pull(queue(0), "*", 0))


def test_offsets_are_the_users() -> None:
    world = ConsumerWorld(queues=1)
    world.fill(5, 1)
    consumer = started(world)
    assert world.wait(consumer.fetch_consume_offset(queue(0))) in (None, 0)
    world.wait(consumer.pull(queue(0), "*", 0))
    world.network.run(0.5)  # the brokers hear of the group
    consumer.update_consume_offset(queue(0), 3)
    assert world.wait(consumer.fetch_consume_offset(queue(0))) == 3
    world.wait(consumer.persist(queue(0)))
    assert world.wait(consumer.fetch_consume_offset(queue(0), from_store=True)) == 3
    consumer.update_consume_offset(queue(0), 4)
    world.network.skip(15)
    assert world.offset("CG", 0) == 4
    consumer.update_consume_offset(queue(0), 5)
    world.wait(consumer.stop())
    assert world.offset("CG", 0) == 5


def test_ranges_of_queues_are_asked_for() -> None:
    world = ConsumerWorld(queues=1)
    world.fill(5, 1)
    consumer = started(world)
    assert world.wait(consumer.fetch_subscribe_message_queues(TOPIC))
    assert world.wait(consumer.max_offset(queue(0))) == 5
    assert world.wait(consumer.min_offset(queue(0))) == 0
    assert world.wait(consumer.search_offset(queue(0), 0)) == 0


def test_the_groups_division_is_told() -> None:
    world = ConsumerWorld()
    first, second = started(world, "a"), started(world, "b")
    told: list[list[int]] = []
    first.register_message_queue_listener(
        TOPIC, lambda topic, queues, mine: told.append([found.queue_id for found in mine])
    )
    world.until(lambda: told == [[0, 1, 2, 3]])
    assert world.wait(second.fetch_message_queues_in_balance(TOPIC)) == [queue(2), queue(3)]
    world.until(lambda: told[-1] == [0, 1])


def test_a_message_goes_back_to_the_group() -> None:
    world = ConsumerWorld(queues=1)
    world.put(b"later")
    consumer = started(world)
    result = world.wait(consumer.pull(queue(0), "*", 0))
    world.wait(consumer.send_message_back(result.messages[0], 1))
    world.until(lambda: bool(world.messages("%RETRY%CG")))
