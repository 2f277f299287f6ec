"""Do the index files have the official bytes, find what was put, and stay out of the way of sends?"""

from __future__ import annotations

import errno
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from tests.golden import LINES, units
from txrocketmq.codec.storefiles import INDEX_ENTRY, INDEX_HEADER, INDEX_HEADER_BYTES
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.interfaces import IMapping
from txrocketmq.model.javahash import index_hash
from txrocketmq.store import index
from txrocketmq.store.checkpoint import StoreCheckpoint
from txrocketmq.store.index import IndexService
from txrocketmq.store.indexfile import (
    INDEX_ITEM,
    IndexFile,
    KeyHasher,
    index_file_name,
    tag_index_hash,
)
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool, ManualPool
from txrocketmq.testing.store import small_config

DIRECTORY = "/store/index"
NOW = 1_700_000_000.0
FOREVER = 2**62


def new_service(
    disk: MemoryDisk,
    pool: ImmediatePool | ManualPool | None = None,
    clock: Clock | None = None,
    config: MessageStoreConfig | None = None,
    *,
    clean: bool = True,
    recovered: bool = True,
) -> IndexService:
    if clock is None:
        clock = Clock()
        clock.advance(NOW)
    checkpoint = StoreCheckpoint(disk, "/store/checkpoint")
    checkpoint.load()
    service = IndexService(
        config or small_config(),
        disk,
        pool or ImmediatePool(),
        checkpoint,
        lambda: int(clock.seconds() * 1000),
    )
    service.load(clean)
    if recovered:
        service.recovered()
    return service


def offsets_of(service: IndexService, topic: str, key: str, begin: int = 0) -> list[int]:
    return service.query(index_hash(topic, key), 64, begin, FOREVER)[0]


def test_a_file_has_the_official_bytes() -> None:
    vector = units("5.4.0")["indexHashes"]["file"]
    disk = MemoryDisk()
    file = IndexFile("/index/1", vector["hashSlotNum"], vector["indexNum"])
    mapping = disk.map(file.path, file.size, True)
    mapping.allocate(file.size)
    file.attach(mapping)
    for put in vector["puts"]:
        topic, _, key = put["indexKey"].partition("#")
        accepted = file.put(index_hash(topic, key), put["physicalOffset"], put["storeTimestamp"])
        assert accepted is put["accepted"]
        file.write_header()
    assert bytes(mapping.buffer).hex() == vector["file_hex"]


@pytest.mark.parametrize("line", LINES)
def test_hashes_are_the_official_ones(line: str) -> None:
    hasher = KeyHasher()
    for vector in units(line)["indexHashes"]["keys"]:
        assert hasher.hash(vector["topic"], vector["key"]) == vector["hash"]


@given(
    st.text(max_size=70), st.text(st.characters(max_codepoint=127), max_size=70), st.integers(0, 2)
)
def test_the_quick_hash_is_the_plain_one(topic: str, key: str, again: int) -> None:
    hasher = KeyHasher()
    for number in range(again + 1):
        for text in (f"{key}{number}", f"{key}{number:04X}", f"{key}é{number}"):
            assert hasher.hash(topic, text) == index_hash(topic, text)


