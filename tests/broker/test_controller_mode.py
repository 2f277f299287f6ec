"""What does a broker do whose role a controller gives?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from controller_world import CONTROLLERS, Group
from small_broker import SmallBroker, pull_header, send_header
from twisted.logger import capturedLogs, formatEvent

from txrocketmq.broker.replication.identity import Identity, IdentityFile
from txrocketmq.codec.bodies import EpochEntryCache, HARuntimeInfo, decode_body
from txrocketmq.codec.headers import BrokerHeartbeatRequestHeader
from txrocketmq.errors import ConfigError, StoreError
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.testing.disk import MemoryDisk


@pytest.fixture
def group() -> Iterator[Group]:
    made = Group()
    yield made
    for broker in made.brokers.values():
        broker.stop()


def role(broker: SmallBroker) -> tuple[str, int]:
    return broker.store_config.broker_role, broker.config.broker_id


def bodies(broker: SmallBroker, **fields: Any) -> list[bytes]:
    broker.config.slave_read_enable = True
    return broker.connect(45_000).pull(**fields).bodies


def heartbeats(group: Group, number: int) -> list[BrokerHeartbeatRequestHeader]:
    return [
        header
        for address, code, header in group.client.oneways
        if code == RequestCode.BROKER_HEARTBEAT
        and address == CONTROLLERS[0]
        and isinstance(header, BrokerHeartbeatRequestHeader)
        and header.broker_id == number
    ]


# ----------------------------------------------------------------- into the group


def test_the_first_broker_is_given_an_id_and_elected(group: Group) -> None:
    broker = group.start(1)
    assert role(broker) == ("SYNC_MASTER", 0)
    assert group.controller.asked[:5] == [
        RequestCode.CONTROLLER_GET_METADATA_INFO,
        RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
        RequestCode.CONTROLLER_REGISTER_BROKER,
        RequestCode.CONTROLLER_ELECT_MASTER,
    ]
    assert broker.disk.read_file("/store/brokerIdentity") == b"ClusterA#broker-a#1"
    assert not broker.disk.exists("/store/brokerIdentity-temp")
    assert group.registrations[0][:2] == ("192.0.2.1:10911", 0)
    assert group.peers["192.0.2.1"].send(body=b"one") is not None
    assert bodies(broker) == [b"one"]
    group.settle()
    beat = heartbeats(group, 1)[-1]
    end = broker.store.max_physical_offset()
    assert (beat.epoch, beat.max_offset, beat.confirm_offset) == (1, end, end)
    assert beat.heartbeat_timeout_mills == 10_000


def test_later_ones_follow_and_join(group: Group) -> None:
    one, two = group.start(1), group.start(2)
    assert (role(one), role(two)) == (("SYNC_MASTER", 0), ("SLAVE", 2))
    assert group.controller.members == {1, 2}
    group.peers["192.0.2.1"].tell(RequestCode.SEND_MESSAGE_V2, send_header("TopicA"), b"hello")
    group.settle(12)
    assert bodies(two) == [b"hello"]
    assert two.core.topics.get("TopicA") is not None, "tables follow too"
    refused = group.peers["192.0.2.2"].ask(RequestCode.SEND_MESSAGE_V2, send_header("TopicA"), b"x")
    # Producers of both lines try another broker after this one.
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert (refused.remark or "").startswith("service not available now")


def test_nobody_hears_of_a_broker_before_it_has_a_role(group: Group) -> None:
    group.controller.is_up = False
    broker = group.start(1)
    assert group.registrations == []
    assert role(broker)[0] == "SLAVE"
    group.controller.is_up = True
    group.settle(3)
    assert role(broker) == ("SYNC_MASTER", 0)
    assert group.registrations


def test_a_broker_that_was_killed_keeps_its_id(group: Group) -> None:
    one = group.start(1)
    group.kill(1)
    group.controller.asked.clear()
    again = group.start(1, one.disk)
    assert RequestCode.CONTROLLER_APPLY_BROKER_ID not in group.controller.asked
    assert role(again) == ("SYNC_MASTER", 0)


def test_an_id_that_was_asked_for_is_asked_for_again(group: Group) -> None:
    disk = MemoryDisk()
    files = IdentityFile(disk, "/store/brokerIdentity")
    files.ask(Identity("ClusterA", "broker-a", 7, "192.0.2.1:10911;5"))
    group.controller.ids[7] = "192.0.2.1:10911;5"
    broker = group.start(1, disk)
    assert RequestCode.CONTROLLER_GET_NEXT_BROKER_ID not in group.controller.asked
    assert broker.disk.read_file("/store/brokerIdentity") == b"ClusterA#broker-a#7"


def test_an_id_that_somebody_else_has_is_given_up(group: Group) -> None:
    disk = MemoryDisk()
    IdentityFile(disk, "/store/brokerIdentity").ask(Identity("ClusterA", "broker-a", 1, "mine"))
    group.controller.ids[1] = "another's"
    group.start(1, disk)
    assert disk.read_file("/store/brokerIdentity") == b"ClusterA#broker-a#2"


def test_the_identity_of_another_broker_is_refused() -> None:
    disk = MemoryDisk()
    files = IdentityFile(disk, "/store/brokerIdentity")
    files.given(Identity("ClusterA", "broker-a", 3))
    assert files.load("ClusterA", "broker-a") == Identity("ClusterA", "broker-a", 3)
    with pytest.raises(StoreError):
        files.load("ClusterA", "broker-b")
    disk.replace_file("/store/brokerIdentity", b"nonsense", False)
    with pytest.raises(StoreError):
        files.load("ClusterA", "broker-a")


def test_settings_that_cannot_be() -> None:
    for settings in (
        {"enable_controller_mode": True},
        {
            "enable_controller_mode": True,
            "controller_addr": "x:1",
            "enable_slave_acting_master": True,
        },
    ):
        with pytest.raises(ConfigError):
            SmallBroker(**settings)


# ----------------------------------------------------------------- roles


def test_roles_change_without_a_restart(group: Group) -> None:
    one, two = group.start(1), group.start(2)
    group.peers["192.0.2.1"].tell(RequestCode.SEND_MESSAGE_V2, send_header("TopicA"), b"one")
    group.settle()
    group.controller.elect(2)
    for number in (1, 2):
        group.notify(number)
    group.settle(3)
    assert (role(one), role(two)) == (("SLAVE", 1), ("SYNC_MASTER", 0))
    assert not one.core.has_special_services
    assert two.core.has_special_services
    group.peers["192.0.2.2"].tell(RequestCode.SEND_MESSAGE_V2, send_header("TopicA"), b"two")
    group.settle(12)
    assert bodies(one) == bodies(two) == [b"one", b"two"]
    assert group.controller.members == {1, 2}
    assert ("192.0.2.2:10911", 0, 2) in group.registrations
    assert ("192.0.2.1:10911", 1, 2) in group.registrations
    assert two.core.topics.data_version.state_version == 2
    group.controller.elect(1)
    for number in (2, 1):
        group.notify(number)
    group.settle(3)
    assert (role(one), role(two)) == (("SYNC_MASTER", 0), ("SLAVE", 2))
    group.peers["192.0.2.1"].tell(RequestCode.SEND_MESSAGE_V2, send_header("TopicA"), b"three")
    group.settle(6)
    assert bodies(two) == [b"one", b"two", b"three"]


def test_an_older_term_changes_nothing(group: Group) -> None:
    one = group.start(1)
    group.start(2)
    # A term without any message, which the log's terms do not show.
    group.controller.elect(1)
    group.notify(1)
    for epoch in (0, 1):
        group.controller.epoch, group.controller.master = epoch, 2
        group.notify(1)
        assert role(one) == ("SYNC_MASTER", 0)


def test_an_older_term_of_the_same_master_does_not_take_a_slave_back(group: Group) -> None:
    group.start(1)
    two = group.start(2)
    group.controller.elect(1)
    group.notify(2)
    newest = two.core.replication.master_epoch
    assert newest == group.controller.epoch
    group.controller.epoch -= 1
    group.notify(2)
    assert two.core.replication.master_epoch == newest


def test_a_change_that_nobody_told_is_seen_at_the_controller(group: Group) -> None:
    one, two = group.start(1), group.start(2)
    group.controller.elect(2)
    group.settle(8)
    assert (role(one), role(two)) == (("SLAVE", 1), ("SYNC_MASTER", 0))


def test_an_old_master_comes_back_and_cuts_its_tail(group: Group) -> None:
    one, two = group.start(1), group.start(2)
    peer = group.peers["192.0.2.1"]
    peer.tell(RequestCode.SEND_MESSAGE_V2, send_header("TopicA"), b"both")
    group.settle()
    for wire in list(group.network.wires):
        wire.cut()
    peer.tell(RequestCode.SEND_MESSAGE_V2, send_header("TopicA"), b"lost")
    group.kill(1)
    group.controller.elect(2)
    group.notify(2)
    group.settle()
    group.peers["192.0.2.2"].tell(RequestCode.SEND_MESSAGE_V2, send_header("TopicA"), b"new")
    group.settle()
    again = group.start(1, one.disk)
    group.settle(12)
    assert role(again) == ("SLAVE", 1)
    assert bodies(again) == bodies(two) == [b"both", b"new"]
    assert again.store.max_physical_offset() == two.store.max_physical_offset()
    assert group.controller.members == {1, 2}


def test_light_queues_go_on_behind_their_last_message(group: Group) -> None:
    settings = {"enable_lmq": True, "enable_multi_dispatch": True}
    one, two = group.start(1, **settings), group.start(2, **settings)
    group.settle(6)
    properties = "INNER_MULTI_DISPATCH\x01%LMQ%a\x02"
    for number in range(3):
        if number == 2:
            group.controller.elect(2)
            for broker in (1, 2):
                group.notify(broker)
            group.settle(3)
        host = "192.0.2.2" if number == 2 else "192.0.2.1"
        group.peers[host].tell(
            RequestCode.SEND_MESSAGE_V2,
            send_header("TopicA", properties=properties),
            b"m%d" % number,
        )
        group.settle(6)
    for broker in (one, two):
        assert broker.store.max_offset("%LMQ%a", 0) == 3


# ----------------------------------------------------------------- controllers


def test_another_controller_leads(group: Group) -> None:
    group.start(1)
    group.controller.leader = CONTROLLERS[1]
    group.start(2)
    group.settle(8)
    assert group.controller.members == {1, 2}


def test_who_was_forgotten_serves_on_and_comes_back_as_a_new_one_alone(group: Group) -> None:
    """``cleanBrokerMetadata`` of a living group, or a controller that lost its state."""
    one, controller = group.start(1), group.controller
    group.peers["192.0.2.1"].tell(RequestCode.SEND_MESSAGE_V2, send_header("TopicA"), b"before")
    controller.ids.clear()
    controller.places.clear()
    controller.master, controller.epoch, controller.members = None, 0, set()
    group.settle(8)
    assert role(one) == ("SYNC_MASTER", 0)
    group.peers["192.0.2.1"].tell(RequestCode.SEND_MESSAGE_V2, send_header("TopicA"), b"after")
    group.kill(1)
    with capturedLogs() as logs:
        again = group.start(1, one.disk)
        group.settle(4)
    assert role(again)[0] == "SLAVE"
    told = [formatEvent(event) for event in logs if "tried again" in formatEvent(event)]
    assert len(told) == 1
    assert "delete /store/brokerIdentity" in told[0]
    again.disk.remove("/store/brokerIdentity")
    group.settle(4)
    assert role(again) == ("SYNC_MASTER", 0)
    assert bodies(again) == [b"before", b"after"]


def test_an_address_that_the_controller_lost_is_told_again(group: Group) -> None:
    broker = group.start(1)
    group.controller.places.clear()
    group.settle(8)
    assert group.controller.places == {1: "192.0.2.1:10911"}
    assert role(broker) == ("SYNC_MASTER", 0)


def test_a_slave_that_is_gone_leaves_the_set(group: Group) -> None:
    group.start(1)
    group.start(2)
    group.kill(2)
    group.settle(1)
    assert group.controller.members == {1}
    assert group.peers["192.0.2.1"].send(body=b"goes on") is not None


# ----------------------------------------------------------------- requests


def test_terms_and_status_are_told(group: Group) -> None:
    group.start(1)
    group.start(2)
    group.settle(6)
    answer = group.peers["192.0.2.1"].ask(RequestCode.GET_BROKER_EPOCH_CACHE)
    found = decode_body(EpochEntryCache, answer.body)
    assert (found.cluster_name, found.broker_name, found.broker_id) == ("ClusterA", "broker-a", 0)
    assert [(entry.epoch, entry.start_offset) for entry in found.epoch_list] == [(1, 0)]
    status = group.peers["192.0.2.1"].ask(RequestCode.GET_BROKER_HA_STATUS)
    assert decode_body(HARuntimeInfo, status.body).in_sync_slave_nums == 1
    status = group.peers["192.0.2.2"].ask(RequestCode.GET_BROKER_HA_STATUS)
    client = decode_body(HARuntimeInfo, status.body).ha_client_runtime_info
    assert client is not None
    assert client.master_addr == "192.0.2.1:10912"


def test_without_a_controller_there_are_no_terms() -> None:
    broker = SmallBroker()
    peer = broker.connect(40_001)
    answer = peer.ask(RequestCode.GET_BROKER_EPOCH_CACHE)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "enableControllerMode" in (answer.remark or "")
    assert peer.ask(RequestCode.NOTIFY_BROKER_ROLE_CHANGED).code == 0
    broker.stop()
    assert pull_header("TopicA", 0, 0) is not None
