"""What does a slave do in its lost master's place, where does it go to, and what does the master do when it is back?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from acting_world import MASTER, NAMES, OTHER, SLAVE, World, bodies, messages
from operators import create_topic
from pops import PopConsumer
from small_broker import Peer, SmallBroker, properties, pull_header
from transactions import COMMIT, Producer

from txrocketmq.broker.escape.places import places_of, specific_place
from txrocketmq.codec.bodies import DelayOffsetSerializeWrapper, decode_body
from txrocketmq.codec.headers import (
    ExchangeHAInfoRequestHeader,
    NotifyMinBrokerIdChangeRequestHeader,
)
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.javahash import java_hash
from txrocketmq.model.names import TIMER_TOPIC, TRANS_HALF_TOPIC
from txrocketmq.model.route import BrokerData, QueueData, TopicRouteData
from txrocketmq.model.topic import DataVersion
from txrocketmq.store.timer.checkpoint import TimerCheckpoint

TOPIC = "TopicA"
REVIVE = "rmq_sys_REVIVE_LOG_ClusterA"


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.end()


def ready(world: World, **settings: Any) -> Peer:
    """All brokers run and have the topic; a client's link to the master."""
    world.start_all(**settings)
    for host in (OTHER, MASTER):
        create_topic(world.brokers[host].connect(41_000), TOPIC, 2)
    # Tables follow within ten seconds.
    world.settle(11)
    return world.brokers[MASTER].connect(42_000)


def leads(broker: SmallBroker) -> bool:
    return broker.core.replication.leads and broker.core.has_special_services


def lose_master(world: World) -> SmallBroker:
    """The master is killed; its slave, once it acts."""
    world.kill(MASTER)
    slave = world.brokers[SLAVE]
    world.until(lambda: leads(slave), 10)
    return slave


def send_delayed(peer: Peer, *texts: bytes, level: int = 2) -> None:
    for text in texts:
        peer.send(
            TOPIC, text, properties=properties(DELAY=str(level), TAGS="t", UNIQ_KEY=text.decode())
        )


def send_timed(world: World, peer: Peer, text: bytes, seconds: float) -> None:
    when = str(int((world.now_s + seconds) * 1000))
    peer.send(TOPIC, text, properties=properties(TIMER_DELIVER_MS=when, UNIQ_KEY=text.decode()))


# ----------------------------------------------------------------- who acts


@pytest.mark.parametrize("notices", [True, False], ids=["told", "by asking"])
def test_the_slave_with_the_smallest_id_acts_until_the_master_is_back(notices: bool) -> None:
    world = World(notices=notices)
    world.start_all()
    slave = world.brokers[SLAVE]
    second = world.start("192.0.2.4", broker_role="SLAVE", broker_id=2, broker_name="broker-a")
    world.settle(3)
    assert not leads(slave)
    world.kill(MASTER)
    world.settle(6)
    assert (leads(slave), leads(second)) == (True, False)
    assert slave.core.replication.sync.master_address is None
    world.start(MASTER)
    world.until(lambda: leads(world.brokers[MASTER]))
    world.settle(2)
    assert (leads(slave), leads(second)) == (False, False)
    assert slave.core.replication.sync.master_address == f"{MASTER}:10911"
    world.end()


def test_the_next_slave_acts_when_the_first_is_gone_too(world: World) -> None:
    world.start_all()
    second = world.start("192.0.2.4", broker_role="SLAVE", broker_id=2, broker_name="broker-a")
    world.settle(2)
    world.kill(MASTER)
    world.kill(SLAVE)
    world.until(lambda: leads(second), 10)


def test_without_that_mode_a_slave_does_nothing(world: World) -> None:
    peer = ready(world, enable_slave_acting_master=False)
    send_delayed(peer, b"late")
    world.settle(0.2)
    world.kill(MASTER)
    world.settle(12)
    slave = world.brokers[SLAVE]
    assert not leads(slave)
    assert bodies(world.brokers[OTHER], TOPIC) == []


def test_old_name_servers_show_the_group_by_a_topic_of_its_own(world: World) -> None:
    world.unknown_codes = {RequestCode.GET_BROKER_MEMBER_GROUP.value}
    world.start_all()
    members = world.brokers[SLAVE].core.replication.members
    assert (members.alive, members.min_broker_id) == (2, 0)
    lose_master(world)


