"""Cleaning on demand: what is deleted, what stays, and what a crash right after it leaves."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock
from zope.interface.verify import verifyObject

from txrocketmq.interfaces import IStoreUpkeep
from txrocketmq.model.message import MessageRecord
from txrocketmq.store.results import GetMessageResult, GetMessageStatus
from txrocketmq.store.upkeep import StoreUpkeep
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool
from txrocketmq.testing.store import open_memory_store, small_config

HOUR_S = 3600


class Shop:
    """A store whose log files hold ten messages each, written one file an hour; ten queue entries a file, too."""

    def __init__(self, disk: MemoryDisk | None = None, clock: Clock | None = None) -> None:
        self.disk = disk or MemoryDisk()
        self.clock = clock or Clock()
        if clock is None:
            self.clock.advance(1_700_000_000)
        self.config = small_config(
            mapped_file_size_commit_log=11_000,
            mapped_file_size_consume_queue=200,
            max_hash_slot_num=20,
            max_index_num=30,
            file_reserved_time=3,
            delete_commit_log_files_interval=0,
            delete_consume_queue_files_interval=0,
            correct_logic_min_offset_sleep_interval=0,
        )
        pool = ImmediatePool()
        self.store = open_memory_store(self.disk, self.clock, pool, self.config)
        self.upkeep = StoreUpkeep(self.store, self.config, self.disk, pool, self.clock)

    def fill(self, hours: int, topic: str = "T") -> None:
        for _ in range(hours):
            for number in range(10):
                record = MessageRecord(topic=topic, queue_id=0, body=bytes(900), keys=f"k{number}")
                self.store.put_message(record)
            self.clock.advance(HOUR_S)

    def delete(self) -> int:
        """Delete what is expired; how many log files went."""
        counts: list[int] = []
        self.upkeep.delete_expired_files().addCallback(counts.append)
        return counts[0]

    def files(self, directory: str) -> list[str]:
        return self.disk.listdir(f"/store/{directory}")

    def get(self, offset: int, topic: str = "T") -> GetMessageResult:
        found = self.store.get_message(topic, 0, offset, 32, 1 << 20, None)
        assert isinstance(found, GetMessageResult)
        return found


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_the_interface_is_kept(shop: Shop) -> None:
    assert verifyObject(IStoreUpkeep, shop.upkeep)


def test_what_is_older_than_its_time_is_deleted_everywhere(shop: Shop) -> None:
    shop.fill(8)
    logs, queues, indexes = (
        shop.files(name) for name in ("commitlog", "consumequeue/T/0", "index")
    )
    assert shop.delete() >= 3
    assert shop.files("commitlog")[0] > logs[0]
    assert shop.files("consumequeue/T/0")[0] > queues[0]
    assert shop.files("index")[0] > indexes[0]
    first = shop.store.min_offset("T", 0)
    assert 0 < first < 80
    assert shop.get(first).status is GetMessageStatus.FOUND
    assert shop.get(first - 1).status is GetMessageStatus.OFFSET_TOO_SMALL
    limit_ms = (1_700_000_000 + 5 * HOUR_S) * 1000
    assert shop.upkeep.earliest_time() <= shop.store.store_time("T", 0, first)
    assert shop.store.store_time("T", 0, first) <= limit_ms
    # Everything that is younger is still there.
    assert shop.store.offset_by_time("T", 0, limit_ms, False) == 50


def test_nothing_is_deleted_before_its_time(shop: Shop) -> None:
    shop.fill(2)
    assert shop.delete() == 0
    assert shop.get(0).status is GetMessageStatus.FOUND


def test_the_youngest_file_stays(shop: Shop) -> None:
    shop.fill(3)
    shop.clock.advance(100 * HOUR_S)
    assert shop.delete() > 0
    assert len(shop.files("commitlog")) >= 1
    assert shop.store.max_offset("T", 0) == 30
    shop.fill(1)
    assert shop.get(30).status is GetMessageStatus.FOUND


def test_a_crash_after_it_leaves_a_store_that_opens_at_the_same_place(shop: Shop) -> None:
    shop.fill(8)
    shop.delete()
    start, first = shop.store.min_physical_offset(), shop.store.min_offset("T", 0)
    shop.disk.sync_all("/store")
    shop.disk.crash()
    again = Shop(shop.disk, shop.clock)
    assert again.store.min_physical_offset() == start
    assert again.store.min_offset("T", 0) == first
    assert again.store.max_offset("T", 0) == 80
    assert again.get(first).status is GetMessageStatus.FOUND


def test_queues_whose_messages_are_all_gone_are_forgotten_those_of_delays_stay(shop: Shop) -> None:
    shop.fill(1, "Gone")
    shop.fill(1, "SCHEDULE_TOPIC_XXXX")
    shop.fill(6)
    shop.delete()
    assert shop.upkeep.clean_expired_queues() == 1
    assert {topic for topic, _ in shop.store.queues()} == {"SCHEDULE_TOPIC_XXXX", "T"}
    assert shop.files("consumequeue/Gone") == []
    assert shop.store.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 10
    # A topic of that name starts anew.
    shop.fill(1, "Gone")
    assert shop.store.max_offset("Gone", 0) == 10
    assert shop.upkeep.clean_expired_queues() == 0


def test_an_empty_store_has_nothing_to_tell(shop: Shop) -> None:
    assert shop.upkeep.earliest_time() == -1
    assert shop.upkeep.queue_units("T", 0, 0, 5) is None
    assert shop.delete() == 0
    assert shop.upkeep.clean_expired_queues() == 0
    assert shop.upkeep.dispatch_behind_bytes() == 0
    assert shop.upkeep.write_refusal() is None


def test_entries_over_the_border_of_files(shop: Shop) -> None:
    shop.fill(3)
    units = shop.upkeep.queue_units("T", 0, 8, 4)
    assert units is not None
    positions = [position for position, _, _ in units]
    assert len(positions) == 4
    assert positions == sorted(positions)
    assert [size for _, size, _ in units] == [units[0][1]] * 4
    assert shop.upkeep.queue_units("T", 0, 29, 4) == shop.upkeep.queue_units("T", 0, 29, 1)
    assert shop.upkeep.queue_units("T", 0, 30, 4) == []
