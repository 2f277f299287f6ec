"""Order locks: one owner at a time, renewed by asking again, free again after a minute."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from txrocketmq.broker.locks import QueueLocks
from txrocketmq.model.message import MessageQueue

Q0, Q1 = (MessageQueue(topic="T", broker_name="b", queue_id=number) for number in (0, 1))


def locks() -> tuple[Clock, QueueLocks]:
    clock = Clock()
    clock.advance(1_700_000_000)
    return clock, QueueLocks(clock)


def test_the_first_who_asks_owns_the_queue() -> None:
    _, held = locks()
    assert held.try_lock("G", [Q0], "a") == [Q0]
    assert held.try_lock("G", [Q0, Q1], "b") == [Q1]
    assert held.try_lock("G", [Q0], "a") == [Q0]
    assert held.try_lock("H", [Q0], "b") == [Q0]


def test_a_lock_lives_a_minute_after_its_last_renewal() -> None:
    clock, held = locks()
    held.try_lock("G", [Q0], "a")
    clock.advance(50)
    held.try_lock("G", [Q0], "a")
    clock.advance(60)
    assert held.try_lock("G", [Q0], "b") == []
    assert held.has_live_lock("G")
    clock.advance(0.001)
    assert not held.has_live_lock("G")
    assert held.try_lock("G", [Q0], "b") == [Q0]
    assert held.try_lock("G", [Q0], "a") == []


def test_only_the_owner_can_unlock() -> None:
    _, held = locks()
    held.try_lock("G", [Q0], "a")
    held.unlock("G", [Q0, Q1], "b")
    assert held.try_lock("G", [Q0], "b") == []
    held.unlock("G", [Q0], "a")
    assert held.try_lock("G", [Q0], "b") == [Q0]
    held.unlock("H", [Q0], "a")


def test_locks_that_ran_out_are_forgotten() -> None:
    clock, held = locks()
    held.try_lock("G", [Q0, Q1], "a")
    held.try_lock("G", [], "b")
    held.try_lock("H", [], "b")
    clock.advance(30)
    held.try_lock("G", [Q1], "a")
    clock.advance(31)
    held.expire()
    assert len(held) == 1
    assert held.has_live_lock("G")
    clock.advance(60)
    held.expire()
    assert len(held) == 0
    assert held._by_group == {}


def test_there_is_a_bound_on_locks_and_those_held_are_still_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("txrocketmq.broker.locks.MAX_LOCKS", 1)
    clock, held = locks()
    assert held.try_lock("G", [Q0, Q1], "a") == [Q0]
    assert held.try_lock("H", [Q0], "a") == []
    assert held.try_lock("G", [Q0], "a") == [Q0]
    held.unlock("G", [Q0], "a")
    assert held.try_lock("H", [Q0], "a") == [Q0]
    clock.advance(61)
    assert held.try_lock("H", [Q0], "b") == [Q0]
