"""Do the compiled functions stay within their bounds, whatever they are given and whatever changes meanwhile?"""

from __future__ import annotations

import gc
import itertools
import weakref
from array import array
from pathlib import Path
from struct import pack_into
from types import ModuleType
from zlib import crc32

import pytest
from built import functions, load
from hypothesis import example, given
from hypothesis import strategies as st

from txrocketmq.codec.crc import crc32 as fast_crc32
from txrocketmq.codec.record import _host_bytes, _topic_parts, encode_record
from txrocketmq.model.message import MessageRecord
from txrocketmq.store.blocks import Block, scan_block_pure
from txrocketmq.store.indexfile import INDEX_ITEM

EXTREME = [
    -(2**63), -(2**63) + 1, -(2**62), -(2**31) - 1, -(2**31), -1, 0, 1, 2, 3, 7, 40, 60, 188, 189, 2**16, 2**31 - 1, 2**31,
    2**32 - 1, 2**32, 2**60 - 1, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 + 1,
]  # fmt: skip
NUMBERS = st.one_of(st.sampled_from(EXTREME), st.integers(-(2**65), 2**65), st.integers(0, 90))
GUARD = 256
ROOM = 40 + 4 * 7 + 20 * 6
BASE = 1000


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return functions(tmp_path_factory.mktemp("native"))


def guarded() -> tuple[bytearray, memoryview]:
    """Memory, and the part of it that may be written."""
    memory = bytearray(b"\xa5" * (GUARD + ROOM + GUARD))
    return memory, memoryview(memory)[GUARD : GUARD + ROOM]


def is_guarded(memory: bytearray) -> bool:
    return memory[:GUARD] == memory[-GUARD:] == b"\xa5" * GUARD


# ---------------------------------------------------------------------- numbers


@given(st.tuples(*[NUMBERS] * 9))
@example((7, 2, -(2**63), 1, 0, 1, 5, 1, 1))
@example((7, 2**63 - 1, -(2**63), 1, 0, 1, 5, 1, 1))
@example((7, 3, 6, 1, 0, 1, 5, 1, 1))
def test_no_numbers_lead_index_entries_astray(
    compiled: ModuleType, numbers: tuple[int, ...]
) -> None:
    memory, place = guarded()
    slots, number, limit, used, begin, begin_ms, tag, offset, stored = numbers
    found = compiled.put_keys(
        place, slots, number, limit, used, begin, begin_ms, "T", "id", "a b", tag, offset, stored
    )
    assert is_guarded(memory)
    if found is None:
        assert place == b"\xa5" * ROOM
    else:
        assert number < found[0] <= limit


@given(st.tuples(*[NUMBERS] * 5), st.integers(0, 8))
@example((0, 1, 6, 7, 0), 8)
@example((0, 1, -(2**63), 7, -(2**63)), 8)
def test_no_numbers_lead_blocks_of_index_entries_astray(
    compiled: ModuleType, numbers: tuple[int, ...], count: int
) -> None:
    memory, place = guarded()
    found = compiled.put_index(place, INDEX_ITEM.pack(1, -1, -(2**63)) * count, *numbers)
    assert is_guarded(memory)
    if found is None or found[0] == 0:
        assert place == b"\xa5" * ROOM


@given(st.tuples(*[NUMBERS] * 11), st.integers(0, 120))
@example((0, ROOM, 0, 0, 0, 0, 0, 0, 0, 0, 0), 30)
@example((2**63 - 1, -(2**63), 0, 0, 0, 0, 0, 0, 0, 0, 0), 30)
def test_no_numbers_lead_a_record_astray(
    compiled: ModuleType, numbers: tuple[int, ...], size: int
) -> None:
    known = MessageRecord(topic="Known", queue_id=0, body=b"", born_host=("10.0.0.1", 1))
    encode_record(known, 1, 2, 3)
    memory, place = guarded()
    position, limit, queue_id, flag, sys_flag, born, again, prepared, index, physical, stored = (
        numbers
    )
    found = compiled.put_record(
        place, position, limit, "Known", queue_id, bytes(size), b"", flag, sys_flag, born,
        known.born_host, known.store_host, again, prepared, index, physical, stored,
    )  # fmt: skip
    assert is_guarded(memory)
    assert (found is None) == (place == b"\xa5" * ROOM)


def test_no_places_lead_readers_astray(compiled: ModuleType) -> None:
    data = plain_record(1)
    for position, limit, offset in itertools.product(
        EXTREME, EXTREME, (-1, 0, BASE, 2**63 - 1, 2**63)
    ):
        found = compiled.scan_block(data, position, limit, offset, None)
        if found is not None:
            assert found == scan_block_pure(data, position, limit, offset)
        assert (found is None) == (
            not (0 <= position < 2**63 and 0 <= limit < 2**63 and 0 <= offset < 2**63)
        )
        same = compiled.same_entries(data, position, limit, bytes(20))
        assert same in (None, False)
        assert compiled.whole_records(data, position) == (
            None if not len(data) <= position < 2**63 else len(data)
        )