def test_places_are_those_that_other_masters_have_open() -> None:
    def queue(name: str, perm: int, count: int = 2) -> QueueData:
        return QueueData(broker_name=name, perm=perm, write_queue_nums=count, read_queue_nums=count)

    route = TopicRouteData(
        queue_datas=[
            queue("d", 6),
            queue("own", 6),
            queue("c", 4),
            queue("b", 6),
            queue("a", 2, 1),
        ],
        broker_datas=[
            BrokerData(broker_name=name, broker_addrs={1 if name == "b" else 0: "192.0.2.9:1"})
            for name in ("a", "b", "c", "d", "own")
        ],
    )
    found = places_of(route, "own")
    # Sorted by name; "c" is closed for writing, "b" has no master.
    assert found == [("a", 0), ("d", 0), ("d", 1)]
    chosen = specific_place(found, "T", ("192.0.2.2", 10911))
    assert chosen == found[java_hash("T/192.0.2.2:10911") % 3]


def test_a_route_of_a_billion_queues_gives_places_that_can_be_counted() -> None:
    names = [f"b{number:03d}" for number in range(100)]
    route = TopicRouteData(
        queue_datas=[
            QueueData(broker_name="a", perm=6, write_queue_nums=2**31 - 1),
            *(QueueData(broker_name=name, perm=6, write_queue_nums=60_000) for name in names),
        ],
        broker_datas=[
            BrokerData(broker_name=name, broker_addrs={0: "192.0.2.9:1"}) for name in ("a", *names)
        ],
    )
    found = places_of(route, "own")
    assert found[0] == ("b000", 0)
    assert len(found) == 65_536


# ----------------------------------------------------------------- delays


def test_what_falls_due_goes_to_the_other_group_and_comes_once(world: World) -> None:
    peer = ready(world)
    send_delayed(peer, b"one", b"two", b"three")
    world.settle(0.2)
    slave = lose_master(world)
    end = slave.store.max_physical_offset()
    other = world.brokers[OTHER]
    world.until(lambda: len(bodies(other, TOPIC)) == 3)
    assert bodies(other, TOPIC) == [b"one", b"three", b"two"]
    found = messages(other, TOPIC)[0]
    assert (found.tags, found.properties.get("DELAY")) == ("t", None)
    assert slave.core.escape.escaped == 3
    # Its own log stays the beginning of the master's.
    assert slave.store.max_physical_offset() == end
    master = world.start(MASTER)
    world.until(lambda: leads(master))
    world.settle(15)
    assert bodies(master, TOPIC) == []
    assert bodies(other, TOPIC) == [b"one", b"three", b"two"]
    assert bodies(slave, TOPIC) == []


def test_what_never_reached_the_slave_is_the_masters_to_deliver(world: World) -> None:
    peer = ready(world)
    send_delayed(peer, b"there")
    send_timed(world, peer, b"there, timed", 6)
    world.settle(2)
    world.cut_replication()
    send_delayed(peer, b"here only")
    send_timed(world, peer, b"here only, timed", 6)
    world.settle(1)
    lose_master(world)
    other = world.brokers[OTHER]
    world.settle(15)
    assert bodies(other, TOPIC) == [b"there", b"there, timed"]
    master = world.start(MASTER)
    world.until(lambda: len(bodies(master, TOPIC)) == 2)
    world.settle(5)
    assert bodies(master, TOPIC) == [b"here only", b"here only, timed"]
    assert bodies(other, TOPIC) == [b"there", b"there, timed"]


