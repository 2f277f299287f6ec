"""Does what a store keeps in memory stay the same, however much is in it?"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import format_properties
from txrocketmq.store import queuetable
from txrocketmq.store.disk import RealDisk
from txrocketmq.store.message_store import MessageStore
from txrocketmq.testing.store import open_memory_store, small_config

FEW = 2_000
MANY = 8_000
#: What a message takes at least if anything is kept of it.
LEAST_BYTES = 8


@pytest.fixture(autouse=True)
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Bounds that so few messages reach: in earnest 4,096 units of a queue and 16 MiB of all.
    monkeypatch.setattr(queuetable, "MAX_RETAINED_UNITS", 100)
    tracemalloc.start()
    yield
    tracemalloc.stop()


def held_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


class Shop:
    """A store on a real disk, of many files, whose cache of units is full after the first messages."""

    def __init__(self, root: Path) -> None:
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.config = small_config(
            str(root),
            mapped_file_size_commit_log=1 << 20,
            max_index_num=2000,
            max_hash_slot_num=500,
        )
        self.open()

    def open(self) -> None:
        self.store: MessageStore = open_memory_store(RealDisk(), self.clock, config=self.config)
        # In earnest 256 blocks.
        self.store.queue_table.cache._capacity = 2

    def fill(self, count: int) -> None:
        """Send so many messages, each with a key, and let all of it be flushed."""
        for number in range(count):
            key = f"{self.store.max_physical_offset()}"
            self.store.put_message(
                MessageRecord(
                    topic="T",
                    queue_id=number % 4,
                    body=bytes(200),
                    properties=format_properties({"KEYS": key}),
                    keys=key,
                )
            )
            if number % 500 == 0:
                self.clock.advance(1)
        self.clock.pump([1] * 70)

    def read_all(self) -> int:
        """Read every queue from its begin to its end; how many messages there were."""
        count = 0
        for queue_id in range(4):
            offset = 0
            while offset < self.store.max_offset("T", queue_id):
                found: Any = self.store.get_message("T", queue_id, offset, 32, 1 << 20, None)
                if isinstance(found, Deferred):
                    # What left the page cache is read by a pool, here at once.
                    read: list[Any] = []
                    found.addCallback(read.append)
                    (found,) = read
                offset = found.next_begin_offset
                count += found.message_count
        return count

    def stop(self) -> None:
        self.store.stop()


def test_messages_leave_nothing_in_memory(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "store")
    shop.fill(FEW)
    assert shop.read_all() == FEW
    few = held_bytes()
    shop.fill(MANY)
    assert shop.read_all() == FEW + MANY
    assert held_bytes() - few < MANY * LEAST_BYTES
    shop.stop()


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_what_a_start_keeps_does_not_depend_on_what_there_is(tmp_path: Path, end: str) -> None:
    held = []
    for count in (FEW, MANY):
        root = tmp_path / f"{count}"
        shop = Shop(root)
        shop.fill(count)
        shop.stop()
        if end == "killed":
            (root / "abort").touch()
            (root / "checkpoint").unlink()
        del shop.store
        before = held_bytes()
        shop.open()
        assert shop.read_all() == count
        held.append(held_bytes() - before)
        shop.stop()
    assert held[1] - held[0] < (MANY - FEW) * LEAST_BYTES, held
