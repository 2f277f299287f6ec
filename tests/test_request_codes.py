"""Is the page of request codes as it would be made, and is enough served?"""

from __future__ import annotations

import re
from pathlib import Path

from request_codes import covering, rows

PAGE = Path(__file__).resolve().parent.parent / "docs" / "request-codes.md"
ROW = re.compile(r"^\| (\d+) \| (\w+) \| ([^|]+) \| ([^|]+) \| ([^|]*) \|$")
LEAST_PERCENT = 95


def on_the_page() -> dict[str, tuple[str, str, str, list[str]]]:
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        match = ROW.match(line)
        if match:
            value, name, processors, state, tests = match.groups()
            found[name] = (value, processors, state, re.findall(r"`([^`]+)`", tests))
    return found


def test_the_page_says_what_the_tables_say() -> None:
    page = on_the_page()
    made = {
        row.name: (
            str(row.value),
            row.processors,
            "served" if row.is_served else f"answered code 3: {row.reason}",
        )
        for row in rows()
    }
    assert {name: row[:3] for name, row in page.items()} == made, (
        "run: PYTHONPATH=.:tests:tests/broker python -m tests.request_codes > docs/request-codes.md"
    )


def test_the_tests_on_the_page_cover_the_request() -> None:
    tests = covering()
    wrong = [
        (name, cited)
        for name, (_, _, _, shown) in on_the_page().items()
        for cited in shown
        if cited not in tests.get(name, ())
    ]
    assert wrong == []


def test_what_is_served_is_shown_and_what_is_not_has_a_reason() -> None:
    counted = {row.name for row in rows() if row.counts}
    bare = [
        name
        for name, (_, _, state, shown) in on_the_page().items()
        if name in counted and ((state == "served" and not shown) or state.endswith(": "))
    ]
    assert bare == []


def test_nearly_all_is_served() -> None:
    counted = [row for row in rows() if row.counts]
    served = [row for row in counted if row.is_served]
    assert 100 * len(served) >= LEAST_PERCENT * len(counted)
