"""Where a value comes from, what is refused, and what is only reported."""

import pytest

from txrocketmq.config.load import Role, load_settings, split_addresses, split_override
from txrocketmq.config.schema import (
    BrokerConfig,
    MessageStoreConfig,
    NamesrvConfig,
    NettyClientConfig,
    NettyServerConfig,
)
from txrocketmq.errors import ConfigError


@pytest.fixture
def write(tmp_path):
    def write_file(content):
        path = tmp_path / "broker.conf"
        path.write_text(content)
        return str(path)

    return write_file


def test_a_broker_listens_where_the_official_start_script_says():
    settings = load_settings(Role.BROKER)
    assert settings.section(BrokerConfig).listen_port == 10911
    assert settings.section(NettyServerConfig).listen_port == 10911
    assert settings.section(MessageStoreConfig).ha_listen_port == 10912


def test_a_name_server_listens_on_9876():
    assert load_settings(Role.NAMESRV).section(NettyServerConfig).listen_port == 9876


def test_the_replication_port_follows_the_main_one_unless_set():
    settings = load_settings(Role.BROKER, overrides=[("listenPort", "20911")])
    assert settings.section(MessageStoreConfig).ha_listen_port == 20912
    settings = load_settings(
        Role.BROKER, overrides=[("listenPort", "20911"), ("haListenPort", "30000")]
    )
    assert settings.section(MessageStoreConfig).ha_listen_port == 30000


def test_stores_lie_where_they_do_officially_except_for_the_all_in_one(monkeypatch):
    monkeypatch.setenv("HOME", "/home/rocket")
    broker = load_settings(Role.BROKER).section(MessageStoreConfig)
    assert broker.store_path_root_dir == "/home/rocket/store"
    both = load_settings(Role.ALL_IN_ONE)
    assert both.section(MessageStoreConfig).store_path_root_dir == "store"
    assert both.section(NamesrvConfig).kv_config_path == "store/namesrv/kvConfig.json"


def test_file_then_environment_then_command_line(write):
    path = write("namesrvAddr=file:9876\nbrokerName=from-file\nbrokerClusterName=c1")
    environment = {"NAMESRV_ADDR": "env:9876", "ROCKETMQ_HOME": "/opt/rocketmq"}
    settings = load_settings(Role.BROKER, config_file=path, environment=environment)
    broker = settings.section(BrokerConfig)
    assert (broker.namesrv_addr, broker.broker_name) == ("env:9876", "from-file")
    assert (broker.rocketmq_home, broker.broker_config_path) == ("/opt/rocketmq", path)
    settings = load_settings(
        Role.BROKER,
        config_file=path,
        environment=environment,
        overrides=[("namesrvAddr", "line:9876"), ("brokerName", "from-line")],
    )
    broker = settings.section(BrokerConfig)
    assert (broker.namesrv_addr, broker.broker_name) == ("line:9876", "from-line")
    assert settings.explicit["brokerClusterName"] == path
    assert settings.explicit["namesrvAddr"] == "command line"
    assert not settings.is_explicit("brokerIP1")


def test_a_key_of_several_classes_is_set_in_all(write):
    settings = load_settings(Role.BROKER, config_file=write("writeBufferHighWaterMark=65536"))
    assert settings.section(NettyServerConfig).write_buffer_high_water_mark == 65536
    assert settings.section(NettyClientConfig).write_buffer_high_water_mark == 65536


def test_an_official_file_loads_unchanged(write):
    settings = load_settings(
        Role.BROKER,
        config_file=write(
            "# Licensed to nobody\n"
            "brokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0\n"
            "deleteWhen = 04\nfileReservedTime = 48\nbrokerRole = ASYNC_MASTER\n"
            "flushDiskType = SYNC_FLUSH\n"
        ),
    )
    store = settings.section(MessageStoreConfig)
    assert (store.delete_when, store.file_reserved_time) == ("04", 48)
    assert store.flush_disk_type == "SYNC_FLUSH"


def test_an_unknown_key_is_kept_and_reported_once(write):
    settings = load_settings(
        Role.BROKER,
        config_file=write("myOwnKey=1\n"),
        overrides=[("myOwnKey", "2")],
    )
    reports = [line for line in settings.warnings if "myOwnKey" in line]
    assert len(reports) == 1
    assert settings.entries()["myOwnKey"] == "2"


def test_a_slip_in_a_key_is_reported_with_the_key_that_was_meant(write):
    settings = load_settings(
        Role.BROKER, config_file=write("brokerNam=b\nlistenport=1\nsomethingElse=2\n")
    )
    reports = [line.partition("; ")[::2] for line in settings.warnings]
    assert [(line.split()[3], guess) for line, guess in reports] == [
        ("brokerNam", "is brokerName meant?"),
        ("listenport", "is listenPort meant?"),
        ("somethingElse", ""),
    ]


def test_keys_without_effect_are_named_when_changed():
    settings = load_settings(Role.BROKER, overrides=[("enableDLegerCommitLog", "true")])
    assert any("no effect here: enableDLegerCommitLog" in line for line in settings.warnings)
    assert load_settings(Role.BROKER, overrides=[("enableDLegerCommitLog", "false")]).warnings == []


# Files of such a size cannot be made, and nothing may be divided by it.
SIZES = (
    "mappedFileSizeConsumeQueue",
    "mappedFileSizeConsumeQueueExt",
    "mapperFileSizeBatchConsumeQueue",
    "maxHashSlotNum",
    "compactionCqMappedFileSize",
    "mappedFileSizeTimerLog",
    "timerPrecisionMs",
)


