"""A whole cluster from a seed: name servers, a master and its slaves on disks that fail, our producer and consumers, a network that is no better.

Every process is a node of a network in memory. Each connection has a latency of its own, so what is sent over two of them changes places; hosts
are parted from one another, and what they say then waits; connections are cut; processes are killed and come back, and one machine may lose
its power. What an operator does by hand stands in `Operator`.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost, TimeoutError

from txrocketmq.client import ConsumeConcurrentlyStatus
from txrocketmq.client.config import ClientConfig
from txrocketmq.client.consumer.config import ConsumeFromWhere, PushConfig
from txrocketmq.client.consumer.push import PushConsumer
from txrocketmq.client.producer.config import ProducerConfig
from txrocketmq.client.producer.producer import Producer
from txrocketmq.client.results import SendResult, SendStatus
from txrocketmq.codec.record import decode_records
from txrocketmq.model.message import Message
from txrocketmq.model.message_id import parse_offset_message_id
from txrocketmq.remoting.client import RemotingClient
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.faults import Faults, FaultyDispatcher
from txrocketmq.testing.network import Network, Node, Wire
from txrocketmq.testing.servers import MemoryBroker, MemoryNameServer
from txrocketmq.testing.simdisk import SimulatedDisk

NAMES = ("192.0.2.100", "192.0.2.101")
BROKERS = ("192.0.2.1", "192.0.2.2", "192.0.2.3")
PRODUCER, CONSUMER = "192.0.2.200", "192.0.2.201"
NAMESRV = ";".join(f"{host}:9876" for host in NAMES)
PORT, HA_PORT = 10911, 10912
GROUP, TOPIC, CONSUMERS = "broker-a", "TopicA", "Readers"
QUEUES = 2
LATENCIES_S = (0.0005, 0.0005, 0.005, 0.08, 0.7)
DIAL_TIMEOUT_S = 3.0


class SlowWire(Wire):
    """One end of a connection that has its own latency. What arrives while the hosts are parted arrives when they are not any more."""

    def __init__(self, network: Any, host: Any, peer: Any) -> None:
        super().__init__(network, host, peer)
        self._network: SeededNetwork = network
        self._pair = frozenset((host.host, peer.host))
        self._latency_s = network.random.choice(LATENCIES_S)
        self._free_s = 0.0

    def _arrive(self, what: Callable[[], object]) -> None:
        """Let something reach the other end, behind all that was sent there before."""
        now_s = self._clock.seconds()
        latency_s = LATENCIES_S[0] if self._network.is_calm else self._latency_s
        self._free_s = max(self._free_s, now_s + latency_s)
        self._clock.callLater(self._free_s - now_s, self._network.arrive, self._pair, what)

    def write(self, data: bytes) -> None:
        if self.is_up:
            self._arrive(lambda data=bytes(data): self._deliver(data))  # type: ignore[misc]

    def cut(self, reason: Exception) -> None:
        other = self.other
        assert other is not None
        if self.is_up:
            self._clock.callLater(0, self._end, reason)
            self.is_up = not self.disconnecting
        if other.is_up:
            self._arrive(lambda: other._end(reason))

    def vanish(self) -> None:
        other = self.other
        if self.is_up and other is not None:
            self.is_up, self.protocol = False, None
            self._arrive(lambda: other._end(ConnectionLost()))


class SeededNetwork(Network):
    """The network of one schedule.

    :ivar is_calm: nothing is slow any more.
    """

    wire_class = SlowWire

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.random = random
        self.is_calm = False
        self._parted: set[frozenset[str]] = set()
        self._held: dict[frozenset[str], deque[Callable[[], object]]] = defaultdict(deque)

    def part(self, one: str, other: str) -> None:
        """Nothing gets from one host to another, either way."""
        self._parted.add(frozenset((one, other)))

    def heal(self) -> None:
        """All hosts hear one another again, first of all what waited."""
        self._parted.clear()
        held, self._held = self._held, defaultdict(deque)
        for waiting in held.values():
            for what in waiting:
                self.clock.callLater(0, what)

    def forget(self, host: str) -> None:
        """A machine is lost: what waits for a way from it or to it is sent by nobody again."""
        for pair in [pair for pair in self._held if host in pair]:
            del self._held[pair]

    def arrive(self, pair: frozenset[str], what: Callable[[], object]) -> None:
        """Something comes to the end of its way."""
        if pair in self._parted:
            self._held[pair].append(what)
        else:
            what()

    def connect(self, address: str, factory: Any, node: Node | None = None) -> Deferred[Any]:
        here = PRODUCER if node is None else node.host
        if frozenset((here, address.split(":")[0])) not in self._parted:
            return super().connect(address, factory, node)
        trying: Deferred[Any] = Deferred(lambda _: None)
        self.clock.callLater(
            DIAL_TIMEOUT_S, lambda: trying.called or trying.errback(TimeoutError())
        )
        return trying

    def cut_one(self) -> None:
        """Some connection is lost."""
        up = [wire for wires in self._wires.values() for wire in wires if wire.is_up]
        if up:
            self.random.choice(up).cut(ConnectionLost())


class MachineDisk(SimulatedDisk):
    """A disk with which its machine's process dies: whatever code of it still runs, nobody hears of it.

    :ivar when_ended: called at the end.
    """

    when_ended: Callable[[], object] | None = None

    def end(self, kind: str) -> None:
        super().end(kind)
        if self.when_ended is not None:
            self.when_ended()


class Machine:
    """A broker's machine: its disk, and the process while there is one.

    :param settings: further settings of the broker, by their attribute's name.
    :ivar broker_id: 0 for the master.
    :ivar faults: what came to it, and what is to go wrong with it.
    :ivar is_buried: its end was noted; it may be dead before.
    :ivar had: so much of the present master's log it had when it lost power: what it reported until then was true.
    """

    def __init__(
        self,
        network: Network,
        host: str,
        broker_id: int,
        disk: Any = None,
        group: str = GROUP,
        **settings: Any,
    ) -> None:
        self._network = network
        self._settings = settings
        self.host = host
        self.broker_id = broker_id
        self.disk = disk or MemoryDisk()
        self.group = group
        self.faults = Faults(network.clock)
        self.node: Node | None = None
        self.broker: Any = None
        self._last_end = self.had = 0
        self.is_buried = False

    @property
    def is_up(self) -> bool:
        return self.node is not None and self.node.is_alive

    @property
    def address(self) -> str:
        return f"{self.host}:{PORT}"

    def start(self) -> None:
        network = self._network
        node = self.node = network.node(self.host)
        if isinstance(self.disk, MachineDisk):
            self.disk.when_ended = node.kill
        self.broker = MemoryBroker(
            node,
            RemotingClient(node, endpoint=network.endpoint, random=lambda: 0.5),
            self.disk,
            host=self.host,
            dial=lambda host, port, factory: network.connect(f"{host}:{port}", factory, node),
            **{
                "broker_name": self.group,
                "broker_id": self.broker_id,
                "broker_role": "SLAVE" if self.broker_id else "SYNC_MASTER",
                "namesrv_addr": NAMESRV,
                "slave_read_enable": True,
                **self._settings,
            },
        )
        for port, dispatcher in (
            (PORT, self.broker.dispatcher),
            (PORT - 2, self.broker.dispatcher.for_vip()),
        ):
            watched: Any = FaultyDispatcher(dispatcher, self.faults, self.host)
            node.listenTCP(port, self.broker.factory(watched))
        node.listenTCP(HA_PORT, self.broker.core.replication.ha.factory)
        self.is_buried = False
        self.broker.start()

    def end(self, how: str = "kill") -> None:
        """The process is gone, with ``power`` what the machine had not on its device as well."""
        self._last_end = self.known_end
        if how == "power":
            self.had = max(self.had, self._last_end)
        self.is_buried = True
        if self.node is not None:
            self.node.kill()
        if isinstance(self.disk, SimulatedDisk):
            if self.disk.ended is None:
                self.disk.end(how)
            self.disk.restart()
        else:
            self.disk.locked.clear()

    def log(self) -> bytes:
        """All bytes of the log, while the broker is up."""
        log = self.broker.store.commit_log
        data, offset = b"", log.min_offset
        with self._looked_at():
            while piece := log.read(offset + len(data), 1 << 20):
                data += piece
        return data

    @contextmanager
    def _looked_at(self) -> Iterator[None]:
        """What the test reads is no operation of the broker's."""
        if not isinstance(self.disk, SimulatedDisk):
            yield
            return
        fuse, self.disk._fuse = self.disk._fuse, -1
        yield
        self.disk._fuse = fuse

    @property
    def known_end(self) -> int:
        """Where the log ends, of a broker that is down where it ended."""
        return self._last_end if self.broker is None or self.is_buried else self.log_end

    @property
    def log_start(self) -> int:
        return int(self.broker.store.min_physical_offset())

    @property
    def log_end(self) -> int:
        return int(self.broker.store.max_physical_offset())

    def bodies(self) -> set[bytes]:
        """Of all messages of the log that are the test's."""
        log = self.broker.store.commit_log
        found = set()
        with self._looked_at():
            for offset, head in log.scan(self.log_start):
                (record,) = decode_records(log.read(offset, head.total_size))
                if record.topic == TOPIC:
                    found.add(record.body)
        return found


