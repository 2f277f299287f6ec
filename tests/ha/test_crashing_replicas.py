"""Schedules from seeds: a synchronous master and two slaves whose machines fail at any moment, over a network that is no better.

Checked after every step: replicas are the beginning of their master's log, and what a sender was told is safe is at every slave that
had it then and has not lost power since. In the end logs and queues are the same.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from ha_network import Network, Replica, settle, started_clock

from txrocketmq.codec.record import decode_records
from txrocketmq.store.results import PutMessageResult, PutMessageStatus
from txrocketmq.testing.simdisk import SimulatedDisk

SEEDS = 60


class Cluster:
    """One schedule."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.network = Network()
        self.clock = started_clock()
        self.sent = 0
        #: What senders were told is safe, by body: the slaves that had it then and have not lost power since.
        self.safe: dict[bytes, set[str]] = {}
        flush = self.random.choice(("SYNC_FLUSH", "ASYNC_FLUSH"))
        self.settings: dict[str, Any] = {
            "flush_disk_type": flush,
            "ha_transfer_batch_size": self.random.choice((300, 4000, 32_768)),
        }
        self.master = self.start("192.0.2.1", broker_role="SYNC_MASTER")
        self.slaves = [self.start_slave(f"192.0.2.{n}") for n in (2, 3)]
        settle(self.network, self.clock)

    def start(self, host: str, disk: SimulatedDisk | None = None, **settings: Any) -> Replica:
        disk = disk or SimulatedDisk(Random(self.random.random()))
        return Replica(self.network, self.clock, host, disk, **{**self.settings, **settings})

    def start_slave(self, host: str, disk: SimulatedDisk | None = None) -> Replica:
        slave = self.start(host, disk, broker_role="SLAVE")
        slave.follow(self.master)
        return slave

    def send(self) -> None:
        self.sent += 1
        body = b"%06d" % self.sent + b"x" * self.random.randrange(1500)
        result = self.master.put(body, queue_id=self.sent % 2)
        if isinstance(result, PutMessageResult):
            self.heard(result, body)
        else:
            result.addCallback(self.heard, body)

    def heard(self, result: PutMessageResult, body: bytes) -> None:
        if result.status is PutMessageStatus.PUT_OK:
            end = result.physical_offset + result.wrote_bytes
            holders = {
                slave.address[0]
                for slave in self.slaves
                if slave.store.min_physical_offset() <= result.physical_offset
                and slave.store.max_physical_offset() >= end
            }
            assert holders, f"{body[:6]!r} was acknowledged and no slave has it"
            self.safe[body] = holders

    def fail_a_slave(self) -> None:
        number = self.random.randrange(len(self.slaves))
        slave = self.slaves[number]
        host, disk = slave.address[0], slave.disk
        how = self.random.choice(("power", "kill"))
        self.network.listening.pop(slave.address, None)
        for wire in [w for w in self.network.wires if w.slave.protocol.link in self.links(slave)]:
            wire.cut()
        slave.ha.stop()
        disk.end(how)
        for timer in list(slave.store._timers.values()):
            timer.cancel()
        slave.store._serving = False
        disk.restart()
        if how == "power":
            for holders in self.safe.values():
                holders.discard(host)
        self.slaves[number] = self.start_slave(host, disk)

    @staticmethod
    def links(slave: Replica) -> list[Any]:
        return [slave.ha.follower.link]

    def step(self) -> None:
        act = self.random.random()
        if act < 0.25:
            for _ in range(self.random.randrange(1, 5)):
                self.send()
        elif act < 0.28:
            self.fail_a_slave()
        elif act < 0.31 and self.network.wires:
            self.random.choice(self.network.wires).cut()
        elif act < 0.36:
            self.clock.advance(self.random.choice((0.001, 0.01, 0.6, 5.1)))
        elif act < 0.38:
            self.random.choice(self.slaves).disk.write_back()
        else:
            self.network.carry_some(self.random)
        self.check()

    def check(self) -> None:
        whole = self.master.log()
        for slave in self.slaves:
            start = slave.store.min_physical_offset()
            assert whole[start:].startswith(slave.log()), slave.address
        bodies = {slave.address[0]: held(slave) for slave in self.slaves}
        for body, holders in self.safe.items():
            for host in holders:
                assert body in bodies[host], f"{body[:6]!r} is not at {host} any more"

    def end(self) -> None:
        """All is well at last: the slaves have what the master has, from where they begin (one that lost its whole log to a power
        failure began again with the master's last file)."""
        settle(self.network, self.clock, 6)
        self.check()
        whole = self.master.log()
        for slave in self.slaves:
            assert slave.log() == whole[slave.store.min_physical_offset() :]
            start = slave.store.min_physical_offset()
            for key, units in slave.units().items():
                theirs = dict(self.master.units()[key])
                assert all(theirs[offset] == records for offset, records in units), key
            if start == 0:
                assert self.safe.keys() <= held(slave)


def held(replica: Replica) -> set[bytes]:
    """The bodies of all messages of a log."""
    log = replica.store.commit_log
    found = set()
    for offset, head in log.scan(replica.store.min_physical_offset()):
        (record,) = decode_records(log.read(offset, head.total_size))
        found.add(record.body)
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_acknowledged_is_never_lost(seed: int) -> None:
    cluster = Cluster(seed)
    for _ in range(120):
        cluster.step()
    cluster.end()
