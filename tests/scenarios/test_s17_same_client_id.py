"""S17: two containers see the same host address and process id 1."""

from __future__ import annotations

import os
from typing import Any

import pytest
from client_world import NAME_SERVER, ClientWorld
from consumer_world import LATER, ConsumerWorld, Diary
from roles import NotingConsumer
from twisted.internet.error import ConnectionLost
from twisted.logger import capturedLogs, formatEvent

from txrocketmq.client.config import ClientConfig


def test_their_ids_differ_and_both_are_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    world = ClientWorld()
    instances = [world.instance(client_ip="172.17.0.2") for _ in range(2)]
    for instance in instances:
        world.wait(instance.acquire())
        instance.register_consumer("CG", NotingConsumer("CG", "TBW102"))
        world.wait(instance.poll_routes())
        world.wait(instance.heartbeat_now())
    ids = sorted(instance.client_id for instance in instances)
    assert all(one.startswith("172.17.0.2@1#") for one in ids)
    assert ids[0] != ids[1]
    assert world.wait(instances[0].consumer_ids("TBW102", "CG")) == ids


FORCED = {"client_ip": "172.17.0.2", "instance_name": "forced"}
TRIES = 4


def test_the_broker_says_once_that_two_clients_have_the_same_id() -> None:
    world = ConsumerWorld()
    consumers = world.brokers[2].core.consumers
    said: list[str] = []
    with capturedLogs() as logged:
        members = [world.consumer(Diary(), client=FORCED) for _ in range(2)]
        world.network.skip(200)
        said = [formatEvent(event) for event in logged if "same id" in formatEvent(event)]
        assert len(said) == 1
        assert "two clients of consumer group CG" in said[0]
        assert "172.17.0.2@forced" in said[0]
        assert "have the same id 172.17.0.2@forced" in consumers.differing()["CG"]
        world.wait(members[0].stop())
        world.network.run(1)
        assert consumers.differing() == {}


def test_a_client_that_reconnects_is_not_taken_for_two() -> None:
    world = ConsumerWorld()
    with capturedLogs() as logged:
        consumer = world.consumer(Diary(), client=FORCED)
        for _ in range(3):
            for wire in world.network._wires["192.0.2.2:10911"]:
                if wire.is_up:
                    wire.cut(ConnectionLost())
            world.network.skip(70)
        assert not [event for event in logged if "same id" in formatEvent(event)]
    assert world.brokers[2].core.consumers.differing() == {}
    world.wait(consumer.stop())


def test_a_failed_message_has_one_copy_for_each_failure() -> None:
    """Both clients with the forced id consume it, fail, and give it back; each time, one copy is made."""
    world = ConsumerWorld(queues=1)
    handled: list[int] = []

    def fail(messages: list[Any], context: Any) -> Any:
        handled.append(messages[0].reconsume_times)
        return LATER

    for _ in range(2):
        world.consumer(fail, client=FORCED, max_reconsume_times=TRIES)
    world.network.skip(30)
    world.put(b"bad")
    # Levels 3 to 6: 10 s, 30 s, 1 min, 2 min.
    world.network.skip(300)
    assert sorted(handled) == sorted([*range(TRIES + 1), *range(TRIES + 1)])
    copies = world.stored("%RETRY%CG")
    assert len(copies) == TRIES
    assert len(world.stored("%DLQ%CG")) == 1


def test_a_forced_id_stays_as_it_is() -> None:
    ids = {
        ClientConfig(namesrv_addr=NAME_SERVER, client_ip="1.2.3.4", instance_name="one").client_id
        for _ in range(2)
    }
    assert ids == {"1.2.3.4@one"}
