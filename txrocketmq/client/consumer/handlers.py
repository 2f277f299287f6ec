"""How is the application's handler called, and what does its answer mean?

Stands for ``MessageListenerConcurrently``, ``MessageListenerOrderly``, their contexts and statuses, and ``ConsumeReturnType``. A handler is
called with a list of messages and a context. It may be a plain function, a coroutine function, or return a Deferred or an asyncio
future; with ``in_thread`` it is a plain function that may block. Its result is a status of the right kind. Everything else, an
exception or None among it, means that the messages are consumed again later, and is told in the log.
"""

from __future__ import annotations

import asyncio
import enum
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.errors import MQClientError
from txrocketmq.interfaces import IBlockingPool
from txrocketmq.model.message import MessageExt, MessageQueue

log = Logger()


class ConsumeConcurrentlyStatus(enum.Enum):
    """What a handler says of its messages.

    CONSUME_SUCCESS: they are processed, up to the context's ``ack_index`` if it is set. RECONSUME_LATER: they shall come again.
    """

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class ConsumeOrderlyStatus(enum.Enum):
    """What an orderly handler says of its messages.

    SUCCESS: they are processed. SUSPEND_CURRENT_QUEUE_A_MOMENT: they shall come again, and nothing else of the queue before them.
    COMMIT and ROLLBACK are for contexts with ``auto_commit`` off: all since the last commit is processed, or shall come again.
    """

    SUCCESS = "SUCCESS"
    ROLLBACK = "ROLLBACK"
    COMMIT = "COMMIT"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


class ReturnType(enum.Enum):
    """How a call of a handler ended, for hooks and traces (official ``ConsumeReturnType``)."""

    SUCCESS = "SUCCESS"
    TIME_OUT = "TIME_OUT"
    EXCEPTION = "EXCEPTION"
    RETURNNULL = "RETURNNULL"
    FAILED = "FAILED"


class ConcurrentlyContext:
    """What a handler may know and say besides its result (official ``ConsumeConcurrentlyContext``).

    :ivar queue: where the messages come from.
    :ivar delay_level_when_next_consume: -1 gives failed messages up (dead letters), 0 leaves the delay to the broker, which makes it
        longer with each try, a positive number is a delay level.
    :ivar ack_index: with CONSUME_SUCCESS, the index of the last message that was processed; None for all.
    """

    __slots__ = ("_ack_index", "_delay_level", "queue")

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self._delay_level = 0
        self._ack_index: int | None = None

    @property
    def delay_level_when_next_consume(self) -> int:
        """See the class."""
        return self._delay_level

    @delay_level_when_next_consume.setter
    def delay_level_when_next_consume(self, level: int) -> None:
        self._delay_level = _number("delay_level_when_next_consume", level)

    @property
    def ack_index(self) -> int | None:
        """See the class."""
        return self._ack_index

    @ack_index.setter
    def ack_index(self, index: int | None) -> None:
        self._ack_index = None if index is None else _number("ack_index", index)


class OrderlyContext:
    """What an orderly handler may know and say besides its result (official ``ConsumeOrderlyContext``).

    :ivar queue: where the messages come from.
    :ivar auto_commit: False: only COMMIT moves the offset.
    :ivar suspend_current_queue_time_millis: how long the queue waits after SUSPEND or ROLLBACK; -1 as configured.
    """

    __slots__ = ("_suspend_ms", "auto_commit", "queue")

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.auto_commit = True
        self._suspend_ms = -1

    @property
    def suspend_current_queue_time_millis(self) -> int:
        """See the class."""
        return self._suspend_ms

    @suspend_current_queue_time_millis.setter
    def suspend_current_queue_time_millis(self, milliseconds: int) -> None:
        self._suspend_ms = _number("suspend_current_queue_time_millis", milliseconds)


def _number(name: str, value: object) -> int:
    """A value that a handler sets: what is none is its own fault, and told where it sets it."""
    if not isinstance(value, int) or not -(2**31) <= value < 2**31:
        raise MQClientError(
            f"{name} of a handler's context must be a number of 32 bits, not {_shown(value)}"
        )
    return value


def _shown(value: object) -> str:
    try:
        return f"{value!r:.200}"
    except Exception:
        return f"something of type {type(value).__name__}"


S = TypeVar("S", bound=enum.Enum)
Context = ConcurrentlyContext | OrderlyContext
HandlerFunction = Callable[[list[MessageExt], Any], Any]


