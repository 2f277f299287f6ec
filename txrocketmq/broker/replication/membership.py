"""Who of the group is alive, and who has the smallest id? Known with `enableSlaveActingMaster` only.

Stands for ``sendHeartbeat``, ``syncBrokerMemberGroup`` and ``updateMinBroker`` of ``BrokerController``. Name servers are told every second
that this broker lives, and asked for the group; they tell a change of the smallest id at once (NOTIFY_MIN_BROKER_ID_CHANGE). What
follows from it at a slave: a lost master is not dialled nor asked any more, one that came back is followed again at once. The slave whose
own id is the smallest acts for the master::

    following --the smallest id is this slave's--> acting: delays, timed messages, transactions, POP (`txrocketmq.broker.escape`)
    acting --a smaller id is there------------------> following; held pulls are sent to the master
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.broker.sweep import Sweep
from txrocketmq.codec.bodies import GetBrokerMemberGroupResponseBody, decode_body, encode_body
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import (
    BrokerHeartbeatRequestHeader,
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
    GetBrokerMemberGroupRequestHeader,
    GetRouteInfoRequestHeader,
    QueryDataVersionRequestHeader,
)
from txrocketmq.errors import BodyError, BrokerError, HeaderError, RemotingError
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.names import MASTER_ID, SYNC_BROKER_MEMBER_GROUP_PREFIX
from txrocketmq.model.route import TopicRouteData

if TYPE_CHECKING:
    from txrocketmq.broker.core import BrokerCore

REQUEST_TIMEOUT_MS = 3_000
_SUCCESS = ResponseCode.SUCCESS.value
_NOT_SUPPORTED = ResponseCode.REQUEST_CODE_NOT_SUPPORTED.value


def _not_sent(failure: Failure) -> None:
    """The next one comes in a second; that the name server is gone is told by the registration."""
    if not isinstance(failure.value, RemotingError):
        Membership.log.failure("a heartbeat to a name server", failure)


async def members_of_group(core: BrokerCore, name_server: str) -> dict[int, str]:
    """The addresses of this broker's group by broker id, as a name server knows them; empty when it knows none.

    Old name servers do not know the question (`compatibleWithOldNameSrv`); they know the route of a topic that each broker of the group has.

    :raises RemotingError: it does not answer.
    :raises BodyError: nor can its answer be read.
    :raises BrokerError: it refuses to answer.
    """
    config = core.config

    async def ask(code: RequestCode, header: object) -> RemotingCommand:
        asked = core.remoting_client.request(
            name_server, code.value, header, b"", REQUEST_TIMEOUT_MS, None
        )
        return await cast("Deferred[RemotingCommand]", asked)

    answer = await ask(
        RequestCode.GET_BROKER_MEMBER_GROUP,
        GetBrokerMemberGroupRequestHeader(
            cluster_name=config.broker_cluster_name, broker_name=config.broker_name
        ),
    )
    if answer.code == _NOT_SUPPORTED and config.compatible_with_old_name_srv:
        topic = SYNC_BROKER_MEMBER_GROUP_PREFIX + config.broker_name
        answer = await ask(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic)
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return {}
        if answer.code == _SUCCESS:
            for broker in decode_body(TopicRouteData, answer.body).broker_datas:
                if broker.broker_name == config.broker_name:
                    return broker.broker_addrs
            return {}
    if answer.code != _SUCCESS:
        raise BrokerError(answer.code, answer.remark, name_server)
    if not answer.body:
        return {}
    group = decode_body(GetBrokerMemberGroupResponseBody, answer.body).broker_member_group
    return {} if group is None else group.broker_addrs or {}


class Membership:
    """What is known of the group.

    :param follow: told the master's two addresses, for clients and for slaves; None: there is no master for now.
    :param changed: told that another member of the group has the smallest id.
    :param looked: told after each look at the group.
    :ivar alive: how many brokers of the group the name server knows, this one among them.
    :ivar min_broker_id: the smallest id of them; None before the first answer.
    """

    log = Logger()

    def __init__(
        self,
        core: BrokerCore,
        follow: Callable[[str | None, str | None], object],
        alive_changed: Callable[[int], object],
        changed: Callable[[], object],
        looked: Callable[[], object],
    ) -> None:
        self.alive = 1
        self.min_broker_id: int | None = None
        self._core = core
        self._follow = follow
        self._alive_changed = alive_changed
        self._changed = changed
        self._looked = looked
        self._sweeps: list[Sweep] = []
        self._is_asking = False
        self._min_address: str | None = None

    def start(self) -> None:
        """Report and ask from now on."""
        config = self._core.config
        for period_ms, work in (
            (config.broker_heartbeat_interval, self._report),
            (config.sync_broker_member_group_period, self._ask),
        ):
            self._sweeps.append(Sweep(self._core.clock, max(0.1, period_ms / 1000), work))

    def stop(self) -> None:
        """No more of that."""
        for sweep in self._sweeps:
            sweep.stop()
        self._sweeps.clear()

    # ------------------------------------------------------------------ heartbeats

    def _report(self) -> None:
        core, config = self._core, self._core.config
        header: object
        if config.compatible_with_old_name_srv:
            code, body = RequestCode.QUERY_DATA_VERSION, encode_body(core.topics.data_version)
            header = QueryDataVersionRequestHeader(
                broker_name=config.broker_name,
                broker_addr=core.address,
                cluster_name=config.broker_cluster_name,
                broker_id=config.broker_id,
            )
        else:
            code, body = RequestCode.BROKER_HEARTBEAT, b""
            header = BrokerHeartbeatRequestHeader(
                cluster_name=config.broker_cluster_name,
                broker_addr=core.address,
                broker_name=config.broker_name,
                broker_id=config.broker_id,
            )
        for address in core.registration.reachable():
            sending = core.remoting_client.oneway(
                address, code.value, header, body, config.send_heartbeat_timeout_millis
            )
            sending.addErrback(_not_sent)

    # ------------------------------------------------------------------ members

    def _ask(self) -> None:
        servers = self._core.registration.reachable()
        if self._is_asking or not servers:
            return
        self._is_asking = True
        asking = Deferred.fromCoroutine(self._ask_group(servers[0]))
        asking.addErrback(lambda failure: self.log.failure("members of the group", failure))
        asking.addCallback(self._asked)

    def _asked(self, ignored: object) -> None:
        self._is_asking = False

    async def _ask_group(self, address: str) -> None:
        config = self._core.config
        try:
            members = await members_of_group(self._core, address)
        except (RemotingError, BodyError, BrokerError):
            return
        if not members or not self._sweeps:
            return
        alive = len(members) + (config.broker_id not in members)
        if alive != self.alive:
            self.alive = alive
            self._alive_changed(alive)
        smallest = min(members)
        gone = None
        if self.min_broker_id is not None and smallest > self.min_broker_id:
            gone = self._min_address
        self.update(smallest, members[smallest], gone, None)
        self._looked()

    async def _request(self, address: str, code: RequestCode, header: object) -> RemotingCommand:
        asked = self._core.remoting_client.request(
            address, code.value, header, b"", REQUEST_TIMEOUT_MS, None
        )
        return await cast("Deferred[RemotingCommand]", asked)

    def update(
        self, min_id: int, min_address: str | None, gone: str | None, ha_address: str | None
    ) -> None:
        """The smallest id of the group is known; nothing when it is no news, or at a master.

        :param gone: the broker whose loss made the change.
        :param ha_address: where the new one's log is had, if somebody said so.
        """
        if min_id == self.min_broker_id or self._core.config.broker_id == MASTER_ID:
            return
        self.log.info(
            "the smallest broker id of the group is {new} at {address}, was {old}",
            new=min_id,
            address=min_address,
            old=self.min_broker_id,
        )
        self.min_broker_id, self._min_address = min_id, min_address
        self._changed()
        if gone is not None and gone == self._core.replication.sync.master_address:
            self._follow(None, None)
        if min_id != MASTER_ID or min_address is None:
            return
        if ha_address is not None:
            self._follow(min_address, ha_address)
        else:
            asking = Deferred.fromCoroutine(self._ask_master(min_address))
            asking.addErrback(lambda failure: self.log.failure("the master's address", failure))

    async def _ask_master(self, address: str) -> None:
        try:
            answer = await self._request(
                address, RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoRequestHeader()
            )
            told = answer.decode_header(ExchangeHAInfoResponseHeader)
        except (RemotingError, HeaderError) as error:
            self.log.warn("master {address} does not say where its log is had: {error}",
                           address=address, error=error)  # fmt: skip
            return
        if self._sweeps and self.min_broker_id == MASTER_ID and told.master_ha_address:
            self._follow(address, told.master_ha_address)
