"""How fast do messages come and go, and how long do sends take?

Stands for ``StoreStatsService``: rates over ten seconds, a minute and ten minutes, and the times of the sends of the last minute. Who
sends or pulls adds to plain numbers; a sweep copies them once a second.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import NamedTuple

RATE_SPANS_S = (10, 60, 600)
ROTATION_S = 60

#: Upper ends in ms of the classes that the official line of times has, with their names.
_CLASS_ENDS = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_CLASS_NAMES = (
    *("<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s"),
    *("1~2s", "2~3s", "3~4s", "4~5s", "5~10s", "10s~"),
)


def _bucket_ends() -> tuple[int, ...]:
    ends: list[int] = []
    end = 0
    for step, count in ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9)):
        for _ in range(count):
            end += step
            ends.append(end)
    return tuple(ends)


#: Upper ends in ms of the classes from which shares are read; beyond the last one lies one more.
BUCKET_ENDS = _bucket_ends()


class Totals(NamedTuple):
    """What was counted up to one moment (wall-clock ms)."""

    now_ms: int
    put: int
    found: int
    missed: int
    transferred: int


class Throughput:
    """Counts reads and the times of sends.

    :ivar instant_puts: sends of this minute that took less than a millisecond; the others go to `put_took`.
    :ivar failed_puts: messages that the store did not take, ever.
    :ivar busy: sends that were answered SYSTEM_BUSY, by the official word for the cause.
    :ivar found, missed: reads that found messages, and that found none.
    :ivar transferred: messages handed out.
    :ivar put_max_ms, get_max_ms: the longest send and read ever.
    """

    def __init__(self) -> None:
        self.instant_puts = 0
        self.failed_puts = 0
        self.busy: dict[str, int] = {}
        self.found = self.missed = self.transferred = 0
        self.put_max_ms = self.get_max_ms = 0
        self._slow_puts: dict[int, int] = {}
        self._last_minute: dict[int, int] | None = None
        self._samples: deque[Totals] = deque(maxlen=RATE_SPANS_S[-1] + 1)
        self._rotated_ms = 0

    def put_took(self, milliseconds: int) -> None:
        """A send took longer than a millisecond."""
        self._slow_puts[milliseconds] = self._slow_puts.get(milliseconds, 0) + 1
        self.put_max_ms = max(self.put_max_ms, milliseconds)

    def count_busy(self, remark: str) -> None:
        """A send was answered SYSTEM_BUSY; the remark begins with the cause in brackets."""
        cause = remark[1 : remark.find("]")] if remark.startswith("[") else "OTHER"
        self.busy[cause] = self.busy.get(cause, 0) + 1

    def get_took(self, milliseconds: int) -> None:
        """A read had to wait for the device."""
        self.get_max_ms = max(self.get_max_ms, milliseconds)

    def sample(self, now_ms: int, put: int) -> None:
        """Once a second.

        :param put: messages put since the start.
        """
        self._samples.append(Totals(now_ms, put, self.found, self.missed, self.transferred))
        if not self._rotated_ms:
            self._rotated_ms = now_ms
        elif now_ms > self._rotated_ms + ROTATION_S * 1000:
            self._rotated_ms = now_ms
            self._last_minute = {0: self.instant_puts, **self._slow_puts}
            self.instant_puts = 0
            self._slow_puts = {}

    # ----------------------------------------------------------------- figures as officially spelt

    def rates(self, figure: str) -> str:
        """A figure's rates over the three spans; empty where the broker does not run long enough.

        :param figure: the name of a field of `Totals`.
        """
        rates = (self._rate(figure, span) for span in RATE_SPANS_S)
        return " ".join("" if rate is None else repr(rate) for rate in rates)

    def total_read_rates(self) -> str:
        """Reads a second, whether they found something or not."""
        return " ".join(
            repr((self._rate("found", span) or 0.0) + (self._rate("missed", span) or 0.0))
            for span in RATE_SPANS_S
        )

    def _rate(self, figure: str, span_s: int) -> float | None:
        samples = self._samples
        if len(samples) <= span_s:
            return None
        first, last = samples[-span_s - 1], samples[-1]
        span_ms = last.now_ms - first.now_ms
        count: int = getattr(last, figure) - getattr(first, figure)
        return count / span_ms * 1000 if span_ms > 0 else 0.0

    def put_times(self) -> str:
        """How long the sends of the last minute took; ``null`` in the first minute, as officially."""
        if self._last_minute is None:
            return "null"
        counts = [0] * len(_CLASS_NAMES)
        for took, count in self._last_minute.items():
            place = 0 if took <= 0 else max(1, bisect_left(_CLASS_ENDS, took + 1))
            counts[place] += count
        return "".join(
            f"[{name}]:{count} " for name, count in zip(_CLASS_NAMES, counts, strict=True)
        )

    def put_share(self, share: float) -> str:
        """Milliseconds within which this share of the last minute's sends was done."""
        counts = [0] * (len(BUCKET_ENDS) + 1)
        for took, count in (self._last_minute or {}).items():
            counts[bisect_left(BUCKET_ENDS, max(1, took))] += count
        wanted = int(sum(counts) * share)
        passed = 0
        for place, count in enumerate(counts[:-1]):
            if wanted <= passed + count:
                start = BUCKET_ENDS[place - 1] if place else 0
                part = (wanted - passed) / count if count else 0.0
                return f"{start + (BUCKET_ENDS[place] - start) * part:.2f}"
            passed += count
        return f"{BUCKET_ENDS[-1]:.2f}"
