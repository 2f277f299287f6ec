"""Messages with a delivery time: when they come, what is refused, and what the broker tells of them."""

from __future__ import annotations

import json

import pytest
from small_broker import START_S, SmallBroker, properties, send_header
from timers import ask, bodies, delivered, recall, refused, run, send_timed, timed_header

from txrocketmq.codec.headers import DeleteTopicRequestHeader
from txrocketmq.codec.recall import RecallHandle
from txrocketmq.codec.storefiles import TIMER_CHECKPOINT
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.names import SCHEDULE_TOPIC, TIMER_TOPIC
from txrocketmq.model.topic import TopicConfig

START_MS = START_S * 1000


def still(broker: SmallBroker) -> list[object]:
    """What a stopped broker would do yet, but for its connections."""
    return [call for call in broker.clock.getDelayedCalls() if "Sweeper" not in str(call)]


@pytest.mark.parametrize(
    "asked",
    [
        {"TIMER_DELAY_SEC": "3"},
        {"TIMER_DELAY_MS": "3000"},
        {"TIMER_DELIVER_MS": str(START_MS + 3000)},
        {"TIMER_DELAY_SEC": "3", "TIMER_DELAY_MS": "1", "TIMER_DELIVER_MS": "x"},
        {"TIMER_DELAY_MS": "3000", "TIMER_DELIVER_MS": "9"},
    ],
)
def test_it_comes_at_the_time_that_the_first_of_three_properties_names(
    asked: dict[str, str],
) -> None:
    broker = SmallBroker()
    send_timed(broker.connect(), **asked)
    run(broker.clock, 2.95)
    assert bodies(broker) == []
    run(broker.clock, 0.15)
    assert bodies(broker) == [b"late"]


@pytest.mark.parametrize("shift_ms", [0, 1, 500, 999])
def test_never_early_and_at_most_one_slot_late(shift_ms: int) -> None:
    broker = SmallBroker()
    broker.clock.advance(shift_ms / 1000)
    peer = broker.connect()
    delays = [1, 2, 499, 500, 501, 999, 1000, 1001, 1500, 2000, 12_345]
    sent_ms = broker.now_ms()
    for delay_ms in delays:
        send_timed(peer, b"%d" % delay_ms, UNIQ_KEY=f"{delay_ms:04X}", TIMER_DELAY_MS=str(delay_ms))
    run(broker.clock, 14)
    found = delivered(broker)
    assert sorted(int(message.body) for message in found) == delays
    for message in found:
        due_ms = sent_ms + int(message.body)
        assert due_ms <= message.store_timestamp <= due_ms + 1000 + 50


def test_what_is_stored_and_what_is_delivered() -> None:
    broker = SmallBroker()
    peer = broker.connect()
    answer = send_timed(peer, UNIQ_KEY="0A0B", TIMER_DELAY_MS="1500", KEYS="k", TAGS="T")
    assert (answer.queue_id, answer.queue_offset) == (0, 0)
    handle = RecallHandle.decode(answer.recall_handle)
    assert handle == RecallHandle("TopicA", "broker-a", str(START_MS + 1001), "0A0B")
    run(broker.clock, 3)
    message = delivered(broker)[0]
    found = message.properties
    assert (message.topic, message.queue_id, message.tags, message.keys) == ("TopicA", 0, "T", "k")
    assert found["TIMER_OUT_MS"] == str(START_MS + 1000)
    assert found["TIMER_DELAY_MS"] == "1500"
    assert found["TIMER_ENQUEUE_MS"] == str(START_MS)
    assert START_MS + 2000 <= int(found["TIMER_DEQUEUE_MS"]) <= START_MS + 2050
    assert (found["REAL_TOPIC"], found["REAL_QID"]) == ("TopicA", "0")


def test_many_of_one_slot_come_in_the_order_in_which_they_were_sent() -> None:
    broker = SmallBroker()
    peer = broker.connect()
    sent = [b"%d" % number for number in range(300)]
    for number, body in enumerate(sent):
        send_timed(peer, body, UNIQ_KEY=f"{number:04X}", TIMER_DELAY_SEC="2")
    run(broker.clock, 3)
    assert bodies(broker) == sent


