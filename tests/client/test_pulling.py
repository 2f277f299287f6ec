"""What does a puller make of odd answers?"""

from __future__ import annotations

from typing import Any

import pytest
from consumer_world import TOPIC, ConsumerWorld, Diary, queue
from log_watch import is_error, logged
from test_bad_luck import answer_instead
from twisted.internet.defer import Deferred, fail, succeed

from txrocketmq.client.consumer.lite_pull import LitePullConsumer
from txrocketmq.client.results import PullResult, PullStatus
from txrocketmq.codec.headers import PullMessageResponseHeader
from txrocketmq.errors import BrokerError, RemotingTimeoutError
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.remoting.dispatch import Reply

FLOW_CONTROL = BrokerError(ResponseCode.FLOW_CONTROL, "slowly")


def odd_pulls(answers: list[Any]) -> tuple[ConsumerWorld, Any, Diary, list[tuple[float, int, int]]]:
    """A consumer that is at offset 5, whose first pulls get these answers; and when, from where and whom it pulled."""
    world = ConsumerWorld(queues=1)
    world.fill(6, 1)
    world.commit(5)
    diary = Diary()
    consumer = world.consumer(diary, start=False)
    pulls: list[tuple[float, int, int]] = []
    real = consumer.brokers.pull

    def pull(wanted: Any, header: Any, broker_id: int, *more: Any) -> Deferred[Any]:
        if wanted != queue(0):
            return real(wanted, header, broker_id, *more)
        pulls.append((world.clock.seconds(), header.queue_offset, broker_id))
        if not answers:
            return real(wanted, header, broker_id, *more)
        answer = answers.pop(0)
        return fail(answer) if isinstance(answer, Exception) else succeed(answer)

    consumer.brokers.pull = pull  # type: ignore[method-assign]
    world.wait(consumer.start())
    world.until(lambda: bool(diary.seen))
    return world, consumer, diary, pulls


def result(status: PullStatus, following: int, broker_id: int = 0) -> PullResult:
    return PullResult(status, following, 0, 10, broker_id, [])


def test_a_slave_that_lags_behind_sets_nobody_back() -> None:
    answer = (result(PullStatus.OFFSET_ILLEGAL, 2, 1), True)
    _, _, diary, pulls = odd_pulls([answer, answer])
    assert [offset for _, offset, _ in pulls[:3]] == [5, 5, 5]
    assert pulls[2][0] - pulls[0][0] >= 2
    assert diary.bodies == [b"5"]


def test_a_range_that_does_not_change_is_not_asked_for_in_a_loop() -> None:
    answer = (result(PullStatus.OFFSET_ILLEGAL, 5), False)
    _, _, diary, pulls = odd_pulls([answer, answer])
    assert pulls[1][0] - pulls[0][0] >= 1
    assert diary.bodies == [b"5"]


def test_the_next_pull_follows_at_once_and_the_offset_counts_where_nothing_waits() -> None:
    answers: list[Any] = [
        (result(PullStatus.NO_MATCHED_MSG, 5), False),
        (result(PullStatus.NO_NEW_MSG, 5), False),
    ]
    _, consumer, _, pulls = odd_pulls(answers)
    assert pulls[2][0] == pulls[0][0]
    assert consumer.offsets.noted(queue(0)) == 6


def test_the_suggested_member_is_asked_and_after_a_failure_the_master() -> None:
    answers: list[Any] = [
        (result(PullStatus.NO_NEW_MSG, 5, 1), False),
        RemotingTimeoutError("b", "late"),
    ]
    _, _, _, pulls = odd_pulls(answers)
    assert [broker_id for _, _, broker_id in pulls[:3]] == [0, 1, 0]
    assert pulls[2][0] - pulls[1][0] >= 1


def test_flow_control_costs_no_time() -> None:
    _, _, _, pulls = odd_pulls([FLOW_CONTROL, FLOW_CONTROL])
    assert pulls[2][0] - pulls[0][0] < 0.1


def test_a_refusal_is_tried_again_after_a_second() -> None:
    _, _, _, pulls = odd_pulls([BrokerError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "old")])
    assert 1 <= pulls[1][0] - pulls[0][0] < 1.2


def test_a_broker_that_leads_back_has_nothing_consumed_again() -> None:
    with logged(is_error) as errors:
        _, _, diary, pulls = odd_pulls(
            [
                (result(PullStatus.FOUND, -5), False),
                (result(PullStatus.NO_NEW_MSG, 2), False),
                (result(PullStatus.NO_MATCHED_MSG, -1), False),
            ]
        )
    assert [offset for _, offset, _ in pulls[:4]] == [5, 5, 5, 5]
    assert pulls[3][0] - pulls[0][0] >= 3
    assert diary.bodies == [b"5"]
    assert errors == []


def test_messages_lead_on_where_the_broker_does_not() -> None:
    world, consumer, diary, _ = odd_pulls([])
    real = consumer.brokers.pull
    diary.seen.clear()

    def pull(wanted: Any, *more: Any) -> Deferred[Any]:
        def stuck(answer: tuple[PullResult, bool]) -> tuple[PullResult, bool]:
            answer[0].next_begin_offset = 6
            return answer

        return real(wanted, *more).addCallback(stuck) if wanted == queue(0) else real(wanted, *more)

    consumer.brokers.pull = pull
    world.put(b"6")
    world.until(lambda: bool(diary.seen))
    world.put(b"7")
    world.until(lambda: len(diary.seen) > 1)
    world.network.run(5)
    assert diary.bodies == [b"6", b"7"]


@pytest.mark.parametrize("lite", [False, True])
def test_a_range_that_moves_all_the_time_is_not_followed_in_a_loop(lite: bool) -> None:
    world = ConsumerWorld(queues=1)
    world.fill(1, 1)
    asked = []

    def moved(request: Any, handler: Any) -> Reply:
        asked.append(request.header.queue_offset)
        return Reply(
            int(ResponseCode.PULL_OFFSET_MOVED),
            header=PullMessageResponseHeader(
                suggest_which_broker_id=0,
                next_begin_offset=request.header.queue_offset + 1,
                min_offset=0,
                max_offset=1000,
            ),
        )

    if lite:
        answer_instead(world, RequestCode.LITE_PULL_MESSAGE, moved)
        reader = LitePullConsumer(world.clock, "CG", instance=world.instance())
        reader.subscribe(TOPIC)
        world.wait(reader.start())
    else:
        answer_instead(world, RequestCode.PULL_MESSAGE, moved)
        world.consumer(Diary())
    world.network.run(10)
    assert 5 < len(asked) < 30
