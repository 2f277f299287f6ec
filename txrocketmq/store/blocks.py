"""What does a stretch of the log mean for queues and index? Found in one pass, for many records at once.

A replica, a start and ``store verify`` go over megabytes of records of which nearly all are alike: one plain message, the next one of its
queue. Of such records this makes what is derived of them: the units of each queue, and the index entries in the order of the log. It stops
before the first record that is not like that, or is none, and leaves it to `txrocketmq.codec.record.scan_head` and `txrocketmq.store.reput`:
what a queue's first message, a batch, a transaction, a light queue or a delayed message is, and what a fault is, is known there alone.

`scan_block` has a compiled twin (``native/blocks.c``), which is some twenty times as quick; a test holds both equal, on good and on broken bytes.
Neither gives the interpreter lock up: a piece takes less than winning the lock back may.

Crash story: nothing is written here.
"""

from __future__ import annotations

from collections.abc import Callable
from mmap import mmap
from struct import Struct
from typing import NamedTuple

from txrocketmq import native
from txrocketmq.codec.record import (
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_BYTES,
    MAX_TOPIC_BYTES_V1,
    MIN_RECORD_BYTES,
    Buffer,
)
from txrocketmq.codec.seal import SEAL_HEAD
from txrocketmq.codec.storefiles import CQ_UNIT
from txrocketmq.model import properties as props
from txrocketmq.model.flags import BORN_HOST_V6_FLAG, INNER_BATCH_FLAG, STORE_HOST_V6_FLAG
from txrocketmq.model.javahash import tags_code
from txrocketmq.store.consumequeue import SCHEDULE_TOPIC
from txrocketmq.store.indexfile import INDEX_ITEM, KeyHasher, tag_index_hash

Crc32 = Callable[[memoryview], int]

BLOCK_BYTES = 1024 * 1024
"""As much of a log is worth one block where nobody else waits meanwhile."""

MAX_RUNS = 256
"""Queues of one block; another one ends it."""

_START = Struct(">iiiiiqqi")
_TIMES = Struct(">q")
_INT = Struct(">i")
_SHORT = Struct(">h")

_SPECIAL = INNER_BATCH_FLAG | 0xC
_SCHEDULE = SCHEDULE_TOPIC.encode()
_LIGHT = f"{props.INNER_MULTI_QUEUE_OFFSET}\x01".encode()
_TAGS = f"{props.TAGS}\x01".encode()
_KEYS = f"{props.KEYS}\x01".encode()
_UNIQ_KEY = f"{props.UNIQ_KEY}\x01".encode()


class Run(NamedTuple):
    """What a block has for one queue.

    :ivar first: logical offset of the first message; the others follow on it.
    :ivar units: their units of the consume queue.
    :ivar end_offset: end of the last one's record in the log.
    """

    topic: str
    queue_id: int
    first: int
    units: bytes
    end_offset: int


class Block(NamedTuple):
    """What a stretch of the log means.

    :ivar end: position behind its last record.
    :ivar records: how many there are; 0 where the first one is not plain.
    :ivar runs: each queue's part, in the order in which they come first; of `Run`'s fields.
    :ivar entries: index entries, `INDEX_ITEM` each, in the order of the log.
    :ivar last_offset: physical offset of the last record.
    :ivar store_timestamp_ms: its store time.
    """

    end: int
    records: int
    runs: list[Run]
    entries: bytes
    last_offset: int
    store_timestamp_ms: int


def scan_block(
    buffer: Buffer | mmap, position: int, limit: int, offset: int, crc: Crc32 | None = None
) -> Block:
    """The plain records from a position on.

    :param limit: they end there or before; at most the buffer's length.
    :param offset: physical offset of the byte at the position.
    :param crc: computes CRC-32; bodies are compared with it then, and a record that has a seal ends the block.
    """
    if _compiled is not None:
        found = _compiled(buffer, position, limit, offset, crc)
        if found is not None:
            return Block(*found)
    return scan_block_pure(buffer, position, limit, offset, crc)


class _Growing:
    """A `Run` while it is found."""

    __slots__ = ("end_offset", "first", "next", "topic", "units")

    def __init__(self, topic: str, first: int) -> None:
        self.topic = topic
        self.first = self.next = first
        self.units: list[bytes] = []
        self.end_offset = 0


_hasher = KeyHasher()


