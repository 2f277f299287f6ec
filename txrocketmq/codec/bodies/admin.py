"""Bodies of administration: statistics, HA status, inspection of queues and messages.

Stands for the official classes of the same names.
"""

from __future__ import annotations

import enum

from txrocketmq.model.bean import Bean, default, fresh
from txrocketmq.model.heartbeat import SubscriptionData
from txrocketmq.model.topic import DataVersion


class CMResult(enum.StrEnum):
    """How the consumption of one message ended."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class BrokerStatsItem(Bean, kw_only=True):
    """A sum, a rate per second, and the average per call."""

    avgpt: float = default(0.0)
    sum: int = default(0)
    tps: float = default(0.0)


class BrokerStatsData(Bean, kw_only=True):
    """A figure over the last minute, hour and day."""

    stats_day: BrokerStatsItem | None = None
    stats_hour: BrokerStatsItem | None = None
    stats_minute: BrokerStatsItem | None = None


class HAClientRuntimeInfo(Bean, kw_only=True):
    """A slave's link to its master; times in ms, offsets physical."""

    last_read_timestamp: int = default(0)
    last_write_timestamp: int = default(0)
    master_addr: str | None = None
    master_flush_offset: int = default(0)
    max_offset: int = default(0)
    transferred_byte_in_second: int = default(0)


class HAConnectionRuntimeInfo(Bean, kw_only=True):
    """A master's link to one slave; ``diff`` is the lag in bytes."""

    addr: str | None = None
    diff: int = default(0)
    in_sync: bool = default(False)
    slave_ack_offset: int = default(0)
    transfer_from_where: int = default(0)
    transferred_byte_in_second: int = default(0)


class HARuntimeInfo(Bean, kw_only=True):
    """The state of replication."""

    ha_client_runtime_info: HAClientRuntimeInfo = fresh(HAClientRuntimeInfo)
    ha_connection_info: list[HAConnectionRuntimeInfo] = fresh(list)
    in_sync_slave_nums: int = default(0)
    master: bool = default(False)
    master_commit_log_max_offset: int = default(0)


class ConsumeQueueData(Bean, kw_only=True):
    """One consume queue unit, explained."""

    bit_map: str | None = None
    eval: bool = default(False)
    extend_data_json: str | None = None
    msg: str | None = None
    physic_offset: int = default(0)
    physic_size: int = default(0)
    tags_code: int = default(0)


class QueryConsumeQueueResponseBody(Bean, kw_only=True):
    """A stretch of a consume queue, explained."""

    filter_data: str | None = None
    max_queue_index: int = default(0)
    min_queue_index: int = default(0)
    queue_data: list[ConsumeQueueData] = fresh(list)
    subscription_data: SubscriptionData | None = None


class ConsumeMessageDirectlyResult(Bean, kw_only=True):
    """What came of consuming one message by order of an operator."""

    auto_commit: bool = default(True)
    consume_result: CMResult | None = None
    order: bool = default(False)
    remark: str | None = None
    spent_time_mills: int = default(0)


class ConsumeByWho(Bean, kw_only=True):
    """Which groups consumed a message."""

    consumed_group: set[str] = fresh(set)
    not_consumed_group: set[str] = fresh(set)
    offset: int = default(0)
    queue_id: int = default(0)
    topic: str | None = None


class CheckRocksdbCqWriteResult(Bean, kw_only=True):
    """Whether the RocksDB consume queues agree with the files."""

    check_result: str | None = None
    check_status: int = default(0)


class BloomFilterData(Bean, kw_only=True):
    """A filter's bits."""

    bit_num: int = default(0)
    bit_pos: list[int] | None = None


class ConsumerFilterData(Bean, kw_only=True):
    """A SQL92 filter that the broker keeps; part of the file ``consumerFilter.json``."""

    bloom_filter_data: BloomFilterData | None = None
    born_time: int = default(0)
    client_version: int = default(0)
    consumer_group: str | None = None
    dead: bool = default(False)
    dead_time: int = default(0)
    expression: str | None = None
    expression_type: str | None = None
    topic: str | None = None


class TopicFilters(Bean, kw_only=True):
    """The SQL92 filters on one topic, by group."""

    group_filter_data: dict[str, ConsumerFilterData] = fresh(dict)
    topic: str | None = None


class ConsumerFilterTable(Bean, kw_only=True):
    """The file ``consumerFilter.json``: all SQL92 filters that the broker keeps, by topic."""

    filter_data_by_topic: dict[str, TopicFilters] = fresh(dict)


class Metric(Bean, kw_only=True):
    """A count and the time of its last change in ms."""

    count: int = default(0)
    time_stamp: int = default(0)


class TimerMetricsSerializeWrapper(Bean, kw_only=True):
    """Pending timer messages by topic; also the file ``timermetrics``."""

    data_version: DataVersion = fresh(DataVersion)
    timing_count: dict[str, Metric] = fresh(dict)


class TransactionMetricsSerializeWrapper(Bean, kw_only=True):
    """Open transactions by topic; also the file ``transactionMetrics``."""

    data_version: DataVersion = fresh(DataVersion)
    transaction_count: dict[str, Metric] = fresh(dict)
