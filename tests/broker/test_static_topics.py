"""Static topics: logical queues over two brokers, through a move."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import Asked, FakeClient
from small_broker import Peer, Pulled, SmallBroker, properties, pull_header, send_header
from twisted.internet.task import Clock

from txrocketmq.codec.bodies import (
    ClusterInfo,
    TopicConfigAndMappingSerializeWrapper,
    decode_body,
    decode_register_broker,
    encode_body,
)
from txrocketmq.codec.command import decode_command
from txrocketmq.codec.headers import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    EndTransactionRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    GetTopicConfigRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from txrocketmq.model.codes import CURRENT_VERSION, RequestCode, ResponseCode
from txrocketmq.model.route import BrokerData, TopicRouteData
from txrocketmq.model.static_topic import (
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
)

TOPIC = "Static"
NAMESRV, A, B = "192.0.2.9:9876", "192.0.2.1:10911", "192.0.2.2:10911"
NEXT_LOGICAL = 10_000
START_MS = 1_700_000_000_000


class World:
    """Brokers a and b, and a name server that knows both."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.clock.advance(START_MS / 1000)
        self.forwarded: list[tuple[str, int]] = []
        self.route = TopicRouteData()
        self.reachable = {A, B}
        self.a = self._broker("broker-a")
        self.b = self._broker("broker-b")
        self.pa, self.pb = self.a.connect(), self.b.connect()

    def _broker(self, name: str) -> SmallBroker:
        client = FakeClient()
        client.behaviour[NAMESRV] = self._name_server
        for address in (A, B):
            client.behaviour[address] = self._forward
        return SmallBroker(
            clock=self.clock,
            client=client,
            namesrv_addr=NAMESRV,
            broker_name=name,
            delete_when="99",
        )

    def _name_server(self, asked: Asked) -> None:
        code = asked.command.code
        if code == RequestCode.GET_BROKER_CLUSTER_INFO:
            table = {
                name: BrokerData(broker_addrs={0: address}, broker_name=name)
                for name, address in (("broker-a", A), ("broker-b", B))
            }
            asked.answer(body=encode_body(ClusterInfo(broker_addr_table=table)))
        elif code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            asked.answer(body=encode_body(self.route))
        else:
            asked.answer(header=RegisterBrokerResponseHeader())

    def _forward(self, asked: Asked) -> None:
        if asked.address not in self.reachable:
            asked.fail()
            return
        self.forwarded.append((asked.address, asked.command.code))
        # Idle links are closed while the clock goes on.
        link = (self.a if asked.address == A else self.b).connect(50000)
        link.protocol.dataReceived(asked.command.encode())
        answer = link.answer(asked.command.opaque)
        assert answer is not None, "a forwarded request is answered at once"
        asked.deferred.callback(decode_command(answer.encode()[4:]))

    def map(
        self,
        peer: Peer,
        name: str,
        queues: dict[int, list[LogicQueueMappingItem]],
        *,
        epoch: int = 1,
        total: int = 2,
        count: int = 2,
        **more: Any,
    ) -> Any:
        detail = TopicQueueMappingDetail(
            bname=name, epoch=epoch, hosted_queues=queues, topic=TOPIC, total_queues=total
        )
        header = CreateTopicRequestHeader(
            topic=TOPIC,
            default_topic="TBW102",
            read_queue_nums=count,
            write_queue_nums=count,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            **more,
        )
        return peer.ask(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, header, encode_body(detail))

    def created(self) -> World:
        """Logical queue 0 is a's queue 1, logical queue 1 is b's queue 0."""
        assert self.map(self.pa, "broker-a", {0: [stretch(0, 1, "broker-a", 0)]}).code == 0
        assert self.map(self.pb, "broker-b", {1: [stretch(0, 0, "broker-b", 0)]}).code == 0
        return self

    def moved(self, end: int, **more: Any) -> World:
        """Logical queue 0 moves to b's queue 1."""
        items = [
            stretch(0, 1, "broker-a", 0, end_offset=end),
            stretch(1, 1, "broker-b", NEXT_LOGICAL),
        ]
        queues = {0: items}
        assert (
            self.map(
                self.pb, "broker-b", queues | {1: [stretch(0, 0, "broker-b", 0)]}, epoch=2, **more
            ).code
            == 0
        )
        assert self.map(self.pa, "broker-a", queues, epoch=2, **more).code == 0
        return self

    def pull(self, peer: Peer, offset: int, queue_id: int = 0, **fields: Any) -> Pulled:
        opaque = peer.tell(RequestCode.PULL_MESSAGE, pull_header(TOPIC, queue_id, offset, **fields))
        answer = peer.answer(opaque)
        assert answer is not None
        return Pulled(answer)


