"""Message records: golden bytes of both release lines, both versions, batches, damage, and the Construct declarations."""

from __future__ import annotations

import hashlib
import zlib
from ipaddress import ip_address
from typing import Any

import construct
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import LINES, frame_body, units, wire_frames
from txrocketmq.codec import crc
from txrocketmq.codec.layouts import BLANK_RECORD, CLIENT_BATCH_ITEM, message_record
from txrocketmq.codec.record import (
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    batch_size,
    blank_record,
    decode_record,
    decode_records,
    encode_around,
    encode_batch,
    encode_batch_records,
    encode_record,
    record_size,
    scan_head,
    split_batch,
)
from txrocketmq.errors import RecordError
from txrocketmq.model.flags import BORN_HOST_V6_FLAG, STORE_HOST_V6_FLAG
from txrocketmq.model.message import MessageExt, MessageRecord, record_of

V6_FLAGS = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG


def encode_again(message: MessageExt) -> bytes:
    return encode_record(
        record_of(message),
        message.queue_offset,
        message.physical_offset,
        message.store_timestamp,
    )


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return str(ip_address(host.strip("[]"))), int(port)


def check_decoded(message: MessageExt, expected: dict[str, Any]) -> None:
    assert message.topic == expected["topic"]
    assert message.queue_id == expected["queueId"]
    assert message.queue_offset == expected["queueOffset"]
    assert message.physical_offset == expected["physicalOffset"]
    assert message.store_size == expected["size"]
    assert message.flag == expected["flag"]
    assert message.body_crc == expected["bodyCrc"]
    assert message.sys_flag == expected["sysFlag"]
    assert message.reconsume_times == expected["reconsumeTimes"]
    assert message.prepared_transaction_offset == expected["preparedTransactionOffset"]
    assert message.born_timestamp == expected["bornTimestamp"]
    assert message.born_host == address(expected["bornHost"])
    assert message.store_timestamp == expected["storeTimestamp"]
    assert message.store_host == address(expected["storeHost"])
    assert message.properties == expected["properties"]
    assert message.msg_id == expected["msgId"]
    assert message.uniq_key == expected["uniqKey"]
    assert message.tags == expected["tags"]
    assert message.keys == expected["keys"]
    assert len(message.body) == expected["bodyLen"]
    assert hashlib.sha256(message.body).hexdigest() == expected["bodySha256"]


def golden_records() -> list[Any]:
    found = []
    for line in LINES:
        for section in ("messages", "storedRecords"):
            for number, vector in enumerate(units(line).get(section, [])):
                found.append(pytest.param(vector, id=f"{line}-{section}-{number}"))
    return found


@pytest.mark.parametrize("vector", golden_records())
def test_golden_record_reads_and_writes_the_same(vector: dict[str, Any]) -> None:
    if vector.get("error"):
        pytest.fail(f"no record in this vector: {vector['error']}")
    data = bytes.fromhex(vector["record_hex"])
    message, end = decode_record(data)
    assert end == len(data)
    check_decoded(message, vector["decoded"])
    magic = MAGIC_V2 if vector.get("version") == "MESSAGE_VERSION_V2" else MAGIC_V1
    head = scan_head(data)
    assert head is not None
    assert head.magic == magic
    again = encode_again(message)
    # The official encoder was told the version; ours follows the topic's length.
    assert again == data or magic == MAGIC_V2


def stored_bodies() -> list[tuple[str, bytes]]:
    return [
        (f"{frame['conversation']}#{frame['seq']}", frame_body(frame))
        for frame in wire_frames()
        if frame["kind"] == "remoting" and frame["decoded"]["body_kind"] == "stored-messages"
    ]


def test_every_recorded_pull_body_reads_and_writes_the_same() -> None:
    bodies = stored_bodies()
    assert len(bodies) == 177
    for name, body in bodies:
        messages = decode_records(body)
        assert b"".join(map(encode_again, messages)) == body, name
        assert [m.store_size for m in messages] == [record_size(record_of(m)) for m in messages]


def test_the_cheap_scan_sees_what_the_decoder_sees() -> None:
    for name, body in stored_bodies():
        pos = 0
        while pos < len(body):
            message, end = decode_record(body, pos)
            head = scan_head(memoryview(body), pos, check_crc=True)
            assert head is not None, name
            assert not head.is_blank
            assert pos + head.total_size == end
            for field in ("topic", "queue_id", "queue_offset", "physical_offset", "sys_flag"):
                assert getattr(head, field) == getattr(message, field)
            assert head.store_timestamp == message.store_timestamp
            assert head.born_timestamp == message.born_timestamp
            assert head.reconsume_times == message.reconsume_times
            assert head.prepared_transaction_offset == message.prepared_transaction_offset
            assert head.properties == message.properties_text
            stored = body[head.body_position : head.body_position + head.body_size]
            assert stored == message.body
            pos = end


