"""How are units of one size kept in files without a mapping or an open file for each queue?

Stands for what ``MappedFileQueue`` does for the official ``ConsumeQueue`` and ``BatchConsumeQueue``. Files have the
official size and name (20 digits, the first byte's offset) and are sparse; a unit whose record size is not positive was
never written.

The newest units live in memory (``tail``), so that readers who keep up touch no disk; they are written behind in the
background (`write_units`). A broker may have 80,000 queues: an idle one costs this object and nothing else.

Crash story: units that were not written yet are lost with the process; recovery derives them again from the commit log.
A torn or stale end is cut by recovery, which knows up to which log offset the units can be trusted.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from struct import Struct

from twisted.logger import Logger

from txrocketmq.codec.storefiles import CQ_FILLER_SIZE, SIZE_FIELD, SIZE_FIELD_POSITION
from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IDisk
from txrocketmq.store.filenames import is_file_name
from txrocketmq.store.mapped import file_name

log = Logger()

FileWrite = tuple[str, int, bytes, int]
"""Path, position in the file, data, and the length that the file must have."""

_PROBE_BYTES = 4096

#: Both kinds of units begin with physical offset and size.
_HEAD = Struct(">qi")


class ColdRead(Exception):
    """Bytes are not in memory: read them in the pool, then try again.

    :ivar reads: path, position and size of each.
    """

    def __init__(self, reads: list[tuple[str, int, int]]) -> None:
        super().__init__(f"{len(reads)} reads are cold")
        self.reads = reads


def write_units(disk: IDisk, writes: list[FileWrite], sync: bool) -> None:
    """Carry out writes of any number of queues (blocking; pool only).

    :param sync: also force them to the device, so that a checkpoint may count on them.
    """
    paths: dict[str, None] = {}
    directories: dict[str, None] = {}
    for path, position, data, file_bytes in writes:
        is_new = position == 0
        if not is_new:
            try:
                disk.write_at(path, position, data)
            except FileNotFoundError:
                is_new = True
        if is_new:
            disk.create(path, file_bytes)
            disk.write_at(path, position, data)
            directories.update(dict.fromkeys(_directories(path)))
        paths[path] = None
    if sync:
        # All files before all directories: one commit of the file system's journal covers most of the calls.
        for path in paths:
            disk.sync_file(path)
        for directory in directories:
            disk.sync_directory(directory)


def _directories(path: str) -> list[str]:
    """Directories whose entries lead to a queue's file: queue id, topic, kind of queue, store."""
    found = []
    for _ in range(4):
        path = os.path.dirname(path)
        found.append(path)
    return found


class BlockCache:
    """Blocks of older units, shared by all queues, least recently used dropped first.

    :param capacity: how many blocks are kept.
    """

    BLOCK_UNITS = 1024

    def __init__(self, disk: IDisk, capacity: int = 256) -> None:
        self.disk = disk
        self._capacity = capacity
        self._blocks: OrderedDict[tuple[str, int], tuple[int, bytes]] = OrderedDict()

    def read(self, log: UnitLog, index: int, end: int, ready_only: bool) -> bytes:
        """The bytes of units of one block; fewer where files are missing.

        :raises ColdRead: with ``ready_only``, where the device would have to be asked.
        """
        number = index // self.BLOCK_UNITS
        key = (log.directory, number)
        # The oldest file may begin within the block.
        start, block = self._blocks.get(key, (0, b""))
        unit_bytes = log.unit_bytes
        if len(block) < (end - start) * unit_bytes or start > index:
            start = max(number * self.BLOCK_UNITS, log.first_index)
            block_end = min((number + 1) * self.BLOCK_UNITS, log.written_index)
            block = log.read_files(self.disk, start, block_end, ready_only)
            self._blocks[key] = (start, block)
            if len(self._blocks) > self._capacity:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(key)
        if index < start or len(block) < (end - start) * unit_bytes:
            # A file is missing somewhere in the block.
            return log.read_files(self.disk, index, end, ready_only)
        return block[(index - start) * unit_bytes : (end - start) * unit_bytes]

    def forget(self, directory: str) -> None:
        """Drop all blocks of a queue that was cut or deleted."""
        for key in [key for key in self._blocks if key[0] == directory]:
            del self._blocks[key]


