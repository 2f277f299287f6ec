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

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocketmq.codec.record import split_batch
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import RecordError, StoreError
from txrocketmq.interfaces import IBlockingPool, IDisk, IMessageFilter, IMessageStore
from txrocketmq.model.flags import INNER_BATCH_FLAG, transaction_type
from txrocketmq.model.message import MessageExt, MessageRecord
from txrocketmq.model.names import RETRY_GROUP_TOPIC_PREFIX
from txrocketmq.store.checkpoint import StoreCheckpoint
from txrocketmq.store.commitlog import CommitLog
from txrocketmq.store.flush import LogFlusher
from txrocketmq.store.index import IndexService
from txrocketmq.store.mapped import CHUNK_BYTES, FULL_DISK, WINDOW_BYTES, MappedFileQueue
from txrocketmq.store.queuetable import QueueTable
from txrocketmq.store.reader import StoreReader
from txrocketmq.store.recover import Recoverer, Recovery
from txrocketmq.store.reput import NOT_IN_QUEUE, ArrivalListener, Dispatch, Reput
from txrocketmq.store.results import (
    GetMessageResult,
    PutMessageResult,
    PutMessageStatus,
    QueryMessageResult,
)

CHECKPOINT_EVERY_MS = 1000

_MAX_TOPIC_BYTES = 127
_MAX_RETRY_TOPIC_BYTES = 255
_PUT_OK = PutMessageStatus.PUT_OK
_SYNC_FLUSH = "SYNC_FLUSH"
_SLAVE = "SLAVE"
_UNSAFE = "log not on the device from offset "
_NOWHERE = 1 << 62

PutOutcome = PutMessageResult | Deferred[PutMessageResult]


