"""Which requests of official brokers are served here, and which tests show it? Prints ``docs/request-codes.md``.

``PYTHONPATH=.:tests:tests/broker python -m tests.request_codes > docs/request-codes.md``

Made from the table of official codes (``tests/data/protocol``), the broker's own operations table, its list of requests that it does not
serve, and the tests: one covers a code when it, or a helper of its module that it calls, names the code.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from golden import protocol_table
from golden_admin import PREPARE

from txrocketmq.broker.not_served import NOT_SERVED
from txrocketmq.broker.operations import OPERATIONS

TESTS = Path(__file__).parent
SHOWN = 2
#: A test whose module names the codes elsewhere.
RECORDED = "tests/broker/test_golden_admin.py::test_recorded_questions_of_operators_are_answered_as_recorded"
APART = ("AUTH_", "CONTROLLER_")
#: Of replication by epochs and of controllers; issues of their own.
HA = ("GET_BROKER_EPOCH_CACHE", "NOTIFY_BROKER_ROLE_CHANGED", "EXCHANGE_BROKER_HA_INFO")

HEAD = """# Requests of a broker

Every request code that an official broker of 5.4.0 or 4.9.7 handles, made from the tables by `python -m tests.request_codes`; a test keeps
this page as it would be made. Rows of replication by epochs (HA) and of access control (AUTH) are shown, and not counted.

"""


class Row(NamedTuple):
    """One request code."""

    value: int
    name: str
    processors: str
    is_served: bool
    reason: str
    tests: tuple[str, ...]

    @property
    def counts(self) -> bool:
        """Whether the row is one of those that have to be served."""
        return not self.name.startswith(APART) and "ACL" not in self.name and self.name not in HA


class _Module:
    """The functions of a test module, and the codes that each names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        tree = ast.parse(path.read_text(encoding="utf-8"))
        self._aliases: dict[str, set[str]] = {}
        self._functions: dict[str, ast.AST] = {}
        self.tests: list[str] = []
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                self._note_alias(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._functions[node.name] = node
                if node.name.startswith("test_"):
                    self.tests.append(node.name)
            elif isinstance(node, ast.ClassDef):
                self._functions[node.name] = node
                for member in node.body:
                    if isinstance(member, ast.FunctionDef) and member.name.startswith("test_"):
                        self._functions[f"{node.name}::{member.name}"] = member
                        self.tests.append(f"{node.name}::{member.name}")

    def _note_alias(self, node: ast.Assign | ast.AnnAssign) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = (
                node.value.elts
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                else [node.value] * len(names)
            )
            for name, value in zip(names, values, strict=False):
                if isinstance(name, ast.Name) and value is not None:
                    self._aliases.setdefault(name.id, set()).update(_named(value))

    def codes_of(self, test: str) -> set[str]:
        """The codes that a test, or what it calls in its module, names."""
        found: set[str] = set()
        seen: set[str] = set()
        waiting = [test]
        while waiting:
            name = waiting.pop()
            if name in seen or name not in self._functions:
                continue
            seen.add(name)
            node = self._functions[name]
            found |= _named(node)
            for part in ast.walk(node):
                if isinstance(part, ast.Name):
                    found |= self._aliases.get(part.id, set())
                    waiting.append(part.id)
        return found


def _named(node: ast.AST) -> set[str]:
    return {
        part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute)
        and isinstance(part.value, ast.Name)
        and part.value.id in ("RequestCode", "R")
    }


def covering() -> dict[str, list[str]]:
    """The tests of the broker that name each code."""
    found: dict[str, list[str]] = {}
    for folder in ("broker", "interop", "service", "ha", "client"):
        for path in sorted((TESTS / folder).glob("test_*.py")):
            module = _Module(path)
            for test in module.tests:
                for code in module.codes_of(test):
                    place = f"{path.relative_to(TESTS.parent).as_posix()}::{test}"
                    found.setdefault(code, []).append(place)
    for code in PREPARE:
        found.setdefault(code.name, []).append(RECORDED)
    return found


def rows() -> Iterator[Row]:
    """A row for each request code that official brokers handle."""
    served = {operation.code for operation in OPERATIONS}
    tests = covering()
    table: list[dict[str, Any]] = protocol_table("request_codes")
    for code in sorted(table, key=lambda row: int(row["value"])):
        processors = sorted(
            {
                str(handler.get("processor"))
                for handler in code.get("handled_by", [])
                if handler.get("module") == "broker"
            }
        )
        if not processors:
            continue
        value, name = int(code["value"]), str(code["name"])
        yield Row(
            value,
            name,
            ", ".join(processors),
            value in served,
            NOT_SERVED.get(value, ""),
            tuple(tests.get(name, ())[:SHOWN]),
        )


def page() -> str:
    """The whole page."""
    found = list(rows())
    counted = [row for row in found if row.counts]
    served = [row for row in counted if row.is_served]
    share = 100 * len(served) / len(counted)
    lines = [
        HEAD,
        f"Served: {len(served)} of {len(counted)}, {share:.1f} %.\n\n",
        "| Code | Request | Official processor | State | Shown by |\n",
        "| --- | --- | --- | --- | --- |\n",
    ]
    for row in found:
        state = "served" if row.is_served else f"answered code 3: {row.reason}"
        shown = ", ".join(f"`{test}`" for test in row.tests)
        lines.append(f"| {row.value} | {row.name} | {row.processors} | {state} | {shown} |\n")
    return "".join(lines)


if __name__ == "__main__":
    print(page(), end="")
