"""Is each record sealed with a checksum over all of it, as 5.x does with ``enabledAppendPropCRC``, and is a wrong one noticed?"""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest
from twisted.internet.task import Clock

from txrocketmq.codec.record import decode_record, decode_records, encode_batch, encode_record
from txrocketmq.codec.seal import SEAL_BYTES, encode_sealed_record, seal, seal_fault
from txrocketmq.errors import StoreError
from txrocketmq.model.message import MessageRecord
from txrocketmq.store.disk import RealDisk
from txrocketmq.store.inspect import StoreDirectory
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.results import GetMessageResult, PutMessageResult
from txrocketmq.store.results import PutMessageStatus as Put
from txrocketmq.store.verify import Verifier
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.store import open_memory_store, small_config

LOG = "/store/commitlog/00000000000000000000"


def message(number: int, properties: bytes = b"UNIQ_KEY\x01u\x02") -> MessageRecord:
    return MessageRecord(
        topic="T",
        queue_id=0,
        body=b"body %d" % number,
        properties=properties,
        uniq_key="u" if properties.startswith(b"UNIQ_KEY") else None,
    )


def opened(disk: object, root: str = "/store", **keys: object) -> MessageStore:
    clock = Clock()
    clock.advance(1_700_000_000)
    keys = {"enabled_append_prop_crc": True, **keys}
    return open_memory_store(disk, clock, config=small_config(root, **keys))  # type: ignore[arg-type]


def put(store: MessageStore, record: MessageRecord) -> PutMessageResult:
    result = store.put_message(record)
    assert isinstance(result, PutMessageResult)
    return result


def test_the_seal_is_ten_digits_from_the_lowest_one_on() -> None:
    record = encode_sealed_record(message(1), 7, 99, 1234)
    content = record[:-SEAL_BYTES]
    number = crc32(content) & 0x7FFFFFFF
    digits = "".join(reversed(str(number))).ljust(10, "0")
    assert record[-SEAL_BYTES:] == f"__CRC32#\x01{digits}\x02".encode()
    assert SEAL_BYTES == 20
    found, end = decode_record(record)
    assert end == len(record)
    assert found.properties == {"UNIQ_KEY": "u", "__CRC32#": digits}
    assert seal(b"") == b"__CRC32#\x010000000000\x02"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (b"a\x01b", b"a\x01b\x02"),
        (b"__CRC32#\x01123\x02a\x01b\x02", b"a\x01b\x02"),
        (b"a\x01b\x02__CRC32#\x010000000000\x02", b"a\x01b\x02"),
    ],
    ids=["none", "no-separator", "forged-first", "forged-last"],
)
def test_it_is_the_last_property_and_nobody_elses(before: bytes, after: bytes) -> None:
    record = encode_sealed_record(message(1, before), 0, 0, 1)
    properties = decode_record(record)[0].properties_text
    assert properties[:-SEAL_BYTES] == after
    assert seal_fault(record, True) is None


def test_a_record_that_changed_anywhere_is_noticed() -> None:
    record = encode_sealed_record(message(1), 0, 0, 1)
    for position in range(len(record)):
        changed = bytearray(record)
        changed[position] ^= 1
        assert seal_fault(changed, True) is not None, position
    plain = encode_record(message(1), 0, 0, 1)
    assert seal_fault(plain, False) is None
    assert seal_fault(plain, True) == "no checksum over the record"


def test_single_messages_and_batches_are_sealed_and_read_back() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    single = put(store, message(1))
    batch = MessageRecord(
        topic="T", queue_id=0, body=encode_batch([(0, b"x", b"k\x01v"), (0, b"y", b"")])
    )
    result = store.put_batch(batch)
    assert isinstance(result, PutMessageResult)
    found = store.get_message("T", 0, 0, 32, 1 << 20, None)
    assert isinstance(found, GetMessageResult)
    data = b"".join(found.records)
    assert len(data) == single.wrote_bytes + result.wrote_bytes
    messages = decode_records(data)
    assert [m.body for m in messages] == [b"body 1", b"x", b"y"]
    assert [set(m.properties) for m in messages] == [
        {"UNIQ_KEY", "__CRC32#"},
        {"k", "__CRC32#"},
        {"__CRC32#"},
    ]
    for m in messages:
        record = store.look_message_bytes(m.physical_offset, 0)
        assert record is not None
        assert seal_fault(record, True) is None


