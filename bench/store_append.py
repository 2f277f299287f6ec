"""How many messages a second does the bare commit log take? Against a raw copy of the same bytes into a mapping.

Run it as ``python bench/store_append.py [DIRECTORY]``. The log is filled in turns of the reactor, as a broker does, with real
pools; each figure is the best of three. "record" is the encoding alone, "append" the whole of `CommitLog.append`. The raw copy goes
into a fresh mapping with allocated blocks, and again into the same pages.
"""

from __future__ import annotations

import mmap
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults, inlineCallbacks
from twisted.internet.task import deferLater, react

from txrocketmq.codec.record import encode_record
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.model.message import MessageRecord
from txrocketmq.service.pools import BlockingPool
from txrocketmq.store.commitlog import CommitLog
from txrocketmq.store.disk import RealDisk
from txrocketmq.store.flush import LogFlusher
from txrocketmq.store.mapped import MappedFileQueue

MIB = 1 << 20
TURN = 64
ROUNDS = 3
CONFIG = MessageStoreConfig(max_message_size=4 * MIB)


def message(body_bytes: int) -> MessageRecord:
    return MessageRecord(
        topic="BenchmarkTest",
        queue_id=3,
        body=os.urandom(body_bytes),
        properties=b"UNIQ_KEY\x01AC1100020BB8251A69D77D3E1B2A0000\x02WAIT\x01true\x02TAGS\x01TagA\x02",
        born_timestamp=1_700_000_000_000,
        born_host=("192.0.2.10", 52113),
        store_host=("192.0.2.1", 10911),
    )


class Bench:
    """One log in a directory of its own."""

    def __init__(self, place: Path, file_bytes: int) -> None:
        self.place = place
        self.flush_pool = BlockingPool(reactor, "flush", 1)  # type: ignore[arg-type]
        self.files_pool = BlockingPool(reactor, "files", 1)  # type: ignore[arg-type]
        queue = MappedFileQueue(RealDisk(), str(place / "log"), file_bytes, self.files_pool)
        queue.load()
        queue.open_for_append()
        self.log = CommitLog(queue, reactor, CONFIG)  # type: ignore[arg-type]
        self.flusher = LogFlusher(self.log, self.flush_pool, reactor, CONFIG)  # type: ignore[arg-type]
        self.flusher.start()

    @inlineCallbacks
    def close(self) -> Generator[Deferred[Any], Any, None]:
        yield self.flusher.stop()
        yield self.log.queue.close()
        yield self.flush_pool.stop()
        yield self.files_pool.stop()
        shutil.rmtree(self.place / "log")

    @inlineCallbacks
    def append(self, record: MessageRecord, count: int) -> Generator[Deferred[Any], Any, Any]:
        """Seconds in all, seconds in `append` alone, appends that were refused for the moment."""
        append, inside, refused, done = self.log.append, 0.0, 0, 0
        begin = time.perf_counter()
        while done < count:
            start = time.perf_counter()
            for _ in range(TURN):
                if append(record, done).is_ok:
                    done += 1
                else:
                    refused += 1
                    break
            inside += time.perf_counter() - start
            yield deferLater(reactor, 0)  # type: ignore[arg-type]
        return time.perf_counter() - begin, inside, refused

    @inlineCallbacks
    def sync(
        self, record: MessageRecord, waiters: int, seconds: float
    ) -> Generator[Deferred[Any], Any, Any]:
        """So many producers that each wait for the flush before they send again; messages, syncs, seconds."""
        begin = time.perf_counter()
        sent, syncs = [0], self.flusher.sync_count

        def send(_: object = None) -> Deferred[Any] | None:
            if time.perf_counter() - begin > seconds:
                return None
            result = self.log.append(record, 0)
            sent[0] += result.is_ok
            end = result.physical_offset + result.wrote_bytes
            return self.flusher.when_flushed(end, 5000)

        @inlineCallbacks
        def produce() -> Generator[Deferred[Any], Any, None]:
            while (answer := send()) is not None:
                yield answer

        yield gatherResults([produce() for _ in range(waiters)])
        return sent[0], self.flusher.sync_count - syncs, time.perf_counter() - begin


def each(count: int, work: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - start) / count


def raw_copy(place: Path, data: bytes, count: int) -> tuple[float, float]:
    """Seconds for one copy into a fresh mapping, and into pages that are there."""
    size = len(data)
    with open(place / "raw", "w+b") as file:
        file.truncate(size * count)
        os.posix_fallocate(file.fileno(), 0, size * count)
        with mmap.mmap(file.fileno(), size * count) as mapped:
            times = []
            for _ in range(2):
                start = time.perf_counter()
                for position in range(0, size * count, size):
                    mapped[position : position + size] = data
                times.append((time.perf_counter() - start) / count)
    os.unlink(place / "raw")
    return times[0], times[1]


@inlineCallbacks
def appends(place: Path) -> Generator[Deferred[Any], Any, None]:
    print("\nAppends, us each; share: raw fresh copy / append in all")
    print(
        f"  {'body':>6} {'record':>8} {'append':>8} {'in all':>8} {'raw fresh':>10} {'raw warm':>9} "
        f"{'share':>6} {'appends/s':>10} {'MB/s':>6} {'refused':>8}"
    )
    for body_bytes, count in ((128, 100_000), (1024, 100_000), (16384, 20_000)):
        record = message(body_bytes)
        data = encode_record(record, 0, 0, 1_700_000_000_000)
        encode = min(
            each(20_000, lambda record=record: encode_record(record, 0, 0, 1_700_000_000_000))  # type: ignore[misc]
            for _ in range(ROUNDS)
        )
        raws = [raw_copy(place, data, count) for _ in range(ROUNDS)]
        fresh, warm = min(raw[0] for raw in raws), min(raw[1] for raw in raws)
        runs = []
        for _ in range(ROUNDS):
            bench = Bench(place, 1 << 30)
            runs.append((yield bench.append(record, count)))
            yield bench.close()
        in_all, inside, refused = min(runs)
        print(
            f"  {body_bytes:>6} {encode * 1e6:>8.2f} {inside / count * 1e6:>8.2f} {in_all / count * 1e6:>8.2f} "
            f"{fresh * 1e6:>10.2f} {warm * 1e6:>9.2f} {fresh * count / in_all:>6.2f} "
            f"{count / in_all:>10,.0f} {len(data) * count / in_all / 1e6:>6.0f} {refused:>8}"
        )


@inlineCallbacks
def syncs(place: Path) -> Generator[Deferred[Any], Any, None]:
    print("\nSYNC_FLUSH, bodies of 1 KiB")
    print(f"  {'waiters':>8} {'us/message':>11} {'messages/s':>11} {'messages/sync':>14}")
    for waiters in (1, 16, 64):
        bench = Bench(place, 1 << 30)
        count, synced, seconds = yield bench.sync(message(1024), waiters, 2.0)
        yield bench.close()
        print(
            f"  {waiters:>8} {seconds / count * 1e6:>11.1f} {count / seconds:>11,.0f} {count / synced:>14.1f}"
        )


@inlineCallbacks
def main(_: object, directory: str | None = None) -> Generator[Deferred[Any], Any, None]:
    place = Path(tempfile.mkdtemp(prefix="append-", dir=directory))
    try:
        yield appends(place)
        yield syncs(place)
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    react(main, sys.argv[1:2])
