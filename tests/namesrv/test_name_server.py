"""What brokers and clients see of the name server: registration, expiry, links, routes, permissions, key-values."""

from __future__ import annotations

import json

import pytest
from name_server import CLUSTER, SELF_TOPIC, World, register, topics
from zope.interface.verify import verifyObject

from txrocketmq.codec import fastjson
from txrocketmq.codec.bodies.registration import TopicConfigSerializeWrapper
from txrocketmq.codec.bodies.wire import encode_body
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import (
    BrokerHeartbeatRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
)
from txrocketmq.interfaces import IBrokerDirectory, IConnectionListener
from txrocketmq.model.codes import CURRENT_VERSION, V3_0_11, V4_9_4, RequestCode, ResponseCode
from txrocketmq.model.route import QueueData, TopicRouteData
from txrocketmq.model.topic import DataVersion

ADDRESS = "192.0.2.10:10911"


def ask_route(world: World, topic: str = "TopicA", **options) -> RemotingCommand:
    header = GetRouteInfoRequestHeader(topic=topic)
    return world.connect().ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, **options)


def route(world: World, topic: str = "TopicA") -> dict | None:
    answer = ask_route(world, topic)
    return None if answer.code else json.loads(answer.body)


def query_version(world: World, peer, counter: int) -> RemotingCommand:
    header = QueryDataVersionRequestHeader(
        broker_name="broker-a", broker_addr=ADDRESS, cluster_name=CLUSTER, broker_id=0
    )
    version = DataVersion(counter=counter, timestamp=1_700_000_000_000)
    return peer.ask(RequestCode.QUERY_DATA_VERSION, header, body=encode_body(version))


def test_parts_keep_their_interfaces():
    world = World()
    assert verifyObject(IBrokerDirectory, world.server.table)
    assert verifyObject(IConnectionListener, world.server)


# --------------------------------------------------------------------------- registration


def test_a_registered_topic_has_a_route():
    world = World()
    register(world.connect())
    assert route(world) == {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": ADDRESS},
                "brokerName": "broker-a",
                "cluster": CLUSTER,
                "enableActingMaster": False,
            }
        ],
        "filterServerTable": {},
        "queueDatas": [
            {
                "brokerName": "broker-a",
                "perm": 6,
                "readQueueNums": 4,
                "topicSysFlag": 0,
                "writeQueueNums": 4,
            }
        ],
    }


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("version", [V3_0_11, V4_9_4, CURRENT_VERSION])
def test_both_body_forms_register_the_same(compressed, version):
    world = World()
    register(world.connect(), compressed=compressed, version=version)
    assert sorted(world.server.table.topics()) == [SELF_TOPIC, "TopicA"]


def test_brokers_before_3_0_11_send_the_topic_table_alone():
    world = World()
    body = encode_body(TopicConfigSerializeWrapper(topic_config_table=topics("TopicOld")))
    header = RegisterBrokerRequestHeader(
        broker_name="broker-a",
        broker_addr=ADDRESS,
        cluster_name=CLUSTER,
        ha_server_addr="192.0.2.10:10912",
        broker_id=0,
    )
    answer = world.connect().ask(
        RequestCode.REGISTER_BROKER, header, body=body, version=V3_0_11 - 1
    )
    assert answer.code == ResponseCode.SUCCESS
    assert route(world, "TopicOld") is not None


def test_a_body_without_its_checksum_is_refused():
    world = World()
    answer = register(world.connect(), crc32=1)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
    assert route(world) is None


def test_a_checksum_of_zero_is_not_checked():
    world = World()
    assert register(world.connect(), crc32=0).code == ResponseCode.SUCCESS


def test_a_damaged_body_is_refused_and_named():
    world = World()
    header = RegisterBrokerRequestHeader(
        broker_name="broker-a",
        broker_addr=ADDRESS,
        cluster_name=CLUSTER,
        ha_server_addr="192.0.2.10:10912",
        broker_id=0,
    )
    answer = world.connect().ask(RequestCode.REGISTER_BROKER, header, body=b'{"topicConfig')
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "RegisterBrokerBody" in (answer.remark or "")


