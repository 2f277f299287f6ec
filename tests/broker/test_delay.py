"""Messages with a delay level: where they wait, when they come, what a restart leaves of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from small_broker import ROOT, START_S, Peer, SmallBroker, properties, pull_header, send_header
from twisted.internet.task import Clock

from txrocketmq.codec.record import encode_batch
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.names import SCHEDULE_TOPIC, TIMER_TOPIC
from txrocketmq.testing.pools import ManualPool

START_MS = START_S * 1000
FIRST_LOOK_S = 1.0


def send_delayed(peer: Peer, level: int, body: bytes = b"later", **found: str) -> Any:
    text = properties(DELAY=str(level), **found)
    return peer.send(body=body, properties=text)


def bodies(peer: Peer, topic: str = "TopicA", queue_id: int = 0) -> list[bytes]:
    """Everything in a queue, whatever one pull may carry."""
    found: list[bytes] = []
    while more := peer.pull(topic, queue_id, len(found)).bodies:
        found += more
    return found


def ticks(broker: SmallBroker, seconds: float, step: float = 0.01) -> None:
    for _ in range(round(seconds / step)):
        broker.clock.advance(step)


def others(broker: SmallBroker, delay_s: float, work: Callable[[], object]) -> None:
    """Work of others: for the first time in a while, then in each of the next fifty turns."""

    def turn(left: int) -> None:
        work()
        if left:
            broker.clock.callLater(0, turn, left - 1)

    broker.clock.callLater(delay_s, turn, 50)


def killed(broker: SmallBroker) -> SmallBroker:
    """A new broker on what a killed one left."""
    broker.disk.locked.clear()
    clock = Clock()
    clock.advance(broker.clock.seconds())
    return SmallBroker(broker.disk, clock)


def delay_offsets(broker: SmallBroker) -> dict[str, int]:
    saved = broker.disk.read_file(f"{ROOT}/config/delayOffset.json").decode()
    # Integer keys are bare in the official files.
    table = saved[saved.index('"offsetTable":{') + 15 : saved.rindex("}")].rstrip("}")
    return {level: int(offset) for level, offset in (i.split(":") for i in table.split(",") if i)}


# ----------------------------------------------------------------- BR-43


@pytest.mark.parametrize(("level", "delay_s"), [(1, 1), (2, 5), (3, 10), (5, 60), (18, 7200)])
def test_a_message_comes_when_its_level_is_over_and_not_before(
    broker: SmallBroker, peer: Peer, level: int, delay_s: int
) -> None:
    broker.clock.advance(FIRST_LOOK_S)
    answer = send_delayed(peer, level)
    assert (answer.queue_id, answer.queue_offset) == (0, 0)
    broker.clock.advance(delay_s - 0.1)
    assert bodies(peer) == []
    broker.clock.advance(0.15)
    assert bodies(peer) == [b"later"]


def test_the_delivered_message_still_tells_of_its_delay(broker: SmallBroker, peer: Peer) -> None:
    text = properties(UNIQ_KEY="U1", KEYS="k", TAGS="TagA", DELAY="1", WAIT="true")
    peer.send(queue_id=2, body=b"b", flag=5, sys_flag=0x100, properties=text, reconsume_times=3)
    (waiting,) = peer.pull(SCHEDULE_TOPIC, 0).messages
    broker.clock.advance(1)
    (came,) = peer.pull(queue_id=2).messages
    assert (came.topic, came.queue_id, came.queue_offset) == ("TopicA", 2, 0)
    assert (came.body, came.flag, came.sys_flag, came.reconsume_times) == (b"b", 5, 0x100, 3)
    assert came.properties_text == waiting.properties_text
    assert came.properties == {
        "UNIQ_KEY": "U1",
        "KEYS": "k",
        "TAGS": "TagA",
        "DELAY": "1",
        "WAIT": "true",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "ClusterA",
        "REAL_TOPIC": "TopicA",
        "REAL_QID": "2",
    }
    assert (came.born_timestamp, came.born_host) == (waiting.born_timestamp, waiting.born_host)
    assert came.store_timestamp == START_MS + 1000
    assert waiting.store_timestamp == START_MS


def test_consumers_select_delivered_messages_by_tag_and_are_woken_by_them(
    broker: SmallBroker, peer: Peer
) -> None:
    send_delayed(peer, 1, TAGS="TagB")
    send_delayed(peer, 1, TAGS="TagA", body=b"mine")
    wanted = pull_header(sys_flag=6, suspend_timeout_millis=15_000, subscription="TagA")
    held = peer.tell(RequestCode.PULL_MESSAGE, wanted)
    assert peer.answer(held) is None
    broker.clock.advance(1.05)
    broker.clock.advance(0.01)
    answer = peer.answer(held)
    assert answer is not None
    assert b"mine" in answer.body


def test_the_entry_of_the_delay_queue_holds_the_delivery_time(
    broker: SmallBroker, peer: Peer
) -> None:
    send_delayed(peer, 4, TAGS="TagA")
    ((_, _, when),) = broker.core.upkeep.queue_units(SCHEDULE_TOPIC, 3, 0, 1) or ()
    assert when == START_MS + 30_000


def test_levels_do_not_wait_for_one_another(broker: SmallBroker, peer: Peer) -> None:
    send_delayed(peer, 4, b"30s")
    send_delayed(peer, 1, b"1s")
    send_delayed(peer, 2, b"5s")
    broker.clock.advance(1.1)
    send_delayed(peer, 1, b"1s more")
    broker.clock.advance(1.1)
    assert bodies(peer) == [b"1s", b"1s more"]
    ticks(broker, 30, 0.5)
    assert bodies(peer) == [b"1s", b"1s more", b"5s", b"30s"]


def test_a_level_above_the_highest_is_the_highest(broker: SmallBroker, peer: Peer) -> None:
    """S26: and is not parked for ever."""
    send_delayed(peer, 1959)
    (waiting,) = peer.pull(SCHEDULE_TOPIC, 17).messages
    assert waiting.properties["DELAY"] == "18"
    broker.clock.advance(7200.1)
    assert bodies(peer) == [b"later"]


@pytest.mark.parametrize("level", ["0", "-1"])
def test_no_level_is_no_delay(peer: Peer, level: str) -> None:
    peer.send(body=b"now", properties=properties(DELAY=level))
    assert bodies(peer) == [b"now"]


def test_a_level_beats_a_delivery_time(broker: SmallBroker, peer: Peer) -> None:
    send_delayed(peer, 1, TIMER_DELAY_SEC="30", TIMER_DELAY_MS="5", TIMER_DELIVER_MS="7")
    broker.clock.advance(1.1)
    (came,) = peer.pull().messages
    assert not {"TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"} & came.properties.keys()


def test_a_batch_cannot_be_delayed(peer: Peer) -> None:
    header = send_header(batch=True, properties=properties(DELAY="1"))
    body = encode_batch([(0, b"one", b"")])
    answer = peer.ask(RequestCode.SEND_BATCH_MESSAGE, header, body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "cannot be delayed" in (answer.remark or "")


def test_a_thousand_messages_a_second_come_in_order_and_less_than_a_second_late(
    broker: SmallBroker, peer: Peer
) -> None:
    broker.clock.advance(FIRST_LOOK_S)
    for second in range(3):
        for number in range(1000):
            send_delayed(peer, 1, b"%d" % (second * 1000 + number))
            broker.clock.advance(0.001)
    ticks(broker, 1.2)
    assert bodies(peer) == [b"%d" % number for number in range(3000)]
    offset, late = 0, []
    while messages := peer.pull(offset=offset).messages:
        waited = peer.pull(SCHEDULE_TOPIC, 0, offset).messages
        late += [
            came.store_timestamp - sent.store_timestamp - 1000
            for came, sent in zip(messages, waited, strict=True)
        ]
        offset += len(messages)
    assert min(late) >= 0
    assert max(late) < 50


def test_a_crowd_that_is_due_at_once_leaves_turns_to_others(
    broker: SmallBroker, peer: Peer
) -> None:
    for number in range(100):
        send_delayed(peer, 1, b"%d" % number)
    seen: list[int] = []
    others(broker, 1.0, lambda: seen.append(broker.store.max_offset("TopicA", 0)))
    broker.clock.advance(1)
    assert seen[:4] == [32, 64, 96, 100]
    assert bodies(peer) == [b"%d" % number for number in range(100)]


# ----------------------------------------------------------------- BR-45


def test_levels_of_the_configuration_count(peer: Peer) -> None:
    broker = SmallBroker(message_delay_level="2s 1d")
    peer = broker.connect()
    send_delayed(peer, 1, b"2s")
    send_delayed(peer, 5, b"1d")
    broker.clock.advance(1.9)
    assert bodies(peer) == []
    broker.clock.advance(0.2)
    assert bodies(peer) == [b"2s"]
    broker.clock.advance(86_400)
    assert bodies(peer) == [b"2s", b"1d"]
    broker.stop()


def test_messages_of_a_level_that_is_gone_still_come() -> None:
    broker = SmallBroker()
    send_delayed(broker.connect(), 5)
    shorter = broker.restarted(message_delay_level="1s 5s")
    peer = shorter.connect()
    ticks(shorter, 3, 0.5)
    assert bodies(peer) == [b"later"]
    shorter.stop()


# ----------------------------------------------------------------- BR-44


def test_an_orderly_restart_in_the_middle_doubles_and_loses_nothing() -> None:
    """S26."""
    broker = SmallBroker()
    peer = broker.connect()
    for number in range(1000):
        send_delayed(peer, 1, b"%d" % number)
    turns: list[int] = []

    def stop_at_the_tenth_turn() -> None:
        turns.append(0)
        if len(turns) == 10:
            broker.stop()

    others(broker, 1.0, stop_at_the_tenth_turn)
    broker.clock.advance(1)
    again = SmallBroker(broker.disk, broker.clock)
    peer = again.connect()
    assert len(bodies(peer)) == 320
    again.clock.advance(FIRST_LOOK_S)
    assert bodies(peer) == [b"%d" % number for number in range(1000)]
    again.stop()


def test_what_became_due_meanwhile_comes_at_once() -> None:
    broker = SmallBroker()
    peer = broker.connect()
    send_delayed(peer, 3)
    broker.stop()
    broker.clock.advance(3600)
    again = SmallBroker(broker.disk, broker.clock)
    peer = again.connect()
    again.clock.advance(FIRST_LOOK_S)
    assert bodies(peer) == [b"later"]
    again.stop()


def test_after_a_crash_at_most_the_last_save_period_comes_twice() -> None:
    """S26."""
    broker = SmallBroker()
    peer = broker.connect()
    for number in range(30):
        send_delayed(peer, 1, b"%d" % number)
        broker.clock.advance(1)
    broker.clock.advance(1.1)
    assert len(bodies(peer)) == 30
    again = killed(broker)
    peer = again.connect()
    ticks(again, 3, 0.1)
    found = bodies(peer)
    # The offsets were saved for the last time at thirty seconds, when message 28 had come.
    assert found == [b"%d" % number for number in (*range(30), 29)]
    again.stop()


def test_the_offsets_are_kept_in_the_official_form(broker: SmallBroker, peer: Peer) -> None:
    broker.clock.advance(FIRST_LOOK_S)
    send_delayed(peer, 1)
    send_delayed(peer, 1)
    send_delayed(peer, 2)
    broker.clock.advance(1.1)
    broker.clock.advance(10)
    saved = broker.disk.read_file(f"{ROOT}/config/delayOffset.json")
    assert saved.startswith(b'{"dataVersion":{"counter":')
    assert delay_offsets(broker) == {"1": 2, "2": 1}
    answer = peer.ask(RequestCode.GET_ALL_DELAY_OFFSET)
    assert answer.body == saved


@pytest.mark.parametrize(("kept", "first"), [("99", 2), ("-5", 0)])
def test_offsets_that_the_queue_does_not_have_are_corrected(kept: str, first: int) -> None:
    broker = SmallBroker()
    peer = broker.connect()
    send_delayed(peer, 1, b"0")
    send_delayed(peer, 1, b"1")
    broker.stop()
    text = b'{"dataVersion":{"counter":0,"timestamp":1},"offsetTable":{1:%s}}' % kept.encode()
    broker.disk.replace_file(f"{ROOT}/config/delayOffset.json", text, False)
    again = SmallBroker(broker.disk, broker.clock)
    peer = again.connect()
    again.clock.advance(FIRST_LOOK_S)
    assert bodies(peer) == [b"0", b"1"][first:]
    assert again.core.delays.offsets.get(1) == 2
    again.stop()


# ----------------------------------------------------------------- trouble


def test_a_level_waits_while_the_store_takes_nothing(broker: SmallBroker, peer: Peer) -> None:
    send_delayed(peer, 1)
    broker.store.refuse_writes("test", "full")
    broker.clock.advance(1.1)
    broker.clock.advance(0.1)
    assert broker.core.delays.offsets.get(1) == 0
    broker.store.accept_writes("test")
    broker.clock.advance(0.1)
    assert bodies(peer) == [b"later"]


def test_messages_that_cannot_be_delivered_hold_up_nobody(broker: SmallBroker, peer: Peer) -> None:
    for text in (b"", properties(REAL_TOPIC="T").encode(), properties(REAL_QID="0").encode()):
        broker.store.put_message(
            MessageRecord(topic=SCHEDULE_TOPIC, queue_id=0, body=b"lost", properties=text)
        )
    for topic in ("T" * 200, SCHEDULE_TOPIC, TIMER_TOPIC):
        text = properties(DELAY="1", REAL_TOPIC=topic, REAL_QID="0").encode()
        broker.store.put_message(
            MessageRecord(topic=SCHEDULE_TOPIC, queue_id=0, body=b"x", properties=text)
        )
    send_delayed(peer, 1)
    ticks(broker, 3.5, 0.1)
    assert bodies(peer) == [b"later"]
    assert broker.core.delays.offsets.get(1) == 7
    assert broker.store.max_offset(TIMER_TOPIC, 0) == 0


def test_a_clock_that_was_set_back_delays_nothing_longer_than_its_level() -> None:
    broker = SmallBroker()
    broker.clock.advance(100_000)
    send_delayed(broker.connect(), 2)
    broker.stop()
    broker.clock.rightNow -= 90_000
    again = SmallBroker(broker.disk, broker.clock)
    peer = again.connect()
    again.clock.advance(FIRST_LOOK_S)
    assert bodies(peer) == [b"later"]
    again.stop()


def test_nothing_is_delivered_after_the_stop() -> None:
    broker = SmallBroker()
    peer = broker.connect()
    send_delayed(peer, 1)
    broker.core.delays.stop()
    broker.clock.advance(5)
    assert bodies(peer) == []
    broker.stop()


def test_delivery_counts_as_put_and_as_got_by_the_delay_group(
    broker: SmallBroker, peer: Peer
) -> None:
    send_delayed(peer, 2)
    stats = broker.core.stats
    assert stats.of_topic(SCHEDULE_TOPIC).messages == 1
    assert stats.of_queue(SCHEDULE_TOPIC, 1).messages == 1
    assert stats.of_topic("TopicA").messages == 0
    broker.clock.advance(5.1)
    assert stats.of_topic("TopicA").messages == 1
    assert stats.of_group(SCHEDULE_TOPIC, "SCHEDULE_CONSUMER").messages == 1
    answer = peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert json.loads(answer.body)["table"]["scheduleMessageOffset_2"] == "1,1"


def with_cold_messages(count: int) -> tuple[SmallBroker, ManualPool]:
    """A broker with messages of level 2 that are not in memory."""
    broker = SmallBroker(mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=400)
    peer = broker.connect()
    for number in range(count):
        send_delayed(peer, 2, b"%d" % number)
    broker = broker.restarted(mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=400)
    for folder in ("commitlog", f"consumequeue/{SCHEDULE_TOPIC}/1"):
        names = broker.disk.listdir(f"{ROOT}/{folder}")
        assert len(names) > 3
        broker.disk.cold.update(f"{ROOT}/{folder}/{name}" for name in names)
    pool = ManualPool()
    for owner in (broker.store.reader, broker.core.upkeep):
        owner._pool = pool  # type: ignore[attr-defined]
    return broker, pool


def test_messages_that_the_device_has_to_be_asked_for_come_all_the_same() -> None:
    broker, pool = with_cold_messages(100)
    broker.clock.advance(5.1)
    assert broker.store.max_offset("TopicA", 0) == 0
    while pool.pending:
        pool.run()
        broker.clock.advance(0)
    broker.disk.cold.clear()
    assert bodies(broker.connect()) == [b"%d" % number for number in range(100)]
    broker.stop()


def test_what_the_device_brings_after_the_stop_is_not_delivered() -> None:
    broker, pool = with_cold_messages(100)
    broker.clock.advance(5.1)
    assert pool.pending
    broker.core.delays.stop()
    while pool.pending:
        pool.run()
        broker.clock.advance(1)
    assert broker.store.max_offset("TopicA", 0) == 0
    assert broker.core.delays.offsets.get(2) == 0
    broker.disk.cold.clear()
    broker.stop()
