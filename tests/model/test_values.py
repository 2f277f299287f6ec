"""Values of the protocol: hashes, flags, names, properties, ids, subscriptions, versions; official vectors where there are any."""

from __future__ import annotations

import datetime
import time
import zlib
from collections.abc import Iterator
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import LINES, units
from txrocketmq.errors import MQClientError, RecordError
from txrocketmq.model import flags, names
from txrocketmq.model.bean import change_text, settings_text
from txrocketmq.model.heartbeat import build_subscription
from txrocketmq.model.javahash import crc32, index_hash, java_hash, tags_code
from txrocketmq.model.message import Message, MessageExt, MessageQueue
from txrocketmq.model.message_id import (
    UniqueIds,
    create_uniq_id,
    offset_message_id,
    parse_offset_message_id,
    parse_uniq_id,
)
from txrocketmq.model.properties import (
    RESERVED_NAMES,
    find_property,
    format_properties,
    parse_properties,
)
from txrocketmq.model.route import BrokerData
from txrocketmq.model.topic import DataVersion, TopicConfig, copy_topic_config

# ------------------------------------------------------------------------ hashes


@pytest.mark.parametrize("line", LINES)
def test_tags_codes(line: str) -> None:
    for vector in units(line)["tagsCodes"]:
        assert tags_code(vector["tags"]) == vector["code"]
        if vector["tags"] is not None:
            assert java_hash(vector["tags"]) == vector["javaHashCode"]


@pytest.mark.parametrize("line", LINES)
def test_index_hashes(line: str) -> None:
    for vector in units(line)["indexHashes"]["keys"]:
        assert index_hash(vector["topic"], vector["key"]) == vector["hash"]


def key_hashing_to(wanted: int, prefix: str) -> str:
    """Seven letters after which the prefix hashes to a number: its digits to the base 31, upon A."""
    least = java_hash(prefix + "A" * 7)
    rest = (wanted - least) % 2**32
    digits = [rest // 31**power % 31 for power in range(6, -1, -1)]
    return "".join(chr(ord("A") + digit) for digit in digits)


def test_the_smallest_hash_has_no_absolute_value() -> None:
    key = key_hashing_to(-(2**31), "T#")
    assert java_hash(f"T#{key}") == -(2**31)
    assert index_hash("T", key) == 0


@given(st.text(max_size=700))
def test_java_hash_is_the_polynomial_over_utf16_units(text: str) -> None:
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[position : position + 2], "big")) & 0xFFFFFFFF
    assert java_hash(text) == value - (value >> 31 << 32)


@pytest.mark.parametrize("line", LINES)
def test_crc32(line: str) -> None:
    for vector in units(line)["crc32"]:
        assert crc32(vector["text"].encode()) == vector["crc32"]


@given(st.binary(max_size=50))
def test_crc32_has_no_sign_bit(data: bytes) -> None:
    assert crc32(data) == zlib.crc32(data) % 2**31


# ------------------------------------------------------------------------ flags


def test_message_sys_flags() -> None:
    official = units("5.4.0")["sysFlags"]["message"]
    ours = {
        "COMPRESSED_FLAG": flags.COMPRESSED_FLAG,
        "MULTI_TAGS_FLAG": flags.MULTI_TAGS_FLAG,
        "TRANSACTION_NOT_TYPE": flags.TRANSACTION_NOT_TYPE,
        "TRANSACTION_PREPARED_TYPE": flags.TRANSACTION_PREPARED_TYPE,
        "TRANSACTION_COMMIT_TYPE": flags.TRANSACTION_COMMIT_TYPE,
        "TRANSACTION_ROLLBACK_TYPE": flags.TRANSACTION_ROLLBACK_TYPE,
        "BORNHOST_V6_FLAG": flags.BORN_HOST_V6_FLAG,
        "STOREHOSTADDRESS_V6_FLAG": flags.STORE_HOST_V6_FLAG,
        "NEED_UNWRAP_FLAG": flags.NEED_UNWRAP_FLAG,
        "INNER_BATCH_FLAG": flags.INNER_BATCH_FLAG,
        "COMPRESSION_LZ4_TYPE": flags.COMPRESSION_LZ4_TYPE,
        "COMPRESSION_ZSTD_TYPE": flags.COMPRESSION_ZSTD_TYPE,
        "COMPRESSION_ZLIB_TYPE": flags.COMPRESSION_ZLIB_TYPE,
        "COMPRESSION_TYPE_COMPARATOR": flags.COMPRESSION_TYPE_MASK,
    }
    assert ours == official


