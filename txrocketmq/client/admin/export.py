"""What do all brokers of a cluster hold, in one piece? Stands for ``exportMetadata``, ``exportConfigs`` and ``exportMetrics``."""

from __future__ import annotations

import attrs

from txrocketmq.client.admin.brokers import BrokerAdmin
from txrocketmq.client.admin.core import AdminCore
from txrocketmq.client.admin.groups import GroupAdmin
from txrocketmq.client.admin.topics import TopicAdmin
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.topic import TopicConfig

CHOSEN_SETTINGS = (
    "brokerClusterName",
    "brokerId",
    "brokerName",
    "brokerRole",
    "fileReservedTime",
    "filterServerNums",
    "flushDiskType",
    "maxMessageSize",
    "messageDelayLevel",
    "msgTraceTopicName",
    "slaveReadEnable",
    "traceOn",
    "traceTopicEnable",
    "useTLS",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
)
"""What ``exportConfigs`` takes of a broker's settings."""


@attrs.frozen
class Metadata:
    """Topics and groups of a cluster; of a topic with several brokers the queues are added up, as mqadmin does.

    :ivar export_time_ms: wall-clock ms.
    """

    export_time_ms: int
    topics: dict[str, TopicConfig]
    groups: dict[str, SubscriptionGroupConfig]


@attrs.frozen
class ClusterConfigs:
    """Name servers, masters and slaves of a cluster, and the chosen settings of each broker name."""

    name_servers: list[str]
    master_count: int
    slave_count: int
    broker_configs: dict[str, dict[str, str]]


@attrs.frozen
class BrokerMetrics:
    """A master's figures: run-time, and how many topics and groups users made."""

    runtime: dict[str, str]
    topic_count: int
    group_count: int


class ExportAdmin:
    """Copies of what brokers hold, as values."""

    def __init__(
        self, core: AdminCore, topics: TopicAdmin, groups: GroupAdmin, brokers: BrokerAdmin
    ) -> None:
        self._core = core
        self._topics = topics
        self._groups = groups
        self._brokers = brokers

    async def metadata(
        self, *, broker: str | None = None, cluster: str | None = None, special: bool = False
    ) -> Metadata:
        """The topics and groups that users made (``exportMetadata``).

        :param special: with retry and dead letter topics.
        :raises PartialFailureError: some brokers failed.
        """
        targets = await self._core.targets(broker, cluster)

        async def call(
            address: str,
        ) -> tuple[dict[str, TopicConfig], dict[str, SubscriptionGroupConfig]]:
            topics = await self._topics.user_configs(address, special=special)
            return topics, await self._groups.user_configs(address)

        topics: dict[str, TopicConfig] = {}
        groups: dict[str, SubscriptionGroupConfig] = {}
        found = await self._core.spread("export of metadata", targets, call)
        for of_broker, its_groups in found.values():
            for name, config in of_broker.items():
                known = topics.get(name)
                if known is not None:
                    config.write_queue_nums += known.write_queue_nums
                    config.read_queue_nums += known.read_queue_nums
                topics[name] = config
            for name, group in its_groups.items():
                seen = groups.get(name)
                if seen is not None:
                    group.retry_queue_nums += seen.retry_queue_nums
                groups[name] = group
        return Metadata(self._core.now_ms, topics, groups)

    async def configs(self, cluster: str) -> ClusterConfigs:
        """Who a cluster is, and its masters' chosen settings (``exportConfigs``)."""
        members = await self._core.members(cluster)
        settings = await self._core.spread(
            "export of settings", await self._core.masters(cluster), self._brokers.config
        )
        chosen = {
            found.get("brokerName", address): {
                key: found[key] for key in CHOSEN_SETTINGS if key in found
            }
            for address, found in settings.items()
        }
        masters = sum(member.master_address is not None for member in members)
        everyone = sum(len(member.broker_addrs) for member in members)
        servers = await self._core.name_server_addresses()
        return ClusterConfigs(servers, masters, everyone - masters, chosen)

    async def metrics(self, cluster: str) -> dict[str, BrokerMetrics]:
        """The masters' figures by address (``exportMetrics``); `BrokerAdmin.stats` has those of topics and groups."""

        async def call(address: str) -> BrokerMetrics:
            return BrokerMetrics(
                await self._brokers.runtime_info(address),
                len(await self._topics.user_configs(address)),
                len(await self._groups.user_configs(address)),
            )

        masters = await self._core.masters(cluster)
        return await self._core.spread("export of metrics", masters, call)
