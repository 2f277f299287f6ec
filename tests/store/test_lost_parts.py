"""What does a start make of light queues, batch queues and index files that lost a part after an orderly stop, and does the tool mend all of it?"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from twisted.internet.task import Clock

from txrocketmq.cli.main import main
from txrocketmq.codec.record import decode_records, encode_batch
from txrocketmq.model.flags import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import format_properties
from txrocketmq.store.disk import RealDisk
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.results import GetMessageResult, PutMessageResult
from txrocketmq.testing.store import open_memory_store, small_config

COUNT = 300
LIGHT, PLAIN, BATCHES = "%LMQ%one", "T", "B"
LOG_FILE, QUEUE_FILE, BATCH_FILE = 64 * 1024, 2000, 4600
BROKER_CONF = f"""
maxHashSlotNum=100
maxIndexNum=400
mappedFileSizeConsumeQueue={QUEUE_FILE}
mapperFileSizeBatchConsumeQueue={BATCH_FILE}
enableLmq=true
enableMultiDispatch=true
"""


def opened(root: Path) -> MessageStore:
    clock = Clock()
    clock.advance(1_700_000_000)
    keys = {
        "enable_lmq": True,
        "enable_multi_dispatch": True,
        "enabled_append_prop_crc": True,
    }
    store = open_memory_store(RealDisk(), clock, config=small_config(str(root), **keys))
    store.use_topic_attributes(lambda topic: {"queue.type": "BatchCQ"} if topic == BATCHES else {})
    return store


def send(store: MessageStore, first: int, count: int) -> None:
    """A plain message that is in a light queue too, and a batch of two, so many times."""
    for number in range(first, first + count):
        found = {
            "UNIQ_KEY": f"id{number}",
            "KEYS": f"k{number}",
            "TAGS": "a",
            "INNER_MULTI_DISPATCH": LIGHT,
        }
        plain = MessageRecord(
            topic=PLAIN,
            queue_id=0,
            body=b"%d:" % number + b"x" * 400,
            properties=format_properties(found),
            tags_code=tags_code("a"),
            keys=found["KEYS"],
            uniq_key=found["UNIQ_KEY"],
        )
        batch = MessageRecord(
            topic=BATCHES,
            queue_id=0,
            body=encode_batch([(0, b"%d" % number, b""), (0, b"y", b"")]),
            sys_flag=INNER_BATCH_FLAG | NEED_UNWRAP_FLAG,
            properties=format_properties({"UNIQ_KEY": f"b{number}", "INNER_NUM": "2"}),
            uniq_key=f"b{number}",
        )
        for record in (plain, batch):
            result = store.put_message(record)
            assert isinstance(result, PutMessageResult)
            assert result.is_ok


def numbers(store: MessageStore, topic: str) -> list[int]:
    """What a queue has, in its order."""
    found, offset = [], store.min_offset(topic, 0)
    while offset < store.max_offset(topic, 0):
        result = store.get_message(topic, 0, offset, 32, 1 << 20, None)
        assert isinstance(result, GetMessageResult)
        assert result.next_begin_offset > offset
        for message in decode_records(b"".join(result.records)):
            body = message.body[8:] if topic == BATCHES else message.body
            found.append(int(bytes(c for c in body.partition(b":")[0][:12] if 48 <= c < 58) or 0))
        offset = result.next_begin_offset
    return found


def by_key(store: MessageStore, number: int) -> list[bytes]:
    records = store.query_message(PLAIN, f"k{number}", 5, 0, 2**62).records
    return [message.body.partition(b":")[0] for message in decode_records(b"".join(records))]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with several files of each kind, orderly stopped."""
    root = tmp_path / "store"
    store = opened(root)
    send(store, 0, COUNT)
    store.stop()
    return root


