"""Does a broker take over the tables that the official one left, and the backup of each that is only half there?"""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from small_broker import ROOT, SmallBroker

from txrocketmq.broker.config_files import ConfigFiles
from txrocketmq.codec.bodies import (
    ConsumerFilterTable,
    ConsumerOffsetSerializeWrapper,
    ConsumerOrderInfoTable,
    DelayOffsetSerializeWrapper,
    MessageRequestModeSerializeWrapper,
    SubscriptionGroupWrapper,
    TimerMetricsSerializeWrapper,
    TopicConfigSerializeWrapper,
    TransactionMetricsSerializeWrapper,
    decode_body,
)
from txrocketmq.errors import StoreError
from txrocketmq.model.static_topic import TopicQueueMappingSerializeWrapper
from txrocketmq.testing.disk import MemoryDisk

STORES = Path(__file__).resolve().parent.parent / "data" / "stores"
CONFIG = f"{ROOT}/config"

#: All tables of a broker, with the member that holds what it is about.
TABLES: dict[str, tuple[type[Any], str]] = {
    "topics.json": (TopicConfigSerializeWrapper, "topic_config_table"),
    "subscriptionGroup.json": (SubscriptionGroupWrapper, "subscription_group_table"),
    "consumerOffset.json": (ConsumerOffsetSerializeWrapper, "offset_table"),
    "consumerFilter.json": (ConsumerFilterTable, "filter_data_by_topic"),
    "delayOffset.json": (DelayOffsetSerializeWrapper, "offset_table"),
    "transactionMetrics": (TransactionMetricsSerializeWrapper, "transaction_count"),
    "consumerOrderInfo.json": (ConsumerOrderInfoTable, "table"),
    "messageRequestMode.json": (MessageRequestModeSerializeWrapper, "message_request_mode_map"),
    "timermetrics": (TimerMetricsSerializeWrapper, "timing_count"),
    "topicQueueMapping.json": (
        TopicQueueMappingSerializeWrapper,
        "topic_queue_mapping_info_map",
    ),
}

#: Tables of mere figures: a broker starts without them.
FIGURES = {"transactionMetrics", "timermetrics"}

#: What the official store has nothing in, as the official broker writes it.
SAMPLES = {
    "consumerFilter.json": b"""{"filterDataByTopic":{"StoreA":{"filterDataMap":{"G":{"bornTime":7,
        "clientVersion":9,"consumerGroup":"G","deadTime":0,"expression":"a > 5",
        "expressionType":"SQL92","topic":"StoreA"}},"topic":"StoreA"}}}""",
    "consumerOrderInfo.json": b"""{"orderedConsumptionLevel":"QUEUE","table":{"StoreA@G":{0:{
        "popTime":5,"i":60000,"l":5,"o":[3,1],"cm":1}}}}""",
    "messageRequestMode.json": b"""{"messageRequestModeMap":{"StoreA":{"G":{"consumerGroup":"G",
        "mode":"POP","popShareQueueNum":1,"topic":"StoreA"}}}}""",
    "topicQueueMapping.json": b"""{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":7},
        "topicQueueMappingInfoMap":{"StoreB":{"bname":"broker-a","dirty":false,"epoch":5,
        "hostedQueues":{0:[{"bname":"broker-a","endOffset":-1,"gen":0,"logicOffset":0,"queueId":0,
        "startOffset":0,"timeOfEnd":-1,"timeOfStart":-1}]},"scope":"__global__","topic":"StoreB",
        "totalQueues":1}}}""",
}


@cache
def official_files(name: str) -> dict[str, bytes]:
    """The files of an official store, but for the timer's wheel, which is large and can be made anew."""
    with tarfile.open(STORES / f"store-{name}.tar.gz") as archive:
        found = {}
        for member in archive.getmembers():
            data = archive.extractfile(member)
            if data is not None and not member.name.endswith("/timerwheel"):
                found[f"/{member.name}"] = data.read()
    return found


def open_official(disk: MemoryDisk) -> SmallBroker:
    return SmallBroker(
        disk,
        broker_cluster_name="GoldenCluster",
        mapped_file_size_consume_queue=6000,
        mapper_file_size_batch_consume_queue=4600,
        max_hash_slot_num=500,
        max_index_num=1000,
        mapped_file_size_timer_log=1 << 20,
    )


