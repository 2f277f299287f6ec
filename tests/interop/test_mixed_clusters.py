"""Servers of both makes together: names from one, brokers of the other, and both side by side, while each of them goes and comes back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from interop.harness import checks
from interop.harness.clients import Admin, Producer, PushConsumer, Row
from interop.harness.cluster import Cluster, close_all
from interop.harness.columns import DEFAULT_COUNT, by_tier
from interop.harness.jvm import JvmSlots
from interop.harness.mixed import MixedCluster
from interop.harness.puppet import Puppet, PuppetPool

pytestmark = pytest.mark.java

SIZE = 160
QUEUES = 4
QUICK = {"poll_namesrv_ms": 2_000, "heartbeat_ms": 2_000}
INSIST_MS = 90_000

OURS, OFFICIAL = "ours", "official"
SIDE_BY_SIDE = (OURS, (OURS, OFFICIAL))
#: Make of the name servers, makes of the brokers.
MIXTURES = {
    "official broker, our names": (OURS, (OFFICIAL,)),
    "our broker, official names": (OFFICIAL, (OURS,)),
    "both brokers, our names": SIDE_BY_SIDE,
    "both brokers, official names": (OFFICIAL, (OURS, OFFICIAL)),
}
CELLS = by_tier(
    [("both brokers, our names", "5.4.0")],
    [(name, line) for line in ("5.4.0", "4.9.7") for name in MIXTURES
     if (name, line) != ("both brokers, our names", "5.4.0")],
)  # fmt: skip


def made_of(word: str, line: str) -> str:
    return OURS if word == OURS else f"{OFFICIAL}-{line}"


class Flow:
    """Messages that go on while servers come and go."""

    def __init__(self, producer: Producer, topic: str, seed: str) -> None:
        self._producer = producer
        self._topic = topic
        self._seed = seed
        self.sent = 0

    def while_sending(self, count: int, event: object = None) -> None:
        """Send ``count`` messages, and call the event when half of them were tried."""
        run = self._producer.start_sending(
            self._topic, self._seed, count, first=self.sent, size=SIZE, insist_ms=INSIST_MS
        )
        if callable(event):
            run.wait_attempted(count // 2)
            event()
        report = run.join()
        assert len({sent.seq for sent in report.sent}) == count
        self.sent += count


@pytest.fixture(scope="module", params=CELLS, ids=lambda cell: f"{cell[0]}, {cell[1]}")
def mixture(
    request: pytest.FixtureRequest,
    clusters: dict[str, Cluster],
    puppets: PuppetPool,
    jvm_slots: JvmSlots,
) -> Iterator[tuple[MixedCluster, Puppet]]:
    """The cluster under test, with clients of the same line as its official servers."""
    close_all(clusters)
    name, line = request.param
    names, brokers = MIXTURES[name]
    puppet = puppets.get(line, "JSON")
    with (
        puppet.in_use(),
        MixedCluster(
            jvm_slots, made_of(names, line), [made_of(word, line) for word in brokers]
        ) as cluster,
    ):
        yield cluster, puppet


def all_know_all(puppet: Puppet, cluster: MixedCluster) -> None:
    """Every name server lists every broker."""
    for server in cluster.name_servers:
        for broker in cluster.brokers:
            Admin(puppet, server).wait_broker(broker)


def test_nothing_is_lost_while_servers_come_and_go(
    mixture: tuple[MixedCluster, Puppet],
) -> None:
    cluster, puppet = mixture
    count = int(os.environ.get("INTEROP_COUNT", DEFAULT_COUNT))
    part = -(-count // (4 + len(cluster.brokers)))
    topic, seed = "Mixed", "mixed-seed"
    all_know_all(puppet, cluster)
    admin = Admin(puppet, cluster.namesrv)
    for broker in cluster.brokers.values():
        admin.create_topic(broker.broker_address, topic, QUEUES)
    for server in cluster.name_servers:
        Admin(puppet, server).wait_route(topic)
    queues = QUEUES * len(cluster.brokers)
    with (
        Producer(puppet, cluster.namesrv, "mixed-p", **QUICK) as producer,
        PushConsumer(puppet, cluster.namesrv, "mixed-c", topic, **QUICK) as consumer,
    ):
        consumer.wait_assigned(queues)
        flow = Flow(producer, topic, seed)
        flow.while_sending(part)
        flow.while_sending(part, lambda: cluster.kill_name_server(0))
        flow.while_sending(part, lambda: cluster.start_name_server(0))
        all_know_all(puppet, cluster)
        flow.while_sending(part, lambda: cluster.kill_name_server(1))
        for number, broker in enumerate(cluster.brokers):
            how = signal.SIGTERM if number else signal.SIGKILL
            flow.while_sending(part, lambda b=broker, h=how: cluster.restart_broker(b, h))
            Admin(puppet, cluster.name_servers[0]).wait_broker(broker)
        cluster.start_name_server(1)
        all_know_all(puppet, cluster)
        rows = consumer.wait_for_all(range(flow.sent))
        later = newcomers(cluster, puppet, part)
    everything_came(rows, flow.sent, seed, set(cluster.brokers))
    checks.nothing_is_lost(later, range(part))
    for server in [*cluster.name_servers, cluster.namesrv]:
        Admin(puppet, server).forget()


def newcomers(cluster: MixedCluster, puppet: Puppet, count: int) -> list[Row]:
    """A topic of its own by automatic creation, a producer and a consumer that were not there before."""
    topic, seed = "MixedLater", "later-seed"
    with Producer(puppet, cluster.namesrv, "later-p", **QUICK) as producer:
        producer.send(topic, seed, count, size=SIZE, insist_ms=INSIST_MS)
        with PushConsumer(puppet, cluster.namesrv, "later-c", topic, **QUICK) as consumer:
            return consumer.wait_for_all(range(count))


def everything_came(rows: list[Row], count: int, seed: str, brokers: set[str]) -> None:
    checks.nothing_is_lost(rows, range(count))
    checks.bodies_are_whole(rows, seed, SIZE)
    checks.queues_are_contiguous(rows)
    assert {row.broker for row in rows} == brokers
