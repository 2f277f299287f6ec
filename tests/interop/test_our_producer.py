"""Our producer beside official software: official consumers get what it sends, from our servers and from official ones."""

from __future__ import annotations

from typing import Any

import pytest
from child_consumer import OurConsumer
from child_producer import produce

from interop.harness import checks
from interop.harness.cell import Cell
from interop.harness.clients import PushConsumer, Row, Sent
from interop.harness.columns import ALL_COLUMNS, by_tier
from interop.harness.kinds import Asker, Replier, WatchedConsumer

pytestmark = [
    pytest.mark.java,
    pytest.mark.short_columns("official-5.4.0/5.4.0-json"),
]

#: Servers of 4.9 know no times of delivery.
MODERN = [
    str(column)
    for column in ALL_COLUMNS
    if column.servers in ("ours", "official-5.4.0") and column.line == "5.4.0"
]
LARGE = 9_000
NAMESPACE = "tenant"


def consumed(
    cell: Cell, mode: str, size: int = 128, count: int = 0, **settings: Any
) -> tuple[dict[str, Any], list[Row]]:
    """What our producer says, and what an official consumer gets that begins with the first message."""
    count = count or cell.count
    more = {"client": settings}
    told = produce(cell.namesrv, cell.topic, cell.seed, count, mode, size, more=more)
    # The topic is there now, so the consumer need not wait for its next look at the routes.
    with PushConsumer(
        cell.puppet, cell.namesrv, cell.group, cell.topic, namespace=settings.get("namespace")
    ) as consumer:
        consumer.wait(count if mode != "transaction" else count // 3 * 2)
        rows = consumer.rows()
    checks.bodies_are_whole(rows, cell.seed, size)
    checks.nothing_came_twice(rows)
    if mode != "transaction":
        checks.nothing_is_lost(rows, range(count))
    return told, rows


def test_each_message_arrives_where_it_was_said(cell: Cell) -> None:
    told, rows = consumed(cell, "async")
    sent = [Sent(*place) for place in told["sent"]]
    assert {place.status for place in sent} == {"SEND_OK"}
    checks.each_is_where_it_was_said(rows, sent)
    assert {(row.tag, row.keys) for row in rows} == {
        ("TagA", f"key-{n}") for n in range(cell.count)
    }


@pytest.mark.parametrize("mode", by_tier(["oneway", "batch"], ["auto"]))
def test_other_ways_to_send(cell: Cell, mode: str) -> None:
    consumed(cell, mode)


@pytest.mark.parametrize(
    ("mode", "size"), by_tier([("compressed", 500), ("async", LARGE)], [("zstd", 500)])
)
def test_compressed_bodies_are_read(cell: Cell, mode: str, size: int) -> None:
    consumed(cell, mode, size)


@pytest.mark.short_columns
def test_name_spaces_are_the_same_on_both_sides(cell: Cell) -> None:
    """An official consumer with the name space gets what is sent with it; without it there is no such topic."""
    consumed(cell, "async", namespace=NAMESPACE)
    cell.admin.wait_route(f"{NAMESPACE}%{cell.topic}")
    shown = cell.admin.command("topicRoute", "-t", cell.topic)["output"]
    assert "No topic route info" in shown


@pytest.mark.short_columns
def test_the_second_listener_takes_sends(cell: Cell) -> None:
    consumed(cell, "async", vip_channel_enabled=True)


def test_delayed_messages_come_when_their_level_is_over(cell: Cell) -> None:
    arrive_late(cell, "delay", 1_000)


@pytest.mark.only_columns(*MODERN)
@pytest.mark.short_columns
def test_timed_messages_come_when_they_are_due(cell: Cell) -> None:
    arrive_late(cell, "timed", 4_000)


def arrive_late(cell: Cell, mode: str, delay_ms: int) -> None:
    """Messages that are sent with a delay come, and none before it is over."""
    count = min(cell.count, 2_000)
    cell.admin.create_topic(cell.cluster.broker_address, cell.topic)
    cell.admin.wait_route(cell.topic)
    with WatchedConsumer(cell.puppet, cell.namesrv, cell.group, cell.topic) as consumer:
        produce(cell.namesrv, cell.topic, cell.seed, count, mode)
        consumer.wait(count)
        checks.nothing_is_lost(consumer.rows(), range(count))
        times = consumer.times()
    # Brokers count in slots of a second or less.
    assert min(one.stored_ms - one.born_ms for one in times) > delay_ms - 1_100


def test_a_key_keeps_its_order(cell: Cell) -> None:
    _, rows = consumed(cell, "ordered")
    for key in range(7):
        of_key = [row for row in rows if row.seq % 7 == key]
        assert len({(row.broker, row.queue) for row in of_key}) == 1
        by_offset = sorted(of_key, key=lambda row: row.offset)
        assert [row.seq for row in by_offset] == sorted(row.seq for row in of_key)


def test_transactions(cell: Cell) -> None:
    count = min(cell.count // 3 * 3, 999)
    told, rows = consumed(cell, "transaction", count=count)
    assert told["checked"] == count // 3
    assert sorted(row.seq for row in rows) == [n for n in range(count) if n % 3 != 1]


def test_official_tools_read_its_traces(cell: Cell) -> None:
    told = produce(cell.namesrv, cell.topic, cell.seed, 90, "traced")
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
    count = min(cell.count, 500)
    told = produce(cell.namesrv, cell.topic, cell.seed, count, "request")
    assert told["sent"] == [True] * count


def replies(cell: Cell, count: int) -> list[str]:
    return [f"re:{cell.seed}-{number}" for number in range(count)]


def makes_the_topic(cell: Cell) -> None:
    cell.admin.create_topic(cell.cluster.broker_address, cell.topic)
    cell.admin.wait_route(cell.topic)


def test_an_official_consumer_replies_to_ours(cell: Cell) -> None:
    count = min(cell.count, 500)
    makes_the_topic(cell)
    with Replier(cell.puppet, cell.namesrv, cell.group, cell.topic) as replier:
        told = produce(cell.namesrv, cell.topic, cell.seed, count, "ask")
        assert told["sent"] == replies(cell, count)
        assert replier.failures() == []


def test_our_consumer_replies_to_official_requests(cell: Cell) -> None:
    count = min(cell.count, 500)
    makes_the_topic(cell)
    with (
        OurConsumer(cell.namesrv, cell.group, cell.topic, "reply"),
        Asker(cell.puppet, cell.namesrv, cell.group + "-asks") as asker,
    ):
        assert asker.ask_at_once(cell.topic, cell.seed, count) == replies(cell, count)


@pytest.mark.only_columns(*MODERN)
@pytest.mark.short_columns("official-5.4.0/5.4.0-json", "ours/5.4.0-json")
def test_recalled_messages_never_come(cell: Cell) -> None:
    """Each second of some messages with a delivery time is taken back; the others are due no earlier than they."""
    cell.admin.create_topic(cell.cluster.broker_address, cell.topic, 1)
    cell.admin.wait_route(cell.topic)
    count = 90  # they must be taken back before they are due
    told = produce(cell.namesrv, cell.topic, cell.seed, count, "recall")
    recalled, ids = told["sent"]
    assert recalled == ids
    with PushConsumer(cell.puppet, cell.namesrv, cell.group, cell.topic) as consumer:
        consumer.wait(count // 2)
        assert sorted(row.seq for row in consumer.rows()) == list(range(1, count, 2))
