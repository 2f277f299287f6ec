"""Does ``txrocketmq store repair`` make a store whole, and do export and import carry messages over?"""

from __future__ import annotations

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from store_tool import Unpack, change, contents, lock_holder, log_file, tool

from txrocketmq.errors import StoreError
from txrocketmq.model.message import MessageRecord
from txrocketmq.store import rebuild, verify
from txrocketmq.store.disk import RealDisk
from txrocketmq.store.inspect import StoreDirectory
from txrocketmq.store.rebuild import close_store, open_store
from txrocketmq.testing.store import open_memory_store, small_config

NOTHING_LOST = "faults: 0"


def messages(root: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in tool("dump", root).stdout.splitlines()]


def damage_one(root: Path) -> dict[str, object]:
    """Flip a byte in the body of a message in the middle of the log."""
    message = json.loads(tool("dump", root, "--topic", "StoreA").output.splitlines()[500])
    change(log_file(root), message["physicalOffset"] + 90, b"\xff")
    found: dict[str, object] = message
    return found


def broker_conf(root: Path) -> Path:
    """The configuration with which the golden stores were written, as far as files do not say it."""
    path = root.parent / "broker.conf"
    path.write_text(
        "messageDelayLevel=1s 2s 3s 4s 5s 6s 7s 8s 9s 10m 11m 12m 13m 14m 15m 30m 1h 2h\n"
        "maxHashSlotNum=500\nmaxIndexNum=1000\n"
    )
    return path


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(unpack: Unpack) -> None:
    root = unpack("5.4.0-torn")
    before = contents(root)
    result = tool("repair", root)
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "no valid record at 56789 (the lengths do not add up to the record's size); the log ends there",
        "69 records from which queues and index are derived",
        "nothing was changed: say --apply to do it",
    ]
    assert contents(root) == before


@pytest.mark.parametrize(
    "name", ["4.9.7-crashed", "4.9.7-torn", "5.4.0-crashed", "5.4.0-torn", "4.9.7", "5.4.0"]
)
def test_after_a_repair_nothing_is_wrong_and_every_message_is_there(
    name: str, unpack: Unpack
) -> None:
    root = unpack(name)
    before = messages(root)
    assert tool("repair", root, "--apply").exit_code == 0
    result = tool("verify", root)
    assert result.output.endswith(f"{NOTHING_LOST}\n"), result.output
    assert result.exit_code == 0
    assert messages(root) == before
    assert not (root / "abort").exists()


def test_derived_queues_and_index_are_the_official_bytes(unpack: Unpack) -> None:
    root = unpack("5.4.0")
    official = contents(root)
    tool("repair", root, "--apply", "-c", broker_conf(root))
    repaired = contents(root)
    queues = [name for name in official if name.startswith("consumequeue/StoreA/")]
    assert len(queues) == 8
    for name in [*queues, "consumequeue/SCHEDULE_TOPIC_XXXX/2/00000000000000000000"]:
        assert repaired[name] == official[name]
    indexes = [
        [found[name] for name in sorted(found) if name.startswith("index/")]
        for found in (repaired, official)
    ]
    assert indexes[0] == indexes[1]


def test_cut_queues_changed_units_and_a_deleted_index_are_made_again(unpack: Unpack) -> None:
    root = unpack("5.4.0")
    (root / "consumequeue" / "StoreA" / "3" / f"{6000:020d}").unlink()
    change(root / "consumequeue" / "StoreA" / "1" / f"{0:020d}", 7 * 20, b"\x77" * 20)
    shutil.rmtree(root / "index")
    assert tool("verify", root).exit_code == 1
    result = tool("repair", root, "--apply", "-c", broker_conf(root))
    assert "derived 22 queues and 5 index files; the log ends at 2025632" in result.output
    assert tool("verify", root).output.endswith(
        f"4290 index entries; the log ends at 2025632; {NOTHING_LOST}\n"
    )


