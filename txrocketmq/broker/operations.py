"""Which requests does a broker serve? The one table: code, headers, handler, lane; and why the others are not."""

from __future__ import annotations

from txrocketmq.codec import headers as h
from txrocketmq.model.codes import RequestCode
from txrocketmq.remoting.dispatch import Lane, Operation

R = RequestCode


def _row(
    code: RequestCode,
    request_header: type[h.Header] | None,
    response_header: type[h.Header] | None,
    handler: str,
    lane: Lane,
    *,
    vip: bool = True,
) -> Operation:
    return Operation(int(code), request_header, response_header, handler, lane, vip)


_OPERATIONS_OF_CLIENTS = (
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
        R.CONSUMER_SEND_MSG_BACK,
        h.ConsumerSendMsgBackRequestHeader,
        None,
        "retry.send_back",
        Lane.SEND,
    ),
    _row(
        R.END_TRANSACTION,
        h.EndTransactionRequestHeader,
        h.EndTransactionResponseHeader,
        "transaction.end_transaction",
        Lane.TRANSACTION,
    ),
    _row(
        R.PULL_MESSAGE,
        h.PullMessageRequestHeader,
        h.PullMessageResponseHeader,
        "pull.pull_message",
        Lane.PULL,
        vip=False,
    ),
    _row(
        R.LITE_PULL_MESSAGE,
        h.PullMessageRequestHeader,
        h.PullMessageResponseHeader,
        "pull.pull_message",
        Lane.PULL,
        vip=False,
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
    _row(
        R.QUERY_MESSAGE,
        h.QueryMessageRequestHeader,
        h.QueryMessageResponseHeader,
        "query.query_message",
        Lane.QUERY,
    ),
    _row(R.VIEW_MESSAGE_BY_ID, h.ViewMessageRequestHeader, None, "query.view_message", Lane.QUERY),
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
)