@pytest.mark.parametrize("delay", ["1500", "200000"])
def test_a_message_whose_properties_are_full_is_delivered(delay: str) -> None:
    broker = SmallBroker(timer_roll_window_slot=60)
    peer = broker.connect()
    sent = 0
    for length in range(32_400, 32_767):
        header = timed_header(TIMER_DELAY_MS=delay, X="x" * length)
        answer = ask(peer, RequestCode.SEND_MESSAGE_V2, header, b"%d" % length)
        sent += answer.code == 0
    assert 0 < sent < 367
    run(broker.clock, int(delay) / 1000 + 2)
    assert len(bodies(broker)) == sent


@pytest.mark.parametrize("topic", [TIMER_TOPIC, SCHEDULE_TOPIC])
def test_a_message_that_would_wait_for_ever_is_left_in_the_timer_topic(topic: str) -> None:
    """Whoever sends to the timer topic may name any topic: one that comes back there is put into the log without end."""
    broker = SmallBroker()
    peer = broker.connect()
    circle = {"TIMER_OUT_MS": "1", "REAL_TOPIC": topic, "REAL_QID": "0"}
    for out_ms in ("1", str(broker.now_ms() + 1000)):
        peer.send(TIMER_TOPIC, properties=properties(**circle | {"TIMER_OUT_MS": out_ms}))
    send_timed(peer, TIMER_DELAY_MS="2500")
    run(broker.clock, 5)
    assert bodies(broker) == [b"late"]
    assert broker.store.max_offset(TIMER_TOPIC, 0) == 3
    assert broker.store.max_offset(SCHEDULE_TOPIC, 0) == 0


def test_a_delay_level_beats_a_delivery_time() -> None:
    broker = SmallBroker()
    send_timed(broker.connect(), DELAY="1", TIMER_DELAY_SEC="60")
    run(broker.clock, 1.1)
    message = delivered(broker)[0]
    assert not [name for name in message.properties if name.startswith("TIMER")]


def test_what_was_delivered_once_is_not_timed_again() -> None:
    broker = SmallBroker()
    send_timed(broker.connect(), TIMER_OUT_MS="1", TIMER_DELAY_SEC="60")
    assert bodies(broker) == [b"late"]


def test_a_topic_that_is_deleted_meanwhile_is_written_all_the_same() -> None:
    """As officially: whoever makes the topic anew finds what was acknowledged."""
    broker = SmallBroker()
    peer = broker.connect()
    send_timed(peer, TIMER_DELAY_SEC="2")
    doomed = DeleteTopicRequestHeader(topic="TopicA")
    assert peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, doomed).code == 0
    run(broker.clock, 3)
    made = TopicConfig(topic_name="TopicA", read_queue_nums=1, write_queue_nums=1, perm=6)
    broker.core.topics.update([made])
    assert bodies(broker) == [b"late"]


def test_three_days_at_most() -> None:
    broker = SmallBroker()
    peer = broker.connect()
    send_timed(peer, TIMER_DELAY_SEC="259200")
    answer = refused(peer, TIMER_DELAY_SEC="259201")
    assert answer.code == 13
    assert "should not be bigger than the max delay 259200000ms" in (answer.remark or "")


def test_a_broker_without_a_timer_says_so() -> None:
    broker = SmallBroker(timer_wheel_enable=False)
    peer = broker.connect()
    answer = refused(peer, TIMER_DELAY_SEC="1")
    assert answer.code == 1
    assert "timerWheelEnable is false" in (answer.remark or "")
    assert peer.ask(RequestCode.GET_TIMER_CHECK_POINT).code == 1
    assert peer.ask(RequestCode.GET_TIMER_METRICS).code == 1
    switch = peer.ask(RequestCode.SWITCH_TIMER_ENGINE, ext_fields={"E_T": "F"})
    assert switch.code == 29
    broker.stop()
    assert not still(broker)


