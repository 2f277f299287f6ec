"""How does a message get its place in the one log of all messages? Append, end of file, read and scan.

Stands for the official ``CommitLog`` with its ``DefaultAppendMessageCallback`` (without flush and replication).

A record lies in one file: where it does not leave room for a blank record behind it, a blank record ends the file and the
record goes to the next one. A batch is consecutive records of one file.

Crash story: a record may be half written, or whole and not on the device. `LogScan` stops before the first bytes that are
not a valid record of exactly this position; recovery cuts there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from txrocketmq.codec.crc import crc32 as fast_crc32
from txrocketmq.codec.placing import put_record
from txrocketmq.codec.record import (
    BLANK_RECORD_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    BatchItem,
    RecordHead,
    batch_size,
    blank_record,
    encode_around,
    encode_batch_records,
    encode_record,
    record_size,
    scan_head,
)
from txrocketmq.codec.seal import (
    CHECK_BODY,
    CHECK_SEAL,
    REQUIRE_SEAL,
    SEAL_BYTES,
    encode_sealed_record,
    seal_batch_records,
    seal_fault,
    sealed_record_size,
    with_room_for_seal,
)
from txrocketmq.errors import RecordError, StoreError
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import MAX_PROPERTIES_BYTES
from txrocketmq.store.blocks import Block, scan_block
from txrocketmq.store.damage import record_fault
from txrocketmq.store.mapped import FULL_DISK, MappedFile, MappedFileQueue
from txrocketmq.store.results import PutMessageResult, PutMessageStatus

log = Logger()

#: What a record may have besides the largest body: the official encoder's reserve.
RECORD_OVERHEAD_BYTES = 64 * 1024

#: How much of the log a scan reads at once.
SCAN_BYTES = 1024 * 1024

#: A body of this size is worth three writes into the mapping instead of one copy more.
IN_PLACE_BYTES = 4096

_START = Struct(">ii")

# Looking a member up in its class costs as much as making the answer.
_PUT_OK = PutMessageStatus.PUT_OK

# Two bits of the sysFlag. Prepared and rolled back messages never enter a queue, so they have no place in one.
_TRANSACTION_MASK = 0xC
_IN_QUEUE = frozenset({0, 0x8})


class CommitLogConfig(Protocol):
    """The keys that this module reads, at each use."""

    max_message_size: int
    enabled_append_prop_crc: bool
    force_verify_prop_crc: bool


class CommitLog:
    """All messages of a broker in the order of their arrival.

    Everything runs in the reactor thread and nothing waits.

    :ivar queue: the files.
    :ivar last_store_timestamp_ms: what the newest record of this run says, 0 before it.
    :ivar read_only: why writes are refused until restart, or None.
    """

    def __init__(
        self, queue: MappedFileQueue, clock: IReactorTime, config: CommitLogConfig
    ) -> None:
        self.queue = queue
        self.last_store_timestamp_ms = 0
        self.read_only: str | None = None
        self._config = config
        self._behind_since = 0.0
        self._seconds: Callable[[], float] = clock.seconds
        self._file_size = queue.file_size
        #: Where the space for records ends in each file.
        self._records_end = queue.file_size - BLANK_RECORD_BYTES
        self._is_sealing = config.enabled_append_prop_crc
        self._encode = encode_sealed_record if self._is_sealing else encode_record
        self._size_of = sealed_record_size if self._is_sealing else record_size
        self._put = None if self._is_sealing else put_record
        self._max_properties = MAX_PROPERTIES_BYTES
        if self._is_sealing:
            # Perhaps a separator has to go before it.
            self._max_properties -= SEAL_BYTES + 1

    # ------------------------------------------------------------------ append

    def append(self, record: MessageRecord, queue_offset: int) -> PutMessageResult:
        """Append one message with this place in its queue; see `PutMessageResult` for where it landed or why not."""
        body_size = len(record.body)
        if body_size > self._config.max_message_size:
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        if len(record.properties) > self._max_properties:
            return PutMessageResult(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        sys_flag = record.sys_flag
        if sys_flag and sys_flag & _TRANSACTION_MASK not in _IN_QUEUE:
            queue_offset = 0
        now_ms = int(self._seconds() * 1000)
        queue = self.queue
        files = queue.files
        if files:
            tail = files[-1]
            position = tail.position
            base_offset = tail.base_offset
            physical_offset = base_offset + position
            put = self._put
            if put is not None and self.read_only is None:
                writable = tail.writable
                size = put(
                    tail.buffer,
                    position,
                    writable if writable < self._records_end else self._records_end,
                    record.topic,
                    record.queue_id,
                    record.body,
                    record.properties,
                    record.flag,
                    sys_flag,
                    record.born_timestamp,
                    record.born_host,
                    record.store_host,
                    record.reconsume_times,
                    record.prepared_transaction_offset,
                    queue_offset,
                    physical_offset,
                    now_ms,
                )
                if size is not None:
                    tail.position = end = position + size
                    if base_offset + end >= queue.prepare_at:
                        queue.prepare()
                    self.last_store_timestamp_ms = now_ms
                    return PutMessageResult(_PUT_OK, physical_offset, queue_offset, size, now_ms)
            if body_size >= IN_PLACE_BYTES and not self._is_sealing:
                result = self._append_in_place(tail, record, queue_offset, now_ms)
                return result or self._append_carefully(record, queue_offset, now_ms)
            data = self._encode(record, queue_offset, physical_offset, now_ms)
            size = len(data)
            end = position + size
            if end <= tail.writable and end <= self._records_end and self.read_only is None:
                tail.buffer[position:end] = data
                tail.position = end
                if base_offset + end >= queue.prepare_at:
                    queue.prepare()
                self.last_store_timestamp_ms = now_ms
                return PutMessageResult(_PUT_OK, physical_offset, queue_offset, size, now_ms)
        return self._append_carefully(record, queue_offset, now_ms)

    def _append_in_place(
        self, tail: MappedFile, record: MessageRecord, queue_offset: int, now_ms: int
    ) -> PutMessageResult | None:
        """The rest of `append` for a large body, which goes into the mapping without being copied before; None where it does not
        simply go behind the last one."""
        position = tail.position
        body = record.body
        physical_offset = tail.base_offset + position
        before, behind = encode_around(record, queue_offset, physical_offset, now_ms)
        start = position + len(before)
        stop = start + len(body)
        end = stop + len(behind)
        if end > tail.writable or end > self._records_end or self.read_only is not None:
            return None
        buffer = tail.buffer
        buffer[start:stop] = body
        buffer[stop:end] = behind
        # What makes a record of it comes last.
        buffer[position:start] = before
        tail.position = end
        if tail.base_offset + end >= self.queue.prepare_at:
            self.queue.prepare()
        self.last_store_timestamp_ms = now_ms
        return PutMessageResult(_PUT_OK, physical_offset, queue_offset, end - position, now_ms)

    def append_batch(
        self, batch: MessageRecord, items: Sequence[BatchItem], first_queue_offset: int
    ) -> PutMessageResult:
        """Append the items of a client batch as consecutive records of one file; all or none.

        :param batch: what all of them have in common; its own body and properties are not stored.
        """
        bodies_bytes = sum([len(body) for _, body, _ in items])
        if not items or bodies_bytes > self._config.max_message_size:
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        if max([len(text) for _, _, text in items]) > self._max_properties:
            return PutMessageResult(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        if self._is_sealing:
            items = [(flag, body, with_room_for_seal(text)) for flag, body, text in items]
        size = batch_size(batch, items)
        tail = self._room_for(size, len(items))
        if isinstance(tail, PutMessageStatus):
            return PutMessageResult(tail)
        now_ms = int(self._seconds() * 1000)
        data, offsets = encode_batch_records(
            batch, items, first_queue_offset, tail.base_offset + tail.position, now_ms
        )
        if self._is_sealing:
            data = seal_batch_records(data, offsets)
        self._write(tail, data, now_ms)
        return PutMessageResult(
            PutMessageStatus.PUT_OK,
            offsets[0],
            first_queue_offset,
            size,
            now_ms,
            len(items),
            offsets if len(offsets) > 1 else (),
        )

    def _append_carefully(
        self, record: MessageRecord, queue_offset: int, now_ms: int
    ) -> PutMessageResult:
        """The rest of `append`: the end of a file, blocks that are not ready."""
        size = self._size_of(record)
        tail = self._room_for(size, 1)
        if isinstance(tail, PutMessageStatus):
            return PutMessageResult(tail)
        physical_offset = tail.base_offset + tail.position
        self._write(tail, self._encode(record, queue_offset, physical_offset, now_ms), now_ms)
        return PutMessageResult(
            PutMessageStatus.PUT_OK, physical_offset, queue_offset, size, now_ms
        )

    def _write(self, tail: MappedFile, data: bytes, now_ms: int) -> None:
        tail.buffer[tail.position : tail.position + len(data)] = data
        self.queue.advance(tail, len(data))
        self.last_store_timestamp_ms = now_ms

    def _room_for(self, size: int, messages: int) -> MappedFile | PutMessageStatus:
        """The file that takes so many bytes of records now, or why there is none; ends the present file where it must."""
        if size > self._config.max_message_size + RECORD_OVERHEAD_BYTES * messages:
            return PutMessageStatus.MESSAGE_ILLEGAL
        if size > self._records_end:
            log.error("a message of {size} bytes does not fit into any log file", size=size)
            return PutMessageStatus.MESSAGE_ILLEGAL
        return self._find_room(size) or self.refusal()

    def _find_room(self, size: int) -> MappedFile | None:
        """The file that takes a record of this size now; ends the present one where it must. None: refused."""
        if self.read_only is not None:
            return None
        queue = self.queue
        tail = queue.tail
        if tail is not None and tail.position + size > self._records_end:
            if tail.position < tail.size and not self._end_file():
                return None
            if queue.roll() is None:
                return None
        return queue.reserve(size)

    def _end_file(self) -> bool:
        tail = self.queue.reserve(BLANK_RECORD_BYTES)
        if tail is None:
            return False
        left = tail.size - tail.position
        tail.buffer[tail.position : tail.position + BLANK_RECORD_BYTES] = blank_record(left)
        self.queue.advance(tail, left)
        return True

    def append_raw(self, offset: int, data: bytes | memoryview) -> bool:
        """Append replicated bytes of one file at exactly the log's end; False when they do not go there now."""
        queue = self.queue
        if self.read_only is not None or offset != queue.max_offset:
            return False
        tail = queue.tail
        if tail is not None and tail.position == tail.size:
            tail = queue.roll()
        if tail is None or tail.position + len(data) > tail.size:
            return False
        tail = queue.reserve(len(data))
        if tail is None:
            return False
        tail.buffer[tail.position : tail.position + len(data)] = data
        queue.advance(tail, len(data))
        return True

    def refusal(self) -> PutMessageStatus:
        """Why an append is refused just now.

        The disk is full or the log read-only: SERVICE_NOT_AVAILABLE. A file cannot be made for another reason:
        CREATE_MAPPED_FILE_FAILED. The pool is only behind: OS_PAGE_CACHE_BUSY, the answer that asks for flow control.
        """
        failure = self.queue.failure
        if self.read_only is not None or (failure is not None and failure.errno in FULL_DISK):
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        if failure is not None:
            return PutMessageStatus.CREATE_MAPPED_FILE_FAILED
        if not self._behind_since:
            self._behind_since = self._seconds()
        return PutMessageStatus.OS_PAGE_CACHE_BUSY

    def lock_time_ms(self) -> int:
        """For how long appends have been refused because the pool is behind; 0 while it is not."""
        if not self._behind_since:
            return 0
        if not self.queue.is_behind:
            self._behind_since = 0.0
            return 0
        return int((self._seconds() - self._behind_since) * 1000)

    def refuse_writes(self, reason: str) -> None:
        """Refuse all appends until restart: what the device holds is not known any more."""
        if self.read_only is None:
            log.critical("the commit log is read-only until restart: {reason}", reason=reason)
            self.read_only = reason

    # ------------------------------------------------------------------ read

    @property
    def min_offset(self) -> int:
        """First byte of the oldest file."""
        return self.queue.min_offset

    @property
    def max_offset(self) -> int:
        """Offset behind the newest record."""
        return self.queue.max_offset

    @property
    def flushed_offset(self) -> int:
        """Everything below is on the device."""
        return self.queue.flushed_offset

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes, never across a file's end; empty outside the log. May ask the device."""
        return self.queue.read(offset, size)

    def read_ready(self, offset: int, size: int) -> bytes | None:
        """As `read`, but None where the device would have to be asked."""
        return self.queue.read_ready(offset, size)

    def next_file_offset(self, offset: int) -> int:
        """Where the file behind the one with this offset begins."""
        return offset - offset % self._file_size + self._file_size

    def scan(self, offset: int, *, check_crc: bool = False) -> LogScan:
        """Walk over the records from an offset that is a record's first byte; see `LogScan`."""
        return LogScan(self.queue, offset, self.crc_checks(check_crc))

    def crc_checks(self, check_crc: bool) -> int:
        """Which checksums a scan has to look at when it looks at any; `CHECK_BODY` and the others together.

        Records that carry a seal (see `txrocketmq.codec.seal`) are checked by it where this broker writes it; with
        ``forceVerifyPropCRC`` each has to carry one, which covers the body too.
        """
        if not check_crc:
            return 0
        if self._config.force_verify_prop_crc:
            return CHECK_SEAL | REQUIRE_SEAL
        return CHECK_BODY | CHECK_SEAL if self._is_sealing else CHECK_BODY

    def time_at(self, offset: int) -> int:
        """Store time of the record that begins at an offset in ms, -1 when none does (start only: blocks)."""
        for found, head in self.scan(offset):
            return head.store_timestamp if found == offset else -1
        return -1

    def truncate_to(self, offset: int) -> None:
        """Cut the log (blocking; before it is opened for appending)."""
        self.queue.truncate_to(offset)


