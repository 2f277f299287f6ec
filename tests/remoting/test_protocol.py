"""Does one connection keep its promises: frames cut anywhere, bad bytes, silence, back pressure, its end?"""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from memory_link import (
    BIG,
    CLIENT,
    CLOSE,
    ECHO,
    HELD,
    LATER,
    ROUTE,
    SERVER,
    CountingTransport,
    Server,
    answers,
    bodies,
    commands,
    oneway,
    request,
)
from twisted.internet.address import IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.logger import LogLevel
from twisted.python.failure import Failure
from zope.interface.verify import verifyObject

from txrocketmq.codec.command import RemotingCommand
from txrocketmq.errors import (
    RemotingSendError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)
from txrocketmq.interfaces import IConnection
from txrocketmq.remoting.dispatch import Reply
from txrocketmq.remoting.limits import RemotingLimits


def outcome(deferred: Deferred[Any]) -> Any:
    """The result or the exception; None while it waits."""
    found: list[Any] = []
    deferred.addBoth(lambda result: found.append(getattr(result, "value", result)))
    return found[0] if found else None


# --------------------------------------------------------------------------- frames


def test_frames_cut_at_every_byte_are_answered_alike(server: Server) -> None:
    data = request(ECHO, 1, b"one") + request(ROUTE, 2, ext_fields={"topic": "T"})
    for cut in range(len(data) + 1):
        connection, transport = server.connect()
        connection.dataReceived(data[:cut])
        connection.dataReceived(data[cut:])
        assert bodies(answers(transport)) == [b"one", b"T"]


def test_frames_byte_by_byte(server: Server) -> None:
    connection, transport = server.connect()
    for byte in request(ECHO, 1, b"slow") + request(ECHO, 2, b"slower"):
        connection.dataReceived(bytes([byte]))
    assert bodies(answers(transport)) == [b"slow", b"slower"]


def test_the_largest_frame_in_small_pieces(server: Server) -> None:
    connection, transport = server.connect()
    empty = request(BIG, 1)
    data = request(BIG, 1, bytes(16 * 1024 * 1024 - len(empty)))
    assert len(data) == 16 * 1024 * 1024
    for start in range(0, len(data), 1024):
        connection.dataReceived(data[start : start + 1024])
    assert len(server.desk.requests[0].body) == len(data) - len(empty)
    assert [answer.code for answer in answers(transport)] == [0]


def frame(header: bytes, serialize_type: int = 0, *, header_length: int | None = None) -> bytes:
    length = len(header) if header_length is None else header_length
    return struct.pack(">iI", 4 + len(header), serialize_type << 24 | length) + header


GOOD_HEADER = b'{"code":9001,"flag":0,"language":"JAVA","opaque":1,"version":493}'

GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: broker:10911\r\n\r\n",
    "tls hello": bytes.fromhex("16030100c2010000be0303") + bytes(200),
    "negative length": struct.pack(">i", -1) + bytes(20),
    "no room for a header": struct.pack(">i", 3) + bytes(20),
    "oversized length": struct.pack(">i", 16 * 1024 * 1024 + 1),
    "header longer than the frame": frame(GOOD_HEADER, header_length=len(GOOD_HEADER) + 1),
    "unknown serialize type": frame(GOOD_HEADER, 2),
    "invalid JSON": frame(b'{"code":9001,'),
    "JSON that is no object": frame(b"[1,2]"),
    "code that is no number": frame(b'{"code":"x","opaque":1,"flag":0}'),
    "header that is not text": frame(b'\xff\xfe{\0"\0'),
    "extFields that are no map": frame(b'{"code":9001,"opaque":1,"extFields":[1]}'),
    "deep JSON": frame(b'{"code":9001,"extFields":{"a":' + b"[" * 100_000),
    "binary header cut short": frame(bytes(5), 1),
    "binary map longer than the header": frame(
        struct.pack(">hbhiiii", 9001, 0, 493, 1, 0, 0, 1000), 1
    ),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_closes_only_its_own_connection(server: Server, log_lines: Any, name: str) -> None:
    other, other_transport = server.connect()
    connection, transport = server.connect()
    connection.dataReceived(request(ECHO, 7, b"before") + GARBAGE[name])
    assert bodies(answers(transport)) == [b"before"]
    assert transport.disconnecting
    connection.dataReceived(request(ECHO, 8, b"after"))
    assert transport.value() == b""
    other.dataReceived(request(ECHO, 9, b"alive"))
    assert bodies(answers(other_transport)) == [b"alive"]
    assert not other_transport.disconnecting
    (line,) = log_lines.lines
    assert line.startswith("192.0.2.10:40000: ")
    assert line.endswith("; closing the connection")
    assert log_lines.failures == []
    assert server.factory.group.protocol_errors == 1


