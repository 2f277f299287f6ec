"""How much comes in and goes out? Stands for ``statsAll``."""

from __future__ import annotations

from txrocketmq.client.admin.brokers import BrokerAdmin
from txrocketmq.client.admin.core import AdminCore
from txrocketmq.client.admin.groups import GroupAdmin
from txrocketmq.client.admin.results import TopicTraffic
from txrocketmq.client.admin.topics import TopicAdmin
from txrocketmq.codec.bodies.admin import BrokerStatsData
from txrocketmq.errors import RocketMQError
from txrocketmq.model.names import is_dlq_topic, is_retry_topic

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
GROUP_GET_NUMS = "GROUP_GET_NUMS"


class TrafficAdmin:
    """Figures of topics and groups, summed over the masters."""

    def __init__(
        self, core: AdminCore, topics: TopicAdmin, groups: GroupAdmin, brokers: BrokerAdmin
    ) -> None:
        self._core = core
        self._topics = topics
        self._groups = groups
        self._brokers = brokers

    async def topic(self, topic: str) -> list[TopicTraffic]:
        """A topic's traffic, one line for each group, or one without.

        :raises NoSuchTopicError: there is no such topic.
        """
        route = await self._core.route(topic)
        masters = [a for broker in route.broker_datas if (a := broker.master_address) is not None]
        in_tps, in_sum = await self._sum(masters, TOPIC_PUT_NUMS, topic)
        groups = sorted(await self._topics.consumer_groups(topic))
        if not groups:
            return [TopicTraffic(topic, None, 0, in_tps, 0.0, in_sum, 0)]
        found = []
        for group in groups:
            out_tps, out_sum = await self._sum(masters, GROUP_GET_NUMS, f"{topic}@{group}")
            try:
                left = (await self._groups.progress(group, topic)).diff_total
            except RocketMQError:
                left = 0  # as mqadmin shows groups that never committed
            found.append(TopicTraffic(topic, group, max(0, left), in_tps, out_tps, in_sum, out_sum))
        return found

    async def all(self, *, active: bool = False) -> list[TopicTraffic]:
        """The traffic of all topics but retry and dead letter ones, by name.

        :param active: leave lines out that had no message for a day.
        """
        names = sorted(
            name
            for name in await self._topics.names()
            if not is_retry_topic(name) and not is_dlq_topic(name)
        )
        found: list[TopicTraffic] = []
        for name in names:
            try:
                found += await self.topic(name)
            except RocketMQError:
                continue  # deleted meanwhile, or a topic that no broker has yet
        if not active:
            return found
        return [line for line in found if line.in_messages_24h or line.out_messages_24h]

    async def _sum(self, masters: list[str], name: str, key: str) -> tuple[float, int]:
        """Messages a second over the last minute, and messages of the last day."""

        async def call(address: str) -> BrokerStatsData:
            return await self._brokers.stats(address, name, key)

        # A broker without the figure says so by an error.
        found, _ = await self._core.try_each(masters, call)
        tps = sum(data.stats_minute.tps for data in found.values() if data.stats_minute)
        return tps, sum(map(_day_sum, found.values()))


def _day_sum(data: BrokerStatsData) -> int:
    """The day's sum; the hour's or the minute's where that is all there is yet."""
    for item in (data.stats_day, data.stats_hour, data.stats_minute):
        if item is not None and item.sum:
            return item.sum
    return 0
