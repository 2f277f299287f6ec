"""What does a send wait for, and what is it told?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ha_network import Pair, Replica, Wire
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from txrocketmq.codec.haframes import REPORT
from txrocketmq.ha.acks import AckWaiters
from txrocketmq.store.results import PutMessageResult, PutMessageStatus

OK = PutMessageStatus.PUT_OK


def outcome(result: Any) -> PutMessageStatus | None:
    """The status that a sender heard, None while it waits."""
    if isinstance(result, PutMessageResult):
        return result.status
    found: list[PutMessageResult] = []
    result.addCallback(lambda value: (found.append(value), value)[1])
    return found[0].status if found else None


def sync_master(pair: Pair, **settings: Any) -> Replica:
    return pair.master(broker_role="SYNC_MASTER", **settings)


# ----------------------------------------------------------------- the 4.x rule


def test_an_async_master_waits_for_nobody(pair: Pair) -> None:
    master = pair.master()
    assert outcome(master.put()) is OK
    pair.slave(master)
    pair.settle()
    assert outcome(master.put()) is OK


def test_without_a_slave_the_sender_hears_it_at_once(pair: Pair) -> None:
    master = sync_master(pair)
    result = master.put()
    assert outcome(result) is PutMessageStatus.SLAVE_NOT_AVAILABLE
    assert master.store.max_offset("TopicTest", 0) == 1


def test_all_whom_a_report_answers_are_answered_together(pair: Pair) -> None:
    master = sync_master(pair)
    pair.slave(master)
    pair.settle()
    results = [master.put() for _ in range(3)]
    told: list[list[PutMessageStatus | None]] = []

    def together(work: Callable[[], None]) -> None:
        work()
        told.append([outcome(result) for result in results])

    master.ha.answer_together = together
    pair.settle()
    assert told[0] == [OK] * 3


def test_the_sender_waits_for_the_slaves_report(pair: Pair) -> None:
    master = sync_master(pair)
    slave = pair.slave(master)
    pair.settle()
    result = master.put()
    wire = pair.network.wires[0]
    pair.clock.advance(0)
    assert outcome(result) is None
    wire.carry(wire.master)
    assert slave.store.max_physical_offset() == master.store.max_physical_offset()
    assert outcome(result) is None
    wire.carry(wire.slave)
    assert outcome(result) is OK


def test_a_part_of_the_message_at_the_slave_is_not_enough(pair: Pair) -> None:
    master = sync_master(pair, ha_transfer_batch_size=50)
    pair.slave(master)
    pair.settle()
    result = master.put(b"x" * 300)
    pair.clock.advance(0)
    wire = pair.network.wires[0]
    for _ in range(5):
        wire.carry(wire.master, 62)
        wire.carry(wire.slave)
    assert outcome(result) is None
    pair.settle()
    assert outcome(result) is OK


def test_messages_that_need_not_wait_do_not(pair: Pair) -> None:
    master = sync_master(pair)
    assert outcome(master.put(wait_store_msg_ok=False)) is OK


def test_a_slave_that_is_too_far_behind_is_none(pair: Pair) -> None:
    master = sync_master(pair, ha_max_gap_not_in_sync=2000)
    for _ in range(10):
        master.put(b"x" * 700)
    pair.slave(master)
    assert outcome(master.put()) is PutMessageStatus.SLAVE_NOT_AVAILABLE
    pair.settle()
    result = master.put()
    pair.settle()
    assert outcome(result) is OK


def test_a_slave_that_has_not_reported_yet_is_none(pair: Pair) -> None:
    master = sync_master(pair)
    assert master.ha.slave_connected("192.0.2.9:1", lambda data: None, lambda reason: None)
    assert outcome(master.put()) is PutMessageStatus.SLAVE_NOT_AVAILABLE


def test_a_slave_that_is_silent_costs_slave_timeout(pair: Pair) -> None:
    master = sync_master(pair, slave_timeout=500)
    pair.slave(master)
    pair.settle()
    result = master.put()
    pair.clock.advance(0.499)
    assert outcome(result) is None
    pair.clock.advance(0.002)
    assert outcome(result) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
    pair.settle()
    assert outcome(result) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT


def test_reports_of_what_was_never_sent_acknowledge_nothing(pair: Pair) -> None:
    master = sync_master(pair)
    pair.slave(master)
    pair.settle()
    result = master.put()
    from txrocketmq.codec.haframes import REPORT

    pair.network.wires[0].slave.write(REPORT.pack(10**9))
    wire = pair.network.wires[0]
    wire.carry(wire.slave)
    assert outcome(result) is None
    assert not wire.is_up


def test_an_empty_slave_acknowledges_nothing_of_older_files(pair: Pair) -> None:
    """It reports the end of the log and has its last file only."""
    master = sync_master(pair, in_sync_replicas=2, one_slave_by_default=False)
    early = master.put(b"early")
    for _ in range(100):
        master.put(b"x" * 900, wait_store_msg_ok=False)
    late = master.put(b"late")
    assert master.store.last_file_offset() > 0
    pair.slave(master)
    pair.settle()
    assert (outcome(early), outcome(late)) == (None, OK)
    pair.settle(3.1)
    assert outcome(early) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT


def test_a_batch_waits_as_a_whole(pair: Pair) -> None:
    from ha_network import message

    from txrocketmq.codec.record import encode_batch

    master = sync_master(pair)
    pair.slave(master)
    pair.settle()
    items = [(0, b"item %d" % number, b"") for number in range(4)]
    result = master.store.put_batch(message(encode_batch(items)))
    assert outcome(result) is None
    pair.settle()
    assert outcome(result) is OK


# ----------------------------------------------------------------- the 5.x rule


def test_one_replica_that_was_asked_for_is_the_master_itself(pair: Pair) -> None:
    master = sync_master(pair, one_slave_by_default=False)
    assert outcome(master.put()) is OK


def test_the_number_that_was_set_is_waited_for(pair: Pair) -> None:
    master = sync_master(pair, in_sync_replicas=3, one_slave_by_default=False)
    result = master.put()
    pair.slave(master)
    pair.settle()
    assert outcome(result) is None
    pair.slave(master, "192.0.2.3")
    pair.settle()
    assert outcome(result) is OK


def abandoned_link(pair: Pair, master: Replica, slave: Replica) -> Wire:
    """The slave follows anew; its master still takes the old link for a good one."""
    (old,) = pair.network.wires
    pair.network.wires.remove(old)
    old.is_up = False
    old.slave.protocol.close("unplugged")
    old.slave.lose()
    pair.settle(5.1)
    assert len(master.ha.links) == 2
    return old


def test_two_links_of_one_slave_are_one_replica(pair: Pair) -> None:
    """The slave reported a message, its link broke without the master's noticing, and it is there again: that is one copy, not two."""
    master = sync_master(pair, in_sync_replicas=3, one_slave_by_default=False, slave_timeout=60_000)
    slave = pair.slave(master)
    pair.settle()
    result = master.put()
    pair.settle()
    assert master.ha.links[0].ack_offset == master.store.max_physical_offset()
    old = abandoned_link(pair, master, slave)
    assert [link.ack_offset for link in master.ha.links] == [master.store.max_physical_offset()] * 2
    assert outcome(result) is None
    # Bytes that were still under way prove nothing.
    old.master.protocol.dataReceived(REPORT.pack(master.store.max_physical_offset()))
    assert outcome(result) is None
    pair.slave(master, "192.0.2.3")
    pair.settle()
    assert outcome(result) is OK


