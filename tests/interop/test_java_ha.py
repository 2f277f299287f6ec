"""Masters and slaves of all makes: the slave's log is the master's, its queues and tables agree, and consumers read on from it.

The matrix {4.9.7, 5.4.0, ours} x {4.9.7, 5.4.0, ours}: short runs take three cells with ours; full runs take all nine pairs,
with synchronous replication and flush and with asynchronous ones.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any

import pytest

from interop.harness import checks
from interop.harness.clients import Admin, Producer, PushConsumer
from interop.harness.cluster import Cluster, OurCluster, close_all, make_cluster
from interop.harness.columns import by_tier
from interop.harness.jvm import JvmSlots
from interop.harness.kinds import TransactionProducer
from interop.harness.puppet import Puppet, PuppetError, PuppetPool
from interop.harness.replicas import (
    GROUP,
    ReplicaGroup,
    compare_stores,
    log_end,
    tables,
    wait_until,
)

pytestmark = pytest.mark.java

OURS, J4, J5 = "ours", "official-4.9.7", "official-5.4.0"
IS_FULL = os.environ.get("INTEROP_TIER") == "full"
COUNT = int(os.environ.get("INTEROP_HA_COUNT", 50_000 if IS_FULL else 300))
SIZE = 300
TURNS = 20 if IS_FULL else 1
PER_TURN = 1_500 if IS_FULL else 300
TORN_PER_TURN = 500 if IS_FULL else 300
ONE_FILE = str(32 * 1024 * 1024)
QUICK: dict[str, Any] = {"poll_namesrv_ms": 2_000, "heartbeat_ms": 2_000}
SEND_MS = 600_000
PATIENT: dict[str, Any] = {**QUICK, "timeout_ms": 10_000}
SYNC = {"brokerRole": "SYNC_MASTER", "flushDiskType": "SYNC_FLUSH"}
ASYNC = {"brokerRole": "ASYNC_MASTER", "flushDiskType": "ASYNC_FLUSH"}
_NUMBERS = count(1)

CELLS = by_tier(
    [(OURS, OURS, "sync"), (J4, OURS, "sync"), (OURS, J5, "sync")],
    [(OURS, OURS, "async"), (OURS, J4, "async"), (J5, OURS, "async"), (J5, OURS, "sync"), (J4, OURS, "async"), (OURS, J5, "async"),
     (OURS, J4, "sync"), (J4, J4, "sync"), (J4, J5, "sync"), (J5, J4, "sync"), (J5, J5, "sync"),
     (J4, J4, "async"), (J4, J5, "async"), (J5, J4, "async"), (J5, J5, "async")],
)  # fmt: skip
WITH_TIMERS = {OURS, J5}
"""Makes that have timed messages and request modes, and copy them."""


@pytest.fixture(params=CELLS, ids=lambda cell: "-".join(cell))
def group(
    request: pytest.FixtureRequest, clusters: dict[str, Cluster], jvm_slots: JvmSlots
) -> Iterator[ReplicaGroup]:
    """A master and its slave."""
    close_all(clusters)
    master, slave, mode = request.param
    request.node.message_count = COUNT
    with make_group(jvm_slots, master, slave, mode) as made:
        request.node.logs = made.logs
        yield made


def make_group(
    slots: JvmSlots, master: str, slave: str, mode: str, torn: int | None = None, **further: str
) -> ReplicaGroup:
    settings = dict(SYNC if mode == "sync" else ASYNC)
    if master == J5:
        settings["inSyncReplicas"] = "2" if mode == "sync" else "1"
    both = {"flushDiskType": settings["flushDiskType"]}
    if {master, slave} <= WITH_TIMERS:
        both["timerWheelEnable"] = "true"
    made = ReplicaGroup(slots, master, slave, {**both, **further}, torn)
    made.master.change_settings(settings)
    return made


@pytest.fixture
def puppet(puppets: PuppetPool) -> Iterator[Puppet]:
    """Clients of the 5.x line."""
    found = puppets.get("5.4.0", "JSON")
    with found.in_use():
        yield found


class Traffic:
    """Messages of all kinds for one group of brokers."""

    def __init__(self, puppet: Puppet, group: ReplicaGroup) -> None:
        number = f"{os.getpid()}-{next(_NUMBERS)}"
        self.puppet = puppet
        self.group = group
        self.topic = f"Ha-{number}"
        self.consumers = f"ha-group-{number}"
        self.seed = f"seed-{number}"
        self.admin = Admin(puppet, group.namesrv)

    def send_all_kinds(self, total: int) -> int:
        """Single messages, batches, delayed and timed ones, transactions; how many of them are due to consumers."""
        namesrv, topic = self.group.namesrv, self.topic
        self.admin.create_topic(self.group.master.broker_address, topic, 4)
        self.admin.wait_route(topic)
        one_by_one = min(total // 4, 500)
        parts = {"sync": one_by_one, "async": total // 2 - one_by_one, "batch": total - total // 2}
        first = 0
        with Producer(self.puppet, namesrv, self.consumers + "-p", **PATIENT) as producer:
            self.wait_sync(producer)
            # Official slaves come seconds later, and an empty one begins with the master's last file. One of the 4.x line sends readers of
            # what is before that back and forth without end.
            wait_caught_up(self.group)
            for mode, count in parts.items():
                self.send(producer, count, mode, first=first)
                first += count
            self.send(producer, 20, first=first, delay_levels=[1, 2])
            first += 20
            if self.has_timers:
                self.send(producer, 10, first=first, timed=["TIMER_DELIVER_MS=+3000"])
                first += 10
                # These are not due before everything is over: they must be counted at both.
                self.send(producer, 5, first=first, timed=["TIMER_DELIVER_MS=+86400000"])
                first += 5
        not_due = set(range(first - 5, first)) if self.has_timers else set()
        outcomes = ["commit", "rollback", "unknown:commit"]
        with TransactionProducer(
            self.puppet, namesrv, self.consumers + "-t", outcomes, **QUICK
        ) as transactions:
            transactions.send(topic, self.seed, 9, first=first, size=SIZE)
            transactions.wait_asked(3)
        # Outcomes go by sequence number: every third is rolled back.
        not_due |= {seq for seq in range(first, first + 9) if seq % 3 == 1}
        self.next = first + 9
        self.due = set(range(self.next)) - not_due
        return len(self.due)

    @property
    def has_timers(self) -> bool:
        return {self.group.master.provider, self.group.slave.provider} <= WITH_TIMERS

    def send(self, producer: Producer, count: int, mode: str = "sync", **args: Any) -> None:
        """All of them are stored. Producers insist: a broker on a busy machine asks them to slow down (SYSTEM_BUSY), and official producers do
        not repeat that by themselves where they do not wait for answers."""
        run = producer.start_sending(
            self.topic, self.seed, count, mode, size=SIZE, insist_ms=SEND_MS, **args
        )
        report = run.join(SEND_MS)
        assert len({sent.seq for sent in report.sent}) == count
        if self.group.master.provider == OURS:
            assert {sent.status for sent in report.sent} == {"SEND_OK"}

    def consume(self, due: set[int]) -> None:
        """Everything that is due comes whole; what came before may come again."""
        with PushConsumer(
            self.puppet, self.group.namesrv, self.consumers, self.topic, **QUICK
        ) as consumer:
            rows = [row for row in consumer.wait_for_all(due) if row.seq in due]
        checks.nothing_is_lost(rows, due)
        checks.bodies_are_whole(rows, self.seed, SIZE)

    def set_request_mode(self) -> None:
        """Something for the table of request modes."""
        shown = self.admin.command(
            "setConsumeMode", "-b", self.group.master.broker_address, "-t", self.topic,
            "-g", self.consumers + "-mode", "-m", "POP", "-q", "3",
        )  # fmt: skip
        assert not shown["exception"], shown

    def consume_at_least(self, due: set[int]) -> None:
        """A new group gets everything that is due; what was never acknowledged may be there as well."""
        with PushConsumer(
            self.puppet, self.group.namesrv, self.consumers + "-new", self.topic, **QUICK
        ) as consumer:
            rows = consumer.wait_for_all(due)
        lost = due - {row.seq for row in rows}
        assert not lost, f"{len(lost)} acknowledged messages are lost, such as {sorted(lost)[:5]}"
        checks.bodies_are_whole(rows, self.seed, SIZE)

    def wait_sync(self, producer: Producer, timeout_s: float = 60.0) -> None:
        """Until a synchronous master has its slave: official slaves begin seconds after they connected."""
        topic = self.topic + "-warm"

        def is_sync() -> bool:
            try:
                return bool(producer.send_text(topic, "warm")["status"] == "SEND_OK")
            except PuppetError:
                # Masters of the 4.x line wait for a slave that has not said anything yet, longer than producers do.
                return False

        wait_until(is_sync, "a slave is in sync", timeout_s)

    def close(self) -> None:
        self.admin.forget()


@pytest.fixture
def traffic(puppet: Puppet, group: ReplicaGroup) -> Iterator[Traffic]:
    """See `Traffic`."""
    Admin(puppet, group.namesrv).wait_broker(GROUP)
    made = Traffic(puppet, group)
    yield made
    made.close()


def wait_caught_up(group: ReplicaGroup, timeout_s: float = 60.0) -> None:
    master, slave = group.master.store, group.slave.store
    wait_until(lambda: log_end(slave) == log_end(master) > 0, "the slave has all", timeout_s)


def wait_tables(group: ReplicaGroup) -> None:
    """5.4.0 slaves ask once a minute, the first time after one."""
    last: list[str] = []

    def agree() -> bool:
        last[:] = differences(tables(group.master.store), tables(group.slave.store))
        return not last

    try:
        wait_until(agree, "the slave's tables are the master's", 150)
    except AssertionError as late:
        late.add_note("\n".join(last))
        raise


def differences(master: dict[str, Any], slave: dict[str, Any]) -> list[str]:
    """Where what slaves copy differs, as far as it belongs to the test; the test's topic must be there."""
    found = [
        f"{kind} {key}: {value} at the master, {slave[kind].get(key)} at the slave"
        for kind in ("topics", "groups", "offsets", "modes", "timed")
        for key, value in master[kind].items()
        if key.startswith(("Ha-", "ha-group")) and slave[kind].get(key) != value
    ]
    found += [
        f"{kind}: {master[kind]} at the master, {slave[kind]} at the slave"
        for kind in ("delays", "timer")
        if master[kind] != slave[kind]
    ]
    if not any(key.startswith("Ha-") for key in slave["topics"]):
        found.append("the slave has no topic")
    return found


