"""S22: a handler that raises, returns the wrong thing, fails later, never answers, or blocks a thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from consumer_world import SUCCESS, ConsumerWorld, Diary
from log_watch import is_error, logged
from twisted.internet.defer import Deferred

from txrocketmq.client.consumer.handlers import ConsumeOrderlyStatus
from txrocketmq.testing.pools import ManualPool

TIMEOUT_MINUTES = 0.25  # 15 s


@pytest.fixture
def faults() -> Iterator[list[Any]]:
    """Errors in the log."""
    with logged(is_error, show=lambda event: event) as found:
        yield found


def failing_later() -> Deferred[Any]:
    failed: Deferred[Any] = Deferred()
    failed.errback(ValueError("no luck"))
    return failed


def never() -> Deferred[Any]:
    return Deferred()


ANSWERS: dict[str, Any] = {
    "raises": lambda: 1 / 0,
    "none": lambda: None,
    "true": lambda: True,
    "wrong enum": lambda: ConsumeOrderlyStatus.SUCCESS,
    "fails": failing_later,
    "never": never,
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_bad_answer_means_another_try_and_harms_nobody_else(kind: str, faults: list[Any]) -> None:
    world = ConsumerWorld(queues=2)
    world.put(b"bad", 0)

    def answer(messages: Any, context: Any) -> Any:
        bad = messages[0].body == b"bad" and not messages[0].reconsume_times
        return ANSWERS[kind]() if bad else SUCCESS

    diary = Diary(answer)
    consumer = world.consumer(diary, consume_timeout=TIMEOUT_MINUTES)
    world.until(lambda: b"bad" in diary.bodies)
    began = world.clock.seconds()
    # Other queues go on meanwhile.
    for number in range(10):
        world.put(b"%d" % number, number % 2)
        assert world.until(lambda n=number: b"%d" % n in diary.bodies) < 0.5  # type: ignore[misc]
    # It was given back: it waits for its next try.
    world.until(lambda: bool(world.messages("SCHEDULE_TOPIC_XXXX")), 21)
    assert world.clock.seconds() - began <= (20 if kind == "never" else 2)
    world.until(lambda: diary.bodies.count(b"bad") == 2, 60)
    world.network.skip(130)
    assert diary.bodies.count(b"bad") == 2
    members = world.members()
    assert members is not None
    assert len(members.connection_set) == 1
    assert consumer.waiting_messages == consumer.running_handlers == 0
    texts = [event.get("log_format", "") for event in faults]
    if kind == "never":
        assert texts == []
    else:
        assert len(texts) == 1
    if kind in ("raises", "fails"):
        assert faults[0]["log_failure"].type in (ZeroDivisionError, ValueError)
    elif kind != "never":
        assert "expected ConsumeConcurrentlyStatus.CONSUME_SUCCESS or" in faults[0]["fault"]


def test_a_thread_that_is_blocked_for_a_minute_stops_neither_heartbeats_nor_queues() -> None:
    world = ConsumerWorld(queues=2)
    world.put(b"blocks", 0)
    pool = ManualPool()
    diary = Diary()
    consumer = world.consumer(diary, in_thread=True, pool=pool, consume_timeout=TIMEOUT_MINUTES)
    world.until(lambda: pool.pending == 1)
    stuck = pool._waiting.popleft()
    for _ in range(12):
        world.put(b"easy", 1)
        world.network.skip(5)
        pool.run()
    assert diary.bodies.count(b"easy") == 12
    # It was given back when its time was up, and consumed from there.
    assert diary.bodies.count(b"blocks") == 1
    members = world.members()
    assert members is not None
    assert len(members.connection_set) == 1
    stuck[0].callback(SUCCESS)
    assert consumer.running_handlers == 0
