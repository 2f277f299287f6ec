"""Java producers and consumers inside a puppet, as Python objects.

Each is a context manager that stops its client. What a consumer got comes as `Row`, what a producer was told as `Sent`.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Collection
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple, Self

from .puppet import GRACE_S, Puppet

#: How long an operation on messages may take before a test fails, in ms.
PATIENCE_MS = 60_000

_NUMBERS = itertools.count(1)


class Row(NamedTuple):
    """One message as a consumer got it; rows come in the order of receipt."""

    broker: str
    queue: int
    offset: int
    seq: int
    digest: str
    tag: str | None
    keys: str | None
    reconsumed: int
    msg_id: str
    received_ms: int

    @property
    def place(self) -> tuple[str, int, int]:
        """Where the message is stored: broker, queue, queue offset."""
        return self.broker, self.queue, self.offset


class Sent(NamedTuple):
    """One acknowledged message."""

    seq: int
    status: str
    broker: str
    queue: int
    offset: int
    msg_id: str

    @property
    def place(self) -> tuple[str, int, int]:
        """Where the broker said it stored the message."""
        return self.broker, self.queue, self.offset


class SendReport:
    """The outcome of a run of messages."""

    def __init__(self, summary: dict[str, Any]) -> None:
        self.attempted: int = summary["attempted"]
        self.failures: int = summary["failures"]
        self.took_ms: int = summary["took_ms"]
        self.sent = sorted(Sent(*row) for row in summary["results"])
        self.errors: list[tuple[int, str, int | None]] = [
            (seq, text, code) for seq, text, code in summary["errors"]
        ]


class _Client:
    """A named client of a puppet."""

    _kind = ""

    def __init__(self, puppet: Puppet, namesrv: str) -> None:
        self.puppet = puppet
        self.namesrv = namesrv
        self.name = f"{self._kind}-{next(_NUMBERS)}"
        self._running = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._running and self.puppet.is_alive:
            self.stop()

    def stop(self) -> None:
        """Shut the client down in good order."""
        self._running = False
        self._ask("stop")

    def _ask(self, operation: str, **args: Any) -> Any:
        return self.puppet.call(f"{self._kind}.{operation}", name=self.name, **args)


class SendRun:
    """A run of messages that is being sent."""

    def __init__(self, producer: Producer, job: str) -> None:
        self._puppet = producer.puppet
        self._job = job

    def wait_attempted(self, at_least: int) -> None:
        """Wait until that many messages were tried. AssertionError when they are not in time."""
        done = self._puppet.call(
            "producer.send_wait", job=self._job, at_least=at_least, timeout_ms=PATIENCE_MS
        )
        assert done >= at_least, f"only {done} of {at_least} messages were tried in time"

    def join(self, timeout_ms: int = 2 * PATIENCE_MS) -> SendReport:
        """Wait for the end of the run. AssertionError when a message failed for good."""
        report = self.report(timeout_ms)
        assert not report.errors, f"{len(report.errors)} sends failed: {report.errors[:3]}"
        return report

    def report(self, timeout_ms: int = 2 * PATIENCE_MS) -> SendReport:
        """Wait for the end of the run; what became of each message, failed ones too."""
        return SendReport(
            self._puppet.call("producer.send_join", job=self._job, timeout_ms=timeout_ms)
        )


class Producer(_Client):
    """An official ``DefaultMQProducer``."""

    _kind = "producer"

    def __init__(self, puppet: Puppet, namesrv: str, group: str, **settings: Any) -> None:
        super().__init__(puppet, namesrv)
        self._ask("start", namesrv=namesrv, group=group, **settings)

    def send(
        self, topic: str, seed: str, count: int, mode: str = "sync", **args: Any
    ) -> SendReport:
        """Send ``count`` messages and wait for the outcome."""
        run = self.start_sending(topic, seed, count, mode, **args)
        return run.join(2 * PATIENCE_MS)

    def start_sending(
        self, topic: str, seed: str, count: int, mode: str = "sync", **args: Any
    ) -> SendRun:
        """Begin to send ``count`` messages.

        ``mode`` is sync, async, oneway, batch, ordered (queue by key) or queue (all to one). ``first`` is the first sequence
        number, ``size`` the body's bytes, ``tags`` are taken in turn, ``insist_ms`` is for how long failed sends are repeated;
        ``timed`` asks for times of delivery, taken in turn: ``NAME=value``, or ``NAME=+ms`` from now; ``properties`` are those of
        every message, ``NAME=value``; ``rate`` is how many messages are begun in a second at most.
        """
        job = f"run-{next(_NUMBERS)}"
        self._ask("send_start", job=job, topic=topic, seed=seed, count=count, mode=mode, **args)
        return SendRun(self, job)

    def send_text(self, topic: str, body: str, **args: Any) -> dict[str, Any]:
        """Send one message of given text; the whole send result."""
        result: dict[str, Any] = self._ask("send_text", topic=topic, body=body, **args)
        return result

    def queues(self, topic: str) -> list[tuple[str, int]]:
        """Broker and number of the queues that it would send to, as the route says now."""
        found = self._ask("queues", topic=topic)
        return [(broker, number) for broker, number in found]

    def recall(self, topic: str, handle: str) -> str:
        """Take a timed message back (5.x clients); its id."""
        message_id: str = self._ask("recall", topic=topic, handle=handle)
        return message_id


class PushConsumer(_Client):
    """An official ``DefaultMQPushConsumer``.

    ``model`` is CLUSTERING or BROADCASTING, ``listener`` concurrent or orderly; ``sql`` filters by properties. With a record file the rows survive a kill.
    """

    _kind = "push"

    def __init__(
        self, puppet: Puppet, namesrv: str, group: str, topic: str, **settings: Any
    ) -> None:
        super().__init__(puppet, namesrv)
        self.topic = topic
        self._record = settings.get("record_file")
        self._ask("start", namesrv=namesrv, group=group, topic=topic, **settings)

    def wait(self, at_least: int, timeout_ms: int = PATIENCE_MS) -> int:
        """Wait until that many different messages came or the time is over; how many did."""
        received: int = self._ask("wait", at_least=at_least, timeout_ms=timeout_ms)
        return received

    def wait_for_all(self, due: Collection[int]) -> list[Row]:
        """Wait until all of these sequence numbers came, whatever else did, or nothing has come for a minute; all that came."""
        deadline = time.monotonic() + PATIENCE_MS / 1000
        wanted, before = len(due), 0
        while True:
            received = self.wait(wanted, 1_000)
            if received > before:
                before, deadline = received, time.monotonic() + PATIENCE_MS / 1000
            if received < wanted and time.monotonic() <= deadline:
                continue
            rows = self.rows()
            if set(due) <= {row.seq for row in rows} or time.monotonic() > deadline:
                return rows
            wanted = received + 1

    def rows(self) -> list[Row]:
        """All that came, in order of receipt."""
        return [Row(*row) for row in self._ask("report")]

    def recorded_rows(self) -> list[Row]:
        """All that came to a consumer whose process was killed, from its record file."""
        assert self._record is not None
        text = Path(self._record).read_text()
        return [Row(*json.loads(line)) for line in text.splitlines()]

    def wait_assigned(self, count: int, timeout_ms: int = PATIENCE_MS) -> list[tuple[str, int]]:
        """Wait until it holds exactly that many queues. AssertionError when it does not in time."""
        queues = self._ask("wait_assigned", topic=self.topic, count=count, timeout_ms=timeout_ms)
        assert len(queues) == count, f"holds {queues}, not {count} queues"
        return [(broker, queue) for broker, queue in queues]


class LitePull(_Client):
    """An official ``DefaultLitePullConsumer``; with an ``expression`` it subscribes, else queues are assigned by `assign`."""

    _kind = "pull"

    def __init__(
        self, puppet: Puppet, namesrv: str, group: str, topic: str, **settings: Any
    ) -> None:
        super().__init__(puppet, namesrv)
        self.topic = topic
        self._ask("start", namesrv=namesrv, group=group, topic=topic, **settings)

    def assign(self) -> int:
        """Take all queues of the topic; how many there are."""
        count: int = self._ask("assign", topic=self.topic)
        return count

    def poll(self, at_least: int, timeout_ms: int = PATIENCE_MS) -> list[Row]:
        """Poll until that many rows are there or the time is over."""
        rows = self._ask("poll", at_least=at_least, timeout_ms=timeout_ms)
        return [Row(*row) for row in rows]

    def seek(self, broker: str, queue: int, offset: int) -> None:
        """Go on from an offset."""
        self._ask("seek", topic=self.topic, broker=broker, queue=queue, offset=offset)

    def commit(self) -> None:
        """Commit what was polled, and wait for the broker."""
        self._ask("commit")

    def committed(self, broker: str, queue: int) -> int:
        """The offset that the broker has for the group."""
        offset: int = self._ask("committed", topic=self.topic, broker=broker, queue=queue)
        return offset

    def offset_for_time(self, broker: str, queue: int, timestamp_ms: int) -> int:
        """The offset that the broker finds for a store time."""
        offset: int = self._ask(
            "offset_for_time",
            topic=self.topic,
            broker=broker,
            queue=queue,
            timestamp_ms=timestamp_ms,
        )
        return offset


class Admin:
    """What operators ask through the official admin library, and whole ``mqadmin`` commands."""

    def __init__(self, puppet: Puppet, namesrv: str) -> None:
        self.puppet = puppet
        self.namesrv = namesrv

    def _ask(self, operation: str, **args: Any) -> Any:
        return self.puppet.call(f"admin.{operation}", namesrv=self.namesrv, **args)

    def wait_broker(self, broker: str, absent: bool = False) -> None:
        """Wait until the name server lists a broker, or no longer does. AssertionError when it does not in time."""
        seen = self._ask("wait_broker", broker=broker, absent=absent, timeout_ms=PATIENCE_MS)
        assert seen, f"{broker} is {'still' if absent else 'not'} listed by {self.namesrv}"

    def wait_route(self, topic: str) -> None:
        """Wait until the name server has a route for a topic."""
        assert self._ask("wait_route", topic=topic, timeout_ms=PATIENCE_MS), f"no route: {topic}"

    def route(self, topic: str) -> list[str]:
        """The brokers that have queues of a topic."""
        brokers: list[str] = self._ask("route", topic=topic)
        return brokers

    def create_topic(self, broker_address: str, topic: str, queues: int = 4) -> None:
        """Create a topic on a broker."""
        self._ask("create_topic", broker_addr=broker_address, topic=topic, queues=queues)

    def offsets(self, topic: str, broker: str, queue: int) -> tuple[int, int]:
        """Smallest and next queue offset."""
        smallest, following = self._ask("offsets", topic=topic, broker=broker, queue=queue)
        return smallest, following

    def search_offset(self, topic: str, broker: str, queue: int, timestamp_ms: int) -> int:
        """The queue offset for a store time."""
        offset: int = self._ask(
            "search_offset", topic=topic, broker=broker, queue=queue, timestamp_ms=timestamp_ms
        )
        return offset

    def read_topics(self, topics: Collection[str]) -> dict[str, list[Row]]:
        """Every message of some topics, pulled queue by queue from the first offset to the last."""
        # Tens of thousands of messages, 32 at a time, beside other work.
        found = self._ask("read_topics", topics=list(topics), timeout_ms=5 * PATIENCE_MS)
        return {topic: [Row(*row) for row in rows] for topic, rows in found.items()}

    def read_queue(
        self, topic: str, broker: str, beside: str, *, queue: int = 0, group: str = "puppet-reader"
    ) -> list[Row]:
        """Every message of a queue that has no route, such as a light one; ``beside`` is a topic of the same broker.

        The group's position is put behind the last.
        """
        rows = self._ask(
            "read_queue", topic=topic, broker=broker, beside=beside, queue=queue, group=group
        )
        return [Row(*row) for row in rows]

    def consume_offsets(self, group: str) -> list[tuple[str, str, int, int, int]]:
        """Topic, broker, queue, the broker's next offset and the group's, of all queues that the group has a position in."""
        rows = self._ask("consume_offsets", group=group)
        return [(topic, broker, queue, end, at) for topic, broker, queue, end, at in rows]

    def pull(
        self, topic: str, broker: str, queue: int, offset: int, most: int
    ) -> tuple[str, int, list[Row]]:
        """What one pull brings: its status, where the next one begins, the messages."""
        status, following, rows = self._ask(
            "pull", topic=topic, broker=broker, queue=queue, offset=offset, max=most
        )
        return status, following, [Row(*row) for row in rows]

    def consumers_of(self, topic: str) -> set[str]:
        """The groups that consume a topic, or did."""
        return set(self._ask("consumers_of", topic=topic))

    def time_spans(self, topic: str, group: str) -> dict[tuple[str, int], tuple[int, ...]]:
        """Of each queue: store times of its oldest and newest message, that of the last consumed one, and how late that is, in ms."""
        rows = self._ask("time_spans", topic=topic, group=group)
        return {(broker, queue): tuple(times) for broker, queue, *times in rows}

    def slowest_offsets(
        self, broker_address: str, topic: str, group: str, without: Collection[str]
    ) -> dict[int, int]:
        """Where the slowest group of a topic stands in each queue, not counting some, as shown to a group that is ahead of it."""
        offsets = self._ask(
            "slowest_offsets",
            broker_addr=broker_address,
            topic=topic,
            group=group,
            without=list(without),
        )
        return {int(queue): offset for queue, offset in offsets.items()}

    def wait_key(self, topic: str, key: str) -> None:
        """Wait until the index has a message with that key."""
        assert self._ask("wait_key", topic=topic, key=key, timeout_ms=PATIENCE_MS), f"no {key}"

    def consumer_ids(self, group: str) -> list[str]:
        """Client ids of a group's live members."""
        ids: list[str] = self._ask("consumer_ids", group=group)
        return ids

    def command(self, *words: str, limit_ms: int = PATIENCE_MS) -> dict[str, Any]:
        """Run one mqadmin command; ``output``, ``exit`` and ``exception`` (whether it printed one).

        A command that runs longer than ``limit_ms`` is broken off; then ``broken_off`` is true and the output is what there was.
        """
        result: dict[str, Any] = self.puppet.call(
            "admin.command",
            words=[*words, "-n", self.namesrv],
            limit_ms=limit_ms,
            timeout_ms=limit_ms + 10_000,
        )
        return result

    def forget(self) -> None:
        """Close the admin client of these name servers."""
        self._ask("forget")


def result_of(answer: Future[Any], timeout_ms: int = PATIENCE_MS) -> Any:
    """Wait for a submitted operation."""
    return answer.result(timeout_ms / 1000 + GRACE_S)
