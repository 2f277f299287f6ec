"""Does the store as a whole accept, refuse, show and keep messages as the official one does?"""

from __future__ import annotations

import errno
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from zope.interface.verify import verifyObject

from txrocketmq.codec.record import decode_record, decode_records, encode_batch
from txrocketmq.codec.storefiles import CHECKPOINT, CQ_UNIT
from txrocketmq.errors import StoreError, StoreLockedError
from txrocketmq.interfaces import IMessageFilter, IMessageStore
from txrocketmq.model.flags import (
    INNER_BATCH_FLAG,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message import MessageExt, MessageRecord
from txrocketmq.model.properties import format_properties
from txrocketmq.store.filter import TagsFilter
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.reput import parse_delay_levels
from txrocketmq.store.results import GetMessageResult, PutMessageResult, PutMessageStatus
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool, ManualPool
from txrocketmq.testing.store import open_memory_store, small_config

NOW = 1_700_000_000.0


def message(
    body: bytes = b"hello",
    topic: str = "TopicTest",
    queue_id: int = 0,
    properties: dict[str, str] | None = None,
    **fields: Any,
) -> MessageRecord:
    found = properties or {}
    return MessageRecord(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties=format_properties(found),
        tags_code=tags_code(found.get("TAGS")),
        keys=found.get("KEYS"),
        uniq_key=found.get("UNIQ_KEY"),
        **fields,
    )


def put(store: MessageStore, record: MessageRecord) -> PutMessageResult:
    result = store.put_message(record)
    assert isinstance(result, PutMessageResult)
    return result


def get(
    store: MessageStore, topic: str = "TopicTest", queue_id: int = 0, offset: int = 0
) -> list[MessageExt]:
    found = store.get_message(topic, queue_id, offset, 32, 1 << 20, None)
    assert isinstance(found, GetMessageResult)
    return decode_records(b"".join(found.records))


def clock_at_now() -> Clock:
    clock = Clock()
    clock.advance(NOW)
    return clock


# --------------------------------------------------------------------------- the interface


def test_the_store_and_its_filter_keep_their_interfaces() -> None:
    assert verifyObject(IMessageStore, open_memory_store())
    assert verifyObject(IMessageFilter, TagsFilter([1]))


# --------------------------------------------------------------------------- put


def test_a_message_is_answered_with_its_place_and_can_be_read_back() -> None:
    store = open_memory_store(clock=clock_at_now())
    first = put(store, message(b"one", properties={"TAGS": "a", "KEYS": "k1 k2"}, flag=7))
    second = put(store, message(b"two"))
    assert (first.status, first.physical_offset, first.queue_offset) == (
        PutMessageStatus.PUT_OK,
        0,
        0,
    )
    assert (second.physical_offset, second.queue_offset) == (first.wrote_bytes, 1)
    assert first.store_timestamp_ms == int(NOW * 1000)
    messages = get(store)
    assert [m.body for m in messages] == [b"one", b"two"]
    assert (messages[0].flag, messages[0].tags, messages[0].keys) == (7, "a", "k1 k2")
    assert store.look_message(second.physical_offset) == messages[1]
    assert store.max_offset("TopicTest", 0) == 2
    assert store.max_offset("TopicTest", 1) == 0


def test_each_queue_counts_for_itself() -> None:
    store = open_memory_store()
    for number in range(12):
        assert put(store, message(queue_id=number % 3)).queue_offset == number // 3
    assert sorted(store.queues()) == [("TopicTest", 0), ("TopicTest", 1), ("TopicTest", 2)]


@pytest.mark.parametrize(
    ("record", "status"),
    [
        (message(topic="t" * 127), PutMessageStatus.PUT_OK),
        (message(topic="t" * 128), PutMessageStatus.MESSAGE_ILLEGAL),
        (message(topic="主" * 42), PutMessageStatus.PUT_OK),
        (message(topic="主" * 43), PutMessageStatus.MESSAGE_ILLEGAL),
        (message(topic="%RETRY%" + "g" * 248), PutMessageStatus.PUT_OK),
        (message(topic="%RETRY%" + "g" * 249), PutMessageStatus.MESSAGE_ILLEGAL),
        (message(b"x" * 8192), PutMessageStatus.PUT_OK),
        (message(b"x" * 8193), PutMessageStatus.MESSAGE_ILLEGAL),
        (message(properties={"a": "v" * 32764}), PutMessageStatus.PUT_OK),
        (message(properties={"a": "v" * 32765}), PutMessageStatus.PROPERTIES_SIZE_EXCEEDED),
        (message(sys_flag=INNER_BATCH_FLAG), PutMessageStatus.MESSAGE_ILLEGAL),
    ],
    ids=str,
)
def test_what_does_not_fit_the_format_is_refused_and_leaves_no_trace(
    record: MessageRecord, status: PutMessageStatus
) -> None:
    store = open_memory_store(config=small_config(max_message_size=8192))
    result = put(store, record)
    assert result.status is status
    if status is PutMessageStatus.PUT_OK:
        assert [m.topic for m in get(store, record.topic)] == [record.topic]
    else:
        assert not result.is_ok
        assert store.queues() == []
        assert store.max_physical_offset() == 0


def test_a_slave_and_a_stopped_store_take_no_messages() -> None:
    config = small_config()
    store = open_memory_store(config=config)
    config.broker_role = "SLAVE"
    assert put(store, message()).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert store.put_batch(message()).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    config.broker_role = "ASYNC_MASTER"
    assert put(store, message()).status is PutMessageStatus.PUT_OK
    store.stop()
    assert put(store, message()).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    with pytest.raises(StoreError):
        store.get_message("TopicTest", 0, 0, 32, 1 << 20, None)


def test_transaction_types_decide_whether_a_message_enters_queue_and_index() -> None:
    store = open_memory_store()
    kinds = [TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE, TRANSACTION_COMMIT_TYPE, 0]
    for kind in kinds:
        record = message(str(kind).encode(), sys_flag=kind, properties={"KEYS": f"k{kind}"})
        assert put(store, record).is_ok
    assert [m.body for m in get(store)] == [b"8", b"0"]
    assert [m.queue_offset for m in get(store)] == [0, 1]
    indexed = [
        bool(store.query_message("TopicTest", f"k{kind}", 5, 0, 2**62).records) for kind in kinds
    ]
    assert indexed == [True, False, True, True]


def test_a_message_of_the_delay_topic_keeps_its_delivery_time_in_the_queue() -> None:
    store = open_memory_store(clock=clock_at_now())
    for level in ("3", "99", "x"):
        put(store, message(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": level, "TAGS": "a"}))
    queue = store.queue_table.find("SCHEDULE_TOPIC_XXXX", 0)
    assert queue is not None
    codes = [unit[2] for _, unit, _ in queue.entries(store.queue_table.cache, 0, 9)]
    assert codes == [int(NOW * 1000) + 10_000, int(NOW * 1000) + 7_200_000, tags_code("a")]
    assert parse_delay_levels("1s 5m 2h 1d") == [1000, 300_000, 7_200_000, 86_400_000]
    assert parse_delay_levels("1s five 2h") == [1000]


def test_a_batch_becomes_consecutive_messages_with_their_own_properties() -> None:
    store = open_memory_store()
    put(store, message())
    items = [
        (n, b"body%d" % n, format_properties({"UNIQ_KEY": f"id{n}", "TAGS": f"t{n % 2}"}))
        for n in range(5)
    ]
    result = store.put_batch(message(encode_batch(items), born_timestamp=77, reconsume_times=0))
    assert isinstance(result, PutMessageResult)
    assert (result.status, result.msg_num, result.queue_offset) == (PutMessageStatus.PUT_OK, 5, 1)
    assert len(result.batch_offsets) == 5
    messages = get(store, offset=1)
    assert [m.body for m in messages] == [item[1] for item in items]
    assert [m.flag for m in messages] == [0, 1, 2, 3, 4]
    assert [m.physical_offset for m in messages] == list(result.batch_offsets)
    assert {m.born_timestamp for m in messages} == {77}
    found = store.get_message("TopicTest", 0, 1, 32, 1 << 20, TagsFilter([tags_code("t1")]))
    assert isinstance(found, GetMessageResult)
    assert [m.uniq_key for m in decode_records(b"".join(found.records))] == ["id1", "id3"]
    queried = store.query_message("TopicTest", "id4", 5, 0, 2**62).records
    assert [decode_record(record)[0].body for record in queried] == [b"body4"]
    assert put(store, message()).queue_offset == 6


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b"", {}),
        (b"\0\0\0\x10", {}),
        (encode_batch([(0, b"x", b"")])[:-1], {}),
        (encode_batch([(0, b"x", b"")]), {"sys_flag": TRANSACTION_COMMIT_TYPE}),
        (encode_batch([(0, b"x", b"")]), {"topic": "t" * 128}),
    ],
)
def test_a_batch_that_cannot_be_stored_is_refused_whole(
    body: bytes, fields: dict[str, Any]
) -> None:
    store = open_memory_store()
    result = store.put_batch(message(body, **fields))
    assert isinstance(result, PutMessageResult)
    assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
    assert store.max_physical_offset() == 0


