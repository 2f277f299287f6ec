"""Which messages carry this key? The index files: hash slots with chains of entries.

Stand for the official ``IndexFile`` and ``IndexService``; the layout is in `txrocketmq.codec.storefiles`. A file is named by
the local time of its creation (``yyyyMMddHHmmssSSS``), its entries are in log order. The file that is written is mapped, with
its blocks allocated ahead by the pool; entries that come while a new file or more blocks are being made wait in memory.

Crash story: after an unclean stop a file whose end time is younger than the checkpoint's index time is deleted, as
officially, and so is one that is not full (its header may not have reached the disk). What recovery reads again of the log
is indexed again. Trouble with an index never affects sends: entries are lost, which is logged once and counted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from operator import mul

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.codec.storefiles import (
    INDEX_ENTRY,
    INDEX_ENTRY_BYTES,
    INDEX_HEADER,
    INDEX_HEADER_BYTES,
    INDEX_SLOT,
    INDEX_SLOT_BYTES,
)
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IBlockingPool, IDisk, IMapping
from txrocketmq.model.javahash import index_hash, java_hash
from txrocketmq.store.checkpoint import StoreCheckpoint

AHEAD_BYTES = 1024 * 1024
"""How far ahead of the next entry blocks are allocated."""

MAX_WAITING = 200_000
"""Entries that may wait for a file or for blocks; more are lost."""

RETRY_MS = 1000
"""How long after a failure to make room the next try comes."""

TAG_TYPE = "T"
"""The kind of key by which a query asks for a tag (official ``INDEX_TAG_TYPE``)."""

MAX_MAPPED_FOR_QUERY = 8
"""Older files that stay mapped after a query."""

_MAX_INT = 0x7FFFFFFF


def index_file_name(now_ms: int) -> str:
    """The official name for a file made now, in local time."""
    local = time.localtime(now_ms // 1000)
    return time.strftime("%Y%m%d%H%M%S", local) + f"{now_ms % 1000:03d}"


def tag_index_hash(topic: str, tag: str) -> int:
    """The index hash of a tag: tags are kept apart from keys by a letter before them."""
    return index_hash(topic, f"{TAG_TYPE}#{tag}")


class KeyHasher:
    """The index hash of ``topic#key``, quicker for keys that begin alike, as the unique ids of one producer do."""

    _HEAD = 20
    _MAX_HEADS = 4096
    _WEIGHTS = tuple(
        tuple(pow(31, power, 1 << 32) for power in range(length - 1, -1, -1))
        for length in range(129)
    )

    def __init__(self) -> None:
        self._heads: dict[str, int] = {}

    def hash(self, topic: str, key: str) -> int:
        """What `index_hash` gives."""
        # Short keys have only the topic in common.
        split = self._HEAD if len(key) > self._HEAD + 4 else 0
        head = f"{topic}#{key[:split]}"
        rest = key[split:]
        length = len(rest)
        if length == 0 or length > 128 or not rest.isascii():
            return index_hash(topic, key)
        start = self._heads.get(head)
        if start is None:
            if len(self._heads) >= self._MAX_HEADS:
                self._heads.clear()
            start = self._heads[head] = java_hash(head) & 0xFFFFFFFF
        weights = self._WEIGHTS[length]
        value: int = (
            start * 31 * weights[0] + sum(map(mul, rest.encode("ascii"), weights))
        ) & 0xFFFFFFFF
        if value >= 0x80000000:
            value = 0x100000000 - value
            if value == 0x80000000:
                return 0
        return value


