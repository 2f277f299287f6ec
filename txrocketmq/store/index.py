"""Which messages carry this key? All index files of a store (one of them is in `txrocketmq.store.indexfile`).

Stands for the official ``IndexService``. A file is named by the local time of its creation (``yyyyMMddHHmmssSSS``), its entries
are in log order. The file that is written is mapped, with its blocks allocated ahead by the pool; entries that come while a new
file or more blocks are being made wait in memory.

Crash story: after an unclean stop a file whose end time is younger than the checkpoint's index time is deleted, as
officially, and so is one that is not full (its header may not have reached the disk), and one that contradicts itself. What
recovery reads again of the log is indexed again; the first message may have some of its keys in the last file that was kept.
The checkpoint's time moves only while every full file could be synced. A stop is not orderly while entries have no place yet.
Trouble with an index never affects sends, and loses no entry: where too many wait, what comes then is indexed later, from the log
(`txrocketmq.store.catchup`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.codec.storefiles import INDEX_HEADER_BYTES
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IBlockingPool, IDisk, IMapping
from txrocketmq.store.checkpoint import StoreCheckpoint
from txrocketmq.store.filenames import is_index_name
from txrocketmq.store.indexfile import INDEX_ITEM, IndexFile, KeyHasher, index_file_name
from txrocketmq.store.indexjobs import remove_all, room_in, sync_and_close

AHEAD_BYTES = 1024 * 1024
"""How far ahead of the next entry blocks are allocated."""

MAX_WAITING = 200_000
"""At so many entries that wait for a file or for blocks no record should come; the one in hand is taken whole."""

MAX_AT_ONCE = 100_000
"""Entries of one batch that are made within one turn; what an ordinary batch of 4 MiB has is less."""

RETRY_MS = 1000
"""How long after a failure to make room the next try comes."""

MAX_MAPPED_FOR_QUERY = 8
"""Older files that stay mapped after a query."""


class IndexService:
    """All index files of a store.

    :ivar files: oldest first; the last one is written until it is full.
    :ivar when_full: called when so many entries wait that no record should come.
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
        self._working = self._failed = False
        self._when_idle: list[Deferred[None]] = []
        self._retry_at_ms = 0
        self._blocking = True
        self._resuming = True
        self._mapped_for_query: deque[IndexFile] = deque()
        self._hasher = KeyHasher()
        self.files: list[IndexFile] = []
        self.end_offset = -1
        self.when_full: Callable[[], object] = lambda: None
        # A message that may have some of its keys in the last file that was found, and more to come.
        self._resumed_offset = -1
        # Some file could not be synced: what the checkpoint says stays true only if it says no more.
        self._unsynced = False
        self._stopping = False

    # ------------------------------------------------------------------ start and stop

    def load(self, clean: bool) -> None:
        """Open the files (start-up only). What cannot be read is set aside: an index may be incomplete.

        :param clean: the last stop was orderly; else files that may be incomplete are deleted.
        """
        trusted = True
        doomed: list[str] = []
        names = filter(is_index_name, self._disk.listdir(self._directory))
        found = {name: self._disk.size(f"{self._directory}/{name}") for name in names}
        for name, size in found.items():
            file = self._new_file(name)
            if size == 0:
                self._disk.remove(file.path)
                continue
            if size != file.size and file.size not in found.values():
                self.log.error(
                    "index file {path} has {size} bytes, maxHashSlotNum and maxIndexNum ask for {expected}: not used",
                    path=file.path,
                    size=size,
                    expected=file.size,
                )
                continue
            reason = "may be incomplete after a crash"
            if size != file.size:
                reason = f"has {size} bytes, others {file.size}"
                trusted = False
            elif not self._is_sound(file):
                reason = "contradicts itself"
                trusted = False
            elif file.count <= 1 and file.end_offset <= 0:
                reason = "has no entries"
                trusted = False
            # Behind one that is not whole none counts: what that one lacks would never be indexed again.
            trusted = trusted and (clean or self._is_synced(file))
            if trusted:
                self.files.append(file)
                continue
            doomed.append(file.path)
            self.log.warn(
                "index file {path} {reason}: deleted, what the log holds behind the last good one is indexed again",
                path=file.path,
                reason=reason,
            )
        # The last one first: what a start that is cut short leaves must not look trustworthy without those before it.
        for path in reversed(doomed):
            self._disk.remove(path)
        self._go_on()

    def drop_foreign(self, begins_at: int, time_at: Callable[[int], int]) -> None:
        """Delete files that tell of another log (start-up only), and all behind the first of them: a directory may have been
        copied, or put back, by itself.

        :param begins_at: where the log begins; of what is gone nothing can be said.
        :param time_at: store time of the record that begins at an offset in ms, -1 when none does.
        """
        for number, file in enumerate(self.files):
            if file.count <= 1 or file.end_offset < begins_at:
                continue
            if time_at(file.end_offset) != file.end_timestamp_ms:
                self.log.warn(
                    "index file {path} does not belong to this log, which has no such message at {offset}: made again",
                    path=file.path,
                    offset=file.end_offset,
                )
                self._drop_from(number)
                return

    def _drop_from(self, number: int) -> None:
        doomed, self.files = self.files[number:], self.files[:number]
        for file in reversed(doomed):
            mapping = file.detach()
            if mapping is not None:
                mapping.close()
            self._disk.remove(file.path)
        self._go_on()

    def _is_sound(self, file: IndexFile) -> bool:
        file.load_header(self._disk.read_at(file.path, 0, INDEX_HEADER_BYTES))
        return file.is_sound(self._disk)

    def _is_synced(self, file: IndexFile) -> bool:
        """Whether a file was surely on the device before the crash. Where one was not, no later one was."""
        # Files are synced in order. Of several that end at the checkpoint's very time only the first was surely meant.
        limit = self._checkpoint.index_msg_timestamp_ms
        if self.files and self.files[-1].end_timestamp_ms >= limit:
            return False
        return file.is_full and file.end_timestamp_ms <= limit

    def _go_on(self) -> None:
        """Go on behind the last file."""
        self.end_offset = self._resumed_offset = -1
        self._current = None
        if self.files:
            last = self.files[-1]
            if last.count > 1 or last.end_offset > 0:
                self.end_offset = last.end_offset
            if last.is_full:
                self._resumed_offset = last.end_offset
            else:
                self._use_now(last)

    def cut_beyond(self, physical_offset: int) -> bool:
        """Delete files that point at or beyond a log offset (start-up only); whether there were any."""
        kept = [file for file in self.files if file.end_offset < physical_offset]
        if len(kept) == len(self.files):
            if self.end_offset >= physical_offset:
                # What came last has no keys, or no place yet.
                self._waiting.clear()
                self.end_offset = self.files[-1].end_offset if self.files else -1
                self._resumed_offset = self.end_offset
            return False
        for file in self.files[len(kept) :]:
            self.log.warn(
                "index file {path} points at {end}, beyond the log's end {offset}: it is made again",
                path=file.path,
                end=file.end_offset,
                offset=physical_offset,
            )
            mapping = file.detach()
            if mapping is not None:
                mapping.close()
            self._disk.remove(file.path)
        self.files = kept
        self._waiting.clear()
        self._go_on()
        return True

    def _new_file(self, name: str) -> IndexFile:
        config = self._config
        path = f"{self._directory}/{name}"
        return IndexFile(path, config.max_hash_slot_num, config.max_index_num)

    def _use_now(self, file: IndexFile) -> None:
        try:
            end = file.blocks_for(file.count) + AHEAD_BYTES
            file.attach(room_in(self._disk, file.path, file.size, end, None))
        except (OSError, StoreError) as error:
            self._note_failure(error)
        self._current = file

    def recovered(self) -> None:
        """Recovery is over: from now on files and blocks are made in the pool."""
        self._blocking = False

    def caught_up(self) -> None:
        """The index holds all that is in the log: what comes now is new."""
        self._resuming = False

    @property
    def waiting(self) -> int:
        """Entries that have no place yet, and cannot be found."""
        return len(self._waiting)

    @property
    def is_behind(self) -> bool:
        """Whether room is being made for so many entries that wait for it that more should not come before."""
        return self._working and not self._failed and len(self._waiting) > MAX_WAITING // 2

    def retry(self) -> None:
        """Try again to find a place for entries that wait for one, if it is time to."""
        if self._waiting and not self._blocking:
            self._make_room()

    def stop(self) -> Deferred[bool]:
        """Sync and close all files; True when everything is on the device, so that the next start may trust them."""
        if self._waiting and not self._working and not self._stopping:
            self._stopping = True
            self._retry_at_ms = 0
            self._make_room()
        if self._working:
            waiter: Deferred[None] = Deferred()
            self._when_idle.append(waiter)
            return waiter.addCallback(lambda _: self.stop())
        mappings = [file.detach() for file in self.files]
        open_mappings = [mapping for mapping in mappings if mapping is not None]
        self._current = None
        job: Deferred[None] = self._pool.submit(sync_and_close, open_mappings)
        return job.addCallbacks(lambda _: None, self._sync_failed).addCallback(
            lambda _: not (self._unsynced or self._waiting)
        )

    def when_idle(self) -> Deferred[None]:
        """Fires when nothing is being made ready."""
        if not self._working:
            return succeed(None)
        idle: Deferred[None] = Deferred()
        self._when_idle.append(idle)
        return idle

    def resume_at_end(self) -> None:
        """The log was cut, and the index with it: what comes may be in the last file already."""
        self._resuming = True

    def _sync_failed(self, failure: Failure) -> None:
        self._unsynced = True
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
        put = self._put
        current = self._current
        if physical_offset <= self.end_offset:
            if physical_offset != self._resumed_offset or not self._resuming:
                return
            put = self._put_missing
        elif (
            current is not None
            and not self._waiting
            and current.put_message(
                topic, uniq_key, keys, tag_hash, physical_offset, store_timestamp_ms
            )
        ):
            self.end_offset = physical_offset
            if current.count + 1024 > current.put_limit and not self._blocking:
                self._make_room()
            return
        self.end_offset = physical_offset
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

    def put_batch(
        self,
        topic: str,
        messages: Iterable[tuple[str | None, str | None, int, int]],
        store_timestamp_ms: int,
    ) -> None:
        """As `put_keys` for messages one behind the other: ``(unique id, keys, tag hash, physical offset)``. Those for which this
        would take too long are left out; `when_full` is told, and `end_offset` says which."""
        one_by_one = self._waiting or self._blocking
        hash_of = self._hasher.hash
        entries: list[tuple[int, int]] = []
        for uniq_key, keys, tag_hash, offset in messages:
            if len(entries) > MAX_AT_ONCE or len(self._waiting) >= MAX_WAITING:
                self.when_full()
                break
            if one_by_one or offset <= self.end_offset:
                # Perhaps what a start found of it in the index is not all.
                self.put_keys(topic, uniq_key, keys, tag_hash, offset, store_timestamp_ms)
                continue
            self.end_offset = offset
            if uniq_key:
                entries.append((hash_of(topic, uniq_key), offset))
            if keys:
                entries += [(hash_of(topic, key), offset) for key in keys.split(" ") if key]
            if tag_hash >= 0:
                entries.append((tag_hash, offset))
        current = self._current
        if current is None or not current.put_many(entries, store_timestamp_ms):
            for key_hash, offset in entries:
                self._put(key_hash, offset, store_timestamp_ms)
            current = self._current
        if current is not None and current.mapping is not None and entries:
            # One that is full may be closed already: then all of them wait.
            current.write_header()
            if current.count + 1024 > current.put_limit:
                self._make_room()

    def put_items(self, items: bytes, first_offset: int, last_offset: int) -> bool:
        """As `put_keys` for many messages, whose entries are packed (`INDEX_ITEM`); False where some may be there already: nothing was
        done then, `put_keys` knows about those.

        :param first_offset: of the first message.
        :param last_offset: of the last one, whether or not it has keys.
        """
        if first_offset <= self.end_offset:
            return False
        self.end_offset = last_offset
        count, done = len(items) // INDEX_ITEM.size, 0
        while done < count:
            current = self._current
            taken = 0
            if current is not None and not self._waiting:
                taken = current.put_items(items, done)
            if not taken and not self._blocking:
                self._wait(INDEX_ITEM.iter_unpack(items[done * INDEX_ITEM.size :]))
                break
            if not taken:
                # This one sees to room.
                self._put(*INDEX_ITEM.unpack_from(items, done * INDEX_ITEM.size))
                taken = 1
            done += taken
        current = self._current
        if count and current is not None and current.mapping is not None:
            current.write_header()
            if current.count + 1024 > current.put_limit and not self._blocking:
                self._make_room()
        return True

    def _put_missing(self, key_hash: int, physical_offset: int, store_timestamp_ms: int) -> None:
        """As `_put`, unless the entry is in the file with which the start began."""
        for file in self.files:
            if file.end_offset == self._resumed_offset:
                found: list[int] = []
                if file.mapping is None:
                    self._map_for_query(file)
                file.select(key_hash, file.count, 0, store_timestamp_ms, found)
                if physical_offset in found:
                    return
        self._put(key_hash, physical_offset, store_timestamp_ms)

    def _put(self, key_hash: int, physical_offset: int, store_timestamp_ms: int) -> None:
        current = self._current
        if (
            current is None
            or self._waiting
            or not current.put(key_hash, physical_offset, store_timestamp_ms)
        ):
            self._wait(((key_hash, physical_offset, store_timestamp_ms),))

    def _wait(self, entries: Iterable[tuple[int, int, int]]) -> None:
        before = len(self._waiting)
        self._waiting.extend(entries)
        self._make_room()
        if before < MAX_WAITING <= len(self._waiting):
            self.when_full()

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
                self._room_made(room_in(self._disk, file.path, file.size, end, mapping), file)
            except (OSError, StoreError) as error:
                self._note_failure(error)
            return
        self._working = True
        job: Deferred[IMapping] = self._pool.submit(
            room_in, self._disk, file.path, file.size, end, mapping
        )
        job.addCallback(self._room_made, file).addErrback(self._room_failed)
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
            sync_and_close([mapping])
            self._finished(None, timestamp_ms)
            return
        job: Deferred[None] = self._pool.submit(sync_and_close, [mapping])
        job.addCallbacks(self._finished, self._sync_failed, (timestamp_ms,))

    def _finished(self, _: None, timestamp_ms: int) -> None:
        checkpoint = self._checkpoint
        if not self._unsynced:
            checkpoint.index_msg_timestamp_ms = max(checkpoint.index_msg_timestamp_ms, timestamp_ms)

    def _room_failed(self, failure: Failure) -> None:
        if not isinstance(failure.value, OSError | StoreError):
            self.log.failure("making room in the index", failure)
        # One that nobody foresaw waits, too: at once again, it would fail again without an end.
        self._note_failure(failure.value)

    def _note_failure(self, error: BaseException | None) -> None:
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
        if file in self._mapped_for_query:
            # It was unmapped meanwhile for another reason.
            self._mapped_for_query.remove(file)
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
        job: Deferred[None] = self._pool.submit(remove_all, self._disk, doomed)
        return job.addErrback(self._deletion_failed)

    def _deletion_failed(self, failure: Failure) -> None:
        self.log.error("old index files were not deleted: {error}", error=failure.value)
