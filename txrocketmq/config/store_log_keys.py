"""Which keys steer the commit log, queues, indexes and the disk? First part of the official ``MessageStoreConfig``."""

from __future__ import annotations

import attrs

from txrocketmq.config.defaults import STORE_HOME
from txrocketmq.config.keys import Form, choice, flag, int32, int64, number, text


@attrs.define(kw_only=True, slots=False)
class StoreLogKeys:
    """Paths, file sizes, flushing, deletion and reading."""

    store_path_root_dir: str = text(
        STORE_HOME,
        "Directory of the store: log, queues, indexes and tables lie below it.",
        important=True,
        form=Form(".+", "a directory"),
    )
    store_path_commit_log: str | None = text(
        None, "Directory of the commit log; unset, `commitlog` below the root.", important=True
    )
    store_path_dledger_commit_log: str | None = text(
        None,
        "Directory of a replicated log by DLedger.",
        name="storePathDLedgerCommitLog",
        important=True,
    )
    store_path_epoch_file: str | None = text(
        None,
        "File of mastership epochs; unset, `epochFileCheckpoint` below the root.",
        important=True,
    )
    store_path_broker_identity: str | None = text(
        None,
        "File with the broker's identity in controller mode; unset, `brokerIdentity` below the root.",
        important=True,
    )
    read_only_commit_log_store_paths: str | None = text(
        None, "Further directories with log files that are only read."
    )
    mapped_file_size_commit_log: int = int32(
        1_073_741_824,
        "Bytes of one commit log file. Must stay as it is once the store has data.",
        low=1024,
    )
    mapped_file_size_consume_queue: int = int32(
        6_000_000, "Bytes of one consume queue file, a multiple of 20.", low=1
    )
    enable_consume_queue_ext: bool = flag(False, "Keep filter bit maps in a second queue file.")
    mapped_file_size_consume_queue_ext: int = int32(50_331_648, "Bytes of one such file.", low=1)
    mapper_file_size_batch_consume_queue: int = int32(
        13_800_000, "Bytes of one file of a batch queue.", low=1
    )
    bit_map_length_consume_queue_ext: int = int32(64, "Bits of one filter bit map.")
    flush_interval_commit_log: int = int32(
        500, "Milliseconds between flushes of the log in asynchronous mode.", important=True
    )
    commit_interval_commit_log: int = int32(
        200, "Milliseconds between moves from the memory pool to the log file.", important=True
    )
    max_recovery_commitlog_files: int = int32(
        30, "Log files that recovery reads at most before it trusts the checkpoint."
    )
    commit_log_recover_max_num: int = int32(
        10, "Log files that accelerated recovery reads at most."
    )
    disk_space_warning_level_ratio: int = int32(
        90, "Percentage of disk use at which writes are refused."
    )
    disk_space_clean_forcibly_ratio: int = int32(
        85, "Percentage of disk use at which old files are deleted whatever their age."
    )
    use_reentrant_lock_when_put_message: bool = flag(
        True, "Kind of lock around appends in the official store."
    )
    flush_commit_log_timed: bool = flag(
        True, "Flush at fixed intervals even when woken earlier.", important=True
    )
    flush_interval_consume_queue: int = int32(
        1000, "Milliseconds between flushes of consume queues."
    )
    clean_resource_interval: int = int32(10_000, "Milliseconds between looks for files to delete.")
    delete_commit_log_files_interval: int = int32(
        100, "Milliseconds between deletions of two log files."
    )
    delete_consume_queue_files_interval: int = int32(
        100, "Milliseconds between deletions of two queue files."
    )
    destroy_maped_file_interval_forcibly: int = int32(
        120_000, "Milliseconds after which a file that is still in use is deleted anyway."
    )
    redelete_hanged_file_interval: int = int32(
        120_000, "Milliseconds after which a failed deletion is tried again."
    )
    delete_when: str = text(
        "04", "Hours of the day, `;` between them, at which old files are deleted.", important=True
    )
    disk_max_used_space_ratio: int = int32(
        75, "Percentage of disk use at which old files are deleted at any hour."
    )
    file_reserved_time: int = int32(72, "Hours that a log file is kept.", important=True, low=0)
    delete_file_batch_max: int = int32(10, "Files deleted in one pass.", important=True)
    max_batch_delete_files_num: int = int32(50, "Files deleted at most in one pass under pressure.")
    put_msg_index_hight_water: int = int32(
        600_000, "Index entries that may wait in the official store."
    )
    max_message_size: int = int32(4_194_304, "Bytes that a message's body may have.", low=0)
    max_filter_message_size: int = int32(
        16_000, "Bytes of messages looked at for one filtered pull, in units of queue entries."
    )
    check_crc_on_recover: bool = flag(
        True, "Check bodies against their checksum in recovery.", name="checkCRCOnRecover"
    )
    flush_commit_log_least_pages: int = int32(
        4, "Pages of 4 KiB that must wait before an asynchronous flush."
    )
    commit_commit_log_least_pages: int = int32(
        4, "Pages that must wait before a move from the memory pool."
    )
    flush_least_pages_when_warm_maped_file: int = int32(
        4096, "Pages touched between flushes while a new file is warmed."
    )
    flush_consume_queue_least_pages: int = int32(
        2, "Pages that must wait before queues are flushed."
    )
    flush_commit_log_thorough_interval: int = int32(
        10_000, "Milliseconds after which the log is flushed however little waits."
    )
    commit_commit_log_thorough_interval: int = int32(
        200, "Milliseconds after which the memory pool is moved however little waits."
    )
    flush_consume_queue_thorough_interval: int = int32(
        60_000, "Milliseconds after which queues are flushed however little waits."
    )
    max_transfer_bytes_on_message_in_memory: int = int32(
        262_144, "Bytes of one pull answer from memory.", important=True
    )
    max_transfer_count_on_message_in_memory: int = int32(
        32, "Messages of one pull answer from memory.", important=True
    )
    max_transfer_bytes_on_message_in_disk: int = int32(
        65_536, "Bytes of one pull answer from disk.", important=True
    )
    max_transfer_count_on_message_in_disk: int = int32(
        8, "Messages of one pull answer from disk.", important=True
    )
    access_message_in_memory_max_ratio: int = int32(
        40,
        "Percentage of the machine's memory whose worth of newest log counts as being in memory.",
        important=True,
    )
    access_message_in_memory_hot_ratio: int = int32(26, "The same for the part that counts as hot.")
    message_index_enable: bool = flag(True, "Build the index by key.", important=True)
    index_file_write_enable: bool = flag(True, "Write index files.")
    index_file_read_enable: bool = flag(True, "Answer queries from index files.")
    max_hash_slot_num: int = int32(5_000_000, "Hash slots of one index file.", low=1)
    max_index_num: int = int32(20_000_000, "Entries of one index file.", low=2)
    max_msgs_num_batch: int = int32(64, "Messages that one query by key may return.")
    message_index_safe: bool = flag(
        False, "Trust index files after an unclean stop only up to the checkpoint.", important=True
    )
    flush_disk_type: str = choice(
        "ASYNC_FLUSH",
        ("SYNC_FLUSH", "ASYNC_FLUSH"),
        "FlushDiskType",
        "When a send is answered: after the flush or before it.",
        important=True,
    )
    sync_flush_timeout: int = int32(5000, "Milliseconds that a send waits for its flush.")
    put_message_timeout: int = int32(
        8000, "Milliseconds that an append may take in the official store."
    )
    max_topic_length: int = int32(127, "Bytes of a topic's name.")
    auto_message_version_on_topic_len: bool = flag(
        True, "Use record version 2 for topics longer than 127 bytes."
    )
    default_query_max_num: int = int32(
        32, "Messages that a query by key returns when the caller sets no limit."
    )
    warm_maped_file_enable: bool = flag(
        False, "Touch every page of a new log file before it is used."
    )
    offset_check_in_slave: bool = flag(False, "Correct a consumer's offset on a slave too.")
    debug_lock_enable: bool = flag(False, "Log long waits for the append lock.")
    duplication_enable: bool = flag(
        False, "Allow a log that was copied together from another broker's."
    )
    disk_fall_recorded: bool = flag(True, "Count how far consumers are behind on disk.")
    os_page_cache_busy_time_out_mills: int = int64(
        1000, "Milliseconds that an append may take before sends are answered SYSTEM_BUSY."
    )
    transient_store_pool_enable: bool = flag(
        False, "Collect writes in a memory pool before they go to the log file.", important=True
    )
    transient_store_pool_size: int = int32(5, "Buffers in that pool.")
    fast_fail_if_no_buffer_in_store_pool: bool = flag(
        False, "Refuse sends while the pool has no buffer."
    )
    write_without_mmap: bool = flag(
        False, "Write the log through the file instead of a mapping.", important=True
    )
    clean_file_forcibly_enable: bool = flag(
        True, "Allow deletion before the time when the disk is nearly full.", important=True
    )
    max_async_put_message_requests: int = int32(
        5000, "Sends that may wait for a flush or a slave; more are answered SYSTEM_BUSY."
    )
    pull_batch_max_message_count: int = int32(
        160, "Messages that one pull answer may hold when a client asks for more than usual."
    )
    travel_cq_file_num_when_get_message: int = int32(
        1, "Queue files that one pull may walk in search of matching entries."
    )
    correct_logic_min_offset_sleep_interval: int = int32(
        1, "Milliseconds between corrections of two queues' start."
    )
    correct_logic_min_offset_force_interval: int = int32(
        300_000,
        "Milliseconds after which a queue's start is corrected even if nothing was deleted.",
    )
    mapped_file_swap_enable: bool = flag(True, "Unmap and map old files again to give memory back.")
    commit_log_force_swap_map_interval: int = int64(
        43_200_000, "Milliseconds after which a log file is mapped anew in any case."
    )
    commit_log_swap_map_interval: int = int64(
        3_600_000, "Milliseconds after which an unused log file is mapped anew."
    )
    commit_log_swap_map_reserve_file_num: int = int32(100, "Newest log files that are left alone.")
    logic_queue_force_swap_map_interval: int = int64(
        43_200_000, "Milliseconds after which a queue file is mapped anew in any case."
    )
    logic_queue_swap_map_interval: int = int64(
        3_600_000, "Milliseconds after which an unused queue file is mapped anew."
    )
    logic_queue_swap_map_reserve_file_num: int = int32(
        20, "Newest queue files that are left alone."
    )
    clean_swaped_map_interval: int = int64(
        300_000, "Milliseconds after which the old mapping is dropped."
    )
    search_bcq_by_cache_enable: bool = flag(True, "Search batch queues through a cache.")
    dispatch_from_sender_thread: bool = flag(
        False, "Fill queues from the sending thread.", important=True
    )
    wake_commit_when_put_message: bool = flag(
        True, "Wake the move from the memory pool at each append.", important=True
    )
    wake_flush_when_put_message: bool = flag(
        False, "Wake the flush at each append.", important=True
    )
    dispatch_cq_threads: int = int32(10, "Threads that fill queues.")
    dispatch_cq_cache_num: int = int32(4096, "Entries that may wait for them.")
    enable_async_reput: bool = flag(True, "Fill queues apart from the append.")
    recheck_reput_offset_from_cq: bool = flag(
        False, "Start filling queues where the queues end, not where the log starts."
    )
    enable_running_flags_in_flush: bool = flag(
        False, "Check the store's state before each flush.", important=True
    )
    enabled_append_prop_crc: bool = flag(
        False, "Add a checksum over the properties to each record.", name="enabledAppendPropCRC"
    )
    force_verify_prop_crc: bool = flag(
        False, "Refuse records without that checksum in recovery.", name="forceVerifyPropCRC"
    )
    topic_queue_lock_num: int = int32(32, "Locks that queues share while an offset is given.")
    read_un_committed: bool = flag(False, "Show messages that are not yet safe.")
    put_consume_queue_data_by_file_channel: bool = flag(
        True, "Write queues through the file instead of a mapping."
    )
    max_consume_queue_scan: int = int32(20_000, "Queue entries looked at to estimate lag.")
    sample_count_threshold: int = int32(
        5000, "Entries from which on lag is estimated from samples."
    )
    sample_steps: int = int32(32, "Distance between these samples.")
    cold_data_flow_control_enable: bool = flag(False, "Limit reads of cold data.")
    cold_data_scan_enable: bool = flag(False, "Watch which pages are in memory.")
    data_read_ahead_enable: bool = flag(True, "Let the system read log files ahead.")
    timer_cold_data_check_interval_ms: int = int32(
        60_000, "Milliseconds between looks at whether timed messages are cold."
    )
    enable_build_consume_queue_concurrently: bool = flag(False, "Fill queues with several threads.")
    batch_dispatch_request_thread_pool_nums: int = int32(16, "Threads for that.")
    max_checksum_range: int = int64(1_073_741_824, "Bytes compared when replicas match their logs.")
    shared_byte_buffer_num: int = int32(16, "Buffers shared by writers.")
    enable_clean_expired_offset: bool = flag(
        False, "Drop offsets of queues that no longer exist.", important=True
    )
    use_abs_lock: bool = flag(False, "Adapt the append lock to how busy it is.", name="useABSLock")
    spin_lock_collision_retreat_optimal_degree: int = int32(
        1000, "Collisions after which that lock stops spinning."
    )
    enable_log_consume_queue_repeatedly_build_when_recover: bool = flag(
        False, "Log queue entries that recovery meets twice."
    )
    enable_accelerated_recovery: bool = flag(
        False, "Start recovery at the last position known to be safe."
    )
    replicas_per_disk_partition: int = int32(1, "Stores that share one disk.")
    logical_disk_space_clean_forcibly_threshold: float = number(
        0.8, "Share of the disk at which they together delete old files."
    )
