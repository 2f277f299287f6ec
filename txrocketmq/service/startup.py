"""How does a process end when it cannot start, or is told to stop?

Mistakes that can be found early are reported before ``twistd`` goes to the background: one line on stderr, exit code 1. What
goes wrong later (a store that cannot be recovered) is logged, told on stderr if there is one, and ends the process with exit
code 1 as well, after ``twistd`` has removed its pid file. SIGTERM and SIGINT stop in order and end with exit code 0.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from twisted.internet.error import ReactorNotRunning
from twisted.logger import Logger

from txrocketmq.errors import RocketMQError

_log = Logger(namespace="txrocketmq")


class StartupError(RocketMQError):
    """A server cannot start; the text is one line for the operator."""


def refuse(command: str, reason: object) -> NoReturn:
    """End the process before it has begun: one line on stderr, exit code 1."""
    sys.stderr.write(f"{command}: {one_line(reason)}\n")
    sys.stderr.flush()
    raise SystemExit(1)


@contextmanager
def refusing(command: str) -> Iterator[None]:
    """Turn an expected error into `refuse`."""
    try:
        yield
    except RocketMQError as error:
        refuse(command, error)


def one_line(reason: object) -> str:
    """A reason without line breaks."""
    return " ".join(str(reason).split())


def abort(reactor: Any, command: str, reason: object) -> None:
    """End a process whose reactor runs: say why, stop in order, exit code 1."""
    line = f"{command}: {one_line(reason)}"
    _log.critical("{line}", line=line)
    # twistd has sent sys.stderr to the log.
    if sys.__stderr__ is not None:
        sys.__stderr__.write(line + "\n")
        sys.__stderr__.flush()
    # twistd has no way to return a code of ours; at this point it has removed its pid file.
    atexit.register(_exit_with_failure)
    _stop(reactor)


def _exit_with_failure() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def stop_on_signals(reactor: Any) -> None:
    """Let SIGTERM and SIGINT stop the process in order, with exit code 0 (twistd's own would end by the signal)."""

    def install() -> None:
        def stop(number: int, frame: FrameType | None) -> None:
            reactor.callFromThread(_stop, reactor)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)

    # At once for the time until the reactor runs, and again because the reactor puts its own in place then.
    install()
    reactor.callWhenRunning(install)


def _stop(reactor: Any) -> None:
    try:
        reactor.stop()
    except ReactorNotRunning:
        # Told to stop again while stopping.
        _log.debug("already stopping")
