"""Which brokers are slow or gone, and for how long are they avoided? A table, told the time.

Stands for ``MQFaultStrategy`` and ``LatencyFaultToleranceImpl``. Off unless ``send_latency_enable``: avoiding queues would disturb ordered
sends. A broker that failed counts as one that took 10 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from txrocketmq.client.routes import PublishInfo
from txrocketmq.model.message import MessageQueue

LATENCY_MAX_MS = (50, 100, 550, 1800, 3000, 5000, 15000)
NOT_AVAILABLE_MS = (0, 0, 2000, 5000, 6000, 10000, 30000)
FAILED_LATENCY_MS = 10_000


def avoided_ms(latency_ms: float) -> int:
    """How long a broker is avoided that took so long."""
    for limit, duration in zip(reversed(LATENCY_MAX_MS), reversed(NOT_AVAILABLE_MS), strict=True):
        if latency_ms >= limit:
            return duration
    return 0


@attrs.define(eq=False)
class FaultItem:
    """What is known of one broker.

    :ivar avoid_until: seconds of the clock.
    :ivar reachable: False until a probe gets through again.
    :ivar probe_at: seconds of the clock at which it may be probed next.
    """

    avoid_until: float = 0.0
    reachable: bool = True
    latency_ms: float = 0.0
    probe_at: float = 0.0


class FaultStrategy:
    """Chooses queues; avoids the broker of the last failed try, and those of the table.

    :param now: seconds.
    :param enabled: whether latencies count (``sendLatencyFaultEnable``).
    :param detecting: whether probes bring unreachable brokers back (``startDetectorEnable``); without them nobody is unreachable.
    """

    def __init__(
        self, now: Callable[[], float], *, enabled: bool = False, detecting: bool = False
    ) -> None:
        self._now = now
        self.enabled = enabled
        self.detecting = detecting
        self.items: dict[str, FaultItem] = {}

    def choose(self, info: PublishInfo, last_broker: str | None) -> MessageQueue:
        """The next queue in turn.

        :param last_broker: avoided if there is another one.
        """
        queues = info.queues
        if self.enabled and self.items:
            for accepts in (self.is_available, self.is_reachable):
                queue = self._find(info, last_broker, accepts)
                if queue is not None:
                    return queue
        elif last_broker is not None:
            queue = self._find(info, last_broker, lambda name: True)
            if queue is not None:
                return queue
        info.turn = turn = info.turn + 1
        return queues[turn % len(queues)]

    def _find(
        self, info: PublishInfo, last_broker: str | None, accepts: Callable[[str], bool]
    ) -> MessageQueue | None:
        queues = info.queues
        for _ in queues:
            info.turn += 1
            queue = queues[info.turn % len(queues)]
            if queue.broker_name != last_broker and accepts(queue.broker_name):
                return queue
        return None

    def is_available(self, broker_name: str) -> bool:
        """Whether a broker is not avoided now."""
        item = self.items.get(broker_name)
        return item is None or self._now() >= item.avoid_until

    def is_reachable(self, broker_name: str) -> bool:
        """Whether a broker answers, as far as is known."""
        item = self.items.get(broker_name)
        return item is None or item.reachable

    def succeeded(self, broker_name: str, latency_ms: float) -> None:
        """A send was answered."""
        if self.enabled and (latency_ms >= LATENCY_MAX_MS[0] or broker_name in self.items):
            self._update(broker_name, latency_ms, latency_ms, True)

    def failed(self, broker_name: str, latency_ms: float, by_broker: bool) -> None:
        """A send failed.

        :param by_broker: the broker refused it; else it could not be reached.
        """
        if self.enabled:
            reachable = not (by_broker or self.detecting)
            self._update(broker_name, latency_ms, FAILED_LATENCY_MS, reachable)

    def _update(self, broker_name: str, latency_ms: float, counts_ms: float, ok: bool) -> None:
        item = self.items.setdefault(broker_name, FaultItem())
        item.latency_ms = latency_ms
        item.reachable = ok
        duration = avoided_ms(counts_ms)
        if duration:
            item.avoid_until = max(item.avoid_until, self._now() + duration / 1000)

    # ----------------------------------------------------------------- probes

    def due_for_probe(self, interval_s: float) -> Iterator[str]:
        """Brokers of the table that should be probed now; each again after the interval."""
        now = self._now()
        for name, item in list(self.items.items()):
            if now >= item.probe_at:
                item.probe_at = now + interval_s
                yield name

    def probed(self, broker_name: str, answered: bool | None) -> None:
        """What came of a probe; None: there is no such broker any more."""
        if answered is None:
            self.items.pop(broker_name, None)
        elif answered and broker_name in self.items:
            self.items[broker_name].reachable = True
