"""Transactions of our producer with brokers of ours in memory: verdicts, checks, what gets lost."""

from __future__ import annotations

from typing import Any

import pytest
from client_world import ClientWorld
from twisted.internet.defer import Deferred, succeed
from twisted.logger import capturedLogs

from txrocketmq.client.results import LocalTransactionState, SendStatus
from txrocketmq.errors import MQClientError
from txrocketmq.model import properties as props
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.message import Message

COMMIT = LocalTransactionState.COMMIT_MESSAGE
ROLLBACK = LocalTransactionState.ROLLBACK_MESSAGE
UNKNOW = LocalTransactionState.UNKNOW


@pytest.fixture
def world() -> ClientWorld:
    # Checks begin after a second, and come each second.
    return ClientWorld(transaction_time_out=1000, transaction_check_interval=1000)


def bodies(world: ClientWorld, topic: str = "TopicTest") -> list[bytes]:
    world.network.run(0.3)
    return [body for _, _, body, _ in world.stored(topic)]


@pytest.mark.parametrize("kind", ["plain", "coroutine", "deferred"])
def test_a_verdict_of_commit_shows_the_message(world: ClientWorld, kind: str) -> None:
    producer = world.producer()
    seen: list[Any] = []

    def plain(message: Message, arg: Any) -> LocalTransactionState:
        seen.append((message.uniq_key, arg, bodies(world)))
        return COMMIT

    async def coroutine(message: Message, arg: Any) -> LocalTransactionState:
        return COMMIT

    def deferred(message: Message, arg: Any) -> Deferred[LocalTransactionState]:
        return succeed(COMMIT)

    local: Any = {"plain": plain, "coroutine": coroutine, "deferred": deferred}[kind]
    message = Message("TopicTest", b"x")
    message.delay_time_level = 3
    outcome = world.wait(producer.send_in_transaction(message, local, "arg"))
    assert outcome.state is COMMIT
    assert outcome.send_result.status is SendStatus.SEND_OK
    assert outcome.send_result.transaction_id == message.uniq_key
    assert bodies(world) == [b"x"]
    if kind == "plain":
        assert seen == [(message.uniq_key, "arg", [])]


def test_a_rollback_shows_nothing(world: ClientWorld) -> None:
    producer = world.producer()
    local = lambda message, arg: ROLLBACK  # noqa: E731
    assert (
        world.wait(producer.send_in_transaction(Message("TopicTest", b"x"), local)).state
        is ROLLBACK
    )
    world.network.run(5)
    assert bodies(world) == []


def test_an_open_verdict_is_asked_for(world: ClientWorld) -> None:
    asked: list[Any] = []

    def check(message: Any) -> LocalTransactionState:
        asked.append((message.body, message.properties[props.UNIQ_KEY]))
        return UNKNOW if len(asked) == 1 else COMMIT

    producer = world.producer(check=check)
    message = Message("TopicTest", b"x")
    world.wait(producer.send_in_transaction(message, lambda m, a: UNKNOW))
    world.network.run(20)
    assert asked == [(b"x", message.uniq_key)] * 2
    assert bodies(world) == [b"x"]


def test_a_check_that_takes_long_is_asked_once_and_answers_once(world: ClientWorld) -> None:
    asked: list[Deferred[LocalTransactionState]] = []
    verdicts: list[int] = []
    table = world.brokers[2].dispatcher._table
    handler, *rest = table[int(RequestCode.END_TRANSACTION)]

    def note(request: Any) -> Any:
        verdicts.append(request.header.tran_state_table_offset)
        return handler(request)

    table[int(RequestCode.END_TRANSACTION)] = (note, *rest)

    def check(message: Any) -> Deferred[LocalTransactionState]:
        asked.append(Deferred())
        return asked[-1]

    producer = world.producer(check=check)
    world.wait(producer.send_in_transaction(Message("TopicTest", b"x"), lambda m, a: UNKNOW))
    world.network.run(6)
    assert len(asked) == 1
    before = len(verdicts)
    asked[0].callback(COMMIT)
    world.network.run(6)
    # It is about the copy that was asked for last.
    assert len(verdicts) == before + 1
    assert verdicts[-1] > 1
    assert (bodies(world), len(asked)) == ([b"x"], 1)
    world.wait(producer.send_in_transaction(Message("TopicTest", b"y"), lambda m, a: UNKNOW))
    world.network.run(3)
    assert len(asked) == 2
    asked[1].callback(UNKNOW)
    world.network.run(3)
    assert len(asked) == 3
    world.wait(producer.stop())


