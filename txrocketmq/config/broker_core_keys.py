"""Which keys say who a broker is, how it registers and what it accepts? First part of the official ``BrokerConfig``."""

from __future__ import annotations

import attrs

from txrocketmq.config.defaults import (
    CPUS_PLUS_8,
    END_TRANSACTION_THREADS,
    HOST_NAME,
    LOCAL_ADDRESS,
    NAMESRV_ADDR,
    ROCKETMQ_HOME,
    TWICE_CPUS_PLUS_16,
    UP_TO_4_CPUS,
    UP_TO_32_CPUS,
)
from txrocketmq.config.keys import A_NAME, flag, int32, int64, text


@attrs.define(kw_only=True, slots=False)
class BrokerCoreKeys:
    """Identity, registration, topics, requests, offsets and clients."""

    broker_config_path: str | None = text(
        None,
        "Where the broker's configuration file lies, so that run-time changes can be written back.",
    )
    rocketmq_home: str | None = text(
        ROCKETMQ_HOME,
        "Installation directory of the official software; only shown, nothing is read from it.",
    )
    namesrv_addr: str | None = text(
        NAMESRV_ADDR,
        "Name servers to register with, `host:port` separated by `;`. Host names are allowed.",
        important=True,
    )
    listen_port: int = int32(
        6888,
        "TCP port for clients. The fast port is two below it, the replication port one above.",
        low=0,
        high=65535,
        important=True,
    )
    broker_ip1: str = text(
        LOCAL_ADDRESS,
        "Address that clients are told to use. A host name is allowed; unset, one that others can reach is chosen.",
        name="brokerIP1",
        important=True,
    )
    broker_ip2: str = text(
        LOCAL_ADDRESS,
        "Address that slaves are told to use for replication; unset, the same choice as `brokerIP1`.",
        name="brokerIP2",
    )
    broker_name: str = text(
        HOST_NAME,
        "Name of the replica group; master and slaves share it.",
        important=True,
        form=A_NAME,
    )
    broker_cluster_name: str = text(
        "DefaultCluster", "Cluster that the broker belongs to.", important=True, form=A_NAME
    )
    broker_id: int = int64(
        0,
        "Place in the replica group: 0 is the master, slaves have a number above 0.",
        important=True,
    )
    is_broker_container: bool = flag(False, "Marks a process that hosts several brokers.")
    is_in_broker_container: bool = flag(
        False, "Marks a broker that runs inside such a process.", alias="inBrokerContainer"
    )
    broker_permission: int = int32(6, "What clients may do here: 2 write, 4 read, 6 both.")
    default_topic_queue_nums: int = int32(
        8,
        "Most queues that an automatically created topic gets; the producer's own wish is used when lower.",
        high=65_536,
    )
    auto_create_topic_enable: bool = flag(
        True, "Create a topic when the first message for it arrives.", important=True
    )
    cluster_topic_enable: bool = flag(True, "Keep a topic named as the cluster.")
    broker_topic_enable: bool = flag(True, "Keep a topic named as the broker.")
    auto_create_subscription_group: bool = flag(
        True, "Create a consumer group's settings when the group is first seen.", important=True
    )
    recover_concurrently: bool = flag(
        False, "Rebuild queues with several threads at start.", important=True
    )
    message_store_plug_in: str = text("", "Java classes that wrap the store.")
    msg_trace_topic_name: str = text(
        "RMQ_SYS_TRACE_TOPIC", "Topic that receives message traces.", important=True
    )
    trace_topic_enable: bool = flag(False, "Keep the trace topic on this broker.", important=True)
    send_message_thread_pool_nums: int = int32(
        UP_TO_4_CPUS, "Threads for sends in the official broker."
    )
    put_message_future_thread_pool_nums: int = int32(
        UP_TO_4_CPUS, "Threads that finish waiting sends in the official broker."
    )
    pull_message_thread_pool_nums: int = int32(
        TWICE_CPUS_PLUS_16, "Threads for pulls in the official broker."
    )
    lite_pull_message_thread_pool_nums: int = int32(
        TWICE_CPUS_PLUS_16, "Threads for lite pulls in the official broker."
    )
    ack_message_thread_pool_nums: int = int32(
        16, "Threads for POP acknowledgements in the official broker."
    )
    process_reply_message_thread_pool_nums: int = int32(
        TWICE_CPUS_PLUS_16, "Threads for reply messages in the official broker."
    )
    query_message_thread_pool_nums: int = int32(
        CPUS_PLUS_8, "Threads for message queries in the official broker."
    )
    admin_broker_thread_pool_nums: int = int32(
        16, "Threads for administration in the official broker."
    )
    client_manage_thread_pool_nums: int = int32(
        32, "Threads for client registration in the official broker."
    )
    consumer_manage_thread_pool_nums: int = int32(
        32, "Threads for consumer offsets and lists in the official broker."
    )
    load_balance_processor_thread_pool_nums: int = int32(
        32, "Threads for broker-side assignment in the official broker."
    )
    heartbeat_thread_pool_nums: int = int32(
        UP_TO_32_CPUS, "Threads for heartbeats in the official broker."
    )
    recover_thread_pool_nums: int = int32(32, "Threads for recovery in the official broker.")
    end_transaction_thread_pool_nums: int = int32(
        END_TRANSACTION_THREADS, "Threads for transaction outcomes in the official broker."
    )
    flush_consumer_offset_interval: int = int32(
        5000, "Milliseconds between saves of consumer offsets."
    )
    flush_consumer_offset_history_interval: int = int32(
        60_000, "Milliseconds between saves of the offset history."
    )
    reject_transaction_message: bool = flag(False, "Refuse transactional messages.", important=True)
    fetch_name_srv_addr_by_dns_lookup: bool = flag(
        False,
        "Resolve the name servers' names again at each address refresh; each address counts as a name server.",
        important=True,
    )
    fetch_namesrv_addr_by_address_server: bool = flag(
        False,
        "Ask a web server for the list of name servers where `namesrvAddr` is empty: http://<rmqAddressServerDomain>:8080/rocketmq/<rmqAddressServerSubGroup>, two properties without a class.",
        important=True,
    )
    fetch_namesrv_addr_interval: int = int64(10_000, "Milliseconds between two such questions.")
    send_thread_pool_queue_capacity: int = int32(
        10_000, "Sends that may wait; more are answered SYSTEM_BUSY."
    )
    put_thread_pool_queue_capacity: int = int32(
        10_000, "Finished sends that may wait for their answer in the official broker."
    )
    pull_thread_pool_queue_capacity: int = int32(
        100_000, "Pulls that may wait; more are answered SYSTEM_BUSY."
    )
    lite_pull_thread_pool_queue_capacity: int = int32(
        100_000, "Lite pulls that may wait; more are answered SYSTEM_BUSY."
    )
    ack_thread_pool_queue_capacity: int = int32(
        100_000, "POP acknowledgements that may wait; more are answered SYSTEM_BUSY."
    )
    reply_thread_pool_queue_capacity: int = int32(
        10_000, "Reply messages that may wait; more are answered SYSTEM_BUSY."
    )
    query_thread_pool_queue_capacity: int = int32(
        20_000, "Message queries that may wait; more are answered SYSTEM_BUSY."
    )
    client_manager_thread_pool_queue_capacity: int = int32(
        1_000_000, "Client registrations that may wait; more are answered SYSTEM_BUSY."
    )
    consumer_manager_thread_pool_queue_capacity: int = int32(
        1_000_000, "Offset requests that may wait; more are answered SYSTEM_BUSY."
    )
    heartbeat_thread_pool_queue_capacity: int = int32(
        50_000, "Heartbeats that may wait; more are answered SYSTEM_BUSY."
    )
    end_transaction_pool_queue_capacity: int = int32(
        100_000, "Transaction outcomes that may wait; more are answered SYSTEM_BUSY."
    )
    admin_broker_thread_pool_queue_capacity: int = int32(
        10_000, "Administration requests that may wait; more are answered SYSTEM_BUSY."
    )
    load_balance_thread_pool_queue_capacity: int = int32(
        100_000, "Assignment requests that may wait; more are answered SYSTEM_BUSY."
    )
    long_polling_enable: bool = flag(
        True, "Keep a pull that finds nothing open until a message arrives or its time is over."
    )
    short_polling_time_mills: int = int64(
        1000, "Milliseconds that such a pull is kept when long polling is off."
    )
    notify_consumer_ids_changed_enable: bool = flag(
        True, "Tell the members of a group when one joins or leaves."
    )
    high_speed_mode: bool = flag(
        False, "Left from early versions; the official broker reads it nowhere that matters."
    )
    transfer_msg_by_heap: bool = flag(
        True, "Copy messages through memory instead of sending file regions."
    )
    region_id: str = text(
        "DefaultRegion", "Region named in message properties and send answers, for traces."
    )
    register_broker_timeout_mills: int = int32(
        24_000, "Milliseconds that one round of registration may take over all name servers."
    )
    send_heartbeat_timeout_millis: int = int32(
        1000, "Milliseconds that a light heartbeat to a name server may take."
    )
    slave_read_enable: bool = flag(False, "Let this slave answer pulls that the master hands over.")
    disable_consume_if_consumer_read_slowly: bool = flag(
        False, "Switch a group off when it falls too far behind."
    )
    consumer_fallbehind_threshold: int = int64(
        17_179_869_184, "Bytes of log behind which a group counts as too slow for that."
    )
    broker_fast_failure_enable: bool = flag(
        True, "Answer SYSTEM_BUSY at once to requests that have waited too long."
    )
    wait_time_mills_in_send_queue: int = int64(
        200, "Milliseconds that a send may wait before it is answered SYSTEM_BUSY."
    )
    wait_time_mills_in_pull_queue: int = int64(
        5000, "Milliseconds that a pull may wait before it is answered SYSTEM_BUSY."
    )
    wait_time_mills_in_lite_pull_queue: int = int64(
        5000, "Milliseconds that a lite pull may wait before it is answered SYSTEM_BUSY."
    )
    wait_time_mills_in_heartbeat_queue: int = int64(
        31_000, "Milliseconds that a heartbeat may wait before it is answered SYSTEM_BUSY."
    )
    wait_time_mills_in_transaction_queue: int = int64(
        3000, "Milliseconds that a transaction outcome may wait before it is dropped."
    )
    wait_time_mills_in_ack_queue: int = int64(
        3000, "Milliseconds that an acknowledgement may wait before it is answered SYSTEM_BUSY."
    )
    wait_time_mills_in_admin_broker_queue: int = int64(
        5000,
        "Milliseconds that an administration request may wait before it is answered SYSTEM_BUSY.",
    )
    start_accept_send_request_time_stamp: int = int64(
        0, "Moment, in milliseconds since 1970, before which sends are refused."
    )
    trace_on: bool = flag(True, "Tell producers that traces are welcome.")
    reject_pull_consumer_enable: bool = flag(
        False, "Refuse consumers that connect as pull consumers."
    )
    compressed_register: bool = flag(False, "Send the registration's body compressed.")
    force_register: bool = flag(
        True, "Register in full at every period, without asking first whether anything changed."
    )
    register_name_server_period: int = int32(
        30_000, "Milliseconds between registrations; kept within 10,000 and 60,000."
    )
    update_name_server_addr_period: int = int32(
        120_000, "Milliseconds between refreshes of the name servers' addresses."
    )
    broker_heartbeat_interval: int = int32(
        1000, "Milliseconds between light heartbeats to name servers."
    )
    broker_not_active_timeout_millis: int = int64(
        10_000,
        "Milliseconds without a light heartbeat after which the name server drops the broker.",
    )
    compatible_with_old_name_srv: bool = flag(
        True, "Keep to requests that name servers of the 4.x line understand."
    )
    enable_single_topic_register: bool = flag(
        False, "Announce a changed topic alone instead of the whole table."
    )
    enable_split_registration: bool = flag(
        False, "Spread a large topic table over several registrations."
    )
    split_registration_size: int = int32(800, "Topics in each of these registrations.")
    enable_split_metadata: bool = flag(True, "Hand out large metadata tables in parts.")
    split_metadata_size: int = int32(2000, "Entries in each of these parts.")
    enable_net_work_flow_control: bool = flag(False, "Limit bytes per second by client address.")
    real_time_notify_consumer_change: bool = flag(
        True, "Send member notices at once and not with the next sweep."
    )
    lite_pull_message_enable: bool = flag(True, "Serve the lite pull request code.")
    channel_expired_timeout: int = int64(
        120_000, "Milliseconds without a heartbeat after which a client is forgotten."
    )
    subscription_expired_timeout: int = int64(
        600_000, "Milliseconds without a heartbeat after which a subscription is forgotten."
    )
    async_send_enable: bool = flag(
        True, "Answer a send when the store is done instead of blocking a thread."
    )
    forward_timeout: int = int64(
        3000, "Milliseconds that a request forwarded to another broker may take."
    )
    store_reply_message_enable: bool = flag(True, "Store reply messages, handed over or not.")
    consumer_offset_update_version_step: int = int64(
        500, "Offset changes after which the offset table's version goes up."
    )
    delay_offset_update_version_step: int = int64(
        200, "Delay offset changes after which that table's version goes up."
    )
    lock_in_strict_mode: bool = flag(
        False, "Lock queues over all replicas, not only on the broker asked."
    )
    use_server_side_reset_offset: bool = flag(
        True, "Keep reset offsets on the broker until the group's next pull."
    )
    validate_system_topic_when_update_topic: bool = flag(
        True, "Refuse to change system topics by command."
    )
    config_black_list: str = text(
        "configBlackList;brokerConfigPath",
        "Keys that must not be changed by command, separated by `;`.",
    )
    clear_retry_topic_when_delete_topic: bool = flag(
        True, "Delete a topic's POP retry topics with it."
    )
    config_manager_version: str = text("v1", "Where tables are kept: `v1` files, `v2` a database.")
    use_single_rocksdb_for_all_configs: bool = flag(
        False, "Use one database for all tables.", name="useSingleRocksDBForAllConfigs"
    )
    enable_register_producer: bool = flag(True, "Keep a table of producers from heartbeats.")
    enable_create_sys_group: bool = flag(True, "Create the system consumer groups at start.")
    use_static_subscription: bool = flag(
        False, "Take subscriptions from the group's settings, not from heartbeats."
    )
    enable_broadcast_offset_store: bool = flag(
        True, "Keep offsets of broadcast consumers that are served through a proxy."
    )
    broadcast_offset_expire_second: int = int64(
        120, "Seconds after which such an offset expires when its client is gone."
    )
    broadcast_offset_expire_max_second: int = int64(
        300, "Seconds after which it expires in any case."
    )
    enable_fast_channel_event_process: bool = flag(
        False, "Handle closed connections group by group."
    )
    print_channel_groups: bool = flag(False, "Log how many groups one connection holds.")
    print_channel_groups_min_num: int = int32(5, "Groups from which on that is logged.")
