"""The store as a whole: who is called in which order when a message comes, at the start and at the stop.

Stands for the official ``DefaultMessageStore``. The parts are in the modules next to this one; this one owns their life::

    <storePathRootDir>/lock               held from `load` to the end of `stop`
                       abort              there from `load` to the end of an orderly `stop`
                       checkpoint         flush times
                       commitlog/         all messages (storePathCommitLog)
                       consumequeue/<topic>/<queueId>/, batchconsumequeue/..., index/     derived

Everything runs in the reactor thread; pools get bytes, numbers and paths.

Crash story: see `txrocketmq.store.recover`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import StoreError
from txrocketmq.interfaces import (
    IBlockingPool,
    IDisk,
    IKernelSyncs,
    IMessageFilter,
    IMessageStore,
)
from txrocketmq.model.message import MessageExt, MessageRecord
from txrocketmq.store.abortfile import AbortFile
from txrocketmq.store.catchup import IndexCatchUp, QueueRebuild
from txrocketmq.store.checkpoint import StoreCheckpoint
from txrocketmq.store.commitlog import CommitLog
from txrocketmq.store.compaction.compaction_store import CompactionStore
from txrocketmq.store.compaction.queue import Pools
from txrocketmq.store.flush import LogFlusher
from txrocketmq.store.index import IndexService
from txrocketmq.store.logdirs import LogDirectories, split_paths
from txrocketmq.store.mapped import CHUNK_BYTES, WINDOW_BYTES, MappedFileQueue
from txrocketmq.store.putting import MessagePutter, PutOutcome, TopicAttributes
from txrocketmq.store.queuetable import QueueTable, give_way
from txrocketmq.store.reader import StoreReader, waits
from txrocketmq.store.recover import Recoverer, Recovery, RecoveryLimits
from txrocketmq.store.replicalog import ReplicaLog
from txrocketmq.store.replicating import ReplicationControl
from txrocketmq.store.reput import ArrivalListener, Awaits, BitMaps, Reput, WholeListener
from txrocketmq.store.results import (
    GetMessageResult,
    QueryMessageResult,
)

CHECKPOINT_EVERY_MS = 1000


def machine_memory_bytes() -> int:
    """The machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def log_directories(config: MessageStoreConfig, disk: IDisk) -> LogDirectories:
    """Where the commit log lies."""
    paths = split_paths(config.store_path_commit_log) or [f"{config.store_path_root_dir}/commitlog"]
    return LogDirectories(disk, paths, split_paths(config.read_only_commit_log_store_paths))


