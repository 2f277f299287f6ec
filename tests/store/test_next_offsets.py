"""When does a lost queue take messages again, and what do readers of it see before it is whole?"""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock

from tests.store.test_catchup import Opened
from tests.store.test_recovery import kill
from txrocketmq.codec.record import blank_record, decode_records, encode_batch, encode_record
from txrocketmq.errors import StoreError
from txrocketmq.ha.slave import whole_records
from txrocketmq.model.flags import (
    INNER_BATCH_FLAG,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import format_properties
from txrocketmq.store import nextoffsets
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.results import GetMessageResult, GetMessageStatus, PutMessageResult
from txrocketmq.store.results import PutMessageStatus as Put
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.store import open_memory_store, small_config

HOT, COLD, OLD = ("Hot", 0), ("Cold", 0), ("Old", 0)
Key = tuple[str, int]
BODY = b"x" * 2000
ALL = {"enable_lmq": True, "enable_multi_dispatch": True}


def message(key: Key, body: bytes = BODY, sys_flag: int = 0, **found: str) -> MessageRecord:
    return MessageRecord(
        topic=key[0],
        queue_id=key[1],
        body=body,
        properties=format_properties({"UNIQ_KEY": "id", **found}),
        sys_flag=sys_flag,
    )


def put(store: MessageStore, record: MessageRecord) -> PutMessageResult:
    result = store.put_message(record)
    assert isinstance(result, PutMessageResult)
    return result


def status(store: MessageStore, key: Key) -> Put:
    return put(store, message(key, b"new")).status


def read(store: MessageStore, key: Key, offset: int = 0) -> GetMessageResult:
    found = store.get_message(*key, offset, 32, 1 << 20, None)
    assert isinstance(found, GetMessageResult)
    return found


def bodies(store: MessageStore, key: Key, offset: int = 0) -> list[bytes]:
    found: list[bytes] = []
    while offset < store.max_offset(*key):
        result = read(store, key, offset)
        assert result.status is GetMessageStatus.FOUND, result
        found += [m.body for m in decode_records(b"".join(result.records))]
        offset = result.next_begin_offset
    return found


def assert_waits(store: MessageStore, key: Key, offset: int) -> None:
    found = read(store, key, offset)
    assert (found.status, found.next_begin_offset) == (
        GetMessageStatus.OFFSET_OVERFLOW_ONE,
        offset,
    )


def lost(fill: Callable[[MessageStore], object], **keys: object) -> tuple[MemoryDisk, Clock]:
    """A store that was stopped, and whose queues are gone."""
    disk, clock = MemoryDisk(), Clock()
    clock.advance(1_700_000_000)
    store = open_memory_store(disk, clock, config=small_config(**keys))
    fill(store)
    store.stop()
    disk.rmtree("/store/consumequeue")
    disk.rmtree("/store/batchconsumequeue")
    return disk, clock


def long_log(store: MessageStore) -> None:
    """Some twenty files: one queue has messages everywhere, one in the middle, one at the beginning only."""
    for number in range(600):
        put(store, message(HOT, b"hot %d " % number + BODY))
        if number == 300:
            put(store, message(COLD, b"cold"))
        if number == 0:
            put(store, message(OLD, b"old"))


def test_a_queue_takes_messages_once_its_newest_record_was_seen_and_others_wait_for_theirs() -> (
    None
):
    disk, clock = lost(long_log)
    opened = Opened(disk, clock)
    store = opened.until_open()
    assert len(store.commit_log.queue.files) > 15
    assert store.recovering(*HOT) is None
    assert store.max_offset(*HOT) == 600
    assert put(store, message(HOT, b"hot 600")).queue_offset == 600
    assert store.max_offset(*HOT) == 601
    for key in (COLD, OLD, ("Unknown", 0)):
        assert store.recovering(*key) is not None
        assert status(store, key) is Put.QUEUE_RECOVERING
    jobs = 0
    while store.recovering(*COLD) is not None:
        jobs += opened.pool.run(1)
        clock.advance(0.1)
    assert store.rebuild is not None, "the rest is still derived"
    assert store.incomplete(*COLD) is not None
    assert store.max_offset(*COLD) == 1
    assert put(store, message(COLD, b"cold 1")).queue_offset == 1
    # From both ends at once, and a file takes two reads: the middle is reached when each walk is there.
    assert jobs <= 2 * len(store.commit_log.queue.files)
    opened.complete()
    assert store.rebuild is None
    assert status(store, ("Unknown", 0)) is Put.PUT_OK
    assert bodies(store, COLD) == [b"cold", b"cold 1"]
    assert bodies(store, OLD) == [b"old"]
    hot = bodies(store, HOT)
    assert [body.split()[1] for body in hot] == [b"%d" % number for number in range(601)]
    assert put(store, message(HOT, b"hot 601")).queue_offset == 601
    store.stop()
    assert not disk.exists("/store/abort")


def test_all_next_offsets_are_known_when_both_walks_meet() -> None:
    disk, clock = lost(long_log)
    opened = Opened(disk, clock)
    store = opened.until_open()
    jobs = 0
    while store.recovering("Unknown", 7) is not None:
        jobs += opened.pool.run(1)
        clock.advance(0.1)
    assert jobs <= 2 * len(store.commit_log.queue.files)
    assert store.incomplete(*HOT) is not None
    assert store.incomplete(*OLD) is None, "a queue that is whole is not waited with"
    assert bodies(store, OLD) == [b"old"]
    assert put(store, message(("Unknown", 7))).queue_offset == 0
    assert bodies(store, ("Unknown", 7)) == [BODY]


def test_readers_who_keep_up_are_served_and_others_wait_where_they_are() -> None:
    disk, clock = lost(long_log)
    opened = Opened(disk, clock)
    store = opened.until_open()
    assert [body.split()[1] for body in bodies(store, HOT, 590)] == [
        b"%d" % number for number in range(590, 600)
    ]
    found = read(store, HOT, 595)
    assert found.max_offset == 600
    for offset in (0, 300, 600, 700):
        assert_waits(store, HOT, offset)
    assert_waits(store, OLD, 0)
    put(store, message(HOT, b"hot 600"))
    assert bodies(store, HOT, 600) == [b"hot 600"]
    woken: list[str] = []
    store.add_whole_listener(lambda topic, _: 1 / 0)
    store.reput.whole_listeners.insert(0, lambda topic, _: woken.append(topic))
    opened.complete()
    assert sorted(woken) == ["Cold", "Hot", "Old"]
    assert read(store, HOT, 700).status is GetMessageStatus.OFFSET_OVERFLOW_BADLY
    assert store.min_offset(*HOT) == 0


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_start_that_is_cut_short_anywhere_leaves_nothing_that_could_be_believed(end: str) -> None:
    jobs = 0
    while True:
        disk, clock = lost(long_log)
        opened = Opened(disk, clock)
        store = opened.until_open()
        for _ in range(jobs):
            opened.pool.run(1)
            clock.advance(0.1)
        sent = 0
        for key in (HOT, COLD):
            sent += status(store, key) is Put.PUT_OK
        is_done = store.rebuild is None
        clock.advance(70)
        if end == "stop":
            store.stop()
            opened.complete()
            assert disk.exists("/store/abort") is not is_done
        else:
            kill(disk)
        again = Opened(disk, clock)
        store = again.until_open()
        assert store.recovering(*HOT) is None
        assert store.max_offset(*HOT) == 601
        store = again.complete()
        assert len(bodies(store, HOT)) == 601
        assert bodies(store, COLD) == [b"cold", b"new"][:sent]
        assert bodies(store, OLD) == [b"old"]
        if is_done:
            break
        jobs += 3
    assert jobs > 20


def test_what_is_written_of_a_queue_meanwhile_is_its_beginning() -> None:
    """An official broker reads a queue's files up to the first unit that was not written, and derives what follows."""
    disk, clock = lost(long_log)
    opened = Opened(disk, clock)
    store = opened.until_open()
    for _ in range(12):
        opened.pool.run(1)
        put(store, message(HOT, b"more"))
        clock.advance(0.1)
    clock.advance(70)
    names = disk.listdir("/store/consumequeue/Hot/0")
    data = b"".join(disk.read_at(f"/store/consumequeue/Hot/0/{name}", 0, 2000) for name in names)
    assert names == [f"{number * 2000:020d}" for number in range(len(names))]
    written = [number for number in range(len(data) // 20) if any(data[20 * number :][:20])]
    assert written == list(range(len(written)))
    assert 0 < len(written) < 600


# --------------------------------------------------------------------------- what a record may be


def test_records_that_are_in_no_queue_prove_nothing() -> None:
    def fill(store: MessageStore) -> None:
        long_log(store)
        put(store, message(HOT, sys_flag=TRANSACTION_COMMIT_TYPE))
        put(store, message(HOT, sys_flag=TRANSACTION_PREPARED_TYPE))
        put(store, message(HOT, sys_flag=TRANSACTION_ROLLBACK_TYPE))
        put(store, message(("Half", 0), sys_flag=TRANSACTION_PREPARED_TYPE))

    opened = Opened(*lost(fill))
    store = opened.until_open()
    assert store.max_offset(*HOT) == 601
    assert store.recovering("Half", 0) is not None
    opened.complete()
    assert len(bodies(store, HOT)) == 601


def test_a_queue_that_was_begun_anew_goes_on_behind_its_last_message() -> None:
    def fill(store: MessageStore) -> None:
        long_log(store)
        store.delete_topics(["Hot"])
        for number in range(10):
            put(store, message(HOT, b"anew %d" % number))

    opened = Opened(*lost(fill))
    store = opened.until_open()
    assert store.max_offset(*HOT) == 10
    assert bodies(store, HOT) == [b"anew %d" % number for number in range(10)]
    assert put(store, message(HOT, b"anew 10")).queue_offset == 10
    opened.complete()
    assert bodies(store, HOT) == [b"anew %d" % number for number in range(11)]


def batch(number: int) -> MessageRecord:
    record = message(("Batches", 0), encode_batch([(0, b"%d" % number, b"")] * 3), INNER_BATCH_FLAG)
    record.properties = format_properties({"UNIQ_KEY": "id", "INNER_NUM": "3"})
    return record


def test_batches_and_light_queues_have_next_offsets_too() -> None:
    def fill(store: MessageStore) -> None:
        store.use_topic_attributes(
            lambda topic: {"queue.type": "BatchCQ"} if topic == "Batches" else {}
        )
        for number in range(200):
            put(store, message(HOT))
            put(store, message(HOT, INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b"))
            if number > 100:
                put(store, message(COLD, INNER_MULTI_DISPATCH="%LMQ%a"))
            put(store, batch(number))

    disk, clock = lost(fill, **ALL)
    opened = Opened(disk, clock, config=small_config(**ALL))
    store = opened.until_open()
    light = ("%LMQ%a", 0)
    assert store.max_offset("Batches", 0) == 600
    assert store.max_offset(*light) == 299
    assert put(store, batch(200)).queue_offset == 600
    assert put(store, message(HOT, b"last", INNER_MULTI_DISPATCH="%LMQ%a")).status is Put.PUT_OK
    unknown = message(HOT, INNER_MULTI_DISPATCH="%LMQ%new")
    assert put(store, unknown).status is Put.QUEUE_RECOVERING
    assert bodies(store, light, 299) == [b"last"]
    opened.complete()
    assert len(bodies(store, light)) == 300
    assert len(bodies(store, ("%LMQ%b", 0))) == 200
    assert store.max_offset("Batches", 0) == 603
    assert len(bodies(store, ("Batches", 0))) == 201
    assert put(store, unknown).status is Put.PUT_OK


def test_messages_that_wait_for_the_device_go_to_the_queue_that_is_whole_by_then() -> None:
    disk, clock = lost(long_log)
    opened = Opened(
        disk, clock, config=small_config(flush_disk_type="SYNC_FLUSH"), hold_flushes=True
    )
    store = opened.until_open()
    answers: list[PutMessageResult] = []
    for key in (HOT, HOT):
        result = store.put_message(message(key, b"late"))
        assert isinstance(result, Deferred)
        result.addCallback(answers.append)
    assert store.max_offset(*HOT) == 600
    opened.complete()
    assert store.incomplete(*HOT) is None
    assert store.max_offset(*HOT) == 600
    opened.flushes.run()
    assert [answer.queue_offset for answer in answers] == [600, 601]
    assert bodies(store, HOT)[600:] == [b"late", b"late"]


@pytest.mark.parametrize("agreed", ["nothing", "one", "all"])
def test_what_waits_when_the_broker_changes_its_role_is_dispatched_again(agreed: str) -> None:
    disk, clock = lost(long_log)
    opened = Opened(
        disk, clock, config=small_config(flush_disk_type="SYNC_FLUSH"), hold_flushes=True
    )
    store = opened.until_open()
    ends = [store.max_physical_offset()]
    store.set_confirm_offset(ends[0])
    for number in range(2):
        store.put_message(message(HOT, b"late %d" % number))
        ends.append(store.max_physical_offset())
    clock.advance(0)
    opened.flushes.run()
    assert store.flushed_offset() == ends[2]
    shown = ("nothing", "one", "all").index(agreed)
    store.reput.confirm_offset = ends[shown]
    store.roles_changed(leads=True)
    assert store.max_offset(*HOT) == 600 + shown
    opened.complete()
    assert store.max_offset(*HOT) == 600 + shown
    store.set_confirm_offset(ends[-1])
    assert store.incomplete(*HOT) is None
    assert bodies(store, HOT)[600:] == [b"late 0", b"late 1"]
    assert len(bodies(store, HOT)) == 602
    store.put_message(message(HOT, b"next"))
    clock.advance(0)
    opened.flushes.run()
    store.set_confirm_offset(store.max_physical_offset())
    assert bodies(store, HOT, 602) == [b"next"]


def traffic(store: MessageStore, random: Random, number: int) -> None:
    """Something that a master may do."""
    body = b"%d" % number
    kind = random.randrange(12)
    if kind < 5:
        put(store, message(HOT, body, TAGS="t"))
    elif kind < 8:
        put(store, message(random.choice([COLD, OLD, ("New", random.randrange(3))]), body))
    elif kind == 8:
        put(store, batch(number))
    elif kind == 9:
        put(store, message(HOT, body, INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b"))
    elif kind == 10:
        put(store, message(COLD, body, TRANSACTION_PREPARED_TYPE))
    else:
        topic = random.choice(["Cold", "Old", "New", "Batches"])
        store.delete_topics([topic])


def contents(store: MessageStore) -> dict[Key, tuple[int, list[bytes]]]:
    """All queues that have messages: where they end, and what is read from their beginning on."""
    return {
        key: (store.max_offset(*key), bodies(store, key, store.min_offset(*key)))
        for key in sorted(store.queues())
        if store.max_offset(*key)
    }


def test_a_replica_takes_what_comes_before_its_queues_are_whole() -> None:
    opened = Opened(*lost(long_log), config=small_config(broker_role="SLAVE"))
    store = opened.until_open()
    end = store.max_physical_offset()
    for key, offset in ((HOT, 600), (COLD, 1), (("New", 0), 0)):
        record = encode_record(message(key, b"replicated"), offset, end, 1_700_000_000_000)
        assert store.append_raw(end, record)
        assert bodies(store, key, offset) == [b"replicated"]
        end = store.max_physical_offset()
    assert store.rebuild is not None
    opened.complete()
    assert len(bodies(store, HOT)) == 601
    assert bodies(store, COLD) == [b"cold", b"replicated"]
    assert bodies(store, ("New", 0)) == [b"replicated"]


@pytest.mark.parametrize("seed", range(20))
def test_a_replica_goes_on_while_its_queues_are_derived(seed: int) -> None:
    """They become the master's, whatever comes meanwhile, and whenever it is killed."""
    random = Random(seed)
    config = small_config(**ALL)
    disk, clock = MemoryDisk(), Clock()
    clock.advance(1_700_000_000)
    master = open_memory_store(disk, clock, config=config)
    master.use_topic_attributes(
        lambda topic: {"queue.type": "BatchCQ"} if topic == "Batches" else {}
    )
    for number in range(random.choice([40, 200])):
        traffic(master, random, number)
    replica_config = small_config(**ALL, broker_role="SLAVE")
    copy = MemoryDisk()
    replica = open_memory_store(copy, clock, config=replica_config)
    follow(replica, master, random, 1 << 30)
    replica.stop()
    for kind in ("consumequeue", "batchconsumequeue"):
        copy.rmtree(f"/store/{kind}")
    opened = Opened(copy, clock, config=replica_config)
    replica = opened.until_open()
    while replica.rebuild is not None:
        for number in range(random.randrange(4)):
            traffic(master, random, 1000 + number)
        follow(replica, master, random, random.choice([0, 300, 3000]))
        opened.pool.run(random.randrange(3))
        clock.advance(0.1)
        if random.random() < 0.02:
            kill(copy)
            opened = Opened(copy, clock, config=replica_config)
            replica = opened.until_open()
    follow(replica, master, random, 1 << 30)
    opened.complete()
    assert replica.max_physical_offset() == master.max_physical_offset()
    # What the master deleted and nobody made again is deleted by whoever copies its tables.
    found = contents(replica)
    assert {key: found.get(key) for key in contents(master)} == contents(master)


def follow(replica: MessageStore, master: MessageStore, random: Random, size: int) -> None:
    """Let a replica take about so many bytes of its master's log, as whole records."""
    wanted = replica.max_physical_offset() + size
    while (at := replica.max_physical_offset()) < min(wanted, master.max_physical_offset()):
        data = master.read_log(at, random.choice([4096, 30_000]))
        assert isinstance(data, bytes)
        assert replica.append_raw(at, data[: whole_records(data)])


def test_rows_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nextoffsets, "MAX_ROW_BYTES", 100)
    opened = Opened(*lost(long_log))
    store = opened.until_open()
    assert_waits(store, HOT, 595)
    assert put(store, message(HOT, b"new")).queue_offset == 600
    assert bodies(store, HOT, 600) == [b"new"]
    opened.complete()
    assert len(bodies(store, HOT)) == 601


def test_readers_of_batches_that_are_out_of_memory_wait_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fill(store: MessageStore) -> None:
        for number in range(200):
            put(store, message(HOT))
            put(store, batch(number))

    monkeypatch.setattr(nextoffsets, "MAX_ROW_BYTES", 100)
    opened = Opened(*lost(fill))
    store = opened.until_open()
    key = ("Batches", 0)
    for offset in (0, 300, 598, 599):
        assert_waits(store, key, offset)
        assert not store.is_readable(*key, offset)
    assert put(store, batch(200)).queue_offset == 600
    assert store.is_readable(*key, 601)
    assert len(bodies(store, key, 600)) == 1
    assert_waits(store, key, 599)
    opened.complete()
    assert len(bodies(store, key)) == 201


def test_batches_of_a_topic_that_was_made_anew_go_on_behind_the_last_one() -> None:
    def fill(store: MessageStore) -> None:
        for number in range(100):
            put(store, message(HOT))
            put(store, batch(number))
        store.delete_topics(["Batches"])
        for number in range(3):
            put(store, batch(number))

    opened = Opened(*lost(fill))
    store = opened.until_open()
    key = ("Batches", 0)
    assert store.max_offset(*key) == 9
    assert len(bodies(store, key)) == 3
    assert put(store, batch(3)).queue_offset == 9
    opened.complete()
    assert len(bodies(store, key)) == 4
    assert store.max_offset(*key) == 12


def test_what_comes_while_a_slow_read_goes_on_can_be_read() -> None:
    """A pull that found nothing asks before it is kept."""
    opened = Opened(*lost(long_log))
    store = opened.until_open()
    assert [store.is_readable(*HOT, offset) for offset in (0, 599, 600)] == [False, True, False]
    put(store, message(HOT, b"new"))
    assert [store.is_readable(*HOT, offset) for offset in (0, 600, 601)] == [False, True, False]
    assert not store.is_readable(*OLD, 0)
    opened.complete()
    assert [store.is_readable(*HOT, offset) for offset in (0, 600, 601)] == [True, True, False]
    assert store.is_readable(*OLD, 0)


def test_a_light_queue_that_is_deleted_meanwhile_begins_anew() -> None:
    light = ("%LMQ%a", 0)

    def fill(store: MessageStore) -> None:
        for _ in range(300):
            put(store, message(HOT, INNER_MULTI_DISPATCH="%LMQ%a"))

    disk, clock = lost(fill, **ALL)
    opened = Opened(disk, clock, config=small_config(**ALL))
    store = opened.until_open()
    store.delete_topics([light[0]])
    for number in range(10):
        put(store, message(HOT, b"new %d" % number, INNER_MULTI_DISPATCH="%LMQ%a"))
        for _ in range(3):
            opened.pool.run(1)
            opened.clock.advance(0.1)
            assert store.max_offset(*light) == number + 1
            assert bodies(store, light) == [b"new %d" % sent for sent in range(number + 1)]
    opened.complete()
    assert bodies(store, light) == [b"new %d" % number for number in range(10)]
    assert len(bodies(store, HOT)) == 310


@pytest.mark.parametrize("how", ["whole", "deleted"])
def test_a_light_queue_is_derived_beside_a_queue_that_is_not(how: str) -> None:
    light = ("%LMQ%a", 0)

    def fill(store: MessageStore) -> None:
        put(store, message(OLD, INNER_MULTI_DISPATCH="%LMQ%a"))
        for _ in range(300):
            put(store, message(HOT, INNER_MULTI_DISPATCH="%LMQ%a"))

    disk, clock = lost(fill, **ALL)
    opened = Opened(disk, clock, config=small_config(**ALL))
    store = opened.until_open()
    if how == "deleted":
        store.delete_topics(["Hot"])
    while store.incomplete(*OLD) is not None:
        opened.pool.run(1)
        opened.clock.advance(0.1)
    assert store.incomplete(*light) is not None
    put(store, message(OLD, b"new", INNER_MULTI_DISPATCH="%LMQ%a"))
    opened.complete()
    assert len(bodies(store, light)) == store.max_offset(*light) == 302
    assert bodies(store, light, 301) == [b"new"]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "bad sector"), StoreError("too much to do")])
def test_a_walk_that_cannot_read_the_log_goes_on_when_it_can(error: Exception) -> None:
    """Nobody else would: queues that are lost would stay so until the next start."""
    opened = Opened(*lost(long_log))
    store = opened.until_open()
    submit, failures = opened.pool.submit, [0]

    def failing(*args: Any) -> Deferred[Any]:
        failures[0] += 1
        return fail(error) if failures[0] % 3 else submit(*args)

    opened.pool.submit = failing  # type: ignore[method-assign]
    for _ in range(2000):
        opened.pool.run()
        opened.clock.advance(1)
        if store.rebuild is None:
            break
    assert store.rebuild is None
    assert failures[0] > 20
    assert len(bodies(store, HOT)) == 600
    assert bodies(store, OLD) == [b"old"]


def test_a_walk_that_fails_for_good_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Opened(*lost(long_log))
    store = opened.until_open()

    def fails(*args: object) -> None:
        raise OSError(errno.EROFS, "read-only file system")

    monkeypatch.setattr(store.reput, "derive_queues", fails)
    opened.complete()
    reason = store.recovering(*OLD)
    assert reason is not None
    assert "read-only file system" in reason
    assert store.write_refusal is not None
    opened.store.stop()
    opened.complete()
    assert opened.store.disk.exists("/store/abort")


def test_the_end_of_the_log_is_known_though_its_queue_is_not_whole() -> None:
    """A slave compares it with its master's."""
    opened = Opened(*lost(long_log))
    store = opened.until_open()
    put(store, message(HOT, b"last"))
    for _ in range(3):
        found = store.last_record()
        assert found is not None
        (record,) = decode_records(found[1])
        assert (record.body, found[0] + len(found[1])) == (b"last", store.max_physical_offset())
        opened.pool.run(10)
        opened.clock.advance(0.1)


def test_the_filler_of_a_file_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be as large as a file where damage was bridged."""
    ends: list[int] = []

    def fill(store: MessageStore) -> None:
        long_log(store)
        ends.append(store.max_physical_offset())

    disk, clock = lost(fill, mapped_file_size_commit_log=4 << 20)
    (name,) = disk.listdir("/store/commitlog")
    disk.write_at(f"/store/commitlog/{name}", ends[0], blank_record((4 << 20) - ends[0]))
    disk.create(f"/store/commitlog/{4 << 20:020d}", 4 << 20)
    record = encode_record(message(COLD, b"last"), 1, 4 << 20, 1_700_000_000_000)
    disk.write_at(f"/store/commitlog/{4 << 20:020d}", 0, record)
    read, sizes = disk.read_at, []

    def note(path: str, position: int, size: int) -> bytes:
        if "commitlog" in path:
            sizes.append(size)
        return read(path, position, size)

    monkeypatch.setattr(disk, "read_at", note)
    opened = Opened(disk, clock, config=small_config(mapped_file_size_commit_log=4 << 20))
    opened.until_open()
    store = opened.complete()
    assert bodies(store, COLD)[-1] == b"last"
    assert max(sizes) <= 1 << 20


def test_a_topic_that_is_deleted_meanwhile_begins_anew() -> None:
    opened = Opened(*lost(long_log))
    store = opened.until_open()
    put(store, message(HOT, b"old"))
    store.delete_topics(["Hot"])
    assert put(store, message(HOT, b"new")).queue_offset == 0
    opened.complete()
    assert bodies(store, HOT) == [b"new"]


def test_damage_in_an_old_file_is_found_by_the_walk_backwards_too() -> None:
    disk, clock = lost(long_log)
    names = disk.listdir("/store/commitlog")
    disk.write_at(f"/store/commitlog/{names[-3]}", 5000, b"\xff" * 10_000)
    opened = Opened(disk, clock)
    store = opened.until_open()
    opened.complete()
    reason = store.recovering(*OLD)
    assert reason is not None
    assert "txrocketmq store repair" in reason
    assert store.write_refusal is not None
    assert store.recovering(*HOT) is not None
