"""Topics: making, changing and deleting them, where they are, what is in them, how they are ordered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from txrocketmq.client.admin.core import AdminCore
from txrocketmq.client.admin.kv import delete_kv, get_kv, put_kv
from txrocketmq.client.consumer.allocation import AllocateAveragely
from txrocketmq.codec.bodies.offsets import TopicStatsTable
from txrocketmq.codec.bodies.registration import TopicConfigAndMappingSerializeWrapper
from txrocketmq.codec.bodies.tables import (
    CreateTopicListRequestBody,
    GroupList,
    TopicList,
)
from txrocketmq.codec.bodies.wire import decode_body, encode_body
from txrocketmq.codec.headers import (
    CreateTopicListRequestHeader,
    CreateTopicRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
    GetTopicConfigRequestHeader,
    GetTopicsByClusterRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from txrocketmq.errors import MQClientError, RocketMQError
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.flags import PERM_READ_WRITE
from txrocketmq.model.message import MessageQueue
from txrocketmq.model.names import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    NAMESPACE_ORDER_TOPIC_CONFIG,
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
    topic_fault,
)
from txrocketmq.model.route import TopicRouteData
from txrocketmq.model.static_topic import TopicConfigAndQueueMapping
from txrocketmq.model.topic import DataVersion, TopicConfig

DEFAULT_QUEUES = 8
"""Queues of a topic where the caller does not say (``updateTopic``)."""

PAGE = 2000
"""Topics or groups of a page (official ``maxPageSizeInGetMetadata``)."""


class TopicAdmin:
    """Topics of a cluster or of one broker."""

    def __init__(self, core: AdminCore) -> None:
        self._core = core

    # ----------------------------------------------------------------- making and changing

    async def create(
        self,
        topic: str,
        *,
        broker: str | None = None,
        cluster: str | None = None,
        read_queue_nums: int = DEFAULT_QUEUES,
        write_queue_nums: int = DEFAULT_QUEUES,
        perm: int = PERM_READ_WRITE,
        order: bool = False,
        topic_sys_flag: int = 0,
        attributes: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Create a topic, or change it (``updateTopic``); the brokers that have it now.

        :param order: also fix its queues at the name servers, for senders that keep an order.
        :param attributes: ``{"+message.type": "FIFO", "-cleanup.policy": ""}``: set and take away; a plain name is set.
        :raises MQClientError: an illegal name, or no target.
        :raises PartialFailureError: some brokers failed.
        """
        fault = topic_fault(topic)
        if fault is not None:
            raise MQClientError(fault)
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=read_queue_nums,
            write_queue_nums=write_queue_nums,
            perm=perm,
            order=order,
            topic_sys_flag=topic_sys_flag,
            attributes=dict(attributes or {}),
        )
        done = await self.apply(config, broker=broker, cluster=cluster)
        if order:
            await self._fix_order(config, broker, cluster)
        return done

    async def apply(
        self, config: TopicConfig, *, broker: str | None = None, cluster: str | None = None
    ) -> list[str]:
        """Give a topic these settings; the brokers that did it."""
        header = create_topic_header(config)

        async def call(address: str) -> None:
            await self._core.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

        targets = await self._core.targets(broker, cluster)
        return list(
            await self._core.spread(f"creation of topic {config.topic_name}", targets, call)
        )

    async def create_list(
        self,
        configs: Iterable[TopicConfig],
        *,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> list[str]:
        """Create or change several topics at once, 5.x brokers only (``updateTopicList``); the brokers that did it."""
        changed = [
            msgspec.structs.replace(config, attributes=_signed(config.attributes))
            for config in configs
        ]
        body = encode_body(CreateTopicListRequestBody(topic_config_list=changed))
        header = CreateTopicListRequestHeader()

        async def call(address: str) -> None:
            await self._core.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, header, body)

        targets = await self._core.targets(broker, cluster)
        return list(await self._core.spread("creation of topics", targets, call))

    async def update_perm(
        self, topic: str, perm: int, *, broker: str | None = None, cluster: str | None = None
    ) -> dict[str, int]:
        """Change what may be done with a topic (``updateTopicPerm``); each broker's permission before, by address.

        Queues stay as the route tells them; attributes are untouched.

        :raises NoSuchTopicError: there is no such topic.
        """
        route = await self._core.route(topic)
        masters = {item.broker_name: item.master_address for item in route.broker_datas}
        queues = {
            address: data
            for data in route.queue_datas
            if (address := masters.get(data.broker_name)) is not None
        }
        wanted = [a for a in await self._core.targets(broker, cluster) if a in queues]
        if not wanted:
            raise MQClientError(f"none of the brokers asked for has topic {topic}")

        async def call(address: str) -> int:
            data = queues[address]
            config = TopicConfig(
                topic_name=topic,
                read_queue_nums=data.read_queue_nums,
                write_queue_nums=data.write_queue_nums,
                topic_sys_flag=data.topic_sys_flag,
                perm=perm,
            )
            header = create_topic_header(config)
            await self._core.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            return data.perm

        return await self._core.spread(f"permission of topic {topic}", wanted, call)

    async def delete(self, topic: str, cluster: str) -> list[str]:
        """Delete a topic from a cluster's masters and from all name servers (``deleteTopic``); the brokers that did it."""
        done = await self.delete_in_brokers(topic, await self._core.masters(cluster))
        await self.delete_in_name_servers(topic, cluster)
        return done

    async def delete_in_brokers(self, topic: str, addresses: Iterable[str]) -> list[str]:
        """Delete a topic from some brokers; those that did it."""
        header = DeleteTopicRequestHeader(topic=topic)

        async def call(address: str) -> None:
            await self._core.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, header)

        return list(await self._core.spread(f"deletion of topic {topic}", addresses, call))

    async def delete_in_name_servers(self, topic: str, cluster: str | None = None) -> None:
        """Have all name servers forget a topic; with a cluster its brokers' share only, as far as they know clusters."""
        header = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
        code = RequestCode.DELETE_TOPIC_IN_NAMESRV
        await self._core.each_name_server(f"deletion of topic {topic}", code, header)

    async def _fix_order(
        self, config: TopicConfig, broker: str | None, cluster: str | None
    ) -> None:
        topic = config.topic_name or ""
        if broker is not None:
            name = await self._core.broker_name_at(broker)
            await self.put_order(topic, f"{name}:{config.write_queue_nums}", merge=True)
            return
        names = [member.broker_name for member in await self._core.members(cluster or "")]
        value = ";".join(f"{name}:{config.write_queue_nums}" for name in names)
        await self.put_order(topic, value)

    # ----------------------------------------------------------------- order

    async def order(self, topic: str) -> str:
        """How a topic's queues are fixed: ``broker:queues;...`` (``updateOrderConf -m get``).

        :raises BrokerError: they are not.
        """
        return await get_kv(self._core, NAMESPACE_ORDER_TOPIC_CONFIG, topic)

    async def put_order(self, topic: str, value: str, *, merge: bool = False) -> None:
        """Fix a topic's queues at all name servers (``updateOrderConf -m put``).

        :param merge: ``value`` is one broker's part and replaces that broker's alone.
        """
        if merge:
            parts: dict[str, str] = {}
            try:
                old = await self.order(topic)
            except RocketMQError:
                old = ""  # nothing is fixed yet
            for part in [*old.split(";"), value]:
                if part.strip():
                    parts[part.split(":")[0]] = part
            value = ";".join(parts.values())
        await put_kv(self._core, NAMESPACE_ORDER_TOPIC_CONFIG, topic, value)

    async def delete_order(self, topic: str) -> None:
        """A topic's queues are not fixed any more (``updateOrderConf -m delete``)."""
        await delete_kv(self._core, NAMESPACE_ORDER_TOPIC_CONFIG, topic)

    # ----------------------------------------------------------------- looking

    async def names(self, cluster: str | None = None) -> set[str]:
        """Names of all topics, or of one cluster's (``topicList``)."""
        if cluster is None:
            answer = await self._core.name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            header = GetTopicsByClusterRequestHeader(cluster=cluster)
            answer = await self._core.name_server(RequestCode.GET_TOPICS_BY_CLUSTER, header)
        return decode_body(TopicList, answer.body).topic_list

    async def system_names(self, broker: str | None = None) -> set[str]:
        """Topics of the servers' own, as name servers know them, or one broker."""
        if broker is not None:
            code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
            return (await self._core.read(TopicList, broker, code)).topic_list
        answer = await self._core.name_server(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        return decode_body(TopicList, answer.body).topic_list

    async def unit_names(self, *, subscribed: bool = False, unit: bool = True) -> set[str]:
        """Topics with the mark of units, of unit subscriptions, or (neither ``unit``) of these without the first."""
        code = RequestCode.GET_UNIT_TOPIC_LIST
        if subscribed:
            code = RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST
            if not unit:
                code = RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST
        answer = await self._core.name_server(code)
        return decode_body(TopicList, answer.body).topic_list

    async def route(self, topic: str) -> TopicRouteData:
        """Where a topic is (``topicRoute``).

        :raises NoSuchTopicError: no name server knows it.
        """
        return await self._core.route(topic)

    async def clusters(self, topic: str) -> set[str]:
        """The clusters that have a topic (``topicClusterList``)."""
        route = await self._core.route(topic)
        info = await self._core.cluster_info()
        brokers = {broker.broker_name for broker in route.broker_datas}
        return {c for c, names in info.cluster_addr_table.items() if brokers.intersection(names)}

    async def status(self, topic: str, cluster: str | None = None) -> TopicStatsTable:
        """The offsets of all queues of a topic (``topicStatus``).

        :param cluster: for light queues: the cluster or parent topic whose brokers are asked.
        :raises PartialFailureError: some brokers failed; the tables of the others are in it.
        """
        addresses = await self._core.brokers_of(topic, cluster)

        async def call(address: str) -> TopicStatsTable:
            return await self.status_at(address, topic)

        found = TopicStatsTable()
        for table in (await self._core.spread(f"topic {topic}", addresses, call)).values():
            found.offset_table.update(table.offset_table)
            found.topic_put_tps += table.topic_put_tps
        return found

    async def status_at(self, broker: str, topic: str) -> TopicStatsTable:
        """One broker's share of `status`."""
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        return await self._core.read(
            TopicStatsTable, broker, RequestCode.GET_TOPIC_STATS_INFO, header
        )

    async def config(self, broker: str, topic: str) -> TopicConfigAndQueueMapping:
        """A broker's settings of a topic, with its static mapping where it has one (5.x brokers).

        :raises BrokerError: it has none.
        """
        header = GetTopicConfigRequestHeader(topic=topic, logical=True)
        return await self._core.read(
            TopicConfigAndQueueMapping, broker, RequestCode.GET_TOPIC_CONFIG, header
        )

    async def configs(self, broker: str) -> TopicConfigAndMappingSerializeWrapper:
        """All topics of a broker; in pages where it gives them so."""
        while True:
            found = await self._paged(broker)
            if found is not None:
                return found

    async def _paged(self, broker: str) -> TopicConfigAndMappingSerializeWrapper | None:
        """All pages, None when the table changed meanwhile."""
        whole: TopicConfigAndMappingSerializeWrapper | None = None
        count = 0
        while True:
            version = whole.data_version if whole is not None else None
            header = GetAllTopicConfigRequestHeader(
                topic_seq=count, max_topic_num=PAGE, data_version=version_text(version)
            )
            answer = await self._core.ask(broker, RequestCode.GET_ALL_TOPIC_CONFIG, header)
            page = decode_body(TopicConfigAndMappingSerializeWrapper, answer.body)
            total = answer.decode_header(GetAllTopicConfigResponseHeader).total_topic_num
            count += len(page.topic_config_table)
            if whole is None:
                whole = page
            elif page.data_version != whole.data_version:
                return None
            else:
                whole.topic_config_table.update(page.topic_config_table)
                whole.topic_queue_mapping_detail_map.update(page.topic_queue_mapping_detail_map)
            if total is None or count >= total or not page.topic_config_table:
                return whole

    async def user_configs(self, broker: str, *, special: bool = False) -> dict[str, TopicConfig]:
        """A broker's topics without the servers' own; with ``special`` also retry and dead letter topics."""
        own = await self.system_names(broker)
        return {
            name: config
            for name, config in (await self.configs(broker)).topic_config_table.items()
            if name not in own
            and not is_system_topic(name)
            and (special or not (is_retry_topic(name) or is_dlq_topic(name)))
            and 0 <= config.perm < _FIRST_UNKNOWN_PERM
        }

    async def consumer_groups(self, topic: str) -> set[str]:
        """The groups that consume a topic, as one of its brokers knows them."""
        addresses = await self._core.brokers_of(topic)
        if not addresses:
            return set()
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        return (await self._core.read(GroupList, addresses[0], code, header)).group_list

    async def of_group(self, broker: str, group: str) -> set[str]:
        """The topics that a group consumes at one broker."""
        header = QueryTopicsByConsumerRequestHeader(group=group)
        code = RequestCode.QUERY_TOPICS_BY_CONSUMER
        return (await self._core.read(TopicList, broker, code, header)).topic_list

    async def allocate(self, topic: str, clients: Iterable[str]) -> dict[str, list[MessageQueue]]:
        """How the averaging strategy would divide a topic's queues among clients (``allocateMQ``)."""
        members = list(clients)
        queues = await self._core.instance.subscribe_queues(topic)
        strategy = AllocateAveragely()
        return {client: strategy.allocate("", client, queues, members) for client in members}


_FIRST_UNKNOWN_PERM = 8


def version_text(version: DataVersion | None) -> str:
    """A table's version as a request for a page names it; empty for the first page."""
    return "" if version is None else encode_body(version).decode()


def _signed(attributes: Mapping[str, str]) -> dict[str, str]:
    return {
        name if name[:1] in ("+", "-") else f"+{name}": value for name, value in attributes.items()
    }


def create_topic_header(config: TopicConfig) -> CreateTopicRequestHeader:
    """A topic's settings as the header of UPDATE_AND_CREATE_TOPIC."""
    changes = _signed(config.attributes)
    text = ",".join(f"{name}={value}" if value else name for name, value in changes.items())
    return CreateTopicRequestHeader(
        topic=config.topic_name or "",
        default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
        attributes=text or None,
    )
