"""Do real sockets behave: eager writing on each reactor, water marks, ports, names? A few loopback connections."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import pytest_twisted
from memory_link import BIG, CLOSE, ECHO, LATER, OPERATIONS, Desk, Diary, bodies, commands, request
from twisted.internet import tcp
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import ServerFactory
from twisted.internet.testing import StringTransport

from txrocketmq.codec.command import decode_command
from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.remoting.client import RemotingClient
from txrocketmq.remoting.dispatch import Dispatcher, Reply
from txrocketmq.remoting.limits import RemotingLimits
from txrocketmq.remoting.protocol import RemotingServerFactory
from txrocketmq.remoting.transport import (
    PRIVATE_NAMES,
    Outlet,
    format_address,
    is_plain_tcp,
    listen,
    parse_address,
)


class Site:
    """A server on a loopback port of a reactor that the test turns by hand."""

    def __init__(self, reactor: Any, limits: RemotingLimits | None = None) -> None:
        self.reactor = reactor
        self.desk = Desk()
        self.diary = Diary()
        dispatcher = Dispatcher(OPERATIONS, {"desk": self.desk}, reactor)
        self.factory = RemotingServerFactory(dispatcher, reactor, self.diary, limits)
        self.port = listen(reactor, "127.0.0.1", 0, self.factory)
        self.sockets: list[socket.socket] = []

    def turn_until(self, condition: Callable[[], object]) -> None:
        for _ in range(2000):
            if condition():
                return
            self.reactor.iterate(0.005)
        raise AssertionError("the condition never came true")

    def dial(self) -> socket.socket:
        """A client socket that never blocks, and its server connection."""
        before = len(self.factory.group.connections)
        dialled = socket.create_connection(("127.0.0.1", self.port.getHost().port))
        dialled.setblocking(False)
        self.sockets.append(dialled)
        self.turn_until(lambda: len(self.factory.group.connections) > before)
        return dialled

    def connection(self) -> Any:
        return next(reversed(self.factory.group.connections))

    def receive(self, dialled: socket.socket, count: int) -> list[Any]:
        """That many answers."""
        splitter = FrameSplitter()
        found: list[Any] = []

        def read() -> bool:
            try:
                data = dialled.recv(65536)
            except BlockingIOError:
                return False
            found.extend(decode_command(frame) for frame in splitter.feed(data))
            return len(found) >= count

        self.turn_until(read)
        return found

    def stop(self) -> None:
        for dialled in self.sockets:
            dialled.close()
        stopped = self.port.stopListening()
        self.turn_until(lambda: not self.factory.group.connections)
        self.turn_until(lambda: stopped is None or stopped.called)


def reactors() -> list[Any]:
    from twisted.internet.selectreactor import SelectReactor

    found: list[Any] = [SelectReactor]
    try:
        from twisted.internet.epollreactor import EPollReactor
    except ImportError:
        return found
    return [EPollReactor, *found]


@pytest.fixture(params=reactors(), ids=lambda kind: kind.__name__)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    reactor = request.param()
    made = Site(reactor, RemotingLimits(high_water_bytes=300_000))
    yield made
    made.stop()
    assert reactor.getDelayedCalls() == []
    reactor.removeAll()


def test_answers_are_written_without_waiting_for_the_reactor(site: Site) -> None:
    dialled = site.dial()
    connection = site.connection()
    connection.dataReceived(request(ECHO, 1, b"eager"))
    dialled.settimeout(2)
    assert bodies(commands(dialled.recv(65536))) == [b"eager"]  # no turn of the reactor between


def test_what_the_socket_does_not_take_at_once_follows(site: Site) -> None:
    site.desk.big_body_bytes = 8_000_000
    dialled = site.dial()
    dialled.send(request(BIG, 1) + request(ECHO, 2, b"behind"))
    big, behind = site.receive(dialled, 2)
    assert len(big.body) == 8_000_000
    assert behind.body == b"behind"


def test_a_peer_that_does_not_read_is_not_read_until_it_does(site: Site) -> None:
    site.desk.big_body_bytes = 200_000
    dialled = site.dial()
    connection = site.connection()
    asked = 0
    while connection._outlet.unsent_bytes() <= 300_000:
        dialled.sendall(request(BIG, asked))
        asked += 1
        site.reactor.iterate(0.01)
    assert connection._outlet.unsent_bytes() < 600_000
    served = len(site.desk.requests)
    for _ in range(5):
        dialled.sendall(request(BIG, asked))
        asked += 1
        site.reactor.iterate(0)
    assert len(site.desk.requests) == served < asked
    assert len(site.receive(dialled, asked)) == asked
    assert len(site.desk.requests) == asked
    dialled.send(request(ECHO, 2, b"again"))
    assert bodies(site.receive(dialled, 1)) == [b"again"]


@pytest.mark.parametrize("kind", reactors(), ids=lambda kind: kind.__name__)
def test_a_mark_below_the_one_of_twisted_counts_as_well(kind: Any) -> None:
    reactor = kind()
    site = Site(reactor, RemotingLimits(high_water_bytes=20_000))
    site.desk.big_body_bytes = 6_000
    dialled = site.dial()
    connection = site.connection()
    asked = 0
    while not connection._outlet.unsent_bytes():
        asked += 1
        connection.dataReceived(request(BIG, asked))
    for _ in range(8):
        asked += 1
        connection.dataReceived(request(BIG, asked))
    assert 20_000 < connection._outlet.unsent_bytes() < 27_000
    assert len(site.receive(dialled, asked)) == asked
    site.stop()
    reactor.removeAll()


def test_a_closed_connection_still_sends_what_was_written(site: Site) -> None:
    site.desk.big_body_bytes = 3_000_000
    dialled = site.dial()
    dialled.send(request(BIG, 1) + request(CLOSE, 2))
    found = site.receive(dialled, 2)
    assert [answer.opaque for answer in found] == [1, 2]
    site.turn_until(lambda: not site.factory.group.connections)
    assert site.diary.events[-1][2] == "asked to"


def test_a_reset_connection_is_noticed_when_an_answer_is_written(site: Site) -> None:
    dialled = site.dial()
    dialled.send(request(LATER, 1))
    site.turn_until(lambda: site.desk.waiting)
    dialled.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    dialled.close()
    site.desk.waiting[0].callback(Reply())
    site.turn_until(lambda: not site.factory.group.connections)


def test_small_segments_are_sent_at_once(site: Site) -> None:
    site.dial()
    assert site.connection().transport.getTcpNoDelay()


@pytest.mark.parametrize("name", PRIVATE_NAMES)
def test_the_private_names_of_twisted_are_there(site: Site, name: str) -> None:
    site.dial()
    assert hasattr(site.connection().transport, name)


def test_a_transport_that_lacks_a_name_is_written_to_as_usual(site: Site) -> None:
    site.dial()
    transport = site.connection().transport
    assert is_plain_tcp(transport)
    assert isinstance(transport, tcp.Connection)
    transport.TLS = True
    assert not is_plain_tcp(transport)
    transport.TLS = False


def test_a_foreign_transport_is_written_to_as_usual() -> None:
    transport = StringTransport()
    outlet = Outlet(transport, 100)
    outlet.write(b"plain")
    assert transport.value() == b"plain"
    assert outlet.unsent_bytes() is None
    assert outlet.is_over_high_water()


# --------------------------------------------------------------------------- ports and addresses


def test_a_port_in_use_is_one_clear_error(site: Site) -> None:
    taken = site.port.getHost().port
    with pytest.raises(CannotListenError, match=f"127.0.0.1:{taken}: .*already in use"):
        listen(site.reactor, "127.0.0.1", taken, ServerFactory())


def test_a_host_that_does_not_exist_is_one_clear_error(site: Site) -> None:
    with pytest.raises(CannotListenError, match=r"no-such-host\.invalid"):
        listen(site.reactor, "no-such-host.invalid", 0, ServerFactory())


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        (" ns.example:1 ", ("ns.example", 1)),
        ("[::1]:9876", ("::1", 9876)),
        ("2001:db8::1:9876", ("2001:db8::1", 9876)),
    ],
)
def test_addresses_as_text(text: str, parts: tuple[str, int]) -> None:
    assert parse_address(text) == parts
    assert parse_address(format_address(*parts)) == parts


# --------------------------------------------------------------------------- the real reactor, both ends ours


async def ask_over(host: str, address_host: str) -> bytes:
    from twisted.internet import reactor

    desk = Desk()
    dispatcher = Dispatcher(OPERATIONS, {"desk": desk}, reactor)  # type: ignore[arg-type]
    factory = RemotingServerFactory(dispatcher, reactor)  # type: ignore[arg-type]
    port = listen(reactor, host, 0, factory)  # type: ignore[arg-type]
    client = RemotingClient(reactor)
    address = format_address(address_host, port.getHost().port)
    try:
        answer = await client.request(address, ECHO, None, b"hello", 3000)
        return bytes(answer.body)
    finally:
        await client.stop()
        await port.stopListening()
        await factory.close_all()


@pytest_twisted.ensureDeferred
async def test_ipv4_loopback() -> None:
    assert await ask_over("127.0.0.1", "127.0.0.1") == b"hello"


@pytest_twisted.ensureDeferred
async def test_a_host_name_on_both_ends() -> None:
    assert await ask_over("localhost", "localhost") == b"hello"


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest_twisted.ensureDeferred
async def test_ipv6_loopback() -> None:
    if has_ipv6():  # a machine without IPv6 has nothing to show
        assert await ask_over("[::1]", "::1") == b"hello"
        assert await ask_over("::", "127.0.0.1") == b"hello"


@pytest_twisted.ensureDeferred
async def test_a_thousand_pipelined_requests_over_loopback() -> None:
    from twisted.internet import reactor
    from twisted.internet.defer import gatherResults

    dispatcher = Dispatcher(OPERATIONS, {"desk": Desk()}, reactor)  # type: ignore[arg-type]
    factory = RemotingServerFactory(dispatcher, reactor)  # type: ignore[arg-type]
    port = listen(reactor, "127.0.0.1", 0, factory)  # type: ignore[arg-type]
    client = RemotingClient(reactor)
    address = f"127.0.0.1:{port.getHost().port}"
    asked = [client.request(address, ECHO, None, b"%d" % n, 10_000) for n in range(1000)]
    found = await gatherResults(asked)
    assert bodies(found) == [b"%d" % n for n in range(1000)]
    await client.stop()
    await port.stopListening()
    await factory.close_all()
