"""Which messages does a consumer get next? From a queue's units, through a filter, to the bytes of the log.

Stands for ``DefaultMessageStore.getMessage``, ``lookMessageByOffset``, ``queryMessage`` and the searches by time.

What is in memory is answered at once. Where a file would have to be read from the device, the read happens in the pool and
the answer is made when the bytes are there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from time import monotonic

from twisted.internet.defer import Deferred

from txrocketmq.codec.record import decode_record, peek_store_timestamp, scan_head
from txrocketmq.codec.storefiles import SIZE_FIELD
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import RecordError
from txrocketmq.interfaces import IBlockingPool, IDisk, IMessageFilter
from txrocketmq.model.javahash import index_hash
from txrocketmq.model.message import MessageExt
from txrocketmq.store.commitlog import CommitLog
from txrocketmq.store.consumequeue import Entry
from txrocketmq.store.extension import ExtendedQueue
from txrocketmq.store.filter import ThroughExtension
from txrocketmq.store.index import IndexService
from txrocketmq.store.indexfile import TAG_TYPE, tag_index_hash
from txrocketmq.store.queuetable import AnyQueue, QueueTable
from txrocketmq.store.results import GetMessageResult, GetMessageStatus, QueryMessageResult
from txrocketmq.store.unitlog import ColdRead

MAX_PULL_BYTES = 128 * 1024 * 1024
MIN_PULL_BYTES = 100

MAX_PULL_UNITS = 16_384
"""Queue entries that one pull looks at, whatever number it asks for: a filter that nothing passes must not go over millions at
once (10 to 20 ms for this many)."""

RECORDS_OF_A_LOOK = 64
FILTER_S = 0.02
"""How long records are asked whether a filter wants them, so many at a time; then the read ends where it is, as at `MAX_PULL_UNITS`. A long
filter may need a tenth of a millisecond for each."""

QUERY_ROUNDS = 3
"""How often a query by key goes on with older entries when none of the found ones can be read."""

WARM_TRIES = 3
"""How often bytes are brought into memory before a read may block."""

MAX_RANGE_BYTES = 400 * 1024
"""Spans of older files that lie within so many bytes are read at once: that takes as long as one read for each of 32."""

_SLAVE = "SLAVE"
_HEAD_BYTES = 80
_Status = GetMessageStatus


class StoreReader:
    """Answers pulls and queries.

    :param memory_bytes: the machine's memory; a share of it (``accessMessageInMemoryMaxRatio``) counts as holding the newest
        part of the log.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        disk: IDisk,
        pool: IBlockingPool,
        commit_log: CommitLog,
        queues: QueueTable,
        index: IndexService,
        memory_bytes: int,
    ) -> None:
        self._config = config
        self._disk = disk
        self._pool = pool
        self._commit_log = commit_log
        self._queues = queues
        self._index = index
        self._memory_bytes = memory_bytes

    @property
    def pool(self) -> IBlockingPool:
        """Where reads go that are not in the page cache."""
        return self._pool

    # ------------------------------------------------------------------ pull

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        max_bytes: int,
        message_filter: IMessageFilter | None,
        tries: int = WARM_TRIES,
        row: AnyQueue | None = None,
    ) -> GetMessageResult | Deferred[GetMessageResult]:
        """Read from a queue; see `IMessageReader.get_message`.

        :param row: all that may be read of it as yet; whoever wants something else waits.
        """
        queue = self._queues.queues.get((topic, queue_id)) if row is None else row
        if queue is None:
            return GetMessageResult(
                _Status.NO_MATCHED_LOGIC_QUEUE, self._corrected(offset, 0), 0, 0
            )
        min_offset, max_offset = queue.min_index, queue.max_index
        if min_offset <= offset < max_offset:
            try:
                found = self._read(
                    queue, offset, max_messages, max_bytes, message_filter, tries > 0
                )
                if row is not None:
                    # Where the queue begins is not known yet.
                    found.min_offset = 0
                return found
            except ColdRead as cold:
                release = self._commit_log.queue.readers.hold(path for path, _, _ in cold.reads)
                warmed: Deferred[None] = self._pool.submit(warm, self._disk, cold.reads)
                warmed.addBoth(release)
            return warmed.addCallback(
                lambda _: self.get_message(
                    topic, queue_id, offset, max_messages, max_bytes, message_filter, tries - 1, row
                )
            )
        if row is not None:
            return waits(offset)
        if max_offset == 0:
            status, following = _Status.NO_MESSAGE_IN_QUEUE, 0
        elif offset < min_offset:
            status, following = _Status.OFFSET_TOO_SMALL, min_offset
        elif offset == max_offset:
            status, following = _Status.OFFSET_OVERFLOW_ONE, offset
        else:
            status, following = _Status.OFFSET_OVERFLOW_BADLY, max_offset
        return GetMessageResult(status, self._corrected(offset, following), min_offset, max_offset)

    def get_ahead(
        self,
        row: AnyQueue,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        max_bytes: int,
        message_filter: IMessageFilter | None,
    ) -> GetMessageResult | Deferred[GetMessageResult]:
        """As `get_message`, of the newest messages of a queue whose older ones are not derived yet."""
        limits = max_messages, max_bytes, message_filter
        return self.get_message(topic, queue_id, offset, *limits, WARM_TRIES, row)

    def _corrected(self, old: int, new: int) -> int:
        """A slave does not correct offsets: it may merely be behind its master."""
        config = self._config
        if config.broker_role != _SLAVE or config.offset_check_in_slave:
            return new
        return old

    def _memory_share(self) -> int:
        return self._memory_bytes * self._config.access_message_in_memory_max_ratio // 100

    def _read(
        self,
        queue: AnyQueue,
        offset: int,
        max_messages: int,
        max_bytes: int,
        message_filter: IMessageFilter | None,
        ready_only: bool,
    ) -> GetMessageResult:
        config = self._config
        if message_filter is not None and isinstance(queue, ExtendedQueue):
            message_filter = ThroughExtension(message_filter, queue, self._queues.cache, ready_only)
        unit_bytes = queue.unit_bytes
        most_units = -(
            -max(config.max_filter_message_size, max_messages * unit_bytes) // unit_bytes
        )
        most_units = min(most_units, MAX_PULL_UNITS)
        batch = _Batch(
            self._commit_log,
            config,
            max_messages,
            min(max(max_bytes, MIN_PULL_BYTES), MAX_PULL_BYTES),
            self._commit_log.max_offset - self._memory_share(),
            message_filter,
            offset,
        )
        # Without a filter a message is as good as a unit.
        is_slow = message_filter is not None and message_filter.needs_record
        step = max(1, max_messages) if message_filter is None else 256
        if is_slow:
            step = RECORDS_OF_A_LOOK
        began_s = monotonic()
        end = min(offset + most_units, queue.max_index)
        while batch.next_offset < end and not batch.is_full:
            before = batch.next_offset
            count = min(step, end - before)
            batch.take(queue.entries(self._queues.cache, before, count, ready_only))
            if batch.next_offset == before and not batch.is_full:
                if not batch.spans:
                    batch.status = _Status.OFFSET_FOUND_NULL
                    batch.next_offset = self._corrected(before, queue.next_file_index(before))
                break
            if is_slow and monotonic() - began_s > FILTER_S:
                break
        behind = self._commit_log.max_offset - batch.last_physical_offset
        return GetMessageResult(
            batch.status,
            batch.next_offset,
            queue.min_index,
            queue.max_index,
            batch.records(ready_only) if batch.spans else (),
            batch.message_count,
            batch.size_bytes,
            batch.queue_offsets,
            behind > self._memory_share(),
            batch.filtered_count,
        )

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a message is in the share of the log that counts as being in memory."""
        unit = self._unit(topic, queue_id, offset)
        if unit is None or unit[0] < self._commit_log.min_offset:
            return False
        return self._commit_log.max_offset - unit[0] <= self._memory_share()

    def is_in_cold_area(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether there is such a message, and it lies beyond the share of the log that counts as hot."""
        unit = self._unit(topic, queue_id, offset)
        if unit is None:
            return False
        hot_bytes = self._memory_bytes * self._config.access_message_in_memory_hot_ratio // 100
        return self._commit_log.max_offset - unit[0] > hot_bytes

    # ------------------------------------------------------------------ one message

    def look_message(self, physical_offset: int) -> MessageExt | None:
        """The message at a physical offset, None when there is none."""
        record = self.look_message_bytes(physical_offset, 0)
        if record is None:
            return None
        try:
            return decode_record(record)[0]
        except RecordError:
            return None

    def look_message_bytes(self, physical_offset: int, size: int) -> bytes | None:
        """A record's bytes; with size 0 its own length is used. None when nothing valid is there."""
        commit_log = self._commit_log
        if size <= 0:
            prefix = commit_log.read(physical_offset, SIZE_FIELD.size)
            if len(prefix) < SIZE_FIELD.size:
                return None
            size = SIZE_FIELD.unpack(prefix)[0]
            if size <= 0:
                return None
        record = commit_log.read(physical_offset, size)
        if len(record) < size:
            return None
        try:
            head = scan_head(record)
        except RecordError:
            return None
        if head is None or head.is_blank or head.physical_offset != physical_offset:
            return None
        return record

    # ------------------------------------------------------------------ query by key

    def query_message(
        self,
        topic: str,
        key: str,
        max_count: int,
        begin_ms: int,
        end_ms: int,
        index_type: str | None = None,
    ) -> QueryMessageResult:
        """Messages with a key, in the order of the log, as officially.

        An index entry holds a hash only: records of other keys with the same hash are left out here.

        :param index_type: `TAG_TYPE` asks for a tag; everything else for a key or a unique id.
        """
        is_tag = index_type == TAG_TYPE
        key_hash = tag_index_hash(topic, key) if is_tag else index_hash(topic, key)
        max_count = min(max_count, self._config.max_msgs_num_batch)
        result = QueryMessageResult()
        for _ in range(QUERY_ROUNDS):
            offsets, timestamp, end_offset = self._index.query(
                key_hash, max_count, begin_ms, end_ms
            )
            if not offsets:
                break
            result.index_last_update_timestamp = timestamp
            result.index_last_update_offset = end_offset
            found = []
            # Two keys of one message may have the same hash.
            for position, offset in enumerate(sorted(set(offsets))):
                record = self.look_message_bytes(offset, 0)
                if record is None:
                    continue
                message, _ = decode_record(record, check_crc=False, with_body=False)
                if position == 0:
                    end_ms = message.store_timestamp
                if _has_key(message, topic, key, is_tag):
                    found.append(record)
            result.records = found
            if found or end_ms < begin_ms:
                break
        return result

    # ------------------------------------------------------------------ time

    def store_time_at(self, physical_offset: int, size: int) -> int:
        """Store time of the record at a place in ms, -1 when it is not in the log."""
        commit_log = self._commit_log
        if (
            physical_offset < commit_log.min_offset
            or physical_offset + size > commit_log.max_offset
        ):
            return -1
        return peek_store_timestamp(commit_log.read(physical_offset, min(size, _HEAD_BYTES)))

    def _unit(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        queue = self._queues.queues.get((topic, queue_id))
        if queue is None or not queue.min_index <= offset < queue.max_index:
            return None
        return queue.unit(self._queues.cache, offset)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time of an entry in ms, -1 when absent."""
        unit = self._unit(topic, queue_id, offset)
        return -1 if unit is None else self.store_time_at(unit[0], unit[1])

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Store time of a queue's first entry in ms, -1 when it has none."""
        queue = self._queues.queues.get((topic, queue_id))
        return -1 if queue is None else self.store_time(topic, queue_id, queue.min_index)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool) -> int:
        """The logical offset for a store time; see `ConsumeQueue.index_by_time`. 0 for an unknown queue."""
        queue = self._queues.queues.get((topic, queue_id))
        if queue is None:
            return 0
        found = queue.index_by_time(
            self._queues.cache,
            timestamp_ms,
            upper,
            self._commit_log.min_offset,
            self.store_time_at,
        )
        return min(max(found, queue.min_index), queue.max_index)