def test_names_are_the_local_time_of_creation_and_sort_in_order() -> None:
    assert len(index_file_name(1_700_000_000_123)) == 17
    assert index_file_name(1_700_000_000_123).endswith("123")
    disk, clock = MemoryDisk(), Clock()
    clock.advance(NOW)
    service = new_service(disk, clock=clock)
    for number in range(399 * 3 + 1):
        service.put_keys("T", f"id-{number}", None, -1, number, 1_700_000_000_000 + number)
    assert disk.listdir(DIRECTORY)[0] == index_file_name(int(NOW * 1000))
    assert len(disk.listdir(DIRECTORY)) == 4
    assert [file.path.rpartition("/")[2] for file in service.files] == disk.listdir(DIRECTORY)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sets(st.integers(0, 5), max_size=3), st.integers(0, 3000)),
        max_size=300,
    ),
    st.integers(0, 100_000),
    st.integers(0, 100_000),
)
def test_queries_find_what_was_put_within_the_time_range(
    puts: list[tuple[int, set[int], int]], begin_s: int, length_s: int
) -> None:
    """Small files and few slots: chains, collisions and several files in every run."""
    config = small_config(max_hash_slot_num=3, max_index_num=40)
    disk = MemoryDisk()
    service = new_service(disk, config=config)
    wanted: dict[str, list[tuple[int, int]]] = defaultdict(list)
    time_ms, start_ms = 1_700_000_000_000, 1_700_000_000_000
    for number, (tag, keys, wait_ms) in enumerate(puts):
        time_ms += wait_ms
        texts = sorted(f"key{key}" for key in keys)
        tag_hash = tag_index_hash("T", f"tag{tag}") if tag else -1
        service.put_keys("T", f"id{number}", " ".join(texts), tag_hash, number * 100, time_ms)
        for text in [*texts, f"id{number}"]:
            wanted[text].append((number * 100, time_ms))
    begin, end = start_ms + begin_s * 10, start_ms + (begin_s + length_s) * 10
    for key in [f"key{n}" for n in range(6)] + ["id0", "id7"]:
        found = service.query(index_hash("T", key), 1000, begin, end)[0]
        entries = wanted.get(key, [])
        # Entries keep whole seconds after their file's first one: up to one second of doubt.
        sure = [o for o, t in entries if begin <= t <= end and t - 999 >= begin]
        assert set(sure) <= set(found)
        assert set(found) <= {o for o, t in entries if begin <= t <= end + 999}
    assert sorted(service.query(index_hash("T", "key1"), 1000, 0, FOREVER)[0]) == [
        offset for offset, _ in wanted.get("key1", [])
    ]


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.one_of(st.none(), st.integers(0, 20).map(lambda n: f"{n:032X}")),
                st.one_of(st.none(), st.sampled_from(["a", "a b", " a  c "])),
                st.sampled_from([-1, 5, 6]),
            ),
            max_size=6,
        ),
        max_size=40,
    )
)
def test_a_batch_leaves_the_bytes_that_its_messages_alone_would_leave(
    batches: list[list[tuple[str | None, str | None, int]]],
) -> None:
    """Small files: a batch may need several of them."""
    config = small_config(max_hash_slot_num=7, max_index_num=40)
    disk, batch_disk = MemoryDisk(), MemoryDisk()
    single, whole = new_service(disk, config=config), new_service(batch_disk, config=config)
    offset = 0
    for number, messages in enumerate(batches):
        time_ms = 1_700_000_000_000 + number * 700
        placed = []
        for uniq_key, keys, tag_hash in messages:
            placed.append((uniq_key, keys, tag_hash, offset))
            single.put_keys("T", uniq_key, keys, tag_hash, offset, time_ms)
            offset += 100
        whole.put_batch("T", placed, time_ms)
    assert whole.end_offset == single.end_offset
    assert disk.listdir(DIRECTORY) == batch_disk.listdir(DIRECTORY)
    for file, other in zip(single.files, whole.files, strict=True):
        assert disk.read_at(file.path, 0, file.size) == batch_disk.read_at(
            other.path, 0, other.size
        )


def test_the_newest_entries_come_first_and_no_more_than_asked_for() -> None:
    service = new_service(MemoryDisk())
    for number in range(1000):
        service.put_keys("T", None, "k", -1, number, 1_700_000_000_000)
    found, timestamp, end_offset = service.query(index_hash("T", "k"), 5, 0, FOREVER)
    assert found == [999, 998, 997, 996, 995]
    assert (timestamp, end_offset) == (1_700_000_000_000, 999)