def test_crowded_slots_refuse() -> None:
    broker = SmallBroker(timer_congest_num_each_slot=5)
    peer = broker.connect()
    core = next(f for f in broker.core.features if hasattr(f, "places"))
    core.places.chance.seed(3)
    answers = []
    broker.clock.advance(0.001)
    for number in range(40):
        answer = peer.ask(
            RequestCode.SEND_MESSAGE_V2,
            send_header(properties=properties(UNIQ_KEY=f"{number:04X}", TIMER_DELAY_SEC="9")),
            b"x",
        )
        answers.append(answer.code)
        run(broker.clock, 0.01, 0.005)
    # All up to the limit and one more; some of those between; none from twice the limit on.
    assert answers[:6] == [0] * 6
    assert 6 <= answers.count(0) <= 10
    refusal = refused(peer, TIMER_DELAY_SEC="9") if answers[-1] == 1 else None
    assert refusal is None or "under flow control, max num limit is 10" in (refusal.remark or "")
    send_timed(peer, TIMER_DELAY_SEC="60")


def test_a_far_message_is_put_again_until_its_time_is_near() -> None:
    broker = SmallBroker(timer_roll_window_slot=4)
    send_timed(broker.connect(), TIMER_DELAY_MS="14500")
    run(broker.clock, 14.4)
    assert bodies(broker) == []
    run(broker.clock, 1.2)
    message = delivered(broker)[0]
    assert message.store_timestamp >= START_MS + 14_500
    assert int(message.properties["TIMER_ROLL_TIMES"]) >= 3
    assert broker.store.max_offset(TIMER_TOPIC, 0) >= 4


@pytest.mark.parametrize("with_topic", [False, True])
def test_a_recalled_message_never_comes(with_topic: bool) -> None:
    broker = SmallBroker(recall_message_enable=True, append_topic_for_timer_delete_key=with_topic)
    peer = broker.connect()
    handle = send_timed(peer, b"gone", UNIQ_KEY="0A", TIMER_DELAY_SEC="3").recall_handle
    send_timed(peer, b"stays", UNIQ_KEY="0B", TIMER_DELAY_SEC="3")
    answer = recall(peer, handle)
    assert (answer.code, answer.ext_fields or {}) == (
        0,
        {"msgId": "0A", "MSG_REGION": "DefaultRegion"},
    )
    run(broker.clock, 4.2)
    assert bodies(broker) == [b"stays"]


def test_a_far_message_is_recalled_across_its_rolls() -> None:
    broker = SmallBroker(recall_message_enable=True, timer_roll_window_slot=4)
    peer = broker.connect()
    handle = send_timed(peer, TIMER_DELAY_SEC="20").recall_handle
    run(broker.clock, 7)
    assert recall(peer, handle).code == 0
    run(broker.clock, 16)
    assert bodies(broker) == []


def test_what_a_recall_is_refused_for() -> None:
    broker = SmallBroker()
    peer = broker.connect()
    peer.send()
    handle = RecallHandle("TopicA", "broker-a", str(START_MS + 5000), "0A")
    answer = recall(peer, handle.encode())
    assert (answer.code, answer.remark) == (16, "recall failed, operation is forbidden")
    broker.config.recall_message_enable = True
    for bad, code, remark in (
        ("$$$", 604, "recall handle is invalid"),
        (RecallHandle("Other", "broker-a", "1", "0A").encode(), 604, "topic not match"),
        (RecallHandle("TopicA", "broker-b", "1", "0A").encode(), 604, "service not available"),
        (RecallHandle("TopicA", "broker-a", "1", "0A").encode(), 604, "timestamp invalid"),
        (RecallHandle("TopicA", "broker-a", "x", "0A").encode(), 604, "timestamp invalid"),
        (
            RecallHandle("TopicA", "broker-a", str(START_MS + 259_200_000), "0A").encode(),
            604,
            "timestamp invalid",
        ),
    ):
        answer = recall(peer, bad)
        assert answer.code == code, bad
        assert remark in (answer.remark or "")
    answer = recall(peer, handle.encode(), topic="Nowhere")
    assert (answer.code, answer.remark) == (
        17,
        "recall failed, the topic[Nowhere] not exist",
    )
    broker.config.broker_permission = 4
    assert recall(peer, handle.encode()).code == 0
    broker.config.allow_recall_when_broker_not_writeable = False
    assert recall(peer, handle.encode()).code == 14


