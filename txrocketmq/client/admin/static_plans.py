"""Which broker gets which logical queue of a static topic: when it is made, when it grows, when queues move.

Sans-IO. Stands for the planning part of ``TopicQueueMappingUtils``; where that one leaves a choice to chance, names decide here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from txrocketmq.errors import MQClientError
from txrocketmq.model.static_topic import (
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
    TopicRemappingDetailWrapper,
    stretches_fault,
)

CREATE_OR_UPDATE = "CREATE_OR_UPDATE"
REMAPPING = "REMAPPING"
EPOCH_STEP_MS = 1000
"""A plan's epoch is later than the one before by at least so much."""
ROUNDED_TO = 10_000
"""A stretch begins at a multiple of this (official ``blockSeqSize``), behind all that the one before may still get."""
UNDECIDED = -1


@attrs.frozen
class Known:
    """A static topic as its brokers know it.

    :ivar table: settings and mapping by broker name.
    :ivar queues: the stretches of each logical queue, as the broker tells them that has the last one.
    """

    table: dict[str, TopicConfigAndQueueMapping]
    epoch: int
    total: int
    queues: dict[int, list[LogicQueueMappingItem]]

    def leader(self, global_id: int) -> str:
        """The broker that a logical queue is at now."""
        return self.queues[global_id][-1].bname or ""


def known_mapping(topic: str, table: Mapping[str, TopicConfigAndQueueMapping]) -> Known:
    """What the brokers' mappings say together.

    :raises MQClientError: a broker has none, or they contradict one another.
    """
    details: dict[str, TopicQueueMappingDetail] = {}
    for name, item in table.items():
        if item.mapping_detail is None:
            raise MQClientError(f"topic {topic} is no static topic at broker {name}")
        details[name] = item.mapping_detail
    epoch = max((detail.epoch for detail in details.values()), default=0)
    newest = [detail for detail in details.values() if detail.epoch == epoch]
    totals = {detail.total_queues for detail in newest}
    if len(totals) > 1:
        raise MQClientError(f"brokers differ in how many queues topic {topic} has: {totals}")
    total = totals.pop() if totals else 0
    queues: dict[int, list[LogicQueueMappingItem]] = {}
    for name, detail in sorted(details.items(), key=lambda item: item[1].epoch):
        for global_id, items in detail.hosted_queues.items():
            if items and items[-1].bname == name:
                queues[global_id] = items
    for global_id in range(total):
        if global_id not in queues:
            raise MQClientError(f"no broker leads queue {global_id} of topic {topic}")
        fault = stretches_fault(queues[global_id])
        if fault is not None:
            raise MQClientError(f"queue {global_id} of topic {topic}: {fault}")
    return Known(dict(table), epoch, total, queues)


def plan_mapping(
    topic: str, total_queues: int, broker_names: Iterable[str], epoch: int
) -> TopicRemappingDetailWrapper:
    """A mapping of a new topic: logical queues in turn over the brokers by name, each with a queue of its own there.

    :raises MQClientError: no queue, or no broker.
    """
    return plan_growth(
        topic, Known({}, epoch - EPOCH_STEP_MS, 0, {}), total_queues, broker_names, 0
    )


def plan_growth(
    topic: str, known: Known, total_queues: int, broker_names: Iterable[str], now_ms: int
) -> TopicRemappingDetailWrapper:
    """More logical queues, each at a broker that has the fewest; those that are there stay where they are.

    :raises MQClientError: no broker, or not more queues than there are.
    """
    names = sorted({*broker_names, *known.table})
    if total_queues < 1 or not names:
        raise MQClientError("a static topic has at least one queue and one broker")
    if total_queues <= known.total:
        raise MQClientError(
            f"static topic {topic} has {known.total} queues, and can only get more of them"
        )
    epoch = max(known.epoch + EPOCH_STEP_MS, now_ms)
    table = {name: known.table.get(name) or empty_item(topic, name) for name in names}
    load = Counter(dict.fromkeys(names, 0))
    load.update(known.leader(global_id) for global_id in known.queues)
    for global_id in range(known.total, total_queues):
        name = min(names, key=lambda one: (load[one], one))
        load[name] += 1
        item = LogicQueueMappingItem(gen=0, queue_id=_one_more(table[name]), bname=name)
        _detail(table[name]).hosted_queues[global_id] = [item]
    _stamp(table, epoch, total_queues)
    return TopicRemappingDetailWrapper(
        topic=topic, type=CREATE_OR_UPDATE, epoch=epoch, broker_config_map=table
    )


