"""Which requests does a broker not serve, and why? Every code that is not in the operations table."""

from __future__ import annotations

from txrocketmq.model.codes import RequestCode

R = RequestCode

_ACCESS_LATER = "access control comes with a later release"
_NO_ROCKSDB = "this broker keeps no RocksDB"
_NAME_SERVER = "a request for name servers"
_CONTROLLER = "a request for controllers"
_CONTAINER = "a request for broker containers"
_CLIENT = "a request for clients"
_NOBODY = "declared by the protocol, served by no official broker"
_ONLY_4X = "only brokers of the 4.x line served it"

_REASONS: dict[str, tuple[RequestCode, ...]] = {
    _ACCESS_LATER: (
        R.AUTH_CREATE_USER,
        R.AUTH_UPDATE_USER,
        R.AUTH_DELETE_USER,
        R.AUTH_GET_USER,
        R.AUTH_LIST_USER,
        R.AUTH_CREATE_ACL,
        R.AUTH_UPDATE_ACL,
        R.AUTH_DELETE_ACL,
        R.AUTH_GET_ACL,
        R.AUTH_LIST_ACL,
        R.UPDATE_AND_CREATE_ACL_CONFIG,
        R.DELETE_ACL_CONFIG,
        R.GET_BROKER_CLUSTER_ACL_INFO,
        R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        R.GET_BROKER_CLUSTER_ACL_CONFIG,
    ),
    _NO_ROCKSDB: (R.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, R.EXPORT_ROCKSDB_CONFIG_TO_JSON),
    _ONLY_4X: (R.REGISTER_FILTER_SERVER, R.REGISTER_MESSAGE_FILTER_CLASS),
    _NOBODY: (
        R.QUERY_BROKER_OFFSET,
        R.GET_TOPIC_CONFIG_LIST,
        R.GET_TOPIC_NAME_LIST,
        R.TRIGGER_DELETE_FILES,
        R.GET_CLIENT_CONFIG,
        R.SUSPEND_CONSUMER,
        R.RESUME_CONSUMER,
        R.RESET_CONSUMER_OFFSET_IN_CONSUMER,
        R.RESET_CONSUMER_OFFSET_IN_BROKER,
        R.ADJUST_CONSUMER_THREAD_POOL,
        R.WHO_CONSUME_THE_MESSAGE,
    ),
    _CLIENT: (
        R.CHECK_TRANSACTION_STATE,
        R.NOTIFY_CONSUMER_IDS_CHANGED,
        R.RESET_CONSUMER_CLIENT_OFFSET,
        R.GET_CONSUMER_STATUS_FROM_CLIENT,
        R.PUSH_REPLY_MESSAGE_TO_CLIENT,
    ),
    _NAME_SERVER: (
        R.PUT_KV_CONFIG,
        R.GET_KV_CONFIG,
        R.DELETE_KV_CONFIG,
        R.REGISTER_BROKER,
        R.UNREGISTER_BROKER,
        R.GET_ROUTEINFO_BY_TOPIC,
        R.GET_BROKER_CLUSTER_INFO,
        R.WIPE_WRITE_PERM_OF_BROKER,
        R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        R.DELETE_TOPIC_IN_NAMESRV,
        R.REGISTER_TOPIC_IN_NAMESRV,
        R.GET_KVLIST_BY_NAMESPACE,
        R.GET_TOPICS_BY_CLUSTER,
        R.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        R.GET_UNIT_TOPIC_LIST,
        R.GET_HAS_UNIT_SUB_TOPIC_LIST,
        R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        R.UPDATE_NAMESRV_CONFIG,
        R.GET_NAMESRV_CONFIG,
        R.QUERY_DATA_VERSION,
        R.ADD_WRITE_PERM_OF_BROKER,
        R.GET_BROKER_MEMBER_GROUP,
        R.BROKER_HEARTBEAT,
    ),
    _CONTROLLER: (
        R.CONTROLLER_ALTER_SYNC_STATE_SET,
        R.CONTROLLER_ELECT_MASTER,
        R.CONTROLLER_REGISTER_BROKER,
        R.CONTROLLER_GET_REPLICA_INFO,
        R.CONTROLLER_GET_METADATA_INFO,
        R.CONTROLLER_GET_SYNC_STATE_DATA,
        R.UPDATE_CONTROLLER_CONFIG,
        R.GET_CONTROLLER_CONFIG,
        R.CLEAN_BROKER_DATA,
        R.CONTROLLER_GET_NEXT_BROKER_ID,
        R.CONTROLLER_APPLY_BROKER_ID,
        R.BROKER_CLOSE_CHANNEL_REQUEST,
        R.CHECK_NOT_ACTIVE_BROKER_REQUEST,
        R.GET_BROKER_LIVE_INFO_REQUEST,
        R.GET_SYNC_STATE_DATA_REQUEST,
        R.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST,
    ),
    _CONTAINER: (R.ADD_BROKER, R.REMOVE_BROKER),
}

NOT_SERVED: dict[int, str] = {
    int(code): reason for reason, codes in _REASONS.items() for code in codes
}
"""Every other request code, with the reason that its sender is told."""