def test_an_index_survives_a_restart_and_goes_on() -> None:
    disk = MemoryDisk()
    service = new_service(disk)
    for number in range(500):
        service.put_keys("T", f"id{number}", "k", -1, number, 1_700_000_000_000 + number)
    service.stop()
    again = new_service(disk)
    assert again.end_offset == 499
    again.put_keys("T", "id499", "k", -1, 499, 1_700_000_000_499)
    again.put_keys("T", "id500", "k", -1, 500, 1_700_000_000_500)
    assert offsets_of(again, "T", "id499") == [499]
    assert len(again.query(index_hash("T", "k"), 1000, 0, FOREVER)[0]) == 501


def test_a_batch_that_comes_when_the_last_file_is_full_and_closed_waits_for_the_next() -> None:
    disk, pool = MemoryDisk(), ManualPool()
    service = new_service(disk, pool)
    for number in range(399):
        service.put_keys("T", f"id-{number}", None, -1, number, 1_700_000_000_000)
    # So far, and no further: the next file is not made before the end.
    while service.waiting:
        pool.run(1)
    pool = ManualPool()
    again = new_service(disk, pool)
    again.put_batch("T", [("a", None, -1, 1000), ("b", None, -1, 1001)], 1_700_000_000_001)
    assert again.waiting == 2
    pool.run()
    assert offsets_of(again, "T", "a") == [1000]
    assert offsets_of(again, "T", "b") == [1001]


def test_a_batch_that_comes_while_the_last_file_cannot_be_opened_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, clock = MemoryDisk(), Clock()
    clock.advance(NOW)
    service = new_service(disk, clock=clock)
    service.put_keys("T", "old", None, -1, 1, 1_700_000_000_000)
    service.stop()

    def fails(*args: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "map", fails)
        again = new_service(disk, clock=clock)
    again.put_batch("T", [("a", None, -1, 1000), ("b", None, -1, 1001)], 1_700_000_000_001)
    assert again.waiting == 2
    clock.advance(60)
    again.retry()
    assert again.waiting == 0
    for key, offset in (("old", 1), ("a", 1000), ("b", 1001)):
        assert offsets_of(again, "T", key) == [offset]


@pytest.mark.parametrize("broken", [False, True])
def test_a_full_file_is_on_the_device_before_the_checkpoint_says_so(broken: bool) -> None:
    disk, pool = MemoryDisk(), ManualPool()
    service = new_service(disk, pool)
    service.put_keys("T", "id0", None, -1, 0, 1_700_000_000_000)
    pool.run()
    for number in range(1, 400):
        service.put_keys("T", f"id{number}", None, -1, number, 1_700_000_000_000 + number)
    full = service.files[0]
    assert full.is_full
    pool.run(1)
    assert len(service.files) == 2
    assert service._checkpoint.index_msg_timestamp_ms == 0
    if broken:
        disk.sync_error = OSError(errno.EIO, "broken")
    pool.run()
    assert service._checkpoint.index_msg_timestamp_ms == (0 if broken else full.end_timestamp_ms)
    assert offsets_of(service, "T", "id3") == [3]


def test_after_a_crash_files_younger_than_the_checkpoint_go() -> None:
    disk = MemoryDisk()
    service = new_service(disk)
    for number in range(500):
        service.put_keys("T", f"id{number}", None, -1, number, 1_700_000_000_000 + number)
    checkpoint = service._checkpoint
    assert checkpoint.index_msg_timestamp_ms == service.files[0].end_timestamp_ms
    checkpoint.save(ImmediatePool())
    again = new_service(disk, clean=False)
    assert len(again.files) == 1
    assert again.end_offset == 398
    assert offsets_of(again, "T", "id7") == [7]
    assert offsets_of(again, "T", "id450") == []


def test_a_full_disk_loses_entries_but_raises_nothing_and_heals() -> None:
    disk, clock = MemoryDisk(capacity_bytes=0), Clock()
    clock.advance(NOW)
    service = new_service(disk, clock=clock)
    for number in range(100):
        service.put_keys("T", f"id{number}", None, -1, number, 1_700_000_000_000)
    assert service.files == []
    disk.capacity_bytes = 1 << 30
    clock.advance(2)
    service.put_keys("T", "id100", None, -1, 100, 1_700_000_000_000)
    assert offsets_of(service, "T", "id100") == [100]
    assert offsets_of(service, "T", "id0") == [0]


