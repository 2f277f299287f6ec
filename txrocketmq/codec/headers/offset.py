"""Which fields travel with requests and responses about positions in queues, and a group's consumption progress.

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


class CloneGroupOffsetRequestHeader(RpcRequestHeader, kw_only=True):
    """Official ``CloneGroupOffsetRequestHeader``: request header of ``CLONE_GROUP_OFFSET`` (314)."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class GetConsumeStatsInBrokerHeader(Header, kw_only=True):
    """Official ``GetConsumeStatsInBrokerHeader``: request header of ``GET_BROKER_CONSUME_STATS`` (317)."""

    is_order: bool


class GetConsumeStatsRequestHeader(TopicRequestHeader, kw_only=True):
    """Official ``GetConsumeStatsRequestHeader``: request header of ``GET_CONSUME_STATS`` (208)."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetConsumerStatusRequestHeader(TopicRequestHeader, kw_only=True):
    """Official ``GetConsumerStatusRequestHeader``: request header of ``GET_CONSUMER_STATUS_FROM_CLIENT``
    (221), ``INVOKE_BROKER_TO_GET_CONSUMER_STATUS`` (223).
    """

    topic: str
    group: str
    client_addr: str | None = None


class GetEarliestMsgStoretimeRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """Official ``GetEarliestMsgStoretimeRequestHeader``: request header of ``GET_EARLIEST_MSG_STORETIME``
    (32).
    """

    topic: str
    queue_id: Int32


class GetEarliestMsgStoretimeResponseHeader(Header, kw_only=True):
    """Official ``GetEarliestMsgStoretimeResponseHeader``: response header of
    ``GET_EARLIEST_MSG_STORETIME`` (32).
    """

    timestamp: Int64


class GetMaxOffsetRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """Official ``GetMaxOffsetRequestHeader``: request header of ``GET_MAX_OFFSET`` (30)."""

    topic: str
    queue_id: Int32
    committed: bool = True


class GetMaxOffsetResponseHeader(Header, kw_only=True):
    """Official ``GetMaxOffsetResponseHeader``: response header of ``GET_MAX_OFFSET`` (30)."""

    offset: Int64


class GetMinOffsetRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """Official ``GetMinOffsetRequestHeader``: request header of ``GET_MIN_OFFSET`` (31)."""

    topic: str
    queue_id: Int32


class GetMinOffsetResponseHeader(Header, kw_only=True):
    """Official ``GetMinOffsetResponseHeader``: response header of ``GET_MIN_OFFSET`` (31)."""

    offset: Int64


class InitConsumerOffsetRequestHeader(TopicRequestHeader, kw_only=True):
    """Official ``InitConsumerOffsetRequestHeader``."""

    topic: str | None = None
    init_mode: Int32 = 0


class QueryConsumeTimeSpanRequestHeader(TopicRequestHeader, kw_only=True):
    """Official ``QueryConsumeTimeSpanRequestHeader``: request header of ``QUERY_CONSUME_TIME_SPAN`` (303)."""

    topic: str
    group: str


class QueryConsumerOffsetRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """Official ``QueryConsumerOffsetRequestHeader``: request header of ``QUERY_CONSUMER_OFFSET`` (14)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponseHeader(Header, kw_only=True):
    """Official ``QueryConsumerOffsetResponseHeader``: response header of ``QUERY_CONSUMER_OFFSET`` (14)."""

    offset: Int64


class QueryCorrectionOffsetHeader(TopicRequestHeader, kw_only=True):
    """Official ``QueryCorrectionOffsetHeader``: request header of ``QUERY_CORRECTION_OFFSET`` (308)."""

    filter_groups: str | None = None
    compare_group: str
    topic: str


class ResetOffsetRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """Official ``ResetOffsetRequestHeader``: request header of ``RESET_CONSUMER_CLIENT_OFFSET`` (220),
    ``INVOKE_BROKER_TO_RESET_OFFSET`` (222).
    """

    group: str
    topic: str
    queue_id: Int32 = -1
    offset: Int64 | None = None
    timestamp: Int64
    is_force: bool


class SearchOffsetRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """Official ``SearchOffsetRequestHeader``: request header of ``SEARCH_OFFSET_BY_TIMESTAMP`` (29).

    ``boundary_type`` is LOWER or UPPER (any case); anything else means LOWER.
    """

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None


class SearchOffsetResponseHeader(Header, kw_only=True):
    """Official ``SearchOffsetResponseHeader``: response header of ``SEARCH_OFFSET_BY_TIMESTAMP`` (29)."""

    offset: Int64


class UpdateConsumerOffsetRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """Official ``UpdateConsumerOffsetRequestHeader``: request header of ``UPDATE_CONSUMER_OFFSET`` (15)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


class UpdateConsumerOffsetResponseHeader(Header, kw_only=True):
    """Official ``UpdateConsumerOffsetResponseHeader``: response header of ``UPDATE_CONSUMER_OFFSET`` (15)."""
