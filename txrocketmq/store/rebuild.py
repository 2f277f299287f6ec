"""How is a damaged store made whole again? Cut or bridge the log's damage, then derive queues and index anew.

For ``txrocketmq store repair`` and ``import``. The official broker knows only the cut at the first bad record, see
`txrocketmq.store.recover`. Everything blocks; the store's lock is held while anything changes.

Crash story: what is derived is moved aside, never deleted, and the abort file is there from before the first change until the
new files are on the device. A repair that was interrupted is begun again; a broker started instead recovers from the log.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocketmq.codec.record import blank_record, decode_record, encode_record, record_size
from txrocketmq.codec.seal import SEAL_BYTES, SEAL_HEAD, seal_fault
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IBlockingPool
from txrocketmq.model.flags import TRANSACTION_ROLLBACK_TYPE
from txrocketmq.model.message import MessageRecord, record_of
from txrocketmq.model.names import is_lmq
from txrocketmq.store.disk import RealDisk
from txrocketmq.store.inspect import LogFault, LogRecord, QueueFiles, StoreDirectory
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.queuetable import KINDS, AnyQueue
from txrocketmq.store.results import PutMessageResult

CUT, SKIP = "cut", "skip"

FILLER_TOPIC = "X"
"""Topic of the record that bridges damage. It is marked as rolled back, so it enters neither queues nor index."""

PROGRESS_BYTES = 1 << 26
"""After so many bytes somebody who waits is told how far it is."""

_DERIVED = (*KINDS, "index", "checkpoint")
_FLUSH_EVERY = 100_000


@attrs.frozen
class LogState:
    """What a walk over the whole log found.

    :ivar faults: the damage; only the last one may have no end: a torn tail.
    :ivar newest_ms: store time of the record before each fault.
    :ivar topics: queues that have a message in the log.
    """

    records: int
    faults: list[LogFault]
    newest_ms: list[int]
    queues: set[tuple[str, int]]

    @property
    def damage(self) -> list[LogFault]:
        """The faults with valid records behind them."""
        return [fault for fault in self.faults if fault.end is not None]


def read_log(store: StoreDirectory, progress: Callable[[int], object]) -> LogState:
    """Walk over the whole log."""
    records, newest_ms, said = 0, 0, store.min_offset
    state = LogState(0, [], [], set())
    for found in store.walk():
        item = found if isinstance(found, LogFault) else _with_good_seal(found)
        if isinstance(item, LogFault):
            state.faults.append(item)
            state.newest_ms.append(newest_ms)
            continue
        records += 1
        newest_ms = item.head.store_timestamp
        state.queues.add((item.head.topic, item.head.queue_id))
        if item.offset - said >= PROGRESS_BYTES:
            said = item.offset
            progress(said)
    return attrs.evolve(state, records=records)


def _with_good_seal(record: LogRecord) -> LogRecord | LogFault:
    """A record, or what is wrong with it where the checksum over all of it does not fit."""
    if record.head.properties[-SEAL_BYTES:].startswith(SEAL_HEAD):
        reason = seal_fault(record.data, False)
        if reason is not None:
            return LogFault(record.offset, record.offset + record.head.total_size, reason)
    return record


def repair(
    store: StoreDirectory,
    say: Callable[[str], object],
    progress: Callable[[int], object],
    *,
    how: str | None = None,
    base: MessageStoreConfig | None = None,
) -> Path:
    """Make the store whole; the directory to which old files were moved.

    :param how: `CUT` drops the log from the first damage on, `SKIP` bridges each damage.
    :param base: the broker's configuration: its ``messageDelayLevel``, and sizes of files that are gone.
    :raises StoreError: the store is in use, or damage in the middle and no word on what to do about it.
    """
    disk = RealDisk()
    root = store.root
    lock = disk.lock(f"{root}/lock")
    try:
        state = read_log(store, progress)
        if state.damage and how is None:
            raise StoreError(f"damage at {state.damage[0].start}: say --cut or --skip")
        config = store.config(base)
        disk.create(f"{root}/abort", 0)
        had_queues = {queue.topic for queue in store.queues()}
        aside = root / f"repair-{int(time.time() * 1000)}"
        aside.mkdir()
        disk.sync_directory(str(root))
        if state.damage and how == CUT:
            _cut(store, disk, state.damage[0].start, aside)
        else:
            store.make_files_whole()
            for fault, newest_ms in zip(state.faults, state.newest_ms, strict=True):
                if fault.end is not None:
                    _bridge(store, fault.start, fault.end, newest_ms)
        kept = _set_derived_aside(store, state, aside)
        disk.sync_all(str(root))
    finally:
        lock.release()
    if kept:
        say(f"kept {kept} queues whose messages the log does not hold any more")
    opened = open_store(config)
    known = store.known_topics()
    if known is not None:
        # As before: only the log remembers them.
        opened.queue_table.delete_topics(
            {
                topic
                for topic in opened.queue_table.topics()
                if topic not in known | had_queues and not is_lmq(topic)
            }
        )
    say(
        f"derived {sum(map(_has_messages, opened.queue_table.queues.values()))} queues and {len(opened.index.files)} index files; "
        f"the log ends at {opened.commit_log.max_offset}"
    )
    close_store(opened)
    return aside


def _has_messages(queue: AnyQueue) -> bool:
    return queue.max_physical_offset >= 0


def _cut(store: StoreDirectory, disk: RealDisk, offset: int, aside: Path) -> None:
    """End the log here; later files are moved aside."""
    for file in store.files:
        # One that was cut ends there, one that is too long has nothing behind its end.
        if file.base_offset < offset:
            disk.truncate(str(file.path), store.file_bytes)
    for file in store.files:
        if file.base_offset >= offset:
            (aside / "commitlog").mkdir(exist_ok=True)
            file.path.rename(aside / "commitlog" / file.path.name)
        elif file.base_offset + file.size > offset:
            disk.zero_from(str(file.path), offset - file.base_offset)


def _bridge(store: StoreDirectory, start: int, end: int, newest_ms: int) -> None:
    """Let readers of the log pass over bytes that are no record."""
    while start < end:
        found = store.buffer_at(start)
        assert found is not None, f"no file at {start}"
        file, _ = found
        file_end = file.base_offset + store.file_bytes
        if end >= file_end:
            data, next_start = blank_record(file_end - start), file_end
        else:
            data, next_start = _filler(start, end - start, newest_ms), end
        with file.path.open("r+b") as handle:
            handle.seek(start - file.base_offset)
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        start = next_start


def _filler(offset: int, size: int, newest_ms: int) -> bytes:
    record = MessageRecord(
        topic=FILLER_TOPIC,
        queue_id=0,
        body=b"",
        sys_flag=TRANSACTION_ROLLBACK_TYPE,
        born_timestamp=newest_ms,
    )
    room = size - record_size(record)
    if room < 0:
        raise StoreError(f"{size} bytes at {offset} are too few to be bridged: only cut")
    record.body = bytes(room)
    return encode_record(record, 0, offset, newest_ms)


def _set_derived_aside(store: StoreDirectory, state: LogState, aside: Path) -> int:
    """Move what can be derived; how many queues were kept: offsets must not go back where all messages have expired."""
    expired = [queue for queue in store.queues() if _is_expired(queue, store, state)]
    for name in _DERIVED:
        if (store.root / name).exists():
            (store.root / name).rename(aside / name)
    for queue in expired:
        kind = "batchconsumequeue" if queue.is_batch else "consumequeue"
        target = store.root / kind / queue.topic
        target.mkdir(parents=True, exist_ok=True)
        source = aside / kind / queue.topic / str(queue.queue_id)
        source.rename(target / str(queue.queue_id))
    return len(expired)


def _is_expired(queue: QueueFiles, store: StoreDirectory, state: LogState) -> bool:
    if (queue.topic, queue.queue_id) in state.queues or not queue.unit_count:
        return False
    low, high = queue.bounds(store.min_offset)
    return low == high


# --------------------------------------------------------------------------- a store without a reactor


@implementer(IBlockingPool)
class _HerePool:
    """Does all work at once: there is nobody to wait for it."""

    def submit(self, function: Callable[..., object], *args: object) -> Deferred[Any]:
        return maybeDeferred(function, *args)

    def stop(self) -> Deferred[None]:
        return succeed(None)


def open_store(config: MessageStoreConfig, clock: Clock | None = None) -> MessageStore:
    """Open a store for one command; it holds the lock and recovers.

    :raises StoreError: as `MessageStore.load`.
    """
    if clock is None:
        clock = Clock()
        clock.rightNow = time.time()
    pool = _HerePool()
    store = MessageStore(config, RealDisk(), clock, pool=pool, flush_pool=pool, read_pool=pool)
    _finish(store.load())
    return store


def close_store(store: MessageStore) -> None:
    """Bring everything to the device and give the lock back.

    :raises StoreError: not everything could be written; the next start will recover.
    """
    _finish(store.stop())


def _finish(work: Deferred[None]) -> None:
    failures: list[Failure] = []
    work.addErrback(failures.append)
    for failure in failures:
        failure.raiseException()


# --------------------------------------------------------------------------- import


def import_messages(
    config: MessageStoreConfig,
    data: bytes | memoryview,
    say: Callable[[str], object],
    progress: Callable[[int], object] = lambda _: None,
) -> tuple[int, int]:
    """Append exported records, each to its topic and queue, behind what is there; how many were taken and how many not.

    Offsets are new; store times are kept where they are not older than the newest one.

    :param data: records one behind the other.
    :param progress: called with the position in the data, now and then.
    :raises RecordError: naming the position of the first bad record; those before it are in the store.
    """
    clock = Clock()
    store = open_store(config, clock)
    taken = refused = position = said = 0
    try:
        newest = store.checkpoint.physic_msg_timestamp_ms
        while position < len(data):
            message, position = decode_record(data, position)
            newest = max(newest, message.store_timestamp)
            # Half a millisecond more: seconds are not exact.
            clock.rightNow = (newest + 0.5) / 1000
            result = store.put_message(record_of(message))
            if isinstance(result, PutMessageResult) and result.is_ok:
                taken += 1
            else:
                refused += 1
                status = result.status.name if isinstance(result, PutMessageResult) else result
                say(f"message {message.msg_id} of {message.topic} is not taken: {status}")
            if position - said >= PROGRESS_BYTES:
                said = position
                progress(position)
            if taken % _FLUSH_EVERY == 0:
                store.queue_table.flush()
    finally:
        close_store(store)
    return taken, refused


def export_messages(records: Iterable[LogRecord], write: Callable[[bytes], object]) -> int:
    """Write records one behind the other; how many."""
    count = 0
    for record in records:
        write(record.data)
        count += 1
    return count
