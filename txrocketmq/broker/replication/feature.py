"""A broker's part in replication: who it is, whom it follows, and what it answers about that.

Stands for the replication half of ``BrokerController`` and ``AdminBrokerProcessor``. A master serves slaves; a slave learns from the
name servers' answers to its registration where its master is (or is told by `haMasterAddress`), follows its log, and copies its
tables. Nobody is promoted by himself: an operator starts a slave's store as a master. With `enableSlaveActingMaster` a slave does some of a
lost master's work, and goes on following once it is back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from txrocketmq.broker.feature import Feature
from txrocketmq.broker.registration import name_servers
from txrocketmq.broker.replication.compacted import MastersCopies
from txrocketmq.broker.replication.divergence import DivergenceCheck
from txrocketmq.broker.replication.membership import Membership
from txrocketmq.broker.replication.preonline import PreOnline
from txrocketmq.broker.replication.sync import SlaveSync, Take
from txrocketmq.broker.replication.tables import follow_tables
from txrocketmq.broker.sweep import Sweep
from txrocketmq.codec.bodies import encode_body
from txrocketmq.codec.headers import (
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
    NotifyBrokerRoleChangedRequestHeader,
    NotifyMinBrokerIdChangeRequestHeader,
    RegisterBrokerResponseHeader,
    ResetMasterFlushOffsetHeader,
)
from txrocketmq.ha.follower import Dial
from txrocketmq.ha.service import HaService
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.names import MASTER_ID
from txrocketmq.remoting.dispatch import Reply, Request

if TYPE_CHECKING:
    from txrocketmq.broker.core import BrokerCore

LOOK_FOR_MASTER_S = 5.0
"""How often a slave without a master asks the name servers for one."""
LOOKS_FOR_MASTER = 3
"""So often before the master of `haMasterAddress` is followed though nobody says who it is: it cannot be asked for its log's end then."""
SHORTEST_ADDRESS = 6
"""A shorter `haMasterAddress` is none, as officially."""
NO_CONTROLLER = "this request is only for brokers with enableControllerMode"
MASTER_COMES_S = 20.0
"""So long a slave does not act that a master has asked for what it knows; the master is online by then, or gone again."""
ASKED_S = 1.0
"""So long after a master asked for the last of what this slave knows it has taken that over."""
DRAIN_MS = 3_000
"""How long a stopping master waits for slaves that are nearly there."""


