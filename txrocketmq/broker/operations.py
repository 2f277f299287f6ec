"""Which requests does a broker serve? The one table: code, headers, handler, lane. The others are in `not_served`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

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
        R.SEND_REPLY_MESSAGE,
        h.SendMessageRequestHeader,
        h.SendMessageResponseHeader,
        "reply.send_reply",
        Lane.REPLY,
    ),
    _row(
        R.SEND_REPLY_MESSAGE_V2,
        h.SendMessageRequestHeaderV2,
        h.SendMessageResponseHeader,
        "reply.send_reply",
        Lane.REPLY,
    ),
    _row(
        R.RECALL_MESSAGE,
        h.RecallMessageRequestHeader,
        h.RecallMessageResponseHeader,
        "timer.recall_message",
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
    # POP.
    _row(
        R.POP_MESSAGE,
        h.PopMessageRequestHeader,
        h.PopMessageResponseHeader,
        "pop.pop_message",
        Lane.POP,
        vip=False,
    ),
    _row(
        R.PEEK_MESSAGE,
        h.PeekMessageRequestHeader,
        h.PopMessageResponseHeader,
        "pop_looks.peek_message",
        Lane.POP,
        vip=False,
    ),
    _row(
        R.NOTIFICATION,
        h.NotificationRequestHeader,
        h.NotificationResponseHeader,
        "pop_looks.notification",
        Lane.POP,
        vip=False,
    ),
    _row(
        R.POLLING_INFO,
        h.PollingInfoRequestHeader,
        h.PollingInfoResponseHeader,
        "pop_looks.polling_info",
        Lane.POP,
        vip=False,
    ),
    _row(R.ACK_MESSAGE, h.AckMessageRequestHeader, None, "pop_acks.ack_message", Lane.ACK),
    _row(R.BATCH_ACK_MESSAGE, None, None, "pop_acks.batch_ack_message", Lane.ACK),
    _row(
        R.CHANGE_MESSAGE_INVISIBLETIME,
        h.ChangeInvisibleTimeRequestHeader,
        h.ChangeInvisibleTimeResponseHeader,
        "pop_acks.change_invisible_time",
        Lane.ACK,
    ),
    _row(R.QUERY_ASSIGNMENT, None, None, "assignment.query_assignment", Lane.CLIENT),
    _row(R.LOCK_BATCH_MQ, h.LockBatchMqRequestHeader, None, "lock.lock_batch", Lane.LOCK),
    _row(R.UNLOCK_BATCH_MQ, h.LockBatchMqRequestHeader, None, "lock.unlock_batch", Lane.LOCK),
)

_ADMINISTRATION = (
    # Topics.
    (R.UPDATE_AND_CREATE_TOPIC, h.CreateTopicRequestHeader, None, "topics.update_topic"),
    (R.UPDATE_AND_CREATE_TOPIC_LIST, None, None, "topics.update_topics"),
    (
        R.UPDATE_AND_CREATE_STATIC_TOPIC,
        h.CreateTopicRequestHeader,
        None,
        "static_topics.update_static_topic",
    ),
    (R.DELETE_TOPIC_IN_BROKER, h.DeleteTopicRequestHeader, None, "topics.delete_topic"),
    (R.GET_TOPIC_CONFIG, h.GetTopicConfigRequestHeader, None, "topics.get_topic"),
    (R.GET_ALL_TOPIC_CONFIG, None, h.GetAllTopicConfigResponseHeader, "topics.get_all_topics"),
    (R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, None, None, "topics.get_system_topics"),
    (R.CLEAN_UNUSED_TOPIC, None, None, "topics.clean_unused_topics"),
    # Cold reads.
    (R.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, None, None, "slow_reads.update_limits"),
    (R.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, None, None, "slow_reads.remove_limit"),
    (R.GET_COLD_DATA_FLOW_CTR_INFO, None, None, "slow_reads.limits_info"),
    (R.SET_COMMITLOG_READ_MODE, None, None, "slow_reads.set_read_mode"),
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
    (R.GET_TIMER_CHECK_POINT, None, None, "timer.get_check_point"),
    (R.GET_TIMER_METRICS, None, None, "timer.get_metrics"),
    (R.SWITCH_TIMER_ENGINE, None, None, "timer.switch_engine"),
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
    (R.SET_MESSAGE_REQUEST_MODE, None, None, "assignment.set_mode"),
    (R.GET_ALL_MESSAGE_REQUEST_MODE, None, None, "assignment.get_all_modes"),
    (R.POP_ROLLBACK, None, None, "pop_looks.pop_rollback"),
    (R.CLEAN_EXPIRED_CONSUMEQUEUE, None, None, "upkeep.clean_expired_queues"),
    # Replication.
    (R.GET_BROKER_HA_STATUS, None, None, "replication.get_ha_status"),
    (R.GET_BROKER_EPOCH_CACHE, None, None, "replication.get_epochs"),
    (
        R.NOTIFY_BROKER_ROLE_CHANGED,
        h.NotifyBrokerRoleChangedRequestHeader,
        None,
        "replication.notice_role",
    ),
    (
        R.EXCHANGE_BROKER_HA_INFO,
        h.ExchangeHAInfoRequestHeader,
        h.ExchangeHAInfoResponseHeader,
        "replication.exchange_ha_info",
    ),
    (
        R.NOTIFY_MIN_BROKER_ID_CHANGE,
        h.NotifyMinBrokerIdChangeRequestHeader,
        None,
        "replication.notify_min_broker_id",
    ),
    (
        R.RESET_MASTER_FLUSH_OFFSET,
        h.ResetMasterFlushOffsetHeader,
        None,
        "replication.reset_master_flush_offset",
    ),
    (R.DELETE_EXPIRED_COMMITLOG, None, None, "upkeep.delete_expired_files"),
)


def _in_16_bits(rows: Iterable[Operation]) -> Iterator[Operation]:
    """The rows whose codes do not fit a binary header, under what is left of them there."""
    for row in rows:
        if row.code > 0x7FFF:
            yield attrs.evolve(row, code=((row.code + 0x8000) & 0xFFFF) - 0x8000)


OPERATIONS = (
    *_OPERATIONS_OF_CLIENTS,
    *_in_16_bits(_OPERATIONS_OF_CLIENTS),
    *(
        _row(code, asked, answered, handler, Lane.ADMIN)
        for code, asked, answered, handler in _ADMINISTRATION
    ),
)
