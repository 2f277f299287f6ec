"""Many, large, slow: what peers can make a server keep is bounded, and a good client is served all the while."""

from __future__ import annotations

import json
import resource
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from launch import wait_until
from real_server import RawLink, RealServer, pull_header

from txrocketmq.codec.headers import (
    GetConsumerListByGroupRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
)
from txrocketmq.model.codes import RequestCode as R

MIB = 1024 * 1024
CROWD = 10_000
SPARE_DESCRIPTORS = 2000
LONGEST_S = 3.0
"""A good client's own time limit for one send."""


@contextmanager
def memory(server: RealServer, most_bytes: int) -> Iterator[None]:
    """The server's own memory must not grow by more."""
    before = server.rss_anon_bytes()
    yield
    grown = server.rss_anon_bytes() - before
    assert grown < most_bytes, f"grew by {grown / MIB:.1f} MiB"


class Sender:
    """A good client that sends one message after the other in a thread of its own."""

    def __init__(self, server: RealServer) -> None:
        self.sent = 0
        self.slowest_s = 0.0
        self._server = server
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Sender:
        self._thread.start()
        wait_until(lambda: self.sent or self._error, "the first message")
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with self._server.link() as link:
                while not self._ended.is_set():
                    begun = time.monotonic()
                    link.send_message("Good", b"x" * 500)
                    self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
                    self.sent += 1
        except BaseException as error:
            self._error = error


def hold_pulls(link: RawLink, count: int, topic: str) -> None:
    """Let that many requests wait for a message of queue 0, and wait until all of them do."""
    header = pull_header(topic, sys_flag=6, suspend_timeout_millis=60_000)
    link.send(b"".join(link.request(R.PULL_MESSAGE, header).encode() for _ in range(count)))
    # Requests of one link are served in turn.
    link.ask_for(
        GetMaxOffsetResponseHeader,
        R.GET_MAX_OFFSET,
        GetMaxOffsetRequestHeader(topic=topic, queue_id=0),
    )


def test_ten_thousand_connections_of_garbage(server: RealServer) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(CROWD, hard - SPARE_DESCRIPTORS)
    program = Path(__file__).with_name("garbage_crowd.py")
    with memory(server, 100 * MIB), Sender(server) as sender:
        crowd = subprocess.Popen(
            [sys.executable, str(program), str(server.broker_port), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert crowd.stdout is not None
            assert crowd.stdout.readline() == f"open {count}\n"
            before = sender.sent
            wait_until(lambda: sender.sent > before + 100, "messages beside the crowd")
            with server.link() as newcomer:
                newcomer.send_message("Good")
        finally:
            crowd.communicate()
    assert sender.slowest_s < LONGEST_S


def test_a_peer_that_never_reads_costs_little(server: RealServer) -> None:
    with server.link() as good, server.link() as deaf, server.link() as held:
        good.send_message("Large", b"x" * (4 * MIB))
        good.send_message("Held", queue_id=1)
        with memory(server, 48 * MIB):
            pull = deaf.request(R.PULL_MESSAGE, pull_header("Large")).encode()
            deaf.send(pull * 300)
            hold_pulls(held, 300, "Held")
            good.send_message("Held", b"x" * (4 * MIB))
            for _ in range(100):
                good.send_message("Good")


def test_a_flood_of_held_pulls_and_its_sudden_end(server: RealServer) -> None:
    with server.link() as flood, Sender(server) as sender:
        flood.send_message("Flood", queue_id=1)
        hold_pulls(flood, 30_000, "Flood")
        flood.close()
        before = sender.sent
        wait_until(lambda: sender.sent > before + 200, "messages after it")
    assert sender.slowest_s < LONGEST_S


def test_a_flood_of_held_pulls_is_answered_by_one_message(server: RealServer) -> None:
    with server.link() as good, server.link() as flood, Sender(server) as sender:
        good.send_message("Wave", queue_id=1)
        hold_pulls(flood, 5000, "Wave")
        good.send_message("Wave", b"for all")
        for _ in range(5000):
            assert flood.read_command().code == 0
    assert sender.slowest_s < LONGEST_S


def test_unfinished_frames_are_not_kept_without_end(server: RealServer) -> None:
    begun = struct.pack(">i", 8 * MIB) + bytes(MIB)
    with memory(server, 176 * MIB), Sender(server) as sender, ExitStack() as stack:
        for _ in range(300):
            link = stack.enter_context(server.link())
            link.socket.setblocking(False)
            with suppress(BlockingIOError):
                link.socket.send(begun)
        before = sender.sent
        wait_until(lambda: sender.sent > before + 300, "messages beside them")
        wait_until(lambda: server.count("its memory is needed"), "the first that is given up")
    assert sender.slowest_s < LONGEST_S


def test_large_messages_come_through_beside_unfinished_frames(server: RealServer) -> None:
    begun = struct.pack(">i", 8 * MIB) + bytes(MIB)
    with ExitStack() as stack:
        for _ in range(100):
            link = stack.enter_context(server.link())
            link.socket.settimeout(0.05)
            with suppress(TimeoutError):
                link.send(begun)
        good = stack.enter_context(server.link())
        for _ in range(3):
            good.send_message("Large", b"x" * (4 * MIB))


def heartbeat(groups: int, client: str) -> bytes:
    group = {"consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
    return json.dumps(
        {
            "clientID": client,
            "consumerDataSet": [{"groupName": f"Many{n}", **group} for n in range(groups)],
            "producerDataSet": [{"groupName": f"Many{n}"} for n in range(groups)],
        }
    ).encode()


def test_huge_heartbeats(server: RealServer, good: RawLink) -> None:
    with memory(server, 64 * MIB), ExitStack() as stack:
        for number in range(5):
            link = stack.enter_context(server.link())
            answer = link.ask(R.HEART_BEAT, body=heartbeat(2000, f"c{number}"))
            assert answer.code == 1
            assert "consumerDataSet: 2000 groups, at most 1000" in (answer.remark or "")
            answer = link.ask(R.HEART_BEAT, body=b'{"clientID":"' + b"c" * (15 * MIB) + b'"}')
            assert "at most 4194304" in (answer.remark or "")
        header = GetConsumerListByGroupRequestHeader(consumer_group="Many7")
        listed = good.ask(R.GET_CONSUMER_LIST_BY_GROUP, header)
        assert json.loads(listed.body)["consumerIdList"] == [f"c{n}" for n in range(5)]


@pytest.mark.parametrize("port", ["main", "fast", "name server"])
def test_connections_that_come_and_go(server: RealServer, good: RawLink, port: str) -> None:
    number = {
        "main": server.broker_port,
        "fast": server.broker_port - 2,
        "name server": server.namesrv_port,
    }[port]
    with memory(server, 8 * MIB):
        for _ in range(500):
            server.link(number).close()
        good.send_message("Good")
