"""Work that a broker does at every period."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger


class Sweep:
    """Work at every period; a failure is logged and the next period comes all the same."""

    _log = Logger()

    def __init__(self, clock: IReactorTime, period_s: float, work: Callable[[], object]) -> None:
        self._clock = clock
        self._period_s = period_s
        self._work = work
        self._call: IDelayedCall = clock.callLater(period_s, self._run)

    def stop(self) -> None:
        """No period any more."""
        if self._call.active():
            self._call.cancel()

    def _run(self) -> None:
        self._call = self._clock.callLater(self._period_s, self._run)
        try:
            self._work()
        except Exception:
            self._log.failure("timed work failed")
