"""S02: the official JSON has objects and numbers as keys. What we read of it, and what we write of it; mqadmin itself reads ours in
``tests/interop``."""

from __future__ import annotations

import json
from functools import partial

import pytest
from golden import frame_body, wire_frames
from real_server import RawLink, RealServer

from txrocketmq.codec.bodies import (
    ClusterInfo,
    ConsumeStats,
    TopicStatsTable,
    decode_body,
    encode_body,
)
from txrocketmq.codec.headers import GetConsumeStatsRequestHeader, GetTopicStatsInfoRequestHeader
from txrocketmq.model.bean import Bean
from txrocketmq.model.codes import RequestCode as R
from txrocketmq.model.message import MessageQueue

ANSWERS: dict[int, type[Bean]] = {
    R.GET_BROKER_CLUSTER_INFO: ClusterInfo,
    R.GET_TOPIC_STATS_INFO: TopicStatsTable,
    R.GET_CONSUME_STATS: ConsumeStats,
}


def official_answers(code: int) -> list[bytes]:
    """The bodies of all recorded answers of official servers to a request."""
    asked = {
        (frame["conversation"], frame["link"], frame["seq"])
        for frame in wire_frames()
        if frame["kind"] == "remoting" and frame["decoded"]["code"] == code
    }
    return [
        frame_body(frame)
        for frame in wire_frames()
        if frame["kind"] == "remoting"
        and frame["decoded"].get("body_len")
        and (frame["conversation"], frame["link"], frame["reply_to_seq"]) in asked
    ]


def is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    return True


@pytest.mark.parametrize("code", ANSWERS)
def test_official_answers_are_read(code: int) -> None:
    bodies = official_answers(code)
    assert sum(not is_json(body) for body in bodies) >= 3
    for body in bodies:
        read = decode_body(ANSWERS[code], body)
        assert decode_body(ANSWERS[code], encode_body(read)) == read
        if isinstance(read, ClusterInfo):
            assert all(
                address for broker in read.broker_addr_table.values()
                for address in broker.broker_addrs.values()
            )  # fmt: skip
        elif isinstance(read, TopicStatsTable | ConsumeStats):
            assert len(read.offset_table) == body.count(b'"brokerName"')
            assert all(isinstance(queue, MessageQueue) for queue in read.offset_table)


def test_data_that_looks_like_the_dialect_is_left_alone() -> None:
    name = 'a,0:b{"c":1},2:'
    text = (
        '{"clusterAddrTable":{NAME:["b,1:c{"]},"brokerAddrTable":{"b":{"brokerAddrs":'
        '{0:"h:1",-1:"h:2",12:"h,3:{"},"brokerName":NAME}}}'
    ).replace("NAME", json.dumps(name))
    info = decode_body(ClusterInfo, text.encode())
    assert info.cluster_addr_table == {name: ["b,1:c{"]}
    broker = info.broker_addr_table["b"]
    assert broker.broker_name == name
    assert broker.broker_addrs == {0: "h:1", -1: "h:2", 12: "h,3:{"}


def test_an_odd_topic_inside_an_object_key() -> None:
    text = b'{"offsetTable":{{"brokerName":"x}:","queueId":-1,"topic":"a,0:b{"}:{"maxOffset":5,"minOffset":0}}}'
    (queue,) = decode_body(TopicStatsTable, text).offset_table
    assert queue == MessageQueue(topic="a,0:b{", broker_name="x}:", queue_id=-1)


def test_our_servers_answer_in_the_dialect(server: RealServer, link: RawLink) -> None:
    for queue_id in range(4):
        link.send_message("S02", queue_id=queue_id)
    link.pull("S02", consumer_group="S02_G", sys_flag=5, commit_offset=1)
    with server.link(server.namesrv_port) as namesrv:
        body = namesrv.ask(R.GET_BROKER_CLUSTER_INFO).body
    assert b'"brokerAddrs":{0:"' in body
    addresses = decode_body(ClusterInfo, body).broker_addr_table["broker-a"].broker_addrs
    assert addresses == {0: server.broker}
    stats = link.ask(R.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic="S02")).body
    assert b'"offsetTable":{{"' in stats
    table = decode_body(TopicStatsTable, stats).offset_table
    key = partial(MessageQueue, topic="S02", broker_name="broker-a")
    assert {queue: offsets.max_offset for queue, offsets in table.items()} == {
        key(queue_id=number): 1 for number in range(4)
    }
    header = GetConsumeStatsRequestHeader(consumer_group="S02_G", topic="S02")
    consumed = decode_body(ConsumeStats, link.ask(R.GET_CONSUME_STATS, header).body)
    assert consumed.offset_table[key(queue_id=0)].consumer_offset == 1
