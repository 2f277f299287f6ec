"""When is the log on the device, and who waits for it? Group commit and the two flush policies.

Stand for the official ``GroupCommitService``, ``FlushRealTimeService``, ``FlushDiskWatcher`` and ``DefaultFlushManager``.

One sync at a time runs in the pool, or in the kernel without a thread of ours. It covers what was written when it was started, and
only that is reported: whoever appended later waits for the next one. Waiters of one reactor turn share a sync.

Crash story: after an I/O error the kernel may have dropped the dirty pages, and a later sync can succeed without them.
So the first such error makes the log read-only until restart, and all waiters are told that their message is not safe.
"""

from __future__ import annotations

import errno
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocketmq.interfaces import IBlockingPool, ICommitWaiter, IKernelSyncs, IMapping
from txrocketmq.store.commitlog import CommitLog
from txrocketmq.store.mapped import FULL_DISK

log = Logger()

PAGE_BYTES = 4096

#: The ``flushDiskType`` with which senders wait for the device.
SYNC_FLUSH = "SYNC_FLUSH"

#: How often a stop tries to sync what is left, as officially.
STOP_TRIES = 10

#: More waiters than connections and their requests in flight can make.
MAX_WAITERS = 262_144


class FlushConfig(Protocol):
    """The keys that this module reads, at each use."""

    flush_disk_type: str
    flush_interval_commit_log: int
    flush_commit_log_least_pages: int
    flush_commit_log_thorough_interval: int


class _Waiter(NamedTuple):
    """One who waits for an offset."""

    offset: int
    deadline: float
    deferred: Deferred[bool]


@implementer(ICommitWaiter)
class GroupCommit:
    """Waiters for an offset, answered together by one report of progress. Knows nothing of disks or replicas.

    :ivar safe_offset: everything below it is known to be safe.
    """

    def __init__(self, clock: IReactorTime, safe_offset: int = 0) -> None:
        self.safe_offset = safe_offset
        self._clock = clock
        #: By offset, the oldest of equal ones first; nearly always that is the order in which they come.
        self._waiters: deque[_Waiter] = deque()
        self._failed = False
        self._sweep: IDelayedCall | None = None
        self._sweep_at = 0.0

    def __len__(self) -> int:
        return len(self._waiters)

    def wait_for(self, offset: int, timeout_ms: int) -> Deferred[bool]:
        """See `ICommitWaiter`. False at once when it failed for good or too many wait."""
        if offset <= self.safe_offset:
            return succeed(True)
        if self._failed or len(self._waiters) >= MAX_WAITERS:
            return succeed(False)
        deferred: Deferred[bool] = Deferred()
        deadline = self._clock.seconds() + timeout_ms / 1000
        waiters, waiter = self._waiters, _Waiter(offset, deadline, deferred)
        if not waiters or offset >= waiters[-1].offset:
            waiters.append(waiter)
        else:
            insort(waiters, waiter, key=attrgetter("offset"))
        if self._sweep is None or deadline < self._sweep_at:
            self._sweep_again(deadline)
        return deferred

    def advance(self, offset: int) -> None:
        """Everything below ``offset`` is safe now; a smaller one than before changes nothing."""
        if offset > self.safe_offset:
            self.safe_offset = offset
        while self._waiters and self._waiters[0].offset <= self.safe_offset:
            self._waiters.popleft().deferred.callback(True)

    def cut(self, offset: int) -> None:
        """Everything below ``offset`` is safe, and what was beyond is gone: what comes there is none of the present waiters'."""
        self.safe_offset = offset
        self.advance(offset)
        self.give_up()

    def fail(self) -> None:
        """Nothing more will be safe: all waiters get False, and all later ones."""
        self._failed = True
        self.give_up()

    def give_up(self) -> None:
        """Answer all present waiters with False."""
        waiters, self._waiters = self._waiters, deque()
        _refuse(waiters)

    def close(self) -> None:
        """Answer whoever still waits, and stop the clock."""
        self.fail()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _sweep_again(self, deadline: float) -> None:
        # One timed call for all: it comes for the earliest deadline there was, and then for the earliest there is.
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep_at = deadline
        delay = max(0.0, deadline - self._clock.seconds())
        self._sweep = self._clock.callLater(delay, self._expire)

    def _expire(self) -> None:
        self._sweep = None
        now = self._clock.seconds()
        expired = [waiter for waiter in self._waiters if waiter.deadline <= now]
        self._waiters = deque(waiter for waiter in self._waiters if waiter.deadline > now)
        if self._waiters:
            self._sweep_again(min(waiter.deadline for waiter in self._waiters))
        _refuse(expired)


def _refuse(waiters: Iterable[_Waiter]) -> None:
    for waiter in waiters:
        waiter.deferred.callback(False)