def test_nothing_is_lost_while_no_other_broker_takes_it(world: World) -> None:
    peer = ready(world)
    send_delayed(peer, b"late")
    send_timed(world, peer, b"timed", 4)
    world.settle(2)
    slave = lose_master(world)
    world.kill(OTHER)
    world.settle(12)
    assert slave.core.escape.escaped == 0
    # It tries again and again, and asks the name server once a second.
    asked = (NAMES, RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert world.links[SLAVE].asked.count(asked) <= 15
    world.start(OTHER)
    other = world.brokers[OTHER]
    world.until(lambda: len(bodies(other, TOPIC)) == 2)
    world.settle(5)
    assert bodies(other, TOPIC) == [b"late", b"timed"]


def test_without_remote_escape_all_waits_for_the_master(world: World) -> None:
    peer = ready(world, enable_remote_escape=False)
    send_delayed(peer, b"late")
    send_timed(world, peer, b"timed", 4)
    half = Producer(world.brokers[MASTER]).send(b"half")
    world.settle(2)
    slave = lose_master(world)
    world.settle(12)
    assert bodies(world.brokers[OTHER], TOPIC) == []
    assert slave.core.offsets.query("CID_RMQ_SYS_TRANS", TRANS_HALF_TOPIC, 0) <= half.queue_offset
    master = world.start(MASTER)
    world.until(lambda: len(bodies(master, TOPIC)) == 2)
    assert bodies(master, TOPIC) == [b"late", b"timed"]


def test_a_retry_of_a_group_that_no_other_broker_knows_is_made_there(world: World) -> None:
    peer = ready(world)
    # As CONSUMER_SEND_MSG_BACK stores it.
    found = properties(DELAY="2", UNIQ_KEY="again", RETRY_TOPIC=TOPIC)
    peer.send("%RETRY%G", b"again", properties=found, reconsume_times=1)
    world.settle(0.5)
    lose_master(world)
    other = world.brokers[OTHER]
    world.until(lambda: bodies(other, "%RETRY%G") == [b"again"])
    assert messages(other, "%RETRY%G")[0].reconsume_times == 1


def test_a_delayed_commit_is_no_half_message_once_more(world: World) -> None:
    ready(world)
    master = world.brokers[MASTER]
    producer = Producer(master)
    half = producer.send(b"half", found={"TRAN_MSG": "true"})
    producer.end(half, COMMIT)
    (committed,) = messages(master, TOPIC)
    again = properties(**{**committed.properties, "DELAY": "2"})
    master.connect(43_000).send(
        "%RETRY%G", b"half", properties=again, reconsume_times=1, sys_flag=committed.sys_flag
    )
    world.settle(0.5)
    lose_master(world)
    world.until(lambda: bodies(world.brokers[OTHER], "%RETRY%G") == [b"half"])


# ----------------------------------------------------------------- timed messages


def test_timed_messages_are_delivered_by_whoever_acts_each_once(world: World) -> None:
    peer = ready(world)
    for number in range(1, 7):
        send_timed(world, peer, b"%d" % number, 5.0 * number)
    world.settle(11)
    master_has = bodies(world.brokers[MASTER], TOPIC)
    assert master_has == [b"1", b"2"]
    slave = lose_master(world)
    other = world.brokers[OTHER]
    world.until(lambda: b"4" in bodies(other, TOPIC))
    master = world.start(MASTER)
    world.until(lambda: leads(master))
    world.settle(20)
    found = bodies(master, TOPIC) + bodies(other, TOPIC)
    assert sorted(set(found)) == [b"1", b"2", b"3", b"4", b"5", b"6"]
    # What the master delivered since its slave last asked (ten seconds) may come again, from the slave; nothing else.
    repeated = [text for text in set(found) if found.count(text) > 1]
    assert set(repeated) <= set(master_has)
    assert b"6" in bodies(master, TOPIC)
    assert slave.store.max_offset(TIMER_TOPIC, 0) == 6


def test_a_timed_message_is_timed_no_more_elsewhere(world: World) -> None:
    peer = ready(world)
    send_timed(world, peer, b"timed", 8)
    world.settle(0.5)
    lose_master(world)
    other = world.brokers[OTHER]
    world.until(lambda: bodies(other, TOPIC) == [b"timed"])
    assert other.store.max_offset(TIMER_TOPIC, 0) == 0
    assert "REAL_TOPIC" not in messages(other, TOPIC)[0].properties


def test_an_official_master_takes_over_what_its_slave_delivered(world: World) -> None:
    """It does when the slave's version is not older than its own, which counts every second, or is as new as its start."""
    peer = ready(world)
    for second in range(1, 31):
        send_timed(world, peer, b"%d" % second, second)
    send_timed(world, peer, b"late", 35)
    world.settle(27)
    send_delayed(peer, b"delayed", level=3)
    world.settle(4)
    slave, other = world.brokers[SLAVE], world.brokers[OTHER]

    def asked(code: RequestCode) -> bytes:
        return bytes(slave.connect(45_000).ask(code).body)

    def timer_version() -> DataVersion:
        found = TimerCheckpoint.decode(asked(RequestCode.GET_TIMER_CHECK_POINT))
        assert found is not None
        return DataVersion(
            counter=found.version, state_version=found.state_version, timestamp=found.version_ms
        )

    own = timer_version()
    # It was asked three seconds ago at most, and went on counting.
    assert own.counter >= 25
    own.counter += int(world.now_s - own.timestamp / 1000) + 1
    lose_master(world)
    world.until(lambda: {b"delayed", b"late"} <= set(bodies(other, TOPIC)))
    coming = ExchangeHAInfoRequestHeader(master_ha_address=f"{MASTER}:10912")
    assert slave.connect(45_000).ask(RequestCode.EXCHANGE_BROKER_HA_INFO, coming).code == 0
    assert timer_version().is_newer_than(own)
    delays = decode_body(DelayOffsetSerializeWrapper, asked(RequestCode.GET_ALL_DELAY_OFFSET))
    assert (delays.offset_table or {}).get(3) == 1
    never_saved = DataVersion(timestamp=int(world.now_s * 1000))
    assert delays.data_version is not None
    assert delays.data_version.is_newer_than(never_saved)


def test_what_the_master_knew_replaces_nothing_before_it_has_asked(world: World) -> None:
    """An official master may be registered, and its slave hear of it, before it asks."""
    peer = ready(world)
    send_delayed(peer, b"delayed", level=3)
    world.settle(1)
    slave = lose_master(world)
    world.until(lambda: bodies(world.brokers[OTHER], TOPIC) == [b"delayed"])
    link = slave.connect(45_000)
    coming = ExchangeHAInfoRequestHeader(master_ha_address=f"{MASTER}:10912")
    assert link.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, coming).code == 0
    done = bytes(link.ask(RequestCode.GET_ALL_DELAY_OFFSET).body)
    master = world.start(MASTER, skip_pre_online=True)
    world.until(lambda: leads(master))
    # Its slave would ask it for its tables twice.
    world.settle(7)
    assert slave.core.replication.sync.master_address == f"{MASTER}:10911"
    # It delivered again, so that its table has another version.
    assert bodies(master, TOPIC) == [b"delayed"]
    assert bytes(link.ask(RequestCode.GET_ALL_DELAY_OFFSET).body) == done
    assert link.ask(RequestCode.GET_TIMER_CHECK_POINT).code == 0
    create_topic(master.connect(46_000), "TopicB", 1)
    world.settle(1.5)
    # It has asked: from now on its slave stands where it does.
    assert "TopicB" in slave.core.topics


