"""Which topics does each broker name have, and with how many queues? Both directions are one look-up.

Stands for ``topicQueueTable`` of ``RouteInfoManager``. What a broker name has is kept by broker name, so that a registration that brings
no new topic touches nothing else; what is kept by topic is only who has it. A broker name that goes costs as much as it has topics,
however many topics there are: a hundred links that close together are a hundred such steps (official servers merge them in
``BatchUnregistrationService``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import repeat
from typing import TypeVar

from txrocketmq.model.topic import TopicShare

T = TypeVar("T")

_NOTHING: Mapping[str, TopicShare] = {}


class TopicQueues:
    """Topic and broker name to `TopicShare`. A topic without any broker name is not there."""

    def __init__(self) -> None:
        self._shares_of: dict[str, dict[str, TopicShare]] = {}
        #: Topic to the broker names that have it, in order of arrival; mostly it is one, and a text takes least room.
        self._holders: dict[str, str | dict[str, None]] = {}
        self.curtailed: set[str] = set()
        """Broker names that lost topics to a command; what they register next is taken in whole."""

    def __contains__(self, topic: str) -> bool:
        return topic in self._holders

    def put_all(self, broker_name: str, shares: Mapping[str, TopicShare]) -> None:
        """Set what a broker name has of topics. The shares belong to the table from now on."""
        if not shares:
            return
        own = self._shares_of.get(broker_name)
        if own is None:
            self._shares_of[broker_name] = dict(shares)
            self._enter(broker_name, shares)
            return
        new = self.missing(broker_name, shares)
        own.update(shares)
        if new:
            self._enter(broker_name, new)

    def _enter(self, broker_name: str, topics: Collection[str]) -> None:
        holders = self._holders
        found = list(map(holders.setdefault, topics, repeat(broker_name)))
        if found.count(broker_name) == len(found):
            return
        for topic, others in zip(topics, found, strict=True):
            if isinstance(others, dict):
                others[broker_name] = None
            elif others != broker_name:
                holders[topic] = {others: None, broker_name: None}

    def of_topic(self, topic: str) -> Mapping[str, TopicShare]:
        """What each broker name has of a topic; empty for an unknown one."""
        shares_of = self._shares_of
        return {name: shares_of[name][topic] for name in self._names(topic)}

    def _names(self, topic: str) -> Iterable[str]:
        found = self._holders.get(topic, ())
        return (found,) if isinstance(found, str) else found

    def of_broker(self, broker_name: str) -> Collection[TopicShare]:
        """What a broker name has of each of its topics, to be changed in place."""
        return self._shares_of.get(broker_name, _NOTHING).values()

    def missing(self, broker_name: str, topics: Mapping[str, T]) -> Mapping[str, T]:
        """The part of some topics that a broker name does not have."""
        own = self._shares_of.get(broker_name, _NOTHING)
        if topics.keys() <= own.keys():
            return {}
        return {topic: value for topic, value in topics.items() if topic not in own}

    def topics_of(self, broker_name: str) -> list[str]:
        """The topics of a broker name."""
        return list(self._shares_of.get(broker_name, ()))

    def topics(self) -> list[str]:
        """All topics."""
        return list(self._holders)

    def first_of_each(self) -> Iterator[tuple[str, TopicShare]]:
        """All topics, each with what the first broker name to bring it has."""
        for topic in self._holders:
            yield topic, self._shares_of[next(iter(self._names(topic)))][topic]

    def forget(self, topic: str, broker_names: Iterable[str]) -> None:
        """Take a topic away from broker names; they need not have it."""
        for broker_name in broker_names:
            shares = self._shares_of.get(broker_name)
            if shares is not None and shares.pop(topic, None) is not None:
                self.curtailed.add(broker_name)
                if not shares:
                    del self._shares_of[broker_name]
                self._leave(topic, broker_name)

    def forget_topic(self, topic: str) -> None:
        """Take a topic away from all."""
        self.forget(topic, list(self._names(topic)))

    def forget_broker(self, broker_name: str) -> None:
        """Take all of its topics away from a broker name."""
        self.curtailed.discard(broker_name)
        for topic in self._shares_of.pop(broker_name, ()):
            self._leave(topic, broker_name)

    def _leave(self, topic: str, broker_name: str) -> None:
        holders = self._holders[topic]
        if isinstance(holders, dict):
            del holders[broker_name]
        if isinstance(holders, str) or not holders:
            del self._holders[topic]