class LogFlusher:
    """Brings the commit log to the device: at intervals, and at once for those who wait.

    :ivar flushed_timestamp_ms: store time of the newest record that is known to be on the device, for the checkpoint.
    :ivar sync_count: syncs done.
    :ivar on_lost: called in the pool, with the flushed offset, when a sync failed so that what was written may be lost.
    :ivar kernel_syncs: does the syncs that senders wait for, without a thread; None: the pool does them all.
    :ivar answer_together: runs what answers all who waited for a sync, so that their answers may leave together.
    :ivar on_progress: called with the flushed offset after each sync, before those who wait are answered.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        pool: IBlockingPool,
        clock: IReactorTime,
        config: FlushConfig,
        kernel_syncs: IKernelSyncs | None = None,
    ) -> None:
        self.flushed_timestamp_ms = 0
        self.sync_count = 0
        self.on_progress: Callable[[int], None] | None = None
        self.on_lost: Callable[[int], None] | None = None
        self.answer_together: Callable[[Callable[[], None]], object] = at_once
        self.kernel_syncs = kernel_syncs
        self._log = commit_log
        self._pool = pool
        self._clock = clock
        self._config = config
        self._group = GroupCommit(clock)
        self._tick: IDelayedCall | None = None
        self._soon: IDelayedCall | None = None
        self._last_thorough = 0.0
        self._syncing = False
        self._again = False
        self._held = False
        self._lost_ahead: OSError | None = None
        self._when_idle: list[Deferred[None]] = []

    def start(self) -> None:
        """Begin the flushes at intervals; the log must be open for appending."""
        self._group.advance(self._log.flushed_offset)
        self._last_thorough = self._clock.seconds()
        self._schedule_tick()

    def when_flushed(self, offset: int, timeout_ms: int) -> Deferred[bool]:
        """Sync, and fire True once everything below ``offset`` is on the device; False at the timeout or when it failed."""
        if offset > self._group.safe_offset:
            self.wake()
        return self._group.wait_for(offset, timeout_ms)

    def syncs_whole_files(self) -> bool:
        """Whether the kernel is asked: where senders wait, and it can be. Any thread."""
        kernel = self.kernel_syncs
        return kernel is not None and kernel.is_open and self._config.flush_disk_type == SYNC_FLUSH

    def wake(self) -> None:
        """Sync soon: after this turn of the reactor, so that all appends of the turn share it."""
        if self._syncing:
            self._again = True
        elif self._soon is None:
            self._soon = self._clock.callLater(0, self._sync_soon)

    def stop(self) -> Deferred[bool]:
        """End the intervals, sync what is left, answer all waiters. True when everything is on the device."""
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        return self._finish()

    def hold(self) -> Deferred[None]:
        """Sync nothing until `cut`; fires when no sync is under way."""
        self._held = True
        if not self._syncing:
            return succeed(None)
        idle: Deferred[None] = Deferred()
        self._when_idle.append(idle)
        return idle

    def cut(self, offset: int) -> None:
        """The log was cut and goes to this offset, all of it on the device; syncs go on. Who waited for more is told that it is not safe."""
        self._held = False
        self.answer_together(partial(self._group.cut, offset))

    # ------------------------------------------------------------------ when

    def _schedule_tick(self) -> None:
        delay = self._config.flush_interval_commit_log / 1000
        self._tick = self._clock.callLater(delay, self._on_tick)

    def _on_tick(self) -> None:
        self._schedule_tick()
        now = self._clock.seconds()
        thorough = now >= self._last_thorough + (
            self._config.flush_commit_log_thorough_interval / 1000
        )
        if thorough:
            self._last_thorough = now
        least_pages = 0 if thorough else self._config.flush_commit_log_least_pages
        if not self._syncing and self._is_due(least_pages):
            self._sync()

    def _is_due(self, least_pages: int) -> bool:
        """The official rule: so many pages begun since the last flush, or a file that was left unflushed."""
        written, flushed = self._log.max_offset, self._log.flushed_offset
        if written <= flushed:
            return False
        file_size = self._log.queue.file_size
        if least_pages <= 0 or written // file_size != flushed // file_size:
            return True
        return written // PAGE_BYTES - flushed // PAGE_BYTES >= least_pages

    # ------------------------------------------------------------------ syncing

    def _sync_soon(self) -> None:
        self._soon = None
        if not self._syncing:
            self._sync()

    def _sync(self) -> None:
        """Start a sync of everything that is written now."""
        target = self._log.max_offset
        if self._held or self._log.read_only is not None or target <= self._log.flushed_offset:
            return
        self._syncing = True
        timestamp_ms = self._log.last_store_timestamp_ms
        job = self._start_sync(self._log.queue.unsynced(), self._log.flushed_offset)
        job.addCallbacks(self._synced, self._sync_failed, callbackArgs=(target, timestamp_ms))
        job.addErrback(_log_bug)
        job.addBoth(self._sync_ended)

    def _start_sync(
        self, spans: Sequence[tuple[IMapping, int, int]], flushed_offset: int
    ) -> Deferred[Any]:
        kernel = self.kernel_syncs
        if kernel is not None and len(spans) == 1 and self.syncs_whole_files():
            mapping, _, end = spans[-1]
            job = None if mapping.descriptor is None else kernel.sync(mapping.descriptor, end)
            if job is not None:
                return job.addErrback(self._note_lost, flushed_offset)
        return self._pool.submit(_sync_spans, spans, flushed_offset, self.on_lost)

    def _note_lost(self, failure: Failure, flushed_offset: int) -> Failure | Deferred[Failure]:
        """As the pool does where it syncs: first the loss is noted down, then it becomes known."""
        on_lost, error = self.on_lost, failure.value
        if on_lost is None or not (isinstance(error, OSError) and _is_lost(error)):
            return failure
        return self._pool.submit(on_lost, flushed_offset).addBoth(lambda _: failure)

    def sync_ahead(self) -> None:
        """See that what is made ready ahead is synced where whole files are, and hear when that fails."""
        directories = self._log.queue.directories
        directories.syncs_ahead = self.syncs_whole_files
        directories.on_ahead_failed = self.ahead_failed

    async def lost(self, error: OSError) -> None:
        """Somebody else synced what the log holds, and that failed: as if a sync of the log's own had failed."""
        if self.on_lost is not None:
            await self._pool.submit(self.on_lost, self._log.flushed_offset)
        self._sync_failed(Failure(error))  # type: ignore[no-untyped-call]

    def ahead_failed(self, error: OSError) -> None:
        """Pool: a file of the log was synced by somebody else, and that failed. What the log wrote may be lost, so that is noted here and
        now, and the log's next sync fails, as it would when the kernel tells it."""
        if _is_lost(error):
            if self.on_lost is not None:
                self.on_lost(self._log.flushed_offset)
            self._lost_ahead = error

    def _synced(self, _: object, target: int, timestamp_ms: int) -> None:
        if self._lost_ahead is not None:
            self._sync_failed(Failure(self._lost_ahead))  # type: ignore[no-untyped-call]
            return
        self.sync_count += 1
        self._log.queue.flushed_to(target)
        # Not the greatest one there was: after the clock was set back that would promise too much.
        if timestamp_ms:
            self.flushed_timestamp_ms = timestamp_ms
        # First the device gets its next work: answering those who waited for this takes as long as a sync.
        self._go_on()
        self.answer_together(partial(self._tell, target))

    def _tell(self, target: int) -> None:
        if self.on_progress is not None:
            self.on_progress(target)
        self._group.advance(target)

    def _sync_failed(self, failure: Failure) -> None:
        error = failure.value
        if isinstance(error, OSError) and _is_lost(error):
            code = errno.errorcode.get(error.errno or 0, "?")
            self._log.refuse_writes(f"sync failed with {code}: {error}")
            self._group.fail()
        else:
            log.error("the commit log was not flushed: {error}", error=error)
            self._group.give_up()
        self._go_on()

    def _go_on(self) -> None:
        """A sync is over: the next one begins at once where somebody appended meanwhile."""
        self._syncing = False
        again, self._again = self._again, False
        if again:
            self._sync()

    def _sync_ended(self, _: object) -> None:
        if not self._syncing:
            waiting, self._when_idle = self._when_idle, []
            for waiter in waiting:
                waiter.callback(None)

    def _finish(self, tries: int = STOP_TRIES) -> Deferred[bool]:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if not self._syncing and tries > 0:
            tries -= 1
            self._sync()
        if self._syncing:
            idle: Deferred[None] = Deferred()
            self._when_idle.append(idle)
            return idle.addCallback(lambda _: self._finish(tries))
        self._group.close()
        return succeed(self._log.flushed_offset >= self._log.max_offset)


def _sync_spans(
    spans: Sequence[tuple[IMapping, int, int]],
    flushed_offset: int,
    on_lost: Callable[[int], None] | None,
) -> None:
    """Pool: force parts of mapped files to the device, oldest first."""
    try:
        for mapping, start, end in spans:
            mapping.sync(start, end)
    except OSError as error:
        # Noted down here and now: the process may not live until the reactor hears of it.
        if on_lost is not None and _is_lost(error):
            on_lost(flushed_offset)
        raise


def at_once(work: Callable[[], None]) -> None:
    """Do the work."""
    work()


def _is_lost(error: OSError) -> bool:
    """Whether a failed sync may have dropped what it should have written."""
    return error.errno not in FULL_DISK


def _log_bug(failure: Failure) -> None:
    log.failure("after a sync of the commit log", failure)
