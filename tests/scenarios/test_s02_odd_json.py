"""S02: JSON with objects or numbers as keys, read as official servers write it and written as official clients read it."""

from __future__ import annotations

from collections.abc import Iterator

import golden
import pytest
from real_server import RawLink, RealServer

from txrocketmq.codec import fastjson
from txrocketmq.codec.bodies import ClusterInfo, ConsumeStats, TopicStatsTable, decode_body
from txrocketmq.model.codes import RequestCode

READ = {
    RequestCode.GET_TOPIC_STATS_INFO: TopicStatsTable,
    RequestCode.GET_CONSUME_STATS: ConsumeStats,
    RequestCode.GET_BROKER_CLUSTER_INFO: ClusterInfo,
}


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RawLink, RawLink]]:
    """Links to a name server and to its broker."""
    with RealServer("rocketmq", tmp_path_factory.mktemp("server")) as server:
        with server.link(server.namesrv_port) as namesrv, server.link() as broker:
            yield namesrv, broker
        assert server.end() == 0
        server.assert_calm()


@pytest.mark.parametrize("code", list(READ), ids=lambda code: code.name)
def test_answers_of_official_servers_are_read(code: RequestCode) -> None:
    bodies = [
        golden.frame_body(frame)
        for frame in golden.wire_frames()
        if frame["kind"] == "remoting"
        and frame["decoded"].get("requestCode") == code
        and frame["decoded"]["code"] == 0
        and frame["decoded"]["body_len"]
    ]
    assert bodies, f"no recorded answer to {code.name}"
    for body in bodies:
        decode_body(READ[code], body)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{0:"a",-1:"b"}', {"0": "a", "-1": "b"}),
        (b'{"t":"a,0:b{",1:[2,{3:"}"}]}', {"t": "a,0:b{", "1": [2, {"3": "}"}]}),
    ],
)
def test_numbers_as_keys_and_braces_in_text(text: bytes, value: object) -> None:
    assert fastjson.loads(text) == value


def test_our_answers_are_of_the_official_dialect(links: tuple[RawLink, RawLink]) -> None:
    namesrv, broker = links
    broker.send_message("Stats")
    stats = broker.ask(RequestCode.GET_TOPIC_STATS_INFO, ext_fields={"topic": "Stats"})
    # Object keys stay bare: 5.4.0 refuses quoted ones.
    assert stats.body.startswith(b'{"offsetTable":{{"')
    table = decode_body(TopicStatsTable, stats.body)
    assert {queue.queue_id for queue in table.offset_table} == {0, 1, 2, 3}
    clusters = namesrv.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert b'"brokerAddrs":{0:"' in clusters.body
