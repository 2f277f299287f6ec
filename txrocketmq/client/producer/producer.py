"""How does an application send? The producer: every way to send, as Deferreds that can be awaited.

Stands for the official ``DefaultMQProducer`` and ``TransactionMQProducer``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail, gatherResults
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocketmq.client.config import ClientConfig, check_class, chosen_client
from txrocketmq.client.hooks import ForbiddenHook
from txrocketmq.client.instance import ClientInstance, shared_instance
from txrocketmq.client.interfaces import IProducerRole, ISendHook
from txrocketmq.client.life import RoleService
from txrocketmq.client.offload import threads_of
from txrocketmq.client.periodic import Periodic
from txrocketmq.client.producer.accumulator import Accumulator
from txrocketmq.client.producer.config import ProducerConfig
from txrocketmq.client.producer.outgoing import (
    can_batch,
    check_batch,
    check_message,
    property_text,
    split_batch_messages,
)
from txrocketmq.client.producer.recall import parse_recall_handle
from txrocketmq.client.producer.sending import ONEWAY, QueueChoice, Sender, Sending
from txrocketmq.client.producer.transactions import (
    Check,
    LocalTransaction,
    Transaction,
    Transactions,
)
from txrocketmq.client.results import SendResult, TransactionSendResult
from txrocketmq.client.routes import PublishInfo
from txrocketmq.client.trace import (
    MAX_MESSAGE_BYTES,
    TRACE_GROUP_PREFIX,
    SendTraceHook,
    TraceDispatcher,
)
from txrocketmq.codec.headers import CheckTransactionStateRequestHeader, RecallMessageRequestHeader
from txrocketmq.errors import BrokerError, MQClientError, RocketMQError
from txrocketmq.model import properties as props
from txrocketmq.model.javahash import java_hash
from txrocketmq.model.message import Message, MessageExt, MessageQueue
from txrocketmq.model.names import group_fault
from txrocketmq.remoting.dispatch import RequestHook

log = Logger()

Selector = Callable[[list[MessageQueue], Message], MessageQueue]
"""Picks one of a topic's queues for a message."""

DETECT_FIRST_S = 3.0


class BatchPartError(MQClientError):
    """A batch had to be split, and a part of it failed.

    :ivar sent: results of the parts that are stored.
    :ivar rest: messages that are not known to be stored, in order.
    """

    def __init__(self, text: str, sent: list[SendResult], rest: list[Message]) -> None:
        super().__init__(text)
        self.sent = sent
        self.rest = rest


