"""S30: a thousand starts and stops, a server that refuses a hundred clients for a minute, and a large frame in small pieces."""

from __future__ import annotations

import gc
import time
from collections import Counter
from typing import Any

from client_world import ClientWorld
from test_s15_no_brake import resident_bytes

from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.model.message import Message
from txrocketmq.remoting.client import RemotingClient
from txrocketmq.testing.network import Network

ROUNDS, WARM_UP = 1000, 100
MAX_GROWTH_BYTES = 5 * 1024 * 1024
CLIENTS, REFUSING_S = 100, 60


def test_starts_and_stops_leave_nothing_behind() -> None:
    world = ClientWorld()
    calls = memory = 0
    for number in range(ROUNDS):
        producer = world.producer()
        world.wait(producer.send(Message("TopicTest", b"x")))
        world.wait(producer.stop())
        if number == WARM_UP:
            gc.collect()
            world.network.run(0.1)
            calls, memory = len(world.clock.getDelayedCalls()), resident_bytes()
    world.network.run(0.1)
    gc.collect()
    del world.network.sent_bytes[:]
    assert len(world.clock.getDelayedCalls()) <= calls
    assert len(world.brokers[2].factory.group.connections) == 0
    assert resident_bytes() - memory < MAX_GROWTH_BYTES


class Insisting:
    """A client that asks a server again and again.

    :ivar times: when it tried to connect.
    """

    def __init__(self, network: Network) -> None:
        self.times: list[float] = []
        self._network = network
        self._client = RemotingClient(network.clock, endpoint=self._endpoint)

    def _endpoint(self, reactor: object, host: str, port: int, timeout_s: float) -> Any:
        self.times.append(self._network.clock.seconds())
        return self._network.endpoint(reactor, host, port, timeout_s)

    def ask(self) -> None:
        asked = self._client.request("192.0.2.9:10911", 105, None, b"", 1000)
        asked.addBoth(lambda _: self._network.clock.callLater(0.2, self.ask))


def test_a_refusing_server_is_asked_seldom_and_at_different_times() -> None:
    network = Network()
    clients = [Insisting(network) for _ in range(CLIENTS)]
    for client in clients:
        client.ask()
    for _ in range(REFUSING_S * 20):
        network.clock.advance(0.05)
    counts = [len(client.times) for client in clients]
    assert 8 < min(counts) <= max(counts) < 20
    late = Counter(round(moment, 1) for client in clients for moment in client.times[5:])
    assert max(late.values()) < CLIENTS / 4


def test_a_large_frame_in_small_pieces_costs_little() -> None:
    size = 16 * 1024 * 1024 - 4
    frame = size.to_bytes(4, "big") + bytes(size)
    splitter = FrameSplitter(16 * 1024 * 1024)
    began = time.process_time()
    found: list[bytes] = []
    for start in range(0, len(frame), 1024):
        found += splitter.feed(frame[start : start + 1024])
    assert time.process_time() - began < 0.5
    assert [len(one) for one in found] == [size]
