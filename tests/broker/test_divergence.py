"""Is a slave's log the beginning of its master's? What the master's answers say of it."""

from __future__ import annotations

import pytest
from fakes import Asked, FakeClient
from small_broker import SmallBroker
from twisted.internet.defer import Deferred

from txrocketmq.broker.replication.divergence import DivergenceCheck
from txrocketmq.testing.disk import MemoryDisk

MASTER = "192.0.2.1:10911"


def broker_with(*sizes: int) -> SmallBroker:
    """Its log has messages of such sizes; they are the same messages where the sizes are."""
    broker = SmallBroker(MemoryDisk())
    peer = broker.connect(41_000)
    for number, size in enumerate(sizes):
        peer.send(
            body=b"%d" % number + b"x" * size, born_timestamp=1, properties="UNIQ_KEY\x01A\x02"
        )
    return broker


def fault(slave: SmallBroker, master: SmallBroker) -> str | None:
    client = FakeClient()
    peer = master.connect(41_001)

    def to_master(asked: Asked) -> None:
        command = asked.command
        answer = peer.ask(command.code, None, command.body, ext_fields=command.ext_fields)
        answer.opaque = command.opaque
        asked.deferred.callback(answer)

    client.behaviour = {MASTER: to_master}
    found: list[str | None] = []
    check = DivergenceCheck(slave.store, client)
    Deferred.fromCoroutine(check.fault(MASTER)).addBoth(found.append)
    return found[0]


@pytest.mark.parametrize(
    ("ours", "theirs", "is_told"),
    [
        ((), (10,), False),
        ((10,), (10,), False),
        ((10, 20), (10, 20, 30), False),
        # It ends before, or lacks it: the link tells that.
        ((10, 20, 30), (10, 20), False),
        # Another message at the same place.
        ((10, 20), (10, 21, 30), True),
        # The same length in other pieces: no message begins where the last one here does.
        ((10, 100, 150), (10, 150, 100), True),
        ((10, 100, 150), (10, 150, 100, 500), True),
    ],
)
def test_a_log_that_went_another_way_is_noticed(
    ours: tuple[int, ...], theirs: tuple[int, ...], is_told: bool
) -> None:
    slave, master = broker_with(*ours), broker_with(*theirs)
    told = fault(slave, master)
    assert ("different ways" in (told or "")) is is_told
    slave.stop()
    master.stop()
