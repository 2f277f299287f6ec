"""What does ``txrocketmq store`` say of official store directories, whole ones and such with a fault?"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from store_tool import Unpack, change, contents, expected, lock_holder, log_file, tool

# --------------------------------------------------------------------------- looking


def test_info_says_what_an_official_directory_holds(unpack: Unpack) -> None:
    lines = tool("info", unpack("5.4.0")).output.splitlines()
    assert lines[0] == "commit log    2 files of 1048576 bytes"
    assert lines[1] == "offsets       0 to at most 2097152"
    assert lines[2] == (
        "stored        2026-11-29T18:17:45.387+00:00 to 2026-11-29T18:18:37.502+00:00"
    )
    assert lines[3] == "queues        22 of 15 topics, 1 of them batch queues"
    assert lines[4] == "index         5 files"
    assert lines[-2:] == ["abort file    none", "lock          free"]


def test_info_says_who_holds_the_lock_and_how_the_last_stop_was(unpack: Unpack) -> None:
    root = unpack("5.4.0-crashed")
    (root / "abort").touch()
    with lock_holder(root):
        lines = tool("info", root).output.splitlines()
    # A running broker has such a file, too, and says nothing of its last stop with it.
    assert lines[-2:] == [
        "abort file    there: a broker runs",
        "lock          held by a running broker",
    ]
    lines = tool("info", root).output.splitlines()
    assert lines[-2:] == [
        "abort file    there: the last stop was not orderly",
        "lock          free",
    ]


@pytest.mark.parametrize("name", ["4.9.7", "5.4.0"])
def test_ls_lists_the_offsets_of_the_official_broker(name: str, unpack: Unpack) -> None:
    lines = tool("ls", unpack(name)).output.splitlines()
    assert lines[0].split() == ["QUEUE", "MIN", "MAX", "TOPIC"]
    found = {
        (topic, queue): (int(low), int(high))
        for queue, low, high, topic in (line.split() for line in lines[1:])
    }
    for topic in ("StoreA", "StoreB", "StoreDelay"):
        for queue, wanted in expected(name)["topics"][topic].items():
            assert found[topic, queue] == (wanted["minOffset"], wanted["maxOffset"])


@pytest.mark.parametrize("name", ["4.9.7", "5.4.0"])
def test_dump_prints_the_messages_of_a_queue(name: str, unpack: Unpack) -> None:
    found = tool("dump", unpack(name), "--topic", "StoreA", "--queue", 2)
    wanted = expected(name)["topics"]["StoreA"]["2"]["messages"]
    messages = [json.loads(line) for line in found.output.splitlines()]
    assert len(messages) == 350
    for message, official in zip(messages, wanted, strict=True):
        for field in ("queueOffset", "physicalOffset", "size", "msgId", "properties", "bornHost"):
            assert message[field] == official[field]
        assert hashlib.sha256(message["body"].encode()).hexdigest() == official["bodySha256"]


def test_dump_finds_messages_by_key_unique_key_and_time(unpack: Unpack) -> None:
    root = unpack("5.4.0")
    messages = [json.loads(line) for line in tool("dump", root).output.splitlines()]
    assert len(messages) == 1433
    chosen = next(m for m in messages if m["properties"].get("KEYS") == "batch-1")
    by_key = tool("dump", root, "--key", "batch-1").output.splitlines()
    assert [json.loads(line)["msgId"] for line in by_key] == [chosen["msgId"]]
    by_id = tool("dump", root, "--key", chosen["properties"]["UNIQ_KEY"]).output.splitlines()
    assert [json.loads(line)["msgId"] for line in by_id] == [chosen["msgId"]]
    time = chosen["storeTimestamp"]
    by_time = tool("dump", root, "--from", time, "--to", time).output.splitlines()
    assert [json.loads(line) for line in by_time] == [
        m for m in messages if m["storeTimestamp"] == time
    ]


@pytest.mark.parametrize("command", ["info", "ls", "dump", "verify"])
def test_looking_changes_nothing(command: str, unpack: Unpack) -> None:
    root = unpack("5.4.0-torn")
    before = contents(root)
    tool(command, root)
    assert contents(root) == before


def test_a_directory_that_is_no_store_is_one_line(tmp_path: Path) -> None:
    result = tool("info", tmp_path)
    assert result.exit_code == 1
    assert f"{tmp_path} is no store directory" in result.output


# --------------------------------------------------------------------------- verify


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        ("4.9.7", "1424 records, 1424 queue units, 2844 index entries; the log ends at 1950131"),
        ("5.4.0", "1433 records, 1433 queue units, 4290 index entries; the log ends at 2025632"),
    ],
)
def test_a_whole_official_store_has_no_faults(name: str, counted: str, unpack: Unpack) -> None:
    result = tool("verify", unpack(name))
    assert result.output == f"{counted}; faults: 0\n"
    assert result.exit_code == 0


def test_what_a_crash_left_behind_is_named(unpack: Unpack) -> None:
    result = tool("verify", unpack("5.4.0-torn"))
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0] == (
        "log: no valid record at 56789 (the lengths do not add up to the record's size); "
        "nothing valid is behind it"
    )
    assert "queue StoreA-0: lacks 3 messages of the log, from 54287 to 56511" in lines
    assert "index: lacks 9 messages that have keys, from 54287 to 56511" in lines


def test_a_flipped_byte_in_a_body_is_found_with_both_offsets(unpack: Unpack) -> None:
    root = unpack("5.4.0")
    message = json.loads(tool("dump", root, "--topic", "StoreA").output.splitlines()[500])
    start, end = message["physicalOffset"], message["physicalOffset"] + message["size"]
    change(log_file(root), start + 90, b"\xff")
    result = tool("verify", root)
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0].startswith(f"log: no valid record at {start} (body crc ")
    assert lines[0].endswith(f"goes on at {end}")
    queue = f"queue StoreA-{message['queueId']}: unit {message['queueOffset']}"
    assert f"{queue} says {message['size']} bytes at {start}, where no valid record is" in lines


def test_a_changed_queue_unit_is_found(unpack: Unpack) -> None:
    root = unpack("5.4.0")
    unit = root / "consumequeue" / "StoreA" / "1" / f"{0:020d}"
    change(unit, 7 * 20 + 19, b"\x77")
    result = tool("verify", root)
    assert result.exit_code == 1
    assert len(result.output.splitlines()) == 2
    assert result.output.startswith("queue StoreA-1: unit 7 has tags code ")


def test_a_cut_queue_is_found(unpack: Unpack) -> None:
    root = unpack("5.4.0")
    (root / "consumequeue" / "StoreA" / "3" / f"{6000:020d}").unlink()
    result = tool("verify", root)
    assert result.exit_code == 1
    assert result.output.startswith("queue StoreA-3: lacks 50 messages of the log, from ")


def test_a_queue_ahead_of_the_log_is_found(unpack: Unpack) -> None:
    root = unpack("4.9.7")
    change(log_file(root, 1), 1949776 - (1 << 20), bytes(1950131 - 1949776))
    result = tool("verify", root)
    assert result.exit_code == 1
    assert result.output.startswith(
        "queue %DLQ%CG_storeretry-0: unit 0 says 355 bytes at 1949776, behind the log's end 1949776\n"
    )


def test_a_deleted_index_file_is_found(unpack: Unpack) -> None:
    root = unpack("5.4.0")
    sorted((root / "index").iterdir())[1].unlink()
    result = tool("verify", root)
    assert result.exit_code == 1
    assert result.output.startswith("index: lacks ")
    assert tool("verify", root, "--no-index").exit_code == 0


def test_a_changed_index_entry_is_found_and_so_is_its_broken_chain(unpack: Unpack) -> None:
    root = unpack("5.4.0")
    path = min((root / "index").iterdir())
    entry_5 = 40 + 500 * 4 + 5 * 20
    change(path, entry_5, b"\x01\x02\x03\x04")
    result = tool("verify", root)
    assert result.exit_code == 1
    assert f"index {path.name}: the record at " in result.output
    assert "has no key of hash 16909060" in result.output
    assert f"index {path.name}: entry 77 follows 0 in its slot, not 5" in result.output


def test_a_log_in_several_directories(unpack: Unpack, tmp_path: Path) -> None:
    root = unpack("5.4.0")
    wanted = tool("dump", root).output
    parts = [tmp_path / "one", tmp_path / "two"]
    for part, file in zip(parts, sorted((root / "commitlog").iterdir()), strict=True):
        part.mkdir()
        file.rename(part / file.name)
    (root / "commitlog").rmdir()
    both = f"{parts[0]},{parts[1]}"
    assert tool("dump", root, "--commitlog", both).output == wanted
    assert tool("verify", root, "--commitlog", both).exit_code == 0
    refused = tool("dump", root, "--commitlog", f"{parts[0]},{tmp_path / 'three'}")
    assert refused.exit_code == 2
    assert "is no directory" in refused.output
