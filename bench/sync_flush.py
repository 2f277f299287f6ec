"""How many messages a second go through a broker whose 64 producers each wait for the device, and how many share one sync?

    python -m bench.sync_flush [DIRECTORY] [--seconds 4] [--rounds 3] [--body 1024] [--waiting 64]

A whole broker with ``flushDiskType=SYNC_FLUSH`` behind a socket, and a client process that keeps 64 requests of one connection in flight and
does nothing else, so that the machine's other processor is left to the device. Shown per round: messages/s, CPU of the broker for a message,
messages of one sync, and the time from one sync to the next. Run it on
two trees by turns to compare them; the device's own time changes more between runs than anything else.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import click
from twisted.internet import reactor
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.task import deferLater, react

from bench.broker_send import Bench, requests
from txrocketmq import native
from txrocketmq.service.kernel_syncs import KernelSyncs
from txrocketmq.service.process import SWITCH_INTERVAL_S


def load(port: int, frames: list[bytes], waiting: int) -> None:
    """Keep so many requests in flight for ever; runs in a process of its own."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wanted, position, buffer = waiting, 0, b""
        while True:
            for _ in range(wanted):
                connection.sendall(frames[position])
                position = (position + 1) % len(frames)
            received = connection.recv(1 << 16)
            if not received:
                return
            buffer += received
            wanted = start = 0
            while len(buffer) - start >= 4:
                size = int.from_bytes(buffer[start : start + 4], "big")
                if len(buffer) - start < 4 + size:
                    break
                start += 4 + size
                wanted += 1
            buffer = buffer[start:]


def stored(bench: Bench) -> int:
    """How many messages the broker has."""
    return sum(queue.max_index for queue in bench.store.queue_table.queues.values())


@inlineCallbacks
def measure(
    _: object,
    place: Path,
    seconds: float,
    rounds: int,
    body: int,
    waiting: int,
    flush: str,
    threads: bool,
) -> Generator[Deferred[Any], Any, None]:
    """Serve the load and show what became of it."""
    bench = Bench(reactor, place)
    bench.store._config.flush_disk_type = flush
    bench.store.flusher.answer_together = bench.factory.group.together
    kernel_syncs = KernelSyncs(reactor)
    if not threads:
        kernel_syncs.open()
    bench.store.flusher.kernel_syncs = kernel_syncs
    yield bench.open()
    port = reactor.listenTCP(0, bench.factory, interface="127.0.0.1")  # type: ignore[attr-defined]
    frames = requests(10_000, body, 0)
    child = os.fork()
    if not child:
        try:
            load(port.getHost().port, frames, waiting)
        finally:
            os._exit(0)
    flusher = bench.store.flusher
    try:
        yield deferLater(reactor, 1)  # type: ignore[arg-type]
        for _round in range(rounds):
            begin, syncs = stored(bench), flusher.sync_count
            wall, cpu = time.perf_counter(), time.process_time()
            yield deferLater(reactor, seconds)  # type: ignore[arg-type]
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            done = stored(bench) - begin
            syncs = flusher.sync_count - syncs
            print(
                f"{done / wall:8,.0f} messages/s {cpu / done * 1e6:6.1f} us of CPU a message {done / max(syncs, 1):6.1f} messages a sync "
                f"{wall / max(syncs, 1) * 1e3:6.2f} ms between syncs",
                flush=True,
            )
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    yield port.stopListening()
    yield bench.close()
    kernel_syncs.close()


@click.command()
@click.argument("directory", required=False)
@click.option("--seconds", default=4.0, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--body", default=1024, show_default=True)
@click.option("--waiting", default=64, show_default=True)
@click.option("--flush", type=click.Choice(["SYNC_FLUSH", "ASYNC_FLUSH"]), default="SYNC_FLUSH")
@click.option("--threads", is_flag=True, help="Syncs are done by a thread, not by the kernel.")
def main(
    directory: str | None,
    seconds: float,
    rounds: int,
    body: int,
    waiting: int,
    flush: str,
    threads: bool,
) -> None:
    """Sync flush with many waiting producers."""
    print(f"compiled functions {native.description}")
    place = Path(tempfile.mkdtemp(prefix="sync-flush-", dir=directory))
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        react(measure, (place, seconds, rounds, body, waiting, flush, threads))
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
