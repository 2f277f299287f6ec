"""How many timed messages of each topic wait? Stands for ``TimerMetrics``, kept in the file ``timermetrics``."""

from __future__ import annotations

from collections.abc import Callable

from txrocketmq.broker.topic_counts import TopicCounts
from txrocketmq.codec.bodies import TimerMetricsSerializeWrapper, decode_body, encode_body
from txrocketmq.interfaces import IConfigFiles

FILE_NAME = "timermetrics"


class TimerMetrics(TopicCounts[TimerMetricsSerializeWrapper]):
    """Counts by real topic."""

    counted = "timed messages"

    def __init__(self, files: IConfigFiles, now_ms: Callable[[], int]) -> None:
        super().__init__(files, FILE_NAME, TimerMetricsSerializeWrapper, now_ms)

    def take_over(self, body: bytes) -> None:
        """A slave: what the master counts.

        :raises BodyError: the body is none.
        """
        self._take(decode_body(TimerMetricsSerializeWrapper, body))
        self._is_changed = True

    def _take(self, wrapper: TimerMetricsSerializeWrapper) -> None:
        self._count_on(wrapper.timing_count, wrapper.data_version)

    def encode(self) -> bytes:
        """The table with its version, as it is kept and answered."""
        return encode_body(
            TimerMetricsSerializeWrapper(data_version=self.data_version, timing_count=self._table)
        )
