"""Static topics: the mapping of logical queues to brokers, read from all of them, planned, and written to them.

Stands for ``MQAdminUtils``; the plans are made in `txrocketmq.client.admin.static_plans`.
"""

from __future__ import annotations

from collections.abc import Iterable

from txrocketmq.client.admin.core import AdminCore
from txrocketmq.client.admin.static_plans import (
    begin_behind,
    empty_item,
    known_mapping,
    plan_growth,
    plan_mapping,
    plan_move,
)
from txrocketmq.client.admin.topics import TopicAdmin, create_topic_header
from txrocketmq.codec.bodies.wire import decode_body, encode_body
from txrocketmq.codec.headers import CreateTopicRequestHeader
from txrocketmq.errors import BrokerError, MQClientError
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.message import MessageQueue
from txrocketmq.model.static_topic import (
    TopicConfigAndQueueMapping,
    TopicRemappingDetailWrapper,
)
from txrocketmq.model.topic import TopicConfig


class StaticTopicAdmin:
    """Static topics of 5.x brokers."""

    def __init__(self, core: AdminCore, topics: TopicAdmin) -> None:
        self._core = core
        self._topics = topics

    async def examine(self, topic: str) -> dict[str, TopicConfigAndQueueMapping]:
        """Every broker's settings and mapping of a topic, by broker name; brokers without it are left out."""
        info = await self._core.cluster_info()
        names = {
            address: name
            for name, broker in info.broker_addr_table.items()
            if (address := broker.master_address) is not None
        }

        async def call(address: str) -> TopicConfigAndQueueMapping | None:
            try:
                return await self._topics.config(address, topic)
            except BrokerError as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    return None
                raise

        found = await self._core.spread(f"mapping of topic {topic}", names, call)
        return {names[address]: item for address, item in found.items() if item is not None}

    async def create(
        self, topic: str, total_queues: int, broker_names: Iterable[str]
    ) -> TopicRemappingDetailWrapper:
        """Create a static topic (``updateStaticTopic`` for a new one); the mapping that was written.

        :raises MQClientError: the topic is there already.
        """
        if await self.examine(topic):
            raise MQClientError(f"topic {topic} is there already")
        wrapper = plan_mapping(topic, total_queues, broker_names, self._core.now_ms)
        return await self._carry_out(wrapper)

    async def grow(
        self, topic: str, total_queues: int, broker_names: Iterable[str]
    ) -> TopicRemappingDetailWrapper:
        """Create a static topic, or give it more logical queues (``updateStaticTopic``); the mapping that was written.

        :param broker_names: who may get new queues, besides those that have some.
        :raises MQClientError: it has as many queues already, or the brokers' mappings contradict one another.
        """
        known = known_mapping(topic, await self.examine(topic))
        wrapper = plan_growth(topic, known, total_queues, broker_names, self._core.now_ms)
        return await self._carry_out(wrapper)

    async def move(self, topic: str, broker_names: Iterable[str]) -> TopicRemappingDetailWrapper:
        """Have a static topic's logical queues at these brokers and no others, evenly (``remappingStaticTopic``); the mapping that was
        written. Messages stay where they are, and are read through the broker that has the queue now.

        :raises MQClientError: there is no such static topic, or the brokers' mappings contradict one another.
        """
        found = await self.examine(topic)
        if not found:
            raise MQClientError(f"there is no topic {topic}")
        known = known_mapping(topic, found)
        wrapper = plan_move(topic, known, broker_names, self._core.now_ms)
        return await self._carry_out(wrapper)

    async def _carry_out(self, wrapper: TopicRemappingDetailWrapper) -> TopicRemappingDetailWrapper:
        """Write a plan; the other brokers of the clusters learn that they have no queue of the topic."""
        info = await self._core.cluster_info()
        table = wrapper.broker_config_map
        detail = next(iter(table.values())).mapping_detail
        assert detail is not None
        for names in info.cluster_addr_table.values():
            if not table.keys().isdisjoint(names):
                for name in sorted(set(names) - set(table)):
                    table[name] = empty_item(
                        wrapper.topic or "", name, detail.total_queues, wrapper.epoch
                    )
        await self.apply(wrapper)
        return wrapper

    async def apply_file(self, data: bytes, *, force: bool = False) -> TopicRemappingDetailWrapper:
        """Write a plan from a file of mqadmin's (``updateStaticTopic -mf``, ``remappingStaticTopic -mf``).

        :param data: the file's content.
        :raises BodyError: it is no plan.
        """
        wrapper = decode_body(TopicRemappingDetailWrapper, data)
        await self.apply(wrapper, force=force)
        return wrapper

    async def apply(
        self, wrapper: TopicRemappingDetailWrapper, *, force: bool = False
    ) -> list[str]:
        """Write a mapping to its brokers, those that get queues first; the brokers that did it, by address.

        Where queues leave brokers (``broker_to_map_out``), those hear of it next and take nothing more; where the old stretches end is asked
        for then, and the brokers that got the queues are told where theirs begin. Until then they refuse messages.

        :param force: over a mapping with another epoch or number of queues.
        :raises NoSuchBrokerError: a broker of the plan is not registered; nothing was written.
        """
        first = [name for name in wrapper.broker_config_map if name in wrapper.broker_to_map_in]
        names = [*first, *sorted(set(wrapper.broker_config_map) - set(first))]
        places = {name: await self._core.address_of(name) for name in names}
        out = [name for name in names if name in wrapper.broker_to_map_out]
        for name in [*first, *out]:
            await self._write(places[name], wrapper.broker_config_map[name], force)
        for name in out:
            await self._decide(wrapper, name, places[name])
        again = first if out else []
        for name in [*again, *(name for name in names if name not in (*first, *out))]:
            await self._write(places[name], wrapper.broker_config_map[name], force)
        return list(places.values())

    async def _decide(
        self, wrapper: TopicRemappingDetailWrapper, broker_name: str, address: str
    ) -> None:
        """Let the new stretches begin behind the old ones, which end at this broker."""
        topic = wrapper.topic or ""
        ends = (await self._topics.status_at(address, topic)).offset_table
        detail = wrapper.broker_config_map[broker_name].mapping_detail
        assert detail is not None
        for global_id, stretches in detail.hosted_queues.items():
            if len(stretches) < 2 or stretches[-1].logic_offset > 0:
                continue
            old, new = stretches[-2:]
            queue = MessageQueue(topic=topic, broker_name=old.bname or "", queue_id=old.queue_id)
            end = ends.get(queue)
            if end is None or end.max_offset < old.start_offset:
                raise MQClientError(f"broker {broker_name} does not tell where {queue} ends")
            new.logic_offset = begin_behind(old.logical(end.max_offset))
            leader = wrapper.broker_config_map[new.bname or ""].mapping_detail
            assert leader is not None
            leader.hosted_queues[global_id] = stretches

    async def _write(self, address: str, item: TopicConfigAndQueueMapping, force: bool) -> None:
        if item.mapping_detail is None:
            raise MQClientError(f"the plan has no mapping for {address}")
        await self._core.ask(
            address,
            RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
            _header(item, force),
            encode_body(item.mapping_detail),
        )


def _header(item: TopicConfigAndQueueMapping, force: bool) -> CreateTopicRequestHeader:
    header = create_topic_header(
        TopicConfig(
            topic_name=item.topic_name,
            read_queue_nums=item.read_queue_nums,
            write_queue_nums=item.write_queue_nums,
            perm=item.perm,
            order=item.order,
            topic_sys_flag=item.topic_sys_flag,
            attributes=item.attributes,
        )
    )
    header.force = force
    return header
