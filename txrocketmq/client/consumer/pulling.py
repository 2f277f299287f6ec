"""How are a queue's messages fetched? One pull at a time, again and again, unless too many wait already.

Stands for ``DefaultMQPushConsumerImpl.pullMessage``, ``PullRequest`` and ``PullMessageService``. What a pull's answer means:

* FOUND: messages are put into the process queue and handed on; the next pull follows at once, or after ``pull_interval``.
* NO_NEW_MSG, NO_MATCHED_MSG: the next pull follows at once from the offset that the broker names; where nothing waits to be processed, that
  offset counts as consumed.
* OFFSET_ILLEGAL: the broker's range has moved. The queue is given up and assigned anew from the offset that the broker names. A slave's word
  is not taken for going back: it may lag behind its master, so it is asked again until it has caught up.

A pull is answered by the member that the answer before it suggested; when that one cannot be reached, by the master again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.logger import Logger

from txrocketmq.client.consumer.config import UNLIMITED
from txrocketmq.client.consumer.incoming import prepare, rename_for_application
from txrocketmq.client.consumer.parts import Parts
from txrocketmq.client.consumer.process_queue import ProcessQueue
from txrocketmq.client.consumer.pull_loop import PullLoop
from txrocketmq.client.results import PullResult, PullStatus
from txrocketmq.codec.headers import PullMessageRequestHeader
from txrocketmq.model.flags import pull_sys_flag
from txrocketmq.model.heartbeat import SubscriptionData
from txrocketmq.model.message import MessageExt, MessageQueue
from txrocketmq.model.names import is_retry_topic

log = Logger()

BROKER_SUSPEND_MS = 15_000
"""How long a broker may hold a pull."""
PULL_TIMEOUT_MS = 30_000
FLOW_CONTROL_S = 0.05
PAUSED_S = 1.0
LAGGING_SLAVE_S = 1.0
NOT_LOCKED_S = 3.0

_MIB = 1024 * 1024

Deliver = Callable[[MessageQueue, ProcessQueue, Sequence[MessageExt]], object]


class QueuePuller(PullLoop):
    """Fetches one queue's messages until it is stopped.

    :param next_offset: where to begin.
    :param deliver: told of messages that were put into the process queue.
    :param share: how many queues the bounds for a topic are divided by.
    :param moved: told the offset from which to begin anew.
    """

    def __init__(
        self,
        parts: Parts,
        queue: MessageQueue,
        held: ProcessQueue,
        next_offset: int,
        deliver: Deliver,
        share: Callable[[], int],
        moved: Callable[[QueuePuller, int], object],
    ) -> None:
        super().__init__(parts, queue, held, quiet=is_retry_topic(queue.topic))
        self._parts = parts
        self._settings = parts.settings
        self.next_offset = next_offset
        self._deliver = deliver
        self._share = share
        self._moved = moved
        self._renames = is_retry_topic(queue.topic) or bool(parts.config.namespace)

    # ------------------------------------------------------------------ asking

    def _step(self) -> None:
        self._timer = None
        held = self.held
        if self._stopped or held.dropped:
            return
        now = self._clock.seconds()
        held.last_pull_s = now
        if self.paused:
            self._later(PAUSED_S)
            return
        if self._is_full():
            self._later(FLOW_CONTROL_S)
            return
        if self._settings.orderly and self._parts.is_clustering and not held.locked:
            self._later(NOT_LOCKED_S)
            return
        subscription = self._parts.subscriptions.get(self.queue.topic)
        if subscription is None:
            self._later(self._parts.config.pull_time_delay_millis_when_exception / 1000)
            return
        committed = self._parts.offsets.noted(self.queue) or 0
        commits = committed > 0 and self._parts.is_clustering
        sends_expression = (
            self._settings.post_subscription_when_pull and not subscription.class_filter_mode
        )
        header = PullMessageRequestHeader(
            consumer_group=self._parts.group,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            queue_offset=self.next_offset,
            max_msg_nums=self._settings.pull_batch_size,
            sys_flag=pull_sys_flag(
                commit_offset=commits,
                suspend=True,
                subscription=sends_expression,
                class_filter=subscription.class_filter_mode,
            ),
            commit_offset=committed if commits else 0,
            suspend_timeout_millis=BROKER_SUSPEND_MS,
            subscription=subscription.sub_string if sends_expression else None,
            sub_version=subscription.sub_version,
            max_msg_bytes=self._settings.pull_batch_size_in_bytes,
            expression_type=subscription.expression_type,
            broker_name=self.queue.broker_name,
        )
        asked = self._parts.brokers.pull(self.queue, header, self._broker_id, PULL_TIMEOUT_MS)
        self._waiting = asked
        self._asked_for = subscription
        asked.addCallback(self._answered, now, subscription)
        asked.addErrback(self._failed)

    def _is_full(self) -> bool:
        held, settings = self.held, self._settings
        most = settings.pull_threshold_for_queue
        most_bytes = settings.pull_threshold_size_for_queue * _MIB
        if settings.pull_threshold_for_topic != UNLIMITED:
            most = max(1, settings.pull_threshold_for_topic // self._share())
        if settings.pull_threshold_size_for_topic != UNLIMITED:
            most_bytes = max(1, settings.pull_threshold_size_for_topic // self._share()) * _MIB
        if held.count > most:
            trouble = f"{held.count} messages wait, more than {most}"
        elif held.size_bytes > most_bytes:
            trouble = f"{held.size_bytes} bytes wait, more than {most_bytes}"
        elif not settings.orderly and held.span > settings.consume_concurrently_max_span:
            trouble = (
                f"messages from offset {held.first_offset()} on wait, {held.span} behind the newest"
            )
        else:
            return False
        if self._parts.calm.may_tell("full"):
            log.warn(
                "group {group}: {queue} is not pulled for now: {trouble}",
                group=self._parts.group,
                queue=self.queue,
                trouble=trouble,
            )
        return True

    # ------------------------------------------------------------------ answers

    def _answered(
        self, answer: tuple[PullResult, bool], asked_s: float, subscription: SubscriptionData
    ) -> None:
        self._waiting = None
        if self._stopped or self.held.dropped:
            return
        if self._parts.subscriptions.get(self.queue.topic) is not subscription:
            # Not subscribed any more. It may be again in a moment, and then these messages must come.
            self._step()
            return
        result, by_slave = answer
        self._broker_id = result.suggest_which_broker_id
        status = result.status
        if status is PullStatus.FOUND:
            self._found(result, asked_s, subscription)
        elif status is PullStatus.OFFSET_ILLEGAL:
            if by_slave and result.next_begin_offset < self.next_offset:
                self._wait_for_slave(result)
            elif result.next_begin_offset == self.next_offset:
                # Nothing to repair: asked again a little later, so that a broker's confusion makes no load.
                self._later(self._parts.config.pull_time_delay_millis_when_exception / 1000)
            else:
                self._begin_anew(result)
        else:
            following = self._following(result, self.next_offset)
            if following is None:
                return
            is_fruitless = following == self.next_offset
            self.next_offset = following
            if not self.held.count and following >= 0:
                self._parts.offsets.update(self.queue, following, True)
            self._go_on(asked_s, is_fruitless=is_fruitless)

    def _found(self, result: PullResult, asked_s: float, subscription: SubscriptionData) -> None:
        parts, held = self._parts, self.held
        following = self._following(result, self.next_offset)
        if following is None:
            return
        counts = parts.stats.of(self.queue.topic)
        counts.pulls += 1
        counts.pull_rt += (self._clock.seconds() - asked_s) * 1000
        messages = prepare(
            result.messages,
            subscription,
            result.min_offset,
            result.max_offset,
            self._settings.filter_hooks,
        )
        is_fruitless = following == self.next_offset
        self.next_offset = following
        if not messages:
            if not held.count and following >= 0:
                parts.offsets.update(self.queue, self.next_offset, True)
            self._go_on(asked_s, is_fruitless=is_fruitless)
            return
        counts.pulled += len(messages)
        if self._renames:
            rename_for_application(
                messages,
                self.queue.topic,
                parts.config.without_namespace,
                parts.pop_retry.get(self.queue.topic),
            )
        held.put(messages)
        # Asked before the messages are handled, so that the next ones are on their way meanwhile.
        if self._settings.pull_interval:
            self._later(self._settings.pull_interval / 1000)
        else:
            self._step()
        self._deliver(self.queue, held, messages)

    def _wait_for_slave(self, result: PullResult) -> None:
        if self._parts.calm.may_tell("slave"):
            log.warn(
                "group {group}: a slave of {broker} does not have offset {offset} of {queue} yet, only {end}; "
                "waiting",
                group=self._parts.group,
                broker=self.queue.broker_name,
                offset=self.next_offset,
                queue=self.queue,
                end=result.max_offset,
            )
        self._later(LAGGING_SLAVE_S)

    def _begin_anew(self, result: PullResult) -> None:
        self._tell_moved(result, self.next_offset)
        self._moved(self, max(0, result.next_begin_offset))
