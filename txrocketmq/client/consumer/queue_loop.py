"""Work on one queue that goes on step by step, each asking a broker and then the next: how it waits, pauses and ends.

Stands for what a ``PullRequest`` and a ``PopRequest`` of the official ``PullMessageService`` have in common, and ``PullTaskImpl`` of the lite pull consumer.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

AT_ONCE_S = 0.02
"""An answer within this time was not held by its broker."""
MAX_FRUITLESS = 5
"""Answers of that kind in a row, without a message, that are followed by the next question at once."""
FRUITLESS_S = 0.1


class QueueLoop:
    """Steps on one queue; whoever inherits says what a step is.

    :ivar paused: no step asks for anything.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._timer: IDelayedCall | None = None
        self._waiting: Deferred[Any] | None = None
        self._stopped = False
        self._fruitless = 0
        self.paused = False

    def start(self) -> None:
        """Begin."""
        self._step()

    def stop(self) -> None:
        """No step any more; what one that is under way brings is forgotten."""
        self._stopped = True
        self._forget()

    def _forget(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()

    def pause(self) -> None:
        """Ask for nothing until `resume`."""
        self.paused = True

    def resume(self) -> None:
        """Go on at once."""
        self.paused = False
        if self._timer is not None and self._timer.active():
            self._timer.reset(0)

    def _ask_at_once(self) -> None:
        """Ask now, and do not wait for what was asked before."""
        if not self._stopped:
            self._forget()
            self._step()

    def _go_on(self, asked_s: float, *, is_fruitless: bool) -> None:
        """The next step, at once; a little later where a broker says at once, again and again, that there is nothing.

        :param asked_s: when the answer was asked for.
        """
        is_fruitless = is_fruitless and self._clock.seconds() - asked_s < AT_ONCE_S
        self._fruitless = self._fruitless + 1 if is_fruitless else 0
        if self._fruitless > MAX_FRUITLESS:
            self._later(FRUITLESS_S)
        else:
            self._step()

    def _later(self, seconds: float) -> None:
        if not self._stopped:
            self._timer = self._clock.callLater(seconds, self._step)

    def _step(self) -> None:
        raise NotImplementedError
