"""What do the connections of one port, or of one client, have in common? Limits, listener, sweeps, counters, and one end.

Stands for what the official ``NettyRemotingServer`` and ``NettyRemotingClient`` inherit from ``NettyRemotingAbstract``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from txrocketmq.interfaces import IConnectionListener
from txrocketmq.remoting.budget import InputBudget, OutputBudget, Room
from txrocketmq.remoting.connection import Permits
from txrocketmq.remoting.dispatch import Dispatcher, RequestHook
from txrocketmq.remoting.limits import RemotingLimits
from txrocketmq.remoting.sweep import Sweeper
from txrocketmq.remoting.together import Together

if TYPE_CHECKING:
    from txrocketmq.remoting.protocol import RemotingProtocol

log = Logger()


class ConnectionGroup:
    """Connections with one dispatcher, one listener and one set of limits.

    :param shared_permits: one bound on our requests for all connections (a client), or one for each (a server).
    :param room: how many connections this group and others together may have.
    :ivar together: answers what many wait for.
    :ivar input: what unfinished frames of all connections take.
    :ivar output: what peers leave unread.
    :ivar accepted: connections ever.
    :ivar turned_away: connections closed at once because there were too many.
    :ivar protocol_errors: connections closed because the peer broke the protocol.
    :ivar idle_closed: connections closed because nothing happened on them.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        clock: IReactorTime,
        listener: IConnectionListener | None,
        limits: RemotingLimits,
        *,
        hooks: Sequence[RequestHook] = (),
        shared_permits: bool = False,
        room: Room | None = None,
        together: Together | None = None,
    ) -> None:
        self.dispatcher = dispatcher
        self.clock = clock
        self.listener = listener
        self.limits = limits
        self.hooks = tuple(hooks)
        self.sweeper = Sweeper(clock)
        self.input = InputBudget(limits.max_unfinished_bytes)
        self.output = OutputBudget(limits.max_unsent_bytes)
        self.connections: dict[RemotingProtocol, None] = {}
        self.accepted = 0
        self.turned_away = 0
        self.protocol_errors = 0
        self.idle_closed = 0
        self._permits = Permits(limits.max_requests) if shared_permits else None
        self.together = together or Together()
        self._room = room or Room(limits.max_connections)
        self._when_empty: list[Deferred[None]] = []

    def permits(self) -> Permits:
        """The bound on our requests that a new connection keeps."""
        return self._permits or Permits(self.limits.max_requests)

    def is_full(self) -> bool:
        """Whether one more connection would be too many."""
        room = self._room
        return len(self.connections) >= self.limits.max_connections or room.used >= room.limit

    def joined(self, connection: RemotingProtocol) -> None:
        """A connection is made."""
        self.accepted += 1
        self._room.used += 1
        self.connections[connection] = None
        self.sweeper.add(connection)
        self._tell("connected", connection)

    def left(self, connection: RemotingProtocol, reason: str) -> None:
        """A connection is gone."""
        if connection in self.connections:
            del self.connections[connection]
            self._room.used -= 1
        self.sweeper.discard(connection)
        self._tell("disconnected", connection, reason)
        if not self.connections:
            waiting, self._when_empty = self._when_empty, []
            for deferred in waiting:
                deferred.callback(None)

    def became_idle(self, connection: RemotingProtocol) -> None:
        """Nothing happened on a connection for the idle time; it is closed right after."""
        self.idle_closed += 1
        self._tell("idle", connection)

    def close_all(self, reason: str) -> Deferred[None]:
        """Close every connection; fires when they are gone, at the latest after the grace time for unsent bytes."""
        if not self.connections:
            return succeed(None)
        deferred: Deferred[None] = Deferred()
        self._when_empty.append(deferred)
        for connection in list(self.connections):
            connection.close(reason)
        return deferred

    def _tell(self, event: str, connection: RemotingProtocol, *arguments: Any) -> None:
        """A listener's fault must harm neither the connection nor the reactor."""
        if self.listener is None:
            return
        try:
            getattr(self.listener, event)(connection, *arguments)
        except Exception:
            log.failure(
                "connection listener failed at {event} of {peer}",
                event=event,
                peer=connection.remote_text,
            )
