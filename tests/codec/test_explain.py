"""Captured bytes as text: every recorded frame, and what is no frame."""

from __future__ import annotations

import pytest
from golden import wire_frames

from txrocketmq.codec import headers
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.explain import explain_stream


def test_a_request_and_its_answer() -> None:
    asked = RemotingCommand.create_request(
        105, headers.GetRouteInfoRequestHeader(topic="T"), opaque=7
    )
    answer = RemotingCommand.create_response(
        asked, 17, remark="No topic route info", body=b'{"a":1}'
    )
    assert explain_stream(asked.encode() + answer.encode() + b"\0") == (
        "request 7: code 105 GET_ROUTEINFO_BY_TOPIC\n"
        "  from PYTHON V5_4_0 (493), header JSON\n"
        "  topic = 'T'\n"
        "\n"
        "response 7: code 17 TOPIC_NOT_EXIST\n"
        "  from PYTHON V5_4_0 (493), header JSON\n"
        "  remark: No topic route info\n"
        '  body of 7 bytes: {"a":1}\n'
        "\n"
        "1 bytes of an unfinished frame"
    )


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"GET / HTTP/1.1", "not a frame: this is HTTP, not the remoting protocol"),
        (
            b"\0\0\0\x04\x05\0\0\0",
            "not a command: serialize type 5 is neither 0 (JSON) nor 1 (ROCKETMQ)\n  05000000",
        ),
        (b"", ""),
    ],
)
def test_what_is_no_command(data: bytes, text: str) -> None:
    assert explain_stream(data) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"plain words", "'plain words'"),
        (b"\0\xff" * 40, " ".join(["00ff00ff"] * 16) + " ..."),
        (b"{not json", "'{not json'"),
        (bytes(4) + bytes.fromhex("daa320a7"), "message records, but "),
    ],
)
def test_bodies(body: bytes, text: str) -> None:
    shown = explain_stream(RemotingCommand.create_request(29999, body=body, flag=2).encode())
    assert shown.startswith("oneway request 0: code 29999 (unknown)\n")
    assert f"body of {len(body)} bytes: {text}" in shown


def test_every_recorded_frame_has_a_text() -> None:
    for frame in wire_frames():
        if frame["kind"] != "remoting":
            continue
        shown = explain_stream(bytes.fromhex(frame["frame_hex"]))
        assert f"code {frame['decoded']['code']} " in shown
        if frame["decoded"]["body_kind"] == "stored-messages":
            assert ": message records\n" in shown
