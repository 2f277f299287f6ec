"""All delay levels as they are configured, and timed messages beyond the window of the wheel, with a broker that goes in the middle."""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from typing import Any

import pytest

from interop.harness import checks
from interop.harness.clients import Producer, Row
from interop.harness.kinds import Times, WatchedConsumer
from interop.harness.lateness import lateness
from interop.harness.own_brokers import OwnBrokers

#: 4.9.7 brokers have no timer.
TIMED = (
    *("ours/5.4.0-json", "ours/5.4.0-rocketmq"),
    *("official-5.4.0/5.4.0-json", "official-5.4.0/5.4.0-rocketmq"),
)
pytestmark = [pytest.mark.java, pytest.mark.short_columns("none")]
SIZE, SEED = 160, "waiting-seed"
#: Slots of a second; the wheel looks no farther.
FOUR_AHEAD = {"timerRollWindowSlot": "4"}
FIRST_MS = 1_000
"""Brokers begin to look a second after their start."""
QUICK: dict[str, Any] = {"poll_namesrv_ms": 1_000, "heartbeat_ms": 1_000}


def counted(rows: list[Row]) -> list[Row]:
    """Without the message that made the topic."""
    return [row for row in rows if row.seq >= 0]


class TestLevels:
    """All eighteen, a second apart from one another."""

    LEVELS = range(1, 19)
    EACH = 5

    @pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
    def test_each_level_waits_as_long_as_is_configured(self, own: OwnBrokers, how: str) -> None:
        topic = "Levels"
        # There is no level beyond the last one: it is the last one.
        levels = [*self.LEVELS, self.LEVELS[-1] + 1]
        waits_ms = [1_000 * min(level, self.LEVELS[-1]) for level in levels]
        count = self.EACH * len(levels)
        table = " ".join(f"{level}s" for level in self.LEVELS)
        with (
            own.broker({"messageDelayLevel": table}) as (cluster, puppet, admin),
            Producer(puppet, cluster.namesrv, "levels-p", **QUICK) as producer,
        ):
            admin.create_topic(cluster.broker_address, topic, 1)
            admin.wait_route(topic)
            with WatchedConsumer(
                puppet, cluster.namesrv, "levels-group", topic, **QUICK
            ) as consumer:
                consumer.wait_assigned(1)
                producer.send(topic, SEED, count, size=SIZE, delay_levels=levels)
                # Some came, the others wait.
                consumer.wait(4 * self.EACH)
                cluster.restart_broker(signal.Signals[how])
                back_ms = time.time() * 1000
                rows = counted(consumer.wait_for_all(range(count)))
                times = consumer.times()
            cluster.stop_broker(signal.SIGTERM)
            kept = (cluster.store / "config" / "delayOffset.json").read_text()
            stored = [moment for moment in times if moment.seq >= 0]
        checks.bodies_are_whole(rows, SEED, SIZE)
        checks.nothing_is_lost(rows, range(count))
        late = lateness(stored, waits_ms)
        assert min(late) >= 0
        if own.column.servers == "ours":
            assert late_after(stored, waits_ms, back_ms + FIRST_MS) < 1_000
        # A kill lets come again what came since the offsets were saved.
        if how == "SIGTERM" and own.column.servers == "ours":
            checks.nothing_came_twice(rows)
        offsets = {int(level): int(at) for level, at in re.findall(r'"?(\d+)"?:(\d+)', kept)}
        wanted = Counter(min(levels[seq % len(levels)], self.LEVELS[-1]) for seq in range(count))
        assert {level: offsets[level] for level in self.LEVELS} == wanted


def late_after(stored: list[Times], waits_ms: list[int], back_ms: float) -> float:
    """By how many ms the latest came after its time, or after the broker was back, whichever is later."""
    return max(
        moment.stored_ms - max(moment.born_ms + waits_ms[moment.seq % len(waits_ms)], back_ms)
        for moment in stored
    )


@pytest.mark.only_columns(*TIMED)
class TestRolls:
    """Messages that are due beyond what the wheel looks ahead are put into it again and again."""

    #: So long that a slow machine brings the broker back in time to read what was taken back.
    WAIT_MS = 40_000

    @pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
    def test_far_messages_come_once_and_on_time_unless_they_are_taken_back(
        self, own: OwnBrokers, how: str
    ) -> None:
        topic, few = "Rolled", 20
        with (
            own.broker(FOUR_AHEAD) as (cluster, puppet, admin),
            Producer(puppet, cluster.namesrv, "rolls-p", **QUICK) as producer,
        ):
            admin.create_topic(cluster.broker_address, topic, 1)
            admin.wait_route(topic)
            with WatchedConsumer(
                puppet, cluster.namesrv, "rolls-group", topic, **QUICK
            ) as consumer:
                consumer.wait_assigned(1)
                at_ms = int(time.time() * 1000) + self.WAIT_MS
                sent = [
                    producer.send_text(
                        topic,
                        f"{seq}",
                        keys=f"k{seq}",
                        properties=[f"seq={seq}"],
                        timed=[f"TIMER_DELIVER_MS={at_ms}"],
                    )
                    for seq in range(few)
                ]
                # One that is due when the others were put again tells that they were.
                producer.send(topic, SEED, 1, first=few, size=SIZE, timed=["TIMER_DELAY_MS=6000"])
                consumer.wait(1)
                for message in sent[::4]:
                    assert producer.recall(topic, message["recall_handle"]) == message["msg_id"]
                cluster.restart_broker(signal.Signals[how])
                assert time.time() * 1000 < at_ms - 5_000, (
                    "the restart took too long to tell anything"
                )
                due = [seq for seq in range(few) if seq % 4]
                rows = counted(consumer.wait_for_all([*due, few]))
                # The last word: nothing of what was taken back comes behind it.
                producer.send(
                    topic,
                    SEED,
                    1,
                    first=few + 1,
                    size=SIZE,
                    timed=[f"TIMER_DELIVER_MS={at_ms + 3_000}"],
                    insist_ms=60_000,
                )
                rows = counted(consumer.wait_for_all([*due, few, few + 1]))
                times = [moment for moment in consumer.times() if 0 <= moment.seq < few]
        assert {row.seq for row in rows} == {*due, few, few + 1}
        assert min(moment.stored_ms for moment in times) >= at_ms
        assert max(moment.stored_ms for moment in times) <= at_ms + 1_500
        if how == "SIGTERM" and own.column.servers == "ours":
            checks.nothing_came_twice(rows)