def stretch(
    gen: int, queue_id: int, bname: str, logic_offset: int, **more: int
) -> LogicQueueMappingItem:
    return LogicQueueMappingItem(
        gen=gen, queue_id=queue_id, bname=bname, logic_offset=logic_offset, **more
    )


@pytest.fixture
def world() -> World:
    return World().created()


def remark_of(answer: Any, code: int = ResponseCode.SYSTEM_ERROR) -> str:
    assert answer.code == code
    return answer.remark or ""


# ----------------------------------------------------------------- one stretch


def test_more_queues_than_any_topic_has_are_refused(world: World) -> None:
    queues = {0: [stretch(0, 1, "broker-a", 0)]}
    answer = world.map(world.pa, "broker-a", queues, epoch=2, count=65_537)
    remark = remark_of(answer, ResponseCode.INVALID_PARAMETER)
    assert remark == "readQueueNums 65537 is none of 0 to 65536"


def test_sends_go_to_the_queue_behind_the_number(world: World) -> None:
    sent = world.pa.send(TOPIC, b"one", queue_id=0)
    assert (sent.queue_id, sent.queue_offset) == (0, 0)
    assert world.a.store.max_offset(TOPIC, 1) == 1
    assert world.pa.send(TOPIC, b"two", queue_id=-1).queue_id == 0
    refused = world.pa.ask(RequestCode.SEND_MESSAGE_V2, send_header(TOPIC, queue_id=1), b"x")
    remark = remark_of(refused, ResponseCode.NOT_LEADER_FOR_QUEUE)
    assert remark == "Static-1 does not exit in request process of current broker broker-a"
    # A broker that forwards means the queue itself.
    plain = world.pa.send(TOPIC, b"x", queue_id=0, logical=False)
    assert (plain.queue_id, world.a.store.max_offset(TOPIC, 0)) == (0, 1)


def test_pulls_speak_of_the_logical_queue(world: World) -> None:
    for body in (b"one", b"two"):
        world.pa.send(TOPIC, body, queue_id=0)
    pulled = world.pull(world.pa, 0)
    assert pulled.bodies == [b"one", b"two"]
    header = pulled.header
    assert (header.next_begin_offset, header.max_offset, header.offset_delta) == (2, 2, 0)
    refused = world.pa.ask(RequestCode.PULL_MESSAGE, pull_header(TOPIC, 1, 0))
    assert "cannot find mapping item" in remark_of(refused, ResponseCode.NOT_LEADER_FOR_QUEUE)


def test_a_held_pull_of_a_leader_is_answered_in_logical_numbers(world: World) -> None:
    world.moved(5)
    waiting = world.pb.tell(
        RequestCode.PULL_MESSAGE,
        pull_header(TOPIC, 0, NEXT_LOGICAL, sys_flag=6, suspend_timeout_millis=10_000),
    )
    assert world.pb.answer(waiting) is None
    assert world.pb.send(TOPIC, b"new", queue_id=0).queue_offset == NEXT_LOGICAL
    world.clock.advance(0)
    answer = world.pb.answer(waiting)
    assert answer is not None
    header = answer.decode_header(PullMessageResponseHeader)
    assert (answer.code, header.next_begin_offset) == (0, NEXT_LOGICAL + 1)
    assert header.offset_delta == NEXT_LOGICAL


# ----------------------------------------------------------------- through a move


def test_a_consumer_goes_from_the_old_broker_to_the_new_one(world: World) -> None:
    old = [b"old-%d" % number for number in range(5)]
    for body in old:
        world.pa.send(TOPIC, body, queue_id=0)
    world.moved(5)
    refused = world.pa.ask(RequestCode.SEND_MESSAGE_V2, send_header(TOPIC, queue_id=0), b"x")
    assert refused.code == ResponseCode.NOT_LEADER_FOR_QUEUE
    for number in range(3):
        sent = world.pb.send(TOPIC, b"new-%d" % number, queue_id=0)
        assert (sent.queue_id, sent.queue_offset) == (0, NEXT_LOGICAL + number)
    got: list[bytes] = []
    offset = 0
    codes = []
    while len(got) < 8:
        pulled = world.pull(world.pb, offset, max_msg_nums=2)
        codes.append(pulled.code)
        got += pulled.bodies
        for message in pulled.messages:
            assert message.queue_offset + (pulled.header.offset_delta or 0) >= offset
        offset = pulled.header.next_begin_offset
    assert got == [*old, b"new-0", b"new-1", b"new-2"]
    assert offset == NEXT_LOGICAL + 3
    assert codes == [0, 0, 0, ResponseCode.PULL_RETRY_IMMEDIATELY, 0, 0]
    assert {code for address, code in world.forwarded if address == A} == {11}