def test_a_slave_learns_its_master_and_its_replication_address():
    world = World()
    master = register(world.connect())
    assert not master.ext_fields
    answer = register(world.connect(), address="192.0.2.11:10911", broker_id=1)
    welcome = answer.decode_header(RegisterBrokerResponseHeader)
    assert (welcome.master_addr, welcome.ha_server_addr) == (ADDRESS, ADDRESS + "1")
    found = route(world)
    assert found is not None
    assert found["brokerDatas"][0]["brokerAddrs"] == {"0": ADDRESS, "1": "192.0.2.11:10911"}


def test_a_slave_adds_no_topics():
    world = World()
    register(world.connect(), table=topics("TopicA"))
    register(
        world.connect(), table=topics("TopicB"), address="192.0.2.11:10911", broker_id=1, counter=9
    )
    assert route(world, "TopicB") is None


def test_one_topic_of_an_unknown_broker_is_refused():
    world = World()
    answer = register(world.connect(), table=topics())
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "register broker failed")
    assert world.server.table.clusters() == {}


def test_one_topic_of_a_known_broker_is_added():
    world = World()
    peer = world.connect()
    register(peer)
    one = {"TopicB": topics("TopicB")["TopicB"]}
    assert register(peer, table=one, counter=2).code == ResponseCode.SUCCESS
    assert route(world, "TopicA") is not None
    assert route(world, "TopicB") is not None


def test_a_slave_that_became_master_leaves_its_old_id():
    world = World()
    register(world.connect(), broker_id=1)
    register(world.connect(), broker_id=0)
    found = route(world)
    assert found is not None
    assert found["brokerDatas"][0]["brokerAddrs"] == {"0": ADDRESS}


def test_an_id_held_with_a_newer_term_is_not_taken_over():
    world = World()
    register(world.connect(), state_version=5)
    answer = register(world.connect(), address="192.0.2.66:10911", state_version=4)
    assert answer.code == ResponseCode.SUCCESS
    found = route(world)
    assert found is not None
    assert found["brokerDatas"][0]["brokerAddrs"] == {"0": ADDRESS}
    register(world.connect(), address="192.0.2.66:10911", state_version=5)
    found = route(world)
    assert found is not None
    assert found["brokerDatas"][0]["brokerAddrs"] == {"0": "192.0.2.66:10911"}


def test_unchanged_topics_are_not_applied_again():
    world = World()
    peer = world.connect()
    register(peer, counter=1)
    wipe = WipeWritePermOfBrokerRequestHeader(broker_name="broker-a")
    answer = peer.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, wipe)
    assert answer.ext_fields == {"wipeTopicCount": "2"}
    register(peer, counter=1)
    found = route(world)
    assert found is not None
    assert found["queueDatas"][0]["perm"] == 4
    register(peer, counter=2)
    found = route(world)
    assert found is not None
    assert found["queueDatas"][0]["perm"] == 6


def delete(world, topic="TopicA"):
    header = DeleteTopicFromNamesrvRequestHeader(topic=topic)
    assert world.connect().ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, header).code == 0


def test_a_repeated_registration_counts_without_being_read():
    world = World()
    peer = world.connect()
    for _ in range(3):
        assert register(peer, filter_servers=["192.0.2.10:30000"]).code == 0
        found = route(world)
        assert found is not None
        assert found["queueDatas"][0]["readQueueNums"] == 4
        assert found["filterServerTable"] == {ADDRESS: ["192.0.2.10:30000"]}
        world.pass_seconds(100)
    # It is a sign of life, too, and the link that it came on is the broker's.
    again = world.connect()
    register(again, filter_servers=["192.0.2.10:30000"])
    peer.drop()
    assert route(world) is not None
    again.drop()
    assert route(world) is None


def test_what_a_command_took_out_comes_back_with_the_same_registration():
    world = World()
    peer = world.connect()
    register(peer)
    register(peer)
    delete(world)
    assert route(world) is None
    register(peer)
    assert route(world) is not None


def test_the_same_body_from_another_place_is_taken_in():
    world = World()
    peer = world.connect()
    register(peer)
    gone = UnRegisterBrokerRequestHeader(
        broker_name="broker-a", broker_addr=ADDRESS, cluster_name=CLUSTER, broker_id=0
    )
    assert peer.ask(RequestCode.UNREGISTER_BROKER, gone).code == 0
    register(peer)
    assert route(world) is not None
    register(peer, name="broker-b")
    found = route(world)
    assert found is not None
    assert {queue["brokerName"] for queue in found["queueDatas"]} == {"broker-a", "broker-b"}
    register(peer, name="broker-b", table=topics("TopicB"), counter=2)
    register(peer, name="broker-a", table=topics("TopicB"), counter=2)
    found = route(world, "TopicB")
    assert found is not None
    assert {queue["brokerName"] for queue in found["queueDatas"]} == {"broker-a", "broker-b"}


