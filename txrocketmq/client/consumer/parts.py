"""What do the parts of one consumer share?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from twisted.internet.interfaces import IReactorTime

from txrocketmq.client.config import ClientConfig
from txrocketmq.client.consumer.config import PushConfig
from txrocketmq.client.consumer.group_brokers import GroupBrokers
from txrocketmq.client.consumer.handlers import Handler
from txrocketmq.client.consumer.offsets import LocalOffsetStore, RemoteOffsetStore
from txrocketmq.client.consumer.stats import ConsumerStats
from txrocketmq.client.hooks import ConsumeContext, call_hooks
from txrocketmq.model.heartbeat import MessageModel, SubscriptionData
from txrocketmq.model.message import MessageExt, MessageQueue

if TYPE_CHECKING:
    from txrocketmq.client.instance import ClientInstance

OffsetStore = RemoteOffsetStore | LocalOffsetStore

LOG_EVERY_S = 10.0
"""Seconds between two lines in the log about the same trouble."""


class Calm:
    """Says when a trouble that goes on may be told again."""

    def __init__(self, clock: IReactorTime, every_s: float = LOG_EVERY_S) -> None:
        self._clock = clock
        self._every_s = every_s
        self._told: dict[str, float] = {}

    def may_tell(self, trouble: str) -> bool:
        """Whether the last line about it is old enough; counts as told then."""
        now = self._clock.seconds()
        last = self._told.get(trouble)
        if last is not None and now - last < self._every_s:
            return False
        self._told[trouble] = now
        return True


@attrs.define(eq=False)
class Parts:
    """One push consumer's parts.

    :ivar group: with name space.
    :ivar subscriptions: by topic, with name space; the retry topic's among them.
    :ivar pop_retry: retry topics for single topics (POP), each with its topic, where they have to be pulled.
    """

    instance: ClientInstance
    config: ClientConfig
    group: str
    settings: PushConfig
    handler: Handler
    brokers: GroupBrokers
    offsets: OffsetStore
    stats: ConsumerStats
    calm: Calm
    subscriptions: dict[str, SubscriptionData]
    pop_retry: dict[str, str] = attrs.field(factory=dict)

    @property
    def clock(self) -> IReactorTime:
        """Time, and timed calls."""
        return self.instance.clock

    @property
    def is_clustering(self) -> bool:
        """Whether members share the messages."""
        return self.settings.message_model is MessageModel.CLUSTERING

    def before_handler(
        self, messages: list[MessageExt], queue: MessageQueue
    ) -> ConsumeContext | None:
        """Call the hooks; the context for `after_handler`, None when there are no hooks."""
        hooks = self.settings.consume_hooks
        if not hooks:
            return None
        context = ConsumeContext(self.group, messages, queue, self.config.namespace)
        call_hooks(hooks, "before_consume", context)
        return context

    def after_handler(
        self, context: ConsumeContext | None, status: str, return_type: str, success: bool
    ) -> None:
        """Call the hooks again, with the outcome."""
        if context is not None:
            context.status, context.return_type, context.success = status, return_type, success
            call_hooks(self.settings.consume_hooks, "after_consume", context)
