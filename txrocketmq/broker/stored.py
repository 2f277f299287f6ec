"""How does the broker itself read messages back, to put them elsewhere?

Stands for the ``decodeMsgList`` of official services. Bodies stay as they are stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar, cast

import msgspec
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.codec.record import decode_record, split_batch
from txrocketmq.codec.seal import SEAL_BYTES
from txrocketmq.codec.storefiles import SIZE_FIELD
from txrocketmq.errors import RecordError
from txrocketmq.model.flags import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message import MessageExt, MessageRecord
from txrocketmq.model.properties import MAX_PROPERTIES_BYTES, format_properties
from txrocketmq.store.results import GetMessageResult, PutMessageStatus

T = TypeVar("T")

MAX_TIMES = 2**31 - 1

MOST_WITH_NOTES = MAX_PROPERTIES_BYTES - SEAL_BYTES - 1
"""Bytes of a message's properties with what the broker notes in them; the checksum of the whole record may come behind them."""

NEVER_TAKEN = (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
"""What the store says of a message that it will not take later either."""

log = Logger()


def stored_messages(found: GetMessageResult) -> Iterator[MessageExt | None]:
    """The messages that a read found, in the order of ``found.queue_offsets``; None, and an error in the log, for one whose
    body is not what was stored."""
    for records in found.records:
        position, end = 0, len(records)
        while position < end:
            try:
                message, position = decode_record(records, position)
            except RecordError as error:
                log.error("a stored message cannot be read: {error}", error=error)
                position += max(SIZE_FIELD.size, SIZE_FIELD.unpack_from(records, position)[0])
                yield None
            else:
                yield message


def unpacked(batch: MessageExt) -> list[MessageExt]:
    """The messages of a batch that is one record; none, and an error in the log, for one that cannot be read."""
    try:
        items = split_batch(batch.body)
    except RecordError as error:
        log.error("a stored batch cannot be read: {error}", error=error)
        return []
    sys_flag = batch.sys_flag & ~(INNER_BATCH_FLAG | NEED_UNWRAP_FLAG)
    return [
        msgspec.structs.replace(
            batch, flag=flag, body=body, sys_flag=sys_flag, properties_text=text, _properties=None
        )
        for flag, body, text in items
    ]


def copy_of(
    message: MessageExt,
    topic: str,
    queue_id: int,
    properties: bytes | dict[str, str],
    *,
    sys_flag: int | None = None,
    reconsume_times: int | None = None,
) -> MessageRecord:
    """A message as it is put again somewhere else. Nobody waits for its flush: the original is still there.

    :param properties: its property text, or what becomes of it.
    :param sys_flag: another one than the original's.
    :param reconsume_times: another number than the original's; 2^31 - 1 at most is noted, since the first number is the producer's.
    """
    times = message.reconsume_times if reconsume_times is None else reconsume_times
    return MessageRecord(
        topic=topic,
        queue_id=queue_id,
        body=message.body,
        properties=properties if isinstance(properties, bytes) else format_properties(properties),
        flag=message.flag,
        sys_flag=message.sys_flag if sys_flag is None else sys_flag,
        tags_code=tags_code(message.tags),
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        store_host=message.store_host,
        reconsume_times=min(times, MAX_TIMES),
        wait_store_msg_ok=False,
        keys=message.keys,
        uniq_key=message.uniq_key,
    )


def with_notes(found: dict[str, str], notes: dict[str, str]) -> bytes:
    """The property text of a message that is put again, with what the broker notes beside its own properties; without that where there is no
    room: the message is acknowledged, and would never be taken with it."""
    text = format_properties({**found, **notes})
    return text if len(text) <= MOST_WITH_NOTES else format_properties(found)


async def value_of(outcome: T | Deferred[T]) -> T:
    """The value itself, or what the Deferred will give."""
    if isinstance(outcome, Deferred):
        return cast("T", await outcome)
    return outcome
