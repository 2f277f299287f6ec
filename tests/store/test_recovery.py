"""What is in the store after it was stopped, killed, torn, cut, or robbed of a part?"""

from __future__ import annotations

import errno
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from txrocketmq.codec.record import decode_records
from txrocketmq.codec.storefiles import CHECKPOINT
from txrocketmq.errors import StoreError
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message import MessageExt, MessageRecord
from txrocketmq.model.properties import format_properties
from txrocketmq.store.disk import RealDisk
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.results import GetMessageResult, PutMessageResult
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.store import open_memory_store, small_config

LOG = "/store/commitlog"
FILE = 64 * 1024
QUEUES = 3


def put(store: MessageStore, number: int, size: int = 500) -> PutMessageResult:
    found = {"UNIQ_KEY": f"id{number}", "TAGS": f"tag{number % 2}", "KEYS": f"k{number % 5}"}
    result = store.put_message(
        MessageRecord(
            topic="TopicTest",
            queue_id=number % QUEUES,
            body=b"%d:" % number + b"x" * size,
            properties=format_properties(found),
            tags_code=tags_code(found["TAGS"]),
            keys=found["KEYS"],
            uniq_key=found["UNIQ_KEY"],
        )
    )
    assert isinstance(result, PutMessageResult)
    assert result.is_ok
    return result


def read_queue(store: MessageStore, queue_id: int) -> list[MessageExt]:
    messages, offset = [], store.min_offset("TopicTest", queue_id)
    while offset < store.max_offset("TopicTest", queue_id):
        found = store.get_message("TopicTest", queue_id, offset, 32, 1 << 20, None)
        assert isinstance(found, GetMessageResult)
        assert found.message_count > 0, found
        messages += decode_records(b"".join(found.records))
        offset = found.next_begin_offset
    return messages


