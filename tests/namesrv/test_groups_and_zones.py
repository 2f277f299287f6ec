"""What replica groups and zones see of the name server: acting masters, notices of the first member, zones, links that close together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from log_watch import logged
from name_server import World, register, topics

from txrocketmq.codec.headers import GetRouteInfoRequestHeader, UnRegisterBrokerRequestHeader
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.names import SYNC_BROKER_MEMBER_GROUP_PREFIX

MASTER, SLAVE, SECOND = "192.0.2.10:10911", "192.0.2.11:10911", "192.0.2.12:10911"


def route(world: World, topic: str = "TopicA", **ext_fields: str) -> dict[str, Any] | None:
    header = GetRouteInfoRequestHeader(topic=topic)
    answer = world.connect().ask(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, header, ext_fields=ext_fields or None
    )
    if answer.code:
        return None
    found: dict[str, Any] = json.loads(answer.body)
    return found


def members(world: World, topic: str = "TopicA") -> dict[str, str]:
    found = route(world, topic)
    assert found is not None
    addresses: dict[str, str] = found["brokerDatas"][0]["brokerAddrs"]
    return addresses


def group_of_three(world: World, **fields: Any) -> list[Any]:
    """A master and two slaves, each on its link."""
    links = [world.connect() for _ in range(3)]
    for broker_id, (link, address) in enumerate(zip(links, (MASTER, SLAVE, SECOND), strict=True)):
        register(link, address=address, broker_id=broker_id, **fields)
    return links


# --------------------------------------------------------------------------- acting master


def test_the_first_slave_is_shown_as_a_master_that_only_serves_readers():
    world = World(support_acting_master=True)
    master, _, _ = group_of_three(world, enable_acting_master=True)
    assert members(world) == {"0": MASTER, "1": SLAVE, "2": SECOND}
    master.drop()
    found = route(world)
    assert found is not None
    assert found["brokerDatas"][0]["brokerAddrs"] == {"0": SLAVE, "2": SECOND}
    assert found["queueDatas"][0]["perm"] == 4
    # The table itself still knows who is who.
    assert world.server.table.brokers()["broker-a"].broker_addrs == {1: SLAVE, 2: SECOND}


def test_what_a_slave_registers_in_the_masters_place_is_for_readers():
    world = World(support_acting_master=True)
    master, slave, _ = group_of_three(world, enable_acting_master=True)
    master.drop()
    register(
        slave,
        address=SLAVE,
        broker_id=1,
        enable_acting_master=True,
        table=topics("TopicA", "TopicNew"),
        counter=2,
    )
    for topic in ("TopicA", "TopicNew"):
        found = route(world, topic)
        assert found is not None
        assert found["queueDatas"][0]["perm"] == 4
        assert found["brokerDatas"][0]["brokerAddrs"]["0"] == SLAVE


def test_a_master_that_comes_back_is_the_master():
    world = World(support_acting_master=True)
    master, _, _ = group_of_three(world, enable_acting_master=True)
    master.drop()
    register(world.connect(), address=MASTER, enable_acting_master=True, counter=2)
    found = route(world)
    assert found is not None
    assert found["brokerDatas"][0]["brokerAddrs"] == {"0": MASTER, "1": SLAVE, "2": SECOND}
    assert found["queueDatas"][0]["perm"] == 6


@pytest.mark.parametrize(
    ("option", "group"), [(False, True), (True, False)], ids=["name server off", "group off"]
)
def test_without_both_sides_willing_slaves_keep_their_ids(option: bool, group: bool):
    world = World(support_acting_master=option)
    master, _, _ = group_of_three(world, enable_acting_master=group)
    master.drop()
    assert members(world) == {"1": SLAVE, "2": SECOND}


def test_a_topic_that_can_still_be_written_has_no_acting_master():
    world = World(support_acting_master=True)
    master, _, _ = group_of_three(world, enable_acting_master=True)
    master.drop()
    world.server.table.add_write_permission("broker-a")
    assert members(world) == {"1": SLAVE, "2": SECOND}


def test_brokers_that_look_for_their_group_see_the_real_ids():
    world = World(support_acting_master=True)
    own_topic = SYNC_BROKER_MEMBER_GROUP_PREFIX + "broker-a"
    master, _, _ = group_of_three(world, enable_acting_master=True, table=topics(own_topic))
    master.drop()
    assert members(world, own_topic) == {"1": SLAVE, "2": SECOND}


def test_the_option_can_be_switched_while_the_server_runs():
    world = World()
    master, _, _ = group_of_three(world, enable_acting_master=True)
    master.drop()
    world.connect().ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"supportActingMaster=true\n")
    assert members(world) == {"0": SLAVE, "2": SECOND}


# --------------------------------------------------------------------------- notices


def told(world: World) -> list[tuple[str, int | None, str | None, str | None, str | None]]:
    assert all(code == 905 for _, code, _ in world.notices.told)
    found = [
        (
            address,
            header.min_broker_id,
            header.min_broker_addr,
            header.offline_broker_addr,
            header.ha_broker_addr,
        )
        for address, _, header in world.notices.told
    ]
    world.notices.told.clear()
    return found


def test_all_that_stay_hear_that_the_first_member_left():
    world = World(notify_min_broker_id_changed=True)
    master, slave, _ = group_of_three(world, enable_acting_master=True)
    assert told(world) == []
    master.drop()
    assert told(world) == [
        (SLAVE, 1, SLAVE, MASTER, None),
        (SECOND, 1, SLAVE, MASTER, None),
    ]
    header = UnRegisterBrokerRequestHeader(
        broker_name="broker-a", broker_addr=SLAVE, cluster_name="DefaultCluster", broker_id=1
    )
    slave.ask(RequestCode.UNREGISTER_BROKER, header)
    assert told(world) == [(SECOND, 2, SECOND, SLAVE, None)]


def test_the_others_hear_of_a_new_first_member():
    world = World(notify_min_broker_id_changed=True)
    for broker_id, address in ((2, SECOND), (1, SLAVE), (0, MASTER)):
        register(world.connect(), address=address, broker_id=broker_id, enable_acting_master=True)
    assert told(world) == [
        (SECOND, 1, SLAVE, None, SLAVE + "1"),
        (SLAVE, 0, MASTER, None, MASTER + "1"),
        (SECOND, 0, MASTER, None, MASTER + "1"),
    ]


def test_nobody_hears_when_another_member_left_or_the_last_one():
    world = World(notify_min_broker_id_changed=True)
    master, slave, second = group_of_three(world, enable_acting_master=True)
    second.drop()
    slave.drop()
    master.drop()
    assert told(world) == []


def test_nobody_hears_without_the_option_or_in_groups_without_acting_masters():
    for world, group in (
        (World(), True),
        (World(notify_min_broker_id_changed=True), False),
    ):
        master, _, _ = group_of_three(world, enable_acting_master=group)
        master.drop()
        assert told(world) == []


def test_a_member_that_cannot_be_reached_keeps_nobody_from_hearing():
    world = World(notify_min_broker_id_changed=True)
    master, _, _ = group_of_three(world, enable_acting_master=True)
    world.notices.absent.add(SLAVE)
    master.drop()
    assert told(world) == [(SECOND, 1, SLAVE, MASTER, None)]


# --------------------------------------------------------------------------- zones


def zoned(world: World) -> None:
    """Topic A on one broker name in each of two zones, and on one without a zone that has lost its master."""
    register(world.connect(), name="east", address=MASTER, ext_fields={"__ZONE_NAME": "East"})
    register(
        world.connect(),
        name="west",
        address=SLAVE,
        ext_fields={"__ZONE_NAME": "West"},
        filter_servers=["192.0.2.11:5000"],
    )
    master = world.connect()
    register(master, name="headless", address=SECOND)
    register(world.connect(), name="headless", address="192.0.2.13:10911", broker_id=1)
    master.drop()


def names_in(found: dict[str, Any] | None) -> tuple[set[str], set[str], set[str]]:
    assert found is not None
    return (
        {broker["brokerName"] for broker in found["brokerDatas"]},
        {queue["brokerName"] for queue in found["queueDatas"]},
        set(found["filterServerTable"]),
    )


def test_callers_with_a_zone_see_its_brokers_and_those_without_a_master():
    world = World()
    zoned(world)
    everybody = {"east", "west", "headless"}
    assert names_in(route(world)) == (everybody, everybody, {SLAVE})
    east = route(world, __ZONE_MODE="true", __ZONE_NAME="east")
    assert names_in(east) == ({"east", "headless"}, {"east", "headless"}, set())
    west = route(world, __ZONE_MODE="TRUE", __ZONE_NAME="West")
    assert names_in(west) == ({"west", "headless"}, {"west", "headless"}, {SLAVE})
    # What one caller was spared is there for the next.
    assert names_in(route(world)) == (everybody, everybody, {SLAVE})


@pytest.mark.parametrize(
    "fields",
    [
        {"__ZONE_NAME": "East"},
        {"__ZONE_MODE": "false", "__ZONE_NAME": "East"},
        {"__ZONE_MODE": "true"},
        {"__ZONE_MODE": "true", "__ZONE_NAME": " "},
    ],
)
def test_without_mode_and_name_nobody_is_left_out(fields: dict[str, str]):
    world = World()
    zoned(world)
    assert names_in(route(world, **fields))[0] == {"east", "west", "headless"}


# --------------------------------------------------------------------------- many at once


def test_a_hundred_links_that_close_together_leave_the_others_routes():
    """Beside a broker with very many topics, each that goes costs what it had, not what there is."""
    world = World()
    big = topics(*(f"big-{number}" for number in range(20_000)))
    register(world.connect(), name="stays", address="192.0.2.99:10911", table=big)
    links = []
    for number in range(100):
        link = world.connect()
        register(
            link,
            name=f"broker-{number}",
            address=f"192.0.2.{number}:10911",
            table=topics("shared", "big-7", f"only-{number}"),
        )
        links.append(link)
    for number, link in enumerate(links):
        link.drop()
        assert route(world, f"only-{number}") is None
        assert names_in(route(world, "big-7"))[0] == {"stays"} | {
            f"broker-{later}" for later in range(number + 1, 100)
        }
    table = world.server.table
    assert table.clusters() == {"DefaultCluster": ["stays"]}
    assert set(table.brokers()) == {"stays"}
    assert set(table.topics()) == set(big)
    assert route(world, "shared") is None


@pytest.fixture
def entries() -> Iterator[list[str]]:
    """What is logged during a test."""
    with logged() as found:
        yield found


def test_a_name_that_two_live_brokers_have_is_told(entries: list[str]) -> None:
    world = World()
    first, second = world.connect(), world.connect()
    register(first, name="b", address="192.0.2.1:10911")
    register(second, name="b", address="192.0.2.2:10911")
    assert [entry for entry in entries if "place" in entry] == [
        "192.0.2.2:10911 takes the place of 192.0.2.1:10911 as b id 0, which is alive: "
        "brokers need names of their own"
    ]
    first.drop()
    second.drop()
    register(world.connect(), name="b", address="192.0.2.3:10911")
    assert len([entry for entry in entries if "place" in entry]) == 1


def test_brokers_that_come_together_are_one_log_entry(entries: list[str]) -> None:
    world = World()
    for number in range(3):
        register(world.connect(), name=f"b-{number}", address=f"192.0.2.{number}:10911")
    world.pass_seconds(1)
    came = [entry for entry in entries if "registered" in entry]
    assert came == [
        "\n".join(
            f"broker b-{number} id 0 at 192.0.2.{number}:10911 of DefaultCluster registered"
            for number in range(3)
        )
    ]
