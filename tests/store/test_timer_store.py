"""Wheel, timer log and checkpoint: official bytes, both disks, and crashes at any operation of the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txrocketmq.codec.storefiles import TIMER_END, TIMER_END_MAGIC, TIMER_UNIT
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import StoreError
from txrocketmq.store.disk import RealDisk
from txrocketmq.store.timer.checkpoint import TimerCheckpoint
from txrocketmq.store.timer.log import TimerLog, make_unit
from txrocketmq.store.timer.timer_store import TimerStore
from txrocketmq.store.timer.wheel import PAGE_SLOTS, Slot, TimerWheel
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool
from txrocketmq.testing.simdisk import SimulatedCrash, SimulatedDisk

NOW_MS = 1_700_000_000_000
FILE_BYTES = 52 * 8 + 16


class Log:
    """As much of a commit log as the timer asks for: messages of 100 bytes, one behind the other."""

    def __init__(self) -> None:
        self.end = 0
        self.flushed = 0
        self.begin = 0

    def max_physical_offset(self) -> int:
        return self.end

    def min_physical_offset(self) -> int:
        return self.begin

    def flushed_offset(self) -> int:
        return self.flushed

    def look_message(self, offset: int) -> None:
        return None


def make_store(disk: Any, log: Log, root: str, **settings: Any) -> TimerStore:
    config = MessageStoreConfig(
        store_path_root_dir=root, mapped_file_size_timer_log=FILE_BYTES, **settings
    )
    pool = ImmediatePool()
    timer = TimerStore(config, disk, pool, pool, log, lambda: NOW_MS, slots=PAGE_SLOTS * 16)  # type: ignore[arg-type]
    timer.load()
    return timer


@pytest.fixture(params=["memory", "real"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, str]]:
    if request.param == "memory":
        yield MemoryDisk(), "/store"
    else:
        disk = RealDisk()
        yield disk, str(tmp_path / "store")


def flush(timer: TimerStore) -> bool:
    done: list[bool] = []
    timer.flush().addCallback(done.append)
    assert done, "not finished"
    return done[0]


def chain_of(timer: TimerStore, time_ms: int) -> list[int]:
    found: list[Any] = []
    failed: list[Any] = []
    timer.read_slot(time_ms).addCallbacks(found.append, failed.append)
    if failed:
        failed[0].raiseException()
    assert found[0].fault is None, found[0].fault
    return list(found[0].offsets)


def test_an_acting_slave_counts_on_from_its_masters_version() -> None:
    timer = make_store(MemoryDisk(), Log(), "/store")
    told = TimerCheckpoint(
        read_ms=NOW_MS - 6000,
        master_offset=4,
        state_version=2,
        version_ms=NOW_MS - 5000,
        version=700,
    )

    def version() -> tuple[int, int, int]:
        found = timer.checkpoint()
        return found.state_version, found.version_ms, found.version

    timer.follow(told)
    timer.queue_offset = 4
    assert flush(timer)
    assert version() == (2, NOW_MS - 5000, 700)
    timer.lead()
    assert version() == (2, NOW_MS - 5000, 700)
    timer.due(NOW_MS)
    # Since it was told, the master may have counted five times, and once more as it was lost.
    assert version() == (2, NOW_MS, 707)
    assert flush(timer)
    timer.due(NOW_MS + 1000)
    assert version() == (2, NOW_MS, 708)
    timer.fall_back()
    assert version() == (2, NOW_MS, 708)
    timer.follow(told)
    assert version() == (2, NOW_MS - 5000, 700)


def test_what_waits_is_found_again_after_a_start(place: tuple[Any, str]) -> None:
    disk, root = place
    log = Log()
    timer = make_store(disk, log, root)
    wanted: dict[int, list[int]] = {}
    for number in range(30):
        slot = NOW_MS + 1000 * (number * 7 % 5 + 1)
        log.end += 100
        timer.add(slot, NOW_MS, number * 100, 100, 0)
        wanted.setdefault(slot, []).append(number * 100)
        if number == 17:
            assert flush(timer)
    for slot, offsets in wanted.items():
        assert chain_of(timer, slot) == offsets
    timer.queue_offset = 30
    log.flushed = log.end
    assert flush(timer)
    assert timer.is_flushed
    again = make_store(disk, log, root)
    assert (again.waiting, again.queue_offset, again.read_ms) == (30, 30, timer.read_ms)
    for slot, offsets in wanted.items():
        assert chain_of(again, slot) == offsets
    assert again.due(NOW_MS + 60_000) == NOW_MS + 1000
    again.done(NOW_MS + 1000)
    assert again.due(NOW_MS + 2000) is None
    assert again.due(NOW_MS + 60_000) == NOW_MS + 2000


def test_official_files_are_read_and_made_anew(unpack_store: Callable[[str], Path]) -> None:
    root = unpack_store("5.4.0")
    data = (root / f"timerlog/{0:020d}").read_bytes()
    units = list(TIMER_UNIT.iter_unpack(data[: 52 * 5]))
    assert len(units) == 5
    log = TimerLog(1024 * 1024)
    wheel = TimerWheel(1000)
    for _, previous, magic, write_ms, delay_ms, offset, size, topic_hash, _ in units:
        slot = wheel.get(write_ms + delay_ms)
        assert previous == (-1 if slot is None else slot.last)
        unit = make_unit(
            previous,
            write_ms,
            write_ms + delay_ms,
            offset,
            size,
            topic_hash,
            is_rolled=bool(magic & 2),
            is_delete=False,
        )
        wheel.add(write_ms + delay_ms, log.append(unit), 1)
    (part,) = log.parts()
    assert part.data == data[: log.end]
    official = (root / "timerwheel").read_bytes()
    for index, page in wheel.take_dirty():
        assert page == official[index * 4096 : index * 4096 + 4096]
    path = root / "config/timercheck"
    saved = path.read_bytes()
    checkpoint = TimerCheckpoint.decode(saved)
    assert checkpoint is not None
    assert checkpoint.official() == saved[:56]
    assert (checkpoint.safe_read_ms, checkpoint.queue_offset) == (None, 5)


def test_the_last_unit_of_a_file_leaves_room_for_the_end_mark() -> None:
    log = TimerLog(FILE_BYTES)
    unit = bytes(52)
    assert [log.append(unit) for _ in range(9)] == [*(n * 52 for n in range(8)), FILE_BYTES]
    first, second = log.parts()
    assert (first.base, second.base) == (0, FILE_BYTES)
    size, zero, magic = TIMER_END.unpack(first.data[-16:])
    assert (size, zero, magic) == (16, 0, TIMER_END_MAGIC)
    log.written_to(FILE_BYTES)
    assert log.tail_bytes == 52


def test_a_unit_that_would_leave_no_room_for_the_mark_goes_to_the_next_file() -> None:
    log = TimerLog(52 * 9)
    assert [log.append(bytes(52)) for _ in range(9)] == [*(n * 52 for n in range(8)), 52 * 9]
    assert TIMER_END.unpack(log.parts()[0].data[-16:])[0] == 52


def test_what_a_failed_flush_should_have_written_is_written_by_a_later_one() -> None:
    disk, log = MemoryDisk(), Log()
    log.end = log.flushed = 10_000
    timer = make_store(disk, log, "/store")
    timer.add(NOW_MS + 1000, NOW_MS, 0, 100, 0)
    disk.sync_error = OSError(5, "broken")
    assert not flush(timer)
    assert not timer.is_flushed
    disk.sync_error = None
    # So many that a start does not look at the first unit any more.
    for number in range(1, 30):
        timer.add(NOW_MS + 600_000, NOW_MS, number * 100, 100, 0)
    assert flush(timer)
    again = make_store(disk, log, "/store")
    assert chain_of(again, NOW_MS + 1000) == [0]
    assert again.waiting == 30


def test_a_slot_of_an_older_round_is_empty() -> None:
    wheel = TimerWheel(1000, slots=PAGE_SLOTS)
    wheel.put(5000, Slot(1, 2, 3))
    round_ms = 2 * PAGE_SLOTS * 1000
    assert wheel.get(5000 + round_ms) is None
    wheel.add(5000 + round_ms, 9, 1)
    assert (wheel.get(5000), wheel.get(5000 + round_ms)) == (None, Slot(9, 9, 1))


def test_pages_of_the_past_leave_the_memory() -> None:
    wheel = TimerWheel(1000)
    for hour in range(24):
        wheel.put(NOW_MS + hour * 3_600_000, Slot(0, 0, 1))
    wheel.forget_before(NOW_MS + 23 * 3_600_000)
    assert wheel.page_count == 24, "not written yet"
    wheel.take_dirty()
    wheel.forget_before(NOW_MS + 23 * 3_600_000)
    assert wheel.page_count == 1


@given(
    times=st.lists(st.integers(1, 400), max_size=30),
    begin=st.integers(0, 400),
    end=st.integers(0, 500),
)
def test_the_next_slot_is_the_next(times: list[int], begin: int, end: int) -> None:
    wheel = TimerWheel(1000, slots=PAGE_SLOTS * 2)
    for time in times:
        wheel.add(time * 1000 + 7, time, 1)
    due = [time for time in times if begin <= time < end]
    found = wheel.next_used(begin * 1000, end * 1000)
    assert found == (min(due) * 1000 if due else None)


@given(data=st.binary(max_size=120))
def test_any_bytes_are_a_checkpoint_or_none(data: bytes) -> None:
    found = TimerCheckpoint.decode(data)
    assert (found is None) == (len(data) < 32)
    if found is not None and len(data) >= 56:
        assert found.official() == data[:56]


def test_a_checkpoint_holds_only_with_the_log_it_was_made_for() -> None:
    made = TimerCheckpoint(
        read_ms=9000,
        queue_offset=9,
        master_offset=9,
        log_end=500,
        safe_read_ms=7000,
        safe_queue_offset=7,
    )
    found = TimerCheckpoint.decode(made.encode().ljust(4096, b"\0"))
    assert found == made
    assert found is not None
    assert found.holding(500) is found
    older = found.holding(499)
    assert (older.read_ms, older.queue_offset, older.master_offset) == (7000, 7, 7)
    changed = bytearray(made.encode())
    changed[7] ^= 1
    official = TimerCheckpoint.decode(bytes(changed))
    assert official is not None
    assert official.holding(0) is official


def test_files_of_another_size_are_refused(place: tuple[Any, str]) -> None:
    disk, root = place
    log = Log()
    log.end = log.flushed = 100
    timer = make_store(disk, log, root)
    timer.add(NOW_MS + 1000, NOW_MS, 0, 100, 0)
    assert flush(timer)
    disk.truncate(f"{root}/timerlog/{0:020d}", FILE_BYTES + 1)
    with pytest.raises(StoreError, match="mappedFileSizeTimerLog"):
        make_store(disk, log, root)
    disk.truncate(f"{root}/timerlog/{0:020d}", FILE_BYTES)
    disk.truncate(f"{root}/timerwheel", 32)
    # The wheel can be made anew.
    assert chain_of(make_store(disk, log, root), NOW_MS + 1000) == [0]


def test_a_chain_that_leads_elsewhere_ends_and_says_so() -> None:
    disk, log = MemoryDisk(), Log()
    log.end = log.flushed = 1000
    timer = make_store(disk, log, "/store")
    timer.add(NOW_MS + 1000, NOW_MS, 0, 100, 0)
    timer.add(NOW_MS + 2000, NOW_MS, 100, 100, 0)
    slot = timer.wheel.get(NOW_MS + 2000)
    assert slot is not None
    timer.wheel.put(NOW_MS + 1000, Slot(slot.first, slot.last, 1))
    found: list[Any] = []
    timer.read_slot(NOW_MS + 1000).addCallback(found.append)
    assert len(found[0]) == 0
    assert "is none of the slot" in found[0].fault


def test_a_slot_whose_last_unit_was_lost_and_replaced_is_mended() -> None:
    disk, log = MemoryDisk(), Log()
    log.end = log.flushed = 1000
    timer = make_store(disk, log, "/store")
    timer.add(NOW_MS + 1000, NOW_MS, 0, 100, 0)
    assert flush(timer)
    saved = disk.read_at("/store/config/timercheck", 0, 4096)
    timer.add(NOW_MS + 2000, NOW_MS, 100, 100, 0)
    # As if another unit of the first slot had been there before a crash, and the wheel had reached the device.
    timer.wheel.put(NOW_MS + 1000, Slot(0, 52, 2))
    assert flush(timer)
    disk.write_at("/store/config/timercheck", 0, saved)
    again = make_store(disk, log, "/store")
    assert chain_of(again, NOW_MS + 1000) == [0]
    assert chain_of(again, NOW_MS + 2000) == [100]
    assert again.waiting == 2


def test_a_place_that_an_older_time_needs_is_not_taken() -> None:
    timer = make_store(MemoryDisk(), Log(), "/store")
    whole_round = timer.wheel.slots * 1000
    assert timer.has_room(timer.read_ms + whole_round - 2000)
    assert not timer.has_room(timer.read_ms + whole_round)


class Trial:
    """Messages taken and slots delivered, the process or the power ended at any operation of the disk."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.disk = SimulatedDisk(self.rng)
        self.disk.makedirs("/store")
        self.log = Log()
        #: Slots of the messages in the timer topic, in its order; each is at 100 times its number in the log.
        self.topic: list[int] = []
        self.delivered: dict[int, int] = {}
        self.now_ms = NOW_MS
        self.timer = make_store(self.disk, self.log, "/store")

    def step(self) -> None:
        timer, rng = self.timer, self.rng
        chance = rng.random()
        if chance < 0.5:
            self.topic.append(self.now_ms // 1000 * 1000 + 1000 * rng.randint(1, 40))
            self.log.end += 100
        elif chance < 0.8:
            self.take()
        elif chance < 0.9:
            self.now_ms += rng.choice([300, 1000, 5000])
            self.deliver()
        else:
            self.log.flushed = self.log.end
        if rng.random() < 0.3:
            timer.flush()
        if self.disk.ended is not None:
            raise SimulatedCrash(self.disk.ended)

    def take(self) -> None:
        timer = self.timer
        while timer.queue_offset < len(self.topic):
            number = timer.queue_offset
            slot = self.topic[number]
            if number * 100 in timer.known:
                timer.known.discard(number * 100)
            elif slot + 1000 <= self.now_ms:
                if not (number < timer.redone_below and slot < timer.start_ms):
                    self.came(number)
            elif timer.has_room(slot):
                write_ms = timer.write_ms(self.now_ms)
                timer.add(max(slot, write_ms), write_ms, number * 100, 100, 0)
            else:
                return
            timer.queue_offset += 1

    def came(self, number: int) -> None:
        self.delivered[number] = self.delivered.get(number, 0) + 1

    def deliver(self) -> None:
        end_ms = self.now_ms // 1000 * 1000
        self.timer.write_ms(self.now_ms)
        while (slot := self.timer.due(end_ms)) is not None:
            for offset in chain_of(self.timer, slot):
                assert self.topic[offset // 100] + 1000 <= self.now_ms, "early"
                self.came(offset // 100)
            self.timer.done(slot)

    def end(self) -> None:
        self.disk.end(self.rng.choice(["power", "kill"])) if self.disk.ended is None else None
        self.disk.restart()
        # What the store does after a start that was no orderly one.
        self.disk.sync_all("/store")
        self.timer = make_store(self.disk, self.log, "/store")

    def play(self) -> None:
        for _ in range(12):
            self.disk.arm(self.rng.randrange(1, 60), self.rng.choice(["power", "kill"]))
            try:
                for _ in range(40):
                    self.step()
            except SimulatedCrash:
                pass
            self.disk.disarm()
            self.end()
        self.take()
        self.now_ms += 60_000
        self.deliver()


@pytest.mark.parametrize("seed", range(40))
def test_no_crash_at_any_operation_loses_a_message(seed: int) -> None:
    trial = Trial(seed)
    trial.play()
    lost = set(range(len(trial.topic))) - set(trial.delivered)
    assert not lost, sorted(lost)


def test_a_slot_is_sorted_out_where_it_is_read() -> None:
    """By the pool: of a million messages for one second that takes longer than others should wait."""
    timer = make_store(MemoryDisk(), Log(), "/store")
    kinds = [(False, False), (False, True), (True, False), (True, True), (False, False)]
    for number, (is_rolled, is_delete) in enumerate(kinds):
        timer.add(
            NOW_MS + 1000,
            NOW_MS,
            number * 100,
            100,
            0,
            is_rolled=is_rolled,
            is_delete=is_delete,
        )
    found: list[Any] = []
    timer.read_slot(NOW_MS + 1000).addCallback(found.append)
    assert (list(found[0].deletes), list(found[0].others)) == ([1], [0, 2, 3, 4])
