"""What does a master take back from its slaves before it goes online again? Known with `enableSlaveActingMaster` only.

Stands for ``BrokerPreOnlineService``. While the master was away consumers committed to a slave. A master that starts finds the others of
its group at the name servers, tells them where its log is had, and takes over the offsets of consumers and of delay levels from whoever has
them as new as its own or newer; only then it registers. Officially it waits for each of them until its link stands, and for a name
server without end; here it asks once and goes online, so that one broker that is stuck keeps nobody away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.broker.registration import name_servers
from txrocketmq.codec.bodies import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    GetBrokerMemberGroupResponseBody,
    decode_body,
)
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import (
    ExchangeHAInfoRequestHeader,
    GetBrokerMemberGroupRequestHeader,
)
from txrocketmq.errors import BodyError, BrokerError, RemotingError
from txrocketmq.model.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from txrocketmq.broker.core import BrokerCore

REQUEST_TIMEOUT_MS = 3_000


class PreOnline:
    """One broker's way online."""

    log = Logger()

    def __init__(self, core: BrokerCore) -> None:
        self._core = core

    async def run(self) -> None:
        """Ask the others of the group; errors are logged, nothing fails."""
        for address in await self._others():
            try:
                await self._take_back(address)
            except (RemotingError, BrokerError, BodyError) as error:
                self.log.warn(
                    "nothing is taken back from {address}: {error}", address=address, error=error
                )

    async def _others(self) -> list[str]:
        """The group's other brokers by their ids, as the first name server that answers knows them."""
        config = self._core.config
        header = GetBrokerMemberGroupRequestHeader(
            cluster_name=config.broker_cluster_name, broker_name=config.broker_name
        )
        for server in name_servers(config.namesrv_addr):
            try:
                body = await self._ask(server, RequestCode.GET_BROKER_MEMBER_GROUP, header)
                group = decode_body(GetBrokerMemberGroupResponseBody, body).broker_member_group
            except (RemotingError, BrokerError, BodyError):
                continue
            members = {} if group is None else group.broker_addrs or {}
            return [members[key] for key in sorted(members) if key != config.broker_id]
        return []

    async def _take_back(self, address: str) -> None:
        core = self._core
        header = ExchangeHAInfoRequestHeader(
            master_ha_address=core.registration.ha_address,
            master_flush_offset=core.store.max_physical_offset(),
            master_address=core.address,
        )
        await self._ask(address, RequestCode.EXCHANGE_BROKER_HA_INFO, header)
        delays = decode_body(
            DelayOffsetSerializeWrapper, await self._ask(address, RequestCode.GET_ALL_DELAY_OFFSET)
        )
        offsets = decode_body(
            ConsumerOffsetSerializeWrapper,
            await self._ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET),
        )
        version = offsets.data_version
        if version is not None and not core.offsets.data_version.is_newer_than(version):
            self.log.info("took back the offsets of consumers from {address}", address=address)
            core.offsets.take_over(offsets)
        version = delays.data_version
        if version is not None and not core.delays.offsets.data_version.is_newer_than(version):
            core.delays.offsets.take_over(delays)

    async def _ask(self, address: str, code: RequestCode, header: object = None) -> bytes:
        asked = self._core.remoting_client.request(
            address, code.value, header, b"", REQUEST_TIMEOUT_MS, None
        )
        answer = await cast("Deferred[RemotingCommand]", asked)
        if answer.code != ResponseCode.SUCCESS.value:
            raise BrokerError(answer.code, answer.remark, address)
        return bytes(answer.body)
