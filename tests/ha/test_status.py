"""What does replication tell of itself?"""

from __future__ import annotations

from ha_network import Pair


def test_a_master_shows_its_slaves(pair: Pair) -> None:
    master = pair.master()
    pair.slave(master)
    pair.settle()
    for _ in range(5):
        master.put(b"x" * 100)
    info = master.ha.runtime_info()
    end = master.store.max_physical_offset()
    assert info.master
    assert info.master_commit_log_max_offset == end
    assert info.in_sync_slave_nums == 1
    (slave,) = info.ha_connection_info
    assert slave.addr == "192.0.2.2:40001"
    assert (slave.slave_ack_offset, slave.diff, slave.transfer_from_where) == (0, end, 0)
    pair.settle(1.2)
    (slave,) = master.ha.runtime_info().ha_connection_info
    assert (slave.slave_ack_offset, slave.diff, slave.transfer_from_where) == (end, 0, end)
    assert slave.transferred_byte_in_second > end


def test_a_slave_shows_its_master(pair: Pair) -> None:
    master = pair.master()
    slave = pair.slave(master)
    pair.settle(0.5)
    master.put(b"x" * 100)
    pair.settle(1.2)
    info = slave.ha.runtime_info()
    assert not info.master
    client = info.ha_client_runtime_info
    assert client.master_addr == "192.0.2.1:10912"
    assert client.max_offset == master.store.max_physical_offset()
    assert abs(client.last_read_timestamp - 1_700_000_000_000) < 5000
    assert abs(client.last_write_timestamp - 1_700_000_000_000) < 5000


def test_a_slave_without_a_link_shows_that_too(pair: Pair) -> None:
    slave = pair.slave()
    client = slave.ha.runtime_info().ha_client_runtime_info
    assert (client.master_addr, client.last_read_timestamp) == (None, 0)


def test_slaves_that_went_away_are_not_shown(pair: Pair) -> None:
    master = pair.master()
    slave = pair.slave(master)
    pair.settle()
    slave.stop()
    pair.settle()
    assert master.ha.runtime_info().ha_connection_info == []
    assert master.store.putter.replicas is None