def tool(*words: object) -> Result:
    result = CliRunner().invoke(main, ["store", *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result


def files(root: Path, part: str) -> list[Path]:
    return sorted(path for path in (root / part).iterdir() if path.name.isdigit())


@pytest.mark.parametrize(
    "row", [f"consumequeue/{LIGHT}/0", f"batchconsumequeue/{BATCHES}/0", f"consumequeue/{PLAIN}/0"]
)
@pytest.mark.parametrize("ruin", [Path.unlink, lambda path: os.truncate(path, 0)])
def test_a_queue_that_lost_its_newest_file_gives_no_offset_twice(
    root: Path, row: str, ruin: Callable[[Path], None]
) -> None:
    assert len(files(root, row)) > 1
    ruin(files(root, row)[-1])
    store = opened(root)
    send(store, COUNT, 5)
    assert store.max_offset(LIGHT, 0) == store.max_offset(PLAIN, 0) == COUNT + 5
    assert store.max_offset(BATCHES, 0) == 2 * (COUNT + 5)
    for topic in (PLAIN, LIGHT):
        assert numbers(store, topic) == list(range(COUNT + 5))
    store.stop()
    assert tool("verify", root).exit_code == 0


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize(
    "ruin",
    [
        lambda path: os.truncate(path, 7),
        lambda path: os.truncate(path, path.stat().st_size + 1),
        lambda path: path.write_bytes(bytes(path.stat().st_size)),
        Path.unlink,
    ],
)
def test_a_bad_index_file_leaves_no_hole(
    root: Path, number: int, ruin: Callable[[Path], None]
) -> None:
    """Those behind it are made again with it: what it lacks would never be indexed otherwise."""
    assert len(files(root, "index")) > 2
    if number == 0 and ruin is Path.unlink:
        # Looks like an index that began later.
        number = 1
    ruin(files(root, "index")[number])
    store = opened(root)
    is_gap = ruin is Path.unlink and number == 1
    if not is_gap:
        for wanted in (0, COUNT // 2, COUNT - 1):
            assert by_key(store, wanted) == [b"%d" % wanted]
    store.stop()
    assert (tool("verify", root).exit_code == 0) is not is_gap


def test_a_bad_unit_costs_its_own_message_alone(root: Path) -> None:
    path = files(root, f"consumequeue/{PLAIN}/0")[0]
    with path.open("r+b") as file:
        file.seek(5 * 20 + 8)
        file.write(b"\x40")
        file.seek(7 * 20)
        file.write(bytes(20))
    store = opened(root)
    assert numbers(store, PLAIN) == [n for n in range(COUNT) if n not in (5, 7)]
    store.stop()


@pytest.mark.parametrize(
    ("ruin", "lost"),
    [
        (lambda path: os.truncate(path, 0), True),
        (lambda path: os.truncate(path, 30_001), True),
        (lambda path: os.truncate(path, 70_000), False),
        (Path.unlink, True),
    ],
)
def test_repair_mends_a_log_file_of_a_wrong_size(
    root: Path, ruin: Callable[[Path], None], lost: bool
) -> None:
    damaged = files(root, "commitlog")[1]
    first, last = int(damaged.name), int(damaged.name) + LOG_FILE
    ruin(damaged)
    conf = root.parent / "broker.conf"
    conf.write_text(BROKER_CONF)
    assert tool("repair", root, "--skip", "--apply", "-c", conf).exit_code == 0
    result = tool("verify", root)
    assert result.exit_code == 0, result.output
    kept = [json.loads(line) for line in tool("dump", root, "--topic", PLAIN).stdout.splitlines()]
    assert (len(kept) < COUNT) is lost
    store = opened(root)
    found = numbers(store, PLAIN)
    assert len(found) == len(kept)
    missing = set(range(COUNT)) - set(found)
    assert len(missing) * 600 <= last - first
    send(store, COUNT, 1)
    assert store.max_offset(PLAIN, 0) == COUNT + 1
    store.stop()


def test_repair_bridges_a_record_whose_seal_is_broken(root: Path) -> None:
    place = json.loads(tool("dump", root, "--key", "k20").stdout.splitlines()[0])["physicalOffset"]
    path = files(root, "commitlog")[place // LOG_FILE]
    with path.open("r+b") as file:
        file.seek(place % LOG_FILE)
        data = file.read(700)
        file.seek(place % LOG_FILE + data.index(b"TAGS\x01") + 5)
        file.write(b"z")
    assert tool("verify", root).exit_code == 1
    assert "say --cut" in tool("repair", root).output
    assert tool("repair", root, "--skip", "--apply").exit_code == 0
    assert tool("verify", root).exit_code == 0
    store = opened(root)
    assert numbers(store, PLAIN) == [n for n in range(COUNT) if n != 20]
    store.stop()


@pytest.mark.parametrize(
    "name", ["index/{index}", f"consumequeue/{PLAIN}/0/{0:020d}", "commitlog/{log}", "checkpoint"]
)
def test_a_directory_in_a_files_place_is_no_traceback(root: Path, name: str) -> None:
    path = root / name.format(
        index=files(root, "index")[1].name, log=files(root, "commitlog")[1].name
    )
    path.unlink()
    path.mkdir()
    for command in ("info", "ls", "dump", "verify", "repair"):
        result = tool(command, root)
        assert result.exit_code in (0, 1)
        assert "Traceback" not in result.output


def test_a_checkpoint_of_garbage_is_shown_as_it_is(root: Path) -> None:
    (root / "checkpoint").write_bytes(b"\x7f" * 4096)
    result = tool("info", root)
    assert result.exit_code == 0
    assert "(no time)" in result.output


@pytest.mark.parametrize("knows", [True, False])
def test_repair_derives_light_queues_when_the_configuration_has_them(
    root: Path, knows: bool
) -> None:
    conf = root.parent / "broker.conf"
    conf.write_text(BROKER_CONF)
    shutil.rmtree(root / "consumequeue" / LIGHT)
    options = ("-c", conf) if knows else ()
    assert tool("repair", root, "--apply", *options).exit_code == 0
    listed = tool("ls", root).output
    assert (LIGHT in listed) is knows
    if knows:
        assert tool("verify", root).exit_code == 0
