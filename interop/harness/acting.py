"""How is a group made whose slave acts for a lost master, with another group beside it, of whatever makes?"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import ExitStack

from .cluster import Cluster, make_cluster
from .jvm import JvmSlots

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


class ActingGroups:
    """A name server of ours, a master with its slave, and a broker of another group. Use as a context manager.

    :param makes: of master, slave and the other broker, as `make_cluster` takes them.
    """

    def __init__(self, slots: JvmSlots, makes: tuple[str, str, str]) -> None:
        self._slots = slots
        self._names = make_cluster("ours", slots)
        self._names.name_server_settings = _NAMES
        master, slave, beside = makes
        # It is not to ask about transactions that its slave is to send elsewhere.
        patient = {"transactionCheckInterval": "60000"}
        self.master = self._broker(master, {"brokerName": GROUP, **patient})
        role = {"brokerRole": "SLAVE", "brokerId": "1"}
        self.slave = self._broker(slave, {"brokerName": GROUP, **role})
        self.beside = self._broker(beside, {"brokerName": BESIDE})
        self._stack = ExitStack()

    def _broker(self, make: str, settings: Mapping[str, str]) -> Cluster:
        common = {"namesrvAddr": self._names.namesrv, **_ACTING, **settings}
        made = make_cluster(make, self._slots, name_servers=0, broker_settings=common)
        made.change_settings({"haListenPort": str(int(made.broker_address.split(":")[1]) + 1)})
        return made

    def __enter__(self) -> ActingGroups:
        brokers = (self.beside, self.master, self.slave)
        for part in (self._names, *brokers):
            self._stack.callback(part.close)
        try:
            self._names.start_name_server(0)
            for broker in brokers:
                broker.start_broker()
        except BaseException as failure:
            failure.add_note(self.logs())
            self._stack.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    @property
    def namesrv(self) -> str:
        """The name server, as clients take it."""
        return self._names.namesrv

    def kill_master(self) -> None:
        """Without warning."""
        self.master.stop_broker(signal.SIGKILL)

    def stop_group(self) -> None:
        """In good order, the slave last."""
        for broker in (self.master, self.slave):
            broker.stop_broker(signal.SIGTERM)

    def logs(self, lines: int = 60) -> str:
        """The last lines of what all servers wrote."""
        parts = (self._names, self.master, self.slave, self.beside)
        return "".join(part.logs(lines) for part in parts)
