"""What may go wrong between a client and a server, one call each? Requests that are lost, late, refused, or done and never answered.

A fault is a rule for requests of one code, or of all; `Faults` has those of all servers of a test. A rule ends by itself after so many
``times``, when its ``with`` block ends, or by `Fault.end`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from twisted.internet.interfaces import IReactorTime

from txrocketmq.codec.command import RemotingCommand
from txrocketmq.model.codes import RequestCode
from txrocketmq.remoting.dispatch import ONEWAY_BIT, Answering, Dispatcher, Reply

Parts = Sequence[bytes] | None
Effect = Callable[[Dispatcher, Answering, RemotingCommand, int], Parts]


class Fault:
    """One rule.

    :ivar hits: requests that it met.
    """

    def __init__(
        self,
        faults: Faults,
        effect: Effect,
        text: str,
        code: int | None,
        at: str,
        times: int | None,
    ) -> None:
        self._faults = faults
        self._effect = effect
        self._text = text
        self._code = code
        self._at = at
        self._left = times
        self.hits = 0

    def meets(self, server: str, command: RemotingCommand) -> bool:
        """Whether a request is one of those."""
        return (self._code is None or command.code == self._code) and self._at in ("", server)

    def apply(
        self, dispatcher: Dispatcher, link: Answering, command: RemotingCommand, arrived_ms: int
    ) -> Parts:
        """Let it happen to a request."""
        self.hits += 1
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self.end()
        return self._effect(dispatcher, link, command, arrived_ms)

    def end(self) -> None:
        """From now on requests are served again."""
        self._faults.remove(self)

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def __repr__(self) -> str:
        code = "every request" if self._code is None else code_name(self._code)
        where = f" at {self._at}" if self._at else ""
        return f"<{self._text}: {code}{where}, met {self.hits}>"


class Faults:
    """All rules of a test; the newest that meets a request is applied.

    :param clock: for delays.
    :ivar requests: every request that came, as server and code, in order.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._rules: list[Fault] = []
        self.requests: list[tuple[str, int]] = []

    @property
    def rules(self) -> tuple[Fault, ...]:
        """The rules in force, the oldest first."""
        return tuple(self._rules)

    def remove(self, rule: Fault) -> None:
        """A rule ends."""
        if rule in self._rules:
            self._rules.remove(rule)

    def clear(self) -> None:
        """All rules end."""
        self._rules.clear()

    def _add(
        self, effect: Effect, text: str, code: int | None, at: str, times: int | None
    ) -> Fault:
        number = None if code is None else int(code)
        rule = Fault(self, effect, text, number, at, times)
        self._rules.append(rule)
        return rule

    def drop(self, code: int | None, at: str, times: int | None) -> Fault:
        """Requests never arrive."""
        return self._add(lambda *_: None, "dropped", code, at, times)

    def drop_answer(self, code: int | None, at: str, times: int | None) -> Fault:
        """Requests are served, their answers are lost."""

        def effect(
            dispatcher: Dispatcher, link: Answering, command: RemotingCommand, arrived_ms: int
        ) -> Parts:
            # Whatever becomes of a oneway request, it is not answered.
            command.flag |= ONEWAY_BIT
            return dispatcher.dispatch(link, command, arrived_ms)

        return self._add(effect, "answer dropped", code, at, times)

    def delay(self, seconds: float, code: int | None, at: str, times: int | None) -> Fault:
        """Requests arrive later."""

        def effect(
            dispatcher: Dispatcher, link: Answering, command: RemotingCommand, arrived_ms: int
        ) -> Parts:
            self._clock.callLater(seconds, arrive, dispatcher, link, command)
            return None

        def arrive(dispatcher: Dispatcher, link: Answering, command: RemotingCommand) -> None:
            if link.is_open:
                parts = dispatcher.dispatch(link, command, int(self._clock.seconds() * 1000))
                if parts is not None:
                    link.send_parts(parts)

        return self._add(effect, f"delayed by {seconds} s", code, at, times)

    def answer_with(
        self, answer: int, remark: str, code: int | None, at: str, times: int | None
    ) -> Fault:
        """Requests are refused."""

        def effect(
            dispatcher: Dispatcher, link: Answering, command: RemotingCommand, arrived_ms: int
        ) -> Parts:
            return dispatcher.finish(link, command, Reply(int(answer), remark=remark))

        return self._add(effect, f"answered with {int(answer)}", code, at, times)

    def met(self, server: str, command: RemotingCommand) -> Fault | None:
        """The rule for a request that came to a server."""
        self.requests.append((server, command.code))
        for rule in reversed(self._rules):
            if rule.meets(server, command):
                return rule
        return None


class FaultCalls:
    """Faults by one call each, for whatever has `Faults`."""

    faults: Faults

    def drop(self, code: int | None = None, *, at: str = "", times: int | None = None) -> Fault:
        """Requests of a code (`model.codes.RequestCode`; None: all) are lost on their way, and never answered.

        :param at: a broker's name, or ``namesrv``; everywhere by default.
        :param times: so many of them; until the fault ends by default.
        """
        return self.faults.drop(code, at, times)

    def drop_answer(
        self, code: int | None = None, *, at: str = "", times: int | None = None
    ) -> Fault:
        """Requests are served, and their answers lost; parameters as of `drop`."""
        return self.faults.drop_answer(code, at, times)

    def delay(
        self,
        seconds: float,
        code: int | None = None,
        *,
        at: str = "",
        times: int | None = None,
    ) -> Fault:
        """Requests arrive later; parameters as of `drop`."""
        return self.faults.delay(seconds, code, at, times)

    def answer_with(
        self,
        answer: int,
        remark: str = "injected by a test",
        *,
        code: int | None = None,
        at: str = "",
        times: int | None = None,
    ) -> Fault:
        """Requests are refused with a `model.codes.ResponseCode`; other parameters as of `drop`."""
        return self.faults.answer_with(answer, remark, code, at, times)


class FaultyDispatcher:
    """A `remoting.dispatch.Dispatcher` in front of which requests may come to harm.

    :param server: the name by which rules know the server.
    """

    def __init__(self, dispatcher: Dispatcher, faults: Faults, server: str) -> None:
        self._dispatcher = dispatcher
        self._faults = faults
        self._server = server

    def dispatch(
        self,
        connection: Answering,
        command: RemotingCommand,
        arrived_ms: int,
        admitted: bool = False,
    ) -> Parts:
        """See `remoting.dispatch.Dispatcher.dispatch`."""
        rule = self._faults.met(self._server, command)
        if rule is not None:
            return rule.apply(self._dispatcher, connection, command, arrived_ms)
        return self._dispatcher.dispatch(connection, command, arrived_ms, admitted)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dispatcher, name)


def code_name(code: int) -> str:
    """A request code with its name."""
    try:
        return f"{RequestCode(code).name} ({code})"
    except ValueError:
        return str(code)
