"""Real ``twistd`` processes on loopback, for tests of what an operator sees."""

from __future__ import annotations

import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60.0
READY = r"listens on (\S+)"
_PORT_RANGE = (21_000, 30_000)


def environment(**extra: str) -> dict[str, str]:
    """A clean environment in which the plugin is found."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **extra}


def free_ports() -> int:
    """A port that is free together with the one two below and the one above."""
    while True:
        base = random.randrange(*_PORT_RANGE)
        taken = []
        try:
            for port in (base, base - 2, base + 1):
                probe = socket.socket()
                taken.append(probe)
                probe.bind(("0.0.0.0", port))
        except OSError:
            continue
        finally:
            for probe in taken:
                probe.close()
        return base


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Look again and again until something is true."""
    deadline = time.monotonic() + TIMEOUT_S
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {TIMEOUT_S} s"
        pause.wait(0.02)


def twistd(directory: Path, *arguments: str, daemon: bool = False) -> list[str]:
    """A command line of twistd with its files in a directory."""
    own = [f"--pidfile={directory / 'twistd.pid'}"]
    own += [f"--logfile={directory / 'twistd.log'}"] if daemon else ["-n"]
    return plain_twistd(*own, *arguments)


def plain_twistd(*arguments: str) -> list[str]:
    """A command line of twistd as it is typed."""
    return [sys.executable, "-c", "from twisted.scripts.twistd import run; run()", *arguments]


def run(command: list[str], directory: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself."""
    return subprocess.run(
        command,
        cwd=directory,
        env=environment(**extra),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def command_line(*arguments: str) -> list[str]:
    """A command line of ``txrocketmq``."""
    return [sys.executable, "-m", "txrocketmq.cli.main", *arguments]


def _heed_interrupts() -> None:
    """Shells that run the tests in the background let their children ignore SIGINT, and it is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Process:
    """A process whose output is read until it says something; killed at the end of the test whatever happens."""

    def __init__(self, command: list[str], directory: Path, **extra: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.output = ""
        self.process = subprocess.Popen(
            command,
            cwd=directory,
            env=environment(**extra),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=_heed_interrupts,
        )

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read until the output matches."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + TIMEOUT_S
        while (match := re.search(pattern, self.output)) is None:
            left = deadline - time.monotonic()
            assert left > 0, f"{pattern!r} did not come: {self.output}"
            # Not by ``select``: a run of many tests may hold more than 1,024 descriptors.
            poll = select.poll()
            poll.register(self.process.stdout, select.POLLIN)
            if poll.poll(left * 1000):
                data = os.read(self.process.stdout.fileno(), 65536)
                assert data, f"ended without {pattern!r}: {self.output}"
                self.output += data.decode()
        return match

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """The exit code; the rest of the output is in `output`."""
        rest, _ = self.process.communicate(timeout=TIMEOUT_S)
        self.output += rest.decode()
        return self.process.returncode

    def kill(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class AllInOne:
    """A running all-in-one.

    :ivar namesrv: its name server's address.
    :ivar port: its broker's main port.
    """

    def __init__(self, process: Process, namesrv: str, port: int) -> None:
        self.process = process
        self.namesrv = namesrv
        self.port = port
