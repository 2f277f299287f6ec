"""S21: the master stops while its slave is behind, and a group is ahead of the slave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ha_network import Network
from log_watch import logged
from small_broker import SmallBroker, pull_header

from txrocketmq.codec.headers import (
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from txrocketmq.codec.record import encode_batch
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from txrocketmq.model.message import MessageRecord

TOPIC, GROUP = "TopicA", "G"
BEHIND, AHEAD, TOTAL = 5_000, 3_000, 8_000


class Lag:
    """A slave that has 3,000 of 8,000 messages; the group is at 6,000."""

    def __init__(self) -> None:
        self.network = Network()
        self.master = SmallBroker()
        self.clock = self.master.clock
        self.network.listening[("192.0.2.1", 10912)] = self.master.core.replication.ha.factory
        self.slave = SmallBroker(
            clock=self.clock,
            dial=self.network.dial,
            broker_role="SLAVE",
            broker_id=1,
            slave_read_enable=True,
            ha_master_address="192.0.2.1:10912",
        )
        peer = self.master.connect(41_000)
        peer.send(TOPIC)
        self.put(TOTAL - BEHIND - 1)
        self.settle()
        self.slave.core.topics.update(list(self.master.core.topics.all()))
        self.slave.core.groups.find(GROUP)
        self.cut()
        self.put(BEHIND)
        self.reader = self.slave.connect(42_000)
        self.reader.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            UpdateConsumerOffsetRequestHeader(
                consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=TOTAL - BEHIND + AHEAD
            ),
        )

    def put(self, count: int) -> None:
        for start in range(0, count, 500):
            items = [(0, b"x", b"") for _ in range(min(500, count - start))]
            self.master.store.put_batch(
                MessageRecord(topic=TOPIC, queue_id=0, body=encode_batch(items))
            )

    def settle(self, seconds: float = 0.1) -> None:
        for _ in range(round(seconds / 0.05)):
            self.clock.advance(0.05)
            self.network.carry_all()

    def cut(self) -> None:
        self.network.listening.clear()
        for wire in list(self.network.wires):
            wire.cut()

    def master_is_back(self) -> None:
        self.network.listening[("192.0.2.1", 10912)] = self.master.core.replication.ha.factory

    def pull(self, offset: int) -> int:
        """Pull with a hold of ten seconds; the request's number."""
        flags = PULL_SUBSCRIPTION | PULL_SUSPEND
        return self.reader.tell(
            RequestCode.PULL_MESSAGE,
            pull_header(
                TOPIC,
                0,
                offset,
                consumer_group=GROUP,
                sys_flag=flags,
                suspend_timeout_millis=10_000,
            ),
        )


@pytest.fixture
def lag() -> Iterator[Lag]:
    made = Lag()
    yield made
    made.slave.stop()
    made.master.stop()


def test_the_consumer_waits_where_it_is(lag: Lag) -> None:
    offset = TOTAL - BEHIND + AHEAD
    assert lag.slave.store.max_offset(TOPIC, 0) == TOTAL - BEHIND
    for _ in range(3):
        number = lag.pull(offset)
        lag.settle(9.5)
        assert lag.reader.answer(number) is None
        lag.settle(6)
        answer = lag.reader.answer(number)
        assert answer is not None
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert answer.decode_header(PullMessageResponseHeader).next_begin_offset == offset


def test_the_log_stays_quiet(lag: Lag) -> None:
    with logged() as lines:
        for _ in range(6):
            number = lag.pull(TOTAL - BEHIND + AHEAD)
            lag.settle(12)
            lag.reader.answer(number)
    # A minute and more, pulls and tries to reach the master in it.
    assert len(lines) <= 7, lines


def test_it_goes_on_when_the_slave_has_caught_up(lag: Lag) -> None:
    offset = TOTAL - BEHIND + AHEAD
    number = lag.pull(offset)
    lag.settle(1)
    lag.master_is_back()
    lag.settle(6)
    answer = lag.reader.answer(number)
    assert answer is not None
    assert answer.code == 0
    assert lag.slave.store.max_offset(TOPIC, 0) == TOTAL
    header = answer.decode_header(PullMessageResponseHeader)
    assert header.next_begin_offset > offset


def test_an_offset_that_the_slave_does_not_know_is_not_found(lag: Lag) -> None:
    def query(group: str) -> Any:
        return lag.reader.ask(
            RequestCode.QUERY_CONSUMER_OFFSET,
            QueryConsumerOffsetRequestHeader(consumer_group=group, topic=TOPIC, queue_id=0),
        )

    assert query("Unknown").code == ResponseCode.QUERY_NOT_FOUND
    assert query(GROUP).ext_fields["offset"] == str(TOTAL - BEHIND + AHEAD)
