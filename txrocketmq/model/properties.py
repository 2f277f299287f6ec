"""What a message's property text looks like, and which property names the protocol reserves.

Stands for ``MessageConst`` and the property half of ``MessageDecoder``. The text is ``name \\x01 value \\x02`` repeated; 5.x
writes the last separator, 4.x does not, readers need neither. Names and values that are empty get lost when read.
"""

from __future__ import annotations

from collections.abc import Mapping

from txrocketmq.errors import MQClientError

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
KEY_SEPARATOR = " "
# The record's length field of the property text is a signed short.
MAX_PROPERTIES_BYTES = 32767
MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1

KEYS = "KEYS"
TAGS = "TAGS"
WAIT_STORE_MSG_OK = "WAIT"
DELAY_TIME_LEVEL = "DELAY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
TRANSACTION_PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
BUYER_ID = "BUYER_ID"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
TRANSFER_FLAG = "TRANSFER_FLAG"
CORRECTION_FLAG = "CORRECTION_FLAG"
MQ2_FLAG = "MQ2_FLAG"
RECONSUME_TIME = "RECONSUME_TIME"
MSG_REGION = "MSG_REGION"
TRACE_SWITCH = "TRACE_ON"
UNIQ_KEY = "UNIQ_KEY"
EXTEND_UNIQ_INFO = "EXTEND_UNIQ_INFO"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
CONSUME_START_TIMESTAMP = "CONSUME_START_TIME"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
DUP_INFO = "DUP_INFO"
CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
INSTANCE_ID = "INSTANCE_ID"
CORRELATION_ID = "CORRELATION_ID"
MESSAGE_REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
MESSAGE_TTL = "TTL"
REPLY_MESSAGE_ARRIVE_TIME = "ARRIVE_TIME"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
CLUSTER = "CLUSTER"
MESSAGE_TYPE = "MSG_TYPE"
POP_CK = "POP_CK"
POP_CK_OFFSET = "POP_CK_OFFSET"
FIRST_POP_TIME = "1ST_POP_TIME"
SHARDING_KEY = "__SHARDINGKEY"
FORWARD_QUEUE_ID = "PROPERTY_FORWARD_QUEUE_ID"
REDIRECT = "REDIRECT"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
TRACE_CONTEXT = "TRACE_CONTEXT"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
TRANSIENT_PREFIX = "__RMQ.TRANSIENT."
TRANSIENT_TOPIC_CONFIG = "__RMQ.TRANSIENT.TOPIC_SYS_FLAG"
TRANSIENT_GROUP_CONFIG = "__RMQ.TRANSIENT.GROUP_SYS_FLAG"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
CRC32 = "__CRC32#"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"

RESERVED_NAMES = frozenset(
    {
        *(TRACE_SWITCH, MSG_REGION, KEYS, TAGS, WAIT_STORE_MSG_OK, DELAY_TIME_LEVEL, RETRY_TOPIC),
        *(REAL_TOPIC, REAL_QUEUE_ID, TRANSACTION_PREPARED, PRODUCER_GROUP, MIN_OFFSET, MAX_OFFSET),
        *(BUYER_ID, ORIGIN_MESSAGE_ID, TRANSFER_FLAG, CORRECTION_FLAG, MQ2_FLAG, RECONSUME_TIME),
        *(UNIQ_KEY, MAX_RECONSUME_TIMES, CONSUME_START_TIMESTAMP, POP_CK, POP_CK_OFFSET),
        *(FIRST_POP_TIME, TRANSACTION_PREPARED_QUEUE_OFFSET, DUP_INFO, EXTEND_UNIQ_INFO),
        *(INSTANCE_ID, CORRELATION_ID, MESSAGE_REPLY_TO_CLIENT, MESSAGE_TTL, CLUSTER, MESSAGE_TYPE),
        *(REPLY_MESSAGE_ARRIVE_TIME, PUSH_REPLY_TIME, INNER_MULTI_QUEUE_OFFSET, TIMER_DELAY_MS),
        *(TIMER_DELAY_SEC, TIMER_DELIVER_MS, TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS, TIMER_ROLL_TIMES),
        *(TIMER_OUT_MS, TIMER_DEL_UNIQKEY, TIMER_DELAY_LEVEL, BORN_HOST, BORN_TIMESTAMP),
        *(DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID, CRC32),
    }
)
"""Names that applications may not set themselves (official ``STRING_HASH_SET``)."""


