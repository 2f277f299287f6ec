"""Which fields travel with requests and responses about pulling and finding messages, and the locks of ordered consumption.

One class for each official header class of the same name; see `txrocketmq.codec.headers.base` for the rules.
"""

from __future__ import annotations

from txrocketmq.codec.headers.base import (
    Header,
    Int32,
    Int64,
    RpcRequestHeader,
    TopicQueueRequestHeader,
    TopicRequestHeader,
)


class LockBatchMqRequestHeader(RpcRequestHeader, kw_only=True):
    """Official ``LockBatchMqRequestHeader``: request header of ``LOCK_BATCH_MQ`` (41)."""


class PullMessageRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """Official ``PullMessageRequestHeader``: request header of ``PULL_MESSAGE`` (11),
    ``LITE_PULL_MESSAGE`` (361).
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    subscription: str | None = None
    sub_version: Int64
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_froward_client_id: str | None = None


class PullMessageResponseHeader(Header, kw_only=True):
    """Official ``PullMessageResponseHeader``: response header of ``PULL_MESSAGE`` (11),
    ``LITE_PULL_MESSAGE`` (361).
    """

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


class QueryConsumeQueueRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """Official ``QueryConsumeQueueRequestHeader``: request header of ``QUERY_CONSUME_QUEUE`` (321)."""

    topic: str | None = None
    queue_id: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None


class QueryMessageRequestHeader(TopicRequestHeader, kw_only=True):
    """Official ``QueryMessageRequestHeader``: request header of ``QUERY_MESSAGE`` (12)."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    index_type: str | None = None
    last_key: str | None = None


class QueryMessageResponseHeader(Header, kw_only=True):
    """Official ``QueryMessageResponseHeader``: response header of ``QUERY_MESSAGE`` (12)."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class UnlockBatchMqRequestHeader(RpcRequestHeader, kw_only=True):
    """Official ``UnlockBatchMqRequestHeader``: request header of ``UNLOCK_BATCH_MQ`` (42)."""


class ViewMessageRequestHeader(Header, kw_only=True):
    """Official ``ViewMessageRequestHeader``: request header of ``VIEW_MESSAGE_BY_ID`` (33)."""

    topic: str | None = None
    offset: Int64


class ViewMessageResponseHeader(Header, kw_only=True):
    """Official ``ViewMessageResponseHeader``."""
