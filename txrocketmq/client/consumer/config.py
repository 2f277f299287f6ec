"""What can be set on a consumer? The official settings in snake_case, with their defaults and their bounds.

Stands for the fields of ``DefaultMQPushConsumer``, ``DefaultLitePullConsumer`` and ``DefaultMQPullConsumer``, and for ``checkConfig``. Times
whose names say ``millis`` are in ms; ``consume_timeout`` is in minutes, as it is officially.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import attrs

from txrocketmq.client.config import check_kinds, check_least
from txrocketmq.client.consumer.allocation import AllocateAveragely
from txrocketmq.client.consumer.incoming import FilterHook
from txrocketmq.client.consumer.offsets import LOCAL_OFFSETS_DIR
from txrocketmq.client.interfaces import IAllocateStrategy, IConsumeHook
from txrocketmq.errors import MQClientError
from txrocketmq.model.heartbeat import (
    SUB_ALL,
    ConsumeFromWhere,
    MessageModel,
    SubscriptionData,
    build_subscription,
)
from txrocketmq.model.message import MessageQueue
from txrocketmq.model.names import DEFAULT_CONSUMER_GROUP, group_fault, topic_fault

UNLIMITED = -1
DEFAULT_MAX_RECONSUME_TIMES = 16
HALF_AN_HOUR_S = 1800
TIMESTAMP_FORMAT = "%Y%m%d%H%M%S"

QueueListener = Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], object]
"""Told a topic, all its queues and those of this member, when the latter change (official ``MessageQueueListener``)."""


@attrs.frozen
class MessageSelector:
    """Which messages of a topic are wanted, by tag or by SQL92 (official ``MessageSelector``)."""

    expression: str
    expression_type: str = "TAG"

    @classmethod
    def by_tag(cls, expression: str) -> MessageSelector:
        """``TagA || TagB``, ``*`` for all."""
        return cls(expression)

    @classmethod
    def by_sql(cls, expression: str) -> MessageSelector:
        """``a > 3 AND b = 'x'``, compared by the broker with the messages' properties."""
        return cls(expression, "SQL92")


Subscriptions = str | Mapping[str, str | MessageSelector | None]
"""A topic, or topics with a tag expression or a `MessageSelector` each; None is all of the topic."""


def build_subscriptions(
    subscriptions: Subscriptions, with_namespace: Callable[[str], str], version: int
) -> dict[str, SubscriptionData]:
    """Subscriptions by topic, with name space.

    :raises MQClientError: a topic or an expression is none.
    """
    if isinstance(subscriptions, str):
        subscriptions = {subscriptions: SUB_ALL}
    if not isinstance(subscriptions, Mapping):
        raise MQClientError(
            f"subscriptions must be a topic, or a dict of topics and what is wanted of each, not {subscriptions!r:.200}"
        )
    found = {}
    for topic, selector in subscriptions.items():
        name = with_namespace(topic)
        found[name] = subscription_of(name, selector, version)
    return found


def subscription_of(
    topic: str, selector: str | MessageSelector | None, version: int
) -> SubscriptionData:
    """One subscription.

    :raises MQClientError: topic or expression is none.
    """
    fault = topic_fault(topic)
    if fault is not None:
        raise MQClientError(fault)
    if isinstance(selector, MessageSelector):
        return build_subscription(
            topic, selector.expression, selector.expression_type, sub_version=version
        )
    return build_subscription(topic, selector or SUB_ALL, sub_version=version)


def check_group(group: str) -> None:
    """Refuse names that no consumer group may have.

    :raises MQClientError: saying why.
    """
    fault = group_fault(group)
    if fault is not None:
        raise MQClientError(fault)
    if group == DEFAULT_CONSUMER_GROUP:
        raise MQClientError(
            f"consumerGroup can not equal {DEFAULT_CONSUMER_GROUP}, please specify another one."
        )


def half_an_hour_ago() -> str:
    """The official default of ``consume_timestamp``: local time as ``yyyyMMddHHmmss``."""
    return datetime.fromtimestamp(time.time() - HALF_AN_HOUR_S).strftime(TIMESTAMP_FORMAT)


