"""Does a store leave alone what others put into its directories, and refuse files of another size in words?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from log_watch import logged
from twisted.internet.task import Clock
from twisted.logger import formatEvent
from twisted.python.failure import Failure

from tests.store.test_batchqueue import BATCHES, batch
from tests.store.test_compaction import ATTRIBUTES as COMPACTED
from tests.store.test_compaction import TOPIC as COMPACTED_TOPIC
from tests.store.test_compaction import config as compaction_config
from tests.store.test_compaction import message as compacted_message
from txrocketmq.codec.record import decode_records
from txrocketmq.errors import StoreError
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import format_properties
from txrocketmq.store.disk import RealDisk
from txrocketmq.store.inspect import StoreDirectory
from txrocketmq.store.message_store import MessageStore
from txrocketmq.testing.store import open_memory_store

COUNT = 120
BATCH_TOPIC = "Batches"
TOPICS = ("T", BATCH_TOPIC, COMPACTED_TOPIC)
#: What somebody may leave behind: notes, a copy, a day's backup, the sum of a file, a number as others write them.
FILES = ("readme", f"{0:020d}.bak", "20261130", "00000000000000000001.md5", "٣", "²")
DIRECTORIES = ("lost+found", "old")


class Opened:
    """A store with files of every kind but the timer's."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        config = compaction_config(
            str(root),
            enable_consume_queue_ext=True,
            mapped_file_size_consume_queue_ext=200,
            mapper_file_size_batch_consume_queue=460,
        )
        self.store: MessageStore = open_memory_store(RealDisk(), self.clock, config=config)
        self.store.use_filter_bits(lambda topic, properties: bytes(14))
        self.store.use_topic_attributes({**COMPACTED, **BATCHES}.get)

    def fill(self) -> None:
        for number in range(COUNT):
            for record in (
                plain_message(number),
                batch(number, 1),
                compacted_message(f"key{number}", b"%d" % number),
            ):
                outcome: Any = self.store.put_message(record)
                assert outcome.is_ok
        self.follow()

    def follow(self) -> None:
        """Everything that was sent is flushed and copied."""
        self.clock.advance(0.6)
        done: list[bool] = []
        self.store.compaction.catch_up().addCallback(done.append)
        assert done == [True]

    def check(self) -> None:
        wanted = [b"%d" % number for number in range(COUNT)]
        for topic in ("T", COMPACTED_TOPIC):
            assert self.bodies(topic) == wanted, topic
        assert len(self.bodies(BATCH_TOPIC)) == COUNT
        assert {topic for topic, _ in self.store.queues()} == set(TOPICS)
        found = self.store.query_message("T", "k7", 32, 0, 1 << 62)
        assert [m.body for record in found.records for m in decode_records(record)] == [b"7"]

    def bodies(self, topic: str) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < self.store.max_offset(topic, 0):
            waiting: list[Any] = []
            result: Any = self.store.get_message(topic, 0, len(found), 32, 1 << 20, None)
            if hasattr(result, "addBoth"):
                result.addBoth(waiting.append)
                result = waiting[0]
            found += [message.body for message in decode_records(b"".join(result.records))]
        return found

    def stop(self) -> None:
        ended: list[object] = []
        self.store.stop().addBoth(ended.append)
        assert ended == [None]


def plain_message(number: int) -> MessageRecord:
    key = f"k{number}"
    return MessageRecord(
        topic="T",
        queue_id=0,
        body=b"%d" % number,
        properties=format_properties({"KEYS": key}),
        keys=key,
    )


def made(root: Path) -> None:
    opened = Opened(root)
    opened.fill()
    opened.stop()


def own_directories(root: Path) -> list[Path]:
    return [Path(place) for place, _, _ in os.walk(root)]


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_foreign_files_in_any_directory_disturb_nothing_and_stay(tmp_path: Path, end: str) -> None:
    root = tmp_path / "store"
    made(root)
    if end == "killed":
        (root / "abort").touch()
    foreign = []
    directories = own_directories(root)
    assert {"commitlog", "index", "consumequeue", "batchconsumequeue", "consumequeue_ext"} <= {
        path.relative_to(root).parts[0] for path in directories[1:]
    }
    assert any(path.match("compaction/compactionLog/*/0") for path in directories)
    for directory in directories:
        for name in FILES:
            # By its place a number below a topic is one of its queues, whatever it is.
            if not (name.isascii() and name.isdigit() and directory.name in TOPICS):
                (directory / name).write_bytes(b"not the store's")
                foreign.append(directory / name)
        for name in DIRECTORIES:
            (directory / name).mkdir()
            foreign.append(directory / name)
    for _ in range(2):
        opened = Opened(root)
        opened.check()
        opened.follow()
        opened.stop()
        assert [path for path in foreign if not path.exists()] == []
    assert {path.read_bytes() for path in foreign if path.is_file()} == {b"not the store's"}
    # The tool sees the same store.
    files = StoreDirectory(root)
    assert {queue.topic for queue in files.queues()} == set(TOPICS)


@pytest.fixture
def said() -> Iterator[list[str]]:
    with logged(show=lambda event: f"{formatEvent(event)} {event.get('log_failure', '')}") as lines:
        yield lines


def lengthened(root: Path, place: str, which: int) -> tuple[Path, str]:
    """One file of a directory gets a byte more; and what is said of it."""
    made(root)
    path = sorted((root / place).iterdir())[which]
    data = path.read_bytes() + b"x"
    path.write_bytes(data)
    return path, f"{path} has {len(data)} bytes, "


@pytest.mark.parametrize(
    "place",
    [
        "commitlog",
        "consumequeue/T/0",
        f"batchconsumequeue/{BATCH_TOPIC}/0",
        "consumequeue_ext/T/0",
    ],
)
@pytest.mark.parametrize("which", [0, -1], ids=["first", "last"])
def test_a_file_that_is_too_long_is_refused_in_words_and_kept(
    tmp_path: Path, place: str, which: int
) -> None:
    path, words = lengthened(tmp_path / "store", place, which)
    size = path.stat().st_size
    with pytest.raises(StoreError, match=f"{words}the configured file size is {size - 1}"):
        Opened(tmp_path / "store")
    assert path.stat().st_size == size


@pytest.mark.parametrize("kind", ["compactionLog", "compactionCq"])
@pytest.mark.parametrize("which", [0, -1], ids=["first", "last"])
def test_of_a_compacted_topic_such_a_file_is_named_and_the_others_are_served(
    tmp_path: Path, kind: str, which: int, said: list[str]
) -> None:
    place = f"compaction/{kind}/{COMPACTED_TOPIC}/0"
    path, words = lengthened(tmp_path / "store", place, which)
    size = path.stat().st_size
    opened = Opened(tmp_path / "store")
    assert opened.bodies("T") == [b"%d" % number for number in range(COUNT)]
    failed: list[Failure] = []
    pull: Any = opened.store.get_message(COMPACTED_TOPIC, 0, 0, 32, 1 << 20, None)
    pull.addErrback(failed.append)
    (failure,) = failed
    assert words in str(failure.value)
    assert f"MappedFileSize makes it {size - 1}" in str(failure.value)
    opened.clock.advance(0.6)
    opened.store.compaction.catch_up()
    assert sum("messages are not copied" in line and words in line for line in said) == 1
    assert path.stat().st_size == size
