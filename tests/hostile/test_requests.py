"""Requests that cannot be served: a code and a remark that names the cause, on a link that goes on, in both serializations."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from real_server import RawLink, RealServer, pull_header, send_header

from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.header_codec import header_codec
from txrocketmq.codec.record import encode_batch
from txrocketmq.model.codes import RequestCode as R
from txrocketmq.model.codes import ResponseCode as C

SEND = header_codec(type(send_header("T"))).to_map(send_header("T"))
PULL = header_codec(type(pull_header("T"))).to_map(pull_header("T"))
LIMIT = 4 * 1024 * 1024


def without(fields: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in fields.items() if key != name}


#: code, fields, body: the answer's code, and words of its remark.
REFUSED: dict[str, tuple[int, dict[str, str], bytes, int, str]] = {
    "required field left out": (310, without(SEND, "e"), b"", 1, "'e': is missing"),
    "no fields at all": (310, {}, b"", 1, "is missing"),
    "text for a number": (310, {**SEND, "e": "one"}, b"", 1, "'e': 'one' is not a whole number"),
    "number past an int": (310, {**SEND, "e": "2147483648"}, b"", 1, "'e': '2147483648' is not"),
    "number past a long": (310, {**SEND, "g": "9" * 19}, b"", 1, "is not between"),
    "number of 10,000 digits": (310, {**SEND, "g": "9" * 10_000}, b"", 1, "'g': '9999"),
    "fraction": (310, {**SEND, "e": "1.5"}, b"", 1, "'e': '1.5' is not a whole number"),
    "unknown code": (9999, {}, b"", 3, " request type 9999 not supported"),
    "negative code": (-5, {}, b"", 3, " request type -5 not supported"),
    "code of name servers": (105, {"topic": "T"}, b"", 3, "a request for name servers"),
    "blank topic": (310, {**SEND, "b": " "}, b"", 29, "The specified topic is blank"),
    "topic with a slash": (310, {**SEND, "b": "../T"}, b"", 29, "contains illegal characters"),
    "topic of emoji": (310, {**SEND, "b": "T😀"}, b"", 29, "contains illegal characters"),
    "topic with a zero": (310, {**SEND, "b": "T\0"}, b"", 29, "contains illegal characters"),
    "topic too long": (310, {**SEND, "b": "t" * 128}, b"", 29, "longer than topic max length: 127"),
    "retry topic too long": (310, {**SEND, "b": "%RETRY%" + "g" * 249}, b"", 29, "length: 255"),
    "reserved topic": (310, {**SEND, "b": "SCHEDULE_TOPIC_XXXX"}, b"", 16, "is forbidden"),
    "model topic unknown": (
        310,
        {**SEND, "b": "New", "c": "None"},
        b"",
        17,
        "topic[New] not exist",
    ),
    "queue id past the last": (310, {**SEND, "e": "4"}, b"", 29, "queueId[4] is illegal"),
    "body over the limit": (310, SEND, bytes(LIMIT + 1), 13, f"body of {LIMIT + 1}B"),
    "properties over the limit": (310, {**SEND, "i": "a\x01" + "v" * 32768}, b"", 13, "32"),
    "batch that is no batch": (320, SEND, b"no batch", 13, "illegal"),
    "batch cut short": (320, SEND, encode_batch([(0, b"x", b"")])[:-3], 13, "illegal"),
    "pull of an unknown topic": (11, {**PULL, "topic": "Unknown"}, b"", 17, "Unknown] not exist"),
    "pull of queue -1": (11, {**PULL, "queueId": "-1"}, b"", 29, "queueId[-1] is illegal"),
    "pull of queue 99": (11, {**PULL, "queueId": "99"}, b"", 29, "queueId[99] is illegal"),
    "pull for an illegal group": (11, {**PULL, "consumerGroup": "a b"}, b"", 26, "not exist, a b"),
    "pull with no tag": (11, {**PULL, "subscription": "||"}, b"", 23, "subscription failed"),
    "heartbeat of bytes": (34, {}, b"\xff\x00", 1, "HeartbeatData: not JSON"),
    "heartbeat without client": (34, {}, b"{}", 1, "without clientID"),
    "deep heartbeat": (34, {}, b'{"clientID":' + b"[" * 100_000, 1, "HeartbeatData: "),
    "illegal group": (
        34,
        {},
        b'{"clientID":"c","consumerDataSet":[{"groupName":"a/b"}]}',
        1,
        "a/b",
    ),
    "lock of nothing": (41, {}, b"{}", 1, "must name consumerGroup and clientId"),
    "topic with nine permissions": (
        17,
        {
            "topic": "New",
            "defaultTopic": "TBW102",
            "readQueueNums": "4",
            "writeQueueNums": "4",
            "perm": "9",
            "topicFilterType": "SINGLE_TAG",
            "order": "false",
        },
        b"",
        29,
        "perm",
    ),
}


@pytest.fixture(scope="module", autouse=True)
def topic(server: RealServer) -> None:
    """Topic T is there."""
    with server.link() as link:
        link.send_message("T", properties="UNIQ_KEY\x01a\x02")


@pytest.mark.parametrize("serialize_type", [0, 1], ids=["json", "binary"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_its_cause(
    server: RealServer, good: RawLink, name: str, serialize_type: int
) -> None:
    code, fields, body, answer_code, words = REFUSED[name]
    answer = good.ask(code, ext_fields=fields, body=body, serialize_type=serialize_type)
    assert answer.serialize_type == serialize_type
    assert (answer.code, answer.is_response) == (answer_code, True)
    assert words in (answer.remark or "")
    assert len(answer.remark or "") < 2100
    # Told that it wants no answer, a request that cannot be served gets none.
    good.tell(code, ext_fields=fields, body=body, serialize_type=serialize_type, flag=2)


@pytest.mark.parametrize("serialize_type", [0, 1], ids=["json", "binary"])
def test_huge_fields_are_refused_in_few_words(good: RawLink, serialize_type: int) -> None:
    for fields in ({**SEND, "b": "t" * 5_000_000}, {**SEND, "b": "\x01" * 2_000_000}):
        answer = good.ask(R.SEND_MESSAGE_V2, ext_fields=fields, serialize_type=serialize_type)
        assert answer.code == C.INVALID_PARAMETER
        assert len(answer.remark or "") < 2100


def test_the_largest_frame_is_read_and_refused(good: RawLink) -> None:
    answer = good.ask(R.SEND_MESSAGE_V2, ext_fields=SEND, body=bytes(16_000_000))
    assert answer.code == C.MESSAGE_ILLEGAL


def test_a_name_server_refuses_as_well(server: RealServer) -> None:
    with server.link(server.namesrv_port) as link:

        def refusal(code: int, body: bytes = b"", **fields: str) -> tuple[int, str]:
            answer = link.ask(code, ext_fields=fields, body=body)
            return answer.code, answer.remark or ""

        assert refusal(105) == (1, "header field 'topic': is missing")
        assert refusal(310, **SEND) == (3, " request type 310 not supported")
        assert refusal(105, topic="Unknown")[0] == C.TOPIC_NOT_EXIST
        broker = {
            "brokerName": "b",
            "brokerAddr": "192.0.2.1:1",
            "clusterName": "c",
            "haServerAddr": "192.0.2.1:2",
            "brokerId": "0",
        }
        assert refusal(103, b"{}", **broker, bodyCrc32="1") == (1, "crc32 not match")
        code, remark = refusal(103, b"no JSON", **broker, bodyCrc32="0")
        assert (code, remark[:20]) == (1, "RegisterBrokerBody: ")
        code, remark = refusal(103, b"x\x9cno zlib", **broker, compressed="true", bodyCrc32="0")
        assert (code, remark[:20]) == (1, "RegisterBrokerBody: ")
        bomb = refusal(103, _zeros_compressed(), **broker, compressed="true", bodyCrc32="0")
        assert (bomb[0], "grows over the limit" in bomb[1]) == (1, True)
        assert refusal(103, b"{}", **{**broker, "brokerId": "9" * 20}, bodyCrc32="0")[0] == 1
        assert refusal(105, topic="Good")[0] in (0, C.TOPIC_NOT_EXIST)


def _zeros_compressed() -> bytes:
    import zlib

    packer = zlib.compressobj(9)
    return b"".join([packer.compress(bytes(1 << 20)) for _ in range(65)]) + packer.flush()


def test_marks_of_a_message_that_only_brokers_make_change_nothing(good: RawLink) -> None:
    """The sysFlag's bits for addresses are the broker's own: a liar's must not shift the fields of the record."""
    body = b"\x00" * 40 + struct.pack(">i", -626843481)
    for sys_flag in (0x10, 0x20, 0x30, -(2**31)):
        sent = good.send_message("Flags", body, sys_flag=sys_flag & ~0x8C)
        (message,) = good.pull("Flags", sent.queue_id, sent.queue_offset)
        assert message.body == body
        assert message.born_host[0] == "127.0.0.1"
        assert message.sys_flag & 0x30 == 0


