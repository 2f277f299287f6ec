"""How are servers of both makes put together? Name servers of one make, brokers of any, each in a process of its own where it matters."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from .cluster import Cluster, make_cluster
from .jvm import JvmSlots
from .together import Together

#: The shortest that official brokers take, so that a test need not wait half a minute for a broker to come back to a name server.
_REGISTER_PERIOD = {"registerNameServerPeriod": "10000"}


class MixedCluster(Together):
    """Two name servers and one broker or more in one cluster.

    :param names: make of the name servers, as `make_cluster` takes it.
    :param brokers: make of each broker; their names tell it.
    """

    def __init__(self, slots: JvmSlots, names: str, brokers: Sequence[str]) -> None:
        super().__init__(make_cluster(names, slots, name_servers=2))
        self.brokers: dict[str, Cluster] = {}
        for number, make in enumerate(brokers):
            settings = {
                **_REGISTER_PERIOD,
                "brokerName": f"{make.replace('.', '-')}-{number}",
                "namesrvAddr": self._names.namesrv,
            }
            made = make_cluster(make, slots, name_servers=0, broker_settings=settings)
            self.brokers[made.broker_name] = made

    def _brokers(self) -> tuple[Cluster, ...]:
        return tuple(self.brokers.values())

    @property
    def name_servers(self) -> list[str]:
        """Each of them."""
        return self.namesrv.split(";")

    def start_name_server(self, number: int) -> None:
        """Start one name server; returns once it listens."""
        self._names.start_name_server(number)

    def kill_name_server(self, number: int) -> None:
        """End one name server without warning; clients and brokers lose their links to it."""
        self._names.kill_name_server(number)

    def restart_broker(self, name: str, how: signal.Signals) -> None:
        """Stop a broker in good order or kill it, then start it again on its store."""
        self.brokers[name].restart_broker(how)
