"""The official proxy of 5.4.0, and official clients that come through it: they pop in order, which push consumers of brokers do not."""

from __future__ import annotations

import json
import subprocess
import threading
from typing import NamedTuple, Self

from . import ports
from .cluster import Cluster
from .jvm import INTEROP, JavaProcess
from .waiting import wait_until

START_S = 180.0
CONSUMER = INTEROP / "proxy" / "FifoConsumer.java"


class Proxy:
    """A running proxy of a cluster; use as a context manager. ``interop/setup proxy`` fetches it."""

    def __init__(self, cluster: Cluster) -> None:
        self._ports = ports.reserve()
        settings = {
            "rocketMQClusterName": "InteropCluster",
            "proxyClusterName": "InteropCluster",
            "heartbeatSyncerTopicClusterName": "InteropCluster",
            "namesrvAddr": cluster.namesrv,
            "grpcServerPort": self._ports.listen,
            "remotingListenPort": self._ports.listen - 1,
            "localServeAddr": "127.0.0.1",
        }
        path = cluster.home / "proxy.json"
        path.write_text(json.dumps(settings))
        words = ("-n", cluster.namesrv, "-pc", str(path), "-pm", "cluster")
        self._java = JavaProcess(
            "proxy", {}, main=("org.apache.rocketmq.proxy.ProxyStartup", *words)
        )

    @property
    def endpoint(self) -> str:
        """Where gRPC clients find it."""
        return f"127.0.0.1:{self._ports.listen}"

    def __enter__(self) -> Self:
        try:
            wait_until(
                lambda: (
                    self._java.process.poll() is not None
                    or ports.accepts_connections(self._ports.listen)
                ),
                "the proxy listens",
                START_S,
                pause_s=0.3,
            )
            assert self._java.process.poll() is None, "the proxy ended"
        except AssertionError as failure:
            failure.add_note(self._java.tail())
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._java.end()
        self._java.remove_home()
        self._ports.release()


class Delivery(NamedTuple):
    """One message, as its consumer got it; the first try is 1."""

    seq: int
    attempt: int
    digest: str
    received_ms: int


class FifoConsumer:
    """An official push consumer of a proxy in a process of its own; of each ``fail_every`` messages the last one fails once."""

    def __init__(self, proxy: Proxy, group: str, topic: str, fail_every: int) -> None:
        main = (str(CONSUMER), proxy.endpoint, group, topic, str(fail_every))
        self._java = JavaProcess("modern", {}, main=main)
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._java.process.stdout is not None
        for line in self._java.process.stdout:
            self._lines.append(line.decode().strip())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kill()
        self._java.remove_home()

    def deliveries(self) -> list[Delivery]:
        """All that came, in order of receipt."""
        words = [line.split() for line in list(self._lines)]
        return [Delivery(int(w[0]), int(w[1]), w[2], int(w[3])) for w in words if len(w) == 4]

    def wait_for_all(
        self, due: set[int], timeout_s: float = 180.0, *, attempt: int = 1
    ) -> list[Delivery]:
        """Wait until all of these came, for the second time or later if that is asked for; all that came.

        AssertionError when they do not in time, or the process ends.
        """

        def missing() -> set[int]:
            assert self._java.process.poll() is None, "the consumer ended"
            return due - {one.seq for one in self.deliveries() if one.attempt >= attempt}

        try:
            wait_until(
                lambda: not missing(),
                f"{len(due)} messages through the proxy",
                timeout_s,
                pause_s=0.2,
            )
        except AssertionError as failure:
            failure.add_note(f"of {sorted(due)[:10]}\n{self._java.tail()}")
            raise
        return self.deliveries()

    def kill(self) -> None:
        """End the process at once, with what it holds."""
        if self._java.process.poll() is None:
            self._java.process.kill()
        try:
            self._java.process.wait(30)
        except subprocess.TimeoutExpired:
            self._java.tail()
        self._reader.join(10)
