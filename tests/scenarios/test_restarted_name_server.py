"""S05: a name server is restarted under two brokers and a client that sends 200 messages a second."""

from __future__ import annotations

import pytest
from small_world import Sender, run_until, start_broker, start_name_server

from txrocketmq.model.codes import ResponseCode
from txrocketmq.testing.network import Network

NAMES = "192.0.2.100:9876"
BOTH = {"broker-1", "broker-2"}
EVERY_S, LOOK_EVERY_S = 0.005, 0.5
REGISTER_PERIOD_S = 30


def world() -> tuple[Network, Sender]:
    """All is well, and the client has its route."""
    network = Network()
    names = start_name_server(network, NAMES)
    for number in (1, 2):
        broker = start_broker(network, number, namesrv_addr=NAMES)
        broker.core.topics.create_by_default("TopicA", "TBW102", 4, 0)
    run_until(network, lambda: len(names.table.topics_of_cluster("ClusterA")) > 0, 5)
    sender = Sender(network, NAMES, "TopicA")
    sender.look()
    network.run(0.1)
    assert sender.looks[-1].brokers == BOTH
    return network, sender


@pytest.mark.parametrize("waits", [False, True], ids=["serves at once", "waits for service"])
def test_no_send_fails_and_brokers_are_back_within_a_register_period(waits: bool) -> None:
    network, sender = world()
    sender.keep_sending(2, EVERY_S, LOOK_EVERY_S)
    network.kill(NAMES)
    sender.keep_sending(3, EVERY_S, LOOK_EVERY_S)
    assert sender.looks[-1].code is None
    restarted_s = sender.now_s
    names = start_name_server(network, NAMES, need_wait_for_service=waits)
    sender.keep_sending(10, EVERY_S, LOOK_EVERY_S)
    assert set(names.table.brokers()) == BOTH
    sender.keep_sending(50, 1, 1)
    assert sender.sent > 15 * 190
    assert sender.failures == []
    since = [look for look in sender.looks if look.at_s > restarted_s]
    refused = [look for look in since if look.code != 0]
    if waits:
        assert {(look.code, look.remark) for look in refused} <= {
            (ResponseCode.SYSTEM_ERROR, "name server not ready"),
            (None, None),
        }
        assert refused[-1].at_s - restarted_s == pytest.approx(45, abs=1)
    else:
        assert all(look.at_s - restarted_s < REGISTER_PERIOD_S for look in refused)
        assert all(look.code in (None, ResponseCode.TOPIC_NOT_EXIST) for look in refused)
    served = [look for look in since if look.code == 0]
    assert served
    assert served[-1].brokers == BOTH
    assert all(not later.code for later in since[since.index(served[0]) :])


def test_a_name_server_that_waits_still_takes_brokers_in() -> None:
    network, _ = world()
    network.kill(NAMES)
    names = start_name_server(network, NAMES, need_wait_for_service=True)
    assert run_until(network, lambda: set(names.table.brokers()) == BOTH, 30) < 10
