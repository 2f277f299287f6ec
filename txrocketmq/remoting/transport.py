"""How do bytes reach the socket soonest? Eager writing, listening ports, and addresses as text.

The one module that knows private Twisted names. A plain Twisted transport queues each write and waits for the reactor to say that
the socket is writable; with nothing queued the socket nearly always is, so `Outlet` sends at once and saves two ``epoll_ctl`` calls
and one turn of the reactor per answer (3 of 18 us of a request). What the socket does not take goes the ordinary way.

Used of ``twisted.internet.tcp.Connection``: ``socket``, ``dataBuffer``, ``_tempDataBuffer``, ``_tempDataLen``, ``offset``,
``connected``, ``disconnecting``, ``producer``, ``producerPaused`` (a test looks for each), and of ``tcp.Port`` that a real one makes them.
Any other transport (TLS, in memory) is written to with its own ``write``.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from twisted.internet import tcp
from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.endpoints import HostnameEndpoint, TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import (
    IListeningPort,
    IReactorTCP,
    ISSLTransport,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import ServerFactory

PRIVATE_NAMES = (
    "socket",
    "dataBuffer",
    "_tempDataBuffer",
    "_tempDataLen",
    "offset",
    "connected",
    "disconnecting",
    "producer",
    "producerPaused",
)
"""Attributes of a TCP transport that `Outlet` relies on."""

DEFAULT_BACKLOG = 1024
"""Connections that may wait to be accepted (official ``serverSocketBacklog``)."""

MAPPED_IPV4 = "::ffff:"


class Outlet:
    """The writing end of one connection.

    :ivar write: writes bytes; at once where possible.
    :ivar speaks_tls: whether there is TLS on the way.
    :param high_water_bytes: unsent bytes beyond which the transport's producer is paused; it is resumed when all are gone.
    """

    __slots__ = ("_eager", "_high_water_bytes", "_transport", "speaks_tls", "write")

    def __init__(self, transport: Any, high_water_bytes: int) -> None:
        self._transport = transport
        self._high_water_bytes = high_water_bytes
        self._eager = is_plain_tcp(transport)
        self.speaks_tls = ISSLTransport.providedBy(transport)
        self.write: Callable[[bytes], None] = (
            self._write_eagerly if self._eager else transport.write
        )

    def unsent_bytes(self) -> int | None:
        """Bytes that wait for the socket, None where the transport does not tell."""
        transport = self._transport
        if not self._eager:
            return None
        waiting: int = len(transport.dataBuffer) - transport.offset + transport._tempDataLen
        return waiting

    def is_over_high_water(self) -> bool:
        """Whether a pause that the transport asks for is one by our own mark (always, where it does not tell)."""
        unsent = self.unsent_bytes()
        return unsent is None or unsent > self._high_water_bytes

    def _write_eagerly(self, data: bytes) -> None:
        transport = self._transport
        if transport.dataBuffer or transport._tempDataBuffer or not transport.connected:
            transport.write(data)
        else:
            try:
                sent = transport.socket.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                # The ordinary write meets the same error in the reactor, which then reports the lost connection.
                sent = 0
            if sent == len(data):
                return
            transport.write(data[sent:] if sent else data)
        producer = transport.producer
        if (
            producer is not None
            and not transport.producerPaused
            and (self.unsent_bytes() or 0) > self._high_water_bytes
        ):
            transport.producerPaused = True
            producer.pauseProducing()


def is_plain_tcp(transport: Any) -> bool:
    """Whether a transport is Twisted's own TCP connection, without TLS on top, and has every attribute that we rely on."""
    return (
        isinstance(transport, tcp.Connection)
        and not getattr(transport, "TLS", False)
        and all(hasattr(transport, name) for name in PRIVATE_NAMES)
    )


def set_no_delay(transport: Any) -> None:
    """Send small segments at once (official ``TCP_NODELAY``); nothing for transports that know no such thing."""
    setter = getattr(transport, "setTcpNoDelay", None)
    if setter is not None:
        setter(True)


# --------------------------------------------------------------------------- addresses


def numeric_address(address: object) -> tuple[str, int]:
    """``(host, port)`` of a Twisted address: no scope id, and an IPv4 peer of a dual-stack port in its own notation."""
    host = str(getattr(address, "host", ""))
    port = int(getattr(address, "port", 0))
    host = host.partition("%")[0]
    if host.lower().startswith(MAPPED_IPV4) and isIPAddress(host[len(MAPPED_IPV4) :]):
        host = host[len(MAPPED_IPV4) :]
    return host, port


def format_address(host: str, port: int) -> str:
    """``host:port``, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(address: str) -> tuple[str, int]:
    """``host:port`` or ``[v6]:port`` (a bare IPv6 host is taken as well: the last colon counts); ValueError otherwise."""
    host, colon, port_text = address.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not host or not port_text.isascii() or not port_text.isdigit():
        raise ValueError(f"{address!r} is not host:port")
    port = int(port_text)
    if not 0 < port < 65536:
        raise ValueError(f"{address!r} has a port outside 1 to 65535")
    return host, port


# --------------------------------------------------------------------------- ports and endpoints


def listen(
    reactor: IReactorTCP,
    host: str,
    port: int,
    factory: ServerFactory[Any],
    *,
    backlog: int = DEFAULT_BACKLOG,
) -> IListeningPort:
    """Listen on a host (IPv4 or IPv6, with or without brackets, or a name) and a port (0: the system chooses).

    The address may be used again right after a stop (SO_REUSEADDR). A name is looked up blocking, so this is for start-up only.
    Raises ``CannotListenError``.
    """
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if host and not isIPAddress(host) and not isIPv6Address(host):
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise CannotListenError(host, port, error) from None  # type: ignore[no-untyped-call]
        hosts = [str(entry[4][0]) for entry in found]
        host = next((known for known in hosts if isIPAddress(known)), hosts[0])
    listening: IListeningPort = reactor.listenTCP(port, factory, backlog, host)
    return listening


def client_endpoint(reactor: Any, host: str, port: int, timeout_s: float) -> IStreamClientEndpoint:
    """Where to connect to. A name is looked up at each connect, and all of its addresses are tried."""
    if isIPAddress(host):
        return TCP4ClientEndpoint(reactor, host, port, timeout_s)
    if isIPv6Address(host):
        return TCP6ClientEndpoint(reactor, host, port, timeout_s)  # type: ignore[no-untyped-call]
    return HostnameEndpoint(reactor, host, port, timeout_s)
