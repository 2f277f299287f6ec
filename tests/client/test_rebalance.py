"""Do members of a group share its queues, and do queues change hands without loss?"""

from __future__ import annotations

from typing import Any

from consumer_world import (
    SUCCESS,
    TOPIC,
    ConsumerWorld,
    Diary,
    queue,
)
from small_world import start_broker
from twisted.internet.defer import Deferred

from txrocketmq.client.consumer.allocation import AllocateAveragelyByCircle, AllocateByConfig
from txrocketmq.codec.bodies import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from txrocketmq.codec.bodies.wire import decode_body
from txrocketmq.codec.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    ResetOffsetRequestHeader,
)
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.heartbeat import MessageModel
from txrocketmq.model.message import MessageExt


def shares(*consumers: Any) -> list[set[int]]:
    return [
        {found.queue_id for found in consumer.queues if found.topic == TOPIC}
        for consumer in consumers
    ]


class TestMembers:
    def test_queues_are_shared_by_those_who_are_there(self) -> None:
        world = ConsumerWorld()
        first = world.consumer(Diary(), client={"instance_name": "a"})
        world.until(lambda: shares(first) == [{0, 1, 2, 3}])
        second = world.consumer(Diary(), client={"instance_name": "b"})
        assert world.until(lambda: shares(first, second) == [{0, 1}, {2, 3}]) < 1
        third = world.consumer(Diary(), client={"instance_name": "c"})
        assert world.until(lambda: shares(first, second, third) == [{0, 1}, {2}, {3}]) < 1
        world.wait(first.stop())
        assert world.until(lambda: shares(second, third) == [{0, 1}, {2, 3}]) < 1

    def test_a_queue_that_changes_hands_goes_on_where_it_was(self) -> None:
        world = ConsumerWorld()
        sent = world.fill(40)
        first, second = Diary(), Diary()
        one = world.consumer(first, client={"instance_name": "a"})
        world.until(lambda: len(first.seen) == 40)
        two = world.consumer(second, client={"instance_name": "b"})
        world.until(lambda: shares(one, two) == [{0, 1}, {2, 3}])
        for queue_id in range(4):
            world.put(b"after-%d" % queue_id, queue_id)
        world.until(lambda: len(first.seen) + len(second.seen) == 44)
        world.network.run(1)
        assert sorted(first.bodies) == sorted([*sent, b"after-0", b"after-1"])
        assert sorted(second.bodies) == [b"after-2", b"after-3"]

    def test_a_member_that_vanishes_is_replaced(self) -> None:
        world = ConsumerWorld()
        first = world.consumer(Diary(), client={"instance_name": "a"})
        second = world.consumer(Diary(), client={"instance_name": "b"})
        world.until(lambda: shares(first, second) == [{0, 1}, {2, 3}])
        # No good-bye: its connections are just gone.
        world.wait(second.instance.remoting.stop())
        world.until(lambda: shares(first) == [{0, 1, 2, 3}])

    def test_messages_in_the_hands_of_a_handler_come_again_at_the_new_owner(self) -> None:
        world = ConsumerWorld()
        world.put(b"x", 3)
        waiting: list[Deferred[Any]] = []

        def slow(messages: list[MessageExt], context: Any) -> Deferred[Any]:
            waiting.append(Deferred())
            return waiting[-1]

        one = world.consumer(slow, client={"instance_name": "a"})
        world.until(lambda: len(waiting) == 1)
        diary = Diary()
        two = world.consumer(diary, client={"instance_name": "b"})
        world.until(lambda: len(diary.seen) == 1)
        waiting[0].callback(SUCCESS)
        assert shares(one, two) == [{0, 1}, {2, 3}]
        assert one.offsets.noted(queue(3)) is None

    def test_in_broadcasting_everyone_gets_everything(self) -> None:
        world = ConsumerWorld()
        sent = world.fill(8)
        diaries = [Diary(), Diary()]
        for name, diary in zip("ab", diaries, strict=True):
            world.consumer(
                diary,
                client={"instance_name": name},
                message_model=MessageModel.BROADCASTING,
            )
        world.until(lambda: all(len(diary.seen) == 8 for diary in diaries))
        assert [sorted(diary.bodies) for diary in diaries] == [sent, sent]
        assert world.offsets() == [None] * 4

    def test_strategies_can_be_chosen(self) -> None:
        world = ConsumerWorld()
        consumers = [
            world.consumer(
                Diary(),
                client={"instance_name": name},
                allocate_strategy=AllocateAveragelyByCircle(),
            )
            for name in "ab"
        ]
        world.until(lambda: shares(*consumers) == [{0, 2}, {1, 3}])
        fixed = world.consumer(Diary(), "CG2", allocate_strategy=AllocateByConfig([queue(2)]))
        world.until(lambda: shares(fixed) == [{2}])

    def test_new_queues_and_new_brokers_are_found(self) -> None:
        world = ConsumerWorld()
        changes: list[tuple[str, int, int]] = []
        diary = Diary()
        consumer = world.consumer(
            diary,
            message_queue_listener=lambda topic, all_, mine: changes.append(
                (topic, len(all_), len(mine))
            ),
        )
        world.until(lambda: shares(consumer) == [{0, 1, 2, 3}])
        world.create_topic(TOPIC, 6)
        world.until(lambda: shares(consumer) == [{0, 1, 2, 3, 4, 5}], 40)
        world.brokers[3] = start_broker(world.network, 3, namesrv_addr="192.0.2.1:9876")
        world.network.run(0.5)
        world.create_topic(TOPIC, 2, 3)
        world.put(b"new broker", 1, number=3)
        world.until(lambda: diary.bodies == [b"new broker"], 40)
        assert [change for change in changes if change[0] == TOPIC] == [
            (TOPIC, 4, 4),
            (TOPIC, 6, 6),
            (TOPIC, 8, 8),
        ]

    def test_a_topic_that_comes_later_is_consumed_then(self) -> None:
        world = ConsumerWorld()
        diary = Diary()
        world.consumer(diary, subscriptions={"NotYet": "*"})
        world.network.run(5)
        world.create_topic("NotYet", 1)
        world.put(b"at last", topic="NotYet")
        world.until(lambda: diary.bodies == [b"at last"], 40)

    def test_a_broker_that_is_away_costs_only_its_own_queues(self) -> None:
        world = ConsumerWorld(brokers=2)
        diary = Diary()
        consumer = world.consumer(diary)
        world.until(lambda: len(consumer.queues) == 10)
        world.network.block("192.0.2.3:10911")
        world.network.kill("192.0.2.3:10911")
        world.network.run(3)
        for number in range(8):
            world.put(b"%d" % number, number % 4)
        assert world.until(lambda: len(diary.seen) == 8) < 1


