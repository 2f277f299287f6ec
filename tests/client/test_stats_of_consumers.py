"""Do the figures of a consumer say how fast it pulled and consumed?"""

from __future__ import annotations

from typing import Any

import pytest
from consumer_world import LATER, SUCCESS, TOPIC, ConsumerWorld, queue
from twisted.internet.defer import Deferred

from txrocketmq.client.consumer.stats import SAMPLE_S, ConsumerStats
from txrocketmq.codec.bodies import ConsumerRunningInfo, ConsumeStatus
from txrocketmq.codec.bodies.wire import decode_body
from txrocketmq.codec.headers import GetConsumerRunningInfoRequestHeader
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.message import MessageExt


def count(stats: ConsumerStats, messages: int) -> None:
    counts = stats.of(TOPIC)
    counts.pulls += 1
    counts.pull_rt += 20
    counts.pulled += messages
    counts.consumes += messages
    counts.consume_rt += messages * 3
    counts.consume_ok += messages - 1
    counts.consume_failed += 1


def test_rates_are_those_of_the_last_minute() -> None:
    stats = ConsumerStats(0.0)
    now = 0.0
    for _ in range(30):
        count(stats, 20)
        now += SAMPLE_S
        stats.sample(now)
    status = stats.status(TOPIC, now)
    assert status.pull_rt == pytest.approx(20)
    assert status.pull_tps == pytest.approx(2)
    assert status.consume_rt == pytest.approx(3)
    assert status.consume_oktps == pytest.approx(1.9)
    assert status.consume_failed_tps == pytest.approx(0.1)
    assert status.consume_failed_msgs == 30


def test_after_a_quiet_minute_only_what_an_hour_tells_is_left() -> None:
    stats = ConsumerStats(0.0)
    count(stats, 20)
    now = 0.0
    for _ in range(20):
        now += SAMPLE_S
        stats.sample(now)
    status = stats.status(TOPIC, now)
    assert (status.pull_tps, status.consume_oktps, status.pull_rt) == (0, 0, 0)
    assert status.consume_rt == pytest.approx(3)
    assert status.consume_failed_msgs == 1
    for _ in range(500):
        now += SAMPLE_S
        stats.sample(now)
    assert stats.status(TOPIC, now) == ConsumeStatus()
    assert stats.status("Other", now) == ConsumeStatus()


def test_operators_are_told_them() -> None:
    world = ConsumerWorld(queues=1)

    def handle(messages: list[MessageExt], context: Any) -> Any:
        answer: Deferred[Any] = Deferred()
        status = LATER if messages[0].body == b"3" and not messages[0].reconsume_times else SUCCESS
        world.clock.callLater(0.05, answer.callback, status)
        return answer

    consumer = world.consumer(handle)
    world.network.run(1)
    for number in range(20):
        world.put(b"%d" % number)
        world.network.run(0.5)
    world.until(lambda: consumer.offsets.noted(queue(0)) == 20)
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group="CG", client_id=consumer.instance.client_id
    )
    answer = world.ask(2, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    status = decode_body(ConsumerRunningInfo, answer.body).status_table[TOPIC]
    assert 1 < status.pull_tps < 3
    assert 1 < status.consume_oktps < 3
    assert 0 < status.consume_failed_tps < 0.2
    assert status.consume_failed_msgs == 1
    assert 49 < status.consume_rt < 60
