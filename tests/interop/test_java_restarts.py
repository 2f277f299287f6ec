"""The broker goes and comes back while official clients do every kind of thing; what each of them has to show for it."""

from __future__ import annotations

import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from interop.harness import checks, waiting
from interop.harness.cell import Cell
from interop.harness.clients import PATIENCE_MS, Producer, PushConsumer, Row
from interop.harness.columns import by_tier
from interop.harness.kinds import Asker, Replier, TransactionProducer, WatchedConsumer
from interop.harness.puppet import PuppetError

CI = "ours/5.4.0-json"
pytestmark = [pytest.mark.java, pytest.mark.short_columns(CI)]
#: 4.9.7 has no timer, and its clients recall nothing.
RECALLS = (
    *("ours/5.4.0-json", "ours/5.4.0-rocketmq"),
    *("official-5.4.0/5.4.0-json", "official-5.4.0/5.4.0-rocketmq"),
)
TIMED = (*RECALLS, "ours/4.9.7-json", "ours/4.9.7-rocketmq")
SIZE = 160
QUEUES = 4
QUICK: dict[str, Any] = {"poll_namesrv_ms": 1_000, "heartbeat_ms": 1_000}
INSIST_MS = 90_000
HOWS = by_tier(["SIGKILL"], ["SIGTERM"])


def counted(rows: Iterable[Row]) -> list[Row]:
    """Without the message that made the topic."""
    return [row for row in rows if row.seq >= 0]


wait_until = partial(waiting.wait_until, timeout_s=2 * PATIENCE_MS / 1000)


def restart(cell: Cell, how: str) -> None:
    cell.cluster.restart_broker(signal.Signals[how])
    cell.admin.wait_broker(cell.cluster.broker_name)


def firsts(rows: Iterable[Row]) -> list[Row]:
    """Of each stored message the first delivery."""
    found: dict[tuple[str, int, int], Row] = {}
    for row in rows:
        found.setdefault(row.place, row)
    return list(found.values())