# ---------------------------------------------------------------------- types


class Number:
    """Can stand for a whole number, and takes note when it is asked."""

    asked = False

    def __index__(self) -> int:
        Number.asked = True
        return 1


class Whole(int):
    """A number of a class of its own, as members of an enumeration are."""


def test_no_code_of_a_number_runs(compiled: ModuleType) -> None:
    memory, place = guarded()
    numbers = [7, 2, 6, 1, 0, 1, -1, 1, 1]
    for at in range(len(numbers)):
        slots, number, limit, used, begin, begin_ms, tag, offset, stored = (
            Number() if each == at else value for each, value in enumerate(numbers)
        )
        assert compiled.put_keys(
            place, slots, number, limit, used, begin, begin_ms, "T", "id", None, tag, offset, stored
        ) is None  # fmt: skip
    assert compiled.put_index(place, bytes(20), 0, 1, 6, 7, Number()) is None
    assert compiled.json_reply(Number(), "", None, 0, "", 0, "", 0) is None
    assert compiled.scan_block(b"", 0, 0, Number(), None) is None
    assert not Number.asked
    assert memory == b"\xa5" * len(memory)
    assert compiled.json_reply(Whole(5), "", None, True, "", 0, "", 0)[8:] == (
        b'{"code":5,"extFields":{},"flag":10'
    )


