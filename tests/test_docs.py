"""Are the pages under docs/ true to the tree: do the tests exist that the compatibility page cites?"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
STATES = {"served", "partly", "not yet", "not planned"}
ROW = re.compile(r"^\| ([A-Z]{2,3}-\d{2}) \| ([^|]+) \| ([^|]+) \| ([^|]*) \|$")
CITED = re.compile(r"`([^`]+)`")


def rows() -> list[tuple[str, str, str, list[str]]]:
    found = []
    for line in PAGE.read_text().splitlines():
        match = ROW.match(line)
        if match:
            number, feature, state, tests = (part.strip() for part in match.groups())
            found.append((number, feature, state, CITED.findall(tests)))
    return found


@functools.cache
def names_in(path: Path) -> frozenset[str]:
    names = set()
    body = list(ast.parse(path.read_text()).body)
    # Tests of full runs alone stand under an `if`.
    body += [inner for node in body if isinstance(node, ast.If) for inner in node.body]
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
            names.update(
                f"{node.name}::{member.name}"
                for member in node.body
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
            )
    return frozenset(names)


def test_every_feature_has_one_row() -> None:
    numbers = [number for number, _, _, _ in rows()]
    assert len(numbers) == len(set(numbers)) == 322


def test_states_are_of_the_four() -> None:
    assert {state for _, _, state, _ in rows()} <= STATES


def test_what_is_served_names_its_test() -> None:
    without = [number for number, _, state, tests in rows() if state == "served" and not tests]
    assert without == []


def test_cited_tests_exist() -> None:
    missing = []
    for number, _, _, tests in rows():
        for cited in tests:
            file, _, name = cited.partition("::")
            path = ROOT / file
            if not path.is_file() or (name and name not in names_in(path)):
                missing.append(f"{number}: {cited}")
    assert missing == []


def test_links_between_pages_lead_somewhere() -> None:
    dead = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            if not (page.parent / target).exists():
                dead.append(f"{page.name}: {target}")
    assert dead == []
