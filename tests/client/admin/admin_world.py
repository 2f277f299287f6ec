"""An admin client on a network in memory, beside brokers and clients of ours."""

from __future__ import annotations

from typing import Any

from consumer_world import ConsumerWorld

from txrocketmq.client.admin.admin import Admin

CLUSTER = "ClusterA"


def address(number: int) -> str:
    """Where ``broker-<number>`` is."""
    return f"192.0.2.{number}:10911"


class AdminWorld(ConsumerWorld):
    """Brokers with a topic of four queues each, and an operator.

    :ivar admin: started.
    """

    def __init__(self, brokers: int = 1, **settings: Any) -> None:
        super().__init__(brokers, **settings)
        self.admin = Admin(self.clock, instance=self.instance())
        self.wait(self.admin.start())

    def collect(self, messages: Any) -> list[Any]:
        """All that an asynchronous iterator brings."""

        async def all_of() -> list[Any]:
            return [message async for message in messages]

        found: list[Any] = self.wait(all_of())
        return found
