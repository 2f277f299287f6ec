"""Keys of the official store that steer locks, buffers and files made ahead; and a stop with messages that nobody can read yet."""

from __future__ import annotations

import errno

import pytest
from twisted.internet.task import Clock

from txrocketmq.model.message import MessageRecord
from txrocketmq.store.message_store import MessageStore
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool, ManualPool
from txrocketmq.testing.store import ROOT, open_memory_store, small_config

MIB = 1 << 20


def put(store: MessageStore, number: int) -> None:
    store.put_message(MessageRecord(topic="T", queue_id=number % 3, body=b"%d" % number))


def log_of(store: MessageStore) -> bytes:
    return store.read_log(0, store.max_physical_offset())


# ----------------------------------------------------------------- ST-05, ST-16


@pytest.mark.parametrize(
    "keys",
    [
        {"use_reentrant_lock_when_put_message": False},
        {"use_abs_lock": True},
        {"transient_store_pool_enable": True, "transient_store_pool_size": 2},
        {"transient_store_pool_enable": True, "fast_fail_if_no_buffer_in_store_pool": True},
    ],
    ids=lambda keys: "-".join(keys),
)
def test_locks_and_buffers_of_the_official_store_change_nothing(keys: dict[str, object]) -> None:
    plain = open_memory_store()
    other = open_memory_store(config=small_config(**keys))
    for number in range(100):
        put(plain, number)
        put(other, number)
    assert log_of(other) == log_of(plain)
    assert other.max_offset("T", 1) == plain.max_offset("T", 1) == 33


def test_messages_get_their_places_in_the_order_in_which_they_come() -> None:
    # One thread appends: the order of the log is the order of the queues.
    store = open_memory_store()
    for number in range(200):
        put(store, number)
    scan = store.commit_log.scan(0)
    offsets: dict[int, list[int]] = {}
    for _, head in scan:
        offsets.setdefault(head.queue_id, []).append(head.queue_offset)
    assert {queue_id: list(range(len(found))) for queue_id, found in offsets.items()} == offsets


# ----------------------------------------------------------------- ST-17


@pytest.mark.parametrize(("warm", "expected"), [(False, MIB), (True, 8 * MIB)])
def test_a_whole_file_is_made_ready_when_asked_for(warm: bool, expected: int) -> None:
    config = small_config(mapped_file_size_commit_log=8 * MIB, warm_maped_file_enable=warm)
    pool = ImmediatePool()
    store = MessageStore(
        config,
        MemoryDisk(),
        Clock(),
        pool=pool,
        flush_pool=pool,
        read_pool=pool,
        window_bytes=MIB,
    )
    store.load()
    store.start()
    tail = store.commit_log.queue.tail
    assert tail is not None
    assert tail.mapping is not None
    assert expected <= tail.mapping.allocated_to() <= max(expected, 2 * MIB)


# ----------------------------------------------------------------- ST-36


def test_a_stop_with_messages_that_nobody_can_read_leaves_the_abort_file() -> None:
    disk, flush = MemoryDisk(), ManualPool()
    pool = ImmediatePool()
    config = small_config(flush_disk_type="SYNC_FLUSH")
    store = MessageStore(config, disk, Clock(), pool=pool, flush_pool=flush, read_pool=pool)
    store.load()
    store.start()
    for number in range(10):
        put(store, number)
    behind = store.max_physical_offset()
    assert store.dispatch_behind_bytes == behind > 0
    assert store.max_offset("T", 0) == 0
    disk.sync_error = OSError(errno.ENOSPC, "no room")
    ended: list[object] = []
    store.stop().addBoth(ended.append)
    while not ended:
        flush.run()
    assert ended == [None]
    assert disk.exists(f"{ROOT}/abort")
    # The next start shows them.
    disk.sync_error = None
    again = open_memory_store(disk)
    assert again.dispatch_behind_bytes == 0
    assert again.max_offset("T", 0) == 4
    again.stop()
    assert not disk.exists(f"{ROOT}/abort")
