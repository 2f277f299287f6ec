"""Masters, slaves and a network of the test's own: pieces are split, kept back and cut off as a seed or the test wants."""

from __future__ import annotations

from collections import deque
from functools import partial
from random import Random
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionLost, ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig
from txrocketmq.ha.service import HaService
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import format_properties
from txrocketmq.store.message_store import MessageStore
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.store import open_memory_store, small_config

START_S = 1_700_000_000.0
HIGH_WATER = 64 * 1024


class End:
    """One end of a connection: the transport that a protocol writes to."""

    def __init__(self, wire: Wire, name: str, address: IPv4Address) -> None:
        self._wire = wire
        self._address = address
        self.name = name
        self.peer: End
        self.protocol: Any = None
        self.producer: Any = None
        self.is_open = True
        self.is_reading = True
        self.is_paused = False
        self.outgoing: deque[bytes] = deque()

    def write(self, data: bytes) -> None:
        if not self.is_open:
            return
        self.outgoing.append(bytes(data))
        if self.producer and not self.is_paused and self.waiting > HIGH_WATER:
            self.is_paused = True
            self.producer.pauseProducing()

    @property
    def waiting(self) -> int:
        return sum(map(len, self.outgoing))

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self.producer = producer

    def getPeer(self) -> IPv4Address:
        return self._address

    def pauseProducing(self) -> None:
        self.is_reading = False

    def resumeProducing(self) -> None:
        self.is_reading = True

    def abortConnection(self) -> None:
        self._wire.cut()

    loseConnection = abortConnection

    def take(self, size: int) -> bytes:
        """Up to so many bytes leave for the peer."""
        data = b"".join(self.outgoing)
        self.outgoing.clear()
        piece, rest = data[:size], data[size:]
        if rest:
            self.outgoing.append(rest)
        if self.is_paused and not rest:
            self.is_paused = False
            self.producer.resumeProducing()
        return piece

    def lose(self) -> None:
        if self.is_open:
            self.is_open = False
            self.outgoing.clear()
            self.protocol.connectionLost(Failure(ConnectionLost()))


class Wire:
    """One connection."""

    def __init__(self, network: Network, number: int, source: str = "192.0.2.2") -> None:
        self.network = network
        self.is_up = True
        self.slave = End(self, "slave", IPv4Address("TCP", "192.0.2.1", 10912))
        self.master = End(self, "master", IPv4Address("TCP", source, 40_000 + number))
        self.slave.peer, self.master.peer = self.master, self.slave

    def cut(self) -> None:
        if self.is_up:
            self.is_up = False
            self.network.wires.remove(self)
            self.slave.lose()
            self.master.lose()

    def carry(self, end: End, size: int = 1 << 30) -> bool:
        """Bring bytes that one end wrote to the other; whether there were any."""
        if not (self.is_up and end.outgoing and end.peer.is_reading):
            return False
        data = end.take(size)
        if data and self.is_up:
            end.peer.protocol.dataReceived(data)
        return bool(data)


class Network:
    """All connections."""

    def __init__(self) -> None:
        self.listening: dict[tuple[str, int], Any] = {}
        self.wires: list[Wire] = []
        self.dialled = 0

    def dial(self, host: str, port: int, factory: Any, source: str = "192.0.2.2") -> Deferred[Any]:
        self.dialled += 1
        server = self.listening.get((host, port))
        if server is None:
            return fail(ConnectionRefusedError())
        wire = Wire(self, self.dialled, source)
        self.wires.append(wire)
        for end, made in ((wire.master, server), (wire.slave, factory)):
            end.protocol = made.buildProtocol(end.getPeer())
            end.protocol.transport = end
        wire.slave.protocol.connectionMade()
        # It may refuse; then the slave was connected for a moment.
        wire.master.protocol.connectionMade()
        done: Deferred[Any] = Deferred()
        done.callback(wire.slave.protocol)
        return done

    def carry_all(self, size: int = 1 << 30) -> None:
        """Until nothing moves any more."""
        moved = True
        while moved:
            moved = False
            for wire in list(self.wires):
                for end in (wire.slave, wire.master):
                    moved = wire.carry(end, size) or moved

    def carry_some(self, random: Random) -> None:
        """One piece of a random size over a random connection."""
        if self.wires:
            wire = random.choice(self.wires)
            wire.carry(
                random.choice((wire.slave, wire.master)), random.choice((1, 7, 40, 3000, 1 << 20))
            )


