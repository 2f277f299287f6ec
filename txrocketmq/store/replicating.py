"""What does replication ask of a store, besides taking and giving bytes of log? Offsets, what is shown, where the log ends.

A part of `txrocketmq.store.message_store.MessageStore`, in a module of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.interfaces import ICompactedSource, IReplicas
from txrocketmq.store.checkpoint import StoreCheckpoint
from txrocketmq.store.commitlog import CommitLog
from txrocketmq.store.compaction.compaction_store import CompactionStore
from txrocketmq.store.flush import LogFlusher
from txrocketmq.store.putting import MessagePutter
from txrocketmq.store.queuetable import QueueTable
from txrocketmq.store.replicalog import ReplicaLog
from txrocketmq.store.reput import Reput
from txrocketmq.store.truncation import truncate_log

if TYPE_CHECKING:
    from txrocketmq.store.message_store import MessageStore


class ReplicationControl:
    """See `IReplicationControl`; the store has the parts.

    :ivar next_try: what the disk refused of a cut is tried again when this fires.
    """

    _clock: IReactorTime
    _config: MessageStoreConfig
    checkpoint: StoreCheckpoint
    commit_log: CommitLog
    compaction: CompactionStore
    flusher: LogFlusher
    putter: MessagePutter
    queue_table: QueueTable
    replica_log: ReplicaLog
    reput: Reput
    next_try: Deferred[None] | None = None

    def max_physical_offset(self) -> int:
        """See `IReplicationControl`."""
        return self.commit_log.max_offset

    def min_physical_offset(self) -> int:
        """See `IReplicationControl`."""
        return self.commit_log.min_offset

    def flushed_offset(self) -> int:
        """See `IReplicationControl`."""
        return self.commit_log.flushed_offset

    def set_compacted_source(self, source: ICompactedSource) -> None:
        """See `IReplicationControl`."""
        self.compaction.older.source = source

    def read_log(self, offset: int, max_bytes: int) -> bytes | Deferred[bytes]:
        """See `IReplicationControl`."""
        return self.replica_log.read(offset, max_bytes)

    def last_record(self) -> tuple[int, bytes] | None:
        """See `IReplicationControl`."""
        return self.replica_log.last_record()

    def last_file_offset(self) -> int:
        """See `IReplicationControl`."""
        return self.commit_log.max_offset - self.commit_log.max_offset % (
            self._config.mapped_file_size_commit_log
        )

    def truncate_log(self, offset: int) -> Deferred[None]:
        """See `IReplicationControl`."""
        return Deferred.fromCoroutine(truncate_log(cast("MessageStore", self), self._clock, offset))

    def give_up_cut(self) -> None:
        """The store stops: a cut that waits for the disk ends."""
        if self.next_try is not None:
            self.next_try.cancel()

    def confirm_offset(self) -> int:
        """See `IReplicationControl`."""
        confirmed = self.reput.confirm_offset
        return self.commit_log.max_offset if confirmed is None else confirmed

    def set_confirm_offset(self, offset: int | None) -> None:
        """See `IReplicationControl`."""
        self.reput.confirm_offset = offset
        self.checkpoint.confirm_physical_offset = max(0, offset or 0)
        if self._config.broker_role == "SLAVE":
            self.replica_log.confirmed()
        elif self._config.flush_disk_type == "SYNC_FLUSH":
            self.reput.flushed(self.commit_log.flushed_offset)
        else:
            self.reput.flushed(self.commit_log.max_offset)

    def roles_changed(self, leads: bool) -> None:
        """See `IReplicationControl`."""
        self.reput.drop_waiting()
        self.replica_log.confirmed()
        table = self.queue_table
        for queue in (*table.queues.values(), *table.ahead.values()):
            queue.next_index = queue.max_index
        if leads and self.reput.offset < self.commit_log.max_offset:
            self.replica_log.hold_rest()

    def set_replicas(self, replicas: IReplicas | None) -> None:
        """See `IReplicationControl`."""
        self.putter.replicas = replicas

    def master_flushed_offset(self) -> int:
        """See `IReplicationControl`."""
        return self.checkpoint.master_flushed_offset

    def set_master_flushed_offset(self, offset: int) -> None:
        """See `IReplicationControl`."""
        self.checkpoint.master_flushed_offset = offset

    def hold_checkpoint(self, first_ms: int) -> None:
        """Let the checkpoint promise nothing of messages that are as new as this: they are about to be cut."""
        checkpoint, flusher, table = self.checkpoint, self.flusher, self.queue_table
        flusher.flushed_timestamp_ms = min(flusher.flushed_timestamp_ms, first_ms)
        table.newest_timestamp_ms = min(table.newest_timestamp_ms, first_ms)
        checkpoint.physic_msg_timestamp_ms = min(checkpoint.physic_msg_timestamp_ms, first_ms)
        checkpoint.logics_msg_timestamp_ms = min(checkpoint.logics_msg_timestamp_ms, first_ms)
        checkpoint.index_msg_timestamp_ms = min(checkpoint.index_msg_timestamp_ms, first_ms)