def parse_timestamp_ms(text: str) -> int:
    """A ``yyyyMMddHHmmss`` of local time as ms since 1970.

    :raises MQClientError: it is none.
    """
    try:
        return int(datetime.strptime(text, TIMESTAMP_FORMAT).timestamp() * 1000)
    except ValueError:
        raise MQClientError(
            f"consumeTimestamp is invalid, the valid format is yyyyMMddHHmmss,but received {text}"
        ) from None


_strategy: Any = attrs.field(factory=AllocateAveragely)


@attrs.define(kw_only=True)
class PushConfig:
    """How a push consumer consumes.

    :ivar orderly: queue by queue in order, each by one member alone; handlers answer with `ConsumeOrderlyStatus`.
    :ivar in_thread: the handler may block; it runs in a pool of ``consume_thread_max`` threads.
    :ivar message_model: shared among the members of the group, or everything to each.
    :ivar consume_from_where: where a group without an offset begins.
    :ivar consume_timestamp: for CONSUME_FROM_TIMESTAMP, local time ``yyyyMMddHHmmss``; half an hour ago by default.
    :ivar consume_thread_max: handlers that run at a time.
    :ivar consume_concurrently_max_span: pulling stops while a queue's messages lie further apart than this.
    :ivar pull_threshold_for_queue: pulling stops while a queue has more messages than this in memory.
    :ivar pull_threshold_size_for_queue: ... more MiB.
    :ivar pull_threshold_for_topic: the same for a topic, divided by the member's queues; -1 is no bound.
    :ivar pull_threshold_size_for_topic: ... in MiB.
    :ivar pop_threshold_for_queue: popped messages of a queue that may wait for their acknowledgement.
    :ivar pull_interval: ms between two pulls of a queue.
    :ivar consume_message_batch_max_size: messages that a handler gets at a time.
    :ivar max_reconsume_times: tries before a message becomes a dead letter; -1 is 16, in orderly mode no bound.
    :ivar suspend_current_queue_time_millis: how long a suspended queue waits.
    :ivar consume_timeout: minutes after which a message is given back, whatever its handler does.
    :ivar client_rebalance: False: the broker divides the queues, and says whether they are pulled or popped (POP).
    :ivar await_termination_millis_when_shutdown: how long a stop waits for handlers that run.
    :ivar consume_hooks: see messages before and after the handler.
    :ivar filter_hooks: may take messages out before the handler.
    :ivar message_queue_listener: told when the member's queues change.
    :ivar offset_store_dir: where broadcasting keeps its offsets.
    """

    orderly: bool = False
    in_thread: bool = False
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_timestamp: str = attrs.field(factory=half_an_hour_ago)
    allocate_strategy: IAllocateStrategy = _strategy
    consume_thread_max: int = 20
    consume_concurrently_max_span: int = 2000
    pull_threshold_for_queue: int = 1000
    pull_threshold_size_for_queue: int = 100
    pull_threshold_for_topic: int = UNLIMITED
    pull_threshold_size_for_topic: int = UNLIMITED
    pop_threshold_for_queue: int = 96
    pull_interval: int = 0
    consume_message_batch_max_size: int = 1
    pull_batch_size: int = 32
    pull_batch_size_in_bytes: int = 256 * 1024
    post_subscription_when_pull: bool = False
    unit_mode: bool = False
    max_reconsume_times: int = UNLIMITED
    suspend_current_queue_time_millis: int = 1000
    consume_timeout: float = 15
    client_rebalance: bool = True
    pop_invisible_time: int = 60_000
    pop_batch_nums: int = 32
    await_termination_millis_when_shutdown: int = 10_000
    consume_hooks: Sequence[IConsumeHook] = ()
    filter_hooks: Sequence[FilterHook] = ()
    message_queue_listener: QueueListener | None = None
    offset_store_dir: str = LOCAL_OFFSETS_DIR

    @property
    def max_tries(self) -> int:
        """``max_reconsume_times`` as brokers are told: 16 when it is not set."""
        if self.max_reconsume_times == UNLIMITED:
            return DEFAULT_MAX_RECONSUME_TIMES
        return self.max_reconsume_times

    def check(self) -> None:
        """Official ``checkConfig``.

        :raises MQClientError: naming the option.
        """
        check_kinds(self)
        parse_timestamp_ms(self.consume_timestamp)
        _check_range("consumeThreadMax", self.consume_thread_max, 1, 1000)
        span = self.consume_concurrently_max_span
        _check_range("consumeConcurrentlyMaxSpan", span, 1, 65535)
        _check_range("pullThresholdForQueue", self.pull_threshold_for_queue, 1, 65535)
        _check_range("pullThresholdSizeForQueue", self.pull_threshold_size_for_queue, 1, 1024)
        if self.pull_threshold_for_topic != UNLIMITED:
            _check_range("pullThresholdForTopic", self.pull_threshold_for_topic, 1, 6_553_500)
        if self.pull_threshold_size_for_topic != UNLIMITED:
            _check_range(
                "pullThresholdSizeForTopic", self.pull_threshold_size_for_topic, 1, 102_400
            )
        _check_range("pullInterval", self.pull_interval, 0, 65535)
        _check_range("consumeMessageBatchMaxSize", self.consume_message_batch_max_size, 1, 1024)
        _check_range("pullBatchSize", self.pull_batch_size, 1, 1024)
        _check_range("popInvisibleTime", self.pop_invisible_time, 5_000, 300_000)
        _check_range("popBatchNums", self.pop_batch_nums, 1, 32)
        check_least(self, 0, "await_termination_millis_when_shutdown", "pop_threshold_for_queue")
        if self.consume_timeout <= 0:
            raise MQClientError("consumeTimeout must be greater than 0")


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise MQClientError(f"{name} Out of range [{low}, {high}]")