def test_how_far_the_master_is_is_known_to_its_slave_within_three_seconds(world: World) -> None:
    peer = ready(world)
    master, slave = world.brokers[MASTER], world.brokers[SLAVE]
    send_delayed(peer, b"late", level=1)
    send_timed(world, peer, b"timed", 1)
    world.until(lambda: bodies(master, TOPIC) == [b"late", b"timed"])
    world.settle(3.2)
    assert slave.core.delays.offsets.get(1) == 1
    before = master.core.offsets.query("G", TOPIC, 0)
    # All tables are asked for every ten seconds, also when the small ones are due at the same time.
    for offset in (1, 2):
        master.core.offsets.commit("G", TOPIC, 0, offset, "")
        world.settle(10.2)
        assert slave.core.offsets.query("G", TOPIC, 0) == offset > before
    lose_master(world)
    world.settle(3)
    # Both were delivered: nothing comes again.
    assert bodies(world.brokers[OTHER], TOPIC) == []


# ----------------------------------------------------------------- transactions


def test_an_open_transaction_is_asked_for_by_the_other_broker(world: World) -> None:
    ready(world)
    producer = Producer(world.brokers[MASTER])
    settled, half = producer.send(b"settled"), producer.send(b"open")
    producer.end(settled, COMMIT)
    world.settle(1)
    lose_master(world)
    other = world.brokers[OTHER]
    there = Producer(other)
    world.until(lambda: bool(there.listen()))
    assert other.store.max_offset(TRANS_HALF_TOPIC, 0) >= 1
    assert {asked.body for _, asked in there.asked} == {b"open"}
    there.answer(COMMIT)
    world.settle(0.5)
    assert bodies(other, TOPIC) == [b"open"]
    master = world.start(MASTER)
    world.until(lambda: leads(master))
    back = Producer(master)
    world.settle(10)
    assert back.listen() == []
    assert master.core.offsets.query("CID_RMQ_SYS_TRANS", TRANS_HALF_TOPIC, 0) > half.queue_offset
    assert bodies(master, TOPIC) == [b"settled"]


