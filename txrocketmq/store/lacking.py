"""Which queues end before a message that the log holds? What a start asks of the records before those that it reads anyway.

Crash story: nothing is written here.
"""

from __future__ import annotations

from collections.abc import Iterator

from txrocketmq.codec.record import RecordHead
from txrocketmq.codec.storefiles import CQ_UNIT_BYTES
from txrocketmq.model import properties as props
from txrocketmq.model.flags import INNER_BATCH_FLAG
from txrocketmq.model.properties import parse_properties
from txrocketmq.store.blocks import Block
from txrocketmq.store.lightqueues import LightQueues
from txrocketmq.store.queuetable import AnyQueue, QueueTable
from txrocketmq.store.reput import NOT_IN_QUEUE


def lacking_queues(
    table: QueueTable, light: LightQueues, head: RecordHead
) -> Iterator[tuple[AnyQueue, int]]:
    """The queues that end before a message that the log holds, and its place there. One that is not there may have been deleted."""
    if head.sys_flag & NOT_IN_QUEUE:
        return
    is_batch = bool(head.sys_flag & INNER_BATCH_FLAG)
    queue_offset = head.queue_offset
    if is_batch:
        first = parse_properties(head.properties).get(props.INNER_BASE)
        found = props.count_of(first, props.MAX_LONG)
        queue_offset = -1 if found is None else found
    queue = table.find(head.topic, head.queue_id)
    if queue is not None and queue.is_batch == is_batch and _ends_before(queue, queue_offset, head):
        yield queue, queue_offset
    for light_queue, place in light.there(head.topic, head.properties):
        if _ends_before(light_queue, place, head):
            yield light_queue, place


def _ends_before(queue: AnyQueue, index: int, head: RecordHead) -> bool:
    return index >= queue.max_index and head.physical_offset >= queue.max_physical_offset


def holds_block(table: QueueTable, block: Block, _: int) -> bool:
    """Whether each queue, where it is there, surely goes to a block's end: `lacking_queues` would find none."""
    for topic, queue_id, first, units, _ in block.runs:
        queue = table.find(topic, queue_id)
        if queue is not None and first + len(units) // CQ_UNIT_BYTES > queue.max_index:
            return False
    return True
