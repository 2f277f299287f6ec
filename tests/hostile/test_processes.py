"""Servers that are killed, stopped under load, started twice, or given a bad disk."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch import wait_until
from real_server import RawLink, RealServer, send_header

from txrocketmq.model.codes import RequestCode as R
from txrocketmq.model.codes import ResponseCode as C

TOPIC = "Load"
SENDERS = 4


class Load:
    """Senders, each of a queue of its own, until the server goes away; what it acknowledged to each."""

    def __init__(self, server: RealServer) -> None:
        self.acknowledged: list[list[tuple[int, bytes]]] = [[] for _ in range(SENDERS)]
        self.codes: set[int] = set()
        self._server = server
        self._threads = [
            threading.Thread(target=self._send, args=(number,)) for number in range(SENDERS)
        ]

    def start(self) -> Load:
        with self._server.link() as link:
            link.send_message(TOPIC, b"first", queue_id=0)
        for thread in self._threads:
            thread.start()
        return self

    def wait_for(self, count: int) -> None:
        """Until every sender has that many acknowledged."""
        wait_until(lambda: min(map(len, self.acknowledged)) >= count, f"{count} messages")

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _send(self, queue_id: int) -> None:
        found = self.acknowledged[queue_id]
        try:
            with self._server.link() as link:
                for number in range(1_000_000):
                    body = b"%d-%d" % (queue_id, number)
                    answer = link.ask(
                        R.SEND_MESSAGE_V2, send_header(TOPIC, queue_id=queue_id), body=body
                    )
                    self.codes.add(answer.code)
                    if answer.code != 0:
                        return
                    fields = answer.ext_fields or {}
                    found.append((int(fields["queueOffset"]), body))
        except (OSError, EOFError):
            return


def stored(link: RawLink, queue_id: int) -> list[tuple[int, bytes]]:
    """Everything in a queue."""
    found: list[tuple[int, bytes]] = []
    while messages := link.pull(TOPIC, queue_id, len(found)):
        found += [(message.queue_offset, message.body) for message in messages]
    return found


def check_nothing_is_lost(server: RealServer, load: Load) -> None:
    with server.link() as link:
        for queue_id, acknowledged in enumerate(load.acknowledged):
            found = stored(link, queue_id)
            assert [offset for offset, _ in found] == list(range(len(found)))
            bodies = [body for _, body in found if body != b"first"]
            assert len(set(bodies)) == len(bodies)
            assert set(acknowledged) <= set(found)
            # At most the message that was under way may be there besides.
            assert len(bodies) <= len(acknowledged) + 1


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_kill_in_the_middle_loses_nothing_that_was_acknowledged(
    tmp_path: Path, flush: str
) -> None:
    settings = {"flushDiskType": flush, "mappedFileSizeCommitLog": str(1024 * 1024)}
    with RealServer("rocketmq", tmp_path, settings=settings) as server:
        load = Load(server).start()
        load.wait_for(50)
        server.end(signal.SIGKILL)
        load.join()
        assert load.codes == {0}
        server.start()
        check_nothing_is_lost(server, load)
        with server.link() as link:
            link.send_message(TOPIC, b"goes on")
        assert server.end() == 0
        server.assert_calm()


def test_a_stop_under_load_is_quick_and_loses_nothing(tmp_path: Path) -> None:
    with RealServer("rocketmq", tmp_path) as server:
        load = Load(server).start()
        load.wait_for(200)
        assert server.end(timeout_s=15) == 0
        load.join()
        assert load.codes <= {0, C.SERVICE_NOT_AVAILABLE, C.GO_AWAY}
        server.assert_calm()
        assert not (tmp_path / "store" / "abort").exists()
        server.start()
        check_nothing_is_lost(server, load)


def test_a_second_signal_does_no_harm(tmp_path: Path) -> None:
    with RealServer("rocketmq", tmp_path) as server:
        load = Load(server).start()
        load.wait_for(20)
        os.kill(server.pid, signal.SIGTERM)
        os.kill(server.pid, signal.SIGTERM)
        assert server.end(signal.SIGINT) == 0
        load.join()
        server.assert_calm()
        server.start()
        check_nothing_is_lost(server, load)


def test_two_brokers_on_one_store(tmp_path: Path) -> None:
    with RealServer("rocketmq", tmp_path / "first") as first:
        with first.link() as link:
            link.send_message(TOPIC, b"mine")
        store = {
            "storePathRootDir": str(tmp_path / "first" / "store"),
            "storePathCommitLog": str(tmp_path / "first" / "store" / "commitlog"),
        }
        second = RealServer("rocketmq-broker", tmp_path / "second", settings=store).spawn()
        assert second.wait_ended() == 1
        assert second.count("another broker uses this store") == 1
        second.assert_calm()
        with first.link() as link:
            assert stored(link, 0) == [(0, b"mine")]
            link.send_message(TOPIC, b"still mine")


def test_two_brokers_with_one_log_and_stores_of_their_own(tmp_path: Path) -> None:
    log = tmp_path / "log"
    settings = {"storePathCommitLog": str(log)}
    with RealServer("rocketmq", tmp_path / "first", settings=settings) as first:
        with first.link() as link:
            link.send_message(TOPIC, b"mine")
        files = sorted(log.iterdir())
        second = RealServer("rocketmq-broker", tmp_path / "second", settings=settings).spawn()
        assert second.wait_ended() == 1
        assert second.count("another broker writes its log there") == 1
        second.assert_calm()
        assert sorted(log.iterdir()) == files
        with first.link() as link:
            assert stored(link, 0) == [(0, b"mine")]
        assert first.end() == 0
    # Nothing stays behind that an official broker would take for a part of the log.
    assert all(path.name.isdigit() for path in log.iterdir())


def test_a_log_in_two_directories_survives_a_kill(tmp_path: Path) -> None:
    settings = {
        "storePathCommitLog": f"{tmp_path / 'one'},{tmp_path / 'two'}",
        "mappedFileSizeCommitLog": str(256 * 1024),
    }
    with RealServer("rocketmq", tmp_path, settings=settings) as server:
        with server.link() as link:
            for number in range(60):
                body = b"%d" % number + bytes(20_000)
                # Files this small may not be made as fast as they fill up.
                while link.ask(R.SEND_MESSAGE_V2, send_header(TOPIC), body=body).code != 0:
                    pass
        server.restart(signal.SIGKILL)
        with server.link() as link:
            found = stored(link, 0)
            assert [body.rstrip(b"\0") for _, body in found] == [b"%d" % n for n in range(60)]
        assert server.end() == 0
        server.assert_calm()
    assert len(list((tmp_path / "one").iterdir())) >= 2
    assert len(list((tmp_path / "two").iterdir())) >= 2


# --------------------------------------------------------------------------- disks


def on_tmpfs(home: Path, options: str) -> list[str]:
    """Runs a server with its store on a file system of its own."""
    store = home / "store"
    store.mkdir(parents=True)
    mount = f'mount -t tmpfs -o {options} none "{store}" && exec "$@"'
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]


def test_a_disk_that_fills_up_refuses_sends_and_serves_pulls(tmp_path: Path) -> None:
    settings = {"mappedFileSizeCommitLog": str(4 * 1024 * 1024), "diskMaxUsedSpaceRatio": "99"}
    wrapper = on_tmpfs(tmp_path, "size=24m")
    with RealServer("rocketmq", tmp_path, settings=settings, wrapper=wrapper) as server:
        with server.link() as link:
            accepted = 0
            code = 0
            for _ in range(4000):
                answer = link.ask(R.SEND_MESSAGE_V2, send_header(TOPIC), body=bytes(10_000))
                code = answer.code
                if code == 0:
                    accepted += 1
                elif code != C.SYSTEM_BUSY:
                    break
            assert code == C.SERVICE_NOT_AVAILABLE
            assert "disk is full" in (answer.remark or "")
            assert accepted > 400
            assert len(stored(link, 0)) == accepted
            assert link.ask(R.SEND_MESSAGE_V2, send_header(TOPIC), body=b"x").code != 0
            assert link.ask(R.GET_BROKER_RUNTIME_INFO).code == 0
        assert server.count("No space left on device") >= 1
        # One line a cause, not one a message.
        assert len(server.lines) < 200
        assert server.end() == 0
        server.assert_calm()


def test_a_disk_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    server = RealServer("rocketmq", tmp_path, wrapper=on_tmpfs(tmp_path, "ro")).spawn()
    assert server.wait_ended() == 1
    assert server.lines == [
        f"rocketmq: cannot use the store directory {tmp_path}/store: read-only file system"
    ]


# --------------------------------------------------------------------------- damaged tables


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A server with a topic and a group, stopped in order."""
    with RealServer("rocketmq", tmp_path_factory.mktemp("tables")) as server:
        with server.link() as link:
            link.send_message(TOPIC, b"kept")
            link.pull(TOPIC)
        assert server.end() == 0
        yield server


