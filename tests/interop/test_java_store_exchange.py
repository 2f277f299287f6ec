"""One store directory, brokers of two makes: what one wrote under load, the other serves."""

from __future__ import annotations

import re
import signal
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from interop.harness import checks
from interop.harness.clients import Admin, Producer, PushConsumer, Sent
from interop.harness.cluster import Cluster, ServerFailed, make_cluster
from interop.harness.columns import Column, by_tier
from interop.harness.jvm import JvmSlots
from interop.harness.puppet import Puppet, PuppetError, PuppetGone, PuppetPool

pytestmark = pytest.mark.java

COUNT = Column("ours", "5.4.0", "JSON").message_count
GROUP = "exchange-group"
NOTED = "Noted"


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


def send(puppet: Puppet, cluster: Cluster, first: int, count: int) -> dict[str, list[Sent]]:
    """Send messages of every kind; those of a kind have one sequence of numbers."""
    with ExitStack() as clients:
        producers = {
            compression: clients.enter_context(
                Producer(puppet, cluster.namesrv, f"{compression}-p", compress_type=compression)
            )
            for compression in ("ZLIB", "LZ4", "ZSTD")
        }
        return {
            topic: producers[kind.compression]
            .send(
                topic,
                topic,
                count,
                kind.mode,
                first=first,
                size=kind.size,
                tags=["a", "b"],
                keys=True,
                # On a busy machine official brokers ask for patience (TIMEOUT_CLEAN_QUEUE).
                insist_ms=60_000,
            )
            .sent
            for topic, kind in KINDS.items()
        }


class Contents:
    """What a store holds after the brokers that had it so far."""

    def __init__(self) -> None:
        self.count = 0
        self.sent: dict[str, list[Sent]] = {topic: [] for topic in KINDS}
        #: How many plain messages a group took.
        self.consumed = 0
        #: Whole send results, for operators.
        self.noted: list[dict[str, Any]] = []

    def more(self, puppet: Puppet, cluster: Cluster, count: int) -> None:
        """Send more messages of every kind; they follow those that are there."""
        ends: dict[tuple[str, str, int], int] = {}
        for topic, before in self.sent.items():
            for result in sorted(before, key=lambda sent: sent.offset):
                ends[topic, result.broker, result.queue] = result.offset
        for topic, after in send(puppet, cluster, self.count, count).items():
            for result in sorted(after, key=lambda sent: sent.offset):
                queue = topic, result.broker, result.queue
                assert result.offset == ends.get(queue, -1) + 1, f"{topic}: {result}"
                ends[queue] = result.offset
            self.sent[topic] += after
        self.count += count
        with Producer(puppet, cluster.namesrv, "noted-p") as producer:
            key = f"noted-{len(self.noted)}"
            self.noted.append({**producer.send_text(NOTED, key, keys=key), "key": key})

    def consume(self, puppet: Puppet, cluster: Cluster, up_to: int, offsets_kept: bool) -> None:
        """A group goes on where it stood."""
        due = set(range(self.consumed, up_to))
        with PushConsumer(puppet, cluster.namesrv, GROUP, "Plain") as consumer:
            rows = consumer.wait_for_all(due)
        checks.bodies_are_whole(rows, "Plain", KINDS["Plain"].size)
        # Offsets are saved every five seconds: after a kill the group may go back, never forward.
        assert {row.seq for row in rows} >= due
        if offsets_kept:
            checks.nothing_is_lost(rows, due)
        self.consumed = up_to

    def is_served(self, puppet: Puppet, cluster: Cluster) -> None:
        """Each message comes from its place."""
        for topic, rows in Admin(puppet, cluster.namesrv).read_topics(KINDS).items():
            checks.bodies_are_whole(rows, topic, KINDS[topic].size)
            checks.nothing_is_lost(rows, range(self.count))
            checks.nothing_came_twice(rows)
            checks.each_is_where_it_was_said(rows, self.sent[topic])
            checks.queues_are_contiguous(rows)
            assert len({row.place for row in rows}) == len(rows)
            assert all(row.tag == "ab"[row.seq % 2] for row in rows)
            assert all(row.keys == f"{topic}-{row.seq}" for row in rows)

    def is_found(self, puppet: Puppet, cluster: Cluster) -> None:
        """Operators find a message of each broker by key, unique key, id and offset."""
        admin = Admin(puppet, cluster.namesrv)
        for sent in self.noted:
            admin.wait_key(NOTED, sent["key"])
            by_key = admin.command("queryMsgByKey", "-t", NOTED, "-k", sent["key"])["output"]
            rows = [line.split()[:3] for line in by_key.splitlines()]
            assert [sent["msg_id"], str(sent["queue"]), str(sent["offset"])] in rows, by_key
            # The older tool finds the topic by itself.
            by_id = [] if puppet.line.startswith("4.") else ["-t", NOTED]
            place = ["-b", sent["broker"], "-i", str(sent["queue"]), "-o", str(sent["offset"])]
            for words in (
                ["queryMsgByUniqueKey", "-t", NOTED, "-i", sent["msg_id"]],
                ["queryMsgById", *by_id, "-i", sent["offset_msg_id"]],
                ["queryMsgByOffset", "-t", NOTED, *place],
            ):
                output = admin.command(*words)["output"]
                fields = dict(re.findall(r"^([A-Z][\w ]+): +(.*?) *$", output, re.MULTILINE))
                assert fields.get("Keys") == f"[{sent['key']}]", f"{words}: {output}"
                assert fields["Queue ID"] == str(sent["queue"]), output
                assert fields["Queue Offset"] == str(sent["offset"]), output


