"""What the official name servers answered in recorded conversations, ours answers, too.

A recorded answer depends on what was registered before, much of which was not recorded. So the state is built from the answer
itself (registrations that lead to it), and the recorded request is replayed on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from golden import frame_body, wire_frames
from name_server import Peer, World, register, topics

from txrocketmq.codec import fastjson
from txrocketmq.codec.bodies.routes import ClusterInfo
from txrocketmq.codec.bodies.wire import decode_body
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.model.route import TopicRouteData
from txrocketmq.model.topic import TopicConfig

#: Codes whose recorded answers are about the configuration of the recorded server.
NOT_SERVED = {"GET_NAMESRV_CONFIG", "UPDATE_NAMESRV_CONFIG"}
ALL_EXCHANGES = tuple[dict[str, Any], dict[str, Any]]


def exchanges(*names: str) -> Iterator[ALL_EXCHANGES]:
    """Recorded requests to name servers with their answers, of some request codes."""
    frames = [f for f in wire_frames() if "namesrv" in f["link"] and f["kind"] == "remoting"]
    requests = {
        (f["conversation"], f["link"], f["seq"]): f for f in frames if f["direction"] == "c2s"
    }
    for answer in frames:
        if answer["direction"] == "s2c":
            key = (answer["conversation"], answer["link"], answer["reply_to_seq"])
            name = answer["decoded"].get("requestName")
            if (not names or name in names) and key in requests:
                yield requests[key], answer


def replay(peer: Peer, request: dict[str, Any]) -> RemotingCommand:
    (answer,) = peer.send_frame(bytes.fromhex(request["frame_hex"]))
    assert answer.opaque == request["decoded"]["opaque"]
    return answer


def summary(answer: RemotingCommand) -> tuple[Any, ...]:
    return answer.code, answer.remark, answer.ext_fields


def recorded_summary(answer: dict[str, Any]) -> tuple[Any, ...]:
    decoded = answer["decoded"]
    return decoded["code"], decoded["remark"], decoded["extFields"]


def seed_route(world: World, topic: str, route: TopicRouteData) -> None:
    """Register the brokers of a recorded route."""
    queues = {queue.broker_name: queue for queue in route.queue_datas}
    for broker in route.broker_datas:
        queue = queues[broker.broker_name]
        table = topics() | {
            topic: TopicConfig(
                topic_name=topic,
                perm=queue.perm,
                read_queue_nums=queue.read_queue_nums,
                write_queue_nums=queue.write_queue_nums,
                topic_sys_flag=queue.topic_sys_flag,
            )
        }
        mapping = (route.topic_queue_mapping_by_broker or {}).get(broker.broker_name or "")
        for broker_id, address in sorted(broker.broker_addrs.items()):
            register(
                world.connect(),
                table=table,
                name=broker.broker_name or "",
                address=address,
                broker_id=broker_id,
                cluster=broker.cluster or "",
                enable_acting_master=broker.enable_acting_master,
                mappings={topic: mapping} if mapping else {},
            )


def as_older_line(body: bytes) -> Any:
    """Our answer as 4.9.7 would mean it: without the member that it does not know."""
    return fastjson.loads(body.replace(b',"enableActingMaster":false', b""))


def test_routes_are_the_recorded_bytes() -> None:
    compared = 0
    for request, answer in exchanges("GET_ROUTEINFO_BY_TOPIC"):
        if answer["decoded"]["code"] != 0:
            continue
        body = frame_body(answer)
        route = decode_body(TopicRouteData, body)
        world = World()
        seed_route(world, request["decoded"]["extFields"]["topic"], route)
        found = replay(world.connect(), request)
        assert summary(found) == recorded_summary(answer)
        if len(route.queue_datas) == 1 and answer["decoded"]["version"] > 490:
            assert found.body == body
        elif answer["decoded"]["version"] > 490:
            assert by_name(fastjson.loads(found.body)) == by_name(fastjson.loads(body))
        else:
            assert by_name(as_older_line(found.body)) == by_name(fastjson.loads(body))
        compared += 1
    assert compared > 500


def by_name(route: Any) -> dict[str, Any]:
    """A route whose lists do not depend on the order of Java's hash maps."""
    return {
        **route,
        "brokerDatas": sorted(route["brokerDatas"], key=lambda broker: broker["brokerName"]),
        "queueDatas": sorted(route["queueDatas"], key=lambda queue: queue["brokerName"]),
    }


