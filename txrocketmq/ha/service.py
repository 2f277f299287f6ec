"""Replication as one part of a broker: the links to slaves, the link to a master, and who waits for whom.

Stands for ``DefaultHAService``. A broker takes slaves; a slave follows its master besides, and takes slaves of its own (as officially) once that has
fed it.

What a send waits for (`IReplicas`), by role and keys:

* ASYNC_MASTER, and messages that need not wait: nothing;
* SYNC_MASTER with `inSyncReplicas` set: that many replicas, the master among them, or FLUSH_SLAVE_TIMEOUT (5.x);
* SYNC_MASTER without it: one slave; SLAVE_NOT_AVAILABLE at once when none follows closely enough (4.x). The 5.x default of 1 would
  acknowledge what the master alone has;
* with `enableSlaveActingMaster` messages are refused while fewer replicas than needed are in sync, and
  `enableAutoInSyncReplicas` lowers what is needed, to `minInSyncReplicas` at the least.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from txrocketmq.codec.bodies.admin import HAClientRuntimeInfo, HARuntimeInfo
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig
from txrocketmq.ha.acks import AckWaiters
from txrocketmq.ha.follower import Dial, Follower
from txrocketmq.ha.master import NOT_YET, MasterLink
from txrocketmq.ha.transport import MasterFactory
from txrocketmq.interfaces import IReplicaLog, IReplicas
from txrocketmq.model.replication import Replicated

TICK_S = 1.0
MAX_SLAVES = 64
"""Slaves of one master; more connections than that are nobody's replicas."""

SYNC_MASTER, SLAVE = "SYNC_MASTER", "SLAVE"

ALL_LINKS = 0
"""So many replicas as have links and are in sync, for who waits."""


