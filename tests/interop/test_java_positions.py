"""Operators move groups while their official consumers run."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from interop.harness import checks
from interop.harness.cell import Cell
from interop.harness.clients import PATIENCE_MS, Producer
from interop.harness.kinds import WatchedConsumer
from interop.harness.puppet import PuppetError

pytestmark = [
    pytest.mark.java,
    pytest.mark.short_columns("ours/5.4.0-json"),
]

SIZE = 160
QUEUES = 4


def wait_committed(cell: Cell, group: str, count: int) -> None:
    """The broker knows that a group has got so many messages of the cell's topic."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    rows: list[tuple[str, str, int, int, int]] = []
    while True:
        # Before the first commit servers say that there are no figures.
        with suppress(PuppetError):
            rows = cell.admin.consume_offsets(group)
        if sum(row[4] for row in rows if row[0] == cell.topic) == count:
            return
        assert time.monotonic() < deadline, f"not committed: {rows}"


def command(cell: Cell, *words: str) -> str:
    done = cell.admin.command(*words)
    assert not done["exception"], done["output"]
    output: str = done["output"]
    return output


class TestMovedGroups:
    """Resets reach consumers that run; a copied position is where the next consumer begins."""

    def test_a_running_consumer_goes_back_and_forward(self, cell: Cell) -> None:
        count = cell.count
        began_ms = str(int(time.time() * 1000) - 60_000)
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            producer.send(cell.topic, cell.seed, count, size=SIZE)
            with WatchedConsumer(
                cell.puppet, cell.namesrv, cell.group, cell.topic, persist_offset_ms=500
            ) as consumer:
                consumer.wait_assigned(QUEUES)
                assert consumer.wait(count) == count
                wait_committed(cell, cell.group, count)
                before = len(consumer.rows())
                group = ("-g", cell.group, "-t", cell.topic)
                command(cell, "resetOffsetByTime", *group, "-s", began_ms)
                consumer.wait_rows(before + count)
                again = consumer.rows()[before:]
                wait_committed(cell, cell.group, count)
                producer.send(cell.topic, cell.seed, 10, first=count, size=SIZE)
                assert consumer.wait(count + 10) == count + 10
                rows = consumer.rows()
        checks.nothing_is_lost(again, range(count))
        checks.bodies_are_whole(again, cell.seed, SIZE)
        checks.nothing_is_lost(rows, range(count + 10))

    def test_a_copied_group_goes_on_where_the_running_one_stands(self, cell: Cell) -> None:
        count, copy = cell.count, cell.group + "-copy"
        with (
            Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer,
            WatchedConsumer(
                cell.puppet, cell.namesrv, cell.group, cell.topic, persist_offset_ms=500
            ) as running,
        ):
            producer.send(cell.topic, cell.seed, count, size=SIZE)
            assert running.wait(count) == count
            wait_committed(cell, cell.group, count)
            command(cell, "updateSubGroup", "-b", cell.cluster.broker_address, "-g", copy)
            command(cell, "cloneGroupOffset", "-s", cell.group, "-d", copy, "-t", cell.topic)
            with WatchedConsumer(cell.puppet, cell.namesrv, copy, cell.topic) as copied:
                copied.wait_assigned(QUEUES)
                producer.send(cell.topic, cell.seed, count, first=count, size=SIZE)
                assert running.wait(2 * count) == 2 * count
                assert copied.wait(count) == count
                rows = copied.rows()
        checks.nothing_is_lost(rows, range(count, 2 * count))
        assert min(row.seq for row in rows) == count
