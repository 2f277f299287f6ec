"""S18: members of one group subscribe differently, and come to agree by a rolling change of all three."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from log_watch import logged
from operators import Client, told
from small_broker import Peer, SmallBroker
from twisted.logger import formatEvent

from txrocketmq.model.codes import RequestCode

R = RequestCode
COUNT, WORDS = "consumerGroupsSubscribingDifferently", "subscriptionDifference_G"
OLD, NEW = {"A": "x"}, {"A": "x || y", "B": "*"}


@pytest.fixture
def broker() -> Iterator[SmallBroker]:
    made = SmallBroker()
    yield made
    made.stop()


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What is logged about the group."""
    with logged(lambda event: "subscribe" in str(formatEvent(event))) as found:
        yield found


def status(broker: SmallBroker) -> tuple[str | None, str | None]:
    """The metric, and the line of the group."""
    table = told(broker.connect(41_000), R.GET_BROKER_RUNTIME_INFO)["table"]
    return table.get(COUNT), table.get(WORDS)


def subscriptions(peer: Peer) -> dict[str, str]:
    """What the group's official status says."""
    table = told(peer, R.GET_CONSUMER_CONNECTION_LIST, consumerGroup="G")["subscriptionTable"]
    return {topic: entry["subString"] for topic, entry in table.items()}


def test_each_change_is_told_once_and_all_is_gone_when_they_agree(
    broker: SmallBroker, lines: list[str]
) -> None:
    peer = broker.connect()
    first = Client(broker, "m1", port=50_001).beat(A="x")
    assert status(broker) == (None, None)
    second = Client(broker, "m2", port=50_002).beat(B="*")
    assert status(broker) == ("1", "A (m1: TAG x; m2: nothing), B (m1: nothing; m2: all tags)")
    second.beat(A="y")
    assert status(broker) == ("1", "A (m1: TAG x; m2: TAG y)")
    assert len(lines) == 2
    for _ in range(3):
        first.beat(A="x")
        second.beat(A="y")
    assert len(lines) == 2
    # The wire stays official: whoever was heard of last stands for all.
    assert subscriptions(peer) == {"A": "y"}
    third = Client(broker, "m3", port=50_003).beat(**OLD)
    second.beat(**OLD)
    assert status(broker) == (None, None)
    assert lines[-1] == "members of consumer group G subscribe alike again"

    told_before = len(lines)
    first.beat(**NEW)
    assert status(broker)[0] == "1"
    second.beat(**NEW)
    assert "m3" in (status(broker)[1] or "")
    third.beat(**NEW)
    assert status(broker) == (None, None)
    # Two ways to differ, and the end of it.
    assert len(lines) - told_before == 3
    assert all("G" in line for line in lines)
    assert subscriptions(peer).keys() == NEW.keys()
