"""What does an official controller decide? A double of its protocol, for brokers on a network in memory.

Its rules are those of ``ReplicasInfoManager`` and ``DefaultElectPolicy``: who asks for another set of replicas in sync must be the master, in
this term and of this set, and may name living ones only; a master is elected out of that set, the one with the newest term and then
the longest log; a master that is silent is replaced, and if nobody of the set lives there is none.
"""

from __future__ import annotations

from collections.abc import Callable

from controller_world import Controller
from fakes import Asked

from txrocketmq.codec import headers as h
from txrocketmq.codec.bodies import SyncStateSet, decode_body
from txrocketmq.model.codes import ResponseCode as Code

SCAN_S = 1.0


class Elector(Controller):
    """The group of controllers: one mind, of which one address at a time answers for all.

    :param now: the time in seconds.
    :param tell: gives a broker, by its id, the newest decision.
    :ivar masters: who was elected in which term.
    """

    def __init__(self, now: Callable[[], float], tell: Callable[[int], object]) -> None:
        super().__init__()
        self._now = now
        self._tell = tell
        self._beats: dict[int, tuple[float, h.BrokerHeartbeatRequestHeader]] = {}
        self._scanned = 0.0
        self.masters: dict[int, int] = {}

    def beat(self, header: h.BrokerHeartbeatRequestHeader) -> None:
        """BROKER_HEARTBEAT."""
        self._beats[header.broker_id or 0] = (self._now(), header)

    def lives(self, number: int | None) -> bool:
        if number not in self._beats:
            return False
        heard, header = self._beats[number]
        return self._now() - heard <= (header.heartbeat_timeout_mills or 0) / 1000

    def scan(self) -> None:
        """Look for a master that is silent, once a second."""
        if self._now() - self._scanned < SCAN_S:
            return
        self._scanned = self._now()
        if self.master is None or self.lives(self.master):
            return
        if any(self.lives(number) for number in self.places):
            winner = self._best()
            if winner is None:
                self.master = None
            else:
                self.elect(winner)
                self.announce()

    def announce(self) -> None:
        for number in sorted(self.places):
            if self.lives(number):
                self._tell(number)

    def designate(self, number: int) -> None:
        """An operator wants this one (``electMaster``)."""
        if number in self.members and self.lives(number) and number != self.master:
            self.elect(number)
            self.announce()

    def _best(self) -> int | None:
        def rank(number: int) -> tuple[int, int, int]:
            _, header = self._beats[number]
            return (header.epoch or 0, header.max_offset or 0, -number)

        return max(filter(self.lives, self.members), key=rank, default=None)

    def elect(self, winner: int) -> None:
        super().elect(winner)
        self.masters[self.epoch] = winner

    def controller_register_broker(self, asked: Asked) -> None:
        header = asked.command.decode_header(h.RegisterBrokerToControllerRequestHeader)
        self.places[header.broker_id or 0] = header.broker_address or ""
        found = h.RegisterBrokerToControllerResponseHeader()
        if self.master is not None and self.lives(self.master):
            found.master_broker_id = self.master
            found.master_address = self.places[self.master]
            found.master_epoch = self.epoch
            found.sync_state_set_epoch = self.change
        asked.answer(0, found, self.set())

    def controller_elect_master(self, asked: Asked) -> None:
        header = asked.command.decode_header(h.ElectMasterRequestHeader)
        winner: int | None
        if self.epoch == 0:
            winner = header.broker_id
        elif self.lives(self.master) and self.master in self.members:
            winner = self.master
        else:
            winner = self._best()
        if winner is None:
            asked.answer(Code.CONTROLLER_ELECT_MASTER_FAILED.value)
        elif winner == self.master:
            self._answer_election(asked, Code.CONTROLLER_MASTER_STILL_EXIST.value)
        else:
            self.elect(winner)
            self._answer_election(asked, 0)
            self.announce()

    def controller_alter_sync_state_set(self, asked: Asked) -> None:
        header = asked.command.decode_header(h.AlterSyncStateSetRequestHeader)
        wanted = set(decode_body(SyncStateSet, asked.command.body).sync_state_set)
        if wanted == self.members:
            asked.answer(Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED.value)
        elif header.master_broker_id != self.master:
            asked.answer(Code.CONTROLLER_INVALID_MASTER.value)
        elif not all(map(self.lives, wanted)):
            asked.answer(Code.CONTROLLER_BROKER_NOT_ALIVE.value)
        else:
            super().controller_alter_sync_state_set(asked)
