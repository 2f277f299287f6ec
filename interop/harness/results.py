"""Where do results of full runs go, and what do they say? ``docs/interop-results.json``, and a table of it beside it.

A record belongs to the state of the sources it was made with: the last commit that touched what the cell depends on. Cells
of official servers depend on the harness alone.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from typing import Any

from .columns import ALL_COLUMNS
from .jvm import ROOT

RESULTS = ROOT / "docs" / "interop-results.json"
TABLE = ROOT / "docs" / "interop-results.md"
_HARNESS_PATHS = (
    "interop/pom.xml",
    "interop/proxy",
    "interop/src",
    "interop/harness",
    "tests/interop",
)
_OUR_PATHS = ("txrocketmq", "twisted")


def sources_of(servers: str) -> str:
    """The commit that a result of cells on these servers stands for, with a ``+`` when the tree has changes beside it."""
    paths = [*_HARNESS_PATHS, *(_OUR_PATHS if "ours" in servers else ())]
    commit = _git("log", "-1", "--format=%h", "--", *paths)
    changed = _git("status", "--porcelain", "--", *paths)
    return commit + ("+" if changed else "")


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def load() -> dict[str, dict[str, Any]]:
    """All records by cell."""
    if not RESULTS.exists():
        return {}
    records: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text())
    return records


def record(
    cell: str, outcome: str, count: int, seconds: float, sources: str, note: str = ""
) -> None:
    """Keep one cell's result; written at once, so that a run that is broken off loses none.

    :param note: what the cell measured, in a few words.
    """
    records = load()
    records[cell] = {
        "outcome": outcome,
        "count": count,
        "seconds": round(seconds, 1),
        "commit": sources,
        **({"note": note} if note else {}),
    }
    RESULTS.write_text(json.dumps(dict(sorted(records.items())), indent=1) + "\n")


def is_current(record: dict[str, Any] | None, servers: str, count: int) -> bool:
    """Whether a record says that a cell passed at this state of the sources with at least that many messages."""
    return (
        record is not None
        and record["outcome"] == "passed"
        and record["count"] >= count
        and record["commit"] == sources_of(servers)
    )


def split_cell(cell: str) -> tuple[str, str]:
    """A cell's test and its column (empty for tests that run once): ``a.py::T::t[ours/5.4.0-json-x]``."""
    test, _, parameters = cell.partition("[")
    parameters = parameters.rstrip("]")
    for column in map(str, ALL_COLUMNS):
        if parameters == column:
            return test, column
        if parameters.startswith(column + "-"):
            return f"{test}[{parameters.removeprefix(column + '-')}]", column
    return cell, ""


def write_table(cells: Iterable[str]) -> None:
    """Write the readable table of all records."""
    records = load()
    known = set(cells)
    columns = [c for c in map(str, ALL_COLUMNS) if any(split_cell(k)[1] == c for k in known)]
    lines = [
        "# Results against the official Java software",
        "",
        "Made by `interop/run --full`; the data is in [interop-results.json](interop-results.json). A column is",
        "`servers/client line-header serialization`; official servers are the control. A field gives the number of messages",
        "and the commit.",
        "",
        "| cell | " + " | ".join(columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    tests = {split_cell(cell)[0] for cell in known if split_cell(cell)[1]}
    by_test = {split_cell(cell): records.get(cell) for cell in known}
    for test in sorted(tests):
        fields = [_field(by_test.get((test, column))) for column in columns]
        lines.append(f"| {_short(test)} | " + " | ".join(fields) + " |")
    alone = sorted(cell for cell in known if not split_cell(cell)[1])
    if alone:
        lines += ["", "| cell | result |", "|---|---|"]
        lines += [f"| {_short(cell)} | {_field(records.get(cell))} |" for cell in alone]
    TABLE.write_text("\n".join(lines) + "\n")


def _field(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    mark = "ok" if found["outcome"] == "passed" else f"**{found['outcome']}**"
    note = f": {found['note']}" if "note" in found else ""
    return f"{mark} {found['count']} ({found['commit']}){note}"


def _short(test: str) -> str:
    name = test.rpartition("/")[2].replace(".py::", ": ")
    return name.removeprefix("test_").removeprefix("java_")
