"""Where groups go on: resets by time or offset, skipping, cloning, and the offsets of a queue.

Stands for the offset half of ``DefaultMQAdminExtImpl``, ``ResetOffsetByTimeCommand``, ``SkipAccumulationSubCommand`` and
``CloneGroupOffsetCommand``.
"""

from __future__ import annotations

import attrs

from txrocketmq.client.admin.core import AdminCore
from txrocketmq.client.admin.groups import GroupAdmin
from txrocketmq.client.admin.results import RollbackStats
from txrocketmq.client.admin.topics import TopicAdmin
from txrocketmq.codec.bodies.offsets import OffsetWrapper, ResetOffsetBody
from txrocketmq.codec.bodies.wire import decode_body
from txrocketmq.codec.headers import (
    CloneGroupOffsetRequestHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from txrocketmq.errors import BrokerError, MQClientError
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.message import MessageQueue

NEWEST = -1
"""As a time: the end of the queue."""


@attrs.frozen
class ResetResult:
    """What came of a reset.

    :ivar offsets: where the connected members go on, by queue.
    :ivar rollbacks: what was changed at the brokers, where no member is connected.
    """

    offsets: dict[MessageQueue, int] = attrs.field(factory=dict)
    rollbacks: list[RollbackStats] = attrs.field(factory=list)


class OffsetAdmin:
    """Positions of groups, and ends of queues."""

    def __init__(self, core: AdminCore, topics: TopicAdmin, groups: GroupAdmin) -> None:
        self._core = core
        self._topics = topics
        self._groups = groups

    # ----------------------------------------------------------------- resets

    async def reset(
        self,
        group: str,
        topic: str,
        timestamp_ms: int,
        *,
        force: bool = True,
        cluster: str | None = None,
    ) -> ResetResult:
        """Have a group go on at a store time (``resetOffsetByTime``); a group without members is moved at the brokers.

        :param timestamp_ms: wall-clock ms, or `NEWEST`.
        :param force: forward too; else only back.
        :raises PartialFailureError: some brokers failed; what the others did is in it.
        """
        addresses = await self._core.brokers_of(topic, cluster)
        header = ResetOffsetRequestHeader(
            topic=topic, group=group, timestamp=timestamp_ms, is_force=force, offset=-1
        )

        async def call(address: str) -> ResetResult:
            try:
                return ResetResult(offsets=await self._invoke(address, header))
            except BrokerError as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
            rollbacks = await self._reset_old(address, group, topic, timestamp_ms, force)
            return ResetResult(rollbacks=rollbacks)

        whole = ResetResult()
        for part in (await self._core.spread(f"reset of group {group}", addresses, call)).values():
            whole.offsets.update(part.offsets)
            whole.rollbacks.extend(part.rollbacks)
        return whole

    async def skip(
        self, group: str, topic: str, *, force: bool = True, cluster: str | None = None
    ) -> ResetResult:
        """Have a group go on at the end of the queues (``skipAccumulatedMessage``)."""
        return await self.reset(group, topic, NEWEST, force=force, cluster=cluster)

    async def reset_offline(
        self,
        group: str,
        topic: str,
        timestamp_ms: int,
        *,
        force: bool = True,
        cluster: str | None = None,
    ) -> list[RollbackStats]:
        """Move a group at the brokers, whoever is connected (``resetOffsetByTimeOld``); members overwrite it with their own.

        :raises PartialFailureError: some brokers failed; what the others did is in it.
        """

        async def call(address: str) -> list[RollbackStats]:
            return await self._reset_old(address, group, topic, timestamp_ms, force)

        addresses = await self._core.brokers_of(topic, cluster)
        found = await self._core.spread(f"reset of group {group}", addresses, call)
        return [stats for of_broker in found.values() for stats in of_broker]

    async def reset_queue(
        self, broker: str, group: str, topic: str, queue_id: int, offset: int
    ) -> dict[MessageQueue, int]:
        """Have a group go on at an offset of one queue (``resetOffsetByTime -b -q -o``); what members were told."""
        queue = MessageQueue(topic=topic, broker_name="", queue_id=queue_id)
        await self.update(broker, group, queue, offset)
        header = ResetOffsetRequestHeader(
            topic=topic, group=group, timestamp=0, queue_id=queue_id, offset=offset, is_force=False
        )
        return await self._invoke(broker, header)

    async def _invoke(
        self, address: str, header: ResetOffsetRequestHeader
    ) -> dict[MessageQueue, int]:
        answer = await self._core.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        return decode_body(ResetOffsetBody, answer.body).offset_table if answer.body else {}

    async def _reset_old(
        self, address: str, group: str, topic: str, timestamp_ms: int, force: bool
    ) -> list[RollbackStats]:
        stats = await self._groups.consume_stats_at(address, group)
        places = {q: place for q, place in stats.offset_table.items() if q.topic == topic}
        if not places:
            table = (await self._topics.status_at(address, topic)).offset_table
            places = {
                queue: OffsetWrapper(broker_offset=span.max_offset, consumer_offset=span.min_offset)
                for queue, span in table.items()
            }
        return [
            await self._roll_back(address, group, queue, places[queue], timestamp_ms, force)
            for queue in sorted(places)
        ]

    async def _roll_back(
        self,
        address: str,
        group: str,
        queue: MessageQueue,
        place: OffsetWrapper,
        timestamp_ms: int,
        force: bool,
    ) -> RollbackStats:
        api, timeout_ms = self._core.api, self._core.timeout_ms
        if timestamp_ms == NEWEST:
            wanted = await api.max_offset(address, queue, timeout_ms)
        else:
            wanted = await api.search_offset(address, queue, timestamp_ms, timeout_ms)
        now = place.consumer_offset
        if force or wanted <= now:
            now = wanted
            await self.update(address, group, queue, wanted)
        return RollbackStats(
            queue.broker_name,
            queue.queue_id,
            place.broker_offset,
            place.consumer_offset,
            wanted,
            now,
        )

    async def update(self, broker: str, group: str, queue: MessageQueue, offset: int) -> None:
        """Write one offset of a group at a broker.

        :raises MQClientError: it is negative.
        """
        if offset < 0:
            raise MQClientError(f"offset {offset} of {queue} is negative")
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            broker_name=queue.broker_name or None,
        )
        await self._core.ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    # ----------------------------------------------------------------- cloning

    async def clone(self, source: str, target: str, topic: str) -> dict[MessageQueue, int]:
        """Have a group stand where another one does, queue by queue (``cloneGroupOffset``); what was written.

        :raises PartialFailureError: some brokers failed; what the others did is in it.
        """
        stats = await self._groups.consume_stats(source)
        route = await self._core.route(topic)
        addresses = {item.broker_name or "": item.any_address() for item in route.broker_datas}
        wanted: dict[str, dict[MessageQueue, int]] = {}
        for queue, place in stats.offset_table.items():
            address = addresses.get(queue.broker_name)
            if place.consumer_offset >= 0 and address is not None:
                wanted.setdefault(address, {})[queue] = place.consumer_offset

        async def call(address: str) -> dict[MessageQueue, int]:
            for queue, offset in wanted[address].items():
                await self.update(address, target, queue, offset)
            return wanted[address]

        found = await self._core.spread(f"cloning of group {source}", wanted, call)
        return {queue: offset for table in found.values() for queue, offset in table.items()}

    async def clone_at_brokers(
        self, source: str, target: str, topic: str | None = None, *, offline: bool = False
    ) -> list[str]:
        """The same by the brokers themselves (CLONE_GROUP_OFFSET); those that did it.

        :param topic: None for all that the source consumes.
        :param offline: also where members of the target are connected.
        """
        header = CloneGroupOffsetRequestHeader(
            src_group=source, dest_group=target, topic=topic, offline=offline
        )

        async def call(address: str) -> None:
            await self._core.ask(address, RequestCode.CLONE_GROUP_OFFSET, header)

        addresses = await self._core.brokers_of_group(source)
        return list(await self._core.spread(f"cloning of group {source}", addresses, call))

    # ----------------------------------------------------------------- queues

    async def maximum(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue will get."""
        address = await self._core.address_of(queue.broker_name)
        return await self._core.api.max_offset(address, queue, self._core.timeout_ms)

    async def minimum(self, queue: MessageQueue) -> int:
        """The smallest offset that can be read."""
        address = await self._core.address_of(queue.broker_name)
        return await self._core.api.min_offset(address, queue, self._core.timeout_ms)

    async def search(
        self, queue: MessageQueue, timestamp_ms: int, *, upper: bool | None = None
    ) -> int:
        """The offset of a store time. See `ClientApi.search_offset`."""
        address = await self._core.address_of(queue.broker_name)
        timeout_ms = self._core.timeout_ms
        return await self._core.api.search_offset(address, queue, timestamp_ms, timeout_ms, upper)

    async def earliest_store_time(self, queue: MessageQueue) -> int:
        """Store time in ms of a queue's first message, -1 when it has none."""
        address = await self._core.address_of(queue.broker_name)
        return await self._core.api.earliest_store_time(address, queue, self._core.timeout_ms)
