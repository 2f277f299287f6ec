"""Our consumers beside official software: they get what official producers send, from our servers and from official ones, and share groups with
official consumers."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from child_consumer import OurConsumer
from real_consumer import STRATEGIES

from interop.harness import checks
from interop.harness.cell import Cell
from interop.harness.clients import LitePull, Producer, PushConsumer, Row
from interop.harness.columns import by_tier
from interop.harness.own_brokers import OwnBrokers
from interop.harness.puppet import PuppetError
from interop.harness.waiting import wait_until
from txrocketmq.client.consumer.allocation import AllocateByMachineRoom
from txrocketmq.model.message import MessageQueue

# Official servers say whether our side is right; the marks of single tests add our own.
pytestmark = [pytest.mark.java, pytest.mark.short_columns("official-5.4.0/5.4.0-json")]

SIZE = 200
QUEUES = 4
NAMESPACE = "tenant"
#: Neither brokers nor tools of the 4.9 line know POP; official headers in binary have no room for its codes.
POPPING = ("ours/5.4.0-json", "ours/5.4.0-rocketmq", "official-5.4.0/5.4.0-json")


def ours(cell: Cell, kind: str = "push", **told: object) -> OurConsumer:
    return OurConsumer(cell.namesrv, cell.group, cell.topic, kind, **told)


def send(cell: Cell, count: int, first: int = 0, mode: str = "sync", **args: object) -> None:
    # One that is not in time would be sent again, and stored twice.
    with Producer(cell.puppet, cell.namesrv, cell.group + "-p", timeout_ms=30_000) as producer:
        producer.send(cell.topic, cell.seed, count, mode, first=first, size=SIZE, **args)


def even(cell: Cell) -> int:
    """How many messages: a number that can be halved and divided by three."""
    return cell.count // 6 * 6


def all_came(cell: Cell, rows: list[Row], count: int, first: int = 0) -> None:
    checks.bodies_are_whole(rows, cell.seed, SIZE)
    checks.nothing_is_lost(rows, range(first, first + count))


@pytest.mark.parametrize("kind", by_tier(["push", "lite", "iterate"], ["orderly"]))
def test_the_offsets_of_one_side_are_read_by_the_other(cell: Cell, kind: str) -> None:
    """Ours consumes a third, the official consumer of the same kind the next, ours the last; nobody gets a message again."""
    third = even(cell) // 3
    send(cell, third)
    with ours(cell, kind) as consumer:
        before = consumer.wait(third)
    all_came(cell, before, third)
    send(cell, third, third)
    if kind in ("push", "orderly"):
        listener = "orderly" if kind == "orderly" else "concurrent"
        with PushConsumer(
            cell.puppet, cell.namesrv, cell.group, cell.topic, listener=listener
        ) as official:
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
    count = even(cell)
    half = count // 2
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
        rows = wait_for_both(official, consumer, count)
    all_came(cell, rows, count)
    checks.stored_once(rows)


def wait_for_both(official: PushConsumer, consumer: OurConsumer, count: int) -> list[Row]:
    """Both members' rows, once every message came to one of them."""
    rows: list[Row] = []

    def came() -> bool:
        rows[:] = [*official.rows(), *consumer.rows()]
        return len({row.seq for row in rows}) >= count

    wait_until(came, f"{count} messages at one of both", pause_s=0.25)
    return rows


def test_failed_messages_come_again(cell: Cell) -> None:
    count = even(cell)
    send(cell, 1)  # makes the topic, so that nobody has to wait for its route
    with ours(cell, fail_first=10) as consumer:
        send(cell, count - 1, 1)
        rows = consumer.wait_for(range(count))
    all_came(cell, rows, count)
    assert {row.reconsumed for row in rows if row.seq % 10 == 0} == {1}
    assert {row.reconsumed for row in rows if row.seq % 10} == {0}


