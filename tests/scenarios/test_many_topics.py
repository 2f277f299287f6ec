"""S09: a broker with 70,000 topics; and, smaller than the bench, many brokers at one name server."""

from __future__ import annotations

import json
import random
import time

from small_world import ask, remoting_client, run_until, start_broker, start_name_server

from txrocketmq.broker.config_files import ConfigFiles
from txrocketmq.codec.bodies.registration import (
    RegisterBrokerBody,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigSerializeWrapper,
    encode_register_broker,
)
from txrocketmq.codec.bodies.wire import encode_body
from txrocketmq.codec.headers import (
    GetRouteInfoRequestHeader,
    RegisterBrokerRequestHeader,
)
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.topic import DataVersion, TopicConfig
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.network import Network
from txrocketmq.testing.pools import ImmediatePool

NAMES = "192.0.2.100:9876"
COUNT = 70_000
MAX_FRAME_BYTES = 16 * 1024 * 1024
ROUTES_WITHIN_S, LIST_WITHIN_S, QUIET_S = 60, 3, 120


def topic_table(count: int, prefix: str) -> dict[str, TopicConfig]:
    names = [f"{prefix}-{number:06d}" for number in range(count)]
    return {name: TopicConfig(topic_name=name) for name in names}


def disk_with_topics(count: int) -> MemoryDisk:
    """What such a broker left at its last stop. The names are long, as where they carry team and service."""
    disk = MemoryDisk()
    table = topic_table(count, "a-department-and-its-team-and-one-of-its-services-orders")
    body = encode_body(TopicConfigSerializeWrapper(topic_config_table=table))
    ConfigFiles(disk, ImmediatePool(), "/store/config").save_now("topics.json", body)
    return disk


def test_seventy_thousand_topics_have_routes_and_are_sent_once() -> None:
    network = Network()
    names = start_name_server(network, NAMES)
    broker = start_broker(network, 1, disk_with_topics(COUNT), namesrv_addr=NAMES)
    topics = [topic.topic_name or "" for topic in broker.core.topics.all()]
    assert len(topics) > COUNT
    assert run_until(network, lambda: len(names.table.topics()) >= len(topics), ROUTES_WITHIN_S) < 5
    # Registered in frames that any name server takes, and once.
    assert max(network.sent_bytes) < MAX_FRAME_BYTES
    network.sent_bytes.clear()
    network.skip(QUIET_S)
    assert sum(network.sent_bytes) < 100_000
    client = remoting_client(network)
    for topic in random.Random(9).sample(topics, 100):
        header = GetRouteInfoRequestHeader(topic=topic)
        answer = ask(network, client, NAMES, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        assert json.loads(answer.body)["queueDatas"][0]["brokerName"] == "broker-1"
    began_s = time.perf_counter()
    answer = ask(network, client, NAMES, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert set(json.loads(answer.body)["topicList"]) == set(topics)
    assert time.perf_counter() - began_s < LIST_WITHIN_S


def test_a_topic_more_is_announced_alone() -> None:
    network = Network()
    names = start_name_server(network, NAMES)
    broker = start_broker(network, 1, disk_with_topics(2_000), namesrv_addr=NAMES)
    run_until(network, lambda: len(names.table.topics()) > 2_000, 5)
    network.sent_bytes.clear()
    broker.core.topics.create_by_default("OneMore", "TBW102", 4, 0)
    run_until(network, lambda: names.table.pick_route("OneMore") is not None, 1)
    assert sum(network.sent_bytes) < 5_000


def test_two_hundred_brokers_register_a_hundred_topics_each() -> None:
    """The full size of it, beside an official name server, is a bench: ``bench/namesrv_scale.py``."""
    network = Network()
    names = start_name_server(network, NAMES)
    answered: list[int] = []
    for number in range(200):
        body = RegisterBrokerBody(
            topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
                data_version=DataVersion(counter=1),
                topic_config_table=topic_table(100, f"topic-{number}"),
            )
        )
        header = RegisterBrokerRequestHeader(
            broker_name=f"broker-{number}",
            broker_addr=f"198.51.100.{number}:10911",
            cluster_name=f"cluster-{number % 4}",
            ha_server_addr=f"198.51.100.{number}:10912",
            broker_id=0,
        )
        remoting_client(network).request(
            NAMES,
            int(RequestCode.REGISTER_BROKER),
            header,
            encode_register_broker(body, compressed=False),
            3000,
        ).addCallback(lambda answer: answered.append(answer.code))
    run_until(network, lambda: len(answered) == 200, 3)
    assert set(answered) == {0}
    assert len(names.table.topics()) == 20_000
    assert len(names.table.topics_of_cluster("cluster-3")) == 5_000
    network.kill(NAMES)
    network.run(0.1)
    assert names.table.brokers() == {}
    assert names.table.topics() == []
