"""Brokers of both makes are told of their name servers by one address server, and follow it to another name server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from interop.harness.cluster import Cluster, OfficialCluster, close_all, make_cluster
from interop.harness.controlled import ask
from interop.harness.jvm import JvmSlots
from interop.harness.waiting import wait_until
from txrocketmq.codec.bodies import ClusterInfo, decode_body
from txrocketmq.model.codes import RequestCode

pytestmark = pytest.mark.java

LINES = ("5.4.0", "4.9.7")
PATIENCE_S = 90
"""An official broker asks every ten seconds (4.x: every two minutes), and registers every ten here."""


class AddressServer:
    """Answers ``GET /rocketmq/nsaddr`` with the list of name servers.

    :ivar told: the list.
    :ivar askers: what the askers call themselves (``User-Agent``).
    """

    def __init__(self) -> None:
        told = self.told = [""]
        askers = self.askers = set[str]()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_known = self.path.split("?")[0] == "/rocketmq/nsaddr"
                askers.add(self.headers.get("User-Agent", ""))
                body = told[0].encode() if is_known else b""
                self.send_response(200 if is_known else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing is to be said."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.domain = f"127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def addresses() -> Iterator[AddressServer]:
    made = AddressServer()
    yield made
    made.close()


def brokers_at(namesrv: str) -> set[str]:
    """The names of brokers that a name server knows."""
    answer = ask(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO, None)
    return set(decode_body(ClusterInfo, answer.body).broker_addr_table)


if os.environ.get("INTEROP_TIER") == "full":

    @pytest.mark.parametrize("line", LINES)
    def test_brokers_of_both_makes_go_where_the_address_server_says(
        line: str, addresses: AddressServer, jvm_slots: JvmSlots, clusters: dict[str, Cluster]
    ) -> None:
        close_all(clusters)
        common = {
            "fetchNamesrvAddrByAddressServer": "true",
            "rmqAddressServerDomain": addresses.domain,
            "registerNameServerPeriod": "10000",
            "timerWheelEnable": "false",
        }
        names = make_cluster("ours", jvm_slots, name_servers=2)
        first, second = names.namesrv.split(";")
        ours, java = (
            make_cluster(
                make, jvm_slots, name_servers=0, broker_settings={**common, "brokerName": name}
            )
            for make, name in (("ours", "broker-ours"), (f"official-{line}", "broker-java"))
        )
        assert isinstance(java, OfficialCluster)
        java.use({"rocketmq.namesrv.domain": addresses.domain}, {})
        try:
            for number in range(2):
                names.start_name_server(number)
            addresses.told[0] = first
            for broker in (ours, java):
                broker.start_broker()
            both = {"broker-ours", "broker-java"}
            wait_until(lambda: brokers_at(first) == both, "both are at the first", PATIENCE_S)
            assert brokers_at(second) == set()
            assert len(addresses.askers) == 2
            if line == "4.9.7":
                # It asks again after two minutes only.
                return
            addresses.told[0] = f"{first};{second}"
            wait_until(lambda: brokers_at(second) == both, "both are at the second", PATIENCE_S)
            assert brokers_at(first) == both
        except BaseException as failure:
            failure.add_note(ours.logs() + java.logs())
            raise
        finally:
            for part in (ours, java, names):
                part.close()
