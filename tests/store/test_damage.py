"""What does a start make of files that somebody cut, emptied, mixed up or left behind? And does it say so?"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from itertools import pairwise

import pytest
from log_watch import is_warning, logged
from twisted.internet.task import Clock

from tests.store.test_recovery import (
    FILE,
    LOG,
    assert_holds,
    filled,
    kill,
    put,
    queue_file,
    read_queue,
    tail_path,
)
from txrocketmq.errors import StoreError
from txrocketmq.model.message import MessageRecord
from txrocketmq.store.damage import find_record, has_stale_sector, looks_lost
from txrocketmq.store.mapped import MappedFileQueue
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.results import PutMessageResult, PutMessageStatus
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool, ManualPool
from txrocketmq.testing.store import open_memory_store, small_config

INDEX = "/store/index"


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What the log says of level warning and above."""
    with logged(is_warning) as lines:
        yield lines


# --------------------------------------------------------------------------- queues after an orderly stop


def test_a_queue_that_was_emptied_is_derived_again_after_an_orderly_stop(said: list[str]) -> None:
    disk = MemoryDisk()
    store = filled(disk, 60)
    first = read_queue(store, 1)[0].physical_offset
    store.stop()
    disk.write_at(queue_file(1), 0, bytes(2000))
    again = open_memory_store(disk)
    assert_holds(again, 60)
    assert f"queue TopicTest-1 ends before its message 0, which is in the log at {first}" in (
        "\n".join(said)
    )
    assert put(again, 60).queue_offset == 20


def test_a_queue_file_that_was_cut_is_completed(said: list[str]) -> None:
    disk = MemoryDisk()
    filled(disk, 60).stop()
    disk.truncate(queue_file(2), 207)
    assert_holds(open_memory_store(disk), 60)
    assert sum("queue TopicTest-2 ends before its message 10" in line for line in said) == 1


def test_a_deleted_topic_does_not_come_back_with_the_next_orderly_start() -> None:
    disk = MemoryDisk()
    store = filled(disk, 60)
    store.delete_topics(["TopicTest"])
    put_other(store, "Other")
    store.stop()
    assert open_memory_store(disk).queues() == [("Other", 0)]


def put_other(store: MessageStore, topic: str) -> None:
    result = store.put_message(MessageRecord(topic=topic, queue_id=0, body=b"x"))
    assert isinstance(result, PutMessageResult)


def test_a_log_cut_below_a_queues_first_message_leaves_an_empty_queue() -> None:
    disk = MemoryDisk()
    store = filled(disk, 20)
    put_other(store, "Late")
    cut = store.get_message("Late", 0, 0, 1, 1000, None)
    offset = read_queue(store, 1)[-1].physical_offset
    assert cut.message_count == 1
    store.stop()
    disk.write_at(f"/store/consumequeue/Late/0/{0:020d}", 0, bytes(2000))
    path, position = tail_path(disk, offset)
    disk.write_at(path, position, bytes(FILE - position))
    again = open_memory_store(disk)
    assert (again.min_offset("Late", 0), again.max_offset("Late", 0)) == (0, 0)
    result = again.put_message(MessageRecord(topic="Late", queue_id=0, body=b"new"))
    assert isinstance(result, PutMessageResult)
    assert result.queue_offset == 0
    assert_holds(again, 19)


# --------------------------------------------------------------------------- log files


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_log_file_that_was_cut_ends_the_log_at_its_last_whole_message(
    clean: bool, said: list[str]
) -> None:
    disk = MemoryDisk()
    store = filled(disk, 150)
    offset = read_queue(store, 0)[45].physical_offset
    if clean:
        store.stop()
    else:
        kill(disk)
    path, position = tail_path(disk, offset)
    if not clean:
        disk.remove(f"{LOG}/{2 * FILE:020d}")
    disk.truncate(path, position + 100)
    again = open_memory_store(disk)
    assert_holds(again, 135)
    text = "\n".join(said)
    assert f"{path} was cut at {position + 100} bytes" in text
    assert f"the commit log is cut at {offset}, " in text
    assert disk.size(path) == FILE


