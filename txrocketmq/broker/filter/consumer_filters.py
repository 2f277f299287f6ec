"""Which SQL92 filter does a consumer group have on a topic, and since which version of its subscription?

Stands for ``ConsumerFilterManager`` and ``CommitLogDispatcherCalcBitMap``. Filters come with heartbeats and stay a day
after their consumers are gone (`filterDataCleanTimeSpan`), in ``consumerFilter.json``, so that a restart does not lose them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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
LOADED_DEAD_MS = 30_000
"""How long ago the consumers of a loaded filter are taken to have gone."""


class KeptFilter:
    """A group's filter on one topic.

    :ivar data: what the file says of it.
    :ivar message_filter: asks messages.
    """

    __slots__ = ("data", "message_filter")

    def __init__(self, data: ConsumerFilterData) -> None:
        self.data = data
        bits = data.bloom_filter_data or BloomFilterData()
        self.message_filter = PropertyFilter(
            compile_filter(data.expression or ""),
            data.born_time,
            bits.bit_pos or (),
            bits.bit_num,
        )

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
        try:
            self._keep(KeptFilter(data))
        except FilterError as error:
            self._log.warn(
                "the kept filter of group {group} on topic {topic} is dropped: {error}",
                group=data.consumer_group,
                topic=data.topic,
                error=error,
            )

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
        for kept in filters.values():
            if kept.message_filter.matches(properties) and kept.data.bloom_filter_data is not None:
                set_bits(bit_map, kept.data.bloom_filter_data.bit_pos or ())
        return bytes(bit_map)

    def get(self, topic: str, group: str) -> KeptFilter | None:
        """A group's filter on a topic, None when there is none or its expression is wrong."""
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
        known = self.get(topic, group)
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
        try:
            if data.expression_type != EXPRESSION_SQL92:
                raise FilterError(f"there are no filters of type {data.expression_type}")
            kept = KeptFilter(data)
        except FilterError as error:
            self._log.warn(
                "the filter of group {group} on topic {topic} is wrong: {error}",
                group=group,
                topic=topic,
                error=error,
            )
            return
        self._is_changed = True
        if self._keep(kept):
            self._log.info(
                "group {group} filters topic {topic} by {expression}",
                group=group,
                topic=topic,
                expression=data.expression,
            )

    def _keep(self, kept: KeptFilter) -> bool:
        if self._count >= MAX_FILTERS:
            dead = [other for other in self._all() if other.data.dead]
            if not dead:
                self._log.warn(
                    "{count} filters are kept, there is no room for more", count=self._count
                )
                return False
            self._forget(min(dead, key=lambda other: other.data.dead_time))
        data = kept.data
        group, topic = data.consumer_group or "", data.topic or ""
        self._by_group.setdefault(group, {})[topic] = kept
        self._by_topic.setdefault(topic, {})[group] = kept
        self._count += 1
        return True

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
