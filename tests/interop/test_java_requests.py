"""Requests of official clients and the replies to them, through our broker and through official ones."""

from __future__ import annotations

from typing import Any

import pytest

from interop.harness.cell import Cell
from interop.harness.clients import PATIENCE_MS, Producer
from interop.harness.kinds import Asker, Replier
from interop.harness.puppet import PuppetError
from interop.harness.waiting import wait_until

pytestmark = [
    pytest.mark.java,
    pytest.mark.short_columns(
        "ours/5.4.0-json", "ours/4.9.7-rocketmq", "official-5.4.0/5.4.0-json"
    ),
]

QUICK: dict[str, Any] = {"poll_namesrv_ms": 2_000, "heartbeat_ms": 2_000}


def made(cell: Cell) -> None:
    """The topic, by its first message."""
    with Producer(cell.puppet, cell.namesrv, cell.group + "-p") as producer:
        producer.send_text(cell.topic, "makes the topic")
    cell.admin.wait_route(cell.topic)


def expected(cell: Cell, count: int) -> list[str]:
    return [f"re:{cell.seed}-{number}" for number in range(count)]


def test_each_question_gets_its_own_reply(cell: Cell) -> None:
    count = min(cell.count, 500)
    made(cell)
    with (
        Replier(cell.puppet, cell.namesrv, cell.group, cell.topic, **QUICK) as replier,
        Asker(cell.puppet, cell.namesrv, cell.group + "-asks", **QUICK) as asker,
    ):
        assert asker.ask(cell.topic, cell.seed, 20) == expected(cell, 20)
        assert asker.ask_at_once(cell.topic, cell.seed, count) == expected(cell, count)
        assert replier.failures() == []
    # Each reply is in the cluster's reply topic, too.
    topic = "InteropCluster_REPLY_TOPIC"
    rows = cell.admin.read_topics([topic])[topic]
    assert len(rows) >= count + 20


def test_an_asker_that_left_is_not_found(cell: Cell) -> None:
    made(cell)
    with (
        Asker(cell.puppet, cell.namesrv, cell.group + "-asks", **QUICK) as asker,
        pytest.raises(PuppetError, match="wait reply message timeout"),
    ):
        asker.ask(cell.topic, cell.seed, 1, timeout_ms=500)
    with Replier(cell.puppet, cell.namesrv, cell.group, cell.topic, **QUICK) as replier:
        wait_until(replier.failures, "failure of the reply", PATIENCE_MS / 1000)
        assert any("push reply message fail, channel of <" in text for text in replier.failures())