@implementer(IMessageStore)
class MessageStore(ReplicationControl):
    """Messages on disk, in the official layout.

    :param pool: for everything that may wait for others: blocks ahead, queue and index writes, deletion.
    :param flush_pool: for syncs of the commit log alone, so that nothing delays a waiting sender.
    :param read_pool: for cold reads.
    :param kernel_syncs: for syncs that senders wait for; None: `flush_pool` does them, too.
    :param compaction_pool: for runs that compact, which may take minutes.
    :param window_bytes: how far ahead of the newest message the log gets its blocks.
    :param limits: how much is recovered before the store opens.
    :param is_controlled: a controller gives the broker's role: a start shows no more than what was shown, or agreed on, before.
    :ivar recovery: what the last `load` found.
    :ivar disk: the disk.
    :ivar derived_pool: for queues and index.
    :ivar is_cutting: the log is being cut (`txrocketmq.store.truncation`): nothing is read or appended.
    :ivar rebuild: queues that are derived again while the store serves; None when all are there.
    """

    log = Logger()

    def __init__(
        self,
        config: MessageStoreConfig,
        disk: IDisk,
        clock: IReactorTime,
        *,
        pool: IBlockingPool,
        flush_pool: IBlockingPool,
        read_pool: IBlockingPool,
        queue_pool: IBlockingPool | None = None,
        compaction_pool: IBlockingPool | None = None,
        kernel_syncs: IKernelSyncs | None = None,
        memory_bytes: int | None = None,
        window_bytes: int = WINDOW_BYTES,
        limits: RecoveryLimits | None = None,
        is_controlled: bool = False,
    ) -> None:
        root = config.store_path_root_dir
        derived_pool = self.derived_pool = queue_pool or pool
        self._config, self._clock = config, clock
        self.disk = disk
        self._read_pool = read_pool
        self._limits, self._is_controlled = limits or RecoveryLimits(), is_controlled
        self._loading: Deferred[None] | None = None
        self._recoverer: Recoverer | None = None
        self.rebuild: QueueRebuild | None = None
        self._locks: list[Any] = []
        self._serving = False
        self.is_cutting = False
        self._timers: dict[str, IDelayedCall] = {}
        self._abort = AbortFile(disk, root)
        self.recovery: Recovery | None = None
        self.checkpoint = StoreCheckpoint(disk, f"{root}/checkpoint")
        self.commit_log = CommitLog(
            MappedFileQueue(
                disk,
                log_directories(config, disk),
                config.mapped_file_size_commit_log,
                pool,
                # A whole file ahead is what the official broker makes ready.
                window_bytes=(
                    config.mapped_file_size_commit_log
                    if config.warm_maped_file_enable
                    else window_bytes
                ),
                chunk_bytes=min(CHUNK_BYTES, window_bytes // 4),
            ),
            clock,
            config,
        )
        self.flusher = LogFlusher(self.commit_log, flush_pool, clock, config, kernel_syncs)
        self.queue_table = QueueTable(config, disk, derived_pool, self.checkpoint)
        self.index = IndexService(config, disk, derived_pool, self.checkpoint, self._now_ms)
        self.reput = Reput(config, disk, self.queue_table, self.index)
        if memory_bytes is None:
            memory_bytes = machine_memory_bytes()
        self.reader = StoreReader(
            config, disk, read_pool, self.commit_log, self.queue_table, self.index, memory_bytes
        )
        self.replica_log = ReplicaLog(
            self.commit_log, self.queue_table, self.reput, self.index, disk, read_pool
        )
        self.putter = MessagePutter(
            config, self.commit_log, self.queue_table, self.reput, self.flusher
        )
        pools = Pools(derived_pool, read_pool, compaction_pool or derived_pool)
        self.compaction = CompactionStore(self, config, disk, clock, pools)
        self.flusher.on_progress = self._log_flushed
        self.flusher.on_lost = self._abort.mark_unsafe
        self.flusher.sync_ahead()

    def _now_ms(self) -> int:
        return int(self._clock.seconds() * 1000)

    # ------------------------------------------------------------------ start and stop

    def load(self) -> Deferred[None]:
        """See `IStoreLifecycle`. What needs no more than the log's end is served then; `rebuild` and the index may go on."""
        loading = self._loading = Deferred.fromCoroutine(self._load())
        return loading.addCallbacks(self._loaded, self._not_loaded)

    def _loaded(self, _: object) -> None:
        self._loading = None

    def _not_loaded(self, failure: Failure) -> None:
        self._loading = None
        self._release()
        if isinstance(failure.value, OSError):
            raise StoreError(f"the store cannot be opened: {failure.value}") from failure.value
        failure.raiseException()

    async def _load(self) -> None:
        root, disk, pool = self._config.store_path_root_dir, self.disk, self._read_pool
        self._locks.append(disk.lock(f"{root}/lock"))
        clean = not self._abort.exists()
        unsafe_offset = self._abort.unsafe_offset()
        # Before anything is changed: what recovery does may be cut short as well.
        self._abort.make()
        disk.makedirs(f"{root}/consumequeue")
        for path in self.commit_log.queue.directories.writable:
            disk.makedirs(path)
            self._locks.append(disk.lock_directory(path))
        self.commit_log.queue.load()
        self.checkpoint.load()
        self._recoverer = Recoverer(
            self._config,
            disk,
            pool,
            self.commit_log,
            self.queue_table,
            self.index,
            self.checkpoint,
            self.reput,
            self._now_ms,
            self._limits,
        )
        self.queue_table.log_start = self.commit_log.min_offset
        for _ in self.queue_table.loading():
            await pool.submit(give_way)
            self._recoverer.check_cancelled()
        if self._is_controlled:
            # What is in a queue was shown, and so agreed on.
            self.reput.confirm_offset = max(
                self.checkpoint.confirm_physical_offset, self.queue_table.max_physical_offset(), 0
            )
        self.index.load(clean)
        self.index.drop_foreign(self.commit_log.min_offset, self.commit_log.time_at)
        self.reput.index_is_current = False
        self.recovery = recovery = await self._recoverer.run(clean)
        # After an orderly stop all is on the device; after any other what was read or changed may not be. The same goes for the
        # directories of a store that is new: an earlier start may have ended between making and syncing them.
        unsynced_offset = self.commit_log.max_offset if clean else recovery.start_offset
        try:
            whole = clean and not recovery.has_cut and not self.queue_table.torn
            if not whole or not self.commit_log.queue.files:
                await pool.submit(disk.sync_all, root)
            self.commit_log.queue.open_for_append(unsynced_offset, unsafe_offset)
        except OSError:
            self._abort.mark_unsafe(min(unsynced_offset, unsafe_offset))
            raise
        self._abort.note_process()
        index_is_behind = await self._complete_index()
        self._note_recovered()
        self.index.recovered()
        self._serving = self.putter.is_open = True
        if recovery.lost is not None:
            self._begin_rebuild(recovery)
        if index_is_behind:
            self.index_catch_up.start()

    def _make_catch_up(self) -> IndexCatchUp:
        self.index_catch_up = IndexCatchUp(
            self.commit_log, self.disk, self._read_pool, self._clock, self.index, self.reput
        )
        return self.index_catch_up

    async def _complete_index(self) -> bool:
        """Index what the index lacks, if that is not much; whether it is."""
        is_much = self._make_catch_up().bytes_left > self._limits.index_bytes
        return is_much or not await self.index_catch_up.run_first()

    def _begin_rebuild(self, recovery: Recovery) -> None:
        assert recovery.lost is not None
        assert recovery.known is not None
        rebuild = self.rebuild = self.putter.rebuild = QueueRebuild(
            self.commit_log,
            self.disk,
            self._read_pool,
            self._clock,
            self.queue_table,
            self.reput,
            recovery.lost.begin,
            recovery.known,
        )
        rebuild.when_done = self._rebuilt
        rebuild.when_damaged = lambda fault: self.refuse_writes("damage", fault)
        self.queue_table.rows = recovery.known
        rebuild.start()

    def _rebuilt(self) -> None:
        self.rebuild = self.putter.rebuild = self.queue_table.rows = None

    def _note_recovered(self) -> None:
        """Let the checkpoint say what recovery found, all of which is synced now. No time in it is later than now: messages that
        come after the clock was set back would else count as being on the device."""
        now_ms, checkpoint, table = self._now_ms(), self.checkpoint, self.queue_table
        newest_ms = table.newest_timestamp_ms = min(table.newest_timestamp_ms, now_ms)
        self.flusher.flushed_timestamp_ms = newest_ms
        checkpoint.physic_msg_timestamp_ms = newest_ms or min(
            checkpoint.physic_msg_timestamp_ms, now_ms
        )
        checkpoint.logics_msg_timestamp_ms = min(checkpoint.logics_msg_timestamp_ms, now_ms)
        checkpoint.save_now()

    def restart_index(self) -> None:
        """The log was cut: index again what the index lost with its last files, and follow the log then."""
        self.index.resume_at_end()
        self.compaction.recheck()
        self.reput.index_is_current = False
        self._make_catch_up().start()

    def _release(self) -> None:
        while self._locks:
            self._locks.pop().release()

    def start(self) -> None:
        """See `IStoreLifecycle`."""
        self.flusher.start()
        self._every("queues", self._flush_queues, self._queue_interval)
        self.compaction.start()
        self._every("checkpoint", self._save_checkpoint, lambda: CHECKPOINT_EVERY_MS)

    def _queue_interval(self) -> int:
        return self._config.flush_interval_consume_queue

    def _every(
        self, name: str, work: Callable[[], Deferred[Any]], interval_ms: Callable[[], int]
    ) -> None:
        """Do something at intervals, never twice at a time."""

        def run() -> None:
            self._timers.pop(name, None)
            work().addErrback(self._timed_work_failed, name).addBoth(again)

        def again(_: object) -> None:
            if self._serving:
                self._timers[name] = self._clock.callLater(interval_ms() / 1000, run)

        again(None)

    def _timed_work_failed(self, failure: Failure, name: str) -> None:
        self.log.failure("timed work on {name} failed", failure, name=name)

    def _flush_queues(self) -> Deferred[bool]:
        if self.is_cutting:
            return succeed(True)
        # The way to try again where blocks could not be had.
        if self.commit_log.queue.failure is not None:
            self.commit_log.queue.prepare()
        self.index.retry()
        return self.queue_table.flush_due(self._now_ms()).addCallback(self._queues_flushed)

    def _queues_flushed(self, done: bool) -> bool:
        failure = self.queue_table.failure
        if failure is not None:
            self.refuse_writes("queues", f"consume queues cannot be written: {failure}")
        else:
            self.accept_writes("queues")
        return done

    def _save_checkpoint(self) -> Deferred[None]:
        if self.flusher.flushed_timestamp_ms:
            self.checkpoint.physic_msg_timestamp_ms = self.flusher.flushed_timestamp_ms
        return self.checkpoint.save(self.derived_pool)

    def stop(self) -> Deferred[None]:
        """See `IStoreLifecycle`. Whatever fails is logged; the abort file then stays, and the next start recovers."""
        if self._loading is not None:
            stopped: Deferred[None] = Deferred()
            self._loading.addBoth(lambda _: stopped.callback(None))
            if self._recoverer is not None:
                self._recoverer.cancel()
            return stopped.addCallback(lambda _: self.stop())
        if not self._locks:
            return succeed(None)
        self._serving = self.putter.is_open = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.give_up_cut()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        try:
            await self.index_catch_up.stop()
            if self.rebuild is not None:
                await self.rebuild.stop()
            clean = await self.flusher.stop()
            if clean:
                self.reput.flushed(self.commit_log.max_offset)
            await self.compaction.stop()
            clean = await self.queue_table.flush() and clean
            clean = await self.index.stop() and clean
            await self._save_checkpoint()
            clean = await self.commit_log.queue.close() and clean
            if (
                clean
                and self.commit_log.read_only is None
                and not self.reput.waiting
                and self.rebuild is None
            ):
                self._abort.remove()
            else:
                self.log.warn("the store is not in order: the next start will recover it")
        finally:
            self._release()

    def add_arrival_listener(self, listener: ArrivalListener, awaits: Awaits = None) -> None:
        """See `IStoreLifecycle`."""
        self.reput.listen(listener, awaits)

    def add_whole_listener(self, listener: WholeListener) -> None:
        """See `IStoreLifecycle`."""
        self.reput.whole_listeners.append(listener)

    def use_filter_bits(self, make: BitMaps) -> None:
        """See `IStoreLifecycle`."""
        if self._config.enable_consume_queue_ext:
            self.reput.bit_maps = make

    def use_topic_attributes(self, look_up: TopicAttributes) -> None:
        """See `IStoreLifecycle`."""
        self.putter.topic_attributes = look_up

    # ------------------------------------------------------------------ whether writes are taken

    def refuse_writes(self, cause: str, reason: str) -> None:
        """Answer SERVICE_NOT_AVAILABLE to all sends until `accept_writes` is called with the same cause."""
        self.putter.refusals.add(cause, reason)

    def accept_writes(self, cause: str) -> None:
        """The cause of a refusal is gone."""
        self.putter.refusals.remove(cause)

    @property
    def write_refusal(self) -> str | None:
        """Why no messages are taken, None when they are."""
        for reason in self.putter.refusals.reasons.values():
            return reason
        if self.commit_log.read_only is not None:
            return self.commit_log.read_only
        failure = self.commit_log.queue.failure
        if failure is not None:
            return f"the commit log gets no blocks: {failure}"
        if not self._serving:
            return "the store is not open"
        return None

    # ------------------------------------------------------------------ append

    def put_message(self, record: MessageRecord) -> PutOutcome:
        """See `IMessageAppender`."""
        return self.putter.put_message(record)

    def put_batch(self, record: MessageRecord) -> PutOutcome:
        """See `IMessageAppender`."""
        return self.putter.put_batch(record)

    def _log_flushed(self, offset: int) -> None:
        if self.reput.waiting:
            self.reput.flushed(offset)

    def append_raw(self, offset: int, data: bytes | memoryview) -> bool:
        """See `IMessageAppender`."""
        if self.is_cutting:
            return False
        self._check_open()
        taken = self.replica_log.append(offset, data)
        if taken and self.putter.replicas is not None:
            self.putter.replicas.appended()
        return taken

    # ------------------------------------------------------------------ read

    def _check_open(self) -> None:
        if not self._serving:
            raise StoreError("the store is not open")
        if self.is_cutting:
            raise StoreError("the log is being cut to what the master has")

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        max_bytes: int,
        message_filter: IMessageFilter | None,
    ) -> GetMessageResult | Deferred[GetMessageResult]:
        """See `IMessageReader`.

        :raises StoreError: the store is not open.
        """
        self._check_open()
        limits = max_messages, max_bytes, message_filter
        if not self.compaction.is_compacted(topic):
            return self._get_plain(topic, queue_id, offset, *limits)

        def plain(position: int) -> GetMessageResult | Deferred[GetMessageResult]:
            return self._get_plain(topic, queue_id, position, *limits)

        return self.compaction.get_message(topic, queue_id, offset, *limits, plain)

    def _get_plain(
        self, topic: str, queue_id: int, offset: int, *limits: Any
    ) -> GetMessageResult | Deferred[GetMessageResult]:
        if self.rebuild is None or not self.rebuild.covers(topic, queue_id):
            return self.reader.get_message(topic, queue_id, offset, *limits)
        row = self.queue_table.ahead.get((topic, queue_id))
        if row is None:
            return waits(offset)
        return self.reader.get_ahead(row, topic, queue_id, offset, *limits)

    def look_message(self, physical_offset: int) -> MessageExt | None:
        """See `IMessageReader`."""
        return self.reader.look_message(physical_offset)

    def look_message_bytes(self, physical_offset: int, size: int) -> bytes | None:
        """See `IMessageReader`."""
        return self.reader.look_message_bytes(physical_offset, size)

    def query_message(
        self,
        topic: str,
        key: str,
        max_count: int,
        begin_ms: int,
        end_ms: int,
        index_type: str | None = None,
    ) -> QueryMessageResult:
        """See `IMessageReader`."""
        return self.reader.query_message(topic, key, max_count, begin_ms, end_ms, index_type)

    # ------------------------------------------------------------------ queues

    def min_offset(self, topic: str, queue_id: int) -> int:
        """See `IQueueOffsets`."""
        queue = self.queue_table.find(topic, queue_id)
        return 0 if queue is None else queue.min_index

    def max_offset(self, topic: str, queue_id: int) -> int:
        """See `IQueueOffsets`."""
        queue = self.queue_table.appending(topic, queue_id)
        return 0 if queue is None else queue.max_index

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool) -> int:
        """See `IQueueOffsets`."""
        return self.reader.offset_by_time(topic, queue_id, timestamp_ms, upper)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """See `IQueueOffsets`."""
        return self.reader.store_time(topic, queue_id, offset)

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """See `IQueueOffsets`."""
        return self.reader.earliest_store_time(topic, queue_id)

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        """See `IQueueOffsets`."""
        return self.reader.is_in_memory(topic, queue_id, offset)

    def is_in_cold_area(self, topic: str, queue_id: int, offset: int) -> bool:
        """See `IQueueOffsets`."""
        return self.reader.is_in_cold_area(topic, queue_id, offset)

    def recovering(self, topic: str, queue_id: int) -> str | None:
        """See `IQueueOffsets`."""
        if self.rebuild is None or self.rebuild.knows(topic, queue_id):
            return None
        return self.rebuild.reason()

    def incomplete(self, topic: str, queue_id: int) -> str | None:
        """See `IQueueOffsets`."""
        if self.rebuild is None or not self.rebuild.covers(topic, queue_id):
            return None
        return self.rebuild.reason(known=self.rebuild.knows(topic, queue_id))

    def is_readable(self, topic: str, queue_id: int, offset: int) -> bool:
        """See `IQueueOffsets`."""
        if self.rebuild is None or not self.rebuild.covers(topic, queue_id):
            return self.max_offset(topic, queue_id) > offset
        row = self.queue_table.ahead.get((topic, queue_id))
        return row is not None and row.min_index <= offset < row.max_index

    def recovery_figures(self) -> dict[str, str]:
        """How far walks are that go on beside everything else; empty when there are none."""
        found = {}
        if self.rebuild is not None and self.rebuild.progress is not None:
            found["recoveryOfQueues"] = self.rebuild.fault or self.rebuild.progress.text()
        if self.index_catch_up.is_running and self.index_catch_up.progress is not None:
            found["recoveryOfIndex"] = self.index_catch_up.progress.text()
        return found

    def queues(self) -> list[tuple[str, int]]:
        """See `IQueueOffsets`."""
        return list({**self.queue_table.queues, **self.queue_table.ahead})

    def delete_topics(self, topics: Iterable[str]) -> int:
        """See `IQueueOffsets`. The messages stay in the log until it is cleaned."""
        doomed = frozenset(topics)
        self.reput.forget(doomed)
        self.compaction.delete_topics(doomed)
        if self.rebuild is not None:
            self.rebuild.forget(doomed)
        return self.queue_table.delete_topics(doomed)

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log whose messages nobody can read yet."""
        return max(0, self.commit_log.max_offset - self.reput.offset)
