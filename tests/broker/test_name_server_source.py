"""A broker that is told its name servers: by an address server, or by the addresses of a host name."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import Factory, Protocol

from txrocketmq.broker.name_server_source import NameServerSource, address_server_url
from txrocketmq.remoting.address_server import AddressServer
from txrocketmq.remoting.client import RemotingClient
from txrocketmq.testing.network import Network
from txrocketmq.testing.servers import MemoryBroker, MemoryNameServer

HOSTS = ("192.0.2.100", "192.0.2.101", "192.0.2.102")
HTTP = "192.0.2.30:8080"


class Http(Protocol):
    def dataReceived(self, data: bytes) -> None:
        server: Any = self.factory
        server.asked.append(data.split(b"\r\n")[0])
        transport: Any = self.transport
        transport.write(server.answer)
        transport.loseConnection()


class HttpServer(Factory):
    """An address server."""

    protocol = Http  # type: ignore[assignment]
    noisy = False

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.answer = b""

    def says(self, text: str) -> None:
        self.answer = b"HTTP/1.0 200 OK\r\n\r\n" + text.encode()


class World:
    """Three name servers, an address server, and a broker."""

    def __init__(self, **settings: Any) -> None:
        self.network = Network()
        self.http = HttpServer()
        self.network.listen(HTTP, self.http)
        self.names: dict[str, MemoryNameServer] = {}
        for host in HOSTS:
            node = self.network.node(host)
            self.names[host] = MemoryNameServer(node)
            node.listenTCP(9876, self.names[host].factory())
        node = self.network.node("192.0.2.1")
        client = RemotingClient(node, endpoint=self.network.endpoint, random=lambda: 0.5)
        self.broker = MemoryBroker(node, client, host="192.0.2.1", **settings)
        self.config = self.broker.config
        self.addresses: dict[str, list[str]] = {}
        fetch = None
        if self.config.fetch_namesrv_addr_by_address_server:
            url = address_server_url(HTTP, "")
            fetch = AddressServer(node, url, "", self.network.endpoint).fetch
        self.source = NameServerSource(
            self.config,
            node,
            fetch=fetch,
            resolve=self.resolve if self.config.fetch_name_srv_addr_by_dns_lookup else None,
            changed=lambda: self.broker.core.registration.register_all(True),
        )
        self.broker.start()
        self.source.start()
        self.network.run(1)

    def resolve(self, host: str) -> Deferred[list[str]]:
        return succeed(self.addresses.get(host, []))

    def known_at(self) -> list[str]:
        """Which name servers know the broker."""
        return [host for host, names in self.names.items() if names.server.table.brokers()]


def by_address_server(**settings: Any) -> World:
    return World(fetch_namesrv_addr_by_address_server=True, **settings)


def test_an_address_server_tells_the_name_servers_and_is_asked_again() -> None:
    world = by_address_server()
    assert world.http.asked == [b"GET /rocketmq/nsaddr HTTP/1.0"]
    assert world.known_at() == []
    world.http.says("192.0.2.100:9876;192.0.2.101:9876\n")
    world.network.skip(10)
    assert world.known_at() == ["192.0.2.100", "192.0.2.101"]
    # Another list: the new one is joined, the old one left.
    world.http.says("192.0.2.101:9876;192.0.2.102:9876")
    world.network.skip(10.5)
    assert world.known_at() == ["192.0.2.101", "192.0.2.102"]
    world.source.stop()
    world.network.skip(60)
    assert len(world.http.asked) == 3


@pytest.mark.parametrize("text", ["", "no address", "192.0.2.102"])
def test_an_answer_that_says_nothing_changes_nothing(text: str) -> None:
    world = by_address_server(fetch_namesrv_addr_interval=5_000)
    world.http.says("192.0.2.100:9876")
    world.network.skip(6)
    assert world.known_at() == ["192.0.2.100"]
    world.http.says(text)
    world.network.skip(20)
    world.http.answer = b"HTTP/1.0 500 No\r\n\r\n192.0.2.102:9876"
    world.network.skip(20)
    assert world.known_at() == ["192.0.2.100"]
    world.network.kill(HTTP)
    world.network.skip(20)
    assert world.config.namesrv_addr == "192.0.2.100:9876"


def test_all_addresses_of_a_name_are_name_servers_and_are_looked_up_again() -> None:
    world = World(fetch_name_srv_addr_by_dns_lookup=True)
    world.source.stop()
    world.config.namesrv_addr = "names.example:9876"
    world.addresses["names.example"] = ["192.0.2.100", "192.0.2.101"]
    world.source.start()
    world.network.run(1)
    assert world.known_at() == ["192.0.2.100", "192.0.2.101"]
    world.addresses["names.example"] = ["192.0.2.101", "192.0.2.102"]
    world.network.skip(121)
    assert world.known_at() == ["192.0.2.101", "192.0.2.102"]
    # A name that is not known for a while changes nothing.
    world.addresses.clear()
    world.network.skip(121)
    assert world.known_at() == ["192.0.2.101", "192.0.2.102"]


def test_an_operators_list_takes_the_place_of_the_name() -> None:
    world = World(fetch_name_srv_addr_by_dns_lookup=True)
    world.source.stop()
    world.config.namesrv_addr = "names.example:9876"
    world.addresses["names.example"] = ["192.0.2.100"]
    world.source.start()
    world.network.run(1)
    world.config.namesrv_addr = "192.0.2.102:9876"
    world.broker.core.registration.register_all(True)
    world.network.skip(121)
    assert world.known_at() == ["192.0.2.102"]


@pytest.mark.parametrize(
    ("domain", "group", "url"),
    [
        ("", "", "http://jmenv.tbsite.net:8080/rocketmq/nsaddr"),
        ("names.example", "inner", "http://names.example:8080/rocketmq/inner"),
        ("names.example:80", "", "http://names.example:80/rocketmq/nsaddr"),
    ],
)
def test_where_the_address_server_is(domain: str, group: str, url: str) -> None:
    assert address_server_url(domain, group) == url
