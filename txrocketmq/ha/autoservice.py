"""Replication of a broker whose role a controller gives: links with terms, the replicas in sync, what they agree on, and changes of role.

Stands for ``AutoSwitchHAService``. Who decides is elsewhere (`txrocketmq.broker.replication.controlled`); here is what it means for the links,
the log and those who wait:

* consumers see what all replicas in sync have (the confirm offset), on the master and on its slaves;
* a send waits for `inSyncReplicas`, or with `allAckInSyncStateSet` for all of them; so it does too where nobody set
  `inSyncReplicas`, as the official default of 1 acknowledges what a new master may not have;
* messages are refused while fewer than `minInSyncReplicas` are in sync.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred, succeed

from txrocketmq.codec.bodies.admin import HARuntimeInfo
from txrocketmq.errors import StoreError
from txrocketmq.ha.autoswitch import AutoMasterLink, AutoSlaveLink
from txrocketmq.ha.epochs import EpochCache
from txrocketmq.ha.master import NOT_YET, MasterLink
from txrocketmq.ha.service import SLAVE, SYNC_MASTER, HaService
from txrocketmq.ha.syncset import SyncStateSet
from txrocketmq.model.replication import LinkState, Replicated

ALL_IN_SYNC = -1
"""So many replicas as are in sync (official ``ALL_ACK_IN_SYNC_STATE_SET``)."""

AskController = Callable[[frozenset[int]], "Deferred[Any]"]
"""Asks for another set of replicas in sync; fires when it was answered, or not."""


class AutoSwitchService(HaService):
    """Replication of one broker. It is a slave of nobody until it is told its role.

    :param epochs: the terms that wrote the log; read by `load`.
    :ivar members: the replicas in sync, as far as this broker is the master.
    :ivar ask_controller: see `AskController`.
    """

    everybody = ALL_IN_SYNC

    def __init__(self, *args: Any, epochs: EpochCache, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.epochs = epochs
        self.members = SyncStateSet(self._config, self._clock)
        self.ask_controller: AskController = lambda wanted: succeed(None)
        self._is_asking = False
        self._lead_start = 0
        self.follower.link_class = self._make_slave_link

    @property
    def own_id(self) -> int:
        """This broker's id in its group, as the controller gave it."""
        return self.members.own_id

    def load(self) -> None:
        """Read the terms; the store is loaded, and shows what it showed before.

        :raises StoreError: the file is damaged.
        """
        self.epochs.load()
        # A term of which a power failure left nothing says nothing.
        self.epochs.cut_beyond(self._store.max_physical_offset())
        self._store.set_confirm_offset(self._store.confirm_offset())

    def _make_slave_link(self, *args: Any) -> AutoSlaveLink:
        return AutoSlaveLink(*args, epochs=self.epochs, broker_id=self.own_id)

    def _make_link(self, *args: Any) -> MasterLink:
        return AutoMasterLink(*args, epochs=self.epochs, reported=self._reported)

    # ------------------------------------------------------------------ roles

    def become_master(self, epoch: int) -> None:
        """Begin a new term with this log.

        :raises StoreError: the term is older than the log's last one, the log is being cut, or the disk refuses to note the term: this broker
            stays what it is then, and a slave goes on following.
        """
        self._check_term(epoch)
        if self._store.is_cutting:
            # The cut would take from the queues what came meanwhile.
            raise StoreError(f"term {epoch} cannot begin while the log is being cut")
        if not self.is_slave:
            self._begin_term(epoch)
            return
        self._drop_links("this broker becomes master")
        self._lead_start = self._store.max_physical_offset()
        self.follower.stop()
        try:
            # Before anything is written in it. Where it was noted and no more, the next handshake forgets it: it has no bytes.
            self._begin_term(epoch)
        except StoreError:
            self.follower.start()
            raise
        if self.members.members <= {self.own_id}:
            self._store.set_confirm_offset(self._store.max_physical_offset())
        self._store.roles_changed(leads=True)
        self._config.broker_role = SYNC_MASTER
        self.members.begin()
        self._watch()

    def become_slave(self, epoch: int) -> None:
        """Follow; whom, the follower is told.

        :raises StoreError: the term is older than the log's last one.
        """
        self._check_term(epoch)
        self._drop_links("this broker becomes a slave")
        self._config.broker_role = SLAVE
        self._waiters.give_up()
        self._store.roles_changed(leads=False)
        self._watch()
        self.follower.stop()
        self.follower.set_master_address(None)
        self.follower.start()

    def _check_term(self, epoch: int) -> None:
        if epoch < self.epochs.last_epoch:
            raise StoreError(
                f"the controller's term {epoch} is older than the log's {self.epochs.last_epoch}"
            )

    def _begin_term(self, epoch: int) -> None:
        self.epochs.begin(epoch, self._store.max_physical_offset())

    def _drop_links(self, reason: str) -> None:
        links = list(self.links)
        self.links.clear()
        for link in links:
            link.shut(reason)

    # ------------------------------------------------------------------ who is in sync

    def set_members(self, members: Iterable[int], epoch: int) -> None:
        """What the controller says of the replicas in sync."""
        if not self.members.take(members, epoch):
            return
        self._log.info(
            "replicas in sync: {members} (change {epoch})", members=sorted(members), epoch=epoch
        )
        self._confirm()
        self._answer_acknowledged()

    def check_members(self) -> None:
        """Ask to drop members that are gone or too far behind."""
        wanted = self.members.shrunk(link.slave_id for link in self._replicas())
        if wanted is not None:
            self._want(wanted)

    def _want(self, wanted: frozenset[int]) -> None:
        if self._is_asking or self.is_slave:
            return
        self._is_asking = True
        self.members.wants(wanted)
        self.ask_controller(wanted).addBoth(self._asked)

    def _asked(self, _: object) -> None:
        self._is_asking = False

    @property
    def questions(self) -> int | None:
        """How often the controller was asked for another set; None while it is."""
        return None if self._is_asking else self.members.questions

    def members_stand(self, questions: int | None) -> None:
        """The controller told how things stand; `questions` is what it was when that was asked."""
        if questions is not None and not self._is_asking and self.members.asked is not None:
            self.members.stands(questions)
            self._confirm()
            self._waiters.acknowledged()

    @property
    def _slaves(self) -> list[AutoMasterLink]:
        return [link for link in self.links if isinstance(link, AutoMasterLink)]

    def _replicas(self) -> list[AutoMasterLink]:
        """Links of slaves that count."""
        return [
            link
            for link in self._slaves
            if link.state is LinkState.TRANSFER
            and not link.is_learner
            and link.ack_offset != NOT_YET
        ]

    def _reported(self, link: AutoMasterLink) -> None:
        if not link.is_learner:
            end = self._store.max_physical_offset()
            self.members.reported(link.slave_id, link.ack_offset, end)
            if self.members.grown(
                link.slave_id, link.ack_offset, self._store.confirm_offset(), self._lead_start
            ):
                self._want(self.members.agreed | {link.slave_id})
        self._confirm()
        self._answer_acknowledged()

    def _confirm(self) -> None:
        """Let everybody see what the replicas in sync agree on now."""
        if self.is_slave:
            return
        ends = {link.slave_id: link.ack_offset for link in self._replicas()}
        before = self._store.confirm_offset()
        agreed = self.members.agreed_offset(ends, self._store.max_physical_offset(), before)
        if agreed != before:
            self._store.set_confirm_offset(agreed)

    def slave_connected(self, *args: Any) -> MasterLink | None:
        """See `HaService`; only a master has slaves."""
        return None if self.is_slave else super().slave_connected(*args)

    def slave_lost(self, link: Any, reason: str) -> None:
        """See `HaService`; a member that is gone is to leave the set."""
        was_there = link in self.links
        super().slave_lost(link, reason)
        gone = link.slave_id
        others = {other.slave_id for other in self._slaves}
        if was_there and self._is_running and gone in self.members.agreed - others:
            self._want(self.members.agreed - {gone})

    def _run_tick(self) -> None:
        super()._run_tick()
        self.epochs.cut_before(self._store.min_physical_offset())

    # ------------------------------------------------------------------ who waits for whom

    def appended(self) -> None:
        """See `IReplicas`."""
        super().appended()
        if len(self.members.members) <= 1:
            self._confirm()

    def has_enough(self) -> bool:
        """See `IReplicas`."""
        if self.is_slave:
            return True
        in_sync = max(len(self.members.agreed), len(self.members.asked or ()))
        return in_sync >= self._config.min_in_sync_replicas

    def when_replicated(self, end_offset: int) -> Deferred[Replicated] | None:
        """See `IReplicas`."""
        if self.is_slave:
            return None
        needed = self._needed()
        if needed == ALL_IN_SYNC:
            if len(self.members.members) <= 1:
                return None
        elif needed <= 1:
            return None
        waiting = self._waiters.wait(end_offset, needed, self._config.slave_timeout)
        return waiting.addCallback(lambda done: Replicated.YES if done else Replicated.TIMED_OUT)

    def _needed(self) -> int:
        config = self._config
        if config.all_ack_in_sync_state_set:
            return ALL_IN_SYNC
        if self._one_slave_by_default and config.in_sync_replicas <= 1:
            return ALL_IN_SYNC
        return config.in_sync_replicas

    def _safe_offset(self, replicas: int) -> int:
        if replicas != ALL_IN_SYNC:
            acks = sorted((link.ack_offset for link in self._replicas()), reverse=True)
            return acks[replicas - 2] if len(acks) >= replicas - 1 else -1
        ends = {link.slave_id: link.ack_offset for link in self._replicas()}
        return min(
            (ends.get(member, -1) for member in self.members.members - {self.own_id}),
            default=self._store.max_physical_offset(),
        )

    def _has(self, replicas: int, end_offset: int) -> bool:
        if replicas == ALL_IN_SYNC:
            return self._safe_offset(ALL_IN_SYNC) >= end_offset
        return (
            1 + len({link.slave_id for link in self._replicas() if link.has(end_offset)})
            >= replicas
        )

    def in_sync_replicas(self) -> int:
        """Replicas that are in sync, the master among them."""
        return max(1, len(self.members.agreed))

    # ------------------------------------------------------------------ status

    def runtime_info(self) -> HARuntimeInfo:
        """What GET_BROKER_HA_STATUS shows: who is in sync is who the controller says is."""
        info = super().runtime_info()
        if not self.is_slave:
            for shown, link in zip(info.ha_connection_info, self._slaves, strict=True):
                shown.in_sync = link.slave_id in self.members.agreed
            info.in_sync_slave_nums = max(0, len(self.members.agreed) - 1)
        return info
