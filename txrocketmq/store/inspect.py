"""What is in a store directory that no broker has open here? Its files and records, read without changing a byte.

For the ``txrocketmq store`` command. Sizes are taken from the files themselves, so that a directory of any broker can be read
without its configuration. Everything blocks.

Crash story: nothing is written; the walk over the log goes on behind bytes that are no record, and says where they are.
"""

from __future__ import annotations

import copy
import fcntl
import json
import mmap
import os
import struct
import sys
from array import array
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import ClassVar, cast

import attrs

from txrocketmq.codec.record import (
    BLANK_RECORD_BYTES,
    MAGIC_V1,
    MIN_RECORD_BYTES,
    RecordHead,
    scan_head,
)
from txrocketmq.codec.storefiles import (
    BATCH_UNIT,
    BATCH_UNIT_BYTES,
    CHECKPOINT,
    CQ_FILLER_SIZE,
    CQ_UNIT,
    CQ_UNIT_BYTES,
    INDEX_ENTRY,
    INDEX_ENTRY_BYTES,
    INDEX_HEADER,
    INDEX_HEADER_BYTES,
    INDEX_SLOT,
    INDEX_SLOT_BYTES,
    SIZE_FIELD,
)
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import RecordError, StoreError
from txrocketmq.model.names import is_lmq
from txrocketmq.store.checkpoint import RECOVERY_REWIND_MS
from txrocketmq.store.damage import record_fault
from txrocketmq.store.filenames import is_file_name, is_index_name, is_queue_name
from txrocketmq.store.logdirs import split_paths
from txrocketmq.store.mapped import file_name
from txrocketmq.store.queuetable import EXTENSION_KIND

_MAGIC_HEAD = struct.pack(">i", MAGIC_V1)[:3]
_FLOCK = struct.Struct("hhqqi4x")
_DEFAULT_SLOTS = 5_000_000
_KINDS = (("consumequeue", CQ_UNIT_BYTES), ("batchconsumequeue", BATCH_UNIT_BYTES))


@attrs.frozen
class LogFault:
    """Bytes of the log that are no record.

    :ivar start: where a record should begin.
    :ivar end: where the next whole record begins; None when there is none: a torn end.
    """

    start: int
    end: int | None
    reason: str


@attrs.frozen
class LogRecord:
    """A record, and where its bytes are."""

    offset: int
    head: RecordHead
    buffer: mmap.mmap
    position: int

    @property
    def data(self) -> bytes:
        """The whole record."""
        return self.buffer[self.position : self.position + self.head.total_size]


@attrs.frozen
class LogFile:
    """A file of the commit log."""

    base_offset: int
    path: Path
    size: int


