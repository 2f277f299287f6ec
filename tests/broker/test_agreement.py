"""Members of a group that subscribe differently: noticed, named, told once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from log_watch import logged
from operators import Client, told
from small_broker import Peer, SmallBroker
from twisted.logger import formatEvent

from txrocketmq.broker.agreement import difference
from txrocketmq.model.codes import RequestCode

R = RequestCode


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What is logged about groups that do not agree."""
    with logged(lambda event: "subscribe" in str(formatEvent(event))) as found:
        yield found


def figures(peer: Peer) -> dict[str, str]:
    table: dict[str, str] = told(peer, R.GET_BROKER_RUNTIME_INFO)["table"]
    return {key: value for key, value in table.items() if "ubscri" in key}


def test_a_difference_is_told_once_and_so_is_its_end(
    broker: SmallBroker, peer: Peer, lines: list[str]
) -> None:
    first = Client(broker, "a", port=50_001).beat(T="x || y")
    assert lines == []
    second = Client(broker, "b", port=50_002).beat(T="x", U="*")
    words = "T (a: TAG x || y; b: TAG x), U (a: nothing; b: all tags)"
    assert lines == [
        "members of consumer group G subscribe differently, some of their messages will not be "
        f"delivered: {words}"
    ]
    for _ in range(5):
        first.beat(T="x || y")
        second.beat(T="x", U="*")
    assert len(lines) == 1
    assert figures(peer) == {
        "consumerGroupsSubscribingDifferently": "1",
        "subscriptionDifference_G": words,
    }
    # What travels is official: the last heartbeat stands for the group.
    answer = told(peer, R.GET_CONSUMER_CONNECTION_LIST, consumerGroup="G")
    assert answer["subscriptionTable"].keys() == {"T", "U"}
    second.beat(T="x || y")
    assert lines[1:] == ["members of consumer group G subscribe alike again"]
    assert figures(peer) == {}


def test_another_difference_is_told_again(broker: SmallBroker, lines: list[str]) -> None:
    Client(broker, "a", port=50_001).beat(T="x")
    second = Client(broker, "b", port=50_002).beat(T="y")
    second.beat(T="z")
    assert [line.rpartition(": T ")[2] for line in lines] == [
        "(a: TAG x; b: TAG y)",
        "(a: TAG x; b: TAG z)",
    ]


def test_the_member_that_leaves_takes_its_difference_along(
    broker: SmallBroker, peer: Peer, lines: list[str]
) -> None:
    Client(broker, "a", port=50_001).beat(T="x")
    second = Client(broker, "b", port=50_002).beat(T="y")
    second.peer.close()
    assert lines[1:] == ["members of consumer group G subscribe alike again"]
    assert figures(peer) == {}


def test_what_means_the_same_is_no_difference(broker: SmallBroker, lines: list[str]) -> None:
    Client(broker, "a", port=50_001).beat(T="x || y")
    Client(broker, "b", port=50_002).beat(T="y || x")
    # One of them already says that it has the group's retry topic.
    Client(broker, "c", port=50_003).beat(**{"T": "x || y", "%RETRY%G": "*"})
    assert lines == []


def test_a_client_that_comes_again_is_not_at_odds_with_itself(
    broker: SmallBroker, lines: list[str]
) -> None:
    Client(broker, "a", port=50_001).beat(T="x")
    broker.clock.advance(1)
    Client(broker, "a", port=50_002).beat(T="y")
    assert lines == []


def test_sharing_and_not_sharing_is_a_difference(broker: SmallBroker, lines: list[str]) -> None:
    Client(broker, "a", port=50_001).beat("CLUSTERING", T="*")
    Client(broker, "b", port=50_002).beat("BROADCASTING", T="*")
    assert [line.rpartition("delivered: ")[2] for line in lines] == [
        "message model (a: CLUSTERING; b: BROADCASTING)"
    ]


def test_long_differences_are_told_in_few_words() -> None:
    members = {f"c{n}": {"T": "x"} for n in range(8)} | {
        "odd": {f"U{n:02}": "x" for n in range(20)}
    }
    words = difference(members)
    assert words is not None
    assert words.startswith("T (c0, c1, c2, c3, c4 and 3 more: x; odd: nothing), U00 (")
    assert words.endswith(", 13 more topics")
    assert difference({"a": {"T": "x"}}) is None
    assert difference({}) is None
