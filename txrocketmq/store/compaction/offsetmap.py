"""Which queue offset did a key have last? In a table of fixed size, whatever the number of keys.

Stands for the official ``CompactionLog.OffsetMap``: 24 bytes for each key, the MD5 of its text and the offset. Where that one fails when it
is full, this one takes no more: whoever fills it stops there, and goes on from there in the next run.
"""

from __future__ import annotations

from hashlib import md5
from struct import Struct

_ENTRY = Struct(">16sq")
_OFFSET = Struct(">q")
_DIGEST_BYTES = 16
_EMPTY = bytes(_DIGEST_BYTES)
_LEAST_ENTRIES = 100


class OffsetMap:
    """The newest offset of each key.

    :param memory_bytes: what the table may take; it has room for 100 keys at least.
    :ivar last_offset: the offset that was put last; 0 before the first.
    """

    __slots__ = ("_count", "_most", "_slots", "_table", "last_offset")

    def __init__(self, memory_bytes: int) -> None:
        self._most = max(memory_bytes // _ENTRY.size * 3 // 4, _LEAST_ENTRIES)
        # A full table would be searched for long.
        self._slots = self._most * 4 // 3 + 1
        self._table = bytearray(self._slots * _ENTRY.size)
        self._count = 0
        self.last_offset = 0

    def _find(self, digest: bytes) -> int:
        """Position of a key's entry, or of the free one where it belongs."""
        table, size = self._table, _ENTRY.size
        slot = int.from_bytes(digest[:8], "big") % self._slots
        while True:
            position = slot * size
            found = table[position : position + _DIGEST_BYTES]
            if found in (digest, _EMPTY):
                return position
            slot = (slot + 1) % self._slots

    def put(self, key: str, offset: int) -> bool:
        """Note a key's offset, which is greater than all before; False when there is no room for another key."""
        digest = _digest(key)
        position = self._find(digest)
        if not any(self._table[position : position + _DIGEST_BYTES]):
            if self._count >= self._most:
                return False
            self._count += 1
        _ENTRY.pack_into(self._table, position, digest, offset)
        self.last_offset = offset
        return True

    def get(self, key: str) -> int:
        """The offset of a key, -1 when it was not put."""
        digest = _digest(key)
        position = self._find(digest)
        if self._table[position : position + _DIGEST_BYTES] != digest:
            return -1
        offset: int = _OFFSET.unpack_from(self._table, position + _DIGEST_BYTES)[0]
        return offset

    def __len__(self) -> int:
        return self._count


def _digest(key: str) -> bytes:
    return md5(key.encode(), usedforsecurity=False).digest()
