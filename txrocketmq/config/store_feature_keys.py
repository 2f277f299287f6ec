"""Which keys steer timers, compaction and other kinds of queues? Third part of the official ``MessageStoreConfig``."""

from __future__ import annotations

import attrs

from txrocketmq.config.keys import Form, flag, int32, int64, number, text


@attrs.define(kw_only=True, slots=False)
class StoreFeatureKeys:
    """Delay levels, timer, compaction, light queues and database stores."""

    store_type: str = text("default", "Kind of queue store.", important=True)
    compaction_mapped_file_size: int = int32(
        104_857_600, "Bytes of one log file of a compacted topic.", low=1024
    )
    compaction_cq_mapped_file_size: int = int32(
        10_485_760, "Bytes of one queue file of a compacted topic.", low=1
    )
    compaction_schedule_internal: int = int32(900_000, "Milliseconds between compaction runs.")
    max_offset_map_size: int = int32(104_857_600, "Bytes of memory for one compaction run.")
    compaction_thread_num: int = int32(6, "Threads for compaction.")
    enable_compaction: bool = flag(
        True, "Keep only the newest message of each key in compacted topics."
    )
    mapped_file_size_timer_log: int = int32(104_857_600, "Bytes of one timer log file.", low=1)
    timer_precision_ms: int = int32(1000, "Milliseconds of one slot of the timer wheel.", low=1)
    timer_roll_window_slot: int = int32(
        172_800, "Slots after which a far-off message is put in again."
    )
    timer_flush_interval_ms: int = int32(1000, "Milliseconds between flushes of the timer.")
    timer_get_message_thread_num: int = int32(3, "Threads that read due messages.")
    timer_put_message_thread_num: int = int32(3, "Threads that store due messages.")
    timer_enable_disruptor: bool = flag(False, "Use another kind of queue between these threads.")
    timer_enable_check_metrics: bool = flag(
        True, "Count waiting timed messages again from time to time."
    )
    timer_intercept_delay_level: bool = flag(
        False, "Send messages with a delay level through the timer."
    )
    timer_max_delay_sec: int = int32(259_200, "Seconds that a timed message may lie ahead.")
    timer_wheel_enable: bool = flag(True, "Serve messages with an exact delivery time.")
    disappear_time_after_start: int = int32(
        -1,
        "Milliseconds after the start for which a broker stays out of sight; -1 none.",
        important=True,
    )
    timer_stop_enqueue: bool = flag(False, "Take no more messages into the timer.")
    timer_stop_dequeue: bool = flag(False, "Deliver no more messages from the timer.")
    timer_check_metrics_when: str = text(
        "05", "Hour of the day at which waiting messages are counted again."
    )
    timer_skip_unknown_error: bool = flag(
        False, "Skip timed messages that fail for unknown reasons."
    )
    timer_warm_enable: bool = flag(False, "Read due messages ahead of their time.")
    timer_enable_retry_until_success: bool = flag(False, "Try to deliver until it works.")
    timer_congest_num_each_slot: int = int32(
        2_147_483_647, "Messages of one slot after which the timer counts as crowded."
    )
    timer_metric_small_threshold: int = int32(
        1_000_000, "Waiting messages below which a topic counts as small."
    )
    timer_progress_log_interval_ms: int = int32(
        10_000, "Milliseconds between log entries about progress."
    )
    timer_wheel_snapshot_flush: bool = flag(False, "Save the wheel as a whole.")
    timer_wheel_snapshot_interval_ms: int = int32(10_000, "Milliseconds between these saves.")
    timer_rocksdb_enable: bool = flag(
        False, "Keep timed messages in a database.", name="timerRocksDBEnable"
    )
    timer_rocksdb_stop_scan: bool = flag(
        False, "Stop reading that database.", name="timerRocksDBStopScan"
    )
    timer_rocksdb_precision_ms: int = int64(
        1000, "Milliseconds of its slots.", name="timerRocksDBPrecisionMs"
    )
    timer_rocksdb_roll_max_tps: float = number(
        8000.0, "Messages per second that it may put in again.", name="timerRocksDBRollMaxTps"
    )
    timer_rocksdb_time_expired_max_tps: float = number(
        200000.0, "Messages per second that it may deliver.", name="timerRocksDBTimeExpiredMaxTps"
    )
    timer_rocksdb_roll_interval_hours: int = int32(
        1, "Hours between two such rounds.", name="timerRocksDBRollIntervalHours"
    )
    timer_rocksdb_roll_range_hours: int = int32(
        2, "Hours that one round covers.", name="timerRocksDBRollRangeHours"
    )
    timer_recall_to_time_wheel_enable: bool = flag(True, "Let recalls reach the wheel.")
    timer_recall_to_timeline_enable: bool = flag(True, "Let recalls reach the database.")
    trans_rocksdb_enable: bool = flag(
        False, "Keep transactions in a database.", name="transRocksDBEnable"
    )
    trans_write_origin_trans_half_enable: bool = flag(
        True, "Write half messages to their topic as well."
    )
    index_rocksdb_enable: bool = flag(
        False, "Keep the index in a database.", name="indexRocksDBEnable"
    )
    max_rocksdb_index_query_days: int = int32(
        7, "Days that one query of it may cover.", name="maxRocksDBIndexQueryDays"
    )
    append_topic_for_timer_delete_key: bool = flag(
        False, "Add the topic to the key that deletes a timed message."
    )
    message_delay_level: str = text(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "Delays of the levels, level 1 first.",
        form=Form(
            "[0-9]+[smhd]( [0-9]+[smhd])*",
            "a list as 30s 5m 2h 1d, with one blank between,",
        ),
    )
    flush_delay_offset_interval: int = int64(
        10_000, "Milliseconds between saves of the delay levels' positions."
    )
    enable_schedule_message_stats: bool = flag(True, "Count delayed messages.")
    enable_schedule_async_deliver: bool = flag(
        False, "Deliver delayed messages without waiting for each."
    )
    schedule_async_deliver_max_pending_limit: int = int32(
        2000, "Delayed messages in delivery at a time."
    )
    schedule_async_deliver_max_resend_num2_blocked: int = int32(
        3, "Failed deliveries after which a level waits."
    )
    enable_lmq: bool = flag(False, "Allow light queues.")
    enable_multi_dispatch: bool = flag(False, "Put one message into several light queues.")
    max_lmq_consume_queue_num: int = int32(20_000, "Light queues of one broker.")
    clean_rocksdb_dirty_cq_interval_min: int = int64(
        60,
        "Minutes between sweeps for leftover queues in the database.",
        name="cleanRocksDBDirtyCQIntervalMin",
    )
    stat_rocksdb_cq_interval_sec: int = int64(
        10, "Seconds between log entries about it.", name="statRocksDBCQIntervalSec"
    )
    mem_table_flush_interval_ms: int = int64(
        3_600_000, "Milliseconds between flushes of its memory."
    )
    real_time_persist_rocksdb_config: bool = flag(
        True, "Write tables to it at once.", name="realTimePersistRocksDBConfig"
    )
    enable_rocksdb_log: bool = flag(False, "Write its own log.", name="enableRocksDBLog")
    rocksdb_cq_double_write_enable: bool = flag(
        False, "Write queues to files and to the database.", name="rocksdbCQDoubleWriteEnable"
    )
    combine_cq_loading_cq_types: str = text(
        "default;defaultRocksDB",
        "Kinds of queue store that are loaded.",
        name="combineCQLoadingCQTypes",
    )
    combine_cq_prefer_cq_type: str = text(
        "default", "Kind that is read.", name="combineCQPreferCQType"
    )
    combine_assign_offset_cq_type: str = text(
        "default", "Kind that gives offsets.", name="combineAssignOffsetCQType"
    )
    combine_cq_enable_check_self: bool = flag(
        False, "Compare the kinds at start.", name="combineCQEnableCheckSelf"
    )
    combine_cq_max_extra_search_commit_log_files: int = int32(
        3, "Further log files searched for that.", name="combineCQMaxExtraSearchCommitLogFiles"
    )
    bottom_most_compression_type_for_consume_queue_store: str = text(
        "zstd", "Compression of the queue database's lowest level."
    )
    rocksdb_compression_type: str = text("lz4", "Compression of its other levels.")
    rocksdb_flush_wal_frequency: int = int32(1024, "Writes between flushes of its log.")
    rocksdb_wal_file_rolling_threshold: int = int64(
        1_073_741_824, "Bytes after which its log starts a new file."
    )
