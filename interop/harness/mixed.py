"""How are servers of both makes put together? Name servers of one make, brokers of any, each in a process of its own where it matters."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import ExitStack

from .cluster import Cluster, make_cluster
from .jvm import JvmSlots

#: The shortest that official brokers take, so that a test need not wait half a minute for a broker to come back to a name server.
_REGISTER_PERIOD = {"registerNameServerPeriod": "10000"}


class MixedCluster:
    """Two name servers and one broker or more in one cluster. Use as a context manager.

    :param names: make of the name servers, as `make_cluster` takes it.
    :param brokers: make of each broker; their names tell it.
    """

    def __init__(self, slots: JvmSlots, names: str, brokers: Sequence[str]) -> None:
        self._names = make_cluster(names, slots, name_servers=2)
        self.brokers: dict[str, Cluster] = {}
        for number, make in enumerate(brokers):
            settings = {
                **_REGISTER_PERIOD,
                "brokerName": f"{make.replace('.', '-')}-{number}",
                "namesrvAddr": self._names.namesrv,
            }
            made = make_cluster(make, slots, name_servers=0, broker_settings=settings)
            self.brokers[made.broker_name] = made
        self._stack = ExitStack()

    def __enter__(self) -> MixedCluster:
        for part in [self._names, *self.brokers.values()]:
            # Brokers are closed first, so that they can say good-bye.
            self._stack.callback(part.close)
        try:
            for number in range(2):
                self.start_name_server(number)
            for broker in self.brokers.values():
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
        """Both name servers, as clients take them."""
        return self._names.namesrv

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

    def logs(self, lines: int = 40) -> str:
        """The last lines of what all servers wrote."""
        return "".join(part.logs(lines) for part in [self._names, *self.brokers.values()])
