"""What a stretch of the log means: both ways of finding it, against what `Reput` makes of each record."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import starmap
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from txrocketmq import native
from txrocketmq.codec.record import blank_record, encode_record, scan_head
from txrocketmq.codec.storefiles import CQ_UNIT, INDEX_HEADER_BYTES
from txrocketmq.errors import ProtocolError, RecordError
from txrocketmq.ha import slave
from txrocketmq.model import properties as props
from txrocketmq.model.javahash import index_hash, tags_code
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import parse_properties
from txrocketmq.store import indexfile
from txrocketmq.store.blocks import MAX_RUNS, Block, Run, scan_block, scan_block_pure
from txrocketmq.store.consumequeue import SCHEDULE_TOPIC
from txrocketmq.store.indexfile import (
    INDEX_ITEM,
    IndexFile,
    put_items,
    put_items_pure,
    tag_index_hash,
)

NOW_MS = 1_700_000_000_000
BASE = 1_000_000

Scan = Callable[..., Block]

SCANS = [pytest.param(scan_block_pure, id="pure"), pytest.param(scan_block, id="as installed")]

values = st.one_of(
    st.sampled_from(["a", "TagA", "k1 k2", " ", "k1  k2 ", "TAGS\1x", "\1", "é", "\0", "\ud800"]),
    st.text(max_size=4),
)
names = st.sampled_from(
    [
        "TAGS",
        "KEYS",
        "UNIQ_KEY",
        "",
        "X",
        "XTAGS",
        "TAGSX",
        "__CRC32#",
        props.INNER_MULTI_QUEUE_OFFSET,
        "é",
    ]
)
texts = st.one_of(
    st.lists(st.tuples(names, values), max_size=4).map(
        lambda items: "\2".join(f"{name}\1{value}" for name, value in items).encode(
            "utf-8", "replace"
        )
    ),
    st.binary(max_size=30),
    st.lists(st.sampled_from([b"TAGS", b"KEYS", b"\1", b"\2", b"a", b"UNIQ_KEY"]), max_size=9).map(
        b"".join
    ),
)


def record(
    offset: int,
    index: int,
    *,
    topic: str = "Orders",
    queue_id: int = 0,
    properties: bytes = b"UNIQ_KEY\1AC10\2TAGS\1TagA\2",
    body: bytes = b"hello",
    sys_flag: int = 0,
    host: str = "10.0.0.1",
    time_ms: int = NOW_MS,
) -> bytes:
    return encode_record(
        MessageRecord(
            topic=topic,
            queue_id=queue_id,
            body=body,
            properties=properties,
            sys_flag=sys_flag,
            born_host=(host, 1),
            store_host=(host, 2),
            born_timestamp=NOW_MS,
        ),
        index,
        offset,
        time_ms,
    )


def log_of(given_records: Sequence[dict[str, object]]) -> bytes:
    """Records one behind the other from `BASE` on."""
    log = b""
    for fields in given_records:
        log += record(BASE + len(log), **fields)  # type: ignore[arg-type]
    return log


def expected(log: bytes, count: int) -> Block:
    """What the first records mean, by the code that knows one record at a time."""
    runs: dict[tuple[str, int], list[object]] = {}
    entries = b""
    position = stored = last = 0
    for _ in range(count):
        head = scan_head(log, position)
        assert head is not None
        last, stored = BASE + position, head.store_timestamp
        found = parse_properties(head.properties)
        tag, uniq_key, keys = (found.get(name) for name in (props.TAGS, props.UNIQ_KEY, props.KEYS))
        run = runs.setdefault((head.topic, head.queue_id), [head.queue_offset, b"", 0])
        run[1] += CQ_UNIT.pack(last, head.total_size, tags_code(tag))  # type: ignore[operator]
        run[2] = last + head.total_size
        words = [] if uniq_key is None else [uniq_key]
        words += [word for word in (keys or "").split(" ") if word]
        hashes = [index_hash(head.topic, word) for word in words]
        if tag:
            hashes.append(tag_index_hash(head.topic, tag))
        entries += b"".join(INDEX_ITEM.pack(value, last, stored) for value in hashes)
        position += head.total_size
    found_runs = [Run(*key, *values) for key, values in runs.items()]  # type: ignore[arg-type]
    return Block(position, count, found_runs, entries, last, stored)


def test_the_compiled_twin_is_in_use_where_it_is_built() -> None:
    if native.functions is not None:
        assert hasattr(native.functions, "scan_block")


@pytest.mark.parametrize("scan", SCANS)
def test_plain_records_give_units_and_entries(scan: Scan) -> None:
    log = log_of(
        [
            {"index": 7},
            {"index": 3, "queue_id": 1, "properties": b"KEYS\1one  two\2"},
            {"index": 8, "properties": b"", "host": "fe80::1"},
            {"index": 1, "topic": "T" * 200, "time_ms": NOW_MS + 5},
            {
                "index": 4,
                "queue_id": 1,
                "body": b"",
                "properties": b"TAGS\1x\2TAGS\1\2TAGS\1polygenelubricants",
            },
        ]
    )
    found = scan(log, 0, len(log), BASE, crc32)
    assert found == expected(log, 5)
    assert found.end == len(log)
    assert [run[:3] for run in found.runs] == [
        ("Orders", 0, 7),
        ("Orders", 1, 3),
        ("T" * 200, 0, 1),
    ]
    assert len(found.entries) == INDEX_ITEM.size * 7


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"index": 0}, id="a queue's first message"),
        pytest.param({"index": 0, "queue_id": 5}, id="another queue's first message"),
        pytest.param({"index": 10}, id="not the next of its queue"),
        pytest.param({"index": 9, "sys_flag": 0x80}, id="batch"),
        pytest.param({"index": 9, "sys_flag": 0x4}, id="prepared"),
        pytest.param({"index": 9, "sys_flag": 0x8}, id="committed"),
        pytest.param({"index": 9, "topic": SCHEDULE_TOPIC}, id="delayed"),
        pytest.param({"index": 9, "topic": "Straße"}, id="topic not ASCII"),
        pytest.param({"index": 9, "topic": "a\0b"}, id="topic not written"),
        pytest.param({"index": 9, "properties": b"TAGS\1\xc3\xa9"}, id="tag not ASCII"),
        pytest.param({"index": 9, "properties": b"KEYS\1\xc3\xa9"}, id="keys not ASCII"),
        pytest.param({"index": 9, "properties": b"a\1\0"}, id="properties not written"),
        pytest.param({"index": 9, "properties": b"__CRC32#\x01123"}, id="sealed"),
        pytest.param(
            {"index": 9, "properties": b"INNER_MULTI_QUEUE_OFFSET\1" + b"3"}, id="light queues"
        ),
    ],
)
def test_a_record_that_is_not_plain_ends_the_block(scan: Scan, odd: dict[str, object]) -> None:
    log = log_of([{"index": 7}, {"index": 8}, odd, {"index": 11}])
    assert scan(log, 0, len(log), BASE, crc32) == expected(log, 2)


@pytest.mark.parametrize("scan", SCANS)
def test_a_body_is_compared_with_its_checksum_when_asked(scan: Scan) -> None:
    log = bytearray(log_of([{"index": 7}, {"index": 8}]))
    log[log.rindex(b"hello")] ^= 1
    assert scan(log, 0, len(log), BASE).records == 2
    assert scan(log, 0, len(log), BASE, crc32).records == 1


@pytest.mark.parametrize("scan", SCANS)
def test_the_block_ends_at_the_limit_at_blanks_and_at_other_offsets(scan: Scan) -> None:
    log = log_of([{"index": 7}, {"index": 8}])
    half = len(log) // 2
    assert scan(log, 0, len(log) - 1, BASE).records == 1
    assert scan(log, half, len(log), BASE + half).end == len(log)
    assert scan(log, 0, len(log), BASE + 1).records == 0
    assert scan(log[:half] + blank_record(1000) + bytes(992), 0, 5000, BASE).records == 1
    assert scan(log, -1, len(log), BASE).records == 0
    assert scan(log, len(log), len(log), BASE + len(log)) == (len(log), 0, [], b"", 0, 0)


@pytest.mark.parametrize("scan", SCANS)
def test_a_block_has_so_many_queues_and_no_more(scan: Scan) -> None:
    log = log_of([{"index": 7, "queue_id": number} for number in range(MAX_RUNS + 1)])
    assert scan(log, 0, len(log), BASE) == expected(log, MAX_RUNS)


@pytest.mark.parametrize("scan", SCANS)
def test_a_fault_of_the_checksum_function_is_not_hidden(scan: Scan) -> None:
    def broken(_: memoryview) -> int:
        raise ZeroDivisionError

    log = log_of([{"index": 7}])
    with pytest.raises(ZeroDivisionError):
        scan(log, 0, len(log), BASE, broken)


plain = st.fixed_dictionaries(
    {
        "queue_id": st.integers(0, 2),
        "topic": st.sampled_from(["A", "Orders", "T" * 128, "é", SCHEDULE_TOPIC]),
        "properties": texts,
        "host": st.sampled_from(["10.0.0.1", "fe80::1"]),
        "body": st.binary(max_size=20),
        "sys_flag": st.sampled_from([0, 0, 0, 1, 0x4, 0x80]),
        "time_ms": st.integers(0, 2**63 - 1),
    }
)


@given(found=st.lists(plain, max_size=6), gap=st.integers(0, 20), rest=st.binary(max_size=30))
def test_both_say_what_single_records_say(
    found: list[dict[str, object]], gap: int, rest: bytes
) -> None:
    ends: dict[object, int] = {}
    for fields in found:
        key = fields["topic"], fields["queue_id"]
        fields["index"] = ends[key] = ends.get(key, gap) + 1
    log = log_of(found) + rest
    pure = scan_block_pure(log, 0, len(log), BASE, crc32)
    assert scan_block(log, 0, len(log), BASE, crc32) == pure
    assert pure == expected(log, pure.records)


@given(data=st.data())
@example(data=None)
def test_both_say_the_same_of_broken_bytes(data: st.DataObject | None) -> None:
    log = bytearray(
        log_of([{"index": number + 1, "topic": "T" * (126 + number)} for number in range(4)])
    )
    seeds = range(300) if data is None else [data.draw(st.integers(0, 2**32))]
    for seed in seeds:
        broken = bytearray(log)
        at = seed * 7919 % len(broken)
        broken[at] = seed >> 3 & 0xFF
        if seed % 3 == 0:
            del broken[seed * 104729 % len(broken) :]
        pure = scan_block_pure(broken, 0, len(broken), BASE, crc32)
        assert scan_block(broken, 0, len(broken), BASE, crc32) == pure
        position = 0
        for _ in range(pure.records):
            head = scan_head(broken, position, check_crc=True)
            assert head is not None
            position += head.total_size
        assert position == pure.end
        bare = scan_block_pure(broken, 0, len(broken), BASE)
        assert scan_block(broken, 0, len(broken), BASE) == bare


def test_random_bytes_are_no_records() -> None:
    for _ in range(50):
        data = os.urandom(1000)
        assert scan_block(data, 0, len(data), 0) == (0, 0, [], b"", 0, 0)
        with pytest.raises(RecordError):
            scan_head(data)


# ---------------------------------------------------------------------- index entries of many messages

SLOTS, ENTRIES = 7, 20


def an_index(count: int, stale: bytes = b"") -> tuple[IndexFile, bytearray]:
    """A file with room for entries that are told by their hash, of which some are there already."""
    file = IndexFile("index", SLOTS, ENTRIES)
    data = bytearray(file.size)
    data[INDEX_HEADER_BYTES : INDEX_HEADER_BYTES + len(stale)] = stale
    file.attach(MemoryMapping(data))  # type: ignore[arg-type]
    for number in range(count):
        assert file.put(number, BASE + number, NOW_MS + number)
    return file, data


class MemoryMapping:
    """As much of `IMapping` as an index file asks for."""

    def __init__(self, data: bytearray) -> None:
        self.buffer = memoryview(data)
        self.size = len(data)

    def allocated_to(self) -> int:
        return self.size


def state(file: IndexFile) -> tuple[int, ...]:
    return (
        *(file.count, file.slots_used, file.begin_offset, file.end_offset),
        *(file.begin_timestamp_ms, file.end_timestamp_ms),
    )


items_of = st.lists(
    st.tuples(
        st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(-(2**63), 2**63 - 1)
    ),
    min_size=1,
    max_size=ENTRIES + 2,
)


@given(items=items_of, count=st.integers(0, 5), stale=st.binary(max_size=4 * SLOTS))
def test_many_index_entries_are_what_single_ones_are(
    items: list[tuple[int, int, int]], count: int, stale: bytes
) -> None:
    one, one_data = an_index(count, stale)
    put_one_by_one = [item for item in items if one.put(*item)]
    packed = b"".join(starmap(INDEX_ITEM.pack, items))
    for put in (put_items, put_items_pure):
        many, many_data = an_index(count, stale)
        done = 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(indexfile, "put_items", put)
            while done < len(items) and (taken := many.put_items(packed, done)):
                done += taken
        assert done == len(put_one_by_one)
        assert many_data == one_data
        assert state(many) == state(one)


@pytest.mark.parametrize(
    "given_numbers",
    [
        pytest.param((0, 1, ENTRIES + 1, SLOTS, 0), id="a limit beyond the file"),
        pytest.param((0, 0, ENTRIES, SLOTS, 0), id="entry 0"),
        pytest.param((-1, 1, ENTRIES, SLOTS, 0), id="before the first item"),
        pytest.param((9, 1, ENTRIES, SLOTS, 0), id="behind the last item"),
        pytest.param((0, 1, ENTRIES, 0, 0), id="no slots"),
        pytest.param((0, 1, ENTRIES, 2**40, 0), id="too many slots"),
        pytest.param((0, 2**40, 2**40, SLOTS, 0), id="a number too large"),
        pytest.param((0, 1, ENTRIES, SLOTS, 2**64), id="a time too large"),
    ],
)
def test_the_compiled_twin_leaves_impossible_places_to_the_pure_one(
    given_numbers: tuple[int, ...],
) -> None:
    if native.functions is None:
        return
    _, data = an_index(0)
    before = bytes(data)
    items = INDEX_ITEM.pack(1, 2, 3) * 3
    assert native.functions.put_index(data, items, *given_numbers) is None
    assert native.functions.put_index(before, items, 0, 1, ENTRIES, SLOTS, 0) is None
    assert native.functions.put_index(data, "text", 0, 1, ENTRIES, SLOTS, 0) is None
    assert data == before


# ---------------------------------------------------------------------- where whole records end


@given(
    sizes=st.lists(st.integers(-3, 40), max_size=6), rest=st.binary(max_size=5), view=st.booleans()
)
def test_whole_records_end_where_single_ones_do(sizes: list[int], rest: bytes, view: bool) -> None:
    data = b"".join(
        size.to_bytes(4, "big", signed=True) + bytes(max(size - 4, 0)) for size in sizes
    )
    data += rest
    found: list[int | str] = []
    with pytest.MonkeyPatch.context() as patch:
        for compiled in {slave._compiled, None}:
            patch.setattr(slave, "_compiled", compiled)
            try:
                found.append(slave.whole_records(memoryview(data) if view else data))
            except ProtocolError as error:
                found.append(str(error))
    assert len(set(map(str, found))) == 1
