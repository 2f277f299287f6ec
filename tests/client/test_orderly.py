"""Are queues consumed in order, by one member and one handler at a time?"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from consumer_world import DONE, SUSPEND, ConsumerWorld, Diary, queue
from twisted.internet.defer import Deferred, succeed

from txrocketmq.client.consumer.handlers import ConsumeOrderlyStatus, OrderlyContext
from txrocketmq.codec.bodies.offsets import LockBatchRequestBody, LockBatchResponseBody
from txrocketmq.codec.bodies.wire import decode_body, encode_body
from txrocketmq.codec.headers import LockBatchMqRequestHeader
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.heartbeat import MessageModel
from txrocketmq.model.message import MessageExt
from txrocketmq.testing.pools import ManualPool

COMMIT = ConsumeOrderlyStatus.COMMIT
ROLLBACK = ConsumeOrderlyStatus.ROLLBACK


class Slow:
    """A handler that answers when told; notes whether two calls of one queue ever overlapped."""

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[MessageExt, Deferred[Any]]] = {}
        self.seen: dict[int, list[bytes]] = defaultdict(list)
        self.overlaps = 0

    def __call__(self, messages: list[MessageExt], context: Any) -> Any:
        queue_id = context.queue.queue_id
        self.overlaps += queue_id in self.waiting
        self.seen[queue_id].append(messages[0].body)
        deferred: Deferred[Any] = Deferred()
        self.waiting[queue_id] = (messages[0], deferred)
        return deferred

    def answer(self, queue_id: int, status: Any = DONE) -> None:
        self.waiting.pop(queue_id)[1].callback(status)


def orderly(world: ConsumerWorld, handler: Any, name: str = "a", **settings: Any) -> Any:
    return world.consumer(handler, client={"instance_name": name}, orderly=True, **settings)


def locked_by(world: ConsumerWorld, client_id: str, queue_id: int = 0) -> bool:
    """Whether a client could have a queue's lock now (it gets it then)."""
    body = LockBatchRequestBody(client_id=client_id, consumer_group="CG", mq_set=[queue(queue_id)])
    answer = world.ask(2, RequestCode.LOCK_BATCH_MQ, LockBatchMqRequestHeader(), encode_body(body))
    return queue(queue_id) in decode_body(LockBatchResponseBody, answer.body).lock_okmq_set


