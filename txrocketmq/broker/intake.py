"""Where is a message put that may have to wait: in its topic, in that of the delay levels, or in that of the timer?

Stands for ``HookUtils.handleScheduleMessage``, the hook before every put of official brokers. Ordinary sends need no look and go to the
store directly; whoever puts a message that may ask for a delay (a special send, a message sent back, a committed transaction) goes
through here.
"""

from __future__ import annotations

import msgspec
from twisted.internet.defer import Deferred

from txrocketmq.broker.delay.levels import DelayLevels, delay_level
from txrocketmq.broker.timer.times import TIMER_PROPERTIES, TimerPlaces, is_timed
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model import properties as props
from txrocketmq.model.flags import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    transaction_type,
)
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.names import SCHEDULE_TOPIC
from txrocketmq.model.properties import format_properties, parse_properties
from txrocketmq.store.results import PutMessageResult, PutMessageStatus

PutOutcome = PutMessageResult | Deferred[PutMessageResult]

_CAN_WAIT = (TRANSACTION_NOT_TYPE, TRANSACTION_COMMIT_TYPE)


class Intake:
    """Puts messages of any kind.

    :ivar timers: places messages that ask for a time; None: nobody does.
    """

    def __init__(self, store: IMessageStore, levels: DelayLevels) -> None:
        self.timers: TimerPlaces | None = None
        self._store = store
        self._levels = levels

    def put(self, record: MessageRecord) -> tuple[MessageRecord, PutOutcome]:
        """Put a message where its properties want it.

        :return: the message as it was stored, and what the store says.
        """
        placed = self.place(record)
        if isinstance(placed, PutMessageStatus):
            return record, PutMessageResult(placed)
        return placed, self._store.put_message(placed)

    def place(self, record: MessageRecord) -> MessageRecord | PutMessageStatus:
        """The message as it is to be stored, or why it cannot be."""
        if transaction_type(record.sys_flag) not in _CAN_WAIT:
            return record
        found = parse_properties(record.properties)
        level = delay_level(found)
        if level is None:
            return PutMessageStatus.MESSAGE_ILLEGAL
        if level > 0:
            return self._delayed(record, found, min(level, self._levels.highest))
        if not is_timed(record.topic, found):
            return record
        if self.timers is None:
            return PutMessageStatus.WHEEL_TIMER_NOT_ENABLE
        return self.timers.place(record, found)

    def _delayed(
        self, record: MessageRecord, found: dict[str, str], level: int
    ) -> MessageRecord | PutMessageStatus:
        """The message in the delay topic, with the way back in its properties. A level beats a delivery time."""
        if level < 1:
            return PutMessageStatus.MESSAGE_ILLEGAL
        for name in TIMER_PROPERTIES:
            found.pop(name, None)
        found[props.DELAY_TIME_LEVEL] = str(level)
        found[props.REAL_TOPIC] = record.topic
        found[props.REAL_QUEUE_ID] = str(record.queue_id)
        return msgspec.structs.replace(
            record,
            topic=SCHEDULE_TOPIC,
            queue_id=level - 1,
            properties=format_properties(found),
        )
