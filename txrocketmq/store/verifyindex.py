"""Do the index files and the log agree? Each key of each record has its entry, each entry its key, each slot its chain.

A part of `txrocketmq.store.verify`. Entries lie in the order of the log, so one walk over both is enough. Lengths of records are believed
here, and their CRC is not looked at: whether the log is whole is said elsewhere.

Ordinary records take a short path; what is not as it should be there is looked at again with care.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from struct import Struct

from txrocketmq import native
from txrocketmq.codec.record import MAGIC_V1
from txrocketmq.codec.storefiles import INDEX_ENTRY, INDEX_ENTRY_BYTES
from txrocketmq.errors import StoreError
from txrocketmq.model import properties as props
from txrocketmq.model.flags import BORN_HOST_V6_FLAG, STORE_HOST_V6_FLAG
from txrocketmq.model.properties import MAX_LONG, parse_properties
from txrocketmq.store.blocks import BLOCK_BYTES, scan_block
from txrocketmq.store.indexfile import INDEX_ITEM, KeyHasher, tag_index_hash
from txrocketmq.store.inspect import IndexFileView, LogFault, LogRecord, StoreDirectory

_ROLLBACK = 0xC
_UNUSUAL = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG | _ROLLBACK

# Of a record with IPv4 hosts: size, magic, own offset, flags, store time, size of the body.
_HEAD = Struct(">ii20xqi16xq20xi")
_HEAD_BYTES = _HEAD.size
_KEY = Struct(">iq")
_STEP_BYTES = 64 * 1024 * 1024
_CACHED = 8192


class _Entries:
    """All entries at or behind the log's start, one after the other, with the checks that concern the index files alone."""

    def __init__(self, store: StoreDirectory, fault: Callable[[str], object]) -> None:
        self._paths = iter(store.index_paths())
        self._first = store.min_offset
        self._fault = fault
        self._newest_offset = -1
        self.count = 0
        self.name = ""
        #: The bytes of the present file, where its next entry lies, and where its entries end.
        self.data: bytes = b""
        self.position = self.end = 0
        self.next_file()

    def next_file(self) -> bool:
        """Go on with the next file that has entries; False when there is none."""
        for path in self._paths:
            try:
                file = IndexFileView(path)
            except StoreError as error:
                self._fault(str(error))
                continue
            self.name = path.name
            self._check(file)
            self.data = file.data  # type: ignore[assignment]
            self.position, self.end = file.entry_position(1), file.entry_position(file.count)
            while self.position < self.end and self._offset() < self._first:
                self.position += INDEX_ENTRY_BYTES
            if self.position < self.end:
                return True
        self.position = self.end = 0
        return False

    def _offset(self) -> int:
        offset: int = INDEX_ENTRY.unpack_from(self.data, self.position)[1]
        return offset

    def peek(self) -> tuple[int, int] | None:
        """Offset and key hash of the next entry, None at the end."""
        if self.position >= self.end and not self.next_file():
            return None
        key_hash, offset, _, _ = INDEX_ENTRY.unpack_from(self.data, self.position)
        return offset, key_hash

    def _check(self, file: IndexFileView) -> None:
        """Slots, their chains, and the order of the entries."""
        name, slots, first = self.name, file.slots, self._first
        newest = array("i", bytes(4 * slots))
        newest_offset = self._newest_offset
        units = memoryview(file.data)[file.entry_position(1) : file.entry_position(file.count)]
        number = 0
        for key_hash, offset, _, older in INDEX_ENTRY.iter_unpack(units):
            number += 1
            slot = key_hash % slots
            if older != newest[slot]:
                self._fault(
                    f"index {name}: entry {number} follows {older} in its slot, not {newest[slot]}"
                )
            newest[slot] = number
            if offset < newest_offset:
                self._fault(f"index {name}: entry {number} goes back to {offset}")
            elif offset >= first:
                newest_offset = offset
        self._newest_offset = newest_offset
        self.count += number
        found = file.newest_of_slots()
        if found == newest:
            return
        for slot, (is_first, should) in enumerate(zip(found, newest, strict=True)):
            if is_first != should:
                self._fault(f"index {name}: slot {slot} begins with {is_first}, not {should}")


