"""How a message record becomes bytes and back: commit log records, pull bodies, client batches, offset message ids.

Stands for ``MessageExtEncoder``, ``MessageDecoder`` and ``MessageVersion``. All numbers are big-endian and signed::

    total size 4 | magic 4 | body crc 4 | queue id 4 | flag 4 | queue offset 8 | physical offset 8 | sysFlag 4
    born time 8 | born host 4+4 or 16+4 | store time 8 | store host 4+4 or 16+4 | reconsume times 4
    prepared transaction offset 8 | body size 4, body | topic size 1 (v1) or 2 (v2), topic | properties size 2, properties

    blank record: total size 4 (all that is left of the file) | magic 4 | anything
    batch item:   total size 4 | magic 4 | crc 4 | flag 4 | body size 4, body | properties size 2, properties

The layouts are declared in `txrocketmq.codec.layouts`; this is the quick form of them and a test holds both equal. Crash story:
a record may be cut or torn anywhere; the lengths must add up and the body's CRC must match, else `RecordError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from socket import AF_INET, AF_INET6, inet_ntop
from struct import Struct

import msgspec

from txrocketmq.codec.crc import crc32 as fast_crc32
from txrocketmq.errors import RecordError
from txrocketmq.model.flags import BORN_HOST_V6_FLAG, STORE_HOST_V6_FLAG
from txrocketmq.model.message import Host, MessageExt, MessageRecord
from txrocketmq.model.message_id import (
    create_uniq_id,
    offset_message_id,
    parse_offset_message_id,
)
from txrocketmq.model.properties import (
    MAX_PROPERTIES_BYTES,
    find_property,
    format_properties,
    parse_properties,
)

__all__ = [
    "BATCH_ITEM_OVERHEAD_BYTES", "BLANK_MAGIC", "BLANK_RECORD_BYTES", "MAGIC_V1", "MAGIC_V2",
    "MIN_RECORD_BYTES", "RecordHead", "batch_size", "blank_record", "create_uniq_id",
    "decode_record", "decode_records", "encode_around", "encode_batch", "encode_batch_records",
    "encode_record", "find_property", "format_properties", "offset_message_id",
    "parse_offset_message_id", "parse_properties", "peek_store_timestamp", "record_size",
    "scan_head", "split_batch",
]  # fmt: skip

Buffer = bytes | bytearray | memoryview

BatchItem = tuple[int, bytes, bytes]
"""What one message of a client batch says itself: flag, body, property text."""

MAGIC_V1 = -626843481
MAGIC_V2 = -626843477
BLANK_MAGIC = -875286124
MIN_RECORD_BYTES = 91
"""A version 1 record with IPv4 hosts and empty body, topic and properties."""
BLANK_RECORD_BYTES = 8
BATCH_ITEM_OVERHEAD_BYTES = 22
MAX_TOPIC_BYTES_V1 = 127
MAX_TOPIC_BYTES = 32767

_V6_FLAGS = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG
_NO_V6_FLAGS = ~_V6_FLAGS
_START = Struct(">ii")
_SHORT = Struct(">h")
_INT = Struct(">i")
_LONG = Struct(">q")
_HOST_V4 = Struct(">4si")
_HOST_V6 = Struct(">16si")
_BATCH_HEAD = Struct(">iiiii")
_read_batch_head = Struct(">12xii").unpack_from
# By the two host bits of the sysFlag: everything before the body.
_HEADS = {
    0: Struct(">iiiiiqqiq8sq8siqi"),
    BORN_HOST_V6_FLAG: Struct(">iiiiiqqiq20sq8siqi"),
    STORE_HOST_V6_FLAG: Struct(">iiiiiqqiq8sq20siqi"),
    _V6_FLAGS: Struct(">iiiiiqqiq20sq20siqi"),
}
_HEAD_V4 = _HEADS[0]
_SYS_FLAG_POSITION = 36
_BORN_HOST_POSITION = 48

# Few hosts and topics make up all traffic. The bounds keep a flood of strange ones from using up memory.
_CACHE_ENTRIES = 8192
_host_bytes: dict[Host, bytes] = {}
_hosts: dict[bytes, Host] = {}
_topic_parts: dict[str, tuple[int, bytes]] = {}
_topics: dict[bytes, str] = {}


def _pack_host(host: Host) -> bytes:
    address = ip_address(host[0]).packed
    packed = (_HOST_V4 if len(address) == 4 else _HOST_V6).pack(address, host[1])
    if len(_host_bytes) >= _CACHE_ENTRIES:
        _host_bytes.clear()
    _host_bytes[host] = packed
    return packed


def _unpack_host(packed: bytes) -> Host:
    address, port = packed[:-4], _INT.unpack(packed[-4:])[0]
    host = (inet_ntop(AF_INET if len(address) == 4 else AF_INET6, address), port)
    if len(_hosts) >= _CACHE_ENTRIES:
        _hosts.clear()
    _hosts[packed] = host
    return host


def _topic_part(topic: str) -> tuple[int, bytes]:
    """The magic that a topic asks for, and its bytes with their length before them."""
    text = topic.encode("utf-8", "replace")
    if len(text) <= MAX_TOPIC_BYTES_V1:
        part = (MAGIC_V1, bytes((len(text),)) + text)
    elif len(text) <= MAX_TOPIC_BYTES:
        part = (MAGIC_V2, _SHORT.pack(len(text)) + text)
    else:
        raise RecordError(f"topic of {len(text)} bytes, at most {MAX_TOPIC_BYTES}")
    if len(_topic_parts) >= _CACHE_ENTRIES:
        _topic_parts.clear()
    _topic_parts[topic] = part
    return part


def record_size(record: MessageRecord) -> int:
    """How many bytes `encode_record` makes of a record."""
    born = _host_bytes.get(record.born_host) or _pack_host(record.born_host)
    store = _host_bytes.get(record.store_host) or _pack_host(record.store_host)
    _, topic = _topic_parts.get(record.topic) or _topic_part(record.topic)
    return 74 + len(born) + len(store) + len(record.body) + len(topic) + len(record.properties)


def encode_record(
    record: MessageRecord, queue_offset: int, physical_offset: int, store_timestamp: int
) -> bytes:
    """The record's bytes: version 2 when the topic is longer than 127 bytes, else version 1.

    :raises RecordError: the topic or the properties do not fit their length field.
    """
    born_host = _host_bytes.get(record.born_host) or _pack_host(record.born_host)
    store_host = _host_bytes.get(record.store_host) or _pack_host(record.store_host)
    magic, topic = _topic_parts.get(record.topic) or _topic_part(record.topic)
    body = record.body
    properties = record.properties
    properties_size = len(properties)
    if properties_size > MAX_PROPERTIES_BYTES:
        raise RecordError(f"properties of {properties_size} bytes, at most {MAX_PROPERTIES_BYTES}")
    if len(born_host) + len(store_host) == 16:
        host_flags, head = 0, _HEAD_V4
    else:
        host_flags = (BORN_HOST_V6_FLAG if len(born_host) != 8 else 0) | (
            STORE_HOST_V6_FLAG if len(store_host) != 8 else 0
        )
        head = _HEADS[host_flags]
    body_size = len(body)
    return b"".join(
        (
            head.pack(
                head.size + body_size + len(topic) + 2 + properties_size,
                magic,
                fast_crc32(body) & 0x7FFFFFFF,
                record.queue_id,
                record.flag,
                queue_offset,
                physical_offset,
                record.sys_flag & _NO_V6_FLAGS | host_flags,
                record.born_timestamp,
                born_host,
                store_timestamp,
                store_host,
                record.reconsume_times,
                record.prepared_transaction_offset,
                body_size,
            ),
            body,
            topic,
            _SHORT.pack(properties_size),
            properties,
        )
    )


def encode_around(
    record: MessageRecord, queue_offset: int, physical_offset: int, store_timestamp: int
) -> tuple[bytes, bytes]:
    """What `encode_record` puts before and behind the body: a large body is not worth a copy just to join them."""
    born_host = _host_bytes.get(record.born_host) or _pack_host(record.born_host)
    store_host = _host_bytes.get(record.store_host) or _pack_host(record.store_host)
    magic, topic = _topic_parts.get(record.topic) or _topic_part(record.topic)
    body, properties = record.body, record.properties
    host_flags = (BORN_HOST_V6_FLAG if len(born_host) != 8 else 0) | (
        STORE_HOST_V6_FLAG if len(store_host) != 8 else 0
    )
    head = _HEADS[host_flags]
    behind = b"%b%b%b" % (topic, _SHORT.pack(len(properties)), properties)
    before = head.pack(
        head.size + len(body) + len(behind),
        magic,
        fast_crc32(body) & 0x7FFFFFFF,
        record.queue_id,
        record.flag,
        queue_offset,
        physical_offset,
        record.sys_flag & ~_V6_FLAGS | host_flags,
        record.born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        record.reconsume_times,
        record.prepared_transaction_offset,
        len(body),
    )
    return before, behind


def batch_size(batch: MessageRecord, items: Sequence[BatchItem]) -> int:
    """How many bytes `encode_batch_records` makes of these items."""
    fixed = record_size(batch) - len(batch.body) - len(batch.properties)
    return fixed * len(items) + sum([len(body) + len(text) for _, body, text in items])


def encode_batch_records(
    batch: MessageRecord,
    items: Iterable[BatchItem],
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
) -> tuple[bytes, list[int]]:
    """A batch's items as records back to back, and where each of them begins.

    Each is what `encode_record` makes of the request's record with the item's flag, body and properties; two thirds of its time.

    :raises RecordError: the topic or some properties do not fit their length field.
    """
    born_host = _host_bytes.get(batch.born_host) or _pack_host(batch.born_host)
    store_host = _host_bytes.get(batch.store_host) or _pack_host(batch.store_host)
    magic, topic = _topic_parts.get(batch.topic) or _topic_part(batch.topic)
    host_flags = (BORN_HOST_V6_FLAG if len(born_host) != 8 else 0) | (
        STORE_HOST_V6_FLAG if len(store_host) != 8 else 0
    )
    head = _HEADS[host_flags]
    pack_head, pack_short, crc32 = head.pack, _SHORT.pack, fast_crc32
    fixed = head.size + len(topic) + 2
    queue_id, born_timestamp = batch.queue_id, batch.born_timestamp
    sys_flag = batch.sys_flag & ~_V6_FLAGS | host_flags
    reconsume_times = batch.reconsume_times
    prepared_transaction_offset = batch.prepared_transaction_offset
    parts: list[bytes] = []
    offsets: list[int] = []
    for flag, body, properties in items:
        body_size = len(body)
        properties_size = len(properties)
        if properties_size > MAX_PROPERTIES_BYTES:
            raise RecordError(
                f"properties of {properties_size} bytes, at most {MAX_PROPERTIES_BYTES}"
            )
        size = fixed + body_size + properties_size
        parts += (
            pack_head(
                size,
                magic,
                crc32(body) & 0x7FFFFFFF,
                queue_id,
                flag,
                queue_offset,
                physical_offset,
                sys_flag,
                born_timestamp,
                born_host,
                store_timestamp,
                store_host,
                reconsume_times,
                prepared_transaction_offset,
                body_size,
            ),
            body,
            topic,
            pack_short(properties_size),
            properties,
        )
        offsets.append(physical_offset)
        queue_offset += 1
        physical_offset += size
    return b"".join(parts), offsets


def _fail(pos: int, reason: str) -> RecordError:
    return RecordError(f"no valid record at byte {pos}: {reason}")


class RecordHead(msgspec.Struct, gc=False):
    """What reput, recovery and the index need of a record, without its body.

    For a blank record only ``total_size`` and ``magic`` say anything, and `is_blank` is true.
    """

    total_size: int
    magic: int
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    store_timestamp: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body_position: int = 0
    body_size: int = 0
    topic: str = ""
    properties: bytes = b""

    @property
    def is_blank(self) -> bool:
        """Whether this is the filler at a file's end; the next record is in the next file."""
        return self.magic == BLANK_MAGIC


