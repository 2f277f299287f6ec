"""Java clients that do more than send and receive: consumers that fail or wait on purpose, those that pop by hand, producers of transactions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from .clients import PATIENCE_MS, PushConsumer, Row, _Client
from .cluster import Cluster
from .puppet import Puppet


class Times(NamedTuple):
    """When one message was made and stored, as its consumer sees it."""

    seq: int
    reconsumed: int
    born_ms: int
    stored_ms: int


class WatchedConsumer(PushConsumer):
    """A push consumer of which every single delivery counts.

    ``fail_times`` says how often messages fail before they succeed, taken in turn by sequence number; ``max_reconsume`` is the limit
    of tries, ``retry_level`` the delay level asked for after a failure (0: the broker chooses).
    """

    def wait_rows(self, at_least: int, timeout_ms: int = PATIENCE_MS) -> int:
        """Wait until that many deliveries came or the time is over; how many did."""
        received: int = self._ask("wait_rows", at_least=at_least, timeout_ms=timeout_ms)
        return received

    def times(self) -> list[Times]:
        """The times of all that came, in order of receipt."""
        return [Times(*row) for row in self._ask("times")]


class HeldConsumer(PushConsumer):
    """A push consumer whose listener waits until it is let go; what it holds meanwhile is what it read ahead.

    ``queue_messages``, ``queue_mib``, ``topic_messages``, ``topic_mib`` and ``span`` are its limits of reading ahead.
    """

    def __init__(
        self, puppet: Puppet, namesrv: str, group: str, topic: str, **settings: Any
    ) -> None:
        super().__init__(puppet, namesrv, group, topic, held=True, **settings)

    def ahead(self) -> dict[int, tuple[int, int]]:
        """Of each queue, how many messages it holds, and the bytes of their bodies."""
        held = self._ask("ahead", topic=self.topic)
        return {queue: (messages, size) for queue, messages, size in held}

    def release(self) -> None:
        """Let the listener go on, for good."""
        self._ask("release")


class Popped(NamedTuple):
    """One message that was popped, and what an acknowledgement names."""

    row: Row
    handle: str

    @property
    def hidden_until_ms(self) -> int:
        """When it comes again unless it is acknowledged."""
        _, pop_time_ms, invisible_ms, *_ = self.handle.split(" ")
        return int(pop_time_ms) + int(invisible_ms)


class Popping(_Client):
    """The client library of the official proxy, which asks a broker about messages that are popped (5.x)."""

    _kind = "pops"

    def __init__(self, puppet: Puppet, cluster: Cluster, group: str, topic: str) -> None:
        super().__init__(puppet, cluster.namesrv)
        self._place = {"broker": cluster.broker_name, "broker_addr": cluster.broker_address}
        self._place |= {"group": group, "topic": topic}
        self._ask("start", namesrv=cluster.namesrv)

    def _call(self, operation: str, poll_ms: int = 0, **args: Any) -> Any:
        # Official brokers look at what waits once in a while.
        patience_ms = poll_ms + 15_000
        return self._ask(operation, **self._place, poll_ms=poll_ms, timeout_ms=patience_ms, **args)

    def pop(self, most: int, invisible_ms: int, **args: Any) -> list[Popped]:
        """Messages, hidden for so long; ``queue`` is -1 for all, ``poll_ms`` for how long the broker waits for some."""
        found = self._call("pop", max=most, invisible_ms=invisible_ms, **args)
        return [Popped(Row(*row), handle) for row, handle in found]

    def acknowledge(self, popped: Collection[Popped]) -> str:
        """All at once, by BATCH_ACK_MESSAGE; ``OK``, or ``NO_EXIST`` when the broker refused."""
        status: str = self._call("ack", handles=[one.handle for one in popped])
        return status

    def later(self, popped: Popped, invisible_ms: int) -> Popped:
        """Hide one for so long from now on; what names it then."""
        handle: str = self._call("later", handle=popped.handle, invisible_ms=invisible_ms)
        return popped._replace(handle=handle)

    def peek(self, most: int, **args: Any) -> list[Row]:
        """Messages that a pop would find, by PEEK_MESSAGE."""
        return [Row(*row) for row in self._call("peek", max=most, **args)]

    def news(self, poll_ms: int, **args: Any) -> bool:
        """Whether there is a message to pop before the time is over, by NOTIFICATION. AssertionError when too many wait."""
        there_is, too_many = self._call("news", poll_ms=poll_ms, **args)
        assert not too_many
        return bool(there_is)

    def waiting(self, queue: int = -1) -> int:
        """How many pops wait, by POLLING_INFO."""
        pops: int = self._call("waiting", queue=queue)
        return pops


class TransactionProducer(_Client):
    """An official ``TransactionMQProducer`` whose outcomes are known beforehand.

    An outcome is the local one, then what checks are answered, such as ``unknown:commit``; they are taken in turn by sequence number.
    """

    _kind = "transaction"

    def __init__(
        self, puppet: Puppet, namesrv: str, group: str, outcomes: list[str], **settings: Any
    ) -> None:
        super().__init__(puppet, namesrv)
        self._ask("start", namesrv=namesrv, group=group, outcomes=outcomes, **settings)

    def send(
        self, topic: str, seed: str, count: int, *, first: int = 0, size: int = 128, **args: Any
    ) -> dict[int, str]:
        """Send messages one after the other; the local state of each. AssertionError when one was not taken."""
        rows = self._ask(
            "send",
            topic=topic,
            seed=seed,
            count=count,
            first=first,
            size=size,
            timeout_ms=2 * PATIENCE_MS,
            **args,
        )
        assert {status for _, status, _ in rows} <= {"SEND_OK"}, rows
        return {seq: state for seq, _, state in rows}

    def wait_asked(self, at_least: int, timeout_ms: int = PATIENCE_MS) -> int:
        """Wait until it was asked for that many messages or the time is over; for how many it was."""
        asked: int = self._ask("wait_asked", at_least=at_least, timeout_ms=timeout_ms)
        return asked

    def asked(self) -> dict[int, int]:
        """How often it was asked for each message."""
        return {int(seq): times for seq, times in self._ask("asked").items()}


class Asker(_Client):
    """An official producer that asks."""

    _kind = "asker"

    def __init__(self, puppet: Puppet, namesrv: str, group: str, **settings: Any) -> None:
        super().__init__(puppet, namesrv)
        self._ask("start", namesrv=namesrv, group=group, **settings)

    def ask(self, topic: str, seed: str, count: int, timeout_ms: int = PATIENCE_MS) -> list[str]:
        """Ask ``<seed>-<number>``, one after the other; the replies. PuppetError when one does not come in time."""
        replies: list[str] = self._ask(
            "ask", topic=topic, seed=seed, count=count, timeout_ms=timeout_ms
        )
        return replies

    def ask_at_once(
        self, topic: str, seed: str, count: int, timeout_ms: int = PATIENCE_MS
    ) -> list[str | None]:
        """The same, not waiting for replies between; for one that failed, the name of the failure."""
        replies: list[str | None] = self._ask(
            "ask_async", topic=topic, seed=seed, count=count, timeout_ms=timeout_ms
        )
        return replies


class Replier(_Client):
    """An official consumer that replies ``re:`` and the question."""

    _kind = "replier"

    def __init__(
        self, puppet: Puppet, namesrv: str, group: str, topic: str, **settings: Any
    ) -> None:
        super().__init__(puppet, namesrv)
        self._ask("start", namesrv=namesrv, group=group, topic=topic, **settings)

    def failures(self) -> list[str]:
        """What its producer was told instead of an acknowledgement."""
        failures: list[str] = self._ask("failures")
        return failures
