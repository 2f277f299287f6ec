"""Which logical offset does each lost queue give next? Known from its newest record, long before the queue is derived again.

Stands for nothing official: an official broker opens its port when all queues are derived. A record says its own logical offset, and the last
one of a queue in the log proves the next. So the log is read from its end backwards, a stretch at a time (a stretch is read forwards: only
the first byte of a file is surely a record's), while queues are derived from its beginning; where both meet, all is known.

A queue whose next offset is known takes messages. Their units, and those of the stretch that proved it, are kept in a row in memory
(`AheadQueue`), from which readers who keep up are served; the queue itself gets them when it is derived up to there.

Crash story: rows are never written. A queue's files grow from their beginning only, so whoever opens the directory after a crash, an official
broker too, finds queues that end early, and never one with a hole.
"""

from __future__ import annotations

from collections.abc import Iterable

from txrocketmq.codec.record import RecordHead
from txrocketmq.codec.storefiles import CQ_UNIT_BYTES
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.interfaces import IBlockingPool, IDisk
from txrocketmq.model import properties as props
from txrocketmq.model.flags import INNER_BATCH_FLAG
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.properties import find_property
from txrocketmq.store.batchqueue import BatchConsumeQueue
from txrocketmq.store.checkpoint import StoreCheckpoint
from txrocketmq.store.consumequeue import SCHEDULE_TOPIC, ConsumeQueue
from txrocketmq.store.index import IndexService
from txrocketmq.store.lightqueues import DISPATCH_NAME
from txrocketmq.store.queuetable import AnyQueue, QueueTable
from txrocketmq.store.reput import NOT_IN_QUEUE, Reput

QueueKey = tuple[str, int]

MAX_ROW_BYTES = 32 << 20
"""Of all rows together; beyond it they are begun anew, and readers of what was in them wait until the queue is derived."""

_COUNT_EVERY = 100_000


class AheadQueue(ConsumeQueue):
    """The newest units of a queue whose older ones are not derived yet. Only in memory, gapless, and from anywhere on."""

    __slots__ = ()

    def __init__(self, topic: str, queue_id: int) -> None:
        # No file is ever made: a "file" of one unit lets the row begin anywhere.
        super().__init__(topic, queue_id, "", CQ_UNIT_BYTES)
        self.units.dirty = True

    def _make_room(self, queue_offset: int, disk: IDisk) -> None:
        self.units.begin_at(queue_offset, b"")
        self.min_index = queue_offset

    def forget_units(self) -> None:
        """Begin anew behind the last unit."""
        self.units.begin_at(self.units.end_index, b"")
        self.min_index = self.units.end_index


class AheadBatchQueue(BatchConsumeQueue):
    """As `AheadQueue`, for batch queues."""

    __slots__ = ()

    def __init__(self, topic: str, queue_id: int, unit_bytes: int) -> None:
        super().__init__(topic, queue_id, "", unit_bytes)
        self.units.dirty = True

    def _begin_anew(self, cache: object, first_offset: int) -> None:
        self.forget_units()
        self.min_index = -1

    def forget_units(self) -> None:
        """Begin anew behind the last unit."""
        self.units.begin_at(self.units.end_index, b"")
        self._first_live = self.units.end_index
        self._hint = (-1, 0)
        # Not "none": whoever wants what is forgotten has to wait for it.
        self.min_index = self.max_index


class AheadTable(QueueTable):
    """A table of rows: nothing of it has a file."""

    def _new_queue(self, topic: str, queue_id: int) -> AheadQueue:
        return AheadQueue(topic, queue_id)

    def _new_batch_queue(self, topic: str, queue_id: int) -> AheadBatchQueue:
        return AheadBatchQueue(topic, queue_id, BatchConsumeQueue.unit_bytes)

    def replaced(self, topic: str, queue_id: int, *, batch: bool) -> AnyQueue:
        """A row of the other kind in the place of one."""
        del self.queues[topic, queue_id]
        return self.create(topic, queue_id, batch=batch)

    def make_row(self, key: QueueKey, batch: bool) -> AnyQueue:
        """An empty row, not entered here."""
        return self._new_batch_queue(*key) if batch else self._new_queue(*key)

    def mark_dirty(self, queue: AnyQueue) -> None:
        """Nothing of it is ever written."""


