"""Do the files and names that the pages speak of exist?"""

from __future__ import annotations

import ast
import re

import pytest
from pages import DOCS, ROOT

PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted(DOCS.glob("*.md")))]
FILE = re.compile(r"`((?:txrocketmq|tests|bench|interop|scripts|twisted|docs|\.ci)/[\w./-]+)`")
ROW = re.compile(r"^\|[^|]*\| `(txrocketmq/[\w/]+\.py)` \| `([\w.]+)` \|", re.MULTILINE)


def names_in(path: str) -> set[str]:
    """Functions, classes, and methods and attributes as ``Class.name``."""
    names: set[str] = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            for inner in ast.walk(node):
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    names.add(f"{node.name}.{inner.name}")
                elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
                    names.add(f"{node.name}.{inner.attr}")
    return names


@pytest.mark.parametrize("page", PAGES)
def test_files_named_exist(page: str) -> None:
    named = FILE.findall((ROOT / page).read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_names_on_the_path_of_a_message_exist() -> None:
    rows = ROW.findall((DOCS / "path-of-a-message.md").read_text())
    assert len(rows) > 30
    assert [(path, name) for path, name in rows if name not in names_in(path)] == []
