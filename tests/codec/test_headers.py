"""Typed headers: every official class, field, type and required mark is declared; recorded headers survive; bad ones are named."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from golden import LINES, protocol_table, units, wire_frames
from hypothesis import given
from hypothesis import strategies as st

from txrocketmq.codec import headers
from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.header_codec import header_codec
from txrocketmq.errors import HeaderError
from txrocketmq.model import codes

KINDS = {
    "String": "str",
    "Boolean": "bool",
    "boolean": "bool",
    "Integer": "Int32",
    "int": "Int32",
    "Long": "Int64",
    "long": "Int64",
    "BoundaryType": "str",
}
#: Marked required officially, but 4.x sends these requests and answers without any header.
OPTIONAL_FOR_4X = {
    ("GetAllTopicConfigRequestHeader", "topicSeq"),
    ("GetAllTopicConfigResponseHeader", "totalTopicNum"),
    ("GetAllSubscriptionGroupRequestHeader", "groupSeq"),
    ("GetAllSubscriptionGroupResponseHeader", "totalGroupNum"),
}
CLASSES: dict[str, type[headers.Header]] = {
    name: getattr(headers, name) for name in protocol_table("headers")
}


def kind_of(annotation: Any) -> str:
    if annotation == headers.Int32 or annotation == headers.Int32 | None:
        return "Int32"
    if annotation == headers.Int64 or annotation == headers.Int64 | None:
        return "Int64"
    return "bool" if annotation in (bool, bool | None) else "str"


@pytest.mark.parametrize("name", CLASSES)
def test_declared_as_in_the_official_class(name: str) -> None:
    facts = {
        field["wire"]: (
            KINDS[field["type"]],
            field["required"]
            and field.get("initial") is None
            and (name, field["wire"]) not in OPTIONAL_FOR_4X,
            field.get("initial"),
        )
        for field in protocol_table("headers")[name]["fields"]
    }
    declared = {
        info.encode_name: (kind_of(info.type), info.required, info.default)
        for info in msgspec.structs.fields(CLASSES[name])
    }
    assert declared.keys() == facts.keys()
    for wire, (kind, required, initial) in facts.items():
        assert declared[wire][:2] == (kind, required), wire
        if initial is not None and initial != "creation time":
            assert declared[wire][2] == initial, wire


def test_short_names_stand_for_what_the_official_class_says() -> None:
    compared = 0
    for name, facts in protocol_table("headers").items():
        attributes = {info.encode_name: info.name for info in msgspec.structs.fields(CLASSES[name])}
        for field in facts["fields"]:
            if "means" in field and len(field["wire"]) == 1:
                words = re.sub("([A-Z])", r"_\1", field["means"]).lower()
                # The comment in the official class has an older name for this one.
                words = words.replace("consume_retry_times", "max_reconsume_times")
                assert attributes[field["wire"]] == words, name
                compared += 1
    assert compared == 14


def test_every_class_is_exported_and_none_is_invented() -> None:
    own = {"Header", "Int32", "Int64"}
    assert set(headers.__all__) - own == set(CLASSES)


def test_codes_are_the_official_ones() -> None:
    requests = {row["name"]: row["value"] for row in protocol_table("request_codes")}
    responses = {row["name"]: row["value"] for row in protocol_table("response_codes")}
    assert {name: int(code) for name, code in codes.RequestCode.__members__.items()} == requests
    assert {name: int(code) for name, code in codes.ResponseCode.__members__.items()} == responses


def test_languages_serialize_types_and_releases_are_the_official_ones() -> None:
    constants = protocol_table("constants")
    languages = constants["language_codes"]["LanguageCode"]["enum"]
    assert {code.name: int(code) for code in codes.LanguageCode} == {
        row["name"]: row["code"] for row in languages
    }
    types = constants["serialize_types"]["SerializeType"]["enum"]
    assert {code.name: int(code) for code in codes.SerializeType} == {
        row["name"]: row["code"] for row in types
    }
    releases = [row["name"] for row in constants["versions"]["MQVersion.Version"]["enum"]]
    assert list(codes.VERSION_NAMES) == releases
    for name in ("V3_0_11", "V4_9_4", "V4_9_7", "V5_0_0", "V5_4_0"):
        assert getattr(codes, name) == releases.index(name)
    assert codes.version_name(codes.CURRENT_VERSION) == "V5_4_0"
    assert codes.version_name(99999) == "HIGHER_VERSION"


# ------------------------------------------------------------------------ recorded headers


def typed_frames() -> list[tuple[type[headers.Header], dict[str, Any]]]:
    """Recorded requests and successful answers of operations that have a typed header."""
    rows = {row["value"]: row for row in protocol_table("request_codes")}
    found = []
    for frame in wire_frames():
        if frame["kind"] != "remoting":
            continue
        decoded = frame["decoded"]
        is_answer = decoded["flag"] & 1
        row = rows.get(decoded.get("requestCode") if is_answer else decoded["code"], {})
        names = row.get("response_header" if is_answer else "request_header", [])
        # An answer that refuses mostly comes without the fields that its header requires.
        if names and (not is_answer or decoded["code"] == 0):
            found.append((CLASSES[names[0]], frame))
    return found


def same_map(
    cls: type[headers.Header], header: headers.Header, received: dict[str, str]
) -> dict[str, str]:
    """The header as a map, without fields that only the newer release sends (at their official initial value)."""
    texts = header_codec(cls).to_map(header)
    initial = {
        info.encode_name: str(info.default).lower()
        for info in msgspec.structs.fields(cls)
        if info.default is not None
    }
    return {
        wire: text for wire, text in texts.items() if wire in received or initial.get(wire) != text
    }


def test_recorded_headers_come_out_as_they_went_in() -> None:
    seen = set()
    for cls, frame in typed_frames():
        seen.add(cls)
        command = decode_command(bytes.fromhex(frame["frame_hex"])[4:])
        header = command.decode_header(cls)
        received = command.ext_fields or {}
        wires = {info.encode_name for info in msgspec.structs.fields(cls)}
        known = {wire: text for wire, text in received.items() if wire in wires}
        assert same_map(cls, header, received) == known, frame["conversation"]
        # The map and both serializations say the same to a reader.
        assert command.decode_header(cls) == header
        extra = {wire: text for wire, text in received.items() if wire not in wires}
        for serialize_type in (0, 1):
            made = RemotingCommand.create_request(
                command.code, header, ext_fields=extra, serialize_type=serialize_type
            )
            again = decode_command(made.encode()[4:])
            assert again.decode_header(cls) == header or serialize_type
            texts = again.ext_fields or {}
            nothing = {wire for wire, text in received.items() if not text and serialize_type}
            assert texts.keys() >= received.keys() - nothing
            assert all(texts[wire] == received[wire] for wire in received.keys() - nothing)
    assert len(seen) > 80


@pytest.mark.parametrize("line", LINES)
def test_headers_of_the_official_encoder_are_read(line: str) -> None:
    """Both serializations of each vector give the same typed header, with the values of the vector."""
    rows = {row["value"]: row for row in protocol_table("request_codes")}
    sections = units(line)
    for vector in sections["remotingCommands"] + sections.get("popCommands", []):
        names = rows.get(vector["code"], {}).get("request_header", [])
        if not names or vector["flag"] & 1:
            continue
        cls = CLASSES[names[0]]
        header = decode_command(bytes.fromhex(vector["frame_hex"])[4:]).decode_header(cls)
        texts = vector["extFields"] or {}
        if vector["serializeType"] == "ROCKETMQ":
            texts = {wire: text for wire, text in texts.items() if text}
        wires = {info.encode_name for info in msgspec.structs.fields(cls)}
        known = {wire: text for wire, text in texts.items() if wire in wires}
        assert same_map(cls, header, texts) == known, vector["name"]


# ------------------------------------------------------------------------ any header

KIND_VALUES = {
    "str": st.text(max_size=20),
    "bool": st.booleans(),
    "Int32": st.integers(-(2**31), 2**31 - 1),
    "Int64": st.integers(-(2**63), 2**63 - 1),
}
#: Fields that take a few values only.
CHOICES = {
    ("CheckTransactionStateResponseHeader", "commit_or_rollback"): st.sampled_from([8, 12]),
    ("EndTransactionRequestHeader", "commit_or_rollback"): st.sampled_from([0, 8, 12]),
    ("CreateTopicRequestHeader", "topic_filter_type"): st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
}


@st.composite
def any_header(draw: st.DrawFn) -> headers.Header:
    name = draw(st.sampled_from(sorted(CLASSES)))
    values = {}
    for info in msgspec.structs.fields(CLASSES[name]):
        kind = CHOICES.get((name, info.name), KIND_VALUES[kind_of(info.type)])
        if info.required or draw(st.booleans()):
            values[info.name] = draw(kind)
    return CLASSES[name](**values)


@given(any_header(), st.booleans())
def test_any_header_survives_json(header: headers.Header, looked_at: bool) -> None:
    cls = type(header)
    command = decode_command(RemotingCommand.create_request(1, header).encode()[4:])
    if looked_at:
        assert command.ext_fields == header_codec(cls).to_map(header)
    assert command.decode_header(cls) == header


@given(any_header())
def test_any_header_survives_binary_but_for_empty_texts(header: headers.Header) -> None:
    cls = type(header)
    frame = RemotingCommand.create_request(1, header, serialize_type=1).encode()
    command = decode_command(frame[4:])
    texts = header_codec(cls).to_map(header)
    assert (command.ext_fields or {}) == {wire: text for wire, text in texts.items() if text}
    required = {info.encode_name for info in msgspec.structs.fields(cls) if info.required}
    if not any(wire in required and not text for wire, text in texts.items()):
        again = header_codec(cls).to_map(command.decode_header(cls))
        assert {k: v for k, v in again.items() if v} == {k: v for k, v in texts.items() if v}


def test_a_lone_surrogate_is_written_as_a_question_mark() -> None:
    header = headers.GetRouteInfoRequestHeader(topic="a\ud800b")
    for serialize_type in (0, 1):
        request = RemotingCommand.create_request(
            105, header, ext_fields={"k\udfff": "\ud800"}, serialize_type=serialize_type
        )
        request.remark = "\udc00!"
        command = decode_command(request.encode()[4:])
        assert command.ext_fields == {"topic": "a?b", "k?": "?"}
        assert command.remark == "?!"


# ------------------------------------------------------------------------ bad headers


def request(texts: dict[str, Any], serialize_type: int = 0) -> RemotingCommand:
    """A decoded request with this map; in JSON the values may be of any type."""
    head = {"code": 11, "extFields": texts, "opaque": 1, "version": 493}
    if serialize_type == 0:
        data = msgspec.json.encode(head)
        return decode_command(len(data).to_bytes(4, "big") + data)
    made = RemotingCommand.create_request(11, ext_fields=texts, serialize_type=1)
    return decode_command(made.encode()[4:])


GOOD_PULL = {
    "consumerGroup": "g",
    "topic": "t",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "0",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subVersion": "0",
}


@pytest.mark.parametrize("serialize_type", [0, 1])
@pytest.mark.parametrize(
    ("field", "text", "reason"),
    [
        ("topic", None, "is missing"),
        ("queueId", None, "is missing"),
        ("queueId", "x", "'x' is not a whole number"),
        ("queueId", "1.5", "'1.5' is not a whole number"),
        ("queueId", " 1", "' 1' is not a whole number"),
        ("queueId", "٣", "'٣' is not a whole number"),
        ("queueId", "-", "'-' is not a whole number"),
        ("queueId", "2147483648", "'2147483648' is not between -2147483648 and 2147483647"),
        ("queueId", "-2147483649", "'-2147483649' is not between -2147483648 and 2147483647"),
        (
            "queueOffset",
            "9223372036854775808",
            "'9223372036854775808' is not between -9223372036854775808 and 9223372036854775807",
        ),
        (
            "commitOffset",
            "9" * 5000,
            f"'{'9' * 40}'... is not between -9223372036854775808 and 9223372036854775807",
        ),
        (
            "commitOffset",
            "-" + "0" * 5000 + "9" * 30,
            f"'-{'0' * 39}'... is not between -9223372036854775808 and 9223372036854775807",
        ),
        ("maxMsgBytes", "many", "'many' is not a whole number"),
        ("nsd", "perhaps", "'perhaps' is neither true nor false"),
    ],
)
def test_a_bad_field_is_named(
    field: str, text: str | None, reason: str, serialize_type: int
) -> None:
    texts = {**GOOD_PULL, field: text}
    if text is None:
        del texts[field]
    with pytest.raises(HeaderError) as caught:
        request(texts, serialize_type).decode_header(headers.PullMessageRequestHeader)
    assert caught.value.field == field
    assert caught.value.reason == reason


@pytest.mark.parametrize("serialize_type", [0, 1])
@pytest.mark.parametrize("sign", ["", "+", "-"])
def test_zeros_before_a_number_say_nothing_however_many(sign: str, serialize_type: int) -> None:
    texts = {**GOOD_PULL, "commitOffset": sign + "0" * 30_000 + "7"}
    found = request(texts, serialize_type).decode_header(headers.PullMessageRequestHeader)
    assert found.commit_offset == (-7 if sign == "-" else 7)


@pytest.mark.parametrize("absent", ["absent", "null", "empty"])
def test_without_a_map_the_first_required_field_is_missing(absent: str) -> None:
    map_text = {"absent": b"", "null": b'"extFields":null,', "empty": b'"extFields":{},'}[absent]
    data = b'{"code":11,' + map_text + b'"opaque":1}'
    command = decode_command(len(data).to_bytes(4, "big") + data)
    with pytest.raises(HeaderError, match="'consumerGroup': is missing"):
        command.decode_header(headers.PullMessageRequestHeader)
    assert command.decode_header(headers.HeartbeatRequestHeader) == headers.HeartbeatRequestHeader()


def test_values_are_read_as_java_reads_them() -> None:
    header = request(
        {
            **GOOD_PULL,
            "queueId": "+5",
            "maxMsgNums": "007",
            "sysFlag": 6,
            "topic": 12,
            "subscription": None,
            "maxMsgBytes": None,
            "nsd": "TRUE",
            "lo": False,
            "queueOffset": "-9223372036854775808",
            "unheardOf": {"deep": [1]},
        }
    ).decode_header(headers.PullMessageRequestHeader)
    assert header.queue_id == 5
    assert header.max_msg_nums == 7
    assert header.sys_flag == 6
    assert header.topic == "12"
    assert header.subscription is None
    assert header.max_msg_bytes is None
    assert header.namespaced is True
    assert header.logical is False
    assert header.queue_offset == -(2**63)


number_texts = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(
        ["", "+1", "-0", "007", "1.0", "1e3", "null", "true", "0x1", "1_0", "--1", "+"]
    ),
    st.text(max_size=4),
)


@given(st.dictionaries(st.sampled_from([*GOOD_PULL, "maxMsgBytes", "lo"]), number_texts))
def test_any_texts_are_taken_or_refused_alike_in_both_serializations(texts: dict[str, str]) -> None:
    texts = {wire: text for wire, text in texts.items() if text}  # an empty one has no binary form

    def verdict(command: RemotingCommand) -> object:
        try:
            return command.decode_header(headers.PullMessageRequestHeader)
        except HeaderError as refused:
            return refused.field, refused.reason

    found = verdict(request({**GOOD_PULL, **texts}))
    assert found == verdict(request({**GOOD_PULL, **texts}, serialize_type=1))
    # A field that the quick way refuses ("+7") does not change what the others may hold.
    slowly = verdict(request({**GOOD_PULL, "sysFlag": "+7", **texts}))
    if isinstance(found, headers.PullMessageRequestHeader) and "sysFlag" not in texts:
        found.sys_flag = 7
    assert slowly == found


def test_a_null_for_a_field_with_an_initial_value_leaves_that_value() -> None:
    header = request(
        {"topic": "t", "queueId": "1", "committed": None},
    ).decode_header(headers.GetMaxOffsetRequestHeader)
    assert header.committed is True


@pytest.mark.parametrize(
    ("cls", "texts", "field"),
    [
        (
            headers.EndTransactionRequestHeader,
            {
                "producerGroup": "g",
                "tranStateTableOffset": "0",
                "commitLogOffset": "0",
                "commitOrRollback": "3",
                "msgId": "m",
            },
            "commitOrRollback",
        ),
        (
            headers.CheckTransactionStateResponseHeader,
            {
                "producerGroup": "g",
                "tranStateTableOffset": "0",
                "commitLogOffset": "0",
                "commitOrRollback": "0",
            },
            "commitOrRollback",
        ),
        (
            headers.CreateTopicRequestHeader,
            {
                "topic": "t",
                "defaultTopic": "d",
                "readQueueNums": "1",
                "writeQueueNums": "1",
                "perm": "6",
                "topicFilterType": "ANY_TAG",
                "order": "false",
            },
            "topicFilterType",
        ),
    ],
)
@pytest.mark.parametrize("serialize_type", [0, 1])
def test_values_that_official_classes_check_are_checked(
    cls: type[headers.Header], texts: dict[str, str], field: str, serialize_type: int
) -> None:
    with pytest.raises(HeaderError) as caught:
        request(texts, serialize_type).decode_header(cls)
    assert caught.value.field == field


def test_short_and_long_send_headers_have_the_same_attributes() -> None:
    short = {info.name for info in msgspec.structs.fields(headers.SendMessageRequestHeaderV2)}
    long = {info.name for info in msgspec.structs.fields(headers.SendMessageRequestHeader)}
    assert short - long == {"rpc_broker_name"}
    assert long <= short


def test_a_class_with_a_strange_field_type_is_refused() -> None:
    class Strange(headers.Header, kw_only=True):
        ratio: float

    with pytest.raises(TypeError, match="ratio: float is not a header field's type"):
        header_codec(Strange)
