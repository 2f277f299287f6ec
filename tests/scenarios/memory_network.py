"""A network without sockets: servers listen at addresses, real remoting clients connect to them, a virtual clock moves it all.

Bytes take half a millisecond. An address can be killed (its connections are lost, new ones are refused) and blocked (connecting to it
never ends), as a stopped process and a closed firewall would look.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone, ConnectionLost, ConnectionRefusedError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import implementer

LATENCY_S = 0.0005
STEP_S = 0.001


class Wire(StringTransport):
    """One end of a connection."""

    def __init__(self, network: Network, host: IPv4Address, peer: IPv4Address) -> None:
        super().__init__(host, peer)
        self._clock = network.clock
        self._sent_bytes = network.sent_bytes
        self.other: Wire | None = None
        self.protocol: Any = None
        self.is_up = True

    def write(self, data: bytes) -> None:
        if self.is_up:
            self._sent_bytes.append(len(data))
            self._clock.callLater(LATENCY_S, self._deliver, bytes(data))

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def _deliver(self, data: bytes) -> None:
        assert self.other is not None
        if self.other.is_up:
            self.other.protocol.dataReceived(data)

    def loseConnection(self) -> None:
        self.disconnecting = True
        self.cut(ConnectionDone())

    def abortConnection(self) -> None:
        self.cut(ConnectionLost())

    def cut(self, reason: Exception) -> None:
        """The connection ends on both sides, one after the other."""
        assert self.other is not None
        for delay, end in ((0.0, self), (LATENCY_S, self.other)):
            if end.is_up:
                self._clock.callLater(delay, end._end, reason)
        self.is_up = self.is_up and not self.disconnecting

    def _end(self, reason: Exception) -> None:
        if self.protocol is not None:
            self.is_up = False
            protocol, self.protocol = self.protocol, None
            protocol.connectionLost(Failure(reason))


class Network:
    """Who listens where, and which connections there are.

    :ivar connects: addresses that were connected to, in order.
    :ivar sent_bytes: sizes of all that was written, frame by frame.
    """

    def __init__(self) -> None:
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.connects: list[str] = []
        self.sent_bytes: list[int] = []
        self._factories: dict[str, Any] = {}
        self._wires: dict[str, list[Wire]] = {}
        self._blocked: set[str] = set()
        self._ports = 40_000

    def listen(self, address: str, factory: Any) -> None:
        """A server is there from now on."""
        self._factories[address] = factory

    def kill(self, address: str) -> None:
        """A server is gone with all its connections."""
        del self._factories[address]
        for wire in self._wires.pop(address, ()):
            wire.cut(ConnectionLost())

    def block(self, address: str) -> None:
        """Nobody gets through to an address any more."""
        self._blocked.add(address)

    def endpoint(self, reactor: object, host: str, port: int, timeout_s: float) -> Any:
        """For `RemotingClient`."""
        return _Endpoint(self, f"{host}:{port}")

    def connect(self, address: str, factory: Any) -> Deferred[Any]:
        self.connects.append(address)
        if address in self._blocked:
            return Deferred()
        if address not in self._factories:
            return fail(ConnectionRefusedError())
        self._ports += 1
        host, port = address.split(":")
        here = IPv4Address("TCP", "192.0.2.200", self._ports)
        there = IPv4Address("TCP", host, int(port))
        client, server = Wire(self, here, there), Wire(self, there, here)
        client.other, server.other = server, client
        self._wires.setdefault(address, []).append(server)
        for wire, maker, peer in (
            (server, self._factories[address], here),
            (client, factory, there),
        ):
            protocol = maker.buildProtocol(peer)
            wire.protocol = protocol
            protocol.makeConnection(wire)
        return succeed(client.protocol)

    def run(self, seconds: float) -> None:
        """Let time go by in small steps."""
        self.clock.pump([STEP_S] * round(seconds / STEP_S))

    def skip(self, seconds: float) -> None:
        """Let much time go by in large steps."""
        self.clock.pump([0.25] * round(seconds / 0.25))


@implementer(IStreamClientEndpoint)
class _Endpoint:
    def __init__(self, network: Network, address: str) -> None:
        self._network = network
        self._address = address

    def connect(self, factory: Any) -> Deferred[Any]:
        return self._network.connect(self._address, factory)