def test_records_at_a_files_end_are_sealed_too() -> None:
    disk = MemoryDisk()
    store = opened(disk, force_verify_prop_crc=True)
    for number in range(800):
        assert put(store, message(number)).is_ok
    assert store.max_physical_offset() > 64 * 1024
    disk.locked.clear()
    again = opened(disk, force_verify_prop_crc=True)
    assert again.max_offset("T", 0) == 800


def test_the_seal_needs_room_among_the_properties() -> None:
    store = opened(MemoryDisk())
    fits = b"a\x01" + b"x" * (32767 - SEAL_BYTES - 4) + b"\x02"
    assert put(store, message(1, fits)).status is Put.PUT_OK
    assert put(store, message(1, fits + b"xx")).status is Put.PROPERTIES_SIZE_EXCEEDED


def flip(disk: MemoryDisk, position: int) -> None:
    byte = disk.read_at(LOG, position, 1)
    disk.write_at(LOG, position, bytes((byte[0] ^ 1,)))


@pytest.mark.parametrize("force", [False, True])
def test_a_bad_property_at_the_end_is_cut_and_in_the_middle_is_damage(force: bool) -> None:
    disk = MemoryDisk()
    store = opened(disk, force_verify_prop_crc=force)
    results = [put(store, message(number)) for number in range(3)]
    disk.locked.clear()
    # The unique id of the last message: no length and no body tells.
    flip(disk, results[2].physical_offset + results[2].wrote_bytes - SEAL_BYTES - 2)
    again = opened(disk, force_verify_prop_crc=force)
    assert again.max_offset("T", 0) == 2
    assert again.recovery is not None
    assert "checksum over the record" in (again.recovery.damage or "")
    put(again, message(3))
    disk.locked.clear()
    flip(disk, results[0].wrote_bytes - SEAL_BYTES - 2)
    with pytest.raises(StoreError, match="checksum over the record is not right"):
        opened(disk, force_verify_prop_crc=force)


def test_records_from_before_are_kept_unless_the_seal_is_forced() -> None:
    disk = MemoryDisk()
    store = opened(disk, enabled_append_prop_crc=False)
    put(store, message(1))
    disk.locked.clear()
    store = opened(disk)
    assert store.max_offset("T", 0) == 1
    put(store, message(2))
    disk.locked.clear()
    with pytest.raises(StoreError, match="no checksum over the record"):
        opened(disk, force_verify_prop_crc=True)


def test_a_client_cannot_forge_damage() -> None:
    """What looks like a seal in a batch of a client is not stored, so that later it is not taken for a wrong one."""
    disk = MemoryDisk()
    store = opened(disk, enabled_append_prop_crc=False)
    forged = b"a\x01b\x02__CRC32#\x010000000000\x02"
    batch = MessageRecord(topic="T", queue_id=0, body=encode_batch([(0, b"x", forged)]))
    store.put_batch(batch)
    disk.locked.clear()
    again = opened(disk)
    found = again.get_message("T", 0, 0, 1, 1 << 20, None)
    assert isinstance(found, GetMessageResult)
    assert decode_records(found.records[0])[0].properties == {"a": "b"}


def test_verify_names_the_record(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = opened(RealDisk(), str(root))
    results = [put(store, message(number)) for number in range(3)]
    store.stop()
    said: list[str] = []
    assert Verifier(StoreDirectory(root), said.append).run() == 0
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    bad = results[1]
    # A born time that nothing else covers.
    data[bad.physical_offset + 45] ^= 1
    path.write_bytes(data)
    assert Verifier(StoreDirectory(root), said.append).run() == 1
    assert said == [
        f"log: the record at {bad.physical_offset}: the checksum over the record is not right"
    ]
