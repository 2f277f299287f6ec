"""S16: a producer that sends once in 130 seconds, while servers close links that were idle for 120."""

from __future__ import annotations

import pytest
from small_world import Sender, start_broker, start_name_server

from txrocketmq.testing.network import Network

NAMES = "192.0.2.100:9876"
MAIN, FAST = "192.0.2.1:10911", "192.0.2.1:10909"
INTERVAL_S, WHOLE_S = 130, 600
SLOWEST_S = 0.2


@pytest.mark.parametrize(
    ("port", "blocked"),
    [(MAIN, ()), (MAIN, (FAST,)), (FAST, ())],
    ids=["main port", "second port blocked", "second port"],
)
def test_no_send_fails_or_takes_long(port: str, blocked: tuple[str, ...]) -> None:
    network = Network()
    start_name_server(network, NAMES)
    start_broker(network, 1, namesrv_addr=NAMES)
    for address in blocked:
        network.block(address)
    network.run(0.1)
    sender = Sender(network, NAMES, "TBW102")
    sends = WHOLE_S // INTERVAL_S + 1
    for _ in range(sends):
        sender.send(port)
        network.run(1)
        network.skip(INTERVAL_S - 1)
    assert sender.failures == []
    assert sender.slowest_s < SLOWEST_S
    # Every one of them found its link closed and made another.
    assert network.connects.count(port) == sends
    assert not any(address in network.connects for address in blocked)
