"""Which fields travel with requests and responses about topics, subscription groups, statistics and configuration of a broker.

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
from txrocketmq.errors import HeaderError


class CheckRocksdbCqWriteProgressRequestHeader(Header, kw_only=True):
    """Official ``CheckRocksdbCqWriteProgressRequestHeader``: request header of
    ``CHECK_ROCKSDB_CQ_WRITE_PROGRESS`` (354).
    """

    topic: str
    check_store_time: Int64 = 0


class CreateTopicListRequestHeader(RpcRequestHeader, kw_only=True):
    """Official ``CreateTopicListRequestHeader``: request header of ``UPDATE_AND_CREATE_TOPIC_LIST`` (18)."""


class CreateTopicRequestHeader(TopicRequestHeader, kw_only=True):
    """Official ``CreateTopicRequestHeader``: request header of ``UPDATE_AND_CREATE_TOPIC`` (17),
    ``UPDATE_AND_CREATE_STATIC_TOPIC`` (513).
    """

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False

    def __post_init__(self) -> None:
        """Refuses another value as the official ``checkFields`` does."""
        if self.topic_filter_type not in ("SINGLE_TAG", "MULTI_TAG"):
            raise HeaderError("topicFilterType", "must be SINGLE_TAG or MULTI_TAG")


class DeleteSubscriptionGroupRequestHeader(RpcRequestHeader, kw_only=True):
    """Official ``DeleteSubscriptionGroupRequestHeader``: request header of ``DELETE_SUBSCRIPTIONGROUP``
    (207).
    """

    group_name: str
    clean_offset: bool = False


class DeleteTopicRequestHeader(TopicRequestHeader, kw_only=True):
    """Official ``DeleteTopicRequestHeader``: request header of ``DELETE_TOPIC_IN_BROKER`` (215)."""

    topic: str


class ExportRocksDBConfigToJsonRequestHeader(Header, kw_only=True):
    """Official ``ExportRocksDBConfigToJsonRequestHeader``: request header of
    ``EXPORT_ROCKSDB_CONFIG_TO_JSON`` (355).
    """

    config_type: str


class GetAllSubscriptionGroupRequestHeader(Header, kw_only=True):
    """Official ``GetAllSubscriptionGroupRequestHeader``: request header of
    ``GET_ALL_SUBSCRIPTIONGROUP_CONFIG`` (201).

    Pages through a large table. 4.x sends no header at all, so the required ``groupSeq`` is optional
    here.
    """

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


class GetAllSubscriptionGroupResponseHeader(Header, kw_only=True):
    """Official ``GetAllSubscriptionGroupResponseHeader``: response header of
    ``GET_ALL_SUBSCRIPTIONGROUP_CONFIG`` (201).

    4.x sends no header, so the required ``totalGroupNum`` is optional here.
    """

    total_group_num: Int32 | None = None


class GetAllTopicConfigRequestHeader(Header, kw_only=True):
    """Official ``GetAllTopicConfigRequestHeader``: request header of ``GET_ALL_TOPIC_CONFIG`` (21).

    Pages through a large table. 4.x sends no header at all, so the required ``topicSeq`` is optional
    here.
    """

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


class GetAllTopicConfigResponseHeader(Header, kw_only=True):
    """Official ``GetAllTopicConfigResponseHeader``: response header of ``GET_ALL_TOPIC_CONFIG`` (21).

    4.x sends no header, so the required ``totalTopicNum`` is optional here.
    """

    total_topic_num: Int32 | None = None


class GetBrokerConfigResponseHeader(Header, kw_only=True):
    """Official ``GetBrokerConfigResponseHeader``: response header of ``GET_BROKER_CONFIG`` (26)."""

    version: str


class GetSubscriptionGroupConfigRequestHeader(RpcRequestHeader, kw_only=True):
    """Official ``GetSubscriptionGroupConfigRequestHeader``: request header of
    ``GET_SUBSCRIPTIONGROUP_CONFIG`` (352).
    """

    group: str


class GetTopicConfigRequestHeader(TopicRequestHeader, kw_only=True):
    """Official ``GetTopicConfigRequestHeader``: request header of ``GET_TOPIC_CONFIG`` (351)."""

    topic: str


class GetTopicStatsInfoRequestHeader(TopicRequestHeader, kw_only=True):
    """Official ``GetTopicStatsInfoRequestHeader``: request header of ``GET_TOPIC_STATS_INFO`` (202)."""

    topic: str


class StatisticsMessagesRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """Official ``StatisticsMessagesRequestHeader``."""

    consumer_group: str
    topic: str
    queue_id: Int32
    from_time: Int64 = 0
    to_time: Int64 = 0


class UpdateGroupForbiddenRequestHeader(TopicRequestHeader, kw_only=True):
    """Official ``UpdateGroupForbiddenRequestHeader``: request header of ``UPDATE_AND_GET_GROUP_FORBIDDEN``
    (353).
    """

    group: str
    topic: str
    readable: bool | None = None


class ViewBrokerStatsDataRequestHeader(Header, kw_only=True):
    """Official ``ViewBrokerStatsDataRequestHeader``: request header of ``VIEW_BROKER_STATS_DATA`` (315)."""

    stats_name: str
    stats_key: str
