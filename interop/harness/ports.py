"""Which ports may a test's servers use? Triples ``listenPort - 2 .. listenPort + 1`` that nobody else holds.

Every broker takes its port, the one two below (VIP) and the one above (replication). Ports are taken below the kernel's range
for outgoing connections, and each is guarded by a lock file, so that test runs side by side do not meet.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

_LOW, _HIGH = 20_000, 32_000
_LOCKS = Path(tempfile.gettempdir()) / f"txrocketmq-ports-{os.getuid()}"


class PortBlock:
    """Four adjacent ports, ours until `release`; ``listen`` is the third of them."""

    def __init__(self, first: int, lock: IO[bytes]) -> None:
        self.listen = first + 2
        self._lock = lock

    def release(self) -> None:
        """Give the ports back."""
        self._lock.close()


def reserve() -> PortBlock:
    """Reserve a block of ports that can be bound now. OSError when none is left."""
    _LOCKS.mkdir(exist_ok=True)
    blocks = list(range(_LOW, _HIGH, 4))
    random.shuffle(blocks)
    for first in blocks:
        lock = open(_LOCKS / str(first), "wb")  # noqa: SIM115 - held for as long as the ports are
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        if all(_can_bind(port) for port in range(first, first + 4)):
            return PortBlock(first, lock)
        lock.close()
    raise OSError(f"no free block of four ports between {_LOW} and {_HIGH}")


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
        return True


def accepts_connections(port: int) -> bool:
    """Whether something listens on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
