"""What do operators ask of the store besides its messages? Raw queue entries, clean-up on demand, figures.

Stands for ``cleanExpiredConsumerQueue``, ``executeDeleteFilesManually`` and small queries of the official ``DefaultMessageStore``. What is
deleted by time and by need is in `txrocketmq.store.retention`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from txrocketmq.codec.record import peek_store_timestamp, scan_head
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import RecordError
from txrocketmq.interfaces import IBlockingPool, IDisk, IStoreUpkeep
from txrocketmq.store.consumequeue import SCHEDULE_TOPIC, Entry
from txrocketmq.store.extension import ExtendedQueue
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.queuetable import AnyQueue
from txrocketmq.store.reader import WARM_TRIES, warm
from txrocketmq.store.retention import Retention
from txrocketmq.store.timer.timer_store import TimerStore
from txrocketmq.store.unitlog import ColdRead

_HEAD_BYTES = 80


@implementer(IStoreUpkeep)
class StoreUpkeep:
    """Looks after a store that is open.

    :param pool: for deletions and cold reads; the one that writes queues.
    :ivar retention: the timed cleaning.
    """

    log = Logger()

    def __init__(
        self,
        store: MessageStore,
        config: MessageStoreConfig,
        disk: IDisk,
        pool: IBlockingPool,
        clock: IReactorTime,
    ) -> None:
        self._store = store
        self._config = config
        self._disk = disk
        self._pool = pool
        self.retention = Retention(store, config, disk, pool, clock)
        if not config.data_read_ahead_enable:
            self.set_read_ahead(False)

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
        entries = list(queue.entries(table.cache, index, count))[:count]
        return [unit for _, unit, _ in self._real(queue, entries)]

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
            entries = list(queue.entries(table.cache, index, count, tries > 0))[:count]
            return self._real(queue, entries)
        except ColdRead as cold:
            warmed = self._pool.submit(warm, self._disk, cold.reads)
        return warmed.addCallback(
            lambda _: self.read_units(topic, queue_id, index, count, tries - 1)
        )

    def read_records(
        self, places: Sequence[tuple[int, int]], tries: int = WARM_TRIES
    ) -> list[bytes | None] | Deferred[list[bytes | None]]:
        """See `IStoreUpkeep`."""
        log = self._store.commit_log.queue
        found: list[bytes | None] = []
        cold = []
        for offset, size in places:
            data = log.read_ready(offset, size) if tries > 0 else log.read(offset, size)
            file = log.find(offset)
            if data is None and file is not None:
                cold.append((file.path, offset - file.base_offset, size))
            found.append(data if data and _is_record(data, offset, size) else None)
        if not cold:
            return found
        warmed = self._store.reader.pool.submit(warm, self._disk, cold)
        return warmed.addCallback(lambda _: self.read_records(places, tries - 1))

    def timer_store(self, now_ms: Callable[[], int]) -> TimerStore:
        """See `IStoreUpkeep`."""
        return TimerStore(
            self._config, self._disk, self._pool, self._store.reader.pool, self._store, now_ms
        )

    def _real(self, queue: AnyQueue, entries: list[Entry]) -> list[Entry]:
        """The entries with their tags codes, where those are in an extension."""
        if not isinstance(queue, ExtendedQueue):
            return entries
        cache = self._store.queue_table.cache
        return [
            (index, (offset, size, queue.real_code(cache, code)), messages)
            for index, (offset, size, code), messages in entries
        ]

    def set_read_ahead(self, is_on: bool) -> None:
        """See `IStoreUpkeep`."""
        for directory in self._store.commit_log.queue.directories.writable:
            self._disk.set_read_ahead(directory, is_on)

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
        paths = self._store.commit_log.queue.directories.writable
        logs = [(path, *self._disk.usage(path)) for path in paths]
        return logs, self._disk.usage(f"{root}/consumequeue")

    def recovery_figures(self) -> dict[str, str]:
        """See `IStoreUpkeep`."""
        return self._store.recovery_figures()

    def write_refusal(self) -> str | None:
        """See `IStoreUpkeep`."""
        return self._store.write_refusal

    def lock_time_ms(self) -> int:
        """See `IStoreUpkeep`."""
        return self._store.commit_log.lock_time_ms()

    def dispatch_behind_bytes(self) -> int:
        """See `IStoreUpkeep`."""
        return self._store.dispatch_behind_bytes

    # ------------------------------------------------------------------ cleaning

    def clean_expired_queues(self) -> int:
        """See `IStoreUpkeep`. Queues of the delay topic stay, and those of compacted topics: their offsets
        are counted on."""
        log_start = self._store.commit_log.min_offset
        table = self._store.queue_table
        doomed = [
            key
            for key, queue in table.queues.items()
            if key[0] != SCHEDULE_TOPIC
            and key not in self._store.compaction.queues
            and 0 <= queue.max_physical_offset <= log_start
        ]
        for topic, queue_id in doomed:
            self.log.info(
                "queue {topic}-{queue_id} holds nothing that the log still has: deleted",
                topic=topic,
                queue_id=queue_id,
            )
            table.delete_queue(topic, queue_id)
        return len(doomed)

    def delete_expired_files(self) -> Deferred[int]:
        """See `IStoreUpkeep`."""
        return self.retention.delete_expired()

    def start(self) -> None:
        """See `IStoreUpkeep`."""
        self.retention.start()

    def stop(self) -> Deferred[None]:
        """See `IStoreUpkeep`."""
        return self.retention.stop()


def _is_record(data: bytes, offset: int, size: int) -> bool:
    """Whether the bytes are the record of this place and size."""
    if len(data) != size:
        return False
    try:
        head = scan_head(data)
    except RecordError:
        return False
    return head is not None and not head.is_blank and head.physical_offset == offset