def test_unknown_keys_languages_and_versions_are_ignored(server: Server) -> None:
    connection, transport = server.connect()
    head = {"code": ECHO, "opaque": 4, "flag": 0, "language": "KLINGON", "version": 32767, "zzz": 1}
    connection.dataReceived(frame(json.dumps(head).encode()))
    assert [answer.opaque for answer in answers(transport)] == [4]


# --------------------------------------------------------------------------- requests to the peer


def answer_to(command: RemotingCommand, body: bytes = b"") -> bytes:
    return RemotingCommand.create_response(command, 0, body=body).encode()


def test_answers_find_their_requests_out_of_order(server: Server) -> None:
    connection, transport = server.connect()
    asked = [connection.request(ECHO, None, b"%d" % number, 3000) for number in range(10)]
    sent = answers(transport)
    assert len({command.opaque for command in sent}) == 10
    for command in reversed(sent):
        connection.dataReceived(answer_to(command, command.body * 2))
    assert bodies([outcome(deferred) for deferred in asked]) == [
        b"%d%d" % (number, number) for number in range(10)
    ]


def test_both_sides_ask_over_one_link(server: Server) -> None:
    connection, transport = server.connect()
    asked = connection.request(ECHO, None, b"from the server", 3000)
    (sent,) = answers(transport)
    connection.dataReceived(
        request(ECHO, sent.opaque, b"from the client") + answer_to(sent, b"done")
    )
    assert bodies(answers(transport)) == [b"from the client"]
    assert outcome(asked).body == b"done"


def test_a_request_times_out_in_time_and_its_late_answer_is_harmless(
    server: Server, log_lines: Any
) -> None:
    connection, transport = server.connect()
    deadlines = {0.1: None, 0.5: None, 3.0: None}
    start = server.clock.seconds()

    def note(failure: Failure, timeout_s: float) -> None:
        assert isinstance(failure.value, RemotingTimeoutError)
        assert f"within {timeout_s * 1000:g} ms" in str(failure.value)
        deadlines[timeout_s] = server.clock.seconds() - start

    for timeout_s in deadlines:
        deferred = connection.request(ECHO, None, b"", int(timeout_s * 1000))
        deferred.addErrback(note, timeout_s)
    sent = answers(transport)
    for _ in range(500):
        server.clock.advance(0.01)
    for timeout_s, taken_s in deadlines.items():
        assert taken_s is not None
        assert timeout_s <= taken_s + 1e-6
        assert taken_s <= timeout_s + 0.1
    for command in sent:
        connection.dataReceived(answer_to(command))
    assert log_lines.of_level(LogLevel.warn) == []
    assert connection.is_open


def test_an_answer_that_nobody_asked_for_is_logged_once(server: Server, log_lines: Any) -> None:
    connection, transport = server.connect()
    for opaque in (555, 556, 557):
        stray = RemotingCommand.create_request(ECHO, opaque=opaque, flag=1)
        connection.dataReceived(stray.encode())
    (line,) = log_lines.of_level(LogLevel.warn)
    assert "555" in line
    connection.dataReceived(request(ECHO, 1))
    assert len(answers(transport)) == 1


def test_a_lost_connection_fails_its_waiters(server: Server) -> None:
    connection, _ = server.connect()
    asked = [connection.request(ECHO, None, b"", 3000) for _ in range(3)]
    connection.connectionLost(Failure(ConnectionLost("reset")))
    for deferred in asked:
        error = outcome(deferred)
        assert isinstance(error, RemotingSendError)
        assert error.address == "192.0.2.10:40000"
    assert isinstance(outcome(connection.request(ECHO, None, b"", 3000)), RemotingSendError)
    assert connection.oneway(ECHO, None, b"") is False


def test_a_cancelled_request_is_forgotten(server: Server) -> None:
    connection, transport = server.connect()
    asked = connection.request(ECHO, None, b"", 3000)
    asked.addErrback(lambda failure: None)
    asked.cancel()
    (sent,) = answers(transport)
    connection.dataReceived(answer_to(sent))
    server.pass_seconds(5)
    assert connection.is_open


