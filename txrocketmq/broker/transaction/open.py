"""How many transactions of each topic are open, and how did the others end?

Stands for ``TransactionMetrics``, kept in the file ``transactionMetrics``, and the transaction counters of ``BrokerMetricsManager``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.broker.config_files import PersistedTable
from txrocketmq.codec.bodies import (
    Metric,
    TransactionMetricsSerializeWrapper,
    decode_body,
    encode_body,
)
from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IConfigFiles
from txrocketmq.model.topic import DataVersion

FILE_NAME = "transactionMetrics"


class OpenTransactions:
    """Counts half messages by their real topic.

    :ivar committed, rolled_back: how many ended so since the start, by topic.
    :ivar given_up: how many were given up since the start.
    :ivar checks: how often a producer was asked since the start.
    """

    _log = Logger()

    def __init__(self, files: IConfigFiles, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._table: dict[str, Metric] = {}
        self._is_changed = False
        self.committed: dict[str, int] = {}
        self.rolled_back: dict[str, int] = {}
        self.given_up = 0
        self.checks = 0
        self.data_version = DataVersion(timestamp=now_ms())
        self.file = PersistedTable(files, FILE_NAME, self._encode)

    def load(self) -> None:
        """Read ``transactionMetrics``. They are but figures: what cannot be read is left out, and the log says so."""
        try:
            wrapper = self.file.load(partial(decode_body, TransactionMetricsSerializeWrapper))
        except StoreError as error:
            self._log.error("transactions are counted from zero: {error}", error=error)
            return
        if wrapper is None:
            return
        self._table = wrapper.transaction_count or {}
        if wrapper.data_version is not None:
            self.data_version.assign(wrapper.data_version)

    def count(self, topic: str) -> int:
        """Open transactions of a topic."""
        metric = self._table.get(topic)
        return 0 if metric is None else metric.count

    def total(self) -> int:
        """Open transactions of all topics."""
        return sum(metric.count for metric in self._table.values())

    def add(self, topic: str, number: int) -> None:
        """Transactions began (positive) or ended (negative)."""
        metric = self._table.get(topic)
        if metric is None:
            metric = self._table[topic] = Metric()
        metric.count += number
        metric.time_stamp = self._now_ms()
        self.data_version.next(metric.time_stamp)
        self._is_changed = True

    def topic_deleted(self, topic: str) -> None:
        """Forget a topic."""
        if self._table.pop(topic, None) is not None:
            self._is_changed = True

    def save_if_changed(self) -> None:
        """Save when something changed since the last time."""
        if self._is_changed:
            self._is_changed = False
            self.file.changed()

    def save(self) -> Deferred[None]:
        """Save now; fires when it is on disk."""
        self._is_changed = False
        return self.file.save()

    def _encode(self) -> bytes:
        return encode_body(
            TransactionMetricsSerializeWrapper(
                transaction_count=self._table, data_version=self.data_version
            )
        )
