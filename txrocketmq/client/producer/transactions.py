"""What becomes of a half message? The local transaction, its verdict, and the broker's questions about it.

Stands for ``sendMessageInTransaction``, ``endTransaction`` and ``checkTransactionState`` of the official ``DefaultMQProducerImpl``. The verdict
is a oneway request: when it gets lost, the broker asks, and is told the verdict that is remembered here, or what the listener says.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.client.results import (
    LocalTransactionState,
    SendResult,
    SendStatus,
    TransactionSendResult,
)
from txrocketmq.client.trace import TraceDispatcher, end_transaction_record
from txrocketmq.codec.headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from txrocketmq.errors import MQClientError, RocketMQError
from txrocketmq.model import properties as props
from txrocketmq.model.flags import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from txrocketmq.model.message import Message, MessageExt
from txrocketmq.model.message_id import parse_offset_message_id

if TYPE_CHECKING:
    from txrocketmq.client.producer.sending import Sender

log = Logger()

MAX_REMEMBERED = 10_000
"""Verdicts kept for questions that come although the verdict was sent."""

Verdict = LocalTransactionState | Awaitable[LocalTransactionState]
LocalTransaction = Callable[[Message, Any], Verdict]
Check = Callable[[MessageExt], Verdict]
Question = tuple[CheckTransactionStateRequestHeader, str]
"""What a broker asks, and its address."""

_BITS = {
    LocalTransactionState.COMMIT_MESSAGE: TRANSACTION_COMMIT_TYPE,
    LocalTransactionState.ROLLBACK_MESSAGE: TRANSACTION_ROLLBACK_TYPE,
    LocalTransactionState.UNKNOW: TRANSACTION_NOT_TYPE,
}


def call(function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
    """Call a plain function, one that returns a Deferred, or a coroutine function; a Deferred of what it says."""
    return maybeDeferred(function, *arguments)


def as_state(value: object) -> LocalTransactionState:
    """A verdict; anything that is none is told in the log and counts as UNKNOW."""
    if isinstance(value, LocalTransactionState):
        return value
    log.warn(
        "a transaction's verdict is {value!r}, not a LocalTransactionState; the broker will ask",
        value=value,
    )
    return LocalTransactionState.UNKNOW


class Transactions:
    """The transactions of one producer.

    :param send: sends a half message.
    :param check: asked for the verdict of a transaction that is not remembered here; None: UNKNOW.
    """

    def __init__(
        self,
        sender: Sender,
        send: Callable[[Message], Deferred[SendResult]],
        check: Check | None,
    ) -> None:
        self._sender = sender
        self._send = send
        self.check = check
        self.tracer: TraceDispatcher | None = None
        """Gets a record of each verdict, where there is one."""
        self._remembered: OrderedDict[str, LocalTransactionState] = OrderedDict()
        self._asking: set[Deferred[Any]] = set()
        # The newest question about each transaction whose check has not answered yet.
        self._questions: dict[str, Question] = {}
        self._is_stopped = False

    async def begin(self, message: Message) -> SendResult:
        """Send the half message.

        :raises MQClientError: as a send does; then there is no transaction.
        """
        properties = message.properties
        # Delays are not for half messages.
        for name in (
            props.DELAY_TIME_LEVEL,
            props.TIMER_DELAY_MS,
            props.TIMER_DELAY_SEC,
            props.TIMER_DELIVER_MS,
        ):
            properties.pop(name, None)
        properties[props.TRANSACTION_PREPARED] = "true"
        properties[props.PRODUCER_GROUP] = self._sender.group
        return await self._send(message)

    async def run(
        self, message: Message, local: LocalTransaction, arg: Any
    ) -> TransactionSendResult:
        """Half message, local transaction, verdict.

        :raises MQClientError: the half message could not be sent; the local transaction did not run. An error of the local
            transaction makes the verdict UNKNOW and is raised afterwards.
        """
        result = await self.begin(message)
        state = LocalTransactionState.ROLLBACK_MESSAGE
        if result.status is SendStatus.SEND_OK:
            try:
                state = as_state(await call(local, message, arg))
            except BaseException:
                await self.end(result, LocalTransactionState.UNKNOW, message)
                raise
        await self.end(result, state, message)
        return TransactionSendResult(result, state)

    async def end(self, result: SendResult, state: LocalTransactionState, message: Message) -> None:
        """Tell the verdict; that it cannot be told is logged, the broker asks then."""
        if state is not LocalTransactionState.UNKNOW:
            self._remember(result.msg_id, state)
        try:
            physical_offset = parse_offset_message_id(result.offset_msg_id or result.msg_id)[2]
        except RocketMQError as error:
            self._not_told(result.msg_id, error)
            return
        queue = result.queue
        address = self._sender.address_of(queue.broker_name)
        header = EndTransactionRequestHeader(
            topic=self._sender.config.with_namespace(queue.topic),
            producer_group=self._sender.group,
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=physical_offset,
            commit_or_rollback=_BITS[state],
            from_transaction_check=False,
            msg_id=result.msg_id,
            transaction_id=result.transaction_id,
            broker_name=queue.broker_name,
        )
        await self._tell(address, header, message, state)

    async def _tell(
        self,
        address: str | None,
        header: EndTransactionRequestHeader,
        message: Message | MessageExt,
        state: LocalTransactionState,
    ) -> None:
        if self.tracer is not None:
            self.tracer.append(
                end_transaction_record(
                    message,
                    now_ms=self._sender.now_ms(),
                    group=self._sender.group,
                    address=address or "",
                    msg_id=header.msg_id,
                    transaction_id=header.transaction_id,
                    state=state.value,
                    from_check=header.from_transaction_check,
                )
            )
        try:
            if address is None:
                raise MQClientError(f"no master of broker {header.broker_name} is known")
            await self._sender.instance.api.end_transaction(address, header)
        except CancelledError:
            raise
        except Exception as error:
            self._not_told(header.msg_id, error)

    def _not_told(self, msg_id: str, error: Exception) -> None:
        log.warn(
            "the end of transaction {id} could not be told, the broker will ask: {error}",
            id=msg_id,
            error=error,
        )

    def _remember(self, msg_id: str, state: LocalTransactionState) -> None:
        remembered = self._remembered
        remembered[msg_id] = state
        if len(remembered) > MAX_REMEMBERED:
            remembered.popitem(last=False)

    # ----------------------------------------------------------------- questions of brokers

    def answer_check(
        self, message: MessageExt, header: CheckTransactionStateRequestHeader, address: str
    ) -> None:
        """A broker asks; the verdict goes back when it is known, once, to the last one who asked: each question is about a new copy of the
        half message, and two verdicts would bring the message twice."""
        msg_id = message.uniq_key or message.msg_id
        if self._is_stopped:
            return
        is_asked = msg_id in self._questions
        self._questions[msg_id] = (header, address)
        if is_asked:
            return
        answering = Deferred.fromCoroutine(self._answer(message, msg_id))
        self._asking.add(answering)

        def done(outcome: object) -> None:
            self._asking.discard(answering)
            # One that is given up at the stop is no fault: the broker asks again.
            if isinstance(outcome, Failure) and not isinstance(outcome.value, CancelledError):
                log.failure("a check of a transaction failed", outcome)

        answering.addBoth(done)

    async def _answer(self, message: MessageExt, msg_id: str) -> None:
        try:
            state = await self._verdict(message, msg_id)
        finally:
            # Told even when the check itself stopped the producer.
            header, address = self._questions.pop(msg_id)
        answer = EndTransactionRequestHeader(
            topic=message.topic,
            producer_group=self._sender.group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=_BITS[state],
            from_transaction_check=True,
            msg_id=msg_id,
            transaction_id=header.transaction_id,
            broker_name=header.broker_name,
        )
        await self._tell(address, answer, message, state)

    async def _verdict(self, message: MessageExt, msg_id: str) -> LocalTransactionState:
        """What is remembered, else what the check says."""
        state = self._remembered.get(msg_id, LocalTransactionState.UNKNOW)
        if state is LocalTransactionState.UNKNOW and self.check is not None:
            try:
                state = as_state(await call(self.check, message))
            except CancelledError:
                raise
            except Exception:
                log.failure("the check of transaction {id} failed", id=msg_id)
        return state

    def stop(self) -> None:
        """Give up checks that go on, and begin no other."""
        self._is_stopped = True
        for answering in list(self._asking):
            answering.cancel()


class Transaction:
    """``async with producer.transaction(message) as tx``: the half message goes on entering, the verdict on leaving: commit, or
    rollback when the block raises.

    :ivar result: where the half message is.
    :ivar state: the verdict; `rollback` and `leave_open` change it.
    """

    def __init__(self, transactions: Transactions, message: Message) -> None:
        self._transactions = transactions
        self._message = message
        self.result: SendResult | None = None
        self.state = LocalTransactionState.COMMIT_MESSAGE

    @property
    def transaction_id(self) -> str:
        """The message's unique id."""
        return self._message.uniq_key or ""

    def rollback(self) -> None:
        """Leave the block without an error, but let nobody see the message."""
        self.state = LocalTransactionState.ROLLBACK_MESSAGE

    def leave_open(self) -> None:
        """Say nothing: the broker asks later."""
        self.state = LocalTransactionState.UNKNOW

    async def __aenter__(self) -> Transaction:
        self.result = await self._transactions.begin(self._message)
        if self.result.status is not SendStatus.SEND_OK:
            state = LocalTransactionState.ROLLBACK_MESSAGE
            await self._transactions.end(self.result, state, self._message)
            raise MQClientError(
                f"the half message for topic {self._message.topic} is not safe "
                f"({self.result.status.value}), the transaction is rolled back"
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self.result is not None
        if error is not None:
            self.state = LocalTransactionState.ROLLBACK_MESSAGE
        await self._transactions.end(self.result, self.state, self._message)