class UnitLog:
    """A growing row of units in files of one directory.

    Units are numbered from the byte offset 0 of the row, whether or not the files from there still exist.

    :ivar first_index: the first unit of the oldest file.
    :ivar end_index: the number of the next unit.
    :ivar tail: the bytes of units ``tail_index`` up to ``end_index``.
    :ivar written_index: units below it are in the files (not necessarily synced).
    :ivar is_torn: files behind its end were found, and are gone: what was in them has to be derived again.
    :ivar dirty: on its owner's list of rows to be written.
    :ivar dirty_since_ms: store time of the newest message when it came there: all of its older units are written.
    """

    __slots__ = (
        "directory",
        "dirty",
        "dirty_since_ms",
        "end_index",
        "file_bytes",
        "first_index",
        "is_torn",
        "tail",
        "tail_index",
        "unit_bytes",
        "written_index",
    )

    def __init__(self, directory: str, unit_bytes: int, file_bytes: int) -> None:
        self.directory = directory
        self.unit_bytes = unit_bytes
        self.file_bytes = file_bytes
        self.first_index = 0
        self.is_torn = False
        self.dirty = False
        self.dirty_since_ms = 0
        self._reset(0)

    def _reset(self, index: int) -> None:
        self.end_index = self.tail_index = self.written_index = index
        self.tail = bytearray()

    # ------------------------------------------------------------------ opening

    def load(self, disk: IDisk, log_start: int = 0) -> None:
        """Find the row's files and its end. Where one of its files is missing it ends before that, or, when the log does not hold
        the messages before any more, begins behind it.

        :param log_start: the first byte of the log.
        :raises StoreError: a file is longer than configured, or shorter and neither empty nor the last one.
        """
        names = [name for name in disk.listdir(self.directory) if is_file_name(name)]
        if not names:
            self.first_index = 0
            self._reset(0)
            return
        if int(names[-1]) - int(names[0]) != (len(names) - 1) * self.file_bytes:
            names = self._without_gap(disk, names, log_start)
        for name in names:
            self._check_file(disk, name, is_last=name == names[-1])
        last_offset = int(names[-1])
        self.first_index = int(names[0]) // self.unit_bytes
        self._reset(last_offset // self.unit_bytes + self._find_end(disk, names[-1]))

    def _without_gap(self, disk: IDisk, names: list[str], log_start: int) -> list[str]:
        """The files of the row that hang together; the others are deleted."""
        gaps = [
            number
            for number in range(1, len(names))
            if int(names[number]) - int(names[number - 1]) != self.file_bytes
        ]
        head = disk.read_at(f"{self.directory}/{names[gaps[-1]]}", 0, _HEAD.size)
        offset, size = _HEAD.unpack(head) if len(head) == _HEAD.size else (0, 0)
        if 0 < size < CQ_FILLER_SIZE and offset <= log_start:
            kept = names[gaps[-1] :]
        else:
            kept = names[: gaps[0]]
            self.is_torn = True
        log.error(
            "files of {directory} are missing behind {names}: {count} of {all} are left",
            directory=self.directory,
            names=", ".join(names[number - 1] for number in gaps[:5]),
            count=len(kept),
            all=len(names),
        )
        # From the end backwards, or from the beginning on: what a crash leaves has the same gap.
        doomed = [name for name in names if name not in set(kept)]
        for name in reversed(doomed) if self.is_torn else doomed:
            disk.remove(f"{self.directory}/{name}")
        return kept

    def _check_file(self, disk: IDisk, name: str, *, is_last: bool) -> None:
        path = f"{self.directory}/{name}"
        size = disk.size(path)
        if size == self.file_bytes:
            return
        if size > self.file_bytes or (size and not is_last):
            raise StoreError(
                f"{path} has {size} bytes, the configured file size is {self.file_bytes}:"
                " it must stay what it was when the store was made"
            )
        # A crash between the creation of the file and its extension, or a cut; recovery derives again what is missing.
        disk.truncate(path, self.file_bytes)

    def _find_end(self, disk: IDisk, name: str) -> int:
        """How many units of a file were written: they are a prefix, so halving finds its end."""
        path, unit_bytes = f"{self.directory}/{name}", self.unit_bytes

        def written(unit: int) -> bool:
            size = disk.read_at(path, unit * unit_bytes + SIZE_FIELD_POSITION, SIZE_FIELD.size)
            return len(size) == SIZE_FIELD.size and SIZE_FIELD.unpack(size)[0] > 0

        low, high = 0, self.file_bytes // unit_bytes
        step = _PROBE_BYTES // unit_bytes
        # Most queues are short: look at the first page, then further, before halving.
        probe = step
        while probe < high and written(probe - 1):
            low = probe
            probe *= 4
        high = min(high, probe)
        while high - low > step:
            middle = (low + high) // 2
            if written(middle):
                low = middle + 1
            else:
                high = middle
        data = disk.read_at(path, low * unit_bytes, (high - low) * unit_bytes)
        for position in range(SIZE_FIELD_POSITION, len(data) - 3, unit_bytes):
            if SIZE_FIELD.unpack_from(data, position)[0] <= 0:
                break
            low += 1
        return low

    # ------------------------------------------------------------------ reading

    def read(self, cache: BlockCache, index: int, count: int, ready_only: bool = False) -> bytes:
        """The bytes of up to ``count`` units from ``index``; fewer at the end of the row or where a file is gone.

        :raises ColdRead: with ``ready_only``, where the device would have to be asked.
        """
        unit_bytes = self.unit_bytes
        tail_index = self.tail_index
        if index >= tail_index:
            start = (index - tail_index) * unit_bytes
            return bytes(self.tail[start : start + count * unit_bytes])
        end = min(index + count, self.end_index)
        parts = []
        position, files_end = index, min(end, tail_index)
        while position < files_end:
            within = position % BlockCache.BLOCK_UNITS
            stop = min(files_end, position - within + BlockCache.BLOCK_UNITS)
            piece = cache.read(self, position, stop, ready_only)
            parts.append(piece)
            if len(piece) < (stop - position) * unit_bytes:
                return b"".join(parts)
            position = stop
        if end > tail_index:
            parts.append(bytes(self.tail[: (end - tail_index) * unit_bytes]))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_files(self, disk: IDisk, index: int, end: int, ready_only: bool = False) -> bytes:
        """The bytes of units from the files alone; stops before a file that is missing."""
        parts = []
        read = disk.read_ready if ready_only else disk.read_at
        position, stop = index * self.unit_bytes, end * self.unit_bytes
        while position < stop:
            start_of_file = position - position % self.file_bytes
            wanted = min(stop, start_of_file + self.file_bytes) - position
            path, within = f"{self.directory}/{file_name(start_of_file)}", position - start_of_file
            try:
                piece = read(path, within, wanted)
            except FileNotFoundError:
                break
            if piece is None:
                raise ColdRead([(path, within, wanted)])
            parts.append(piece)
            if len(piece) < wanted:
                break
            position += wanted
        return b"".join(parts)

    # ------------------------------------------------------------------ writing

    @property
    def unwritten_bytes(self) -> int:
        """Bytes that wait in memory for their file."""
        return (self.end_index - self.written_index) * self.unit_bytes

    def begin_at(self, index: int, filler: bytes) -> None:
        """Let an empty row begin at a later unit: the rest of that unit's file before it is filled."""
        file_units = self.file_bytes // self.unit_bytes
        self.first_index = index - index % file_units
        self._reset(self.first_index)
        self.tail += filler * (index - self.first_index)
        self.end_index = index

    def unwritten(self) -> list[FileWrite]:
        """What has to be written, split where files end."""
        position, stop = self.written_index * self.unit_bytes, self.end_index * self.unit_bytes
        tail_position = self.tail_index * self.unit_bytes
        writes = []
        while position < stop:
            start_of_file = position - position % self.file_bytes
            end = min(stop, start_of_file + self.file_bytes)
            data = bytes(self.tail[position - tail_position : end - tail_position])
            path = f"{self.directory}/{file_name(start_of_file)}"
            writes.append((path, position - start_of_file, data, self.file_bytes))
            position = end
        return writes

    def forget_before(self, index: int) -> list[str]:
        """Let the row begin with the file of a unit; the paths of the written files before it, which may be deleted.

        The last written file stays, as officially: it alone says where the row ends.
        """
        file_units = self.file_bytes // self.unit_bytes
        paths = []
        while self.first_index + file_units <= min(index, self.written_index - 1):
            paths.append(f"{self.directory}/{file_name(self.first_index * self.unit_bytes)}")
            self.first_index += file_units
        return paths

    def mark_written(self, index: int, retained_units: int) -> None:
        """Units below ``index`` reached their files: keep only the newest ``retained_units`` of them in memory."""
        self.written_index = index
        keep_from = min(index, self.end_index - retained_units)
        # Moving a tail costs a copy of it: only when that frees at least as much as stays.
        if keep_from - self.tail_index >= max(self.end_index - keep_from, 1):
            del self.tail[: (keep_from - self.tail_index) * self.unit_bytes]
            self.tail_index = keep_from

    def cut(self, disk: IDisk, index: int) -> None:
        """Forget the units from ``index`` on, in memory and on disk (blocking).

        What is cut must not be found again by the next start, so the rest of the file becomes zero. The end of a start sees to
        it that the device knows.
        """
        position = index * self.unit_bytes
        for name in disk.listdir(self.directory):
            if not is_file_name(name):
                continue
            path, offset = f"{self.directory}/{name}", int(name)
            if offset >= position:
                disk.remove(path)
            elif offset + self.file_bytes > position:
                disk.zero_from(path, position - offset)
        if index <= self.first_index:
            self.first_index = index - index % (self.file_bytes // self.unit_bytes)
        if index >= self.tail_index:
            del self.tail[(index - self.tail_index) * self.unit_bytes :]
            self.end_index = index
            self.written_index = min(self.written_index, index)
        else:
            self._reset(index)
