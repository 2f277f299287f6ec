"""S27: delays that overflow, are no numbers, lie in the past, or farther ahead than usual; and a broker without a timer."""

from __future__ import annotations

import pytest
from small_broker import START_S, SmallBroker, properties, send_header

from txrocketmq.codec.command import RemotingCommand
from txrocketmq.model.codes import RequestCode

HUGE = "9223372036854775807"
DAY_S = 24 * 3600


def send(broker: SmallBroker, **asked: str) -> RemotingCommand:
    header = send_header("S27", properties=properties(UNIQ_KEY="0A", **asked))
    return broker.connect().ask(RequestCode.SEND_MESSAGE_V2, header, b"timed")


def came(broker: SmallBroker) -> list[int]:
    """When the messages of the topic were stored."""
    return [message.store_timestamp for message in broker.connect().pull("S27").messages]


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
@pytest.mark.parametrize("value", [HUGE, HUGE + "0", "9300000000000000", "abc", "1.5"])
def test_what_is_too_much_or_no_number_is_refused(name: str, value: str) -> None:
    broker = SmallBroker()
    answer = send(broker, **{name: value})
    assert answer.code == 13, answer
    assert "timer message illegal" in (answer.remark or "")
    broker.clock.advance(5)
    assert came(broker) == []


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
@pytest.mark.parametrize("value", ["0", "-1", f"-{HUGE}"])
def test_what_is_over_is_delivered_at_once(name: str, value: str) -> None:
    broker = SmallBroker()
    assert send(broker, **{name: value}).code == 0
    assert came(broker) == [START_S * 1000]


def test_twenty_six_days_are_accepted_where_thirty_are_allowed() -> None:
    broker = SmallBroker(timer_max_delay_sec=2_592_000)
    assert send(broker, TIMER_DELAY_SEC=str(26 * DAY_S)).code == 0
    due_ms = (START_S + 26 * DAY_S) * 1000
    # Put again every other day meanwhile.
    while broker.now_ms() < due_ms - 60_000:
        broker.clock.advance(60 if broker.now_ms() > due_ms - 3_600_000 else 1800)
        broker.clock.pump([1] * 3)
        assert broker.now_ms() >= due_ms or came(broker) == []
    while broker.now_ms() < due_ms + 1000:
        broker.clock.advance(0.1)
    (stored_ms,) = came(broker)
    assert due_ms <= stored_ms <= due_ms + 1500


def test_without_the_timer_the_answer_says_so() -> None:
    broker = SmallBroker(timer_wheel_enable=False)
    answer = send(broker, TIMER_DELAY_SEC="1")
    assert answer.code == 1
    assert "timerWheelEnable is false" in (answer.remark or "")
    broker.clock.advance(5)
    assert came(broker) == []
