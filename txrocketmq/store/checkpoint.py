"""Up to which store time did log, queues and index reach the disk? The file ``checkpoint``.

Stands for the official ``StoreCheckpoint``: five numbers in a file of 4096 bytes. Recovery after a crash starts with the
log file whose first message is not younger than `StoreCheckpoint.min_timestamp_ms`.

Crash story: a time is noted only after what it speaks of is on the device, so an older file than the truth merely costs
recovery some time. The times go back with the clock: that of the newest message counts, not the greatest. The file is written in place; its numbers lie in one sector, so they are old or new.
"""

from __future__ import annotations

import os

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.codec.storefiles import CHECKPOINT, CHECKPOINT_BYTES
from txrocketmq.interfaces import IBlockingPool, IDisk

RECOVERY_REWIND_MS = 3000
"""Recovery looks that much further back than the older of log and queue time."""


class StoreCheckpoint:
    """The flush times of a store, all in ms since the epoch, 0 when unknown.

    :ivar physic_msg_timestamp_ms: store time of the newest message whose record is on the device.
    :ivar logics_msg_timestamp_ms: the same for consume queue units.
    :ivar index_msg_timestamp_ms: the same for index entries; moves when an index file is full.
    :ivar master_flushed_offset: physical offset that the master had flushed (5.x replication).
    :ivar confirm_physical_offset: physical offset up to which replicas agree (5.x replication).
    """

    log = Logger()

    def __init__(self, disk: IDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._saved = b""
        self._failed = False
        self.physic_msg_timestamp_ms = 0
        self.logics_msg_timestamp_ms = 0
        self.index_msg_timestamp_ms = 0
        self.master_flushed_offset = 0
        self.confirm_physical_offset = 0

    def load(self) -> None:
        """Read the file; a missing or short one leaves all at 0, and recovery reads the whole log."""
        try:
            data = self._disk.read_at(self._path, 0, CHECKPOINT.size)
        except FileNotFoundError:
            return
        if len(data) == CHECKPOINT.size:
            (
                self.physic_msg_timestamp_ms,
                self.logics_msg_timestamp_ms,
                self.index_msg_timestamp_ms,
                self.master_flushed_offset,
                self.confirm_physical_offset,
            ) = CHECKPOINT.unpack(data)
            self._saved = data

    @property
    def min_timestamp_ms(self) -> int:
        """Store time before which all messages are safe in log and queues."""
        oldest = min(self.physic_msg_timestamp_ms, self.logics_msg_timestamp_ms)
        return max(oldest - RECOVERY_REWIND_MS, 0)

    def encode(self) -> bytes:
        """The numbers as the file holds them."""
        return CHECKPOINT.pack(
            self.physic_msg_timestamp_ms,
            self.logics_msg_timestamp_ms,
            self.index_msg_timestamp_ms,
            self.master_flushed_offset,
            self.confirm_physical_offset,
        )

    @property
    def is_saved(self) -> bool:
        """Whether the file says the same."""
        return self.encode() == self._saved

    def save(self, pool: IBlockingPool) -> Deferred[None]:
        """Write the file in the pool when a number changed. Failure is logged: the old file does as well."""
        data = self.encode()
        if data == self._saved:
            return succeed(None)
        job: Deferred[None] = pool.submit(self._write, data)
        job.addCallbacks(self._written, self._write_failed, (data,))
        return job

    def save_now(self) -> None:
        """As `save`, before returning (start-up only)."""
        data = self.encode()
        if data != self._saved:
            try:
                self._write(data)
            except OSError:
                self._write_failed(Failure())  # type: ignore[no-untyped-call]
            else:
                self._written(None, data)

    def _write(self, data: bytes) -> None:
        is_new = not self._disk.exists(self._path)
        self._disk.create(self._path, CHECKPOINT_BYTES)
        self._disk.write_at(self._path, 0, data)
        self._disk.sync_file(self._path)
        if is_new:
            self._disk.sync_directory(os.path.dirname(self._path))

    def _written(self, _: object, data: bytes) -> None:
        self._saved = data
        self._failed = False

    def _write_failed(self, failure: Failure) -> None:
        if not self._failed:
            self._failed = True
            self.log.error("checkpoint was not written: {error}", error=failure.value)
