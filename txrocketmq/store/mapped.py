"""How does an endless log live in files of one size? `MappedFile` and `MappedFileQueue`.

Stand for the official ``DefaultMappedFile``, ``MappedFileQueue`` and ``AllocateMappedFileService``.

Only the file that is being written, its successor and files that are not on the device yet are mapped; everything older is
read through the disk. Blocks and pages are made ready ahead of the write position by the pool, `WINDOW_BYTES` deep. Where the
pool is behind, or the disk is full, an append is refused: it never waits and never touches a page without a block.

Crash story: successors that were prepared and not used are files of zeros; recovery cuts them (`truncate_to`), a clean
`close` deletes them. Bytes behind the end that recovery found are set to zero, so that no stale record follows a new one.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IBlockingPool, IDisk, IMapping
from txrocketmq.store.logdirs import LogDirectories, Readers, UnsyncedDeletion, discard, write_again

log = Logger()

#: How far ahead of the write position blocks and pages are made ready, to begin with. It doubles whenever writing ate up half
#: of it while the pool was busy, up to a fifth of a second at the speed of memory.
WINDOW_BYTES = 16 * 1024 * 1024
MAX_WINDOW_BYTES = 256 * 1024 * 1024

#: One step of making ready: 2.6 ms of a pool thread.
CHUNK_BYTES = 4 * 1024 * 1024

#: Younger bytes than this are read from the mapping; older ones may be cold and are asked of the disk.
HOT_BYTES = 64 * 1024 * 1024

#: Most successors that are prepared; the official service keeps the next file and the one after it. Files that are smaller
#: than the window need more, else a burst ends where the pool has to make the next one; not so the tiny ones of tests.
MAX_PREPARED = 2
MAX_PREPARED_SMALL = 16
TINY_FILE_BYTES = 64 * 1024

#: No file of a log is configured to be of another size than a multiple of this.
PAGE_BYTES = 4096

#: What a full disk, or a user's full quota, says.
FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})


def file_name(offset: int) -> str:
    """The official name of the file that starts at an offset: 20 decimal digits."""
    return f"{offset:020d}"


class MappedFile:
    """One file of a queue.

    :ivar base_offset: offset of its first byte in the whole log.
    :ivar position: bytes written so far (within the file).
    :ivar writable: end of the part that may be written now (within the file); 0 when it is not mapped.
    :ivar mapping: the `IMapping`, or None when the file is only read.
    :ivar buffer: the mapping's bytes; only touched when there is a mapping.
    """

    __slots__ = ("base_offset", "buffer", "mapping", "path", "position", "size", "writable")

    def __init__(self, path: str, base_offset: int, size: int, mapping: IMapping | None) -> None:
        self.path = path
        self.base_offset = base_offset
        self.size = size
        self.position = 0
        self.writable = 0
        self.mapping: IMapping | None = None
        self.buffer = memoryview(b"")
        if mapping is not None:
            self.attach(mapping)

    def attach(self, mapping: IMapping) -> None:
        """Take a mapping of this file."""
        self.mapping = mapping
        self.buffer = mapping.buffer
        self.writable = mapping.allocated_to()

    def detach(self) -> IMapping | None:
        """Give the mapping away (to be closed); the file is only read from then on."""
        mapping, self.mapping = self.mapping, None
        self.buffer = memoryview(b"")
        self.writable = 0
        return mapping

    @property
    def end_offset(self) -> int:
        """Offset behind the last byte written."""
        return self.base_offset + self.position

    def __repr__(self) -> str:
        return f"MappedFile({self.path}, position={self.position}, writable={self.writable})"


class MappedFileQueue:
    """Files of one size in one directory that together are one log.

    All methods belong to the reactor thread. `load`, `truncate_to` and `open_for_append` block and are for the start.

    :param directory: where the files lie, or all places where they do.
    :ivar files: the files in order; the last one is written.
    :ivar flushed_offset: everything below is on the device.
    :ivar failure: why blocks could not be made ready, or None.
    :ivar readers: who waits for bytes of which file.
    """

    def __init__(
        self,
        disk: IDisk,
        directory: str | LogDirectories,
        file_size: int,
        pool: IBlockingPool,
        *,
        window_bytes: int = WINDOW_BYTES,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        if isinstance(directory, str):
            directory = LogDirectories(disk, [directory])
        self.directories = directory
        self.directory = str(directory)
        self.readers = Readers()
        self.file_size = file_size
        self.files: list[MappedFile] = []
        self.flushed_offset = 0
        self.failure: OSError | None = None
        self._disk = disk
        self._pool = pool
        files_ahead = MAX_PREPARED_SMALL if file_size > TINY_FILE_BYTES else 1
        self._window = min(window_bytes, files_ahead * file_size)
        self._chunk = min(chunk_bytes, file_size)
        # It grows to one whole file: more ahead would only make more files.
        self._max_window = max(self._window, min(MAX_WINDOW_BYTES, file_size))
        self._max_prepared = max(MAX_PREPARED, -(-self._window // file_size))
        self._was_ready = False
        # What the last append that was refused needs: it may be more than the window.
        self._demand = 0
        self._prepared: list[MappedFile] = []
        self._first_base = 0
        self._appending = False
        self._preparing = False
        self._when_idle: list[Deferred[None]] = []
        #: Absolute offset at which the next chunk has to be asked for.
        self.prepare_at = 0

    # ------------------------------------------------------------------ start

    def load(self) -> None:
        """Find the files. They count as full until `truncate_to` says otherwise, as officially.

        :raises StoreError: a file has another length than configured, or one is missing in the middle.
        """
        found = self.directories.files()
        for name, path in self.directories.without_leftovers(found, self.file_size):
            self._load_file(name, path, is_last=name == found[-1][0])
        self.flushed_offset = self.max_offset

    def _load_file(self, name: str, path: str, is_last: bool) -> None:
        size = self._disk.size(path)
        if size == 0 and is_last:
            log.warn("{path} is empty (a crash while it was made): deleted", path=path)
            self._disk.remove(path)
            return
        # A copy that broke off, or a cut by hand; a size that somebody may have configured is left alone.
        if size < self.file_size and is_last and (self.files or size % PAGE_BYTES):
            log.warn(
                "{path} was cut at {size} bytes: what was behind them is lost, the log ends there at the latest",
                path=path,
                size=size,
            )
            self._disk.truncate(path, self.file_size)
            size = self.file_size
        if size != self.file_size:
            raise StoreError(
                f"{path} has {size} bytes, the configured file size is {self.file_size}: set the size that the store "
                "was made with, or move the file away"
            )
        base = int(name)
        if self.files and base != self.files[-1].base_offset + self.file_size:
            expected = file_name(self.files[-1].base_offset + self.file_size)
            raise StoreError(f"{self.directory}: file {expected} is missing before {name}")
        file = MappedFile(path, base, self.file_size, None)
        file.position = self.file_size
        self.files.append(file)

    def truncate_to(self, offset: int) -> None:
        """Make ``offset`` the end of the log: delete later files, set what is behind it in its own file to zero.

        :raises StoreError: the queue is open for appending (`close` it first).
        """
        if self._appending:
            raise StoreError(f"{self.directory} cannot be cut at {offset}: it is being written")
        has_doomed = False
        # The last one first: a crash in between must not leave a gap, nor must a file that cannot be deleted be forgotten.
        while self.files and self.files[-1].base_offset > offset:
            self._disk.remove(self.files[-1].path)
            self.files.pop()
            has_doomed = True
        if has_doomed:
            self.directories.sync()  # or a stale file might come back behind new records
        if not self.files:
            self._first_base = offset - offset % self.file_size
        elif offset < self.max_offset:
            last = self.files[-1]
            self._disk.zero_from(last.path, offset - last.base_offset)
            last.position = offset - last.base_offset
        self.flushed_offset = min(self.flushed_offset, self.max_offset)

    def open_for_append(self, unsynced_offset: int = 0, unsafe_offset: int | None = None) -> None:
        """Map the last file, or make the first one, with its first blocks; then make the rest ready in the pool.

        A full disk does not fail the start: appends are refused until there is room.

        :param unsynced_offset: below it everything is on the device already. What survived a kill in the page cache only
            counts as flushed once it is synced.
        :param unsafe_offset: from here on a sync failed earlier: the bytes are written again, for the kernel may hold them for
            clean.
        :raises OSError: the log cannot be synced, or mapped.
        """
        if unsafe_offset is not None:
            unsynced_offset = min(unsynced_offset, unsafe_offset)
        if self.files:
            self.directories.sync()
        for file in self.files:
            if file.end_offset < unsynced_offset:
                continue
            if unsafe_offset is not None and unsafe_offset < file.end_offset:
                start = max(unsafe_offset - file.base_offset, 0)
                write_again(self._disk, file.path, start, file.position)
            self._disk.sync_file(file.path)
        tail = self.tail
        if tail is not None and tail.position < tail.size:
            tail.attach(self._disk.map(tail.path, tail.size, False))
        self._appending = True
        try:
            if tail is None:
                self.files.append(self._make_file(self._first_base))
            elif tail.position == tail.size:
                self._prepared.append(self._make_file(self._next_base()))
            elif tail.mapping is not None:
                self._allocate(tail.mapping, tail.path, tail.position + self._chunk)
                tail.writable = tail.mapping.allocated_to()
        except OSError as error:
            self._note_failure(error)
        self.flushed_offset = self.max_offset
        self.prepare()

    # ------------------------------------------------------------------ writing

    @property
    def tail(self) -> MappedFile | None:
        """The file that is written, None before the first one could be made."""
        return self.files[-1] if self.files else None

    @property
    def is_behind(self) -> bool:
        """Whether an append was refused and would be again."""
        return self._demand > 0

    def reserve(self, size: int) -> MappedFile | None:
        """The tail, when ``size`` bytes may be written at its position now.

        None means refused: see `failure`; the cause is being worked on, a later try may succeed. The caller sees to it that
        the bytes fit into the file (`roll`).
        """
        tail = self.files[-1] if self.files else None
        if tail is not None and tail.mapping is not None:
            if tail.position + size <= tail.writable:
                return tail
            # The pool may have got further since.
            tail.writable = tail.mapping.allocated_to()
            if tail.position + size <= tail.writable:
                return tail
        self._demand = size
        self.prepare()
        tail = self.files[-1] if self.files else None
        if tail is not None and tail.position + size <= tail.writable:
            self._demand = 0
            return tail
        return None

    def roll(self) -> MappedFile | None:
        """Go on to the next file, after the tail was filled or ended by its owner; None when it is not ready."""
        if not self._prepared:
            self._demand = max(self._demand, 1)
            self.prepare()
            if not self._prepared:
                return None
        tail = self._prepared.pop(0)
        self.files.append(tail)
        self.prepare()
        return tail

    def append(self, data: bytes) -> int:
        """Append bytes that belong together into one file; their offset, or -1 when refused.

        The file size must be a multiple of what is appended, or the owner ends files itself.
        """
        tail = self.files[-1] if self.files else None
        if tail is not None and tail.position == tail.size:
            tail = self.roll()
            if tail is None:
                return -1
        size = len(data)
        if tail is not None and tail.position + size > tail.size:
            raise StoreError(f"{size} bytes do not fit behind {tail}")
        tail = self.reserve(size)
        if tail is None:
            return -1
        position = tail.position
        tail.buffer[position : position + size] = data
        self.advance(tail, size)
        return tail.base_offset + position

    def advance(self, tail: MappedFile, size: int) -> None:
        """Count bytes that were written into the tail's buffer."""
        tail.position += size
        if tail.base_offset + tail.position >= self.prepare_at:
            self.prepare()

    def begin_at(self, base: int) -> bool:
        """Let an empty log begin at a file of this offset (a replica's); False until that file is there: ask again."""
        if not self._preparing and (not self.files or self.max_offset != base):
            doomed, self.files, self._prepared = [*self.files, *self._prepared], [], []
            self._first_base = self.flushed_offset = base
            for file in doomed[::-1]:
                job = self._pool.submit(discard, self._disk, file.detach(), file.path)
                job.addErrback(_log_close)
            self.prepare()
        return bool(self.files) and self.max_offset == base

    # ------------------------------------------------------------------ making ready

    def prepare(self) -> None:
        """See to it that the window ahead gets its blocks; returns at once. Also the way to try again after a failure."""
        if self._preparing or not self._appending:
            return
        last = self._prepared[-1] if self._prepared else self.tail
        ahead = sum(self._ready(file) for file in self._prepared)
        if self.files:
            ahead += self._ready(self.files[-1])
        if self._was_ready and ahead <= self._window // 2 and self._window < self._max_window:
            self._window = min(self._window * 2, self._max_window)
            self._was_ready = False
        if ahead >= max(self._window, self._demand) and self._prepared_enough(last):
            self._demand = 0
            self._was_ready = True
            self.prepare_at = self.max_offset + ahead - self._window + self._chunk
            return
        if last is None or last.mapping is None or last.mapping.allocated_to() >= last.size:
            if len(self._prepared) >= self._max_prepared:
                self.prepare_at = self.max_offset + 1
                return
            job = self._start(self._make_file, self._next_base())
            job.addCallback(self._made)
        else:
            # As much as is missing, but no more than the writer has left meanwhile: few hops, and none too late.
            step = max(self._chunk, min(max(self._window, self._demand) - ahead, ahead))
            end = min(last.mapping.allocated_to() + step, last.size)
            job = self._start(self._allocate, last.mapping, last.path, end)
            job.addCallback(self._allocated, last)
        job.addErrback(self._prepare_failed)

    def _next_base(self) -> int:
        last = self._prepared[-1] if self._prepared else self.tail
        return self._first_base if last is None else last.base_offset + self.file_size

    def _prepared_enough(self, last: MappedFile | None) -> bool:
        """A successor must be there before the tail's own blocks end: the window alone could end with the file."""
        if last is None or last.mapping is None:
            return False
        return bool(self._prepared) or last.mapping.allocated_to() < last.size

    def _ready(self, file: MappedFile) -> int:
        return 0 if file.mapping is None else max(0, file.mapping.allocated_to() - file.position)

    def _start(self, function: Callable[..., object], *args: object) -> Deferred[object]:
        self._preparing = True
        return self._pool.submit(function, *args)

    def _make_file(self, base: int) -> MappedFile:
        """Pool: a new file with its first blocks. A file left over from an earlier try is used."""
        path = self.directories.place(base, self.file_size, file_name(base))
        mapping = self._disk.map(path, self.file_size, True)
        try:
            self._allocate(mapping, path, self._chunk)
        except OSError:
            mapping.close()
            self._disk.remove(path)
            raise
        return MappedFile(path, base, self.file_size, mapping)

    def _allocate(self, mapping: IMapping, path: str, end: int) -> None:
        """Pool: blocks and pages up to ``end``."""
        missing = end - mapping.allocated_to()
        if missing > 0:
            self.directories.check_room(path, missing)
            mapping.allocate(end, True)
            self.directories.made_ready(path)

    def _made(self, file: object) -> None:
        assert isinstance(file, MappedFile)
        assert not self.files or file.base_offset == self._next_base()
        if not self.files:
            self.files.append(file)
        else:
            self._prepared.append(file)
        self._prepare_succeeded()

    def _allocated(self, _: object, file: MappedFile) -> None:
        if file.mapping is not None:
            file.writable = file.mapping.allocated_to()
        self._prepare_succeeded()

    def _prepare_succeeded(self) -> None:
        if self.failure is not None:
            log.info("{directory}: blocks are allocated again", directory=self.directory)
            self.failure = None
        self._idle()
        self.prepare()

    def _prepare_failed(self, failure: Failure) -> None:
        error = failure.value
        if isinstance(error, OSError):
            self._note_failure(error)
        elif isinstance(error, StoreError):
            log.warn("{directory}: no file ahead: {error}", directory=self.directory, error=error)
        else:
            log.failure("preparing a file ahead failed", failure)
        # The next append, or the owner's timer, tries again.
        self.prepare_at = self.max_offset
        self._idle()

    def _note_failure(self, error: OSError) -> None:
        if self.failure is None or self.failure.errno != error.errno:
            log.error(
                "{directory}: no blocks for new messages, appends will be refused: {error}",
                directory=self.directory,
                error=error,
            )
        self.failure = error

    def _idle(self) -> None:
        self._preparing = False
        waiting, self._when_idle = self._when_idle, []
        for waiter in waiting:
            waiter.callback(None)

    # ------------------------------------------------------------------ reading

    @property
    def min_offset(self) -> int:
        """First byte of the oldest file; 0 when there is none (officially -1: nobody reads it then)."""
        return self.files[0].base_offset if self.files else self._first_base

    @property
    def max_offset(self) -> int:
        """Offset behind the last byte written."""
        return self.files[-1].end_offset if self.files else self._first_base

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds the byte at an offset, whether or not it is written yet."""
        if not self.files:
            return None
        index = (offset - self.files[0].base_offset) // self.file_size
        return self.files[index] if 0 <= index < len(self.files) else None

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` written bytes, never across a file's end; empty outside the log. May ask the device."""
        return self._read(offset, size, self._disk.read_at) or b""

    def next_data(self, offset: int) -> int:
        """Where the next bytes lie that may not be zero; the log's end when there are none (start only, blocks)."""
        for file in self.files:
            if file.end_offset > offset:
                start = max(offset - file.base_offset, 0)
                position = self._disk.next_data(file.path, start)
                if position < file.position:
                    return file.base_offset + position
        return self.max_offset

    def read_ready(self, offset: int, size: int) -> bytes | None:
        """As `read`, but None where the device would have to be asked: then `read` in the pool."""
        return self._read(offset, size, self._disk.read_ready)

    def join_hot(self, spans: Sequence[Sequence[int]]) -> bytes | None:
        """The bytes of ascending ``(offset, end)`` spans, joined with one copy; None unless all of them are in the newest part
        of one mapped file."""
        start, end = spans[0][0], spans[-1][1]
        file = self.files[-1] if self.files else None
        if file is None or start < file.base_offset:
            file = self.find(start)
        if (
            file is None
            or file.mapping is None
            or start - file.base_offset + HOT_BYTES < file.position
            or end > file.base_offset + file.position
        ):
            return None
        base, buffer = file.base_offset, file.buffer
        return b"".join([buffer[start - base : end - base] for start, end in spans])

    def _read(
        self, offset: int, size: int, from_disk: Callable[[str, int, int], bytes | None]
    ) -> bytes | None:
        file = self.find(offset)
        if file is None:
            return b""
        start = offset - file.base_offset
        end = min(start + size, file.position)
        if start >= end:
            return b""
        if file.mapping is not None and start + HOT_BYTES >= file.position:
            return bytes(file.buffer[start:end])
        return from_disk(file.path, start, end - start)

    # ------------------------------------------------------------------ flush, delete, close

    def unsynced(self) -> list[tuple[IMapping, int, int]]:
        """What has to be synced so that everything written by now is on the device: ``(mapping, start, end)``."""
        spans = []
        for file in reversed(self.files):
            if file.end_offset <= self.flushed_offset:
                break
            if file.mapping is not None:
                start = max(0, self.flushed_offset - file.base_offset)
                spans.append((file.mapping, start, file.position))
        return spans[::-1]

    def flushed_to(self, offset: int) -> None:
        """Note that everything below is on the device; mappings of files that are done are given back in the pool."""
        self.flushed_offset = max(self.flushed_offset, offset)
        for file in reversed(self.files[:-1]):
            if file.mapping is None:
                break
            if file.end_offset <= self.flushed_offset:
                mapping = file.detach()
                if mapping is not None:
                    self._pool.submit(mapping.close).addErrback(_log_close)

    def flush(self) -> None:
        """Sync everything now (blocking)."""
        target = self.max_offset
        for mapping, start, end in self.unsynced():
            mapping.sync(start, end)
        self.flushed_to(target)

    def delete_before(self, offset: int) -> list[str]:
        """Forget whole flushed files below an offset, never the last one, and delete them in the pool; their paths."""
        paths = []
        offset = min(offset, self.flushed_offset)
        while len(self.files) > 1 and self.files[0].base_offset + self.file_size <= offset:
            paths.append(self.files[0].path)
            self.delete_first().addErrback(_log_close)
        return paths

    def delete_first(self) -> Deferred[None]:
        """Forget the oldest file, which is flushed and not the only one, and delete it in the pool; fires when it is gone.

        Where it cannot be deleted it is the oldest one again: a log must not have gaps after the next start.
        """
        file = self.files.pop(0)
        job: Deferred[None] = self._pool.submit(discard, self._disk, file.detach(), file.path)

        def failed(failure: Failure) -> None:
            if self.directories.may_keep(file.path, failure.value):
                return
            if not isinstance(failure.value, UnsyncedDeletion):
                self.files.insert(0, file)
            failure.raiseException()

        return job.addErrback(failed)

    def close(self) -> Deferred[bool]:
        """Release all mappings and delete successors that were not used. Does not flush. Fires when done, with whether the
        device knows: a successor that comes back after an orderly stop would look like a hole in the log."""
        self._appending = False
        if self._preparing:
            idle: Deferred[None] = Deferred()
            self._when_idle.append(idle)
            return idle.addCallback(lambda _: self.close())
        for file in (*self.files, *self._prepared):
            self._close_now(file)
        paths, self._prepared = [file.path for file in reversed(self._prepared)], []
        return succeed(self.directories.remove(paths))

    def _close_now(self, file: MappedFile) -> None:
        mapping = file.detach()
        if mapping is not None:
            mapping.close()


def _log_close(failure: Failure) -> None:
    log.failure("giving a file back failed", failure)
