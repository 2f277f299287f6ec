"""What was logged with a traceback while a test ran."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from log_watch import logged


class Log(NamedTuple):
    """Tracebacks so far."""

    tracebacks: list[str]


@contextmanager
def watched() -> Iterator[Log]:
    """Watch for as long as the block runs."""
    with logged(
        lambda event: event.get("log_failure") is not None,
        lambda event: event["log_failure"].getTraceback(),
    ) as tracebacks:
        yield Log(tracebacks)
