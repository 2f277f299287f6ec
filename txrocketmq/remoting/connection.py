"""Which of our requests wait for an answer on a connection, and until when? Sans-IO: numbers and Deferreds, no socket, no timer.

Stands for ``responseTable``, ``ResponseFuture`` and ``scanResponseTable`` of the official ``NettyRemotingAbstract``, with one
table (and one sequence of opaques) per connection, so that a lost connection fails its own waiters and no others.

::

    add() ----> waiting --answer--> answered        settle(): the caller gets the command, whatever its code
                   |----deadline--> expired         expire(): RemotingTimeoutError; a late answer is counted, not logged
                   |----cancel----> forgotten       the caller's own Deferred.cancel()
                   `----close-----> lost            fail_all(): RemotingSendError
"""

from __future__ import annotations

from twisted.internet.defer import Deferred

from txrocketmq.codec.command import RemotingCommand
from txrocketmq.errors import (
    RemotingSendError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)

MAX_OPAQUE = 0x7FFFFFFF
"""Opaques are positive Java ints; the sequence starts again at 0 behind this one."""


class Permits:
    """How many requests may be in flight; shared by all connections of a client, or owned by one (official ``Semaphore``)."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class Waiter:
    """One request of ours that has no answer yet."""

    __slots__ = ("deadline", "deferred", "timeout_ms")

    def __init__(
        self, deferred: Deferred[RemotingCommand], deadline: float, timeout_ms: int
    ) -> None:
        self.deferred = deferred
        self.deadline = deadline
        self.timeout_ms = timeout_ms


class PendingRequests:
    """The requests of ours on one connection, by opaque.

    :ivar late_answers: answers that came after the caller had given up.
    :ivar unknown_answers: answers whose opaque was never given out here.
    """

    def __init__(self, address: str, permits: Permits) -> None:
        self._address = address
        self._permits = permits
        self._waiters: dict[int, Waiter] = {}
        self._next_opaque = 0
        self._wrapped = False
        self.late_answers = 0
        self.unknown_answers = 0

    def __len__(self) -> int:
        return len(self._waiters)

    def next_opaque(self) -> int:
        """A number that no waiting request has; also used for oneway requests, which wait for nothing."""
        waiters = self._waiters
        opaque = self._next_opaque
        while opaque in waiters:
            opaque = (opaque + 1) & MAX_OPAQUE
        self._wrapped = self._wrapped or opaque == MAX_OPAQUE
        self._next_opaque = (opaque + 1) & MAX_OPAQUE
        return opaque

    def check_permit(self) -> None:
        """Raise `RemotingTooMuchRequestError` when no further request may be in flight."""
        permits = self._permits
        if permits.used >= permits.limit:
            raise RemotingTooMuchRequestError(
                self._address, f"{permits.used} requests are in flight, the limit is reached"
            )

    def add(self, opaque: int, deadline: float, timeout_ms: int) -> Deferred[RemotingCommand]:
        """Wait for the answer to ``opaque`` until ``deadline`` (seconds of the connection's clock)."""
        deferred: Deferred[RemotingCommand] = Deferred(lambda _: self._forget(opaque))
        self._waiters[opaque] = Waiter(deferred, deadline, timeout_ms)
        self._permits.used += 1
        return deferred

    def settle(self, command: RemotingCommand) -> bool:
        """Hand an answer to its waiter; False when nobody ever asked with this opaque."""
        waiter = self._take(command.opaque)
        if waiter is not None:
            waiter.deferred.callback(command)
            return True
        if self._wrapped or 0 <= command.opaque < self._next_opaque:
            self.late_answers += 1
            return True
        self.unknown_answers += 1
        return False

    def expire(self, now: float) -> tuple[int, float | None]:
        """Fail the waiters whose time is over; the longest timeout among them in ms (0: none) and the next deadline."""
        due: list[int] = []
        next_deadline: float | None = None
        for opaque, waiter in self._waiters.items():
            deadline = waiter.deadline
            if deadline <= now:
                due.append(opaque)
            elif next_deadline is None or deadline < next_deadline:
                next_deadline = deadline
        longest_ms = 0
        for opaque in due:
            expired = self._take(opaque)
            if expired is None:  # an earlier waiter's callback cancelled this one
                continue
            longest_ms = max(longest_ms, expired.timeout_ms)
            expired.deferred.errback(
                RemotingTimeoutError(self._address, f"no answer within {expired.timeout_ms} ms")
            )
        return longest_ms, next_deadline

    def fail_all(self, reason: str) -> None:
        """The connection is gone: everyone gets `RemotingSendError` with the reason."""
        while self._waiters:
            waiter = self._take(next(iter(self._waiters)))
            if waiter is not None:
                waiter.deferred.errback(RemotingSendError(self._address, reason))

    def _take(self, opaque: int) -> Waiter | None:
        waiter = self._waiters.pop(opaque, None)
        if waiter is not None:
            self._permits.used -= 1
        return waiter

    def _forget(self, opaque: int) -> None:
        self._take(opaque)
