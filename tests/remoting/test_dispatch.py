"""Is every request answered as it must be, by whom it must be?"""

from __future__ import annotations

from typing import Any

import pytest
from memory_link import (
    CLIENT,
    ECHO,
    HELD,
    LATER,
    NONSENSE,
    OPERATIONS,
    RAISE,
    ROUTE,
    SEND_V2,
    SILENT,
    CountingTransport,
    Desk,
    Server,
    answers,
    bodies,
    oneway,
    request,
)
from twisted.internet.task import Clock

from txrocketmq.codec.command import RemotingCommand
from txrocketmq.errors import BodyError, PoolFullError, ResponseError, StoreError
from txrocketmq.model.codes import V5_3_1
from txrocketmq.remoting.dispatch import REMARK_OVERLOAD, Dispatcher, Lane, Operation, Reply
from txrocketmq.remoting.protocol import RemotingServerFactory


def test_a_request_is_answered_with_its_opaque(server: Server) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(ECHO, 77, b"hello", ext_fields={"a": "1"}))
    (answer,) = answers(transport)
    assert (answer.opaque, answer.code, answer.flag, answer.body) == (77, 0, 1, b"hello")
    assert answer.ext_fields == {"a": "1"}


def test_pipelined_requests_are_answered_by_one_write_in_order(server: Server) -> None:
    connection, transport = server.connect()
    connection.dataReceived(b"".join(request(ECHO, opaque, b"%d" % opaque) for opaque in range(5)))
    assert transport.writes == 1
    assert [answer.opaque for answer in answers(transport)] == [0, 1, 2, 3, 4]


def test_a_deferred_answer_comes_after_later_ones(server: Server) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(LATER, 1) + request(LATER, 2) + request(ECHO, 3))
    assert [answer.opaque for answer in answers(transport)] == [3]
    server.desk.waiting[1].callback(Reply(body=b"second"))
    server.desk.waiting[0].callback(Reply(body=b"first"))
    found = answers(transport)
    assert [(answer.opaque, answer.body) for answer in found] == [(2, b"second"), (1, b"first")]


def test_a_held_request_is_answered_much_later(server: Server) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(SILENT, 5) + request(ECHO, 6))
    assert [answer.opaque for answer in answers(transport)] == [6]
    server.pass_seconds(60)
    server.desk.requests[0].answer(Reply(19, remark="no new message"))
    (answer,) = answers(transport)
    assert (answer.opaque, answer.code, answer.remark) == (5, 19, "no new message")


@pytest.mark.parametrize("code", [ECHO, RAISE, LATER, NONSENSE, ROUTE, SEND_V2, 29999])
def test_a_oneway_request_is_never_answered(server: Server, code: int) -> None:
    connection, transport = server.connect()
    connection.dataReceived(oneway(code))
    for deferred in server.desk.waiting:
        deferred.errback(RuntimeError("late"))
    for asked in server.desk.requests:
        asked.answer(Reply())
    assert transport.value() == b""
    connection.dataReceived(request(ECHO, 2))
    assert [answer.opaque for answer in answers(transport)] == [2]


def test_an_unknown_code_gets_the_official_remark(server: Server) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(29999, 308))
    (answer,) = answers(transport)
    assert (answer.code, answer.remark) == (3, " request type 29999 not supported")
    assert answer.ext_fields is None


def test_a_code_that_is_not_served_says_why() -> None:
    server = Server(not_served={301: "filter servers were removed in 5.x"})
    connection, transport = server.connect()
    connection.dataReceived(request(301))
    (answer,) = answers(transport)
    remark = " request type 301 not supported: filter servers were removed in 5.x"
    assert (answer.code, answer.remark) == (3, remark)


def test_a_missing_required_field_is_named_and_the_link_lives(server: Server) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(ROUTE, 1, ext_fields={"other": "x"}) + request(ECHO, 2))
    refused, served = answers(transport)
    assert refused.code == 1
    assert "topic" in (refused.remark or "")
    assert served.opaque == 2


def test_absent_ext_fields_are_an_empty_map(server: Server) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(ECHO, 1))
    assert server.desk.requests[0].ext_fields == {}
    connection.dataReceived(request(ROUTE, 2))
    echoed, refused = answers(transport)
    assert echoed.ext_fields is None
    assert "topic" in (refused.remark or "")


def test_a_raising_handler_is_answered_and_logged_with_traceback(
    server: Server, log_lines: Any
) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(RAISE, 1) + request(ECHO, 2))
    refused, served = answers(transport)
    assert (refused.code, refused.remark) == (1, "RuntimeError: the desk fell over")
    assert served.opaque == 2
    (failure,) = log_lines.failures
    assert "raise_error" in failure.getTraceback()
    assert server.dispatcher.lanes[Lane.ADMIN].failed == 1


