"""How do wheel and timer log agree again after a start? Blocking: at the start only.

Stands for ``TimerMessageStore.recover``. The log is the truth: units from one file before the checkpoint on, all of it when there is no
wheel, are shown to the wheel again. The log ends where no unit is, and where a unit speaks of a message that a crash took from
the commit log: official brokers keep those, and read whatever is there by then.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from twisted.logger import Logger

from txrocketmq.codec.storefiles import (
    TIMER_END_MAGIC,
    TIMER_MAGIC_DELETE,
    TIMER_MAGIC_ROLL,
    TIMER_UNIT,
    TIMER_UNIT_BYTES,
)
from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IDisk
from txrocketmq.store.filenames import is_file_name
from txrocketmq.store.timer.log import TimerLog, file_path, is_unit
from txrocketmq.store.timer.wheel import PAGE_BYTES, Slot, TimerWheel

_CHUNK_BYTES = 4096 * TIMER_UNIT_BYTES
_WHEEL_CHUNK_BYTES = 256 * PAGE_BYTES

log = Logger()


@attrs.frozen
class Recovered:
    """What there is to go on with.

    :ivar known: physical offsets of messages that are in the log's newest part, behind the checkpoint.
    :ivar last_offset: physical offset of the newest unit's message; -1 when there is no unit.
    """

    wheel: TimerWheel
    log: TimerLog
    known: set[int]
    last_offset: int


@attrs.frozen
class _Unit:
    position: int
    time_ms: int
    physical_offset: int
    end_offset: int
    messages: int


class TimerRecovery:
    """One recovery.

    :param directory: of the timer log.
    :param wheel_path: the wheel's file.
    :param wheel: an empty one.
    :param read_ms: slots before this time are done with.
    :param log_position: where the checkpoint says that the log was flushed.
    :param log_end: where the commit log ends.
    """

    def __init__(
        self,
        disk: IDisk,
        directory: str,
        wheel_path: str,
        file_size: int,
        wheel: TimerWheel,
        read_ms: int,
        log_position: int,
        log_end: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._wheel_path = wheel_path
        self._file_size = file_size
        self._wheel = wheel
        self._read_ms = read_ms
        self._log_position = log_position
        self._log_end = log_end

    def run(self) -> Recovered:
        """Recover.

        :raises StoreError: a file has not the size that the configuration names, or is missing between others.
        """
        bases = self._files()
        has_wheel = self._load_wheel()
        known: set[int] = set()
        newest: dict[int, int] = {}
        begin = end = bases[0] if bases else 0
        if has_wheel:
            begin = max(begin, self._log_position - self._file_size)
        begin -= begin % self._file_size
        last_offset = -1
        for unit in self._units(begin, bases):
            end = unit.position + TIMER_UNIT_BYTES
            if unit.end_offset > self._log_end:
                end = unit.position
                break
            if unit.position >= self._log_position:
                known.add(unit.physical_offset)
                newest[unit.position] = unit.time_ms
            last_offset = unit.physical_offset
            self._show(unit)
        self._cut(end, bases)
        self._mend(end, newest, bases)
        return Recovered(self._wheel, TimerLog(self._file_size, end), known, last_offset)

    # ------------------------------------------------------------------ files

    def _files(self) -> list[int]:
        """The starts of the files, ascending. Those behind the checkpoint that a crash left without length or without the one before them are
        deleted: what they hold is taken again."""
        names = [name for name in self._disk.listdir(self._directory) if is_file_name(name)]
        bases: list[int] = []
        is_broken = False
        directory = self._directory
        for name in names:
            base, path = int(name), f"{self._directory}/{name}"
            size = self._disk.size(path)
            is_next = not bases or base == bases[-1] + self._file_size
            is_unsure = base + self._file_size > self._log_position
            is_broken = is_broken or (is_unsure and (size == 0 or not is_next))
            if is_broken:
                self._disk.remove(path)
                self._disk.sync_directory(directory)
            elif size != self._file_size:
                raise StoreError(
                    f"{path} has {size} bytes, not the {self._file_size} of mappedFileSizeTimerLog"
                )
            elif not is_next:
                raise StoreError(f"the timer log in {self._directory} lacks the file before {base}")
            else:
                bases.append(base)
        return bases

    def _load_wheel(self) -> bool:
        disk, path = self._disk, self._wheel_path
        size = disk.size(path) if disk.exists(path) else 0
        if size == 0:
            return False
        if size != self._wheel.file_bytes:
            log.warn(
                "the timer wheel {path} has {size} bytes, not {wanted}: it is made anew from its log",
                path=path,
                size=size,
                wanted=self._wheel.file_bytes,
            )
            disk.remove(path)
            return False
        position = disk.next_data(path, 0)
        while position < size:
            position -= position % PAGE_BYTES
            data = disk.read_at(path, position, _WHEEL_CHUNK_BYTES)
            for start in range(0, len(data), PAGE_BYTES):
                self._wheel.take_page(
                    (position + start) // PAGE_BYTES, data[start : start + PAGE_BYTES]
                )
            position = disk.next_data(path, position + len(data))
        self._wheel.forget_before(self._read_ms)
        return True

    def _units(self, begin: int, bases: list[int]) -> Iterator[_Unit]:
        """The units from a position on, up to the first place where none is."""
        for base in bases:
            if base + self._file_size <= begin:
                continue
            position = max(base, begin)
            path = file_path(self._directory, base)
            is_over = False
            while not is_over and position + TIMER_UNIT_BYTES <= base + self._file_size:
                data = self._disk.read_at(path, position - base, _CHUNK_BYTES)
                data = data[: len(data) - len(data) % TIMER_UNIT_BYTES]
                for values in TIMER_UNIT.iter_unpack(data):
                    size, _, magic, write_ms, delay_ms, offset, record_size, _, _ = values
                    if magic == TIMER_END_MAGIC:
                        is_over = True
                        break
                    if not is_unit(size, magic):
                        return
                    kind = magic & (TIMER_MAGIC_DELETE | TIMER_MAGIC_ROLL)
                    yield _Unit(
                        position,
                        self._wheel.floor(write_ms + delay_ms),
                        offset,
                        offset + record_size,
                        -1 if kind & TIMER_MAGIC_DELETE else 1,
                    )
                    position += TIMER_UNIT_BYTES

    # ------------------------------------------------------------------ agreement

    def _show(self, unit: _Unit) -> None:
        """Let the wheel know a unit, unless it does."""
        if unit.time_ms < self._read_ms:
            return
        slot = self._wheel.get(unit.time_ms)
        if slot is None or unit.position > slot.last:
            self._wheel.add(unit.time_ms, unit.position, unit.messages)

    def _cut(self, end: int, bases: list[int]) -> None:
        """Let the log end at ``end``: nothing stale may follow what comes next."""
        disk = self._disk
        for base in reversed(bases):
            path = file_path(self._directory, base)
            if base >= end and base != bases[0]:
                disk.remove(path)
                continue
            position = max(end - base, 0)
            if position < self._file_size and disk.next_data(path, position) < self._file_size:
                disk.zero_from(path, position)
                disk.sync_file(path)
        if bases:
            disk.sync_directory(self._directory)

    def _mend(self, end: int, newest: dict[int, int], bases: list[int]) -> None:
        """See that no slot points behind the log's end, or to a unit that took the place of one that a crash took.

        :param newest: the times of the units behind the checkpoint by their positions; those before it are what they were.
        """
        wheel = self._wheel
        broken = {
            time_ms: slot
            for time_ms, slot in wheel.used()
            if time_ms >= self._read_ms
            and slot.last >= min(end, self._log_position)
            and newest.get(slot.last) != time_ms
        }
        if not broken:
            return
        log.warn("{count} slots of the timer wheel knew more than its log", count=len(broken))
        for time_ms in broken:
            wheel.clear(time_ms)
        found: dict[int, Slot] = {}
        begin = max(0, min([end, self._log_position, *(s.first for s in broken.values())]))
        for unit in self._units(begin - begin % self._file_size, bases):
            if unit.time_ms in broken:
                old = found.get(unit.time_ms)
                first, messages = (old.first, old.messages) if old else (unit.position, 0)
                found[unit.time_ms] = Slot(first, unit.position, messages + unit.messages)
        for time_ms, slot in found.items():
            wheel.put(time_ms, slot)