def test_taking_and_delivering_can_be_stopped_for_a_while() -> None:
    broker = SmallBroker(timer_stop_enqueue=True)
    peer = broker.connect()
    send_timed(peer, TIMER_DELAY_SEC="1")
    run(broker.clock, 3)
    assert bodies(broker) == []
    assert peer.ask(RequestCode.SWITCH_TIMER_ENGINE, ext_fields={"E_T": "R"}).code == 29
    assert peer.ask(RequestCode.SWITCH_TIMER_ENGINE).code == 29
    assert peer.ask(RequestCode.SWITCH_TIMER_ENGINE, ext_fields={"E_T": "F"}).code == 0
    run(broker.clock, 0.1)
    # Its time was over when it was taken: it never was in the wheel.
    assert delivered(broker)[0].properties["TIMER_ENQUEUE_MS"] == str(2**63 - 1)
    broker.store_config.timer_stop_dequeue = True
    send_timed(peer, b"two", TIMER_DELAY_SEC="1")
    run(broker.clock, 3)
    assert bodies(broker) == [b"late"]
    broker.store_config.timer_stop_dequeue = False
    run(broker.clock, 1.1)
    assert bodies(broker) == [b"late", b"two"]


def test_metrics_and_figures_say_what_waits() -> None:
    broker = SmallBroker(recall_message_enable=True)
    peer = broker.connect()
    for number in range(3):
        handle = send_timed(peer, UNIQ_KEY=f"{number}", TIMER_DELAY_SEC="30").recall_handle
    run(broker.clock, 0.1)

    def count() -> int:
        body = json.loads(peer.ask(RequestCode.GET_TIMER_METRICS).body)
        return int(body["timingCount"]["TopicA"]["count"])

    assert count() == 3
    recall(peer, handle)
    run(broker.clock, 0.1)
    assert count() == 2
    figures = json.loads(peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    assert (figures["timerCongestNum"], figures["timerOffsetBehind"]) == ("2", "0")
    run(broker.clock, 31)
    assert count() == 0
    figures = json.loads(peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    assert (figures["timerCongestNum"], figures["timerReadBehind"]) == ("0", "0")
    # One that takes nothing back is not counted either, in the end.
    recall(peer, RecallHandle("TopicA", "broker-a", str(broker.now_ms() + 2001), "7").encode())
    run(broker.clock, 0.1)
    assert count() == -1
    run(broker.clock, 4)
    assert count() == 0


def test_the_checkpoint_tells_how_far_it_is() -> None:
    broker = SmallBroker()
    peer = broker.connect()
    send_timed(peer, TIMER_DELAY_SEC="1")
    run(broker.clock, 3)
    body = peer.ask(RequestCode.GET_TIMER_CHECK_POINT).body
    read_ms, log_position, offset, master_offset, _, _, counter = TIMER_CHECKPOINT.unpack(body)
    assert read_ms == broker.now_ms() // 1000 * 1000
    assert (log_position, offset, master_offset) == (52, 1, 1)
    assert counter > 0


def test_messages_without_a_usable_time_do_not_hold_up_others() -> None:
    broker = SmallBroker()
    peer = broker.connect()
    peer.send(TIMER_TOPIC, b"?", properties=properties(UNIQ_KEY="1"))
    peer.send(TIMER_TOPIC, b"?", properties=properties(UNIQ_KEY="2", TIMER_OUT_MS="1"))
    send_timed(peer, TIMER_DELAY_SEC="1")
    run(broker.clock, 2.1)
    assert bodies(broker) == [b"late"]


def test_a_clock_that_is_set_back_makes_nothing_early() -> None:
    broker = SmallBroker()
    peer = broker.connect()
    run(broker.clock, 5)
    broker.clock.rightNow -= 4
    due_ms = broker.now_ms() + 2000
    send_timed(peer, TIMER_DELAY_SEC="2")
    run(broker.clock, 8)
    assert delivered(broker)[0].store_timestamp >= due_ms


def test_a_stop_leaves_no_timer() -> None:
    broker = SmallBroker()
    send_timed(broker.connect(), TIMER_DELAY_SEC="1")
    run(broker.clock, 0.3)
    broker.stop()
    assert not still(broker)
