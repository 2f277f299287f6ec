"""Do queues keep store time and filter bits of their messages in the official extension, and do filters look there first?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from twisted.internet.task import Clock
from zope.interface import implementer

from txrocketmq.codec.record import decode_records, encode_batch
from txrocketmq.codec.storefiles import CQ_UNIT, EXTENSION_HEAD
from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IDisk, IMessageFilter
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import format_properties
from txrocketmq.store.disk import RealDisk
from txrocketmq.store.extension import ExtendedQueue, Extension, is_address
from txrocketmq.store.filter import TagsFilter
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.results import GetMessageResult, PutMessageResult
from txrocketmq.store.unitlog import BlockCache
from txrocketmq.store.upkeep import StoreUpkeep
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool
from txrocketmq.testing.store import open_memory_store, small_config

NOW = 1_700_000_000
FILE_BYTES = 200


def bits_of(topic: str, properties: Mapping[str, str]) -> bytes | None:
    return None if properties.get("n") is None else bytes([int(properties["n"])] * 14)


def opened(disk: IDisk, root: str = "/store", **keys: object) -> MessageStore:
    clock = Clock()
    clock.advance(NOW)
    wanted = {
        "enable_consume_queue_ext": True,
        "mapped_file_size_consume_queue_ext": FILE_BYTES,
        **keys,
    }
    store = open_memory_store(disk, clock, config=small_config(root, **wanted))
    store.use_filter_bits(bits_of)
    return store


def put(store: MessageStore, number: int, tag: str = "a", **found: str) -> PutMessageResult:
    found = {"UNIQ_KEY": f"id{number}", "TAGS": tag, "n": str(number), **found}
    result = store.put_message(
        MessageRecord(
            topic="T",
            queue_id=0,
            body=b"%d" % number,
            properties=format_properties(found),
            tags_code=tags_code(tag),
            uniq_key=found["UNIQ_KEY"],
        )
    )
    assert isinstance(result, PutMessageResult)
    return result


def bodies(store: MessageStore, wanted: IMessageFilter | None = None) -> list[bytes]:
    found: list[bytes] = []
    offset = 0
    while offset < store.max_offset("T", 0):
        result = store.get_message("T", 0, offset, 32, 1 << 20, wanted)
        assert isinstance(result, GetMessageResult)
        found += [message.body for message in decode_records(b"".join(result.records))]
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset
    return found


@implementer(IMessageFilter)
class Recorder:
    """Says no to one number, and remembers what it was asked."""

    needs_record = True

    def __init__(self, unwanted: int) -> None:
        self.unwanted = unwanted
        self.seen: list[tuple[int, int, bytes]] = []
        self.records = 0

    def matches_tags_code(self, tags_code: int) -> bool:
        return True

    def matches_extension(self, tags_code: int, store_timestamp_ms: int, bit_map: bytes) -> bool:
        self.seen.append((tags_code, store_timestamp_ms, bit_map))
        return bit_map != bytes([self.unwanted] * 14)

    def matches_record(self, record: bytes) -> bool:
        self.records += 1
        return True


@pytest.fixture(params=["memory", "real"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[IDisk, str]:
    if request.param == "memory":
        return MemoryDisk(), "/store"
    return RealDisk(), str(tmp_path / "store")


def test_the_unit_names_a_place_in_the_extension(place: tuple[IDisk, str]) -> None:
    disk, root = place
    store = opened(disk, root)
    results = [put(store, number) for number in range(6)]
    store.stop()
    code, stamp = tags_code("a"), NOW * 1000
    data = disk.read_at(f"{root}/consumequeue/T/0/{0:020d}", 0, 120)
    # Five units of 34 bytes fit before the last 4 bytes of a file; the sixth begins the next one.
    places = [0, 34, 68, 102, 136, FILE_BYTES]
    assert list(CQ_UNIT.iter_unpack(data)) == [
        (result.physical_offset, result.wrote_bytes, at - (1 << 63))
        for result, at in zip(results, places, strict=True)
    ]
    first = disk.read_at(f"{root}/consumequeue_ext/T/0/{0:020d}", 0, FILE_BYTES)
    assert EXTENSION_HEAD.unpack_from(first, 34) == (34, code, stamp, 14)
    assert first[54:68] == b"\x01" * 14
    assert first[170:172] == b"\xff\xff"
    assert not any(first[172:])
    second = disk.read_at(f"{root}/consumequeue_ext/T/0/{FILE_BYTES:020d}", 0, FILE_BYTES)
    assert EXTENSION_HEAD.unpack_from(second, 0) == (34, code, stamp, 14)
    assert second[20:34] == b"\x05" * 14


def test_filters_are_asked_about_the_extension_before_the_record() -> None:
    store = opened(MemoryDisk())
    for number in range(4):
        put(store, number)
    wanted = Recorder(2)
    assert bodies(store, wanted) == [b"0", b"1", b"3"]
    assert wanted.records == 3
    assert wanted.seen[1] == (tags_code("a"), NOW * 1000, b"\x01" * 14)


def test_tags_are_compared_with_the_real_code() -> None:
    store = opened(MemoryDisk())
    for number in range(6):
        put(store, number, "ab"[number % 2])
    assert bodies(store, TagsFilter([tags_code("b")])) == [b"1", b"3", b"5"]
    queue = store.queue_table.find("T", 0)
    assert isinstance(queue, ExtendedQueue)
    unit = queue.unit(store.queue_table.cache, 1)
    assert unit is not None
    assert is_address(unit[2])
    assert queue.real_code(store.queue_table.cache, unit[2]) == tags_code("b")
    assert queue.real_code(store.queue_table.cache, 5) == 5


def test_batches_and_messages_without_bits() -> None:
    store = opened(MemoryDisk())
    items = [(0, b"x", format_properties({"n": "7"})), (0, b"y", b"")]
    store.put_batch(MessageRecord(topic="T", queue_id=0, body=encode_batch(items)))
    wanted = Recorder(9)
    assert bodies(store, wanted) == [b"x", b"y"]
    assert [bits for _, _, bits in wanted.seen] == [b"\x07" * 14, b""]


@pytest.mark.parametrize("how", ["stop", "kill", "kill-without-extension"])
def test_after_a_start_old_and_new_messages_are_found(place: tuple[IDisk, str], how: str) -> None:
    disk, root = place
    store = opened(disk, root)
    for number in range(30):
        put(store, number, "ab"[number % 2])
    if how == "stop":
        store.stop()
    else:
        store._clock.advance(1)  # type: ignore[attr-defined]
        store._release()
    if how == "kill-without-extension":
        disk.rmtree(f"{root}/consumequeue_ext")
    again = opened(disk, root)
    for number in range(30, 40):
        put(again, number, "ab"[number % 2])
    assert bodies(again, TagsFilter([tags_code("b")])) == [b"%d" % n for n in range(1, 40, 2)]
    again.stop()
    third = opened(disk, root)
    assert bodies(third, TagsFilter([tags_code("a")])) == [b"%d" % n for n in range(0, 40, 2)]


def test_an_extension_that_a_power_failure_took_away_lets_messages_pass() -> None:
    """No place is used twice: what is there must not be taken for another message's."""
    disk = MemoryDisk()
    store = opened(disk)
    for number in range(3):
        put(store, number)
    store.stop()
    disk.rmtree("/store/consumequeue_ext")
    again = opened(disk)
    put(again, 3)
    wanted = Recorder(3)
    assert bodies(again, wanted) == [b"0", b"1", b"2"]
    assert len(wanted.seen) == 1


