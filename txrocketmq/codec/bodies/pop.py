"""Bodies of POP consumption: acknowledgements, check points, assignment of queues.

Stands for the official classes of the same names. One-letter wire names are the official ones.
"""

from __future__ import annotations

from txrocketmq.model.bean import Bean, absent, default, fresh
from txrocketmq.model.heartbeat import MessageModel, MessageRequestMode
from txrocketmq.model.message import MessageQueue


class AckMsg(Bean, kw_only=True):
    """The body of an ack message in the revive topic."""

    ack_offset: int = default(0, name="ao")
    broker_name: str | None = absent("bn")
    consumer_group: str | None = absent("c")
    pop_time: int = default(0, name="pt")
    queue_id: int = default(0, name="q")
    start_offset: int = default(0, name="so")
    topic: str | None = absent("t")


class BatchAckMsg(Bean, kw_only=True):
    """The body of a message in the revive topic that acknowledges several offsets."""

    ack_offset: int = default(0, name="ao")
    ack_offset_list: list[int] = fresh(list, name="aol")
    broker_name: str | None = absent("bn")
    consumer_group: str | None = absent("c")
    pop_time: int = default(0, name="pt")
    queue_id: int = default(0, name="q")
    start_offset: int = default(0, name="so")
    topic: str | None = absent("t")


class BatchAck(Bean, kw_only=True):
    """Acknowledged messages of one pop; ``bit_set`` marks them as ``java.util.BitSet`` bytes."""

    bit_set: bytes | None = absent("b")
    consumer_group: str | None = absent("c")
    invisible_time: int = default(0, name="it")
    pop_time: int = default(0, name="pt")
    queue_id: int = default(0, name="q")
    retry: str | None = absent("r")
    revive_queue_id: int = default(0, name="rq")
    start_offset: int = default(0, name="so")
    topic: str | None = absent("t")


class BatchAckMessageRequestBody(Bean, kw_only=True):
    """Acknowledgements of several pops."""

    acks: list[BatchAck] = fresh(list)
    broker_name: str | None = None


class PopCheckPoint(Bean, kw_only=True):
    """The body of a check point in the revive topic: what one pop handed out."""

    bit_map: int = default(0, name="bm")
    broker_name: str | None = absent("bn")
    cid: str | None = absent("c")
    queue_offset_diff: list[int] = fresh(list, name="d")
    invisible_time: int = default(0, name="it")
    num: int = default(0, name="n")
    pop_time: int = default(0, name="pt")
    queue_id: int = default(0, name="q")
    revive_time: int = default(0)
    revive_offset: int = default(0, name="ro")
    re_put_times: str | None = absent("rp")
    start_offset: int = default(0, name="so")
    topic: str | None = absent("t")


class PopConsumerRecord(Bean, kw_only=True):
    """What one pop handed out, as the RocksDB pop store keeps it."""

    attempt_id: str | None = None
    attempt_times: int = default(0)
    group_id: str | None = None
    invisible_time: int = default(0)
    offset: int = default(0)
    pop_time: int = default(0)
    queue_id: int = default(0)
    retry_flag: int = default(0)
    topic_id: str | None = None


class OrderInfo(Bean, kw_only=True):
    """What an ordered POP group holds of one queue."""

    attempt_id: str | None = absent("a")
    commit_offset_bit: int = default(0, name="cm")
    invisible_time: int | None = absent("i")
    last_consume_timestamp: int = default(0, name="l")
    offset_list: list[int] = fresh(list, name="o")
    offset_consumed_count: dict[int, int] | None = absent("oc")
    offset_next_visible_time: dict[int, int] | None = absent("ot")
    pop_time: int = default(0)


class ConsumerOrderInfoTable(Bean, kw_only=True):
    """What ordered POP groups hold, by ``topic@group`` and queue id; the file ``consumerOrderInfo.json``."""

    ordered_consumption_level: str = default("QUEUE")
    table: dict[str, dict[int, OrderInfo]] = fresh(dict)


class QueryAssignmentRequestBody(Bean, kw_only=True):
    """A consumer asks which queues are its own."""

    client_id: str | None = None
    consumer_group: str | None = None
    message_model: MessageModel | None = None
    strategy_name: str | None = None
    topic: str | None = None


class MessageQueueAssignment(Bean, kw_only=True):
    """A queue and how to consume it."""

    attachments: dict[str, str] | None = None
    message_queue: MessageQueue | None = None
    mode: MessageRequestMode = default(MessageRequestMode.PULL)


class QueryAssignmentResponseBody(Bean, kw_only=True):
    """The queues that are assigned; None tells a client to leave everything as it is."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None
