"""Which fields travel with requests and responses about clients and their groups: heartbeat, leave, membership, questions passed on to a client.

One class for each official header class of the same name; see `txrocketmq.codec.headers.base` for the rules.
"""

from __future__ import annotations

from msgspec import field

from txrocketmq.codec.headers.base import Header, Int32, RpcRequestHeader, TopicRequestHeader


class ConsumeMessageDirectlyResultRequestHeader(TopicRequestHeader, kw_only=True):
    """Official ``ConsumeMessageDirectlyResultRequestHeader``: request header of
    ``CONSUME_MESSAGE_DIRECTLY`` (309).
    """

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    rpc_broker_name: str | None = field(default=None, name="bname")


class GetAllProducerInfoRequestHeader(Header, kw_only=True):
    """Official ``GetAllProducerInfoRequestHeader``: request header of ``GET_ALL_PRODUCER_INFO`` (328)."""


class GetConsumerConnectionListRequestHeader(RpcRequestHeader, kw_only=True):
    """Official ``GetConsumerConnectionListRequestHeader``: request header of
    ``GET_CONSUMER_CONNECTION_LIST`` (203).
    """

    consumer_group: str


class GetConsumerListByGroupRequestHeader(RpcRequestHeader, kw_only=True):
    """Official ``GetConsumerListByGroupRequestHeader``: request header of ``GET_CONSUMER_LIST_BY_GROUP``
    (38).
    """

    consumer_group: str


class GetConsumerListByGroupResponseHeader(Header, kw_only=True):
    """Official ``GetConsumerListByGroupResponseHeader``: response header of ``GET_CONSUMER_LIST_BY_GROUP``
    (38).
    """


class GetConsumerRunningInfoRequestHeader(RpcRequestHeader, kw_only=True):
    """Official ``GetConsumerRunningInfoRequestHeader``: request header of ``GET_CONSUMER_RUNNING_INFO``
    (307).
    """

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class GetProducerConnectionListRequestHeader(RpcRequestHeader, kw_only=True):
    """Official ``GetProducerConnectionListRequestHeader``: request header of
    ``GET_PRODUCER_CONNECTION_LIST`` (204).
    """

    producer_group: str


class HeartbeatRequestHeader(RpcRequestHeader, kw_only=True):
    """Official ``HeartbeatRequestHeader``: request header of ``HEART_BEAT`` (34)."""


class NotifyConsumerIdsChangedRequestHeader(RpcRequestHeader, kw_only=True):
    """Official ``NotifyConsumerIdsChangedRequestHeader``: request header of
    ``NOTIFY_CONSUMER_IDS_CHANGED`` (40).
    """

    consumer_group: str


class QuerySubscriptionByConsumerRequestHeader(TopicRequestHeader, kw_only=True):
    """Official ``QuerySubscriptionByConsumerRequestHeader``: request header of
    ``QUERY_SUBSCRIPTION_BY_CONSUMER`` (345).
    """

    group: str
    topic: str | None = None


class QueryTopicConsumeByWhoRequestHeader(TopicRequestHeader, kw_only=True):
    """Official ``QueryTopicConsumeByWhoRequestHeader``: request header of ``QUERY_TOPIC_CONSUME_BY_WHO``
    (300).
    """

    topic: str


class QueryTopicsByConsumerRequestHeader(RpcRequestHeader, kw_only=True):
    """Official ``QueryTopicsByConsumerRequestHeader``: request header of ``QUERY_TOPICS_BY_CONSUMER``
    (343).
    """

    group: str


class UnregisterClientRequestHeader(RpcRequestHeader, kw_only=True):
    """Official ``UnregisterClientRequestHeader``: request header of ``UNREGISTER_CLIENT`` (35)."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class UnregisterClientResponseHeader(Header, kw_only=True):
    """Official ``UnregisterClientResponseHeader``: response header of ``UNREGISTER_CLIENT`` (35)."""
