"""Does our client lose a message, or leave anything behind, while its servers fall, its connections break and its answers are late, wrong or missing?

    python -m bench.client_chaos                    # ten minutes, and about two more; writes docs/client-chaos.md
    python -m bench.client_chaos --minutes 1 --no-page

Two name servers and two brokers of ours run as processes; a proxy stands before each (`chaos_proxy`). This process has a producer and three consumer
groups: two concurrent members, two in order, and a lite pull consumer. Every second or two something bad is done. What must hold: each
acknowledged message comes to every group; each send ends once; what the client holds (Deferreds, delayed calls, connections, memory) does
not grow from the first calm to the last. The exit code is 1 when something does not.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import click
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater, react
from twisted.internet.threads import deferToThread
from twisted.logger import LogLevel, formatEvent, globalLogBeginner
from twisted.python.failure import Failure

from bench.chaos_proxy import ChaosProxy
from interop.harness.cluster import Cluster, OurCluster
from txrocketmq.client import (
    ClientConfig,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    LitePullConsumer,
    Message,
    Producer,
    PullConfig,
    PushConfig,
    PushConsumer,
)
from txrocketmq.client.admin.topics import create_topic_header
from txrocketmq.errors import RocketMQError
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.topic import TopicConfig

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "client-chaos.md"
NEXT_PART = "\n## A producer that seldom sends"
TOPIC = "Chaos"
QUEUES = 4
CLAIMED_HOST = "127.0.0.2"
RATE = 60
"""Sends a second."""
MOST = 1_000_000
WARM_S = 20.0
DRAIN_S = 180.0
GROWN_MIB = 5.0
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@attrs.define
class Holding:
    """What the process holds at a calm moment."""

    deferreds: int
    delayed_calls: int
    sockets: int
    mib: float


def holding(reactor: Any) -> Holding:
    """Look at the process."""
    gc.collect()
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Holding(
        sum(isinstance(one, Deferred) and not one.called for one in gc.get_objects()),
        len(reactor.getDelayedCalls()),
        sum(link.startswith("socket:") for link in links),
        pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
    )


class Ledger:
    """Which message was acknowledged, and to whom it came; one byte each, so that it does not grow."""

    def __init__(self, groups: list[str]) -> None:
        self.ends = bytearray(MOST)
        self.acknowledged = bytearray(MOST)
        self.came = {group: bytearray(MOST) for group in groups}
        self.sent = 0
        self.failures: Counter[str] = Counter()
        self.disorder: list[str] = []
        self.running: Counter[tuple[str, int]] = Counter()

    def ended(self, outcome: Any, number: int) -> None:
        """A send is over."""
        self.ends[number] += 1
        if isinstance(outcome, Failure):
            outcome.trap(RocketMQError)
            self.failures[type(outcome.value).__name__] += 1
        else:
            self.acknowledged[number] = 1

    def received(self, group: str, messages: Any) -> None:
        """A handler has processed messages."""
        table = self.came[group]
        for message in messages:
            number = int(message.body[:8])
            table[number] = min(255, table[number] + 1)

    def missing(self, group: str) -> int:
        """Acknowledged messages that did not come to a group."""
        table = self.came[group]
        return sum(
            1 for number in range(self.sent) if self.acknowledged[number] and not table[number]
        )

    def twice(self, group: str) -> int:
        """Messages that came more than once."""
        return sum(1 for times in self.came[group] if times > 1)


class Servers:
    """Processes of ours, and a proxy before each."""

    def __init__(self, reactor: Any, chance: random.Random, stack: ExitStack) -> None:
        self._names = OurCluster(name_servers=2)
        stack.callback(self._names.close)
        self.brokers: list[Cluster] = []
        for number in range(2):
            settings = {
                "brokerName": f"broker-{number}",
                "namesrvAddr": self._names.namesrv,
                "brokerIP1": CLAIMED_HOST,
                "registerNameServerPeriod": "10000",
            }
            broker = OurCluster(name_servers=0, broker_settings=settings)
            stack.callback(broker.close)
            self.brokers.append(broker)
        ports = [address.rpartition(":")[2] for address in self._names.namesrv.split(";")]
        ports += [broker.broker_address.rpartition(":")[2] for broker in self.brokers]
        self.proxies = [
            ChaosProxy(reactor, chance, (CLAIMED_HOST, int(port)), "127.0.0.1") for port in ports
        ]
        self.namesrv = ";".join(f"{CLAIMED_HOST}:{port}" for port in ports[:2])
        self.broker_addresses = [f"{CLAIMED_HOST}:{port}" for port in ports[2:]]
        self.done: Counter[str] = Counter()

    async def start(self) -> None:
        """Start all."""
        for number in range(2):
            await deferToThread(self._names.start_name_server, number)
        for broker in self.brokers:
            await deferToThread(broker.start_broker)
        for proxy in self.proxies:
            await proxy.listen()

    async def restart_broker(self, number: int, how: signal.Signals) -> None:
        """End a broker, and start it again."""
        self.done[f"broker {how.name}"] += 1
        await deferToThread(self.brokers[number].restart_broker, how)

    async def restart_name_server(self, number: int) -> None:
        """Kill a name server, and start it again a while later."""
        self.done["name server SIGKILL"] += 1
        await deferToThread(self._names.kill_name_server, number)
        await deferToThread(time.sleep, 2)
        await deferToThread(self._names.start_name_server, number)


class Run:
    """One run."""

    def __init__(self, reactor: Any, seed: int, minutes: float) -> None:
        self.reactor = reactor
        self.chance = random.Random(seed)
        self.seed, self.minutes = seed, minutes
        self.groups = ["chaos-concurrent", "chaos-orderly", "chaos-lite"]
        self.ledger = Ledger(self.groups)
        self.held: list[Holding] = []
        self.errors: list[str] = []
        self._sending = True
        self._is_calm = False

    def _later(self, seconds: float) -> Deferred[None]:
        return deferLater(self.reactor, seconds, lambda: None)

    def note(self, event: dict[str, Any]) -> None:
        """Errors of the log are faults, but for those that the handlers make themselves."""
        failure = event.get("log_failure")
        if event["log_level"] >= LogLevel.error and not (
            failure is not None and "chaos" in str(failure.value)
        ):
            text = "" if failure is None else failure.getTraceback()
            self.errors.append(f"{formatEvent(event)[-900:]}\n{text}")

    # ------------------------------------------------------------------ clients

    def _client(self, name: str) -> ClientConfig:
        return ClientConfig(
            namesrv_addr=self.servers.namesrv,
            instance_name=f"{os.getpid()}-{name}",
            poll_name_server_interval=5_000,
            heartbeat_broker_interval=5_000,
        )

    def _fails(self) -> bool:
        return not self._is_calm and self.chance.random() < 0.01

    async def _handle(self, messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
        if self.chance.random() < 0.3:
            await self._later(self.chance.random() / 10)
        if self._fails():
            raise ValueError("chaos")
        self.ledger.received("chaos-concurrent", messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async def _handle_in_order(self, messages: Any, context: Any) -> ConsumeOrderlyStatus:
        place = (context.queue.broker_name, context.queue.queue_id)
        running = self.ledger.running
        if running[place]:
            self.ledger.disorder.append(f"two handlers have queue {place} at once")
        running[place] += 1
        try:
            if self.chance.random() < 0.3:
                await self._later(self.chance.random() / 10)
        finally:
            running[place] -= 1
        if self._fails():
            context.suspend_current_queue_time_millis = 100
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        self.ledger.received("chaos-orderly", messages)
        return ConsumeOrderlyStatus.SUCCESS

    def _push(self, name: str, orderly: bool) -> PushConsumer:
        settings = PushConfig(
            orderly=orderly, consume_from_where=FIRST, max_reconsume_times=1_000 if orderly else 16
        )
        group, handler = self.groups[orderly], (self._handle_in_order if orderly else self._handle)
        return PushConsumer(
            self.reactor, group, TOPIC, handler, self._client(f"{group}-{name}"), settings
        )

    async def _poll(self, consumer: LitePullConsumer) -> None:
        while consumer.is_running:
            self.ledger.received("chaos-lite", await consumer.poll(500))

    async def _send(self, producer: Producer) -> None:
        ledger = self.ledger
        while self._sending:
            for _ in range(RATE // 10):
                number, ledger.sent = ledger.sent, ledger.sent + 1
                sent = producer.send(Message(TOPIC, b"%08d" % number + b"." * 200))
                sent.addBoth(ledger.ended, number)
            await self._later(0.1)

    # ------------------------------------------------------------------ what happens

    async def _chaos(self, until_s: float) -> None:
        chance, servers = self.chance, self.servers
        while self.reactor.seconds() < until_s:
            await self._later(chance.uniform(0.5, 2.5))
            kind = chance.choice(["refuse", "hold", "cut request", "cut answer"] * 3 + ["restart"])
            if kind != "restart":
                chance.choice(servers.proxies).plan(kind, chance.randrange(1, 4))
            elif chance.random() < 0.3:
                await servers.restart_name_server(chance.randrange(2))
            else:
                how = chance.choice([signal.SIGKILL, signal.SIGTERM])
                await servers.restart_broker(chance.randrange(2), how)

    async def _settle(self) -> None:
        """Until all has come that was acknowledged, or the time is over; then until what was done to the client is over as well."""
        for proxy in self.servers.proxies:
            proxy.heal()
        self._is_calm = True
        limit_s = self.reactor.seconds() + DRAIN_S
        while self.reactor.seconds() < limit_s and (
            sum(self.ledger.ends) < self.ledger.sent or any(map(self.ledger.missing, self.groups))
        ):
            await self._later(1)
        await self._later(WARM_S)
        self.held.append(holding(self.reactor))
        self._is_calm = False

    async def play(self, stack: ExitStack) -> None:
        """Start all, let things happen, and end all."""
        self.servers = Servers(self.reactor, self.chance, stack)
        await self.servers.start()
        producer = Producer(self.reactor, "chaos-producer", self._client("producer"))
        members: list[Any] = [
            self._push(name, orderly) for orderly in (False, True) for name in ("a", "b")
        ]
        lite = LitePullConsumer(
            self.reactor, "chaos-lite", self._client("lite"), PullConfig(consume_from_where=FIRST)
        )
        lite.subscribe(TOPIC)
        async with producer:
            config = TopicConfig(topic_name=TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
            header = create_topic_header(config)
            for address in self.servers.broker_addresses:
                await producer.instance.api.ask(
                    address, RequestCode.UPDATE_AND_CREATE_TOPIC, header, b"", 5_000
                )
            for member in [*members, lite]:
                await member.start()
            polling = Deferred.fromCoroutine(self._poll(lite))
            polling.addErrback(lambda failure: failure.trap(RocketMQError))
            sending = Deferred.fromCoroutine(self._send(producer))
            # The first stretch fills what is filled once: caches, code, the tables of routes.
            for seconds in (60.0, self.minutes * 60):
                await self._chaos(self.reactor.seconds() + seconds)
                self._sending = False
                await sending
                await self._settle()
                self._sending = True
                sending = Deferred.fromCoroutine(self._send(producer))
            self._sending = False
            await sending
            await self._settle()
            self._is_calm = True
            for member in [*members, lite]:
                await member.stop()
            await polling
        for proxy in self.servers.proxies:
            await proxy.close()

    # ------------------------------------------------------------------ what came of it

    def faults(self) -> list[str]:
        """What does not hold."""
        ledger = self.ledger
        found = [
            f"{missing} acknowledged messages did not come to {group}"
            for group in self.groups
            if (missing := ledger.missing(group))
        ]
        ends = Counter(ledger.ends[: ledger.sent])
        if set(ends) != {1}:
            found.append(f"sends by how often they ended: {dict(ends)}")
        found += ledger.disorder[:3]
        found += self.errors[:5]
        first, last = self.held[0], self.held[-1]
        for name, allowed in (
            ("deferreds", 40),
            ("delayed_calls", 12),
            ("sockets", 6),
            ("mib", GROWN_MIB),
        ):
            before, after = getattr(first, name), getattr(last, name)
            if after > before + allowed:
                found.append(f"{name} grew from {before:.0f} to {after:.0f}")
        return found

    def page(self, faults: list[str]) -> str:
        """The page of this run."""
        ledger = self.ledger
        done = self.servers.done + sum((one.done for one in self.servers.proxies), Counter())
        rows = [
            f"| {group} | {sum(map(bool, ledger.came[group]))} | {ledger.missing(group)} | {ledger.twice(group)} |"
            for group in self.groups
        ]
        holds = [
            f"| {when} | {one.deferreds} | {one.delayed_calls} | {one.sockets} | {one.mib:.1f} |"
            for when, one in zip(
                ("after one minute of it", f"after {self.minutes:g} more", "at the end"),
                self.held,
                strict=True,
            )
        ]
        failures = ", ".join(f"{count} {name}" for name, count in ledger.failures.most_common())
        return "\n".join(
            [
                "# The client in trouble",
                "",
                f"`python -m bench.client_chaos --seed {self.seed}`, {self.minutes:g} minutes after one that warms up, at commit {commit()}.",
                "",
                "Two name servers and two brokers, each behind a proxy that cuts connections at any byte, holds answers back for 6 s and answers",
                "requests with error codes; meanwhile the servers are restarted. One in a hundred calls of a handler fails. Each message that was",
                "acknowledged must come to every group, each send must end once, an ordered queue must have one handler at a time, and what the",
                "client holds must not grow.",
                "",
                f"{ledger.sent} sends, {sum(ledger.acknowledged)} acknowledged; failed: {failures or 'none'}.",
                "",
                "| group | different messages | acknowledged and missing | came more than once |",
                "|---|--:|--:|--:|",
                *rows,
                "",
                "| what was done | times |",
                "|---|--:|",
                *(f"| {what} | {times} |" for what, times in sorted(done.items())),
                "",
                "| at a calm moment | Deferreds that wait | delayed calls | sockets | resident MiB |",
                "|---|--:|--:|--:|--:|",
                *holds,
                "",
                f"**Faults: {len(faults)}.**" + "".join(f"\n* {fault}" for fault in faults),
                "",
            ]
        )


def commit() -> str:
    """The state of the sources."""
    words = ["git", "describe", "--always", "--dirty=+"]
    return subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


@click.command()
@click.option("--minutes", default=10.0, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--no-page", is_flag=True, help="Print, and write no page.")
def main(minutes: float, seed: int, no_page: bool) -> None:
    """See the module."""
    found: list[str] = []

    def begin(reactor: Any) -> Deferred[None]:
        run = Run(reactor, seed, minutes)
        observer: Callable[[dict[str, Any]], None] = run.note
        globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)
        return Deferred.fromCoroutine(whole(run))

    async def whole(run: Run) -> None:
        with ExitStack() as stack:
            await run.play(stack)
        found.extend(run.faults())
        text = run.page(found)
        if no_page:
            print(text)
        else:
            # What else stands on the page stays there.
            _, mark, others = (
                PAGE.read_text().partition(NEXT_PART) if PAGE.exists() else ("", "", "")
            )
            PAGE.write_text(text + mark + others)

    run_reactor(begin)
    sys.exit(1 if found else 0)


def run_reactor(begin: Callable[[Any], Deferred[None]]) -> None:
    """Like ``react``, but come back."""
    try:
        react(begin)
    except SystemExit as ending:
        if ending.code:
            raise


if __name__ == "__main__":
    main()