def test_damage_in_the_middle_waits_for_a_word(unpack: Unpack) -> None:
    root = unpack("5.4.0")
    start = damage_one(root)["physicalOffset"]
    before = contents(root)
    result = tool("repair", root, "--apply")
    assert result.exit_code == 1
    assert result.output.splitlines()[-1] == (
        f"say --cut to drop everything from {start} on, or --skip to lose only what is damaged"
    )
    assert contents(root) == before


def test_skip_loses_the_damaged_message_alone(unpack: Unpack) -> None:
    root = unpack("5.4.0")
    before = messages(root)
    lost = damage_one(root)
    # Without the queues, a start has to read the log and meets the damage.
    shutil.copytree(root, root.parent / "copy")
    shutil.rmtree(root.parent / "copy" / "consumequeue")
    with pytest.raises(StoreError, match="txrocketmq store repair"):
        open_store(StoreDirectory(root.parent / "copy").config())
    assert tool("repair", root, "--apply", "--skip").exit_code == 0
    assert tool("verify", root).exit_code == 0
    left = [message for message in messages(root) if message["topic"] != "X"]
    assert left == [m for m in before if m["physicalOffset"] != lost["physicalOffset"]]
    close_store(open_store(StoreDirectory(root).config()))
    assert tool("verify", root).exit_code == 0


def test_damage_that_runs_into_the_next_file_is_bridged(unpack: Unpack) -> None:
    root = unpack("5.4.0")
    before = messages(root)
    doomed = [m for m in before if 1_040_000 < int(str(m["physicalOffset"])) < 1_060_000]
    first, last = (int(str(m["physicalOffset"])) for m in (doomed[0], doomed[-1]))
    change(log_file(root), first, b"\x01" * ((1 << 20) - first))
    change(log_file(root, 1), 0, b"\x01" * (last + 8 - (1 << 20)))
    assert tool("repair", root, "--apply", "--skip").exit_code == 0
    assert tool("verify", root).exit_code == 0
    assert [m for m in messages(root) if m["topic"] != "X"] == [
        m for m in before if m not in doomed
    ]


def test_cut_drops_everything_behind_the_damage(unpack: Unpack) -> None:
    root = unpack("5.4.0")
    before = messages(root)
    lost = damage_one(root)
    result = tool("repair", root, "--apply", "--cut")
    assert f"the log ends at {lost['physicalOffset']}" in result.output
    assert tool("verify", root).exit_code == 0
    assert messages(root) == [
        m for m in before if int(str(m["physicalOffset"])) < int(str(lost["physicalOffset"]))
    ]


def test_offsets_do_not_go_back_where_all_messages_have_expired(tmp_path: Path) -> None:
    store = open_memory_store(RealDisk(), config=small_config(str(tmp_path)))
    for topic, count in (("Old", 30), ("New", 400)):
        for _ in range(count):
            store.put_message(MessageRecord(topic=topic, queue_id=0, body=b"x" * 500))
    store.stop()
    log_file(tmp_path).unlink()
    before = tool("ls", tmp_path).output
    assert before.splitlines()[2].split() == ["0", "30", "30", "Old"]
    assert "kept 1 queues" in tool("repair", tmp_path, "--apply").output
    assert tool("ls", tmp_path).output == before
    assert tool("verify", tmp_path).exit_code == 0


@pytest.mark.parametrize("command", ["repair", "import"])
def test_nothing_is_written_while_a_broker_has_the_lock(
    command: str, unpack: Unpack, tmp_path: Path
) -> None:
    root = unpack("5.4.0")
    tool("export", root, tmp_path / "messages")
    with lock_holder(root):
        before = contents(root)
        words = ["--apply"] if command == "repair" else [tmp_path / "messages"]
        result = tool(command, root, *words)
        assert result.exit_code == 1
        assert "is locked: another broker uses this store" in result.output
        assert contents(root) == before


