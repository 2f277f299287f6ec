"""How does a command run? A reactor for one piece of work, ended by the work, an error or Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.python.failure import Failure

from txrocketmq.cli.directory import Directory
from txrocketmq.config.load import check_address, split_addresses
from txrocketmq.errors import RocketMQError
from txrocketmq.remoting.client import RemotingClient

#: What a shell expects of a program that Ctrl-C ended.
INTERRUPTED = 130
FAILED = 1

Work = Callable[[Any, RemotingClient, Directory], Awaitable[int]]


def run(namesrv: str, work: Work, *, when_interrupted: int = INTERRUPTED) -> int:
    """Do some work with a client.

    :param namesrv: name servers, ``host:port;host:port``.
    :param work: given reactor, client and directory; returns the exit code.
    :param when_interrupted: exit code after Ctrl-C.
    :return: the exit code; an error that was foreseen becomes one line on stderr and 1.
    """
    addresses = split_addresses(namesrv)
    try:
        if not addresses:
            raise RocketMQError("no name server is given: use -n HOST:PORT or set NAMESRV_ADDR")
        for address in addresses:
            check_address("-n", address)
    except RocketMQError as error:
        return complain(error)
    from twisted.internet import reactor

    return _Run(reactor, addresses, work, when_interrupted).exit_code()


def complain(error: object) -> int:
    """One line on stderr; the exit code for it."""
    sys.stderr.write(f"txrocketmq: {one_line(str(error))}\n")
    return FAILED


def reader_gone() -> int:
    """Whoever read the output has enough of it (``| head``): nobody is left to be told; the exit code for it."""
    # What is still to be flushed at the end of the process goes nowhere instead of failing again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED


def one_line(text: str) -> str:
    """A text that came from elsewhere, fit for a terminal: one line, what cannot be printed in its escaped form."""
    words = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words)


class _Run:
    def __init__(
        self, reactor: Any, addresses: list[str], work: Work, when_interrupted: int
    ) -> None:
        self._reactor = reactor
        self._client = RemotingClient(reactor)
        self._directory = Directory(self._client, addresses)
        self._work = work
        self._code = when_interrupted
        self._running: Deferred[int] | None = None

    def exit_code(self) -> int:
        self._reactor.callWhenRunning(self._begin)
        self._reactor.addSystemEventTrigger("before", "shutdown", self._end)
        self._reactor.run()
        return self._code

    def _begin(self) -> None:
        self._running = Deferred.fromCoroutine(self._call())
        self._running.addCallbacks(self._done, self._failed)

    async def _call(self) -> int:
        return await self._work(self._reactor, self._client, self._directory)

    def _done(self, code: int) -> None:
        self._code = code
        self._stop()

    def _failed(self, failure: Failure) -> None:
        if isinstance(failure.value, RocketMQError):
            self._code = complain(failure.value)
        elif isinstance(failure.value, BrokenPipeError):
            self._code = reader_gone()
        elif not isinstance(failure.value, CancelledError):
            self._code = FAILED
            sys.stderr.write(failure.getTraceback())
        self._stop()

    def _stop(self) -> None:
        self._running = None
        if self._reactor.running:
            self._reactor.callLater(0, _stop_once, self._reactor)

    def _end(self) -> Deferred[None]:
        """The reactor stops: because the work is done, or because of a signal."""
        if self._running is not None:
            self._running.cancel()
        return self._client.stop()


def _stop_once(reactor: Any) -> None:
    # A signal may have been quicker.
    with contextlib.suppress(ReactorNotRunning):
        reactor.stop()
