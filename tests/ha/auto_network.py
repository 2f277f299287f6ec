"""Replicas whose roles the test gives, as a controller would."""

from __future__ import annotations

from typing import Any

from ha_network import Pair, Replica
from twisted.internet.defer import Deferred, succeed

from txrocketmq.ha.autoservice import AutoSwitchService
from txrocketmq.ha.epochs import EpochCache
from txrocketmq.ha.service import HaService


class AutoReplica(Replica):
    """A replica in controller mode. ``pair.agrees`` answers what its master asks of the controller."""

    def __init__(self, group: AutoGroup, number: int, **settings: Any) -> None:
        self.group = group
        self.number = number
        super().__init__(
            group.network, group.clock, f"192.0.2.{number}", broker_role="SLAVE", **settings
        )

    def make_service(self, *args: Any, **kwargs: Any) -> HaService:
        epochs = EpochCache(self.disk, "/store/epochFileCheckpoint")
        made = AutoSwitchService(*args, epochs=epochs, **kwargs)
        made.members.own_id = self.number
        made.load()
        made.ask_controller = self.ask
        return made

    @property
    def auto(self) -> AutoSwitchService:
        assert isinstance(self.ha, AutoSwitchService)
        return self.ha

    def ask(self, wanted: frozenset[int]) -> Deferred[Any]:
        self.group.asked.append(set(wanted))
        if self.group.agrees:
            self.group.change += 1
            self.auto.set_members(wanted, self.group.change)
        return succeed(None)


class AutoGroup(Pair):
    """The brokers of one name."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0
        self.change = 0
        self.agrees = True
        self.asked: list[set[int]] = []

    def broker(self, number: int, **settings: Any) -> AutoReplica:
        made = AutoReplica(self, number, **settings)
        self.replicas.append(made)
        return made

    def elect(self, master: AutoReplica, *slaves: AutoReplica) -> None:
        """A new term."""
        self.epoch += 1
        self.change += 1
        master.auto.set_members({master.number}, self.change)
        master.auto.become_master(self.epoch)
        for slave in slaves:
            slave.auto.become_slave(self.epoch)
            slave.follow(master)
        self.settle()

    def settle(self, seconds: float = 0.3) -> None:
        super().settle(seconds)
