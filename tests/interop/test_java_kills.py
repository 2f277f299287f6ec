"""A broker that is killed again and again under load: what was acknowledged with SYNC_FLUSH stays, exactly where it was said.

SIGKILL leaves the page cache alone, so it cannot show that anything was on the device. A traced run shows that: no answer is
sent before a sync of its record has ended.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

import pytest

from interop.harness import checks
from interop.harness.clients import Admin, Producer, PushConsumer, Row
from interop.harness.cluster import Cluster, OurCluster, ServerFailed, make_cluster
from interop.harness.columns import Column
from interop.harness.jvm import JvmSlots
from interop.harness.puppet import PuppetPool
from interop.harness.syncs import Trace

pytestmark = pytest.mark.java

IS_FULL = os.environ.get("INTEROP_TIER") == "full"
SIZE = 500
TOPIC = "Killed"
#: Messages that are sent between two kills, at most.
MOST_BETWEEN = 300
#: Messages behind the last kill: the producer must not be done before it.
BEHIND = 500
#: An official broker's process hosts its name server, and takes seconds to start.
OFFICIAL_KILLS = 5
SETTINGS = {
    "flushDiskType": "SYNC_FLUSH",
    # Messages go over the ends of several files.
    "mappedFileSizeCommitLog": str(4 * 1024 * 1024),
}
QUICK = {"poll_namesrv_ms": 2_000, "heartbeat_ms": 2_000}


def kills_of(column: Column) -> int:
    """How often a column's broker is killed."""
    if column.is_control:
        return OFFICIAL_KILLS
    return 50 if IS_FULL else 3


def kill_and_start(cluster: Cluster, moments: random.Random) -> int:
    """Kill the broker and have it serve again; how many kills it took. One of our starts in four is killed, too."""
    kills = 1
    cluster.stop_broker(signal.SIGKILL)
    while isinstance(cluster, OurCluster) and moments.random() < 0.25:
        early = threading.Timer(moments.uniform(0.3, 2.0), _kill_soon, (cluster,))
        early.start()
        with suppress(ServerFailed):
            cluster.start_broker()
        early.join()
        cluster.stop_broker(signal.SIGKILL)
        kills += 1
    if isinstance(cluster, OurCluster):
        cluster.start_broker()
    else:
        # Its name server was in the same process.
        cluster.start()
    return kills


def _kill_soon(cluster: OurCluster) -> None:
    os.kill(cluster.broker_pid, signal.SIGKILL)


def one_message_a_place(rows: Iterable[Row]) -> None:
    """No queue offset holds two messages."""
    found: dict[tuple[str, int, int], set[str]] = defaultdict(set)
    for row in rows:
        found[row.place].add(row.msg_id)
    twice = {place: ids for place, ids in found.items() if len(ids) > 1}
    assert not twice, (
        f"{len(twice)} places hold several messages, such as {list(twice.items())[:3]}"
    )


class TestKills:
    """SIGKILL at random moments, with an official producer at work."""

    @pytest.mark.short_columns("ours/5.4.0-json")
    def test_all_that_was_acknowledged_is_where_it_was_said(
        self, column: Column, jvm_slots: JvmSlots, puppets: PuppetPool
    ) -> None:
        moments = random.Random(str(column))
        wanted = kills_of(column)
        puppet = puppets.get(column.line, column.serialize)
        with (
            puppet.in_use(),
            make_cluster(column.servers, jvm_slots, broker_settings=SETTINGS) as cluster,
        ):
            admin = Admin(puppet, cluster.namesrv)
            admin.wait_broker(cluster.broker_name)
            admin.create_topic(cluster.broker_address, TOPIC)
            admin.wait_route(TOPIC)
            count = wanted * MOST_BETWEEN + BEHIND
            with Producer(puppet, cluster.namesrv, "killed-p", **QUICK) as producer:
                run = producer.start_sending(
                    TOPIC, TOPIC, count, "async", size=SIZE, keys=True, insist_ms=600_000
                )
                kills = tried = 0
                while kills < wanted:
                    tried += moments.randint(1, MOST_BETWEEN)
                    run.wait_attempted(tried)
                    kills += kill_and_start(cluster, moments)
                report = run.join(300_000)
            admin.wait_route(TOPIC)
            with PushConsumer(puppet, cluster.namesrv, "killed-c", TOPIC, **QUICK) as consumer:
                consumed = consumer.wait_for_all(range(count))
            stored = admin.read_topics([TOPIC])[TOPIC]
            admin.forget()
        assert len(report.sent) == count
        assert {sent.status for sent in report.sent} == {"SEND_OK"}
        for rows in (stored, consumed):
            checks.bodies_are_whole(rows, TOPIC, SIZE)
            checks.nothing_is_lost(rows, range(count))
            checks.each_is_where_it_was_said(rows, report.sent)
            checks.queues_are_contiguous(rows)
            one_message_a_place(rows)
        assert len({row.place for row in stored}) == len(stored)


class TestSyncsBeforeAnswers:
    """System calls of a broker of ours, with an official producer at work."""

    COUNT = 300

    def traced(self, flush: str, slots: JvmSlots, puppets: PuppetPool) -> Trace:
        puppet = puppets.get("5.4.0", "JSON")
        settings = {**SETTINGS, "flushDiskType": flush}
        cluster = OurCluster(broker_settings=settings)
        trace = Trace(cluster.home / "broker.strace")
        cluster.run_under(trace.command)
        with puppet.in_use(), cluster:
            admin = Admin(puppet, cluster.namesrv)
            admin.wait_broker(cluster.broker_name)
            admin.create_topic(cluster.broker_address, TOPIC)
            admin.wait_route(TOPIC)
            with Producer(puppet, cluster.namesrv, "traced-p", timeout_ms=20_000) as producer:
                for first, mode in ((0, "sync"), (50, "async")):
                    count = 50 if mode == "sync" else self.COUNT - 50
                    producer.send(TOPIC, TOPIC, count, mode, first=first, size=SIZE)
            admin.forget()
            cluster.stop_broker(signal.SIGTERM)
            trace.read(cluster.store / "commitlog")
        return trace

    def test_with_sync_flush_each_record_is_synced_before_its_answer(
        self, jvm_slots: JvmSlots, puppets: PuppetPool
    ) -> None:
        trace = self.traced("SYNC_FLUSH", jvm_slots, puppets)
        assert len(trace.answers) >= self.COUNT
        assert trace.syncs > 0
        assert trace.early == []
        # Group commit: the asynchronous ones did not wait one by one.
        assert trace.syncs < len(trace.answers)

    def test_the_trace_shows_answers_that_did_not_wait(
        self, jvm_slots: JvmSlots, puppets: PuppetPool
    ) -> None:
        """The control: with ASYNC_FLUSH most answers are sent first, and it is seen."""
        trace = self.traced("ASYNC_FLUSH", jvm_slots, puppets)
        assert len(trace.early) > self.COUNT // 2
