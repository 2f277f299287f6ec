"""Reads the fenced blocks of the pages under ``docs/``, and runs a command of theirs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from launch import environment

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[tuple[str, str]]:
    """All fenced blocks of a page that say what they hold, as kind and text, in order."""
    return _BLOCK.findall((DOCS / page).read_text())


def blocks_of(page: str, kind: str) -> list[str]:
    """The blocks of one kind."""
    return [text for found, text in blocks(page) if found == kind]


def lines_of(page: str) -> list[str]:
    """What the reader types, line by line."""
    return [line for block in blocks_of(page, "sh") for line in block.splitlines()]


def said_by(words: list[str], directory: Path, namesrv: str) -> str:
    """What a command printed that ended well; it finds the name servers as the reader's shell says."""
    done = subprocess.run(
        words,
        cwd=directory,
        env=environment(NAMESRV_ADDR=namesrv),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def dump_bytes(text: str) -> bytes:
    """The bytes of a hex dump; what stands two blanks or more behind them on a line is for the reader."""
    return bytes.fromhex("".join(line.partition("  ")[0] for line in text.splitlines()))
