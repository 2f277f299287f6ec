"""Is a message that was said to be safe on the device, and is nobody told so too early, too late or never?"""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from zope.interface.verify import verifyObject

from txrocketmq.interfaces import ICommitWaiter
from txrocketmq.model.message import MessageRecord
from txrocketmq.store.commitlog import CommitLog
from txrocketmq.store.flush import GroupCommit, LogFlusher
from txrocketmq.store.mapped import MappedFile, MappedFileQueue, file_name
from txrocketmq.store.results import PutMessageStatus
from txrocketmq.testing.disk import MemoryDisk, MemoryMapping
from txrocketmq.testing.pools import ImmediatePool, ManualPool

FILE = 64 * 1024


def outcomes(*waiters: Deferred[bool]) -> list[bool | None]:
    """What waiters were told so far."""
    told: list[bool | None] = []
    for waiter in waiters:
        told.append(bool(waiter.result) if waiter.called else None)
    return told


# --------------------------------------------------------------------------- group commit


def test_provides_the_interface() -> None:
    verifyObject(ICommitWaiter, GroupCommit(Clock()))


def test_one_report_answers_everybody_below_it() -> None:
    group = GroupCommit(Clock())
    waiters = [group.wait_for(offset, 5000) for offset in (300, 100, 200, 201)]
    group.advance(200)
    assert outcomes(*waiters) == [None, True, True, None]
    group.advance(150)
    assert group.safe_offset == 200
    group.advance(300)
    assert outcomes(*waiters) == [True, True, True, True]
    assert len(group) == 0


def test_what_is_safe_already_needs_no_waiting() -> None:
    group = GroupCommit(Clock(), safe_offset=50)
    assert outcomes(group.wait_for(50, 5000), group.wait_for(51, 5000)) == [True, None]


def test_waiters_are_told_false_at_their_own_deadline() -> None:
    clock = Clock()
    group = GroupCommit(clock)
    long = group.wait_for(10, 5000)
    clock.advance(1)
    short = group.wait_for(20, 1000)
    clock.advance(0.999)
    assert outcomes(long, short) == [None, None]
    clock.advance(0.002)
    assert outcomes(long, short) == [None, False]
    clock.advance(2.998)
    assert outcomes(long) == [None]
    clock.advance(0.002)
    assert outcomes(long) == [False]
    group.advance(100)
    assert clock.getDelayedCalls() == []


def test_an_answer_after_the_deadline_changes_nothing() -> None:
    clock = Clock()
    group = GroupCommit(clock)
    waiter = group.wait_for(10, 1000)
    clock.advance(1)
    group.advance(10)
    assert outcomes(waiter) == [False]


def test_one_timed_call_serves_all_waiters() -> None:
    clock = Clock()
    group = GroupCommit(clock)
    for offset in range(1, 1000):
        group.wait_for(offset, 5000)
    assert len(clock.getDelayedCalls()) == 1
    group.close()
    assert clock.getDelayedCalls() == []


def test_after_a_failure_nobody_waits() -> None:
    group = GroupCommit(Clock(), safe_offset=5)
    waiter = group.wait_for(10, 5000)
    group.fail()
    assert outcomes(waiter, group.wait_for(11, 5000), group.wait_for(5, 1)) == [False, False, True]


def test_a_waiter_may_wait_again_from_its_answer() -> None:
    group = GroupCommit(Clock())
    later: list[Deferred[bool]] = []
    group.wait_for(10, 5000).addCallback(lambda _: later.append(group.wait_for(20, 5000)))
    group.advance(10)
    assert outcomes(*later) == [None]
    group.advance(20)
    assert outcomes(*later) == [True]


