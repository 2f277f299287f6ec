"""How does the store touch the file system? The real provider of `IDisk` and `IMapping`.

Stands for the parts of the official ``DefaultMappedFile`` and ``MixAll`` that talk to the operating system.

Crash story: a mapped file is created with its full length and its directory entry is synced before it is handed out; a
replaced file is either the old one or the new one, whole. What was written and not synced may be lost in any order.

Descriptors: a Python mapping keeps a descriptor of its own besides ours, so only the few files that are being written are
mapped. All other access goes through a bounded cache of descriptors (`FD_CACHE_LIMIT`).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import threading
from collections import OrderedDict

from zope.interface import implementer

from txrocketmq.errors import StoreError, StoreLockedError
from txrocketmq.interfaces import IDisk, IMapping

#: Most descriptors that reads and plain writes keep open.
FD_CACHE_LIMIT = 512

PAGE_BYTES = mmap.PAGESIZE

#: What zeros are written from, many times in one call: each call of a pool thread has to win the interpreter lock back.
_ZEROS = bytes(256 * 1024)
_ZEROS_AT_ONCE = 64

#: What file systems say when they cannot tell whether a read would block.
_NO_NOWAIT = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})

_LOCKED = (
    "{path} is locked: another broker uses this store; stop it or choose another storePathRootDir"
)

_LOG_LOCKED = (
    "{path} is locked: another broker writes its log there; stop it or choose another "
    "storePathCommitLog"
)

#: ``(device, inode)`` of lock files held by this process: fcntl locks do not exclude their own process.
_held_locks: set[tuple[int, int]] = set()


@implementer(IMapping)
class RealMapping:
    """A shared mapping of one file, with the descriptor that allocates its blocks."""

    def __init__(self, path: str, fd: int, size: int) -> None:
        self.path = path
        self.size = size
        self._fd = fd
        self._map = mmap.mmap(fd, size)
        self.buffer = memoryview(self._map)
        # Blocks that were allocated and never written look like a hole: then the answer is too small, which is safe.
        hole = os.lseek(fd, 0, os.SEEK_HOLE)
        self._allocated = size if hole >= size else hole // PAGE_BYTES * PAGE_BYTES

    @property
    def descriptor(self) -> int | None:
        """See `IMapping`."""
        return None if self._fd < 0 else self._fd

    def allocated_to(self) -> int:
        """See `IMapping`."""
        return self._allocated

    def allocate(self, end: int, warm: bool = False) -> None:
        """See `IMapping`. Content that is there stays."""
        start = self._allocated
        end = min(-(-end // PAGE_BYTES) * PAGE_BYTES, self.size)
        if end <= start:
            return
        os.posix_fallocate(self._fd, start, end - start)
        if warm:
            self._warm(start, end)
        # Published last: from here on the owner may write, and warming must not write any more.
        self._allocated = end

    def _warm(self, start: int, end: int) -> None:
        """Write zeros where there is nothing yet. A plain write, because it releases the interpreter lock and the page
        faults of a mapping do not."""
        position = start
        while position < end:
            data = min(_next_data(self._fd, position, end), end)
            _make_pages(self._fd, position, data)
            position = data if data == end else os.lseek(self._fd, data, os.SEEK_HOLE)

    def sync(self, start: int, end: int) -> None:
        """See `IMapping`. Only the pages of the range are written: pages warmed ahead are not."""
        start = start // PAGE_BYTES * PAGE_BYTES
        end = min(end, self.size)
        if end > start:
            self._map.flush(start, end - start)

    def close(self) -> None:
        """See `IMapping`."""
        if self._fd >= 0:
            self.buffer.release()
            self._map.close()
            os.close(self._fd)
            self._fd = -1


class _Descriptor:
    """One open file of the cache; closed when nobody uses it and it was dropped."""

    __slots__ = ("dropped", "fd", "users")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.users = 0
        self.dropped = False


class _DescriptorCache:
    """Open files by path, least recently used ones closed first. Used from several threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _Descriptor] = OrderedDict()
        #: Directories below which nothing is read ahead.
        self._no_read_ahead: tuple[str, ...] = ()

    def set_read_ahead(self, directory: str, is_on: bool) -> None:
        """For files that are open, and for those to come."""
        prefix = directory.rstrip("/") + "/"
        advice = os.POSIX_FADV_NORMAL if is_on else os.POSIX_FADV_RANDOM
        with self._lock:
            kept = tuple(known for known in self._no_read_ahead if known != prefix)
            self._no_read_ahead = kept if is_on else (*kept, prefix)
            for path, descriptor in self._open.items():
                if path.startswith(prefix):
                    os.posix_fadvise(descriptor.fd, 0, 0, advice)

    def acquire(self, path: str) -> _Descriptor:
        with self._lock:
            found = self._open.get(path)
            if found is not None:
                self._open.move_to_end(path)
                found.users += 1
                return found
        opened = _Descriptor(_open_existing(path))
        if self._no_read_ahead and path.startswith(self._no_read_ahead):
            os.posix_fadvise(opened.fd, 0, 0, os.POSIX_FADV_RANDOM)
        with self._lock:
            found = self._open.get(path)
            if found is None:
                found = self._open[path] = opened
                while len(self._open) > self._limit:
                    self._retire(self._open.popitem(last=False)[1])
            else:
                os.close(opened.fd)
            found.users += 1
            return found

    def release(self, descriptor: _Descriptor) -> None:
        with self._lock:
            descriptor.users -= 1
            if descriptor.dropped and descriptor.users == 0:
                os.close(descriptor.fd)

    def drop(self, path: str) -> None:
        """Forget a file that is deleted or replaced."""
        with self._lock:
            found = self._open.pop(path, None)
            if found is not None:
                self._retire(found)

    def drop_below(self, directory: str) -> None:
        """Forget all files of a directory that is deleted; with "" simply all."""
        with self._lock:
            prefix = directory.rstrip("/") + "/" if directory else ""
            for path in [path for path in self._open if path.startswith(prefix)]:
                self._retire(self._open.pop(path))

    def __del__(self) -> None:
        # Not every owner of a disk closes it: a consumer's offsets, a tool.
        self.drop_below("")

    def _retire(self, descriptor: _Descriptor) -> None:
        descriptor.dropped = True
        if descriptor.users == 0:
            os.close(descriptor.fd)


