"""The consumer that calls a handler with messages as they come.

Stands for ``DefaultMQPushConsumer``. "Push" is what it looks like: underneath, queues are pulled (or popped) all the time.

A stop is graceful: fetching ends, handlers under way may finish (within ``await_termination_millis_when_shutdown``), exactly what was processed
is committed, queues are unlocked, and the brokers are told, so that the other members of the group take over at once. Messages that were
fetched and not handled yet are not lost: they are not committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import Logger

from txrocketmq.client.config import ClientConfig, check_class
from txrocketmq.client.consumer.base import ConsumerService
from txrocketmq.client.consumer.concurrent import ConcurrentConsumption
from txrocketmq.client.consumer.config import (
    PushConfig,
    Subscriptions,
    build_subscriptions,
)
from txrocketmq.client.consumer.handlers import (
    ConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    Handler,
    HandlerFunction,
    OrderlyContext,
    ReturnType,
)
from txrocketmq.client.consumer.incoming import rename_for_application
from txrocketmq.client.consumer.orderly import OrderlyConsumption
from txrocketmq.client.consumer.parts import Parts
from txrocketmq.client.consumer.pop import PopBrokers, PoppedOutcomes
from txrocketmq.client.consumer.rebalance import Rebalancer
from txrocketmq.client.consumer.stats import SAMPLE_S, ConsumerStats
from txrocketmq.client.instance import ClientInstance
from txrocketmq.client.periodic import Periodic
from txrocketmq.codec.bodies.admin import CMResult, ConsumeMessageDirectlyResult
from txrocketmq.codec.bodies.clients import ConsumerRunningInfo
from txrocketmq.interfaces import IBlockingPool, IDisk
from txrocketmq.model.heartbeat import SUB_ALL, build_subscription
from txrocketmq.model.message import MessageExt, MessageQueue
from txrocketmq.model.names import retry_topic
from txrocketmq.remoting.dispatch import RequestHook

log = Logger()

_DIRECT = {
    ConsumeConcurrentlyStatus.CONSUME_SUCCESS: CMResult.CR_SUCCESS,
    ConsumeConcurrentlyStatus.RECONSUME_LATER: CMResult.CR_LATER,
    ConsumeOrderlyStatus.SUCCESS: CMResult.CR_SUCCESS,
    ConsumeOrderlyStatus.COMMIT: CMResult.CR_COMMIT,
    ConsumeOrderlyStatus.ROLLBACK: CMResult.CR_ROLLBACK,
    ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT: CMResult.CR_LATER,
}


class PushConsumer(ConsumerService):
    """Consumes topics in the name of a group.

    ::

        async with PushConsumer(reactor, "group", "topic", handler, namesrv_addr="127.0.0.1:9876"):
            ...

    See `ConsumerService` for what all consumers have in common.

    :param subscriptions: a topic, or a map of topics to tag expressions, `MessageSelector` s or None.
    :param handler: called with a list of messages and a context; see `handlers`. `handlers.one_by_one` makes one of a function of
        single messages.
    :param settings: of this consumer.
    :param pool: where blocking handlers run; threads of its own unless given.
    :param disk: where broadcasting keeps its offsets; the real one unless given.
    """

    def __init__(
        self,
        reactor: Any,
        group: str,
        subscriptions: Subscriptions,
        handler: HandlerFunction,
        client: ClientConfig | None = None,
        settings: PushConfig | None = None,
        *,
        namesrv_addr: str = "",
        instance: ClientInstance | None = None,
        hooks: Sequence[RequestHook] = (),
        pool: IBlockingPool | None = None,
        disk: IDisk | None = None,
    ) -> None:
        if settings is None:
            settings = PushConfig()
        check_class("settings", settings, PushConfig)
        self.settings = attrs.evolve(settings)
        super().__init__(
            reactor, group, client, self.settings, namesrv_addr, instance, hooks, pool, disk
        )
        self.subscriptions = build_subscriptions(
            subscriptions, self.config.with_namespace, self._version()
        )
        self._parts = Parts(
            self.instance,
            self.config,
            self.group,
            self.settings,
            self._make_handler(handler),
            self.brokers,
            self.offsets,
            ConsumerStats(self.clock.seconds()),
            self.calm,
            self.subscriptions,
        )
        if self._parts.is_clustering:
            retry = retry_topic(self.group)
            self.subscriptions[retry] = build_subscription(
                retry, SUB_ALL, sub_version=self._version()
            )
        self._consumption: ConcurrentConsumption | OrderlyConsumption = (
            OrderlyConsumption(self._parts)
            if self.settings.orderly
            else ConcurrentConsumption(self._parts)
        )
        pop_brokers = PopBrokers(self.instance, self.group)
        pop_outcomes = PoppedOutcomes(self._parts, pop_brokers)
        self._popped = ConcurrentConsumption(self._parts, pop_outcomes)
        self._rebalancer = Rebalancer(
            self._parts, self._consumption, self._popped, pop_brokers, pop_outcomes
        )
        self._samples = Periodic(
            self.clock, f"statistics of group {self.group}", SAMPLE_S, self._sample
        )
        self._paused = False

    def _make_handler(self, function: HandlerFunction) -> Handler:
        pool = self.pool if self.settings.in_thread else None
        if self.settings.orderly:
            return Handler(
                function,
                ConsumeOrderlyStatus,
                ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT,
                self.group,
                pool,
            )
        return Handler(
            function,
            ConsumeConcurrentlyStatus,
            ConsumeConcurrentlyStatus.RECONSUME_LATER,
            self.group,
            pool,
        )

    # ------------------------------------------------------------------ life

    def _begin(self) -> None:
        self._consumption.start()
        self._popped.start()
        self._samples.start()

    async def _first_round(self) -> None:
        await self._within_bound(self.instance.rebalanced(self.group))

    async def _end(self) -> None:
        self._samples.stop()
        self._rebalancer.stop_fetching()
        bound_s = self.settings.await_termination_millis_when_shutdown / 1000
        await gatherResults([self._consumption.stop(bound_s), self._popped.stop(bound_s)])
        await self._rebalancer.leave_all()

    def suspend(self) -> None:
        """Fetch nothing until `resume`; messages that are here already are handled."""
        self._paused = True
        self._rebalancer.pause()

    def resume(self) -> None:
        """Fetch again."""
        self._paused = False
        self._rebalancer.resume()
        self.instance.rebalance_now(self.group)

    @property
    def is_suspended(self) -> bool:
        """Whether `suspend` was called last."""
        return self._paused

    # ------------------------------------------------------------------ what it does

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are consumed here now, sorted; with name space."""
        return sorted({*self._rebalancer.pullers, *self._rebalancer.poppers})

    @property
    def running_handlers(self) -> int:
        """Handlers under way; they follow the load, up to ``consume_thread_max``, so there is no pool to adjust."""
        return self._consumption.running + self._popped.running

    @property
    def waiting_messages(self) -> int:
        """Messages in memory that are not processed yet."""
        pulled = sum(puller.held.count for puller in self._rebalancer.pullers.values())
        popped = sum(popper.held.waiting for popper in self._rebalancer.poppers.values())
        return pulled + popped

    def send_message_back(self, message: MessageExt, delay_level: int = 0) -> Deferred[None]:
        """Have a message delivered again later, though its handler has dealt with it; -1 makes a dead letter of it."""
        return Deferred.fromCoroutine(
            self.brokers.send_back(
                message,
                self.config.with_namespace(message.topic),
                delay_level,
                self.settings.max_tries,
            )
        )

    def _ask_anew(self) -> None:
        for queue, puller in list(self._rebalancer.pullers.items()):
            puller.ask_anew(self.subscriptions.get(queue.topic))

    # ------------------------------------------------------------------ as the instance sees it

    def _sample(self) -> None:
        self._parts.stats.sample(self.clock.seconds())

    def rebalance(self) -> Deferred[None] | None:
        """See `IConsumerRole`."""
        if not self.is_running:
            return None
        return Deferred.fromCoroutine(self._rebalancer.run())

    def persist_offsets(self) -> Deferred[None] | None:
        """See `IConsumerRole`."""
        if not self.is_running:
            return None
        return self.offsets.persist(self._rebalancer.queues())

    def reset_offsets(
        self, topic: str, offsets: Mapping[MessageQueue, int]
    ) -> Deferred[None] | None:
        """See `IConsumerRole`."""
        return self._rebalancer.reset(topic, offsets)

    def running_info(self) -> ConsumerRunningInfo:
        """See `IConsumerRole`."""
        info = super().running_info()
        info.properties.update(
            PROP_CONSUMEORDERLY="true" if self.settings.orderly else "false",
            PROP_THREADPOOL_CORE_SIZE=str(self.settings.consume_thread_max),
        )
        now = self.clock.seconds()
        for queue, puller in self._rebalancer.pullers.items():
            noted = self.offsets.noted(queue)
            info.mq_table[queue] = puller.held.info(-1 if noted is None else noted, 0.0)
        for queue, popper in self._rebalancer.poppers.items():
            info.mq_pop_table[queue] = popper.held.info(0.0)
        for topic in self.subscriptions:
            info.status_table[topic] = self._parts.stats.status(topic, now)
        return info

    def consume_directly(
        self, message: MessageExt, broker_name: str | None
    ) -> ConsumeMessageDirectlyResult | Deferred[ConsumeMessageDirectlyResult]:
        """See `IConsumerRole`. Offsets and retries are not touched."""
        message.broker_name = broker_name or ""
        queue = MessageQueue(
            topic=message.topic, broker_name=message.broker_name, queue_id=message.queue_id
        )
        rename_for_application([message], message.topic, self.config.without_namespace)
        context = OrderlyContext(queue) if self.settings.orderly else ConcurrentlyContext(queue)
        began_s = self.clock.seconds()

        def judge(result: object) -> ConsumeMessageDirectlyResult:
            status, return_type, fault = self._parts.handler.judge(result)
            outcome = _DIRECT[status]
            if return_type is ReturnType.EXCEPTION:
                outcome = CMResult.CR_THROW_EXCEPTION
            elif return_type is ReturnType.RETURNNULL:
                outcome = CMResult.CR_RETURN_NULL
            return ConsumeMessageDirectlyResult(
                order=self.settings.orderly,
                auto_commit=getattr(context, "auto_commit", True),
                consume_result=outcome,
                remark=fault or None,
                spent_time_mills=int((self.clock.seconds() - began_s) * 1000),
            )

        result = self._parts.handler.call([message], context)
        if isinstance(result, Deferred):
            return result.addBoth(judge)
        return judge(result)
