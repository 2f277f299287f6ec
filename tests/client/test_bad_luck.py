"""Users and servers that do what nobody should: the client says so, goes on, and loses nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from client_world import ClientWorld
from consumer_world import (
    DONE,
    LATER,
    SUCCESS,
    SUSPEND,
    TOPIC,
    ConsumerWorld,
    Diary,
    set_mode,
)
from pops import service as pop_service
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.python.failure import Failure

from txrocketmq.client.consumer.config import PullConfig
from txrocketmq.client.consumer.lite_pull import LitePullConsumer
from txrocketmq.client.requests import ClientRequests
from txrocketmq.client.results import LocalTransactionState, SendStatus
from txrocketmq.errors import MQClientError
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.heartbeat import ConsumeFromWhere
from txrocketmq.model.message import Message, MessageExt, MessageQueue
from txrocketmq.remoting.dispatch import Reply

COMMIT = LocalTransactionState.COMMIT_MESSAGE


def kept(deferred: Deferred[Any]) -> list[Any]:
    """What a Deferred fires with."""
    found: list[Any] = []
    deferred.addBoth(found.append)
    return found


def answer_instead(world: ClientWorld, code: RequestCode, answer: Any) -> list[bool]:
    """Have the broker answer with something else, as long as the one element is true."""
    table = world.brokers[2].dispatcher._table
    handler, *rest = table[int(code)]
    active = [True]
    table[int(code)] = (
        lambda request: answer(request, handler) if active[0] else handler(request),
        *rest,
    )
    return active


class TestSends:
    @pytest.mark.parametrize("known", [False, True])
    @pytest.mark.parametrize(
        ("message", "queue", "reason"),
        [
            (Message(TOPIC, "text"), None, "body of str; bytes are sent"),  # type: ignore[arg-type]
            (Message(TOPIC, b"x"), (TOPIC, "broker-2", 1), "broker_name"),
            (
                Message(TOPIC, b"x"),
                MessageQueue(topic=TOPIC, broker_name="nobody", queue_id=1),
                "no master of broker nobody",
            ),
        ],
    )
    def test_what_cannot_be_sent_ends_and_gives_its_permit_back(
        self, message: Message, queue: Any, reason: str, known: bool
    ) -> None:
        world = ClientWorld()
        producer = world.producer()
        if known:
            world.wait(producer.send(Message(TOPIC, b"first")))
        outcome = world.outcome(producer.send(message, queue))
        assert reason in str(outcome.value)
        assert producer.in_flight == 0
        world.wait(producer.stop())

    def test_an_illegal_message_takes_no_others_of_its_batch_with_it(self) -> None:
        world = ClientWorld()
        producer = world.producer(auto_batch=True)
        good = kept(producer.send(Message(TOPIC, b"good")))
        bad = kept(producer.send(Message(TOPIC, b"bad", 0, {"a": "\x01"})))
        also = kept(producer.send(Message(TOPIC, b"also")))
        world.network.run(1)
        assert "0x01 or 0x02" in str(bad[0].value)
        assert [type(item[0]).__name__ for item in (good, also)] == ["SendResult"] * 2
        assert sorted(body for *_, body, _ in world.stored(TOPIC)) == [b"also", b"good"]

    def test_a_large_message_goes_by_itself_whole_and_compressed(self) -> None:
        world = ClientWorld()
        producer = world.producer(auto_batch=True)
        small = kept(producer.send(Message(TOPIC, b"small")))
        world.wait(producer.send(Message(TOPIC, b"x" * (4 << 20))))
        world.network.run(1)
        assert not isinstance(small[0], Failure)
        assert {len(body) < 10_000 for *_, body, _ in world.stored(TOPIC)} == {True}

    def test_a_verdict_that_cannot_be_addressed_is_remembered_until_the_broker_asks(self) -> None:
        world = ClientWorld()

        def spoil(request: Any, handler: Any) -> Any:
            reply = handler(request)
            reply.header.msg_id = "nonsense"
            return reply

        answer_instead(world, RequestCode.SEND_MESSAGE_V2, spoil)
        producer = world.producer()
        sent = world.wait(
            producer.send_in_transaction(Message(TOPIC, b"half"), lambda message, arg: COMMIT)
        )
        assert sent.state is COMMIT
        assert producer._transactions._remembered == {sent.send_result.msg_id: COMMIT}

    def test_a_hook_that_fails_and_has_no_name_holds_no_send(self) -> None:
        world = ClientWorld()
        producer = world.producer()
        producer.add_send_hook(Nameless())  # type: ignore[arg-type]
        outcome = world.outcome(producer.send(Message(TOPIC, b"x")))
        assert outcome.status is SendStatus.SEND_OK
        assert producer.in_flight == 0

    def test_whoever_waits_for_a_route_may_have_others_cancelled_that_do(self) -> None:
        world = ClientWorld()
        routes = world.producer().instance.routes
        first, second, third = (routes.update(TOPIC) for _ in range(3))
        cancelled, last = kept(second), kept(third)
        first.addCallback(lambda _: second.cancel())
        world.network.run(1)
        assert isinstance(cancelled[0], Failure)
        assert last == [False]


class Nameless:
    """A hook that is none: every call of it fails."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def set_wrongly(name: str) -> Any:
    """A handler that sets something of its context to what cannot be."""

    def handle(messages: list[MessageExt], context: Any) -> Any:
        setattr(context, name, "1")
        return SUCCESS

    return handle


