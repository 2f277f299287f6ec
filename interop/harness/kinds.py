"""Java clients that do more than send and receive: consumers that fail on purpose, producers of transactions."""

from __future__ import annotations

from typing import Any, NamedTuple

from .clients import PATIENCE_MS, PushConsumer, _Client
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
