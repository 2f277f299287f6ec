"""Connected clients: who produces, who consumes, what each member does, where it stands, and having it try one message."""

from __future__ import annotations

from txrocketmq.client.admin.core import AdminCore
from txrocketmq.client.admin.errors import NotOnlineError
from txrocketmq.codec.bodies.clients import (
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
    ProducerTableInfo,
)
from txrocketmq.codec.bodies.offsets import GetConsumerStatusBody
from txrocketmq.codec.headers import (
    GetAllProducerInfoRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from txrocketmq.errors import BrokerError, RocketMQError
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.message import MessageQueue


class ClientAdmin:
    """Who is connected to the brokers."""

    def __init__(self, core: AdminCore) -> None:
        self._core = core

    async def consumers(self, group: str, broker: str | None = None) -> ConsumerConnection:
        """The members of a group and its subscriptions (``consumerConnection``).

        :param broker: as this one knows it; else the first of the group's brokers that knows members.
        :raises NotOnlineError: there is no member.
        :raises NoSuchTopicError: the group never ran.
        """
        addresses = [broker] if broker else await self._core.brokers_of_group(group)
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        for address in addresses:
            try:
                found = await self._core.read(
                    ConsumerConnection, address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header
                )
            except BrokerError as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                continue
            if found.connection_set:
                return found
        raise NotOnlineError(f"group {group} has no member that is connected")

    async def producers(self, group: str, topic: str) -> ProducerConnection:
        """The members of a producer group that send a topic (``producerConnection``).

        :raises NotOnlineError: there is none.
        """
        header = GetProducerConnectionListRequestHeader(producer_group=group)
        code = RequestCode.GET_PRODUCER_CONNECTION_LIST
        failure: BrokerError | None = None
        for address in await self._core.brokers_of(topic):
            try:
                found = await self._core.read(ProducerConnection, address, code, header)
            except BrokerError as error:
                failure = error  # a broker without such producers says so by an error
                continue
            if found.connection_set:
                return found
        reason = f": {failure.remark}" if failure else ""
        raise NotOnlineError(f"producer group {group} has no member that is connected{reason}")

    async def all_producers(self, broker: str) -> ProducerTableInfo:
        """All producers of a broker by group (``producer``)."""
        header = GetAllProducerInfoRequestHeader()
        return await self._core.read(
            ProducerTableInfo, broker, RequestCode.GET_ALL_PRODUCER_INFO, header
        )

    async def running_info(
        self, group: str, client_id: str, *, jstack: bool = False, broker: str | None = None
    ) -> ConsumerRunningInfo:
        """What one member tells of itself (``consumerStatus``).

        :param jstack: with what its threads do.
        :raises NotOnlineError: the member is not connected to any of the group's brokers.
        """
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=jstack
        )
        failure: BrokerError | None = None
        for address in [broker] if broker else await self._core.brokers_of_group(group):
            try:
                return await self._core.read(
                    ConsumerRunningInfo,
                    address,
                    RequestCode.GET_CONSUMER_RUNNING_INFO,
                    header,
                    timeout_ms=self._core.timeout_ms * 3,
                )
            except BrokerError as error:
                failure = error
        if failure is not None:
            raise failure
        raise NotOnlineError(f"group {group} has no broker now")

    async def all_running_infos(
        self, group: str, *, jstack: bool = False
    ) -> dict[str, ConsumerRunningInfo]:
        """What every member of a group tells of itself, by client id (``consumerStatus`` without a client).

        :raises PartialFailureError: some members did not; what the others told is in it.
        """
        members = [item.client_id for item in (await self.consumers(group)).connection_set]

        async def call(client_id: str) -> ConsumerRunningInfo:
            return await self.running_info(group, client_id, jstack=jstack)

        what = f"members of group {group}"
        return await self._core.spread(what, [item for item in members if item], call)

    async def owners(self, group: str) -> dict[MessageQueue, str]:
        """Which member has which queue, by client id; members that do not tell are left out."""
        try:
            members = [item.client_id for item in (await self.consumers(group)).connection_set]
        except RocketMQError:
            return {}

        async def call(client_id: str) -> ConsumerRunningInfo:
            return await self.running_info(group, client_id)

        found, _ = await self._core.try_each([item for item in members if item], call)
        return {queue: client_id for client_id, info in found.items() for queue in info.mq_table}

    async def status(
        self, topic: str, group: str, client_address: str = ""
    ) -> dict[str, dict[MessageQueue, int]]:
        """Where the members stand as they say themselves, by client id (``getConsumerStatus``).

        :param client_address: only the member connected from there.
        """
        addresses = await self._core.brokers_of(topic)
        if not addresses:
            return {}
        header = GetConsumerStatusRequestHeader(
            topic=topic, group=group, client_addr=client_address or None
        )
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        found = await self._core.read(GetConsumerStatusBody, addresses[0], code, header)
        return found.consumer_table
