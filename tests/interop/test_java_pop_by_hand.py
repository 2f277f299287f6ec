"""What official proxies ask about messages that are popped: acknowledging many at once, peeking, and waiting for news (5.x)."""

from __future__ import annotations

import signal
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from interop.harness import checks
from interop.harness.cell import Cell
from interop.harness.clients import Producer, Row
from interop.harness.columns import by_tier
from interop.harness.kinds import Popped, Popping
from interop.harness.puppet import PuppetError
from interop.harness.waiting import wait_until

#: Official headers in binary have no room for the codes.
COLUMNS = ("ours/5.4.0-json", "ours/5.4.0-rocketmq", "official-5.4.0/5.4.0-json")
pytestmark = [
    pytest.mark.java,
    pytest.mark.only_columns(*COLUMNS),
    pytest.mark.short_columns("none"),
]

SIZE, QUEUES = 160, 2
#: Longer than a restart of an official broker on a busy machine.
INVISIBLE_MS = 60_000
#: Longer than a whole test.
FOR_GOOD_MS = 600_000
#: How long after its time a message may come again: brokers look at what is due once a second, and put it to the retry topic one by one.
LATE_MS = 30_000
#: How soon whoever waits hears of a message.
SOON_MS = 1_000


@pytest.fixture
def producer(cell: Cell) -> Iterator[Producer]:
    """One that sends to the cell's topic, which is there."""
    cell.admin.create_topic(cell.cluster.broker_address, cell.topic, QUEUES)
    cell.admin.wait_route(cell.topic)
    quick = {"poll_namesrv_ms": 1_000, "heartbeat_ms": 1_000}
    with Producer(cell.puppet, cell.namesrv, cell.group + "-p", **quick) as made:
        yield made


@pytest.fixture
def popping(cell: Cell) -> Iterator[Popping]:
    """Whoever pops the cell's topic for its group."""
    with Popping(cell.puppet, cell.cluster, cell.group, cell.topic) as made:
        yield made


def pop_all(popping: Popping, count: int, invisible_ms: int = INVISIBLE_MS) -> list[Popped]:
    """Pop until that many came."""
    popped: list[Popped] = []

    def all_came() -> bool:
        popped.extend(popping.pop(32, invisible_ms))
        return len(popped) >= count

    wait_until(all_came, f"{count} messages are popped", pause_s=0)
    return popped


def rows_of(popped: Collection[Popped]) -> list[Row]:
    return [one.row for one in popped]


