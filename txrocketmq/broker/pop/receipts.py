"""What does a consumer get along with popped messages, so that it can name each of them later?

Stands for ``ExtraInfoUtil`` and the POP half of ``KeyBuilder``. A *receipt* names one message of one pop::

    start offset of the pop, pop time, invisible time, revive queue, kind of topic, broker name, queue id, offset of the message

separated by blanks. The kind of topic is 0 for the topic itself, 1 and 2 for the group's retry topic under its older and newer name.
An answer has the same for all its messages, shortened: the start offset of each queue (``startOffsetInfo``), the offsets of its
messages (``msgOffsetInfo``), and how often ordered ones were handed out before (``orderCountInfo``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from txrocketmq.errors import ResponseError
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.names import RETRY_GROUP_TOPIC_PREFIX, pop_retry_topics

ORDER_REVIVE_QUEUE = 999
"""The revive queue of receipts of ordered pops, which leave no check points."""
SPLIT = "@"

NORMAL_TOPIC = "0"
RETRY_TOPIC_V1 = "1"
RETRY_TOPIC_V2 = "2"

_LONG = re.compile(r"[+-]?[0-9]{1,19}\Z", re.ASCII)
_FIELDS = ("start offset", "pop time", "invisible time", "revive queue")
MAX_TIME_MS = 2**60
"""The latest pop, and the longest invisible time. Their sum is a Java long, with room for another such time."""
_LIMITS = (2**63, MAX_TIME_MS + 1, MAX_TIME_MS + 1, 2**63)


class Receipt(NamedTuple):
    """What a receipt says of the pop.

    :ivar start_offset: the logical offset from which the pop read.
    :ivar pop_time_ms: when that was.
    :ivar invisible_ms: how long the message is nobody else's.
    :ivar revive_queue: where the check point is.
    :ivar broker_name: the broker that wrote the check point.
    """

    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    revive_queue: int
    broker_name: str

    @property
    def is_ordered(self) -> bool:
        """Whether it is of an ordered pop."""
        return self.revive_queue == ORDER_REVIVE_QUEUE


def read_receipt(text: str, revive_queues: int) -> Receipt:
    """Read a receipt.

    :param revive_queues: how many revive queues there are.
    :raises ResponseError: it is none.
    """
    parts = text.split(" ")
    if len(parts) < 6:
        raise _illegal(f"extraInfo has {len(parts)} parts, at least 6 are expected")
    numbers = []
    for name, limit, part in zip(_FIELDS, _LIMITS, parts, strict=False):
        number = int(part) if _LONG.match(part) else limit
        if not 0 <= number < limit:
            raise _illegal(f"the {name} in extraInfo cannot be: {part[:40]!r}")
        numbers.append(number)
    start, pop_time, invisible, revive_queue = numbers
    check_revive_queue(revive_queue, revive_queues)
    return Receipt(start, pop_time, invisible, revive_queue, parts[5])


def invisible_ms_of(asked_ms: int) -> int:
    """The invisible time that a client gets who asks for one: one that its receipts can say."""
    return min(max(asked_ms, 0), MAX_TIME_MS)


def check_times(pop_time_ms: int, invisible_ms: int) -> None:
    """Refuse times that no pop has.

    :raises ResponseError: MESSAGE_ILLEGAL.
    """
    for name, value in (("pop time", pop_time_ms), ("invisible time", invisible_ms)):
        if not 0 <= value <= MAX_TIME_MS:
            raise _illegal(f"the {name} cannot be: {str(value)[:40]}")


def check_revive_queue(revive_queue: int, revive_queues: int) -> None:
    """Refuse a revive queue that is not there: nothing in it would ever be looked at.

    :raises ResponseError: MESSAGE_ILLEGAL.
    """
    if revive_queue != ORDER_REVIVE_QUEUE and not 0 <= revive_queue < revive_queues:
        raise _illegal(f"there is no revive queue {revive_queue}")


def _illegal(remark: str) -> ResponseError:
    return ResponseError(ResponseCode.MESSAGE_ILLEGAL, remark)


def receipt_text(receipt: Receipt, topic: str, queue_id: int, offset: int) -> str:
    """A receipt as a retried message carries it (property ``POP_CK``).

    :param topic: the topic that it really was popped from.
    """
    return (
        f"{receipt.start_offset} {receipt.pop_time_ms} {receipt.invisible_ms} {receipt.revive_queue} {kind_of(topic)} "
        f"{receipt.broker_name} {queue_id} {offset}"
    )


def kind_of(topic: str) -> str:
    """The kind of a topic, as receipts say it."""
    if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return NORMAL_TOPIC
    return RETRY_TOPIC_V2 if "+" in topic else RETRY_TOPIC_V1


def topic_of_kind(topic: str, group: str, kind: str | None) -> str:
    """The topic that was really popped.

    :raises ResponseError: there is no such kind.
    """
    if kind == NORMAL_TOPIC:
        return topic
    newer, older = pop_retry_topics(topic, group)
    if kind == RETRY_TOPIC_V1:
        return older
    if kind == RETRY_TOPIC_V2:
        return newer
    raise _illegal(f"there is no kind of topic {kind!r}")


def retry_topic_of(topic: str, group: str, newer_name: bool) -> str:
    """Where what a group popped and did not acknowledge goes to.

    :param topic: what it was popped from; a retry topic is its own.
    :param newer_name: ``enableRetryTopicV2``.
    """
    if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return topic
    return pop_retry_topics(topic, group)[0 if newer_name else 1]


def normal_topic_of(topic: str, group: str) -> str:
    """The topic whose messages a POP retry topic holds; any other topic is its own."""
    if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return topic
    for prefix in pop_retry_topics("", group):
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


def start_offset_info(topic: str, queue_id: int, offset: int) -> str:
    """One queue's part of ``startOffsetInfo``."""
    return f"{kind_of(topic)} {queue_id} {offset}"


def message_offset_info(topic: str, queue_id: int, offsets: Iterable[int]) -> str:
    """One queue's part of ``msgOffsetInfo``."""
    return f"{kind_of(topic)} {queue_id} {','.join(map(str, offsets))}"


def order_count_info(
    topic: str, queue_id: int, counts: Sequence[tuple[int, int]], least: int
) -> list[str]:
    """One queue's parts of ``orderCountInfo``.

    :param counts: offsets with how often they were handed out before.
    :param least: the smallest of these numbers over all messages, for older clients.
    """
    kind = kind_of(topic)
    return [
        *(f"{kind} qo{queue_id}%{offset} {count}" for offset, count in counts),
        f"{kind} {queue_id} {least}",
    ]
