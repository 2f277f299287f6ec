"""Any fields and any body for every request that is served: an answer or a closed link, no traceback, the store unharmed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from name_server import World, register
from small_broker import SmallBroker
from tracebacks import Log, watched

from txrocketmq.broker.operations import OPERATIONS as BROKER_OPERATIONS
from txrocketmq.codec.bodies import LockBatchRequestBody, encode_body
from txrocketmq.codec.bodies.registration import (
    RegisterBrokerBody,
    TopicConfigAndMappingSerializeWrapper,
    encode_register_broker,
)
from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.codec.record import encode_batch
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.heartbeat import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
)
from txrocketmq.model.heartbeat import build_subscription as subscription
from txrocketmq.model.message import MessageQueue
from txrocketmq.model.topic import DataVersion, TopicConfig
from txrocketmq.namesrv.operations import OPERATIONS as NAME_SERVER_OPERATIONS
from txrocketmq.remoting.dispatch import Operation

FUZZ = settings(
    max_examples=min(2000, 5 * settings.default.max_examples),
    suppress_health_check=list(HealthCheck),
)

NUMBERS = st.sampled_from(
    [
        "0",
        "1",
        "-1",
        "3",
        "8",
        "32",
        "65536",
        "2147483647",
        "-2147483648",
        "2147483648",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "1e3",
        "1.5",
        "٣",
    ]
)
WORDS = st.sampled_from(
    [
        *[
            "TopicA",
            "T",
            "TBW102",
            "%RETRY%G",
            "%DLQ%G",
            "G",
            "CID_RMQ_SYS_X",
            "SCHEDULE_TOPIC_XXXX",
            "../../etc",
            "你好",
            "%s{0}{x}",
            "*",
            "||",
            "TAG",
            "SQL92",
            "true",
            "false",
            "SINGLE_TAG",
            "upper",
            "{}",
            "null",
            "broker-a",
        ],
        "",
        "a || b",
        "a" * 128,
        "x" * 3000,
        "\0",
        "\x01\x02",
        "\x02\x01\x02\x01",
        "KEYS\x01k l\x02DELAY\x013\x02",
        "TRAN_MSG\x01true\x02",
        "UNIQ_KEY\x01u\x02TAGS\x01t",
        "INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02",
        "POP_CK\x01" + "9 " * 8,
    ]
)
USUAL = {
    "topic": "TopicA", "b": "TopicA", "a": "P", "c": "TBW102", "d": "4", "e": "0", "f": "0",
    "g": "1700000000000", "h": "0", "producerGroup": "P", "consumerGroup": "G", "group": "G",
    "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "4",
    "queueOffset": "0", "maxMsgNums": "32", "commitOffset": "0", "suspendTimeoutMillis": "1000",
    "subVersion": "0", "subscription": "*", "readQueueNums": "4", "writeQueueNums": "4",
    "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false", "timestamp": "1700000000000",
    "clusterName": "C", "brokerName": "b", "brokerAddr": "192.0.2.1:1", "brokerId": "0",
    "haServerAddr": "192.0.2.1:2", "bodyCrc32": "0", "namespace": "n", "key": "k", "value": "v",
    "offset": "0", "bornTimestamp": "1", "flag": "0", "reconsumeTimes": "0", "maxNum": "32",
    "beginTimestamp": "0", "endTimestamp": "9999999999999", "cluster": "C", "confirmOffset": "0",
    "invisibleTime": "30000", "pollTime": "0", "bornTime": "0", "initMode": "0", "exp": "*",
    "extraInfo": "0 1700000000000 30000 0 0 broker-a 0 0", "delayLevel": "1",
}  # fmt: skip

TOPIC = TopicConfig(topic_name="TopicA", perm=6, read_queue_nums=4, write_queue_nums=4)
REGISTRATION = RegisterBrokerBody(
    topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
        topic_config_table={"TopicA": TOPIC, "B": TopicConfig(topic_name="B")}
    )
)
BODIES = [
    encode_body(
        HeartbeatData(
            client_id="c",
            consumer_data_set=[
                ConsumerData(
                    group_name="G",
                    consume_type=ConsumeType.CONSUME_PASSIVELY,
                    message_model=MessageModel.CLUSTERING,
                    subscription_data_set=[subscription("TopicA", "a || b")],
                )
            ],
            producer_data_set=[ProducerData(group_name="P")],
        )
    ),
    encode_body(
        LockBatchRequestBody(
            consumer_group="G",
            client_id="c",
            mq_set=[MessageQueue(topic="TopicA", broker_name="b", queue_id=0)],
        )
    ),
    encode_body(SubscriptionGroupConfig(group_name="G")),
    encode_body(DataVersion()),
    encode_register_broker(REGISTRATION, compressed=False),
    encode_register_broker(REGISTRATION, compressed=True),
    encode_batch([(0, b"one", b"KEYS\x01k\x02"), (1, b"two", b"")]),
    b'{"brokerDatas":[],"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4}]}',
    b"brokerName=x\nflushDiskType=NONSENSE\n",
]

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=8,
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A body that some request takes, with something in it replaced."""
    body = bytearray(draw(st.sampled_from(BODIES)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(body)))
        patch = draw(
            st.binary(max_size=6)
            | values.map(lambda value: json.dumps(value).encode())
            | st.just(b"null")
        )
        body[at : at + draw(st.integers(0, 8))] = patch
    return bytes(body)


