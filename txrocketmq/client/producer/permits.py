"""How much may be in flight, and whose turn is next? The brake of a producer: pure, no clock.

Stands for ``semaphoreAsyncSendNum`` and ``semaphoreAsyncSendSize`` of ``DefaultMQProducerImpl``. What does not fit waits in order; nobody is
refused before a generous bound on waiting ones. A message larger than all bytes there are goes when nothing else is in flight.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol


class Waiting(Protocol):
    """Something that wants a permit."""

    size: int

    def begin(self) -> None:
        """It has the permit; `SendPermits.release` gives it back."""


class SendPermits:
    """Counts what is in flight.

    :ivar count: messages (or batches) in flight.
    :ivar size: their bytes.
    :ivar most_count: the largest count that ever was.
    :ivar most_size: the largest size that ever was.
    """

    def __init__(self, max_count: int, max_size: int, max_waiting: int) -> None:
        self.max_count = max_count
        self.max_size = max_size
        self.max_waiting = max_waiting
        self.count = 0
        self.size = 0
        self.most_count = 0
        self.most_size = 0
        # In order, and quick to leave: a caller may give up a hundred thousand sends that wait.
        self._waiting: OrderedDict[Waiting, None] = OrderedDict()
        self._going = False
        self._when_free: list[Callable[[], None]] = []
        self._when_idle: list[Callable[[], None]] = []

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def is_free(self) -> bool:
        """Whether the next send would go at once."""
        return not self._waiting and self.count < self.max_count and self.size < self.max_size

    def acquire(self, wanted: Waiting) -> bool:
        """Begin at once if there is room, else when its turn comes; False when too many wait."""
        if self._waiting or not self._fits(wanted.size):
            if self.waiting >= self.max_waiting:
                return False
            self._waiting[wanted] = None
            return True
        self._take(wanted)
        return True

    def give_up(self, wanted: Waiting) -> None:
        """One that waits does not want any more."""
        if wanted in self._waiting:
            del self._waiting[wanted]
            self._go_on()

    def release(self, size: int) -> None:
        """One is no longer in flight."""
        self.count -= 1
        self.size -= size
        if self._waiting:
            self._go_on()
        if self._when_free and self.is_free:
            told, self._when_free = self._when_free, []
            for callback in told:
                callback()
        if self._when_idle and not self.count and not self.waiting:
            told, self._when_idle = self._when_idle, []
            for callback in told:
                callback()

    def call_when_free(self, callback: Callable[[], None]) -> None:
        """Call back when the next send would go at once; now, if it would."""
        if self.is_free:
            callback()
        else:
            self._when_free.append(callback)

    def do_not_call(self, callback: Callable[[], None]) -> None:
        """Whoever wanted to be told when the next send would go at once waits no longer."""
        if callback in self._when_free:
            self._when_free.remove(callback)

    def call_when_idle(self, callback: Callable[[], None]) -> None:
        """Call back when nothing is in flight and nobody waits; now, if that is so."""
        if self.count or self.waiting:
            self._when_idle.append(callback)
        else:
            callback()

    def _fits(self, size: int) -> bool:
        if not self.count:
            return True
        return self.count < self.max_count and self.size + size <= self.max_size

    def _take(self, wanted: Waiting) -> None:
        self.count += 1
        self.size += wanted.size
        if self.count > self.most_count:
            self.most_count = self.count
        if self.size > self.most_size:
            self.most_size = self.size
        wanted.begin()

    def _go_on(self) -> None:
        # One that fails at once releases again: that must not nest.
        if self._going:
            return
        self._going = True
        try:
            waiting = self._waiting
            while waiting:
                first = next(iter(waiting))
                if not self._fits(first.size):
                    break
                del waiting[first]
                self._take(first)
        finally:
            self._going = False
