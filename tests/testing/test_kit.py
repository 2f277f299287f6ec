"""Does the test kit do for an application's tests what docs/test-kit.md says?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from txrocketmq.client.consumer.handlers import ConsumeConcurrentlyStatus
from txrocketmq.client.consumer.push import PushConsumer
from txrocketmq.client.producer.producer import Producer
from txrocketmq.client.results import LocalTransactionState
from txrocketmq.errors import BrokerError, ConfigError, RocketMQError
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.message import Message
from txrocketmq.testing import RocketMQ

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER
SEND = RequestCode.SEND_MESSAGE_V2
START_BUDGET_S = 0.020


@pytest.fixture
def mq() -> Iterator[RocketMQ]:
    with RocketMQ(topics=["Orders"]) as started:
        yield started


def order(body: bytes = b"one", **values: Any) -> Message:
    message = Message(topic="Orders", body=body)
    for name, value in values.items():
        setattr(message, name, value)
    return message


class Seen:
    """A handler that remembers."""

    def __init__(self, answer: Any = SUCCESS) -> None:
        self.bodies: list[bytes] = []
        self.answer = answer

    def __call__(self, messages: list[Any], context: Any) -> Any:
        self.bodies += [message.body for message in messages]
        return self.answer


# ------------------------------------------------------------------ start


def test_it_starts_in_milliseconds() -> None:
    spent = []
    for _ in range(6):
        # Of this process, so that others on the machine do not count.
        began_s = time.process_time()
        mq = RocketMQ().start()
        spent.append(time.process_time() - began_s)
        mq.stop()
    assert min(spent) < START_BUDGET_S


def test_two_of_them_know_nothing_of_one_another() -> None:
    with RocketMQ() as one, RocketMQ() as two:
        one.send("Orders", "x")
        assert one.topics() == ["Orders"]
        assert two.topics() == []


def test_unknown_settings_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'brokr_name'"):
        RocketMQ(brokr_name="x").start()


def test_it_says_that_it_is_not_started() -> None:
    with pytest.raises(RuntimeError, match="with RocketMQ"):
        RocketMQ().advance(1)


# ------------------------------------------------------------------ messages and time


def test_what_is_sent_is_stored_and_consumed(mq: RocketMQ) -> None:
    producer, seen = mq.producer(), Seen()
    mq.push_consumer("readers", "Orders", seen)
    sent = mq.wait(producer.send(order(tags="A", keys="k1")))
    (stored,) = mq.assert_stored("Orders", body="one", tags="A", keys="k1", count=1)
    assert (stored.queue_id, stored.queue_offset) == (sent.queue.queue_id, sent.queue_offset)
    mq.assert_consumed("readers", "Orders")
    assert seen.bodies == [b"one"]


def test_long_bodies_are_read_as_they_were_sent(mq: RocketMQ) -> None:
    mq.send("Orders", b"x" * 100_000)
    assert mq.bodies("Orders") == [b"x" * 100_000]


def test_the_greatest_message_is_taken(mq: RocketMQ) -> None:
    body = bytes(range(256)) * (4 * 1024 * 1024 // 256)
    mq.wait(mq.producer(compress_msg_body_over_howmuch=1 << 30).send(order(body)))
    assert mq.bodies("Orders") == [body]


def test_a_delayed_message_comes_when_the_clock_says_so(mq: RocketMQ) -> None:
    seen = Seen()
    mq.push_consumer("readers", "Orders", seen)
    mq.wait(mq.producer().send(order(delay_time_level=4)))
    mq.advance(29)
    assert seen.bodies == []
    with pytest.raises(AssertionError, match=r"1 delayed messages were stored, advance\(\)"):
        mq.assert_stored("Orders")
    mq.advance(2)
    assert seen.bodies == [b"one"]


def test_failures_are_retried_until_they_are_dead_letters(mq: RocketMQ) -> None:
    seen = Seen(LATER)
    mq.push_consumer("readers", "Orders", seen, max_reconsume_times=2)
    mq.send("Orders", "poison")
    mq.advance(5)
    assert seen.bodies == [b"poison"]
    mq.advance(12)
    assert seen.bodies == [b"poison"] * 2
    mq.advance(60)
    assert seen.bodies == [b"poison"] * 3
    (dead,) = mq.dead_letters("readers")
    assert dead.body == b"poison"


def test_the_broker_asks_for_the_outcome_of_a_transaction(mq: RocketMQ) -> None:
    asked = []

    def check(message: Any) -> LocalTransactionState:
        asked.append(message.body)
        return LocalTransactionState.COMMIT_MESSAGE

    producer = mq.producer(check=check)
    mq.wait(producer.send_in_transaction(order(), lambda m, a: LocalTransactionState.UNKNOW))
    with pytest.raises(AssertionError, match="1 half messages"):
        mq.assert_stored("Orders")
    mq.advance(90)
    assert asked == [b"one"]
    mq.assert_stored("Orders", body="one")


def test_a_lite_pull_consumer_polls(mq: RocketMQ) -> None:
    consumer = mq.lite_pull_consumer("readers", "Orders")
    mq.send("Orders", "x")
    assert [message.body for message in mq.wait(consumer.poll())] == [b"x"]
    assert mq.wait(consumer.poll(2000)) == []


def test_lag_is_what_was_not_committed(mq: RocketMQ) -> None:
    for number in range(6):
        mq.send("Orders", str(number))
    assert mq.lag("readers", "Orders") == 6
    consumer = mq.push_consumer("readers", "Orders", Seen())
    mq.advance(1)
    assert mq.lag("readers", "Orders") == 6
    mq.wait(consumer.stop())
    assert mq.lag("readers", "Orders") == 0
    assert sum(end for _, end in mq.positions("readers", "Orders").values()) == 6


# ------------------------------------------------------------------ what it says


def test_it_says_what_is_stored_instead(mq: RocketMQ) -> None:
    mq.send("Orders", "two", tags="B")
    with pytest.raises(AssertionError) as failed:
        mq.assert_stored("Orders", body="one", tags="B")
    text = str(failed.value)
    assert "expected a message with body=b'one', tags='B' in topic Orders, found 0" in text
    assert "body=b'two' tags='B' keys=None" in text
    with pytest.raises(AssertionError, match=r"no such topic, only .*Orders"):
        mq.assert_stored("Odrers")
    with pytest.raises(AssertionError, match=r"expected 2 messages .* found 1"):
        mq.assert_stored("Orders", tags="B", count=2)
    with RocketMQ() as fresh, pytest.raises(AssertionError, match="no such topic, none was made"):
        fresh.assert_stored("Orders")
    mq.create_topic("Bare")
    with pytest.raises(AssertionError, match="it is empty"):
        mq.assert_stored("Bare")


def test_it_says_where_a_group_stands(mq: RocketMQ) -> None:
    mq.send("Orders", "two")
    with pytest.raises(AssertionError, match=r"stands at broker-a queue \d: 0 of 1"):
        mq.assert_consumed("nobody", "Orders", timeout=5)


def test_it_says_what_was_waited_for_in_vain(mq: RocketMQ) -> None:
    mq.kill_broker()
    mq.drop(SEND)
    with pytest.raises(AssertionError) as failed:
        mq.wait(Deferred(), timeout=3)
    text = str(failed.value)
    assert "within 3 s of virtual time" in text
    assert "down: broker-a" in text
    assert "dropped: SEND_MESSAGE_V2 (310)" in text


def test_time_is_not_moved_from_within(mq: RocketMQ) -> None:
    found: list[BaseException] = []

    def handler(messages: list[Any], context: Any) -> Any:
        try:
            mq.advance(1)
        except RuntimeError as error:
            found.append(error)
        return SUCCESS

    mq.push_consumer("readers", "Orders", handler)
    mq.send("Orders", "x")
    mq.assert_consumed("readers", "Orders")
    assert "must not be called from a handler" in str(found[0])


# ------------------------------------------------------------------ faults


def test_a_dropped_request_is_sent_again_after_its_time_out(mq: RocketMQ) -> None:
    producer = mq.producer(send_msg_timeout=6000, send_msg_max_timeout_per_request=2000)
    with mq.drop(SEND, times=1) as fault:
        began_s = mq.reactor.seconds()
        mq.wait(producer.send(order()))
    assert fault.hits == 1
    assert mq.reactor.seconds() - began_s == pytest.approx(2, abs=0.5)
    assert len(mq.messages("Orders")) == 1


def test_a_dropped_answer_leads_to_a_second_message(mq: RocketMQ) -> None:
    producer = mq.producer(send_msg_timeout=6000, send_msg_max_timeout_per_request=2000)
    mq.drop_answer(SEND, times=1)
    mq.wait(producer.send(order()))
    assert mq.bodies("Orders") == [b"one"] * 2


def test_requests_are_delayed(mq: RocketMQ) -> None:
    producer = mq.producer()
    began_s = mq.reactor.seconds()
    with mq.delay(1.5, SEND):
        mq.wait(producer.send(order()))
    assert mq.reactor.seconds() - began_s == pytest.approx(1.5, abs=0.1)


def test_requests_are_answered_with_an_error(mq: RocketMQ) -> None:
    producer = mq.producer(retry_times_when_send_failed=0)
    code = ResponseCode.MESSAGE_ILLEGAL
    with mq.answer_with(code, "no", code=SEND, at="broker-a"), pytest.raises(BrokerError) as error:
        mq.wait(producer.send(order()))
    assert (error.value.code, error.value.remark) == (code, "no")
    assert mq.messages("Orders") == []
    mq.wait(producer.send(order()))


def test_rules_are_for_one_server() -> None:
    with RocketMQ(brokers=2, topics=["Orders"]) as mq:
        producer = mq.producer()
        mq.answer_with(ResponseCode.SYSTEM_ERROR, code=SEND, at="broker-a")
        for _ in range(8):
            assert mq.wait(producer.send(order())).queue.broker_name == "broker-b"


def test_what_was_acknowledged_survives_the_brokers_death(mq: RocketMQ) -> None:
    seen = Seen()
    mq.push_consumer("readers", "Orders", seen)
    mq.send("Orders", "x")
    mq.kill_broker()
    with pytest.raises(RocketMQError):
        mq.wait(mq.producer("other").send(order()))
    mq.restart_broker()
    assert mq.bodies("Orders") == [b"x"]
    mq.send("Orders", "y")
    mq.advance(60)
    assert set(seen.bodies) == {b"x", b"y"}


def test_a_killed_broker_does_nothing_any_more(mq: RocketMQ) -> None:
    mq.wait(mq.producer().send(order(delay_time_level=1)))
    mq.kill_broker()
    mq.advance(60)
    assert mq.messages("Orders") == []
    mq.restart_broker()
    mq.advance(5)
    assert mq.bodies("Orders") == [b"one"]


def test_an_orderly_restart_with_another_setting(mq: RocketMQ) -> None:
    mq.send("Orders", "x")
    mq.restart_broker(reject_transaction_message=True)
    assert mq.bodies("Orders") == [b"x"]
    assert mq.broker().config.reject_transaction_message


def test_the_name_server_comes_back(mq: RocketMQ) -> None:
    producer = mq.producer()
    mq.wait(producer.send(order()))
    mq.kill_name_server()
    # Who knows the route goes on.
    mq.wait(producer.send(order()))
    mq.restart_name_server()
    mq.advance(35)
    assert mq.wait(mq.producer("late").send(order())).queue.topic == "Orders"


def test_connections_are_cut_and_made_again(mq: RocketMQ) -> None:
    producer = mq.producer()
    mq.wait(producer.send(order()))
    assert mq.cut_connections() >= 2
    mq.wait(producer.send(order()))
    assert len(mq.messages("Orders")) == 2
    assert mq.cut_connections("broker-a") == 1


def test_a_client_process_dies(mq: RocketMQ) -> None:
    """Its queues go to the other member, which starts from what was committed."""
    first, second = Seen(), Seen()
    process = mq.process()
    mq.push_consumer("readers", "Orders", second)
    consumer = PushConsumer(process, "readers", "Orders", first, client=mq.client_config())
    mq.wait(consumer.start())
    mq.advance(25)
    assert consumer.queues
    process.kill()
    for number in range(8):
        mq.send("Orders", str(number))
    mq.advance(30)
    assert first.bodies == []
    assert sorted(second.bodies) == [b"%d" % number for number in range(8)]


def test_requests_are_on_record(mq: RocketMQ) -> None:
    mq.send("Orders", "x")
    assert mq.faults.requests.count(("broker-a", SEND)) == 1
    assert ("namesrv", RequestCode.GET_ROUTEINFO_BY_TOPIC) in mq.faults.requests


# ------------------------------------------------------------------ as applications use it


def test_application_code_gets_the_reactor_and_the_address(mq: RocketMQ) -> None:
    async def application(reactor: Any, namesrv_addr: str) -> list[bytes]:
        seen = Seen()
        async with (
            Producer(reactor, "orders", namesrv_addr=namesrv_addr) as producer,
            PushConsumer(reactor, "readers", "Orders", seen, namesrv_addr=namesrv_addr),
        ):
            await producer.send(order())
            while not seen.bodies:
                done: Deferred[None] = Deferred()
                reactor.callLater(0.1, done.callback, None)
                await done
        return seen.bodies

    assert mq.wait(application(mq.reactor, mq.namesrv_addr)) == [b"one"]


def test_an_asyncio_test_awaits() -> None:
    async def scenario() -> None:
        seen = Seen()
        async with RocketMQ(topics=["Orders"]) as mq:
            loop = asyncio.get_running_loop()
            producer = Producer(mq.reactor, "orders", namesrv_addr=mq.namesrv_addr)
            await producer.start().asFuture(loop)
            mq.push_consumer("readers", "Orders", seen)
            sent = await producer.send(order()).asFuture(loop)
            assert sent.queue_offset == 0
            await producer.send(order(b"two", delay_time_level=2)).asFuture(loop)
            mq.advance(5)
            await producer.stop().asFuture(loop)
        assert sorted(seen.bodies) == [b"one", b"two"]

    asyncio.run(asyncio.wait_for(scenario(), 30))