@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json"])
def test_a_damaged_table_stops_the_start_and_is_kept(stopped: RealServer, name: str) -> None:
    path = stopped.home / "store" / "config" / name
    backup = path.with_suffix(".json.bak")
    before = {file: file.read_bytes() for file in (path, backup) if file.exists()}
    for file in (path, backup):
        file.write_bytes(b'{"half": ')
    try:
        assert stopped.spawn().wait_ended() == 1
        assert stopped.count(f"^rocketmq: {path} cannot be read, nor its backup") == 1
        stopped.assert_calm()
        assert path.read_bytes() == b'{"half": '
    finally:
        backup.unlink()
        for file, data in before.items():
            file.write_bytes(data)


def test_a_damaged_table_with_a_good_backup_is_no_matter(stopped: RealServer) -> None:
    config = stopped.home / "store" / "config"
    for name in ("topics.json", "subscriptionGroup.json"):
        whole = (config / name).read_bytes()
        (config / f"{name}.bak").write_bytes(whole)
        (config / name).write_bytes(whole[: len(whole) // 2])
    stopped.start()
    with stopped.link() as link:
        assert stored(link, 0) == [(0, b"kept")]
    assert stopped.count("its backup is used") == 2
    assert stopped.end() == 0
    stopped.assert_calm()


# --------------------------------------------------------------------------- descriptors


def test_clients_leave_descriptors_for_the_store(tmp_path: Path) -> None:
    settings = {"mappedFileSizeCommitLog": str(1024 * 1024)}
    wrapper = ["prlimit", "--nofile=300:300"]
    with RealServer("rocketmq", tmp_path, settings=settings, wrapper=wrapper) as server:
        good = server.link()
        crowd = [server.link() for _ in range(400)]
        wait_until(lambda: server.count("further ones are closed at once"), "the refusal")
        accepted = 0
        while accepted < 100:
            answer = good.ask(R.SEND_MESSAGE_V2, send_header(TOPIC), body=bytes(100_000))
            assert answer.code in (0, C.SYSTEM_BUSY)
            accepted += answer.code == 0
        for link in crowd:
            link.close()
        good.close()
        wait_until(lambda: _is_served(server), "a newcomer")
        assert server.count("Too many open files") == 0
        server.assert_calm()


def _is_served(server: RealServer) -> bool:
    try:
        with server.link() as link:
            return link.ask(R.GET_BROKER_RUNTIME_INFO).code == 0
    except (OSError, EOFError):
        return False