def test_a_request_made_while_others_expire_expires_in_time_too(server: Server) -> None:
    first, _ = server.connect()
    second, _ = server.connect()
    expired: list[float] = []

    def ask_again(failure: Failure) -> None:
        expired.append(server.clock.seconds())
        again = first.request(ECHO, None, b"", 200)
        again.addErrback(lambda _: expired.append(server.clock.seconds()))

    second.request(ECHO, None, b"", 300).addErrback(ask_again)
    for _ in range(100):
        server.clock.advance(0.01)
    assert len(expired) == 2
    assert 0.2 <= expired[1] - expired[0] < 0.3


def test_our_requests_are_bounded() -> None:
    server = Server(limits=RemotingLimits(max_requests=2))
    connection, transport = server.connect()
    first = connection.request(ECHO, None, b"", 3000)
    connection.request(ECHO, None, b"", 3000).addErrback(lambda failure: None)
    refused = outcome(connection.request(ECHO, None, b"", 3000))
    assert isinstance(refused, RemotingTooMuchRequestError)
    sent = answers(transport)
    assert len(sent) == 2
    connection.dataReceived(answer_to(sent[0]))
    assert outcome(first).code == 0
    assert outcome(connection.request(ECHO, None, b"", 3000)) is None


def test_a_oneway_request_of_ours_says_so(server: Server) -> None:
    connection, transport = server.connect()
    assert connection.oneway(40, None, b"") is True
    (sent,) = answers(transport)
    assert (sent.code, sent.flag) == (40, 2)


# --------------------------------------------------------------------------- idle


def test_a_connection_that_is_silent_for_120_s_is_closed(server: Server) -> None:
    connection, transport = server.connect()
    server.pass_seconds(119)
    assert not transport.disconnecting
    server.pass_seconds(3)
    assert transport.disconnecting
    connection.connectionLost()
    peer = "192.0.2.10:40000"
    assert server.diary.events == [
        ("connected", peer),
        ("idle", peer),
        ("disconnected", peer, "idle for 120 s"),
    ]


@pytest.mark.parametrize("direction", ["in", "out"])
def test_bytes_in_either_direction_keep_a_connection(server: Server, direction: str) -> None:
    connection, transport = server.connect()
    for _ in range(3):
        server.pass_seconds(100)
        if direction == "in":
            connection.dataReceived(oneway(ECHO))
        else:
            connection.oneway(ECHO, None, b"")
    assert not transport.disconnecting
    server.pass_seconds(122)
    assert transport.disconnecting


# --------------------------------------------------------------------------- back pressure


def test_a_peer_that_does_not_read_is_not_read(server: Server) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(ECHO, 1))
    transport.producer.pauseProducing()
    assert transport.producerState == "paused"
    assert connection.oneway(ECHO, None, b"") is False
    connection.dataReceived(request(ECHO, 2) + request(ECHO, 3))  # was under way already
    assert [answer.opaque for answer in answers(transport)] == [1]
    transport.producer.resumeProducing()
    assert [answer.opaque for answer in answers(transport)] == [2, 3]
    assert transport.producerState == "producing"
    assert connection.oneway(ECHO, None, b"") is True


def test_who_has_much_to_say_is_called_when_the_peer_reads_again(server: Server) -> None:
    connection, transport = server.connect()
    called: list[str] = []
    connection.call_when_writable(lambda: called.append("at once"))
    transport.producer.pauseProducing()
    assert not connection.is_writable
    connection.call_when_writable(lambda: called.append("later"))
    assert called == ["at once"]
    transport.producer.resumeProducing()
    assert called == ["at once", "later"]
    transport.producer.pauseProducing()
    connection.call_when_writable(lambda: called.append("never"))
    connection.connectionLost()
    assert connection._when_writable == []


class NarrowTransport(CountingTransport):
    """Pauses its producer when more than 64 KiB are written, like the real one."""

    def write(self, data: bytes) -> None:
        super().write(data)
        if self.producer is not None and len(self.value()) > 65536:
            self.producer.pauseProducing()


def test_a_turn_never_makes_more_output_than_the_mark_and_one_answer() -> None:
    server = Server(limits=RemotingLimits(high_water_bytes=100_000))
    server.desk.big_body_bytes = 40_000
    connection = server.factory.buildProtocol(CLIENT)
    assert connection is not None
    transport = NarrowTransport(SERVER, CLIENT)
    connection.makeConnection(transport)
    connection.dataReceived(b"".join(request(BIG, opaque) for opaque in range(10)))
    seen: list[int] = []
    for _ in range(10):
        data = transport.value()
        assert len(data) < 100_000 + 41_000
        seen += [command.opaque for command in commands(data)]
        transport.clear()
        if len(seen) == 10:
            break
        assert transport.producerState == "paused"
        transport.producer.resumeProducing()
    assert seen == list(range(10))
    assert transport.producerState == "paused" or transport.value() == b""
    transport.producer.resumeProducing()
    assert transport.producerState == "producing"


