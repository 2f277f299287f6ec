"""How does a broker talk to the controllers? Who of them leads, and each request that it makes of the leader.

Stands for the controller half of ``BrokerOuterAPI`` and the address half of ``ReplicasManager``. Each request goes to the leader; when that
one cannot be reached, or does not lead any more, the next request asks all controllers who does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.codec.bodies import SyncStateSet, decode_body, encode_body
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    BrokerHeartbeatRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)
from txrocketmq.codec.headers.base import Header
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.errors import BrokerError, RemotingError
from txrocketmq.interfaces import IRemotingClient
from txrocketmq.model.codes import RequestCode, ResponseCode

R = RequestCode
H = TypeVar("H", bound=Header)

REQUEST_TIMEOUT_MS = 3_000
_SUCCESS = ResponseCode.SUCCESS.value
_NOT_LEADER = ResponseCode.CONTROLLER_NOT_LEADER.value
_ELECTED = (_SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST.value)


class Ruling(NamedTuple):
    """What a controller says of a group.

    :ivar master_id: None while there is no master.
    :ivar members: the replicas in sync, and how often that set changed.
    """

    master_id: int | None
    master_address: str | None
    epoch: int
    members: frozenset[int]
    change: int


class Controllers:
    """The controllers of a configuration.

    :ivar leader: who led last; None when nobody knows.
    """

    _log = Logger()

    def __init__(
        self, config: BrokerConfig, client: IRemotingClient, clock: IReactorTime, address: str
    ) -> None:
        self._config = config
        self._client = client
        self._clock = clock
        self._address = address
        self.leader: str | None = None

    @property
    def addresses(self) -> list[str]:
        """All controllers."""
        return [part.strip() for part in self._config.controller_addr.split(";") if part.strip()]

    async def find_leader(self) -> str:
        """Ask all controllers, one after the other, who leads.

        :raises RemotingError: nobody knows.
        """
        fault = "no controller is configured (controllerAddr)"
        for address in self.addresses:
            try:
                answer = await self._ask_at(address, R.CONTROLLER_GET_METADATA_INFO, None, b"")
                found = answer.decode_header(GetMetaDataResponseHeader).controller_leader_address
            except (RemotingError, BrokerError) as error:
                fault = str(error)
                continue
            if found:
                if found != self.leader:
                    self._log.info("the leading controller is {address}", address=found)
                self.leader = found
                return found
            fault = f"{address} knows no leader"
        self.leader = None
        raise RemotingError(self._config.controller_addr, f"no controller leads: {fault}")

    async def _ask(
        self,
        code: RequestCode,
        header: Header | None,
        body: bytes = b"",
        fine: tuple[int, ...] = (_SUCCESS,),
    ) -> RemotingCommand:
        leader = self.leader or await self.find_leader()
        try:
            return await self._ask_at(leader, code, header, body, fine)
        except RemotingError:
            self.leader = None
            raise
        except BrokerError as error:
            if error.code == _NOT_LEADER:
                self.leader = None
            raise

    async def _ask_at(
        self,
        address: str,
        code: RequestCode,
        header: Header | None,
        body: bytes,
        fine: tuple[int, ...] = (_SUCCESS,),
    ) -> RemotingCommand:
        asked = self._client.request(address, code.value, header, body, REQUEST_TIMEOUT_MS, None)
        answer = await cast("Deferred[RemotingCommand]", asked)
        if answer.code not in fine:
            raise BrokerError(answer.code, answer.remark, address)
        return answer

    def _now_ms(self) -> int:
        return int(self._clock.seconds() * 1000)

    # ------------------------------------------------------------------ requests

    async def next_id(self) -> int:
        """The next free id of the group."""
        config = self._config
        header = GetNextBrokerIdRequestHeader(
            cluster_name=config.broker_cluster_name, broker_name=config.broker_name
        )
        answer = await self._ask(R.CONTROLLER_GET_NEXT_BROKER_ID, header)
        found = answer.decode_header(GetNextBrokerIdResponseHeader).next_broker_id
        if found is None:
            raise BrokerError(answer.code, "the controller names no id", self.leader or "")
        return found

    async def apply_id(self, broker_id: int, code: str) -> None:
        """Take an id.

        :raises BrokerError: somebody else has it.
        """
        config = self._config
        await self._ask(
            R.CONTROLLER_APPLY_BROKER_ID,
            ApplyBrokerIdRequestHeader(
                cluster_name=config.broker_cluster_name,
                broker_name=config.broker_name,
                applied_broker_id=broker_id,
                register_check_code=code,
            ),
        )

    async def register(self, broker_id: int) -> Ruling:
        """Say where this broker is; who rules the group."""
        config = self._config
        answer = await self._ask(
            R.CONTROLLER_REGISTER_BROKER,
            RegisterBrokerToControllerRequestHeader(
                cluster_name=config.broker_cluster_name,
                broker_name=config.broker_name,
                broker_id=broker_id,
                broker_address=self._address,
                invoke_time=self._now_ms(),
            ),
        )
        found = answer.decode_header(RegisterBrokerToControllerResponseHeader)
        return _ruling(found.master_broker_id, found.master_address, found.master_epoch, answer)

    async def elect(self, broker_id: int) -> Ruling:
        """Ask for an election, in which this broker may win."""
        config = self._config
        # That there is one already is an answer, too.
        answer = await self._ask(
            R.CONTROLLER_ELECT_MASTER,
            ElectMasterRequestHeader(
                cluster_name=config.broker_cluster_name,
                broker_name=config.broker_name,
                broker_id=broker_id,
                designate_elect=False,
                invoke_time=self._now_ms(),
            ),
            fine=_ELECTED,
        )
        found = answer.decode_header(ElectMasterResponseHeader)
        ruling = _ruling(found.master_broker_id, found.master_address, found.master_epoch, answer)
        return ruling._replace(change=found.sync_state_set_epoch or 0)

    async def replicas(self) -> Ruling:
        """Who rules the group now."""
        header = GetReplicaInfoRequestHeader(broker_name=self._config.broker_name)
        answer = await self._ask(R.CONTROLLER_GET_REPLICA_INFO, header)
        found = answer.decode_header(GetReplicaInfoResponseHeader)
        return _ruling(found.master_broker_id, found.master_address, found.master_epoch, answer)

    async def change_members(
        self, own_id: int, epoch: int, members: Iterable[int], change: int
    ) -> SyncStateSet:
        """Ask for another set of replicas in sync, as the master of a term and of the set as it was; the set there is then."""
        header = AlterSyncStateSetRequestHeader(
            broker_name=self._config.broker_name,
            master_broker_id=own_id,
            master_epoch=epoch,
            invoke_time=self._now_ms(),
        )
        body = encode_body(SyncStateSet(sync_state_set=set(members), sync_state_set_epoch=change))
        answer = await self._ask(R.CONTROLLER_ALTER_SYNC_STATE_SET, header, body)
        return decode_body(SyncStateSet, answer.body)

    def heartbeat(self, broker_id: int, epoch: int, end_offset: int, confirmed: int) -> None:
        """Tell all controllers that this broker lives, and how far its log goes."""
        config = self._config
        header = BrokerHeartbeatRequestHeader(
            cluster_name=config.broker_cluster_name,
            broker_addr=self._address,
            broker_name=config.broker_name,
            broker_id=broker_id,
            epoch=epoch,
            max_offset=end_offset,
            confirm_offset=confirmed,
            heartbeat_timeout_mills=config.controller_heart_beat_timeout_mills,
            election_priority=config.broker_election_priority,
        )
        for address in self.addresses:
            sending = self._client.oneway(
                address,
                R.BROKER_HEARTBEAT.value,
                header,
                b"",
                config.send_heartbeat_timeout_millis,
            )
            sending.addErrback(self._not_sent)

    def _not_sent(self, failure: Failure) -> None:
        if not isinstance(failure.value, RemotingError):
            self._log.failure("a heartbeat to a controller", failure)


def _ruling(
    master_id: int | None, address: str | None, epoch: int | None, answer: RemotingCommand
) -> Ruling:
    found = decode_body(SyncStateSet, answer.body) if answer.body else SyncStateSet()
    return Ruling(
        master_id,
        address or None,
        epoch or 0,
        frozenset(found.sync_state_set),
        found.sync_state_set_epoch,
    )
