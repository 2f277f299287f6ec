"""What is served while queues and index are still being completed, and what becomes of that when it is cut short?"""

from __future__ import annotations

import errno
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from tests.store.test_recovery import assert_holds, filled, kill, put
from txrocketmq.codec.record import encode_batch, encode_record
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import StoreError
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import format_properties
from txrocketmq.store import catchup, index, queuetable
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.recover import RecoveryLimits
from txrocketmq.store.results import (
    GetMessageResult,
    GetMessageStatus,
    PutMessageResult,
    PutMessageStatus,
)
from txrocketmq.testing.disk import MemoryDisk, MemoryMapping
from txrocketmq.testing.pools import ImmediatePool, ManualPool
from txrocketmq.testing.store import small_config

TOPIC = "TopicTest"
NOTHING_FIRST = RecoveryLimits(
    checked_bytes=20_000, halving_bytes=2000, foreground_bytes=0, index_bytes=0
)


class Opened:
    """A store that is just open, whose further work on its start waits for the test.

    :ivar flushes: syncs of the log, where they wait for the test.
    :ivar outcome: what `load` came to; empty as long as it goes on.
    """

    def __init__(
        self,
        disk: MemoryDisk,
        clock: Clock | None = None,
        limits: RecoveryLimits = NOTHING_FIRST,
        config: MessageStoreConfig | None = None,
        *,
        hold_flushes: bool = False,
    ) -> None:
        self.pool = ManualPool()
        self.flushes = ManualPool()
        self.clock = clock or Clock()
        files = ImmediatePool()
        self.store = MessageStore(
            config or small_config(),
            disk,
            self.clock,
            pool=files,
            flush_pool=self.flushes if hold_flushes else files,
            read_pool=self.pool,
            limits=limits,
        )
        self.outcome: list[Any] = []
        self.store.load().addBoth(self.outcome.append)

    def until_open(self) -> MessageStore:
        """Run what `load` itself needs, and no more."""
        while not self.outcome:
            self.pool.run(1)
        assert self.outcome == [None]
        self.store.start()
        return self.store

    def complete(self) -> MessageStore:
        """Run all that there is."""
        while self.pool.pending:
            self.pool.run()
            self.clock.advance(0.1)
        return self.store


def without_queues(disk: MemoryDisk) -> MemoryDisk:
    disk.rmtree("/store/consumequeue")
    return disk


def without_index(disk: MemoryDisk) -> MemoryDisk:
    disk.rmtree("/store/index")
    return disk


def pull(store: MessageStore, queue_id: int, offset: int) -> GetMessageResult:
    found = store.get_message(TOPIC, queue_id, offset, 32, 1 << 20, None)
    assert not isinstance(found, Deferred)
    return found


def send(store: MessageStore, queue_id: int, topic: str = TOPIC) -> PutMessageStatus:
    result = store.put_message(MessageRecord(topic=topic, queue_id=queue_id, body=b"new"))
    assert not isinstance(result, Deferred)
    return result.status


def found_by_key(store: MessageStore, number: int) -> int:
    return len(store.query_message(TOPIC, f"id{number}", 5, 0, 2**62).records)


# --------------------------------------------------------------------------- queues


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_queues_that_are_lost_say_busy_and_hold_pulls_until_they_are_derived(clean: bool) -> None:
    disk, clock = MemoryDisk(), Clock()
    store = long_store(disk, clock)
    if clean:
        store.stop()
    else:
        kill(disk)
    opened = Opened(without_queues(disk), clock)
    store = opened.until_open()
    assert send(store, 0, "Unknown") is PutMessageStatus.QUEUE_RECOVERING
    for reason in (store.recovering("Unknown", 1), store.incomplete(TOPIC, 1)):
        assert reason is not None
        assert "recovery" in reason
    waits = pull(store, 0, 3)
    assert (waits.status, waits.next_begin_offset) == (GetMessageStatus.OFFSET_OVERFLOW_ONE, 3)
    assert "%" in store.recovery_figures()["recoveryOfQueues"]
    arrived = set()
    store.add_whole_listener(lambda topic, queue_id: arrived.add(queue_id))
    opened.complete()
    assert store.recovering("Unknown", 1) is None
    assert store.incomplete(TOPIC, 1) is None
    assert store.recovery_figures() == {}
    assert arrived == {0, 1, 2}, "whoever waits is woken"
    assert_holds(store, 300)
    put(store, 300)
    assert_holds(store, 301)


