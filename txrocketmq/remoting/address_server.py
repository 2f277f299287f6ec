"""Where are the name servers? An address server tells it over HTTP.

Stands for the official ``TopAddressing``. One GET, HTTP/1.0, whose body is ``host:port;host:port``.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from txrocketmq.errors import MQClientError
from txrocketmq.remoting.client import EndpointMaker

MAX_ANSWER_BYTES = 64 * 1024
TIMEOUT_S = 3.0


class AddressServer:
    """One address server.

    :param url: ``http://host:port/path``.
    :param unit_name: asked for by name where given (``url-unit?nofix=1``).
    """

    def __init__(self, reactor: Any, url: str, unit_name: str, endpoint: EndpointMaker) -> None:
        self._reactor = reactor
        self._endpoint = endpoint
        if unit_name.strip():
            url = f"{url}-{unit_name}?nofix=1"
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise MQClientError(f"address server {url!r}: http://host:port/path is needed")
        self._host = parts.hostname
        self._port = parts.port or 80
        self._netloc = parts.netloc
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def fetch(self) -> Deferred[str]:
        """Ask; the answer's body without the blanks around it. Fails with `MQClientError` or Twisted's connection errors."""
        request = f"GET {self._path} HTTP/1.0\r\nHost: {self._netloc}\r\n\r\n".encode()
        factory = _Factory(request)
        endpoint = self._endpoint(self._reactor, self._host, self._port, TIMEOUT_S)
        connecting: Deferred[Any] = endpoint.connect(factory)
        answer: Deferred[str] = connecting.addCallback(lambda get: get.answer)
        return answer.addTimeout(TIMEOUT_S, self._reactor)


class _Factory(Factory):
    noisy = False

    def __init__(self, request: bytes) -> None:
        self._request = request

    def buildProtocol(self, addr: object) -> _Get:
        return _Get(self._request)


class _Get(Protocol):
    """One request, and all that comes until the server closes."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._data = b""
        self.answer: Deferred[str] = Deferred(lambda _: self._cut())

    def _cut(self) -> None:
        transport: Any = self.transport
        transport.abortConnection()

    def connectionMade(self) -> None:
        transport: Any = self.transport
        transport.write(self._request)

    def dataReceived(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > MAX_ANSWER_BYTES:
            self._finish(MQClientError(f"the answer is longer than {MAX_ANSWER_BYTES} bytes"))
            self._cut()
            return
        head, separator, body = self._data.partition(b"\r\n\r\n")
        length = _content_length(head)
        # A server that keeps the connection open would otherwise keep us waiting.
        if separator and length is not None and len(body) >= length:
            self._read(head, body[:length])
            transport: Any = self.transport
            transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        head, separator, body = self._data.partition(b"\r\n\r\n")
        if separator:
            self._read(head, body)
        elif isinstance(reason.value, ConnectionDone):
            self._finish(MQClientError("the answer is no HTTP"))
        else:
            self._finish(MQClientError(reason.getErrorMessage()))

    def _read(self, head: bytes, body: bytes) -> None:
        words = head.split(b"\r\n", 1)[0].split()
        if len(words) < 2 or words[1] != b"200":
            status = head.split(b"\r\n", 1)[0].decode("latin-1")
            self._finish(MQClientError(f"the answer is {status!r}"))
        else:
            self._finish(body.decode("utf-8", "replace").strip())

    def _finish(self, outcome: str | BaseException) -> None:
        answer = self.answer
        if answer.called:
            return
        if isinstance(outcome, str):
            answer.callback(outcome)
        else:
            answer.errback(outcome)


def _content_length(head: bytes) -> int | None:
    for line in head.lower().split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip() == b"content-length" and value.strip().isdigit():
            return int(value)
    return None
