"""What does a puller make of odd answers?"""

from __future__ import annotations

from typing import Any

from consumer_world import ConsumerWorld, Diary, queue
from twisted.internet.defer import Deferred, fail, succeed

from txrocketmq.client.results import PullResult, PullStatus
from txrocketmq.errors import BrokerError, RemotingTimeoutError
from txrocketmq.model.codes import ResponseCode

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