class TestMatrix:
    """One cell: a master of one make, a slave of another."""

    def test_the_slave_is_the_masters_copy(self, traffic: Traffic, group: ReplicaGroup) -> None:
        traffic.send_all_kinds(COUNT)
        if traffic.has_timers:
            traffic.set_request_mode()
        traffic.consume(traffic.due)
        wait_caught_up(group)
        if group.slave.provider == J5 and not IS_FULL:
            # Its tables come a minute later, and without them nobody reads from it: that is for full runs.
            group.stop_both()
            compare_stores(group.master.store, group.slave.store)
            return
        wait_tables(group)
        if group.master.provider == OURS:
            shown = traffic.admin.command("haStatus", "-b", group.master.broker_address)
            assert "#InSyncSlaveNum\t1" in shown["output"], shown
        # More that nobody has consumed, then the master dies: consumers go on with the slave.
        later = set(range(traffic.next, traffic.next + 100))
        with Producer(
            traffic.puppet, group.namesrv, traffic.consumers + "-q", **PATIENT
        ) as producer:
            traffic.send(producer, len(later), first=traffic.next)
        wait_caught_up(group)
        group.master.stop_broker(signal.SIGKILL)
        traffic.consume(later)
        # And one that begins with the first message gets all of it from there.
        traffic.consume_at_least(traffic.due | later)
        group.master.start_broker()
        wait_caught_up(group)
        group.stop_both()
        stored = len(traffic.due) + len(later)
        assert compare_stores(group.master.store, group.slave.store) >= stored


