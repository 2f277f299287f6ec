"""Operators move groups while their official consumers run."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from typing import Any

import pytest

from interop.harness import checks
from interop.harness.cell import Cell
from interop.harness.clients import PATIENCE_MS, Producer, PushConsumer
from interop.harness.kinds import WatchedConsumer
from interop.harness.puppet import PuppetError
from interop.harness.waiting import wait_until
from tests.interop.test_java_kinds_of_queues import Link
from txrocketmq.model.codes import RequestCode as R

pytestmark = [
    pytest.mark.java,
    pytest.mark.short_columns("ours/5.4.0-json"),
]

SIZE = 160
QUEUES = 4


def wait_committed(cell: Cell, group: str, count: int) -> None:
    """The broker knows that a group has got so many messages of the cell's topic."""

    def is_committed() -> bool:
        # Before the first commit servers say that there are no figures.
        with suppress(PuppetError):
            rows = cell.admin.consume_offsets(group)
            return sum(row[4] for row in rows if row[0] == cell.topic) == count
        return False

    wait_until(is_committed, f"commit of {count} messages by {group}", PATIENCE_MS / 1000)


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


@pytest.mark.short_columns("none")
class TestAskedPositions:
    """What operators' programs ask a broker about groups that run and groups that do not, before and after its restart."""

    def test_who_consumes_how_far_and_how_late(self, cell: Cell) -> None:
        few, topic = 40, cell.topic
        running, offline = cell.group, cell.group + "-offline"
        quick: dict[str, Any] = {
            "persist_offset_ms": 500,
            "poll_namesrv_ms": 1_000,
            "heartbeat_ms": 1_000,
        }
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
            cell.admin.create_topic(cell.cluster.broker_address, topic, 1)
            cell.admin.wait_route(topic)
            producer.send(topic, cell.seed, few, size=SIZE)
            with PushConsumer(cell.puppet, cell.namesrv, offline, topic, **quick) as leaving:
                leaving.wait_for_all(range(few))
                wait_committed(cell, offline, few)
            with PushConsumer(cell.puppet, cell.namesrv, running, topic, **quick) as consumer:
                producer.send(topic, cell.seed, few, first=few, size=SIZE)
                consumer.wait_for_all(range(2 * few))
                wait_committed(cell, running, 2 * few)
                self.is_told(cell, running, offline, few)
                cell.cluster.restart_broker(signal.SIGTERM)
                cell.admin.wait_broker(cell.cluster.broker_name)
                self.is_told(cell, running, offline, few)

    def is_told(self, cell: Cell, running: str, offline: str, few: int) -> None:
        topic, admin = cell.topic, cell.admin
        # Whoever runs and whoever was there.
        wait_until(lambda: admin.consumers_of(topic) == {running, offline}, "both groups")
        wait_until(lambda: self.lags(cell) == {running: 0, offline: few}, "the lags", pause_s=1)
        place = (cell.cluster.broker_name, 0)
        for group, behind in ((running, False), (offline, True)):
            ((where, (oldest, newest, consumed, late)),) = admin.time_spans(topic, group).items()
            assert where == place
            assert 0 < oldest <= consumed <= newest
            assert (consumed < newest, late > 0) == (behind, behind), group
        # Where the slowest of the others stands, as seen by the one that is ahead.
        address = cell.cluster.broker_address
        assert admin.slowest_offsets(address, topic, running, ["nobody"]) == {0: few}

    def lags(self, cell: Cell) -> dict[str, int]:
        """How far each group of the topic is behind, as the official tool shows it for a whole broker."""
        shown = command(cell, "brokerConsumeStats", "-b", cell.cluster.broker_address)
        rows = [line.split() for line in shown.splitlines() if line.startswith(cell.topic)]
        return {group: int(behind) for _, group, _, _, _, _, behind, *_ in rows}


@pytest.mark.short_columns("none")
@pytest.mark.only_columns(
    *("ours/5.4.0-json", "ours/5.4.0-rocketmq"),
    *("official-5.4.0/5.4.0-json", "official-5.4.0/5.4.0-rocketmq"),
)
class TestForwardedBroadcasts:
    """Where clients of a proxy stand that broadcast. No proxy that was released asks so, nor does an official client: the requests are
    made here."""

    FROM_PROXY, SUBSCRIBED, MOVED = 1, 4, 21

    def test_brokers_remember_where_each_client_was(self, cell: Cell) -> None:
        topic, group = cell.topic, cell.group
        with Producer(cell.puppet, cell.namesrv, group + "-p") as producer:
            cell.admin.create_topic(cell.cluster.broker_address, topic, 1)
            cell.admin.wait_route(topic)
            producer.send(topic, cell.seed, 10, size=SIZE)
        with Link(cell.cluster.broker_address) as link:
            # Who is new begins with the first message, and goes on where it was when its proxy knows nothing any more.
            assert self.forwarded(link, cell, -1, "one") == (self.MOVED, 0)
            assert self.forwarded(link, cell, 0, "one") == (0, 1)
            assert self.forwarded(link, cell, 4, "one") == (0, 5)
            assert self.forwarded(link, cell, -1, "one") == (self.MOVED, 4)
            assert self.forwarded(link, cell, -1, "two") == (self.MOVED, 0)
            assert self.forwarded(link, cell, 2, "two") == (0, 3)
            assert self.forwarded(link, cell, 6, "one") == (0, 7)

            def slowest() -> int | None:
                asked = {"consumerGroup": f"{group}@broadcast", "topic": topic, "queueId": 0}
                answer = link.ask(R.QUERY_CONSUMER_OFFSET, **asked)
                return (
                    int((answer.ext_fields or {}).get("offset", -1)) if answer.code == 0 else None
                )

            wait_until(lambda: slowest() == 2, "the slowest one's place")
        cell.cluster.restart_broker(signal.SIGTERM)
        with Link(cell.cluster.broker_address) as link:
            for client in ("one", "two"):
                assert self.forwarded(link, cell, -1, client) == (self.MOVED, 2)

    def forwarded(self, link: Link, cell: Cell, offset: int, client: str) -> tuple[int, int]:
        """The code and the next offset of a pull of one message."""
        answer = link.ask(
            R.PULL_MESSAGE,
            consumerGroup=cell.group,
            topic=cell.topic,
            queueId=0,
            queueOffset=offset,
            maxMsgNums=1,
            sysFlag=self.SUBSCRIBED,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subscription="*",
            subVersion=0,
            expressionType="TAG",
            requestSource=self.FROM_PROXY,
            proxyFrowardClientId=client,
        )
        return answer.code, int((answer.ext_fields or {})["nextBeginOffset"])
