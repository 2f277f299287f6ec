"""Servers of ours as real processes on ports that the system picks, and blocking links to them that may send any bytes.

A server's output is read by a thread, so a test waits for a line instead of sleeping; the ports are those of the start line.
"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from launch import environment, twistd, wait_until
from request_headers import pull_header, send_header

from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.codec.headers import (
    Header,
    SendMessageResponseHeader,
)
from txrocketmq.codec.record import decode_records
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.message import MessageExt

PATIENCE_S = 20.0
#: A start is mostly imports, which take long on a machine that others keep busy.
START_PATIENCE_S = 60.0
SMALL_STORE = {
    "mappedFileSizeCommitLog": str(32 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": str(20 * 3000),
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "diskMaxUsedSpaceRatio": "95",
}

H = TypeVar("H", bound=Header)


class RealServer:
    """One ``twistd`` process.

    :param role: ``rocketmq``, ``rocketmq-namesrv`` or ``rocketmq-broker``.
    :param home: directory of its own; the store is ``home/store``.
    :param settings: official keys, stronger than those of a small store.
    :param wrapper: a command that runs the server, such as ``unshare``.
    """

    def __init__(
        self,
        role: str,
        home: Path,
        *,
        host: str = "127.0.0.1",
        settings: Mapping[str, str] | None = None,
        wrapper: Sequence[str] = (),
    ) -> None:
        self.role = role
        self.home = home
        self.host = host
        self.lines: list[str] = []
        self._settings = dict(settings or {})
        self._wrapper = list(wrapper)
        self._news = threading.Condition()
        self._ended = False
        self._process: subprocess.Popen[str] | None = None
        self._ports: tuple[int, ...] = ()

    # ----------------------------------------------------------------- life

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.kill()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self.output()[-6000:])
        self.kill()

    def start(self) -> Self:
        """Start, and wait for the line that says where it listens."""
        self.spawn()
        self.wait_for(r"listens on", START_PATIENCE_S)
        return self

    def spawn(self) -> Self:
        """Start, and wait for nothing."""
        self.home.mkdir(parents=True, exist_ok=True)
        config = self.home / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in self._keys().items()))
        command = twistd(self.home, self.role, "-c", str(config))
        if self.role == "rocketmq":
            command.append(f"--namesrv-port={self._kept_ports()[0]}")
        self._ended = False
        self.lines = []
        self._process = subprocess.Popen(
            [*self._wrapper, *command],
            cwd=self.home,
            env=environment(ROCKETMQ_HOME=str(self.home)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        return self

    def _keys(self) -> dict[str, str]:
        # The ports of a first start are kept, so that clients find the server again.
        namesrv, main = self._kept_ports()
        keys = {"bindAddress": self.host, "listenPort": str(main)}
        if self.role == "rocketmq-namesrv":
            keys |= {"listenPort": str(namesrv), "kvConfigPath": str(self.home / "kv.json")}
        else:
            store = self.home / "store"
            keys |= {
                "brokerName": "broker-a",
                "brokerIP1": self.host,
                # The one above the main port may be somebody else's by the next start.
                "haListenPort": "0",
                "storePathRootDir": str(store),
                "storePathCommitLog": str(store / "commitlog"),
                **SMALL_STORE,
            }
        return keys | self._settings

    def _kept_ports(self) -> tuple[int, int]:
        if not self._ports:
            return 0, 0
        if self.role == "rocketmq":
            return self._ports[0], self._ports[1]
        return self._ports[0], self._ports[0]

    def kill(self) -> None:
        """SIGKILL; nothing when it is gone."""
        self.end(signal.SIGKILL)

    def end(self, how: signal.Signals = signal.SIGTERM, timeout_s: float = PATIENCE_S) -> int:
        """Send a signal and wait for the end; the exit code."""
        process = self._process
        assert process is not None
        if process.poll() is None:
            process.send_signal(how)
        return self.wait_ended(timeout_s)

    def wait_ended(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait until it ended; the exit code."""
        process = self._process
        assert process is not None
        code = process.wait(timeout_s)
        self._reader.join(timeout_s)
        return code

    def restart(self, how: signal.Signals) -> Self:
        """End and start again, on the same ports and store."""
        self.end(how)
        return self.start()

    # ----------------------------------------------------------------- what it says

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                with self._news:
                    self.lines.append(line.rstrip("\n"))
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def wait_for(self, pattern: str, timeout_s: float = PATIENCE_S) -> str:
        """Wait for a line of the log that a pattern is found in; the line."""
        wanted = re.compile(pattern)
        found: list[str] = []

        def is_there() -> bool:
            found[:] = [line for line in self.lines if wanted.search(line)]
            return bool(found) or self._ended

        with self._news:
            self._news.wait_for(is_there, timeout_s)
        assert found, f"no line with {pattern!r} in time:\n{self.output()}"
        if "listens on" in found[0]:
            ports = re.findall(r"listens on [^ ;]*:(\d+)", found[0])
            self._ports = tuple(map(int, ports))
        return found[0]

    def output(self) -> str:
        """All that it said."""
        with self._news:
            return "\n".join(self.lines)

    def count(self, pattern: str) -> int:
        """How many lines a pattern is found in."""
        wanted = re.compile(pattern)
        with self._news:
            return sum(bool(wanted.search(line)) for line in self.lines)

    def assert_calm(self) -> None:
        """Nothing happened that nobody foresaw."""
        text = self.output()
        assert "Traceback" not in text, text[-8000:]
        assert "Unhandled" not in text, text[-8000:]

    # ----------------------------------------------------------------- where it is

    @property
    def pid(self) -> int:
        """The process id (of the wrapper, where there is one)."""
        assert self._process is not None
        return self._process.pid

    @property
    def namesrv_port(self) -> int:
        """The name server's port."""
        assert self.role != "rocketmq-broker"
        return self._ports[0]

    @property
    def broker_port(self) -> int:
        """The broker's main port."""
        assert self.role != "rocketmq-namesrv"
        return self._ports[-1]

    @property
    def namesrv(self) -> str:
        """The name server's address."""
        return self.address(self.namesrv_port)

    @property
    def broker(self) -> str:
        """The broker's address."""
        return self.address(self.broker_port)

    def address(self, port: int) -> str:
        """An address of this server."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"

    def rss_anon_bytes(self) -> int:
        """Memory of its own: ``RssAnon``."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    def link(self, port: int | None = None, timeout_s: float = PATIENCE_S) -> RawLink:
        """A new connection to a port, the broker's where it has one."""
        if port is None:
            port = self._ports[-1]
        return RawLink(self.host, port, timeout_s)


