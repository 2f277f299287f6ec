"""The consumer that is asked for messages, and fetches them ahead.

Stands for ``DefaultLitePullConsumer`` and ``AssignedMessageQueue``. Queues come from `LitePullConsumer.subscribe` (divided among the members of the
group) or from `LitePullConsumer.assign` (as told). Each is pulled by itself, ahead of what was asked for, within bounds. ::

    async with LitePullConsumer(reactor, "group", namesrv_addr="127.0.0.1:9876") as consumer:
        consumer.subscribe("topic")
        async for message in consumer:
            ...

A message counts as consumed once it was handed out by `poll`; in an ``async for``, once the next one is asked for, so that one whose
treatment raised, or that ended the loop, is the first of the next loop. What is consumed is committed every 5 s (``auto_commit``) or by `commit`, and saved when the consumer stops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, gatherResults
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.client.consumer.base import ActiveConsumer
from txrocketmq.client.consumer.config import MessageSelector, subscription_of
from txrocketmq.client.consumer.fetcher import Fetcher
from txrocketmq.client.consumer.start import start_offset
from txrocketmq.client.hooks import ConsumeContext, call_hooks
from txrocketmq.client.periodic import Periodic
from txrocketmq.client.results import PullResult
from txrocketmq.codec.bodies.clients import ConsumerRunningInfo
from txrocketmq.codec.headers import PullMessageRequestHeader
from txrocketmq.errors import MQClientError
from txrocketmq.model.flags import pull_sys_flag
from txrocketmq.model.heartbeat import SubscriptionData
from txrocketmq.model.message import MessageExt, MessageQueue

log = Logger()

TopicListener = Callable[[str, Sequence[MessageQueue]], object]
"""Told a topic and its queues when they change (official ``TopicMessageQueueChangeListener``)."""


class LitePullConsumer(ActiveConsumer):
    """Hands out messages when it is asked; see the module.

    See `ConsumerService` for the parameters. Queues that are given to its methods may have their topic with or without name space.
    """

    def _prepare(self) -> None:
        self._mode = ""
        self._assigned: list[MessageQueue] = []
        self._assigned_subscriptions: dict[str, SubscriptionData] = {}
        self._fetchers: dict[MessageQueue, Fetcher] = {}
        self._ready: deque[tuple[Fetcher, list[MessageExt]]] = deque()
        self._pollers: deque[Deferred[None]] = deque()
        self._listeners: dict[str, TopicListener] = {}
        self._known: dict[str, Sequence[MessageQueue]] = {}
        self._committing = Periodic(
            self.clock,
            f"commits of group {self.group}",
            self.settings.auto_commit_interval_millis / 1000,
            self._auto_commit,
        )
        self._watching = Periodic(
            self.clock,
            f"queues of group {self.group}",
            self.settings.topic_metadata_check_interval_millis / 1000,
            self._look_at_topics,
        )

    # ------------------------------------------------------------------ what is read

    def _use(self, mode: str) -> None:
        if self._mode not in ("", mode):
            raise MQClientError("Subscribe and assign are mutually exclusive.")
        self._mode = mode

    def subscribe(self, topic: str, selector: str | MessageSelector | None = None) -> None:
        """Read a topic, sharing its queues with the other members of the group.

        :raises MQClientError: topic or expression is none, or queues are assigned already.
        """
        self._use("subscribe")
        super().subscribe(topic, selector)

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no more; what was fetched of it is forgotten."""
        super().unsubscribe(topic)
        name = self.config.with_namespace(topic)
        self._set_queues([queue for queue in self._fetchers if queue.topic != name])

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, whoever else reads them.

        :raises MQClientError: there are none, or topics are subscribed already.
        """
        wanted = [self._wire(queue) for queue in queues]
        if not wanted:
            raise MQClientError("Message queues can not be null or empty.")
        self._use("assign")
        self._assigned = wanted
        if self.is_running:
            self._set_queues(wanted)

    def set_sub_expression_for_assign(self, topic: str, expression: str) -> None:
        """Choose messages of an assigned topic by tag.

        :raises MQClientError: the expression is none, or it is too late: the consumer is started.
        """
        if self._state != "created":
            raise MQClientError("setAssignTag only can be called before start.")
        self._use("assign")
        name = self.config.with_namespace(topic)
        self._assigned_subscriptions[name] = subscription_of(name, expression, 0)

    def subscription(self, topic: str) -> SubscriptionData:
        """Which messages of a topic (with name space) are wanted."""
        table = self.subscriptions if self._mode == "subscribe" else self._assigned_subscriptions
        found = table.get(topic)
        if found is None:
            found = table[topic] = subscription_of(topic, None, 0)
        return found

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are read here now, sorted; with name space."""
        return sorted(self._fetchers)

    def fetch_message_queues(self, topic: str) -> Deferred[list[MessageQueue]]:
        """All readable queues of a topic. Fails with `NoRouteError` when there are none."""
        return self.instance.subscribe_queues(self.config.with_namespace(topic))

    def on_queues_changed(self, topic: str, listener: TopicListener) -> None:
        """Have a function told when a topic gets other queues (official ``registerTopicMessageQueueChangeListener``)."""
        self._listeners[self.config.with_namespace(topic)] = listener

    def _set_queues(self, queues: Iterable[MessageQueue]) -> None:
        wanted = set(queues)
        for queue in [queue for queue in self._fetchers if queue not in wanted]:
            self._drop(queue)
        for queue in sorted(wanted):
            if queue not in self._fetchers:
                self.offsets.remove(queue)
                fetcher = self._fetchers[queue] = Fetcher(self, queue)
                fetcher.start()

    def _drop(self, queue: MessageQueue) -> None:
        """Somebody else reads a queue: save how far we came."""
        fetcher = self._fetchers.pop(queue)
        fetcher.stop()
        self._ready = deque(item for item in self._ready if item[0] is not fetcher)
        if self.settings.auto_commit and fetcher.consumed is not None:
            self.offsets.update(queue, fetcher.consumed, False)
        self.offsets.persist_some([queue])
        self.offsets.remove(queue)

    # ------------------------------------------------------------------ messages

    @property
    def waiting_messages(self) -> int:
        """Messages that were fetched and not handed out."""
        return sum(fetcher.held.count for fetcher in self._fetchers.values())

    def arrived(self, fetcher: Fetcher, messages: list[MessageExt]) -> None:
        """A fetcher has messages."""
        self._ready.append((fetcher, messages))
        if self._pollers:
            self._pollers.popleft().callback(None)

    def poll(self, timeout_millis: int | None = None) -> Deferred[list[MessageExt]]:
        """The next messages of some queue; an empty list when none came in time. They count as consumed.

        Fails with `MQClientError` when the consumer is not started, or stops meanwhile. May be cancelled.
        """
        return Deferred.fromCoroutine(self._poll(timeout_millis))

    async def _poll(self, timeout_millis: int | None) -> list[MessageExt]:
        found = await self._next(
            self.settings.poll_timeout_millis if timeout_millis is None else timeout_millis
        )
        if found is None:
            return []
        fetcher, messages = found
        fetcher.consume(messages)
        fetcher.make_room()
        self._call_hooks(fetcher.queue, messages)
        return messages

    async def _next(self, timeout_millis: int | None) -> tuple[Fetcher, list[MessageExt]] | None:
        """The next fetched messages; None when there are none in time (None: wait for ever)."""
        if not self.is_running:
            raise MQClientError("The consumer not running, please start it first.")
        if not self._ready and (timeout_millis is None or timeout_millis > 0):
            waiting: Deferred[None] = Deferred(self._forget_poller)
            self._pollers.append(waiting)
            if timeout_millis is not None:
                waiting.addTimeout(timeout_millis / 1000, self.clock, lambda value, _: None)
            await waiting
            if not self.is_running:
                raise MQClientError("the consumer stops")
        return self._ready.popleft() if self._ready else None

    def _forget_poller(self, deferred: Deferred[None]) -> None:
        if deferred in self._pollers:
            self._pollers.remove(deferred)

    def _call_hooks(self, queue: MessageQueue, messages: list[MessageExt]) -> None:
        hooks = self.settings.consume_hooks
        if hooks:
            context = ConsumeContext(self.group, messages, queue, self.config.namespace)
            call_hooks(hooks, "before_consume", context)
            context.success, context.status, context.return_type = (
                True,
                "CONSUME_SUCCESS",
                "SUCCESS",
            )
            call_hooks(hooks, "after_consume", context)

    def __aiter__(self) -> AsyncIterator[MessageExt]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[MessageExt]:
        """Messages one by one until the consumer stops; each counts as consumed when the next is asked for."""
        while self.is_running:
            try:
                found = await self._next(None)
            except MQClientError:
                return
            if found is None:
                continue
            fetcher, messages = found
            self._call_hooks(fetcher.queue, messages)
            left = deque(messages)
            try:
                # One that is not held any more: a seek, or another member; what follows was fetched in vain.
                while left and fetcher.held.holds(left[0]):
                    yield left[0]
                    fetcher.consume([left.popleft()])
            finally:
                self._put_back(fetcher, left)
            fetcher.make_room()

    def _put_back(self, fetcher: Fetcher, messages: Iterable[MessageExt]) -> None:
        """A loop was left in the middle: the message that it had last, and those behind it, are handed out again."""
        left = [message for message in messages if fetcher.held.holds(message)]
        if left and not fetcher.held.dropped:
            self._ready.appendleft((fetcher, left))
            if self._pollers:
                self._pollers.popleft().callback(None)

    # ------------------------------------------------------------------ positions

    def _fetcher(self, queue: MessageQueue) -> Fetcher:
        found = self._fetchers.get(self._wire(queue))
        if found is None:
            reason = ", may be rebalancing" if self._mode == "subscribe" else ""
            raise MQClientError(
                f"The message queue is not in assigned list{reason}, message queue: {queue}"
            )
        return found

    def seek(self, queue: MessageQueue, offset: int) -> Deferred[None]:
        """Go on at another offset of a queue.

        Fails with `MQClientError` when the queue is not read here, or has no such offset.
        """
        return Deferred.fromCoroutine(self._seek(queue, offset))

    async def _seek(self, queue: MessageQueue, offset: int) -> None:
        wire = self._fetcher(queue).queue
        low, high = await gatherResults(
            [self.brokers.min_offset(wire), self.brokers.max_offset(wire)]
        )
        if not low <= offset <= high:
            raise MQClientError(
                f"Seek offset illegal, seek offset = {offset}, min offset = {low}, "
                f"max offset = {high}"
            )
        self._seek_to(wire, offset)

    def _seek_to(self, wire: MessageQueue, offset: int) -> None:
        fetcher = self._fetcher(wire)
        self._ready = deque(item for item in self._ready if item[0] is not fetcher)
        fetcher.seek(offset)

    def seek_to_begin(self, queue: MessageQueue) -> Deferred[None]:
        """Go on at the first message that a queue has."""
        wire = self._fetcher(queue).queue
        return self.brokers.min_offset(wire).addCallback(lambda offset: self._seek_to(wire, offset))

    def seek_to_end(self, queue: MessageQueue) -> Deferred[None]:
        """Go on behind the last message that a queue has."""
        wire = self._fetcher(queue).queue
        return self.brokers.max_offset(wire).addCallback(lambda offset: self._seek_to(wire, offset))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Fetch nothing of some queues; what was fetched is handed out."""
        for queue in queues:
            self._fetcher(queue).pause()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Fetch them again."""
        for queue in queues:
            self._fetcher(queue).resume()

    def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> Deferred[int]:
        """The offset of the first message that was stored then or later."""
        return self.brokers.search_offset(self._wire(queue), timestamp_ms)

    def committed(self, queue: MessageQueue) -> Deferred[int | None]:
        """The offset that is committed; None when there is none."""
        return Deferred.fromCoroutine(self._committed(self._wire(queue)))

    async def _committed(self, queue: MessageQueue) -> int | None:
        noted = self.offsets.noted(queue)
        return await self.offsets.read(queue) if noted is None else noted

    def start_offset(self, queue: MessageQueue) -> Any:
        """Where to begin in a queue (a coroutine)."""
        return start_offset(
            queue,
            self.offsets,
            self.brokers,
            self.settings.consume_from_where,
            self.settings.consume_timestamp,
        )

    # ------------------------------------------------------------------ commits

    def commit(
        self, offsets: Mapping[MessageQueue, int] | None = None, persist: bool = True
    ) -> Deferred[None]:
        """Commit what was consumed, of all queues; or these offsets.

        :param persist: tell the brokers (or write the file) now, not within 5 s; fires when they have answered.
        """
        return Deferred.fromCoroutine(self._commit(offsets, persist))

    async def _commit(self, offsets: Mapping[MessageQueue, int] | None, persist: bool) -> None:
        if offsets is None:
            self._note_consumed()
            queues = list(self._fetchers)
        else:
            queues = [self._wire(queue) for queue in offsets]
            for queue, offset in zip(queues, offsets.values(), strict=True):
                if queue in self._fetchers:
                    self.offsets.update(queue, offset, False)
        if persist:
            await self.offsets.persist_some(queues, wait=True)

    def _note_consumed(self) -> None:
        for queue, fetcher in self._fetchers.items():
            if fetcher.consumed is not None:
                self.offsets.update(queue, fetcher.consumed, False)

    def _auto_commit(self) -> None:
        if self.settings.auto_commit:
            self._note_consumed()

    # ------------------------------------------------------------------ pulling

    def pull_from(
        self, queue: MessageQueue, subscription: SubscriptionData, offset: int, broker_id: int
    ) -> Deferred[tuple[PullResult, bool]]:
        """One pull, which the broker may hold until there is a message."""
        header = PullMessageRequestHeader(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=self.settings.pull_batch_size,
            sys_flag=pull_sys_flag(
                commit_offset=False, suspend=True, subscription=True, lite_pull=True
            ),
            commit_offset=0,
            suspend_timeout_millis=self.settings.broker_suspend_max_time_millis,
            subscription=subscription.sub_string,
            sub_version=0 if subscription.is_tag_type else subscription.sub_version,
            max_msg_bytes=2**31 - 1,
            expression_type=subscription.expression_type,
            broker_name=queue.broker_name,
        )
        return self.brokers.pull(
            queue,
            header,
            broker_id,
            self.settings.consumer_timeout_millis_when_suspend,
            lite=True,
        )

    # ------------------------------------------------------------------ life

    def _begin(self) -> None:
        self._committing.start()
        self._watching.start()

    async def _first_round(self) -> None:
        if self._mode == "assign":
            self._set_queues(self._assigned)
        await self._look_at_topics()
        if not self.is_running:
            return
        await self._within_bound(Deferred.fromCoroutine(self._all_begun()))

    async def _all_begun(self) -> None:
        await self.instance.rebalanced(self.group)
        begun = [fetcher.begun for fetcher in self._fetchers.values()]
        await DeferredList(begun, consumeErrors=True)

    async def _end(self) -> None:
        self._committing.stop()
        self._watching.stop()
        for fetcher in self._fetchers.values():
            fetcher.stop()
        self._auto_commit()
        while self._pollers:
            self._pollers.popleft().callback(None)
        await self.offsets.persist_some(self._fetchers, wait=True)
        self._fetchers.clear()
        self._ready.clear()

    def rebalance(self) -> Deferred[None] | None:
        """See `IConsumerRole`."""
        if self._mode != "subscribe" or not self.is_running:
            return None
        return Deferred.fromCoroutine(self._rebalance())

    async def _rebalance(self) -> None:
        for topic in list(self.subscriptions):
            found = await self._divide_if_possible(topic)
            if found is not None and self.is_running and topic in self.subscriptions:
                others = [queue for queue in self._fetchers if queue.topic != topic]
                self._set_queues([*others, *found[1]])

    def persist_offsets(self) -> Deferred[None] | None:
        """See `IConsumerRole`."""
        return self.offsets.persist(list(self._fetchers)) if self.is_running else None

    def _look_at_topics(self) -> Deferred[None]:
        looked = [
            self.instance.subscribe_queues(topic).addCallbacks(
                self._looked_at, _not_looked_at, callbackArgs=(topic,)
            )
            for topic in self._listeners
        ]
        return gatherResults(looked).addCallback(lambda _: None)

    def _looked_at(self, queues: list[MessageQueue], topic: str) -> None:
        before, self._known[topic] = self._known.get(topic), queues
        if before is not None and before != queues:
            try:
                self._listeners[topic](self.config.without_namespace(topic), queues)
            except Exception:
                log.failure("listener for the queues of {topic}", topic=topic)

    def _ask_anew(self) -> None:
        for queue, fetcher in list(self._fetchers.items()):
            fetcher.ask_anew(self.subscription(queue.topic))

    def reset_offsets(
        self, topic: str, offsets: Mapping[MessageQueue, int]
    ) -> Deferred[None] | None:
        """See `IConsumerRole`."""
        for queue, offset in offsets.items():
            if queue.topic == topic and queue in self._fetchers:
                self._seek_to(queue, offset)
                self.offsets.update(queue, offset, False)
        return self.offsets.persist_some(list(offsets))

    def running_info(self) -> ConsumerRunningInfo:
        """See `IConsumerRole`."""
        info = super().running_info()
        for queue, fetcher in self._fetchers.items():
            noted = self.offsets.noted(queue)
            info.mq_table[queue] = fetcher.held.info(-1 if noted is None else noted, 0.0)
        return info


def _not_looked_at(failure: Failure) -> None:
    """The next look will tell."""
