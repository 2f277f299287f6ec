"""Which errors cross a boundary of the system, and what each asks of whoever catches it.

Three kinds, three treatments: the peer broke the protocol (`ProtocolError`: close that connection, count, log once),
the request cannot be served (`ResponseError`: becomes the answer, the connection lives on), the store or the remote side
failed (`StoreError`, `RemotingError`: the caller decides).
"""

from __future__ import annotations

from collections.abc import Sequence


class RocketMQError(Exception):
    """Root of every error that txrocketmq raises on purpose."""


class ProtocolError(RocketMQError):
    """The peer sent bytes that are not the remoting protocol: the connection must be closed.

    :ivar frames: whole good frames that came before the bad bytes in the same piece, and are still to be served.
    """

    def __init__(self, reason: str, frames: Sequence[bytes] = ()) -> None:
        super().__init__(reason)
        self.frames = frames


class HeaderError(RocketMQError):
    """A header field is missing, unreadable or out of its Java range.

    :ivar field: the field's name on the wire.
    :ivar reason: what is wrong with it, in words for the operator.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"header field {field!r}: {reason}")
        self.field = field
        self.reason = reason


class BodyError(RocketMQError):
    """A request or response body cannot be read; the text names the field or position."""


class RecordError(RocketMQError):
    """Bytes of a log do not hold a valid message record at the given position."""


class FilterError(RocketMQError):
    """A filter expression cannot be read, or a message's properties are not what it compares them with."""


MAX_REMARK_LENGTH = 2000
"""Longer remarks are cut: they repeat what a caller sent, which may be megabytes."""


def shortened(text: str, length: int = MAX_REMARK_LENGTH) -> str:
    """A text for people, of no more than so many characters and a mark where it was cut."""
    return text if len(text) <= length else f"{text[:length]}..."


class ResponseError(RocketMQError):
    """A request is refused: becomes the answer's code and remark.

    :ivar code: a response code of `txrocketmq.model.codes.ResponseCode`.
    :ivar remark: the text that the caller sees; names the cause; `shortened`.
    """

    def __init__(self, code: int, remark: str) -> None:
        remark = shortened(remark)
        super().__init__(f"{int(code)}: {remark}")
        self.code = int(code)
        self.remark = remark


class ConfigError(RocketMQError):
    """A configuration value or file is unusable; the text is one line for the operator."""


class StoreError(RocketMQError):
    """The store cannot be opened, or cannot go on; the text is one line for the operator."""


class StoreLockedError(StoreError):
    """Another process holds the store's lock file."""


class PoolFullError(StoreError):
    """Too much blocking work waits already; the same may be possible a little later."""


class RemotingError(RocketMQError):
    """A remote call failed before an answer came.

    :ivar address: the peer that was asked, ``host:port``.
    """

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason


class RemotingConnectError(RemotingError):
    """No connection to the peer could be made in time."""


class RemotingSendError(RemotingError):
    """The connection was lost, or refused more work, before the answer came."""


class RemotingTimeoutError(RemotingError):
    """The peer did not answer within the time allowed."""


class RemotingTooMuchRequestError(RemotingError):
    """The bound on requests in flight is reached."""


class MQClientError(RocketMQError):
    """A client operation is impossible as asked (no route, illegal name, too large)."""


class NoRouteError(MQClientError):
    """No name server knows a usable route for the topic; the text names topic and servers asked."""


class BrokerError(RocketMQError):
    """A server answered with a response code other than success.

    :ivar code: the response code.
    :ivar remark: the server's text, may be empty.
    :ivar address: the server.
    """

    def __init__(self, code: int, remark: str | None, address: str = "") -> None:
        super().__init__(f"CODE: {int(code)} DESC: {remark or ''} BROKER: {address}")
        self.code = int(code)
        self.remark = remark or ""
        self.address = address
