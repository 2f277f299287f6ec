"""Waits for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(
    condition: Callable[[], object], what: str, timeout_s: float = 60.0, pause_s: float = 0.05
) -> None:
    """AssertionError when a condition, which is looked at once a pause, does not come true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not in {timeout_s:.0f} s"
        time.sleep(pause_s)
