"""Registration: all name servers at once, each by itself; at every period, at changes, and again after failures."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import Asked, FakeClient
from golden import frame_body, wire_frames
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from txrocketmq.broker.config_files import ConfigFiles
from txrocketmq.broker.registration import Registration, name_servers
from txrocketmq.broker.static_topics.table import StaticTopics
from txrocketmq.broker.topics import Topics
from txrocketmq.codec.bodies import KVTable, decode_body, decode_register_broker, encode_body
from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.codec.headers import (
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig
from txrocketmq.model.codes import CURRENT_VERSION, RequestCode
from txrocketmq.model.javahash import crc32
from txrocketmq.model.route import TopicRouteData
from txrocketmq.model.topic import DataVersion, TopicConfig
from txrocketmq.remoting.client import RemotingClient
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool

REGISTER = int(RequestCode.REGISTER_BROKER)
UNREGISTER = int(RequestCode.UNREGISTER_BROKER)
QUERY = int(RequestCode.QUERY_DATA_VERSION)
ONE_TOPIC = int(RequestCode.REGISTER_TOPIC_IN_NAMESRV)
A, B = "127.0.0.1:9876", "127.0.0.2:9876"


class Desk:
    """A registration over a client whose name servers the test plays."""

    def __init__(self, namesrv_addr: str = f"{A};{B}", **settings: Any) -> None:
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.config = BrokerConfig(
            broker_name="broker-a",
            broker_cluster_name="ClusterA",
            namesrv_addr=namesrv_addr,
            **settings,
        )
        files = ConfigFiles(MemoryDisk(), ImmediatePool(), "/config")
        self.topics = Topics(
            self.config, MessageStoreConfig(), files, lambda: int(self.clock.seconds() * 1000)
        )
        self.client = FakeClient()
        self.static = StaticTopics("broker-a", files, lambda: int(self.clock.seconds() * 1000))
        self.registration = Registration(
            self.config,
            self.topics,
            self.client,
            self.clock,
            "192.0.2.1:10911",
            "192.0.2.1:10912",
            self.static,
        )
        self.topics.on_change = self.registration.topics_changed

    def answer_all(self, *addresses: str) -> None:
        for address in addresses or (A, B):
            self.client.behaviour[address] = lambda asked: asked.answer(
                header=RegisterBrokerResponseHeader()
            )

    def table_of(self, asked: Asked) -> dict[str, TopicConfig]:
        header = asked.command.decode_header(RegisterBrokerRequestHeader)
        assert header.body_crc32 == crc32(asked.command.body)
        body = decode_register_broker(
            asked.command.body, compressed=header.compressed, version=CURRENT_VERSION
        )
        return body.topic_config_serialize_wrapper.topic_config_table


def test_all_name_servers_are_asked_at_once_with_the_overall_timeout() -> None:
    desk = Desk()
    desk.registration.start()
    assert [(a.address, a.command.code, a.timeout_ms) for a in desk.client.asked] == [
        (A, REGISTER, 24_000),
        (B, REGISTER, 24_000),
    ]
    header = desk.client.asked[0].command.decode_header(RegisterBrokerRequestHeader)
    assert (header.broker_name, header.cluster_name) == ("broker-a", "ClusterA")
    assert (header.broker_id, header.broker_addr) == (0, "192.0.2.1:10911")
    assert header.ha_server_addr == "192.0.2.1:10912"
    assert header.enable_acting_master is False
    assert header.heartbeat_timeout_millis is None
    assert desk.table_of(desk.client.asked[1])["TBW102"].write_queue_nums == 8


def test_a_dead_name_server_delays_nobody_and_is_picked_up_when_back() -> None:
    desk = Desk()
    desk.answer_all(B)
    desk.registration.start()
    assert desk.registration.reachable() == [B]
    desk.clock.advance(10)
    desk.clock.advance(30)
    # A still owes its first answer; B was asked each period.
    assert desk.client.codes(A) == [REGISTER]
    assert desk.client.codes(B) == [REGISTER] * 3
    desk.client.asked[0].fail()
    assert desk.registration.reachable() == [B]
    desk.client.behaviour[A] = Asked.fail
    desk.clock.advance(5)
    assert desk.client.codes(A) == [REGISTER] * 2
    desk.answer_all(A)
    desk.clock.advance(5)
    assert desk.client.codes(A) == [REGISTER] * 3
    assert sorted(desk.registration.reachable()) == [A, B]


@pytest.mark.parametrize(("period_ms", "kept_s"), [(30_000, 30), (1, 10), (600_000, 60)])
def test_the_period_is_kept_between_ten_and_sixty_seconds(period_ms: int, kept_s: int) -> None:
    desk = Desk(A, register_name_server_period=period_ms)
    desk.answer_all()
    desk.registration.start()
    desk.clock.advance(10)
    assert len(desk.client.asked) == 2
    desk.clock.advance(kept_s - 1)
    assert len(desk.client.asked) == 2
    desk.clock.advance(1)
    assert len(desk.client.asked) == 3


def test_a_new_topic_is_announced_at_once_changes_of_one_turn_together() -> None:
    desk = Desk(A)
    desk.answer_all()
    desk.registration.start()
    desk.topics.update([TopicConfig(topic_name="One")])
    desk.topics.update([TopicConfig(topic_name="Two")])
    desk.clock.advance(0)
    assert len(desk.client.asked) == 2
    table = desk.table_of(desk.client.asked[1])
    assert {"One", "Two", "TBW102"} <= table.keys()


def test_a_change_while_asking_is_announced_after_the_answer() -> None:
    desk = Desk(A)
    desk.registration.start()
    desk.topics.update([TopicConfig(topic_name="One")])
    desk.clock.advance(0)
    assert len(desk.client.asked) == 1
    desk.client.asked[0].answer(header=RegisterBrokerResponseHeader())
    assert len(desk.client.asked) == 2
    assert "One" in desk.table_of(desk.client.asked[1])


def test_a_large_table_is_not_sent_for_one_topic_when_the_name_server_holds_the_rest() -> None:
    desk = Desk(A, split_registration_size=5)
    desk.answer_all()
    desk.registration.start()
    known = desk.topics.data_version.copy()
    answers: list[DataVersion] = [known, DataVersion(counter=1)]

    def behave(asked: Asked) -> None:
        if asked.command.code == QUERY:
            asked.answer(
                header=QueryDataVersionResponseHeader(changed=True),
                body=encode_body(answers.pop(0)),
            )
        else:
            asked.answer(header=RegisterBrokerResponseHeader())

    desk.client.behaviour[A] = behave
    desk.topics.update([TopicConfig(topic_name="One")])
    desk.clock.advance(0)
    assert desk.client.codes(A) == [REGISTER, QUERY, REGISTER]
    assert list(desk.table_of(desk.client.asked[2])) == ["One"]
    # The name server was restarted and holds something else: it gets everything.
    desk.topics.update([TopicConfig(topic_name="Two")])
    desk.clock.advance(0)
    assert desk.client.codes(A) == [REGISTER, QUERY, REGISTER, QUERY, REGISTER]
    assert {"One", "Two", "TBW102"} <= desk.table_of(desk.client.asked[4]).keys()


@pytest.mark.parametrize("split", [False, True], ids=["whole", "in parts"])
def test_a_large_table_is_not_sent_again_at_each_period(split: bool) -> None:
    desk = Desk(split_registration_size=5, enable_split_registration=split)
    held: dict[str, bytes] = {}

    def answer(asked: Asked) -> None:
        if asked.command.code == REGISTER:
            body = decode_register_broker(
                asked.command.body, compressed=False, version=CURRENT_VERSION
            )
            held[asked.address] = encode_body(body.topic_config_serialize_wrapper.data_version)
            asked.answer(header=RegisterBrokerResponseHeader())
        else:
            changed = asked.command.body != held.get(asked.address)
            header = QueryDataVersionResponseHeader(changed=changed)
            asked.answer(header=header, body=held.get(asked.address, b""))

    desk.client.behaviour[A] = desk.client.behaviour[B] = answer
    desk.registration.start()
    assert {asked.command.code for asked in desk.client.asked} == {REGISTER}
    desk.client.asked.clear()
    desk.clock.pump([1] * 100)
    assert {asked.command.code for asked in desk.client.asked} == {QUERY}
    # One that was restarted gets everything.
    del held[A]
    desk.client.asked.clear()
    desk.clock.pump([1] * 30)
    sent = {asked.address for asked in desk.client.asked if asked.command.code == REGISTER}
    assert sent == {A}


def test_without_force_a_name_server_that_knows_the_version_is_left_alone() -> None:
    desk = Desk(A, force_register=False)
    desk.answer_all()
    desk.registration.start()
    changed = {"now": False}

    def behave(asked: Asked) -> None:
        if asked.command.code == QUERY:
            asked.answer(header=QueryDataVersionResponseHeader(changed=changed["now"]))
        else:
            asked.answer(header=RegisterBrokerResponseHeader())

    desk.client.behaviour[A] = behave
    desk.clock.advance(10)
    assert desk.client.codes(A) == [REGISTER, QUERY]
    changed["now"] = True
    desk.clock.advance(30)
    assert desk.client.codes(A) == [REGISTER, QUERY, QUERY, REGISTER]


def test_one_topic_can_be_announced_alone() -> None:
    desk = Desk(A, enable_single_topic_register=True)
    desk.answer_all()
    desk.registration.start()
    desk.topics.update([TopicConfig(topic_name="One", read_queue_nums=3, write_queue_nums=2)])
    desk.clock.advance(0)
    assert desk.client.codes(A) == [REGISTER, ONE_TOPIC]
    asked = desk.client.asked[1].command
    assert asked.decode_header(RegisterTopicRequestHeader).topic == "One"
    (queue,) = decode_body(TopicRouteData, asked.body).queue_datas
    assert (queue.broker_name, queue.read_queue_nums, queue.write_queue_nums) == ("broker-a", 3, 2)


def test_a_split_registration_gives_each_part_a_version_of_its_own() -> None:
    desk = Desk(A, enable_split_registration=True, split_registration_size=5)
    desk.answer_all()
    desk.registration.start()
    parts = [desk.table_of(asked) for asked in desk.client.asked]
    assert [len(part) for part in parts] == [5, 5, len(desk.topics) - 10]
    assert set().union(*parts) == {topic.topic_name for topic in desk.topics.all()}
    assert desk.topics.data_version.counter == 3


def test_the_body_can_be_compressed_and_the_broker_permission_limits_topics() -> None:
    desk = Desk(A, compressed_register=True, broker_permission=4)
    desk.registration.start()
    header = desk.client.asked[0].command.decode_header(RegisterBrokerRequestHeader)
    assert header.compressed
    table = desk.table_of(desk.client.asked[0])
    assert (table["TBW102"].perm, table["BenchmarkTest"].perm) == (4, 4)
    topic = desk.topics.get("BenchmarkTest")
    assert topic is not None
    assert topic.perm == 6


def test_acting_master_sends_the_timeout_of_its_light_heartbeats() -> None:
    desk = Desk(A, enable_slave_acting_master=True)
    desk.registration.start()
    header = desk.client.asked[0].command.decode_header(RegisterBrokerRequestHeader)
    assert (header.enable_acting_master, header.heartbeat_timeout_millis) == (True, 10_000)


def test_ordered_topics_come_back_with_the_answer() -> None:
    desk = Desk(A)
    desk.topics.update([TopicConfig(topic_name="Ordered")])
    desk.registration.start()
    body = encode_body(KVTable(table={"Ordered": "broker-a:4", "Elsewhere": "x:1"}))
    desk.client.asked[0].answer(header=RegisterBrokerResponseHeader(), body=body)
    assert desk.topics.is_ordered("Ordered")


def test_stop_unregisters_where_the_broker_is_known() -> None:
    desk = Desk()
    desk.answer_all(A)
    desk.client.behaviour[B] = Asked.fail
    desk.registration.start()
    stopped: list[None] = []
    desk.registration.stop().addCallback(stopped.append)
    assert stopped == [None]
    assert desk.client.codes(A) == [REGISTER, UNREGISTER]
    assert desk.client.codes(B) == [REGISTER]
    header = desk.client.asked[-1].command.decode_header(UnRegisterBrokerRequestHeader)
    assert (header.broker_name, header.broker_id) == ("broker-a", 0)
    assert desk.clock.getDelayedCalls() == []


def test_a_changed_list_of_name_servers_is_followed() -> None:
    desk = Desk(A)
    desk.answer_all()
    desk.registration.start()
    desk.config.namesrv_addr = B
    desk.clock.advance(10)
    assert desk.client.codes(A) == [REGISTER, UNREGISTER]
    assert desk.client.codes(B) == [REGISTER]
    assert desk.client.closed == [A]


def test_a_refusal_is_tried_again() -> None:
    desk = Desk(A)
    desk.client.behaviour[A] = lambda asked: asked.answer(1)
    desk.registration.start()
    assert desk.registration.reachable() == []
    desk.answer_all()
    desk.clock.advance(5)
    assert desk.registration.reachable() == [A]


def test_a_name_server_that_starts_a_moment_later_is_not_kept_waiting() -> None:
    desk = Desk(A)
    desk.client.behaviour[A] = Asked.fail
    desk.registration.start()
    times = []
    for tenth in range(1, 301):
        before = len(desk.client.asked)
        desk.clock.advance(0.1)
        if len(desk.client.asked) > before:
            times.append(tenth / 10)
    assert times[:4] == pytest.approx([0.1, 0.3, 0.7, 1.5], abs=0.4)
    # Then ever later, with the periods at 10 s and after in between.
    assert len(times) < 15


def test_address_lists_with_blanks_and_doubles() -> None:
    assert name_servers(" a:1 ;;b:2; a:1;") == ["a:1", "b:2"]
    assert name_servers(None) == []


@pytest.mark.parametrize("tag", ["reg54", "reg49"])
def test_the_request_has_the_shape_of_the_official_one(tag: str) -> None:
    desk = Desk(A)
    desk.registration.start()
    ours = desk.client.asked[0].command
    for frame in wire_frames():
        decoded = frame["decoded"]
        if (
            frame["conversation"].startswith(f"{tag}.")
            and decoded.get("codeName") == "REGISTER_BROKER"
            and not decoded["flag"]
            and decoded["extFields"].get("compressed") == "false"
        ):
            fields = set(decoded["extFields"]) - {"heartbeatTimeoutMillis"}
            assert fields <= set(ours.ext_fields or {})
            assert set(ours.ext_fields or {}) - fields <= {"enableActingMaster"}
            theirs = json.loads(frame_body(frame))
            body = json.loads(ours.body)
            assert body["filterServerList"] == theirs["filterServerList"] == []
            wrapper = theirs["topicConfigSerializeWrapper"]
            assert wrapper.keys() <= body["topicConfigSerializeWrapper"].keys()
            break
    else:
        raise AssertionError("no registration was recorded")


def test_each_name_server_keeps_one_link_over_which_it_is_asked_again_and_again() -> None:
    reactor = MemoryReactorClock()
    config = BrokerConfig(broker_name="broker-a", namesrv_addr=f"{A};{B}")
    files = ConfigFiles(MemoryDisk(), ImmediatePool(), "/config")
    topics = Topics(config, MessageStoreConfig(), files, lambda: int(reactor.seconds() * 1000))
    client = RemotingClient(reactor)
    static = StaticTopics("broker-a", files, lambda: int(reactor.seconds() * 1000))
    registration = Registration(
        config, topics, client, reactor, "192.0.2.1:10911", "192.0.2.1:10912", static
    )
    registration.start()
    far_ends = []
    for host, port, factory, _, _ in reactor.tcpClients:
        protocol = factory.buildProtocol(IPv4Address("TCP", host, port))
        transport = StringTransport(peerAddress=IPv4Address("TCP", host, port))
        protocol.makeConnection(transport)
        far_ends.append((protocol, transport))
    asked = 0
    for _ in range(400):
        for protocol, transport in far_ends:
            for frame in FrameSplitter().feed(transport.value()):
                command = decode_command(frame)
                assert command.code == REGISTER
                answer = RemotingCommand.create_response(command, 0, RegisterBrokerResponseHeader())
                protocol.dataReceived(answer.encode())
                asked += 1
            transport.clear()
        reactor.advance(1)
    # At the start, after ten seconds, then every thirty seconds.
    assert asked == 2 * (1 + 1 + 12)
    assert len(reactor.tcpClients) == 2
    assert [transport.disconnecting for _, transport in far_ends] == [False, False]
    registration.stop()
    client.stop()
    for protocol, _ in far_ends:
        protocol.connectionLost(Failure(ConnectionDone()))
