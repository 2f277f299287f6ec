"""Where is each waiting message? The timer log, pure: units in, bytes for files out.

Stands for ``TimerLog``. A unit never crosses a file's end: where it would, and 16 bytes more, an end mark goes first and the unit into
the next file. Units gather in memory until a job of the pool has written them.
"""

from __future__ import annotations

from typing import NamedTuple

from txrocketmq.codec.storefiles import (
    TIMER_END,
    TIMER_END_BYTES,
    TIMER_END_MAGIC,
    TIMER_MAGIC_DEFAULT,
    TIMER_MAGIC_DELETE,
    TIMER_MAGIC_ROLL,
    TIMER_UNIT,
    TIMER_UNIT_BYTES,
)
from txrocketmq.store.mapped import file_name

NO_UNIT = -1
_MAGIC_BITS = 0xF


class Part(NamedTuple):
    """Bytes of the timer log that are within one file.

    :ivar base: start of the file in the log.
    :ivar position: where the bytes begin in the file.
    """

    base: int
    position: int
    data: bytes

    @property
    def begin(self) -> int:
        """Where they begin in the log."""
        return self.base + self.position


class TimerLog:
    """The end of the log.

    :param file_size: bytes of each file.
    :ivar end: where the next unit goes, unless the file is full.
    """

    def __init__(self, file_size: int, end: int = 0) -> None:
        self.file_size = file_size
        self.end = end
        self._tail: list[tuple[int, bytearray]] = []

    @property
    def tail_bytes(self) -> int:
        """Bytes that are not written."""
        return sum(len(data) for _, data in self._tail)

    def append(self, unit: bytes) -> int:
        """Take a unit; its position."""
        rest = self.file_size - self.end % self.file_size
        if len(unit) + TIMER_END_BYTES > rest:
            self._take(TIMER_END.pack(rest, 0, TIMER_END_MAGIC)[:rest])
            self.end += rest - min(rest, TIMER_END_BYTES)
        position = self.end
        self._take(unit)
        return position

    def _take(self, data: bytes) -> None:
        if self._tail:
            begin, held = self._tail[-1]
            if (
                begin + len(held) == self.end
                and begin // self.file_size == self.end // self.file_size
            ):
                held += data
                self.end += len(data)
                return
        self._tail.append((self.end, bytearray(data)))
        self.end += len(data)

    def parts(self) -> list[Part]:
        """What has to be written; ascending."""
        return [
            Part(begin - begin % self.file_size, begin % self.file_size, bytes(data))
            for begin, data in self._tail
        ]

    def written_to(self, end: int) -> None:
        """Everything below ``end`` is in the files."""
        kept = []
        for begin, data in self._tail:
            if begin + len(data) <= end:
                continue
            if begin < end:
                data, begin = data[end - begin :], end
            kept.append((begin, data))
        self._tail = kept


def file_path(directory: str, base: int) -> str:
    """The file of the log that begins at ``base``."""
    return f"{directory}/{file_name(base)}"


def is_unit(size: int, magic: int) -> bool:
    """Whether these fields are those of a unit, as official brokers judge it."""
    return size == TIMER_UNIT_BYTES and magic | _MAGIC_BITS == _MAGIC_BITS


def make_unit(
    previous: int,
    write_ms: int,
    time_ms: int,
    physical_offset: int,
    size: int,
    topic_hash: int,
    *,
    is_rolled: bool,
    is_delete: bool,
) -> bytes:
    """A unit's bytes.

    :param previous: position of the unit before it in its slot.
    :param time_ms: its slot's time.
    :param is_rolled: the message is put again when the time has come, since its own is farther off.
    :param is_delete: the message takes another one back.
    """
    magic = TIMER_MAGIC_DEFAULT
    if is_rolled:
        magic |= TIMER_MAGIC_ROLL
    if is_delete:
        magic |= TIMER_MAGIC_DELETE
    return TIMER_UNIT.pack(
        TIMER_UNIT_BYTES,
        previous,
        magic,
        write_ms,
        time_ms - write_ms,
        physical_offset,
        size,
        topic_hash,
        0,
    )
