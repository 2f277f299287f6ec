"""Static topics with the official tool and official clients of 5.x: a logical queue moves between brokers, nothing is lost or renumbered."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop.harness import checks
from interop.harness.clients import Admin, Producer, PushConsumer
from interop.harness.cluster import Cluster, close_all
from interop.harness.columns import by_tier
from interop.harness.jvm import JvmSlots
from interop.harness.mixed import MixedCluster
from interop.harness.puppet import Puppet, PuppetPool

pytestmark = pytest.mark.java

LINE = "5.4.0"
OURS, OFFICIAL = "ours", f"official-{LINE}"
#: Name servers, then the broker that the queues move from, and the one that they move to.
CELLS = by_tier(
    [(OURS, OURS, OURS), (OURS, OURS, OFFICIAL), (OURS, OFFICIAL, OFFICIAL)],
    [(OFFICIAL, OFFICIAL, OURS), (OFFICIAL, OURS, OURS)],
)
COUNT = 200
QUEUES = 4
SIZE = 160
QUICK: dict[str, Any] = {"poll_namesrv_ms": 2_000, "heartbeat_ms": 2_000}
INSIST_MS = 60_000


@pytest.fixture(params=CELLS, ids=lambda cell: "-".join(cell))
def pair(
    request: pytest.FixtureRequest,
    clusters: dict[str, Cluster],
    puppets: PuppetPool,
    jvm_slots: JvmSlots,
) -> Iterator[tuple[MixedCluster, Puppet]]:
    """Two brokers."""
    close_all(clusters)
    names, *brokers = request.param
    puppet = puppets.get(LINE, "JSON")
    with puppet.in_use(), MixedCluster(jvm_slots, names, brokers) as cluster:
        yield cluster, puppet


def told(admin: Admin, *words: str) -> str:
    """What a command of the official tool prints; it must not end with an exception."""
    result = admin.command(*words)
    assert not result["exception"], result["output"]
    output: str = result["output"]
    return output


def told_by_ours(cluster: MixedCluster, *words: str) -> str:
    """What ``txrocketmq admin`` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "txrocketmq", "admin", *words, "-n", cluster.namesrv],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("tool", by_tier(["mqadmin"], ["txrocketmq admin"]))
def test_queues_move_and_keep_their_numbers(pair: tuple[MixedCluster, Puppet], tool: str) -> None:
    cluster, puppet = pair
    topic, seed = "Static", "static-seed"
    first, second = cluster.brokers
    admin = Admin(puppet, cluster.namesrv)

    def operate(*words: str) -> str:
        return told(admin, *words) if tool == "mqadmin" else told_by_ours(cluster, *words)

    wait_registered(cluster, puppet)
    operate("updateStaticTopic", "-t", topic, "-qn", str(QUEUES), "-b", first)
    for server in cluster.name_servers:
        Admin(puppet, server).wait_route(topic)
    with (
        Producer(puppet, cluster.namesrv, "static-p", **QUICK) as producer,
        PushConsumer(puppet, cluster.namesrv, "static-c", topic, **QUICK) as consumer,
    ):
        before = producer.send(topic, seed, COUNT, size=SIZE, insist_ms=INSIST_MS)
        operate("remappingStaticTopic", "-t", topic, "-b", second)
        after = producer.send(topic, seed, COUNT, first=COUNT, size=SIZE, insist_ms=INSIST_MS)
        rows = consumer.wait_for_all(range(2 * COUNT))
        # A newcomer reads the old stretches through the broker that leads now.
        with PushConsumer(puppet, cluster.namesrv, "static-late", topic, **QUICK) as late:
            again = late.wait_for_all(range(2 * COUNT))
    for found in (rows, again):
        checks.bodies_are_whole(found, seed, SIZE)
        checks.nothing_is_lost(found, range(2 * COUNT))
    places = [(sent.queue, sent.offset) for sent in (*before.sent, *after.sent) if sent.offset >= 0]
    assert len(set(places)) == len(places), "a place in a logical queue was given twice"
    assert {queue for queue, _ in places} == set(range(QUEUES))
    ends = {
        queue: max(offset for number, offset in places if number == queue)
        for queue in range(QUEUES)
    }
    for sent in before.sent:
        assert sent.offset < ends[sent.queue]
    status = told(admin, "topicStatus", "-t", topic)
    assert "__syslo__global__" in status
    forget(cluster, puppet)


def wait_registered(cluster: MixedCluster, puppet: Puppet) -> None:
    """Wait until all name servers list both brokers."""
    for server in cluster.name_servers:
        for broker in cluster.brokers:
            Admin(puppet, server).wait_broker(broker)


def forget(cluster: MixedCluster, puppet: Puppet) -> None:
    """Close the puppet's admin clients."""
    for server in [*cluster.name_servers, cluster.namesrv]:
        Admin(puppet, server).forget()


@pytest.mark.short_columns("none")
def test_logical_queues_are_those_they_were_after_a_kill(pair: tuple[MixedCluster, Puppet]) -> None:
    cluster, puppet = pair
    topic, seed = "Static", "static-seed"
    first, second = cluster.brokers
    admin = Admin(puppet, cluster.namesrv)
    wait_registered(cluster, puppet)
    told(admin, "updateStaticTopic", "-t", topic, "-qn", str(QUEUES), "-b", f"{first},{second}")
    for server in cluster.name_servers:
        Admin(puppet, server).wait_route(topic)
    with (
        Producer(puppet, cluster.namesrv, "static-p", **QUICK) as producer,
        PushConsumer(puppet, cluster.namesrv, "static-c", topic, **QUICK) as consumer,
    ):
        sent = producer.send(topic, seed, COUNT, size=SIZE, insist_ms=INSIST_MS).sent
        cluster.restart_broker(first, signal.SIGKILL)
        sent += producer.send(topic, seed, COUNT, first=COUNT, size=SIZE, insist_ms=INSIST_MS).sent
        # The tool takes a broker that is not listed yet for one that has no queues.
        wait_registered(cluster, puppet)
        told(admin, "remappingStaticTopic", "-t", topic, "-b", second)
        cluster.restart_broker(first, signal.SIGKILL)
        cluster.restart_broker(second, signal.SIGKILL)
        sent += producer.send(
            topic, seed, COUNT, first=2 * COUNT, size=SIZE, insist_ms=INSIST_MS
        ).sent
        rows = consumer.wait_for_all(range(3 * COUNT))
    checks.bodies_are_whole(rows, seed, SIZE)
    checks.nothing_is_lost(rows, range(3 * COUNT))
    places = [(one.queue, one.offset) for one in sent if one.offset >= 0]
    assert len(set(places)) == len(places), "a place in a logical queue was given twice"
    assert {queue for queue, _ in places} == set(range(QUEUES))
    forget(cluster, puppet)
