"""How do servers and clients talk in tests without sockets? A network in memory that a virtual clock moves.

Servers listen at addresses, real remoting clients connect to them, bytes take half a millisecond. An address can be killed (its connections
are lost, new ones are refused) and blocked (connecting to it never ends), as a stopped process and a closed firewall would look. A
`Node` is one process on the network: a reactor as far as servers and clients need one. When it is killed, its timers and connections
end with it, and it does not hear of that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import (
    ConnectionDone,
    ConnectionLost,
    ConnectionRefusedError,
)
from twisted.internet.interfaces import (
    IAddress,
    IConnector,
    IDelayedCall,
    IHostnameResolver,
    IHostResolution,
    IReactorPluggableNameResolver,
    IReactorTCP,
    IReactorTime,
    IResolutionReceiver,
    IStreamClientEndpoint,
)
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocketmq.interfaces import IBlockingPool, IDisk
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool

START_S = 1_700_000_000
LATENCY_S = 0.0005
STEP_S = 0.001
#: What falls due within this time counts as due at once, for those who wait for quiet.
SOON_S = 0.01
CLIENT_HOST = "192.0.2.200"


class VirtualClock(Clock):
    """A clock that is moved by hand, and tells when something is due at once."""

    def __init__(self) -> None:
        super().__init__()
        self._when_soon: Callable[[], object] | None = None

    def when_soon(self, tell: Callable[[], object] | None) -> None:
        """Call a function, from now on, whenever something falls due within `SOON_S`; None: no more."""
        self._when_soon = tell

    def callLater(
        self, delay: float, callable: Callable[..., Any], *args: object, **kwargs: object
    ) -> IDelayedCall:
        """See ``IReactorTime``."""
        if delay <= SOON_S and self._when_soon is not None:
            self._when_soon()
        return super().callLater(delay, callable, *args, **kwargs)


class Wire(StringTransport):
    """One end of a connection."""

    def __init__(self, network: Network, host: IPv4Address, peer: IPv4Address) -> None:
        super().__init__(host, peer)  # type: ignore[no-untyped-call]
        self._clock = network.clock
        self._sent_bytes = network.sent_bytes
        self.other: Wire | None = None
        self.protocol: Any = None
        self.peer_host = peer.host
        self.is_up = True

    def write(self, data: bytes) -> None:
        """Bytes for the other end, half a millisecond later."""
        if self.is_up:
            self._sent_bytes.append(len(data))
            self._clock.callLater(LATENCY_S, self._deliver, bytes(data))

    def writeSequence(self, data: Any) -> None:
        """See `write`."""
        self.write(b"".join(data))

    def _deliver(self, data: bytes) -> None:
        assert self.other is not None
        if self.other.is_up:
            self.other.protocol.dataReceived(data)

    def loseConnection(self) -> None:
        """Close."""
        self.disconnecting = True
        self.cut(ConnectionDone())

    def abortConnection(self) -> None:
        """Close at once."""
        self.cut(ConnectionLost())

    def cut(self, reason: Exception) -> None:
        """The connection ends on both sides, one after the other."""
        assert self.other is not None
        for delay, end in ((0.0, self), (LATENCY_S, self.other)):
            if end.is_up:
                self._clock.callLater(delay, end._end, reason)
        self.is_up = self.is_up and not self.disconnecting

    def vanish(self) -> None:
        """The process at this end is gone; the other end hears of it."""
        if self.is_up:
            self.is_up, self.protocol = False, None
            assert self.other is not None
            self._clock.callLater(LATENCY_S, self.other._end, ConnectionLost())

    def _end(self, reason: Exception) -> None:
        if self.protocol is not None:
            self.is_up = False
            protocol, self.protocol = self.protocol, None
            protocol.connectionLost(Failure(reason))  # type: ignore[no-untyped-call]


class Network:
    """Who listens where, and which connections there are.

    :ivar clock: moves it all.
    :ivar connects: addresses that were connected to, in order.
    :ivar sent_bytes: sizes of all that was written, frame by frame.
    :ivar wire_class: makes the ends of connections, of what `Wire` takes.
    """

    wire_class: Callable[[Network, IPv4Address, IPv4Address], Wire] = Wire

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.clock.advance(START_S)
        self.connects: list[str] = []
        self.sent_bytes: list[int] = []
        self._factories: dict[str, Any] = {}
        self._wires: dict[str, list[Wire]] = {}
        self._blocked: set[str] = set()
        self._ports = 40_000
        self.from_threads: deque[Callable[[], object]] = deque()

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

    def unblock(self, address: str) -> None:
        """One gets through again; who tried meanwhile must try anew."""
        self._blocked.discard(address)

    def is_listening(self, address: str) -> bool:
        """Whether a server is there."""
        return address in self._factories

    def node(self, host: str = CLIENT_HOST) -> Node:
        """A process at an address of its own, or one of several clients at the same."""
        return Node(self, host)

    def endpoint(self, reactor: object, host: str, port: int, timeout_s: float) -> Any:
        """For `remoting.client.RemotingClient`."""
        node = reactor if isinstance(reactor, Node) else None
        return _Endpoint(self, f"{host}:{port}", node)

    def connect(self, address: str, factory: Any, node: Node | None = None) -> Deferred[Any]:
        """Connect to an address; a Deferred of the client's protocol. It fails when nobody listens, and waits when it is blocked."""
        self.connects.append(address)
        if address in self._blocked:
            return Deferred()
        if address not in self._factories:
            return fail(ConnectionRefusedError())  # type: ignore[no-untyped-call]
        self._ports += 1
        host, port = address.split(":")
        here = IPv4Address("TCP", CLIENT_HOST if node is None else node.host, self._ports)
        there = IPv4Address("TCP", host, int(port))
        client, server = self.wire_class(self, here, there), self.wire_class(self, there, here)
        client.other, server.other = server, client
        wires = self._wires.setdefault(address, [])
        wires[:] = [wire for wire in wires if wire.is_up]
        wires.append(server)
        if node is not None:
            node.wires = [wire for wire in node.wires if wire.is_up]
            node.wires.append(client)
        for wire, maker, peer in (
            (server, self._factories[address], here),
            (client, factory, there),
        ):
            protocol = maker.buildProtocol(peer)
            wire.protocol = protocol
            protocol.makeConnection(wire)
        return succeed(client.protocol)

    def connections(self, address: str) -> list[Wire]:
        """The servers' ends of the connections to an address."""
        return [wire for wire in self._wires.get(address, ()) if wire.is_up]

    def stop_listening(self, address: str) -> None:
        """Nobody listens there any more; connections stay."""
        self._factories.pop(address, None)

    # ------------------------------------------------------------------ time

    def run(self, seconds: float) -> None:
        """Let time go by in small steps."""
        self.clock.pump([STEP_S] * round(seconds / STEP_S))

    def skip(self, seconds: float) -> None:
        """Let much time go by in large steps."""
        self.clock.pump([0.25] * round(seconds / 0.25))

    @property
    def next_s(self) -> float | None:
        """In how many seconds the next thing happens; None: nothing waits."""
        if self.from_threads:
            return 0.0
        # Twisted's clock keeps them in the order of their times.
        calls = self.clock.calls
        return max(0.0, calls[0].getTime() - self.clock.seconds()) if calls else None

    def step(self, limit_s: float) -> bool:
        """Go to the next moment at which something happens, and let it; False, and go the whole way, when that is further off than
        the limit (seconds)."""
        while self.from_threads:
            self.from_threads.popleft()()
        wait_s = self.next_s
        if wait_s is None or wait_s > limit_s:
            self.clock.advance(limit_s)
            return False
        self.clock.advance(wait_s)
        return True