def _locate(buf: Buffer, pos: int) -> tuple[Struct, int, int]:
    """Check a record's frame: its head's struct, its total size, its magic. Blank records have no head."""
    available = len(buf) - pos
    if pos < 0 or available < BLANK_RECORD_BYTES:
        raise _fail(pos, f"{max(available, 0)} bytes left")
    total_size, magic = _START.unpack_from(buf, pos)
    if magic == BLANK_MAGIC:
        if total_size < BLANK_RECORD_BYTES:
            raise _fail(pos, f"blank record of {total_size} bytes")
        return _START, total_size, magic
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise _fail(pos, f"unknown magic 0x{magic & 0xFFFFFFFF:08x}")
    if total_size < MIN_RECORD_BYTES or total_size > available:
        raise _fail(pos, f"size {total_size} with {available} bytes left")
    head = _HEADS[_INT.unpack_from(buf, pos + _SYS_FLAG_POSITION)[0] & _V6_FLAGS]
    if total_size < head.size + 3:
        raise _fail(pos, f"size {total_size} is less than its head")
    return head, total_size, magic


def _tail(buf: Buffer, pos: int, end: int, topic_position: int, magic: int) -> tuple[bytes, bytes]:
    """Topic and properties of a record, after the check that all lengths add up to its size."""
    if magic == MAGIC_V1:
        topic_start = topic_position + 1
        if topic_start + 2 > end:
            raise _fail(pos, "the body runs over the record's end")
        topic_size = buf[topic_position]
        if topic_size > MAX_TOPIC_BYTES_V1:
            raise _fail(pos, "negative topic size")
    else:
        topic_start = topic_position + 2
        if topic_start + 2 > end:
            raise _fail(pos, "the body runs over the record's end")
        topic_size = _SHORT.unpack_from(buf, topic_position)[0]
        if topic_size < 0:
            raise _fail(pos, "negative topic size")
    topic_end = topic_start + topic_size
    if topic_end + 2 > end:
        raise _fail(pos, "the topic runs over the record's end")
    properties_size = _SHORT.unpack_from(buf, topic_end)[0]
    if properties_size < 0 or topic_end + 2 + properties_size != end:
        raise _fail(pos, "the lengths do not add up to the record's size")
    return bytes(buf[topic_start:topic_end]), bytes(buf[topic_end + 2 : end])


