"""How is one queue fetched ahead of its reader?

Stands for ``PullTaskImpl`` of ``DefaultLitePullConsumerImpl``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.client.consumer.incoming import prepare, rename_for_application
from txrocketmq.client.consumer.process_queue import ProcessQueue
from txrocketmq.client.consumer.pulling import (
    BROKER_BUSY_S,
    FLOW_CONTROL_S,
    LAGGING_SLAVE_S,
    PAUSED_S,
)
from txrocketmq.client.consumer.queue_loop import QueueLoop
from txrocketmq.client.results import PullResult, PullStatus
from txrocketmq.errors import BrokerError, RemotingError, RocketMQError
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.heartbeat import SubscriptionData
from txrocketmq.model.message import MessageExt, MessageQueue
from txrocketmq.model.names import MASTER_ID

if TYPE_CHECKING:
    from txrocketmq.client.consumer.lite_pull import LitePullConsumer

log = Logger()

OFFSET_RETRY_S = 3.0
_MIB = 1024 * 1024


class Fetcher(QueueLoop):
    """Pulls one queue ahead of its reader.

    :ivar next_offset: where to pull; None when the offset store has to be asked.
    :ivar consumed: the offset to commit; None when nothing was handed out yet.
    :ivar begun: fires when it is known where to pull, or nobody wants to know any more.
    """

    def __init__(self, owner: LitePullConsumer, queue: MessageQueue) -> None:
        super().__init__(owner.clock)
        self._owner = owner
        self._settings = owner.settings
        self.queue = queue
        self.held = ProcessQueue(owner.clock.seconds())
        self.next_offset: int | None = None
        self.consumed: int | None = None
        self.begun: Deferred[None] = Deferred()
        self._broker_id = MASTER_ID
        self._has_no_room = False

    def stop(self) -> None:
        """Pull no more."""
        self.held.dropped = True
        super().stop()
        self._has_begun()

    def _has_begun(self) -> None:
        if not self.begun.called:
            self.begun.callback(None)

    def make_room(self) -> None:
        """Messages were handed out: go on at once if that was waited for."""
        if self._has_no_room and self._timer is not None and self._timer.active():
            self._timer.reset(0)

    def seek(self, offset: int) -> None:
        """Go on there, and forget what was fetched."""
        self._forget()
        self.held.clear()
        self.next_offset = self.consumed = offset
        self._has_begun()
        self._step()

    def _step(self) -> None:
        self._timer = None
        if self.held.dropped:
            return
        self.held.last_pull_s = self._clock.seconds()
        if self.paused:
            self._later(PAUSED_S)
            return
        self._has_no_room = self._is_full()
        if self._has_no_room:
            self._later(FLOW_CONTROL_S)
            return
        if self.next_offset is None:
            asked: Deferred[Any] = Deferred.fromCoroutine(self._owner.start_offset(self.queue))
            self._waiting = asked
            asked.addCallbacks(self._begin_at, self._not_begun)
            return
        subscription = self._owner.subscription(self.queue.topic)
        pulled = self._owner.pull_from(self.queue, subscription, self.next_offset, self._broker_id)
        self._waiting = pulled
        pulled.addCallback(self._pulled, subscription).addErrback(self._failed)

    def _is_full(self) -> bool:
        settings, held = self._settings, self.held
        return (
            self._owner.waiting_messages >= settings.pull_threshold_for_all
            or held.count > settings.pull_threshold_for_queue
            or held.size_bytes > settings.pull_threshold_size_for_queue * _MIB
            or held.span > settings.consume_max_span
        )

    def _begin_at(self, offset: int) -> None:
        self._waiting = None
        self.next_offset = offset
        self._has_begun()
        self._step()

    def _not_begun(self, failure: Failure) -> None:
        self._waiting = None
        if self.held.dropped or isinstance(failure.value, CancelledError):
            return
        if self._owner.calm.may_tell("offset"):
            log.warn(
                "group {group}: where to begin in {queue} cannot be known now: {reason}",
                group=self._owner.group,
                queue=self.queue,
                reason=failure.getErrorMessage(),
            )
        self._later(OFFSET_RETRY_S)

    def _pulled(self, answer: tuple[PullResult, bool], subscription: SubscriptionData) -> None:
        self._waiting = None
        if self.held.dropped:
            return
        result, by_slave = answer
        self._broker_id = result.suggest_which_broker_id
        if result.status is PullStatus.OFFSET_ILLEGAL:
            assert self.next_offset is not None
            if by_slave and result.next_begin_offset < self.next_offset:
                self._later(LAGGING_SLAVE_S)
                return
            log.warn(
                "group {group}: {queue} has offsets {low} to {high}, {asked} is not among them; going on at {next}",
                group=self._owner.group,
                queue=self.queue,
                low=result.min_offset,
                high=result.max_offset,
                asked=self.next_offset,
                next=result.next_begin_offset,
            )
            is_same = result.next_begin_offset == self.next_offset
            self.next_offset = max(0, result.next_begin_offset)
            self._later(LAGGING_SLAVE_S if is_same else 0)
            return
        self.next_offset = result.next_begin_offset
        if result.status is PullStatus.FOUND:
            messages = prepare(
                result.messages,
                subscription,
                result.min_offset,
                result.max_offset,
                self._settings.filter_hooks,
            )
            if messages:
                self.held.put(messages)
                rename_for_application(
                    messages, self.queue.topic, self._owner.config.without_namespace
                )
                self._owner.arrived(self, messages)
        self._step()

    def _failed(self, failure: Failure) -> None:
        self._waiting = None
        error = failure.value
        if self.held.dropped or isinstance(error, CancelledError):
            return
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            self._later(BROKER_BUSY_S)
            return
        if not isinstance(error, RocketMQError):
            log.failure("pulling {queue}", failure, queue=self.queue)
        elif self._owner.calm.may_tell("pull"):
            log.warn(
                "group {group}: {queue} cannot be pulled: {error}",
                group=self._owner.group,
                queue=self.queue,
                error=error,
            )
        if isinstance(error, RemotingError):
            self._broker_id = MASTER_ID
            self._owner.brokers.refresh_route(self.queue.topic)
        self._later(self._owner.config.pull_time_delay_millis_when_exception / 1000)

    def consume(self, messages: Sequence[MessageExt]) -> None:
        """Messages were handed out."""
        if not self.held.dropped:
            offset = self.held.remove(messages, self._clock.seconds())
            if offset >= 0:
                self.consumed = offset