def test_topics_no_longer_named_go_with_a_repeated_registration_when_that_is_switched_on():
    world = World()
    peer = world.connect()
    register(peer, table=topics("TopicA", "TopicB"), counter=1)
    register(peer, table=topics("TopicB"), counter=2)
    assert route(world, "TopicA") is not None
    world.config.delete_topic_with_broker_registration = True
    register(peer, table=topics("TopicB"), counter=2)
    assert route(world, "TopicA") is None


def test_topics_no_longer_named_go_only_if_asked():
    for drops in (False, True):
        world = World(delete_topic_with_broker_registration=drops)
        peer = world.connect()
        register(peer, table=topics("TopicA", "TopicB"), counter=1)
        register(peer, table=topics("TopicB"), counter=2)
        assert (route(world, "TopicA") is None) is drops
        assert route(world, "TopicB") is not None


def test_filter_servers_are_in_the_route():
    world = World()
    register(world.connect(), filter_servers=["192.0.2.10:30000"])
    found = route(world)
    assert found is not None
    assert found["filterServerTable"] == {ADDRESS: ["192.0.2.10:30000"]}


def test_data_version_queries_tell_changes():
    world = World()
    peer = world.connect()
    assert query_version(world, peer, 1).ext_fields == {"changed": "true"}
    register(peer, counter=1)
    same = query_version(world, peer, 1)
    assert same.ext_fields == {"changed": "false"}
    assert json.loads(same.body)["counter"] == 1
    assert query_version(world, peer, 2).ext_fields == {"changed": "true"}


# --------------------------------------------------------------------------- the end of brokers


def test_a_lost_link_takes_its_broker_out_at_once():
    world = World()
    peer = world.connect()
    register(peer)
    register(world.connect(), name="broker-b", address="192.0.2.12:10911")
    peer.drop()
    found = route(world)
    assert found is not None
    assert [broker["brokerName"] for broker in found["brokerDatas"]] == ["broker-b"]


def test_a_broker_that_came_back_on_a_new_link_survives_the_old_one():
    world = World()
    old, new = world.connect(), world.connect()
    register(old)
    register(new)
    old.drop()
    assert route(world) is not None
    new.drop()
    assert route(world) is None


def test_a_silent_broker_goes_after_two_minutes_at_the_next_scan():
    world = World()
    peer = world.connect()
    register(peer)
    # Other words than registrations keep the link open and the broker silent.
    for _ in range(12):
        world.pass_seconds(10)
        peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert route(world) is not None
    world.pass_seconds(5)
    assert route(world) is None
    assert not peer.protocol.is_open


def test_the_first_scan_comes_after_five_seconds_and_the_advertised_time_counts():
    world = World()
    register(world.connect(), heartbeat_timeout_millis=1000)
    world.pass_seconds(4.5)
    assert route(world) is not None
    world.pass_seconds(0.5)
    assert route(world) is None


@pytest.mark.parametrize("sign", ["registration", "version", "heartbeat"])
def test_any_sign_of_life_counts(sign):
    world = World()
    peer = world.connect()
    register(peer)
    for _ in range(4):
        world.pass_seconds(100)
        if sign == "registration":
            register(peer)
        elif sign == "version":
            query_version(world, peer, 1)
        else:
            header = BrokerHeartbeatRequestHeader(
                cluster_name=CLUSTER, broker_addr=ADDRESS, broker_name="broker-a"
            )
            request = RemotingCommand.create_request(
                RequestCode.BROKER_HEARTBEAT, header, opaque=8, flag=2
            )
            assert peer.send_frame(request.encode()) == []
    assert route(world) is not None


def test_an_unregistered_broker_leaves_nothing():
    world = World()
    peer = world.connect()
    register(peer)
    header = UnRegisterBrokerRequestHeader(
        broker_name="broker-a", broker_addr=ADDRESS, cluster_name=CLUSTER, broker_id=0
    )
    assert peer.ask(RequestCode.UNREGISTER_BROKER, header).code == ResponseCode.SUCCESS
    table = world.server.table
    assert (table.topics(), table.brokers(), table.clusters()) == ([], {}, {})


