"""How equal is what mqadmin prints of ours and of official servers? Runs the stages, counts fields, writes the table.

Three comparisons: the tool of each line on servers of 5.4.0, as which ours behaves, and the older tool on servers of its own line. In
the last one a field that differs just as on 5.4.0 servers is counted apart: that is the difference of the lines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from .cluster import make_cluster
from .jvm import ROOT, JvmSlots
from .mqadmin_stage import BROKER_SETTINGS, Outcome, Stage, Step, plan
from .mqadmin_text import Difference, compare, excused
from .puppet import Puppet

PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- mqadmin: begin -->", "<!-- mqadmin: end -->"
MODEL = "official-5.4.0"


class Column(NamedTuple):
    """One comparison."""

    tool: str
    servers: str

    def __str__(self) -> str:
        return f"{self.tool} on {self.servers.removeprefix('official-')}"


COLUMNS = (Column("5.4.0", MODEL), Column("4.9.7", MODEL), Column("4.9.7", "official-4.9.7"))


@dataclass
class Count:
    """What became of the fields of a command, or of all.

    :ivar like_model: fields that differ from servers of the older line just as 5.4.0 servers do.
    :ivar failures: steps that printed an exception with ours and not with official servers, or the other way where that was due.
    """

    runs: int = 0
    equal: int = 0
    like_model: int = 0
    total: int = 0
    differences: list[Difference] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    official_failures: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The part of the fields that is equal, to the servers of the column or to those of 5.4.0."""
        return (self.equal + self.like_model) / self.total if self.total else 1.0

    def add(self, other: Count) -> None:
        """Take another count in."""
        self.runs += other.runs
        self.equal += other.equal
        self.like_model += other.like_model
        self.total += other.total
        self.differences += other.differences
        self.failures += other.failures
        self.official_failures += other.official_failures


def run_stage(servers: str, tool: str, slots: JvmSlots, quick: bool = False) -> list[Outcome]:
    """All steps of one stage."""
    with make_cluster(servers, slots, broker_settings=BROKER_SETTINGS) as cluster:
        puppet = Puppet(slots, tool)
        try:
            with puppet.in_use():
                return list(Stage(cluster, puppet).run(plan(tool, quick)))
        except BaseException as failure:
            failure.add_note(cluster.logs(30) + puppet.tail(30))
            raise
        finally:
            puppet.close()


def count_step(official: Outcome, ours: Outcome, model: Outcome) -> Count:
    """Compare one step's outputs. A step at which official servers fail the tool counts for nothing."""
    step = official.step
    if official.exception and not step.refused and not ours.exception:
        return Count(1, official_failures=[step.text])
    found = compare(official.records, ours.records)
    like_model, left = 0, found.differences
    if model is not official:
        like_model, left = excused(found, compare(official.records, model.records))
    failed = ours.exception != official.exception and ours.exception != model.exception
    failures = [step.text] if failed or (ours.exception and not step.refused) else []
    return Count(1, found.equal, like_model, found.total, left, failures)


def count_commands(
    official: Iterable[Outcome], ours: Iterable[Outcome], model: Iterable[Outcome]
) -> dict[tuple[str, str], Count]:
    """Counts by row and command."""
    counts: dict[tuple[str, str], Count] = defaultdict(Count)
    for one, other, third in zip(official, ours, model, strict=True):
        step: Step = one.step
        assert step == other.step == third.step
        counts[step.row, step.command].add(count_step(one, other, third))
    return counts


def summed(counts: dict[tuple[str, str], Count]) -> Count:
    """All commands together."""
    total = Count()
    for count in counts.values():
        total.add(count)
    return total


def run_all(slots: JvmSlots) -> dict[Column, dict[tuple[str, str], Count]]:
    """Run every stage and compare."""
    outcomes: dict[tuple[str, str], list[Outcome]] = {}
    for tool, servers in [*COLUMNS, *(dict.fromkeys((c.tool, "ours") for c in COLUMNS))]:
        outcomes[tool, servers] = run_stage(servers, tool, slots)
    return {
        column: count_commands(
            outcomes[column], outcomes[column.tool, "ours"], outcomes[column.tool, MODEL]
        )
        for column in COLUMNS
    }


def describe(differences: Iterable[Difference]) -> list[str]:
    """Differences as lines for people."""
    return [f"{name}: {theirs!r} -> {ours!r}" for name, theirs, ours in differences]


def table(found: dict[Column, dict[tuple[str, str], Count]]) -> str:
    """The section of the compatibility page."""
    lines = [
        "| row | command | runs | " + " | ".join(map(str, COLUMNS)) + " | differing |",
        "|---|---|---|" + "---|" * len(COLUMNS) + "---|",
    ]
    keys = sorted({key for counts in found.values() for key in counts})
    for row, command in keys:
        counts = [found[column].get((row, command), Count()) for column in COLUMNS]
        lines.append(
            f"| {row} | {command} | {max(count.runs for count in counts)} | "
            + " | ".join(map(_cell, counts))
            + f" | {_names(counts)} |"
        )
    totals = [summed(found[column]) for column in COLUMNS]
    lines.append(
        f"| | **all** | {max(count.runs for count in totals)} | "
        + " | ".join(f"{_cell(count)} = {count.share:.2%}" for count in totals)
        + " | |"
    )
    return "\n".join(lines)


def _cell(count: Count) -> str:
    if not count.runs:
        return "-"
    if not count.total:
        return "no output" if not count.official_failures else "official fails"
    apart = f" + {count.like_model}" if count.like_model else ""
    failed = f", {len(count.failures)} failed" if count.failures else ""
    return f"{count.equal}{apart} / {count.total}{failed}"


def _names(counts: Iterable[Count]) -> str:
    names = dict.fromkeys(name for count in counts for name, _, _ in count.differences)
    return ", ".join(f"`{name}`" for name in list(names)[:6]) + (", ..." if len(names) > 6 else "")


def write_page(found: dict[Column, dict[tuple[str, str], Count]]) -> None:
    """Put the table between its marks on the compatibility page."""
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n\n{table(found)}\n\n{END}{tail}")
