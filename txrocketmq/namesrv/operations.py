"""Which requests does a name server serve? The one table: code, headers, handler, lane."""

from __future__ import annotations

from txrocketmq.codec.headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    BrokerHeartbeatRequestHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from txrocketmq.model.codes import RequestCode
from txrocketmq.remoting.dispatch import Lane, Operation


def _row(
    code: RequestCode,
    request_header: type | None,
    response_header: type | None,
    handler: str,
    lane: Lane,
) -> Operation:
    return Operation(int(code), request_header, response_header, handler, lane)


OPERATIONS = (
    _row(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        GetRouteInfoRequestHeader,
        None,
        "routes.get_route",
        Lane.ROUTE,
    ),
    _row(
        RequestCode.REGISTER_BROKER,
        RegisterBrokerRequestHeader,
        RegisterBrokerResponseHeader,
        "brokers.register_broker",
        Lane.REGISTRATION,
    ),
    _row(
        RequestCode.UNREGISTER_BROKER,
        UnRegisterBrokerRequestHeader,
        None,
        "brokers.unregister_broker",
        Lane.REGISTRATION,
    ),
    _row(
        RequestCode.QUERY_DATA_VERSION,
        QueryDataVersionRequestHeader,
        QueryDataVersionResponseHeader,
        "brokers.query_data_version",
        Lane.REGISTRATION,
    ),
    _row(
        RequestCode.BROKER_HEARTBEAT,
        BrokerHeartbeatRequestHeader,
        None,
        "brokers.broker_heartbeat",
        Lane.REGISTRATION,
    ),
    _row(
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RegisterTopicRequestHeader,
        None,
        "brokers.register_topic",
        Lane.REGISTRATION,
    ),
    _row(
        RequestCode.GET_BROKER_CLUSTER_INFO, None, None, "admin.get_broker_cluster_info", Lane.ADMIN
    ),
    _row(
        RequestCode.GET_BROKER_MEMBER_GROUP,
        GetBrokerMemberGroupRequestHeader,
        None,
        "admin.get_broker_member_group",
        Lane.ADMIN,
    ),
    _row(
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        WipeWritePermOfBrokerRequestHeader,
        WipeWritePermOfBrokerResponseHeader,
        "admin.wipe_write_permission",
        Lane.ADMIN,
    ),
    _row(
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        AddWritePermOfBrokerRequestHeader,
        AddWritePermOfBrokerResponseHeader,
        "admin.add_write_permission",
        Lane.ADMIN,
    ),
    _row(
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        DeleteTopicFromNamesrvRequestHeader,
        None,
        "admin.delete_topic",
        Lane.ADMIN,
    ),
    _row(
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        None,
        None,
        "admin.get_all_topics",
        Lane.ADMIN,
    ),
    _row(
        RequestCode.GET_TOPICS_BY_CLUSTER,
        GetTopicsByClusterRequestHeader,
        None,
        "admin.get_topics_by_cluster",
        Lane.ADMIN,
    ),
    _row(
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        None,
        None,
        "admin.get_system_topics",
        Lane.ADMIN,
    ),
    _row(RequestCode.GET_UNIT_TOPIC_LIST, None, None, "admin.get_unit_topics", Lane.ADMIN),
    _row(
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, None, None, "admin.get_unit_sub_topics", Lane.ADMIN
    ),
    _row(
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        None,
        None,
        "admin.get_unit_sub_ununit_topics",
        Lane.ADMIN,
    ),
    _row(RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader, None, "kv.put_kv_config", Lane.ADMIN),
    _row(
        RequestCode.GET_KV_CONFIG,
        GetKVConfigRequestHeader,
        GetKVConfigResponseHeader,
        "kv.get_kv_config",
        Lane.ADMIN,
    ),
    _row(
        RequestCode.DELETE_KV_CONFIG,
        DeleteKVConfigRequestHeader,
        None,
        "kv.delete_kv_config",
        Lane.ADMIN,
    ),
    _row(
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        GetKVListByNamespaceRequestHeader,
        None,
        "kv.get_kv_list",
        Lane.ADMIN,
    ),
    _row(RequestCode.GET_NAMESRV_CONFIG, None, None, "config.get_config", Lane.ADMIN),
    _row(RequestCode.UPDATE_NAMESRV_CONFIG, None, None, "config.update_config", Lane.ADMIN),
)
