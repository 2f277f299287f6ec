"""Are handlers of all kinds called, and what do their answers mean?"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from received import queue, received
from twisted.internet.defer import Deferred, succeed
from twisted.logger import LogLevel, capturedLogs
from twisted.python.failure import Failure

from txrocketmq.client.consumer.handlers import (
    ConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    Handler,
    OrderlyContext,
    ReturnType,
    one_by_one,
)
from txrocketmq.errors import MQClientError
from txrocketmq.testing.pools import ManualPool

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER


def made(function: Any, pool: Any = None) -> Handler:
    return Handler(function, ConsumeConcurrentlyStatus, LATER, "group", pool)


def outcome(result: Any) -> Any:
    if isinstance(result, Deferred):
        found: list[Any] = []
        result.addBoth(found.append)
        return found[0]
    return result


async def as_coroutine(messages: object, context: object) -> ConsumeConcurrentlyStatus:
    return SUCCESS


@pytest.mark.parametrize(
    "function",
    [lambda messages, context: SUCCESS, as_coroutine, lambda m, c: succeed(SUCCESS)],
    ids=["plain", "coroutine", "deferred"],
)
def test_all_kinds_of_handlers_are_called_with_messages_and_context(function: Any) -> None:
    handler = made(function)
    assert outcome(handler.call([received(1)], ConcurrentlyContext(queue()))) is SUCCESS
    assert handler.judge(SUCCESS) == (SUCCESS, ReturnType.SUCCESS, "")


def test_an_asyncio_future_is_waited_for() -> None:
    loop = asyncio.new_event_loop()
    future: asyncio.Future[object] = loop.create_future()
    handler = made(lambda messages, context: future)
    found: list[Any] = []
    handler.call([], ConcurrentlyContext(queue())).addCallback(found.append)
    future.set_result(SUCCESS)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert found == [SUCCESS]


def test_a_handler_in_a_thread_is_run_by_the_pool() -> None:
    pool = ManualPool()
    seen: list[Any] = []

    def handle(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
        seen.append((messages, context.queue))
        return SUCCESS

    message = received(1)
    waiting = made(handle, pool).call([message], ConcurrentlyContext(queue()))
    assert not seen
    pool.run()
    assert outcome(waiting) is SUCCESS
    assert seen == [([message], queue())]


def test_a_coroutine_function_cannot_run_in_a_thread() -> None:
    with pytest.raises(MQClientError, match="in_thread is for plain functions"):
        made(as_coroutine, ManualPool())
    with pytest.raises(MQClientError, match="cannot be called"):
        made(None)


@pytest.mark.parametrize("answer", [None, True, ConsumeOrderlyStatus.SUCCESS, "CONSUME_SUCCESS"])
def test_any_other_answer_means_again_and_says_what_was_expected(answer: object) -> None:
    with capturedLogs() as events:
        status, return_type, fault = made(lambda m, c: answer).judge(answer)
    assert (status, return_type) == (LATER, ReturnType.RETURNNULL)
    assert repr(answer) in fault
    # What a program without logging shows, too.
    assert [(event["log_level"], event["fault"]) for event in events] == [
        (LogLevel.critical, fault)
    ]
    assert "expected ConsumeConcurrentlyStatus.CONSUME_SUCCESS or" in fault


def test_an_exception_means_again() -> None:
    def broken(messages: object, context: object) -> None:
        raise ValueError("what now")

    handler = made(broken)
    result = handler.call([], ConcurrentlyContext(queue()))
    assert isinstance(result, Failure)
    assert handler.judge(result) == (LATER, ReturnType.EXCEPTION, "ValueError: what now")
    orderly = Handler(
        broken,
        ConsumeOrderlyStatus,
        ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT,
        "group",
    )
    result = orderly.call([], OrderlyContext(queue()))
    assert orderly.judge(result)[0] is ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
    assert orderly.judge(ConsumeOrderlyStatus.ROLLBACK)[1] is ReturnType.FAILED
    assert orderly.judge(ConsumeOrderlyStatus.COMMIT)[1] is ReturnType.SUCCESS


class TestOneByOne:
    MESSAGES = tuple(received(number) for number in range(3))

    @pytest.mark.parametrize("wrap", [lambda x: x, succeed], ids=["plain", "deferred"])
    def test_all_are_handled_in_order(self, wrap: Any) -> None:
        seen: list[Any] = []

        def handle(message: Any) -> Any:
            seen.append(message)
            return wrap(SUCCESS)

        context = ConcurrentlyContext(queue())
        assert outcome(made(one_by_one(handle)).call(list(self.MESSAGES), context)) is SUCCESS
        assert seen == list(self.MESSAGES)
        assert context.ack_index is None

    @pytest.mark.parametrize("wrap", [lambda x: x, succeed], ids=["plain", "deferred"])
    def test_what_follows_a_failure_comes_again_with_it(self, wrap: Any) -> None:
        def handle(message: Any) -> Any:
            return wrap(LATER if message.queue_offset == 1 else SUCCESS)

        context = ConcurrentlyContext(queue())
        assert outcome(made(one_by_one(handle)).call(list(self.MESSAGES), context)) is SUCCESS
        assert context.ack_index == 0

    def test_a_first_failure_and_a_wrong_answer_are_passed_on(self) -> None:
        context = ConcurrentlyContext(queue())
        assert made(one_by_one(lambda m: LATER)).call(list(self.MESSAGES), context) is LATER
        assert made(one_by_one(lambda m: None)).call(list(self.MESSAGES), context) is None
