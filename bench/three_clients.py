"""How much CPU does a message cost our client, the official Java one and the official Go one, on one official broker, in one run?

    python -m bench.three_clients [--messages N] [--profile DIRECTORY]

Each sends with 64 asynchronous sends of 1 KiB in flight, then each drains the same topic with a push consumer of a group of its own; all by
turns, the official Java client once more before, to warm up. CPU is that of the client's process alone, from the first tenth of the messages
on (Java: of all of them, after the warm-up). Needs Go; without it that client is left out, and the output says so.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from bench.beside_java import java_beside
from bench.pairs import cpu_seconds
from interop.harness.puppet import Puppet

ROOT = Path(__file__).resolve().parent.parent
GO = ROOT / "bench" / "go_client"
TOPIC = "ThreeClients"
IN_FLIGHT, SIZE, TURNS = 64, 1024, 3


def run(*command: str) -> str:
    """What a program prints."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(done.stdout + done.stderr)
    return done.stdout


def build_go(folder: str) -> str | None:
    """The Go client's program; None where there is no Go."""
    if shutil.which("go") is None:
        return None
    program = f"{folder}/go_client"
    subprocess.run(["go", "build", "-o", program, "."], cwd=GO, check=True)
    return program


class Bench:
    """One broker, three clients."""

    def __init__(self, namesrv: str, java: Puppet, go: str | None, count: int) -> None:
        self._namesrv, self._java, self._go, self._count = namesrv, java, go, count
        self._groups = 0

    def java(self, what: str) -> float:
        """CPU microseconds of the official client for a message."""
        before = cpu_seconds(self._java.pid)
        common: dict[str, Any] = {"topic": TOPIC, "count": self._count, "timeout_ms": 300_000}
        if what == "send":
            load = {"mode": "async", "in_flight": IN_FLIGHT, "size": SIZE}
            self._java.call("load.send", name="load", **common, **load)
        else:
            self._groups += 1
            group = f"java_{self._groups}"
            self._java.call("load.drain", group=group, namesrv=self._namesrv, **common)
        return (cpu_seconds(self._java.pid) - before) / self._count * 1e6

    def ours(self, what: str, profile: str | None = None) -> float:
        """The same of ours."""
        command = ["--namesrv", self._namesrv, "--topic", TOPIC, "--messages", str(self._count)]
        if profile is not None:
            command += ["--profile", profile]
        if what == "send":
            command += ["--in-flight", str(IN_FLIGHT), "--body", str(SIZE)]
            text = run(sys.executable, "bench/client_send.py", *command)
            found = re.search(r"([\d.]+) us CPU", text)
        else:
            text = run(sys.executable, "bench/client_consume.py", *command)
            found = re.search(r"([\d.]+) us of CPU", text)
        if found is None:
            raise click.ClickException(text)
        return float(found[1])

    def go(self, what: str) -> float:
        """The same of the Go client."""
        assert self._go is not None
        words = [str(self._count)] + ([str(IN_FLIGHT), str(SIZE)] if what == "send" else [])
        told = json.loads(run(self._go, what, self._namesrv, TOPIC, *words).splitlines()[-1])
        return float(told["cpu_us"])


@click.command()
@click.option("--messages", default=100_000, show_default=True)
@click.option("--profile", type=click.Path(file_okay=False), help="Where profiles of ours go.")
def main(messages: int, profile: str | None) -> None:
    """See the module."""
    with (
        tempfile.TemporaryDirectory() as folder,
        java_beside(TOPIC, "java_producer") as (cluster, java),
    ):
        go = build_go(folder)
        bench = Bench(cluster.namesrv, java, go, messages)
        clients = {"ours": bench.ours, "java": bench.java}
        if go is None:
            click.echo("there is no Go here; its client is left out")
        else:
            clients["go"] = bench.go
        for what in ("send", "consume"):
            bench.java(what)
            figures: dict[str, list[float]] = {name: [] for name in clients}
            for _ in range(TURNS):
                for name, measure in clients.items():
                    figures[name].append(measure(what))
            for name, found in figures.items():
                middle = statistics.median(found)
                all_of_them = ", ".join(f"{one:.1f}" for one in found)
                click.echo(
                    f"{what}, {name}: {middle:.1f} us of CPU a message ({all_of_them}), "
                    f"{1e6 / middle:,.0f} messages per CPU second"
                )
            if profile is not None:
                bench.ours(what, f"{profile}/{what}.prof")


if __name__ == "__main__":
    main()
