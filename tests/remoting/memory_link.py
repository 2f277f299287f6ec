"""Links without sockets: a server connection on a string transport, and handlers that say what they were asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from zope.interface import implementer

from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.codec.headers import (
    GetRouteInfoRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from txrocketmq.interfaces import IConnection, IConnectionListener
from txrocketmq.remoting.dispatch import Dispatcher, Lane, Operation, Reply, Request
from txrocketmq.remoting.limits import RemotingLimits
from txrocketmq.remoting.protocol import RemotingProtocol, RemotingServerFactory

ECHO = 9001
LATER = 9002
RAISE = 9003
HELD = 9004
SILENT = 9005
NONSENSE = 9006
BIG = 9007
CLOSE = 9008
SEND_V2 = 310
ROUTE = 105

OPERATIONS = (
    Operation(ECHO, None, None, "desk.echo", Lane.ADMIN),
    Operation(LATER, None, None, "desk.later", Lane.SEND),
    Operation(RAISE, None, None, "desk.raise_error", Lane.ADMIN),
    Operation(HELD, None, None, "desk.held", Lane.PULL, vip=False, may_hold=True),
    Operation(SILENT, None, None, "desk.silent", Lane.ADMIN),
    Operation(NONSENSE, None, None, "desk.nonsense", Lane.ADMIN),
    Operation(BIG, None, None, "desk.big", Lane.ADMIN),
    Operation(CLOSE, None, None, "desk.close", Lane.ADMIN),
    Operation(ROUTE, GetRouteInfoRequestHeader, None, "desk.route", Lane.ROUTE),
    Operation(
        SEND_V2, SendMessageRequestHeaderV2, SendMessageResponseHeader, "desk.send", Lane.SEND
    ),
)

CLIENT = IPv4Address("TCP", "192.0.2.10", 40000)
SERVER = IPv4Address("TCP", "192.0.2.1", 10911)


class Desk:
    """Serves the operations above and remembers the requests."""

    def __init__(self) -> None:
        self.requests: list[Request[Any]] = []
        self.waiting: list[Deferred[Any]] = []
        self.error: Exception = RuntimeError("the desk fell over")
        self.big_body_bytes = 1000
        self.answer_at_once = False

    def echo(self, request: Request[Any]) -> Reply:
        self.requests.append(request)
        return Reply(body=request.body, ext_fields=request.ext_fields or None)

    def later(self, request: Request[Any]) -> Deferred[Reply]:
        self.requests.append(request)
        if self.answer_at_once:
            return succeed(Reply(body=b"at once"))
        deferred: Deferred[Reply] = Deferred()
        self.waiting.append(deferred)
        return deferred

    held = later

    def raise_error(self, request: Request[Any]) -> Reply:
        self.requests.append(request)
        raise self.error

    def silent(self, request: Request[Any]) -> None:
        self.requests.append(request)

    def nonsense(self, request: Request[Any]) -> Any:
        return "not a reply"

    def big(self, request: Request[Any]) -> Reply:
        self.requests.append(request)
        return Reply(body=bytes(self.big_body_bytes))

    def close(self, request: Request[Any]) -> Reply:
        request.connection.close("asked to")
        return Reply(remark="bye")

    def route(self, request: Request[GetRouteInfoRequestHeader]) -> Reply:
        return Reply(body=request.header.topic.encode())

    def send(self, request: Request[SendMessageRequestHeaderV2]) -> Reply:
        self.requests.append(request)
        header = SendMessageResponseHeader(msg_id="A", queue_id=1, queue_offset=7)
        return Reply(header=header)


@implementer(IConnectionListener)
class Diary:
    """A connection listener that writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, ...]] = []
        self.on_disconnected: Callable[[], None] = lambda: None

    def connected(self, connection: IConnection) -> None:
        self.events.append(("connected", connection.remote_text))

    def disconnected(self, connection: IConnection, reason: str) -> None:
        self.events.append(("disconnected", connection.remote_text, reason))
        self.on_disconnected()

    def idle(self, connection: IConnection) -> None:
        self.events.append(("idle", connection.remote_text))


class CountingTransport(StringTransport):
    """Counts writes, and can be told that the peer does not read."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.writes = 0
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        self.writes += 1
        super().write(data)

    def abortConnection(self) -> None:
        self.is_aborted = True
        super().abortConnection()


class Server:
    """A server factory with a desk, and connections of it on string transports."""

    def __init__(self, *, limits: RemotingLimits | None = None, **options: Any) -> None:
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.desk = Desk()
        self.diary = Diary()
        self.dispatcher = Dispatcher(OPERATIONS, {"desk": self.desk}, self.clock, **options)
        self.factory = RemotingServerFactory(self.dispatcher, self.clock, self.diary, limits)

    def connect(self, peer: Any = CLIENT) -> tuple[RemotingProtocol, CountingTransport]:
        protocol = self.factory.buildProtocol(peer)
        assert protocol is not None
        transport = CountingTransport(SERVER, peer)
        protocol.makeConnection(transport)
        return protocol, transport

    def pass_seconds(self, seconds: int) -> None:
        """Let time go by in small steps, as a reactor would."""
        self.clock.pump([0.25] * (seconds * 4))


def request(code: int, opaque: int = 1, body: bytes = b"", **options: Any) -> bytes:
    """The bytes of a request."""
    return RemotingCommand.create_request(code, body=body, opaque=opaque, **options).encode()


def oneway(code: int, opaque: int = 1, **options: Any) -> bytes:
    """The bytes of a request that wants no answer."""
    return request(code, opaque, flag=2, **options)


def commands(data: bytes) -> list[RemotingCommand]:
    """What some bytes say."""
    return [decode_command(frame) for frame in FrameSplitter().feed(data)]


def answers(transport: StringTransport) -> list[RemotingCommand]:
    """What was written to a transport since the last look."""
    data = transport.value()
    transport.clear()
    return commands(data)


def bodies(found: Sequence[RemotingCommand]) -> list[bytes]:
    return [command.body for command in found]
