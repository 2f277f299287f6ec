"""What happens on one remoting connection? Bytes in, requests dispatched, answers and requests of ours out.

Stands for the pipelines of the official ``NettyRemotingServer`` and ``NettyRemotingClient`` (decoder, idle handler, connect manager,
handler). Both sides of a link are the same: each may send requests and answer the other's.

Back pressure. A turn (one ``dataReceived``) serves the frames that it brought and writes all answers at once. The connection is
*halted* when its unsent bytes pass the high water mark, when too many of its requests wait for deferred answers, or when the
unfinished frames of all connections take too much: the rest of the turn's frames is kept (they are at most what one read brought), and
the transport is told to stop reading. When the cause is gone the kept frames are served first, then reading goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress, IDelayedCall, IPushProducer, IReactorTime
from twisted.internet.protocol import Protocol, ServerFactory, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.errors import ProtocolError, RemotingSendError
from txrocketmq.interfaces import IConnection, IConnectionListener
from txrocketmq.remoting.budget import Room
from txrocketmq.remoting.connection import PendingRequests
from txrocketmq.remoting.dispatch import ONEWAY_BIT, Dispatcher, Reply, Request
from txrocketmq.remoting.group import ConnectionGroup
from txrocketmq.remoting.limits import RemotingLimits
from txrocketmq.remoting.together import Together
from txrocketmq.remoting.transport import (
    Outlet,
    format_address,
    numeric_address,
    set_no_delay,
)

log = Logger()

RESPONSE_BIT = 1
RESUME_SHARE = 0.75
"""Share of ``max_unanswered`` at which a halted connection goes on; the gap spares system calls."""

SILENT_LEAST_MS = 3000
"""A request that was given less time than this says nothing about the link when it is not answered."""


@implementer(IConnection, IPushProducer)
class RemotingProtocol(Protocol):
    """One link. An `IConnection` for handlers, listeners and the client.

    :param address: the peer's name in errors; its numeric address when not given.
    """

    def __init__(self, group: ConnectionGroup, address: str | None = None) -> None:
        self.remote_address: tuple[str, int] = ("", 0)
        self.local_address: tuple[str, int] = ("", 0)
        self.remote_text = address or ""
        self.is_open = False
        self.attributes: dict[str, Any] = {}
        self.has_heard = False
        """Whether the peer ever said a whole frame."""
        self._group = group
        self._dispatcher = group.dispatcher
        self._limits = group.limits
        self._clock = group.clock
        self._address = address
        self._splitter = FrameSplitter(group.limits.max_frame_bytes)
        self._backlog: deque[bytes] = deque()
        self._turn: list[bytes] | None = None
        self._unanswered = 0
        self._output_full = False
        self._when_writable: list[Callable[[], object]] = []
        self._is_behind = False
        self._behind_since = 0.0
        self._unfinished_bytes = 0
        self._unfinished_since = 0.0
        self._input_waits = False
        self._halted = False
        self._resume_call: IDelayedCall | None = None
        self._close_reason = ""
        self._closing_at: float | None = None
        self._stirred = True
        self._heard = True
        self._quiet_since = self._silent_since = self._clock.seconds()
        self._unknown_logged = False

    # ----------------------------------------------------------------- IConnection

    def request(
        self,
        code: int,
        header: object | None,
        body: bytes = b"",
        timeout_ms: int = 3000,
        ext_fields: Mapping[str, str] | None = None,
    ) -> Deferred[RemotingCommand]:
        """Ask the peer; a Deferred of its answer, whatever the answer's code. Fails with `RemotingError`."""
        if not self.is_open:
            return fail(RemotingSendError(self.remote_text, self._close_reason or "not connected"))
        pending = self._pending
        try:
            pending.check_permit()
            command = self._make_request(code, header, body, ext_fields, 0)
            frame = command.encode()
        except Exception:
            return fail()
        deadline = self._clock.seconds() + timeout_ms / 1000
        deferred = pending.add(command.opaque, deadline, timeout_ms)
        self._group.sweeper.wake_by(deadline)
        self.send_parts((frame,))
        if self._group.hooks:
            deferred.addCallback(self._after_hooks, command)
        return deferred

    def oneway(
        self,
        code: int,
        header: object | None,
        body: bytes = b"",
        ext_fields: Mapping[str, str] | None = None,
    ) -> bool:
        """Tell the peer, without an answer; False when the connection is closed or its output is over the high mark."""
        if not self.is_open or self._output_full:
            return False
        frame = self._make_request(code, header, body, ext_fields, ONEWAY_BIT).encode()
        self.send_parts((frame,))
        return True

    @property
    def is_writable(self) -> bool:
        """Whether the unsent bytes are below the high mark."""
        return not self._output_full

    def call_when_writable(self, callback: Callable[[], object]) -> None:
        """See `IConnection.call_when_writable`."""
        if self._output_full:
            self._when_writable.append(callback)
        else:
            callback()

    def close(self, reason: str) -> None:
        """Close after what was written. Waiters get `RemotingSendError`; no further frame of the peer is served."""
        if self.is_open:
            log.info(
                "{peer}: {reason}; closing the connection", peer=self.remote_text, reason=reason
            )
            self._shut(reason)

    def _shut(self, reason: str) -> None:
        self.is_open = False
        self._drop_unfinished()
        self._close_reason = reason
        self._closing_at = self._clock.seconds()
        self._halted = True
        self._backlog.clear()
        self._drop_resume_call()
        if self._turn is None:
            self._lose()
        self._pending.fail_all(reason)

    # ----------------------------------------------------------------- what the dispatcher needs

    def send_parts(self, parts: Sequence[bytes]) -> None:
        """Write bytes: with the others of the turn, or of what is answered together, or at once when there is none."""
        turn = self._turn
        if turn is not None:
            turn.extend(parts)
        elif self.is_open:
            if self._group.together.takes(self):
                self._turn = list(parts)
                return
            self._stirred = True
            self._write(b"".join(parts))

    def end_turn(self) -> None:
        """See `together.TurnTaker`: write what was gathered while many were answered."""
        turn, self._turn = self._turn, None
        if not turn:
            return
        if self.is_open or self._closing_at is not None:
            self._stirred = True
            self._write(b"".join(turn))
        if self._closing_at is not None:
            self._lose()

    def answer(self, request: Request[Any], reply: Reply) -> None:
        """Answer a request that was held; nothing when the connection is gone."""
        parts = self._dispatcher.finish(self, request.command, reply)
        if parts is not None and self.is_open:
            self.send_parts(parts)

    def answer_owed(self) -> None:
        """A request of the peer waits for a deferred answer."""
        self._unanswered += 1
        if self._unanswered >= self._limits.max_unanswered and not self._halted:
            self._halt()

    def answer_given(self) -> None:
        """One of them waits no more."""
        self._unanswered -= 1
        if self._halted and self._unanswered <= self._limits.max_unanswered * RESUME_SHARE:
            self._resume_soon()

    # ----------------------------------------------------------------- Twisted: life

    def connectionMade(self) -> None:
        """The link is there."""
        transport: Any = self.transport
        self.remote_address = numeric_address(transport.getPeer())
        self.local_address = numeric_address(transport.getHost())
        self.remote_text = self._address or format_address(*self.remote_address)
        self._pending = PendingRequests(self.remote_text, self._group.permits())
        self._outlet = Outlet(transport, self._limits.high_water_bytes)
        self._write = self._outlet.write
        self.is_open = True
        set_no_delay(transport)
        transport.registerProducer(self, True)
        self._group.joined(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The link is gone."""
        if not self._close_reason:
            closed = isinstance(reason.value, ConnectionDone)
            self._close_reason = "closed by the peer" if closed else reason.getErrorMessage()
        self.is_open = False
        self._drop_unfinished()
        self._group.output.drained(self)
        self._backlog.clear()
        self._when_writable.clear()
        self._drop_resume_call()
        self._pending.fail_all(self._close_reason)
        self._group.left(self, self._close_reason)

    def _lose(self) -> None:
        transport: Any = self.transport
        # A paused producer would keep the transport from closing once its bytes are gone.
        transport.unregisterProducer()
        transport.loseConnection()

    # ----------------------------------------------------------------- Twisted: flow control

    def pauseProducing(self) -> None:
        """The transport holds more unsent bytes than its mark, which may be lower than ours."""
        if self._outlet.speaks_tls and not self.has_heard:
            return  # TLS before its handshake is done: to stop reading now would be the end of it
        if not self._is_behind:
            self._is_behind = True
            self._behind_since = self._clock.seconds()
            self._group.output.fell_behind(self)
        if self._outlet.is_over_high_water() and not self._output_full:
            self._output_full = True
            if not self._halted:
                self._halt()

    def resumeProducing(self) -> None:
        """All bytes are sent."""
        self._output_full = self._is_behind = False
        self._group.output.drained(self)
        waiting, self._when_writable = self._when_writable, []
        for callback in waiting:
            callback()
        self._resume()

    def stopProducing(self) -> None:
        """The transport is gone; `connectionLost` follows."""

    def unsent_bytes(self) -> int:
        """Bytes that the peer did not take yet; the mark, where the transport does not tell."""
        unsent = self._outlet.unsent_bytes()
        return self._limits.high_water_bytes if unsent is None else unsent

    def input_allowed(self) -> None:
        """There is room for unfinished frames again."""
        self._input_waits = False
        self._resume_soon()

    def _halt(self) -> None:
        self._halted = True
        transport: Any = self.transport
        transport.pauseProducing()

    def _resume_soon(self) -> None:
        # Not at once: the caller may be in the middle of its own work, which more requests would disturb.
        if self._halted and self.is_open and self._resume_call is None:
            self._resume_call = self._clock.callLater(0, self._resume)

    def _resume(self) -> None:
        self._drop_resume_call()
        if not self._halted or not self.is_open or self._output_full or self._input_waits:
            return
        if self._unanswered >= self._limits.max_unanswered:
            return
        self._halted = False
        if self._backlog:
            frames, self._backlog = self._backlog, deque()
            self._serve(frames)
        if not self._halted:
            transport: Any = self.transport
            transport.resumeProducing()

    def _drop_resume_call(self) -> None:
        call, self._resume_call = self._resume_call, None
        if call is not None and call.active():
            call.cancel()

    # ----------------------------------------------------------------- Twisted: bytes

    def dataReceived(self, data: bytes) -> None:
        """Serve the whole frames among what came."""
        self._stirred = self._heard = True
        if not self.is_open:
            return
        try:
            frames = self._splitter.feed(data)
        except ProtocolError as error:
            if error.frames and not self._halted:
                self._serve(error.frames)
            self._break(error)
            return
        if self._halted:
            self._backlog.extend(frames)
        elif frames:
            self._serve(frames)
        unfinished_bytes = self._splitter.pending_bytes
        if (unfinished_bytes or self._unfinished_bytes) and self.is_open:
            self._count_unfinished(unfinished_bytes, bool(frames))

    def _count_unfinished(self, now_bytes: int, is_new: bool) -> None:
        """Let the frames that are whole be served, but read no more of an unfinished one while those of all take too much."""
        before_bytes, self._unfinished_bytes = self._unfinished_bytes, now_bytes
        if is_new or not before_bytes:
            self._unfinished_since = self._clock.seconds()
        group_input = self._group.input
        if group_input.change(self, before_bytes, now_bytes):
            return
        if group_input.is_exhausted:
            self._break(ProtocolError(f"unfinished frames take {group_input.used} bytes already"))
            return
        self._input_waits = True
        if not self._halted:
            self._halt()

    def _drop_unfinished(self) -> None:
        self._splitter = FrameSplitter(self._limits.max_frame_bytes)
        unfinished_bytes, self._unfinished_bytes = self._unfinished_bytes, 0
        group_input = self._group.input
        group_input.forget(self)
        group_input.change(self, unfinished_bytes, 0)

    def _serve(self, frames: Iterable[bytes]) -> None:
        """One turn: dispatch frames, then write everything that came of it."""
        turn: list[bytes] = [] if self._turn is None else self._turn
        self._turn = turn
        self.has_heard = True
        broken: ProtocolError | None = None
        rest = iter(frames)
        try:
            self._serve_each(rest, turn)
        except ProtocolError as error:
            broken = error
        except Exception:
            log.failure("{peer}: cannot read a frame", peer=self.remote_text)
            broken = ProtocolError("a frame cannot be read")
        self._turn = None
        if turn:
            self._stirred = True
            self._write(b"".join(turn))
        if self._closing_at is not None:
            self._lose()
        elif broken is not None:
            self._break(broken)
        else:
            self._backlog.extend(rest)

    def _serve_each(self, frames: Iterator[bytes], turn: list[bytes]) -> None:
        dispatch = self._dispatcher.dispatch
        arrived_ms = self._dispatcher.now_ms()
        room = high_water_bytes = self._limits.high_water_bytes
        for frame in frames:
            command = decode_command(frame)
            if command.flag & RESPONSE_BIT:
                self._settle(command)
            else:
                parts = dispatch(self, command, arrived_ms)
                if parts is not None:
                    turn += parts
                    room -= len(parts[-1]) if len(parts) < 3 else sum(map(len, parts))
                    if room < 0:
                        room = high_water_bytes
                        self._write(b"".join(turn))
                        turn.clear()
            if self._halted:
                return

    def _settle(self, command: RemotingCommand) -> None:
        if not self._pending.settle(command) and not self._unknown_logged:
            self._unknown_logged = True
            log.warn(
                "{peer}: answer to opaque {opaque}, which was never asked; further ones are only counted",
                peer=self.remote_text,
                opaque=command.opaque,
            )

    def _break(self, error: ProtocolError) -> None:
        """The peer broke the protocol: one line, and the end of this connection."""
        if not self.is_open:
            return
        self._group.protocol_errors += 1
        log.warn("{peer}: {error}; closing the connection", peer=self.remote_text, error=error)
        self._shut(f"protocol error: {error}")

    # ----------------------------------------------------------------- time

    def sweep(self, now: float) -> float | None:
        """Expire requests, notice idleness, cut what does not close; the next time that something is due."""
        if self._closing_at is not None:
            cut_at = self._closing_at + self._limits.close_grace_s
            if now >= cut_at:
                transport: Any = self.transport
                transport.abortConnection()
            return cut_at
        if self._uses_too_much(now):
            return None
        if self._heard:
            self._heard = False
            self._silent_since = now
        if self._stirred:
            self._stirred = False
            self._quiet_since = now
        elif 0 < self._limits.idle_s <= now - self._quiet_since:
            self._group.became_idle(self)
            self.close(f"idle for {self._limits.idle_s:g} s")
            return None
        longest_ms, next_deadline = self._pending.expire(now)
        if (
            self._limits.close_when_silent
            and longest_ms >= SILENT_LEAST_MS
            and now - self._silent_since >= longest_ms / 1000 - 1
        ):
            self.close(f"nothing was heard for {longest_ms} ms")
        return next_deadline

    def _uses_too_much(self, now: float) -> bool:
        """Close a connection whose unfinished frame or unread answers use what others need; whether it was."""
        group, limits = self._group, self._limits
        if (
            self._unfinished_bytes
            and group.input.is_short
            and now - self._unfinished_since >= limits.unfinished_s
        ):
            age_s = now - self._unfinished_since
            self._break(
                ProtocolError(f"a frame is unfinished after {age_s:.0f} s, its memory is needed")
            )
            return True
        if (
            self._is_behind
            and now - self._behind_since >= limits.unread_s
            and group.output.is_exceeded(now)
        ):
            group.output.cut(self)
            self.close(f"{self.unsent_bytes()} bytes are unread, their memory is needed")
            transport: Any = self.transport
            transport.abortConnection()
            return True
        return False

    # ----------------------------------------------------------------- requests of ours

    def _make_request(
        self,
        code: int,
        header: Any,
        body: bytes,
        ext_fields: Mapping[str, str] | None,
        flag: int,
    ) -> RemotingCommand:
        command = RemotingCommand.create_request(
            code,
            header,
            body=body,
            ext_fields=ext_fields,
            opaque=self._pending.next_opaque(),
            flag=flag,
        )
        for hook in self._group.hooks:
            hook.before_request(self.remote_text, command)
        return command

    def _after_hooks(self, answer: RemotingCommand, command: RemotingCommand) -> RemotingCommand:
        for hook in self._group.hooks:
            hook.after_response(self.remote_text, command, answer)
        return answer


if TYPE_CHECKING:
    _ServerFactory = ServerFactory[RemotingProtocol]
else:  # older releases of Twisted have no generic factories
    _ServerFactory = ServerFactory


class RemotingServerFactory(_ServerFactory):
    """Makes the connections of a listening port (or of two, when given to both).

    :param room: how many connections this port and others together may have.
    :param together: answers what many wait for.
    :ivar group: the connections and their counters.
    """

    noisy = False

    def __init__(
        self,
        dispatcher: Dispatcher,
        clock: IReactorTime,
        listener: IConnectionListener | None = None,
        limits: RemotingLimits | None = None,
        room: Room | None = None,
        together: Together | None = None,
    ) -> None:
        self.group = ConnectionGroup(
            dispatcher, clock, listener, limits or RemotingLimits(), room=room, together=together
        )
        self._full_logged = False

    def buildProtocol(self, addr: IAddress | None) -> RemotingProtocol | None:
        """A connection, or None (closed at once) when there are too many."""
        if self.group.is_full():
            self.group.turned_away += 1
            if not self._full_logged:
                self._full_logged = True
                log.warn(
                    "{count} connections are open here; further ones are closed at once",
                    count=len(self.group.connections),
                )
            return None
        self._full_logged = False
        protocol = RemotingProtocol(self.group)
        protocol.factory = self
        return protocol

    def close_all(self, reason: str = "server stops") -> Deferred[None]:
        """Close every connection (after the port stopped listening); fires when they are gone."""
        return self.group.close_all(reason)
