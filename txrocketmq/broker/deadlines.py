"""Whose time is over? One timer for all that wait, though most of them leave before their time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar

from twisted.internet.interfaces import IDelayedCall, IReactorTime


class Waits(Protocol):
    """One that waits: until when (wall-clock time), and whether it still does."""

    deadline_ms: int
    is_held: bool


W = TypeVar("W", bound=Waits)


class Deadlines(Generic[W]):
    """Until when each of many waits.

    :param over: called with those whose time is over, the earliest first.
    """

    def __init__(self, clock: IReactorTime, over: Callable[[list[W]], None]) -> None:
        self._clock = clock
        self._over = over
        # The number keeps those of one time in their order.
        self._heap: list[tuple[int, int, W]] = []
        self._sequence = 0
        self._timer: IDelayedCall | None = None
        self._timer_at_ms = 0

    def __len__(self) -> int:
        """How many are remembered, with those that left and lie behind others."""
        return len(self._heap)

    def add(self, waiter: W, count: int) -> None:
        """One more waits, which makes so many."""
        self._sequence += 1
        if len(self._heap) > 2 * count + 1024:
            # Those that left stay behind in the heap; a busy broker would pile them up.
            self._heap = [entry for entry in self._heap if entry[2].is_held]
            heapify(self._heap)
        deadline_ms = waiter.deadline_ms
        heappush(self._heap, (deadline_ms, self._sequence, waiter))
        if self._timer is None or deadline_ms < self._timer_at_ms:
            self._arm(deadline_ms)

    def clear(self) -> None:
        """Nobody waits any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._heap.clear()

    def _arm(self, deadline_ms: int) -> None:
        delay_s = max(0.0, deadline_ms / 1000 - self._clock.seconds())
        self._timer_at_ms = deadline_ms
        if self._timer is None:
            self._timer = self._clock.callLater(delay_s, self._expire)
        else:
            self._timer.reset(delay_s)

    def _expire(self) -> None:
        self._timer = None
        now_ms = int(self._clock.seconds() * 1000)
        heap = self._heap
        over = []
        while heap and (heap[0][0] <= now_ms or not heap[0][2].is_held):
            waiter = heappop(heap)[2]
            if waiter.is_held:
                over.append(waiter)
        if heap:
            self._arm(heap[0][0])
        self._over(over)
