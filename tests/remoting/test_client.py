"""Does the client reach servers, share connections, wait no longer than allowed, and leave nothing behind?"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from memory_link import CountingTransport, Diary, answers, bodies, request
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionRefusedError, DNSLookupError
from twisted.internet.interfaces import IHostnameResolver
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure
from zope.interface import implementer
from zope.interface.verify import verifyObject

from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import GetRouteInfoRequestHeader
from txrocketmq.errors import (
    RemotingConnectError,
    RemotingSendError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)
from txrocketmq.interfaces import IRemotingClient
from txrocketmq.remoting.client import RemotingClient
from txrocketmq.remoting.dispatch import Dispatcher, Lane, Operation, Reply
from txrocketmq.remoting.limits import RemotingLimits

ADDRESS = "192.0.2.1:9876"
ROUTE = 105


class Outcome:
    """What became of a Deferred."""

    def __init__(self, deferred: Deferred[Any]) -> None:
        self.done = False
        self.value: Any = None
        deferred.addBoth(self._note)

    def _note(self, result: Any) -> None:
        self.done = True
        self.value = result.value if isinstance(result, Failure) else result


class Net:
    """A client on a memory reactor, and the far ends of its connections."""

    def __init__(self, **options: Any) -> None:
        self.reactor = MemoryReactorClock()
        self.diary = Diary()
        options.setdefault("random", Random(1).random)
        self.client = RemotingClient(self.reactor, listener=self.diary, **options)
        self._served = 0

    @property
    def attempts(self) -> list[tuple[str, int]]:
        return [(entry[0], entry[1]) for entry in self.reactor.tcpClients]

    def accept(self) -> Peer:
        """Let the next connection attempt succeed."""
        host, port, factory, _, _ = self.reactor.tcpClients[self._served]
        self._served += 1
        kind = IPv6Address if ":" in host else IPv4Address
        protocol = factory.buildProtocol(kind("TCP", host, port))
        transport = CountingTransport(
            IPv4Address("TCP", "192.0.2.10", 40000), kind("TCP", host, port)
        )
        protocol.makeConnection(transport)
        return Peer(protocol, transport)

    def refuse(self, error: Exception | None = None) -> None:
        """Let the next connection attempt fail."""
        factory = self.reactor.tcpClients[self._served][2]
        connector = self.reactor.connectors[self._served]
        self._served += 1
        factory.clientConnectionFailed(connector, Failure(error or ConnectionRefusedError()))

    def pass_seconds(self, seconds: float) -> None:
        for _ in range(int(seconds * 20)):
            self.reactor.advance(0.05)


class Peer:
    """The far end of one connection."""

    def __init__(self, protocol: Any, transport: CountingTransport) -> None:
        self.protocol = protocol
        self.transport = transport

    def received(self) -> list[RemotingCommand]:
        return answers(self.transport)

    def answer(self, command: RemotingCommand, code: int = 0, body: bytes = b"") -> None:
        self.send(RemotingCommand.create_response(command, code, body=body).encode())

    def send(self, data: bytes) -> None:
        self.protocol.dataReceived(data)

    def lose(self) -> None:
        self.protocol.connectionLost(Failure(ConnectionRefusedError()))


@pytest.fixture
def net() -> Iterator[Net]:
    """A client that must leave no delayed call behind once it is stopped."""
    made = Net()
    yield made
    made.client.stop()
    for connection in list(made.client.group.connections):
        connection.connectionLost()
    assert made.reactor.getDelayedCalls() == []


def ask(net: Net, body: bytes = b"", timeout_ms: int = 3000, address: str = ADDRESS) -> Outcome:
    return Outcome(net.client.request(address, ROUTE, None, body, timeout_ms))


def test_concurrent_callers_share_one_attempt_and_one_connection(net: Net) -> None:
    outcomes = [ask(net, b"%d" % number) for number in range(3)]
    assert net.attempts == [("192.0.2.1", 9876)]
    peer = net.accept()
    outcomes.append(ask(net, b"3"))
    for command in reversed(peer.received()):
        peer.answer(command, body=command.body)
    assert [outcome.value.body for outcome in outcomes] == [b"0", b"1", b"2", b"3"]
    assert len(net.attempts) == 1
    assert net.diary.events == [("connected", ADDRESS)]


def test_each_address_has_its_own_connection(net: Net) -> None:
    ask(net)
    ask(net, address="192.0.2.2:9876")
    assert net.attempts == [("192.0.2.1", 9876), ("192.0.2.2", 9876)]


def test_headers_and_extra_fields_are_sent(net: Net) -> None:
    header = GetRouteInfoRequestHeader(topic="T")
    Outcome(net.client.request(ADDRESS, ROUTE, header, b"", 3000, {"x": "1"}))
    (sent,) = net.accept().received()
    assert (sent.code, sent.ext_fields) == (ROUTE, {"topic": "T", "x": "1"})


def test_an_answer_of_any_code_is_an_answer(net: Net) -> None:
    outcome = ask(net)
    peer = net.accept()
    peer.answer(peer.received()[0], 1500)
    assert outcome.value.code == 1500


def test_a_refused_connection_fails_its_callers_and_names_the_address(net: Net) -> None:
    outcomes = [ask(net), ask(net)]
    net.refuse()
    for outcome in outcomes:
        assert isinstance(outcome.value, RemotingConnectError)
        assert str(outcome.value) == f"{ADDRESS}: connection refused"


def test_a_connection_that_takes_too_long_is_given_up(net: Net) -> None:
    outcome = ask(net, timeout_ms=10_000)
    net.pass_seconds(2.9)
    assert not outcome.done
    net.pass_seconds(0.3)
    assert isinstance(outcome.value, RemotingConnectError)
    assert "no connection within 3 s" in str(outcome.value)
    assert net.reactor.connectors[0].stoppedConnecting


def test_a_short_timeout_ends_before_the_connection_is_there(net: Net) -> None:
    outcome = ask(net, timeout_ms=500)
    net.pass_seconds(0.6)
    assert isinstance(outcome.value, RemotingConnectError)
    peer = net.accept()
    assert peer.received() == []
    later = ask(net)
    peer.answer(peer.received()[0])
    assert later.value.code == 0


def test_connecting_counts_as_waiting(net: Net) -> None:
    outcome = ask(net, timeout_ms=2000)
    net.pass_seconds(1.5)
    peer = net.accept()
    assert len(peer.received()) == 1
    net.pass_seconds(0.4)
    assert not outcome.done
    net.pass_seconds(0.3)
    assert isinstance(outcome.value, RemotingTimeoutError)


def test_a_lost_connection_fails_waiters_and_the_next_caller_connects_at_once(net: Net) -> None:
    first = ask(net)
    peer = net.accept()
    peer.answer(peer.received()[0])
    waiting = ask(net)
    peer.lose()
    assert first.value.code == 0
    assert isinstance(waiting.value, RemotingSendError)
    ask(net)
    assert len(net.attempts) == 2
    assert [event[0] for event in net.diary.events] == ["connected", "disconnected"]


# --------------------------------------------------------------------------- back-off


def test_a_caller_waits_for_the_next_attempt_if_its_time_allows(net: Net) -> None:
    ask(net)
    net.refuse()
    patient = ask(net, timeout_ms=3000)
    hasty = ask(net, timeout_ms=50)
    assert isinstance(hasty.value, RemotingConnectError)
    assert "next attempt in" in str(hasty.value)
    assert len(net.attempts) == 1
    net.pass_seconds(0.6)
    assert len(net.attempts) == 2
    peer = net.accept()
    peer.answer(peer.received()[0])
    assert patient.value.code == 0


def test_a_clock_that_is_set_back_keeps_nobody_from_trying_again(net: Net) -> None:
    ask(net)
    net.refuse()
    net.reactor.rightNow -= 3600
    outcome = ask(net)
    peer = net.accept()
    peer.answer(peer.received()[0])
    assert outcome.value.code == 0


def hammer(net: Net, seconds: int) -> list[float]:
    """A caller that asks again at once whenever it fails; the times of the attempts on a refusing port."""
    times: list[float] = []
    outcome = ask(net, timeout_ms=30_000)
    for _ in range(seconds * 20):
        while len(times) < len(net.attempts):
            times.append(net.reactor.seconds())
            net.refuse()
        if outcome.done:
            outcome = ask(net, timeout_ms=30_000)
        net.reactor.advance(0.05)
    return times


def test_attempts_on_a_refusing_port_are_few_and_spread() -> None:
    all_times = []
    for seed in range(30):
        net = Net(random=Random(seed).random)
        times = hammer(net, 60)
        assert 8 <= len(times) < 20
        assert max(later - sooner for sooner, later in itertools.pairwise(times)) <= 10.1
        all_times.append(times)
        net.client.stop()
        assert net.reactor.getDelayedCalls() == []
    eighth = sorted(times[7] for times in all_times)
    assert eighth[-1] - eighth[0] > 3  # clients that failed together do not come back together


def test_back_off_ends_with_the_first_word_of_the_server(net: Net) -> None:
    for _ in range(6):
        outcome = ask(net, timeout_ms=30_000)
        while len(net.attempts) == net._served:
            net.pass_seconds(0.1)
        net.refuse()
        assert outcome.done
    outcome = ask(net, timeout_ms=30_000)
    while len(net.attempts) == net._served:
        net.pass_seconds(0.1)
    peer = net.accept()
    peer.answer(peer.received()[0])
    peer.lose()
    ask(net)
    assert len(net.attempts) == net._served + 1


def test_a_server_that_accepts_and_closes_is_not_hammered(net: Net) -> None:
    ask(net)
    peer = net.accept()
    peer.lose()
    ask(net)
    assert len(net.attempts) == 1
    net.pass_seconds(0.6)
    assert len(net.attempts) == 2


# --------------------------------------------------------------------------- addresses


@implementer(IHostnameResolver)
class Resolver:
    """Resolves every name to what the test says."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = hosts
        self.asked: list[str] = []

    def resolveHostName(self, receiver: Any, name: str, port: int = 0, *rest: Any, **_: Any) -> Any:
        self.asked.append(name)
        portNumber = _.get("portNumber", port)
        receiver.resolutionBegan(self)
        for host in self.hosts:
            kind = IPv6Address if ":" in host else IPv4Address
            receiver.addressResolved(kind("TCP", host, portNumber))
        receiver.resolutionComplete()
        return self


