"""Which keys steer POP, transactions, filters and fail-over? Second part of the official ``BrokerConfig``."""

from __future__ import annotations

import attrs

from txrocketmq.config.keys import choice, flag, int32, int64, text


@attrs.define(kw_only=True, slots=False)
class BrokerFeatureKeys:
    """POP, transactions, filters, timed messages, acting masters and controllers."""

    pop_polling_size: int = int32(1024, "POP requests that may wait for one queue.")
    pop_polling_map_size: int = int32(100_000, "Queues for which POP requests may wait.")
    pop_polling_map_expire_time_seconds: int = int32(
        600, "Seconds after which an unused waiting list is dropped."
    )
    max_pop_polling_size: int = int64(100_000, "POP requests that may wait in all.")
    revive_queue_num: int = int32(8, "Queues of the topic that carries POP check points.")
    revive_interval: int = int64(1000, "Milliseconds between two revive passes.")
    revive_max_slow: int = int64(3, "Passes that revival may lag before it says so.")
    revive_scan_time: int = int64(10_000, "Milliseconds of check points read in one pass.")
    enable_skip_long_awaiting_ack: bool = flag(
        False, "Give up on check points that wait for acknowledgement for long."
    )
    revive_ack_wait_ms: int = int64(180_000, "Milliseconds after which they are given up.")
    enable_pop_log: bool = flag(False, "Log POP in detail.")
    enable_pop_buffer_merge: bool = flag(
        False, "Match check points with acknowledgements in memory first."
    )
    pop_ck_stay_buffer_time: int = int32(
        10_000, "Milliseconds that a check point stays in that memory."
    )
    pop_ck_stay_buffer_time_out: int = int32(
        3000, "Milliseconds before its deadline at which it leaves that memory."
    )
    pop_ck_max_buffer_size: int = int32(200_000, "Check points held in memory.")
    pop_ck_offset_max_queue_size: int = int32(20_000, "Pending offset commits for each queue.")
    enable_pop_batch_ack: bool = flag(False, "Store acknowledgements in batches.")
    pop_long_polling_force_notify_interval: int = int64(
        800, "Milliseconds after which a waiting POP request is looked at again."
    )
    enable_notify_before_pop_calculate_lag: bool = flag(
        True, "Answer a notification request before lag is worked out."
    )
    enable_notify_after_pop_order_lock_release: bool = flag(
        True, "Wake waiting requests when an ordered POP queue is released."
    )
    init_pop_offset_by_check_msg_in_mem: bool = flag(
        True, "Start a new POP group at the queue's start while that is in memory."
    )
    retrieve_message_from_pop_retry_topic_v1: bool = flag(
        True, "Read retry topics named in the older way too."
    )
    enable_retry_topic_v2: bool = flag(
        False, "Name POP retry topics with `+` between group and topic."
    )
    pop_from_retry_probability: int = int32(
        20, "Percentage of POP requests that look at the retry topic first."
    )
    pop_from_retry_probability_for_priority: int = int32(0, "The same for priority topics.")
    priority_order_asc: bool = flag(True, "A lower number means a higher priority.")
    pop_consumer_fs_service_init: bool = flag(
        True,
        "Run the POP implementation that keeps its state in topics.",
        name="popConsumerFSServiceInit",
    )
    pop_consumer_kv_service_log: bool = flag(
        False,
        "Log the POP implementation that keeps its state in a database.",
        name="popConsumerKVServiceLog",
    )
    pop_consumer_kv_service_init: bool = flag(
        False,
        "Prepare the POP implementation that keeps its state in a database.",
        name="popConsumerKVServiceInit",
    )
    pop_consumer_kv_service_enable: bool = flag(
        False, "Use that implementation.", name="popConsumerKVServiceEnable"
    )
    pop_revive_max_return_size_per_read: int = int32(16_384, "Messages revived from one read.")
    pop_revive_max_attempt_times: int = int32(16, "Attempts to revive one message.")
    pop_revive_concurrency: int = int32(32, "Messages revived at the same time.")
    use_separate_retry_queue: bool = flag(False, "Give each queue its own retry queue.")
    pop_response_return_actual_retry_topic: bool = flag(
        False, "Tell POP clients the real retry topic's name."
    )
    pop_inflight_message_threshold: int = int64(
        10_000, "Unacknowledged POP messages of one queue after which no more are given."
    )
    enable_pop_message_threshold: bool = flag(False, "Keep to that limit.")
    skip_when_ck_re_put_reach_max_times: bool = flag(
        False,
        "Drop a check point that was stored again too often.",
        name="skipWhenCKRePutReachMaxTimes",
    )
    append_ack_async: bool = flag(False, "Store acknowledgements without waiting.")
    append_ck_async: bool = flag(False, "Store check points without waiting.")
    load_balance_poll_name_server_interval: int = int64(
        30_000, "Milliseconds between route refreshes for broker-side assignment."
    )
    server_load_balancer_enable: bool = flag(True, "Serve queue assignment to clients.")
    default_message_request_mode: str = choice(
        "PULL",
        ("PULL", "POP"),
        "MessageRequestMode",
        "How clients without a setting of their own fetch messages.",
    )
    default_pop_share_queue_num: int = int32(
        -1, "Queues that POP clients share by default; -1 means all."
    )
    transaction_time_out: int = int64(
        6000, "Milliseconds after which an open transaction is first checked.", important=True
    )
    transaction_check_max: int = int32(
        15, "Checks after which a transaction is given up.", important=True
    )
    transaction_check_interval: int = int64(
        30_000, "Milliseconds between two check passes.", important=True
    )
    transaction_metric_flush_interval: int = int64(
        10_000, "Milliseconds between saves of transaction figures."
    )
    transaction_op_msg_max_size: int = int32(4096, "Bytes of one record of finished transactions.")
    transaction_op_batch_interval: int = int32(3000, "Milliseconds between such records.")
    enable_calc_filter_bit_map: bool = flag(
        False, "Work out which filters match when a message is stored."
    )
    expect_consumer_num_use_filter: int = int32(32, "Consumers for which that bit map is laid out.")
    max_error_rate_of_bloom_filter: int = int32(20, "Percentage of wrong hits allowed to it.")
    filter_data_clean_time_span: int = int64(
        86_400_000, "Milliseconds that the filter of a gone consumer is kept."
    )
    filter_support_retry: bool = flag(False, "Filter messages of retry topics too.")
    enable_property_filter: bool = flag(
        False, "Let consumers filter by SQL92 expressions over properties."
    )
    acl_enable: bool = flag(
        False, "Check signatures of requests against the access list.", important=True
    )
    enable_mixed_message_type: bool = flag(
        False, "Accept any kind of message in topics of type MIXED."
    )
    recall_message_enable: bool = flag(False, "Let producers take a timed message back.")
    allow_recall_when_broker_not_writeable: bool = flag(
        True, "Allow that on a broker closed for writing."
    )
    enable_slave_acting_master: bool = flag(
        False,
        "Let the slave with the smallest id stand in for a lost master: delays, timed messages, transactions, POP.",
    )
    enable_remote_escape: bool = flag(
        False,
        "Let such a slave hand messages to other brokers of the cluster; without it they wait for the master.",
    )
    skip_pre_online: bool = flag(
        False, "Go online without matching positions with other replicas first."
    )
    sync_broker_member_group_period: int = int32(
        1000, "Milliseconds between looks at the replica group."
    )
    clean_offline_broker_interval: int = int32(
        30_000, "Milliseconds between sweeps for replicas gone for good."
    )
    enable_controller_mode: bool = flag(False, "Let a controller choose the master.")
    controller_addr: str = text("", "Controllers, `host:port` separated by `;`.")
    fetch_controller_addr_by_dns_lookup: bool = flag(
        False, "Resolve the controllers' names again at each refresh."
    )
    sync_broker_metadata_period: int = int64(
        5000, "Milliseconds between fetches of the replica group's state from the controller."
    )
    check_sync_state_set_period: int = int64(
        5000, "Milliseconds between checks of which replicas are in sync."
    )
    sync_controller_metadata_period: int = int64(
        10_000, "Milliseconds between looks for the leading controller."
    )
    controller_heart_beat_timeout_mills: int = int64(
        10_000,
        "Milliseconds without a heartbeat after which the controller takes a broker for lost.",
    )
    broker_election_priority: int = int32(2_147_483_647, "Rank in an election; lower goes first.")
