"""Lowered codecs equal their Construct declarations: both ways, and on damaged bytes both refuse or both agree."""

from __future__ import annotations

from typing import Any

import construct
import pytest
from golden import protocol_table
from hypothesis import given, settings
from hypothesis import strategies as st

from txrocketmq.codec import layouts
from txrocketmq.codec.lower import Lowered, lower, lower_pairs

RECORDS = {
    f"record_v{version}_{born}{store}": layouts.message_record(
        version, born_ipv6=born == "6", store_ipv6=store == "6"
    )
    for version in (1, 2)
    for born in "46"
    for store in "46"
}
LAYOUTS: dict[str, construct.Construct] = {
    name.lower(): getattr(layouts, name)
    for name in (
        "FRAME_PREFIX",
        "COMMAND_FRAME",
        "BINARY_HEADER",
        "MAP_ENTRY",
        "HOST_V4",
        "HOST_V6",
        "BLANK_RECORD",
        "CLIENT_BATCH_ITEM",
        "CONSUME_QUEUE_UNIT",
        "CONSUME_QUEUE_EXT_UNIT",
        "BATCH_CONSUME_QUEUE_UNIT",
        "INDEX_HEADER",
        "INDEX_SLOT",
        "INDEX_ENTRY",
        "STORE_CHECKPOINT",
    )
} | RECORDS


class Refused(Exception):
    """What the lowered codecs of this file raise."""


LOWERED: dict[str, Lowered] = {name: lower(layout, Refused) for name, layout in LAYOUTS.items()}
PAIRS = lower_pairs(layouts.MAP_ENTRIES, Refused)


def values_of(member: Any) -> st.SearchStrategy[Any]:
    """Values that fit a member of a declaration."""
    inner = member.subcon
    if isinstance(inner, construct.FormatField):
        bits = 8 * inner.length
        signed = inner.fmtstr[1].islower()
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        return st.integers(low, high)
    if isinstance(inner, construct.Bytes):
        return st.binary(min_size=inner.length, max_size=inner.length)
    if isinstance(inner, construct.StringEncoded):
        return st.text(max_size=30)
    return st.binary(max_size=60)


def fitting(name: str) -> st.SearchStrategy[list[Any]]:
    return st.tuples(*(values_of(member) for member in LAYOUTS[name].subcons)).map(list)


def by_construct(name: str, data: bytes) -> tuple[list[Any], int] | None:
    """Values and end as the declaration reads them, None when it refuses."""
    try:
        found = construct.Struct("value" / LAYOUTS[name], "end" / construct.Tell).parse(data)
    except construct.ConstructError:
        return None
    return [found.value[member] for member in LOWERED[name].names], found.end


def by_lowered(name: str, data: bytes) -> tuple[list[Any], int] | None:
    try:
        *values, end = LOWERED[name].parse(data, 0, len(data))
    except Refused:
        return None
    return values, end


def damage(data: bytes, draw: st.DataObject) -> bytes:
    kind = draw.draw(st.sampled_from(["none", "cut", "flip", "longer"]))
    if kind == "cut":
        return data[: draw.draw(st.integers(0, len(data)))]
    if kind == "longer":
        return data + draw.draw(st.binary(max_size=9))
    if kind == "flip" and data:
        bit = draw.draw(st.integers(0, 8 * len(data) - 1))
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        return bytes(flipped)
    return data


@settings(max_examples=max(600, settings.default.max_examples))
@given(st.sampled_from(sorted(LAYOUTS)), st.data())
def test_lowered_equals_declared(name: str, draw: st.DataObject) -> None:
    values = draw.draw(fitting(name))
    declared = LAYOUTS[name].build(dict(zip(LOWERED[name].names, values, strict=True)))
    assert LOWERED[name].build(*values) == declared
    assert by_lowered(name, declared) == (values, len(declared))
    damaged = damage(declared, draw)
    assert by_lowered(name, damaged) == by_construct(name, damaged)


@pytest.mark.parametrize("name", ["binary_header", "client_batch_item", "record_v1_44"])
def test_every_cut_and_every_bit_flip_gives_the_same_verdict(name: str) -> None:
    values: list[Any] = []
    for member in LAYOUTS[name].subcons:
        inner = member.subcon
        if isinstance(inner, construct.FormatField):
            values.append(7)
        elif isinstance(inner, construct.Bytes):
            values.append(bytes(range(inner.length)))
        else:
            values.append("naïve" if isinstance(inner, construct.StringEncoded) else b"bytes")
    data = LOWERED[name].build(*values)
    for cut in range(len(data) + 1):
        assert by_lowered(name, data[:cut]) == by_construct(name, data[:cut])
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert by_lowered(name, bytes(flipped)) == by_construct(name, bytes(flipped))


