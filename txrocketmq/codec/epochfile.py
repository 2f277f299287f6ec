"""What does the epoch file of an auto-switch replica say? Text lines with a checksum over them.

Stands for ``CheckpointFile`` with the entries of ``EpochFileCache``::

    2                 how many entries follow
    773307083         CRC-32 of the entry lines, masked to 31 bits; 0 means that it is not checked
    7-7000            epoch and the physical offset at which it began, an entry a line
    8-8000

Each line ends with a line feed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from txrocketmq.errors import RecordError
from txrocketmq.model.javahash import crc32

_NOT_CHECKED = 0


class EpochEntry(NamedTuple):
    """One term of mastership: its number, and the physical offset in bytes of its first record."""

    epoch: int
    start_offset: int


def encode_epoch_file(entries: Sequence[EpochEntry]) -> bytes:
    """The file's bytes, as the official software writes them."""
    lines = "".join(f"{entry.epoch}-{entry.start_offset}\n" for entry in entries).encode()
    return b"%d\n%d\n%b" % (len(entries), crc32(lines), lines)


def decode_epoch_file(data: bytes) -> list[EpochEntry]:
    """Read the file's bytes.

    :raises RecordError: when the count, the checksum or a line is not what it should be.
    """
    try:
        count, checksum, *lines = data.decode("ascii").splitlines()
        expected_count, expected_crc32 = int(count), int(checksum)
        entries = [EpochEntry(*map(int, line.split("-"))) for line in lines]
    except (ValueError, TypeError) as error:
        raise RecordError(f"no epoch file: {error}") from error
    if len(entries) != expected_count:
        raise RecordError(f"epoch file of {expected_count} entries holds {len(entries)}")
    found = crc32("".join(f"{line}\n" for line in lines).encode())
    if expected_crc32 not in (_NOT_CHECKED, found):
        raise RecordError(f"epoch file: checksum {expected_crc32} is told, {found} is found")
    return entries
