"""What a broker answers to pulls while it is a slave."""

from __future__ import annotations

import pytest
from small_broker import SmallBroker

from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.group import SubscriptionGroupConfig


@pytest.fixture
def slave(broker: SmallBroker) -> SmallBroker:
    """It has five messages, and its role was changed."""
    peer = broker.connect(40_009)
    for _ in range(5):
        peer.send()
    broker.store_config.broker_role = "SLAVE"
    return broker


# ----------------------------------------------------------------- BR-22


@pytest.mark.parametrize("offset", [0, 5, 99])
def test_with_reads_off_consumers_are_sent_to_the_master_at_once(
    slave: SmallBroker, offset: int
) -> None:
    pulled = slave.connect().pull(offset=offset)
    assert pulled.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert pulled.header.suggest_which_broker_id == 0
    assert pulled.messages == []
    # A client goes on from there: it must not go past what it was not handed out.
    assert pulled.header.next_begin_offset == offset


def test_with_reads_on_messages_are_handed_out(slave: SmallBroker) -> None:
    slave.config.slave_read_enable = True
    peer = slave.connect()
    assert len(peer.pull().messages) == 5
    assert peer.pull(offset=5).code == ResponseCode.PULL_NOT_FOUND


def test_a_slave_that_may_be_behind_corrects_no_offset(slave: SmallBroker) -> None:
    slave.config.slave_read_enable = True
    slave.core.groups.update(SubscriptionGroupConfig(group_name="G", broker_id=1))
    peer = slave.connect()
    pulled = peer.pull(offset=99)
    assert pulled.code == ResponseCode.PULL_NOT_FOUND
    assert pulled.header.suggest_which_broker_id == 1
    assert pulled.header.next_begin_offset == 99
    slave.store_config.offset_check_in_slave = True
    assert peer.pull(offset=99).code == ResponseCode.PULL_OFFSET_MOVED


# ----------------------------------------------------------------- what a new master believes


def test_who_stands_behind_what_is_stored_stands_at_its_end_once_a_slave_is_master(
    slave: SmallBroker,
) -> None:
    """A slave may know its master's offsets and lack the messages: what is stored at these places later is another message."""
    slave.core.offsets.commit("Ahead", "TopicA", 0, 9, "")
    slave.core.offsets.commit("Behind", "TopicA", 0, 4, "")
    slave.core.offsets.commit("Ahead", "TopicB", 1, 7, "")
    slave.stop()
    again = SmallBroker(slave.disk, slave.clock, broker_role="SLAVE", broker_id=1)
    assert again.core.offsets.query("Ahead", "TopicA", 0) == 9
    again.stop()
    master = SmallBroker(slave.disk, slave.clock)
    offsets = master.core.offsets
    assert offsets.query("Ahead", "TopicA", 0) == 5
    assert offsets.query("Ahead", "TopicB", 1) == 0
    assert offsets.query("Behind", "TopicA", 0) == 4
    master.stop()
