"""How does a broker ask another broker of its cluster?

Stands for ``RpcClientImpl`` and the ``ClientMetadata`` of ``BrokerOuterAPI``: name servers say where the master of a broker name is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from twisted.internet.defer import Deferred

from txrocketmq.broker.registration import name_servers
from txrocketmq.codec.bodies import ClusterInfo, decode_body
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import GetRouteInfoRequestHeader
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.errors import BodyError, RemotingError, ResponseError
from txrocketmq.interfaces import IRemotingClient
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.names import MASTER_ID
from txrocketmq.model.route import TopicRouteData

FRESH_MS = 5_000
"""How long an answer of a name server is believed, as officially."""


class OtherBrokers:
    """Requests to the masters of other broker names."""

    def __init__(
        self, config: BrokerConfig, client: IRemotingClient, now_ms: Callable[[], int]
    ) -> None:
        self._config = config
        self._client = client
        self._now_ms = now_ms
        self._members: dict[str, dict[int, str]] = {}
        self._clusters: dict[str, list[str]] = {}
        self._fresh_until_ms = 0

    async def ask(
        self, broker: str, code: RequestCode, header: object, body: bytes = b""
    ) -> RemotingCommand:
        """The answer of a broker, whatever its code.

        :raises ResponseError: it cannot be found or does not answer.
        """
        return await self._ask_at(broker, await self._address(broker), code, header, body)

    async def ask_any(self, broker: str, code: RequestCode, header: object) -> RemotingCommand:
        """The answer of a broker's master, or of the member with the smallest id where there is no master.

        :raises ResponseError: it cannot be found or does not answer.
        """
        members = await self.members(broker)
        if not members:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"no name server knows a member of broker {broker}"
            )
        return await self._ask_at(broker, members[min(members)], code, header, b"")

    async def _ask_at(
        self, broker: str, address: str, code: RequestCode, header: object, body: bytes
    ) -> RemotingCommand:
        try:
            return await self._request(address, code, header, body)
        except RemotingError as error:
            self._fresh_until_ms = 0
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"broker {broker} does not answer: {error}"
            ) from error

    async def route(self, topic: str) -> TopicRouteData | None:
        """A topic's route as a name server knows it; None when none does."""
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        body = await self._from_name_servers(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        return None if body is None else decode_body(TopicRouteData, body)

    async def members(self, broker: str) -> dict[int, str]:
        """The addresses of all members of a broker name, by broker id, as a name server knew them lately."""
        await self._look(broker not in self._members)
        return self._members.get(broker, {})

    async def masters(self) -> list[str]:
        """The other broker names of this broker's cluster that have a master, sorted."""
        config = self._config
        await self._look(config.broker_cluster_name not in self._clusters)
        return sorted(
            name
            for name in self._clusters.get(config.broker_cluster_name, ())
            if name != config.broker_name and MASTER_ID in self._members.get(name, ())
        )

    async def _look(self, is_missed: bool) -> None:
        if not is_missed and self._now_ms() < self._fresh_until_ms:
            return
        body = await self._from_name_servers(RequestCode.GET_BROKER_CLUSTER_INFO, None)
        if body is not None:
            found = decode_body(ClusterInfo, body)
            self._members = {
                name: data.broker_addrs for name, data in found.broker_addr_table.items()
            }
            self._clusters = found.cluster_addr_table
            self._fresh_until_ms = self._now_ms() + FRESH_MS

    async def _address(self, broker: str) -> str:
        address = (await self.members(broker)).get(MASTER_ID)
        if address is None:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"no name server knows a master of broker {broker}"
            )
        return address

    async def _from_name_servers(self, code: RequestCode, header: object) -> bytes | None:
        """The body that the first name server answers that has one."""
        for address in name_servers(self._config.namesrv_addr):
            try:
                answer = await self._request(address, code, header, b"")
                if answer.code == ResponseCode.SUCCESS and answer.body:
                    return bytes(answer.body)
            except (RemotingError, BodyError):
                continue
        return None

    async def _request(
        self, address: str, code: RequestCode, header: object, body: bytes
    ) -> RemotingCommand:
        timeout_ms = self._config.forward_timeout
        asked = self._client.request(address, code.value, header, body, timeout_ms, None)
        return await cast("Deferred[RemotingCommand]", asked)
