"""Strategies, threads and bodies that are not as they should be: the consumer says so, goes on, and ends."""

from __future__ import annotations

from typing import Any

import pytest
from client_world import NAME_SERVER, ClientWorld
from consumer_world import SUCCESS, TOPIC, ConsumerWorld, Diary, queue, set_mode
from log_watch import is_warning, logged
from pops import service as pop_service
from test_bad_luck import answer_instead, lite_reader
from twisted.internet.defer import Deferred, fail, maybeDeferred
from twisted.logger import capturedLogs

from txrocketmq.client.consumer import base
from txrocketmq.client.consumer.config import PushConfig
from txrocketmq.client.consumer.handlers import Handler
from txrocketmq.client.consumer.push import PushConsumer
from txrocketmq.client.producer.producer import Producer
from txrocketmq.codec.headers import PopMessageResponseHeader, PullMessageResponseHeader
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.heartbeat import ConsumeFromWhere, MessageModel
from txrocketmq.model.message import Message, MessageExt, MessageQueue
from txrocketmq.remoting.dispatch import Reply


class FewThreads:
    """A pool in which all handlers but the first block for ever, and all else is done at once if a thread is left."""

    def __init__(self, reactor: Any, name: str, threads: int) -> None:
        self.left = threads
        self.jobs = 0
        self.good = 1

    def submit(self, function: Any, *arguments: Any) -> Deferred[Any]:
        if not self.left:
            return Deferred()
        if isinstance(getattr(function, "__self__", None), Handler):
            if self.good:
                self.good -= 1
                return maybeDeferred(function, *arguments)
            self.left -= 1
            self.jobs += 1
            return Deferred()
        return maybeDeferred(function, *arguments)

    def stop(self) -> Deferred[None]:
        return Deferred()


def test_blocking_handlers_keep_no_broadcasting_consumer_from_its_file_and_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base, "BlockingPool", FewThreads)
    world = ConsumerWorld(queues=1)
    consumer = PushConsumer(
        world.clock,
        "CG",
        TOPIC,
        lambda *_: SUCCESS,
        settings=PushConfig(
            in_thread=True,
            consume_thread_max=2,
            message_model=MessageModel.BROADCASTING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            await_termination_millis_when_shutdown=1000,
        ),
        instance=world.instance(),
        disk=world.disk,
    )
    world.wait(consumer.start())
    world.fill(4, 1)
    world.until(lambda: consumer.running_handlers == 2)
    world.wait(consumer.stop(), 5)
    assert not consumer.instance.running


class Strategy:
    """Divides as it likes."""

    name = "S"

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls = 0

    def allocate(self, group: str, client_id: str, queues: Any, client_ids: Any) -> Any:
        self.calls += 1
        return self.answer(queues) if callable(self.answer) else self.answer


@pytest.mark.parametrize("answer", [None, "x", [None], [1]])
def test_a_strategy_that_returns_no_queues_is_told_so(answer: Any) -> None:
    world = ConsumerWorld(queues=2)
    with logged(is_warning) as told:
        consumer = world.consumer(Diary(), allocate_strategy=Strategy(answer))
        world.network.run(15)
        assert consumer.queues == []
        world.wait(consumer.stop())
    wanted = [
        text for text in told if f"Strategy must return a list of queues, not {answer!r}" in text
    ]
    assert 0 < len(wanted) == len(told) < 5


def test_a_strategy_that_names_a_queue_twice_or_one_that_is_not_there_gives_the_others() -> None:
    world = ConsumerWorld(queues=2)
    world.fill(4, 2)
    diary = Diary()
    strange = MessageQueue(topic="Other", broker_name="nobody", queue_id=-1)
    strategy = Strategy(lambda queues: [strange, *queues, *queues])
    consumer = world.consumer(diary, allocate_strategy=strategy)
    world.until(lambda: len(diary.seen) == 4)
    world.network.run(15)
    assert len([found for found in consumer.queues if found.topic == TOPIC]) == 2
    assert len(diary.seen) == 4
    assert strategy.calls < 10


