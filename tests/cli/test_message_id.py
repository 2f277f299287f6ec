"""``txrocketmq message-id``: what an id tells, without asking anybody."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from txrocketmq.cli.main import main
from txrocketmq.cli.message_id import readings
from txrocketmq.errors import RecordError
from txrocketmq.model.message_id import UniqueIds, offset_message_id

NOW_MS = 1_795_974_041_985


@pytest.mark.parametrize(
    ("host", "address"), [("192.0.2.7", "192.0.2.7:10911"), ("2001:db8::1", "[2001:db8::1]:10911")]
)
def test_a_brokers_id_names_broker_and_place(host: str, address: str) -> None:
    first, *_ = readings(offset_message_id(host, 10911, 12345))
    assert first == f"a broker's id: stored by {address} at physical offset 12345"


def test_a_clients_id_names_machine_process_and_time() -> None:
    made = UniqueIds("192.0.2.10", process_id=4242, process_value=0x4E0E2F2A).next(NOW_MS)
    [line] = readings(made, NOW_MS + 1000)
    assert "made at 192.0.2.10 by process 4242" in line
    assert f".{NOW_MS % 1000:03d}, counter 0" in line


def test_official_ids_are_read() -> None:
    """As ``mqadmin DecodeMessageId`` prints the address."""
    [line] = readings("C000020A5FF54E0E2F2A93FD29F90006")
    assert "made at 192.0.2.10 by process 24565" in line
    assert line.endswith("counter 6")


def test_the_command_says_it() -> None:
    done = CliRunner().invoke(main, ["message-id", offset_message_id("192.0.2.7", 10911, 7)])
    assert (done.exit_code, len(done.output.splitlines())) == (0, 2)
    bad = CliRunner().invoke(main, ["message-id", "no id"])
    assert bad.exit_code == 1
    with pytest.raises(RecordError):
        readings("no id")
