"""Which logical queues are here, and where did they live before?

Stands for ``TopicQueueMappingManager``: a table with a version, kept in ``topicQueueMapping.json``. An entry is changed by operators'
tools alone, which go through several brokers; each broker refuses what contradicts what it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import msgspec
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.broker.config_files import PersistedTable
from txrocketmq.codec.bodies import decode_body, encode_body
from txrocketmq.errors import ResponseError
from txrocketmq.interfaces import IConfigFiles
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.static_topic import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
    TopicQueueMappingSerializeWrapper,
    stretches_fault,
)
from txrocketmq.model.topic import DataVersion

FILE_NAME = "topicQueueMapping.json"


class NowAt(NamedTuple):
    """Where a logical queue is by now.

    :ivar broker_name: the broker that leads it; None: this one.
    :ivar queue_id: its number there; of this broker: its queue.
    """

    broker_name: str | None
    queue_id: int


class LogicalQueue(NamedTuple):
    """One logical queue as this broker knows it, oldest stretch first."""

    topic: str
    queue_id: int
    broker: str
    items: list[LogicQueueMappingItem]

    @property
    def leader(self) -> LogicQueueMappingItem:
        """The stretch that is written to."""
        return self.items[-1]

    def is_here(self, item: LogicQueueMappingItem) -> bool:
        """Whether a stretch is one of this broker's queues."""
        return item.bname == self.broker


class StaticTopics:
    """The mappings of one broker.

    :ivar names: the topics that have one; changes with the table.
    :ivar version: the table's version; slaves compare it.
    """

    _log = Logger()

    def __init__(self, broker_name: str, files: IConfigFiles, now_ms: Callable[[], int]) -> None:
        self._broker = broker_name
        self._now_ms = now_ms
        self.names: dict[str, TopicQueueMappingDetail] = {}
        self.version = DataVersion(timestamp=now_ms())
        self.file = PersistedTable(files, FILE_NAME, self._encode)

    def load(self) -> None:
        """Read the file.

        :raises StoreError: neither the file nor its backup can be read.
        """
        wrapper = self.file.load(partial(decode_body, TopicQueueMappingSerializeWrapper))
        if wrapper is not None:
            self.names.update(wrapper.topic_queue_mapping_info_map or {})
            self.version = wrapper.data_version

    def queue(self, topic: str, queue_id: int) -> LogicalQueue | None:
        """A logical queue that is led here; None for one that is not, or of a topic that is not static."""
        detail = self.names.get(topic)
        items = None if detail is None else detail.hosted_queues.get(queue_id)
        if not items or items[-1].bname != self._broker:
            return None
        return LogicalQueue(topic, queue_id, self._broker, items)

    def now_at(self, topic: str, queue_id: int) -> NowAt | None:
        """Where a logical queue is that was a queue of this broker; None when it is still that one, or it was none."""
        detail = self.names.get(topic)
        for number, items in () if detail is None else detail.hosted_queues.items():
            here = [item for item in items if item.bname == self._broker]
            if all(item.queue_id != queue_id for item in here):
                continue
            leader = items[-1]
            if leader.bname != self._broker:
                return NowAt(leader.bname or "", number)
            return None if leader.queue_id == queue_id else NowAt(None, leader.queue_id)
        return None

    def led(self, topic: str) -> list[int]:
        """The numbers of the logical queues that are led here."""
        detail = self.names.get(topic)
        if detail is None:
            return []
        return [
            number
            for number, items in detail.hosted_queues.items()
            if items and items[-1].bname == self._broker
        ]

    def infos(self, topics: Iterable[str]) -> Iterator[tuple[str, TopicQueueMappingInfo]]:
        """What name servers are told of some topics."""
        for topic in topics:
            detail = self.names.get(topic)
            if detail is not None:
                yield (
                    topic,
                    TopicQueueMappingInfo(
                        bname=detail.bname,
                        curr_id_map={
                            number: detail.hosted_queues[number][-1].queue_id
                            for number in self.led(topic)
                        },
                        dirty=detail.dirty,
                        epoch=detail.epoch,
                        scope=detail.scope,
                        topic=detail.topic,
                        total_queues=detail.total_queues,
                    ),
                )

    def update(self, wanted: TopicQueueMappingDetail, *, force: bool = False) -> Deferred[None]:
        """Take over a mapping; fires when it is on disk.

        :param force: without comparing it with what is known; histories that it does not name are kept.
        :raises ResponseError: it contradicts itself or what is known.
        """
        if wanted.bname != self._broker or not wanted.topic:
            raise _refusal(f"the mapping is for broker {wanted.bname}, this is {self._broker}")
        for items in wanted.hosted_queues.values():
            fault = stretches_fault(items) if items else "The new item list is null or empty"
            if fault is not None:
                raise _refusal(fault)
        known = self.names.get(wanted.topic)
        if known is not None:
            if not force:
                _check_change(known, wanted)
            wanted = msgspec.structs.replace(
                wanted, hosted_queues={**known.hosted_queues, **wanted.hosted_queues}
            )
        return self.put(wanted)

    def put(self, detail: TopicQueueMappingDetail) -> Deferred[None]:
        """Have this mapping from now on; fires when it is on disk."""
        self.names[detail.topic or ""] = detail
        self._log.info(
            "static topic {topic}: epoch {epoch}, queues {led} of {total} are led here",
            topic=detail.topic,
            epoch=detail.epoch,
            led=self.led(detail.topic or ""),
            total=detail.total_queues,
        )
        self.version.next(self._now_ms())
        return self.file.save()

    def topic_deleted(self, topic: str) -> None:
        """Forget a topic."""
        if self.names.pop(topic, None) is not None:
            self.version.next(self._now_ms())
            self.file.changed()

    def take_over(self, table: dict[str, TopicQueueMappingDetail], version: DataVersion) -> None:
        """A slave: have exactly the master's table."""
        if version != self.version:
            self.names.clear()
            self.names.update(table)
            self.version = version
            self.file.changed()

    def _encode(self) -> bytes:
        return encode_body(
            TopicQueueMappingSerializeWrapper(
                data_version=self.version, topic_queue_mapping_info_map=self.names
            )
        )


