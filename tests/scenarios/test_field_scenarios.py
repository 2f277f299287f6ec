"""Troubles that users of the protocol really had, driven from outside: a real all-in-one, raw frames on loopback.

The numbers are those of the list of situations from the field: S01 spelling in heartbeats, S03 short, long and unknown header
fields, S04 separators and odd bytes in properties, S08 IPv6 everywhere, S14 size limits. S02 has its own file, S11 and S12 are
shown by ``tests/service/test_addresses.py``, ``test_running.py`` and ``test_command_line.py``.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launch import command_line, run
from real_server import RawLink, RealServer, send_header

from txrocketmq.codec.headers import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    SendMessageResponseHeader,
    ViewMessageRequestHeader,
)
from txrocketmq.codec.record import decode_records
from txrocketmq.model.codes import RequestCode, ResponseCode, SerializeType

LONG_OF_SHORT = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "m": "batch",
}
SEND_FIELDS = {
    "a": "P",
    "b": "ShortAndLong",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1700000000000",
    "h": "7",
    "i": "UNIQ_KEY\x01C0\x02k\x01v\x02",
    "j": "0",
    "k": "false",
    "m": "false",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with RealServer("rocketmq", tmp_path_factory.mktemp("server")) as started:
        yield started
        assert started.end() == 0
        started.assert_calm()


@pytest.fixture
def link(server: RealServer) -> Iterator[RawLink]:
    with server.link() as made:
        yield made


# --------------------------------------------------------------------------- S01


def heartbeat(client: str, group: str, consume_type: str, model: str) -> bytes:
    return (
        f'{{"clientID":"{client}","producerDataSet":[],"consumerDataSet":['
        f'{{"groupName":"{group}","consumeType":"{consume_type}","messageModel":"{model}",'
        '"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":['
        '{"topic":"Spelled","subString":"*","subVersion":1,"expressionType":"TAG"}]},'
        '{"groupName":"Neighbour","consumeType":"CONSUME_PASSIVELY",'
        '"messageModel":"CLUSTERING","subscriptionDataSet":[]}]}'
    ).encode()


@pytest.mark.parametrize(
    ("consume_type", "model"),
    [("PUSH", "Clustering"), ("CONSUME_PASSIVELY", "CLUSTERING")],
)
def test_s01_spellings_of_other_languages(link: RawLink, consume_type: str, model: str) -> None:
    body = heartbeat(f"c-{consume_type}", f"G-{consume_type}", consume_type, model)
    assert link.ask(RequestCode.HEART_BEAT, body=body).code == 0
    members = link.ask(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        ext_fields={"consumerGroup": f"G-{consume_type}"},
    )
    assert (members.code, f"c-{consume_type}" in members.body.decode()) == (0, True)


def test_s01_unknown_words_are_named_and_the_neighbour_counts(link: RawLink) -> None:
    answer = link.ask(
        RequestCode.HEART_BEAT, body=heartbeat("c-odd", "G-odd", "SHOVE", "CLUSTERING")
    )
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "consumeType" in answer.remark
    members = link.ask(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP, ext_fields={"consumerGroup": "Neighbour"}
    )
    assert "c-odd" in members.body.decode()


# --------------------------------------------------------------------------- S03


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_s03_short_long_and_unknown_fields_store_the_same(
    link: RawLink, serialize_type: SerializeType
) -> None:
    short = dict(SEND_FIELDS, b=f"Fields{int(serialize_type)}")
    long = {LONG_OF_SHORT[name]: value for name, value in short.items()}
    stored = []
    for code, fields in [
        (RequestCode.SEND_MESSAGE_V2, short),
        (RequestCode.SEND_MESSAGE, long),
        (RequestCode.SEND_MESSAGE_V2, {**short, "zzz": "new"}),
        (RequestCode.SEND_MESSAGE, {**long, "zzz": "new"}),
    ]:
        answer = link.ask(
            code,
            ext_fields=fields,
            body=b"same",
            serialize_type=int(serialize_type),
            language=99,
            version=32767,
        )
        assert (answer.code, answer.serialize_type) == (0, serialize_type), answer.remark
        stored.append(answer.decode_header(SendMessageResponseHeader))
    assert [sent.queue_offset for sent in stored] == [0, 1, 2, 3]
    messages = link.pull(short["b"])
    seen = {
        (m.body, m.flag, m.born_timestamp, tuple(sorted(m.properties.items()))) for m in messages
    }
    assert len(messages) == 4
    assert len(seen) == 1, seen


@pytest.mark.parametrize("serialize_type", list(SerializeType))
@pytest.mark.parametrize("missing", ["b", "e"])
def test_s03_a_missing_field_is_named_and_the_link_stays(
    link: RawLink, serialize_type: SerializeType, missing: str
) -> None:
    fields = {name: value for name, value in SEND_FIELDS.items() if name != missing}
    answer = link.ask(
        RequestCode.SEND_MESSAGE_V2, ext_fields=fields, serialize_type=int(serialize_type)
    )
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"'{missing}'" in (answer.remark or "")
    assert link.send_message("StillOpen").queue_id == 0


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_s03_an_empty_optional_value_does_no_harm(
    link: RawLink, serialize_type: SerializeType
) -> None:
    topic = f"Empty{int(serialize_type)}"
    answer = link.ask(
        RequestCode.SEND_MESSAGE_V2,
        ext_fields={**SEND_FIELDS, "b": topic, "i": ""},
        body=b"no properties",
        serialize_type=int(serialize_type),
    )
    assert answer.code == 0, answer.remark
    assert [m.body for m in link.pull(topic)] == [b"no properties"]


# --------------------------------------------------------------------------- S04


@pytest.mark.parametrize(
    ("properties", "wanted"),
    [
        ("k\x01v\x02", {"k": "v"}),
        ("k\x01v", {"k": "v"}),
        ("k\x01a,b=c\x02", {"k": "a,b=c"}),
        ("k\x01中文🙂\x02", {"k": "中文🙂"}),
        ("k\x01v\x02\x02\x02", {"k": "v"}),
        ("loose\x02k\x01v\x02", {"k": "v"}),
    ],
)
def test_s04_odd_properties_never_change_other_messages(
    link: RawLink, properties: str, wanted: dict[str, str]
) -> None:
    before = link.send_message("Odd", b"before", "n\x011\x02")
    link.send_message("Odd", b"odd", properties)
    link.send_message("Odd", b"after", "n\x012\x02")
    first, odd, last = link.pull("Odd", 0, before.queue_offset)
    assert (first.body, first.properties["n"]) == (b"before", "1")
    assert {name: odd.properties.get(name) for name in wanted} == wanted
    assert (last.body, last.properties["n"]) == (b"after", "2")


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_s04_bytes_that_are_no_utf8_stop_nobody(
    link: RawLink, serialize_type: SerializeType
) -> None:
    topic = f"Bytes{int(serialize_type)}"
    command = link.request(
        RequestCode.SEND_MESSAGE_V2,
        send_header(topic, properties="k\x01vXYv\x02"),
        body=b"odd bytes",
        serialize_type=int(serialize_type),
    )
    link.send(command.encode().replace(b"vXYv", b"v\xff\xfev"))
    assert link.answer(command.opaque).code == 0
    link.send_message(topic, b"next")
    odd, following = link.pull(topic)
    assert (odd.body, odd.properties["k"]) == (b"odd bytes", "v��v")
    assert following.body == b"next"


# --------------------------------------------------------------------------- S08


def test_s08_ipv6_everywhere(tmp_path: Path) -> None:
    with RealServer("rocketmq", tmp_path / "six", host="::1") as server:
        with server.link() as link:
            sent = link.send_message("Six", b"over six", "KEYS\x01k6\x02", born_timestamp=1)
            assert len(sent.msg_id) == 56
            (message,) = link.pull("Six")
            assert (message.body, message.born_host[0], message.store_host) == (
                b"over six",
                "::1",
                ("::1", server.broker_port),
            )
            assert message.properties["KEYS"] == "k6"
        server.restart(signal.SIGTERM)
        with server.link() as link:
            assert [m.body for m in link.pull("Six")] == [b"over six"]
            found = link.ask_for(
                SearchOffsetResponseHeader,
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                SearchOffsetRequestHeader(
                    topic="Six", queue_id=0, timestamp=message.store_timestamp
                ),
            )
            assert found.offset == 0
            view = link.ask(
                RequestCode.VIEW_MESSAGE_BY_ID,
                ViewMessageRequestHeader(offset=message.physical_offset),
            )
            assert [m.body for m in decode_records(view.body)] == [b"over six"]
        said = run(command_line("send", "Six", "from the shell", "-n", server.namesrv), tmp_path)
        assert said.returncode == 0, said.stdout + said.stderr
        assert server.end() == 0
        server.assert_calm()


# --------------------------------------------------------------------------- S14

MEBI4 = 4 * 1024 * 1024


@pytest.mark.parametrize(("size", "code"), [(MEBI4 - 1, 0), (MEBI4, 0), (MEBI4 + 1, 13)])
def test_s14_size_limits(link: RawLink, size: int, code: int) -> None:
    topic = f"Size{size}"
    answer = link.ask(RequestCode.SEND_MESSAGE_V2, send_header(topic), body=b"x" * size)
    assert answer.code == code, answer.remark
    if code:
        assert str(size) in (answer.remark or "")
        assert str(MEBI4) in (answer.remark or "")
        return
    newest = link.ask_for(
        GetMaxOffsetResponseHeader,
        RequestCode.GET_MAX_OFFSET,
        GetMaxOffsetRequestHeader(topic=topic, queue_id=0),
    )
    assert newest.offset == 1
    assert [len(m.body) for m in link.pull(topic)] == [size]


def test_s14_the_largest_message_is_sent_back_three_times(link: RawLink) -> None:
    link.send_message("Large", b"y" * MEBI4)
    (message,) = link.pull("Large")
    for delay_level in (3, 4, 5):
        fields: dict[str, Any] = {
            "offset": str(message.physical_offset),
            "group": "LargeGroup",
            "delayLevel": str(delay_level),
            "originTopic": "Large",
            "maxReconsumeTimes": "16",
        }
        answer = link.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext_fields=fields)
        assert answer.code == 0, answer.remark