# --------------------------------------------------------------------------- dispatch


def test_listeners_hear_of_each_message_once_it_can_be_read() -> None:
    store = open_memory_store(clock=clock_at_now())
    heard = []

    def arrived(topic: str, queue_id: int, next_offset: int, code: int, timestamp_ms: int) -> None:
        assert store.max_offset(topic, queue_id) >= next_offset
        heard.append((topic, queue_id, next_offset, code, timestamp_ms))

    store.add_arrival_listener(arrived)
    put(store, message(queue_id=2, properties={"TAGS": "a"}))
    put(store, message(sys_flag=TRANSACTION_PREPARED_TYPE))
    store.put_batch(message(encode_batch([(0, b"x", b""), (0, b"y", b"")])))
    now = int(NOW * 1000)
    assert heard == [
        ("TopicTest", 2, 1, tags_code("a"), now),
        ("TopicTest", 0, 1, 0, now),
        ("TopicTest", 0, 2, 0, now),
    ]


def test_a_listener_that_fails_does_not_fail_the_send() -> None:
    store = open_memory_store()
    store.add_arrival_listener(lambda *args: 1 / 0)
    assert put(store, message()).is_ok
    assert len(get(store)) == 1


def test_nothing_is_behind_when_a_send_returns() -> None:
    store = open_memory_store()
    for number in range(200):
        put(store, message(b"x" * 1000, queue_id=number % 3))
    assert store.dispatch_behind_bytes == 0