@implementer(IStreamClientEndpoint)
class _Endpoint:
    def __init__(self, network: Network, address: str, node: Node | None) -> None:
        self._network = network
        self._address = address
        self._node = node

    def connect(self, factory: Any) -> Deferred[Any]:
        """See ``IStreamClientEndpoint``."""
        return self._network.connect(self._address, factory, self._node)


@implementer(IConnector)
class _Connector:
    """What ``connectTCP`` gives back."""

    def __init__(self, node: Node, host: str, port: int, factory: Any) -> None:
        self._node = node
        self._address = (host, port)
        self._factory = factory
        self._gives_up = False
        self.connect()

    def connect(self) -> None:
        """See ``IConnector``."""
        host, port = self._address
        self._factory.doStart()
        self._factory.startedConnecting(self)
        connecting = self._node.network.connect(f"{host}:{port}", self._factory, self._node)
        connecting.addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        self._factory.clientConnectionFailed(self, failure)

    def getDestination(self) -> IPv4Address:
        """See ``IConnector``."""
        return IPv4Address("TCP", *self._address)

    def stopConnecting(self) -> None:
        """See ``IConnector``. Only a blocked address is still being connected to."""

    def disconnect(self) -> None:
        """See ``IConnector``."""


class _Port:
    """What ``listenTCP`` gives back."""

    def __init__(self, node: Node, port: int) -> None:
        self._node = node
        self._port = port

    def getHost(self) -> IPv4Address:
        """Where it listens."""
        return IPv4Address("TCP", self._node.host, self._port)

    def startListening(self) -> None:
        """It does already."""

    def stopListening(self) -> Deferred[None]:
        """Listen no more."""
        self._node.network.stop_listening(f"{self._node.host}:{self._port}")
        self._node.ports.discard(self._port)
        return succeed(None)