class TestOrder:
    def test_each_queue_is_consumed_in_order(self) -> None:
        world = ConsumerWorld()
        world.fill(40)
        diary = Diary(DONE)
        consumer = orderly(world, diary)
        world.until(lambda: len(diary.seen) == 40)
        for queue_id in range(4):
            mine = [m.body for m in diary.seen if m.queue_id == queue_id]
            assert mine == [b"%d" % number for number in range(queue_id, 40, 4)]
        world.wait(consumer.stop())
        assert world.offsets() == [10] * 4
        assert locked_by(world, "somebody")

    def test_one_handler_at_a_time_for_a_queue_and_others_beside_it(self) -> None:
        world = ConsumerWorld()
        world.fill(12)
        slow = Slow()
        orderly(world, slow)
        world.until(lambda: len(slow.waiting) == 4)
        world.network.run(1)
        for _ in range(3):
            for queue_id in range(4):
                slow.answer(queue_id)
        assert slow.overlaps == 0
        assert slow.seen[1] == [b"1", b"5", b"9"]

    def test_no_more_handlers_than_allowed(self) -> None:
        world = ConsumerWorld()
        world.fill(8)
        slow = Slow()
        consumer = orderly(world, slow, consume_thread_max=2)
        world.until(lambda: len(slow.waiting) == 2)
        world.network.run(1)
        assert consumer.running_handlers == 2
        seen = 0
        while slow.waiting:
            slow.answer(next(iter(slow.waiting)))
            seen += 1
        assert seen == 8
        assert slow.overlaps == 0

    @pytest.mark.parametrize("kind", ["plain", "fired"])
    def test_a_suspended_queue_waits_and_then_begins_with_the_same_message(self, kind: str) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(3, 1)
        times: list[tuple[bytes, float]] = []

        def answer(messages: list[MessageExt], context: OrderlyContext) -> Any:
            times.append((messages[0].body, world.clock.seconds()))
            status = DONE
            if messages[0].body == b"1" and messages[0].reconsume_times < 2:
                context.suspend_current_queue_time_millis = 500
                status = SUSPEND
            return status if kind == "plain" else succeed(status)

        orderly(world, Diary(answer))
        world.until(lambda: len(times) == 5)
        assert [body for body, _ in times] == [b"0", b"1", b"1", b"1", b"2"]
        assert 0.5 <= times[2][1] - times[1][1] < 0.6
        assert 0.5 <= times[3][1] - times[2][1] < 0.6

    def test_a_failing_handler_blocks_its_queue_alone(self) -> None:
        world = ConsumerWorld(queues=2)
        world.fill(4, 2)
        diary = Diary(lambda messages, context: 1 / 0 if context.queue.queue_id == 0 else DONE)
        orderly(world, diary)
        world.network.run(3.5)
        bodies = diary.bodies
        assert [body for body in bodies if body in (b"1", b"3")] == [b"1", b"3"]
        assert bodies.count(b"0") in (3, 4)
        assert b"2" not in bodies

    def test_a_message_that_had_all_its_tries_becomes_a_dead_letter(self) -> None:
        world = ConsumerWorld(queues=1)
        world.put(b"hopeless", properties={"KEYS": "k"})
        world.put(b"next")
        diary = Diary(lambda messages, context: DONE if messages[0].body == b"next" else SUSPEND)
        consumer = orderly(
            world, diary, max_reconsume_times=2, suspend_current_queue_time_millis=100
        )
        world.until(lambda: b"next" in diary.bodies)
        assert diary.bodies == [b"hopeless"] * 3 + [b"next"]
        [dead] = world.messages("%DLQ%CG")
        assert (dead.body, dead.keys) == (b"hopeless", "k")
        assert consumer.offsets.noted(queue(0)) == 2

    def test_without_auto_commit_only_commit_moves_the_offset(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(5, 1)
        answers = [DONE, DONE, COMMIT, DONE, ROLLBACK, DONE, COMMIT]

        def answer(messages: list[MessageExt], context: OrderlyContext) -> Any:
            context.auto_commit = False
            context.suspend_current_queue_time_millis = 50
            noted.append(consumer.offsets.noted(queue(0)))
            return answers[len(diary.contexts) - 1]

        noted: list[int | None] = []
        diary = Diary(answer)
        consumer = orderly(world, diary, start=False)
        world.wait(consumer.start())
        world.until(lambda: len(diary.seen) == 7)
        assert diary.bodies == [b"0", b"1", b"2", b"3", b"4", b"3", b"4"]
        assert noted == [0, 0, 0, 3, 3, 3, 3]
        assert consumer.offsets.noted(queue(0)) == 5

    def test_a_handler_that_takes_too_long_is_cancelled_and_its_message_tried_again(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(2, 1)
        seen: list[bytes] = []

        def answer(messages: list[MessageExt], context: Any) -> Any:
            seen.append(messages[0].body)
            return Deferred() if len(seen) == 1 else DONE

        orderly(world, answer, consume_timeout=0.25)
        world.until(lambda: len(seen) == 3, 40)
        assert seen == [b"0", b"0", b"1"]

    def test_blocking_handlers_keep_the_order(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(3, 1)
        pool = ManualPool()
        diary = Diary(DONE)
        orderly(world, diary, in_thread=True, pool=pool)
        world.until(lambda: pool.pending == 1)
        world.network.run(1)
        assert pool.pending == 1
        pool.run()
        assert diary.bodies == [b"0", b"1", b"2"]

    def test_broadcasting_needs_no_locks(self) -> None:
        world = ConsumerWorld()
        world.fill(8)
        diaries = [Diary(DONE), Diary(DONE)]
        for name, diary in zip("ab", diaries, strict=True):
            orderly(world, diary, name, message_model=MessageModel.BROADCASTING)
        world.until(lambda: all(len(diary.seen) == 8 for diary in diaries))
        assert locked_by(world, "somebody")


class TestLocks:
    def test_a_queue_whose_lock_somebody_has_is_taken_when_it_is_free(self) -> None:
        world = ConsumerWorld(queues=1)
        world.put(b"x")
        world.network.run(0.1)
        assert locked_by(world, "somebody")
        diary = Diary(DONE)
        consumer = orderly(world, diary)
        world.network.skip(30)
        assert not diary.seen
        assert queue(0) not in consumer.queues
        world.until(lambda: bool(diary.seen), 60)  # the broker forgot the other's lock

    def test_locks_are_renewed_while_a_handler_runs(self) -> None:
        world = ConsumerWorld(queues=1)
        world.put(b"long")
        slow = Slow()
        orderly(world, slow)
        world.until(lambda: bool(slow.waiting))
        for _ in range(10):
            world.network.skip(15)
            assert not locked_by(world, "somebody")
        slow.answer(0)
        world.put(b"next")
        world.until(lambda: bool(slow.waiting))
        assert slow.seen[0] == [b"long", b"next"]

    def test_a_queue_changes_hands_only_when_its_handler_is_done(self) -> None:
        world = ConsumerWorld(queues=2)
        world.fill(8, 2)
        slow, other = Slow(), Slow()
        first = orderly(world, slow, "a")
        world.until(lambda: len(slow.waiting) == 2)
        second = orderly(world, other, "b")
        world.until(lambda: len(first.queues) == 1 or queue(1) not in first.queues)
        world.network.skip(100)
        # Queue 1 is the second member's, but the first one's handler has it still.
        assert not other.waiting
        assert not locked_by(world, "somebody", 1)
        slow.answer(1)
        world.until(lambda: bool(other.waiting), 3)
        # What the first one did is not done again.
        assert other.seen[1] == [b"3"]
        assert slow.seen[1] == [b"1"]
        assert queue(1) in second.queues

    def test_a_queue_that_comes_back_waits_for_its_old_handler(self) -> None:
        world = ConsumerWorld(queues=2)
        world.fill(4, 2)
        slow = Slow()
        first = orderly(world, slow, "a")
        world.until(lambda: len(slow.waiting) == 2)
        second = orderly(world, Slow(), "b")
        world.until(lambda: queue(1) not in first.queues)
        world.wait(second.stop())
        world.network.skip(30)
        # It is the first one's again, and would begin anew, were it not for the handler that still runs.
        assert slow.overlaps == 0
        assert slow.seen[1] == [b"1"]
        slow.answer(1)
        world.until(lambda: 1 in slow.waiting, 5)
        assert slow.seen[1] == [b"1", b"3"]
        assert slow.overlaps == 0

    def test_a_lock_that_went_to_another_makes_the_queue_begin_anew(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(3, 1)
        slow = Slow()
        consumer = orderly(world, slow)
        world.until(lambda: bool(slow.waiting))
        locks = world.brokers[2].core.locks
        locks.unlock("CG", {queue(0)}, consumer.instance.client_id)
        assert locked_by(world, "thief")
        world.network.skip(25)
        assert queue(0) not in consumer.queues
        # The other member has gone further meanwhile; what the handler says now must not set it back.
        world.commit(2)
        slow.answer(0)
        world.until(lambda: bool(slow.waiting), 70)
        assert slow.seen[0] == [b"0", b"2"]

    def test_at_the_stop_queues_are_unlocked_after_their_handlers(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(2, 1)
        slow = Slow()
        consumer = orderly(world, slow)
        world.until(lambda: bool(slow.waiting))
        stopped: list[Any] = []
        consumer.stop().addBoth(stopped.append)
        world.network.run(1)
        assert not stopped
        assert not locked_by(world, "somebody")
        slow.answer(0)
        world.until(lambda: bool(stopped))
        assert world.offset("CG", 0) == 1
        assert slow.seen[0] == [b"0"]
        assert locked_by(world, "somebody")

    def test_a_restarted_broker_does_not_mix_up_the_order(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(5, 1)
        slow = Slow()
        orderly(world, slow)
        world.until(lambda: bool(slow.waiting))
        world.brokers[2].core.locks.__init__(world.clock)  # type: ignore[misc]
        for _ in range(5):
            world.network.skip(21)
            slow.answer(0)
            world.network.run(0.1)
        assert slow.seen[0] == [b"0", b"1", b"2", b"3", b"4"]
