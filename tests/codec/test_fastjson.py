"""The JSON dialect of official software: bare keys become texts, texts stay as they are, nothing but BodyError comes out."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from golden import LINES, frame_body, units, wire_frames
from hypothesis import given
from hypothesis import strategies as st

from txrocketmq.codec.bodies import decode_body
from txrocketmq.codec.fastjson import MAX_CONTROLS, MAX_DEPTH, MAX_TEXTS, loads, standardize
from txrocketmq.errors import BodyError
from txrocketmq.model.topic import DataVersion


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"192.0.2.1:10911",-1:"x"}', {"0": "192.0.2.1:10911", "-1": "x"}),
        ('{"a":{ 12 :\n{3:4}}, 5 : [ {6:7} ]}', {"a": {"12": {"3": 4}}, "5": [{"6": 7}]}),
        (
            '{"t":{{"brokerName":"b","queueId":1,"topic":"t"}:{"max":9},{"q":2}:3}}',
            {"t": {'{"brokerName":"b","queueId":1,"topic":"t"}': {"max": 9}, '{"q":2}': 3}},
        ),
        ('{{"topic":"a}:\\"{0:"}:1,"z":2}', {'{"topic":"a}:\\"{0:"}': 1, "z": 2}),
        ('{{"m":{1:2}}:3}', {'{"m":{"1":2}}': 3}),
        ("{{}:1}", {"{}": 1}),
        ('{"a":"{0:1,2:3}","b":"}:","c":"\\\\"}', {"a": "{0:1,2:3}", "b": "}:", "c": "\\"}),
        ('{"主题":{0:"标签"}}', {"主题": {"0": "标签"}}),
        ("[1,2]", [1, 2]),
        ("null", None),
    ],
)
def test_reads(text: str, value: object) -> None:
    assert loads(text.encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b'{"a',
        b'{0:"a',
        b'{0:"a\\',
        b"{1:2}}",
        b"{1:2]",
        b'{{"a":1}:1',
        b'{{"a":1}:1}}',
        b'{"x":1}:',
        b"{1 2:3}",
        b"{-:1}",
        b"{01:1}x",
        b'{0:\\"a"}',
        b"\xff",
        b'{{{"a":1}:2}:3}',
        b"not json",
    ],
)
def test_refuses_what_is_neither_json_nor_the_dialect(text: bytes) -> None:
    with pytest.raises(BodyError, match=r"^not JSON: "):
        loads(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a":"\xff"}', {"a": "\ufffd"}),
        (b'{"a":"\xff",1:2}', {"a": "\ufffd", "1": 2}),
        (b'{{"a":"\xff"}:2}', {'{"a":"\ufffd"}': 2}),
        (b'{\n"a":\t"b\nc\x01\x02d\\\\\x1f"}', {"a": "b\nc\x01\x02d\\\x1f"}),
        (b'{1:"b\nc"}', {"1": "b\nc"}),
        (b'{"a":"\\ud800",1:"\\udc00\\ud83d\\ude00"}', {"a": "?", "1": "?😀"}),
    ],
)
def test_what_is_no_text_is_replaced_as_in_java(text: bytes, value: object) -> None:
    assert loads(text) == value


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b"{1:", b'{{"a":1}:'])
def test_nesting_has_a_bound(opening: bytes) -> None:
    with pytest.raises(BodyError, match=r"deep|not JSON"):
        loads(opening * 50_000)
    with pytest.raises(BodyError, match=f"nested more than {MAX_DEPTH} deep"):
        loads(b'{{"k":1}:' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}")


def test_hostile_texts_cost_no_more_than_their_length() -> None:
    for text in (b'"' * 400_001, b'\\"' * 200_000, b"{" + b" " * 400_000, b"}" * 400_000):
        with pytest.raises(BodyError):
            loads(text)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=12,
)


class Bare:
    """A map to be written with its keys bare; their texts are what a reader gets."""

    def __init__(self, members: dict[str, Any]) -> None:
        self.members = members


number_keys = st.integers(-(2**31), 2**31 - 1).map(str)
object_keys = st.dictionaries(st.text(max_size=4), values, max_size=3).map(
    lambda key: json.dumps(key, separators=(",", ":"), ensure_ascii=False)
)
dialect_values = st.recursive(
    values,
    lambda inner: (
        st.dictionaries(number_keys | object_keys, inner, max_size=3).map(Bare)
        | st.lists(inner, max_size=2)
    ),
    max_leaves=10,
)


def plain(value: Any) -> Any:
    if isinstance(value, Bare):
        return {key: plain(member) for key, member in value.members.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def written(value: Any) -> str:
    if isinstance(value, Bare):
        return "{" + ",".join(f"{k}:{written(v)}" for k, v in value.members.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


@given(values)
def test_standard_json_comes_back_unchanged(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    assert standardize(text) == text
    assert loads(text) == json.loads(text)


@given(dialect_values)
def test_any_bare_keys_are_read(value: object) -> None:
    assert loads(written(value).encode("utf-8", "replace")) == plain(value)


@given(dialect_values, st.data())
def test_damaged_texts_raise_nothing_else(value: object, draw: st.DataObject) -> None:
    text = bytearray(written(value).encode("utf-8", "replace"))
    for _ in range(draw.draw(st.integers(1, 3))):
        position = draw.draw(st.integers(0, len(text)))
        text[position : position + 1] = draw.draw(
            st.sampled_from([b"", b"{", b"}", b'"', b":", b",", b"\\", b"\xff", b"0", b"["])
        )
    with suppress(BodyError):
        loads(bytes(text))


def test_all_recorded_bodies_are_read() -> None:
    kinds = {"json": 0, "json-nonstandard": 0}
    for frame in wire_frames():
        kind = frame["decoded"]["body_kind"] if frame["kind"] == "remoting" else ""
        if kind not in kinds:
            continue
        body = frame_body(frame)
        assert json.loads(standardize(body)) == loads(body)
        assert (standardize(body) == body) == (kind == "json")
        kinds[kind] += 1
    assert all(kinds.values())


@pytest.mark.parametrize("line", LINES)
def test_bodies_of_the_official_serializer_are_read(line: str) -> None:
    for body in units(line)["bodies"]:
        assert isinstance(loads(body["text"].encode()), dict), body["note"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"a":{' + b'"k":{},' * 100_000, "truncated"),
        (b'"' * (2 * MAX_TEXTS + 1), "too much for the dialect"),
        (b"{0:1," + b'"k":1,' * MAX_TEXTS + b'"k":}', "too much for the dialect"),
        (b'{"k":["' + b"\1" * MAX_CONTROLS + b'","\2"]}', "control characters in texts"),
    ],
    ids=["cut short", "nothing but quotes", "more texts than any body has", "control characters"],
)
def test_what_would_take_long_to_be_understood_is_refused_at_once(data: bytes, words: str) -> None:
    with pytest.raises(BodyError, match=words):
        loads(data)
    with pytest.raises(BodyError, match=words):
        decode_body(DataVersion, data)
