"""Fixtures of the tests with real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from launch import READY, AllInOne, Process, free_ports, twistd


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts twistd in the foreground and waits until it serves."""
    started: list[Process] = []

    def start_process(*arguments: str, folder: str = "run", **extra: str) -> Process:
        directory = tmp_path / folder
        process = Process(twistd(directory, *arguments), directory, **extra)
        started.append(process)
        process.wait_for(READY)
        return process

    yield start_process
    for process in started:
        process.kill()


@pytest.fixture(scope="module")
def all_in_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AllInOne]:
    """One all-in-one for the tests of a module, in an empty directory, on loopback."""
    directory = tmp_path_factory.mktemp("all-in-one")
    port, namesrv_port = free_ports(), free_ports()
    process = Process(
        twistd(
            directory,
            "rocketmq",
            f"--namesrv-port={namesrv_port}",
            f"--set=listenPort={port}",
            "--set=bindAddress=127.0.0.1",
            "--set=brokerName=broker-a",
        ),
        directory,
    )
    process.wait_for("registered at name server")
    yield AllInOne(process, f"127.0.0.1:{namesrv_port}", port)
    assert process.end() == 0
