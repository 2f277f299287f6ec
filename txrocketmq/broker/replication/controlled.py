"""A broker whose role a controller gives (`enableControllerMode`): its way into the group, and every change of its role.

Stands for ``ReplicasManager``::

    --leader found--> --id known, or asked for and given--> --registered--> --a master is elected--> running
    each step is tried again after a pause until it succeeds; clients and name servers hear of this broker once it runs

    running: NOTIFY_BROKER_ROLE_CHANGED, or the controller's answer every `syncBrokerMetadataPeriod`, with a newer term --> another role

Until it runs the broker is a slave without a master: it takes no messages. Where a master's log is had, the slave asks the master itself
(EXCHANGE_BROKER_HA_INFO), and does not wait for a name server to hear of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.broker.replication.controllers import Controllers, Ruling
from txrocketmq.broker.replication.feature import Replication
from txrocketmq.broker.replication.identity import Identity, IdentityFile
from txrocketmq.broker.sweep import Sweep
from txrocketmq.codec.bodies import (
    EpochEntry,
    EpochEntryCache,
    SyncStateSet,
    decode_body,
    encode_body,
)
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import (
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
    NotifyBrokerRoleChangedRequestHeader,
    RegisterBrokerResponseHeader,
)
from txrocketmq.errors import BodyError, BrokerError, HeaderError, RemotingError, StoreError
from txrocketmq.ha.autoservice import AutoSwitchService
from txrocketmq.ha.epochs import EpochCache
from txrocketmq.interfaces import IDisk
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.names import MASTER_ID
from txrocketmq.remoting.dispatch import Reply, Request

if TYPE_CHECKING:
    from txrocketmq.broker.core import BrokerCore
    from txrocketmq.ha.follower import Dial

RETRY_S = 1.0
"""Between two tries to get into the group; officially five seconds."""
ASK_MASTER_S = 0.5
"""How often a master is asked where its log is had that does not say so yet."""
REQUEST_TIMEOUT_MS = 3_000
_FAULTS = (RemotingError, BrokerError, BodyError, HeaderError)
_UNKNOWN = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST.value
_FORGOTTEN = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED.value


class Controlled(Replication):
    """See the module.

    :ivar controllers: the controllers.
    :ivar master_epoch: the newest term that was heard of.
    :ivar master_id: who is master in it; None before the first.
    """

    _log = Logger()

    def __init__(
        self, core: BrokerCore, dial: Dial, disk: IDisk, *, one_slave_by_default: bool
    ) -> None:
        self._disk = disk
        super().__init__(core, dial, one_slave_by_default=one_slave_by_default)
        store = core.store_config
        root = store.store_path_root_dir
        self._identities = IdentityFile(
            disk, store.store_path_broker_identity or f"{root}/brokerIdentity"
        )
        self.controllers = Controllers(core.config, core.remoting_client, core.clock, core.address)
        self.auto.ask_controller = self._ask_members
        self.master_epoch = 0
        self.master_id: int | None = None
        self._ready: Deferred[None] = Deferred()
        self._is_running = self._is_looking_at_controller = self._is_asking_master = False
        self._pause: tuple[Any, Deferred[None]] | None = None
        self._sweeps: list[Sweep] = []
        # Nothing here compares single messages: the terms say where logs part.
        self.ha.follower.objection = _no_objection

    @property
    def auto(self) -> AutoSwitchService:
        """The links."""
        return cast(AutoSwitchService, self.ha)

    def _make_service(self, *args: Any, **kwargs: Any) -> AutoSwitchService:
        store = self._core.store_config
        path = store.store_path_epoch_file or f"{store.store_path_root_dir}/epochFileCheckpoint"
        return AutoSwitchService(*args, epochs=EpochCache(self._disk, path), **kwargs)

    # ------------------------------------------------------------------ life

    def load(self) -> None:
        """See `IBrokerFeature`."""
        self.auto.load()

    def start(self) -> None:
        """See `IBrokerFeature`."""
        self._is_running = True
        self._initial_offset = self._core.store.max_physical_offset()
        self.ha.start()
        joining = Deferred.fromCoroutine(self._join())
        joining.addErrback(lambda failure: self._log.failure("joining the group", failure))

    def stop(self) -> None:
        """See `IBrokerFeature`."""
        self._is_running = False
        for sweep in self._sweeps:
            sweep.stop()
        self._sweeps.clear()
        if self._pause is not None:
            call, waiting = self._pause
            self._pause = None
            call.cancel()
            waiting.callback(None)
        super().stop()

    def prepare_online(self) -> Deferred[None] | None:
        """Fires once this broker has a role."""
        return self._ready

    async def _sleep(self, seconds: float) -> None:
        waiting: Deferred[None] = Deferred()
        self._pause = self._core.clock.callLater(seconds, waiting.callback, None), waiting
        await waiting
        self._pause = None

    async def _join(self) -> None:
        last = ""
        while self._is_running:
            try:
                if await self._join_once():
                    break
                fault = "no master is elected yet"
            except (*_FAULTS, StoreError) as error:
                fault = self._told(error)
            if fault != last:
                self._log.warn("not in the group yet, tried again: {fault}", fault=fault)
            last = fault
            if self._is_running:
                await self._sleep(RETRY_S)
        if not self._is_running:
            return
        config = self._core.config
        for period_ms, work in (
            (config.broker_heartbeat_interval, self._beat),
            (config.sync_controller_metadata_period, self._look_for_leader),
            (config.sync_broker_metadata_period, self._look_at_controller),
            (config.check_sync_state_set_period, self._check_members),
            (ASK_MASTER_S * 1000, self._ask_master),
        ):
            self._sweeps.append(Sweep(self._core.clock, max(0.1, period_ms / 1000), work))
        self._ready.callback(None)

    async def _join_once(self) -> bool:
        await self.controllers.find_leader()
        broker_id = self.auto.members.own_id = await self._identity()
        ruling = await self.controllers.register(broker_id)
        self._beat()
        if ruling.master_id is None:
            ruling = await self.controllers.elect(broker_id)
        if ruling.master_id is None or ruling.master_address is None or not self._is_running:
            return False
        self._take_role(ruling)
        return True

    async def _identity(self) -> int:
        config = self._core.config
        cluster, name = config.broker_cluster_name, config.broker_name
        found = self._identities.load(cluster, name)
        if found is None:
            broker_id = await self.controllers.next_id()
            code = f"{self._core.address};{self._core.now_ms()}"
            found = Identity(cluster, name, broker_id, code)
            self._identities.ask(found)
        if found.code:
            try:
                await self.controllers.apply_id(found.broker_id, found.code)
            except BrokerError:
                self._identities.refused()
                raise
            found = self._identities.given(found)
            self._log.info("the controller gave this broker the id {id}", id=found.broker_id)
        return found.broker_id

    # ------------------------------------------------------------------ roles

    def _obey(self, ruling: Ruling) -> None:
        """Take the role that a newer term gives; in the present one, the replicas in sync."""
        if ruling.master_id is None or ruling.master_address is None:
            return
        if ruling.epoch <= self.master_epoch:
            if ruling.epoch == self.master_epoch and not self.is_slave:
                self.auto.set_members(ruling.members, ruling.change)
            return
        try:
            self._take_role(ruling)
        except StoreError as error:
            self._log.error("the role in term {epoch} is not taken: {error}",
                            epoch=ruling.epoch, error=error)  # fmt: skip

    def _take_role(self, ruling: Ruling) -> None:
        """Become what a newer term says.

        :raises StoreError: that cannot be; the role stays as it was.
        """
        own = self.auto.own_id
        if ruling.master_id == own:
            self._lead(ruling)
        else:
            self._follow_master(ruling)
        self._log.info(
            "term {epoch}: broker {master} at {address} is master, this is {own}",
            epoch=ruling.epoch,
            master=ruling.master_id,
            address=ruling.master_address,
            own=own,
        )
        self._core.role_changed(ruling.epoch)

    def _lead(self, ruling: Ruling) -> None:
        was_slave = self.is_slave
        self.auto.set_members(ruling.members, ruling.change)
        if was_slave:
            self.sync.stop()
            self.sync.set_master_address(None)
        self.auto.become_master(ruling.epoch)
        self.master_epoch, self.master_id = ruling.epoch, ruling.master_id
        self._core.config.broker_id = MASTER_ID

    def _follow_master(self, ruling: Ruling) -> None:
        is_same = ruling.master_id == self.master_id and self.is_slave
        if not is_same:
            self.auto.become_slave(ruling.epoch)
        self.master_epoch, self.master_id = ruling.epoch, ruling.master_id
        self._core.config.broker_id = self.auto.own_id
        if not is_same or self.sync.master_address != ruling.master_address:
            self.sync.stop()
            self.sync.set_master_address(ruling.master_address)
            self.sync.start()
            self.ha.follower.set_master_address(None)
        self._ask_master()

    # ------------------------------------------------------------------ the master's log

    def _registered(self, answer: RegisterBrokerResponseHeader) -> None:
        """A name server may still tell of an older master: the controller is asked instead."""

    def _ask_master(self) -> None:
        """Learn where the master's log is had, unless that is known."""
        wanted = self._is_running and self.is_slave and self.ha.follower.master_address is None
        address = self.sync.master_address
        if not wanted or address is None or self._is_asking_master:
            return
        self._is_asking_master = True
        asking = Deferred.fromCoroutine(self._ask_master_at(address))
        asking.addErrback(lambda failure: self._log.failure("the master's log", failure))
        asking.addBoth(lambda ignored: setattr(self, "_is_asking_master", False))

    async def _ask_master_at(self, address: str) -> None:
        asked = self._core.remoting_client.request(
            address,
            RequestCode.EXCHANGE_BROKER_HA_INFO.value,
            ExchangeHAInfoRequestHeader(),
            b"",
            REQUEST_TIMEOUT_MS,
            None,
        )
        try:
            answer = await cast("Deferred[RemotingCommand]", asked)
            found = answer.decode_header(ExchangeHAInfoResponseHeader).master_ha_address
        except _FAULTS:
            return
        if found and self._is_running and self.is_slave and address == self.sync.master_address:
            self.ha.follower.set_master_address(found)

    # ------------------------------------------------------------------ the controller

    def _beat(self) -> None:
        store = self._core.store
        self.controllers.heartbeat(
            self.auto.own_id,
            self.auto.epochs.last_epoch,
            store.max_physical_offset(),
            store.confirm_offset(),
        )

    def _look_for_leader(self) -> None:
        looking = Deferred.fromCoroutine(self.controllers.find_leader())
        looking.addErrback(_no_leader)

    def _look_at_controller(self) -> None:
        if self._is_looking_at_controller:
            return
        self._is_looking_at_controller = True
        looking = Deferred.fromCoroutine(self._look())
        looking.addErrback(lambda failure: self._log.failure("the controller's word", failure))
        looking.addBoth(lambda ignored: setattr(self, "_is_looking_at_controller", False))

    async def _look(self) -> None:
        questions = self.auto.questions
        try:
            ruling = await self.controllers.replicas()
            is_current = ruling.epoch == self.master_epoch and not self.is_slave
            if is_current and ruling.change == self.auto.members.epoch:
                self.auto.members_stand(questions)
            if ruling.master_id is None and ruling.epoch >= self.master_epoch:
                ruling = await self.controllers.elect(self.auto.own_id)
            if self._is_running:
                self._obey(ruling)
        except BrokerError as error:
            if error.code == _UNKNOWN:
                # The controller lost its state, or this broker was cleaned away.
                await self._register_again()
        except _FAULTS:
            return

    async def _register_again(self) -> None:
        try:
            ruling = await self.controllers.register(self.auto.own_id)
        except _FAULTS as error:
            told = self._told(error)
            self._log.warn("the controller does not take this broker: {error}", error=told)
            return
        if self._is_running:
            self._obey(ruling)

    def _told(self, error: Exception) -> str:
        """What the log says; to whom the controller has forgotten, what an operator can do."""
        if not isinstance(error, BrokerError) or error.code != _FORGOTTEN:
            return str(error)
        path = self._identities.path
        return f"{error}; to be let in as a new broker, delete {path}"

    def _check_members(self) -> None:
        if not self.is_slave:
            self.auto.check_members()

    def _ask_members(self, wanted: frozenset[int]) -> Deferred[Any]:
        return Deferred.fromCoroutine(self._change_members(wanted))

    async def _change_members(self, wanted: Iterable[int]) -> None:
        epoch = self.master_epoch
        try:
            found = await self.controllers.change_members(
                self.auto.own_id, epoch, wanted, self.auto.members.epoch
            )
        except _FAULTS as error:
            self._log.warn(
                "replicas in sync stay as they are, {wanted} was asked for: {error}",
                wanted=sorted(wanted),
                error=error,
            )
            # Whether it has them, and how things stand, is to be known soon.
            self._look_at_controller()
            return
        if epoch == self.master_epoch and not self.is_slave:
            self.auto.set_members(found.sync_state_set, found.sync_state_set_epoch)

    # ------------------------------------------------------------------ requests

    def notice_role(self, request: Request[NotifyBrokerRoleChangedRequestHeader]) -> Reply:
        """NOTIFY_BROKER_ROLE_CHANGED: the controller says who is master."""
        header = request.header
        if not self._sweeps:
            # What is under way may be older than what the controller answers to the registration.
            return Reply()
        try:
            found = decode_body(SyncStateSet, request.body) if request.body else SyncStateSet()
        except BodyError as error:
            return Reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
        self._obey(
            Ruling(
                header.master_broker_id,
                header.master_address,
                header.master_epoch or 0,
                frozenset(found.sync_state_set),
                header.sync_state_set_epoch or found.sync_state_set_epoch,
            )
        )
        return Reply()

    def get_epochs(self, request: Request[None]) -> Reply:
        """GET_BROKER_EPOCH_CACHE: the terms that wrote this log."""
        config, epochs = self._core.config, self.auto.epochs
        body = EpochEntryCache(
            cluster_name=config.broker_cluster_name,
            broker_name=config.broker_name,
            broker_id=config.broker_id,
            epoch_list=[
                EpochEntry(epoch=entry.epoch, start_offset=entry.start_offset)
                if (end := epochs.end_of(entry)) is None
                else EpochEntry(epoch=entry.epoch, start_offset=entry.start_offset, end_offset=end)
                for entry in epochs.entries
            ],
            max_offset=self._core.store.max_physical_offset(),
        )
        return Reply(body=encode_body(body))


def _no_leader(failure: Failure) -> None:
    """It is told where a request fails for it."""
    if not isinstance(failure.value, _FAULTS):
        Controlled._log.failure("who of the controllers leads", failure)


def _no_objection() -> Deferred[str | None]:
    done: Deferred[str | None] = Deferred()
    done.callback(None)
    return done
