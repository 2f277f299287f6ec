"""Where does blocking work go? Small named thread pools with a bound (official: one thread service per purpose).

A hop to a thread and back costs 30 to 40 us of CPU, so work is handed over per batch, never per message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool
from zope.interface import implementer

from txrocketmq.errors import PoolFullError, StoreError
from txrocketmq.interfaces import IBlockingPool


@implementer(IBlockingPool)
class BlockingPool:
    """A bounded pool of threads; the threads start with the first work.

    :param name: names the threads and the errors.
    :param threads: most threads.
    :param limit: most jobs that run or wait; beyond it `submit` fails.
    """

    def __init__(
        self, reactor: IReactorFromThreads, name: str, threads: int, limit: int = 4096
    ) -> None:
        self.name = name
        self._reactor = reactor
        self._limit = limit
        self._jobs = 0
        self._stopping: Deferred[None] | None = None
        self._threads = ThreadPool(minthreads=0, maxthreads=threads, name=name)
        self._threads.start()

    @property
    def jobs(self) -> int:
        """Jobs that run or wait."""
        return self._jobs

    def submit(self, function: Callable[..., object], *args: object) -> Deferred[Any]:
        """See `IBlockingPool`."""
        if self._stopping is not None:
            return fail(StoreError(f"pool {self.name} is stopped"))
        if self._jobs >= self._limit:
            return fail(PoolFullError(f"pool {self.name} is full: {self._jobs} jobs wait"))
        self._jobs += 1
        job = deferToThreadPool(self._reactor, self._threads, function, *args)
        return job.addBoth(self._ended)

    def _ended(self, outcome: object) -> object:
        self._jobs -= 1
        if self._stopping is not None and not self._jobs:
            # After this job's own callbacks, which belong to its owner.
            self._reactor.callFromThread(self._end)
        return outcome

    def stop(self) -> Deferred[None]:
        """See `IBlockingPool`. Safe to call twice."""
        if self._stopping is None:
            self._stopping = Deferred()
            if not self._jobs:
                self._end()
        ended: Deferred[None] = Deferred()
        if self._stopping.called:
            return succeed(None)
        self._stopping.addCallback(lambda _: ended.callback(None))
        return ended

    def _end(self) -> None:
        # The threads are idle, so joining them takes no time.
        self._threads.stop()
        if self._stopping is not None and not self._stopping.called:
            self._stopping.callback(None)
