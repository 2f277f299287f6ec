"""Do our answers have the official bytes? Recorded requests are served with the recorded outcomes and compared, header and all.

What differs on purpose is put back before comparing: language (PYTHON for JAVA) and the answering release. Answers that the official
server wrote in another serialization than its request (5.4.0 does so) are left
out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from golden import frame_body, wire_frames
from memory_link import CountingTransport
from twisted.internet.task import Clock

from txrocketmq.codec.command import decode_command
from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.remoting.dispatch import Dispatcher, Lane, Operation, Reply, Request
from txrocketmq.remoting.protocol import RemotingServerFactory

JAVA = 0


def exchanges() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Recorded requests with their recorded answers."""
    requests: dict[tuple[str, int], dict[str, Any]] = {}
    for frame in wire_frames():
        if frame["kind"] != "remoting":
            continue
        requests[frame["conversation"], frame["seq"]] = frame
        asked = requests.get((frame["conversation"], frame["reply_to_seq"]))
        if frame["decoded"]["flag"] & 1 and asked is not None:
            yield asked, frame


class Replay:
    """Answers every request as the recording says."""

    def __init__(self) -> None:
        self.recorded: dict[str, Any] = {}

    def serve(self, request: Request[Any]) -> Reply:
        decoded = self.recorded["decoded"]
        return Reply(
            decoded["code"],
            remark=decoded["remark"],
            ext_fields=decoded["extFields"],
            body=frame_body(self.recorded),
        )


@pytest.mark.parametrize("serialization", ["JSON", "ROCKETMQ"])
def test_recorded_requests_get_the_recorded_bytes(serialization: str) -> None:
    pairs = [
        (asked, answer)
        for asked, answer in exchanges()
        if asked["decoded"]["serializeType"] == answer["decoded"]["serializeType"] == serialization
    ]
    replay = Replay()
    codes = {asked["decoded"]["code"] for asked, _ in pairs}
    table = [Operation(code, None, None, "replay.serve", Lane.ADMIN) for code in codes]
    clock = Clock()
    factory = RemotingServerFactory(Dispatcher(table, {"replay": replay}, clock), clock)
    connection = factory.buildProtocol(None)
    assert connection is not None
    transport = CountingTransport()
    connection.makeConnection(transport)
    compared = 0
    for asked, answer in pairs:
        if asked["decoded"]["flag"] & 2:
            continue
        replay.recorded = answer
        transport.clear()
        connection.dataReceived(bytes.fromhex(asked["frame_hex"]))
        (ours,) = FrameSplitter().feed(transport.value())
        command = decode_command(ours)
        command.language = JAVA
        command.version = answer["decoded"]["version"]
        assert command.encode().hex() == answer["frame_hex"]
        compared += 1
    assert compared > (1000 if serialization == "JSON" else 20)
    connection.connectionLost()


def test_an_unknown_code_is_answered_as_recorded() -> None:
    asked, answer = next(pair for pair in exchanges() if pair[0]["decoded"]["code"] == 29999)
    clock = Clock()
    factory = RemotingServerFactory(Dispatcher((), {}, clock), clock)
    connection = factory.buildProtocol(None)
    assert connection is not None
    transport = CountingTransport()
    connection.makeConnection(transport)
    connection.dataReceived(bytes.fromhex(asked["frame_hex"]))
    recorded = bytes.fromhex(answer["frame_hex"])[8:]
    assert transport.value()[8:] == recorded.replace(b'"JAVA"', b'"PYTHON"')
    connection.connectionLost()