class Servers:
    """Two name servers, machines of brokers, and time.

    :ivar names: a name server for each host, None while it is down.
    """

    def __init__(self, network: Any = None) -> None:
        self.network: Any = network or Network()
        self.machines: list[Machine] = []
        self.names: dict[str, MemoryNameServer | None] = dict.fromkeys(NAMES)
        for host in NAMES:
            self.start_name_server(host)

    def start_name_server(self, host: str) -> None:
        node = self.network.node(host)
        server = self.names[host] = MemoryNameServer(node)
        node.listenTCP(9876, server.factory())

    def kill_name_server(self, host: str) -> None:
        server, self.names[host] = self.names[host], None
        if server is not None:
            node: Any = server.clock
            node.kill()

    def route_at(self, host: str, group: str = GROUP) -> dict[int, str]:
        """Which brokers of a group a name server names in the topic's route, by id."""
        server = self.names[host]
        if server is None:
            return {}
        route = server.server.table.pick_route(TOPIC)
        brokers = [] if route is None else route.broker_datas
        return {
            number: at
            for broker in brokers
            if broker.broker_name == group
            for number, at in broker.broker_addrs.items()
        }

    def start_consumer(self, group: str, seen: set[bytes], **settings: Any) -> PushConsumer:
        """A member of a group that begins with the first message; it is to be started."""

        def handle(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
            seen.update(message.body for message in messages)
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        return PushConsumer(
            self.network.node(CONSUMER),
            group,
            TOPIC,
            handle,
            ClientConfig(
                namesrv_addr=NAMESRV,
                client_ip=CONSUMER,
                instance_name=group,
                poll_name_server_interval=5_000,
                rebalance_interval=5_000,
            ),
            PushConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, **settings),
        )

    # ------------------------------------------------------------------ time

    def run(self, seconds: float) -> None:
        """Let so much time go by, from one thing that falls due to the next."""
        end_s = self.network.clock.seconds() + seconds
        while (left_s := end_s - self.network.clock.seconds()) >= 0 and self.network.step(left_s):
            pass

    def until(self, condition: Callable[[], bool], limit_s: float) -> float:
        """Let time go by until something is so; how long it took. AssertionError when it is not in time."""
        began_s = self.network.clock.seconds()
        while not condition():
            taken_s = self.network.clock.seconds() - began_s
            assert taken_s <= limit_s, f"not in {limit_s} s"
            self.run(0.1)
        return self.network.clock.seconds() - began_s

    def wait(self, starting: Any, limit_s: float = 60.0) -> Any:
        done: list[Any] = []
        if not isinstance(starting, Deferred):
            starting = Deferred.fromCoroutine(starting)
        starting.addBoth(done.append)
        self.until(lambda: bool(done), limit_s)
        if hasattr(done[0], "raiseException"):
            done[0].raiseException()
        return done[0]