@given(st.lists(st.tuples(st.sampled_from(["wait", "safe", "time"]), st.integers(1, 50))))
def test_everybody_is_answered_once_and_truly(steps: list[tuple[str, int]]) -> None:
    clock = Clock()
    group = GroupCommit(clock)
    safe, now = 0, 0
    waiting: list[tuple[int, int, list[bool]]] = []
    for step, number in steps:
        if step == "wait":
            told: list[bool] = []
            waiting.append((number, now + 10, told))
            group.wait_for(number, 10_000).addCallback(told.append)
        elif step == "safe":
            safe = max(safe, number)
            group.advance(number)
        else:
            now += number % 15
            clock.advance(number % 15)
        still = []
        for offset, deadline, told in waiting:
            if told:
                assert told == [offset <= safe] or deadline <= now
            else:
                assert offset > safe
                assert deadline > now
                still.append((offset, deadline, told))
        waiting = still
    group.close()
    assert [told for _, _, told in waiting] == [[False]] * len(waiting)


# --------------------------------------------------------------------------- the log on its disk


class Store:
    """A commit log on a memory disk with its flusher."""

    def __init__(self, pool: ManualPool | ImmediatePool | None = None, **config: int) -> None:
        self.disk = MemoryDisk()
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.pool = pool or ManualPool()
        queue = MappedFileQueue(self.disk, "/log", FILE, ImmediatePool())
        queue.load()
        queue.open_for_append()
        keys: dict[str, object] = {
            "flush_disk_type": "SYNC_FLUSH",
            "max_message_size": FILE,
            "enabled_append_prop_crc": False,
            "force_verify_prop_crc": False,
            "flush_interval_commit_log": 500,
            "flush_commit_log_least_pages": 4,
            "flush_commit_log_thorough_interval": 10_000,
            **config,
        }
        self.config = SimpleNamespace(**keys)
        self.log = CommitLog(queue, self.clock, self.config)
        self.flusher = LogFlusher(self.log, self.pool, self.clock, self.config)
        self.flusher.start()
        self.disk.syncs.clear()

    def put(self, size: int = 100) -> int:
        """Append a message with a body of this size; the offset behind it."""
        result = self.log.append(MessageRecord(topic="T", queue_id=0, body=b"x" * size), 0)
        assert result.status is PutMessageStatus.PUT_OK
        return result.physical_offset + result.wrote_bytes

    def put_and_wait(self) -> Deferred[bool]:
        return self.flusher.when_flushed(self.put(), 5000)

    def run(self) -> int:
        """Let the pool do what there is; how many jobs."""
        assert isinstance(self.pool, ManualPool)
        self.clock.advance(0)
        return self.pool.run(1) if self.pool.pending else 0


def test_sixteen_waiters_of_one_turn_share_one_sync() -> None:
    store = Store()
    waiters = [store.put_and_wait() for _ in range(16)]
    assert outcomes(*waiters) == [None] * 16
    assert store.run() == 1
    assert outcomes(*waiters) == [True] * 16
    assert store.disk.syncs == [(f"/log/{file_name(0)}", 0, store.log.max_offset)]
    assert store.run() == 0
    assert store.log.flushed_offset == store.log.max_offset
    assert store.flusher.flushed_timestamp_ms == 1_700_000_000_000


def test_who_appends_while_a_sync_runs_waits_for_the_next() -> None:
    store = Store()
    first = store.put_and_wait()
    store.clock.advance(0)
    assert isinstance(store.pool, ManualPool)
    # The sync was handed over: what comes now is not covered, even if the thread begins only later.
    second = store.put_and_wait()
    store.pool.work()
    third = store.put_and_wait()
    assert outcomes(first, second, third) == [None, None, None]
    store.pool.deliver()
    assert outcomes(first, second, third) == [True, None, None]
    assert store.run() == 1
    assert outcomes(second, third) == [True, True]
    assert len(store.disk.syncs) == 2


