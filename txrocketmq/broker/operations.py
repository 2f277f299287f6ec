"""Which requests does a broker serve? The one table: code, headers, handler, lane; and why the others are not."""

from __future__ import annotations

from txrocketmq.codec import headers as h
from txrocketmq.model.codes import RequestCode
from txrocketmq.remoting.dispatch import Lane, Operation

R = RequestCode


def _row(
    code: RequestCode,
    request_header: type | None,
    response_header: type | None,
    handler: str,
    lane: Lane,
    *,
    vip: bool = True,
    may_hold: bool = False,
) -> Operation:
    return Operation(int(code), request_header, response_header, handler, lane, vip, may_hold)


OPERATIONS = (
    _row(
        R.SEND_MESSAGE,
        h.SendMessageRequestHeader,
        h.SendMessageResponseHeader,
        "send.send_message",
        Lane.SEND,
    ),
    _row(
        R.SEND_MESSAGE_V2,
        h.SendMessageRequestHeaderV2,
        h.SendMessageResponseHeader,
        "send.send_message",
        Lane.SEND,
    ),
    _row(
        R.SEND_BATCH_MESSAGE,
        h.SendMessageRequestHeaderV2,
        h.SendMessageResponseHeader,
        "send.send_batch",
        Lane.SEND,
    ),
    _row(
        R.PULL_MESSAGE,
        h.PullMessageRequestHeader,
        h.PullMessageResponseHeader,
        "pull.pull_message",
        Lane.PULL,
        vip=False,
        may_hold=True,
    ),
    _row(
        R.LITE_PULL_MESSAGE,
        h.PullMessageRequestHeader,
        h.PullMessageResponseHeader,
        "pull.pull_message",
        Lane.PULL,
        vip=False,
        may_hold=True,
    ),
    _row(
        R.QUERY_CONSUMER_OFFSET,
        h.QueryConsumerOffsetRequestHeader,
        h.QueryConsumerOffsetResponseHeader,
        "offset.query_consumer_offset",
        Lane.OFFSET,
    ),
    _row(
        R.UPDATE_CONSUMER_OFFSET,
        h.UpdateConsumerOffsetRequestHeader,
        h.UpdateConsumerOffsetResponseHeader,
        "offset.update_consumer_offset",
        Lane.OFFSET,
    ),
    _row(
        R.GET_MAX_OFFSET,
        h.GetMaxOffsetRequestHeader,
        h.GetMaxOffsetResponseHeader,
        "offset.get_max_offset",
        Lane.ADMIN,
    ),
    _row(
        R.GET_MIN_OFFSET,
        h.GetMinOffsetRequestHeader,
        h.GetMinOffsetResponseHeader,
        "offset.get_min_offset",
        Lane.ADMIN,
    ),
    _row(
        R.SEARCH_OFFSET_BY_TIMESTAMP,
        h.SearchOffsetRequestHeader,
        h.SearchOffsetResponseHeader,
        "offset.search_offset",
        Lane.ADMIN,
    ),
    _row(
        R.GET_EARLIEST_MSG_STORETIME,
        h.GetEarliestMsgStoretimeRequestHeader,
        h.GetEarliestMsgStoretimeResponseHeader,
        "offset.get_earliest_store_time",
        Lane.ADMIN,
    ),
    _row(R.GET_ALL_CONSUMER_OFFSET, None, None, "admin.get_all_offsets", Lane.ADMIN),
    _row(R.HEART_BEAT, h.HeartbeatRequestHeader, None, "heartbeat.heart_beat", Lane.HEARTBEAT),
    _row(
        R.UNREGISTER_CLIENT,
        h.UnregisterClientRequestHeader,
        h.UnregisterClientResponseHeader,
        "heartbeat.unregister_client",
        Lane.CLIENT,
    ),
    _row(R.CHECK_CLIENT_CONFIG, None, None, "heartbeat.check_client_config", Lane.CLIENT),
    _row(
        R.GET_CONSUMER_LIST_BY_GROUP,
        h.GetConsumerListByGroupRequestHeader,
        h.GetConsumerListByGroupResponseHeader,
        "heartbeat.get_consumer_list",
        Lane.CLIENT,
    ),
    _row(R.LOCK_BATCH_MQ, h.LockBatchMqRequestHeader, None, "lock.lock_batch", Lane.LOCK),
    _row(R.UNLOCK_BATCH_MQ, h.LockBatchMqRequestHeader, None, "lock.unlock_batch", Lane.LOCK),
    _row(
        R.UPDATE_AND_CREATE_TOPIC,
        h.CreateTopicRequestHeader,
        None,
        "admin.update_topic",
        Lane.ADMIN,
    ),
    _row(
        R.GET_ALL_TOPIC_CONFIG,
        None,
        h.GetAllTopicConfigResponseHeader,
        "admin.get_all_topics",
        Lane.ADMIN,
    ),
    _row(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, None, "admin.update_group", Lane.ADMIN),
    _row(
        R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        None,
        h.GetAllSubscriptionGroupResponseHeader,
        "admin.get_all_groups",
        Lane.ADMIN,
    ),
    _row(R.GET_BROKER_RUNTIME_INFO, None, None, "admin.get_runtime_info", Lane.ADMIN),
)

