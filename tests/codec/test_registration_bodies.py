"""Registration bodies in their three forms."""

from __future__ import annotations

import contextlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import LINES, frame_body, units, wire_frames
from txrocketmq.codec.bodies import (
    RegisterBrokerBody,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigSerializeWrapper,
    decode_register_broker,
    encode_body,
    encode_register_broker,
    parse_topic_config_text,
    register_body_crc32,
    topic_config_text,
)
from txrocketmq.codec.bodies.registration import decode_registered
from txrocketmq.errors import BodyError
from txrocketmq.model.codes import CURRENT_VERSION, V3_0_11
from txrocketmq.model.static_topic import TopicQueueMappingInfo
from txrocketmq.model.topic import DataVersion, TopicConfig

VERSIONS = {"5.4.0": 493, "4.9.7": 407}


def sample() -> RegisterBrokerBody:
    return RegisterBrokerBody(
        filter_server_list=["192.0.2.1:1"],
        topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
            data_version=DataVersion(counter=7, timestamp=1700000000000),
            topic_config_table={
                "A": TopicConfig(topic_name="A", attributes={"message.type": "FIFO"}),
                "B": TopicConfig(topic_name="B", read_queue_nums=4, write_queue_nums=3, perm=4),
            },
            topic_queue_mapping_info_map={
                "S": TopicQueueMappingInfo(topic="S", curr_id_map={0: 1, 10: 2}, total_queues=2)
            },
        ),
    )


@pytest.mark.parametrize("line", LINES)
def test_unit_vectors(line: str) -> None:
    plain, packed, *texts = units(line)["registerBrokerBody"]
    for vector in (plain, packed):
        data = bytes.fromhex(vector["body_hex"])
        assert register_body_crc32(data) == vector["crc32"]
        body = decode_register_broker(data, compressed=vector["compressed"], version=VERSIONS[line])
        wrapper = body.topic_config_serialize_wrapper
        assert wrapper.data_version.counter == 7
        assert wrapper.data_version.timestamp == 1700000000000
        assert {
            name: (config.read_queue_nums, config.write_queue_nums, config.perm)
            for name, config in wrapper.topic_config_table.items()
        } == {"TopicUnit": (4, 4, 6), "TopicOrdered": (8, 8, 4)}
        ordered = wrapper.topic_config_table["TopicOrdered"]
        # The compressed form does not carry these two.
        assert ordered.order is not vector["compressed"]
        assert ordered.topic_sys_flag == (0 if vector["compressed"] else 1)
        if line == "5.4.0":
            assert encode_register_broker(body, compressed=vector["compressed"]) == data
        for text in texts:
            name = text["topicConfigText"].split(" ")[0]
            config = wrapper.topic_config_table[name]
            expected = text["topicConfigText"]
            assert topic_config_text(config) in (expected, f"{expected} {{}}")
            assert parse_topic_config_text(expected).topic_name == name


def test_recorded_compressed_registrations() -> None:
    seen = 0
    for frame in wire_frames():
        decoded = frame["decoded"]
        if frame["kind"] == "remoting" and decoded["body_kind"] == "zlib":
            fields = decoded["extFields"] or {}
            if decoded["codeName"] != "REGISTER_BROKER" or "requestName" in decoded:
                continue
            data = frame_body(frame)
            assert str(register_body_crc32(data)) == fields["bodyCrc32"]
            body = decode_register_broker(data, compressed=True, version=decoded["version"])
            assert "TBW102" in body.topic_config_serialize_wrapper.topic_config_table
            again = encode_register_broker(body, compressed=True)
            if decoded["version"] == CURRENT_VERSION:
                assert zlib.decompress(again) == zlib.decompress(data)
            seen += 1
    assert seen == 4


def test_static_mappings_come_from_new_brokers_only() -> None:
    data = encode_register_broker(sample(), compressed=True)
    assert decode_register_broker(data, compressed=True, version=CURRENT_VERSION) == sample()
    old = decode_register_broker(data, compressed=True, version=VERSIONS["4.9.7"])
    assert old.topic_config_serialize_wrapper.topic_queue_mapping_info_map == {}


def test_the_plain_form_comes_back() -> None:
    data = encode_register_broker(sample(), compressed=False)
    assert decode_register_broker(data, compressed=False, version=CURRENT_VERSION) == sample()


@pytest.mark.parametrize("compressed", [False, True])
def test_name_servers_read_their_part_of_it(compressed: bool) -> None:
    data = encode_register_broker(sample(), compressed=compressed)
    whole = decode_register_broker(data, compressed=compressed, version=CURRENT_VERSION)
    part = decode_registered(data, compressed=compressed, version=CURRENT_VERSION)
    assert part.filter_server_list == whole.filter_server_list
    wrapper, kept = whole.topic_config_serialize_wrapper, part.topic_config_serialize_wrapper
    assert kept.data_version == wrapper.data_version
    assert kept.topic_queue_mapping_info_map == wrapper.topic_queue_mapping_info_map
    members = ("perm", "read_queue_nums", "topic_sys_flag", "write_queue_nums")
    assert {
        name: [getattr(share, member) for member in members]
        for name, share in kept.topic_config_table.items()
    } == {
        name: [getattr(config, member) for member in members]
        for name, config in wrapper.topic_config_table.items()
    }


def test_brokers_before_3_0_11_send_the_table_alone() -> None:
    table = TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=1), topic_config_table={"A": TopicConfig(topic_name="A")}
    )
    body = decode_register_broker(encode_body(table), compressed=True, version=V3_0_11 - 1)
    assert body.topic_config_serialize_wrapper.topic_config_table == table.topic_config_table
    assert body.topic_config_serialize_wrapper.data_version == table.data_version


def test_attributes_with_a_space_are_dropped_as_official_servers_do() -> None:
    assert parse_topic_config_text('T 4 4 6 SINGLE_TAG {"a":"b c"}').attributes == {}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("T 4 4 6", "fewer than 5"),
        ("T x 4 6 SINGLE_TAG", "readQueueNums"),
        ("T 4 4 6 NO_TAG", "topicFilterType"),
    ],
)
def test_a_bad_topic_text_is_named(text: str, fault: str) -> None:
    with pytest.raises(BodyError, match=fault):
        parse_topic_config_text(text)


@given(st.data())
def test_damaged_registrations_raise_nothing_but_body_error(data: st.DataObject) -> None:
    inner = bytearray(zlib.decompress(encode_register_broker(sample(), compressed=True)))
    position = data.draw(st.integers(0, len(inner) - 1))
    if data.draw(st.booleans()):
        del inner[position:]
    else:
        inner[position] = data.draw(st.integers(0, 255))
    packed = bytearray(zlib.compress(bytes(inner)))
    if data.draw(st.booleans()):
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= 0x55
    with contextlib.suppress(BodyError):
        decode_register_broker(bytes(packed), compressed=True, version=CURRENT_VERSION)