def first_owner(puppet: Puppet, cluster: Cluster) -> Contents:
    """Fill an empty store."""
    Admin(puppet, cluster.namesrv).wait_broker(cluster.broker_name)
    contents, half = Contents(), COUNT // 2
    contents.more(puppet, cluster, half)
    contents.consume(puppet, cluster, half, True)
    contents.more(puppet, cluster, COUNT - half)
    return contents


def next_owner(puppet: Puppet, cluster: Cluster, contents: Contents, offsets_kept: bool) -> None:
    """All that is there is served and found; new messages follow; then all of them are."""
    admin = Admin(puppet, cluster.namesrv)
    admin.wait_broker(cluster.broker_name)
    for topic in (*KINDS, NOTED):
        admin.wait_route(topic)
    contents.is_served(puppet, cluster)
    contents.is_found(puppet, cluster)
    contents.more(puppet, cluster, 10)
    contents.consume(puppet, cluster, contents.count, offsets_kept)
    contents.is_served(puppet, cluster)
    contents.is_found(puppet, cluster)


def change_hands(owners: list[str], hows: list[str], puppet: Puppet, slots: JvmSlots) -> None:
    """Each owner ends in its way, and the next one goes on with its store, at its address."""
    with puppet.in_use(), ExitStack() as stack:
        cluster = stack.enter_context(make_cluster(owners[0], slots))
        contents = first_owner(puppet, cluster)
        for owner, how in zip(owners[1:], hows, strict=True):
            cluster.stop_broker(signal.Signals[how])
            Admin(puppet, cluster.namesrv).forget()
            other = make_cluster(owner, slots)
            other.take_over(cluster)
            cluster = stack.enter_context(other)
            next_owner(puppet, cluster, contents, how == "SIGTERM")
        Admin(puppet, cluster.namesrv).forget()


class TestStoreExchange:
    """A store changes hands."""

    @pytest.mark.parametrize(
        ("writer", "how", "reader"),
        by_tier(
            [
                ("ours", "SIGTERM", "official-5.4.0"),
                ("ours", "SIGKILL", "official-4.9.7"),
            ],
            [
                ("ours", "SIGKILL", "official-5.4.0"),
                ("ours", "SIGTERM", "official-4.9.7"),
            ],
        ),
    )
    def test_the_other_make_serves_every_message(
        self, writer: str, how: str, reader: str, jvm_slots: JvmSlots, puppets: PuppetPool
    ) -> None:
        puppet = puppets.get(reader.removeprefix("official-"), "JSON")
        change_hands([writer, reader], [how], puppet, jvm_slots)

    @pytest.mark.parametrize(
        ("owner", "how", "how_ours"),
        by_tier(
            [
                ("official-5.4.0", "SIGKILL", "SIGKILL"),
                ("official-4.9.7", "SIGTERM", "SIGTERM"),
            ],
            [
                ("official-5.4.0", "SIGKILL", "SIGTERM"),
                ("official-5.4.0", "SIGTERM", "SIGKILL"),
                ("official-5.4.0", "SIGTERM", "SIGTERM"),
                ("official-4.9.7", "SIGKILL", "SIGKILL"),
                ("official-4.9.7", "SIGKILL", "SIGTERM"),
                ("official-4.9.7", "SIGTERM", "SIGKILL"),
            ],
        ),
    )
    def test_there_and_back(
        self, owner: str, how: str, how_ours: str, jvm_slots: JvmSlots, puppets: PuppetPool
    ) -> None:
        """An official broker gets its store back from ours, which wrote to it."""
        puppet = puppets.get(owner.removeprefix("official-"), "JSON")
        change_hands([owner, "ours", owner], [how, how_ours], puppet, jvm_slots)


class TestLock:
    """A store has one owner at a time, whoever made it."""

    @pytest.mark.parametrize("line", by_tier(["5.4.0"], ["4.9.7"]))
    def test_ours_refuses_the_store_of_a_live_official_broker(
        self, line: str, jvm_slots: JvmSlots, puppets: PuppetPool
    ) -> None:
        puppet = puppets.get(line, "JSON")
        with puppet.in_use(), make_cluster(f"official-{line}", jvm_slots) as owner:
            contents = first_owner(puppet, owner)
            other = make_cluster("ours", jvm_slots, store=owner.store)
            try:
                with pytest.raises(ServerFailed) as refused:
                    other.start()
            finally:
                other.close()
            said = [line for line in str(refused.value).splitlines() if "locked" in line]
            assert len(said) == 1, refused.value
            assert f"{owner.store}/lock is locked: another broker uses this store" in said[0]
            contents.is_served(puppet, owner)
            contents.is_found(puppet, owner)
            Admin(puppet, owner.namesrv).forget()

    @pytest.mark.parametrize("line", by_tier(["5.4.0"], ["4.9.7"]))
    def test_an_official_broker_refuses_the_store_of_ours(
        self, line: str, jvm_slots: JvmSlots, puppets: PuppetPool
    ) -> None:
        """The official broker reads and mends before it looks at the lock, and ends its process then: what it finds stays whole."""
        puppet = puppets.get(line, "JSON")
        with puppet.in_use(), make_cluster("ours", jvm_slots) as owner:
            contents = first_owner(puppet, owner)
            other = make_cluster(f"official-{line}", jvm_slots, store=owner.store)
            try:
                with pytest.raises(
                    (PuppetGone, PuppetError), match=r"Lock failed, ?MQ already started"
                ):
                    other.start()
            finally:
                other.close()
            contents.is_served(puppet, owner)
            contents.more(puppet, owner, 10)
            owner.restart_broker(signal.SIGKILL)
            Admin(puppet, owner.namesrv).wait_broker(owner.broker_name)
            contents.is_served(puppet, owner)
            contents.is_found(puppet, owner)
            Admin(puppet, owner.namesrv).forget()
