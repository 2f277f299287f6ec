"""Are the compiled twins of the hot paths in use? `functions` is the extension, or None.

A few functions that run for each message have a twin in C (``txrocketmq/native/*.c``), which is built when txrocketmq is installed
where there is a C compiler (``hatch_build.py``). A twin gives the same bytes and values as the pure function, and None for whatever it
leaves to it: errors and rare cases are known in one place. The environment variable ``TXROCKETMQ_PURE=1`` turns all of them off; so
does an extension that was built from other sources than those that lie here.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from types import ModuleType
from zlib import crc32

__all__ = ["description", "functions"]


def sources_crc(directory: Path) -> int:
    """CRC-32 over the C sources of a directory: the build puts it into the extension."""
    value = 0
    for path in sorted([*directory.glob("*.c"), *directory.glob("*.h")]):
        value = crc32(path.read_bytes(), value)
    return value & 0x7FFFFFFF


def _choose() -> tuple[str, ModuleType | None]:
    if os.environ.get("TXROCKETMQ_PURE", "") not in ("", "0"):
        return "off by TXROCKETMQ_PURE", None
    try:
        found = import_module("txrocketmq.native._native")
    except ImportError as error:
        return f"not to be had ({error})", None
    if sources_crc(Path(__file__).parent) != found.SOURCES:
        return "built from other sources, install again", None
    return "in use", found


#: Whether they are in use, or why not, for benches and the log; and the functions.
description, functions = _choose()
