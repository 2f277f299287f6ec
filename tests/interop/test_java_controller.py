"""The official controller elects among brokers of which any may be ours: the master is killed, another one goes on, the old one follows it."""

from __future__ import annotations

import os
import signal
import statistics
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from interop.harness import checks
from interop.harness.clients import Admin, Producer, PushConsumer
from interop.harness.cluster import Cluster, close_all
from interop.harness.columns import by_tier
from interop.harness.controlled import GROUP, ControlledGroup, stop_all
from interop.harness.jvm import JvmSlots
from interop.harness.puppet import Puppet, PuppetPool
from interop.harness.replicas import compare_stores, log_end
from interop.harness.waiting import wait_until

pytestmark = pytest.mark.java

OURS, J5 = "ours", "official-5.4.0"
IS_FULL = os.environ.get("INTEROP_TIER") == "full"
COUNT = 3_000 if IS_FULL else 300
QUICK: dict[str, Any] = {"poll_namesrv_ms": 1_000, "heartbeat_ms": 2_000}
RATIO = 1.2
TURNS = 5
_NUMBERS = count(1)
CELLS = by_tier([(OURS, OURS, J5)], [(J5, OURS, OURS), (OURS, OURS, OURS)])


@pytest.fixture
def puppet(puppets: PuppetPool) -> Iterator[Puppet]:
    """Clients of the 5.x line."""
    found = puppets.get("5.4.0", "JSON")
    with found.in_use():
        yield found


@pytest.mark.parametrize("makes", CELLS, ids="-".join)
def test_another_master_is_elected_and_the_old_one_follows(
    makes: tuple[str, ...], puppet: Puppet, jvm_slots: JvmSlots, clusters: dict[str, Cluster]
) -> None:
    close_all(clusters)
    topic = f"Controlled-{os.getpid()}-{next(_NUMBERS)}"
    with ControlledGroup(jvm_slots, makes) as group:
        try:
            _change_masters(group, puppet, topic)
        except BaseException as failure:
            failure.add_note(group.logs())
            raise


def _operate(group: ControlledGroup, admin: Admin) -> None:
    at, cluster = ("-a", group.controller.address), ("-c", "InteropCluster")
    first, second = group.brokers
    assert group.master is first
    # The command of 5.4.0 cannot read the controller's answer (numbers as names in its JSON); the controller did as it was told.
    admin.command("electMaster", *at, *cluster, "-bn", GROUP, "-b", "2")
    wait_until(lambda: group.controller.rule().master == second.broker_address, "it is elected")
    assert group.controller.rule().epoch == 2
    group.wait_members(2)
    wait_until(lambda: group.takes(second.broker_address), "the elected one takes messages")
    assert not group.takes(first.broker_address), "the other one is a slave"
    key = "scanNotActiveBrokerInterval"
    admin.command("updateControllerConfig", *at, "-k", key, "-v", "1500")
    assert "1500" in admin.command("getControllerConfig", *at)["output"]
    shown = admin.command("getControllerMetaData", *at)["output"]
    assert group.controller.address in shown, shown
    # A slave is gone for good: the controller forgets it, and a new one gets an id of its own.
    first.stop_broker(signal.SIGTERM)
    group.wait_members(1)
    admin.command("cleanBrokerMetadata", *at, *cluster, "-bn", GROUP, "-b", "1")
    shown = admin.command("getSyncStateSet", *at, "-b", GROUP)["output"]
    assert first.broker_address not in shown, shown
    (first.store / "brokerIdentity").unlink()
    first.start_broker()
    assert group.wait_members(2).members == {2, 3}


def _change_masters(group: ControlledGroup, puppet: Puppet, topic: str) -> None:
    admin = Admin(puppet, group.namesrv)
    admin.wait_broker(GROUP)
    admin.create_topic(group.master.broker_address, topic, 4)
    admin.wait_route(topic)
    acknowledged: set[int] = set()
    with Producer(puppet, group.namesrv, topic + "-p", **QUICK) as producer:
        report = producer.send(topic, topic, COUNT, size=200)
        checks.all_was_acknowledged(report, COUNT)
        run = producer.start_sending(topic, topic, COUNT, first=COUNT, size=200, insist_ms=90_000)
        run.wait_attempted(COUNT // 3)
        old, _ = group.kill_master()
        report = run.join()
    acknowledged = {s.seq for s in report.sent if s.status == "SEND_OK"} | set(range(COUNT))
    assert len(acknowledged) > COUNT
    if old.provider == OURS:
        # So that there surely is something to cut.
        group.give_a_tail(old, topic, 20)
    old.start_broker()
    group.wait_members(len(group.brokers))
    with PushConsumer(puppet, group.namesrv, topic + "-c", topic, **QUICK) as consumer:
        consumer.wait_for_all(acknowledged)
    shown = admin.command("getSyncStateSet", "-a", group.controller.address, "-b", GROUP)
    assert shown["output"].count("\nInSyncReplica:") == len(group.brokers), shown
    shown = admin.command("getBrokerEpoch", "-n", group.namesrv, "-b", GROUP)
    assert "EpochEntry{epoch=2, " in shown["output"], shown
    wait_until(
        lambda: len({log_end(broker.store) for broker in group.brokers}) == 1, "all have one log"
    )
    master, *slaves = stop_all(group)
    for slave in slaves:
        compare_stores(master, slave)


if IS_FULL:

    def test_operators_have_the_controller_elect_change_and_forget(
        puppet: Puppet, jvm_slots: JvmSlots, clusters: dict[str, Cluster]
    ) -> None:
        close_all(clusters)
        with ControlledGroup(jvm_slots, (OURS, OURS)) as group:
            try:
                _operate(group, Admin(puppet, group.namesrv))
            except BaseException as failure:
                failure.add_note(group.logs())
                raise

    def test_brokers_find_the_controller_that_leads(clusters: dict[str, Cluster]) -> None:
        close_all(clusters)
        with ControlledGroup(JvmSlots(3), (OURS, OURS), controllers=3) as group:
            try:
                group.controller.end()
                group.wait_leader()
                assert group.wait_members(2).master is not None
                old, _ = group.kill_master()
                old.start_broker()
                group.wait_members(2)
            except BaseException as failure:
                failure.add_note(group.logs())
                raise

    def test_a_mixed_trio_needs_no_longer_than_the_official_one(
        puppet: Puppet, clusters: dict[str, Cluster]
    ) -> None:
        close_all(clusters)
        official = _median_s((J5, J5, J5))
        mixed = _median_s((OURS, OURS, J5))
        print(f"another master after {mixed:.2f} s, officially {official:.2f} s")
        assert mixed <= RATIO * official


def _median_s(makes: tuple[str, ...]) -> float:
    """Seconds from the kill of a master to the first message that another one takes."""
    times = []
    with ControlledGroup(JvmSlots(5), makes) as group:
        for _ in range(TURNS):
            old, seconds = group.kill_master()
            times.append(seconds)
            old.start_broker()
            group.wait_members(len(makes))
    return statistics.median(times)
