"""A whole cluster on one machine: name servers, masters and their slaves, each a process of its own, until Ctrl-C or SIGTERM.

    python scripts/cluster.py                       # 2 name servers, 2 masters with 2 slaves each
    python scripts/cluster.py --java DIR --official broker-a-1 --official broker-b-0

With --java, the named members are official brokers, whose jars are in DIR. Everything is kept in the directory `cluster`: configuration
files, stores, logs, process ids. A member that ends is told and stays down, or is started again with --restart.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet import defer, reactor, task
from twisted.internet.protocol import ProcessProtocol

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from txrocketmq.codec.bodies import ClusterInfo, decode_body
from txrocketmq.errors import RocketMQError
from txrocketmq.model.codes import RequestCode
from txrocketmq.remoting.client import RemotingClient

PORTS_A_BROKER = 10
HIGHEST_PORT = 65535
GROUPS = "abcdefghijklmnopqrstuvwxyz"
PATIENCE_S = 120
RESTART_S = 2
KILL_AFTER_S = 60
INTO_LOG = 'exec "$@" >>"$0" 2>&1'
TWISTD = "from twisted.scripts.twistd import run; run()"
LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="file"/></root>
</configuration>
"""


def say(text: str) -> None:
    print(text, flush=True)


class Member(ProcessProtocol):
    """One server: its command, and its process while it runs."""

    def __init__(
        self, home: Path, name: str, command: list[str], ended: Callable[[Member], None]
    ) -> None:
        self.home = home
        self.name = name
        self.command = command
        self.pid_file = home / f"{name}.pid"
        self._ended = ended
        self._over: defer.Deferred[None] | None = None

    def start(self) -> None:
        log = str(self.home / f"{self.name}.log")
        self._over = defer.Deferred()
        process = reactor.spawnProcess(
            self,
            "/bin/sh",
            ["sh", "-c", INTO_LOG, log, *self.command],
            env=None,
            path=str(self.home),
        )
        self.pid_file.write_text(f"{process.pid}\n")
        say(f"{self.name} is started, process {process.pid}")

    def processEnded(self, reason: Any) -> None:
        over, self._over = self._over, None
        self.pid_file.unlink(missing_ok=True)
        say(f"{self.name} ended: {self._how(reason.value)}")
        self._ended(self)
        if over is not None:
            over.callback(None)

    def _how(self, end: Any) -> str:
        """A member that ended with an error said why in the last line of its log."""
        if end.signal is not None:
            return signal.Signals(end.signal).name
        if not end.exitCode:
            return "in order"
        lines = (self.home / f"{self.name}.log").read_text(errors="replace").splitlines()
        return f"exit code {end.exitCode}: {' '.join(lines[-1:])}"

    def runs_elsewhere(self) -> str:
        """The process id, if another command has this member running."""
        try:
            pid = self.pid_file.read_text().strip()
            os.kill(int(pid), 0)
        except (OSError, ValueError):
            return ""
        return pid

    def stop(self) -> defer.Deferred[None]:
        """Fires when it is over: in order, or after a minute by force."""
        if self._over is None:
            return defer.succeed(None)
        self.transport.signalProcess("TERM")
        force = reactor.callLater(KILL_AFTER_S, self.transport.signalProcess, "KILL")
        return self._over.addBoth(lambda _: force.cancel() if force.active() else None)


