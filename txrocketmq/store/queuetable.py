"""Which queues are there, and when do their newest units reach the disk?

Stands for the official ``ConsumeQueueStore`` and its flush service. All queues share one cache of older blocks and one
budget for units kept in memory; the units of many queues are written by one job of a pool thread.

Crash story: ``logics_msg_timestamp`` of the checkpoint moves only after a flush succeeded, to the store time of the newest message
that the queues held when it began; where some of them had too little to be written, to the time from which on they hold something. That
needs times in the order of the log: after the clock was set back, only a flush of *all* queues moves it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.codec.storefiles import BATCH_UNIT_BYTES, CQ_UNIT_BYTES
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.interfaces import IBlockingPool, IDisk
from txrocketmq.model.names import is_lmq
from txrocketmq.store.batchqueue import BatchConsumeQueue
from txrocketmq.store.checkpoint import StoreCheckpoint
from txrocketmq.store.consumequeue import ConsumeQueue
from txrocketmq.store.extension import ExtendedQueue, Extension
from txrocketmq.store.filenames import is_queue_name
from txrocketmq.store.unitlog import BlockCache, FileWrite, UnitLog, write_units

AnyQueue = ConsumeQueue | BatchConsumeQueue

EXTENSION_KIND = "consumequeue_ext"
KINDS = ("consumequeue", "batchconsumequeue", EXTENSION_KIND)
"""Directories of queues within a store."""

RETAINED_BYTES = 16 * 1024 * 1024
"""Budget for written units that stay in memory, shared by all queues that hold any."""

MAX_RETAINED_UNITS = 4096
"""Of one queue; 80 KiB."""

MAX_UNWRITTEN_BYTES = 16 * 1024 * 1024
"""When more waits in memory, all queues are written however little each of them has."""

QUEUES_AT_ONCE = 256
"""So many are looked at in one turn of the reactor at a start: some hundredths of a second."""

_PAGE_BYTES = 4096


def give_way() -> None:
    """A pool's job: who waits for it lets the reactor have a turn."""


class Rows(Protocol):
    """See `txrocketmq.store.nextoffsets`."""

    def covers(self, key: tuple[str, int]) -> bool:
        """Whether a queue is derived again."""

    def row_of(self, key: tuple[str, int], batch: bool) -> AnyQueue | None:
        """What takes the newest records of such a queue; None where it is not one."""


