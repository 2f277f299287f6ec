"""Does a slave's log become its master's, and what happens when it cannot?"""

from __future__ import annotations

from random import Random

import pytest
from ha_network import Pair, Replica, message

from txrocketmq.codec.haframes import REPORT, TRANSFER_HEADER
from txrocketmq.codec.record import decode_record, encode_batch, encode_record
from txrocketmq.errors import StoreError
from txrocketmq.model.flags import TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE
from txrocketmq.model.replication import LinkState
from txrocketmq.store.index import IndexService
from txrocketmq.testing.pools import ManualPool


def fill(master: Replica, count: int = 200, size: int = 700) -> None:
    for number in range(count):
        master.put(
            b"%05d" % number + b"x" * size,
            queue_id=number % 3,
            properties={"UNIQ_KEY": f"id{number}", "KEYS": f"k{number % 7}", "TAGS": "T"},
        )


def same(master: Replica, slave: Replica) -> None:
    """The slave's log is the master's from the slave's first file on, and so are queues and index."""
    start = slave.store.min_physical_offset()
    assert slave.log() == master.log()[start - master.store.min_physical_offset() :]
    ours, theirs = slave.units(), master.units()
    for key, entries in ours.items():
        assert entries == theirs[key][-len(entries) :] if entries else True, key


# ----------------------------------------------------------------- the way of the bytes


@pytest.mark.parametrize("piece", [1, 5, 12, 4000, 1 << 30])
def test_a_slave_takes_what_is_there_and_what_comes(pair: Pair, piece: int) -> None:
    master = pair.master()
    fill(master, 40 if piece == 1 else 200)
    slave = pair.slave(master)
    pair.network.carry_all(piece)
    same(master, slave)
    fill(master, 10)
    pair.settle()
    same(master, slave)
    assert slave.store.max_physical_offset() == master.store.max_physical_offset()
    assert len(slave.store.query_message("TopicTest", "k3", 64, 0, 2**62).records) > 0


def test_all_kinds_of_records_are_dispatched(pair: Pair) -> None:
    master = pair.master()
    slave = pair.slave(master)
    master.put(b"half", topic="RMQ_SYS_TRANS_HALF_TOPIC")
    master.put(b"prepared", sys_flag=TRANSACTION_PREPARED_TYPE)
    master.put(b"rolled back", sys_flag=TRANSACTION_ROLLBACK_TYPE)
    master.put(b"late", topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "3"})
    master.store.put_batch(batch(5))
    pair.settle()
    same(master, slave)
    assert slave.store.max_offset("TopicTest", 0) == 5
    assert slave.store.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 1


def test_what_follows_on_in_a_queue_is_derived_as_the_master_did(pair: Pair) -> None:
    """One piece of log with runs of messages: with the store time of each, and with what comes between them."""
    master = pair.master()

    def put(body: bytes, key: str, **fields: object) -> None:
        assert master.put(body, properties={"KEYS": key}, keys=key, **fields).is_ok

    for number in range(3):
        put(b"early %d" % number, "early")
    pair.clock.advance(60)
    middle_ms = int(pair.clock.seconds() * 1000) - 30_000
    put(b"late", "late")
    put(b"prepared", "half", sys_flag=TRANSACTION_PREPARED_TYPE)
    put(b"later", "late")
    put(b"elsewhere", "late", queue_id=1)
    master.store.put_batch(batch(5))
    put(b"last", "late")
    put(b"first", "another", queue_id=2)
    put(b"prepared", "another", queue_id=2, sys_flag=TRANSACTION_PREPARED_TYPE)
    put(b"second", "another", queue_id=2)
    slave = pair.slave(master)
    pair.settle()
    same(master, slave)

    def found(replica: Replica, key: str, begin_ms: int, end_ms: int) -> int:
        return len(replica.store.query_message("TopicTest", key, 64, begin_ms, end_ms).records)

    for replica in (master, slave):
        assert found(replica, "early", 0, middle_ms) == 3
        assert found(replica, "early", middle_ms, 2**62) == 0
        assert found(replica, "late", 0, middle_ms) == 0
        assert found(replica, "late", middle_ms, 2**62) == 4
        assert found(replica, "half", 0, 2**62) == 1
        assert found(replica, "another", 0, 2**62) == 3
    assert slave.store.max_offset("TopicTest", 0) == 11
    assert slave.store.max_offset("TopicTest", 1) == 1
    assert slave.store.max_offset("TopicTest", 2) == 2


