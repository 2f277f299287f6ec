"""Runs `real_producer` in a child process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("real_producer.py")
ROOT = PROGRAM.parents[2]
TIMEOUT_S = 300.0


def produce(
    namesrv: str,
    topic: str,
    seed: str,
    count: int,
    mode: str,
    size: int = 128,
    *,
    more: dict[str, Any] | None = None,
    **environment: str,
) -> dict[str, Any]:
    """Send messages from a process of its own; what it says of them. AssertionError with its output when it fails."""
    command = [sys.executable, str(PROGRAM), namesrv, topic, seed, str(count), mode, str(size)]
    command.append(json.dumps(more or {}))
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