class Replica:
    """A broker's store with its replication. ``settings`` are attributes of either configuration."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        host: str,
        disk: MemoryDisk | None = None,
        *,
        pool: Any = None,
        one_slave_by_default: bool = True,
        **settings: Any,
    ) -> None:
        self.network = network
        self.clock = clock
        self.address = (host, 10912)
        self.disk = disk or MemoryDisk()
        self.broker_config = BrokerConfig()
        self.config: MessageStoreConfig = small_config()
        for name, value in settings.items():
            owner = self.broker_config if hasattr(self.broker_config, name) else self.config
            assert hasattr(owner, name), name
            setattr(owner, name, value)
        self.store: MessageStore = open_memory_store(self.disk, clock, pool, self.config)
        self.ha = self.make_service(
            self.broker_config,
            self.config,
            self.store,
            clock,
            partial(network.dial, source=host),
            one_slave_by_default=one_slave_by_default,
        )
        self.ha.start()
        network.listening[self.address] = self.ha.factory

    def make_service(self, *args: Any, **kwargs: Any) -> HaService:
        return HaService(*args, **kwargs)

    @property
    def text(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def follow(self, master: Replica) -> None:
        self.ha.follower.set_master_address(master.text)

    def put(self, body: bytes = b"hello", **fields: Any) -> Any:
        """Append a message: its result, or the Deferred of it."""
        return self.store.put_message(message(body, **fields))

    def log(self) -> bytes:
        """All bytes of the log."""
        store = self.store.commit_log
        data, offset = b"", store.min_offset
        while piece := store.read(offset + len(data), 1 << 20):
            data += piece
        return data

    def units(self) -> dict[tuple[str, int], list[Any]]:
        """What all consume queues say."""
        store = self.store
        return {
            key: [
                (offset, store.get_message(*key, offset, 1, 1 << 20, None).records)
                for offset in range(store.min_offset(*key), store.max_offset(*key))
            ]
            for key in sorted(store.queues())
        }

    def stop(self) -> None:
        self.network.listening.pop(self.address, None)
        self.ha.stop()
        self.store.stop()


def message(
    body: bytes = b"hello", topic: str = "TopicTest", queue_id: int = 0, **fields: Any
) -> MessageRecord:
    found = fields.pop("properties", {})
    return MessageRecord(
        topic=topic, queue_id=queue_id, body=body, properties=format_properties(found),
        uniq_key=found.get("UNIQ_KEY"), **fields,
    )  # fmt: skip


def started_clock() -> Clock:
    clock = Clock()
    clock.advance(START_S)
    return clock


def settle(network: Network, clock: Clock, seconds: float = 0.1) -> None:
    """Let everything that is due happen."""
    for _ in range(max(1, round(seconds / 0.01))):
        clock.advance(0.01)
        network.carry_all()


class Pair:
    """A master and the things around it."""

    def __init__(self) -> None:
        self.network = Network()
        self.clock: Clock = started_clock()
        self.replicas: list[Replica] = []

    def add(self, host: str, **settings: object) -> Replica:
        replica = Replica(self.network, self.clock, host, **settings)  # type: ignore[arg-type]
        self.replicas.append(replica)
        return replica

    def master(self, **settings: object) -> Replica:
        return self.add("192.0.2.1", **settings)

    def slave(
        self, master: Replica | None = None, host: str = "192.0.2.2", **settings: object
    ) -> Replica:
        slave = self.add(host, broker_role="SLAVE", **settings)
        if master is not None:
            slave.follow(master)
        return slave

    def settle(self, seconds: float = 0.1) -> None:
        settle(self.network, self.clock, seconds)
