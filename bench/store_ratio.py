"""How near does the bare store come to a plain copy of the same bytes into a mapping?

    python -m bench.store_ratio [DIRECTORY]

CPU microseconds of the reactor's thread for a message, best of some rounds, for bodies of 128 B, 1 KiB and 16 KiB. *raw* is a loop of slice
assignments of the finished record into a new file's mapping, with its page faults, by Python; *ready* the same once the pages are there, which is
what the store writes into, because its pool makes them ready. *append* is the log alone: record, CRC, place, the answer; *batch* the same for client
batches (32 messages, 4 of 16 KiB). *put* is the whole store, with queue unit and index entries. Ratios are raw by ours: 1 is a plain copy. *process*
is append with what the pool does beside it.
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
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.task import deferLater, react

from bench.pooled_store import pooled_store, stop_pooled
from txrocketmq import native
from txrocketmq.codec import crc
from txrocketmq.codec.record import BatchItem, encode_record
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import format_properties

ROUNDS = 5
TURN_BYTES = 1 << 20
TARGETS = {1024: 0.25, 16384: 0.5}


def message(body_bytes: int) -> MessageRecord:
    """A message as an official producer sends it."""
    uniq_key = "C0A8000100002A139A570000000001"
    return MessageRecord(
        topic="BenchmarkTest",
        queue_id=1,
        body=os.urandom(body_bytes),
        properties=format_properties({"UNIQ_KEY": uniq_key, "WAIT": "true", "TAGS": "TagA"}),
        tags_code=tags_code("TagA"),
        born_host=("10.0.0.1", 34567),
        store_host=("10.0.0.2", 10911),
        born_timestamp=1_700_000_000_000,
        uniq_key=uniq_key,
    )


def raw_copy(place: Path, data: bytes, count: int) -> tuple[float, float]:
    """CPU microseconds of one copy into a new file's mapping, and into pages that are there."""
    size = len(data)
    with open(place / "raw", "w+b") as file:
        os.posix_fallocate(file.fileno(), 0, size * count)
        with mmap.mmap(file.fileno(), size * count) as mapped:
            times = []
            for _ in range(2):
                start = time.thread_time()
                for position in range(0, size * count, size):
                    mapped[position : position + size] = data
                times.append((time.thread_time() - start) / count * 1e6)
    os.unlink(place / "raw")
    return times[0], times[1]


class Bench:
    """A store with the pools of a broker."""

    def __init__(self, place: Path) -> None:
        self.place = place
        config = MessageStoreConfig(store_path_root_dir=str(place))
        self.store, self.pools = pooled_store(reactor, config)

    @inlineCallbacks
    def run(
        self, work: Callable[[], Any], messages: int, count: int, size: int
    ) -> Generator[Deferred[Any], Any, tuple[float, float]]:
        """CPU microseconds a message, of this thread and of the process."""
        turn = max(1, TURN_BYTES // size // messages)
        spent, done = 0.0, 0
        process = time.process_time()
        while done < count:
            began, before = time.thread_time(), done
            for _ in range(turn):
                if not work().is_ok:
                    break
                done += messages
            spent += time.thread_time() - began
            yield deferLater(reactor, 0.002 if done > before else 0.02)  # type: ignore[arg-type]
        return spent / done * 1e6, (time.process_time() - process) / done * 1e6

    def close(self) -> Deferred[None]:
        return stop_pooled(self.store, self.pools)


@inlineCallbacks
def measure(place: Path, body_bytes: int, count: int) -> Generator[Deferred[Any], Any, None]:
    record = message(body_bytes)
    size = len(encode_record(record, 0, 0, 0))
    raws = [raw_copy(place, bytes(size), count) for _ in range(ROUNDS)]
    raw, ready = min(found[0] for found in raws), min(found[1] for found in raws)
    bench = Bench(place / "store")
    yield bench.store.load()
    bench.store.start()
    log = bench.store.commit_log
    messages = 4 if body_bytes > 4096 else 32
    items: list[BatchItem] = [(0, record.body, record.properties)] * messages
    works: list[tuple[Callable[[], Any], int]] = [
        (lambda: log.append(record, 0), 1),
        (lambda: log.append_batch(record, items, 0), messages),
    ]
    best = []
    for work, number in works:
        runs = []
        for _ in range(ROUNDS):
            runs.append((yield bench.run(work, number, count, size)))
        best.append(min(runs))
    yield bench.close()
    shutil.rmtree(place / "store")
    bench = Bench(place / "store")
    yield bench.store.load()
    bench.store.start()
    puts = []
    for _ in range(ROUNDS):
        puts.append((yield bench.run(lambda: bench.store.put_message(record), 1, count, size)))
    yield bench.close()
    shutil.rmtree(place / "store")
    (append, process), (batch, _), (put, _) = best[0], best[1], min(puts)
    target = TARGETS.get(body_bytes)
    print(
        f"{body_bytes:>6} {raw:>6.2f} {ready:>6.2f} {append:>7.2f} {batch:>6.2f} {put:>6.2f} {process:>8.2f}   "
        f"{raw / append:>6.2f} {raw / batch:>6.2f} {raw / put:>6.2f} {raw / process:>8.2f}   "
        f"{'' if target is None else f'>= {target}':>7} {1e6 / append:>10,.0f} {1e6 / put:>8,.0f}"
    )


@inlineCallbacks
def main(_: object, directory: str | None = None) -> Generator[Deferred[Any], Any, None]:
    place = Path(tempfile.mkdtemp(prefix="ratio-", dir=directory))
    print(
        f"CRC by {crc.name}, compiled functions {native.description}; microseconds of CPU a message, then ratios to raw, target, messages/s"
    )
    print(
        f"{'body':>6} {'raw':>6} {'ready':>6} {'append':>7} {'batch':>6} {'put':>6} {'process':>8}   "
        f"{'append':>6} {'batch':>6} {'put':>6} {'process':>8}   {'target':>7} {'append/s':>10} {'put/s':>8}"
    )
    try:
        for body_bytes, count in ((128, 50_000), (1024, 50_000), (16384, 8_000)):
            yield measure(place, body_bytes, count)
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    react(main, sys.argv[1:2])
