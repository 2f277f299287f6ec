"""How does work repeat? A call that comes round at an interval, never twice at a time, and survives its own failures."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

log = Logger()


class Periodic:
    """Calls ``work`` every ``interval_s`` after a first wait; one that returns a Deferred is not called again before it fired.

    :param name: for the log.
    """

    def __init__(
        self,
        clock: IReactorTime,
        name: str,
        interval_s: float,
        work: Callable[[], Deferred[None] | None],
        first_s: float | None = None,
    ) -> None:
        self._clock = clock
        self._name = name
        self._interval_s = interval_s
        self._first_s = interval_s if first_s is None else first_s
        self._work = work
        self._call: IDelayedCall | None = None
        self._running = False
        self._again = False
        self._started = False
        self._waiting: list[Deferred[None]] = []

    def start(self) -> None:
        """Begin; nothing when it runs already."""
        if not self._started:
            self._started = True
            self._call = self._clock.callLater(self._first_s, self._due)

    def stop(self) -> None:
        """End; work that goes on is not waited for."""
        self._started = False
        self._again = False
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(None)

    def run_now(self) -> None:
        """Do the work now, or once more right after what is being done."""
        if not self._started:
            return
        if self._running:
            self._again = True
        else:
            self._run()

    def when_run(self) -> Deferred[None]:
        """`run_now`, and fire when that work is done, however it ended; at once when the work has ended for good."""
        if not self._started:
            return succeed(None)
        done: Deferred[None] = Deferred()
        self._waiting.append(done)
        self.run_now()
        return done

    def _due(self) -> None:
        self._call = self._clock.callLater(self._interval_s, self._due)
        if not self._running:
            self._run()

    def _run(self) -> None:
        self._running = True
        waiting, self._waiting = self._waiting, []
        try:
            outcome = self._work()
        except Exception:
            self._done(Failure(), waiting)  # type: ignore[no-untyped-call]
            return
        if outcome is None:
            self._done(None, waiting)
        else:
            outcome.addBoth(self._done, waiting)

    def _done(self, outcome: object, waiting: list[Deferred[None]]) -> None:
        self._running = False
        if isinstance(outcome, Failure):
            log.failure("{name} failed", outcome, name=self._name)
        for waiter in waiting:
            waiter.callback(None)
        if self._again:
            self._again = False
            self._run()
