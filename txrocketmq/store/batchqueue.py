"""Which record of the commit log holds message number N of a batch queue? Units of 46 bytes, several messages each.

Stands for the official ``BatchConsumeQueue`` (topic attribute ``queue.type=BatchCQ``). Logical offsets count messages, one
unit covers ``batch size`` of them and points at one record. Sending to such topics is not served yet; stores that hold
such queues open and list them, and recovery keeps them.

The units of such a queue are kept in memory: few topics use them, and each unit stands for a whole batch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable

from txrocketmq.codec.storefiles import BATCH_NOT_COMPACTED, BATCH_UNIT, BATCH_UNIT_BYTES
from txrocketmq.interfaces import IDisk
from txrocketmq.store.consumequeue import Entry, Unit
from txrocketmq.store.unitlog import BlockCache, UnitLog

BatchUnit = tuple[int, int, int, int, int, int]
"""Physical offset, record size, tags code, store time in ms, first logical offset, messages in the record."""


class BatchConsumeQueue:
    """The units of one batch queue.

    :ivar units: the row of units in their files.
    :ivar min_index: logical offset of the first message that the log still holds.
    :ivar max_index: logical offset after the last message.
    """

    __slots__ = (
        "_entries",
        "_first_live",
        "max_physical_offset",
        "min_index",
        "next_index",
        "queue_id",
        "topic",
        "units",
    )

    unit_bytes = BATCH_UNIT_BYTES
    is_batch = True
    is_schedule = False

    def __init__(self, topic: str, queue_id: int, directory: str, file_bytes: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.units = UnitLog(directory, BATCH_UNIT_BYTES, file_bytes)
        self.min_index = -1
        self.next_index = 0
        self.max_physical_offset = -1
        self._entries: list[BatchUnit] = []
        self._first_live = 0

    @property
    def max_index(self) -> int:
        """The logical offset after the last message."""
        if not self._entries:
            return 0
        last = self._entries[-1]
        return last[4] + last[5]

    def put_batch(
        self,
        physical_offset: int,
        size: int,
        tags_code: int,
        store_timestamp_ms: int,
        first_offset: int,
        count: int,
    ) -> bool:
        """Add the unit of a batch record; False when it is there already."""
        if physical_offset + size <= self.max_physical_offset:
            return False
        unit = (physical_offset, size, tags_code, store_timestamp_ms, first_offset, count)
        self.units.tail += BATCH_UNIT.pack(*unit, BATCH_NOT_COMPACTED, 0)
        self.units.end_index += 1
        self._entries.append(unit)
        self._settle()
        return True

    def entries(
        self, cache: BlockCache, index: int, count: int, ready_only: bool = False
    ) -> Iterable[Entry]:
        """Up to ``count`` entries, from the one that holds message ``index``."""
        at = max(bisect_right(self._entries, index, key=lambda unit: unit[4]) - 1, 0)
        return [(unit[4], unit[:3], unit[5]) for unit in self._entries[at : at + count]]

    def unit(self, cache: BlockCache, index: int) -> Unit | None:
        """The unit that holds a message, None where there is none."""
        if not 0 <= index < self.max_index:
            return None
        for _, unit, _ in self.entries(cache, index, 1):
            return unit
        return None

    def next_file_index(self, index: int) -> int:
        """Where to go on when units cannot be read: officially the queue's start."""
        return 0

    def index_by_time(
        self,
        cache: BlockCache,
        timestamp_ms: int,
        upper: bool,
        min_physical_offset: int,
        store_time: Callable[[int, int], int],
    ) -> int:
        """The first logical offset of the batch that belongs to a store time; after the last batch, the last one."""
        entries = self._entries[self._first_live :]
        if not entries:
            return 0
        if timestamp_ms >= entries[-1][3]:
            return entries[-1][4]
        find = bisect_right if upper else bisect_left
        at = find(entries, timestamp_ms, key=lambda unit: unit[3])
        return entries[max(at - 1, 0) if upper else at][4]

    def load(self, disk: IDisk, cache: BlockCache) -> None:
        """Read all units."""
        self.units.load(disk)
        self._read_entries(disk)

    def _read_entries(self, disk: IDisk) -> None:
        data = self.units.read_files(disk, self.units.first_index, self.units.written_index)
        self._entries = [unit[:6] for unit in BATCH_UNIT.iter_unpack(data)]
        self._settle()

    def _settle(self) -> None:
        self.max_physical_offset = sum(self._entries[-1][:2]) if self._entries else -1
        self.next_index = self.max_index
        if self.min_index < 0 and self._entries:
            self.min_index = self._entries[0][4]

    def cut_beyond(self, disk: IDisk, cache: BlockCache, physical_offset: int) -> bool:
        """Drop the units of records at or beyond a log offset (start-up only); whether there were any."""
        kept = bisect_left(self._entries, physical_offset, key=lambda unit: unit[0])
        if kept == len(self._entries):
            return False
        self.units.cut(disk, self.units.first_index + kept)
        self._read_entries(disk)
        return True

    def correct_min(self, cache: BlockCache, min_physical_offset: int) -> None:
        """Move the smallest readable offset past the batches that the log no longer holds."""
        at = bisect_left(self._entries, min_physical_offset, key=lambda unit: unit[0])
        self._first_live = at
        if at < len(self._entries):
            self.min_index = self._entries[at][4]
        elif self._entries:
            self.min_index = self.max_index
