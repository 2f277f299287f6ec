"""Does a queue's row of units hold what was put, in files of the official kind, through memory, cache and restart?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txrocketmq.codec.storefiles import CQ_FILLER, CQ_UNIT
from txrocketmq.errors import StoreError
from txrocketmq.store.consumequeue import ConsumeQueue
from txrocketmq.store.disk import RealDisk
from txrocketmq.store.unitlog import BlockCache, ColdRead, write_units
from txrocketmq.testing.disk import MemoryDisk

DIRECTORY = "/store/consumequeue/TopicTest/3"
FILE_BYTES = 200
"""Ten units."""


def new_queue(file_bytes: int = FILE_BYTES) -> ConsumeQueue:
    return ConsumeQueue("TopicTest", 3, DIRECTORY, file_bytes)


def fill(queue: ConsumeQueue, disk: MemoryDisk, count: int, start: int = 0) -> None:
    for index in range(start, start + count):
        queue.put(index, index * 100, 100, index * 7, disk)


def write(queue: ConsumeQueue, disk: MemoryDisk, retained: int = 0) -> None:
    write_units(disk, queue.units.unwritten(), True)
    queue.units.mark_written(queue.units.end_index, retained)


def reload(disk: MemoryDisk, file_bytes: int = FILE_BYTES) -> tuple[ConsumeQueue, BlockCache]:
    queue, cache = new_queue(file_bytes), BlockCache(disk)
    queue.load(disk, cache)
    return queue, cache


def unit(index: int) -> tuple[int, int, int]:
    return index * 100, 100, index * 7


def test_units_go_to_files_of_the_official_length_named_by_their_first_byte() -> None:
    disk, queue = MemoryDisk(), new_queue()
    fill(queue, disk, 25)
    write(queue, disk)
    assert disk.listdir(DIRECTORY) == [f"{offset:020d}" for offset in (0, 200, 400)]
    content = b"".join(disk.read_file(f"{DIRECTORY}/{name}") for name in disk.listdir(DIRECTORY))
    assert content == b"".join(CQ_UNIT.pack(*unit(n)) for n in range(25)) + bytes(100)
    assert disk.synced(f"{DIRECTORY}/{400:020d}") == content[400:]


@given(
    count=st.integers(0, 45),
    written=st.integers(0, 45),
    retained=st.integers(0, 45),
    index=st.integers(0, 50),
    length=st.integers(1, 50),
)
def test_units_read_the_same_from_memory_files_and_both(
    count: int, written: int, retained: int, index: int, length: int
) -> None:
    disk, queue = MemoryDisk(), new_queue()
    cache = BlockCache(disk)
    fill(queue, disk, min(written, count))
    write(queue, disk, retained)
    fill(queue, disk, count - min(written, count), min(written, count))
    found = list(queue.entries(cache, index, length))
    last = min(index + length, count)
    assert found == [(n, unit(n), 1) for n in range(index, last)]


@given(count=st.integers(0, 2000), file_units=st.sampled_from([10, 300, 1500]))
def test_a_reopened_queue_ends_where_it_ended(count: int, file_units: int) -> None:
    disk, queue = MemoryDisk(), new_queue(file_units * 20)
    fill(queue, disk, count)
    write(queue, disk)
    again, cache = reload(disk, file_units * 20)
    assert (again.min_index, again.max_index, again.next_index) == (0, count, count)
    assert again.max_physical_offset == (count * 100 if count else -1)
    assert again.unit(cache, count - 1) == (unit(count - 1) if count else None)
    assert again.unit(cache, count) is None


def test_a_queue_that_begins_late_starts_with_filler_units() -> None:
    disk, queue = MemoryDisk(), new_queue()
    queue.put(23, 5000, 100, 9, disk)
    assert (queue.min_index, queue.max_index) == (23, 24)
    write(queue, disk)
    assert disk.listdir(DIRECTORY) == [f"{400:020d}"]
    content = disk.read_file(f"{DIRECTORY}/{400:020d}")
    assert content == CQ_FILLER * 3 + CQ_UNIT.pack(5000, 100, 9) + bytes(120)
    again, cache = reload(disk)
    again.correct_min(cache, 0)
    assert (again.min_index, again.max_index) == (23, 24)


def test_a_unit_that_is_there_is_not_put_twice() -> None:
    disk, queue = MemoryDisk(), new_queue()
    fill(queue, disk, 5)
    assert queue.put(3, 300, 100, 21, disk) is False
    assert queue.max_index == 5


def test_a_later_record_with_a_smaller_offset_begins_the_queue_anew() -> None:
    """The queue was deleted and used again before the crash: what the log says last is true."""
    disk, queue = MemoryDisk(), new_queue()
    cache = BlockCache(disk)
    fill(queue, disk, 25)
    write(queue, disk)
    assert queue.put(0, 9000, 50, 1, disk) is True
    assert [entry[1] for entry in queue.entries(cache, 0, 50)] == [(9000, 50, 1)]
    write(queue, disk)
    again, _ = reload(disk)
    assert again.max_index == 1


def test_messages_that_the_log_lacks_leave_a_gap_of_filler_units() -> None:
    disk, queue = MemoryDisk(), new_queue()
    cache = BlockCache(disk)
    fill(queue, disk, 3)
    queue.put(5, 9000, 100, 1, disk)
    units = [entry[1] for entry in queue.entries(cache, 0, 9)]
    assert units[3:] == [(0, 0x7FFFFFFF, 0)] * 2 + [(9000, 100, 1)]
    queue.correct_min(cache, 0)
    assert queue.min_index == 0


@given(count=st.integers(1, 60), cut_at=st.integers(0, 6100), in_memory=st.booleans())
def test_what_points_beyond_the_log_is_cut_and_stays_cut(
    count: int, cut_at: int, in_memory: bool
) -> None:
    disk, queue = MemoryDisk(), new_queue()
    fill(queue, disk, count)
    write(queue, disk, 100 if in_memory else 0)
    cache = BlockCache(disk)
    kept = min(count, -(-cut_at // 100))
    assert queue.cut_beyond(disk, cache, cut_at) is (kept < count)
    assert queue.max_index == kept
    assert [entry[1] for entry in queue.entries(cache, 0, 100)] == [unit(n) for n in range(kept)]
    again, _ = reload(disk)
    assert again.max_index == kept
    fill(queue, disk, 3, kept)
    write(queue, disk)
    again, cache = reload(disk)
    assert [entry[1] for entry in again.entries(cache, 0, 100)] == [
        unit(n) for n in range(kept + 3)
    ]


def test_a_hole_that_a_crash_of_the_machine_left_is_cut_with_what_follows() -> None:
    disk, queue = MemoryDisk(), new_queue(4000)
    fill(queue, disk, 150)
    write(queue, disk)
    disk.write_at(f"{DIRECTORY}/{0:020d}", 40 * 20, bytes(20 * 20))
    again, cache = reload(disk, 4000)
    again.cut_beyond(disk, cache, 14_000)
    assert again.max_index <= 40 or again.unit(cache, 40) == (0, 0, 0)
    again.cut_beyond(disk, cache, 3_500)
    assert again.max_index == 35


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=40),
    st.integers(-1, 210),
    st.booleans(),
    st.integers(0, 45),
)
def test_a_search_by_time_finds_the_official_boundary(
    gaps: list[int], timestamp: int, upper: bool, lost: int
) -> None:
    """Against the plain definition: first at or after, or last at or before; nothing before the log's start counts."""
    disk, queue = MemoryDisk(), new_queue()
    times = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    fill(queue, disk, len(times))
    write(queue, disk)
    cache = BlockCache(disk)
    queue.correct_min(cache, lost * 100)
    first = min(lost, len(times))
    found = queue.index_by_time(
        cache, timestamp, upper, lost * 100, lambda offset, size: times[offset // 100]
    )
    live = range(first, len(times))
    if upper:
        wanted = max((n for n in live if times[n] <= timestamp), default=first)
    else:
        wanted = min((n for n in live if times[n] >= timestamp), default=len(times))
    assert found == wanted


@given(count=st.integers(0, 40), lost=st.integers(0, 45))
def test_the_smallest_offset_follows_the_start_of_the_log(count: int, lost: int) -> None:
    disk, queue = MemoryDisk(), new_queue()
    fill(queue, disk, count)
    write(queue, disk)
    queue.correct_min(BlockCache(disk), lost * 100 - 50)
    assert queue.min_index == min(lost, count)


def test_a_file_of_another_size_is_refused_in_words() -> None:
    disk, queue = MemoryDisk(), new_queue(400)
    fill(queue, disk, 5)
    write(queue, disk)
    with pytest.raises(StoreError, match="has 400 bytes, the configured file size is 200"):
        reload(disk)


def test_a_file_that_a_kill_left_short_is_extended() -> None:
    disk, queue = MemoryDisk(), new_queue()
    fill(queue, disk, 10)
    write(queue, disk)
    disk.create(f"{DIRECTORY}/{200:020d}", 0)
    again, _ = reload(disk)
    assert again.max_index == 10
    fill(again, disk, 5, 10)
    write(again, disk)
    assert disk.size(f"{DIRECTORY}/{200:020d}") == 200


def test_cold_units_are_named_instead_of_read() -> None:
    disk, queue = MemoryDisk(), new_queue()
    fill(queue, disk, 25)
    write(queue, disk)
    path = f"{DIRECTORY}/{200:020d}"
    disk.cold.add(path)
    cache = BlockCache(disk)
    with pytest.raises(ColdRead) as caught:
        list(queue.entries(cache, 0, 25, ready_only=True))
    assert caught.value.reads == [(path, 0, 200)]
    assert len(list(queue.entries(cache, 0, 25))) == 25
    # Now they are cached.
    assert len(list(queue.entries(cache, 0, 25, ready_only=True))) == 25


def test_a_missing_file_in_the_middle_ends_what_can_be_read() -> None:
    disk, queue = MemoryDisk(), new_queue()
    fill(queue, disk, 25)
    write(queue, disk)
    disk.remove(f"{DIRECTORY}/{200:020d}")
    assert len(list(queue.entries(BlockCache(disk), 5, 20))) == 5
    assert list(queue.entries(BlockCache(disk), 12, 5)) == []
    assert len(list(queue.entries(BlockCache(disk), 20, 5))) == 5
    assert queue.next_file_index(12) == 20


def test_many_queues_keep_no_mapping_and_few_descriptors(tmp_path: Path) -> None:
    disk = RealDisk(fd_limit=16)
    queues = [ConsumeQueue("T", n, f"{tmp_path}/consumequeue/T/{n}", 6_000_000) for n in range(200)]
    for queue in queues:
        fill(queue, disk, 3)  # type: ignore[arg-type]
        write(queue, disk)  # type: ignore[arg-type]
    cache = BlockCache(disk)
    assert all(list(queue.entries(cache, 1, 1)) == [(1, unit(1), 1)] for queue in queues)
    # Of this disk alone: earlier tests of the same process may still have theirs open.
    assert f"{tmp_path}/" not in Path("/proc/self/maps").read_text()
    links = [
        os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)
    ]
    assert 0 < sum(link.startswith(f"{tmp_path}/") for link in links) <= 16
    used = sum(os.stat(f"{queue.units.directory}/{0:020d}").st_blocks for queue in queues) * 512
    assert used <= 200 * 8192
    disk.close()


def _is_open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")