def plan_move(
    topic: str, known: Known, broker_names: Iterable[str], now_ms: int
) -> TopicRemappingDetailWrapper:
    """All logical queues at these brokers, evenly, with as few of them moved as that takes. Where the new stretches begin is decided when
    the old ones have ended (`TopicRemappingDetailWrapper.broker_to_map_out`).

    :raises MQClientError: no broker, or no queue.
    """
    names = sorted(set(broker_names))
    if not names or not known.total:
        raise MQClientError("a static topic has at least one queue and one broker")
    before = Counter(known.leader(global_id) for global_id in range(known.total))
    base, more = divmod(known.total, len(names))
    ranked = sorted(names, key=lambda name: (-before[name], name))
    room = {name: base + (place < more) for place, name in enumerate(ranked)}
    moving = []
    for global_id in range(known.total):
        leader = known.leader(global_id)
        if room.get(leader, 0) > 0:
            room[leader] -= 1
        else:
            moving.append(global_id)
    epoch = max(known.epoch + EPOCH_STEP_MS, now_ms)
    table = dict(known.table)
    goals = [name for name in names for _ in range(room[name])]
    into: dict[str, None] = {}
    out: dict[str, None] = {}
    for global_id, name in zip(moving, goals, strict=True):
        leader = known.leader(global_id)
        item = table.setdefault(name, empty_item(topic, name))
        into[name], out[leader] = None, None
        begin = LogicQueueMappingItem(
            gen=known.queues[global_id][-1].gen + 1,
            queue_id=_one_more(item),
            bname=name,
            logic_offset=UNDECIDED,
        )
        stretches = [*known.queues[global_id], begin]
        _detail(item).hosted_queues[global_id] = stretches
        _detail(table[leader]).hosted_queues[global_id] = stretches
    _stamp(table, epoch, known.total)
    return TopicRemappingDetailWrapper(
        topic=topic,
        type=REMAPPING,
        epoch=epoch,
        broker_config_map=table,
        broker_to_map_in=list(into),
        broker_to_map_out=list(out),
    )


def begin_behind(logical_end: int) -> int:
    """Where a new stretch begins whose predecessor ends here: a multiple of `ROUNDED_TO`, at least half of it away."""
    blocks, rest = divmod(logical_end, ROUNDED_TO)
    return (blocks + (1 if rest < ROUNDED_TO // 2 else 2)) * ROUNDED_TO


def empty_item(
    topic: str, broker_name: str, total: int = 0, epoch: int = 0
) -> TopicConfigAndQueueMapping:
    """A broker without a queue of the topic."""
    return TopicConfigAndQueueMapping(
        topic_name=topic,
        read_queue_nums=0,
        write_queue_nums=0,
        mapping_detail=TopicQueueMappingDetail(
            topic=topic, total_queues=total, bname=broker_name, epoch=epoch
        ),
    )


def _detail(item: TopicConfigAndQueueMapping) -> TopicQueueMappingDetail:
    assert item.mapping_detail is not None
    return item.mapping_detail


def _one_more(item: TopicConfigAndQueueMapping) -> int:
    """One more queue of the broker; its number."""
    item.write_queue_nums += 1
    item.read_queue_nums += 1
    return item.write_queue_nums - 1


def _stamp(table: Mapping[str, TopicConfigAndQueueMapping], epoch: int, total: int) -> None:
    for item in table.values():
        detail = _detail(item)
        detail.epoch, detail.total_queues = epoch, total
