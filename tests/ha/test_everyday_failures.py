"""What operators and applications see of masters, slaves and name servers that fail: real clients, on a network in memory."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from cluster_world import NAMES, NAMESRV, PRODUCER, TOPIC, Machine, SeededNetwork, Servers
from twisted.python.failure import Failure

from txrocketmq.client.config import ClientConfig
from txrocketmq.client.producer.config import ProducerConfig
from txrocketmq.client.producer.producer import Producer
from txrocketmq.client.results import SendStatus
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.message import Message

A, B = "broker-a", "broker-b"
MASTER, FIRST, SECOND, OTHER = (f"192.0.2.{number}" for number in (1, 2, 3, 4))
POLL_S = 5
"""How often these clients look up routes; 30 s by default."""
SEND_S = 3.0
"""`send_msg_timeout`: all tries of one send."""


class Calm(Servers):
    """Servers that do only what a test wants, and a producer.

    :ivar acknowledged: bodies that were stored safely, with the broker that has them.
    :ivar failures: of sends.
    :ivar slowest_s: the longest that a send took.
    """

    def __init__(self, network: SeededNetwork | None = None) -> None:
        super().__init__(network)
        self.acknowledged: dict[bytes, str] = {}
        self.failures: list[Failure] = []
        self.slowest_s = 0.0
        self.sent = 0
        self.producer: Producer
        self._clients: list[Any] = []

    def broker(self, host: str, broker_id: int, group: str = A, **settings: Any) -> Machine:
        made = Machine(self.network, host, broker_id, None, group, **settings)
        made.start()
        self.machines.append(made)
        if broker_id == 0:
            made.broker.core.topics.create_by_default(TOPIC, "TBW102", 2, 0)
        return made

    def begin(self) -> None:
        """Slaves follow, routes are known, the producer has started."""
        self.run(6)
        client = ClientConfig(
            namesrv_addr=NAMESRV, client_ip=PRODUCER, poll_name_server_interval=POLL_S * 1000
        )
        self.producer = Producer(self.network.node(PRODUCER), "Senders", client, ProducerConfig())
        self.wait(self.producer.start())
        self._clients.append(self.producer)

    def consume(self, group: str, **settings: Any) -> set[bytes]:
        seen: set[bytes] = set()
        consumer = self.start_consumer(group, seen, **settings)
        self.wait(consumer.start())
        self._clients.append(consumer)
        return seen

    def send(self, count: int = 1, every_s: float = 0.005) -> None:
        """So many messages, one after the other, however long their answers take."""
        for _ in range(count):
            self.sent += 1
            self._send_one(b"%06d" % self.sent)
            self.run(every_s)

    def _send_one(self, body: bytes) -> None:
        began_s = self.network.clock.seconds()

        def heard(result: Any) -> None:
            self.slowest_s = max(self.slowest_s, self.network.clock.seconds() - began_s)
            if result.status is SendStatus.SEND_OK:
                self.acknowledged[body] = result.queue.broker_name

        self.producer.send(Message(TOPIC, body)).addCallbacks(heard, self.failures.append)

    def stop(self) -> None:
        for client in reversed(self._clients):
            self.wait(client.stop())
        for machine in self.machines:
            if machine.node is not None:
                machine.node.kill()


@pytest.fixture
def servers() -> Iterator[Calm]:
    made = Calm()
    yield made
    made.stop()


def pulls(machine: Machine) -> int:
    """How many pulls came to a broker."""
    wanted = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
    return sum(code in wanted for _, code in machine.faults.requests)


# ----------------------------------------------------------------- roles


def test_a_master_may_have_many_slaves(servers: Calm) -> None:
    """HA-10: the group's members by id at every name server, and every slave has what the master has."""
    master = servers.broker(MASTER, 0)
    slaves = [servers.broker(f"192.0.2.{number + 1}", number) for number in (1, 2, 3)]
    servers.begin()
    servers.send(20)
    servers.run(1)
    members = {machine.broker_id: machine.address for machine in (master, *slaves)}
    assert [servers.route_at(host) for host in NAMES] == [members, members]
    assert len(servers.acknowledged) == 20
    assert {slave.log() for slave in slaves} == {master.log()}
    assert all(slave.bodies() == set(servers.acknowledged) for slave in slaves)
    slaves[1].end()
    servers.run(1)
    del members[2]
    assert [servers.route_at(host) for host in NAMES] == [members, members]
    servers.send()
    servers.run(1)
    assert len(servers.acknowledged) == 21


