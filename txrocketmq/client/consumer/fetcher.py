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
from txrocketmq.client.consumer.pull_loop import PullLoop
from txrocketmq.client.consumer.pulling import FLOW_CONTROL_S, LAGGING_SLAVE_S, PAUSED_S
from txrocketmq.client.results import PullResult, PullStatus
from txrocketmq.model.heartbeat import SubscriptionData
from txrocketmq.model.message import MessageExt, MessageQueue

if TYPE_CHECKING:
    from txrocketmq.client.consumer.lite_pull import LitePullConsumer

log = Logger()

OFFSET_RETRY_S = 3.0
_MIB = 1024 * 1024


class Fetcher(PullLoop):
    """Pulls one queue ahead of its reader.

    :ivar next_offset: where to pull; None when the offset store has to be asked.
    :ivar consumed: the offset to commit; None when nothing was handed out yet.
    :ivar begun: fires when it is known where to pull, or nobody wants to know any more.
    """

    def __init__(self, owner: LitePullConsumer, queue: MessageQueue) -> None:
        super().__init__(owner, queue, ProcessQueue(owner.clock.seconds()))
        self._owner = owner
        self._settings = owner.settings
        self.next_offset: int | None = None
        self.consumed: int | None = None
        self.begun: Deferred[None] = Deferred()
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
        self.held.clear()
        self.next_offset = self.consumed = offset
        self._has_begun()
        self._ask_at_once()

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
        self._asked_for = subscription
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
        if self._owner.subscription(self.queue.topic) is not subscription:
            self._step()
            return
        result, by_slave = answer
        self._broker_id = result.suggest_which_broker_id
        assert self.next_offset is not None
        if result.status is PullStatus.OFFSET_ILLEGAL:
            if by_slave and result.next_begin_offset < self.next_offset:
                self._later(LAGGING_SLAVE_S)
                return
            self._tell_moved(result, self.next_offset)
            is_new = result.next_begin_offset != self.next_offset
            self.next_offset = max(0, result.next_begin_offset)
            # A range that moves all the time makes no load.
            is_new = is_new and self._owner.calm.may_tell(f"moved {self.queue}")
            self._later(0 if is_new else LAGGING_SLAVE_S)
            return
        following = self._following(result, self.next_offset)
        if following is None:
            return
        is_fruitless = following == self.next_offset
        self.next_offset = following
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
        self._go_on(self.held.last_pull_s, is_fruitless=is_fruitless)

    def consume(self, messages: Sequence[MessageExt]) -> None:
        """Messages were handed out."""
        if not self.held.dropped:
            offset = self.held.remove(messages, self._clock.seconds())
            if offset >= 0:
                self.consumed = offset