def assert_holds(store: MessageStore, count: int, first: int = 0) -> None:
    """The store has exactly the messages ``first`` to ``count - 1``, in queues, by key and in the log."""
    for queue_id in range(QUEUES):
        wanted = [n for n in range(first, count) if n % QUEUES == queue_id]
        messages = read_queue(store, queue_id)
        assert [int(m.body.split(b":")[0]) for m in messages] == wanted
        assert [m.queue_offset for m in messages] == [n // QUEUES for n in wanted]
    for number in {first, (first + count) // 2, count - 1} if count > first else ():
        records = store.query_message("TopicTest", f"id{number}", 5, 0, 2**62).records
        assert [int(m.body.split(b":")[0]) for m in decode_records(b"".join(records))] == [number]


def filled(
    disk: MemoryDisk, count: int, clock: Clock | None = None, *, ticks: int = 0
) -> MessageStore:
    store = open_memory_store(disk, clock or Clock())
    for number in range(count):
        put(store, number)
    if clock is not None:
        for _ in range(ticks):
            clock.advance(1)
    return store


def kill(disk: MemoryDisk) -> None:
    """The process dies: everything written stays in the page cache, nothing in memory does."""
    disk.locked.clear()


def tail_path(disk: MemoryDisk, offset: int) -> tuple[str, int]:
    """The log file of an offset, and the position in it."""
    return f"{LOG}/{offset - offset % FILE:020d}", offset % FILE


# --------------------------------------------------------------------------- stop and kill


@pytest.mark.parametrize("count", [0, 1, 95, 300])
def test_after_an_orderly_stop_hardly_anything_is_read(count: int) -> None:
    disk = MemoryDisk()
    filled(disk, count).stop()
    store = open_memory_store(disk)
    assert store.recovery is not None
    assert store.recovery.clean
    assert store.recovery.records <= 1
    assert store.recovery.damage is None
    assert_holds(store, count)
    put(store, count)
    assert_holds(store, count + 1)


@pytest.mark.parametrize("ticks", [0, 3, 65])
@pytest.mark.parametrize("count", [0, 1, 95, 300])
def test_a_killed_store_has_every_message(count: int, ticks: int) -> None:
    disk, clock = MemoryDisk(), Clock()
    clock.advance(1_700_000_000)
    filled(disk, count, clock, ticks=ticks)
    kill(disk)
    store = open_memory_store(disk)
    assert store.recovery is not None
    assert not store.recovery.clean
    assert store.recovery.records == count
    assert_holds(store, count)
    put(store, count)
    store.stop()
    assert_holds(open_memory_store(disk), count + 1)


def test_a_machine_that_loses_power_keeps_what_was_flushed_and_nothing_else() -> None:
    disk, clock = MemoryDisk(), Clock()
    clock.advance(1_700_000_000)
    store = filled(disk, 200, clock, ticks=65)
    for number in range(200, 230):
        put(store, number)
    disk.crash()
    again = open_memory_store(disk)
    assert_holds(again, 200)
    for number in range(200, 210):
        put(again, number)
    again.stop()
    assert_holds(open_memory_store(disk), 210)


def test_recovery_of_an_old_big_store_begins_where_the_checkpoint_says() -> None:
    disk, clock = MemoryDisk(), Clock()
    clock.advance(1_700_000_000)
    store = open_memory_store(disk, clock, config=small_config(max_index_num=10))
    for number in range(600):
        put(store, number)
        clock.advance(1)
    kill(disk)
    config = small_config(max_index_num=10)
    again = open_memory_store(disk, config=config)
    assert again.recovery is not None
    assert 0 < again.recovery.records < 300
    assert again.recovery.start_offset % FILE == 0
    assert_holds(again, 600)


# --------------------------------------------------------------------------- the log's end


@given(keep=st.floats(0, 1), garbage=st.sampled_from(["zero", "random"]), clean=st.booleans())
def test_a_torn_last_record_is_cut_whatever_is_left_of_it(
    keep: float, garbage: str, clean: bool
) -> None:
    disk = MemoryDisk()
    store = filled(disk, 50)
    last = put(store, 50)
    if clean:
        store.stop()
    kill(disk)
    path, position = tail_path(disk, last.physical_offset)
    # Up to the body's last byte: what follows carries no checksum in this format.
    kept = int(keep * (88 + 503 - 1))
    rest = last.wrote_bytes - kept
    disk.write_at(path, position + kept, bytes(rest) if garbage == "zero" else b"\xa5" * rest)
    again = open_memory_store(disk)
    assert again.recovery is not None
    assert again.recovery.end_offset == last.physical_offset
    assert_holds(again, 50)
    put(again, 50)
    assert_holds(again, 51)
    again.stop()
    assert_holds(open_memory_store(disk), 51)


def test_a_torn_batch_of_records_over_a_file_end_is_cut_at_the_last_whole_one() -> None:
    """The machine lost the second file's pages; the first one ends with its blank record."""
    disk = MemoryDisk()
    store = filled(disk, 120)
    begins = [m.physical_offset for q in range(QUEUES) for m in read_queue(store, q)]
    kill(disk)
    second = f"{LOG}/{FILE:020d}"
    disk.write_at(second, 0, bytes(FILE))
    again = open_memory_store(disk)
    kept = sum(offset < FILE for offset in begins)
    assert again.recovery is not None
    assert again.recovery.end_offset == FILE
    assert_holds(again, kept)
    put(again, kept)
    assert_holds(again, kept + 1)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("number", [3, 40, 80])
def test_damage_in_the_middle_is_no_reason_to_throw_the_rest_away(clean: bool, number: int) -> None:
    """Messages 0 to 149 take two files; 3 lies in the first one."""
    disk = MemoryDisk()
    store = filled(disk, 150)
    offset, following = (read_queue(store, n % 3)[n // 3] for n in (number, number + 1))
    if clean:
        store.stop()
    else:
        kill(disk)
    path, position = tail_path(disk, offset.physical_offset)
    disk.write_at(path, position + 120, b"damage")
    before = {name: disk.read_file(f"{LOG}/{name}") for name in disk.listdir(LOG)}
    with pytest.raises(StoreError) as caught:
        open_memory_store(disk)
    text = str(caught.value)
    assert f"no valid record at offset {offset.physical_offset} " in text
    assert "body crc" in text
    assert f"a valid one behind it at {following.physical_offset}" in text
    assert "`txrocketmq store repair`" in text
    assert {name: disk.read_file(f"{LOG}/{name}") for name in disk.listdir(LOG)} == before
    with pytest.raises(StoreError, match="damaged in the middle"):
        open_memory_store(disk)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("ruin", [b"\xff", b"\x00"], ids=["flipped", "zeroed"])
def test_a_bad_end_alone_is_cut(clean: bool, ruin: bytes) -> None:
    disk = MemoryDisk()
    store = filled(disk, 50)
    offset = read_queue(store, 49 % QUEUES)[-1].physical_offset
    if clean:
        store.stop()
    else:
        kill(disk)
    path, position = tail_path(disk, offset)
    disk.write_at(path, position + 120, ruin * 600)
    again = open_memory_store(disk)
    assert again.recovery is not None
    assert again.recovery.end_offset == offset
    assert again.recovery.damage is not None
    assert again.recovery.cut_bytes > 0
    assert_holds(again, 49)
    put(again, 49)
    again.stop()
    assert_holds(open_memory_store(disk), 50)


def lose_sector(disk: MemoryDisk, offset: int) -> None:
    """Zero the first whole sector behind an offset of the log."""
    path, position = tail_path(disk, offset)
    disk.write_at(path, -(-position // 512) * 512, bytes(512))


def test_a_hole_that_a_power_failure_left_is_no_damage() -> None:
    disk = MemoryDisk()
    store = filled(disk, 50)
    offset = read_queue(store, 1)[3].physical_offset
    kill(disk)
    lose_sector(disk, offset)
    again = open_memory_store(disk)
    assert again.recovery is not None
    assert again.recovery.end_offset == offset
    assert_holds(again, 10)


def test_a_hole_before_what_was_on_the_device_is_damage() -> None:
    """The checkpoint says that later messages were flushed, so this one was too."""
    disk, clock = MemoryDisk(), Clock()
    clock.advance(1_700_000_000)
    store = open_memory_store(disk, clock)
    for number in range(50):
        put(store, number)
        clock.advance(1)
    offset = read_queue(store, 1)[3].physical_offset
    kill(disk)
    lose_sector(disk, offset)
    with pytest.raises(StoreError, match=f"no valid record at offset {offset} "):
        open_memory_store(disk, clock)


def test_a_hole_after_an_orderly_stop_is_damage() -> None:
    disk = MemoryDisk()
    store = filled(disk, 50)
    offset = read_queue(store, 1)[3].physical_offset
    store.stop()
    lose_sector(disk, offset)
    with pytest.raises(StoreError, match=f"no valid record at offset {offset} "):
        open_memory_store(disk)


def test_older_records_behind_the_end_are_leftovers_and_no_damage() -> None:
    """The official broker does not set what it cuts off to zero."""
    disk, clock = MemoryDisk(), Clock()
    clock.advance(1_700_000_000)
    store = filled(disk, 50, clock)
    records = {m.queue_offset: m for m in read_queue(store, 0)}
    leftover = records[8]
    path, position = tail_path(disk, leftover.physical_offset)
    data = disk.read_at(path, position, leftover.store_size)
    kill(disk)
    disk.write_at(*tail_path(disk, records[5].physical_offset), bytes(30_000))
    clock.advance(100)
    store = open_memory_store(disk, clock)
    put(store, 15)
    store.stop()
    disk.write_at(path, position, data)
    again = open_memory_store(disk, clock)
    assert_holds(again, 16)
    assert disk.read_at(path, position, 100) == bytes(100)


def test_what_was_cut_never_comes_back_behind_new_messages() -> None:
    """Old records behind the new end would be read as messages by the next recovery."""
    disk = MemoryDisk()
    store = filled(disk, 50)
    offset = read_queue(store, 0)[5].physical_offset
    kill(disk)
    lose_sector(disk, offset)
    again = open_memory_store(disk)
    put(again, 15)
    kill(disk)
    third = open_memory_store(disk)
    assert_holds(third, 16)


# --------------------------------------------------------------------------- queues


def queue_file(queue_id: int, offset: int = 0) -> str:
    return f"/store/consumequeue/TopicTest/{queue_id}/{offset:020d}"


def test_a_truncated_queue_is_completed_from_the_log_after_a_crash() -> None:
    disk = MemoryDisk()
    filled(disk, 90).stop()
    disk.replace_file("/store/abort", b"", False)
    disk.write_at(queue_file(1), 200, bytes(1800))
    disk.remove(queue_file(2))
    store = open_memory_store(disk)
    assert_holds(store, 90)


def test_missing_queues_are_derived_again_also_after_an_orderly_stop() -> None:
    disk = MemoryDisk()
    filled(disk, 300).stop()
    disk.rmtree("/store/consumequeue")
    store = open_memory_store(disk)
    assert store.recovery is not None
    assert store.recovery.clean
    assert_holds(store, 300)


def test_queues_that_are_ahead_of_the_log_are_cut_to_it() -> None:
    disk = MemoryDisk()
    store = filled(disk, 60)
    cut = read_queue(store, 0)[10].physical_offset
    store.stop()
    path, position = tail_path(disk, cut)
    disk.write_at(path, position, bytes(FILE - position))
    for name in disk.listdir(LOG)[1:]:
        disk.remove(f"{LOG}/{name}")
    again = open_memory_store(disk)
    assert again.recovery is not None
    assert again.recovery.queues_cut == QUEUES
    assert_holds(again, 30)
    put(again, 30)
    again.stop()
    assert_holds(open_memory_store(disk), 31)


def test_garbage_in_a_queue_file_does_not_survive_a_crash() -> None:
    disk = MemoryDisk()
    filled(disk, 60).stop()
    disk.replace_file("/store/abort", b"", False)
    disk.write_at(queue_file(0), 0, b"\x7f" * 400)
    assert_holds(open_memory_store(disk), 60)


def test_when_old_log_files_are_gone_queues_begin_with_what_is_left() -> None:
    disk = MemoryDisk()
    store = filled(disk, 300)
    first_kept = min(
        m.physical_offset
        for q in range(QUEUES)
        for m in read_queue(store, q)
        if m.physical_offset >= FILE
    )
    numbers = {
        m.physical_offset: int(m.body.split(b":")[0])
        for q in range(QUEUES)
        for m in read_queue(store, q)
    }
    store.stop()
    disk.remove(f"{LOG}/{0:020d}")
    again = open_memory_store(disk)
    assert_holds(again, 300, numbers[first_kept])
    again.stop()
    disk.rmtree("/store/consumequeue")
    third = open_memory_store(disk)
    assert_holds(third, 300, numbers[first_kept])
    put(third, 300)
    assert_holds(third, 301, numbers[first_kept])


def test_without_any_log_the_queues_are_deleted() -> None:
    disk = MemoryDisk()
    filled(disk, 30).stop()
    disk.rmtree(LOG)
    store = open_memory_store(disk)
    assert list(store.queues()) == []
    assert put(store, 0).queue_offset == 0


def test_a_topic_that_was_deleted_and_used_again_keeps_its_new_messages_after_a_crash() -> None:
    disk = MemoryDisk()
    store = filled(disk, 30)
    store.delete_topics(["TopicTest"])
    for number in range(6):
        put(store, number)
    kill(disk)
    again = open_memory_store(disk)
    for queue_id in range(QUEUES):
        messages = read_queue(again, queue_id)
        assert [int(m.body.split(b":")[0]) for m in messages] == [queue_id, queue_id + 3]


# --------------------------------------------------------------------------- index, checkpoint, interruptions


@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_index_is_made_again(clean: bool) -> None:
    disk = MemoryDisk()
    store = filled(disk, 300)
    if clean:
        store.stop()
    kill(disk)
    disk.rmtree("/store/index")
    assert_holds(open_memory_store(disk), 300)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("content", [None, b"", b"\x7f" * 4096])
def test_a_missing_or_damaged_checkpoint_costs_time_but_no_message(
    content: bytes | None, clean: bool
) -> None:
    disk = MemoryDisk()
    store = filled(disk, 90)
    if clean:
        store.stop()
    kill(disk)
    disk.remove("/store/checkpoint")
    if content is not None:
        disk.create("/store/checkpoint", len(content))
        disk.write_at("/store/checkpoint", 0, content)
    assert_holds(open_memory_store(disk), 90)


def test_the_checkpoint_never_runs_ahead_of_the_queues() -> None:
    """Units that wait in memory are not counted as written."""
    disk, clock = MemoryDisk(), Clock()
    clock.advance(1_700_000_000)
    store = filled(disk, 30, clock, ticks=65)
    clock.advance(100)
    written_until = int(clock.seconds() * 1000)
    for number in range(30, 40):
        put(store, number)
    for _ in range(12):
        clock.advance(1)
    _, logics, *_ = CHECKPOINT.unpack_from(disk.synced("/store/checkpoint"))
    assert logics < written_until
    kill(disk)
    assert_holds(open_memory_store(disk), 40)


def test_a_recovery_that_is_killed_can_be_done_again() -> None:
    disk = MemoryDisk()
    filled(disk, 200)
    kill(disk)
    disk.rmtree("/store/consumequeue")
    for _ in range(3):
        open_memory_store(disk)
        kill(disk)
    assert_holds(open_memory_store(disk), 200)


def test_a_full_disk_does_not_stop_the_start() -> None:
    disk, clock = MemoryDisk(), Clock()
    filled(disk, 90)
    kill(disk)
    disk.rmtree("/store/consumequeue")
    disk.rmtree("/store/index")
    disk.capacity_bytes = disk.used_bytes + 4096
    store = open_memory_store(disk, clock)
    for queue_id in range(QUEUES):
        assert len(read_queue(store, queue_id)) == 30
    disk.capacity_bytes = 1 << 40
    for _ in range(65):
        clock.advance(1)
    put(store, 90)
    store.stop()
    assert len(read_queue(open_memory_store(disk), 0)) == 31


def test_an_unreadable_disk_fails_the_start_in_words() -> None:
    disk = MemoryDisk()
    filled(disk, 10).stop()

    def broken(path: str, offset: int, size: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error", path)

    disk.read_at = broken  # type: ignore[method-assign]
    with pytest.raises(Exception, match=r"cannot be opened.*Input/output error"):
        open_memory_store(disk)


# --------------------------------------------------------------------------- a real process


KILLED = """
    import os, signal, sys
    from tests.store.test_recovery import put
    from txrocketmq.store.disk import RealDisk
    from txrocketmq.testing.store import open_memory_store, small_config

    store = open_memory_store(RealDisk(), config=small_config(sys.argv[1]))
    for number in range(250):
        put(store, number)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_killed_with_sigkill_loses_nothing(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    tree = Path(__file__).resolve().parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), root], cwd=tree, check=False, timeout=60
    )
    assert done.returncode == -9
    assert (tmp_path / "store" / "abort").exists()
    store = open_memory_store(RealDisk(), config=small_config(root))
    assert_holds(store, 250)
    store.stop()
    assert not (tmp_path / "store" / "abort").exists()
    again = open_memory_store(RealDisk(), config=small_config(root))
    assert_holds(again, 250)
    again.stop()


@pytest.mark.parametrize("damage", ["a torn end", "a queue's file"])
def test_what_a_start_changed_is_on_the_device_before_it_serves(damage: str) -> None:
    """Else what it cut would come back with the next power failure, and lie behind what is written from now on."""
    disk, clock = MemoryDisk(), Clock()
    clock.advance(1_700_000_000)
    store = filled(disk, 1500, clock, ticks=70)
    end = store.max_physical_offset()
    kill(disk)
    if damage == "a torn end":
        path, position = tail_path(disk, end)
        disk.write_at(path, position - 700, b"\xff" * 700)
    else:
        names = disk.listdir("/store/consumequeue/TopicTest/1")
        disk.remove(f"/store/consumequeue/TopicTest/1/{names[2]}")
    disk.sync_all("/store")
    store = open_memory_store(disk, clock)

    def files() -> dict[str, bytes]:
        found = {}
        for queue_id in range(QUEUES):
            directory = f"/store/consumequeue/TopicTest/{queue_id}"
            for name in disk.listdir(directory):
                found[f"{queue_id}/{name}"] = disk.read_file(f"{directory}/{name}")
        for name in disk.listdir(LOG):
            found[name] = disk.read_file(f"{LOG}/{name}")
        return found

    seen = files()
    count = sum(len(read_queue(store, queue_id)) for queue_id in range(QUEUES))
    assert count == 1500 or damage == "a torn end"
    disk.crash()
    assert files() == seen
    assert_holds(open_memory_store(disk, clock), count)
