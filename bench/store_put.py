"""What does a message cost the whole store? Encode, append, queue unit, index entries, listener, without waiting for a flush.

    python bench/store_put.py [DIRECTORY] [--body BYTES] [--queues N] [--profile FILE]

CPU microseconds of the reactor's thread per message, best of three rounds, with real pools and in turns of the reactor as in a
broker. The rows differ in what the index has to do: unique id alone, with a tag, with a tag and a key, and batches of 32.
"""

from __future__ import annotations

import argparse
import cProfile
import shutil
import tempfile
import time
from collections.abc import Callable, Generator
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.task import deferLater, react

from bench.pooled_store import Pools, pooled_store, stop_pooled
from txrocketmq.codec.record import encode_batch
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import format_properties
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.results import PutMessageStatus

ROUNDS = 3
TURN = 64
MESSAGES = 40_000
BATCH = 32


@inlineCallbacks
def open_store(directory: str) -> Generator[Deferred[Any], Any, tuple[MessageStore, Pools]]:
    """A store with the pools of a broker, and a listener as the held pulls have."""
    store, pools = pooled_store(reactor, MessageStoreConfig(store_path_root_dir=directory))
    yield store.load()
    store.start()
    held: dict[tuple[str, int], object] = {("other", 0): None}
    store.add_arrival_listener(
        lambda topic, queue_id, *_: held.get((topic, queue_id)),
        lambda topic, queue_id: (topic, queue_id) in held,
    )
    return store, pools


def message(
    number: int, body: bytes, queues: int, tag: str | None, key: str | None
) -> MessageRecord:
    """A message as an official client sends it."""
    uniq_key = f"C0A8000100002A139A5700{number:010X}"
    found = {
        "UNIQ_KEY": uniq_key,
        "WAIT": "true",
        "TAGS": tag,
        "KEYS": key,
        "CLUSTER": "DefaultCluster",
    }
    return MessageRecord(
        topic="BenchmarkTest",
        queue_id=number % queues,
        body=body,
        properties=format_properties(found),
        tags_code=tags_code(tag),
        born_host=("10.0.0.1", 34567),
        store_host=("10.0.0.2", 10911),
        born_timestamp=1_700_000_000_000,
        keys=key,
        uniq_key=uniq_key,
    )


@inlineCallbacks
def measure(
    put: Callable[[MessageRecord], Any],
    records: list[MessageRecord],
    profile: cProfile.Profile | None,
) -> Generator[Deferred[Any], Any, float]:
    """CPU seconds of this thread for all puts."""
    spent = 0.0
    refused = 0
    for first in range(0, len(records), TURN):
        turn = records[first : first + TURN]
        if profile is not None:
            profile.enable()
        start = time.thread_time()
        for record in turn:
            result = put(record)
        spent += time.thread_time() - start
        if profile is not None:
            profile.disable()
        # Faster than the pool makes blocks ready, sends are refused: give it the processor.
        busy = result.status is PutMessageStatus.OS_PAGE_CACHE_BUSY
        refused += len(turn) if busy else 0
        assert result.is_ok or busy, result
        yield deferLater(reactor, 0.05 if busy else 0, lambda: None)  # type: ignore[arg-type]
    if refused > len(records) // 50:
        raise SystemExit(f"{refused} of {len(records)} messages were refused: a slow or busy disk")
    return spent


@inlineCallbacks
def main(_: object) -> Generator[Deferred[Any], Any, None]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", nargs="?")
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--profile")
    options = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="store-put-", dir=options.directory)
    store, pools = yield open_store(directory)
    profile = cProfile.Profile() if options.profile else None
    body = b"x" * options.body
    rows: list[tuple[str, str | None, str | None]] = [
        ("unique id", None, None),
        ("unique id, tag", "TagA", None),
        ("unique id, tag, key", "TagA", "order-1234"),
    ]
    print(
        f"put_message, {options.body} bytes of body, {options.queues} queues, us of CPU per message"
    )
    for name, tag, key in rows:
        records = [message(n, body, options.queues, tag, key) for n in range(MESSAGES)]
        best = 1e9
        for _round in range(ROUNDS):
            best = min(best, (yield measure(store.put_message, records, profile)))
        print(f"  {name:<24} {best / MESSAGES * 1e6:6.2f}")
    items = [(0, body, message(n, b"", 1, "TagA", None).properties) for n in range(BATCH)]
    batches = [message(0, encode_batch(items), 1, None, None)] * (MESSAGES // BATCH)
    best = 1e9
    for _round in range(ROUNDS):
        best = min(best, (yield measure(store.put_batch, batches, profile)))
    print(f"  {f'batch of {BATCH}, each':<24} {best / len(batches) / BATCH * 1e6:6.2f}")
    if profile is not None:
        profile.dump_stats(options.profile)
    yield stop_pooled(store, pools)
    shutil.rmtree(directory)


if __name__ == "__main__":
    react(main)
