"""Official clients that come through the official proxy of 5.4.0 pop in order: from our brokers and from official ones."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from interop.harness import checks
from interop.harness.clients import Admin, Producer
from interop.harness.cluster import Cluster, close_all, make_cluster
from interop.harness.jvm import JvmSlots
from interop.harness.proxied import Delivery, FifoConsumer, Proxy
from interop.harness.puppet import PuppetPool

pytestmark = [pytest.mark.java, pytest.mark.short_columns("none")]
SIZE, SEED, FEW, FAIL_EVERY, KEYS = 160, "fifo-seed", 40, 5, 7
INSIST_MS = 120_000
QUICK: dict[str, Any] = {"poll_namesrv_ms": 1_000, "heartbeat_ms": 1_000}


def in_order(deliveries: list[Delivery]) -> None:
    """Of each key, first deliveries come as the messages were sent; what was not acknowledged any more may come again."""
    last: dict[int, int] = {}
    known: set[int] = set()
    for delivery in deliveries:
        if delivery.seq not in known:
            key = delivery.seq % KEYS
            assert delivery.seq > last.get(key, -1), f"{delivery} came after {last[key]}"
            last[key] = delivery.seq
        known.add(delivery.seq)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
@pytest.mark.parametrize("servers", ["ours", "official-5.4.0"])
def test_they_come_in_order_whoever_dies(
    servers: str,
    how: str,
    clusters: dict[str, Cluster],
    puppets: PuppetPool,
    jvm_slots: JvmSlots,
) -> None:
    topic, group = "Fifo", "fifo-group"
    close_all(clusters)
    puppet = puppets.get("5.4.0", "JSON")
    with puppet.in_use(), make_cluster(servers, jvm_slots) as cluster:
        admin = Admin(puppet, cluster.namesrv)
        admin.wait_broker(cluster.broker_name)
        at = ("-b", cluster.broker_address)
        for words in (
            ("updateTopic", *at, "-t", topic, "-r", "2", "-w", "2", "-a", "+message.type=FIFO"),
            ("updateSubGroup", *at, "-g", group, "-o", "true"),
        ):
            assert "success" in admin.command(*words)["output"], words
        admin.wait_route(topic)
        with (
            Producer(puppet, cluster.namesrv, "fifo-p", **QUICK) as producer,
            Proxy(cluster) as proxy,
        ):

            def send(first: int) -> None:
                wanted = {"size": SIZE, "order_keys": KEYS, "insist_ms": INSIST_MS}
                producer.send(topic, SEED, FEW, "ordered", first=first, **wanted)

            with FifoConsumer(proxy, group, topic, FAIL_EVERY) as dying:
                send(0)
                dying.wait_for_all(set(range(FEW // 2)))
                dying.kill()
                before = dying.deliveries()
            with FifoConsumer(proxy, group, topic, FAIL_EVERY) as other:
                rest = set(range(FEW)) - {delivery.seq for delivery in before}
                send(FEW)
                other.wait_for_all(rest)
                cluster.restart_broker(signal.Signals[how])
                send(2 * FEW)
                other.wait_for_all({*rest, *range(FEW, 3 * FEW)})
                # What fails is tried again, here or where it came before.
                again = {seq for seq in range(3 * FEW) if seq % FAIL_EVERY == FAIL_EVERY - 1}
                done = {delivery.seq for delivery in before if delivery.attempt > 1}
                after = other.wait_for_all(again - done, attempt=2)
        admin.forget()
    for deliveries in (before, after):
        for one in deliveries:
            assert one.digest == checks.expected_digest(SEED, one.seq, SIZE)
        in_order(deliveries)
    everything = before + after
    assert {delivery.seq for delivery in everything} == set(range(3 * FEW))
