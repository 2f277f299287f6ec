"""What do all consumers have in common? Their life, their subscriptions, and what they tell brokers about themselves.

Stands for the common half of ``DefaultMQPushConsumerImpl``, ``DefaultLitePullConsumerImpl`` and ``DefaultMQPullConsumerImpl``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
from twisted.internet.defer import Deferred, DeferredList, TimeoutError, succeed
from twisted.logger import Logger
from zope.interface import implementer

from txrocketmq.client.config import ClientConfig, check_class, chosen_client
from txrocketmq.client.consumer.config import (
    MessageSelector,
    PullConfig,
    PushConfig,
    check_group,
    subscription_of,
)
from txrocketmq.client.consumer.dividing import Division, divide
from txrocketmq.client.consumer.group_brokers import GroupBrokers
from txrocketmq.client.consumer.offsets import LocalOffsetStore, RemoteOffsetStore
from txrocketmq.client.consumer.parts import Calm, OffsetStore
from txrocketmq.client.instance import ClientInstance, shared_instance
from txrocketmq.client.interfaces import IConsumerRole
from txrocketmq.client.life import RoleService
from txrocketmq.client.producer.producer import CONSUME, Tracing, begin_tracing
from txrocketmq.client.trace import ConsumeTraceHook
from txrocketmq.codec.bodies.admin import ConsumeMessageDirectlyResult
from txrocketmq.codec.bodies.clients import ConsumerRunningInfo
from txrocketmq.errors import ResponseError, RocketMQError
from txrocketmq.interfaces import IBlockingPool, IDisk
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.heartbeat import (
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from txrocketmq.model.message import MessageExt, MessageQueue
from txrocketmq.model.names import is_retry_topic
from txrocketmq.remoting.dispatch import RequestHook
from txrocketmq.remoting.pools import BlockingPool
from txrocketmq.store.disk import RealDisk

log = Logger()

CLIENT_VERSION = "V5_4_0"
"""The release whose behaviour this client shows, as tools print it."""

FIRST_ROUND_S = 3.0
"""How long a start waits for the first division of queues and for where each begins."""


@implementer(IConsumerRole)
class ConsumerService(RoleService):
    """What all consumers have; see `RoleService` for their life.

    :param reactor: connects, has the threads, and is the clock.
    :param group: without name space.
    :param client: settings of the client; by itself a client of its own. Roles that share it share connections.
    :param namesrv_addr: short for ``client=ClientConfig(namesrv_addr=...)``.
    :param instance: share this one instead of the reactor's for the client id.
    :param hooks: see every request, for signatures (official ``RPCHook``); only where the client instance is made here.
    :param pool: for blocking work; a pool of its own unless given.
    :param disk: for the offsets of broadcasting.
    :ivar group: with name space.
    :ivar subscriptions: by topic, with name space.
    """

    consume_type = ConsumeType.CONSUME_PASSIVELY

    def __init__(
        self,
        reactor: Any,
        group: str,
        client: ClientConfig | None,
        settings: PushConfig | PullConfig,
        namesrv_addr: str,
        instance: ClientInstance | None,
        hooks: Sequence[RequestHook],
        pool: IBlockingPool | None,
        disk: IDisk | None,
    ) -> None:
        client = chosen_client(client, namesrv_addr)
        if instance is None:
            instance = shared_instance(reactor, client, hooks)
        config = instance.config
        self._reactor = reactor
        self.config = config
        self.group = config.with_namespace(group)
        check_group(self.group)
        settings.check()
        super().__init__(f"group {self.group}")
        # A list of its own: the hook of traces is added to it, not to the caller's.
        self._hooks = list(settings.consume_hooks)
        settings.consume_hooks = self._hooks
        self._settings = settings
        self.instance = instance
        self.clock = instance.clock
        self._pool = pool
        self._own_pool: BlockingPool | None = None
        self._disk = disk
        self.brokers = GroupBrokers(instance, self.group, settings.unit_mode)
        self.calm = Calm(self.clock)
        self.subscriptions: dict[str, SubscriptionData] = {}
        self._newest = 0
        self.offsets: OffsetStore = self._make_offsets()
        self._tracing: Tracing | None = None
        self._start_ms = 0

    # ------------------------------------------------------------------ life

    def start(self) -> Deferred[None]:
        """Begin; fires when the brokers know the group, its queues are divided for the first time as far as they can be, and it is known
        where each begins: what is sent from then on is consumed, also by a new group that begins with the last message. Where
        brokers do not answer, it fires after `FIRST_ROUND_S` all the same, and the rest goes on in the background.

        Fails and may be cancelled as all roles, see `RoleService.start`.
        """
        return super().start()

    async def _enter(self) -> None:
        self._start_ms = int(self.clock.seconds() * 1000)
        await self.instance.acquire()
        try:
            await self.offsets.load()
            self.instance.register_consumer(self.group, self)
        except Exception:
            await self._end_pool()
            await self.instance.release()
            raise

    async def _settle(self) -> None:
        self._begin()
        await self._begin_tracing()
        await self._look_up_routes()
        await self._check_expressions()
        await self.instance.heartbeat_now()
        if self.is_running:
            await self._first_round()

    async def _leave(self) -> None:
        try:
            await self._end()
            if self._tracing is not None:
                await self._tracing.stop()
            await self.instance.unregister_consumer(self.group)
        finally:
            await self._end_pool()
            await self.instance.release()

    async def _begin_tracing(self) -> None:
        """Have what is consumed told to the trace topic, where the client is set so."""
        if self.config.enable_trace:
            self._tracing = await begin_tracing(self._reactor, self.instance, self.group, CONSUME)
            if self._tracing is not None:
                self._hooks.append(ConsumeTraceHook(self._tracing.dispatcher, self._now_ms))

    def _begin(self) -> None:
        """The group is registered: begin timed work."""

    async def _first_round(self) -> None:
        """The brokers know the group now: divide its queues, and find out where each begins."""

    async def _within_bound(self, round_: Deferred[None]) -> None:
        """Wait for the first round, but not for brokers that do not answer."""
        try:
            await round_.addTimeout(FIRST_ROUND_S, self.clock)
        except TimeoutError:
            log.warn(
                "group {group}: after {seconds} s it is not known yet where all queues begin; messages that are "
                "sent meanwhile may be before that",
                group=self.group,
                seconds=FIRST_ROUND_S,
            )

    async def _end(self) -> None:
        """Finish what is under way, save offsets, give queues back. The brokers still know the group."""

    # ------------------------------------------------------------------ parts

    def _make_offsets(self) -> OffsetStore:
        if self._settings.message_model is MessageModel.CLUSTERING:
            return RemoteOffsetStore(self.brokers, self.group)
        return LocalOffsetStore(
            # A reactor without a file system, as tests have it, brings a disk of its own.
            self._disk or IDisk(self._reactor, None) or RealDisk(),
            self.pool,
            self.config.local_client_id,
            self.group,
            self._settings.offset_store_dir,
        )

    @property
    def pool(self) -> IBlockingPool:
        """For blocking work; made when it is first wanted. A reactor without threads brings one of its own."""
        if self._pool is None:
            self._pool = IBlockingPool(self._reactor, None)
        if self._pool is None:
            # One more than handlers may block, so that offsets can be written at any time.
            threads = getattr(self._settings, "consume_thread_max", 0) + 1
            self._own_pool = BlockingPool(self._reactor, f"consumer-{self.group}", threads)
            self._pool = self._own_pool
        return self._pool

    async def _end_pool(self) -> None:
        if self._own_pool is not None:
            ended = self._own_pool.stop()
            if not self._own_pool.jobs:
                await ended
            # Else a handler blocks its thread still, longer than it was waited for.

    # ------------------------------------------------------------------ subscriptions

    def _now_ms(self) -> int:
        return int(self.clock.seconds() * 1000)

    def _version(self) -> int:
        """Later than that of any subscription before, also where the clock was set back: brokers keep the newest."""
        self._newest = max(self._now_ms(), self._newest + 1)
        return self._newest

    def subscribe(self, topic: str, selector: str | MessageSelector | None = None) -> None:
        """Consume a topic, or another choice of its messages, from now on.

        :param topic: without name space.
        :param selector: a tag expression, or a `MessageSelector`; None is all.
        :raises MQClientError: topic or expression is none.
        """
        name = self.config.with_namespace(topic)
        self.subscriptions[name] = subscription_of(name, selector, self._version())
        self._tell_change()

    def unsubscribe(self, topic: str) -> None:
        """Consume a topic no more."""
        if self.subscriptions.pop(self.config.with_namespace(topic), None) is not None:
            self._tell_change()

    def _tell_change(self) -> None:
        """The brokers must know what the group subscribes to before it pulls."""
        if self.is_running:
            Deferred.fromCoroutine(self._told_change()).addErrback(
                lambda failure: log.failure("change of subscription", failure)
            )

    async def _told_change(self) -> None:
        await self._look_up_routes()
        await self.instance.heartbeat_now()
        self.instance.rebalance_now(self.group)
        self._ask_anew()

    def _ask_anew(self) -> None:
        """Another choice of messages is wanted: pulls that a broker holds for the old one are of no use."""

    async def _look_up_routes(self) -> None:
        """Know the routes as far as they can be known; what is not known is looked up again later."""
        topics = list(self.subscriptions)
        looked = [self.instance.routes.update(topic) for topic in topics]
        found = await DeferredList(looked, consumeErrors=True)
        for topic, (ok, outcome) in zip(topics, found, strict=True):
            if not ok and not is_retry_topic(topic):
                log.warn(
                    "group {group}: the route of {topic} is not known yet: {reason}",
                    group=self.group,
                    topic=topic,
                    reason=outcome.getErrorMessage(),  # type: ignore[attr-defined]
                )

    async def _check_expressions(self) -> None:
        """Official ``checkClientInBroker``: brokers must understand expressions that are no tags.

        :raises BrokerError: one does not.
        """
        for topic, subscription in list(self.subscriptions.items()):
            if subscription.is_tag_type:
                continue
            address = self.instance.routes.any_broker_of(topic)
            if address is not None:
                await self.instance.api.check_client_config(
                    address, self.group, self.instance.client_id, subscription
                )

    # ------------------------------------------------------------------ as the instance sees it

    def consumer_data(self) -> ConsumerData:
        """See `IConsumerRole`."""
        return ConsumerData(
            group_name=self.group,
            consume_type=self.consume_type,
            message_model=self._settings.message_model,
            consume_from_where=self._settings.consume_from_where,
            subscription_data_set=list(self.subscriptions.values()),
            unit_mode=self._settings.unit_mode,
        )

    def subscribed_topics(self) -> Iterable[str]:
        """See `IConsumerRole`."""
        return list(self.subscriptions)

    def queues_changed(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        """See `IConsumerRole`."""
        if self.is_running:
            self.instance.rebalance_now(self.group)

    def rebalance(self) -> Deferred[None] | None:
        """See `IConsumerRole`."""
        return None

    def persist_offsets(self) -> Deferred[None] | None:
        """See `IConsumerRole`."""
        return None

    def reset_offsets(
        self, topic: str, offsets: Mapping[MessageQueue, int]
    ) -> Deferred[None] | None:
        """See `IConsumerRole`."""
        return succeed(None)

    def consume_directly(
        self, message: MessageExt, broker_name: str | None
    ) -> ConsumeMessageDirectlyResult | Deferred[ConsumeMessageDirectlyResult]:
        """See `IConsumerRole`.

        :raises ResponseError: this consumer has no handler.
        """
        raise ResponseError(
            ResponseCode.SYSTEM_ERROR,
            f"The Consumer Group <{self.group}> has no handler: it is not a push consumer",
        )

    def consume_status(self, topic: str) -> Mapping[MessageQueue, int]:
        """See `IConsumerRole`."""
        return self.offsets.table(topic)

    def running_info(self) -> ConsumerRunningInfo:
        """See `IConsumerRole`."""
        properties = {
            _camel(name): _property_text(value)
            for name, value in attrs.asdict(self._settings, recurse=False).items()
        }
        properties.update(
            consumerGroup=self.group,
            namesrvAddr=self.config.namesrv_addr,
            clientIP=self.config.client_ip,
            instanceName=self.config.instance_name,
            PROP_NAMESERVER_ADDR=self.config.namesrv_addr,
            PROP_CONSUME_TYPE=self.consume_type.value,
            PROP_CLIENT_VERSION=CLIENT_VERSION,
            PROP_CONSUMER_START_TIMESTAMP=str(self._start_ms),
        )
        return ConsumerRunningInfo(
            properties=properties, subscription_set=list(self.subscriptions.values())
        )


class ActiveConsumer(ConsumerService):
    """A consumer that hands out messages when it is asked; see `ConsumerService` for the parameters."""

    consume_type = ConsumeType.CONSUME_ACTIVELY

    def __init__(
        self,
        reactor: Any,
        group: str,
        client: ClientConfig | None = None,
        settings: PullConfig | None = None,
        *,
        namesrv_addr: str = "",
        instance: ClientInstance | None = None,
        hooks: Sequence[RequestHook] = (),
        pool: IBlockingPool | None = None,
        disk: IDisk | None = None,
    ) -> None:
        if settings is None:
            settings = PullConfig()
        check_class("settings", settings, PullConfig)
        self.settings = attrs.evolve(settings)
        super().__init__(
            reactor, group, client, self.settings, namesrv_addr, instance, hooks, pool, disk
        )
        self._prepare()

    def _prepare(self) -> None:
        """Make what the role keeps for itself."""

    async def _divide(self, topic: str) -> Division | None:
        """See `divide`."""
        settings = self.settings
        return await divide(
            self.instance, self.group, topic, settings.message_model, settings.allocate_strategy
        )

    async def _divide_if_possible(self, topic: str) -> Division | None:
        """See `divide`; None, too, where routes or members cannot be known now."""
        try:
            return await self._divide(topic)
        except RocketMQError as error:
            if self.calm.may_tell(f"rebalance {topic}"):
                log.warn(
                    "group {group}: the queues of {topic} cannot be divided now: {error}",
                    group=self.group,
                    topic=topic,
                    error=error,
                )
            return None

    def _wire(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(
            topic=self.config.with_namespace(queue.topic),
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
        )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _property_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else str(value)
