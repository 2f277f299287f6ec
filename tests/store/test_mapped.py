"""Is a queue of mapped files one endless log: does it roll, cut, reopen, refuse and come back?"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log_watch import logged
from twisted.logger import LogEvent

from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IDisk
from txrocketmq.store.disk import RealDisk
from txrocketmq.store.mapped import (
    MAX_PREPARED_SMALL,
    TINY_FILE_BYTES,
    MappedFileQueue,
    file_name,
)
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool, ManualPool

PAGE = 4096
FILE = 4 * PAGE
UNIT = 1024


def open_queue(
    disk: IDisk, directory: str, pool: ImmediatePool | ManualPool | None = None, **sizes: int
) -> MappedFileQueue:
    queue = MappedFileQueue(disk, directory, FILE, pool or ImmediatePool(), **sizes)
    queue.load()
    return queue


@pytest.fixture(params=["real", "memory"])
def disk(request: pytest.FixtureRequest) -> IDisk:
    return RealDisk() if request.param == "real" else MemoryDisk()


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "commitlog")


@pytest.fixture
def messages() -> Iterator[list[LogEvent]]:
    """What is logged while the test runs."""
    with logged(show=lambda event: event) as events:
        yield events


def unit(number: int) -> bytes:
    return number.to_bytes(8, "big") * (UNIT // 8)


def test_files_are_named_by_their_first_offset() -> None:
    assert file_name(0) == "00000000000000000000"
    assert file_name(1073741824) == "00000000001073741824"


def test_append_goes_on_in_the_next_file(disk: IDisk, directory: str) -> None:
    queue = open_queue(disk, directory)
    queue.open_for_append()
    offsets = [queue.append(unit(number)) for number in range(40)]
    assert offsets == [number * UNIT for number in range(40)]
    assert (queue.min_offset, queue.max_offset) == (0, 40 * UNIT)
    # Three files with data, and the one that was made ready.
    assert disk.listdir(directory) == [file_name(number * FILE) for number in range(4)]
    assert all(queue.read(number * UNIT, UNIT) == unit(number) for number in range(40))


def test_reads_stay_in_one_file_and_inside_the_log(disk: IDisk, directory: str) -> None:
    queue = open_queue(disk, directory)
    queue.open_for_append()
    for number in range(18):
        queue.append(unit(number))
    assert queue.read(FILE - UNIT, 10 * UNIT) == unit(15)
    assert queue.read(17 * UNIT, 10 * UNIT) == unit(17)
    assert queue.read_ready(17 * UNIT + 8, 8) == unit(17)[:8]
    assert queue.read(18 * UNIT, 1) == b""
    assert queue.read(100 * FILE, 1) == b""
    assert queue.read(-5, 1) == b""
    assert queue.find(FILE) is queue.files[1]
    assert queue.find(100 * FILE) is None


def test_append_of_what_does_not_fit_the_file_is_an_error(disk: IDisk, directory: str) -> None:
    queue = open_queue(disk, directory)
    queue.open_for_append()
    queue.append(b"x" * (FILE - 10))
    with pytest.raises(StoreError, match="do not fit"):
        queue.append(b"y" * 11)


def test_reopened_files_count_as_full_until_they_are_cut(disk: IDisk, directory: str) -> None:
    queue = open_queue(disk, directory)
    queue.open_for_append()
    for number in range(21):
        queue.append(unit(number))
    queue.flush()
    queue.close()
    again = open_queue(disk, directory)
    assert (again.min_offset, again.max_offset) == (0, 2 * FILE)
    again.truncate_to(21 * UNIT)
    assert again.max_offset == 21 * UNIT
    again.open_for_append()
    assert again.append(unit(21)) == 21 * UNIT
    assert again.read(20 * UNIT, 2 * UNIT) == unit(20) + unit(21)


def test_reopening_a_full_file_goes_on_in_a_new_one(disk: IDisk, directory: str) -> None:
    queue = open_queue(disk, directory)
    queue.open_for_append()
    for number in range(16):
        queue.append(unit(number))
    queue.flush()
    queue.close()
    pool = ManualPool()
    again = open_queue(disk, directory, pool)
    again.truncate_to(FILE)
    again.open_for_append()
    # At once: the pool has not done anything yet.
    assert again.append(unit(16)) == FILE


def test_cutting_deletes_later_files_and_leaves_zeros_behind(disk: IDisk, directory: str) -> None:
    queue = open_queue(disk, directory)
    queue.open_for_append()
    for number in range(40):
        queue.append(unit(number + 1))
    queue.close()
    again = open_queue(disk, directory)
    again.truncate_to(5 * UNIT + 3)
    assert disk.listdir(directory) == [file_name(0)]
    assert disk.read_file(f"{directory}/{file_name(0)}")[5 * UNIT :] == unit(6)[:3].ljust(
        FILE - 5 * UNIT, b"\0"
    )
    assert again.flushed_offset == 5 * UNIT + 3


def test_cutting_at_a_files_start_keeps_it_empty(disk: IDisk, directory: str) -> None:
    queue = open_queue(disk, directory)
    queue.open_for_append()
    for number in range(20):
        queue.append(unit(number + 1))
    queue.close()
    again = open_queue(disk, directory)
    again.truncate_to(FILE)
    assert (again.max_offset, len(again.files)) == (FILE, 2)
    again.open_for_append()
    assert again.append(unit(7)) == FILE


def test_cutting_everything_begins_at_that_files_offset(disk: IDisk, directory: str) -> None:
    disk.create(f"{directory}/{file_name(8 * FILE)}", FILE)
    queue = open_queue(disk, directory)
    assert queue.min_offset == 8 * FILE
    queue.truncate_to(3 * FILE)
    assert queue.files == []
    queue.open_for_append()
    assert queue.append(b"x") == 3 * FILE


def test_a_log_that_is_written_is_not_cut(disk: IDisk, directory: str) -> None:
    queue = open_queue(disk, directory)
    queue.open_for_append()
    with pytest.raises(StoreError, match="being written"):
        queue.truncate_to(0)


def test_close_deletes_the_file_that_was_only_made_ready(disk: IDisk, directory: str) -> None:
    queue = open_queue(disk, directory)
    queue.open_for_append()
    for number in range(9):
        queue.append(unit(number))
    assert disk.listdir(directory) == [file_name(0), file_name(FILE)]
    queue.close()
    assert disk.listdir(directory) == [file_name(0)]


def test_foreign_names_are_ignored_with_one_warning(
    disk: IDisk, directory: str, messages: list[LogEvent]
) -> None:
    disk.create(f"{directory}/{file_name(0)}", FILE)
    for name in ("notes.txt", "123", "0000000000000000000x", f"{file_name(FILE)}.tmp"):
        disk.create(f"{directory}/{name}", 7)
    queue = open_queue(disk, directory)
    assert [file.base_offset for file in queue.files] == [0]
    warnings = [event["names"] for event in messages if "names" in event]
    assert warnings == ["0000000000000000000x, 123, notes.txt"]


@pytest.mark.parametrize("size", [FILE // 2, FILE + 1])
def test_a_file_of_another_length_stops_the_start(disk: IDisk, directory: str, size: int) -> None:
    disk.create(f"{directory}/{file_name(0)}", size)
    with pytest.raises(StoreError, match=f"{size} bytes, the configured file size is {FILE}"):
        open_queue(disk, directory)


@pytest.mark.parametrize("files", [1, 2])
def test_a_last_file_that_was_cut_gets_its_length_back(
    disk: IDisk, directory: str, files: int
) -> None:
    for number in range(files):
        disk.create(f"{directory}/{file_name(number * FILE)}", FILE)
    path = f"{directory}/{file_name((files - 1) * FILE)}"
    disk.write_at(path, 0, b"x" * FILE)
    disk.truncate(path, 1001)
    queue = open_queue(disk, directory)
    assert queue.max_offset == files * FILE
    assert disk.read_file(path) == (b"x" * 1001).ljust(FILE, b"\0")


def test_an_empty_last_file_is_deleted_an_empty_other_one_is_not(
    disk: IDisk, directory: str
) -> None:
    disk.create(f"{directory}/{file_name(0)}", FILE)
    disk.create(f"{directory}/{file_name(FILE)}", 0)
    queue = open_queue(disk, directory)
    assert disk.listdir(directory) == [file_name(0)]
    assert queue.max_offset == FILE
    disk.create(f"{directory}/{file_name(FILE)}", 0)
    disk.create(f"{directory}/{file_name(2 * FILE)}", FILE)
    with pytest.raises(StoreError, match="has 0 bytes"):
        open_queue(disk, directory)


def test_a_missing_file_in_the_middle_stops_the_start(disk: IDisk, directory: str) -> None:
    disk.create(f"{directory}/{file_name(FILE)}", FILE)
    disk.create(f"{directory}/{file_name(3 * FILE)}", FILE)
    with pytest.raises(StoreError, match=f"{file_name(2 * FILE)} is missing"):
        open_queue(disk, directory)


# --------------------------------------------------------------------------- made ready ahead


def test_blocks_are_there_before_they_are_needed() -> None:
    disk, pool = MemoryDisk(), ManualPool()
    queue = open_queue(disk, "/log", pool, window_bytes=2 * PAGE, chunk_bytes=PAGE)
    queue.open_for_append()
    pool.run()
    for number in range(64):
        tail = queue.files[-1]
        left = tail.size - tail.position
        mapping = tail.mapping
        assert mapping is not None
        ready = mapping.allocated_to() - tail.position
        assert ready >= min(PAGE, left), f"only {ready} bytes ready before {number}"
        assert queue.append(unit(number)) == number * UNIT
        pool.run()


def test_an_append_is_refused_while_the_pool_is_behind_and_taken_later() -> None:
    disk, pool = MemoryDisk(), ManualPool()
    queue = open_queue(disk, "/log", pool, chunk_bytes=PAGE)
    queue.open_for_append()
    for number in range(4):
        assert queue.append(unit(number)) == number * UNIT
    assert queue.append(unit(4)) == -1
    assert queue.failure is None
    # The work is done, and its report is still on the way to the reactor: good enough.
    pool.work()
    assert queue.append(unit(4)) == 4 * UNIT
    pool.deliver()
    pool.run()
    assert queue.append(unit(5)) == 5 * UNIT


def test_an_append_is_refused_while_the_next_file_is_not_there() -> None:
    disk, pool = MemoryDisk(), ManualPool()
    queue = open_queue(disk, "/log", pool, chunk_bytes=FILE)
    queue.open_for_append()
    for number in range(16):
        assert queue.append(unit(number)) == number * UNIT
    assert queue.append(unit(16)) == -1
    assert queue.max_offset == FILE
    pool.run()
    assert queue.append(unit(16)) == FILE


def test_the_window_grows_when_writing_outruns_the_pool() -> None:
    disk, pool = MemoryDisk(), ManualPool()
    queue = MappedFileQueue(disk, "/log", 64 * PAGE, pool, window_bytes=4 * PAGE, chunk_bytes=PAGE)
    queue.open_for_append()
    pool.run()

    def ready() -> int:
        tail = queue.files[0]
        assert tail.mapping is not None
        return tail.mapping.allocated_to() - tail.position

    assert ready() == 4 * PAGE
    # At leisure: the window stays as it is.
    for _ in range(4):
        queue.append(unit(0) * 4)
        pool.run()
    assert ready() == 4 * PAGE
    # In a rush: three pages before the pool gets round to anything.
    for _ in range(3):
        queue.append(unit(0) * 4)
    pool.run()
    assert ready() == 8 * PAGE


def test_a_full_disk_refuses_appends_serves_reads_and_recovers(messages: list[LogEvent]) -> None:
    disk = MemoryDisk(capacity_bytes=6 * PAGE)
    queue = open_queue(disk, "/log", chunk_bytes=PAGE)
    queue.open_for_append()
    taken = 0
    while queue.append(unit(taken)) >= 0:
        taken += 1
    assert taken == 24
    assert queue.failure is not None
    assert queue.failure.errno == 28
    assert queue.append(unit(99)) == -1
    assert queue.read(23 * UNIT, UNIT) == unit(23)
    queue.flush()
    disk.capacity_bytes = 100 * PAGE
    assert queue.append(unit(24)) == 24 * UNIT
    assert queue.failure is None
    assert queue.append(unit(25)) == 25 * UNIT
    told = [event["log_level"].name for event in messages if "directory" in event]
    assert told == ["error", "info"]


def test_a_full_disk_does_not_stop_the_start() -> None:
    disk = MemoryDisk(capacity_bytes=0)
    queue = open_queue(disk, "/log")
    queue.open_for_append()
    assert queue.append(b"x") == -1
    assert queue.max_offset == 0
    disk.capacity_bytes = 100 * PAGE
    assert queue.append(b"x") == 0


# --------------------------------------------------------------------------- flush


def test_flush_covers_all_files_that_were_written() -> None:
    disk = MemoryDisk()
    queue = open_queue(disk, "/log")
    queue.open_for_append()
    for number in range(36):
        queue.append(unit(number + 1))
    spans = [(start, end) for _, start, end in queue.unsynced()]
    assert spans == [(0, FILE), (0, FILE), (0, 4 * UNIT)]
    queue.flush()
    assert queue.flushed_offset == 36 * UNIT
    assert queue.unsynced() == []
    disk.crash()
    assert disk.read_at(f"/log/{file_name(FILE)}", 0, UNIT) == unit(17)
    assert disk.read_at(f"/log/{file_name(2 * FILE)}", 3 * UNIT, UNIT) == unit(36)


def test_only_files_in_use_stay_mapped() -> None:
    disk = MemoryDisk()
    queue = open_queue(disk, "/log")
    queue.open_for_append()
    for number in range(80):
        queue.append(unit(number))
    assert [file.mapping is not None for file in queue.files] == [True] * 5
    queue.flush()
    assert [file.mapping is not None for file in queue.files] == [False] * 4 + [True]
    assert queue.read(3 * UNIT, UNIT) == unit(3)
    disk.cold.add(queue.files[0].path)
    assert queue.read_ready(3 * UNIT, UNIT) is None
    assert queue.read_ready(79 * UNIT, UNIT) == unit(79)


def test_what_a_kill_left_in_the_page_cache_is_synced_at_the_start() -> None:
    disk = MemoryDisk()
    queue = open_queue(disk, "/log")
    queue.open_for_append()
    for number in range(20):
        queue.append(unit(number + 1))
    again = open_queue(disk, "/log")
    again.truncate_to(20 * UNIT)
    again.open_for_append()
    assert again.flushed_offset == 20 * UNIT
    disk.crash()
    assert disk.read_at(f"/log/{file_name(0)}", 15 * UNIT, UNIT) == unit(16)
    assert disk.read_at(f"/log/{file_name(FILE)}", 3 * UNIT, UNIT) == unit(20)


def test_old_files_are_deleted_once_flushed_and_never_the_last() -> None:
    disk = MemoryDisk()
    queue = open_queue(disk, "/log")
    queue.open_for_append()
    for number in range(40):
        queue.append(unit(number))
    assert queue.delete_before(2 * FILE) == []
    queue.flush()
    assert queue.delete_before(2 * FILE - 1) == [f"/log/{file_name(0)}"]
    assert queue.min_offset == FILE
    assert queue.delete_before(1 << 60) == [f"/log/{file_name(FILE)}"]
    assert queue.min_offset == 2 * FILE
    assert queue.read(0, 10) == b""
    assert queue.read(2 * FILE, UNIT) == unit(32)
    assert file_name(FILE) not in disk.listdir("/log")


def test_close_waits_for_work_in_the_pool() -> None:
    disk, pool = MemoryDisk(), ManualPool()
    queue = open_queue(disk, "/log", pool, chunk_bytes=PAGE)
    queue.open_for_append()
    closed: list[object] = []
    queue.close().addCallback(closed.append)
    assert closed == []
    pool.run()
    assert closed == [True]
    assert disk.listdir("/log") == [file_name(0)]


def test_close_says_when_what_was_made_ahead_may_come_back() -> None:
    disk = MemoryDisk()
    queue = open_queue(disk, "/log")
    queue.open_for_append()
    while len(disk.listdir("/log")) < 2:
        assert queue.append(bytes(PAGE)) >= 0
    queue.flush()
    disk.sync_error = OSError(errno.EIO, "no")
    closed: list[object] = []
    queue.close().addCallback(closed.append)
    assert closed == [False]


def test_mappings_and_descriptors_stay_few(tmp_path: Path) -> None:
    disk = RealDisk(fd_limit=4)
    before = len(os.listdir("/proc/self/fd"))
    queue = open_queue(disk, str(tmp_path / "log"))
    queue.open_for_append()
    for number in range(16 * 50):
        queue.append(unit(number))
        if number % 16 == 0:
            queue.flush()
    for number in range(0, 16 * 50, 16):
        assert queue.read(number * UNIT, UNIT) == unit(number)
    with open("/proc/self/maps") as maps:
        assert sum(str(tmp_path) in line for line in maps) <= 3
    assert len(os.listdir("/proc/self/fd")) <= before + 10
    queue.close()
    disk.close()
    assert len(os.listdir("/proc/self/fd")) == before


# --------------------------------------------------------------------------- against a model


class QueueMachine(RuleBasedStateMachine):
    """Any order of appends, flushes, cuts, reopenings and power failures, against one bytearray."""

    pool: ManualPool
    queue: MappedFileQueue

    @initialize()
    def begin(self) -> None:
        self.disk = MemoryDisk()
        self.model = bytearray()
        self.start = 0
        self.flushed = 0
        self.reopen(0)

    def reopen(self, end: int) -> None:
        self.pool = ManualPool()
        self.queue = MappedFileQueue(
            self.disk, "/log", FILE, self.pool, window_bytes=2 * PAGE, chunk_bytes=PAGE
        )
        self.queue.load()
        self.queue.truncate_to(end)
        self.queue.open_for_append()
        self.flushed = end

    @rule(size=st.integers(1, FILE), fill=st.integers(1, 255))
    def append(self, size: int, fill: int) -> None:
        left = FILE - len(self.model) % FILE
        data = bytes([fill]) * min(size, left)
        offset = self.queue.append(data)
        if offset < 0:
            assert self.pool.pending, "refused, and nobody works on it"
            return
        assert offset == len(self.model)
        self.model += data

    @rule(jobs=st.integers(1, 5))
    def work(self, jobs: int) -> None:
        self.pool.run(jobs)

    @rule()
    def flush(self) -> None:
        self.queue.flush()
        self.flushed = len(self.model)

    @rule(share=st.floats(0, 1))
    def cut_and_reopen(self, share: float) -> None:
        self.pool.run()
        self.queue.close()
        end = self.start + int((len(self.model) - self.start) * share)
        del self.model[end:]
        self.reopen(end)

    @rule()
    def power_failure(self) -> None:
        self.disk.crash()
        del self.model[self.flushed :]
        self.reopen(self.flushed)

    @precondition(lambda self: self.queue.flushed_offset > FILE)
    @rule()
    def delete_oldest(self) -> None:
        self.queue.delete_before(self.queue.flushed_offset)
        self.pool.run()
        self.start = self.queue.min_offset

    @invariant()
    def holds_the_models_bytes(self) -> None:
        if not hasattr(self, "queue"):
            return
        assert self.queue.max_offset == len(self.model)
        assert self.queue.flushed_offset == self.flushed
        offset = self.start
        while offset < len(self.model):
            piece = self.queue.read(offset, FILE)
            assert piece == self.model[offset : offset + len(piece)]
            offset += len(piece)


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAgainstAModel = QueueMachine.TestCase


def test_the_window_spans_several_small_files() -> None:
    """Or a burst would be refused at each file's end, where the pool has to make the next one."""
    disk, pool, size = MemoryDisk(), ManualPool(), 2 * TINY_FILE_BYTES
    queue = MappedFileQueue(disk, "/log", size, pool)
    queue.load()
    queue.open_for_append()
    pool.run()
    assert len(disk.listdir("/log")) == MAX_PREPARED_SMALL
    burst = MAX_PREPARED_SMALL * size // UNIT
    assert [queue.append(unit(number)) for number in range(burst)] == [
        number * UNIT for number in range(burst)
    ]
    pool.run()
    queue.flush()
    queue.close()
    assert len(disk.listdir("/log")) == MAX_PREPARED_SMALL
