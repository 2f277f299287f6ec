"""What restarts, kills and power failures leave of timed messages."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from small_broker import ROOT, START_S, SmallBroker
from timers import bodies, delivered, killed, power_failed, recall, run, send_timed

from txrocketmq.codec.storefiles import TIMER_CHECKPOINT
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.names import TIMER_TOPIC

START_MS = START_S * 1000


def timer_of(broker: SmallBroker) -> Any:
    return next(f for f in broker.core.features if hasattr(f, "places"))


def test_an_orderly_restart_forgets_nothing_and_repeats_nothing() -> None:
    broker = SmallBroker(recall_message_enable=True)
    peer = broker.connect()
    send_timed(peer, b"soon", UNIQ_KEY="1", TIMER_DELAY_MS="500")
    send_timed(peer, b"later", UNIQ_KEY="2", TIMER_DELAY_SEC="10")
    handle = send_timed(peer, b"never", UNIQ_KEY="3", TIMER_DELAY_SEC="10").recall_handle
    recall(peer, handle)
    run(broker.clock, 2)
    assert bodies(broker) == [b"soon"]
    again = broker.restarted()
    assert timer_of(again).metrics.count("TopicA") == 1
    assert timer_of(again).timer.waiting == 1
    run(again.clock, 7)
    assert bodies(again) == [b"soon"]
    run(again.clock, 3)
    assert bodies(again) == [b"soon", b"later"]
    more = again.restarted()
    run(more.clock, 3)
    assert bodies(more) == [b"soon", b"later"]


def test_what_was_sent_just_before_an_orderly_stop_is_delivered() -> None:
    broker = SmallBroker()
    send_timed(broker.connect(), TIMER_DELAY_SEC="2")
    again = broker.restarted()
    run(again.clock, 3.1)
    assert bodies(again) == [b"late"]


def test_what_became_due_while_the_broker_was_down_comes_at_once() -> None:
    broker = SmallBroker()
    send_timed(broker.connect(), TIMER_DELAY_SEC="30")
    run(broker.clock, 1)
    broker.stop()
    # Longer than half a round of the wheel.
    broker.clock.advance(9 * 24 * 3600)
    again = SmallBroker(broker.disk, broker.clock)
    run(again.clock, 0.2)
    assert bodies(again) == [b"late"]


def test_a_killed_broker_loses_nothing_and_repeats_only_what_it_just_delivered() -> None:
    broker = SmallBroker()
    peer = broker.connect()
    send_timed(peer, b"long ago", UNIQ_KEY="1", TIMER_DELAY_MS="500")
    send_timed(peer, b"waits", UNIQ_KEY="2", TIMER_DELAY_SEC="10")
    run(broker.clock, 5)
    send_timed(peer, b"just sent", UNIQ_KEY="3", TIMER_DELAY_SEC="10")
    run(broker.clock, 0.1)
    again = killed(broker)
    run(again.clock, 12)
    assert bodies(again) == [b"long ago", b"waits", b"just sent"]


def test_a_power_failure_that_takes_the_delivered_copy_delivers_again() -> None:
    # The log is flushed late, the checkpoint of the timer is written every second.
    broker = SmallBroker(flush_interval_commit_log=3_600_000)
    peer = broker.connect()
    send_timed(peer, TIMER_DELAY_SEC="2")
    broker.store.flusher.wake()
    run(broker.clock, 0.5)
    assert broker.store.flushed_offset() == broker.store.max_physical_offset()
    run(broker.clock, 5)
    assert bodies(broker) == [b"late"]
    again = power_failed(broker)
    assert bodies(again) == []
    run(again.clock, 2)
    assert bodies(again) == [b"late"]


def test_a_kill_that_leaves_the_log_does_not_repeat_what_a_late_flush_would() -> None:
    broker = SmallBroker(flush_interval_commit_log=3_600_000)
    send_timed(broker.connect(), TIMER_DELAY_SEC="2")
    run(broker.clock, 5)
    again = killed(broker)
    run(again.clock, 3)
    assert bodies(again) == [b"late"]


def test_an_official_broker_that_wrote_the_checkpoint_since_is_believed() -> None:
    broker = SmallBroker(flush_interval_commit_log=3_600_000)
    send_timed(broker.connect(), TIMER_DELAY_SEC="2")
    run(broker.clock, 5)
    path = f"{ROOT}/config/timercheck"
    values = list(TIMER_CHECKPOINT.unpack(broker.disk.read_at(path, 0, TIMER_CHECKPOINT.size)))
    values[0] += 1000
    broker.disk.write_at(path, 0, TIMER_CHECKPOINT.pack(*values))
    again = killed(broker)
    assert timer_of(again).timer.read_ms == values[0]


@pytest.mark.parametrize("lost", ["timerwheel", "timerlog", "config/timercheck"])
def test_a_lost_file_loses_no_message(lost: str) -> None:
    broker = SmallBroker()
    peer = broker.connect()
    send_timed(peer, b"over", UNIQ_KEY="1", TIMER_DELAY_MS="500")
    send_timed(peer, b"waits", UNIQ_KEY="2", TIMER_DELAY_SEC="10")
    run(broker.clock, 5)
    broker.stop()
    path = f"{ROOT}/{lost}"
    broker.disk.rmtree(path) if lost == "timerlog" else broker.disk.remove(path)
    again = SmallBroker(broker.disk, broker.clock)
    run(again.clock, 7)
    found = Counter(bodies(again))
    assert found[b"waits"] == 1
    # Without the checkpoint nobody knows what was delivered.
    assert found[b"over"] == (2 if lost == "config/timercheck" else 1)


def test_a_wheel_that_knows_more_than_the_log_is_mended() -> None:
    broker = SmallBroker()
    peer = broker.connect()
    for number in range(4):
        send_timed(peer, b"%d" % number, UNIQ_KEY=f"{number}", TIMER_DELAY_SEC="10")
        run(broker.clock, 0.1)
    run(broker.clock, 2)
    broker.stop()
    # The two newest units are gone, the checkpoint and the wheel speak of them.
    broker.disk.write_at(f"{ROOT}/timerlog/{0:020d}", 2 * 52, bytes(2 * 52))
    again = SmallBroker(broker.disk, broker.clock)
    run(again.clock, 10)
    assert sorted(bodies(again)) == [b"0", b"1", b"2", b"3"]


def test_a_failing_disk_stops_nothing_and_is_caught_up_with() -> None:
    broker = SmallBroker()
    peer = broker.connect()
    send_timed(peer, b"first", UNIQ_KEY="0", TIMER_DELIVER_MS="1")
    run(broker.clock, 1.1)
    broker.disk.capacity_bytes = broker.disk.used_bytes + 4096
    send_timed(peer, b"now", UNIQ_KEY="1", TIMER_DELAY_SEC="2")
    send_timed(peer, b"waits", UNIQ_KEY="2", TIMER_DELAY_SEC="20")
    run(broker.clock, 5)
    assert bodies(broker) == [b"first", b"now"]
    broker.disk.capacity_bytes = 1 << 50
    run(broker.clock, 2)
    again = killed(broker)
    run(again.clock, 20)
    assert bodies(again) == [b"first", b"now", b"waits"]


def test_old_files_of_the_timer_log_go_with_the_messages() -> None:
    broker = SmallBroker(mapped_file_size_timer_log=52 * 10 + 16)
    peer = broker.connect()
    for number in range(35):
        send_timed(peer, UNIQ_KEY=f"{number}", TIMER_DELAY_SEC="1")
        run(broker.clock, 0.05)
    run(broker.clock, 3)
    assert len(broker.disk.listdir(f"{ROOT}/timerlog")) == 4
    unit = broker.core.upkeep.queue_units(TIMER_TOPIC, 0, 15, 1)
    assert unit is not None
    broker.store.min_physical_offset = lambda: unit[0][0]  # type: ignore[method-assign]
    run(broker.clock, 31, 0.5)
    assert broker.disk.listdir(f"{ROOT}/timerlog") == [
        f"{number * 536:020d}" for number in (1, 2, 3)
    ]
    assert len(bodies(broker)) == 35
    send_timed(peer, b"on", UNIQ_KEY="x", TIMER_DELAY_SEC="1")
    run(broker.clock, 3)
    broker.stop()
    again = SmallBroker(broker.disk, broker.clock, mapped_file_size_timer_log=536)
    run(again.clock, 2)
    assert bodies(again)[-1] == b"on"


class World:
    """Sends, recalls and time, with the broker killed, restarted or without power between; what was promised is kept."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.settings: dict[str, Any] = {
            "recall_message_enable": True,
            "timer_roll_window_slot": self.rng.choice([4, 7, 172_800]),
            "mapped_file_size_timer_log": self.rng.choice([52 * 7 + 16, 52 * 30, 52_016]),
            "flush_disk_type": self.rng.choice(["ASYNC_FLUSH", "SYNC_FLUSH"]),
        }
        self.broker = SmallBroker(**self.settings)
        self.due: dict[bytes, int] = {}
        self.recalled: set[bytes] = set()
        self.maybe_lost: set[bytes] = set()
        self.number = 0
        self.ends = 0

    def send(self) -> None:
        peer = self.broker.connect()
        delay_ms = self.rng.choice([1, 700, 1000, 2500, self.rng.randrange(1, 20_000)])
        body = b"%d" % self.number
        self.number += 1
        self.due[body] = self.broker.now_ms() + delay_ms
        answer = send_timed(peer, body, UNIQ_KEY=f"K{self.number}", TIMER_DELAY_MS=str(delay_ms))
        if delay_ms > 3000 and self.rng.random() < 0.3:
            assert recall(peer, answer.recall_handle).code == 0
            self.recalled.add(body)
        peer.close()

    def end(self) -> None:
        """The broker ends somehow and comes back."""
        kind = self.rng.choice(["stop", "kill", "power"])
        if kind == "stop":
            self.broker = self.broker.restarted(**self.settings)
            return
        self.ends += 1
        if kind == "kill":
            self.broker = killed(self.broker, **self.settings)
            return
        flushed = self.broker.store.flushed_offset()
        unsafe = self._sent_behind(flushed)
        self.maybe_lost |= unsafe
        self.broker = power_failed(self.broker, **self.settings)

    def _sent_behind(self, flushed: int) -> set[bytes]:
        """Messages, and recalls, whose records the device does not have: a power failure may take them."""
        units = self.broker.core.upkeep.queue_units(TIMER_TOPIC, 0, 0, 100_000) or []
        lost = set()
        for offset, _, _ in units:
            message = self.broker.store.look_message(offset)
            if message is not None and offset + message.store_size > flushed:
                lost.add(b"%d" % (int((message.uniq_key or "K1")[1:]) - 1))
        return lost

    def play(self) -> None:
        for _ in range(60):
            chance = self.rng.random()
            if chance < 0.5:
                self.send()
            elif chance < 0.93:
                run(self.broker.clock, self.rng.choice([0.05, 0.3, 1.0, 2.1]))
            else:
                self.end()
        run(self.broker.clock, 25, 0.25)

    def check(self) -> None:
        found: dict[bytes, list[int]] = {}
        for message in delivered(self.broker):
            found.setdefault(message.body, []).append(message.store_timestamp)
        for body, due_ms in self.due.items():
            times = found.get(body, [])
            assert all(time >= due_ms for time in times), (body, "early")
            if body in self.maybe_lost:
                continue
            if body in self.recalled:
                assert times == [], (body, "recalled")
            else:
                assert times, (body, "lost")
                assert self.ends or len(times) == 1, (body, "repeated")


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_nothing_is_early_lost_or_not_recalled(seed: int) -> None:
    world = World(seed)
    world.play()
    world.check()


