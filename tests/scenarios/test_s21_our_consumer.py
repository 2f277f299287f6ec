"""S21, at the consumer: the master stops while its slave is behind, and our group is ahead of the slave. And replicas that are suggested, or fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from client_world import NAME_SERVER
from consumer_world import FIRST, ConsumerWorld, Diary, queue
from ha_network import Network as Nowhere
from log_watch import logged
from small_broker import SmallBroker
from small_world import remoting_client, start_broker, stop_broker

from txrocketmq.codec.record import encode_record
from txrocketmq.model.heartbeat import ConsumeFromWhere
from txrocketmq.model.message import MessageRecord
from txrocketmq.remoting.protocol import RemotingServerFactory

TOPIC = "TopicTest"
SLAVE = "192.0.2.3:10911"


class Lagging(ConsumerWorld):
    """Broker 2 with 80 messages in its one queue, and a slave of it that has 30; the group is to be at 60."""

    def __init__(self) -> None:
        super().__init__(queues=1)
        self.fill(80, 1)
        self.slave = SmallBroker(
            None,
            self.clock,
            client=remoting_client(self.network),
            broker_name="broker-2",
            broker_ip1="192.0.2.3",
            broker_ip2="192.0.2.3",
            broker_id=1,
            broker_role="SLAVE",
            slave_read_enable=True,
            dial=Nowhere().dial,
            ha_master_address="192.0.2.2:10912",
            namesrv_addr=NAME_SERVER,
        )
        for code, name in ((self.slave.dispatcher.for_vip(), 10909), (None, 10911)):
            factory = (
                self.slave.factory
                if code is None
                else RemotingServerFactory(code, self.clock, self.slave.core.connection_listener)
            )
            self.network.listen(f"192.0.2.3:{name}", factory)
        self.network.run(0.5)
        self.slave.core.topics.update(list(self.brokers[2].core.topics.all()))
        self.slave.core.groups.find("CG")
        self.replicate(30)
        # From here on it is a slave: nothing else is put into it but by `replicate`.
        self.network.run(1)

    def replicate(self, count: int) -> None:
        """Bring further messages to the slave."""
        store = self.slave.store
        have = store.max_offset(TOPIC, 0)
        for number in range(have, have + count):
            end = store.max_physical_offset()
            record = MessageRecord(topic=TOPIC, queue_id=0, body=b"%d" % number)
            assert store.append_raw(end, encode_record(record, number, end, int(self.now_ms)))
        self.network.run(0.1)
        assert store.max_offset(TOPIC, 0) == have + count

    @property
    def now_ms(self) -> float:
        return self.clock.seconds() * 1000

    def stop_master(self) -> None:
        old = self.brokers[2]
        stop_broker(self.network, old)
        self.old = old

    def start_master(self) -> None:
        self.brokers[2] = start_broker(self.network, 2, self.old.disk, namesrv_addr=NAME_SERVER)
        self.network.run(0.5)


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with logged(lambda event: "client" in event.get("log_namespace", "")) as found:
        yield found


def test_the_consumer_waits_where_it_is_and_goes_on_there(lines: list[Any]) -> None:
    world = Lagging()
    world.commit(60)
    # The slave heard of the group's offset before.
    world.slave.core.offsets.commit("CG", TOPIC, 0, 60, "test")
    diary = Diary()
    consumer = world.consumer(diary)
    world.until(lambda: len(diary.seen) == 20)
    assert diary.bodies[0] == b"60"
    world.network.skip(6)
    world.stop_master()
    world.network.skip(20)
    del lines[:]
    world.network.skip(60)
    assert len(diary.seen) == 20
    assert consumer.offsets.noted(queue(0)) == 80
    assert len(lines) <= 6, lines
    # It catches up: to where the group is, and then further.
    world.replicate(50)
    world.network.skip(5)
    assert len(diary.seen) == 20
    world.replicate(3)
    world.until(lambda: len(diary.seen) == 23, 40)
    assert diary.bodies[20:] == [b"80", b"81", b"82"]


def test_when_the_master_is_back_nothing_was_skipped_or_done_again() -> None:
    world = Lagging()
    world.commit(60)
    world.slave.core.offsets.commit("CG", TOPIC, 0, 60, "test")
    diary = Diary()
    world.consumer(diary)
    world.until(lambda: len(diary.seen) == 20)
    world.network.skip(6)
    world.stop_master()
    world.network.skip(60)
    world.start_master()
    world.put(b"new")
    world.until(lambda: b"new" in diary.bodies, 60)
    assert diary.bodies == [*[b"%d" % number for number in range(60, 80)], b"new"]


@pytest.mark.parametrize("where", [FIRST, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET])
def test_what_only_a_slave_could_say_is_not_believed(where: ConsumeFromWhere) -> None:
    """A member that comes while the master is away: the slave does not know the group's offset, so nobody does."""
    world = Lagging()
    world.commit(60)
    world.network.skip(6)
    world.stop_master()
    world.network.run(1)
    diary = Diary()
    consumer = world.consumer(diary, consume_from_where=where)
    world.network.skip(40)
    assert not diary.seen
    assert queue(0) not in consumer.queues
    world.start_master()
    world.until(lambda: len(diary.seen) == 20, 90)
    assert diary.bodies[0] == b"60"


def test_a_suggested_replica_is_asked_and_left_when_it_fails() -> None:
    world = Lagging()
    world.replicate(50)
    asked: list[int] = []
    diary = Diary()
    consumer = world.consumer(diary, start=False)
    pull = consumer.brokers.pull

    def suggested(wanted: Any, header: Any, broker_id: int, *more: Any) -> Any:
        asked.append(broker_id)
        answer = pull(wanted, header, broker_id, *more)

        def suggest(found: Any) -> Any:
            found[0].suggest_which_broker_id = 1
            return found

        return answer.addCallback(suggest)

    consumer.brokers.pull = suggested  # type: ignore[method-assign]
    world.wait(consumer.start())
    world.until(lambda: len(diary.seen) == 80)
    mine = asked[:6]
    assert mine[0] == 0
    assert 1 in mine
    world.network.kill(SLAVE)
    world.network.run(20)
    del asked[:]
    world.put(b"new")
    world.until(lambda: b"new" in diary.bodies, 40)
    assert 0 in asked or consumer.queues
