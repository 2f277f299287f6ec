"""How does a message get to a broker, and to which one if the first does not take it? One send with all its tries.

Stands for ``sendDefaultImpl``, ``sendKernelImpl`` and ``sendSelectImpl`` of the official ``DefaultMQProducerImpl`` and for ``onExceptionImpl`` of
``MQClientAPIImpl``::

    waiting for a permit --> preparing --> looking for the route --> asking --answer--> stored: done
                                                  ^                    |--error that may be repeated, tries and time are left: again,
                                                  `--------------------'  at another broker if there is one
                                                                       `--anything else: failed

The time budget begins with the permit and covers everything behind it. One Deferred for the caller, one for each request, none else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import field
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.client.hooks import ForbiddenHook, SendContext, call_hooks
from txrocketmq.client.instance import ClientInstance
from txrocketmq.client.interfaces import ISendHook
from txrocketmq.client.latency import FaultStrategy
from txrocketmq.client.offload import LARGE_BODY_BYTES
from txrocketmq.client.producer.config import ProducerConfig
from txrocketmq.client.producer.outgoing import (
    make_header,
    message_kind,
    prepare,
    prepare_batch,
    property_text,
)
from txrocketmq.client.producer.permits import SendPermits
from txrocketmq.client.results import SendResult, SendStatus
from txrocketmq.client.routes import PublishInfo
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.compress import compress_body, compression_type
from txrocketmq.codec.headers import SendMessageResponseHeader
from txrocketmq.errors import (
    BrokerError,
    HeaderError,
    MQClientError,
    RemotingError,
    RemotingTimeoutError,
)
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.message import Message, MessageQueue
from txrocketmq.model.names import vip_address

log = Logger()

SYNC = "SYNC"
ONEWAY = "ONEWAY"


_STATUS = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}

QueueChoice = Callable[[PublishInfo], MessageQueue]


class SendFailedError(MQClientError):
    """No try was successful; the text names topic, brokers and the last reason, which is also the cause.

    :ivar code: the broker's response code where the last failure was an answer.
    """

    def __init__(self, text: str, code: int | None) -> None:
        super().__init__(text)
        self.code = code


class _SendAnswer(SendMessageResponseHeader, kw_only=True):
    """A send's answer with the two properties that brokers put beside it."""

    region_id: str | None = field(default=None, name="MSG_REGION")
    trace_on: str | None = field(default=None, name="TRACE_ON")


