"""How are listening ports taken before the process goes to the background, and opened when the role is ready?

A port is *claimed* (bound, not listening) while mistakes can still be reported on the terminal, and *opened* once there is
something to serve: a client that comes earlier is refused instead of kept waiting through a recovery.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, cast

from twisted.internet.interfaces import IListeningPort, IProtocolFactory, IReactorSocket

from txrocketmq.service.startup import StartupError

#: The fast port lies this far below the main one.
FAST_PORT_DISTANCE = 2
_PAIR_ATTEMPTS = 50


class ClaimedPort:
    """A bound address that nobody listens on yet.

    :ivar host: the address as configured.
    :ivar port: the port, chosen by the system where 0 was asked for.
    """

    def __init__(self, host: str, bound: socket.socket) -> None:
        self.host = host
        self.port: int = bound.getsockname()[1]
        self._socket = bound

    @property
    def text(self) -> str:
        """``host:port``, IPv6 hosts bracketed."""
        return _text(self.host, self.port)

    def open(
        self, reactor: IReactorSocket, factory: IProtocolFactory, backlog: int
    ) -> IListeningPort:
        """Listen. The port belongs to the reactor from now on.

        :raises StartupError: somebody else began to listen in the meantime.
        """
        try:
            self._socket.listen(backlog)
            listening = cast(Any, reactor).adoptStreamPort(
                self._socket.fileno(), self._socket.family, factory
            )
            # Adopting sets the backlog back to a default.
            self._socket.listen(backlog)
        except OSError as error:
            raise _refused(self.host, self.port, error) from error
        finally:
            self._socket.close()
        return cast(IListeningPort, listening)

    def release(self) -> None:
        """Give the address up without having opened it; nothing when it was opened."""
        self._socket.close()


def claim_port(host: str, port: int) -> ClaimedPort:
    """Bind an address.

    :param host: numeric, or a name that is looked up; ``0.0.0.0`` is every IPv4 address, ``::`` every one.
    :param port: 0 lets the system choose.
    :raises StartupError: it is taken, not of this machine, or needs more rights.
    """
    plain = host.removeprefix("[").removesuffix("]")
    try:
        family, _, _, _, address = socket.getaddrinfo(
            plain, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise _refused(host, port, error) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.setblocking(False)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise _refused(host, port, error) from error
    return ClaimedPort(host, bound)


def claim_broker_ports(host: str, port: int) -> tuple[ClaimedPort, ClaimedPort]:
    """Bind a broker's main port and the fast one below it.

    :raises StartupError: see `claim_port`.
    """
    if port:
        main = claim_port(host, port)
        try:
            return main, claim_port(host, port - FAST_PORT_DISTANCE)
        except StartupError as error:
            main.release()
            raise StartupError(f"{error} (the fast port, two below listenPort)") from error
    refused: StartupError | None = None
    for _ in range(_PAIR_ATTEMPTS):
        main = claim_port(host, 0)
        try:
            return main, claim_port(host, main.port - FAST_PORT_DISTANCE)
        except StartupError as error:
            main.release()
            refused = error
    raise refused or StartupError(f"cannot find two free ports on {host}")


def refuse_same(ports: Mapping[str, ClaimedPort]) -> None:
    """See that no two of a process's ports are one: both can be bound, and only the first that listens gets it.

    :param ports: by the key or option that says where each is.
    :raises StartupError: two are the same; names both.
    """
    names: dict[int, str] = {}
    for name, port in ports.items():
        other = names.setdefault(port.port, name)
        if other != name:
            raise StartupError(f"{other} and {name} are both {port.port}: each needs its own port")


def release_all(ports: Sequence[ClaimedPort]) -> None:
    """Give several claims up."""
    for port in ports:
        port.release()


def _text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _refused(host: str, port: int, error: OSError) -> StartupError:
    if isinstance(error, socket.gaierror):
        reason = error.args[1]
    else:
        reason = os.strerror(error.errno) if error.errno else str(error)
    return StartupError(f"cannot listen on {_text(host, port)}: {reason.lower()}")
