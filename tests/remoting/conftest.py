"""Fixtures of the remoting tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from memory_link import Server
from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogPublisher


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that must leave no delayed call behind once its connections are gone."""
    made = Server()
    yield made
    for connection in list(made.factory.group.connections):
        connection.close("the test is over")
        connection.connectionLost()
    assert made.clock.getDelayedCalls() == []


class LogLines:
    """What was logged at warning or above, or at any level."""

    def __init__(self) -> None:
        self.events: list[LogEvent] = []

    def __call__(self, event: LogEvent) -> None:
        self.events.append(event)

    def of_level(self, level: Any) -> list[str]:
        return [formatEvent(event) for event in self.events if event["log_level"] is level]

    @property
    def failures(self) -> list[Any]:
        return [event["log_failure"] for event in self.events if "log_failure" in event]

    @property
    def lines(self) -> list[str]:
        return [formatEvent(event) for event in self.events if event["log_level"] >= LogLevel.info]


@pytest.fixture
def log_lines() -> Iterator[LogLines]:
    lines = LogLines()
    globalLogPublisher.addObserver(lines)
    yield lines
    globalLogPublisher.removeObserver(lines)