# --------------------------------------------------------------------------- synchronous flush


def sync_store(pool: ManualPool, clock: Clock, **keys: Any) -> tuple[MessageStore, MemoryDisk]:
    disk = MemoryDisk()
    config = small_config(flush_disk_type="SYNC_FLUSH", **keys)
    immediate = ImmediatePool()
    store = MessageStore(
        config,
        disk,
        clock,
        pool=immediate,
        flush_pool=pool,
        read_pool=immediate,
        memory_bytes=1 << 30,
    )
    store.load()
    store.start()
    return store, disk


def test_with_sync_flush_sender_and_consumer_wait_for_the_device() -> None:
    pool, clock = ManualPool(), clock_at_now()
    store, disk = sync_store(pool, clock)
    heard: list[int] = []
    store.add_arrival_listener(lambda *args: heard.append(args[2]))
    results: list[PutMessageResult] = []
    for number in range(3):
        outcome = store.put_message(message(b"body%d" % number))
        assert isinstance(outcome, Deferred)
        outcome.addCallback(results.append)
    clock.advance(0)
    assert (results, heard, get(store)) == ([], [], [])
    pool.run()
    assert [result.status for result in results] == [PutMessageStatus.PUT_OK] * 3
    assert [result.queue_offset for result in results] == [0, 1, 2]
    assert heard == [1, 2, 3]
    assert [m.body for m in get(store)] == [b"body0", b"body1", b"body2"]
    end = store.max_physical_offset()
    assert disk.synced(f"/store/commitlog/{0:020d}")[:end] == store.read_log(0, end)


def test_read_uncommitted_shows_messages_before_they_are_on_the_device() -> None:
    pool, clock = ManualPool(), clock_at_now()
    store, _ = sync_store(pool, clock, read_un_committed=True)
    outcome = store.put_message(message())
    assert isinstance(outcome, Deferred)
    assert len(get(store)) == 1
    pool.run()


def test_a_slow_device_answers_flush_disk_timeout_and_keeps_the_message() -> None:
    pool, clock = ManualPool(), clock_at_now()
    store, _ = sync_store(pool, clock, sync_flush_timeout=3000)
    results: list[PutMessageResult] = []
    store.put_message(message()).addCallback(results.append)
    clock.advance(2.9)
    assert results == []
    clock.advance(0.2)
    assert [result.status for result in results] == [PutMessageStatus.FLUSH_DISK_TIMEOUT]
    assert results[0].is_ok
    pool.run()
    assert len(get(store)) == 1


def test_a_sender_that_does_not_want_to_wait_is_answered_at_once() -> None:
    pool, clock = ManualPool(), clock_at_now()
    store, _ = sync_store(pool, clock)
    result = put(store, message(wait_store_msg_ok=False))
    assert result.status is PutMessageStatus.PUT_OK
    batch = store.put_batch(message(encode_batch([(0, b"x", b"")]), wait_store_msg_ok=False))
    assert isinstance(batch, PutMessageResult)
    assert get(store) == []
    clock.advance(0)
    pool.run()
    assert len(get(store)) == 2


