"""Who serves a request, and what becomes of its outcome? From a decoded command to the bytes of its answer.

Stands for ``processRequestCommand`` of the official ``NettyRemotingAbstract`` with its ``processorTable``, and for the executors
that it submits to: those are `Lane` s here, names for counters and bounds, since one thread serves all.

::

    command --table--> header --handler--> Reply ----------------------> bytes, at once
                |        |        |------> Deferred[Reply] -------------> bytes, when it fires
                |        |        |------> None: nothing now (held: `Request.answer` later; or a oneway request)
                |        |        `------> raises ResponseError: its code and remark; anything else: SYSTEM_ERROR,
                |        |                 with a traceback in the log when nobody foresaw it
                |        `--> HeaderError: SYSTEM_ERROR that names the field
                `--> REQUEST_CODE_NOT_SUPPORTED, or SYSTEM_BUSY when the lane is full

A oneway request never gets an answer, whatever happens.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.codec.command import RemotingCommand, encode_reply
from txrocketmq.codec.headers import Header
from txrocketmq.errors import (
    BodyError,
    HeaderError,
    PoolFullError,
    ResponseError,
    RocketMQError,
    shortened,
)
from txrocketmq.model.codes import V5_3_1, ResponseCode

log = Logger()

H = TypeVar("H")

SUCCESS = int(ResponseCode.SUCCESS)
SYSTEM_ERROR = int(ResponseCode.SYSTEM_ERROR)
SYSTEM_BUSY = int(ResponseCode.SYSTEM_BUSY)
REQUEST_CODE_NOT_SUPPORTED = int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
GO_AWAY = int(ResponseCode.GO_AWAY)

REMARK_OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"
REMARK_NO_CODE = "not set any response code"
REMARK_GO_AWAY = "please go away"

ONEWAY_BIT = 2
LAST_WITHOUT_GO_AWAY = int(V5_3_1)
DEFAULT_LANE_LIMIT = 100_000


class Lane(Enum):
    """A kind of work with a bound and counters of its own (the official servers have a thread pool for each)."""

    SEND = "send"
    PULL = "pull"
    POP = "pop"
    ACK = "ack"
    REPLY = "reply"
    QUERY = "query"
    OFFSET = "offset"
    LOCK = "lock"
    TRANSACTION = "transaction"
    HEARTBEAT = "heartbeat"
    CLIENT = "client"
    ROUTE = "route"
    REGISTRATION = "registration"
    ADMIN = "admin"


class LaneState:
    """Figures of one lane.

    :ivar limit: most requests that may wait for a deferred answer; the next one is told SYSTEM_BUSY. May be set at run time.
    :ivar pending: requests that wait for a deferred answer now.
    :ivar requests: requests that came, ever.
    :ivar refused: of those, told SYSTEM_BUSY.
    :ivar failed: of those, ended by an error that nobody foresaw.
    """

    __slots__ = ("failed", "lane", "limit", "pending", "refused", "requests")

    def __init__(self, lane: Lane, limit: int) -> None:
        self.lane = lane
        self.limit = limit
        self.pending = 0
        self.requests = 0
        self.refused = 0
        self.failed = 0


@attrs.frozen
class Operation:
    """One row of a role's operations table.

    :ivar code: the request code.
    :ivar request_header: class of the typed request header; None leaves the handler with ``ext_fields``.
    :ivar response_header: class of the answer's header, None when it has none.
    :ivar handler: ``object.method`` among the handlers given to the `Dispatcher`.
    :ivar lane: where it is counted and bounded.
    :ivar vip: also served on the second listener (port - 2).
    :ivar may_hold: the answer may be held back on purpose (long polling), so it does not count as work of the connection or the lane.
    """

    code: int
    request_header: type[Header] | None
    response_header: type[Header] | None
    handler: str
    lane: Lane
    vip: bool = True
    may_hold: bool = False


class Answering(Protocol):
    """What the dispatcher needs of a connection, besides `IConnection`."""

    is_open: bool
    remote_text: str

    def send_parts(self, parts: Sequence[bytes]) -> None:
        """Write an answer; nothing when the connection is gone."""

    def answer(self, request: Request[Any], reply: Reply) -> None:
        """Answer a held request."""

    def answer_owed(self) -> None:
        """A request of this connection waits for a deferred answer."""

    def answer_given(self) -> None:
        """One of them waits no more."""


class Request(Generic[H]):
    """One request as its handler sees it.

    :ivar command: the whole command as received.
    :ivar header: the typed header, None where the table has none.
    :ivar body: the body's bytes, empty when there is none.
    :ivar connection: the `IConnection` it came on.
    :ivar arrived_ms: wall-clock milliseconds when its bytes were read.
    """

    __slots__ = ("arrived_ms", "body", "command", "connection", "header")

    def __init__(
        self, command: RemotingCommand, header: H, connection: Any, arrived_ms: int
    ) -> None:
        self.command = command
        self.header = header
        self.body = command.body
        self.connection = connection
        self.arrived_ms = arrived_ms

    @property
    def code(self) -> int:
        """The request code."""
        return self.command.code

    @property
    def opaque(self) -> int:
        """The number that the asker gave it."""
        return self.command.opaque

    @property
    def oneway(self) -> bool:
        """Whether the asker wants no answer."""
        return bool(self.command.flag & ONEWAY_BIT)

    @property
    def version(self) -> int:
        """The asker's release, as ``CURRENT_VERSION`` counts."""
        return self.command.version

    @property
    def language(self) -> int:
        """The asker's language code."""
        return self.command.language

    @property
    def ext_fields(self) -> dict[str, str]:
        """The raw header fields, empty when absent."""
        return self.command.ext_fields or {}

    def answer(self, reply: Reply) -> None:
        """Answer later a request whose handler returned None. At most once; nothing when it is oneway or the link is gone."""
        self.connection.answer(self, reply)