bodies = st.just(b"") | st.binary(max_size=40) | values.map(msgspec.json.encode) | mutated()


def header_fields(operation: Operation) -> list[str]:
    if operation.request_header is None:
        return []
    return [info.encode_name for info in msgspec.structs.fields(operation.request_header)]


@st.composite
def requests(draw: st.DrawFn, operations: Iterable[Operation]) -> RemotingCommand:
    """A request with usual values in most fields and anything in the others."""
    operation = draw(st.sampled_from(list(operations)))
    odd = NUMBERS | WORDS
    fields: dict[str, str] = {}
    for name in header_fields(operation):
        kind = draw(st.integers(0, 9))
        if kind == 0:
            fields[name] = draw(odd)
        elif name in USUAL and kind < 9:
            fields[name] = USUAL[name]
    fields |= draw(st.dictionaries(WORDS, odd, max_size=2))
    return RemotingCommand.create_request(
        int(operation.code),
        ext_fields=draw(st.just(fields) | st.none()),
        body=draw(bodies),
        opaque=draw(st.integers(-(2**31), 2**31 - 1)),
        flag=draw(st.sampled_from([0, 0, 0, 2])),
        language=draw(st.integers(0, 127)),
        version=draw(st.sampled_from([493, 407, 0, -1, 32767])),
        serialize_type=draw(st.sampled_from([0, 1])),
    )


@pytest.fixture
def failures() -> Iterator[Log]:
    with watched() as seen:
        yield seen


def check(connect: Callable[[], Any], link: Any, request: RemotingCommand, failures: Log) -> Any:
    """Send a request and look at what came of it; the link for the next one."""
    link.protocol.dataReceived(request.encode())
    frames = FrameSplitter().feed(link.transport.value())
    link.transport.clear()
    answers = [command for command in map(decode_command, frames) if command.is_response]
    assert failures.tracebacks == [], f"{request}: {failures.tracebacks}"
    assert len(answers) <= (0 if request.is_oneway else 1)
    for answer in answers:
        assert answer.opaque == request.opaque
        assert answer.serialize_type == request.serialize_type
    if link.protocol.is_open and not link.transport.disconnecting:
        return link
    link.protocol.connectionLost()
    return connect()


@FUZZ
@given(requests=st.lists(requests(BROKER_OPERATIONS), min_size=5, max_size=5))
def _fuzz_broker(requests: list[RemotingCommand], broker: SmallBroker, failures: Log) -> None:
    link = broker.connect()
    for request in requests:
        link = check(broker.connect, link, request, failures)
        broker.clock.advance(0.01)
    link.protocol.connectionLost()


def test_a_broker_survives_any_request(failures: Log) -> None:
    broker = SmallBroker()
    broker.connect().send("Kept", b"before")
    _fuzz_broker(broker=broker, failures=failures)
    peer = broker.connect()
    assert peer.send("Kept", b"after").queue_offset == 1
    assert peer.pull("Kept").bodies == [b"before", b"after"]
    broker.clock.advance(60)
    again = broker.restarted()
    assert again.connect().pull("Kept").bodies == [b"before", b"after"]
    again.stop()
    assert failures.tracebacks == []


@FUZZ
@given(requests=st.lists(requests(NAME_SERVER_OPERATIONS), min_size=5, max_size=5))
def _fuzz_name_server(requests: list[RemotingCommand], world: World, failures: Log) -> None:
    link = world.connect()
    for request in requests:
        link = check(world.connect, link, request, failures)
        world.clock.advance(0.01)
    link.protocol.connectionLost()


def test_a_name_server_survives_any_request(failures: Log) -> None:
    world = World()
    assert register(world.connect()).code == 0
    _fuzz_name_server(world=world, failures=failures)
    world.pass_seconds(10)
    assert register(world.connect()).code == 0
    assert failures.tracebacks == []