def test_unknown_topics_get_the_recorded_remark() -> None:
    compared = 0
    for request, answer in exchanges("GET_ROUTEINFO_BY_TOPIC"):
        if answer["decoded"]["code"] == 0:
            continue
        found = replay(World().connect(), request)
        if answer["decoded"]["version"] > 490:
            assert summary(found) == recorded_summary(answer)
        else:
            # The older line points to another page.
            assert found.code == answer["decoded"]["code"]
            assert (found.remark or "").split("\n")[0] == answer["decoded"]["remark"].split("\n")[0]
        compared += 1
    assert compared > 20


def test_cluster_info_is_the_recorded_bytes() -> None:
    compared = 0
    for request, answer in exchanges("GET_BROKER_CLUSTER_INFO"):
        body = frame_body(answer)
        info = decode_body(ClusterInfo, body)
        world = World()
        for broker in info.broker_addr_table.values():
            for broker_id, address in broker.broker_addrs.items():
                register(
                    world.connect(),
                    name=broker.broker_name or "",
                    address=address,
                    broker_id=broker_id,
                    cluster=broker.cluster or "",
                    enable_acting_master=broker.enable_acting_master,
                )
        found = replay(world.connect(), request)
        assert summary(found) == recorded_summary(answer)
        if answer["decoded"]["version"] > 490:
            assert found.body == body
        else:
            assert found.body.replace(b',"enableActingMaster":false', b"") == body
        compared += 1
    assert compared > 150


def test_registrations_are_answered_as_recorded() -> None:
    compared = 0
    for request, answer in exchanges("REGISTER_BROKER"):
        fields = request["decoded"]["extFields"]
        recorded = answer["decoded"]
        if recorded["code"] != 0:
            continue
        world = World()
        world.server.kv.put("ORDER_TOPIC_CONFIG", "T", "broker:1")
        world.server.kv.delete("ORDER_TOPIC_CONFIG", "T")
        who = {"name": fields["brokerName"], "cluster": fields["clusterName"]}
        if "masterAddr" in (recorded["extFields"] or {}):
            master = recorded["extFields"]["masterAddr"]
            register(world.connect(), address=master, **who)
        register(
            world.connect(),
            address=fields["brokerAddr"],
            broker_id=int(fields["brokerId"]),
            **who,
        )
        found = replay(world.connect(), request)
        assert found.code == 0
        expected = dict(recorded["extFields"] or {})
        if "haServerAddr" in expected:
            expected["haServerAddr"] = expected["masterAddr"] + "1"
        assert (found.ext_fields or {}) == expected
        if frame_body(answer) == b'{"table":{}}':
            assert found.body == b'{"table":{}}'
        compared += 1
    assert compared > 150


def test_a_registration_that_says_it_is_not_compressed_and_is_counts() -> None:
    """5.4.0 brokers with compressedRegister=true do that, and their own name server refuses them."""
    compared = 0
    for request, answer in exchanges("REGISTER_BROKER"):
        if answer["decoded"]["code"] != 0:
            assert request["decoded"]["body_kind"] == "zlib"
            assert request["decoded"]["extFields"]["compressed"] == "false"
            world = World()
            assert replay(world.connect(), request).code == 0
            assert "TBW102" in world.server.table.topics()
            compared += 1
    assert compared > 0


def test_data_versions_are_answered_as_recorded() -> None:
    for request, answer in exchanges("QUERY_DATA_VERSION"):
        fields, recorded = request["decoded"]["extFields"], answer["decoded"]
        world = World()
        peer = world.connect()
        if not frame_body(answer):
            # The broker was not registered.
            assert summary(replay(peer, request)) == recorded_summary(answer)
            continue
        version = json.loads(frame_body(answer))
        register(
            peer,
            name=fields["brokerName"],
            address=fields["brokerAddr"],
            cluster=fields["clusterName"],
            counter=version["counter"],
            state_version=version.get("stateVersion", 0),
        )
        known = world.server.table.known_version(fields["clusterName"], fields["brokerAddr"])
        assert known is not None
        known.timestamp = version["timestamp"]
        found = replay(peer, request)
        assert summary(found) == recorded_summary(answer)
        assert json.loads(found.body) == {"stateVersion": 0, **json.loads(frame_body(answer))}
        assert recorded["extFields"] == {"changed": "false"}


def test_key_values_are_answered_as_recorded() -> None:
    names = ("PUT_KV_CONFIG", "GET_KV_CONFIG", "DELETE_KV_CONFIG", "GET_KVLIST_BY_NAMESPACE")
    worlds: dict[str, World] = {}
    compared = 0
    for request, answer in exchanges(*names):
        tag = request["conversation"].split(".")[0]
        world = worlds.setdefault(tag, World())
        found = replay(world.connect(), request)
        assert summary(found) == recorded_summary(answer), request["conversation"]
        assert found.body == frame_body(answer)
        compared += 1
    assert compared == 22


