"""Does a pull get the status, the messages and the next offset that the official store gives?"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from zope.interface import implementer

from txrocketmq.codec.record import decode_record, decode_records
from txrocketmq.interfaces import IMessageFilter
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import format_properties
from txrocketmq.store.filter import TagsFilter
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.results import GetMessageResult, GetMessageStatus
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool, ManualPool
from txrocketmq.testing.store import open_memory_store, small_config

MIB = 1 << 20
Status = GetMessageStatus


def message(
    number: int = 0, tag: str | None = None, size: int = 100, queue_id: int = 0
) -> MessageRecord:
    body = b"%d:" % number
    return MessageRecord(
        topic="TopicTest",
        queue_id=queue_id,
        body=body + b"x" * (size - len(body)),
        properties=format_properties({"TAGS": tag}),
        tags_code=tags_code(tag),
    )


def numbers(result: GetMessageResult) -> list[int]:
    """Which messages a pull got."""
    return [int(m.body.split(b":")[0]) for m in decode_records(b"".join(result.records))]


def get(
    store: MessageStore,
    offset: int,
    count: int = 32,
    max_bytes: int = MIB,
    message_filter: IMessageFilter | None = None,
    queue_id: int = 0,
) -> GetMessageResult:
    found = store.get_message("TopicTest", queue_id, offset, count, max_bytes, message_filter)
    assert isinstance(found, GetMessageResult)
    assert found.size_bytes == sum(map(len, found.records))
    assert found.message_count == len(found.queue_offsets) == len(numbers(found))
    return found


def filled(count: int, disk: MemoryDisk | None = None, **keys: Any) -> MessageStore:
    store = open_memory_store(disk, config=small_config(**keys))
    for number in range(count):
        store.put_message(message(number))
    return store


# --------------------------------------------------------------------------- status


def test_an_unknown_queue_begins_at_zero() -> None:
    found = get(open_memory_store(), 7)
    assert (found.status, found.next_begin_offset) == (Status.NO_MATCHED_LOGIC_QUEUE, 0)


def test_a_queue_without_messages() -> None:
    store = open_memory_store()
    store.queue_table.create("TopicTest", 0)
    found = get(store, 3)
    assert (found.status, found.next_begin_offset) == (Status.NO_MESSAGE_IN_QUEUE, 0)


def test_one_past_the_end_far_past_it_and_before_the_start() -> None:
    store = filled(10)
    found = get(store, 10)
    assert (found.status, found.next_begin_offset) == (Status.OFFSET_OVERFLOW_ONE, 10)
    assert (found.min_offset, found.max_offset) == (0, 10)
    found = get(store, 11)
    assert (found.status, found.next_begin_offset) == (Status.OFFSET_OVERFLOW_BADLY, 10)
    found = get(store, -1)
    assert (found.status, found.next_begin_offset) == (Status.OFFSET_TOO_SMALL, 0)


def test_a_slave_does_not_correct_offsets_unless_told_to() -> None:
    store = filled(10)
    store._config.broker_role = "SLAVE"
    assert get(store, 50).next_begin_offset == 50
    assert get(store, -1).next_begin_offset == -1
    store._config.offset_check_in_slave = True
    assert get(store, 50).next_begin_offset == 10


def test_messages_that_match_no_tag_move_the_offset_on() -> None:
    store = filled(10)
    found = get(store, 2, message_filter=TagsFilter([tags_code("other")]))
    assert (found.status, found.next_begin_offset) == (Status.NO_MATCHED_MESSAGE, 10)
    assert found.records == ()


def test_messages_whose_log_file_is_gone_are_skipped() -> None:
    disk = MemoryDisk()
    store = filled(600, disk)
    log = store.commit_log
    store.flusher.wake()
    log.queue.flush()
    log.queue.delete_before(log.queue.file_size)
    assert store.min_physical_offset() == log.queue.file_size
    found = get(store, 0)
    assert found.status is Status.FOUND
    first = numbers(found)[0]
    assert first > 300
    assert found.next_begin_offset == first + 32
    only_gone = store.get_message("TopicTest", 0, 0, 32, MIB, TagsFilter([tags_code(None)]))
    assert isinstance(only_gone, GetMessageResult)
    assert numbers(only_gone)[0] == first


def test_a_pull_that_meets_only_deleted_messages_says_so() -> None:
    store = filled(600, max_filter_message_size=200)
    log = store.commit_log
    log.queue.flush()
    log.queue.delete_before(log.queue.file_size)
    found = get(store, 0, count=10)
    assert (found.status, found.next_begin_offset) == (Status.MESSAGE_WAS_REMOVING, 10)


def test_units_that_cannot_be_read_send_the_reader_to_the_next_file() -> None:
    disk = MemoryDisk()
    store = filled(250, disk)
    store.stop()
    again = open_memory_store(disk)
    # At a start it would be derived again.
    disk.remove(f"/store/consumequeue/TopicTest/0/{2000:020d}")
    again.queue_table.cache.forget("/store/consumequeue/TopicTest/0")
    found = get(again, 120)
    assert (found.status, found.next_begin_offset) == (Status.OFFSET_FOUND_NULL, 200)
    assert numbers(get(again, 200)) == list(range(200, 232))


# --------------------------------------------------------------------------- limits


def test_the_number_of_messages_is_bound_by_caller_and_memory_limit() -> None:
    store = filled(100)
    assert numbers(get(store, 5, count=7)) == list(range(5, 12))
    found = get(store, 5, count=64)
    assert (numbers(found), found.next_begin_offset) == (list(range(5, 37)), 37)
    assert numbers(get(store, 5, count=0)) == [5]


def test_bytes_are_bound_by_caller_and_memory_limit_but_one_message_always_comes() -> None:
    store = open_memory_store(config=small_config(max_transfer_bytes_on_message_in_memory=5000))
    size = 0
    for number in range(40):
        result = store.put_message(message(number, size=1000 - 100))
        size = result.wrote_bytes  # type: ignore[union-attr]
    assert len(numbers(get(store, 0))) == 5000 // size
    assert len(numbers(get(store, 0, max_bytes=3 * size))) == 3
    assert len(numbers(get(store, 0, max_bytes=3 * size - 1))) == 2
    assert len(numbers(get(store, 0, max_bytes=1))) == 1


def test_what_counts_as_being_on_disk_comes_in_smaller_answers() -> None:
    config = small_config()
    store = open_memory_store(config=config)
    store.reader._memory_bytes = 0
    for number in range(40):
        store.put_message(message(number))
    found = get(store, 0)
    assert numbers(found) == list(range(8))
    assert found.suggest_pull_from_slave
    assert not store.is_in_memory("TopicTest", 0, 0)
    store.reader._memory_bytes = 100_000_000
    found = get(store, 0)
    assert len(numbers(found)) == 32
    assert not found.suggest_pull_from_slave
    assert store.is_in_memory("TopicTest", 0, 0)
    assert not store.is_in_memory("TopicTest", 0, 40)


def test_a_filtered_pull_looks_at_a_bounded_number_of_entries() -> None:
    store = filled(2000, max_filter_message_size=16_000)
    found = get(store, 100, message_filter=TagsFilter([1]))
    assert (found.status, found.next_begin_offset) == (Status.NO_MATCHED_MESSAGE, 900)


# --------------------------------------------------------------------------- filters


@given(
    tags=st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=120),
    wanted=st.sets(st.sampled_from(["a", "b", "c"]), min_size=1),
    count=st.integers(1, 40),
    queues=st.integers(1, 3),
)
def test_pulls_in_a_row_give_each_wanted_message_once_in_order(
    tags: list[str | None], wanted: set[str], count: int, queues: int
) -> None:
    store = open_memory_store()
    for number, tag in enumerate(tags):
        store.put_message(message(number, tag, size=900, queue_id=number % queues))
    only = TagsFilter([tags_code(tag) for tag in wanted])
    for queue_id in range(queues):
        mine = [n for n in range(len(tags)) if n % queues == queue_id]
        received, offset = [], 0
        while offset < store.max_offset("TopicTest", queue_id):
            found = get(store, offset, count, message_filter=only, queue_id=queue_id)
            assert offset < found.next_begin_offset <= len(mine)
            assert all(offset <= index < found.next_begin_offset for index in found.queue_offsets)
            received += numbers(found)
            offset = found.next_begin_offset
        assert received == [n for n in mine if tags[n] in wanted]


@implementer(IMessageFilter)
class OddBodies:
    """Looks into the record."""

    needs_record = True

    def matches_tags_code(self, tags_code: int) -> bool:
        return True

    def matches_record(self, record: bytes) -> bool:
        return int(decode_record(record)[0].body.split(b":")[0]) % 2 == 1


def test_a_filter_may_look_into_the_record() -> None:
    found = get(filled(20), 0, count=5, message_filter=OddBodies())
    assert numbers(found) == [1, 3, 5, 7, 9]
    assert (found.filtered_count, found.next_begin_offset) == (5, 10)


def test_a_slow_filter_ends_a_read_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]

    class Slow(OddBodies):
        """Takes a tenth of a millisecond for each message, and wants few."""

        def matches_record(self, record: bytes) -> bool:
            now_s[0] += 0.0001
            return int(decode_record(record)[0].body.split(b":")[0]) == 1990

    monkeypatch.setattr("txrocketmq.store.reader.monotonic", lambda: now_s[0])
    store = filled(2000)
    offset, received = 0, []
    while offset < 2000:
        before_s = now_s[0]
        found = get(store, offset, count=20_000, message_filter=Slow())
        assert now_s[0] - before_s <= 0.03
        assert found.next_begin_offset > offset
        received += numbers(found)
        if not received:
            assert found.status is Status.NO_MATCHED_MESSAGE
        offset = found.next_begin_offset
    assert received == [1990]


def test_only_the_low_bits_of_a_tags_code_count() -> None:
    only = TagsFilter([tags_code("TagA"), -5])
    assert only.matches_tags_code(tags_code("TagA"))
    assert only.matches_tags_code((1 << 40) + tags_code("TagA"))
    assert only.matches_tags_code((7 << 32) - 5)
    assert not only.matches_tags_code(5)


# --------------------------------------------------------------------------- cold reads


def reopened_with_pool(count: int) -> tuple[MessageStore, MemoryDisk, ManualPool]:
    """A store whose older files are read through the disk, and whose read pool waits for the test."""
    disk = MemoryDisk()
    filled(count, disk).stop()
    immediate, pool = ImmediatePool(), ManualPool()
    store = MessageStore(
        small_config(), disk, Clock(), pool=immediate, flush_pool=immediate, read_pool=pool
    )
    store.load()
    pool.run()
    store.start()
    return store, disk, pool


@pytest.mark.parametrize("cold", ["consumequeue/TopicTest/0", "commitlog", "both"])
def test_a_cold_pull_is_answered_when_the_pool_has_read(cold: str) -> None:
    store, disk, pool = reopened_with_pool(1500)
    paths = [
        f"/store/{directory}/{name}"
        for directory in ("consumequeue/TopicTest/0", "commitlog")
        for name in disk.listdir(f"/store/{directory}")[:1]
        if cold in (directory, "both")
    ]
    disk.cold.update(paths)
    found = store.get_message("TopicTest", 0, 3, 32, MIB, None)
    assert isinstance(found, Deferred)
    results: list[GetMessageResult] = []
    found.addCallback(results.append)
    assert results == []
    while pool.pending and not results:
        # What the pool has read is in memory.
        disk.cold.clear()
        pool.run(1)
    assert numbers(results[0]) == list(range(3, 35))


def test_bytes_that_stay_cold_are_read_all_the_same() -> None:
    store, disk, pool = reopened_with_pool(600)
    disk.cold.add(f"/store/commitlog/{0:020d}")
    results: list[GetMessageResult] = []
    found = store.get_message("TopicTest", 0, 3, 32, MIB, None)
    assert isinstance(found, Deferred)
    found.addCallback(results.append)
    assert pool.run() == 3
    assert numbers(results[0]) == list(range(3, 35))


# --------------------------------------------------------------------------- single messages, keys, times


def test_only_a_records_first_byte_finds_a_message() -> None:
    store = filled(20)
    result = store.put_message(message(99))
    offset = result.physical_offset  # type: ignore[union-attr]
    found = store.look_message(offset)
    assert found is not None
    assert found.queue_offset == 20
    record = store.look_message_bytes(offset, 0)
    assert record is not None
    assert store.look_message_bytes(offset, len(record)) == record
    assert store.look_message_bytes(offset, len(record) - 1) is None
    for wrong in (offset + 1, offset - 3, offset + len(record), 1 << 40, -5):
        assert store.look_message(wrong) is None


def test_records_of_other_keys_with_the_same_hash_are_left_out() -> None:
    store = open_memory_store()
    assert tags_code("AaAa") == tags_code("BBBB")
    for key in ("AaAa", "BBBB", "AaAa BBBB"):
        store.put_message(
            MessageRecord(
                topic="TopicTest",
                queue_id=0,
                body=key.encode(),
                properties=format_properties({"KEYS": key}),
                keys=key,
            )
        )
    found = store.query_message("TopicTest", "AaAa", 10, 0, 2**62)
    assert [decode_record(record)[0].body for record in found.records] == [b"AaAa", b"AaAa BBBB"]


def test_tags_are_found_by_their_own_kind_of_key() -> None:
    store = open_memory_store()
    store.put_message(message(1, "red"))
    store.put_message(message(2, "blue"))
    found = store.query_message("TopicTest", "red", 10, 0, 2**62, "T")
    assert [decode_record(record)[0].tags for record in found.records] == ["red"]
    assert store.query_message("TopicTest", "red", 10, 0, 2**62).records == ()


def test_a_query_gives_what_the_log_still_holds() -> None:
    store = open_memory_store()
    for number in range(700):
        record = message(number, size=800)
        record.keys = "k"
        record.properties = format_properties({"KEYS": "k"})
        store.put_message(record)
    log = store.commit_log
    log.queue.flush()
    log.queue.delete_before(log.max_offset)
    live = [n for n in range(700) if store.store_time("TopicTest", 0, n) >= 0]
    assert 0 < len(live) < 64
    found = store.query_message("TopicTest", "k", 64, 0, 2**62)
    bodies = [decode_record(record)[0].body for record in found.records]
    assert [int(body.split(b":")[0]) for body in bodies] == live
    assert found.index_last_update_offset > 0


def test_times_of_entries() -> None:
    clock = Clock()
    clock.advance(1000)
    store = open_memory_store(clock=clock)
    assert store.earliest_store_time("TopicTest", 0) == -1
    for number in range(5):
        store.put_message(message(number))
        clock.advance(1)
    assert store.earliest_store_time("TopicTest", 0) == 1_000_000
    assert store.store_time("TopicTest", 0, 3) == 1_003_000
    assert store.store_time("TopicTest", 0, 5) == -1
    assert store.store_time("TopicTest", 1, 0) == -1
    assert store.offset_by_time("TopicTest", 0, 1_002_000, False) == 2
    assert store.offset_by_time("TopicTest", 0, 1_002_001, False) == 3
    assert store.offset_by_time("TopicTest", 0, 1_002_999, True) == 2
    assert store.offset_by_time("TopicTest", 0, 2_000_000, False) == 5
    assert store.offset_by_time("TopicTest", 0, 2_000_000, True) == 4
    assert store.offset_by_time("TopicTest", 0, 5, True) == 0
    assert store.offset_by_time("Unknown", 0, 5, False) == 0
