"""Are bytes that are no record a torn end, or damage with good records behind it?

The official broker cuts its log at the first bytes that are not a record, whatever follows. Here a valid record behind them is
evidence of damage, unless the bytes look like writes that a power failure took away and nothing says that they ever reached
the device.

Crash story: the log is written once, from front to back, into files of zeros. The device takes it in sectors and in any order;
so what a power failure takes away are sectors that are zero still. Damage looks otherwise: no sector is zero, or it lies
before something that is known to have been on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from txrocketmq.codec.record import (
    BLANK_RECORD_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    RecordHead,
    scan_head,
)
from txrocketmq.codec.seal import CHECK_BODY, CHECK_SEAL, REQUIRE_SEAL, seal_fault
from txrocketmq.errors import RecordError
from txrocketmq.store.mapped import MappedFileQueue

#: The least that a device writes at once.
SECTOR_BYTES = 512

#: So many zeros at a sector's end are no chance: the sector is an older version, from before a record was appended to it.
STALE_ZEROS = 16

_PIECE_BYTES = 1024 * 1024
_START = Struct(">ii")
_INT = Struct(">i")
_MAGICS = frozenset((MAGIC_V1, MAGIC_V2))
_MAGIC_POSITION = 4

#: What both magics begin with.
_MAGIC_HEAD = _INT.pack(MAGIC_V1)[:3]


def find_record(
    queue: MappedFileQueue, offset: int, crc_checks: int = CHECK_BODY
) -> tuple[int, RecordHead] | None:
    """The first whole record at or behind an offset that says itself that it lies there; None when there is none.

    Blocks; holes are passed over, everything else is read.

    :param crc_checks: as for `LogScan`; bodies are always checked.
    """
    for base, data in _pieces(queue, offset):
        at = data.find(_MAGIC_HEAD)
        while at >= 0:
            start = base + at - _MAGIC_POSITION
            if start >= offset:
                head = _record_at(queue, start, crc_checks)
                if head is not None:
                    return start, head
            at = data.find(_MAGIC_HEAD, at + 1)
    return None


def _pieces(queue: MappedFileQueue, offset: int) -> Iterator[tuple[int, bytes]]:
    """All written bytes from an offset, in pieces that overlap by as much as a record's start."""
    while (position := queue.next_data(offset)) < queue.max_offset:
        # The file system counts in blocks: a record may begin before what it calls data.
        position = max(position - BLANK_RECORD_BYTES, offset)
        data = queue.read(position, _PIECE_BYTES)
        if not data:
            return
        yield position, data
        end = position + len(data)
        if end % queue.file_size == 0 or len(data) <= BLANK_RECORD_BYTES:
            offset = end
        else:
            offset = end - BLANK_RECORD_BYTES


def _record_at(queue: MappedFileQueue, offset: int, crc_checks: int) -> RecordHead | None:
    start = queue.read(offset, BLANK_RECORD_BYTES)
    if len(start) < BLANK_RECORD_BYTES:
        return None
    size, magic = _START.unpack(start)
    if magic not in _MAGICS or size < MIN_RECORD_BYTES:
        return None
    record = queue.read(offset, size)
    try:
        head = scan_head(record, check_crc=True)
    except RecordError:
        return None
    if crc_checks & CHECK_SEAL and seal_fault(record, bool(crc_checks & REQUIRE_SEAL)):
        return None
    return None if head is None or record_fault(offset, head) else head


def record_fault(offset: int, head: RecordHead) -> str | None:
    """What is wrong with a message record besides what its lengths and its CRC tell; None when nothing is."""
    if head.physical_offset != offset:
        return f"a record of offset {head.physical_offset} lies at {offset}"
    # The CRC covers the body alone: a tear behind it shows here. No legal topic has such a character.
    if "\0" in head.topic:
        return f"at offset {offset}: the topic was not written"
    position = offset + head.total_size - len(head.properties)
    if b"\0" in head.properties and has_stale_sector(head.properties, position):
        return f"at offset {offset}: the properties were not written"
    return None


def looks_lost(queue: MappedFileQueue, start: int, end: int) -> bool:
    """Whether bytes of the log look like writes that never reached the device: some sector between them is as it was before."""
    while start < end:
        data = queue.read(start, min(end - start, _PIECE_BYTES))
        if not data:
            # The rest of a file that ended before.
            return True
        if has_stale_sector(data, start):
            return True
        start += len(data)
    return False


def has_stale_sector(data: bytes, position: int) -> bool:
    """Whether the share that some sector has of the data is zero, or ends with zeros up to the sector's end.

    :param position: where the data lies in its file (or in the log: files are whole sectors).
    """
    start = 0
    while start < len(data):
        end = start + SECTOR_BYTES - (position + start) % SECTOR_BYTES
        piece = data[start:end]
        zeros = len(piece) - len(piece.rstrip(b"\0"))
        if zeros == len(piece) or (zeros >= STALE_ZEROS and end <= len(data)):
            return True
        start = end
    return False
