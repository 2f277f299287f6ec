"""What do the records of a transaction look like?

Stands for the record makers of ``TransactionalMessageBridge``, ``EndTransactionProcessor`` and
``DefaultTransactionalMessageCheckListener``; the layouts are those of 5.4.0::

    half message      RMQ_SYS_TRANS_HALF_TOPIC queue 0: the message with REAL_TOPIC, REAL_QID, __transactionId__; no transaction bits
    committed         its own topic and queue: without REAL_TOPIC and REAL_QID, with TRAN_MSG, commit bits, the half message's place
    outcomes          RMQ_SYS_TRANS_OP_HALF_TOPIC, queue of the half messages, tag d: "12,15," are the half offsets that are done
    asked again       the half message once more at its queue's end, with TRANSACTION_CHECK_TIMES
    sent elsewhere    (by a slave in its master's place) the message for its own topic, prepared as its producer sent it
    given up          TRANS_CHECK_MAX_TIME_TOPIC queue 0
"""

from __future__ import annotations

import re

import msgspec

from txrocketmq.broker.stored import MOST_WITH_NOTES, copy_of, with_notes
from txrocketmq.codec.headers import CheckTransactionStateRequestHeader
from txrocketmq.codec.record import encode_record
from txrocketmq.model import properties as props
from txrocketmq.model.flags import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    with_transaction_type,
)
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message import Host, MessageExt, MessageRecord
from txrocketmq.model.message_id import offset_message_id
from txrocketmq.model.names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from txrocketmq.model.properties import format_properties, parse_properties
from txrocketmq.store.results import PutMessageResult

DONE_TAG = "d"
SEPARATOR = ","

MOST_PROPERTIES_BYTES = MOST_WITH_NOTES - 100
"""What the properties of a half message may have, so that its copies have room for how often it was asked for, and where it stood first."""

_DONE_PROPERTIES = format_properties({props.WAIT_STORE_MSG_OK: "true", props.TAGS: DONE_TAG})
_DONE_CODE = tags_code(DONE_TAG)
_LONG = re.compile(r"[+-]?[0-9]{1,19}\Z", re.ASCII)


def half_record(record: MessageRecord) -> MessageRecord:
    """A message as it waits for its transaction."""
    found = parse_properties(record.properties)
    unique = found.get(props.UNIQ_KEY)
    if unique:
        found[props.TRANSACTION_ID] = unique
    found[props.REAL_TOPIC] = record.topic
    found[props.REAL_QUEUE_ID] = str(record.queue_id)
    # Of a message that is passed on as it was received, perhaps: the outcome of another half message would count for it.
    found.pop(props.TRANSACTION_PREPARED_QUEUE_OFFSET, None)
    return msgspec.structs.replace(
        record,
        topic=TRANS_HALF_TOPIC,
        queue_id=0,
        sys_flag=with_transaction_type(record.sys_flag, TRANSACTION_NOT_TYPE),
        properties=format_properties(found),
    )


def real_place(half: MessageExt) -> tuple[str, int] | None:
    """The topic and queue of a half message; None when it does not say."""
    topic = half.properties.get(props.REAL_TOPIC)
    queue_id = props.count_of(half.properties.get(props.REAL_QUEUE_ID))
    return (topic, queue_id) if topic and queue_id is not None else None


def committed_record(half: MessageExt, topic: str, queue_id: int) -> MessageRecord:
    """The message for its consumers."""
    found = dict(half.properties)
    del found[props.REAL_TOPIC], found[props.REAL_QUEUE_ID]
    record = copy_of(
        half,
        topic,
        queue_id,
        found,
        sys_flag=with_transaction_type(half.sys_flag, TRANSACTION_COMMIT_TYPE),
    )
    record.prepared_transaction_offset = half.physical_offset
    return record


def done_record(queue_id: int, body: bytes, host: Host, now_ms: int) -> MessageRecord:
    """The half messages of a queue that have their outcome."""
    return MessageRecord(
        topic=TRANS_OP_HALF_TOPIC,
        queue_id=queue_id,
        body=body,
        properties=_DONE_PROPERTIES,
        tags_code=_DONE_CODE,
        born_timestamp=now_ms,
        born_host=host,
        store_host=host,
        wait_store_msg_ok=False,
    )


def done_offsets(body: bytes) -> list[int]:
    """The half offsets that an outcome record names: a list in 5.x, a single one in 4.x."""
    return [
        int(text) for text in body.decode("ascii", "replace").split(SEPARATOR) if text.isdecimal()
    ]


def given_up_record(half: MessageExt) -> MessageRecord:
    """A half message that nobody is asked for any more."""
    return copy_of(half, TRANS_CHECK_MAX_TIME_TOPIC, 0, half.properties_text)


def half_again(half: MessageExt, **changes: str) -> MessageRecord:
    """A half message that goes to the end of its queue, with changed properties."""
    return copy_of(half, TRANS_HALF_TOPIC, half.queue_id, {**half.properties, **changes})


def prepared_again(half: MessageExt, topic: str, queue_id: int) -> MessageRecord:
    """A half message as its producer might send it to another broker, which then asks for its outcome."""
    found = dict(half.properties)
    for name in (props.REAL_TOPIC, props.REAL_QUEUE_ID, props.TRANSACTION_PREPARED_QUEUE_OFFSET):
        found.pop(name, None)
    found[props.TRANSACTION_PREPARED] = "true"
    sys_flag = with_transaction_type(half.sys_flag, TRANSACTION_PREPARED_TYPE)
    return copy_of(half, topic, queue_id, found, sys_flag=sys_flag)


def check_request(
    half: MessageExt, again: MessageRecord, put: PutMessageResult, broker_name: str
) -> tuple[CheckTransactionStateRequestHeader, bytes]:
    """The question for a half message's outcome: header and body.

    :param half: the half message that was asked for before, or comes to be asked for.
    :param again: its copy at the queue's end, which the answer has to name.
    :param put: where that is.
    """
    topic, queue_id = real_place(half) or (TRANS_HALF_TOPIC, half.queue_id)
    host, port = half.store_host
    header = CheckTransactionStateRequestHeader(
        broker_name=broker_name,
        topic=again.topic,
        tran_state_table_offset=put.queue_offset,
        commit_log_offset=put.physical_offset,
        msg_id=half.uniq_key,
        transaction_id=half.uniq_key,
        offset_msg_id=offset_message_id(host, port, put.physical_offset),
    )
    text = with_notes(parse_properties(again.properties), {props.WAIT_STORE_MSG_OK: "false"})
    shown = msgspec.structs.replace(again, topic=topic, queue_id=queue_id, properties=text)
    return header, encode_record(shown, put.queue_offset, put.physical_offset, half.store_timestamp)


def java_long(text: str | None) -> int | None:
    """A number as Java reads it; None when it is none, or none was given."""
    return int(text) if text is not None and _LONG.match(text) else None