class Handler:
    """Calls a handler, of whatever kind.

    :param status: the enum that it must answer with.
    :param failure_means: what stands for any other answer.
    :param pool: where to call it; in the reactor's thread when None.
    """

    def __init__(
        self,
        function: HandlerFunction,
        status: type[S],
        failure_means: S,
        group: str,
        pool: IBlockingPool | None = None,
    ) -> None:
        if not callable(function):
            raise MQClientError(f"the handler of group {group} cannot be called: {function!r}")
        if pool is not None and inspect.iscoroutinefunction(function):
            raise MQClientError(
                f"the handler of group {group} is a coroutine function, which runs in the reactor;"
                " in_thread is for plain functions"
            )
        self.function = function
        self.status: type[enum.Enum] = status
        self.in_thread = pool is not None
        self._failure_means: enum.Enum = failure_means
        self._group = group
        self._pool = pool

    def call(self, messages: list[MessageExt], context: Context) -> Any:
        """What the handler returned, a Failure of what it raised, or a Deferred of either."""
        if self._pool is not None:
            return self._pool.submit(self._call_in_thread, messages, context)
        try:
            result = self.function(messages, context)
        except BaseException:
            # As Twisted does with callbacks: an exit from within a handler would stop nothing but its queue.
            return Failure()  # type: ignore[no-untyped-call]
        if result.__class__ is self.status:
            return result
        if isinstance(result, Deferred):
            return result
        if inspect.iscoroutine(result):
            return Deferred.fromCoroutine(result)
        if isinstance(result, asyncio.Future):
            return Deferred.fromFuture(result)
        return result

    def _call_in_thread(self, messages: list[MessageExt], context: Context) -> Any:
        result = self.function(messages, context)
        if inspect.iscoroutine(result):
            result.close()
        if isinstance(result, Deferred) or inspect.isawaitable(result):
            raise MQClientError(
                f"the handler of group {self._group} returned a {type(result).__name__} in its thread, where nobody awaits it"
            )
        return result

    def judge(self, result: object) -> tuple[Any, ReturnType, str]:
        """The status that a result means, how the call ended, and what was wrong with it (empty: nothing). Logs faults."""
        if result.__class__ is self.status:
            assert isinstance(result, enum.Enum)
            is_good = result.name in ("CONSUME_SUCCESS", "SUCCESS", "COMMIT")
            return result, ReturnType.SUCCESS if is_good else ReturnType.FAILED, ""
        if isinstance(result, Failure):
            log.failure(
                "group {group}: the handler failed; its messages are consumed again",
                result,
                group=self._group,
            )
            return self._failure_means, ReturnType.EXCEPTION, short_text(result)
        wanted = " or ".join(f"{self.status.__name__}.{member.name}" for member in self.status)
        fault = f"the handler returned {_shown(result)}, expected {wanted}"
        # As loud as one that raised: a program without logging shows nothing less, and a forgotten return is the usual case.
        log.critical(
            "group {group}: {fault}; its messages are consumed again",
            group=self._group,
            fault=fault,
        )
        return self._failure_means, ReturnType.RETURNNULL, fault


def cancel_handler(answer: Deferred[Any]) -> None:
    """Cancel a handler; one that fails to be cancelled is told in the log, and harms no other."""
    try:
        answer.cancel()
    except Exception:
        log.failure("a handler could not be cancelled")


def short_text(failure: Failure) -> str:
    """A failure in one line, as official remarks have it."""
    return f"{type(failure.value).__name__}: {failure.getErrorMessage()}"


def one_by_one(handler: Callable[[MessageExt], Any]) -> HandlerFunction:
    """A handler of single messages, as one of lists: ``handler(message)`` returns a `ConsumeConcurrentlyStatus`, or a coroutine or
    Deferred of one. The messages of a list are handled in order; those behind the first that fails come again with it.
    """

    def handle(messages: list[MessageExt], context: ConcurrentlyContext) -> Any:
        for index, message in enumerate(messages):
            result = handler(message)
            if isinstance(result, Deferred) or inspect.isawaitable(result):
                return _go_on(handler, messages, context, index, result)
            if result is not ConsumeConcurrentlyStatus.CONSUME_SUCCESS:
                return _stopped_at(context, index, result)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    return handle


async def _go_on(
    handler: Callable[[MessageExt], Any],
    messages: list[MessageExt],
    context: ConcurrentlyContext,
    index: int,
    waiting: Any,
) -> object:
    while True:
        if isinstance(waiting, Deferred) or inspect.isawaitable(waiting):
            waiting = await waiting
        if waiting is not ConsumeConcurrentlyStatus.CONSUME_SUCCESS:
            return _stopped_at(context, index, waiting)
        index += 1
        if index == len(messages):
            return waiting
        waiting = handler(messages[index])


def _stopped_at(context: ConcurrentlyContext, index: int, result: object) -> object:
    if index == 0 or result is not ConsumeConcurrentlyStatus.RECONSUME_LATER:
        return result
    context.ack_index = index - 1
    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
