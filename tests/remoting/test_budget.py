"""Bounds over all connections together: how many there are, unfinished frames, unread answers."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from memory_link import CLIENT, ECHO, SERVER, CountingTransport, Server, answers, bodies, request

from txrocketmq.remoting.budget import Room
from txrocketmq.remoting.limits import RemotingLimits
from txrocketmq.remoting.protocol import RemotingProtocol, RemotingServerFactory
from txrocketmq.remoting.transport import Outlet

KIB = 1024


def begun(size: int, claimed: int = 1024 * KIB) -> bytes:
    """The beginning of a large frame, ``size`` bytes of it."""
    return struct.pack(">i", claimed) + bytes(size - 4)


def small_server(**limits: Any) -> Server:
    return Server(limits=RemotingLimits(max_unfinished_bytes=100 * KIB, **limits))


def used(server: Server) -> int:
    return server.factory.group.input.used


def test_unfinished_frames_are_counted_until_they_are_whole_or_their_link_is_gone() -> None:
    server = small_server()
    first, _ = server.connect()
    second, transport = server.connect()
    whole = request(ECHO, 1, bytes(50 * KIB))
    first.dataReceived(begun(20 * KIB))
    second.dataReceived(whole[: 30 * KIB])
    assert used(server) == 50 * KIB
    second.dataReceived(whole[30 * KIB :] + whole[:10])
    assert used(server) == 20 * KIB + 10
    assert bodies(answers(transport)) == [bytes(50 * KIB)]
    first.connectionLost()
    second.connectionLost()
    assert used(server) == 0


def test_over_the_limit_whoever_brings_more_of_a_large_frame_waits_and_others_do_not() -> None:
    server = small_server()
    holder, _ = server.connect()
    waiting, transport = server.connect()
    small, small_transport = server.connect()
    large = request(ECHO, 1, bytes(60 * KIB))
    holder.dataReceived(begun(90 * KIB))
    waiting.dataReceived(large[: 40 * KIB])
    assert transport.producerState == "paused"
    frame = request(ECHO, 2, b"quick")
    small.dataReceived(frame[:20])
    small.dataReceived(frame[20:])
    assert small_transport.producerState == "producing"
    assert bodies(answers(small_transport)) == [b"quick"]
    holder.connectionLost()
    server.clock.advance(0)
    assert transport.producerState == "producing"
    waiting.dataReceived(large[40 * KIB :])
    assert len(answers(transport)) == 1


def test_a_frame_that_takes_too_long_is_given_up_only_while_others_wait() -> None:
    server = small_server()
    slow, slow_transport = server.connect()
    slow.dataReceived(begun(90 * KIB))
    server.pass_seconds(30)
    assert not slow_transport.disconnecting
    waiting, transport = server.connect()
    waiting.dataReceived(begun(40 * KIB))
    assert transport.producerState == "paused"
    server.pass_seconds(1)
    assert slow_transport.disconnecting
    assert not transport.disconnecting
    assert transport.producerState == "producing"


def test_what_is_whole_is_served_even_when_the_next_frame_has_to_wait() -> None:
    server = small_server()
    holder, _ = server.connect()
    holder.dataReceived(begun(90 * KIB))
    connection, transport = server.connect()
    connection.dataReceived(request(ECHO, 1, b"whole") + begun(40 * KIB))
    assert bodies(answers(transport)) == [b"whole"]
    assert transport.producerState == "paused"


def test_from_twice_the_limit_on_large_frames_are_refused(log_lines: Any) -> None:
    server = small_server()
    links = [server.connect() for _ in range(10)]
    for connection, _ in links:
        connection.dataReceived(begun(30 * KIB))
    assert used(server) <= 200 * KIB
    refused = [transport for _, transport in links if transport.disconnecting]
    assert len(refused) == 4
    assert sum("unfinished frames take" in line for line in log_lines.lines) == 4


def full_link(server: Server, unsent_bytes: int) -> tuple[RemotingProtocol, CountingTransport]:
    connection = server.factory.buildProtocol(CLIENT)
    assert connection is not None
    connection.unsent_bytes = lambda: unsent_bytes  # type: ignore[method-assign]
    transport = CountingTransport(SERVER, CLIENT)
    connection.makeConnection(transport)
    connection.pauseProducing()
    return connection, transport


def test_peers_that_do_not_read_are_cut_when_all_together_leave_too_much() -> None:
    server = Server(limits=RemotingLimits(max_unsent_bytes=100 * KIB, unread_s=10))
    _, first = full_link(server, 60 * KIB)
    server.pass_seconds(20)
    assert not first.is_aborted
    _, second = full_link(server, 60 * KIB)
    server.pass_seconds(2)
    assert first.is_aborted
    server.pass_seconds(20)
    assert not second.is_aborted


def test_those_below_their_own_mark_are_counted_and_cut_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of a thousand peers that leave a little less than a link may have is one of those that use up the memory."""
    monkeypatch.setattr(Outlet, "is_over_high_water", lambda outlet: False)
    server = Server(limits=RemotingLimits(max_unsent_bytes=100 * KIB, unread_s=10))
    links = []
    for _ in range(3):
        connection = server.factory.buildProtocol(CLIENT)
        assert connection is not None
        transport = CountingTransport(SERVER, CLIENT)
        connection.makeConnection(transport)
        connection.unsent_bytes = lambda: 60 * KIB  # type: ignore[method-assign]
        connection.pauseProducing()
        links.append((connection, transport))
    connection, transport = links[0]
    connection.dataReceived(request(ECHO, 1, b"is read"))
    assert bodies(answers(transport)) == [b"is read"]
    server.pass_seconds(20)
    assert [transport.is_aborted for _, transport in links] == [True, True, False]


def test_a_peer_that_reads_again_is_forgiven() -> None:
    server = Server(limits=RemotingLimits(max_unsent_bytes=100 * KIB, unread_s=10))
    connection, transport = full_link(server, 200 * KIB)
    server.pass_seconds(9)
    connection.resumeProducing()
    server.pass_seconds(20)
    assert not transport.is_aborted


def test_ports_of_one_process_share_the_room_for_connections() -> None:
    server = Server()
    room = Room(3)
    ports = [
        RemotingServerFactory(server.dispatcher, server.clock, None, None, room) for _ in range(2)
    ]
    made = [ports[number % 2].buildProtocol(CLIENT) for number in range(3)]
    for protocol in made:
        assert protocol is not None
        protocol.makeConnection(CountingTransport(SERVER, CLIENT))
    assert [port.buildProtocol(CLIENT) for port in ports] == [None, None]
    first = made[0]
    assert first is not None
    first.connectionLost()
    assert room.used == 2
    assert ports[1].buildProtocol(CLIENT) is not None
