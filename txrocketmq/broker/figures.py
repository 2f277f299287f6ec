"""What does a figure look like that is kept over a minute, an hour and a day?

Stands for ``StatsSnapshot`` and the sampling periods of ``StatsItem``.
"""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """One of the three times over which figures are kept.

    :ivar period_s: seconds between two samples.
    :ivar samples: how many are kept.
    """

    period_s: float
    samples: int


MINUTE = Span(10.0, 7)
HOUR = Span(600.0, 7)
DAY = Span(3600.0, 25)


class Snapshot(NamedTuple):
    """A figure over a span of time.

    :ivar total: how much it was (``sum``).
    :ivar rate: of that, each second (``tps``).
    :ivar average: of that, each call (``avgpt``).
    """

    total: int
    rate: float
    average: float


class Figures(NamedTuple):
    """One figure over the last minute, hour and day."""

    minute: Snapshot
    hour: Snapshot
    day: Snapshot


NOTHING = Snapshot(0, 0.0, 0.0)
