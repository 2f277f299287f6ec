"""A link that tears: what stands between a slave and its master in tests. A program, ``python -m interop.harness.torn_link HOST:PORT SEED``.

It listens on a port of its own, which it prints, and passes bytes on both ways: in pieces of all sizes, with pauses. One connection in four is slow:
much of what it passes on goes by the byte. After a while each connection comes to
one of these ends, by the seed: both sides are cut off; what is on its way to one side is lost and then both are cut off; one direction is closed
and the other stays open for a while; or nothing gets through for some seconds, and then everything goes on.
"""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from random import Random
from typing import Any

from twisted.internet import endpoints, protocol, reactor
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.stdio import StandardIO
from zope.interface import implementer

from .jvm import ROOT

SHORTEST_S, LONGEST_S = 0.5, 6.0
STALL_S = 4.0
HALF_OPEN_S = 3.0
PIECES = (1, 7, 12, 100, 1500, 32_768)
SLOW = 0.25


@implementer(IHalfCloseableProtocol)
class End(protocol.Protocol):
    """One side of a connection."""

    def __init__(self, random: Random, is_slow: bool) -> None:
        self._random = random
        self._is_slow = is_slow
        self._waiting: deque[bytes] = deque()
        self._is_moving = False
        self.is_stalled = False
        self.peer: End | None = None

    def dataReceived(self, data: bytes) -> None:
        """Bytes for the other side."""
        size = self._random.choice(PIECES)
        while data:
            self._waiting.append(data[:size])
            data = data[size:]
            if not self._is_slow:
                size = self._random.choice(PIECES)
        self.move()

    def move(self) -> None:
        """Pass on a few pieces, more of them after a pause."""
        if self._is_moving or self.is_stalled or self.peer is None or not self._waiting:
            return
        for _ in range(min(len(self._waiting), self._random.randrange(1, 200))):
            self.peer.transport.write(self._waiting.popleft())
        if self._waiting:
            self._is_moving = True
            reactor.callLater(self._random.choice((0, 0, 0.001, 0.02)), self._go_on)

    def _go_on(self) -> None:
        self._is_moving = False
        self.move()

    def lose_what_waits(self) -> None:
        """It never arrives."""
        self._waiting.clear()

    def readConnectionLost(self) -> None:
        """This side says no more."""

    def writeConnectionLost(self) -> None:
        """This side hears no more."""

    def connectionLost(self, reason: Any = None) -> None:
        """So the other one is to end as well."""
        if self.peer is not None:
            self.peer.transport.abortConnection()


class Link:
    """One connection of a slave, with its master's side."""

    def __init__(self, random: Random, slave: End, master: End) -> None:
        self._random = random
        self._ends = [slave, master]
        slave.peer, master.peer = master, slave
        for end in self._ends:
            end.move()
        self._later()

    def _later(self) -> None:
        reactor.callLater(self._random.uniform(SHORTEST_S, LONGEST_S), self._tear)

    def _tear(self) -> None:
        how = self._random.choice(("cut", "lose", "half", "stall", "stall"))
        one, other = self._random.sample(self._ends, 2)
        if how == "stall":
            for end in self._ends:
                end.is_stalled = True
            reactor.callLater(self._random.uniform(0.1, STALL_S), self._end_stall)
        elif how == "half":
            one.transport.loseWriteConnection()
            reactor.callLater(HALF_OPEN_S, other.transport.abortConnection)
        else:
            if how == "lose":
                one.lose_what_waits()
            one.transport.abortConnection()

    def _end_stall(self) -> None:
        for end in self._ends:
            end.is_stalled = False
            end.move()
        self._later()


class Slaves(protocol.Factory):
    """Takes connections of slaves and makes one to the master for each."""

    noisy = False

    def __init__(self, host: str, port: int, seed: int) -> None:
        self._random = Random(seed)
        self._master = endpoints.TCP4ClientEndpoint(reactor, host, port)

    def buildProtocol(self, address: Any) -> End:
        """A slave connects."""
        is_slow = self._random.random() < SLOW
        slave, master = End(self._random, is_slow), End(self._random, is_slow)
        connecting = endpoints.connectProtocol(self._master, master)
        connecting.addCallbacks(
            lambda ignored: Link(self._random, slave, master),
            lambda ignored: slave.transport.abortConnection(),
        )
        return slave


class TornLink:
    """The program as a process. `close` ends it.

    :param master: the replication address of the master, ``host:port``.
    :ivar address: where slaves connect to.
    """

    def __init__(self, master: str, seed: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "interop.harness.torn_link", master, str(seed)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.address = f"127.0.0.1:{int(self._process.stdout.readline())}"

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


class Parent(protocol.Protocol):
    """Standard input: when the parent closes it, or is gone, this process ends."""

    def connectionLost(self, reason: Any = None) -> None:
        """The parent is gone."""
        if reactor.running:
            reactor.stop()


def main(master: str, seed: str) -> None:
    """Listen, say where, serve until the parent is gone."""
    host, _, port = master.rpartition(":")
    listening = reactor.listenTCP(0, Slaves(host, int(port), int(seed)), interface="127.0.0.1")
    print(listening.getHost().port, flush=True)
    StandardIO(Parent())
    reactor.run()


if __name__ == "__main__":
    main(*sys.argv[1:3])
