"""How many messages of a queue has a group popped and not acknowledged yet?

Stands for ``PopInflightMessageCounter``. In memory only: after a start it counts from zero, and what was popped before does not count.
"""

from __future__ import annotations

from collections.abc import Callable

Key = tuple[str, str, int]
"""Topic (as it was really popped), group, queue id."""


class InFlight:
    """Counters by topic, group and queue.

    :param freed: told the key when a counter went down.
    """

    def __init__(self, started_ms: int, freed: Callable[[Key], object]) -> None:
        self._started_ms = started_ms
        self._freed = freed
        self._counts: dict[Key, int] = {}

    def popped(self, key: Key, count: int) -> None:
        """Messages were handed out."""
        self._counts[key] = self._counts.get(key, 0) + count

    def done(self, key: Key, pop_time_ms: int, count: int = 1) -> None:
        """Messages were acknowledged, or come again."""
        if pop_time_ms < self._started_ms or key not in self._counts:
            return
        left = self._counts[key] - count
        if left > 0:
            self._counts[key] = left
        else:
            del self._counts[key]
        self._freed(key)

    def count(self, key: Key) -> int:
        """How many are out."""
        return self._counts.get(key, 0)

    def total(self) -> int:
        """How many are out in all."""
        return sum(self._counts.values())

    def clear(self, key: Key) -> None:
        """An ordered pop begins anew: what was out before is not any more."""
        self._counts.pop(key, None)

    def forget(self, is_doomed: Callable[[Key], bool]) -> None:
        """Forget topics or groups that are gone."""
        for key in [key for key in self._counts if is_doomed(key)]:
            del self._counts[key]
