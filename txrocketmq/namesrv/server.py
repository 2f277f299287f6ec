"""How do the parts of a name server hang together? Table, handlers, connection events and the look for silent brokers.

Stands for ``NamesrvController`` and ``BrokerHousekeepingService``. Ports and files are given by the service layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from txrocketmq.config.reload import RunTimeConfiguration
from txrocketmq.config.schema import NamesrvConfig
from txrocketmq.interfaces import IConfigFiles, IConnection, IConnectionListener, IRemotingClient
from txrocketmq.namesrv.config_requests import FROZEN, ConfigRequests
from txrocketmq.namesrv.first_members import FirstMemberNotices
from txrocketmq.namesrv.kv_config import KVConfig
from txrocketmq.namesrv.operations import OPERATIONS
from txrocketmq.namesrv.processor import (
    AdminRequests,
    BrokerRequests,
    KVRequests,
    RouteRequests,
)
from txrocketmq.namesrv.route_table import RouteTable
from txrocketmq.remoting.config_changes import KeepChange
from txrocketmq.remoting.dispatch import Dispatcher

#: Seconds from the start to the first look for silent brokers.
FIRST_SCAN_S = 5.0


class TurnReport:
    """Logs lines, all of one turn of the reactor together: a thousand brokers that come at once are one entry.

    An entry costs as much as the registration of a broker.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._lines: list[str] = []
        self._call: IDelayedCall | None = None

    def add(self, line: str) -> None:
        """Take a line."""
        self._lines.append(line)
        if self._call is None:
            self._call = self._clock.callLater(0, self.flush)

    def flush(self) -> None:
        """Log what there is now."""
        call, self._call = self._call, None
        if call is not None and call.active():
            call.cancel()
        if self._lines:
            lines, self._lines = self._lines, []
            self._log.info("{lines}", lines="\n".join(lines))


@implementer(IConnectionListener)
class NameServer:
    """One name server without its port.

    :param files: where the key-value table is kept.
    :param file_name: the table's name there.
    :param client: tells brokers of changes in their groups; without it they are not told.
    :param sections: the configuration that operators see and change.
    :param unknown: entries of the configuration file that no section has.
    :param keep: writes changed entries to the configuration file.
    :ivar table: the routes.
    :ivar dispatcher: serves requests; for the server factory.
    """

    _log = Logger()

    def __init__(
        self,
        config: NamesrvConfig,
        clock: IReactorTime,
        files: IConfigFiles,
        file_name: str = "kvConfig.json",
        *,
        client: IRemotingClient | None = None,
        sections: Sequence[object] = (),
        unknown: Mapping[str, str] | None = None,
        keep: KeepChange | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._scan: IDelayedCall | None = None
        self._report = TurnReport(clock)
        self.table = RouteTable(self._report.add, FirstMemberNotices(config, client).send)
        self.kv = KVConfig(files, file_name)
        configuration = RunTimeConfiguration(
            sections or (config,),
            lambda: int(clock.seconds() * 1000),
            frozen=FROZEN,
            black_list=lambda: config.config_black_list,
            unknown=unknown,
        )
        self.dispatcher = Dispatcher(
            OPERATIONS,
            {
                "routes": RouteRequests(config, self.table, self.kv, clock),
                "brokers": BrokerRequests(config, self.table, self.kv, clock),
                "admin": AdminRequests(config, self.table),
                "kv": KVRequests(self.kv),
                "config": ConfigRequests(configuration, keep),
            },
            clock,
        )

    def start(self) -> None:
        """Read the key-value table and begin to look for silent brokers."""
        self.kv.load()
        self._scan = self._clock.callLater(FIRST_SCAN_S, self._drop_silent_brokers)

    def stop(self) -> None:
        """Stop looking, say what is left to say."""
        self._report.flush()
        if self._scan is not None and self._scan.active():
            self._scan.cancel()
        self._scan = None

    def _drop_silent_brokers(self) -> None:
        period_s = max(self._config.scan_not_active_broker_interval, 1) / 1000
        self._scan = self._clock.callLater(period_s, self._drop_silent_brokers)
        for link in self.table.remove_expired(int(self._clock.seconds() * 1000)):
            if IConnection.providedBy(link):
                link.close("the broker on it gave no sign of life")

    # ----------------------------------------------------------------- IConnectionListener

    def connected(self, connection: IConnection) -> None:
        """See `IConnectionListener.connected`."""

    def disconnected(self, connection: IConnection, reason: str) -> None:
        """A broker goes with its connection."""
        self.table.remove_link(connection)

    def idle(self, connection: IConnection) -> None:
        """See `IConnectionListener.idle`; the connection is closed next."""
