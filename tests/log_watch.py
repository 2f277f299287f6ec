"""What is logged while a test runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogPublisher


def has_level(least: Any) -> Callable[[LogEvent], bool]:
    """Picks events of a level and above."""
    return lambda event: event.get("log_level", LogLevel.debug) >= least


is_warning, is_error = has_level(LogLevel.warn), has_level(LogLevel.error)


@contextmanager
def logged(
    wanted: Callable[[LogEvent], object] = lambda event: True,
    show: Callable[[LogEvent], Any] = formatEvent,
) -> Iterator[list[Any]]:
    """The events that are wanted as they come, each as it is shown; by default its text."""
    found: list[Any] = []

    def observe(event: LogEvent) -> None:
        if wanted(event):
            found.append(show(event))

    globalLogPublisher.addObserver(observe)
    try:
        yield found
    finally:
        globalLogPublisher.removeObserver(observe)