def test_a_name_is_looked_up_at_each_connect_and_all_its_addresses_are_tried(net: Net) -> None:
    resolver = Resolver("2001:db8::1", "192.0.2.1")
    net.reactor.installNameResolver(resolver)
    outcome = ask(net, address="ns.example:9876")
    assert net.attempts == [("2001:db8::1", 9876)]
    net.refuse()
    net.pass_seconds(0.5)
    assert net.attempts == [("2001:db8::1", 9876), ("192.0.2.1", 9876)]
    peer = net.accept()
    peer.answer(peer.received()[0])
    assert outcome.value.code == 0
    peer.lose()
    resolver.hosts = ("192.0.2.77",)
    ask(net, address="ns.example:9876")
    assert net.attempts[-1] == ("192.0.2.77", 9876)
    assert len(resolver.asked) == 2
    assert net.diary.events[0] == ("connected", "ns.example:9876")


def test_a_name_without_address_fails_the_caller(net: Net) -> None:
    net.reactor.installNameResolver(Resolver())
    outcome = ask(net, address="nowhere.example:9876")
    assert isinstance(outcome.value, RemotingConnectError)
    assert str(outcome.value) == "nowhere.example:9876: there is no such host"


def test_an_ipv6_address_in_brackets(net: Net) -> None:
    outcome = ask(net, address="[::1]:9876")
    assert net.attempts == [("::1", 9876)]
    peer = net.accept()
    peer.answer(peer.received()[0])
    assert outcome.value.code == 0


