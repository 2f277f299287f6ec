"""S10: a running broker is told to use name servers B and C instead of A and B."""

from __future__ import annotations

from small_world import run_until, start_broker, start_name_server, stop_broker

from txrocketmq.model.codes import RequestCode
from txrocketmq.testing.network import Network

A, B, C = (f"192.0.2.10{number}:9876" for number in range(3))
WITHIN_S = 5


def test_it_registers_at_the_new_one_leaves_the_old_one_and_remembers() -> None:
    network = Network()
    names = {address: start_name_server(network, address) for address in (A, B, C)}

    def known_at(address: str) -> bool:
        return "broker-1" in names[address].table.brokers()

    broker = start_broker(network, 1, namesrv_addr=f"{A};{B}")
    run_until(network, lambda: known_at(A) and known_at(B), 5)
    before = names[B].table.known_version("ClusterA", "192.0.2.1:10911")
    answer = broker.connect().ask(
        RequestCode.UPDATE_BROKER_CONFIG, body=f"namesrvAddr={B};{C}\n".encode()
    )
    assert (answer.code, answer.remark) == (0, None)
    run_until(network, lambda: known_at(C) and not known_at(A), WITHIN_S)
    assert known_at(B)
    assert names[B].table.known_version("ClusterA", "192.0.2.1:10911") == before
    network.skip(60)
    assert not known_at(A)

    assert broker.kept["namesrvAddr"] == f"{B};{C}"
    stop_broker(network, broker)
    assert not known_at(B)
    assert not known_at(C)
    start_broker(network, 1, broker.disk, namesrv_addr=broker.kept["namesrvAddr"])
    run_until(network, lambda: known_at(B) and known_at(C), WITHIN_S)
    assert not known_at(A)
