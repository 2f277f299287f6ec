"""How does a record of the log get into its queue, the index, and to those who wait for it?

Stands for the official ``ReputMessageService`` with its dispatchers. What comes in through `Reput.dispatch` goes on in the
same turn; there is no loop that runs after the log. Two cases differ: with SYNC_FLUSH a message may be shown only once it is
on the device, so dispatches wait for that (unless ``readUnCommitted`` is set); and recovery reads the log itself.

Crash story: what is derived here can be derived again from the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from twisted.logger import Logger

from txrocketmq.codec.record import BatchItem, RecordHead
from txrocketmq.codec.storefiles import CQ_FILLER_SIZE, CQ_UNIT
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.interfaces import IDisk
from txrocketmq.model import properties as props
from txrocketmq.model.flags import INNER_BATCH_FLAG
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import parse_properties
from txrocketmq.store.batchqueue import MAX_BATCH_MESSAGES
from txrocketmq.store.blocks import Block
from txrocketmq.store.consumequeue import SCHEDULE_TOPIC, ConsumeQueue
from txrocketmq.store.extension import ExtendedQueue
from txrocketmq.store.index import IndexService
from txrocketmq.store.indexfile import tag_index_hash
from txrocketmq.store.lightqueues import LightQueues, LightUnits
from txrocketmq.store.queuetable import AnyQueue, QueueTable
from txrocketmq.store.results import PutMessageResult

ArrivalListener = Callable[[str, int, int, int, int], object]
"""Called with topic, queue id, next logical offset, tags code, store time in ms."""

Awaits = Callable[[str, int], bool] | None
"""Called with topic and queue id."""

WholeListener = Callable[[str, int], object]
"""Called with topic and queue id."""


class Extras(msgspec.Struct):
    """What few records have besides.

    :ivar messages: how many messages a batch record holds.
    :ivar properties: the record's properties, where something is derived from them that the other values do not say.
    :ivar light: light queues that the record is in too, with its logical offset in each.
    """

    messages: int = 1
    properties: dict[str, str] | None = None
    light: LightUnits = ()


BitMaps = Callable[[str, Mapping[str, str]], bytes | None]
"""Called with topic and properties of a message; None where no group filters the topic."""

Dispatch = tuple[AnyQueue, int, int, int, int, int, int, str | None, str | None, int, Extras | None]
"""Queue, logical offset, physical offset, size, tags code, store time in ms, sysFlag, unique id, keys, the index hash of
the tag (-1 without one), and what few records have besides."""

_MAX_TAG_HASHES = 8192

# Transaction bits of the sysFlag: a prepared message has the first, a rolled back one has both, a committed one the second.
NOT_IN_QUEUE = 0x4
_ROLLBACK = 0xC

_LEVEL_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> list[int]:
    """Delays in ms of levels 1, 2, ... from the value of ``messageDelayLevel``.

    Levels that cannot be read, and those after them, are left out, as officially.
    """
    delays: list[int] = []
    for word in text.split(" "):
        if word[-1:] not in _LEVEL_UNITS_MS or not word[:-1].isdecimal():
            break
        delays.append(int(word[:-1]) * _LEVEL_UNITS_MS[word[-1]])
    return delays


class Reput:
    """Derives queues and index from the log, in the order of the log.

    :ivar offset: end of the last record that was dispatched.
    :ivar confirm_offset: up to where replicas agree on the log: nothing beyond is shown; None where nobody asks them.
    :ivar index_is_current: the index holds all that was dispatched; until then `txrocketmq.store.catchup` sees to it.
    :ivar listeners: told of each message once it can be read.
    :ivar whole_listeners: told of each queue that was derived again, once all of it can be read.
    :ivar light: the store's light queues.
    :ivar bit_maps: makes the filter bits of a message for its queue's extension; None where nobody does.
    """

    log = Logger()

    def __init__(
        self,
        config: MessageStoreConfig,
        disk: IDisk,
        queues: QueueTable,
        index: IndexService,
    ) -> None:
        self._config = config
        self._disk = disk
        self._queues = queues
        self._index = index
        self.light = LightQueues(config, queues)
        self.bit_maps: BitMaps | None = None
        self._pending: deque[Dispatch] = deque()
        self._tag_hashes: dict[tuple[str, int], int] = {}
        self._delays: list[int] = []
        self._delays_text: str | None = None
        self.offset = 0
        self.confirm_offset: int | None = None
        self.index_is_current = True
        self.listeners: list[ArrivalListener] = []
        self._awaits: dict[ArrivalListener, Awaits] = {}
        self.whole_listeners: list[WholeListener] = []
        # Which light queues are derived while older records are; None while they are not.
        self._wants: Callable[[tuple[str, int]], bool] | None = None

    def dispatch(
        self,
        queue: AnyQueue,
        queue_offset: int,
        physical_offset: int,
        size: int,
        tags_code: int,
        store_timestamp_ms: int,
        sys_flag: int,
        uniq_key: str | None,
        keys: str | None,
        tag_hash: int,
        extras: Extras | None = None,
    ) -> None:
        """Derive what belongs to one record. Records come in the order of the log, each once."""
        if not sys_flag & NOT_IN_QUEUE:
            units = queue.units
            if queue_offset == units.end_index and queue.__class__ is ConsumeQueue:
                units.tail += CQ_UNIT.pack(physical_offset, size, tags_code)
                units.end_index = queue_offset + 1
                queue.max_physical_offset = physical_offset + size
            else:
                self._put(
                    queue,
                    queue_offset,
                    physical_offset,
                    size,
                    tags_code,
                    store_timestamp_ms,
                    extras,
                )
            if not units.dirty:
                self._queues.mark_dirty(queue)
            self._queues.newest_timestamp_ms = store_timestamp_ms
        if (
            self.index_is_current
            and self._config.message_index_enable
            and sys_flag & _ROLLBACK != _ROLLBACK
        ):
            self._index.put_keys(
                queue.topic, uniq_key, keys, tag_hash, physical_offset, store_timestamp_ms
            )
        self.offset = physical_offset + size
        if self.listeners and not sys_flag & NOT_IN_QUEUE:
            following = queue_offset + (1 if extras is None else extras.messages)
            self.tell(queue, following, tags_code, store_timestamp_ms)
        if extras is not None and extras.light and not sys_flag & NOT_IN_QUEUE:
            self._put_light(extras.light, physical_offset, size, tags_code, store_timestamp_ms)

    def _put_light(
        self,
        light: LightUnits,
        physical_offset: int,
        size: int,
        tags_code: int,
        store_timestamp_ms: int,
    ) -> None:
        """Add the units of a record to the light queues that it is in too."""
        for queue, queue_offset in light:
            queue.put(queue_offset, physical_offset, size, tags_code, self._disk)
            self._queues.mark_dirty(queue)
            if self.listeners:
                self.tell(queue, queue_offset + 1, tags_code, store_timestamp_ms)

    def _put(
        self,
        queue: AnyQueue,
        queue_offset: int,
        physical_offset: int,
        size: int,
        tags_code: int,
        store_timestamp_ms: int,
        extras: Extras | None,
    ) -> None:
        """Add the unit of a record to a queue that is not simply one longer by it."""
        if isinstance(queue, ExtendedQueue) and not queue.is_schedule:
            # What says when a message is to be delivered stays where a power failure cannot part it from the unit.
            if physical_offset + size <= queue.max_physical_offset:
                return
            bit_map = None
            if self.bit_maps is not None and extras is not None and extras.properties is not None:
                bit_map = self.bit_maps(queue.topic, extras.properties)
            tags_code = queue.extend(
                physical_offset, size, tags_code, store_timestamp_ms, bit_map or b""
            )
        if isinstance(queue, ConsumeQueue):
            queue.put(queue_offset, physical_offset, size, tags_code, self._disk)
        else:
            queue.put_batch(
                physical_offset,
                size,
                tags_code,
                store_timestamp_ms,
                queue_offset,
                1 if extras is None else extras.messages,
                self._queues.cache,
            )

    def dispatch_batch(self, dispatches: Sequence[Dispatch]) -> None:
        """As `dispatch` for each of the consecutive messages of one queue that came as a client batch: never transactional."""
        queue, queue_offset, _, _, _, store_timestamp_ms, *_ = dispatches[0]
        units = queue.units
        if queue_offset != units.end_index or queue.__class__ is not ConsumeQueue:
            for dispatch in dispatches:
                self.dispatch(*dispatch)
            return
        pack = CQ_UNIT.pack
        units.tail += b"".join([pack(at, size, code) for _, _, at, size, code, *_ in dispatches])
        units.end_index = queue_offset + len(dispatches)
        last = dispatches[-1]
        end_offset = last[2] + last[3]
        queue.max_physical_offset = end_offset
        if not units.dirty:
            self._queues.mark_dirty(queue)
        self._queues.newest_timestamp_ms = store_timestamp_ms
        if self.index_is_current and self._config.message_index_enable:
            self._index.put_batch(
                queue.topic,
                [(keys[7], keys[8], keys[9], keys[2]) for keys in dispatches],
                store_timestamp_ms,
            )
        self.offset = end_offset
        for _, offset, _, _, code, *_ in dispatches if self.listeners else ():
            self.tell(queue, offset + 1, code, store_timestamp_ms)

    def dispatch_block(self, block: Block, offset: int) -> bool:
        """As `dispatch` for all records of a block; the queues' next messages get their places behind them. False, and nothing
        was done, where one of its queues does not simply get longer by it, or the index may know some of it.

        :param offset: of its first record.
        """
        table = self._queues
        if table.rows is not None:
            return False
        queues: list[ConsumeQueue] = []
        for topic, queue_id, first, _, _ in block.runs:
            queue = table.queues.get((topic, queue_id))
            if queue.__class__ is not ConsumeQueue or queue.units.end_index != first:
                return False
            queues.append(queue)
        if self.index_is_current and not self.index_block(block, offset):
            return False
        for queue, (_, _, first, data, end_offset) in zip(queues, block.runs, strict=True):
            units = queue.units
            units.tail += data
            queue.next_index = units.end_index = first + len(data) // CQ_UNIT.size
            queue.max_physical_offset = end_offset
            if end_offset > self.offset:
                self.offset = end_offset
            if not units.dirty:
                table.mark_dirty(queue)
        table.newest_timestamp_ms = block.store_timestamp_ms
        if self.listeners:
            self._tell_of(block, queues)
        return True

    def _tell_of(self, block: Block, queues: Iterable[ConsumeQueue]) -> None:
        """Tell of each message of a block; its newest store time is that of all."""
        for queue, (_, _, first, data, _) in zip(queues, block.runs, strict=True):
            if self._is_awaited(queue):
                for number, (_, _, code) in enumerate(CQ_UNIT.iter_unpack(data), first + 1):
                    self.tell(queue, number, code, block.store_timestamp_ms)

    def _is_awaited(self, queue: AnyQueue) -> bool:
        """Whether some listener may want to hear of a queue's messages."""
        topic, queue_id = queue.topic, queue.queue_id
        for listener in self.listeners:
            awaits = self._awaits.get(listener)
            if awaits is None or awaits(topic, queue_id):
                return True
        return False

    def listen(self, listener: ArrivalListener, awaits: Awaits) -> None:
        """See `IStoreLifecycle.add_arrival_listener`."""
        self.listeners.append(listener)
        self._awaits[listener] = awaits

    def tell(
        self, queue: AnyQueue, next_offset: int, tags_code: int, store_timestamp_ms: int
    ) -> None:
        """Tell all listeners of a message that can be read."""
        try:
            for listener in self.listeners:
                listener(queue.topic, queue.queue_id, next_offset, tags_code, store_timestamp_ms)
        except Exception:
            self.log.failure("an arrival listener failed for {topic}", topic=queue.topic)

    def tell_whole(self, queue: AnyQueue) -> None:
        """Tell all listeners that a queue which was derived again can be read from its beginning to its end."""
        try:
            for listener in self.whole_listeners:
                listener(queue.topic, queue.queue_id)
        except Exception:
            self.log.failure("a listener failed for {topic}, which is whole", topic=queue.topic)

    # ------------------------------------------------------------------ messages that must be flushed first

    def dispatch_later(self, dispatch: Dispatch) -> None:
        """Keep a record until `flushed` says that it is on the device."""
        self._pending.append(dispatch)

    def flushed(self, offset: int) -> None:
        """Everything below a log offset is on the device: dispatch what waited for that."""
        pending = self._pending
        if self.confirm_offset is not None:
            offset = min(offset, self.confirm_offset)
        while pending and pending[0][2] + pending[0][3] <= offset:
            self.dispatch(*pending.popleft())

    def forget(self, topics: frozenset[str]) -> None:
        """Messages of deleted topics are not dispatched any more."""
        kept = [dispatch for dispatch in self._pending if dispatch[0].topic not in topics]
        self._pending.clear()
        self._pending.extend(kept)

    def redirect(self, whole: Mapping[AnyQueue, AnyQueue]) -> None:
        """What waits for these rows is for the queues that take their places."""
        pending = self._pending
        for _ in range(len(pending) if whole else 0):
            dispatch = pending.popleft()
            extras = dispatch[10]
            if extras is not None and extras.light:
                places = [(whole.get(row, row), offset) for row, offset in extras.light]
                extras.light = tuple(
                    (row, offset) for row, offset in places if isinstance(row, ConsumeQueue)
                )
            pending.append((whole.get(dispatch[0], dispatch[0]), *dispatch[1:]))

    def drop_waiting(self) -> None:
        """Forget what waits: the log is cut, and says the rest again."""
        self._pending.clear()

    @property
    def waiting(self) -> int:
        """Records that are in the log and wait for the device, or for replicas."""
        return len(self._pending)

    # ------------------------------------------------------------------ what a send does not say itself

    def tag_hash(self, topic: str, tags_code: int, properties: bytes) -> int:
        """The index hash of a message's tag, -1 without one.

        Few tags make up all traffic, and their codes tell them apart well enough to remember the hashes by them.
        """
        if not tags_code:
            return -1
        found = self._tag_hashes.get((topic, tags_code))
        if found is None:
            tag = parse_properties(properties).get(props.TAGS)
            found = -1 if tag is None else tag_index_hash(topic, tag)
            if len(self._tag_hashes) >= _MAX_TAG_HASHES:
                self._tag_hashes.clear()
            self._tag_hashes[topic, tags_code] = found
        return found

    def batch_dispatches(
        self,
        queue: AnyQueue,
        batch: MessageRecord,
        items: Sequence[BatchItem],
        result: PutMessageResult,
    ) -> list[Dispatch]:
        """What `dispatch` has to be told of each message of a client batch that was appended."""
        topic, sys_flag = batch.topic, batch.sys_flag
        queue_offset, timestamp_ms = result.queue_offset, result.store_timestamp_ms
        starts = result.batch_offsets or (result.physical_offset,)
        ends = (*starts[1:], result.physical_offset + result.wrote_bytes)
        dispatches: list[Dispatch] = []
        for (_, _, text), start, end in zip(items, starts, ends, strict=True):
            found = parse_properties(text)
            tag = found.get(props.TAGS)
            code = tags_code(tag) if tag else 0
            dispatches.append(
                (
                    queue,
                    queue_offset,
                    start,
                    end - start,
                    code,
                    timestamp_ms,
                    sys_flag,
                    found.get(props.UNIQ_KEY),
                    found.get(props.KEYS),
                    self.tag_hash(topic, code, text) if code else -1,
                    None if self.bit_maps is None else Extras(properties=found),
                )
            )
            queue_offset += 1
        return dispatches

    def delivery_time(self, record: MessageRecord, store_timestamp_ms: int) -> int:
        """The tags code of a message of the delay topic: when it is to be delivered, in ms."""
        return self._delivery_time(
            parse_properties(record.properties), store_timestamp_ms, record.tags_code
        )

    # ------------------------------------------------------------------ from the log

    def _delivery_time(self, found: dict[str, str], store_timestamp_ms: int, otherwise: int) -> int:
        text = found.get(props.DELAY_TIME_LEVEL)
        levels = self._config.message_delay_level
        if levels != self._delays_text:
            self._delays_text, self._delays = levels, parse_delay_levels(levels)
        asked = props.count_of(text)
        if asked is None or not self._delays:
            return otherwise
        level = min(asked, len(self._delays))
        return store_timestamp_ms + self._delays[level - 1] if level > 0 else otherwise

    def dispatch_head(self, physical_offset: int, head: RecordHead) -> None:
        """Derive what belongs to a record that was found in the log (recovery, replicas)."""
        self.dispatch(*self.dispatch_of(physical_offset, head))

    def hold_head(self, physical_offset: int, head: RecordHead) -> None:
        """The same, once replicas agree on the record; new messages get their places behind it."""
        dispatch = self.dispatch_of(physical_offset, head)
        self.dispatch_later(dispatch)
        if head.sys_flag & NOT_IN_QUEUE:
            return
        queue, queue_offset, extras = dispatch[0], dispatch[1], dispatch[-1]
        queue.next_index = queue_offset + (1 if extras is None else extras.messages)
        for light, offset in (extras.light or ()) if extras is not None else ():
            light.next_index = max(light.next_index, offset + 1)

    def dispatch_of(self, physical_offset: int, head: RecordHead) -> Dispatch:
        """What `dispatch` has to be told of a record that was found in the log."""
        found = parse_properties(head.properties)
        code = 0
        tags = found.get(props.TAGS)
        if tags:
            code = tags_code(tags)
        if head.topic == SCHEDULE_TOPIC:
            code = self._delivery_time(found, head.store_timestamp, code)
        queue, queue_offset, extras = self._place(physical_offset, head, found)
        if extras is None and (
            self.bit_maps is not None or props.INNER_MULTI_QUEUE_OFFSET in found
        ):
            light = self.light.derived(head.topic, found, self._wants)
            extras = Extras(light=light, properties=found)
        return (
            queue,
            queue_offset,
            physical_offset,
            head.total_size,
            code,
            head.store_timestamp,
            head.sys_flag,
            found.get(props.UNIQ_KEY),
            found.get(props.KEYS),
            tag_index_hash(head.topic, tags) if tags else -1,
            extras,
        )

    def index_head(self, physical_offset: int, head: RecordHead) -> None:
        """Index a record that was found in the log, and do nothing else with it."""
        if not self._config.message_index_enable or head.sys_flag & _ROLLBACK == _ROLLBACK:
            return
        found = parse_properties(head.properties)
        tags = found.get(props.TAGS)
        self._index.put_keys(
            head.topic,
            found.get(props.UNIQ_KEY),
            found.get(props.KEYS),
            tag_index_hash(head.topic, tags) if tags else -1,
            physical_offset,
            head.store_timestamp,
        )

    def index_block(self, block: Block, offset: int) -> bool:
        """As `index_head` for all records of a block, the first of which is at an offset; False where the index may know some."""
        return not self._config.message_index_enable or self._index.put_items(
            block.entries, offset, block.last_offset
        )

    def derive_queues(
        self,
        records: Iterable[tuple[int, RecordHead]],
        wants: Callable[[tuple[str, int]], bool],
    ) -> None:
        """Derive the units of older records, and nothing else: for queues of which `dispatch` hears nothing meanwhile.

        :param wants: tells the light queues that are asked for: one that was begun anew must not get its old messages back.
        """
        table = self._queues
        kept = self.offset, self.index_is_current, self.listeners, table.newest_timestamp_ms
        self.index_is_current, self.listeners, self._wants = False, [], wants
        try:
            for physical_offset, head in records:
                self.dispatch_head(physical_offset, head)
        finally:
            self._wants = None
            self.offset, self.index_is_current, self.listeners, table.newest_timestamp_ms = kept

    def derive_light_queues(
        self, physical_offset: int, head: RecordHead, wants: Callable[[tuple[str, int]], bool]
    ) -> None:
        """Derive the units of an older record in some light queues alone."""
        found = parse_properties(head.properties)
        tags = found.get(props.TAGS)
        for queue, queue_offset in self.light.derived(head.topic, found, wants):
            code = tags_code(tags) if tags else 0
            queue.put(queue_offset, physical_offset, head.total_size, code, self._disk)
            self._queues.mark_dirty(queue)

    def _place(
        self, physical_offset: int, head: RecordHead, found: dict[str, str]
    ) -> tuple[AnyQueue, int, Extras | None]:
        """The queue of a record, its logical offset there, and what it has besides.

        What a record is decides which kind of queue its topic had then: a topic may have been deleted and made anew.
        """
        table, topic, queue_id = self._queues, head.topic, head.queue_id
        is_batch = bool(head.sys_flag & INNER_BATCH_FLAG)
        if self._wants is not None or head.sys_flag & NOT_IN_QUEUE:
            queue = table.create(topic, queue_id, batch=is_batch)
        else:
            queue = table.taking(topic, queue_id, batch=is_batch)
        if is_batch:
            if isinstance(queue, ConsumeQueue):
                queue = self._as_batch_queue(queue, head.store_timestamp)
            first = props.count_of(found.get(props.INNER_BASE), props.MAX_LONG)
            count = props.count_of(found.get(props.INNER_NUM)) or 0
            if first is not None and 0 < count <= MAX_BATCH_MESSAGES:
                return queue, first, Extras(messages=count)
            self._say_no_batch(physical_offset, head)
        return queue, head.queue_offset, None

    def _as_batch_queue(self, queue: ConsumeQueue, store_timestamp_ms: int) -> AnyQueue:
        """The queue of a topic that began with single messages, and has batches too (start-up and replicas only)."""
        table = self._queues
        units = list(queue.entries(table.cache, queue.min_index, queue.max_index - queue.min_index))
        batches = table.replaced(queue.topic, queue.queue_id, batch=True)
        for index, (offset, size, code), _ in units:
            if size != CQ_FILLER_SIZE:
                self._put(batches, index, offset, size, code, store_timestamp_ms, None)
        if units:
            table.mark_dirty(batches)
        return batches

    def _say_no_batch(self, physical_offset: int, head: RecordHead) -> None:
        self.log.warn(
            "the record at {offset} belongs to batch queue {topic}-{queue_id} and is no batch",
            offset=physical_offset,
            topic=head.topic,
            queue_id=head.queue_id,
        )
