"""Where does a group begin in a queue? At its saved offset; where it has none, as configured.

Stands for ``computePullFromWhereWithException``. Whatever cannot be known now is an error, and the queue is tried again later: a guess would
skip messages or consume them all again.
"""

from __future__ import annotations

from txrocketmq.client.consumer.config import parse_timestamp_ms
from txrocketmq.client.consumer.group_brokers import GroupBrokers
from txrocketmq.client.consumer.parts import OffsetStore
from txrocketmq.model.heartbeat import ConsumeFromWhere
from txrocketmq.model.message import MessageQueue
from txrocketmq.model.names import is_retry_topic


async def start_offset(
    queue: MessageQueue,
    offsets: OffsetStore,
    brokers: GroupBrokers,
    where: ConsumeFromWhere,
    timestamp: str,
) -> int:
    """The logical offset of the first message to consume.

    :param timestamp: for CONSUME_FROM_TIMESTAMP, ``yyyyMMddHHmmss``.
    :raises RocketMQError: the broker cannot be asked now.
    """
    saved = await offsets.read(queue)
    if saved is not None:
        return saved
    if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return 0
    if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
        if is_retry_topic(queue.topic):
            return await brokers.max_offset(queue)
        return await brokers.search_offset(queue, parse_timestamp_ms(timestamp))
    if is_retry_topic(queue.topic):
        return 0
    return await brokers.max_offset(queue)
