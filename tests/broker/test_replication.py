"""What does a broker do as a slave, and what does it tell of its replication?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from fakes import Asked, FakeClient
from ha_network import Network
from operators import create_topic
from small_broker import Pulled, SmallBroker, properties, pull_header, send_header

from txrocketmq.codec.bodies import (
    GetBrokerMemberGroupResponseBody,
    HARuntimeInfo,
    SetMessageRequestModeRequestBody,
    decode_body,
    encode_body,
)
from txrocketmq.codec.headers import (
    ConsumerSendMsgBackRequestHeader,
    CreateTopicRequestHeader,
    EndTransactionRequestHeader,
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
    NotifyMinBrokerIdChangeRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    ResetMasterFlushOffsetHeader,
    UpdateConsumerOffsetRequestHeader,
)
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.route import BrokerMemberGroup
from txrocketmq.testing.disk import MemoryDisk

NAMES, OTHER_NAMES = "192.0.2.100:9876", "192.0.2.101:9876"
MASTER, MASTER_HA = "192.0.2.1:10911", "192.0.2.1:10912"
OFFSETS = int(RequestCode.GET_ALL_CONSUMER_OFFSET)


class World:
    """A master and a slave on one clock; name server and requests to the master are played by the test."""

    def __init__(self) -> None:
        self.network = Network()
        self.client = FakeClient()
        self.client.behaviour = {NAMES: self.registered, MASTER: self.to_master}
        self.master = SmallBroker()
        self.clock = self.master.clock
        self.network.listening[("192.0.2.1", 10912)] = self.master.core.replication.ha.factory
        self.answer = RegisterBrokerResponseHeader(master_addr=MASTER, ha_server_addr=MASTER_HA)
        self.registrations: list[RegisterBrokerRequestHeader] = []
        self.master_answers = True
        self.peer = self.master.connect(41_000)
        self.slave: SmallBroker

    def start_slave(self, disk: MemoryDisk | None = None, **settings: Any) -> SmallBroker:
        usual: dict[str, Any] = {
            "broker_role": "SLAVE",
            "broker_id": 1,
            "broker_ip1": "192.0.2.2",
            "broker_ip2": "192.0.2.2",
            "namesrv_addr": NAMES,
        }
        self.slave = SmallBroker(
            disk or MemoryDisk(),
            self.clock,
            client=self.client,
            dial=self.network.dial,
            **{**usual, **settings},
        )
        self.settle()
        return self.slave

    def registered(self, asked: Asked) -> None:
        if asked.command.code == RequestCode.REGISTER_BROKER:
            self.registrations.append(asked.command.decode_header(RegisterBrokerRequestHeader))
            asked.answer(0, self.answer)
        else:
            asked.answer()

    def group_is(self, members: dict[int, str]) -> None:
        """What the name server says of the group from now on."""
        group = BrokerMemberGroup(broker_addrs=members, broker_name="broker-a")
        body = encode_body(GetBrokerMemberGroupResponseBody(broker_member_group=group))

        def act(asked: Asked) -> None:
            if asked.command.code == RequestCode.GET_BROKER_MEMBER_GROUP:
                asked.answer(0, None, body)
            else:
                self.registered(asked)

        self.client.behaviour[NAMES] = act

    def to_master(self, asked: Asked) -> None:
        if not self.master_answers:
            asked.fail()
            return
        command = asked.command
        answer = self.peer.ask(command.code, None, command.body, ext_fields=command.ext_fields)
        answer.opaque = command.opaque
        asked.deferred.callback(answer)

    def settle(self, seconds: float = 0.05) -> None:
        for _ in range(max(1, round(seconds / 0.05))):
            self.clock.advance(0.05)
            self.network.carry_all()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.slave.stop()
    made.master.stop()


def bodies(broker: SmallBroker, **fields: Any) -> list[bytes]:
    broker.config.slave_read_enable = True
    return broker.connect(45_000).pull(**fields).bodies


# ----------------------------------------------------------------- finding the master


def test_a_slave_registers_itself_and_learns_its_master(world: World) -> None:
    world.peer.send(body=b"one")
    slave = world.start_slave()
    header = world.registrations[0]
    assert (header.broker_id, header.broker_addr) == (1, "192.0.2.2:10911")
    assert header.ha_server_addr == "192.0.2.2:10912"
    assert slave.core.replication.sync.master_address == MASTER
    assert slave.core.replication.ha.follower.master_address == MASTER_HA
    assert bodies(slave) == [b"one"]
    world.peer.send(body=b"two")
    world.settle()
    assert bodies(slave) == [b"one", b"two"]


def test_a_master_set_by_hand_is_followed_whatever_name_servers_say(world: World) -> None:
    world.answer = RegisterBrokerResponseHeader(master_addr=MASTER, ha_server_addr="192.0.2.9:1")
    world.peer.send(body=b"one")
    slave = world.start_slave(ha_master_address=MASTER_HA)
    assert slave.core.replication.ha.follower.master_address == MASTER_HA
    assert bodies(slave) == [b"one"]


def test_a_master_set_by_hand_that_nobody_knows_is_followed_a_little_later(world: World) -> None:
    """First it is looked for, so that it can be asked whether its log is the same."""
    world.answer = RegisterBrokerResponseHeader()
    slave = world.start_slave(ha_master_address=MASTER_HA)
    world.settle(14)
    assert slave.core.replication.ha.follower.link is None
    world.settle(2)
    assert slave.core.replication.ha.follower.link is not None


def test_without_name_servers_a_master_set_by_hand_is_followed_at_once(world: World) -> None:
    slave = world.start_slave(ha_master_address=MASTER_HA, namesrv_addr="")
    assert slave.core.replication.ha.follower.link is not None


def test_a_name_server_that_knows_no_master_changes_nothing(world: World) -> None:
    slave = world.start_slave()
    world.answer = RegisterBrokerResponseHeader()
    world.settle(31)
    assert slave.core.replication.sync.master_address == MASTER
    assert slave.core.replication.ha.follower.master_address == MASTER_HA


def test_a_slave_that_knows_no_master_asks_soon_again(world: World) -> None:
    world.answer = RegisterBrokerResponseHeader()
    slave = world.start_slave(force_register=False)
    world.settle(4.9)
    before = len(world.registrations)
    world.answer = RegisterBrokerResponseHeader(master_addr=MASTER, ha_server_addr=MASTER_HA)
    world.settle(0.3)
    assert len(world.registrations) == before + 1
    assert slave.core.replication.ha.follower.link is not None


def test_a_new_master_is_found_at_the_next_period(world: World) -> None:
    slave = world.start_slave(force_register=False)
    world.answer = RegisterBrokerResponseHeader(
        master_addr="192.0.2.7:10911", ha_server_addr="192.0.2.7:10912"
    )
    world.settle(31)
    assert slave.core.replication.sync.master_address == "192.0.2.7:10911"
    assert slave.core.replication.ha.follower.master_address == "192.0.2.7:10912"


# ----------------------------------------------------------------- tables


def make_things(world: World) -> None:
    peer = world.peer
    peer.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        CreateTopicRequestHeader(
            topic="Made",
            default_topic="TBW102",
            read_queue_nums=3,
            write_queue_nums=2,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=False,
        ),
    )
    group = SubscriptionGroupConfig(group_name="Consumers", retry_max_times=3)
    peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, encode_body(group))
    for _ in range(7):
        peer.send("Made")
    peer.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        UpdateConsumerOffsetRequestHeader(
            consumer_group="Consumers", topic="Made", queue_id=0, commit_offset=5
        ),
    )
    world.master.core.delays.offsets.put(3, 77)


def test_the_slaves_tables_become_the_masters(world: World) -> None:
    make_things(world)
    core = world.start_slave().core
    topic = core.topics.get("Made")
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums) == (3, 2)
    assert core.topics.data_version == world.master.core.topics.data_version
    group = core.groups.get("Consumers")
    assert group is not None
    assert group.retry_max_times == 3
    assert core.offsets.query("Consumers", "Made", 0) == 5
    assert core.delays.offsets.get(3) == 77


def test_changes_follow_within_ten_seconds(world: World) -> None:
    slave = world.start_slave()
    make_things(world)
    world.settle(10.1)
    assert "Made" in slave.core.topics
    assert slave.core.offsets.query("Consumers", "Made", 0) == 5
    world.master.core.topics.delete("Made")
    world.master.core.groups.delete("Consumers")
    world.settle(10.1)
    assert "Made" not in slave.core.topics
    assert "Made" not in slave.core.topics.sendable
    assert "Consumers" not in slave.core.groups


def test_tables_are_in_the_slaves_files(world: World) -> None:
    make_things(world)
    slave = world.start_slave()
    world.settle(6)
    slave.stop()
    # Nobody tells it anything now.
    world.master_answers = False
    world.start_slave(slave.disk)
    core = world.slave.core
    assert "Made" in core.topics
    assert "Consumers" in core.groups
    assert core.offsets.query("Consumers", "Made", 0) == 5
    assert core.delays.offsets.get(3) == 77


def test_offsets_of_groups_that_only_the_slave_has_stay(world: World) -> None:
    make_things(world)
    slave = world.start_slave()
    slave.core.offsets.commit("Only", "Made", 1, 4, "")
    slave.core.offsets.commit("Consumers", "Made", 0, 2, "")
    world.settle(10.1)
    assert slave.core.offsets.query("Only", "Made", 1) == 4
    assert slave.core.offsets.query("Consumers", "Made", 0) == 5


def test_one_table_that_cannot_be_had_keeps_none_of_the_others(world: World) -> None:
    make_things(world)
    real = world.to_master

    def some(asked: Asked) -> None:
        if asked.command.code == RequestCode.GET_ALL_TOPIC_CONFIG:
            asked.answer(ResponseCode.SYSTEM_ERROR, None, b"")
        else:
            real(asked)

    world.client.behaviour[MASTER] = some
    slave = world.start_slave()
    assert "Made" not in slave.core.topics
    assert slave.core.offsets.query("Consumers", "Made", 0) == 5


def test_a_master_that_does_not_answer_changes_nothing(world: World) -> None:
    make_things(world)
    slave = world.start_slave()
    world.master_answers = False
    world.settle(25)
    assert "Made" in slave.core.topics
    world.master_answers = True
    world.master.core.groups.delete("Consumers")
    world.settle(10.1)
    assert "Consumers" not in slave.core.groups


def test_request_modes_follow_too(world: World) -> None:
    mode = SetMessageRequestModeRequestBody(
        topic="TopicA", consumer_group="G", mode="POP", pop_share_queue_num=2
    )
    world.peer.send("TopicA")
    world.peer.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, None, encode_body(mode))
    slave = world.start_slave()
    code = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
    assert slave.connect().ask(code).body == world.peer.ask(code).body
    assert b"POP" in slave.connect().ask(code).body


# ----------------------------------------------------------------- what a slave does not do


def test_sends_are_refused_in_the_official_words(world: World) -> None:
    slave = world.start_slave()
    answer = slave.connect().ask(RequestCode.SEND_MESSAGE_V2, send_header("TBW102x"), b"x")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "messages are put to the slave" in (answer.remark or "")


def test_outcomes_and_retries_belong_to_the_master(world: World) -> None:
    slave = world.start_slave()
    peer = slave.connect()
    ended = peer.ask(
        RequestCode.END_TRANSACTION,
        EndTransactionRequestHeader(
            producer_group="P",
            tran_state_table_offset=0,
            commit_log_offset=0,
            commit_or_rollback=8,
            from_transaction_check=False,
            msg_id="x",
            transaction_id="x",
        ),
    )
    assert ended.code == ResponseCode.SLAVE_NOT_AVAILABLE
    back = peer.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        ConsumerSendMsgBackRequestHeader(offset=0, group="G", delay_level=1),
    )
    assert (back.code, back.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "no master available along with 192.0.2.2",
    )


def test_delays_are_delivered_by_the_master_alone(world: World) -> None:
    slave = world.start_slave()
    world.peer.send("TopicA", b"late", properties="DELAY\x011\x02")
    world.settle(0.5)
    assert slave.store.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 1
    end = slave.store.max_physical_offset()
    world.network.wires[0].cut()
    slave.core.replication.ha.follower.stop()
    world.settle(3)
    assert slave.store.max_physical_offset() == end
    # Nor does it try.
    assert not slave.core.delays.delivery._is_running
    assert slave.core.transactions.checks._timer is None
    assert world.master.store.max_physical_offset() > end


def test_a_slaves_store_goes_on_as_a_master(world: World) -> None:
    make_things(world)
    world.peer.send("TopicA", b"late", properties="DELAY\x011\x02")
    slave = world.start_slave()
    world.settle(0.2)
    slave.stop()
    world.slave = SmallBroker(slave.disk, world.clock)
    peer = world.slave.connect()
    assert world.slave.config.broker_id == 0
    assert peer.send("Made").queue_offset == 7
    world.settle(3)
    assert [m.body for m in peer.pull("TopicA").messages] == [b"late"]


def test_a_topic_that_began_anew_at_the_master_begins_anew_here(world: World) -> None:
    slave = world.start_slave()
    for _ in range(3):
        world.peer.send("TopicA", b"old")
    world.settle()
    world.master.store.delete_topics(["TopicA"])
    world.peer.send("TopicA", b"new")
    world.settle(10.1)
    assert slave.store.max_offset("TopicA", 0) == 1
    assert bodies(slave) == [b"new"]


# ----------------------------------------------------------------- logs that went different ways


@pytest.mark.parametrize("by_hand", [{}, {"ha_master_address": MASTER_HA}], ids=["", "by hand"])
def test_a_log_that_ends_differently_is_told_and_left_alone(
    world: World, by_hand: dict[str, str]
) -> None:
    for _ in range(3):
        world.peer.send(body=b"shared")
    slave = world.start_slave()
    slave.stop()
    alone = SmallBroker(slave.disk, world.clock)
    alone.connect().send(body=b"only here")
    alone.stop()
    for _ in range(4):
        world.peer.send(body=b"only ther")
    world.start_slave(slave.disk, **by_hand)
    world.settle(6)
    assert bodies(world.slave)[3:] == [b"only here"]
    assert world.network.wires == []
    assert world.slave.core.replication.ha.follower._last_objection is not None


def test_a_log_that_is_the_beginning_is_followed(world: World) -> None:
    world.peer.send(body=b"shared")
    slave = world.start_slave()
    slave.stop()
    world.peer.send(body=b"more")
    world.start_slave(slave.disk)
    assert bodies(world.slave) == [b"shared", b"more"]


def test_a_master_that_cannot_be_asked_is_followed_all_the_same(world: World) -> None:
    world.peer.send(body=b"shared")
    slave = world.start_slave()
    slave.stop()
    world.master_answers = False
    world.peer.send(body=b"more")
    world.start_slave(slave.disk)
    assert world.slave.store.max_physical_offset() == world.master.store.max_physical_offset()


# ----------------------------------------------------------------- the group (enableSlaveActingMaster)

SLAVE = "192.0.2.2:10911"


def test_the_group_is_asked_for_and_told_of_this_broker(world: World) -> None:
    world.group_is({0: MASTER, 1: SLAVE})
    slave = world.start_slave(enable_slave_acting_master=True, compatible_with_old_name_srv=False)
    world.settle(2.1)
    assert slave.core.replication.members.alive == 2
    assert slave.core.replication.ha.alive_replicas == 2
    assert slave.core.replication.members.min_broker_id == 0
    codes = [code for address, code, _ in world.client.oneways if address == NAMES]
    assert codes == [RequestCode.BROKER_HEARTBEAT] * 2


def test_old_name_servers_hear_of_it_by_its_version(world: World) -> None:
    world.start_slave(enable_slave_acting_master=True)
    world.settle(1.1)
    assert [code for _, code, _ in world.client.oneways] == [RequestCode.QUERY_DATA_VERSION]


def test_a_lost_master_is_left_and_followed_again_when_it_is_back(world: World) -> None:
    world.group_is({0: MASTER, 1: SLAVE})
    slave = world.start_slave(enable_slave_acting_master=True)
    world.settle(1.2)
    replication = slave.core.replication
    assert replication.ha.follower.link is not None
    world.answer = RegisterBrokerResponseHeader()
    world.group_is({1: SLAVE})
    world.settle(1.2)
    assert replication.sync.master_address is None
    assert replication.ha.follower.master_address is None
    assert replication.ha.follower.link is None
    world.group_is({0: MASTER, 1: SLAVE})
    world.settle(1.2)
    # The master itself says where its log is had.
    assert replication.sync.master_address == MASTER
    assert replication.ha.follower.master_address == MASTER_HA
    assert replication.ha.follower.link is not None


def come_back(world: World, **settings: Any) -> None:
    """The master restarts; the name server and its slave are reached through the same client."""
    reader = world.slave.connect(47_000)

    def to_slave(asked: Asked) -> None:
        command = asked.command
        answer = reader.ask(command.code, None, command.body, ext_fields=command.ext_fields)
        answer.opaque = command.opaque
        asked.deferred.callback(answer)

    world.client.behaviour[SLAVE] = to_slave
    world.master_answers = False
    world.master.stop()
    usual: dict[str, Any] = {"namesrv_addr": NAMES, "enable_slave_acting_master": True}
    world.master = SmallBroker(
        world.master.disk, world.clock, client=world.client, **{**usual, **settings}
    )
    world.network.listening[("192.0.2.1", 10912)] = world.master.core.replication.ha.factory
    world.settle(6)


@pytest.mark.parametrize("mode", ["acting", "skipped", "plain"])
def test_a_master_that_comes_back_takes_over_what_its_slave_knows(world: World, mode: str) -> None:
    make_things(world)
    slave = world.start_slave()
    slave.core.offsets.commit("Consumers", "Made", 0, 7, "")
    slave.core.delays.offsets.put(3, 99)
    world.group_is({1: SLAVE})
    come_back(
        world,
        skip_pre_online=mode == "skipped",
        enable_slave_acting_master=mode != "plain",
    )
    is_taken = mode == "acting"
    core = world.master.core
    assert core.offsets.query("Consumers", "Made", 0) == (7 if is_taken else 5)
    assert core.delays.offsets.get(3) >= (99 if is_taken else 0)
    asked = world.client.codes(SLAVE)
    assert (RequestCode.EXCHANGE_BROKER_HA_INFO in asked) == is_taken
    assert world.registrations[-1].broker_id == 0


def test_older_offsets_are_not_taken_back(world: World) -> None:
    make_things(world)
    slave = world.start_slave()
    slave.core.offsets.commit("Consumers", "Made", 0, 2, "")
    world.master.core.offsets.data_version.next(1)
    world.group_is({1: SLAVE})
    come_back(world)
    assert world.master.core.offsets.query("Consumers", "Made", 0) == 5


def test_a_slave_that_does_not_answer_keeps_no_master_away(world: World) -> None:
    world.start_slave()
    world.group_is({1: SLAVE, 2: "192.0.2.55:10911"})
    world.client.behaviour["192.0.2.55:10911"] = Asked.fail
    before = len(world.registrations)
    come_back(world)
    # A dead one is forgotten by the name server after ten seconds.
    world.settle(8)
    assert [header.broker_id for header in world.registrations[before:]].count(0) == 0
    world.settle(4)
    assert world.registrations[-1].broker_id == 0


def notice(**fields: Any) -> NotifyMinBrokerIdChangeRequestHeader:
    return NotifyMinBrokerIdChangeRequestHeader(broker_name="broker-a", **fields)


def test_a_notice_of_the_name_server_is_followed_at_once(world: World) -> None:
    world.group_is({0: MASTER, 1: SLAVE})
    slave = world.start_slave(enable_slave_acting_master=True)
    world.settle(1.2)
    world.answer = RegisterBrokerResponseHeader()
    follower = slave.core.replication.ha.follower
    peer = slave.connect()
    code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
    gone = notice(min_broker_id=1, min_broker_addr=SLAVE, offline_broker_addr=MASTER)
    assert peer.ask(code, gone).code == 0
    assert follower.master_address is None
    back = notice(min_broker_id=0, min_broker_addr=MASTER, ha_broker_addr=MASTER_HA)
    assert peer.ask(code, back).code == 0
    assert follower.master_address == MASTER_HA


def test_without_that_mode_notices_change_nothing(world: World) -> None:
    slave = world.start_slave()
    code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
    gone = notice(min_broker_id=1, min_broker_addr=SLAVE, offline_broker_addr=MASTER)
    assert slave.connect().ask(code, gone).code == 0
    assert slave.core.replication.ha.follower.master_address == MASTER_HA
    world.settle(3)
    assert world.client.oneways == []


# ----------------------------------------------------------------- what is told


def test_ha_status_of_both(world: World) -> None:
    world.peer.send()
    slave = world.start_slave()
    world.settle(1)
    code = RequestCode.GET_BROKER_HA_STATUS
    told = decode_body(HARuntimeInfo, world.peer.ask(code).body)
    end = world.master.store.max_physical_offset()
    assert (told.master, told.in_sync_slave_nums, told.master_commit_log_max_offset) == (
        True,
        1,
        end,
    )
    assert told.ha_connection_info[0].slave_ack_offset == end
    told = decode_body(HARuntimeInfo, slave.connect().ask(code).body)
    assert not told.master
    assert told.ha_client_runtime_info.master_addr == MASTER_HA


def test_a_master_tells_where_its_log_is_had(world: World) -> None:
    world.start_slave()
    told = world.peer.ask_for(
        ExchangeHAInfoResponseHeader,
        RequestCode.EXCHANGE_BROKER_HA_INFO,
        ExchangeHAInfoRequestHeader(),
    )
    assert (told.master_address, told.master_ha_address) == (MASTER, MASTER_HA)
    assert told.master_flush_offset == 0


def test_a_slave_can_be_told_where_its_master_is(world: World) -> None:
    world.answer = RegisterBrokerResponseHeader()
    slave = world.start_slave(sync_master_flush_offset_when_startup=True)
    peer = slave.connect()
    header = ExchangeHAInfoRequestHeader(
        master_ha_address=MASTER_HA, master_address=MASTER, master_flush_offset=12
    )
    peer.ask_for(ExchangeHAInfoResponseHeader, RequestCode.EXCHANGE_BROKER_HA_INFO, header)
    world.settle()
    assert slave.core.replication.ha.follower.link is not None
    assert slave.store.master_flushed_offset() == 12
    quiet = peer.ask_for(
        ExchangeHAInfoResponseHeader,
        RequestCode.EXCHANGE_BROKER_HA_INFO,
        ExchangeHAInfoRequestHeader(),
    )
    assert quiet.master_ha_address is None


def test_the_masters_flushed_offset_is_reset_on_slaves_only(world: World) -> None:
    slave = world.start_slave()
    for broker in (world.master, slave):
        answer = broker.connect(46_000).ask(
            RequestCode.RESET_MASTER_FLUSH_OFFSET,
            ResetMasterFlushOffsetHeader(master_flush_offset=9),
        )
        assert answer.code == 0
    assert world.master.store.master_flushed_offset() == 0
    assert slave.store.master_flushed_offset() == 9


def test_a_stopping_master_lets_its_slaves_catch_up(world: World) -> None:
    world.start_slave()
    world.peer.send()
    drained: list[bool] = []
    world.master.core.replication.drain().addCallback(drained.append)
    assert drained == []
    world.settle()
    assert drained == [True]


def test_a_pull_at_a_slave_commits_there(world: World) -> None:
    make_things(world)
    slave = world.start_slave(slave_read_enable=True)
    header = pull_header("Made", 0, 0, consumer_group="Consumers", sys_flag=5, commit_offset=6)
    slave.connect().ask(RequestCode.PULL_MESSAGE, header)
    assert slave.core.offsets.query("Consumers", "Made", 0) == 6


# ----------------------------------------------------------------- compacted topics (ST-26)


def test_a_new_slave_has_compacted_messages_that_its_log_never_had(world: World) -> None:
    """The slave's log begins with the master's last file; older messages come from the master's copies."""
    sizes = {"compaction_mapped_file_size": 1 << 20, "compaction_cq_mapped_file_size": 46 * 1000}
    for name, size in sizes.items():
        setattr(world.master.store_config, name, size)
    create_topic(world.peer, "T", attributes="+cleanup.policy=COMPACTION")
    total = 300
    for number in range(total):
        keys = properties(KEYS="early" if number == 0 else f"k{number % 3}")
        world.peer.send("T", b"x" * 5000, properties=keys)
    world.clock.advance(1)
    slave = world.start_slave(**sizes)
    world.settle(15)
    assert slave.core.store.min_offset("T", 0) > 0
    slave.config.slave_read_enable = True
    peer, offset, found = slave.connect(45_000), 0, []
    while (pulled := peer.pull("T", offset=offset)).messages:
        found += [(message.queue_offset, message.keys) for message in pulled.messages]
        offset = pulled.header.next_begin_offset
    assert found[0] == (0, "early")
    assert [offset for offset, _ in found] == list(range(total))


