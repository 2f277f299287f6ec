"""What do the handlers of POP share?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from twisted.internet.defer import Deferred

from txrocketmq.broker.pop.check_points import CheckPoints
from txrocketmq.broker.pop.checks import PopChecks
from txrocketmq.broker.pop.inflight import InFlight
from txrocketmq.broker.pop.ordered import OrderedPops
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model.properties import MAX_LONG

if TYPE_CHECKING:
    from txrocketmq.broker.consumer_offsets import ConsumerOffsets
    from txrocketmq.broker.stats import BrokerStats
    from txrocketmq.broker.throughput import Throughput
    from txrocketmq.broker.topics import Topics
    from txrocketmq.config.schema import BrokerConfig

Key = tuple[str, str, int]
"""Topic (as it is really popped), group, queue id."""


class PopParts(NamedTuple):
    """What the handlers work with.

    :ivar free: told the key of a queue that may be popped again: somebody may wait for it.
    :ivar block_changed: told the key of a queue whose block by an ordered pop begins or ends at another time.
    :ivar pause: fires when others have had their turn.
    """

    config: BrokerConfig
    store: IMessageStore
    topics: Topics
    offsets: ConsumerOffsets
    stats: BrokerStats
    throughput: Throughput
    checks: PopChecks
    points: CheckPoints
    ordered: OrderedPops
    in_flight: InFlight
    now_ms: Callable[[], int]
    free: Callable[[Key], object]
    block_changed: Callable[[Key], object]
    pause: Callable[[], Deferred[None]]

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Smallest and next logical offset of a queue; the widest there may be while it is derived from the log: what was popped
        before must not be refused then."""
        store = self.store
        least = 0 if store.incomplete(topic, queue_id) else store.min_offset(topic, queue_id)
        most = MAX_LONG if store.recovering(topic, queue_id) else store.max_offset(topic, queue_id)
        return least, most

    def stands_at(self, key: Key) -> int:
        """Where a group pops a queue next, as far as is known without changing anything."""
        topic, group, queue_id = key
        offset = self.offsets.query(group, topic, queue_id)
        if offset < 0:
            offset = self.store.min_offset(topic, queue_id)
        return max(offset, self.points.latest(key))
