"""What is measured? Each cell puts one load on a pair and gives figures; all loads come from one Java process.

A cell first warms up, then measures, over the same connection. Its figures are those of the rows it fills; a row says in which
direction it is better and what is aimed at.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from bench.pairs import Cpu, Pair, busy_seconds, cpu_seconds
from interop.harness.puppet import Puppet

SEND_TOPIC = "BenchSend"
DRAIN_TOPIC = "BenchDrain"
LATENCY_TOPIC = "BenchLatency"
QUEUES = 16
RETRY_MS = 20
LONG_MS = 300_000


class Effort(NamedTuple):
    """How much a run does.

    :ivar warm_up_s: unmeasured load before each measured one.
    :ivar measure_s: measured load of a send cell.
    :ivar drain_count: messages of a drain.
    :ivar latency_count: measured messages of the latency cell.
    """

    warm_up_s: int
    measure_s: int
    drain_count: int
    latency_count: int


FULL = Effort(warm_up_s=3, measure_s=8, drain_count=300_000, latency_count=1600)
QUICK = Effort(warm_up_s=1, measure_s=3, drain_count=50_000, latency_count=400)


class Row(NamedTuple):
    """One line of the table.

    :ivar target: least ratio aimed at, where the ratio is how many times as good ours is.
    :ivar more_is_better: throughput; else a time or a size.
    """

    key: str
    title: str
    unit: str
    target: float
    more_is_better: bool


class Figure(NamedTuple):
    """One measurement of one row.

    :ivar cpu_us: CPU microseconds of the pair for each message, where messages are counted.
    :ivar client_cpu_us: of the client.
    :ivar others: share of the machine that neither the pair nor the client took, 0 to 1.
    :ivar failed: messages that were refused, and sent again.
    """

    value: float
    cpu_us: float | None = None
    client_cpu_us: float | None = None
    others: float | None = None
    failed: int = 0


Figures = dict[str, Figure]


class Meter:
    """CPU time of a stretch of load, by who took it."""

    def __init__(self, pair: Pair, puppet: Puppet, cpus: int) -> None:
        self._pair, self._puppet, self._cpus = pair, puppet, cpus
        self._begin = time.monotonic()
        self._cpu: Cpu = pair.cpu()
        self._client_s = cpu_seconds(puppet.pid)

    def figure(self, value: float, messages: int, failed: int = 0) -> Figure:
        """The figure of the stretch that ends now."""
        seconds = time.monotonic() - self._begin
        pair_s = self._pair.cpu().pair_s - self._cpu.pair_s
        machine_s = busy_seconds() - self._cpu.machine_s
        client_s = cpu_seconds(self._puppet.pid) - self._client_s
        others = max(0.0, machine_s - pair_s - client_s) / (seconds * self._cpus)
        return Figure(value, pair_s / messages * 1e6, client_s / messages * 1e6, others, failed)


class Stage(NamedTuple):
    """Where a cell plays."""

    puppet: Puppet
    pair: Pair
    effort: Effort
    cpus: int
    run: int

    def call(self, operation: str, **args: Any) -> Any:
        """An operation of the Java process."""
        return self.puppet.call(operation, namesrv=self.pair.namesrv, **args)

    def meter(self) -> Meter:
        """Begin to measure."""
        return Meter(self.pair, self.puppet, self.cpus)


class Cell(NamedTuple):
    """A load and the rows it fills."""

    key: str
    rows: tuple[Row, ...]
    measure: Callable[[Stage], Figures]


def prepare(stage: Stage) -> None:
    """Make the topics, once a pair is up."""
    stage.call("admin.wait_broker", broker="broker-a", timeout_ms=60_000)
    for topic in (SEND_TOPIC, DRAIN_TOPIC, LATENCY_TOPIC):
        stage.call(
            "admin.create_topic",
            broker_addr=stage.pair.broker_address,
            topic=topic,
            queues=QUEUES,
            timeout_ms=30_000,
        )
        stage.call("admin.wait_route", topic=topic, timeout_ms=60_000)
    stage.call("admin.forget")


def warm_up(stage: Stage, seconds: int) -> None:
    """What lets the compiler of a Java server see every path, and costs ours nothing: sends of each kind and a small drain."""
    share = max(1, seconds // 4)
    with_producer(stage, lambda: send(stage, seconds=share, **sync(16, 1024)))
    with_producer(stage, lambda: send(stage, seconds=share, **sync(64, 128)))
    with_producer(stage, lambda: send(stage, seconds=share, **BATCH))
    with_producer(stage, lambda: send(stage, seconds=share, **ASYNC))
    fill(stage)
    stage.call(
        "load.drain",
        group="warm_up",
        topic=DRAIN_TOPIC,
        count=stage.effort.drain_count // 3,
        timeout_ms=LONG_MS,
    )


def fill(stage: Stage) -> None:
    """Store what the drain will find."""
    with_producer(
        stage,
        lambda: stage.call(
            "load.send",
            name="load",
            topic=DRAIN_TOPIC,
            mode="batch",
            batch=32,
            threads=4,
            size=1024,
            count=stage.effort.drain_count,
            timeout_ms=LONG_MS,
        ),
    )


# --------------------------------------------------------------------------- sends


def sync(threads: int, size: int) -> dict[str, Any]:
    """Each thread waits for its answer before it sends again."""
    return {"mode": "sync", "threads": threads, "size": size}


ASYNC: dict[str, Any] = {"mode": "async", "threads": 1, "size": 1024, "in_flight": 256}
BATCH: dict[str, Any] = {"mode": "batch", "threads": 4, "size": 1024, "batch": 32}


def with_producer(stage: Stage, work: Callable[[], Any]) -> Any:
    """Do something with a producer named ``load``."""
    stage.call("load.open", name="load", group="bench_producer")
    try:
        return work()
    finally:
        stage.call("load.close", name="load")


def send(stage: Stage, seconds: int, **load: Any) -> Any:
    """Put a load on the pair; what came of it."""
    return stage.call("load.send", name="load", topic=SEND_TOPIC, seconds=seconds, **load)


def send_cell(key: str, title: str, target: float, load: dict[str, Any]) -> Cell:
    """Messages acknowledged in a second."""

    def measure(stage: Stage) -> Figures:
        def work() -> Figures:
            send(stage, stage.effort.warm_up_s, **load)
            meter = stage.meter()
            done = send(stage, stage.effort.measure_s, **load)
            rate = done["stored"] / done["seconds"]
            return {key: meter.figure(rate, done["stored"], done["failed"])}

        figures: Figures = with_producer(stage, work)
        return figures

    return Cell(key, (Row(key, title, "messages/s", target, True),), measure)


# --------------------------------------------------------------------------- consuming


def drain(stage: Stage) -> Figures:
    """Messages consumed in a second, from the first to the last of what was stored before."""
    meter = stage.meter()
    done = stage.call(
        "load.drain",
        group=f"drain_{stage.run}",
        topic=DRAIN_TOPIC,
        count=stage.effort.drain_count,
        timeout_ms=LONG_MS,
    )
    return {"drain": meter.figure(done["consumed"] / done["seconds"], done["consumed"])}


def latency(stage: Stage) -> Figures:
    """Milliseconds from a send to its consumption, at 200 messages a second."""
    micros = with_producer(
        stage,
        lambda: stage.call(
            "load.latency",
            name="load",
            group=f"latency_{stage.run}",
            topic=LATENCY_TOPIC,
            rate=200,
            size=1024,
            warm_up=200,
            count=stage.effort.latency_count,
            timeout_ms=60_000,
        ),
    )
    return {
        "latency-p50": Figure(micros[len(micros) // 2] / 1000),
        "latency-p99": Figure(micros[len(micros) * 99 // 100] / 1000),
    }


# --------------------------------------------------------------------------- starting


def first_send(stage: Stage) -> Figures:
    """Seconds from execution to the first acknowledged send, on a pair that is not running yet.

    A client that runs already tries again every 20 ms. "Pair": neither server runs, the store is empty, the client finds the broker
    through the name server. "Broker": the name server runs and the client knows the broker, which is executed again on its store.
    """
    with_broker = {"name": "load", "topic": "BenchStart", "retry_ms": RETRY_MS}
    stage.call("load.open", name="load", group="bench_producer", send_timeout_ms=3000)
    try:
        figures = {}
        for key, start in (
            ("start-pair", stage.pair.start),
            ("start-broker", stage.pair.start_broker),
        ):
            answer = stage.puppet.submit("load.first_send", timeout_ms=60_000, **with_broker)
            time.sleep(0.5)
            begin_ns = start()
            acknowledged_ns, _ = answer.result(90)
            figures[key] = Figure((acknowledged_ns - begin_ns) / 1e9)
            stage.pair.stop_broker()
        return figures
    finally:
        stage.call("load.close", name="load")


LEAST = 0.4
START = Cell(
    "start",
    (
        Row("start-pair", "execution → first SEND_OK, name server and broker", "s", 8, False),
        Row(
            "start-broker",
            "execution → first SEND_OK, broker alone, route known",
            "s",
            LEAST,
            False,
        ),
    ),
    first_send,
)
MEMORY = Row("memory", "RssAnon after the load, name server + broker", "MB", 8, False)
CELLS = (
    send_cell("sync-1-128", "sync send, 1 thread, 128 B", LEAST, sync(1, 128)),
    send_cell("sync-1-1k", "sync send, 1 thread, 1 KiB", LEAST, sync(1, 1024)),
    send_cell("sync-16-128", "sync send, 16 threads, 128 B", 0.7, sync(16, 128)),
    send_cell("sync-16-1k", "sync send, 16 threads, 1 KiB", 0.7, sync(16, 1024)),
    send_cell("sync-64-128", "sync send, 64 threads, 128 B", 0.7, sync(64, 128)),
    send_cell("sync-64-1k", "sync send, 64 threads, 1 KiB", 0.7, sync(64, 1024)),
    send_cell("async", "async send, 256 in flight, 1 KiB", LEAST, ASYNC),
    send_cell("batch", "batches of 32, 4 threads, 1 KiB", 0.7, BATCH),
    Cell(
        "drain", (Row("drain", "drain of stored messages, 1 KiB", "messages/s", 0.7, True),), drain
    ),
    Cell(
        "latency",
        (
            Row("latency-p50", "send → consumed at 200/s, median", "ms", LEAST, False),
            Row("latency-p99", "send → consumed at 200/s, 99th percentile", "ms", LEAST, False),
        ),
        latency,
    ),
)
