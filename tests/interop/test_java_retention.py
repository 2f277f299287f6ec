"""A log that lost its oldest files, and lies in two directories: the other make goes on with it."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from interop.harness.clients import Admin, Producer
from interop.harness.cluster import Cluster, make_cluster
from interop.harness.columns import by_tier
from interop.harness.jvm import JvmSlots
from interop.harness.puppet import Puppet, PuppetPool

pytestmark = pytest.mark.java

TOPIC = "Old"
COUNT = 8000
#: Not so large that clients compress it.
SIZE = 4000
QUEUES = 4
#: An official broker looks for old files a minute after its start.
PATIENCE_S = 100.0

Ranges = dict[int, tuple[int, int]]


def settings(store: Path) -> dict[str, str]:
    return {
        "storePathCommitLog": f"{store / 'one'},{store / 'two'}",
        "mappedFileSizeCommitLog": str(8 * 1024 * 1024),
        "mappedFileSizeConsumeQueue": str(20 * 300),
        "fileReservedTime": "0",
        "deleteWhen": "25",
        "deleteCommitLogFilesInterval": "0",
        "cleanResourceInterval": "1000",
        "diskMaxUsedSpaceRatio": "99",
    }


def ranges(puppet: Puppet, cluster: Cluster) -> Ranges:
    """First and next offset of each queue."""
    admin = Admin(puppet, cluster.namesrv)
    return {queue: admin.offsets(TOPIC, cluster.broker_name, queue) for queue in range(QUEUES)}


def log_files(store: Path) -> list[str]:
    """Names of the log's files, oldest first."""
    return sorted(path.name for part in ("one", "two") for path in (store / part).iterdir())


def wait_until_old_ones_are_gone(puppet: Puppet, cluster: Cluster, last: str) -> Ranges:
    """The ranges once all files before the one that is written are gone, and the queues know it."""
    until = time.monotonic() + PATIENCE_S
    before: Ranges = {}
    while True:
        found = ranges(puppet, cluster)
        is_gone = log_files(cluster.store)[0] >= last
        if is_gone and found == before and all(first > 0 for first, _ in found.values()):
            return found
        before = found
        assert time.monotonic() < until, f"old messages are still there: {found}"


def serves_what_is_left(puppet: Puppet, cluster: Cluster, left: Ranges) -> None:
    """Every message from the first one on, and none before; new ones follow."""
    admin = Admin(puppet, cluster.namesrv)
    admin.wait_broker(cluster.broker_name)
    admin.wait_route(TOPIC)
    assert ranges(puppet, cluster) == left
    rows = admin.read_topics([TOPIC])[TOPIC]
    for queue, (first, following) in left.items():
        found = sorted(row.place[2] for row in rows if row.place[1] == queue)
        assert found == list(range(first, following))
    with Producer(puppet, cluster.namesrv, "later-p") as producer:
        later = producer.send(TOPIC, TOPIC, 2 * QUEUES, first=COUNT, size=SIZE).sent
    for result in later:
        assert result.offset >= left[result.queue][1]


class TestRetention:
    """Old files go; what is left changes hands."""

    @pytest.mark.parametrize(
        ("writer", "reader"),
        by_tier(
            [("ours", "official-5.4.0")],
            [
                ("ours", "official-4.9.7"),
                ("official-5.4.0", "ours"),
                ("official-4.9.7", "ours"),
                ("official-5.4.0", "official-5.4.0"),
            ],
        ),
    )
    def test_the_other_make_serves_what_is_left(
        self, writer: str, reader: str, jvm_slots: JvmSlots, puppets: PuppetPool, tmp_path: Path
    ) -> None:
        store = tmp_path / "store"
        line = "4.9.7" if "4.9.7" in writer + reader else "5.4.0"
        puppet = puppets.get(line, "JSON")
        with puppet.in_use():
            with make_cluster(writer, jvm_slots, 1, settings(store), store) as cluster:
                admin = Admin(puppet, cluster.namesrv)
                admin.wait_broker(cluster.broker_name)
                with Producer(puppet, cluster.namesrv, "old-p") as producer:
                    producer.send(TOPIC, TOPIC, COUNT, size=SIZE)
                files = log_files(store)
                assert len(files) >= 4
                # Up to two files are made ahead.
                last = files[-3]
                admin.command("deleteExpiredCommitLog", "-b", cluster.broker_address)
                left = wait_until_old_ones_are_gone(puppet, cluster, last)
                cluster.stop_broker(signal.SIGTERM)
                admin.forget()
            with make_cluster(reader, jvm_slots, 1, settings(store), store) as other:
                serves_what_is_left(puppet, other, left)
                Admin(puppet, other.namesrv).forget()