# ------------------------------------------------------------------------ any record

hosts = st.tuples(
    st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str), st.integers(0, 65535)
)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
property_text = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\x01\x02"), min_size=1, max_size=8
)
records = st.builds(
    MessageRecord,
    topic=st.one_of(
        st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
        st.integers(126, 140).map(lambda size: "t" * size),
    ),
    queue_id=int32,
    body=st.binary(max_size=60),
    properties=st.one_of(
        st.binary(max_size=40),
        st.dictionaries(property_text, property_text, max_size=4).map(
            lambda found: "".join(f"{k}\x01{v}\x02" for k, v in found.items()).encode()
        ),
    ),
    flag=int32,
    sys_flag=st.integers(0, 0x7FF).map(lambda bits: bits & ~V6_FLAGS),
    born_timestamp=int64,
    born_host=hosts,
    store_host=hosts,
    reconsume_times=int32,
    prepared_transaction_offset=int64,
)


def layout_of(data: bytes) -> construct.Construct:
    sys_flag = int.from_bytes(data[36:40], "big", signed=True)
    version = 2 if int.from_bytes(data[4:8], "big", signed=True) == MAGIC_V2 else 1
    return message_record(
        version,
        born_ipv6=bool(sys_flag & BORN_HOST_V6_FLAG),
        store_ipv6=bool(sys_flag & STORE_HOST_V6_FLAG),
    )


@given(
    records,
    st.lists(st.tuples(int32, st.binary(max_size=60), st.binary(max_size=40)), max_size=5),
    st.integers(0, 2**40),
    st.integers(0, 2**40),
    int64,
)
def test_a_batch_is_the_records_that_each_item_alone_would_be(
    batch: MessageRecord,
    items: list[tuple[int, bytes, bytes]],
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
) -> None:
    data, offsets = encode_batch_records(
        batch, items, queue_offset, physical_offset, store_timestamp
    )
    expected, starts = b"", []
    for number, (flag, body, text) in enumerate(items):
        starts.append(physical_offset + len(expected))
        batch.flag, batch.body, batch.properties = flag, body, text
        expected += encode_record(batch, queue_offset + number, starts[-1], store_timestamp)
    assert (data, offsets) == (expected, starts)
    assert batch_size(batch, items) == len(expected)


@given(records, int64, int64, int64)
def test_any_record_comes_back(
    record: MessageRecord, queue_offset: int, physical_offset: int, store_timestamp: int
) -> None:
    data = encode_record(record, queue_offset, physical_offset, store_timestamp)
    assert len(data) == record_size(record)
    message, end = decode_record(b"..." + data + b"...", 3)
    assert end == 3 + len(data)
    born_v6 = BORN_HOST_V6_FLAG if ":" in record.born_host[0] else 0
    store_v6 = STORE_HOST_V6_FLAG if ":" in record.store_host[0] else 0
    assert message.sys_flag == record.sys_flag | born_v6 | store_v6
    assert message.queue_offset == queue_offset
    assert message.physical_offset == physical_offset
    assert message.store_timestamp == store_timestamp
    message.sys_flag = record.sys_flag
    message.born_host, message.store_host = record.born_host, record.store_host
    found = record_of(message)
    assert found == record
    parsed = layout_of(data).parse(data)
    assert layout_of(data).build(parsed) == data
    assert (parsed.topic, parsed.body, parsed.properties) == (
        record.topic,
        record.body,
        record.properties,
    )
    assert (parsed.queue_id, parsed.flag, parsed.queue_offset) == (
        record.queue_id,
        record.flag,
        queue_offset,
    )


@given(records, int64, int64)
def test_what_is_written_around_a_body_makes_the_same_record(
    record: MessageRecord, queue_offset: int, physical_offset: int
) -> None:
    before, behind = encode_around(record, queue_offset, physical_offset, 5)
    assert before + record.body + behind == encode_record(record, queue_offset, physical_offset, 5)


@given(st.binary(max_size=20_000))
def test_any_crc_is_the_one_of_zlib(data: bytes) -> None:
    assert crc.crc32(data) == zlib.crc32(data)
    assert crc.crc32(memoryview(data)[1:]) == zlib.crc32(data[1:])


