"""How many timed messages of each topic wait? Stands for ``TimerMetrics``, kept in the file ``timermetrics``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.broker.config_files import PersistedTable
from txrocketmq.codec.bodies import Metric, TimerMetricsSerializeWrapper, decode_body, encode_body
from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IConfigFiles
from txrocketmq.model.topic import DataVersion

FILE_NAME = "timermetrics"


class TimerMetrics:
    """Counts by real topic."""

    _log = Logger()

    def __init__(self, files: IConfigFiles, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._table: dict[str, Metric] = {}
        self._is_changed = False
        self.data_version = DataVersion(timestamp=now_ms())
        self.file = PersistedTable(files, FILE_NAME, self.encode)

    def load(self) -> None:
        """Read the file. They are but figures: what cannot be read is left out, and the log says so."""
        try:
            wrapper = self.file.load(partial(decode_body, TimerMetricsSerializeWrapper))
        except StoreError as error:
            self._log.error("timed messages are counted from zero: {error}", error=error)
            return
        if wrapper is not None:
            self._take(wrapper)

    def take_over(self, body: bytes) -> None:
        """A slave: what the master counts.

        :raises BodyError: the body is none.
        """
        self._take(decode_body(TimerMetricsSerializeWrapper, body))
        self._is_changed = True

    def _take(self, wrapper: TimerMetricsSerializeWrapper) -> None:
        self._table = wrapper.timing_count or {}
        if wrapper.data_version is not None:
            self.data_version.assign(wrapper.data_version)

    def add(self, topic: str | None, change: int) -> None:
        """So many more wait; nothing for a message that names no topic."""
        if not topic:
            return
        metric = self._table.setdefault(topic, Metric())
        metric.count += change
        metric.time_stamp = now_ms = self._now_ms()
        self.data_version.next(now_ms)
        self._is_changed = True

    def count(self, topic: str) -> int:
        """How many wait for a topic."""
        metric = self._table.get(topic)
        return 0 if metric is None else metric.count

    def topic_deleted(self, topic: str) -> None:
        """Forget a topic."""
        if self._table.pop(topic, None) is not None:
            self._is_changed = True

    def save_if_changed(self) -> None:
        """Save when something was counted since the last time."""
        if self._is_changed:
            self._is_changed = False
            self.file.changed()

    def save(self) -> Deferred[None]:
        """Save now; fires when it is on disk."""
        self._is_changed = False
        return self.file.save()

    def encode(self) -> bytes:
        """The table with its version, as it is kept and answered."""
        return encode_body(
            TimerMetricsSerializeWrapper(data_version=self.data_version, timing_count=self._table)
        )
