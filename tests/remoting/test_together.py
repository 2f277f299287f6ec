"""Do answers that become known together leave in one write for each connection?"""

from __future__ import annotations

import pytest
from memory_link import LATER, Server, answers, request

from txrocketmq.remoting.dispatch import Reply


def opaques(transport: object) -> list[int]:
    return [answer.opaque for answer in answers(transport)]


def test_each_connection_gets_one_write_for_all_its_answers(server: Server) -> None:
    first, of_first = server.connect()
    second, of_second = server.connect()
    first.dataReceived(b"".join(request(LATER, opaque) for opaque in range(5)))
    second.dataReceived(b"".join(request(LATER, opaque) for opaque in range(5, 8)))
    together = server.factory.group.together

    def answer_all() -> None:
        for deferred in server.desk.waiting:
            deferred.callback(Reply())
        assert of_first.writes == of_second.writes == 0

    together(answer_all)
    assert (of_first.writes, of_second.writes) == (1, 1)
    assert opaques(of_first) == [0, 1, 2, 3, 4]
    assert opaques(of_second) == [5, 6, 7]


def test_afterwards_each_answer_is_written_at_once(server: Server) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(LATER, 1) + request(LATER, 2))
    server.factory.group.together(lambda: server.desk.waiting[0].callback(Reply()))
    server.desk.waiting[1].callback(Reply())
    assert transport.writes == 2
    assert opaques(transport) == [1, 2]


def test_what_was_answered_before_a_failure_leaves_all_the_same(server: Server) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(LATER, 1))

    def fail() -> None:
        server.desk.waiting[0].callback(Reply())
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        server.factory.group.together(fail)
    assert opaques(transport) == [1]


def test_a_connection_that_is_closed_meanwhile_gets_its_answers_first(server: Server) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(LATER, 1) + request(LATER, 2))

    def answer_and_close() -> None:
        server.desk.waiting[0].callback(Reply())
        connection.close("enough")
        server.desk.waiting[1].callback(Reply())
        assert not transport.disconnecting

    server.factory.group.together(answer_and_close)
    assert opaques(transport) == [1]
    assert transport.disconnecting


def test_a_connection_that_is_lost_meanwhile_gets_nothing(server: Server) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(LATER, 1))

    def answer_and_lose() -> None:
        server.desk.waiting[0].callback(Reply())
        connection.connectionLost()

    server.factory.group.together(answer_and_lose)
    assert transport.value() == b""


def test_within_one_another_the_outermost_ends_the_turn(server: Server) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(LATER, 1) + request(LATER, 2))
    together = server.factory.group.together

    def outer() -> None:
        together(lambda: server.desk.waiting[0].callback(Reply()))
        server.desk.waiting[1].callback(Reply())

    together(outer)
    assert transport.writes == 1
    assert opaques(transport) == [1, 2]