class IndexVerifier:
    """One verification of the index of a directory.

    :ivar entries: how many entries were looked at.
    """

    def __init__(self, store: StoreDirectory, fault: Callable[[str], object]) -> None:
        self._store = store
        self._fault = fault
        self._entries = _Entries(store, fault)
        self._hash = KeyHasher().hash
        self._topics: dict[bytes, str] = {}
        self._tag_hashes: dict[tuple[bytes, bytes], int] = {}
        self._unindexed: list[int] = []

    @property
    def entries(self) -> int:
        """How many entries were looked at."""
        return self._entries.count

    def run(self) -> None:
        """Walk over the log and the index."""
        store = self._store
        at, newest_ms = store.min_offset, 0
        while True:
            at, newest_ms = self._go_over(at, newest_ms)
            found = store.look(at, check_crc=False)
            if isinstance(found, LogRecord):
                head = found.head
                self._check(at, head.topic, head.properties, head.sys_flag)
                newest_ms = head.store_timestamp
                at += head.total_size
            elif isinstance(found, int):
                at = found
            else:
                damage: LogFault | None = store.fault_at(at, newest_ms)
                if damage is None or damage.end is None:
                    break
                at = damage.end
        if self._unindexed:
            self._fault(
                f"index: lacks {len(self._unindexed)} messages that have keys, "
                f"from {self._unindexed[0]} to {self._unindexed[-1]}"
            )
        while (entry := self._entries.peek()) is not None:
            self._fault(f"index {self._entries.name}: points at {entry[0]}, where no record is")
            self._entries.position += INDEX_ENTRY_BYTES

    def _go_over(self, at: int, timestamp: int) -> tuple[int, int]:
        """Go over ordinary records in one file; where the first other one, or none, begins."""
        compiled = native.functions
        while compiled is not None:
            found = self._store.buffer_at(at)
            if found is None:
                return at, timestamp
            file, buffer = found
            position = at - file.base_offset
            block = scan_block(buffer, position, min(position + BLOCK_BYTES, file.size), at)
            entries = self._entries
            if not block.records or not compiled.same_entries(
                entries.data, entries.position, entries.end, block.entries
            ):
                # As when the index has no tags, or an index file ends: one by one.
                stop = file.base_offset + block.end if block.records else at + 1
                begin = at
                at, timestamp = self._quick(at, timestamp, stop)
                if at == begin:
                    break
                continue
            entries.position += len(block.entries) // INDEX_ITEM.size * INDEX_ENTRY_BYTES
            at, timestamp = file.base_offset + block.end, block.store_timestamp_ms
        return self._quick(at, timestamp)

    def _quick(self, at: int, timestamp: int, stop: int = MAX_LONG) -> tuple[int, int]:
        """Go over ordinary records in one file; where the first other one, or none, begins."""
        found = self._store.buffer_at(at)
        if found is None:
            return at, timestamp
        file, buffer = found
        base, size_of_file = file.base_offset, file.size
        position = at - base
        unpack, takes = _HEAD.unpack_from, self._takes
        while position + 91 <= size_of_file and base + position < stop:
            total, magic, offset, flags, stored, body_size = unpack(buffer, position)
            body_end = position + _HEAD_BYTES + body_size
            end = position + total
            if (
                magic != MAGIC_V1
                or flags & _UNUSUAL
                or offset != base + position
                or body_size < 0
                or end > size_of_file
                or body_end + 3 > end
            ):
                break
            topic_end = body_end + 1 + buffer[body_end]
            text = buffer[topic_end + 2 : end]
            if not takes(offset, buffer[body_end + 1 : topic_end], text):
                break
            timestamp = stored
            position = end
        return base + position, timestamp

    def _takes(self, offset: int, topic: bytes, text: bytes) -> bool:
        """Whether the next entries are those of an ordinary record: unique id, perhaps a tag, no keys."""
        start = text.find(b"UNIQ_KEY\x01")
        entries = self._entries
        at = entries.position
        if (
            start < 0
            or at >= entries.end
            or b"KEYS\x01" in text
            or (start and text[start - 1] != 2)
        ):
            return False
        stop = text.find(b"\x02", start)
        key = text[start + 9 : stop if stop >= 0 else None]
        name = self._topics.get(topic) or self._name(topic)
        key_hash = self._hash(name, key.decode("utf-8", "replace"))
        data = entries.data
        if data[at : at + 12] != _KEY.pack(key_hash, offset):
            return False
        at += INDEX_ENTRY_BYTES
        start = text.find(b"TAGS\x01")
        if start >= 0 and at < entries.end:
            stop = text.find(b"\x02", start)
            tag = text[start + 5 : stop if stop >= 0 else None]
            tag_hash = self._tag_hashes.get((topic, tag))
            if tag_hash is None:
                tag_hash = self._tag_hash(topic, tag)
            # Only 5.x indexes tags.
            if data[at : at + 12] == _KEY.pack(tag_hash, offset):
                at += INDEX_ENTRY_BYTES
        entries.position = at
        return True

    def _name(self, topic: bytes) -> str:
        if len(self._topics) > _CACHED:
            self._topics.clear()
        name = self._topics[topic] = topic.decode("utf-8", "replace")
        return name

    def _tag_hash(self, topic: bytes, tag: bytes) -> int:
        if len(self._tag_hashes) > _CACHED:
            self._tag_hashes.clear()
        found = tag_index_hash(topic.decode("utf-8", "replace"), tag.decode("utf-8", "replace"))
        self._tag_hashes[topic, tag] = found
        return found

    def _check(self, offset: int, topic: str, text: bytes, sys_flag: int) -> None:
        """Compare a record's keys with the index entries of its offset."""
        entries = self._entries
        while (entry := entries.peek()) is not None and entry[0] < offset:
            self._fault(f"index {entries.name}: points at {entry[0]}, where no record is")
            entries.position += INDEX_ENTRY_BYTES
        wanted, tag_hash = self._hashes(topic, parse_properties(text))
        if sys_flag & _ROLLBACK == _ROLLBACK:
            wanted = []
        while (entry := entries.peek()) is not None and entry[0] == offset:
            key_hash = entry[1]
            if key_hash in wanted:
                wanted.remove(key_hash)
            elif key_hash != tag_hash:
                self._fault(
                    f"index {entries.name}: the record at {offset} has no key of hash {key_hash}"
                )
            entries.position += INDEX_ENTRY_BYTES
        if wanted:
            self._unindexed.append(offset)

    def _hashes(self, topic: str, properties: dict[str, str]) -> tuple[list[int], int]:
        """Hashes that the index must have, and that of the tag, which 4.x does not index."""
        wanted = []
        uniq_key, keys = properties.get(props.UNIQ_KEY), properties.get(props.KEYS)
        tag = properties.get(props.TAGS)
        if uniq_key:
            wanted.append(self._hash(topic, uniq_key))
        if keys:
            wanted += [self._hash(topic, key) for key in keys.split(" ") if key]
        return wanted, tag_index_hash(topic, tag) if tag else -1