def test_a_slave_takes_what_its_master_took_delivers_nothing_and_goes_on_as_master() -> None:
    broker = SmallBroker()
    peer = broker.connect()
    send_timed(peer, b"over", UNIQ_KEY="1", TIMER_DELAY_MS="500")
    send_timed(peer, b"waits", UNIQ_KEY="2", TIMER_DELAY_SEC="20")
    run(broker.clock, 3)
    told = {
        code: peer.ask(code).body
        for code in (RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS)
    }
    broker.stop()
    # A slave's own files come from its own work.
    for name in ("timerwheel", "config/timercheck", "config/timermetrics"):
        broker.disk.remove(f"{ROOT}/{name}")
    broker.disk.rmtree(f"{ROOT}/timerlog")
    slave = SmallBroker(broker.disk, broker.clock, broker_role="SLAVE", broker_id=1)
    run(slave.clock, 1.1)
    timer = timer_of(slave).timer
    assert (timer.queue_offset, timer.waiting) == (0, 0)
    tables = {code: take for _, code, take in slave.core.replication.sync._tables}
    for code, body in told.items():
        tables[code](body)
    run(slave.clock, 25)
    assert (timer.queue_offset, timer.waiting) == (2, 1)
    assert timer_of(slave).metrics.count("TopicA") == 1
    assert slave.store.max_offset("TopicA", 0) == 1
    slave.stop()
    master = SmallBroker(slave.disk, slave.clock)
    run(master.clock, 0.2)
    assert bodies(master) == [b"over", b"waits"]
