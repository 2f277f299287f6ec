"""What may whoever awaited a consumer's start rely on? What is sent from then on is consumed, wherever the group begins."""

from __future__ import annotations

from typing import Any

import pytest
from consumer_world import DONE, SUCCESS, TOPIC, ConsumerWorld, Diary
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from txrocketmq.client.consumer.config import PullConfig
from txrocketmq.client.consumer.lite_pull import LitePullConsumer
from txrocketmq.client.periodic import Periodic
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.heartbeat import ConsumeFromWhere

LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
SENT = [b"sent %d" % number for number in range(4)]


def old_topic(brokers: int = 1) -> ConsumerWorld:
    """A world whose queues have messages that are not young, so that "last" is the end for a new group."""
    world = ConsumerWorld(brokers=brokers)
    for number, broker in world.brokers.items():
        world.fill(8, number=number)
        broker.store_config.access_message_in_memory_max_ratio = 0
    return world


def silence(world: ConsumerWorld, code: RequestCode, number: int) -> list[bool]:
    """A broker answers a request no more, as long as the one element is true."""
    table = world.brokers[number].dispatcher._table
    handler, *rest = table[int(code)]
    silent = [True]
    table[int(code)] = (lambda request: None if silent[0] else handler(request), *rest)
    return silent


def lite(world: ConsumerWorld) -> LitePullConsumer:
    settings = PullConfig(consume_from_where=LAST)
    return LitePullConsumer(
        world.clock, "CG", settings=settings, instance=world.instance(instance_name="a")
    )


@pytest.mark.parametrize("orderly", [False, True])
def test_a_push_consumer_gets_what_is_sent_after_its_start(orderly: bool) -> None:
    world = old_topic()
    diary = Diary(DONE if orderly else SUCCESS)
    world.consumer(diary, consume_from_where=LAST, orderly=orderly)
    for queue_id, body in enumerate(SENT):
        world.put(body, queue_id)
    world.until(lambda: len(diary.seen) == len(SENT))
    assert sorted(diary.bodies) == SENT


@pytest.mark.parametrize("assigned", [False, True])
def test_a_lite_pull_consumer_gets_what_is_sent_after_its_start(assigned: bool) -> None:
    world = old_topic()
    consumer = lite(world)
    if assigned:
        known = world.instance()
        world.wait(known.acquire())
        consumer.assign(world.wait(known.subscribe_queues(TOPIC)))
        world.wait(known.release())
    else:
        consumer.subscribe(TOPIC)
    world.wait(consumer.start())
    for queue_id, body in enumerate(SENT):
        world.put(body, queue_id)
    found: list[bytes] = []
    while len(found) < len(SENT):
        messages = world.wait(consumer.poll(5000))
        assert messages, found
        found += [message.body for message in messages]
    assert sorted(found) == SENT


@pytest.mark.parametrize("kind", ["push", "lite"])
def test_a_broker_that_does_not_answer_delays_a_start_by_three_seconds_at_most(kind: str) -> None:
    world = old_topic(brokers=2)
    silent = silence(world, RequestCode.QUERY_CONSUMER_OFFSET, 3)
    began_s = world.clock.seconds()
    diary = Diary()
    if kind == "push":
        push = world.consumer(diary, consume_from_where=LAST)
        assert {queue.broker_name for queue in push.queues} == {"broker-2"}
    else:
        consumer = lite(world)
        consumer.subscribe(TOPIC)
        world.wait(consumer.start())
    assert 2.9 < world.clock.seconds() - began_s < 3.5
    silent[0] = False
    world.network.run(10)
    world.put(b"late", number=3)
    if kind == "push":
        world.until(lambda: diary.bodies == [b"late"])
    else:
        assert [one.body for one in world.wait(consumer.poll(5000))] == [b"late"]


def test_a_consumer_that_is_stopped_while_it_starts_leaves_nothing() -> None:
    world = old_topic()
    silence(world, RequestCode.QUERY_CONSUMER_OFFSET, 2)
    before = len(world.clock.getDelayedCalls())
    consumer = world.consumer(Diary(), start=False)
    started = consumer.start()
    world.network.run(1)
    world.wait(consumer.stop())
    world.outcome(started)
    world.network.run(6)
    assert len(world.clock.getDelayedCalls()) <= before


class TestWorkThatIsWaitedFor:
    """Of `Periodic.when_run`."""

    def made(self) -> tuple[Clock, Periodic, list[Deferred[None]]]:
        runs: list[Deferred[None]] = []

        def work() -> Deferred[None]:
            runs.append(Deferred())
            return runs[-1]

        clock = Clock()
        periodic = Periodic(clock, "work", 10, work)
        periodic.start()
        return clock, periodic, runs

    def test_what_is_under_way_already_does_not_count(self) -> None:
        _, periodic, runs = self.made()
        ends: list[Any] = []
        periodic.when_run().addBoth(ends.append)
        periodic.when_run().addBoth(lambda _: ends.append("second"))
        runs[0].callback(None)
        assert (ends, len(runs)) == ([None], 2)
        runs[1].errback(ValueError("work failed"))
        assert ends == [None, "second"]

    def test_nobody_waits_for_what_has_ended_for_good(self) -> None:
        _, periodic, runs = self.made()
        first, second = periodic.when_run(), periodic.when_run()
        periodic.stop()
        assert (first.called, second.called) == (False, True)
        runs[0].callback(None)
        assert first.called
        assert len(runs) == 1
        assert periodic.when_run().called

    def test_it_may_be_given_up(self) -> None:
        _, periodic, runs = self.made()
        given_up: list[Any] = []
        waiting = periodic.when_run()
        waiting.addErrback(given_up.append)
        waiting.cancel()
        runs[0].callback(None)
        assert len(given_up) == 1