# ----------------------------------------------------------------- slave reads


def far_behind(servers: Calm, **settings: Any) -> list[Machine]:
    """A master with two slaves, and messages that count as being too far behind to be in memory."""
    every = {"access_message_in_memory_max_ratio": 0, **settings}
    machines = [
        servers.broker(host, number, **every) for number, host in enumerate((MASTER, FIRST, SECOND))
    ]
    servers.begin()
    servers.send(300)
    servers.run(1)
    return machines


def test_only_the_slave_with_id_1_serves_slow_reads(servers: Calm) -> None:
    """HA-13: consumers who are far behind are sent to the group's `whichBrokerWhenConsumeSlowly`, and come back when they are not any more."""
    master, first, second = far_behind(servers)
    seen = servers.consume("Slow", pull_batch_size=8)
    servers.until(lambda: len(seen) == 300, 30)
    assert pulls(second) == 0
    assert pulls(first) > 2 * 300 / 8 / 2
    before = pulls(first)
    servers.run(60)
    # At the end of the queues the master holds the pulls.
    servers.send(2)
    servers.until(lambda: len(seen) == 302, 5)
    assert pulls(master) > 0
    assert pulls(first) <= before + 4
    assert pulls(second) == 0


def test_a_group_may_name_another_slave(servers: Calm) -> None:
    master, first, second = far_behind(servers)
    config = SubscriptionGroupConfig(group_name="Slow", which_broker_when_consume_slowly=2)
    master.broker.core.groups.update(config)
    servers.run(11)  # slaves ask for it every ten seconds
    seen = servers.consume("Slow", pull_batch_size=8)
    servers.until(lambda: len(seen) == 300, 30)
    assert pulls(second) > 0
    assert pulls(first) == 0


def test_without_slave_reads_the_master_serves_slow_readers_too(servers: Calm) -> None:
    master, first, second = far_behind(servers, slave_read_enable=False)
    seen = servers.consume("Slow", pull_batch_size=8)
    servers.until(lambda: len(seen) == 300, 30)
    assert (pulls(first), pulls(second)) == (0, 0)
    assert pulls(master) >= 2 * 300 / 8 / 2


def test_a_consumer_that_a_slave_sends_away_goes_on_at_the_master(servers: Calm) -> None:
    """The master sends slow readers to a slave whose own reads are off: PULL_RETRY_IMMEDIATELY, and the master serves them."""
    master = servers.broker(MASTER, 0, access_message_in_memory_max_ratio=0)
    slave = servers.broker(FIRST, 1, slave_read_enable=False)
    servers.begin()
    servers.send(100)
    servers.run(1)
    seen = servers.consume("Slow", pull_batch_size=8)
    servers.until(lambda: len(seen) == 100, 30)
    assert pulls(slave) > 0
    assert pulls(master) > 0


def test_offsets_that_a_slave_was_told_are_reconciled(servers: Calm) -> None:
    """HA-25: what was consumed at the slave while the master was away is not consumed again once the master is back."""
    master = servers.broker(MASTER, 0)
    slave = servers.broker(FIRST, 1)
    servers.begin()
    first = servers.consume("G")
    servers.send(10)
    servers.until(lambda: len(first) == 10, 10)
    servers.run(20)
    master.faults.requests.clear()
    consumer = servers._clients.pop()
    servers.wait(consumer.stop())
    servers.send(30)
    servers.run(1)
    master.end()
    servers.run(POLL_S + 1)
    seen = servers.consume("G")
    servers.until(lambda: len(seen) == 30, 30)
    servers.run(10)
    core = slave.broker.core
    assert sum(core.offsets.queues_of("G", TOPIC).values()) == 40
    master.start()
    servers.run(60)
    # The consumer lives on, and tells the master where it stands.
    assert sum(master.broker.core.offsets.queues_of("G", TOPIC).values()) == 40
    assert len(seen) == 30
    servers.send()
    servers.until(lambda: len(seen) == 31, 10)