@implementer(IReplicas)
class HaService:
    """Replication of one broker.

    :param dial: connects to a master.
    :param one_slave_by_default: `inSyncReplicas` was not set by anybody.
    :ivar follower: the link to the master; it runs on slaves only.
    :ivar alive_replicas: brokers of the group that the name server knows, this one among them (`enableSlaveActingMaster`).
    :ivar answer_together: runs what answers all who waited for a slave's report, so that their answers may leave together.
    :ivar links: the slaves' links, oldest first.
    :ivar pushed_offset: the furthest that any slave acknowledged (official ``push2SlaveMaxOffset``).
    """

    _log = Logger()
    everybody = ALL_LINKS
    """For whom a stop waits."""

    def __init__(
        self,
        broker_config: BrokerConfig,
        config: MessageStoreConfig,
        store: IReplicaLog,
        clock: IReactorTime,
        dial: Dial,
        *,
        one_slave_by_default: bool,
    ) -> None:
        self._broker_config = broker_config
        self._config = config
        self._store = store
        self._clock = clock
        self._one_slave_by_default = one_slave_by_default
        self._waiters = AckWaiters(clock, self._safe_offset, self._has)
        self._tick: IDelayedCall | None = None
        self._pump: IDelayedCall | None = None
        self._is_running = False
        self.follower = Follower(store, config, clock, dial)
        self.alive_replicas = 1
        self.links: list[MasterLink] = []
        self.pushed_offset = 0
        self.factory = MasterFactory(self)
        self.answer_together: Callable[[Callable[[], None]], object] = lambda work: work()

    # ------------------------------------------------------------------ life

    @property
    def is_slave(self) -> bool:
        """Whether the broker's role is SLAVE."""
        return self._config.broker_role == SLAVE

    def start(self) -> None:
        """Serve slaves, and follow a master where the role says so; the store is open."""
        self._is_running = True
        self._watch()
        self._tick = self._clock.callLater(TICK_S, self._run_tick)
        if self.is_slave:
            self.follower.start()

    def stop(self) -> None:
        """Close all links; who waits for replicas hears that they did not come in time."""
        self._is_running = False
        for call in (self._tick, self._pump):
            if call is not None and call.active():
                call.cancel()
        self._tick = self._pump = None
        self.follower.stop()
        for link in list(self.links):
            link.shut("the broker stops")
        self._waiters.close()
        self._watch()

    def _run_tick(self) -> None:
        self._tick = self._clock.callLater(TICK_S, self._run_tick)
        for link in list(self.links):
            link.tick()
        self.follower.tick()

    # ------------------------------------------------------------------ slaves

    def slave_connected(
        self, peer: str, write: Callable[[bytes], object], close: Callable[[str], object]
    ) -> MasterLink | None:
        """A slave connected: its link's machine; None when it is not served."""
        if not self._is_running or not self._has_room():
            self._log.warn(
                "slave {peer} is refused: {count} are there", peer=peer, count=len(self.links)
            )
            return None
        if self.is_slave and not self._is_fed:
            # An old master that came back as a slave: whoever still follows it would take what the new master never had.
            self._log.warn(
                "slave {peer} is refused: no master has fed this slave yet, its log may be another one",
                peer=peer,
            )
            return None
        link = self._make_link(
            peer,
            self._store,
            self._config,
            self._clock,
            write,
            close,
            self._acknowledged,
            self._begun,
        )
        self.links.append(link)
        self._watch()
        self._log.info("slave {peer} connected", peer=peer)
        return link

    def _has_room(self) -> bool:
        """Whether one more slave is served. Where all places are taken, whoever has reported nothing yet gives way, the oldest first: real
        slaves report soon."""
        if len(self.links) >= MAX_SLAVES:
            silent = next((link for link in self.links if link.request_offset == NOT_YET), None)
            if silent is not None:
                silent.shut("it has reported nothing, and its place is needed")
                self.slave_lost(silent, "its place is needed")
        return len(self.links) < MAX_SLAVES

    @property
    def _is_fed(self) -> bool:
        link = self.follower.link
        return link is not None and link.is_fed

    def _make_link(self, *args: Any) -> MasterLink:
        return MasterLink(*args)

    def _begun(self, link: MasterLink) -> None:
        """A slave made its first report. Nothing says which slave that is, so it may have another link, which looks alive for a while."""
        for other in self.links:
            if other is link or other.request_offset == NOT_YET or other.host != link.host:
                continue
            other.doubt()
            if self.links.index(other) > self.links.index(link):
                link.doubt()

    def slave_lost(self, link: MasterLink, reason: str) -> None:
        """A slave's connection is gone."""
        link.closed()
        if link in self.links:
            self.links.remove(link)
            self._watch()
            self._log.info("slave {peer} is gone: {reason}", peer=link.peer, reason=reason)

    def _watch(self) -> None:
        """Be told of appends as long as that serves anybody: it costs each of them a little."""
        wanted = bool(self.links) or self._config.broker_role == SYNC_MASTER
        self._store.set_replicas(self if wanted and self._is_running else None)

    def _acknowledged(self) -> None:
        self.pushed_offset = max([self.pushed_offset, *(link.ack_offset for link in self.links)])
        self._answer_acknowledged()

    def _answer_acknowledged(self) -> None:
        self.answer_together(self._waiters.acknowledged)

    def _safe_offset(self, replicas: int) -> int:
        """Up to where so many replicas reported the log at the most, the master among them."""
        if replicas == ALL_LINKS:
            end = self._store.max_physical_offset()
            return min(
                (link.ack_offset for link in self.links if link.is_in_sync(end)), default=end
            )
        if replicas <= 1:
            return self._store.max_physical_offset()
        acks = sorted((link.ack_offset for link in self.links), reverse=True)
        return acks[replicas - 2] if len(acks) >= replicas - 1 else -1

    def _has(self, replicas: int, end_offset: int) -> bool:
        """Whether so many replicas have what ends at an offset, the master among them."""
        if replicas == ALL_LINKS:
            return self._safe_offset(replicas) >= end_offset
        links = [link for link in self.links if link.has(end_offset)]
        machines = sum(not link.is_doubted for link in links)
        return 1 + (machines or bool(links)) >= replicas

    def when_drained(self, timeout_ms: int) -> Deferred[bool]:
        """True once all slaves that are in sync have the whole log, False when they have not in time."""
        self._pump_all()
        return self._waiters.wait(self._store.max_physical_offset(), self.everybody, timeout_ms)

    # ------------------------------------------------------------------ IReplicas

    def appended(self) -> None:
        """See `IReplicas`."""
        if self.links and self._pump is None:
            self._pump = self._clock.callLater(0, self._pump_all)

    def _pump_all(self) -> None:
        if self._pump is not None and self._pump.active():
            self._pump.cancel()
        self._pump = None
        for link in list(self.links):
            link.pump()

    def has_enough(self) -> bool:
        """See `IReplicas`."""
        if self._config.broker_role != SYNC_MASTER or not self._is_acting_mode:
            return True
        return self._needed() <= self._in_sync()

    def when_replicated(self, end_offset: int) -> Deferred[Replicated] | None:
        """See `IReplicas`."""
        config = self._config
        if config.broker_role != SYNC_MASTER:
            return None
        needed = self._needed()
        if needed <= 1:
            return None
        if self._is_4x_rule and not self.is_slave_ok(end_offset):
            return succeed(Replicated.NO_SLAVE)
        waiting = self._waiters.wait(end_offset, needed, config.slave_timeout)
        return waiting.addCallback(lambda done: Replicated.YES if done else Replicated.TIMED_OUT)

    @property
    def _is_acting_mode(self) -> bool:
        return self._broker_config.enable_slave_acting_master

    @property
    def _is_4x_rule(self) -> bool:
        return (
            self._one_slave_by_default
            and self._config.in_sync_replicas <= 1
            and not self._is_acting_mode
        )

    def _needed(self) -> int:
        """How many replicas a message needs, the master among them."""
        config = self._config
        if self._is_4x_rule:
            return 2
        needed = config.in_sync_replicas
        if self._is_acting_mode and config.enable_auto_in_sync_replicas:
            needed = max(min(needed, self._in_sync()), config.min_in_sync_replicas)
        return needed

    def _in_sync(self) -> int:
        return min(self.alive_replicas, self.in_sync_replicas())

    def in_sync_replicas(self) -> int:
        """Replicas that are in sync, the master among them."""
        end = self._store.max_physical_offset()
        return 1 + sum(link.is_in_sync(end) for link in self.links)

    def is_slave_ok(self, end_offset: int) -> bool:
        """Whether some slave follows closely enough; one that has not reported yet does not."""
        return any(link.is_in_sync(end_offset) for link in self.links)

    # ------------------------------------------------------------------ status

    def runtime_info(self) -> HARuntimeInfo:
        """What GET_BROKER_HA_STATUS shows."""
        end = self._store.max_physical_offset()
        if not self.is_slave:
            links = [link.runtime_info(end) for link in self.links]
            return HARuntimeInfo(
                master=True,
                master_commit_log_max_offset=end,
                ha_connection_info=links,
                in_sync_slave_nums=sum(info.in_sync for info in links),
            )
        link = self.follower.link
        return HARuntimeInfo(
            master=False,
            ha_client_runtime_info=HAClientRuntimeInfo(
                master_addr=self.follower.master_address,
                max_offset=end,
                last_read_timestamp=0 if link is None else int(link.last_read * 1000),
                last_write_timestamp=0 if link is None else int(link.last_write * 1000),
                transferred_byte_in_second=0 if link is None else link.meter.bytes_per_second,
                master_flush_offset=self._store.master_flushed_offset(),
            ),
        )