_ADMIN_LATER = "administration of this kind comes with a later release"
_RETRY_LATER = "sending messages back for a retry comes with a later release"
_TRANSACTION_LATER = "transactional messages come with a later release"
_TIMER_LATER = "delayed and timed messages come with a later release"
_POP_LATER = "POP consumption comes with a later release"
_REPLY_LATER = "request-reply messages come with a later release"
_QUERY_LATER = "finding messages by key or id comes with a later release"
_REPLICA_LATER = "replication comes with a later release"
_ACCESS_LATER = "access control comes with a later release"
_COLD_LATER = "flow control of cold reads comes with a later release"
_STATIC_LATER = "static topics come with a later release"
_NO_ROCKSDB = "this broker keeps no RocksDB"
_NAME_SERVER = "a request for name servers"
_CONTROLLER = "a request for controllers"
_CONTAINER = "a request for broker containers"
_CLIENT = "a request for clients"
_NOBODY = "declared by the protocol, served by no official broker"
_ONLY_4X = "only brokers of the 4.x line served it"

_REASONS: dict[str, tuple[RequestCode, ...]] = {
    _ADMIN_LATER: (
        R.UPDATE_AND_CREATE_TOPIC_LIST,
        R.UPDATE_BROKER_CONFIG,
        R.GET_BROKER_CONFIG,
        R.GET_TOPIC_STATS_INFO,
        R.GET_CONSUMER_CONNECTION_LIST,
        R.GET_PRODUCER_CONNECTION_LIST,
        R.DELETE_SUBSCRIPTIONGROUP,
        R.GET_CONSUME_STATS,
        R.DELETE_TOPIC_IN_BROKER,
        R.INVOKE_BROKER_TO_RESET_OFFSET,
        R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        R.QUERY_TOPIC_CONSUME_BY_WHO,
        R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        R.QUERY_TOPICS_BY_CONSUMER,
        R.QUERY_SUBSCRIPTION_BY_CONSUMER,
        R.QUERY_CONSUME_TIME_SPAN,
        R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        R.CLEAN_EXPIRED_CONSUMEQUEUE,
        R.GET_CONSUMER_RUNNING_INFO,
        R.QUERY_CORRECTION_OFFSET,
        R.CONSUME_MESSAGE_DIRECTLY,
        R.CLONE_GROUP_OFFSET,
        R.VIEW_BROKER_STATS_DATA,
        R.CLEAN_UNUSED_TOPIC,
        R.GET_BROKER_CONSUME_STATS,
        R.QUERY_CONSUME_QUEUE,
        R.GET_ALL_PRODUCER_INFO,
        R.DELETE_EXPIRED_COMMITLOG,
        R.GET_TOPIC_CONFIG,
        R.GET_SUBSCRIPTIONGROUP_CONFIG,
        R.UPDATE_AND_GET_GROUP_FORBIDDEN,
        R.SET_COMMITLOG_READ_MODE,
    ),
    _RETRY_LATER: (R.CONSUMER_SEND_MSG_BACK,),
    _TRANSACTION_LATER: (R.END_TRANSACTION, R.RESUME_CHECK_HALF_MESSAGE),
    _TIMER_LATER: (
        R.GET_ALL_DELAY_OFFSET,
        R.GET_TIMER_CHECK_POINT,
        R.GET_TIMER_METRICS,
        R.RECALL_MESSAGE,
        R.SWITCH_TIMER_ENGINE,
    ),
    _POP_LATER: (
        R.POP_MESSAGE,
        R.ACK_MESSAGE,
        R.BATCH_ACK_MESSAGE,
        R.PEEK_MESSAGE,
        R.CHANGE_MESSAGE_INVISIBLETIME,
        R.NOTIFICATION,
        R.POLLING_INFO,
        R.POP_ROLLBACK,
        R.QUERY_ASSIGNMENT,
        R.SET_MESSAGE_REQUEST_MODE,
        R.GET_ALL_MESSAGE_REQUEST_MODE,
    ),
    _REPLY_LATER: (R.SEND_REPLY_MESSAGE, R.SEND_REPLY_MESSAGE_V2),
    _QUERY_LATER: (R.QUERY_MESSAGE, R.VIEW_MESSAGE_BY_ID),
    _REPLICA_LATER: (
        R.NOTIFY_MIN_BROKER_ID_CHANGE,
        R.EXCHANGE_BROKER_HA_INFO,
        R.GET_BROKER_HA_STATUS,
        R.RESET_MASTER_FLUSH_OFFSET,
        R.GET_BROKER_EPOCH_CACHE,
        R.NOTIFY_BROKER_ROLE_CHANGED,
    ),
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
    _COLD_LATER: (
        R.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        R.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        R.GET_COLD_DATA_FLOW_CTR_INFO,
    ),
    _STATIC_LATER: (R.UPDATE_AND_CREATE_STATIC_TOPIC,),
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