@implementer(IProducerRole)
class Producer(RoleService):
    """Sends messages in the name of a group; see `RoleService` for its life. Sends before its start are refused.

    All sends return a Deferred at once, which can be awaited, and cancelled. More than ``back_pressure_for_async_send_num`` of them in
    flight wait for their turn; `when_free` tells a caller when to go on.

    :param reactor: connects, and is the clock.
    :param group: the producer group.
    :param client: settings of the client; by itself a client of its own.
    :param settings: settings of the producer.
    :param namesrv_addr: short for ``client=ClientConfig(namesrv_addr=...)``.
    :param instance: share this one instead of the reactor's for the client id.
    :param check: says what became of a transaction when a broker asks (plain, coroutine function, or returning a Deferred).
    :param hooks: see every request, for signatures (official ``RPCHook``); only where the client instance is made here.
    :ivar result_hooks: nothing of a send is lost to them: see `add_send_hook`.
    """

    def __init__(
        self,
        reactor: Any,
        group: str,
        client: ClientConfig | None = None,
        settings: ProducerConfig | None = None,
        *,
        namesrv_addr: str = "",
        instance: ClientInstance | None = None,
        check: Check | None = None,
        hooks: Sequence[RequestHook] = (),
    ) -> None:
        fault = group_fault(group)
        if fault is not None:
            raise MQClientError(fault)
        super().__init__(f"producer {group}")
        client = chosen_client(client, namesrv_addr)
        self._reactor = reactor
        self.instance = instance or shared_instance(reactor, client, hooks)
        self.config = self.instance.config
        self.settings = ProducerConfig() if settings is None else settings
        check_class("settings", self.settings, ProducerConfig)
        self.group = self.config.with_namespace(group)
        self._sender = Sender(self.instance, self.group, self.settings, threads_of(reactor))
        self._accumulator = (
            Accumulator(
                self.instance.clock,
                self._send_collected,
                self.settings.batch_max_delay_ms / 1000,
                self.settings.batch_max_bytes,
                self.settings.total_batch_max_bytes,
            )
            if self.settings.auto_batch
            else None
        )
        self._transactions = Transactions(self._sender, self.send, check)
        self._topics: set[str] = set()
        self._introduced: set[str | None] = set()
        self._tracing: Tracing | None = None
        self._detector = Periodic(
            self.instance.clock,
            "probing of avoided brokers",
            self.config.detect_interval / 1000,
            self._probe,
            DETECT_FIRST_S,
        )

    # ----------------------------------------------------------------- life

    async def _enter(self) -> None:
        await self.instance.acquire()
        try:
            self.instance.register_producer(self.group, self)
        except Exception:
            await self.instance.release()
            raise

    async def _settle(self) -> None:
        if self.config.send_latency_enable and self.config.start_detector_enable:
            self._detector.start()
        if self.config.enable_trace and not self.group.startswith(TRACE_GROUP_PREFIX):
            tracing = await begin_tracing(self._reactor, self.instance, self.group, PRODUCE)
            self._tracing = tracing
            if tracing is not None:
                self._transactions.tracer = tracing.dispatcher
                self.add_send_hook(SendTraceHook(tracing.dispatcher, self._sender.now_ms))

    async def _leave(self) -> None:
        try:
            if self._accumulator is not None:
                self._accumulator.flush()
            self._detector.stop()
            self._transactions.stop()
            await self._when_idle()
            if self._tracing is not None:
                await self._tracing.stop()
            await self.instance.unregister_producer(self.group)
        finally:
            await self.instance.release()

    def _when_idle(self) -> Deferred[None]:
        """Fires when nothing is in flight; the time-outs of the sends bound it."""
        done: Deferred[None] = Deferred()
        self._sender.permits.call_when_idle(lambda: done.callback(None))
        return done

    # ----------------------------------------------------------------- sending

    def send(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Deferred[SendResult]:
        """Send one message.

        :param queue: to this queue and no other, with one try; else to the next one in turn, with retries.
        :param timeout_ms: for all tries together, counted from when it is this message's turn.

        Fails with `MQClientError` (illegal, too large), `NoRouteError`, `BrokerError` (refused, and no use to try again),
        `SendFailedError` (all tries failed), with a queue also `RemotingError`. Cancelling does not take a message back that is on
        its way.
        """
        try:
            self._check(message)
            if self._accumulator is not None:
                # Whose properties cannot be written must not take others with it.
                property_text(message.properties)
        except MQClientError:
            return fail()
        # One with a time-out of its own does not wait for others.
        if self._accumulator is not None and timeout_ms is None and can_batch(message):
            collected = self._accumulator.add(message, queue)
            if collected is not None:
                return collected
        choice = None if queue is None else _fixed(queue)
        return Sending(
            self._sender, message, timeout_ms or self.settings.send_msg_timeout, choice=choice
        ).start()

    def send_oneway(self, message: Message, queue: MessageQueue | None = None) -> Deferred[None]:
        """Send without an answer; fires when the bytes were handed to a connection. Nobody learns whether it was stored."""
        try:
            self._check(message)
        except MQClientError:
            return fail()
        choice = None if queue is None else _fixed(queue)
        return Sending(
            self._sender, message, self.settings.send_msg_timeout, choice=choice, mode=ONEWAY
        ).start()

    def send_by(
        self, message: Message, selector: Selector, *, timeout_ms: int | None = None
    ) -> Deferred[SendResult]:
        """Send to the queue that ``selector(queues, message)`` picks, with one try: a second one could go elsewhere."""
        try:
            self._check(message)
        except MQClientError:
            return fail()

        def choice(info: PublishInfo) -> MessageQueue:
            queues = info.queues
            if self.config.namespace:
                queues = [
                    MessageQueue(
                        topic=message.topic, broker_name=item.broker_name, queue_id=item.queue_id
                    )
                    for item in queues
                ]
            queue = selector(list(queues), message)
            if not isinstance(queue, MessageQueue):
                raise MQClientError(f"the selector must return a queue, not {queue!r}")
            return queue

        return Sending(
            self._sender, message, timeout_ms or self.settings.send_msg_timeout, choice=choice
        ).start()

    def send_ordered(
        self, message: Message, key: str, *, timeout_ms: int | None = None
    ) -> Deferred[SendResult]:
        """Send to the queue that belongs to a key (official ``SelectMessageQueueByHash`` of a string)."""
        return self.send_by(
            message,
            lambda queues, _: queues[_hash_index(key, len(queues))],
            timeout_ms=timeout_ms,
        )

    def send_batch(
        self,
        messages: Iterable[Message],
        queue: MessageQueue | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Deferred[list[SendResult]]:
        """Send messages of one topic together, in as few requests as their size allows; a Deferred of the requests' results.

        Fails as `send`, with `BatchPartError` when some parts are stored already.
        """
        return Deferred.fromCoroutine(self._send_batch(list(messages), queue, timeout_ms))

    async def _send_batch(
        self, messages: list[Message], queue: MessageQueue | None, timeout_ms: int | None
    ) -> list[SendResult]:
        check_batch(messages)
        for message in messages:
            self._check(message)
        parts = split_batch_messages(messages, self.settings.max_message_size)
        results: list[SendResult] = []
        for number, part in enumerate(parts):
            try:
                results.append(await self._send_part(part, queue, timeout_ms))
            except RocketMQError as error:
                if not results:
                    raise
                rest = [message for later in parts[number:] for message in later]
                raise BatchPartError(
                    f"part {number + 1} of {len(parts)} of a batch for topic "
                    f"{messages[0].topic} failed, {len(messages) - len(rest)} messages are "
                    f"stored: {error}",
                    results,
                    rest,
                ) from error
        return results

    def _send_part(
        self,
        messages: list[Message],
        queue: MessageQueue | None,
        timeout_ms: int | None = None,
    ) -> Deferred[SendResult]:
        return Sending(
            self._sender,
            messages[0],
            timeout_ms or self.settings.send_msg_timeout,
            choice=None if queue is None else _fixed(queue),
            messages=messages,
        ).start()

    def _send_collected(
        self, messages: list[Message], queue: MessageQueue | None
    ) -> Deferred[SendResult]:
        return self._send_part(messages, queue)

    def _check_running(self) -> None:
        """Refuse what would ask servers through connections that nobody closes."""
        if self._state != "running":
            raise MQClientError(f"producer {self.group} is not started")
        self._check_thread()

    def _check(self, message: Message) -> None:
        self._check_running()
        check_message(message, self.settings.max_message_size)
        self._topics.add(message.topic)

    # ----------------------------------------------------------------- flow control

    def when_free(self) -> Deferred[None]:
        """Fires as soon as a send would go at once; who sends much without waiting for results waits here."""
        permits = self._sender.permits
        done: Deferred[None] = Deferred(lambda _: permits.do_not_call(free))

        def free() -> None:
            # What another one does who is told may have cancelled this one.
            if not done.called:
                done.callback(None)

        permits.call_when_free(free)
        return done

    @property
    def in_flight(self) -> int:
        """Sends without an answer yet."""
        return self._sender.permits.count

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of their bodies."""
        return self._sender.permits.size

    @property
    def most_in_flight(self) -> tuple[int, int]:
        """The most sends, and the most bytes, that ever were in flight."""
        return self._sender.permits.most_count, self._sender.permits.most_size

    # ----------------------------------------------------------------- transactions

    def send_in_transaction(
        self, message: Message, local: LocalTransaction, arg: Any = None
    ) -> Deferred[TransactionSendResult]:
        """Send a half message, run ``local(message, arg)``, tell the broker its verdict (a `LocalTransactionState`).

        ``local`` may be a plain or a coroutine function, or return a Deferred. When it raises, the broker is left to ask, and the
        error is this Deferred's.
        """
        return Deferred.fromCoroutine(self._transactions.run(message, local, arg))

    def transaction(self, message: Message) -> Transaction:
        """``async with producer.transaction(message) as tx``: commit on leaving the block, rollback when it raises."""
        return Transaction(self._transactions, message)

    def check_transaction(
        self, message: MessageExt, header: CheckTransactionStateRequestHeader, address: str
    ) -> None:
        """See `IProducerRole.check_transaction`."""
        if self.config.namespace:
            message.topic = self.config.without_namespace(message.topic)
        self._transactions.answer_check(message, header, address)

    # ----------------------------------------------------------------- request and reply

    def request(self, message: Message, *, timeout_ms: int) -> Deferred[MessageExt]:
        """Send a message and wait for a consumer's reply to it.

        :param timeout_ms: for both together. Fails as `send`, and with `RequestTimeoutError` when no reply came.
        """
        return Deferred.fromCoroutine(self._request(message, timeout_ms))

    async def _request(self, message: Message, timeout_ms: int) -> MessageExt:
        self._check(message)
        correlation_id = str(uuid.uuid4())
        properties = message.properties
        properties[props.CORRELATION_ID] = correlation_id
        properties[props.MESSAGE_REPLY_TO_CLIENT] = self.instance.client_id
        properties[props.MESSAGE_TTL] = str(timeout_ms)
        info = await self._sender.find(self.config.with_namespace(message.topic))
        masters = {self.instance.routes.master_address(name) for name in info.brokers}
        unknown = masters - self._introduced - {None}
        if unknown:
            # The broker that stores the message must know this producer, or it cannot pass the reply on.
            await self.instance.heartbeats.send_all(str(address) for address in unknown)
            self._introduced |= unknown
        reply = self.instance.replies.wait_for(correlation_id, timeout_ms)
        try:
            await self.send(message, timeout_ms=timeout_ms)
        except BaseException:
            reply.addErrback(lambda _: None)
            reply.cancel()
            raise
        return await reply

    # ----------------------------------------------------------------- recall

    def recall(self, topic: str, handle: str) -> Deferred[str]:
        """Take back a timed message that is not delivered yet (5.x brokers).

        :param handle: `SendResult.recall_handle`.

        A Deferred of the message's unique id; fails with `MQClientError` for a handle that is none, `BrokerError` when the broker
        does not recall it.
        """
        return Deferred.fromCoroutine(self._recall(topic, handle))

    async def _recall(self, topic: str, handle: str) -> str:
        self._check_running()
        broker_name = parse_recall_handle(handle).broker_name
        wire_topic = self.config.with_namespace(topic)
        address = self.instance.routes.master_address(broker_name)
        if address is None:
            await self._sender.find(wire_topic)
            address = self.instance.routes.master_address(broker_name)
        if address is None:
            raise MQClientError(f"no master of broker {broker_name} is known")
        header = RecallMessageRequestHeader(
            producer_group=self.group,
            topic=wire_topic,
            recall_handle=handle,
            broker_name=broker_name,
        )
        return await self.instance.api.recall_message(address, header)

    # ----------------------------------------------------------------- hooks and queues

    def add_send_hook(self, hook: ISendHook) -> None:
        """Have a hook see every try of every send from now on."""
        self._sender.hooks.append(hook)

    def add_forbidden_hook(self, hook: ForbiddenHook) -> None:
        """Have a hook decide, by raising `MQClientError`, whether a message may be sent."""
        self._sender.forbidden_hooks.append(hook)

    def publish_queues(self, topic: str) -> Deferred[list[MessageQueue]]:
        """The queues of a topic that may be sent to."""

        async def look() -> list[MessageQueue]:
            self._check_running()
            info = await self._sender.find(self.config.with_namespace(topic))
            return [
                MessageQueue(topic=topic, broker_name=item.broker_name, queue_id=item.queue_id)
                for item in info.queues
            ]

        return Deferred.fromCoroutine(look())

    def publish_topics(self) -> Iterable[str]:
        """See `IProducerRole.publish_topics`."""
        return [self.config.with_namespace(topic) for topic in self._topics]

    # ----------------------------------------------------------------- avoided brokers

    def _probe(self) -> Deferred[None]:
        strategy, instance = self._sender.strategy, self.instance
        probing = []
        for name in strategy.due_for_probe(self.config.detect_interval / 1000):
            address = instance.routes.master_address(name)
            if address is None:
                strategy.probed(name, None)
                continue
            topic = next(
                (t for t, info in instance.routes.publish.items() if name in info.brokers), ""
            )
            queue = MessageQueue(topic=topic, broker_name=name, queue_id=0)
            asked: Deferred[Any] = instance.api.max_offset(
                address, queue, self.config.detect_timeout
            )
            # Any answer, also one that refuses, tells that the broker is there; a time-out does not.
            asked.addErrback(_unless_refused)
            asked.addCallbacks(
                lambda _, n=name: strategy.probed(n, True),
                lambda _, n=name: strategy.probed(n, False),
            )
            probing.append(asked)
        return gatherResults(probing).addCallback(lambda _: None)


PRODUCE = "PRODUCE"
CONSUME = "CONSUME"


class Tracing:
    """Traces of one producer or consumer: a dispatcher, and a producer that sends for it through the same client.

    :param kind: `PRODUCE` or `CONSUME`.
    :ivar dispatcher: takes records while this runs.
    """

    def __init__(self, reactor: Any, instance: ClientInstance, group: str, kind: str) -> None:
        self._producer = Producer(
            reactor,
            f"{TRACE_GROUP_PREFIX}-{group}-{kind}",
            settings=ProducerConfig(send_msg_timeout=5000, max_message_size=MAX_MESSAGE_BYTES * 2),
            instance=instance,
        )
        config = instance.config
        self.dispatcher = TraceDispatcher(
            instance.clock,
            self._producer.send,
            config.trace_topic,
            config.trace_msg_batch_num,
            config.without_namespace,
        )

    async def start(self) -> None:
        """Begin."""
        await self._producer.start()
        self.dispatcher.start()

    async def stop(self) -> None:
        """Send what waits, and end."""
        await self.dispatcher.stop()
        await self._producer.stop()


async def begin_tracing(
    reactor: Any, instance: ClientInstance, group: str, kind: str
) -> Tracing | None:
    """Traces of a producer or consumer, begun; None, with a line in the log, where there can be none, as with a very long group name."""
    try:
        tracing = Tracing(reactor, instance, group, kind)
        await tracing.start()
    except MQClientError as error:
        log.warn("group {group} leaves no traces: {error}", group=group, error=error)
        return None
    return tracing


def _unless_refused(failure: Failure) -> None:
    failure.trap(BrokerError)  # type: ignore[no-untyped-call]


def _fixed(queue: MessageQueue) -> QueueChoice:
    return lambda info: queue


def _hash_index(key: str, count: int) -> int:
    # The official remainder has the sign of the hash, and is made positive then.
    return abs(java_hash(key)) % count
