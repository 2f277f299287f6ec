"""What several scenarios need."""

from __future__ import annotations

import subprocess
from pathlib import Path

from launch import command_line, run


def txrocketmq(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    return run(command_line(*arguments), directory)