def test_a_queue_that_is_behind_does_not_block_the_others() -> None:
    disk = MemoryDisk()
    filled(disk, 400).stop()
    for name in disk.listdir("/store/consumequeue/TopicTest/1")[1:]:
        disk.remove(f"/store/consumequeue/TopicTest/1/{name}")
    opened = Opened(disk)
    store = opened.until_open()
    assert store.recovering(TOPIC, 1) is not None
    assert send(store, 1) is PutMessageStatus.QUEUE_RECOVERING
    assert store.recovering(TOPIC, 0) is None
    assert store.max_offset(TOPIC, 0) == 134
    assert pull(store, 0, 0).status is GetMessageStatus.FOUND
    assert send(store, 0) is PutMessageStatus.PUT_OK
    assert send(store, 0, "AnotherTopic") is PutMessageStatus.PUT_OK
    opened.complete()
    assert store.max_offset(TOPIC, 0) == 135
    assert store.max_offset(TOPIC, 1) == 133
    assert send(store, 1) is PutMessageStatus.PUT_OK
    assert pull(store, 1, 133).status is GetMessageStatus.FOUND


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("jobs", [0, 1, 2])
def test_queues_are_completed_by_the_next_start_when_this_one_is_cut_short(
    end: str, jobs: int
) -> None:
    disk, clock = MemoryDisk(), Clock()
    clock.advance(1_700_000_000)
    filled(disk, 700, clock, ticks=2).stop()
    opened = Opened(without_queues(disk), clock)
    store = opened.until_open()
    opened.pool.run(jobs)
    # The timed flush writes what is derived by now.
    clock.advance(70)
    assert store.incomplete(TOPIC, 0) is not None
    if end == "stop":
        store.stop()
        opened.complete()
        assert disk.exists("/store/abort"), "an orderly stop of a store that is not in order"
    else:
        kill(disk)
    again = Opened(disk, clock)
    again.until_open()
    assert_holds(again.complete(), 700)


def test_the_checkpoint_says_no_more_than_the_queues_hold() -> None:
    disk, clock = MemoryDisk(), Clock()
    clock.advance(1_700_000_000)
    filled(disk, 400, clock, ticks=70).stop()
    opened = Opened(without_queues(disk), clock)
    store = opened.until_open()
    assert store.checkpoint.logics_msg_timestamp_ms == 0
    clock.advance(70)
    assert store.checkpoint.logics_msg_timestamp_ms == 0
    opened.complete()
    clock.advance(70)
    assert store.checkpoint.logics_msg_timestamp_ms == 1_700_000_000_000


def test_a_topic_that_is_deleted_meanwhile_does_not_come_back() -> None:
    disk = MemoryDisk()
    filled(disk, 200).stop()
    opened = Opened(without_queues(disk))
    store = opened.until_open()
    store.delete_topics([TOPIC])
    assert send(store, 0) is PutMessageStatus.PUT_OK
    opened.complete()
    assert store.queues() == [(TOPIC, 0)]
    assert store.max_offset(TOPIC, 0) == 1


def test_damage_that_is_met_meanwhile_stops_writes_and_names_the_way_out() -> None:
    disk = MemoryDisk()
    filled(disk, 400).stop()
    name = disk.listdir("/store/commitlog")[0]
    disk.write_at(f"/store/commitlog/{name}", 0, b"\xff" * 100)
    opened = Opened(without_queues(disk))
    store = opened.until_open()
    opened.complete()
    reason = store.recovering(TOPIC, 0)
    assert reason is not None
    assert "txrocketmq store repair" in reason
    assert store.write_refusal is not None
    assert "damaged at 0" in store.write_refusal
    assert send(store, 0, "AnotherTopic") is PutMessageStatus.SERVICE_NOT_AVAILABLE


