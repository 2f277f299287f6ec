"""Held pulls: what wakes them, when their time is over, how many there may be."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest
from fakes import FakeConnection
from twisted.internet.task import Clock

from txrocketmq.broker.longpoll import MAX_HELD_BYTES, HeldPull, HeldPulls
from txrocketmq.model.javahash import tags_code
from txrocketmq.store.filter import TagsFilter

START_S = 1_700_000_000
QUEUE = ("TopicA", 0)


class Desk:
    """Held pulls with a clock, and the pulls that were woken."""

    def __init__(self, capacity: int = 100) -> None:
        self.clock = Clock()
        self.clock.advance(START_S)
        self.woken: list[HeldPull] = []
        self.max_offset = 5
        self.held = HeldPulls(
            self.clock,
            self.woken.append,
            lambda topic, queue, offset: self.max_offset > offset,
            lambda: capacity,
        )

    def pull(
        self,
        hold_ms: int = 15_000,
        tags: str | None = None,
        connection: Any = None,
        queue: Any = QUEUE,
    ) -> HeldPull:
        wanted = None if tags is None else TagsFilter([tags_code(tags)])
        deadline_ms = int(self.clock.seconds() * 1000) + hold_ms
        return HeldPull(
            queue, 5, deadline_ms, wanted, connection or FakeConnection(), cast(Any, object())
        )

    def arrive(self, tags: str | None = None, queue_id: int = 0) -> None:
        self.max_offset += 1
        self.held.message_arrived("TopicA", queue_id, self.max_offset, tags_code(tags), 0)


def test_a_queue_that_is_whole_wakes_its_pulls_whatever_tags_they_want() -> None:
    desk = Desk()
    mine, picky, other = desk.pull(), desk.pull(tags="TagZ"), desk.pull(queue=("TopicA", 1))
    for pull in (mine, picky, other):
        assert desk.held.hold(pull)
    desk.held.queue_whole(*QUEUE)
    desk.held.queue_whole("Unknown", 0)
    desk.clock.advance(0)
    assert desk.woken == [mine, picky]
    assert desk.held.count == 1


def test_an_arrival_wakes_the_pulls_of_its_queue_alone() -> None:
    desk = Desk()
    mine, other = desk.pull(), desk.pull(queue=("TopicA", 1))
    assert desk.held.hold(mine)
    assert desk.held.hold(other)
    desk.arrive()
    desk.clock.advance(0)
    assert desk.woken == [mine]
    assert desk.held.count == 1


def test_many_arrivals_of_one_turn_wake_a_pull_once() -> None:
    desk = Desk()
    desk.held.hold(desk.pull())
    for _ in range(32):
        desk.arrive()
    assert desk.woken == []
    desk.clock.advance(0)
    assert len(desk.woken) == 1


def test_a_message_with_another_tag_does_not_wake() -> None:
    desk = Desk()
    wanted = desk.pull(tags="TagA")
    desk.held.hold(wanted)
    desk.arrive("TagB")
    desk.clock.advance(0)
    assert desk.woken == []
    desk.arrive("TagA")
    desk.clock.advance(0)
    assert desk.woken == [wanted]


def test_of_500_parked_pulls_of_a_hot_topic_those_wake_whose_filter_matches() -> None:
    desk = Desk(capacity=500)
    parked = {tag: [desk.pull(tags=tag) for _ in range(100)] for tag in "ABCDE"}
    for pulls in parked.values():
        assert all(desk.held.hold(pull) for pull in pulls)
    for tag, expected in (("D", parked["D"]), ("Other", []), ("D", []), ("B", parked["B"])):
        desk.arrive(tag)
        # Others have their turn between a few of them.
        desk.clock.pump([0] * 50)
        assert desk.woken == expected
        desk.woken.clear()
    assert desk.held.count == 300


def test_time_over_is_exact_to_the_millisecond() -> None:
    desk = Desk()
    short, long = desk.pull(2_000), desk.pull(15_000)
    desk.held.hold(long)
    desk.held.hold(short)
    desk.clock.advance(1.999)
    assert desk.woken == []
    desk.clock.advance(0.002)
    assert desk.woken == [short]
    desk.clock.advance(12.997)
    assert desk.woken == [short]
    desk.clock.advance(0.003)
    assert desk.woken == [short, long]


def test_what_arrived_during_a_slow_read_wakes_at_once() -> None:
    desk = Desk()
    desk.max_offset = 6
    late = desk.pull()
    desk.held.hold(late)
    desk.clock.advance(0)
    assert desk.woken == [late]


def test_there_is_a_bound_and_room_again_after_a_wake() -> None:
    desk = Desk(capacity=2)
    assert desk.held.hold(desk.pull())
    assert desk.held.hold(desk.pull())
    assert not desk.held.hold(desk.pull())
    desk.arrive()
    desk.clock.advance(0)
    assert desk.held.hold(HeldPull(QUEUE, 6, 0, None, FakeConnection(), cast(Any, object())))


def test_a_lost_link_takes_its_pulls_along() -> None:
    desk = Desk()
    link = FakeConnection()
    desk.held.hold(desk.pull(connection=link))
    desk.held.hold(desk.pull(connection=link, queue=("TopicA", 1)))
    desk.held.drop_connection(link)
    assert desk.held.count == 0
    desk.arrive()
    desk.clock.advance(20)
    assert desk.woken == []


def test_stop_answers_everybody_and_leaves_no_timer() -> None:
    desk = Desk()
    desk.held.hold(desk.pull())
    desk.held.hold(desk.pull(queue=("TopicB", 3)))
    desk.held.stop()
    assert len(desk.woken) == 2
    assert desk.clock.getDelayedCalls() == []


def test_woken_pulls_do_not_pile_up() -> None:
    desk = Desk()
    for _ in range(10_000):
        desk.held.hold(
            HeldPull(QUEUE, desk.max_offset, 2**50, None, FakeConnection(), cast(Any, 0))
        )
        desk.arrive()
        desk.clock.advance(0)
    assert len(desk.woken) == 10_000
    assert len(desk.held._deadlines) <= 1100


@pytest.mark.parametrize("failing", [0, 1])
def test_a_pull_that_cannot_be_answered_hinders_no_other(failing: int) -> None:
    clock = Clock()
    woken: list[HeldPull] = []

    def wake(pull: HeldPull) -> None:
        if pull is pulls[failing]:
            raise RuntimeError("no answer")
        woken.append(pull)

    held = HeldPulls(clock, wake, lambda topic, queue, offset: False, lambda: 10)
    pulls = [
        HeldPull(QUEUE, 0, 1000, None, FakeConnection(), cast(Any, object())) for _ in range(2)
    ]
    for pull in pulls:
        held.hold(pull)
    held.message_arrived("TopicA", 0, 1, 0, 0)
    clock.advance(0)
    assert woken == [pulls[1 - failing]]


def test_a_peer_that_does_not_read_keeps_its_pulls_waiting_until_it_does() -> None:
    desk = Desk()
    slow, quick = FakeConnection(), FakeConnection(40001)
    pulls = [desk.pull(connection=slow), desk.pull(connection=slow), desk.pull(connection=quick)]
    for pull in pulls:
        desk.held.hold(pull)
    slow.is_writable = False
    desk.arrive()
    desk.clock.advance(0)
    assert desk.woken == [pulls[2]]
    slow.drain()
    desk.clock.advance(0)
    assert desk.woken == [pulls[2], pulls[0], pulls[1]]


def test_a_peer_that_never_reads_leaves_nothing_behind() -> None:
    desk = Desk()
    link = FakeConnection()
    desk.held.hold(desk.pull(connection=link))
    link.is_writable = False
    desk.arrive()
    desk.clock.advance(0)
    link.is_open = False
    desk.held.drop_connection(link)
    link.drain()
    desk.clock.advance(20)
    assert desk.woken == []
    assert desk.clock.getDelayedCalls() == []


def test_a_pull_whose_link_was_lost_while_it_was_read_is_not_held() -> None:
    desk = Desk()
    link = FakeConnection()
    link.is_open = False
    assert not desk.held.hold(desk.pull(connection=link, hold_ms=10**12))
    assert (desk.held.count, desk.held.size_bytes) == (0, 0)


def test_what_held_pulls_take_is_bounded() -> None:
    desk = Desk()
    most = MAX_HELD_BYTES // 2
    large = [desk.pull() for _ in range(3)]
    for pull in large:
        pull.size_bytes = most
    assert desk.held.hold(large[0])
    assert desk.held.hold(large[1])
    assert not desk.held.hold(large[2])
    desk.arrive()
    desk.clock.advance(0)
    assert desk.held.size_bytes == 0
    large[2].offset = desk.max_offset
    assert desk.held.hold(large[2])


def test_a_crowd_of_pulls_of_one_link_is_dropped_and_woken_in_little_time() -> None:
    desk = Desk(capacity=100_000)
    gone, staying = FakeConnection(), FakeConnection(40001)
    for link in (gone, staying):
        for _ in range(20_000):
            desk.held.hold(desk.pull(connection=link))
    begun = time.process_time()
    desk.held.drop_connection(gone)
    desk.arrive()
    desk.clock.advance(0)
    assert len(desk.woken) == 20_000
    assert time.process_time() - begun < 2