# ----------------------------------------------------------------- POP


def test_what_was_popped_and_not_acknowledged_comes_again_elsewhere(world: World) -> None:
    peer = ready(world)
    for text in (b"done", b"lost"):
        peer.send(TOPIC, text)
    consumer = PopConsumer(world.brokers[MASTER])
    popped = consumer.pop(TOPIC, invisible_time=20_000)
    assert popped.bodies == [b"done", b"lost"]
    consumer.ack(popped, popped.messages[0])
    # The slave hears of it, and the master's table is on its disk.
    world.settle(11)
    slave = lose_master(world)
    other = world.brokers[OTHER]
    there = PopConsumer(other)
    world.until(lambda: there.pop(TOPIC).bodies == [b"lost"])
    assert slave.core.offsets.query("CID_RMQ_SYS_REVIVE_GROUP", REVIVE, 0) >= 0
    master = world.start(MASTER)
    world.until(lambda: leads(master))
    world.settle(20)
    assert PopConsumer(master).pop(TOPIC).bodies == []


def test_an_acknowledgement_at_the_slave_for_a_pop_at_the_master_counts(world: World) -> None:
    peer = ready(world)
    peer.send(TOPIC, b"one")
    popped = PopConsumer(world.brokers[MASTER]).pop(TOPIC, invisible_time=12_000)
    world.settle(0.5)
    slave = lose_master(world)
    world.settle(1)
    assert PopConsumer(slave).ack(popped, popped.messages[0]).code == 0
    world.settle(15)
    assert PopConsumer(world.brokers[OTHER]).pop(TOPIC).bodies == []


def test_pops_at_the_slave_are_written_down_at_the_other_broker(world: World) -> None:
    peer = ready(world)
    for text in (b"done", b"lost"):
        peer.send(TOPIC, text)
    world.settle(0.5)
    refused = PopConsumer(world.brokers[SLAVE]).pop(TOPIC)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    slave = lose_master(world)
    end = slave.store.max_physical_offset()
    consumer = PopConsumer(slave)
    popped = consumer.pop(TOPIC, invisible_time=5_000)
    assert popped.bodies == [b"done", b"lost"]
    consumer.ack(popped, popped.messages[0])
    other = world.brokers[OTHER]
    records = [(name, queue) for name, queue in other.store.queues() if name == REVIVE]
    assert len(records) == 1
    there = PopConsumer(other)
    # The other broker has neither: it reads the message where it is.
    world.until(lambda: there.pop(TOPIC).bodies == [b"lost"])
    assert slave.store.max_physical_offset() == end
    world.settle(20)
    assert consumer.pop(TOPIC).bodies == []


def test_messages_of_a_broker_that_is_away_come_again_when_it_is_back(world: World) -> None:
    peer = ready(world)
    peer.send(TOPIC, b"one")
    world.settle(0.5)
    slave = lose_master(world)
    assert PopConsumer(slave).pop(TOPIC, invisible_time=5_000).bodies == [b"one"]
    world.stop_broker(SLAVE)
    world.settle(15)
    there = PopConsumer(world.brokers[OTHER])
    assert there.pop(TOPIC).bodies == []
    world.start(MASTER)
    world.until(lambda: there.pop(TOPIC).bodies == [b"one"])


# ----------------------------------------------------------------- pulls


