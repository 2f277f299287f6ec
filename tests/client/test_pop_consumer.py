"""Does a consumer whose broker hands out the messages (POP) get all of them, and settle each?"""

from __future__ import annotations

from typing import Any

import pytest
from consumer_world import LATER, SUCCESS, TOPIC, ConsumerWorld, Diary, queue, set_mode
from received import received
from twisted.internet.defer import Deferred

from txrocketmq.client.consumer.pop import POP_DELAYS_S, PoppedOutcomes, Receipt
from txrocketmq.errors import MQClientError
from txrocketmq.model.message import Message, MessageExt


def popping(world: ConsumerWorld, handler: Any, name: str = "a", **settings: Any) -> Any:
    return world.consumer(
        handler, client={"instance_name": name}, client_rebalance=False, **settings
    )


class TestConsuming:
    def test_messages_are_popped_and_acknowledged(self) -> None:
        world = ConsumerWorld()
        set_mode(world)
        sent = world.fill(40)
        diary = Diary()
        consumer = popping(world, diary)
        world.until(lambda: len(diary.seen) == 40)
        assert sorted(diary.bodies) == sorted(sent)
        assert {message.topic for message in diary.seen} == {TOPIC}
        assert consumer.waiting_messages == 0
        # Nothing comes again when the invisible time is over.
        world.network.skip(150)
        assert len(diary.seen) == 40
        info = consumer.running_info()
        assert info.mq_pop_table
        assert not [found for found in info.mq_table if found.topic == TOPIC]
        world.wait(consumer.stop())

    @pytest.mark.parametrize("fails", [False, True])
    def test_messages_that_are_sent_on_with_all_their_properties_come(self, fails: bool) -> None:
        world = ConsumerWorld(queues=1)
        set_mode(world)
        world.put(b"once popped")
        first = Diary()
        consumer = popping(world, first)
        world.until(lambda: bool(first.seen))
        world.wait(consumer.stop())
        old = first.seen[0].properties
        on = [Message(TOPIC, b"%d" % n, 0, {**old, "UNIQ_KEY": f"{n:032X}"}) for n in range(3)]
        world.wait(world.producer().send_batch(on))
        came: list[bytes] = []

        def answer(messages: list[MessageExt], context: Any) -> Any:
            came.append(messages[0].body)
            return LATER if fails and came.count(messages[0].body) == 1 else SUCCESS

        popping(world, answer, "b")
        world.network.skip(60)
        assert sorted(came) == sorted([b"0", b"1", b"2"] * (1 + fails))

    def test_failed_messages_come_again_after_their_delay(self) -> None:
        world = ConsumerWorld(queues=1)
        set_mode(world)
        world.put(b"hard")
        times: list[tuple[float, int]] = []

        def answer(messages: list[MessageExt], context: Any) -> Any:
            times.append((world.clock.seconds(), messages[0].reconsume_times))
            return SUCCESS if messages[0].reconsume_times == 2 else LATER

        popping(world, answer)
        world.until(lambda: len(times) == 3, 120)
        assert [tries for _, tries in times] == [0, 1, 2]
        # 10 s, then 30 s; the broker looks once a second or so.
        assert 9.9 < times[1][0] - times[0][0] < 16
        assert 29.9 < times[2][0] - times[1][0] < 36

    def test_members_share_what_there_is(self) -> None:
        world = ConsumerWorld()
        set_mode(world)
        diaries = [Diary(), Diary()]
        for name, diary in zip("ab", diaries, strict=True):
            popping(world, diary, name)
        world.network.run(2)
        sent = world.fill(60)
        world.until(lambda: sum(len(diary.seen) for diary in diaries) == 60)
        assert sorted(diaries[0].bodies + diaries[1].bodies) == sorted(sent)

    def test_what_a_handler_did_not_finish_in_time_is_left_to_others(self) -> None:
        world = ConsumerWorld(queues=1)
        set_mode(world)
        world.put(b"slow")
        waiting: list[Deferred[Any]] = []

        def answer(messages: list[MessageExt], context: Any) -> Any:
            waiting.append(Deferred())
            return waiting[-1]

        consumer = popping(world, answer, pop_invisible_time=10_000)
        world.until(lambda: len(waiting) == 2, 30)  # it came again
        waiting[0].callback(SUCCESS)
        assert consumer.waiting_messages == 1
        waiting[1].callback(SUCCESS)
        world.network.skip(40)
        assert len(waiting) == 2
        assert consumer.waiting_messages == 0

    def test_no_more_wait_for_their_acknowledgement_than_may(self) -> None:
        world = ConsumerWorld(queues=1)
        set_mode(world)
        world.fill(60, 1)
        waiting: list[Deferred[Any]] = []

        def answer(messages: list[MessageExt], context: Any) -> Any:
            waiting.append(Deferred())
            return waiting[-1]

        consumer = popping(
            world, answer, pop_batch_nums=4, pop_threshold_for_queue=10, consume_thread_max=100
        )
        world.network.run(3)
        # Each queue and share of it stops once it is over its own bound.
        assert consumer.waiting_messages < 60
        while len(waiting) < 60:
            for deferred in waiting:
                if not deferred.called:
                    deferred.callback(SUCCESS)
            world.network.run(0.5)

    def test_only_wanted_tags_reach_the_handler(self) -> None:
        world = ConsumerWorld(queues=1)
        set_mode(world)
        for tag in ("AaAa", "BBBB"):  # their hashes are the same
            world.put(tag.encode(), properties={"TAGS": tag})
        diary = Diary()
        popping(world, diary, subscriptions={TOPIC: "AaAa"})
        world.until(lambda: bool(diary.seen))
        world.network.skip(100)
        assert diary.bodies == [b"AaAa"]

    def test_a_group_that_is_set_to_pull_is_divided_by_the_broker(self) -> None:
        world = ConsumerWorld()
        set_mode(world, "PULL")
        sent = world.fill(8)
        diary = Diary()
        consumer = popping(world, diary)
        world.until(lambda: len(diary.seen) == 8)
        assert sorted(diary.bodies) == sent
        assert queue(0) in consumer.running_info().mq_table
        # What POP may have left in its own retry topic is pulled, too.
        assert f"%RETRY%CG_{TOPIC}" in consumer.subscriptions