def test_tags_are_chosen(cell: Cell) -> None:
    count = even(cell)
    send(cell, 3, tags=["TagA", "TagB", "TagC"])
    with ours(cell, tags="TagA || TagC") as consumer:
        send(cell, count - 3, 3, tags=["TagA", "TagB", "TagC"])
        rows = consumer.wait(count // 3 * 2)
    assert {row.tag for row in rows} == {"TagA", "TagC"}
    assert len(rows) == count // 3 * 2


@pytest.mark.short_columns
def test_messages_are_chosen_by_sql(cell: Cell) -> None:
    words = ("updateBrokerConfig", "-b", cell.cluster.broker_address, "-k", "enablePropertyFilter")
    assert "success" in cell.admin.command(*words, "-v", "true")["output"]
    count = even(cell)
    send(cell, 1)
    with ours(cell, sql=f"seq >= {count // 2} and TAGS is null or seq in ('3', '5')") as consumer:
        send(cell, count - 1, 1)
        rows = consumer.wait(count // 2 + 2)
    assert {row.seq for row in rows} == {3, 5, *range(count // 2, count)}


def test_order_is_kept_while_an_official_member_joins(cell: Cell) -> None:
    count = even(cell)
    half = count // 2
    send(cell, 1)
    with ours(cell, "orderly", fail_first=15) as consumer:
        send(cell, half - 1, 1, mode="ordered")
        consumer.wait_for(range(half))
        with PushConsumer(
            cell.puppet, cell.namesrv, cell.group, cell.topic, listener="orderly"
        ) as official:
            official.wait_assigned(QUEUES // 2)
            send(cell, half, half, mode="ordered")
            rows = wait_for_both(official, consumer, count)
    all_came(cell, rows, count)
    for queue_id in range(QUEUES):
        offsets = [row.offset for row in rows if row.queue == queue_id]
        assert sorted(set(offsets)) == sorted(offsets)
    for queue_id in range(QUEUES):
        mine = [row.offset for row in consumer.rows() if row.queue == queue_id]
        assert mine == sorted(mine)


def test_broadcasting_goes_on_after_a_restart(cell: Cell, tmp_path: Path) -> None:
    half = even(cell) // 2
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


@pytest.mark.short_columns
def test_a_broadcasting_members_file_is_read_by_both_kinds(cell: Cell) -> None:
    """A member of one client id, in turns official and ours, in the official place: nobody gets a message again or loses one."""
    third = even(cell) // 3
    folder = Path(cell.puppet.home) / ".rocketmq_offsets"
    settings = {"message_model": "BROADCASTING", "offset_store_dir": str(folder)}
    name = f"{cell.group}-member"
    for turn in range(3):
        first = turn * third
        if turn != 1:
            send(cell, third, first)
            with PushConsumer(
                cell.puppet,
                cell.namesrv,
                cell.group,
                cell.topic,
                model="BROADCASTING",
                instance=name,
            ) as official:
                official.wait(third)
                rows = official.rows()
        else:
            send(cell, third, first)
            with ours(cell, settings=settings, client={"instance_name": name}) as consumer:
                rows = consumer.wait(third)
        all_came(cell, rows, third, first)
        assert len(rows) == third
        # One file for both.
        [file] = folder.glob(f"*/{cell.group}/offsets.json")
        assert file.parent.parent.name.endswith(f"@{name}")


@pytest.mark.parametrize(
    "strategy",
    by_tier(["AVG"], ["AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM_NEARBY"]),
)
def test_both_kinds_divide_the_queues_alike(cell: Cell, strategy: str) -> None:
    """Whichever strategy a group has: what one member leaves is what the other takes."""
    queues = [(cell.cluster.broker_name, number) for number in range(8)]
    cell.admin.create_topic(cell.cluster.broker_address, cell.topic, len(queues))
    cell.admin.wait_route(cell.topic)
    # Ids of an even and an odd length, so that the members are in different rooms.
    names = ("official-member", "our-member")
    with (
        PushConsumer(
            cell.puppet,
            cell.namesrv,
            cell.group,
            cell.topic,
            strategy=strategy,
            instance=names[0],
        ) as official,
        ours(cell, strategy=strategy, client={"instance_name": names[1]}) as consumer,
    ):
        ids = sorted([*cell.admin.consumer_ids(cell.group)])
        while len(ids) < len(names):
            official.wait(1, 100)
            ids = sorted([*cell.admin.consumer_ids(cell.group)])
        assert consumer.client_id in ids
        [other] = set(ids) - {consumer.client_id}
        all_of_them = [
            MessageQueue(topic=cell.topic, broker_name=broker, queue_id=number)
            for broker, number in queues
        ]
        divided = {
            member: {
                (queue.broker_name, queue.queue_id)
                for queue in STRATEGIES[strategy]().allocate(cell.group, member, all_of_them, ids)
            }
            for member in ids
        }
        consumer.wait_queues(divided[consumer.client_id])
        assert set(official.wait_assigned(len(divided[other]))) == divided[other]
        assert sorted([*divided[other], *divided[consumer.client_id]]) == queues
        count = min(cell.count, 400)
        send(cell, count)
        rows = wait_for_both(official, consumer, count)
    all_came(cell, rows, count)


@pytest.mark.short_columns
@pytest.mark.parametrize("strategy", ["MACHINE_ROOM", "CONFIG"])
def test_both_kinds_divide_as_they_are_told(own: OwnBrokers, strategy: str) -> None:
    """Strategies that need to be told something: rooms, for which the broker's name must begin with one, or the queues themselves."""
    topic, group, seed = "Told", f"told-{strategy}", "told-seed"
    count = min(own.column.message_count, 900)
    numbers = list(range(9))
    with own.broker({"brokerName": "near@a"}) as (cluster, puppet, admin):
        queues = [
            MessageQueue(topic=topic, broker_name=cluster.broker_name, queue_id=number)
            for number in numbers
        ]
        admin.create_topic(cluster.broker_address, topic, len(numbers))
        admin.wait_route(topic)
        told: dict[str, Any] = {
            "strategy": strategy,
            "rooms": ["near"],
            "broker": cluster.broker_name,
        }
        with (
            PushConsumer(
                puppet,
                cluster.namesrv,
                group,
                topic,
                instance="official-member",
                numbers=[0, 1, 5, 8],
                **told,
            ) as official,
            OurConsumer(
                cluster.namesrv,
                group,
                topic,
                client={"instance_name": "our-member"},
                numbers=[2, 3, 4, 6, 7],
                **told,
            ) as consumer,
        ):
            wait_until(lambda: len(admin.consumer_ids(group)) == 2, "both are members")
            if strategy == "CONFIG":
                mine, other = {2, 3, 4, 6, 7}, {0, 1, 5, 8}
            else:
                ids = sorted(admin.consumer_ids(group))
                divide = AllocateByMachineRoom(["near"]).allocate
                mine, other = (
                    {queue.queue_id for queue in divide(group, member, queues, ids)}
                    for member in sorted(ids, key=lambda member: member != consumer.client_id)
                )
                # Blocks of four, and the last queue to the first member: not what AVG gives.
                assert {len(mine), len(other)} == {4, 5}
                assert {0, 1, 2, 3, 8} in (mine, other)
            consumer.wait_queues({(cluster.broker_name, number) for number in mine})
            assert {number for _, number in official.wait_assigned(len(other))} == other
            with Producer(puppet, cluster.namesrv, "told-p", timeout_ms=30_000) as producer:
                producer.send(topic, seed, count, size=SIZE)
            rows = wait_for_both(official, consumer, count)
        checks.bodies_are_whole(rows, seed, SIZE)
        checks.nothing_is_lost(rows, range(count))
        assert {row.queue for row in consumer.rows()} == mine


def test_name_spaces_are_the_same_on_both_sides(cell: Cell) -> None:
    """Our consumer gets what an official producer sends in the same name space."""
    with (
        Producer(cell.puppet, cell.namesrv, cell.group + "-p", namespace=NAMESPACE) as producer,
    ):
        producer.send(cell.topic, cell.seed, 1, size=SIZE)
        with ours(cell, client={"namespace": NAMESPACE}) as consumer:
            producer.send(cell.topic, cell.seed, cell.count - 1, first=1, size=SIZE)
            all_came(cell, consumer.wait(cell.count), cell.count)
    assert cell.admin.consume_offsets(f"{NAMESPACE}%{cell.group}")


def committed(cell: Cell) -> int:
    """How many messages of the cell's topic its group has committed."""
    # Before the first commit servers say that there are no figures.
    with suppress(PuppetError):
        rows = cell.admin.consume_offsets(cell.group)
        return sum(row[4] for row in rows if row[0] == cell.topic)
    return 0


@pytest.mark.short_columns
def test_official_tools_see_and_steer_a_member(cell: Cell) -> None:
    """mqadmin finds our member, has it tell of itself, try a message, and go back."""
    count = 12

    def told(*words: str) -> str:
        done = cell.admin.command(*words)
        assert not done["exception"], done["output"]
        output: str = done["output"]
        return output

    send(cell, count)
    with ours(cell) as consumer:
        rows = consumer.wait(count)
        all_came(cell, rows, count)
        who = consumer.client_id
        shown = told("consumerConnection", "-g", cell.group)
        assert who in shown
        assert cell.topic in shown
        assert "PYTHON" in shown
        shown = told("consumerStatus", "-g", cell.group, "-i", who)
        assert "PROP_CONSUME_TYPE" in shown
        assert cell.topic in shown
        words = ("-i", rows[0].msg_id, "-t", cell.topic, "-g", cell.group, "-d", who)
        assert "CR_SUCCESS" in told("queryMsgByUniqueKey", *words)
        again = consumer.wait_rows(count + 1)
        assert again[-1].seq == rows[0].seq
        # A group that has not committed yet is none to the older brokers.
        wait_until(lambda: committed(cell) == count, f"commit of {cell.group}")
        words = ("-g", cell.group, "-t", cell.topic, "-s", str(rows[0].received_ms - 3_600_000))
        told("resetOffsetByTime", *words)
        again = consumer.wait_rows(2 * count + 1)
    assert sorted(row.seq for row in again[count + 1 :]) == list(range(count))


def test_official_tools_read_the_traces_of_its_handlers(cell: Cell) -> None:
    trace_topic = f"TRACE-{cell.topic}"
    cell.admin.create_topic(cell.cluster.broker_address, trace_topic, 1)
    cell.admin.wait_route(trace_topic)
    send(cell, 3)
    with ours(cell, client={"enable_trace": True, "trace_topic": trace_topic}) as consumer:
        row = consumer.wait(3)[0]
    cell.admin.wait_key(trace_topic, row.msg_id)
    words = ("queryMsgTraceById", "-i", row.msg_id, "-t", trace_topic)
    shown = cell.admin.command(*words)["output"]
    [line] = [line.split() for line in shown.splitlines() if line.startswith("Sub ")]
    assert line[1] == cell.group
    assert line[-1] == "success"


@pytest.mark.short_columns
def test_the_old_pull_consumer_reads_all_and_goes_on(cell: Cell) -> None:
    half = even(cell) // 2
    send(cell, half)
    with ours(cell, "pull") as consumer:
        all_came(cell, consumer.wait(half), half)
    send(cell, half, half)
    with PushConsumer(cell.puppet, cell.namesrv, cell.group, cell.topic) as official:
        official.wait(half)
        all_came(cell, official.rows(), half, half)


@pytest.mark.short_columns
def test_a_new_group_misses_nothing_that_is_sent_after_its_start(cell: Cell) -> None:
    """It begins with the last message, and is started when it says so; see the start of consumers in the deviations."""
    send(cell, 20)
    settings = {"consume_from_where": "CONSUME_FROM_LAST_OFFSET"}
    with ours(cell, settings=settings) as consumer:
        send(cell, cell.count, 20)
        consumer.wait_for(range(20, 20 + cell.count))


def pop_mode(cell: Cell, shared: int) -> None:
    """What an operator types; ``shared`` members at most have a queue in common."""
    words = ["setConsumeMode", "-b", cell.cluster.broker_address, "-t", cell.topic]
    done = cell.admin.command(*words, "-g", cell.group, "-m", "POP", "-q", str(shared))
    assert "success" in done["output"], done


@pytest.mark.only_columns(*POPPING)
def test_both_kinds_pop_for_one_group(cell: Cell) -> None:
    """They share the queues message by message: nothing is lost, nothing comes twice, and each does its part."""
    count = even(cell)
    send(cell, 1)
    pop_mode(cell, 8)
    with (
        PushConsumer(
            cell.puppet, cell.namesrv, cell.group, cell.topic, pop_invisible_ms=10_000
        ) as official,
        ours(cell, "pop") as consumer,
    ):
        # Where all members share all queues, the broker names them by one number, -1.
        official.wait_assigned(1)
        consumer.wait_queues([(cell.cluster.broker_name, -1)])
        send(cell, count - 1, 1)
        rows = wait_for_both(official, consumer, count)
        # On a busy machine one of them may be so quick that nothing is left for the other.
        portion = count
        for _ in range(20):
            if official.rows() and consumer.rows():
                break
            send(cell, portion, count)
            count += portion
            rows = wait_for_both(official, consumer, count)
        shares = (len(official.rows()), len(consumer.rows()))
    all_came(cell, rows, count)
    checks.nothing_came_twice(rows)
    assert min(shares) > 0


@pytest.mark.only_columns(*POPPING)
def test_messages_are_popped(cell: Cell) -> None:
    """The broker divides and hands out; failed messages come again when their time is up."""
    count = even(cell)
    send(cell, count)
    pop_mode(cell, 8)
    with ours(cell, "pop", fail_first=count) as consumer:
        rows = consumer.wait_for(range(count))
        send(cell, count, count)
        rows = consumer.wait_for(range(2 * count))
    all_came(cell, rows, 2 * count)
    assert [row.reconsumed for row in rows if row.seq == 0] == [1]
    assert len(rows) == 2 * count
