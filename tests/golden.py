"""Reads what the official software wrote (``tests/data/golden``, see the README there)."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "data" / "golden"
LINES = ("5.4.0", "4.9.7")


@cache
def _all_units() -> dict[str, Any]:
    units: dict[str, Any] = json.loads(gzip.decompress((GOLDEN / "units.json.gz").read_bytes()))
    return units


def units(line: str) -> dict[str, Any]:
    """All sections of unit vectors that a release line has, by name."""
    everything = _all_units()
    if line == "5.4.0":
        return dict(everything[line])
    shared = {name: everything["5.4.0"][name] for name in everything["sameInBoth"]}
    return {**shared, **{k: v for k, v in everything[line].items() if v is not None}}


@cache
def _all_frames() -> tuple[dict[str, Any], ...]:
    text = lzma.decompress((GOLDEN / "wire.jsonl.xz").read_bytes()).decode()
    return tuple(json.loads(line) for line in text.splitlines())


def wire_frames() -> Iterator[dict[str, Any]]:
    """All recorded frames in the order of the files; do not change them."""
    yield from _all_frames()


def frame_body(frame: dict[str, Any]) -> bytes:
    """The body of a recorded remoting frame."""
    size = frame["decoded"]["body_len"]
    data = bytes.fromhex(frame["frame_hex"])
    return data[len(data) - size :]


@cache
def protocol_table(name: str) -> Any:
    """One of the tables of facts in ``tests/data/protocol``, by file name without endings; do not change it."""
    path = GOLDEN.parent / "protocol" / f"{name}.json.gz"
    return json.loads(gzip.decompress(path.read_bytes()))
