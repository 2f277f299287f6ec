"""How fast does a consumer pull and consume? Counts of the last minute and hour, for each topic.

Stands for ``ConsumerStatsManager``. Counters are plain integers; they are sampled every 10 s and every 10 min, and rates are differences of
samples, as the official ones.
"""

from __future__ import annotations

from collections import deque

from txrocketmq.codec.bodies.clients import ConsumeStatus

SAMPLE_S = 10.0
MINUTE_SAMPLES = 7
HOUR_EVERY = 60
HOUR_SAMPLES = 7


class TopicCounts:
    """Running sums of one topic; whoever counts adds to them.

    :ivar pull_rt: ms that answered pulls took, all together; ``pulls`` counts them.
    :ivar consume_rt: ms that handlers took, all together; ``consumes`` counts their calls.
    """

    __slots__ = (
        "_hour",
        "_minute",
        "consume_failed",
        "consume_ok",
        "consume_rt",
        "consumes",
        "pull_rt",
        "pulled",
        "pulls",
    )

    def __init__(self, now_s: float) -> None:
        self.pulls = 0
        self.pull_rt = 0.0
        self.pulled = 0
        self.consumes = 0
        self.consume_rt = 0.0
        self.consume_ok = 0
        self.consume_failed = 0
        self._minute = deque([self._sample(now_s)], maxlen=MINUTE_SAMPLES)
        self._hour = deque([self._sample(now_s)], maxlen=HOUR_SAMPLES)

    def _sample(self, now_s: float) -> tuple[float, ...]:
        return (
            now_s,
            self.pulls,
            self.pull_rt,
            self.pulled,
            self.consumes,
            self.consume_rt,
            self.consume_ok,
            self.consume_failed,
        )

    def sample(self, now_s: float, is_hourly: bool) -> None:
        """Remember how much was counted by now."""
        self._minute.append(self._sample(now_s))
        if is_hourly:
            self._hour.append(self._sample(now_s))

    def status(self, now_s: float) -> ConsumeStatus:
        """The figures of the last minute; the handler's time of the last hour where nothing was consumed in the last minute."""
        now = self._sample(now_s)
        minute = [new - old for new, old in zip(now, self._minute[0], strict=True)]
        hour = [new - old for new, old in zip(now, self._hour[0], strict=True)]
        seconds = minute[0]
        consume_rt = _ratio(minute[5], minute[4]) or _ratio(hour[5], hour[4])
        return ConsumeStatus(
            pull_rt=_ratio(minute[2], minute[1]),
            pull_tps=_ratio(minute[3], seconds),
            consume_rt=consume_rt,
            consume_oktps=_ratio(minute[6], seconds),
            consume_failed_tps=_ratio(minute[7], seconds),
            consume_failed_msgs=int(hour[7]),
        )


class ConsumerStats:
    """The counts of all topics of a group."""

    def __init__(self, now_s: float) -> None:
        self._topics: dict[str, TopicCounts] = {}
        self._samples = 0
        self._now_s = now_s

    def of(self, topic: str) -> TopicCounts:
        """The counts of a topic."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TopicCounts(self._now_s)
        return found

    def sample(self, now_s: float) -> None:
        """To be called every `SAMPLE_S`."""
        self._now_s = now_s
        self._samples += 1
        for counts in self._topics.values():
            counts.sample(now_s, self._samples % HOUR_EVERY == 0)

    def status(self, topic: str, now_s: float) -> ConsumeStatus:
        """The figures of a topic; zeros where nothing was counted."""
        found = self._topics.get(topic)
        return ConsumeStatus() if found is None else found.status(now_s)


def _ratio(amount: float, per: float) -> float:
    return amount / per if per > 0 else 0.0
