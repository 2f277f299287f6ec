"""How are messages fetched that the broker hands out itself (POP), and how are they settled?

Stands for ``DefaultMQPushConsumerImpl.popMessage``, ``ConsumeMessagePopConcurrentlyService`` and ``PopRequest``. A popped message is invisible to
others for a while (``pop_invisible_time``). Within that time it is acknowledged, or its invisible time is changed to the delay of its next
try; one whose time is over is not touched any more: somebody else gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.client.consumer.incoming import matching
from txrocketmq.client.consumer.parts import Parts
from txrocketmq.client.consumer.process_queue import PopProcessQueue
from txrocketmq.client.consumer.pull_loop import BROKER_BUSY_S
from txrocketmq.client.consumer.pulling import BROKER_SUSPEND_MS, FLOW_CONTROL_S, PAUSED_S
from txrocketmq.client.consumer.queue_loop import QueueLoop
from txrocketmq.client.receipts import NORMAL_TOPIC, RETRY_TOPIC_V2
from txrocketmq.client.results import PopResult, PopStatus
from txrocketmq.codec.headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    PopMessageRequestHeader,
)
from txrocketmq.errors import BrokerError, MQClientError, RemotingError, RocketMQError
from txrocketmq.model import properties as props
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.heartbeat import ConsumeFromWhere, SubscriptionData
from txrocketmq.model.message import MessageExt, MessageQueue
from txrocketmq.model.names import MASTER_ID, pop_retry_topics

if TYPE_CHECKING:
    from txrocketmq.client.instance import ClientInstance

log = Logger()

POP_TIMEOUT_MS = BROKER_SUSPEND_MS + 10_000
ACK_TIMEOUT_MS = 3000
INIT_MIN = 0
INIT_MAX = 1
#: Seconds of invisibility by the number of tries.
POP_DELAYS_S = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)

PopDeliver = Callable[[MessageQueue, PopProcessQueue, Sequence[MessageExt]], object]


class Receipt:
    """The words of a message's receipt (property ``POP_CK``).

    :raises MQClientError: the message has none.
    """

    __slots__ = ("broker_name", "invisible_ms", "mark", "offset", "pop_ms", "queue_id", "text")

    def __init__(self, message: MessageExt) -> None:
        text = message.properties.get(props.POP_CK, "")
        words = text.split(" ")
        try:
            self.pop_ms = int(words[1])
            self.invisible_ms = int(words[2])
            self.mark = words[4]
            self.broker_name = words[5]
            self.queue_id = int(words[6])
            self.offset = int(words[7])
        except (IndexError, ValueError):
            raise MQClientError(
                f"message {message.msg_id} has no receipt of a pop: {text!r}"
            ) from None
        self.text = text

    def topic(self, topic: str, group: str) -> str:
        """The topic that was popped: the message's own, or one of the group's retry topics for it."""
        if self.mark == NORMAL_TOPIC:
            return topic
        newer, older = pop_retry_topics(topic, group)
        return newer if self.mark == RETRY_TOPIC_V2 else older

    def is_over(self, now_ms: int) -> bool:
        """Whether somebody else may have the message by now."""
        return now_ms - self.pop_ms >= self.invisible_ms


class PopBrokers:
    """Acknowledges, and changes invisible times."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group

    async def _address(self, broker_name: str, topic: str) -> str:
        found = self._instance.routes.find_broker(broker_name, MASTER_ID, True)
        if found is None:
            await self._instance.routes.update(topic)
            found = self._instance.routes.find_broker(broker_name, MASTER_ID, True)
        if found is None:
            raise MQClientError(f"The broker[{broker_name}] not exist")
        return found.address

    async def ack(self, message: MessageExt, topic: str) -> None:
        """A message is processed.

        :param topic: its topic, with name space.
        """
        receipt = Receipt(message)
        header = AckMessageRequestHeader(
            consumer_group=self._group,
            topic=receipt.topic(topic, self._group),
            queue_id=receipt.queue_id,
            extra_info=receipt.text,
            offset=receipt.offset,
            broker_name=receipt.broker_name,
        )
        address = await self._address(receipt.broker_name, topic)
        await self._instance.api.ack_message(address, header, ACK_TIMEOUT_MS)

    async def change_invisible_time(
        self, message: MessageExt, topic: str, invisible_ms: int
    ) -> None:
        """A message shall come again after a while; its receipt is replaced."""
        receipt = Receipt(message)
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=self._group,
            topic=receipt.topic(topic, self._group),
            queue_id=receipt.queue_id,
            extra_info=receipt.text,
            offset=receipt.offset,
            invisible_time=invisible_ms,
            broker_name=receipt.broker_name,
        )
        address = await self._address(receipt.broker_name, topic)
        changed = await self._instance.api.change_invisible_time(
            address, receipt.broker_name, header, ACK_TIMEOUT_MS
        )
        message.properties[props.POP_CK] = changed.extra_info

    def pop(self, queue: MessageQueue, header: PopMessageRequestHeader) -> Deferred[PopResult]:
        """POP_MESSAGE at the queue's master."""
        return Deferred.fromCoroutine(self._pop(queue, header))

    async def _pop(self, queue: MessageQueue, header: PopMessageRequestHeader) -> PopResult:
        address = await self._address(queue.broker_name, queue.topic)
        return await self._instance.api.pop_message(
            address, queue.broker_name, header, POP_TIMEOUT_MS
        )