def test_a_stopped_master_leaves_its_slave_readable():
    world = World()
    master = world.connect()
    register(master)
    register(world.connect(), address="192.0.2.11:10911", broker_id=1)
    master.drop()
    found = route(world)
    assert found is not None
    assert found["brokerDatas"][0]["brokerAddrs"] == {"1": "192.0.2.11:10911"}


def test_a_lost_master_closes_writes_where_a_slave_may_stand_in():
    world = World()
    master = world.connect()
    register(master, enable_acting_master=True)
    register(world.connect(), address="192.0.2.11:10911", broker_id=1, enable_acting_master=True)
    master.drop()
    found = route(world)
    assert found is not None
    assert found["queueDatas"][0]["perm"] == 4


# --------------------------------------------------------------------------- routes


def test_an_unknown_topic_gets_the_official_remark():
    answer = ask_route(World(), "Nowhere")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert (answer.remark or "").startswith(
        "No topic route info in name server for the topic: Nowhere\nSee "
    )


def test_standard_json_from_4_9_4_on_and_the_dialect_before():
    world = World()
    register(world.connect())
    new = ask_route(world, version=V4_9_4).body
    old = ask_route(world, version=V4_9_4 - 1).body
    asked = world.connect().ask(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        GetRouteInfoRequestHeader(topic="TopicA", accept_standard_json_only=True),
        version=V4_9_4 - 1,
    )
    assert b'"brokerAddrs":{"0":"192.0.2.10:10911"}' in new
    assert b'"brokerAddrs":{0:"192.0.2.10:10911"}' in old
    assert asked.body == new
    assert old == new.replace(b'{"0":', b"{0:")
    assert fastjson.loads(old) == fastjson.loads(new)


def test_missing_ext_fields_name_the_field():
    answer = World().connect().ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "topic" in (answer.remark or "")


def test_the_order_of_an_ordered_topic_is_in_its_route():
    world = World(order_message_enable=True)
    peer = world.connect()
    register(peer)
    put = PutKVConfigRequestHeader(namespace="ORDER_TOPIC_CONFIG", key="TopicA", value="broker-a:4")
    assert peer.ask(RequestCode.PUT_KV_CONFIG, put).code == ResponseCode.SUCCESS
    found = route(world)
    assert found is not None
    assert found["orderTopicConf"] == "broker-a:4"
    assert register(peer).body == b'{"table":{"TopicA":"broker-a:4"}}'
    world.config.order_message_enable = False
    found = route(world)
    assert found is not None
    assert "orderTopicConf" not in found


def test_order_settings_survive_a_restart():
    world = World()
    put = PutKVConfigRequestHeader(namespace="ORDER_TOPIC_CONFIG", key="T", value="b:1")
    world.connect().ask(RequestCode.PUT_KV_CONFIG, put)
    assert json.loads(world.disk.read_file("/namesrv/kvConfig.json")) == {
        "configTable": {"ORDER_TOPIC_CONFIG": {"T": "b:1"}}
    }
    again = World(disk=world.disk)
    assert again.server.kv.order_of_topic("T") == "b:1"


def test_a_damaged_key_value_file_is_replaced_by_its_backup():
    world = World()
    peer = world.connect()
    for value in ("b:1", "b:2"):
        put = PutKVConfigRequestHeader(namespace="ORDER_TOPIC_CONFIG", key="T", value=value)
        peer.ask(RequestCode.PUT_KV_CONFIG, put)
    world.disk.replace_file("/namesrv/kvConfig.json", b"{half", False)
    assert World(disk=world.disk).server.kv.order_of_topic("T") == "b:1"


def test_routes_wait_for_brokers_if_asked():
    world = World(need_wait_for_service=True)
    register(world.connect())
    answer = ask_route(world)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "name server not ready")
    world.pass_seconds(45)
    assert ask_route(world).code == ResponseCode.SUCCESS


def test_a_topic_on_two_brokers_names_both():
    world = World()
    register(world.connect())
    register(world.connect(), name="broker-b", address="192.0.2.12:10911")
    found = route(world)
    assert found is not None
    assert [queue["brokerName"] for queue in found["queueDatas"]] == ["broker-a", "broker-b"]


