"""What do 10,000 topics of 8 queues cost a store, and does a larger store take more memory?

    python -m bench.many_queues [--topics 10000] [--place DIRECTORY]

Two stores are made, with 1 and with ``--more`` messages in each of the queues. Each is opened, after an orderly stop and as a killed process
leaves it, by a process of its own, which then puts a message into and pulls one from each queue. Shown: seconds until the store is open (CPU and
clock), RssAnon and open descriptors after the start and after the use, mappings of the store's files.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
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

from bench.pairs import rss_anon_bytes
from bench.pooled_store import pooled_store, stop_pooled
from txrocketmq.codec.record import encode_batch
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import format_properties
from txrocketmq.store.message_store import MessageStore

QUEUES = 8
BODY = b"x" * 200
HOST = ("127.0.0.1", 10911)
MAX_DESCRIPTORS = 4096


def topic(number: int) -> str:
    """The name of a topic."""
    return f"orders-of-customer-{number:05d}"


def weigh(directory: str) -> dict[str, float]:
    """Memory, descriptors and mappings of this process."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {
        "rss_anon_mb": rss_anon_bytes(os.getpid()) / 1e6,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mappings": sum(directory in line for line in maps),
    }


@inlineCallbacks
def put_all(store: MessageStore, topics: int, each: int) -> Generator[Deferred[Any], Any, None]:
    """So many messages for every queue."""
    items = [(0, BODY, format_properties({"UNIQ_KEY": f"{n:032X}"})) for n in range(each)]
    for number in range(topics):
        for queue_id in range(QUEUES):
            record = MessageRecord(
                topic=topic(number),
                queue_id=queue_id,
                body=encode_batch(items),
                born_host=HOST,
                store_host=HOST,
            )
            while not store.put_batch(record).is_ok:  # type: ignore[union-attr]
                yield deferLater(reactor, 0.01)  # type: ignore[arg-type]
        if number % 20 == 0:
            yield deferLater(reactor, 0)  # type: ignore[arg-type]


@inlineCallbacks
def fill(_: object, directory: str, topics: int, each: int) -> Generator[Deferred[Any], Any, None]:
    """Make a store and stop in order."""
    store, pools = pooled_store(reactor, MessageStoreConfig(store_path_root_dir=directory))
    yield store.load()
    store.start()
    yield put_all(store, topics, each)
    yield stop_pooled(store, pools)


@inlineCallbacks
def use(_: object, directory: str, topics: int, kill: bool) -> Generator[Deferred[Any], Any, None]:
    """Open, weigh, use every queue, weigh; then stop in order or die."""
    store, pools = pooled_store(reactor, MessageStoreConfig(store_path_root_dir=directory))
    wall, cpu = time.perf_counter(), time.process_time()
    yield store.load()
    found = {"open_s": time.perf_counter() - wall, "open_cpu_s": time.process_time() - cpu}
    store.start()
    found |= weigh(directory)
    assert len(store.queues()) == topics * QUEUES
    yield put_all(store, topics, 1)
    for number in range(topics):
        for queue_id in range(QUEUES):
            result = store.get_message(topic(number), queue_id, 0, 32, 1 << 20, None)
            if isinstance(result, Deferred):
                result = yield result
            assert result.message_count > 0, result
        if number % 20 == 0:
            yield deferLater(reactor, 0)  # type: ignore[arg-type]
    yield deferLater(reactor, 2)  # type: ignore[arg-type]
    found |= {f"used_{name}": value for name, value in weigh(directory).items()}
    print(json.dumps(found), flush=True)
    if kill:
        os._exit(0)
    yield stop_pooled(store, pools)


def child(*words: object) -> str:
    """Run one of the steps in a process of its own."""
    command = [sys.executable, "-m", "bench.many_queues", "--step", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=1800).stdout


@click.command()
@click.option("--topics", default=10_000, show_default=True)
@click.option("--more", default=20, show_default=True, help="Messages of each queue, large store.")
@click.option("--place", type=click.Path(path_type=Path), help="Where the stores are made.")
@click.option("--step", nargs=4, hidden=True)
def main(
    topics: int, more: int, place: Path | None, step: tuple[str, str, str, str] | None
) -> None:
    """Open stores with very many queues."""
    if step is not None:
        name, directory, count, number = step
        if name == "fill":
            react(fill, (directory, int(count), int(number)))
        else:
            react(use, (directory, int(count), bool(int(number))))
        return
    place = Path(tempfile.mkdtemp(prefix="many-queues-", dir=place))
    print(
        f"{topics:,} topics x {QUEUES} queues\n{'store':>22} {'open s':>7} {'CPU s':>6} | {'RssAnon MB':>10} {'descr.':>6} {'maps':>5} "
        f"| used: {'RssAnon MB':>10} {'descr.':>6} {'maps':>5}"
    )
    try:
        for each in (1, more):
            directory = place / f"store-{each}"
            child("fill", directory, topics, each)
            for state, kill in (("stopped", 1), ("killed", 0)):
                found = json.loads(child("use", directory, topics, kill))
                print(
                    f"{f'{each} each, {state}':>22} {found['open_s']:>7.2f} {found['open_cpu_s']:>6.2f} | "
                    f"{found['rss_anon_mb']:>10.0f} {found['descriptors']:>6} {found['mappings']:>5} |       "
                    f"{found['used_rss_anon_mb']:>10.0f} {found['used_descriptors']:>6} {found['used_mappings']:>5}",
                    flush=True,
                )
                if found["used_descriptors"] > MAX_DESCRIPTORS:
                    raise SystemExit(f"more than {MAX_DESCRIPTORS} descriptors")
            shutil.rmtree(directory)
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
