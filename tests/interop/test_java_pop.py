"""Official push consumers of 5.4.0 that pop: what they get when all goes well, when they die, and when the broker does."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from real_server import RawLink

from interop.harness import checks
from interop.harness.cell import Cell
from interop.harness.clients import PATIENCE_MS, Producer, Row
from interop.harness.columns import by_tier
from interop.harness.kinds import WatchedConsumer
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import AckMessageRequestHeader, PopMessageRequestHeader
from txrocketmq.model.codes import RequestCode, ResponseCode

#: Only clients and servers of 5.x pop; official headers in binary have no room for the codes.
COLUMNS = ("ours/5.4.0-json", "ours/5.4.0-rocketmq", "official-5.4.0/5.4.0-json")
pytestmark = [
    pytest.mark.java,
    pytest.mark.only_columns(*COLUMNS),
    pytest.mark.short_columns(COLUMNS[0], COLUMNS[2]),
]

SIZE = 160
INVISIBLE_MS = 10_000
#: For how long an acknowledgement may be under way on a machine that is busy.
UNACKNOWLEDGED_MS = 3_000
QUICK: dict[str, Any] = {"poll_namesrv_ms": 2_000, "heartbeat_ms": 2_000}


def prepare(cell: Cell, producer: Producer, topic: str, group: str) -> None:
    """A topic that a group pops; the first message makes it, and is not counted."""
    producer.send_text(topic, "makes the topic")
    cell.admin.wait_route(topic)
    set_mode(cell, topic, group, "POP")


def set_mode(cell: Cell, topic: str, group: str, mode: str, shared: int = 0) -> None:
    """What an operator types."""
    broker = cell.cluster.broker_address
    words = (
        "setConsumeMode",
        "-b",
        broker,
        "-t",
        topic,
        "-g",
        group,
        "-m",
        mode,
        "-q",
        str(shared),
    )
    result = cell.admin.command(*words)
    assert f"set consume mode to {broker} success" in result["output"], result["output"]


def consumer(cell: Cell, **settings: Any) -> WatchedConsumer:
    """One that lets the broker decide."""
    wanted = {"pop_invisible_ms": INVISIBLE_MS, **QUICK, **settings}
    puppet = wanted.pop("puppet", cell.puppet)
    return WatchedConsumer(puppet, cell.namesrv, cell.group, cell.topic, **wanted)


def counted(rows: list[Row]) -> list[Row]:
    """Without the message that made the topic."""
    return [row for row in rows if row.seq >= 0]


class TestPop:
    """Consumers in POP mode."""

    @pytest.mark.short_columns(COLUMNS[0])
    def test_two_members_share_what_comes(self, cell: Cell) -> None:
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            prepare(cell, producer, cell.topic, cell.group)
            with consumer(cell) as one, consumer(cell) as two:
                # Both see every broker as one queue.
                assert (
                    one.wait_assigned(1) == two.wait_assigned(1) == [(cell.cluster.broker_name, -1)]
                )
                producer.send(cell.topic, cell.seed, cell.count, size=SIZE)
                both = wait_for_both(one, two, cell.count)
        checks.bodies_are_whole(both, cell.seed, SIZE)
        checks.nothing_is_lost(both, range(cell.count))
        checks.nothing_came_twice(both)

    def test_what_fails_comes_again(self, cell: Cell) -> None:
        count = min(cell.count, 60) // 3 * 3
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            prepare(cell, producer, cell.topic, cell.group)
            with consumer(cell, fail_times=[0, 0, 1]) as failing:
                producer.send(cell.topic, cell.seed, count, size=SIZE, keys=True)
                failing.wait(count + 1)
                failing.wait_rows(count + count // 3 + 1)
                rows = counted(failing.rows())
        checks.bodies_are_whole(rows, cell.seed, SIZE)
        came = Counter((row.seq, row.reconsumed) for row in rows)
        again = {(seq, 1) for seq in range(2, count, 3)}
        assert came == Counter({(seq, 0) for seq in range(count)} | again)

    def test_a_member_that_is_killed_loses_nothing(self, cell: Cell, tmp_path: Path) -> None:
        count = min(cell.count, 1_000)
        record = tmp_path / "rows"
        puppet = cell.another_puppet()
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            prepare(cell, producer, cell.topic, cell.group)
            dying = consumer(cell, puppet=puppet, record_file=str(record), fail_times=[0, 99])
            # It fails half of them, and holds them when it dies.
            producer.send(cell.topic, cell.seed, count, size=SIZE)
            dying.wait(count // 4)
            puppet.kill()
            got = counted(dying.recorded_rows())
            with consumer(cell) as other:
                other.wait_for_all([row for row in range(count) if row % 2])
                rows = counted(other.rows())
        checks.nothing_is_lost(got + rows, range(count))
        checks.bodies_are_whole(got + rows, cell.seed, SIZE)
        checks.nothing_came_twice(rows)

    @pytest.mark.short_columns(COLUMNS[0])
    @pytest.mark.parametrize("how", by_tier(["SIGTERM"], ["SIGKILL"]))
    def test_the_broker_restarts_in_the_middle(self, cell: Cell, how: str) -> None:
        count = min(cell.count, 2_000) // 2
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p", **QUICK) as producer:
            prepare(cell, producer, cell.topic, cell.group)
            with consumer(cell, fail_times=[0, 0, 0, 1]) as popping:
                producer.send(cell.topic, cell.seed, count, size=SIZE)
                popping.wait(count // 2)
                went_ms = time.time() * 1000
                cell.cluster.restart_broker(signal.Signals[how])
                back_ms = time.time() * 1000
                cell.admin.wait_broker(cell.cluster.broker_name)
                producer.send(
                    cell.topic, cell.seed, count, first=count, size=SIZE, insist_ms=60_000
                )
                popping.wait(2 * count + 1)
                failed = {seq for seq in range(2 * count) if seq % 4 == 3}
                rows = wait_again(popping, failed)
        checks.nothing_is_lost(rows, range(2 * count))
        checks.bodies_are_whole(rows, cell.seed, SIZE)
        # Others come again, too, whose acknowledgement the broker did not get any more.
        assert failed <= {row.seq for row in rows if row.reconsumed}
        if how == "SIGTERM" and cell.column.servers == "ours":
            # Only what was handed out just before, and was not acknowledged when the broker went, may come twice.
            first: dict[int, Row] = {}
            for row in rows:
                if first.setdefault(row.seq, row) is not row and row.seq not in failed:
                    assert went_ms - UNACKNOWLEDGED_MS < first[row.seq].received_ms < back_ms

    @pytest.mark.short_columns(COLUMNS[0])
    def test_a_group_goes_over_to_popping_and_back(self, cell: Cell) -> None:
        few = 40
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            prepare(cell, producer, cell.topic, cell.group)
            with consumer(cell) as changing:
                changing.wait_assigned(1)
                producer.send(cell.topic, cell.seed, few, size=SIZE)
                changing.wait(few + 1)
                set_mode(cell, cell.topic, cell.group, "PULL")
                changing.wait_assigned(4)
                producer.send(cell.topic, cell.seed, few, first=few, size=SIZE)
                changing.wait(2 * few + 1)
                rows = counted(changing.rows())
        checks.nothing_is_lost(rows, range(2 * few))
        checks.bodies_are_whole(rows, cell.seed, SIZE)


def wait_again(one: WatchedConsumer, due: set[int]) -> list[Row]:
    """What a member got, once all of these came to it again or the time is over: after a kill others come twice, too."""
    for _ in range(4 * PATIENCE_MS // 500):
        rows = counted(one.rows())
        if due <= {row.seq for row in rows if row.reconsumed}:
            break
        one.wait(10**9, 500)
    return rows


def wait_for_both(one: WatchedConsumer, two: WatchedConsumer, count: int) -> list[Row]:
    """What two members got together, once that is everything or the time is over."""
    for _ in range(PATIENCE_MS // 500):
        rows = counted(one.rows()) + counted(two.rows())
        if len({row.seq for row in rows}) >= count:
            break
        one.wait(10**9, 500)
    return rows


class TestOrderedPop:
    """Official push consumers do not pop in order; proxies do, with requests as these."""

    def test_one_pop_at_a_time_and_again_from_the_first_on(self, cell: Cell) -> None:
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            cell.admin.create_topic(cell.cluster.broker_address, cell.topic, 1)
            cell.admin.wait_route(cell.topic)
            producer.send(cell.topic, cell.seed, 6, "queue", queue=0, size=SIZE)
        host, _, port = cell.cluster.broker_address.rpartition(":")
        with RawLink(host, int(port)) as link:
            first = ordered_pop(link, cell, attempt_id="a-1")
            assert offsets(first) == "0 0 0,1"
            assert field(first, "orderCountInfo") == "0 0 0"
            # The same attempt again at once, another one not.
            assert offsets(ordered_pop(link, cell, attempt_id="a-2")) == ""
            again = ordered_pop(link, cell, attempt_id="a-1")
            assert offsets(again) == "0 0 0,1"
            waiting = tell_pop(link, cell, attempt_id="a-2", poll_time=10_000)
            for offset in (1, 0):
                assert ordered_ack(link, cell, again, offset).code == 0
            woken = link.answer(waiting)
            assert offsets(woken) == "0 0 2,3"
            # Only the first of the two is done: the other one comes when its time is over, before all behind it.
            assert ordered_ack(link, cell, woken, 2).code == 0
            late = ordered_pop(link, cell, attempt_id="a-3", poll_time=15_000)
            assert offsets(late) == "0 0 3,4"
            assert "0 qo0%3 1" in field(late, "orderCountInfo").split(";")
            assert ordered_ack(link, cell, late, 5).code == ResponseCode.MESSAGE_ILLEGAL


def tell_pop(link: RawLink, cell: Cell, **fields: Any) -> int:
    """Ask for two messages in order; the opaque."""
    values: dict[str, Any] = {
        "consumer_group": cell.group,
        "topic": cell.topic,
        "queue_id": 0,
        "max_msg_nums": 2,
        "invisible_time": 3_000,
        "poll_time": 0,
        "born_time": int(time.time() * 1000),
        "init_mode": 0,
        "exp_type": "TAG",
        "exp": "*",
        "order": True,
        **fields,
    }
    return link.tell(RequestCode.POP_MESSAGE, PopMessageRequestHeader(**values))


def ordered_pop(link: RawLink, cell: Cell, **fields: Any) -> RemotingCommand:
    """Two messages in order, or nothing."""
    return link.answer(tell_pop(link, cell, **fields))


def ordered_ack(link: RawLink, cell: Cell, popped: RemotingCommand, offset: int) -> RemotingCommand:
    """Acknowledge one of them."""
    start = field(popped, "startOffsetInfo").split(" ")[2]
    time_ms, broker = field(popped, "popTime"), cell.cluster.broker_name
    header = AckMessageRequestHeader(
        consumer_group=cell.group,
        topic=cell.topic,
        queue_id=0,
        extra_info=f"{start} {time_ms} 3000 999 0 {broker} 0 {offset}",
        offset=offset,
    )
    return link.ask(RequestCode.ACK_MESSAGE, header)


def field(command: RemotingCommand, name: str) -> str:
    """A field of an answer's header."""
    return (command.ext_fields or {}).get(name, "")


def offsets(command: RemotingCommand) -> str:
    """Which messages a pop brought."""
    return field(command, "msgOffsetInfo")