@pytest.mark.parametrize("code", [RAISE, LATER])
def test_a_refusal_becomes_the_answer_without_traceback(
    server: Server, log_lines: Any, code: int
) -> None:
    connection, transport = server.connect()
    server.desk.error = ResponseError(17, "topic[T] not exist")
    connection.dataReceived(request(code))
    for deferred in server.desk.waiting:
        deferred.errback(server.desk.error)
    (answer,) = answers(transport)
    assert (answer.code, answer.remark) == (17, "topic[T] not exist")
    assert log_lines.failures == []


def test_an_unreadable_body_is_told_to_the_asker(server: Server, log_lines: Any) -> None:
    connection, transport = server.connect()
    server.desk.error = BodyError("clientID: not a string")
    connection.dataReceived(request(RAISE))
    (answer,) = answers(transport)
    assert (answer.code, answer.remark) == (1, "clientID: not a string")
    assert log_lines.failures == []


def test_an_outcome_that_is_no_reply_says_that_no_code_was_set(server: Server) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(NONSENSE))
    (answer,) = answers(transport)
    assert (answer.code, answer.remark) == (1, "not set any response code")


def test_an_answer_that_cannot_be_encoded_becomes_an_error(server: Server, log_lines: Any) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(LATER, 1) + request(ECHO, 2))
    server.desk.waiting[0].callback(Reply(header=object()))  # type: ignore[arg-type]
    assert [(answer.opaque, answer.code) for answer in answers(transport)] == [(2, 0), (1, 1)]
    assert len(log_lines.failures) == 1


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_answers_use_the_serialize_type_of_their_request(
    server: Server, serialize_type: int
) -> None:
    connection, transport = server.connect()
    for code in (ECHO, 29999, RAISE, ROUTE, LATER):
        connection.dataReceived(request(code, code, serialize_type=serialize_type))
    server.desk.waiting[0].callback(Reply())
    found = answers(transport)
    assert len(found) == 5
    assert {answer.serialize_type for answer in found} == {serialize_type}


def test_deferreds_that_fired_already_are_answered_in_the_turn(server: Server) -> None:
    connection, transport = server.connect()
    server.desk.answer_at_once = True
    connection.dataReceived(request(LATER, 1) + request(ECHO, 2, b"next"))
    assert bodies(answers(transport)) == [b"at once", b"next"]
    assert transport.writes == 1
    assert server.dispatcher.lanes[Lane.SEND].pending == 0


def test_a_deferred_none_is_no_answer(server: Server) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(LATER, 1))
    server.desk.waiting[0].callback(None)
    assert transport.value() == b""
    assert server.dispatcher.lanes[Lane.SEND].pending == 0


# --------------------------------------------------------------------------- lanes


def test_a_full_lane_is_busy_until_an_answer_makes_room() -> None:
    server = Server(lane_limits={Lane.SEND: 2})
    connection, transport = server.connect()
    for opaque in (1, 2, 3):
        connection.dataReceived(request(LATER, opaque))
    connection.dataReceived(request(ECHO, 4))
    busy, other_lane = answers(transport)
    assert (busy.opaque, busy.code) == (3, 2)
    assert busy.remark == "[OVERLOAD]system busy, start flow control for a while"
    assert other_lane.opaque == 4
    lane = server.dispatcher.lanes[Lane.SEND]
    assert (lane.requests, lane.pending, lane.refused) == (3, 2, 1)
    server.desk.waiting[0].callback(Reply())
    connection.dataReceived(request(LATER, 5))
    assert [answer.opaque for answer in answers(transport)] == [1]
    lane.limit = 3
    connection.dataReceived(request(LATER, 6))
    assert transport.value() == b""
    assert lane.pending == 3


def test_held_requests_do_not_fill_their_lane() -> None:
    server = Server(lane_limits={Lane.PULL: 1})
    connection, transport = server.connect()
    for opaque in range(10):
        connection.dataReceived(request(HELD, opaque))
    assert transport.value() == b""
    assert len(server.desk.waiting) == 10


# --------------------------------------------------------------------------- hooks


