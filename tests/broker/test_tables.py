"""Topics, groups and offsets: boot contents, automatic creation, and what survives a restart or a damaged file."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from txrocketmq.broker.config_files import ConfigFiles, PersistedTable
from txrocketmq.broker.consumer_offsets import ConsumerOffsets
from txrocketmq.broker.groups import SubscriptionGroups
from txrocketmq.broker.topics import Topics
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig
from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IBlockingPool
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.topic import TopicConfig
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool, ManualPool

CONFIG = "/store/config"
NOW_MS = 1_700_000_000_000


class Desk:
    """The tables of one broker over a disk that may outlive it."""

    def __init__(
        self, disk: MemoryDisk | None = None, pool: IBlockingPool | None = None, **settings: Any
    ) -> None:
        self.disk = disk or MemoryDisk()
        self.config = BrokerConfig(
            broker_name="broker-a", broker_cluster_name="ClusterA", **settings
        )
        self.files = ConfigFiles(self.disk, pool or ImmediatePool(), CONFIG)
        self.topics = Topics(self.config, MessageStoreConfig(), self.files, lambda: NOW_MS)
        self.groups = SubscriptionGroups(self.config, self.files, lambda: NOW_MS)
        self.offsets = ConsumerOffsets(self.config, self.files, lambda: NOW_MS)

    def json(self, name: str) -> Any:
        return json.loads(self.disk.read_file(f"{CONFIG}/{name}"))


def test_boot_topics_are_the_official_ones() -> None:
    topics = {t.topic_name: t for t in Desk(trace_topic_enable=True).topics.all()}
    queues = {name: t.write_queue_nums for name, t in topics.items()}
    assert queues == {
        "SELF_TEST_TOPIC": 1,
        "TBW102": 8,
        "BenchmarkTest": 1024,
        "ClusterA": 16,
        "broker-a": 1,
        "OFFSET_MOVED_EVENT": 1,
        "SCHEDULE_TOPIC_XXXX": 18,
        "RMQ_SYS_TRACE_TOPIC": 1,
        "ClusterA_REPLY_TOPIC": 1,
        "rmq_sys_REVIVE_LOG_ClusterA": 8,
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a": 1,
        "RMQ_SYS_TRANS_HALF_TOPIC": 1,
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": 1,
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": 1,
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC": 1,
        "rmq_sys_wheel_timer": 1,
    }
    assert topics["TBW102"].perm == 7
    assert topics["rmq_sys_SYNC_BROKER_MEMBER_broker-a"].perm == 1
    assert "TBW102" not in Desk(auto_create_topic_enable=False).topics


def test_boot_groups_are_the_official_ones() -> None:
    names = {group.group_name for group in Desk().groups.all()}
    assert names == {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_RMQ_SYS_TRANS",
    }


@pytest.mark.parametrize(("wanted", "got"), [(4, 4), (8, 8), (100, 8), (-1, 0)])
def test_automatic_creation_takes_the_smaller_queue_number(wanted: int, got: int) -> None:
    topic = Desk().topics.create_by_default("New", "TBW102", wanted, 0)
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (got, got, 6)


def test_automatic_creation_needs_a_model_that_may_be_copied() -> None:
    desk = Desk()
    assert desk.topics.create_by_default("New", "NoSuchTopic", 4, 0) is None
    assert desk.topics.create_by_default("New", "BenchmarkTest", 4, 0) is None
    assert desk.topics.create_by_default("New", "ClusterA", 4, 0) is not None
    kept = Desk(auto_create_topic_enable=False)
    kept.topics.update([TopicConfig(topic_name="TBW102", perm=7)])
    assert kept.topics.create_by_default("New", "TBW102", 4, 0) is None


def test_topics_survive_a_restart_with_their_version() -> None:
    desk = Desk()
    told: list[list[str | None]] = []
    desk.topics.on_change = lambda topics: told.append([t.topic_name for t in topics])
    desk.topics.create_by_default("New", "TBW102", 4, 0)
    desk.topics.update([TopicConfig(topic_name="Other", read_queue_nums=2, order=True)])
    assert told == [["New"], ["Other"]]
    assert desk.json("topics.json")["topicConfigTable"]["New"] == {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "New",
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }
    again = Desk(desk.disk)
    again.topics.load()
    new = again.topics.get("New")
    assert new is not None
    assert new.write_queue_nums == 4
    assert again.topics.is_ordered("Other")
    assert again.topics.data_version == desk.topics.data_version
    assert again.topics.data_version.counter == 2


def test_a_damaged_file_is_replaced_by_its_backup() -> None:
    desk = Desk()
    desk.topics.create_by_default("First", "TBW102", 4, 0)
    desk.topics.create_by_default("Second", "TBW102", 4, 0)
    desk.disk.truncate(f"{CONFIG}/topics.json", 100)
    again = Desk(desk.disk)
    again.topics.load()
    assert "First" in again.topics
    assert "Second" not in again.topics
    for name in ("topics.json", "topics.json.bak"):
        desk.disk.truncate(f"{CONFIG}/{name}", 0)
    empty = Desk(desk.disk)
    empty.topics.load()
    assert "First" not in empty.topics
    assert "TBW102" in empty.topics


def test_a_file_of_another_kind_is_named() -> None:
    desk = Desk()
    desk.disk.replace_file(f"{CONFIG}/topics.json", b'{"topicConfigTable": 7}', False)
    words = r"topics\.json cannot be read, nor its backup \(TopicConfigSerializeWrapper: .*\): repair it"
    with pytest.raises(StoreError, match=words):
        desk.topics.load()


@pytest.mark.parametrize("damage", [b"{half", b"\0" * 100, b"[]", b"null", b"\xff\xfe"])
@pytest.mark.parametrize("table", ["topics", "groups", "offsets"])
def test_nothing_is_forgotten_silently(table: str, damage: bytes) -> None:
    desk = Desk()
    files = {
        "topics": "topics.json",
        "groups": "subscriptionGroup.json",
        "offsets": "consumerOffset.json",
    }
    path = f"{CONFIG}/{files[table]}"
    desk.disk.replace_file(path, damage, False)
    with pytest.raises(StoreError, match="cannot be read, nor its backup"):
        getattr(desk, table).load()
    desk.disk.replace_file(path + ".bak", damage, False)
    with pytest.raises(StoreError, match="cannot be read, nor its backup"):
        getattr(desk, table).load()
    assert desk.disk.read_file(path) == damage


def test_a_file_that_is_json_but_no_table_is_replaced_by_its_backup() -> None:
    desk = Desk()
    desk.topics.create_by_default("First", "TBW102", 4, 0)
    desk.topics.create_by_default("Second", "TBW102", 4, 0)
    desk.disk.replace_file(f"{CONFIG}/topics.json", b'{"topicConfigTable": 7}', False)
    again = Desk(desk.disk)
    again.topics.load()
    assert "First" in again.topics
    assert "Second" not in again.topics


def test_groups_are_created_when_first_seen_and_survive() -> None:
    desk = Desk()
    group = desk.groups.find("G")
    assert group is not None
    assert (group.retry_queue_nums, group.retry_max_times, group.consume_enable) == (1, 16, True)
    desk.groups.update(SubscriptionGroupConfig(group_name="H", consume_enable=False))
    again = Desk(desk.disk, auto_create_subscription_group=False)
    again.groups.load()
    assert again.groups.get("G") == group
    disabled = again.groups.find("H")
    assert disabled is not None
    assert not disabled.consume_enable
    assert again.groups.find("Unknown") is None
    assert again.groups.find("CID_RMQ_SYS_X") is not None
    assert Desk().groups.find("bad name!") is None


def test_offsets_are_saved_every_period_when_they_changed_and_survive() -> None:
    desk = Desk()
    path = f"{CONFIG}/consumerOffset.json"
    desk.offsets.save_if_changed()
    assert not desk.disk.exists(path)
    desk.offsets.commit("G", "T", 0, 7, "test")
    desk.offsets.commit("G", "T", 10, 3, "test")
    desk.offsets.commit("G", "%RETRY%G", 0, 1, "test")
    desk.offsets.save_if_changed()
    assert b'"T@G":{0:7,10:3}' in desk.disk.read_file(path)
    written = desk.disk.read_file(path)
    desk.offsets.commit("G", "T", 0, 7, "test")
    desk.offsets.save_if_changed()
    assert not desk.disk.exists(path + ".bak")
    again = Desk(desk.disk)
    again.offsets.load()
    assert again.offsets.query("G", "T", 0) == 7
    assert again.offsets.query("G", "T", 10) == 3
    assert again.offsets.query("G", "T", 1) == -1
    assert again.offsets.query("H", "T", 0) == -1
    assert {t: again.offsets.queues_of("G", t) for t in again.offsets.topics_of("G")} == {
        "T": {0: 7, 10: 3},
        "%RETRY%G": {0: 1},
    }
    assert written == desk.disk.read_file(path)


def test_the_offset_version_goes_up_every_so_many_commits() -> None:
    desk = Desk(consumer_offset_update_version_step=3)
    for offset in range(7):
        desk.offsets.commit("G", "T", 0, offset, "test")
    assert desk.offsets.data_version.counter == 2


def test_saves_of_one_file_run_one_after_another_and_the_newest_wins() -> None:
    disk, pool = MemoryDisk(), ManualPool()
    files = ConfigFiles(disk, pool, CONFIG)
    done: list[str] = []
    for text in ("1", "2", "3"):
        data = f'{{"n": {text}}}'.encode()
        files.save("x.json", data).addCallback(lambda _, text: done.append(text), text)
    assert pool.pending == 1
    pool.run(1)
    assert done == ["1"]
    assert files.load("x.json", bytes) == b'{"n": 1}'
    pool.run()
    assert done == ["1", "2", "3"]
    assert files.load("x.json", bytes) == b'{"n": 3}'
    assert disk.read_file(f"{CONFIG}/x.json.bak") == b'{"n": 1}'


def test_a_failed_save_is_tried_again() -> None:
    disk, value = MemoryDisk(), {"n": 1}
    table = PersistedTable(
        ConfigFiles(disk, ImmediatePool(), CONFIG), "x.json", lambda: json.dumps(value).encode()
    )
    disk.sync_error = OSError(28, "No space left on device")
    table.changed()
    assert table.load(bytes) is None
    disk.sync_error = None
    value["n"] = 2
    table.retry()
    assert table.load(bytes) == b'{"n": 2}'
    value["n"] = 3
    table.retry()
    assert table.load(bytes) == b'{"n": 2}'


def test_changes_during_a_save_are_saved_after_it() -> None:
    disk, pool, value = MemoryDisk(), ManualPool(), {"n": 1}
    table = PersistedTable(
        ConfigFiles(disk, pool, CONFIG), "x.json", lambda: json.dumps(value).encode()
    )
    table.changed()
    value["n"] = 2
    table.changed()
    table.changed()
    assert pool.run() == 2
    assert table.load(bytes) == b'{"n": 2}'


@pytest.mark.parametrize(
    ("line", "topic", "group"),
    [("5.4.0", "StoreBatchCq", "CG_storeretry"), ("4.9.7", "StoreA", "CG_storeretry")],
)
def test_files_of_official_brokers_are_read_and_kept(line: str, topic: str, group: str) -> None:
    disk = MemoryDisk()
    stores = Path(__file__).resolve().parent.parent / "data" / "stores"
    with tarfile.open(stores / f"store-{line}.tar.gz") as archive:
        for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json"):
            member = archive.extractfile(f"store/config/{name}")
            assert member is not None
            disk.replace_file(f"{CONFIG}/{name}", member.read(), False)
    desk = Desk(disk)
    for table in (desk.topics, desk.groups, desk.offsets):
        table.load()
    assert topic in desk.topics
    assert group in desk.groups
    assert desk.offsets.query("CG_store", "StoreA", 2) == 347
    assert {
        t: desk.offsets.queues_of("CG_store", t) for t in desk.offsets.topics_of("CG_store")
    } == {"StoreA": {0: 350, 1: 350, 2: 347, 3: 348}}
    assert desk.topics.data_version.counter >= 9
    # What we write, we and they can read again.
    desk.topics.file.changed()
    desk.groups.file.changed()
    desk.offsets.save()
    again = Desk(disk)
    for table in (again.topics, again.groups, again.offsets):
        table.load()
    assert {t.topic_name: t for t in again.topics.all()} == {
        t.topic_name: t for t in desk.topics.all()
    }
    assert again.offsets.to_wrapper() == desk.offsets.to_wrapper()