def machine_memory_bytes() -> int:
    """The machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@implementer(IMessageStore)
class MessageStore:
    """Messages on disk, in the official layout.

    :param pool: for everything that may wait for others: blocks ahead, queue and index writes, deletion.
    :param flush_pool: for syncs of the commit log alone, so that nothing delays a waiting sender.
    :param read_pool: for cold reads.
    :param window_bytes: how far ahead of the newest message the log gets its blocks.
    :ivar recovery: what the last `load` found.
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
        memory_bytes: int | None = None,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        root = config.store_path_root_dir
        derived_pool = queue_pool or pool
        self._config = config
        self._disk = disk
        self._clock = clock
        self._pool = derived_pool
        self._lock: Any = None
        self._serving = False
        self._refusals: dict[str, str] = {}
        self._timers: dict[str, IDelayedCall] = {}
        self._abort_path = f"{root}/abort"
        self.recovery: Recovery | None = None
        self.checkpoint = StoreCheckpoint(disk, f"{root}/checkpoint")
        self.commit_log = CommitLog(
            MappedFileQueue(
                disk,
                config.store_path_commit_log or f"{root}/commitlog",
                config.mapped_file_size_commit_log,
                pool,
                window_bytes=window_bytes,
                chunk_bytes=min(CHUNK_BYTES, window_bytes // 4),
            ),
            clock,
            config,
        )
        self.flusher = LogFlusher(self.commit_log, flush_pool, clock, config)
        self.queue_table = QueueTable(config, disk, derived_pool, self.checkpoint)
        self.index = IndexService(config, disk, derived_pool, self.checkpoint, self._now_ms)
        self.reput = Reput(config, disk, self.queue_table, self.index)
        if memory_bytes is None:
            memory_bytes = machine_memory_bytes()
        self.reader = StoreReader(
            config, disk, read_pool, self.commit_log, self.queue_table, self.index, memory_bytes
        )
        self.flusher.on_progress = self._log_flushed
        self.flusher.on_lost = self._mark_unsafe

    def _now_ms(self) -> int:
        return int(self._clock.seconds() * 1000)

    # ------------------------------------------------------------------ start and stop

    def load(self) -> Deferred[None]:
        """See `IStoreLifecycle`. Blocks while it recovers: nothing is served before it is done."""
        try:
            self._load()
        except OSError as error:
            self._release()
            return fail(StoreError(f"the store cannot be opened: {error}"))
        except Exception as error:
            self._release()
            return fail(error)
        return succeed(None)

    def _load(self) -> None:
        root, disk = self._config.store_path_root_dir, self._disk
        self._lock = disk.lock(f"{root}/lock")
        clean = not disk.exists(self._abort_path)
        unsafe_offset = self._unsafe_offset()
        # Before anything is changed: what recovery does may be cut short as well.
        disk.create(self._abort_path, 0)
        disk.sync_directory(root)
        disk.makedirs(f"{root}/consumequeue")
        disk.makedirs(self.commit_log.queue.directory)
        self.commit_log.queue.load()
        self.checkpoint.load()
        self.queue_table.load()
        self.index.load(clean)
        recoverer = Recoverer(
            self._config,
            self.commit_log,
            self.queue_table,
            self.index,
            self.checkpoint,
            self.reput,
            self._now_ms,
        )
        self.recovery = recoverer.run(clean)
        # After an orderly stop all is on the device; after any other what was read or changed may not be. The same goes for the
        # directories of a store that is new: an earlier start may have ended between making and syncing them.
        unsynced_offset = self.commit_log.max_offset if clean else self.recovery.start_offset
        try:
            if not clean or self.recovery.has_cut or not self.commit_log.queue.files:
                disk.sync_all(root)
            self.commit_log.queue.open_for_append(unsynced_offset, unsafe_offset)
        except OSError:
            self._mark_unsafe(min(unsynced_offset, unsafe_offset))
            raise
        self._write_abort(str(os.getpid()))
        self._note_recovered()
        self.index.recovered()
        self._serving = True

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

    # Officially the abort file holds the process id, and its presence is all that counts. Ours has a second line after a sync
    # of the log failed: the kernel may then hold pages for clean that the device never got. The line lives as long as those
    # pages do, in the same page cache, and makes the next start write them again.

    def _write_abort(self, text: str) -> None:
        try:
            self._disk.truncate(self._abort_path, 0)
            self._disk.write_at(self._abort_path, 0, text.encode())
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise

    def _mark_unsafe(self, offset: int) -> None:
        """Note that the log may not be on the device from here on (start, or a pool)."""
        self._write_abort(f"{os.getpid()}\n{_UNSAFE}{offset}\n")

    def _unsafe_offset(self) -> int:
        """From where on a failed sync left the log in doubt; beyond its end when none did."""
        try:
            text = self._disk.read_at(self._abort_path, 0, 100).decode("ascii", "replace")
        except FileNotFoundError:
            return _NOWHERE
        line = text.partition("\n")[2].strip()
        offset = line.removeprefix(_UNSAFE)
        return int(offset) if line.startswith(_UNSAFE) and offset.isdecimal() else _NOWHERE

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def start(self) -> None:
        """See `IStoreLifecycle`."""
        self.flusher.start()
        self._every("queues", self._flush_queues, self._queue_interval)
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
        return self.checkpoint.save(self._pool)

    def stop(self) -> Deferred[None]:
        """See `IStoreLifecycle`. Whatever fails is logged; the abort file then stays, and the next start recovers."""
        if self._lock is None:
            return succeed(None)
        self._serving = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        try:
            clean = await self.flusher.stop()
            if clean:
                self.reput.flushed(self.commit_log.max_offset)
            clean = await self.queue_table.flush() and clean
            clean = await self.index.stop() and clean
            await self._save_checkpoint()
            await self.commit_log.queue.close()
            if clean and self.commit_log.read_only is None and not self.reput.waiting:
                self._disk.remove(self._abort_path)
            else:
                self.log.warn("the store is not in order: the next start will recover it")
        finally:
            self._release()

    def add_arrival_listener(self, listener: ArrivalListener) -> None:
        """See `IStoreLifecycle`."""
        self.reput.listeners.append(listener)

    # ------------------------------------------------------------------ whether writes are taken

    def refuse_writes(self, cause: str, reason: str) -> None:
        """Answer SERVICE_NOT_AVAILABLE to all sends until `accept_writes` is called with the same cause."""
        if cause not in self._refusals:
            self.log.error("the store takes no messages: {reason}", reason=reason)
        self._refusals[cause] = reason

    def accept_writes(self, cause: str) -> None:
        """The cause of a refusal is gone."""
        if self._refusals.pop(cause, None) is not None and not self._refusals:
            self.log.info("the store takes messages again")

    @property
    def write_refusal(self) -> str | None:
        """Why no messages are taken, None when they are."""
        for reason in self._refusals.values():
            return reason
        if self.commit_log.read_only is not None:
            return self.commit_log.read_only
        if not self._serving:
            return "the store is not open"
        return None

    # ------------------------------------------------------------------ append

    def put_message(self, record: MessageRecord) -> PutOutcome:
        """See `IMessageAppender`."""
        topic = record.topic
        sys_flag = record.sys_flag
        table = self.queue_table
        if self._refusals or not self._serving or self._config.broker_role == _SLAVE:
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        if (len(topic) > 42 and not _topic_fits(topic)) or sys_flag & INNER_BATCH_FLAG:
            # Batch queues cannot be written yet.
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        queue = table.queues.get((topic, record.queue_id))
        if queue is None:
            result = self.commit_log.append(record, 0)
            if result.status is not _PUT_OK:
                return result
            queue = table.create(topic, record.queue_id)
        elif queue.is_batch:
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        else:
            result = self.commit_log.append(record, queue.next_index)
            if result.status is not _PUT_OK:
                return result
        if not sys_flag & NOT_IN_QUEUE:
            queue.next_index += 1
        dispatch = (
            queue,
            result.queue_offset,
            result.physical_offset,
            result.wrote_bytes,
            self.reput.delivery_time(record, result.store_timestamp_ms)
            if queue.is_schedule
            else record.tags_code,
            result.store_timestamp_ms,
            sys_flag,
            record.uniq_key,
            record.keys,
            self.reput.tag_hash(topic, record.tags_code, record.properties),
        )
        if self._config.flush_disk_type == _SYNC_FLUSH or self.reput.waiting:
            return self._synced(result, (dispatch,), record.wait_store_msg_ok)
        self.reput.dispatch(*dispatch)
        return result

    def put_batch(self, record: MessageRecord) -> PutOutcome:
        """See `IMessageAppender`."""
        if self._refusals or not self._serving or self._config.broker_role == _SLAVE:
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        topic = record.topic
        queue = self.queue_table.queues.get((topic, record.queue_id))
        if (
            not _topic_fits(topic)
            or transaction_type(record.sys_flag)
            or (queue is not None and queue.is_batch)
        ):
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        try:
            items = split_batch(record.body)
        except RecordError as error:
            self.log.info("a batch for {topic} is refused: {error}", topic=topic, error=error)
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        first = queue.next_index if queue is not None else 0
        result = self.commit_log.append_batch(record, items, first)
        if result.status is not _PUT_OK:
            return result
        if queue is None:
            queue = self.queue_table.create(topic, record.queue_id)
        queue.next_index += len(items)
        dispatches = self.reput.batch_dispatches(queue, record, items, result)
        if self._config.flush_disk_type == _SYNC_FLUSH or self.reput.waiting:
            return self._synced(result, dispatches, record.wait_store_msg_ok)
        self.reput.dispatch_batch(dispatches)
        return result

    def _synced(
        self, result: PutMessageResult, dispatches: Iterable[Dispatch], wait: bool
    ) -> PutOutcome:
        """SYNC_FLUSH: consumers see the message, and the sender is answered, once it is on the device."""
        config = self._config
        for dispatch in dispatches:
            if config.read_un_committed:
                self.reput.dispatch(*dispatch)
            else:
                self.reput.dispatch_later(dispatch)
        if config.flush_disk_type != _SYNC_FLUSH or not wait:
            self.flusher.wake()
            return result
        end = result.physical_offset + result.wrote_bytes
        flushed = self.flusher.when_flushed(end, config.sync_flush_timeout)
        return flushed.addCallback(
            lambda done: result if done else result.with_status(PutMessageStatus.FLUSH_DISK_TIMEOUT)
        )

    def _log_flushed(self, offset: int) -> None:
        if self.reput.waiting:
            self.reput.flushed(offset)

    def append_raw(self, offset: int, data: bytes) -> bool:
        """See `IMessageAppender`."""
        if not self._serving or not self.commit_log.append_raw(offset, data):
            return False
        scan = self.commit_log.scan(self.reput.offset)
        for position, head in scan:
            self.reput.dispatch_head(position, head)
            queue = self.queue_table.queues[head.topic, head.queue_id]
            queue.next_index = queue.max_index
        self.reput.offset = scan.offset
        return True

    # ------------------------------------------------------------------ read

    def _check_open(self) -> None:
        if not self._serving:
            raise StoreError("the store is not open")

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
        return self.reader.get_message(
            topic, queue_id, offset, max_messages, max_bytes, message_filter
        )

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
        queue = self.queue_table.find(topic, queue_id)
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

    def queues(self) -> list[tuple[str, int]]:
        """See `IQueueOffsets`."""
        return list(self.queue_table.queues)

    def delete_topics(self, topics: Iterable[str]) -> int:
        """See `IQueueOffsets`. The messages stay in the log until it is cleaned."""
        doomed = frozenset(topics)
        self.reput.forget(doomed)
        return self.queue_table.delete_topics(doomed)

    # ------------------------------------------------------------------ replication

    def max_physical_offset(self) -> int:
        """See `IReplicationControl`."""
        return self.commit_log.max_offset

    def min_physical_offset(self) -> int:
        """See `IReplicationControl`."""
        return self.commit_log.min_offset

    def flushed_offset(self) -> int:
        """See `IReplicationControl`."""
        return self.commit_log.flushed_offset

    def read_log(self, offset: int, max_bytes: int) -> bytes:
        """See `IReplicationControl`."""
        return self.commit_log.read(offset, max_bytes)

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log whose messages nobody can read yet."""
        return max(0, self.commit_log.max_offset - self.reput.offset)


def _topic_fits(topic: str) -> bool:
    """Whether the record's format can name the topic; retry topics may be longer (version 2 records)."""
    limit = _MAX_TOPIC_BYTES
    if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        limit = _MAX_RETRY_TOPIC_BYTES
    return len(topic.encode("utf-8", "replace")) <= limit
