"""Topics with ``cleanup.policy=COMPACTION``: who follows their queues, when are they compacted, and where does a pull read?

Stands for the official ``CompactionStore`` and ``CompactionService``. Officially each message is copied when it is dispatched, and a pull
reads the copy. Here the plain queue, which has every message anyway, is followed at the queues' flush interval, and a pull reads the
copy up to where it goes and the plain queue behind. So what is sent can be read at once, and what a crash takes from the copy is
copied again, since the commit log gives no file up before its messages are copied (`catch_up`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, DeferredLock, DeferredSemaphore
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IDisk, IMessageFilter
from txrocketmq.model.attributes import BATCH_CQ, CLEANUP_POLICY, COMPACTION, QUEUE_TYPE
from txrocketmq.store.compaction.files import (
    DIRECTORY,
    Kept,
    end_of,
    kept_at,
    layout_of,
    without_place,
)
from txrocketmq.store.compaction.older import OlderMessages
from txrocketmq.store.compaction.positions import FILE_NAME, save_position
from txrocketmq.store.compaction.queue import CompactedQueue, Pools
from txrocketmq.store.compaction.rewrite import Stopped
from txrocketmq.store.reader import MAX_PULL_BYTES, MIN_PULL_BYTES
from txrocketmq.store.results import GetMessageResult, GetMessageStatus

if TYPE_CHECKING:
    from txrocketmq.store.message_store import MessageStore

QueueKey = tuple[str, int]
PlainRead = Callable[[int], GetMessageResult | Deferred[GetMessageResult]]

SCAN_MS = 30_000
"""How often topics are looked for that are new (official)."""

DELAY_MS = 1000
BATCH_BYTES = 1 << 20
"""So many bytes are copied at once."""

_Status = GetMessageStatus


class CompactionStore:
    """All compacted queues.

    :param store: has the plain queues. While those are made again, nothing is copied.
    :ivar queues: the queues that are known, by topic and queue id.
    :ivar older: what a slave's log never had.
    """

    log = Logger()

    def __init__(
        self,
        store: MessageStore,
        config: MessageStoreConfig,
        disk: IDisk,
        clock: IReactorTime,
        pools: Pools,
        rng: Random | None = None,
    ) -> None:
        self.queues: dict[QueueKey, CompactedQueue] = {}
        self._config = config
        self._enabled = config.enable_compaction
        self._disk = disk
        self._clock = clock
        self._pools = pools
        self._store = store
        self._reader = store.reader
        self._table = store.queue_table
        self._rng = rng or Random()
        threads = max(1, config.compaction_thread_num)
        self._threads = DeferredSemaphore(min(os.cpu_count() or 1, threads))
        self._map_bytes = config.max_offset_map_size // threads
        self._positions_path = f"{config.store_path_root_dir}/{DIRECTORY}/{FILE_NAME}"
        self._saving = DeferredLock()
        self._timers: dict[object, IDelayedCall] = {}
        self._following = DeferredLock()
        self._deleting: set[QueueKey] = set()
        self._working: set[Deferred[Any]] = set()
        self._running = False
        self._failed: set[QueueKey] = set()
        self.older = OlderMessages(store, lambda: int(clock.seconds() * 1000))

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Begin to follow queues and to compact them."""
        self._running = self._enabled
        self.older.is_stopped = not self._running
        self._scan()
        self._again("follow", self._config.flush_interval_consume_queue, self._follow_again)

    async def stop(self) -> None:
        """Copy what is left and end; a run is given up. What fails is logged: the next start copies again."""
        if not self._running:
            return
        self._running = False
        self.older.is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        while self._working:
            waiting: Deferred[None] = Deferred()
            next(iter(self._working)).addBoth(_pass_on, waiting)
            await waiting
        await self.catch_up()

    def _again(self, name: object, delay_ms: int, work: Callable[[], object]) -> None:
        def run() -> None:
            self._timers.pop(name, None)
            work()

        if self._running:
            self._timers[name] = self._clock.callLater(delay_ms / 1000, run)

    def _scan(self) -> None:
        self._find_new()
        self._again("scan", SCAN_MS, self._scan)

    def _find_new(self) -> None:
        """See which queues of compacted topics are new here."""
        topics = set(filter(self.is_compacted, {topic for topic, _ in self._table.queues}))
        if topics:
            for key in self._table.queues:
                if key[0] in topics:
                    self._known(key)
        source = self.older.source
        if source is not None and source.is_there() and self._enabled:
            for key in source.queues():
                if self.is_compacted(key[0]):
                    self._known(key)

    def is_compacted(self, topic: str) -> bool:
        """Whether the latest message of each key of a topic stays. Queues of batches are not compacted."""
        if not self._enabled:
            return False
        attributes = self._store.putter.topic_attributes(topic)
        return (
            attributes is not None
            and attributes.get(CLEANUP_POLICY) == COMPACTION
            and attributes.get(QUEUE_TYPE) != BATCH_CQ
        )

    def _known(self, key: QueueKey) -> CompactedQueue | None:
        """The queue of a compacted topic; None while its files are deleted."""
        queue = self.queues.get(key)
        if queue is None and key not in self._deleting:
            topic, queue_id = key
            queue = self.queues[key] = CompactedQueue(
                topic,
                queue_id,
                layout_of(self._config, topic, queue_id),
                self._disk,
                self._pools,
                self._positions_path,
            )
            self._schedule(key)
        return queue

    def delete_topics(self, topics: Iterable[str]) -> None:
        """Forget queues and delete their files."""
        doomed = frozenset(topics)
        for key in [key for key in self.queues if key[0] in doomed]:
            timer = self._timers.pop(key, None)
            if timer is not None:
                timer.cancel()
            self._deleting.add(key)
            self._work(Deferred.fromCoroutine(self._delete(key, self.queues.pop(key))))

    async def _delete(self, key: QueueKey, queue: CompactedQueue) -> None:
        try:
            await queue.delete()
            await self._save(queue)
        except (OSError, StoreError) as error:
            self.log.error(
                "{topic}-{queue_id}: not all files of the deleted topic are gone: {error}",
                topic=key[0],
                queue_id=key[1],
                error=error,
            )
        finally:
            self._deleting.discard(key)

    def _work(self, job: Deferred[Any]) -> None:
        """What a stop has to wait for."""
        self._working.add(job)

        def ended(_: object) -> None:
            self._working.discard(job)

        job.addBoth(ended)

    def _save(self, queue: CompactedQueue) -> Deferred[None]:
        """Let the file say what a queue's position is."""
        key = f"{queue.topic}_{queue.queue_id}"
        return self._saving.run(
            self._pools.write.submit,
            save_position,
            self._disk,
            self._positions_path,
            key,
            queue.position,
        )

    # ------------------------------------------------------------------ following

    def _follow_again(self) -> None:
        def done(_: object) -> None:
            self._again("follow", self._config.flush_interval_consume_queue, self._follow_again)

        self.catch_up().addBoth(done)

    def catch_up(self) -> Deferred[bool]:
        """Copy what came by now; fires when all of it is on the device, with whether it is."""
        self._find_new()
        return self._following.run(lambda: Deferred.fromCoroutine(self._follow_all()))

    async def _follow_all(self) -> bool:
        done = True
        for key, queue in list(self.queues.items()):
            try:
                done = await self._follow(queue) and done
                self._failed.discard(key)
            except (OSError, StoreError) as error:
                done = False
                if key not in self._failed:
                    self._failed.add(key)
                    self.log.error(
                        "{topic}-{queue_id}: messages are not copied for compaction, it is tried again: {error}",
                        topic=key[0],
                        queue_id=key[1],
                        error=error,
                    )
            except Exception:
                done = False
                self.log.failure(
                    "following {topic}-{queue_id} failed", topic=key[0], queue_id=key[1]
                )
        return done

    async def _follow(self, queue: CompactedQueue) -> bool:
        plain = self._table.find(queue.topic, queue.queue_id)
        if (plain is not None and plain.is_batch) or not self.is_compacted(queue.topic):
            return True
        if self._store.rebuild is not None:
            return False
        await self._check(queue)
        if self.older.lacks(queue, plain):
            fetching = self.older.fetch(queue, plain)
            if fetching is not None:
                self._work(fetching)
            return False
        if plain is None:
            return True
        end = plain.max_index
        # Those that are left out do not count in the copy, and would be looked at for ever.
        followed = queue.followed_to if queue.followed_to <= end else 0
        position = max(queue.end_offset, followed, plain.min_index)
        while position < end and not queue.is_deleted:
            messages, following = await self._take(queue, position, end)
            if messages:
                await queue.append(messages)
            if following <= position:
                # Either the flush is waited for, or the log cannot be read.
                unit = plain.unit(self._table.cache, position)
                return unit is not None and unit[0] + unit[1] > self._store.flushed_offset()
            position = queue.followed_to = following
        return True

    async def _check(self, queue: CompactedQueue) -> None:
        """Once after each start: is the newest copy that of the message which the plain queue has there? The commit log may have lost
        its end, and the offsets been given again; or the queue was begun anew."""
        await queue.opened()
        if queue.is_checked or self._store.rebuild is not None:
            return
        await queue.checking.run(lambda: Deferred.fromCoroutine(self._compare(queue)))

    async def _compare(self, queue: CompactedQueue) -> None:
        plain = self._table.find(queue.topic, queue.queue_id)
        last = queue.end_offset - 1
        if plain is None or plain.max_index <= 0 or queue.is_checked:
            return
        if last >= plain.min_index and not (
            last < plain.max_index and await self._is_copied(queue, last)
        ):
            self.log.warn(
                "{topic}-{queue_id}: message {last} is not the one that the commit log has; copies from {first} on are made again",
                topic=queue.topic,
                queue_id=queue.queue_id,
                last=last,
                first=plain.min_index,
            )
            await queue.cut(plain.min_index)
        queue.is_checked = True

    async def _is_copied(self, queue: CompactedQueue, offset: int) -> bool:
        result = self._reader.get_message(queue.topic, queue.queue_id, offset, 1, 1, None)
        if isinstance(result, Deferred):
            result = await result
        copy = await queue.read(offset, 1, 1)
        return [without_place(r) for r in result.records] == [
            without_place(r) for r in copy.records
        ]

    def recheck(self) -> None:
        """The commit log was cut: what is copied may not be in it any more."""
        for queue in self.queues.values():
            queue.is_checked = False
            queue.followed_to = 0

    async def _take(self, queue: CompactedQueue, position: int, end: int) -> tuple[list[Kept], int]:
        """Messages of the plain queue, and the offset that comes after them; only such as the commit log has on the device: what takes
        the place of an older message must not get lost."""
        flushed = self._store.flushed_offset()
        found: list[Kept] = []
        total = 0
        while position < end and total < BATCH_BYTES:
            result = self._reader.get_message(
                queue.topic, queue.queue_id, position, 1024, BATCH_BYTES, None
            )
            if isinstance(result, Deferred):
                result = await result
            for data in result.records:
                place = 0
                while place < len(data):
                    kept = kept_at(data, place)
                    if kept is None:
                        break
                    if end_of(kept.record) > flushed:
                        return found, kept.queue_offset
                    found.append(kept)
                    place += len(kept.record)
            total += result.size_bytes
            if result.next_begin_offset <= position:
                break
            position = result.next_begin_offset
        return found, position

    # ------------------------------------------------------------------ compaction

    def _schedule(self, key: QueueKey) -> None:
        """The next run: officially the interval, a second, and up to the interval again by chance."""
        interval_ms = max(self._config.compaction_schedule_internal, 1)
        delay_ms = interval_ms + DELAY_MS + self._rng.randrange(interval_ms)
        self._again(key, delay_ms, lambda: self._start_run(key))

    def _start_run(self, key: QueueKey) -> None:
        def ended(result: object) -> None:
            if isinstance(result, Failure) and not isinstance(result.value, Stopped):
                self.log.error(
                    "{topic}-{queue_id} was not compacted, it is tried again: {error}",
                    topic=key[0],
                    queue_id=key[1],
                    error=result.value,
                )
            if key in self.queues:
                self._schedule(key)

        self._work(self.compact(key).addBoth(ended))

    def compact(self, key: QueueKey) -> Deferred[None]:
        """One run of a queue now, as soon as a thread is free."""
        return self._threads.run(lambda: Deferred.fromCoroutine(self._compact(key)))

    async def _compact(self, key: QueueKey) -> None:
        queue = self.queues.get(key)
        if queue is None:
            return

        made = await queue.compacting.run(
            lambda: Deferred.fromCoroutine(
                queue.compact(self._map_bytes, lambda: self._save(queue), lambda: not self._running)
            )
        )
        if made is not None:
            self.log.info(
                "{topic}-{queue_id}: {kept} of {messages} messages stay, compared up to {offset}",
                topic=key[0],
                queue_id=key[1],
                kept=made.kept,
                messages=made.messages,
                offset=made.last_offset,
            )

    # ------------------------------------------------------------------ reading

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        max_bytes: int,
        message_filter: IMessageFilter | None,
        plain: PlainRead,
    ) -> GetMessageResult | Deferred[GetMessageResult]:
        """A pull of a compacted topic.

        :param plain: the same from the plain queue, at an offset.
        """
        queue = self._known((topic, queue_id))
        if queue is None:
            return plain(offset)
        return Deferred.fromCoroutine(
            self._get(queue, offset, max_messages, max_bytes, message_filter, plain)
        )

    async def _get(
        self,
        queue: CompactedQueue,
        offset: int,
        max_messages: int,
        max_bytes: int,
        message_filter: IMessageFilter | None,
        plain: PlainRead,
    ) -> GetMessageResult:
        await self._check(queue)
        config = self._config
        if offset < queue.end_offset:
            found = await queue.read(
                offset,
                max(1, min(max_messages, config.max_transfer_count_on_message_in_memory)),
                min(
                    min(max(max_bytes, MIN_PULL_BYTES), MAX_PULL_BYTES),
                    config.max_transfer_bytes_on_message_in_memory,
                ),
            )
            if found.units:
                return self._result(queue, found.units, found.records, message_filter)
        known = self._table.find(queue.topic, queue.queue_id)
        if self.older.lacks(queue, known) and (known is None or offset < known.min_index):
            # Nobody may be moved over what is still to come: whoever asks waits.
            return GetMessageResult(
                _Status.OFFSET_FOUND_NULL, offset, max(queue.min_offset, 0), offset
            )
        result = await _now(plain(offset))
        if result.status is _Status.OFFSET_TOO_SMALL:
            # The next message there is, as in the copy. An official slave that is sent on stays where it is, and asks for ever.
            result = await _now(plain(result.min_offset))
        first = queue.min_offset
        if first >= 0:
            result.min_offset = min(first, result.min_offset)
        return result

    def _result(
        self,
        queue: CompactedQueue,
        units: Iterable[tuple[int, int, int]],
        records: Iterable[bytes],
        message_filter: IMessageFilter | None,
    ) -> GetMessageResult:
        wanted: list[bytes] = []
        offsets: list[int] = []
        following = filtered = 0
        for (offset, code, _), record in zip(units, records, strict=True):
            following = offset + 1
            if message_filter is not None:
                if not message_filter.matches_tags_code(code):
                    continue
                if message_filter.needs_record and not message_filter.matches_record(record):
                    filtered += 1
                    continue
            wanted.append(record)
            offsets.append(offset)
        plain = self._table.find(queue.topic, queue.queue_id)
        end = queue.end_offset if plain is None else max(queue.end_offset, plain.max_index)
        return GetMessageResult(
            _Status.FOUND if wanted else _Status.NO_MATCHED_MESSAGE,
            following,
            queue.min_offset,
            end,
            wanted,
            len(wanted),
            sum(map(len, wanted)),
            offsets,
            False,
            filtered,
        )


async def _now(result: GetMessageResult | Deferred[GetMessageResult]) -> GetMessageResult:
    return await result if isinstance(result, Deferred) else result


def _pass_on(result: object, waiting: Deferred[None]) -> object:
    waiting.callback(None)
    return result
