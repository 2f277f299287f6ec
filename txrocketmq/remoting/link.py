"""Is there a connection to this address, and may one be tried? One link per address, with back-off.

Stands for the official ``ChannelWrapper`` and ``getAndCreateChannel`` of ``NettyRemotingClient``.

::

            caller                    made
    idle ----------> connecting ----------------> connected --lost, after the peer had spoken--> idle
     ^                   |                            `------lost before it spoke----------.
     |                   `--failed: its callers fail-------------------> backing off <-----'
     `---------------------- the wait is over, nobody asks ------------------|
                      connecting <-- the wait is over, a caller waits -------'

A caller sees at most one attempt: one that comes while backing off waits for the next attempt if its timeout allows, and fails at once
otherwise; when the attempt fails, its callers fail, so that they can turn to another server.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.error import (
    ConnectError,
    ConnectingCancelledError,
    ConnectionRefusedError,
    DNSLookupError,
)
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.errors import (
    RemotingConnectError,
    RemotingError,
    RemotingSendError,
    RemotingTooMuchRequestError,
)
from txrocketmq.remoting.group import ConnectionGroup
from txrocketmq.remoting.protocol import RemotingProtocol

log = Logger()


class _LinkFactory(Factory):
    """Makes the connection of one attempt."""

    noisy = False

    def __init__(self, group: ConnectionGroup, address: str) -> None:
        self._group = group
        self._address = address

    def buildProtocol(self, addr: object) -> RemotingProtocol:
        return RemotingProtocol(self._group, self._address)


class Link:
    """The way to one address.

    :param endpoint: makes the endpoint of one attempt, so that names are looked up afresh.
    :param random: a number in [0, 1) for the jitter.
    :ivar connection: the open connection, None while there is none.
    :ivar attempts: attempts to connect, ever.
    """

    def __init__(
        self,
        address: str,
        group: ConnectionGroup,
        endpoint: Callable[[], IStreamClientEndpoint],
        random: Callable[[], float],
    ) -> None:
        self.address = address
        self.connection: RemotingProtocol | None = None
        self.attempts = 0
        self._group = group
        self._endpoint = endpoint
        self._random = random
        self._attempt: Deferred[RemotingProtocol] | None = None
        self._give_up_at = 0.0
        self._callers: dict[Deferred[RemotingProtocol], float] = {}
        self._failures = 0
        self._not_before = 0.0
        self._last_reason = ""

    def is_unused(self, now: float) -> bool:
        """Whether forgetting this link would lose nothing."""
        return (
            self.connection is None
            and self._attempt is None
            and not self._callers
            and self._not_before <= now
        )

    def when_connected(self, deadline: float) -> Deferred[RemotingProtocol]:
        """A Deferred of the open connection; fails with `RemotingConnectError` after one failed attempt or at the deadline."""
        if self.connection is not None and self.connection.is_open:
            return succeed(self.connection)
        if len(self._callers) >= self._group.limits.max_requests:
            reason = f"{len(self._callers)} requests wait for the connection, the limit is reached"
            return fail(RemotingTooMuchRequestError(self.address, reason))
        now = self._group.clock.seconds()
        if self._not_before - now > self._group.limits.backoff_max_s:
            # No wait is that long: the clock was set back.
            self._not_before = now
        if self._attempt is None and deadline < self._not_before:
            wait_s = self._not_before - now
            return fail(
                RemotingConnectError(
                    self.address, f"{self._last_reason}; next attempt in {wait_s:.1f} s"
                )
            )
        deferred: Deferred[RemotingProtocol] = Deferred(self._forget)
        self._callers[deferred] = deadline
        self._group.sweeper.add(self)
        self._group.sweeper.wake_by(deadline)
        if self._attempt is None:
            if self._not_before <= now:
                self._try(now)
            else:
                self._group.sweeper.wake_by(self._not_before)
        return deferred

    def lost(self) -> None:
        """The connection is gone."""
        connection, self.connection = self.connection, None
        if connection is None:
            return
        if connection.has_heard:
            self._failures = 0
            self._not_before = 0.0
        else:
            self._back_off("the peer closed the connection before it said anything")

    def close(self, reason: str) -> None:
        """No longer wanted: callers get `RemotingSendError`, an attempt is given up, the connection is closed."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.cancel()
        self._fail_callers(RemotingSendError(self.address, reason))
        self._group.sweeper.discard(self)
        if self.connection is not None:
            self.connection.close(reason)

    def sweep(self, now: float) -> float | None:
        """Give up what takes too long, begin the next attempt when it may; the next time that something is due."""
        for deferred, deadline in list(self._callers.items()):
            if deadline <= now and self._callers.pop(deferred, None) is not None:
                reason = self._last_reason or "no connection in time"
                deferred.errback(RemotingConnectError(self.address, reason))
        if self._attempt is not None:
            if now < self._give_up_at:
                return min([self._give_up_at, *self._callers.values()])
            timeout_s = self._group.limits.connect_timeout_s
            attempt, self._attempt = self._attempt, None
            attempt.cancel()
            self._failed(f"no connection within {timeout_s:g} s")
        if not self._callers:
            self._group.sweeper.discard(self)
            return None
        if self._not_before <= now:
            self._try(now)
            return min([self._give_up_at, *self._callers.values()])
        return min([self._not_before, *self._callers.values()])

    # ----------------------------------------------------------------- one attempt

    def _try(self, now: float) -> None:
        self.attempts += 1
        self._give_up_at = now + self._group.limits.connect_timeout_s
        self._group.sweeper.wake_by(self._give_up_at)
        factory = _LinkFactory(self._group, self.address)
        attempt: Deferred[Any] = self._endpoint().connect(factory)
        self._attempt = attempt
        attempt.addCallbacks(
            self._made, self._not_made, callbackArgs=(attempt,), errbackArgs=(attempt,)
        )

    def _made(self, connection: RemotingProtocol, attempt: Deferred[RemotingProtocol]) -> None:
        if self._attempt is not attempt:  # given up in the very moment that it succeeded
            connection.close("no longer wanted")
            return
        self._attempt = None
        self._group.sweeper.discard(self)
        if not connection.is_open:
            self._failed("the connection was lost at once")
            return
        self.connection = connection
        self._last_reason = ""
        callers, self._callers = self._callers, {}
        for deferred in callers:
            # What one caller does may have cancelled the next.
            if not deferred.called:
                deferred.callback(connection)

    def _not_made(self, failure: Failure, attempt: Deferred[RemotingProtocol]) -> None:
        if self._attempt is not attempt:
            if not isinstance(failure.value, CancelledError | ConnectingCancelledError):
                log.debug("{peer}: {reason}", peer=self.address, reason=_reason(failure))
            return
        self._attempt = None
        self._failed(_reason(failure))

    def _failed(self, reason: str) -> None:
        self._back_off(reason)
        self._fail_callers(RemotingConnectError(self.address, reason))

    def _back_off(self, reason: str) -> None:
        limits = self._group.limits
        wait_s = min(limits.backoff_max_s, limits.backoff_first_s * 2.0 ** min(self._failures, 30))
        self._failures += 1
        self._last_reason = reason
        self._not_before = self._group.clock.seconds() + wait_s * (0.5 + self._random() / 2)

    def _fail_callers(self, error: RemotingError) -> None:
        callers, self._callers = self._callers, {}
        for deferred in callers:
            if not deferred.called:
                deferred.errback(error)

    def _forget(self, deferred: Deferred[RemotingProtocol]) -> None:
        self._callers.pop(deferred, None)


def _reason(failure: Failure) -> str:
    """Why there is no connection, in the system's words where Twisted wraps them in its own."""
    error = failure.value
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ConnectError) and isinstance(error.osError, int):
        return os.strerror(error.osError).lower()
    if isinstance(error, DNSLookupError):
        return "there is no such host"
    return failure.getErrorMessage()