def test_the_next_sync_begins_before_the_waiters_of_the_last_one_are_answered() -> None:
    store = Store()
    assert isinstance(store.pool, ManualPool)
    pool = store.pool
    begun: list[int] = []
    first = store.put_and_wait().addCallback(lambda done: begun.append(pool.pending) or done)
    store.clock.advance(0)
    second = store.put_and_wait()
    pool.run(1)
    assert outcomes(first, second) == [True, None]
    assert begun == [1]
    pool.run(1)
    assert outcomes(second) == [True]


def test_a_sync_reaches_over_the_end_of_a_file() -> None:
    store = Store()
    waiters = [store.flusher.when_flushed(store.put(30_000), 5000) for _ in range(3)]
    assert store.run() == 1
    assert outcomes(*waiters) == [True, True, True]
    assert {path for path, start, end in store.disk.syncs if end > start} == {
        f"/log/{file_name(0)}",
        f"/log/{file_name(FILE)}",
    }
    store.disk.crash()
    assert store.disk.read_at(f"/log/{file_name(FILE)}", 4, 4) == b"\xda\xa3\x20\xa7"


def test_acknowledged_messages_survive_a_power_failure() -> None:
    store = Store()
    safe = store.put_and_wait()
    store.run()
    assert outcomes(safe) == [True]
    end = store.log.max_offset
    unsafe = store.put_and_wait()
    assert outcomes(unsafe) == [None]
    store.disk.crash()
    queue = MappedFileQueue(store.disk, "/log", FILE, ImmediatePool())
    queue.load()
    scan = CommitLog(queue, store.clock, store.config).scan(0, check_crc=True)
    assert [offset + head.total_size for offset, head in scan] == [end]


def test_a_slow_disk_answers_false_after_the_timeout() -> None:
    store = Store()
    waiter = store.put_and_wait()
    store.clock.advance(0)
    store.clock.advance(4.9)
    assert outcomes(waiter) == [None]
    store.clock.advance(0.2)
    assert outcomes(waiter) == [False]
    store.run()
    assert store.log.flushed_offset == store.log.max_offset
    assert store.log.read_only is None


def test_an_io_error_tells_all_waiters_and_ends_writing_until_restart() -> None:
    store = Store()
    waiting = [store.put_and_wait() for _ in range(3)]
    store.disk.sync_error = OSError(errno.EIO, "Input/output error")
    store.clock.advance(0)
    late = store.put_and_wait()
    store.run()
    assert outcomes(*waiting, late) == [False] * 4
    store.disk.sync_error = None
    refused = store.log.append(MessageRecord(topic="T", queue_id=0, body=b""), 0)
    assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert store.log.flushed_offset == 0
    assert store.log.read_only is not None
    assert "EIO" in store.log.read_only
    # A sync that would succeed now proves nothing: none is done.
    store.clock.pump([0.5] * 40)
    assert store.run() == 0
    stopped: list[bool] = []
    store.flusher.stop().addCallback(stopped.append)
    assert stopped == [False]
    assert store.log.flushed_offset == 0


def test_no_space_at_a_sync_is_no_end() -> None:
    store = Store()
    waiter = store.put_and_wait()
    store.disk.sync_error = OSError(errno.ENOSPC, "No space left on device")
    store.run()
    assert outcomes(waiter) == [False]
    store.disk.sync_error = None
    again = store.put_and_wait()
    store.run()
    assert outcomes(again) == [True]
    assert store.log.flushed_offset == store.log.max_offset


def test_a_message_that_does_not_wait_is_synced_all_the_same() -> None:
    store = Store()
    store.put()
    store.flusher.wake()
    store.flusher.wake()
    assert store.run() == 1
    assert store.log.flushed_offset == store.log.max_offset


class ManualKernel:
    """Syncs of the kernel that end when the test says so.

    :ivar asked: the marks of the syncs that were asked for.
    """

    def __init__(self) -> None:
        self.is_open = True
        self.asked: list[int] = []
        self._under_way: list[Deferred[None]] = []

    def sync(self, descriptor: int, end: int) -> Deferred[None] | None:
        assert descriptor == 7
        self.asked.append(end)
        self._under_way.append(Deferred())
        return self._under_way[-1]

    def end(self, error: OSError | None = None) -> None:
        """The oldest one is over."""
        job = self._under_way.pop(0)
        if error is None:
            job.callback(None)
        else:
            job.errback(error)


