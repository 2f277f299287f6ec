"""Two broker groups and a name server of ours in memory: the group ``broker-a`` has a slave, ``broker-b`` takes what escapes to it.

What they ask of one another goes through the requests' own bytes, answered or one-way. Each server has a clock of its own, so that one that is
killed does nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from fakes import Asked, FakeRemoting
from ha_network import Network
from small_broker import START_S, Peer, SmallBroker
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from txrocketmq.broker.config_files import ConfigFiles
from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.config.schema import NamesrvConfig
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.message import MessageExt
from txrocketmq.namesrv.server import NameServer
from txrocketmq.remoting.limits import RemotingLimits
from txrocketmq.remoting.protocol import RemotingServerFactory
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool

NAME_HOST = "192.0.2.100"
NAMES = f"{NAME_HOST}:9876"
MASTER, SLAVE, OTHER = "192.0.2.1", "192.0.2.2", "192.0.2.3"
STEP_S = 0.05
ACTING: dict[str, Any] = {
    "enable_slave_acting_master": True,
    "enable_remote_escape": True,
    "broker_not_active_timeout_millis": 3000,
    "transaction_check_interval": 3000,
    "transaction_time_out": 2000,
    "transaction_op_batch_interval": 200,
    "revive_interval": 500,
}


class Links(FakeRemoting):
    """The remoting client of one server.

    :ivar asked: address and code of each request, in order.
    :ivar cut: addresses that are not reached.
    """

    def __init__(self, world: World, host: str) -> None:
        self._world = world
        self._host = host
        self._peers: dict[str, tuple[Any, Peer]] = {}
        self._waiting: list[tuple[Peer, int, Deferred[RemotingCommand]]] = []
        self.asked: list[tuple[str, int]] = []
        self.cut: set[str] = set()

    def ask(self, asked: Asked) -> Deferred[Any]:
        address, command = asked.address, asked.command
        self.asked.append((address, command.code))
        peer = self._reach(address)
        if address == NAMES and command.code in self._world.unknown_codes:
            asked.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED.value)
        elif peer is None:
            asked.fail()
        else:
            opaque = peer.tell(command.code, asked.header, command.body)
            self._waiting.append((peer, opaque, asked.deferred))
            self.look()
        return asked.deferred

    def oneway(
        self, address: str, code: int, header: Any, body: bytes, timeout_ms: int
    ) -> Deferred[None]:
        """See `IRemotingClient`."""
        peer = self._reach(address)
        if peer is not None:
            peer.tell(code, header, body, flag=2)
        return succeed(None)

    def _reach(self, address: str) -> Peer | None:
        server = self._world.servers.get(address)
        if server is None or address in self.cut:
            return None
        known = self._peers.get(address)
        if known is None or known[0] is not server:
            end = IPv4Address("TCP", self._host, 50_000 + len(self._peers))
            known = self._peers[address] = (server, Peer(server, end))
        return known[1]

    def look(self) -> None:
        """Hand on the answers that came."""
        waiting, self._waiting = self._waiting, []
        for peer, opaque, answered in waiting:
            answer = peer.answer(opaque)
            if answer is None:
                self._waiting.append((peer, opaque, answered))
            else:
                answered.callback(decode_command(answer.encode()[4:]))

    def lose(self) -> None:
        """The process is gone."""
        for _, peer in self._peers.values():
            peer.close()
        self._peers.clear()
        self._waiting.clear()


class World:
    """The servers, and time.

    :param notices: whether the name server tells brokers of changes in their group; else they find out by asking.
    :ivar unknown_codes: requests that the name server is too old for.
    """

    def __init__(self, *, notices: bool = True) -> None:
        self.now_s = float(START_S)
        self.unknown_codes: set[int] = set()
        self.network = Network()
        self.servers: dict[str, Any] = {}
        self.links: dict[str, Links] = {}
        self.clocks: dict[str, Clock] = {}
        self.disks: dict[str, MemoryDisk] = {}
        self.brokers: dict[str, SmallBroker] = {}
        clock = self._clock(NAME_HOST)
        config = NamesrvConfig(support_acting_master=True, notify_min_broker_id_changed=notices)
        files = ConfigFiles(MemoryDisk(), ImmediatePool(), "/namesrv")
        self.names = NameServer(config, clock, files, client=self._link(NAME_HOST))
        self.names.start()
        factory = RemotingServerFactory(self.names.dispatcher, clock, self.names, RemotingLimits())
        self.servers[NAMES] = SimpleNamespace(factory=factory, clock=clock)

    def _clock(self, host: str) -> Clock:
        clock = self.clocks[host] = Clock()
        clock.advance(self.now_s)
        return clock

    def _link(self, host: str) -> Links:
        self.links[host] = Links(self, host)
        return self.links[host]

    def start(self, host: str, **settings: Any) -> SmallBroker:
        """Start one of the brokers, on what its disk has."""
        usual: dict[str, Any] = {
            **ACTING,
            "broker_ip1": host,
            "broker_ip2": host,
            "namesrv_addr": NAMES,
            "broker_name": "broker-b" if host == OTHER else "broker-a",
            **({"broker_role": "SLAVE", "broker_id": 1} if host == SLAVE else {}),
        }
        broker = SmallBroker(
            self.disks.setdefault(host, MemoryDisk()),
            self._clock(host),
            client=self._link(host),
            dial=self.network.dial,
            **{**usual, **settings},
        )
        self.brokers[host] = broker
        self.servers[f"{host}:10911"] = broker
        self.network.listening[(host, 10912)] = broker.core.replication.ha.factory
        self.settle(0.2)
        return broker

    def start_all(self, **settings: Any) -> None:
        """All three, until they know one another."""
        for host in (OTHER, MASTER, SLAVE):
            self.start(host, **settings)
        self.settle(2)

    def kill(self, host: str) -> None:
        """A broker's process is gone; its disk stays as it is."""
        self._forget(host)
        self.disks[host].locked.clear()

    def stop_broker(self, host: str) -> None:
        """A broker stops as operators stop it."""
        self.brokers[host].core.stop()
        self.settle(0.2)
        self.brokers[host].store.stop()
        self._forget(host)

    def cut_replication(self) -> None:
        """The slave gets nothing more of the master's log, until the master starts again."""
        self.network.listening[(MASTER, 10912)] = None
        for wire in list(self.network.wires):
            wire.cut()

    def _forget(self, host: str) -> None:
        del self.brokers[host], self.clocks[host]
        del self.servers[f"{host}:10911"], self.network.listening[(host, 10912)]
        if host in (MASTER, SLAVE):
            for wire in list(self.network.wires):
                wire.cut()
        self.links.pop(host).lose()

    def settle(self, seconds: float = STEP_S) -> None:
        """Let time go by everywhere."""
        for _ in range(max(1, round(seconds / STEP_S))):
            self.now_s += STEP_S
            for clock in list(self.clocks.values()):
                clock.advance(STEP_S)
            self.network.carry_all()
            for links in list(self.links.values()):
                links.look()

    def until(self, condition: Callable[[], bool], limit_s: float = 30.0) -> float:
        """Let time go by until something is so; how long that took. AssertionError when it does not come."""
        began_s = self.now_s
        while not condition():
            assert self.now_s - began_s < limit_s, f"not in {limit_s} s"
            self.settle()
        return self.now_s - began_s

    def end(self) -> None:
        """Stop what runs."""
        for host in list(self.brokers):
            self.stop_broker(host)
        self.names.stop()


def messages(broker: SmallBroker, topic: str) -> list[MessageExt]:
    """All messages that a broker has of a topic, queue by queue."""
    found: list[MessageExt] = []
    broker.config.slave_read_enable = True
    peer = broker.connect(port=40_999)
    for name, queue_id in sorted(broker.store.queues()):
        offset = broker.store.min_offset(name, queue_id)
        while name == topic:
            some = peer.pull(topic, queue_id, offset).messages
            if not some:
                break
            found += some
            offset = some[-1].queue_offset + 1
    peer.close()
    return found


def bodies(broker: SmallBroker, topic: str) -> list[bytes]:
    """The same, just the bodies, sorted."""
    return sorted(message.body for message in messages(broker, topic))
