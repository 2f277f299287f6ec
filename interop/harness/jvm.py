"""How is a Java process started, and how many run at once? The one launcher for all of them.

Each process is the puppet's main class with the jars of one official line on its class path: as a client, as a host of official
servers, or as the runner of mqadmin commands. Each has a home directory of its own, where its log file is, too.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[2]
INTEROP = ROOT / "interop"
LINES = ("5.4.0", "4.9.7")
MAX_JVMS = 3
PUPPET = ("org.txrocketmq.interop.Puppet",)

#: What official start scripts pass on a modern JDK.
_ACCESS_FLAGS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "-Djava.security.manager=allow",
)
#: What keeps a process small and quick to start.
SMALL_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Xmx512m",
    "-XX:MaxDirectMemorySize=512m",
)
_LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{file}</file>
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %-5level [%thread] %logger{{20}} - %msg%n</pattern></encoder>
  </appender>
  <root level="{level}"><appender-ref ref="file"/></root>
</configuration>
"""


class NotSetUp(RuntimeError):
    """The jars are missing."""


class Evictable(Protocol):
    """Something that holds a Java process which may be closed to make room for another."""

    def may_be_closed(self) -> bool:
        """Whether nobody needs it now."""

    def close(self) -> None:
        """End its process."""


class JvmSlots:
    """At most three Java processes at once: to make room, the one unused for longest is closed."""

    def __init__(self, limit: int = MAX_JVMS) -> None:
        self._limit = limit
        self._holders: list[Evictable] = []

    def take(self, holder: Evictable) -> None:
        """Count a process that is about to start. RuntimeError when all are needed."""
        while len(self._holders) >= self._limit:
            for candidate in self._holders:
                if candidate.may_be_closed():
                    candidate.close()
                    break
            else:
                raise RuntimeError(f"{self._limit} Java processes run and all are needed")
        self._holders.append(holder)

    def touch(self, holder: Evictable) -> None:
        """Say that a holder was used just now."""
        self._holders.remove(holder)
        self._holders.append(holder)

    def give_back(self, holder: Evictable) -> None:
        """A holder's process ended."""
        if holder in self._holders:
            self._holders.remove(holder)


class JavaProcess:
    """A running Java process and its private home; the pipes of the puppet's are for `puppet.Puppet`.

    :param flags: of the JVM: heap, collector, compiler.
    :param main: the class to run, and its arguments.
    """

    def __init__(
        self,
        line: str,
        properties: Mapping[str, str],
        log_level: str = "WARN",
        flags: Sequence[str] = SMALL_FLAGS,
        main: Sequence[str] = PUPPET,
    ) -> None:
        jars = INTEROP / "lib" / line
        classes = INTEROP / "target" / line / "classes"
        if not (INTEROP / "target" / line / ".done").exists():
            raise NotSetUp(f"official line {line} is not installed: run interop/setup")
        self.line = line
        self.home = Path(tempfile.mkdtemp(prefix="txrocketmq-java-"))
        self.log_file = self.home / "rocketmq.log"
        self.screen_file = self.home / "screen.log"
        logback = self._write_log_settings(log_level)
        settings = {
            "user.home": str(self.home),
            "rocketmq.home.dir": str(self.home),
            "java.io.tmpdir": str(self.home),
            "rocketmq.client.logUseSlf4j": "true",
            "logback.configurationFile": str(logback),
            "rmq.logback.configurationFile": str(logback),
            "java.net.preferIPv4Stack": "true",
            **properties,
        }
        command = ["java", *_ACCESS_FLAGS, *flags]
        command += [f"-D{key}={value}" for key, value in settings.items()]
        command += ["-cp", f"{classes}:{jars}/*", *main]
        environment = {key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"}
        environment["ROCKETMQ_HOME"] = str(self.home)
        with self.screen_file.open("wb") as screen:
            self.process = subprocess.Popen(
                command,
                cwd=self.home,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=screen,
            )

    def _write_log_settings(self, level: str) -> Path:
        conf = self.home / "conf"
        conf.mkdir()
        text = _LOGBACK.format(file=self.log_file, level=level)
        # The 4.x servers insist on these files, the clients and 5.x take any.
        for name in ("logback_namesrv.xml", "logback_broker.xml", "logback_tools.xml"):
            (conf / name).write_text(text)
        return conf / "logback_tools.xml"

    def tail(self, lines: int = 60) -> str:
        """The last lines of what the process logged and printed."""
        return tail_of(self.screen_file, lines) + tail_of(self.log_file, lines)

    def end(self, how: signal.Signals = signal.SIGKILL, timeout_s: float = 30) -> None:
        """Send a signal and wait for the end; a process that outlives its time is killed."""
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue

    def remove_home(self) -> None:
        """Delete the private home."""
        shutil.rmtree(self.home, ignore_errors=True)


def tail_of(path: Path, lines: int) -> str:
    """The last lines of a text file without Java stack frames, headed by its name; empty when there are none."""
    if not path.exists():
        return ""
    every = path.read_text(errors="replace").splitlines()
    text = [line for line in every if not line.startswith(("\tat ", "\t... "))][-lines:]
    return "\n".join([f"--- {path.name}", *text, ""]) if text else ""
