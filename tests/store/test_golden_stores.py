"""Does a store that the official broker wrote open, and list what the official broker lists after opening it?"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from txrocketmq.codec.record import decode_record
from txrocketmq.codec.storefiles import INDEX_ENTRY, INDEX_HEADER, INDEX_HEADER_BYTES
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.model.message import MessageExt, record_of
from txrocketmq.store.disk import RealDisk
from txrocketmq.store.indexfile import tag_index_hash
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.results import GetMessageStatus, PutMessageResult
from txrocketmq.testing.store import open_memory_store

STORES = ["4.9.7", "4.9.7-crashed", "4.9.7-torn", "5.4.0", "5.4.0-crashed", "5.4.0-torn"]
DELAY_LEVELS = "1s 2s 3s 4s 5s 6s 7s 8s 9s 10m 11m 12m 13m 14m 15m 30m 1h 2h"
FOREVER = 2**63 - 1

Unpack = Callable[[str], Path]
Expected = Callable[[str], dict[str, Any]]


def config(root: Path) -> MessageStoreConfig:
    """As the golden stores were written."""
    return MessageStoreConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=6000,
        mapper_file_size_batch_consume_queue=4600,
        max_hash_slot_num=500,
        max_index_num=1000,
        message_delay_level=DELAY_LEVELS,
    )


def open_store(root: Path) -> MessageStore:
    return open_memory_store(RealDisk(), config=config(root))


def read_all(store: MessageStore, topic: str, queue_id: int) -> list[MessageExt]:
    """Pull a queue from its smallest offset to its end."""
    messages = []
    offset = store.min_offset(topic, queue_id)
    while True:
        found = store.get_message(topic, queue_id, offset, 32, 1 << 20, None)
        assert not hasattr(found, "addCallback")
        if found.status is not GetMessageStatus.FOUND:
            assert found.status is GetMessageStatus.OFFSET_OVERFLOW_ONE
            return messages
        assert found.next_begin_offset > offset
        body = b"".join(found.records)
        position = 0
        while position < len(body):
            message, position = decode_record(body, position)
            messages.append(message)
        offset = found.next_begin_offset


def described(message: MessageExt) -> dict[str, Any]:
    """A message as the golden file describes it."""
    host, port = message.born_host
    store_host, store_port = message.store_host
    return {
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "size": message.store_size,
        "msgId": message.msg_id,
        "uniqKey": message.uniq_key,
        "topic": message.topic,
        "queueId": message.queue_id,
        "flag": message.flag,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
        "bodyLen": len(message.body),
        "bodySha256": hashlib.sha256(message.body).hexdigest(),
        "bodyCrc": message.body_crc,
        "sysFlag": message.sys_flag,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bornTimestamp": message.born_timestamp,
        "bornHost": f"{host}:{port}",
        "storeTimestamp": message.store_timestamp,
        "storeHost": f"{store_host}:{store_port}",
    }


@pytest.mark.parametrize("name", STORES)
def test_every_queue_lists_the_messages_that_the_official_broker_lists(
    name: str, unpack_store: Unpack, expected: Expected
) -> None:
    store = open_store(unpack_store(name))
    log_end = store.max_physical_offset()
    compared = 0
    for topic, queues in expected(name)["topics"].items():
        for queue_id, wanted in queues.items():
            messages = [m for m in wanted["messages"] if m["physicalOffset"] < log_end]
            for message in messages:
                message.pop("plainBodySha256")
            found = [described(m) for m in read_all(store, topic, int(queue_id))]
            assert found == messages
            compared += len(found)
            if len(messages) == len(wanted["messages"]):
                assert store.min_offset(topic, int(queue_id)) == wanted["minOffset"]
                assert store.max_offset(topic, int(queue_id)) == wanted["maxOffset"]
    assert compared >= (1400 if name in ("4.9.7", "5.4.0") else 69)


@pytest.mark.parametrize("name", STORES)
def test_keys_find_the_messages_that_the_official_broker_finds(
    name: str, unpack_store: Unpack, expected: Expected
) -> None:
    store = open_store(unpack_store(name))
    for query in expected(name)["queries"]:
        found = store.query_message(query["topic"], query["key"], 64, 0, FOREVER)
        offsets = [decode_record(record)[0].physical_offset for record in found.records]
        assert offsets == query["physicalOffsets"], query
        if offsets:
            said = query["extFields"]
            assert found.index_last_update_offset == int(said["indexLastUpdatePhyoffset"])
            assert found.index_last_update_timestamp == int(said["indexLastUpdateTimestamp"])


@pytest.mark.parametrize("name", [name for name in STORES if name.startswith("5")])
def test_searches_by_time_give_the_offsets_of_the_5_4_0_broker(
    name: str, unpack_store: Unpack, expected: Expected
) -> None:
    store = open_store(unpack_store(name))
    for topic, queues in expected(name)["topics"].items():
        for queue_id, wanted in queues.items():
            for search in wanted["searchByTimestamp"]:
                found = store.offset_by_time(topic, int(queue_id), search["timestamp"], False)
                assert found == search["offset"], (topic, queue_id, search)


def test_boundaries_of_a_search_by_time_hold_on_a_queue_with_equal_times(
    unpack_store: Unpack, expected: Expected
) -> None:
    store = open_store(unpack_store("4.9.7"))
    for queue_id, wanted in expected("4.9.7")["topics"]["StoreA"].items():
        times = [message["storeTimestamp"] for message in wanted["messages"]]
        for time in sorted(set(times))[::7]:
            for probe in (time - 1, time, time + 1):
                lower = sum(stored < probe for stored in times)
                upper = max(sum(stored <= probe for stored in times) - 1, 0)
                assert store.offset_by_time("StoreA", int(queue_id), probe, False) == lower
                assert store.offset_by_time("StoreA", int(queue_id), probe, True) == upper


def test_a_torn_record_is_cut_and_the_log_goes_on_at_its_place(
    unpack_store: Unpack, expected: Expected
) -> None:
    store = open_store(unpack_store("5.4.0-torn"))
    assert store.recovery is not None
    assert store.recovery.damage is not None
    assert store.max_physical_offset() == 56789
    assert store.look_message(56789) is None


def test_an_opened_store_serves_all_messages_again_after_a_clean_stop(
    unpack_store: Unpack, expected: Expected
) -> None:
    root = unpack_store("5.4.0-crashed")
    first = open_store(root)
    before = {key: read_all(first, *key) for key in first.queues()}
    first.stop()
    assert not (root / "abort").exists()
    second = open_store(root)
    assert second.recovery is not None
    assert second.recovery.clean
    assert {key: read_all(second, *key) for key in second.queues()} == before


def log_records(store: MessageStore) -> list[tuple[int, bytes]]:
    """All records of a log, in order."""
    scan = store.commit_log.scan(0)
    return [(offset, scan.record_bytes(offset, head)) for offset, head in scan]


def set_derived_aside(root: Path) -> Path:
    """Move what can be derived from the log to another directory, which is returned."""
    aside = root.parent / "official"
    aside.mkdir()
    for directory in ("consumequeue", "batchconsumequeue", "index"):
        if (root / directory).exists():
            shutil.move(root / directory, aside / directory)
    (root / "checkpoint").unlink()
    return aside


def assert_queues_equal(ours: Path, official: Path) -> None:
    compared = 0
    for directory in ("consumequeue", "batchconsumequeue"):
        for path in sorted(p for p in (official / directory).rglob("*") if p.is_file()):
            if any(path.read_bytes()):
                written = ours / directory / path.relative_to(official / directory)
                assert written.read_bytes() == path.read_bytes(), path
                compared += 1
    assert compared > 15


def index_entries(directory: Path) -> list[tuple[int, int]]:
    """``(key hash, physical offset)`` of all entries of all index files."""
    entries = []
    for path in sorted(directory.iterdir()):
        data = path.read_bytes()
        count = INDEX_HEADER.unpack_from(data)[5]
        start = INDEX_HEADER_BYTES + 500 * 4
        for number in range(1, count):
            key_hash, offset, _, _ = INDEX_ENTRY.unpack_from(data, start + number * 20)
            entries.append((key_hash, offset))
    return entries


def without_tags(entries: list[tuple[int, int]], store: MessageStore) -> list[tuple[int, int]]:
    """Index entries but for those of tags, which 4.x does not make."""
    tags = set()
    for offset in {offset for _, offset in entries}:
        message = store.look_message(offset)
        assert message is not None
        if message.tags is not None:
            tags.add((tag_index_hash(message.topic, message.tags), offset))
    assert tags
    return [entry for entry in entries if entry not in tags]


@pytest.mark.parametrize("name", ["4.9.7", "5.4.0"])
def test_queues_derived_from_an_official_log_are_the_official_bytes(
    name: str, unpack_store: Unpack
) -> None:
    root = unpack_store(name)
    official = set_derived_aside(root)
    open_store(root).stop()
    assert_queues_equal(root, official)


def test_an_index_derived_from_a_5_4_0_log_is_the_official_bytes(unpack_store: Unpack) -> None:
    root = unpack_store("5.4.0")
    official = set_derived_aside(root)
    open_store(root).stop()
    assert [path.read_bytes() for path in sorted((root / "index").iterdir())] == [
        path.read_bytes() for path in sorted((official / "index").iterdir())
    ]


def send_again(official: MessageStore, store: MessageStore, clock: Clock) -> None:
    """Put all messages of a log, in order and at their times, into an empty store."""
    for _, head in official.commit_log.scan(0):
        message = official.look_message(head.physical_offset)
        assert message is not None
        clock.rightNow = (message.store_timestamp + 0.5) / 1000
        result = store.put_message(record_of(message))
        assert isinstance(result, PutMessageResult)
        assert result.physical_offset == message.physical_offset
        assert result.queue_offset == message.queue_offset


def test_messages_sent_again_make_the_official_log_queues_and_index(
    unpack_store: Unpack, tmp_path: Path
) -> None:
    """What the path of a send writes is what the official broker wrote, byte for byte."""
    root = unpack_store("4.9.7")
    official = open_store(root)
    ours = tmp_path / "ours"
    clock = Clock()
    store = open_memory_store(RealDisk(), clock, config=config(ours))
    send_again(official, store, clock)
    store.stop()
    logs = sorted((ours / "commitlog").iterdir())
    assert [path.name for path in logs] == [f"{0:020d}", f"{1 << 20:020d}"]
    for path in logs:
        assert path.read_bytes() == (root / "commitlog" / path.name).read_bytes()
    assert_queues_equal(ours, root)
    assert without_tags(index_entries(ours / "index"), official) == index_entries(root / "index")
