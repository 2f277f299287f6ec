"""How far a group is behind in a whole cluster, as mqadmin adds it up over two groups of brokers, of one make or of both."""

from __future__ import annotations

import re
import signal
from collections import Counter
from typing import Any

import pytest

from interop.harness import checks
from interop.harness.clients import Admin, Producer, PushConsumer
from interop.harness.cluster import Cluster, close_all
from interop.harness.columns import by_tier
from interop.harness.jvm import JvmSlots
from interop.harness.mixed import MixedCluster
from interop.harness.puppet import PuppetPool
from interop.harness.waiting import wait_until

pytestmark = pytest.mark.java
SIZE, QUEUES = 160, 2
TOPIC, SEED, FEW, MORE = "Lag", "lag-seed", 60, 41
BEHIND, AHEAD = "lag-behind", "lag-ahead"
QUICK: dict[str, Any] = {
    "persist_offset_ms": 500,
    "poll_namesrv_ms": 1_000,
    "heartbeat_ms": 1_000,
}
OURS, OFFICIAL = "ours", "official"
#: Makes of the brokers. Name servers are ours: there are no more Java processes than are allowed.
MAKES = {"ours": (OURS, OURS), "official": (OFFICIAL, OFFICIAL), "both": (OURS, OFFICIAL)}
CELLS = by_tier(
    [("ours", "5.4.0")],
    [
        (name, line)
        for line in ("5.4.0", "4.9.7")
        for name in MAKES
        if (name, line) != ("ours", "5.4.0")
    ],
)


@pytest.mark.parametrize(("makes", "line"), CELLS)
def test_it_is_the_sum_over_all_brokers(
    makes: str,
    line: str,
    clusters: dict[str, Cluster],
    puppets: PuppetPool,
    jvm_slots: JvmSlots,
) -> None:
    close_all(clusters)
    made_of = {OURS: OURS, OFFICIAL: f"official-{line}"}
    puppet = puppets.get(line, "JSON")
    with (
        puppet.in_use(),
        MixedCluster(jvm_slots, OURS, [made_of[one] for one in MAKES[makes]]) as cluster,
    ):
        admin = Admin(puppet, cluster.namesrv)
        for name, broker in cluster.brokers.items():
            for server in cluster.name_servers:
                Admin(puppet, server).wait_broker(name)
            admin.create_topic(broker.broker_address, TOPIC, QUEUES)
        for server in cluster.name_servers:
            wait_until(
                lambda s=server: set(Admin(puppet, s).route(TOPIC)) == set(cluster.brokers),
                "the topic is on both",
            )
        with (
            Producer(puppet, cluster.namesrv, "lag-p", **QUICK) as producer,
            PushConsumer(puppet, cluster.namesrv, AHEAD, TOPIC, **QUICK) as ahead,
        ):
            producer.send(TOPIC, SEED, FEW, size=SIZE)
            with PushConsumer(puppet, cluster.namesrv, BEHIND, TOPIC, **QUICK) as leaving:
                leaving.wait_assigned(2 * QUEUES)
                checks.nothing_is_lost(leaving.wait_for_all(range(FEW)), range(FEW))
            wait_until(lambda: lags(admin, BEHIND) == dict.fromkeys(cluster.brokers, 0), "none")
            # The one that left stays behind by all of these.
            sent = producer.send(TOPIC, SEED, MORE, size=SIZE, first=FEW).sent
            of_each = Counter(one.broker for one in sent)
            assert set(of_each) == set(cluster.brokers)
            ahead.wait_for_all(range(FEW + MORE))
            for broker in (None, *cluster.brokers):
                if broker is not None:
                    # Each broker remembers its part over a restart.
                    cluster.restart_broker(broker, signal.SIGTERM)
                    admin.wait_broker(broker)
                wait_until(lambda: lags(admin, BEHIND) == dict(of_each), "the group that left")
                nothing = dict.fromkeys(cluster.brokers, 0)
                wait_until(lambda: lags(admin, AHEAD) == nothing, "the group that runs")  # noqa: B023
                assert overview(admin) == {BEHIND: MORE, AHEAD: 0}
        for server in [*cluster.name_servers, cluster.namesrv]:
            Admin(puppet, server).forget()


def lags(admin: Admin, group: str) -> dict[str, int]:
    """How far a group is behind at each broker, as ``consumerProgress -g`` shows it; the total it shows is their sum."""
    shown = str(admin.command("consumerProgress", "-g", group)["output"])
    behind: Counter[str] = Counter()
    for line in shown.splitlines():
        if line.startswith(TOPIC + " "):
            _, broker, _, end, at, *_rest = line.split()
            behind[broker] += 0
            behind[broker] += int(end) - int(at)
    total = re.search(r"Consume Diff Total: (\d+)", shown)
    assert total is None or int(total[1]) == sum(behind.values()), shown
    return dict(behind)


def overview(admin: Admin) -> dict[str, int]:
    """How far each group is behind in the whole cluster, as ``consumerProgress`` shows it without a group."""
    shown = str(admin.command("consumerProgress")["output"])
    rows = [line.split() for line in shown.splitlines() if line.startswith("lag-")]
    return {row[0]: int(row[-1]) for row in rows}
