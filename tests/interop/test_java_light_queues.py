"""Messages for light queues (LMQ) from official producers, read by official consumers, with a broker that goes in the middle."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from interop.harness import checks
from interop.harness.clients import Admin, Producer
from interop.harness.cluster import Cluster, close_all, make_cluster
from interop.harness.columns import Column, by_tier
from interop.harness.jvm import JvmSlots
from interop.harness.puppet import Puppet, PuppetPool

pytestmark = [pytest.mark.java, pytest.mark.short_columns("ours/5.4.0-json")]
SETTINGS = {"enableLmq": "true", "enableMultiDispatch": "true"}
TOPIC, SEED, SIZE, FEW = "Parent", "light-seed", 160, 40
ONE, TWO = "%LMQ%one", "%LMQ%two"
QUICK: dict[str, Any] = {"poll_namesrv_ms": 1_000, "heartbeat_ms": 1_000}


@pytest.fixture
def lit(
    column: Column,
    clusters: dict[str, Cluster],
    puppets: PuppetPool,
    jvm_slots: JvmSlots,
) -> Iterator[tuple[Cluster, Puppet]]:
    """A broker with light queues."""
    close_all(clusters)
    puppet = puppets.get(column.line, column.serialize)
    with (
        puppet.in_use(),
        make_cluster(column.servers, jvm_slots, broker_settings=SETTINGS) as cluster,
    ):
        admin = Admin(puppet, cluster.namesrv)
        admin.wait_broker(cluster.broker_name)
        yield cluster, puppet
        admin.forget()


@pytest.mark.parametrize("how", by_tier(["SIGKILL"], ["SIGTERM"]))
def test_each_light_queue_has_its_messages_in_order(
    lit: tuple[Cluster, Puppet], how: str, column: Column
) -> None:
    cluster, puppet = lit
    admin = Admin(puppet, cluster.namesrv)
    with Producer(puppet, cluster.namesrv, "light-p", **QUICK) as producer:
        admin.create_topic(cluster.broker_address, TOPIC, 2)
        admin.wait_route(TOPIC)

        def send(first: int, *queues: str) -> None:
            names = ",".join(queues)
            producer.send(
                TOPIC,
                SEED,
                FEW,
                first=first,
                size=SIZE,
                properties=[f"INNER_MULTI_DISPATCH={names}"] if names else [],
                insist_ms=60_000,
            )

        send(0, ONE, TWO)
        send(FEW, ONE)
        cluster.restart_broker(signal.Signals[how])
        admin.wait_broker(cluster.broker_name)
        send(2 * FEW, TWO, ONE)
        send(3 * FEW)
    ones = admin.read_queue(ONE, cluster.broker_name, TOPIC)
    twos = admin.read_queue(TWO, cluster.broker_name, TOPIC)
    due = {ONE: range(3 * FEW), TWO: [*range(FEW), *range(2 * FEW, 3 * FEW)]}
    for name, rows in ((ONE, ones), (TWO, twos)):
        checks.bodies_are_whole(rows, SEED, SIZE)
        checks.nothing_is_lost(rows, due[name])
        assert [row.seq for row in rows] == sorted(due[name])
    everything = admin.read_topics([TOPIC])[TOPIC]
    checks.nothing_is_lost(everything, range(4 * FEW))
    checks.nothing_came_twice(everything)
    # Neither is a topic that operators see.
    assert "%LMQ%" not in admin.command("topicList")["output"]
