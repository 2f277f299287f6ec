"""Consumer groups: making, changing and deleting them, where they stand, how they get their messages."""

from __future__ import annotations

from collections.abc import Iterable

from twisted.logger import Logger

from txrocketmq.client.admin.clients import ClientAdmin
from txrocketmq.client.admin.core import AdminCore
from txrocketmq.client.admin.errors import BroadcastConsumptionError, NotOnlineError
from txrocketmq.client.admin.results import GroupOverview, GroupProgress, QueueProgress
from txrocketmq.client.admin.topics import PAGE, TopicAdmin, version_text
from txrocketmq.client.routes import NoSuchTopicError
from txrocketmq.codec.bodies.offsets import (
    ConsumeStats,
    ConsumeStatsList,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from txrocketmq.codec.bodies.tables import (
    GroupForbidden,
    QuerySubscriptionResponseBody,
    SetMessageRequestModeRequestBody,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from txrocketmq.codec.bodies.wire import decode_body, encode_body
from txrocketmq.codec.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from txrocketmq.errors import MQClientError, RocketMQError
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.heartbeat import MessageModel, MessageRequestMode, SubscriptionData
from txrocketmq.model.names import (
    dlq_topic,
    group_fault,
    group_of_retry_topic,
    is_predefined_group,
    is_retry_topic,
    is_system_group,
    pop_retry_topics,
    retry_topic,
)
from txrocketmq.model.route import TopicRouteData

log = Logger()


class GroupAdmin:
    """Consumer groups of a cluster or of one broker."""

    def __init__(self, core: AdminCore, topics: TopicAdmin, clients: ClientAdmin) -> None:
        self._core = core
        self._topics = topics
        self._clients = clients

    # ----------------------------------------------------------------- making and changing

    async def create(
        self,
        config: SubscriptionGroupConfig | str,
        *,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> list[str]:
        """Create a group, or change it (``updateSubGroup``); the brokers that have it now.

        :param config: its settings, or its name alone for the official defaults.
        :raises MQClientError: an illegal name, or no target.
        :raises PartialFailureError: some brokers failed.
        """
        if isinstance(config, str):
            config = SubscriptionGroupConfig(group_name=config)
        fault = group_fault(config.group_name)
        if fault is not None:
            raise MQClientError(fault)
        body = encode_body(config)

        async def call(address: str) -> None:
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            await self._core.ask(address, code, None, body)

        targets = await self._core.targets(broker, cluster)
        return list(await self._core.spread(f"group {config.group_name}", targets, call))

    async def create_list(
        self,
        configs: Iterable[SubscriptionGroupConfig],
        *,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> list[str]:
        """Create or change several groups at once, 5.x brokers only (``updateSubGroupList``); the brokers that did it."""
        body = encode_body(SubscriptionGroupList(group_config_list=list(configs)))

        async def call(address: str) -> None:
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
            await self._core.ask(address, code, None, body)

        targets = await self._core.targets(broker, cluster)
        return list(await self._core.spread("creation of groups", targets, call))

    async def delete(
        self,
        group: str,
        *,
        broker: str | None = None,
        cluster: str | None = None,
        clean_offset: bool = False,
    ) -> list[str]:
        """Delete a group (``deleteSubGroup``), in a cluster with its retry and dead letter topics; the brokers that did it.

        :param clean_offset: forget where it stands.
        """
        header = DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=clean_offset)

        async def call(address: str) -> None:
            await self._core.ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

        targets = await self._core.targets(broker, cluster)
        done = list(await self._core.spread(f"deletion of group {group}", targets, call))
        if cluster is not None:
            for topic in (retry_topic(group), dlq_topic(group)):
                await self._topics.delete(topic, cluster)
        return done

    async def set_request_mode(
        self,
        topic: str,
        group: str,
        mode: MessageRequestMode,
        pop_share_queue_num: int = 0,
        *,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> list[str]:
        """Have a group pull or pop a topic (``setConsumeMode``); the brokers that did it.

        :param pop_share_queue_num: how many further members' queues a member pops from.
        """
        body = encode_body(
            SetMessageRequestModeRequestBody(
                topic=topic,
                consumer_group=group,
                mode=mode,
                pop_share_queue_num=pop_share_queue_num,
            )
        )

        async def call(address: str) -> None:
            await self._core.ask(address, RequestCode.SET_MESSAGE_REQUEST_MODE, None, body)

        targets = await self._core.targets(broker, cluster)
        return list(await self._core.spread(f"mode of group {group}", targets, call))

    async def set_readable(
        self, broker: str, group: str, topic: str, readable: bool | None
    ) -> GroupForbidden:
        """Forbid or allow a group to read a topic at one broker; None only asks."""
        header = UpdateGroupForbiddenRequestHeader(group=group, topic=topic, readable=readable)
        code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
        return await self._core.read(GroupForbidden, broker, code, header)

    # ----------------------------------------------------------------- looking

    async def config(self, broker: str, group: str) -> SubscriptionGroupConfig:
        """A broker's settings of a group (5.x brokers); `BrokerError` when it has none."""
        header = GetSubscriptionGroupConfigRequestHeader(group=group)
        code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
        return await self._core.read(SubscriptionGroupConfig, broker, code, header)

    async def configs(self, broker: str) -> SubscriptionGroupWrapper:
        """All groups of a broker; in pages where it gives them so."""
        while True:
            found = await self._paged(broker)
            if found is not None:
                return found

    async def _paged(self, broker: str) -> SubscriptionGroupWrapper | None:
        """All pages, None when the table changed meanwhile."""
        whole: SubscriptionGroupWrapper | None = None
        count = 0
        while True:
            version = whole.data_version if whole is not None else None
            header = GetAllSubscriptionGroupRequestHeader(
                group_seq=count, max_group_num=PAGE, data_version=version_text(version)
            )
            answer = await self._core.ask(
                broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header
            )
            page = decode_body(SubscriptionGroupWrapper, answer.body)
            total = answer.decode_header(GetAllSubscriptionGroupResponseHeader).total_group_num
            count += len(page.subscription_group_table)
            if whole is None:
                whole = page
            elif page.data_version != whole.data_version:
                return None
            else:
                whole.subscription_group_table.update(page.subscription_group_table)
                whole.forbidden_table.update(page.forbidden_table)
            if total is None or count >= total or not page.subscription_group_table:
                return whole

    async def user_configs(self, broker: str) -> dict[str, SubscriptionGroupConfig]:
        """A broker's groups without the servers' own."""
        return {
            name: config
            for name, config in (await self.configs(broker)).subscription_group_table.items()
            if not (is_system_group(name) or is_predefined_group(name))
        }

    async def configs_of(self, group: str) -> dict[str, SubscriptionGroupConfig]:
        """A group's settings at every broker that has it, by broker name (``getConsumerConfig``)."""
        info = await self._core.cluster_info()
        names = {
            address: name
            for name, broker in info.broker_addr_table.items()
            if (address := broker.any_address()) is not None
        }

        async def call(address: str) -> SubscriptionGroupConfig | None:
            return (await self.configs(address)).subscription_group_table.get(group)

        found = await self._core.spread(f"settings of group {group}", names, call)
        return {names[address]: config for address, config in found.items() if config is not None}

    async def subscription(self, broker: str, group: str, topic: str) -> SubscriptionData | None:
        """What a group subscribes to of a topic, as one broker knows it; None when it knows nothing."""
        header = QuerySubscriptionByConsumerRequestHeader(group=group, topic=topic)
        code = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
        found = await self._core.read(QuerySubscriptionResponseBody, broker, code, header)
        return found.subscription_data

    async def time_span(self, topic: str, group: str) -> list[QueueTimeSpan]:
        """The store times of what a group has and has not consumed, by queue, of all brokers."""
        header = QueryConsumeTimeSpanRequestHeader(topic=topic, group=group)

        async def call(address: str) -> list[QueueTimeSpan]:
            code = RequestCode.QUERY_CONSUME_TIME_SPAN
            found = await self._core.read(QueryConsumeTimeSpanBody, address, code, header)
            return found.consume_time_span_set

        addresses = await self._core.brokers_of(topic)
        found = await self._core.spread(f"time span of group {group}", addresses, call)
        return [span for spans in found.values() for span in spans]

    # ----------------------------------------------------------------- progress

    async def consume_stats(
        self, group: str, topic: str | None = None, cluster: str | None = None
    ) -> ConsumeStats:
        """Where a group stands in all its queues (official ``examineConsumeStats``).

        :param topic: only this one.
        :param cluster: for light queues: the cluster or parent topic whose brokers are asked.
        :raises NotOnlineError: no broker knows an offset, and no member is connected.
        :raises BroadcastConsumptionError: no broker knows an offset, for the members keep theirs.
        :raises PartialFailureError: some brokers failed; what the others know is in it.
        """
        route = await self._route_of(group, topic, cluster)
        addresses = [
            address for item in route.broker_datas if (address := item.any_address()) is not None
        ]

        async def call(address: str) -> ConsumeStats:
            return await self.consume_stats_at(address, group, topic)

        found = ConsumeStats()
        for stats in (await self._core.spread(f"group {group}", addresses, call)).values():
            found.offset_table.update(stats.offset_table)
            found.consume_tps += stats.consume_tps
        if not found.offset_table:
            connection = await self._clients.consumers(group)
            if connection.message_model is MessageModel.BROADCASTING:
                raise BroadcastConsumptionError(
                    f"group {group} is in broadcasting mode: its members keep their offsets"
                )
        return found

    async def _route_of(self, group: str, topic: str | None, cluster: str | None) -> TopicRouteData:
        topics = [retry_topic(group)]
        if topic is not None:
            topics += [topic, *pop_retry_topics(topic, group)]
        for name in topics:
            try:
                return await self._core.routed(name, cluster if name == topic else None)
            except NoSuchTopicError:
                continue
        raise NotOnlineError(
            f"group {group} never ran: the name servers know none of {', '.join(topics)}"
        )

    async def consume_stats_at(
        self, broker: str, group: str, topic: str | None = None
    ) -> ConsumeStats:
        """One broker's share of `consume_stats`."""
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        timeout_ms = self._core.timeout_ms * 3
        code = RequestCode.GET_CONSUME_STATS
        return await self._core.read(ConsumeStats, broker, code, header, timeout_ms=timeout_ms)

    async def stats_in_broker(
        self, broker: str, *, order: bool = False, timeout_ms: int = 50_000
    ) -> ConsumeStatsList:
        """Where all groups of a broker stand (``brokerConsumeStats``).

        :param order: those that consume in order, else the others.
        """
        header = GetConsumeStatsInBrokerHeader(is_order=order)
        code = RequestCode.GET_BROKER_CONSUME_STATS
        return await self._core.read(ConsumeStatsList, broker, code, header, timeout_ms=timeout_ms)

    async def progress(
        self,
        group: str,
        topic: str | None = None,
        *,
        cluster: str | None = None,
        client_ips: bool = False,
    ) -> GroupProgress:
        """Where a group stands, queue by queue (``consumerProgress -g``). Errors as `consume_stats`.

        :param client_ips: also which member has each queue; unknown where members do not tell.
        """
        stats = await self.consume_stats(group, topic, cluster)
        owners = await self._clients.owners(group) if client_ips else {}
        rows = [
            QueueProgress(
                queue,
                place.broker_offset,
                place.consumer_offset,
                place.pull_offset,
                place.last_timestamp,
                owners.get(queue, "").split("@")[0] or None,
            )
            for queue, place in sorted(stats.offset_table.items(), key=lambda item: item[0])
        ]
        return GroupProgress(group, stats.consume_tps, rows)

    async def overview(self) -> list[GroupOverview]:
        """All groups that ever ran, by their retry topics, sorted (``consumerProgress`` without a group)."""
        groups = {
            group_of_retry_topic(topic)
            for topic in await self._topics.names()
            if is_retry_topic(topic)
        }
        return [await self._overview_of(group) for group in sorted(groups)]

    async def _overview_of(self, group: str) -> GroupOverview:
        tps, diff = 0.0, 0
        try:
            stats = await self.progress(group)
            tps, diff = stats.consume_tps, stats.diff_total
        except RocketMQError as error:
            log.debug("progress of group {group}: {error}", group=group, error=error)
        try:
            found = await self._clients.consumers(group)
        except RocketMQError:
            return GroupOverview(group, consume_tps=tps, diff_total=diff)
        return GroupOverview(
            group,
            len(found.connection_set),
            min(member.version for member in found.connection_set),
            found.consume_type,
            found.message_model,
            tps,
            diff,
        )
