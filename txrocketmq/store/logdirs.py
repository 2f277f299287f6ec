"""In which directories do the files of one log lie, and into which does the next one go?

Stands for the official ``MultiPathMappedFileQueue``: `storePathCommitLog` and `readOnlyCommitLogStorePaths` name directories, with
commas between them. A new file goes to the directory whose place in the sorted list is the file's number modulo their count;
directories that are only read, or nearly full, are left out, unless none would be left.

Crash story: a file's deletion is on the device before the next file's is begun. So directories that a crash sets back by
different amounts still hold a log without gaps.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from twisted.logger import Logger

from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IDisk, IMapping
from txrocketmq.store.filenames import is_file_name

T = TypeVar("T")

log = Logger()

#: What stands between two directories in a configuration value.
SEPARATOR = ","

#: The log takes no more blocks from a file system that is fuller than this. Sends are refused at nine tenths; what comes until
#: that is noticed, and what queues and tables still have to write, needs room as well.
MOST_USED = 0.95

#: One step of `write_again`.
_REWRITE_BYTES = 1024 * 1024


def split_paths(value: str | None) -> list[str]:
    """The directories that a configuration value names, each once, in its order."""
    parts = [part.strip() for part in (value or "").split(SEPARATOR)]
    return list(dict.fromkeys(part for part in parts if part))


class UnsyncedDeletion(OSError):
    """A file is gone, and may come back with a power failure."""


class LogDirectories:
    """The directories of one log.

    :param paths: where new files may go; at least one.
    :param read_only: where files are only found. A path in both is only read.
    :ivar full: directories that are nearly full, for `place`.
    :ivar keeps_room: whether `check_room` refuses.
    :ivar on_ahead_failed: called in the pool when such a sync failed.
    :ivar syncs_ahead: whether pages that are made ready go to the device at once: then a sync of a whole file (`IKernelSyncs`) has
        nothing to write but what was appended.
    """

    def __init__(self, disk: IDisk, paths: Sequence[str], read_only: Sequence[str] = ()) -> None:
        self.paths = list(dict.fromkeys((*paths, *read_only)))
        self.writable = sorted(set(paths) - set(read_only)) or sorted(set(paths))
        self.full: frozenset[str] = frozenset()
        self.keeps_room = False
        self.syncs_ahead: Callable[[], bool] = _never
        self.on_ahead_failed: Callable[[OSError], object] = _nothing
        self._read_only = frozenset(self.paths) - frozenset(self.writable)
        self._disk = disk

    def __str__(self) -> str:
        return SEPARATOR.join(self.paths)

    def place(self, base_offset: int, file_size: int, name: str) -> str:
        """The path of a new file."""
        usable = [path for path in self.writable if path not in self.full] or self.writable
        return f"{usable[base_offset // file_size % len(usable)]}/{name}"

    def check_room(self, path: str, size: int) -> None:
        """Pool: may a file get so many more blocks?

        :raises OSError: ENOSPC, before the file system is really full.
        """
        if not self.keeps_room:
            return
        used, total = self._disk.usage(os.path.dirname(path))
        if total and used + size > total * MOST_USED:
            raise OSError(
                errno.ENOSPC,
                f"{os.strerror(errno.ENOSPC)}: the log leaves the last {1 - MOST_USED:.0%} alone",
                os.path.dirname(path),
            )

    def made_ready(self, path: str) -> None:
        """Pool: a file has got blocks and pages. They are synced by a descriptor that is not the log's. The kernel tells the log's next
        sync what fails here, but the process may not live until then."""
        if self.syncs_ahead():
            try:
                self._disk.sync_file(path)
            except OSError as error:
                self.on_ahead_failed(error)
                raise

    def files(self) -> list[tuple[str, str]]:
        """``(name, path)`` of all files of the log, oldest first. What is none is left alone, and said."""
        found: dict[str, str] = {}
        foreign: list[str] = []
        for directory in self.paths:
            for name in self._disk.listdir(directory):
                if is_file_name(name):
                    if name in found:
                        raise StoreError(
                            f"{found[name]} and {directory}/{name} are the same part of the log: "
                            "move one of them away"
                        )
                    found[name] = f"{directory}/{name}"
                elif not name.endswith(".tmp"):
                    foreign.append(name)
        if foreign:
            log.warn(
                "{directory} holds names that are not the store's, ignored: {names}",
                directory=str(self),
                names=", ".join(foreign[:5]) + (" ..." if len(foreign) > 5 else ""),
            )
        return sorted(found.items())

    def without_leftovers(self, files: list[tuple[str, str]], size: int) -> list[tuple[str, str]]:
        """Leave out files before a gap that lie where nothing can be deleted: they had their time."""
        for number in range(len(files) - 1, 0, -1):
            if int(files[number][0]) != int(files[number - 1][0]) + size:
                before = files[:number]
                if all(os.path.dirname(path) in self._read_only for _, path in before):
                    log.warn("{path} and older files belong to the log no more", path=before[-1][1])
                    return files[number:]
                break
        return files

    def may_keep(self, path: str, error: BaseException | None) -> bool:
        """Whether a file that could not be deleted lies where nothing can be; see `without_leftovers`."""
        return (
            os.path.dirname(path) in self._read_only
            and isinstance(error, OSError)
            and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        )

    def remove(self, paths: Sequence[str]) -> bool:
        """Delete files (blocking); whether the device knows."""
        try:
            for path in paths:
                self._disk.remove(path)
            if paths:
                self.sync()
        except OSError as error:
            log.error("{path} may be left: {error}", path=paths[-1], error=error)
            return False
        return True

    def sync(self) -> None:
        """Force entries of the directories that are written to the device (blocking)."""
        for path in self.writable:
            self._disk.sync_directory(path)


class Readers:
    """Readers that wait for the device, by the files that they need: these are not deleted meanwhile, if it does not take for ever."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def hold(self, paths: Iterable[str]) -> Callable[[T], T]:
        """A reader waits for parts of these files; what to call when it has them (it gives back what it gets)."""
        held, needed = self._held, sorted(set(paths))
        for path in needed:
            held[path] = held.get(path, 0) + 1

        def release(outcome: T) -> T:
            for path in needed:
                held[path] -= 1
                if not held[path]:
                    del held[path]
            return outcome

        return release

    def need(self, path: str) -> bool:
        """Whether somebody waits for a file."""
        return path in self._held


def write_again(disk: IDisk, path: str, start: int, end: int) -> None:
    """Write a part of a file with the bytes that it has (blocking), so that the next sync does write them."""
    while start < end:
        data = disk.read_at(path, start, min(end - start, _REWRITE_BYTES))
        if not data:
            return
        disk.write_at(path, start, data)
        start += len(data)


def discard(disk: IDisk, mapping: IMapping | None, path: str) -> None:
    """Pool: delete a file that nobody needs any more; on the device too when this returns."""
    if mapping is not None:
        mapping.close()
    disk.remove(path)
    try:
        disk.sync_directory(os.path.dirname(path))
    except OSError as error:
        raise UnsyncedDeletion(error.errno, error.strerror, path) from error


def _nothing(error: OSError) -> None:
    return None


def _never() -> bool:
    return False
