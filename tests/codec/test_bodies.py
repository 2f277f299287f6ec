"""JSON bodies: everything the official software wrote reads, and is written again as it was."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import txrocketmq.codec.bodies as bodies
from tests.golden import LINES, frame_body, units, wire_frames
from txrocketmq.codec import fastjson
from txrocketmq.codec.bodies import decode_bodies, decode_body, encode_bodies, encode_body
from txrocketmq.codec.bodies.wire import write_dialect
from txrocketmq.errors import BodyError
from txrocketmq.model.bean import Bean
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.heartbeat import HeartbeatData
from txrocketmq.model.message import MessageQueue
from txrocketmq.model.route import TopicRouteData
from txrocketmq.model.static_topic import TopicConfigAndQueueMapping, TopicQueueMappingDetail
from txrocketmq.model.topic import DataVersion, TopicConfig

REQUESTS: dict[str, type[Bean]] = {
    "AUTH_CREATE_ACL": bodies.AclInfo,
    "AUTH_CREATE_USER": bodies.UserInfo,
    "AUTH_UPDATE_ACL": bodies.AclInfo,
    "AUTH_UPDATE_USER": bodies.UserInfo,
    "BATCH_ACK_MESSAGE": bodies.BatchAckMessageRequestBody,
    "CHECK_CLIENT_CONFIG": bodies.CheckClientRequestBody,
    "CONTROLLER_ALTER_SYNC_STATE_SET": bodies.SyncStateSet,
    "HEART_BEAT": HeartbeatData,
    "LOCK_BATCH_MQ": bodies.LockBatchRequestBody,
    "NOTIFY_BROKER_ROLE_CHANGED": bodies.SyncStateSet,
    "QUERY_ASSIGNMENT": bodies.QueryAssignmentRequestBody,
    "QUERY_DATA_VERSION": DataVersion,
    "REGISTER_BROKER": bodies.RegisterBrokerBody,
    "REGISTER_TOPIC_IN_NAMESRV": TopicRouteData,
    "RESET_CONSUMER_CLIENT_OFFSET": bodies.ResetOffsetBody,
    "SET_MESSAGE_REQUEST_MODE": bodies.SetMessageRequestModeRequestBody,
    "UNLOCK_BATCH_MQ": bodies.UnlockBatchRequestBody,
    "UPDATE_AND_CREATE_STATIC_TOPIC": TopicQueueMappingDetail,
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP": SubscriptionGroupConfig,
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST": bodies.SubscriptionGroupList,
    "UPDATE_AND_CREATE_TOPIC_LIST": bodies.CreateTopicListRequestBody,
}
RESPONSES: dict[str, type[Bean]] = {
    "AUTH_GET_ACL": bodies.AclInfo,
    "AUTH_GET_USER": bodies.UserInfo,
    "CONSUME_MESSAGE_DIRECTLY": bodies.ConsumeMessageDirectlyResult,
    "CONTROLLER_ALTER_SYNC_STATE_SET": bodies.SyncStateSet,
    "CONTROLLER_ELECT_MASTER": bodies.ElectMasterResponseBody,
    "CONTROLLER_GET_REPLICA_INFO": bodies.SyncStateSet,
    "CONTROLLER_GET_SYNC_STATE_DATA": bodies.BrokerReplicasInfo,
    "CONTROLLER_REGISTER_BROKER": bodies.SyncStateSet,
    "GET_ALL_CONSUMER_OFFSET": bodies.ConsumerOffsetSerializeWrapper,
    "GET_ALL_DELAY_OFFSET": bodies.DelayOffsetSerializeWrapper,
    "GET_ALL_MESSAGE_REQUEST_MODE": bodies.MessageRequestModeSerializeWrapper,
    "GET_ALL_PRODUCER_INFO": bodies.ProducerTableInfo,
    "GET_ALL_SUBSCRIPTIONGROUP_CONFIG": bodies.SubscriptionGroupWrapper,
    "GET_ALL_TOPIC_CONFIG": bodies.TopicConfigAndMappingSerializeWrapper,
    "GET_BROKER_CLUSTER_INFO": bodies.ClusterInfo,
    "GET_BROKER_CONSUME_STATS": bodies.ConsumeStatsList,
    "GET_BROKER_EPOCH_CACHE": bodies.EpochEntryCache,
    "GET_BROKER_HA_STATUS": bodies.HARuntimeInfo,
    "GET_BROKER_MEMBER_GROUP": bodies.GetBrokerMemberGroupResponseBody,
    "GET_BROKER_RUNTIME_INFO": bodies.KVTable,
    "GET_CONSUMER_CONNECTION_LIST": bodies.ConsumerConnection,
    "GET_CONSUMER_LIST_BY_GROUP": bodies.GetConsumerListByGroupResponseBody,
    "GET_CONSUMER_RUNNING_INFO": bodies.ConsumerRunningInfo,
    "GET_CONSUMER_STATUS_FROM_CLIENT": bodies.GetConsumerStatusBody,
    "GET_CONSUME_STATS": bodies.ConsumeStats,
    "GET_KVLIST_BY_NAMESPACE": bodies.KVTable,
    "GET_PRODUCER_CONNECTION_LIST": bodies.ProducerConnection,
    "GET_ROUTEINFO_BY_TOPIC": TopicRouteData,
    "GET_SUBSCRIPTIONGROUP_CONFIG": SubscriptionGroupConfig,
    "GET_TIMER_METRICS": bodies.TimerMetricsSerializeWrapper,
    "GET_TOPIC_CONFIG": TopicConfigAndQueueMapping,
    "GET_TOPIC_STATS_INFO": bodies.TopicStatsTable,
    "INVOKE_BROKER_TO_GET_CONSUMER_STATUS": bodies.GetConsumerStatusBody,
    "INVOKE_BROKER_TO_RESET_OFFSET": bodies.ResetOffsetBody,
    "LOCK_BATCH_MQ": bodies.LockBatchResponseBody,
    "QUERY_ASSIGNMENT": bodies.QueryAssignmentResponseBody,
    "QUERY_CONSUME_QUEUE": bodies.QueryConsumeQueueResponseBody,
    "QUERY_CONSUME_TIME_SPAN": bodies.QueryConsumeTimeSpanBody,
    "QUERY_CORRECTION_OFFSET": bodies.QueryCorrectionOffsetBody,
    "QUERY_DATA_VERSION": DataVersion,
    "QUERY_SUBSCRIPTION_BY_CONSUMER": bodies.QuerySubscriptionResponseBody,
    "QUERY_TOPIC_CONSUME_BY_WHO": bodies.GroupList,
    "REGISTER_BROKER": bodies.KVTable,
    "UPDATE_AND_GET_GROUP_FORBIDDEN": bodies.GroupForbidden,
    "VIEW_BROKER_STATS_DATA": bodies.BrokerStatsData,
    **dict.fromkeys(
        (
            "GET_ALL_TOPIC_LIST_FROM_NAMESERVER",
            "GET_HAS_UNIT_SUB_TOPIC_LIST",
            "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST",
            "GET_SYSTEM_TOPIC_LIST_FROM_BROKER",
            "GET_SYSTEM_TOPIC_LIST_FROM_NS",
            "GET_TOPICS_BY_CLUSTER",
            "GET_UNIT_TOPIC_LIST",
            "QUERY_TOPICS_BY_CONSUMER",
        ),
        bodies.TopicList,
    ),
}
# Bodies that are arrays or free maps, not beans of their own.
NOT_BEANS = {
    "AUTH_LIST_ACL",
    "AUTH_LIST_USER",
    "CONTROLLER_GET_SYNC_STATE_DATA",
    "GET_BROKER_CLUSTER_ACL_CONFIG",
    "GET_COLD_DATA_FLOW_CTR_INFO",
}
SETS = {"clusterAddrTable", "codeSet", "groupList", "tagsSet", "topicList"}
# Written by a 5.x broker from the manager's own state; readers have no use for it.
COMPUTED = {"groupTopicMap", "lmqOffsetTable"}
# Members that 4.x does not know and 5.x writes with an initial value that is neither zero nor empty.
INITIAL = {
    "consumeTimeoutMinute": 15,
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0},
}


def recorded() -> Iterator[tuple[str, type[Bean], bytes, bool]]:
    """``(frame, bean, body, whether 5.x wrote it)`` for every recorded JSON body."""
    for frame in wire_frames():
        decoded = frame["decoded"]
        if frame["kind"] != "remoting" or decoded["body_kind"] not in ("json", "json-nonstandard"):
            continue
        response = "requestName" in decoded
        name = decoded["requestName"] if response else decoded["codeName"]
        kind = (RESPONSES if response else REQUESTS).get(name)
        if kind is None:
            assert name in NOT_BEANS
            continue
        yield (
            f"{frame['conversation']}#{frame['seq']}",
            kind,
            frame_body(frame),
            (decoded["version"] >= 413),
        )


def plain(value: Any, name: str = "") -> Any:
    """A value with sets in one order and without what readers have no use for."""
    if isinstance(value, dict):
        return {k: plain(v, k) for k, v in value.items() if k not in COMPUTED}
    if isinstance(value, list):
        items = [plain(item, name) for item in value]
        return sorted(items, key=json.dumps) if name in SETS else items
    return value


def only_adds_initial_values(official: Any, ours: Any, name: str = "") -> bool:
    if isinstance(official, dict) and isinstance(ours, dict):
        added = ours.keys() - official.keys()
        return (
            official.keys() <= ours.keys()
            and all(only_adds_initial_values(official[k], ours[k], k) for k in official)
            and all(not ours[k] or ours[k] == INITIAL.get(k) for k in added)
        )
    if isinstance(official, list) and isinstance(ours, list):
        return len(official) == len(ours) and all(map(only_adds_initial_values, official, ours))
    return bool(official == ours)


def test_every_recorded_body_reads_and_writes_the_same() -> None:
    outcome: Counter[str] = Counter()
    for name, kind, body, is_5x in recorded():
        bean = decode_body(kind, body)
        again = encode_body(bean)
        assert decode_body(kind, again) == bean, name
        if again == body:
            outcome["same bytes"] += 1
            continue
        official, ours = plain(fastjson.loads(body)), plain(fastjson.loads(again))
        if is_5x:
            assert ours == official, name
            outcome["same data"] += 1
        else:
            assert only_adds_initial_values(official, ours), name
            outcome["initial values added"] += 1
    assert outcome["same bytes"] > 850
    assert outcome.total() > 1850


def test_recorded_routes_are_written_as_the_caller_wants_them() -> None:
    strict, bare = 0, 0
    for name, kind, body, is_5x in recorded():
        if kind is TopicRouteData and is_5x and not name.startswith("reg"):
            route = decode_body(TopicRouteData, body)
            is_strict = b'{"0":' in body
            assert bodies.encode_route(route, strict=is_strict) == body, name
            strict, bare = strict + is_strict, bare + (not is_strict)
    assert strict > 250
    assert bare > 0


@pytest.mark.parametrize("line", LINES)
def test_unit_bodies(line: str) -> None:
    kinds = {name: getattr(bodies, name) for name in bodies.__all__}
    kinds.update({kind.__name__: kind for kind in (HeartbeatData, TopicRouteData)})
    for vector in units(line)["bodies"]:
        kind = kinds[vector["type"]]
        bean = decode_body(kind, vector["text"].encode())
        text = encode_body(bean).decode()
        if line == "5.4.0":
            assert text == vector["text"]
        else:
            official = plain(fastjson.loads(vector["text"].encode()))
            assert only_adds_initial_values(official, plain(fastjson.loads(text.encode())))


def test_unit_data_versions() -> None:
    version, topic = units("5.4.0")["dataVersion"]
    bean = decode_body(DataVersion, version["text"].encode())
    assert (bean.counter, bean.state_version, bean.timestamp) == (9, 2, 1700000000000)
    assert encode_body(bean).decode() == version["text"]
    assert decode_body(DataVersion, version["pretty"].encode()) == bean
    config = decode_body(TopicConfig, topic["text"].encode())
    assert encode_body(config).decode() == topic["text"]
    assert bodies.topic_config_text(config) == topic["encoded"]
    assert bodies.parse_topic_config_text(topic["encoded"]) == config


def test_arrays_of_beans() -> None:
    for frame in wire_frames():
        if frame["decoded"].get("requestName") == "AUTH_LIST_USER" and frame["decoded"]["body_len"]:
            body = frame_body(frame)
            users = decode_bodies(bodies.UserInfo, body)
            assert users
            assert encode_bodies(users) == body
    with pytest.raises(BodyError, match="UserInfo: not an array"):
        decode_bodies(bodies.UserInfo, b"{}")


# ------------------------------------------------------------------------ the dialect


def test_names_that_look_like_the_dialect_are_text() -> None:
    queue = MessageQueue(broker_name='b"{1:', queue_id=-1, topic="a,0:b{")
    stats = bodies.ConsumeStats(offset_table={queue: bodies.OffsetWrapper(broker_offset=9)})
    data = encode_body(stats)
    assert data == (
        b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"b\\"{1:","queueId":-1,"topic":"a,0:b{"}:'
        b'{"brokerOffset":9,"consumerOffset":0,"lastTimestamp":0,"pullOffset":0}}}'
    )
    assert decode_body(bodies.ConsumeStats, data) == stats
    table = bodies.KVTable(table={'{"a":1}': "{0:1}"})
    assert decode_body(bodies.KVTable, encode_body(table)) == table


def test_quoted_object_keys_of_4x_read_too() -> None:
    found = decode_body(
        bodies.ResetOffsetBody,
        rb'{"offsetTable":{"{\"brokerName\":\"b\",\"queueId\":1,\"topic\":\"t\"}":5}}',
    )
    assert found.offset_table == {MessageQueue(broker_name="b", queue_id=1, topic="t"): 5}


def test_number_keys_are_written_bare_and_read_either_way() -> None:
    offsets = bodies.ConsumerOffsetSerializeWrapper(offset_table={"t@g": {10: 1, 9: 2, -1: 3}})
    data = encode_body(offsets)
    assert data == b'{"offsetTable":{"t@g":{-1:3,9:2,10:1}}}'
    assert decode_body(bodies.ConsumerOffsetSerializeWrapper, data) == offsets
    quoted = b'{"offsetTable":{"t@g":{"-1":3,"9":2,"10":1}}}'
    assert decode_body(bodies.ConsumerOffsetSerializeWrapper, quoted) == offsets


def test_null_is_absent_and_text_for_a_number_is_taken() -> None:
    found = decode_body(
        TopicConfig,
        b'{"topicName":"t","perm":null,"attributes":null,"readQueueNums":"4","unknown":[{}]}',
    )
    assert found == TopicConfig(topic_name="t", read_queue_nums=4)


def test_a_member_that_cannot_be_read_is_named() -> None:
    with pytest.raises(BodyError, match=r"TopicRouteData: .*\$\.queueDatas\[0\]\.perm"):
        decode_body(TopicRouteData, b'{"queueDatas":[{"perm":"rw"}]}')
    with pytest.raises(BodyError, match=r"SetMessageRequestMode.*\$\.mode"):
        decode_body(bodies.SetMessageRequestModeRequestBody, b'{"mode":"PUSH"}')


@pytest.mark.parametrize(
    "text", [b"", b"null", b"[]", b"{", b'{"table":1', b"\xff", b'"x"', b"{" * 5000, b"[" * 5000]
)
def test_what_is_no_body_is_refused(text: bytes) -> None:
    with pytest.raises(BodyError, match="KVTable"):
        decode_body(bodies.KVTable, text)


ALL_KINDS = sorted(
    {*REQUESTS.values(), *RESPONSES.values(), TopicConfig}, key=lambda kind: kind.__name__
)
fuzz = st.one_of(
    st.binary(max_size=40),
    st.text('{}[]:,"0123456789-. \\abtqN', max_size=40).map(str.encode),
)


@given(st.sampled_from(ALL_KINDS), fuzz)
def test_noise_raises_nothing_but_body_error(kind: type[Bean], noise: bytes) -> None:
    with contextlib.suppress(BodyError):
        decode_body(kind, noise)


SAMPLES = sorted({(kind.__name__, body) for _, kind, body, _ in recorded() if len(body) < 600})


@given(st.sampled_from(SAMPLES), st.data())
def test_damaged_bodies_raise_nothing_but_body_error(
    sample: tuple[str, bytes], data: st.DataObject
) -> None:
    kind = next(kind for kind in ALL_KINDS if kind.__name__ == sample[0])
    damaged = bytearray(sample[1])
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(damaged) - 1))
        damaged[position : position + data.draw(st.integers(0, 2))] = data.draw(fuzz)[:3]
        if not damaged:
            break
    try:
        bean = decode_body(kind, bytes(damaged))
    except BodyError:
        return
    assert decode_body(kind, encode_body(bean)) == bean


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), inner, max_size=3)
        ),
        max_leaves=8,
    ).filter(lambda value: "\\ud" not in ascii(value))
)
def test_plain_values_are_written_as_standard_json(value: object) -> None:
    assert json.loads(write_dialect(value)) == value


def test_all_members_are_in_the_official_order() -> None:
    """Alphabetical by wire name."""
    kinds = [kind for kind in vars(bodies).values() if isinstance(kind, type)]
    for kind in [*kinds, *ALL_KINDS]:
        if issubclass(kind, Bean):
            names = list(kind.__struct_encode_fields__)
            assert names == sorted(names), kind.__name__
    assert issubclass(MessageQueue, msgspec.Struct)
    assert list(MessageQueue.__struct_encode_fields__) == ["brokerName", "queueId", "topic"]
