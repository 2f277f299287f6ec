"""Which combinations of servers, client line and header serialization are run, and with how many messages?

``INTEROP_COLUMNS`` chooses columns by id, comma-separated (default: ours with all clients, and the control column);
``INTEROP_TIER=full`` adds the cells that are left to full runs; ``INTEROP_COUNT`` is the number of messages a cell (default 500), ``INTEROP_CONTROL_COUNT`` that of control cells (default 100).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from .jvm import LINES

T = TypeVar("T")

DEFAULT_COUNT = 500
DEFAULT_CONTROL_COUNT = 100
FULL_COUNT = 10_000


class Column(NamedTuple):
    """One combination; its text is its id."""

    servers: str
    line: str
    serialize: str

    def __str__(self) -> str:
        return f"{self.servers}/{self.line}-{self.serialize.lower()}"

    @property
    def is_control(self) -> bool:
        """Whether the servers are official ones."""
        return self.servers != "ours"

    @property
    def message_count(self) -> int:
        """How many messages a cell of this column sends."""
        if self.is_control:
            return int(os.environ.get("INTEROP_CONTROL_COUNT", DEFAULT_CONTROL_COUNT))
        return int(os.environ.get("INTEROP_COUNT", DEFAULT_COUNT))


def by_tier(always: Sequence[T], full_only: Sequence[T]) -> list[T]:
    """The parameters of a test: some for every run, some for full runs alone."""
    full = os.environ.get("INTEROP_TIER") == "full"
    return [*always, *(full_only if full else ())]


#: In the order in which they are run: neighbours share a puppet or a cluster.
ALL_COLUMNS = (
    *(Column("ours", line, serialize) for line in LINES for serialize in ("JSON", "ROCKETMQ")),
    *(
        Column(f"official-{line}", line, serialize)
        for line in LINES
        for serialize in ("JSON", "ROCKETMQ")
    ),
)
_CI_CONTROL = "official-5.4.0/5.4.0-json"


def chosen_columns() -> list[Column]:
    """The columns of this run. ValueError for an unknown id."""
    known = {str(column): column for column in ALL_COLUMNS}
    wanted = os.environ.get("INTEROP_COLUMNS")
    if wanted is None:
        return [c for c in ALL_COLUMNS if not c.is_control or str(c) == _CI_CONTROL]
    ids = [word for word in wanted.split(",") if word]
    unknown = [word for word in ids if word not in known]
    if unknown:
        raise ValueError(f"unknown columns {unknown}; there are {list(known)}")
    return [known[word] for word in ids]
