"""Official consumers in every model: clustering, broadcasting, orderly, by tag, and lite pull."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import pytest

from interop.harness import checks
from interop.harness.cell import Cell
from interop.harness.clients import PATIENCE_MS, LitePull, Producer, PushConsumer, Row

pytestmark = [
    pytest.mark.java,
    pytest.mark.short_columns(
        "ours/5.4.0-json", "ours/4.9.7-rocketmq", "official-5.4.0/5.4.0-json"
    ),
]

SIZE = 200
QUEUES = 4


def make_topic(cell: Cell, producer: Producer) -> None:
    """The first message of the run makes the topic with four queues."""
    producer.send(cell.topic, cell.seed, 1, size=SIZE)
    cell.admin.wait_route(cell.topic)


class TestClustering:
    """Members of a group share its messages."""

    def test_a_second_joins_and_is_killed(self, cell: Cell) -> None:
        """Queues are shared at once when a member comes, taken over at once when it is killed; nothing is lost."""
        third = cell.count // 3
        other_puppet = cell.another_puppet()
        with ExitStack() as clients:
            producer = clients.enter_context(Producer(cell.puppet, cell.namesrv, cell.group + "-p"))
            make_topic(cell, producer)
            first = clients.enter_context(
                PushConsumer(cell.puppet, cell.namesrv, cell.group, cell.topic)
            )
            first.wait_assigned(QUEUES)
            producer.send(cell.topic, cell.seed, third - 1, first=1, size=SIZE)
            first.wait(third)
            second = PushConsumer(
                other_puppet,
                cell.namesrv,
                cell.group,
                cell.topic,
                record_file=f"{other_puppet.home}/rows",
            )
            first.wait_assigned(QUEUES // 2)
            second.wait_assigned(QUEUES // 2)
            producer.send(cell.topic, cell.seed, third, first=third, size=SIZE)
            assert second.wait(1) >= 1
            other_puppet.kill()
            first.wait_assigned(QUEUES)
            rest = cell.count - 2 * third
            producer.send(cell.topic, cell.seed, rest, first=2 * third, size=SIZE)
            lost_with_it = second.recorded_rows()
            rows = wait_for_union(first, lost_with_it, cell.count)
        checks.bodies_are_whole(rows, cell.seed, SIZE)
        checks.nothing_is_lost(rows, range(cell.count))
        checks.stored_once(rows)
        checks.queues_are_contiguous(rows)

    def test_a_restarted_member_goes_on_where_the_group_stood(self, cell: Cell) -> None:
        half = cell.count // 2
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            producer.send(cell.topic, cell.seed, half, size=SIZE)
            with PushConsumer(cell.puppet, cell.namesrv, cell.group, cell.topic) as consumer:
                consumer.wait(half)
                before = consumer.rows()
            producer.send(cell.topic, cell.seed, cell.count - half, first=half, size=SIZE)
            with PushConsumer(cell.puppet, cell.namesrv, cell.group, cell.topic) as consumer:
                consumer.wait(cell.count - half)
                after = consumer.rows()
        checks.nothing_is_lost(before, range(half))
        checks.nothing_is_lost(after, range(half, cell.count))
        checks.bodies_are_whole(before + after, cell.seed, SIZE)

    def test_a_new_group_on_a_young_topic_starts_at_the_first_message(self, cell: Cell) -> None:
        """The official rule: while a queue's first message is in memory, a new group starts there even if it asked for the end."""
        half = cell.count // 2
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            producer.send(cell.topic, cell.seed, half, size=SIZE)
            settings = {"from": "CONSUME_FROM_LAST_OFFSET"}
            with PushConsumer(
                cell.puppet, cell.namesrv, cell.group, cell.topic, **settings
            ) as consumer:
                consumer.wait_assigned(QUEUES)
                producer.send(cell.topic, cell.seed, cell.count - half, first=half, size=SIZE)
                consumer.wait(cell.count)
                rows = consumer.rows()
        checks.bodies_are_whole(rows, cell.seed, SIZE)
        checks.nothing_is_lost(rows, range(cell.count))
        checks.nothing_came_twice(rows)


class TestBroadcasting:
    """Every member gets everything."""

    def test_each_member_gets_all_and_remembers_its_place(self, cell: Cell) -> None:
        half = cell.count // 2
        settings = {"model": "BROADCASTING"}
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            producer.send(cell.topic, cell.seed, half, size=SIZE)

            def member(number: int) -> PushConsumer:
                return PushConsumer(
                    cell.puppet,
                    cell.namesrv,
                    cell.group,
                    cell.topic,
                    instance=f"{cell.group}-{number}",
                    **settings,
                )

            with member(1) as one, member(2) as two:
                one.wait(half)
                two.wait(half)
                parts = [one.rows(), two.rows()]
            producer.send(cell.topic, cell.seed, cell.count - half, first=half, size=SIZE)
            with member(1) as one, member(2) as two:
                one.wait(cell.count - half)
                two.wait(cell.count - half)
                parts[0] += one.rows()
                parts[1] += two.rows()
        for rows in parts:
            checks.bodies_are_whole(rows, cell.seed, SIZE)
            checks.nothing_is_lost(rows, range(cell.count))
            checks.nothing_came_twice(rows)