def scan_block_pure(
    buffer: Buffer | mmap, position: int, limit: int, offset: int, crc: Crc32 | None = None
) -> Block:
    """As `scan_block`, in Python."""
    runs: dict[tuple[bytes, int], _Growing] = {}
    items: list[bytes] = []
    unpack, pack_unit, pack_item = _START.unpack_from, CQ_UNIT.pack, INDEX_ITEM.pack
    hash_of = _hasher.hash
    limit = min(limit, len(buffer)) if min(position, offset) >= 0 else 0
    records, last_offset, stored = 0, 0, 0
    with memoryview(buffer) as view:
        while position <= limit - MIN_RECORD_BYTES:
            size, magic, body_crc, queue_id, _, index, told, flags = unpack(view, position)
            if told != offset or not 0 < index < props.MAX_LONG or flags & _SPECIAL:
                break
            end = position + size
            if offset > props.MAX_LONG - size:
                break
            tail = _tail_of(view, position, end, limit, magic, flags)
            if tail is None:
                break
            body, body_end, time_at, topic, text = tail
            key = topic, queue_id
            run = runs.get(key)
            if run is None:
                if len(runs) >= MAX_RUNS or not _is_plain_name(topic):
                    break
            elif run.next != index:
                break
            found = _keys_of(text)
            if found is None or (crc is not None and SEAL_HEAD in text):
                break
            if crc is not None and body_end > body:
                with view[body:body_end] as piece:
                    if crc(piece) & 0x7FFFFFFF != body_crc:
                        break
            if run is None:
                run = runs[key] = _Growing(topic.decode("ascii"), index)
            (stored,) = _TIMES.unpack_from(view, time_at)
            uniq_key, keys, tag = found
            name = run.topic
            if uniq_key:
                items.append(pack_item(hash_of(name, uniq_key), offset, stored))
            if keys:
                items += [
                    pack_item(hash_of(name, word), offset, stored)
                    for word in keys.split(" ")
                    if word
                ]
            if tag:
                items.append(pack_item(tag_index_hash(name, tag), offset, stored))
            run.units.append(pack_unit(offset, size, tags_code(tag)))
            run.next = index + 1
            last_offset = offset
            offset += size
            run.end_offset = offset
            position = end
            records += 1
    found_runs = [
        Run(run.topic, queue_id, run.first, b"".join(run.units), run.end_offset)
        for (_, queue_id), run in runs.items()
    ]
    return Block(position, records, found_runs, b"".join(items), last_offset, stored)


def _tail_of(
    view: memoryview, position: int, end: int, limit: int, magic: int, flags: int
) -> tuple[int, int, int, bytes, bytes] | None:
    """Where a record's body begins and ends and where its store time lies, its topic, its properties; None unless all lengths
    add up to its size."""
    if magic not in (MAGIC_V1, MAGIC_V2) or not position + MIN_RECORD_BYTES <= end <= limit:
        return None
    time_at = position + (68 if flags & BORN_HOST_V6_FLAG else 56)
    body = time_at + (44 if flags & STORE_HOST_V6_FLAG else 32)
    if body > end:
        return None
    (body_size,) = _INT.unpack_from(view, body - 4)
    body_end = body + body_size
    if body_size < 0 or body_end + 3 > end:
        return None
    topic_start = body_end + 1
    topic_size = view[body_end]
    if magic == MAGIC_V2:
        topic_start += 1
        topic_size = topic_size << 8 | view[body_end + 1]
    if topic_size > (MAX_TOPIC_BYTES_V1 if magic == MAGIC_V1 else MAX_TOPIC_BYTES):
        return None
    topic_end = topic_start + topic_size
    if topic_end + 2 > end or _SHORT.unpack_from(view, topic_end)[0] != end - topic_end - 2:
        return None
    return (
        body,
        body_end,
        time_at,
        bytes(view[topic_start:topic_end]),
        bytes(view[topic_end + 2 : end]),
    )


def _is_plain_name(topic: bytes) -> bool:
    return topic.isascii() and topic != _SCHEDULE and b"\0" not in topic and bool(topic)


def _keys_of(text: bytes) -> tuple[str | None, str | None, str | None] | None:
    """Unique id, keys and tag of a property text; None where that is not all that matters, or not plain ASCII."""
    if b"\0" in text or _LIGHT in text:
        return None
    uniq_key = _value_of(text, _UNIQ_KEY)
    keys = _value_of(text, _KEYS)
    tag = _value_of(text, _TAGS)
    if not (uniq_key.isascii() and keys.isascii() and tag.isascii()):
        return None
    return uniq_key.decode("ascii"), keys.decode("ascii"), tag.decode("ascii")


def _value_of(text: bytes, start: bytes) -> bytes:
    """What `parse_properties` gives for a name, as bytes; empty where it gives nothing. The last value that is not empty counts."""
    end = len(text)
    while (at := text.rfind(start, 0, end)) >= 0:
        if at == 0 or text[at - 1] == 2:
            value, _, _ = text[at + len(start) :].partition(b"\2")
            if value:
                return value
        end = at + len(start) - 1
    return b""


_compiled = None if native.functions is None else getattr(native.functions, "scan_block", None)