def _refusal(remark: str) -> ResponseError:
    return ResponseError(ResponseCode.SYSTEM_ERROR, remark)


def _check_change(known: TopicQueueMappingDetail, wanted: TopicQueueMappingDetail) -> None:
    """Refuse a mapping that cannot follow the known one (official ``updateTopicQueueMapping``)."""
    if wanted.epoch < known.epoch:
        raise _refusal(f"Can't accept data with small epoch {wanted.epoch} < {known.epoch}")
    if wanted.scope != known.scope:
        raise _refusal(f"Can't accept data with unmatched scope {wanted.scope} != {known.scope}")
    is_same_epoch = wanted.epoch == known.epoch
    for number, old in known.hosted_queues.items():
        new = wanted.hosted_queues.get(number)
        if new is None:
            if is_same_epoch:
                raise _refusal("Cannot accept equal epoch with null data")
        elif old:
            _check_history(old, new, is_same_epoch)


def _check_history(
    old: list[LogicQueueMappingItem], new: list[LogicQueueMappingItem], is_same_epoch: bool
) -> None:
    now = {item.gen: item for item in new}
    for item in old:
        same = now.get(item.gen)
        if same is not None and (
            _place(same) != _place(item)
            or (item.is_decided and same.logic_offset != item.logic_offset)
        ):
            raise _refusal(
                f"stretch {item.gen} of a logical queue cannot become another one: it is "
                f"{item.bname}-{item.queue_id} from {item.logic_offset} on"
            )
    before, after = old[-1], new[-1]
    if is_same_epoch and (before.gen, _place(before)) != (after.gen, _place(after)):
        raise _refusal("The new leader is different but epoch equal")


def _place(item: LogicQueueMappingItem) -> tuple[str | None, int, int]:
    return item.bname, item.queue_id, item.start_offset
