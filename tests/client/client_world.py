"""A name server, brokers and a client of ours on a network in memory, moved by a virtual clock."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from small_world import run_until, start_broker, start_name_server
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txrocketmq.client.config import ClientConfig
from txrocketmq.client.instance import ClientInstance
from txrocketmq.client.producer.config import ProducerConfig
from txrocketmq.client.producer.producer import Producer
from txrocketmq.codec.record import decode_records
from txrocketmq.testing.network import Network

NAME_SERVER = "192.0.2.1:9876"


class ClientWorld:
    """One name server and some brokers ``broker-2`` ..., which serve at ``192.0.2.<number>:10911``.

    :ivar network: moves time.
    """

    def __init__(self, brokers: int = 1, name_server: bool = True, **settings: Any) -> None:
        self.network = Network()
        self.clock = self.network.clock
        if name_server:
            self.name_server = start_name_server(self.network, NAME_SERVER)
        self.brokers = {
            number: start_broker(self.network, number, namesrv_addr=NAME_SERVER, **settings)
            for number in range(2, 2 + brokers)
        }
        self.network.run(0.5)

    def instance(self, **settings: Any) -> ClientInstance:
        """A client that is not started."""
        settings.setdefault("namesrv_addr", NAME_SERVER)
        return ClientInstance(
            self.clock,
            ClientConfig(**settings),
            endpoint=self.network.endpoint,
            random=lambda: 0.5,
        )

    def producer(
        self, group: str = "PG", client: dict[str, Any] | None = None, **settings: Any
    ) -> Producer:
        """A started producer with a client of its own."""
        check = settings.pop("check", None)
        producer = Producer(
            self.clock,
            group,
            settings=ProducerConfig(**settings),
            instance=self.instance(**(client or {})),
            check=check,
        )
        self.wait(producer.start())
        return producer

    def outcome(self, awaited: Awaitable[Any], limit_s: float = 60) -> Any:
        """Let time go by until something is done; its value, or its `Failure`."""
        found: list[Any] = []
        deferred = awaited if isinstance(awaited, Deferred) else Deferred.fromCoroutine(awaited)
        deferred.addBoth(found.append)
        if not found:
            run_until(self.network, lambda: bool(found), limit_s)
        return found[0]

    def wait(self, awaited: Awaitable[Any], limit_s: float = 60) -> Any:
        """As `outcome`, raising the failure's error."""
        found = self.outcome(awaited, limit_s)
        if isinstance(found, Failure):
            found.raiseException()
        return found

    def stored(self, topic: str) -> list[tuple[str, int, bytes, dict[str, str]]]:
        """All messages of a topic: broker name, queue id, body as stored, properties; by broker and queue."""
        found = []
        for broker in self.brokers.values():
            store = broker.store
            for name, queue_id in sorted(store.queues()):
                if name != topic:
                    continue
                for offset in range(store.max_offset(topic, queue_id)):
                    result = store.get_message(topic, queue_id, offset, 1, 1 << 24, None)
                    for message in _messages(result):
                        place = (broker.config.broker_name, queue_id)
                        found.append((*place, message.body, message.properties))
        return found


def _messages(result: Any) -> list[Any]:
    return decode_records(b"".join(bytes(part) for part in result.records))
