"""Does anything get lost, come early, out of order, or twice without a reason, while consumers come and go and the broker falls?

    python -m bench.soak                    # ten minutes, and about one more until all is consumed; writes docs/soak.md
    python -m bench.soak --minutes 2 --no-page

A name server and a broker of ours run as processes. This process sends every kind of message at a modest rate; processes with one member of
each consumer group (`soak_member`) come, leave by SIGTERM, and are killed; once a minute the broker is restarted, after SIGTERM and after
SIGKILL by turns. `soak_ledger` says what may not be. The exit code is 1 when something was.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import click
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import LoopingCall, deferLater, react
from twisted.internet.threads import deferToThread

from bench.soak_ledger import MOVED, WINDOW_S, Event, Ledger, Seen, Sent, Verdict
from bench.soak_member import ORDERED, POP_INVISIBLE_MS
from interop.harness.cluster import OurCluster
from txrocketmq.client import (
    ClientConfig,
    LocalTransactionState,
    Message,
    Producer,
    ProducerConfig,
    RequestTimeoutError,
)
from txrocketmq.client.admin.topics import create_topic_header
from txrocketmq.codec.bodies.tables import SetMessageRequestModeRequestBody
from txrocketmq.codec.bodies.wire import encode_body
from txrocketmq.errors import RocketMQError
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.heartbeat import MessageRequestMode
from txrocketmq.model.topic import TopicConfig

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "soak.md"
TOPICS = ["Plain", "Order", "Later", "Tx", "Retry", "Batch", "Tags", "Pop", "Ask"]
QUEUES = 4
LEVELS_S = {1: 1, 2: 5, 3: 10}
EVERY_S = 0.5
"""How often each kind is sent."""
CALM_S = 20.0
"""How long before the end nobody is disturbed any more."""
DRAIN_S = 120.0
MEMBERS = 3
POPPED_AGAIN = "invisible time over"
BEGIN, END = "<!-- run: begin -->", "<!-- run: end -->"
"""Around that part of the page that a run writes."""


class MemberProcess(ProcessProtocol):
    """One process with a member of every group."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self._ledger = ledger
        self.name = name
        self.ended: Deferred[None] = Deferred()
        self.up: Deferred[None] = Deferred()
        self.errors = bytearray()
        self._rest = b""

    def outReceived(self, data: bytes) -> None:
        """Lines of what it saw."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            what = json.loads(line)
            if "m" in what:
                at_s, group, key, place, tries, is_done = what["m"]
                self._ledger.seen.append(Seen(at_s, group, key, tuple(place), tries, is_done))
            elif "q" in what:
                self._ledger.event(MOVED, time.time(), group=what["g"])
            elif not self.up.called:
                self.up.callback(None)

    def errReceived(self, data: bytes) -> None:
        """Kept for the report, the newest."""
        self.errors += data
        del self.errors[:-4000]

    def processEnded(self, reason: Any) -> None:
        """It is gone."""
        if not self.up.called:
            self.up.callback(None)
        self.ended.callback(None)

    def tracebacks(self) -> list[str]:
        """What it did not foresee."""
        text = self.errors.decode(errors="replace")
        return [f"{self.name}: {text}"] if "Traceback" in text else []

    def end(self, how: str) -> Deferred[None]:
        """Send a signal; fires when it is gone."""
        with suppress(ProcessExitedAlready):
            self.transport.signalProcess(how)
        return self.ended


class Soak:
    """One run."""

    def __init__(self, reactor: Any, cluster: OurCluster, minutes: float, seed: int) -> None:
        self._reactor = reactor
        self._cluster = cluster
        self._until_s = time.time() + 60 * minutes
        self._random = random.Random(seed)
        self.ledger = Ledger(ORDERED, {"soak-retry": "soak-dead"})
        self.events: list[Event] = []
        self.unanswered: list[str] = []
        self.failed_sends = 0
        self._numbers: dict[str, int] = {}
        self._members: list[MemberProcess] = []
        self._all: list[MemberProcess] = []
        self._member_count = 0
        self._client = ClientConfig(namesrv_addr=cluster.namesrv, heartbeat_broker_interval=1_000)
        # Who has no answer does not send again: what is stored twice then is the broker's doing.
        once = ProducerConfig(retry_times_when_send_failed=0)
        self._producer = Producer(
            reactor, "soak-producers", self._client, check=self._check, settings=once
        )
        self._sending: set[Deferred[None]] = set()

    # ----------------------------------------------------------------- the run

    async def run(self) -> Verdict:
        """All of it."""
        await self._producer.start()
        await self._prepare()
        await gatherResults([self._join() for _ in range(MEMBERS)])
        # What was set up before the first message is no excuse for anything.
        self.ledger.events.clear()
        kinds = [
            self._plain, self._ordered, self._delayed, self._timed, self._transaction, self._retried,
            self._batch, self._tagged, self._popped, self._asked,
        ]  # fmt: skip
        loops = []
        for kind in kinds:
            loop = LoopingCall(self._begin, kind)
            loop.start(EVERY_S)
            loops.append(loop)
        await gatherResults(
            [Deferred.fromCoroutine(self._restarts()), Deferred.fromCoroutine(self._changes())]
        )
        await self._sleep(max(0.0, self._until_s - time.time()))
        for loop in loops:
            loop.stop()
        while self._sending:
            await self._sleep(0.2)
        give_up_s = time.time() + DRAIN_S
        while self.ledger.missing() and time.time() < give_up_s:
            await self._sleep(0.5)
        # Whatever comes too often comes now.
        await self._sleep(WINDOW_S + POP_INVISIBLE_MS / 1000)
        await gatherResults([member.end("TERM") for member in self._members])
        self.unanswered += [error for member in self._all for error in member.tracebacks()]
        await self._producer.stop()
        return self.ledger.verdict()

    def books(self) -> list[tuple[str, list[Any]]]:
        """All that the verdict is made of, by name."""
        ledger = self.ledger
        return [
            ("sent", list(ledger.sent.values())),
            ("seen", ledger.seen),
            ("events", ledger.events),
        ]

    def _sleep(self, seconds: float) -> Deferred[None]:
        return deferLater(self._reactor, seconds, lambda: None)

    async def _prepare(self) -> None:
        address = self._cluster.broker_address
        api = self._producer.instance.api
        for name in [*(f"Soak{topic}" for topic in TOPICS), "%DLQ%soak-retry"]:
            # Dead letters are written only, unless somebody says otherwise.
            queues = 1 if name.startswith("%") else QUEUES
            config = TopicConfig(
                topic_name=name, perm=6, read_queue_nums=queues, write_queue_nums=queues
            )
            header = create_topic_header(config)
            await api.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        mode = SetMessageRequestModeRequestBody(
            topic="SoakPop", consumer_group="soak-pop", mode=MessageRequestMode.POP
        )
        await api.ask(address, RequestCode.SET_MESSAGE_REQUEST_MODE, body=encode_body(mode))

    # ----------------------------------------------------------------- what disturbs

    def _note(self, kind: str) -> Event:
        event = self.ledger.event(kind, time.time(), lasts=True)
        self.events.append(event)
        return event

    def _ended(self, event: Event) -> None:
        """An event is over; what was popped before, and was not acknowledged by its end, comes when its time is over."""
        event.ended_s = time.time()
        if event.kind not in ("member joined", "member left"):
            over_s = event.ended_s + POP_INVISIBLE_MS / 1000
            self.ledger.event(POPPED_AGAIN, over_s, group="soak-pop")

    async def _restarts(self) -> None:
        how = [signal.SIGTERM, signal.SIGKILL]
        count = 0
        while time.time() + 60 + CALM_S < self._until_s or not count:
            await self._sleep(30 if not count else 60)
            sent = how[count % 2]
            event = self._note(f"broker {sent.name}")
            await deferToThread(self._cluster.restart_broker, sent)
            self._ended(event)
            count += 1

    async def _changes(self) -> None:
        while time.time() + 20 + CALM_S < self._until_s:
            await self._sleep(self._random.uniform(12, 18))
            what = self._random.choice(["joined", "left", "killed"])
            if len(self._members) <= 1:
                what = "joined"
            elif len(self._members) > MEMBERS:
                what = self._random.choice(["left", "killed"])
            event = self._note(f"member {what}")
            if what == "joined":
                await self._join()
            else:
                member = self._members.pop(self._random.randrange(len(self._members)))
                await member.end("TERM" if what == "left" else "KILL")
            self._ended(event)

    def _join(self) -> Deferred[None]:
        self._member_count += 1
        member = MemberProcess(self.ledger, f"member-{self._member_count}")
        environment = dict(os.environ, PYTHONPATH=str(ROOT), HOME=str(self._cluster.home))
        command = [sys.executable, "-m", "bench.soak_member", self._cluster.namesrv]
        self._reactor.spawnProcess(member, sys.executable, command, environment, str(ROOT))
        self._members.append(member)
        self._all.append(member)
        return member.up

    # ----------------------------------------------------------------- what is sent

    def _begin(self, kind: Callable[[], Awaitable[None]]) -> None:
        sending = Deferred.fromCoroutine(kind())  # type: ignore[arg-type]
        self._sending.add(sending)

        def ended(result: Any) -> Any:
            self._sending.discard(sending)
            return result

        sending.addBoth(ended)
        sending.addErrback(lambda failure: self.unanswered.append(failure.getTraceback()))

    def _message(
        self, topic: str, kind: str, *groups: str, after_s: float = 0.0
    ) -> tuple[Message, Sent]:
        number = self._numbers.get(kind, 0)
        self._numbers[kind] = number + 1
        now_s = time.time()
        sent = Sent(f"{kind}-{number}", groups, now_s, now_s + after_s)
        self.ledger.sent[sent.key] = sent
        message = Message(topic=topic, body=sent.key.encode())
        message.keys = sent.key
        return message, sent

    async def _send(self, sends: list[Sent], send: Callable[[], Deferred[Any]]) -> None:
        try:
            await send()
        except RocketMQError:
            self.failed_sends += 1
        else:
            for sent in sends:
                sent.is_acknowledged = True
        for sent in sends:
            sent.ended_s = time.time()

    async def _plain(self) -> None:
        message, sent = self._message("SoakPlain", "plain", "soak-plain")
        await self._send([sent], lambda: self._producer.send(message))

    async def _ordered(self) -> None:
        for account in ("a", "b", "c"):
            message, sent = self._message("SoakOrder", "order", "soak-order")
            await self._send([sent], lambda: self._producer.send_ordered(message, account))  # noqa: B023

    async def _delayed(self) -> None:
        level = self._random.choice(list(LEVELS_S))
        message, sent = self._message("SoakLater", "level", "soak-later", after_s=LEVELS_S[level])
        message.delay_time_level = level
        await self._send([sent], lambda: self._producer.send(message))

    async def _timed(self) -> None:
        message, sent = self._message("SoakLater", "timed", "soak-later")
        message.deliver_time_ms = int(1000 * (sent.began_s + self._random.uniform(1.5, 15)))
        sent.due_s = message.deliver_time_ms / 1000
        await self._send([sent], lambda: self._producer.send(message))

    async def _transaction(self) -> None:
        message, sent = self._message("SoakTx", "tx", "soak-tx")
        fate = int(sent.key.partition("-")[2]) % 4
        # The third is never told to the broker, which asks: committed.
        sent.is_secret = fate == 1
        verdict = {1: LocalTransactionState.ROLLBACK_MESSAGE, 2: LocalTransactionState.UNKNOW}.get(
            fate, LocalTransactionState.COMMIT_MESSAGE
        )
        await self._send(
            [sent], lambda: self._producer.send_in_transaction(message, lambda *_: verdict)
        )

    def _check(self, message: Any) -> LocalTransactionState:
        sent = self.ledger.sent[message.keys]
        if sent.is_secret:
            return LocalTransactionState.ROLLBACK_MESSAGE
        return LocalTransactionState.COMMIT_MESSAGE

    async def _retried(self) -> None:
        message, sent = self._message("SoakRetry", "retry", "soak-retry")
        await self._send([sent], lambda: self._producer.send(message))

    async def _batch(self) -> None:
        pairs = [self._message("SoakBatch", "batch", "soak-batch") for _ in range(5)]
        messages = [message for message, _ in pairs]
        await self._send([sent for _, sent in pairs], lambda: self._producer.send_batch(messages))

    async def _tagged(self) -> None:
        number = self._random.randrange(10)
        tag = self._random.choice("abc")
        groups = ["soak-tags"] * (tag != "c") + ["soak-sql"] * (3 <= number <= 7)
        message, sent = self._message("SoakTags", "filter", *groups)
        message.tags = tag
        message.properties |= {"n": str(number), "kind": "sql"}
        await self._send([sent], lambda: self._producer.send(message))

    async def _popped(self) -> None:
        message, sent = self._message("SoakPop", "pop", "soak-pop")
        await self._send([sent], lambda: self._producer.send(message))

    async def _asked(self) -> None:
        message, sent = self._message("SoakAsk", "ask", "soak-ask")
        try:
            reply = await self._producer.request(message, timeout_ms=4_000)
        except RequestTimeoutError:
            # Stored, so it is consumed; the reply may be lost with the broker or the member that had it.
            sent.is_acknowledged = True
            if self.ledger.event_at(sent.began_s, time.time()) is None:
                self.unanswered.append(f"{sent.key} had no reply, and no event was about")
        except RocketMQError:
            self.failed_sends += 1
        else:
            sent.is_acknowledged = True
            assert reply.body == message.body.upper()
        sent.ended_s = time.time()


# --------------------------------------------------------------------------- the report


def table(verdict: Verdict, soak: Soak) -> str:
    """The figures as Markdown."""
    lines = [
        "| kind | sent | acknowledged | consumed | dead | came twice | stored twice | latest, s |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for kind, row in sorted(verdict.rows.items()):
        lines.append(
            f"| {kind} | {row.sent} | {row.acknowledged} | {row.consumed} | {row.dead} | {row.twice} | "
            f"{row.stored_twice} | {row.latest_s:.1f} |"
        )
    counts: dict[str, int] = {}
    for event in soak.events:
        counts[event.kind] = counts.get(event.kind, 0) + 1
    lines += ["", "| event | how often | messages that came twice |", "|---|--:|--:|"]
    for kind in sorted({*counts, *verdict.twice}):
        lines.append(f"| {kind} | {counts.get(kind, '')} | {verdict.twice.get(kind, 0)} |")
    return "\n".join(lines) + "\n"


def page(old: str, text: str, minutes: float, commit: str, faults: int) -> str:
    """docs/soak.md with the figures of a run; what people wrote around them stays."""
    head, begin, rest = old.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE} has no place for the figures, between {BEGIN} and {END}")
    run = f"{minutes:g} minutes at commit {commit}. **Faults: {faults}.**"
    return f"{head}{begin}\n\n{run}\n\n{text}\n{end}{tail}"


def commit_id() -> str:
    """What is checked out."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@click.command()
