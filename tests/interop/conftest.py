"""Clusters, puppets and topics for tests against the official Java software.

Every test of this folder runs once per column (servers x client line x header serialization), and those of one column run
together, on one cluster and one puppet that stay alive between them.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest

from interop.harness import results
from interop.harness.cell import Cell
from interop.harness.clients import Admin
from interop.harness.cluster import Cluster, close_all, make_cluster
from interop.harness.columns import Column, chosen_columns
from interop.harness.jvm import JvmSlots
from interop.harness.own_brokers import OwnBrokers
from interop.harness.puppet import PuppetPool


@pytest.fixture(scope="session")
def jvm_slots() -> JvmSlots:
    """The limit on Java processes, for the whole run."""
    return JvmSlots()


@pytest.fixture(scope="session")
def puppets(jvm_slots: JvmSlots) -> Iterator[PuppetPool]:
    """The client puppets of the whole run."""
    pool = PuppetPool(jvm_slots)
    yield pool
    pool.close()


@pytest.fixture(scope="session", params=chosen_columns(), ids=str)
def column(request: pytest.FixtureRequest) -> Column:
    """The combination under test."""
    chosen: Column = request.param
    return chosen


@pytest.fixture(scope="session")
def clusters(jvm_slots: JvmSlots) -> Iterator[dict[str, Cluster]]:
    """The running shared cluster by provider: at most one at a time."""
    running: dict[str, Cluster] = {}
    yield running
    for cluster in running.values():
        cluster.close()


@pytest.fixture
def cluster(
    column: Column, clusters: dict[str, Cluster], puppets: PuppetPool, jvm_slots: JvmSlots
) -> Cluster:
    """The shared cluster of this column's servers: one name server, one broker."""
    if column.servers not in clusters:
        close_all(clusters)
        fresh = make_cluster(column.servers, jvm_slots)
        clusters[column.servers] = fresh.__enter__()
        Admin(puppets.get(column.line, column.serialize), fresh.namesrv).wait_broker(
            fresh.broker_name
        )
    return clusters[column.servers]


@pytest.fixture
def own(
    column: Column, clusters: dict[str, Cluster], puppets: PuppetPool, jvm_slots: JvmSlots
) -> OwnBrokers:
    """Where brokers with settings of their own come from."""
    return OwnBrokers(column, clusters, puppets, jvm_slots)


@pytest.fixture
def cell(
    request: pytest.FixtureRequest, column: Column, cluster: Cluster, puppets: PuppetPool
) -> Iterator[Cell]:
    """The test's own names on the shared cluster."""
    puppet = puppets.get(column.line, column.serialize)
    with puppet.in_use():
        made = Cell(column, cluster, puppet, puppets)
        request.node.cell = made
        yield made
        made.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Some cells run in all columns only in a full run: the mark ``short_columns`` names those of short runs. The mark
    ``only_columns`` names the columns in which there is such a thing at all."""
    marks = ("only_columns", "short_columns")
    if os.environ.get("INTEROP_TIER") == "full":
        marks = marks[:1]
    left_out = [item for item in items if any(_is_left_out(item, mark) for mark in marks)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _is_left_out(item: pytest.Item, name: str) -> bool:
    mark = item.get_closest_marker(name)
    if mark is None or not isinstance(item, pytest.Function):
        return False
    return str(item.callspec.params.get("column")) not in mark.args


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the ends of the servers' and puppets' logs with a failure; record the result in a full run."""
    report = yield
    recorded = report.when == "call" or report.failed
    if os.environ.get("INTEROP_RECORD") and recorded and isinstance(item, pytest.Function):
        # Tests without any parameter have no callspec.
        column = item.callspec.params.get("column") if hasattr(item, "callspec") else None
        servers = column.servers if isinstance(column, Column) else "ours"
        results.record(
            item.nodeid,
            report.outcome,
            getattr(item, "message_count", int(os.environ["INTEROP_COUNT"])),
            report.duration,
            results.sources_of(servers),
            getattr(item, "note", ""),
        )
    made: Cell | None = getattr(item, "cell", None)
    if report.failed and made is not None:
        report.sections.append(("servers", made.cluster.logs(40)))
        report.sections.append(("puppet", made.puppet.tail(40)))
    if report.failed and hasattr(item, "logs"):
        report.sections.append(("servers", item.logs()))
    return report