def test_buffers_of_anything_but_bytes_are_left_to_the_pure_code(compiled: ModuleType) -> None:
    entries = INDEX_ITEM.pack(1, 2, 3) * 2
    place = bytearray(ROOM)
    record = plain_record(1)
    record += bytes(-len(record) % 4)
    for kind in "iHq":
        words = memoryview(record[: len(record) // 8 * 8]).cast(kind)
        assert compiled.scan_block(words, 0, 1000, BASE, None) is None
        assert compiled.whole_records(words, 1000) is None
        assert compiled.same_entries(words, 0, 40, b"") is None
        assert compiled.same_entries(b"", 0, 0, array(kind, [1])) is None
        assert (
            compiled.put_index(array(kind, bytes(ROOM - ROOM % 8)), entries, 0, 1, 2, 7, 0) is None
        )
        assert compiled.put_index(place, array(kind, [5]), 0, 1, 2, 7, 0) is None
    square = memoryview(entries).cast("B", (2, 20))
    assert compiled.put_index(place, square, 0, 1, 6, 7, 0) is None
    assert compiled.put_index(place, memoryview(entries)[::2], 0, 1, 6, 7, 0) is None
    assert not any(place)
    assert compiled.put_index(array("B", place), entries, 0, 1, 6, 7, 0) == (2, 1)


# ---------------------------------------------------------------------- what changes meanwhile


def plain_record(index: int, offset: int = BASE, body: bytes = b"hello") -> bytes:
    return encode_record(
        MessageRecord(
            topic="Orders",
            queue_id=0,
            body=body,
            properties=b"TAGS\1a\2KEYS\1key",
            born_host=("10.0.0.1", 1),
        ),
        index,
        offset,
        5,
    )


def two_records() -> bytes:
    first = plain_record(1)
    return first + plain_record(2, BASE + len(first))


@pytest.mark.parametrize("size", [-(2**31), -50, -1, 0, 1, 91, 300, 2**31 - 1])
def test_a_record_whose_size_changes_is_as_long_as_it_was(compiled: ModuleType, size: int) -> None:
    found = []
    for scan in (compiled.scan_block, scan_block_pure):
        data = bytearray(two_records())

        def changing(view: memoryview, data: bytearray = data) -> int:
            pack_into(">i", data, 0, size)
            return crc32(view)

        found.append(Block(*scan(data, 0, len(data), BASE, changing)))
    assert found[0] == found[1]
    assert (found[0].records, found[0].end) == (2, len(two_records()))


def test_a_topic_that_changes_is_called_what_it_was(compiled: ModuleType) -> None:
    found = []
    for scan in (compiled.scan_block, scan_block_pure):
        data = bytearray(plain_record(1))

        def changing(view: memoryview, data: bytearray = data) -> int:
            found_crc = crc32(view)
            data[data.index(b"Orders")] = 0xFF
            return found_crc

        found.append(Block(*scan(data, 0, len(data), BASE, changing)))
    assert found[0] == found[1]
    assert found[0].runs[0][0] == "Orders"


def test_a_view_of_a_body_shows_nothing_afterwards(compiled: ModuleType) -> None:
    for scan in (compiled.scan_block, scan_block_pure):
        kept: list[memoryview] = []

        def keeping(view: memoryview, kept: list[memoryview] = kept) -> int:
            kept.append(view)
            return crc32(view)

        data = bytearray(plain_record(1))
        assert Block(*scan(data, 0, len(data), BASE, keeping)).records == 1
        data.clear()
        with pytest.raises(ValueError, match="released"):
            bytes(kept[0])


def test_a_buffer_whose_body_stays_in_use_stays_what_it_was(compiled: ModuleType) -> None:
    kept: list[memoryview] = []

    def copying(view: memoryview) -> int:
        kept.append(memoryview(view))
        return crc32(view)

    def failing(view: memoryview) -> int:
        kept.append(view)
        raise ZeroDivisionError

    for scan in (compiled.scan_block, scan_block_pure):
        for function in (copying, failing):
            data = bytearray(plain_record(1))
            try:
                assert Block(*scan(data, 0, len(data), BASE, function)).records == 1
            except ZeroDivisionError:
                assert function is failing
            view = kept.pop()
            if scan is compiled.scan_block or function is copying:
                with pytest.raises(BufferError):
                    data.clear()
                del data
                assert view == b"hello"


def test_a_host_that_is_forgotten_while_the_other_is_looked_up_is_written_all_the_same(
    compiled: ModuleType,
) -> None:
    # The bytes belong to the dict alone.
    hosts = {("a",): bytes(bytearray(b"A" * 20)), ("x",): bytes(bytearray(b"C" * 8))}
    topics = {"T": (5, b"\1T")}

    def put(born: object, store: object) -> bytes:
        buffer = bytearray(200)
        size = compiled.put_record(
            buffer, 0, 200, "T", 0, b"", b"", 0, 0, 0, born, store, 0, 0, 0, 0, 0
        )
        return bytes(buffer[:size])

    class Forgetting(str):
        __slots__ = ()

        def __hash__(self) -> int:
            return hash("x")

        def __eq__(self, other: object) -> bool:
            hosts.pop(("a",), None)
            hosts["b",] = b"B" * 8
            put(("b",), ("b",))
            return True

    try:
        compiled.remember(hosts, topics, lambda _: 0)
        written = put(("a",), (Forgetting("x"),))
    finally:
        compiled.remember(_host_bytes, _topic_parts, fast_crc32)
    assert written[48:68] == b"A" * 20
    assert written[76:84] == b"C" * 8


def test_what_is_remembered_anew_counts_at_once(compiled: ModuleType) -> None:
    host = ("10.0.0.1", 1)
    arguments = (0, 200, "T", 0, b"", b"", 0, 0, 0, host, host, 0, 0, 0, 0, 0)
    try:
        for letter in (b"A", b"B"):
            compiled.remember({host: letter * 8}, {"T": (5, b"\1T")}, lambda _: 0)
            buffer = bytearray(200)
            assert compiled.put_record(buffer, *arguments) == 92
            assert buffer[48:56] == letter * 8
        compiled.remember({}, {}, lambda _: 0)
        assert compiled.put_record(bytearray(200), *arguments) is None
    finally:
        compiled.remember(_host_bytes, _topic_parts, fast_crc32)


# ---------------------------------------------------------------------- interpreters


def test_each_interpreter_has_what_it_remembers_to_itself(compiled: ModuleType) -> None:
    other = load(Path(str(compiled.__file__)))
    host = ("10.0.0.1", 1)
    arguments = (0, 200, "T", 0, b"", b"", 0, 0, 0, host, host, 0, 0, 0, 0, 0)
    encode_record(
        MessageRecord(topic="T", queue_id=0, body=b"", born_host=host, store_host=host), 1, 2, 3
    )
    assert other.put_record(bytearray(200), *arguments) is None
    other.remember({}, {}, crc32)
    assert other.put_record(bytearray(200), *arguments) is None
    assert compiled.put_record(bytearray(200), *arguments) == 92


def test_what_an_interpreter_remembered_goes_with_it(compiled: ModuleType) -> None:
    other = load(Path(str(compiled.__file__)))

    def checksum(_: bytes, module: ModuleType = other) -> int:
        return 0

    other.remember({}, {}, checksum)
    gone = weakref.ref(checksum)
    del other, checksum
    gc.collect()
    assert gone() is None


def test_a_prepared_message_is_a_tuple_like_others(compiled: ModuleType) -> None:
    class Four(tuple[object, ...]):
        pass

    for cls in (Four, tuple):
        found = compiled.prepare("UNIQ_KEY\1a", frozenset(), b"", cls)
        assert found.__class__ is cls
        assert found == cls((b"UNIQ_KEY\1a\2", {"UNIQ_KEY": "a"}, "a", False))
        assert gc.is_tracked(found)
        # It has a dict.
        with pytest.raises(TypeError, match="unhashable"):
            hash(found)
