"""What has to be done about a half message without an outcome?

Stands for the conditions of ``TransactionalMessageServiceImpl.check``, ``needDiscard``, ``needSkip`` and the two readings of
``CHECK_IMMUNITY_TIME_IN_SECONDS``. Pure: a message, the time, the settings.
"""

from __future__ import annotations

from enum import Enum

from txrocketmq.broker.transaction.records import java_long
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.model import properties as props
from txrocketmq.model.message import MessageExt

HOUR_MS = 3_600_000


class Verdict(Enum):
    """What becomes of a half message."""

    GIVE_UP = "asked for often enough, or older than what the log keeps"
    WAIT = "too young to be asked for"
    MOVE = "too young by its own property: goes to the end of its queue, for others to be looked at"
    ASK = "its producer has to be asked"


def verdict_on(
    message: MessageExt, now_ms: int, config: BrokerConfig, reserved_hours: int
) -> Verdict:
    """What has to be done now.

    :param reserved_hours: how long the log keeps messages (`fileReservedTime`).
    """
    age_ms = now_ms - message.born_timestamp
    if times_asked(message) >= config.transaction_check_max or age_ms > reserved_hours * HOUR_MS:
        return Verdict.GIVE_UP
    immunity_ms = own_immunity_ms(message)
    if immunity_ms is not None:
        return Verdict.MOVE if age_ms <= immunity_ms else Verdict.ASK
    if message.properties.get(props.CHECK_IMMUNITY_TIME_IN_SECONDS) is not None:
        # Unreadable: as long as the others, but by its own property.
        return Verdict.MOVE if age_ms <= config.transaction_time_out else Verdict.ASK
    # A producer whose clock runs ahead is asked at once, as officially.
    return Verdict.WAIT if 0 <= age_ms <= config.transaction_time_out else Verdict.ASK


def times_asked(message: MessageExt) -> int:
    """How often the producer was asked already."""
    times = java_long(message.properties.get(props.TRANSACTION_CHECK_TIMES))
    return 0 if times is None else times


def own_immunity_ms(message: MessageExt) -> int | None:
    """How long the message itself asks to be left alone; None when it says nothing readable."""
    seconds = java_long(message.properties.get(props.CHECK_IMMUNITY_TIME_IN_SECONDS))
    return None if seconds is None or seconds == -1 else seconds * 1000


def is_too_late(message: MessageExt, now_ms: int, config: BrokerConfig) -> bool:
    """Whether the producer's own outcome comes after the time that the message asks to be left alone: by then the broker may
    have asked for it, and counts on that answer. Messages that say nothing are never too late."""
    if not message.properties.get(props.CHECK_IMMUNITY_TIME_IN_SECONDS):
        return False
    immunity_ms = own_immunity_ms(message) or 0
    return now_ms - message.born_timestamp > max(immunity_ms, config.transaction_time_out)