def store_with_kernel() -> tuple[Store, ManualKernel]:
    store, kernel = Store(), ManualKernel()
    store.flusher.kernel_syncs = kernel
    tail = store.log.queue.tail
    assert isinstance(tail, MappedFile)
    assert isinstance(tail.mapping, MemoryMapping)
    tail.mapping.descriptor = 7
    return store, kernel


def test_senders_wait_for_the_kernels_sync_without_a_thread() -> None:
    store, kernel = store_with_kernel()
    first = store.put_and_wait()
    end = store.log.max_offset
    store.clock.advance(0)
    second = store.put_and_wait()
    assert isinstance(store.pool, ManualPool)
    assert store.pool.pending == 0
    assert outcomes(first, second) == [None, None]
    kernel.end()
    assert outcomes(first, second) == [True, None]
    assert store.log.flushed_offset == end
    # The next one was handed over at once, and covers what was there by then.
    assert kernel.asked == [end, store.log.max_offset]
    kernel.end()
    assert outcomes(second) == [True]
    assert store.flusher.sync_count == 2


@pytest.mark.parametrize("why", ["closed", "asynchronous", "no descriptor"])
def test_where_the_kernel_is_not_asked_the_pool_syncs(why: str) -> None:
    store, kernel = store_with_kernel()
    if why == "closed":
        kernel.is_open = False
    elif why == "asynchronous":
        store.config.flush_disk_type = "ASYNC_FLUSH"
    else:
        tail = store.log.queue.tail
        assert tail is not None
        assert isinstance(tail.mapping, MemoryMapping)
        tail.mapping.descriptor = None
    waiter = store.put_and_wait()
    assert store.run() == 1
    assert outcomes(waiter) == [True]
    assert kernel.asked == []


def test_a_sync_over_the_end_of_a_file_is_the_pools() -> None:
    store, kernel = store_with_kernel()
    waiters = [store.flusher.when_flushed(store.put(30_000), 5000) for _ in range(3)]
    tail = store.log.queue.tail
    assert isinstance(tail, MappedFile)
    assert isinstance(tail.mapping, MemoryMapping)
    tail.mapping.descriptor = 7
    store.run()
    assert outcomes(*waiters) == [True, True, True]
    assert kernel.asked == []


def test_an_io_error_of_the_kernels_sync_is_noted_before_anybody_is_told() -> None:
    store, kernel = store_with_kernel()
    lost: list[int] = []
    store.flusher.on_lost = lost.append
    waiter = store.put_and_wait()
    store.clock.advance(0)
    kernel.end(OSError(errno.EIO, "Input/output error"))
    assert (lost, outcomes(waiter)) == ([], [None])
    assert isinstance(store.pool, ManualPool)
    store.pool.run(1)
    assert (lost, outcomes(waiter)) == ([0], [False])
    assert store.log.read_only is not None
    assert store.log.flushed_offset == 0


@pytest.mark.parametrize("under_way", [False, True], ids=["next sync", "sync under way"])
def test_an_error_while_pages_are_made_ready_is_noted_and_ends_writing(under_way: bool) -> None:
    store, kernel = store_with_kernel()
    lost: list[int] = []
    store.flusher.on_lost = lost.append
    first = store.put_and_wait()
    store.clock.advance(0)
    if not under_way:
        kernel.end()
        assert outcomes(first) == [True]
    flushed = store.log.flushed_offset
    store.flusher.ahead_failed(OSError(errno.ENOSPC, "No space left on device"))
    assert lost == []
    store.flusher.ahead_failed(OSError(errno.EIO, "Input/output error"))
    assert lost == [flushed]
    second = store.put_and_wait()
    store.clock.advance(0)
    # The kernel says that all is well: the error was told to somebody else.
    kernel.end()
    assert outcomes(second) == [False]
    assert outcomes(first) == [not under_way]
    assert "EIO" in (store.log.read_only or "")
    assert store.log.flushed_offset == flushed


