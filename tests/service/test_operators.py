"""What operators do to running brokers, over real sockets: settings that survive, the second port, an orderly good-bye."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from pathlib import Path

from launch import Process, free_ports, wait_until

from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.model.codes import RequestCode, ResponseCode

R = RequestCode
Start = Callable[..., Process]


class Link:
    """A blocking link of an operator's tool."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._splitter = FrameSplitter()
        self._opaque = 0

    def ask(
        self, code: int, body: bytes = b"", version: int = 493, **fields: str
    ) -> RemotingCommand:
        """Ask and wait for the answer."""
        self._opaque += 1
        command = RemotingCommand.create_request(
            code, body=body, ext_fields=fields, opaque=self._opaque, version=version
        )
        self._socket.sendall(command.encode())
        while True:
            data = self._socket.recv(65536)
            assert data, "closed"
            for frame in self._splitter.feed(data):
                answer = decode_command(frame)
                if answer.opaque == self._opaque and answer.is_response:
                    return answer

    def close(self) -> None:
        self._socket.close()


def ask(port: int, code: int, body: bytes = b"", **fields: str) -> RemotingCommand:
    link = Link(port)
    answer = link.ask(code, body, **fields)
    link.close()
    return answer


def settings_of(port: int) -> dict[str, str]:
    lines = ask(port, R.GET_BROKER_CONFIG).body.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_what_is_changed_at_run_time_is_there_after_a_restart(start: Start) -> None:
    port = free_ports()
    arguments = ("rocketmq-broker", f"--set=listenPort={port}", "--set=storePathRootDir=store")
    broker = start(*arguments)
    answer = ask(port, R.UPDATE_BROKER_CONFIG, b"traceOn=false\nmaxMessageSize=70000\n")
    assert (answer.code, answer.remark) == (0, None)
    assert broker.end() == 0
    again = start(*arguments)
    found = settings_of(port)
    assert (found["traceOn"], found["maxMessageSize"]) == ("false", "70000")
    assert again.end() == 0


def test_a_change_goes_into_the_file_that_the_broker_was_started_with(
    start: Start, tmp_path: Path
) -> None:
    port = free_ports()
    file = tmp_path / "broker.conf"
    file.write_text(f"# mine\nlistenPort = {port}\nstorePathRootDir = store\nregionId = here\n")
    broker = start("rocketmq-broker", "-c", str(file))
    assert settings_of(port)["regionId"] == "here"
    assert ask(port, R.UPDATE_BROKER_CONFIG, b"regionId=there").code == 0
    assert broker.end() == 0
    text = file.read_text()
    assert "# mine" in text
    assert "regionId=there" in text.replace(" ", "")
    assert start("rocketmq-broker", "-c", str(file)).end() == 0


def test_a_broker_follows_its_name_servers_to_another_address(start: Start) -> None:
    ports = []
    servers = []
    for name in ("old", "new"):
        server = start("rocketmq-namesrv", "--set=listenPort=0", folder=name)
        ports.append(server.wait_for(r"listens on 0\.0\.0\.0:(\d+)").group(1))
        servers.append(server)
    port = free_ports()
    broker = start(
        "rocketmq-broker", "-n", f"127.0.0.1:{ports[0]}", f"--set=listenPort={port}",
        "--set=storePathRootDir=store", "--set=brokerName=broker-x", folder="broker",
    )  # fmt: skip
    servers[0].wait_for("broker broker-x id 0 at .* registered")
    ask(port, R.UPDATE_BROKER_CONFIG, f"namesrvAddr=127.0.0.1:{ports[1]}".encode())
    servers[1].wait_for("broker broker-x id 0 at .* registered")
    servers[0].wait_for("broker broker-x at .* is gone")
    for process in (broker, *servers):
        assert process.end() == 0


# ----------------------------------------------------------------- BR-86


def test_the_second_port_serves_everything_but_pulls(start: Start) -> None:
    port = free_ports()
    broker = start("rocketmq-broker", f"--set=listenPort={port}", "--set=storePathRootDir=store")
    sending = {
        "producerGroup": "P", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
        "queueId": "0", "sysFlag": "0", "bornTimestamp": "0", "flag": "0",
    }  # fmt: skip
    pulling = {
        "consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "8",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
        "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    assert ask(port - 2, R.SEND_MESSAGE, b"x", **sending).code == 0
    assert ask(port - 2, R.GET_BROKER_RUNTIME_INFO).code == 0
    refused = ask(port - 2, R.PULL_MESSAGE, **pulling)
    assert refused.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert ask(port, R.PULL_MESSAGE, **pulling).code == 0
    assert broker.end() == 0


# ----------------------------------------------------------------- BR-92


def test_clients_are_sent_away_while_the_broker_stops(start: Start) -> None:
    port = free_ports()
    broker = start(
        "rocketmq-broker", f"--set=listenPort={port}", "--set=storePathRootDir=store",
        "--set=enableShutdownGracefully=true", "--set=shutdownWaitTimeSeconds=2",
    )  # fmt: skip
    link = Link(port)
    assert link.ask(R.GET_BROKER_RUNTIME_INFO).code == 0
    broker.process.send_signal(signal.SIGTERM)
    wait_until(
        lambda: link.ask(R.GET_BROKER_RUNTIME_INFO).code == ResponseCode.GO_AWAY, "the good-bye"
    )
    # Older clients would take it for a fault; they are served until the end.
    assert link.ask(R.GET_BROKER_RUNTIME_INFO, version=407).code == 0
    assert broker.wait() == 0