def test_an_error_that_nobody_foresaw_is_not_met_again_at_once() -> None:
    disk, pool, clock = MemoryDisk(), ManualPool(), Clock()
    clock.advance(NOW)
    service = new_service(disk, pool, clock)
    map_file, tries = disk.map, list[str]()

    def map_badly(path: str, size: int, create: bool) -> IMapping:
        tries.append(path)
        raise ValueError("a mapping of a kind that nobody foresaw")

    disk.map = map_badly  # type: ignore[method-assign]
    service.put_keys("T", "id0", None, -1, 0, 1_700_000_000_000)
    pool.run(3)
    assert len(tries) == 1
    assert not pool.pending
    disk.map = map_file  # type: ignore[method-assign]
    clock.advance(index.RETRY_MS / 1000)
    service.put_keys("T", "id1", None, -1, 1, 1_700_000_000_000)
    pool.run()
    assert offsets_of(service, "T", "id0") == [0]
    assert offsets_of(service, "T", "id1") == [1]


def test_entries_wait_in_order_while_the_pool_is_busy_and_a_bound_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index, "MAX_WAITING", 100)
    disk, pool, told = MemoryDisk(), ManualPool(), list[int]()
    service = new_service(disk, pool, config=small_config(max_index_num=1_000_000))
    service.when_full = lambda: told.append(service.waiting)
    for number in range(110):
        service.put_keys("T", None, f"k{number % 2}", -1, number, 1_700_000_000_000)
    assert told == [100]
    assert offsets_of(service, "T", "k1") == []
    pool.run()
    assert offsets_of(service, "T", "k1")[:2] == [109, 107]


def test_a_damaged_chain_does_not_go_round_in_circles() -> None:
    disk = MemoryDisk()
    service = new_service(disk)
    for number in range(10):
        service.put_keys("T", None, "k", -1, number, 1_700_000_000_000)
    file = service.files[0]
    assert file.mapping is not None
    at = INDEX_HEADER_BYTES + file.slots * 4 + 5 * 20
    entry = INDEX_ENTRY.unpack_from(file.mapping.buffer, at)
    INDEX_ENTRY.pack_into(file.mapping.buffer, at, *entry[:3], 9)
    assert offsets_of(service, "T", "k") == [9, 8, 7, 6, 5, 4]


def test_files_that_contradict_themselves_and_files_of_another_size_are_not_used() -> None:
    disk = MemoryDisk()
    service = new_service(disk)
    service.put_keys("T", "id0", None, -1, 7, 1_700_000_000_000)
    service.stop()
    name = disk.listdir(DIRECTORY)[0]
    header = list(INDEX_HEADER.unpack_from(disk.read_file(f"{DIRECTORY}/{name}")))
    header[5] = 10_000
    disk.write_at(f"{DIRECTORY}/{name}", 0, INDEX_HEADER.pack(*header))
    disk.create(f"{DIRECTORY}/{index_file_name(1_800_000_000_000)}", 100)
    disk.create(f"{DIRECTORY}/notes.txt", 10)
    again = new_service(disk)
    assert again.files == []
    assert again.end_offset == -1
    again.put_keys("T", "id0", None, -1, 7, 1_700_000_000_000)
    again.put_keys("T", "id1", None, -1, 8, 1_700_000_000_001)
    assert offsets_of(again, "T", "id0") == [7]
    assert offsets_of(again, "T", "id1") == [8]


def test_old_files_go_with_the_log() -> None:
    disk = MemoryDisk()
    service = new_service(disk)
    for number in range(1000):
        service.put_keys("T", f"id{number}", None, -1, number, 1_700_000_000_000 + number)
    assert len(disk.listdir(DIRECTORY)) == 3
    service.expire(500)
    assert len(disk.listdir(DIRECTORY)) == 2
    assert offsets_of(service, "T", "id100") == []
    assert offsets_of(service, "T", "id700") == [700]
    service.expire(10_000)
    assert len(disk.listdir(DIRECTORY)) == 1


