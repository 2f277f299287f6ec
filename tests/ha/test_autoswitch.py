"""Do replicas agree on one log while a controller changes their roles?"""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from auto_network import AutoGroup, AutoReplica
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from tests.golden import wire_frames
from txrocketmq.codec.autoswitch import (
    MasterFrames,
    MasterHandshake,
    Piece,
    SlaveFrames,
    SlaveHandshake,
    encode_master_handshake,
    encode_piece,
    encode_report,
    encode_slave_handshake,
)
from txrocketmq.codec.epochfile import EpochEntry
from txrocketmq.errors import ProtocolError, StoreError
from txrocketmq.ha.epochs import EpochCache, consistent_point
from txrocketmq.ha.syncset import SyncStateSet
from txrocketmq.model.replication import Replicated
from txrocketmq.store import queuetable
from txrocketmq.store.queuetable import give_way
from txrocketmq.store.results import PutMessageStatus
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool
from txrocketmq.testing.simdisk import SimulatedDisk


@pytest.fixture
def group() -> AutoGroup:
    return AutoGroup()


def fill(broker: AutoReplica, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        broker.put(b"%05d" % number + b"x" * 400, queue_id=number % 3)


def shown(broker: AutoReplica) -> list[int]:
    """Numbers of the messages that consumers find."""
    found = []
    for entries in broker.units().values():
        for _, records in entries:
            found += [int(record.split(b"xxx")[0][-5:]) for record in records]
    return sorted(found)


def same(*brokers: AutoReplica) -> None:
    first = brokers[0]
    for other in brokers[1:]:
        assert other.log() == first.log()
        assert other.units() == first.units()


# ----------------------------------------------------------------- bytes


def recorded(kind: str, direction: str) -> list[bytes]:
    return [
        bytes.fromhex(frame["frame_hex"])
        for frame in wire_frames()
        if frame["kind"] == kind and frame["direction"] == direction
    ]


def part(group: AutoGroup) -> None:
    """Nobody reaches anybody, until `join`."""
    group.network.listening.clear()
    for wire in list(group.network.wires):
        wire.cut()


def join(group: AutoGroup, *brokers: AutoReplica) -> None:
    """These can be reached again."""
    group.network.listening.update({broker.address: broker.ha.factory for broker in brokers})


def test_recorded_frames_are_read_and_made_again() -> None:
    slave = SlaveFrames()
    shakes, reports = recorded("haauto-handshake", "c2s"), recorded("haauto-report", "c2s")
    assert len(shakes) == 2
    assert len(reports) > 10
    for raw in shakes:
        (found,) = slave.feed(raw)
        assert isinstance(found, SlaveHandshake)
        assert encode_slave_handshake(found) == raw
    for raw in reports:
        (offset,) = slave.feed(raw)
        assert isinstance(offset, int)
        assert encode_report(offset) == raw
    master = MasterFrames()
    answers, pieces = recorded("haauto-handshake", "s2c"), recorded("haauto-transfer", "s2c")
    assert len(answers) == 2
    assert any(len(raw) > 36 for raw in pieces)
    for raw in answers:
        master.feed(raw)
        shake = master.peek()
        assert isinstance(shake, MasterHandshake)
        assert encode_master_handshake(*shake) == raw
        master.drop()
    for raw in pieces:
        master.feed(raw)
        piece = master.peek()
        assert isinstance(piece, Piece)
        assert encode_piece(piece) == raw
        master.drop()


@given(st.integers(1, 50), st.binary(max_size=60))
def test_frames_come_whole_out_of_pieces_of_any_size(size: int, data: bytes) -> None:
    sent = (
        encode_master_handshake(900, [EpochEntry(1, 0), EpochEntry(3, 400)])
        + encode_piece(Piece(0, 1, 0, 7, data))
        + encode_piece(Piece(len(data), 3, 400, 8, b""))
    )
    reader, found = MasterFrames(), []
    for start in range(0, len(sent), size):
        reader.feed(sent[start : start + size])
        while (frame := reader.peek()) is not None:
            found.append(frame)
            reader.drop()
    assert found == [
        MasterHandshake(900, (EpochEntry(1, 0), EpochEntry(3, 400))),
        Piece(0, 1, 0, 7, data),
        Piece(len(data), 3, 400, 8, b""),
    ]
    slave, heard = SlaveFrames(), list[Any]()
    said = encode_slave_handshake(SlaveHandshake(2, True, False)) + encode_report(77)
    for start in range(0, len(said), size):
        heard += slave.feed(said[start : start + size])
    assert heard == [SlaveHandshake(2, True, False), 77]


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(ProtocolError):
        SlaveFrames().feed(b"\0\0\0\x05")
    reader = MasterFrames()
    reader.feed(b"\0\0\0\x03" + bytes(40))
    with pytest.raises(ProtocolError):
        reader.peek()


# ----------------------------------------------------------------- terms


def terms(*pairs: tuple[int, int]) -> list[EpochEntry]:
    return [EpochEntry(*pair) for pair in pairs]


@pytest.mark.parametrize(
    ("ours", "our_end", "theirs", "their_end", "point"),
    [
        ([(1, 0)], 500, [(1, 0)], 900, 500),
        ([(1, 0)], 900, [(1, 0), (2, 600)], 950, 600),
        ([(1, 0), (2, 600)], 900, [(1, 0), (2, 600)], 700, 700),
        ([(1, 0), (2, 600)], 900, [(1, 0), (3, 500)], 800, 500),
        ([(1, 0), (2, 600)], 900, [(1, 0), (2, 650)], 950, 650),
        ([(1, 10)], 900, [(1, 0)], 950, 10),
        ([(1, 0)], 900, [(1, 500)], 700, 500),
        ([(4, 0)], 900, [(5, 0)], 950, None),
    ],
)
def test_where_two_logs_went_different_ways(
    ours: Any, our_end: int, theirs: Any, their_end: int, point: int | None
) -> None:
    assert consistent_point(terms(*ours), our_end, terms(*theirs), their_end) == point


def test_terms_are_kept_in_the_official_file() -> None:
    disk = MemoryDisk()
    cache = EpochCache(disk, "/store/epochs")
    cache.load()
    assert cache.last_epoch == -1
    assert cache.append(EpochEntry(1, 0))
    assert cache.append(EpochEntry(4, 100))
    assert not cache.append(EpochEntry(4, 200))
    assert cache.at(99) == (1, 0)
    assert cache.at(100) == (4, 100)
    assert cache.append(EpochEntry(5, 100))
    assert cache.entries == [(1, 0), (5, 100)], "a term without bytes gives way"
    cache.append(EpochEntry(6, 300))
    cache.cut_beyond(300)
    again = EpochCache(disk, "/store/epochs")
    again.load()
    assert again.entries == [(1, 0), (5, 100)]
    again.cut_before(100)
    assert again.entries == [(5, 100)]


def test_a_term_that_is_led_again_goes_on_unless_the_machine_was_restarted() -> None:
    disk = SimulatedDisk(Random(1))
    cache = EpochCache(disk, "/store/epochs")
    cache.begin(1, 0)
    cache.begin(2, 100)
    cache.begin(2, 150)
    assert cache.entries == [(1, 0), (2, 100)]
    disk.end("kill")
    disk.restart()
    again = EpochCache(disk, "/store/epochs")
    again.load()
    again.begin(2, 170)
    assert again.entries == [(1, 0), (2, 100)], "nothing that was written then is lost"
    disk.end("power")
    disk.restart()
    again.load()
    again.begin(2, 130)
    assert again.entries == [(1, 0), (2, 130)]
    again.begin(3, 90)
    assert again.entries == [(1, 0), (3, 90)], "nothing is left of the second term"


def test_a_damaged_file_of_terms_is_not_guessed() -> None:
    disk = MemoryDisk()
    cache = EpochCache(disk, "/store/epochs")
    cache.append(EpochEntry(1, 0))
    cache.append(EpochEntry(2, 10))
    disk.replace_file("/store/epochs", b"2\n1\n1-0\n2-10\n", False)
    cache.load()
    assert cache.entries == [(1, 0)], "the backup"
    disk.replace_file("/store/epochs.bak", b"nothing", False)
    with pytest.raises(StoreError):
        cache.load()


# ----------------------------------------------------------------- the way of the bytes


@pytest.mark.parametrize("size", [1, 13, 5000, 1 << 30])
def test_a_new_slave_takes_all_terms_and_joins(group: AutoGroup, size: int) -> None:
    one, two = group.broker(1), group.broker(2)
    group.elect(one)
    fill(one, 20)
    group.elect(one)
    fill(one, 20, first=20)
    two.auto.become_slave(group.epoch)
    two.follow(one)
    group.network.carry_all(size)
    group.settle()
    same(one, two)
    assert two.auto.epochs.entries == one.auto.epochs.entries
    assert len(one.auto.epochs.entries) == 2
    assert group.asked == [{1, 2}]
    assert one.auto.members.agreed == {1, 2}
    assert shown(two) == list(range(40))


def test_an_old_master_cuts_what_the_new_one_never_had(group: AutoGroup) -> None:
    one, two, three = (group.broker(number) for number in (1, 2, 3))
    group.elect(one, two, three)
    fill(one, 30)
    group.settle()
    part(group)
    fill(one, 9, first=100)
    alone = one.store.max_physical_offset()
    join(group, one, two, three)
    group.elect(two, three)
    fill(two, 30, first=200)
    group.settle()
    one.auto.become_slave(group.epoch)
    one.follow(two)
    group.settle()
    assert alone > 0
    group.settle(6)
    same(two, one, three)
    assert shown(one) == [*range(30), *range(200, 230)]
    assert one.auto.epochs.entries == two.auto.epochs.entries
    group.elect(one, two, three)
    fill(one, 5, first=300)
    group.settle(6)
    same(one, two, three)
    assert shown(three) == [*range(30), *range(200, 230), *range(300, 305)]


class HeldTurns(ImmediatePool):
    """Does everything at once but what merely gives way between queues, which waits while ``holds``."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        self.turns: list[Deferred[Any]] = []

    def submit(self, function: Callable[..., object], *args: object) -> Deferred[Any]:
        if function is not give_way or not self.holds:
            return super().submit(function, *args)
        self.turns.append(Deferred())
        return self.turns[-1]

    def go_on(self) -> None:
        self.holds = False
        while self.turns:
            self.turns.pop().callback(None)


def test_who_is_cutting_its_log_neither_joins_nor_leads(
    group: AutoGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queuetable, "QUEUES_AT_ONCE", 1)
    pool = HeldTurns()
    one, two = group.broker(1, pool=pool), group.broker(2)
    group.elect(one, two)
    fill(one, 30)
    group.settle()
    part(group)
    fill(one, 9, first=100)
    join(group, one, two)
    pool.holds = True
    group.elect(two, one)
    assert one.store.is_cutting
    # The link breaks meanwhile; the log already ends where both agree, and its queues do not yet.
    for wire in list(group.network.wires):
        wire.cut()
    group.settle(6)
    assert group.asked == [{1, 2}, {1}]
    assert two.auto.members.agreed == {2}
    with pytest.raises(StoreError, match="being cut"):
        one.auto.become_master(group.epoch + 1)
    assert one.auto.is_slave
    pool.go_on()
    group.settle(6)
    assert two.auto.members.agreed == {1, 2}
    group.elect(one, two)
    fill(one, 5, first=300)
    group.settle(6)
    same(one, two)
    assert shown(one) == [*range(30), *range(300, 305)]


def test_an_old_master_whose_disk_refuses_the_cut_joins_when_it_does_not(
    group: AutoGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = group.broker(1), group.broker(2)
    group.elect(one, two)
    fill(one, 30)
    group.settle()
    part(group)
    fill(one, 9, first=100)
    join(group, one, two)

    def fails(path: str, offset: int) -> None:
        raise OSError(errno.EIO, "the disk is not well")

    with monkeypatch.context() as patch:
        patch.setattr(one.disk, "zero_from", fails)
        group.elect(two, one)
        group.settle(20)
        assert one.store.is_cutting
        assert two.auto.members.agreed == {2}
        fill(two, 5, first=200)
        assert shown(two) == [*range(30), *range(200, 205)]
    group.settle(11)
    assert two.auto.members.agreed == {1, 2}
    same(one, two)
    assert shown(one) == [*range(30), *range(200, 205)]


def test_who_has_no_term_in_common_follows_nobody(group: AutoGroup) -> None:
    one, two = group.broker(1), group.broker(2)
    group.elect(one)
    fill(one, 5)
    group.epoch = 7
    group.elect(two)
    fill(two, 3, first=50)
    one.auto.become_slave(9)
    one.follow(two)
    group.settle()
    assert shown(one) == list(range(5))
    assert two.auto.members.agreed == {2}


def test_an_older_term_is_refused(group: AutoGroup) -> None:
    one = group.broker(1)
    group.epoch = 4
    group.elect(one)
    fill(one, 2)
    for change in (one.auto.become_master, one.auto.become_slave):
        with pytest.raises(StoreError):
            change(3)
    assert not one.ha.is_slave


def test_a_slave_refuses_slaves_of_its_own(group: AutoGroup) -> None:
    one, two, three = (group.broker(number) for number in (1, 2, 3))
    group.elect(one, two)
    three.auto.become_slave(1)
    three.follow(two)
    group.settle()
    assert two.ha.links == []


@pytest.mark.parametrize("last_file", [False, True])
def test_where_an_empty_slave_begins(group: AutoGroup, last_file: bool) -> None:
    one, two = group.broker(1), group.broker(2, sync_from_last_file=last_file)
    group.elect(one)
    fill(one, 300)
    assert one.store.last_file_offset() > 0
    two.auto.become_slave(1)
    two.follow(one)
    group.settle()
    first = one.store.last_file_offset() if last_file else 0
    assert two.store.min_physical_offset() == first
    assert two.store.max_physical_offset() == one.store.max_physical_offset()


# ----------------------------------------------------------------- who is in sync


def test_a_message_is_shown_and_acknowledged_once_all_in_sync_have_it(group: AutoGroup) -> None:
    one, two = group.broker(1), group.broker(2)
    group.elect(one, two)
    fill(one, 1)
    group.settle()
    assert one.auto.members.agreed == {1, 2}
    waiting = one.put(b"00001xxx")
    assert not waiting.called
    assert shown(one) == [0]
    group.settle()
    assert waiting.result.status is PutMessageStatus.PUT_OK
    assert shown(one) == [0, 1]
    group.settle(6)
    assert shown(two) == [0, 1], "a heartbeat says what is confirmed"


def test_while_the_controller_is_asked_old_and_new_members_count(group: AutoGroup) -> None:
    one, two = group.broker(1), group.broker(2)
    group.agrees = False
    group.elect(one, two)
    fill(one, 2)
    group.settle()
    assert one.auto.members.agreed == {1}
    assert one.auto.members.members == {1, 2}
    group.network.wires[0].cut()
    one.put(b"00007xxx")
    group.clock.advance(0.01)
    assert 7 not in shown(one), "a member that may have been agreed on lacks it"


def test_a_member_that_is_gone_leaves_and_comes_back(group: AutoGroup) -> None:
    one, two = group.broker(1), group.broker(2)
    group.elect(one, two)
    fill(one, 3)
    group.settle()
    group.network.listening.pop(one.address)
    group.network.wires[0].cut()
    assert one.auto.members.agreed == {1}
    fill(one, 3, first=3)
    assert shown(one) == list(range(6))
    group.network.listening[one.address] = one.ha.factory
    group.settle(6)
    assert one.auto.members.agreed == {1, 2}
    same(one, two)


def test_a_member_that_lags_too_long_leaves(group: AutoGroup) -> None:
    one, two = group.broker(1), group.broker(2)
    group.elect(one, two)
    group.settle()
    fill(one, 1)
    group.settle()
    for _ in range(16):
        one.put(b"00009xxx")
        group.clock.advance(1)
        one.auto.check_members()
    assert one.auto.members.agreed == {1}


def test_a_learner_never_joins_and_nobody_waits_for_it(group: AutoGroup) -> None:
    one, two = group.broker(1, in_sync_replicas=2), group.broker(2, async_learner=True)
    group.elect(one, two)
    waiting = one.put(b"00001xxx")
    group.settle()
    assert two.store.max_physical_offset() == one.store.max_physical_offset()
    assert one.auto.members.agreed == {1}
    assert not waiting.called
    group.settle(5)
    assert waiting.result.status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT


def test_two_links_of_one_slave_are_one_replica(group: AutoGroup) -> None:
    one = group.broker(1, in_sync_replicas=3, one_slave_by_default=False, slave_timeout=60_000)
    two, three = group.broker(2), group.broker(3)
    group.elect(one, two)
    waiting = one.put(b"00001xxx")
    group.settle()
    (old,) = group.network.wires
    group.network.wires.remove(old)
    old.is_up = False
    old.slave.protocol.close("unplugged")
    old.slave.lose()
    group.settle(5.5)
    assert [link.slave_id for link in one.auto.links] == [2, 2]
    assert not waiting.called
    three.auto.become_slave(1)
    three.follow(one)
    group.settle()
    assert waiting.result.status is PutMessageStatus.PUT_OK


def test_too_few_replicas_in_sync_refuse_messages(group: AutoGroup) -> None:
    one, two = group.broker(1, min_in_sync_replicas=2), group.broker(2)
    group.elect(one)
    assert one.put().status is PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
    two.auto.become_slave(1)
    two.follow(one)
    group.settle()
    group.settle(6)
    waiting = one.put(b"00001xxx")
    group.settle()
    assert waiting.result.status is PutMessageStatus.PUT_OK


def test_who_waits_hears_when_the_master_becomes_a_slave(group: AutoGroup) -> None:
    one, two = group.broker(1), group.broker(2)
    group.elect(one, two)
    fill(one, 1)
    group.settle()
    waiting = one.put(b"00001xxx")
    one.auto.become_slave(2)
    assert waiting.result.status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
    assert one.put().status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert Replicated.TIMED_OUT.value


def test_the_status_says_who_is_in_sync(group: AutoGroup) -> None:
    one, two, three = group.broker(1), group.broker(2), group.broker(3, async_learner=True)
    group.elect(one, two, three)
    group.settle(6)
    info = one.auto.runtime_info()
    assert info.in_sync_slave_nums == 1
    assert sorted(link.in_sync for link in info.ha_connection_info) == [False, True]


def test_a_replica_caught_up_when_it_reports_what_there_was(group: AutoGroup) -> None:
    members = SyncStateSet(group.broker(1).config, group.clock)
    members.own_id = 1
    members.take({1, 2}, 1)
    members.begin()
    for step in range(1, 40):
        # Never at the log's end, but never far from it.
        members.reported(2, step * 100, step * 100 + 100)
        group.clock.advance(1)
    assert members.shrunk({2}) is None
    assert members.shrunk(set()) == {1}
    group.clock.advance(20)
    assert members.shrunk({2}) == {1}