class TestOffsets:
    def test_an_offset_that_is_gone_is_repaired(self) -> None:
        """The group stands far behind the queue's end: the broker names the offset to go on at."""
        world = ConsumerWorld(queues=1)
        world.fill(3, 1)
        world.commit(1000)
        diary = Diary()
        consumer = world.consumer(diary)
        world.network.run(3)
        world.put(b"new")
        assert world.until(lambda: b"new" in diary.bodies) < 1
        # On at the end, not again from the beginning.
        assert diary.bodies == [b"new"]
        assert consumer.offsets.noted(queue(0)) == 4
        world.wait(consumer.stop())
        assert world.offset("CG", 0) == 4

    def test_nothing_of_a_group_is_known_while_its_broker_cannot_be_asked(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(3, 1)
        refusals = [2]
        diary = Diary()
        consumer = world.consumer(diary, start=False)
        query = consumer.instance.api.query_consumer_offset

        def sometimes(*arguments: Any, **more: Any) -> Any:
            from twisted.internet.defer import fail

            from txrocketmq.errors import BrokerError

            if refusals[0]:
                refusals[0] -= 1
                return fail(BrokerError(1, "not now"))
            return query(*arguments, **more)

        consumer.instance.api.query_consumer_offset = sometimes  # type: ignore[method-assign]
        world.wait(consumer.start())
        assert world.until(lambda: len(diary.seen) == 3) < 5

    def test_offsets_travel_with_pulls_too(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(3, 1)
        diary = Diary()
        world.consumer(diary)
        world.until(lambda: len(diary.seen) == 3)
        world.put(b"one more")
        world.until(lambda: len(diary.seen) == 4)
        # Long before anything is saved by the clock.
        assert world.offset("CG", 0) == 3


class TestOperators:
    def test_an_operator_moves_the_group(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(4, 1)
        diary = Diary()
        world.consumer(diary)
        world.until(lambda: len(diary.seen) == 4)
        world.network.skip(15)
        header = ResetOffsetRequestHeader(
            topic=TOPIC, group="CG", timestamp=1, is_force=True, queue_id=-1
        )
        answer = world.ask(2, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        assert answer.code == 0, answer.remark
        assert world.until(lambda: len(diary.seen) == 8) < 5
        assert diary.bodies[4:] == diary.bodies[:4]
        world.put(b"new")
        world.until(lambda: len(diary.seen) == 9)

    def test_an_operator_sees_how_a_member_is_doing(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(4, 1)
        diary = Diary()
        consumer = world.consumer(diary)
        world.until(lambda: len(diary.seen) == 4)
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group="CG", client_id=consumer.instance.client_id, jstack_enable=True
        )
        answer = world.ask(2, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        assert answer.code == 0, answer.remark
        info = decode_body(ConsumerRunningInfo, answer.body)
        assert info.mq_table[queue(0)].commit_offset == 4
        assert info.properties["consumerGroup"] == "CG"
        assert info.properties["pullBatchSize"] == "32"
        assert info.properties["PROP_CONSUMEORDERLY"] == "false"
        assert info.status_table[TOPIC].consume_oktps > 0
        assert {found.topic for found in info.subscription_set} == {TOPIC, "%RETRY%CG"}
        assert "TID:" in (info.jstack or "")
        assert consumer.consume_status(TOPIC) == {queue(0): 4}

    def test_an_operator_has_a_message_consumed_at_once(self) -> None:
        world = ConsumerWorld(queues=1)
        world.put(b"again")
        diary = Diary()
        consumer = world.consumer(diary)
        world.until(lambda: len(diary.seen) == 1)
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group="CG",
            client_id=consumer.instance.client_id,
            msg_id=diary.seen[0].msg_id,
            broker_name="broker-2",
        )
        results = []
        for reply in (SUCCESS, None, ValueError):
            diary.answer = reply if reply is not ValueError else (lambda m, c: 1 / 0)
            answer = world.ask(2, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
            assert answer.code == 0, answer.remark
            results.append(decode_body(ConsumeMessageDirectlyResult, answer.body))
        assert [result.consume_result for result in results] == [
            "CR_SUCCESS",
            "CR_RETURN_NULL",
            "CR_THROW_EXCEPTION",
        ]
        assert "ZeroDivisionError" in (results[2].remark or "")
        assert len(diary.seen) == 4