def index_of_three_files(disk: MemoryDisk, count: int = 25) -> IndexService:
    """Ten messages in each file, a second apart."""
    clock = Clock()
    clock.advance(NOW)
    service = new_service(disk, clock=clock, config=small_config(max_index_num=11))
    for number in range(count):
        clock.advance(1)
        now_ms = int(clock.seconds() * 1000)
        service.put_keys("T", None, f"k{number}", -1, 100 * number, now_ms)
    assert len(service.files) == 3
    return service


def test_files_that_go_after_a_crash_go_from_the_end() -> None:
    # A start that is cut short must not leave a later file without those before it: that one might look trustworthy.
    removed: list[str] = []

    class Disk(MemoryDisk):
        def remove(self, path: str) -> None:
            removed.append(path)
            super().remove(path)

    disk = Disk()
    index_of_three_files(disk)
    names = disk.listdir(DIRECTORY)
    removed.clear()
    assert new_service(disk, config=small_config(max_index_num=11), clean=False).files == []
    assert removed == [f"{DIRECTORY}/{name}" for name in reversed(names)]


@pytest.mark.parametrize(
    ("foreign", "begins_at", "left"), [(0, 0, 0), (1, 0, 1), (2, 0, 2), (0, 1000, 3), (3, 0, 3)]
)
def test_files_of_another_log_go_with_all_behind_them(
    foreign: int, begins_at: int, left: int
) -> None:
    service = index_of_three_files(MemoryDisk())
    times = {file.end_offset: file.end_timestamp_ms for file in service.files}
    if foreign < 3:
        times[service.files[foreign].end_offset] = -1
    service.drop_foreign(begins_at, lambda offset: times.get(offset, -1))
    assert len(service.files) == left
    assert service.end_offset == (service.files[-1].end_offset if left else -1)


def test_many_entries_at_once_wait_for_room_and_are_found_then() -> None:
    disk, pool = MemoryDisk(), ManualPool()
    service = new_service(disk, pool)
    hashes = [index_hash("T", f"k{number}") for number in range(5000)]
    items = b"".join(
        INDEX_ITEM.pack(value, 100 * number, 1_700_000_000_000)
        for number, value in enumerate(hashes)
    )
    assert service.put_items(items, 0, 499_900)
    assert service.waiting == 5000
    while pool.pending:
        pool.run()
    assert service.waiting == 0
    assert offsets_of(service, "T", "k0") == [0]
    assert offsets_of(service, "T", "k4999") == [499_900]
    assert not service.put_items(items, 0, 499_900)
    assert offsets_of(service, "T", "k4999") == [499_900]
    assert service.put_items(b"", 500_000, 600_000)
    assert service.end_offset == 600_000


def test_many_entries_at_once_tell_that_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MAX_WAITING", 10)
    service, told = new_service(MemoryDisk(), ManualPool()), list[int]()
    service.when_full = lambda: told.append(service.waiting)
    item = INDEX_ITEM.pack(1, 2, 1_700_000_000_000)
    assert service.put_items(item * 7, 0, 2)
    assert told == []
    assert service.put_items(item * 7, 3, 3)
    assert service.put_items(item * 7, 4, 4)
    assert told == [14]


def test_an_index_is_behind_while_room_is_made_for_much_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index, "MAX_WAITING", 10)
    disk, pool = MemoryDisk(), ManualPool()
    service = new_service(disk, pool)
    items = INDEX_ITEM.pack(1, 2, 1_700_000_000_000)
    assert service.put_items(items * 5, 0, 2)
    assert not service.is_behind
    assert service.put_items(items, 3, 3)
    assert service.is_behind
    while pool.pending:
        pool.run()
    assert not service.is_behind
    assert service.waiting == 0
