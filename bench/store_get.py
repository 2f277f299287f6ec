"""What does a pull cost the store? From an offset to the bytes of the answer's body.

    python bench/store_get.py [DIRECTORY] [--body BYTES] [--queues N] [--messages N]

CPU microseconds of the reactor's thread per answer of 32 messages, best of three rounds: the newest messages, which lie in
the mapping; old ones, which are read from files in the page cache; and both with a tag filter that keeps every second one.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Generator
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.task import deferLater, react

from bench.pooled_store import stop_pooled
from bench.store_put import message, open_store
from txrocketmq.interfaces import IMessageFilter
from txrocketmq.model.javahash import tags_code
from txrocketmq.store.filter import TagsFilter
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.results import GetMessageResult

ROUNDS = 3
PULLS = 200
TURN = 64


@inlineCallbacks
def fill(
    store: MessageStore, count: int, body: bytes, queues: int
) -> Generator[Deferred[Any], Any, None]:
    for number in range(count):
        tag = "TagA" if number // queues % 2 else "TagB"
        record = message(number, body, queues, tag, None)
        while not store.put_message(record).is_ok:  # type: ignore[union-attr]
            yield deferLater(reactor, 0.05, lambda: None)  # type: ignore[arg-type]
        if number % TURN == 0:
            yield deferLater(reactor, 0, lambda: None)  # type: ignore[arg-type]


def measure(store: MessageStore, start: int, wanted: IMessageFilter | None) -> tuple[float, int]:
    """CPU seconds and messages of `PULLS` pulls from an offset on."""
    offset, messages = start, 0
    begin = time.thread_time()
    for _ in range(PULLS):
        found = store.get_message("BenchmarkTest", 0, offset, 32, 4 << 20, wanted)
        if found.__class__ is not GetMessageResult:
            raise SystemExit("the page cache does not hold the files: make the log smaller")
        b"".join(found.records)
        messages += found.message_count
        offset = found.next_begin_offset
        if offset >= found.max_offset:
            offset = start
    return time.thread_time() - begin, messages


@inlineCallbacks
def main(_: object) -> Generator[Deferred[Any], Any, None]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", nargs="?")
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--messages", type=int, default=200_000)
    options = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="store-get-", dir=options.directory)
    store, pools = yield open_store(directory)
    yield fill(store, options.messages, b"x" * options.body, options.queues)
    newest = store.max_offset("BenchmarkTest", 0) - 40 * 32
    print(
        f"get_message, {options.body} bytes of body, {options.queues} queues, us of CPU per 32 messages"
    )
    for name, start in (("newest", newest), ("old", 0)):
        for kind, wanted in (
            ("", None),
            (", every second by tag", TagsFilter([tags_code("TagA")])),
        ):
            best, messages = min(measure(store, start, wanted) for _round in range(ROUNDS))
            print(f"  {name + kind:<32} {best / messages * 32 * 1e6:6.1f}")
    yield stop_pooled(store, pools)
    shutil.rmtree(directory)


if __name__ == "__main__":
    react(main)
