"""What can a peer on a replication link do that means no good, or is not well? It harms itself alone."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from auto_network import AutoGroup, AutoReplica
from ha_network import End, Replica, Wire, settle
from log_watch import logged
from twisted.internet.protocol import Factory, Protocol

from txrocketmq.codec.autoswitch import (
    MAX_ENTRIES,
    MasterFrames,
    Piece,
    SlaveHandshake,
    encode_master_handshake,
    encode_piece,
    encode_report,
    encode_slave_handshake,
)
from txrocketmq.codec.epochfile import EpochEntry
from txrocketmq.errors import StoreError
from txrocketmq.ha.epochs import EpochCache
from txrocketmq.ha.service import MAX_SLAVES
from txrocketmq.testing.disk import MemoryDisk


@pytest.fixture
def group() -> AutoGroup:
    return AutoGroup()


class Peer(Protocol):
    """The other end of a link: remembers what comes."""

    def __init__(self) -> None:
        self.data = b""
        self.is_lost = False

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Any = None) -> None:
        self.is_lost = True

    def write(self, data: bytes) -> None:
        transport: Any = self.transport
        transport.write(data)


class Peers(Factory):
    """Takes the links of slaves as their master does, and keeps them."""

    def __init__(self) -> None:
        self.made: list[Peer] = []

    def buildProtocol(self, addr: object) -> Peer:
        peer = Peer()
        self.made.append(peer)
        return peer


def dial(master: Replica) -> tuple[Peer, Wire]:
    """A link of nobody known to a master."""
    factory: Any = Peers()
    master.network.dial(*master.address, factory, "192.0.2.66")
    return factory.made[0], master.network.wires[-1]


def play_master(group: AutoGroup, slave: AutoReplica) -> Peer:
    """Be the master that a slave follows."""
    factory = Peers()
    group.network.listening["192.0.2.66", 10912] = factory
    slave.ha.follower.set_master_address("192.0.2.66:10912")
    group.settle()
    return factory.made[-1]


SHAKE = encode_slave_handshake(SlaveHandshake(9, False, False))


def test_a_slave_that_says_who_it_is_a_thousand_times_gets_few_answers(
    group: AutoGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, write = 0, End.write

    def count(end: End, data: bytes) -> None:
        nonlocal written
        written += len(data) * (end.name == "master")
        write(end, data)

    monkeypatch.setattr(End, "write", count)
    one = group.broker(1)
    group.elect(one)
    one.auto.epochs.entries = [EpochEntry(number + 1, number) for number in range(900)]
    peer, wire = dial(one)
    for _ in range(50):
        peer.write(SHAKE * 400)
        wire.carry(wire.slave)
    assert peer.is_lost
    assert 1 << 16 < written < 1 << 17


def test_a_slave_that_says_it_again_while_it_waits_is_answered(group: AutoGroup) -> None:
    one = group.broker(1)
    group.elect(one)
    peer, _ = dial(one)
    for _ in range(2):
        peer.write(SHAKE)
        group.network.carry_all()
    reader, found = MasterFrames(), 0
    reader.feed(peer.data)
    while reader.peek() is not None:
        reader.drop()
        found += 1
    assert found == 2
    peer.write(encode_report(0))
    group.network.carry_all()
    assert [link.slave_id for link in one.auto.links] == [9]


@pytest.mark.parametrize("at_once", [True, False])
def test_nobody_becomes_somebody_else_behind_its_first_report(
    group: AutoGroup, at_once: bool
) -> None:
    one, two = group.broker(1), group.broker(2)
    group.elect(one, two)
    peer, _ = dial(one)
    said = [SHAKE, encode_report(0), encode_slave_handshake(SlaveHandshake(2, False, False))]
    for piece in [b"".join(said)] if at_once else said:
        peer.write(piece)
        group.network.carry_all()
    assert peer.is_lost
    assert [link.slave_id for link in one.auto.links] == [2]


@pytest.mark.parametrize(
    ("end", "entries"),
    [(-5, [EpochEntry(1, 0)]), (10**6, [EpochEntry(n, n) for n in range(MAX_ENTRIES + 1)])],
)
def test_a_handshake_that_cannot_be_harms_nothing(
    group: AutoGroup, end: int, entries: list[EpochEntry]
) -> None:
    one, two = group.broker(1), group.broker(2)
    group.elect(one, two)
    one.put(b"x" * 500)
    group.settle()
    log, terms = two.log(), list(two.auto.epochs.entries)
    two.auto.become_slave(group.epoch)
    peer = play_master(group, two)
    head = encode_master_handshake(end, entries[:1])
    body = b"".join(encode_master_handshake(0, [entry])[-12:] for entry in entries)
    with logged() as seen:
        peer.write(head[:4] + (12 * len(entries)).to_bytes(4, "big") + head[8:20] + body)
        group.network.carry_all()
    assert peer.is_lost
    assert max(map(len, map(str, seen)), default=0) < 2000
    assert (two.log(), two.auto.epochs.entries) == (log, terms)


@pytest.mark.parametrize("start", [-1, 0, 40])
def test_a_term_that_would_begin_inside_of_what_is_here_takes_no_other_s_place(
    group: AutoGroup, start: int
) -> None:
    one, two = group.broker(1), group.broker(2)
    group.elect(one, two)
    one.put(b"x" * 500)
    group.settle()
    terms, end = list(two.auto.epochs.entries), two.store.max_physical_offset()
    assert end > 40
    two.auto.become_slave(group.epoch)
    peer = play_master(group, two)
    peer.write(encode_master_handshake(end, terms))
    peer.write(encode_piece(Piece(end, 99, start, end, b"")))
    group.network.carry_all()
    assert peer.is_lost
    assert two.auto.epochs.entries == terms
    two.follow(one)
    group.settle(6)
    one.put(b"y" * 500)
    group.settle()
    assert two.log() == one.log()


def test_a_term_that_the_disk_refuses_is_not_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    cache = EpochCache(disk, "/store/epochs")
    cache.begin(1, 0)

    def refuse(path: str, data: bytes, keep_backup: bool) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "replace_file", refuse)
        with pytest.raises(StoreError, match="cannot be written"):
            cache.append(EpochEntry(2, 100))
    assert cache.entries == [EpochEntry(1, 0)]
    assert cache.append(EpochEntry(2, 100))
    again = EpochCache(disk, "/store/epochs")
    again.load()
    assert again.entries == [EpochEntry(1, 0), EpochEntry(2, 100)]


def test_links_that_say_nothing_keep_no_slave_away(group: AutoGroup) -> None:
    master = Replica(group.network, group.clock, "192.0.2.1", broker_role="ASYNC_MASTER")
    slave = Replica(group.network, group.clock, "192.0.2.2", broker_role="SLAVE")
    master.put(b"x" * 500)
    peers = [dial(master)[0] for _ in range(MAX_SLAVES)]
    for peer in peers:
        # Half of a report.
        peer.write(bytes(4))
    group.network.carry_all()
    slave.follow(master)
    settle(group.network, group.clock)
    assert slave.log() == master.log()
    assert [peer.is_lost for peer in peers] == [True] + [False] * (MAX_SLAVES - 1)
    for peer in peers[1:]:
        peer.write(bytes(4))
    group.network.carry_all()
    # These are slaves by all that one can see: they stay.
    assert dial(master)[0].is_lost
    assert len(master.ha.links) == MAX_SLAVES
    slave.stop()
    master.stop()
