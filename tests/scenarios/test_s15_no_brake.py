"""S15: 100,000 sends are started without waiting for any, at a broker that is slow, refuses some, and never answers others."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path
from typing import Any

from client_world import ClientWorld
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import SendMessageResponseHeader
from txrocketmq.errors import RemotingTimeoutError
from txrocketmq.model.message import Message

SENDS = 100_000
MOST, MOST_BYTES = 512, 300_000
ANSWER_S = 0.25
MAX_GROWTH_BYTES = 200 * 1024 * 1024


class SlowBroker:
    """In the place of the connections: answers after a while, refuses every 89th request, never answers every 97th."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.in_flight = self.most = self.asked = 0

    def request(
        self, address: str, code: int, header: Any, body: bytes, timeout_ms: int, more: Any
    ) -> Deferred[Any]:
        self.asked += 1
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        deferred: Deferred[Any] = Deferred()
        if self.asked % 97 == 0:
            silent = RemotingTimeoutError(address, f"no answer within {timeout_ms} ms")
            self._clock.callLater(timeout_ms / 1000, self._answer, deferred, Failure(silent))
        else:
            code = 2 if self.asked % 89 == 0 else 0
            answer = RemotingCommand.create_request(
                code, SendMessageResponseHeader(msg_id="0A", queue_id=0, queue_offset=self.asked)
            )
            self._clock.callLater(ANSWER_S, self._answer, deferred, answer)
        return deferred

    def _answer(self, deferred: Deferred[Any], outcome: Any) -> None:
        self.in_flight -= 1
        deferred.callback(outcome)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_limits_hold_each_send_ends_once_and_no_permit_is_lost() -> None:
    world = ClientWorld()
    producer = world.producer(
        back_pressure_for_async_send_num=MOST,
        back_pressure_for_async_send_size=MOST_BYTES,
        retry_times_when_send_failed=0,
    )
    world.wait(producer.send(Message("TopicTest", b"first")))
    clock = Clock()
    broker = SlowBroker(clock)
    producer._sender.request = broker.request
    producer._sender.clock = clock
    body, too_big = bytes(1024), bytes(5 * 1024 * 1024)
    ends: Counter[str] = Counter()
    done: list[int] = [0] * SENDS
    gc.collect()
    before = resident_bytes()

    def ended(outcome: Any, number: int) -> None:
        done[number] += 1
        ends[type(outcome.value).__name__ if isinstance(outcome, Failure) else "stored"] += 1

    for number in range(SENDS):
        message = Message("TopicTest", too_big if number % 5000 == 4999 else body)
        producer.send(message).addBoth(ended, number)
    assert producer.in_flight <= MOST
    free = producer.when_free()
    assert not free.called  # the caller is told to wait, not refused
    growth = resident_bytes() - before
    while sum(ends.values()) < SENDS:
        assert producer.in_flight <= MOST
        assert producer.in_flight_bytes <= MOST_BYTES
        clock.advance(ANSWER_S / 2)
    assert set(done) == {1}
    assert ends["MQClientError"] == SENDS // 5000
    assert ends["SendFailedError"] > 1000
    assert ends["stored"] > SENDS * 0.95
    assert (producer.in_flight, producer.in_flight_bytes, broker.in_flight) == (0, 0, 0)
    assert broker.most <= MOST_BYTES // 1024
    assert free.called
    assert growth < MAX_GROWTH_BYTES