class TestAcknowledgedTogether:
    """BATCH_ACK_MESSAGE: what is named is done with, everything else comes again when its time is over, once."""

    @pytest.mark.parametrize("how", by_tier(["SIGTERM"], ["SIGKILL"]))
    def test_what_is_left_out_comes_again_over_a_restart(
        self, cell: Cell, producer: Producer, popping: Popping, how: str
    ) -> None:
        count = min(cell.count, 600)
        producer.send(cell.topic, cell.seed, count, size=SIZE)
        popped = pop_all(popping, count)
        checks.nothing_is_lost(rows_of(popped), range(count))
        checks.nothing_came_twice(rows_of(popped))
        checks.bodies_are_whole(rows_of(popped), cell.seed, SIZE)
        # A third is done with before the restart, a third after it, each by one request that names both queues and many pops.
        assert popping.acknowledge([one for one in popped if one.row.seq % 3 == 0]) == "OK"
        cell.cluster.restart_broker(signal.Signals[how])
        cell.admin.wait_broker(cell.cluster.broker_name)
        assert popping.acknowledge([one for one in popped if one.row.seq % 3 == 1]) == "OK"
        soonest = min(one.hidden_until_ms for one in popped)
        assert time.time() * 1000 < soonest, "the restart took too long for this cell"
        due = {one.row.seq: one.hidden_until_ms for one in popped if one.row.seq % 3 == 2}
        again: list[Popped] = []

        def they_came() -> bool:
            again.extend(popping.pop(32, FOR_GOOD_MS, poll_ms=2_000))
            return {one.row.seq for one in again} >= set(due)

        wait_until(they_came, "what was left out comes again", 2 * INVISIBLE_MS / 1000, pause_s=0)
        rows = rows_of(again)
        checks.bodies_are_whole(rows, cell.seed, SIZE)
        if how == "SIGKILL":
            # What a broker knew in memory alone comes once more; nothing is lost.
            return
        # Nothing else comes, and nothing comes too early, too late, or twice.
        again += popping.pop(32, FOR_GOOD_MS, poll_ms=5_000)
        rows = rows_of(again)
        checks.nothing_came_twice(rows)
        assert {row.seq for row in rows} == set(due)
        for row in rows:
            assert row.reconsumed == 1
            assert 0 <= row.received_ms - due[row.seq] < LATE_MS
        # Messages that came again are acknowledged together as well, and then everything is done with.
        assert popping.acknowledge(again) == "OK"
        assert popping.pop(32, INVISIBLE_MS, poll_ms=2_000) == []
        assert not popping.news(1_000)

    def test_a_time_that_was_changed_counts_with_the_new_handle(
        self, cell: Cell, producer: Producer, popping: Popping
    ) -> None:
        few = 20
        producer.send(cell.topic, cell.seed, few, size=SIZE)
        popped = {one.row.seq: one for one in pop_all(popping, few, FOR_GOOD_MS)}
        assert sorted(popped) == list(range(few))
        # Half of them are to come again soon; of these half are acknowledged in time, by their new handles.
        changed = [popping.later(popped[seq], 4_000) for seq in range(few // 2)]
        told_ms = time.time() * 1000
        assert popping.acknowledge(changed[: few // 4]) == "OK"
        assert popping.acknowledge([popped[seq] for seq in range(few // 2, few)]) == "OK"
        soon = range(few // 4, few // 2)
        again: list[Popped] = []

        def they_came() -> bool:
            again.extend(popping.pop(32, FOR_GOOD_MS, poll_ms=2_000))
            return {one.row.seq for one in again} >= set(soon)

        wait_until(they_came, "what was to come again soon", pause_s=0)
        again += popping.pop(32, FOR_GOOD_MS, poll_ms=3_000)
        assert sorted(one.row.seq for one in again) == list(soon)
        assert all(one.row.received_ms - (told_ms + 4_000) + SOON_MS >= 0 for one in again)
        assert all(one.row.received_ms - (told_ms + 4_000) < LATE_MS for one in again)
        assert popping.acknowledge(again) == "OK"


class TestPeeks:
    """PEEK_MESSAGE: what a pop would find, and nothing is taken."""

    def test_it_shows_what_comes_next_and_takes_nothing(
        self, cell: Cell, producer: Producer, popping: Popping
    ) -> None:
        few = 24
        assert popping.peek(32) == []
        producer.send(cell.topic, cell.seed, few, "queue", queue=0, size=SIZE)

        def seen(most: int = 32, queue: int = 0) -> list[int]:
            rows = popping.peek(most, queue=queue)
            checks.bodies_are_whole(rows, cell.seed, SIZE)
            assert [row.offset for row in rows] == [row.seq for row in rows]
            return [row.seq for row in rows]

        wait_until(lambda: seen() == list(range(few)), "all are seen")
        assert seen() == list(range(few))
        assert seen(5) == list(range(5))
        assert seen(queue=1) == []
        assert {row.seq for row in popping.peek(32)} == set(range(few))
        popped = popping.pop(8, FOR_GOOD_MS, queue=0)
        assert [one.row.seq for one in popped] == list(range(8))
        # What is popped is not seen any more, whether it is acknowledged or not.
        wait_until(lambda: seen() == list(range(8, few)), "popped ones are gone")
        assert popping.acknowledge(popped[:4]) == "OK"
        assert seen() == list(range(8, few))
        cell.cluster.restart_broker(signal.SIGTERM)
        cell.admin.wait_broker(cell.cluster.broker_name)
        wait_until(lambda: seen() == list(range(8, few)), "the same after a restart")
        rest = popping.pop(32, FOR_GOOD_MS, queue=0)
        assert [one.row.seq for one in rest] == list(range(8, few))
        assert popping.acknowledge(rest) == "OK"
        wait_until(lambda: seen() == [], "nothing is left")
        with pytest.raises(PuppetError, match="queueId") as refused:
            popping.peek(1, queue=QUEUES)
        assert refused.value.code is not None


class TestNews:
    """NOTIFICATION: who waits for a message hears of it, and takes nothing."""

    def test_who_waits_hears_of_messages_old_and_new(
        self, cell: Cell, producer: Producer, popping: Popping
    ) -> None:
        began = time.monotonic()
        assert not popping.news(3_000), "there was nothing"
        assert 2.9 < time.monotonic() - began < 3 + LATE_MS / 1000
        with ThreadPoolExecutor(2) as threads:
            for number in range(5):
                queue = number % QUEUES
                waiting = threads.submit(popping.news, 30_000)
                alone = threads.submit(popping.news, 30_000, queue=queue)
                assert not wait([waiting, alone], timeout=0.5).done, "they do not wait"
                producer.send(cell.topic, cell.seed, 1, "queue", queue=queue, first=number)
                sent = time.monotonic()
                assert waiting.result(40)
                assert alone.result(40)
                assert time.monotonic() - sent < SOON_MS / 1000
                # It is there still, and whoever asks hears at once.
                assert popping.news(30_000)
                (one,) = popping.pop(32, 3_000)
                assert one.row.seq == number
                if number < 4:
                    assert popping.acknowledge([one]) == "OK"
        # The last one was not acknowledged: it is news again when its time is over, and after a restart too.
        assert popping.news(30_000)
        assert one.hidden_until_ms <= time.time() * 1000 < one.hidden_until_ms + LATE_MS
        cell.cluster.restart_broker(signal.SIGTERM)
        cell.admin.wait_broker(cell.cluster.broker_name)
        assert popping.news(30_000)
        (again,) = popping.pop(32, FOR_GOOD_MS)
        assert (again.row.seq, again.row.reconsumed) == (4, 1)
        assert popping.acknowledge([again]) == "OK"
        assert not popping.news(1_000)

    def test_pops_that_wait_are_counted_and_woken(
        self, cell: Cell, producer: Producer, popping: Popping
    ) -> None:
        assert popping.waiting() == 0
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(popping.pop, 32, INVISIBLE_MS, poll_ms=30_000)
            wait_until(lambda: popping.waiting() == 1, "it waits")
            producer.send(cell.topic, cell.seed, 1, size=SIZE)
            (one,) = waiting.result(40)
        assert one.row.seq == 0
        assert popping.acknowledge([one]) == "OK"
        wait_until(lambda: popping.waiting() == 0, "nobody waits any more")
        assert popping.pop(32, INVISIBLE_MS, poll_ms=2_000) == []