def _topic_text(raw: bytes) -> str:
    # A topic that is not UTF-8 reads with U+FFFD, as Java reads it: it must not make the log look damaged.
    topic = raw.decode("utf-8", "replace")
    if len(_topics) >= _CACHE_ENTRIES:
        _topics.clear()
    _topics[raw] = topic
    return topic


def _check_crc(buf: Buffer, pos: int, body_position: int, body_end: int, body_crc: int) -> None:
    if body_end > body_position:
        found = fast_crc32(memoryview(buf)[body_position:body_end]) & 0x7FFFFFFF
        if found != body_crc:
            raise _fail(pos, f"body crc {found}, the record says {body_crc}")


def decode_record(
    buf: Buffer, pos: int = 0, *, check_crc: bool = True, with_body: bool = True
) -> tuple[MessageExt, int]:
    """One message and the position after it.

    :param check_crc: compare the body's CRC-32; an empty body is not checked (nor is it by official readers).
    :param with_body: False leaves ``body`` empty (the CRC is checked all the same when asked).
    :raises RecordError: the bytes at this position are not a whole, consistent message record.
    """
    head, total_size, magic = _locate(buf, pos)
    if head is _START:
        raise _fail(pos, "blank record")
    (
        _,
        _,
        body_crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        body_size,
    ) = head.unpack_from(buf, pos)
    body_position = pos + head.size
    body_end = body_position + body_size
    end = pos + total_size
    if body_size < 0 or body_end > end:
        raise _fail(pos, f"body of {body_size} bytes in a record of {total_size}")
    topic, properties = _tail(buf, pos, end, body_end, magic)
    if check_crc:
        _check_crc(buf, pos, body_position, body_end, body_crc)
    message = MessageExt(
        topic=_topics.get(topic) or _topic_text(topic),
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        store_size=total_size,
        flag=flag,
        sys_flag=sys_flag,
        body=bytes(buf[body_position:body_end]) if with_body else b"",
        body_crc=body_crc,
        born_timestamp=born_timestamp,
        born_host=_hosts.get(born_host) or _unpack_host(born_host),
        store_timestamp=store_timestamp,
        store_host=_hosts.get(store_host) or _unpack_host(store_host),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        properties_text=properties,
    )
    return message, end


