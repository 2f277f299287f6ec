"""S06: the list of name servers changes while the old one is alive, but empty, and 50 look-ups are under way."""

from __future__ import annotations

from client_world import ClientWorld
from small_world import start_broker, start_name_server
from twisted.internet.defer import Deferred

from txrocketmq.client.routes import RouteTable
from txrocketmq.model.message import Message

A, B = "192.0.2.101:9876", "192.0.2.102:9876"
C, D = "192.0.2.103:9876", "192.0.2.104:9876"


def test_from_the_change_on_no_request_goes_to_the_old_one() -> None:
    world = ClientWorld(brokers=0, name_server=False)
    servers = {address: start_name_server(world.network, address) for address in (A, B, C, D)}
    world.brokers[2] = start_broker(world.network, 2, namesrv_addr=f"{C};{D}")
    world.network.run(0.5)
    producer = world.producer(client={"namesrv_addr": f"{A};{B}"})
    routes: RouteTable = producer.instance.routes
    old = producer.instance.name_servers
    world.outcome(routes.update("Unknown"))
    used = old.chosen
    assert used in (A, B)
    asked: list[Deferred[bool]] = [routes.update(f"T{number}") for number in range(50)]
    asked.append(routes.update("TBW102"))
    counted = {address: count_requests(servers[address]) for address in (A, B)}
    producer.instance.update_name_servers(f" {C}; ;{D};{C}")
    assert [world.wait(one) for one in asked] == [False] * 50 + [True]
    world.network.skip(35)
    assert world.wait(producer.send(Message("TBW102", b"x"))).queue.broker_name == "broker-2"
    # What was on its way to the old one may have arrived, but its connection is gone and no other came.
    assert producer.instance.remoting.connection(used) is None
    arrived = sum(map(len, counted.values()))
    world.network.skip(65)
    assert sum(map(len, counted.values())) == arrived
    assert old.chosen in (C, D)


def count_requests(server: object) -> list[int]:
    """Codes of the requests that reach a server from now on."""
    seen: list[int] = []
    dispatcher = server.dispatcher  # type: ignore[attr-defined]
    for code, (handler, *rest) in list(dispatcher._table.items()):

        def serve(request: object, code: int = code, handler: object = handler) -> object:
            seen.append(code)
            return handler(request)  # type: ignore[operator]

        dispatcher._table[code] = (serve, *rest)
    return seen
