"""Do the allocation strategies give every member what the official ones give it?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from zope.interface.verify import verifyObject

from txrocketmq.client.consumer.allocation import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConfig,
    AllocateByConsistentHash,
    AllocateByMachineRoom,
    AllocateMachineRoomNearby,
    sorted_client_ids,
)
from txrocketmq.client.interfaces import IAllocateStrategy
from txrocketmq.errors import MQClientError
from txrocketmq.model.message import MessageQueue

DATA = Path(__file__).parent.parent / "data" / "consumer" / "allocation.json"


def strategies() -> dict[str, Any]:
    return {
        "AVG": AllocateAveragely(),
        "AVG_BY_CIRCLE": AllocateAveragelyByCircle(),
        "CONSISTENT_HASH": AllocateByConsistentHash(),
        "CONSISTENT_HASH_3": AllocateByConsistentHash(3),
        "MACHINE_ROOM": AllocateByMachineRoom(["roomA"]),
        "MACHINE_ROOM_NEARBY-AVG": AllocateMachineRoomNearby(
            AllocateAveragely(),
            lambda queue: queue.broker_name.split("@")[0],
            lambda client_id: client_id.split("-")[0],
        ),
    }


def queue(topic: str, broker_name: str, queue_id: int) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)


@pytest.mark.parametrize("name", strategies())
def test_each_member_gets_what_the_official_strategy_gives_it(name: str) -> None:
    strategy = strategies()[name]
    for case in json.loads(DATA.read_text()):
        queues = [queue(*parts) for parts in case["queues"]]
        assert queues == sorted(queues)
        clients = case["clients"]
        assert clients == sorted_client_ids(clients)
        found = [strategy.allocate("group", client, queues, clients) for client in clients]
        assert found == [[queues[index] for index in share] for share in case["shares"][name]]


def test_names_are_the_official_ones() -> None:
    assert {name: strategy.name for name, strategy in strategies().items()} == {
        name: name.removesuffix("_3") for name in strategies()
    }


@pytest.mark.parametrize("name", strategies())
def test_a_client_the_broker_does_not_list_gets_nothing(name: str) -> None:
    strategy = strategies()[name]
    assert verifyObject(IAllocateStrategy, strategy)
    assert strategy.allocate("group", "roomA-me", [queue("T", "a", 0)], ["roomA-other"]) == []
    with pytest.raises(MQClientError, match="cidAll"):
        strategy.allocate("group", "me", [queue("T", "a", 0)], [])


def test_configured_queues_are_taken_as_far_as_the_topic_has_them() -> None:
    mine = [queue("T", "a", 1), queue("T", "gone", 0), queue("Other", "a", 0)]
    strategy = AllocateByConfig(mine)
    assert verifyObject(IAllocateStrategy, strategy)
    assert strategy.name == "CONFIG"
    queues = [queue("T", "a", number) for number in range(3)]
    assert strategy.allocate("group", "me", queues, ["me", "other"]) == [queue("T", "a", 1)]


def test_client_ids_are_sorted_as_java_sorts_them() -> None:
    # By UTF-16 units a character beyond the first plane comes before U+FF5E.
    assert sorted_client_ids(["\uff5e", "\U0001f600", "a"]) == ["a", "\U0001f600", "\uff5e"]


def test_a_room_must_be_known() -> None:
    strategy = AllocateMachineRoomNearby(AllocateAveragely(), lambda _: "", lambda _: "here")
    with pytest.raises(MQClientError, match="Machine room is null for mq"):
        strategy.allocate("group", "me", [queue("T", "a", 0)], ["me"])
