"""The clock is set back, or topics and groups go, while messages are out: others are served on, and nothing is early."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pops import PopConsumer, make_topic, pass_time
from small_broker import SmallBroker, assert_fired, pull_header
from timers import bodies, run, send_timed
from tracebacks import Log, watched

from txrocketmq.codec.headers import NotificationRequestHeader
from txrocketmq.model.codes import RequestCode, ResponseCode


@pytest.fixture
def log() -> Iterator[Log]:
    with watched() as seen:
        yield seen


def set_back(broker: SmallBroker, seconds: float) -> None:
    """Another wall-clock time; what was to be called later is called after as much time as before."""
    clock = broker.clock
    clock.rightNow -= seconds
    for call in clock.calls:
        call.time -= seconds


@pytest.mark.parametrize("seconds", [5, 3600])
def test_a_clock_that_is_set_back_stops_neither_sends_nor_pops(seconds: int) -> None:
    broker = SmallBroker()
    make_topic(broker)
    consumer = PopConsumer(broker)
    consumer.peer.send(body=b"a")
    popped = consumer.pop()
    send_timed(consumer.peer, b"timed", TIMER_DELAY_MS="3000")
    due_s = broker.clock.seconds() + 3
    run(broker.clock, 1)
    set_back(broker, seconds)
    consumer.peer.send(body=b"b")
    again = consumer.pop()
    assert again.bodies == [b"b"]
    consumer.change(again.receipt(again.messages[0]), 10_000)
    assert consumer.ack(popped, popped.messages[0]).code == 0
    while b"timed" not in bodies(broker):
        run(broker.clock, 0.5, 0.5)
        assert broker.clock.seconds() < due_s + 2
    assert broker.clock.seconds() >= due_s
    pass_time(broker, 15)
    assert b"b" in PopConsumer(broker, port=42_002).pop().bodies
    broker.restarted().stop()


@pytest.mark.parametrize("gone", ["topic", "group", "both"])
@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_out_of_a_topic_or_group_that_goes_holds_up_nobody_else(
    gone: str, restarts: bool
) -> None:
    broker = SmallBroker()
    make_topic(broker)
    make_topic(broker, "TopicB")
    one, other = PopConsumer(broker), PopConsumer(broker, "H", 42_001)
    one.peer.send(body=b"a")
    one.peer.send("TopicB", b"b")
    popped = one.pop()
    assert (popped.bodies, other.pop("TopicB").bodies) == ([b"a"], [b"b"])
    send_timed(one.peer, b"timed", TIMER_DELAY_MS="3000")
    if gone != "group":
        fields = {"topic": "TopicA"}
        assert one.peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields=fields).code == 0
    if gone != "topic":
        fields = {"groupName": "G", "cleanOffset": "true"}
        assert one.peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext_fields=fields).code == 0
    answer = one.ack(popped, popped.messages[0])
    assert answer.code == (0 if gone == "group" else ResponseCode.TOPIC_NOT_EXIST)
    if restarts:
        broker = broker.restarted()
        other = PopConsumer(broker, "H", 42_001)
    run(broker.clock, 6)
    pass_time(broker, 60)
    assert other.pop("TopicB").bodies == [b"b"]
    assert broker.core.topics.get("%RETRY%G_TopicA") is None
    broker.stop()


def test_what_is_woken_while_the_store_closes_is_answered_without_a_traceback(log: Log) -> None:
    broker = SmallBroker()
    make_topic(broker)
    consumer = PopConsumer(broker)
    peer, now = consumer.peer, broker.now_ms()
    pull = pull_header(sys_flag=2 | 4, suspend_timeout_millis=15_000)
    asked = [
        peer.tell(RequestCode.PULL_MESSAGE, pull),
        consumer.wait(),
        peer.tell(
            RequestCode.NOTIFICATION,
            NotificationRequestHeader(
                consumer_group="G", topic="TopicA", queue_id=-1, poll_time=15_000, born_time=now
            ),
        ),
    ]
    assert [peer.answer(opaque) for opaque in asked] == [None, None, None]
    assert_fired(broker.store.stop())
    run(broker.clock, 20, 0.5)
    answers = [peer.answer(opaque) for opaque in asked]
    assert None not in answers
    assert answers[0] is not None
    assert answers[0].remark == "the store is not open"
    assert log.tracebacks == []
