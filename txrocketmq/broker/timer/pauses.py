"""How does work pause that may have to end at any moment?"""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime


class Pauses:
    """Pauses of several pieces of work; all of them end at the stop.

    :ivar is_over: no pause is made any more: work has to finish without, or give up.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._calls: dict[int, tuple[IDelayedCall, Deferred[None]]] = {}
        self._number = 0
        self.is_over = False

    def begin(self) -> None:
        """Pauses are made from now on."""
        self.is_over = False

    def wait(self, seconds: float) -> Deferred[None]:
        """A Deferred that fires after a while, at once when pauses are over."""
        if self.is_over:
            return succeed(None)
        self._number += 1
        number = self._number
        waiting: Deferred[None] = Deferred()

        def fire() -> None:
            del self._calls[number]
            waiting.callback(None)

        self._calls[number] = (self._clock.callLater(seconds, fire), waiting)
        return waiting

    def end(self) -> None:
        """End all pauses, and those to come."""
        self.is_over = True
        calls, self._calls = self._calls, {}
        for call, waiting in calls.values():
            call.cancel()
            waiting.callback(None)
