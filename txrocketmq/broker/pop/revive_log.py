"""What do the records of the revive topic look like?

Stands for the record makers of ``PopMessageProcessor``, ``AckMessageProcessor`` and ``PopBufferMergeService``. The topic is
``rmq_sys_REVIVE_LOG_<cluster>``; there are three kinds of records, told apart by their tag::

    ck     a check point: what one pop handed out of one queue, and until when
    ack    one offset of a check point is acknowledged
    bAck   several offsets are

Each carries the time at which it counts (``TIMER_DELIVER_MS``): a check point one second before its messages come again, an
acknowledgement when they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from txrocketmq.broker.pop.receipts import SPLIT
from txrocketmq.codec.bodies import (
    AckMsg,
    BatchAckMsg,
    PopCheckPoint,
    decode_body,
    encode_body,
)
from txrocketmq.errors import BodyError
from txrocketmq.model import properties as props
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message import Host, MessageExt, MessageRecord
from txrocketmq.model.properties import format_properties

CHECK_POINT_TAG = "ck"
ACK_TAG = "ack"
BATCH_ACK_TAG = "bAck"

ORIGIN_GROUP = "ORIGIN_GROUP"
"""The property by which a message that comes again names the group for which it does."""

ACK_INTERVAL_MS = 1000
"""A check point is due this long before its messages come again (official ``ackTimeInterval``)."""

MAX_MESSAGES = 127
"""Messages that a check point may name: its number of them is a Java byte."""

_CODES = {tag: tags_code(tag) for tag in (CHECK_POINT_TAG, ACK_TAG, BATCH_ACK_TAG)}

Entry = PopCheckPoint | AckMsg | BatchAckMsg

_KINDS: dict[str, type[Any]] = {
    CHECK_POINT_TAG: PopCheckPoint,
    ACK_TAG: AckMsg,
    BATCH_ACK_TAG: BatchAckMsg,
}


def check_point(
    topic: str,
    group: str,
    queue_id: int,
    start_offset: int,
    pop_time_ms: int,
    invisible_ms: int,
    broker_name: str,
    offsets: Sequence[int],
) -> PopCheckPoint:
    """What one pop handed out of one queue.

    :param topic: the topic that was really popped.
    :param offsets: the logical offsets of the messages.
    """
    return PopCheckPoint(
        topic=topic,
        cid=group,
        queue_id=queue_id,
        start_offset=start_offset,
        pop_time=pop_time_ms,
        invisible_time=invisible_ms,
        revive_time=pop_time_ms + invisible_ms,
        broker_name=broker_name,
        num=len(offsets),
        queue_offset_diff=[offset - start_offset for offset in offsets],
    )


def merge_key(entry: Entry, own_name: str) -> str:
    """What a check point and its acknowledgements have in common.

    :param own_name: this broker's name, for entries that name none.
    """
    group = entry.cid if isinstance(entry, PopCheckPoint) else entry.consumer_group
    name = entry.broker_name or own_name
    return f"{entry.topic} {group} {entry.queue_id} {entry.start_offset} {entry.pop_time} {name}"


def offsets_of(point: PopCheckPoint) -> list[int]:
    """The logical offsets of the messages of a check point; older brokers handed out neighbours only, and name none."""
    start = point.start_offset
    if not point.queue_offset_diff:
        return list(range(start, start + point.num))
    return [start + difference for difference in point.queue_offset_diff[: point.num]]


def acknowledged(entry: AckMsg | BatchAckMsg) -> list[int]:
    """The offsets that an acknowledgement names."""
    return entry.ack_offset_list if isinstance(entry, BatchAckMsg) else [entry.ack_offset]


def read_entry(message: MessageExt) -> Entry | None:
    """A record of the revive topic; None for one of another kind.

    :raises BodyError: its body is not what its tag says.
    """
    kind = _KINDS.get(message.tags or "")
    if kind is None:
        return None
    entry: Entry = decode_body(kind, message.body)
    if (
        entry.topic is None
        or (entry.cid if isinstance(entry, PopCheckPoint) else entry.consumer_group) is None
    ):
        raise BodyError("topic and group are missing")
    if isinstance(entry, PopCheckPoint) and not 0 <= entry.num <= MAX_MESSAGES:
        # Whoever may send can send here, and each message is a number in memory.
        raise BodyError(f"a check point of {entry.num} messages, at most {MAX_MESSAGES} are served")
    return entry


class ReviveLog:
    """Makes the records of one broker.

    :ivar topic: the revive topic.
    """

    def __init__(self, topic: str, host: Host) -> None:
        self.topic = topic
        self._host = host

    def check_point(self, point: PopCheckPoint, revive_queue: int, now_ms: int) -> MessageRecord:
        """The record of a check point."""
        key = SPLIT.join(
            map(
                str,
                (
                    point.topic,
                    point.queue_id,
                    point.start_offset,
                    point.cid,
                    point.pop_time,
                    point.broker_name,
                    CHECK_POINT_TAG,
                ),
            )
        )
        due_ms = point.pop_time + point.invisible_time - ACK_INTERVAL_MS
        return self._record(point, CHECK_POINT_TAG, key, revive_queue, due_ms, now_ms)

    def ack(
        self,
        entry: AckMsg | BatchAckMsg,
        revive_queue: int,
        due_ms: int,
        now_ms: int,
        *,
        is_gathered: bool = False,
    ) -> MessageRecord:
        """The record of an acknowledgement.

        :param due_ms: when the messages of its check point come again.
        :param is_gathered: the broker gathered it from several requests; official brokers give such ones another key.
        """
        tag = BATCH_ACK_TAG if isinstance(entry, BatchAckMsg) else ACK_TAG
        parts: list[object] = [entry.topic, entry.queue_id]
        if is_gathered and isinstance(entry, BatchAckMsg):
            # Java's text of a list; the broker is not named.
            offsets = f"[{', '.join(map(str, entry.ack_offset_list))}]"
            parts += [offsets, entry.consumer_group, entry.pop_time, BATCH_ACK_TAG]
        else:
            parts += [entry.ack_offset, entry.consumer_group, entry.pop_time]
            parts += [entry.broker_name, ACK_TAG]
        key = SPLIT.join(map(str, parts))
        return self._record(entry, tag, key, revive_queue, due_ms, now_ms)

    def _record(
        self, entry: Entry, tag: str, key: str, revive_queue: int, due_ms: int, now_ms: int
    ) -> MessageRecord:
        # In the order in which a Java map gives them.
        found = {props.TIMER_DELIVER_MS: str(due_ms), props.UNIQ_KEY: key, props.TAGS: tag}
        return MessageRecord(
            topic=self.topic,
            queue_id=revive_queue,
            body=encode_body(entry),
            properties=format_properties(found),
            tags_code=_CODES[tag],
            born_timestamp=now_ms,
            born_host=self._host,
            store_host=self._host,
            uniq_key=key,
        )
