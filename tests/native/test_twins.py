"""Does each compiled function give what its pure twin gives, and leave alone what it does not know?"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

import pytest
from built import functions
from hypothesis import example, given
from hypothesis import strategies as st

from txrocketmq.broker.send.properties import _NOTEWORTHY, Prepared, PropertyWriter
from txrocketmq.codec.command import RemotingCommand, encode_reply
from txrocketmq.codec.crc import crc32
from txrocketmq.codec.headers import SendMessageResponseHeader
from txrocketmq.codec.record import _host_bytes, _topic_parts, decode_record, encode_record
from txrocketmq.model.javahash import index_hash
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import MAX_PROPERTIES_BYTES
from txrocketmq.store.indexfile import IndexFile

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
HOSTS = st.tuples(
    st.sampled_from(["127.0.0.1", "255.1.2.3", "::1", "2001:db8::ff"]), st.integers(0, 65535)
)
TOPICS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["t", "x" * 127, "x" * 128, "é" * 64, "\ud800"]),
)
RECORDS = st.builds(
    MessageRecord,
    topic=TOPICS,
    queue_id=INT32,
    body=st.one_of(st.binary(max_size=40), st.sampled_from([b"", b"b" * 5000])),
    properties=st.one_of(
        st.binary(max_size=40), st.sampled_from([b"", b"p" * MAX_PROPERTIES_BYTES])
    ),
    flag=INT32,
    sys_flag=INT32,
    born_timestamp=INT64,
    born_host=HOSTS,
    store_host=HOSTS,
    reconsume_times=INT32,
    prepared_transaction_offset=INT64,
)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return functions(tmp_path_factory.mktemp("native"))


# ---------------------------------------------------------------------- records


def put(
    compiled: ModuleType,
    buffer: object,
    position: object,
    limit: object,
    record: MessageRecord,
    *places: object,
) -> int | None:
    """The compiled `encode_record`, called as the commit log does."""
    size: int | None = compiled.put_record(
        buffer,
        position,
        limit,
        record.topic,
        record.queue_id,
        record.body,
        record.properties,
        record.flag,
        record.sys_flag,
        record.born_timestamp,
        record.born_host,
        record.store_host,
        record.reconsume_times,
        record.prepared_transaction_offset,
        *places,
    )
    return size


@given(RECORDS, INT64, INT64, INT64, st.integers(0, 9), st.integers(0, 3))
def test_a_record_is_put_as_it_is_encoded(
    compiled: ModuleType,
    record: MessageRecord,
    queue_offset: int,
    physical_offset: int,
    stored: int,
    position: int,
    room: int,
) -> None:
    expected = encode_record(record, queue_offset, physical_offset, stored)
    places = queue_offset, physical_offset, stored
    end = position + len(expected)
    buffer = bytearray(b"\xa5" * (end + 8))
    before = bytes(buffer)
    assert put(compiled, buffer, position, end - 1, record, *places) is None
    assert put(compiled, memoryview(buffer)[: end - 1], position, end, record, *places) is None
    assert buffer == before
    assert put(compiled, memoryview(buffer), position, end + room, record, *places) == len(expected)
    assert buffer == before[:position] + expected + before[end:]


KNOWN = MessageRecord(topic="Known", queue_id=0, body=b"body", born_host=("10.0.0.1", 1))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("queue_id", 2**31),
        ("queue_id", None),
        ("flag", -(2**31) - 1),
        ("sys_flag", 2**31),
        ("sys_flag", 2**70),
        ("born_timestamp", 2**63),
        ("reconsume_times", 2**31),
        ("reconsume_times", 1.5),
        ("prepared_transaction_offset", -(2**63) - 1),
        ("properties", b"p" * (MAX_PROPERTIES_BYTES + 1)),
        ("properties", "text"),
        ("body", bytearray(b"body")),
        ("body", None),
        ("topic", "never seen before"),
        ("topic", None),
        ("topic", []),
        ("born_host", ("10.9.9.9", 999)),
        ("store_host", []),
    ],
)
def test_what_no_usual_record_has_is_left_to_the_pure_code(
    compiled: ModuleType, name: str, value: object
) -> None:
    encode_record(KNOWN, 1, 2, 3)
    buffer = bytearray(70_000)
    fields = {field: getattr(KNOWN, field) for field in KNOWN.__struct_fields__}
    odd = MessageRecord(**{**fields, name: value})
    assert put(compiled, buffer, 0, len(buffer), odd, 1, 2, 3) is None
    assert not any(buffer)


@pytest.mark.parametrize(
    ("position", "limit", "places"),
    [
        (-1, 1000, (1, 2, 3)),
        (0, -1, (1, 2, 3)),
        (2**63 - 1, 2**63 - 1, (1, 2, 3)),
        (-(2**63), 2**63 - 1, (1, 2, 3)),
        (2000, 5000, (1, 2, 3)),
        (None, 1000, (1, 2, 3)),
        (0, 1000, (2**63, 2, 3)),
        (0, 1000, (1, "2", 3)),
        (0, 1000, (1, 2)),
    ],
)
def test_impossible_places_for_a_record_are_left_to_the_pure_code(
    compiled: ModuleType, position: object, limit: object, places: tuple[object, ...]
) -> None:
    encode_record(KNOWN, 1, 2, 3)
    buffer = bytearray(1000)
    assert put(compiled, buffer, position, limit, KNOWN, *places) is None
    assert not any(buffer)


def test_a_buffer_that_cannot_be_written_is_left_to_the_pure_code(compiled: ModuleType) -> None:
    encode_record(KNOWN, 1, 2, 3)
    released = memoryview(bytearray(1000))
    released.release()
    scattered = memoryview(bytearray(4000))[::2]
    for buffer in (bytes(1000), released, scattered, "text", None):
        assert put(compiled, buffer, 0, 1000, KNOWN, 1, 2, 3) is None


def test_the_buffer_is_free_again_after_a_record_was_put(compiled: ModuleType) -> None:
    size = len(encode_record(KNOWN, 1, 2, 3))
    buffer = bytearray(1000)
    assert put(compiled, buffer, 0, 1000, KNOWN, 1, 2, 3) == size
    assert put(compiled, buffer, 990, 2000, KNOWN, 1, 2, 3) is None
    buffer.extend(b"more")
    assert decode_record(bytes(buffer[:size]))[0].body == b"body"


def test_a_host_of_the_same_name_is_looked_up_anew(compiled: ModuleType) -> None:
    for port in (1, 2, 1, 3):
        record = MessageRecord(topic="T", queue_id=0, body=b"", born_host=("10.0.0.2", port))
        expected = encode_record(record, 1, 2, 3)
        buffer = bytearray(len(expected))
        put(compiled, buffer, 0, len(buffer), record, 1, 2, 3)
        assert buffer == expected


# ---------------------------------------------------------------------- index

SLOTS, ENTRIES = 7, 60
KEY_TEXTS = st.one_of(
    st.none(),
    st.text("ab #", max_size=8),
    st.text(max_size=4),
    st.sampled_from(["", " ", "AC1100020BB8251A69D77D3E00000001"]),
)
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["Topic", "", "Thé"]),
        KEY_TEXTS,
        KEY_TEXTS,
        st.one_of(st.just(-1), st.integers(0, 2**31 - 1)),
        st.integers(0, 2**45),
    ),
    max_size=12,
)

Message = tuple[str, str | None, str | None, int, int]


class Memory:
    """A mapping of a file whose blocks are there."""

    def __init__(self, size: int) -> None:
        self.buffer = memoryview(bytearray(size))

    def allocated_to(self) -> int:
        return len(self.buffer)


def index_file() -> IndexFile:
    file = IndexFile("index", SLOTS, ENTRIES)
    mapping: Any = Memory(file.size)
    file.attach(mapping)
    return file


def put_singly(file: IndexFile, message: Message, offset: int) -> bool:
    """What `IndexService.put_keys` does for a file with room; whether there was enough."""
    topic, uniq_key, keys, tag_hash, stored_ms = message
    hashes = [index_hash(topic, key) for key in [uniq_key or "", *(keys or "").split(" ")] if key]
    hashes += [tag_hash] if tag_hash >= 0 else []
    done = [file.put(key_hash, offset, stored_ms) for key_hash in hashes]
    if any(done):
        file.write_header()
    return all(done)


def put_compiled(compiled: ModuleType, file: IndexFile, message: Message, offset: int) -> bool:
    topic, uniq_key, keys, tag_hash, stored_ms = message
    found = compiled.put_keys(
        file._buffer, file.slots, file.count, file.put_limit, file.slots_used, file.begin_offset,
        file.begin_timestamp_ms, topic, uniq_key, keys, tag_hash, offset, stored_ms,
    )  # fmt: skip
    if found is None:
        return False
    file.count, file.slots_used = found
    file.end_offset, file.end_timestamp_ms = offset, stored_ms
    return True


@given(MESSAGES)
@example([("Topic", "first", None, -1, 5000), ("Topic", "a b  a ", "a b", 3, 2**45)])
def test_a_message_gets_the_same_index_entries(
    compiled: ModuleType, messages: Sequence[Message]
) -> None:
    file, expected = index_file(), index_file()
    for offset, message in enumerate(messages, 100):
        before = bytes(file._buffer)
        if not put_compiled(compiled, file, message, offset):
            assert bytes(file._buffer) == before
            put_singly(file, message, offset)
        put_singly(expected, message, offset)
        assert bytes(file._buffer) == bytes(expected._buffer)
        assert (file.count, file.slots_used) == (expected.count, expected.slots_used)
        assert (file.end_offset, file.end_timestamp_ms) == (
            expected.end_offset,
            expected.end_timestamp_ms,
        )


def test_usual_messages_are_indexed_by_the_compiled_twin(compiled: ModuleType) -> None:
    file = index_file()
    put_singly(file, ("Topic", "first", None, -1, 1000), 1)
    for message in (
        ("Topic", "key", None, -1, 2000),
        ("Topic", None, "two keys", -1, 2000),
        ("Topic", None, None, 5, 2000),
    ):
        assert put_compiled(compiled, file, message, 2)
    assert file.count == 6


def test_a_message_whose_entries_do_not_all_fit_is_left_to_the_pure_code(
    compiled: ModuleType,
) -> None:
    file = index_file()
    put_singly(file, ("Topic", "first", None, -1, 1000), 1)
    file.count = ENTRIES - 2
    before = bytes(file._buffer)
    assert not put_compiled(compiled, file, ("Topic", "a", "b", 5, 2000), 2)
    assert bytes(file._buffer) == before
    assert put_compiled(compiled, file, ("Topic", "a", "b", -1, 2000), 2)


GOOD = (SLOTS, 2, ENTRIES, 1, 100, 1000, "Topic", "key", None, -1, 200, 2000)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *((0, value) for value in (0, -1, 2**31, 2**62, 2**64, None)),
        *((1, value) for value in (1, 0, -5, ENTRIES, 2**62, 2**63 - 1, "2")),
        *((2, value) for value in (ENTRIES + 1, -1, 2**31, 2**62)),
        *((3, value) for value in (-1, 2**31)),
        *((5, value) for value in (-1, 2**63)),
        *((6, value) for value in (None, b"Topic", "Thé", "\ud800")),
        *((7, value) for value in (None, "", 5, "é")),
        *((8, value) for value in (b"k", "é")),
        *((9, value) for value in (2**31, 2**40, "1")),
        *((10, value) for value in (2**63, None)),
        *((11, value) for value in (-1, 2**63)),
    ],
)
def test_impossible_index_files_are_left_to_the_pure_code(
    compiled: ModuleType, place: int, value: object
) -> None:
    file = index_file()
    arguments = [*GOOD[:place], value, *GOOD[place + 1 :]]
    assert compiled.put_keys(file._buffer, *arguments) is None
    assert not any(file._buffer)
    assert compiled.put_keys(bytes(file.size), *GOOD) is None
    assert compiled.put_keys(file._buffer, *GOOD[:-1]) is None
    assert compiled.put_keys(file._buffer, *GOOD) == (3, 2)


@given(st.text(max_size=12), st.text(max_size=40))
@example("polygenelubricants"[:0], "")
@example("t", "x" * 600)
def test_keys_have_the_same_hash(compiled: ModuleType, topic: str, key: str) -> None:
    expected = index_hash(topic, key) if (topic + key).isascii() else None
    assert compiled.index_hash(topic, key) == expected


def test_the_hash_without_an_absolute_value_is_zero(compiled: ModuleType) -> None:
    # Java's hash of this text is the smallest 32-bit number.
    topic, key = _smallest()
    assert index_hash(topic, key) == 0
    assert compiled.index_hash(topic, key) == 0


def _smallest() -> tuple[str, str]:
    """A topic and a key whose joined text hashes to -2**31: digits of base 31, each a printable character."""
    start = 0
    for unit in b"t#":
        start = start * 31 + unit
    length = 7
    left = (2**31 - start * 31**length) % 2**32
    left -= sum(40 * 31**power for power in range(length))
    left %= 2**32
    digits = []
    for power in range(length - 1, -1, -1):
        digit, left = divmod(left, 31**power)
        digits.append(40 + digit)
    return "t", bytes(digits).decode("ascii")


# ---------------------------------------------------------------------- texts of a send

WRITER = PropertyWriter("Cluster", "Région", "true")
PROPERTY_TEXTS = st.one_of(
    st.text("\x01\x02ab", max_size=12),
    st.lists(
        st.tuples(
            st.sampled_from(["UNIQ_KEY", "TAGS", "KEYS", "WAIT", "DELAY", "CLUSTER", "", "é"]),
            st.sampled_from(["", "v", "välue", "\ud800", "a\x01b", "\0"]),
        ),
        max_size=5,
    ).flatmap(
        lambda items: st.sampled_from(["", "\x02"]).map(
            lambda end: "\x02".join(f"{name}\x01{value}" for name, value in items) + end
        )
    ),
)


def prepare(compiled: ModuleType, text: object, suffix: object = WRITER._suffix_bytes) -> Any:
    return compiled.prepare(text, _NOTEWORTHY, suffix, Prepared)


@given(PROPERTY_TEXTS)
@example("UNIQ_KEY\x01id\x02TAGS\x01TagA")
@example("UNIQ_KEY\x01id\x02\x02")
def test_properties_are_prepared_alike(compiled: ModuleType, text: str) -> None:
    found = prepare(compiled, text)
    if found is not None:
        assert found == WRITER.prepare_any(text)
        assert found.__class__ is Prepared
        assert found.uniq_key == found.found["UNIQ_KEY"]


@pytest.mark.parametrize("end", ["", "\x02"])
@pytest.mark.parametrize("more", ["", "\x02TAGS\x01TagA\x02WAIT\x01true", "\x02KEYS\x01ké y"])
def test_usual_properties_are_prepared_by_the_compiled_twin(
    compiled: ModuleType, more: str, end: str
) -> None:
    text = f"UNIQ_KEY\x01C0A8{more}{end}"
    assert prepare(compiled, text) == WRITER.prepare_any(text)
    assert prepare(compiled, text, b"") == PropertyWriterWithout().prepare(text)


class PropertyWriterWithout:
    """What a broker without properties of its own would make of a text."""

    def prepare(self, text: str) -> tuple[object, ...]:
        stored = text.encode() if text[-1] == "\x02" else text.encode() + b"\x02"
        return stored, *WRITER.prepare_any(text)[1:]


@pytest.mark.parametrize(
    "text",
    [
        "", "\x02", "UNIQ_KEY", "UNIQ_KEY\x01", "\x01v", "TAGS\x01a", "UNIQ_KEY\x01a\x02\x02",
        "UNIQ_KEY\x01a\x02UNIQ_KEY\x01b", "UNIQ_KEY\x01a\x02DELAY\x013", "UNIQ_KEY\x01a\x02CLUSTER\x01c",
        "UNIQ_KEY\x01a\x02TRAN_MSG\x01true", "UNIQ_KEY\x01\ud800", b"UNIQ_KEY\x01a", None,
    ],
)  # fmt: skip
def test_other_properties_are_left_to_the_pure_code(compiled: ModuleType, text: object) -> None:
    assert prepare(compiled, text) is None
    assert compiled.prepare("UNIQ_KEY\x01a", _NOTEWORTHY, b"", dict) is None
    assert compiled.prepare("UNIQ_KEY\x01a", [], b"", Prepared) is None
    assert compiled.prepare("UNIQ_KEY\x01a", _NOTEWORTHY, "", Prepared) is None


REPLY_TEXTS = st.one_of(
    st.text(max_size=8), st.sampled_from(['"', "\\", "\n", "\x7f", "\ud800", "é", "x" * 5000])
)


@given(
    st.integers(0, 300),
    INT32,
    REPLY_TEXTS,
    st.one_of(st.none(), REPLY_TEXTS),
    st.one_of(st.none(), st.dictionaries(REPLY_TEXTS, REPLY_TEXTS, max_size=3)),
    st.sampled_from([b"", b"body"]),
)
@example(0, 7, "id", "key", {"a": '"'}, b"")
@example(0, 7, "id", None, {}, b"body")
def test_answers_are_written_alike(
    compiled: ModuleType,
    code: int,
    opaque: int,
    msg_id: str,
    transaction_id: str | None,
    fields: dict[str, str] | None,
    body: bytes,
) -> None:
    header = SendMessageResponseHeader(
        msg_id=msg_id, queue_id=1, queue_offset=-5, transaction_id=transaction_id
    )
    request = RemotingCommand.create_request(10, opaque=opaque)
    expected = RemotingCommand.create_response(request, code, header, body=body, ext_fields=fields)
    assert b"".join(encode_reply(opaque, 0, code, header, None, body, fields)) == expected.encode()
    members = '"a":"' + "é" * 10 + '"'
    frame = compiled.json_reply(code, members, fields, 1, ",x:", opaque, "}", len(body))
    if frame is not None:
        general = RemotingCommand.create_response(request, code, None, ext_fields=fields or {})
        texts = general.encode().partition(b'"extFields":{')[2].partition(b'},"flag"')[0]
        joined = members.encode() + (b"," + texts if texts else b"")
        head = b'{"code":%d,"extFields":{%b},"flag":1,x:%d}' % (code, joined, opaque)
        sizes = (len(head) + 4 + len(body)).to_bytes(4, "big") + len(head).to_bytes(4, "big")
        assert frame == sizes + head


@pytest.mark.parametrize(
    "change",
    [
        {0: 2**64}, {1: b"members"}, {1: "\ud800"}, {1: "x" * 4096}, {2: [("a", "b")]}, {2: {"a": 5}}, {2: {5: "a"}},
        {2: {"a": "\n"}}, {2: {'"': "b"}}, {2: {"a": "\\"}}, {3: "1"}, {4: None}, {5: None}, {6: "x" * 4096}, {7: -1},
        {7: 2**31},
    ],
)  # fmt: skip
def test_other_answers_are_left_to_the_pure_code(
    compiled: ModuleType, change: dict[int, object]
) -> None:
    arguments: list[object] = [0, '"a":"b"', {"c": "d"}, 1, ",x:", 7, "}", 0]
    assert compiled.json_reply(*arguments)[8:] == (
        b'{"code":0,"extFields":{"a":"b","c":"d"},"flag":1,x:7}'
    )
    for place, value in change.items():
        arguments[place] = value
    assert compiled.json_reply(*arguments) is None
    assert compiled.json_reply(*arguments[:-1]) is None


def test_an_answer_is_cut_nowhere(compiled: ModuleType) -> None:
    for size in range(4000, 4100):
        frame = compiled.json_reply(0, "x" * size, {"c": "d"}, 1, ",", 7, "}", 0)
        if size + 52 > 4096:
            assert frame is None
        else:
            head = b'{"code":0,"extFields":{%b,"c":"d"},"flag":1,7}' % (b"x" * size)
            assert frame[8:] == head


# ---------------------------------------------------------------------- memory


def calls(compiled: ModuleType) -> Iterable[Callable[[], object]]:
    """Each function with usual and with refused arguments."""
    encode_record(KNOWN, 1, 2, 3)
    buffer, file = bytearray(1000), index_file()
    odd = MessageRecord(topic="unknown here", queue_id=2**40, body=b"")
    late = MessageRecord(
        topic="Known", queue_id=0, body=b"", born_host=("10.0.0.1", 1), store_host=("127.0.0.1", 0)
    )
    text = "UNIQ_KEY\x01a\x02KEYS\x01é"
    yield lambda: put(compiled, buffer, 0, 1000, KNOWN, 1, 2, 3)
    yield lambda: put(compiled, buffer, 0, 1000, late, 2**40, 2**40, 2**40)
    yield lambda: put(compiled, buffer, 0, 1000, odd, 1, 2, 3)
    yield lambda: put(compiled, bytes(1000), 0, 1000, KNOWN, 1, 2, 3)
    yield lambda: compiled.put_keys(file._buffer, *GOOD)
    yield lambda: compiled.put_keys(file._buffer, 2**40, *GOOD[1:])
    yield lambda: compiled.index_hash("Topic", "key")
    yield lambda: compiled.index_hash("Topic", "ké")
    yield lambda: prepare(compiled, text)
    yield lambda: prepare(compiled, text + "\x02\x02")
    yield lambda: prepare(compiled, text + "\x02DELAY\x013")
    yield lambda: prepare(compiled, "\ud800")
    yield lambda: compiled.json_reply(0, "", {"c": "d"}, 1, ",", 7, "}", 0)
    yield lambda: compiled.json_reply(0, "", {"c": "\n"}, 1, ",", 7, "}", 0)


def test_no_call_keeps_memory(compiled: ModuleType) -> None:
    for call in calls(compiled):
        for _ in range(50):
            call()
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(2000):
            call()
        assert sys.getallocatedblocks() - before < 200


def test_no_call_keeps_a_reference(compiled: ModuleType) -> None:
    encode_record(KNOWN, 1, 2, 3)
    watched = [
        None, True, False, Prepared, _NOTEWORTHY, WRITER._suffix_bytes, KNOWN.topic, KNOWN.body, KNOWN.properties,
        KNOWN.born_host, KNOWN.store_host, _host_bytes[KNOWN.born_host], _host_bytes[KNOWN.store_host],
        _topic_parts[KNOWN.topic], _topic_parts[KNOWN.topic][1], crc32,
    ]  # fmt: skip
    for call in calls(compiled):
        for _ in range(10):
            call()
        before = [sys.getrefcount(each) for each in watched]
        for _ in range(300):
            call()
        after = [sys.getrefcount(each) for each in watched]
        assert all(abs(b - a) < 100 for a, b in zip(before, after, strict=True))
