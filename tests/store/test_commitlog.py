"""Does the commit log lay out messages byte for byte as the official broker does, and refuse what it must?"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from txrocketmq.codec.record import (
    BLANK_MAGIC,
    BatchItem,
    decode_record,
    encode_record,
    record_size,
)
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.model.message import MessageRecord, record_of
from txrocketmq.store.commitlog import IN_PLACE_BYTES, SCAN_BYTES, CommitLog, LogScan
from txrocketmq.store.disk import RealDisk
from txrocketmq.store.mapped import MappedFileQueue, file_name
from txrocketmq.store.results import PutMessageStatus
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool, ManualPool

FILE = 16384
MIB = 1024 * 1024
GOLDEN = ["4.9.7", "4.9.7-crashed", "5.4.0", "5.4.0-crashed"]


def open_log(
    disk: MemoryDisk | RealDisk,
    *,
    directory: str = "/log",
    file_size: int = FILE,
    end: int = 0,
    pool: ImmediatePool | ManualPool | None = None,
    clock: Clock | None = None,
    max_message_size: int = 4 * MIB,
    chunk_bytes: int = MIB,
) -> CommitLog:
    queue = MappedFileQueue(
        disk, directory, file_size, pool or ImmediatePool(), chunk_bytes=chunk_bytes
    )
    queue.load()
    queue.truncate_to(end)
    queue.open_for_append()
    config = SimpleNamespace(
        max_message_size=max_message_size,
        enabled_append_prop_crc=False,
        force_verify_prop_crc=False,
    )
    return CommitLog(queue, clock or Clock(), config)


def message(body: bytes = b"hello", **fields: object) -> MessageRecord:
    return MessageRecord(topic="TopicTest", queue_id=3, body=body, **fields)  # type: ignore[arg-type]


def of_size(size: int) -> MessageRecord:
    """A message whose record has exactly this size."""
    return message(b"x" * (size - record_size(message(b""))))


def items_of(*records: MessageRecord) -> list[BatchItem]:
    """What a batch says of each of its messages."""
    return [(record.flag, record.body, record.properties) for record in records]


def at_ms(ms: int) -> Clock:
    clock = Clock()
    clock.rightNow = ms / 1000 + 0.0001
    return clock


# --------------------------------------------------------------------------- append


def test_a_record_is_written_at_the_end_with_its_place_and_time() -> None:
    log = open_log(MemoryDisk(), clock=at_ms(1_700_000_000_123))
    first = log.append(message(b"one"), 7)
    second = log.append(message(b"two"), 8)
    assert (first.status, first.physical_offset, first.queue_offset) == (0, 0, 7)
    assert second.physical_offset == first.wrote_bytes
    assert second.store_timestamp_ms == 1_700_000_000_123
    assert log.max_offset == first.wrote_bytes + second.wrote_bytes
    stored, _ = decode_record(log.read(second.physical_offset, second.wrote_bytes))
    assert (stored.body, stored.queue_offset, stored.physical_offset, stored.store_timestamp) == (
        b"two",
        8,
        second.physical_offset,
        1_700_000_000_123,
    )
    assert log.last_store_timestamp_ms == 1_700_000_000_123


@pytest.mark.parametrize(("bits", "stored"), [(0, 9), (0x4, 0), (0x8, 9), (0xC, 0)])
def test_half_and_rolled_back_messages_have_no_place_in_a_queue(bits: int, stored: int) -> None:
    log = open_log(MemoryDisk())
    result = log.append(message(sys_flag=bits), 9)
    assert result.queue_offset == stored
    assert decode_record(log.read(0, result.wrote_bytes))[0].queue_offset == stored


def test_ipv6_hosts_set_their_flags_and_lengths() -> None:
    log = open_log(MemoryDisk())
    result = log.append(message(born_host=("::1", 5), store_host=("2001:db8::2", 10911)), 0)
    stored, _ = decode_record(log.read(0, result.wrote_bytes))
    assert stored.sys_flag & 0x30 == 0x30
    assert (stored.born_host, stored.store_host) == (("::1", 5), ("2001:db8::2", 10911))
    assert result.wrote_bytes == record_size(message()) + 24


def test_a_record_may_fill_a_file_up_to_a_blank_record() -> None:
    log = open_log(MemoryDisk())
    assert log.append(of_size(FILE - 8), 0).physical_offset == 0
    assert log.max_offset == FILE - 8
    assert log.append(of_size(200), 1).physical_offset == FILE
    assert log.read(FILE - 8, 8) == (8).to_bytes(4, "big") + BLANK_MAGIC.to_bytes(
        4, "big", signed=True
    )


def test_a_record_without_room_for_a_blank_behind_it_goes_to_the_next_file() -> None:
    log = open_log(MemoryDisk())
    log.append(of_size(1000), 0)
    result = log.append(of_size(FILE - 1000 - 7), 1)
    assert (result.status, result.physical_offset) == (PutMessageStatus.PUT_OK, FILE)
    blank = log.read(1000, FILE)
    assert len(blank) == FILE - 1000
    assert blank[:4] == (FILE - 1000).to_bytes(4, "big")
    assert not any(blank[8:])
    stored, _ = decode_record(log.read(FILE, FILE))
    assert stored.physical_offset == FILE


@pytest.mark.parametrize("more", [-1, 0, 1, 300])
def test_a_large_body_is_written_in_place_as_any_other(more: int) -> None:
    log = open_log(MemoryDisk(), file_size=16 * 1024)
    for number in range(5):
        record = message(b"%d" % number * (IN_PLACE_BYTES + more), properties=b"a\x01b\x02")
        offset, queue = log.max_offset, log.queue
        result = log.append(record, number)
        assert result.is_ok
        found = queue.read(result.physical_offset, result.wrote_bytes)
        assert found == encode_record(
            record, number, result.physical_offset, result.store_timestamp_ms
        )
        assert result.physical_offset in (offset, -(-offset // queue.file_size) * queue.file_size)
    assert [head.queue_offset for _, head in log.scan(0)] == [0, 1, 2, 3, 4]


def test_a_batch_is_consecutive_records_of_one_file() -> None:
    log = open_log(MemoryDisk(), clock=at_ms(5))
    log.append(of_size(FILE - 1000), 0)
    records = [message(b"a" * 100, flag=1), message(b"b" * 200), message(b"c" * 500)]
    result = log.append_batch(records[0], items_of(*records), 40)
    assert result.physical_offset == FILE
    assert (result.queue_offset, result.msg_num) == (40, 3)
    sizes = [record_size(record) for record in records]
    assert list(result.batch_offsets) == [FILE, FILE + sizes[0], FILE + sizes[0] + sizes[1]]
    assert result.wrote_bytes == sum(sizes)
    expected = b"".join(
        encode_record(record, 40 + number, result.batch_offsets[number], 5)
        for number, record in enumerate(records)
    )
    assert log.read(FILE, FILE) == expected
    assert log.max_offset == FILE + sum(sizes)


def test_a_batch_of_one_is_a_message() -> None:
    log = open_log(MemoryDisk())
    assert log.append_batch(message(), items_of(message()), 3).batch_offsets == ()
    assert [head.queue_offset for _, head in log.scan(0)] == [3]


@pytest.mark.parametrize(
    ("record", "status"),
    [
        (message(b"x" * 1001), PutMessageStatus.MESSAGE_ILLEGAL),
        (message(b"x" * 1000), PutMessageStatus.PUT_OK),
        (message(properties=b"k\x01" + b"v" * 32765), PutMessageStatus.MESSAGE_ILLEGAL),
        (message(properties=b"k\x01" + b"v" * 32766), PutMessageStatus.PROPERTIES_SIZE_EXCEEDED),
    ],
)
def test_messages_beyond_their_limits_are_refused(
    record: MessageRecord, status: PutMessageStatus
) -> None:
    """The third fits its length field and no file of this log."""
    log = open_log(MemoryDisk(), max_message_size=1000)
    assert log.append(record, 0).status is status
    assert log.append_batch(record, items_of(record), 0).status is status
    assert log.append(message(b"next"), 0).status is PutMessageStatus.PUT_OK


def test_an_empty_or_too_large_batch_is_refused_whole() -> None:
    log = open_log(MemoryDisk(), max_message_size=1000)
    assert log.append_batch(message(), [], 0).status is PutMessageStatus.MESSAGE_ILLEGAL
    items = items_of(message(b"x" * 501), message(b"x" * 500))
    refused = log.append_batch(message(), items, 0)
    assert refused.status is PutMessageStatus.MESSAGE_ILLEGAL
    assert log.max_offset == 0


def test_the_size_limit_may_change_at_run_time() -> None:
    queue = MappedFileQueue(MemoryDisk(), "/log", FILE, ImmediatePool())
    queue.open_for_append()
    config = MessageStoreConfig(max_message_size=10)
    log = CommitLog(queue, Clock(), config)
    assert log.append(message(b"x" * 11), 0).status is PutMessageStatus.MESSAGE_ILLEGAL
    config.max_message_size = 11
    assert log.append(message(b"x" * 11), 0).status is PutMessageStatus.PUT_OK


# --------------------------------------------------------------------------- refusals


def test_flow_control_is_asked_for_while_the_pool_is_behind() -> None:
    pool = ManualPool()
    log = open_log(MemoryDisk(), pool=pool, chunk_bytes=4096)
    assert log.append(of_size(4000), 0).is_ok
    refused = log.append(of_size(4000), 1)
    assert refused.status is PutMessageStatus.OS_PAGE_CACHE_BUSY
    assert not refused.is_ok
    pool.run()
    assert log.append(of_size(4000), 1).physical_offset == 4000


def test_at_a_files_end_nothing_is_left_half_done_while_the_next_file_is_missing() -> None:
    pool = ManualPool()
    log = open_log(MemoryDisk(), pool=pool)
    log.append(of_size(FILE - 500), 0)
    for _ in range(3):
        assert log.append(of_size(1000), 1).status is PutMessageStatus.OS_PAGE_CACHE_BUSY
    pool.run()
    assert log.append(of_size(1000), 1).physical_offset == FILE
    assert [offset for offset, _ in log.scan(0)] == [0, FILE]


def test_a_full_disk_refuses_writes_keeps_reads_and_recovers() -> None:
    disk = MemoryDisk(capacity_bytes=3 * 4096)
    log = open_log(disk, chunk_bytes=4096)
    taken: list[int] = []
    while (result := log.append(of_size(1000), len(taken))).is_ok:
        taken.append(result.physical_offset)
    assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert taken == [number * 1000 for number in range(12)]
    assert [offset for offset, _ in log.scan(0)] == taken
    disk.capacity_bytes = 1 << 30
    assert log.append(of_size(1000), 12).physical_offset == 12000
    assert len(list(log.scan(0))) == 13


def test_another_failure_to_make_a_file_is_told_apart() -> None:
    disk = MemoryDisk()
    disk.sync_error = OSError(errno.EIO, "I/O error")
    log = open_log(disk)
    assert log.append(message(), 0).status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED


def test_a_read_only_log_refuses_every_kind_of_append() -> None:
    log = open_log(MemoryDisk())
    log.append(message(), 0)
    end = log.max_offset
    log.refuse_writes("sync failed")
    assert log.append(message(), 1).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert (
        log.append_batch(message(), items_of(message()), 1).status
        is PutMessageStatus.SERVICE_NOT_AVAILABLE
    )
    assert not log.append_raw(end, b"x")
    assert log.max_offset == end
    assert len(list(log.scan(0))) == 1


# --------------------------------------------------------------------------- replicated bytes


def test_raw_bytes_make_the_same_log() -> None:
    source = open_log(MemoryDisk())
    for number in range(60):
        source.append(of_size(900 + number), number)
    disk = MemoryDisk()
    copy = open_log(disk)
    while copy.max_offset < source.max_offset:
        offset = copy.max_offset
        assert copy.append_raw(offset, source.read(offset, 5000))
    assert [offset for offset, _ in copy.scan(0)] == [offset for offset, _ in source.scan(0)]
    assert not copy.append_raw(copy.max_offset + 1, b"x")
    assert not copy.append_raw(copy.max_offset, bytes(FILE + 1))


# --------------------------------------------------------------------------- scan


def test_scan_gives_every_record_across_files_and_stops_at_the_end() -> None:
    log = open_log(MemoryDisk())
    results = [log.append(of_size(100 + 37 * number % 3000), number) for number in range(200)]
    scan = log.scan(0, check_crc=True)
    found = [(offset, head.queue_offset, head.total_size) for offset, head in scan]
    assert found == [
        (result.physical_offset, number, result.wrote_bytes)
        for number, result in enumerate(results)
    ]
    assert (scan.offset, scan.damage) == (log.max_offset, None)
    middle = results[100].physical_offset
    assert next(log.scan(middle))[0] == middle


def test_scan_reads_records_larger_than_its_step() -> None:
    log = open_log(MemoryDisk(), file_size=16 * MIB)
    bodies = [b"a" * 100, b"b" * (3 * MIB), b"c" * (SCAN_BYTES - 300), b"d" * 4_000_000, b"e"]
    for number, body in enumerate(bodies):
        log.append(message(body), number)
    scan = log.scan(0, check_crc=True)
    found = [decode_record(scan.record_bytes(offset, head))[0].body for offset, head in scan]
    assert found == bodies


def test_scan_stops_before_damage_and_says_where() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for number in range(5):
        log.append(message(b"x" * 300), number)
    victim = [offset for offset, _ in log.scan(0)][3]
    disk.write_at(log.queue.files[0].path, victim + 100, b"\xff")
    scan = log.scan(0, check_crc=True)
    assert len(list(scan)) == 3
    assert scan.offset == victim
    assert scan.damage is not None
    assert f"at offset {victim}: body crc" in scan.damage


def test_scan_stops_at_a_record_that_belongs_elsewhere() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    log.append(message(), 0)
    stale = encode_record(message(b"stale"), 1, 4711, 0)
    disk.write_at(log.queue.files[0].path, log.max_offset, stale)
    log.queue.files[0].position += len(stale)
    scan = log.scan(0)
    assert len(list(scan)) == 1
    assert scan.damage is not None
    assert "4711" in scan.damage


@given(st.data())
def test_whatever_is_cut_off_scan_finds_the_whole_records(data: st.DataObject) -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    properties = b"a\x01b\x02"
    bodies = data.draw(st.lists(st.integers(1, 3000), min_size=1, max_size=30))
    results = [log.append(message(b"x" * body, properties=properties), 0) for body in bodies]
    ends = [result.physical_offset + result.wrote_bytes for result in results]
    cut = data.draw(st.integers(0, log.max_offset))
    log.queue.close()
    reopened = open_log(disk, end=cut)
    # As after a crash: nobody knows the end, the files count as full.
    for file in reopened.queue.files:
        file.position = file.size
    scan = reopened.scan(0, check_crc=True)
    found = [offset + head.total_size for offset, head in scan]
    # Nothing in a record protects its properties (officially neither, but for an option of 5.x).
    assert found == [end for end in ends if end - len(properties) <= cut]
    assert scan.offset <= cut + len(properties) or scan.offset % FILE == 0


# --------------------------------------------------------------------------- the official broker's bytes


def scan_official(commitlog: Path) -> LogScan:
    """Walk over the log of an unpacked store."""
    queue = MappedFileQueue(RealDisk(), str(commitlog), MIB, ImmediatePool())
    queue.load()
    return LogScan(queue, 0, check_crc=True)


@pytest.mark.parametrize("version", GOLDEN)
def test_appending_the_official_brokers_messages_again_gives_its_files(
    version: str, unpack_store: Callable[[str], Path]
) -> None:
    official = unpack_store(version) / "commitlog"
    names = sorted(path.name for path in official.iterdir())
    scan = scan_official(official)
    disk, clock = MemoryDisk(), Clock()
    ours = open_log(disk, file_size=MIB, clock=clock)
    for offset, head in scan:
        stored, _ = decode_record(scan.record_bytes(offset, head))
        clock.rightNow = stored.store_timestamp / 1000 + 0.0001
        result = ours.append(record_of(stored), stored.queue_offset)
        assert (result.physical_offset, result.wrote_bytes) == (offset, head.total_size)
    assert scan.damage is None
    assert ours.max_offset == scan.offset
    for name in names[: len(ours.queue.files)]:
        assert disk.read_file(f"/log/{name}") == (official / name).read_bytes(), name
    assert ours.queue.files[-1].path.endswith(file_name(scan.offset // MIB * MIB))


@pytest.mark.parametrize("line", ["4.9.7", "5.4.0"])
def test_a_torn_official_log_ends_before_the_torn_record(
    line: str, unpack_store: Callable[[str], Path]
) -> None:
    whole = [offset for offset, _ in scan_official(unpack_store(f"{line}-crashed") / "commitlog")]
    torn = scan_official(unpack_store(f"{line}-torn") / "commitlog")
    assert [offset for offset, _ in torn] == whole[:-1]
    assert torn.offset == whole[-1]
    assert torn.damage is not None