class Reply:
    """What a handler answers. ``code`` is a response code, ``header`` a typed response header or None."""

    __slots__ = ("body", "code", "ext_fields", "header", "remark")

    def __init__(
        self,
        code: int = SUCCESS,
        header: Header | None = None,
        body: bytes | Sequence[bytes] = b"",
        remark: str | None = None,
        ext_fields: Mapping[str, str] | None = None,
    ) -> None:
        self.code = code
        self.header = header
        self.body = body
        self.remark = remark
        self.ext_fields = ext_fields

    def __repr__(self) -> str:
        return f"<Reply {int(self.code)} {self.remark or ''}>"


class RequestHook(Protocol):
    """Sees every request before it is served and every answer before it is written (official ``RPCHook``).

    On the asking side the same hook sees requests before they are encoded and answers after they came.
    """

    def before_request(self, address: str, command: RemotingCommand) -> None:
        """May raise `ResponseError`, which becomes the answer."""

    def after_response(self, address: str, command: RemotingCommand, answer: object) -> None:
        """``answer`` is a `Reply` on the serving side, a `RemotingCommand` on the asking side, None when there is none."""


Handler = Callable[[Request[Any]], Any]
Entry = tuple[Handler, type[Header] | None, LaneState, bool]


class Dispatcher:
    """Serves requests by their code.

    :param operations: the table; a doubled code or an unknown handler raises ``ValueError``.
    :param handlers: objects by the first part of `Operation.handler`.
    :param clock: stamps the arrival of requests.
    :param not_served: codes that are known and refused, each with the reason.
    :param lane_limits: bound per lane; `DEFAULT_LANE_LIMIT` where nothing is said.
    """

    def __init__(
        self,
        operations: Iterable[Operation],
        handlers: Mapping[str, object],
        clock: IReactorTime,
        *,
        not_served: Mapping[int, str] | None = None,
        hooks: Sequence[RequestHook] = (),
        lane_limits: Mapping[Lane, int] | None = None,
    ) -> None:
        limits = lane_limits or {}
        self.lanes = {lane: LaneState(lane, limits.get(lane, DEFAULT_LANE_LIMIT)) for lane in Lane}
        self.operations = tuple(operations)
        self.not_served = {int(code): reason for code, reason in (not_served or {}).items()}
        self.hooks = tuple(hooks)
        self.going_away = False
        """Set before a stop: askers of 5.3.2 and later are told to go elsewhere."""
        self.unknown_codes = 0
        self._clock = clock
        self._handlers = handlers
        self._table = self._build_table()

    def for_vip(self) -> Dispatcher:
        """The same service for the second listener: same handlers and lanes, without the operations that are not for it."""
        twin = Dispatcher(
            (operation for operation in self.operations if operation.vip),
            self._handlers,
            self._clock,
            not_served=self.not_served,
            hooks=self.hooks,
        )
        twin.lanes = self.lanes
        twin._table = twin._build_table()
        return twin

    def _build_table(self) -> dict[int, Entry]:
        table: dict[int, Entry] = {}
        for operation in self.operations:
            code = int(operation.code)
            if code in table or code in self.not_served:
                raise ValueError(f"request code {code} is in the operations table twice")
            method = find_handler(self._handlers, operation.handler)
            lane = self.lanes[operation.lane]
            table[code] = (method, operation.request_header, lane, operation.may_hold)
        return table

    # ----------------------------------------------------------------- one request

    def now_ms(self) -> int:
        """Wall-clock milliseconds: when the requests of this turn arrived."""
        return int(self._clock.seconds() * 1000)

    def dispatch(
        self,
        connection: Answering,
        command: RemotingCommand,
        arrived_ms: int,
        admitted: bool = False,
    ) -> Sequence[bytes] | None:
        """Serve one request; the parts of its answer, or None when there is none (yet).

        :param admitted: the hooks have seen it already.
        """
        entry = self._table.get(command.code)
        if not admitted and (entry is None or self.hooks or self.going_away):
            return self._admit(connection, command, arrived_ms, entry)
        assert entry is not None
        handler, header_class, lane, may_hold = entry
        lane.requests += 1
        if lane.pending >= lane.limit:
            lane.refused += 1
            return self._finish(connection, command, Reply(SYSTEM_BUSY, remark=REMARK_OVERLOAD))
        try:
            header = None if header_class is None else command.decode_header(header_class)
            request = Request(command, header, connection, arrived_ms)
        except HeaderError as error:
            return self._finish(
                connection, command, self._refusal(connection, command, lane, error)
            )
        # A ProtocolError of the header's bytes passes: it ends the connection.
        try:
            reply = handler(request)
            if reply.__class__ is Reply and not self.hooks:
                if command.flag & ONEWAY_BIT:
                    return None
                return encode_reply(
                    command.opaque,
                    command.serialize_type,
                    reply.code,
                    reply.header,
                    reply.remark,
                    reply.body,
                    reply.ext_fields,
                )
        except Exception as error:
            return self._finish(
                connection, command, self._refusal(connection, command, lane, error)
            )
        if isinstance(reply, Deferred):
            self._answer_later(request, reply, lane, may_hold)
            return None
        if reply is None:
            return None
        return self._finish(connection, command, checked(command, reply))

    def _admit(
        self,
        connection: Answering,
        command: RemotingCommand,
        arrived_ms: int,
        entry: Entry | None,
    ) -> Sequence[bytes] | None:
        """What comes before serving, where anything does: going away, hooks, codes that are unknown."""
        if self.going_away and command.version > LAST_WITHOUT_GO_AWAY:
            return self._finish(connection, command, Reply(GO_AWAY, remark=REMARK_GO_AWAY))
        try:
            for hook in self.hooks:
                hook.before_request(connection.remote_text, command)
        except Exception as error:
            lane = None if entry is None else entry[2]
            return self._finish(
                connection, command, self._refusal(connection, command, lane, error)
            )
        if entry is not None:
            return self.dispatch(connection, command, arrived_ms, True)
        self.unknown_codes += 1
        remark = f" request type {command.code} not supported"
        reason = self.not_served.get(command.code)
        if reason:
            remark = f"{remark}: {reason}"
        return self._finish(connection, command, Reply(REQUEST_CODE_NOT_SUPPORTED, remark=remark))

    # ----------------------------------------------------------------- outcomes

    def finish(
        self, connection: Answering, command: RemotingCommand, reply: Reply
    ) -> Sequence[bytes] | None:
        """The bytes of a reply that was not given at once (`Request.answer`); None when nobody waits for them."""
        return self._finish(connection, command, reply)

    def _finish(
        self, connection: Answering, command: RemotingCommand, reply: Reply
    ) -> Sequence[bytes] | None:
        """Run the hooks and encode. Never raises: what cannot be encoded becomes SYSTEM_ERROR."""
        try:
            for hook in self.hooks:
                hook.after_response(connection.remote_text, command, reply)
            if command.flag & ONEWAY_BIT:
                return None
            return encode(command, reply)
        except Exception as error:
            return encode(command, self._refusal(connection, command, None, error))

    def _refusal(
        self,
        connection: Answering,
        command: RemotingCommand,
        lane: LaneState | None,
        error: Exception,
    ) -> Reply:
        """What an error says to the asker; also to the log when nobody foresaw it, or nobody will read the answer."""
        if isinstance(error, ResponseError):
            return Reply(error.code, remark=error.remark)
        if isinstance(error, HeaderError | BodyError):
            if command.flag & ONEWAY_BIT:
                log.warn(
                    "oneway request {code} from {peer} ignored: {error}",
                    code=command.code,
                    peer=connection.remote_text,
                    error=shortened(str(error)),
                )
            return Reply(SYSTEM_ERROR, remark=shortened(str(error)))
        if isinstance(error, PoolFullError):
            return Reply(SYSTEM_BUSY, remark=REMARK_OVERLOAD)
        if lane is not None:
            lane.failed += 1
        if isinstance(error, RocketMQError | OSError):
            log.warn(
                "request {code} from {peer} cannot be served: {error}",
                code=command.code,
                peer=connection.remote_text,
                error=shortened(str(error)),
            )
            return Reply(SYSTEM_ERROR, remark=shortened(str(error)))
        log.failure(
            "request {code} from {peer} failed",
            Failure(error, type(error), error.__traceback__),  # type: ignore[no-untyped-call]
            code=command.code,
            peer=connection.remote_text,
        )
        return Reply(SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")

    def _answer_later(
        self, request: Request[Any], deferred: Deferred[Any], lane: LaneState, may_hold: bool
    ) -> None:
        counted = not may_hold
        if counted:
            lane.pending += 1
            request.connection.answer_owed()
        deferred.addBoth(self._when_answered, request, lane, counted)

    def _when_answered(
        self, result: object, request: Request[Any], lane: LaneState, counted: bool
    ) -> None:
        connection: Answering = request.connection
        command = request.command
        if counted:
            lane.pending -= 1
            connection.answer_given()
        if result is None:
            return
        if isinstance(result, Failure):
            reply = self._refusal(connection, command, lane, failed(result))
        else:
            reply = checked(command, result)
        parts = self._finish(connection, command, reply)
        if parts is not None and connection.is_open:
            connection.send_parts(parts)


def encode(command: RemotingCommand, reply: Reply) -> Sequence[bytes]:
    """The parts of the answer's frame, in the serialize type of the request."""
    return encode_reply(
        command.opaque,
        command.serialize_type,
        reply.code,
        reply.header,
        reply.remark,
        reply.body,
        reply.ext_fields,
    )


def checked(command: RemotingCommand, outcome: object) -> Reply:
    """A handler's outcome as a reply; anything that is none means that the handler never set a code."""
    if isinstance(outcome, Reply):
        return outcome
    log.error("request {code} ended with {outcome!r}", code=command.code, outcome=outcome)
    return Reply(SYSTEM_ERROR, remark=REMARK_NO_CODE)


def failed(failure: Failure) -> Exception:
    """The exception of a failure, with its traceback where one is known."""
    error = failure.value
    if isinstance(error, Exception):
        return error
    return RuntimeError(repr(error))


def refusal_of(error: RocketMQError | OSError) -> Reply:
    """What the asker of a request that waited is told when it cannot be served now, such as while the server stops."""
    if isinstance(error, ResponseError):
        return Reply(error.code, remark=error.remark)
    return Reply(SYSTEM_ERROR, remark=shortened(str(error)))


def find_handler(handlers: Mapping[str, object], name: str) -> Handler:
    """The bound method of an operation; ValueError when it is missing or does not take one request."""
    owner_name, _, method_name = name.partition(".")
    owner = handlers.get(owner_name)
    if owner is None:
        raise ValueError(f"handler {name!r}: no object {owner_name!r}")
    method = getattr(owner, method_name, None)
    if not callable(method):
        raise ValueError(f"handler {name!r}: {type(owner).__name__} has no method {method_name!r}")
    function = getattr(method, "__func__", method)
    if not _takes_one_request(function, function is not method):
        raise ValueError(f"handler {name!r} must take one request")
    return method  # type: ignore[no-any-return]


@lru_cache(maxsize=1024)
def _takes_one_request(function: Callable[..., Any], is_bound: bool) -> bool:
    # Remembered: a process with several servers, as tests have them, would look at each method again and again.
    try:
        inspect.signature(function).bind(*(object(),) * (2 if is_bound else 1))
    except TypeError:
        return False
    return True
