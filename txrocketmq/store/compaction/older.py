"""What does a slave of compacted topics have that its log never had?

Stands for ``CompactionLog.pullMessageFromMaster``. A slave that begins empty gets its master's log from the last file on, but the latest
message of a key may be older than that: it is in the master's copies alone. So wherever a queue's copy ends before the plain queue
begins, what lies between is asked for, from the master's copies, and put behind the copy; then the plain queue is followed. Officially
it goes into a directory of its own, whole, and is merged. In order it needs neither, and goes on where a crash or a lost master broke it
off.

Until then the queue is not copied, so the log gives no file up for it, and pulls for what is missing find nothing yet: a consumer that
was moved on would never see it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.codec.record import peek_store_timestamp
from txrocketmq.errors import RecordError, StoreError
from txrocketmq.interfaces import ICompactedSource
from txrocketmq.store.compaction.files import Kept, kept_at
from txrocketmq.store.compaction.queue import CompactedQueue

if TYPE_CHECKING:
    from txrocketmq.store.message_store import MessageStore
    from txrocketmq.store.queuetable import AnyQueue

RETRY_MS = 5_000
"""How long to wait for a master that is not known or does not answer (official)."""

_NO_END = 1 << 63
_HEAD_BYTES = 80


class OlderMessages:
    """Fetches what queues lack, one queue at a time.

    :param now_ms: the clock.
    :ivar source: the master's copies; None where nothing is replicated.
    :ivar is_stopped: no further request is made.
    """

    log = Logger()

    def __init__(self, store: MessageStore, now_ms: Callable[[], int]) -> None:
        self.source: ICompactedSource | None = None
        self._store = store
        self._now_ms = now_ms
        self.is_stopped = True
        self._fetching: CompactedQueue | None = None
        self._not_before_ms = 0

    def lacks(self, queue: CompactedQueue, plain: AnyQueue | None) -> bool:
        """Whether messages before the plain queue's first are still to come from the master."""
        if self.source is None or not self.source.is_there():
            return False
        if queue is self._fetching:
            return True
        if plain is not None and plain.max_index > 0:
            return max(queue.end_offset, queue.fetched_to) < plain.min_index
        # Nothing of it in the log: either it is empty, or all of it is older.
        log = self._store.commit_log
        return 0 < log.min_offset < log.max_offset and queue.fetched_to == 0

    def fetch(self, queue: CompactedQueue, plain: AnyQueue | None) -> Deferred[None] | None:
        """Begin to fetch what a queue lacks; None while another one is fetched, or the master is given time."""
        if self.is_stopped or self._fetching is not None or self._now_ms() < self._not_before_ms:
            return None
        self._fetching = queue
        end = _NO_END if plain is None or plain.max_index <= 0 else plain.min_index
        return Deferred.fromCoroutine(self._fetch(queue, end))

    async def _fetch(self, queue: CompactedQueue, end: int) -> None:
        try:
            await self._fetch_up_to(queue, end)
        except (OSError, StoreError) as error:
            self._not_before_ms = self._now_ms() + RETRY_MS
            self.log.warn(
                "{topic}-{queue_id}: what is older than the log is not had from the master, it is tried again: {error}",
                topic=queue.topic,
                queue_id=queue.queue_id,
                error=error,
            )
        finally:
            self._fetching = None

    async def _fetch_up_to(self, queue: CompactedQueue, end: int) -> None:
        await queue.opened()
        is_older = self._is_older(end)
        first = offset = max(queue.end_offset, queue.fetched_to)
        count = 0
        following: int | None = offset
        while following is not None and following < end and not queue.is_deleted:
            offset = following
            source = self.source
            if source is None or not source.is_there() or self.is_stopped:
                return
            data, following = await source.fetch(queue.topic, queue.queue_id, offset)
            if following is not None and following <= offset:
                raise StoreError(f"after offset {offset} the master names offset {following}")
            messages = _messages(data, queue.topic, offset)
            wanted = [kept for kept in messages if is_older(kept)]
            if wanted:
                await queue.append(wanted)
                count += len(wanted)
            if len(wanted) < len(messages):
                break
        queue.fetched_to = end if end != _NO_END else max(queue.end_offset, 1)
        self.log.info(
            "{topic}-{queue_id}: {count} messages from offset {first} on, older than the log, came from the master",
            topic=queue.topic,
            queue_id=queue.queue_id,
            count=count,
            first=first,
        )

    def _is_older(self, end: int) -> Callable[[Kept], bool]:
        """Whether a message comes before all that the log has of its queue: what the log has as well is copied from there, so that
        both are the same. Where the log has none of it, the time tells."""
        if end != _NO_END:
            return lambda kept: kept.queue_offset < end
        log = self._store.commit_log
        first_ms = peek_store_timestamp(log.read(log.min_offset, _HEAD_BYTES))
        # All of the log's first millisecond is in queues by now, and this queue has nothing of it.
        is_past = self._store.queue_table.newest_timestamp_ms > first_ms
        limit_ms = first_ms + 1 if is_past else first_ms
        return lambda kept: kept.store_timestamp_ms < limit_ms


def _messages(data: bytes, topic: str, offset: int) -> list[Kept]:
    """The records of an answer.

    :raises StoreError: one is damaged, or they are not in order.
    """
    found: list[Kept] = []
    place, least = 0, offset
    while place < len(data):
        try:
            kept = kept_at(data, place, check_crc=True)
        except RecordError as error:
            raise StoreError(f"{topic}: a message of the master is damaged: {error}") from error
        if kept is None or kept.queue_offset < least:
            raise StoreError(f"{topic}: messages of the master are not in order behind {least}")
        found.append(kept)
        least = kept.queue_offset + 1
        place += len(kept.record)
    return found
