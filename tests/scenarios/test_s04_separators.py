"""S04: one message with odd properties must neither change another nor stop a queue."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from real_server import RawLink, RealServer, send_header
from scenario import txrocketmq

from txrocketmq.codec.header_codec import header_codec
from txrocketmq.codec.headers import SendMessageRequestHeaderV2
from txrocketmq.model.codes import RequestCode as R
from txrocketmq.model.properties import parse_properties

OWN = ("MSG_REGION", "TRACE_ON", "CLUSTER", "UNIQ_KEY")


def properties_of(link: RawLink, topic: str, offset: int = 0) -> list[dict[str, str]]:
    """The client's own properties of all messages of queue 0."""
    return [
        {name: value for name, value in message.properties.items() if name not in OWN}
        for message in link.pull(topic, 0, offset)
    ]


@pytest.mark.parametrize("option", ["--tag", "--key"])
@pytest.mark.parametrize("separator", ["\x01", "\x02"])
def test_our_client_refuses_the_separators(
    server: RealServer, tmp_path: Path, option: str, separator: str
) -> None:
    value = f"a{separator}b"
    result = txrocketmq(tmp_path, "send", "S04", "x", "-n", server.namesrv, option, value)
    assert (result.returncode, result.stdout) == (1, "")
    assert "contains the character 0x01 or 0x02, which separate properties" in result.stderr


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("A\x011\x02B\x012\x02", {"A": "1", "B": "2"}),
        ("A\x011\x02B\x012", {"A": "1", "B": "2"}),
        ("A\x011\x01tail\x02B\x012\x02", {"A": "1\x01tail", "B": "2"}),
        ("A\x011\x02tail\x02B\x012\x02", {"A": "1", "B": "2"}),
        ("\x01\x02\x02A\x011\x02", {"A": "1"}),
        ("A\x01\x02B\x012\x02\x02\x02", {"B": "2"}),
        ("A\x01a,b=c;d\x02B=\x01=\x02", {"A": "a,b=c;d", "B=": "="}),
        ("名字\x01值\x02KEYS\x01键 😀\x02", {"名字": "值", "KEYS": "键 😀"}),
        ("A\x01\0\x03\x1f\x7f\x02", {"A": "\0\x03\x1f\x7f"}),
    ],
)
def test_what_a_raw_client_writes_changes_no_other_message(
    link: RawLink, text: str, read: dict[str, str]
) -> None:
    first = link.send_message("S04", b"before", "N\x01before\x02")
    link.send_message("S04", b"odd", text)
    link.send_message("S04", b"after", "N\x01after\x02")
    assert properties_of(link, "S04", first.queue_offset) == [
        {"N": "before"},
        read,
        {"N": "after"},
    ]


def raw_send(topic: str, text: bytes, *, binary: bool) -> bytes:
    """A send whose properties are these bytes, UTF-8 or not."""
    fields = header_codec(SendMessageRequestHeaderV2).to_map(send_header(topic))
    if binary:
        entries = b"".join(
            struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(value)) + value
            for name, value in {**{n: v.encode() for n, v in fields.items()}, "i": text}.items()
        )
        head = struct.pack(">hbhiiii", 310, 0, 493, 7, 0, 0, len(entries)) + entries
        word = 1 << 24 | len(head)
    else:
        written = json.dumps({**fields, "i": "PROPERTIES"}).encode()
        # Control characters as they are: JSON forbids it, official servers take it.
        written = written.replace(b"PROPERTIES", text)
        head = b'{"code":310,"extFields":%b,"flag":0,"language":"GO","opaque":7,"version":493}'
        head %= written
        word = len(head)
    return struct.pack(">iI", 4 + len(head) + 4, word) + head + b"body"


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize(
    ("value", "read"),
    [
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"caf\xe9", "caf\ufffd"),
        (b"\xe4\xbd", "\ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"ok\xc3\xa9\x80", "oké\ufffd"),
    ],
)
def test_bytes_that_are_no_text_are_replaced_as_in_java_and_stop_nobody(
    server: RealServer, link: RawLink, tmp_path: Path, binary: bool, value: bytes, read: str
) -> None:
    first = link.send_message("S04bytes", b"before")
    link.send(raw_send("S04bytes", b"K\x01" + value + b"\x02L\x01good\x02", binary=binary))
    answer = link.answer(7)
    assert answer.code == 0, answer.remark
    link.send_message("S04bytes", b"after")
    found = link.pull("S04bytes", 0, first.queue_offset)
    assert [message.body for message in found] == [b"before", b"body", b"after"]
    kept = parse_properties(found[1].properties_text)
    assert (kept["K"], kept["L"]) == (read, "good")


def test_what_is_stored_with_bytes_that_are_no_text_is_read_by_tail(
    server: RealServer, link: RawLink, tmp_path: Path
) -> None:
    link.send(raw_send("S04tail", b"TAGS\x01\xff\x1b[31m\x02", binary=False))
    assert link.answer(7).code == 0
    result = txrocketmq(
        tmp_path, "tail", "S04tail", "-n", server.namesrv, "--from-start", "--count=1"
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "tag=\ufffd\\x1b[31m body" in result.stdout


def test_a_batch_keeps_the_properties_of_its_messages_apart(link: RawLink) -> None:
    def item(body: bytes, text: bytes) -> bytes:
        size = 22 + len(body) + len(text)
        return (
            struct.pack(">iiiii", size, 0, 0, 0, len(body))
            + body
            + struct.pack(">h", len(text))
            + text
        )

    batch = item(b"1", b"A\x01x\x02\x02\x01\x02") + item(b"2", b"B\x01\xff\x02") + item(b"3", b"")
    answer = link.ask(R.SEND_BATCH_MESSAGE, send_header("S04batch"), body=batch)
    assert answer.code == 0, answer.remark
    assert [m.body for m in link.pull("S04batch")] == [b"1", b"2", b"3"]
    assert properties_of(link, "S04batch") == [{"A": "x"}, {"B": "\ufffd"}, {}]
