"""Static topics: the mapping of logical queues to brokers, read from all of them, planned for a new topic, and written to them.

Stands for the part of ``MQAdminUtils`` and ``TopicQueueMappingUtils`` that new static topics need, and for plans from files. Plans that
move queues between brokers come from such files alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from txrocketmq.client.admin.core import AdminCore
from txrocketmq.client.admin.topics import TopicAdmin, create_topic_header
from txrocketmq.codec.bodies.wire import decode_body, encode_body
from txrocketmq.codec.headers import CreateTopicRequestHeader
from txrocketmq.errors import BrokerError, MQClientError
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.static_topic import (
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
    TopicRemappingDetailWrapper,
)
from txrocketmq.model.topic import TopicConfig

CREATE_OR_UPDATE = "CREATE_OR_UPDATE"


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

        :raises MQClientError: the topic is there already: change it by a plan from a file.
        """
        if await self.examine(topic):
            raise MQClientError(
                f"topic {topic} is there already; change its mapping by a plan from a file"
            )
        wrapper = plan_mapping(topic, total_queues, broker_names, self._core.now_ms)
        await self.apply(wrapper)
        return wrapper

    async def apply_file(self, data: bytes, *, force: bool = False) -> TopicRemappingDetailWrapper:
        """Write a plan that mqadmin made (``updateStaticTopic -mf``, ``remappingStaticTopic -mf``).

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

        :param force: over a mapping with another epoch or number of queues.
        :raises NoSuchBrokerError: a broker of the plan is not registered; nothing was written.
        """
        first = set(wrapper.broker_to_map_in)
        names = sorted(wrapper.broker_config_map, key=lambda name: (name not in first, name))
        places = [(await self._core.address_of(name), name) for name in names]
        for address, name in places:
            await self._write(address, wrapper.broker_config_map[name], force)
        return [address for address, _ in places]

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


def plan_mapping(
    topic: str, total_queues: int, broker_names: Iterable[str], epoch: int
) -> TopicRemappingDetailWrapper:
    """A mapping of a new topic: logical queues in turn over the brokers by name, each with a queue of its own there.

    :raises MQClientError: no queue, or no broker.
    """
    names = sorted(set(broker_names))
    if total_queues < 1 or not names:
        raise MQClientError("a static topic has at least one queue and one broker")
    table = {
        name: TopicConfigAndQueueMapping(
            topic_name=topic,
            read_queue_nums=0,
            write_queue_nums=0,
            mapping_detail=TopicQueueMappingDetail(
                topic=topic, total_queues=total_queues, bname=name, epoch=epoch
            ),
        )
        for name in names
    }
    for global_id in range(total_queues):
        name = names[global_id % len(names)]
        item = table[name]
        detail = item.mapping_detail
        assert detail is not None
        detail.hosted_queues[global_id] = [
            LogicQueueMappingItem(gen=0, queue_id=item.write_queue_nums, bname=name)
        ]
        item.write_queue_nums += 1
        item.read_queue_nums += 1
    return TopicRemappingDetailWrapper(
        topic=topic, type=CREATE_OR_UPDATE, epoch=epoch, broker_config_map=table
    )