class _Batch:
    """What one pull collects: spans of the log that hold wanted records, until one of the limits is reached.

    :ivar spans: ``[physical offset, end]`` of neighbouring records that are wanted.
    :ivar is_full: a limit is reached.
    :ivar next_offset: logical offset of the first entry that was not looked at.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        config: MessageStoreConfig,
        max_messages: int,
        max_bytes: int,
        memory_start: int,
        message_filter: IMessageFilter | None,
        offset: int,
    ) -> None:
        self._commit_log = commit_log
        self._config = config
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._memory_start = memory_start
        self._filter = message_filter
        self._needs_record = message_filter is not None and message_filter.needs_record
        self._skip_below = -1
        self.status = _Status.NO_MATCHED_MESSAGE
        self.is_full = False
        self.next_offset = offset
        self.last_physical_offset = 0
        self.spans: list[list[int]] = []
        self.message_count = 0
        self.size_bytes = 0
        self.queue_offsets: list[int] = []
        self.filtered_count = 0

    def limits(self, physical_offset: int) -> tuple[int, int]:
        """Most messages and bytes of an answer: fewer when it has to come from disk."""
        config = self._config
        if physical_offset >= self._memory_start:
            count = config.max_transfer_count_on_message_in_memory
            size = config.max_transfer_bytes_on_message_in_memory
        else:
            count = config.max_transfer_count_on_message_in_disk
            size = config.max_transfer_bytes_on_message_in_disk
        return min(count, self._max_messages), min(size, self._max_bytes)

    def take(self, entries: Iterable[Entry]) -> None:
        """Go over entries in queue order. The first wanted message is taken whatever its size."""
        commit_log = self._commit_log
        log_start, log_end = commit_log.min_offset, commit_log.max_offset
        wanted = self._filter
        spans, queue_offsets = self.spans, self.queue_offsets
        total, messages = self.size_bytes, self.message_count
        span_end = spans[-1][1] if spans else -1
        memory_start = self._memory_start
        memory_count, memory_bytes = self.limits(memory_start)
        for index, (position, size, tags_code), count in entries:
            if total:
                if position >= memory_start:
                    max_count, max_bytes = memory_count, memory_bytes
                else:
                    max_count, max_bytes = self.limits(position)
                if messages + count > max_count or total + size > max_bytes:
                    self.is_full = True
                    break
            self.last_physical_offset = position
            self.next_offset = index + count
            if position < self._skip_below:
                continue
            if wanted is not None and not wanted.matches_tags_code(tags_code):
                if not total:
                    self.status = _Status.NO_MATCHED_MESSAGE
                continue
            if position < log_start or not 0 < size <= log_end - position:
                if not total:
                    self.status = _Status.MESSAGE_WAS_REMOVING
                # A filler, or a bad unit, says nothing of those behind it.
                if position < log_start:
                    self._skip_below = commit_log.next_file_offset(position)
                continue
            if self._needs_record and not self._matches(position, size):
                continue
            if position == span_end:
                spans[-1][1] = span_end = position + size
            else:
                span_end = position + size
                spans.append([position, span_end])
            self._skip_below = -1
            queue_offsets.append(index)
            total += size
            messages += count
        self.size_bytes, self.message_count = total, messages
        if total:
            self.status = _Status.FOUND

    def _matches(self, position: int, size: int) -> bool:
        assert self._filter is not None
        if self._filter.matches_record(self._commit_log.read(position, size)):
            return True
        self.filtered_count += 1
        return False

    def records(self, ready_only: bool) -> list[bytes]:
        """The bytes of all spans.

        :raises ColdRead: with ``ready_only``, where the device would have to be asked.
        """
        queue = self._commit_log.queue
        spans = self.spans
        hot = queue.join_hot(spans)
        if hot is not None:
            return [hot]
        start, end = spans[0][0], spans[-1][1]
        if end - start <= MAX_RANGE_BYTES and queue.find(start) is queue.find(end - 1):
            spans = [[start, end]]
        if not ready_only:
            found = [queue.read(start, end - start) for start, end in spans]
        else:
            found = self._read_ready(spans)
        if len(spans) == len(self.spans):
            return found
        whole = memoryview(found[0])
        return [b"".join([whole[first - start : last - start] for first, last in self.spans])]

    def _read_ready(self, spans: list[list[int]]) -> list[bytes]:
        queue = self._commit_log.queue
        found, cold = [], []
        for start, end in spans:
            data = queue.read_ready(start, end - start)
            if data is not None:
                found.append(data)
                continue
            file = queue.find(start)
            assert file is not None
            cold.append((file.path, start - file.base_offset, end - start))
        if cold:
            raise ColdRead(cold)
        return found


def waits(offset: int) -> GetMessageResult:
    """The answer to who asks for what is not there yet: nobody may be moved to another offset."""
    return GetMessageResult(_Status.OFFSET_OVERFLOW_ONE, offset, 0, offset)


def warm(disk: IDisk, reads: list[tuple[str, int, int]]) -> None:
    """Pool: bring bytes into memory. What they are is of no interest: whoever asked looks again."""
    for path, position, size in reads:
        with contextlib.suppress(FileNotFoundError):
            disk.read_at(path, position, size)


def _has_key(message: MessageExt, topic: str, key: str, is_tag: bool) -> bool:
    if message.topic != topic:
        return False
    if is_tag:
        return key == message.tags
    return key == message.uniq_key or key in (message.keys or "").split(" ")
