"""Does the cluster of the page come up when somebody does what the page says, with the official software beside ours?"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch import Process, free_ports
from pages import DOCS, ROOT, lines_of, said_by

from txrocketmq.config.load import Role, load_settings

pytestmark = pytest.mark.java

PAGE = "cluster-by-hand.md"
SAVED = re.compile(r"Save this as `([\w.-]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TWISTD = "../.venv/bin/twistd"
PORTS = ("9876", "9877", "10911", "11911")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's directory beside what the page's set-up makes, with the page's files on free ports."""
    checkout = tmp_path_factory.mktemp("checkout")
    (checkout / ".venv").symlink_to(Path(sys.executable).parent.parent)
    (checkout / "interop").symlink_to(ROOT / "interop")
    (checkout / "cluster").mkdir()
    return checkout / "cluster"


@pytest.fixture(scope="module")
def ports() -> dict[str, str]:
    """The page's ports and those that stand for them."""
    found: dict[str, str] = {}
    for port in PORTS:
        chosen = str(free_ports())
        while chosen in found.values():
            chosen = str(free_ports())
        found[port] = chosen
    return found


def moved(text: str, ports: dict[str, str]) -> str:
    return re.sub(r"\b(?:" + "|".join(ports) + r")\b", lambda found: ports[found.group()], text)


def commands(*starts: str) -> list[str]:
    return [line for line in lines_of(PAGE) if line.startswith(starts)]


class Terminals:
    """What the reader does, each server in a terminal of its own."""

    def __init__(self, directory: Path, ports: dict[str, str]) -> None:
        self.directory = directory
        self.ports = ports
        self.servers: list[Process] = []
        for name, text in SAVED.findall((DOCS / PAGE).read_text()):
            (directory / name).write_text(moved(text, ports))
        ((self.namesrv,),) = (shlex.split(line)[1:] for line in commands("export"))
        self.namesrv = moved(self.namesrv, ports).removeprefix("NAMESRV_ADDR=")

    def start(self, line: str, says: str) -> Process:
        server = Process(self._words(line), self.directory)
        self.servers.append(server)
        server.wait_for(says)
        return server

    def run(self, line: str) -> str:
        return said_by(self._words(line), self.directory, self.namesrv)

    def _words(self, line: str) -> list[str]:
        program, *arguments = shlex.split(moved(line, self.ports))
        own = {
            TWISTD: "from twisted.scripts.twistd import run; run()",
            "../.venv/bin/txrocketmq": "from txrocketmq.cli.main import main; main()",
        }
        if program in own:
            return [sys.executable, "-c", own[program], *arguments]
        return [program, *arguments]


@pytest.fixture(scope="module")
def terminals(directory: Path, ports: dict[str, str]) -> Iterator[Terminals]:
    page = Terminals(directory, ports)
    try:
        first, second, ours = commands(TWISTD)
        name_servers = [page.start(line, "name server listens on") for line in (first, second)]
        page.start(ours, r"registered at name server .*\n(?s:.*)registered at name server")
        (official,) = commands("java @rocketmq.args org.apache.rocketmq.broker")
        page.start(official, r"The broker\[broker-b, .* boot success")
        for server in name_servers:
            server.wait_for("broker broker-b id 0 at .* of Greeters registered")
        yield page
    finally:
        for server in page.servers:
            server.kill()


def test_the_cluster_and_both_clients_work(terminals: Terminals) -> None:
    listing, greeting = commands(
        "java @rocketmq.args org.apache.rocketmq.tools", "java @rocketmq.args Greet"
    )
    rows = [line.split() for line in terminals.run(listing).splitlines()]
    assert [(row[0], row[1], row[4]) for row in rows if row[0] == "Greeters"] == [
        ("Greeters", "broker-a", "V5_4_0"),
        ("Greeters", "broker-b", "V5_4_0"),
    ]

    said = terminals.run(greeting).splitlines()
    assert said[-1] == "all received"
    assert {re.findall(r"broker-\w", line)[0] for line in said[:10]} == {"broker-a", "broker-b"}
    assert all(line.startswith("SEND_OK ") for line in said[:10])
    assert sorted(line.split()[2] for line in said[10:20]) == [str(i) for i in range(10)]

    send, tail = commands("../.venv/bin/txrocketmq")
    assert terminals.run(send).startswith("SEND_OK topic=Greetings")
    shown = [line.split(" ", 3)[3] for line in terminals.run(tail).splitlines()]
    assert sorted(shown) == ["from the shell", *(f"hello {i}" for i in range(10))]


@pytest.mark.parametrize("name", ["broker-a.conf", "broker-b.conf"])
def test_our_broker_knows_every_key_of_the_files(name: str, tmp_path: Path) -> None:
    (text,) = (text for saved, text in SAVED.findall((DOCS / PAGE).read_text()) if saved == name)
    (tmp_path / name).write_text(text)
    assert load_settings(Role.BROKER, config_file=str(tmp_path / name)).warnings == []
