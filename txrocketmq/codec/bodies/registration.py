"""The body with which a broker registers its topics at a name server, in all three forms.

Stands for ``RegisterBrokerBody`` and the topic tables in it. The forms:

* JSON, the usual one;
* compressed: a zlib stream of ``int length, DataVersion JSON | int topic count | per topic: int length, "name readQ writeQ perm
  filterType [attributes JSON]" | int length, filter server JSON | int mapping count | per mapping: int length, JSON``; the
  mappings only from brokers of version V5_0_0 on. It carries neither ``topicSysFlag`` nor ``order``;
* brokers before V3_0_11 send the topic table alone.
"""

from __future__ import annotations

import re
import zlib
from struct import Struct

import msgspec

from txrocketmq.codec.bodies.wire import decode_body, encode_body
from txrocketmq.codec.compress import inflate
from txrocketmq.errors import BodyError
from txrocketmq.model.bean import Bean, fresh
from txrocketmq.model.codes import V3_0_11, V5_0_0
from txrocketmq.model.javahash import crc32
from txrocketmq.model.static_topic import TopicQueueMappingDetail, TopicQueueMappingInfo
from txrocketmq.model.topic import DataVersion, TopicConfig, TopicShare

MAX_REGISTRATION_BYTES = 32 * 1024 * 1024
"""Bound on what a compressed registration may grow to: some 300,000 topics, twice what fits into a frame of the plain form."""

_INT = Struct(">i")
_PLAIN_TEXT = re.compile(
    r"([^ ]+) (\d{1,9}) (\d{1,9}) (\d{1,9}) [^ ]+(?: .*)?", re.ASCII | re.DOTALL
)
_encoder = msgspec.json.Encoder()


class TopicConfigSerializeWrapper(Bean, kw_only=True):
    """All topics of a broker; also the file ``topics.json``."""

    data_version: DataVersion = fresh(DataVersion)
    topic_config_table: dict[str, TopicConfig] = fresh(dict)


class TopicConfigAndMappingSerializeWrapper(Bean, kw_only=True):
    """All topics of a broker with their static mappings."""

    data_version: DataVersion = fresh(DataVersion)
    mapping_data_version: DataVersion = fresh(DataVersion)
    topic_config_table: dict[str, TopicConfig] = fresh(dict)
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] = fresh(dict)
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = fresh(dict)


class RegisterBrokerBody(Bean, kw_only=True):
    """What a broker registers: its topic table, and its filter servers."""

    filter_server_list: list[str] = fresh(list)
    topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = fresh(
        TopicConfigAndMappingSerializeWrapper
    )


class RegisteredTable(Bean, kw_only=True):
    """What a name server keeps of a registration's topic table."""

    data_version: DataVersion = fresh(DataVersion)
    topic_config_table: dict[str, TopicShare] = fresh(dict)
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = fresh(dict)


class RegisteredBody(Bean, kw_only=True):
    """What a name server keeps of a `RegisterBrokerBody`."""

    filter_server_list: list[str] = fresh(list)
    topic_config_serialize_wrapper: RegisteredTable = fresh(RegisteredTable)


def register_body_crc32(data: bytes) -> int:
    """The CRC-32 that the registration's header carries as ``bodyCrc32`` for the body as sent."""
    return crc32(data)


def encode_register_broker(body: RegisterBrokerBody, *, compressed: bool) -> bytes:
    """A registration as JSON, or in the compressed form."""
    if not compressed:
        return encode_body(body)
    wrapper = body.topic_config_serialize_wrapper
    parts: list[bytes] = []
    _put(parts, _encoder.encode(wrapper.data_version))
    parts.append(_INT.pack(len(wrapper.topic_config_table)))
    for config in wrapper.topic_config_table.values():
        _put(parts, topic_config_text(config).encode())
    _put(parts, _encoder.encode(body.filter_server_list))
    parts.append(_INT.pack(len(wrapper.topic_queue_mapping_info_map)))
    for info in wrapper.topic_queue_mapping_info_map.values():
        _put(parts, encode_body(info))
    return zlib.compress(b"".join(parts), 9)


def decode_register_broker(data: bytes, *, compressed: bool, version: int) -> RegisterBrokerBody:
    """A registration in any of the three forms.

    :param version: the version number of the broker's command.
    :raises BodyError: naming the part that cannot be read.
    """
    if version < V3_0_11:
        topics = decode_body(TopicConfigSerializeWrapper, data)
        return RegisterBrokerBody(
            topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
                data_version=topics.data_version, topic_config_table=topics.topic_config_table
            )
        )
    if not compressed:
        return decode_body(RegisterBrokerBody, data)
    reader = _Reader(inflate(data, MAX_REGISTRATION_BYTES, "RegisterBrokerBody"))
    wrapper = TopicConfigAndMappingSerializeWrapper(
        data_version=decode_body(DataVersion, reader.block("dataVersion"))
    )
    for number in range(reader.count("topic count")):
        config = parse_topic_config_text(_utf8(reader.block(f"topic {number}"), f"topic {number}"))
        wrapper.topic_config_table[config.topic_name or ""] = config
    filter_servers = _filter_servers(reader.block("filterServerList"))
    if version >= V5_0_0:
        wrapper.topic_queue_mapping_info_map = _mappings(reader)
    return RegisterBrokerBody(
        filter_server_list=filter_servers, topic_config_serialize_wrapper=wrapper
    )


