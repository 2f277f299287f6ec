"""Does a long start say how far it is, and what it has made anew, with offsets?"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from log_watch import logged
from twisted.internet.task import Clock

from tests.store.test_catchup import NOTHING_FIRST, Opened, without_index, without_queues
from tests.store.test_recovery import kill, put
from txrocketmq.store.recover import RecoveryLimits
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.store import open_memory_store, small_config

MIB = 1 << 20
COUNT = 240
CONFIG = small_config(mapped_file_size_commit_log=MIB)


@pytest.fixture
def said() -> Iterator[list[str]]:
    with logged() as lines:
        yield lines


def left(by: str) -> tuple[MemoryDisk, int]:
    """A store of several files, and the end of its log; after a kill the checkpoint says nothing."""
    disk = MemoryDisk()
    store = open_memory_store(disk, config=CONFIG)
    for number in range(COUNT):
        put(store, number, 30_000)
    end = store.max_physical_offset()
    if by == "kill":
        kill(disk)
        disk.remove("/store/checkpoint")
    else:
        store.stop()
    return disk, end


def open_slowly(disk: MemoryDisk, limits: RecoveryLimits) -> Opened:
    """Open a store of which each read takes a second, and let it complete what it began."""
    opened = Opened(disk, Clock(), limits, CONFIG)
    while opened.pool.pending:
        opened.pool.run(1)
        opened.clock.advance(1)
        if opened.outcome == [None]:
            opened.outcome.append("started")
            opened.store.start()
    assert opened.outcome == [None, "started"]
    return opened


def shares(said: list[str], what: str) -> list[int]:
    """How far something was, in percent, whenever it said so."""
    pattern = re.compile(rf"{what}: (\d+) %, (\d+) MB left, \d+ MB/s")
    found = [match for line in said if (match := pattern.fullmatch(line))]
    left = [int(match[2]) for match in found]
    assert left == sorted(left, reverse=True)
    return [int(match[1]) for match in found]


def test_a_recovery_says_every_two_seconds_how_far_it_is(said: list[str]) -> None:
    disk, end = left("kill")
    opened = open_slowly(disk, RecoveryLimits())
    found = shares(said, "recovery")
    assert len(found) >= 2
    assert found == sorted(set(found))
    assert 0 < found[0] < found[-1] <= 100
    assert opened.store.max_physical_offset() == end
    assert any(line.startswith(f"recovered: log 0 to {end}, {COUNT} messages") for line in said)


def test_queues_that_are_derived_beside_say_from_where_to_where(said: list[str]) -> None:
    disk, end = left("stop")
    open_slowly(without_queues(disk), NOTHING_FIRST)
    found = shares(said, "queues are derived")
    assert len(found) >= 2
    assert found == sorted(set(found))
    words = f"queues are derived from the log again, from 0 to {end}, "
    assert any(line.startswith(words) for line in said)


def test_an_index_that_is_made_whole_beside_says_from_where_to_where(said: list[str]) -> None:
    disk, end = left("stop")
    open_slowly(without_index(disk), NOTHING_FIRST)
    found = shares(said, "the index is made whole")
    assert len(found) >= 2
    assert found == sorted(set(found))
    assert f"the index ends at 0, the log at {end}: " in "\n".join(said)
