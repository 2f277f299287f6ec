"""Answers that become known together leave together: one write for each connection, where each alone would be one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class TurnTaker(Protocol):
    """A connection that gathers what it has to say."""

    def end_turn(self) -> None:
        """Write what was gathered."""


class Together:
    """Runs work that answers many requests, such as after a sync that they all waited for.

    A write to a socket costs 10 to 50 µs, most of it the kernel's waking of the peer, and a connection may have dozens of those requests.
    """

    def __init__(self) -> None:
        self._takers: list[TurnTaker] | None = None

    def __call__(self, work: Callable[[], object]) -> None:
        """Do the work; what connections have to say meanwhile is written at its end, also when it fails."""
        if self._takers is not None:
            work()
            return
        takers = self._takers = []
        try:
            work()
        finally:
            self._takers = None
            for taker in takers:
                taker.end_turn()

    def takes(self, taker: TurnTaker) -> bool:
        """Whether a connection that begins to speak is to gather; its `end_turn` is called then."""
        if self._takers is None:
            return False
        self._takers.append(taker)
        return True