class TestReceipts:
    TEXT = "100 1700000000000 60000 3 1 broker-a 2 105"

    def test_a_receipt_says_where_and_until_when(self) -> None:
        receipt = Receipt(received(1, properties={"POP_CK": self.TEXT}))
        assert (receipt.broker_name, receipt.queue_id, receipt.offset) == ("broker-a", 2, 105)
        assert receipt.topic("T", "G") == "%RETRY%G_T"
        assert not receipt.is_over(1_700_000_059_999)
        assert receipt.is_over(1_700_000_060_000)

    def test_the_newer_retry_topic_and_the_topic_itself(self) -> None:
        for mark, topic in (("0", "T"), ("2", "%RETRY%G+T")):
            text = self.TEXT.replace(" 1 ", f" {mark} ")
            receipt = Receipt(received(1, properties={"POP_CK": text}))
            assert receipt.topic("T", "G") == topic

    def test_a_message_without_one_is_told(self) -> None:
        with pytest.raises(MQClientError, match="no receipt"):
            Receipt(received(1))

    def test_delays_follow_the_tries(self) -> None:
        world = ConsumerWorld()
        consumer = world.consumer(Diary(), start=False, max_reconsume_times=3)
        outcomes: PoppedOutcomes = consumer._popped._outcomes  # type: ignore[assignment]
        now_ms = int(world.clock.seconds() * 1000)

        def delay(tries: int, level: int = 0, age_s: int = 0) -> int | None:
            message = received(1, reconsume_times=tries, born_timestamp=now_ms - age_s * 1000)
            return outcomes._delay_s(message, level)

        assert [delay(tries) for tries in range(3)] == list(POP_DELAYS_S[:3])
        assert delay(0, 5) == POP_DELAYS_S[5]
        # Tried as often as may be: by its age, and given up when it is very old.
        assert delay(3, 0, 100) == POP_DELAYS_S[3]
        assert delay(3, 0, 20_000) is None