def test_a_half_message_before_a_queues_first_one_here_is_none_of_the_queue(pair: Pair) -> None:
    """The slave's log begins in the middle of the queue, so the half message has the place that it would begin with."""
    slave = pair.slave()
    half = message(b"half", sys_flag=TRANSACTION_PREPARED_TYPE)
    data = encode_record(half, 0, 0, 1_700_000_000_000)
    data += encode_record(message(b"plain"), 1, len(data), 1_700_000_000_000)
    assert slave.store.append_raw(0, data)
    assert slave.store.max_offset("TopicTest", 0) == 2
    assert slave.store.min_offset("TopicTest", 0) == 1


def append(slave: Replica, *indexes: int) -> int:
    """Append plain messages with these places in their queue; where the first one begins."""
    begin = end = slave.store.max_physical_offset()
    data = b""
    for index in indexes:
        data += encode_record(message(b"plain"), index, end, 1_700_000_000_000)
        end = begin + len(data)
    assert slave.store.append_raw(begin, data)
    return begin


def test_a_slave_that_lacks_messages_of_a_queue_leaves_their_places_free(pair: Pair) -> None:
    slave = pair.slave()
    append(slave, 0, 1)
    begin = append(slave, 5, 6)
    assert slave.store.max_offset("TopicTest", 0) == 7
    for gap in (2, 5):
        found = slave.store.get_message("TopicTest", 0, gap, 1, 1 << 20, None)
        assert [decode_record(data)[0].physical_offset for data in found.records] == [begin]


def test_who_waits_at_a_slave_hears_of_each_message_that_came(pair: Pair) -> None:
    slave = pair.slave()
    append(slave, 0)
    heard: list[tuple[str, int]] = []
    waits = False
    slave.store.add_arrival_listener(
        lambda topic, queue_id, following, *_: heard.append((topic, following)),
        lambda topic, queue_id: waits,
    )
    append(slave, 1, 2)
    assert heard == []
    waits = True
    append(slave, 3, 4)
    assert heard == [("TopicTest", 4), ("TopicTest", 5)]


