"""How are servers started, restarted and killed, whoever made them? One `Cluster` interface, two providers.

`OurCluster` runs each server of ours as a `twistd` process; `OfficialCluster` hosts official name servers and broker in one Java
process. Both write the same official ``.properties`` files. A cluster owns its ports, its store directory and its processes.
"""

from __future__ import annotations

import abc
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from . import ports
from .jvm import ROOT, JvmSlots, tail_of
from .puppet import Puppet

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)

#: How long a send may wait: on a loaded machine longer than the official 200 ms. Cells that let none wait put this back.
SEND_WAIT_MS = "5000"
#: Small files, so that a test's store is small; everything else stays at the official default.
_BROKER_SETTINGS = {
    "brokerClusterName": "InteropCluster",
    "brokerName": "broker-a",
    "brokerId": "0",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "autoCreateTopicEnable": "true",
    "autoCreateSubscriptionGroup": "true",
    "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": str(20 * 30_000),
    "maxIndexNum": "200000",
    "maxHashSlotNum": "50000",
    "diskMaxUsedSpaceRatio": "95",
    "waitTimeMillsInSendQueue": SEND_WAIT_MS,
    # Producers are asked for open transactions soon, not after half a minute.
    "transactionTimeOut": "1500",
    "transactionCheckInterval": "3000",
    "transactionOpBatchInterval": "500",
    "mappedFileSizeTimerLog": str(1024 * 1024),
    "recallMessageEnable": "true",
}


class ServerFailed(RuntimeError):
    """A server did not start, or ended by itself."""


class Cluster(abc.ABC):
    """Name servers and one broker. Use as a context manager; `start` is called on entry."""

    #: Shown in test ids and tables.
    provider = ""

    def __init__(
        self,
        name_servers: int = 1,
        broker_settings: Mapping[str, str] | None = None,
        store: Path | None = None,
    ) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="txrocketmq-cluster-"))
        self.store = store or self.home / "store"
        self._name_server_ports = [ports.reserve() for _ in range(name_servers)]
        #: Further keys of name servers that are started from now on.
        self.name_server_settings: dict[str, str] = {}
        self._broker_ports = ports.reserve()
        self._broker_settings = {
            **_BROKER_SETTINGS,
            "namesrvAddr": self.namesrv,
            **self._own_keys(self._broker_ports.listen),
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.store / "commitlog"),
            **(broker_settings or {}),
        }

    def take_over(self, other: Cluster) -> None:
        """Before the first start: take the store and the address of a cluster whose broker has ended, and close that one.

        Ids of messages name the address of the broker that stored them.
        """
        self._broker_ports, other._broker_ports = other._broker_ports, self._broker_ports
        self._broker_settings.update(self._own_keys(self._broker_ports.listen))
        shutil.move(other.store, self.store)
        other.close()

    def change_settings(self, settings: Mapping[str, str]) -> None:
        """Change keys of the broker, from its next start on."""
        self._broker_settings.update(settings)

    def settings(self, keys: Iterable[str]) -> dict[str, str]:
        """What some keys of the broker are set to; those that are not set are left out."""
        return {key: self._broker_settings[key] for key in keys if key in self._broker_settings}

    def _own_keys(self, port: int) -> dict[str, str]:
        return {"listenPort": str(port), "bindAddress": "127.0.0.1"}

    @property
    def namesrv(self) -> str:
        """All name servers, as clients take them."""
        return ";".join(f"127.0.0.1:{block.listen}" for block in self._name_server_ports)

    @property
    def broker_name(self) -> str:
        """The broker's name."""
        return self._broker_settings["brokerName"]

    @property
    def broker_address(self) -> str:
        """Where the broker listens."""
        return f"127.0.0.1:{self._broker_ports.listen}"

    @property
    def homes(self) -> list[str]:
        """Directories that servers may name in what they say of themselves."""
        return [str(self.home)]

    def __enter__(self) -> Cluster:
        try:
            self.start()
        except BaseException as failure:
            failure.add_note(self.logs())
            self.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def start(self) -> None:
        """Start all name servers, then the broker."""
        self.start_name_servers()
        self.start_broker()

    def start_name_servers(self) -> None:
        """Start all of them; returns once they listen."""
        for number in range(len(self._name_server_ports)):
            self.start_name_server(number)

    @abc.abstractmethod
    def start_name_server(self, number: int) -> None:
        """Start one name server; returns once it listens."""

    @abc.abstractmethod
    def kill_name_server(self, number: int) -> None:
        """End one name server without warning."""

    @abc.abstractmethod
    def start_broker(self) -> None:
        """Start the broker on the cluster's store; returns once it listens."""

    @abc.abstractmethod
    def stop_broker(self, how: signal.Signals) -> None:
        """End the broker, by SIGTERM in good order or by SIGKILL at once; returns when it is gone."""

    def restart_broker(self, how: signal.Signals) -> None:
        """`stop_broker`, then start it again on the same ports and store."""
        self.stop_broker(how)
        self.start_broker()

    def close(self) -> None:
        """End everything and delete the cluster's files."""
        self._end_processes()
        for block in [*self._name_server_ports, self._broker_ports]:
            block.release()
        shutil.rmtree(self.home, ignore_errors=True)

    @abc.abstractmethod
    def _end_processes(self) -> None:
        """End whatever runs, quickly."""

    @abc.abstractmethod
    def logs(self, lines: int = 60) -> str:
        """The last lines of what the servers wrote."""

    def _write_namesrv_config(self, number: int) -> Path:
        settings = {
            **self._own_keys(self._name_server_ports[number].listen),
            "kvConfigPath": str(self.home / f"kv-{number}.json"),
            **self.name_server_settings,
        }
        return self._write_properties(f"namesrv-{number}.properties", settings)

    def _write_broker_config(self) -> Path:
        settings = dict(self._broker_settings)
        if not settings["namesrvAddr"]:
            # An official broker looks for name servers elsewhere only where nothing is said of them.
            del settings["namesrvAddr"]
        return self._write_properties("broker.properties", settings)

    def _write_properties(self, name: str, settings: Mapping[str, str]) -> Path:
        path = self.home / name
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path


