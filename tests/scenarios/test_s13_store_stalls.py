"""S13: for two seconds the disk takes nothing, while 500 messages a second come in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from small_broker import Peer, SmallBroker, send_header
from twisted.internet.defer import Deferred

from txrocketmq.codec.bodies import encode_body
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.heartbeat import ConsumerData, HeartbeatData
from txrocketmq.testing.pools import ImmediatePool

EVERY_S, STALL_S, BEFORE_S, AFTER_S = 0.002, 2.0, 0.5, 1.5
#: In two seconds twice as much as the broker has made ready ahead.
BODY_BYTES = 32 * 1024
BACK_TO_NORMAL_S = 1.0
CLIENT_TIMEOUT_S = 3.0
HEADER = 8


class StallingPool(ImmediatePool):
    """Does all work at once, except while the disk stands still: then it waits, in order."""

    def __init__(self) -> None:
        super().__init__()
        self._held: list[Callable[[], object]] | None = None

    def submit(self, function: Callable[..., object], *args: object) -> Deferred[Any]:
        if self._held is None:
            return super().submit(function, *args)
        done: Deferred[Any] = Deferred()
        self._held.append(
            lambda: super(StallingPool, self).submit(function, *args).chainDeferred(done)
        )
        return done

    def stall(self) -> None:
        """The disk stands still."""
        self._held = []

    def go_on(self) -> None:
        """It works again, and does what was asked for meanwhile."""
        held, self._held = self._held or [], None
        for work in held:
            work()


class Producer:
    """Sends at a fixed pace over one link, and notes when it got which answer."""

    def __init__(self, broker: SmallBroker) -> None:
        self._clock = broker.clock
        self._peer = broker.connect()
        self._open: dict[int, tuple[int, float]] = {}
        #: Message to the time it was sent at, the answer's code and remark, and how long that took.
        self.answers: dict[int, tuple[float, int, str, float]] = {}
        self.sent = 0

    def keep_sending(self, seconds: float) -> None:
        end_s = self._clock.seconds() + seconds
        while self._clock.seconds() < end_s:
            body = self.sent.to_bytes(HEADER, "big") + bytes(BODY_BYTES - HEADER)
            opaque = self._peer.tell(RequestCode.SEND_MESSAGE_V2, send_header(), body)
            self._open[opaque] = (self.sent, self._clock.seconds())
            self.sent += 1
            self._look()
            self._clock.advance(EVERY_S)
            self._look()

    def _look(self) -> None:
        for opaque, answer in self._peer.new_answers().items():
            number, sent_s = self._open.pop(opaque)
            took_s = self._clock.seconds() - sent_s
            self.answers[number] = (sent_s, answer.code, answer.remark or "", took_s)


def heartbeat(peer: Peer) -> int:
    body = HeartbeatData(client_id="c", consumer_data_set=[ConsumerData(group_name="G")])
    return peer.ask(RequestCode.HEART_BEAT, body=encode_body(body)).code


def stored_numbers(peer: Peer) -> set[int]:
    numbers: set[int] = set()
    offset = 0
    while True:
        pulled = peer.pull(offset=offset)
        if pulled.code:
            return numbers
        numbers.update(int.from_bytes(body[:HEADER], "big") for body in pulled.bodies)
        offset = pulled.header.next_begin_offset


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_senders_are_told_to_slow_down_and_all_else_goes_on(flush: str) -> None:
    pool = StallingPool()
    broker = SmallBroker(pool=pool, flush_disk_type=flush)
    reader, producer = broker.connect(40_001), Producer(broker)
    producer.keep_sending(BEFORE_S)
    before = stored_numbers(reader)
    assert len(before) > 100
    pool.stall()
    stalled_s = broker.clock.seconds()
    for _ in range(4):
        producer.keep_sending(STALL_S / 4)
        assert heartbeat(reader) == 0
        assert reader.pull(offset=len(before) - 1).code == 0
    pool.go_on()
    restored_s = broker.clock.seconds()
    producer.keep_sending(AFTER_S)

    # Everybody got an answer while waiting for it.
    assert set(producer.answers) == set(range(producer.sent))
    assert max(took_s for _, _, _, took_s in producer.answers.values()) < CLIENT_TIMEOUT_S
    codes = {code for _, code, _, _ in producer.answers.values()}
    assert codes == {0, ResponseCode.SYSTEM_BUSY}
    refused = {number for number, (_, code, _, _) in producer.answers.items() if code}
    limit_s = broker.config.wait_time_mills_in_send_queue / 1000 + 0.05
    for number in refused:
        sent_s, _, remark, took_s = producer.answers[number]
        assert "busy, start flow control for a while" in remark
        assert took_s <= limit_s
        assert stalled_s <= sent_s < restored_s + BACK_TO_NORMAL_S
    for sent_s, code, _, took_s in producer.answers.values():
        if sent_s >= restored_s + BACK_TO_NORMAL_S:
            assert (code, took_s <= limit_s) == (0, True)
    # What was refused is not there, what was acknowledged is.
    assert stored_numbers(reader) == set(producer.answers) - refused
    broker.stop()
