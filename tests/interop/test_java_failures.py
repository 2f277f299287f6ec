"""Servers that stop in the middle: the broker in good order and by a kill, and one of two name servers."""

from __future__ import annotations

import signal

import pytest

from interop.harness import checks
from interop.harness.cell import Cell
from interop.harness.clients import Admin, Producer, PushConsumer
from interop.harness.cluster import make_cluster
from interop.harness.columns import by_tier
from interop.harness.jvm import JvmSlots

pytestmark = [
    pytest.mark.java,
    pytest.mark.short_columns(
        "ours/5.4.0-json", "ours/4.9.7-rocketmq", "official-5.4.0/5.4.0-json"
    ),
]

SIZE = 160
#: Clients look for routes and report themselves every 2 s instead of 30 s, so that a test need not wait that long.
QUICK = {"poll_namesrv_ms": 2_000, "heartbeat_ms": 2_000}
INSIST_MS = 90_000


class TestBrokerRestart:
    """The broker goes and comes back on its store while messages flow."""

    @pytest.mark.parametrize(
        ("mode", "how"),
        by_tier(
            [("sync", "SIGTERM"), ("async", "SIGKILL")], [("sync", "SIGKILL"), ("async", "SIGTERM")]
        ),
    )
    def test_nothing_acknowledged_is_lost(self, cell: Cell, mode: str, how: str) -> None:
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p", **QUICK) as producer:
            producer.send(cell.topic, cell.seed, 1, size=SIZE)
            with PushConsumer(
                cell.puppet, cell.namesrv, cell.group, cell.topic, **QUICK
            ) as consumer:
                consumer.wait(1)
                run = producer.start_sending(
                    cell.topic,
                    cell.seed,
                    cell.count - 1,
                    mode,
                    first=1,
                    size=SIZE,
                    insist_ms=INSIST_MS,
                )
                run.wait_attempted(cell.count // 2)
                cell.cluster.restart_broker(signal.Signals[how])
                report = run.join()
                consumer.wait(cell.count)
                rows = consumer.rows()
        cell.admin.wait_broker(cell.cluster.broker_name)
        checks.bodies_are_whole(rows, cell.seed, SIZE)
        checks.nothing_is_lost(rows, range(cell.count))
        checks.each_is_where_it_was_said(rows, report.sent)
        checks.queues_are_contiguous(rows)

    def test_offsets_survive(self, cell: Cell) -> None:
        """A group that had all before a clean stop gets nothing of it again."""
        half = cell.count // 2
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p", **QUICK) as producer:
            producer.send(cell.topic, cell.seed, half, size=SIZE)
            with PushConsumer(cell.puppet, cell.namesrv, cell.group, cell.topic) as consumer:
                consumer.wait(half)
            cell.cluster.restart_broker(signal.SIGTERM)
            cell.admin.wait_broker(cell.cluster.broker_name)
            producer.send(
                cell.topic,
                cell.seed,
                cell.count - half,
                first=half,
                size=SIZE,
                insist_ms=INSIST_MS,
            )
            with PushConsumer(cell.puppet, cell.namesrv, cell.group, cell.topic) as consumer:
                consumer.wait(cell.count - half)
                rows = consumer.rows()
        checks.nothing_is_lost(rows, range(half, cell.count))


class TestTwoNameServers:
    """Name servers know nothing of one another; clients and broker go on with the one that is left."""

    def test_one_is_killed_in_the_middle(self, cell: Cell, jvm_slots: JvmSlots) -> None:
        with make_cluster(cell.column.servers, jvm_slots, name_servers=2) as cluster:
            cell.cluster = cluster
            admin = Admin(cell.puppet, cluster.namesrv)
            for one in cluster.namesrv.split(";"):
                Admin(cell.puppet, one).wait_broker(cluster.broker_name)
            with Producer(cell.puppet, cluster.namesrv, cell.group + "-p", **QUICK) as producer:
                half = cell.count // 2
                producer.send(cell.topic, cell.seed, 1, size=SIZE)
                with PushConsumer(
                    cell.puppet, cluster.namesrv, cell.group, cell.topic, **QUICK
                ) as consumer:
                    run = producer.start_sending(
                        cell.topic, cell.seed, cell.count - half - 1, first=1, size=SIZE
                    )
                    run.wait_attempted(half // 2)
                    cluster.kill_name_server(0)
                    report = run.join()
                    checks.all_was_acknowledged(report, cell.count - half - 1)
                    consumer.wait(cell.count - half)
                    rows = consumer.rows()
                # Newcomers that know both find the one that lives, and topics made now get there.
                later = cell.topic + "-later"
                with Producer(
                    cell.puppet, cluster.namesrv, cell.group + "-p2", **QUICK
                ) as newcomer:
                    newcomer.send(later, cell.seed, half, size=SIZE, insist_ms=INSIST_MS)
                    with PushConsumer(
                        cell.puppet,
                        cluster.namesrv,
                        cell.group + "-2",
                        later,
                        start_tries=9,
                        **QUICK,
                    ) as consumer:
                        consumer.wait(half)
                        later_rows = consumer.rows()
            admin.forget()
            for one in cluster.namesrv.split(";"):
                Admin(cell.puppet, one).forget()
        checks.nothing_is_lost(rows, range(cell.count - half))
        checks.nothing_came_twice(rows)
        checks.nothing_is_lost(later_rows, range(half))
        checks.bodies_are_whole(rows + later_rows, cell.seed, SIZE)
