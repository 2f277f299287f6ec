"""Servers whose store has a file system of its own."""

from __future__ import annotations

import os
from pathlib import Path

from real_server import RealServer


def on_tmpfs(store: Path, options: str) -> list[str]:
    """Runs a server with a file system in memory at its store."""
    store.mkdir(parents=True)
    mount = f'mount -t tmpfs -o {options} none "{store}" && exec "$@"'
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]


class SmallDisk:
    """The file system of a server's store, seen from outside of it."""

    def __init__(self, server: RealServer) -> None:
        self.path = Path(f"/proc/{server.pid}/root{server.home}/store")

    def used(self) -> float:
        """Its used share."""
        status = os.statvfs(self.path)
        return 1 - status.f_bavail / status.f_blocks

    def fill(self, name: str, size_bytes: int) -> None:
        """Take room away."""
        with (self.path / name).open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size_bytes)

    def free(self, name: str) -> None:
        """Give it back."""
        (self.path / name).unlink()

    def log_files(self) -> list[str]:
        """Names in the log's directory."""
        return sorted(os.listdir(self.path / "commitlog"))
