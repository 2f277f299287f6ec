"""What does a start make of a consume queue whose middle is missing or zeroed, and what does a reader see of it?"""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from tests.store.test_recovery import assert_holds, filled, kill, put
from txrocketmq.codec.storefiles import CQ_UNIT
from txrocketmq.store.results import GetMessageResult
from txrocketmq.store.unitlog import UnitLog
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.store import open_memory_store


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_queue_without_one_of_its_middle_files_is_derived_again(clean: bool) -> None:
    disk, clock = MemoryDisk(), Clock()
    clock.advance(1_700_000_000)
    store = filled(disk, 1500, clock, ticks=70)
    if clean:
        store.stop()
    else:
        kill(disk)
    names = disk.listdir("/store/consumequeue/TopicTest/1")
    assert len(names) == 5
    disk.remove(f"/store/consumequeue/TopicTest/1/{names[2]}")
    store = open_memory_store(disk, clock)
    assert_holds(store, 1500)
    put(store, 1500)
    assert_holds(store, 1501)
    store.stop()
    assert disk.listdir("/store/consumequeue/TopicTest/1")[:5] == names


def test_files_before_a_gap_whose_messages_are_gone_are_deleted() -> None:
    disk = MemoryDisk()
    units = UnitLog("/q", 20, 200)
    for number in (0, 1, 3, 4):
        path = f"/q/{number * 200:020d}"
        disk.create(path, 200)
        disk.write_at(path, 0, CQ_UNIT.pack(1000 * number, 100, 0) * 10)
    units.load(disk, 3000)
    assert (units.first_index, units.end_index, units.is_torn) == (30, 50, False)
    assert disk.listdir("/q") == [f"{number * 200:020d}" for number in (3, 4)]


def test_a_reader_goes_on_behind_units_that_were_zeroed() -> None:
    disk = MemoryDisk()
    filled(disk, 1500).stop()
    names = disk.listdir("/store/consumequeue/TopicTest/1")
    disk.write_at(f"/store/consumequeue/TopicTest/1/{names[2]}", 0, bytes(2000))
    store = open_memory_store(disk)
    offset, found = 0, 0
    for _ in range(100):
        result = store.get_message("TopicTest", 1, offset, 32, 1 << 20, None)
        assert isinstance(result, GetMessageResult)
        found += result.message_count
        if offset == store.max_offset("TopicTest", 1):
            break
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset
    assert found == 400