def test_messages_behind_the_end_of_a_stretch_are_nobodys(world: World) -> None:
    for number in range(5):
        world.pa.send(TOPIC, b"%d" % number, queue_id=0)
    world.moved(3)
    pulled = world.pull(world.pb, 0)
    assert pulled.bodies == [b"0", b"1", b"2"]
    assert pulled.header.next_begin_offset == 3
    on = world.pull(world.pb, 3)
    assert on.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert on.header.next_begin_offset == NEXT_LOGICAL


def test_a_stretch_whose_last_messages_are_missing_is_left_all_the_same(world: World) -> None:
    world.pa.send(TOPIC, b"0", queue_id=0)
    world.moved(5)
    on = world.pull(world.pb, 1, sys_flag=6, suspend_timeout_millis=10_000)
    assert on.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert on.header.next_begin_offset == NEXT_LOGICAL


def test_offsets_too_small_and_too_large(world: World) -> None:
    world.moved(5)
    world.pb.send(TOPIC, b"new", queue_id=0)
    beyond = world.pull(world.pb, NEXT_LOGICAL + 9)
    assert beyond.code == ResponseCode.PULL_OFFSET_MOVED
    assert beyond.header.next_begin_offset == NEXT_LOGICAL + 1


def test_a_broker_that_is_away(world: World) -> None:
    world.moved(5)
    world.reachable.discard(A)
    answer = world.pb.ask(RequestCode.PULL_MESSAGE, pull_header(TOPIC, 0, 0))
    assert "broker broker-a does not answer" in remark_of(answer)


def test_positions_are_kept_by_the_broker_of_the_stretch(world: World) -> None:
    for peer in (world.pa, world.pb):
        # The group is made by its first pull.
        world_pull = pull_header(TOPIC, 0, 0, logical=False)
        peer.ask(RequestCode.PULL_MESSAGE, world_pull)
    for number in range(5):
        world.pa.send(TOPIC, b"%d" % number, queue_id=0)
    world.moved(5)

    def stand() -> int:
        answer = world.pb.ask(
            RequestCode.QUERY_CONSUMER_OFFSET,
            QueryConsumerOffsetRequestHeader(consumer_group="G", topic=TOPIC, queue_id=0),
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return -1
        assert answer.code == 0, answer.remark
        return answer.decode_header(QueryConsumerOffsetResponseHeader).offset

    def commit(offset: int) -> None:
        answer = world.pb.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            UpdateConsumerOffsetRequestHeader(
                consumer_group="G", topic=TOPIC, queue_id=0, commit_offset=offset
            ),
        )
        assert answer.code == 0, answer.remark

    assert stand() == -1
    commit(4)
    assert world.a.core.offsets.query("G", TOPIC, 1) == 4
    assert stand() == 4
    commit(NEXT_LOGICAL + 2)
    assert world.b.core.offsets.query("G", TOPIC, 1) == 2
    assert stand() == NEXT_LOGICAL + 2
    # A pull commits in the same way.
    world.pull(world.pb, NEXT_LOGICAL, sys_flag=5, commit_offset=NEXT_LOGICAL)
    assert world.b.core.offsets.query("G", TOPIC, 1) == 0


def test_beginning_end_and_time(world: World) -> None:
    for number in range(5):
        world.pa.send(TOPIC, b"%d" % number, queue_id=0)
        world.clock.advance(1)
    world.moved(5)
    for _ in range(2):
        world.pb.send(TOPIC, b"new", queue_id=0)
        world.clock.advance(1)

    def ask(code: RequestCode, header: Any, kind: Any) -> Any:
        return world.pb.ask_for(kind, code, header)

    queue = {"topic": TOPIC, "queue_id": 0}
    end = ask(
        RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(**queue), GetMaxOffsetResponseHeader
    )
    assert end.offset == NEXT_LOGICAL + 2
    start = ask(
        RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(**queue), GetMinOffsetResponseHeader
    )
    assert start.offset == 0
    first = ask(
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        GetEarliestMsgStoretimeRequestHeader(**queue),
        GetEarliestMsgStoretimeResponseHeader,
    )
    assert first.timestamp == START_MS
    for time_ms, offset in ((3_000, 3), (5_500, NEXT_LOGICAL + 1)):
        found = ask(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            SearchOffsetRequestHeader(timestamp=START_MS + time_ms, **queue),
            SearchOffsetResponseHeader,
        )
        assert found.offset == offset


