"""One store directory, brokers of two makes: what one wrote under load, the other serves."""

from __future__ import annotations

import shutil
import signal
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from interop.harness import checks
from interop.harness.clients import Admin, Producer, PushConsumer, Sent
from interop.harness.cluster import Cluster, make_cluster
from interop.harness.columns import Column, by_tier
from interop.harness.jvm import JvmSlots
from interop.harness.puppet import Puppet, PuppetPool

pytestmark = pytest.mark.java

COUNT = Column("ours", "5.4.0", "JSON").message_count
GROUP = "exchange-group"


class Kind(NamedTuple):
    """One kind of messages that the writer's store is filled with."""

    mode: str
    size: int
    compression: str = "ZLIB"


KINDS = {
    "Plain": Kind("sync", 120),
    "Async": Kind("async", 900),
    "Batch": Kind("batch", 120),
    "Ordered": Kind("ordered", 120),
    "Zlib": Kind("sync", 6_000),
    "Lz4": Kind("sync", 6_000, "LZ4"),
    "Zstd": Kind("sync", 6_000, "ZSTD"),
}


def fill(puppet: Puppet, cluster: Cluster) -> dict[str, list[Sent]]:
    """Send messages of every kind, and have a group take the first half of the plain ones."""
    Admin(puppet, cluster.namesrv).wait_broker(cluster.broker_name)
    sent: dict[str, list[Sent]] = {}
    half = COUNT // 2
    with ExitStack() as clients:
        producers = {
            compression: clients.enter_context(
                Producer(puppet, cluster.namesrv, f"{compression}-p", compress_type=compression)
            )
            for compression in ("ZLIB", "LZ4", "ZSTD")
        }
        for topic, kind in KINDS.items():
            producer = producers[kind.compression]
            args: dict[str, Any] = {"size": kind.size, "tags": ["a", "b"], "keys": True}
            report = producer.send(topic, topic, half, kind.mode, **args)
            if topic == "Plain":
                with PushConsumer(puppet, cluster.namesrv, GROUP, topic) as consumer:
                    consumer.wait(half)
            rest = producer.send(topic, topic, COUNT - half, kind.mode, first=half, **args)
            sent[topic] = report.sent + rest.sent
    return sent


def everything_is_served(
    puppet: Puppet, cluster: Cluster, sent: dict[str, list[Sent]], offsets_kept: bool
) -> None:
    """Each message comes from its place; the group goes on where it stood; new messages follow the old ones."""
    admin = Admin(puppet, cluster.namesrv)
    admin.wait_broker(cluster.broker_name)
    for topic in KINDS:
        admin.wait_route(topic)
    for topic, rows in admin.read_topics(KINDS).items():
        kind = KINDS[topic]
        checks.bodies_are_whole(rows, topic, kind.size)
        checks.nothing_is_lost(rows, range(COUNT))
        checks.nothing_came_twice(rows)
        checks.each_is_where_it_was_said(rows, sent[topic])
        checks.queues_are_contiguous(rows)
        assert all(row.tag == "ab"[row.seq % 2] for row in rows)
        assert all(row.keys == f"{topic}-{row.seq}" for row in rows)
    with Producer(puppet, cluster.namesrv, "later-p") as producer:
        later = producer.send("Plain", "Plain", 10, first=COUNT, size=KINDS["Plain"].size).sent
    ends = {(s.broker, s.queue): s.offset for s in sorted(sent["Plain"], key=lambda s: s.offset)}
    for result in sorted(later, key=lambda s: s.offset):
        assert result.offset == ends[result.broker, result.queue] + 1
        ends[result.broker, result.queue] = result.offset
    due = set(range(COUNT // 2, COUNT + 10))
    with PushConsumer(puppet, cluster.namesrv, GROUP, "Plain") as consumer:
        rows = consumer.wait_for_all(due)
    checks.bodies_are_whole(rows, "Plain", KINDS["Plain"].size)
    # Offsets are saved every five seconds: after a kill the group may go back, never forward.
    assert {row.seq for row in rows} >= due
    if offsets_kept:
        checks.nothing_is_lost(rows, due)


class TestStoreExchange:
    """A store changes hands."""

    @pytest.mark.parametrize(
        ("writer", "how", "reader"),
        by_tier(
            [
                ("ours", "SIGTERM", "official-5.4.0"),
                ("ours", "SIGKILL", "official-4.9.7"),
                ("official-5.4.0", "SIGKILL", "ours"),
                ("official-4.9.7", "SIGTERM", "ours"),
            ],
            [
                ("ours", "SIGKILL", "official-5.4.0"),
                ("ours", "SIGTERM", "official-4.9.7"),
                ("official-5.4.0", "SIGTERM", "ours"),
                ("official-4.9.7", "SIGKILL", "ours"),
            ],
        ),
    )
    def test_the_other_make_serves_every_message(
        self,
        writer: str,
        reader: str,
        how: str,
        jvm_slots: JvmSlots,
        puppets: PuppetPool,
    ) -> None:
        line = (writer if reader == "ours" else reader).removeprefix("official-")
        puppet = puppets.get(line, "JSON")
        with puppet.in_use(), make_cluster(writer, jvm_slots) as cluster:
            sent = fill(puppet, cluster)
            cluster.stop_broker(signal.Signals[how])
            Admin(puppet, cluster.namesrv).forget()
            other = make_cluster(reader, jvm_slots)
            shutil.move(cluster.store, other.store)
            with other:
                everything_is_served(puppet, other, sent, how == "SIGTERM")
                Admin(puppet, other.namesrv).forget()
