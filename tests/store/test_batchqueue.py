"""Does a topic of batches (``queue.type=BatchCQ``) keep each batch as one record, count its messages, and find them again?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from txrocketmq.codec.record import decode_records, encode_batch
from txrocketmq.codec.storefiles import BATCH_UNIT
from txrocketmq.interfaces import IDisk
from txrocketmq.model.flags import (
    INNER_BATCH_FLAG,
    NEED_UNWRAP_FLAG,
    TRANSACTION_PREPARED_TYPE,
)
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import format_properties
from txrocketmq.store.batchqueue import BatchConsumeQueue
from txrocketmq.store.disk import RealDisk
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.results import GetMessageResult, GetMessageStatus, PutMessageResult
from txrocketmq.store.results import PutMessageStatus as Put
from txrocketmq.store.unitlog import BlockCache
from txrocketmq.store.upkeep import StoreUpkeep
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool
from txrocketmq.testing.store import open_memory_store, small_config

NOW = 1_700_000_000.0
BATCHES = {"Batches": {"queue.type": "BatchCQ"}, "Plain": {}}


@pytest.fixture(params=["memory", "real"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[IDisk, str]:
    if request.param == "memory":
        return MemoryDisk(), "/store"
    return RealDisk(), str(tmp_path / "store")


def opened(
    disk: IDisk, root: str = "/store", clock: Clock | None = None, **keys: object
) -> MessageStore:
    if clock is None:
        clock = Clock()
        clock.advance(NOW)
    store = open_memory_store(disk, clock, config=small_config(root, **keys))
    store.use_topic_attributes(BATCHES.get)
    return store


def batch(number: int, count: int = 3, topic: str = "Batches", **found: str) -> MessageRecord:
    items = [(0, b"%d.%d" % (number, n), b"") for n in range(count)]
    found = {"UNIQ_KEY": f"id{number}", "INNER_NUM": str(count), **found}
    return MessageRecord(
        topic=topic,
        queue_id=0,
        body=encode_batch(items),
        sys_flag=INNER_BATCH_FLAG | NEED_UNWRAP_FLAG,
        properties=format_properties(found),
        uniq_key=found["UNIQ_KEY"],
    )


def put(store: MessageStore, record: MessageRecord) -> PutMessageResult:
    result = store.put_message(record)
    assert isinstance(result, PutMessageResult)
    return result


def get(store: MessageStore, offset: int, most: int = 32) -> GetMessageResult:
    found = store.get_message("Batches", 0, offset, most, 1 << 20, None)
    assert isinstance(found, GetMessageResult)
    return found


def all_ids(store: MessageStore) -> list[str | None]:
    """Unique ids of the batches in the queue, in order."""
    ids, offset = [], store.min_offset("Batches", 0)
    while offset < store.max_offset("Batches", 0):
        found = get(store, offset)
        assert found.status is GetMessageStatus.FOUND, found
        ids += [message.uniq_key for message in decode_records(b"".join(found.records))]
        offset = found.next_begin_offset
    return ids


def test_a_batch_is_one_record_that_counts_as_its_messages(place: tuple[IDisk, str]) -> None:
    disk, root = place
    store = opened(disk, root)
    first, second = put(store, batch(1, 3)), put(store, batch(2, 5))
    assert (first.status, first.queue_offset, first.msg_num) == (Put.PUT_OK, 0, 3)
    assert (second.queue_offset, second.msg_num) == (3, 5)
    assert (store.min_offset("Batches", 0), store.max_offset("Batches", 0)) == (0, 8)
    found = get(store, 0)
    assert (found.message_count, found.next_begin_offset, found.queue_offsets) == (8, 8, [0, 3])
    one, two = decode_records(b"".join(found.records))
    assert (one.properties["INNER_NUM"], one.properties["INNER_BASE"]) == ("3", "0")
    assert (two.properties["INNER_NUM"], two.properties["INNER_BASE"]) == ("5", "3")
    assert two.body == batch(2, 5).body
    assert [
        m.uniq_key
        for m in decode_records(store.query_message("Batches", "id2", 5, 0, 2**62).records[0])
    ] == ["id2"]
    store.stop()
    data = disk.read_at(f"{root}/batchconsumequeue/Batches/0/{0:020d}", 0, 92)
    stamp = int(NOW * 1000)
    assert list(BATCH_UNIT.iter_unpack(data)) == [
        (0, first.wrote_bytes, 0, stamp, 0, 3, -1, 0),
        (second.physical_offset, second.wrote_bytes, 0, stamp, 3, 5, -1, 0),
    ]
    assert not disk.exists(f"{root}/consumequeue/Batches")


def test_a_pull_in_the_middle_of_a_batch_gets_the_batch() -> None:
    store = opened(MemoryDisk())
    for number in range(4):
        put(store, batch(number, 3))
    found = get(store, 4, 7)
    assert (found.queue_offsets, found.next_begin_offset) == ([3, 6], 9)
    assert get(store, 12).status is GetMessageStatus.OFFSET_OVERFLOW_ONE
    # The first one comes whatever was asked for.
    assert get(store, 9, 1).queue_offsets == [9]


@pytest.mark.parametrize(
    "record",
    [
        batch(1, topic="Plain"),
        batch(1, INNER_NUM="0"),
        batch(1, INNER_NUM="32768"),
        batch(1, INNER_NUM="three"),
    ],
    ids=["plain-topic", "empty", "too-many", "no-number"],
)
def test_what_is_no_batch_for_such_a_topic_is_refused(record: MessageRecord) -> None:
    store = opened(MemoryDisk())
    assert put(store, record).status is Put.MESSAGE_ILLEGAL
    put(store, batch(0))
    assert put(store, record).status is Put.MESSAGE_ILLEGAL
    assert store.max_offset("Batches", 0) == 3


@pytest.mark.parametrize("kept", ["all", "no-queues", "none"])
def test_single_messages_have_units_of_their_own_between_batches(kept: str) -> None:
    """As official brokers keep them, also where the first one came before any batch."""
    disk = MemoryDisk()
    store = opened(disk)
    single = MessageRecord(topic="Batches", queue_id=0, body=b"single")
    assert [put(store, record).queue_offset for record in (single, batch(0, 3), single)] == [
        0,
        1,
        4,
    ]
    separate = encode_batch([(0, b"x", b""), (0, b"y", b"")])
    result = store.put_batch(MessageRecord(topic="Batches", queue_id=0, body=separate))
    assert isinstance(result, PutMessageResult)
    assert result.queue_offset == 5
    if kept == "all":
        store.stop()
    disk.locked.clear()
    if kept == "none":
        disk.rmtree("/store/batchconsumequeue")
    again = opened(disk)
    assert again.max_offset("Batches", 0) == 7
    found = get(again, 0)
    assert (found.queue_offsets, found.next_begin_offset) == ([0, 1, 4, 5, 6], 7)
    assert disk.listdir("/store/consumequeue") == []
    assert put(again, batch(1, 2)).queue_offset == 7


def test_a_batch_is_no_half_message() -> None:
    prepared = batch(1)
    prepared.sys_flag |= TRANSACTION_PREPARED_TYPE
    assert put(opened(MemoryDisk()), prepared).status is Put.MESSAGE_ILLEGAL


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_batches_are_there_after_a_stop_and_after_a_kill(
    place: tuple[IDisk, str], how: str
) -> None:
    disk, root = place
    store = opened(disk, root)
    # More than a file of units holds.
    for number in range(230):
        put(store, batch(number, 1 + number % 4))
    end = store.max_offset("Batches", 0)
    if how == "stop":
        store.stop()
    elif isinstance(disk, MemoryDisk):
        disk.locked.clear()
    else:
        store._release()
    again = opened(disk, root)
    assert again.max_offset("Batches", 0) == end
    assert all_ids(again) == [f"id{number}" for number in range(230)]
    assert put(again, batch(230, 7)).queue_offset == end
    again.stop()
    third = opened(disk, root)
    assert third.max_offset("Batches", 0) == end + 7
    assert all_ids(third)[-1] == "id230"


def test_with_sync_flush_batches_in_flight_have_offsets_of_their_own() -> None:
    clock = Clock()
    clock.advance(NOW)
    store = opened(MemoryDisk(), clock=clock, flush_disk_type="SYNC_FLUSH")
    results: list[PutMessageResult] = []
    for number in range(3):
        outcome = store.put_message(batch(number, 4))
        outcome.addCallback(results.append)  # type: ignore[union-attr]
    clock.advance(0)
    assert [result.queue_offset for result in results] == [0, 4, 8]
    assert store.max_offset("Batches", 0) == 12


def test_the_offset_of_a_store_time() -> None:
    clock = Clock()
    clock.advance(NOW)
    store = opened(MemoryDisk(), clock=clock)
    start = int(NOW * 1000)
    for number in range(5):
        put(store, batch(number, 3))
        clock.advance(1)
    wanted = {start - 1: 0, start: 0, start + 1: 3, start + 1000: 3, start + 2500: 9}
    for stamp, offset in wanted.items():
        assert store.offset_by_time("Batches", 0, stamp, upper=False) == offset
    # After the last one, the last one; the last of those that are not younger.
    assert store.offset_by_time("Batches", 0, start + 99_000, upper=False) == 12
    assert store.offset_by_time("Batches", 0, start + 2500, upper=True) == 6
    assert store.store_time("Batches", 0, 4) == start + 1000


def test_a_topic_that_was_made_anew_with_another_kind_of_queue() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    put(store, batch(0, 5))
    store.delete_topics(["Batches"])
    store.use_topic_attributes(lambda topic: {})
    for _ in range(3):
        plain = MessageRecord(topic="Batches", queue_id=0, body=b"plain")
        assert put(store, plain).is_ok
    disk.locked.clear()
    again = open_memory_store(disk)
    assert again.max_offset("Batches", 0) == 3
    again.delete_topics(["Batches"])
    put(again, batch(1, 2))
    disk.locked.clear()
    assert open_memory_store(disk).max_offset("Batches", 0) == 2


def test_a_queue_that_was_deleted_begins_anew_when_the_log_is_read_again() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    for number in range(4):
        put(store, batch(number, 5))
    store.delete_topics(["Batches"])
    put(store, batch(9, 3))
    disk.locked.clear()
    again = opened(disk)
    assert (again.min_offset("Batches", 0), again.max_offset("Batches", 0)) == (0, 3)
    assert all_ids(again) == ["id9"]


def filled(disk: MemoryDisk, count: int) -> BatchConsumeQueue:
    queue = BatchConsumeQueue("T", 0, "/queue", 46 * 10)
    for number in range(count):
        queue.put_batch(number * 100, 100, 0, 1000 + number, number * 3, 3, BlockCache(disk))
    return queue


def written(queue: BatchConsumeQueue, disk: MemoryDisk) -> BatchConsumeQueue:
    from txrocketmq.store.unitlog import write_units

    write_units(disk, queue.units.unwritten(), False)
    again = BatchConsumeQueue("T", 0, "/queue", 46 * 10)
    again.load(disk, BlockCache(disk))
    return again


@pytest.mark.parametrize("keep", [0, 1, 10, 25, 30])
def test_units_beyond_the_end_of_the_log_are_cut(keep: int) -> None:
    disk = MemoryDisk()
    queue = written(filled(disk, 30), disk)
    assert queue.cut_beyond(disk, BlockCache(disk), keep * 100) == (keep < 30)
    assert (queue.max_index, queue.units.end_index) == (keep * 3, keep)
    assert queue.max_physical_offset == (keep * 100 if keep else -1)
    assert queue.min_index == (0 if keep else -1)
    again = BatchConsumeQueue("T", 0, "/queue", 46 * 10)
    again.load(disk, BlockCache(disk))
    assert (again.max_index, again.next_index) == (keep * 3, keep * 3)


def test_what_the_log_no_longer_holds_is_forgotten_with_its_files() -> None:
    disk = MemoryDisk()
    queue = written(filled(disk, 30), disk)
    cache = BlockCache(disk)
    queue.correct_min(cache, 1250)
    assert (queue.min_index, queue.max_index) == (39, 90)
    assert [path[-20:] for path in queue.forget_old()] == [f"{0:020d}"]
    assert [entry[0] for entry in queue.entries(cache, 39, 2)] == [39, 42]
    assert queue.index_by_time(cache, 0, False, 1250, lambda at, size: 0) == 39
    queue.correct_min(cache, 3000)
    assert (queue.min_index, queue.max_index) == (90, 90)


def test_the_batch_queue_of_the_official_broker(
    unpack_store: Callable[[str], Path], tmp_path: Path
) -> None:
    """Units that were derived from the official log again are the official units."""
    root = unpack_store("5.4.0")
    path = root / "batchconsumequeue" / "StoreBatchCq" / "0" / f"{0:020d}"
    official = path.read_bytes()
    path.unlink()
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    config = small_config(
        str(root),
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=6000,
        max_hash_slot_num=500,
        max_index_num=1000,
    )
    open_memory_store(RealDisk(), config=config).stop()
    assert path.read_bytes()[:92] == official[:92]
    assert not any(path.read_bytes()[92:])


def test_old_batches_go_with_the_log() -> None:
    config = small_config(
        mapped_file_size_commit_log=8192,
        mapper_file_size_batch_consume_queue=46 * 10,
        file_reserved_time=0,
        delete_commit_log_files_interval=0,
        delete_when="",
    )
    disk, clock, pool = MemoryDisk(), Clock(), ImmediatePool()
    clock.advance(1_700_000_000)
    store = open_memory_store(disk, clock, pool, config)
    store.use_topic_attributes(BATCHES.get)
    for number in range(60):
        put(store, batch(number, 3))
        clock.advance(1)
    upkeep = StoreUpkeep(store, config, disk, pool, clock)
    upkeep.start()
    upkeep.delete_expired_files()
    for _ in range(20):
        clock.advance(1)
    first = store.min_offset("Batches", 0)
    assert 0 < first < 180
    assert first % 3 == 0
    found = get(store, first)
    assert found.status is GetMessageStatus.FOUND
    assert found.queue_offsets[0] == first
    assert get(store, 0).status is GetMessageStatus.OFFSET_TOO_SMALL
    names = disk.listdir("/store/batchconsumequeue/Batches/0")
    assert int(names[0]) > 0
    assert store.max_offset("Batches", 0) == 180