def test_every_bit_of_the_sys_flag_is_survived(good: RawLink) -> None:
    for bit in range(32):
        number = 1 << bit if bit < 31 else -(1 << 31)
        answer = good.ask(R.SEND_MESSAGE_V2, send_header("Flags", sys_flag=number), body=b"x")
        assert answer.code in (0, C.MESSAGE_ILLEGAL)
    sent = good.send_message("Flags", b"last")
    (message,) = good.pull("Flags", sent.queue_id, sent.queue_offset)
    assert message.body == b"last"


def test_numbers_at_the_ends_of_their_range_are_stored_as_they_are(good: RawLink) -> None:
    for low in (True, False):
        int32, int64 = (-(2**31), -(2**63)) if low else (2**31 - 1, 2**63 - 1)
        values: dict[str, Any] = {"flag": int32, "born_timestamp": int64, "reconsume_times": int32}
        sent = good.send_message("Ends", b"x", **values)
        (message,) = good.pull("Ends", sent.queue_id, sent.queue_offset)
        assert {name: getattr(message, name) for name in values} == values


def test_an_answer_comes_back_under_any_opaque(good: RawLink) -> None:
    for opaque in (0, -1, -(2**31), 2**31 - 1):
        command = RemotingCommand.create_request(R.SEND_MESSAGE_V2, send_header("T"), opaque=opaque)
        good.send(command.encode())
        assert good.answer(opaque).code == 0
