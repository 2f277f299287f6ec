"""What is left of a store whose log is cut while it serves: log, queues and index as if the rest had never come."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IReplicas
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import format_properties
from txrocketmq.store import queuetable
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.queuetable import give_way
from txrocketmq.store.results import PutMessageStatus
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool
from txrocketmq.testing.simdisk import SimulatedCrash, SimulatedDisk
from txrocketmq.testing.store import open_memory_store, small_config


@implementer(IReplicas)
class Alone:
    """Nobody has copies."""

    def appended(self) -> None:
        pass

    def has_enough(self) -> bool:
        return True

    def when_replicated(self, end_offset: int) -> None:
        return None


class World:
    """A store on a disk in memory."""

    def __init__(
        self, disk: Any = None, pool: ImmediatePool | None = None, **settings: Any
    ) -> None:
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.disk = disk or MemoryDisk()
        self.config = small_config()
        for name, value in settings.items():
            setattr(self.config, name, value)
        self.store: MessageStore = open_memory_store(self.disk, self.clock, pool, self.config)
        self.store.set_replicas(Alone())
        self.ends: list[int] = []

    def put(self, number: int, queue_id: int | None = None) -> Any:
        self.clock.advance(0.01)
        found = {"UNIQ_KEY": f"id{number}", "KEYS": f"k{number}", "TAGS": "T"}
        result = self.store.put_message(
            MessageRecord(
                topic="TopicTest",
                queue_id=number % 3 if queue_id is None else queue_id,
                body=b"%05d" % number + b"x" * 500,
                properties=format_properties(found),
                uniq_key=found["UNIQ_KEY"],
                keys=found["KEYS"],
            )
        )
        self.ends.append(self.store.max_physical_offset())
        return result

    def fill(self, count: int, first: int = 0) -> None:
        for number in range(first, first + count):
            self.put(number)

    def cut(self, offset: int) -> None:
        done: list[Any] = []
        self.store.truncate_log(offset).addBoth(done.append)
        for _ in range(50):
            self.clock.advance(0.01)
        assert done == [None], done

    def numbers(self) -> list[int]:
        """What consumers find, by number."""
        found = []
        for topic, queue_id in self.store.queues():
            for at in range(self.store.max_offset(topic, queue_id)):
                result: Any = self.store.get_message(topic, queue_id, at, 1, 1 << 20, None)
                found += [int(record.split(b"xxx")[0][-5:]) for record in result.records]
        return sorted(found)

    def by_key(self, number: int) -> int:
        return len(self.store.query_message("TopicTest", f"k{number}", 64, 0, 2**62).records)


@pytest.mark.parametrize("kept", [0, 1, 40, 119, 120])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_log_queues_and_index_go_back_together(kept: int, flush: str) -> None:
    world = World(flush_disk_type=flush)
    world.fill(120)
    world.clock.advance(1)
    end = world.ends[kept - 1] if kept else 0
    world.cut(end)
    assert world.store.max_physical_offset() == end
    assert world.numbers() == list(range(kept))
    assert [world.by_key(number) for number in range(120)] == [1] * kept + [0] * (120 - kept)
    world.fill(40, first=1000)
    world.clock.advance(1)
    assert world.numbers() == [*range(kept), *range(1000, 1040)]
    assert all(world.by_key(number) == 1 for number in range(1000, 1040))


def test_what_is_written_after_a_cut_is_flushed_before_it_is_acknowledged() -> None:
    world = World(flush_disk_type="SYNC_FLUSH")
    world.fill(60)
    world.clock.advance(1)
    world.cut(world.ends[10])
    waiting = world.put(1000)
    assert not waiting.called
    world.clock.advance(0.01)
    assert waiting.called
    assert world.store.flushed_offset() == world.store.max_physical_offset()


def test_who_waits_for_the_device_with_what_is_cut_is_told_that_it_is_not_safe() -> None:
    world = World(flush_disk_type="SYNC_FLUSH")
    world.fill(10)
    world.clock.advance(1)
    kept, doomed = world.put(10), world.put(11)
    world.store.truncate_log(world.ends[10])
    # The log of the new master takes the place.
    world.put(1011)
    for _ in range(50):
        world.clock.advance(0.01)
    assert [kept.result.status, doomed.result.status] == [
        PutMessageStatus.PUT_OK,
        PutMessageStatus.FLUSH_DISK_TIMEOUT,
    ]
    assert world.numbers() == [*range(11), 1011]


@pytest.mark.parametrize("grows", [False, True])
def test_what_a_cut_keeps_and_nobody_synced_yet_is_on_the_device_after_it(grows: bool) -> None:
    disk = SimulatedDisk(Random(1))
    # Nothing is synced at intervals.
    world = World(disk, flush_interval_commit_log=1_000_000)
    world.fill(250)
    kept = world.ends[240]
    assert world.store.flushed_offset() < kept - kept % world.config.mapped_file_size_commit_log
    world.cut(kept)
    assert world.store.flushed_offset() == kept
    world.fill(int(grows), first=1000)
    disk.end("power")
    for call in world.clock.getDelayedCalls():
        call.cancel()
    disk.restart()
    found = World(disk).numbers()
    assert found[:241] == list(range(241))


def test_a_restart_after_a_cut_finds_no_more() -> None:
    world = World()
    world.fill(100)
    world.clock.advance(1)
    world.cut(world.ends[29])
    world.fill(5, first=1000)
    world.store.stop()
    world.clock.advance(1)
    again = World.__new__(World)
    again.clock, again.disk = world.clock, world.disk
    again.store = open_memory_store(world.disk, world.clock, None, world.config)
    assert again.numbers() == [*range(30), *range(1000, 1005)]


def test_a_log_is_not_cut_where_it_is_not() -> None:
    world = World()
    world.fill(10)
    failed: list[Any] = []
    world.store.truncate_log(world.ends[-1] + 1).addErrback(failed.append)
    assert failed[0].check(StoreError)
    assert world.numbers() == list(range(10))


class TurnsPool(ImmediatePool):
    """Does everything at once but what merely gives way, which waits for the test.

    :ivar turns: what waits.
    """

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[Deferred[Any]] = []

    def submit(self, function: Callable[..., object], *args: object) -> Deferred[Any]:
        if function is not give_way or not self.holds:
            return super().submit(function, *args)
        turn: Deferred[Any] = Deferred()
        self.turns.append(turn)
        return turn

    holds = False


def cut_in_turns(monkeypatch: pytest.MonkeyPatch) -> tuple[World, TurnsPool, list[Any]]:
    """A cut that has just cut the first of many queues."""
    monkeypatch.setattr(queuetable, "QUEUES_AT_ONCE", 1)
    pool = TurnsPool()
    world = World(pool=pool)
    for number in range(40):
        world.put(number, queue_id=number % 20)
    world.clock.advance(1)
    pool.holds = True
    done: list[Any] = []
    world.store.truncate_log(world.ends[4]).addBoth(done.append)
    for _ in range(50):
        world.clock.advance(0.01)
    return world, pool, done


def test_a_log_is_cut_once_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world, pool, done = cut_in_turns(monkeypatch)
    failed: list[Any] = []
    world.store.truncate_log(world.ends[2]).addErrback(failed.append)
    assert failed[0].check(StoreError)
    assert world.store.is_cutting
    pool.holds = False
    pool.turns.pop().callback(None)
    assert done == [None]
    assert world.numbers() == list(range(5))


def test_queues_are_cut_a_few_at_a_time_and_nothing_is_read_or_written_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, pool, done = cut_in_turns(monkeypatch)
    table = world.store.queue_table
    flushes: list[int] = []
    monkeypatch.setattr(table, "flush", lambda *_, **__: flushes.append(1))
    for count in range(1, 21):
        cut = [queue for queue in table.queues.values() if queue.max_index <= 1]
        assert len(cut) == count
        with pytest.raises(StoreError):
            world.store.get_message("TopicTest", 0, 0, 1, 1000, None)
        world.clock.advance(2)
        pool.turns.pop().callback(None)
    assert done == [None]
    assert flushes == []
    assert world.numbers() == list(range(5))


def test_a_stop_ends_a_cut_and_the_next_start_finds_queues_and_log_in_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, pool, done = cut_in_turns(monkeypatch)
    world.store.stop()
    world.clock.advance(1)
    assert not world.disk.locked
    pool.turns.pop().callback(None)
    assert done[0].check(StoreError)
    assert not pool.turns
    again = World.__new__(World)
    again.clock, again.disk = world.clock, world.disk
    again.store = open_memory_store(world.disk, world.clock, None, world.config)
    assert again.numbers() == list(range(5))


def test_nothing_is_read_or_appended_while_the_log_is_cut() -> None:
    world = World()
    world.fill(10)
    world.store.is_cutting = True
    with pytest.raises(StoreError):
        world.store.get_message("TopicTest", 0, 0, 1, 1000, None)
    assert not world.store.append_raw(world.ends[-1], b"x" * 100)


# ----------------------------------------------------------------- a disk that fails


class FailingDisk(SimulatedDisk):
    """From one operation on some of them fail."""

    failing = range(0)
    counted = 0

    def step(self) -> None:
        super().step()
        self.counted += 1
        if self.counted - 1 in self.failing:
            raise OSError(errno.EIO, "the disk is not well")


def cut_on_a_failing_disk(first: int, count: int) -> tuple[World, list[Any], int]:
    disk = FailingDisk(Random(first))
    world = World(disk, flush_disk_type="SYNC_FLUSH")
    world.fill(210)
    world.clock.advance(2)
    disk.counted, disk.failing = 0, range(first, first + count)
    done: list[Any] = []
    world.store.truncate_log(world.ends[39]).addBoth(done.append)
    for _ in range(20):
        world.clock.advance(1)
    return world, done, disk.counted


def left_behind(world: World) -> list[str]:
    """Files of the log that have something behind its end."""
    end, directory = world.store.max_physical_offset(), "/store/commitlog"
    return [
        name
        for name in world.disk.listdir(directory)
        if any(world.disk.read_file(f"{directory}/{name}")[max(end - int(name), 0) :])
    ]


@pytest.mark.parametrize("count", [1, 4])
def test_a_cut_goes_on_when_the_disk_is_well_again(count: int) -> None:
    ended = [0, 0]
    for first in range(0, 200, count):
        world, done, steps = cut_on_a_failing_disk(first, count)
        assert done == [None], f"at operation {first}"
        assert not world.store.is_cutting
        if steps <= first:
            break
        assert world.numbers() == list(range(40)), f"at operation {first}"
        assert left_behind(world) == [], f"at operation {first}"
        lost = world.store.commit_log.read_only
        ended[lost is not None] += 1
        world.put(40)
        world.clock.advance(2)
        stays = [] if lost else [40]
        assert world.numbers() == [*range(40), *stays], f"at operation {first}"
        if first % 10:
            continue
        world.store.stop()
        world.clock.advance(2)
        world.disk.failing = range(0)
        world.disk.end("power")
        world.disk.restart()
        assert World(world.disk).numbers()[:40] == list(range(40)), f"at operation {first}"
    # A sync of the log that fails leaves it read-only, whatever else fails does not.
    assert ended[0] > 30 / count
    assert ended[1] > 0


def test_a_stop_ends_a_cut_that_waits_for_the_disk() -> None:
    disk = FailingDisk(Random(1))
    world = World(disk, flush_disk_type="SYNC_FLUSH")
    world.fill(60)
    world.clock.advance(2)
    disk.failing = range(disk.counted + 8, disk.counted + 1000)
    done: list[Any] = []
    world.store.truncate_log(world.ends[9]).addBoth(done.append)
    world.clock.advance(30)
    assert world.store.is_cutting
    assert not done
    world.store.stop()
    assert done[0].check(StoreError)
    disk.failing = range(0)
    world.clock.advance(10)
    assert world.clock.getDelayedCalls() == []


# ----------------------------------------------------------------- confirm offset


def test_nothing_is_shown_beyond_the_confirm_offset() -> None:
    world = World()
    world.fill(3)
    world.store.set_confirm_offset(world.ends[2])
    world.fill(3, first=3)
    assert world.numbers() == [0, 1, 2]
    world.store.set_confirm_offset(world.ends[3])
    assert world.numbers() == [0, 1, 2, 3]
    world.store.set_confirm_offset(world.ends[5])
    assert world.numbers() == [0, 1, 2, 3, 4, 5]
    assert world.store.confirm_offset() == world.ends[5]


def test_a_master_that_becomes_a_slave_finds_what_waited_in_its_log() -> None:
    world = World()
    world.store.set_confirm_offset(0)
    world.fill(4)
    world.config.broker_role = "SLAVE"
    world.store.roles_changed(leads=False)
    assert world.numbers() == []
    world.store.set_confirm_offset(world.ends[1])
    assert world.numbers() == [0, 1]
    world.cut(world.ends[2])
    world.store.set_confirm_offset(world.ends[2])
    assert world.numbers() == [0, 1, 2]
    world.config.broker_role = "SYNC_MASTER"
    world.put(7, queue_id=0)
    world.store.set_confirm_offset(world.ends[-1])
    assert world.numbers() == [0, 1, 2, 7]


# ----------------------------------------------------------------- crashes


@pytest.mark.parametrize("kind", ["kill", "power"])
@pytest.mark.parametrize("kept", [0, 7, 60])
def test_a_cut_that_a_crash_ends_is_begun_again(kind: str, kept: int) -> None:
    count, crashes = 120, 0
    for steps in range(1, 200):
        disk = SimulatedDisk(Random(steps))
        world = World(disk, flush_disk_type="SYNC_FLUSH")
        world.fill(count)
        world.clock.advance(2)
        end = world.ends[kept - 1] if kept else 0
        disk.arm(steps, kind)
        crashed = _cut_until_crash(world, end)
        disk.disarm()
        if not crashed:
            break
        crashes += 1
        world.store._serving = False
        for call in world.clock.getDelayedCalls():
            call.cancel()
        disk.restart()
        again = World(disk)
        found = again.numbers()
        assert found == list(range(len(found))), f"after {steps} steps"
        assert kept <= len(found) <= count, f"after {steps} steps"
        again.cut(end)
        assert again.numbers() == list(range(kept)), f"after {steps} steps"
        again.put(kept)
        assert again.numbers() == list(range(kept + 1)), f"after {steps} steps"
    assert crashes > 5


def _cut_until_crash(world: World, offset: int) -> bool:
    done: list[Any] = []
    try:
        world.store.truncate_log(offset).addBoth(done.append)
        for _ in range(50):
            world.clock.advance(0.01)
    except SimulatedCrash:
        return True
    if not done:
        # The checkpoint was not written: that is tried again, in a life that is over.
        assert world.disk.ended
        return True
    if isinstance(done[0], Failure):
        assert done[0].check(SimulatedCrash), done[0].getTraceback()
        return True
    return False