def test_consumers_are_served_by_the_slave_and_sent_back_to_the_master(world: World) -> None:
    peer = ready(world)
    peer.send(TOPIC, b"one")
    world.settle(0.5)
    slave = world.brokers[SLAVE]
    reader = slave.connect(44_000)
    away = reader.pull(TOPIC, 0, 1)
    assert (away.code, away.header.suggest_which_broker_id) == (
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        0,
    )
    lose_master(world)
    assert reader.pull(TOPIC, 0, 0).bodies == [b"one"]
    waiting = pull_header(TOPIC, 0, 1, sys_flag=6, suspend_timeout_millis=60_000)
    opaque = reader.tell(RequestCode.PULL_MESSAGE, waiting)
    world.settle(1)
    assert reader.answer(opaque) is None
    world.start(MASTER)
    world.until(lambda: reader.answer(opaque) is not None)
    answer = reader.answer(opaque)
    assert answer is not None
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY


# ----------------------------------------------------------------- the master comes back


def test_what_groups_committed_at_the_slave_is_known_to_the_master(world: World) -> None:
    ready(world)
    core = world.brokers[MASTER].core
    core.offsets.commit("G", TOPIC, 0, 3, "")
    world.settle(11)
    slave = lose_master(world)
    slave.core.offsets.commit("G", TOPIC, 0, 7, "")
    slave.core.offsets.commit("New", TOPIC, 1, 2, "")
    master = world.start(MASTER)
    world.until(lambda: leads(master))
    assert master.core.offsets.query("G", TOPIC, 0) == 7
    assert master.core.offsets.query("New", TOPIC, 1) == 2
    world.settle(11)
    assert slave.core.offsets.query("G", TOPIC, 0) == 7


def test_a_master_whose_table_is_newer_goes_back_for_nobody(world: World) -> None:
    peer = ready(world)
    for number in range(20):
        peer.send(TOPIC, b"x", queue_id=number % 2)
    world.settle(11)
    core = world.brokers[MASTER].core
    core.offsets.commit("G", TOPIC, 0, 5, "")
    core.offsets.data_version.next(world.brokers[MASTER].now_ms())
    core.delays.offsets.put(3, 8)
    world.stop_broker(MASTER)
    slave = world.brokers[SLAVE]
    world.until(lambda: leads(slave))
    slave.core.offsets.commit("G", TOPIC, 0, 2, "")
    slave.core.offsets.commit("G", TOPIC, 1, 9, "")
    slave.core.delays.offsets.put(4, 2)
    master = world.start(MASTER)
    world.until(lambda: leads(master))
    offsets = master.core.offsets
    assert [offsets.query("G", TOPIC, queue) for queue in (0, 1)] == [5, 9]
    assert [master.core.delays.offsets.get(level) for level in (3, 4)] == [8, 2]


def test_the_slave_is_quiet_while_its_master_takes_back_what_it_knows(world: World) -> None:
    ready(world)
    slave = lose_master(world)
    code = RequestCode.EXCHANGE_BROKER_HA_INFO
    header = ExchangeHAInfoRequestHeader(
        master_ha_address=f"{MASTER}:10912",
        master_address=f"{MASTER}:10911",
        master_flush_offset=0,
    )
    assert slave.connect(45_000).ask(code, header).code == 0
    assert not slave.core.has_special_services
    # The master was lost once more before it was online.
    waited_s = world.until(lambda: leads(slave), 30)
    assert waited_s >= 19


def test_a_master_serves_nothing_before_it_knows_what_its_slave_did(world: World) -> None:
    peer = ready(world)
    send_delayed(peer, b"late")
    world.settle(0.5)
    slave = lose_master(world)
    other = world.brokers[OTHER]
    world.until(lambda: bodies(other, TOPIC) == [b"late"])
    del world.servers[f"{SLAVE}:10911"]
    master = world.start(MASTER)
    world.settle(5)
    assert not master.core.has_special_services
    world.servers[f"{SLAVE}:10911"] = slave
    world.until(lambda: leads(master))
    world.settle(10)
    assert bodies(master, TOPIC) == []


def test_a_notice_for_a_master_changes_nothing(world: World) -> None:
    world.start_all()
    master = world.brokers[MASTER]
    notice = NotifyMinBrokerIdChangeRequestHeader(
        broker_name="broker-a", min_broker_id=1, min_broker_addr=f"{SLAVE}:10911"
    )
    code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
    assert master.connect(45_000).ask(code, notice).code == 0
    assert leads(master)