class World(Servers):
    """The cluster of one schedule, with everybody there and in sync.

    :ivar acknowledged: what a producer was told is stored and replicated, in order.
    :ivar unsafe: of these, what nobody but the master had by the time the producer heard. One that lost power since, and the message with it, had it:
        that is the one failure.
    :ivar strays: machines whose log may be another one's: they were master, and somebody else is now.
    :ivar consumed: what the handlers of the group that runs all the time got.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        random.seed(seed)  # clients choose among servers by it
        super().__init__(SeededNetwork(self.random))
        self.settings: dict[str, Any] = {
            "flush_disk_type": self.random.choice(("SYNC_FLUSH", "ASYNC_FLUSH")),
            "ha_transfer_batch_size": self.random.choice((300, 4000, 32_768)),
            "mapped_file_size_commit_log": self.random.choice((64, 512)) * 1024,
            "max_message_size": 32 * 1024,
            "slave_timeout": 3_000,
        }
        self.body_bytes = self.random.choice((None, 100))
        self.machines = [
            Machine(self.network, host, number, self.new_disk(), **self.settings)
            for number, host in enumerate(BROKERS)
        ]
        for machine in self.machines:
            machine.start()
        self.acknowledged: list[bytes] = []
        self.unsafe: list[bytes] = []
        self.strays: list[Machine] = []
        self.consumed: set[bytes] = set()
        self._number = 0
        self.master.broker.core.topics.create_by_default(TOPIC, "TBW102", QUEUES, 0)
        client = {"namesrv_addr": NAMESRV, "poll_name_server_interval": 5_000}
        node = self.network.node(PRODUCER)
        self.producer = Producer(
            node, "Senders", ClientConfig(client_ip=PRODUCER, **client), ProducerConfig()
        )
        self.wait(self.producer.start())
        self.until(self.is_in_sync, 60)
        self.wait(self.start_consumer(CONSUMERS, self.consumed).start())

    def new_disk(self) -> MachineDisk:
        return MachineDisk(Random(self.random.random()))

    @property
    def master(self) -> Machine:
        """Who is master, or was the last."""
        return next(machine for machine in self.machines if machine.broker_id == 0)

    @property
    def slaves(self) -> list[Machine]:
        return [machine for machine in self.machines if machine.broker_id]

    # ------------------------------------------------------------------ clients

    def producer_route(self) -> dict[int, str]:
        """Which brokers of the group the producer knows, by id."""
        known = self.producer.instance.routes.addresses()
        return {number: address for name, number, address in known if name == GROUP}

    def send(self) -> None:
        """One message; what becomes of it is noted when it is known."""
        self._number += 1
        size = self.random.randrange(1500) if self.body_bytes is None else self.body_bytes
        body = b"%06d" % self._number + b"x" * size

        def heard(result: SendResult) -> None:
            if result.status is SendStatus.SEND_OK:
                self.acknowledged.append(body)
                host, _, offset = parse_offset_message_id(result.offset_msg_id)
                if not any(self.had(m, offset) for m in self.machines if m.host != host):
                    self.unsafe.append(body[:6])

        self.producer.send(Message(TOPIC, body)).addCallbacks(heard, lambda failure: None)

    def had(self, machine: Machine, offset: int) -> bool:
        """Whether it has the master's message at an offset, or had it until it lost power."""
        if machine in self.strays:
            # Once it follows the new master it counts; of one that is down just now nobody can say whether it does.
            return (
                machine.is_up
                and machine.log_end > offset
                and (
                    not self.master.is_up
                    or self.master.log()[machine.log_start :].startswith(machine.log())
                )
            )
        return max(machine.known_end, machine.had) > offset

    def is_in_sync(self) -> bool:
        """Whether everybody is up and each slave has what the master has."""
        return all(m.is_up for m in self.machines) and all(
            slave.broker.core.replication.ha.follower.link is not None
            and slave.log_end == self.master.log_end
            for slave in self.slaves
        )