# ----------------------------------------------------------------- the table


def test_what_contradicts_is_refused_as_a_whole(world: World) -> None:
    def refused(queues: dict[int, list[LogicQueueMappingItem]], **more: Any) -> str:
        return remark_of(world.map(world.pa, "broker-a", queues, count=9, **more))

    here = stretch(0, 1, "broker-a", 0)
    assert "small epoch 0 < 1" in refused({0: [here]}, epoch=0)
    assert "equal epoch with null data" in refused({})
    assert "new leader is different" in refused({0: [here, stretch(1, 0, "broker-b", 9)]})
    assert "cannot become another one" in refused({0: [stretch(0, 0, "broker-a", 0)]}, epoch=2)
    assert "should not be negative" in refused({0: [stretch(-1, 1, "broker-a", 0)]}, epoch=2)
    assert "gen does not increase" in refused({0: [here, stretch(0, 0, "broker-b", 9)]}, epoch=2)
    ended = stretch(0, 1, "broker-a", 0, end_offset=7)
    assert "max logic offset" in refused({0: [ended, stretch(1, 0, "broker-b", 7)]}, epoch=2)
    assert "this is broker-a" in remark_of(world.map(world.pa, "broker-b", {0: [here]}, epoch=2))
    topic = world.a.core.topics.get(TOPIC)
    assert topic is not None
    assert topic.read_queue_nums == 2
    # By force it is taken, and what it does not name is kept.
    assert world.map(world.pa, "broker-a", {1: [here]}, epoch=0, force=True).code == 0
    assert sorted(world.a.core.static_topics.names[TOPIC].hosted_queues) == [0, 1]


def test_mappings_survive_and_go_with_their_topic(world: World) -> None:
    again = world.a.restarted(broker_name="broker-a", delete_when="99")
    assert again.core.static_topics.names == world.a.core.static_topics.names
    peer = again.connect()
    assert peer.send(TOPIC, b"x", queue_id=0).queue_offset == 0
    deleted = peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=TOPIC))
    assert deleted.code == 0
    assert again.core.static_topics.names == {}


def test_operators_and_slaves_see_mappings(world: World) -> None:
    detail = world.a.core.static_topics.names[TOPIC]
    for logical in (True, None):
        answer = world.pa.ask(
            RequestCode.GET_TOPIC_CONFIG,
            GetTopicConfigRequestHeader(topic=TOPIC, logical=logical),
        )
        found = decode_body(TopicConfigAndQueueMapping, answer.body)
        assert found.mapping_detail == (detail if logical else None)
    everything = world.pa.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    wrapper = decode_body(TopicConfigAndMappingSerializeWrapper, everything.body)
    assert wrapper.topic_queue_mapping_detail_map == {TOPIC: detail}
    slave = World().a.core.static_topics
    slave.take_over(wrapper.topic_queue_mapping_detail_map, wrapper.mapping_data_version)
    assert slave.names == {TOPIC: detail}


def test_name_servers_hear_who_leads(world: World) -> None:
    world.clock.advance(1)
    client = world.a.client
    asked = [a for a in client.asked if a.command.code == RequestCode.REGISTER_BROKER][-1]
    header = asked.command.decode_header(RegisterBrokerRequestHeader)
    body = decode_register_broker(
        asked.command.body, compressed=header.compressed, version=CURRENT_VERSION
    )
    infos = body.topic_config_serialize_wrapper.topic_queue_mapping_info_map
    assert infos[TOPIC].curr_id_map == {0: 1}
    assert (infos[TOPIC].epoch, infos[TOPIC].total_queues) == (1, 2)


# ----------------------------------------------------------------- old stretches


@pytest.mark.parametrize("messages", [0, 1])
def test_an_empty_first_stretch_is_forgotten_at_its_hour(world: World, messages: int) -> None:
    for _ in range(messages):
        world.pa.send(TOPIC, b"x", queue_id=0)
    world.moved(1)

    def stretches() -> int:
        return len(world.b.core.static_topics.names[TOPIC].hosted_queues[0])

    world.clock.advance(301)
    assert stretches() == 2
    world.b.store_config.delete_when = ";".join(str(hour) for hour in range(24))
    world.reachable.discard(A)
    world.clock.advance(301)
    # Nobody says that it is empty.
    assert stretches() == 2
    world.reachable.add(A)
    world.clock.advance(301)
    assert stretches() == 1 + messages


