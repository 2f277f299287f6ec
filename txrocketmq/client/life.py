"""How does a producer or consumer begin and end, whoever cancels what, and whenever it is stopped?

::

                start            entered
    created ----------> starting ---------> running --stop--> stopping --> stopped
                          | failed: all is undone      ^
                          |                            |
                          `--stop: as soon as it has entered

A role runs once, as the official ones do. Whoever cancels a start has it undone; whoever cancels a stop waits no longer for it, and the
stop goes on: half a stop would leave locks, groups and connections behind.
"""

from __future__ import annotations

from threading import get_ident
from types import TracebackType
from typing import TypeVar

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.errors import MQClientError

log = Logger()

Self = TypeVar("Self", bound="RoleService")


class RoleService(Service):
    """A service, an async context manager, or `start` and `stop` by hand.

    :param title: what it is called in errors and in the log.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._state = "created"
        self._is_unwanted = False
        self._thread = 0
        self._entering: list[Deferred[None]] = []
        self._stopping: list[Deferred[None]] = []

    # ------------------------------------------------------------------ for those who inherit

    async def _enter(self) -> None:
        """Become a part of the client instance. Whatever raises has undone all that was done."""

    async def _settle(self) -> None:
        """It runs: what a start waits for besides. When it raises, the role is stopped; it may be stopped meanwhile."""

    async def _leave(self) -> None:
        """End, after `_enter` was successful."""

    # ------------------------------------------------------------------ for all

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._state == "running"

    def start(self) -> Deferred[None]:
        """Begin.

        Fails with `MQClientError` for what cannot be, such as a second start, a group that is there already, or no name server, and when it
        is stopped before it is part of the client. Cancelling has all of it undone, in the background; `stop` tells when it is.
        """
        starting = Deferred.fromCoroutine(self._start())
        done: Deferred[None] = Deferred(lambda _: self._do_not_want(starting))
        starting.addBoth(lambda outcome: None if done.called else done.callback(outcome))
        return done

    def _do_not_want(self, starting: Deferred[None]) -> None:
        self._is_unwanted = True
        starting.cancel()

    def _check_thread(self) -> None:
        """Refuse calls from another thread than the reactor's: what they leave behind is seen at its next event, or breaks it.

        :raises MQClientError: with what to call instead.
        """
        if get_ident() != self._thread:
            raise MQClientError(
                f"{self._title} is called from another thread than the reactor's: there, say"
                " twisted.internet.threads.blockingCallFromThread(reactor, ...)"
            )

    async def _start(self) -> None:
        if self._state != "created":
            raise MQClientError(
                f"The service state not OK, maybe started once: {self._title} is {self._state}"
            )
        self._state = "starting"
        self._thread = get_ident()
        try:
            await self._enter()
        except Exception:
            self._entered("failed")
            raise
        self._entered("running")
        if not self.is_running:
            raise MQClientError(f"{self._title} was stopped before it had started")
        try:
            # Much of what is waited for takes a cancellation for one more failure that can be lived with.
            if not self._is_unwanted:
                await self._settle()
            if self._is_unwanted:
                raise CancelledError
        except Exception:
            await self.stop()
            raise

    def _entered(self, state: str) -> None:
        if state == "failed" or self._state == "starting":
            self._state = state
        self.running = 1 if self.is_running else 0
        waiting, self._entering = self._entering, []
        for waiter in waiting:
            waiter.callback(None)

    def stop(self) -> Deferred[None]:
        """End orderly; fires when it has ended. Safe to call at any time, and twice. Cancelling ends the waiting, not the stop."""
        if self._state not in ("starting", "running", "stopping"):
            return succeed(None)
        # Without a canceller: what comes after a cancellation is swallowed.
        done: Deferred[None] = Deferred()
        self._stopping.append(done)
        if self._state != "stopping":
            is_entering, self._state = self._state == "starting", "stopping"
            self.running = 0
            Deferred.fromCoroutine(self._stop(is_entering)).addBoth(self._has_stopped)
        return done

    async def _stop(self, is_entering: bool) -> None:
        if is_entering:
            entered: Deferred[None] = Deferred()
            self._entering.append(entered)
            await entered
            if self._state == "failed":
                return
        await self._leave()

    def _has_stopped(self, outcome: object) -> None:
        self._state = "stopped"
        waiting, self._stopping = self._stopping, []
        for waiter in waiting:
            waiter.callback(outcome)  # type: ignore[arg-type]
        if isinstance(outcome, Failure) and not waiting:
            log.failure("{title} did not end orderly", outcome, title=self._title)

    # ------------------------------------------------------------------ as a service, and in ``async with``

    def startService(self) -> None:
        """Begin in the background; a failure is logged."""
        super().startService()  # type: ignore[no-untyped-call]
        self.start().addErrback(
            lambda failure: log.failure("{title} does not start", failure, title=self._title)
        )

    def stopService(self) -> Deferred[None]:
        """See `stop`."""
        super().stopService()  # type: ignore[no-untyped-call]
        return self.stop()

    async def __aenter__(self: Self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()