class IndexFile:
    """One index file.

    :ivar count: number of the next entry; entry 0 is never used.
    :ivar put_limit: entries from this number on cannot be written now: the file is full or their blocks are missing.
    :ivar mapping: the `IMapping`, None while the file is not mapped.
    """

    __slots__ = (
        "_buffer",
        "_entries_at",
        "begin_offset",
        "begin_timestamp_ms",
        "count",
        "end_offset",
        "end_timestamp_ms",
        "mapping",
        "max_entries",
        "path",
        "put_limit",
        "slots",
        "slots_used",
    )

    def __init__(self, path: str, slots: int, max_entries: int) -> None:
        self.path = path
        self.slots = slots
        self.max_entries = max_entries
        self._entries_at = INDEX_HEADER_BYTES + slots * INDEX_SLOT_BYTES
        self._buffer = memoryview(b"")
        self.mapping: IMapping | None = None
        self.put_limit = 0
        self.begin_timestamp_ms = self.end_timestamp_ms = 0
        self.begin_offset = self.end_offset = 0
        self.slots_used = 0
        self.count = 1

    @property
    def size(self) -> int:
        """The file's length in bytes."""
        return self._entries_at + self.max_entries * INDEX_ENTRY_BYTES

    @property
    def is_full(self) -> bool:
        """Whether no entry can be added any more."""
        return self.count >= self.max_entries

    def load_header(self, data: bytes) -> None:
        """Take over what the file's first bytes say."""
        (
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_offset,
            self.end_offset,
            self.slots_used,
            count,
        ) = INDEX_HEADER.unpack_from(data)
        self.count = max(count, 1)

    def follow(self, older: IndexFile) -> None:
        """Begin where a full file ended, as officially, until the first entry says better."""
        self.begin_offset = self.end_offset = older.end_offset
        self.begin_timestamp_ms = self.end_timestamp_ms = older.end_timestamp_ms
        self.write_header()

    def attach(self, mapping: IMapping) -> None:
        """Take a mapping of this file."""
        self.mapping = mapping
        self._buffer = mapping.buffer
        self.blocks_grew()

    def blocks_grew(self) -> None:
        """Take note of blocks that were allocated."""
        if self.mapping is not None:
            ready = (self.mapping.allocated_to() - self._entries_at) // INDEX_ENTRY_BYTES
            self.put_limit = max(0, min(ready, self.max_entries))

    def detach(self) -> IMapping | None:
        """Give the mapping away, to be closed."""
        mapping, self.mapping = self.mapping, None
        self._buffer = memoryview(b"")
        self.put_limit = 0
        return mapping

    def blocks_for(self, entries: int) -> int:
        """Length of the file's part that holds everything before this entry number."""
        return min(self._entries_at + entries * INDEX_ENTRY_BYTES, self.size)

    def put(self, key_hash: int, physical_offset: int, store_timestamp_ms: int) -> bool:
        """Add an entry; False when the file is full or blocks are missing. Call `write_header` after the last of them."""
        count = self.count
        if count >= self.put_limit:
            return False
        buffer = self._buffer
        slot_at = INDEX_HEADER_BYTES + key_hash % self.slots * INDEX_SLOT_BYTES
        (older,) = INDEX_SLOT.unpack_from(buffer, slot_at)
        if older <= 0 or older > count:
            older = 0
            self.slots_used += 1
        if self.begin_timestamp_ms <= 0:
            seconds = 0
        else:
            seconds = (store_timestamp_ms - self.begin_timestamp_ms) // 1000
            if not 0 <= seconds <= _MAX_INT:
                seconds = 0 if seconds < 0 else _MAX_INT
        INDEX_ENTRY.pack_into(
            buffer,
            self._entries_at + count * INDEX_ENTRY_BYTES,
            key_hash,
            physical_offset,
            seconds,
            older,
        )
        INDEX_SLOT.pack_into(buffer, slot_at, count)
        if count <= 1:
            self.begin_offset = physical_offset
            self.begin_timestamp_ms = store_timestamp_ms
        self.count = count + 1
        self.end_offset = physical_offset
        self.end_timestamp_ms = store_timestamp_ms
        return True

    def write_header(self) -> None:
        """Let the file say what it holds; due after all entries of a message were added."""
        INDEX_HEADER.pack_into(
            self._buffer,
            0,
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_offset,
            self.end_offset,
            self.slots_used,
            self.count,
        )

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether the file may hold entries of this time range."""
        return begin_ms <= self.end_timestamp_ms and end_ms >= self.begin_timestamp_ms

    def select(
        self, key_hash: int, max_count: int, begin_ms: int, end_ms: int, found: list[int]
    ) -> None:
        """Add the physical offsets of a key, newest first, to ``found`` until it has ``max_count``."""
        buffer = self._buffer
        (number,) = INDEX_SLOT.unpack_from(
            buffer, INDEX_HEADER_BYTES + key_hash % self.slots * INDEX_SLOT_BYTES
        )
        if number > self.count:
            return
        while number > 0 and len(found) < max_count:
            entry_hash, physical_offset, seconds, older = INDEX_ENTRY.unpack_from(
                buffer, self._entries_at + number * INDEX_ENTRY_BYTES
            )
            if seconds < 0:
                return
            entry_ms = self.begin_timestamp_ms + seconds * 1000
            if entry_hash == key_hash and begin_ms <= entry_ms <= end_ms:
                found.append(physical_offset)
            # A chain goes to older entries only: anything else is damage, and could go round in circles.
            if entry_ms < begin_ms or older >= number:
                return
            number = older


class IndexService:
    """All index files of a store.

    :ivar files: oldest first; the last one is written until it is full.
    :ivar lost: entries that found no place.
    """

    log = Logger()

    def __init__(
        self,
        config: MessageStoreConfig,
        disk: IDisk,
        pool: IBlockingPool,
        checkpoint: StoreCheckpoint,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._disk = disk
        self._pool = pool
        self._checkpoint = checkpoint
        self._now_ms = now_ms
        self._directory = f"{config.store_path_root_dir}/index"
        self._current: IndexFile | None = None
        self._waiting: deque[tuple[int, int, int]] = deque()
        self._working = False
        self._when_idle: list[Deferred[None]] = []
        self._failed = False
        self._retry_at_ms = 0
        self._blocking = True
        self._mapped_for_query: deque[IndexFile] = deque()
        self._hasher = KeyHasher()
        self.files: list[IndexFile] = []
        self.end_offset = -1
        self.lost = 0

    # ------------------------------------------------------------------ start and stop

    def load(self, clean: bool) -> None:
        """Open the files (start-up only). What cannot be read is set aside: an index may be incomplete.

        :param clean: the last stop was orderly; else files that may be incomplete are deleted.
        """
        for name in self._disk.listdir(self._directory):
            if not name.isdigit():
                continue
            file = self._new_file(name)
            size = self._disk.size(file.path)
            if size != file.size:
                self.log.error(
                    "index file {path} has {size} bytes, maxHashSlotNum and maxIndexNum ask for {expected}: not used",
                    path=file.path,
                    size=size,
                    expected=file.size,
                )
                continue
            file.load_header(self._disk.read_at(file.path, 0, INDEX_HEADER_BYTES))
            unsafe = file.end_timestamp_ms > self._checkpoint.index_msg_timestamp_ms
            if not clean and (unsafe or not file.is_full):
                self.log.info("index file {path} is made again from the log", path=file.path)
                self._disk.remove(file.path)
                continue
            if file.count > file.max_entries:
                file.count = file.max_entries
            self.files.append(file)
        if self.files:
            last = self.files[-1]
            if last.count > 1 or last.end_offset > 0:
                self.end_offset = last.end_offset
            if not self.files[-1].is_full:
                self._use_now(self.files[-1])

    def _new_file(self, name: str) -> IndexFile:
        config = self._config
        path = f"{self._directory}/{name}"
        return IndexFile(path, config.max_hash_slot_num, config.max_index_num)

    def _use_now(self, file: IndexFile) -> None:
        try:
            end = file.blocks_for(file.count) + AHEAD_BYTES
            file.attach(_room(self._disk, file.path, file.size, end, None))
        except (OSError, StoreError) as error:
            self._note_failure(error)
        self._current = file

    def recovered(self) -> None:
        """Recovery is over: from now on files and blocks are made in the pool."""
        self._blocking = False

    def stop(self) -> Deferred[None]:
        """Sync and close all files."""
        if self._working:
            waiter: Deferred[None] = Deferred()
            self._when_idle.append(waiter)
            return waiter.addCallback(lambda _: self.stop())
        mappings = [file.detach() for file in self.files]
        open_mappings = [mapping for mapping in mappings if mapping is not None]
        self._current = None
        job: Deferred[None] = self._pool.submit(_sync_and_close, open_mappings)
        return job.addErrback(self._stop_failed)

    def _stop_failed(self, failure: Failure) -> None:
        self.log.error("index files were not synced: {error}", error=failure.value)

    # ------------------------------------------------------------------ writing

    def put_keys(
        self,
        topic: str,
        uniq_key: str | None,
        keys: str | None,
        tag_hash: int,
        physical_offset: int,
        store_timestamp_ms: int,
    ) -> None:
        """Index a message under its unique id, each of its space-separated keys, and its tag, in this order.

        Never raises for lack of room.

        :param tag_hash: `tag_index_hash` of its tag, -1 without one. 4.x does not index tags, 5.4 does.
        """
        if physical_offset <= self.end_offset:
            return
        self.end_offset = physical_offset
        put = self._put
        if uniq_key:
            put(self._hasher.hash(topic, uniq_key), physical_offset, store_timestamp_ms)
        if keys:
            for key in keys.split(" "):
                if key:
                    put(self._hasher.hash(topic, key), physical_offset, store_timestamp_ms)
        if tag_hash >= 0:
            put(tag_hash, physical_offset, store_timestamp_ms)
        current = self._current
        if current is not None and current.end_offset == physical_offset:
            current.write_header()
            if current.count + 1024 > current.put_limit and not self._blocking:
                self._make_room()

    def _put(self, key_hash: int, physical_offset: int, store_timestamp_ms: int) -> None:
        current = self._current
        if (
            current is None
            or self._waiting
            or not current.put(key_hash, physical_offset, store_timestamp_ms)
        ):
            self._wait(key_hash, physical_offset, store_timestamp_ms)

    def _wait(self, key_hash: int, physical_offset: int, store_timestamp_ms: int) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self.lost += 1
            return
        self._waiting.append((key_hash, physical_offset, store_timestamp_ms))
        self._make_room()

    def _make_room(self) -> None:
        """See to blocks for the current file, or to a new file. In the pool, unless recovery is still going on."""
        if self._working or (self._failed and self._now_ms() < self._retry_at_ms):
            return
        current = self._current
        if current is not None and current.mapping is not None and not current.is_full:
            if current.put_limit >= current.max_entries:
                return
            file, mapping = current, current.mapping
            end = file.blocks_for(file.put_limit) + AHEAD_BYTES
        else:
            file, mapping = self._next_file(), None
            end = file.blocks_for(file.count) + AHEAD_BYTES
        if self._blocking:
            try:
                self._room_made(_room(self._disk, file.path, file.size, end, mapping), file)
            except (OSError, StoreError) as error:
                self._note_failure(error)
            return
        self._working = True
        job: Deferred[IMapping] = self._pool.submit(
            _room, self._disk, file.path, file.size, end, mapping
        )
        job.addCallback(self._room_made, file)
        job.addErrback(self._room_failed)
        job.addBoth(self._room_over)

    def _next_file(self) -> IndexFile:
        """A file whose name sorts behind the last one's, whatever the clock does."""
        name = index_file_name(self._now_ms())
        if self.files:
            last = self.files[-1].path.rpartition("/")[2]
            if self._current is not None and self._current.mapping is None:
                return self._current
            if name <= last:
                name = str(int(last) + 1)
        return self._new_file(name)

    def _room_made(self, mapping: IMapping, file: IndexFile) -> None:
        if file.mapping is None:
            file.attach(mapping)
            if not self.files or self.files[-1] is not file:
                if self.files:
                    file.follow(self.files[-1])
                    self._finish(self.files[-1])
                self.files.append(file)
            self._current = file
        else:
            file.blocks_grew()
        if self._failed:
            self._failed = False
            self.log.info("the index can be written again")
        waiting = self._waiting
        while waiting and file.put(*waiting[0]):
            waiting.popleft()
        file.write_header()

    def _finish(self, file: IndexFile) -> None:
        """A file is full: sync it, then let the checkpoint say so."""
        if file.mapping is None:
            return
        file.write_header()
        mapping = file.detach()
        assert mapping is not None
        timestamp_ms = file.end_timestamp_ms
        if self._blocking:
            _sync_and_close([mapping])
            self._checkpoint.index_msg_timestamp_ms = timestamp_ms
            return
        job: Deferred[None] = self._pool.submit(_sync_and_close, [mapping])
        job.addCallbacks(self._finished, self._stop_failed, (timestamp_ms,))

    def _finished(self, _: None, timestamp_ms: int) -> None:
        checkpoint = self._checkpoint
        checkpoint.index_msg_timestamp_ms = max(checkpoint.index_msg_timestamp_ms, timestamp_ms)

    def _room_failed(self, failure: Failure) -> None:
        if isinstance(failure.value, OSError | StoreError):
            self._note_failure(failure.value)
        else:
            self.log.failure("making room in the index", failure)

    def _note_failure(self, error: BaseException) -> None:
        self._retry_at_ms = self._now_ms() + RETRY_MS
        if not self._failed:
            self._failed = True
            self.log.error("the index cannot be written: {error}", error=error)

    def _room_over(self, _: object) -> None:
        self._working = False
        if self._waiting and not self._failed:
            self._make_room()
        idle, self._when_idle = self._when_idle, []
        for waiter in idle:
            waiter.callback(None)

    # ------------------------------------------------------------------ queries

    def query(
        self, key_hash: int, max_count: int, begin_ms: int, end_ms: int
    ) -> tuple[list[int], int, int]:
        """Physical offsets of messages that may carry a key, newest file first, and the end time and offset of the index.

        Keys with the same hash are not told apart here: look at the records.

        :param key_hash: `index_hash`, or `tag_index_hash` for a tag.
        """
        found: list[int] = []
        if not self.files:
            return found, 0, 0
        last = self.files[-1]
        for file in reversed(self.files):
            if file.overlaps(begin_ms, end_ms) and file.count > 1:
                if file.mapping is None:
                    self._map_for_query(file)
                file.select(key_hash, max_count, begin_ms, end_ms, found)
            if file.begin_timestamp_ms < begin_ms or len(found) >= max_count:
                break
        return found, last.end_timestamp_ms, last.end_offset

    def _map_for_query(self, file: IndexFile) -> None:
        file.attach(self._disk.map(file.path, file.size, False))
        file.put_limit = 0
        self._mapped_for_query.append(file)
        if len(self._mapped_for_query) > MAX_MAPPED_FOR_QUERY:
            mapping = self._mapped_for_query.popleft().detach()
            if mapping is not None:
                mapping.close()

    def expire(self, min_physical_offset: int) -> Deferred[None]:
        """Delete files that only point below a log offset, never the last one."""
        doomed = []
        while len(self.files) > 1 and self.files[0].end_offset < min_physical_offset:
            file = self.files.pop(0)
            mapping = file.detach()
            if mapping is not None:
                mapping.close()
            doomed.append(file.path)
        if not doomed:
            return succeed(None)
        job: Deferred[None] = self._pool.submit(_remove_all, self._disk, doomed)
        return job.addErrback(self._stop_failed)


def _room(disk: IDisk, path: str, size: int, end: int, mapping: IMapping | None) -> IMapping:
    """Pool: allocate a file's blocks up to ``end``; map it first, and make it, where that was not done."""
    if mapping is not None:
        mapping.allocate(end)
        return mapping
    mapping = disk.map(path, size, True)
    try:
        mapping.allocate(end)
    except OSError:
        mapping.close()
        raise
    return mapping


def _sync_and_close(mappings: list[IMapping]) -> None:
    for mapping in mappings:
        try:
            mapping.sync(0, mapping.size)
        finally:
            mapping.close()


def _remove_all(disk: IDisk, paths: list[str]) -> None:
    for path in paths:
        disk.remove(path)