def test_a_queue_that_moved_on_is_forgotten(world: World) -> None:
    table = world.a.core.static_topics
    # a believes that c leads queue 1; b does.
    assert (
        world.map(
            world.pa,
            "broker-a",
            {
                0: [stretch(0, 1, "broker-a", 0)],
                1: [stretch(0, 0, "broker-a", 0, end_offset=4), stretch(1, 0, "broker-c", 9)],
            },
            epoch=3,
        ).code
        == 0
    )
    world.route = TopicRouteData(
        topic_queue_mapping_by_broker={
            "broker-b": TopicQueueMappingInfo(bname="broker-b", curr_id_map={1: 0}, epoch=3)
        }
    )
    world.a.store_config.delete_when = ";".join(str(hour) for hour in range(24))
    world.clock.advance(301)
    # b does not confirm it yet: it knows an older epoch.
    assert sorted(table.names[TOPIC].hosted_queues) == [0, 1]
    assert world.map(world.pb, "broker-b", {1: [stretch(0, 0, "broker-b", 0)]}, epoch=3).code == 0
    world.clock.advance(301)
    assert sorted(table.names[TOPIC].hosted_queues) == [0]


# ----------------------------------------------------------------- what waits while a queue moves

LATER = [{"DELAY": "1"}, {"TIMER_DELAY_MS": "1000"}, {"TRAN_MSG": "true", "PGROUP": "PG"}]


def send_later(world: World, later: dict[str, str]) -> None:
    """A message for logical queue 0 that comes when it has moved."""
    text = properties(UNIQ_KEY="later", **later)
    is_half = "TRAN_MSG" in later
    sent = world.pa.send(TOPIC, b"later", queue_id=0, properties=text, sys_flag=4 * is_half)
    world.pa.send(TOPIC, b"before", queue_id=0)
    world.moved(1)
    if is_half:
        end = EndTransactionRequestHeader(
            producer_group="PG",
            tran_state_table_offset=sent.queue_offset,
            commit_log_offset=int(sent.msg_id[-16:], 16),
            commit_or_rollback=8,
            msg_id="later",
        )
        world.pa.tell(RequestCode.END_TRANSACTION, end)


def go_on(world: World, seconds: int) -> None:
    for _ in range(10 * seconds):
        world.clock.advance(0.1)


@pytest.mark.parametrize("later", LATER, ids=lambda later: next(iter(later)))
def test_what_waits_while_its_queue_moves_comes_in_the_queue_as_it_is_then(
    world: World, later: dict[str, str]
) -> None:
    send_later(world, later)
    go_on(world, 3)
    assert world.pull(world.pb, 0).bodies == [b"before"]
    (message,) = world.pull(world.pb, NEXT_LOGICAL).messages
    assert (message.body, message.uniq_key, message.queue_id) == (b"later", "later", 1)
    assert world.a.store.max_offset(TOPIC, 1) == 1


@pytest.mark.parametrize("later", LATER, ids=lambda later: next(iter(later)))
def test_what_waits_goes_on_waiting_while_the_new_leader_is_away(
    world: World, later: dict[str, str]
) -> None:
    world.reachable = {A}
    send_later(world, later)
    world.pa.send("Other", b"other", properties=properties(UNIQ_KEY="o", DELAY="1"))
    go_on(world, 15)
    # Others do not wait for it.
    assert world.pa.pull("Other").bodies == [b"other"]
    assert world.b.store.max_offset(TOPIC, 1) == 0
    world.reachable = {A, B}
    go_on(world, 25)
    assert [m.body for m in world.pull(world.pb, NEXT_LOGICAL).messages] == [b"later"]


def test_what_waits_for_a_queue_that_is_another_one_of_its_broker_comes_there(
    world: World,
) -> None:
    text = properties(UNIQ_KEY="later", DELAY="1")
    world.pa.send(TOPIC, b"later", queue_id=0, properties=text)
    items = [
        stretch(0, 1, "broker-a", 0, end_offset=0),
        stretch(1, 0, "broker-a", NEXT_LOGICAL),
    ]
    assert world.map(world.pa, "broker-a", {0: items}, epoch=2).code == 0
    go_on(world, 3)
    assert [m.body for m in world.pull(world.pa, NEXT_LOGICAL).messages] == [b"later"]
