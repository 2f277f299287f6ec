"""Which keys steer figures and logs of a broker? Third part of the official ``BrokerConfig``."""

from __future__ import annotations

import attrs

from txrocketmq.config.keys import choice, flag, int32, int64, text


@attrs.define(kw_only=True, slots=False)
class BrokerObserveKeys:
    """Counters, exported figures and limits for cold reads."""

    commercial_base_count: int = int32(1, "Messages that one billing unit covers.")
    commercial_size_per_msg: int = int32(4096, "Bytes that one billing unit covers.")
    account_stats_enable: bool = flag(True, "Count by account.")
    account_stats_print_zero_values: bool = flag(True, "Log account counters that stand at zero.")
    max_stats_idle_time_in_minutes: int = int32(
        -1, "Minutes after which an unused counter is dropped; -1 never."
    )
    enable_detail_stat: bool = flag(True, "Count by topic, group and queue.")
    auto_delete_unused_stats: bool = flag(True, "Drop the counters of deleted topics and groups.")
    enable_lmq_stats: bool = flag(False, "Count for light queues.")
    isolate_log_enable: bool = flag(False, "Give each broker of a container its own log.")
    estimate_accumulation: bool = flag(True, "Estimate lag of filtered subscriptions from samples.")
    metrics_exporter_type: str = choice(
        "DISABLE",
        ("DISABLE", "OTLP_GRPC", "PROM", "LOG"),
        "MetricsExporterType",
        "Where figures go.",
    )
    metrics_otel_cardinality_limit: int = int32(50_000, "Distinct label sets kept for one figure.")
    metrics_grpc_exporter_target: str = text("", "Collector that figures are pushed to.")
    metrics_grpc_exporter_header: str = text("", "Headers sent to that collector.")
    metric_grpc_exporter_time_out_in_mills: int = int64(
        3000, "Milliseconds that one push may take."
    )
    metric_grpc_exporter_interval_in_mills: int = int64(60_000, "Milliseconds between pushes.")
    metric_logging_exporter_interval_in_mills: int = int64(
        10_000, "Milliseconds between log entries with figures."
    )
    metrics_prom_exporter_port: int = int32(
        5557, "Port where Prometheus fetches figures.", low=0, high=65535
    )
    metrics_prom_exporter_host: str = text("", "Address of that port; unset, `brokerIP1`.")
    metrics_label: str = text("", "Labels added to every figure.")
    metrics_in_delta: bool = flag(False, "Report differences instead of totals.")
    enable_remoting_metrics: bool = flag(True, "Export figures of the remoting layer.")
    enable_message_store_metrics: bool = flag(True, "Export figures of the store.")
    enable_pop_metrics: bool = flag(True, "Export figures of POP.")
    enable_connection_metrics: bool = flag(True, "Export figures of connections.")
    enable_transaction_metrics: bool = flag(True, "Export figures of transactions.")
    enable_stats_metrics: bool = flag(True, "Export throughput figures.")
    enable_request_metrics: bool = flag(True, "Export figures of requests.")
    enable_lag_and_dlq_metrics: bool = flag(True, "Export lag and dead-letter figures.")
    cold_ctr_strategy_enable: bool = flag(False, "Adapt the limit for cold reads to each group.")
    use_pid_cold_ctr_strategy: bool = flag(
        True,
        "Use the controller with proportional, integral and derivative parts for it.",
        name="usePIDColdCtrStrategy",
    )
    cg_cold_read_threshold: int = int64(
        3_145_728, "Cold bytes that one group may read in a period."
    )
    global_cold_read_threshold: int = int64(
        104_857_600, "Cold bytes that all groups may read in a period."
    )
    broker_plugins: str = text(
        "", "Plug-ins of others by name, `;` between them; official brokers do not know this key."
    )
