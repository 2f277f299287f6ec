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
