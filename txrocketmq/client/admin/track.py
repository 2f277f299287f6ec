"""Was a message consumed, by which groups? Stands for ``messageTrackDetail``."""

from __future__ import annotations

from txrocketmq.client.admin.clients import ClientAdmin
from txrocketmq.client.admin.core import AdminCore
from txrocketmq.client.admin.errors import BroadcastConsumptionError, NotOnlineError
from txrocketmq.client.admin.groups import GroupAdmin
from txrocketmq.client.admin.results import MessageTrack, TrackType
from txrocketmq.client.admin.topics import TopicAdmin
from txrocketmq.codec.bodies.clients import ConsumerConnection
from txrocketmq.errors import RocketMQError
from txrocketmq.model.heartbeat import SUB_ALL, ConsumeType
from txrocketmq.model.message import MessageExt
from txrocketmq.remoting.transport import format_address


class Tracker:
    """Follows messages."""

    def __init__(
        self, core: AdminCore, topics: TopicAdmin, groups: GroupAdmin, clients: ClientAdmin
    ) -> None:
        self._core = core
        self._topics = topics
        self._groups = groups
        self._clients = clients

    async def track(self, message: MessageExt) -> list[MessageTrack]:
        """What became of a message in each group that consumes its topic, by group's name.

        :raises NoSuchTopicError: the topic is gone.
        """
        groups = await self._topics.consumer_groups(message.topic)
        return [await self._in_group(message, group) for group in sorted(groups)]

    async def _in_group(self, message: MessageExt, group: str) -> MessageTrack:
        try:
            connection = await self._clients.consumers(group)
        except NotOnlineError as error:
            return MessageTrack(group, TrackType.NOT_ONLINE, str(error))
        except RocketMQError as error:
            return MessageTrack(group, TrackType.UNKNOWN, str(error))
        if connection.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return MessageTrack(group, TrackType.PULL)
        if connection.consume_type is not ConsumeType.CONSUME_PASSIVELY:
            return MessageTrack(group, TrackType.UNKNOWN)
        try:
            is_consumed = await self.is_consumed(message, group)
        except NotOnlineError as error:
            return MessageTrack(group, TrackType.NOT_ONLINE, str(error))
        except BroadcastConsumptionError:
            return MessageTrack(group, TrackType.CONSUME_BROADCASTING)
        except RocketMQError as error:
            return MessageTrack(group, TrackType.UNKNOWN, str(error))
        if not is_consumed:
            return MessageTrack(group, TrackType.NOT_CONSUME_YET)
        if _is_filtered(message, connection):
            return MessageTrack(group, TrackType.CONSUMED_BUT_FILTERED)
        return MessageTrack(group, TrackType.CONSUMED)

    async def is_consumed(self, message: MessageExt, group: str) -> bool:
        """Whether a group's offset is past a message, at the broker that stored it. Errors as `GroupAdmin.consume_stats`."""
        stats = await self._groups.consume_stats(group)
        table = (await self._core.cluster_info()).broker_addr_table
        stored_at = format_address(*message.store_host)
        for queue, place in stats.offset_table.items():
            if (queue.topic, queue.queue_id) != (message.topic, message.queue_id):
                continue
            broker = table.get(queue.broker_name)
            if broker is None or broker.master_address != stored_at:
                continue
            if place.consumer_offset > message.queue_offset:
                return True
        return False


def _is_filtered(message: MessageExt, connection: ConsumerConnection) -> bool:
    """Whether the group's subscription leaves the message's tag out."""
    subscription = connection.subscription_table.get(message.topic)
    if subscription is None or not subscription.tags_set:
        return False
    return message.tags not in subscription.tags_set and SUB_ALL not in subscription.tags_set