def test_a_slave_takes_no_more_than_its_index_has_room_for(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    slave = pair.slave()
    append(slave, 0)
    monkeypatch.setattr(IndexService, "is_behind", True)
    end = slave.store.max_physical_offset()
    record = encode_record(message(b"plain"), 1, end, 1_700_000_000_000)
    assert not slave.store.append_raw(end, record)
    monkeypatch.undo()
    assert slave.store.append_raw(end, record)


def batch(count: int):  # type: ignore[no-untyped-def]
    return message(encode_batch([(0, b"item %d" % number, b"") for number in range(count)]))


def test_a_slave_that_becomes_master_goes_on_behind_what_it_has(pair: Pair) -> None:
    master = pair.master()
    slave = pair.slave(master)
    fill(master, 9)
    pair.settle()
    slave.ha.follower.stop()
    slave.config.broker_role = "ASYNC_MASTER"
    assert slave.put().queue_offset == 3
    assert slave.store.max_offset("TopicTest", 0) == 4


def test_a_record_longer_than_a_frame_arrives_whole(pair: Pair) -> None:
    master = pair.master(ha_transfer_batch_size=1000)
    slave = pair.slave(master)
    master.put(b"y" * 30_000)
    wire = pair.network.wires[0]
    wire.carry(wire.slave)
    for _ in range(20):
        wire.carry(wire.master, 999)
    # Nothing of it is in the log: a slave that is killed now has no half record.
    assert slave.store.max_physical_offset() == 0
    pair.settle()
    same(master, slave)
    assert slave.store.max_offset("TopicTest", 0) == 1


def test_frames_are_not_longer_than_they_may_be(pair: Pair) -> None:
    master = pair.master(ha_transfer_batch_size=1000)
    fill(master, 50)
    sent: list[bytes] = []
    link = raw_slave(pair, master, sent)
    link.data_received(REPORT.pack(0))
    sizes = [size for _, size in frames(b"".join(sent))]
    assert max(sizes) == 1000
    assert sum(sizes) == master.store.max_physical_offset()


def raw_slave(pair: Pair, master: Replica, sent: list[bytes]):  # type: ignore[no-untyped-def]
    link = master.ha.slave_connected("192.0.2.9:1", sent.append, lambda reason: None)
    assert link is not None
    return link


def frames(data: bytes) -> list[tuple[int, int]]:
    found = []
    position = 0
    while position < len(data):
        offset, size = TRANSFER_HEADER.unpack_from(data, position)
        found.append((offset, size))
        position += TRANSFER_HEADER.size + size
    assert position == len(data)
    return found


# ----------------------------------------------------------------- where it begins


def test_an_empty_slave_begins_with_the_masters_last_file(pair: Pair) -> None:
    master = pair.master()
    fill(master, 250)
    start = master.store.last_file_offset()
    assert start > 0
    slave = pair.slave(master)
    pair.settle()
    assert slave.store.min_physical_offset() == start
    same(master, slave)
    fill(master, 100)
    pair.settle()
    same(master, slave)


def test_such_a_slave_can_be_restarted(pair: Pair) -> None:
    master = pair.master()
    fill(master, 250)
    slave = pair.slave(master)
    pair.settle()
    slave.stop()
    fill(master, 120)
    again = pair.slave(master, disk=slave.disk)
    pair.settle()
    assert again.store.min_physical_offset() == slave.store.min_physical_offset()
    same(master, again)


def test_a_slave_goes_on_where_it_was(pair: Pair) -> None:
    master = pair.master()
    fill(master, 20)
    slave = pair.slave(master)
    pair.settle()
    slave.stop()
    fill(master, 150)
    again = pair.slave(master, disk=slave.disk)
    pair.settle()
    assert again.store.min_physical_offset() == 0
    assert again.log() == master.log()
    same(master, again)


def test_nothing_is_sent_before_the_first_report(pair: Pair) -> None:
    master = pair.master()
    fill(master, 5)
    sent: list[bytes] = []
    link = raw_slave(pair, master, sent)
    pair.settle(12)
    assert sent == []
    link.data_received(REPORT.pack(0)[:5])
    assert sent == []
    link.data_received(REPORT.pack(0)[5:])
    assert sent


def test_a_burst_of_reports_counts_as_its_newest(pair: Pair) -> None:
    master = pair.master()
    fill(master, 5)
    sent: list[bytes] = []
    link = raw_slave(pair, master, sent)
    end = master.store.max_physical_offset()
    link.data_received(REPORT.pack(0))
    told: list[int] = []
    link._acknowledged = lambda: told.append(link.ack_offset)
    link.data_received(REPORT.pack(10) + REPORT.pack(20) + REPORT.pack(end - 5) + b"\0\0")
    assert told == [end - 5]


# ----------------------------------------------------------------- what does not fit


def test_a_gap_closes_the_link_and_the_slave_comes_back(pair: Pair) -> None:
    master = pair.master()
    fill(master, 5)
    slave = pair.slave(master)
    pair.settle()
    end = slave.store.max_physical_offset()
    pair.network.wires[0].master.write(TRANSFER_HEADER.pack(end + 1, 1) + b"x")
    pair.settle()
    assert pair.network.wires == []
    assert slave.store.max_physical_offset() == end
    assert slave.ha.follower.state is LinkState.READY
    pair.settle(5.1)
    assert slave.ha.follower.state is LinkState.TRANSFER
    fill(master, 5)
    pair.settle()
    same(master, slave)


def test_a_heartbeat_for_another_offset_closes_the_link(pair: Pair) -> None:
    master = pair.master()
    fill(master, 5)
    pair.slave(master)
    pair.settle()
    pair.network.wires[0].master.write(TRANSFER_HEADER.pack(7, 0))
    pair.settle()
    assert pair.network.wires == []


@pytest.mark.parametrize("size", [-1, 5 << 20])
def test_a_size_that_cannot_be_closes_the_link(pair: Pair, size: int) -> None:
    master = pair.master()
    pair.slave(master)
    pair.settle()
    pair.network.wires[0].master.write(TRANSFER_HEADER.pack(0, size))
    pair.settle()
    assert pair.network.wires == []


def test_a_slave_that_has_more_than_the_master_is_refused(pair: Pair) -> None:
    """The old master comes back as a slave with messages that nobody else has."""
    old = pair.master()
    fill(old, 30)
    new = pair.add("192.0.2.3")
    fill(new, 20)
    old.stop()
    slave = pair.slave(new, disk=old.disk)
    pair.settle()
    assert pair.network.wires == []
    fill(new, 30)
    pair.settle(6)
    # The new master's log is longer by now: what comes must not be put behind what is not its own.
    assert slave.log() == old.log()


def test_a_slave_feeds_others_once_its_master_has_fed_it(pair: Pair) -> None:
    """An old master that came back as a slave has what the new one never had: nobody may take it from there."""
    master = pair.master()
    old = pair.add("192.0.2.2")
    old.put(b"nobody else has this")
    old.stop()
    stray = pair.slave(host="192.0.2.2", disk=old.disk)
    master.put(b"the group's")
    other = pair.slave(stray, host="192.0.2.3")
    pair.settle(6)
    assert other.log() == b""
    stray.follow(master)
    pair.settle(6)
    assert other.log() == b"", "its log is another one than its master's"
    second = pair.slave(master, host="192.0.2.4")
    third = pair.slave(second, host="192.0.2.5")
    pair.settle(6)
    assert third.log() == second.log() == master.log()


def test_another_logs_bytes_are_not_appended(pair: Pair) -> None:
    """The same, with the new master's log the longer one, and no record of it where the slave's log ends."""
    old = pair.master()
    fill(old, 20)
    old.put(b"mine alone")
    new = pair.add("192.0.2.3")
    fill(new, 60)
    old.stop()
    slave = pair.slave(new, disk=old.disk)
    pair.settle()
    assert slave.log() == old.log()
    assert slave.ha.follower.state is LinkState.READY


def test_a_record_of_another_place_is_not_appended(pair: Pair) -> None:
    master = pair.master()
    fill(master, 2)
    slave = pair.slave(master)
    pair.settle()
    end = slave.store.max_physical_offset()
    with pytest.raises(StoreError, match="different ways"):
        slave.store.append_raw(end, master.log()[: end // 2])
    assert slave.store.max_physical_offset() == end


def test_files_of_another_size_are_refused(pair: Pair) -> None:
    master = pair.master()
    fill(master, 60)
    slave = pair.slave(master, mapped_file_size_commit_log=32 * 1024)
    pair.settle()
    assert slave.store.max_physical_offset() < master.store.max_physical_offset()
    assert pair.network.wires == []


def test_a_slave_whose_part_of_the_log_was_deleted_gets_nothing(pair: Pair) -> None:
    master = pair.master()
    fill(master, 5)
    slave = pair.slave(master)
    pair.settle()
    slave.stop()
    fill(master, 250)
    master.store.commit_log.queue.flush()
    master.store.commit_log.queue.delete_before(master.store.max_physical_offset())
    again = pair.slave(master, disk=slave.disk)
    pair.settle(1)
    assert again.log() == slave.log()
    assert again.ha.follower.state is LinkState.TRANSFER


# ----------------------------------------------------------------- time


def test_heartbeats_both_ways_keep_a_quiet_link(pair: Pair) -> None:
    master = pair.master()
    fill(master, 3)
    slave = pair.slave(master)
    pair.settle(60)
    assert pair.network.dialled == 1
    assert slave.ha.follower.state is LinkState.TRANSFER


@pytest.mark.parametrize("silent", ["master", "slave"])
def test_a_silent_peer_is_dropped(pair: Pair, silent: str) -> None:
    master = pair.master()
    slave = pair.slave(master)
    pair.settle()
    wire = pair.network.wires[0]
    end = getattr(wire, silent)
    end.write = lambda data: None
    end.protocol.link._write = lambda data: None
    for _ in range(23):
        pair.clock.advance(1)
        wire.carry(wire.master)
        wire.carry(wire.slave)
    assert not wire.is_up
    del slave


def test_a_master_that_is_not_there_is_dialled_every_five_seconds(pair: Pair) -> None:
    slave = pair.slave()
    slave.ha.follower.set_master_address("192.0.2.77:10912")
    assert pair.network.dialled == 1
    pair.settle(4.9)
    assert pair.network.dialled == 1
    pair.settle(5.2)
    assert pair.network.dialled == 3


def test_a_new_masters_address_is_followed_at_once(pair: Pair) -> None:
    first, second = pair.master(), pair.add("192.0.2.3")
    fill(first, 5)
    fill(second, 5)
    slave = pair.slave(first)
    pair.settle()
    assert len(first.ha.links) == 1
    slave.follow(second)
    pair.settle()
    assert (len(first.ha.links), len(second.ha.links)) == (0, 1)


def test_a_link_that_was_lost_is_made_again(pair: Pair) -> None:
    master = pair.master(ha_transfer_batch_size=4000)
    fill(master, 60)
    slave = pair.slave(master)
    for _ in range(2):
        wire = pair.network.wires[0]
        wire.carry(wire.slave)
        wire.carry(wire.master, 12_345)
        wire.cut()
        pair.clock.advance(5.05)
    assert 0 < slave.store.max_physical_offset() < master.store.max_physical_offset()
    pair.settle(6)
    same(master, slave)


# ----------------------------------------------------------------- bounds


def test_a_slave_that_reads_nothing_costs_little(pair: Pair) -> None:
    master = pair.master()
    slave = pair.slave(master)
    pair.settle()
    wire = pair.network.wires[0]
    slave.store.max_physical_offset()
    wire.slave.is_reading = False
    for _ in range(30):
        fill(master, 100)
        pair.clock.advance(0.01)
        assert wire.master.waiting < 512 * 1024
    wire.slave.is_reading = True
    pair.settle(1)
    same(master, slave)


def test_flow_control_bounds_the_bytes_of_a_second(pair: Pair) -> None:
    master = pair.master(ha_flow_control_enable=True, max_ha_transfer_byte_in_second=20_000)
    fill(master, 70)
    slave = pair.slave(master)
    pair.settle(0.5)
    assert 0 < slave.store.max_physical_offset() <= 20_000
    pair.settle(1)
    assert 20_000 < slave.store.max_physical_offset() <= 40_000
    pair.settle(5)
    same(master, slave)


def test_a_store_that_is_behind_makes_the_master_wait(pair: Pair) -> None:
    pool = ManualPool()
    master = pair.master()
    fill(master, 200, 1500)
    network = pair.network
    slave = Replica(
        network, pair.clock, "192.0.2.2", pool=ImmediateThenManual(pool), broker_role="SLAVE"
    )
    slave.store.commit_log.queue._pool = pool
    slave.follow(master)
    for _ in range(400):
        network.carry_all()
        pair.clock.advance(0.01)
        pool.run()
    same(master, slave)


class ImmediateThenManual:
    """A pool that does all at once."""

    def __init__(self, manual: ManualPool) -> None:
        from txrocketmq.testing.pools import ImmediatePool

        self.submit = ImmediatePool().submit
        self.stop = manual.stop


def test_cold_bytes_are_read_in_the_pool(pair: Pair) -> None:
    master = pair.master()
    fill(master, 20)
    pool = ManualPool()
    master.store.replica_log._pool = pool
    log = master.store.commit_log
    log.read_ready = lambda offset, size: None  # type: ignore[method-assign]
    slave = pair.slave(master)
    pair.settle()
    assert slave.store.max_physical_offset() == 0
    assert pool.pending == 1
    del log.read_ready
    pool.run()
    pair.settle()
    same(master, slave)


def test_what_comes_is_no_log(pair: Pair) -> None:
    slave = pair.slave()
    slave.store.append_raw(0, b"\0\0\0")
    with pytest.raises(StoreError, match="no log"):
        slave.store.append_raw(3, b"\x07" + b"garbage" * 20)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_the_network_does_the_logs_are_the_same(pair: Pair, seed: int) -> None:
    random = Random(seed)
    master = pair.master(ha_transfer_batch_size=random.choice((200, 5000, 32_768)))
    fill(master, random.randrange(120))
    slaves = [pair.slave(master, f"192.0.2.{10 + n}") for n in range(random.choice((1, 2)))]
    for _ in range(300):
        act = random.random()
        if act < 0.1:
            fill(master, random.randrange(1, 9), random.randrange(2000))
        elif act < 0.13 and pair.network.wires:
            random.choice(pair.network.wires).cut()
        elif act < 0.2:
            pair.clock.advance(random.choice((0.001, 0.01, 1, 5.1)))
        elif act < 0.22:
            number = random.randrange(len(slaves))
            slaves[number].stop()
            slaves[number] = pair.slave(master, slaves[number].address[0], disk=slaves[number].disk)
        else:
            pair.network.carry_some(random)
        for slave in slaves:
            start = slave.store.min_physical_offset()
            assert master.log()[start:].startswith(slave.log())
    pair.settle(6)
    for slave in slaves:
        same(master, slave)