# --------------------------------------------------------------------------- index


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_an_index_that_is_lost_is_made_whole_while_messages_are_taken(clean: bool) -> None:
    disk = MemoryDisk()
    store = filled(disk, 400)
    if clean:
        store.stop()
    else:
        kill(disk)
    opened = Opened(without_index(disk))
    store = opened.until_open()
    assert "recoveryOfIndex" in store.recovery_figures()
    for number in range(400, 430):
        put(store, number)
    assert found_by_key(store, 429) == 0, "new entries do not come before old ones"
    opened.complete()
    assert store.recovery_figures() == {}
    for number in (0, 200, 399, 400, 429):
        assert found_by_key(store, number) == 1
    put(store, 430)
    assert found_by_key(store, 430) == 1
    files = store.index.files
    assert [file.begin_offset for file in files] == sorted(file.begin_offset for file in files)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_an_index_goes_on_with_the_next_start(end: str) -> None:
    disk = MemoryDisk()
    filled(disk, 700).stop()
    opened = Opened(without_index(disk))
    store = opened.until_open()
    opened.pool.run(1)
    reached = store.index.end_offset
    assert 0 < reached < store.max_physical_offset()
    if end == "stop":
        store.stop()
        while opened.pool.pending:
            opened.pool.run()
        assert not disk.exists("/store/abort")
    else:
        kill(disk)
    again = Opened(disk)
    store = again.until_open()
    if end == "stop":
        assert store.index.end_offset >= reached, "what was done is not done again"
    again.complete()
    for number in range(0, 700, 7):
        assert found_by_key(store, number) == 1


class FullForTheIndex(MemoryDisk):
    """A disk that has no room for another index file just now."""

    is_full = False

    def map(self, path: str, size: int, create: bool) -> MemoryMapping:
        if self.is_full and create and "/index/" in path:
            raise OSError(errno.ENOSPC, "no room", path)
        return super().map(path, size, create)


@pytest.fixture
def few_may_wait(monkeypatch: pytest.MonkeyPatch) -> int:
    """So many entries may wait for a place."""
    monkeypatch.setattr(index, "MAX_WAITING", 50)
    monkeypatch.setattr(catchup, "MAX_WAITING", 50)
    monkeypatch.setattr(catchup, "MAX_WAITING_ENTRIES", 20)
    return 50


def until_whole(opened: Opened) -> MessageStore:
    """Let time pass until the index is whole."""
    for _ in range(1000):
        opened.clock.advance(0.1)
        opened.complete()
        if opened.store.recovery_figures() == {} and not opened.store.index.waiting:
            return opened.store
    raise AssertionError(opened.store.recovery_figures())


def test_what_comes_while_the_index_has_no_room_is_indexed_when_it_has(few_may_wait: int) -> None:
    disk = FullForTheIndex()
    opened = Opened(disk)
    store = opened.until_open()
    disk.is_full = True
    for number in range(400):
        put(store, number)
    assert store.index.waiting < few_may_wait + 3, "memory is bounded"
    opened.clock.advance(0)
    opened.complete()
    assert "recoveryOfIndex" in store.recovery_figures()
    waiting = store.index.waiting
    for number in range(400, 500):
        put(store, number)
    assert store.index.waiting == waiting, "nothing is added to what waits"
    disk.is_full = False
    until_whole(opened)
    put(store, 500)
    for number in range(501):
        assert found_by_key(store, number) == 1, number
    files = store.index.files
    assert [file.begin_offset for file in files] == sorted(file.begin_offset for file in files)
    store.stop()
    assert not disk.exists("/store/abort"), "the stop was in order"


def test_a_batch_with_more_keys_than_may_wait_is_found_by_all_of_them(few_may_wait: int) -> None:
    disk = FullForTheIndex()
    opened = Opened(disk)
    store = opened.until_open()
    disk.is_full = True
    keys = [f"k{number}" for number in range(5 * few_may_wait)]
    put(store, 0)
    record = MessageRecord(
        topic=TOPIC,
        queue_id=0,
        body=b"many keys",
        properties=format_properties({"KEYS": " ".join(keys)}),
        keys=" ".join(keys),
    )
    result = store.put_message(record)
    assert isinstance(result, PutMessageResult)
    assert result.is_ok
    put(store, 1)
    disk.is_full = False
    until_whole(opened)
    for key in keys:
        assert len(store.query_message(TOPIC, key, 64, 0, 2**62).records) >= 1, key
    assert found_by_key(store, 0) == found_by_key(store, 1) == 1


@pytest.mark.parametrize("waits", [False, True])
def test_the_keys_of_a_huge_batch_are_not_made_in_one_turn_and_are_all_found(
    monkeypatch: pytest.MonkeyPatch, few_may_wait: int, waits: bool
) -> None:
    monkeypatch.setattr(index, "MAX_AT_ONCE", 30)
    disk = FullForTheIndex()
    opened = Opened(disk)
    store = opened.until_open()
    disk.is_full = waits
    put(store, 1000)
    items = [
        (0, b"x", format_properties({"KEYS": " ".join(f"k{number}-{key}" for key in range(10))}))
        for number in range(20)
    ]
    batch = MessageRecord(topic=TOPIC, queue_id=0, body=encode_batch(items))
    result = store.put_batch(batch)
    assert isinstance(result, PutMessageResult)
    assert result.is_ok
    assert store.index.waiting < (few_may_wait + 10 if waits else 40)
    assert store.index.waiting or not waits
    assert len(store.query_message(TOPIC, "k19-9", 64, 0, 2**62).records) == 0
    disk.is_full = False
    until_whole(opened)
    for number in range(20):
        for key in (0, 9):
            found = store.query_message(TOPIC, f"k{number}-{key}", 64, 0, 2**62).records
            assert len(found) == 1, (number, key)