def test_an_official_slave_gets_them_by_its_own_requests(world: World) -> None:
    """A heartbeat for a group of its own, then pulls from 0 on that name no subscription."""
    create_topic(world.peer, "T", attributes="+cleanup.policy=COMPACTION")
    for number in range(9):
        world.peer.send("T", b"x", properties=properties(KEYS=f"k{number}"))
    world.start_slave()
    group = "T-0-pull-group"
    beat = {
        "clientID": "192.0.2.9@compactionIns@compactionUnit",
        "consumerDataSet": [
            {
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "consumeType": "CONSUME_ACTIVELY",
                "groupName": group,
                "messageModel": "CLUSTERING",
                "subscriptionDataSet": [
                    {"topic": "T", "subString": "*", "subVersion": 7, "expressionType": "TAG"}
                ],
                "unitMode": False,
            }
        ],
        "heartbeatFingerprint": 0,
        "producerDataSet": [],
        "withoutSub": False,
    }
    link = world.master.connect(45_001)
    assert link.ask(RequestCode.HEART_BEAT, None, msgspec.json.encode(beat)).code == 0
    header = pull_header(
        "T", consumer_group=group, sys_flag=16, sub_version=7, max_msg_nums=10, subscription=None
    )
    answer = link.ask(RequestCode.LITE_PULL_MESSAGE, header)
    assert answer.code == ResponseCode.SUCCESS
    assert [message.keys for message in Pulled(answer).messages] == [f"k{n}" for n in range(9)]
    header.queue_offset = 9
    assert link.ask(RequestCode.LITE_PULL_MESSAGE, header).code == ResponseCode.PULL_NOT_FOUND


def test_a_slave_says_that_it_is_not_the_active_one(world: World) -> None:
    """Delays, transactions and POP of the group are not its work."""
    slave = world.start_slave()
    for broker, said in ((world.master, "true"), (slave, "false")):
        answer = broker.connect(45_010).ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        assert msgspec.json.decode(answer.body)["table"]["brokerActive"] == said