class Replication(Feature):
    """See the module.

    :ivar ha: the links.
    :ivar sync: the copies of tables; features add theirs.
    :ivar members: the group, with `enableSlaveActingMaster`.
    :ivar taken_back: what a master that comes back asks its slaves for, besides offsets; features add theirs, with who takes the answer.
    """

    _log = Logger()

    def __init__(self, core: BrokerCore, dial: Dial, *, one_slave_by_default: bool) -> None:
        self._core = core
        self._config = core.store_config
        self.ha: HaService = self._make_service(
            core.config,
            core.store_config,
            core.store,
            core.clock,
            dial,
            one_slave_by_default=one_slave_by_default,
        )
        self.sync = SlaveSync(core.remoting_client, core.clock, core.address)
        follow_tables(self.sync, core)
        copies = MastersCopies(core, self.sync, lambda: self.is_slave)
        core.store.set_compacted_source(copies)
        self._check = DivergenceCheck(core.store, core.remoting_client)
        self.ha.follower.objection = self._objection
        core.registration.on_answer = self._registered
        self.members = Membership(
            core, self._follow, self._alive_changed, self._members_changed, self._looked_at_members
        )
        self.taken_back: list[tuple[RequestCode, Take]] = []
        core.pull.master_is_there = self._master_is_there
        self._by_hand = False
        self._looking: Sweep | None = None
        self._looks = 0
        self._initial_offset = 0
        self._master_comes_s = 0.0
        self._holding: IDelayedCall | None = None
        self._going_online: PreOnline | None = None

    def _make_service(self, *args: Any, **kwargs: Any) -> HaService:
        return HaService(*args, **kwargs)

    @property
    def is_slave(self) -> bool:
        """Whether the broker's role is SLAVE."""
        return self.ha.is_slave

    @property
    def leads(self) -> bool:
        """Whether delays, timed messages, transactions and POP of the group are this broker's to work on: it is the master, or acts for it."""
        config = self._core.config
        if not self.is_slave:
            return True
        return (
            config.enable_slave_acting_master
            and self.members.min_broker_id == config.broker_id
            and self._core.clock.seconds() >= self._master_comes_s
        )

    def handlers(self) -> Mapping[str, object]:
        """See `IBrokerFeature`."""
        return {"replication": self}

    def start(self) -> None:
        """See `IBrokerFeature`."""
        self._initial_offset = self._core.store.max_physical_offset()
        by_hand = self._config.ha_master_address or ""
        self._by_hand = len(by_hand) >= SHORTEST_ADDRESS
        self.ha.start()
        if self._core.config.enable_slave_acting_master:
            self.members.start()
        if not self.is_slave:
            return
        if not name_servers(self._core.config.namesrv_addr):
            # Nobody will tell who the master is, so it cannot be asked for its log's end.
            self._follow_by_hand()
        self.sync.start()
        self._looking = Sweep(self._core.clock, LOOK_FOR_MASTER_S, self._look_for_master)

    def stop(self) -> None:
        """See `IBrokerFeature`."""
        if self._going_online is not None:
            self._going_online.stop()
        if self._looking is not None:
            self._looking.stop()
            self._looking = None
        if self._holding is not None:
            self._holding.cancel()
            self._holding = None
        self.members.stop()
        self.sync.stop()
        self.ha.stop()

    def prepare_online(self) -> Deferred[None] | None:
        """What has to be done before the broker registers; None when that is nothing."""
        config = self._core.config
        if self.is_slave or config.skip_pre_online or not config.enable_slave_acting_master:
            return None
        self._going_online = PreOnline(self._core)
        going = Deferred.fromCoroutine(self._going_online.run())
        return going.addErrback(lambda failure: self._log.failure("before going online", failure))

    def drain(self) -> Deferred[bool]:
        """Wait until the slaves that are in sync have everything, for three seconds at most; whether they have."""
        return self.ha.when_drained(DRAIN_MS)

    def _objection(self) -> Deferred[str | None]:
        return Deferred.fromCoroutine(self._check.fault(self.sync.master_address))

    # ------------------------------------------------------------------ where the master is

    def _registered(self, answer: RegisterBrokerResponseHeader) -> None:
        """What a name server said of the master. One that knows none (it has just begun) changes nothing."""
        if not self.is_slave:
            return
        if answer.master_addr:
            self.sync.set_master_address(answer.master_addr)
            self._follow_by_hand()
        if answer.ha_server_addr and not self._by_hand:
            self.ha.follower.set_master_address(answer.ha_server_addr)

    def _follow_by_hand(self) -> None:
        """Follow `haMasterAddress`, where it is set."""
        if self._by_hand:
            self.ha.follower.set_master_address(self._config.ha_master_address)

    def _follow(self, address: str | None, ha_address: str | None) -> None:
        """The group's master is elsewhere, or there is none for now (acting-master mode)."""
        if not self.is_slave:
            return
        self.sync.set_master_address(address)
        if not self._by_hand:
            self.ha.follower.set_master_address(ha_address)

    def _members_changed(self) -> None:
        """Another member of the group has the smallest id: this slave may have to act, or to cease to."""
        self._core.lead_or_follow()
        if self._master_is_there():
            # Consumers that wait here are sent to it.
            self._core.pull.held.wake_all()

    def _looked_at_members(self) -> None:
        if self.leads != self._core.has_special_services:
            self._core.lead_or_follow()

    def _master_comes(self) -> None:
        """The master is about to take back what this slave knows: from now on that is not to change, for a while.

        Officially a slave goes on until it hears of the master by a name server, so what falls due in between is delivered twice. Nor is what it
        knows to be replaced by what the master knew: official masters are seen to register before they ask.
        """
        if self._core.config.enable_slave_acting_master:
            self._master_comes_s = self._core.clock.seconds() + MASTER_COMES_S
            self._hold(MASTER_COMES_S)
            self._looked_at_members()

    def _hold(self, seconds: float) -> None:
        """Take nothing over from the master for so long."""
        if self._holding is not None:
            self._holding.cancel()
        self.sync.hold()
        self._holding = self._core.clock.callLater(seconds, self._release)

    def _release(self) -> None:
        self._holding = None
        self.sync.release()

    def master_asked(self) -> None:
        """A master asked for timed messages: with these, the last of it, it has all that this slave knows."""
        if self._holding is not None:
            self._hold(ASKED_S)

    def _master_is_there(self) -> bool | None:
        """Whether name servers know a master of this group; None where nobody looks (no acting-master mode)."""
        if not self._core.config.enable_slave_acting_master:
            return None
        return self.members.min_broker_id in (MASTER_ID, None)

    def _alive_changed(self, alive: int) -> None:
        self.ha.alive_replicas = alive

    def _look_for_master(self) -> None:
        if self.sync.master_address is None:
            self._core.registration.register_all(True)
            self._looks += 1
            if self._looks >= LOOKS_FOR_MASTER:
                self._follow_by_hand()

    # ------------------------------------------------------------------ requests

    def get_ha_status(self, request: Request[None]) -> Reply:
        """GET_BROKER_HA_STATUS: the links and how far they are."""
        return Reply(body=encode_body(self.ha.runtime_info()))

    def notice_role(self, request: Request[NotifyBrokerRoleChangedRequestHeader]) -> Reply:
        """NOTIFY_BROKER_ROLE_CHANGED, where no controller rules (see `txrocketmq.broker.replication.controlled`)."""
        return Reply()

    def get_epochs(self, request: Request[None]) -> Reply:
        """GET_BROKER_EPOCH_CACHE, where no controller rules."""
        return Reply(ResponseCode.SYSTEM_ERROR, remark=NO_CONTROLLER)

    def exchange_ha_info(self, request: Request[ExchangeHAInfoRequestHeader]) -> Reply:
        """EXCHANGE_BROKER_HA_INFO: a master is told to a slave, or tells itself."""
        header = request.header
        if header.master_ha_address is not None:
            if self.is_slave:
                self.ha.follower.set_master_address(header.master_ha_address)
                self._master_comes()
            if self._wants_flush_offset() and header.master_flush_offset is not None:
                self._core.store.set_master_flushed_offset(header.master_flush_offset)
            return Reply(header=ExchangeHAInfoResponseHeader())
        if self._core.config.broker_id != MASTER_ID:
            return Reply(header=ExchangeHAInfoResponseHeader())
        return Reply(
            header=ExchangeHAInfoResponseHeader(
                master_ha_address=self._core.registration.ha_address,
                master_flush_offset=self._initial_offset,
                master_address=self._core.address,
            )
        )

    def notify_min_broker_id(self, request: Request[NotifyMinBrokerIdChangeRequestHeader]) -> Reply:
        """NOTIFY_MIN_BROKER_ID_CHANGE: a name server says who has the smallest id of the group now."""
        header = request.header
        if self._core.config.enable_slave_acting_master and header.min_broker_id is not None:
            self.members.update(
                header.min_broker_id,
                header.min_broker_addr,
                header.offline_broker_addr,
                header.ha_broker_addr,
            )
        return Reply()

    def reset_master_flush_offset(self, request: Request[ResetMasterFlushOffsetHeader]) -> Reply:
        """RESET_MASTER_FLUSH_OFFSET: what a slave holds for its master's flushed offset."""
        if self._core.config.broker_id != MASTER_ID:
            self._core.store.set_master_flushed_offset(request.header.master_flush_offset)
        return Reply()

    def _wants_flush_offset(self) -> bool:
        return (
            self._config.sync_master_flush_offset_when_startup
            and self._core.store.master_flushed_offset() == 0
        )

    def figures(self) -> Mapping[str, str]:
        """See `IBrokerFeature`."""
        if self.is_slave:
            return {}
        return {"slavesConnected": str(len(self.ha.links))} if self.ha.links else {}
