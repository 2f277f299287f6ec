"""What goes wrong for operators, beside refusals and lost connections: some brokers of several, and groups without members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txrocketmq.errors import MQClientError, RocketMQError


class PartialFailureError(MQClientError):
    """Several servers were asked, and some failed. What the others did is done.

    :ivar results: address to answer, of those that did it.
    :ivar failures: address to error, of those that did not; never empty.
    """

    def __init__(
        self, what: str, results: Mapping[str, Any], failures: Mapping[str, RocketMQError]
    ) -> None:
        told = "; ".join(f"{address}: {error}" for address, error in failures.items())
        done = f", done by {', '.join(results)}" if results else ""
        count = len(results) + len(failures)
        super().__init__(f"{what}: {len(failures)} of {count} servers failed{done}: {told}")
        self.results = dict(results)
        self.failures = dict(failures)


class NotOnlineError(MQClientError):
    """A group has no member that is connected (official ``CONSUMER_NOT_ONLINE``)."""


class BroadcastConsumptionError(MQClientError):
    """The members of a group keep their offsets themselves, so brokers know none (official ``BROADCAST_CONSUMPTION``)."""


class NoSuchBrokerError(MQClientError):
    """The name servers know no such cluster, broker or address."""
