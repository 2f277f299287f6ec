"""Operators send too: single messages, and many to measure how long brokers take.

Stands for ``sendMessage``, ``checkMsgSendRT``, ``clusterRT`` and ``sendMsgStatus``.
"""

from __future__ import annotations

from typing import Any

from txrocketmq.client.admin.core import AdminCore
from txrocketmq.client.admin.results import ProbeSummary, SendProbe
from txrocketmq.client.producer.producer import Producer
from txrocketmq.client.results import SendResult
from txrocketmq.errors import RocketMQError
from txrocketmq.model.message import Message, MessageQueue

GROUP = "admin_ext_producer"


class ToolProducer:
    """A producer that starts with its first message, and shares the admin client's connections."""

    def __init__(self, reactor: Any, core: AdminCore) -> None:
        self._reactor = reactor
        self._core = core
        self._producer: Producer | None = None

    async def send(self, message: Message, queue: MessageQueue | None = None) -> SendResult:
        """Send one message; errors as `Producer.send`."""
        producer = self._producer
        if producer is None:
            producer = Producer(self._reactor, GROUP, instance=self._core.instance)
            self._producer = producer
            await producer.start()
        return await producer.send(message, queue)

    async def stop(self) -> None:
        """Let what is in flight end."""
        if self._producer is not None:
            producer, self._producer = self._producer, None
            await producer.stop()


class ProbeAdmin:
    """How long do brokers take for a message? The messages stay in the topic they were sent to."""

    def __init__(self, core: AdminCore, producer: ToolProducer) -> None:
        self._core = core
        self._producer = producer

    async def topic(self, topic: str, *, amount: int = 100, size: int = 128) -> list[SendProbe]:
        """Send messages to a topic's queues in turn, one after the other (``checkMsgSendRT``).

        :param amount: messages.
        :param size: bytes of each.
        :raises NoRouteError: the topic cannot be written.
        """
        queues = (await self._core.instance.routes.find_publish(topic)).queues
        return [await self._probe(queues[number % len(queues)], size) for number in range(amount)]

    async def broker(
        self, broker_name: str, *, count: int = 50, size: int = 128
    ) -> list[SendProbe]:
        """Send messages to the topic that has a broker's name (``sendMsgStatus``)."""
        return await self.topic(broker_name, amount=count, size=size)

    async def clusters(
        self, cluster: str | None = None, *, amount: int = 100, size: int = 128
    ) -> list[ProbeSummary]:
        """Send messages to the topic of each broker's name, of one cluster or of all (one round of ``clusterRT``).

        :raises NoSuchBrokerError: there is no such cluster.
        """
        names = (
            [cluster] if cluster else sorted((await self._core.cluster_info()).cluster_addr_table)
        )
        found = []
        for name in names:
            for member in await self._core.members(name):
                broker_name = member.broker_name or ""
                try:
                    probes = await self.broker(broker_name, count=amount, size=size)
                except RocketMQError:
                    probes = []
                found.append(_summary(name, broker_name, probes, amount))
        return found

    async def _probe(self, queue: MessageQueue, size: int) -> SendProbe:
        clock = self._core.instance.clock
        began = clock.seconds()
        error = None
        try:
            await self._producer.send(Message(queue.topic, b"a" * size), queue)
        except RocketMQError as failure:
            error = str(failure)
        return SendProbe(queue.broker_name, queue.queue_id, (clock.seconds() - began) * 1000, error)


def _summary(cluster: str, broker_name: str, probes: list[SendProbe], amount: int) -> ProbeSummary:
    good = sum(probe.error is None for probe in probes)
    counted = [probe.rt_ms for probe in probes[1:]]
    mean = sum(counted) / len(counted) if counted else 0.0
    return ProbeSummary(cluster, broker_name, mean, good, amount - good)
