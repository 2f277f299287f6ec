"""How is one message put into many light queues? LMQ: ``%LMQ%`` queues without a topic, named by a property of the message.

Stands for ``LmqDispatch`` and the dispatch half of ``MultiDispatchUtils``. ``INNER_MULTI_DISPATCH`` names the queues, separated by commas;
the store writes ``INNER_MULTI_QUEUE_OFFSET`` beside it, the message's logical offset in each. A light queue is an ordinary consume queue
with number 0 whose units point at records of other topics.

Crash story: the record says everything, so light queues are derived again as all others.
"""

from __future__ import annotations

from collections.abc import Callable

from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.model import properties as props
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.names import (
    LMQ_DISPATCH_SEPARATOR,
    LMQ_QUEUE_ID,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    is_lmq,
    topic_allows_lmq,
)
from txrocketmq.model.properties import find_property, parse_properties, with_property
from txrocketmq.store.batchqueue import BatchConsumeQueue
from txrocketmq.store.consumequeue import ConsumeQueue
from txrocketmq.store.queuetable import QueueTable
from txrocketmq.store.results import PutMessageStatus

DISPATCH_NAME = props.INNER_MULTI_DISPATCH.encode()

_WAITING_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC)

_OFFSETS_NAME = props.INNER_MULTI_QUEUE_OFFSET.encode()

#: A queue's name is the name of a directory.
_MAX_NAME_BYTES = 255

LightUnits = tuple[tuple[ConsumeQueue, int], ...]
"""Light queues, and a message's logical offset in each."""


class LightQueues:
    """The light queues of a store."""

    def __init__(self, config: MessageStoreConfig, table: QueueTable) -> None:
        self._config = config
        self._table = table

    def wanted(self, record: MessageRecord) -> list[str] | PutMessageStatus:
        """The queues that a message names, or why it is not taken.

        Official brokers take names that are no light queue's, and stumble over them afterwards.
        """
        text = find_property(record.properties, props.INNER_MULTI_DISPATCH)
        if not text or not text.strip():
            return []
        topic, waits = record.topic, record.topic in _WAITING_TOPICS
        if waits:
            topic = find_property(record.properties, props.REAL_TOPIC) or topic
        if not topic_allows_lmq(topic):
            return []
        names = text.split(LMQ_DISPATCH_SEPARATOR)
        if not all(map(_is_name, names)):
            return PutMessageStatus.MESSAGE_ILLEGAL
        table = self._table
        new = sum(table.appending(name, LMQ_QUEUE_ID) is None for name in set(names))
        if new and self._table.light_count + new > self._config.max_lmq_consume_queue_num:
            return PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
        # It is put into them when its time has come; what cannot be is not acknowledged now.
        return [] if waits else names

    def offsets_text(self, record: MessageRecord, names: list[str]) -> bytes:
        """The message's properties with its offset in each of these queues."""
        offsets = []
        for name in names:
            queue = self._table.appending(name, LMQ_QUEUE_ID)
            offsets.append("0" if queue is None else str(queue.next_index))
        return with_property(
            record.properties,
            props.INNER_MULTI_QUEUE_OFFSET,
            LMQ_DISPATCH_SEPARATOR.join(offsets),
        )

    def count(self, names: list[str]) -> LightUnits:
        """The message is in the log: it has its places now. Which of them there are to be dispatched."""
        units = []
        for name in dict.fromkeys(names):
            queue = self._table.appending(name, LMQ_QUEUE_ID)
            if queue is None:
                queue = self._table.create(name, LMQ_QUEUE_ID)
            if isinstance(queue, ConsumeQueue):
                units.append((queue, queue.next_index))
                queue.next_index += 1
        return tuple(units) if self._config.enable_multi_dispatch else ()

    @property
    def is_on(self) -> bool:
        """Whether there may be light queues."""
        return self._config.enable_lmq and self._config.enable_multi_dispatch

    def keys(self, topic: str, properties: bytes) -> list[tuple[str, int]]:
        """The light queues that a record is in, by its property text."""
        if _OFFSETS_NAME not in properties:
            return []
        found = parse_properties(properties)
        return [(name, LMQ_QUEUE_ID) for name, _ in places(self._config, topic, found)]

    def there(self, topic: str, properties: bytes) -> LightUnits:
        """The light queues that there are of those that a record is in, by its property text, and its places in them."""
        if _OFFSETS_NAME not in properties:
            return ()
        units = []
        for name, offset in places(self._config, topic, parse_properties(properties)):
            queue = self._table.find(name, LMQ_QUEUE_ID)
            if isinstance(queue, ConsumeQueue):
                units.append((queue, offset))
        return tuple(units)

    def derived(
        self,
        topic: str,
        found: dict[str, str],
        wants: Callable[[tuple[str, int]], bool] | None = None,
    ) -> LightUnits:
        """The places of a record that was found in the log, by its properties.

        :param wants: tells the queues that are asked for, whose older messages these are; None for all, and the newest ones.
        """
        units = {}
        for name, offset in places(self._config, topic, found):
            if wants is not None and not wants((name, LMQ_QUEUE_ID)):
                continue
            take = self._table.taking if wants is None else self._table.create
            queue = take(name, LMQ_QUEUE_ID)
            if not isinstance(queue, BatchConsumeQueue):
                units[queue] = offset
        return tuple(units.items())


def places(config: MessageStoreConfig, topic: str, found: dict[str, str]) -> list[tuple[str, int]]:
    """Names of light queues and the logical offsets in them, as a record's properties say."""
    text = found.get(props.INNER_MULTI_DISPATCH, "")
    offsets = found.get(props.INNER_MULTI_QUEUE_OFFSET, "").split(LMQ_DISPATCH_SEPARATOR)
    names = text.split(LMQ_DISPATCH_SEPARATOR)
    if (
        not (config.enable_lmq and config.enable_multi_dispatch)
        or not text
        or not topic_allows_lmq(topic)
        or len(names) != len(offsets)
    ):
        return []
    return [
        (name, int(offset))
        for name, offset in zip(names, offsets, strict=True)
        if offset.isdecimal() and _is_name(name)
    ]


def _is_name(name: str) -> bool:
    return (
        is_lmq(name)
        and "/" not in name
        and "\0" not in name
        and len(name.encode("utf-8", "replace")) <= _MAX_NAME_BYTES
    )