class _HeldLock:
    """The lock on a store directory, until `release`."""

    def __init__(self, fd: int, key: tuple[int, int]) -> None:
        self._fd = fd
        self._key = key

    def release(self) -> None:
        """Give the lock back; the file stays, as officially."""
        if self._fd >= 0:
            os.close(self._fd)
            _held_locks.discard(self._key)
            self._fd = -1


_BOOT_ID = "/proc/sys/kernel/random/boot_id"


@implementer(IDisk)
class RealDisk:
    """The operating system's file system."""

    def __init__(self, fd_limit: int = FD_CACHE_LIMIT) -> None:
        self._descriptors = _DescriptorCache(fd_limit)

    def map(self, path: str, size: int, create: bool) -> RealMapping:
        """See `IDisk`. A created file's length and directory entry are on the device when this returns."""
        if create:
            self.makedirs(os.path.dirname(path))
            self.create(path, size)
            # Also where an earlier try left the file behind: it may have failed just here.
            self.sync_file(path)
            self.sync_directory(os.path.dirname(path))
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            found = os.fstat(fd).st_size
            if found != size:
                raise StoreError(f"{path} has {found} bytes, expected {size}")
            return RealMapping(path, fd, size)
        except BaseException:
            os.close(fd)
            raise

    def create(self, path: str, size: int) -> None:
        """See `IDisk`."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            fd = os.open(path, flags, 0o644)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            fd = os.open(path, flags, 0o644)
        try:
            if os.fstat(fd).st_size == 0:
                os.ftruncate(fd, size)
        finally:
            os.close(fd)

    def read_at(self, path: str, offset: int, size: int) -> bytes:
        """See `IDisk`."""
        descriptor = self._descriptors.acquire(path)
        try:
            return os.pread(descriptor.fd, size, offset)
        finally:
            self._descriptors.release(descriptor)

    def read_ready(self, path: str, offset: int, size: int) -> bytes | None:
        """See `IDisk`. Where the file system cannot tell, it reads."""
        descriptor = self._descriptors.acquire(path)
        try:
            buffer = bytearray(size)
            try:
                count = os.preadv(descriptor.fd, [buffer], offset, os.RWF_NOWAIT)
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno in _NO_NOWAIT:
                    return os.pread(descriptor.fd, size, offset)
                raise
            if count == size:
                return bytes(buffer)
            # Short: the end of the file, or the rest is cold.
            if offset + count >= os.fstat(descriptor.fd).st_size:
                return bytes(memoryview(buffer)[:count])
            return None
        finally:
            self._descriptors.release(descriptor)

    def write_at(self, path: str, offset: int, data: bytes | bytearray | memoryview) -> None:
        """See `IDisk`."""
        descriptor = self._descriptors.acquire(path)
        try:
            _write_all(descriptor.fd, data, offset)
        finally:
            self._descriptors.release(descriptor)

    def zero_from(self, path: str, offset: int) -> None:
        """See `IDisk`. Holes stay holes."""
        descriptor = self._descriptors.acquire(path)
        try:
            size = os.fstat(descriptor.fd).st_size
            position = _next_data(descriptor.fd, offset, size)
            while position < size:
                hole = min(os.lseek(descriptor.fd, position, os.SEEK_HOLE), size)
                _write_zeros(descriptor.fd, position, hole)
                position = _next_data(descriptor.fd, hole, size)
        finally:
            self._descriptors.release(descriptor)

    def next_data(self, path: str, offset: int) -> int:
        """See `IDisk`."""
        descriptor = self._descriptors.acquire(path)
        try:
            return _next_data(descriptor.fd, offset, os.fstat(descriptor.fd).st_size)
        finally:
            self._descriptors.release(descriptor)

    def sync_file(self, path: str) -> None:
        """See `IDisk`."""
        descriptor = self._descriptors.acquire(path)
        try:
            os.fdatasync(descriptor.fd)
        finally:
            self._descriptors.release(descriptor)

    def sync_directory(self, path: str) -> None:
        """See `IDisk`."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self, path: str) -> None:
        """See `IDisk`."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
            if syncfs is None:
                os.sync()
            elif syncfs(fd):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), path)
        finally:
            os.close(fd)

    def read_file(self, path: str) -> bytes:
        """See `IDisk`. Not for lock files: closing a second descriptor would give up the process's lock."""
        with open(path, "rb") as file:
            return file.read()

    def replace_file(self, path: str, data: bytes, keep_backup: bool) -> None:
        """See `IDisk`. The main file is never absent: the backup is a second name of the old one."""
        temporary = path + ".tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            fd = os.open(temporary, flags, 0o644)
        except FileNotFoundError:
            self.makedirs(os.path.dirname(path))
            fd = os.open(temporary, flags, 0o644)
        try:
            _write_all(fd, data, 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        if keep_backup and os.path.exists(path):
            _keep_backup(path)
        os.replace(temporary, path)
        self._descriptors.drop(path)
        self.sync_directory(os.path.dirname(path))

    def listdir(self, path: str) -> list[str]:
        """See `IDisk`."""
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, path: str) -> int:
        """See `IDisk`."""
        return os.stat(path).st_size

    def exists(self, path: str) -> bool:
        """See `IDisk`."""
        return os.path.exists(path)

    def makedirs(self, path: str) -> None:
        """See `IDisk`."""
        made = path
        while not os.path.isdir(made) and made != os.path.dirname(made):
            made = os.path.dirname(made)
        os.makedirs(path, exist_ok=True)
        while len(path) > len(made):
            path = os.path.dirname(path)
            self.sync_directory(path)

    def rename(self, path: str, target: str) -> None:
        """See `IDisk`."""
        self._descriptors.drop(path)
        os.replace(path, target)
        self._descriptors.drop(target)

    def remove(self, path: str) -> None:
        """See `IDisk`."""
        self._descriptors.drop(path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def rmtree(self, path: str) -> None:
        """See `IDisk`."""
        self._descriptors.drop_below(path)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def truncate(self, path: str, size: int) -> None:
        """See `IDisk`."""
        os.truncate(path, size)

    def lock(self, path: str) -> _HeldLock:
        """See `IDisk`. The same lock as Java's ``tryLock(0, 1)``; the file holds the text ``lock``, as officially."""
        self.makedirs(os.path.dirname(path))
        if _identity(path) in _held_locks:
            raise StoreLockedError(_LOCKED.format(path=path))
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
            _write_all(fd, b"lock", 0)
            status = os.fstat(fd)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise StoreLockedError(_LOCKED.format(path=path)) from error
            raise
        held = (status.st_dev, status.st_ino)
        _held_locks.add(held)
        return _HeldLock(fd, held)

    def lock_directory(self, path: str) -> _HeldLock:
        """See `IDisk`. Official brokers refuse a log with a foreign file in it, so the directory itself is locked; they do not
        look for that."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                os.close(fd)
                raise StoreLockedError(_LOG_LOCKED.format(path=path)) from error
            # Some network file systems cannot: then only the store's own lock excludes others.
        return _HeldLock(fd, (-1, fd))

    def set_read_ahead(self, directory: str, is_on: bool) -> None:
        """See `IDisk`."""
        self._descriptors.set_read_ahead(directory, is_on)

    def usage(self, path: str) -> tuple[int, int]:
        """See `IDisk`. Blocks kept for the superuser count as neither used nor free, as officially."""
        while not os.path.exists(path) and path != os.path.dirname(path):
            path = os.path.dirname(path)
        status = os.statvfs(path)
        used = (status.f_blocks - status.f_bfree) * status.f_frsize
        return used, used + status.f_bavail * status.f_frsize

    @property
    def boot_id(self) -> str:
        """See `IDisk`. Only Linux says it."""
        try:
            with open(_BOOT_ID, encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""

    def close(self) -> None:
        """Close all cached descriptors; the disk may be used again."""
        self._descriptors.drop_below("")


def _open_existing(path: str) -> int:
    """Open for reading and writing, or for reading alone where writing is not allowed."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EROFS):
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _write_all(fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        count = os.pwrite(fd, rest, offset)
        rest = rest[count:]
        offset += count


def _write_zeros(fd: int, start: int, end: int) -> None:
    while start < end:
        whole = min((end - start) // len(_ZEROS), _ZEROS_AT_ONCE)
        parts = [_ZEROS] * whole if whole else [memoryview(_ZEROS)[: end - start]]
        start += os.pwritev(fd, parts, start)


def _make_pages(fd: int, start: int, end: int) -> None:
    """Write zeros in one call, but not out of one buffer: the kernel keeps what one buffer wrote in pieces of up to 2 MiB, and a store
    of some bytes makes such a piece dirty as a whole, so that each sync would write 1 to 2 MiB. Between files it copies 64 KiB at a time."""
    os.lseek(fd, start, os.SEEK_SET)
    source = os.open("/dev/zero", os.O_RDONLY | os.O_CLOEXEC)
    try:
        while start < end:
            count = os.sendfile(fd, source, None, end - start)
            if not count:
                break
            start += count
    except OSError as error:
        if error.errno not in _NO_NOWAIT:
            raise
    finally:
        os.close(source)
    # Where the system cannot copy from there.
    _write_zeros(fd, start, end)


def _next_data(fd: int, position: int, end: int) -> int:
    """Where the next bytes that are not a hole begin; ``end`` when there are none."""
    if position >= end:
        return end
    try:
        return os.lseek(fd, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return end
        raise


def _keep_backup(path: str) -> None:
    """Give the old content the name ``.bak``, atomically."""
    backup = path + ".bak"
    fresh = backup + ".tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh)
    try:
        os.link(path, fresh)
    except OSError:
        # No second names on this file system: a copy does as well.
        shutil.copyfile(path, fresh)
    os.replace(fresh, backup)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
