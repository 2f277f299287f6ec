"""How do tests have a disk without a file system? `MemoryDisk`, an honest `IDisk`: the suite of the real one runs on it.

Honest means: blocks have to be allocated before a mapping may be written, and there may be no room for them; bytes count as
on the device only once they were synced; errors carry the real errno.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from zope.interface import implementer

from txrocketmq.errors import StoreError, StoreLockedError
from txrocketmq.interfaces import IDisk, IMapping

BLOCK_BYTES = 4096


class _File:
    """Bytes as programs see them, and which of them the device has."""

    __slots__ = ("allocated", "blocks", "data", "synced", "synced_size")

    def __init__(self, size: int = 0) -> None:
        self.data = bytearray(size)
        #: What is missing at its end is zero.
        self.synced = bytearray()
        self.synced_size = size
        #: Blocks that exist.
        self.blocks: set[int] = set()
        #: Everything below is allocated for a mapping.
        self.allocated = 0

    def device(self) -> bytes:
        """What the device has, as long as the file was when it was synced."""
        return bytes(self.synced).ljust(self.synced_size, b"\0")

    def sync(self, start: int, end: int) -> None:
        """The device has a part, too."""
        self.synced_size = len(self.data)
        del self.synced[self.synced_size :]
        if start < end:
            self.synced.extend(bytes(max(0, start - len(self.synced))))
            self.synced[start:end] = self.data[start:end]


class BlockMapping:
    """A mapping of a file of a disk in memory: what it may be written to are blocks that the disk has been asked for."""

    def __init__(self, disk: Any, path: str, file: Any) -> None:
        self.path = path
        self.descriptor: int | None = None
        self.size = len(file.data)
        self.buffer = memoryview(file.data)
        self._disk = disk
        self._file = file
        # As on the real one, only the blocks before the first hole are known.
        self._allocated = 0
        while self._allocated // BLOCK_BYTES in file.blocks:
            self._allocated += BLOCK_BYTES
        self._allocated = min(self._allocated, self.size)

    def allocated_to(self) -> int:
        """See `IMapping`."""
        return self._allocated

    def allocate(self, end: int, warm: bool = False) -> None:
        """See `IMapping`."""
        if end > self._allocated:
            end = min(-(-end // BLOCK_BYTES) * BLOCK_BYTES, self.size)
            self._disk.take_blocks(self._file, self._allocated, end)
            self._allocated = end

    def close(self) -> None:
        """See `IMapping`."""
        self.buffer.release()


@implementer(IMapping)
class MemoryMapping(BlockMapping):
    """A mapping of a file of a `MemoryDisk`."""

    def sync(self, start: int, end: int) -> None:
        """See `IMapping`. Raises AssertionError where a real mapping would have met SIGBUS on a full disk."""
        assert not any(self.buffer[self._allocated :]), f"{self.path}: written beyond its blocks"
        start = start // BLOCK_BYTES * BLOCK_BYTES
        self._disk.sync_bytes(self.path, self._file, start, min(end, self.size))


class PathLock:
    """A lock on a path of a disk in memory; ``locked`` are those that are held."""

    def __init__(self, locked: set[str], path: str) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        """Give the lock back."""
        self._locked.discard(self._path)


class DiskInMemory:
    """What disks in memory have in common.

    :ivar capacity_bytes: beyond it ENOSPC; may be changed at any time.
    :ivar locked: paths that are locked.
    """

    capacity_bytes: int
    locked: set[str]

    @property
    def used_bytes(self) -> int:
        """Bytes of all blocks."""
        raise NotImplementedError

    def set_read_ahead(self, directory: str, is_on: bool) -> None:
        """See `IDisk`; nothing is ever read ahead here."""

    def lock_directory(self, path: str) -> PathLock:
        """See `IDisk`."""
        if path in self.locked:
            raise StoreLockedError(f"{path} is locked")
        self.locked.add(path)
        return PathLock(self.locked, path)

    def usage(self, path: str) -> tuple[int, int]:
        """See `IDisk`."""
        return self.used_bytes, self.capacity_bytes


@implementer(IDisk)
class MemoryDisk(DiskInMemory):
    """Files in memory.

    :ivar sync_error: raised by every sync while it is set.
    :ivar cold: paths of which `read_ready` says None.
    :ivar syncs: ``(path, start, end)`` of each sync.
    :ivar boot_id: see `IDisk`.
    """

    boot_id = "memory"

    def __init__(self, capacity_bytes: int = 1 << 50) -> None:
        self.capacity_bytes = capacity_bytes
        self.sync_error: OSError | None = None
        self.cold: set[str] = set()
        self.syncs: list[tuple[str, int, int]] = []
        self.locked: set[str] = set()
        self._files: dict[str, _File] = {}
        self._directories: set[str] = {"/"}

    # ------------------------------------------------------------------ what tests ask

    @property
    def used_bytes(self) -> int:
        """Bytes of all blocks."""
        return sum(len(file.blocks) for file in self._files.values()) * BLOCK_BYTES

    def synced(self, path: str) -> bytes:
        """What the device has of a file."""
        return self._file(path).device()

    def crash(self) -> None:
        """The power fails: what was not synced is gone. Mappings must not be used any more."""
        for file in self._files.values():
            file.data = bytearray(file.device())
        self.locked.clear()

    # ------------------------------------------------------------------ for mappings

    def take_blocks(self, file: _File, start: int, end: int) -> None:
        """Make blocks exist; all or none."""
        wanted = set(range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES))) - file.blocks
        if wanted and self.used_bytes + len(wanted) * BLOCK_BYTES > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        file.blocks |= wanted

    def sync_bytes(self, path: str, file: _File, start: int, end: int) -> None:
        """Let the device have a part of a file."""
        if self.sync_error is not None:
            raise self.sync_error
        self.syncs.append((path, start, end))
        file.sync(start, end)

    def _file(self, path: str) -> _File:
        file = self._files.get(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return file

    # ------------------------------------------------------------------ IDisk

    def map(self, path: str, size: int, create: bool) -> MemoryMapping:
        """See `IDisk`."""
        if create:
            self.create(path, size)
        file = self._file(path)
        if len(file.data) != size:
            raise StoreError(f"{path} has {len(file.data)} bytes, expected {size}")
        if create:
            self.sync_bytes(path, file, 0, 0)
        return MemoryMapping(self, path, file)

    def create(self, path: str, size: int) -> None:
        """See `IDisk`."""
        self.makedirs(os.path.dirname(path))
        if path not in self._files or not self._files[path].data:
            self._files[path] = _File(size)

    def read_at(self, path: str, offset: int, size: int) -> bytes:
        """See `IDisk`."""
        return bytes(self._file(path).data[offset : offset + size])

    def read_ready(self, path: str, offset: int, size: int) -> bytes | None:
        """See `IDisk`."""
        return None if path in self.cold else self.read_at(path, offset, size)

    def write_at(self, path: str, offset: int, data: bytes | bytearray | memoryview) -> None:
        """See `IDisk`."""
        file = self._file(path)
        end = offset + len(data)
        self.take_blocks(file, offset, end)
        if end > len(file.data):
            file.data.extend(bytes(end - len(file.data)))
        file.data[offset:end] = data

    def zero_from(self, path: str, offset: int) -> None:
        """See `IDisk`."""
        file = self._file(path)
        file.data[offset:] = bytes(len(file.data) - offset)

    def next_data(self, path: str, offset: int) -> int:
        """See `IDisk`."""
        file = self._file(path)
        while offset < len(file.data) and offset // BLOCK_BYTES not in file.blocks:
            offset += BLOCK_BYTES - offset % BLOCK_BYTES
        return min(offset, len(file.data))

    def sync_file(self, path: str) -> None:
        """See `IDisk`."""
        file = self._file(path)
        size = len(file.data)
        if len(file.blocks) * BLOCK_BYTES * 8 > size:
            self.sync_bytes(path, file, 0, size)
            return
        # Large and nearly empty: what lies between the blocks is zero on both sides.
        self.sync_bytes(path, file, 0, 0)
        for start in sorted(number * BLOCK_BYTES for number in file.blocks):
            file.sync(start, min(start + BLOCK_BYTES, size))

    def sync_directory(self, path: str) -> None:
        """See `IDisk`. Directories of this disk are always on the device."""
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if self.sync_error is not None:
            raise self.sync_error

    def sync_all(self, path: str) -> None:
        """See `IDisk`."""
        for file in self._files.values():
            file.sync(0, len(file.data))
        if self.sync_error is not None:
            raise self.sync_error

    def read_file(self, path: str) -> bytes:
        """See `IDisk`."""
        return bytes(self._file(path).data)

    def replace_file(self, path: str, data: bytes, keep_backup: bool) -> None:
        """See `IDisk`."""
        self.makedirs(os.path.dirname(path))
        fresh = _File(len(data))
        self.take_blocks(fresh, 0, len(data))
        fresh.data[:] = data
        self.sync_bytes(path, fresh, 0, len(data))
        if keep_backup and path in self._files:
            self._files[path + ".bak"] = self._files[path]
        self._files[path] = fresh

    def listdir(self, path: str) -> list[str]:
        """See `IDisk`."""
        prefix = path.rstrip("/") + "/"
        known = [*self._files, *self._directories]
        rest = (name[len(prefix) :] for name in known if name.startswith(prefix))
        return sorted({name.split("/")[0] for name in rest if name})

    def size(self, path: str) -> int:
        """See `IDisk`."""
        return len(self._file(path).data)

    def exists(self, path: str) -> bool:
        """See `IDisk`."""
        return path in self._files or path in self._directories

    def makedirs(self, path: str) -> None:
        """See `IDisk`."""
        while path not in self._directories:
            self._directories.add(path)
            path = os.path.dirname(path)

    def rename(self, path: str, target: str) -> None:
        """See `IDisk`."""
        file = self._file(path)
        del self._files[path]
        self._files[target] = file

    def remove(self, path: str) -> None:
        """See `IDisk`."""
        self._files.pop(path, None)

    def rmtree(self, path: str) -> None:
        """See `IDisk`."""
        prefix = path.rstrip("/") + "/"
        for name in [name for name in self._files if name.startswith(prefix)]:
            del self._files[name]
        self._directories = {
            name for name in self._directories if name != path and not name.startswith(prefix)
        }

    def truncate(self, path: str, size: int) -> None:
        """See `IDisk`."""
        file = self._file(path)
        file.data = bytearray(bytes(file.data[:size]).ljust(size, b"\0"))
        file.blocks = {block for block in file.blocks if block * BLOCK_BYTES < size}

    def lock(self, path: str) -> PathLock:
        """See `IDisk`."""
        if path not in self.locked:
            self.create(path, 0)
            self._files[path].data[:] = b"lock"
        return self.lock_directory(path)
