"""Which record of the commit log holds message number N of a batch queue? Units of 46 bytes, several messages each.

Stands for the official ``BatchConsumeQueue`` (topic attribute ``queue.type=BatchCQ``). Logical offsets count messages, one
unit covers ``batch size`` of them and points at one record. A unit says itself where its messages begin in the queue, so units
are found by halving.

Crash story: as for `txrocketmq.store.consumequeue`: units are derived from the log, recovery cuts the doubtful ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twisted.logger import Logger

from txrocketmq.codec.storefiles import BATCH_NOT_COMPACTED, BATCH_UNIT, BATCH_UNIT_BYTES
from txrocketmq.interfaces import IDisk
from txrocketmq.store.consumequeue import Entry, Unit
from txrocketmq.store.unitlog import BlockCache, UnitLog

BatchUnit = tuple[int, int, int, int, int, int]
"""Physical offset, record size, tags code, store time in ms, first logical offset, messages in the record."""

MAX_BATCH_MESSAGES = 0x7FFF
"""What the unit's 16-bit count can say."""

_PHYSICAL, _SIZE, _, _STORE_TIME, _FIRST, _COUNT = range(6)


class BatchConsumeQueue:
    """The units of one batch queue.

    :ivar units: the row of units in their files.
    :ivar min_index: logical offset of the first message that the log still holds; -1 while there is none.
    :ivar max_index: logical offset after the last message that can be read.
    :ivar next_index: the logical offset that the next message gets.
    :ivar max_physical_offset: end of the last record in the log; -1 when there is none.
    """

    __slots__ = (
        "_first_live",
        "_hint",
        "max_index",
        "max_physical_offset",
        "min_index",
        "next_index",
        "queue_id",
        "topic",
        "units",
    )

    log = Logger()
    unit_bytes = BATCH_UNIT_BYTES
    is_batch = True
    is_schedule = False

    def __init__(self, topic: str, queue_id: int, directory: str, file_bytes: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.units = UnitLog(directory, BATCH_UNIT_BYTES, file_bytes)
        self.min_index = -1
        self.max_index = 0
        self.next_index = 0
        self.max_physical_offset = -1
        self._first_live = 0
        # Where the last pull ended: the logical offset that comes next, and its unit.
        self._hint = (-1, 0)

    # ------------------------------------------------------------------ writing

    def put_batch(
        self,
        physical_offset: int,
        size: int,
        tags_code: int,
        store_timestamp_ms: int,
        first_offset: int,
        count: int,
        cache: BlockCache,
    ) -> bool:
        """Add the unit of a batch record; False when it is there already.

        As with `ConsumeQueue.put` a later record with a smaller logical offset means that the queue was deleted and begun anew.
        """
        if physical_offset + size <= self.max_physical_offset:
            return False
        units = self.units
        if first_offset < self.max_index:
            self._begin_anew(cache, first_offset)
        units.tail += BATCH_UNIT.pack(
            physical_offset,
            size,
            tags_code,
            store_timestamp_ms,
            first_offset,
            count,
            BATCH_NOT_COMPACTED,
            0,
        )
        units.end_index += 1
        self.max_physical_offset = physical_offset + size
        self.max_index = first_offset + count
        if self.min_index < 0:
            self.min_index = first_offset
        return True

    def _begin_anew(self, cache: BlockCache, first_offset: int) -> None:
        self.log.warn(
            "batch queue {topic}-{queue_id} begins anew at {offset}, before its end {end}",
            topic=self.topic,
            queue_id=self.queue_id,
            offset=first_offset,
            end=self.max_index,
        )
        number = self._first_where(cache, lambda unit: unit[_FIRST] + unit[_COUNT] > first_offset)
        self._cut(cache.disk, cache, number)
        if self.min_index > first_offset:
            self.min_index = first_offset

    # ------------------------------------------------------------------ reading

    def _unit_at(
        self, cache: BlockCache, number: int, ready_only: bool = False
    ) -> BatchUnit | None:
        """A unit by its number in the row, None where there is none."""
        if not self.units.first_index <= number < self.units.end_index:
            return None
        data = self.units.read(cache, number, 1, ready_only)
        if len(data) < BATCH_UNIT_BYTES:
            return None
        unit: BatchUnit = BATCH_UNIT.unpack(data)[:6]
        return unit

    def _first_where(
        self,
        cache: BlockCache,
        accepts: Callable[[BatchUnit], bool],
        low: int = 0,
        ready_only: bool = False,
    ) -> int:
        """The number of the first unit that is accepted, given that all later ones are too."""
        low, high = max(low, self.units.first_index), self.units.end_index
        while low < high:
            middle = (low + high) // 2
            unit = self._unit_at(cache, middle, ready_only)
            # One that was never written counts as beyond.
            if unit is None or unit[_SIZE] <= 0 or accepts(unit):
                high = middle
            else:
                low = middle + 1
        return low

    def _number_of(self, cache: BlockCache, index: int, ready_only: bool) -> int:
        """The number of the unit that holds a message, or of the first one behind it."""
        if index == self._hint[0]:
            return self._hint[1]
        return self._first_where(
            cache,
            lambda unit: unit[_FIRST] + unit[_COUNT] > index,
            self._first_live,
            ready_only,
        )

    def entries(
        self, cache: BlockCache, index: int, count: int, ready_only: bool = False
    ) -> Iterable[Entry]:
        """Up to ``count`` entries, from the one that holds message ``index``. `ColdRead` with ``ready_only`` where they are not
        in memory."""
        number = self._number_of(cache, index, ready_only)
        data = self.units.read(cache, number, count, ready_only)
        whole = len(data) - len(data) % BATCH_UNIT_BYTES
        found: list[Entry] = [
            (unit[_FIRST], unit[:3], unit[_COUNT]) for unit in BATCH_UNIT.iter_unpack(data[:whole])
        ]
        if found:
            self._hint = (found[-1][0] + found[-1][2], number + len(found))
        return found

    def unit(self, cache: BlockCache, index: int) -> Unit | None:
        """The unit that holds a message, None where there is none."""
        if not 0 <= index < self.max_index:
            return None
        found = self._unit_at(cache, self._number_of(cache, index, False))
        return None if found is None else found[:3]

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
        last = self._unit_at(cache, self.units.end_index - 1)
        if last is None:
            return 0
        if timestamp_ms >= last[_STORE_TIME]:
            return last[_FIRST]
        bound = timestamp_ms + 1 if upper else timestamp_ms
        number = self._first_where(cache, lambda unit: unit[_STORE_TIME] >= bound, self._first_live)
        if upper:
            number = max(number - 1, self._first_live, self.units.first_index)
        found = self._unit_at(cache, number)
        return 0 if found is None else found[_FIRST]

    # ------------------------------------------------------------------ start and correction

    def load(self, disk: IDisk, cache: BlockCache, log_start: int = 0) -> None:
        """Find the queue's files, its first and its last unit."""
        self.units.load(disk, log_start)
        self._first_live = self.units.first_index
        self.min_index = -1
        self._set_ends(disk)
        self.next_index = self.max_index

    def _on_disk(self, disk: IDisk, number: int) -> BatchUnit | None:
        units = self.units
        if not units.first_index <= number < units.written_index:
            return None
        data = units.read_files(disk, number, number + 1)
        if len(data) < BATCH_UNIT_BYTES:
            return None
        unit: BatchUnit = BATCH_UNIT.unpack(data)[:6]
        return unit

    def _set_ends(self, disk: IDisk) -> None:
        """After the row was read or cut; what is left of it is in the files."""
        self._hint = (-1, 0)
        last = self._on_disk(disk, self.units.end_index - 1)
        if last is None or last[_SIZE] <= 0:
            self.max_index, self.max_physical_offset = 0, -1
            return
        self.max_index = last[_FIRST] + last[_COUNT]
        self.max_physical_offset = last[_PHYSICAL] + last[_SIZE]
        if self.min_index < 0:
            first = self._on_disk(disk, self._first_live)
            self.min_index = -1 if first is None else first[_FIRST]

    def _cut(self, disk: IDisk, cache: BlockCache, number: int) -> None:
        """Drop the units from a number on."""
        last = self._unit_at(cache, number - 1)
        cache.forget(self.units.directory)
        self.units.cut(disk, number)
        self._hint = (-1, 0)
        if last is None:
            self.max_index, self.max_physical_offset, self.min_index = 0, -1, -1
        else:
            self.max_index = last[_FIRST] + last[_COUNT]
            self.max_physical_offset = last[_PHYSICAL] + last[_SIZE]
        if number < self._first_live:
            # Nothing is left but what the log no longer holds.
            self._first_live = number
            self.min_index = self.max_index if last is not None else -1

    def cut_beyond(self, disk: IDisk, cache: BlockCache, physical_offset: int) -> bool:
        """Drop the units of records at or beyond a log offset (start-up only); whether there were any."""
        if 0 <= self.max_physical_offset <= physical_offset:
            return False
        number = self._first_where(cache, lambda unit: unit[_PHYSICAL] >= physical_offset)
        if number == self.units.end_index:
            return False
        self._cut(disk, cache, number)
        return True

    def correct_min(self, cache: BlockCache, min_physical_offset: int) -> None:
        """Move the smallest readable offset past the batches that the log no longer holds."""
        number = self._first_where(
            cache, lambda unit: unit[_PHYSICAL] >= min_physical_offset, self._first_live
        )
        self._first_live = number
        first = self._unit_at(cache, number)
        if first is not None:
            self.min_index = first[_FIRST]
        elif self.units.end_index > self.units.first_index:
            self.min_index = self.max_index

    def forget_old(self) -> list[str]:
        """Let the files begin with the first unit that the log still answers to; the paths that may be deleted."""
        return self.units.forget_before(self._first_live)