class Clerk:
    """A hook that writes everything down and may refuse."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []
        self.refuse: Exception | None = None

    def before_request(self, address: str, command: RemotingCommand) -> None:
        self.seen.append(("before", address, command.code))
        if self.refuse is not None:
            raise self.refuse

    def after_response(self, address: str, command: RemotingCommand, answer: object) -> None:
        assert isinstance(answer, Reply)
        self.seen.append(("after", address, command.code, answer.code))


def test_hooks_see_requests_and_answers() -> None:
    clerk = Clerk()
    server = Server(hooks=[clerk])
    connection, transport = server.connect()
    connection.dataReceived(request(ECHO, 1) + request(LATER, 2) + request(29999, 3))
    server.desk.waiting[0].callback(Reply(4))
    peer = "192.0.2.10:40000"
    assert clerk.seen == [
        ("before", peer, ECHO),
        ("after", peer, ECHO, 0),
        ("before", peer, LATER),
        ("before", peer, 29999),
        ("after", peer, 29999, 3),
        ("after", peer, LATER, 4),
    ]
    assert len(answers(transport)) == 3


def test_a_hook_refuses_a_request_before_it_is_served() -> None:
    clerk = Clerk()
    clerk.refuse = ResponseError(16, "no permission")
    server = Server(hooks=[clerk])
    connection, transport = server.connect()
    connection.dataReceived(request(ECHO, 1) + oneway(ECHO, 2))
    (answer,) = answers(transport)
    assert (answer.code, answer.remark) == (16, "no permission")
    assert server.desk.requests == []


# --------------------------------------------------------------------------- the table


@pytest.mark.parametrize(
    ("operation", "complaint"),
    [
        (Operation(1, None, None, "desk.nothing", Lane.ADMIN), "has no method 'nothing'"),
        (Operation(1, None, None, "nobody.echo", Lane.ADMIN), "no object 'nobody'"),
        (Operation(1, None, None, "desk.__init__", Lane.ADMIN), "must take one request"),
        (Operation(ECHO, None, None, "desk.echo", Lane.ADMIN), "in the operations table twice"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_at_the_start(
    operation: Operation, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        Dispatcher((*OPERATIONS, operation), {"desk": Desk()}, Clock())


def test_a_code_cannot_be_served_and_not_served() -> None:
    with pytest.raises(ValueError, match="twice"):
        Dispatcher(OPERATIONS, {"desk": Desk()}, Clock(), not_served={ECHO: "no"})


def test_the_second_listener_serves_the_same_without_some(server: Server) -> None:
    factory = RemotingServerFactory(server.dispatcher.for_vip(), server.clock)
    connection = factory.buildProtocol(CLIENT)
    transport = CountingTransport()
    connection.makeConnection(transport)
    connection.dataReceived(request(ECHO, 1) + request(HELD, 2))
    assert [answer.code for answer in answers(transport)] == [0, 3]
    assert server.dispatcher.lanes[Lane.ADMIN].requests == 1
    connection.connectionLost()


def test_a_server_that_goes_away_tells_those_who_understand() -> None:
    server = Server()
    server.dispatcher.going_away = True
    connection, transport = server.connect()
    connection.dataReceived(request(ECHO, 1) + request(ECHO, 2, version=V5_3_1))
    told, served = answers(transport)
    assert (told.code, told.remark) == (1500, "please go away")
    assert served.code == 0


def test_requests_say_who_asked_and_when(server: Server) -> None:
    connection, _ = server.connect()
    connection.dataReceived(oneway(ECHO, 9, language=1, version=407))
    (asked,) = server.desk.requests
    assert (asked.code, asked.opaque, asked.oneway) == (ECHO, 9, True)
    assert (asked.language, asked.version) == (1, 407)
    assert asked.arrived_ms == 1_700_000_000_000
    assert asked.connection is connection


def test_a_failed_deferred_is_logged_and_answered(server: Server, log_lines: Any) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(LATER, 1) + request(LATER, 2))
    server.desk.waiting[0].errback(ValueError("late trouble"))
    server.desk.waiting[1].errback(OSError(28, "No space left on device"))
    first, second = answers(transport)
    assert (first.code, first.remark) == (1, "ValueError: late trouble")
    assert (second.code, second.remark) == (1, "[Errno 28] No space left on device")
    # What may happen on any machine is one line, without the way that the program took there.
    assert len(log_lines.failures) == 1
    assert any("cannot be served: [Errno 28]" in line for line in log_lines.lines)


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (PoolFullError("pool store-read is full"), 2, REMARK_OVERLOAD),
        (StoreError("pool store-read is stopped"), 1, "pool store-read is stopped"),
    ],
)
def test_what_the_store_cannot_do_now_is_told_without_a_traceback(
    server: Server, log_lines: Any, error: Exception, code: int, remark: str
) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(LATER, 1))
    server.desk.waiting[0].errback(error)
    (answer,) = answers(transport)
    assert (answer.code, answer.remark) == (code, remark)
    assert log_lines.failures == []


def test_a_pop_code_is_cut_to_16_bits_by_the_binary_header(server: Server) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(200050, 1, serialize_type=1) + request(200050, 2))
    cut, whole = answers(transport)
    assert (cut.code, cut.remark) == (3, " request type 3442 not supported")
    assert whole.remark == " request type 200050 not supported"


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_every_answer_says_the_release_that_we_behave_as(
    server: Server, serialize_type: int
) -> None:
    connection, transport = server.connect()
    connection.dataReceived(request(ECHO, 1, version=407, serialize_type=serialize_type))
    (answer,) = answers(transport)
    assert answer.version == 493
