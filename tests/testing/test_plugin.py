"""Does pytest find the fixtures, and pay nothing for them where they are not used?"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]

TESTS = """
from txrocketmq.model.message import Message


def test_in_memory(rocketmq):
    rocketmq.send("Orders", "one", tags="A")
    rocketmq.assert_stored("Orders", body="one", tags="A")


def test_fresh_each_time(rocketmq):
    assert rocketmq.topics() == []


def test_on_ports(rocketmq_loopback):
    assert rocketmq_loopback.namesrv_addr.startswith("127.0.0.1:")
"""


def run(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def entry_point() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: str = project["entry-points"]["pytest11"]["txrocketmq"]
    return found


def test_the_entry_point_names_the_plugin() -> None:
    plugin = import_module(entry_point())
    assert {"rocketmq", "rocketmq_loopback"} <= set(vars(plugin))


def test_tests_get_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(TESTS)
    # By name, with the entry points of this environment left out: it may have been made before there was this one.
    environment = ["-p", entry_point(), "-p", "no:cacheprovider", "-q", "."]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    try:
        done = run("-m", "pytest", *environment, cwd=tmp_path)
    finally:
        del os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"]
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_whoever_does_not_use_it_imports_nothing() -> None:
    script = (
        f"import sys, {entry_point()}; "
        "print([name for name in ('twisted', 'msgspec', 'zope.interface') if name in sys.modules])"
    )
    assert run("-c", script).stdout == "[]\n"
