"""Is a slip in a program told in a sentence, where it was made?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from txrocketmq.client import (
    Admin,
    ClientConfig,
    LitePullConsumer,
    Message,
    Producer,
    ProducerConfig,
    PullConfig,
    PushConfig,
    PushConsumer,
)
from txrocketmq.errors import MQClientError
from txrocketmq.testing import RocketMQ


@pytest.fixture
def mq() -> Iterator[RocketMQ]:
    with RocketMQ() as started:
        yield started


def told(call: Callable[..., object], *arguments: Any, **named: Any) -> str:
    with pytest.raises(MQClientError) as caught:
        call(*arguments, **named)
    return str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["T", b"x"], "a Message(topic=..., body=...) is sent, not 'T'"),
        ([b"x"], "a Message(topic=..., body=...) is sent, not b'x'"),
        ([Message(topic=b"T", body=b"x")], "topic: b'T', is no text"),  # type: ignore[arg-type]
        ([Message(topic=5, body=b"x")], "topic: 5, is no text"),  # type: ignore[arg-type]
        ([Message(topic="T", body="x")], "a body of str; bytes are sent"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_message(mq: RocketMQ, arguments: list[Any], says: str) -> None:
    producer = mq.producer("g")
    for send in (producer.send, producer.send_oneway):
        assert says in told(mq.wait, send(*arguments))
    assert mq.topics() == []


@pytest.mark.parametrize(
    ("attribute", "value", "says"),
    [
        ("tags", 5, "the value of property 'TAGS' must be a text, not 5"),
        ("keys", ["a", "b"], "the value of property 'KEYS' must be a text, not ['a', 'b']"),
        ("delay_time_level", "1s", "delay_time_level must be a whole number, not '1s'"),
        ("deliver_time_ms", 1.5, "deliver_time_ms must be a whole number, not 1.5"),
        ("delay_time_ms", "5000", "delay_time_ms must be a whole number, not '5000'"),
    ],
)
def test_what_no_message_can_have(attribute: str, value: object, says: str) -> None:
    message = Message(topic="T", body=b"x")
    assert told(setattr, message, attribute, value) == says
    assert message.properties == {}


def test_properties_that_are_no_texts() -> None:
    message = Message(topic="T", body=b"x")
    says = "the value of property 'n' must be a text, not 5"
    assert told(message.put_user_property, "n", 5) == says
    assert told(message.put_user_property, 5, "n") == "the name of property 5 must be a text, not 5"
    assert message.properties == {}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ClientConfig(namesrv_addr=["a:1"]), "namesrv_addr must be a text, not ['a:1']"),  # type: ignore[arg-type]
        (lambda: ClientConfig(use_tls="no"), "use_tls must be True or False, not 'no'"),  # type: ignore[arg-type]
        (
            lambda: ProducerConfig(send_msg_timeout="3000"),  # type: ignore[arg-type]
            "send_msg_timeout must be a number, not '3000'",
        ),
        (
            lambda: PushConfig(consume_thread_max="3").check(),  # type: ignore[arg-type]
            "consume_thread_max must be a number, not '3'",
        ),
    ],
)
def test_settings_of_another_kind(make: Callable[[], object], says: str) -> None:
    assert told(make) == says


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: ClientConfig(rebalance_interval=0),
            "rebalance_interval must be at least 1, not 0",
        ),
        (
            lambda: ClientConfig(heartbeat_broker_interval=-1),
            "heartbeat_broker_interval must be at least 1, not -1",
        ),
        (
            lambda: ProducerConfig(retry_times_when_send_failed=-1),
            "retry_times_when_send_failed must be at least 0, not -1",
        ),
        (lambda: ProducerConfig(send_msg_timeout=0), "send_msg_timeout must be at least 1, not 0"),
        (
            lambda: PushConfig(await_termination_millis_when_shutdown=-1).check(),
            "await_termination_millis_when_shutdown must be at least 0, not -1",
        ),
        (
            lambda: PullConfig(auto_commit_interval_millis=0).check(),
            "auto_commit_interval_millis must be at least 1, not 0",
        ),
        (
            lambda: PullConfig(pull_batch_size="10").check(),  # type: ignore[arg-type]
            "pull_batch_size must be a number, not '10'",
        ),
    ],
)
def test_numbers_that_would_keep_it_from_resting(make: Callable[[], object], says: str) -> None:
    assert told(make) == says


def test_a_wait_of_less_than_no_time_is_none(mq: RocketMQ, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, producer = mq.lite_pull_consumer("g", "T"), mq.producer("p")
    mq.create_topic("T")
    call_later = Clock.callLater

    def strict(clock: Clock, delay: float, *more: Any, **named: Any) -> Any:
        assert delay >= 0  # as reactors say it
        return call_later(clock, delay, *more, **named)

    monkeypatch.setattr(Clock, "callLater", strict)
    assert mq.wait(consumer.poll(-1)) == []
    asked = producer.request(Message(topic="T", body=b"x"), timeout_ms=-1)
    assert "no time is left of -1 ms" in told(mq.wait, asked)


def test_settings_of_another_role(mq: RocketMQ) -> None:
    def handle(*_: object) -> None: ...

    push: Any = PushConfig()
    pull: Any = PullConfig()
    where = {"namesrv_addr": mq.namesrv_addr}
    reactor = mq.reactor
    for said, wanted in (
        (told(PushConsumer, reactor, "g", "T", handle, settings=pull, **where), "PushConfig"),
        (told(LitePullConsumer, reactor, "g", settings=push, **where), "PullConfig"),
        (told(Producer, reactor, "g", settings=push, **where), "ProducerConfig"),
    ):
        assert said.startswith(f"settings must be a {wanted}, not ")
    for said in (
        told(PushConsumer, reactor, "g", "T", handle, push),
        told(Producer, reactor, "g", mq.namesrv_addr),
        told(Admin, reactor, mq.namesrv_addr),
    ):
        assert said.startswith("client must be a ClientConfig, not ")
    topics: Any = ["T"]
    said = told(PushConsumer, reactor, "g", topics, handle, **where)
    assert said.endswith("a dict of topics and what is wanted of each, not ['T']")


def test_an_address_beside_a_client_without_it(mq: RocketMQ) -> None:
    address = mq.namesrv_addr
    said = told(Producer, mq.reactor, "g", ClientConfig(namesrv_addr="a:1"), namesrv_addr=address)
    assert said.endswith("set it there: ClientConfig(namesrv_addr=...)")
    client = ClientConfig(namesrv_addr=address)
    assert Producer(mq.reactor, "g", client, namesrv_addr=address).config.namesrv_addr == address


def test_a_call_from_another_thread(mq: RocketMQ) -> None:
    producer = mq.producer("g")
    failed: list[Failure] = []

    def send() -> None:
        sent: Deferred[Any] = producer.send(Message(topic="T", body=b"x"))
        sent.addErrback(failed.append)

    with ThreadPoolExecutor() as pool:
        pool.submit(send).result()
    (failure,) = failed
    assert failure.check(MQClientError)
    assert "blockingCallFromThread" in failure.getErrorMessage()
    assert mq.topics() == []
    mq.wait(producer.send(Message(topic="T", body=b"x")))
    assert mq.bodies("T") == [b"x"]
