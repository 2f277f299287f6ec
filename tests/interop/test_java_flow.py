"""What a broker says to official clients that are too many, too large or too slow, and what becomes of their messages."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from interop.harness import checks
from interop.harness.cell import Cell
from interop.harness.clients import Admin, Producer, PushConsumer, Row
from interop.harness.cluster import SEND_WAIT_MS, Cluster, close_all
from interop.harness.columns import by_tier
from interop.harness.jvm import JvmSlots
from interop.harness.own_brokers import OwnBrokers
from interop.harness.puppet import Puppet, PuppetError, PuppetPool
from interop.harness.replicas import ReplicaGroup
from interop.harness.waiting import wait_until
from tests.interop.test_java_kinds_of_queues import Link

CI = "ours/5.4.0-json"
pytestmark = pytest.mark.java
SIZE = 160
#: As large as bodies are that official clients do not compress.
LARGE = 4_000
QUICK: dict[str, Any] = {"poll_namesrv_ms": 1_000, "heartbeat_ms": 1_000}
STRICT = {
    "disableConsumeIfConsumerReadSlowly": "true",
    "consumerFallbehindThreshold": "20000",
}
SMALL_QUEUE = {
    "flushDiskType": "SYNC_FLUSH",
    "sendMessageThreadPoolNums": "1",
    "sendThreadPoolQueueCapacity": "2",
    # Neither of these is to speak first.
    "waitTimeMillsInSendQueue": "60000",
    "osPageCacheBusyTimeOutMills": "60000",
}
#: The queue has room, but whoever comes while another one is being stored comes too early.
STILL = {"sendThreadPoolQueueCapacity": "10000", "osPageCacheBusyTimeOutMills": "-1"}
ALL_COLD = {
    "coldDataFlowControlEnable": "true",
    "accessMessageInMemoryHotRatio": "0",
    # Who reads a page gets no others into memory.
    "dataReadAheadEnable": "false",
    "mappedFileSizeCommitLog": str(1024 * 1024),
}
OVERLOAD = "CODE: 2  DESC: [OVERLOAD]system busy, start flow control for a while"
REJECTED = "CODE: 2  DESC: [REJECTREQUEST]system busy, start flow control for a while"
#: Who was let in before the disk stood still: official brokers have two more places to say so.
STANDS_STILL = re.compile(
    r"CODE: 2  DESC: \[(REJECTREQUEST\]system|PCBUSY_CLEAN_QUEUE\]broker|PC_SYNCHRONIZED\]broker) busy, start flow control for a while"
)
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
                cell.configure(waitTimeMillsInSendQueue=SEND_WAIT_MS)
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

    @pytest.mark.only_columns(
        *by_tier(
            ["none"],
            ["ours/5.4.0-json", "official-5.4.0/5.4.0-json", "official-4.9.7/4.9.7-json"],
        )
    )
    def test_a_slow_group_is_switched_off_until_an_operator_says_otherwise(
        self, own: OwnBrokers
    ) -> None:
        with own.broker(STRICT) as (cluster, puppet, admin):
            self._is_switched_off(cluster, puppet, admin)

    def _is_switched_off(self, cluster: Cluster, puppet: Puppet, admin: Admin) -> None:
        topic, group, count = "Slow", "slow-group", 400
        with Producer(puppet, cluster.namesrv, "slow-p", **QUICK) as producer:
            admin.create_topic(cluster.broker_address, topic, 1)
            admin.wait_route(topic)
            producer.send(topic, "slow-seed", count, size=SIZE)
        admin.command("updateSubGroup", "-b", cluster.broker_address, "-g", group)
        with Link(cluster.broker_address) as link:

            def is_off() -> bool:
                # It reads the first message again and again.
                answer = link.pull(topic, 0, group=group)
                assert answer.code in (0, 16), answer.remark
                return answer.code == 16

            wait_until(is_off, "it is switched off", 400, pause_s=1)
            remark = str(link.pull(topic, 0, group=group).remark)
            assert f"subscription group no permission, {group}" in remark
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


@pytest.mark.short_columns(CI)
class TestOverload:
    """More than the broker can take at once: who is refused is told so in the official words, and none of it is stored."""

    def test_a_full_queue_and_a_disk_that_stands_still_are_told_in_the_official_words(
        self, own: OwnBrokers
    ) -> None:
        topic, seed, count = "Overload", "overload-seed", min(own.column.message_count, 1_000)
        quick: dict[str, Any] = {"retries": 0, "timeout_ms": 30_000, **QUICK}
        with own.broker(SMALL_QUEUE) as (cluster, puppet, admin):
            admin.create_topic(cluster.broker_address, topic)
            admin.wait_route(topic)
            with Producer(puppet, cluster.namesrv, "overload-1", **quick) as producer:
                run = producer.start_sending(topic, seed, count, "async", size=LARGE)
                report = run.report()
                assert report.errors, "nothing was refused"
                for _, told, code in report.errors:
                    assert code == 2, told
                    assert OVERLOAD in told
                taken = {sent.seq for sent in report.sent}
                refused = {seq for seq, _, _ in report.errors}
                assert len(taken) + len(refused) == len(taken | refused) == count
                # One after the other there is room.
                again = sorted(refused)[:20]
                for seq in again:
                    producer.send(topic, seed, 1, first=seq, size=LARGE)
            taken |= set(again)
            cluster.change_settings(STILL)
            cluster.restart_broker(signal.SIGKILL)
            admin.wait_broker(cluster.broker_name)
            admin.wait_route(topic)
            with Producer(puppet, cluster.namesrv, "overload-2", **quick) as producer:
                run = producer.start_sending(topic, seed, count, "async", size=LARGE, first=count)
                report = run.report()
                assert any(REJECTED in told for _, told, _ in report.errors), report.errors[:3]
                for _, told, code in report.errors:
                    assert code == 2, told
                    assert STANDS_STILL.search(told), told
                taken |= {sent.seq for sent in report.sent}
            stored = admin.read_topics([topic])[topic]
        # Nothing more, and nothing less.
        assert {row.seq for row in stored} == taken
        checks.nothing_came_twice(stored)
        checks.bodies_are_whole(stored, seed, LARGE)


@pytest.mark.only_columns(
    *("ours/5.4.0-json", "ours/5.4.0-rocketmq"),
    *("official-5.4.0/5.4.0-json", "official-5.4.0/5.4.0-rocketmq"),
)
@pytest.mark.short_columns("none")
class TestColdReads:
    """A group that reads what is on the disk alone has a share of it each five seconds; operators say which (5.x)."""

    LIMIT = 100_000

    def test_a_group_that_had_its_share_is_held_until_an_operator_lets_it_go_on(
        self, own: OwnBrokers
    ) -> None:
        # Less than the share that every group has by itself, and that of one period is less than half.
        topic, group, seed, count = "Cold", "cold-group", "cold-seed", 640
        with own.broker(ALL_COLD) as (cluster, puppet, admin):
            admin.create_topic(cluster.broker_address, topic, 1)
            admin.wait_route(topic)
            with Producer(puppet, cluster.namesrv, "cold-p", **QUICK) as producer:
                producer.send(topic, seed, count, size=LARGE, insist_ms=60_000)
            cluster.restart_broker(signal.SIGTERM)
            admin.wait_broker(cluster.broker_name)
            admin.wait_route(topic)
            put_out_of_memory(cluster.store / "commitlog")
            at = ("-b", cluster.broker_address)
            words = ("-g", group, "-v", str(self.LIMIT))
            done = admin.command("updateColdDataFlowCtrGroupConfig", *at, *words)
            assert "updateColdDataFlowCtrGroupConfig success" in done["output"], done["output"]
            few: dict[str, Any] = {"pull_batch": 8, **QUICK}
            with PushConsumer(puppet, cluster.namesrv, group, topic, **few) as consumer:
                wait_until(
                    lambda: cold_bytes_of(admin, cluster, group) >= self.LIMIT,
                    f"{self.LIMIT} bytes are read",
                )
                held_at = time.monotonic()
                received = consumer.wait(count, timeout_ms=3_000)
                assert 0 < received < count / 2, f"held since {time.monotonic() - held_at:.1f} s"
                assert cold_info(admin, cluster)["configTable"] == {group: self.LIMIT}
                done = admin.command("removeColdDataFlowCtrGroupConfig", *at, "-g", group)
                assert "remove broker cold read threshold success" in done["output"]
                rows = consumer.wait_for_all(range(count))
                assert cold_info(admin, cluster)["configTable"] == {}
        checks.nothing_is_lost(rows, range(count))
        checks.nothing_came_twice(rows)
        checks.bodies_are_whole(rows, seed, LARGE)


def cold_info(admin: Admin, cluster: Cluster) -> dict[str, Any]:
    """What an operator is shown of cold reads."""
    done = admin.command("getColdDataFlowCtrInfo", "-b", cluster.broker_address)
    found: dict[str, Any] = json.loads(done["output"].split("============")[-1])
    return found


def cold_bytes_of(admin: Admin, cluster: Cluster, group: str) -> int:
    """How much a group read cold in this period, 0 while nothing is known of it."""
    return int(cold_info(admin, cluster)["runtimeTable"].get(group, {}).get("coldAcc", 0))


def put_out_of_memory(directory: Path) -> None:
    """Have the system forget the clean pages of files that nobody maps."""
    for path in directory.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


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
