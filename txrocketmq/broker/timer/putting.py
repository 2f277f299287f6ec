"""How does a timed message get to its topic when its time has come, or back into the timer topic?

Stands for ``TimerMessageStore.convert`` and ``doPut``. A message that the store does not take now is tried again until it does; official
brokers give it up after three tries unless `timerEnableRetryUntilSuccess` is set. At a slave that acts for its master another broker's
store takes it (`txrocketmq.broker.escape`).
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from txrocketmq.broker.escape.bridge import EscapeBridge
from txrocketmq.broker.stats import BrokerStats
from txrocketmq.broker.stored import copy_of, value_of, with_notes
from txrocketmq.broker.timer.metrics import TimerMetrics
from txrocketmq.broker.timer.pauses import Pauses
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.model import properties as props
from txrocketmq.model.message import MessageExt, MessageRecord
from txrocketmq.model.names import SCHEDULE_TOPIC, TIMER_TOPIC
from txrocketmq.store.results import PutMessageResult, PutMessageStatus

NEVER_TAKEN_MS = 2**63 - 1
"""The time at which a message was taken into the wheel that never was: its time had come already (official)."""
WAITING_TOPICS = (TIMER_TOPIC, SCHEDULE_TOPIC)
"""What waits there names its own topic as these do: it would come there again and again. Only somebody who sends to the timer topic directly
can ask for that."""
RETRY_SLOTS = 0.5
"""When a message is tried again that was not taken, in slots."""

_NEVER = (
    PutMessageStatus.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
    PutMessageStatus.WHEEL_TIMER_NOT_ENABLE,
    PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL,
)


class TimerPuts:
    """Puts messages whose slot is over.

    :param may_deliver: whether this broker delivers at all; when that ends, nothing is tried again.
    :ivar delivered: how many were put since the start.
    """

    _log = Logger()

    def __init__(
        self,
        config: MessageStoreConfig,
        precision_ms: int,
        bridge: EscapeBridge,
        metrics: TimerMetrics,
        stats: BrokerStats,
        pauses: Pauses,
        now_ms: Callable[[], int],
        may_deliver: Callable[[], bool],
    ) -> None:
        self._config = config
        self._retry_s = RETRY_SLOTS * precision_ms / 1000
        self._bridge = bridge
        self._may_deliver = may_deliver
        self._metrics = metrics
        self._stats = stats
        self._pauses = pauses
        self._now_ms = now_ms
        self.delivered = 0

    async def put(self, message: MessageExt, taken_ms: int, *, is_rolled: bool) -> bool:
        """Put a message; False when the broker stops, or is not the one to deliver any more, before the store takes it.

        :param taken_ms: when it came into the wheel.
        :param is_rolled: its own time is farther off: it goes into the timer topic again.
        """
        record = self._record(message, taken_ms, is_rolled)
        if record is None:
            return True
        while True:
            result: PutMessageResult = await value_of(self._bridge.put(record))
            if result.is_ok:
                self.delivered += 1
                if taken_ms != NEVER_TAKEN_MS:
                    self._metrics.add(message.properties.get(props.REAL_TOPIC), -1)
                if not result.is_remote:
                    self._stats.of_topic(record.topic).count(result.wrote_bytes)
                return True
            if result.status in _NEVER or (
                result.status is PutMessageStatus.UNKNOWN_ERROR
                and self._config.timer_skip_unknown_error
            ):
                self._log.error(
                    "timed message {id} for {topic} is not taken by the store and stays in the timer topic: {status}",
                    id=message.msg_id,
                    topic=record.topic,
                    status=result.status.name,
                )
                return True
            if self._pauses.is_over or not self._may_deliver():
                return False
            await self._pauses.wait(self._retry_s)

    def _record(self, message: MessageExt, taken_ms: int, is_rolled: bool) -> MessageRecord | None:
        """The message as it is put; None when that cannot be."""
        found = dict(message.properties)
        topic = found.get(props.REAL_TOPIC)
        queue_id = props.count_of(found.get(props.REAL_QUEUE_ID))
        if not topic or queue_id is None or topic in WAITING_TOPICS:
            self._log.error(
                "timed message {id} is left in the timer topic: its properties name topic {topic!r} and queue {queue_id!r}",
                id=message.msg_id,
                topic=topic,
                queue_id=found.get(props.REAL_QUEUE_ID),
            )
            return None
        if not is_rolled and props.TIMER_DEL_UNIQKEY in found:
            # It has done its work, or came too late.
            return None
        notes = {props.TIMER_ENQUEUE_MS: str(taken_ms)}
        if is_rolled:
            rolls = props.count_of(found.get(props.TIMER_ROLL_TIMES)) or 0
            notes[props.TIMER_ROLL_TIMES] = str(rolls + 1)
        notes[props.TIMER_DEQUEUE_MS] = str(self._now_ms())
        if is_rolled:
            return copy_of(message, TIMER_TOPIC, 0, with_notes(found, notes))
        if not self._bridge.is_local:
            # Officially these go in both cases, but from the text that is stored here in none.
            del found[props.REAL_TOPIC], found[props.REAL_QUEUE_ID]
        return copy_of(message, topic, queue_id, with_notes(found, notes))
