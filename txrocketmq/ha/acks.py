"""Who waits for replicas of a message, and when do they have them? Group transfer.

Stands for ``GroupTransferService``. Messages are appended in the order of their offsets, so those that wait for the same number of
replicas are answered from the front of one queue, all that an acknowledgement covers at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime

#: As many as may wait for a flush: more than connections and their requests in flight can make.
MAX_WAITERS = 262_144

_Waiter = tuple[int, float, "Deferred[bool]"]


class AckWaiters:
    """Waiters for replicas.

    :param safe_offset: up to where so many replicas, the master among them, reported the log.
    :param has: whether so many replicas have what ends at an offset: one that began later than that has not.
    """

    def __init__(
        self,
        clock: IReactorTime,
        safe_offset: Callable[[int], int],
        has: Callable[[int, int], bool],
    ) -> None:
        self._clock = clock
        self._safe_offset = safe_offset
        self._has = has
        self._queues: dict[int, deque[_Waiter]] = {}
        self._count = 0
        self._sweep: IDelayedCall | None = None
        self._is_closed = False

    def __len__(self) -> int:
        return self._count

    def wait(self, offset: int, replicas: int, timeout_ms: int) -> Deferred[bool]:
        """True once so many replicas have everything below an offset, False when they have not in time.

        :param replicas: the master counts as one; other numbers mean what ``safe_offset`` makes of them.
        """
        if self._has(replicas, offset):
            return succeed(True)
        if self._is_closed or self._count >= MAX_WAITERS:
            return succeed(False)
        waiting: Deferred[bool] = Deferred()
        deadline = self._clock.seconds() + timeout_ms / 1000
        self._queues.setdefault(replicas, deque()).append((offset, deadline, waiting))
        self._count += 1
        if self._sweep is None:
            self._sweep = self._clock.callLater(timeout_ms / 1000, self._expire)
        return waiting

    def acknowledged(self) -> None:
        """Some replica has more of the log than before."""
        for replicas, queue in list(self._queues.items()):
            safe = self._safe_offset(replicas)
            missing = []
            while queue and queue[0][0] <= safe:
                waiter = queue.popleft()
                if self._has(replicas, waiter[0]):
                    self._count -= 1
                    waiter[2].callback(True)
                else:
                    missing.append(waiter)
            queue.extendleft(reversed(missing))

    def close(self) -> None:
        """Nobody waits any more: the present waiters get False, and all later ones."""
        self._is_closed = True
        self.give_up()

    def give_up(self) -> None:
        """The present waiters get False."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        queues, self._queues = self._queues, {}
        self._count = 0
        for queue in queues.values():
            for _, _, waiting in queue:
                waiting.callback(False)

    def _expire(self) -> None:
        self._sweep = None
        now = self._clock.seconds()
        expired: list[Deferred[bool]] = []
        for replicas, queue in list(self._queues.items()):
            # `slaveTimeout` may have been changed, so later ones may be due first; they wait for those before them.
            while queue and queue[0][1] <= now:
                expired.append(queue.popleft()[2])
            if not queue:
                del self._queues[replicas]
        self._count -= len(expired)
        deadlines = [queue[0][1] for queue in self._queues.values() if queue]
        if deadlines:
            self._sweep = self._clock.callLater(max(0.0, min(deadlines) - now), self._expire)
        for waiting in expired:
            waiting.callback(False)
