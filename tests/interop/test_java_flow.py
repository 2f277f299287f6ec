"""What a broker says to official clients that are too many, too large or too slow, and what becomes of their messages."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from interop.harness import checks
from interop.harness.cell import Cell
from interop.harness.clients import Admin, Producer, PushConsumer, Row
from interop.harness.cluster import Cluster, close_all, make_cluster
from interop.harness.columns import Column, by_tier
from interop.harness.jvm import JvmSlots
from interop.harness.puppet import Puppet, PuppetError, PuppetPool
from interop.harness.replicas import ReplicaGroup
from tests.interop.test_java_kinds_of_queues import Link

CI = "ours/5.4.0-json"
pytestmark = pytest.mark.java
SIZE = 160
QUICK: dict[str, Any] = {"poll_namesrv_ms": 1_000, "heartbeat_ms": 1_000}
STRICT = {
    "disableConsumeIfConsumerReadSlowly": "true",
    "consumerFallbehindThreshold": "20000",
}
BUSY = re.compile(
    r"CODE: 2  DESC: \[(TIMEOUT_CLEAN_QUEUE|PCBUSY_CLEAN_QUEUE)\]broker busy, start flow control for a while, "
    r"period in queue: \d+ms, size of queue: \d+"
)


def counted(rows: list[Row]) -> list[Row]:
    """Without the message that made the topic."""
    return [row for row in rows if row.seq >= 0]


@pytest.mark.short_columns(CI)
class TestLimits:
    """Keys that operators change while clients send."""

    def test_what_waited_too_long_is_refused_and_not_stored(self, cell: Cell) -> None:
        count = min(cell.count, 5_000)
        with Producer(
            cell.puppet, cell.namesrv, cell.group + "-p", retries=0, timeout_ms=10_000, **QUICK
        ) as producer:
            producer.send_text(cell.topic, "makes the topic")
            cell.admin.wait_route(cell.topic)
            # Whoever waits at all has waited too long.
            cell.configure(waitTimeMillsInSendQueue="0")
            try:
                run = producer.start_sending(cell.topic, cell.seed, count, "async", size=SIZE)
                report = run.report()
            finally:
                cell.configure(waitTimeMillsInSendQueue="200")
            assert report.errors, "nothing was refused"
            for _, told, code in report.errors:
                assert code == 2, told
                assert BUSY.search(told), told
            taken = {sent.seq for sent in report.sent}
            assert taken.isdisjoint(seq for seq, _, _ in report.errors)
            assert len(taken) + len(report.errors) == count
            # What was refused is sent again, now that there is time.
            for seq, _, _ in report.errors[:50]:
                producer.send(cell.topic, cell.seed, 1, first=seq, size=SIZE, insist_ms=60_000)
            again = [seq for seq, _, _ in report.errors[:50]]
            cell.cluster.restart_broker(signal.SIGKILL)
            cell.admin.wait_broker(cell.cluster.broker_name)
            cell.admin.wait_route(cell.topic)
            stored = counted(cell.admin.read_topics([cell.topic])[cell.topic])
        checks.nothing_is_lost(stored, taken | set(again))
        checks.nothing_came_twice(stored)
        checks.bodies_are_whole(stored, cell.seed, SIZE)

    def test_a_body_that_is_too_large_is_refused_with_the_limit(self, cell: Cell) -> None:
        limit = 3_000
        with Producer(
            cell.puppet,
            cell.namesrv,
            cell.group + "-p",
            retries=0,
            max_message_bytes=2_999,
            **QUICK,
        ) as careful:
            careful.send_text(cell.topic, "makes the topic")
            cell.admin.wait_route(cell.topic)
            with pytest.raises(
                PuppetError, match="the message body size over max value, MAX: 2999"
            ):
                careful.send_text(cell.topic, "x" * limit)
        cell.configure(maxMessageSize=str(limit))
        try:
            with Producer(
                cell.puppet, cell.namesrv, cell.group + "-q", retries=0, **QUICK
            ) as producer:
                producer.send(cell.topic, cell.seed, 1, size=limit)
                with pytest.raises(PuppetError) as refused:
                    producer.send_text(cell.topic, "x" * (limit + 1))
        finally:
            cell.configure(maxMessageSize=str(4 * 1024 * 1024))
        assert refused.value.code == 13
        assert "the message is illegal, maybe msg body or properties length not matched" in str(
            refused.value
        )
        assert str(limit) in str(refused.value)
        rows = counted(cell.admin.read_topics([cell.topic])[cell.topic])
        checks.nothing_is_lost(rows, [0])
        checks.bodies_are_whole(rows, cell.seed, limit)


@pytest.mark.short_columns("none")
class TestSlowConsumers:
    """A group that reads far behind is switched off, and on again by an operator; brokers look every three minutes."""

    @pytest.fixture
    def strict(
        self,
        column: Column,
        clusters: dict[str, Cluster],
        puppets: PuppetPool,
        jvm_slots: JvmSlots,
    ) -> Iterator[tuple[Cluster, Puppet]]:
        """A broker that does so."""
        close_all(clusters)
        puppet = puppets.get(column.line, column.serialize)
        with (
            puppet.in_use(),
            make_cluster(column.servers, jvm_slots, broker_settings=STRICT) as cluster,
        ):
            admin = Admin(puppet, cluster.namesrv)
            admin.wait_broker(cluster.broker_name)
            yield cluster, puppet
            admin.forget()

    @pytest.mark.only_columns(
        *by_tier(
            ["none"],
            ["ours/5.4.0-json", "official-5.4.0/5.4.0-json", "official-4.9.7/4.9.7-json"],
        )
    )
    def test_a_slow_group_is_switched_off_until_an_operator_says_otherwise(
        self, strict: tuple[Cluster, Puppet]
    ) -> None:
        cluster, puppet = strict
        topic, group, count = "Slow", "slow-group", 400
        admin = Admin(puppet, cluster.namesrv)
        with Producer(puppet, cluster.namesrv, "slow-p", **QUICK) as producer:
            admin.create_topic(cluster.broker_address, topic, 1)
            admin.wait_route(topic)
            producer.send(topic, "slow-seed", count, size=SIZE)
        admin.command("updateSubGroup", "-b", cluster.broker_address, "-g", group)
        deadline = time.monotonic() + 400
        with Link(cluster.broker_address) as link:
            # It reads the first message again and again.
            while (answer := link.pull(topic, 0, group=group)).code != 16:
                assert answer.code == 0, answer.remark
                assert time.monotonic() < deadline, "it was never switched off"
                time.sleep(1)
            assert f"subscription group no permission, {group}" in str(answer.remark)
            other = link.pull(topic, 0, group="another-group")
            assert other.code == 0
        # It stays off over a restart.
        cluster.restart_broker(signal.SIGTERM)
        admin.wait_broker(cluster.broker_name)
        with PushConsumer(puppet, cluster.namesrv, group, topic, **QUICK) as consumer:
            consumer.wait_assigned(1)
            assert consumer.wait(1, timeout_ms=5_000) == 0
            words = ("-b", cluster.broker_address, "-g", group, "-s", "true")
            done = admin.command("updateSubGroup", *words)
            assert "success" in done["output"], done["output"]
            rows = consumer.wait_for_all(range(count))
        checks.nothing_is_lost(rows, range(count))
        checks.bodies_are_whole(rows, "slow-seed", SIZE)


class TestStrictLocks:
    """Order locks that most replicas have to grant: without them nobody consumes in order, and nothing comes out of it."""

    SIZE_OF_GROUP = 2

    @pytest.mark.short_columns("none")
    @pytest.mark.parametrize("make", ["ours", "official-5.4.0"])
    def test_an_orderly_group_waits_for_most_replicas(
        self,
        make: str,
        clusters: dict[str, Cluster],
        puppets: PuppetPool,
        jvm_slots: JvmSlots,
    ) -> None:
        close_all(clusters)
        puppet = puppets.get("5.4.0", "JSON")
        settings = {
            "lockInStrictMode": "true",
            "totalReplicas": str(self.SIZE_OF_GROUP),
            # Official brokers know the others of their group in this mode alone.
            "enableSlaveActingMaster": "true",
        }
        topic, seed, few = "Strict", "strict-seed", 40
        orderly: dict[str, Any] = {"listener": "orderly", **QUICK}
        with puppet.in_use(), ReplicaGroup(jvm_slots, make, make, settings) as group:
            admin = Admin(puppet, group.namesrv)
            admin.wait_broker(group.master.broker_name)
            with Producer(puppet, group.namesrv, "strict-p", **QUICK) as producer:
                admin.create_topic(group.master.broker_address, topic, 2)
                admin.wait_route(topic)
                producer.send(topic, seed, few, "ordered", size=SIZE, insist_ms=60_000)
            with PushConsumer(puppet, group.namesrv, "strict-1", topic, **orderly) as consumer:
                both = consumer.wait_for_all(range(few))
            group.slave.stop_broker(signal.SIGTERM)
            with PushConsumer(puppet, group.namesrv, "strict-2", topic, **orderly) as consumer:
                assert consumer.wait(1, timeout_ms=8_000) == 0, "one of two replicas was enough"
                group.slave.start_broker()
                again = consumer.wait_for_all(range(few))
            admin.forget()
        for rows in (both, again):
            checks.nothing_is_lost(rows, range(few))
            checks.bodies_are_whole(rows, seed, SIZE)
            checks.received_in_queue_order(rows)
