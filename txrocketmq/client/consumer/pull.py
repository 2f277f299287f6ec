"""The consumer that leaves everything to its user: which queue, from which offset, what is committed.

Stands for ``DefaultMQPullConsumer``. New programs are better served by `LitePullConsumer`.
"""

from __future__ import annotations

from collections.abc import Mapping

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.client.consumer.base import ActiveConsumer
from txrocketmq.client.consumer.config import (
    MessageSelector,
    QueueListener,
    subscription_of,
)
from txrocketmq.client.consumer.dividing import Division
from txrocketmq.client.consumer.incoming import prepare, rename_for_application
from txrocketmq.client.results import PullResult, PullStatus
from txrocketmq.codec.headers import PullMessageRequestHeader
from txrocketmq.errors import MQClientError, RemotingError
from txrocketmq.model.flags import pull_sys_flag
from txrocketmq.model.message import MessageExt, MessageQueue
from txrocketmq.model.names import MASTER_ID

log = Logger()


class PullConsumer(ActiveConsumer):
    """Pulls when it is told to.

    See `ConsumerService` for the parameters. Queues may have their topic with or without name space.
    """

    def _prepare(self) -> None:
        self._listeners: dict[str, QueueListener] = {}
        self._mine: dict[str, list[MessageQueue]] = {}
        self._members: dict[MessageQueue, int] = {}
        self._touched: dict[MessageQueue, None] = {}

    def _check(self) -> None:
        if not self.is_running:
            raise MQClientError("The consumer service state not OK: it is not started")

    # ------------------------------------------------------------------ pulling

    def pull(
        self,
        queue: MessageQueue,
        selector: str | MessageSelector | None,
        offset: int,
        max_nums: int = 32,
        *,
        timeout_millis: int | None = None,
        block: bool = False,
        max_bytes: int = 2**31 - 1,
    ) -> Deferred[PullResult]:
        """Messages of a queue from an offset on.

        :param block: the broker may hold the pull until there is a message (official ``pullBlockIfNotFound``).
        :param timeout_millis: ``consumer_pull_timeout_millis`` unless given, with ``block`` ``consumer_timeout_millis_when_suspend``.

        Fails with `MQClientError` for arguments that cannot be, `BrokerError`, or `RemotingError`.
        """
        return Deferred.fromCoroutine(
            self._pull(queue, selector, offset, max_nums, timeout_millis, block, max_bytes)
        )

    async def _pull(
        self,
        queue: MessageQueue,
        selector: str | MessageSelector | None,
        offset: int,
        max_nums: int,
        timeout_millis: int | None,
        block: bool,
        max_bytes: int,
    ) -> PullResult:
        self._check()
        if offset < 0:
            raise MQClientError("offset < 0")
        if max_nums <= 0:
            raise MQClientError("maxNums <= 0")
        wire = self._wire(queue)
        subscription = subscription_of(wire.topic, selector, 0)
        self._subscribe_automatically(wire.topic)
        settings = self.settings
        if timeout_millis is None:
            timeout_millis = (
                settings.consumer_timeout_millis_when_suspend
                if block
                else settings.consumer_pull_timeout_millis
            )
        header = PullMessageRequestHeader(
            consumer_group=self.group,
            topic=wire.topic,
            queue_id=wire.queue_id,
            queue_offset=offset,
            max_msg_nums=max_nums,
            sys_flag=pull_sys_flag(commit_offset=False, suspend=block, subscription=True),
            commit_offset=0,
            suspend_timeout_millis=settings.broker_suspend_max_time_millis,
            subscription=subscription.sub_string,
            sub_version=0,
            max_msg_bytes=max_bytes,
            expression_type=subscription.expression_type,
            broker_name=wire.broker_name,
        )
        try:
            result, _ = await self.brokers.pull(
                wire, header, self._members.get(wire, MASTER_ID), timeout_millis
            )
        except RemotingError:
            self._members.pop(wire, None)
            raise
        self._members[wire] = result.suggest_which_broker_id
        if result.status is PullStatus.FOUND:
            result.messages = prepare(
                result.messages,
                subscription,
                result.min_offset,
                result.max_offset,
                settings.filter_hooks,
            )
            rename_for_application(result.messages, wire.topic, self.config.without_namespace)
        return result

    def _subscribe_automatically(self, topic: str) -> None:
        """The brokers hear of topics that are pulled, so that they know the group and take its offsets."""
        if topic not in self.subscriptions:
            self.subscriptions[topic] = subscription_of(topic, None, self._version())
            self._tell_change()

    def send_message_back(self, message: MessageExt, delay_level: int = 0) -> Deferred[None]:
        """Have a message delivered again later, through the group's retry topic."""
        return Deferred.fromCoroutine(
            self.brokers.send_back(
                message,
                self.config.with_namespace(message.topic),
                delay_level,
                self.settings.max_reconsume_times,
            )
        )

    # ------------------------------------------------------------------ queues

    def fetch_subscribe_message_queues(self, topic: str) -> Deferred[list[MessageQueue]]:
        """All readable queues of a topic. Fails with `NoRouteError` when there are none."""
        return self.instance.subscribe_queues(self.config.with_namespace(topic))

    def fetch_message_queues_in_balance(self, topic: str) -> Deferred[list[MessageQueue]]:
        """The queues of a topic that are this member's by the group's division."""
        return Deferred.fromCoroutine(self._in_balance(self.config.with_namespace(topic)))

    async def _in_balance(self, topic: str) -> list[MessageQueue]:
        self._check()
        if topic not in self.subscriptions:
            self.subscriptions[topic] = subscription_of(topic, None, self._version())
            await self.instance.routes.update(topic)
            await self.instance.heartbeat_now()
        self._take(topic, await self._divide(topic))
        return list(self._mine.get(topic, ()))

    def register_message_queue_listener(self, topic: str, listener: QueueListener) -> None:
        """Have a function told which queues of a topic are this member's, when they change."""
        name = self.config.with_namespace(topic)
        self._listeners[name] = listener
        self.subscriptions.setdefault(name, subscription_of(name, None, self._version()))
        self._tell_change()

    def rebalance(self) -> Deferred[None] | None:
        """See `IConsumerRole`."""
        return Deferred.fromCoroutine(self._rebalance()) if self.is_running else None

    async def _rebalance(self) -> None:
        for topic in list(self.subscriptions):
            self._take(topic, await self._divide_if_possible(topic))

    def _take(self, topic: str, found: Division | None) -> None:
        if found is None or found[1] == self._mine.get(topic):
            return
        queues, self._mine[topic] = found
        listener = self._listeners.get(topic)
        if listener is not None:
            try:
                listener(self.config.without_namespace(topic), queues, list(found[1]))
            except Exception:
                log.failure("message queue listener of group {group}", group=self.group)

    # ------------------------------------------------------------------ offsets

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Note the offset of the next message to consume; it is saved within 5 s, and by `persist`.

        :raises MQClientError: it is negative, or the consumer does not run.
        """
        self._check()
        if offset < 0:
            raise MQClientError("offset < 0")
        wire = self._wire(queue)
        self._subscribe_automatically(wire.topic)
        self._touched[wire] = None
        self.offsets.update(wire, offset, False)

    def fetch_consume_offset(
        self, queue: MessageQueue, from_store: bool = False
    ) -> Deferred[int | None]:
        """The offset that is noted here, else the one that was saved; None when there is neither.

        :param from_store: ask for the saved one in any case.
        """
        wire = self._wire(queue)
        noted = None if from_store else self.offsets.noted(wire)
        if noted is not None:
            found: Deferred[int | None] = Deferred()
            found.callback(noted)
            return found
        return self.offsets.read(wire)

    def persist(self, queue: MessageQueue) -> Deferred[None]:
        """Save the offset of one queue now."""
        return self.offsets.persist_some([self._wire(queue)], wait=True)

    def persist_offsets(self) -> Deferred[None] | None:
        """See `IConsumerRole`."""
        return self.offsets.persist_some(self._touched) if self.is_running else None

    def reset_offsets(
        self, topic: str, offsets: Mapping[MessageQueue, int]
    ) -> Deferred[None] | None:
        """See `IConsumerRole`. Where to pull is the user's; what is noted is changed."""
        for queue, offset in offsets.items():
            if queue in self._touched:
                self.offsets.update(queue, offset, False)
        return None

    def max_offset(self, queue: MessageQueue) -> Deferred[int]:
        """The offset that the next message of a queue will get."""
        return self.brokers.max_offset(self._wire(queue))

    def min_offset(self, queue: MessageQueue) -> Deferred[int]:
        """The smallest offset that can be read."""
        return self.brokers.min_offset(self._wire(queue))

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> Deferred[int]:
        """The offset of the first message that was stored then or later."""
        return self.brokers.search_offset(self._wire(queue), timestamp_ms)

    async def _end(self) -> None:
        await self.offsets.persist_some(self._touched, wait=True)