@pytest.mark.parametrize("key", ["aclEnable", "authenticationEnabled", "authorizationEnabled"])
def test_who_asks_for_access_control_is_told_that_there_is_none(key):
    told = (
        f"there is no access control yet: {key} has no effect, "
        "whoever reaches the ports may send, read and administrate"
    )
    assert load_settings(Role.BROKER, overrides=[(key, "true")]).warnings == [told]
    settings = load_settings(Role.BROKER, overrides=[(key, "false")])
    assert settings.warnings == []
    assert settings.entries()[key] == "false"


@pytest.mark.parametrize(
    ("hours", "told"), [("25", "25"), ("4;night; 23 ;-1", "night, -1"), (" ; ", "nothing")]
)
def test_hours_that_never_come_are_named(hours, told):
    settings = load_settings(Role.BROKER, overrides=[("deleteWhen", hours)])
    assert settings.warnings == [
        f"deleteWhen={hours.strip()}: {told} is no hour from 00 to 23 and never comes"
    ]
    assert load_settings(Role.BROKER, overrides=[("deleteWhen", "04;0;23;")]).warnings == []


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("listenPort", "abc", "a whole number from 0 to 65535"),
        ("listenPort", "70000", "a whole number from 0 to 65535"),
        ("listenPort", "2", "0 or a number from 3"),
        ("defaultTopicQueueNums", "65537", "a whole number from -2147483648 to 65536"),
        ("defaultTopicQueueNums", "4.5", "a whole number"),
        ("autoCreateTopicEnable", "yes", "true or false"),
        ("brokerRole", "MASTER", "one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ("flushDiskType", "async", "one of SYNC_FLUSH, ASYNC_FLUSH"),
        ("logicalDiskSpaceCleanForciblyThreshold", "much", "a number"),
        ("namesrvAddr", "localhost", "host:port"),
        ("namesrvAddr", "localhost:99999", "host:port"),
        ("brokerName", " ", "a name"),
        ("brokerClusterName", "", "a name"),
        ("storePathRootDir", " ", "a directory"),
        ("messageDelayLevel", "", "30s 5m 2h 1d"),
        ("messageDelayLevel", "1s 5x 10s", "30s 5m 2h 1d"),
        ("messageDelayLevel", "1s  5s", "30s 5m 2h 1d"),
        *((name, value, "a whole number from 1 to") for name in SIZES for value in ("0", "-1")),
        ("mappedFileSizeCommitLog", "1023", "a whole number from 1024 to"),
        ("maxIndexNum", "1", "a whole number from 2 to"),
        ("maxMessageSize", "-1", "a whole number from 0 to"),
        # Not for ever: officially, all that is not being written would be deleted.
        ("fileReservedTime", "-1", "a whole number from 0 to"),
    ],
)
def test_a_bad_value_is_refused_with_key_value_and_what_is_allowed(key, value, allowed):
    with pytest.raises(ConfigError) as caught:
        load_settings(Role.BROKER, overrides=[(key, value)])
    message = str(caught.value)
    assert f"{key}={value.strip()}" in message
    assert allowed in message
    assert "\n" not in message


def test_a_slave_needs_an_id_and_a_master_has_none():
    with pytest.raises(ConfigError, match="brokerId=0"):
        load_settings(Role.BROKER, overrides=[("brokerRole", "SLAVE")])
    slave = load_settings(Role.BROKER, overrides=[("brokerRole", "SLAVE"), ("brokerId", "1")])
    assert slave.section(BrokerConfig).broker_id == 1
    master = load_settings(Role.BROKER, overrides=[("brokerId", "7")])
    assert master.section(BrokerConfig).broker_id == 0


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("flushDiskType=ASYNC", "one of SYNC_FLUSH, ASYNC_FLUSH is needed"),
        ("listenPort=2", "the fast port is two below"),
        ("namesrvAddr=localhost", "several with ; between"),
        ("brokerRole=SLAVE", "a SLAVE needs a number above 0"),
    ],
)
def test_a_bad_value_that_was_not_typed_now_is_told_with_its_place(write, line, says, tmp_path):
    path = write(f"{line}\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(Role.BROKER, config_file=path)
    assert str(caught.value).endswith(f"{says} (from {path})")
    # What was changed at run time may be long forgotten.
    kept = tmp_path / "store" / "config" / "txrocketmq.properties"
    kept.parent.mkdir(parents=True)
    kept.write_text(f"{line}\n")
    root = ("storePathRootDir", str(tmp_path / "store"))
    with pytest.raises(ConfigError) as caught:
        load_settings(Role.BROKER, overrides=[root])
    assert str(caught.value).endswith(f"{says} (from {kept})")
    with pytest.raises(ConfigError) as caught:
        load_settings(Role.BROKER, overrides=[tuple(line.split("="))])
    assert str(caught.value).endswith(says)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.conf: no such file"):
        load_settings(Role.NAMESRV, config_file=str(tmp_path / "absent.conf"))


def test_a_setting_needs_an_equals_sign():
    assert split_override("a=b=c") == ("a", "b=c")
    with pytest.raises(ConfigError, match="key=value"):
        split_override("listenPort")


def test_address_lists_forgive_blanks_and_doubles():
    assert split_addresses(" a:1; b:2 ;;a:1;") == ["a:1", "b:2"]
    assert split_addresses(None) == []


def test_important_keys_are_few():
    settings = load_settings(Role.BROKER)
    important = settings.entries(important_only=True)
    assert important["listenPort"] == "10911"
    assert "popPollingSize" not in important
    assert "popPollingSize" in settings.entries()