def test_too_many_unanswered_requests_stop_the_reading_until_answers_are_given() -> None:
    server = Server(limits=RemotingLimits(max_unanswered=4))
    connection, transport = server.connect()
    connection.dataReceived(b"".join(request(LATER, opaque) for opaque in range(10)))
    assert len(server.desk.waiting) == 4
    assert transport.producerState == "paused"
    server.desk.waiting[0].callback(Reply())
    server.clock.advance(0)
    assert len(server.desk.waiting) == 5
    assert transport.producerState == "paused"
    done = 1
    while done < len(server.desk.waiting):
        server.desk.waiting[done].callback(Reply())
        done += 1
        server.clock.advance(0)
    assert [answer.opaque for answer in answers(transport)] == list(range(10))
    assert transport.producerState == "producing"


def test_held_pulls_do_not_stop_the_reading() -> None:
    server = Server(limits=RemotingLimits(max_unanswered=4))
    connection, transport = server.connect()
    connection.dataReceived(b"".join(request(HELD, opaque) for opaque in range(100)))
    connection.dataReceived(request(ECHO, 100))
    assert [answer.opaque for answer in answers(transport)] == [100]
    assert transport.producerState == "producing"


def test_connections_are_bounded(log_lines: Any) -> None:
    server = Server(limits=RemotingLimits(max_connections=2))
    first, _ = server.connect()
    server.connect()
    for _ in range(5):
        assert server.factory.buildProtocol(CLIENT) is None
    assert server.factory.group.turned_away == 5
    assert len(log_lines.of_level(LogLevel.warn)) == 1
    first.connectionLost()
    server.connect()


# --------------------------------------------------------------------------- the end


def test_a_handler_may_close_and_its_answer_is_still_written(server: Server) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(CLOSE, 1) + request(ECHO, 2))
    (answer,) = answers(transport)
    assert (answer.opaque, answer.remark) == (1, "bye")
    assert transport.disconnecting
    assert transport.producer is None


def test_no_answer_once_the_connection_is_gone(server: Server) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(LATER, 1) + request(LATER, 2))
    held = server.desk.requests[1]
    connection.connectionLost()
    server.desk.waiting[0].callback(Reply())
    held.answer(Reply())
    assert transport.value() == b""


def test_a_closed_connection_whose_peer_does_not_read_is_cut(server: Server) -> None:
    connection, transport = server.connect()
    connection.close("enough")
    server.pass_seconds(4)
    assert not transport.is_aborted
    server.pass_seconds(3)
    assert transport.is_aborted


def test_listeners_hear_of_each_connection_once(server: Server) -> None:
    connection, _ = server.connect()
    connection.close("role changed")
    connection.close("again")
    connection.connectionLost()
    peer = "192.0.2.10:40000"
    assert server.diary.events == [
        ("connected", peer),
        ("disconnected", peer, "role changed"),
    ]


def test_a_raising_listener_harms_nobody(server: Server, log_lines: Any) -> None:
    def trouble() -> None:
        raise RuntimeError("listener")

    server.diary.on_disconnected = trouble
    connection, _ = server.connect()
    connection.connectionLost()
    assert len(log_lines.failures) == 1
    assert server.factory.group.connections == {}


def test_closing_all_waits_for_each(server: Server) -> None:
    first, _ = server.connect()
    second, _ = server.connect()
    gone = server.factory.close_all()
    first.connectionLost()
    assert not gone.called
    second.connectionLost()
    assert gone.called
    assert server.factory.close_all().called
    assert server.clock.getDelayedCalls() == []


def test_addresses_of_both_ends(server: Server) -> None:
    connection, _ = server.connect(IPv6Address("TCP", "2001:db8::7", 50000))
    assert connection.remote_address == ("2001:db8::7", 50000)
    assert connection.remote_text == "[2001:db8::7]:50000"
    assert connection.local_address == ("192.0.2.1", 10911)
    mapped, _ = server.connect(IPv6Address("TCP", "::ffff:192.0.2.9", 50001))
    assert mapped.remote_address == ("192.0.2.9", 50001)
    scoped, _ = server.connect(IPv6Address("TCP", "fe80::1%eth0", 50002))
    assert scoped.remote_text == "[fe80::1]:50002"


def test_a_connection_is_what_the_interface_says(server: Server) -> None:
    connection, _ = server.connect()
    assert verifyObject(IConnection, connection)
    assert connection.attributes == {}
