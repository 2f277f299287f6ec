"""The seams of the client: what an instance asks of the roles it carries, and what consumers and producers ask of their parts.

Rules and units are those of `txrocketmq.interfaces`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zope.interface import Attribute, Interface

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from txrocketmq.codec.bodies.admin import ConsumeMessageDirectlyResult
    from txrocketmq.codec.bodies.clients import ConsumerRunningInfo
    from txrocketmq.model.heartbeat import ConsumerData
    from txrocketmq.model.message import MessageExt, MessageQueue


class IProducerRole(Interface):
    """A producer group of this process, as its `client.instance.ClientInstance` knows it (official ``MQProducerInner``)."""

    group = Attribute("The producer group, with its namespace if it has one.")

    def publish_topics() -> Iterable[str]:
        """Topics whose routes have to be kept fresh (with their namespace)."""

    def check_transaction(message: MessageExt, header: Any, address: str) -> None:
        """A broker asks what became of a half message (``CheckTransactionStateRequestHeader``). Must not wait: the verdict goes
        back on its own, with END_TRANSACTION."""


class IConsumerRole(Interface):
    """A consumer group of this process, as its `client.instance.ClientInstance` knows it (official ``MQConsumerInner``).

    All methods run in the reactor thread. Names are those on the wire, with namespace.
    """

    group = Attribute("The consumer group.")

    def consumer_data() -> ConsumerData:
        """What the heartbeat says of the group and its subscriptions."""

    def subscribed_topics() -> Iterable[str]:
        """Topics whose routes have to be kept fresh, the retry topic among them."""

    def queues_changed(topic: str, queues: Sequence[MessageQueue]) -> None:
        """The route says that a topic has these readable queues now (sorted)."""

    def rebalance() -> Deferred[None] | None:
        """Divide the queues anew: every 20 s, and when members or queues change. Never called again before it is done."""

    def persist_offsets() -> Deferred[None] | None:
        """Save what was consumed: every 5 s."""

    def reset_offsets(topic: str, offsets: Mapping[MessageQueue, int]) -> Deferred[None] | None:
        """An operator moves the group: go on at these logical offsets."""

    def consume_status(topic: str) -> Mapping[MessageQueue, int]:
        """Where the member stands in its queues of a topic."""

    def running_info() -> ConsumerRunningInfo:
        """All that the member tells about itself."""

    def consume_directly(
        message: MessageExt, broker_name: str | None
    ) -> ConsumeMessageDirectlyResult | Deferred[ConsumeMessageDirectlyResult]:
        """Consume one message by order of an operator."""


class IOffsetStore(Interface):
    """Where a group stands in its queues (official ``OffsetStore``): at the brokers, or in a file for broadcasting."""

    def load() -> Deferred[None]:
        """Read what is kept locally; nothing where the brokers keep it."""

    def update(queue: MessageQueue, offset: int, increase_only: bool) -> None:
        """Note the next logical offset to consume; with ``increase_only`` a smaller one than noted is ignored."""

    def noted(queue: MessageQueue) -> int | None:
        """The offset in memory, None when there is none."""

    def read(queue: MessageQueue) -> Deferred[int | None]:
        """The offset that was saved last, None when there is none. Fails with `BrokerError` or `RemotingError` when it cannot be
        known: nobody may begin anew because of that."""

    def persist(queues: Iterable[MessageQueue]) -> Deferred[None]:
        """Save these queues' offsets, and forget those of others."""

    def remove(queue: MessageQueue) -> None:
        """Forget the offset in memory."""

    def table(topic: str | None = None) -> dict[MessageQueue, int]:
        """A copy of what is noted."""


class IAllocateStrategy(Interface):
    """Divides the queues of a topic among the members of a group (official ``AllocateMessageQueueStrategy``): every member
    computes it alone, so all must come to the same result."""

    name = Attribute("The official name (``AVG`` ...).")

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The queues of ``client_id``. ``queues`` and ``client_ids`` are sorted."""


class ISendHook(Interface):
    """Sees messages on their way out (official ``SendMessageHook``). An error in it is logged and harms no send."""

    name = Attribute("For the log.")

    def before_send(context: Any) -> None:
        """A `client.hooks.SendContext`; a message may still be changed, except in a batch."""

    def after_send(context: Any) -> None:
        """The same context, with result or error."""


class IConsumeHook(Interface):
    """Sees messages that are consumed (official ``ConsumeMessageHook``). An error in it is logged and harms nothing."""

    name = Attribute("For the log.")

    def before_consume(context: Any) -> None:
        """A `client.hooks.ConsumeContext`, before the handler is called."""

    def after_consume(context: Any) -> None:
        """The same context, with the outcome."""
