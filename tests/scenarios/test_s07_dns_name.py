"""S07: the name of the name servers changes its addresses, and the old address dies."""

from __future__ import annotations

from client_world import ClientWorld
from small_world import start_broker, start_name_server
from twisted.internet.defer import Deferred, succeed

from txrocketmq.client.config import ClientConfig
from txrocketmq.client.instance import ClientInstance
from txrocketmq.client.producer.producer import Producer
from txrocketmq.model.message import Message

ONE, TWO, THREE = (f"192.0.2.{number}" for number in (101, 102, 103))


def test_the_client_goes_on_within_five_seconds() -> None:
    world = ClientWorld(brokers=0, name_server=False)
    for host in (ONE, TWO, THREE):
        start_name_server(world.network, f"{host}:9876")
    reported = ";".join(f"{host}:9876" for host in (ONE, TWO, THREE))
    world.brokers[2] = start_broker(world.network, 2, namesrv_addr=reported)
    world.network.run(0.5)
    addresses = {"ns.test": [ONE]}
    looked_up: list[float] = []

    def resolve(name: str) -> Deferred[list[str]]:
        looked_up.append(world.clock.seconds())
        return succeed(addresses[name])

    instance = ClientInstance(
        world.clock,
        ClientConfig(namesrv_addr="; ns.test:9876;; ns.test:9876 ;"),
        endpoint=world.network.endpoint,
        resolve=resolve,
        random=lambda: 0.0,
    )
    producer = Producer(world.clock, "PG", instance=instance)
    world.wait(producer.start())
    world.wait(producer.send(Message("A", b"x")))
    servers = instance.name_servers
    assert servers.chosen == f"{ONE}:9876"
    # The name has other addresses now, and the old one is gone.
    addresses["ns.test"] = [TWO, THREE]
    world.network.kill(f"{ONE}:9876")
    began = world.clock.seconds()
    world.wait(producer.send(Message("B", b"x")))
    assert world.clock.seconds() - began < 5
    first = servers.chosen
    assert first in (f"{TWO}:9876", f"{THREE}:9876")
    # All addresses are used: when this one dies too, the other one is.
    world.network.kill(first or "")
    world.wait(producer.send(Message("C", b"x")))
    assert servers.chosen in {f"{TWO}:9876", f"{THREE}:9876"} - {first}
    looked_up.clear()
    world.network.skip(120)
    assert len(looked_up) >= 3
    world.wait(producer.stop())
