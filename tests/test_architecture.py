"""Does the tree keep its own rules? What import-linter cannot see is checked on the syntax trees."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "txrocketmq"
MODULES = sorted(PACKAGE.rglob("*.py"))

MAX_MODULE_LINES = 600
MAX_FUNCTION_LINES = 70

#: Rooms without Twisted, and rooms that may know Deferreds and interfaces but never a reactor.
NO_TWISTED = ("model", "codec", "config")
NO_REACTOR = ("model", "codec", "config", "store", "remoting", "ha", "namesrv", "broker", "client")
CONSTRUCT_HOMES = {"codec/layouts.py", "codec/lower.py", "codec/explain.py"}


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


@pytest.fixture(scope="module", params=MODULES, ids=relative)
def module(request: pytest.FixtureRequest) -> tuple[str, str, ast.Module]:
    path: Path = request.param
    text = path.read_text()
    return relative(path), text, ast.parse(text)


def test_arrows_point_one_way(module: tuple[str, str, ast.Module]) -> None:
    name, _, tree = module
    room = name.split("/")[0]
    for imported in imports(tree):
        if room in NO_TWISTED:
            assert not imported.startswith("twisted"), f"{name} imports {imported}"
        if room in NO_REACTOR:
            assert imported != "twisted.internet.reactor", f"{name} imports the reactor"
        if imported.split(".")[0] == "construct":
            assert name in CONSTRUCT_HOMES, f"{name} imports construct"


def test_modules_and_functions_fit_a_reader(module: tuple[str, str, ast.Module]) -> None:
    name, text, tree = module
    assert ast.get_docstring(tree), f"{name} has no docstring"
    assert len(text.splitlines()) <= MAX_MODULE_LINES, f"{name} is too long"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{name}:{node.name} has {length} lines"


def test_public_classes_and_functions_say_what_they_are(
    module: tuple[str, str, ast.Module],
) -> None:
    name, _, tree = module
    for node in tree.body:
        if isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        ) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{name}: {node.name} has no docstring"


def test_no_room_is_called_utils_or_common() -> None:
    names = {path.stem for path in MODULES} | {path.parent.name for path in MODULES}
    assert not names & {"utils", "util", "common", "helpers", "misc"}


def test_plugin_folders_are_no_packages_and_import_twisted_alone() -> None:
    plugins = ROOT / "twisted"
    assert not list(plugins.rglob("__init__.py"))
    for path in plugins.rglob("*.py"):
        roots = {imported.split(".")[0] for imported in imports(ast.parse(path.read_text()))}
        assert roots <= {"twisted", "__future__"}


def test_tree_names_no_machine_path() -> None:
    """Tracked text must not name a folder of the machine it was written on."""
    found = subprocess.run(
        ["git", "grep", "-nIF", "-e", f"{ROOT}/", "--", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout == ""
