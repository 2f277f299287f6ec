"""Timed cleaning: when files go, which ones, what stays readable, and when a disk that fills up refuses messages."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import StoreLockedError
from txrocketmq.model.message import MessageRecord
from txrocketmq.store.diskspace import (
    DiskLevel,
    clean_ratio,
    judge,
    judge_share,
    used_ratio,
    warning_ratio,
)
from txrocketmq.store.logdirs import MOST_USED, LogDirectories, split_paths
from txrocketmq.store.queuestarts import UnitFiles, first_living
from txrocketmq.store.results import GetMessageResult, GetMessageStatus
from txrocketmq.store.results import PutMessageStatus as Put
from txrocketmq.store.retention import MANUAL_ROUNDS, is_hour
from txrocketmq.store.upkeep import StoreUpkeep
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool, ManualPool
from txrocketmq.testing.store import open_memory_store, small_config

HOUR_S = 3600
FILE = 11_000
EVENING_S = 1_700_000_000.0


def at_hour(hour: int) -> float:
    """A moment whose local hour is this."""
    moment = EVENING_S
    while time.localtime(moment).tm_hour != hour:
        moment += HOUR_S
    return moment


class Fleet(MemoryDisk):
    """A disk in memory that says how full each of its parts is."""

    def __init__(self) -> None:
        super().__init__()
        self.used: dict[str, int] = {}
        self.refusing: set[str] = set()
        self.totals = 0

    def usage(self, path: str) -> tuple[int, int]:
        """In hundredths, by the longest prefix."""
        known = [prefix for prefix in self.used if path.startswith(prefix)]
        if self.totals:
            return self.totals // 2, self.totals
        used = self.used[max(known, key=len)] if known else 10
        return used << 30, 100 << 30

    def remove(self, path: str) -> None:
        if any(path.startswith(part) for part in self.refusing):
            raise OSError(errno.EACCES, "not here", path)
        super().remove(path)


class Shop:
    """A store with ten messages in a log file and in a queue file, cleaned every ten seconds."""

    def __init__(
        self, disk: Fleet | None = None, clock: Clock | None = None, **keys: object
    ) -> None:
        self.disk = disk or Fleet()
        self.clock = clock or Clock()
        if clock is None:
            self.clock.advance(at_hour(6))
        self.config: MessageStoreConfig = small_config(
            **{
                "mapped_file_size_commit_log": FILE,
                "mapped_file_size_consume_queue": 200,
                "max_hash_slot_num": 20,
                "max_index_num": 30,
                "delete_when": "04",
                "file_reserved_time": 3,
                **keys,
            }
        )
        self.pool: Any = ImmediatePool()
        self.store = open_memory_store(self.disk, self.clock, self.pool, self.config)
        self.upkeep = StoreUpkeep(self.store, self.config, self.disk, self.pool, self.clock)
        self.upkeep.start()

    def put(self, topic: str = "T", size: int = 900, queue_id: int = 0) -> Put:
        result = self.store.put_message(
            MessageRecord(topic=topic, queue_id=queue_id, body=bytes(size), keys="k")
        )
        assert not isinstance(result, Deferred)
        return result.status

    def fill(self, files: int, topic: str = "T") -> None:
        """Messages of so many files, an hour for each; nothing is cleaned meanwhile."""
        hours, self.config.delete_when = self.config.delete_when, ""
        for _ in range(files):
            for _ in range(10):
                assert self.put(topic) is Put.PUT_OK
            self.clock.rightNow += HOUR_S - 2
            # Log and queues are flushed.
            self.clock.advance(1)
            self.clock.advance(1)
        self.config.delete_when = hours

    def wait(self, seconds: float) -> None:
        for _ in range(int(seconds * 10)):
            self.clock.advance(0.1)

    def logs(self, directory: str = "commitlog") -> list[str]:
        return self.disk.listdir(f"/store/{directory}")

    def get(self, offset: int, topic: str = "T") -> GetMessageResult:
        found = self.store.get_message(topic, 0, offset, 32, 1 << 20, None)
        assert isinstance(found, GetMessageResult)
        return found

    def close(self) -> None:
        for stop in (self.upkeep.stop, self.store.stop):
            ended: list[object] = []
            stop().addBoth(ended.append)
            assert ended == [None]


@pytest.fixture
def shop() -> Shop:
    return Shop()


# ----------------------------------------------------------------- when


@pytest.mark.parametrize(
    ("hours", "hour", "expected"),
    [
        ("04", 4, True),
        ("04", 5, False),
        ("4;16", 16, True),
        (" 04 ; 16 ", 4, True),
        ("", 0, False),
        ("noon;3", 3, True),
        ("noon", 12, False),
    ],
)
def test_hours(hours: str, hour: int, expected: bool) -> None:
    assert is_hour(hours, at_hour(hour)) is expected


def test_expired_files_go_at_their_hour_and_not_before(shop: Shop) -> None:
    shop.fill(7)
    before = shop.logs()
    shop.wait(30)
    assert shop.logs() == before
    while time.localtime(shop.clock.seconds()).tm_hour != 4:
        shop.clock.rightNow += HOUR_S
    shop.wait(15)
    # All are older than three hours by now; those behind the one that is written are empty.
    queue = shop.store.commit_log.queue
    assert len(queue.files) == 1
    assert shop.logs()[0] == f"{queue.min_offset:020d}"
    assert queue.min_offset > 5 * FILE
    assert shop.store.max_offset("T", 0) == 70


def test_a_pass_deletes_no_more_than_configured_and_pauses_between_files(shop: Shop) -> None:
    shop.config.delete_file_batch_max = 2
    shop.fill(8)
    shop.config.delete_when = str(time.localtime(shop.clock.seconds()).tm_hour)
    files = len(shop.logs())
    shop.clock.advance(10)
    assert len(shop.logs()) == files - 1
    shop.clock.advance(0.09)
    assert len(shop.logs()) == files - 1
    shop.clock.advance(0.02)
    assert len(shop.logs()) == files - 2
    shop.wait(5)
    assert len(shop.logs()) == files - 2
    shop.wait(6)
    assert len(shop.logs()) == files - 4


def test_a_command_lasts_twenty_passes(shop: Shop) -> None:
    shop.config.delete_file_batch_max = 1
    shop.fill(30)
    counts: list[int] = []
    shop.upkeep.delete_expired_files().addCallback(counts.append)
    assert counts == []
    shop.wait(0.2)
    assert counts == [1]
    shop.wait(10 * (MANUAL_ROUNDS + 5))
    assert shop.store.min_physical_offset() == MANUAL_ROUNDS * FILE


def test_queues_follow_the_log_and_old_offsets_get_the_official_answer(shop: Shop) -> None:
    shop.fill(8)
    shop.fill(1, "Other")
    queues, indexes = shop.logs("consumequeue/T/0"), shop.logs("index")
    shop.upkeep.delete_expired_files()
    shop.wait(2)
    first = shop.store.min_offset("T", 0)
    assert first > 0
    assert shop.get(first).status is GetMessageStatus.FOUND
    too_small = shop.get(0)
    assert too_small.status is GetMessageStatus.OFFSET_TOO_SMALL
    assert too_small.next_begin_offset == first
    unit = shop.upkeep.queue_units("T", 0, first, 1)
    assert unit is not None
    assert unit[0][0] == shop.store.min_physical_offset()
    assert shop.logs("consumequeue/T/0")[0] > queues[0]
    assert shop.logs("index")[0] > indexes[0]
    assert shop.store.min_offset("Other", 0) == 0


def test_a_queue_that_lost_everything_ends_where_it_did(shop: Shop) -> None:
    shop.fill(1, "Gone")
    shop.fill(8)
    shop.upkeep.delete_expired_files()
    shop.wait(2)
    assert shop.store.min_offset("Gone", 0) == shop.store.max_offset("Gone", 0) == 10
    assert shop.get(3, "Gone").status is GetMessageStatus.OFFSET_TOO_SMALL
    assert shop.put("Gone") is Put.PUT_OK
    assert shop.get(10, "Gone").status is GetMessageStatus.FOUND


def test_queue_starts_are_corrected_once_in_a_while_even_if_nothing_went(shop: Shop) -> None:
    shop.fill(8)
    shop.upkeep.delete_expired_files()
    shop.wait(2)
    queue = shop.store.queue_table.find("T", 0)
    assert queue is not None
    first, queue.min_index = queue.min_index, queue.units.first_index
    assert queue.min_index < first
    shop.wait(290)
    assert queue.min_index < first
    shop.wait(20)
    assert queue.min_index == first


def test_a_stop_in_the_middle_of_a_pass_leaves_nothing_under_way(shop: Shop) -> None:
    shop.fill(8)
    counts: list[int] = []
    shop.upkeep.delete_expired_files().addCallback(counts.append)
    assert counts == []
    shop.close()
    assert counts == [0]
    again = Shop(shop.disk, shop.clock)
    assert again.store.max_offset("T", 0) == 80
    assert again.store.min_physical_offset() > 0
    # What the pass left undone is done by the next one.
    again.wait(15)
    assert again.logs("index")[0] >= again.logs("index")[-1] or len(again.logs("index")) < 4


# ----------------------------------------------------------------- readers


def test_a_file_that_is_being_read_stays_until_the_reader_has_it() -> None:
    shop = Shop()
    shop.fill(8)
    path = shop.store.commit_log.queue.files[0].path
    release = shop.store.commit_log.queue.readers.hold([path, path])
    shop.upkeep.delete_expired_files()
    shop.wait(50)
    assert shop.store.min_physical_offset() == 0
    release(None)
    shop.wait(20)
    assert shop.store.min_physical_offset() > 0
    assert not shop.disk.exists(path)


def test_a_reader_that_hangs_does_not_hold_a_file_for_ever() -> None:
    shop = Shop(destroy_maped_file_interval_forcibly=60_000)
    shop.fill(8)
    shop.store.commit_log.queue.readers.hold([shop.store.commit_log.queue.files[0].path])
    shop.upkeep.delete_expired_files()
    shop.wait(55)
    assert shop.store.min_physical_offset() == 0
    shop.wait(20)
    assert shop.store.min_physical_offset() > 0


def test_a_deletion_that_hung_is_tried_again_when_the_hour_is_over() -> None:
    shop = Shop(redelete_hanged_file_interval=30_000)
    shop.fill(8)
    shop.config.delete_when = str(time.localtime(shop.clock.seconds()).tm_hour)
    queue = shop.store.commit_log.queue
    release = queue.readers.hold([queue.files[0].path])
    shop.wait(11)
    shop.config.delete_when = ""
    release(None)
    shop.wait(15)
    assert shop.store.min_physical_offset() == 0
    shop.wait(30)
    assert shop.store.min_physical_offset() == FILE


def test_a_cold_reader_holds_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop()
    shop.fill(8)
    disk, pool = shop.disk, ManualPool()
    queue = shop.store.commit_log.queue
    monkeypatch.setattr(shop.store.reader, "_pool", pool)
    path = queue.files[0].path
    ready = disk.read_ready
    cold = [path]
    monkeypatch.setattr(disk, "read_ready", lambda p, o, s: None if p in cold else ready(p, o, s))
    monkeypatch.setattr("txrocketmq.store.mapped.HOT_BYTES", 0)
    answer = shop.store.get_message("T", 0, 0, 1, 1 << 20, None)
    assert isinstance(answer, Deferred)
    assert queue.readers.need(path)
    shop.upkeep.delete_expired_files()
    shop.wait(5)
    assert disk.exists(path)
    cold.clear()
    results: list[GetMessageResult] = []
    answer.addCallback(results.append)
    pool.run()
    assert results[0].status is GetMessageStatus.FOUND
    assert not queue.readers.need(path)


def test_a_file_that_cannot_be_deleted_leaves_no_gap(shop: Shop) -> None:
    shop.fill(8)
    shop.disk.refusing.add("/store/commitlog")
    shop.upkeep.delete_expired_files()
    shop.wait(30)
    assert shop.store.min_physical_offset() == 0
    assert shop.get(0).status is GetMessageStatus.FOUND
    shop.disk.refusing.clear()
    shop.wait(20)
    assert shop.store.min_physical_offset() > 0


def test_a_deletion_that_did_not_reach_the_device_is_not_followed_by_another(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.fill(8)
    real = shop.disk.sync_directory

    def failing(path: str) -> None:
        if path == "/store/commitlog":
            raise OSError(errno.EIO, "no")
        real(path)

    shop.config.delete_commit_log_files_interval = 0
    monkeypatch.setattr(shop.disk, "sync_directory", failing)
    counts: list[int] = []
    shop.upkeep.delete_expired_files().addCallback(counts.append)
    shop.wait(1)
    assert counts == [0]
    # The file is gone, though, and nobody is sent there.
    assert shop.store.min_physical_offset() == FILE
    assert shop.get(0).status is GetMessageStatus.OFFSET_TOO_SMALL


# ----------------------------------------------------------------- the ladder


def config(**keys: int) -> MessageStoreConfig:
    return MessageStoreConfig(**keys)  # type: ignore[arg-type]


def test_ratios_are_full_hundredths_rounded_up_and_bounded() -> None:
    assert used_ratio(900, 1000) == 0.9
    assert used_ratio(9001, 10_000) == 0.91
    assert used_ratio(0, 10) == 0.0
    assert used_ratio(5, 0) == -1
    assert warning_ratio(config()) == 0.9
    assert warning_ratio(config(disk_space_warning_level_ratio=99)) == 0.9
    assert warning_ratio(config(disk_space_warning_level_ratio=1)) == 0.35
    assert clean_ratio(config()) == 0.85
    assert clean_ratio(config(disk_space_clean_forcibly_ratio=99)) == 0.85
    assert clean_ratio(config(disk_space_clean_forcibly_ratio=1)) == 0.30


@pytest.mark.parametrize(
    ("log", "queues", "level"),
    [
        (0.75, 0.75, DiskLevel.FREE),
        (0.76, 0.10, DiskLevel.RECLAIM),
        (0.10, 0.76, DiskLevel.RECLAIM),
        (0.85, 0.10, DiskLevel.RECLAIM),
        (0.86, 0.10, DiskLevel.CLEAN),
        (0.10, 0.86, DiskLevel.CLEAN),
        (0.90, 0.10, DiskLevel.CLEAN),
        (0.91, 0.10, DiskLevel.FULL),
        (0.10, 0.91, DiskLevel.FULL),
        (-1.0, 0.10, DiskLevel.RECLAIM),
    ],
)
def test_the_ladder(log: float, queues: float, level: DiskLevel) -> None:
    assert judge(config(), ["/log"], "/queues", [log, queues]).level is level


def test_of_several_directories_the_emptiest_counts() -> None:
    state = judge(config(), ["/a", "/b"], "/queues", [0.99, 0.40, 0.10])
    assert (state.level, state.path, state.ratio) == (DiskLevel.FREE, "/b", 0.40)
    assert state.full_paths == {"/a"}


@pytest.mark.parametrize(
    ("own", "level"), [(37, DiskLevel.FREE), (38, DiskLevel.RECLAIM), (41, DiskLevel.CLEAN)]
)
def test_stores_that_share_a_disk_have_each_their_part(own: int, level: DiskLevel) -> None:
    shared = MessageStoreConfig(replicas_per_disk_partition=2)
    state = judge(shared, ["/log"], "/queues", [0.80, 0.80])
    assert judge_share(shared, state, own, 100).level is level
    full = judge(shared, ["/log"], "/queues", [0.91, 0.80])
    assert judge_share(shared, full, own, 100).level is DiskLevel.FULL


def test_a_store_that_shares_a_disk_deletes_by_its_own_size() -> None:
    shop = Shop(replicas_per_disk_partition=2, file_reserved_time=1000)
    shop.fill(8)
    own = shop.upkeep.retention._own_bytes()
    total = own * 2 * 100 // 85
    shop.disk.used.clear()
    shop.disk.totals = total
    shop.wait(15)
    assert shop.store.min_physical_offset() > 0
    assert shop.upkeep.retention._own_bytes() * 2 <= total * 0.8


def test_over_three_quarters_expired_files_go_at_any_hour(shop: Shop) -> None:
    shop.fill(8)
    shop.disk.used["/store"] = 76
    shop.wait(15)
    limit_ms = (shop.clock.seconds() - 3 * HOUR_S) * 1000
    assert shop.store.min_physical_offset() > 0
    assert shop.upkeep.earliest_time() > limit_ms - 2 * HOUR_S * 1000
    assert shop.get(79).status is GetMessageStatus.FOUND
    # Younger ones stay.
    assert shop.store.offset_by_time("T", 0, int(limit_ms), False) == 60


def test_over_85_files_go_whatever_their_age_but_never_the_last(shop: Shop) -> None:
    shop.fill(4)
    shop.config.file_reserved_time = 1000
    last = shop.logs()[-1]
    shop.disk.used["/store"] = 86
    shop.wait(60)
    assert shop.store.min_physical_offset() >= int(last) - FILE
    assert shop.put() is Put.PUT_OK
    assert shop.get(shop.store.max_offset("T", 0) - 1).status is GetMessageStatus.FOUND


def test_forced_cleaning_can_be_switched_off(shop: Shop) -> None:
    shop.fill(4)
    shop.config.file_reserved_time = 1000
    shop.config.clean_file_forcibly_enable = False
    shop.disk.used["/store"] = 86
    shop.wait(60)
    assert shop.store.min_physical_offset() == 0


@pytest.mark.parametrize("part", ["/store/commitlog", "/store/consumequeue"])
def test_a_full_disk_refuses_and_takes_again_within_seconds(shop: Shop, part: str) -> None:
    shop.fill(1)
    shop.disk.used[part] = 91
    shop.wait(2.5)
    assert shop.put() is Put.SERVICE_NOT_AVAILABLE
    reason = shop.store.write_refusal
    assert reason is not None
    assert part in reason
    assert "91%" in reason
    assert "90%" in reason
    assert shop.upkeep.write_refusal() == reason
    assert shop.get(0).status is GetMessageStatus.FOUND
    shop.disk.used[part] = 90
    shop.wait(2.5)
    assert shop.put() is Put.PUT_OK
    assert shop.store.write_refusal is None


def test_the_log_leaves_the_last_twentieth_of_a_disk_alone() -> None:
    shop = Shop()
    shop.disk.used["/store/commitlog"] = int(MOST_USED * 100)
    statuses = {shop.put() for _ in range(30)}
    assert statuses == {Put.PUT_OK, Put.SERVICE_NOT_AVAILABLE}
    assert "No space left" in (shop.store.write_refusal or "")
    shop.disk.used["/store/commitlog"] = 50
    shop.wait(2)
    assert shop.put() is Put.PUT_OK


# ----------------------------------------------------------------- directories


def test_paths_of_a_value() -> None:
    assert split_paths(" /a , /b,,/a ") == ["/a", "/b"]
    assert split_paths(None) == []


def test_files_take_turns_in_the_directories() -> None:
    shop = Shop(store_path_commit_log="/b,/a", read_only_commit_log_store_paths="/old")
    shop.fill(6)
    a, b = shop.disk.listdir("/a"), shop.disk.listdir("/b")
    assert [int(name) // FILE % 2 for name in a] == [0] * len(a)
    assert [int(name) // FILE % 2 for name in b] == [1] * len(b)
    assert len(a) >= 3
    assert len(b) >= 3
    shop.close()
    again = Shop(
        shop.disk,
        shop.clock,
        store_path_commit_log="/b,/a",
        read_only_commit_log_store_paths="/old",
    )
    assert again.store.max_offset("T", 0) == 60
    assert again.get(0).status is GetMessageStatus.FOUND
    paths = [path for path, _, _ in again.upkeep.disk_usage()[0]]
    assert paths == ["/a", "/b"]


def test_a_directory_that_is_nearly_full_gets_no_new_files() -> None:
    shop = Shop(store_path_commit_log="/a,/b", clean_file_forcibly_enable=False)
    shop.config.file_reserved_time = 1000
    shop.disk.used["/a"] = 86
    shop.wait(2.5)
    before = shop.disk.listdir("/a")
    shop.fill(5)
    # One or two successors were made before it was known.
    assert len(shop.disk.listdir("/a")) <= len(before) + 1
    assert len(shop.disk.listdir("/b")) >= 4
    shop.disk.used["/b"] = 86
    shop.wait(2.5)
    shop.fill(4)
    assert len(shop.disk.listdir("/a")) > len(before) + 1


def test_directories_that_are_only_read_get_no_files_and_keep_theirs() -> None:
    shop = Shop(store_path_commit_log="/old")
    shop.fill(4)
    shop.close()
    shop.disk.refusing.add("/old")
    keys: dict[str, object] = {
        "store_path_commit_log": "/new",
        "read_only_commit_log_store_paths": "/old",
    }
    again = Shop(shop.disk, shop.clock, **keys)
    kept = again.disk.listdir("/old")
    again.fill(6)
    assert again.disk.listdir("/old") == kept
    assert again.get(0).status is GetMessageStatus.FOUND
    again.clock.rightNow += 100 * HOUR_S
    again.upkeep.delete_expired_files()
    again.wait(10)
    start = again.store.min_physical_offset()
    assert start > int(kept[-1])
    assert again.disk.listdir("/old") == kept
    again.close()
    # What could not be deleted is no gap.
    third = Shop(shop.disk, shop.clock, **keys)
    assert third.store.min_physical_offset() == start
    assert third.store.max_offset("T", 0) == 100


def test_two_stores_cannot_write_one_log() -> None:
    shop = Shop(store_path_root_dir="/first", store_path_commit_log="/log")
    with pytest.raises(StoreLockedError, match="/log"):
        Shop(shop.disk, shop.clock, store_path_root_dir="/second", store_path_commit_log="/log")
    # The one that was refused holds nothing.
    Shop(shop.disk, shop.clock, store_path_root_dir="/second", store_path_commit_log="/own")
    shop.close()
    Shop(shop.disk, shop.clock, store_path_root_dir="/third", store_path_commit_log="/log")


def test_one_root_with_two_logs_is_refused_as_well() -> None:
    shop = Shop(store_path_commit_log="/log")
    with pytest.raises(StoreLockedError, match="/store/lock"):
        Shop(shop.disk, shop.clock, store_path_commit_log="/own")


def test_the_same_part_of_a_log_in_two_directories_is_refused() -> None:
    disk = MemoryDisk()
    for path in ("/a", "/b"):
        disk.create(f"{path}/{0:020d}", FILE)
    with pytest.raises(Exception, match="same part"):
        LogDirectories(disk, ["/a", "/b"]).files()


# ----------------------------------------------------------------- searching in files


@pytest.mark.parametrize("written", [True, False])
def test_a_search_in_the_files_finds_what_the_queue_finds(written: bool) -> None:
    shop = Shop()
    shop.fill(6)
    table = shop.store.queue_table
    queue = table.find("T", 0)
    assert queue is not None
    if written:
        table.flush()
    units = shop.upkeep.queue_units("T", 0, 0, 60)
    assert units is not None
    for wanted in (0, 1, 17, 30, 59):
        files = UnitFiles(
            queue.units.directory, queue.units.file_bytes, 0, queue.units.written_index
        )
        found = first_living(shop.disk, files, units[wanted][0])
        assert found == min(wanted, queue.units.written_index)


def test_the_lock_time_says_how_long_the_device_is_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = Shop()
    assert shop.upkeep.lock_time_ms() == 0
    pool = ManualPool()
    monkeypatch.setattr(shop.store.commit_log.queue, "_pool", pool)
    busy: Callable[[], bool] = lambda: shop.put() is Put.OS_PAGE_CACHE_BUSY  # noqa: E731
    while not busy():
        pass
    shop.clock.advance(1.5)
    assert busy()
    assert 1400 <= shop.upkeep.lock_time_ms() <= 1600
    pool.run()
    assert shop.upkeep.lock_time_ms() == 0
    assert shop.put() is Put.PUT_OK


def test_a_queue_whose_last_file_is_full_keeps_it_and_its_end(shop: Shop) -> None:
    for _ in range(10):
        shop.put("Gone")
    shop.fill(8)
    shop.upkeep.delete_expired_files()
    shop.wait(2)
    assert shop.store.min_offset("Gone", 0) == 10
    assert shop.logs("consumequeue/Gone/0") == [f"{0:020d}"]
    shop.close()
    again = Shop(shop.disk, shop.clock)
    assert again.store.max_offset("Gone", 0) == again.store.min_offset("Gone", 0) == 10


def test_a_log_file_goes_only_after_the_queues_know_its_messages() -> None:
    shop = Shop(file_reserved_time=0)
    for _ in range(25):
        shop.put()
    shop.clock.advance(1)
    shop.clock.advance(1)
    assert shop.store.flushed_offset() > 2 * FILE
    queue = shop.store.queue_table.find("T", 0)
    assert queue is not None
    # A minute may go by before units of less than two pages are written.
    for _ in range(5):
        shop.put()
    shop.clock.advance(1)
    unwritten = queue.units.end_index - queue.units.written_index
    assert unwritten > 0
    shop.upkeep.delete_expired_files()
    shop.wait(1)
    assert shop.store.min_physical_offset() > 0
    assert queue.units.written_index == 30


def test_nothing_goes_while_queues_cannot_be_written() -> None:
    shop = Shop(file_reserved_time=0)
    for _ in range(25):
        shop.put()
    shop.disk.sync_error = OSError(errno.EIO, "no")
    shop.upkeep.delete_expired_files()
    shop.wait(1)
    assert shop.store.min_physical_offset() == 0