def test_pull_sys_flags() -> None:
    for vector in units("5.4.0")["sysFlags"]["pull"]:
        assert (
            flags.pull_sys_flag(
                commit_offset=vector["commitOffset"],
                suspend=vector["suspend"],
                subscription=vector["subscription"],
                class_filter=vector["classFilter"],
                lite_pull=vector["litePull"],
            )
            == vector["flag"]
        )


def test_transaction_bits_are_replaced_alone() -> None:
    sys_flag = flags.COMPRESSED_FLAG | flags.TRANSACTION_PREPARED_TYPE
    committed = flags.with_transaction_type(sys_flag, flags.TRANSACTION_COMMIT_TYPE)
    assert committed == flags.COMPRESSED_FLAG | flags.TRANSACTION_COMMIT_TYPE
    assert flags.transaction_type(committed) == flags.TRANSACTION_COMMIT_TYPE
    assert flags.is_compressed(committed)


def test_permissions() -> None:
    assert [flags.perm_text(perm) for perm in range(8)] == [
        *("---", "--X", "-W-", "-WX"),
        *("R--", "R-X", "RW-", "RWX"),
    ]
    assert flags.is_readable(4)
    assert not flags.is_readable(2)
    assert flags.is_writeable(2)
    assert flags.is_inherited(7)
    assert [flags.is_valid_perm(perm) for perm in (-1, 0, 7, 8)] == [False, True, True, False]
    assert flags.topic_sys_flag(unit=True, unit_sub=True) == 3


# ------------------------------------------------------------------------ names


@pytest.mark.parametrize("line", LINES)
def test_made_names(line: str) -> None:
    vector = units(line)["names"]
    assert names.retry_topic("CG") == vector["retryTopic"]
    assert names.dlq_topic("CG") == vector["dlqTopic"]
    assert vector["lmqPrefix"] == names.LMQ_PREFIX
    assert names.lmq_queue_key("%LMQ%one") == vector["lmqQueueKey"]
    assert names.is_lmq("%LMQ%one") is vector["isLmq"]
    assert names.vip_address("127.0.0.1:10911") == vector["brokerVip"]


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("TopicTest", None),
        ("a%b|c-d_e9", None),
        ("t" * 127, None),
        ("%RETRY%" + "g" * 248, None),
        (None, "The specified topic is blank."),
        (" \t", "The specified topic is blank."),
        (
            "a b",
            "The specified topic: a b, contains illegal characters,"
            " allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        (
            "t\n",
            "The specified topic: t\n, contains illegal characters,"
            " allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        (
            "töpic",
            "The specified topic: töpic, contains illegal characters,"
            " allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        (
            "t" * 128,
            f"The specified topic: {'t' * 128}, is longer than topic max length: 127",
        ),
        (
            "%DLQ%" + "g" * 251,
            f"The specified topic is DLQ or Retry topic: %DLQ%{'g' * 251}, and it's longer than"
            " topic max length: 255",
        ),
    ],
)
def test_topic_names(topic: str | None, remark: str | None) -> None:
    assert names.topic_fault(topic) == remark


@pytest.mark.parametrize(
    ("group", "remark"),
    [
        ("g" * 120, None),
        ("", "The specified group is blank."),
        (
            "g.h",
            "The specified group: g.h, contains illegal characters,"
            " allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        ("g" * 121, f"The specified group: {'g' * 121}, is longer than group max length: 120"),
    ],
)
def test_group_names(group: str, remark: str | None) -> None:
    assert names.group_fault(group) == remark


def test_system_names() -> None:
    assert names.is_system_topic("TBW102")
    assert names.is_system_topic("rmq_sys_anything")
    assert not names.is_system_topic("RMQ_SYS_NOTHING")
    assert names.is_system_group("CID_RMQ_SYS_X")
    assert names.is_predefined_group("TOOLS_CONSUMER")
    assert names.NOT_ALLOWED_SEND_TOPICS < names.SYSTEM_TOPICS
    assert names.is_retry_topic("%RETRY%g")
    assert names.is_dlq_topic("%DLQ%g")
    assert names.reply_topic("C") == "C_REPLY_TOPIC"
    assert not names.topic_allows_lmq("%RETRY%g")
    assert not names.topic_allows_lmq("SCHEDULE_TOPIC_XXXX")
    assert names.topic_allows_lmq("T")
    assert names.has_illegal_characters("a.b")


# ------------------------------------------------------------------------ properties


@pytest.mark.parametrize("line", LINES)
def test_property_texts(line: str) -> None:
    for vector in units(line)["messageProperties"]:
        if "encoded" in vector:
            text = format_properties(vector["map"], last_separator=line == "5.4.0")
            assert text.decode() == vector["encoded"]
        else:
            assert parse_properties(vector["decode"]) == vector["map"]
            assert parse_properties(vector["decode"].encode()) == vector["map"]


part = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x01\x02"), min_size=1)


@given(st.dictionaries(part, part, max_size=5), st.booleans())
def test_any_properties_come_back_in_order(found: dict[str, str], last_separator: bool) -> None:
    text = format_properties(found, last_separator=last_separator)
    assert list(parse_properties(text).items()) == list(found.items())


@given(st.binary(max_size=40), part)
def test_one_property_is_found_as_the_parser_finds_it(text: bytes, name: str) -> None:
    for wanted in (name, *parse_properties(text)):
        if "\ufffd" not in wanted:
            assert find_property(text, wanted) == parse_properties(text).get(wanted)


def test_of_a_repeated_name_the_last_value_counts() -> None:
    assert find_property(b"a\x011\x02a\x012\x02", "a") == "2"
    assert find_property(b"aa\x011\x02", "a") is None


def test_half_a_surrogate_pair_is_written_as_java_writes_it() -> None:
    assert format_properties({"a": "x\ud83dy"}) == b"a\x01x?y\x02"


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("a\x01", "v", r"the name of property 'a\\x01' contains the character 0x01 or 0x02"),
        ("a", "v\x02w", "the value of property 'a' contains the character 0x01 or 0x02"),
        ("KEYS", "v", "'KEYS' is used by the system"),
        ("__CRC32#", "v", "is used by the system"),
        (" ", "v", "must not be blank"),
        ("a", "", "must not be blank"),
    ],
)
def test_properties_that_an_application_may_not_set(name: str, value: str, fault: str) -> None:
    message = Message(topic="T", body=b"x")
    with pytest.raises(MQClientError, match=fault):
        message.put_user_property(name, value)
    assert message.properties == {}