def test_the_order_of_a_queue_holds_when_the_flush_type_changes_meanwhile() -> None:
    pool, clock = ManualPool(), clock_at_now()
    store, _ = sync_store(pool, clock)
    store.put_message(message(b"one"))
    store._config.flush_disk_type = "ASYNC_FLUSH"
    assert put(store, message(b"two")).queue_offset == 1
    assert get(store) == []
    clock.advance(1)
    pool.run()
    assert [m.body for m in get(store)] == [b"one", b"two"]


# --------------------------------------------------------------------------- flush of queues, trouble with the disk


def queue_file(disk: MemoryDisk, topic: str = "TopicTest", queue_id: int = 0) -> bytes:
    path = f"/store/consumequeue/{topic}/{queue_id}/{0:020d}"
    return disk.synced(path) if disk.exists(path) else b""


def test_queues_are_written_by_pages_and_thoroughly_now_and_then() -> None:
    disk, clock = MemoryDisk(), clock_at_now()
    config = small_config(mapped_file_size_consume_queue=20_000)
    store = open_memory_store(disk, clock, config=config)
    clock.advance(1)
    for _ in range(410):
        put(store, message(b"", queue_id=0))
    put(store, message(b"", queue_id=1))
    clock.advance(1)
    assert queue_file(disk)[: 20 * 410].count(CQ_UNIT.pack(0, 1, 0)[8:9]) > 0
    assert CQ_UNIT.unpack_from(queue_file(disk), 20 * 409)[1] > 0
    assert queue_file(disk, queue_id=1) == b""
    for _ in range(60):
        clock.advance(1)
    assert CQ_UNIT.unpack_from(queue_file(disk, queue_id=1))[1] > 0


def test_the_checkpoint_follows_log_and_queues_within_their_intervals() -> None:
    disk, clock = MemoryDisk(), clock_at_now()
    store = open_memory_store(disk, clock)
    put(store, message())
    stored = int(clock.seconds() * 1000)
    for _ in range(70):
        clock.advance(1)
    physic, logics, *_ = CHECKPOINT.unpack_from(disk.synced("/store/checkpoint"))
    assert (physic, logics) == (stored, stored)


def test_while_queues_cannot_be_written_sends_are_refused_and_then_taken_again() -> None:
    disk, clock = MemoryDisk(), clock_at_now()
    store = open_memory_store(disk, clock)
    put(store, message())
    disk.capacity_bytes = disk.used_bytes
    for _ in range(61):
        clock.advance(1)
    assert put(store, message()).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert "consume queues" in (store.write_refusal or "")
    assert len(get(store)) == 1
    disk.capacity_bytes = 1 << 40
    for _ in range(61):
        clock.advance(1)
    assert store.write_refusal is None
    assert put(store, message()).queue_offset == 1
    store.stop()
    assert len(get(open_memory_store(disk, clock))) == 2


def test_trouble_with_the_index_does_not_touch_sends() -> None:
    disk, clock = MemoryDisk(), clock_at_now()
    store = open_memory_store(disk, clock)
    disk.capacity_bytes = disk.used_bytes
    result = put(store, message(properties={"KEYS": "k"}))
    assert result.status is PutMessageStatus.PUT_OK
    assert len(get(store)) == 1


def test_an_io_error_makes_the_store_read_only_and_keeps_the_abort_file() -> None:
    pool, clock = ManualPool(), clock_at_now()
    store, disk = sync_store(pool, clock)
    results: list[PutMessageResult] = []
    store.put_message(message()).addCallback(results.append)
    disk.sync_error = OSError(errno.EIO, "Input/output error")
    clock.advance(0)
    pool.run()
    assert [result.status for result in results] == [PutMessageStatus.FLUSH_DISK_TIMEOUT]
    refused = store.put_message(message())
    assert isinstance(refused, PutMessageResult)
    assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert "EIO" in (store.write_refusal or "")
    stopped: list[object] = []
    store.stop().addBoth(stopped.append)
    pool.run()
    assert len(stopped) == 1
    assert disk.exists("/store/abort")


# --------------------------------------------------------------------------- start and stop


