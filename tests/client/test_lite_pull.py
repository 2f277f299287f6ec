"""Does a lite pull consumer hand out what it is asked for, and remember how far it came?"""

from __future__ import annotations

from typing import Any

import pytest
from consumer_world import FIRST, TOPIC, ConsumerWorld, queue
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure
from zope.interface.verify import verifyObject

from txrocketmq.client.consumer.config import PullConfig
from txrocketmq.client.consumer.lite_pull import LitePullConsumer
from txrocketmq.client.interfaces import IConsumerRole
from txrocketmq.errors import MQClientError
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.heartbeat import MessageModel
from txrocketmq.remoting.dispatch import Reply
from txrocketmq.testing.pools import ImmediatePool


def lite(
    world: ConsumerWorld,
    group: str = "CG",
    name: str = "a",
    start: bool = True,
    topic: str | None = TOPIC,
    client: dict[str, Any] | None = None,
    **settings: Any,
) -> LitePullConsumer:
    settings.setdefault("consume_from_where", FIRST)
    consumer = LitePullConsumer(
        world.clock,
        group,
        settings=PullConfig(offset_store_dir="/offsets", **settings),
        instance=world.instance(instance_name=name, **(client or {})),
        pool=ImmediatePool(),
        disk=world.disk,
    )
    if topic is not None:
        consumer.subscribe(topic)
    if start:
        world.wait(consumer.start())
    return consumer


def polled(world: ConsumerWorld, consumer: LitePullConsumer, count: int) -> list[bytes]:
    """Bodies of so many messages."""
    found: list[bytes] = []
    while len(found) < count:
        messages = world.wait(consumer.poll(2000))
        assert messages, f"only {len(found)} messages"
        found += [message.body for message in messages]
    return found


