"""How are several servers started and ended as one? All of them, or none where one does not start."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Protocol, Self

from .cluster import Cluster


class Closes(Protocol):
    """A server that can be ended."""

    def close(self) -> None:
        """End it and delete its files."""


class Together(abc.ABC):
    """Name servers and brokers. Use as a context manager.

    :param names: the name servers, without a broker.
    """

    def __init__(self, names: Cluster) -> None:
        self._names = names
        self._stack = ExitStack()

    @abc.abstractmethod
    def _brokers(self) -> Sequence[Cluster]:
        """In the order in which they are started."""

    def _parts(self) -> Sequence[Closes]:
        """All there are. The last one is ended first: brokers can say good-bye."""
        return (self._names, *self._brokers())

    def _start(self) -> None:
        self._names.start_name_servers()
        for broker in self._brokers():
            broker.start_broker()

    def __enter__(self) -> Self:
        for part in self._parts():
            self._stack.callback(part.close)
        try:
            self._start()
        except BaseException as failure:
            failure.add_note(self.logs())
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._stack.close()

    @property
    def namesrv(self) -> str:
        """The name servers, as clients take them."""
        return self._names.namesrv

    def logs(self, lines: int = 40) -> str:
        """The last lines of what all servers wrote."""
        return "".join(part.logs(lines) for part in (self._names, *self._brokers()))
