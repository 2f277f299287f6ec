"""How do tests run blocking work without threads? Three `IBlockingPool` providers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IBlockingPool


@implementer(IBlockingPool)
class ImmediatePool:
    """Runs all work at once, in the caller's turn."""

    def __init__(self) -> None:
        self._stopped = False

    def submit(self, function: Callable[..., object], *args: object) -> Deferred[Any]:
        """See `IBlockingPool`."""
        if self._stopped:
            return fail(StoreError("the pool is stopped"))
        return maybeDeferred(function, *args)

    def stop(self) -> Deferred[None]:
        """See `IBlockingPool`."""
        self._stopped = True
        return succeed(None)


@implementer(IBlockingPool)
class ManualPool:
    """Keeps work until the test lets it happen.

    A thread has two moments that matter: when it does the work, and when the reactor hears of it. `work` and `deliver`
    are these two; `run` is both.
    """

    def __init__(self, limit: int = 1000) -> None:
        self._limit = limit
        self._stopped = False
        self._waiting: deque[tuple[Deferred[Any], Callable[..., object], tuple[object, ...]]] = (
            deque()
        )
        self._done: deque[tuple[Deferred[Any], object]] = deque()

    @property
    def pending(self) -> int:
        """Jobs that were not begun."""
        return len(self._waiting)

    def submit(self, function: Callable[..., object], *args: object) -> Deferred[Any]:
        """See `IBlockingPool`."""
        if self._stopped or len(self._waiting) >= self._limit:
            return fail(StoreError("the pool is stopped or full"))
        deferred: Deferred[Any] = Deferred()
        self._waiting.append((deferred, function, args))
        return deferred

    def work(self) -> None:
        """Do the oldest job; nobody hears of it yet."""
        deferred, function, args = self._waiting.popleft()
        outcome: list[object] = []
        maybeDeferred(function, *args).addBoth(outcome.append)
        self._done.append((deferred, outcome[0]))

    def deliver(self) -> None:
        """Report the oldest finished job."""
        deferred, outcome = self._done.popleft()
        deferred.callback(outcome)

    def run(self, jobs: int | None = None) -> int:
        """Do and report so many jobs, by default all there are and all that follow from them; how many were done."""
        count = 0
        while self._waiting and (jobs is None or count < jobs):
            self.work()
            self.deliver()
            count += 1
        return count

    def stop(self) -> Deferred[None]:
        """See `IBlockingPool`."""
        self.run()
        self._stopped = True
        return succeed(None)


@implementer(IBlockingPool)
class SimulatedPool:
    """Does work and reports it whenever `step` is called, in an order that chance decides.

    A finished job is reported some time after it was done, and later jobs may be done in between, as with threads.

    :param threads: how many jobs run at a time: any of the oldest ones so many may be done next.
    :ivar held: no job gets done while it is set, as when the device hangs.
    """

    def __init__(self, rng: Random, threads: int = 1) -> None:
        self.held = False
        self._rng = rng
        self._threads = threads
        self._waiting: list[tuple[Deferred[Any], Callable[..., object], tuple[object, ...]]] = []
        self._done: deque[tuple[Deferred[Any], object]] = deque()

    @property
    def pending(self) -> int:
        """Jobs that were not reported yet and can go on."""
        return len(self._done) + (0 if self.held else len(self._waiting))

    def submit(self, function: Callable[..., object], *args: object) -> Deferred[Any]:
        """See `IBlockingPool`."""
        deferred: Deferred[Any] = Deferred()
        self._waiting.append((deferred, function, args))
        return deferred

    def step(self) -> bool:
        """Do or report one job; False when there is none. What is no ``Exception`` comes out of here."""
        can_work = bool(self._waiting) and not self.held
        if self._done and not (can_work and self._rng.random() < 0.5):
            deferred, outcome = self._done.popleft()
            deferred.callback(outcome)
            return True
        if not can_work:
            return False
        number = self._rng.randrange(min(self._threads, len(self._waiting)))
        deferred, function, args = self._waiting.pop(number)
        try:
            outcome = function(*args)
        except Exception as error:
            outcome = Failure(error)  # type: ignore[no-untyped-call]
        self._done.append((deferred, outcome))
        return True

    def stop(self) -> Deferred[None]:
        """See `IBlockingPool`."""
        while self.step():
            pass
        return succeed(None)
