"""Which queues of a topic are this member's?"""

from __future__ import annotations

from collections.abc import Sequence

from txrocketmq.client.consumer.allocation import sorted_client_ids
from txrocketmq.client.instance import ClientInstance
from txrocketmq.client.interfaces import IAllocateStrategy
from txrocketmq.errors import MQClientError
from txrocketmq.model.heartbeat import MessageModel
from txrocketmq.model.message import MessageQueue

Division = tuple[list[MessageQueue], list[MessageQueue]]
"""All queues of a topic, and those of this member."""


async def divide(
    instance: ClientInstance,
    group: str,
    topic: str,
    model: MessageModel,
    strategy: IAllocateStrategy,
) -> Division | None:
    """All queues of a topic and those of this member, by the client's own division; None while no broker knows the group.

    :raises RocketMQError: routes or members cannot be known now, or the strategy returns no queues.
    """
    queues = await instance.subscribe_queues(topic)
    if model is MessageModel.BROADCASTING:
        return queues, queues
    members = await instance.consumer_ids(topic, group)
    if not members:
        return None
    mine = strategy.allocate(group, instance.client_id, queues, sorted_client_ids(members))
    if not (isinstance(mine, Sequence) and all(isinstance(queue, MessageQueue) for queue in mine)):
        raise MQClientError(
            f"the strategy {type(strategy).__name__} must return a list of queues, not {mine!r:.200}"
        )
    known = set(queues)
    return queues, [queue for queue in dict.fromkeys(mine) if queue in known]
