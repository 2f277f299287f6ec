"""Typed requests to brokers: the answer as a value, a refusal as `BrokerError`."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from client_world import ClientWorld
from roles import NotingConsumer

from txrocketmq.client.api import ClientApi
from txrocketmq.client.config import ClientConfig
from txrocketmq.client.hooks import AclHook
from txrocketmq.client.instance import ClientInstance
from txrocketmq.client.messages import decode_messages
from txrocketmq.client.producer.producer import Producer
from txrocketmq.client.results import PullStatus, SendResult
from txrocketmq.codec.headers import (
    ConsumerSendMsgBackRequestHeader,
    PullMessageRequestHeader,
    QueryMessageRequestHeader,
)
from txrocketmq.codec.record import encode_record
from txrocketmq.codec.signature import calculate_signature, signed_content
from txrocketmq.errors import BrokerError, RemotingConnectError
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.flags import COMPRESSED_FLAG
from txrocketmq.model.heartbeat import build_subscription
from txrocketmq.model.message import Message, MessageQueue, MessageRecord

ADDRESS = "192.0.2.2:10911"
QUEUE = MessageQueue(topic="TopicTest", broker_name="broker-2", queue_id=1)


class Api:
    """A broker with three messages in one queue, of which the second is compressed, and a member of group CG."""

    def __init__(self) -> None:
        self.world = ClientWorld()
        self.producer = self.world.producer(compress_msg_body_over_howmuch=1000)
        self.sent: list[SendResult] = []
        for number, body in enumerate((b"first", b"second" * 500, b"third")):
            message = Message("TopicTest", body)
            message.keys = f"key-{number}"
            self.sent.append(self.world.wait(self.producer.send(message, QUEUE)))
        self.instance = self.producer.instance
        self.api: ClientApi = self.instance.api
        self.instance.register_consumer("CG", NotingConsumer("CG", "TopicTest"))
        self.world.wait(self.instance.heartbeat_now())

    def wait(self, awaited: Any) -> Any:
        return self.world.wait(awaited)

    def pull(self, offset: int, **more: Any) -> Any:
        header = PullMessageRequestHeader(
            consumer_group="CG",
            topic="TopicTest",
            queue_id=more.get("queue_id", 1),
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=4,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
        )
        return self.wait(self.api.pull_message(ADDRESS, "broker-2", header, 3000))


@pytest.fixture
def api() -> Api:
    return Api()


def test_a_pull_brings_plain_messages_and_where_to_go_on(api: Api) -> None:
    found = api.pull(0)
    assert (found.status, found.next_begin_offset) == (PullStatus.FOUND, 3)
    assert (found.min_offset, found.max_offset, found.suggest_which_broker_id) == (0, 3, 0)
    assert [message.body for message in found.messages] == [b"first", b"second" * 500, b"third"]
    assert {message.broker_name for message in found.messages} == {"broker-2"}
    assert found.messages[1].sys_flag & COMPRESSED_FLAG


@pytest.mark.parametrize(
    ("offset", "status"),
    [(3, PullStatus.NO_NEW_MSG), (99, PullStatus.OFFSET_ILLEGAL)],
)
def test_a_pull_that_finds_nothing_says_why(api: Api, offset: int, status: PullStatus) -> None:
    found = api.pull(offset)
    assert (found.status, found.messages, found.next_begin_offset) == (status, [], 3)


def test_a_refused_pull(api: Api) -> None:
    with pytest.raises(BrokerError, match="queueId") as caught:
        api.pull(0, queue_id=99)
    assert caught.value.address == ADDRESS


def test_positions(api: Api) -> None:
    calls = api.api
    assert api.wait(calls.max_offset(ADDRESS, QUEUE)) == 3
    assert api.wait(calls.min_offset(ADDRESS, QUEUE)) == 0
    stored_ms = api.wait(calls.earliest_store_time(ADDRESS, QUEUE))
    assert stored_ms > 1_600_000_000_000
    assert api.wait(calls.search_offset(ADDRESS, QUEUE, 0)) == 0
    assert api.wait(calls.search_offset(ADDRESS, QUEUE, stored_ms, upper=False)) == 0
    assert api.wait(calls.search_offset(ADDRESS, QUEUE, 1 << 50)) >= 2


def test_offsets_of_groups(api: Api) -> None:
    other = MessageQueue(topic="TopicTest", broker_name="broker-2", queue_id=2)
    api.wait(api.api.update_consumer_offset(ADDRESS, "CG", QUEUE, 2))
    assert api.wait(api.api.query_consumer_offset(ADDRESS, "CG", QUEUE)) == 2
    api.wait(api.api.update_consumer_offset(ADDRESS, "CG", QUEUE, 3, oneway=True))
    api.world.network.run(0.1)
    assert api.wait(api.api.query_consumer_offset(ADDRESS, "CG", QUEUE)) == 3
    with pytest.raises(BrokerError) as caught:
        api.wait(api.api.query_consumer_offset(ADDRESS, "CG", other, zero_if_not_found=False))
    assert caught.value.code == ResponseCode.QUERY_NOT_FOUND


def test_locks(api: Api) -> None:
    calls = api.api
    assert api.wait(calls.lock_batch(ADDRESS, "CG", "one", [QUEUE])) == {QUEUE}
    assert api.wait(calls.lock_batch(ADDRESS, "CG", "two", [QUEUE])) == set()
    api.wait(calls.unlock_batch(ADDRESS, "CG", "one", [QUEUE]))
    assert api.wait(calls.lock_batch(ADDRESS, "CG", "two", [QUEUE])) == {QUEUE}
    api.wait(calls.unlock_batch(ADDRESS, "CG", "two", [QUEUE], oneway=True))
    api.world.network.run(0.1)
    assert api.wait(calls.lock_batch(ADDRESS, "CG", "one", [QUEUE])) == {QUEUE}


def test_members(api: Api) -> None:
    assert api.wait(api.api.consumer_ids(ADDRESS, "CG")) == [api.instance.client_id]
    with pytest.raises(BrokerError):
        api.wait(api.api.consumer_ids(ADDRESS, "nobody"))
    api.wait(api.api.unregister_client(ADDRESS, api.instance.client_id, None, "CG"))
    with pytest.raises(BrokerError):
        api.wait(api.api.consumer_ids(ADDRESS, "CG"))


def test_messages_are_found_by_id_and_by_key(api: Api) -> None:
    from txrocketmq.model.message_id import parse_offset_message_id

    offset = parse_offset_message_id(api.sent[1].offset_msg_id)[2]
    assert api.wait(api.api.view_message(ADDRESS, "TopicTest", offset)).body == b"second" * 500
    with pytest.raises(BrokerError):
        api.wait(api.api.view_message(ADDRESS, "TopicTest", 10_000_000))

    def query(key: str, unique: bool = False) -> Any:
        header = QueryMessageRequestHeader(
            topic="TopicTest",
            key=key,
            max_num=8,
            begin_timestamp=0,
            end_timestamp=1 << 60,
        )
        return api.wait(api.api.query_message(ADDRESS, header, unique_key=unique))

    assert [message.body for message in query("key-2").messages] == [b"third"]
    assert [message.body for message in query(api.sent[0].msg_id, True).messages] == [b"first"]
    with pytest.raises(BrokerError) as caught:
        query("nothing")
    assert caught.value.code == ResponseCode.QUERY_NOT_FOUND


def test_a_message_is_sent_back(api: Api) -> None:
    from txrocketmq.model.message_id import parse_offset_message_id

    header = ConsumerSendMsgBackRequestHeader(
        offset=parse_offset_message_id(api.sent[0].offset_msg_id)[2],
        group="CG",
        delay_level=1,
        origin_msg_id=api.sent[0].msg_id,
        origin_topic="TopicTest",
        max_reconsume_times=16,
    )
    assert api.wait(api.api.send_message_back(ADDRESS, header)).code == 0
    api.world.network.run(2)
    assert [body for _, _, body, _ in api.world.stored("%RETRY%CG")] == [b"first"]


def test_an_expression_is_checked(api: Api) -> None:
    checked = api.api.check_client_config
    client_id = api.instance.client_id
    tags = build_subscription("TopicTest", "a || b")
    assert api.wait(checked(ADDRESS, "CG", client_id, tags)).code == 0
    with pytest.raises(BrokerError):
        api.wait(
            checked(ADDRESS, "CG", client_id, build_subscription("TopicTest", "a = ", "SQL92"))
        )


def test_nobody_there(api: Api) -> None:
    with pytest.raises(RemotingConnectError, match="connection refused"):
        api.wait(api.api.max_offset("192.0.2.9:10911", QUEUE))


def test_what_is_decoded_is_a_choice() -> None:
    packed = zlib.compress(b"plain")
    record = MessageRecord(topic="T", queue_id=0, body=packed, sys_flag=COMPRESSED_FLAG)
    answer = encode_record(record, 5, 0, 1)
    assert decode_messages(answer, ClientConfig())[0].body == b"plain"
    as_it_is = decode_messages(answer, ClientConfig(decode_decompress_body=False))
    assert as_it_is[0].body == packed
    assert decode_messages(answer, ClientConfig(decode_read_body=False))[0].body == b""
    moved = decode_messages(answer, ClientConfig(), "b", 100)[0]
    assert (moved.broker_name, moved.queue_offset) == ("b", 105)
    damaged = encode_record(
        MessageRecord(topic="T", queue_id=0, body=b"junk", sys_flag=COMPRESSED_FLAG), 0, 0, 1
    )
    assert decode_messages(damaged, ClientConfig())[0].body == b"junk"


def test_requests_are_signed_over_all_that_they_say() -> None:
    world = ClientWorld()
    seen: list[Any] = []
    table = world.brokers[2].dispatcher._table
    handler, *rest = table[310]
    table[310] = (lambda request: seen.append(request) or handler(request), *rest)  # type: ignore[func-returns-value]
    instance = ClientInstance(
        world.clock,
        ClientConfig(namesrv_addr="192.0.2.1:9876", namespace_v2="NS"),
        endpoint=world.network.endpoint,
        hooks=[AclHook("me", "secret", "token")],
    )
    producer = Producer(world.clock, "PG", instance=instance)
    world.wait(producer.start())
    world.wait(producer.send(Message("TopicTest", "Grüße".encode())))
    fields = seen[0].ext_fields
    assert (fields["AccessKey"], fields["SecurityToken"], fields["ns"]) == ("me", "token", "NS")
    signed = signed_content(fields, seen[0].body)
    assert fields["Signature"] == calculate_signature(signed, "secret")
