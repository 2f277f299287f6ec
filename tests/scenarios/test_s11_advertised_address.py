"""S11: what a broker advertises on a host with a container bridge and two networks, and after it got another address."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from real_server import RealServer

from txrocketmq.codec.headers import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from txrocketmq.model.codes import RequestCode as R

LOOPBACK = "ip link set lo up"
BRIDGE = (
    "ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 && "
    "ip link set docker0 up"
)
NETWORKS = (
    "ip link add eth0 type veth peer name far0 && ip addr add 10.1.2.3/24 dev eth0 && "
    "ip link set eth0 up && ip link set far0 up && "
    "ip link add eth1 type veth peer name far1 && ip addr add 10.9.9.9/24 dev eth1 && "
    "ip link set eth1 up && ip link set far1 up"
)
ROUTE = "ip route add default via 10.9.9.1"


def on_host(*setup: str) -> list[str]:
    """Runs a server on a host of its own, with these networks."""
    script = " && ".join([*setup, 'exec "$@"'])
    return ["unshare", "--map-root-user", "--net", "sh", "-c", script, "sh"]


@pytest.mark.parametrize(
    ("networks", "wanted", "advertised"),
    [
        pytest.param((BRIDGE, NETWORKS, ROUTE), "", "10.9.9.9", id="the way to the outside"),
        pytest.param((BRIDGE, NETWORKS), "", r"10\.(1\.2\.3|9\.9\.9)", id="either network"),
        pytest.param((BRIDGE,), "", "172.17.0.1", id="a bridge is better than nothing"),
        pytest.param((), "", "127.0.0.1", id="loopback alone"),
        pytest.param((BRIDGE, NETWORKS), "10.1.2.3", "10.1.2.3", id="the one that is set"),
        pytest.param((BRIDGE,), "203.0.113.5", "203.0.113.5", id="set, of another machine"),
        pytest.param((BRIDGE,), "localhost", "localhost", id="a host name"),
    ],
)
def test_the_set_address_wins_and_the_unset_choice_is_sensible(
    tmp_path: Path, networks: Sequence[str], wanted: str, advertised: str
) -> None:
    server = RealServer(
        "rocketmq-broker",
        tmp_path,
        host="0.0.0.0",
        settings={"brokerIP1": wanted},
        wrapper=on_host(LOOPBACK, *networks),
    )
    with server:
        line = server.wait_for("listens on")
        pattern = rf"listens on 0\.0\.0\.0:(\d+) and \d+, is advertised as {advertised}:\1 "
        assert re.search(pattern, line), line
        assert server.end() == 0
        server.assert_calm()


def test_topics_and_offsets_survive_another_address(tmp_path: Path) -> None:
    def settings(address: str) -> dict[str, str]:
        return {"brokerIP1": address}

    first = RealServer("rocketmq", tmp_path, settings=settings("192.0.2.1"))
    with first:
        with first.link() as link:
            sent = link.send_message("S11", b"kept")
            link.pull("S11", consumer_group="S11_G")
            link.ask(
                R.UPDATE_CONSUMER_OFFSET,
                UpdateConsumerOffsetRequestHeader(
                    consumer_group="S11_G", topic="S11", queue_id=0, commit_offset=1
                ),
            )
        assert sent.msg_id.startswith("C0000201")
        assert first.end() == 0
    with RealServer("rocketmq", tmp_path, settings=settings("198.51.100.7")) as second:
        assert "is advertised as 198.51.100.7:" in second.output()
        with second.link() as link:
            end = GetMaxOffsetRequestHeader(topic="S11", queue_id=0)
            assert link.ask_for(GetMaxOffsetResponseHeader, R.GET_MAX_OFFSET, end).offset == 1
            position = QueryConsumerOffsetRequestHeader(
                consumer_group="S11_G", topic="S11", queue_id=0
            )
            found = link.ask_for(
                QueryConsumerOffsetResponseHeader, R.QUERY_CONSUMER_OFFSET, position
            )
            assert found.offset == 1
            (message,) = link.pull("S11")
            assert (message.body, message.store_host[0]) == (b"kept", "192.0.2.1")
            assert link.send_message("S11", b"new").msg_id.startswith("C6336407")