def test_what_the_system_refuses_is_said_in_words(unpack: Unpack) -> None:
    root = unpack("5.4.0-torn")
    (root / "lock").unlink(missing_ok=True)
    (root / "lock").mkdir()
    result = tool("repair", root, "--apply")
    assert result.exit_code == 1
    assert result.output.endswith(f"Error: {root}/lock: is a directory\n")


def test_what_was_exported_can_be_imported_elsewhere(unpack: Unpack, tmp_path: Path) -> None:
    root, target = unpack("5.4.0"), tmp_path / "target"
    target.mkdir()
    tool("export", root, tmp_path / "messages", "--topic", "StoreA", "--queue", 1)
    for already in (0, 350):
        assert tool("import", target, tmp_path / "messages").output == (
            "350 messages, 0 not taken\n"
        )
        assert tool("verify", target).exit_code == 0
        found = messages(target)[already:]
        wanted = [m for m in messages(root) if (m["topic"], m["queueId"]) == ("StoreA", 1)]
        for message, original in zip(found, wanted, strict=True):
            assert message["queueOffset"] == int(str(original["queueOffset"])) + already
            for field in ("body", "properties", "bornTimestamp", "bornHost", "size"):
                assert message[field] == original[field]


@pytest.mark.parametrize("line", ["4.9.7", "5.4.0"])
def test_a_whole_official_store_goes_through_export_and_import(
    line: str, unpack: Unpack, tmp_path: Path
) -> None:
    root, target = unpack(line), tmp_path / "target"
    target.mkdir()
    tool("export", root, tmp_path / "messages")
    said = tool("import", target, tmp_path / "messages")
    wanted = messages(root)
    assert said.output == f"{len(wanted)} messages, 0 not taken\n"
    assert len(wanted) > 1400
    # Offsets begin where the official ones do, so they are the same; all but the places of records with a new length are, too.
    for message, original in zip(messages(target), wanted, strict=True):
        for place in ("physicalOffset", "msgId"):
            del message[place], original[place]
        assert message == original
    verified = tool("verify", target)
    assert verified.exit_code == 0
    assert f"{len(wanted)} records" in verified.output
    # What was imported can be exported again, and is the same.
    tool("export", target, tmp_path / "again")
    assert len(messages(target)) == len(wanted)


@pytest.mark.parametrize("command", ["dump", "verify", "repair", "export", "import"])
def test_long_work_says_how_far_it_is(
    command: str, unpack: Unpack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = unpack("5.4.0")
    file = tmp_path / "messages"
    tool("export", root, file)
    monkeypatch.setattr(rebuild, "PROGRESS_BYTES", 300_000)
    monkeypatch.setattr(verify, "_PROGRESS_BYTES", 300_000)
    more = [file] if command in ("export", "import") else []
    lines = tool(command, root, *more).stderr.splitlines()
    found = [re.fullmatch(r"(\d+) % \((\d+)\)", line) for line in lines]
    shares = [int(match[1]) for match in found if match]
    places = [int(match[2]) for match in found if match]
    assert len(shares) >= 2
    assert shares == sorted(set(shares))
    assert 14 <= shares[0] <= 50
    assert shares[-1] <= 100
    assert all(b - a >= 300_000 for a, b in pairwise(places))


def test_a_deleted_topic_is_no_fault_and_stays_deleted(unpack: Unpack) -> None:
    root = unpack("5.4.0")
    shutil.rmtree(root / "consumequeue" / "StoreB")
    path = root / "config" / "topics.json"
    table = json.loads(path.read_bytes())
    del table["topicConfigTable"]["StoreB"]
    path.write_text(json.dumps(table))
    result = tool("verify", root)
    assert "topic StoreB was deleted: 5 messages of queue 1" in result.output
    assert result.exit_code == 0
    tool("repair", root, "--apply")
    assert not (root / "consumequeue" / "StoreB").exists()
