"""What becomes of a broker under a controller whose disk refuses a file for a while?"""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from controller_world import Group

from txrocketmq.testing.disk import MemoryDisk


class RefusingDisk(MemoryDisk):
    """Refuses to replace files whose names have a word in them."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: str | None = None

    def replace_file(self, path: str, data: bytes, keep_backup: bool) -> None:
        if self.refused is not None and self.refused in path:
            raise OSError(errno.EIO, "Input/output error", path)
        super().replace_file(path, data, keep_backup)


@pytest.fixture
def group() -> Iterator[Group]:
    made = Group()
    yield made
    for broker in made.brokers.values():
        broker.stop()


@pytest.mark.parametrize("name", ["brokerIdentity", "brokerIdentity-temp", "epochFile", ".led"])
def test_who_cannot_write_down_who_it_is_comes_into_the_group_once_it_can(
    group: Group, name: str
) -> None:
    disk = RefusingDisk()
    disk.refused = name
    one = group.start(1, disk)
    assert group.registrations == []
    group.settle(10)
    disk.refused = None
    group.settle(10)
    assert one.store_config.broker_role == "SYNC_MASTER"
    assert [(address, broker_id) for address, broker_id, _ in group.registrations] == [
        ("192.0.2.1:10911", 0)
    ]
    assert one.core.replication.ha.epochs.last_epoch == group.controller.epoch
    assert one.connect(45_001).send(body=b"hello")


@pytest.mark.parametrize("name", ["epochFile", ".led"])
def test_a_slave_that_cannot_write_down_its_term_leads_once_it_can(group: Group, name: str) -> None:
    disk = RefusingDisk()
    one = group.start(1)
    two = group.start(2, disk)
    assert one.connect(45_000).send(body=b"before")
    group.settle(3)
    disk.refused = name
    group.kill(1)
    group.controller.elect(2)
    group.notify(2)
    # Nothing may be written in a term that nobody could make out later.
    assert two.store_config.broker_role == "SLAVE"
    group.settle(10)
    assert two.store_config.broker_role == "SLAVE"
    disk.refused = None
    group.settle(10)
    assert two.store_config.broker_role == "SYNC_MASTER"
    assert two.core.replication.ha.epochs.last_epoch == group.controller.epoch
    assert two.connect(45_001).send(body=b"after")