class TestPolling:
    def test_messages_are_polled_and_committed(self) -> None:
        world = ConsumerWorld()
        sent = world.fill(30)
        consumer = lite(world)
        assert verifyObject(IConsumerRole, consumer)
        assert sorted(polled(world, consumer, 30)) == sorted(sent)
        assert world.wait(consumer.poll(0)) == []
        members = world.members()
        assert members is not None
        assert members.consume_type == "CONSUME_ACTIVELY"
        world.wait(consumer.stop())
        assert world.offsets() == [8, 8, 7, 7]

    def test_a_poll_waits_for_a_message_or_its_time(self) -> None:
        world = ConsumerWorld()
        consumer = lite(world)
        world.network.run(0.5)
        began = world.clock.seconds()
        assert world.wait(consumer.poll(1500)) == []
        assert 1.5 <= world.clock.seconds() - began < 1.6
        waiting = consumer.poll(10_000)
        world.put(b"at last", 1)
        assert [message.body for message in world.wait(waiting)] == [b"at last"]

    def test_polls_can_be_cancelled_and_end_with_the_consumer(self) -> None:
        world = ConsumerWorld()
        consumer = lite(world)
        waiting = consumer.poll(10_000)
        waiting.cancel()
        assert world.outcome(waiting).check(CancelledError)
        waiting = consumer.poll(10_000)
        outcome: list[Any] = []
        waiting.addBoth(outcome.append)
        world.wait(consumer.stop())
        assert isinstance(outcome[0], Failure)
        assert outcome[0].check(MQClientError)
        with pytest.raises(MQClientError, match="not running"):
            world.wait(consumer.poll())

    def test_messages_come_one_by_one_and_count_when_the_next_is_asked_for(self) -> None:
        world = ConsumerWorld(queues=1)
        sent = world.fill(5, 1)
        consumer = lite(world)
        seen: list[bytes] = []
        noted: list[int | None] = []

        async def read() -> None:
            async for message in consumer:
                seen.append(message.body)
                noted.append(consumer._fetchers[queue(0)].consumed)
                if len(seen) == 4:
                    return

        world.wait(read())
        assert seen == sent[:4]
        assert noted == [None, 1, 2, 3]
        world.wait(consumer.stop())
        assert world.offset("CG", 0) == 3

    def test_iterating_ends_with_the_consumer(self) -> None:
        world = ConsumerWorld()
        consumer = lite(world)
        ended: list[str] = []

        async def read() -> None:
            async for _ in consumer:
                raise AssertionError
            ended.append("yes")

        Deferred.fromCoroutine(read())
        world.network.run(1)
        world.wait(consumer.stop())
        assert ended == ["yes"]

    def test_no_more_is_fetched_ahead_than_may_be(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(60, 1)
        consumer = lite(world, pull_threshold_for_queue=15)
        world.network.run(2)
        assert consumer.waiting_messages == 20
        assert len(world.wait(consumer.poll())) == 10
        assert len(polled(world, consumer, 50)) == 50

    def test_tags_are_compared(self) -> None:
        world = ConsumerWorld(queues=1)
        for tag in ("TagA", "TagB"):
            world.put(tag.encode(), properties={"TAGS": tag})
        consumer = lite(world, topic=None, start=False)
        consumer.subscribe(TOPIC, "TagB")
        world.wait(consumer.start())
        assert polled(world, consumer, 1) == [b"TagB"]


class TestQueues:
    def test_members_share_the_queues(self) -> None:
        world = ConsumerWorld()
        first, second = lite(world, name="a"), lite(world, name="b")
        world.until(lambda: len(first.assignment) == len(second.assignment) == 2)
        world.wait(first.stop())
        world.until(lambda: len(second.assignment) == 4)

    def test_assigned_queues_are_read_and_no_others(self) -> None:
        world = ConsumerWorld()
        world.fill(8)
        consumer = lite(world, topic=None, start=False)
        consumer.assign([queue(1), queue(3)])
        world.wait(consumer.start())
        assert sorted(polled(world, consumer, 4)) == [b"1", b"3", b"5", b"7"]
        consumer.assign([queue(0)])
        assert sorted(polled(world, consumer, 2)) == [b"0", b"4"]
        assert consumer.assignment == [queue(0)]
        with pytest.raises(MQClientError, match="mutually exclusive"):
            consumer.subscribe(TOPIC)
        with pytest.raises(MQClientError, match="empty"):
            consumer.assign([])

    def test_assigned_queues_can_be_filtered_by_tag(self) -> None:
        world = ConsumerWorld(queues=1)
        for tag in ("TagA", "TagB"):
            world.put(tag.encode(), properties={"TAGS": tag})
        consumer = lite(world, topic=None, start=False)
        consumer.set_sub_expression_for_assign(TOPIC, "TagB")
        consumer.assign([queue(0)])
        world.wait(consumer.start())
        assert polled(world, consumer, 1) == [b"TagB"]
        with pytest.raises(MQClientError, match="before start"):
            consumer.set_sub_expression_for_assign(TOPIC, "TagA")

    def test_an_unsubscribed_topic_is_forgotten(self) -> None:
        world = ConsumerWorld()
        world.fill(8)
        consumer = lite(world)
        world.until(lambda: consumer.waiting_messages == 8)
        consumer.unsubscribe(TOPIC)
        assert consumer.assignment == []
        assert world.wait(consumer.poll(0)) == []

    def test_paused_queues_are_not_fetched(self) -> None:
        world = ConsumerWorld(queues=2)
        consumer = lite(world)
        world.until(lambda: len(consumer.assignment) == 2)
        consumer.pause([queue(0)])
        world.network.skip(25)  # the pull that was held is over
        world.fill(2, 2)
        assert polled(world, consumer, 1) == [b"1"]
        assert world.wait(consumer.poll(1000)) == []
        consumer.resume([queue(0)])
        assert polled(world, consumer, 1) == [b"0"]

    def test_changes_of_a_topic_are_told(self) -> None:
        world = ConsumerWorld()
        told: list[tuple[str, int]] = []
        consumer = lite(world, start=False)
        consumer.on_queues_changed(TOPIC, lambda topic, queues: told.append((topic, len(queues))))
        world.wait(consumer.start())
        assert len(world.wait(consumer.fetch_message_queues(TOPIC))) == 4
        world.network.skip(40)
        assert told == []
        world.create_topic(TOPIC, 6)
        world.network.skip(70)
        assert told == [(TOPIC, 6)]


class TestPositions:
    def test_seeking_forgets_what_was_fetched(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(30, 1)
        consumer = lite(world)
        polled(world, consumer, 10)
        world.wait(consumer.seek(queue(0), 25))
        assert polled(world, consumer, 5) == [b"25", b"26", b"27", b"28", b"29"]
        world.wait(consumer.seek_to_begin(queue(0)))
        assert polled(world, consumer, 10)[0] == b"0"
        world.wait(consumer.seek_to_end(queue(0)))
        world.put(b"new")
        assert polled(world, consumer, 1) == [b"new"]

    def test_only_offsets_that_are_there_can_be_sought(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(3, 1)
        consumer = lite(world)
        world.until(lambda: len(consumer.assignment) == 1)
        with pytest.raises(MQClientError, match="seek offset = 4, min offset = 0, max offset = 3"):
            world.wait(consumer.seek(queue(0), 4))
        with pytest.raises(MQClientError, match="may be rebalancing"):
            world.wait(consumer.seek(queue(7), 0))

    def test_offsets_are_found_by_time(self) -> None:
        world = ConsumerWorld(queues=1)
        world.put(b"old")
        world.network.skip(100)
        world.put(b"new")
        consumer = lite(world)
        then = int((world.clock.seconds() - 50) * 1000)
        assert world.wait(consumer.offset_for_timestamp(queue(0), then)) == 1

    def test_commits_are_the_users_where_he_wants(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(12, 1)
        consumer = lite(world, auto_commit=False)
        polled(world, consumer, 12)
        world.network.skip(20)
        # What the broker says of a young queue without an offset is its beginning.
        assert world.offset("CG", 0) in (None, 0)
        world.wait(consumer.commit({queue(0): 5}))
        assert world.offset("CG", 0) == 5
        assert world.wait(consumer.committed(queue(0))) == 5
        world.wait(consumer.commit())
        assert world.offset("CG", 0) == 12

    def test_broadcasting_keeps_its_own_offsets(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(5, 1)
        consumer = lite(world, message_model=MessageModel.BROADCASTING)
        polled(world, consumer, 5)
        world.wait(consumer.stop())
        world.put(b"new")
        again = lite(world, message_model=MessageModel.BROADCASTING)
        assert polled(world, again, 1) == [b"new"]

    def test_a_member_that_gets_a_queue_goes_on_there(self) -> None:
        world = ConsumerWorld()
        world.fill(40)
        first = lite(world, name="a")
        before = polled(world, first, 40)
        second = lite(world, name="b")
        world.until(lambda: len(first.assignment) == len(second.assignment) == 2)
        world.put(b"new", 3)
        assert polled(world, second, 1) == [b"new"]
        assert len(before) == 40

    def test_an_operator_moves_the_group(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(5, 1)
        consumer = lite(world)
        polled(world, consumer, 5)
        consumer.reset_offsets(TOPIC, {queue(0): 3})
        assert polled(world, consumer, 2) == [b"3", b"4"]
        info = consumer.running_info()
        assert info.properties["autoCommit"] == "true"
        assert list(info.mq_table) == [queue(0)]


def test_names_have_their_name_space_on_the_wire_alone() -> None:
    world = ConsumerWorld(topic="ns%TopicTest", queues=1)
    world.put(b"x", topic="ns%TopicTest")
    consumer = lite(world, client={"namespace": "ns"})
    messages = world.wait(consumer.poll())
    assert [message.topic for message in messages] == [TOPIC]
    world.wait(consumer.seek_to_begin(queue(0)))
    assert polled(world, consumer, 1) == [b"x"]


def test_a_broker_that_knows_no_lite_pulls_is_asked_for_plain_ones() -> None:
    """As those of the 4.9 line."""
    world = ConsumerWorld()
    sent = world.fill(4)
    refused: list[int] = []
    table = world.brokers[2].dispatcher._table
    _, *rest = table[int(RequestCode.LITE_PULL_MESSAGE)]

    def refuse(request: Any) -> Reply:
        refused.append(1)
        return Reply(3, remark=" request type 361 not supported")

    table[int(RequestCode.LITE_PULL_MESSAGE)] = (refuse, *rest)
    consumer = lite(world)
    assert sorted(polled(world, consumer, 4)) == sorted(sent)
    world.put(b"more")
    assert polled(world, consumer, 1) == [b"more"]
    # Once for each queue at most.
    assert 1 <= len(refused) <= 4
    world.wait(consumer.stop())