class OurCluster(Cluster):
    """Servers of ours, each a ``twistd -n`` process."""

    provider = "ours"

    def __init__(
        self,
        name_servers: int = 1,
        broker_settings: Mapping[str, str] | None = None,
        store: Path | None = None,
    ) -> None:
        super().__init__(name_servers, broker_settings, store)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._before_broker: list[str] = []

    def run_under(self, command: Sequence[str]) -> None:
        """Put a command, such as a tracer's, before the broker's from its next start on. It must become the broker."""
        self._before_broker = list(command)

    def start_name_server(self, number: int) -> None:
        """Start one name server; returns once it listens."""
        config = self._write_namesrv_config(number)
        port = self._name_server_ports[number].listen
        self._spawn(f"namesrv-{number}", ["rocketmq-namesrv", "-c", str(config)], port)

    def kill_name_server(self, number: int) -> None:
        """SIGKILL."""
        self._end(f"namesrv-{number}", signal.SIGKILL)

    def start_broker(self) -> None:
        """Start the broker on the cluster's store; returns once it listens."""
        config = self._write_broker_config()
        arguments = ["rocketmq-broker", "-c", str(config)]
        self._spawn("broker", arguments, self._broker_ports.listen)

    def stop_broker(self, how: signal.Signals) -> None:
        """SIGTERM or SIGKILL; ServerFailed when it does not end in time, or not in good order after SIGTERM."""
        code = self._end("broker", how)
        if how == signal.SIGTERM and code != 0:
            raise ServerFailed(f"the broker ended with {code} after SIGTERM\n{self.logs()}")

    @property
    def broker_pid(self) -> int:
        """The broker's process id."""
        return self._processes["broker"].pid

    def _spawn(self, name: str, arguments: list[str], port: int) -> None:
        twistd = Path(sys.executable).parent / "twistd"
        before = self._before_broker if name == "broker" else []
        environment = {k: v for k, v in os.environ.items() if k not in ("NAMESRV_ADDR",)}
        environment["PYTHONPATH"] = str(ROOT)
        environment["ROCKETMQ_HOME"] = str(self.home)
        with (self.home / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*before, str(twistd), "-n", "--pidfile=", *arguments],
                cwd=self.home,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_parent,
            )
        self._processes[name] = process
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ports.accepts_connections(port):
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(0.05)
                raise ServerFailed(f"{name} ended with {code} at its start\n{self.logs()}")
            if time.monotonic() > deadline:
                raise ServerFailed(f"{name} does not listen on {port}\n{self.logs()}")

    def _end(self, name: str, how: signal.Signals) -> int:
        process = self._processes.pop(name)
        process.send_signal(how)
        try:
            return process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ServerFailed(f"{name} did not end after {how.name}\n{self.logs()}") from None

    def _end_processes(self) -> None:
        # The broker first, so that it can say good-bye to the name servers.
        for name in sorted(self._processes):
            with suppress(ServerFailed):
                self._end(name, signal.SIGTERM)

    def logs(self, lines: int = 60) -> str:
        """The last lines of what the servers wrote."""
        return "".join(tail_of(path, lines) for path in sorted(self.home.glob("*.log")))