def test_a_queue_whose_beginning_goes_wrong_has_no_other_begun_twice() -> None:
    world = ConsumerWorld(queues=2)
    consumer = world.consumer(Diary(), start=False)
    read, pulls, faults = consumer.offsets.read, [0], [True]

    def odd(wanted: MessageQueue) -> Deferred[int | None]:
        if wanted == queue(0) and faults:
            return fail(RuntimeError(faults.pop()))
        if wanted == queue(1):
            late: Deferred[None] = Deferred()
            world.clock.callLater(2, late.callback, None)
            return late.addCallback(lambda _: read(wanted))
        return read(wanted)

    pull = consumer.brokers.pull

    def count(wanted: MessageQueue, *more: Any) -> Deferred[Any]:
        pulls[0] += wanted == queue(1)
        return pull(wanted, *more)

    consumer.offsets.read = odd  # type: ignore[method-assign]
    consumer.brokers.pull = count  # type: ignore[method-assign]
    with capturedLogs() as events:
        world.wait(consumer.start())
        world.network.run(5)
    assert [event["log_format"] for event in events if "log_failure" in event] == [
        "beginning {queue}"
    ]
    assert pulls == [1]
    world.wait(consumer.stop())


@pytest.mark.parametrize("lite", [False, True])
def test_bodies_that_grow_a_thousandfold_come_in_parts(lite: bool) -> None:
    world = ConsumerWorld(queues=1)
    producer, sent = world.producer(), 12
    for number in range(sent):
        body = b"%d" % number + bytes(3 << 20)
        world.wait(producer.send(Message(TOPIC, body), queue(0)))
    seen: list[MessageExt] = []
    if lite:
        reader = lite_reader(world, "*", pull_batch_size=32)
        parts = []
        while len(seen) < sent:
            parts.append(len(world.wait(reader.poll(5000).addCallback(keep(seen)))))
    else:
        diary = Diary()
        consumer = world.consumer(diary, consume_message_batch_max_size=32, pull_batch_size=32)
        world.until(lambda: len(diary.seen) >= sent, 10)
        seen, parts = diary.seen, diary.batches
        world.wait(consumer.stop())
        assert world.offset("CG", 0) == sent
    assert [(len(one.body), one.queue_offset) for one in seen] == [
        ((3 << 20) + len(b"%d" % number), number) for number in range(sent)
    ]
    assert parts == [3] * 4


def keep(seen: list[Any]) -> Any:
    def note(found: list[Any]) -> list[Any]:
        seen.extend(found)
        return found

    return note


@pytest.mark.parametrize(
    ("kind", "code"), [("push", 19), ("push", 20), ("push", 0), ("lite", 19), ("pop", 210)]
)
def test_a_broker_that_says_at_once_that_there_is_nothing_is_not_asked_without_rest(
    kind: str, code: int
) -> None:
    world, asked = ConsumerWorld(queues=1), []
    if kind == "pop":
        pop_service(world.brokers[2])
        set_mode(world)

    def nothing(request: Any, handler: Any) -> Reply:
        asked.append(world.clock.seconds())
        if kind == "pop":
            pop = PopMessageResponseHeader(pop_time=1, invisible_time=1, revive_qid=0, rest_num=0)
            return Reply(code, header=pop)
        return Reply(
            code,
            header=PullMessageResponseHeader(
                suggest_which_broker_id=0,
                next_begin_offset=request.header.queue_offset,
                min_offset=0,
                max_offset=10,
            ),
        )

    codes = [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.POP_MESSAGE]
    silent = [answer_instead(world, request, nothing) for request in codes]
    if kind == "lite":
        reader = lite_reader(world, "*")
    else:
        diary = Diary()
        world.consumer(diary, client_rebalance=kind != "pop")
    asked.clear()
    world.network.run(5)
    assert 20 < len(asked) < 200
    for active in silent:
        active[0] = False
    world.put(b"there")
    if kind == "lite":
        assert [message.body for message in world.wait(reader.poll(1000))] == [b"there"]
    else:
        world.until(lambda: diary.bodies == [b"there"], 1)


def test_a_producer_that_is_not_started_opens_no_connection() -> None:
    world = ClientWorld()
    instance = world.instance()
    producer = Producer(world.clock, "PG", instance=instance)
    for asked in (
        producer.publish_queues(TOPIC),
        producer.request(Message(TOPIC, b"x"), timeout_ms=1000),
        producer.recall(TOPIC, "handle"),
    ):
        assert "producer PG is not started" in world.outcome(asked).getErrorMessage()
    world.network.run(1)
    assert instance.remoting.connection(NAME_SERVER) is None
