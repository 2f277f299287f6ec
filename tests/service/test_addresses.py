"""Which address is advertised when none is set: not loopback, not a container bridge, if there is another."""

from __future__ import annotations

import pytest

from txrocketmq.config.load import Role, Settings, load_settings
from txrocketmq.errors import ConfigError
from txrocketmq.service.addresses import (
    Interface,
    advertised_host,
    choose_address,
    list_interfaces,
)
from txrocketmq.service.broker_role import numeric_address, prepare_addresses

LO = Interface("lo", ("127.0.0.1", "::1"), True, False)
DOCKER = Interface("docker0", ("172.17.0.1",), False, True)
ETH0 = Interface("eth0", ("192.0.2.5", "2001:db8::5"), False, False)
ETH1 = Interface("eth1", ("198.51.100.5",), False, False)
ONLY_V6 = Interface("eth2", ("2001:db8::6",), False, False)


@pytest.mark.parametrize(
    ("interfaces", "preferred", "chosen"),
    [
        ([LO, DOCKER, ETH0, ETH1], ["198.51.100.5"], "198.51.100.5"),
        ([LO, DOCKER, ETH0, ETH1], [], "192.0.2.5"),
        ([DOCKER, ETH0], ["172.17.0.1"], "192.0.2.5"),
        ([LO, DOCKER, ONLY_V6], [], "2001:db8::6"),
        ([LO, ONLY_V6, ETH1], ["2001:db8::6"], "198.51.100.5"),
        ([LO, DOCKER], [], "172.17.0.1"),
        ([LO], ["127.0.0.1"], "127.0.0.1"),
        ([], [], "127.0.0.1"),
    ],
)
def test_the_best_address_is_chosen(interfaces, preferred, chosen):
    assert choose_address(interfaces, preferred) == chosen


def test_the_one_set_wins_and_may_be_a_name():
    assert advertised_host("203.0.113.7", "0.0.0.0") == "203.0.113.7"
    assert advertised_host("broker.example", "127.0.0.1") == "broker.example"
    assert advertised_host("2001:db8::7", "0.0.0.0") == "[2001:db8::7]"


def test_a_bind_address_is_the_only_one_worth_telling():
    assert advertised_host("", "127.0.0.3") == "127.0.0.3"
    assert advertised_host("", "::1") == "[::1]"


def test_this_machine_has_a_loopback_interface():
    found = [interface for interface in list_interfaces() if interface.is_loopback]
    assert "127.0.0.1" in found[0].addresses


def settings(**overrides: str) -> Settings:
    return load_settings(Role.BROKER, overrides=list(overrides.items()))


def test_ports_and_addresses_are_filled_in():
    made = settings(brokerIP1="203.0.113.7", storePathRootDir="store", listenPort="0")
    prepare_addresses(made, 20911, 20912)
    entries = made.entries()
    assert entries["listenPort"] == "20911"
    assert entries["haListenPort"] == "20912"
    assert entries["brokerIP2"] == "203.0.113.7"
    assert entries["storePathRootDir"].startswith("/")


def test_names_are_resolved_for_stored_records():
    assert numeric_address("localhost") == "127.0.0.1"
    assert numeric_address("[::1]") == "::1"
    with pytest.raises(ConfigError, match="brokerIP1=no such host"):
        numeric_address("no such host")