@click.option("--minutes", default=10.0, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--page/--no-page", "writes_page", default=True, help="Write docs/soak.md.")
@click.option(
    "--keep", type=click.Path(path_type=Path), help="Put the broker's log and the ledger here."
)
def main(minutes: float, seed: int, writes_page: bool, keep: Path | None) -> None:
    """See the module."""
    outcome: list[int] = []
    settings = {"enablePropertyFilter": "true", "transactionCheckInterval": "1000"}

    async def run(reactor: Any) -> None:
        soak = Soak(reactor, cluster, minutes, seed)
        verdict = await soak.run()
        faults = verdict.faults + soak.unanswered
        text = table(verdict, soak)
        log = (cluster.home / "broker.log").read_text(errors="replace")
        if "Traceback" in log:
            faults.append("the broker's log has a traceback")
        print(text)
        print(f"sends that failed: {soak.failed_sends}; faults: {len(faults)}")
        print("\n".join(faults[:200]))
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / "broker.log").write_text(log)
            ledger = {name: [attrs.asdict(item) for item in items] for name, items in soak.books()}
            (keep / "ledger.json").write_text(json.dumps(ledger))
        if writes_page:
            PAGE.write_text(page(PAGE.read_text(), text, minutes, commit_id(), len(faults)))
        outcome.append(int(bool(faults)))

    with OurCluster(broker_settings=settings) as cluster:
        try:
            react(run)
        except SystemExit as ended:
            if ended.code:
                raise
    sys.exit(outcome[0])


if __name__ == "__main__":
    main()
