"""How many of something does each topic have? Figures that are kept in a file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from twisted.logger import Logger

from txrocketmq.broker.config_files import PersistedTable, SavedInTurns
from txrocketmq.codec.bodies import Metric, decode_body
from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IConfigFiles
from txrocketmq.model.bean import Bean
from txrocketmq.model.topic import DataVersion

W = TypeVar("W", bound=Bean)


class TopicCounts(SavedInTurns, Generic[W]):
    """Counts by real topic.

    :param wrapper: the class of what the file holds.
    :ivar counted: what is counted, for the log.
    :ivar data_version: the table's version; goes up with each change.
    """

    _log = Logger()
    counted = ""

    def __init__(
        self, files: IConfigFiles, file_name: str, wrapper: type[W], now_ms: Callable[[], int]
    ) -> None:
        self._wrapper = wrapper
        self._now_ms = now_ms
        self._table: dict[str, Metric] = {}
        self.data_version = DataVersion(timestamp=now_ms())
        self.file = PersistedTable(files, file_name, self.encode)

    def load(self) -> None:
        """Read the file. They are but figures: what cannot be read is left out, and the log says so."""
        try:
            wrapper = self.file.load(partial(decode_body, self._wrapper))
        except StoreError as error:
            self._log.error(
                "{counted} are counted from zero: {error}", counted=self.counted, error=error
            )
            return
        if wrapper is not None:
            self._take(wrapper)

    def _take(self, wrapper: W) -> None:
        """Hand what the file holds to `_count_on`."""
        raise NotImplementedError

    def _count_on(self, table: dict[str, Metric] | None, version: DataVersion | None) -> None:
        self._table = table or {}
        if version is not None:
            self.data_version.assign(version)

    def add(self, topic: str | None, change: int) -> None:
        """So many more, or fewer; nothing for a message that names no topic."""
        if not topic:
            return
        metric = self._table.setdefault(topic, Metric())
        metric.count += change
        metric.time_stamp = now_ms = self._now_ms()
        self.data_version.next(now_ms)
        self._is_changed = True

    def count(self, topic: str) -> int:
        """How many a topic has."""
        metric = self._table.get(topic)
        return 0 if metric is None else metric.count

    def topic_deleted(self, topic: str) -> None:
        """Forget a topic."""
        if self._table.pop(topic, None) is not None:
            self._is_changed = True

    def encode(self) -> bytes:
        """The table with its version, as it is kept."""
        raise NotImplementedError