def test_a_message_tells_its_own_properties() -> None:
    message = Message(
        topic="T",
        body=b"x",
        properties={"TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "U", "WAIT": "false", "DELAY": "3"},
    )
    message.put_user_property("中", ",=😀")
    assert (message.tags, message.keys, message.uniq_key) == ("a", "k1 k2", "U")
    assert (message.wait_store_msg_ok, message.delay_time_level) == (False, 3)
    assert parse_properties(format_properties(message.properties))["中"] == ",=😀"
    assert Message(topic="T", body=b"").wait_store_msg_ok
    assert Message(topic="T", body=b"").delay_time_level == 0
    assert len(RESERVED_NAMES) == 51


def test_properties_of_a_message_read_back_can_be_set() -> None:
    message = MessageExt(
        topic="T",
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        store_size=0,
        flag=0,
        sys_flag=0,
        body=b"",
        body_crc=0,
        born_timestamp=0,
        born_host=("192.0.2.1", 1),
        store_timestamp=0,
        store_host=("192.0.2.1", 1),
        reconsume_times=0,
        prepared_transaction_offset=0,
        properties_text=b"a\x011\x02",
    )
    assert message.properties == {"a": "1"}
    message.properties = {"b": "2"}
    assert message.properties_text == b"b\x012\x02"


# ------------------------------------------------------------------------ ids


@pytest.mark.parametrize("line", LINES)
def test_offset_message_ids(line: str) -> None:
    for vector in units(line)["messageIds"]:
        made = offset_message_id(vector["ip"], vector["port"], vector["offset"])
        assert made == vector["msgId"]
        host, port, offset = parse_offset_message_id(made)
        assert ip_address(host) == ip_address(vector["ip"])
        assert (port, offset) == (vector["port"], vector["decodedOffset"])


@pytest.mark.parametrize("text", ["", "7F", "x" * 32, "7F " * 16, "0" * 33, "0" * 40, "0" * 64])
def test_what_is_no_message_id_is_refused(text: str) -> None:
    with pytest.raises(RecordError, match="32 or 56 hexadecimal"):
        parse_offset_message_id(text)
    with pytest.raises(RecordError, match="32 or 56 hexadecimal"):
        parse_uniq_id(text, 0)


@pytest.fixture
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is UTC, as it was where the vectors were made."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_utc")
@pytest.mark.parametrize("line", LINES)
def test_unique_ids_of_official_clients(line: str) -> None:
    for vector in units(line)["uniqueIds"]:
        found = parse_uniq_id(vector["uniqueId"], vector["madeAt"] + 60_000)
        assert (found.address, found.process_id) == (vector["ip"], vector["pid"])
        assert 0 <= vector["madeAt"] - found.near_time_ms < 100
        ids = UniqueIds(
            vector["ip"],
            process_id=vector["pid"],
            process_value=int(vector["uniqueId"][12:20], 16),
        )
        made = [ids.next(found.near_time_ms) for _ in range(found.counter + 1)]
        assert made[-1] == vector["uniqueId"]


