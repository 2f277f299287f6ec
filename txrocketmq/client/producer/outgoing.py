"""What goes onto the wire for a message? Checks, id, compression, property text.

Stands for ``Validators.checkMessage``, ``tryToCompressMessage`` and the header half of ``sendKernelImpl`` in ``DefaultMQProducerImpl``.
"""

from __future__ import annotations

import msgspec

from txrocketmq.client.config import ClientConfig
from txrocketmq.client.producer.config import ProducerConfig
from txrocketmq.client.replies import REPLY_TYPE
from txrocketmq.codec.compress import compress_body, compression_type
from txrocketmq.codec.headers import SendMessageRequestHeaderV2
from txrocketmq.codec.record import BATCH_ITEM_OVERHEAD_BYTES, encode_batch
from txrocketmq.errors import MQClientError
from txrocketmq.model import properties as props
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.flags import COMPRESSED_FLAG, TRANSACTION_PREPARED_TYPE
from txrocketmq.model.message import Message
from txrocketmq.model.message_id import create_uniq_id
from txrocketmq.model.names import (
    NOT_ALLOWED_SEND_TOPICS,
    RETRY_GROUP_TOPIC_PREFIX,
    topic_fault,
)
from txrocketmq.model.properties import (
    MAX_PROPERTIES_BYTES,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    check_separators,
)

_SEND = int(RequestCode.SEND_MESSAGE_V2)
_SEND_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
_SEND_REPLY = int(RequestCode.SEND_REPLY_MESSAGE_V2)
_DELAYING = (
    props.DELAY_TIME_LEVEL,
    props.TIMER_DELAY_MS,
    props.TIMER_DELAY_SEC,
    props.TIMER_DELIVER_MS,
)


class Outgoing(msgspec.Struct, gc=False):
    """A message as it goes onto the wire.

    :ivar topic: with name space.
    :ivar body: compressed where that was asked for.
    :ivar msg_id: unique id; of a batch all ids, with commas between.
    """

    message: Message
    code: int
    topic: str
    body: bytes
    sys_flag: int
    properties: str
    msg_id: str
    batch: bool = False
    reconsume_times: int = 0
    max_reconsume_times: int | None = None


def check_message(message: Message, max_size: int) -> None:
    """Refuse what no broker would take.

    :raises MQClientError: naming topic, size and limit.
    """
    try:
        topic, body = message.topic, message.body
    except AttributeError:
        raise MQClientError(
            f"a Message(topic=..., body=...) is sent, not {message!r:.200}"
        ) from None
    if topic not in _good_topics:
        _check_topic(topic)
    if not isinstance(body, bytes | bytearray | memoryview):
        raise MQClientError(
            f"the message for topic {topic} has a body of {type(body).__name__}; bytes are sent, encode a text first"
        )
    size = len(body)
    if not size:
        raise MQClientError(f"the message for topic {topic} has no body")
    if size > max_size:
        raise MQClientError(
            f"the message for topic {topic} has a body of {size} bytes, the limit of this client "
            f"is {max_size}"
        )


_good_topics: set[str] = set()
_MAX_GOOD_TOPICS = 10_000


def _check_topic(topic: str) -> None:
    fault = topic_fault(topic)
    if fault is not None:
        raise MQClientError(fault)
    if topic in NOT_ALLOWED_SEND_TOPICS:
        raise MQClientError(f"Sending message to topic[{topic}] is forbidden.")
    if len(_good_topics) >= _MAX_GOOD_TOPICS:
        _good_topics.clear()
    _good_topics.add(topic)


def property_text(properties: dict[str, str]) -> str:
    """The property text of a message to be sent.

    :raises MQClientError: a separator character in a name or value, or all together are too long.
    """
    text = (
        PROPERTY_SEPARATOR.join([f"{name}\x01{value}" for name, value in properties.items()])
        + PROPERTY_SEPARATOR
    )
    # Cheaper than a look at each name and value.
    count = len(properties)
    if text.count(NAME_VALUE_SEPARATOR) != count or text.count(PROPERTY_SEPARATOR) != count:
        for name, value in properties.items():
            check_separators(name, value)
    if len(text) > MAX_PROPERTIES_BYTES // 4:
        size = len(text.encode("utf-8", "replace"))
        if size > MAX_PROPERTIES_BYTES:
            raise MQClientError(
                f"the properties take {size} bytes, the most is {MAX_PROPERTIES_BYTES}"
            )
    return text


def prepare(
    message: Message,
    config: ClientConfig,
    settings: ProducerConfig,
    now_ms: int,
    packed: bytes | None = None,
) -> Outgoing:
    """The wire form of one message; gives it its unique id unless it has one.

    :param packed: the body, if it was compressed already.
    :raises MQClientError: its properties cannot be written.
    """
    properties = message.properties
    msg_id = properties.get(props.UNIQ_KEY)
    if not msg_id:
        msg_id = properties[props.UNIQ_KEY] = create_uniq_id(now_ms)
    if props.WAIT_STORE_MSG_OK not in properties:
        properties[props.WAIT_STORE_MSG_OK] = "true"
    topic = message.topic
    if config.namespace:
        topic = config.with_namespace(topic)
        properties[props.INSTANCE_ID] = config.namespace
    sys_flag = 0
    body = message.body
    if len(body) >= settings.compress_msg_body_over_howmuch:
        kind = compression_type(settings.compress_type)
        body = compress_body(body, kind, settings.compress_level) if packed is None else packed
        sys_flag = COMPRESSED_FLAG | kind
    if properties.get(props.TRANSACTION_PREPARED) == "true":
        sys_flag |= TRANSACTION_PREPARED_TYPE
    code = _SEND_REPLY if properties.get(props.MESSAGE_TYPE) == REPLY_TYPE else _SEND
    outgoing = Outgoing(message, code, topic, body, sys_flag, "", msg_id)
    if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        properties = dict(properties)
        times = properties.pop(props.RECONSUME_TIME, None)
        most = properties.pop(props.MAX_RECONSUME_TIMES, None)
        outgoing.reconsume_times = int(times) if times else 0
        outgoing.max_reconsume_times = int(most) if most else None
    outgoing.properties = property_text(properties)
    return outgoing


