"""S08: name server, broker and client on [::1]: as with IPv4, and every later field of the longer record at its place."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_server import RawLink, RealServer
from scenario import txrocketmq

from txrocketmq.codec.bodies import ClusterInfo, decode_body
from txrocketmq.codec.headers import (
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    ViewMessageRequestHeader,
)
from txrocketmq.codec.record import decode_records
from txrocketmq.model.codes import RequestCode as R
from txrocketmq.model.flags import BORN_HOST_V6_FLAG, STORE_HOST_V6_FLAG
from txrocketmq.model.message import MessageExt
from txrocketmq.model.message_id import parse_offset_message_id

TEXT = "KEYS\x01k1 k2\x02UNIQ_KEY\x01u-%d\x02TAGS\x01t\x02"


@pytest.fixture(scope="module")
def v6(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with RealServer("rocketmq", tmp_path_factory.mktemp("v6"), host="::1") as server:
        yield server
        assert server.end() == 0
        server.assert_calm()


def check(message: MessageExt, number: int, server: RealServer) -> None:
    """Every field of a record is read at the right place."""
    assert message.body == b"body-%d" % number
    assert (message.topic, message.queue_id, message.flag) == ("S08", 3, 7)
    assert (message.born_host[0], message.store_host) == ("::1", ("::1", server.broker_port))
    assert message.sys_flag == BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG
    assert (message.born_timestamp, message.reconsume_times) == (1_700_000_000_123, 2)
    assert message.properties["UNIQ_KEY"] == f"u-{number}"
    assert message.properties["KEYS"] == "k1 k2"
    assert message.tags == "t"


def send(link: RawLink, number: int) -> str:
    """Send a message with something in every field; its id."""
    sent = link.send_message(
        "S08",
        b"body-%d" % number,
        TEXT % number,
        queue_id=3,
        flag=7,
        born_timestamp=1_700_000_000_123,
        reconsume_times=2,
    )
    return sent.msg_id


def search(link: RawLink, timestamp: int) -> int:
    header = SearchOffsetRequestHeader(topic="S08", queue_id=3, timestamp=timestamp)
    return link.ask_for(SearchOffsetResponseHeader, R.SEARCH_OFFSET_BY_TIMESTAMP, header).offset


def test_send_pull_search_view_and_restart(v6: RealServer) -> None:
    with v6.link() as link:
        ids = [send(link, number) for number in range(5)]
        found = link.pull("S08", 3)
    assert all(re.fullmatch(r"[0-9A-F]{56}", message_id) for message_id in ids)
    for number, message in enumerate(found):
        check(message, number, v6)
    assert len(found) == 5
    host, port, offset = parse_offset_message_id(ids[2])
    assert ((host, port), offset) == (("::1", v6.broker_port), found[2].physical_offset)
    for how in (signal.SIGTERM, signal.SIGKILL):
        with v6.link() as link:
            times = [message.store_timestamp for message in found]
            assert search(link, times[0] - 1000) == 0
            assert search(link, times[2]) == times.index(times[2])
            assert search(link, times[4] + 1000) == 5
            answer = link.ask(R.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset))
            (viewed,) = decode_records(answer.body)
            check(viewed, 2, v6)
        v6.restart(how)
    with v6.link() as link:
        again = link.pull("S08", 3)
        assert [message.store_timestamp for message in again] == times
        for number, message in enumerate(again):
            check(message, number, v6)
        send(link, 5)
        check(link.pull("S08", 3, 5)[0], 5, v6)


def test_routes_and_the_start_line_show_brackets(v6: RealServer) -> None:
    with v6.link(v6.namesrv_port) as link:
        info = decode_body(ClusterInfo, link.ask(R.GET_BROKER_CLUSTER_INFO).body)
    assert info.broker_addr_table["broker-a"].broker_addrs == {0: f"[::1]:{v6.broker_port}"}
    assert f"is advertised as [::1]:{v6.broker_port} to [::1]:{v6.namesrv_port}" in v6.output()


def test_the_command_line_over_ipv6(v6: RealServer, tmp_path: Path) -> None:
    sent = txrocketmq(tmp_path, "send", "S08cli", "hello", "-n", v6.namesrv)
    assert sent.returncode == 0, sent.stderr
    assert re.search(r"offsetMsgId=[0-9A-F]{56}\n", sent.stdout)
    shown = txrocketmq(tmp_path, "tail", "S08cli", "-n", v6.namesrv, "--from-start", "--count=1")
    assert (shown.returncode, shown.stdout.strip()[-5:]) == (0, "hello")
