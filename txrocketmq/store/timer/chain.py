"""Which messages wait in one slot? Its units, read backwards through the timer log. Blocking: for a pool.

Stands for the first half of ``TimerMessageStore.dequeue``.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Sequence

import attrs

from txrocketmq.codec.storefiles import (
    TIMER_MAGIC_DELETE,
    TIMER_MAGIC_ROLL,
    TIMER_UNIT,
    TIMER_UNIT_BYTES,
)
from txrocketmq.interfaces import IDisk
from txrocketmq.store.timer.log import Part, file_path, is_unit

BLOCK_UNITS = 1260
"""Units that are read at a time, as units of a slot are often neighbours: 64 KiB."""
BLOCK_BYTES = BLOCK_UNITS * TIMER_UNIT_BYTES


@attrs.define
class Chain:
    """The units of a slot, oldest first.

    :ivar offsets: physical offsets of the messages.
    :ivar sizes: sizes of their records.
    :ivar magics: what kinds of units they are.
    :ivar taken_ms: when they were taken into the wheel.
    :ivar deletes: which of them take another message back now.
    :ivar others: which of them are delivered, or put again, now.
    :ivar fault: why the chain could not be followed to its begin.
    """

    offsets: array[int]
    sizes: array[int]
    magics: array[int]
    taken_ms: array[int]
    deletes: array[int] = attrs.Factory(lambda: array("q"))
    others: array[int] = attrs.Factory(lambda: array("q"))
    fault: str | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def sort_out(self) -> None:
        """Tell the two kinds apart; of a million units that takes a fifth of a second."""
        delete, either = TIMER_MAGIC_DELETE, TIMER_MAGIC_DELETE | TIMER_MAGIC_ROLL
        for number, magic in enumerate(self.magics):
            (self.deletes if magic & either == delete else self.others).append(number)


class _Blocks:
    """Units of the log by position, from what is not written yet or from its files, a block at a time."""

    def __init__(self, disk: IDisk, directory: str, file_size: int, tail: Sequence[Part]) -> None:
        self._disk = disk
        self._directory = directory
        self._file_size = file_size
        self._tail = tail
        self._begin = 0
        self._data = b""

    def unit(self, position: int) -> bytes:
        for part in self._tail:
            if part.begin <= position < part.begin + len(part.data):
                start = position - part.begin
                return part.data[start : start + TIMER_UNIT_BYTES]
        if not self._begin <= position <= self._begin + len(self._data) - TIMER_UNIT_BYTES:
            self._read(position)
        start = position - self._begin
        return self._data[start : start + TIMER_UNIT_BYTES]

    def _read(self, position: int) -> None:
        """The block that ends with the unit: older ones lie before it."""
        base = position - position % self._file_size
        begin = max(base, position + TIMER_UNIT_BYTES - BLOCK_BYTES)
        self._begin, self._data = begin, b""
        with contextlib.suppress(FileNotFoundError):
            self._data = self._disk.read_at(
                file_path(self._directory, base), begin - base, position + TIMER_UNIT_BYTES - begin
            )


def read_chain(
    disk: IDisk,
    directory: str,
    file_size: int,
    tail: Sequence[Part],
    last: int,
    time_ms: int,
    precision_ms: int,
) -> Chain:
    """Pool: the units of a slot.

    :param tail: what of the log may not be in its files yet.
    :param last: position of the slot's newest unit.
    :param time_ms: the slot's time; a unit of another one ends the chain.
    """
    chain = Chain(array("q"), array("q"), array("q"), array("q"))
    blocks = _Blocks(disk, directory, file_size, tail)
    position = last
    while position >= 0:
        data = blocks.unit(position)
        if len(data) < TIMER_UNIT_BYTES:
            # Its file is gone, with the messages of the log.
            break
        size, previous, magic, write_ms, delay_ms, offset, record_size, _, _ = TIMER_UNIT.unpack(
            data
        )
        found_ms = (write_ms + delay_ms) // precision_ms * precision_ms
        if not is_unit(size, magic) or found_ms != time_ms or previous >= position:
            chain.fault = f"the unit at {position} of the timer log is none of the slot {time_ms}"
            break
        chain.offsets.append(offset)
        chain.sizes.append(record_size)
        chain.magics.append(magic)
        chain.taken_ms.append(write_ms)
        position = previous
    for column in (chain.offsets, chain.sizes, chain.magics, chain.taken_ms):
        column.reverse()
    chain.sort_out()
    return chain