@implementer(IHostResolution)
class _NoAddresses:
    def __init__(self, name: str) -> None:
        self.name = name

    def cancel(self) -> None:
        """It is over already."""


@implementer(IHostnameResolver)
class _NoNames:
    def resolveHostName(
        self,
        resolutionReceiver: IResolutionReceiver,
        hostName: str,
        portNumber: int = 0,
        addressTypes: Sequence[type[IAddress]] | None = None,
        transportSemantics: str = "TCP",
    ) -> IHostResolution:
        """Names are not known on this network: addresses are wanted."""
        resolution = _NoAddresses(hostName)
        resolutionReceiver.resolutionBegan(resolution)
        resolutionReceiver.resolutionComplete()
        return resolution


@implementer(IReactorTime, IReactorTCP, IReactorPluggableNameResolver)
class Node:
    """One process on the network, and the reactor in it: time, connections, listening.

    It has neither threads nor a file system: whoever asks it for an `IBlockingPool` or an `IDisk` gets one that works at once, in memory.

    :ivar host: its address, numeric.
    :ivar is_alive: False from `kill` on.
    """

    def __init__(self, network: Network, host: str) -> None:
        self.network = network
        self.host = host
        self.is_alive = True
        self.wires: list[Wire] = []
        self.ports: set[int] = set()
        self.running = True
        self._disk = MemoryDisk()

    def __conform__(self, interface: object) -> object:
        if interface is IBlockingPool:
            return ImmediatePool()
        return self._disk if interface is IDisk else None

    # ------------------------------------------------------------------ IReactorTime

    def seconds(self) -> float:
        """See ``IReactorTime``: the virtual clock's time."""
        return self.network.clock.seconds()

    def callLater(
        self, delay: float, callable: Callable[..., Any], *args: object, **kwargs: object
    ) -> IDelayedCall:
        """See ``IReactorTime``. Nothing comes of it once the process is dead."""
        return self.network.clock.callLater(delay, self._run, callable, args, kwargs)

    def _run(
        self, function: Callable[..., object], args: tuple[object, ...], kw: dict[str, object]
    ) -> None:
        if self.is_alive:
            function(*args, **kw)

    def getDelayedCalls(self) -> Any:
        """See ``IReactorTime``: those of all processes."""
        return self.network.clock.getDelayedCalls()

    def callFromThread(self, function: Callable[..., object], *args: object, **kw: object) -> None:
        """A thread of the test has something to say; it is heard at the next step of time."""
        self.network.from_threads.append(lambda: self._run(function, args, kw))

    # ------------------------------------------------------------------ IReactorTCP

    def connectTCP(
        self,
        host: str,
        port: int,
        factory: Any,
        timeout: float = 30,
        bindAddress: object | None = None,
    ) -> Any:
        """See ``IReactorTCP``."""
        return _Connector(self, host, port, factory)

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:
        """See ``IReactorTCP``; at this process's address, whatever interface is named."""
        self.network.listen(f"{self.host}:{port}", factory)
        self.ports.add(port)
        return _Port(self, port)

    # ------------------------------------------------------------------ IReactorPluggableNameResolver

    nameResolver: IHostnameResolver = _NoNames()

    def installNameResolver(self, resolver: IHostnameResolver) -> IHostnameResolver:
        """See ``IReactorPluggableNameResolver``."""
        before, self.nameResolver = self.nameResolver, resolver
        return before

    # ------------------------------------------------------------------ faults

    def kill(self) -> None:
        """The process ends without a word: no timer of it fires, whoever is connected to it sees the connection lost."""
        self.is_alive = False
        for port in sorted(self.ports):
            address = f"{self.host}:{port}"
            self.network.stop_listening(address)
            for wire in self.network.connections(address):
                wire.vanish()
        for wire in self.wires:
            wire.vanish()
        self.ports.clear()
        self.wires.clear()