class Sender:
    """What all sends of a producer share.

    :param group: with name space.
    :param offload: runs a function in a thread; None: there is none.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        settings: ProducerConfig,
        offload: Callable[..., Deferred[Any]] | None = None,
    ) -> None:
        self.instance = instance
        self.config = instance.config
        self.group = group
        self.settings = settings
        self.offload = offload
        self.routes = instance.routes
        self.clock = instance.clock
        self.request = instance.remoting.request
        self.permits = SendPermits(
            settings.back_pressure_for_async_send_num,
            settings.back_pressure_for_async_send_size,
            settings.max_waiting_sends,
        )
        self.strategy = FaultStrategy(
            instance.clock.seconds,
            enabled=self.config.send_latency_enable,
            detecting=self.config.start_detector_enable,
        )
        self.hooks: list[ISendHook] = []
        self.forbidden_hooks: list[ForbiddenHook] = []

    def now_ms(self) -> int:
        """Wall-clock ms."""
        return int(self.clock.seconds() * 1000)

    def address_of(self, broker_name: str) -> str | None:
        """Where to send for a broker name; the second listener where the configuration wants it."""
        address = self.routes.master_address(broker_name)
        if address is not None and self.config.vip_channel_enabled:
            return vip_address(address)
        return address

    def find(self, topic: str) -> Deferred[PublishInfo]:
        """Look up where a topic may be sent to."""
        settings = self.settings
        return Deferred.fromCoroutine(
            self.routes.find_publish(
                topic, settings.create_topic_key, settings.default_topic_queue_nums
            )
        )


class Sending:
    """One message, or batch, on its way.

    :param choice: picks the queue; such a send has one try. None: in turn, with retries.
    """

    __slots__ = (
        "_asked",
        "_brokers",
        "_choice",
        "_context",
        "_done",
        "_held",
        "_last_error",
        "_last_result",
        "_looked",
        "_mode",
        "_outgoing",
        "_queue",
        "_sender",
        "_started_s",
        "_tries",
        "_tries_left",
        "_try_s",
        "deferred",
        "message",
        "messages",
        "size",
        "timeout_ms",
    )

    def __init__(
        self,
        sender: Sender,
        message: Message,
        timeout_ms: int,
        *,
        choice: QueueChoice | None = None,
        messages: list[Message] | None = None,
        mode: str = SYNC,
    ) -> None:
        self._sender = sender
        self.message = message
        self.messages = messages
        self.size = (
            len(message.body) if messages is None else sum([len(item.body) for item in messages])
        )
        self.timeout_ms = timeout_ms
        self._choice = choice
        self._mode = mode
        self._tries_left = 1
        if choice is None and mode is SYNC:
            self._tries_left += sender.settings.retry_times_when_send_failed
        self._held = False
        self._done = False
        self._looked = False
        self._tries = 0
        self._brokers: list[str] | None = None
        self._last_error: BaseException | None = None
        self._last_result: SendResult | None = None
        self._asked: Deferred[Any] | None = None
        self._context: SendContext | None = None
        self.deferred: Deferred[SendResult | None] = Deferred(self._cancel)

    # ----------------------------------------------------------------- beginning

    def start(self) -> Deferred[Any]:
        """Go, or wait for the turn; a Deferred of the `SendResult` (None for a oneway one)."""
        if not self._sender.permits.acquire(self):
            self._done = True
            self.deferred.errback(
                MQClientError(
                    f"{self._sender.permits.waiting} sends wait already, the limit is reached: "
                    "wait for some of them before you start more"
                )
            )
        return self.deferred

    def begin(self) -> None:
        """The permit is there; called by `SendPermits`."""
        self._held = True
        sender, size = self._sender, self.size
        self._started_s = sender.clock.seconds()
        settings = sender.settings
        if (
            size >= LARGE_BODY_BYTES
            and size >= settings.compress_msg_body_over_howmuch
            and sender.offload is not None
            and self.messages is None
        ):
            kind = compression_type(settings.compress_type)
            body, level = self.message.body, settings.compress_level
            try:
                packing = sender.offload(compress_body, body, kind, level)
            except Exception as error:
                self._finish(error)
                return
            self._wait_for(packing, self._prepare)
        else:
            self._prepare(None)

    def _prepare(self, packed: bytes | None) -> None:
        sender = self._sender
        now_ms = int(self._started_s * 1000)
        try:
            if self.messages is not None:
                outgoing = prepare_batch(self.messages, sender.config, now_ms)
            else:
                outgoing = prepare(self.message, sender.config, sender.settings, now_ms, packed)
        except Exception as error:
            self._finish(error)
            return
        self._outgoing = outgoing
        info = self._sender.routes.publish.get(outgoing.topic)
        if info is not None and info.queues:
            self._try(info)
        else:
            self._look()

    def _look(self) -> None:
        self._looked = True
        self._wait_for_route(self._sender.find(self._outgoing.topic), self._try)

    def _wait_for_route(self, deferred: Deferred[Any], then: Callable[[Any], None]) -> None:
        """Name servers that do not answer must not cost more than the send's own time."""
        clock = self._sender.clock
        left_s = self._started_s + self.timeout_ms / 1000 - clock.seconds()
        deferred.addTimeout(max(0.0, left_s), clock)
        self._wait_for(deferred, then)

    def _wait_for(self, deferred: Deferred[Any], then: Callable[[Any], None]) -> None:
        self._asked = deferred
        deferred.addCallbacks(self._unless_done(then), self._could_not)

    def _unless_done(self, then: Callable[[Any], None]) -> Callable[[Any], None]:
        def go_on(value: Any) -> None:
            if not self._done:
                try:
                    then(value)
                except Exception as error:
                    self._finish(error)

        return go_on

    def _could_not(self, failure: Failure) -> None:
        """What comes before a request failed: no other broker would help."""
        if self._done:
            return
        if isinstance(failure.value, TimeoutError):
            self._give_up(f"the route was not known within {self.timeout_ms} ms")
        else:
            self._finish(self._last_error or failure.value)

    # ----------------------------------------------------------------- one try

    def _try(self, info: PublishInfo) -> None:
        """One try; a fault that nobody foresaw, such as a queue that is none, ends the send and gives its permit back."""
        try:
            self._try_once(info)
        except Exception as error:
            if self._done:
                raise
            self._finish(error)

    def _try_once(self, info: PublishInfo) -> None:
        sender = self._sender
        self._try_s = now = sender.clock.seconds()
        left_ms = self.timeout_ms - int((now - self._started_s) * 1000)
        if left_ms <= 0:
            self._give_up(f"no time is left of {self.timeout_ms} ms")
            return
        choice = self._choice
        if choice is None:
            last = self._brokers[-1] if self._brokers else None
            queue = sender.strategy.choose(info, last)
        else:
            queue = choice(info)
        broker_name = sender.routes.broker_of(queue)
        if broker_name != queue.broker_name:
            # A logical queue: what is sent, and what is told of it, names the broker that leads it.
            queue = MessageQueue(
                topic=queue.topic, broker_name=broker_name, queue_id=queue.queue_id
            )
        self._queue = queue
        address = sender.address_of(broker_name)
        if address is None:
            self._no_broker(queue)
            return
        outgoing = self._outgoing
        if (sender.hooks or sender.forbidden_hooks) and not self._before(address):
            return
        self._tries += 1
        self._tries_left -= 1
        if self._tries_left and 0 < sender.settings.send_msg_max_timeout_per_request < left_ms:
            left_ms = sender.settings.send_msg_max_timeout_per_request
        header = make_header(
            outgoing,
            sender.group,
            sender.settings,
            queue.queue_id,
            queue.broker_name,
            int(now * 1000),
            sender.config.unit_mode,
        )
        asked: Deferred[Any]
        if self._mode is ONEWAY:
            self._asked = asked = sender.instance.remoting.oneway(
                address, outgoing.code, header, outgoing.body, left_ms
            )
        else:
            self._asked = asked = sender.request(
                address, outgoing.code, header, outgoing.body, left_ms, None
            )
        asked.addCallbacks(self._answered, self._failed)

    def _no_broker(self, queue: MessageQueue) -> None:
        if self._looked:
            self._give_up(f"no master of broker {queue.broker_name} is known")
            return
        self._looked = True
        topic = self._outgoing.topic
        self._wait_for_route(self._sender.routes.update(topic), self._looked_again)

    def _looked_again(self, known: bool) -> None:
        info = self._sender.routes.publish.get(self._outgoing.topic)
        if info is None or not info.queues:
            self._look()
        else:
            self._try(info)

    def _before(self, address: str) -> bool:
        sender, outgoing = self._sender, self._outgoing
        self._context = context = SendContext(
            sender.group,
            outgoing.message,
            self._queue,
            address,
            sender.config.client_ip,
            message_kind(outgoing),
            self._mode,
            sender.config.namespace,
        )
        try:
            for forbidden in sender.forbidden_hooks:
                forbidden(context)
            call_hooks(sender.hooks, "before_send", context)
            if sender.hooks and not outgoing.batch and not outgoing.reconsume_times:
                outgoing.properties = property_text(outgoing.message.properties)
        except Exception as error:
            self._finish(error)
            return False
        return True

    # ----------------------------------------------------------------- its outcome

    def _answered(self, answer: RemotingCommand | None) -> None:
        if self._done:
            return
        if answer is None:  # oneway
            self._after(None, None)
            self._finish(None)
            return
        sender, queue = self._sender, self._queue
        status = _STATUS.get(answer.code)
        if status is None:
            address = f"{queue.broker_name} {sender.address_of(queue.broker_name)}"
            self._refused(BrokerError(answer.code, answer.remark, address))
            return
        if sender.strategy.enabled:
            latency_ms = (sender.clock.seconds() - self._try_s) * 1000
            sender.strategy.succeeded(queue.broker_name, latency_ms)
        try:
            result = self._result(answer.decode_header(_SendAnswer), status)
        except HeaderError as error:
            self._finish(error)
            return
        if self._context is not None:
            self._after(result, None)
        if status is not SendStatus.SEND_OK and (
            sender.settings.retry_another_broker_when_not_store_ok
        ):
            self._last_result = result
            self._again(None)
            return
        self._finish(result)

    def _result(self, found: _SendAnswer, status: SendStatus) -> SendResult:
        queue, outgoing = self._queue, self._outgoing
        if found.queue_id != queue.queue_id or queue.topic != outgoing.message.topic:
            queue = MessageQueue(
                topic=outgoing.message.topic,
                broker_name=queue.broker_name,
                queue_id=found.queue_id,
            )
        return SendResult(
            status,
            found.batch_uniq_id or outgoing.msg_id,
            queue,
            found.queue_offset,
            found.msg_id,
            found.transaction_id,
            found.recall_handle,
            found.region_id or "DefaultRegion",
            found.trace_on != "false",
        )

    def _failed(self, failure: Failure) -> None:
        if self._done:
            return
        error = failure.value
        latency_ms = (self._sender.clock.seconds() - self._try_s) * 1000
        self._sender.strategy.failed(self._queue.broker_name, latency_ms, by_broker=False)
        self._after(None, error)
        if isinstance(error, RemotingError):
            self._again(error)
        else:
            self._finish(error)

    def _refused(self, error: BrokerError) -> None:
        latency_ms = (self._sender.clock.seconds() - self._try_s) * 1000
        self._sender.strategy.failed(self._queue.broker_name, latency_ms, by_broker=True)
        self._after(None, error)
        if error.code in self._sender.settings.retry_response_codes:
            self._again(error)
        else:
            self._finish(self._last_result or error)

    def _after(self, result: SendResult | None, error: BaseException | None) -> None:
        context, self._context = self._context, None
        if context is not None:
            context.result, context.error = result, error
            call_hooks(self._sender.hooks, "after_send", context)

    def _again(self, error: BaseException | None) -> None:
        """Try another broker, if tries and time are left."""
        self._last_error = error or self._last_error
        if self._brokers is None:
            self._brokers = []
        self._brokers.append(self._queue.broker_name)
        if not self._tries_left:
            self._give_up("")
            return
        log.debug("send to {queue} failed, trying again: {error}", queue=self._queue, error=error)
        info = self._sender.routes.publish.get(self._outgoing.topic)
        if info is None or not info.queues:
            self._look()
        else:
            self._try(info)

    def _give_up(self, reason: str) -> None:
        if self._last_result is not None:
            self._finish(self._last_result)
            return
        last = self._last_error
        if self._choice is not None and last is not None:
            self._finish(last)
            return
        cost_ms = int((self._sender.clock.seconds() - self._started_s) * 1000)
        count = f"{self._tries} {'try' if self._tries == 1 else 'tries'}"
        tried = f"{count} at {', '.join(self._brokers)}" if self._brokers else "no try"
        reasons = "; ".join(part for part in (reason, str(last) if last else "") if part)
        text = f"send to topic {self._outgoing.topic} failed after {cost_ms} ms, {tried}: {reasons}"
        error = SendFailedError(text, last.code if isinstance(last, BrokerError) else None)
        error.__cause__ = last or RemotingTimeoutError("", reason)
        self._finish(error)

    # ----------------------------------------------------------------- the end

    def _finish(self, outcome: SendResult | BaseException | None) -> None:
        self._done = True
        self._asked = None
        if self._held:
            self._held = False
            self._sender.permits.release(self.size)
        if isinstance(outcome, BaseException):
            self.deferred.errback(outcome)
        else:
            self.deferred.callback(outcome)

    def _cancel(self, deferred: Deferred[Any]) -> None:
        """The caller has lost interest; whether the message was stored stays open."""
        if self._done:
            return
        self._done = True
        asked, self._asked = self._asked, None
        if self._held:
            self._held = False
            if asked is not None:
                asked.cancel()
            self._after(None, CancelledError())
            self._sender.permits.release(self.size)
        else:
            self._sender.permits.give_up(self)
