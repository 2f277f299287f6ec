"""What was logged with a traceback while a test ran."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from twisted.logger import LogEvent, globalLogPublisher


class Log:
    """Remembers tracebacks."""

    def __init__(self) -> None:
        self.tracebacks: list[str] = []

    def __call__(self, event: LogEvent) -> None:
        failure = event.get("log_failure")
        if failure is not None:
            self.tracebacks.append(failure.getTraceback())


@contextmanager
def watched() -> Iterator[Log]:
    """Watch for as long as the block runs."""
    seen = Log()
    globalLogPublisher.addObserver(seen)
    try:
        yield seen
    finally:
        globalLogPublisher.removeObserver(seen)
