"""How does one ask any server? Requests by address over pooled connections.

Stands for the official ``NettyRemotingClient``: one connection per address, made when first wanted, shared by all callers.
"""

from __future__ import annotations

import random as random_numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IStreamClientEndpoint
from zope.interface import implementer

from txrocketmq.codec.command import RemotingCommand
from txrocketmq.errors import (
    RemotingConnectError,
    RemotingSendError,
    RemotingTooMuchRequestError,
)
from txrocketmq.interfaces import IConnection, IConnectionListener, IRemotingClient
from txrocketmq.remoting.dispatch import Dispatcher, RequestHook
from txrocketmq.remoting.group import ConnectionGroup
from txrocketmq.remoting.limits import RemotingLimits
from txrocketmq.remoting.link import Link
from txrocketmq.remoting.protocol import RemotingProtocol
from txrocketmq.remoting.transport import client_endpoint, parse_address

MAX_IDLE_LINKS = 1024
"""Addresses remembered; beyond it those without a connection are forgotten."""

DEFAULT_TIMEOUT_MS = 3000

EndpointMaker = Callable[[Any, str, int, float], IStreamClientEndpoint]


@implementer(IConnectionListener)
class _LinkEvents:
    """Tells the link that its connection is gone, and the user's listener everything."""

    def __init__(self, links: Mapping[str, Link], listener: IConnectionListener | None) -> None:
        self._links = links
        self._listener = listener

    def connected(self, connection: IConnection) -> None:
        if self._listener is not None:
            self._listener.connected(connection)

    def disconnected(self, connection: IConnection, reason: str) -> None:
        link = self._links.get(connection.remote_text)
        if link is not None and link.connection is connection:
            link.lost()
        if self._listener is not None:
            self._listener.disconnected(connection, reason)

    def idle(self, connection: IConnection) -> None:
        if self._listener is not None:
            self._listener.idle(connection)


@implementer(IRemotingClient)
class RemotingClient:
    """Asks servers, and answers what they ask.

    :param reactor: connects, and is the clock.
    :param dispatcher: serves the servers' requests; without it they are told REQUEST_CODE_NOT_SUPPORTED.
    :param listener: told about connections.
    :param hooks: see requests before they are encoded, and answers.
    :param endpoint: ``(reactor, host, port, timeout_s)`` to an endpoint.
    :param random: a number in [0, 1), for the jitter of the back-off.
    """

    def __init__(
        self,
        reactor: Any,
        *,
        dispatcher: Dispatcher | None = None,
        listener: IConnectionListener | None = None,
        limits: RemotingLimits | None = None,
        hooks: Sequence[RequestHook] = (),
        endpoint: EndpointMaker = client_endpoint,
        random: Callable[[], float] = random_numbers.random,
    ) -> None:
        self._reactor = reactor
        self._endpoint = endpoint
        self._random = random
        self._links: dict[str, Link] = {}
        self._stopped = False
        self.group = ConnectionGroup(
            dispatcher or Dispatcher((), {}, reactor),
            reactor,
            _LinkEvents(self._links, listener),
            limits or RemotingLimits(close_when_silent=True),
            hooks=hooks,
            shared_permits=True,
        )

    def request(
        self,
        address: str,
        code: int,
        header: object | None,
        body: bytes = b"",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        ext_fields: Mapping[str, str] | None = None,
    ) -> Deferred[RemotingCommand]:
        """Ask a server. ``timeout_ms`` is for connecting and the answer together.

        A Deferred of the answer, whatever its code (GO_AWAY, too); fails with a `RemotingError` that names the address.
        """
        link = self._links.get(address)
        if link is not None:
            connection = link.connection
            if connection is not None and connection.is_open:
                return connection.request(code, header, body, timeout_ms, ext_fields)
        clock = self.group.clock
        deadline = clock.seconds() + timeout_ms / 1000

        def ask(connection: RemotingProtocol) -> Deferred[RemotingCommand]:
            left_ms = max(1, int((deadline - clock.seconds()) * 1000))
            return connection.request(code, header, body, left_ms, ext_fields)

        return self._when_connected(address, deadline).addCallback(ask)

    def oneway(
        self,
        address: str,
        code: int,
        header: object | None,
        body: bytes = b"",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        ext_fields: Mapping[str, str] | None = None,
    ) -> Deferred[None]:
        """Tell a server; fires with None once the bytes were handed to the connection. ``timeout_ms`` is for connecting."""
        deadline = self.group.clock.seconds() + timeout_ms / 1000

        def tell(connection: RemotingProtocol) -> None:
            if connection.oneway(code, header, body, ext_fields):
                return
            if connection.is_open:
                raise RemotingTooMuchRequestError(address, "unsent bytes are over the high mark")
            raise RemotingSendError(address, "the connection is closed")

        return self._when_connected(address, deadline).addCallback(tell)

    def connection(self, address: str) -> RemotingProtocol | None:
        """The open connection to an address, None when there is none."""
        link = self._links.get(address)
        return None if link is None else link.connection

    def close_address(self, address: str) -> None:
        """Drop the connection to an address that is no longer wanted."""
        link = self._links.pop(address, None)
        if link is not None:
            link.close("the address is no longer wanted")

    def stop(self) -> Deferred[None]:
        """Close everything; fires when all connections are gone. Waiters get `RemotingSendError`."""
        self._stopped = True
        for address in list(self._links):
            link = self._links.pop(address)
            link.close("the client stops")
        return self.group.close_all("the client stops")

    def reopen(self) -> None:
        """Connect again after a `stop` that has fired; nothing when there was none."""
        self._stopped = False

    def _when_connected(self, address: str, deadline: float) -> Deferred[RemotingProtocol]:
        if self._stopped:
            return fail(RemotingSendError(address, "the client is stopped"))
        link = self._links.get(address)
        if link is None:
            try:
                host, port = parse_address(address)
            except ValueError as error:
                return fail(RemotingConnectError(address, str(error)))
            self._forget_unused_links()
            link = self._links[address] = self._make_link(address, host, port)
        return link.when_connected(deadline)

    def _make_link(self, address: str, host: str, port: int) -> Link:
        timeout_s = self.group.limits.connect_timeout_s
        return Link(
            address,
            self.group,
            lambda: self._endpoint(self._reactor, host, port, timeout_s),
            self._random,
        )

    def _forget_unused_links(self) -> None:
        if len(self._links) < MAX_IDLE_LINKS:
            return
        now = self.group.clock.seconds()
        for address, link in list(self._links.items()):
            if link.is_unused(now):
                del self._links[address]
