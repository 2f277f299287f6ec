"""A proxy between clients and one server that does bad things: it cuts connections at any byte, holds answers back, and answers requests itself with an
error code.

It listens at an address that the server claims to have (``brokerIP1``), so that clients find it in their routes.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from twisted.internet.endpoints import TCP4ClientEndpoint, TCP4ServerEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.frame import FrameSplitter

#: Codes that brokers answer with in trouble: system error, busy, flow control, not allowed now.
CODES = (1, 2, 14, 215)
HELD_S = 6.0
"""Longer than the time-outs of sends, heartbeats and offsets."""


class Server(Protocol):
    """The link to the server; all of it goes to the client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def dataReceived(self, data: bytes) -> None:
        """From the server."""
        self._client.answer(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The server is gone."""
        self._client.end()


class Client(Protocol):
    """A client's link."""

    def __init__(self, proxy: ChaosProxy) -> None:
        self._proxy = proxy
        self._frames = FrameSplitter()
        self._early: list[bytes] = []
        self._server: Any = None
        self._held: list[bytes] | None = None
        self._is_over = False

    def connectionMade(self) -> None:
        """Connect to the server as well."""
        self._proxy.links.add(self)
        reaching = self._proxy.reach(self)
        reaching.addCallbacks(self._reached, lambda _: self.end())

    def _reached(self, server: Server) -> None:
        self._server = server
        if self._is_over:
            self._server.transport.loseConnection()
            return
        for data in self._early:
            self._server.transport.write(data)
        self._early.clear()

    def dataReceived(self, data: bytes) -> None:
        """From the client: whole requests, so that single ones can be answered here."""
        for frame in self._frames.feed(data):
            if not self._refuses(frame):
                self._forward(len(frame).to_bytes(4, "big") + frame)

    def _refuses(self, frame: bytes) -> bool:
        if not self._proxy.takes("refuse"):
            return False
        asked = decode_command(frame)
        if asked.is_oneway or asked.is_response:
            return False
        code = self._proxy.chance.choice(CODES)
        self.transport.write(RemotingCommand.create_response(asked, code, remark="chaos").encode())
        return True

    def _forward(self, data: bytes) -> None:
        if self._server is None:
            self._early.append(data)
        elif self._proxy.takes("cut request"):
            self._server.transport.write(data[: self._proxy.chance.randrange(len(data))])
            self._cut()
        else:
            self._server.transport.write(data)

    def answer(self, data: bytes) -> None:
        """From the server."""
        if self._is_over:
            return
        if self._held is not None:
            self._held.append(data)
        elif self._proxy.takes("cut answer"):
            self.transport.write(data[: self._proxy.chance.randrange(len(data))])
            self._cut()
        elif self._proxy.takes("hold"):
            self._held = [data]
            self._proxy.reactor.callLater(HELD_S, self._let_go)
        else:
            self.transport.write(data)

    def _let_go(self) -> None:
        held, self._held = self._held or [], None
        if not self._is_over:
            self.transport.write(b"".join(held))

    def _cut(self) -> None:
        """Both ends, once what was written is out."""
        self.transport.loseConnection()
        self._server.transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The client is gone."""
        self.end()

    def end(self) -> None:
        """One side is gone: so is the other."""
        self._is_over = True
        self._proxy.links.discard(self)
        self.transport.loseConnection()
        if self._server is not None:
            self._server.transport.loseConnection()


class ChaosProxy:
    """The proxy of one server.

    :param claimed: host and port where clients look for the server.
    :param real_host: where it is; same port.
    :ivar done: how often which bad thing was done.
    """

    def __init__(
        self, reactor: Any, chance: random.Random, claimed: tuple[str, int], real_host: str
    ) -> None:
        self.reactor = reactor
        self.chance = chance
        self.done: Counter[str] = Counter()
        self.links: set[Client] = set()
        self._plan: Counter[str] = Counter()
        self._claimed = claimed
        self._real = TCP4ClientEndpoint(reactor, real_host, claimed[1], timeout=3)
        self._port: Any = None

    async def listen(self) -> None:
        """Serve from now on."""
        host, port = self._claimed
        endpoint = TCP4ServerEndpoint(self.reactor, port, interface=host)
        self._port = await endpoint.listen(Factory.forProtocol(lambda: Client(self)))

    def reach(self, client: Client) -> Any:
        """A link to the server; fires with its `Server`."""
        return self._real.connect(Factory.forProtocol(lambda: Server(client)))

    def plan(self, kind: str, times: int) -> None:
        """Do a bad thing at the next so many occasions: ``refuse``, ``hold``, ``cut request``, ``cut answer``."""
        self._plan[kind] += times

    def takes(self, kind: str) -> bool:
        """Whether it is to be done now."""
        if self._plan[kind] <= 0:
            return False
        self._plan[kind] -= 1
        self.done[kind] += 1
        return True

    def heal(self) -> None:
        """Nothing bad any more."""
        self._plan.clear()

    async def close(self) -> None:
        """Listen no more."""
        for link in list(self.links):
            link.end()
        await self._port.stopListening()
