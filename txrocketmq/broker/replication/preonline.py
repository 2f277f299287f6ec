"""What does a master take back from its slaves before it goes online again? Known with `enableSlaveActingMaster` only.

Stands for ``BrokerPreOnlineService``. While the master was away consumers committed to a slave, and one of the slaves acted for it. A master
that starts finds the others of its group at the name servers, and one after the other::

    told where the log is had --its link stands, or 10 s are over--> asked for its tables --taken over--> the next one
    does not answer ------------------------------------------------> everything again in a second

Only then it registers, and works on delays, timed messages, transactions and POP. Officially it waits without end, for each slave's link, for
slaves that do not answer and for a name server. Here a slave whose link does not come is asked for its tables all the same (its log may have gone
another way), and after `brokerNotActiveTimeoutMillis` and five seconds (a dead slave is forgotten by then) the master goes online with
what it has: one broker that is stuck keeps nobody away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from txrocketmq.broker.registration import name_servers
from txrocketmq.broker.replication.membership import members_of_group
from txrocketmq.codec.bodies import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    decode_body,
)
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import ExchangeHAInfoRequestHeader
from txrocketmq.errors import BodyError, BrokerError, RemotingError
from txrocketmq.model.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from txrocketmq.broker.core import BrokerCore

REQUEST_TIMEOUT_MS = 3_000
RETRY_S = 1.0
LINK_S = 10.0
"""How long a slave's link is waited for, as officially."""
LOOK_S = 0.1
SPARE_S = 5.0
_NO_TABLE = (
    ResponseCode.SYSTEM_ERROR.value,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED.value,
)
"""What a slave says that lacks a feature, as the timer."""


class PreOnline:
    """One broker's way online."""

    log = Logger()

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._is_stopped = False
        self._pause: tuple[IDelayedCall, Deferred[None]] | None = None
        self._is_done: set[str] = set()

    async def run(self) -> None:
        """Ask the others of the group; errors are logged, nothing fails."""
        core = self._core
        patience_s = core.config.broker_not_active_timeout_millis / 1000 + SPARE_S
        until_s = core.clock.seconds() + patience_s
        while not self._is_stopped:
            fault = await self._take_back_all()
            if fault is None or self._is_stopped:
                return
            if core.clock.seconds() >= until_s:
                self.log.warn("goes online without what others know: {fault}", fault=fault)
                return
            self.log.warn("waits before it goes online: {fault}", fault=fault)
            await self._wait(RETRY_S)

    def stop(self) -> None:
        """The broker stops: wait for nobody."""
        self._is_stopped = True
        if self._pause is not None:
            call, waiting = self._pause
            self._pause = None
            call.cancel()
            waiting.callback(None)

    def _wait(self, seconds: float) -> Deferred[None]:
        waiting: Deferred[None] = Deferred()

        def over() -> None:
            self._pause = None
            waiting.callback(None)

        if self._is_stopped:
            waiting.callback(None)
        else:
            self._pause = (self._core.clock.callLater(seconds, over), waiting)
        return waiting

    async def _take_back_all(self) -> str | None:
        """Take back from all that were not asked yet; what is in the way, None when nothing is."""
        others = await self._others()
        if others is None:
            return "no name server answers"
        for address in others:
            if address in self._is_done:
                continue
            try:
                await self._take_back(address)
            except (RemotingError, BrokerError, BodyError) as error:
                return f"{address}: {error}"
            self._is_done.add(address)
        return None

    async def _others(self) -> list[str] | None:
        """The group's other brokers by their ids, as the first name server that answers knows them; None: none answers."""
        config = self._core.config
        servers = name_servers(config.namesrv_addr)
        for server in servers:
            try:
                members = await members_of_group(self._core, server)
            except (RemotingError, BrokerError, BodyError):
                continue
            return [members[key] for key in sorted(members) if key != config.broker_id]
        return None if servers else []

    async def _take_back(self, address: str) -> None:
        core = self._core
        header = ExchangeHAInfoRequestHeader(
            master_ha_address=core.registration.ha_address,
            master_flush_offset=core.store.max_physical_offset(),
            master_address=core.address,
        )
        await self._ask(address, RequestCode.EXCHANGE_BROKER_HA_INFO, header)
        await self._link_of(address)
        delays = decode_body(
            DelayOffsetSerializeWrapper, await self._ask(address, RequestCode.GET_ALL_DELAY_OFFSET)
        )
        offsets = decode_body(
            ConsumerOffsetSerializeWrapper,
            await self._ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET),
        )
        more = [
            (take, await self._table_of(address, code))
            for code, take in core.replication.taken_back
        ]
        core.offsets.take_back(offsets)
        core.delays.offsets.take_back(delays)
        for take, table in more:
            if table is not None:
                take(table)
        self.log.info("took back what {address} knows", address=address)

    async def _link_of(self, address: str) -> None:
        """Wait until the slave's link stands, from the same machine, as officially; not for long."""
        host = address.rpartition(":")[0]
        clock = self._core.clock
        until_s = clock.seconds() + LINK_S
        while not self._is_stopped:
            links = self._core.replication.ha.links
            if any(link.peer.rpartition(":")[0] == host for link in links):
                return
            if clock.seconds() >= until_s:
                self.log.warn("slave {address} does not follow this log", address=address)
                return
            await self._wait(LOOK_S)

    async def _table_of(self, address: str, code: RequestCode) -> bytes | None:
        """What a feature wants to know of a slave; None where that lacks the feature."""
        try:
            return await self._ask(address, code)
        except BrokerError as error:
            if error.code in _NO_TABLE:
                return None
            raise

    async def _ask(self, address: str, code: RequestCode, header: object = None) -> bytes:
        asked = self._core.remoting_client.request(
            address, code.value, header, b"", REQUEST_TIMEOUT_MS, None
        )
        answer = await cast("Deferred[RemotingCommand]", asked)
        if answer.code != ResponseCode.SUCCESS.value:
            raise BrokerError(answer.code, answer.remark, address)
        return bytes(answer.body)
