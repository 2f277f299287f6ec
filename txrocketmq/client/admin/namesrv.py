"""Name servers: their key-value table and settings, and which brokers may be written to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from txrocketmq.client.admin.core import AdminCore, properties_body, settings_of
from txrocketmq.client.admin.kv import delete_kv, get_kv, put_kv
from txrocketmq.codec.bodies.controller import GetBrokerMemberGroupResponseBody
from txrocketmq.codec.bodies.tables import KVTable
from txrocketmq.codec.bodies.wire import decode_body
from txrocketmq.codec.headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    GetBrokerMemberGroupRequestHeader,
    GetKVListByNamespaceRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.route import BrokerMemberGroup


class NameServerAdmin:
    """All name servers that the client is set to; what changes is said to each."""

    def __init__(self, core: AdminCore) -> None:
        self._core = core

    async def addresses(self) -> list[str]:
        """Who they are."""
        return await self._core.name_server_addresses()

    async def config(self, addresses: Iterable[str] | None = None) -> dict[str, dict[str, str]]:
        """Each server's settings, by address (``getNamesrvConfig``)."""
        code = RequestCode.GET_NAMESRV_CONFIG
        found = await self._core.each_name_server("settings", code, addresses=addresses)
        return {address: settings_of(answer) for address, answer in found.items()}

    async def update_config(
        self, changes: Mapping[str, object], addresses: Iterable[str] | None = None
    ) -> list[str]:
        """Change settings of each server (``updateNamesrvConfig``); who did it."""
        body = properties_body(changes)
        code = RequestCode.UPDATE_NAMESRV_CONFIG
        return list(
            await self._core.each_name_server("change of settings", code, None, body, addresses)
        )

    # ----------------------------------------------------------------- key-value table

    async def get_kv(self, namespace: str, key: str) -> str:
        """A value; `BrokerError` QUERY_NOT_FOUND when there is none."""
        return await get_kv(self._core, namespace, key)

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Set a value (``updateKvConfig``)."""
        await put_kv(self._core, namespace, key, value)

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Delete a value (``deleteKvConfig``)."""
        await delete_kv(self._core, namespace, key)

    async def list_kv(self, namespace: str) -> dict[str, str]:
        """All values of a name space; `BrokerError` QUERY_NOT_FOUND when there is none."""
        header = GetKVListByNamespaceRequestHeader(namespace=namespace)
        answer = await self._core.name_server(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
        return decode_body(KVTable, answer.body).table

    # ----------------------------------------------------------------- brokers

    async def wipe_write_perm(self, broker_name: str) -> dict[str, int]:
        """Nobody may write to a broker until it registers its topics anew or is given the permission back (``wipeWritePerm``).

        The number of topics that were changed, by name server.
        """
        header = WipeWritePermOfBrokerRequestHeader(broker_name=broker_name)
        code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
        found = await self._core.each_name_server(
            f"write permission of {broker_name}", code, header
        )
        kind = WipeWritePermOfBrokerResponseHeader
        return {a: answer.decode_header(kind).wipe_topic_count for a, answer in found.items()}

    async def add_write_perm(self, broker_name: str) -> dict[str, int]:
        """A broker may be written to again (``addWritePerm``); the number of topics that were changed, by name server."""
        header = AddWritePermOfBrokerRequestHeader(broker_name=broker_name)
        code = RequestCode.ADD_WRITE_PERM_OF_BROKER
        found = await self._core.each_name_server(
            f"write permission of {broker_name}", code, header
        )
        kind = AddWritePermOfBrokerResponseHeader
        return {a: answer.decode_header(kind).add_topic_count for a, answer in found.items()}

    async def member_group(self, cluster: str, broker_name: str) -> BrokerMemberGroup:
        """The members of a broker name (5.x name servers); no addresses when it is not known."""
        header = GetBrokerMemberGroupRequestHeader(cluster_name=cluster, broker_name=broker_name)
        answer = await self._core.name_server(RequestCode.GET_BROKER_MEMBER_GROUP, header)
        found = decode_body(GetBrokerMemberGroupResponseBody, answer.body).broker_member_group
        return found or BrokerMemberGroup(broker_name=broker_name, cluster=cluster)
