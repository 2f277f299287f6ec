"""Choice of the name server, changes of the list, host names, address server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from client_world import NAME_SERVER, ClientWorld
from small_world import remoting_client, start_broker, start_name_server
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure

from txrocketmq.client.config import ClientConfig, check_name_servers
from txrocketmq.client.name_servers import NameServers
from txrocketmq.client.routes import RouteTable
from txrocketmq.codec.headers import GetRouteInfoRequestHeader
from txrocketmq.errors import MQClientError, NoRouteError
from txrocketmq.model.codes import RequestCode

A, B, C = "192.0.2.10:9876", "192.0.2.11:9876", "192.0.2.12:9876"


def ask(servers: NameServers) -> Deferred[Any]:
    header = GetRouteInfoRequestHeader(topic="T")
    return Deferred.fromCoroutine(servers.request(int(RequestCode.GET_ROUTEINFO_BY_TOPIC), header))


class Servers:
    """Name servers on a network in memory, and a list of them."""

    def __init__(self, *running: str, random: Callable[[], float] = lambda: 0.0) -> None:
        self.world = ClientWorld(brokers=0, name_server=False)
        self.network = self.world.network
        for address in running:
            start_name_server(self.network, address)
        self._random = random

    def list(self, *addresses: str, **more: Any) -> NameServers:
        return NameServers(
            remoting_client(self.network),
            addresses,
            now=self.network.clock.seconds,
            random=self._random,
            **more,
        )


def test_the_chosen_server_is_kept() -> None:
    servers = Servers(A, B, C)
    found = servers.list(A, B, C)
    for _ in range(5):
        assert servers.world.wait(ask(found)).code == 17
    assert servers.network.connects == [A]
    assert found.chosen == A


@pytest.mark.parametrize(("number", "first"), [(0.0, A), (0.5000005, C), (0.999999, A)])
def test_the_first_one_is_chosen_by_chance(number: float, first: str) -> None:
    servers = Servers(A, B, C, random=lambda: number)
    found = servers.list(A, B, C)
    servers.world.wait(ask(found))
    assert found.chosen == [A, B, C][int(number * 1_000_000) % 3]


def test_the_next_one_is_asked_when_it_fails() -> None:
    servers = Servers(A, B, C)
    found = servers.list(A, B, C)
    servers.world.wait(ask(found))
    servers.network.kill(A)
    assert servers.world.wait(ask(found)).code == 17
    assert found.chosen == B


def test_one_that_does_not_know_is_no_reason_to_give_up() -> None:
    servers = Servers(A, B, C)
    world = servers.world
    world.brokers[2] = start_broker(world.network, 2, namesrv_addr=B)
    world.network.run(0.5)
    found = servers.list(A, B, C)
    routes = RouteTable(found)
    assert world.wait(routes.fetch("nobody has it")) is None
    assert found.chosen == A
    assert world.wait(routes.fetch("TBW102")) is not None
    assert found.chosen == B


def test_nobody_answers() -> None:
    servers = Servers()
    with pytest.raises(NoRouteError, match=f"{A}: connection refused; {B}: connection refused"):
        servers.world.wait(ask(servers.list(A, B)))
    with pytest.raises(NoRouteError, match="NAMESRV_ADDR"):
        servers.world.wait(ask(servers.list()))


def test_a_server_that_hangs_is_left_after_its_time() -> None:
    servers = Servers(B)
    servers.network.block(A)
    found = servers.list(A, B)
    began = servers.network.clock.seconds()
    assert servers.world.wait(ask(found)).code == 17
    assert 2.9 < servers.network.clock.seconds() - began < 3.5


def test_a_list_without_the_one_in_use_drops_it_at_once() -> None:
    servers = Servers(A, B)
    found = servers.list(A)
    servers.world.wait(ask(found))
    asked = ask(found)
    found.update([B])
    assert servers.world.wait(asked).code == 17
    assert found.chosen == B
    servers.network.run(1)
    assert servers.network._wires[A][0].is_up is False


def test_the_same_list_changes_nothing() -> None:
    servers = Servers(A)
    found = servers.list(A, B)
    servers.world.wait(ask(found))
    found.update([A, B])
    found.update([])
    assert (found.chosen, found.configured) == (A, [A, B])


class Dns:
    """Host names whose addresses a test changes."""

    def __init__(self) -> None:
        self.addresses: dict[str, list[str]] = {}
        self.asked = 0

    def __call__(self, name: str) -> Deferred[list[str]]:
        self.asked += 1
        found = self.addresses.get(name)
        return succeed(list(found)) if found else fail(OSError(f"no address of {name}"))


def test_all_addresses_of_a_name_are_servers() -> None:
    servers, dns = Servers(A, B), Dns()
    dns.addresses["ns.test"] = ["192.0.2.10", "192.0.2.11"]
    found = servers.list("ns.test:9876", resolve=dns)
    servers.world.wait(ask(found))
    assert found.addresses == [A, B]
    servers.network.kill(A)
    servers.world.wait(ask(found))
    assert found.chosen == B


def test_a_name_is_looked_up_again_on_failure_and_every_half_minute() -> None:
    servers, dns = Servers(A, C), Dns()
    dns.addresses["ns.test"] = ["192.0.2.10"]
    found = servers.list("ns.test:9876", resolve=dns)
    servers.world.wait(ask(found))
    servers.world.wait(ask(found))
    assert dns.asked == 1
    servers.network.kill(A)
    dns.addresses["ns.test"] = ["192.0.2.11", "192.0.2.12"]
    assert servers.world.wait(ask(found)).code == 17
    assert (dns.asked, found.chosen) == (2, C)
    dns.addresses["ns.test"] = []
    servers.network.skip(31)
    assert servers.world.wait(ask(found)).code == 17  # what cannot be looked up stays as it was
    assert dns.asked == 3


def test_names_that_are_looked_up_in_another_order_each_time_keep_nobody_asking() -> None:
    servers = Servers()
    asked = []

    def resolve(name: str) -> Deferred[list[str]]:
        asked.append(name)
        is_turned = len(asked) % 2 and len(asked) < 100
        return succeed(["192.0.2.11", "192.0.2.10"] if is_turned else ["192.0.2.10", "192.0.2.11"])

    found = servers.list("ns.test:9876", resolve=resolve)
    outcome = servers.world.outcome(ask(found), 10)
    assert outcome.check(NoRouteError)
    assert outcome.getErrorMessage().count("connection refused") == 2
    assert len(asked) == 3


def test_look_ups_of_names_happen_once_for_all_who_ask() -> None:
    servers = Servers(A)
    waiting: list[Deferred[list[str]]] = []

    def resolve(name: str) -> Deferred[list[str]]:
        waiting.append(Deferred())
        return waiting[-1]

    found = servers.list("ns.test:9876", resolve=resolve)
    asked = [ask(found) for _ in range(50)]
    assert len(waiting) == 1
    waiting[0].callback(["192.0.2.10"])
    assert {servers.world.wait(one).code for one in asked} == {17}


def test_lists() -> None:
    assert check_name_servers(" a:1; b:2 ;;a:1, c:3;") == ["a:1", "b:2", "c:3"]
    with pytest.raises(MQClientError, match="host:port"):
        check_name_servers("a")


def test_the_environment_names_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b:2")
    assert ClientConfig().name_servers() == ["a:1", "b:2"]
    assert ClientConfig(namesrv_addr="c:3").name_servers() == ["c:3"]


class Http(Protocol):
    """Answers one request with the factory's text."""

    def dataReceived(self, data: bytes) -> None:
        self.factory.requests.append(data)  # type: ignore[attr-defined]
        self.transport.write(self.factory.answer)  # type: ignore[attr-defined,union-attr]
        if self.factory.closes:  # type: ignore[attr-defined]
            self.transport.loseConnection()  # type: ignore[union-attr]


