"""May the limits of groups that read cold data rise, and must they fall?

Stands for ``ColdCtrStrategy``: ``SimpleColdCtrStrategy`` and ``PIDAdaptiveColdCtrStrategy``. Asked at the end of each period, for what all
groups together read in it.
"""

from __future__ import annotations

from collections import deque

from txrocketmq.config.schema import BrokerConfig

KEPT = 10
"""Periods that the regulator looks back; before so many it decides nothing."""
KP, KI, KD = 0.5, 0.3, 0.2
EXPECTED_SHARE = 0.8
"""Of `globalColdReadThreshold`: what all groups together should read."""


class Strategy:
    """The simple one: limits rise at will, and fall when all groups together read too much."""

    def collect(self, cold_bytes: int) -> None:
        """A period ends, in which all groups together read that much."""

    def may_rise(self) -> bool:
        """Whether a group that had its share gets a larger one."""
        return True

    def must_fall(self, is_over: bool) -> bool:
        """Whether the highest limits are lowered.

        :param is_over: more than `globalColdReadThreshold` was read.
        """
        return is_over


class RegulatorStrategy(Strategy):
    """The regulator (`usePIDColdCtrStrategy`): proportional, integral and derivative parts of how much was left of what is expected.

    :param expected_bytes: what all groups together should read in a period.
    """

    def __init__(self, expected_bytes: int) -> None:
        self._expected_bytes = expected_bytes
        self._left: deque[int] = deque(maxlen=KEPT)

    def collect(self, cold_bytes: int) -> None:
        """See `Strategy`."""
        self._left.append(self._expected_bytes - cold_bytes)

    def factor(self) -> float:
        """Above zero: there is room; below: too much is read; zero: not known yet."""
        left = self._left
        if len(left) < KEPT:
            return 0.0
        return KP * left[-1] + KI * sum(left) + KD * (left[-1] - left[-2])

    def may_rise(self) -> bool:
        """See `Strategy`."""
        return self.factor() > 0

    def must_fall(self, is_over: bool) -> bool:
        """See `Strategy`."""
        return self.factor() < 0


def make_strategy(config: BrokerConfig) -> Strategy:
    """The configured one."""
    if config.use_pid_cold_ctr_strategy:
        return RegulatorStrategy(int(config.global_cold_read_threshold * EXPECTED_SHARE))
    return Strategy()
