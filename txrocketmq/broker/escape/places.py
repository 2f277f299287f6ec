"""To which queues of other brokers may a message go? Pure: a route, a broker's name, a number.

Stands for ``TopicPublishInfo`` as ``EscapeBridge`` uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from txrocketmq.model.flags import PERM_WRITE
from txrocketmq.model.javahash import java_hash
from txrocketmq.model.message import Host
from txrocketmq.model.route import TopicRouteData
from txrocketmq.model.topic import MAX_QUEUES


class Place(NamedTuple):
    """A queue of another broker."""

    broker_name: str
    queue_id: int


def places_of(route: TopicRouteData, own_name: str) -> list[Place]:
    """The queues that a topic has at other brokers, sorted by broker name: writable, and there is a master.

    A slave in its master's place is shown as a master, though closed for writing. A broker with more queues than a topic can have is not
    believed, and of all queues so many are enough.
    """
    masters = {
        broker.broker_name for broker in route.broker_datas if broker.master_address is not None
    }
    places = (
        Place(queue.broker_name or "", queue_id)
        for queue in sorted(route.queue_datas, key=lambda queue: queue.broker_name or "")
        if queue.perm & PERM_WRITE
        and queue.broker_name in masters
        and queue.broker_name != own_name
        and queue.write_queue_nums <= MAX_QUEUES
        for queue_id in range(queue.write_queue_nums)
    )
    return list(islice(places, MAX_QUEUES))


def specific_place(places: Sequence[Place], topic: str, store_host: Host) -> Place:
    """Always the same one for one topic of one broker: a check point and its acknowledgements have to meet.

    The official rule, the hash of ``topic`` and Java's text of the address.
    """
    host, port = store_host
    return places[java_hash(f"{topic}/{host}:{port}") % len(places)]
