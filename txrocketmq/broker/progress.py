"""How far is a consumer group? The one definition of position and lag; every view of them is made from it.

Stands for what ``AdminBrokerProcessor.getConsumeStats`` and ``fetchAllConsumeStatsInBroker`` work out each for themselves.

A group's *lag* in a queue is what it has not consumed yet: the end of the queue less the committed offset. A group that never committed
counts from 0, as officially. A committed offset beyond the end of the queue (the queue was deleted and begun anew, or a client
committed nonsense) counts as the end, so lag is never negative; the same holds for what was pulled and is not committed yet (*in
flight*).
"""

from __future__ import annotations

from typing import NamedTuple

from txrocketmq.broker.clients import Consumers
from txrocketmq.broker.consumer_offsets import ConsumerOffsets
from txrocketmq.broker.topics import Topics
from txrocketmq.interfaces import IMessageStore


class QueueProgress(NamedTuple):
    """Where a group stands in one queue; logical offsets.

    :ivar end: the next offset that the queue will give.
    :ivar consumed: the committed offset, between 0 and ``end``.
    :ivar pulled: the offset behind the last message handed out, between ``consumed`` and ``end``.
    :ivar last_timestamp_ms: store time of the last consumed message, 0 when it cannot be told.
    """

    end: int
    consumed: int
    pulled: int
    last_timestamp_ms: int

    @property
    def lag(self) -> int:
        """Messages not consumed yet."""
        return self.end - self.consumed

    @property
    def in_flight(self) -> int:
        """Messages handed out and not committed yet."""
        return self.pulled - self.consumed


class Progress:
    """Works out where groups stand."""

    def __init__(
        self,
        store: IMessageStore,
        topics: Topics,
        consumers: Consumers,
        offsets: ConsumerOffsets,
    ) -> None:
        self._store = store
        self._topics = topics
        self._consumers = consumers
        self._offsets = offsets

    def topics_of(self, group: str) -> list[str]:
        """The topics of which a group has offsets, without those that its live members do not subscribe to."""
        return self.subscribed(group, self._offsets.topics_of(group))

    def subscribed(self, group: str, topics: list[str]) -> list[str]:
        """Of some topics, those that a group consumes; all of them while it has no live member."""
        live = self._consumers.get(group)
        if live is None or not live.subscriptions:
            return topics
        return [topic for topic in topics if topic in live.subscriptions]

    def of_topic(self, group: str, topic: str) -> list[QueueProgress]:
        """Where a group stands in a topic, one item a queue id from 0; empty when the topic is unknown."""
        config = self._topics.get(topic)
        if config is None:
            return []
        return [self.of_queue(group, topic, queue_id) for queue_id in range(config.read_queue_nums)]

    def of_queue(self, group: str, topic: str, queue_id: int) -> QueueProgress:
        """Where a group stands in one queue."""
        end = max(0, self._store.max_offset(topic, queue_id))
        consumed = min(max(0, self._offsets.query(group, topic, queue_id)), end)
        pulled = min(max(consumed, self._offsets.query_pulled(group, topic, queue_id)), end)
        timestamp_ms = 0
        if consumed > 0:
            timestamp_ms = max(0, self._store.store_time(topic, queue_id, consumed - 1))
        return QueueProgress(end, consumed, pulled, timestamp_ms)