@attrs.define(kw_only=True)
class PullConfig:
    """How lite pull and pull consumers pull.

    :ivar auto_commit: offsets of polled messages are committed every ``auto_commit_interval_millis``.
    :ivar pull_batch_size: messages of one pull.
    :ivar pull_threshold_for_all: messages in memory, all queues together.
    :ivar poll_timeout_millis: how long ``poll`` waits unless told otherwise.
    :ivar broker_suspend_max_time_millis: how long a broker may hold a pull.
    :ivar consumer_timeout_millis_when_suspend: how long such a pull is waited for.
    :ivar consumer_pull_timeout_millis: how long any other pull is waited for.
    """

    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_timestamp: str = attrs.field(factory=half_an_hour_ago)
    allocate_strategy: IAllocateStrategy = _strategy
    auto_commit: bool = True
    auto_commit_interval_millis: int = 5_000
    pull_batch_size: int = 10
    pull_threshold_for_all: int = 10_000
    pull_threshold_for_queue: int = 1000
    pull_threshold_size_for_queue: int = 100
    consume_max_span: int = 2000
    poll_timeout_millis: int = 5_000
    broker_suspend_max_time_millis: int = 20_000
    consumer_timeout_millis_when_suspend: int = 30_000
    consumer_pull_timeout_millis: int = 10_000
    topic_metadata_check_interval_millis: int = 30_000
    max_reconsume_times: int = DEFAULT_MAX_RECONSUME_TIMES
    unit_mode: bool = False
    consume_hooks: Sequence[IConsumeHook] = ()
    filter_hooks: Sequence[FilterHook] = ()
    offset_store_dir: str = LOCAL_OFFSETS_DIR

    def check(self) -> None:
        """Official ``checkConfig``.

        :raises MQClientError: naming the option.
        """
        check_kinds(self)
        parse_timestamp_ms(self.consume_timestamp)
        check_least(self, 0, "broker_suspend_max_time_millis")
        check_least(
            self,
            1,
            "auto_commit_interval_millis",
            "topic_metadata_check_interval_millis",
            "consumer_pull_timeout_millis",
            "pull_batch_size",
            "pull_threshold_for_all",
            "pull_threshold_for_queue",
            "pull_threshold_size_for_queue",
            "consume_max_span",
        )
        if self.consumer_timeout_millis_when_suspend < self.broker_suspend_max_time_millis:
            raise MQClientError(
                "Long polling mode, the consumer consumerTimeoutMillisWhenSuspend must greater than"
                " brokerSuspendMaxTimeMillis"
            )
