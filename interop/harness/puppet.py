"""How does Python ask a Java process to do something? One JSON object a line, answers by request id."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import IO, Any

from .jvm import SMALL_FLAGS, JavaProcess, JvmSlots

START_TIMEOUT_S = 60.0
#: Added to an operation's own time limit before Python gives up on its answer.
GRACE_S = 30.0


class PuppetError(RuntimeError):
    """An operation failed in Java; ``type`` and ``code`` are those of the Java exception."""

    def __init__(self, operation: str, error: Mapping[str, Any]) -> None:
        self.type = str(error["type"])
        self.code: int | None = error.get("code")
        self.stack = str(error["stack"])
        super().__init__(f"{operation}: {self.type}: {error['message']}\n{self.stack}")


class PuppetGone(RuntimeError):
    """The Java process ended while an answer was due."""


class Puppet:
    """One Java process of one official line. Threads may call it side by side."""

    def __init__(
        self,
        slots: JvmSlots,
        line: str,
        serialize: str = "JSON",
        properties: Mapping[str, str] | None = None,
        log_level: str = "WARN",
        flags: Sequence[str] = SMALL_FLAGS,
    ) -> None:
        self.line = line
        self.serialize = serialize
        self._slots = slots
        self._pins = 0
        self._lock = threading.Lock()
        self._last_id = 0
        self._pending: dict[int, tuple[str, Future[Any]]] = {}
        slots.take(self)
        settings = {"rocketmq.serialize.type": serialize, **(properties or {})}
        try:
            self._java = JavaProcess(line, settings, log_level, flags)
        except BaseException:
            slots.give_back(self)
            raise
        hello: Future[Any] = Future()
        self._pending[0] = ("start", hello)
        self._reader = threading.Thread(target=self._read, name=f"puppet-{line}", daemon=True)
        self._reader.start()
        hello.result(START_TIMEOUT_S)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._java.process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._java.process.poll() is None

    def call(self, operation: str, **args: Any) -> Any:
        """Do an operation and return its result. PuppetError when Java threw, PuppetGone when the process ended."""
        answer = self.submit(operation, **args)
        return answer.result(args.get("timeout_ms", 60_000) / 1000 + GRACE_S)

    def submit(self, operation: str, **args: Any) -> Future[Any]:
        """Start an operation; its result comes by the future."""
        answer: Future[Any] = Future()
        with self._lock:
            self._last_id += 1
            number = self._last_id
            self._pending[number] = (operation, answer)
            request = {"id": number, "op": operation, "args": args}
            pipe: IO[bytes] | None = self._java.process.stdin
            assert pipe is not None
            try:
                pipe.write(json.dumps(request).encode() + b"\n")
                pipe.flush()
            except (OSError, ValueError) as failure:
                del self._pending[number]
                raise PuppetGone(self._java.tail()) from failure
        return answer

    def _read(self) -> None:
        pipe = self._java.process.stdout
        assert pipe is not None
        try:
            for line in pipe:
                message = json.loads(line)
                operation, answer = self._pending.pop(message.get("id", 0))
                if "error" in message:
                    answer.set_exception(PuppetError(operation, message["error"]))
                else:
                    answer.set_result(message.get("result"))
        except ValueError:
            pass  # the pipe was closed under the reader: the process is being ended
        with self._lock:
            left, self._pending = self._pending, {}
        for _, answer in left.values():
            answer.set_exception(PuppetGone(f"the Java process ended\n{self._java.tail()}"))

    @contextmanager
    def in_use(self) -> Iterator[Puppet]:
        """Keep the process from being closed for another one meanwhile."""
        self._slots.touch(self)
        self._pins += 1
        try:
            yield self
        finally:
            self._pins -= 1

    def keep(self) -> None:
        """Keep the process until it is closed on purpose."""
        self._slots.touch(self)
        self._pins += 1

    def may_be_closed(self) -> bool:
        """Whether nobody needs it now."""
        return self._pins == 0

    def kill(self) -> None:
        """SIGKILL, as a crash would end it; its files stay until `close`."""
        self._java.end(signal.SIGKILL)
        self._slots.give_back(self)

    def terminate(self, timeout_s: float = 30) -> None:
        """SIGTERM: official shutdown hooks run; its files stay until `close`."""
        self._java.end(signal.SIGTERM, timeout_s)
        self._slots.give_back(self)

    def close(self) -> None:
        """End the process and delete its home."""
        self.kill()
        self._java.remove_home()

    def tail(self, lines: int = 60) -> str:
        """The last lines that the process logged and printed."""
        return self._java.tail(lines)

    @property
    def home(self) -> str:
        """The private home directory."""
        return str(self._java.home)


class PuppetPool:
    """Client puppets by line and header serialization, kept alive between tests."""

    def __init__(self, slots: JvmSlots) -> None:
        self._slots = slots
        self._puppets: dict[tuple[str, str], Puppet] = {}

    def get(self, line: str, serialize: str) -> Puppet:
        """The shared puppet of that kind, started when it is not alive."""
        puppet = self._puppets.get((line, serialize))
        if puppet is None or not puppet.is_alive:
            puppet = Puppet(self._slots, line, serialize)
            self._puppets[(line, serialize)] = puppet
        return puppet

    def one_of_its_own(self, line: str, serialize: str) -> Puppet:
        """A further puppet of that kind, which belongs to the caller (who closes it)."""
        return Puppet(self._slots, line, serialize)

    def logs(self) -> str:
        """The last log lines of all puppets."""
        return "".join(
            f"=== puppet {line} {serialize}\n{puppet.tail()}"
            for (line, serialize), puppet in self._puppets.items()
        )

    def close(self) -> None:
        """End all of them."""
        for puppet in self._puppets.values():
            puppet.close()
        self._puppets.clear()