def decode_records(
    body: Buffer, *, check_crc: bool = True, with_body: bool = True
) -> list[MessageExt]:
    """All messages of a pull answer's body, which are records back to back.

    :raises RecordError: naming the position of the first bad record.
    """
    messages = []
    pos, end = 0, len(body)
    while pos < end:
        message, pos = decode_record(body, pos, check_crc=check_crc, with_body=with_body)
        messages.append(message)
    return messages


def scan_head(buf: Buffer, pos: int = 0, *, check_crc: bool = False) -> RecordHead | None:
    """The head of the record at a position, cheaply; None when nothing was ever written there.

    "Nothing" means fewer than 8 bytes left, or a zero size and a zero magic.

    :param check_crc: also compare the body's CRC-32 (recovery after a crash).
    :raises RecordError: something was written there that is not a whole, consistent record.
    """
    if len(buf) - pos < BLANK_RECORD_BYTES or _START.unpack_from(buf, pos) == (0, 0):
        return None
    head, total_size, magic = _locate(buf, pos)
    if head is _START:
        return RecordHead(total_size, magic)
    (
        _,
        _,
        body_crc,
        queue_id,
        _,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        _,
        store_timestamp,
        _,
        reconsume_times,
        prepared_transaction_offset,
        body_size,
    ) = head.unpack_from(buf, pos)
    body_position = pos + head.size
    body_end = body_position + body_size
    end = pos + total_size
    if body_size < 0 or body_end > end:
        raise _fail(pos, f"body of {body_size} bytes in a record of {total_size}")
    topic, properties = _tail(buf, pos, end, body_end, magic)
    if check_crc:
        _check_crc(buf, pos, body_position, body_end, body_crc)
    return RecordHead(
        total_size,
        magic,
        queue_id,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        store_timestamp,
        reconsume_times,
        prepared_transaction_offset,
        body_position,
        body_size,
        _topics.get(topic) or _topic_text(topic),
        properties,
    )