class TestOrderly:
    """Orderly consumers hold the broker's lock on a queue, so its messages come one after the other."""

    def test_order_is_kept_when_a_second_joins(self, cell: Cell) -> None:
        half = cell.count // 2
        settings = {"listener": "orderly"}
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            make_topic(cell, producer)
            args = {"size": SIZE}
            with PushConsumer(
                cell.puppet, cell.namesrv, cell.group, cell.topic, **settings
            ) as first:
                first.wait_assigned(QUEUES)
                producer.send(cell.topic, cell.seed, half - 1, "ordered", first=1, **args)
                first.wait(half)
                with PushConsumer(
                    cell.puppet, cell.namesrv, cell.group, cell.topic, **settings
                ) as second:
                    run = producer.start_sending(
                        cell.topic, cell.seed, cell.count - half, "ordered", first=half, **args
                    )
                    second.wait_assigned(QUEUES // 2)
                    run.join()
                    rows = wait_for_union(first, second, cell.count)
                    earlier, later = first.rows(), second.rows()
        checks.bodies_are_whole(rows, cell.seed, SIZE)
        checks.nothing_is_lost(rows, range(cell.count))
        checks.stored_once(rows)
        checks.received_in_queue_order(earlier)
        checks.received_in_queue_order(later)
        checks.queues_change_hands_cleanly(earlier, later)


class TestTags:
    """The broker sends only what the subscription asks for."""

    def test_only_the_asked_tags_come(self, cell: Cell) -> None:
        tags = ["red", "green", "blue"]
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            args: dict[str, Any] = {"size": SIZE, "tags": tags, "keys": True}
            half = cell.count // 2
            producer.send(cell.topic, cell.seed, half, **args)
            due = [seq for seq in range(cell.count) if tags[seq % 3] != "green"]
            with PushConsumer(
                cell.puppet, cell.namesrv, cell.group, cell.topic, expression="red || blue"
            ) as consumer:
                consumer.wait(sum(seq < half for seq in due))
                producer.send(cell.topic, cell.seed, cell.count - half, first=half, **args)
                consumer.wait(len(due))
                rows = consumer.rows()
        checks.bodies_are_whole(rows, cell.seed, SIZE)
        checks.nothing_is_lost(rows, due)
        checks.nothing_came_twice(rows)
        assert all(row.tag == tags[row.seq % 3] for row in rows)
        assert all(row.keys == f"{cell.seed}-{row.seq}" for row in rows)


class TestLitePull:
    """Consumers that poll."""

    def test_a_subscriber_polls_all_and_goes_on_from_its_commit(self, cell: Cell) -> None:
        half = cell.count // 2
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            producer.send(cell.topic, cell.seed, half, size=SIZE)
            settings = {"expression": "*", "manual_commit": True}
            with LitePull(
                cell.puppet, cell.namesrv, cell.group, cell.topic, **settings
            ) as consumer:
                before = consumer.poll(half)
                consumer.commit()
            producer.send(cell.topic, cell.seed, cell.count - half, first=half, size=SIZE)
            with LitePull(
                cell.puppet, cell.namesrv, cell.group, cell.topic, **settings
            ) as consumer:
                after = consumer.poll(cell.count - half)
        checks.nothing_is_lost(before, range(half))
        checks.nothing_is_lost(after, range(half, cell.count))
        for rows in (before, after):
            checks.received_in_queue_order(rows)
            checks.bodies_are_whole(rows, cell.seed, SIZE)

    def test_assigned_queues_are_read_from_any_offset(self, cell: Cell) -> None:
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            report = producer.send(cell.topic, cell.seed, cell.count, size=SIZE)
        sent = report.sent
        with LitePull(cell.puppet, cell.namesrv, cell.group, cell.topic) as consumer:
            assert consumer.assign() == QUEUES
            everything = consumer.poll(cell.count)
            checks.received_in_queue_order(everything)
            checks.nothing_is_lost(everything, range(cell.count))
            broker, queue, _ = sent[0].place
            ends = {
                (s.broker, s.queue): max(t.offset for t in sent if t[2:4] == s[2:4]) for s in sent
            }
            end = ends[broker, queue]
            consumer.seek(broker, queue, end - 4)
            again = consumer.poll(5)
        assert [row.place for row in again] == [(broker, queue, end - 4 + i) for i in range(5)]
        assert cell.admin.offsets(cell.topic, broker, queue) == (0, end + 1)

    def test_offsets_are_found_by_time(self, cell: Cell) -> None:
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            first = producer.send(cell.topic, cell.seed, 20, "queue", queue=0).sent
            # 4.9.7 answers with the nearest message, so the time asked for lies close before the later ones.
            producer.send(cell.topic, cell.seed, 200, "queue", queue=1, first=40)
            between_ms = time.time_ns() // 1_000_000 + 1
            while time.time_ns() // 1_000_000 <= between_ms:
                continue
            producer.send(cell.topic, cell.seed, 20, "queue", queue=0, first=20)
        broker, queue, _ = first[0].place
        assert cell.admin.search_offset(cell.topic, broker, queue, between_ms) == 20
        assert cell.admin.search_offset(cell.topic, broker, queue, 0) == 0


def wait_for_union(
    consumer: PushConsumer, other: PushConsumer | list[Row], count: int
) -> list[Row]:
    """Wait until two consumers have all messages between them; the rows of both. They may share some."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while True:
        theirs = other if isinstance(other, list) else other.rows()
        rows = theirs + consumer.rows()
        missing = count - len({row.seq for row in rows})
        if missing <= 0 or time.monotonic() > deadline:
            return rows
        consumer.wait(len({row.seq for row in consumer.rows()}) + 1, timeout_ms=200)
