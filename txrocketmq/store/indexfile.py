"""What is in one index file? Hash slots with chains of entries; and how a key becomes a hash.

Stands for the official ``IndexFile`` and ``IndexHeader``; the layout is in `txrocketmq.codec.storefiles`.

Crash story: the pages of a file reach the disk in any order, so only a file that was synced as a whole can be trusted; see
`txrocketmq.store.index`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from operator import mul
from struct import Struct

from txrocketmq import native
from txrocketmq.codec.storefiles import (
    INDEX_ENTRY,
    INDEX_ENTRY_BYTES,
    INDEX_HEADER,
    INDEX_HEADER_BYTES,
    INDEX_SLOT,
    INDEX_SLOT_BYTES,
)
from txrocketmq.interfaces import IDisk, IMapping
from txrocketmq.model.javahash import index_hash, java_hash

TAG_TYPE = "T"
"""The kind of key by which a query asks for a tag (official ``INDEX_TAG_TYPE``)."""

_MAX_INT = 0x7FFFFFFF

INDEX_ITEM = Struct("<iqq")
"""An entry that has no place yet: key hash, physical offset, store time in ms."""

#: Compiled: the hash of an ASCII key; the entries of one message. None for what the pure code has to do.
_index_hash, _put_keys = (
    (None, None)
    if native.functions is None
    else (native.functions.index_hash, native.functions.put_keys)
)


def index_file_name(now_ms: int) -> str:
    """The official name for a file made now, in local time."""
    local = time.localtime(now_ms // 1000)
    return time.strftime("%Y%m%d%H%M%S", local) + f"{now_ms % 1000:03d}"


def tag_index_hash(topic: str, tag: str) -> int:
    """The index hash of a tag: tags are kept apart from keys by a letter before them."""
    # Few tags make up all traffic; long ones are odd, and must not use up memory.
    return _known_tag_hash(topic, tag) if len(tag) <= _KNOWN_TAG else _tag_hash(topic, tag)


_KNOWN_TAG = 256


def _tag_hash(topic: str, tag: str) -> int:
    return index_hash(topic, f"{TAG_TYPE}#{tag}")


_known_tag_hash = lru_cache(maxsize=4096)(_tag_hash)


class KeyHasher:
    """The index hash of ``topic#key``, quicker for keys that begin alike.

    Unique ids of one producer do: 20 characters are its own, the next 8 change each millisecond, the last 4 are a counter.
    """

    _OWN = 20
    _MAX_HEADS = 4096
    _WEIGHTS = tuple(
        tuple(pow(31, power, 1 << 32) for power in range(length - 1, -1, -1))
        for length in range(129)
    )

    def __init__(self) -> None:
        # What the text up to the counter adds to the hash; and the hash of what belongs to one producer.
        self._heads: dict[str, int] = {}
        self._owners: dict[str, int] = {}

    def hash(self, topic: str, key: str) -> int:
        """What `index_hash` gives."""
        if _index_hash is not None:
            found: int | None = _index_hash(topic, key)
            if found is not None:
                return found
        head = f"{topic}#{key[:-4]}"
        start = self._heads.get(head)
        if start is None:
            start = self._start(topic, key, head)
        counter = key[-4:]
        if start < 0 or not counter.isascii():
            return index_hash(topic, key)
        first, second, third, last = counter.encode("ascii")
        value = (start + 29791 * first + 961 * second + 31 * third + last) & 0xFFFFFFFF
        if value >= 0x80000000:
            value = 0x100000000 - value
            if value == 0x80000000:
                return 0
        return value

    def _start(self, topic: str, key: str, head: str) -> int:
        """What everything before the last four characters adds to the hash; -1 when the key is none for this."""
        rest = key[self._OWN : -4]
        if not rest or len(rest) > 128 or not key.isascii():
            return -1
        owner = f"{topic}#{key[: self._OWN]}"
        value = self._owners.get(owner)
        if value is None:
            value = _remember(self._owners, owner, java_hash(owner) & 0xFFFFFFFF)
        weights = self._WEIGHTS[len(rest)]
        value = value * 31 * weights[0] + sum(map(mul, rest.encode("ascii"), weights))
        return _remember(self._heads, head, (value & 0xFFFFFFFF) * 923521)


def _remember(known: dict[str, int], text: str, value: int) -> int:
    if len(known) >= KeyHasher._MAX_HEADS:
        known.clear()
    known[text] = value
    return value


def put_items(
    buffer: memoryview, items: bytes, start: int, number: int, limit: int, slots: int, begin_ms: int
) -> tuple[int, int]:
    """Put packed items from the start-th on as entries from a number on, which is below the limit, up to the limit.

    :param begin_ms: time of the file's first entry.
    :returns: how many entries were put, and how many slots were empty before. The header is the caller's.
    """
    if _compiled is not None:
        found: tuple[int, int] | None = _compiled(
            buffer, items, start, number, limit, slots, begin_ms
        )
        if found is not None:
            return found
    return put_items_pure(buffer, items, start, number, limit, slots, begin_ms)


def put_items_pure(
    buffer: memoryview, items: bytes, start: int, number: int, limit: int, slots: int, begin_ms: int
) -> tuple[int, int]:
    """As `put_items`, in Python."""
    read_slot, write_slot = INDEX_SLOT.unpack_from, INDEX_SLOT.pack_into
    pack, first = INDEX_ENTRY.pack, number
    parts, used = [], 0
    stop = start + limit - number
    for key_hash, offset, timestamp_ms in INDEX_ITEM.iter_unpack(
        memoryview(items)[start * INDEX_ITEM.size : stop * INDEX_ITEM.size]
    ):
        slot_at = INDEX_HEADER_BYTES + key_hash % slots * INDEX_SLOT_BYTES
        (older,) = read_slot(buffer, slot_at)
        if older <= 0 or older > number:
            older = 0
            used += 1
        seconds = (timestamp_ms - begin_ms) // 1000 if begin_ms > 0 else 0
        if not 0 <= seconds <= _MAX_INT:
            seconds = 0 if seconds < 0 else _MAX_INT
        parts.append(pack(key_hash, offset, seconds, older))
        write_slot(buffer, slot_at, number)
        number += 1
    at = INDEX_HEADER_BYTES + slots * INDEX_SLOT_BYTES + first * INDEX_ENTRY_BYTES
    buffer[at : at + len(parts) * INDEX_ENTRY_BYTES] = b"".join(parts)
    return len(parts), used


_compiled = None if native.functions is None else getattr(native.functions, "put_index", None)


class IndexFile:
    """One index file.

    :ivar count: number of the next entry; entry 0 is never used.
    :ivar put_limit: entries from this number on cannot be written now: the file is full or their blocks are missing.
    :ivar mapping: the `IMapping`, None while the file is not mapped.
    """

    __slots__ = (
        "_buffer",
        "_entries_at",
        "begin_offset",
        "begin_timestamp_ms",
        "count",
        "end_offset",
        "end_timestamp_ms",
        "mapping",
        "max_entries",
        "path",
        "put_limit",
        "slots",
        "slots_used",
    )

    def __init__(self, path: str, slots: int, max_entries: int) -> None:
        self.path = path
        self.slots = slots
        self.max_entries = max_entries
        self._entries_at = INDEX_HEADER_BYTES + slots * INDEX_SLOT_BYTES
        self._buffer = memoryview(b"")
        self.mapping: IMapping | None = None
        self.put_limit = 0
        self.begin_timestamp_ms = self.end_timestamp_ms = 0
        self.begin_offset = self.end_offset = 0
        self.slots_used = 0
        self.count = 1

    @property
    def size(self) -> int:
        """The file's length in bytes."""
        return self._entries_at + self.max_entries * INDEX_ENTRY_BYTES

    @property
    def is_full(self) -> bool:
        """Whether no entry can be added any more."""
        return self.count >= self.max_entries

    def load_header(self, data: bytes) -> None:
        """Take over what the file's first bytes say."""
        (
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_offset,
            self.end_offset,
            self.slots_used,
            count,
        ) = INDEX_HEADER.unpack_from(data)
        self.count = max(count, 1)

    def is_sound(self, disk: IDisk) -> bool:
        """Whether header and entries agree (start-up only): the numbers are possible, and the first and last entry are the
        messages that the header names."""
        if not (
            1 <= self.count <= self.max_entries
            and 0 <= self.slots_used < self.count
            and self.begin_offset <= self.end_offset
        ):
            return False
        if self.count == 1:
            return True
        for number, offset in ((1, self.begin_offset), (self.count - 1, self.end_offset)):
            position = self._entries_at + number * INDEX_ENTRY_BYTES
            data = disk.read_at(self.path, position, INDEX_ENTRY_BYTES)
            if INDEX_ENTRY.unpack(data)[1] != offset:
                return False
        return True

    def follow(self, older: IndexFile) -> None:
        """Begin where a full file ended, as officially, until the first entry says better."""
        self.begin_offset = self.end_offset = older.end_offset
        self.begin_timestamp_ms = self.end_timestamp_ms = older.end_timestamp_ms
        self.write_header()

    def attach(self, mapping: IMapping) -> None:
        """Take a mapping of this file."""
        self.mapping = mapping
        self._buffer = mapping.buffer
        self.blocks_grew()

    def blocks_grew(self) -> None:
        """Take note of blocks that were allocated."""
        if self.mapping is not None:
            ready = (self.mapping.allocated_to() - self._entries_at) // INDEX_ENTRY_BYTES
            self.put_limit = max(0, min(ready, self.max_entries))

    def detach(self) -> IMapping | None:
        """Give the mapping away, to be closed."""
        mapping, self.mapping = self.mapping, None
        self._buffer = memoryview(b"")
        self.put_limit = 0
        return mapping

    def blocks_for(self, entries: int) -> int:
        """Length of the file's part that holds everything before this entry number."""
        return min(self._entries_at + entries * INDEX_ENTRY_BYTES, self.size)

    def put(self, key_hash: int, physical_offset: int, store_timestamp_ms: int) -> bool:
        """Add an entry; False when the file is full or blocks are missing. Call `write_header` after the last of them."""
        count = self.count
        if count >= self.put_limit:
            return False
        buffer = self._buffer
        slot_at = INDEX_HEADER_BYTES + key_hash % self.slots * INDEX_SLOT_BYTES
        (older,) = INDEX_SLOT.unpack_from(buffer, slot_at)
        if older <= 0 or older > count:
            older = 0
            self.slots_used += 1
        if self.begin_timestamp_ms <= 0:
            seconds = 0
        else:
            seconds = (store_timestamp_ms - self.begin_timestamp_ms) // 1000
            if not 0 <= seconds <= _MAX_INT:
                seconds = 0 if seconds < 0 else _MAX_INT
        INDEX_ENTRY.pack_into(
            buffer,
            self._entries_at + count * INDEX_ENTRY_BYTES,
            key_hash,
            physical_offset,
            seconds,
            older,
        )
        INDEX_SLOT.pack_into(buffer, slot_at, count)
        if count <= 1:
            self.begin_offset = physical_offset
            self.begin_timestamp_ms = store_timestamp_ms
        self.count = count + 1
        self.end_offset = physical_offset
        self.end_timestamp_ms = store_timestamp_ms
        return True

    def put_message(
        self,
        topic: str,
        uniq_key: str | None,
        keys: str | None,
        tag_hash: int,
        physical_offset: int,
        store_timestamp_ms: int,
    ) -> bool:
        """Add all entries of a message, as `txrocketmq.store.index.IndexService.put_keys` says, and write the header; False where that
        has to be done one by one: nothing was added."""
        if _put_keys is None:
            return False
        found = _put_keys(
            self._buffer,
            self.slots,
            self.count,
            self.put_limit,
            self.slots_used,
            self.begin_offset,
            self.begin_timestamp_ms,
            topic,
            uniq_key,
            keys,
            tag_hash,
            physical_offset,
            store_timestamp_ms,
        )
        if found is None:
            return False
        self.count, self.slots_used = found
        self.end_offset = physical_offset
        self.end_timestamp_ms = store_timestamp_ms
        return True

    def put_many(self, entries: Sequence[tuple[int, int]], store_timestamp_ms: int) -> bool:
        """As `put` for each ``(key hash, physical offset)`` of one store time: all or none."""
        count = self.count
        if count <= 1 or not entries or count + len(entries) > self.put_limit:
            return not entries
        seconds = (store_timestamp_ms - self.begin_timestamp_ms) // 1000
        if not 0 <= seconds <= _MAX_INT:
            seconds = 0 if seconds < 0 else _MAX_INT
        buffer, slots = self._buffer, self.slots
        read_slot, write_slot = INDEX_SLOT.unpack_from, INDEX_SLOT.pack_into
        pack = INDEX_ENTRY.pack
        parts = []
        first = count
        for key_hash, physical_offset in entries:
            slot_at = INDEX_HEADER_BYTES + key_hash % slots * INDEX_SLOT_BYTES
            (older,) = read_slot(buffer, slot_at)
            if older <= 0 or older > count:
                older = 0
                self.slots_used += 1
            write_slot(buffer, slot_at, count)
            parts.append(pack(key_hash, physical_offset, seconds, older))
            count += 1
        start = self._entries_at + first * INDEX_ENTRY_BYTES
        buffer[start : start + len(parts) * INDEX_ENTRY_BYTES] = b"".join(parts)
        self.count = count
        self.end_offset = entries[-1][1]
        self.end_timestamp_ms = store_timestamp_ms
        return True

    def put_items(self, items: bytes, start: int) -> int:
        """As `put` for packed items (`INDEX_ITEM`) from the start-th on, as many as there is room for; how many."""
        count = self.count
        if count <= 1:
            return int(self.put(*INDEX_ITEM.unpack_from(items, start * INDEX_ITEM.size)))
        if count >= self.put_limit:
            return 0
        taken, used = put_items(
            self._buffer, items, start, count, self.put_limit, self.slots, self.begin_timestamp_ms
        )
        self.count = count + taken
        self.slots_used += used
        _, self.end_offset, self.end_timestamp_ms = INDEX_ITEM.unpack_from(
            items, (start + taken - 1) * INDEX_ITEM.size
        )
        return taken

    def write_header(self) -> None:
        """Let the file say what it holds; due after all entries of a message were added."""
        INDEX_HEADER.pack_into(
            self._buffer,
            0,
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_offset,
            self.end_offset,
            self.slots_used,
            self.count,
        )

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether the file may hold entries of this time range."""
        return begin_ms <= self.end_timestamp_ms and end_ms >= self.begin_timestamp_ms

    def select(
        self, key_hash: int, max_count: int, begin_ms: int, end_ms: int, found: list[int]
    ) -> None:
        """Add the physical offsets of a key, newest first, to ``found`` until it has ``max_count``."""
        buffer = self._buffer
        (number,) = INDEX_SLOT.unpack_from(
            buffer, INDEX_HEADER_BYTES + key_hash % self.slots * INDEX_SLOT_BYTES
        )
        if number > self.count:
            return
        while number > 0 and len(found) < max_count:
            entry_hash, physical_offset, seconds, older = INDEX_ENTRY.unpack_from(
                buffer, self._entries_at + number * INDEX_ENTRY_BYTES
            )
            if seconds < 0:
                return
            entry_ms = self.begin_timestamp_ms + seconds * 1000
            if entry_hash == key_hash and begin_ms <= entry_ms <= end_ms:
                found.append(physical_offset)
            # A chain goes to older entries only: anything else is damage, and could go round in circles.
            if entry_ms < begin_ms or older >= number:
                return
            number = older
