"""How many transactions of each topic are open, and how did the others end?

Stands for ``TransactionMetrics``, kept in the file ``transactionMetrics``, and the transaction counters of ``BrokerMetricsManager``.
"""

from __future__ import annotations

from collections.abc import Callable

from txrocketmq.broker.topic_counts import TopicCounts
from txrocketmq.codec.bodies import TransactionMetricsSerializeWrapper, encode_body
from txrocketmq.interfaces import IConfigFiles

FILE_NAME = "transactionMetrics"


class OpenTransactions(TopicCounts[TransactionMetricsSerializeWrapper]):
    """Counts half messages by their real topic.

    :ivar committed, rolled_back: how many ended so since the start, by topic.
    :ivar given_up: how many were given up since the start.
    :ivar checks: how often a producer was asked since the start.
    """

    counted = "transactions"

    def __init__(self, files: IConfigFiles, now_ms: Callable[[], int]) -> None:
        super().__init__(files, FILE_NAME, TransactionMetricsSerializeWrapper, now_ms)
        self.committed: dict[str, int] = {}
        self.rolled_back: dict[str, int] = {}
        self.given_up = 0
        self.checks = 0

    def total(self) -> int:
        """Open transactions of all topics."""
        return sum(metric.count for metric in self._table.values())

    def _take(self, wrapper: TransactionMetricsSerializeWrapper) -> None:
        self._count_on(wrapper.transaction_count, wrapper.data_version)

    def encode(self) -> bytes:
        """See `TopicCounts.encode`."""
        return encode_body(
            TransactionMetricsSerializeWrapper(
                transaction_count=self._table, data_version=self.data_version
            )
        )
