"""Configuration of a running process: what a change does, what it waits for, what is refused, how it reaches the file."""

from __future__ import annotations

import pytest

from txrocketmq.config.effects import AT_ONCE, AT_START
from txrocketmq.config.keys import keys_of
from txrocketmq.config.properties import merge_properties_file, parse_properties_file
from txrocketmq.config.reload import ForbiddenKeyError, RunTimeConfiguration
from txrocketmq.config.schema import (
    BrokerConfig,
    MessageStoreConfig,
    NamesrvConfig,
    NettyClientConfig,
    NettyServerConfig,
)
from txrocketmq.errors import ConfigError

SECTIONS = (BrokerConfig, MessageStoreConfig, NamesrvConfig, NettyServerConfig, NettyClientConfig)


def running() -> tuple[BrokerConfig, MessageStoreConfig, RunTimeConfiguration]:
    broker, store = BrokerConfig(broker_name="broker-a"), MessageStoreConfig()
    made = RunTimeConfiguration(
        (broker, store),
        lambda: 1_700_000_000_000,
        frozen=("rocketmqHome",),
        black_list=lambda: broker.config_black_list,
        unknown={"ownKey": "kept"},
    )
    return broker, store, made


def test_a_change_is_seen_by_whoever_holds_the_section() -> None:
    broker, store, configuration = running()
    change = configuration.update(
        configuration.parse(b"waitTimeMillsInSendQueue=250\nflushDiskType=SYNC_FLUSH\n")
    )
    assert broker.wait_time_mills_in_send_queue == 250
    assert store.flush_disk_type == "SYNC_FLUSH"
    assert change.changed == {"waitTimeMillsInSendQueue": "250", "flushDiskType": "SYNC_FLUSH"}
    assert change.remark() is None
    assert configuration.data_version.counter == 1


def test_what_does_not_act_now_is_told() -> None:
    broker, _, configuration = running()
    change = configuration.update(
        {"brokerName": "broker-b", "rocksdbCompressionType": "zstd", "noSuchKey": "1"}
    )
    assert broker.broker_name == "broker-b"
    assert change.need_restart == ("brokerName",)
    assert change.remark() == (
        "act after a restart: brokerName; have no effect here: rocksdbCompressionType; "
        "are unknown and ignored: noSuchKey"
    )


def test_the_same_value_again_is_no_change() -> None:
    _, _, configuration = running()
    change = configuration.update({"brokerName": "broker-a"})
    assert change.changed == {}
    assert change.remark() is None


@pytest.mark.parametrize("key", ["brokerConfigPath", "configBlackList", "rocketmqHome"])
def test_keys_of_the_black_list_are_refused_with_all_others(key: str) -> None:
    broker, _, configuration = running()
    with pytest.raises(ForbiddenKeyError, match="Can not update config in black list"):
        configuration.update({"traceOn": "false", key: "x"})
    assert broker.trace_on is True


def test_a_bad_value_changes_nothing() -> None:
    broker, _, configuration = running()
    with pytest.raises(ConfigError, match="bad configuration value brokerPermission=six"):
        configuration.update({"traceOn": "false", "brokerPermission": "six"})
    assert broker.trace_on is True


@pytest.mark.parametrize(("key", "value"), [("brokerName", " "), ("messageDelayLevel", "1s 5x")])
def test_what_would_keep_it_from_starting_again_is_refused(key: str, value: str) -> None:
    _, _, configuration = running()
    before = configuration.entries()
    with pytest.raises(ConfigError, match=f"bad configuration value {key}={value.strip()}: "):
        configuration.update({key: value})
    assert configuration.entries() == before


def test_the_table_is_sorted_text_with_what_nobody_declared() -> None:
    _, _, configuration = running()
    lines = configuration.text().decode().splitlines()
    names = [line.partition("=")[0] for line in lines]
    assert names == sorted(names)
    assert "ownKey=kept" in lines
    assert "brokerName=broker-a" in lines
    assert "brokerConfigPath" not in names


def test_a_file_keeps_its_comments_and_order() -> None:
    before = (
        b"# who\nbrokerName = broker-a\n\nnamesrvAddr=a:1;\\\n  b:2\nbrokerName=broker-a2\n! end\n"
    )
    after = merge_properties_file(before, {"namesrvAddr": "b:2;c:3", "traceOn": "false"})
    assert after == (
        b"# who\nbrokerName = broker-a\n\nnamesrvAddr=b\\:2;c\\:3\nbrokerName=broker-a2\n! end\n"
        b"traceOn=false\n"
    )
    again = merge_properties_file(after, {"brokerName": "x"})
    assert again.count(b"brokerName") == 1
    assert parse_properties_file(again) == {
        "brokerName": "x",
        "namesrvAddr": "b:2;c:3",
        "traceOn": "false",
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"", b"a=1\n"), (b"b=2", b"b=2\na=1\n"), (b"a = 0", b"a=1\n"), (b"#a=0\n", b"#a=0\na=1\n")],
)
def test_a_file_without_the_key_or_without_an_end(before: bytes, after: bytes) -> None:
    assert merge_properties_file(before, {"a": "1"}) == after


def test_every_key_with_an_effect_is_declared_and_has_one_effect() -> None:
    declared = {spec.name for section in SECTIONS for spec in keys_of(section)}
    assert declared >= AT_ONCE | AT_START
    assert AT_ONCE.isdisjoint(AT_START)
