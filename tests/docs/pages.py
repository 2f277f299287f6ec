"""Reads the fenced blocks of the pages under ``docs/``."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[tuple[str, str]]:
    """All fenced blocks of a page that say what they hold, as kind and text, in order."""
    return _BLOCK.findall((DOCS / page).read_text())


def blocks_of(page: str, kind: str) -> list[str]:
    """The blocks of one kind."""
    return [text for found, text in blocks(page) if found == kind]


def dump_bytes(text: str) -> bytes:
    """The bytes of a hex dump; what stands two blanks or more behind them on a line is for the reader."""
    return bytes.fromhex("".join(line.partition("  ")[0] for line in text.splitlines()))