class AddressServerStub(Factory):
    """An HTTP server as far as an address server needs one."""

    protocol = Http
    noisy = False

    def __init__(self, answer: bytes, closes: bool = True) -> None:
        self.answer = answer
        self.closes = closes
        self.requests: list[bytes] = []


HTTP = "192.0.2.30:8080"


def test_an_address_server_tells_the_name_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    world = ClientWorld()
    body = NAME_SERVER.encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(body) + 1)
    stub = AddressServerStub(head + body + b"\n", closes=False)
    world.network.listen(HTTP, stub)
    instance = world.instance(
        namesrv_addr="", ws_addr=f"http://{HTTP}/rocketmq/nsaddr", unit_name="unit1"
    )
    world.wait(instance.start())
    assert instance.name_servers.configured == [NAME_SERVER]
    assert stub.requests[0].startswith(b"GET /rocketmq/nsaddr-unit1?nofix=1 HTTP/1.0\r\n")
    assert b"\r\nHost: 192.0.2.30:8080\r\n" in stub.requests[0]
    start_name_server(world.network, B)
    stub.answer, stub.closes = b"HTTP/1.0 200 OK\r\n\r\n" + B.encode(), True
    world.network.skip(11)
    assert instance.name_servers.configured == [B]
    world.network.skip(121)
    assert len(stub.requests) == 3
    world.wait(instance.stop())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 404 Not Found\r\n\r\n" + NAME_SERVER.encode(),
        b"junk",
        b"HTTP/1.0 200 OK\r\n\r\nx",
    ],
)
def test_an_address_server_that_tells_nothing(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    world = ClientWorld()
    world.network.listen(HTTP, AddressServerStub(answer))
    instance = world.instance(namesrv_addr="", ws_addr=f"http://{HTTP}/")
    found = world.outcome(instance.start())
    assert isinstance(found, Failure)
    assert found.check(MQClientError)
    world.wait(instance.stop())


def test_an_address_server_needs_a_url() -> None:
    with pytest.raises(MQClientError, match="http://host:port/path"):
        ClientWorld().instance(namesrv_addr="", ws_addr="jmenv")