def test_the_option_may_be_switched_off_and_on() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    put(store, 0)
    store.stop()
    plain = opened(disk, enable_consume_queue_ext=False)
    put(plain, 1)
    plain.stop()
    again = opened(disk)
    put(again, 2)
    assert bodies(again, TagsFilter([tags_code("a")])) == [b"0", b"1", b"2"]
    wanted = Recorder(2)
    assert bodies(again, wanted) == [b"0", b"1"]


def test_deleting_a_topic_deletes_its_extension() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    put(store, 0)
    store.stop()
    again = opened(disk)
    again.delete_topics(["T"])
    assert not disk.exists("/store/consumequeue_ext/T")
    again.queue_table.delete_queue("T", 0)
    put(again, 1)
    assert bodies(again, Recorder(9)) == [b"1"]


def test_files_before_the_first_living_message_go() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    for number in range(20):
        put(store, number)
    store.queue_table.flush()
    queue = store.queue_table.find("T", 0)
    assert isinstance(queue, ExtendedQueue)
    queue.min_index = 11
    old = queue.forget_extension(store.queue_table.cache)
    assert [path[-20:] for path in old] == [f"{0:020d}", f"{FILE_BYTES:020d}"]
    assert queue.forget_extension(store.queue_table.cache) == []


def test_a_unit_that_is_too_large_leaves_the_tags_code() -> None:
    extension = Extension("/x", 100)
    assert extension.put(5, 1, bytes(77)) == 5
    assert extension.put(5, 1, bytes(76)) == -(1 << 63)
    assert Extension("/x", 1 << 20).put(5, 1, bytes(32767 - 19)) == 5


def test_files_of_another_size_are_refused() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    put(store, 0)
    store.stop()
    with pytest.raises(StoreError, match="configured file size is 100"):
        opened(disk, mapped_file_size_consume_queue_ext=100)


def test_what_is_no_unit_reads_as_nothing() -> None:
    disk = MemoryDisk()
    extension = Extension("/x", FILE_BYTES)
    extension.put(5, 1, b"\x01\x02")
    cache = BlockCache(disk)
    start = -(1 << 63)
    assert extension.get(cache, start) == (5, 1, b"\x01\x02")
    for address in (start + 1, start + 22, start + FILE_BYTES):
        assert extension.get(cache, address) is None


def test_operators_see_the_real_code() -> None:
    store = opened(MemoryDisk())
    put(store, 0, "a")
    pool = ImmediatePool()
    upkeep = StoreUpkeep(store, small_config(), MemoryDisk(), pool, Clock())
    units = upkeep.queue_units("T", 0, 0, 5)
    assert units is not None
    assert [unit[2] for unit in units] == [tags_code("a")]
    entries = upkeep.read_units("T", 0, 0, 5)
    assert isinstance(entries, list)
    assert entries[0][1][2] == tags_code("a")


def test_the_time_of_a_delayed_message_stays_in_its_unit() -> None:
    store = opened(MemoryDisk())
    delayed = MessageRecord(
        topic="SCHEDULE_TOPIC_XXXX",
        queue_id=2,
        body=b"x",
        properties=format_properties({"DELAY": "3"}),
    )
    store.put_message(delayed)
    queue = store.queue_table.find("SCHEDULE_TOPIC_XXXX", 2)
    assert queue is not None
    assert queue.unit(store.queue_table.cache, 0)[2] == NOW * 1000 + 10_000  # type: ignore[index]
