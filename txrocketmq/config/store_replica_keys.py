"""Which keys steer replication? Second part of the official ``MessageStoreConfig``."""

from __future__ import annotations

import attrs

from txrocketmq.config.keys import choice, flag, int32, int64, text


@attrs.define(kw_only=True, slots=False)
class StoreReplicaKeys:
    """Roles, replicas in sync and the replication link."""

    ha_listen_port: int = int32(
        10_912,
        "TCP port where slaves fetch the log; unset, `listenPort` plus one.",
        low=0,
        high=65535,
    )
    ha_send_heartbeat_interval: int = int32(
        5000, "Milliseconds of quiet after which a replication heartbeat is sent."
    )
    ha_housekeeping_interval: int = int32(
        20_000, "Milliseconds of quiet after which a replication link is closed."
    )
    ha_transfer_batch_size: int = int32(32_768, "Bytes of log in one replication frame.")
    ha_master_address: str | None = text(
        None, "Master to fetch from; unset, the name server says.", important=True
    )
    ha_max_gap_not_in_sync: int = int32(
        268_435_456, "Bytes that a slave may lag and still count as in sync."
    )
    broker_role: str = choice(
        "ASYNC_MASTER",
        ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
        "BrokerRole",
        "Part in replication. A synchronous master waits for a slave before it answers a send.",
        important=True,
    )
    slave_timeout: int = int32(3000, "Milliseconds that a send waits for a slave.")
    total_replicas: int = int32(1, "Replicas of the group, the master included.", important=True)
    in_sync_replicas: int = int32(
        1, "Replicas that must have a message before it is acknowledged.", important=True
    )
    min_in_sync_replicas: int = int32(
        1, "Fewest replicas in sync with which messages are accepted.", important=True
    )
    all_ack_in_sync_state_set: bool = flag(False, "Wait for every replica in sync.", important=True)
    enable_auto_in_sync_replicas: bool = flag(
        False, "Ask for fewer replicas while some are away.", important=True
    )
    ha_flow_control_enable: bool = flag(False, "Limit the bytes sent to slaves.", important=True)
    max_ha_transfer_byte_in_second: int = int64(104_857_600, "Bytes per second of that limit.")
    ha_max_time_slave_not_catchup: int = int64(
        15_000, "Milliseconds after which a lagging slave is out of sync."
    )
    sync_master_flush_offset_when_startup: bool = flag(
        False, "Cut a slave's log to the master's flushed end at start."
    )
    max_slave_resend_length: int = int64(
        268_435_456, "Bytes that a slave sends again when it returns."
    )
    sync_from_last_file: bool = flag(False, "Let an empty slave start with the master's last file.")
    async_learner: bool = flag(False, "Run as a replica that nobody waits for.")
    enable_dleger_commit_log: bool = flag(
        False, "Use DLedger's replicated log.", name="enableDLegerCommitLog"
    )
    dleger_group: str | None = text(None, "DLedger group.", name="dLegerGroup")
    dleger_peers: str | None = text(None, "Members of the DLedger group.", name="dLegerPeers")
    dleger_self_id: str | None = text(None, "This member's id.", name="dLegerSelfId")
    preferred_leader_id: str | None = text(None, "Member that should lead.")
    enable_batch_push: bool = flag(False, "Replicate in batches.")