def parse_properties(text: bytes | str) -> dict[str, str]:
    """Property text to a map; of a repeated name the last value counts.

    Bytes that are not UTF-8 read as U+FFFD: one odd message must not stop a queue.
    """
    if not isinstance(text, str):
        text = str(text, "utf-8", "replace")
    found: dict[str, str] = {}
    if text:
        for item in text.split(PROPERTY_SEPARATOR):
            name, _, value = item.partition(NAME_VALUE_SEPARATOR)
            if name and value:
                found[name] = value
    return found


def find_property(text: bytes, name: str) -> str | None:
    """One property of a property text, as `parse_properties` would give it; None when absent."""
    if name.encode() + b"\x01" not in text:
        return None
    return parse_properties(text).get(name)


def format_properties(
    properties: Mapping[str, str | None] | None, *, last_separator: bool = True
) -> bytes:
    """A map to property text in the map's order; values that are None are left out.

    :param last_separator: 5.x ends the text with a separator, 4.x (False) does not.
    """
    if not properties:
        return b""
    items = [f"{name}\x01{value}" for name, value in properties.items() if value is not None]
    text = PROPERTY_SEPARATOR.join(items)
    if last_separator and items:
        text += PROPERTY_SEPARATOR
    # Java writes "?" for half of a surrogate pair.
    return text.encode("utf-8", "replace")


def count_of(text: str | None, most: int = MAX_INT) -> int | None:
    """A property's value as a number from 0 to ``most``; None when it is none. Values come from clients: a larger one fits nowhere, and
    Python refuses to read very long ones."""
    if text is None or len(text) > len(str(most)) or not text.isdecimal():
        return None
    value = int(text)
    return value if value <= most else None


def with_property(text: bytes, name: str, value: str) -> bytes:
    """Property text with one property set anew, behind the others; those are kept byte for byte."""
    text = without_property(text, name)
    if text and text[-1:] != b"\x02":
        text += b"\x02"
    return text + f"{name}\x01{value}\x02".encode("utf-8", "replace")


def without_property(text: bytes, name: str) -> bytes:
    """Property text without a property; all others are kept byte for byte."""
    start = name.encode() + b"\x01"
    if start not in text:
        return text
    return b"\x02".join([item for item in text.split(b"\x02") if not item.startswith(start)])


def check_user_property(name: str, value: str) -> None:
    """Refuse what an application may not set as a property: reserved names, blanks, and the two separators.

    :raises MQClientError: in words for the caller.
    """
    if name in RESERVED_NAMES:
        raise MQClientError(f"the property {name!r} is used by the system, choose another name")
    check_separators(name, value)
    if not name.strip() or not value.strip():
        raise MQClientError("the name and the value of a property must not be blank")


def check_separators(name: str, value: str) -> None:
    """Refuse the characters 0x01 and 0x02, which would break the property text into other properties.

    :raises MQClientError: naming the property.
    """
    for part, text in (("name", name), ("value", value)):
        if not isinstance(text, str):
            raise MQClientError(
                f"the {part} of property {name!r} must be a text, not {text!r:.200}"
            )
        if NAME_VALUE_SEPARATOR in text or PROPERTY_SEPARATOR in text:
            raise MQClientError(
                f"the {part} of property {name!r} contains the character 0x01 or 0x02,"
                " which separate properties and cannot be sent"
            )
