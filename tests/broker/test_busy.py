"""Back pressure: who waited too long is refused with the official words, so that producers slow down or go elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from operators import told
from small_broker import Peer, SmallBroker, send_header

from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.testing.pools import ManualPool

SEND_V2 = RequestCode.SEND_MESSAGE_V2


def burst(peer: Peer, count: int, code: int = SEND_V2) -> list[RemotingCommand]:
    """Several sends whose bytes arrive together; the answers so far."""
    data = b"".join(
        RemotingCommand.create_request(code, send_header(), body=b"x", opaque=number).encode()
        for number in range(count)
    )
    peer.protocol.dataReceived(data)
    answers = [decode_command(frame) for frame in FrameSplitter().feed(peer.transport.value())]
    peer.transport.clear()
    return answers


@pytest.fixture
def slow() -> Iterator[SmallBroker]:
    """A broker that needs an eighth of a second for each message."""
    broker = SmallBroker()

    def take_time(*arrival: object) -> None:
        broker.clock.rightNow += 0.125

    broker.store.add_arrival_listener(take_time)
    yield broker
    broker.stop()


# ----------------------------------------------------------------- BR-16


def test_sends_that_waited_too_long_for_their_turn_are_refused(slow: SmallBroker) -> None:
    answers = burst(slow.connect(), 5)
    assert [answer.code for answer in answers] == [0, 0, 0, *[ResponseCode.SYSTEM_BUSY] * 2]
    remark = answers[3].remark or ""
    assert remark.startswith(
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 250ms, "
        "size of queue: "
    )
    figures = told(slow.connect(40_002), RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    assert figures["sendsAnsweredBusy_TIMEOUT_CLEAN_QUEUE"] == "2"
    # The next ones came when there was time again.
    assert [answer.code for answer in burst(slow.connect(40_001), 2)] == [0, 0]


def test_how_long_is_too_long_can_be_set_and_switched_off(slow: SmallBroker) -> None:
    slow.config.wait_time_mills_in_send_queue = 1000
    assert {answer.code for answer in burst(slow.connect(), 9)} == {0}
    slow.config.wait_time_mills_in_send_queue = 100
    slow.config.broker_fast_failure_enable = False
    assert {answer.code for answer in burst(slow.connect(40_001), 9)} == {0}


@pytest.mark.parametrize("fails_fast", [True, False])
def test_while_the_disk_stands_still_sends_are_refused_and_taken_again_after(
    fails_fast: bool,
) -> None:
    broker = SmallBroker(flush_disk_type="SYNC_FLUSH", broker_fast_failure_enable=fails_fast)
    pool = ManualPool()
    broker.store.flusher._pool = pool
    peer = broker.connect()
    first = peer.tell(SEND_V2, send_header(), b"x")
    broker.clock.advance(0.9)
    second = peer.tell(SEND_V2, send_header(), b"y")
    assert peer.answer(second) is None
    broker.clock.advance(0.1)
    refused = peer.ask(SEND_V2, send_header(), b"z")
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert refused.remark == "[REJECTREQUEST]system busy, start flow control for a while"
    table = told(broker.connect(40_001), RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    assert table["sendThreadPoolQueueSize"] == "2"
    assert table["sendThreadPoolQueueHeadWaitTimeMills"] == "1000"
    assert table["sendsAnsweredBusy_REJECTREQUEST"] == "1"
    for _ in range(3):
        pool.run()
        broker.clock.advance(0)
    answers = [peer.answer(first), peer.answer(second)]
    assert [answer and answer.code for answer in answers] == [0, 0]
    third = peer.tell(SEND_V2, send_header(), b"z")
    broker.clock.advance(0)
    pool.run()
    taken = peer.answer(third)
    assert taken is not None
    assert taken.code == 0
    pool.run()
