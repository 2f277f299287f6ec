"""How soon does a broker take messages again after a crash, and when is everything in order? Ours and the official one on equal copies.

    python -m bench.recovery                          # 5 GiB of messages of 1 KiB, 3 runs each; needs 11 GiB of disk
    python -m bench.recovery --gib 1 --repeats 1

A store is filled by our own code and left as a killed process leaves it (the abort file is there, newest queue units and index entries are
not). Each run starts one broker on a fresh copy of it, beside a name server that runs already, and asks every 20 ms. Timed from the
execution of the broker: the first answered send; all that the queues hold (the next offsets add up, nothing waits for dispatch); and, for
ours, the index made whole. The official broker does not do that last thing: what its index held in the file that was written is gone.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import click
from twisted.internet import reactor
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.task import deferLater, react

from bench.namesrv_scale import ask
from bench.pairs import OfficialPair, OurPair, Pair
from bench.pooled_store import pooled_store
from txrocketmq.codec.bodies.tables import KVTable
from txrocketmq.codec.bodies.wire import decode_body
from txrocketmq.codec.headers import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    SendMessageRequestHeaderV2,
)
from txrocketmq.codec.record import encode_batch
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import format_properties

TOPIC = "BenchmarkTest"
QUEUES = 8
BATCH = 32
BODY = b"x" * 1024
POLL_S = 0.02
LIMIT_S = 600
HOST = ("127.0.0.1", 10911)


# --------------------------------------------------------------------------- the crashed store


def batch(first: int) -> MessageRecord:
    """The next messages, with the unique ids and tags of a usual producer."""
    items = [
        (
            0,
            BODY,
            format_properties({"UNIQ_KEY": f"7F00000100002A139A57{number:012X}", "TAGS": "TagA"}),
        )
        for number in range(first, first + BATCH)
    ]
    return MessageRecord(
        topic=TOPIC,
        queue_id=first // BATCH % QUEUES,
        body=encode_batch(items),
        born_host=HOST,
        store_host=HOST,
    )


@inlineCallbacks
def fill(_: object, directory: str, size: int) -> Generator[Deferred[Any], Any, None]:
    """Fill a store with so many bytes and die."""
    store, _pools = pooled_store(reactor, MessageStoreConfig(store_path_root_dir=directory))
    yield store.load()
    store.start()
    number = 0
    while store.max_physical_offset() < size:
        for _turn in range(8):
            record = batch(number)
            while not store.put_batch(record).is_ok:  # type: ignore[union-attr]
                yield deferLater(reactor, 0.005)  # type: ignore[arg-type]
            number += BATCH
        yield deferLater(reactor, 0)  # type: ignore[arg-type]
    # Between two checkpoints, as any moment is.
    yield deferLater(reactor, 1.5)  # type: ignore[arg-type]
    print(number, flush=True)
    os._exit(9)


def make_store(place: Path, size: int) -> int:
    """A crashed store in a new directory; how many messages it holds."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.recovery", "--fill", str(place), "--bytes", str(size)],
        stdout=subprocess.PIPE,
        check=False,
        timeout=LIMIT_S,
    )
    if done.returncode != 9:
        raise SystemExit(f"the store could not be filled: {done.returncode}")
    return int(done.stdout)


# --------------------------------------------------------------------------- one start


def sends(address: str) -> bool:
    """Whether the broker takes a message."""
    header = SendMessageRequestHeaderV2(
        producer_group="bench",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=8,
        queue_id=0,
        sys_flag=0,
        born_timestamp=int(time.time() * 1000),
        flag=0,
        properties="",
        reconsume_times=0,
        unit_mode=False,
        batch=False,
    )
    return ask(address, RequestCode.SEND_MESSAGE_V2, header, BODY).code == 0


def figures(address: str) -> dict[str, str]:
    """What the broker says of itself."""
    answer = ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    return decode_body(KVTable, answer.body).table if answer.code == 0 else {}


def messages_in_queues(address: str) -> int:
    """The sum of all queues' next offsets, -1 when one is not known."""
    total = 0
    for queue_id in range(QUEUES):
        answer = ask(
            address,
            RequestCode.GET_MAX_OFFSET,
            GetMaxOffsetRequestHeader(topic=TOPIC, queue_id=queue_id),
        )
        if answer.code != 0:
            return -1
        total += answer.decode_header(GetMaxOffsetResponseHeader).offset
    return total


def wait(condition: Callable[[], bool], began: float) -> float:
    """Seconds from the beginning until something is so; asked again and again."""
    while True:
        try:
            if condition():
                return time.monotonic() - began
        except (OSError, ConnectionError):
            pass
        if time.monotonic() - began > LIMIT_S:
            raise SystemExit("a broker did not get ready in time")
        time.sleep(POLL_S)


def one_run(make: Callable[[Path], Pair], source: Path, place: Path, count: int) -> list[float]:
    """Seconds to the first send, to whole queues, to a whole index."""
    pair = make(place)
    try:
        target = pair.directory / "store"
        subprocess.run(["cp", "-a", "--reflink=auto", str(source), str(target)], check=True)
        subprocess.run(["sync", "-f", str(target)], check=True)
        pair.start_name_server()
        began = time.monotonic()
        pair.start_broker()
        address = pair.broker_address
        first = wait(lambda: sends(address), began)
        whole = wait(
            lambda: (
                messages_in_queues(address) == count + 1
                and figures(address).get("dispatchBehindBytes") == "0"
                and "recoveryOfQueues" not in figures(address)
            ),
            began,
        )
        index = wait(lambda: "recoveryOfIndex" not in figures(address), began)
        return [first, whole, index]
    finally:
        pair.close()


@click.command()
@click.option("--gib", default=5.0, show_default=True)
@click.option("--repeats", default=3, show_default=True)
@click.option("--place", type=click.Path(path_type=Path), help="Where the stores are made.")
@click.option("--fill", "fill_place", hidden=True)
@click.option("--bytes", "fill_bytes", type=int, hidden=True)
def main(
    gib: float, repeats: int, place: Path | None, fill_place: str | None, fill_bytes: int
) -> None:
    """Recover a crashed store with both brokers, by turns."""
    if fill_place is not None:
        react(fill, (fill_place, fill_bytes))
        return
    place = Path(tempfile.mkdtemp(prefix="recovery-", dir=place))
    try:
        source = place / "crashed"
        began = time.monotonic()
        count = make_store(source, int(gib * (1 << 30)))
        print(f"{count:,} messages of 1 KiB, {gib} GiB, in {time.monotonic() - began:.0f} s")
        print(f"{'':10} {'first send':>11} {'queues whole':>13} {'index whole':>12}   seconds")
        results: dict[str, list[list[float]]] = {}
        for number in range(repeats):
            for make in (OfficialPair, OurPair) if number % 2 == 0 else (OurPair, OfficialPair):
                found = one_run(make, source, place / make.name, count)
                results.setdefault(make.name, []).append(found)
                _print(make.name, found)
        for name, runs in results.items():
            _print(
                f"{name}, median", [statistics.median(column) for column in zip(*runs, strict=True)]
            )
    finally:
        shutil.rmtree(place)


def _print(name: str, found: list[float]) -> None:
    index = "never" if name.startswith("official") else f"{found[2]:.2f}"
    print(f"{name:18} {found[0]:>8.2f} {found[1]:>11.2f} {index:>11}", flush=True)


if __name__ == "__main__":
    main()
