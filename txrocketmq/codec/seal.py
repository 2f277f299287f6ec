"""How does a record carry a checksum over all of itself? The last property, ``__CRC32#`` (5.x, ``enabledAppendPropCRC``).

Stands for ``MessageDecoder.createCrc32`` and what ``CommitLog`` does with it. The CRC in a record's head covers the body alone; this one
covers everything before the property.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import msgspec

from txrocketmq.codec.record import Buffer, encode_record, record_size
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import CRC32, without_property

#: What may be checked of each record: its body's checksum, its seal where it has one, that it has one.
CHECK_BODY, CHECK_SEAL, REQUIRE_SEAL = 1, 2, 4

SEAL_HEAD = f"{CRC32}\x01".encode()
"""What the property begins with."""
SEAL_BYTES = len(SEAL_HEAD) + 11
"""The last property of a sealed record: its name, ten digits, a separator."""


def seal(data: Buffer) -> bytes:
    """The property that says the CRC-32 of a record's bytes up to it; its digits begin with the lowest one, as officially."""
    digits = f"{crc32(data) & 0x7FFFFFFF:010d}"
    return b"%b%b\x02" % (SEAL_HEAD, digits[::-1].encode())


def with_room_for_seal(properties: bytes) -> bytes:
    """A message's properties with an empty seal behind them; one that a client wrote is dropped."""
    properties = without_property(properties, CRC32)
    if properties and properties[-1:] != b"\x02":
        properties += b"\x02"
    return properties + bytes(SEAL_BYTES)


def encode_sealed_record(
    record: MessageRecord, queue_offset: int, physical_offset: int, store_timestamp: int
) -> bytes:
    """As `encode_record`, sealed (``enabledAppendPropCRC``)."""
    roomy = msgspec.structs.replace(record, properties=with_room_for_seal(record.properties))
    data = memoryview(encode_record(roomy, queue_offset, physical_offset, store_timestamp))
    content = data[:-SEAL_BYTES]
    return b"".join((content, seal(content)))


def sealed_record_size(record: MessageRecord) -> int:
    """How many bytes `encode_sealed_record` makes of a record."""
    return record_size(record) + len(with_room_for_seal(record.properties)) - len(record.properties)


def seal_batch_records(data: bytes, starts: Sequence[int]) -> bytes:
    """Seal records that were encoded back to back with room for it.

    :param starts: where each begins, counted as the first one's is.
    """
    sealed = bytearray(data)
    positions = [start - starts[0] for start in starts]
    for start, end in zip(positions, (*positions[1:], len(data)), strict=True):
        content_end = end - SEAL_BYTES
        sealed[content_end:end] = seal(memoryview(data)[start:content_end])
    return bytes(sealed)


def seal_fault(record: Buffer, required: bool) -> str | None:
    """What is wrong with a whole record's seal; None when it is right, or there is none and none is required."""
    start = len(record) - SEAL_BYTES
    if bytes(record[start : start + len(SEAL_HEAD)]) != SEAL_HEAD:
        return "no checksum over the record" if required else None
    if bytes(record[start:]) == seal(memoryview(record)[:start]):
        return None
    return "the checksum over the record is not right"