def test_two_slaves_of_one_machine_are_two_replicas(pair: Pair) -> None:
    master = sync_master(pair, in_sync_replicas=3, one_slave_by_default=False, slave_timeout=60_000)
    pair.slave(master)
    pair.settle()
    pair.slave(master)
    pair.settle()
    result = master.put()
    pair.settle()
    assert outcome(result) is OK
    # A third one on that machine: what is sent from now on tells them apart again.
    pair.slave(master)
    pair.settle()
    result = master.put()
    pair.settle()
    assert outcome(result) is OK


def test_a_stop_waits_for_slaves_of_one_machine_no_longer_than_they_need(pair: Pair) -> None:
    master = sync_master(pair, in_sync_replicas=3, one_slave_by_default=False)
    master.put(wait_store_msg_ok=False)
    pair.slave(master)
    pair.settle()
    pair.slave(master)
    pair.settle()
    drained: list[bool] = []
    master.ha.when_drained(3_000).addCallback(drained.append)
    assert drained == [True]


def test_too_few_of_them_in_time(pair: Pair) -> None:
    master = sync_master(pair, in_sync_replicas=3, one_slave_by_default=False)
    pair.slave(master)
    pair.settle()
    result = master.put()
    pair.settle(3.1)
    assert outcome(result) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT


def acting(pair: Pair, alive: int, **settings: Any) -> Replica:
    master = sync_master(
        pair, enable_slave_acting_master=True, one_slave_by_default=False, **settings
    )
    master.ha.alive_replicas = alive
    return master


def test_too_few_in_sync_refuse_the_message(pair: Pair) -> None:
    master = acting(pair, 2, in_sync_replicas=2)
    assert outcome(master.put()) is PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
    assert master.store.max_physical_offset() == 0
    assert outcome(master.put(wait_store_msg_ok=False)) is OK
    pair.slave(master)
    pair.settle()
    result = master.put()
    pair.settle()
    assert outcome(result) is OK


def test_automatic_numbers_go_down_to_the_least(pair: Pair) -> None:
    master = acting(
        pair, 1, in_sync_replicas=2, min_in_sync_replicas=1, enable_auto_in_sync_replicas=True
    )
    assert outcome(master.put()) is OK
    strict = pair.add(
        "192.0.2.5",
        broker_role="SYNC_MASTER",
        enable_slave_acting_master=True,
        in_sync_replicas=3,
        min_in_sync_replicas=2,
        enable_auto_in_sync_replicas=True,
        one_slave_by_default=False,
    )
    assert outcome(strict.put()) is PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH


# ----------------------------------------------------------------- with the disk


def test_disk_and_slave_are_both_waited_for(pair: Pair) -> None:
    master = sync_master(pair, flush_disk_type="SYNC_FLUSH")
    pair.slave(master)
    pair.settle()
    result = master.put()
    pair.clock.advance(0)
    assert outcome(result) is None
    pair.settle()
    assert outcome(result) is OK


def test_the_slaves_fault_is_told_before_the_disks(pair: Pair) -> None:
    master = sync_master(pair, flush_disk_type="SYNC_FLUSH", sync_flush_timeout=100)
    pair.slave(master)
    pair.settle()
    master.store.flusher.when_flushed = lambda end, timeout: stopped()  # type: ignore[method-assign]
    result = master.put()
    pair.clock.advance(3.1)
    assert outcome(result) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
    result = master.put()
    pair.settle()
    assert outcome(result) is PutMessageStatus.FLUSH_DISK_TIMEOUT


def stopped() -> Deferred[bool]:
    done: Deferred[bool] = Deferred()
    done.callback(False)
    return done


def test_a_stop_answers_those_who_wait(pair: Pair) -> None:
    master = sync_master(pair)
    pair.slave(master)
    pair.settle()
    result = master.put()
    master.ha.stop()
    assert outcome(result) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT


# ----------------------------------------------------------------- waiters by themselves


def test_waiters_are_answered_in_order_and_expire_alone() -> None:
    clock, safe = Clock(), {2: 0, 3: 0}
    waiters = AckWaiters(
        clock, lambda replicas: safe[replicas], lambda replicas, end: safe[replicas] >= end
    )
    heard: list[tuple[str, bool]] = []

    def wait(name: str, offset: int, replicas: int, timeout_ms: int) -> None:
        waiters.wait(offset, replicas, timeout_ms).addCallback(
            lambda done: heard.append((name, done))
        )

    wait("a", 10, 2, 1000)
    wait("b", 20, 2, 1000)
    wait("c", 20, 3, 1000)
    safe[2] = 15
    waiters.acknowledged()
    assert heard == [("a", True)]
    clock.advance(0.5)
    wait("d", 30, 2, 1000)
    clock.advance(0.6)
    assert sorted(heard[1:]) == [("b", False), ("c", False)]
    assert len(waiters) == 1
    clock.advance(0.5)
    assert heard[-1] == ("d", False)
    assert clock.getDelayedCalls() == []


@pytest.mark.parametrize("closed", [False, True])
def test_what_is_safe_already_needs_no_waiting(closed: bool) -> None:
    waiters = AckWaiters(Clock(), lambda replicas: 10, lambda replicas, end: end <= 10)
    heard: list[bool] = []
    if closed:
        waiters.close()
    waiters.wait(10, 2, 1000).addCallback(heard.append)
    waiters.wait(11, 2, 1000).addCallback(heard.append)
    assert heard == ([True, False] if closed else [True])