def test_foreign_files_and_directories_are_left_alone() -> None:
    disk = MemoryDisk()
    filled(disk, 60).stop()
    foreign = (
        f"{LOG}/lost+found.txt",
        "/store/consumequeue/TopicTest/notes/x",
        "/store/consumequeue/TopicTest/0/readme",
        f"{INDEX}/old.tar",
        "/store/whatever",
    )
    for path in foreign:
        disk.create(path, 5)
    store = open_memory_store(disk)
    assert_holds(store, 60)
    store.stop()
    assert all(disk.exists(path) for path in foreign)


# --------------------------------------------------------------------------- index files


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_damaged_index_is_made_again(clean: bool, said: list[str]) -> None:
    disk = MemoryDisk()
    store = filled(disk, 60)
    if clean:
        store.stop()
    else:
        kill(disk)
    for name in disk.listdir(INDEX):
        disk.write_at(f"{INDEX}/{name}", 0, b"\xff" * 3000)
    again = open_memory_store(disk)
    assert_holds(again, 60)
    assert any("contradicts itself: deleted" in line for line in said)


def test_an_index_of_another_store_is_made_again(said: list[str]) -> None:
    disk = MemoryDisk()
    store = filled(disk, 200)
    store.stop()
    foreign = {name: disk.read_file(f"{INDEX}/{name}") for name in disk.listdir(INDEX)}
    disk = MemoryDisk()
    filled(disk, 60).stop()
    for name in disk.listdir(INDEX):
        disk.remove(f"{INDEX}/{name}")
    for name, data in foreign.items():
        disk.replace_file(f"{INDEX}/{name}", data, False)
    again = open_memory_store(disk)
    assert_holds(again, 60)
    put(again, 60)
    assert_holds(again, 61)
    assert any("does not belong to this log" in line for line in said)


def test_an_index_that_is_behind_is_completed() -> None:
    disk = MemoryDisk()
    store = filled(disk, 60)
    store.stop()
    kept = {name: disk.read_file(f"{INDEX}/{name}") for name in disk.listdir(INDEX)}
    store = open_memory_store(disk)
    for number in range(60, 120):
        put(store, number)
    store.stop()
    for name in disk.listdir(INDEX):
        disk.remove(f"{INDEX}/{name}")
    for name, data in kept.items():
        disk.replace_file(f"{INDEX}/{name}", data, False)
    assert_holds(open_memory_store(disk), 120)


# --------------------------------------------------------------------------- a disk that fails


def sync_config() -> dict[str, object]:
    return {"flush_disk_type": "SYNC_FLUSH"}


def test_a_failed_sync_is_noted_for_the_next_start_which_writes_the_log_again() -> None:
    """The kernel may hold pages for clean that the device never got; only what is written again is synced again."""
    disk, clock = MemoryDisk(), Clock()
    clock.advance(1_700_000_000)
    pool = ManualPool()
    store = open_memory_store(disk, clock, pool, small_config(**sync_config()))
    pool.run()
    first = store.put_message(MessageRecord(topic="T", queue_id=0, body=b"one"))
    clock.advance(0)
    pool.run()
    disk.sync_error = OSError(errno.EIO, os.strerror(errno.EIO))
    second = store.put_message(MessageRecord(topic="T", queue_id=0, body=b"two"))
    clock.advance(0)
    pool.work()
    safe = store.flushed_offset()
    assert f"log not on the device from offset {safe}" in disk.read_file("/store/abort").decode()
    kill(disk)
    disk.sync_error = None
    written: list[tuple[str, int]] = []
    write_at = disk.write_at
    disk.write_at = lambda path, offset, data: (
        written.append((path, offset)),
        write_at(path, offset, data),
    )[1]
    again = open_memory_store(disk, clock)
    assert (f"{LOG}/{0:020d}", safe) in written
    assert again.max_offset("T", 0) == 2
    assert disk.read_file("/store/abort") == str(os.getpid()).encode()
    assert first is not second


