"""Our producer beside official software: official consumers get what it sends, from our servers and from official ones."""

from __future__ import annotations

from typing import Any

import pytest
from child_producer import produce

from interop.harness import checks
from interop.harness.cell import Cell
from interop.harness.clients import PushConsumer, Row, Sent

pytestmark = [
    pytest.mark.java,
    pytest.mark.short_columns("official-5.4.0/5.4.0-json"),
]

COUNT = 90
LARGE = 9_000


def consumed(cell: Cell, mode: str, size: int = 128) -> tuple[dict[str, Any], list[Row]]:
    """What our producer says, and what an official consumer gets that begins with the first message."""
    told = produce(cell.namesrv, cell.topic, cell.seed, COUNT, mode, size)
    # The topic is there now, so the consumer need not wait for its next look at the routes.
    with PushConsumer(cell.puppet, cell.namesrv, cell.group, cell.topic) as consumer:
        consumer.wait(COUNT if mode != "transaction" else COUNT // 3 * 2)
        rows = consumer.rows()
    checks.bodies_are_whole(rows, cell.seed, size)
    checks.nothing_came_twice(rows)
    if mode != "transaction":
        checks.nothing_is_lost(rows, range(COUNT))
    return told, rows


def test_each_message_arrives_where_it_was_said(cell: Cell) -> None:
    told, rows = consumed(cell, "async")
    sent = [Sent(*place) for place in told["sent"]]
    assert {place.status for place in sent} == {"SEND_OK"}
    checks.each_is_where_it_was_said(rows, sent)
    assert {(row.tag, row.keys) for row in rows} == {("TagA", f"key-{n}") for n in range(COUNT)}


@pytest.mark.parametrize("mode", ["oneway", "batch"])
def test_other_ways_to_send(cell: Cell, mode: str) -> None:
    consumed(cell, mode)


@pytest.mark.parametrize(("mode", "size"), [("compressed", 500), ("async", LARGE)])
def test_compressed_bodies_are_read(cell: Cell, mode: str, size: int) -> None:
    consumed(cell, mode, size)


def test_a_key_keeps_its_order(cell: Cell) -> None:
    _, rows = consumed(cell, "ordered")
    for key in range(7):
        of_key = [row for row in rows if row.seq % 7 == key]
        assert len({(row.broker, row.queue) for row in of_key}) == 1
        by_offset = sorted(of_key, key=lambda row: row.offset)
        assert [row.seq for row in by_offset] == sorted(row.seq for row in of_key)


def test_transactions(cell: Cell) -> None:
    told, rows = consumed(cell, "transaction")
    assert told["checked"] == COUNT // 3
    assert sorted(row.seq for row in rows) == [n for n in range(COUNT) if n % 3 != 1]


def test_official_tools_read_its_traces(cell: Cell) -> None:
    told = produce(cell.namesrv, cell.topic, cell.seed, COUNT, "traced")
    trace_topic = f"TRACE-{cell.topic}"
    msg_id = told["sent"][7][5]
    cell.admin.wait_key(trace_topic, msg_id)
    words = ("queryMsgTraceById", "-i", msg_id, "-t", trace_topic)
    shown = cell.admin.command(*words)["output"]
    [row] = [line.split() for line in shown.splitlines() if line.startswith("Pub ")]
    assert row[1] == f"pg-{cell.seed}"
    assert row[-1] == "success"


def test_requests_are_answered_through_the_broker(cell: Cell) -> None:
    """Our requester and our replier."""
    told = produce(cell.namesrv, cell.topic, cell.seed, COUNT, "request")
    assert told["sent"] == [True] * COUNT


@pytest.mark.only_columns(
    "official-5.4.0/5.4.0-json", "official-5.4.0/5.4.0-rocketmq", "ours/5.4.0-json"
)
def test_recalled_messages_never_come(cell: Cell) -> None:
    """Each second of some messages with a delivery time is taken back; the others are due no earlier than they."""
    cell.admin.create_topic(cell.cluster.broker_address, cell.topic, 1)
    cell.admin.wait_route(cell.topic)
    told = produce(cell.namesrv, cell.topic, cell.seed, COUNT, "recall")
    recalled, ids = told["sent"]
    assert recalled == ids
    with PushConsumer(cell.puppet, cell.namesrv, cell.group, cell.topic) as consumer:
        consumer.wait(COUNT // 2)
        assert sorted(row.seq for row in consumer.rows()) == list(range(1, COUNT, 2))
