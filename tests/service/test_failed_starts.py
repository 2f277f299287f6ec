"""What cannot start says why in one line, ends with exit code 1 and leaves nothing, in the foreground and as a daemon."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from launch import Process, free_ports, run, twistd, wait_until

from txrocketmq.store.disk import RealDisk

NAMESRV, BROKER, BOTH = "rocketmq-namesrv", "rocketmq-broker", "rocketmq"
MODES = pytest.mark.parametrize("daemon", [False, True], ids=["foreground", "daemon"])


@contextmanager
def listening(port: int) -> Iterator[None]:
    with closing(socket.socket()) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        yield


def check_refused(directory: Path, *arguments: str, daemon: bool, says: str, **extra: str) -> None:
    result = run(twistd(directory, *arguments, daemon=daemon), directory, **extra)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"{arguments[0]}: ")
    assert says in line
    assert "Traceback" not in result.stdout
    assert not (directory / "twistd.pid").exists()
    assert not (directory / "twistd.log").exists()


@MODES
@pytest.mark.parametrize("role", [NAMESRV, BROKER, BOTH])
def test_a_port_in_use(tmp_path: Path, role: str, daemon: bool) -> None:
    port = free_ports()
    with listening(port):
        check_refused(
            tmp_path,
            role,
            "--set=bindAddress=127.0.0.1",
            f"--set=listenPort={port}",
            f"--set=storePathRootDir={tmp_path}/store",
            *(["--namesrv-port=0"] if role == BOTH else []),
            daemon=daemon,
            says=f"cannot listen on 127.0.0.1:{port}: address already in use",
        )


def test_a_fast_port_in_use(tmp_path: Path) -> None:
    port = free_ports()
    with listening(port - 2):
        check_refused(
            tmp_path,
            BROKER,
            "--set=bindAddress=127.0.0.1",
            f"--set=listenPort={port}",
            daemon=False,
            says=f"cannot listen on 127.0.0.1:{port - 2}: address already in use "
            "(the fast port, two below listenPort)",
        )


@pytest.mark.parametrize(
    ("role", "option", "below", "says"),
    [
        (BROKER, "--set=haListenPort={}", 0, "listenPort and haListenPort are both {}"),
        (
            BROKER,
            "--set=haListenPort={}",
            2,
            "the fast port, two below it, and haListenPort are both {}",
        ),
        (BOTH, "--namesrv-port={}", 0, "--namesrv-port and listenPort are both {}"),
    ],
)
def test_two_ports_that_are_one(
    tmp_path: Path, role: str, option: str, below: int, says: str
) -> None:
    port = free_ports()
    check_refused(
        tmp_path,
        role,
        "--set=bindAddress=127.0.0.1",
        f"--set=listenPort={port}",
        f"--set=storePathRootDir={tmp_path}/store",
        option.format(port - below),
        daemon=False,
        says=says.format(port - below) + ": each needs its own port",
    )
    assert not (tmp_path / "store").exists()


def test_a_slip_in_a_key_is_told_before_the_port_that_it_was_for(tmp_path: Path) -> None:
    port = free_ports()
    arguments = ("--set=bindAddress=127.0.0.1", f"--set=listenPort={port}", "--set=listnPort=1")
    with listening(port):
        result = run(twistd(tmp_path, NAMESRV, *arguments), tmp_path)
    assert result.returncode == 1
    slip, refusal = result.stderr.splitlines()
    assert slip.endswith(
        "unknown configuration key listnPort (command line): kept, no effect; is listenPort meant?"
    )
    assert "already in use" in refusal


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    check_refused(
        tmp_path,
        NAMESRV,
        "--set=bindAddress=192.0.2.250",
        daemon=False,
        says="cannot listen on 192.0.2.250:9876: cannot assign requested address",
    )


@MODES
def test_a_locked_store(tmp_path: Path, daemon: bool) -> None:
    held = RealDisk().lock(f"{tmp_path}/store/lock")
    try:
        check_refused(
            tmp_path,
            BROKER,
            "--set=listenPort=0",
            f"--set=storePathRootDir={tmp_path}/store",
            daemon=daemon,
            says=f"{tmp_path}/store/lock is locked",
        )
    finally:
        held.release()


@MODES
@pytest.mark.parametrize("place", ["file", "file/store"])
def test_a_store_that_cannot_be_written(tmp_path: Path, place: str, daemon: bool) -> None:
    (tmp_path / "file").write_text("not a directory")
    check_refused(
        tmp_path,
        BROKER,
        "--set=listenPort=0",
        f"--set=storePathRootDir={tmp_path}/{place}",
        daemon=daemon,
        says=f"cannot use the store directory {tmp_path}/{place}: not a directory",
    )


@MODES
@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("brokerRole=MASTER", "brokerRole=MASTER: one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ("flushDiskType=NEVER", "flushDiskType=NEVER: one of SYNC_FLUSH, ASYNC_FLUSH"),
        ("listenPort=x", "listenPort=x: a whole number from 0 to 65535"),
    ],
)
def test_a_bad_value(tmp_path: Path, setting: str, says: str, daemon: bool) -> None:
    check_refused(tmp_path, BROKER, f"--set={setting}", daemon=daemon, says=says)


@MODES
def test_a_missing_configuration_file(tmp_path: Path, daemon: bool) -> None:
    check_refused(
        tmp_path, NAMESRV, "-c", "absent.conf", daemon=daemon, says="absent.conf: no such file"
    )


def test_a_bad_value_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("brokerRole = LEADER\n")
    check_refused(tmp_path, BROKER, "-c", "broker.conf", daemon=False, says="brokerRole=LEADER")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--wrong"], "option --wrong not recognized"),
        (["--set=listenPort"], "key=value is needed"),
        (["surplus"], "'surplus' is no option, nor the value of one"),
        (["-n", "nowhere"], "namesrvAddr=nowhere: host:port is needed"),
        (["-n", "a:1,b:2"], "namesrvAddr=a:1,b:2: host:port is needed, several with ; between"),
        (["--set=listenPort=0", "--set=brokerIP1=no such host"], "brokerIP1=no such host"),
    ],
)
def test_a_mistake_on_the_command_line(tmp_path: Path, arguments: list[str], says: str) -> None:
    check_refused(
        tmp_path,
        BROKER,
        *arguments,
        daemon=False,
        says=says,
    )


@pytest.mark.parametrize("port", ["x", "65536", "-1"])
def test_a_port_that_is_none(tmp_path: Path, port: str) -> None:
    check_refused(
        tmp_path,
        BOTH,
        f"--namesrv-port={port}",
        daemon=False,
        says=f"rocketmq: --namesrv-port={port}: a whole number from 0 to 65535 is needed",
    )


def test_a_bad_address_in_the_environment(tmp_path: Path) -> None:
    check_refused(tmp_path, BROKER, daemon=False, says="namesrvAddr=here", NAMESRV_ADDR="here")


def damaged_store(directory: Path) -> None:
    """A log file whose length is not the configured one: the store refuses to guess."""
    log = directory / "store" / "commitlog"
    log.mkdir(parents=True)
    (log / "00000000000000000000").write_bytes(b"short")
    (log / "00000000000000000005").write_bytes(b"short")


def test_a_store_that_cannot_be_opened(tmp_path: Path) -> None:
    damaged_store(tmp_path)
    port = free_ports()
    result = run(
        twistd(
            tmp_path,
            BROKER,
            f"--set=listenPort={port}",
            f"--set=storePathRootDir={tmp_path}/store",
        ),
        tmp_path,
    )
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("rocketmq-broker: ")
    assert "00000000000000000000" in line
    assert "Traceback" not in result.stdout
    assert not (tmp_path / "twistd.pid").exists()


def test_a_store_that_cannot_be_opened_by_a_daemon(tmp_path: Path) -> None:
    damaged_store(tmp_path)
    run(
        twistd(
            tmp_path,
            BROKER,
            "--set=listenPort=0",
            f"--set=storePathRootDir={tmp_path}/store",
            daemon=True,
        ),
        tmp_path,
    )
    log = tmp_path / "twistd.log"
    wait_until(lambda: log.exists() and "Server Shut Down" in log.read_text(), "the daemon ends")
    wait_until(lambda: not (tmp_path / "twistd.pid").exists(), "the pid file goes")
    assert "rocketmq-broker: " in log.read_text()
    assert "Traceback" not in log.read_text()


def test_a_second_process_on_the_same_store_is_refused(
    tmp_path: Path, start: Callable[..., Process]
) -> None:
    port = free_ports()
    store = f"--set=storePathRootDir={tmp_path}/store"
    running = start(BROKER, f"--set=listenPort={port}", store)
    check_refused(
        tmp_path, BROKER, "--set=listenPort=0", store, daemon=False, says="is locked: another"
    )
    assert os.path.exists(f"{tmp_path}/store/abort")
    assert running.end() == 0
    assert not os.path.exists(f"{tmp_path}/store/abort")


def test_a_port_for_slaves_in_use(tmp_path: Path) -> None:
    port = free_ports()
    with listening(port + 1):
        check_refused(
            tmp_path,
            BROKER,
            "--set=bindAddress=127.0.0.1",
            f"--set=listenPort={port}",
            daemon=False,
            says=f"cannot listen on 127.0.0.1:{port + 1}: address already in use "
            "(the port for slaves, one above listenPort)",
        )
