"""A consumer as an instance sees it, which notes what it is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from txrocketmq.client.interfaces import IConsumerRole
from txrocketmq.codec.bodies.admin import CMResult, ConsumeMessageDirectlyResult
from txrocketmq.codec.bodies.clients import ConsumerRunningInfo
from txrocketmq.model.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    build_subscription,
)
from txrocketmq.model.message import MessageExt, MessageQueue


@implementer(IConsumerRole)
class NotingConsumer:
    """A member of a group.

    :ivar told: what was called, in order.
    :ivar rebalancing: given out by `rebalance` when set.
    """

    def __init__(self, group: str, *topics: str) -> None:
        self.group = group
        self.topics = list(topics)
        self.told: list[Any] = []
        self.rebalancing: Deferred[None] | None = None
        self.tag = "*"

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            subscription_data_set=[
                build_subscription(topic, self.tag, sub_version=1) for topic in self.topics
            ],
        )

    def subscribed_topics(self) -> Iterable[str]:
        return self.topics

    def queues_changed(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        self.told.append(("queues", topic, len(queues)))

    def rebalance(self) -> Deferred[None] | None:
        self.told.append("rebalance")
        return self.rebalancing

    def persist_offsets(self) -> Deferred[None] | None:
        self.told.append("persist")
        return None

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        self.told.append(("reset", topic, dict(offsets)))

    def consume_status(self, topic: str) -> Mapping[MessageQueue, int]:
        return {MessageQueue(topic=topic, broker_name="broker-2", queue_id=1): 7}

    def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(properties={"PROP_THREADPOOL_CORE_SIZE": "20"})

    def consume_directly(
        self, message: MessageExt, broker_name: str | None
    ) -> ConsumeMessageDirectlyResult:
        self.told.append(("directly", message.body, message.broker_name))
        return ConsumeMessageDirectlyResult(consume_result=CMResult.CR_SUCCESS)
