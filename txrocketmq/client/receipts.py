"""What is a popped message's receipt, and how does a client make it from a pop's answer?

Stands for ``ExtraInfoUtil`` and ``processPopResponse`` of ``MQClientAPIImpl``. A receipt (property ``POP_CK``) is eight words::

    start offset | pop time | invisible time | revive queue | 0, 1 (retry topic) or 2 (newer one) | broker name | queue id | offset

The answer's header brings, for each queue, the start offset (``startOffsetInfo``), the offsets (``msgOffsetInfo``) and, for ordered
groups, how often each was tried (``orderCountInfo``): items ``retry queue value`` separated by ``;``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from txrocketmq.codec.headers import (
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from txrocketmq.errors import BodyError
from txrocketmq.model import properties as props
from txrocketmq.model.message import MessageExt
from txrocketmq.model.names import (
    LMQ_DISPATCH_SEPARATOR,
    LMQ_QUEUE_ID,
    RETRY_GROUP_TOPIC_PREFIX,
    is_lmq,
)

NORMAL_TOPIC = "0"
RETRY_TOPIC = "1"
RETRY_TOPIC_V2 = "2"


def topic_mark(topic: str) -> str:
    """Which of the three topics of a pop a message is from."""
    if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return NORMAL_TOPIC
    return RETRY_TOPIC_V2 if "+" in topic else RETRY_TOPIC


def build_receipt(
    start_offset: int,
    header: PopMessageResponseHeader | ChangeInvisibleTimeResponseHeader,
    mark: str,
    broker_name: str,
    queue_id: int,
    offset: int,
) -> str:
    """The eight words."""
    return (
        f"{start_offset} {header.pop_time} {header.invisible_time} {header.revive_qid} "
        f"{mark} {broker_name} {queue_id} {offset}"
    )


def change_receipt(
    asked: ChangeInvisibleTimeRequestHeader,
    found: ChangeInvisibleTimeResponseHeader,
    broker_name: str,
) -> str:
    """The receipt that counts after the invisible time was changed."""
    mark = topic_mark(asked.topic)
    return build_receipt(asked.offset, found, mark, broker_name, asked.queue_id, asked.offset)


def parse_queue_info(text: str | None) -> dict[str, str]:
    """``mark@queue`` to value of one of the three header fields.

    :raises BodyError: an item does not have three words.
    """
    found = {}
    for item in (text or "").split(";"):
        if item:
            words = item.split(" ")
            if len(words) != 3:
                raise BodyError(f"offset information of a pop: {item!r} has not three words")
            found[f"{words[0]}@{words[1]}"] = words[2]
    return found


def add_receipts(
    messages: Sequence[MessageExt],
    header: PopMessageResponseHeader,
    asked: PopMessageRequestHeader,
    broker_name: str,
) -> None:
    """Give each message its receipt and the time of its first pop, and those of an ordered group their count of tries.

    :raises BodyError: the header's fields do not fit the messages.
    """
    try:
        _add_receipts(messages, header, asked, broker_name)
    except ValueError as error:
        raise BodyError(f"pop of topic {asked.topic}: offset information: {error}") from None


def _add_receipts(
    messages: Sequence[MessageExt],
    header: PopMessageResponseHeader,
    asked: PopMessageRequestHeader,
    broker_name: str,
) -> None:
    starts = parse_queue_info(header.start_offset_info)
    offsets = {
        key: [int(word) for word in value.split(",")]
        for key, value in parse_queue_info(header.msg_offset_info).items()
    }
    counts = parse_queue_info(header.order_count_info) if asked.order else {}
    found: dict[str, list[int]] = defaultdict(list)
    places = []
    for message in messages:
        _drop_old_receipt(message, header)
        place = _place(message, asked.topic, offsets)
        places.append(place)
        found[place[0]].append(place[3])
    first: dict[str, int] = {}
    for message, (key, mark, queue_id, offset) in zip(messages, places, strict=True):
        properties = message.properties
        if not starts:
            start = first.setdefault(key, offset)
            properties[props.POP_CK] = build_receipt(
                start, header, mark, broker_name, queue_id, offset
            )
        elif props.POP_CK not in properties:
            try:
                told = offsets[key][sorted(found[key]).index(offset)]
                start = int(starts[key])
            except (KeyError, IndexError):
                raise BodyError(
                    f"pop of topic {asked.topic}: no offset information for queue {key}"
                ) from None
            properties[props.POP_CK] = build_receipt(
                start, header, mark, broker_name, queue_id, told
            )
            tries = counts.get(f"{mark}@qo{queue_id}%{offset}") or counts.get(key)
            if tries and int(tries) > 0:
                message.reconsume_times = int(tries)
        properties.setdefault(props.FIRST_POP_TIME, str(header.pop_time))


def _drop_old_receipt(message: MessageExt, header: PopMessageResponseHeader) -> None:
    """A message that was popped elsewhere and sent on with all its properties has the receipt of then; by it nobody would get this one."""
    words = message.properties.get(props.POP_CK, "").split(" ")
    place = [str(message.queue_id), str(message.queue_offset)]
    if len(words) != 8 or words[1] != str(header.pop_time) or words[6:] != place:
        message.properties.pop(props.POP_CK, None)


def _place(
    message: MessageExt, asked_topic: str, told: Mapping[str, Sequence[int]]
) -> tuple[str, str, int, int]:
    """Where a message was popped: its key in the header's fields, mark of its topic, queue id, logical offset."""
    properties = message.properties
    dispatch = properties.get(props.INNER_MULTI_DISPATCH)
    if is_lmq(asked_topic) and not message.reconsume_times and dispatch:
        queues = dispatch.split(LMQ_DISPATCH_SEPARATOR)
        offsets = properties.get(props.INNER_MULTI_QUEUE_OFFSET, "").split(LMQ_DISPATCH_SEPARATOR)
        if asked_topic in queues and len(offsets) == len(queues):
            offset = int(offsets[queues.index(asked_topic)])
            mark = topic_mark(asked_topic)
            return f"{NORMAL_TOPIC}@{LMQ_QUEUE_ID}", mark, LMQ_QUEUE_ID, offset
    receipt = properties.get(props.POP_CK)
    own = topic_mark(message.topic) if receipt is None else receipt.split(" ")[4]
    marks = [own]
    if receipt is None and own == NORMAL_TOPIC:
        # Brokers show a retry topic's message as one of the original topic. Where its receipt was an old one, its tries tell.
        others = (RETRY_TOPIC_V2, RETRY_TOPIC)
        marks = [*others, own] if message.reconsume_times else [own, *others]
    for mark in marks:
        key = f"{mark}@{message.queue_id}"
        if message.queue_offset in told.get(key, ()):
            return key, mark, message.queue_id, message.queue_offset
    return f"{own}@{message.queue_id}", own, message.queue_id, message.queue_offset
