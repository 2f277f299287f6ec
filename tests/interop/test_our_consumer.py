"""Our consumers beside official software: they get what official producers send, from our servers and from official ones, and share groups with
official consumers."""

from __future__ import annotations

from pathlib import Path

import pytest
from child_consumer import OurConsumer

from interop.harness import checks
from interop.harness.cell import Cell
from interop.harness.clients import LitePull, Producer, PushConsumer, Row

# Official servers say whether our side is right; the marks of single tests add our own.
pytestmark = [pytest.mark.java, pytest.mark.short_columns("official-5.4.0/5.4.0-json")]

COUNT = 120
SIZE = 200
QUEUES = 4


def ours(cell: Cell, kind: str = "push", **told: object) -> OurConsumer:
    return OurConsumer(cell.namesrv, cell.group, cell.topic, kind, **told)


def send(cell: Cell, count: int, first: int = 0, mode: str = "sync", **args: object) -> None:
    with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
        producer.send(cell.topic, cell.seed, count, mode, first=first, size=SIZE, **args)


def all_came(cell: Cell, rows: list[Row], count: int, first: int = 0) -> None:
    checks.bodies_are_whole(rows, cell.seed, SIZE)
    checks.nothing_is_lost(rows, range(first, first + count))


@pytest.mark.parametrize("kind", ["push", "lite", "iterate"])
def test_the_offsets_of_one_side_are_read_by_the_other(cell: Cell, kind: str) -> None:
    """Ours consumes a third, the official consumer of the same kind the next, ours the last; nobody gets a message again."""
    third = COUNT // 3
    send(cell, third)
    with ours(cell, kind) as consumer:
        before = consumer.wait(third)
    all_came(cell, before, third)
    send(cell, third, third)
    if kind == "push":
        with PushConsumer(cell.puppet, cell.namesrv, cell.group, cell.topic) as official:
            official.wait(third)
            between = official.rows()
    else:
        settings = {"expression": "*"}
        with LitePull(cell.puppet, cell.namesrv, cell.group, cell.topic, **settings) as lite:
            between = lite.poll(third)
            lite.commit()
    # What an iterator yielded last counts only once the next was asked for.
    all_came(cell, [row for row in between if row.seq >= third], third, third)
    assert len(between) == third
    send(cell, third, 2 * third)
    with ours(cell, kind) as consumer:
        after = consumer.wait(third)
    all_came(cell, after, third, 2 * third)


@pytest.mark.short_columns("ours/5.4.0-json", "official-5.4.0/5.4.0-json")
def test_a_group_of_both_kinds_shares_the_queues(cell: Cell) -> None:
    half = COUNT // 2
    send(cell, 1)
    with PushConsumer(cell.puppet, cell.namesrv, cell.group, cell.topic) as official:
        official.wait_assigned(QUEUES)
        official.wait(1)
        with ours(cell) as consumer:
            official.wait_assigned(QUEUES // 2)
            send(cell, half - 1, 1)
            official.wait(1)
            mixed = consumer.rows
            deadline_rows = wait_for_both(official, consumer, half)
            checks.nothing_is_lost(deadline_rows, range(half))
            assert {row.place[1] for row in mixed()}.isdisjoint(
                {row.place[1] for row in official.rows() if row.seq > 0}
            )
        official.wait_assigned(QUEUES)
        send(cell, half, half)
        rows = wait_for_both(official, consumer, COUNT)
    all_came(cell, rows, COUNT)
    checks.stored_once(rows)


def wait_for_both(official: PushConsumer, consumer: OurConsumer, count: int) -> list[Row]:
    """Both members' rows, once every message came to one of them."""
    for _ in range(60):
        rows = [*official.rows(), *consumer.rows()]
        if len({row.seq for row in rows}) >= count:
            break
        official.wait(len(official.rows()) + 1, 1000)
    return rows


def test_failed_messages_come_again(cell: Cell) -> None:
    send(cell, 1)  # makes the topic, so that nobody has to wait for its route
    with ours(cell, fail_first=10) as consumer:
        send(cell, COUNT - 1, 1)
        rows = consumer.wait_for(range(COUNT))
    all_came(cell, rows, COUNT)
    assert {row.reconsumed for row in rows if row.seq % 10 == 0} == {1}
    assert {row.reconsumed for row in rows if row.seq % 10} == {0}


def test_tags_are_chosen(cell: Cell) -> None:
    send(cell, 3, tags=["TagA", "TagB", "TagC"])
    with ours(cell, tags="TagA || TagC") as consumer:
        send(cell, COUNT - 3, 3, tags=["TagA", "TagB", "TagC"])
        rows = consumer.wait(COUNT // 3 * 2)
    assert {row.tag for row in rows} == {"TagA", "TagC"}
    assert len(rows) == COUNT // 3 * 2


def test_order_is_kept_while_an_official_member_joins(cell: Cell) -> None:
    half = COUNT // 2
    send(cell, 1)
    with ours(cell, "orderly", fail_first=15) as consumer:
        send(cell, half - 1, 1, mode="ordered")
        consumer.wait_for(range(half))
        with PushConsumer(
            cell.puppet, cell.namesrv, cell.group, cell.topic, listener="orderly"
        ) as official:
            official.wait_assigned(QUEUES // 2)
            send(cell, half, half, mode="ordered")
            rows = wait_for_both(official, consumer, COUNT)
    all_came(cell, rows, COUNT)
    for queue_id in range(QUEUES):
        offsets = [row.offset for row in rows if row.queue == queue_id]
        assert sorted(set(offsets)) == sorted(offsets)
    for queue_id in range(QUEUES):
        mine = [row.offset for row in consumer.rows() if row.queue == queue_id]
        assert mine == sorted(mine)


def test_broadcasting_goes_on_after_a_restart(cell: Cell, tmp_path: Path) -> None:
    half = COUNT // 2
    told = {
        "settings": {"message_model": "BROADCASTING", "offset_store_dir": str(tmp_path)},
    }
    send(cell, half)
    with ours(cell, **told) as consumer:
        all_came(cell, consumer.wait(half), half)
    send(cell, half, half)
    with ours(cell, **told) as consumer:
        all_came(cell, consumer.wait(half), half, half)
    [file] = tmp_path.glob("*/*/offsets.json")
    assert file.parent.name == cell.group
    assert file.parent.parent.name.endswith("@DEFAULT")


def test_messages_are_popped(cell: Cell) -> None:
    """The broker divides and hands out; failed messages come again when their time is up."""
    if "4.9.7" in str(cell.column):
        return  # neither that broker nor that mqadmin knows POP
    send(cell, COUNT)
    words = ["setConsumeMode", "-b", cell.cluster.broker_address, "-t", cell.topic]
    done = cell.admin.command(*words, "-g", cell.group, "-m", "POP", "-q", "8")
    assert "success" in done["output"], done
    with ours(cell, "pop", fail_first=COUNT) as consumer:
        rows = consumer.wait_for(range(COUNT))
        send(cell, COUNT, COUNT)
        rows = consumer.wait_for(range(2 * COUNT))
    all_came(cell, rows, 2 * COUNT)
    assert [row.reconsumed for row in rows if row.seq == 0] == [1]
    assert len(rows) == 2 * COUNT
