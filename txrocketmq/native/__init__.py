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

from txrocketmq.native.sources import sources_crc

__all__ = ["description", "functions"]


def _choose() -> tuple[str, ModuleType | None]:
    if os.environ.get("TXROCKETMQ_PURE", "") not in ("", "0"):
        return "off by TXROCKETMQ_PURE", None
    try:
        found = import_module("txrocketmq.native._native")
        is_current = sources_crc(Path(__file__).parent) == found.SOURCES
    except Exception as error:
        # Whatever it is: nobody needs it in order to run.
        return f"not to be had ({error})", None
    if not is_current:
        return "built from other sources, install again", None
    return "in use", found


#: Whether they are in use, or why not, for benches and the log; and the functions.
description, functions = _choose()
