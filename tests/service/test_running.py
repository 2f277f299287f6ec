"""What an operator sees of running servers: the start line, configuration, signals, addresses, daemons."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from launch import READY, Process, free_ports, plain_twistd, run, twistd, wait_until

import txrocketmq

NAMESRV, BROKER, BOTH = "rocketmq-namesrv", "rocketmq-broker", "rocketmq"
Start = Callable[..., Process]


def can_connect(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return False
    return True


def test_a_name_server_says_where_it_listens_and_ends_in_order(start: Start) -> None:
    server = start(NAMESRV, "--set=listenPort=0", "--set=bindAddress=127.0.0.1")
    port = int(server.wait_for(r"name server listens on 127\.0\.0\.1:(\d+)\n").group(1))
    assert can_connect("127.0.0.1", port)
    assert server.end() == 0
    assert len(re.findall("listens on", server.output)) == 1
    assert "Traceback" not in server.output
    assert not (server.directory / "twistd.pid").exists()


@pytest.mark.parametrize(("option", "kept"), [((), False), (("--pidfile=twistd.pid",), True)])
def test_two_servers_in_the_terminals_of_one_directory(
    tmp_path: Path, option: tuple[str, ...], kept: bool
) -> None:
    arguments = ("rocketmq-namesrv", "--set=listenPort=0", "--set=bindAddress=127.0.0.1")
    first = Process(plain_twistd("-n", *option, *arguments), tmp_path)
    second = None
    try:
        first.wait_for(READY)
        assert (tmp_path / "twistd.pid").exists() == kept
        second = Process(plain_twistd("-n", *arguments), tmp_path)
        second.wait_for(READY)
    finally:
        for server in (first, second):
            if server is not None:
                server.kill()


def test_the_all_in_one_says_what_it_listens_on_and_advertises(start: Start) -> None:
    port = free_ports()
    server = start(
        BOTH,
        "--namesrv-port=0",
        f"--set=listenPort={port}",
        "--set=brokerIP1=203.0.113.7",
        "--set=brokerName=broker-a",
    )
    line = server.wait_for(r"name server listens on .*").group(0)
    assert re.fullmatch(
        rf"name server listens on 0\.0\.0\.0:\d+; broker broker-a \(DefaultCluster, id 0, ASYNC_MASTER\) "
        rf"listens on 0\.0\.0\.0:{port} and {port - 2}, is advertised as 203\.0\.113\.7:{port} "
        rf"to 127\.0\.0\.1:\d+, slaves come to \d+, store {server.directory}/store",
        line.strip(),
    )
    server.wait_for("registered at name server")
    assert can_connect("127.0.0.1", port)
    assert can_connect("127.0.0.1", port - 2)
    assert server.end() == 0
    store = server.directory / "store"
    assert {path.name for path in store.iterdir()} >= {"lock", "checkpoint", "commitlog", "config"}
    assert not (store / "abort").exists()


def test_a_broker_unregisters_when_it_is_told_to_stop(start: Start) -> None:
    namesrv = start(NAMESRV, "--set=listenPort=0", folder="namesrv")
    address = namesrv.wait_for(r"listens on 0\.0\.0\.0:(\d+)").group(1)
    broker = start(
        BROKER, "-n", f"127.0.0.1:{address}", "--set=listenPort=0",
        "--set=storePathRootDir=store", "--set=brokerName=broker-x", folder="broker",
    )  # fmt: skip
    namesrv.wait_for("broker broker-x id 0 at .* registered")
    assert broker.end() == 0
    namesrv.wait_for("broker broker-x at .* is gone")
    assert namesrv.end() == 0


def test_a_broker_stops_within_seconds_without_its_name_server(start: Start) -> None:
    broker = start(
        BROKER, "-n", "127.0.0.1:1", "--set=listenPort=0", "--set=storePathRootDir=store"
    )
    assert broker.end() == 0
    assert "Traceback" not in broker.output


def test_ctrl_c_ends_in_order(start: Start) -> None:
    server = start(NAMESRV, "--set=listenPort=0")
    assert server.end(signal.SIGINT) == 0


def test_a_killed_broker_leaves_the_abort_file_and_no_lock(start: Start) -> None:
    arguments = (BROKER, "--set=listenPort=0", "--set=storePathRootDir=store")
    broker = start(*arguments)
    assert broker.end(signal.SIGKILL) == -signal.SIGKILL
    store = broker.directory / "store"
    assert (store / "abort").exists()
    (broker.directory / "twistd.pid").unlink()
    again = start(*arguments)
    assert again.end() == 0
    assert not (store / "abort").exists()


def test_a_daemon_starts_serves_and_ends(tmp_path: Path) -> None:
    port = free_ports()
    result = run(
        twistd(
            tmp_path,
            BROKER,
            f"--set=listenPort={port}",
            "--set=storePathRootDir=store",
            "--set=bindAddress=127.0.0.1",
            daemon=True,
        ),
        tmp_path,
    )
    assert (result.returncode, result.stderr) == (0, "")
    wait_until((tmp_path / "twistd.pid").exists, "the pid file")
    pid = int((tmp_path / "twistd.pid").read_text())
    try:
        wait_until(lambda: can_connect("127.0.0.1", port), "the port")
    finally:
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not (tmp_path / "twistd.pid").exists(), "the end")
    log = (tmp_path / "twistd.log").read_text()
    assert f"listens on 127.0.0.1:{port} and {port - 2}" in log
    assert "Traceback" not in log
    assert not (tmp_path / "store" / "abort").exists()


# --------------------------------------------------------------------------- addresses


def test_only_the_bind_address_is_listened_on_and_it_is_advertised(start: Start) -> None:
    port = free_ports()
    server = start(
        BROKER,
        f"--set=listenPort={port}",
        "--set=bindAddress=127.0.0.2",
        "--set=storePathRootDir=store",
    )
    server.wait_for(rf"advertised as 127\.0\.0\.2:{port} to no name server")
    assert can_connect("127.0.0.2", port)
    assert not can_connect("127.0.0.1", port)
    assert server.end() == 0


def test_a_host_name_may_be_advertised_and_changed_later(start: Start) -> None:
    port = free_ports()
    common = (BROKER, f"--set=listenPort={port}", "--set=storePathRootDir=store")
    server = start(*common, "--set=brokerIP1=localhost")
    server.wait_for(rf"advertised as localhost:{port}")
    assert server.end() == 0
    again = start(*common, "--set=brokerIP1=203.0.113.9")
    again.wait_for(rf"advertised as 203\.0\.113\.9:{port}")
    assert again.end() == 0


def test_ipv6_addresses_are_in_brackets(start: Start) -> None:
    port = free_ports()
    server = start(BOTH, "--namesrv-port=0", f"--set=listenPort={port}", "--set=bindAddress=::1")
    server.wait_for(rf"listens on \[::1\]:{port} and {port - 2}, is advertised as \[::1\]:{port}")
    server.wait_for(r"registered at name server \[::1\]:\d+")
    assert can_connect("::1", port)
    assert not can_connect("127.0.0.1", port)
    assert server.end() == 0


# --------------------------------------------------------------------------- configuration


def printed(*arguments: str, directory: Path, **extra: str) -> dict[str, str]:
    result = run(twistd(directory, *arguments), directory, **extra)
    assert result.returncode == 0
    return dict(line.split("=", 1) for line in result.stdout.splitlines())


def test_every_key_is_printed_with_its_value(tmp_path: Path) -> None:
    found = printed(BROKER, "-p", directory=tmp_path)
    assert len(found) > 450
    assert found["listenPort"] == "10911"
    assert found["haListenPort"] == "10912"
    assert found["autoCreateTopicEnable"] == "true"
    assert not (tmp_path / "twistd.pid").exists()


def test_the_important_keys_are_fewer(tmp_path: Path) -> None:
    found = printed(BROKER, "-m", directory=tmp_path)
    assert "brokerName" in found
    assert "flushDiskType" in found
    assert "popPollingSize" not in found


def test_a_name_server_prints_its_keys(tmp_path: Path) -> None:
    found = printed(NAMESRV, "-p", directory=tmp_path)
    assert found["listenPort"] == "9876"
    assert found["scanNotActiveBrokerInterval"] == "5000"


def test_the_environment_is_honoured_and_the_command_line_is_stronger(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("namesrvAddr=file:1\nbrokerName = broker-f\n")
    environment = {"NAMESRV_ADDR": "env:2;env:3", "ROCKETMQ_HOME": "/opt/rocketmq"}
    arguments = (BROKER, "-p", "-c", "broker.conf")
    found = printed(*arguments, directory=tmp_path)
    assert (found["namesrvAddr"], found["brokerName"]) == ("file:1", "broker-f")
    found = printed(*arguments, directory=tmp_path, **environment)
    assert (found["namesrvAddr"], found["rocketmqHome"]) == ("env:2;env:3", "/opt/rocketmq")
    found = printed(*arguments, "-n", "line:4", directory=tmp_path, **environment)
    assert found["namesrvAddr"] == "line:4"


def test_unknown_keys_are_named_once_in_the_log(start: Start) -> None:
    server = start(NAMESRV, "--set=listenPort=0", "--set=myKey=1", "--set=myKey=2")
    assert server.end() == 0
    assert len(re.findall("unknown configuration key myKey", server.output)) == 1


@pytest.mark.parametrize("role", [NAMESRV, BROKER, BOTH])
def test_help_names_the_options(tmp_path: Path, role: str) -> None:
    result = run(twistd(tmp_path, role, "--help"), tmp_path)
    assert result.returncode == 0
    for option in ("--config=", "--namesrv=", "--set=", "--print-config", "--print-important"):
        assert option in result.stdout


@pytest.mark.parametrize("role", [NAMESRV, BROKER, BOTH])
def test_the_version_is_ours(tmp_path: Path, role: str) -> None:
    result = run(twistd(tmp_path, role, "--version"), tmp_path)
    assert result.returncode == 0
    assert result.stdout.startswith(f"txrocketmq {txrocketmq.__version__}, Twisted ")


def test_help_has_its_short_name(tmp_path: Path) -> None:
    assert run(twistd(tmp_path, BOTH, "-h"), tmp_path).stdout.startswith("Usage: twistd ")


def test_the_start_line_comes_last(start: Start) -> None:
    server = start(NAMESRV, "--set=listenPort=0")
    assert re.search(READY, server.output)
    assert server.end() == 0
