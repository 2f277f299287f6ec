"""How is a group made whose slave acts for a lost master, with another group beside it, of whatever makes?"""

from __future__ import annotations

import signal
from collections.abc import Mapping

from .cluster import Cluster, make_broker, make_cluster
from .jvm import JvmSlots
from .together import Together

GROUP, BESIDE = "acting", "beside"
LOST_AFTER_MS = 3_000

_ACTING = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "brokerNotActiveTimeoutMillis": str(LOST_AFTER_MS),
    "registerNameServerPeriod": "10000",
    # Official brokers take back what a slave knows only when they expect one.
    "totalReplicas": "2",
    "inSyncReplicas": "1",
}
_NAMES = {
    "supportActingMaster": "true",
    "notifyMinBrokerIdChanged": "true",
    "scanNotActiveBrokerInterval": "1000",
}


class ActingGroups(Together):
    """A name server of ours, a master with its slave, and a broker of another group.

    :param makes: of master, slave and the other broker, as `make_cluster` takes them.
    """

    def __init__(self, slots: JvmSlots, makes: tuple[str, str, str]) -> None:
        self._slots = slots
        super().__init__(make_cluster("ours", slots))
        self._names.name_server_settings = _NAMES
        master, slave, beside = makes
        # It is not to ask about transactions that its slave is to send elsewhere.
        patient = {"transactionCheckInterval": "60000"}
        self.master = self._broker(master, {"brokerName": GROUP, **patient})
        role = {"brokerRole": "SLAVE", "brokerId": "1"}
        self.slave = self._broker(slave, {"brokerName": GROUP, **role})
        self.beside = self._broker(beside, {"brokerName": BESIDE})

    def _broker(self, make: str, settings: Mapping[str, str]) -> Cluster:
        common = {"namesrvAddr": self._names.namesrv, **_ACTING, **settings}
        return make_broker(make, self._slots, common)

    def _brokers(self) -> tuple[Cluster, ...]:
        return (self.beside, self.master, self.slave)

    def kill_master(self) -> None:
        """Without warning."""
        self.master.stop_broker(signal.SIGKILL)

    def stop_group(self) -> None:
        """In good order, the slave last."""
        for broker in (self.master, self.slave):
            broker.stop_broker(signal.SIGTERM)
