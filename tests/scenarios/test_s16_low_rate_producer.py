"""S16: our producer sends once in 130 seconds, while servers close links that were idle for 120."""

from __future__ import annotations

import pytest
from client_world import ClientWorld

from txrocketmq.model.message import Message


@pytest.mark.parametrize("vip", [False, True], ids=["main port", "second port"])
def test_no_send_fails_or_takes_long(vip: bool) -> None:
    world = ClientWorld()
    producer = world.producer(client={"vip_channel_enabled": vip})
    if not vip:
        world.network.block("192.0.2.2:10909")
    world.wait(producer.send(Message("TopicTest", b"x")))
    for _ in range(5):
        world.network.skip(130)
        began = world.clock.seconds()
        world.wait(producer.send(Message("TopicTest", b"x")))
        assert world.clock.seconds() - began < 0.2
    assert ("192.0.2.2:10909" in world.network.connects) == vip
