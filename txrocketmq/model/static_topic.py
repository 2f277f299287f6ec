"""How logical queues of a static topic map to queues of brokers.

Stands for ``TopicQueueMappingInfo``, ``TopicQueueMappingDetail``, ``LogicQueueMappingItem`` and their holders.
"""

from __future__ import annotations

from txrocketmq.model.bean import Bean, default, fresh
from txrocketmq.model.flags import PERM_READ_WRITE
from txrocketmq.model.topic import (
    DEFAULT_QUEUE_NUMS,
    DataVersion,
    TopicConfig,
    TopicFilterType,
)

SCOPE_GLOBAL = "__global__"


class LogicQueueMappingItem(Bean, kw_only=True):
    """One stretch of a logical queue that lives in one broker's queue."""

    bname: str | None = None
    end_offset: int = default(-1)
    gen: int = default(0)
    logic_offset: int = default(0)
    queue_id: int = default(0)
    start_offset: int = default(0)
    time_of_end: int = default(-1)
    time_of_start: int = default(-1)

    @property
    def is_decided(self) -> bool:
        """Whether it is known where the stretch begins in the logical queue; an operator's tool decides it."""
        return self.logic_offset >= 0

    @property
    def is_ended(self) -> bool:
        """Whether it is known where the stretch ends."""
        return self.end_offset > self.start_offset

    @property
    def logical_end(self) -> int:
        """Where the stretch ends in the logical queue; where it begins while that is not known."""
        if self.end_offset >= self.start_offset:
            return self.logic_offset + self.end_offset - self.start_offset
        return self.logic_offset

    def logical(self, offset: int) -> int:
        """The logical offset of an offset in the broker's queue."""
        return self.logic_offset + max(0, offset - self.start_offset)

    def logical_within(self, offset: int) -> int:
        """The same, not beyond the stretch's end; -1 while it is not decided where it begins."""
        if not self.is_decided:
            return -1
        if self.start_offset <= self.end_offset < offset:
            return self.logical_end
        return self.logical(offset)

    def physical(self, offset: int) -> int:
        """The offset in the broker's queue of a logical one."""
        return offset - self.logic_offset + self.start_offset


def stretch_at(items: list[LogicQueueMappingItem], offset: int) -> LogicQueueMappingItem | None:
    """The stretch that holds a logical offset; the first one for smaller offsets. None when none is decided."""
    decided = [item for item in items if item.is_decided]
    for item in reversed(decided):
        if offset >= item.logic_offset:
            return item
    return decided[0] if decided else None


def stretch_after(
    items: list[LogicQueueMappingItem], current: LogicQueueMappingItem
) -> LogicQueueMappingItem | None:
    """The stretch behind one, None when there is none or it is not decided where it begins."""
    for place, item in enumerate(items[:-1]):
        if item.gen == current.gen:
            following = items[place + 1]
            return following if following.is_decided else None
    return None


def stretches_fault(items: list[LogicQueueMappingItem]) -> str | None:
    """What is wrong with the history of a logical queue, in the official words; None when nothing is."""
    last_gen = last_offset = -1
    for place in range(len(items) - 1, -1, -1):
        item = items[place]
        if item.start_offset < 0 or item.gen < 0 or item.queue_id < 0:
            return "The field is illegal, should not be negative"
        if place <= len(items) - 2 and item.logic_offset < 0:
            return "The non-latest item has negative logic offset"
        if last_gen != -1 and item.gen >= last_gen:
            return "The gen does not increase monotonically"
        if item.end_offset != -1 and item.end_offset < item.start_offset:
            return "The endOffset is smaller than the start offset"
        if last_offset != -1 and item.logic_offset != -1:
            if item.logic_offset >= last_offset:
                return "The base logic offset does not increase monotonically"
            if item.logical_end >= last_offset:
                return "The max logic offset does not increase monotonically"
        last_gen, last_offset = item.gen, item.logic_offset
    return None


class TopicQueueMappingInfo(Bean, kw_only=True):
    """What a broker tells name servers of its share of a static topic: logical id to its own queue id."""

    bname: str | None = None
    curr_id_map: dict[int, int] = fresh(dict)
    dirty: bool = default(False)
    epoch: int = default(0)
    scope: str = default(SCOPE_GLOBAL)
    topic: str | None = None
    total_queues: int = default(0)


class TopicQueueMappingDetail(Bean, kw_only=True):
    """A broker's whole knowledge of its share of a static topic."""

    bname: str | None = None
    curr_id_map: dict[int, int] = fresh(dict)
    dirty: bool = default(False)
    epoch: int = default(0)
    hosted_queues: dict[int, list[LogicQueueMappingItem]] = fresh(dict)
    scope: str = default(SCOPE_GLOBAL)
    topic: str | None = None
    total_queues: int = default(0)


class TopicConfigAndQueueMapping(Bean, kw_only=True):
    """A topic's settings together with its static mapping."""

    attributes: dict[str, str] = fresh(dict)
    mapping_detail: TopicQueueMappingDetail | None = None
    order: bool = default(False)
    perm: int = default(PERM_READ_WRITE)
    read_queue_nums: int = default(DEFAULT_QUEUE_NUMS)
    topic_filter_type: TopicFilterType = default(TopicFilterType.SINGLE_TAG)
    topic_name: str | None = None
    topic_sys_flag: int = default(0)
    write_queue_nums: int = default(DEFAULT_QUEUE_NUMS)

    @classmethod
    def of(
        cls, config: TopicConfig, detail: TopicQueueMappingDetail | None = None
    ) -> TopicConfigAndQueueMapping:
        """A topic config, with its mapping where it has one."""
        return cls(
            attributes=config.attributes,
            mapping_detail=detail,
            order=config.order,
            perm=config.perm,
            read_queue_nums=config.read_queue_nums,
            topic_filter_type=config.topic_filter_type,
            topic_name=config.topic_name,
            topic_sys_flag=config.topic_sys_flag,
            write_queue_nums=config.write_queue_nums,
        )


class TopicQueueMappingOne(Bean, kw_only=True):
    """One logical queue with its history."""

    bname: str | None = None
    global_id: int | None = None
    items: list[LogicQueueMappingItem] | None = None
    mapping_detail: TopicQueueMappingDetail | None = None
    topic: str | None = None


class TopicQueueMappingSerializeWrapper(Bean, kw_only=True):
    """All static mappings of a broker, as its config file holds them."""

    data_version: DataVersion = fresh(DataVersion)
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingDetail] | None = None


class TopicRemappingDetailWrapper(Bean, kw_only=True):
    """A planned change of a static topic, as admin tools write it to a file."""

    broker_config_map: dict[str, TopicConfigAndQueueMapping] = fresh(dict)
    broker_to_map_in: list[str] = fresh(list)
    broker_to_map_out: list[str] = fresh(list)
    epoch: int = default(0)
    topic: str | None = None
    type: str | None = None
