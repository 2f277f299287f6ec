"""Where in the commit log is message number N of a queue? The consume queue: one 20-byte unit for each message.

Stands for the official ``ConsumeQueue``; the layout is in `txrocketmq.codec.storefiles`, the files in
`txrocketmq.store.unitlog`. A queue whose first logical offset is not the start of a file begins with filler units.

Crash story: the queue is derived from the log and may lag behind it or, after a torn log, run ahead of it. Recovery cuts
what points at or beyond the first doubtful log offset and derives the rest again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count as count_from
from itertools import repeat

from twisted.logger import Logger

from txrocketmq.codec.storefiles import CQ_FILLER, CQ_FILLER_SIZE, CQ_UNIT, CQ_UNIT_BYTES
from txrocketmq.interfaces import IDisk
from txrocketmq.store.unitlog import BlockCache, UnitLog

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

Unit = tuple[int, int, int]
"""Physical offset, record size, tags code."""

Entry = tuple[int, Unit, int]
"""Logical offset, unit, messages in the record (1, but for batch queues)."""


class ConsumeQueue:
    """The units of one queue.

    :ivar units: the row of units; unit number and logical offset are the same thing here.
    :ivar min_index: the smallest logical offset whose message is still in the log.
    :ivar next_index: the logical offset that the next message gets; ahead of ``max_index`` while dispatch waits.
    :ivar max_physical_offset: end of the last message's record in the log; -1 when there is none.
    :ivar is_schedule: a queue of the delay topic, whose units carry the delivery time.
    """

    __slots__ = (
        "is_schedule",
        "max_physical_offset",
        "min_index",
        "next_index",
        "queue_id",
        "topic",
        "units",
    )

    log = Logger()
    unit_bytes = CQ_UNIT_BYTES
    is_batch = False

    def __init__(self, topic: str, queue_id: int, directory: str, file_bytes: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.units = UnitLog(directory, CQ_UNIT_BYTES, file_bytes)
        self.min_index = 0
        self.next_index = 0
        self.max_physical_offset = -1
        self.is_schedule = topic == SCHEDULE_TOPIC

    @property
    def max_index(self) -> int:
        """The logical offset after the last message that can be read."""
        return self.units.end_index

    @property
    def file_units(self) -> int:
        """Units of one file."""
        return self.units.file_bytes // CQ_UNIT_BYTES

    # ------------------------------------------------------------------ writing

    def put(
        self, queue_offset: int, physical_offset: int, size: int, tags_code: int, disk: IDisk
    ) -> bool:
        """Add the unit of a message; False when it is there already.

        A unit is placed by its logical offset, whatever the row holds: a later record with a smaller logical offset means
        that the queue was deleted and begun anew, and wins.
        """
        units = self.units
        if queue_offset != units.end_index:
            if physical_offset + size <= self.max_physical_offset:
                return False
            self._make_room(queue_offset, disk)
        units.tail += CQ_UNIT.pack(physical_offset, size, tags_code)
        units.end_index += 1
        self.max_physical_offset = physical_offset + size
        return True

    def _make_room(self, queue_offset: int, disk: IDisk) -> None:
        units = self.units
        if queue_offset < units.end_index:
            self.log.warn(
                "queue {topic}-{queue_id} begins anew at {offset}, before its end {end}",
                topic=self.topic,
                queue_id=self.queue_id,
                offset=queue_offset,
                end=units.end_index,
            )
            units.cut(disk, queue_offset)
            if self.min_index > queue_offset:
                self.min_index = queue_offset
            return
        if units.end_index == units.first_index:
            units.begin_at(queue_offset, CQ_FILLER)
            self.min_index = queue_offset
            return
        self.log.error(
            "queue {topic}-{queue_id} lacks the messages from {end} to {offset}: the log does not hold them",
            topic=self.topic,
            queue_id=self.queue_id,
            end=units.end_index,
            offset=queue_offset,
        )
        units.tail += CQ_FILLER * (queue_offset - units.end_index)
        units.end_index = queue_offset

    # ------------------------------------------------------------------ reading

    def unit(self, cache: BlockCache, index: int) -> Unit | None:
        """One unit, None where there is none."""
        if not self.units.first_index <= index < self.units.end_index:
            return None
        data = self.units.read(cache, index, 1)
        if len(data) < CQ_UNIT_BYTES:
            return None
        unit: Unit = CQ_UNIT.unpack(data)
        return unit

    def entries(
        self, cache: BlockCache, index: int, count: int, ready_only: bool = False
    ) -> Iterable[Entry]:
        """Up to ``count`` entries from a logical offset. `ColdRead` with ``ready_only`` where they are not in memory."""
        data = self.units.read(cache, index, count, ready_only)
        whole = len(data) - len(data) % CQ_UNIT_BYTES
        return zip(count_from(index), CQ_UNIT.iter_unpack(data[:whole]), repeat(1))

    def next_file_index(self, index: int) -> int:
        """The logical offset with which the file after this one's begins."""
        return index + self.file_units - index % self.file_units

    def index_by_time(
        self,
        cache: BlockCache,
        timestamp_ms: int,
        upper: bool,
        min_physical_offset: int,
        store_time: Callable[[int, int], int],
    ) -> int:
        """The logical offset that belongs to a store time, as 5.4.0 finds it.

        Lower: the first message stored at that time or later; after the last one the next offset. Upper: the last one stored
        at that time or earlier; before the first one the first offset.

        :param store_time: of physical offset and size: the record's store time in ms, -1 when it cannot be read.
        """
        low, high = self.min_index, self.units.end_index
        bound = timestamp_ms + 1 if upper else timestamp_ms
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(cache, middle)
            if unit is None or unit[0] < min_physical_offset or unit[1] == CQ_FILLER_SIZE:
                low = middle + 1
                continue
            found = store_time(unit[0], unit[1])
            if found < 0:
                return self.min_index
            if found < bound:
                low = middle + 1
            else:
                high = middle
        return max(low - 1, self.min_index) if upper else low

    # ------------------------------------------------------------------ start and correction

    def load(self, disk: IDisk, cache: BlockCache, log_start: int = 0) -> None:
        """Find the queue's files and its last unit."""
        self.units.load(disk, log_start)
        self.min_index = self.units.first_index
        self._set_end(self._unit_on_disk(disk, self.units.end_index - 1))

    def _unit_on_disk(self, disk: IDisk, index: int) -> Unit | None:
        """As `unit`, past the cache: at the start one unit each of very many queues is looked at."""
        units = self.units
        if not units.first_index <= index < units.written_index:
            return None
        data = units.read_files(disk, index, index + 1)
        if len(data) < CQ_UNIT_BYTES:
            return None
        unit: Unit = CQ_UNIT.unpack(data)
        return unit

    def _set_end(self, last: Unit | None) -> None:
        if last is None or last[1] == CQ_FILLER_SIZE or last[1] <= 0:
            self.max_physical_offset = -1
        else:
            self.max_physical_offset = last[0] + last[1]
        self.next_index = self.units.end_index

    def _first_index_where(
        self, cache: BlockCache, low: int, accepts: Callable[[Unit], bool]
    ) -> int:
        """The first logical offset from ``low`` whose unit is accepted, given that all later ones are too.

        A filler unit goes with the message after it.
        """
        high = self.units.end_index
        while low < high:
            middle = solid = (low + high) // 2
            unit = self.unit(cache, solid)
            while unit is not None and unit[1] == CQ_FILLER_SIZE and solid + 1 < high:
                solid += 1
                unit = self.unit(cache, solid)
            if unit is None or unit[1] <= 0 or unit[1] == CQ_FILLER_SIZE or accepts(unit):
                high = middle
            else:
                low = solid + 1
        return low

    def index_before(self, cache: BlockCache, physical_offset: int) -> int:
        """The logical offset of the newest message whose record begins before a log offset; -1 or less when there is none."""
        first = self.units.first_index
        low = self._first_index_where(cache, first, lambda unit: unit[0] >= physical_offset)
        return low - 1

    def cut_beyond(self, disk: IDisk, cache: BlockCache, physical_offset: int) -> bool:
        """Drop the units of messages at or beyond a log offset (start-up only); whether there were any.

        A unit that was never written counts as beyond: a crash of the machine may leave a hole before later units.
        """
        units = self.units
        if self.max_physical_offset >= 0 and self.max_physical_offset <= physical_offset:
            return False
        low = self._first_index_where(
            cache, units.first_index, lambda unit: unit[0] >= physical_offset
        )
        if low == units.end_index:
            return False
        cache.forget(units.directory)
        units.cut(disk, low)
        self.min_index = min(self.min_index, low)
        self._set_end(self.unit(cache, low - 1))
        return True

    def correct_min(self, cache: BlockCache, min_physical_offset: int) -> None:
        """Move the smallest readable offset past the messages that the log no longer holds."""
        first = self._unit_on_disk(cache.disk, self.min_index)
        if first is not None and first[0] >= min_physical_offset and first[1] != CQ_FILLER_SIZE:
            return
        low = self._first_index_where(
            cache, self.min_index, lambda unit: unit[0] >= min_physical_offset
        )
        unit = self.unit(cache, low)
        while unit is not None and unit[1] == CQ_FILLER_SIZE:
            low += 1
            unit = self.unit(cache, low)
        self.min_index = low
