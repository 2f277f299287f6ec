"""Which fields travel with requests and responses about sending: messages, replies, send-back, recall, transactions.

One class for each official header class of the same name; see `txrocketmq.codec.headers.base` for the rules.
"""

from __future__ import annotations

from msgspec import field

from txrocketmq.codec.headers.base import (
    Header,
    Int32,
    Int64,
    RpcRequestHeader,
    TopicQueueRequestHeader,
    TopicRequestHeader,
)
from txrocketmq.errors import HeaderError


class CheckTransactionStateRequestHeader(RpcRequestHeader, kw_only=True):
    """Official ``CheckTransactionStateRequestHeader``: request header of ``CHECK_TRANSACTION_STATE`` (39)."""

    topic: str | None = None
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class CheckTransactionStateResponseHeader(Header, kw_only=True):
    """Official ``CheckTransactionStateResponseHeader``."""

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32

    def __post_init__(self) -> None:
        """Refuses another value as the official ``checkFields`` does."""
        if self.commit_or_rollback not in (8, 12):
            raise HeaderError("commitOrRollback", "must be 8 (commit) or 12 (rollback)")


class ConsumerSendMsgBackRequestHeader(RpcRequestHeader, kw_only=True):
    """Official ``ConsumerSendMsgBackRequestHeader``: request header of ``CONSUMER_SEND_MSG_BACK`` (36)."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


class EndTransactionRequestHeader(RpcRequestHeader, kw_only=True):
    """Official ``EndTransactionRequestHeader``: request header of ``END_TRANSACTION`` (37)."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None

    def __post_init__(self) -> None:
        """Refuses another value as the official ``checkFields`` does."""
        if self.commit_or_rollback not in (0, 8, 12):
            raise HeaderError(
                "commitOrRollback", "must be 0 (unknown), 8 (commit) or 12 (rollback)"
            )


class EndTransactionResponseHeader(Header, kw_only=True):
    """Official ``EndTransactionResponseHeader``."""


class RecallMessageRequestHeader(TopicRequestHeader, kw_only=True):
    """Official ``RecallMessageRequestHeader``: request header of ``RECALL_MESSAGE`` (370)."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallMessageResponseHeader(Header, kw_only=True):
    """Official ``RecallMessageResponseHeader``: response header of ``RECALL_MESSAGE`` (370)."""

    msg_id: str


class ReplyMessageRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """Official ``ReplyMessageRequestHeader``: request header of ``PUSH_REPLY_MESSAGE_TO_CLIENT`` (326)."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Int64


class ResumeCheckHalfMessageRequestHeader(Header, kw_only=True):
    """Official ``ResumeCheckHalfMessageRequestHeader``: request header of ``RESUME_CHECK_HALF_MESSAGE``
    (323).
    """

    topic: str | None = None
    msg_id: str | None = None


class SendMessageRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """Official ``SendMessageRequestHeader``: request header of ``SEND_MESSAGE`` (10),
    ``SEND_REPLY_MESSAGE`` (324).

    Long names; clients send it when short names are switched off.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: Int32 | None = None


class SendMessageRequestHeaderV2(TopicQueueRequestHeader, kw_only=True):
    """Official ``SendMessageRequestHeaderV2``: request header of ``SEND_MESSAGE_V2`` (310),
    ``SEND_BATCH_MESSAGE`` (320), ``SEND_REPLY_MESSAGE_V2`` (325).

    The short form of `SendMessageRequestHeader`: wire names ``a`` to ``n``, the same attributes. The
    inherited fields travel in JSON headers only.
    """

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: Int32 = field(name="d")
    queue_id: Int32 = field(name="e")
    sys_flag: Int32 = field(name="f")
    born_timestamp: Int64 = field(name="g")
    flag: Int32 = field(name="h")
    properties: str | None = field(default=None, name="i")
    reconsume_times: Int32 | None = field(default=None, name="j")
    unit_mode: bool | None = field(default=None, name="k")
    max_reconsume_times: Int32 | None = field(default=None, name="l")
    batch: bool | None = field(default=None, name="m")
    broker_name: str | None = field(default=None, name="n")
    rpc_broker_name: str | None = field(default=None, name="bname")


class SendMessageResponseHeader(Header, kw_only=True):
    """Official ``SendMessageResponseHeader``: response header of ``SEND_MESSAGE`` (10),
    ``SEND_MESSAGE_V2`` (310), ``SEND_BATCH_MESSAGE`` (320), ``SEND_REPLY_MESSAGE`` (324),
    ``SEND_REPLY_MESSAGE_V2`` (325).
    """

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
