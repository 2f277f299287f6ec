"""How full are topics, how far are groups, how much came and went?

Stands for the statistics half of ``AdminBrokerProcessor``. Every figure of a group's position comes from `Progress`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from txrocketmq.broker.figures import Snapshot
from txrocketmq.broker.groups import SubscriptionGroups
from txrocketmq.broker.progress import Progress, QueueProgress
from txrocketmq.broker.stats import BrokerStats
from txrocketmq.broker.topics import Topics
from txrocketmq.broker.whole_queues import require_end, require_whole
from txrocketmq.codec.bodies import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
    encode_body,
)
from txrocketmq.codec.headers import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from txrocketmq.errors import ResponseError
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.message import MessageQueue
from txrocketmq.model.topic import TopicConfig
from txrocketmq.remoting.dispatch import Reply, Request

TOPIC_LIST_SEPARATOR = ";"


class StatsAdmin:
    """Serves figures of topics, groups and the broker.

    :param broker_name: part of every queue that is named.
    :param address: this broker as clients know it.
    """

    def __init__(
        self,
        broker_name: str,
        address: str,
        store: IMessageStore,
        topics: Topics,
        groups: SubscriptionGroups,
        progress: Progress,
        stats: BrokerStats,
        now_ms: Callable[[], int],
    ) -> None:
        self._broker_name = broker_name
        self._address = address
        self._store = store
        self._topics = topics
        self._groups = groups
        self._progress = progress
        self._stats = stats
        self._now_ms = now_ms

    def get_topic_stats(self, request: Request[GetTopicStatsInfoRequestHeader]) -> Reply:
        """GET_TOPIC_STATS_INFO: the range of each queue, the time of its newest message, messages a second."""
        name = request.header.topic
        topic = self._find(name)
        table = {}
        for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
            require_whole(self._store, name, queue_id)
            end = max(0, self._store.max_offset(name, queue_id))
            table[self._queue(name, queue_id)] = TopicOffset(
                min_offset=max(0, self._store.min_offset(name, queue_id)),
                max_offset=end,
                last_update_timestamp=self._store.store_time(name, queue_id, end - 1) if end else 0,
            )
        body = TopicStatsTable(offset_table=table, topic_put_tps=self._stats.put_rate(name))
        return Reply(body=encode_body(body))

    def get_consume_stats(self, request: Request[GetConsumeStatsRequestHeader]) -> Reply:
        """GET_CONSUME_STATS: where a group stands in all its topics, in one of them, or in those of a list."""
        header = request.header
        group = header.consumer_group
        listed = [
            name for name in (header.topic_list or "").split(TOPIC_LIST_SEPARATOR) if name.strip()
        ]
        if listed:
            topics = list(dict.fromkeys(listed))
        elif header.topic and header.topic.strip():
            topics = self._progress.subscribed(group, [header.topic])
        else:
            topics = self._progress.topics_of(group)
        stats = ConsumeStats()
        for topic in topics:
            if topic in self._topics:
                self._add(stats, group, topic)
        return Reply(body=encode_body(stats))

    def get_broker_consume_stats(self, request: Request[GetConsumeStatsInBrokerHeader]) -> Reply:
        """GET_BROKER_CONSUME_STATS: where every group stands; only in ordered topics when asked so."""
        groups = []
        lag = in_flight = 0
        for config in self._groups.all():
            group = config.group_name or ""
            found = []
            for name in self._progress.topics_of(group):
                topic = self._topics.get(name)
                if topic is None or (request.header.is_order and not topic.order):
                    continue
                stats = ConsumeStats()
                for queue in self._add(stats, group, name):
                    lag += queue.lag
                    in_flight += queue.in_flight
                found.append(stats)
            groups.append({group: found})
        body = ConsumeStatsList(
            broker_addr=self._address,
            consume_stats_list=groups,
            total_diff=lag,
            total_inflight_diff=in_flight,
        )
        return Reply(body=encode_body(body))

    def _add(self, stats: ConsumeStats, group: str, topic: str) -> list[QueueProgress]:
        queues = self._progress.of_topic(group, topic)
        for queue_id, queue in enumerate(queues):
            require_end(self._store, topic, queue_id)
            if queue.consumed and not queue.last_timestamp_ms:
                # Expired, or not found again yet.
                require_whole(self._store, topic, queue_id)
            stats.offset_table[self._queue(topic, queue_id)] = OffsetWrapper(
                broker_offset=queue.end,
                consumer_offset=queue.consumed,
                pull_offset=queue.pulled,
                last_timestamp=queue.last_timestamp_ms,
            )
        stats.consume_tps += self._stats.get_rate(topic, group)
        return queues

    def query_time_span(self, request: Request[QueryConsumeTimeSpanRequestHeader]) -> Reply:
        """QUERY_CONSUME_TIME_SPAN: for each queue the times of its first, last and next message, and how late the group is."""
        header = request.header
        topic = self._find(header.topic)
        spans = [
            self._span(header.group, header.topic, queue_id)
            for queue_id in range(topic.write_queue_nums)
        ]
        return Reply(body=encode_body(QueryConsumeTimeSpanBody(consume_time_span_set=spans)))

    def _span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        store = self._store
        require_whole(store, topic, queue_id)
        queue = self._progress.of_queue(group, topic, queue_id)
        first_ms = store.earliest_store_time(topic, queue_id)
        last_ms = store.store_time(topic, queue_id, queue.end - 1)
        consumed_ms = queue.last_timestamp_ms or first_ms
        delay_ms = 0
        if queue.lag:
            next_offset = max(queue.consumed, store.min_offset(topic, queue_id))
            next_ms = store.store_time(topic, queue_id, next_offset)
            delay_ms = max(0, self._now_ms() - next_ms) if next_ms > 0 else 0
        return QueueTimeSpan(
            message_queue=self._queue(topic, queue_id),
            min_time_stamp=first_ms,
            min_time_stamp_str=_time_text(first_ms),
            max_time_stamp=last_ms,
            max_time_stamp_str=_time_text(last_ms),
            consume_time_stamp=consumed_ms,
            consume_time_stamp_str=_time_text(consumed_ms),
            delay_time=delay_ms,
        )

    def view_stats(self, request: Request[ViewBrokerStatsDataRequestHeader]) -> Reply:
        """VIEW_BROKER_STATS_DATA: one figure over the last minute, hour and day."""
        header = request.header
        found = self._stats.find(header.stats_name, header.stats_key)
        if found is None:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        body = BrokerStatsData(
            stats_minute=_item(found.minute),
            stats_hour=_item(found.hour),
            stats_day=_item(found.day),
        )
        return Reply(body=encode_body(body))

    def _find(self, name: str) -> TopicConfig:
        topic = self._topics.get(name)
        if topic is None:
            raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return topic

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic=topic, broker_name=self._broker_name, queue_id=queue_id)


def _item(figure: Snapshot) -> BrokerStatsItem:
    return BrokerStatsItem(sum=figure.total, tps=figure.rate, avgpt=figure.average)


def _time_text(timestamp_ms: int) -> str:
    """Local time as official brokers spell it: ``2026-11-29#18:37:21:253``."""
    seconds, millis = divmod(timestamp_ms, 1000)
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d#%H:%M:%S}:{millis:03d}"
