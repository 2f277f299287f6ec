"""When is a message to be delivered that asks for a time? Pure arithmetic.

Stands for ``HookUtils.checkIfTimerMessage`` and ``transformTimerMessage``. Official brokers count in 64 bits, so a delay that does not fit
lies in the past for them and the message is delivered at once; here it is too far ahead, and refused.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping

import msgspec

from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.model import properties as props
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.names import REVIVE_TOPIC_PREFIX, TIMER_TOPIC
from txrocketmq.model.properties import format_properties
from txrocketmq.store.results import PutMessageStatus

TIMER_PROPERTIES = (props.TIMER_DELAY_SEC, props.TIMER_DELAY_MS, props.TIMER_DELIVER_MS)
"""Those that ask for a time; the first of them counts."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,40}\Z", re.ASCII)
_MAX_LONG = 2**63 - 1
_CHANCES = 1000


def parse_long(text: str) -> int | None:
    """A Java long; None when the text is none."""
    if not _NUMBER.match(text):
        return None
    value = int(text)
    return value if -_MAX_LONG - 1 <= value <= _MAX_LONG else None


def is_timed(topic: str, found: Mapping[str, str]) -> bool:
    """Whether a message without a delay level asks for a time. One that had its turn in the wheel does not any more; records of POP, which
    an acting slave sends here, are read when they are there and wait for their times by themselves."""
    if topic == TIMER_TOPIC or topic.startswith(REVIVE_TOPIC_PREFIX) or props.TIMER_OUT_MS in found:
        return False
    return any(name in found for name in TIMER_PROPERTIES)


def delivery_ms(found: Mapping[str, str], now_ms: int) -> int | None:
    """The time that a message asks for, in wall-clock ms; None when it is no number."""
    for name in TIMER_PROPERTIES:
        text = found.get(name)
        if text is None:
            continue
        value = parse_long(text)
        if value is None or name == props.TIMER_DELIVER_MS:
            return value
        return now_ms + (value * 1000 if name == props.TIMER_DELAY_SEC else value)
    return None


def slot_ms(deliver_ms: int, precision_ms: int) -> int:
    """The slot of a delivery time, which is delivered when it is over: never before the time. A time that is the very end of a slot
    belongs to that slot."""
    return (deliver_ms - 1) // precision_ms * precision_ms


class TimerPlaces:
    """Puts timed messages into the timer topic.

    :param precision_ms: the span of a slot.
    :param waiting_at: how many messages wait for a slot.
    :param is_enabled: whether the timer was there when the broker started.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        precision_ms: int,
        waiting_at: Callable[[int], int],
        now_ms: Callable[[], int],
        *,
        is_enabled: bool,
    ) -> None:
        self._config = config
        self._precision_ms = precision_ms
        self._waiting_at = waiting_at
        self._now_ms = now_ms
        self._is_enabled = is_enabled
        self.chance = random.Random()

    def place(
        self, record: MessageRecord, found: dict[str, str]
    ) -> MessageRecord | PutMessageStatus:
        """A message that asks for a time, as it is to be stored, or why it cannot be."""
        if not self._is_enabled:
            return PutMessageStatus.WHEEL_TIMER_NOT_ENABLE
        config, now_ms = self._config, self._now_ms()
        deliver_ms = delivery_ms(found, now_ms)
        if deliver_ms is None or deliver_ms > now_ms + config.timer_max_delay_sec * 1000:
            return PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL
        if deliver_ms <= now_ms:
            if props.TIMER_DEL_UNIQKEY in found:
                return PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL
            return record
        out_ms = slot_ms(deliver_ms, self._precision_ms)
        if self._is_crowded(out_ms):
            return PutMessageStatus.WHEEL_TIMER_FLOW_CONTROL
        found[props.TIMER_OUT_MS] = str(out_ms)
        found[props.REAL_TOPIC] = record.topic
        found[props.REAL_QUEUE_ID] = str(record.queue_id)
        return msgspec.structs.replace(
            record, topic=TIMER_TOPIC, queue_id=0, properties=format_properties(found)
        )

    def _is_crowded(self, out_ms: int) -> bool:
        """The official rule of ``isReject``: none below the limit, all from twice the limit on, chance between."""
        limit, waiting = self._config.timer_congest_num_each_slot, self._waiting_at(out_ms)
        if waiting <= limit:
            return False
        if waiting >= limit * 2:
            return True
        return self.chance.randrange(_CHANCES) > _CHANCES * (waiting - limit) / (limit + 0.1)