def copy(name: str) -> MemoryDisk:
    disk = MemoryDisk()
    for path, data in official_files(name).items():
        disk.replace_file(path, data, False)
    return disk


def table_of(name: str, text: bytes) -> Any:
    """What a file's text holds."""
    kind, member = TABLES[name]
    return getattr(decode_body(kind, text), member)


@pytest.mark.parametrize("line", ["4.9.7", "5.4.0"])
@pytest.mark.parametrize("state", ["", "-crashed", "-torn"])
def test_each_table_holds_what_the_official_broker_holds_after_its_start(
    line: str, state: str
) -> None:
    disk = copy(line + state)
    open_official(disk).stop()
    with gzip.open(STORES / f"expected-{line}{state}.json.gz") as file:
        expected = json.load(file)["configFilesAfterLoad"]
    assert {"topics.json", "consumerOffset.json", "delayOffset.json"} <= expected.keys()
    for name, text in expected.items():
        wanted = table_of(name, text.encode())
        # Whoever asked the official broker came as a new group.
        wanted.pop("CG_dump", None)
        found = table_of(name, disk.read_file(f"{CONFIG}/{name}"))
        if name == "delayOffset.json":
            # A level that nothing was delivered of may stand there with 0.
            wanted, found = (
                {level: offset for level, offset in table.items() if offset}
                for table in (wanted, found)
            )
        assert {key: found.get(key) for key in wanted} == wanted, name
        added = found.keys() - wanted.keys()
        assert not added or name in ("topics.json", "subscriptionGroup.json"), (name, added)
        # Nothing but what each broker of ours makes for itself.
        assert not {key for key in added if not is_ours(key)}, (name, added)


def is_ours(name: str) -> bool:
    return name in ("TBW102", "broker-a") or name.upper().startswith(("RMQ_SYS_", "CID_RMQ_SYS_"))


# --------------------------------------------------------------------------- half-written files


class Loads:
    """What `ConfigFiles` gave to whom asked for a table, by file name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: dict[str, Any] = {}
        load = ConfigFiles.load

        def noted(files: ConfigFiles, name: str, read: Callable[[bytes], Any]) -> Any:
            self.found[name] = None
            self.found[name] = load(files, name, read)
            return self.found[name]

        monkeypatch.setattr(ConfigFiles, "load", noted)


def whole_text(name: str) -> bytes:
    return SAMPLES.get(name) or official_files("5.4.0")[f"{CONFIG}/{name}"]


def test_the_tables_of_a_broker_are_these(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = Loads(monkeypatch)
    SmallBroker().stop()
    SmallBroker(enable_lmq=True).stop()
    assert loads.found.keys() == {*TABLES, "lmqConsumerOffset.json"}
    assert all(table_of(name, whole_text(name)) for name in TABLES)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("kept", ["nothing", "one byte", "a half", "all but one byte", "zeros"])
def test_of_a_half_written_table_the_backup_is_used(
    name: str, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = whole_text(name).rstrip()
    left = {
        "nothing": b"",
        "one byte": whole[:1],
        "a half": whole[: len(whole) // 2],
        "all but one byte": whole[:-1],
        "zeros": bytes(len(whole)),
    }[kept]
    disk = MemoryDisk()
    disk.replace_file(f"{CONFIG}/{name}", left, False)
    disk.replace_file(f"{CONFIG}/{name}.bak", whole, False)
    loads = Loads(monkeypatch)
    SmallBroker(disk)
    member = TABLES[name][1]
    assert decode_body(TABLES[name][0], whole) is not None
    found = getattr(loads.found[name], member)
    assert found.keys() >= table_of(name, whole).keys()


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("shape", ["null", "[]", "7", '"text"', '{"%s":7}', '{"%s":{"x":7}}'])
def test_json_of_another_shape_starts_no_broker_or_harms_none(name: str, shape: str) -> None:
    kind, member = TABLES[name]
    words = shape.replace("%s", kind.__struct_encode_fields__[kind.__struct_fields__.index(member)])
    disk = MemoryDisk()
    disk.replace_file(f"{CONFIG}/{name}", words.encode(), False)
    if name in FIGURES:
        SmallBroker(disk).connect().send("TopicA")
        return
    with pytest.raises(StoreError, match="cannot be read, nor its backup"):
        SmallBroker(disk)
    assert disk.read_file(f"{CONFIG}/{name}") == words.encode()
