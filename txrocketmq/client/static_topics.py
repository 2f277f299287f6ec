"""Which queues does a static topic have for clients, and which broker leads each of them?

Stands for ``topicRouteData2EndpointsForStaticTopic``. The queues of a static topic are logical: they belong to no broker, and their broker's name is
one that does not exist (``__syslo__global__``). The route says in the mappings of its brokers who leads which; where two claim a queue, the
newer mapping counts. Brokers translate numbers and offsets.
"""

from __future__ import annotations

from txrocketmq.model.message import MessageQueue
from txrocketmq.model.route import TopicRouteData
from txrocketmq.model.static_topic import SCOPE_GLOBAL, TopicQueueMappingInfo

LOGICAL_PREFIX = "__syslo__"
"""Begins the names of brokers of logical queues (``LOGICAL_QUEUE_MOCK_BROKER_PREFIX``)."""

NOBODY = "__syslo__none__"
"""The broker that leads a queue which no mapping names (``LOGICAL_QUEUE_MOCK_BROKER_NAME_NOT_EXIST``)."""


def is_logical(broker_name: str) -> bool:
    """Whether a queue with this broker name is a logical one."""
    return broker_name.startswith(LOGICAL_PREFIX)


def logical_broker_name(scope: str) -> str:
    """The broker name that the queues of a scope have."""
    return LOGICAL_PREFIX + (scope[2:] if scope == SCOPE_GLOBAL else scope)


def leaders(topic: str, route: TopicRouteData, most_queues: int) -> dict[MessageQueue, str]:
    """Logical queues with the broker that leads each, sorted; empty for a topic that is not static.

    :param most_queues: no more of a scope are believed.
    """
    scopes: dict[str, list[TopicQueueMappingInfo]] = {}
    for info in (route.topic_queue_mapping_by_broker or {}).values():
        scopes.setdefault(info.scope, []).append(info)
    found: dict[MessageQueue, str] = {}
    for scope in sorted(scopes):
        newest_first = sorted(scopes[scope], key=lambda info: -info.epoch)
        led: dict[int, str] = {}
        for info in newest_first:
            for number in info.curr_id_map:
                led.setdefault(number, info.bname or "")
        count = min(most_queues, max(info.total_queues for info in newest_first))
        name = logical_broker_name(scope)
        for number in range(count):
            queue = MessageQueue(topic=topic, broker_name=name, queue_id=number)
            found[queue] = led.get(number, NOBODY)
    return found
