"""S17: two containers see the same host address and process id 1."""

from __future__ import annotations

import os

import pytest
from client_world import NAME_SERVER, ClientWorld
from roles import NotingConsumer

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


def test_a_forced_id_stays_as_it_is() -> None:
    ids = {
        ClientConfig(namesrv_addr=NAME_SERVER, client_ip="1.2.3.4", instance_name="one").client_id
        for _ in range(2)
    }
    assert ids == {"1.2.3.4@one"}
