"""What may all connections together use? Bounds that no single connection can see: descriptors, unfinished frames, unsent bytes.

One connection alone may use little, yet ten thousand that each begin a large frame, or that each leave their answers unread, use up
the memory of the machine. The official servers have no such bounds: their answers are parts of mapped files, and they count on
memory for the rest.
"""

from __future__ import annotations

from typing import Protocol

RESUME_SHARE = 0.75
"""Share of the limit on unfinished bytes at which waiting connections are read again."""

EXHAUSTED_FACTOR = 2
"""Times the limit at which large frames are refused."""

SMALL_FRAME_BYTES = 4096
"""Whoever has no more than this unfinished never waits: ordinary requests are not to suffer from large ones."""


class Room:
    """How many connections a process may have: one bound for all of its ports, since all use the same descriptors."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class Reading(Protocol):
    """A connection as `InputBudget` sees it."""

    def input_allowed(self) -> None:
        """There is room for unfinished frames again."""


class InputBudget:
    """Bytes of frames that are not whole yet.

    Within the limit nobody notices. Over it, a connection that brings more of an unfinished frame is not read until others have
    finished theirs; as long as any waits, frames that take too long are given up (`is_short`), so the waiting ends. One read of each
    of very many connections can still pass the limit by far: from twice the limit on, whoever begins a large frame is refused.

    :ivar used: the bytes now.
    """

    def __init__(self, limit: int) -> None:
        self.used = 0
        self._limit = limit
        self._waiting: dict[Reading, None] = {}

    @property
    def is_short(self) -> bool:
        """Whether connections wait."""
        return bool(self._waiting)

    @property
    def is_exhausted(self) -> bool:
        """Whether nobody may begin another large frame."""
        return self.used > EXHAUSTED_FACTOR * self._limit

    def change(self, connection: Reading, before_bytes: int, now_bytes: int) -> bool:
        """A connection's unfinished bytes became more or fewer; False when it should not be read for now."""
        self.used += now_bytes - before_bytes
        if now_bytes > before_bytes:
            if self.used > self._limit and now_bytes > SMALL_FRAME_BYTES:
                self._waiting[connection] = None
                return False
        elif self._waiting and self.used <= self._limit * RESUME_SHARE:
            waiting, self._waiting = self._waiting, {}
            for reader in waiting:
                reader.input_allowed()
        return True

    def forget(self, connection: Reading) -> None:
        """A connection is gone, its bytes were given back before."""
        self._waiting.pop(connection, None)


class Writing(Protocol):
    """A connection as `OutputBudget` sees it."""

    def unsent_bytes(self) -> int:
        """Bytes that its peer did not take yet."""


class OutputBudget:
    """Bytes that peers leave unread, counted once a sweep over those connections that are over their transport's mark.

    That is 64 KiB for TCP. To wait for the higher mark of the connection itself would let many peers hold nearly as much each.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._behind: dict[Writing, None] = {}
        self._unsent = 0
        self._counted_at = -1.0

    def fell_behind(self, connection: Writing) -> None:
        """A connection's unsent bytes passed its transport's mark."""
        self._behind[connection] = None

    def drained(self, connection: Writing) -> None:
        """They are gone, or the connection is."""
        self._behind.pop(connection, None)

    def is_exceeded(self, now: float) -> bool:
        """Whether all unsent bytes together are too many."""
        if self._counted_at != now:
            self._counted_at = now
            self._unsent = sum(connection.unsent_bytes() for connection in self._behind)
        return self._unsent > self._limit

    def cut(self, connection: Writing) -> None:
        """A connection is cut: its bytes, which were counted, are free."""
        self._unsent -= connection.unsent_bytes()
        self.drained(connection)
