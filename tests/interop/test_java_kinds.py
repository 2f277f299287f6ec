"""Delayed, failed and transactional messages of official clients, and a broker that stops while all of them wait."""

from __future__ import annotations

import re
import signal
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

from interop.harness import checks
from interop.harness.cell import Cell
from interop.harness.clients import PATIENCE_MS, Producer, Row
from interop.harness.columns import by_tier
from interop.harness.kinds import TransactionProducer, WatchedConsumer
from interop.harness.lateness import lateness, of_a_thousand_a_second
from interop.harness.puppet import PuppetError
from interop.harness.waiting import wait_until

OURS = ("ours/5.4.0-json", "ours/4.9.7-json")
pytestmark = [
    pytest.mark.java,
    pytest.mark.short_columns(*OURS, "official-5.4.0/5.4.0-json"),
]

SIZE = 160
DELAYS_MS = {1: 1_000, 2: 5_000}
LATE_MS = 1_000
#: Clients look for routes and report themselves every 2 s instead of 30 s, so that a test need not wait that long.
QUICK: dict[str, Any] = {"poll_namesrv_ms": 2_000, "heartbeat_ms": 2_000}
INSIST_MS = 90_000


def counted(rows: Iterable[Row]) -> list[Row]:
    """Without the message that made the topic."""
    return [row for row in rows if row.seq >= 0]


def dead_letters(cell: Cell, at_least: int) -> list[Row]:
    """What the cell's group gave up, once so much is there.

    A 4.9.7 broker leaves the dead letters of an orderly group waiting for the level of a next try: a minute after two tries.
    """
    topic = f"%DLQ%{cell.group}"
    cell.admin.wait_route(topic)
    dead: list[Row] = []

    def are_there() -> bool:
        dead[:] = cell.admin.read_topics([topic])[topic]
        return len(dead) >= at_least

    wait_until(are_there, f"dead letters of {cell.group}", 2 * PATIENCE_MS / 1000)
    return dead


class TestDelay:
    """Messages with a delay level."""

    def test_they_come_when_their_level_is_over(self, cell: Cell) -> None:
        levels = [1, 2]
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            cell.make_topics(producer, cell.topic)
            with WatchedConsumer(
                cell.puppet, cell.namesrv, cell.group, cell.topic, **QUICK
            ) as consumer:
                consumer.wait(1)
                report = producer.send(
                    cell.topic, cell.seed, cell.count, size=SIZE, delay_levels=levels
                )
                consumer.wait(cell.count + 1)
                rows, times = counted(consumer.rows()), consumer.times()
        checks.all_was_acknowledged(report, cell.count)
        checks.bodies_are_whole(rows, cell.seed, SIZE)
        checks.nothing_is_lost(rows, range(cell.count))
        checks.nothing_came_twice(rows)
        for remainder in range(len(levels)):
            checks.stored_in_send_order([row for row in rows if row.seq % 2 == remainder])
        late = lateness(times, [DELAYS_MS[level] for level in levels])
        assert min(late) >= 0
        assert max(late) < LATE_MS, f"{sum(ms >= LATE_MS for ms in late)} came late"

    @pytest.mark.short_columns("none")
    def test_a_thousand_a_second_are_less_than_a_second_late(self, cell: Cell) -> None:
        late = of_a_thousand_a_second(cell, [1_000, 5_000], SIZE, delay_levels=[1, 2])
        assert min(late) >= 0
        assert max(late) < LATE_MS, f"{sum(ms >= LATE_MS for ms in late)} came late"


