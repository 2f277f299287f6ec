"""What does a broker know of its group when it comes back? It shows nothing that replicas may lack, and goes on in its own term."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from controller_world import Group
from small_broker import SmallBroker, send_header

from txrocketmq.codec.headers import NotifyBrokerRoleChangedRequestHeader
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.ha.autoservice import AutoSwitchService
from txrocketmq.ha.syncset import SyncStateSet
from txrocketmq.model.codes import RequestCode
from txrocketmq.store.recover import RecoveryLimits

SMALL_FILES: dict[str, Any] = {"mapped_file_size_commit_log": 20_000}


@pytest.fixture
def group() -> Iterator[Group]:
    made = Group()
    yield made
    for broker in made.brokers.values():
        broker.stop()


def shown(broker: SmallBroker) -> list[bytes]:
    return broker.connect(45_000).pull().bodies


def auto(broker: SmallBroker) -> AutoSwitchService:
    found = broker.core.replication.ha
    assert isinstance(found, AutoSwitchService)
    return found


def test_a_master_that_comes_back_in_its_term_shows_what_it_showed(group: Group) -> None:
    one, two = group.start(1), group.start(2)
    peer = group.peers["192.0.2.1"]
    peer.tell(RequestCode.SEND_MESSAGE_V2, send_header("TopicA"), b"both")
    group.settle()
    # On the device before the end, as it is some seconds later.
    one.store._flush_queues()
    peer.tell(RequestCode.SEND_MESSAGE_V2, send_header("TopicA"), b"mine")
    # Before it can tell anybody that its slave is gone.
    group.controller.is_up = False
    group.kill(1)
    group.controller.is_up = True
    again = group.start(1, one.disk)
    assert group.controller.epoch == 1
    assert auto(again).epochs.entries == [(1, 0)]
    assert auto(again).members.agreed == {1, 2}
    assert shown(again) == [b"both"], "the slave may be elected, and lacks the other one"
    sent = group.peers["192.0.2.1"].tell(
        RequestCode.SEND_MESSAGE_V2, send_header("TopicA"), b"next"
    )
    group.settle(8)
    assert shown(again) == [b"both", b"mine", b"next"]
    answer = group.peers["192.0.2.1"].answer(sent)
    assert answer is not None
    assert answer.code == 0
    assert two.store.max_physical_offset() == again.store.max_physical_offset()
    assert two.store.max_offset("TopicA", 0) == 3


def test_queues_that_are_lost_show_no_more_than_was_agreed_on(group: Group) -> None:
    """Elsewhere they are derived while the broker serves, up to the log's end."""
    one, two = group.start(1, **SMALL_FILES), group.start(2, **SMALL_FILES)
    peer = group.peers["192.0.2.1"]
    for _ in range(30):
        peer.tell(RequestCode.SEND_MESSAGE_V2, send_header("Pad"), b"p" * 3_000)
    group.settle(6)
    peer.tell(RequestCode.SEND_MESSAGE_V2, send_header("TopicA"), b"both")
    group.settle(6)
    one.store._flush_queues()
    peer.tell(RequestCode.SEND_MESSAGE_V2, send_header("TopicA"), b"mine")
    group.controller.is_up = False
    group.kill(1)
    group.controller.is_up = True
    one.disk.rmtree("/store/consumequeue")
    limits = RecoveryLimits(foreground_bytes=0)
    again = group.start(1, one.disk, limits=limits, **SMALL_FILES)
    assert auto(again).members.agreed == {1, 2}
    assert again.store.rebuild is None
    assert shown(again) == [b"both"], "the slave may be elected, and lacks the other one"
    group.settle(8)
    assert shown(again) == [b"both", b"mine"]
    assert two.store.max_physical_offset() == again.store.max_physical_offset()
    assert two.store.max_offset("TopicA", 0) == 2


def test_a_notice_on_its_way_from_earlier_days_gives_no_role(group: Group) -> None:
    group.controller.is_up = False
    broker = group.start(1)
    header = NotifyBrokerRoleChangedRequestHeader(
        master_address="192.0.2.1:10911", master_epoch=1, master_broker_id=0
    )
    answer = group.peers["192.0.2.1"].ask(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header)
    assert answer.code == 0
    assert broker.store_config.broker_role == "SLAVE"


def test_a_question_that_got_no_answer_counts_until_the_controller_says_how_things_stand(
    group: Group,
) -> None:
    members = SyncStateSet(MessageStoreConfig(), group.clock)
    members.own_id = 1
    members.take({1}, 4)
    members.wants({1, 2})
    members.wants({1, 3})
    assert members.members == {1, 2, 3}
    assert not members.take({1}, 4)
    assert members.members == {1, 2, 3}, "either may still arrive"
    members.stands(1)
    assert members.members == {1, 2, 3}, "asked before the second one"
    members.stands(2)
    assert members.members == {1}
    members.wants({1, 2})
    assert members.take({1, 3}, 5)
    assert members.members == {1, 3}, "who asked for the old set is refused"


def test_who_joins_has_all_that_an_earlier_process_may_have_confirmed(group: Group) -> None:
    members = SyncStateSet(MessageStoreConfig(), group.clock)
    members.take({1}, 1)
    assert not members.grown(2, 70, 50, lead_start=90)
    assert members.grown(2, 90, 50, lead_start=90)
    assert not members.grown(2, 90, 95, lead_start=90)