@given(records)
def test_a_cut_record_is_refused_at_every_byte(record: MessageRecord) -> None:
    data = encode_record(record, 1, 2, 3)
    for size in range(len(data)):
        with pytest.raises(RecordError):
            decode_record(data[:size])
        if size < 8:
            assert scan_head(data[:size]) is None
        else:
            with pytest.raises(RecordError):
                scan_head(data[:size])


@given(records, st.data())
def test_a_flipped_bit_is_refused_or_read_as_it_is(
    record: MessageRecord, data: st.DataObject
) -> None:
    good = encode_record(record, 1, 2, 3)
    bit = data.draw(st.integers(0, len(good) * 8 - 1))
    damaged = bytearray(good)
    damaged[bit // 8] ^= 1 << bit % 8
    bad = bytes(damaged)
    try:
        message, end = decode_record(bad)
    except RecordError:
        check_construct_refuses(bad)
        return
    assert end == len(bad)
    if "\ufffd" in message.topic and "\ufffd" not in record.topic:
        # The declaration is strict about UTF-8; readers are not, see below.
        return
    parsed = layout_of(bad).parse(bad)
    assert parsed.total_size == len(bad)
    assert message.topic == parsed.topic
    assert message.body == parsed.body
    assert message.properties_text == parsed.properties
    assert message.queue_id == parsed.queue_id
    assert message.body_crc == parsed.body_crc


def check_construct_refuses(data: bytes) -> None:
    """The declaration refuses the bytes too, or what it reads is not consistent."""
    if int.from_bytes(data[4:8], "big", signed=True) not in (MAGIC_V1, MAGIC_V2):
        return
    try:
        parsed = layout_of(data).parse(data)
    except construct.ConstructError:
        return
    again = layout_of(data).build(parsed)
    body_changed = parsed.body and parsed.body_crc != crc_of(parsed.body)
    assert parsed.total_size != len(data) or again != data or body_changed


def crc_of(body: bytes) -> int:
    return decode_record(encode_record(MessageRecord(topic="t", queue_id=0, body=body), 0, 0, 0))[
        0
    ].body_crc


@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(RecordError):
        decode_record(noise)


def test_a_changed_body_is_found_by_its_crc_only_when_asked() -> None:
    record = MessageRecord(topic="TopicUnit", queue_id=0, body=b"hello")
    data = bytearray(encode_record(record, 0, 0, 0))
    data[data.index(b"hello")] = ord("j")
    with pytest.raises(RecordError, match="body crc"):
        decode_record(data)
    with pytest.raises(RecordError, match="body crc"):
        scan_head(data, check_crc=True)
    assert decode_record(data, check_crc=False)[0].body == b"jello"
    assert scan_head(data) is not None


def test_a_record_without_its_body() -> None:
    data = encode_record(MessageRecord(topic="TopicUnit", queue_id=0, body=b"hello"), 0, 0, 0)
    message, end = decode_record(data, with_body=False)
    assert (message.body, end) == (b"", len(data))


def test_topic_length_decides_the_version() -> None:
    for size, magic in ((127, MAGIC_V1), (128, MAGIC_V2)):
        record = MessageRecord(topic="t" * size, queue_id=0, body=b"")
        head = scan_head(encode_record(record, 0, 0, 0))
        assert head is not None
        assert (head.magic, head.topic) == (magic, record.topic)


def test_what_does_not_fit_a_length_field_is_refused() -> None:
    with pytest.raises(RecordError, match="32768"):
        encode_record(
            MessageRecord(topic="t", queue_id=0, body=b"", properties=b"x" * 32768), 0, 0, 0
        )
    with pytest.raises(RecordError, match="32768"):
        encode_record(MessageRecord(topic="t" * 32768, queue_id=0, body=b""), 0, 0, 0)


def test_a_crc_property_appended_by_newer_brokers_is_kept() -> None:
    properties = b"TAGS\x01TagA\x02__CRC32#\x010123456789\x02"
    data = encode_record(
        MessageRecord(topic="t", queue_id=0, body=b"b", properties=properties), 0, 0, 0
    )
    message, _ = decode_record(data)
    assert message.properties == {"TAGS": "TagA", "__CRC32#": "0123456789"}
    assert encode_again(message) == data


def test_a_file_end() -> None:
    blank = blank_record(500)
    assert BLANK_RECORD.parse(blank) == {"total_size": 500, "magic": BLANK_MAGIC}
    head = scan_head(blank + bytes(492))
    assert head is not None
    assert head.is_blank
    assert head.total_size == 500
    with pytest.raises(RecordError, match="blank"):
        decode_record(blank + bytes(492))
    with pytest.raises(RecordError):
        blank_record(7)


def test_bytes_never_written_are_nothing() -> None:
    assert scan_head(bytes(4096), 100) is None
    assert scan_head(b"", 0) is None
    with pytest.raises(RecordError):
        decode_record(bytes(4096))


def test_odd_properties_do_not_stop_a_queue() -> None:
    """A raw separator, bytes that are not UTF-8 and a missing last separator harm no other message."""
    odd = [
        b"KEYS\x01k\x01\x02\x02TAGS\x01TagA",
        b"a\x01\xff\xfe\x02b\x01ok\x02",
        "中\x01,=😀\x02".encode(),
    ]
    body = b"".join(
        encode_record(
            MessageRecord(topic="t", queue_id=0, body=b"x", properties=text), number, 0, 0
        )
        for number, text in enumerate(odd)
    )
    messages = decode_records(body)
    assert [m.queue_offset for m in messages] == [0, 1, 2]
    assert messages[0].properties == {"KEYS": "k\x01", "TAGS": "TagA"}
    assert messages[1].properties == {"a": "\ufffd\ufffd", "b": "ok"}
    assert messages[2].properties == {"中": ",=😀"}
    assert [m.properties_text for m in messages] == odd


def test_a_topic_that_is_not_utf8_does_not_look_like_damage() -> None:
    data = encode_record(MessageRecord(topic="tt", queue_id=0, body=b"x"), 0, 0, 0)
    head = scan_head(data.replace(b"\x02tt", b"\x02\xfft"))
    assert head is not None
    assert head.topic == "\ufffdt"


# ------------------------------------------------------------------------ batches


@pytest.mark.parametrize("line", LINES)
def test_golden_batch(line: str) -> None:
    for vector in units(line)["clientBatches"]:
        body = bytes.fromhex(vector["batch_hex"])
        expected = [
            (m["flag"], bytes.fromhex(m["body_hex"]), m["properties"].encode())
            for m in vector["messages"]
        ]
        assert split_batch(body) == expected
        assert encode_batch(expected) == body
        assert [encode_batch([item]).hex() for item in expected] == [
            m["encoded_hex"] for m in vector["messages"]
        ]


def test_recorded_batches_read_and_write_the_same() -> None:
    bodies = [
        frame_body(frame)
        for frame in wire_frames()
        if frame["kind"] == "remoting"
        and frame["decoded"]["body_kind"] == "client-batch"
        and "requestName" not in frame["decoded"]
    ]
    assert bodies
    for body in bodies:
        assert encode_batch(split_batch(body)) == body


items = st.lists(st.tuples(int32, st.binary(max_size=30), st.binary(max_size=30)), max_size=5)


@given(items)
def test_any_batch_comes_back(batch: list[tuple[int, bytes, bytes]]) -> None:
    body = encode_batch(batch)
    assert split_batch(memoryview(body)) == batch
    parsed = construct.GreedyRange(CLIENT_BATCH_ITEM).parse(body)
    assert [(item.flag, item.body, item.properties) for item in parsed] == batch
    assert b"".join(map(CLIENT_BATCH_ITEM.build, parsed)) == body


@given(items.filter(bool), st.data())
def test_a_cut_or_damaged_batch_is_refused_or_read_as_declared(
    batch: list[tuple[int, bytes, bytes]], data: st.DataObject
) -> None:
    damaged = bytearray(encode_batch(batch))
    position = data.draw(st.integers(0, len(damaged) - 1))
    if data.draw(st.booleans()):
        del damaged[position:]
    else:
        damaged[position] ^= data.draw(st.integers(1, 255))
    exact = construct.FocusedSeq(
        "items", "items" / construct.GreedyRange(CLIENT_BATCH_ITEM), construct.Terminated
    )
    try:
        expected = [(i.flag, i.body, i.properties) for i in exact.parse(bytes(damaged))]
    except construct.ConstructError:
        with pytest.raises(RecordError):
            split_batch(damaged)
    else:
        assert split_batch(damaged) == expected


def test_a_batch_with_properties_that_are_too_long_is_refused() -> None:
    with pytest.raises(RecordError, match="32768"):
        encode_batch([(0, b"", b"x" * 32768)])
