"""What does the end of a connection mean to a broker?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zope.interface import implementer

from txrocketmq.broker.queue_stats import CLOSE, CONNECT, EXCEPTION, IDLE
from txrocketmq.interfaces import IConnection, IConnectionListener

if TYPE_CHECKING:
    from txrocketmq.broker.core import BrokerCore


_BROKEN = ("protocol error", "Connection to the other side was lost in a non-clean fashion")
"""How the reasons of connections begin that did not end well: a peer's fault, or the network's."""


@implementer(IConnectionListener)
class ClientLinks:
    """Lets the tables of clients follow the life of connections (official ``ClientHousekeepingService``)."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core

    def connected(self, connection: IConnection) -> None:
        """A link alone says nothing: clients introduce themselves by heartbeat."""
        self._core.stats.by_queue.connection(CONNECT)

    def disconnected(self, connection: IConnection, reason: str) -> None:
        """The client is gone from all tables at once, and its held pulls with it."""
        core = self._core
        if reason.startswith(_BROKEN):
            core.stats.by_queue.connection(EXCEPTION)
        core.stats.by_queue.connection(CLOSE)
        core.pull.held.drop_connection(connection)
        for feature in core.features:
            feature.disconnected(connection)
        core.producers.drop_connection(connection)
        core.consumers.drop_connection(connection)

    def idle(self, connection: IConnection) -> None:
        """Nothing was heard for two minutes; `disconnected` follows."""
        self._core.stats.by_queue.connection(IDLE)
