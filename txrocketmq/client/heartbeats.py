"""How do brokers learn that this client is alive, and of what groups? Heartbeats to all of them, each on its own.

Stands for ``sendHeartbeatToAllBroker``, ``sendHeartbeatToAllBrokerV2`` and ``cleanOfflineBroker`` of the official ``MQClientInstance``.
A client with consumers tells all members of a broker group, one with producers alone just the masters. In the second version
(``useHeartbeatV2``) a broker that knows a client's fingerprint is spared the subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.client.api import ClientApi
from txrocketmq.client.config import ClientConfig
from txrocketmq.client.results import HeartbeatAnswer
from txrocketmq.client.routes import RouteTable
from txrocketmq.codec.bodies.wire import encode_body
from txrocketmq.errors import RocketMQError
from txrocketmq.model.heartbeat import ConsumerData, HeartbeatData, ProducerData
from txrocketmq.model.javahash import java_hash
from txrocketmq.model.names import MASTER_ID

log = Logger()

COMPLAIN_EVERY = 20
"""Failed heartbeats at one broker in a row between two lines in the log."""


def fingerprint(heartbeat: HeartbeatData) -> int:
    """A number that changes with what a heartbeat says of the groups, never 0."""
    consumers = [
        msgspec.structs.replace(
            data,
            subscription_data_set=[
                msgspec.structs.replace(item, sub_version=0)
                for item in sorted(data.subscription_data_set, key=lambda item: item.topic or "")
            ],
        )
        for data in sorted(heartbeat.consumer_data_set, key=lambda data: data.group_name or "")
    ]
    content = HeartbeatData(consumer_data_set=consumers)
    return java_hash(encode_body(content).decode()) or 1


class Heartbeats:
    """Tells brokers of this client.

    :param groups: producer groups and consumer groups as they are now.
    """

    def __init__(
        self,
        api: ClientApi,
        routes: RouteTable,
        config: ClientConfig,
        groups: Callable[[], tuple[list[ProducerData], list[ConsumerData]]],
    ) -> None:
        self._api = api
        self._routes = routes
        self._config = config
        self._groups = groups
        self._known: dict[str, int] = {}
        self._supports_v2: set[str] = set()
        self._failures: dict[str, int] = {}

    def build(self) -> HeartbeatData:
        """What there is to tell now."""
        producers, consumers = self._groups()
        return HeartbeatData(
            client_id=self._config.client_id,
            producer_data_set=producers,
            consumer_data_set=consumers,
        )

    def targets(self, heartbeat: HeartbeatData) -> list[str]:
        """Addresses of those who should hear it."""
        to_slaves = bool(heartbeat.consumer_data_set)
        return [
            address
            for _, number, address in self._routes.addresses()
            if to_slaves or number == MASTER_ID
        ]

    def send_all(self, only: Iterable[str] | None = None) -> Deferred[None]:
        """Tell all brokers, or those named; fires when each has answered or failed. Never fails."""
        heartbeat = self.build()
        if not heartbeat.consumer_data_set and not heartbeat.producer_data_set:
            return gatherResults([]).addCallback(lambda _: None)
        mark = fingerprint(heartbeat) if self._config.use_heartbeat_v2 else 0
        wanted = None if only is None else set(only)
        told = [
            self._send(address, heartbeat, mark)
            for address in self.targets(heartbeat)
            if wanted is None or address in wanted
        ]
        return gatherResults(told).addCallback(lambda _: None)

    def _send(self, address: str, heartbeat: HeartbeatData, mark: int) -> Deferred[None]:
        if mark:
            heartbeat = msgspec.structs.replace(heartbeat, heartbeat_fingerprint=mark)
            if address in self._supports_v2 and self._known.get(address) == mark:
                heartbeat = _without_subscriptions(heartbeat)
        told = self._api.heartbeat(address, heartbeat)
        return told.addCallbacks(
            self._answered, self._failed, callbackArgs=(address, mark), errbackArgs=(address,)
        )

    def _answered(self, answer: HeartbeatAnswer, address: str, mark: int) -> None:
        self._routes.versions[address] = answer.version
        if self._failures.pop(address, 0):
            log.info("broker {address} takes heartbeats again", address=address)
        if not mark:
            return
        if answer.supports_v2:
            self._supports_v2.add(address)
            self._known[address] = mark
            if answer.subscription_changed:
                del self._known[address]

    def _failed(self, failure: Failure, address: str) -> None:
        self._known.pop(address, None)
        count = self._failures[address] = self._failures.get(address, 0) + 1
        if not isinstance(failure.value, RocketMQError):
            log.failure("heartbeat to {address} failed", failure, address=address)
        elif count % COMPLAIN_EVERY == 1:
            log.warn("heartbeat to {address} failed: {error}", address=address, error=failure.value)

    def forget(self, address: str) -> None:
        """A broker is gone, or its connection: it must be told everything again."""
        self._known.pop(address, None)

    def drop_offline(self) -> list[str]:
        """Forget brokers that no route names; their addresses."""
        gone = self._routes.drop_offline()
        for address in gone:
            self._known.pop(address, None)
            self._failures.pop(address, None)
            self._supports_v2.discard(address)
        return gone


def _without_subscriptions(heartbeat: HeartbeatData) -> HeartbeatData:
    return msgspec.structs.replace(
        heartbeat,
        without_sub=True,
        consumer_data_set=[
            msgspec.structs.replace(data, subscription_data_set=[])
            for data in heartbeat.consumer_data_set
        ],
    )
