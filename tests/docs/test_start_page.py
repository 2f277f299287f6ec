"""Does what the start page shows work?"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT, blocks_of
from real_server import RealServer

from txrocketmq.config.load import Role, load_settings
from txrocketmq.config.schema import BrokerConfig

PAGE = "start.md"
BIN = Path(sys.executable).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def run(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=directory,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def shell_lines(program: str) -> list[str]:
    return [
        line
        for block in blocks_of(PAGE, "sh")
        for line in block.splitlines()
        if line.startswith(program)
    ]


def test_the_client_program_sends_and_reads_back(tmp_path: Path) -> None:
    (program,) = (text for text in blocks_of(PAGE, "python") if "RemotingClient(" in text)
    (tmp_path / "greet.py").write_text(program)
    with RealServer("rocketmq", tmp_path / "home") as server:
        done = run([sys.executable, "greet.py", server.namesrv], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    stored, found = done.stdout.splitlines()
    assert stored.startswith("stored in queue 0 at 0 as 7F000001")
    assert found == "Greetings polite: hello"


def test_the_program_with_a_server_of_its_own_starts_and_ends(tmp_path: Path) -> None:
    (program,) = (text for text in blocks_of(PAGE, "python") if "build_namesrv(" in text)
    # The files of a name server lie in the home directory.
    script = f"import os\nos.environ['HOME'] = {str(tmp_path)!r}\n{program}"
    done = run([sys.executable, "-c", script], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_official_file_is_read_as_it_is(tmp_path: Path) -> None:
    (text,) = blocks_of(PAGE, "properties")
    path = tmp_path / "broker.conf"
    path.write_text(text)
    settings = load_settings(Role.BROKER, config_file=str(path))
    assert settings.unknown == {}
    assert settings.section(BrokerConfig).broker_name == "broker-a"


@pytest.mark.parametrize("line", shell_lines(".venv/bin/twistd"))
def test_the_command_lines_are_understood(line: str, tmp_path: Path) -> None:
    (text,) = blocks_of(PAGE, "properties")
    (tmp_path / "broker.conf").write_text(text)
    _, *arguments = shlex.split(line)
    done = run([str(BIN / "twistd"), *arguments, "-m"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "namesrvAddr=" in done.stdout or "rocketmq-namesrv" in line


def test_the_shell_options_named_exist(tmp_path: Path) -> None:
    words = {word for line in shell_lines(".venv/bin/txrocketmq") for word in line.split()[1:2]}
    assert words == {"tail", "send"}
    for word in words:
        shown = run([sys.executable, "-m", "txrocketmq.cli.main", word, "--help"], tmp_path)
        assert shown.returncode == 0
        assert "--namesrv" in shown.stdout
