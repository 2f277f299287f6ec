"""What does a disk do when power fails, a sync fails or there is no room left? `SimulatedDisk`: an `IDisk` that plays it, by seed.

Each file has two images: what programs see (the page cache) and what the device holds. A directory has the same: its entries,
and those that are durable. Until something is synced its fate is open:

* `write_back` is the kernel at work: single pages and directory changes reach the device, in any order, at any time;
* `SimulatedDisk.end` with ``power`` decides for every page that differs: it is lost, kept, or torn between 512-byte sectors; for each file whether its
  length is the old or the new one; for each directory how many of its changes survived, in their order;
* the same with ``kill`` ends the process alone: all of the page cache stays;
* a fuse (`arm`) lets either happen in the middle of any job, at the N-th disk operation from now;
* a sync may fail with EIO, after which the kernel may hold dirty pages for clean, so that the next sync succeeds without them;
* blocks may run out at any allocation or write (`capacity_bytes`), and come back.

After its end the disk refuses everything until `restart`: code that still runs after a crash cannot touch the survivors.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from random import Random

import attrs
from zope.interface import implementer

from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IDisk, IMapping
from txrocketmq.testing.disk import BLOCK_BYTES, BlockMapping, DiskInMemory, PathLock

PAGE_BYTES = BLOCK_BYTES
SECTOR_BYTES = 512

_LOSE, _KEEP, _TEAR = range(3)


class SimulatedCrash(BaseException):
    """The power failed or the process was killed in the middle of this call; no handler of errors may go on after it."""


@attrs.define
class Faults:
    """How often what goes wrong; each is the chance of one operation.

    :ivar sync_eio: a sync fails with EIO.
    :ivar sync_forgets: after such a failure the pages count as clean, and the next sync leaves them out.
    :ivar sync_enospc: a sync fails with ENOSPC; its pages stay dirty.
    :ivar cold: `SimulatedDisk.read_ready` finds the bytes not in memory.
    :ivar lying_sync: every sync says that it is done and does nothing.
    """

    sync_eio: float = 0.0
    sync_forgets: float = 0.5
    sync_enospc: float = 0.0
    cold: float = 0.0
    lying_sync: bool = False


class _File:
    """Bytes as programs see them, and as the device holds them."""

    __slots__ = ("blocks", "data", "device", "device_blocks", "forgotten", "lengths")

    def __init__(self) -> None:
        self.data = bytearray()
        self.device = b""
        #: Blocks that exist, and those of them that surely survive.
        self.blocks: set[int] = set()
        self.device_blocks: set[int] = set()
        #: Lengths since the last sync: each of them may be the one that survives.
        self.lengths: list[int] = [0]
        #: Pages that the kernel holds for clean although the device has something else, with what they held then.
        self.forgotten: dict[int, bytes] = {}

    def pages(self) -> range:
        return range(-(-len(self.data) // PAGE_BYTES))

    def page(self, number: int) -> bytes:
        return bytes(self.data[number * PAGE_BYTES : (number + 1) * PAGE_BYTES])

    def device_page(self, number: int) -> bytes:
        page = self.device[number * PAGE_BYTES : (number + 1) * PAGE_BYTES]
        return page if len(page) == PAGE_BYTES else page.ljust(PAGE_BYTES, b"\0")

    def store(self, number: int, page: bytes) -> None:
        """The device takes a page."""
        start, end = number * PAGE_BYTES, number * PAGE_BYTES + len(page)
        device = self.device
        if len(device) < end:
            device = device.ljust(end, b"\0")
        self.device = device[:start] + page + device[end:]
        self.forgotten.pop(number, None)
        if number in self.blocks:
            self.device_blocks.add(number)

    def dirty(self) -> list[int]:
        """Pages that a sync would write."""
        return [
            number
            for number in self.pages()
            if (page := self.page(number)) != self.device_page(number)[: len(page)]
            and self.forgotten.get(number) != page
        ]

    def settle_length(self) -> None:
        """The device takes the length."""
        size = len(self.data)
        self.lengths = [size]
        self.device = self.device[:size].ljust(size, b"\0")

    def survive(self, rng: Random, fate: Callable[[], int]) -> None:
        """The power is gone: what is left becomes the file."""
        size = rng.choice(self.lengths)
        left = bytearray(self.device[:size].ljust(size, b"\0"))
        for number in range(-(-size // PAGE_BYTES)):
            start = number * PAGE_BYTES
            page = self.page(number)[: size - start]
            if not page or page == left[start : start + len(page)]:
                continue
            if self.forgotten.get(number) == self.page(number):
                continue
            chosen = fate()
            if chosen == _KEEP:
                left[start : start + len(page)] = page
            elif chosen == _TEAR:
                for within in range(0, len(page), SECTOR_BYTES):
                    if rng.random() < 0.5:
                        sector = page[within : within + SECTOR_BYTES]
                        left[start + within : start + within + len(sector)] = sector
        self.data, self.device, self.lengths, self.forgotten = left, bytes(left), [size], {}
        used = {
            number
            for number in self.blocks
            if number * PAGE_BYTES < size and any(self.page(number))
        }
        unsure = self.blocks - self.device_blocks - used
        kept = {number for number in sorted(unsure) if rng.random() < 0.5}
        self.blocks = {
            number for number in self.device_blocks | used | kept if number * PAGE_BYTES < size
        }
        self.device_blocks = set(self.blocks)


#: A directory's entry that is itself a directory.
_DIRECTORY = None

_Entry = _File | None


@implementer(IMapping)
class SimulatedMapping(BlockMapping):
    """A mapping of a file of a `SimulatedDisk`."""

    def allocate(self, end: int, warm: bool = False) -> None:
        """See `IMapping`."""
        self._disk.step()
        super().allocate(end, warm)

    def sync(self, start: int, end: int) -> None:
        """See `IMapping`. AssertionError where a real mapping could have met SIGBUS on a full disk."""
        self._disk.check_blocks(self.path, self._file)
        self._disk.sync_pages(self._file, start, min(end, self.size))


@implementer(IDisk)
class SimulatedDisk(DiskInMemory):
    """Files in memory that are lost and damaged as a real disk's are.

    :param rng: decides everything that is left to chance.
    :ivar faults: what goes wrong by itself; may be changed at any time.
    :ivar operations: how many disk operations there were.
    :ivar ended: the crash that happened, ``"power"`` or ``"kill"``; None while the disk is in use.
    :ivar forgot: some sync failed and its pages are held for clean: what programs see and what the device holds differ for good.
    """

    def __init__(self, rng: Random, capacity_bytes: int = 1 << 50) -> None:
        self.faults = Faults()
        self.capacity_bytes = capacity_bytes
        self.operations = 0
        self.ended: str | None = None
        self.locked: set[str] = set()
        self.forgot = False
        self.boot_id = "0"
        self._rng = rng
        self._fuse, self._fuse_kind = -1, "power"
        self._entries: dict[str, _Entry] = {"/": _DIRECTORY}
        self._durable: dict[str, _Entry] = {"/": _DIRECTORY}
        #: Changes of each directory that are not durable: ``{path: entry}``, ``...`` for one that goes away.
        self._changes: dict[str, list[dict[str, object]]] = {}

    # ------------------------------------------------------------------ fate

    def arm(self, operations: int, kind: str) -> None:
        """Let ``"power"`` fail or ``"kill"`` the process at the N-th operation from now."""
        self._fuse, self._fuse_kind = operations, kind

    def disarm(self) -> None:
        """Nothing happens by itself any more."""
        self._fuse = -1

    def step(self) -> None:
        """One operation begins."""
        if self.ended is not None:
            raise SimulatedCrash(self.ended)
        self.operations += 1
        if self._fuse >= 0:
            self._fuse -= 1
            if self._fuse < 0:
                self.end(self._fuse_kind)
                self.step()

    def end(self, kind: str) -> None:
        """Now ``"power"`` fails, or the process is gone (``"kill"``)."""
        self._fuse = -1
        self.ended = kind
        self.locked.clear()
        if kind == "power":
            self._lose()
        for entry in self._entries.values():
            if isinstance(entry, _File):
                # Mappings of the dead process keep the old bytes.
                entry.data = bytearray(entry.data)

    def restart(self) -> None:
        """A new process may use what is left. Pages that the kernel holds for clean may have left its memory by then."""
        self.ended, self._fuse = None, -1
        for path in sorted(self._entries):
            entry = self._entries[path]
            if isinstance(entry, _File) and entry.forgotten:
                for number in sorted(entry.forgotten):
                    start = number * PAGE_BYTES
                    if entry.page(number) == entry.forgotten[number] and self._rng.random() < 0.5:
                        entry.data[start : start + PAGE_BYTES] = entry.device_page(number)[
                            : len(entry.data) - start
                        ]

    def write_back(self) -> None:
        """The kernel writes a few dirty pages and directory changes by itself."""
        rng = self._rng
        for path in sorted(self._entries):
            entry = self._entries[path]
            if not isinstance(entry, _File) or rng.random() < 0.5:
                continue
            if rng.random() < 0.5:
                entry.settle_length()
            for number in entry.dirty():
                if rng.random() < 0.5 and number * PAGE_BYTES < len(entry.device):
                    entry.store(number, entry.page(number))
        for directory in sorted(self._changes):
            if rng.random() < 0.3:
                self._settle_changes(directory, rng.randint(0, len(self._changes[directory])))

    def _lose(self) -> None:
        self.boot_id += "0"
        rng = self._rng
        mood = rng.random()
        share = 0.0 if mood < 0.25 else 1.0 if mood < 0.35 else rng.random()
        tears = rng.random() < 0.6

        def fate() -> int:
            if tears and rng.random() < 0.3:
                return _TEAR
            return _KEEP if rng.random() < share else _LOSE

        for directory in sorted(self._changes):
            changes = len(self._changes[directory])
            kept = changes if share == 1.0 else 0 if share == 0.0 else rng.randint(0, changes)
            self._settle_changes(directory, kept)
        self._changes.clear()
        for path, entry in sorted(self._durable.items()):
            if os.path.dirname(path) not in self._durable:
                del self._durable[path]
            elif isinstance(entry, _File):
                entry.survive(rng, fate)
        self._entries = dict(self._durable)

    def _settle_changes(self, directory: str, count: int) -> None:
        """The first so many changes of a directory become durable."""
        changes = self._changes[directory]
        for change in changes[:count]:
            for path, entry in change.items():
                if entry is ...:
                    self._durable.pop(path, None)
                    self._forget_below(path)
                else:
                    assert entry is None or isinstance(entry, _File)
                    self._durable[path] = entry
        del changes[:count]

    def _forget_below(self, path: str) -> None:
        """What was in a directory that is gone does not come back with another one of that name."""
        entries, prefix = self._entries, path + "/"
        for name in [name for name in self._durable if name.startswith(prefix)]:
            if entries.get(name, ...) is not self._durable[name]:
                del self._durable[name]

    # ------------------------------------------------------------------ blocks and pages

    @property
    def used_bytes(self) -> int:
        """Bytes of all blocks."""
        files = {id(entry): entry for entry in self._entries.values() if entry is not None}
        return sum(len(file.blocks) for file in files.values()) * PAGE_BYTES

    def take_blocks(self, file: _File, start: int, end: int) -> None:
        """Make blocks exist, as many as there is room for."""
        for number in range(start // PAGE_BYTES, -(-end // PAGE_BYTES)):
            if number not in file.blocks:
                if self.used_bytes + PAGE_BYTES > self.capacity_bytes:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                file.blocks.add(number)

    def check_blocks(self, path: str, file: _File) -> None:
        """Nothing was written where there are no blocks."""
        for number in file.pages():
            if number not in file.blocks:
                assert not any(file.page(number)), f"{path}: page {number} has no block"

    def sync_pages(self, file: _File, start: int, end: int) -> None:
        """Let the device have a part of a file, if it will."""
        self.step()
        faults, rng = self.faults, self._rng
        if faults.lying_sync:
            return
        first, last = start // PAGE_BYTES, -(-end // PAGE_BYTES)
        dirty = [number for number in file.dirty() if first <= number < last]
        if faults.sync_enospc and rng.random() < faults.sync_enospc:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if faults.sync_eio and rng.random() < faults.sync_eio:
            forgets = rng.random() < faults.sync_forgets
            for number in dirty:
                if rng.random() < 0.5:
                    file.store(number, file.page(number))
                elif forgets:
                    file.forgotten[number] = file.page(number)
                    self.forgot = True
            # Whoever hears of it has the time to note it down.
            if 0 <= self._fuse < 5:
                self._fuse = 5
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        file.settle_length()
        for number in dirty:
            file.store(number, file.page(number))
        file.device_blocks = set(file.blocks)

    def _file(self, path: str) -> _File:
        entry = self._entries.get(path)
        if entry is None:
            code = errno.EISDIR if path in self._entries else errno.ENOENT
            raise OSError(code, os.strerror(code), path)
        return entry

    def _change(self, changed: dict[str, object]) -> None:
        """Entries of one directory change, all or none of them."""
        for path, entry in changed.items():
            if entry is ...:
                self._entries.pop(path, None)
            else:
                assert entry is None or isinstance(entry, _File)
                self._entries[path] = entry
        self._changes.setdefault(os.path.dirname(next(iter(changed))), []).append(changed)

    # ------------------------------------------------------------------ IDisk

    def map(self, path: str, size: int, create: bool) -> SimulatedMapping:
        """See `IDisk`."""
        if create:
            self.makedirs(os.path.dirname(path))
            self.create(path, size)
            self.sync_file(path)
            self.sync_directory(os.path.dirname(path))
        self.step()
        file = self._file(path)
        if len(file.data) != size:
            raise StoreError(f"{path} has {len(file.data)} bytes, expected {size}")
        return SimulatedMapping(self, path, file)

    def create(self, path: str, size: int) -> None:
        """See `IDisk`."""
        self.step()
        if path not in self._entries:
            self._make_directory(os.path.dirname(path))
            self._change({path: _File()})
        self.step()
        if not self._file(path).data:
            self.truncate(path, size)

    def read_at(self, path: str, offset: int, size: int) -> bytes:
        """See `IDisk`."""
        self.step()
        return bytes(self._file(path).data[offset : offset + size])

    def read_ready(self, path: str, offset: int, size: int) -> bytes | None:
        """See `IDisk`."""
        if self.faults.cold and self._rng.random() < self.faults.cold:
            self._file(path)
            return None
        return self.read_at(path, offset, size)

    def write_at(self, path: str, offset: int, data: bytes | bytearray | memoryview) -> None:
        """See `IDisk`. Where there is no room for all, the first pages are written."""
        self.step()
        self._write(self._file(path), offset, bytes(data))

    def _write(self, file: _File, offset: int, data: bytes) -> None:
        while data:
            end = offset + min(len(data), PAGE_BYTES - offset % PAGE_BYTES)
            self.take_blocks(file, offset, end)
            if end > len(file.data):
                file.data.extend(bytes(end - len(file.data)))
                file.lengths.append(end)
            piece, data = data[: end - offset], data[end - offset :]
            file.data[offset:end] = piece
            # What is written again is dirty again, whatever became of it before.
            file.forgotten.pop(offset // PAGE_BYTES, None)
            offset = end

    def zero_from(self, path: str, offset: int) -> None:
        """See `IDisk`."""
        self.step()
        file = self._file(path)
        for number in range(offset // PAGE_BYTES, len(file.pages())):
            start = max(offset, number * PAGE_BYTES)
            end = min((number + 1) * PAGE_BYTES, len(file.data))
            if number in file.blocks:
                file.data[start:end] = bytes(end - start)
                file.forgotten.pop(number, None)

    def next_data(self, path: str, offset: int) -> int:
        """See `IDisk`."""
        self.step()
        file = self._file(path)
        while offset < len(file.data) and offset // PAGE_BYTES not in file.blocks:
            offset += PAGE_BYTES - offset % PAGE_BYTES
        return min(offset, len(file.data))

    def sync_file(self, path: str) -> None:
        """See `IDisk`."""
        file = self._file(path)
        self.sync_pages(file, 0, len(file.data))

    def sync_directory(self, path: str) -> None:
        """See `IDisk`."""
        self.step()
        if self._entries.get(path, ...) is not _DIRECTORY:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if self.faults.lying_sync or path not in self._changes:
            return
        if self.faults.sync_eio and self._rng.random() < self.faults.sync_eio:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        self._settle_changes(path, len(self._changes[path]))

    def sync_all(self, path: str) -> None:
        """See `IDisk`."""
        for entry in [self._entries[name] for name in sorted(self._entries)]:
            if isinstance(entry, _File):
                self.sync_pages(entry, 0, len(entry.data))
        for directory in sorted(self._changes):
            if directory in self._entries:
                self.sync_directory(directory)

    def read_file(self, path: str) -> bytes:
        """See `IDisk`."""
        self.step()
        return bytes(self._file(path).data)

    def replace_file(self, path: str, data: bytes, keep_backup: bool) -> None:
        """See `IDisk`."""
        self.makedirs(os.path.dirname(path))
        temporary = path + ".tmp"
        self.step()
        fresh = _File()
        self._change({temporary: fresh})
        self.step()
        self._write(fresh, 0, data)
        self.sync_pages(fresh, 0, len(data))
        if keep_backup and path in self._entries:
            self.step()
            self._change({path + ".bak": self._file(path)})
        self.step()
        self._change({path: fresh, temporary: ...})
        self.sync_directory(os.path.dirname(path))

    def listdir(self, path: str) -> list[str]:
        """See `IDisk`."""
        self.step()
        return sorted(
            os.path.basename(name)
            for name in self._entries
            if name != "/" and os.path.dirname(name) == path.rstrip("/")
        )

    def size(self, path: str) -> int:
        """See `IDisk`."""
        self.step()
        return len(self._file(path).data)

    def exists(self, path: str) -> bool:
        """See `IDisk`."""
        self.step()
        return path in self._entries

    def makedirs(self, path: str) -> None:
        """See `IDisk`."""
        for made in reversed(self._make_directory(path)):
            self.sync_directory(os.path.dirname(made))

    def _make_directory(self, path: str) -> list[str]:
        """Make a directory and its parents; those that are new, the outermost last."""
        made = []
        while path not in self._entries:
            made.append(path)
            path = os.path.dirname(path)
        for directory in reversed(made):
            self.step()
            self._change({directory: _DIRECTORY})
        return made

    def rename(self, path: str, target: str) -> None:
        """See `IDisk`. File systems with a journal never lose half of it."""
        self.step()
        self._change({target: self._file(path), path: ...})

    def remove(self, path: str) -> None:
        """See `IDisk`."""
        self.step()
        if path in self._entries:
            self._file(path)
            self._change({path: ...})

    def rmtree(self, path: str) -> None:
        """See `IDisk`."""
        prefix = path.rstrip("/") + "/"
        doomed = [name for name in self._entries if name == path or name.startswith(prefix)]
        for name in sorted(doomed, reverse=True):
            self.step()
            self._change({name: ...})

    def truncate(self, path: str, size: int) -> None:
        """See `IDisk`."""
        self.step()
        file = self._file(path)
        file.data = bytearray(bytes(file.data[:size]).ljust(size, b"\0"))
        file.lengths.append(size)
        file.blocks = {number for number in file.blocks if number * PAGE_BYTES < size}

    def lock(self, path: str) -> PathLock:
        """See `IDisk`."""
        if path not in self.locked:
            self.makedirs(os.path.dirname(path))
            self.create(path, 0)
            self._write(self._file(path), 0, b"lock")
        return self.lock_directory(path)

    # ------------------------------------------------------------------ for tests

    def rot(self, path: str, offset: int, mask: int = 1) -> None:
        """Flip bits of a byte, in the cache and on the device."""
        file = self._file(path)
        file.data[offset] ^= mask
        device = bytearray(file.device.ljust(len(file.data), b"\0"))
        device[offset] = file.data[offset]
        file.device = bytes(device)