class RawLink:
    """A blocking connection; closed by `close` or at the end of a ``with``."""

    def __init__(self, host: str, port: int, timeout_s: float = PATIENCE_S) -> None:
        self.socket = socket.create_connection((host, port), timeout_s)
        self._splitter = FrameSplitter()
        self._frames: list[bytes] = []
        self._answers: dict[int, RemotingCommand] = {}
        self._opaque = 0
        self.told: list[RemotingCommand] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close; a second time does no harm."""
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Write bytes as they are."""
        self.socket.sendall(data)

    def request(self, code: int, header: Header | None = None, **options: Any) -> RemotingCommand:
        """A request with the next opaque, not sent."""
        self._opaque += 1
        return RemotingCommand.create_request(int(code), header, opaque=self._opaque, **options)

    def tell(self, code: int, header: Header | None = None, **options: Any) -> int:
        """Send a request and wait for nothing; its opaque."""
        command = self.request(code, header, **options)
        self.send(command.encode())
        return command.opaque

    def ask(self, code: int, header: Header | None = None, **options: Any) -> RemotingCommand:
        """Send a request; its answer."""
        return self.answer(self.tell(code, header, **options))

    def ask_for(self, kind: type[H], code: int, header: Header | None = None, **options: Any) -> H:
        """Send a request that succeeds; the answer's header."""
        answer = self.ask(code, header, **options)
        assert answer.code == 0, f"{answer.code}: {answer.remark}"
        return answer.decode_header(kind)

    def answer(self, opaque: int) -> RemotingCommand:
        """The answer to a request; what the server says by itself goes to `told`."""
        while opaque not in self._answers:
            command = self.read_command()
            if command.is_response:
                self._answers[command.opaque] = command
            else:
                self.told.append(command)
        return self._answers.pop(opaque)

    def read_command(self) -> RemotingCommand:
        """The next command; `EOFError` when the server closes, `TimeoutError` when nothing comes."""
        while not self._frames:
            data = self.socket.recv(1 << 20)
            if not data:
                raise EOFError("the server closed the connection")
            self._frames = self._splitter.feed(data)
        return decode_command(self._frames.pop(0))

    def is_closed_by_server(self, timeout_s: float = PATIENCE_S) -> bool:
        """Wait for the server's close; whatever it says before is dropped. False when it does not come."""
        self.socket.settimeout(timeout_s)
        try:
            while self.socket.recv(1 << 20):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True

    def send_message(
        self, topic: str, body: bytes = b"hello", properties: str = "", **fields: Any
    ) -> SendMessageResponseHeader:
        """Send a message until it is stored; the answer's header.

        A broker that a busy machine leaves behind asks producers to slow down, and stores nothing: they send again, as officially.
        """
        header = send_header(topic, properties=properties, **fields)
        answers: list[RemotingCommand] = []

        def is_taken() -> bool:
            answers.append(self.ask(RequestCode.SEND_MESSAGE_V2, header, body=body))
            return not asks_to_slow_down(answers[-1])

        wait_until(is_taken, "a message that is taken")
        answer = answers[-1]
        assert answer.code == 0, f"{answer.code}: {answer.remark}"
        return answer.decode_header(SendMessageResponseHeader)

    def pull(
        self, topic: str, queue_id: int = 0, offset: int = 0, **fields: Any
    ) -> list[MessageExt]:
        """Messages of a queue from an offset on; empty where there is none."""
        answer = self.ask(RequestCode.PULL_MESSAGE, pull_header(topic, queue_id, offset, **fields))
        return decode_records(answer.body) if answer.code == 0 else []


def asks_to_slow_down(answer: RemotingCommand) -> bool:
    """Whether a send was refused because the broker is behind, not because it cannot or may not take it."""
    words = ("[PC_SYNCHRONIZED]", "[TIMEOUT_CLEAN_QUEUE]", "[REJECTREQUEST]")
    return answer.code == ResponseCode.SYSTEM_BUSY and (answer.remark or "").startswith(words)
