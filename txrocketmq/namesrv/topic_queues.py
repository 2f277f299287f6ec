"""Which topics does each broker name have, and with how many queues? Both directions are one look-up.

Stands for ``topicQueueTable`` of ``RouteInfoManager``. A broker name that goes costs as much as it has topics, however many topics
there are: a hundred links that close together are a hundred such steps (official servers merge them in ``BatchUnregistrationService``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from txrocketmq.model.route import QueueData

T = TypeVar("T")

_NOTHING: Mapping[str, QueueData] = {}


class TopicQueues:
    """Topic and broker name to `QueueData`. A topic without any broker name is not there."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[str, QueueData]] = {}
        self._topics_of: dict[str, dict[str, None]] = {}

    def put(self, topic: str, broker_name: str, queue: QueueData) -> None:
        """Set what a broker name has of a topic."""
        self.put_all(broker_name, ((topic, queue),))

    def put_all(self, broker_name: str, queues: Iterable[tuple[str, QueueData]]) -> None:
        """The same for many topics."""
        by_topic = self._by_topic
        own = self._topics_of.setdefault(broker_name, {})
        for topic, queue in queues:
            found = by_topic.get(topic)
            if found is None:
                by_topic[topic] = {broker_name: queue}
            else:
                found[broker_name] = queue
            own[topic] = None
        if not own:
            del self._topics_of[broker_name]

    def of_topic(self, topic: str) -> Mapping[str, QueueData]:
        """What each broker name has of a topic; empty for an unknown one."""
        return self._by_topic.get(topic, _NOTHING)

    def of_broker(self, broker_name: str) -> Iterator[QueueData]:
        """What a broker name has of each of its topics, to be changed in place."""
        for topic in self._topics_of.get(broker_name, ()):
            yield self._by_topic[topic][broker_name]

    def missing(self, broker_name: str, topics: Mapping[str, T]) -> Mapping[str, T]:
        """The part of some topics that a broker name does not have."""
        own: Mapping[str, None] = self._topics_of.get(broker_name, {})
        if topics.keys() <= own.keys():
            return {}
        return {topic: value for topic, value in topics.items() if topic not in own}

    def topics_of(self, broker_name: str) -> list[str]:
        """The topics of a broker name."""
        return list(self._topics_of.get(broker_name, ()))

    def topics(self) -> list[str]:
        """All topics."""
        return list(self._by_topic)

    def first_of_each(self) -> Iterator[tuple[str, QueueData]]:
        """All topics, each with what the first broker name to bring it has."""
        for topic, queues in self._by_topic.items():
            yield topic, next(iter(queues.values()))

    def forget(self, topic: str, broker_names: Iterable[str]) -> None:
        """Take a topic away from broker names; they need not have it."""
        queues = self._by_topic.get(topic)
        if queues is None:
            return
        for broker_name in broker_names:
            if queues.pop(broker_name, None) is not None:
                self._forget_topic_of(broker_name, topic)
        if not queues:
            del self._by_topic[topic]

    def forget_topic(self, topic: str) -> None:
        """Take a topic away from all."""
        for broker_name in self._by_topic.pop(topic, ()):
            self._forget_topic_of(broker_name, topic)

    def forget_broker(self, broker_name: str) -> None:
        """Take all of its topics away from a broker name."""
        for topic in self._topics_of.pop(broker_name, ()):
            queues = self._by_topic[topic]
            del queues[broker_name]
            if not queues:
                del self._by_topic[topic]

    def _forget_topic_of(self, broker_name: str, topic: str) -> None:
        topics = self._topics_of[broker_name]
        del topics[topic]
        if not topics:
            del self._topics_of[broker_name]