class Cluster:
    """All of them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.home = Path(options.directory).resolve()
        try:
            self.home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SystemExit(f"cannot use {self.home}: {(error.strerror or '').lower()}") from None
        self.is_stopping = self.is_up = self.has_failed = False
        first = options.base_port
        self.addresses = [f"127.0.0.1:{first + n}" for n in range(options.name_servers)]
        self.name_servers = [self._name_server(n) for n in range(options.name_servers)]
        #: By name of the group, then by broker id.
        self.brokers: list[Member] = []
        port = first
        for letter in GROUPS[: options.groups]:
            for broker_id in range(options.slaves + 1):
                port += PORTS_A_BROKER
                self.brokers.append(self._broker(f"broker-{letter}", broker_id, port))
        unknown = set(options.official) - {member.name for member in self.brokers}
        if unknown:
            raise SystemExit(f"there is no {', '.join(sorted(unknown))} in this cluster")
        for member in (*self.name_servers, *self.brokers):
            if pid := member.runs_elsewhere():
                raise SystemExit(
                    f"a cluster runs in {self.home} already: {member.name} is process {pid}"
                    f" (if that is something else, remove {member.pid_file})"
                )

    def _name_server(self, number: int) -> Member:
        name = f"namesrv-{number + 1}"
        port = self.options.base_port + number
        command = self._twistd(
            "rocketmq-namesrv",
            *("--set", f"listenPort={port}"),
            *("--set", f"kvConfigPath={self.home / name}.json"),
        )
        return Member(self.home, name, command, self._ended)

    def _broker(self, group: str, broker_id: int, port: int) -> Member:
        name = f"{group}-{broker_id}"
        keys = {
            "brokerClusterName": "Cluster",
            "brokerName": group,
            "brokerId": broker_id,
            "brokerRole": "SLAVE" if broker_id else "ASYNC_MASTER",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": port,
            "haListenPort": port + 1,
            "namesrvAddr": ";".join(self.addresses),
            "storePathRootDir": self.home / name,
            "storePathCommitLog": self.home / name / "commitlog",
            "slaveReadEnable": "true",
            **dict(self.options.set),
        }
        conf = self.home / f"{name}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        command = self._twistd("rocketmq-broker", "-c", str(conf))
        if name in self.options.official:
            command = self._java(name, conf)
        return Member(self.home, name, command, self._ended)

    def _twistd(self, *arguments: str) -> list[str]:
        return [sys.executable, "-c", TWISTD, "-n", "--pidfile=", *arguments]

    def _java(self, name: str, conf: Path) -> list[str]:
        if not self.options.java:
            raise SystemExit("official brokers need --java, the directory of their jars")
        logback = self.home / "logback.xml"
        logback.write_text(LOGBACK)
        return [
            "java",
            "-Xmx512m",
            f"-Duser.home={self.home / name}",
            f"-Drocketmq.home.dir={self.home}",
            f"-Drmq.logback.configurationFile={logback}",
            "-cp",
            f"{self.options.java}/*",
            "org.apache.rocketmq.broker.BrokerStartup",
            "-c",
            str(conf),
        ]

    def _ended(self, member: Member) -> None:
        if self.is_stopping:
            return
        if self.options.restart:
            reactor.callLater(RESTART_S, lambda: self.is_stopping or member.start())
        elif not self.is_up:
            # Whoever has its port may answer in its place, and nothing would be seen of it.
            say("the cluster cannot be had; ending the others")
            self.has_failed = True
            self.end()

    async def run(self) -> None:
        for member in (*self.name_servers, *self.brokers):
            member.start()
        client = RemotingClient(reactor)
        try:
            for address in self.addresses:
                await self._wait_registered(client, address)
        finally:
            await client.stop()
        if not self.is_stopping:
            self.is_up = True
            say(f"the cluster is up: {len(self.brokers)} brokers at {';'.join(self.addresses)}")

    async def _wait_registered(self, client: RemotingClient, address: str) -> None:
        deadline = reactor.seconds() + PATIENCE_S
        while not self.is_stopping:
            try:
                answer = await client.request(
                    address, RequestCode.GET_BROKER_CLUSTER_INFO, None, b"", timeout_ms=3000
                )
                table = decode_body(ClusterInfo, answer.body).broker_addr_table or {}
                if sum(len(data.broker_addrs) for data in table.values()) == len(self.brokers):
                    return
            except RocketMQError:
                pass
            if reactor.seconds() > deadline:
                say(f"not all brokers are registered at {address} yet: see {self.home}/*.log")
                deadline += PATIENCE_S
            await task.deferLater(reactor, 0.2)

    async def stop(self) -> None:
        """Brokers first, so that they can leave their name servers."""
        for members in (self.brokers, self.name_servers):
            await defer.DeferredList([member.stop() for member in members])
        say("all have ended")

    def end(self) -> None:
        """Stop all, and the reactor."""
        if not self.is_stopping:
            self.is_stopping = True
            stopping = defer.Deferred.fromCoroutine(self.stop())
            stopping.addBoth(lambda _: reactor.stop())


def setting(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value


def jars(text: str) -> Path:
    path = Path(text).resolve()
    if not list(path.glob("*.jar")):
        raise argparse.ArgumentTypeError(f"there are no jars in {path}")
    return path


def whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {low} to {high}")
        return int(text)

    return read


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("-d", "--directory", default="cluster", help="where all files are (cluster)")
    add(
        "--base-port",
        type=whole(1, HIGHEST_PORT),
        default=9876,
        help="of the first name server; brokers follow in tens",
    )
    add("--name-servers", type=whole(1, 8), default=2)
    add("--groups", type=whole(1, len(GROUPS)), default=2, help="masters")
    add("--slaves", type=whole(0, 99), default=2, help="of each master")
    add(
        "--set",
        action="append",
        type=setting,
        default=[],
        metavar="KEY=VALUE",
        help="of all brokers",
    )
    add("--java", type=jars, metavar="DIR", help="jars of an official release")
    add("--official", action="append", default=[], metavar="NAME", help="this member is official")
    add("--restart", action="store_true", help="start again what ends")
    options = parser.parse_args(words)
    highest = options.base_port + PORTS_A_BROKER * options.groups * (options.slaves + 1) + 1
    if highest > HIGHEST_PORT:
        parser.error(f"the last broker would take port {highest}, the highest is {HIGHEST_PORT}")
    return options


def main() -> None:
    cluster = Cluster(parse(sys.argv[1:]))

    def begin() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: reactor.callFromThread(cluster.end))
        running = defer.Deferred.fromCoroutine(cluster.run())
        running.addErrback(lambda failure: (say(failure.getTraceback()), cluster.end()))

    reactor.callWhenRunning(begin)
    reactor.run()
    sys.exit(cluster.has_failed)


if __name__ == "__main__":
    main()