def leave(messages: list[MessageExt], context: Any) -> Any:
    raise SystemExit


def bend(messages: list[MessageExt], context: Any) -> Any:
    """Spoil a message so that it cannot be given back."""
    messages[0].broker_name = None  # type: ignore[assignment]
    return LATER


def stubborn(messages: list[MessageExt], context: Any) -> Any:
    def refuse(_: Any) -> None:
        raise RuntimeError("I will not")

    return Deferred(refuse)


def empty(message: MessageExt) -> None:
    message.body = b""


def take_body(message: MessageExt) -> None:
    message.body = None  # type: ignore[assignment]


def count_oddly(message: MessageExt) -> None:
    message.reconsume_times = "often"  # type: ignore[assignment]


SPOILERS: dict[str, Any] = {
    "its properties": lambda message: message.properties.clear(),
    "its body": empty,
    "all of its body": take_body,
    "its tries": count_oddly,
}

ODD = (
    lambda *_: Unprintable(),
    set_wrongly("ack_index"),
    set_wrongly("delay_level_when_next_consume"),
    set_wrongly("suspend_current_queue_time_millis"),
    leave,
    bend,
)


class TestHandlers:
    """The first call does something odd. Nothing waits for ever for it: the message comes again, all others too."""

    @pytest.mark.parametrize(
        ("odd", "orderly"),
        [
            *((odd, orderly) for odd in ODD for orderly in (False, True)),
            # In order, nothing else of its queue is handled before it has answered.
            (stubborn, False),
        ],
    )
    def test_it_is_called_again(self, odd: Any, orderly: bool) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(3, 1)
        calls = []

        def handle(messages: list[MessageExt], context: Any) -> Any:
            calls.append(messages[0].queue_offset)
            if len(calls) == 1:
                return odd(messages, context)
            return DONE if orderly else SUCCESS

        consumer = world.consumer(handle, orderly=orderly, consume_timeout=1 / 60)
        if odd is bend:
            world.until(lambda: len(calls) >= 3 and consumer.waiting_messages == 0, 40)
        else:
            world.until(lambda: world.offset("CG", 0) == 3 and len(calls) >= 4, 60)
        world.wait(consumer.stop())

    @pytest.mark.parametrize("orderly", [False, True])
    def test_a_hook_that_fails_and_has_no_name_holds_no_message(self, orderly: bool) -> None:
        world = ConsumerWorld(queues=1)
        bodies = world.fill(3, 1)
        diary = Diary(DONE if orderly else SUCCESS)
        consumer = world.consumer(diary, orderly=orderly, consume_hooks=[Nameless()])
        world.until(lambda: len(diary.seen) == 3)
        world.wait(consumer.stop())
        assert diary.bodies == bodies
        assert world.offset("CG", 0) == 3

    @pytest.mark.parametrize("kind", ["concurrent", "orderly", "pop"])
    @pytest.mark.parametrize("what", SPOILERS)
    @pytest.mark.parametrize("fails", [False, True])
    def test_what_a_handler_does_to_a_message_harms_no_other(
        self, kind: str, what: str, fails: bool
    ) -> None:
        world, seen = ConsumerWorld(queues=1), []
        if kind == "pop":
            pop_service(world.brokers[2])
            set_mode(world)
        bodies = world.fill(6, 1)
        done, failed = (DONE, SUSPEND) if kind == "orderly" else (SUCCESS, LATER)

        def handle(messages: list[MessageExt], context: Any) -> Any:
            (message,) = messages
            seen.append(message.body)
            if message.body in (b"0", b"3") and seen.count(message.body) == 1:
                SPOILERS[what](message)
                return failed if fails else done
            return done

        consumer = world.consumer(
            handle,
            orderly=kind == "orderly",
            client_rebalance=kind != "pop",
            pop_invisible_time=10_000,
        )
        world.until(lambda: {*bodies} <= {*seen} and consumer.waiting_messages == 0, 60)
        world.network.run(20)
        assert (consumer.waiting_messages, consumer.running_handlers) == (0, 0)
        # What it was not spoilt for came once.
        assert [seen.count(body) for body in (b"1", b"2", b"4", b"5")] == [1] * 4
        world.wait(consumer.stop())

    @pytest.mark.parametrize("answer", [SUCCESS, LATER])
    @pytest.mark.parametrize("waits", [False, True])
    def test_a_message_whose_place_is_lost_takes_no_handlers_place(
        self, answer: Any, waits: bool
    ) -> None:
        world, seen = ConsumerWorld(queues=1), []
        world.fill(6, 1)

        def handle(messages: list[MessageExt], context: Any) -> Any:
            seen.append(messages[0].body)
            messages[0].queue_offset = []  # type: ignore[assignment]
            if waits:
                answered: Deferred[Any] = Deferred()
                world.clock.callLater(0.1, answered.callback, answer)
                return answered
            return answer

        consumer = world.consumer(handle, consume_thread_max=1)
        world.until(lambda: len(seen) == 6, 10)
        world.network.run(1)
        assert consumer.running_handlers == 0
        # There is still one who pulls, and no other.
        world.put(b"next")
        world.network.run(3)
        assert seen[6:] == [b"next"]

    def test_one_of_several_popped_messages_that_cannot_be_given_back_keeps_no_other(self) -> None:
        world, seen = ConsumerWorld(queues=1), []
        pop_service(world.brokers[2])
        set_mode(world)
        world.fill(6, 1)

        def handle(messages: list[MessageExt], context: Any) -> Any:
            seen.append(len(messages))
            count_oddly(messages[0])
            return LATER if len(seen) == 1 else SUCCESS

        consumer = world.consumer(
            handle,
            client_rebalance=False,
            consume_message_batch_max_size=6,
            pop_invisible_time=10_000,
        )
        world.until(lambda: bool(seen), 10)
        world.network.run(1)
        assert consumer.waiting_messages == 0

    @pytest.mark.parametrize("orderly", [False, True])
    def test_a_handler_that_empties_bodies_is_not_starved(self, orderly: bool) -> None:
        world, seen = ConsumerWorld(queues=1), []
        for _ in range(40):
            world.put(bytes(100 << 10))

        def handle(messages: list[MessageExt], context: Any) -> Any:
            seen.append(len(messages[0].body))
            messages[0].body = b""
            return DONE if orderly else SUCCESS

        world.consumer(handle, orderly=orderly, pull_threshold_size_for_queue=1, pull_interval=10)
        world.until(lambda: len(seen) == 40, 30)

    def test_a_coroutine_in_a_thread_is_told_so(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(1, 1)

        async def handle(messages: list[MessageExt], context: Any) -> Any:
            return SUCCESS

        with capturedLogs() as events:
            consumer = world.consumer(lambda *arguments: handle(*arguments), in_thread=True)
            world.network.run(1)
        failures = [str(event["log_failure"].value) for event in events if "log_failure" in event]
        assert any("where nobody awaits it" in text for text in failures)
        world.wait(consumer.stop())


class TestSubscriptions:
    @pytest.mark.parametrize("pop", [False, True])
    def test_one_that_goes_and_comes_again_while_a_pull_is_answered_loses_nothing(
        self, pop: bool
    ) -> None:
        world = ConsumerWorld(queues=1)
        if pop:
            pop_service(world.brokers[2])
            set_mode(world)
        diary = Diary()
        consumer = world.consumer(diary, client_rebalance=not pop)
        world.network.run(1)
        # The change is told with a heartbeat, and queues are given up after it: until then they are fetched.
        silent = answer_instead(world, RequestCode.HEART_BEAT, lambda request, handler: None)
        consumer.unsubscribe(TOPIC)
        world.put(b"between")
        world.network.run(0.5)
        silent[0] = False
        consumer.subscribe(TOPIC)
        world.until(lambda: diary.bodies == [b"between"], 90)

    @pytest.mark.parametrize("kind", ["push", "pushed with each pull", "lite"])
    def test_another_choice_of_messages_counts_from_then_on(self, kind: str) -> None:
        """A pull that the broker holds for the old choice would lead past what is wanted now."""
        world, got = ConsumerWorld(queues=1), []
        if kind == "lite":
            reader = lite_reader(world, "A")
        else:
            told = kind == "pushed with each pull"
            diary = Diary()
            reader = world.consumer(diary, "CG", {TOPIC: "A"}, post_subscription_when_pull=told)
        world.network.run(1)
        reader.subscribe(TOPIC, "B")
        world.network.run(1)
        world.put(b"b", properties={"TAGS": "B"})
        if kind == "lite":
            reader.poll(5000).addCallback(got.extend)
            world.until(lambda: bool(got), 5)
            assert [message.body for message in got] == [b"b"]
        else:
            world.until(lambda: diary.bodies == [b"b"], 5)

    def test_an_answer_to_another_choice_of_messages_leads_nowhere(self) -> None:
        world = ConsumerWorld(queues=1)
        reader = lite_reader(world, "A", broker_suspend_max_time_millis=500)
        world.network.run(1)
        silent = answer_instead(world, RequestCode.HEART_BEAT, lambda request, handler: None)
        reader.subscribe(TOPIC, "B")
        world.put(b"b", properties={"TAGS": "B"})
        world.network.run(2)
        silent[0] = False
        assert [message.body for message in world.wait(reader.poll(60_000))] == [b"b"]

    def test_one_that_changes_after_the_clock_was_set_back_counts(self) -> None:
        world, diary = ConsumerWorld(queues=1), Diary()
        consumer = world.consumer(diary, "CG", {TOPIC: "A"})
        world.network.run(1)
        consumer.clock = Clock()
        consumer.subscribe(TOPIC, "B")
        world.network.run(1)
        world.put(b"b", properties={"TAGS": "B"})
        world.until(lambda: diary.bodies == [b"b"], 30)


def lite_reader(world: ConsumerWorld, tag: str, **settings: Any) -> Any:
    """A lite pull consumer of one tag."""
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    reader = LitePullConsumer(
        world.clock,
        "CG",
        settings=PullConfig(consume_from_where=first, **settings),
        instance=world.instance(),
    )
    reader.subscribe(TOPIC, tag)
    world.wait(reader.start())
    return reader


class TestLoops:
    def consumer(self, world: ConsumerWorld) -> LitePullConsumer:
        consumer = LitePullConsumer(
            world.clock,
            "CG",
            settings=PullConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
            instance=world.instance(),
        )
        consumer.subscribe(TOPIC)
        world.wait(consumer.start())
        return consumer

    def test_a_loop_that_was_left_goes_on_in_the_next(self) -> None:
        world = ConsumerWorld(queues=1)
        bodies = world.fill(5, 1)
        consumer = self.consumer(world)
        world.network.run(1)

        async def read(until: int) -> list[bytes]:
            found = []
            async for message in consumer:
                found.append(message.body)
                if message.queue_offset == until:
                    break
            return found

        assert world.wait(read(1)) == bodies[:2]
        world.wait(consumer.commit())
        assert world.offset("CG", 0) == 1
        assert world.wait(read(4)) == bodies[1:]

    def test_what_a_loop_left_is_handed_to_whoever_polls(self) -> None:
        world = ConsumerWorld(queues=1)
        bodies = world.fill(3, 1)
        consumer = self.consumer(world)
        world.network.run(1)

        async def fail() -> None:
            async for _ in consumer:
                raise MQClientError("no")

        world.outcome(fail())
        assert [message.body for message in world.wait(consumer.poll())] == bodies
        world.wait(consumer.commit())
        assert world.offset("CG", 0) == 3


def test_an_operator_who_resets_to_nowhere_changes_nothing() -> None:
    world = ConsumerWorld(queues=1)
    world.fill(2, 1)
    diary = Diary()
    consumer = world.consumer(diary)
    world.until(lambda: len(diary.seen) == 2)
    request = SimpleNamespace(
        header=SimpleNamespace(group="CG", topic=TOPIC),
        connection=SimpleNamespace(remote_text="test"),
        body=b'{"offsetTable":{{"brokerName":"broker-2","queueId":0,"topic":"TopicTest"}:-7}}',
    )
    ClientRequests(consumer.instance).reset_offset(request)  # type: ignore[arg-type]
    world.network.run(3)
    world.put(b"next")
    world.until(lambda: diary.bodies[-1] == b"next")
    assert len(diary.seen) == 3


#: Answers of success that say nothing, nonsense, or more than fits.
GARBAGE = {
    "nothing": lambda request: Reply(0),
    "nonsense": lambda request: Reply(
        0, body=b"\xff{[", ext_fields={"offset": "x", "nextBeginOffset": ""}
    ),
    "huge": lambda request: Reply(
        0,
        body=b"{}" * 10_000,
        ext_fields={
            name: str(1 << 80)
            for name in ("offset", "nextBeginOffset", "minOffset", "maxOffset", "popTime")
        },
    ),
}


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("kind", ["concurrent", "orderly", "pop"])
def test_a_broker_that_talks_nonsense_for_a_while_costs_time_alone(kind: str, garbage: str) -> None:
    """Each of the requests of a consumer in turn: whatever comes back, it asks again, and everything is consumed in the end."""
    world = ConsumerWorld(queues=2)
    pop_service(world.brokers[2])
    if kind == "pop":
        set_mode(world)
    codes = [
        RequestCode.PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.HEART_BEAT,
        RequestCode.CONSUMER_SEND_MSG_BACK,
    ]
    spoiled = [
        answer_instead(world, code, lambda request, handler: GARBAGE[garbage](request))
        for code in codes
    ]
    world.fill(6, 2)
    diary = Diary(DONE if kind == "orderly" else SUCCESS)
    consumer = world.consumer(
        diary,
        orderly=kind == "orderly",
        client_rebalance=kind != "pop",
        pop_invisible_time=10_000,
        start=False,
    )
    started = kept(consumer.start())
    for active in spoiled:
        world.network.run(4)
        active[0] = False
    world.until(lambda: len(set(diary.bodies)) == 6, 120)
    assert started == [None]
    world.wait(consumer.stop())
    assert not consumer.instance.running


def test_a_route_without_queues_takes_nothing_away_and_more_come_back() -> None:
    world = ConsumerWorld(queues=2)
    diary = Diary()
    world.consumer(diary)
    producer = world.producer()
    world.wait(producer.send(Message(TOPIC, b"before")))
    topics = world.brokers[2].core.topics
    old = topics.get(TOPIC)
    assert old is not None
    topics.update([msgspec.structs.replace(old, read_queue_nums=0, write_queue_nums=0)])
    world.network.run(40)
    assert "must not be written" in str(world.outcome(producer.send(Message(TOPIC, b"no"))).value)
    topics.update([msgspec.structs.replace(old, read_queue_nums=4, write_queue_nums=4)])
    world.network.run(40)
    for number in range(4):
        world.wait(producer.send(Message(TOPIC, b"after %d" % number)))
    world.until(lambda: len(diary.seen) == 5)
    assert {message.queue_id for message in diary.seen[1:]} == {0, 1, 2, 3}