def test_a_start_does_not_wait_for_an_index_that_has_no_room(few_may_wait: int) -> None:
    disk = FullForTheIndex()
    filled(disk, 400)
    kill(disk)
    disk.is_full = True
    limits = RecoveryLimits(foreground_bytes=0, index_bytes=1 << 30)
    opened = Opened(without_index(disk), limits=limits)
    store = opened.until_open()
    assert "recoveryOfIndex" in store.recovery_figures()
    assert put(store, 400).is_ok
    assert found_by_key(store, 399) == 0
    disk.is_full = False
    until_whole(opened)
    for number in range(401):
        assert found_by_key(store, number) == 1, number


# --------------------------------------------------------------------------- where reading begins


def long_store(disk: MemoryDisk, clock: Clock) -> MessageStore:
    """Some files of messages, each second some more, with checkpoints between."""
    clock.advance(1_700_000_000)
    store = filled(disk, 0, clock)
    for number in range(300):
        put(store, number)
        clock.advance(0.5)
    clock.advance(60)
    return store


def test_recovery_begins_within_a_file_where_the_checkpoint_says() -> None:
    disk, clock = MemoryDisk(), Clock()
    end = long_store(disk, clock).max_physical_offset()
    kill(disk)
    opened = Opened(disk, clock)
    store = opened.until_open()
    assert store.recovery is not None
    assert store.recovery.start_offset > end - 10_000
    assert store.recovery.records < 20
    assert_holds(opened.complete(), 300)


def test_a_record_in_somebodys_body_is_no_place_to_begin() -> None:
    """Where a body lies is known beforehand, so one may hold a record that says the right offset."""
    disk, clock = MemoryDisk(), Clock()
    clock.advance(1_700_000_000)
    store = filled(disk, 0, clock)
    size = 0
    for number in range(300):
        at = store.max_physical_offset()
        fakes = b""
        for step in range(10):
            fake = MessageRecord(topic="Fake", queue_id=step, body=b"fake")
            # Behind the head of the record around it, and the fakes before it.
            fakes += encode_record(fake, 7, at + 88 + len(fakes), 1_600_000_000_000)
        put_fake = store.put_message(MessageRecord(topic=TOPIC, queue_id=9, body=fakes))
        assert not isinstance(put_fake, Deferred)
        size = put_fake.wrote_bytes
        put(store, number, 10)
        clock.advance(0.5)
    assert size > 900
    clock.advance(60)
    kill(disk)
    opened = Opened(disk, clock)
    opened.until_open()
    store = opened.complete()
    assert_holds(store, 300)
    assert not [topic for topic, _ in store.queues() if topic == "Fake"]


# --------------------------------------------------------------------------- a start that is given up


def test_a_stop_in_the_middle_of_recovery_ends_it_and_gives_the_lock_back() -> None:
    disk = MemoryDisk()
    filled(disk, 3000)
    kill(disk)
    opened = Opened(disk)
    opened.pool.run(1)
    assert opened.outcome == []
    stopped: list[Any] = []
    opened.store.stop().addBoth(stopped.append)
    opened.complete()
    assert stopped == [None]
    assert isinstance(opened.outcome[0], Failure)
    assert opened.outcome[0].check(StoreError)
    assert not disk.locked
    assert_holds(Opened(disk).complete(), 3000)


def test_queues_are_opened_a_few_at_a_time_and_a_stop_ends_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    filled(disk, 3000).stop()
    monkeypatch.setattr(queuetable, "QUEUES_AT_ONCE", 1)
    opened = Opened(disk)
    # Nothing was run by the pool yet: the reactor has its turn after the first queue.
    assert len(opened.store.queue_table.queues) == 1
    opened.store.stop()
    opened.complete()
    assert isinstance(opened.outcome[0], Failure)
    assert len(opened.store.queue_table.queues) == 1
    assert_holds(Opened(disk).complete(), 3000)