def month_start_ms(year: int, month: int) -> int:
    return int(datetime.datetime(year, month, 1).timestamp()) * 1000


def test_unique_ids_count_and_wrap() -> None:
    now = month_start_ms(2026, 3) + 5
    ids = UniqueIds("192.0.2.1", process_id=1, process_value=2)
    made = [ids.next(now) for _ in range(0x10001)]
    assert made[0] == "C0000201000100000002" + "00000005" + "0000"
    assert made[0xFFFF].endswith("FFFF")
    assert made[0x10000] == made[0]


def test_unique_ids_start_anew_each_month() -> None:
    ids = UniqueIds("2001:db8::1", process_id=1, process_value=2)
    end = month_start_ms(2026, 4) - 1
    first, second = ids.next(end), ids.next(end + 1)
    assert len(first) == 56
    assert parse_uniq_id(first, end + 1).near_time_ms == end
    assert second[-12:-4] == "00000000"
    # The clock steps back a little: the time stays at the month's start, ids stay unique.
    assert ids.next(end - 500)[-12:] == "000000000002"


def test_ids_of_this_process_differ() -> None:
    made = {create_uniq_id() for _ in range(1000)}
    assert len(made) == 1000
    assert len(create_uniq_id(month_start_ms(2026, 3))) in (32, 56)


# ------------------------------------------------------------------------ subscriptions, versions


@pytest.mark.parametrize("line", LINES)
def test_subscriptions(line: str) -> None:
    for vector in units(line)["subscriptions"]:
        if "error" in vector:
            with pytest.raises(MQClientError, match=vector["error"]):
                build_subscription("T", vector["subString"])
            continue
        found = build_subscription("T", vector["subString"])
        assert found.sub_string == vector["resultSubString"]
        assert found.tags_set == set(vector["tagsSet"])
        assert found.code_set == set(vector["codeSet"])
        assert found.expression_type == vector["expressionType"]
        assert found.is_tag_type


def test_sql_subscriptions() -> None:
    found = build_subscription("T", "a > 1 || b", "SQL92", sub_version=7)
    assert (found.sub_string, found.expression_type, found.sub_version) == (
        "a > 1 || b",
        "SQL92",
        7,
    )
    assert (found.tags_set, found.code_set, found.is_tag_type) == (set(), set(), False)
    with pytest.raises(MQClientError, match="Expression can't be null! SQL92"):
        build_subscription("T", "", "SQL92")


def test_which_table_is_newer() -> None:
    version = DataVersion(counter=5, state_version=1, timestamp=100)
    assert version.is_newer_than(DataVersion(counter=9, state_version=0, timestamp=999))
    assert version.is_newer_than(DataVersion(counter=4, state_version=1, timestamp=999))
    assert version.is_newer_than(DataVersion(counter=5, state_version=1, timestamp=99))
    assert not version.is_newer_than(version.copy())
    kept = version.copy()
    version.next(200, state_version=3)
    assert version == DataVersion(counter=6, state_version=3, timestamp=200)
    assert kept != version
    kept.assign(version)
    assert kept == version


def test_copied_topics_change_apart() -> None:
    config = TopicConfig(topic_name="T", attributes={"a": "1"})
    copied = copy_topic_config(config)
    copied.attributes["a"] = "2"
    assert config.attributes == {"a": "1"}


def test_what_became_of_a_table_entry_is_told_with_what_is_special_about_it() -> None:
    initial = TopicConfig(topic_name="T")
    before = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4)
    after = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4, order=True)
    assert change_text(before, None, initial) == "created: readQueueNums=4, writeQueueNums=4"
    assert change_text(after, before, initial) == "changed: order=true"
    assert change_text(initial, None, initial) == "created: default settings"
    assert change_text(before, before, initial) == "changed: nothing"
    assert settings_text(after, initial) == "order=true, readQueueNums=4, writeQueueNums=4"


def test_queues_sort_by_topic_then_broker_then_number() -> None:
    queues = [
        MessageQueue(topic=topic, broker_name=broker, queue_id=number)
        for topic, broker, number in (("b", "x", 0), ("a", "y", 0), ("a", "x", 10), ("a", "x", 9))
    ]
    assert [str(q.queue_id) + q.broker_name + q.topic for q in sorted(queues)] == [
        *("9xa", "10xa", "0ya", "0xb"),
    ]


def test_which_member_to_ask() -> None:
    assert BrokerData(broker_addrs={1: "s", 0: "m"}).any_address() == "m"
    assert BrokerData(broker_addrs={2: "t", 1: "s"}).any_address() == "s"
    assert BrokerData().any_address() is None
    assert BrokerData(broker_addrs={0: "m"}).master_address == "m"
