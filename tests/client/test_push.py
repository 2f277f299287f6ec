"""Does a push consumer consume all of its topics, once, retry what failed, and leave its group as it should?"""

from __future__ import annotations

from typing import Any

import pytest
from consumer_world import FIRST, LATER, SUCCESS, TOPIC, ConsumerWorld, Diary, queue
from twisted.internet.defer import CancelledError, Deferred
from zope.interface.verify import verifyObject

from txrocketmq.client.consumer.config import MessageSelector
from txrocketmq.client.consumer.handlers import ConcurrentlyContext
from txrocketmq.client.hooks import ConsumeContext
from txrocketmq.client.interfaces import IConsumerRole
from txrocketmq.errors import BrokerError, MQClientError
from txrocketmq.model.heartbeat import ConsumeFromWhere, MessageModel
from txrocketmq.model.message import Message, MessageExt
from txrocketmq.testing.pools import ManualPool


def fails_out_of_reach(messages: list[MessageExt], context: Any) -> Any:
    """A handler that fails at the first try, of a message that its broker cannot find then."""
    if messages[0].reconsume_times:
        return SUCCESS
    messages[0].physical_offset += 1
    return LATER


class TestConsuming:
    def test_messages_of_all_queues_are_consumed_and_committed(self) -> None:
        world = ConsumerWorld(brokers=2)
        sent = world.fill(20)
        sent_too = world.fill(8, number=3)
        diary = Diary()
        consumer = world.consumer(diary)
        assert verifyObject(IConsumerRole, consumer)
        world.until(lambda: len(diary.seen) >= 28)
        assert sorted(diary.bodies) == sorted(sent + sent_too)
        assert len(consumer.queues) == 10  # two retry queues among them
        world.put(b"later", 2)
        assert world.until(lambda: b"later" in diary.bodies) < 0.2
        world.wait(consumer.stop())
        assert world.offsets() == [5, 5, 6, 5]
        assert world.offsets(number=3) == [2, 2, 2, 2]
        assert world.members() is None
        assert set(diary.batches) == {1}

    def test_a_handler_gets_as_many_messages_at_a_time_as_it_may(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(10, 1)
        diary = Diary()
        world.consumer(diary, consume_message_batch_max_size=4)
        world.until(lambda: len(diary.seen) == 10)
        assert diary.batches == [4, 4, 2]
        assert diary.contexts[0].queue == queue(0)

    def test_deferred_handlers_run_side_by_side_within_their_bound(self) -> None:
        world = ConsumerWorld()
        world.fill(9)
        waiting: list[Deferred[Any]] = []

        def handle(messages: list[MessageExt], context: Any) -> Deferred[Any]:
            waiting.append(Deferred())
            return waiting[-1]

        consumer = world.consumer(handle, consume_thread_max=3)
        world.until(lambda: len(waiting) == 3)
        world.network.run(1)
        assert len(waiting) == consumer.running_handlers == 3
        assert consumer.waiting_messages == 9
        waiting[1].callback(SUCCESS)
        assert len(waiting) == 4
        while consumer.running_handlers:
            next(found for found in waiting if not found.called).callback(SUCCESS)
        assert len(waiting) == 9
        assert consumer.waiting_messages == 0

    def test_offsets_wait_for_the_slowest_handler(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(5, 1)
        waiting: dict[int, Deferred[Any]] = {}

        def handle(messages: list[MessageExt], context: Any) -> Deferred[Any]:
            return waiting.setdefault(messages[0].queue_offset, Deferred())

        consumer = world.consumer(handle)
        world.until(lambda: len(waiting) == 5)
        for offset in (4, 2, 0):
            waiting[offset].callback(SUCCESS)
        assert consumer.offsets.noted(queue(0)) == 1
        world.network.skip(15)
        assert world.offset("CG", 0) == 1
        waiting[1].callback(SUCCESS)
        assert consumer.offsets.noted(queue(0)) == 3
        waiting[3].callback(SUCCESS)
        assert consumer.offsets.noted(queue(0)) == 5

    def test_a_blocking_handler_runs_in_the_pool(self) -> None:
        world = ConsumerWorld()
        world.fill(4)
        pool = ManualPool()
        diary = Diary()
        consumer = world.consumer(diary, in_thread=True, pool=pool)
        world.until(lambda: pool.pending == 4)
        assert not diary.seen
        pool.run()
        assert len(diary.seen) == 4
        world.wait(consumer.stop())
        assert world.offsets() == [1, 1, 1, 1]

    def test_handlers_that_answer_at_once_leave_room_for_others(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(30, 1)
        ticks = [0]
        seen_at = []

        def tick() -> None:
            ticks[0] += 1
            world.clock.callLater(0.001, tick)

        def handle(messages: list[MessageExt], context: Any) -> Any:
            seen_at.append(ticks[0])
            world.clock.rightNow += 0.004  # it takes its time
            return SUCCESS

        tick()
        world.consumer(handle)
        world.until(lambda: len(seen_at) == 30)
        # Never more than three (12 ms) without a turn of the reactor between.
        assert max(seen_at.count(number) for number in seen_at) <= 3

    def test_only_wanted_tags_are_seen_and_the_others_count_as_consumed(self) -> None:
        world = ConsumerWorld(queues=1)
        for tag in ("TagA", "TagB", "TagA", "TagB"):
            world.put(tag.encode(), properties={"TAGS": tag})
        diary = Diary()
        consumer = world.consumer(diary, subscriptions={TOPIC: "TagA || TagC"})
        world.until(lambda: len(diary.seen) == 2)
        assert diary.bodies == [b"TagA", b"TagA"]
        world.network.skip(20)
        world.wait(consumer.stop())
        # What comes after the last wanted one is known only once a pull has ended without any.
        assert world.offset("CG", 0) == 4

    def test_messages_are_chosen_by_sql(self) -> None:
        world = ConsumerWorld(queues=1, enable_property_filter=True)
        for number in range(4):
            world.put(b"%d" % number, properties={"a": str(number)})
        diary = Diary()
        world.consumer(diary, subscriptions={TOPIC: MessageSelector.by_sql("a > 1")})
        world.until(lambda: len(diary.seen) == 2)
        assert diary.bodies == [b"2", b"3"]

    def test_a_broker_that_does_not_know_sql_refuses_the_consumer(self) -> None:
        world = ConsumerWorld(queues=1)
        subscriptions = {TOPIC: MessageSelector.by_sql("a > 1")}
        consumer = world.consumer(Diary(), subscriptions=subscriptions, start=False)
        with pytest.raises(BrokerError, match="filter"):
            world.wait(consumer.start())
        assert not consumer.is_running
        assert not consumer.instance.consumers

    def test_subscriptions_may_change_at_any_time(self) -> None:
        world = ConsumerWorld(queues=1)
        world.create_topic("Other", 1)
        world.put(b"one")
        world.put(b"two", topic="Other")
        diary = Diary()
        consumer = world.consumer(diary)
        world.until(lambda: diary.bodies == [b"one"])
        consumer.subscribe("Other", "*")
        world.until(lambda: diary.bodies == [b"one", b"two"])
        members = world.members()
        assert members is not None
        assert set(members.subscription_table) == {TOPIC, "Other", "%RETRY%CG"}
        consumer.unsubscribe(TOPIC)
        world.until(lambda: queue(0) not in consumer.queues)
        world.put(b"three")
        world.put(b"four", topic="Other")
        world.until(lambda: b"four" in diary.bodies)
        assert b"three" not in diary.bodies

    def test_what_cannot_be_is_refused(self) -> None:
        world = ConsumerWorld()
        for wrong in ({"group": ""}, {"group": "DEFAULT_CONSUMER"}, {"group": "a b"}):
            with pytest.raises(MQClientError):
                world.consumer(Diary(), start=False, **wrong)
        with pytest.raises(MQClientError, match="illegal characters"):
            world.consumer(Diary(), subscriptions="a b", start=False)
        with pytest.raises(MQClientError, match=r"pullBatchSize Out of range \[1, 1024\]"):
            world.consumer(Diary(), pull_batch_size=0, start=False)
        with pytest.raises(MQClientError, match="yyyyMMddHHmmss"):
            world.consumer(Diary(), consume_timestamp="yesterday", start=False)
        consumer = world.consumer(Diary())
        with pytest.raises(MQClientError, match="maybe started once"):
            world.wait(consumer.start())


class TestStart:
    def begin(self, where: ConsumeFromWhere, **settings: Any) -> list[bytes]:
        world = ConsumerWorld(queues=1)
        world.put(b"old")
        world.network.skip(3600)
        world.put(b"new")
        # A group begins at 0 by the broker's word while all of the queue is young; so it must not be.
        world.brokers[2].store_config.access_message_in_memory_max_ratio = 0
        diary = Diary()
        if settings:
            from datetime import datetime

            then = datetime.fromtimestamp(world.clock.seconds() - settings["ago_s"])
            settings = {"consume_timestamp": then.strftime("%Y%m%d%H%M%S")}
        consumer = world.consumer(diary, consume_from_where=where, **settings)
        world.until(lambda: queue(0) in consumer.queues)
        world.network.run(0.5)
        world.put(b"newest")
        world.until(lambda: b"newest" in diary.bodies)
        return diary.bodies

    def test_new_groups_begin_where_they_are_told_to(self) -> None:
        assert self.begin(FIRST) == [b"old", b"new", b"newest"]
        assert self.begin(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, ago_s=1800) == [
            b"new",
            b"newest",
        ]

    def test_a_group_goes_on_where_it_was(self) -> None:
        world = ConsumerWorld()
        world.fill(8)
        first, second = Diary(), Diary()
        consumer = world.consumer(first)
        world.until(lambda: len(first.seen) == 8)
        world.wait(consumer.stop())
        world.put(b"between")
        world.consumer(second)
        world.until(lambda: bool(second.seen))
        world.network.run(1)
        assert second.bodies == [b"between"]


class TestFailures:
    @pytest.mark.parametrize("kind", ["later", "raise", "none", "deferred"])
    def test_a_failed_message_comes_again_with_its_tries_counted(self, kind: str) -> None:
        world = ConsumerWorld(queues=1)
        world.put(b"hard", properties={"KEYS": "k", "UNIQ_KEY": "U1"})
        world.put(b"easy")

        def answer(messages: list[MessageExt], context: Any) -> Any:
            if messages[0].body == b"easy" or messages[0].reconsume_times:
                return SUCCESS
            if kind == "raise":
                raise ValueError("too hard")
            if kind == "deferred":
                failed: Deferred[Any] = Deferred()
                failed.errback(ValueError("too hard"))
                return failed
            return LATER if kind == "later" else None

        diary = Diary(answer)
        consumer = world.consumer(diary)
        world.until(lambda: len(diary.seen) == 3)
        again = max(diary.seen, key=lambda message: message.reconsume_times)
        assert (again.body, again.topic, again.keys) == (b"hard", TOPIC, "k")
        assert (again.reconsume_times, again.uniq_key) == (1, "U1")
        first = next(message for message in diary.seen if message.body == b"hard")
        assert again.properties["ORIGIN_MESSAGE_ID"] == first.msg_id
        world.wait(consumer.stop())
        assert world.offset("CG", 0) == 2
        assert world.offset("CG", 0, topic="%RETRY%CG") == 1

    def test_a_message_that_fails_too_often_becomes_a_dead_letter(self) -> None:
        world = ConsumerWorld(queues=1)
        world.put(b"hopeless")
        diary = Diary(LATER)
        world.consumer(diary, max_reconsume_times=2)
        world.until(lambda: bool(world.messages("%DLQ%CG")), 200)
        assert [message.reconsume_times for message in diary.seen] == [0, 1, 2]
        [dead] = world.messages("%DLQ%CG")
        assert dead.body == b"hopeless"

    def test_a_handler_may_give_a_message_up_at_once(self) -> None:
        def answer(messages: list[MessageExt], context: ConcurrentlyContext) -> Any:
            context.delay_level_when_next_consume = -1
            return LATER

        world = ConsumerWorld(queues=1)
        world.put(b"hopeless")
        world.consumer(Diary(answer))
        world.until(lambda: bool(world.messages("%DLQ%CG")))

    def test_of_a_batch_only_what_is_behind_the_acknowledged_index_comes_again(self) -> None:
        def answer(messages: list[MessageExt], context: ConcurrentlyContext) -> Any:
            if not messages[0].reconsume_times:
                context.ack_index = 1
            return SUCCESS

        world = ConsumerWorld(queues=1)
        world.fill(4, 1)
        diary = Diary(answer)
        world.consumer(diary, consume_message_batch_max_size=4)
        world.until(lambda: len(diary.seen) == 6)
        assert diary.batches[0] == 4
        assert sorted(diary.bodies[4:]) == [b"2", b"3"]

    def test_what_the_broker_does_not_take_back_goes_to_the_retry_topic_anew(self) -> None:
        world = ConsumerWorld(queues=1)
        broker = world.brokers[2]
        world.put(b"hard")

        diary = Diary(fails_out_of_reach)
        world.consumer(diary)
        world.until(lambda: len(diary.seen) == 2)
        again = diary.seen[1]
        assert (again.body, again.topic, again.reconsume_times) == (b"hard", TOPIC, 1)
        assert broker.core is not None

    @pytest.mark.parametrize("reads", ["plain", "compressed"])
    @pytest.mark.parametrize("kind", ["ZLIB", "LZ4", "ZSTD"])
    def test_a_body_that_is_too_large_without_compression_is_sent_anew_with_it(
        self, kind: str, reads: str
    ) -> None:
        world = ConsumerWorld(queues=1, max_message_size=65_536)
        body = b"much of the same, " * 10_000
        sent = world.wait(world.producer(compress_type=kind).send(Message(TOPIC, body)))
        assert sent.queue_offset == 0

        diary = Diary(fails_out_of_reach)
        world.consumer(diary, client={"decode_decompress_body": reads == "plain"})
        world.until(lambda: len(diary.seen) == 2)
        first, again = diary.seen
        # It was at the broker in between, not here alone.
        assert first is not again
        assert len(world.messages("%RETRY%CG")) == 1
        assert again.reconsume_times == 1
        assert (first.body == body) is (reads == "plain")
        assert again.body == first.body
        assert again.sys_flag == first.sys_flag

    def test_a_body_that_was_not_read_is_not_sent_anew_without_it(self) -> None:
        world = ConsumerWorld(queues=1)
        world.put(b"hard")

        def answer(messages: list[MessageExt], context: Any) -> Any:
            messages[0].physical_offset += 1
            return LATER

        diary = Diary(answer)
        world.consumer(diary, client={"decode_read_body": False})
        # It stays here, and is handled here again.
        world.until(lambda: len(diary.seen) == 3)
        assert len(world.messages("%RETRY%CG")) == 0

    def test_what_nobody_takes_back_is_handled_again_here(self) -> None:
        world = ConsumerWorld(queues=1)
        world.put(b"hard")

        def answer(messages: list[MessageExt], context: Any) -> Any:
            return SUCCESS if messages[0].reconsume_times else LATER

        diary = Diary(answer)
        consumer = world.consumer(diary, start=False)
        # The group's broker is found, its master is not.
        consumer.instance.routes.master_address = lambda name: None  # type: ignore[method-assign]
        world.wait(consumer.start())
        world.until(lambda: len(diary.seen) == 1)
        assert world.until(lambda: len(diary.seen) == 2) >= 4.9
        assert diary.seen[0] is diary.seen[1]
        assert consumer.offsets.noted(queue(0)) == 1

    def test_a_handler_that_never_answers_is_cancelled_and_its_message_given_back(self) -> None:
        world = ConsumerWorld(queues=1)
        world.put(b"stuck")
        world.put(b"easy")
        stuck: list[Deferred[Any]] = []
        ended: list[Any] = []

        def answer(messages: list[MessageExt], context: Any) -> Any:
            if messages[0].body == b"easy" or messages[0].reconsume_times:
                return SUCCESS
            stuck.append(Deferred())
            stuck[0].addErrback(lambda failure: ended.append(failure.value) or failure)
            return stuck[0]

        diary = Diary(answer)
        consumer = world.consumer(diary, consume_timeout=0.25)
        assert world.until(lambda: bool(world.messages("%RETRY%CG")), 40) <= 30.0
        assert isinstance(ended[0], CancelledError)
        assert consumer.running_handlers == 0
        world.until(lambda: len(diary.seen) == 3)
        assert consumer.offsets.noted(queue(0)) == 2

    def test_a_thread_that_never_ends_keeps_its_place_but_not_its_message(self) -> None:
        world = ConsumerWorld(queues=1)
        world.put(b"stuck")
        pool = ManualPool()
        diary = Diary()
        consumer = world.consumer(diary, in_thread=True, pool=pool, consume_timeout=0.25)
        world.until(lambda: consumer.offsets.noted(queue(0)) == 1, 40)
        assert consumer.running_handlers == 1
        assert pool.run(1) == 1  # what it says now does not count
        assert consumer.running_handlers == 0

    def test_in_broadcasting_a_failed_message_is_not_consumed_again(self) -> None:
        world = ConsumerWorld(queues=1)
        world.put(b"hard")
        diary = Diary(LATER)
        consumer = world.consumer(diary, message_model=MessageModel.BROADCASTING)
        world.until(lambda: consumer.offsets.noted(queue(0)) == 1)
        world.network.skip(60)
        assert len(diary.seen) == 1

    def test_a_handler_may_give_a_message_back_and_succeed(self) -> None:
        world = ConsumerWorld(queues=1)
        world.put(b"once more")
        diary = Diary()
        consumer = world.consumer(diary)
        world.until(lambda: len(diary.seen) == 1)
        world.wait(consumer.send_message_back(diary.seen[0], 1))
        world.until(lambda: len(diary.seen) == 2)
        assert diary.seen[1].body == b"once more"


class TestFlowControl:
    def held_back(self, **settings: Any) -> tuple[ConsumerWorld, Any, list[Deferred[Any]]]:
        world = ConsumerWorld(queues=1)
        for number in range(60):
            world.put(b"%040d" % number)
        waiting: list[Deferred[Any]] = []

        def handle(messages: list[MessageExt], context: Any) -> Deferred[Any]:
            waiting.append(Deferred())
            return waiting[-1]

        consumer = world.consumer(handle, pull_batch_size=4, consume_thread_max=100, **settings)
        world.network.run(2)
        return world, consumer, waiting

    def test_no_more_messages_wait_than_may(self) -> None:
        world, consumer, waiting = self.held_back(pull_threshold_for_queue=10)
        assert consumer.waiting_messages == 12
        for deferred in waiting[:4]:
            deferred.callback(SUCCESS)
        world.network.run(1)
        assert consumer.waiting_messages == 12

    def test_they_do_not_lie_further_apart_than_they_may(self) -> None:
        world, consumer, waiting = self.held_back(consume_concurrently_max_span=20)
        for deferred in waiting[1:12]:
            deferred.callback(SUCCESS)
        world.network.run(1)
        assert consumer.offsets.noted(queue(0)) == 0
        assert len(waiting) == 24
        waiting[0].callback(SUCCESS)
        world.network.run(1)
        assert len(waiting) > 24

    def test_the_bound_for_a_topic_is_shared_by_its_queues(self) -> None:
        _, consumer, _ = self.held_back(pull_threshold_for_topic=20)
        # Two queues with that of the retry topic: ten each.
        assert consumer.waiting_messages == 12

    def test_no_more_bytes_wait_than_may(self) -> None:
        world = ConsumerWorld(queues=1, max_message_size=4 * 1024 * 1024)
        for _ in range(4):
            world.put(b"x" * 300_000)
        waiting: list[Any] = []

        def handle(messages: list[MessageExt], context: Any) -> Deferred[Any]:
            waiting.append(messages)
            return Deferred()

        world.consumer(handle, pull_batch_size=1, pull_threshold_size_for_queue=1)
        world.network.run(2)
        assert len(waiting) == 4  # 1.2 MB: the fourth went over the mark
        world.put(b"more")
        world.network.run(2)
        assert len(waiting) == 4

    def test_pulls_may_keep_a_distance(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(8, 1)
        diary = Diary()
        world.consumer(diary, pull_batch_size=2, pull_interval=1000)
        assert world.until(lambda: len(diary.seen) == 8) > 2.9

    def test_a_suspended_consumer_fetches_nothing_until_it_is_resumed(self) -> None:
        world = ConsumerWorld(queues=1)
        diary = Diary()
        consumer = world.consumer(diary)
        world.until(lambda: queue(0) in consumer.queues)
        consumer.suspend()
        assert consumer.is_suspended
        world.network.skip(20)  # the pull that was held is over
        world.put(b"waits")
        world.network.skip(30)
        assert not diary.seen
        consumer.resume()
        assert world.until(lambda: bool(diary.seen)) < 0.2


class TestStop:
    def test_handlers_may_finish_and_exactly_what_was_processed_is_committed(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(6, 1)
        waiting: list[Deferred[Any]] = []

        def handle(messages: list[MessageExt], context: Any) -> Deferred[Any]:
            waiting.append(Deferred())
            return waiting[-1]

        consumer = world.consumer(handle, consume_thread_max=3)
        world.until(lambda: len(waiting) == 3)
        stopped: list[Any] = []
        consumer.stop().addBoth(stopped.append)
        world.network.run(1)
        assert not stopped
        for deferred in waiting:
            deferred.callback(SUCCESS)
        world.until(lambda: bool(stopped))
        assert stopped == [None]
        assert len(waiting) == 3
        assert world.offset("CG", 0) == 3
        assert world.members() is None
        other = Diary()
        world.consumer(other)
        world.until(lambda: len(other.seen) == 3)
        assert other.bodies == [b"3", b"4", b"5"]

    @pytest.mark.parametrize("later", [False, True])
    def test_a_handler_may_have_its_own_consumer_stopped(self, later: bool) -> None:
        """What it was called with is committed when it succeeds, and not before."""
        world = ConsumerWorld(queues=1)
        world.fill(4, 1)
        stopped: list[Any] = []
        answer: Deferred[Any] = Deferred()

        def handle(messages: list[MessageExt], context: Any) -> Any:
            consumer.stop().addBoth(stopped.append)
            return answer if later else SUCCESS

        consumer = world.consumer(handle, start=False)
        world.wait(consumer.start())
        if later:
            world.network.run(1)
            assert not stopped
            answer.callback(SUCCESS)
        world.until(lambda: bool(stopped))
        assert stopped == [None]
        assert world.offset("CG", 0) == 1

    def test_a_handler_that_does_not_finish_in_time_is_cancelled_and_not_committed(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(2, 1)
        waiting: list[Deferred[Any]] = []

        def handle(messages: list[MessageExt], context: Any) -> Any:
            if messages[0].queue_offset == 0:
                return SUCCESS
            waiting.append(Deferred())
            return waiting[-1]

        consumer = world.consumer(handle, await_termination_millis_when_shutdown=2000)
        world.until(lambda: len(waiting) == 1)
        began = world.clock.seconds()
        world.wait(consumer.stop())
        assert 2.0 <= world.clock.seconds() - began < 2.5
        assert waiting[0].called
        assert world.offset("CG", 0) == 1

    def test_a_thread_that_stays_blocked_is_not_waited_for_either(self) -> None:
        world = ConsumerWorld(queues=1)
        world.put(b"stuck")
        pool = ManualPool()
        consumer = world.consumer(
            Diary(), in_thread=True, pool=pool, await_termination_millis_when_shutdown=2000
        )
        world.until(lambda: pool.pending == 1)

        class Blocked:
            jobs = 1

            def stop(self) -> Deferred[None]:
                return Deferred()

        consumer._own_pool = Blocked()  # type: ignore[assignment]
        began = world.clock.seconds()
        world.wait(consumer.stop())
        assert world.clock.seconds() - began < 2.5
        pool.run()
        assert world.offset("CG", 0) in (None, 0)

    def test_stopping_twice_waits_for_the_same_end_and_nothing_stays_behind(self) -> None:
        world = ConsumerWorld()
        before = len(world.clock.getDelayedCalls())
        consumer = world.consumer(Diary())
        world.network.run(1)
        first, second = consumer.stop(), consumer.stop()
        world.wait(first)
        world.wait(second)
        world.wait(consumer.stop())
        world.network.run(40)
        assert len(world.clock.getDelayedCalls()) <= before
        assert not consumer.instance.running

    def test_it_is_a_service_and_a_context_manager(self) -> None:
        world = ConsumerWorld()
        sent = world.fill(4)
        diary = Diary()
        consumer = world.consumer(diary, start=False)
        consumer.startService()
        world.until(lambda: len(diary.seen) == 4)
        world.wait(consumer.stopService())
        assert sorted(diary.bodies) == sent

        async def use() -> bool:
            async with world.consumer(diary, group="CG2", start=False) as used:
                return used.is_running

        assert world.wait(use())

    def test_a_second_consumer_of_the_group_in_one_client_is_refused(self) -> None:
        world = ConsumerWorld()
        consumer = world.consumer(Diary())
        from txrocketmq.client.consumer.push import PushConsumer

        second = PushConsumer(
            world.clock, "CG", TOPIC, Diary(), instance=consumer.instance, disk=world.disk
        )
        with pytest.raises(MQClientError, match="is there already"):
            world.wait(second.start())
        assert consumer.is_running
        assert consumer.instance.running


class TestSurroundings:
    def test_a_body_that_is_damaged_does_not_stop_its_queue(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(3, 1)
        diary = Diary()
        consumer = world.consumer(diary, start=False)
        decode = consumer.instance.api.decode_messages

        def damaged(body: bytes, *more: Any) -> Any:
            return decode(body.replace(b"1", b"x") if b"TopicTest" in body else body, *more)

        consumer.instance.api.decode_messages = damaged  # type: ignore[method-assign]
        world.wait(consumer.start())
        world.until(lambda: len(diary.seen) == 3)

    def test_hooks_see_each_call_with_its_outcome(self) -> None:
        seen: list[tuple[str, ConsumeContext]] = []

        class Hook:
            name = "watch"

            def before_consume(self, context: ConsumeContext) -> None:
                seen.append(("before", context))
                assert not context.success

            def after_consume(self, context: ConsumeContext) -> None:
                seen.append((context.return_type, context))
                raise ValueError("harms nothing")

        world = ConsumerWorld(queues=1)
        world.fill(3, 1)
        answers: list[Any] = [SUCCESS, LATER, None]

        def answer(messages: list[MessageExt], context: Any) -> Any:
            return answers[messages[0].queue_offset]

        diary = Diary(answer)
        world.consumer(diary, consume_hooks=[Hook()])
        world.until(lambda: len(seen) == 6)
        assert [what for what, _ in seen] == [
            *("before", "SUCCESS"),
            *("before", "FAILED"),
            *("before", "RETURNNULL"),
        ]
        assert [context.success for _, context in seen[1::2]] == [True, False, False]
        assert seen[0][1].queue == queue(0)
        assert seen[3][1].status == "RECONSUME_LATER"

    def test_what_is_consumed_is_traced_where_the_client_is_set_so(self) -> None:
        world = ConsumerWorld(queues=1, trace_topic_enable=True)
        world.put(b"x", properties={"UNIQ_KEY": "U1", "KEYS": "k"})
        diary = Diary()
        consumer = world.consumer(diary, client={"enable_trace": True})
        world.until(lambda: bool(diary.seen))
        world.wait(consumer.stop())
        text = b"".join(message.body for message in world.messages("RMQ_SYS_TRACE_TOPIC"))
        assert text.count(b"SubBefore") == text.count(b"SubAfter") == 1
        assert b"U1" in text

    def test_names_have_their_name_space_on_the_wire_alone(self) -> None:
        world = ConsumerWorld(topic="ns%TopicTest", queues=1)
        world.put(b"x", topic="ns%TopicTest")

        def answer(messages: list[MessageExt], context: Any) -> Any:
            return SUCCESS if messages[0].reconsume_times else LATER

        diary = Diary(answer)
        world.consumer(diary, client={"namespace": "ns"})
        world.until(lambda: len(diary.seen) == 2)
        assert [message.topic for message in diary.seen] == [TOPIC, TOPIC]
        members = world.members("ns%CG")
        assert members is not None
        assert set(members.subscription_table) == {"ns%TopicTest", "%RETRY%ns%CG"}

    def test_messages_tell_all_about_themselves(self) -> None:
        world = ConsumerWorld(queues=2)
        world.put(
            b"body", 1, properties={"TAGS": "t", "KEYS": "k1 k2", "own": "v", "UNIQ_KEY": "U"}
        )
        diary = Diary()
        world.consumer(diary)
        world.until(lambda: bool(diary.seen))
        [message] = diary.seen
        assert (message.topic, message.queue_id, message.queue_offset) == (TOPIC, 1, 0)
        assert (message.body, message.tags, message.keys) == (b"body", "t", "k1 k2")
        assert (message.uniq_key, message.properties["own"]) == ("U", "v")
        assert (message.properties["MIN_OFFSET"], message.properties["MAX_OFFSET"]) == ("0", "1")
        assert message.store_host == ("192.0.2.2", 10911)
        assert message.born_host[0] == "192.0.2.200"
        assert message.born_timestamp <= message.store_timestamp
        assert (message.broker_name, message.reconsume_times) == ("broker-2", 0)
        assert len(message.msg_id) == 32
