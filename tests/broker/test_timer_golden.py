"""Timed messages as official brokers and clients recorded them: answers, handles, delivered records, and stores gone on with."""

from __future__ import annotations

import json
from typing import Any

from small_broker import ROOT, SmallBroker
from test_golden_kinds import (
    GOLDEN_SIZES,
    LEVELS,
    command_of,
    conversation,
    on_memory_disk,
    records_of,
)
from timers import bodies, delivered, run
from twisted.internet.task import Clock

from txrocketmq.codec.record import decode_records
from txrocketmq.codec.storefiles import TIMER_CHECKPOINT
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.message import MessageExt
from txrocketmq.model.topic import TopicConfig

ASKED = (RequestCode.SEND_MESSAGE_V2, RequestCode.RECALL_MESSAGE)


def recorded(*parts: str) -> tuple[list[dict[str, Any]], dict[Any, Any]]:
    frames = list(conversation("c54", *parts))
    answers = {
        (frame["conversation"], frame["reply_to_seq"]): frame
        for frame in frames
        if frame["reply_to_seq"] is not None
    }
    return frames, answers


def golden_broker(start_ms: int) -> SmallBroker:
    clock = Clock()
    clock.advance(start_ms / 1000)
    broker = SmallBroker(
        clock=clock,
        broker_name="broker-a",
        broker_cluster_name="GoldenCluster",
        recall_message_enable=True,
    )
    broker.core.topics.update(
        [TopicConfig(topic_name="TopicTimer", read_queue_nums=1, write_queue_nums=1)]
    )
    return broker


def test_recorded_sends_and_recalls_are_answered_as_recorded() -> None:
    frames, answers = recorded(
        "timer-message-send", "timer-message-too-far", "timer-message-recall"
    )
    broker = golden_broker(frames[0]["t_ms"] - 5000)
    compared = []
    for frame in frames:
        if frame["reply_to_seq"] is not None or frame["decoded"]["code"] not in ASKED:
            continue
        run(broker.clock, (frame["t_ms"] - broker.now_ms()) / 1000)
        broker.clock.advance((frame["t_ms"] + 0.5) / 1000 - broker.clock.seconds())
        asked = command_of(frame)
        said = command_of(answers[frame["conversation"], frame["seq"]])
        peer = broker.connect()
        ours = peer.ask(asked.code, None, asked.body, ext_fields=asked.ext_fields)
        assert (ours.code, ours.remark) == (said.code, _remark(said.remark))
        theirs = dict(said.ext_fields or {})
        got = dict(ours.ext_fields or {})
        if asked.code == RequestCode.SEND_MESSAGE_V2:
            # It names the place in the log.
            assert ("msgId" in theirs) == ("msgId" in got)
            theirs.pop("msgId", None)
            got.pop("msgId", None)
        assert got == theirs
        compared.append((asked.code, ours.code))
    assert compared == [(310, 0)] * 3 + [(310, 13), (310, 0), (370, 0)]


def _remark(text: str | None) -> str | None:
    """Official brokers say this where nobody said anything."""
    return None if text == "not set any response code" else text


def test_delivered_messages_have_what_recorded_ones_have() -> None:
    frames, _ = recorded("timer-message-send")
    pulled, _ = recorded("timer-message-deliver")
    theirs = [
        message
        for frame in pulled
        if frame["decoded"].get("body_kind") == "stored-messages"
        for message in decode_records(command_of(frame).body)
    ]
    broker = golden_broker(frames[0]["t_ms"])
    peer = broker.connect()
    sends = [f for f in frames if f["decoded"]["code"] == RequestCode.SEND_MESSAGE_V2]
    for frame in sends:
        broker.clock.advance((frame["t_ms"] + 0.5) / 1000 - broker.clock.seconds())
        asked = command_of(frame)
        peer.ask(asked.code, None, asked.body, ext_fields=asked.ext_fields)
    run(broker.clock, 8)
    ours = delivered(broker, "TopicTimer")
    assert [_told(message) for message in ours] == [_told(message) for message in theirs]
    for got, said in zip(ours, theirs, strict=True):
        # Both come when their slot is over; the official broker looks every 100 ms.
        assert got.store_timestamp // 1000 == said.store_timestamp // 1000
        assert got.store_timestamp <= said.store_timestamp


def _told(message: MessageExt) -> dict[str, Any]:
    found = dict(message.properties)
    # Times of the day.
    assert found.pop("TIMER_ENQUEUE_MS").isdecimal()
    assert found.pop("TIMER_DEQUEUE_MS").isdecimal()
    return {"body": message.body, "tags": message.tags, "queue": message.queue_id, **found}


def test_a_store_of_an_official_broker_is_gone_on_with() -> None:
    records = records_of("5.4.0")
    came = [m.body for m in records if m.topic == "StoreTimer"]
    waits = [
        (int(m.properties["TIMER_OUT_MS"]), m.body)
        for m in records
        if m.topic == "rmq_sys_wheel_timer" and m.properties["REAL_TOPIC"] == "StoreTimer"
    ]
    newest_ms = max(m.store_timestamp for m in records)
    clock = Clock()
    clock.advance(newest_ms / 1000 + 1)
    broker = SmallBroker(on_memory_disk("5.4.0"), clock, message_delay_level=LEVELS, **GOLDEN_SIZES)
    run(clock, 5)
    # What is due comes; what came before the end does not come again.
    due = [body for out_ms, body in waits if out_ms + 1000 <= broker.now_ms()]
    assert sorted(bodies(broker, "StoreTimer")) == sorted(due)
    assert set(came) <= set(due)
    later = max(out_ms for out_ms, _ in waits) - broker.now_ms()
    run(clock, later / 1000 + 180, 60.0)
    assert sorted(bodies(broker, "StoreTimer")) == sorted(body for _, body in waits)
    broker.stop()


def test_the_checkpoint_and_the_metrics_have_the_official_form() -> None:
    frames = [
        frame
        for frame in conversation("adm54", "api-timer-checkpoint", "api-timer-metrics")
        if frame["reply_to_seq"] is not None
        and frame["decoded"].get("requestName") in ("GET_TIMER_CHECK_POINT", "GET_TIMER_METRICS")
    ]
    theirs = {frame["decoded"]["requestName"]: command_of(frame).body for frame in frames}
    broker = golden_broker(1_795_973_000_000)
    peer = broker.connect()
    checkpoint = peer.ask(RequestCode.GET_TIMER_CHECK_POINT).body
    assert len(checkpoint) == len(theirs["GET_TIMER_CHECK_POINT"]) == TIMER_CHECKPOINT.size
    said = json.loads(theirs["GET_TIMER_METRICS"])
    path = f"{ROOT}/config/timermetrics"
    broker.stop()
    broker.disk.replace_file(path, theirs["GET_TIMER_METRICS"], False)
    again = SmallBroker(broker.disk, broker.clock)
    assert json.loads(again.connect().ask(RequestCode.GET_TIMER_METRICS).body) == said