_ADMINISTRATION = (
    # Topics.
    (R.UPDATE_AND_CREATE_TOPIC, h.CreateTopicRequestHeader, None, "topics.update_topic"),
    (R.UPDATE_AND_CREATE_TOPIC_LIST, None, None, "topics.update_topics"),
    (R.DELETE_TOPIC_IN_BROKER, h.DeleteTopicRequestHeader, None, "topics.delete_topic"),
    (R.GET_TOPIC_CONFIG, h.GetTopicConfigRequestHeader, None, "topics.get_topic"),
    (R.GET_ALL_TOPIC_CONFIG, None, h.GetAllTopicConfigResponseHeader, "topics.get_all_topics"),
    (R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, None, None, "topics.get_system_topics"),
    (R.CLEAN_UNUSED_TOPIC, None, None, "topics.clean_unused_topics"),
    # Groups.
    (R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, None, "groups.update_group"),
    (R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, None, "groups.update_groups"),
    (
        R.DELETE_SUBSCRIPTIONGROUP,
        h.DeleteSubscriptionGroupRequestHeader,
        None,
        "groups.delete_group",
    ),
    (
        R.GET_SUBSCRIPTIONGROUP_CONFIG,
        h.GetSubscriptionGroupConfigRequestHeader,
        None,
        "groups.get_group",
    ),
    (
        R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        None,
        h.GetAllSubscriptionGroupResponseHeader,
        "groups.get_all_groups",
    ),
    (
        R.UPDATE_AND_GET_GROUP_FORBIDDEN,
        h.UpdateGroupForbiddenRequestHeader,
        None,
        "groups.update_forbidden",
    ),
    # Clients.
    (
        R.GET_CONSUMER_CONNECTION_LIST,
        h.GetConsumerConnectionListRequestHeader,
        None,
        "connections.get_consumers",
    ),
    (
        R.GET_PRODUCER_CONNECTION_LIST,
        h.GetProducerConnectionListRequestHeader,
        None,
        "connections.get_producers",
    ),
    (
        R.GET_ALL_PRODUCER_INFO,
        h.GetAllProducerInfoRequestHeader,
        None,
        "connections.get_all_producers",
    ),
    (
        R.QUERY_TOPIC_CONSUME_BY_WHO,
        h.QueryTopicConsumeByWhoRequestHeader,
        None,
        "connections.who_consumes",
    ),
    (
        R.QUERY_TOPICS_BY_CONSUMER,
        h.QueryTopicsByConsumerRequestHeader,
        None,
        "connections.topics_of_consumer",
    ),
    (
        R.QUERY_SUBSCRIPTION_BY_CONSUMER,
        h.QuerySubscriptionByConsumerRequestHeader,
        None,
        "connections.subscription_of",
    ),
    (
        R.GET_CONSUMER_RUNNING_INFO,
        h.GetConsumerRunningInfoRequestHeader,
        None,
        "connections.get_running_info",
    ),
    (
        R.CONSUME_MESSAGE_DIRECTLY,
        h.ConsumeMessageDirectlyResultRequestHeader,
        None,
        "connections.consume_directly",
    ),
    (
        R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        h.GetConsumerStatusRequestHeader,
        None,
        "connections.get_consumer_status",
    ),
    # Figures.
    (R.GET_TOPIC_STATS_INFO, h.GetTopicStatsInfoRequestHeader, None, "stats.get_topic_stats"),
    (R.GET_CONSUME_STATS, h.GetConsumeStatsRequestHeader, None, "stats.get_consume_stats"),
    (
        R.GET_BROKER_CONSUME_STATS,
        h.GetConsumeStatsInBrokerHeader,
        None,
        "stats.get_broker_consume_stats",
    ),
    (R.QUERY_CONSUME_TIME_SPAN, h.QueryConsumeTimeSpanRequestHeader, None, "stats.query_time_span"),
    (R.VIEW_BROKER_STATS_DATA, h.ViewBrokerStatsDataRequestHeader, None, "stats.view_stats"),
    (R.GET_BROKER_RUNTIME_INFO, None, None, "upkeep.get_runtime_info"),
    # Positions.
    (R.GET_ALL_CONSUMER_OFFSET, None, None, "positions.get_all_offsets"),
    (R.INVOKE_BROKER_TO_RESET_OFFSET, h.ResetOffsetRequestHeader, None, "positions.reset_offset"),
    (R.GET_ALL_DELAY_OFFSET, None, None, "delay.get_all_offsets"),
    (R.CLONE_GROUP_OFFSET, h.CloneGroupOffsetRequestHeader, None, "positions.clone_offsets"),
    (R.QUERY_CORRECTION_OFFSET, h.QueryCorrectionOffsetHeader, None, "positions.query_correction"),
    # Configuration and store.
    (R.GET_BROKER_CONFIG, None, h.GetBrokerConfigResponseHeader, "settings.get_config"),
    (R.UPDATE_BROKER_CONFIG, None, None, "settings.update_config"),
    (R.QUERY_CONSUME_QUEUE, h.QueryConsumeQueueRequestHeader, None, "upkeep.query_consume_queue"),
    (
        R.RESUME_CHECK_HALF_MESSAGE,
        h.ResumeCheckHalfMessageRequestHeader,
        None,
        "transaction.resume_check",
    ),
    (R.CLEAN_EXPIRED_CONSUMEQUEUE, None, None, "upkeep.clean_expired_queues"),
    (R.DELETE_EXPIRED_COMMITLOG, None, None, "upkeep.delete_expired_files"),
)

OPERATIONS = (
    *_OPERATIONS_OF_CLIENTS,
    *(
        _row(code, asked, answered, handler, Lane.ADMIN)
        for code, asked, answered, handler in _ADMINISTRATION
    ),
)

_TIMER_LATER = "messages with a delivery time come with a later release"
_POP_LATER = "POP consumption comes with a later release"
_REPLY_LATER = "request-reply messages come with a later release"
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
    _TIMER_LATER: (
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
        R.SET_COMMITLOG_READ_MODE,
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