# ----------------------------------------------------------------- many groups


def test_producers_go_on_with_another_group_when_a_master_dies(servers: Calm) -> None:
    """HA-15: no send fails, and none takes longer than all its tries may; consumers read what the dead master had from its slave."""
    master = servers.broker(MASTER, 0)
    servers.broker(FIRST, 1)
    servers.broker(OTHER, 0, B, broker_role="ASYNC_MASTER")
    servers.begin()
    seen = servers.consume("G")
    servers.send(200)
    master.end()
    killed = len(servers.acknowledged)
    servers.send(400)
    servers.run(SEND_S)
    assert servers.failures == []
    assert len(servers.acknowledged) == 600
    assert servers.slowest_s < SEND_S
    assert set(list(servers.acknowledged.values())[killed + 2 :]) == {B}
    assert A in servers.acknowledged.values()
    servers.run(POLL_S)
    # By now the route is known, and nobody tries the dead one any more.
    before = servers.network.connects.count(master.address)
    servers.slowest_s = 0
    servers.send(50)
    assert servers.slowest_s < 0.1
    assert servers.network.connects.count(master.address) == before
    # Half of it was the dead master's: who was away meanwhile gets that from its slave.
    servers.until(lambda: seen >= set(servers.acknowledged), 60)


# ----------------------------------------------------------------- name servers


def test_name_servers_that_are_down_stop_nobody(servers: Calm) -> None:
    """One, both, and both back: sends and consumers go on with the routes they have, and a broker that died meanwhile is in no route then."""
    master = servers.broker(MASTER, 0)
    other = servers.broker(OTHER, 0, B, broker_role="ASYNC_MASTER")
    master.broker.store_config.broker_role = "ASYNC_MASTER"
    servers.begin()
    seen = servers.consume("G")
    for host in NAMES:
        servers.kill_name_server(host)
        servers.send(40)
        servers.run(2 * POLL_S)
        servers.send(40)
    assert servers.failures == []
    servers.until(lambda: len(seen) == 160, 30)
    other.end()
    servers.run(1)
    for host in NAMES:
        servers.start_name_server(host)
    # A broker that knew that it was gone asks again within five seconds, one that did not at its next period.
    wanted = {0: master.address}
    servers.until(lambda: any(servers.route_at(host) == wanted for host in NAMES), 6)
    servers.until(lambda: all(servers.route_at(host) == wanted for host in NAMES), 31)
    assert [servers.route_at(host, B) for host in NAMES] == [{}, {}]
    servers.run(POLL_S + 1)
    assert {name for name, _, _ in servers.producer.instance.routes.addresses()} <= {A, B}
    servers.send(40)
    servers.run(SEND_S)
    assert servers.failures == []
    assert set(list(servers.acknowledged.values())[-40:]) == {A}


def test_a_broker_that_nobody_hears_of_is_in_no_route_after_two_minutes() -> None:
    """The longest that a route can be wrong: 120 s of silence, the name server's next look (5 s), the client's next poll."""
    network = SeededNetwork(Random(1))
    network.is_calm = True
    servers = Calm(network)
    servers.broker(MASTER, 0, broker_role="ASYNC_MASTER")
    servers.broker(OTHER, 0, B, broker_role="ASYNC_MASTER")
    servers.begin()
    for host in NAMES:
        network.part(OTHER, host)
    heard_s = network.clock.seconds()
    servers.until(lambda: not any(servers.route_at(host, B) for host in NAMES), 130)
    assert network.clock.seconds() - heard_s > 80
    servers.run(POLL_S + 1)
    sent_before = len(servers.acknowledged)
    servers.send(20)
    servers.run(1)
    assert set(list(servers.acknowledged.values())[sent_before:]) == {A}
    network.heal()
    servers.until(lambda: all(servers.route_at(host, B) for host in NAMES), 40)
    servers.stop()