class OfficialCluster(Cluster):
    """Official servers of one line, all hosted in one Java process.

    A clean stop of the broker is the official shutdown inside the process. SIGKILL ends the process, name servers included;
    they come back with the broker.
    """

    def __init__(
        self,
        slots: JvmSlots,
        line: str,
        name_servers: int = 1,
        broker_settings: Mapping[str, str] | None = None,
        store: Path | None = None,
    ) -> None:
        self.line = line
        self._slots = slots
        self._host: Puppet | None = None
        self._running: set[int] = set()
        self._properties: dict[str, str] = {}
        self._files: dict[str, str] = {}
        super().__init__(name_servers, broker_settings, store)

    def use(self, properties: Mapping[str, str], files: Mapping[str, str]) -> None:
        """Before the first start: system properties of the process, and files of its ``conf`` directory, name to content."""
        self._properties.update(properties)
        self._files.update(files)

    @property
    def provider(self) -> str:  # type: ignore[override]
        """Shown in test ids and tables."""
        return f"official-{self.line}"

    def _own_keys(self, port: int) -> dict[str, str]:
        keys = super()._own_keys(port)
        if self.line.startswith("4."):
            del keys["bindAddress"]  # that line listens on all addresses
        return keys

    @property
    def homes(self) -> list[str]:
        """Directories that servers may name in what they say of themselves."""
        return [*super().homes, *([] if self._host is None else [self._host.home])]

    def _hosted(self) -> Puppet:
        if self._host is None:
            self._host = Puppet(self._slots, self.line, properties=self._properties)
            for name, content in self._files.items():
                (Path(self._host.home) / "conf" / name).write_text(content)
            # Servers are needed until the cluster is closed.
            self._host.keep()
        return self._host

    def start_name_server(self, number: int) -> None:
        """Start one name server; returns once it listens."""
        config = self._write_namesrv_config(number)
        self._hosted().call("server.start_namesrv", name=f"ns{number}", config=str(config))
        self._running.add(number)

    def kill_name_server(self, number: int) -> None:
        """Close one name server with all its connections; the process stays, it hosts the others."""
        self._hosted().call("server.stop_namesrv", name=f"ns{number}")
        self._running.discard(number)

    def start_broker(self) -> None:
        """Start the broker on the cluster's store; returns once it listens."""
        self._hosted().call(
            "server.start_broker", name="broker", config=str(self._write_broker_config())
        )

    def stop_broker(self, how: signal.Signals) -> None:
        """SIGTERM: the official shutdown. SIGKILL: the whole process dies; `start_broker` brings the name servers back."""
        if how == signal.SIGTERM:
            self._hosted().call("server.stop_broker", name="broker")
            return
        self._close_host()

    def restart_broker(self, how: signal.Signals) -> None:
        """`stop_broker`, then start it again on the same ports and store."""
        name_servers = sorted(self._running)
        self.stop_broker(how)
        if self._host is None:
            for number in name_servers:
                self.start_name_server(number)
        self.start_broker()

    def _close_host(self) -> None:
        if self._host is not None:
            self._host.close()
            self._host = None
        self._running.clear()

    def _end_processes(self) -> None:
        self._close_host()

    def logs(self, lines: int = 60) -> str:
        """The last lines of what the servers wrote."""
        return "" if self._host is None else self._host.tail(lines)


def make_cluster(
    provider: str,
    slots: JvmSlots,
    name_servers: int = 1,
    broker_settings: Mapping[str, str] | None = None,
    store: Path | None = None,
) -> Cluster:
    """A cluster, not started, of ``ours`` or ``official-<line>``."""
    if provider == "ours":
        return OurCluster(name_servers, broker_settings, store)
    line = provider.removeprefix("official-")
    return OfficialCluster(slots, line, name_servers, broker_settings, store)


def make_broker(
    provider: str, slots: JvmSlots, settings: Mapping[str, str], store: Path | None = None
) -> Cluster:
    """A broker without name servers of its own, not started; its port for replicas is behind the one where it listens."""
    made = make_cluster(provider, slots, name_servers=0, broker_settings=settings, store=store)
    made.change_settings({"haListenPort": str(int(made.broker_address.split(":")[1]) + 1)})
    return made


def close_all(clusters: dict[str, Cluster]) -> None:
    """End the servers that are kept between tests, so that a cell with servers of its own has the machine."""
    while clusters:
        clusters.popitem()[1].close()


def _end_with_parent() -> None:
    """Have the kernel end this child when the test process dies, however it dies."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