class TestRetry:
    """Messages that their consumer cannot use."""

    def test_they_come_again_until_they_are_used_or_dead(self, cell: Cell) -> None:
        count = min(cell.count, 2_000) // 4 * 4
        fail_times = [0, 1, 2, 99]
        tries = [1, 2, 3, 3]
        cell.make_retry_topic(cell.group)
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            cell.make_topics(producer, cell.topic)
            with WatchedConsumer(
                cell.puppet,
                cell.namesrv,
                cell.group,
                cell.topic,
                fail_times=fail_times,
                max_reconsume=2,
                retry_level=1,
                **QUICK,
            ) as consumer:
                consumer.wait(1)
                producer.send(cell.topic, cell.seed, count, size=SIZE, keys=True)
                # One that could not be given back comes after ten and thirty seconds, not after one.
                consumer.wait_rows(count * sum(tries) // 4 + 1, 2 * PATIENCE_MS)
                rows, times = counted(consumer.rows()), consumer.times()
            dead = dead_letters(cell, count // 4)
        checks.bodies_are_whole(rows + dead, cell.seed, SIZE)
        came = Counter((row.seq, row.reconsumed) for row in rows)
        due = {(seq, times) for seq in range(count) for times in range(tries[seq % 4])}
        early = due - set(came) if cell.column.servers == "official-4.9.7" else set()
        # Of a busy broker of that line: what its consumer could not give back, and sent itself, is dead one try too early.
        assert {number for _, number in early} <= {2}, early
        assert len(early) <= count // 100, early
        assert came == Counter(due - early)
        buried = {seq for seq, _ in early}
        checks.nothing_is_lost(dead, {*range(3, count, 4), *buried})
        checks.nothing_came_twice(dead)
        assert {row.reconsumed for row in dead if row.seq not in buried} <= {3}
        ids = defaultdict(set)
        for row in rows + dead:
            ids[row.seq, row.keys].add(row.msg_id)
        assert len(ids) == count
        assert all(len(found) == 1 for found in ids.values()), "a copy has another id"
        first = {moment.seq: moment.stored_ms for moment in times if moment.reconsumed == 0}
        waited = [m.stored_ms - first[m.seq] for m in times if m.reconsumed == 1]
        assert min(waited) >= DELAYS_MS[1]

    @pytest.mark.short_columns("none")
    def test_their_topics_may_be_read_and_written(self, cell: Cell) -> None:
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            cell.make_topics(producer, cell.topic)
            with WatchedConsumer(
                cell.puppet,
                cell.namesrv,
                cell.group,
                cell.topic,
                fail_times=[99],
                max_reconsume=0,
                **QUICK,
            ) as consumer:
                consumer.wait(1)
                producer.send(cell.topic, cell.seed, 1, size=SIZE)
                # Made by the heartbeat of the group, and by the first message that it gives up.
                for topic in (f"%RETRY%{cell.group}", f"%DLQ%{cell.group}"):
                    cell.admin.wait_route(topic)
                    route = cell.admin.command("topicRoute", "-t", topic)["output"]
                    values = dict(
                        re.findall(r'"(perm|readQueueNums|writeQueueNums)":\s*(\d+)', route)
                    )
                    assert values == {"perm": "6", "readQueueNums": "1", "writeQueueNums": "1"}
                dead = dead_letters(cell, 1)
        checks.nothing_is_lost(dead, [0])

    def test_an_orderly_group_gives_up_without_a_detour(self, cell: Cell) -> None:
        count = min(cell.count, 60)
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            cell.make_topics(producer, cell.topic)
            with WatchedConsumer(
                cell.puppet,
                cell.namesrv,
                cell.group,
                cell.topic,
                listener="orderly",
                suspend_ms=10,
                fail_times=[0, 1, 99],
                max_reconsume=2,
                **QUICK,
            ) as consumer:
                consumer.wait(1)
                producer.send(cell.topic, cell.seed, count, size=SIZE)
                consumer.wait(count + 1)
                dead = dead_letters(cell, count // 3)
                rows = counted(consumer.rows())
        checks.nothing_is_lost(rows, range(count))
        checks.bodies_are_whole(rows + dead, cell.seed, SIZE)
        checks.nothing_is_lost(dead, range(2, count, 3))
        checks.nothing_came_twice(dead)
        by_queue = defaultdict(list)
        for row in rows:
            by_queue[row.queue].append(row.offset)
        assert all(offsets == sorted(offsets) for offsets in by_queue.values())


class TestTransactions:
    """Messages that consumers see if their producer says so."""

    OUTCOMES = ("commit", "rollback", "unknown:commit", "unknown:rollback")

    def test_only_committed_messages_come(self, cell: Cell) -> None:
        count = min(cell.count, 2_000) // 4 * 4
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            cell.make_topics(producer, cell.topic)
        due = [seq for seq in range(count) if seq % 2 == 0]
        with (
            TransactionProducer(
                cell.puppet, cell.namesrv, cell.group + "-t", list(self.OUTCOMES), **QUICK
            ) as producer_of_halves,
            WatchedConsumer(cell.puppet, cell.namesrv, cell.group, cell.topic, **QUICK) as consumer,
        ):
            states = producer_of_halves.send(cell.topic, cell.seed, count, size=SIZE)
            assert producer_of_halves.wait_asked(count // 2) == count // 2
            consumer.wait(len(due) + 1)
            asked = producer_of_halves.asked()
            stored = cell.admin.read_topics([cell.topic])[cell.topic]
            rows = counted(consumer.rows())
        assert Counter(states.values()) == {
            "COMMIT_MESSAGE": count // 4,
            "ROLLBACK_MESSAGE": count // 4,
            "UNKNOW": count // 2,
        }
        checks.bodies_are_whole(rows, cell.seed, SIZE)
        checks.nothing_is_lost(rows, due)
        checks.nothing_is_lost(counted(stored), due)
        needless = set(asked) - {seq for seq in range(count) if seq % 4 >= 2}
        twice = {seq for seq, times in Counter(r.seq for r in rows).items() if times > 1}
        if cell.column.is_control:
            # A busy official broker asks although it was told, as long as it has not noted that, and commits again.
            assert {seq for seq in twice if seq % 4 == 0} <= needless
        else:
            assert not needless
            assert not {seq for seq in twice if seq % 4 == 0}
        assert {seq for seq in range(count) if seq % 4 >= 2} <= set(asked)

    @pytest.mark.short_columns("none")
    def test_another_producer_of_the_group_is_asked_when_the_sender_is_gone(
        self, cell: Cell
    ) -> None:
        few, outcomes = 12, ["unknown:commit", "unknown:rollback"]
        sending = cell.another_puppet()
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            cell.make_topics(producer, cell.topic)
        with (
            TransactionProducer(
                cell.puppet, cell.namesrv, cell.group + "-t", outcomes, **QUICK
            ) as living,
            WatchedConsumer(cell.puppet, cell.namesrv, cell.group, cell.topic, **QUICK) as consumer,
        ):
            # Brokers hear of a producer once it knows their topic.
            living.send(cell.topic, cell.seed, 2, first=few, size=SIZE)
            dying = TransactionProducer(sending, cell.namesrv, cell.group + "-t", outcomes, **QUICK)
            dying.send(cell.topic, cell.seed, few, size=SIZE)
            sending.kill()
            assert living.wait_asked(few + 2) == few + 2
            due = range(0, few + 2, 2)
            rows = counted(consumer.wait_for_all(due))
        checks.nothing_is_lost(rows, due)
        checks.bodies_are_whole(rows, cell.seed, SIZE)

    @pytest.mark.short_columns("none")
    def test_nobody_is_asked_before_the_time_that_the_message_names(self, cell: Cell) -> None:
        few = 6
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            cell.make_topics(producer, cell.topic)
        with (
            TransactionProducer(
                cell.puppet, cell.namesrv, cell.group + "-t", ["unknown:commit"], **QUICK
            ) as deciding,
            WatchedConsumer(cell.puppet, cell.namesrv, cell.group, cell.topic, **QUICK) as consumer,
        ):
            # Brokers of the cells ask after one and a half to four and a half seconds.
            deciding.send(cell.topic, cell.seed, few, size=SIZE, immunity_s="9")
            assert deciding.wait_asked(1, 8_000) == 0
            assert deciding.wait_asked(few) == few
            rows = counted(consumer.wait_for_all(range(few)))
        checks.nothing_is_lost(rows, range(few))
        checks.bodies_are_whole(rows, cell.seed, SIZE)


class TestFilters:
    """Consumers that say by SQL92 which properties they want."""

    @pytest.fixture(autouse=True)
    def filters_served(self, cell: Cell) -> None:
        """Brokers filter so only where they are told to."""
        broker = cell.cluster.broker_address
        words = ("updateBrokerConfig", "-b", broker, "-k", "enablePropertyFilter", "-v", "true")
        assert "update broker config success" in cell.admin.command(*words)["output"]

    def test_only_what_matches_comes(self, cell: Cell) -> None:
        count = min(cell.count, 2_000)
        wanted = (
            "(seq between 10 and 19 or seq in ('3', '5')) and TAGS is not null and absent is null"
        )
        due = [3, 5, *range(10, 20), count]
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            cell.make_topics(producer, cell.topic)
            with WatchedConsumer(
                cell.puppet,
                cell.namesrv,
                cell.group,
                cell.topic,
                sql=f"{wanted} or seq = {count}",
                **QUICK,
            ) as consumer:
                producer.send(cell.topic, cell.seed, count, size=SIZE, tags=["TagA"])
                consumer.wait(len(due) - 1)
                # This one finds the pulls waiting.
                producer.send(cell.topic, cell.seed, 1, first=count, size=SIZE)
                consumer.wait(len(due))
                rows = consumer.rows()
        checks.bodies_are_whole(rows, cell.seed, SIZE)
        checks.nothing_is_lost(rows, due)
        checks.nothing_came_twice(rows)
        assert len(rows) == len(due)

    def test_a_wrong_expression_stops_the_consumer_at_its_start(self, cell: Cell) -> None:
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            cell.make_topics(producer, cell.topic)
        with pytest.raises(PuppetError, match="Encountered"):
            WatchedConsumer(
                cell.puppet, cell.namesrv, cell.group, cell.topic, sql="seq between", **QUICK
            )


@pytest.mark.short_columns(OURS[0])
class TestRestart:
    """The broker goes while messages of every kind wait in it."""

    def consumer(self, cell: Cell, suffix: str, topic: str, **settings: Any) -> WatchedConsumer:
        """One of the groups of the cell."""
        group = cell.group + suffix
        return WatchedConsumer(cell.puppet, cell.namesrv, group, topic, **settings, **QUICK)

    @pytest.mark.parametrize("how", by_tier(["SIGTERM"], ["SIGKILL"]))
    def test_what_waits_comes_nevertheless(self, cell: Cell, how: str) -> None:
        is_clean = how == "SIGTERM"
        count, few = min(cell.count, 2_000), 40
        delayed, failing, halves = (f"{cell.topic}-{n}" for n in ("delayed", "failing", "halves"))
        outcomes = ["unknown:commit", "unknown:rollback", "commit", "rollback"]
        with (
            Producer(cell.puppet, cell.namesrv, cell.group + "-p", **QUICK) as producer,
            TransactionProducer(
                cell.puppet, cell.namesrv, cell.group + "-t", outcomes, **QUICK
            ) as deciding,
        ):
            cell.make_topics(producer, delayed, failing, halves)
            cell.make_retry_topic(cell.group + "-2")
            with (
                self.consumer(cell, "-1", delayed) as of_delayed,
                self.consumer(cell, "-2", failing, fail_times=[1]) as of_failing,
                self.consumer(cell, "-3", halves) as of_halves,
            ):
                for consumer in (of_delayed, of_failing, of_halves):
                    consumer.wait(1)
                producer.send(delayed, cell.seed, count, size=SIZE, delay_levels=[2])
                producer.send(failing, cell.seed, few, size=SIZE)
                of_failing.wait_rows(few + 1)
                deciding.send(halves, cell.seed, few, size=SIZE)
                of_delayed.wait(2)
                cell.cluster.restart_broker(signal.Signals[how])
                of_delayed.wait(count + 1)
                of_failing.wait_rows(2 * few + 1)
                of_halves.wait(few // 2 + 1)
                came_late = counted(of_delayed.rows())
                again = [row for row in counted(of_failing.rows()) if row.reconsumed]
                committed = counted(of_halves.rows())
        cell.admin.wait_broker(cell.cluster.broker_name)
        stored = cell.admin.read_topics([delayed, halves])
        checks.nothing_is_lost(came_late, range(count))
        checks.nothing_is_lost(again, range(few))
        checks.nothing_is_lost(committed, range(0, few, 2))
        checks.nothing_is_lost(counted(stored[halves]), range(0, few, 2))
        checks.bodies_are_whole(came_late + again + committed, cell.seed, SIZE)
        if is_clean:
            checks.nothing_came_twice(counted(stored[delayed]))
        elif cell.column.servers == "ours":
            # What was delivered since the offsets were saved, at most ten seconds before.
            twice = len(counted(stored[delayed])) - count
            assert twice <= count