def peek_properties(record: Buffer) -> bytes:
    """The property text of a whole record, and nothing else of it.

    :raises RecordError: it is not a whole, consistent record.
    """
    head, total_size, magic = _locate(record, 0)
    if head is _START:
        return b""
    body_size = _INT.unpack_from(record, head.size - 4)[0]
    if body_size < 0 or head.size + body_size > total_size:
        raise _fail(0, f"body of {body_size} bytes in a record of {total_size}")
    return _tail(record, 0, total_size, head.size + body_size, magic)[1]


def peek_store_timestamp(record: Buffer) -> int:
    """When a record was stored, in ms, from its first 76 bytes or more; -1 when there are fewer."""
    if len(record) < _SYS_FLAG_POSITION + 4:
        return -1
    sys_flag = _INT.unpack_from(record, _SYS_FLAG_POSITION)[0]
    position = _BORN_HOST_POSITION + (20 if sys_flag & BORN_HOST_V6_FLAG else 8)
    if len(record) < position + 8:
        return -1
    timestamp: int = _LONG.unpack_from(record, position)[0]
    return timestamp


def blank_record(size: int) -> bytes:
    """The 8 bytes that begin the filler at a file's end.

    :param size: bytes left in the file, at least 8; those after the first 8 may hold anything.
    """
    if size < BLANK_RECORD_BYTES:
        raise RecordError(f"a blank record needs {BLANK_RECORD_BYTES} bytes, {size} are left")
    return _START.pack(size, BLANK_MAGIC)


def split_batch(body: Buffer) -> list[BatchItem]:
    """The items of a client batch body as ``(flag, body, property text)``.

    An item's size, magic and CRC fields are ignored, as official brokers do; the inner lengths count.

    :raises RecordError: an item runs over the body's end; names its number.
    """
    if body.__class__ is not bytes:
        body = bytes(body)
    items: list[BatchItem] = []
    pos, end = 0, len(body)
    while pos < end:
        if end - pos < BATCH_ITEM_OVERHEAD_BYTES:
            raise RecordError(f"batch item {len(items)}: {end - pos} bytes left")
        flag, body_size = _read_batch_head(body, pos)
        start = pos + _BATCH_HEAD.size
        body_end = start + body_size
        if body_size < 0 or body_end + 2 > end:
            raise RecordError(f"batch item {len(items)}: body of {body_size} bytes does not fit")
        properties_size = _SHORT.unpack_from(body, body_end)[0]
        pos = body_end + 2 + properties_size
        if properties_size < 0 or pos > end:
            raise RecordError(
                f"batch item {len(items)}: properties of {properties_size} bytes do not fit"
            )
        items.append((flag, body[start:body_end], body[body_end + 2 : pos]))
    return items


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """A client batch body of ``(flag, body, property text)`` items.

    :raises RecordError: properties too long for their length field.
    """
    parts: list[bytes] = []
    for flag, body, properties in items:
        if len(properties) > MAX_PROPERTIES_BYTES:
            raise RecordError(
                f"properties of {len(properties)} bytes, at most {MAX_PROPERTIES_BYTES}"
            )
        total_size = BATCH_ITEM_OVERHEAD_BYTES + len(body) + len(properties)
        parts.append(_BATCH_HEAD.pack(total_size, 0, 0, flag, len(body)))
        parts.append(body)
        parts.append(_SHORT.pack(len(properties)))
        parts.append(properties)
    return b"".join(parts)