class PoppedOutcomes:
    """Popped messages are acknowledged, or made visible again later. See `concurrent.Outcomes`."""

    def __init__(self, parts: Parts, brokers: PopBrokers) -> None:
        self._parts = parts
        self._brokers = brokers

    def _now_ms(self) -> int:
        return int(self._parts.clock.seconds() * 1000)

    def _is_in_time(self, message: MessageExt) -> bool:
        """Whether nobody else can have it yet; what its handler took the receipt from comes again."""
        try:
            return not Receipt(message).is_over(self._now_ms())
        except MQClientError as error:
            self._not_settled(error)
            return False

    def _not_settled(self, error: BaseException | None) -> None:
        if self._parts.calm.may_tell("ack"):
            log.warn(
                "group {group}: a message could not be acknowledged and comes again: {error}",
                group=self._parts.group,
                error=error,
            )

    def may_begin(self, held: PopProcessQueue, messages: Sequence[MessageExt]) -> bool:
        """Not when the invisible time is over already."""
        if self._is_in_time(messages[0]):
            return True
        held.waiting -= len(messages)
        return False

    def is_open(self, held: PopProcessQueue, message: MessageExt) -> bool:
        """See `concurrent.Outcomes`."""
        if not held.dropped and self._is_in_time(message):
            return True
        held.waiting -= 1
        return False

    def processed(
        self, queue: MessageQueue, held: PopProcessQueue, messages: Sequence[MessageExt]
    ) -> None:
        """See `concurrent.Outcomes`."""
        held.waiting -= len(messages)
        if held.dropped:
            return
        for message in messages:
            if self._is_in_time(message):
                self.ack(message)

    def ack(self, message: MessageExt) -> None:
        """Acknowledge in the background; when that fails, the message comes again."""
        topic = self._parts.config.with_namespace(message.topic)
        Deferred.fromCoroutine(self._brokers.ack(message, topic)).addErrback(self._not_acked)

    def _not_acked(self, failure: Failure) -> None:
        self._not_settled(failure.value)

    async def give_back(
        self,
        queue: MessageQueue,
        held: PopProcessQueue,
        messages: Sequence[MessageExt],
        delay_level: int,
    ) -> list[MessageExt]:
        """See `concurrent.Outcomes`. What fails here comes again by itself when its invisible time is over."""
        for message in messages:
            held.waiting -= 1
            try:
                topic = self._parts.config.with_namespace(message.topic)
                delay_s = self._delay_s(message, delay_level)
                if delay_s is None:
                    await self._brokers.ack(message, topic)
                else:
                    await self._brokers.change_invisible_time(message, topic, delay_s * 1000)
            except RocketMQError as error:
                if self._parts.calm.may_tell("invisible"):
                    log.warn(
                        "group {group}: the invisible time of a message could not be changed: {error}",
                        group=self._parts.group,
                        error=error,
                    )
            except Exception:
                # One that its handler has bent, for one: those behind it are given back all the same.
                log.failure("giving message {id} back", id=message.msg_id)
        return []

    def _delay_s(self, message: MessageExt, delay_level: int) -> int | None:
        """When a failed message comes again; None when it was tried too often for long enough, and is acknowledged."""
        if message.reconsume_times >= self._parts.settings.max_tries:
            age_s = self._parts.clock.seconds() - message.born_timestamp / 1000
            if age_s > POP_DELAYS_S[-1] * 2:
                return None
            delay_level = sum(1 for delay in POP_DELAYS_S if age_s >= delay)
        elif delay_level <= 0:
            delay_level = message.reconsume_times
        return POP_DELAYS_S[min(delay_level, len(POP_DELAYS_S) - 1)]


