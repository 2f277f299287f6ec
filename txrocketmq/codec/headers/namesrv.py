"""Which fields travel with requests and responses about the name server: registration, routes, key-value configuration.

One class for each official header class of the same name; see `txrocketmq.codec.headers.base` for the rules.
"""

from __future__ import annotations

from txrocketmq.codec.headers.base import Header, Int32, Int64, TopicRequestHeader


class AddWritePermOfBrokerRequestHeader(Header, kw_only=True):
    """Official ``AddWritePermOfBrokerRequestHeader``: request header of ``ADD_WRITE_PERM_OF_BROKER``
    (327).
    """

    broker_name: str


class AddWritePermOfBrokerResponseHeader(Header, kw_only=True):
    """Official ``AddWritePermOfBrokerResponseHeader``: response header of ``ADD_WRITE_PERM_OF_BROKER``
    (327).
    """

    add_topic_count: Int32


class BrokerHeartbeatRequestHeader(Header, kw_only=True):
    """Official ``BrokerHeartbeatRequestHeader``: request header of ``BROKER_HEARTBEAT`` (904)."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None


class DeleteKVConfigRequestHeader(Header, kw_only=True):
    """Official ``DeleteKVConfigRequestHeader``: request header of ``DELETE_KV_CONFIG`` (102)."""

    namespace: str
    key: str


class DeleteTopicFromNamesrvRequestHeader(TopicRequestHeader, kw_only=True):
    """Official ``DeleteTopicFromNamesrvRequestHeader``: request header of ``DELETE_TOPIC_IN_NAMESRV``
    (216).
    """

    topic: str
    cluster_name: str | None = None


class GetKVConfigRequestHeader(Header, kw_only=True):
    """Official ``GetKVConfigRequestHeader``: request header of ``GET_KV_CONFIG`` (101)."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header, kw_only=True):
    """Official ``GetKVConfigResponseHeader``: response header of ``GET_KV_CONFIG`` (101)."""

    value: str | None = None


class GetKVListByNamespaceRequestHeader(Header, kw_only=True):
    """Official ``GetKVListByNamespaceRequestHeader``: request header of ``GET_KVLIST_BY_NAMESPACE`` (219)."""

    namespace: str


class GetRouteInfoRequestHeader(TopicRequestHeader, kw_only=True):
    """Official ``GetRouteInfoRequestHeader``: request header of ``GET_ROUTEINFO_BY_TOPIC`` (105)."""

    topic: str
    accept_standard_json_only: bool | None = None


class GetTopicsByClusterRequestHeader(Header, kw_only=True):
    """Official ``GetTopicsByClusterRequestHeader``: request header of ``GET_TOPICS_BY_CLUSTER`` (224)."""

    cluster: str


class PutKVConfigRequestHeader(Header, kw_only=True):
    """Official ``PutKVConfigRequestHeader``: request header of ``PUT_KV_CONFIG`` (100)."""

    namespace: str
    key: str
    value: str


class QueryDataVersionRequestHeader(Header, kw_only=True):
    """Official ``QueryDataVersionRequestHeader``: request header of ``QUERY_DATA_VERSION`` (322)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponseHeader(Header, kw_only=True):
    """Official ``QueryDataVersionResponseHeader``: response header of ``QUERY_DATA_VERSION`` (322)."""

    changed: bool


class RegisterBrokerRequestHeader(Header, kw_only=True):
    """Official ``RegisterBrokerRequestHeader``: request header of ``REGISTER_BROKER`` (103)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int32 = 0


class RegisterBrokerResponseHeader(Header, kw_only=True):
    """Official ``RegisterBrokerResponseHeader``: response header of ``REGISTER_BROKER`` (103)."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class RegisterOrderTopicRequestHeader(Header, kw_only=True):
    """Official ``RegisterOrderTopicRequestHeader``."""

    topic: str
    order_topic_string: str


class RegisterTopicRequestHeader(TopicRequestHeader, kw_only=True):
    """Official ``RegisterTopicRequestHeader``: request header of ``REGISTER_TOPIC_IN_NAMESRV`` (217)."""

    topic: str


class UnRegisterBrokerRequestHeader(Header, kw_only=True):
    """Official ``UnRegisterBrokerRequestHeader``: request header of ``UNREGISTER_BROKER`` (104)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class WipeWritePermOfBrokerRequestHeader(Header, kw_only=True):
    """Official ``WipeWritePermOfBrokerRequestHeader``: request header of ``WIPE_WRITE_PERM_OF_BROKER``
    (205).
    """

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(Header, kw_only=True):
    """Official ``WipeWritePermOfBrokerResponseHeader``: response header of ``WIPE_WRITE_PERM_OF_BROKER``
    (205).
    """

    wipe_topic_count: Int32
