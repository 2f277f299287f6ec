"""Bytes that are no commands, on both ports: one line in the log, one connection closed, nobody else notices."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from launch import wait_until
from real_server import RawLink, RealServer

from txrocketmq.codec.headers import GetRouteInfoRequestHeader
from txrocketmq.model.codes import RequestCode

REQUEST = {
    "code": 105,
    "extFields": {"topic": "Good"},
    "flag": 0,
    "language": "JAVA",
    "opaque": 7,
    "serializeTypeCurrentRPC": "JSON",
    "version": 493,
}


def frame(head: bytes | dict[str, Any], *, kind: int = 0, length: int | None = None) -> bytes:
    """A frame whose header length may lie."""
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    word = kind << 24 | (len(text) if length is None else length)
    return struct.pack(">iI", 4 + len(text), word) + text


def binary(remark: int, fields: int, rest: bytes = b"") -> bytes:
    """A binary header with lengths that may lie."""
    return frame(struct.pack(">hbhiiii", 105, 0, 493, 7, 0, remark, fields) + rest, kind=1)


GARBAGE = {
    "negative length": (struct.pack(">i", -1), "frame length -1 is too small"),
    "no room for a header": (struct.pack(">i", 3) + b"abc", "frame length 3 is too small"),
    "oversized length": (struct.pack(">i", 16777213), "frame length 16777213 exceeds the limit"),
    "largest length": (b"\x7f\xff\xff\xff", "frame length 2147483647 exceeds the limit"),
    "empty header": (struct.pack(">ii", 4, 0), "the header is not JSON"),
    "header longer than its frame": (frame(REQUEST, length=100_000), "header length 100000 exc"),
    "unknown serialize type": (frame(REQUEST, kind=2), "serialize type 2 is neither"),
    "no JSON": (frame(b"hello world"), "the header is not JSON"),
    "cut JSON": (frame(b'{"code":105,'), "the header is not JSON"),
    "JSON that is no object": (frame(b"[105]"), "the header is not JSON"),
    "UTF-16": (frame('{"code":105}'.encode("utf-16")), "the header is not JSON"),
    "deep lists": (frame(b'{"code":105,"extFields":{"topic":' + b"[" * 100_000), "nested too deep"),
    "deep objects": (frame(b'{"code":105,"x":' + b'{"a":' * 50_000), "nested too deeply"),
    "extFields that are a list": (frame({**REQUEST, "extFields": []}), "extFields is not an obj"),
    "code past an int": (frame({**REQUEST, "code": 1 << 31}), "the header's code is unreadable"),
    "opaque past an int": (frame({**REQUEST, "opaque": 1 << 31}), "opaque is unreadable"),
    "fractional code": (frame({**REQUEST, "code": 105.5}), "the header's code is unreadable"),
    "binary header cut short": (frame(b"12345", kind=1), "code: 12 bytes missing"),
    "negative remark": (binary(-5, 0), "remark: length 4294967291"),
    "map longer than its header": (binary(0, 999_999), "ext_fields: length 999999"),
    "map that ends in an entry": (binary(0, 3, b"\0\x01k"), "an entry is cut off"),
    "negative value": (binary(0, 7, b"\0\x01k\xff\xff\xff\xff"), "the value of 'k'"),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", "this is HTTP"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "this is HTTP"),
    "TLS": (bytes.fromhex("16030100c2010000be0303") + bytes(200), "this is a TLS handshake"),
    "SSH": (b"SSH-2.0-OpenSSH_9.9\r\n", "frame length 1397966893 exceeds the limit"),
}


def is_alive(server: RealServer) -> bool:
    """Both roles answer a newcomer."""
    with server.link(server.namesrv_port) as link:
        return link.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == 0


@pytest.mark.parametrize("role", ["name server", "broker"])
@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_costs_one_line_and_one_connection(
    server: RealServer, good: RawLink, name: str, role: str
) -> None:
    data, reason = GARBAGE[name]
    port = server.namesrv_port if role == "name server" else server.broker_port
    with server.link(port) as link:
        local = f"127.0.0.1:{link.socket.getsockname()[1]}"
        link.send(data)
        assert link.is_closed_by_server()
    wait_until(lambda: server.count(local), "the line")
    assert server.count(f"{local}: .*{reason}.*closing the connection") == 1
    assert server.count(local) == 1
    assert is_alive(server)


def test_what_came_before_the_garbage_is_answered(server: RealServer) -> None:
    with server.link(server.namesrv_port) as link:
        command = link.request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="Good")
        )
        link.send(command.encode() + GARBAGE["TLS"][0])
        assert link.answer(command.opaque).code in (0, 17)
        assert link.is_closed_by_server()


def test_answers_that_nobody_asked_for_are_counted_and_dropped(
    server: RealServer, good: RawLink
) -> None:
    with server.link() as link:
        local = f"127.0.0.1:{link.socket.getsockname()[1]}"
        link.send(frame({**REQUEST, "flag": 1}) * 1000)
        assert link.send_message("Good").queue_offset >= 0
        assert server.count(f"{local}: answer to opaque 7, which was never asked") == 1


def test_a_peer_that_says_its_last_word_is_still_answered(server: RealServer) -> None:
    with server.link(server.namesrv_port) as link:
        opaque = link.tell(RequestCode.GET_BROKER_CLUSTER_INFO)
        link.socket.shutdown(1)
        assert link.answer(opaque).code == 0
        assert link.is_closed_by_server()


def test_a_frame_byte_by_byte_is_a_frame(server: RealServer, good: RawLink) -> None:
    with server.link(server.namesrv_port) as link:
        command = link.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        for byte in command.encode():
            link.send(bytes([byte]))
        assert link.answer(command.opaque).code == 0


def test_half_a_frame_and_then_nothing_holds_nobody_up(server: RealServer, good: RawLink) -> None:
    whole = frame(REQUEST)
    slow = [server.link() for _ in range(20)]
    for number, link in enumerate(slow):
        link.send(whole[: 1 + number * 7])
    assert good.send_message("Good").queue_offset >= 0
    for link in slow[:10]:
        link.close()
    for link in slow[10:]:
        link.socket.shutdown(1)
        assert link.is_closed_by_server()
        link.close()