class QueuePopper(QueueLoop):
    """Pops from one queue until it is stopped."""

    def __init__(
        self,
        parts: Parts,
        brokers: PopBrokers,
        outcomes: PoppedOutcomes,
        queue: MessageQueue,
        held: PopProcessQueue,
        deliver: PopDeliver,
    ) -> None:
        super().__init__(parts.clock)
        self._parts = parts
        self._settings = parts.settings
        self._brokers = brokers
        self._outcomes = outcomes
        self.queue = queue
        self.held = held
        self._deliver = deliver

    def _step(self) -> None:
        self._timer = None
        if self._stopped or self.held.dropped:
            return
        now = self._clock.seconds()
        self.held.last_pop_s = now
        subscription = self._parts.subscriptions.get(self.queue.topic)
        if self.paused or subscription is None:
            self._later(PAUSED_S)
            return
        if self.held.waiting > self._settings.pop_threshold_for_queue:
            self._later(FLOW_CONTROL_S)
            return
        first = self._settings.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        header = PopMessageRequestHeader(
            consumer_group=self._parts.group,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            max_msg_nums=self._settings.pop_batch_nums,
            invisible_time=self._settings.pop_invisible_time,
            poll_time=BROKER_SUSPEND_MS,
            born_time=int(now * 1000),
            init_mode=INIT_MIN if first else INIT_MAX,
            exp_type=subscription.expression_type,
            exp=subscription.sub_string,
            order=False,
            broker_name=self.queue.broker_name,
        )
        self._waiting = self._brokers.pop(self.queue, header)
        self._waiting.addCallback(self._answered, now)
        self._waiting.addErrback(self._failed)

    def _answered(self, result: PopResult, asked_s: float) -> None:
        self._waiting = None
        if self._stopped or self.held.dropped:
            return
        if result.status is PopStatus.POLLING_FULL:
            self._later(self._parts.config.pull_time_delay_millis_when_exception / 1000)
            return
        subscription = self._parts.subscriptions.get(self.queue.topic)
        if subscription is None:
            # Not subscribed any more: they come to another member when their invisible time is over.
            self._later(PAUSED_S)
            return
        messages = self._wanted(result.messages, subscription)
        counts = self._parts.stats.of(self.queue.topic)
        if messages:
            counts.pulls += 1
            counts.pull_rt += (self._clock.seconds() - asked_s) * 1000
            counts.pulled += len(messages)
            self.held.waiting += len(messages)
        if messages and self._settings.pull_interval:
            self._later(self._settings.pull_interval / 1000)
        else:
            self._go_on(asked_s, is_fruitless=not result.messages)
        if messages:
            self._deliver(self.queue, self.held, messages)

    def _wanted(self, popped: list[MessageExt], subscription: SubscriptionData) -> list[MessageExt]:
        """Messages for the handler; all others are acknowledged at once. Each shows the topic that was asked for."""
        config = self._parts.config
        topic = config.without_namespace(self.queue.topic)
        for message in popped:
            message.topic = topic
        found = matching(popped, subscription)
        for hook in self._settings.filter_hooks:
            try:
                found = list(found)
                hook(found)
            except Exception:
                log.failure("filter hook {hook} failed", hook=hook)
        limit = self._settings.max_tries
        found = [message for message in found if message.reconsume_times <= limit]
        if len(found) != len(popped):
            wanted = {id(message) for message in found}
            for message in popped:
                if id(message) not in wanted:
                    self._outcomes.ack(message)
        return found

    def _failed(self, failure: Failure) -> None:
        self._waiting = None
        error = failure.value
        if self._stopped or self.held.dropped or isinstance(error, CancelledError):
            return
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            self._later(BROKER_BUSY_S)
            return
        if not isinstance(error, RocketMQError):
            log.failure("popping {queue}", failure, queue=self.queue)
        elif self._parts.calm.may_tell("pop"):
            log.warn(
                "group {group}: {queue} cannot be popped: {error}",
                group=self._parts.group,
                queue=self.queue,
                error=error,
            )
        if isinstance(error, RemotingError):
            self._parts.brokers.refresh_route(self.queue.topic)
        self._later(self._parts.config.pull_time_delay_millis_when_exception / 1000)
