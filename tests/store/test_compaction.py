"""Is the latest message of each key kept, and nothing else, whatever happens in between?"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from txrocketmq.codec.record import decode_record
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.interfaces import IDisk
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import format_properties
from txrocketmq.store.compaction.files import (
    END_UNIT,
    Segment,
    append,
    cut,
    kept_at,
    layout_of,
    messages_of,
)
from txrocketmq.store.compaction.offsetmap import OffsetMap
from txrocketmq.store.compaction.positions import read_positions, save_position
from txrocketmq.store.compaction.rewrite import COMPACTING, DELETE, compact, load, replace
from txrocketmq.store.disk import RealDisk
from txrocketmq.store.filter import TagsFilter
from txrocketmq.store.mapped import file_name
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.results import GetMessageResult, GetMessageStatus
from txrocketmq.store.upkeep import StoreUpkeep
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool, ManualPool
from txrocketmq.testing.simdisk import SimulatedCrash, SimulatedDisk
from txrocketmq.testing.store import ROOT, open_memory_store, small_config

TOPIC = "Compacted"
HOST = ("127.0.0.1", 10911)
ATTRIBUTES = {TOPIC: {"cleanup.policy": "COMPACTION"}}
INTERVAL_MS = 60_000
LAYOUT = layout_of(
    MessageStoreConfig(
        store_path_root_dir="/store",
        compaction_mapped_file_size=2300,
        compaction_cq_mapped_file_size=460,
    ),
    TOPIC,
    0,
)


def config(root: str = ROOT, **keys: object) -> MessageStoreConfig:
    sizes: dict[str, object] = {
        "compaction_mapped_file_size": 2300,
        "compaction_cq_mapped_file_size": 460,
        "compaction_schedule_internal": INTERVAL_MS,
        "flush_commit_log_least_pages": 0,
    }
    return small_config(root, **{**sizes, **keys})


def message(key: str | None, body: bytes = b"body", tag: str | None = None) -> MessageRecord:
    return MessageRecord(
        topic=TOPIC,
        queue_id=0,
        body=body,
        properties=format_properties({"KEYS": key, "TAGS": tag}),
        tags_code=tags_code(tag),
        born_host=HOST,
        store_host=HOST,
        born_timestamp=1_700_000_000_000,
        keys=key,
    )


class World:
    """A store with a compacted topic."""

    def __init__(self, disk: IDisk | None = None, root: str = ROOT, **keys: object) -> None:
        self.disk: Any = disk or MemoryDisk()
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.config = config(root, **keys)
        self.open()

    def open(self) -> None:
        self.store: MessageStore = open_memory_store(self.disk, self.clock, config=self.config)
        self.store.use_topic_attributes(ATTRIBUTES.get)

    def put(self, *keys: str, body: bytes = b"body", tag: str | None = None) -> None:
        for key in keys:
            outcome: Any = self.store.put_message(message(key, body, tag))
            assert outcome.is_ok

    def follow(self) -> None:
        """Everything that was sent is flushed and copied."""
        self.clock.advance(0.6)
        done: list[bool] = []
        self.store.compaction.catch_up().addCallback(done.append)
        assert done == [True]

    def compact(self) -> None:
        self.follow()
        done: list[object] = []
        self.store.compaction.compact((TOPIC, 0)).addBoth(done.append)
        assert done == [None]

    def get(self, offset: int, count: int = 32, wanted: Any = None) -> GetMessageResult:
        result = self.store.get_message(TOPIC, 0, offset, count, 1 << 20, wanted)
        if isinstance(result, Deferred):
            found: list[Any] = []
            result.addBoth(found.append)
            result = found[0]
        assert isinstance(result, GetMessageResult), result
        return result

    def everything(self, wanted: Any = None) -> list[tuple[int, str, bytes]]:
        """Offset, key and body of all messages that a consumer gets."""
        offset, found = 0, []
        while True:
            result = self.get(offset, wanted=wanted)
            data = b"".join(result.records)
            position = 0
            while position < len(data):
                read, position = decode_record(data, position)
                found.append((read.queue_offset, read.keys or "", read.body))
            if result.next_begin_offset <= offset:
                return found
            offset = result.next_begin_offset

    def stop(self) -> None:
        done: list[object] = []
        self.store.stop().addBoth(done.append)
        assert done == [None]

    def names(self, kind: str = "compactionLog") -> list[str]:
        found: list[str] = self.disk.listdir(
            f"{self.config.store_path_root_dir}/compaction/{kind}/{TOPIC}/0"
        )
        return found


@pytest.fixture(params=["memory", "real"])
def world(request: pytest.FixtureRequest, tmp_path: Any) -> World:
    """On both disks."""
    if request.param == "memory":
        return World()
    return World(RealDisk(), str(tmp_path / "store"))


# --------------------------------------------------------------------- what a consumer sees


def test_the_latest_message_of_each_key_is_left(world: World) -> None:
    for number in range(12):
        world.put("a", "b", f"only-{number}")
    world.compact()
    found = world.everything()
    keys = [key for _, key, _ in found]
    # The file that is written is not compacted.
    newest = world.store.compaction.queues[TOPIC, 0].segments[-1].first
    assert [key for offset, key, _ in found if offset < newest].count("a") <= 1
    assert {f"only-{number}" for number in range(12)} <= set(keys)
    assert [offset for offset, _, _ in found][-3:] == [33, 34, 35]
    assert len(found) < 36


def test_what_is_sent_can_be_read_before_it_is_copied(world: World) -> None:
    world.put("a", "b")
    assert [key for _, key, _ in world.everything()] == ["a", "b"]
    assert world.names() == []
    world.follow()
    assert world.names() == [file_name(0)]
    assert world.names("compactionCq") == [file_name(0)]
    assert [key for _, key, _ in world.everything()] == ["a", "b"]


def test_a_message_without_a_body_takes_its_key_away(world: World) -> None:
    world.put("a", "b")
    world.put("a", body=b"")
    for number in range(12):
        world.put(f"c{number}")
    world.compact()
    keys = [key for _, key, _ in world.everything()]
    assert "a" not in keys
    assert "b" in keys


def test_offsets_in_gaps_lead_to_the_next_message(world: World) -> None:
    for _ in range(9):
        world.put("a", "b")
    world.compact()
    found = world.everything()
    first = found[0][0]
    assert first > 2
    result = world.get(1)
    assert result.status is GetMessageStatus.FOUND
    assert result.queue_offsets[0] == first
    assert (result.min_offset, result.max_offset) == (first, 18)
    assert result.next_begin_offset == result.queue_offsets[-1] + 1
    assert world.get(18).status is GetMessageStatus.OFFSET_OVERFLOW_ONE
    beyond = world.get(30)
    assert (beyond.status, beyond.next_begin_offset) == (
        GetMessageStatus.OFFSET_OVERFLOW_BADLY,
        18,
    )


def test_a_pull_takes_no_more_than_it_asked_for(world: World) -> None:
    world.put(*"abcdefgh")
    world.follow()
    assert world.get(2, 3).queue_offsets == [2, 3, 4]
    one = world.store.get_message(TOPIC, 0, 0, 32, 1, None)
    assert isinstance(one, Deferred)
    found: list[Any] = []
    one.addCallback(found.append)
    # A hundred bytes at least, as officially: one message, whatever its size.
    assert found[0].message_count == 1


def test_a_tag_is_looked_for_in_the_copy_too(world: World) -> None:
    world.put("a", "b", tag="TagA")
    world.put("c", "d", tag="TagB")
    world.follow()
    wanted = TagsFilter([tags_code("TagB")])
    assert [key for _, key, _ in world.everything(wanted)] == ["c", "d"]


def test_a_queue_that_nobody_wrote_to_is_none() -> None:
    world = World()
    assert world.get(0).status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE


def test_compaction_that_is_switched_off_keeps_all() -> None:
    world = World(enable_compaction=False)
    for _ in range(9):
        world.put("a", "b")
    world.clock.advance(INTERVAL_MS)
    assert len(world.everything()) == 18
    assert world.names() == []


# --------------------------------------------------------------------- time


def test_queues_are_followed_and_compacted_in_time(world: World) -> None:
    for _ in range(9):
        world.put("a", "b")
    world.clock.advance(1)
    world.clock.advance(30)
    world.clock.advance(1)
    assert file_name(0) in world.names()
    assert len(world.everything()) == 18
    # The interval, a second, and the interval again at most.
    world.clock.advance(2 * INTERVAL_MS / 1000 + 1)
    assert len(world.everything()) < 18
    world.stop()
    assert world.clock.getDelayedCalls() == []


def test_after_a_restart_all_is_as_it_was(world: World) -> None:
    for number in range(9):
        world.put("a", "b", f"only-{number}")
    world.compact()
    before = world.everything()
    world.stop()
    world.open()
    assert world.everything() == before
    world.put("a", "z")
    world.compact()
    after = world.everything()
    assert [key for _, key, _ in after][-2:] == ["a", "z"]
    assert after[-1][0] == before[-1][0] + 2


def test_messages_outlive_the_commit_log(world: World) -> None:
    """The log gives no file up before its messages are copied."""
    world.put("early", body=b"x" * 1000)
    for number in range(90):
        world.put(f"k{number % 3}", body=b"x" * 1000)
    store, clock = world.store, world.clock
    upkeep = StoreUpkeep(store, world.config, world.disk, ImmediatePool(), clock)
    world.config.delete_when = ";".join(map(str, range(24)))
    world.config.file_reserved_time = 1
    clock.advance(7200)
    for _ in range(30):
        upkeep.retention.run()
        clock.advance(1)
    assert store.min_physical_offset() > 0
    assert store.min_offset(TOPIC, 0) > 0
    world.compact()
    found = world.everything()
    assert found[0][:2] == (0, "early")
    assert upkeep.clean_expired_queues() == 0


def test_no_file_of_the_log_goes_while_copies_fail() -> None:
    world = World()
    for number in range(90):
        world.put(f"k{number}", body=b"x" * 1000)
    upkeep = StoreUpkeep(world.store, world.config, world.disk, ImmediatePool(), world.clock)
    world.config.delete_when = ";".join(map(str, range(24)))
    world.config.file_reserved_time = 1
    pools = world.store.compaction._pools
    pools.write = ImmediatePool()
    pools.write.stop()
    world.clock.advance(7200)
    upkeep.retention.run()
    assert world.store.min_physical_offset() == 0
    pools.write = ImmediatePool()
    for _ in range(3):
        upkeep.retention.run()
        world.clock.advance(1)
    assert world.store.min_physical_offset() > 0


def test_a_deleted_topic_leaves_nothing(world: World) -> None:
    for _ in range(9):
        world.put("a", "b")
    world.compact()
    assert world.names()
    world.store.delete_topics([TOPIC])
    assert world.names() == world.names("compactionCq") == []
    world.put("new")
    world.follow()
    assert world.everything() == [(0, "new", b"body")]


@pytest.mark.parametrize("others", [0, 1, 3])
def test_a_copy_of_what_the_log_lost_is_made_again(world: World, others: int) -> None:
    """A power failure took the end of the commit log; other messages may have got those offsets before the copy is looked at."""
    world.put(*"abcdef")
    world.follow()
    queue = world.store.compaction.queues[TOPIC, 0]
    append(world.disk, queue._layout, queue.segments[-1], kept_messages("lost", start=6))
    world.stop()
    world.open()
    world.put(*"ghi"[:others])
    assert [key for _, key, _ in world.everything()] == list("abcdefghi"[: 6 + others])
    world.follow()
    assert world.store.compaction.queues[TOPIC, 0].end_offset == 6 + others
    assert [key for _, key, _ in world.everything()] == list("abcdefghi"[: 6 + others])


def test_what_is_not_flushed_is_not_copied(world: World) -> None:
    """It might take the place of an older message, and get lost."""
    world.put("a")
    world.follow()
    world.put("a")
    done: list[bool] = []
    world.store.compaction.catch_up().addCallback(done.append)
    queue = world.store.compaction.queues[TOPIC, 0]
    assert (done, queue.end_offset) == ([True], 1)
    assert len(world.everything()) == 2
    world.follow()
    assert queue.end_offset == 2


def test_nobody_reads_while_files_are_replaced() -> None:
    world = World()
    for _ in range(9):
        world.put("a", "b")
    world.follow()
    compaction = world.store.compaction
    pool = ManualPool()
    compaction._pools.read = compaction._pools.write = compaction._pools.compact = pool
    reading: Any = world.store.get_message(TOPIC, 0, 0, 32, 1 << 20, None)
    pool.work()
    run = compaction.compact((TOPIC, 0))
    pool.work()
    pool.deliver()
    pool.deliver()
    answers: list[Any] = []
    reading.addBoth(answers.append)
    assert answers[0].status is GetMessageStatus.FOUND
    # The files are being replaced: whoever comes now waits.
    late: Any = world.store.get_message(TOPIC, 0, 0, 32, 1 << 20, None)
    late.addBoth(answers.append)
    assert (len(answers), pool.pending) == (1, 1)
    pool.run()
    assert answers[1].queue_offsets[0] > 0
    assert run.called


# --------------------------------------------------------------------- files


def kept_messages(*keys: str, start: int = 0, body: bytes = b"body") -> list[Any]:
    from txrocketmq.codec.record import encode_record

    found = []
    for number, key in enumerate(keys, start):
        record = encode_record(message(key, body), number, 7, 1_700_000_000_000)
        kept = kept_at(record, 0)
        assert kept is not None
        found.append(kept)
    return found


def test_files_are_the_official_ones() -> None:
    """Sizes, names, the physical offset in the record, the end of a file that is full."""
    default = layout_of(MessageStoreConfig(store_path_root_dir="/s"), "T", 3)
    assert (default.unit_bytes, default.log_bytes) == (10_485_746, 104_857_460)
    assert default.log_path(0) == "/s/compaction/compactionLog/T/3/" + "0" * 20
    assert default.queue_path(0) == "/s/compaction/compactionCq/T/3/" + "0" * 20
    assert (LAYOUT.unit_bytes, LAYOUT.log_bytes) == (460, 2760)
    disk = MemoryDisk()
    segments = append(disk, LAYOUT, None, kept_messages(*"abcdefghijkl"))
    assert [segment.base for segment in segments] == [0, 2760]
    # Ten units have room: nine messages and the end.
    assert [segment.units for segment in segments] == [9, 3]
    units = disk.read_file(LAYOUT.queue_path(0))
    assert units[9 * 46 :] == END_UNIT
    log = disk.read_file(LAYOUT.log_path(2760))
    assert [decode_record(log)[0].physical_offset, decode_record(log)[0].queue_offset] == [2760, 9]
    blank = disk.read_at(LAYOUT.log_path(0), segments[0].log_end, 8)
    assert blank == (2760 - segments[0].log_end).to_bytes(4, "big") + bytes.fromhex("cbd43194")
    assert load(disk, LAYOUT) == segments


def test_a_message_without_a_key_or_too_large_is_left_out() -> None:
    disk = MemoryDisk()
    messages = [*kept_messages(" "), *kept_messages("big", start=1, body=bytes(3000))]
    assert append(disk, LAYOUT, None, [*messages, *kept_messages("a", start=2)])[0].first == 2


def test_the_map_of_keys_is_bounded_and_the_next_run_goes_on() -> None:
    keys = OffsetMap(0)
    assert all(keys.put(f"k{number}", number) for number in range(100))
    assert not keys.put("one more", 100)
    assert keys.put("k7", 101)
    assert (keys.get("k7"), keys.get("k8"), keys.get("none")) == (101, 8, -1)
    assert (len(keys), keys.last_offset) == (100, 101)
    assert len(OffsetMap(24_000)._table) <= 24_100
    disk = MemoryDisk()
    names = [f"k{number}" for number in range(150)]
    segments = append(disk, LAYOUT, None, kept_messages(*names, *names))
    made = compact(disk, LAYOUT, segments, -1, 0, lambda: False)
    assert made is not None
    assert (made.last_offset, made.kept) == (99, 300)
    replace(disk, LAYOUT, segments, made.segments)
    again = compact(disk, LAYOUT, made.segments, 99, 1 << 20, lambda: False)
    assert again is not None
    assert again.kept == 150
    assert compact(disk, LAYOUT, made.segments, 299, 0, lambda: False) is None


def test_a_damaged_record_ends_the_run_and_nothing_changes() -> None:
    disk = MemoryDisk()
    segments = append(disk, LAYOUT, None, kept_messages(*"abcdefghijkl"))
    disk.write_at(LAYOUT.log_path(0), 300, b"\xff" * 10)
    with pytest.raises(Exception, match="no valid record"):
        compact(disk, LAYOUT, segments, -1, 1 << 20, lambda: False)


def test_a_queue_file_that_is_missing_is_made_from_the_log() -> None:
    disk = MemoryDisk()
    segments = append(disk, LAYOUT, None, kept_messages(*"abcdefghijkl"))
    before = disk.read_file(LAYOUT.queue_path(0))
    disk.remove(LAYOUT.queue_path(0))
    assert load(disk, LAYOUT) == segments
    assert disk.read_file(LAYOUT.queue_path(0))[: 9 * 46] == before[: 9 * 46]


def test_units_after_a_gap_are_cut() -> None:
    disk = MemoryDisk()
    append(disk, LAYOUT, None, kept_messages(*"abcd"))
    disk.write_at(LAYOUT.queue_path(0), 2 * 46, bytes(46))
    (segment,) = load(disk, LAYOUT)
    assert (segment.units, segment.last) == (2, 1)
    assert not any(disk.read_file(LAYOUT.queue_path(0))[2 * 46 :])


@pytest.mark.parametrize("end", [0, 1, 5, 9, 11])
def test_a_cut_leaves_what_is_before_it(end: int) -> None:
    disk = MemoryDisk()
    segments = append(disk, LAYOUT, None, kept_messages(*"abcdefghijkl"))
    left = cut(disk, LAYOUT, segments, end)
    offsets = [kept.queue_offset for part in left for kept in messages_of(disk, LAYOUT, part)]
    assert offsets == list(range(end))
    assert load(disk, LAYOUT) == [
        Segment(p.base, p.units, p.first, p.last, p.log_end, p.is_full) for p in left
    ]


def test_positions_are_kept_in_the_official_file() -> None:
    disk = MemoryDisk()
    path = "/store/compaction/position-checkpoint"
    assert read_positions(disk, path) == {}
    save_position(disk, path, "T_0", 5)
    save_position(disk, path, "T_1", 7)
    assert read_positions(disk, path) == {"T_0": 5, "T_1": 7}
    disk.write_at(path, 0, b"xx")
    assert read_positions(disk, path) == {"T_0": 5}
    save_position(disk, path, "T_0", -1)
    assert read_positions(disk, path) == {}


# --------------------------------------------------------------------- crashes


def test_what_the_official_broker_left_half_done_is_put_in_order() -> None:
    """It was killed after some files had their new names: all old ones come back; after all had: the new ones stay."""
    for moved in range(4):
        disk = MemoryDisk()
        segments = append(disk, LAYOUT, None, kept_messages(*"abab" * 12))
        sealed = segments[:-1]
        made = compact(disk, LAYOUT, sealed, -1, 1 << 20, lambda: False)
        assert made is not None
        below = LAYOUT.below(COMPACTING)
        for number, segment in enumerate(sealed):
            path = LAYOUT.log_path(segment.base)
            if moved or number == 0:
                disk.rename(path, path + DELETE)
        if moved >= 2:
            for segment in made.segments:
                disk.rename(below.log_path(segment.base), LAYOUT.log_path(segment.base))
        if moved == 3:
            disk.remove(LAYOUT.log_path(0) + DELETE)
        left = load(disk, LAYOUT)
        offsets = [kept.queue_offset for part in left for kept in messages_of(disk, LAYOUT, part)]
        if moved < 2:
            assert offsets == list(range(48))
        else:
            assert len(offsets) == made.kept + segments[-1].units
        assert load(disk, LAYOUT) == left
        for directory in (LAYOUT.log_directory, LAYOUT.queue_directory):
            assert all(name.isdigit() for name in disk.listdir(directory))


def _lives(seed: int, kind: str) -> None:
    """Append, compact and crash at any operation; nothing that was on the device is lost, nothing old comes back for good."""
    rng = Random(seed)
    disk = SimulatedDisk(rng)
    sent: list[Any] = []
    safe = 0
    position = -1
    for _ in range(6):
        disk.disarm()
        segments = load(disk, LAYOUT)
        latest: dict[str, int] = {}
        for kept in sent:
            latest[kept.key] = kept.queue_offset
        found = [kept for part in segments for kept in messages_of(disk, LAYOUT, part)]
        offsets = [kept.queue_offset for kept in found]
        assert offsets == sorted(set(offsets)), seed
        for key, offset in latest.items():
            if offset < safe and sent[offset].body_size:
                assert offset in offsets, (seed, key, offset)
        for part in segments:
            size = disk.size(LAYOUT.log_path(part.base)), disk.size(LAYOUT.queue_path(part.base))
            assert size == (LAYOUT.log_bytes, LAYOUT.unit_bytes)
        for directory in (LAYOUT.log_directory, LAYOUT.queue_directory):
            assert all(name.isdigit() for name in disk.listdir(directory)), seed
        # What the copy lost is copied again, in the same places.
        following = offsets[-1] + 1 if offsets else 0
        disk.arm(rng.randrange(20, 400), kind)
        try:
            for _ in range(rng.randrange(1, 8)):
                fresh = [
                    kept_messages(
                        f"k{rng.randrange(6)}", start=n, body=b"x" * rng.choice((0, 5, 200))
                    )[0]
                    for n in range(len(sent), len(sent) + rng.randrange(1, 20))
                ]
                sent += fresh
                last = segments[-1] if segments else None
                changed = append(disk, LAYOUT, last, sent[following:])
                if last is not None and changed[0].base == last.base:
                    segments = segments[:-1]
                segments = [*segments, *changed]
                safe = following = len(sent)
                if rng.random() < 0.5:
                    sealed = segments[:-1]
                    made = compact(disk, LAYOUT, sealed, position, 1 << 16, lambda: False)
                    if made is not None:
                        replace(disk, LAYOUT, sealed, made.segments)
                        segments = [*made.segments, segments[-1]]
                        position = made.last_offset
            disk.end(kind)
        except SimulatedCrash:
            pass
        disk.restart()


@pytest.mark.parametrize("kind", ["power", "kill"])
def test_crashes_at_any_moment_lose_nothing(kind: str) -> None:
    for seed in range(120):
        _lives(seed, kind)
