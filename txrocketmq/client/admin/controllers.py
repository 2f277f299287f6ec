"""Controllers: who leads, who is in sync, elections, cleaning, settings. What changes goes to the leader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
import msgspec

from txrocketmq.client.admin.core import AdminCore, properties_body, settings_of
from txrocketmq.codec.bodies.controller import BrokerReplicasInfo, ElectMasterResponseBody
from txrocketmq.codec.bodies.wire import decode_body
from txrocketmq.codec.headers import (
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
)
from txrocketmq.errors import MQClientError
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.route import BrokerMemberGroup


@attrs.frozen
class Election:
    """What the controller decided."""

    result: ElectMasterResponseHeader
    members: BrokerMemberGroup


class ControllerAdmin:
    """Controllers, each by its address."""

    def __init__(self, core: AdminCore) -> None:
        self._core = core

    async def metadata(self, controller: str) -> GetMetaDataResponseHeader:
        """Who leads, and who the peers are (``getControllerMetaData``)."""
        answer = await self._core.ask(controller, RequestCode.CONTROLLER_GET_METADATA_INFO)
        return answer.decode_header(GetMetaDataResponseHeader)

    async def _leader(self, controller: str) -> str:
        leader = (await self.metadata(controller)).controller_leader_address
        if not leader:
            raise MQClientError(f"controller {controller} knows no leader now")
        return leader

    async def sync_state(self, controller: str, broker_names: Iterable[str]) -> BrokerReplicasInfo:
        """Which replicas are in sync (``getSyncStateSet``), by broker name."""
        leader = await self._leader(controller)
        body = msgspec.json.encode(list(broker_names))
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        return await self._core.read(BrokerReplicasInfo, leader, code, None, body)

    async def sync_state_of_cluster(self, controller: str, cluster: str) -> BrokerReplicasInfo:
        """The same for all brokers of a cluster (``getSyncStateSet -c``)."""
        members = await self._core.members(cluster)
        return await self.sync_state(controller, [item.broker_name or "" for item in members])

    async def elect_master(
        self, controller: str, cluster: str, broker_name: str, broker_id: int
    ) -> Election:
        """Make a replica the master (``electMaster``)."""
        leader = await self._leader(controller)
        header = ElectMasterRequestHeader(
            cluster_name=cluster,
            broker_name=broker_name,
            broker_id=broker_id,
            designate_elect=True,
            invoke_time=self._core.now_ms,
        )
        answer = await self._core.ask(leader, RequestCode.CONTROLLER_ELECT_MASTER, header)
        members = decode_body(ElectMasterResponseBody, answer.body or b"{}").broker_member_group
        return Election(
            answer.decode_header(ElectMasterResponseHeader),
            members or decode_body(BrokerMemberGroup, answer.body or b"{}"),
        )

    async def clean_broker_data(
        self,
        controller: str,
        broker_name: str,
        *,
        cluster: str = "",
        broker_ids: Iterable[int] | None = None,
        living: bool = False,
    ) -> None:
        """Have the controllers forget replicas (``cleanBrokerMetadata``).

        :param broker_ids: these alone; all when left out.
        :param living: also those that are alive.
        """
        leader = await self._leader(controller)
        ids = None if broker_ids is None else ";".join(map(str, broker_ids))
        header = CleanControllerBrokerDataRequestHeader(
            cluster_name=cluster,
            broker_name=broker_name,
            broker_controller_ids_to_clean=ids,
            clean_living_broker=living,
            invoke_time=self._core.now_ms,
        )
        await self._core.ask(leader, RequestCode.CLEAN_BROKER_DATA, header)

    async def config(self, controller: str) -> dict[str, str]:
        """A controller's settings (``getControllerConfig``)."""
        return settings_of(await self._core.ask(controller, RequestCode.GET_CONTROLLER_CONFIG))

    async def update_config(
        self, controllers: Iterable[str], changes: Mapping[str, object]
    ) -> list[str]:
        """Change settings of controllers (``updateControllerConfig``); who did it.

        :raises PartialFailureError: some failed.
        """
        body = properties_body(changes)

        async def call(address: str) -> None:
            await self._core.ask(address, RequestCode.UPDATE_CONTROLLER_CONFIG, None, body)

        return list(await self._core.spread("change of settings", controllers, call))
