"""Name servers and brokers of ours on a network in memory, and a client that behaves as official ones do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from small_broker import SmallBroker, send_header

from txrocketmq.codec.bodies.wire import decode_body
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import GetRouteInfoRequestHeader
from txrocketmq.errors import RemotingError
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.route import TopicRouteData
from txrocketmq.namesrv.server import NameServer
from txrocketmq.remoting.client import RemotingClient
from txrocketmq.remoting.protocol import RemotingServerFactory
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.network import Network
from txrocketmq.testing.servers import MemoryNameServer

#: When a client whose connection was idle is closed, on both sides.
IDLE_S = 120


def start_name_server(network: Network, address: str, **settings: Any) -> NameServer:
    """A name server that listens."""
    started = MemoryNameServer(network.clock, **settings)
    network.listen(address, started.factory())
    return started.server


def remoting_client(network: Network) -> RemotingClient:
    """A client of the network, without chance in its waits."""
    return RemotingClient(network.clock, endpoint=network.endpoint, random=lambda: 0.5)


def start_broker(
    network: Network, number: int, disk: MemoryDisk | None = None, **settings: Any
) -> SmallBroker:
    """Broker ``broker-<number>`` at ``192.0.2.<number>:10911`` and, two below, its fast port."""
    host = f"192.0.2.{number}"
    broker = SmallBroker(
        disk,
        network.clock,
        client=remoting_client(network),
        broker_name=f"broker-{number}",
        broker_ip1=host,
        broker_ip2=host,
        **settings,
    )
    fast = RemotingServerFactory(
        broker.dispatcher.for_vip(), network.clock, broker.core.connection_listener
    )
    network.listen(f"{host}:10911", broker.factory)
    network.listen(f"{host}:10909", fast)
    return broker


def stop_broker(network: Network, broker: SmallBroker) -> None:
    """An orderly stop, good-byes to name servers among it; its address is free then."""
    for stop in (broker.core.stop, broker.store.stop):
        ended: list[object] = []
        stop().addBoth(ended.append)
        run_until(network, lambda e=ended: bool(e), 5)
        assert ended == [None], ended
    for port in (10911, 10909):
        network.kill(f"{broker.config.broker_ip1}:{port}")


class Looked:
    """One look for a route.

    :ivar at_s: seconds since the start of the client.
    :ivar answer: the name server's word; None when it could not be asked.
    """

    def __init__(self, at_s: float, answer: RemotingCommand | None) -> None:
        self.at_s = at_s
        self.code = None if answer is None else answer.code
        self.remark = None if answer is None else answer.remark
        self.brokers: set[str] = set()
        if answer is not None and answer.code == 0:
            route = decode_body(TopicRouteData, answer.body)
            self.brokers = {broker.broker_name or "" for broker in route.broker_datas}


class Sender:
    """Sends to the queues of the last good route, as official clients do; looks for a new one now and then.

    :ivar looks: what came of each look for the route.
    :ivar failures: sends that failed, with the reason.
    :ivar slowest_s: the longest that a send took.
    """

    def __init__(self, network: Network, name_server: str, topic: str) -> None:
        self._network = network
        self._clock = network.clock
        self._name_server = name_server
        self._topic = topic
        self._client = remoting_client(network)
        self._began_s = self._clock.seconds()
        self._route: list[str] = []
        self.looks: list[Looked] = []
        self.sent = 0
        self.failures: list[str] = []
        self.slowest_s = 0.0

    @property
    def now_s(self) -> float:
        """Seconds since the start."""
        return self._clock.seconds() - self._began_s

    def look(self) -> None:
        """Ask for the route; an answer that is none leaves the old one in place."""
        header = GetRouteInfoRequestHeader(topic=self._topic)
        asked = self._client.request(
            self._name_server, int(RequestCode.GET_ROUTEINFO_BY_TOPIC), header, b"", 3000
        )
        asked.addCallbacks(self._found, self._not_asked)

    def _found(self, answer: RemotingCommand) -> None:
        self.looks.append(Looked(self.now_s, answer))
        if answer.code == 0:
            route = decode_body(TopicRouteData, answer.body)
            self._route = sorted(b.broker_addrs[0] for b in route.broker_datas)

    def _not_asked(self, failure: Any) -> None:
        failure.trap(RemotingError)
        self.looks.append(Looked(self.now_s, None))

    def send(self, address: str | None = None) -> None:
        """Send one message to the next broker of the route, or to an address."""
        self.sent += 1
        address = address or self._route[self.sent % len(self._route)]
        began_s = self._clock.seconds()
        asked = self._client.request(
            address, int(RequestCode.SEND_MESSAGE_V2), send_header(self._topic), b"hello", 3000
        )
        asked.addCallbacks(partial(self._answered, began_s), self._failed)

    def _answered(self, began_s: float, answer: RemotingCommand) -> None:
        self.slowest_s = max(self.slowest_s, self._clock.seconds() - began_s)
        if answer.code:
            self.failures.append(f"{answer.code}: {answer.remark}")

    def _failed(self, failure: Any) -> None:
        self.failures.append(failure.getErrorMessage())

    def keep_sending(self, seconds: float, every_s: float, look_every_s: float) -> None:
        """Send and look at fixed intervals while time goes by."""
        end = self.now_s + seconds
        next_look = self.now_s
        while self.now_s < end:
            if self.now_s >= next_look:
                self.look()
                next_look += look_every_s
            self.send()
            self._network.run(every_s)


def ask(
    network: Network,
    client: RemotingClient,
    address: str,
    code: RequestCode,
    header: object | None = None,
) -> RemotingCommand:
    """Ask a server, and let time go by until it has answered."""
    answers: list[RemotingCommand] = []
    client.request(address, int(code), header, b"", 3000).addCallback(answers.append)
    run_until(network, lambda: bool(answers), 4)
    return answers[0]


def run_until(network: Network, wanted: Callable[[], bool], limit_s: float) -> float:
    """Let time go by until something is so; how long it took. AssertionError when it is not in time."""
    began_s = network.clock.seconds()
    while not wanted():
        assert network.clock.seconds() - began_s < limit_s, "not in time"
        network.run(0.05)
    return network.clock.seconds() - began_s