def test_a_check_sees_the_body_as_it_was_sent(world: ClientWorld) -> None:
    asked: list[bytes] = []

    def check(message: Any) -> LocalTransactionState:
        asked.append(message.body)
        return COMMIT

    producer = world.producer(check=check)
    message = Message("TopicTest", b"large" * 2000)
    world.wait(producer.send_in_transaction(message, lambda m, a: UNKNOW))
    world.network.run(10)
    assert len(bodies(world)[0]) < 200  # it was compressed
    assert asked == [b"large" * 2000]


def test_an_error_of_the_local_transaction_is_raised_and_the_broker_asks(
    world: ClientWorld,
) -> None:
    async def check(message: Any) -> LocalTransactionState:
        return COMMIT

    producer = world.producer(check=check)
    with pytest.raises(ZeroDivisionError):
        world.wait(producer.send_in_transaction(Message("TopicTest", b"x"), lambda m, a: 1 // 0))  # type: ignore[arg-type,return-value]
    world.network.run(20)
    assert bodies(world) == [b"x"]


def test_a_check_that_is_open_at_the_stop_is_no_fault(world: ClientWorld) -> None:
    asked: list[Deferred[Any]] = []

    def check(message: Any) -> Deferred[Any]:
        asked.append(Deferred())
        return asked[-1]

    producer = world.producer(check=check)
    world.wait(producer.send_in_transaction(Message("TopicTest", b"x"), lambda m, a: UNKNOW))
    world.network.run(5)
    assert asked
    with capturedLogs() as events:
        world.wait(producer.stop())
    assert [event for event in events if "log_failure" in event] == []


def test_the_verdict_of_a_check_that_stops_the_producer_is_told(world: ClientWorld) -> None:
    """As a program does that waits for its last open transaction."""
    stopped: list[Deferred[None]] = []

    def check(message: Any) -> LocalTransactionState:
        stopped.append(producer.stop())
        return COMMIT

    producer = world.producer(check=check)
    world.wait(producer.send_in_transaction(Message("TopicTest", b"x"), lambda m, a: UNKNOW))
    world.network.run(5)
    assert len(stopped) == 1
    world.wait(stopped[0])
    assert bodies(world) == [b"x"]


def test_a_verdict_that_is_none_counts_as_unknown(world: ClientWorld) -> None:
    producer = world.producer(check=lambda message: ROLLBACK)
    outcome = world.wait(
        producer.send_in_transaction(Message("TopicTest", b"x"), lambda m, a: "commit")
    )  # type: ignore[arg-type,return-value]
    assert outcome.state is UNKNOW


def test_a_block_commits_or_rolls_back(world: ClientWorld) -> None:
    producer = world.producer()

    async def run() -> None:
        async with producer.transaction(Message("TopicTest", b"good")) as tx:
            assert tx.transaction_id
            assert tx.result is not None
        with pytest.raises(KeyError):
            async with producer.transaction(Message("TopicTest", b"bad")):
                raise KeyError("no")
        async with producer.transaction(Message("TopicTest", b"undone")) as tx:
            tx.rollback()

    world.wait(run())
    world.network.run(5)
    assert bodies(world) == [b"good"]


def test_a_lost_verdict_is_remembered(world: ClientWorld) -> None:
    """END_TRANSACTION is oneway: when it gets lost, the check is answered without a listener."""
    producer = world.producer()
    table = world.brokers[2].dispatcher._table
    handler, *rest = table[37]
    lost: list[Any] = []

    def lose_first(request: Any) -> Any:
        if not lost:
            return lost.append(request)
        return handler(request)

    table[37] = (lose_first, *rest)

    async def run() -> None:
        async with producer.transaction(Message("TopicTest", b"x")):
            pass

    world.wait(run())
    assert bodies(world) == []
    world.network.run(20)
    assert len(lost) == 1
    assert bodies(world) == [b"x"]


def test_a_half_message_that_is_not_safe_is_rolled_back(world: ClientWorld) -> None:
    producer = world.producer()
    table = world.brokers[2].dispatcher._table
    handler, *rest = table[310]

    def serve(request: Any) -> Any:
        reply = handler(request)
        reply.code = 10
        return reply

    table[310] = (serve, *rest)
    ran: list[Any] = []
    outcome = world.wait(
        producer.send_in_transaction(
            Message("TopicTest", b"x"), lambda m, a: ran.append(m) or COMMIT
        )  # type: ignore[func-returns-value]
    )
    assert (outcome.state, ran) == (ROLLBACK, [])

    async def run() -> None:
        async with producer.transaction(Message("TopicTest", b"x")):
            ran.append("x")

    with pytest.raises(MQClientError, match="rolled back"):
        world.wait(run())
    world.network.run(5)
    assert (bodies(world), ran) == ([], [])
