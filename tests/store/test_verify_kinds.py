"""Does ``txrocketmq store`` look into light queues, batch queues and extensions, and make them anew?"""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.internet.task import Clock

from txrocketmq.codec.record import encode_batch
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.model.flags import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import format_properties
from txrocketmq.store.disk import RealDisk
from txrocketmq.store.inspect import StoreDirectory
from txrocketmq.store.rebuild import repair
from txrocketmq.store.verify import Verifier
from txrocketmq.testing.store import open_memory_store, small_config

KEYS = {
    "enable_lmq": True,
    "enable_multi_dispatch": True,
    "enable_consume_queue_ext": True,
    "mapped_file_size_consume_queue_ext": 4096,
    "enabled_append_prop_crc": True,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with queues of all kinds, orderly stopped."""
    root = tmp_path / "store"
    clock = Clock()
    clock.advance(1_700_000_000)
    store = open_memory_store(RealDisk(), clock, config=small_config(str(root), **KEYS))
    for number in range(6):
        found = {
            "UNIQ_KEY": f"id{number}",
            "TAGS": "a",
            "INNER_MULTI_DISPATCH": "%LMQ%one,%LMQ%two" if number % 2 else "%LMQ%one",
        }
        store.put_message(
            MessageRecord(
                topic="T",
                queue_id=0,
                body=b"%d" % number,
                properties=format_properties(found),
                tags_code=tags_code("a"),
                uniq_key=found["UNIQ_KEY"],
            )
        )
        found = {"UNIQ_KEY": f"batch{number}", "INNER_NUM": "2"}
        store.put_message(
            MessageRecord(
                topic="B",
                queue_id=0,
                body=encode_batch([(0, b"x", b""), (0, b"y", b"")]),
                sys_flag=INNER_BATCH_FLAG | NEED_UNWRAP_FLAG,
                properties=format_properties(found),
                uniq_key=found["UNIQ_KEY"],
            )
        )
    store.stop()
    return root


def verified(root: Path) -> list[str]:
    said: list[str] = []
    faults = Verifier(StoreDirectory(root), said.append).run()
    assert faults == len(said)
    return said


def test_a_whole_store_has_no_fault(root: Path) -> None:
    assert verified(root) == []


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("consumequeue/%LMQ%two/0", "light queue %LMQ%two: unit 1 says"),
        ("batchconsumequeue/B/0", "queue B-0: lacks 1 messages"),
    ],
)
def test_a_wrong_unit_is_named(root: Path, path: str, words: str) -> None:
    file = root / path / f"{0:020d}"
    data = bytearray(file.read_bytes())
    unit = 46 if path.startswith("batch") else 20
    data[unit + 7] ^= 1
    file.write_bytes(data)
    assert any(said.startswith(words) for said in verified(root)), verified(root)


def test_a_unit_of_a_batch_queue_that_points_far_ahead_hides_none_behind_it(root: Path) -> None:
    file = root / f"batchconsumequeue/B/0/{0:020d}"
    data = bytearray(file.read_bytes())
    data[2] ^= 1
    file.write_bytes(data)
    assert any(said.startswith("queue B-0: lacks 1 messages") for said in verified(root))


def test_what_a_light_queue_lacks_is_said(root: Path) -> None:
    file = root / "consumequeue" / "%LMQ%two" / "0" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    data[40:60] = bytes(20)
    file.write_bytes(data)
    assert any("%LMQ%two-0: lacks 1 messages" in said for said in verified(root))


def test_repair_makes_them_all_anew(root: Path) -> None:
    names = [
        path.relative_to(root)
        for kind in ("consumequeue", "batchconsumequeue")
        for path in sorted((root / kind).rglob("0" * 20))
    ]
    assert len(names) == 4
    before = {name: (root / name).read_bytes() for name in names}
    repair(StoreDirectory(root), lambda text: None, lambda at: None, base=MessageStoreConfig())
    for name in names:
        assert (root / name).read_bytes() == before[name], name
    assert list((root / "consumequeue_ext" / "T" / "0").iterdir())
    assert verified(root) == []
