"""When does time pass for a crowd of connections? One delayed call for all of them, and none while there are none.

Stands for the official ``scanResponseTable`` timer and Netty's ``IdleStateHandler``. A sweep comes once a second; a deadline that
falls into the next second brings it forward, so that timeouts are exact to `SWEEP_GAP_S` without a delayed call per request.
"""

from __future__ import annotations

from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

SWEEP_PERIOD_S = 1.0
"""Seconds between two sweeps when no deadline asks for an earlier one."""

SWEEP_GAP_S = 0.05
"""Least seconds between two sweeps: deadlines closer together are served by one."""

log = Logger()


class Swept(Protocol):
    """Something that wants to be looked at as time goes by."""

    def sweep(self, now: float) -> float | None:
        """Do what is due at ``now`` (seconds of the clock); when the next thing is due, None when nothing is known."""
        ...


class Sweeper:
    """Calls ``sweep`` of its members in time."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._members: dict[Swept, None] = {}
        self._call: IDelayedCall | None = None
        self._due = 0.0
        self._sweeping = False

    def add(self, member: Swept) -> None:
        """Sweep a member from now on."""
        self._members[member] = None
        if self._call is None and not self._sweeping:
            self._schedule(self._clock.seconds() + SWEEP_PERIOD_S)

    def discard(self, member: Swept) -> None:
        """Forget a member; with the last one goes the delayed call."""
        self._members.pop(member, None)
        if not self._members and self._call is not None:
            self._call.cancel()
            self._call = None

    def wake_by(self, deadline: float) -> None:
        """Make sure that a sweep comes by ``deadline``. Cheap when one comes before anyway."""
        if deadline >= self._due:
            return
        self._due = deadline
        if self._call is not None:
            now = self._clock.seconds()
            self._due = max(deadline, now + SWEEP_GAP_S)
            self._call.reset(self._due - now)

    def _schedule(self, due: float) -> None:
        self._due = due
        self._call = self._clock.callLater(max(0.0, due - self._clock.seconds()), self._sweep)

    def _sweep(self) -> None:
        self._call = None
        self._sweeping = True
        now = self._clock.seconds()
        self._due = now + SWEEP_PERIOD_S
        for member in list(self._members):
            try:
                due = member.sweep(now)
            except Exception:
                log.failure("sweep of {member} failed", member=member)
                continue
            if due is not None and due < self._due:
                self._due = due
        self._sweeping = False
        if self._members:
            self._schedule(max(self._due, now + SWEEP_GAP_S))