class QueueTable:
    """All consume queues of a store.

    :ivar queues: by ``(topic, queue id)``.
    :ivar torn: queues that end where one of their files is missing.
    :ivar log_start: the first byte of the log when they are loaded.
    :ivar light_count: how many of them are light queues.
    :ivar dirty: queues with units that are not written yet; each says so itself too (``units.dirty``).
    :ivar failure: why the last flush failed, None when it did not.
    :ivar ahead: the newest units of queues that are derived again (`txrocketmq.store.nextoffsets`): these take what is appended.
    :ivar rows: tells which queues are derived again, and makes rows of `ahead`; None when none are.
    :ivar rebuilt_to_ms: while queues are derived again: store time that this has reached, beyond which the checkpoint may not go.
    """

    log = Logger()

    def __init__(
        self,
        config: MessageStoreConfig,
        disk: IDisk,
        pool: IBlockingPool,
        checkpoint: StoreCheckpoint,
    ) -> None:
        self._config = config
        self._disk = disk
        self._pool = pool
        self._checkpoint = checkpoint
        self._busy = False
        self._after: list[Deferred[None]] = []
        self._resident: OrderedDict[UnitLog, int] = OrderedDict()
        self._resident_bytes = 0
        self._last_thorough_ms = 0
        self.queues: dict[tuple[str, int], AnyQueue] = {}
        self.ahead: dict[tuple[str, int], AnyQueue] = {}
        self.rows: Rows | None = None
        self.torn: list[AnyQueue] = []
        self.log_start = 0
        self.light_count = 0
        self.dirty: list[AnyQueue] = []
        self.cache = BlockCache(disk)
        self.failure: OSError | None = None
        self.newest_timestamp_ms = 0
        self._newest_at_flush_ms = 0
        self._went_back = False
        self.rebuilt_to_ms: int | None = None

    # ------------------------------------------------------------------ the table

    def _directory(self, kind: str) -> str:
        return f"{self._config.store_path_root_dir}/{kind}"

    def _new_queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        config, place = self._config, f"{topic}/{queue_id}"
        size = -(-config.mapped_file_size_consume_queue // CQ_UNIT_BYTES) * CQ_UNIT_BYTES
        directory = f"{self._directory('consumequeue')}/{place}"
        if not config.enable_consume_queue_ext or is_lmq(topic):
            return ConsumeQueue(topic, queue_id, directory, size)
        return ExtendedQueue(
            topic,
            queue_id,
            directory,
            size,
            Extension(
                f"{self._directory(EXTENSION_KIND)}/{place}",
                config.mapped_file_size_consume_queue_ext,
            ),
        )

    def _new_batch_queue(self, topic: str, queue_id: int) -> BatchConsumeQueue:
        size = self._config.mapper_file_size_batch_consume_queue
        return BatchConsumeQueue(
            topic,
            queue_id,
            f"{self._directory('batchconsumequeue')}/{topic}/{queue_id}",
            -(-size // BATCH_UNIT_BYTES) * BATCH_UNIT_BYTES,
        )

    def find(self, topic: str, queue_id: int) -> AnyQueue | None:
        """A queue, None when it never had a message."""
        return self.queues.get((topic, queue_id))

    def appending(self, topic: str, queue_id: int) -> AnyQueue | None:
        """What takes the next message of a queue and knows its end; None when it never had one."""
        key = topic, queue_id
        return self.ahead.get(key) or self.queues.get(key)

    def create(self, topic: str, queue_id: int, *, batch: bool = False) -> AnyQueue:
        """The queue, made when there is none yet (its files appear with the first flush)."""
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            make = self._new_batch_queue if batch else self._new_queue
            queue = self.queues[topic, queue_id] = make(topic, queue_id)
            self.light_count += is_lmq(topic)
        return queue

    def taking(self, topic: str, queue_id: int, *, batch: bool = False) -> AnyQueue:
        """What takes a record that is at the log's end already: as `create`, but a row where the queue is derived again."""
        row = None if self.rows is None else self.rows.row_of((topic, queue_id), batch)
        return self.create(topic, queue_id, batch=batch) if row is None else row

    def replaced(self, topic: str, queue_id: int, *, batch: bool) -> AnyQueue:
        """A new queue of the other kind in the place of one whose topic was made anew (start-up and replicas only: blocks)."""
        old = self._forget_queue(topic, queue_id)
        for directory in () if old is None else _directories(old):
            self._disk.rmtree(directory)
        return self.create(topic, queue_id, batch=batch)

    def load(self) -> None:
        """Open all queues that have a directory (start-up only).

        :raises StoreError: a file's length is not the configured one.
        """
        for _ in self.loading():
            pass

    def loading(self) -> Iterator[None]:
        """As `load`, in pieces: something else may be done after each."""
        opened = 0
        for kind, make in (
            ("consumequeue", self._new_queue),
            ("batchconsumequeue", self._new_batch_queue),
        ):
            root = self._directory(kind)
            for topic in self._disk.listdir(root):
                for name in self._disk.listdir(f"{root}/{topic}"):
                    if not is_queue_name(name):
                        continue
                    queue = make(topic, int(name))
                    queue.load(self._disk, self.cache, self.log_start)
                    self.queues[topic, int(name)] = queue
                    if queue.units.is_torn:
                        self.torn.append(queue)
                    self.light_count += is_lmq(topic)
                    opened += 1
                    if not opened % QUEUES_AT_ONCE:
                        yield
        self.log.info("opened {count} consume queues", count=len(self.queues))

    def max_physical_offset(self) -> int:
        """End of the newest record that any queue points at; -1 when there is none."""
        return max((queue.max_physical_offset for queue in self.queues.values()), default=-1)

    async def in_turns(
        self, work: Callable[[AnyQueue], object], pool: IBlockingPool, check: Callable[[], object]
    ) -> int:
        """Do something with every queue, a few of them in each turn of the reactor: there may be 80,000. How many said yes.

        :param check: called before each turn; raises where there is to be none.
        """
        found = 0
        queues = iter(list(self.queues.values()))
        while batch := list(islice(queues, QUEUES_AT_ONCE)):
            check()
            found += sum([bool(work(queue)) for queue in batch])
            await pool.submit(give_way)
        return found

    def correct_min(self, min_physical_offset: int) -> None:
        """Let all queues begin with messages that the log still holds."""
        for queue in self.queues.values():
            queue.correct_min(self.cache, min_physical_offset)

    def delete_topics(self, topics: Iterable[str]) -> int:
        """Forget the queues of topics and delete their files in the pool; how many topics had any."""
        doomed = set(topics)
        gone = {key: queue for key, queue in self.queues.items() if key[0] in doomed}
        for key, queue in gone.items():
            del self.queues[key]
            self.light_count -= is_lmq(key[0])
            for directory in _directories(queue):
                self.cache.forget(directory)
            self._resident_bytes -= self._resident.pop(queue.units, 0)
        self.dirty = [queue for queue in self.dirty if queue.topic not in doomed]
        had_queues = {topic for topic, _ in gone}
        for topic in had_queues:
            for kind in KINDS:
                self._pool.submit(self._disk.rmtree, f"{self._directory(kind)}/{topic}").addErrback(
                    self._deletion_failed, topic
                )
        return len(had_queues)

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Forget one queue and delete its files in the pool; nothing when there is none."""
        queue = self._forget_queue(topic, queue_id)
        for directory in () if queue is None else _directories(queue):
            self._pool.submit(self._disk.rmtree, directory).addErrback(self._deletion_failed, topic)

    def _forget_queue(self, topic: str, queue_id: int) -> AnyQueue | None:
        queue = self.queues.pop((topic, queue_id), None)
        if queue is not None:
            self.light_count -= is_lmq(topic)
            for directory in _directories(queue):
                self.cache.forget(directory)
            self._resident_bytes -= self._resident.pop(queue.units, 0)
            self.dirty = [other for other in self.dirty if other is not queue]
        return queue

    def _deletion_failed(self, failure: Failure, topic: str) -> None:
        self.log.error(
            "files of topic {topic} were not deleted: {error}", topic=topic, error=failure.value
        )

    def destroy(self) -> None:
        """Delete all queues and their files (start-up only: the log is gone)."""
        self.queues.clear()
        self.light_count = 0
        self.dirty.clear()
        for kind in KINDS:
            self._disk.rmtree(self._directory(kind))

    # ------------------------------------------------------------------ flush

    def mark_dirty(self, queue: AnyQueue) -> None:
        """Remember that a queue got units."""
        if not queue.units.dirty:
            queue.units.dirty = True
            queue.units.dirty_since_ms = self.newest_timestamp_ms
            self.dirty.append(queue)

    def flush_due(self, now_ms: int) -> Deferred[bool]:
        """The timed flush: queues with enough pages waiting; now and then, all. See `flush`."""
        config = self._config
        least = config.flush_consume_queue_least_pages * _PAGE_BYTES
        thorough = now_ms >= self._last_thorough_ms + config.flush_consume_queue_thorough_interval
        # What failed is tried again at once: sends are refused until it succeeds.
        if thorough or self.failure is not None or self._unwritten_bytes() > MAX_UNWRITTEN_BYTES:
            self._last_thorough_ms = now_ms
            least = 0
        return self.flush(least)

    def _unwritten_bytes(self) -> int:
        return sum(queue.units.unwritten_bytes for queue in self.dirty)

    def flush(self, least_bytes: int = 0, *, sync: bool = True) -> Deferred[bool]:
        """Write the queues that have at least this much waiting, in the pool. True when all of that reached the device.

        One flush runs at a time; a call meanwhile flushes again after it.

        :param sync: False for a start that syncs the whole file system before the checkpoint is written.
        """
        if self._busy:
            again: Deferred[None] = Deferred()
            self._after.append(again)
            return again.addCallback(lambda _: self.flush(least_bytes, sync=sync))
        written: list[tuple[AnyQueue, int, int]] = []
        kept: list[AnyQueue] = []
        writes: list[FileWrite] = []
        for queue in self.dirty:
            units = queue.units
            if not units.unwritten_bytes:
                units.dirty = False
                continue
            if units.unwritten_bytes < least_bytes:
                kept.append(queue)
                continue
            if isinstance(queue, ExtendedQueue):
                writes.extend(queue.extension.to_write())
            writes.extend(units.unwritten())
            written.append((queue, units.end_index, units.dirty_since_ms))
            units.dirty = False
        timestamp_ms = self._complete_to_ms(kept)
        self.dirty = kept
        if not writes:
            if not kept:
                # What could not be written may have been cut off.
                self._can_write()
            self._settle(timestamp_ms)
            return succeed(True)
        self._busy = True
        job: Deferred[bool] = self._pool.submit(write_units, self._disk, writes, sync)
        job.addCallback(self._flushed, written, timestamp_ms)
        job.addErrback(self._flush_failed, written)
        job.addBoth(self._flush_over)
        return job

    def _flush_over(self, outcome: object) -> bool:
        self._busy = False
        waiting, self._after = self._after, []
        for waiter in waiting:
            waiter.callback(None)
        return outcome is True

    def _flushed(
        self, _: object, written: list[tuple[AnyQueue, int, int]], timestamp_ms: int
    ) -> bool:
        for queue, end, _since in written:
            units = queue.units
            if units.end_index >= end > units.written_index:
                units.mark_written(end, MAX_RETAINED_UNITS)
                self._keep(units)
            if isinstance(queue, ExtendedQueue):
                queue.extension.flushed()
        while self._resident_bytes > RETAINED_BYTES and len(self._resident) > 1:
            units, size = self._resident.popitem(last=False)
            self._resident_bytes -= size
            units.mark_written(units.written_index, 0)
        self._can_write()
        self._settle(timestamp_ms)
        return True

    def _can_write(self) -> None:
        if self.failure is not None:
            self.failure = None
            self.log.info("consume queues can be written again")

    def _keep(self, units: UnitLog) -> None:
        """Count what a queue holds in memory; the one written last is dropped last."""
        size = len(units.tail)
        self._resident_bytes += size - self._resident.pop(units, 0)
        self._resident[units] = size

    def _flush_failed(self, failure: Failure, written: list[tuple[AnyQueue, int, int]]) -> bool:
        error = failure.value
        if not isinstance(error, OSError):
            self.log.failure("consume queues cannot be written", failure)
            error = OSError(str(error))
        elif self.failure is None:
            self.log.error("consume queues cannot be written: {error}", error=error)
        self.failure = error
        # They stay in memory and are tried again with the next flush.
        for queue, _, since_ms in written:
            if self.queues.get((queue.topic, queue.queue_id)) is queue:
                self.mark_dirty(queue)
                queue.units.dirty_since_ms = since_ms
        return False

    def _complete_to_ms(self, kept: list[AnyQueue]) -> int:
        """Up to which store time all queues will be on the device when this flush is done; 0 when that cannot be said.

        :param kept: queues that it leaves out.
        """
        newest_ms = self.newest_timestamp_ms
        if newest_ms < self._newest_at_flush_ms:
            self._went_back = True
        self._newest_at_flush_ms = newest_ms
        if not kept:
            self._went_back = False
        elif self._went_back:
            return 0
        limits = [queue.units.dirty_since_ms for queue in kept]
        if self.rebuilt_to_ms is not None:
            limits.append(self.rebuilt_to_ms)
        return min([newest_ms, *limits])

    def _settle(self, timestamp_ms: int) -> None:
        # Not the greatest one there was: after the clock was set back that would promise too much.
        if timestamp_ms:
            self._checkpoint.logics_msg_timestamp_ms = timestamp_ms

    # ------------------------------------------------------------------ looking at all queues

    def topics(self) -> Iterator[str]:
        """Names of topics that have a queue, each once."""
        return iter(dict.fromkeys(topic for topic, _ in self.queues))


def _directories(queue: AnyQueue) -> list[str]:
    """Where a queue has its files."""
    found = [queue.units.directory]
    if isinstance(queue, ExtendedQueue):
        found.append(queue.extension.units.directory)
    return found