def test_values_that_do_not_fit_are_refused_by_both() -> None:
    unfit: dict[str, list[Any]] = {
        "host_v4": [b"12345", 1],
        "index_slot": [1 << 31],
        "record_v1_44": [0] * 9 + [bytes(8), 0, bytes(8), 0, 0, b"", "t" * 128, b""],
        "map_entry": ["\ud800", "v"],
    }
    for name, values in unfit.items():
        with pytest.raises(Refused):
            LOWERED[name].build(*values)
        with pytest.raises((construct.ConstructError, UnicodeEncodeError)):
            LAYOUTS[name].build(dict(zip(LOWERED[name].names, values, strict=True)))


pairs_strategy = st.dictionaries(st.text(max_size=12), st.text(max_size=20), max_size=8)


def pairs_by_construct(data: bytes) -> dict[str, str] | None:
    try:
        return {entry.key: entry.value for entry in layouts.MAP_ENTRIES.parse(data)}
    except construct.ConstructError:
        return None


def pairs_by_lowered(data: bytes) -> dict[str, str] | None:
    try:
        return PAIRS.parse(data)
    except Refused:
        return None


@given(pairs_strategy, st.data())
def test_lowered_map_equals_declared(pairs: dict[str, str], draw: st.DataObject) -> None:
    entries = [{"key": key, "value": value} for key, value in pairs.items()]
    data = PAIRS.build(pairs)
    assert data == layouts.MAP_ENTRIES.build(entries)
    assert list(PAIRS.parse(data).items()) == list(pairs.items())
    damaged = damage(data, draw)
    assert pairs_by_lowered(damaged) == pairs_by_construct(damaged)


def test_every_flip_of_a_map_gives_the_same_verdict() -> None:
    data = PAIRS.build({"topic": "主题", "queueId": "3", "": "x" * 130, "Ünïcode": ""})
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert pairs_by_lowered(bytes(flipped)) == pairs_by_construct(bytes(flipped))
    for cut in range(len(data)):
        assert pairs_by_lowered(data[:cut]) == pairs_by_construct(data[:cut])


@pytest.mark.parametrize(
    "layout",
    [
        construct.Struct("little" / construct.Int16sl),
        construct.Struct(construct.Int16sb),
        construct.Struct("bits" / construct.BitStruct("a" / construct.BitsInteger(8))),
        construct.Struct("rest" / construct.GreedyBytes, "after" / construct.Int8sb),
        construct.Struct("n" / construct.Int8sb, "data" / construct.Bytes(construct.this.n)),
        construct.Struct("text" / construct.PascalString(construct.Int8sb, "utf-16")),
        construct.Struct("list" / construct.GreedyRange(construct.Int8sb)),
        construct.Int32sb,
    ],
)
def test_what_cannot_be_lowered_is_refused(layout: construct.Construct) -> None:
    with pytest.raises(TypeError, match="cannot lower"):
        lower(layout, Refused)


@pytest.mark.parametrize(
    "layout",
    [
        layouts.MAP_ENTRY,
        construct.FocusedSeq(
            "e", "e" / construct.GreedyRange(layouts.INDEX_SLOT), construct.Terminated
        ),
        construct.FocusedSeq("e", "e" / construct.GreedyRange(layouts.MAP_ENTRY), construct.Pass),
    ],
)
def test_what_is_no_list_of_pairs_is_refused(layout: construct.Construct) -> None:
    with pytest.raises(TypeError, match="cannot lower"):
        lower_pairs(layout, Refused)


def test_a_parser_never_looks_outside_its_bounds() -> None:
    for bounds in ((-1, 4), (0, 5), (3, 2)):
        with pytest.raises(Refused, match="no bytes"):
            LOWERED["index_slot"].parse(bytes(4), *bounds)


FORMATS = {
    "blank_record": ("commit_log_blank_record", "fields"),
    "consume_queue_unit": ("consume_queue_unit", "fields"),
    "batch_consume_queue_unit": ("batch_consume_queue_unit", "fields"),
    "index_header": ("index_file", "header"),
    "index_slot": ("index_file", "slot"),
    "index_entry": ("index_file", "entry"),
    "store_checkpoint": ("store_checkpoint", "fields"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_declared_positions_and_sizes_are_the_official_ones(name: str) -> None:
    table, part = FORMATS[name]
    facts = [
        (field["offset"], field["size"]) for field in protocol_table("store_formats")[table][part]
    ]
    declared, offset = [], 0
    for member in LAYOUTS[name].subcons:
        declared.append((offset, member.sizeof()))
        offset += member.sizeof()
    assert declared == facts


def test_the_record_declaration_has_the_official_order_and_sizes() -> None:
    sizes = []
    for field in protocol_table("store_formats")["commit_log_record"]["fields"]:
        size = field["size"]
        if size in ("bodyLength", "topicLength", "propertiesLength"):
            continue  # the content after its length, one member here
        sizes.append({"8 or 20": 8, "1 (v1) or 2 (v2)": 1}.get(size, size))
    declared = []
    for member in LAYOUTS["record_v1_44"].subcons:
        inner = member.subcon
        inner = inner.subcon if isinstance(inner, construct.StringEncoded) else inner
        declared.append(
            inner.lengthfield.sizeof() if isinstance(inner, construct.Prefixed) else inner.sizeof()
        )
    assert declared == sizes