@pytest.mark.parametrize(
    "address", ["", "host", "host:", ":9876", "host:http", "host:0", "h:70000"]
)
def test_an_address_that_is_none(net: Net, address: str) -> None:
    outcome = ask(net, address=address)
    assert isinstance(outcome.value, RemotingConnectError)
    assert net.attempts == []


# --------------------------------------------------------------------------- oneway, hooks, requests of the server


def test_oneway_fires_once_the_bytes_are_handed_over(net: Net) -> None:
    outcome = Outcome(net.client.oneway(ADDRESS, 37, None, b"x", 3000))
    assert not outcome.done
    peer = net.accept()
    assert outcome.done
    assert outcome.value is None
    (sent,) = peer.received()
    assert (sent.code, sent.flag, sent.body) == (37, 2, b"x")
    peer.transport.producer.pauseProducing()
    full = Outcome(net.client.oneway(ADDRESS, 37, None, b"x", 3000))
    assert isinstance(full.value, RemotingTooMuchRequestError)


def test_servers_may_ask_the_client() -> None:
    class Notices:
        def changed(self, request: Any) -> Reply:
            return Reply(body=b"noticed")

    table = [Operation(40, None, None, "notices.changed", Lane.CLIENT)]
    reactor = MemoryReactorClock()
    net = Net(dispatcher=Dispatcher(table, {"notices": Notices()}, reactor))
    ask(net)
    peer = net.accept()
    peer.received()
    peer.send(request(40, 5) + request(41, 6) + request(40, 7, flag=2))
    assert [(answer.opaque, answer.code) for answer in peer.received()] == [(5, 0), (6, 3)]


