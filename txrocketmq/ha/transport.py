"""How do the machines of replication sit on connections? Two protocols and their factories, no more than that."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from twisted.internet.interfaces import IAddress, IPushProducer, IReactorTime
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.ha.master import MasterLink
from txrocketmq.ha.slave import SlaveLink
from txrocketmq.interfaces import IReplicaLog

if TYPE_CHECKING:
    from txrocketmq.ha.service import HaService


READ_BYTES = 256 * 1024
"""The most that is taken from a master at once: what belongs to a turn is paid for less often."""

MakeSlaveLink = Callable[..., SlaveLink]
"""Makes the machine of a slave's link, of what `SlaveLink` takes."""


def peer_text(address: Any) -> str:
    """An address of Twisted's as ``host:port``, IPv6 hosts bracketed."""
    host, port = getattr(address, "host", "?"), getattr(address, "port", 0)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@implementer(IPushProducer)
class MasterProtocol(Protocol):
    """A slave's connection at the master. The transport says when it takes no more."""

    link: MasterLink | None = None

    def __init__(self, service: HaService) -> None:
        self._service = service

    def connectionMade(self) -> None:
        """A slave connected."""
        transport = cast(Any, self.transport)
        transport.registerProducer(self, True)
        getattr(transport, "setTcpNoDelay", lambda value: None)(True)
        self.link = self._service.slave_connected(
            peer_text(transport.getPeer()), transport.write, self.close
        )
        if self.link is None:
            transport.abortConnection()

    def dataReceived(self, data: bytes) -> None:
        """Reports."""
        if self.link is not None:
            self.link.data_received(data)

    def pauseProducing(self) -> None:
        """The connection takes no more."""
        if self.link is not None:
            self.link.pause()

    def resumeProducing(self) -> None:
        """The connection has taken what waited."""
        if self.link is not None:
            self.link.resume()

    def stopProducing(self) -> None:
        """The connection is going away."""
        if self.link is not None:
            self.link.pause()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The slave is gone."""
        if self.link is not None:
            self._service.slave_lost(self.link, reason.getErrorMessage())

    def close(self, reason: str) -> None:
        """Drop the connection at once: what waits for the slave is sent again on the next one."""
        if self.transport is not None:
            cast(Any, self.transport).abortConnection()


class MasterFactory(Factory):
    """Makes a `MasterProtocol` for each slave that connects."""

    noisy = False

    def __init__(self, service: HaService) -> None:
        self._service = service

    def buildProtocol(self, address: IAddress | None) -> MasterProtocol:
        """A slave connects."""
        return MasterProtocol(self._service)


class SlaveProtocol(Protocol):
    """The connection to the master."""

    link: SlaveLink | None = None

    def __init__(self, factory: SlaveFactory) -> None:
        self._factory = factory

    def connectionMade(self) -> None:
        """The master accepted; say where to begin."""
        transport = cast(Any, self.transport)
        getattr(transport, "setTcpNoDelay", lambda value: None)(True)
        transport.bufferSize = READ_BYTES
        self.link = self._factory.make_link(transport.write, self.close, self._hold)
        self.link.connected()

    def dataReceived(self, data: bytes) -> None:
        """Pieces of the log."""
        if self.link is not None:
            self.link.data_received(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The master is gone."""
        if self.link is not None:
            self.link.closed()
        self._factory.lost(self, reason.getErrorMessage())

    def close(self, reason: str) -> None:
        """Drop the connection."""
        if self.link is not None:
            self.link.closed()
        if self.transport is not None:
            cast(Any, self.transport).abortConnection()

    def _hold(self, wanted: bool) -> None:
        transport = cast(Any, self.transport)
        if wanted:
            transport.pauseProducing()
        else:
            transport.resumeProducing()


class SlaveFactory(Factory):
    """Makes the one `SlaveProtocol` of a dialling.

    :param lost: told of the connection's end.
    """

    noisy = False

    def __init__(
        self,
        peer: str,
        store: IReplicaLog,
        config: MessageStoreConfig,
        clock: IReactorTime,
        lost: Callable[[SlaveProtocol, str], object],
        link_class: MakeSlaveLink = SlaveLink,
    ) -> None:
        self.lost = lost
        self._link_class = link_class
        self._peer = peer
        self._store = store
        self._config = config
        self._clock = clock

    def make_link(
        self,
        write: Callable[[bytes], object],
        close: Callable[[str], object],
        hold: Callable[[bool], object],
    ) -> SlaveLink:
        """The machine for a connection that was made."""
        return self._link_class(
            self._peer, self._store, self._config, self._clock, write, close, hold
        )

    def buildProtocol(self, address: IAddress | None) -> SlaveProtocol:
        """The master accepts."""
        return SlaveProtocol(self)
