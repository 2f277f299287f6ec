"""Commands: recorded frames come out byte for byte, both serializations say the same, damaged frames raise ProtocolError alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from golden import LINES, frame_body, units, wire_frames
from hypothesis import given, settings
from hypothesis import strategies as st

from txrocketmq.codec import headers
from txrocketmq.codec.command import RemotingCommand, decode_command, encode_reply
from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.errors import HeaderError, ProtocolError
from txrocketmq.model.codes import CURRENT_VERSION, UNKNOWN_LANGUAGE, LanguageCode

JSON, ROCKETMQ = 0, 1
PYTHON = int(LanguageCode.PYTHON)
TYPES = {"JSON": JSON, "ROCKETMQ": ROCKETMQ}


def decode_whole(frame: bytes) -> RemotingCommand:
    """A command from a frame with its length prefix."""
    [content] = FrameSplitter().feed(frame)
    return decode_command(content)


def json_frame(head: bytes, body: bytes = b"") -> bytes:
    """A frame without prefix around the text of a JSON header."""
    return len(head).to_bytes(4, "big") + head + body


def fields_of(command: RemotingCommand) -> dict[str, Any]:
    return {
        "code": command.code,
        "language": command.language,
        "version": command.version,
        "opaque": command.opaque,
        "flag": command.flag,
        "remark": command.remark,
        "serialize_type": command.serialize_type,
        "ext_fields": command.ext_fields,
        "body": command.body,
    }


# ------------------------------------------------------------------------ recorded frames


def test_all_recorded_frames_are_read_and_written_byte_for_byte() -> None:
    counts = {"JSON": 0, "ROCKETMQ": 0}
    for frame in wire_frames():
        if frame["kind"] != "remoting":
            continue
        data, facts = bytes.fromhex(frame["frame_hex"]), frame["decoded"]
        command = decode_whole(data)
        assert command.encode() == data
        texts = facts["extFields"]
        if texts and facts["serializeType"] == "ROCKETMQ":
            texts = {name: text for name, text in texts.items() if text}
        assert fields_of(command) == {
            "code": facts["code"],
            "language": int(LanguageCode[facts["language"]]),
            "version": facts["version"],
            "opaque": facts["opaque"],
            "flag": facts["flag"],
            "remark": facts["remark"],
            "serialize_type": TYPES[facts["serializeType"]],
            "ext_fields": texts or (None if command.ext_fields is None else {}),
            "body": frame_body(frame) if facts["body_len"] else b"",
        }
        # Also when the map was looked at, and when it is written anew from its texts.
        assert command.encode() == data
        whole = texts is None or len(texts) == len(facts["extFields"])
        command.ext_fields = None if command.ext_fields is None else dict(command.ext_fields)
        assert command.encode() == data or not whole
        counts[facts["serializeType"]] += 1
    assert counts == {"JSON": 6895, "ROCKETMQ": 285}


@pytest.mark.parametrize("line", LINES)
def test_frames_of_the_official_encoder_can_be_made(line: str) -> None:
    sections = units(line)
    vectors = sections["remotingCommands"] + sections.get("popCommands", [])
    assert len(vectors) > 20
    for vector in vectors:
        data = bytes.fromhex(vector["frame_hex"])
        command = decode_whole(data)
        assert command.encode() == data
        is_json = vector["serializeType"] == "JSON"
        texts = command.ext_fields
        given_texts = vector["extFields"]
        if not is_json:
            given_texts = {k: v for k, v in (given_texts or {}).items() if v} or None
        assert texts == given_texts
        assert command.remark == (vector["remark"] if is_json else vector["remark"] or None)
        assert command.body == bytes.fromhex(vector["body_hex"] or "")
        assert (command.version, command.flag, command.opaque) == (
            vector["version"],
            vector["flag"],
            vector["opaque"],
        )
        # The binary header has 16 bits for the code: POP's 200050 is not all there.
        narrow = vector["code"] if is_json else vector["code"] & 0xFFFF
        assert command.code == narrow
        made = RemotingCommand.create_request(
            vector["code"],
            ext_fields=texts,
            body=command.body,
            opaque=vector["opaque"],
            flag=vector["flag"],
            language=int(LanguageCode.JAVA),
            version=vector["version"],
            serialize_type=TYPES[vector["serializeType"]],
        )
        made.remark = vector["remark"]
        if texts == vector["extFields"]:
            assert made.encode() == data, vector["name"]


# ------------------------------------------------------------------------ any command

java_int = st.integers(-(2**31), 2**31 - 1)
short = st.integers(-(2**15), 2**15 - 1)
texts = st.text(max_size=20)
filled = st.text(min_size=1, max_size=20)


@st.composite
def commands(draw: st.DrawFn) -> RemotingCommand:
    binary = draw(st.booleans())
    number = short if binary else java_int
    value = filled if binary else texts
    command = RemotingCommand.create_request(
        draw(number),
        ext_fields=draw(st.none() | st.dictionaries(value, value, max_size=6)),
        body=draw(st.binary(max_size=80)),
        opaque=draw(java_int),
        flag=draw(java_int),
        language=draw(st.sampled_from([int(code) for code in LanguageCode])),
        version=draw(number),
        serialize_type=int(binary),
    )
    command.remark = draw(st.none() | value)
    return command


def expected_fields(command: RemotingCommand) -> dict[str, Any]:
    """What a reader sees: an empty map cannot be told from none in a binary header."""
    fields = fields_of(command)
    if command.serialize_type == ROCKETMQ and not fields["ext_fields"]:
        fields["ext_fields"] = None
    return fields


@given(st.lists(commands(), max_size=5), st.lists(st.integers(0, 3000), max_size=6))
def test_a_stream_of_commands_survives_any_cut(
    sent: list[RemotingCommand], cuts: list[int]
) -> None:
    stream = b"".join(command.encode() for command in sent)
    splitter = FrameSplitter()
    received = []
    bounds = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    for start, end in pairwise(bounds):
        received += [decode_command(frame) for frame in splitter.feed(stream[start:end])]
    assert [fields_of(command) for command in received] == [expected_fields(c) for c in sent]


@given(commands())
def test_json_and_binary_say_the_same(command: RemotingCommand) -> None:
    sent = expected_fields(command)
    as_received = decode_whole(command.encode())
    assert fields_of(as_received) == sent
    assert as_received.encode() == command.encode()
    as_received.serialize_type = 1 - command.serialize_type
    if max(abs(command.code), abs(command.version)) < 2**15:
        other = decode_whole(as_received.encode())
        expected = expected_fields(as_received)
        if other.serialize_type == ROCKETMQ:
            kept = {k: v for k, v in (expected["ext_fields"] or {}).items() if v}
            expected["ext_fields"] = kept or (None if not expected["ext_fields"] else {})
            expected["remark"] = expected["remark"] or None
        assert fields_of(other) == expected


@settings(max_examples=max(300, settings.default.max_examples))
@given(commands(), st.data())
def test_damaged_frames_raise_protocol_or_header_errors_alone(
    command: RemotingCommand, draw: st.DataObject
) -> None:
    frame = bytearray(command.encode()[4:])
    for _ in range(draw.draw(st.integers(1, 3))):
        position = draw.draw(st.integers(0, len(frame) - 1))
        kind = draw.draw(st.sampled_from(["flip", "cut", "put"]))
        if kind == "flip":
            frame[position] ^= 1 << draw.draw(st.integers(0, 7))
        elif kind == "cut" and position:
            del frame[position:]
        else:
            frame[position:position] = draw.draw(
                st.sampled_from([b"\xff", b"{", b'"', b"\0", b"\\u"])
            )
    try:
        found = decode_command(bytes(frame))
    except ProtocolError:
        return
    texts = found.ext_fields
    assert texts is None or all(isinstance(text, str) for text in (*texts, *texts.values()))
    for cls in (headers.SendMessageRequestHeaderV2, headers.PullMessageRequestHeader):
        with pytest.raises(HeaderError):
            found.decode_header(cls)
    assert found.decode_header(headers.GetAllProducerInfoRequestHeader)
    # What was taken can be written again, and then says the same.
    again = decode_whole(found.encode())
    if found.language == UNKNOWN_LANGUAGE and found.serialize_type == JSON:
        found.language = LanguageCode.JAVA  # it has no name to be written
    assert fields_of(again) == fields_of(found)


@given(
    st.binary(max_size=60), st.sampled_from([b"", b"\0\0\0\x10", b"\x01\0\0\x18", b"\0\0\0\x02{}"])
)
def test_random_bytes_raise_protocol_errors_alone(noise: bytes, start: bytes) -> None:
    try:
        command = decode_command(start + noise)
    except ProtocolError:
        return
    assert fields_of(command)


# ------------------------------------------------------------------------ damage with a reason


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "a frame of 0 bytes is too short for a command"),
        (b"\0\0\0", "a frame of 3 bytes is too short for a command"),
        (b"\0\0\0\x05{}", "header length 5 exceeds the 2 bytes of the frame"),
        (b"\0\xff\xff\xff{}", "header length 16777215 exceeds the 2 bytes of the frame"),
        (b"\x02\0\0\x02{}", "serialize type 2 is neither 0 (JSON) nor 1 (ROCKETMQ)"),
        (b"\xff\0\0\x02{}", "serialize type 255 is neither 0 (JSON) nor 1 (ROCKETMQ)"),
        (b"\0\0\0\0", "the header is not JSON: Input data was truncated"),
        (json_frame(b"[1]"), "the header is not JSON: Expected `object`, got `array`"),
        (json_frame(b'{"code":1'), "the header is not JSON: Input data was truncated"),
        (json_frame(b'{"remark":\xff}'), "the header is not JSON: "),
        (json_frame(b'{"remark":"\xff'), "the header is not JSON: "),
        (json_frame(b'{"remark":"\\ud8"}'), "the header is not JSON: "),
        (json_frame(b'{"extFields":' + b"[" * 100_000), "the header is nested too deeply"),
        (json_frame(b'{"extFields":[1]}'), "extFields is not an object"),
        (json_frame(b'{"extFields":"text"}'), "extFields is not an object"),
        (json_frame(b'{"code":"ten"}'), "the header's code is unreadable: "),
        (json_frame(b'{"code":2147483648}'), "the header's code is unreadable: "),
        (json_frame(b'{"opaque":1.5}'), "the header's opaque is unreadable: "),
        (json_frame(b'{"flag":[]}'), "the header's flag is unreadable: "),
        (json_frame(b'{"version":true}'), "the header's version is unreadable: "),
        (json_frame(b'{"remark":{}}'), "the header's remark is unreadable: "),
        (json_frame(b'{"language":[]}'), "the header's language is unreadable: "),
    ],
)
def test_a_damaged_frame_is_refused_with_its_reason(frame: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_command(frame)
    assert str(caught.value).startswith(reason)


def binary_frame(
    *, remark: bytes = b"", remark_size: int | None = None, entries: bytes = b"",
    entries_size: int | None = None, more: bytes = b"",
) -> bytes:  # fmt: skip
    """A frame with a binary header, with lengths that may lie."""
    head = bytes.fromhex("000a0001ed0000000700000000")
    head += (len(remark) if remark_size is None else remark_size).to_bytes(4, "big", signed=True)
    head += remark
    head += (len(entries) if entries_size is None else entries_size).to_bytes(4, "big", signed=True)
    head += entries + more
    return (1 << 24 | len(head)).to_bytes(4, "big") + head


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"\x01\0\0\x05abcde", "code: 12 bytes missing"),
        (binary_frame(remark_size=-1), "remark: length "),
        (binary_frame(remark_size=2**31 - 1), "remark: length 2147483647, but 4 bytes left"),
        (binary_frame(entries_size=-1), "ext_fields: length "),
        (binary_frame(entries_size=9), "ext_fields: length 9, but 0 bytes left"),
        (binary_frame(entries=b"\0"), "an entry is cut off at byte 1"),
        (binary_frame(entries=b"\0\x01k"), "an entry is cut off at byte 3"),
        (binary_frame(entries=b"\xff\xffk\0\0\0\0"), "an entry is cut off at byte 7"),
        (binary_frame(entries=b"\0\x01k\0\0\0\x05v"), "the value of 'k' is 4 bytes short"),
        (binary_frame(entries=b"\0\x01k\xff\xff\xff\xffv"), "the value of 'k' is "),
        (binary_frame(more=b"??"), "the header holds 2 bytes after its map"),
    ],
)
def test_a_damaged_binary_header_is_refused_with_its_reason(frame: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_command(frame)
    assert str(caught.value).startswith(reason)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b"T\xff\xfe!", "T\ufffd\ufffd!"),
        (b"\xc3", "\ufffd"),
        (b"caf\xc3\xa9 \xe4\xb8", "café \ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
    ],
)
def test_bytes_that_are_no_text_are_replaced_in_either_serialization(
    written: bytes, read: str
) -> None:
    size = len(written).to_bytes(4, "big")
    key = len(written).to_bytes(2, "big") + written
    json_text = b'{"remark":"%b","extFields":{"%b":"%b","b":"\xe4\xbd\xa0"}}' % ((written,) * 3)
    entries = key + size + written + b"\0\x01b\0\0\0\x03\xe4\xbd\xa0"
    for frame in (json_frame(json_text), binary_frame(remark=written, entries=entries)):
        command = decode_command(frame)
        assert command.remark == read
        assert command.ext_fields == {read: read, "b": "你"}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b"a\\ud800b", "a?b"),
        (b"\\uDFFF\\ud83d\\ude00\\ud83d", "?😀?"),
        (b"\\\\ud800\\ude00", "\\ud800?"),
        (b"K\x01v\x02\n", "K\x01v\x02\n"),
    ],
)
def test_what_json_forbids_in_texts_is_read_as_in_java(written: bytes, read: str) -> None:
    command = decode_command(json_frame(b'{"extFields":{"a":"%b"}}' % written))
    assert command.ext_fields == {"a": read}


def test_a_header_of_nothing_but_control_characters_is_refused_at_once() -> None:
    head = b'{"code":105,"remark":"' + b"\1" * 1_000_000 + b'"}'
    with pytest.raises(ProtocolError, match="control characters"):
        decode_command(json_frame(head))


def test_a_map_nested_almost_too_deep_never_raises_anything_else() -> None:
    for depth in range(700, 1100, 3):
        text = b'{"extFields":{"topic":' + b"[" * depth + b"]" * depth + b"}}"
        try:
            command = decode_command(json_frame(text))
        except ProtocolError:
            continue
        header = command.decode_header(headers.GetRouteInfoRequestHeader)
        assert header.topic == "[" * depth + "]" * depth


def deep_in_the_stack(frames: int, function: Callable[[], object]) -> object:
    return deep_in_the_stack(frames - 1, function) if frames else function()


def test_a_deep_map_read_deep_in_the_stack_is_a_bad_header() -> None:
    text = b'{"extFields":{"topic":' + b"[" * 800 + b"]" * 800 + b"}}"
    command = decode_command(json_frame(text))

    def decode() -> object:
        with pytest.raises(HeaderError, match="'extFields': unreadable: "):
            return command.decode_header(headers.GetRouteInfoRequestHeader)

    def look() -> object:
        with pytest.raises(ProtocolError, match="extFields are unreadable: "):
            return command.ext_fields

    deep_in_the_stack(500, decode)
    deep_in_the_stack(500, look)


# ------------------------------------------------------------------------ reading leniently


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ('"JAVA"', LanguageCode.JAVA),
        ('"RUST"', LanguageCode.RUST),
        ("12", LanguageCode.RUST),
        ("0", LanguageCode.JAVA),
        ("14", UNKNOWN_LANGUAGE),
        ("-1", UNKNOWN_LANGUAGE),
        ('"KLINGON"', UNKNOWN_LANGUAGE),
        ('"java"', UNKNOWN_LANGUAGE),
        ("null", UNKNOWN_LANGUAGE),
    ],
)
def test_a_language_is_a_name_an_ordinal_or_unknown(text: str, language: int) -> None:
    command = decode_command(json_frame(f'{{"code":34,"language":{text},"opaque":5}}'.encode()))
    assert command.language == language
    again = decode_whole(command.encode())
    assert (again.code, again.opaque) == (34, 5)
    written = json.loads(command.encode()[8:]).get("language")
    assert written == (None if language == UNKNOWN_LANGUAGE else LanguageCode(language).name)


def test_an_unknown_language_of_a_binary_header_is_kept() -> None:
    frame = bytearray(RemotingCommand.create_request(34, serialize_type=ROCKETMQ).encode())
    frame[10] = 99
    command = decode_whole(bytes(frame))
    assert command.language == 99
    assert command.encode() == frame
    command.language = UNKNOWN_LANGUAGE
    assert decode_whole(command.encode()).language == UNKNOWN_LANGUAGE


def test_what_is_absent_is_as_in_a_fresh_command() -> None:
    assert fields_of(decode_command(json_frame(b"{}", b"body"))) == {
        "code": 0,
        "language": int(LanguageCode.JAVA),
        "version": 0,
        "opaque": 0,
        "flag": 0,
        "remark": None,
        "serialize_type": JSON,
        "ext_fields": None,
        "body": b"body",
    }


def test_quoted_and_null_numbers_and_strange_members_are_read() -> None:
    text = (
        b'{"code":"10","opaque":"-7","flag":null,"version":493.0,"unheard":{"of":[1]},"remark":"r"}'
    )
    command = decode_command(json_frame(text))
    assert (command.code, command.opaque, command.flag) == (10, -7, 0)
    assert (command.version, command.remark) == (493, "r")


def test_the_map_of_a_json_header_holds_texts() -> None:
    text = '{"n":1,"t":true,"x":null,"d":1.50,"o":{"a":[1]},"s":"\\u4e3b\\n","主":"题"}'
    command = decode_command(json_frame(f'{{"extFields":{text}}}'.encode()))
    assert command.ext_fields == {
        "n": "1",
        "t": "true",
        "d": "1.50",
        "o": '{"a":[1]}',
        "s": "主\n",
        "主": "题",
    }


def test_an_empty_value_of_a_binary_header_is_absent_but_kept_for_writing() -> None:
    data = binary_frame(entries=b"\0\x01a\0\0\0\0" + b"\0\x01b\0\0\0\x01x")
    command = decode_command(data)
    assert command.ext_fields == {"b": "x"}
    assert command.encode()[4:] == data
    command.ext_fields["b"] = "y"
    assert decode_whole(command.encode()).ext_fields == {"b": "y"}


def test_changes_of_the_map_are_written() -> None:
    for serialize_type in (JSON, ROCKETMQ):
        sent = RemotingCommand.create_request(
            105,
            headers.GetRouteInfoRequestHeader(topic="T"),
            ext_fields={"AccessKey": "a"},
            serialize_type=serialize_type,
        )
        assert sent.ext_fields == {"topic": "T", "AccessKey": "a"}
        sent.ext_fields["Signature"] = "s"
        command = decode_whole(sent.encode())
        assert list((command.ext_fields or {}).items()) == [
            ("topic", "T"),
            ("AccessKey", "a"),
            ("Signature", "s"),
        ]
        assert command.ext_fields is not None
        del command.ext_fields["AccessKey"]
        assert decode_whole(command.encode()).ext_fields == {"topic": "T", "Signature": "s"}
        command.ext_fields = None
        assert decode_whole(command.encode()).ext_fields is None


# ------------------------------------------------------------------------ making


def test_the_bytes_of_a_request() -> None:
    request = RemotingCommand.create_request(
        105, headers.GetRouteInfoRequestHeader(topic='a"b\n'), body=b"xyz", opaque=8
    )
    head = (
        b'{"code":105,"extFields":{"topic":"a\\"b\\n"},"flag":0,"language":"PYTHON","opaque":8,'
        b'"serializeTypeCurrentRPC":"JSON","version":493}'
    )
    assert request.encode() == (
        (4 + len(head) + 3).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head + b"xyz"
    )
    request = RemotingCommand.create_request(
        105,
        headers.GetRouteInfoRequestHeader(topic="T"),
        body=b"xyz",
        opaque=8,
        language=int(LanguageCode.JAVA),
        version=471,
        serialize_type=ROCKETMQ,
    )
    assert request.encode().hex() == (
        "000000280100002100690001d70000000800000000000000000000000c0005746f706963000000015478797a"
    )


def test_a_response_takes_opaque_and_serialize_type_from_its_request() -> None:
    for serialize_type in (JSON, ROCKETMQ):
        asked = RemotingCommand.create_request(30, opaque=77, serialize_type=serialize_type)
        response = RemotingCommand.create_response(
            asked,
            0,
            headers.GetMaxOffsetResponseHeader(offset=5),
            remark="fine",
            body=b"b",
            ext_fields={"x": "y"},
        )
        assert fields_of(decode_whole(response.encode())) == {
            "code": 0,
            "language": PYTHON,
            "version": CURRENT_VERSION,
            "opaque": 77,
            "flag": 1,
            "remark": "fine",
            "serialize_type": serialize_type,
            "ext_fields": {"offset": "5", "x": "y"},
            "body": b"b",
        }
        assert response.is_response
        assert not response.is_oneway
        assert response.decode_header(headers.GetMaxOffsetResponseHeader).offset == 5


def test_flags() -> None:
    oneway = RemotingCommand.create_request(37, flag=2)
    assert oneway.is_oneway
    assert not oneway.is_response


REPLY_HEADERS = [
    None,
    headers.SendMessageResponseHeader(msg_id="M", queue_id=1, queue_offset=2),
    headers.GetConsumerListByGroupResponseHeader(),
    headers.RegisterBrokerResponseHeader(),
]


@pytest.mark.parametrize("serialize_type", [JSON, ROCKETMQ])
@pytest.mark.parametrize("header", REPLY_HEADERS)
@pytest.mark.parametrize("texts", [None, {}, {"MSG_REGION": "r", "k": "主"}])
@pytest.mark.parametrize("remark", [None, "", "no\nsuch topic"])
@pytest.mark.parametrize("body", [b"", b"body", [b"bo", b"", b"dy"], []])
def test_the_quick_reply_equals_the_response_command(
    serialize_type: int,
    header: headers.Header | None,
    texts: dict[str, str] | None,
    remark: str | None,
    body: bytes | list[bytes],
) -> None:
    asked = RemotingCommand.create_request(310, opaque=-5, serialize_type=serialize_type)
    whole = body if isinstance(body, bytes) else b"".join(body)
    slow = RemotingCommand.create_response(
        asked, 1, header, remark=remark, body=whole, ext_fields=texts
    )
    quick = encode_reply(-5, serialize_type, 1, header, remark, body, texts)
    assert b"".join(quick) == slow.encode()


def test_a_header_that_is_too_long_is_refused() -> None:
    for serialize_type in (JSON, ROCKETMQ):
        command = RemotingCommand.create_request(
            10, ext_fields={"k": "x" * (1 << 24)}, serialize_type=serialize_type
        )
        with pytest.raises(ProtocolError, match="cannot be written, the most is 16777215"):
            command.encode()
        with pytest.raises(ProtocolError, match="cannot be written"):
            encode_reply(1, serialize_type, 0, None, "x" * (1 << 24), b"", None)


def test_a_command_shows_itself() -> None:
    command = RemotingCommand.create_request(105, ext_fields={"topic": "T"}, body=b"12", opaque=3)
    assert repr(command) == (
        "<RemotingCommand code=105 opaque=3 flag=0 version=493 remark=None"
        " ext_fields={'topic': 'T'} body=2 bytes>"
    )
