"""Which keys does a name server take? Official ``NamesrvConfig``."""

from __future__ import annotations

import attrs

from txrocketmq.config.defaults import KV_CONFIG_HOME, NAMESRV_CONFIG_HOME, ROCKETMQ_HOME
from txrocketmq.config.keys import flag, int32, int64, text


@attrs.define(kw_only=True, slots=False)
class NamesrvConfig:
    """Keys of a name server."""

    rocketmq_home: str | None = text(
        ROCKETMQ_HOME,
        "Installation directory of the official software; only shown, nothing is read from it.",
    )
    kv_config_path: str = text(
        KV_CONFIG_HOME, "File with the key-value table, ordered-topic settings among them."
    )
    config_store_path: str = text(
        NAMESRV_CONFIG_HOME,
        "Where the name server's configuration file lies, so that run-time changes can be written back.",
    )
    product_env_name: str = text(
        "center", "Environment name that cluster-test mode asks its second name server for."
    )
    cluster_test: bool = flag(False, "Ask a second name server for topics that are unknown here.")
    order_message_enable: bool = flag(False, "Add ordered-topic settings to routes.")
    return_order_topic_config_to_broker: bool = flag(
        True, "Give ordered-topic settings to brokers that register."
    )
    client_request_thread_pool_nums: int = int32(
        8, "Threads for route queries in the official name server."
    )
    default_thread_pool_nums: int = int32(16, "Threads for all else in the official name server.")
    client_request_thread_pool_queue_capacity: int = int32(
        50_000, "Route queries that may wait; more are answered SYSTEM_BUSY."
    )
    default_thread_pool_queue_capacity: int = int32(
        10_000, "Other requests that may wait; more are answered SYSTEM_BUSY."
    )
    scan_not_active_broker_interval: int = int64(
        5000, "Milliseconds between looks for brokers that stopped reporting."
    )
    un_register_broker_queue_capacity: int = int32(3000, "Brokers that may wait to be taken out.")
    support_acting_master: bool = flag(
        False, "Show a slave as master with read-only topics while the master is away."
    )
    enable_all_topic_list: bool = flag(True, "Answer the request for all topics.")
    enable_topic_list: bool = flag(True, "Answer requests for topics by cluster and by kind.")
    notify_min_broker_id_changed: bool = flag(
        False, "Tell brokers when the smallest id of their replica group changes."
    )
    enable_controller_in_namesrv: bool = flag(False, "Run a controller inside the name server.")
    need_wait_for_service: bool = flag(
        False,
        "Answer route queries only some time after the start, when brokers had time to register.",
    )
    wait_seconds_for_service: int = int32(45, "Seconds of that time.")
    delete_topic_with_broker_registration: bool = flag(
        False, "Take topics out that a broker's registration no longer names."
    )
    config_black_list: str = text(
        "configBlackList;configStorePath;kvConfigPath",
        "Keys that must not be changed by command, separated by `;`.",
    )