class TestFailover:
    """What operators do by hand: the slave's store goes on as the master, the old master comes back as its slave."""

    @pytest.mark.timeout(5_400)
    @pytest.mark.parametrize(
        "torn", by_tier([pytest.param(4711, id="torn")], [pytest.param(None, id="whole")])
    )
    def test_every_acknowledged_message_survives_kills_of_the_master(
        self,
        puppet: Puppet,
        jvm_slots: JvmSlots,
        clusters: dict[str, Cluster],
        request: pytest.FixtureRequest,
        torn: int | None,
    ) -> None:
        """SYNC_MASTER and SYNC_FLUSH: the master is killed under load, the slave is promoted, and the two change places. The link between them
        is a good one, or it is split, delayed, cut and half closed all the time. The log is one file: who begins empty, as its log had what
        nobody else had, takes over all of it."""
        per_turn = PER_TURN if torn is None else TORN_PER_TURN
        request.node.message_count = TURNS * per_turn
        close_all(clusters)
        files = {"mappedFileSizeCommitLog": ONE_FILE}
        with make_group(jvm_slots, OURS, OURS, "sync", torn, **files) as group:
            Admin(puppet, group.namesrv).wait_broker(GROUP)
            traffic = Traffic(puppet, group)
            traffic.admin.create_topic(group.master.broker_address, traffic.topic, 4)
            traffic.admin.wait_route(traffic.topic)
            acknowledged: set[int] = set()
            chance = Random(4711)
            with Producer(puppet, group.namesrv, traffic.consumers + "-p", **QUICK) as producer:
                for turn in range(TURNS):
                    # Over a link that tears, what a turn of a full run has stored takes more than a minute.
                    traffic.wait_sync(producer, 300)
                    # The log does not say what topics there are: a slave asks for that every ten seconds.
                    store = group.slave.store
                    wait_until(lambda s=store: traffic.topic in tables(s)["topics"], "the topic")
                    run = producer.start_sending(
                        traffic.topic, traffic.seed, per_turn, first=turn * per_turn, size=SIZE,
                        insist_ms=90_000,
                    )  # fmt: skip
                    run.wait_attempted(chance.randrange(per_turn // 10, per_turn))
                    group.master.stop_broker(signal.SIGKILL)
                    group.promote_slave()
                    report = run.join()
                    acknowledged |= {s.seq for s in report.sent if s.status == "SEND_OK"}
                    # The old master may have what nobody else has: it must not go on from there.
                    group.old_master_becomes_slave()
            traffic.consume_at_least(acknowledged)
            wait_caught_up(group, 300)
            group.stop_both()
            compare_stores(group.master.store, group.slave.store)
            traffic.close()


if IS_FULL:

    class TestStatuses:
        """What an official producer hears of a synchronous master whose slave is silent, or gone. The official master is the control."""

        @pytest.mark.parametrize("line", ["5.4.0", "4.9.7"])
        @pytest.mark.parametrize("master", [OURS, J4])
        def test_producers_hear_what_became_of_the_slave(
            self,
            puppets: PuppetPool,
            jvm_slots: JvmSlots,
            clusters: dict[str, Cluster],
            master: str,
            line: str,
        ) -> None:
            close_all(clusters)
            puppet = puppets.get(line, "JSON")
            with puppet.in_use(), make_group(jvm_slots, master, OURS, "sync") as group:
                Admin(puppet, group.namesrv).wait_broker(GROUP)
                traffic = Traffic(puppet, group)
                topic = traffic.topic + "-warm"
                with Producer(puppet, group.namesrv, traffic.consumers + "-p", **PATIENT) as told:
                    traffic.wait_sync(told)
                    assert isinstance(group.slave, OurCluster)
                    slave = group.slave.broker_pid
                    os.kill(slave, signal.SIGSTOP)
                    try:
                        assert told.send_text(topic, "silent")["status"] == "FLUSH_SLAVE_TIMEOUT"
                    finally:
                        os.kill(slave, signal.SIGCONT)
                    traffic.wait_sync(told)
                    group.slave.stop_broker(signal.SIGTERM)
                    assert told.send_text(topic, "gone")["status"] == "SLAVE_NOT_AVAILABLE"
                    group.slave.start_broker()
                    traffic.wait_sync(told)
                traffic.close()


class TestTwoGroups:
    """Two groups of brokers; the master of one dies under load."""

    @pytest.mark.parametrize("other_make", by_tier([OURS], [J5, J4]))
    def test_producers_go_on_with_the_other_group_and_consumers_with_the_slave(
        self,
        puppet: Puppet,
        jvm_slots: JvmSlots,
        clusters: dict[str, Cluster],
        request: pytest.FixtureRequest,
        other_make: str,
    ) -> None:
        """Nobody insists: what an official producer does by itself within its three seconds is enough for every message."""
        count = 10_000 if IS_FULL else 300
        request.node.message_count = count
        close_all(clusters)
        with make_group(jvm_slots, OURS, OURS, "sync") as group:
            settings = {
                "brokerName": "other",
                "namesrvAddr": group.namesrv,
                "registerNameServerPeriod": "10000",
            }
            with make_cluster(other_make, jvm_slots, 0, settings) as other:
                traffic = Traffic(puppet, group)
                for name, broker in ((GROUP, group.master), ("other", other)):
                    traffic.admin.wait_broker(name)
                    traffic.admin.create_topic(broker.broker_address, traffic.topic, 4)
                traffic.admin.wait_route(traffic.topic)
                store = group.slave.store
                wait_until(lambda: traffic.topic in tables(store)["topics"], "the topic")
                with Producer(puppet, group.namesrv, traffic.consumers + "-p", **QUICK) as producer:
                    traffic.wait_sync(producer)
                    run = producer.start_sending(traffic.topic, traffic.seed, count, size=SIZE)
                    run.wait_attempted(count // 3)
                    group.master.stop_broker(signal.SIGKILL)
                    report = run.join(SEND_MS)
                checks.all_was_acknowledged(report, count)
                assert {sent.broker for sent in report.sent} == {GROUP, "other"}
                assert {sent.broker for sent in report.sent[-count // 3 :]} == {"other"}
                traffic.consume(set(range(count)))
                traffic.close()