def test_topic_lists_are_answered_as_recorded() -> None:
    for request, answer in exchanges(
        "GET_ALL_TOPIC_LIST_FROM_NAMESERVER",
        "GET_TOPICS_BY_CLUSTER",
        "GET_UNIT_TOPIC_LIST",
        "GET_HAS_UNIT_SUB_TOPIC_LIST",
        "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST",
    ):
        listed = json.loads(frame_body(answer))["topicList"]
        world = World()
        register(world.connect(), table=topics(*listed), cluster="GoldenCluster")
        found = replay(world.connect(), request)
        assert summary(found) == recorded_summary(answer)
        own = {"SELF_TEST_TOPIC"} if listed else set()
        assert set(json.loads(found.body)["topicList"]) == {*listed, *own}


def test_system_topics_are_answered_as_recorded() -> None:
    for request, answer in exchanges("GET_SYSTEM_TOPIC_LIST_FROM_NS"):
        listed = json.loads(frame_body(answer))
        (name,) = set(listed["topicList"]) - {"GoldenCluster"}
        world = World()
        register(world.connect(), name=name, address=listed["brokerAddr"], cluster="GoldenCluster")
        found = json.loads(replay(world.connect(), request).body)
        assert found["brokerAddr"] == listed["brokerAddr"]
        assert set(found["topicList"]) == set(listed["topicList"])


def test_write_permissions_and_deletions_are_answered_as_recorded() -> None:
    for request, answer in exchanges("WIPE_WRITE_PERM_OF_BROKER", "ADD_WRITE_PERM_OF_BROKER"):
        ((_, count),) = answer["decoded"]["extFields"].items()
        world = World()
        table = topics(*(f"T{number}" for number in range(int(count) - 1)))
        register(world.connect(), table=table, name=request["decoded"]["extFields"]["brokerName"])
        assert summary(replay(world.connect(), request)) == recorded_summary(answer)
    for request, answer in exchanges(
        "DELETE_TOPIC_IN_NAMESRV", "UNREGISTER_BROKER", "REGISTER_TOPIC_IN_NAMESRV"
    ):
        assert summary(replay(World().connect(), request)) == recorded_summary(answer)


def test_every_recorded_answer_belongs_to_a_test() -> None:
    seen = {answer["decoded"].get("requestName") for _, answer in exchanges()}
    assert seen - NOT_SERVED == {
        "ADD_WRITE_PERM_OF_BROKER", "DELETE_KV_CONFIG", "DELETE_TOPIC_IN_NAMESRV",
        "GET_ALL_TOPIC_LIST_FROM_NAMESERVER", "GET_BROKER_CLUSTER_INFO", "GET_BROKER_MEMBER_GROUP",
        "GET_HAS_UNIT_SUB_TOPIC_LIST", "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST",
        "GET_KVLIST_BY_NAMESPACE", "GET_KV_CONFIG", "GET_ROUTEINFO_BY_TOPIC",
        "GET_SYSTEM_TOPIC_LIST_FROM_NS", "GET_TOPICS_BY_CLUSTER", "GET_UNIT_TOPIC_LIST",
        "PUT_KV_CONFIG", "QUERY_DATA_VERSION", "REGISTER_BROKER", "REGISTER_TOPIC_IN_NAMESRV",
        "UNREGISTER_BROKER", "WIPE_WRITE_PERM_OF_BROKER", None,
    }  # fmt: skip


@pytest.mark.parametrize("line", ["5.4.0"])
def test_a_member_group_is_the_recorded_bytes(line: str) -> None:
    ((request, answer),) = exchanges("GET_BROKER_MEMBER_GROUP")
    body = frame_body(answer)
    group = json.loads(body.replace(b"{0:", b'{"0":'))["brokerMemberGroup"]
    world = World()
    register(
        world.connect(), name=group["brokerName"], address=group["brokerAddrs"]["0"],
        cluster=group["cluster"],
    )  # fmt: skip
    assert replay(world.connect(), request).body == body


def test_an_unknown_code_gets_the_recorded_answer() -> None:
    found = [
        (request, answer)
        for request, answer in exchanges()
        if answer["decoded"].get("requestName") is None
    ]
    assert found
    for request, answer in found:
        assert summary(replay(World().connect(), request)) == recorded_summary(answer)
