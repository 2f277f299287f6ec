"""A master is lost, its slave acts for it: what falls due meanwhile is delivered by the other group, each message once, whoever made the brokers.

An official master that is killed repeats by itself what it had not saved, with an official slave too: timed messages that it took less than
`timerFlushIntervalMs` ago wait twice, and for ten seconds after its start there are no offsets on the disk, so that it takes those of its
slave for older than its own. Here it is lost after that. It may still be lost before its first delay offsets are there, and before an official
slave, in its first ten seconds, has heard of its timed messages: then it takes these for older too, and repeats them once. With our slave it
does not.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from interop.harness import checks
from interop.harness.acting import BESIDE, GROUP, ActingGroups
from interop.harness.clients import Admin, Producer, PushConsumer
from interop.harness.cluster import Cluster, close_all
from interop.harness.columns import by_tier
from interop.harness.jvm import JvmSlots
from interop.harness.kinds import TransactionProducer
from interop.harness.puppet import Puppet, PuppetPool
from interop.harness.replicas import compare_stores, log_end
from interop.harness.waiting import wait_until
from txrocketmq.store.timer.checkpoint import TimerCheckpoint

pytestmark = pytest.mark.java

OURS, J5 = "ours", "official-5.4.0"
QUICK: dict[str, Any] = {"poll_namesrv_ms": 1_000, "heartbeat_ms": 1_000}
PLAIN, DELAYED, TIMED, OPEN, LATER = 20, 10, 10, 3, 5
DUE_MS = 10_000
LATER_MS = 30_000
_NUMBERS = count(1)
#: A master that comes back is to ask about open transactions if it does not know that they are elsewhere.
COMES_BACK = {"transactionCheckInterval": "3000"}
#: An official one forgets what it takes over of timed messages if it saves its own time in that moment.
OFFICIAL = {"timerFlushIntervalMs": "60000"}
#: Master, slave, the broker beside them. The last two have the official slave, for comparison.
CELLS = by_tier(
    [(OURS, OURS, J5)],
    [(J5, OURS, J5), (OURS, OURS, OURS), (J5, OURS, OURS), (OURS, J5, J5), (J5, J5, OURS)],
)


@pytest.fixture
def puppet(puppets: PuppetPool) -> Any:
    """Clients of the 5.x line."""
    found = puppets.get("5.4.0", "JSON")
    with found.in_use():
        yield found


@pytest.mark.parametrize("makes", CELLS, ids="-".join)
def test_what_falls_due_while_the_master_is_away_is_delivered_once(
    makes: tuple[str, str, str], puppet: Puppet, jvm_slots: JvmSlots, clusters: dict[str, Cluster]
) -> None:
    close_all(clusters)
    topic = f"Acting-{os.getpid()}-{next(_NUMBERS)}"
    with ActingGroups(jvm_slots, makes) as groups:
        try:
            _lose_and_get_back(groups, puppet, topic)
        except BaseException as failure:
            failure.add_note(groups.logs())
            raise


def _timed_saved(store: Path) -> int:
    """How many timed messages a broker knows, after a kill too, that it has taken."""
    found = TimerCheckpoint.decode((store / "config" / "timercheck").read_bytes())
    return found.queue_offset if found else 0


def _lose_and_get_back(groups: ActingGroups, puppet: Puppet, topic: str) -> None:
    admin = Admin(puppet, groups.namesrv)
    admin.wait_broker(GROUP)
    admin.wait_broker(BESIDE)
    admin.create_topic(groups.master.broker_address, topic, 4)
    admin.wait_route(topic)
    master, slave = groups.master.store, groups.slave.store
    master_is_ours = groups.master.provider == OURS
    outcomes = ["unknown:commit"]
    group = topic + "-c"
    with (
        TransactionProducer(puppet, groups.namesrv, topic + "-t", outcomes, **QUICK) as open_ones,
        Producer(puppet, groups.namesrv, topic + "-p", **QUICK) as producer,
        PushConsumer(puppet, groups.namesrv, group, topic, **QUICK) as consumer,
    ):
        first = 0

        def send(number: int, **kind: Any) -> set[int]:
            nonlocal first
            report = producer.send(topic, topic, number, first=first, size=200, **kind)
            checks.all_was_acknowledged(report, number)
            first += number
            return set(range(first - number, first))

        plain = send(PLAIN)
        consumer.wait_for_all(plain)
        if not master_is_ours:
            saved = master / "config" / "consumerOffset.json"
            wait_until(saved.exists, "the master has saved offsets")
        due = send(TIMED, timed=[f"TIMER_DELIVER_MS=+{DUE_MS}"])
        due |= send(DELAYED, delay_levels=[3])
        later = send(LATER, timed=[f"TIMER_DELIVER_MS=+{LATER_MS}"])
        open_ones.send(topic, topic, OPEN, first=first, size=200)
        opened = set(range(first, first + OPEN))
        due |= opened
        first += OPEN
        wait_until(lambda: log_end(slave) == log_end(master) > 0, "the slave has all")
        if not master_is_ours:
            wait_until(lambda: _timed_saved(master) == TIMED + LATER, "the master has saved them")
        groups.kill_master()
        admin.create_topic(groups.beside.broker_address, topic, 4)
        rows = [row for row in consumer.wait_for_all(due) if row.seq in due]
        # On a slow machine some may have been due before the master was lost.
        elsewhere = {row.seq for row in rows if row.broker == BESIDE}
        assert opened < elsewhere, (sorted(opened), sorted(elsewhere))
        assert log_end(slave) == log_end(master)
        groups.master.change_settings(COMES_BACK if master_is_ours else {**COMES_BACK, **OFFICIAL})
        groups.master.start_broker()
        admin.wait_broker(GROUP)
        consumer.wait_for_all(later)
        # What comes now comes last: by then whatever the master would repeat has come.
        last = send(8, delay_levels=[2])
        rows = consumer.wait_for_all(last)
    times = Counter(row.seq for row in rows)
    assert times.keys() == plain | due | later | last
    repeated = {seq for seq, number in times.items() if number > 1}
    if OURS in (groups.master.provider, groups.slave.provider):
        assert not repeated, sorted(repeated)
    else:
        # An official pair delivers again what its slave delivered; where the master is slow to come back, that is the later ones too.
        assert repeated <= (due | later) - opened, sorted(repeated)
        assert max(times.values()) <= 2
    groups.stop_group()
    compare_stores(master, slave)
