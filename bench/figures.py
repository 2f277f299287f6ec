"""How do measurements become a table, and the page `docs/performance.md`?

Each pair has several figures for each row. Shown is the median of each side, and as ratio the median of the ratios of neighbouring
runs (ours and the official one's right before or after it), with the least and the largest: what disturbs the machine disturbs
neighbours alike.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import NamedTuple

import twisted
from bench.cells import Figure, Row

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
NOTES = ROOT / "bench" / "performance_notes.md"


class Line(NamedTuple):
    """A row with what was measured."""

    row: Row
    official: list[Figure]
    ours: list[Figure]

    @property
    def ratios(self) -> list[float]:
        """How many times as good ours is, run by run."""
        pairs = zip(self.official, self.ours, strict=True)
        if self.row.more_is_better:
            return [ours.value / official.value for official, ours in pairs]
        return [official.value / ours.value for official, ours in pairs]

    @property
    def ratio(self) -> float:
        """The median of `ratios`."""
        return median(self.ratios)

    @property
    def is_met(self) -> bool:
        """Whether the target is."""
        return self.ratio >= self.row.target


HEAD = (
    "| row | official | ours | unit | ratio | least – most | target | CPU µs/msg official | ours | client | others |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
)


def table(lines: Sequence[Line]) -> list[str]:
    """Markdown."""
    return [*HEAD, *(_table_row(line) for line in lines)]


def _table_row(line: Line) -> str:
    row = line.row
    ratios = line.ratios
    both = [*line.official, *line.ours]
    cells = [
        row.title,
        _number(median(figure.value for figure in line.official)),
        _number(median(figure.value for figure in line.ours)),
        row.unit,
        f"**{line.ratio:.2f}**" if line.ratio < 10 else f"**{line.ratio:.1f}**",
        f"{min(ratios):.2f} – {max(ratios):.2f}",
        f"≥ {row.target:g}{'' if line.is_met else ' (missed)'}",
        _middle([figure.cpu_us for figure in line.official]),
        _middle([figure.cpu_us for figure in line.ours]),
        _middle([figure.client_cpu_us for figure in both]),
        _share([figure.others for figure in both]),
    ]
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _middle(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{median(known):.1f}" if known else ""


def _share(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{median(known):.0%}" if known else ""


def failures(lines: Sequence[Line]) -> list[str]:
    """Sends that were refused during measurements, if any."""
    said = []
    for line in lines:
        for name, figures in (("official", line.official), ("ours", line.ours)):
            failed = sum(figure.failed for figure in figures)
            if failed:
                said.append(f"{line.row.title}: {failed} messages were refused by {name}")
    return said


def machine() -> str:
    """In general words."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    java = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, check=True
    ).stderr.splitlines()[0]
    kernel = ".".join(platform.release().split(".")[:2])
    return (
        f"{os.cpu_count()} CPU cores shared by the client and the servers, {memory_gb:.0f} GB of memory, "
        f"Linux {kernel}, {platform.python_implementation()} {platform.python_version()}, "
        f"Twisted {twisted.__version__}, {java}"
    )


def commit_id() -> str:
    """The commit that was measured; marked where the tree differs from it."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "txrocketmq")
    return git("rev-parse", "--short=12", "HEAD") + (" and changes" if changed else "")


def write_page(lines: Sequence[Line], command: str, repeats: int, commit: str) -> None:
    """Make `docs/performance.md` anew; the notes on profiles come from `bench/performance_notes.md`."""
    refused = failures(lines)
    text = [
        "# Performance",
        "",
        "Side by side with the official software, under the same Java load. Made by",
        "",
        "```sh",
        command,
        "```",
        "",
        f"on {datetime.now(UTC):%Y-%m-%d}, commit {commit}; {machine()}.",
        f"Each figure is the median of {repeats} runs, official and ours by turns.",
        "",
        *table(lines),
        "",
        *(f"* {sentence}." for sentence in refused),
        *([""] if refused else []),
        NOTES.read_text().rstrip(),
        "",
    ]
    PAGE.write_text("\n".join(text))