def test_after_a_failed_sync_sends_are_refused_and_reads_served_until_the_restart() -> None:
    disk, clock = MemoryDisk(), Clock()
    store = open_memory_store(disk, clock, config=small_config(**sync_config()))
    put_synced = store.put_message(MessageRecord(topic="T", queue_id=0, body=b"one"))
    clock.advance(0)
    assert put_synced.result.status is PutMessageStatus.PUT_OK
    disk.sync_error = OSError(errno.EIO, os.strerror(errno.EIO))
    lost = store.put_message(MessageRecord(topic="T", queue_id=0, body=b"two"))
    clock.advance(0)
    assert lost.result.status is PutMessageStatus.FLUSH_DISK_TIMEOUT
    disk.sync_error = None
    clock.advance(100)
    refused = store.put_message(MessageRecord(topic="T", queue_id=0, body=b"three"))
    assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert "EIO" in (store.write_refusal or "")
    found = store.get_message("T", 0, 0, 32, 1000, None)
    assert found.message_count == 1
    store.stop()
    assert disk.exists("/store/abort")
    again = open_memory_store(disk, clock)
    assert again.put_message(MessageRecord(topic="T", queue_id=0, body=b"four")).is_ok


def test_a_full_disk_refuses_sends_serves_reads_and_heals_by_itself() -> None:
    disk, clock = MemoryDisk(), Clock()
    store = open_memory_store(disk, clock)
    number = 0
    disk.capacity_bytes = disk.used_bytes + 8 * 4096
    while True:
        result = store.put_message(
            MessageRecord(topic="T", queue_id=0, body=b"%d" % number + bytes(1000))
        )
        assert isinstance(result, PutMessageResult)
        if not result.is_ok:
            break
        number += 1
    assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    found = store.get_message("T", 0, number - 1, 32, 10_000, None)
    assert found.message_count == 1
    disk.capacity_bytes = 1 << 40
    for _ in range(10):
        clock.advance(1)
    result = store.put_message(MessageRecord(topic="T", queue_id=0, body=b"again"))
    assert isinstance(result, PutMessageResult)
    assert result.is_ok
    assert result.queue_offset == number


def test_an_unreadable_log_fails_the_start_and_changes_nothing() -> None:
    disk = MemoryDisk()
    filled(disk, 10).stop()
    disk.sync_error = OSError(errno.EIO, os.strerror(errno.EIO))
    with pytest.raises(StoreError, match="cannot be opened"):
        open_memory_store(disk)
    disk.sync_error = None
    assert_holds(open_memory_store(disk), 10)


# --------------------------------------------------------------------------- what lost bytes look like


def test_a_sector_without_its_bytes_is_recognized() -> None:
    assert has_stale_sector(bytes(512), 0)
    assert has_stale_sector(b"x" * 600 + bytes(424), 0)
    assert has_stale_sector(bytes(3) + b"x" * 512, 509)
    assert not has_stale_sector(b"x" * 1024, 0)
    assert not has_stale_sector(b"x" * 500 + bytes(12) + b"x" * 512, 0)
    assert not has_stale_sector(b"x" * 100 + bytes(200) + b"x" * 100, 0)


def test_records_are_found_behind_anything_even_over_the_ends_of_pieces_and_files() -> None:
    disk = MemoryDisk()
    store = filled(disk, 150)
    messages = sorted(m.physical_offset for q in range(3) for m in read_queue(store, q))
    store.stop()
    queue = MappedFileQueue(disk, LOG, FILE, ImmediatePool())
    queue.load()
    for before, offset in pairwise(messages):
        found = find_record(queue, before + 1)
        assert found is not None
        assert found[0] == offset
    assert find_record(queue, messages[-1] + 1) is None
    assert looks_lost(queue, messages[-1] + 1000, messages[-1] + 2000)
    assert not looks_lost(queue, messages[0], messages[5])
