"""Which messages have had their time? Deletes old files of the log at their hour, or when the disk wants it, and what points there.

Stands for the official ``CleanCommitLogService``, ``CleanConsumeQueueService`` and ``CorrectLogicOffsetService``. Sizes, ages and
places are looked at in the pool; the reactor only moves numbers.

Crash story: the log is cut at its beginning first, one file after another, each deletion on the device before the next; then
what points there. A crash in between leaves queues and indexes that begin earlier than the log: the next start lets the queues
begin where the log does, and the first pass deletes what is left over.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.codec.record import peek_store_timestamp
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IBlockingPool, IDisk
from txrocketmq.store.diskspace import DiskLevel, DiskState, judge, judge_share, measure
from txrocketmq.store.mapped import MappedFile
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.queuestarts import correct_queues

HOUR_MS = 3_600_000

WATCH_MS = 2000
"""How often the disks are looked at. Officially with the cleaning, every `cleanResourceInterval`."""

MANUAL_ROUNDS = 20
"""How many passes one command to delete expired files lasts, as officially."""

_HEAD_BYTES = 80


def is_hour(hours: str, now_s: float) -> bool:
    """Whether the local hour is one of `deleteWhen`: numbers with ``;`` between them. What is no number never comes."""
    hour = time.localtime(now_s).tm_hour
    return any(part.strip().isdecimal() and int(part) == hour for part in hours.split(";"))


class _Stopped(Exception):
    """The service ends: a pass that waits is given up."""


class Retention:
    """The timed cleaning of an open store, and its eye on the disks.

    :param pool: for everything that asks the file system; the one that writes queues, so that deletion and writing of a file
        come in order.
    :ivar state: what the last look at the disks found, None before the first.
    """

    log = Logger()

    def __init__(
        self,
        store: MessageStore,
        config: MessageStoreConfig,
        disk: IDisk,
        pool: IBlockingPool,
        clock: IReactorTime,
    ) -> None:
        self.state: DiskState | None = None
        self._store = store
        self._config = config
        self._disk = disk
        self._pool = pool
        self._clock = clock
        self._queue = store.commit_log.queue
        self._timers: dict[str, IDelayedCall] = {}
        self._sleeping: Deferred[None] | None = None
        self._running = False
        self._when_passed: list[Callable[[int], None]] = []
        self._stopped = False
        self._manual_rounds = 0
        # Path and first moment of a file that readers kept from being deleted.
        self._hung: tuple[str, int] | None = None
        self._retried_ms = 0
        self._followed = 0
        self._followed_ms = 0
        self._told_that_nothing_goes = False
        # From here on a nearly full disk is an answer, and not the end of what others want to write.
        self._queue.directories.keeps_room = True

    def _now_ms(self) -> int:
        return int(self._clock.seconds() * 1000)

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Begin to watch and to clean."""
        self._stopped = False
        self._watch()
        self._again("clean", self._config.clean_resource_interval, self._clean)

    def stop(self) -> Deferred[None]:
        """End it; fires when nothing is under way."""
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._wake(_Stopped())
        if not self._running:
            return succeed(None)
        ended: Deferred[None] = Deferred()
        self._when_passed.append(lambda _: ended.callback(None))
        return ended

    def _again(self, name: str, delay_ms: int, work: Callable[[], object]) -> None:
        def run() -> None:
            self._timers.pop(name, None)
            work()

        if not self._stopped:
            self._timers[name] = self._clock.callLater(max(delay_ms, 1) / 1000, run)

    def _watch(self) -> None:
        looked: Deferred[object] = Deferred.fromCoroutine(self._look())
        looked.addErrback(self._failed, "watching the disks")
        looked.addCallback(lambda _: self._again("watch", WATCH_MS, self._watch))

    def _clean(self) -> None:
        self.run().addCallback(
            lambda _: self._again("clean", self._config.clean_resource_interval, self._clean)
        )

    def _failed(self, failure: Failure, what: str) -> int:
        if not isinstance(failure.value, _Stopped):
            self.log.failure("{what} failed", failure, what=what)
        return 0

    def _sleep(self, milliseconds: int) -> Deferred[None]:
        if self._stopped:
            return Deferred.fromCoroutine(_raise_stopped())
        sleeping: Deferred[None] = Deferred()
        if milliseconds <= 0:
            return succeed(None)
        self._sleeping = sleeping
        self._again("sleep", milliseconds, self._wake)
        return sleeping

    def _wake(self, error: Exception | None = None) -> None:
        sleeping, self._sleeping = self._sleeping, None
        if sleeping is not None:
            if error is None:
                sleeping.callback(None)
            else:
                sleeping.errback(error)

    # ------------------------------------------------------------------ the disks

    async def _look(self) -> DiskState:
        """Measure, and refuse or take messages accordingly."""
        directories = self._queue.directories
        paths = directories.writable
        queue_path = f"{self._config.store_path_root_dir}/consumequeue"
        ratios = await self._pool.submit(measure, self._disk, paths, queue_path)
        state = judge(self._config, paths, queue_path, ratios)
        if self._config.replicas_per_disk_partition > 1:
            _, total = await self._pool.submit(self._disk.usage, state.path)
            state = judge_share(self._config, state, self._own_bytes(), total)
        self.state = state
        directories.full = state.full_paths
        if not self._stopped:
            if state.level is DiskLevel.FULL:
                self._store.refuse_writes("disk", state.refusal(self._config))
            else:
                self._store.accept_writes("disk")
        return state

    def _own_bytes(self) -> int:
        """The official sum of all files of log, queues and index."""
        size = len(self._queue.files) * self._queue.file_size
        for queue in self._store.queue_table.queues.values():
            units = queue.units
            rest = (units.end_index - units.first_index) * units.unit_bytes
            size += -(-rest // units.file_bytes) * units.file_bytes
        return size + sum(file.size for file in self._store.index.files)

    # ------------------------------------------------------------------ one pass

    def delete_expired(self) -> Deferred[int]:
        """An operator wants expired files gone whatever the hour: now, and in the passes to come; see `run`."""
        self._manual_rounds = MANUAL_ROUNDS
        return self.run()

    def run(self) -> Deferred[int]:
        """One pass; how many log files it deleted. One that is under way is waited for."""
        result: Deferred[int] = Deferred()
        self._when_passed.append(result.callback)
        if not self._running:
            self._running = True
            running = Deferred.fromCoroutine(self._pass())
            running.addErrback(self._failed, "cleaning the store")
            running.addCallback(self._passed)
        return result

    def _passed(self, count: int) -> None:
        self._running = False
        waiting, self._when_passed = self._when_passed, []
        for waiter in waiting:
            waiter(count)

    async def _pass(self) -> int:
        state = await self._look()
        config = self._config
        is_time = is_hour(config.delete_when, self._clock.seconds())
        count = 0
        if is_time or state.level >= DiskLevel.RECLAIM or self._manual_rounds:
            self._manual_rounds = max(0, self._manual_rounds - 1)
            count = await self._delete_files()
            self._say(count, state)
        elif self._hung is not None:
            count = await self._retry_hung()
        await self._follow_log()
        return count

    @property
    def _is_urgent(self) -> bool:
        """Whether files go whatever their age."""
        state = self.state
        return (
            self._config.clean_file_forcibly_enable
            and state is not None
            and state.level >= DiskLevel.CLEAN
        )

    def _say(self, count: int, state: DiskState) -> None:
        if count:
            self._told_that_nothing_goes = False
            self.log.info(
                "{count} log files deleted, the log begins at {offset} ({why})",
                count=count,
                offset=self._queue.min_offset,
                why=f"{state.path} was {state.ratio:.0%} used",
            )
        elif state.level >= DiskLevel.CLEAN and not self._told_that_nothing_goes:
            self._told_that_nothing_goes = True
            self.log.warn(
                "{path} is {ratio:.0%} used, and no log file can be deleted",
                path=state.path,
                ratio=state.ratio,
            )

    async def _delete_files(self) -> int:
        """Delete the oldest files while they are expired, or must go; never the last one, nor one that is not flushed."""
        queue, config = self._queue, self._config
        if self._store.rebuild is not None:
            # Queues are still derived from what would go: they would forget how far they were.
            return 0
        count, safe_to = 0, 0
        while count < max(1, config.delete_file_batch_max) and await self._may_go():
            if queue.files[0].base_offset >= safe_to:
                safe_to = await self._make_queues_safe()
                if queue.files[0].base_offset >= safe_to:
                    break
            if count:
                await self._sleep(config.delete_commit_log_files_interval)
            # Much may have happened meanwhile.
            if not await self._may_go():
                break
            if not await self._delete_first():
                break
            count += 1
            if self._is_urgent:
                # No more than is needed.
                await self._look()
        return count

    async def _may_go(self) -> bool:
        """Whether the oldest file is expired or must go for need; the one that is written never does."""
        files = self._queue.files
        return len(files) > 1 and (self._is_urgent or await self._is_expired(files[1]))

    async def _make_queues_safe(self) -> int:
        """Below the offset returned nothing is on the device in the log alone: a queue that forgot its last messages would give
        their offsets again."""
        queue = self._queue
        end = queue.files[-1].base_offset
        if queue.flushed_offset < end or not await self._store.queue_table.flush():
            return 0
        if not await self._store.compaction.catch_up():
            return 0
        return end

    async def _is_expired(self, following: MappedFile) -> bool:
        """Whether all messages before a file are older than they need to become: they were stored before its first one."""
        head = await self._pool.submit(self._disk.read_at, following.path, 0, _HEAD_BYTES)
        if len(head) < _HEAD_BYTES or following.position < _HEAD_BYTES:
            return False
        first_ms = peek_store_timestamp(head)
        limit_ms = self._now_ms() - self._config.file_reserved_time * HOUR_MS
        return 0 < first_ms < limit_ms

    async def _delete_first(self) -> bool:
        """Delete the oldest file; False while a reader needs it, and not for too long already."""
        queue, now_ms = self._queue, self._now_ms()
        file = queue.files[0]
        if queue.readers.need(file.path):
            if self._hung is None or self._hung[0] != file.path:
                self._hung = file.path, now_ms
                self._retried_ms = now_ms
                self.log.warn("{path} is deleted later: it is being read", path=file.path)
            if now_ms - self._hung[1] < self._config.destroy_maped_file_interval_forcibly:
                return False
            self.log.warn("{path} is deleted although it is being read", path=file.path)
        self._hung = None
        try:
            await queue.delete_first()
        except (OSError, StoreError) as error:
            self.log.error("{path} was not deleted: {error}", path=file.path, error=error)
            return False
        return True

    async def _retry_hung(self) -> int:
        """Try again to delete what was being read when its time had come."""
        assert self._hung is not None
        now_ms = self._now_ms()
        if now_ms - self._retried_ms <= self._config.redelete_hanged_file_interval:
            return 0
        self._retried_ms = now_ms
        if len(self._queue.files) < 2 or self._queue.files[0].path != self._hung[0]:
            self._hung = None
            return 0
        return int(await self._delete_first())

    # ------------------------------------------------------------------ what points to the log

    async def _follow_log(self) -> None:
        """Let queues and indexes begin where the log does, when it begins elsewhere or once in a while."""
        log_start, now_ms = self._queue.min_offset, self._now_ms()
        force_ms = self._config.correct_logic_min_offset_force_interval
        if log_start <= self._followed and now_ms - self._followed_ms < force_ms:
            return
        if log_start > 0:
            await correct_queues(
                self._store.queue_table, self._disk, self._pool, log_start, self._pause_after
            )
            await self._store.index.expire(log_start)
        self._followed, self._followed_ms = log_start, now_ms

    def _pause_after(self, deleted: bool) -> Deferred[None]:
        config = self._config
        return self._sleep(
            config.delete_consume_queue_files_interval
            if deleted
            else config.correct_logic_min_offset_sleep_interval
        )


async def _raise_stopped() -> None:
    raise _Stopped