def test_what_is_made_ready_is_synced_at_once_only_where_whole_files_are_synced() -> None:
    store, kernel = store_with_kernel()
    assert store.flusher.syncs_whole_files()
    store.config.flush_disk_type = "ASYNC_FLUSH"
    assert not store.flusher.syncs_whole_files()
    store.config.flush_disk_type = "SYNC_FLUSH"
    kernel.is_open = False
    assert not store.flusher.syncs_whole_files()


# --------------------------------------------------------------------------- asynchronous flush


def test_four_pages_are_flushed_at_the_next_interval() -> None:
    store = Store(pool=ImmediatePool())
    store.put(4 * 4096)
    store.clock.advance(0.49)
    assert store.disk.syncs == []
    store.clock.advance(0.02)
    assert store.log.flushed_offset == store.log.max_offset
    assert len(store.disk.syncs) == 1


def test_less_waits_for_the_thorough_interval() -> None:
    store = Store(pool=ImmediatePool())
    store.put(3 * 4096)
    store.clock.pump([0.5] * 19)
    assert store.disk.syncs == []
    store.clock.pump([0.5] * 2)
    assert store.log.flushed_offset == store.log.max_offset
    store.clock.pump([0.5] * 100)
    assert len(store.disk.syncs) == 1


def test_a_new_file_makes_the_old_one_due() -> None:
    store = Store(pool=ImmediatePool())
    store.put(FILE - 8192)
    store.clock.advance(0.5)
    flushed = store.log.flushed_offset
    store.put(8200)
    assert store.log.max_offset > FILE > flushed
    store.clock.advance(0.5)
    assert store.log.flushed_offset == store.log.max_offset


def test_intervals_are_read_at_each_use() -> None:
    store = Store(pool=ImmediatePool())
    store.config.flush_interval_commit_log = 100
    store.clock.advance(0.5)
    store.put(4 * 4096)
    store.clock.advance(0.11)
    assert store.log.flushed_offset == store.log.max_offset


def test_a_slow_flush_is_not_started_twice() -> None:
    store = Store()
    store.put(4 * 4096)
    store.clock.pump([0.5] * 10)
    store.put(4 * 4096)
    store.clock.pump([0.5] * 10)
    assert isinstance(store.pool, ManualPool)
    assert store.pool.pending == 1


# --------------------------------------------------------------------------- stop


@pytest.mark.parametrize("busy", [False, True])
def test_stop_flushes_what_is_left_and_answers_all(busy: bool) -> None:
    store = Store()
    if busy:
        store.put_and_wait()
        store.clock.advance(0)
    waiter = store.put_and_wait()
    stopped: list[bool] = []
    store.flusher.stop().addCallback(stopped.append)
    assert stopped == []
    assert isinstance(store.pool, ManualPool)
    store.pool.run()
    assert stopped == [True]
    assert outcomes(waiter) == [True]
    assert store.log.flushed_offset == store.log.max_offset
    assert store.clock.getDelayedCalls() == []


def test_stop_with_nothing_to_do_is_done_at_once() -> None:
    store = Store()
    stopped: list[bool] = []
    store.flusher.stop().addCallback(stopped.append)
    assert stopped == [True]
    assert store.disk.syncs == []


def test_stop_gives_up_on_a_full_disk() -> None:
    store = Store()
    store.put()
    store.disk.sync_error = OSError(errno.ENOSPC, "No space left on device")
    stopped: list[bool] = []
    store.flusher.stop().addCallback(stopped.append)
    assert isinstance(store.pool, ManualPool)
    assert store.pool.run() == 10
    assert stopped == [False]
