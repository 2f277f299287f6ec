"""How late do messages come that wait for their time, when a thousand a second are sent?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import checks
from .cell import Cell
from .clients import Producer
from .kinds import Times, WatchedConsumer

RATE = 1000
#: Some of a second is spent before the first and after the last.
SLOWEST = 950
MOST = 10_000
INSIST_MS = 60_000


def lateness(times: Sequence[Times], waits_ms: Sequence[int]) -> list[int]:
    """By how many ms each counted message was stored after its time, which was ``waits_ms``, taken in turn, after its birth."""
    return [
        moment.stored_ms - moment.born_ms - waits_ms[moment.seq % len(waits_ms)]
        for moment in times
        if moment.seq >= 0
    ]


def of_a_thousand_a_second(
    cell: Cell, waits_ms: Sequence[int], size: int, **asked: Any
) -> list[int]:
    """Send messages that wait, as ``asked`` says, a thousand a second, and see each of them come once; the lateness of each.

    AssertionError when one is lost or comes twice, or when the machine could not send so many.
    """
    count = min(cell.count, MOST)
    # Official brokers refuse some on a busy machine; ours has to take them all.
    insist_ms = INSIST_MS if cell.column.is_control else 0
    quick: dict[str, Any] = {"poll_namesrv_ms": 2_000, "heartbeat_ms": 2_000}
    with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
        cell.make_topics(producer, cell.topic)
        with WatchedConsumer(
            cell.puppet, cell.namesrv, cell.group, cell.topic, **quick
        ) as consumer:
            consumer.wait(1)
            run = producer.start_sending(
                cell.topic,
                cell.seed,
                count,
                "async",
                size=size,
                rate=RATE,
                insist_ms=insist_ms,
                **asked,
            )
            report = run.join()
            consumer.wait(count + 1)
            rows, times = consumer.rows(), consumer.times()
    rows = [row for row in rows if row.seq >= 0]
    rate = 1000 * count / report.took_ms
    checks.nothing_is_lost(rows, range(count))
    checks.nothing_came_twice(rows)
    late = lateness(times, waits_ms)
    print(f"{rate:.0f} messages/s, late by {min(late)} to {max(late)} ms")
    assert rate > SLOWEST, f"the machine sent {rate:.0f} messages/s"
    return late
