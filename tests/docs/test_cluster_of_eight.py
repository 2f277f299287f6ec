"""Does the cluster come up from the page's one command, and does it withstand what the page says?"""

from __future__ import annotations

import os
import random
import re
import shlex
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import launch
import pytest
from launch import Process, wait_until
from pages import ROOT, lines_of, said_by

from txrocketmq.config.load import Role, load_settings

PAGE = "cluster.md"
PORTS = [9876, 9877, *range(9886, 9937, 10)]
PROGRAMS = {
    ".venv/bin/python": [sys.executable],
    ".venv/bin/txrocketmq": [sys.executable, "-m", "txrocketmq.cli.main"],
}


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def free_base() -> int:
    """A first port of which all that follow are free."""
    while True:
        base = random.randrange(21_000, 30_000)
        if all(is_free(base - 9876 + port + more) for port in PORTS for more in (-2, 0, 1)):
            return base


class Terminal:
    """What the reader types, on other ports."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.base = free_base()
        self.shift = self.base - 9876
        (directory / "scripts").symlink_to(ROOT / "scripts")
        (self.export,) = [line for line in lines_of(PAGE) if line.startswith("export")]
        (self.namesrv,) = shlex.split(self.export)[1:]
        self.namesrv = re.sub(
            r"\d{4,5}", lambda found: str(int(found.group()) + self.shift), self.namesrv
        ).removeprefix("NAMESRV_ADDR=")

    def words(self, line: str) -> list[str]:
        program, *arguments = shlex.split(line)
        return [*PROGRAMS[program], *arguments]

    def run(self, line: str) -> str:
        return said_by(self.words(line), self.directory, self.namesrv)

    def pid(self, member: str) -> int:
        return int((self.directory / "cluster" / f"{member}.pid").read_text())


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    # Eight processes start at once.
    monkeypatch.setattr(launch, "TIMEOUT_S", 240.0)
    return Terminal(tmp_path)


@pytest.fixture
def cluster(terminal: Terminal) -> Iterator[Process]:
    first, *_ = [line for line in lines_of(PAGE) if "scripts/cluster.py" in line]
    started = Process(
        [*terminal.words(first), "--base-port", str(terminal.base)], terminal.directory
    )
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.send_signal(signal.SIGTERM)
            started.process.wait(120)
        started.kill()


def test_the_cluster_withstands_a_master_and_ends_in_order(
    cluster: Process, terminal: Terminal
) -> None:
    names = [f"broker-{group}-{number}" for group in "ab" for number in range(3)]
    cluster.wait_for(r"the cluster is up: 6 brokers")
    pids = {name: terminal.pid(name) for name in (*names, "namesrv-1", "namesrv-2")}
    for name in names:
        conf = terminal.directory / "cluster" / f"{name}.conf"
        assert load_settings(Role.BROKER, config_file=str(conf)).unknown == {}

    send, tail, again, news = [
        line for line in lines_of(PAGE) if line.startswith(".venv/bin/txrocketmq")
    ]
    assert tail == again
    where = terminal.run(send)
    assert where.startswith("SEND_OK topic=Greetings")
    group = "broker-a" if "broker-a" in where else "broker-b"
    assert group in where
    shown = terminal.run(tail)
    assert shown.rstrip().endswith("hello, cluster")

    def slave_has_it() -> bool:
        slave = terminal.directory / "cluster" / f"{group}-1"
        log, topics = slave / "commitlog" / f"{0:020d}", slave / "config" / "topics.json"
        return (
            log.exists()
            and b"hello, cluster" in log.read_bytes()[:10_000]
            and topics.exists()
            and "Greetings" in topics.read_text()
        )

    wait_until(slave_has_it, "the slave has message and topic")
    (kill,) = [line for line in lines_of(PAGE) if line.startswith("kill")]
    assert kill == 'kill -9 "$(cat cluster/broker-a-0.pid)"'
    os.kill(terminal.pid(f"{group}-0"), signal.SIGKILL)
    cluster.wait_for(f"{group}-0 ended")
    shown = terminal.run(again)
    assert "hello, cluster" in shown, "what the dead master took is read from its slave"
    assert f"{group}/" in shown
    where = terminal.run(news)
    assert where.startswith("SEND_OK topic=News")
    assert group not in where, "a new topic is made at the other master"

    cluster.process.send_signal(signal.SIGINT)
    cluster.wait_for("all have ended")
    assert cluster.process.wait(60) == 0
    for name, pid in pids.items():
        assert not Path(f"/proc/{pid}").exists(), f"{name} still runs"
        assert not (terminal.directory / "cluster" / f"{name}.pid").exists()
    for name in names:
        left = terminal.directory / "cluster" / name / "abort"
        assert left.exists() == (name == f"{group}-0"), f"{name} ended in order"


def test_a_port_that_is_taken_ends_it_and_a_second_one_does_not_begin(terminal: Terminal) -> None:
    (line,) = [line for line in lines_of(PAGE) if line.endswith("scripts/cluster.py")]
    small = ["--name-servers=1", "--groups=1", "--slaves=0", "--base-port", str(terminal.base)]
    words = [*terminal.words(line), *small]
    with socket.create_server(("0.0.0.0", terminal.base)):
        done = launch.run(words, terminal.directory)
    assert done.returncode == 1, done.stdout + done.stderr
    reason = f"cannot listen on 0.0.0.0:{terminal.base}: address already in use"
    assert re.search(f"namesrv-1 ended: exit code 1: .*{re.escape(reason)}", done.stdout)
    assert done.stdout.endswith("all have ended\n")
    assert "is up" not in done.stdout
    (terminal.directory / "cluster" / "broker-a-0.pid").write_text(f"{os.getpid()}\n")
    done = launch.run(words, terminal.directory)
    assert done.returncode == 1
    assert f"already: broker-a-0 is process {os.getpid()} " in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--set", "fileReservedTime"], "argument --set: 'fileReservedTime' is not KEY=VALUE"),
        (["--java", "."], "argument --java: there are no jars in "),
        (["--groups", "27"], "argument --groups: '27' is no whole number from 1 to 26"),
        (["--base-port", "65500"], "the last broker would take port 65561, the highest is 65535"),
        (["-d", "scripts/cluster.py"], "cannot use "),
        (["--official", "broker-c-0"], "there is no broker-c-0 in this cluster"),
    ],
)
def test_a_slip_is_one_line(terminal: Terminal, arguments: list[str], says: str) -> None:
    (line,) = [line for line in lines_of(PAGE) if line.endswith("scripts/cluster.py")]
    done = launch.run([*terminal.words(line), *arguments], terminal.directory)
    assert done.returncode != 0
    assert done.stdout == ""
    assert says in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


if os.environ.get("INTEROP_TIER") == "full":

    @pytest.mark.java
    def test_official_members_are_part_of_it(terminal: Terminal) -> None:
        (terminal.directory / "interop").symlink_to(ROOT / "interop")
        (line,) = [line for line in lines_of(PAGE) if "--official" in line]
        words = [*terminal.words(line), "--base-port", str(terminal.base)]
        cluster = Process(words, terminal.directory)
        try:
            cluster.wait_for(r"the cluster is up: 6 brokers")
            send, tail, *_ = [
                line for line in lines_of(PAGE) if line.startswith(".venv/bin/txrocketmq")
            ]
            assert terminal.run(send).startswith("SEND_OK topic=Greetings")
            assert terminal.run(tail).rstrip().endswith("hello, cluster")
            cluster.process.send_signal(signal.SIGINT)
            cluster.wait_for("all have ended")
            assert cluster.process.wait(60) == 0
        finally:
            if cluster.process.poll() is None:
                cluster.process.send_signal(signal.SIGTERM)
                cluster.process.wait(120)
            cluster.kill()
