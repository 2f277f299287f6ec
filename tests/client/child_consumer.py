"""Runs `real_consumer` in a child process, and collects what it got."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Self

from interop.harness.clients import Row

PROGRAM = Path(__file__).with_name("real_consumer.py")
ROOT = PROGRAM.parents[2]
PATIENCE_S = 60.0


class OurConsumer:
    """One consumer of ours; stopped in good order at the end of its context."""

    def __init__(
        self, namesrv: str, group: str, topic: str, kind: str = "push", **told: Any
    ) -> None:
        told.update(namesrv=namesrv, group=group, topic=topic, kind=kind)
        environment = told.pop("environment", {})
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the consumer
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        )
        self._rows: list[Row] = []
        self._news = threading.Condition()
        self.client_id = ""
        self.queues: list[tuple[str, int]] = []
        self.has_stopped = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._until(lambda: bool(self.client_id), "did not start")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            found = json.loads(line)
            with self._news:
                if isinstance(found, list):
                    self._rows.append(Row(*found))
                else:
                    self.client_id = found.get("client_id", self.client_id)
                    if "queues" in found:
                        self.queues = sorted((broker, number) for broker, number in found["queues"])
                    self.has_stopped = found.get("stopped", False)
                self._news.notify_all()

    def _until(self, wanted: Any, complaint: str, patience_s: float = PATIENCE_S) -> None:
        with self._news:
            deadline = time.monotonic() + patience_s
            while not wanted():
                left = deadline - time.monotonic()
                if left <= 0 or self._process.poll() is not None:
                    raise AssertionError(
                        f"our consumer {complaint}; {len(self._rows)} came: {self.log()}"
                    )
                self._news.wait(min(left, 1.0))

    def log(self) -> str:
        """What it wrote about itself."""
        self._log.seek(0)
        return self._log.read()[-4000:]

    def rows(self) -> list[Row]:
        """All that came, in order of receipt."""
        with self._news:
            return list(self._rows)

    def wait(self, at_least: int, patience_s: float = PATIENCE_S) -> list[Row]:
        """Wait until that many different messages came; all that came."""

        def enough() -> bool:
            return len({row.seq for row in self._rows}) >= at_least

        self._until(enough, f"did not get {at_least} messages", patience_s)
        return self.rows()

    def wait_rows(self, at_least: int) -> list[Row]:
        """Wait until so many came, counting those that came again; all that came."""
        self._until(lambda: len(self._rows) >= at_least, f"got less than {at_least} in all")
        return self.rows()

    def wait_for(self, seqs: Collection[int]) -> list[Row]:
        """Wait until all of these came; all that came."""
        due = set(seqs)
        self._until(lambda: due <= {row.seq for row in self._rows}, "missed some")
        return self.rows()

    def wait_queues(self, wanted: Collection[tuple[str, int]]) -> None:
        """Wait until it holds exactly these queues."""
        due = sorted(wanted)
        self._until(lambda: self.queues == due, f"holds {self.queues}, not {due}")

    def stop(self) -> None:
        """End it in good order."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.kill()
            self._reader.join(5)
            assert self.has_stopped, self.log()

    def kill(self) -> None:
        """End it without warning."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exc_info: object) -> None:
        try:
            if self._process.poll() is None:
                if kind is None:
                    self.stop()
                else:
                    self.kill()
        finally:
            self._log.close()
            assert self._process.stdout is not None
            self._process.stdout.close()