def test_a_route_handed_out_is_the_caller_s_own():
    world = World()
    register(world.connect())
    found = world.server.table.pick_route("TopicA")
    assert found is not None
    found.queue_datas[0].perm = 0
    found.broker_datas[0].broker_addrs.clear()
    again = route(world)
    assert again is not None
    assert again["queueDatas"][0]["perm"] == 6
    assert again["brokerDatas"][0]["brokerAddrs"] == {"0": ADDRESS}


# --------------------------------------------------------------------------- lists


def test_the_list_of_all_topics_can_be_switched_off():
    world = World()
    register(world.connect())
    peer = world.connect()
    answer = peer.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert sorted(json.loads(answer.body)["topicList"]) == [SELF_TOPIC, "TopicA"]
    world.config.enable_all_topic_list = False
    answer = peer.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert (answer.code, answer.remark, answer.body) == (
        ResponseCode.SYSTEM_ERROR,
        "disable",
        b"",
    )


@pytest.mark.parametrize(
    ("code", "header"),
    [
        (RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader(cluster=CLUSTER)),
        (RequestCode.GET_UNIT_TOPIC_LIST, None),
        (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, None),
        (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, None),
    ],
)
def test_the_other_lists_have_a_switch_of_their_own(code, header):
    world = World()
    peer = world.connect()
    register(peer)
    world.config.enable_all_topic_list = False
    assert peer.ask(code, header).code == ResponseCode.SUCCESS
    world.config.enable_topic_list = False
    answer = peer.ask(code, header)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "disable")


def test_cluster_info_has_bare_broker_ids():
    world = World()
    register(world.connect())
    body = world.connect().ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
    assert body == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"192.0.2.10:10911"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}},'
        b'"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
    )


def test_topics_with_unit_flags_are_listed():
    world = World()
    table = topics("Unit", flag=1) | topics("UnitSub", flag=3) | topics("Sub", flag=2)
    table[SELF_TOPIC].topic_sys_flag = 0
    register(world.connect(), table=table)
    peer = world.connect()
    found = {
        code: sorted(json.loads(peer.ask(code).body)["topicList"])
        for code in (
            RequestCode.GET_UNIT_TOPIC_LIST,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        )
    }
    assert list(found.values()) == [["Unit", "UnitSub"], ["Sub", "UnitSub"], ["Sub"]]


def test_a_topic_is_deleted_in_one_cluster_or_everywhere():
    world = World()
    peer = world.connect()
    register(peer)
    register(world.connect(), name="broker-b", address="192.0.2.12:10911", cluster="Other")
    peer.ask(
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        DeleteTopicFromNamesrvRequestHeader(topic="TopicA", cluster_name="Other"),
    )
    found = route(world)
    assert found is not None
    assert [queue["brokerName"] for queue in found["queueDatas"]] == ["broker-a"]
    peer.ask(
        RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicFromNamesrvRequestHeader(topic="TopicA")
    )
    assert route(world) is None


def test_queues_of_one_topic_can_be_registered():
    world = World()
    peer = world.connect()
    register(peer)

    def register_topic(broker_name: str) -> None:
        queue = QueueData(broker_name=broker_name, perm=6, read_queue_nums=3, write_queue_nums=3)
        body = encode_body(TopicRouteData(queue_datas=[queue]))
        header = RegisterTopicRequestHeader(topic="TopicB")
        answer = peer.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, header, body=body)
        assert answer.code == ResponseCode.SUCCESS

    register_topic("broker-unknown")
    assert route(world, "TopicB") is None
    register_topic("broker-a")
    found = route(world, "TopicB")
    assert found is not None
    assert found["queueDatas"][0]["readQueueNums"] == 3


# --------------------------------------------------------------------------- several, unknown, large


def test_name_servers_do_not_know_of_one_another():
    first, second = World(), World()
    register(first.connect())
    assert route(first) is not None
    assert route(second) is None


def test_an_unknown_code_is_not_supported():
    answer = World().connect().ask(9999)
    assert (answer.code, answer.remark) == (
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        " request type 9999 not supported",
    )


def test_seventy_thousand_topics_register_and_are_found():
    world = World()
    peer = world.connect()
    table = topics(*(f"topic-{number}" for number in range(70_000)))
    assert register(peer, table=table, compressed=True).code == ResponseCode.SUCCESS
    assert route(world, "topic-69999") is not None
    body = peer.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body
    assert len(json.loads(body)["topicList"]) == 70_001
    peer.drop()
    assert world.server.table.topics() == []