def decode_registered(data: bytes, *, compressed: bool, version: int) -> RegisteredBody:
    """The part of a registration that a name server keeps; it takes half the time and memory of the whole.

    A topic's name is its key in the table, which brokers make of the name.

    :param version: the version number of the broker's command.
    :raises BodyError: naming the part that cannot be read.
    """
    if version < V3_0_11:
        return _part_of(decode_register_broker(data, compressed=compressed, version=version))
    if compressed:
        return _decode_compact(data, version)
    try:
        return decode_body(RegisteredBody, data)
    except BodyError:
        # The same, with the error in the official body's words.
        return _part_of(decode_body(RegisterBrokerBody, data))


def _decode_compact(data: bytes, version: int) -> RegisteredBody:
    reader = _Reader(inflate(data, MAX_REGISTRATION_BYTES, "RegisterBrokerBody"))
    table = RegisteredTable(data_version=decode_body(DataVersion, reader.block("dataVersion")))
    shares = table.topic_config_table
    for number in range(reader.count("topic count")):
        text = _utf8(reader.block("a topic"), f"topic {number}")
        found = _PLAIN_TEXT.fullmatch(text)
        if found is None:
            config = parse_topic_config_text(text)
            shares[config.topic_name or ""] = _share(config)
        else:
            name, read_queues, write_queues, perm = found.groups()
            shares[name] = TopicShare(
                perm=int(perm),
                read_queue_nums=int(read_queues),
                write_queue_nums=int(write_queues),
            )
    filter_servers = _filter_servers(reader.block("filterServerList"))
    if version >= V5_0_0:
        table.topic_queue_mapping_info_map = _mappings(reader)
    return RegisteredBody(filter_server_list=filter_servers, topic_config_serialize_wrapper=table)


def _mappings(reader: _Reader) -> dict[str, TopicQueueMappingInfo]:
    found = {}
    for number in range(reader.count("mapping count")):
        info = decode_body(TopicQueueMappingInfo, reader.block(f"mapping {number}"))
        found[info.topic or ""] = info
    return found


def _part_of(whole: RegisterBrokerBody) -> RegisteredBody:
    wrapper = whole.topic_config_serialize_wrapper
    return RegisteredBody(
        filter_server_list=whole.filter_server_list,
        topic_config_serialize_wrapper=RegisteredTable(
            data_version=wrapper.data_version,
            topic_config_table={
                name: _share(config) for name, config in wrapper.topic_config_table.items()
            },
            topic_queue_mapping_info_map=wrapper.topic_queue_mapping_info_map,
        ),
    )


def _share(config: TopicConfig) -> TopicShare:
    return TopicShare(
        perm=config.perm,
        read_queue_nums=config.read_queue_nums,
        topic_sys_flag=config.topic_sys_flag,
        write_queue_nums=config.write_queue_nums,
    )


def topic_config_text(config: TopicConfig) -> str:
    """A topic in the compact text of the compressed form."""
    return (
        f"{config.topic_name} {config.read_queue_nums} {config.write_queue_nums} {config.perm}"
        f" {config.topic_filter_type} {_encoder.encode(config.attributes).decode()}"
    )


def parse_topic_config_text(text: str) -> TopicConfig:
    """A topic from its compact text; 4.x brokers leave the attributes out.

    :raises BodyError: naming the member that cannot be read.
    """
    fields = text.split(" ")
    if len(fields) < 5:
        raise BodyError(f"RegisterBrokerBody: topic text {text[:200]!r} has fewer than 5 fields")
    values: dict[str, object] = {"topicName": fields[0], "topicFilterType": fields[4]}
    for name, field in zip(("readQueueNums", "writeQueueNums", "perm"), fields[1:4], strict=True):
        values[name] = field
    try:
        config = msgspec.convert(values, TopicConfig, strict=False)
    except msgspec.ValidationError as error:
        raise BodyError(f"RegisterBrokerBody: topic {fields[0][:200]!r}: {error}") from None
    if len(fields) > 5 and fields[5]:
        try:
            config.attributes = msgspec.json.decode(fields[5], type=dict[str, str])
        except msgspec.DecodeError:
            # An attribute with a space in it breaks this form; official name servers drop the attributes then.
            config.attributes = {}
    return config


def _filter_servers(data: bytes) -> list[str]:
    try:
        return msgspec.json.decode(data, type=list[str])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BodyError(f"RegisterBrokerBody: filterServerList: {error}") from None


def _put(parts: list[bytes], block: bytes) -> None:
    parts.append(_INT.pack(len(block)))
    parts.append(block)


def _utf8(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BodyError(f"RegisterBrokerBody: {what}: {error}") from None


class _Reader:
    """Takes counted blocks off the inflated stream."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pos = 0

    def count(self, what: str) -> int:
        start = self._pos
        if len(self._data) - start < 4:
            raise BodyError(f"RegisterBrokerBody: {what}: the data ends at byte {start}")
        value: int = _INT.unpack_from(self._data, start)[0]
        if value < 0 or value > len(self._data):
            raise BodyError(f"RegisterBrokerBody: {what}: impossible number {value}")
        self._pos = start + 4
        return value

    def block(self, what: str) -> bytes:
        size = self.count(what)
        start, end = self._pos, self._pos + size
        if end > len(self._data):
            raise BodyError(f"RegisterBrokerBody: {what}: {size} bytes run over the end")
        self._pos = end
        return self._data[start:end]