class NextOffsets:
    """What is known of the next offsets of lost queues.

    :param table: the store's queues; its ``ahead`` holds the rows of lost queues whose next offset is known.
    :param queues: which queues are lost; None for all, also those that nobody knows yet.
    :ivar low: all records from here to the log's end were looked at.
    :ivar is_complete: a lost queue that has no row yet has no record that was not derived: its own end is its next offset.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        disk: IDisk,
        pool: IBlockingPool,
        table: QueueTable,
        index: IndexService,
        checkpoint: StoreCheckpoint,
        queues: frozenset[QueueKey] | None,
        low: int,
    ) -> None:
        self._disk = disk
        self._queues = queues
        self._rows = table.ahead
        self._stretch = AheadTable(config, disk, pool, checkpoint)
        self._reput = Reput(config, disk, self._stretch, index)
        self._reput.index_is_current = False
        self._whole: set[QueueKey] = set()
        self._deleted: set[str] = set()
        self._noted = 0
        self.low = low
        self.is_complete = False

    # ------------------------------------------------------------------ what is known

    def covers(self, key: QueueKey) -> bool:
        """Whether a queue is not whole yet: its units come from the log, not from those who append."""
        if key in self._rows:
            return True
        return not (
            self.is_complete
            or (self._queues is not None and key not in self._queues)
            or key in self._whole
            or key[0] in self._deleted
        )

    def knows(self, key: QueueKey) -> bool:
        """Whether a queue's next offset is known."""
        return key in self._rows or not self.covers(key)

    def row_of(self, key: QueueKey, batch: bool) -> AnyQueue | None:
        """What takes a record at the log's end, which proves its queue's next offset; None where the queue takes it itself."""
        if not self.covers(key):
            return None
        row = self._rows.get(key)
        if row is None or (batch and not row.is_batch):
            row = self._rows[key] = self._stretch.make_row(key, batch)
        return row

    def forget(self, topics: frozenset[str]) -> None:
        """Topics are deleted: their queues begin anew."""
        self._deleted |= topics
        for key in [key for key in self._rows if key[0] in topics]:
            del self._rows[key]

    # ------------------------------------------------------------------ a stretch of the log

    def note(self, records: Iterable[tuple[int, RecordHead]]) -> None:
        """Look at the next records of a stretch; they come in the order of the log."""
        rows, stretch, disk = self._rows, self._stretch.queues, self._disk
        for offset, head in records:
            if head.sys_flag & NOT_IN_QUEUE:
                continue
            key = head.topic, head.queue_id
            properties = head.properties
            if DISPATCH_NAME in properties or head.sys_flag & INNER_BATCH_FLAG:
                self._reput.dispatch_head(offset, head)
            elif key in rows or not self.covers(key):
                continue
            else:
                row = stretch.get(key)
                if type(row) is AheadQueue and key[0] != SCHEDULE_TOPIC:
                    tag = find_property(properties, props.TAGS)
                    code = tags_code(tag) if tag else 0
                    row.put(head.queue_offset, offset, head.total_size, code, disk)
                else:
                    self._reput.dispatch_head(offset, head)
            self._noted += 1
            if not self._noted % _COUNT_EVERY:
                self.bound()

    def settle(self, low: int) -> None:
        """A stretch was looked at to its end: its last records prove the next offsets of queues that were not known.

        :param low: where it began.
        """
        rows = self._rows
        for key, row in self._stretch.queues.items():
            if key not in rows and self.covers(key):
                row.next_index = row.max_index
                rows[key] = row
        self._stretch.queues.clear()
        self.low = low
        if self._queues is not None:
            self.is_complete = self.is_complete or not any(
                key not in rows and self.covers(key) for key in self._queues
            )
        self.bound()

    def abandon(self) -> None:
        """All is known: the stretch that is being looked at has nothing to add."""
        self._stretch.queues.clear()
        self.is_complete = True

    def bound(self) -> None:
        """See that rows take no more memory than they may."""
        tables = self._rows.values(), self._stretch.queues.values()
        if sum(len(row.units.tail) for rows in tables for row in rows) > MAX_ROW_BYTES:
            for rows in tables:
                for row in rows:
                    assert isinstance(row, AheadQueue | AheadBatchQueue)
                    row.forget_units()

    # ------------------------------------------------------------------ whole queues

    def completed(
        self, table: QueueTable, keys: Iterable[QueueKey], *, all_derived: bool = False
    ) -> dict[AnyQueue, AnyQueue]:
        """Which of these queues hold by now what their rows hold: the queue by the row that it takes the place of.

        :param all_derived: nothing of the log is left to be derived, so all of them do.
        """
        found: dict[AnyQueue, AnyQueue] = {}
        for key in keys:
            row, queue = self._rows.get(key), table.find(*key)
            if all_derived and row is not None and queue is None:
                # All of its messages still wait.
                queue = table.create(*key, batch=row.is_batch)
            if (
                row is not None
                and queue is not None
                and (all_derived or queue.max_physical_offset == row.max_physical_offset)
            ):
                found[row] = queue
                self._become_whole(key, row, queue)
        return found

    def _become_whole(self, key: QueueKey, row: AnyQueue, queue: AnyQueue) -> None:
        # Ahead of what can be read where messages wait for the device.
        queue.next_index = row.next_index
        del self._rows[key]
        self._whole.add(key)
