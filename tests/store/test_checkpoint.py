"""Does the checkpoint hold the official numbers, and never claim more than is on the device?"""

from __future__ import annotations

import errno

import pytest

from tests.golden import LINES, units
from txrocketmq.codec.storefiles import CHECKPOINT
from txrocketmq.store.checkpoint import StoreCheckpoint
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool

PATH = "/store/checkpoint"


@pytest.mark.parametrize("line", LINES)
def test_the_file_has_the_official_bytes(line: str) -> None:
    vector = units(line)["storeCheckpoint"]
    disk = MemoryDisk()
    checkpoint = StoreCheckpoint(disk, PATH)
    checkpoint.physic_msg_timestamp_ms = vector["physicMsgTimestamp"]
    checkpoint.logics_msg_timestamp_ms = vector["logicsMsgTimestamp"]
    checkpoint.index_msg_timestamp_ms = vector["indexMsgTimestamp"]
    checkpoint.save(ImmediatePool())
    written = disk.read_file(PATH)
    assert len(written) == vector["fileSize"]
    assert written[:64].hex() == vector["first64_hex"]
    assert disk.synced(PATH) == written
    again = StoreCheckpoint(disk, PATH)
    again.load()
    assert again.encode() == checkpoint.encode()


def test_recovery_begins_three_seconds_before_the_older_time() -> None:
    checkpoint = StoreCheckpoint(MemoryDisk(), PATH)
    assert checkpoint.min_timestamp_ms == 0
    checkpoint.physic_msg_timestamp_ms = 10_000
    checkpoint.logics_msg_timestamp_ms = 9_000
    assert checkpoint.min_timestamp_ms == 6_000
    checkpoint.logics_msg_timestamp_ms = 2_000
    assert checkpoint.min_timestamp_ms == 0


@pytest.mark.parametrize("content", [None, b"", b"\x01" * 20])
def test_a_missing_or_short_file_means_that_nothing_is_known(content: bytes | None) -> None:
    disk = MemoryDisk()
    if content is not None:
        disk.create(PATH, len(content))
        disk.write_at(PATH, 0, content)
    checkpoint = StoreCheckpoint(disk, PATH)
    checkpoint.load()
    assert CHECKPOINT.unpack(checkpoint.encode()) == (0, 0, 0, 0, 0)


def test_it_is_written_when_a_number_changed_and_after_a_failure() -> None:
    disk, pool = MemoryDisk(), ImmediatePool()
    checkpoint = StoreCheckpoint(disk, PATH)
    checkpoint.physic_msg_timestamp_ms = 5
    checkpoint.save(pool)
    checkpoint.save(pool)
    assert len([sync for sync in disk.syncs if sync[0] == PATH]) == 1
    disk.sync_error = OSError(errno.EIO, "broken")
    checkpoint.physic_msg_timestamp_ms = 6
    checkpoint.save(pool)
    disk.sync_error = None
    checkpoint.save(pool)
    assert CHECKPOINT.unpack_from(disk.synced(PATH))[0] == 6
