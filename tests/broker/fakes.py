"""Links and name servers that remember what they were told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.errors import RemotingConnectError
from txrocketmq.interfaces import IConnection, IRemotingClient


@implementer(IConnection)
class FakeConnection:
    """A link whose other end is the test."""

    def __init__(self, port: int = 40000) -> None:
        self.remote_address = ("192.0.2.10", port)
        self.local_address = ("192.0.2.1", 10911)
        self.remote_text = f"192.0.2.10:{port}"
        self.is_open = True
        self.is_writable = True
        self.attributes: dict[str, Any] = {}
        self.told: list[tuple[int, Any]] = []
        self.close_reason = ""
        self._when_writable: list[Callable[[], object]] = []

    def call_when_writable(self, callback: Callable[[], object]) -> None:
        if self.is_writable:
            callback()
        else:
            self._when_writable.append(callback)

    def drain(self) -> None:
        """The peer takes what was written."""
        self.is_writable = True
        waiting, self._when_writable = self._when_writable, []
        for callback in waiting:
            callback()

    def request(
        self,
        code: int,
        header: object,
        body: bytes,
        timeout_ms: int,
        ext_fields: Mapping[str, str] | None = None,
    ) -> Deferred[Any]:
        return fail(RemotingConnectError(self.remote_text, "nobody listens"))

    def oneway(self, code: int, header: object, body: bytes) -> bool:
        self.told.append((code, header))
        return self.is_open

    def answer(self, request: object, reply: object) -> None:
        raise AssertionError("nothing was asked on this link")

    def close(self, reason: str) -> None:
        self.is_open = False
        self.close_reason = reason


class Asked:
    """One request that a remoting client was given, until the test answers it.

    :ivar header: as it was given; None where the request comes from a record.
    """

    def __init__(
        self, address: str, command: RemotingCommand, timeout_ms: int, header: Any = None
    ) -> None:
        self.address = address
        self.command = command
        self.timeout_ms = timeout_ms
        self.header = header
        self.deferred: Deferred[RemotingCommand] = Deferred()

    def answer(self, code: int = 0, header: Any = None, body: bytes = b"") -> None:
        answer = RemotingCommand.create_response(self.command, code, header, body=body)
        # Through bytes, so that the header is read as it would be from the wire.
        self.deferred.callback(decode_command(answer.encode()[4:]))

    def fail(self) -> None:
        self.deferred.errback(RemotingConnectError(self.address, "refused"))


@implementer(IRemotingClient)
class FakeRemoting:
    """A remoting client without links; whoever inherits says what becomes of a request."""

    def request(
        self,
        address: str,
        code: int,
        header: Any,
        body: bytes,
        timeout_ms: int,
        ext_fields: Mapping[str, str] | None = None,
    ) -> Deferred[Any]:
        """See `IRemotingClient`."""
        sent = RemotingCommand.create_request(code, header, body=body, ext_fields=ext_fields)
        return self.ask(Asked(address, decode_command(sent.encode()[4:]), timeout_ms, header))

    def ask(self, asked: Asked) -> Deferred[Any]:
        """Take a request, which came through bytes; its answer."""
        raise NotImplementedError

    def oneway(
        self, address: str, code: int, header: Any, body: bytes, timeout_ms: int
    ) -> Deferred[None]:
        """See `IRemotingClient`."""
        return succeed(None)

    def close_address(self, address: str) -> None:
        """See `IRemotingClient`."""

    def stop(self) -> Deferred[None]:
        """See `IRemotingClient`."""
        return succeed(None)


class FakeClient(FakeRemoting):
    """Each address does what the test says, by default it waits for the test to answer.

    :ivar asked: every request so far, in order.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.oneways: list[tuple[str, int, object]] = []
        self.closed: list[str] = []
        self.behaviour: dict[str, Callable[[Asked], None]] = {}

    def ask(self, asked: Asked) -> Deferred[Any]:
        self.asked.append(asked)
        act = self.behaviour.get(asked.address)
        if act is not None:
            act(asked)
        return asked.deferred

    def oneway(
        self, address: str, code: int, header: object, body: bytes, timeout_ms: int
    ) -> Deferred[None]:
        self.oneways.append((address, code, header))
        return succeed(None)

    def close_address(self, address: str) -> None:
        self.closed.append(address)

    def codes(self, address: str) -> list[int]:
        """What one address was asked, in order."""
        return [asked.command.code for asked in self.asked if asked.address == address]
