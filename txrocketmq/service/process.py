"""How do the roles of one process start and stop? One after the other, and in reverse.

Stands for the ``main`` methods of the official start-up classes.
"""

from __future__ import annotations

import gc
import platform
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq import native
from txrocketmq.codec import crc
from txrocketmq.errors import RocketMQError
from txrocketmq.service.startup import abort

SWITCH_INTERVAL_S = 0.0005
"""How long a thread that comes back from a device waits before a busy reactor has to let it go on. Python's 5 ms would be added to
each sync that producers wait for, twice."""


class RoleRunner(Protocol):
    """One role of a process."""

    async def start(self) -> str:
        """Begin to serve; what it listens on and advertises, in words. Fails with `RocketMQError`."""

    async def stop(self) -> None:
        """Stop in order; called also when `start` failed half-way."""


class ProcessService(Service):
    """All roles of a process as one Twisted service.

    :param command: the plugin's name, for lines on stderr.
    :param roles: started in this order, stopped in reverse.
    :param warnings: lines about the configuration, logged at the start.
    """

    _log = Logger(namespace="txrocketmq")

    def __init__(
        self, command: str, reactor: Any, roles: Sequence[RoleRunner], warnings: Sequence[str] = ()
    ) -> None:
        self._command = command
        self._reactor = reactor
        self._roles = list(roles)
        self._warnings = list(warnings)
        self._begun: list[RoleRunner] = []
        self._starting: Deferred[None] | None = None

    def startService(self) -> None:
        """Start the roles; a failure ends the process with exit code 1."""
        super().startService()  # type: ignore[no-untyped-call]
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        for line in self._warnings:
            self._log.warn("{line}", line=line)
        self._log.info(
            "Python {version}, compiled functions {state}, CRC by {crc}",
            version=platform.python_version(),
            state=native.description,
            crc=crc.name,
        )
        # Once the reactor runs: from then on signals are ours, and a failure can stop it.
        self._reactor.callWhenRunning(self._begin)

    def _begin(self) -> None:
        self._starting = Deferred.fromCoroutine(self._start_roles())
        self._starting.addErrback(self._not_started)

    def stopService(self) -> Deferred[None]:
        """Stop the roles; fires when all is flushed and closed."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._stop_roles())

    async def _start_roles(self) -> None:
        lines = []
        for role in self._roles:
            if not self.running:
                return
            self._begun.append(role)
            lines.append(await role.start())
        # Modules and tables stay for good: a full collection need not go over them (20 to 60 ms of standing still).
        gc.freeze()
        self._log.info("{line}", line="; ".join(lines))

    async def _stop_roles(self) -> None:
        starting, self._starting = self._starting, None
        if starting is not None:
            await starting
        while self._begun:
            role = self._begun.pop()
            try:
                await role.stop()
            except Exception:
                self._log.failure("{role} did not stop in order", role=type(role).__name__)

    def _not_started(self, failure: Failure) -> None:
        if not self.running:
            self._log.info("the start is given up: {reason}", reason=failure.getErrorMessage())
            return
        if not isinstance(failure.value, RocketMQError | OSError):
            self._log.failure("start failed", failure)
        abort(self._reactor, self._command, failure.getErrorMessage())
