"""Which SQL92 filter does a consumer group have on a topic, and since which version of its subscription?

Stands for ``ConsumerFilterManager`` and ``CommitLogDispatcherCalcBitMap``. Filters come with heartbeats and stay a day
after their consumers are gone (`filterDataCleanTimeSpan`), in ``consumerFilter.json``, so that a restart does not lose them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.broker.config_files import PersistedTable, SavedInTurns
from txrocketmq.broker.filter.bloom import BloomFilter, set_bits
from txrocketmq.broker.filter.property_filter import PropertyFilter
from txrocketmq.broker.filter.sql92 import compile_filter
from txrocketmq.codec.bodies import decode_body, encode_body
from txrocketmq.codec.bodies.admin import (
    BloomFilterData,
    ConsumerFilterData,
    ConsumerFilterTable,
    TopicFilters,
)
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.errors import FilterError
from txrocketmq.interfaces import IConfigFiles
from txrocketmq.model.heartbeat import EXPRESSION_SQL92, SubscriptionData

FILE_NAME = "consumerFilter.json"

MAX_FILTERS = 10_000
"""Filters of all groups together; more are not kept, so their consumers are told that there is none."""
MAX_CHARACTERS = 4 * 1024 * 1024
"""Characters of all their expressions together; one takes a hundred bytes of memory when it is in use."""
CHARACTERS_OF_A_SEND = 2048
"""Of expressions that are read for the bit map of one message."""
LOADED_DEAD_MS = 30_000
"""How long ago the consumers of a loaded filter are taken to have gone."""


class KeptFilter:
    """A group's filter on one topic. Its expression is read when it is first used: a heartbeat may bring hundreds of long ones.

    :ivar data: what the file says of it.
    """

    __slots__ = ("_filter", "data")

    def __init__(self, data: ConsumerFilterData) -> None:
        self.data = data
        self._filter: PropertyFilter | None = None

    @property
    def message_filter(self) -> PropertyFilter:
        """Asks messages.

        :raises FilterError: the expression is none.
        """
        if self._filter is None:
            bits = self.data.bloom_filter_data or BloomFilterData()
            self._filter = PropertyFilter(
                compile_filter(self.data.expression or ""),
                self.data.born_time,
                bits.bit_pos or (),
                bits.bit_num,
            )
        return self._filter

    @property
    def is_read(self) -> bool:
        """Whether the expression was read."""
        return self._filter is not None

    @property
    def length(self) -> int:
        """Characters of its expression."""
        return len(self.data.expression or "")

    @property
    def client_version(self) -> int:
        """The version of the subscription that it came with."""
        return self.data.client_version


class ConsumerFilters(SavedInTurns):
    """The SQL92 filters of all groups.

    :ivar bloom: gives each its bits in the bit maps of messages.
    :raises ConfigError: the keys for these bits do not fit.
    """

    _log = Logger()

    def __init__(
        self, config: BrokerConfig, files: IConfigFiles, now_ms: Callable[[], int]
    ) -> None:
        self._config = config
        self._now_ms = now_ms
        self._by_group: dict[str, dict[str, KeptFilter]] = {}
        self._by_topic: dict[str, dict[str, KeptFilter]] = {}
        self.bloom = BloomFilter(
            config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
        )
        self._count = 0
        self._characters = 0
        self.file = PersistedTable(files, FILE_NAME, self._encode)

    def load(self) -> None:
        """Take over what ``consumerFilter.json`` says; the consumers are taken to be gone until they are heard of.

        :raises StoreError: neither the file nor its backup can be read.
        """
        table = self.file.load(partial(decode_body, ConsumerFilterTable))
        if table is None:
            return
        for topic, filters in (table.filter_data_by_topic or {}).items():
            for group, data in (filters.group_filter_data or {}).items():
                data.topic, data.consumer_group = topic, group
                self._take_over(data)

    def _take_over(self, data: ConsumerFilterData) -> None:
        if not self._has_its_bits(data):
            # Bit maps of older messages say nothing of it, or something else.
            data.born_time = self._now_ms()
            self._give_bits(data)
        if not data.dead_time:
            self._set_dead(data, max(data.born_time, self._now_ms() - LOADED_DEAD_MS))
        self._keep(KeptFilter(data))

    def _has_its_bits(self, data: ConsumerFilterData) -> bool:
        known, bloom = data.bloom_filter_data, self.bloom
        return (
            known is not None
            and known.bit_num == bloom.bits
            and known.bit_pos == bloom.positions(data.consumer_group or "", data.topic or "")
        )

    def _give_bits(self, data: ConsumerFilterData) -> None:
        bloom = self.bloom
        data.bloom_filter_data = BloomFilterData(
            bit_num=bloom.bits,
            bit_pos=bloom.positions(data.consumer_group or "", data.topic or ""),
        )

    def bit_map(self, topic: str, properties: Mapping[str, str]) -> bytes | None:
        """Which groups want a message of a topic, as bits; None where none filters it, or nobody wants to know."""
        filters = self._by_topic.get(topic)
        if not filters or not self._config.enable_calc_filter_bit_map:
            return None
        bit_map = bytearray(self.bloom.bits // 8)
        left = CHARACTERS_OF_A_SEND
        for kept in filters.values():
            if left > 0 and not kept.is_read:
                left -= kept.length
                with suppress(FilterError):
                    kept.message_filter  # noqa: B018
            # What was not read yet, or is none, is asked about the message when it is pulled.
            if (
                not kept.is_read or kept.message_filter.matches(properties)
            ) and kept.data.bloom_filter_data is not None:
                set_bits(bit_map, kept.data.bloom_filter_data.bit_pos or ())
        return bytes(bit_map)

    def get(self, topic: str, group: str) -> KeptFilter | None:
        """A group's filter on a topic, ready for use; None when there is none, or its expression is wrong: its consumers are told."""
        kept = self._find(topic, group)
        if kept is None:
            return None
        try:
            kept.message_filter  # noqa: B018
        except FilterError as error:
            self._log.warn(
                "the filter of group {group} on topic {topic} is wrong: {error}",
                group=group,
                topic=topic,
                error=error,
            )
            self._forget(kept)
            return None
        return kept

    def _find(self, topic: str, group: str) -> KeptFilter | None:
        return self._by_group.get(group, {}).get(topic)

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """A heartbeat said what a group subscribes; filters on topics that are not among it are dead from now on."""
        known = self._by_group.get(group)
        topics = set()
        for subscription in subscriptions:
            topics.add(subscription.topic)
            if not subscription.is_tag_type and subscription.topic and subscription.sub_string:
                self._register(group, subscription.topic, subscription)
        if known:
            self._die(kept for topic, kept in known.items() if topic not in topics)

    def unregister(self, group: str) -> None:
        """A group's last consumer is gone."""
        self._die(self._by_group.get(group, {}).values())

    def _register(self, group: str, topic: str, wanted: SubscriptionData) -> None:
        known = self._find(topic, group)
        if known is not None:
            data = known.data
            if wanted.sub_version <= data.client_version:
                if wanted.sub_version == data.client_version and data.dead:
                    self._revive(data)
                return
            if data.expression == wanted.sub_string and (
                data.expression_type == wanted.expression_type
            ):
                data.client_version = wanted.sub_version
                self._revive(data)
                return
        self._replace(
            ConsumerFilterData(
                topic=topic,
                consumer_group=group,
                expression=wanted.sub_string,
                expression_type=wanted.expression_type,
                client_version=wanted.sub_version,
                born_time=self._now_ms(),
            ),
            known,
        )

    def _replace(self, data: ConsumerFilterData, known: KeptFilter | None) -> None:
        """Keep a filter in the place of another; a wrong one leaves none, so that its consumers hear of it."""
        group, topic = data.consumer_group or "", data.topic or ""
        self._give_bits(data)
        if known is not None:
            self._forget(known)
        if data.expression_type != EXPRESSION_SQL92:
            self._log.warn(
                "the filter of group {group} on topic {topic} is wrong: there are no filters of type {kind}",
                group=group,
                topic=topic,
                kind=data.expression_type,
            )
            return
        kept = KeptFilter(data)
        self._is_changed = True
        if self._keep(kept):
            self._log.info(
                "group {group} filters topic {topic} by {expression}",
                group=group,
                topic=topic,
                expression=data.expression,
            )

    def _keep(self, kept: KeptFilter) -> bool:
        if self._lacks_room(kept):
            dead = [other for other in self._all() if other.data.dead]
            dead.sort(key=lambda other: other.data.dead_time, reverse=True)
            while self._lacks_room(kept) and dead:
                self._forget(dead.pop())
            if self._lacks_room(kept):
                self._log.warn(
                    "{count} filters of {characters} characters are kept, there is no room for more",
                    count=self._count,
                    characters=self._characters,
                )
                return False
        data = kept.data
        group, topic = data.consumer_group or "", data.topic or ""
        self._by_group.setdefault(group, {})[topic] = kept
        self._by_topic.setdefault(topic, {})[group] = kept
        self._count += 1
        self._characters += kept.length
        return True

    def _lacks_room(self, kept: KeptFilter) -> bool:
        return self._count >= MAX_FILTERS or self._characters + kept.length > MAX_CHARACTERS

    def _forget(self, kept: KeptFilter) -> None:
        group, topic = kept.data.consumer_group or "", kept.data.topic or ""
        filters = self._by_group[group]
        del filters[topic]
        if not filters:
            del self._by_group[group]
        del self._by_topic[topic][group]
        if not self._by_topic[topic]:
            del self._by_topic[topic]
        self._count -= 1
        self._characters -= kept.length
        self._is_changed = True

    def _all(self) -> Iterator[KeptFilter]:
        for filters in self._by_group.values():
            yield from filters.values()

    def _die(self, filters: Iterable[KeptFilter]) -> None:
        for kept in filters:
            if not kept.data.dead:
                self._set_dead(kept.data, self._now_ms())

    def _set_dead(self, data: ConsumerFilterData, dead_time_ms: int) -> None:
        data.dead_time = dead_time_ms
        data.dead = True
        self._is_changed = True

    def _revive(self, data: ConsumerFilterData) -> None:
        data.dead_time = 0
        data.dead = False
        self._is_changed = True

    def _clean(self) -> None:
        limit_ms = self._now_ms() - self._config.filter_data_clean_time_span
        for kept in tuple(self._all()):
            if kept.data.dead and kept.data.dead_time <= limit_ms:
                self._forget(kept)

    def save_if_changed(self) -> None:
        """Forget those that are dead for too long, and see that the file follows."""
        self._clean()
        super().save_if_changed()

    def save(self) -> Deferred[None]:
        """Save as things are now; see `PersistedTable.save`."""
        self._clean()
        return super().save()

    def _encode(self) -> bytes:
        topics: dict[str, TopicFilters] = {}
        for kept in self._all():
            topic = kept.data.topic or ""
            filters = topics.setdefault(topic, TopicFilters(topic=topic))
            filters.group_filter_data[kept.data.consumer_group or ""] = kept.data
        return encode_body(ConsumerFilterTable(filter_data_by_topic=topics))
