"""Which messages wait for which moment? The slots of the timer wheel, pure: pages of slots in, pages out.

Stands for ``TimerWheel``: a file of 2 x 7 x 86,400 slots whatever the precision. A slot belongs to a time for good while its number says
so; it is one of an older round when its number differs, and then it is empty. Only pages that have slots in use are kept in memory,
where official brokers keep all 37 MiB twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from txrocketmq.codec.storefiles import TIMER_SLOT, TIMER_SLOT_BYTES

DAYS = 7
SLOTS = DAYS * 24 * 3600
"""Slots of half a round; the file has twice as many."""
PAGE_BYTES = 4096
PAGE_SLOTS = PAGE_BYTES // TIMER_SLOT_BYTES

_NO_PAGE = bytes(PAGE_BYTES)


class Slot(NamedTuple):
    """One slot in use.

    :ivar first: position of its first unit in the timer log.
    :ivar last: position of its last unit, from which the others are found.
    :ivar messages: waiting messages, less those that will be deleted.
    """

    first: int
    last: int
    messages: int


class TimerWheel:
    """The slots.

    :param precision_ms: the span of a slot.
    :param slots: slots of half a round; official files have 7 days of seconds.
    :ivar slots: all slots.
    :ivar dirty: pages that are not on disk as they are here.
    """

    def __init__(self, precision_ms: int, slots: int = SLOTS) -> None:
        self.precision_ms = precision_ms
        self.slots = 2 * slots
        self.dirty: set[int] = set()
        self._pages: dict[int, bytearray] = {}

    @property
    def file_bytes(self) -> int:
        """The file's length."""
        return self.slots * TIMER_SLOT_BYTES

    def floor(self, time_ms: int) -> int:
        """The start of the slot of a time."""
        return time_ms // self.precision_ms * self.precision_ms

    def get(self, time_ms: int) -> Slot | None:
        """The slot of a time; None when nothing waits for it."""
        number = time_ms // self.precision_ms
        page = self._pages.get(number % self.slots // PAGE_SLOTS)
        if page is None:
            return None
        held, first, last, messages, _ = TIMER_SLOT.unpack_from(
            page, number % PAGE_SLOTS * TIMER_SLOT_BYTES
        )
        return Slot(first, last, messages) if held == number and number else None

    def put(self, time_ms: int, slot: Slot) -> None:
        """Set the slot of a time; whatever was in its place is forgotten."""
        number = time_ms // self.precision_ms
        index = number % self.slots // PAGE_SLOTS
        page = self._pages.get(index)
        if page is None:
            page = self._pages[index] = bytearray(PAGE_BYTES)
        TIMER_SLOT.pack_into(
            page,
            number % PAGE_SLOTS * TIMER_SLOT_BYTES,
            number,
            slot.first,
            slot.last,
            slot.messages,
            0,
        )
        self.dirty.add(index)

    def add(self, time_ms: int, position: int, messages: int) -> None:
        """One more unit for a time: it is the last of its slot now."""
        slot = self.get(time_ms)
        if slot is None:
            self.put(time_ms, Slot(position, position, messages))
        else:
            self.put(time_ms, Slot(slot.first, position, slot.messages + messages))

    def clear(self, time_ms: int) -> None:
        """Empty the slot of a time."""
        number = time_ms // self.precision_ms
        index = number % self.slots // PAGE_SLOTS
        page = self._pages.get(index)
        if page is not None and self.get(time_ms) is not None:
            TIMER_SLOT.pack_into(page, number % PAGE_SLOTS * TIMER_SLOT_BYTES, 0, 0, 0, 0, 0)
            self.dirty.add(index)

    def next_used(self, time_ms: int, end_ms: int) -> int | None:
        """The first time from ``time_ms`` on, before ``end_ms``, for which something waits."""
        number, end = time_ms // self.precision_ms, end_ms // self.precision_ms
        end = min(end, number + self.slots)
        while number < end:
            if number % self.slots // PAGE_SLOTS not in self._pages:
                number += PAGE_SLOTS - number % PAGE_SLOTS
                continue
            if self.get(number * self.precision_ms) is not None:
                return number * self.precision_ms
            number += 1
        return None

    def used(self) -> Iterator[tuple[int, Slot]]:
        """All slots of whatever time that are not empty, with their times in ms."""
        for page in list(self._pages.values()):
            for number, first, last, messages, _ in TIMER_SLOT.iter_unpack(page):
                if number:
                    yield number * self.precision_ms, Slot(first, last, messages)

    def waiting(self, time_ms: int) -> int:
        """How many messages wait for ``time_ms`` or later."""
        return sum(slot.messages for time, slot in self.used() if time >= time_ms)

    # ------------------------------------------------------------------ pages

    def take_page(self, index: int, data: bytes) -> None:
        """A page as it is on disk."""
        if data != _NO_PAGE:
            self._pages[index] = bytearray(data.ljust(PAGE_BYTES, b"\0"))

    def take_dirty(self) -> list[tuple[int, bytes]]:
        """The pages that have to be written, with their numbers; they count as written from now on."""
        dirty, self.dirty = self.dirty, set()
        return [(index, bytes(self._pages[index])) for index in sorted(dirty)]

    def forget_before(self, time_ms: int) -> None:
        """Give up the memory of pages that have nothing for ``time_ms`` or later; on disk they stay as they are."""
        number = time_ms // self.precision_ms
        for index, page in list(self._pages.items()):
            if index in self.dirty:
                continue
            if all(held < number for held, *_ in TIMER_SLOT.iter_unpack(page)):
                del self._pages[index]

    @property
    def page_count(self) -> int:
        """Pages in memory."""
        return len(self._pages)
