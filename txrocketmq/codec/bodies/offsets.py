"""Bodies about queue positions: locks, stored offsets, statistics of topics and groups, resets.

Stands for the official classes of the same names.
"""

from __future__ import annotations

from txrocketmq.model.bean import Bean, default, fresh
from txrocketmq.model.message import MessageQueue
from txrocketmq.model.topic import DataVersion


class LockBatchRequestBody(Bean, kw_only=True):
    """Queues that a consumer wants to own alone."""

    client_id: str | None = None
    consumer_group: str | None = None
    mq_set: list[MessageQueue] = fresh(list)
    only_this_broker: bool = default(False)


class UnlockBatchRequestBody(Bean, kw_only=True):
    """Queues that a consumer gives back."""

    client_id: str | None = None
    consumer_group: str | None = None
    mq_set: list[MessageQueue] = fresh(list)
    only_this_broker: bool = default(False)


class LockBatchResponseBody(Bean, kw_only=True):
    """The queues that were granted."""

    lock_okmq_set: list[MessageQueue] = fresh(list, name="lockOKMQSet")


class ConsumerOffsetSerializeWrapper(Bean, kw_only=True):
    """Where groups stand: ``topic@group`` to queue id to logical offset; also the file ``consumerOffset.json``."""

    data_version: DataVersion | None = None
    offset_table: dict[str, dict[int, int]] = fresh(dict)


class LmqConsumerOffsetSerializeWrapper(Bean, kw_only=True):
    """The file ``lmqConsumerOffset.json``: as above, and ``topic@group`` to logical offset for the groups of light queues."""

    data_version: DataVersion | None = None
    lmq_offset_table: dict[str, int] = fresh(dict)
    offset_table: dict[str, dict[int, int]] = fresh(dict)


class DelayOffsetSerializeWrapper(Bean, kw_only=True):
    """Where the delivery of each delay level stands; also the file ``delayOffset.json``."""

    data_version: DataVersion | None = None
    offset_table: dict[int, int] = fresh(dict)


class QueryCorrectionOffsetBody(Bean, kw_only=True):
    """Queue id to the offset that other groups of a filter server have."""

    correction_offsets: dict[int, int] = fresh(dict)


class ResetOffsetBody(Bean, kw_only=True):
    """The offsets at which the members of a group shall go on."""

    offset_table: dict[MessageQueue, int] = fresh(dict)


class MessageQueueForC(Bean, kw_only=True):
    """A queue and an offset, as C++ clients read them."""

    broker_name: str | None = None
    offset: int = default(0)
    queue_id: int = default(0)
    topic: str | None = None


class ResetOffsetBodyForC(Bean, kw_only=True):
    """`ResetOffsetBody` as C++ clients read it."""

    offset_table: list[MessageQueueForC] = fresh(list)


class GetConsumerStatusBody(Bean, kw_only=True):
    """Where a client stands in its queues, or by client id where several do."""

    consumer_table: dict[str, dict[MessageQueue, int]] = fresh(dict)
    message_queue_table: dict[MessageQueue, int] = fresh(dict)


class OffsetSerializeWrapper(Bean, kw_only=True):
    """A broadcasting client's local offset file."""

    offset_table: dict[MessageQueue, int] = fresh(dict)


class RocksDBOffsetSerializeWrapper(Bean, kw_only=True):
    """The value of one ``topic@group`` in a RocksDB offset store."""

    offset_table: dict[int, int] = fresh(dict)


class TopicOffset(Bean, kw_only=True):
    """A queue's range of logical offsets, and the store time of its newest message in ms."""

    last_update_timestamp: int = default(0)
    max_offset: int = default(0)
    min_offset: int = default(0)


class TopicStatsTable(Bean, kw_only=True):
    """The ranges of all queues of a topic."""

    offset_table: dict[MessageQueue, TopicOffset] = fresh(dict)
    topic_put_tps: float = default(0.0)


class OffsetWrapper(Bean, kw_only=True):
    """Where a group stands in a queue: end of the queue, committed and pulled offset, store time of the last consumed message."""

    broker_offset: int = default(0)
    consumer_offset: int = default(0)
    last_timestamp: int = default(0)
    pull_offset: int = default(0)


class ConsumeStats(Bean, kw_only=True):
    """Where a group stands in all its queues."""

    consume_tps: float = default(0.0)
    offset_table: dict[MessageQueue, OffsetWrapper] = fresh(dict)


class ConsumeStatsList(Bean, kw_only=True):
    """The stats of all groups of a broker."""

    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = fresh(list)
    total_diff: int = default(0)
    total_inflight_diff: int = default(0)


class QueueTimeSpan(Bean, kw_only=True):
    """Store times in ms of a queue's first, last and consumed message, also as text."""

    consume_time_stamp: int = default(0)
    consume_time_stamp_str: str | None = None
    delay_time: int = default(0)
    max_time_stamp: int = default(0)
    max_time_stamp_str: str | None = None
    message_queue: MessageQueue | None = None
    min_time_stamp: int = default(0)
    min_time_stamp_str: str | None = None


class QueryConsumeTimeSpanBody(Bean, kw_only=True):
    """The time spans of the queues a group consumes."""

    consume_time_span_set: list[QueueTimeSpan] = fresh(list)


class OffsetMovedEvent(Bean, kw_only=True):
    """Told to operators when a consumer asked for an offset that is gone."""

    consumer_group: str | None = None
    message_queue: MessageQueue | None = None
    offset_new: int = default(0)
    offset_request: int = default(0)
