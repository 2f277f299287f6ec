"""Messages with a delivery time of official clients: when they come, recalls, and brokers that stop while they wait."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from typing import Any

import pytest

from interop.harness import checks
from interop.harness.cell import Cell
from interop.harness.clients import Admin, Producer, Row
from interop.harness.cluster import Cluster, make_cluster
from interop.harness.columns import by_tier
from interop.harness.jvm import JvmSlots
from interop.harness.kinds import Times, TransactionProducer, WatchedConsumer
from interop.harness.lateness import lateness, of_a_thousand_a_second
from interop.harness.puppet import Puppet, PuppetError, PuppetPool
from interop.harness.waiting import wait_until

#: 4.9.7 brokers have no timer; its clients can ask for times all the same.
ONLY = (
    *("ours/5.4.0-json", "ours/5.4.0-rocketmq", "ours/4.9.7-json", "ours/4.9.7-rocketmq"),
    *("official-5.4.0/5.4.0-json", "official-5.4.0/5.4.0-rocketmq"),
)
RECALLS = tuple(column for column in ONLY if "/5.4.0" in column)
SHORT = ("ours/5.4.0-json", "official-5.4.0/5.4.0-json")
pytestmark = pytest.mark.java

SIZE = 160
DELAYS = {"TIMER_DELAY_SEC=2": 2_000, "TIMER_DELAY_MS=2500": 2_500}
LATE_MS = 1_500
"""One slot, and half a second."""
QUICK: dict[str, Any] = {"poll_namesrv_ms": 2_000, "heartbeat_ms": 2_000}


def wall_ms() -> int:
    return int(time.time() * 1000)


def make_topic(admin: Admin, producer: Producer, topic: str) -> None:
    producer.send_text(topic, "makes the topic")
    admin.wait_route(topic)


def counted(rows: list[Row]) -> list[Row]:
    """Without the message that made the topic."""
    return [row for row in rows if row.seq >= 0]


def wait_until_stored(admin: Admin, topic: str, due: set[int]) -> None:
    """Wait until these messages are in their topic."""
    wait_until(
        lambda: due <= {row.seq for row in admin.read_topics([topic])[topic]},
        f"{len(due)} messages in {topic}",
        90,
        pause_s=0.5,
    )


def none_is_early(times: list[Times], delay_ms: int) -> None:
    assert min(t.stored_ms - t.born_ms for t in times if t.seq >= 0) >= delay_ms


@pytest.mark.only_columns(*ONLY)
@pytest.mark.short_columns(*SHORT)
class TestTimed:
    """They come when they should, and only then."""

    def test_they_come_at_their_time_never_early_and_at_most_a_slot_late(self, cell: Cell) -> None:
        asked = list(DELAYS)
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            make_topic(cell.admin, producer, cell.topic)
            with WatchedConsumer(
                cell.puppet, cell.namesrv, cell.group, cell.topic, **QUICK
            ) as consumer:
                consumer.wait(1)
                report = producer.send(cell.topic, cell.seed, cell.count, size=SIZE, timed=asked)
                at_ms = wall_ms() + 3_000
                producer.send(
                    cell.topic,
                    cell.seed,
                    10,
                    first=cell.count,
                    size=SIZE,
                    timed=[f"TIMER_DELIVER_MS={at_ms}"],
                )
                consumer.wait(cell.count + 11)
                rows, times = counted(consumer.rows()), consumer.times()
        checks.all_was_acknowledged(report, cell.count)
        checks.bodies_are_whole(rows, cell.seed, SIZE)
        checks.nothing_is_lost(rows, range(cell.count + 10))
        checks.nothing_came_twice(rows)
        late = lateness([t for t in times if t.seq < cell.count], list(DELAYS.values()))
        late += [t.stored_ms - at_ms for t in times if t.seq >= cell.count]
        assert len(late) == cell.count + 10
        print(f"late by {min(late)} to {max(late)} ms")
        assert min(late) >= 0
        assert max(late) <= LATE_MS, f"{sum(ms > LATE_MS for ms in late)} came late"

    @pytest.mark.short_columns("none")
    def test_a_thousand_a_second_are_at_most_a_slot_late(self, cell: Cell) -> None:
        waits = list(DELAYS.values())
        late = of_a_thousand_a_second(cell, waits, SIZE, timed=list(DELAYS))
        assert min(late) >= 0
        assert max(late) <= LATE_MS, f"{sum(ms > LATE_MS for ms in late)} came late"

    def test_what_cannot_wait_is_refused_or_comes_at_once(self, cell: Cell) -> None:
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p", retries=0) as producer:
            make_topic(cell.admin, producer, cell.topic)
            for asked in ("TIMER_DELAY_SEC=259300", "TIMER_DELAY_MS=abc"):
                with pytest.raises(PuppetError) as refused:
                    producer.send_text(cell.topic, "never", timed=[asked])
                assert refused.value.code == 13, refused.value
                assert "timer message illegal" in str(refused.value)
            sent = producer.send_text(
                cell.topic, "at once", keys="now", timed=["TIMER_DELAY_MS=-1"]
            )
            assert sent["recall_handle"] is None
            rows = cell.admin.read_topics([cell.topic])[cell.topic]
        assert "now" in [row.keys for row in rows]

    @pytest.mark.short_columns("none")
    def test_a_topic_that_is_deleted_meanwhile_is_written_all_the_same(self, cell: Cell) -> None:
        broker, topic = cell.cluster.broker_address, ("-t", cell.topic)
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            make_topic(cell.admin, producer, cell.topic)
            producer.send(cell.topic, cell.seed, 4, size=SIZE, timed=["TIMER_DELAY_MS=4000"])
            other = cell.topic + "-other"
            make_topic(cell.admin, producer, other)
            words = ("-c", cell.cluster.settings(["brokerClusterName"])["brokerClusterName"])
            assert "success" in cell.admin.command("deleteTopic", *words, *topic)["output"]
            # One that is due later tells that the time of the others is over.
            producer.send(other, cell.seed, 1, size=SIZE, timed=["TIMER_DELAY_MS=6000"])
            wait_until_stored(cell.admin, other, {0})
            words = ("-b", broker, "-r", "4", "-w", "4")
            assert "success" in cell.admin.command("updateTopic", *words, *topic)["output"]
            cell.admin.wait_route(cell.topic)
            rows = counted(cell.admin.read_topics([cell.topic])[cell.topic])
        # Whoever makes the topic anew finds them.
        checks.nothing_is_lost(rows, range(4))
        checks.bodies_are_whole(rows, cell.seed, SIZE)

    @pytest.mark.short_columns("none")
    def test_a_timed_transaction_never_comes_and_here_its_producer_is_told(
        self, cell: Cell
    ) -> None:
        asked: dict[str, Any] = {"size": SIZE, "properties": ["TIMER_DELAY_MS=2000"]}
        with (
            Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer,
            TransactionProducer(
                cell.puppet, cell.namesrv, cell.group + "-t", ["commit"], **QUICK
            ) as deciding,
        ):
            make_topic(cell.admin, producer, cell.topic)
            if cell.column.is_control:
                assert deciding.send(cell.topic, cell.seed, 2, **asked) == {
                    0: "COMMIT_MESSAGE",
                    1: "COMMIT_MESSAGE",
                }
            else:
                with pytest.raises(PuppetError, match="a transactional message cannot be delayed"):
                    deciding.send(cell.topic, cell.seed, 1, **asked)
            producer.send(
                cell.topic, cell.seed, 1, first=9, size=SIZE, timed=["TIMER_DELAY_MS=4000"]
            )
            wait_until_stored(cell.admin, cell.topic, {9})
            rows = counted(cell.admin.read_topics([cell.topic])[cell.topic])
        assert [row.seq for row in rows] == [9]

    @pytest.mark.parametrize("how", by_tier(["SIGKILL"], ["SIGTERM"]))
    def test_what_waits_survives_the_broker(self, cell: Cell, how: str) -> None:
        count = min(cell.count, 2_000)
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p", **QUICK) as producer:
            make_topic(cell.admin, producer, cell.topic)
            with WatchedConsumer(
                cell.puppet, cell.namesrv, cell.group, cell.topic, **QUICK
            ) as consumer:
                consumer.wait(1)
                producer.send(
                    cell.topic, cell.seed, count, size=SIZE, timed=["TIMER_DELAY_MS=4000"]
                )
                cell.cluster.restart_broker(signal.Signals[how])
                consumer.wait(count + 1)
                rows, times = counted(consumer.rows()), consumer.times()
        cell.admin.wait_broker(cell.cluster.broker_name)
        stored = counted(cell.admin.read_topics([cell.topic])[cell.topic])
        checks.nothing_is_lost(rows, range(count))
        checks.bodies_are_whole(rows, cell.seed, SIZE)
        none_is_early(times, 4_000)
        if how == "SIGTERM" and cell.column.servers == "ours":
            checks.nothing_came_twice(stored)


@pytest.mark.only_columns(*RECALLS)
@pytest.mark.short_columns(*SHORT)
class TestRecall:
    """Messages that are taken back."""

    def test_a_recalled_message_never_comes(self, cell: Cell) -> None:
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            make_topic(cell.admin, producer, cell.topic)
            with WatchedConsumer(
                cell.puppet, cell.namesrv, cell.group, cell.topic, **QUICK
            ) as consumer:
                consumer.wait(1)
                at_ms = wall_ms() + 3_500
                sent = [
                    producer.send_text(
                        cell.topic,
                        f"{number}",
                        keys=f"k{number}",
                        properties=[f"seq={number}"],
                        timed=[f"TIMER_DELIVER_MS={at_ms}"],
                    )
                    for number in range(10)
                ]
                for message in sent[::3]:
                    assert (
                        producer.recall(cell.topic, message["recall_handle"]) == message["msg_id"]
                    )
                producer.send_text(
                    cell.topic,
                    "last",
                    properties=["seq=10"],
                    timed=[f"TIMER_DELIVER_MS={at_ms + 2_000}"],
                )
                consumer.wait(8)
                rows = counted(consumer.rows())
        assert sorted(row.seq for row in rows) == [1, 2, 4, 5, 7, 8, 10]

    def test_bad_handles_are_refused(self, cell: Cell) -> None:
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            make_topic(cell.admin, producer, cell.topic)
            sent = producer.send_text(cell.topic, "soon", timed=["TIMER_DELAY_MS=60000"])
            other = cell.topic + "-other"
            make_topic(cell.admin, producer, other)
            with pytest.raises(PuppetError) as refused:
                producer.recall(other, sent["recall_handle"])
            assert refused.value.code == 604
            assert "topic not match" in str(refused.value)


def fill(puppet: Puppet, cluster: Cluster, first: int, at_ms: int) -> None:
    """Twenty messages for a time, of which every fifth is taken back."""
    with Producer(puppet, cluster.namesrv, "timer-exchange-p") as producer:
        for number in range(first, first + 20):
            sent = producer.send_text(
                "Timed",
                f"{number}",
                properties=[f"seq={number}"],
                timed=[f"TIMER_DELIVER_MS={at_ms}"],
            )
            if number % 5 == 0:
                producer.recall("Timed", sent["recall_handle"])


class TestExchange:
    """A store with timed messages changes hands between an official broker and ours."""

    @pytest.mark.parametrize(
        ("owners", "hows"),
        by_tier(
            [(("official-5.4.0", "ours", "official-5.4.0"), ("SIGTERM", "SIGKILL"))],
            [
                (("ours", "official-5.4.0", "ours"), ("SIGTERM", "SIGTERM")),
                (("official-5.4.0", "ours", "official-5.4.0"), ("SIGKILL", "SIGTERM")),
                (("ours", "official-5.4.0", "ours"), ("SIGKILL", "SIGKILL")),
            ],
        ),
    )
    def test_each_delivers_what_the_others_took(
        self,
        owners: tuple[str, ...],
        hows: tuple[str, ...],
        jvm_slots: JvmSlots,
        puppets: PuppetPool,
    ) -> None:
        puppet = puppets.get("5.4.0", "JSON")
        with puppet.in_use(), ExitStack() as stack:
            cluster = stack.enter_context(make_cluster(owners[0], jvm_slots))
            admin = Admin(puppet, cluster.namesrv)
            admin.wait_broker(cluster.broker_name)
            with Producer(puppet, cluster.namesrv, "timer-exchange-p") as producer:
                make_topic(admin, producer, "Timed")
            # The first are due while the second owner has the store, the others while the last one has.
            last_ms = wall_ms() + 40_000
            soon_ms = wall_ms() + 8_000
            never: set[int] = set()
            fill(puppet, cluster, 0, soon_ms)
            fill(puppet, cluster, 20, last_ms)
            for number, (owner, how) in enumerate(zip(owners[1:], hows, strict=True)):
                cluster.stop_broker(signal.Signals[how])
                Admin(puppet, cluster.namesrv).forget()
                other = make_cluster(owner, jvm_slots)
                other.take_over(cluster)
                cluster = stack.enter_context(other)
                admin = Admin(puppet, cluster.namesrv)
                admin.wait_broker(cluster.broker_name)
                admin.wait_route("Timed")
                # What becomes due while no broker has the store may be delivered before its recall is read.
                due_ms, firsts = (soon_ms, (0,)) if number == 0 else (last_ms, (20, 40))
                if wall_ms() < due_ms:
                    never |= {seq for first in firsts for seq in range(first, first + 20, 5)}
                if number == 0:
                    fill(puppet, cluster, 40, last_ms)
                    wait_until_stored(admin, "Timed", {seq for seq in range(20) if seq % 5})
                else:
                    wait_until_stored(admin, "Timed", {seq for seq in range(60) if seq % 5})
            rows = counted(admin.read_topics(["Timed"])["Timed"])
            assert not never & {row.seq for row in rows}
            if "SIGKILL" not in hows:
                checks.nothing_came_twice(rows)
            Admin(puppet, cluster.namesrv).forget()
