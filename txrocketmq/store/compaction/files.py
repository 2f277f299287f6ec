"""What lies in the files of a compacted queue, and how do messages get there?

Stands for ``CompactionLog.TopicPartitionLog`` and its ``SparseConsumeQueue``::

    <storePathRootDir>/compaction/compactionLog/<topic>/<queueId>/<20 digits>    records, as in the commit log
                                  compactionCq/<topic>/<queueId>/<20 digits>     batch units of 46 bytes, one for each record

Each log file has a queue file of the same name. A log file that is full ends with a blank record, its queue file with an end unit (offset
-1). The record's physical offset is its place in this log. Queue offsets have gaps where messages were compacted away.

All functions block and run in a pool.

Crash story: a log file reaches the device before its units are written. So units that follow one another without a gap, up to
the first that does not, are right; what lies behind the last is cut.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from struct import Struct

import attrs
from twisted.logger import Logger

from txrocketmq.codec.record import blank_record, scan_head
from txrocketmq.codec.storefiles import BATCH_NOT_COMPACTED, BATCH_UNIT, BATCH_UNIT_BYTES
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import RecordError, StoreError
from txrocketmq.interfaces import IDisk
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.properties import parse_properties
from txrocketmq.store.mapped import file_name

DIRECTORY = "compaction"
LOG_DIRECTORY = "compactionLog"
QUEUE_DIRECTORY = "compactionCq"

END_UNIT = BATCH_UNIT.pack(-1, 0, 0, 0, 0, 0, BATCH_NOT_COMPACTED, 0)
"""Stands behind the last unit of a file that takes no more."""

_BLANK_BYTES = 8
_CHUNK_BYTES = 1 << 20
_PHYSICAL_POSITION = 28
_LONG = Struct(">q")

log = Logger()


@attrs.frozen
class Layout:
    """Where a queue's files are, and how long they are.

    :ivar log_bytes: length of a log file: officially a multiple of the queue file's, at least five times.
    :ivar unit_bytes: length of a queue file: whole units.
    """

    log_directory: str
    queue_directory: str
    log_bytes: int
    unit_bytes: int

    def below(self, name: str) -> Layout:
        """The same in a directory within each."""
        return attrs.evolve(
            self,
            log_directory=f"{self.log_directory}/{name}",
            queue_directory=f"{self.queue_directory}/{name}",
        )

    def log_path(self, base: int) -> str:
        """The log file that begins at an offset."""
        return f"{self.log_directory}/{file_name(base)}"

    def queue_path(self, base: int) -> str:
        """The queue file that belongs to it."""
        return f"{self.queue_directory}/{file_name(base)}"


def layout_of(config: MessageStoreConfig, topic: str, queue_id: int) -> Layout:
    """The files of a queue, with the official sizes."""
    root = f"{config.store_path_root_dir}/{DIRECTORY}"
    unit_bytes = config.compaction_cq_mapped_file_size // BATCH_UNIT_BYTES * BATCH_UNIT_BYTES
    count, rest = divmod(config.compaction_mapped_file_size, unit_bytes)
    if count < 5:
        count = 5
    elif not 0 < rest < unit_bytes // 2:
        count += 1
    return Layout(
        f"{root}/{LOG_DIRECTORY}/{topic}/{queue_id}",
        f"{root}/{QUEUE_DIRECTORY}/{topic}/{queue_id}",
        count * unit_bytes,
        unit_bytes,
    )


@attrs.frozen
class Segment:
    """One log file with its queue file.

    :ivar base: offset of the log file's first byte.
    :ivar units: how many messages there are.
    :ivar first: queue offset of the first one; -1 when there is none.
    :ivar last: and of the last one.
    :ivar log_end: bytes of the log file that are used.
    :ivar is_full: it takes no more messages.
    """

    base: int
    units: int = 0
    first: int = -1
    last: int = -1
    log_end: int = 0
    is_full: bool = False


@attrs.frozen
class Kept:
    """A message as it is put into the log.

    :ivar key: its ``KEYS``; empty when it has none.
    """

    record: bytes
    queue_offset: int
    store_timestamp_ms: int
    tags_code: int
    key: str
    body_size: int


def kept_at(data: bytes, position: int, *, check_crc: bool = False) -> Kept | None:
    """The message at a position; None at a blank record and where nothing was written.

    :raises RecordError: something else is there.
    """
    head = scan_head(data, position, check_crc=check_crc)
    if head is None or head.is_blank:
        return None
    properties = parse_properties(head.properties)
    keys = properties.get("KEYS", "")
    return Kept(
        data[position : position + head.total_size],
        head.queue_offset,
        head.store_timestamp,
        tags_code(properties.get("TAGS")),
        keys if keys.strip() else "",
        head.body_size,
    )


def without_place(record: bytes) -> bytes:
    """A record without its physical offset, which is another one in each log."""
    return record[:_PHYSICAL_POSITION] + record[_PHYSICAL_POSITION + _LONG.size :]


def end_of(record: bytes) -> int:
    """Where a record ends in the log that it is from."""
    begin: int = _LONG.unpack_from(record, _PHYSICAL_POSITION)[0]
    return begin + len(record)


# --------------------------------------------------------------------- writing


class Appender:
    """Puts messages behind a row of files; nothing is written before `flush`.

    :param last: the file that is written, None when there is none yet.
    :ivar changed: the files that got something, in order; the first may be a new state of ``last``.
    """

    def __init__(self, disk: IDisk, layout: Layout, last: Segment | None) -> None:
        self._disk = disk
        self._layout = layout
        self._last = last
        self._log = bytearray()
        self._units = bytearray()
        # Where the bytes that wait belong.
        self._at = (0, 0) if last is None else (last.log_end, last.units * BATCH_UNIT_BYTES)
        self.changed: list[Segment] = []

    def put(self, kept: Kept) -> bool:
        """Take a message; False when it is larger than a file."""
        layout, size = self._layout, len(kept.record)
        if size + _BLANK_BYTES > layout.log_bytes:
            return False
        if self._last is None or self._last.is_full or self._is_end(self._last, size):
            self._roll()
        last = self._last
        assert last is not None
        record = bytearray(kept.record)
        physical = last.base + last.log_end
        _LONG.pack_into(record, _PHYSICAL_POSITION, physical)
        self._log += record
        self._units += BATCH_UNIT.pack(
            physical,
            size,
            kept.tags_code,
            kept.store_timestamp_ms,
            kept.queue_offset,
            1,
            BATCH_NOT_COMPACTED,
            0,
        )
        self._last = attrs.evolve(
            last,
            units=last.units + 1,
            first=last.first if last.units else kept.queue_offset,
            last=kept.queue_offset,
            log_end=last.log_end + size,
        )
        if len(self._log) >= _CHUNK_BYTES:
            self.flush()
        return True

    def _is_end(self, last: Segment, size: int) -> bool:
        """Whether a record does not fit any more. The queue file keeps room for its end unit, as officially."""
        layout = self._layout
        return (
            (last.units + 1) * BATCH_UNIT_BYTES >= layout.unit_bytes
            or last.log_end + size + _BLANK_BYTES > layout.log_bytes
        )

    def _roll(self) -> None:
        last, layout = self._last, self._layout
        if last is None:
            base = 0
        else:
            base = last.base + layout.log_bytes
            if not last.is_full:
                self._log += blank_record(layout.log_bytes - last.log_end)
                self._units += END_UNIT
                self._last = attrs.evolve(last, is_full=True)
            self.flush()
        self._last = Segment(base)
        self._at = (0, 0)

    def flush(self) -> None:
        """Write what waits, and let the device have it: the log before the units that point there."""
        last, disk, layout = self._last, self._disk, self._layout
        if last is None or not self._units:
            return
        log_at, units_at = self._at
        log_path, queue_path = layout.log_path(last.base), layout.queue_path(last.base)
        if units_at == 0:
            for path, size in ((log_path, layout.log_bytes), (queue_path, layout.unit_bytes)):
                disk.makedirs(os.path.dirname(path))
                disk.create(path, size)
        disk.write_at(log_path, log_at, self._log)
        disk.sync_file(log_path)
        disk.write_at(queue_path, units_at, self._units)
        disk.sync_file(queue_path)
        if units_at == 0:
            # An earlier process may have made any of them, and ended before it was on the device.
            for directory in dict.fromkeys([*_directories(log_path), *_directories(queue_path)]):
                disk.sync_directory(directory)
        self._at = (log_at + len(self._log), units_at + len(self._units))
        self._log, self._units = bytearray(), bytearray()
        if self.changed and self.changed[-1].base == last.base:
            self.changed.pop()
        self.changed.append(last)


def _directories(path: str) -> list[str]:
    """Directories whose entries lead to a file: queue id, topic, log or queues, all of compaction, store."""
    found = []
    for _ in range(5):
        path = os.path.dirname(path)
        found.append(path)
    return found


def append(
    disk: IDisk, layout: Layout, last: Segment | None, messages: Sequence[Kept]
) -> list[Segment]:
    """Put messages behind the last file; the files that got something, all of it on the device."""
    appender = Appender(disk, layout, last)
    for kept in messages:
        if not kept.key:
            log.warn(
                "{directory}: message {offset} has no key and is left out",
                directory=layout.log_directory,
                offset=kept.queue_offset,
            )
        elif not appender.put(kept):
            log.error(
                "{directory}: message {offset} is larger than a file and is left out",
                directory=layout.log_directory,
                offset=kept.queue_offset,
            )
    appender.flush()
    return appender.changed


# --------------------------------------------------------------------- reading


def messages_of(disk: IDisk, layout: Layout, segment: Segment) -> Iterator[Kept]:
    """All messages of a file, a chunk at a time.

    :raises StoreError: a record is damaged.
    """
    path, position = layout.log_path(segment.base), 0
    data, start = b"", 0
    while position < segment.log_end:
        within = position - start
        try:
            kept = kept_at(data, within, check_crc=True) if len(data) > within else None
        except RecordError:
            kept = None
        if kept is None:
            if start == position and data:
                raise StoreError(f"{path}: no valid record at byte {position}")
            size = _LENGTH.unpack(disk.read_at(path, position, 4))[0]
            data = disk.read_at(
                path, position, min(max(size, _CHUNK_BYTES), segment.log_end - position)
            )
            start = position
            continue
        yield kept
        position += len(kept.record)


_LENGTH = Struct(">i")


@attrs.frozen
class Found:
    """What a read found: units as ``(queue offset, tags code, size)``, and their records, each by itself."""

    units: tuple[tuple[int, int, int], ...]
    records: tuple[bytes, ...]


def read(
    disk: IDisk,
    layout: Layout,
    segment: Segment,
    offset: int,
    max_messages: int,
    max_bytes: int,
) -> Found:
    """Messages of one file, from a queue offset or the next one that is there; the first whatever its size."""
    path = layout.queue_path(segment.base)
    low = _number_of(disk, path, segment.units, offset)
    units: list[tuple[int, int, int]] = []
    begin = total = 0
    count = min(max_messages, segment.units - low)
    for unit in _units_at(disk, path, low, max(count, 1)) if low < segment.units else ():
        physical, size, code, _, queue_offset = unit[:5]
        if units and total + size > max_bytes:
            break
        if not units:
            begin = physical - segment.base
        units.append((queue_offset, code, size))
        total += size
    # Units follow one another without a gap, and so do their records.
    data = disk.read_at(layout.log_path(segment.base), begin, total) if units else b""
    records, position = [], 0
    for _, _, size in units:
        records.append(data[position : position + size])
        position += size
    return Found(tuple(units), tuple(records))


def _number_of(disk: IDisk, path: str, units: int, offset: int) -> int:
    """The number of the first unit at or behind a queue offset."""
    low, high = 0, units
    while low < high:
        middle = (low + high) // 2
        if _units_at(disk, path, middle, 1)[0][4] < offset:
            low = middle + 1
        else:
            high = middle
    return low


def _units_at(disk: IDisk, path: str, number: int, count: int) -> list[tuple[int, ...]]:
    data = disk.read_at(path, number * BATCH_UNIT_BYTES, count * BATCH_UNIT_BYTES)
    whole = len(data) - len(data) % BATCH_UNIT_BYTES
    return list(BATCH_UNIT.iter_unpack(data[:whole]))


# --------------------------------------------------------------------- start


def load_segment(disk: IDisk, layout: Layout, base: int, *, is_last: bool) -> Segment:
    """What a file holds, by its units. What is behind the last right one of the last file becomes zero."""
    path = layout.queue_path(base)
    count, end = 0, base
    first = last = -1
    is_full = not is_last
    step = _CHUNK_BYTES // BATCH_UNIT_BYTES
    most = layout.unit_bytes // BATCH_UNIT_BYTES
    at_end = False
    while count < most and not at_end:
        for unit in _units_at(disk, path, count, min(step, most - count)):
            physical, size, _, _, queue_offset, messages = unit[:6]
            if physical == -1:
                is_full = at_end = True
                break
            if physical != end or size <= 0 or messages <= 0 or queue_offset <= last:
                at_end = True
                break
            if end + size > base + layout.log_bytes:
                at_end = True
                break
            first = queue_offset if first < 0 else first
            last, end, count = queue_offset, end + size, count + 1
    found = Segment(base, count, first, last, end - base, is_full)
    if is_last and not is_full:
        _zero(disk, path, count * BATCH_UNIT_BYTES)
        _zero(disk, layout.log_path(base), found.log_end)
    return found


def _zero(disk: IDisk, path: str, position: int) -> None:
    if disk.next_data(path, position) < disk.size(path):
        disk.zero_from(path, position)


def derive_units(disk: IDisk, layout: Layout, base: int) -> Segment:
    """Write a log file's queue file anew; its records end at the first that is none."""
    log_path, queue_path = layout.log_path(base), layout.queue_path(base)
    units, position = bytearray(), 0
    first = last = -1
    data, start = b"", 0
    while position < layout.log_bytes:
        within = position - start
        kept = None
        with contextlib.suppress(RecordError):
            kept = kept_at(data, within, check_crc=True) if len(data) > within else None
        if kept is None:
            if start == position and data:
                break
            head = disk.read_at(log_path, position, 4)
            size = _LENGTH.unpack(head)[0] if len(head) == 4 else 0
            data = disk.read_at(
                log_path, position, min(max(size, _CHUNK_BYTES), layout.log_bytes - position)
            )
            start = position
            if not data:
                break
            continue
        if kept.queue_offset <= last:
            break
        size = len(kept.record)
        units += BATCH_UNIT.pack(
            base + position,
            size,
            kept.tags_code,
            kept.store_timestamp_ms,
            kept.queue_offset,
            1,
            BATCH_NOT_COMPACTED,
            0,
        )
        first = kept.queue_offset if first < 0 else first
        last = kept.queue_offset
        position += size
    disk.makedirs(layout.queue_directory)
    disk.create(queue_path, layout.unit_bytes)
    disk.zero_from(queue_path, 0)
    disk.write_at(queue_path, 0, units[: layout.unit_bytes])
    disk.sync_file(queue_path)
    disk.sync_directory(layout.queue_directory)
    return Segment(base, len(units) // BATCH_UNIT_BYTES, first, last, position)


def cut(disk: IDisk, layout: Layout, segments: Sequence[Segment], end_offset: int) -> list[Segment]:
    """Drop the messages from a queue offset on; the files that are left."""
    kept = list(segments)
    while kept and kept[-1].last >= end_offset:
        segment = kept.pop()
        log_path, queue_path = layout.log_path(segment.base), layout.queue_path(segment.base)
        if segment.first >= end_offset:
            disk.remove(log_path)
            disk.remove(queue_path)
            disk.sync_directory(layout.log_directory)
            disk.sync_directory(layout.queue_directory)
            continue
        count = _number_of(disk, queue_path, segment.units, end_offset)
        before = _units_at(disk, queue_path, count - 1, 1)[0]
        log_end = before[0] + before[1] - segment.base
        for path, end in ((queue_path, count * BATCH_UNIT_BYTES), (log_path, log_end)):
            disk.zero_from(path, end)
            disk.sync_file(path)
        kept.append(Segment(segment.base, count, segment.first, before[4], log_end))
        break
    return kept
