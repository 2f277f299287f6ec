"""The command ``interop/run``: which cells are there, which have passed, and run those that have not at full counts."""

from __future__ import annotations

import os
import subprocess
import sys

import click

from . import results
from .columns import ALL_COLUMNS, FULL_COUNT
from .jvm import ROOT

TESTS = "tests/interop"


@click.command()
@click.option("--full", is_flag=True, help="Run the cells that have no current result.")
@click.option("--again", is_flag=True, help="Run them whether they have one or not.")
@click.option("--count", default=FULL_COUNT, show_default=True, help="Messages a cell.")
@click.argument("cells", nargs=-1)
def main(full: bool, again: bool, count: int, cells: tuple[str, ...]) -> None:
    """Cells are tests against the official Java software, each in every column.

    CELL is any part of a cell's name; without one all are meant. Without --full the state of the cells is listed. A run that
    was broken off goes on where it stood: what has passed at this state of the sources is not run again.
    """
    known = collect()
    chosen = [cell for cell in known if not cells or any(part in cell for part in cells)]
    records = results.load()
    if not full:
        for cell in chosen:
            click.echo(f"{describe(cell, records, count):28} {cell}")
        return
    due = [
        cell
        for cell in chosen
        if again or not results.is_current(records.get(cell), servers_of(cell), count)
    ]
    click.echo(f"{len(chosen)} cells, {len(due)} to run with {count} messages each")
    failed = run(due, count) if due else 0
    results.write_table(known)
    sys.exit(1 if failed else 0)


def servers_of(cell: str) -> str:
    """Whose servers a cell needs; cells outside the columns need ours, too."""
    column = results.split_cell(cell)[1]
    return column.partition("/")[0] or "ours"


def describe(cell: str, records: dict[str, dict[str, object]], count: int) -> str:
    """One cell's state in a few words."""
    record = records.get(cell)
    if record is None:
        return "never run"
    if results.is_current(record, servers_of(cell), count):
        return f"passed {record['count']}"
    return f"{record['outcome']} {record['count']} at {record['commit']}"


def environment(count: int) -> dict[str, str]:
    """What tests see of a full run: all columns, full counts, results recorded."""
    return {
        **os.environ,
        "INTEROP_TIER": "full",
        "INTEROP_COLUMNS": ",".join(map(str, ALL_COLUMNS)),
        "INTEROP_COUNT": str(count),
        "INTEROP_CONTROL_COUNT": str(count),
        "INTEROP_RECORD": "1",
    }


def collect() -> list[str]:
    """All cells, in the order in which they are run."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "java", TESTS]
    listed = subprocess.run(
        command, cwd=ROOT, env=environment(FULL_COUNT), capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        raise click.ClickException(f"cells cannot be listed:\n{listed.stdout}{listed.stderr}")
    return [line for line in listed.stdout.splitlines() if "::" in line]


def run(cells: list[str], count: int) -> int:
    """Run cells in one go, so that they share processes; pytest's exit code. Results are recorded one by one."""
    command = [sys.executable, "-m", "pytest", "-v", "--timeout=1800", *cells]
    return subprocess.run(command, cwd=ROOT, env=environment(count), check=False).returncode


if __name__ == "__main__":
    main()
