"""What operators see and change of a running name server's configuration."""

from __future__ import annotations

import pytest
from name_server import CONFIG_FILE, World

from txrocketmq.codec.command import RemotingCommand
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.testing.disk import MemoryDisk


def update(world: World, body: bytes) -> RemotingCommand:
    return world.connect().ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)


def shown(world: World) -> dict[str, str]:
    answer = world.connect().ask(RequestCode.GET_NAMESRV_CONFIG)
    assert answer.code == ResponseCode.SUCCESS
    lines = answer.body.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_every_key_is_shown_with_those_that_nobody_declares():
    world = World(config_store_path=CONFIG_FILE)
    entries = shown(world)
    assert entries["enableTopicList"] == "true"
    assert entries["scanNotActiveBrokerInterval"] == "5000"
    assert entries["configStorePath"] == CONFIG_FILE
    assert entries["ownKey"] == "kept"


def test_a_change_acts_at_once_and_is_in_the_file():
    disk = MemoryDisk()
    disk.makedirs("/namesrv")
    disk.replace_file(CONFIG_FILE, b"# ours\nenableAllTopicList = true\n", False)
    world = World(disk)
    answer = update(world, b"enableAllTopicList=false\nscanNotActiveBrokerInterval=1000\n")
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    listed = world.connect().ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert listed.remark == "disable"
    assert shown(world)["scanNotActiveBrokerInterval"] == "1000"
    assert disk.read_file(CONFIG_FILE) == (
        b"# ours\nenableAllTopicList=false\nscanNotActiveBrokerInterval=1000\n"
    )


def test_a_file_that_is_not_there_is_made():
    world = World()
    assert update(world, b"enableTopicList=false").code == ResponseCode.SUCCESS
    assert world.disk.read_file(CONFIG_FILE) == b"enableTopicList=false\n"


@pytest.mark.parametrize(
    "key", ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome", "listenPort"]
)
def test_keys_of_the_black_list_are_refused_with_all_others(key: str):
    world = World(config_black_list="listenPort")
    answer = update(world, f"enableTopicList=false\n{key}=1\n".encode())
    assert (answer.code, answer.remark) == (
        ResponseCode.NO_PERMISSION,
        "Can not update config in black list.",
    )
    assert world.config.enable_topic_list is True
    assert not world.disk.exists(CONFIG_FILE)


def test_a_bad_value_is_refused_by_name():
    world = World()
    answer = update(world, b"enableTopicList=false\nscanNotActiveBrokerInterval=often\n")
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "scanNotActiveBrokerInterval=often" in (answer.remark or "")
    assert world.config.enable_topic_list is True


def test_what_has_no_effect_now_is_told():
    answer = update(World(), b"clusterTest=true\nmyKey=1\n")
    assert answer.code == ResponseCode.SUCCESS
    assert answer.remark == "have no effect here: clusterTest; are unknown and ignored: myKey"


def test_a_file_that_cannot_be_written_is_told_and_the_change_stays():
    world = World(MemoryDisk(capacity_bytes=8))
    answer = update(world, b"enableTopicList=false")
    assert answer.code == ResponseCode.SUCCESS
    assert "will be lost at the next start" in (answer.remark or "")
    assert world.config.enable_topic_list is False