class Stamp:
    """A hook that signs requests and looks at answers."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def before_request(self, address: str, command: RemotingCommand) -> None:
        command.ext_fields = {**(command.ext_fields or {}), "Signature": "s"}

    def after_response(self, address: str, command: RemotingCommand, answer: object) -> None:
        assert isinstance(answer, RemotingCommand)
        self.seen.append((address, answer.code))


def test_hooks_change_requests_and_see_answers() -> None:
    stamp = Stamp()
    net = Net(hooks=[stamp])
    Outcome(net.client.request(ADDRESS, ROUTE, GetRouteInfoRequestHeader(topic="T"), b"", 3000))
    peer = net.accept()
    (sent,) = peer.received()
    assert sent.ext_fields == {"topic": "T", "Signature": "s"}
    peer.answer(sent, 17)
    assert stamp.seen == [(ADDRESS, 17)]


# --------------------------------------------------------------------------- bounds and time


def test_requests_in_flight_are_bounded_over_all_connections() -> None:
    net = Net(limits=RemotingLimits(max_requests=2))
    ask(net)
    ask(net, address="192.0.2.2:9876")
    first, second = net.accept(), net.accept()
    refused = ask(net)
    assert isinstance(refused.value, RemotingTooMuchRequestError)
    first.answer(first.received()[0])
    assert not ask(net, address="192.0.2.2:9876").done
    assert len(second.received()) == 2


def test_callers_that_wait_for_a_connection_are_bounded() -> None:
    net = Net(limits=RemotingLimits(max_requests=2))
    outcomes = [ask(net) for _ in range(3)]
    assert [outcome.done for outcome in outcomes] == [False, False, True]
    assert isinstance(outcomes[2].value, RemotingTooMuchRequestError)


def test_an_idle_connection_is_closed_and_made_again_when_wanted(net: Net) -> None:
    ask(net)
    peer = net.accept()
    peer.answer(peer.received()[0])
    net.pass_seconds(122)
    assert peer.transport.disconnecting
    during = ask(net)
    peer.lose()
    assert len(net.attempts) == 2
    fresh = net.accept()
    fresh.answer(fresh.received()[0])
    assert during.value.code == 0
    events = [event[0] for event in net.diary.events]
    assert events == ["connected", "idle", "disconnected", "connected"]


def test_a_connection_on_which_nothing_is_heard_is_given_up(net: Net) -> None:
    ask(net)
    peer = net.accept()
    peer.answer(peer.received()[0])
    net.pass_seconds(5)
    outcome = ask(net, timeout_ms=3000)
    net.pass_seconds(3.2)
    assert isinstance(outcome.value, RemotingTimeoutError)
    assert peer.transport.disconnecting
    ask(net)
    assert len(net.attempts) == 2


def test_a_slow_answer_does_not_end_a_connection_that_speaks(net: Net) -> None:
    slow = ask(net, timeout_ms=3000)
    peer = net.accept()
    first = peer.received()[0]
    for _ in range(4):
        quick = ask(net)
        peer.answer(peer.received()[0])
        assert quick.value.code == 0
        net.pass_seconds(0.9)
    assert first.opaque == 0
    assert isinstance(slow.value, RemotingTimeoutError)
    assert not peer.transport.disconnecting


# --------------------------------------------------------------------------- the end


@pytest.mark.parametrize(
    "prepare",
    [
        lambda net: None,
        lambda net: ask(net),
        lambda net: ask(net, address="ns.example:9876"),
        lambda net: (ask(net), net.accept()),
        lambda net: (ask(net), net.refuse()),
        lambda net: (ask(net), net.refuse(), ask(net)),
        lambda net: (ask(net, address="nowhere.example:1"), net.refuse(DNSLookupError())),
    ],
    ids=[
        "unused",
        "connecting",
        "connecting to a name",
        "connected",
        "refused",
        "backing off",
        "unknown host",
    ],
)
def test_stop_leaves_nothing_behind(prepare: Callable[[Net], object]) -> None:
    net = Net()
    prepare(net)
    stopped = Outcome(net.client.stop())
    for connection in list(net.client.group.connections):
        assert not stopped.done
        connection.connectionLost()
    assert stopped.done
    assert net.reactor.getDelayedCalls() == []
    assert isinstance(ask(net).value, RemotingSendError)


def test_stop_fails_waiters(net: Net) -> None:
    connecting = ask(net, address="192.0.2.2:9876")
    connected = ask(net)
    net._served = 1
    net.accept()
    net.client.stop()
    assert isinstance(connecting.value, RemotingSendError)
    assert isinstance(connected.value, RemotingSendError)


def test_an_address_that_is_no_longer_wanted_is_dropped(net: Net) -> None:
    waiting = ask(net)
    peer = net.accept()
    net.client.close_address(ADDRESS)
    net.client.close_address("192.0.2.99:1")
    assert isinstance(waiting.value, RemotingSendError)
    assert peer.transport.disconnecting
    ask(net)
    peer.lose()
    fresh = net.accept()
    assert bodies(fresh.received()) == [b""]


def test_a_cancelled_caller_is_forgotten(net: Net) -> None:
    deferred = net.client.request(ADDRESS, ROUTE, None, b"x", 3000)
    outcome = Outcome(deferred)
    deferred.cancel()
    assert outcome.done
    assert net.accept().received() == []


@pytest.mark.parametrize("comes", ["connection", "refusal"])
def test_whoever_hears_first_may_cancel_others_that_wait(net: Net, comes: str) -> None:
    first, second, third = (net.client.oneway(ADDRESS, ROUTE, None) for _ in range(3))
    first.addBoth(lambda _: second.cancel())
    outcomes = Outcome(second), Outcome(third)
    net.accept() if comes == "connection" else net.refuse()
    assert isinstance(outcomes[0].value, CancelledError)
    assert outcomes[1].done
    assert (outcomes[1].value is None) == (comes == "connection")


def test_a_stopped_client_can_be_opened_again(net: Net) -> None:
    net.client.stop()
    refused = ask(net)
    assert isinstance(refused.value, RemotingSendError)
    net.client.reopen()
    asked = ask(net)
    peer = net.accept()
    peer.answer(peer.received()[0])
    assert asked.value.code == 0


def test_the_client_is_what_the_interface_says(net: Net) -> None:
    assert verifyObject(IRemotingClient, net.client)
