"""How far are timed messages taken and delivered? The file ``timercheck``.

Stands for ``TimerCheckpoint``: seven numbers in a file of 4096 bytes.

Crash story: what was delivered is in the commit log, which may reach the device later than this file. Official brokers then lose it at a
power failure. So the file also says, behind the official numbers, up to where the log must reach for them to hold, and older numbers
that hold in any case. A checksum over the official part tells whether an official broker has written since; then its numbers are all
there is. All of it lies in one sector: old or new.
"""

from __future__ import annotations

import attrs

from txrocketmq.codec.storefiles import (
    CHECKPOINT_BYTES,
    TIMER_CHECKPOINT,
    TIMER_CHECKPOINT_OURS,
    TIMER_CHECKPOINT_SHORT,
)
from txrocketmq.interfaces import IDisk
from txrocketmq.model.javahash import crc32

FILE_NAME = "timercheck"
OURS_AT = 64
MAGIC = 0x74585431


@attrs.define(kw_only=True)
class TimerCheckpoint:
    """One state of the timer.

    :ivar read_ms: every slot before this time was delivered.
    :ivar log_position: the timer log was on the device up to here.
    :ivar queue_offset: every message of the timer topic before this one was taken.
    :ivar master_offset: the same at the master; on a master itself as ``queue_offset``.
    :ivar state_version, version_ms, version: the official data version.
    :ivar log_end: how far the commit log must reach for ``read_ms`` and ``queue_offset`` to hold.
    :ivar safe_read_ms, safe_queue_offset: those that hold when it does not.
    """

    read_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0
    master_offset: int = 0
    state_version: int = 0
    version_ms: int = 0
    version: int = 0
    log_end: int = 0
    safe_read_ms: int | None = None
    safe_queue_offset: int | None = None

    def official(self) -> bytes:
        """The 56 bytes that official brokers write, and answer to GET_TIMER_CHECK_POINT."""
        return TIMER_CHECKPOINT.pack(
            self.read_ms,
            self.log_position,
            self.queue_offset,
            self.master_offset,
            self.state_version,
            self.version_ms,
            self.version,
        )

    def encode(self) -> bytes:
        """The file's bytes, as many as count."""
        head = self.official()
        safe_read_ms, safe_offset = self.safe_read_ms, self.safe_queue_offset
        ours = TIMER_CHECKPOINT_OURS.pack(
            MAGIC,
            crc32(head),
            self.log_end,
            self.read_ms if safe_read_ms is None else safe_read_ms,
            self.queue_offset if safe_offset is None else safe_offset,
        )
        return head.ljust(OURS_AT, b"\0") + ours

    @classmethod
    def decode(cls, data: bytes) -> TimerCheckpoint | None:
        """What a file, or a master's answer, says; None when it is too short for anything."""
        if len(data) < TIMER_CHECKPOINT_SHORT.size:
            return None
        if len(data) < TIMER_CHECKPOINT.size:
            read_ms, position, offset, master = TIMER_CHECKPOINT_SHORT.unpack_from(data)
            return cls(
                read_ms=read_ms, log_position=position, queue_offset=offset, master_offset=master
            )
        values = TIMER_CHECKPOINT.unpack_from(data)
        names = [field.name for field in attrs.fields(cls)]
        found = cls(**dict(zip(names, values, strict=False)))
        if len(data) >= OURS_AT + TIMER_CHECKPOINT_OURS.size:
            magic, crc, log_end, read_ms, offset = TIMER_CHECKPOINT_OURS.unpack_from(data, OURS_AT)
            if magic == MAGIC and crc == crc32(data[: TIMER_CHECKPOINT.size]):
                found.log_end, found.safe_read_ms, found.safe_queue_offset = (
                    log_end,
                    read_ms,
                    offset,
                )
        return found

    def holding(self, log_end: int) -> TimerCheckpoint:
        """What of it holds for a commit log that reaches to ``log_end``."""
        if log_end >= self.log_end or self.safe_read_ms is None or self.safe_queue_offset is None:
            return self
        return attrs.evolve(
            self,
            read_ms=self.safe_read_ms,
            queue_offset=self.safe_queue_offset,
            master_offset=min(self.master_offset, self.safe_queue_offset),
        )


def load_checkpoint(disk: IDisk, path: str) -> TimerCheckpoint | None:
    """The checkpoint of a file; None when there is none (start only)."""
    if not disk.exists(path):
        return None
    return TimerCheckpoint.decode(disk.read_at(path, 0, CHECKPOINT_BYTES))


def save_checkpoint(disk: IDisk, path: str, data: bytes, *, is_settled: bool) -> None:
    """Pool: write the file and bring it to the device.

    :param is_settled: whether its directory entry is there already.
    """
    directory = path.rpartition("/")[0]
    if not disk.exists(path):
        disk.makedirs(directory)
        disk.create(path, CHECKPOINT_BYTES)
    disk.write_at(path, 0, data)
    disk.sync_file(path)
    if not is_settled:
        disk.sync_directory(directory)
