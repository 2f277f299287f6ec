"""What do operators ask of the store besides its messages? Raw queue entries, clean-up on demand, figures.

Stands for ``cleanExpiredConsumerQueue``, ``executeDeleteFilesManually`` and small queries of the official ``DefaultMessageStore``.

Crash story: the log is cut at its beginning first, then what points there; a crash in between leaves queues and indexes that
begin earlier than the log, which the next start corrects.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocketmq.codec.record import peek_store_timestamp
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.interfaces import IBlockingPool, IDisk, IStoreUpkeep
from txrocketmq.store.consumequeue import SCHEDULE_TOPIC, ConsumeQueue, Entry
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.reader import WARM_TRIES, warm
from txrocketmq.store.unitlog import ColdRead

HOUR_MS = 3_600_000
_HEAD_BYTES = 80


@implementer(IStoreUpkeep)
class StoreUpkeep:
    """Looks after a store that is open.

    :param pool: for deletions and cold reads.
    """

    log = Logger()

    def __init__(
        self,
        store: MessageStore,
        config: MessageStoreConfig,
        disk: IDisk,
        pool: IBlockingPool,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._config = config
        self._disk = disk
        self._pool = pool
        self._now_ms = now_ms

    # ------------------------------------------------------------------ looking

    def queue_units(
        self, topic: str, queue_id: int, index: int, count: int
    ) -> list[tuple[int, int, int]] | None:
        """See `IStoreUpkeep`."""
        table = self._store.queue_table
        queue = table.find(topic, queue_id)
        if queue is None:
            return None
        if not queue.min_index <= index < queue.max_index:
            return []
        return [unit for _, unit, _ in queue.entries(table.cache, index, count)][:count]

    def read_units(
        self, topic: str, queue_id: int, index: int, count: int, tries: int = WARM_TRIES
    ) -> list[Entry] | Deferred[list[Entry]]:
        """See `IStoreUpkeep`."""
        table = self._store.queue_table
        queue = table.find(topic, queue_id)
        if queue is None:
            return []
        index = max(index, queue.min_index)
        count = min(count, queue.max_index - index)
        if count <= 0:
            return []
        try:
            return list(queue.entries(table.cache, index, count, tries > 0))[:count]
        except ColdRead as cold:
            warmed = self._pool.submit(warm, self._disk, cold.reads)
        return warmed.addCallback(
            lambda _: self.read_units(topic, queue_id, index, count, tries - 1)
        )

    def earliest_time(self) -> int:
        """See `IStoreUpkeep`."""
        return self._time_at(self._store.commit_log.min_offset)

    def _time_at(self, offset: int) -> int:
        """Store time of the record that begins at an offset, -1 when none does."""
        head = self._store.commit_log.read(offset, _HEAD_BYTES)
        return peek_store_timestamp(head) if len(head) == _HEAD_BYTES else -1

    def disk_usage(self) -> tuple[list[tuple[str, int, int]], tuple[int, int]]:
        """See `IStoreUpkeep`."""
        root = self._config.store_path_root_dir
        log_path = self._store.commit_log.queue.directory
        used, total = self._disk.usage(log_path)
        return [(log_path, used, total)], self._disk.usage(f"{root}/consumequeue")

    def write_refusal(self) -> str | None:
        """See `IStoreUpkeep`."""
        return self._store.write_refusal

    def dispatch_behind_bytes(self) -> int:
        """See `IStoreUpkeep`."""
        return self._store.dispatch_behind_bytes

    # ------------------------------------------------------------------ cleaning

    def clean_expired_queues(self) -> int:
        """See `IStoreUpkeep`. Queues of the delay topic stay: their offsets are counted on."""
        log_start = self._store.commit_log.min_offset
        table = self._store.queue_table
        doomed = [
            key
            for key, queue in table.queues.items()
            if key[0] != SCHEDULE_TOPIC and 0 <= queue.max_physical_offset <= log_start
        ]
        for topic, queue_id in doomed:
            self.log.info(
                "queue {topic}-{queue_id} holds nothing that the log still has: deleted",
                topic=topic,
                queue_id=queue_id,
            )
            table.delete_queue(topic, queue_id)
        return len(doomed)

    def delete_expired_files(self) -> int:
        """See `IStoreUpkeep`. A file is as old as its newest message; the one that is written always stays."""
        queue = self._store.commit_log.queue
        limit_ms = self._now_ms() - self._config.file_reserved_time * HOUR_MS
        keep_from = queue.min_offset
        for file in queue.files[1:]:
            # Everything before this file was stored before its first record.
            first_ms = self._time_at(file.base_offset)
            if not 0 <= first_ms < limit_ms:
                break
            keep_from = file.base_offset
        deleted = queue.delete_before(keep_from)
        if deleted:
            self._forget_before(queue.min_offset)
        return len(deleted)

    def _forget_before(self, log_start: int) -> None:
        """Let queues and indexes begin where the log does now, and delete their files from before."""
        table = self._store.queue_table
        table.correct_min(log_start)
        paths: list[str] = []
        for queue in table.queues.values():
            if isinstance(queue, ConsumeQueue):
                old = queue.units.forget_before(queue.min_index)
                if old:
                    table.cache.forget(queue.units.directory)
                    paths += old
        if paths:
            self._pool.submit(_remove_all, self._disk, paths).addErrback(self._deletion_failed)
        self._store.index.expire(log_start)

    def _deletion_failed(self, failure: Failure) -> None:
        self.log.error("old queue files were not deleted: {error}", error=failure.value)


def _remove_all(disk: IDisk, paths: list[str]) -> None:
    for path in paths:
        disk.remove(path)
