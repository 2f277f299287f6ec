"""How are a name server and a broker started, frozen, weighed and ended, for the official pair and for ours alike?

Both pairs read the same ``.properties`` files, keep their stores below the same directory, and are found by clients through their
name server. The official processes are started by their own main classes, with the collector flags of the official start scripts, a
2 GB heap for the broker and the optimising compiler. While one pair is measured the other is stopped (SIGSTOP), so that neither
takes anything from the other.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from interop.harness import ports
from interop.harness.jvm import ROOT, JavaProcess, tail_of

OFFICIAL_LINE = "5.4.0"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

_G1 = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:-OmitStackTraceInFastThrow",
)
NAMESRV_FLAGS = (*_G1, "-Xms256m", "-Xmx256m")
BROKER_FLAGS = (*_G1, "-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=2g")

#: Everything else stays at the official defaults: asynchronous flush, files of 1 GiB.
BROKER_SETTINGS = {
    "brokerClusterName": "BenchCluster",
    "brokerName": "broker-a",
    "brokerId": "0",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "brokerRole": "ASYNC_MASTER",
    "flushDiskType": "ASYNC_FLUSH",
    "autoCreateTopicEnable": "true",
    "autoCreateSubscriptionGroup": "true",
    "diskMaxUsedSpaceRatio": "95",
}


class Cpu(NamedTuple):
    """CPU seconds taken so far: by the pair, and by everything on the machine."""

    pair_s: float
    machine_s: float


class PairFailed(RuntimeError):
    """A server ended by itself, or does not listen in time."""


class Pair(ABC):
    """A name server and a broker; subclasses say what is executed.

    :param directory: an empty directory for the store, settings and logs; deleted at the end.
    :param settings: of the broker, besides `BROKER_SETTINGS`.
    """

    name = ""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        self._blocks = [ports.reserve(), ports.reserve()]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.namesrv = f"127.0.0.1:{self._blocks[0].listen}"
        self.broker_address = f"127.0.0.1:{self._blocks[1].listen}"
        store = directory / "store"
        self._write(
            "namesrv",
            {
                "listenPort": str(self._blocks[0].listen),
                "bindAddress": "127.0.0.1",
                "kvConfigPath": str(directory / "kv.json"),
            },
        )
        self._write(
            "broker",
            {
                **BROKER_SETTINGS,
                **(settings or {}),
                "namesrvAddr": self.namesrv,
                "listenPort": str(self._blocks[1].listen),
                "bindAddress": "127.0.0.1",
                "storePathRootDir": str(store),
                "storePathCommitLog": str(store / "commitlog"),
            },
        )

    def _write(self, role: str, settings: dict[str, str]) -> None:
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        self._config(role).write_text(text)

    def _config(self, role: str) -> Path:
        return self.directory / f"{role}.properties"

    # ------------------------------------------------------------------ life

    def start(self) -> int:
        """Execute both at once; the time of the first execution, in nanoseconds since the epoch."""
        begin = time.time_ns()
        self._spawn("namesrv")
        self._spawn("broker")
        return begin

    def start_broker(self) -> int:
        """Execute the broker alone; when, in nanoseconds since the epoch."""
        begin = time.time_ns()
        self._spawn("broker")
        return begin

    def start_name_server(self) -> None:
        """Execute the name server alone, and wait until it takes connections.

        :raises PairFailed: it does not in time.
        """
        self._spawn("namesrv")
        self._wait_listening("namesrv", time.monotonic() + START_TIMEOUT_S)

    def stop_broker(self) -> None:
        """End the broker in good order."""
        self._end("broker")

    def wait_listening(self) -> None:
        """Wait until both take connections.

        :raises PairFailed: they do not in time.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        for role in ("namesrv", "broker"):
            self._wait_listening(role, deadline)

    def _wait_listening(self, role: str, deadline: float) -> None:
        block = self._blocks[("namesrv", "broker").index(role)]
        while not ports.accepts_connections(block.listen):
            code = self._processes[role].poll()
            if code is not None or time.monotonic() > deadline:
                raise PairFailed(f"{self.name} {role} does not listen ({code})\n{self.logs()}")
            time.sleep(0.05)

    def freeze(self) -> None:
        """Stop both processes where they are."""
        for process in self._processes.values():
            process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End both and delete everything."""
        self.thaw()
        for role in ("broker", "namesrv"):
            if role in self._processes:
                self._end(role)
        for block in self._blocks:
            block.release()
        shutil.rmtree(self.directory, ignore_errors=True)

    @abstractmethod
    def _spawn(self, role: str) -> None:
        """Start one of the two servers and keep its process."""

    @abstractmethod
    def logs(self) -> str:
        """The last lines of what the servers wrote."""

    def _end(self, role: str) -> None:
        process = self._processes.pop(role)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    # ------------------------------------------------------------------ weighing

    def cpu(self) -> Cpu:
        """CPU time until now."""
        return Cpu(
            sum(cpu_seconds(process.pid) for process in self._processes.values()),
            busy_seconds(),
        )

    def rss_anon_bytes(self) -> dict[str, int]:
        """Memory that belongs to each process alone, by role."""
        return {role: rss_anon_bytes(process.pid) for role, process in self._processes.items()}


class OurPair(Pair):
    """Two ``twistd -n`` processes.

    :param profile: a file for the profile of the broker's reactor thread, written when it ends.
    """

    name = "ours"

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        profile: Path | None = None,
    ) -> None:
        super().__init__(directory, settings)
        self._profile = profile

    def _spawn(self, role: str) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "NAMESRV_ADDR"}
        # An installed package has its byte code at hand; let a checkout keep it as well.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPATH"] = str(ROOT)
        environment["ROCKETMQ_HOME"] = str(self.directory)
        options = ["-n", "--pidfile="]
        if self._profile is not None and role == "broker":
            options += ["--profile", str(self._profile), "--profiler", "cprofile", "--savestats"]
        twistd = Path(sys.executable).parent / "twistd"
        with (self.directory / f"{role}.log").open("ab") as log:
            self._processes[role] = subprocess.Popen(
                [str(twistd), *options, f"rocketmq-{role}", "-c", str(self._config(role))],
                cwd=self.directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def logs(self) -> str:
        return "".join(tail_of(path, 40) for path in sorted(self.directory.glob("*.log")))


class OfficialPair(Pair):
    """Two Java processes, started by the official main classes."""

    name = "official"

    _MAINS = {  # noqa: RUF012 - a constant
        "namesrv": ("org.apache.rocketmq.namesrv.NamesrvStartup", NAMESRV_FLAGS),
        "broker": ("org.apache.rocketmq.broker.BrokerStartup", BROKER_FLAGS),
    }

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, settings)
        self._java: dict[str, JavaProcess] = {}

    def _spawn(self, role: str) -> None:
        main, flags = self._MAINS[role]
        java = JavaProcess(
            OFFICIAL_LINE, {}, flags=flags, main=(main, "-c", str(self._config(role)))
        )
        self._java[role] = java
        self._processes[role] = java.process

    def _end(self, role: str) -> None:
        super()._end(role)
        self._java.pop(role).remove_home()

    def logs(self) -> str:
        return "".join(java.tail(40) for java in self._java.values())


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def busy_seconds() -> float:
    """Time that the machine's CPUs were busy since its start, whoever used them (stolen time counts)."""
    fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / TICKS_PER_S


def rss_anon_bytes(pid: int) -> int:
    """RssAnon of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"no RssAnon for process {pid}")