class LogScan:
    """Iterator over ``(physical offset, RecordHead)``; passes from file to file, skips blank records. Blocks on cold bytes.

    :param check_crc: what `CommitLog.crc_checks` says; 0 for none.
    :ivar offset: where the next record begins or would begin.
    :ivar damage: what was found there that is not a record; None while all is well and where nothing was written.
    """

    def __init__(self, queue: MappedFileQueue, offset: int, check_crc: int) -> None:
        self.offset = offset
        self.damage: str | None = None
        self._queue = queue
        self._file_size = queue.file_size
        self._check_crc = bool(check_crc & CHECK_BODY)
        self._check_seal = bool(check_crc & CHECK_SEAL)
        self._require_seal = bool(check_crc & REQUIRE_SEAL)
        self._buffer: bytes | memoryview = b""
        self._buffer_offset = offset

    def __iter__(self) -> Iterator[tuple[int, RecordHead]]:
        return self

    def __next__(self) -> tuple[int, RecordHead]:
        while True:
            found = self.look(self._fill())
            if found is not None:
                return found

    def give(self, data: bytes | memoryview) -> None:
        """The bytes that lie at `offset` are at hand: they need not be read."""
        self._buffer, self._buffer_offset = data, self.offset

    def block(self, end: int | None = None) -> Block | None:
        """The plain records from `offset` on, as far as they are at hand; None where the first one is not plain, or seals are
        compared. `skip` passes over them.

        :param end: none of them ends beyond this offset.
        """
        if self._check_seal:
            return None
        return self._block_at(self._fill(), end)

    def _block_at(self, position: int, end: int | None) -> Block | None:
        buffer = self._buffer
        limit = len(buffer)
        if end is not None:
            limit = min(limit, position + end - self.offset)
        found = scan_block(
            buffer, position, limit, self.offset, fast_crc32 if self._check_crc else None
        )
        return found if found.records else None

    def skip(self, block: Block) -> None:
        """Go on behind a block."""
        self.offset = self._buffer_offset + block.end

    def look(self, position: int) -> tuple[int, RecordHead] | None:
        """Take the record at a position of the buffer; None for a blank one.

        :raises StopIteration: there is none.
        """
        try:
            head = scan_head(self._buffer, position, check_crc=self._check_crc)
        except RecordError as error:
            self.damage = f"at offset {self.offset}: {str(error).partition(': ')[2] or error}"
            raise StopIteration from None
        offset = self.offset
        if head is None:
            raise StopIteration
        if head.is_blank:
            self.offset = offset - offset % self._file_size + self._file_size
            return None
        self.damage = record_fault(offset, head)
        if self.damage is None and self._check_seal:
            record = memoryview(self._buffer)[position : position + head.total_size]
            fault = seal_fault(record, self._require_seal)
            if fault is not None:
                self.damage = f"at offset {offset}: {fault}"
        if self.damage is not None:
            raise StopIteration
        self.offset = offset + head.total_size
        return offset, head

    def record_bytes(self, offset: int, head: RecordHead) -> bytes:
        """The whole record that was just returned."""
        position = offset - self._buffer_offset
        if not 0 <= position <= len(self._buffer) - head.total_size:
            raise StoreError(f"the scan is not at {offset} any more")
        return bytes(self._buffer[position : position + head.total_size])

    def _fill(self) -> int:
        """Have the whole record at `offset` in the buffer, as far as it is in the file; its position there."""
        position = self.offset - self._buffer_offset
        available = len(self._buffer) - position
        if available >= BLANK_RECORD_BYTES and (
            self._needed(position) <= available or self._at_file_end(available)
        ):
            return position
        self._buffer = self._queue.read(self.offset, SCAN_BYTES)
        self._buffer_offset = self.offset
        if len(self._buffer) >= BLANK_RECORD_BYTES:
            wanted = self._needed(0)
            if wanted > len(self._buffer) and not self._at_file_end(len(self._buffer)):
                self._buffer = self._queue.read(self.offset, wanted)
        return 0

    def _needed(self, position: int) -> int:
        """How many bytes have to be in the buffer for the record that begins at this position of it. A blank one may be as large as
        a file, and what is no record may say any size: of them the start tells all."""
        size, magic = _START.unpack_from(self._buffer, position)
        return int(size) if magic in (MAGIC_V1, MAGIC_V2) else BLANK_RECORD_BYTES

    def _at_file_end(self, available: int) -> bool:
        """Whether the buffer ends where the written part of its file ends: reading again gives no more."""
        end = self.offset + available
        return end % self._file_size == 0 or end >= self._queue.max_offset