@pytest.mark.parametrize("how", HOWS)
class TestConsumers:
    """Groups of all kinds read one topic, whose broker goes in the middle."""

    TAGS = ("red", "green", "blue")

    def consumer(self, cell: Cell, suffix: str, **settings: Any) -> PushConsumer:
        return PushConsumer(
            cell.puppet, cell.namesrv, cell.group + suffix, cell.topic, **settings, **QUICK
        )

    def test_filters_orders_and_broadcasts_go_on(self, cell: Cell, how: str) -> None:
        count = min(cell.count, 4_000) // 4 * 4
        low, high = count // 4, count * 3 // 4
        cell.cluster.change_settings({"enablePropertyFilter": "true"})
        cell.configure(enablePropertyFilter="true")
        due = {
            "tags": [seq for seq in range(count) if seq % 3 != 1],
            "sql": list(range(low, high)),
            "orderly": list(range(count)),
            "one": list(range(count)),
            "two": list(range(count)),
        }
        with (
            Producer(cell.puppet, cell.namesrv, cell.group + "-p", **QUICK) as producer,
            ExitStack() as stack,
        ):
            cell.make_topics(producer, cell.topic)
            broadcast = {"model": "BROADCASTING"}
            members = {
                "tags": self.consumer(cell, "-1", expression="red || blue"),
                "sql": self.consumer(cell, "-2", sql=f"seq >= {low} and seq < {high}"),
                "orderly": self.consumer(cell, "-3", listener="orderly"),
                "one": self.consumer(cell, "-4", instance=f"{cell.group}-1", **broadcast),
                "two": self.consumer(cell, "-4", instance=f"{cell.group}-2", **broadcast),
            }
            for member in members.values():
                stack.enter_context(member)
                member.wait_assigned(QUEUES)
            args: dict[str, Any] = {"size": SIZE, "tags": list(self.TAGS), "insist_ms": INSIST_MS}
            run = producer.start_sending(cell.topic, cell.seed, count, "ordered", **args)
            run.wait_attempted(count // 2)
            cell.cluster.restart_broker(signal.Signals[how])
            report = run.join()
            came = {
                name: counted(member.wait_for_all(due[name])) for name, member in members.items()
            }
        for name, rows in came.items():
            checks.bodies_are_whole(rows, cell.seed, SIZE)
            checks.nothing_is_lost(rows, due[name])
            if name == "orderly":
                checks.received_in_queue_order(firsts(rows))
            # Positions are kept by the members as well, so nobody gets a message twice.
            twice = len(rows) - len(firsts(rows))
            assert not twice, f"{twice} of {name} came twice"
        checks.each_is_where_it_was_said(came["orderly"], report.sent)


@pytest.mark.parametrize("how", HOWS)
class TestOutcomes:
    """What failed, was asked for, was taken back or is in doubt when the broker goes."""

    def test_tries_are_counted_on_and_the_dead_are_buried_once(self, cell: Cell, how: str) -> None:
        count = min(cell.count, 200) // 2 * 2
        dead = f"%DLQ%{cell.group}"
        cell.make_retry_topic(cell.group)
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p", **QUICK) as producer:
            cell.make_topics(producer, cell.topic)
            with WatchedConsumer(
                cell.puppet,
                cell.namesrv,
                cell.group,
                cell.topic,
                fail_times=[1, 99],
                max_reconsume=2,
                retry_level=1,
                **QUICK,
            ) as consumer:
                consumer.wait(1)
                producer.send(cell.topic, cell.seed, count, size=SIZE, keys=True)
                consumer.wait_rows(count + 1)
                # All wait for their second try now.
                cell.cluster.restart_broker(signal.Signals[how])
                last = {(seq, 2) for seq in range(1, count, 2)}
                second = {(seq, 1) for seq in range(count)}
                wait_until(
                    lambda: last | second <= {(r.seq, r.reconsumed) for r in consumer.rows()},
                    "tries",
                )
                cell.admin.wait_route(dead)
                odd = set(range(1, count, 2))
                wait_until(
                    lambda: odd <= {r.seq for r in cell.admin.read_topics([dead])[dead]},
                    "dead letters",
                )
                # The dead survive as well.
                restart(cell, how)
                cell.admin.wait_route(dead)
                buried = cell.admin.read_topics([dead])[dead]
                rows = counted(consumer.rows())
        checks.nothing_is_lost(buried, odd)
        checks.bodies_are_whole(rows + buried, cell.seed, SIZE)
        assert {row.reconsumed for row in buried} == {3}
        came = Counter((row.seq, row.reconsumed) for row in rows)
        assert set(came) == {(seq, 0) for seq in range(count)} | second | last
        if how == "SIGTERM":
            checks.nothing_came_twice(buried)
            assert max(came.values()) == 1, came.most_common(3)

    def test_questions_are_answered_again(self, cell: Cell, how: str) -> None:
        few = 20
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            cell.make_topics(producer, cell.topic)
        expected = [f"re:{cell.seed}-{number}" for number in range(few)]
        with (
            Replier(cell.puppet, cell.namesrv, cell.group, cell.topic, **QUICK) as replier,
            Asker(cell.puppet, cell.namesrv, cell.group + "-asks", **QUICK) as asker,
        ):
            assert asker.ask(cell.topic, cell.seed, few) == expected
            restart(cell, how)
            # The broker knows where to push a reply once the asker has reported itself.
            answers: list[str] = []

            def answered() -> bool:
                try:
                    answers[:] = asker.ask(cell.topic, cell.seed, few, timeout_ms=3_000)
                except PuppetError:
                    return False
                return True

            wait_until(answered, "an answer")
            assert answers == expected
            assert asker.ask_at_once(cell.topic, cell.seed, few) == expected
            failures = len(replier.failures())
        # Each question was stored, and each reply of which its asker heard.
        topic = "InteropCluster_REPLY_TOPIC"
        rows = cell.admin.read_topics([topic])[topic]
        assert len(rows) >= 3 * few - failures

    @pytest.mark.short_columns("none")
    @pytest.mark.only_columns(*RECALLS)
    def test_what_was_taken_back_stays_away(self, cell: Cell, how: str) -> None:
        few = 12
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p", **QUICK) as producer:
            cell.make_topics(producer, cell.topic)
            with WatchedConsumer(
                cell.puppet, cell.namesrv, cell.group, cell.topic, **QUICK
            ) as consumer:
                consumer.wait(1)
                at_ms = int(time.time() * 1000) + 15_000
                sent = [
                    producer.send_text(
                        cell.topic,
                        f"{number}",
                        properties=[f"seq={number}"],
                        timed=[f"TIMER_DELIVER_MS={at_ms}"],
                    )
                    for number in range(few)
                ]
                # Some before, some after the broker went.
                for message in sent[::3]:
                    producer.recall(cell.topic, message["recall_handle"])
                restart(cell, how)
                wait_until(lambda: self.is_sent(cell, producer), "a send")
                for message in sent[1::3]:
                    producer.recall(cell.topic, message["recall_handle"])
                assert int(time.time() * 1000) < at_ms, "the restart took too long to tell anything"
                last = producer.send_text(
                    cell.topic,
                    "last",
                    properties=[f"seq={few}"],
                    timed=[f"TIMER_DELIVER_MS={at_ms + 2_000}"],
                )
                assert last["status"] == "SEND_OK"
                rows = counted(consumer.wait_for_all([*range(2, few, 3), few]))
                times = [t for t in consumer.times() if 0 <= t.seq < few]
        checks.nothing_is_lost(rows, [*range(2, few, 3), few])
        assert min(t.stored_ms for t in times) >= at_ms
        if how == "SIGTERM":
            checks.nothing_came_twice(rows)

    def is_sent(self, cell: Cell, producer: Producer) -> bool:
        try:
            producer.send_text(cell.topic, "again")
        except PuppetError:
            return False
        return True


@pytest.mark.short_columns("none")
@pytest.mark.parametrize("how", HOWS)
class TestTransactions:
    """Transactions in each state that they can be in when the broker goes."""

    OUTCOMES = (
        "commit",
        "rollback",
        "unknown:commit",
        "unknown:rollback",
        "unknown:unknown:commit",
        "unknown:unknown:rollback",
        "unknown",
    )
    GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"

    def test_each_ends_as_its_producer_says(self, cell: Cell, how: str) -> None:
        kinds = len(self.OUTCOMES)
        few = 6 * kinds
        # An official broker counts questions that no producer was there to hear: while it stops and starts it may count several.
        cell.cluster.change_settings({"transactionCheckMax": "8"})
        cell.configure(transactionCheckMax="8")
        try:
            with (
                Producer(cell.puppet, cell.namesrv, cell.group + "-p", **QUICK) as producer,
                TransactionProducer(
                    cell.puppet, cell.namesrv, cell.group + "-t", list(self.OUTCOMES), **QUICK
                ) as deciding,
                WatchedConsumer(
                    cell.puppet, cell.namesrv, cell.group, cell.topic, **QUICK
                ) as consumer,
            ):
                cell.make_topics(producer, cell.topic)
                deciding.send(cell.topic, cell.seed, few, size=SIZE)
                # These were asked for once: some ended by that, the others are in doubt still.
                deciding.wait_asked(few * 5 // kinds)
                # Nobody was asked for these.
                deciding.send(cell.topic, cell.seed, few, first=few, size=SIZE)
                cell.cluster.restart_broker(signal.Signals[how])
                due = [seq for seq in range(2 * few) if seq % kinds in (0, 2, 4)]
                consumer.wait_for_all(due)
                wait_until(
                    lambda: (
                        {seq for seq in range(2 * few) if seq % kinds == 6}
                        <= {row.seq for row in self.given_up(cell)}
                    ),
                    "those that nobody knows of are given up",
                )
                asked = deciding.asked()
                rows = counted(consumer.rows())
        finally:
            cell.cluster.change_settings({"transactionCheckMax": "15"})
            cell.configure(transactionCheckMax="15")
        stored = counted(cell.admin.read_topics([cell.topic])[cell.topic])
        checks.bodies_are_whole(rows + stored, cell.seed, SIZE)
        checks.nothing_is_lost(rows, due)
        checks.nothing_is_lost(stored, due)
        checks.nothing_is_lost(
            self.given_up(cell), [seq for seq in range(2 * few) if seq % kinds == 6]
        )
        for seq in range(2 * few):
            assert asked.get(seq, 0) >= (0, 0, 1, 1, 2, 2, 3)[seq % kinds], (seq, asked.get(seq))
        if how == "SIGTERM" and cell.column.servers == "ours":
            checks.nothing_came_twice(stored)
            assert not [seq for seq in asked if seq % kinds < 2]

    def given_up(self, cell: Cell) -> list[Row]:
        """Those of this cell, by their bodies."""
        try:
            rows = cell.admin.read_topics([self.GIVEN_UP])[self.GIVEN_UP]
        except PuppetError:
            return []
        return [
            row for row in rows if row.digest == checks.expected_digest(cell.seed, row.seq, SIZE)
        ]


class TestCopies:
    """What a kill makes a broker deliver a second time: what it delivered since it saved how far it was, and nothing older."""

    #: The intervals at which that is saved, and a second for a machine that is busy.
    DELAY_MS, TIMER_MS, OP_MS = 10_000 + 1_000, 1_000 + 1_000, 3_000 + 1_000

    def copies(self, consumer: WatchedConsumer) -> list[tuple[int, int]]:
        """Of each message that is stored twice or more often: sequence number, and when its first copy was stored."""
        stored: dict[int, dict[tuple[str, int, int], int]] = defaultdict(dict)
        for row, moment in zip(consumer.rows(), consumer.times(), strict=True):
            stored[row.seq][row.place] = moment.stored_ms
        return [(seq, min(found.values())) for seq, found in stored.items() if len(found) > 1]

    def kill(self, cell: Cell) -> int:
        """When it was."""
        went_ms = int(time.time() * 1000)
        restart(cell, "SIGKILL")
        return went_ms

    @pytest.mark.short_columns("none")
    @pytest.mark.parametrize(
        "kind",
        ["level", pytest.param("timed", marks=pytest.mark.only_columns(*TIMED)), "transaction"],
    )
    def test_only_what_came_just_before_comes_again(self, cell: Cell, kind: str) -> None:
        count = min(cell.count, 2_000)
        ways: dict[str, dict[str, Any]] = {
            "level": {"delay_levels": [1]},
            "timed": {"timed": ["TIMER_DELAY_MS=1500"]},
        }
        limit_ms = {"level": self.DELAY_MS, "timed": self.TIMER_MS, "transaction": self.OP_MS}[kind]
        with (
            Producer(cell.puppet, cell.namesrv, cell.group + "-p", **QUICK) as producer,
            TransactionProducer(
                cell.puppet, cell.namesrv, cell.group + "-t", ["commit"], **QUICK
            ) as deciding,
        ):
            cell.make_topics(producer, cell.topic)
            with WatchedConsumer(
                cell.puppet, cell.namesrv, cell.group, cell.topic, **QUICK
            ) as consumer:
                consumer.wait(1)
                if kind == "transaction":
                    deciding.send(cell.topic, cell.seed, count, size=SIZE)
                    consumer.wait(count + 1)
                else:
                    run = producer.start_sending(
                        cell.topic,
                        cell.seed,
                        count,
                        size=SIZE,
                        rate=100,
                        insist_ms=INSIST_MS,
                        **ways[kind],
                    )
                    run.wait_attempted(count * 3 // 4)
                went_ms = self.kill(cell)
                if kind != "transaction":
                    run.join()
                rows = counted(consumer.wait_for_all(range(count)))
                # Those that come again come before what is sent now, and is due later.
                producer.send(
                    cell.topic,
                    cell.seed,
                    1,
                    first=count,
                    size=SIZE,
                    delay_levels=[2],
                    insist_ms=INSIST_MS,
                )
                consumer.wait_for_all([*range(count), count])
                found = self.copies(consumer)
        checks.nothing_is_lost(rows, range(count))
        oldest_ms = max((went_ms - first_ms for _, first_ms in found), default=0)
        print(f"{kind}: {len(found)} of {count} stored twice, the oldest {oldest_ms} ms before")
        assert oldest_ms <= limit_ms


class TestOrderLocks:
    """Locks of an orderly group when a member dies with them, and nobody gives them back."""

    @pytest.mark.short_columns("none")
    def test_the_other_member_takes_over_where_the_dead_one_stood(
        self, cell: Cell, tmp_path: Path
    ) -> None:
        count = min(cell.count, 2_000) // 2 * 2
        record = tmp_path / "rows"
        puppet = cell.another_puppet()
        settings: dict[str, Any] = {"listener": "orderly", "persist_offset_ms": 500, **QUICK}
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            cell.make_topics(producer, cell.topic)
            dying = PushConsumer(
                puppet, cell.namesrv, cell.group, cell.topic, record_file=str(record), **settings
            )
            dying.wait_assigned(QUEUES)
            with PushConsumer(
                cell.puppet, cell.namesrv, cell.group, cell.topic, **settings
            ) as other:
                dying.wait_assigned(QUEUES // 2)
                other.wait_assigned(QUEUES // 2)
                producer.send(cell.topic, cell.seed, count // 2, "ordered", size=SIZE)
                dying.wait(1)
                puppet.kill()
                producer.send(
                    cell.topic, cell.seed, count // 2, "ordered", first=count // 2, size=SIZE
                )
                before = counted(dying.recorded_rows())
                # The dead one's locks last for a minute.
                due = set(range(count)) - {row.seq for row in before}
                wait_until(
                    lambda: due <= {row.seq for row in other.rows()}, "the dead one's queues"
                )
                rows = counted(other.rows())
        checks.bodies_are_whole(before + rows, cell.seed, SIZE)
        checks.nothing_is_lost(before + rows, range(count))
        checks.stored_once(before + rows)
        checks.received_in_queue_order(before)
        checks.received_in_queue_order(rows)
        # It begins where the dead one had committed, at most a few of which that one had had.
        last: dict[int, int] = defaultdict(lambda: -1)
        for row in before:
            last[row.queue] = max(last[row.queue], row.offset)
        for queue, offset in last.items():
            taken_over = [row.offset for row in rows if row.queue == queue]
            assert min(taken_over) <= offset + 1