def test_an_orderly_stop_leaves_a_checkpoint_and_no_abort_file() -> None:
    disk, clock = MemoryDisk(), clock_at_now()
    store = open_memory_store(disk, clock)
    assert disk.exists("/store/abort")
    for number in range(5):
        clock.advance(0.1)
        put(store, message(b"m%d" % number, properties={"UNIQ_KEY": f"id{number}"}))
    last = int(clock.seconds() * 1000)
    stopped: list[object] = []
    store.stop().addBoth(stopped.append)
    assert stopped == [None]
    assert not disk.exists("/store/abort")
    assert disk.read_file("/store/lock") == b"lock"
    content = disk.synced("/store/checkpoint")
    assert len(content) == 4096
    assert CHECKPOINT.unpack_from(content) == (last, last, 0, 0, 0)
    again = open_memory_store(disk, clock)
    assert [m.body for m in get(again)] == [b"m0", b"m1", b"m2", b"m3", b"m4"]
    assert put(again, message()).queue_offset == 5


def test_a_second_store_on_the_same_directory_is_refused_and_leaves_the_first_alone() -> None:
    disk = MemoryDisk()
    first = open_memory_store(disk)
    with pytest.raises(StoreLockedError):
        open_memory_store(disk)
    assert put(first, message()).is_ok
    first.stop()
    assert len(get(open_memory_store(disk))) == 1


def test_a_store_that_cannot_be_opened_gives_its_lock_back() -> None:
    disk = MemoryDisk()
    disk.create(f"/store/commitlog/{0:020d}", 100_000)
    with pytest.raises(StoreError, match="100000 bytes"):
        open_memory_store(disk)
    disk.remove(f"/store/commitlog/{0:020d}")
    open_memory_store(disk)


def test_stopping_twice_or_before_the_start_is_harmless() -> None:
    disk = MemoryDisk()
    pool = ImmediatePool()
    store = MessageStore(small_config(), disk, Clock(), pool=pool, flush_pool=pool, read_pool=pool)
    store.stop()
    store.load()
    store.stop()
    store.stop()
    assert not disk.exists("/store/abort")


def test_no_timed_call_is_left_after_the_stop() -> None:
    clock = clock_at_now()
    store = open_memory_store(clock=clock)
    put(store, message())
    store.stop()
    assert clock.getDelayedCalls() == []


# --------------------------------------------------------------------------- topics, replicas


def test_a_deleted_topic_is_gone_and_begins_at_zero_again() -> None:
    disk = MemoryDisk()
    store = open_memory_store(disk)
    for topic in ("A", "B"):
        for queue_id in range(2):
            put(store, message(topic=topic, queue_id=queue_id))
    store.stop()
    store = open_memory_store(disk)
    assert store.delete_topics(["A", "C"]) == 1
    assert not disk.exists("/store/consumequeue/A")
    assert sorted(store.queues()) == [("B", 0), ("B", 1)]
    assert put(store, message(b"new", topic="A")).queue_offset == 0
    assert [m.body for m in get(store, "A")] == [b"new"]


def test_a_replica_begins_in_the_middle_whenever_its_first_file_is_there() -> None:
    """The first bytes are refused until the file has its blocks; when they come again the log ends where they belong already."""
    master, slave, pool = open_memory_store(), open_memory_store(), ManualPool()
    slave.commit_log.queue._pool = pool
    while not master.last_file_offset():
        put(master, message(b"x" * 1000))
    offset = master.last_file_offset()
    data = master.read_log(offset, 1 << 16)
    assert not slave.append_raw(offset, data)
    while pool.pending:
        pool.run()
    assert slave.append_raw(offset, data)
    first, end = slave.min_offset("TopicTest", 0), slave.max_offset("TopicTest", 0)
    assert end == master.max_offset("TopicTest", 0)
    assert 0 < first < end


def test_replicated_bytes_are_dispatched_like_sent_messages() -> None:
    master, slave = open_memory_store(), open_memory_store()
    for number in range(150):
        put(
            master, message(b"x" * 700, queue_id=number % 2, properties={"UNIQ_KEY": f"id{number}"})
        )
    offset = 0
    while offset < master.max_physical_offset():
        data = master.read_log(offset, 5000)
        assert slave.append_raw(offset, data)
        offset += len(data)
    with pytest.raises(StoreError, match="do not follow"):
        slave.append_raw(0, b"x")
    for queue_id in range(2):
        assert get(slave, queue_id=queue_id, offset=40) == get(master, queue_id=queue_id, offset=40)
    assert len(slave.query_message("TopicTest", "id149", 5, 0, 2**62).records) == 1
    assert slave.max_offset("TopicTest", 1) == 75
