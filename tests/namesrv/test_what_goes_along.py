"""What else goes when a topic, a broker or a connection goes? Nothing stays behind that somebody would still be told."""

from __future__ import annotations

import json
from typing import Any

from name_server import CLUSTER, World, register, topics

from txrocketmq.codec.bodies import ClusterInfo, decode_body
from txrocketmq.codec.headers import (
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from txrocketmq.model.codes import CURRENT_VERSION, RequestCode
from txrocketmq.model.static_topic import TopicQueueMappingInfo
from txrocketmq.model.topic import DataVersion
from txrocketmq.namesrv.members import Registration
from txrocketmq.namesrv.route_table import RouteTable

ADDRESS = "192.0.2.10:10911"
MAPPING = {
    "TopicA": TopicQueueMappingInfo(
        topic="TopicA", bname="broker-a", total_queues=4, curr_id_map={0: 0}
    )
}


def route(world: World) -> Any:
    header = GetRouteInfoRequestHeader(topic="TopicA", accept_standard_json_only=True)
    answer = world.connect().ask(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, header, version=CURRENT_VERSION
    )
    return None if answer.code else json.loads(answer.body)


def clusters(world: World) -> Any:
    body = world.connect().ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
    return decode_body(ClusterInfo, body).cluster_addr_table


def test_a_broker_is_in_no_cluster_any_more_whichever_cluster_it_left() -> None:
    world = World()
    peer = world.connect()
    register(peer)
    header = UnRegisterBrokerRequestHeader(
        broker_name="broker-a", broker_addr=ADDRESS, cluster_name="Another", broker_id=0
    )
    peer.ask(RequestCode.UNREGISTER_BROKER, header)
    assert route(world) is None
    assert clusters(world) == {}


def test_a_broker_that_changed_its_cluster_leaves_both() -> None:
    world = World()
    peer = world.connect()
    register(peer, cluster="Another")
    register(peer)
    assert clusters(world) == {"Another": ["broker-a"], CLUSTER: ["broker-a"]}
    peer.drop()
    assert clusters(world) == {}


def test_a_topic_that_was_deleted_and_made_again_has_no_logical_queues() -> None:
    world = World()
    peer = world.connect()
    register(peer, mappings=MAPPING)
    assert "broker-a" in route(world)["topicQueueMappingByBroker"]
    header = DeleteTopicFromNamesrvRequestHeader(topic="TopicA")
    peer.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
    register(peer, counter=2)
    assert not route(world).get("topicQueueMappingByBroker")


def test_logical_queues_go_with_the_last_broker_and_in_one_cluster_too() -> None:
    world = World()
    peer = world.connect()
    register(peer, mappings=MAPPING)
    peer.drop()
    peer = world.connect()
    register(peer, counter=2)
    assert not route(world).get("topicQueueMappingByBroker")
    register(peer, counter=3, mappings=MAPPING)
    header = DeleteTopicFromNamesrvRequestHeader(topic="TopicA", cluster_name=CLUSTER)
    peer.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
    register(peer, counter=4)
    assert not route(world).get("topicQueueMappingByBroker")


def test_logical_queues_that_a_command_took_come_back_with_their_topic() -> None:
    world = World()
    peer = world.connect()
    register(peer, mappings=MAPPING)
    header = DeleteTopicFromNamesrvRequestHeader(topic="TopicA")
    peer.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
    assert route(world) is None
    register(peer, mappings=MAPPING)
    assert "broker-a" in route(world)["topicQueueMappingByBroker"]


def test_logical_queues_go_when_a_registration_names_their_topic_no_more() -> None:
    world = World(delete_topic_with_broker_registration=True)
    peer = world.connect()
    register(peer, mappings=MAPPING)
    register(peer, counter=2, table=topics("TopicB"))
    register(peer, counter=3)
    assert not route(world).get("topicQueueMappingByBroker")


def test_a_client_that_goes_costs_nothing_however_many_brokers_there_are() -> None:
    table = RouteTable(lambda line: None)
    for number in range(20_000):
        found = Registration(
            "c", f"192.0.2.9:{number}", f"b{number}", 0, "", DataVersion(), {}, link=f"l{number}"
        )
        table.register(found, 0)
    looked = 0

    class Live(dict[Any, Any]):
        def items(self) -> Any:
            nonlocal looked
            looked += len(self)
            return super().items()

    table._live = Live(table._live)
    table.remove_link("nobody")
    table.remove_link("l7")
    assert looked == 0
    assert len(table.brokers()) == 19_999
