"""Which brokers are avoided, for how long, and how they come back."""

from __future__ import annotations

import pytest
from client_world import ClientWorld
from twisted.internet.task import Clock

from txrocketmq.client.latency import FaultStrategy, avoided_ms
from txrocketmq.client.routes import PublishInfo
from txrocketmq.model.message import Message, MessageQueue


def info(*brokers: str, queues: int = 2) -> PublishInfo:
    found = [
        MessageQueue(topic="T", broker_name=name, queue_id=number)
        for name in brokers
        for number in range(queues)
    ]
    return PublishInfo("T", found, brokers=frozenset(brokers))


@pytest.mark.parametrize(
    ("latency_ms", "avoided"),
    [
        (0, 0),
        (549, 0),
        (550, 2000),
        (1799, 2000),
        (1800, 5000),
        (3000, 6000),
        (5000, 10000),
        (14999, 10000),
        (15000, 30000),
    ],
)
def test_the_official_table(latency_ms: int, avoided: int) -> None:
    assert avoided_ms(latency_ms) == avoided


def test_turns_and_the_last_broker() -> None:
    strategy, three = FaultStrategy(Clock().seconds), info("a", "b", "c")
    turns = [strategy.choose(three, None).broker_name for _ in range(6)]
    assert turns == ["a", "b", "b", "c", "c", "a"]
    assert all(strategy.choose(three, "b").broker_name != "b" for _ in range(20))
    assert strategy.choose(info("b"), "b").broker_name == "b"


def test_slow_brokers_are_avoided_for_a_time() -> None:
    clock = Clock()
    strategy, two = FaultStrategy(clock.seconds, enabled=True), info("a", "b")
    strategy.succeeded("a", 2000)
    assert {strategy.choose(two, None).broker_name for _ in range(8)} == {"b"}
    clock.advance(4.9)
    assert not strategy.is_available("a")
    clock.advance(0.2)
    assert {strategy.choose(two, None).broker_name for _ in range(8)} == {"a", "b"}


def test_a_shorter_time_does_not_replace_a_longer_one() -> None:
    clock = Clock()
    strategy = FaultStrategy(clock.seconds, enabled=True)
    strategy.failed("a", 10, by_broker=False)
    strategy.succeeded("a", 600)
    clock.advance(9)
    assert not strategy.is_available("a")


def test_when_all_are_avoided_those_that_answer_are_used_then_anyone() -> None:
    strategy, two = FaultStrategy(Clock().seconds, enabled=True), info("a", "b")
    strategy.failed("a", 10, by_broker=True)
    strategy.succeeded("b", 3000)
    assert {strategy.choose(two, None).broker_name for _ in range(8)} == {"b"}
    strategy.failed("b", 10, by_broker=True)
    assert {strategy.choose(two, None).broker_name for _ in range(8)} == {"a", "b"}


def test_it_is_off_unless_it_is_asked_for() -> None:
    strategy = FaultStrategy(Clock().seconds)
    strategy.failed("a", 10, by_broker=True)
    strategy.succeeded("a", 9000)
    assert strategy.items == {}


def test_probes_bring_a_broker_back() -> None:
    world = ClientWorld(brokers=2)
    client = {
        "send_latency_enable": True,
        "start_detector_enable": True,
        "detect_timeout": 1000,
    }
    producer = world.producer(client=client)
    for _ in range(8):
        world.wait(producer.send(Message("T", b"x")))
    factory = world.network._factories["192.0.2.2:10911"]
    world.network.kill("192.0.2.2:10911")
    for _ in range(8):
        assert world.wait(producer.send(Message("T", b"x"))).queue.broker_name == "broker-3"
    strategy = producer._sender.strategy
    assert not strategy.is_reachable("broker-2")
    world.network.skip(15)
    assert not strategy.is_reachable("broker-2")
    world.network.listen("192.0.2.2:10911", factory)
    world.network.skip(20)
    assert strategy.is_reachable("broker-2")
    used = {world.wait(producer.send(Message("T", b"x"))).queue.broker_name for _ in range(8)}
    assert used == {"broker-2", "broker-3"}
    world.wait(producer.stop())
