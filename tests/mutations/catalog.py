"""Which faults must the tests notice? Reads ``mutations.toml`` and applies its entries to text.

A mutation is a small fault: in one file of the package one passage is replaced by another, and named tests must fail then.
The list is data, so that a reader sees at a glance what the tests guard.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parent.parent.parent
LIST = Path(__file__).with_name("mutations.toml")


class StaleMutation(Exception):
    """The passage to be replaced is not in its file exactly once: the list has to follow the code."""


@attrs.frozen
class Mutation:
    """One fault.

    :ivar name: names it on the command line.
    :ivar area: the room it is in.
    :ivar fault: what goes wrong, in words.
    :ivar file: path below the repository's root.
    :ivar old: the passage that is replaced; it occurs exactly once.
    :ivar new: what stands there instead.
    :ivar tests: files or tests of which at least one must fail.
    """

    name: str
    area: str
    fault: str
    file: str
    old: str
    new: str
    tests: list[str]

    def apply(self, text: str) -> str:
        """The file's text with the fault in it.

        :raises StaleMutation: the passage is not there exactly once.
        """
        count = text.count(self.old)
        if count != 1:
            raise StaleMutation(f"{self.name}: its passage is {count} times in {self.file}")
        return text.replace(self.old, self.new)


def load_mutations() -> list[Mutation]:
    """All entries in the order of the list."""
    entries = tomllib.loads(LIST.read_text())["mutation"]
    return [Mutation(**entry) for entry in entries]
