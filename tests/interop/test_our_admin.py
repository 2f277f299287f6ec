"""Our admin client beside official servers and an official consumer: it sees there what it sees of our servers that hold the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop.harness.cell import Cell
from interop.harness.clients import Admin, PushConsumer
from interop.harness.cluster import Cluster, make_cluster
from interop.harness.jvm import JvmSlots
from txrocketmq.model.codes import ResponseCode

pytestmark = [
    pytest.mark.java,
    pytest.mark.only_columns("official-5.4.0/5.4.0-json", "official-4.9.7/4.9.7-json"),
    pytest.mark.short_columns("official-5.4.0/5.4.0-json"),
]

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "client" / "admin" / "real_admin.py"
CLUSTER = "InteropCluster"
COUNT = 12
TIMEOUT_S = 120.0
REFUSED = ["refused", int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)]


def output_of(*words: str) -> str:
    """What a program of ours prints. AssertionError with all that it said when it fails."""
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def operate(cluster: Cluster, topic: str, group: str, phase: str) -> dict[str, Any]:
    """What our operator tells of a phase. AssertionError with its output when it fails."""
    words = [cluster.namesrv, CLUSTER, cluster.broker_name, topic, group, phase]
    told: dict[str, Any] = json.loads(output_of(str(PROGRAM), *words).splitlines()[-1])
    return told


def all_phases(cell: Cell, cluster: Cluster) -> dict[str, Any]:
    """All that our operator tells of a cluster, with an official consumer in the middle."""
    topic, group = cell.topic, cell.group
    told = operate(cluster, topic, group, "setup")
    with PushConsumer(cell.puppet, cluster.namesrv, group, topic) as consumer:
        consumer.wait(COUNT)
        told |= operate(cluster, topic, group, "online")
    return told | operate(cluster, topic, group, "offline")


@pytest.fixture
def ours(jvm_slots: JvmSlots, cell: Cell) -> Iterator[Cluster]:
    """Servers of ours beside those of the column."""
    with make_cluster("ours", jvm_slots) as cluster:
        Admin(cell.puppet, cluster.namesrv).wait_broker(cluster.broker_name)
        yield cluster


def test_official_servers_and_ours_tell_the_same(cell: Cell, ours: Cluster) -> None:
    """Steps that the older line does not know are refused there, and left out."""
    official, told = all_phases(cell, cell.cluster), all_phases(cell, ours)
    known = {step: found for step, found in official.items() if found != REFUSED}
    if cell.column.line == "5.4.0":
        assert set(known) == set(official)
    assert {step: told[step] for step in known} == known
    assert known["message_track"] == [[cell.group, "CONSUMED"]]
    assert known["messages.consume_directly"][0] == "CR_SUCCESS"
    assert known["topics.names"] is False


@pytest.mark.only_columns("official-5.4.0/5.4.0-json")
def test_mqadmin_exports_and_makes_lists(cell: Cell, ours: Cluster, tmp_path: Path) -> None:
    """The official tool: topics and groups from files, then what it exports of both. The older tool has no lists, and its
    exportConfigs fails by itself at settings that a broker does not have."""
    exported = {}
    for cluster in (cell.cluster, ours):
        folder = tmp_path / cluster.provider
        folder.mkdir()
        mqadmin = Admin(cell.puppet, cluster.namesrv)
        exported[cluster.provider] = tool_run(mqadmin, cluster, cell, folder)
        # Our tool writes what the official one writes, of either side.
        assert typed_run(cluster, folder / "typed") == {
            name: _shape(json.loads((folder / f"{name}.json").read_text()))
            for name in ("metadata", "configs", "metrics")
        }
    official, told = exported.values()
    assert told == official
    assert official["metadata"]["topics"][f"{cell.topic}-2"]["writeQueueNums"] == 3


def tool_run(mqadmin: Admin, cluster: Cluster, cell: Cell, folder: Path) -> dict[str, Any]:
    """What the tool's exports hold of this test's own names."""
    topics = [
        {"topicName": f"{cell.topic}-{n}", "readQueueNums": n, "writeQueueNums": n + 1, "perm": 6}
        for n in (1, 2)
    ]
    groups = [{"groupName": f"{cell.group}-{n}", "retryMaxTimes": n} for n in (1, 2)]
    files = {"updateTopicList": topics, "updateSubGroupList": groups}
    for command in files:
        path = folder / f"{command}.json"
        path.write_text(json.dumps(files[command]))
        done = mqadmin.command(command, "-b", cluster.broker_address, "-f", str(path))
        assert not done["exception"], done["output"]
    for command in ("exportMetadata", "exportConfigs", "exportMetrics"):
        done = mqadmin.command(command, "-c", CLUSTER, "-f", str(folder))
        assert not done["exception"], done["output"]
        assert "success" in done["output"]
    read = {
        name: json.loads((folder / f"{name}.json").read_text())
        for name in ("metadata", "configs", "metrics")
    }
    return {
        "metadata": {
            "topics": _own(read["metadata"]["topicConfigTable"], cell.topic),
            "groups": _own(read["metadata"]["subscriptionGroupTable"], cell.group),
        },
        "configs": {
            "brokers": {
                name: _without(config, "brokerName", "namesrvAddr")
                for name, config in read["configs"]["brokerConfigs"].items()
            },
            "sizes": _without(read["configs"]["clusterScale"], "namesrvAddr"),
        },
        "metrics": sorted(read["metrics"]),
    }


def typed_run(cluster: Cluster, folder: Path) -> dict[str, Any]:
    """What ``txrocketmq admin`` exports of a cluster."""
    for command in ("exportMetadata", "exportConfigs", "exportMetrics"):
        words = [command, "-n", cluster.namesrv, "-c", CLUSTER, "-f", str(folder)]
        output_of("-m", "txrocketmq", "admin", *words)
    return {path.stem: _shape(json.loads(path.read_text())) for path in sorted(folder.iterdir())}


def _shape(content: Any) -> Any:
    """A file's content without figures, which differ from second to second; what is null is not there."""
    if isinstance(content, dict):
        return {name: _shape(item) for name, item in content.items() if item is not None}
    if isinstance(content, float) or (isinstance(content, int) and content > 1_000_000):
        return "figure"
    return content


def _own(table: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name.startswith(prefix)}


def _without(table: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name not in names}