class QueueFiles:
    """The units of one consume queue (or batch queue), from its files, a block at a time.

    :ivar first_index: number of the first unit of the files.
    :ivar unit_count: how many units were written.
    :ivar block: bytes of some units, and ``block_at`` where they begin, counted from the first unit.
    """

    BLOCK_UNITS = 1024
    MAX_BLOCKS = 512
    # Queues that hold a block; the ones that were looked at longest ago give theirs back.
    _holding: ClassVar[OrderedDict[QueueFiles, None]] = OrderedDict()

    def __init__(self, topic: str, queue_id: int, directory: Path, unit_bytes: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.unit_bytes = unit_bytes
        self._block_bytes = self.BLOCK_UNITS * unit_bytes
        self.is_batch = unit_bytes == BATCH_UNIT_BYTES
        files = _numbered(directory)
        self.file_bytes = _usual_size(path for _, path in files)
        self.first_index = files[0][0] // unit_bytes if files else 0
        self.block, self.block_at = b"", 0
        self._files: list[tuple[int, Path]] = []
        expected = begin = files[0][0] if files else 0
        for offset, path in files:
            if offset != expected:
                break
            self._files.append((offset - begin, path))
            expected = offset + path.stat().st_size
        self.unit_count = 0
        for start, path in reversed(self._files):
            written = _written(path.read_bytes(), unit_bytes)
            if written:
                self.unit_count = start // unit_bytes + written
                break

    @property
    def end_index(self) -> int:
        """Number of the unit after the last one."""
        return self.first_index + self.unit_count

    def bring(self, place: int) -> bytes:
        """The unit that begins so many bytes behind the first one, empty where there is none; its block is at hand then."""
        if not 0 <= place < self.unit_count * self.unit_bytes:
            return b""
        self.block_at = place - place % self._block_bytes
        self.block = self._read(self.block_at, self._block_bytes)
        holding = self._holding
        holding[self] = None
        holding.move_to_end(self)
        if len(holding) > self.MAX_BLOCKS:
            other, _ = holding.popitem(last=False)
            other.block, other.block_at = b"", 0
        return self.block[place - self.block_at :][: self.unit_bytes]

    def stretch(self, place: int, size: int) -> bytes:
        """As many bytes from a place on, from the block at hand if they are there; fewer where units end."""
        start = place - self.block_at
        if start < 0 or start + size > len(self.block):
            self.bring(place)
            start = place - self.block_at
        if start >= 0 and start + size <= len(self.block):
            return self.block[start : start + size]
        return self._read(place, size) if place >= 0 else b""

    def _read(self, place: int, size: int) -> bytes:
        stop = min(place + size, self.unit_count * self.unit_bytes)
        parts = []
        for start, path in self._files:
            begin = max(place - start, 0)
            end = min(stop - start, self.file_bytes)
            if begin < end:
                with path.open("rb") as handle:
                    parts.append(os.pread(handle.fileno(), end - begin, begin))
        return b"".join(parts)

    def units(self) -> Iterator[tuple[int, ...]]:
        """All units in order."""
        layout = BATCH_UNIT if self.is_batch else CQ_UNIT
        for place in range(0, self.unit_count * self.unit_bytes, self._block_bytes):
            yield from layout.iter_unpack(self._read(place, self._block_bytes))

    def bounds(self, min_physical_offset: int) -> tuple[int, int]:
        """The smallest logical offset whose message the log still holds, and the next one."""
        if self.is_batch:
            low, high = None, 0
            for unit in self.units():
                if low is None and unit[0] >= min_physical_offset:
                    low = unit[4]
                high = unit[4] + unit[5]
            return (high if low is None else low), high
        for number, unit in enumerate(self.units(), self.first_index):
            if unit[0] >= min_physical_offset and unit[1] != CQ_FILLER_SIZE:
                return number, self.end_index
        return self.end_index, self.end_index


def _numbered(
    directory: Path, is_own: Callable[[str], bool] = is_file_name
) -> list[tuple[int, Path]]:
    """The files that are the store's by their names, with the numbers of these."""
    if not directory.is_dir():
        return []
    return sorted(
        (int(path.name), path)
        for path in directory.iterdir()
        if is_own(path.name) and path.is_file()
    )


def _usual_size(paths: Iterable[Path]) -> int:
    """The size that most of these files have, the larger one of two; 0 where there are none. Some may be cut, or too long."""
    counts = Counter(path.stat().st_size for path in paths)
    return max((count, size) for size, count in counts.items())[1] if counts else 0


def _data_ranges(path: Path, position: int) -> Iterator[tuple[int, int]]:
    """Parts of a file that are not holes, from a position."""
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        while position < size:
            try:
                begin = os.lseek(fd, position, os.SEEK_DATA)
            except OSError:
                # Only holes are left.
                return
            position = os.lseek(fd, begin, os.SEEK_HOLE)
            yield begin, position
    finally:
        os.close(fd)


def _written(data: bytes, unit_bytes: int) -> int:
    """How many units there are up to the last one that was written."""
    count = len(data.rstrip(b"\0")) // unit_bytes + 1
    count = min(count, len(data) // unit_bytes)
    while count and SIZE_FIELD.unpack_from(data, (count - 1) * unit_bytes + 8)[0] <= 0:
        count -= 1
    return count


class IndexFileView:
    """One index file, read only; its number of slots is found from what it holds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.stat().st_size < INDEX_HEADER_BYTES:
            raise StoreError(f"index file {path} has no header")
        with path.open("rb") as handle:
            self.data = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
        (
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_offset,
            self.end_offset,
            self.slots_used,
            count,
        ) = INDEX_HEADER.unpack_from(self.data)
        self.count = max(count, 1)
        self.slots = self._find_slots()

    def entries_at(self) -> int:
        """Position of entry 0, which is never used."""
        return INDEX_HEADER_BYTES + self.slots * INDEX_SLOT_BYTES

    @property
    def max_entries(self) -> int:
        """How many entries the file has room for."""
        return (len(self.data) - self.entries_at()) // INDEX_ENTRY_BYTES

    def entry_position(self, number: int) -> int:
        """Where an entry lies in the file."""
        return self.entries_at() + number * INDEX_ENTRY_BYTES

    def newest_of_slots(self) -> array[int]:
        """The newest entry of each slot, 0 where there is none."""
        slots = array("i", self.data[INDEX_HEADER_BYTES : self.entries_at()])
        if sys.byteorder == "little":
            slots.byteswap()
        return slots

    def _find_slots(self) -> int:
        """Slots and entries share the file in a way that it does not say: the one where header and entries agree."""
        room = len(self.data) - INDEX_HEADER_BYTES
        for slots in chain((_DEFAULT_SLOTS,), range(1, room // INDEX_SLOT_BYTES)):
            rest = room - slots * INDEX_SLOT_BYTES
            if rest <= 0 or rest % INDEX_ENTRY_BYTES or rest // INDEX_ENTRY_BYTES < self.count:
                continue
            if self._fits(slots):
                return slots
        raise StoreError(f"index file {self.path}: header and entries do not agree")

    def _fits(self, slots: int) -> bool:
        start = INDEX_HEADER_BYTES + slots * INDEX_SLOT_BYTES
        if self.count == 1:
            return True
        first = INDEX_ENTRY.unpack_from(self.data, start + INDEX_ENTRY_BYTES)
        last = INDEX_ENTRY.unpack_from(self.data, start + (self.count - 1) * INDEX_ENTRY_BYTES)
        if first[1] != self.begin_offset or first[3] != 0 or last[1] != self.end_offset:
            return False
        newest = INDEX_HEADER_BYTES + last[0] % slots * INDEX_SLOT_BYTES
        return bool(INDEX_SLOT.unpack_from(self.data, newest)[0] == self.count - 1)


class StoreDirectory:
    """A store directory.

    :param log_directory: where the log lies; several directories with commas between them.
    :ivar files: the log's files, oldest first.
    :ivar file_bytes: size of a log file.
    """

    def __init__(self, root: Path, log_directory: Path | None = None) -> None:
        self.root = root
        self.log_directory = log_directory or root / "commitlog"
        # It may name several, as the configuration does.
        directories = [Path(part) for part in split_paths(str(self.log_directory))]
        for directory in directories:
            if not directory.is_dir():
                raise StoreError(f"{root} is no store directory: {directory} is not there")
        self.files = [
            LogFile(offset, path, path.stat().st_size)
            for offset, path in sorted(found for path in directories for found in _numbered(path))
        ]
        self.file_bytes = self._log_file_bytes()
        # What is beyond a file's end belongs to nobody.
        self.files = [
            attrs.evolve(file, size=min(file.size, self.file_bytes)) for file in self.files
        ]
        self._maps: dict[int, mmap.mmap] = {}

    def _log_file_bytes(self) -> int:
        """The distance between most neighbours: files may have been cut. A file alone has the size that it has."""
        offsets = [file.base_offset for file in self.files]
        steps = Counter(after - before for before, after in pairwise(offsets))
        if not steps:
            return self.files[0].size if self.files else 0
        return max((count, -step) for step, count in steps.items())[1] * -1

    def make_files_whole(self) -> None:
        """Give files of the log that were cut, that are too long, or that are missing in the middle, their length: with zeros."""
        self._maps.clear()
        whole: list[LogFile] = []
        for file in self.files:
            while whole and whole[-1].base_offset + self.file_bytes < file.base_offset:
                base = whole[-1].base_offset + self.file_bytes
                whole.append(LogFile(base, file.path.with_name(file_name(base)), self.file_bytes))
            whole.append(attrs.evolve(file, size=self.file_bytes))
        for file in whole:
            with file.path.open("ab") as handle:
                handle.truncate(self.file_bytes)
                os.fsync(handle.fileno())
        self.files = whole

    @property
    def min_offset(self) -> int:
        """First byte of the oldest file."""
        return self.files[0].base_offset if self.files else 0

    @property
    def files_end(self) -> int:
        """Behind the last file; the log may end before."""
        return self.files[-1].base_offset + self.files[-1].size if self.files else 0

    def buffer_at(self, offset: int) -> tuple[LogFile, mmap.mmap] | None:
        """The file that holds an offset, mapped for reading."""
        for file in reversed(self.files):
            if file.base_offset <= offset:
                if offset >= file.base_offset + file.size:
                    return None
                buffer = self._maps.get(file.base_offset)
                if buffer is None:
                    if len(self._maps) >= 4:
                        # Records that were given out may still use it; it is closed with the last of them.
                        self._maps.pop(next(iter(self._maps)))
                    with file.path.open("rb") as handle:
                        buffer = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
                    self._maps[file.base_offset] = buffer
                return file, buffer
        return None

    def look(self, offset: int, *, check_crc: bool = True) -> LogRecord | LogFault | int | None:
        """What lies at an offset: a record, a fault, the offset where the log goes on (next file), or None: nothing was written."""
        found = self.buffer_at(offset)
        if found is None:
            later = [file.base_offset for file in self.files if file.base_offset > offset]
            return LogFault(offset, later[0], "a log file is missing") if later else None
        file, buffer = found
        position = offset - file.base_offset
        if file.size - position < BLANK_RECORD_BYTES:
            return file.base_offset + self.file_bytes
        try:
            head = scan_head(cast(memoryview, buffer), position, check_crc=check_crc)
        except RecordError as error:
            return LogFault(offset, None, str(error).partition(": ")[2])
        if head is None:
            return None
        if head.is_blank:
            return file.base_offset + self.file_bytes
        reason = record_fault(offset, head)
        if reason is not None:
            return LogFault(offset, None, reason)
        return LogRecord(offset, head, buffer, position)

    def find_record(self, offset: int) -> LogRecord | None:
        """The first whole record at or behind an offset."""
        for file in self.files:
            end = file.base_offset + file.size
            if end <= offset:
                continue
            found = self.buffer_at(max(offset, file.base_offset))
            if found is None:
                continue
            for begin, stop in _data_ranges(file.path, max(offset - file.base_offset, 0)):
                record = self._find_in(file, found[1], begin, stop)
                if record is not None:
                    return record
        return None

    def _find_in(self, file: LogFile, buffer: mmap.mmap, begin: int, stop: int) -> LogRecord | None:
        """The first whole record of a file that begins in this range."""
        at = buffer.find(_MAGIC_HEAD, begin + 4, stop + 8)
        while at >= 0:
            if file.size - at >= MIN_RECORD_BYTES - 4:
                record = self.look(file.base_offset + at - 4)
                if isinstance(record, LogRecord):
                    return record
            at = buffer.find(_MAGIC_HEAD, at + 1, stop + 8)
        return None

    def fault_at(self, offset: int, newest_ms: int) -> LogFault | None:
        """What is wrong where `look` found no record; None at the log's regular end.

        Records behind it that are older than those before are leftovers of an earlier cut, and no sign of damage.
        """
        found = self.look(offset)
        behind = self.find_record(offset + 1)
        if behind is not None and behind.head.store_timestamp < newest_ms - RECOVERY_REWIND_MS:
            behind = None
        if behind is None and found is None:
            return None
        reason = found.reason if isinstance(found, LogFault) else "nothing was written there"
        return LogFault(offset, behind.offset if behind else None, reason)

    def walk(
        self, offset: int | None = None, *, check_crc: bool = True
    ) -> Iterator[LogRecord | LogFault]:
        """All records in the order of the log; between them what is none."""
        at = self.min_offset if offset is None else offset
        newest_ms = 0
        while True:
            found = self.look(at, check_crc=check_crc)
            if isinstance(found, LogRecord):
                yield found
                newest_ms = found.head.store_timestamp
                at = found.offset + found.head.total_size
            elif isinstance(found, int):
                at = found
            else:
                fault = self.fault_at(at, newest_ms)
                if fault is None:
                    return
                yield fault
                if fault.end is None:
                    return
                at = fault.end

    def queues(self) -> Iterator[QueueFiles]:
        """All consume queues, by topic and number."""
        for kind, unit_bytes in _KINDS:
            root = self.root / kind
            for topic in sorted(root.iterdir()) if root.is_dir() else ():
                numbers = topic.iterdir() if topic.is_dir() else ()
                for path in sorted(
                    (path for path in numbers if is_queue_name(path.name) and path.is_dir()),
                    key=lambda path: int(path.name),
                ):
                    yield QueueFiles(topic.name, int(path.name), path, unit_bytes)

    def known_topics(self) -> frozenset[str] | None:
        """Topics that the broker's table of topics has; None when it cannot be read. Others were deleted."""
        try:
            data = json.loads((self.root / "config" / "topics.json").read_bytes())
            return frozenset(data["topicConfigTable"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def index_paths(self) -> list[Path]:
        """The index files, oldest first."""
        return [
            path for _, path in _numbered(self.root / "index", is_index_name) if path.stat().st_size
        ]

    def checkpoint(self) -> dict[str, int] | None:
        """The checkpoint's numbers, None when there are none."""
        path = self.root / "checkpoint"
        data = path.read_bytes()[: CHECKPOINT.size] if path.is_file() else b""
        if len(data) < CHECKPOINT.size:
            return None
        names = ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp")
        return dict(
            zip(
                (*names, "masterFlushedOffset", "confirmPhyOffset"),
                CHECKPOINT.unpack(data),
                strict=True,
            )
        )

    def is_locked(self) -> bool:
        """Whether another process holds the store's lock."""
        try:
            fd = os.open(self.root / "lock", os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            answer = fcntl.fcntl(fd, fcntl.F_GETLK, asked)
            return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
        finally:
            os.close(fd)

    def _queue_file_bytes(self, kind: str) -> int:
        return _usual_size(
            path
            for path in self.root.glob(f"{kind}/*/*/*")
            if is_file_name(path.name) and path.is_file()
        )

    def config(self, base: MessageStoreConfig | None = None) -> MessageStoreConfig:
        """A configuration under which a store opens this directory: the sizes of the files that are there.

        :param base: what the broker's configuration says, for what no file says.
        """
        config = MessageStoreConfig() if base is None else copy.copy(base)
        config.store_path_root_dir = str(self.root)
        if self.log_directory != self.root / "commitlog":
            config.store_path_commit_log = str(self.log_directory)
        if self.file_bytes:
            config.mapped_file_size_commit_log = self.file_bytes
        if size := self._queue_file_bytes("batchconsumequeue"):
            config.mapper_file_size_batch_consume_queue = size
        if size := self._queue_file_bytes("consumequeue"):
            config.mapped_file_size_consume_queue = size
        if any(is_lmq(queue.topic) for queue in self.queues()):
            config.enable_lmq = config.enable_multi_dispatch = True
        if size := self._queue_file_bytes(EXTENSION_KIND):
            config.enable_consume_queue_ext = True
            config.mapped_file_size_consume_queue_ext = size
        for path in self.index_paths():
            try:
                view = IndexFileView(path)
            except StoreError:
                continue
            if view.count > 1:
                config.max_hash_slot_num, config.max_index_num = view.slots, view.max_entries
        return config
