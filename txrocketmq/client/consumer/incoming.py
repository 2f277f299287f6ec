"""What happens to pulled messages before a handler sees them? Batches are unwrapped, tags compared, names made the application's.

Stands for ``PullAPIWrapper.processPullResult``, ``MessageDecoder.decodeMessage`` and ``resetRetryAndNamespace``. Brokers compare hashes of
tags, and hashes collide, so tags themselves are compared here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.logger import Logger

from txrocketmq.codec.record import split_batch
from txrocketmq.errors import RecordError
from txrocketmq.model import properties as props
from txrocketmq.model.flags import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from txrocketmq.model.heartbeat import SubscriptionData
from txrocketmq.model.message import MessageExt
from txrocketmq.model.names import is_retry_topic
from txrocketmq.model.properties import PROPERTY_SEPARATOR

log = Logger()

_WRAPPED = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
_SEPARATOR = PROPERTY_SEPARATOR.encode()

FilterHook = Callable[[list[MessageExt]], None]
"""May remove messages from the list (official ``FilterMessageHook``)."""


def unwrap_batches(messages: list[MessageExt]) -> list[MessageExt]:
    """Messages with each batch record replaced by what is in it. A batch that cannot be read stays as it is, with a line in the log."""
    for message in messages:
        if message.sys_flag & _WRAPPED == _WRAPPED:
            break
    else:
        return messages
    found: list[MessageExt] = []
    for message in messages:
        if message.sys_flag & _WRAPPED != _WRAPPED:
            found.append(message)
            continue
        try:
            found += _inner_messages(message)
        except RecordError as error:
            log.error(
                "batch at offset {offset} of {topic} cannot be read: {error}",
                offset=message.queue_offset,
                topic=message.topic,
                error=error,
            )
            found.append(message)
    return found


def _inner_messages(batch: MessageExt) -> list[MessageExt]:
    return [
        MessageExt(
            topic=batch.topic,
            queue_id=batch.queue_id,
            queue_offset=batch.queue_offset + number,
            physical_offset=batch.physical_offset,
            store_size=batch.store_size,
            flag=flag,
            sys_flag=batch.sys_flag,
            body=body,
            body_crc=0,
            born_timestamp=batch.born_timestamp,
            born_host=batch.born_host,
            store_timestamp=batch.store_timestamp,
            store_host=batch.store_host,
            reconsume_times=batch.reconsume_times,
            prepared_transaction_offset=batch.prepared_transaction_offset,
            properties_text=properties,
            broker_name=batch.broker_name,
        )
        for number, (flag, body, properties) in enumerate(split_batch(batch.body))
    ]


def matching(messages: list[MessageExt], subscription: SubscriptionData) -> list[MessageExt]:
    """Messages whose tag the subscription names; all of them where it does not choose by tag."""
    tags = subscription.tags_set
    if not tags or subscription.class_filter_mode:
        return messages
    return [message for message in messages if message.tags in tags]


def prepare(
    messages: list[MessageExt],
    subscription: SubscriptionData,
    min_offset: int,
    max_offset: int,
    filter_hooks: Sequence[FilterHook] = (),
) -> list[MessageExt]:
    """What is left of a pull's messages for the handler. They get the properties MIN_OFFSET and MAX_OFFSET of their queue."""
    found = matching(unwrap_batches(messages), subscription)
    for hook in filter_hooks:
        try:
            hook(found)
        except Exception:
            log.failure("filter hook {hook} failed", hook=hook)
    addition = (
        f"{props.MIN_OFFSET}\x01{min_offset}\x02{props.MAX_OFFSET}\x01{max_offset}\x02".encode()
    )
    for message in found:
        text = message.properties_text
        # Appended to the text, so that nobody parses properties that nobody asks for.
        message.properties_text = (
            text + addition
            if not text or text.endswith(_SEPARATOR)
            else text + _SEPARATOR + addition
        )
        if message._properties is not None:
            message._properties[props.MIN_OFFSET] = str(min_offset)
            message._properties[props.MAX_OFFSET] = str(max_offset)
    return found


def rename_for_application(
    messages: Sequence[MessageExt],
    topic: str,
    without_namespace: Callable[[str], str],
    origin: str | None = None,
) -> None:
    """Give messages the topic that the application knows: of a retry topic's messages the original one, and no name space.

    :param topic: that of their queue. Only the group's own retry topics can be subscribed.
    :param origin: whose retry topic it is, where it is one for a single topic (POP); its messages say so nowhere else.
    """
    if is_retry_topic(topic):
        for message in messages:
            found = message.properties.get(props.RETRY_TOPIC) or origin
            if found is not None:
                message.topic = found
    for message in messages:
        message.topic = without_namespace(message.topic)
