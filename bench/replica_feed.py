"""What does a message cost a slave that catches up? A feed from memory: no socket, real disk and pools.

    python -m bench.replica_feed [--mib 256] [--piece 65536] [--batch 32] [--profile FILE]

The bytes are those that an official producer's batches of 32 messages of 1 KiB leave in a master's log, in frames of 32 KiB, handed to a
slave's link in pieces as large as a connection gives them. Counted is the CPU time of the reactor's thread alone, best of three stores.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import shutil
import tempfile
import time
from collections.abc import Generator, Iterator
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.task import deferLater, react

from bench.pooled_store import stop_pooled
from bench.store_put import open_store
from txrocketmq.codec.haframes import TRANSFER_HEADER
from txrocketmq.codec.record import encode_batch_records
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.ha.slave import SlaveLink
from txrocketmq.model.message import MessageRecord

ROUNDS = 3
QUEUES = 4
FRAME_BYTES = 32 * 1024
NOW_MS = 1_700_000_000_000


def log_of(size: int, batch: int, body: bytes) -> tuple[bytes, int]:
    """A master's log of about so many bytes, and how many messages it holds."""
    parts: list[bytes] = []
    offset = count = 0
    ends = [0] * QUEUES
    while offset < size:
        queue_id = count // batch % QUEUES
        items = [
            (0, body, f"UNIQ_KEY\x01C0A8000100002A139A5700{count + number:010X}\x02".encode())
            for number in range(batch)
        ]
        record = MessageRecord(
            topic="BenchReplication",
            queue_id=queue_id,
            body=b"",
            properties=b"",
            born_host=("10.0.0.1", 34567),
            store_host=("10.0.0.2", 10911),
            born_timestamp=NOW_MS,
        )
        data, _ = encode_batch_records(
            record, items, ends[queue_id], offset, NOW_MS + count * 1000 // 100_000
        )
        ends[queue_id] += batch
        count += batch
        offset += len(data)
        parts.append(data)
    return b"".join(parts), count


def frames_of(log: bytes) -> bytes:
    """The log as a master sends it."""
    return b"".join(
        TRANSFER_HEADER.pack(start, len(piece)) + piece
        for start in range(0, len(log), FRAME_BYTES)
        if (piece := log[start : start + FRAME_BYTES])
    )


def pieces_of(stream: bytes, size: int) -> Iterator[bytes]:
    """As a connection hands them over."""
    return (stream[start : start + size] for start in range(0, len(stream), size))


@inlineCallbacks
def feed(
    stream: bytes, log_bytes: int, piece: int, profile: cProfile.Profile | None
) -> Generator[Deferred[Any], Any, tuple[float, float]]:
    """CPU seconds of this thread, and seconds by the clock, for all of it."""
    directory = tempfile.mkdtemp(prefix="feed-", dir=os.environ.get("BENCH_DIR"))
    try:
        store, pools = yield open_store(directory)
        held = False

        def hold(wanted: bool) -> None:
            nonlocal held
            held = wanted

        def over(reason: str) -> None:
            # No stop would come to an end: the store's threads wait.
            print(reason, flush=True)
            os._exit(1)

        link = SlaveLink(
            "memory",
            store,
            MessageStoreConfig(),
            reactor,
            lambda _: None,
            over,
            hold,
        )
        link.connected()
        spent, began = 0.0, time.monotonic()
        for data in pieces_of(stream, piece):
            while held:
                yield deferLater(reactor, 0.001, lambda: None)
            if profile is not None:
                profile.enable()
            start = time.thread_time()
            link.data_received(data)
            spent += time.thread_time() - start
            if profile is not None:
                profile.disable()
            yield deferLater(reactor, 0, lambda: None)
        while store.max_physical_offset() < log_bytes:
            yield deferLater(reactor, 0.001, lambda: None)
        wall = time.monotonic() - began
        assert store.reput.offset == log_bytes
        yield stop_pooled(store, pools)
        return spent, wall
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@inlineCallbacks
def main(_: object) -> Generator[Deferred[Any], Any, None]:
    """Feed, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--piece", type=int, default=64 * 1024)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--profile")
    options = parser.parse_args()
    profile = cProfile.Profile() if options.profile else None
    log, count = log_of(options.mib << 20, options.batch, bytes(options.size))
    stream = frames_of(log)
    best: list[tuple[float, float]] = []
    for _round in range(ROUNDS if profile is None else 1):
        best.append((yield feed(stream, len(log), options.piece, profile)))
    spent, wall = min(best)
    print(
        f"{count} messages: {spent / count * 1e6:.2f} us of CPU a message, "
        f"{len(log) / spent / 1e6:.0f} MB/s of CPU, {len(log) / wall / 1e6:.0f} MB/s by the clock"
    )
    if profile is not None:
        profile.dump_stats(options.profile)


if __name__ == "__main__":
    react(main)