def make_header(
    outgoing: Outgoing,
    group: str,
    settings: ProducerConfig,
    queue_id: int,
    broker_name: str,
    born_ms: int,
    unit_mode: bool,
) -> SendMessageRequestHeaderV2:
    """The request's header."""
    return SendMessageRequestHeaderV2(
        producer_group=group,
        topic=outgoing.topic,
        default_topic=settings.create_topic_key,
        default_topic_queue_nums=settings.default_topic_queue_nums,
        queue_id=queue_id,
        sys_flag=outgoing.sys_flag,
        born_timestamp=born_ms,
        flag=outgoing.message.flag,
        properties=outgoing.properties,
        reconsume_times=outgoing.reconsume_times,
        unit_mode=unit_mode,
        max_reconsume_times=outgoing.max_reconsume_times,
        batch=outgoing.batch,
        broker_name=broker_name,
    )


def message_kind(outgoing: Outgoing) -> str:
    """What kind of message hooks are told: ``normal``, ``batch``, ``half``, ``delay`` or ``reply``."""
    properties = outgoing.message.properties
    if outgoing.batch:
        return "batch"
    if properties.get(props.TRANSACTION_PREPARED) == "true":
        return "half"
    if properties.get(props.MESSAGE_TYPE):
        return "reply"
    if any(properties.get(name) for name in _DELAYING):
        return "delay"
    return "normal"


# --------------------------------------------------------------------------- batches


def can_batch(message: Message) -> bool:
    """Whether a message may be part of a batch: no delay, no transaction, no retry topic, no reply."""
    properties = message.properties
    return not (
        message.topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
        or props.TRANSACTION_PREPARED in properties
        or props.MESSAGE_TYPE in properties
        or any(properties.get(name) for name in _DELAYING)
    )


def check_batch(messages: list[Message]) -> None:
    """Refuse what cannot be one batch.

    :raises MQClientError: in the official sense: one topic, one answer to whether to wait for the store, nothing delayed.
    """
    if not messages:
        raise MQClientError("a batch needs at least one message")
    first = messages[0]
    for message in messages:
        if message.topic != first.topic:
            raise MQClientError(
                f"the messages of a batch must have one topic, not {first.topic} and "
                f"{message.topic}"
            )
        if message.wait_store_msg_ok != first.wait_store_msg_ok:
            raise MQClientError("the messages of a batch must agree on wait_store_msg_ok")
        if not can_batch(message):
            raise MQClientError(
                f"a message for topic {message.topic} is delayed, a half message or for a retry "
                "topic, and cannot be in a batch"
            )


def batch_item_size(message: Message) -> int:
    """At most so many bytes does a message take in a batch; its unique id and the like are counted in."""
    texts = sum(
        len(name.encode()) + len(value.encode("utf-8", "replace")) + 2
        for name, value in message.properties.items()
    )
    return BATCH_ITEM_OVERHEAD_BYTES + len(message.body) + texts + 100


def split_batch_messages(messages: list[Message], max_size: int) -> list[list[Message]]:
    """Parts of a batch that fit into one request each, in order.

    :raises MQClientError: a message by itself is too large.
    """
    parts: list[list[Message]] = [[]]
    used = 0
    for message in messages:
        size = batch_item_size(message)
        if size > max_size:
            raise MQClientError(
                f"a message for topic {message.topic} takes {size} bytes in a batch, the limit of "
                f"this client is {max_size}"
            )
        if used + size > max_size:
            parts.append([])
            used = 0
        parts[-1].append(message)
        used += size
    return parts


def prepare_batch(messages: list[Message], config: ClientConfig, now_ms: int) -> Outgoing:
    """The wire form of a batch; its messages are not compressed (no official client does that)."""
    first = messages[0]
    items = []
    ids = []
    for message in messages:
        properties = message.properties
        msg_id = properties.get(props.UNIQ_KEY)
        if not msg_id:
            msg_id = properties[props.UNIQ_KEY] = create_uniq_id(now_ms)
        if props.WAIT_STORE_MSG_OK not in properties:
            properties[props.WAIT_STORE_MSG_OK] = "true"
        if config.namespace:
            properties[props.INSTANCE_ID] = config.namespace
        ids.append(msg_id)
        text = property_text(properties).encode("utf-8", "replace")
        items.append((message.flag, message.body, text))
    wait = "true" if first.wait_store_msg_ok else "false"
    envelope = Message(first.topic, b"", 0, {props.WAIT_STORE_MSG_OK: wait})
    return Outgoing(
        envelope,
        _SEND_BATCH,
        config.with_namespace(first.topic),
        encode_batch(items),
        0,
        property_text(envelope.properties),
        ",".join(ids),
        batch=True,
    )
