"""Which messages come again because nobody acknowledged them in time?

Stands for ``PopReviveService``, one for each queue of the revive topic. Check points and acknowledgements are read in the order of the
log; what a check point still lacks when its time is over is put to the group's retry topic::

    read up to the end -> due check points -> each message without acknowledgement -> retry topic -> acknowledged by the broker itself

Records lie in the log when they are written, not when they count. So check points wait here, in memory,
and their times are looked at here. Nothing is revived before everything is read, so an acknowledgement that is in the log counts.

A check point may name another broker: a slave that acted for its master wrote it here (`txrocketmq.broker.escape`). Its messages are read
there, and put to the retry topic here.

Crash story: the offset of the revive group stands before the first check point that is not done, so all that matter are read again
after a start, and those behind it that are done with their acknowledgements. Only a crash between the two last steps puts the messages
of a check point to the retry topic twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.broker.escape.bridge import EscapeBridge
from txrocketmq.broker.pop.inflight import InFlight
from txrocketmq.broker.pop.receipts import normal_topic_of, retry_topic_of
from txrocketmq.broker.pop.revive_log import (
    ACK_INTERVAL_MS,
    ORIGIN_GROUP,
    Entry,
    ReviveLog,
    acknowledged,
    merge_key,
    offsets_of,
    read_entry,
)
from txrocketmq.broker.stored import (
    copy_of,
    stored_messages,
    unpacked,
    value_of,
    with_notes,
)
from txrocketmq.codec.bodies import BatchAckMsg, PopCheckPoint
from txrocketmq.errors import BodyError, ResponseError, StoreError
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model import properties as props
from txrocketmq.model.flags import INNER_BATCH_FLAG, PERM_READ_WRITE
from txrocketmq.model.message import Host, MessageExt, MessageRecord
from txrocketmq.model.names import REVIVE_GROUP
from txrocketmq.store.results import GetMessageResult, PutMessageResult

if TYPE_CHECKING:
    from txrocketmq.broker.consumer_offsets import ConsumerOffsets
    from txrocketmq.broker.groups import SubscriptionGroups
    from txrocketmq.broker.stats import BrokerStats
    from txrocketmq.broker.topics import Topics
    from txrocketmq.config.schema import BrokerConfig

NO_BYTE_LIMIT = 2**31 - 1
RECORDS_AT_ONCE = 32
READS_OF_A_TURN = 8
"""Reads of the log before others have their turn."""
REVIVED_OF_A_TURN = 64

GRACE_MS = ACK_INTERVAL_MS + 1000
"""So long after its time a message comes again at the earliest; an acknowledgement that was on its way still counts."""
RETRY_MS = 5000
"""When the store takes no message, it is asked again after so long."""

RETRY_QUEUES = 1
SYSTEM = "POP revival"


class Parts(NamedTuple):
    """What revival works with."""

    config: BrokerConfig
    store: IMessageStore
    bridge: EscapeBridge
    topics: Topics
    groups: SubscriptionGroups
    offsets: ConsumerOffsets
    stats: BrokerStats
    in_flight: InFlight
    log: ReviveLog
    host: Host


class Point:
    """A check point that waits for acknowledgements.

    :ivar missing: logical offsets that are not acknowledged.
    :ivar due_ms: when they come again.
    :ivar last: the last offset that it named.
    :ivar place: logical offset of its record in the revive queue.
    :ivar is_gone: its topic was deleted: nothing of it comes again, also when there is a topic of that name once more.
    """

    __slots__ = (
        "broker_name",
        "due_ms",
        "group",
        "is_gone",
        "key",
        "last",
        "missing",
        "place",
        "pop_time_ms",
        "queue_id",
        "start_offset",
        "topic",
    )

    def __init__(self, point: PopCheckPoint, key: str, place: int) -> None:
        self.key = key
        self.topic = point.topic or ""
        self.group = point.cid or ""
        self.queue_id = point.queue_id
        self.start_offset = point.start_offset
        self.broker_name = point.broker_name
        self.pop_time_ms = point.pop_time
        self.due_ms = point.pop_time + point.invisible_time
        self.missing = offsets_of(point)
        self.last = max(self.missing, default=-1)
        self.place = place
        self.is_gone = False

    def join(self, other: Point) -> None:
        """Another check point of the same key: the same offset was popped at the same time by its clock, before and after a restart that
        forgot where the group stood. What only the other one names comes again with this one."""
        self.missing += [offset for offset in other.missing if offset > self.last]
        self.last = max(self.last, other.last)

    def is_of(self, topic: str) -> bool:
        """Whether its messages are of a topic, or of a retry topic for it."""
        return topic in (self.topic, normal_topic_of(self.topic, self.group))


class ReviveQueue:
    """One queue of the revive topic.

    :ivar next_offset: the record to read next.
    :ivar revived: how many messages came again.
    """

    _log = Logger()

    def __init__(self, parts: Parts, queue_id: int, clock: IReactorTime) -> None:
        self._parts = parts
        self._clock = clock
        self._queue_id = queue_id
        self._points: dict[str, Point] = {}
        self._due: list[tuple[int, int, Point]] = []
        self._places: deque[Point] = deque()
        self._is_running = False
        self._is_busy = False
        self._is_placed = False
        self.next_offset = 0
        self.revived = 0

    def start(self) -> None:
        """Begin behind what is done for good."""
        self._is_running = True
        self._is_placed = False
        self._find_place()

    def _find_place(self) -> bool:
        """Whether it is known where to begin: not while the queue is derived from the log."""
        parts, topic = self._parts, self._parts.log.topic
        if self._is_placed or parts.store.incomplete(topic, self._queue_id) is not None:
            return self._is_placed
        done = parts.offsets.query(REVIVE_GROUP, topic, self._queue_id)
        least = parts.store.min_offset(topic, self._queue_id)
        most = parts.store.max_offset(topic, self._queue_id)
        self.next_offset = min(max(done + 1, least), most)
        # What waited when this broker last had this to do was another one's since.
        self._points.clear()
        self._due.clear()
        self._places.clear()
        self._is_placed = True
        return True

    def stop(self) -> None:
        """Revive nothing any more; a pass that runs ends where it is."""
        self._is_running = False

    def topic_deleted(self, topic: str) -> None:
        """What was popped of a topic is done with the next pass: at its offsets there may be other messages soon."""
        for point in self._points.values():
            if point.is_of(topic) and not point.is_gone:
                point.is_gone = True
                heappush(self._due, (0, point.place, point))

    def knows(self, key: str) -> bool:
        """Whether a check point of this key waits."""
        return key in self._points

    def acknowledge(self, entry: Entry) -> bool:
        """Take an acknowledgement that is not written down; whether its check point waits here."""
        if not self._is_running or not self.knows(merge_key(entry, self._parts.config.broker_name)):
            return False
        self._take(entry, -1)
        return True

    def written(self, entry: Entry, put: PutMessageResult) -> None:
        """A record was just written: it is counted, and need not be read when all before it was."""
        self._parts.stats.of_topic(self._parts.log.topic).count(put.wrote_bytes)
        place = put.queue_offset
        if place == self.next_offset and self._is_running and self._is_placed:
            self.next_offset = place + 1
            self._take(entry, place)

    @property
    def waiting_count(self) -> int:
        """Check points that wait for acknowledgements or their time."""
        return len(self._points)

    def behind(self) -> int:
        """Records that were not read yet."""
        end = self._parts.store.max_offset(self._parts.log.topic, self._queue_id)
        return max(0, end - self.next_offset)

    def oldest_ms(self) -> int | None:
        """When the first messages come again; None when none do."""
        self._forget_done()
        return self._due[0][0] if self._due else None

    # ----------------------------------------------------------------- a pass

    def begin(self) -> None:
        """Begin a pass, unless one runs."""
        if self._is_busy or not self._is_running or not self._find_place():
            return
        self._is_busy = True
        running = Deferred.fromCoroutine(self._pass())
        running.addErrback(self._failed).addCallback(self._ended)

    def _ended(self, ignored: None) -> None:
        self._is_busy = False

    def _failed(self, failure: Failure) -> None:
        self._log.failure(
            "revive queue {queue} could not be worked on", failure, queue=self._queue_id
        )

    async def _pass(self) -> None:
        if await self._read():
            await self._revive()
        self.commit()

    def commit(self) -> None:
        """Note how far everything is done."""
        self._forget_done()
        done = (self._places[0].place if self._places else self.next_offset) - 1
        parts, topic = self._parts, self._parts.log.topic
        if done > parts.offsets.query(REVIVE_GROUP, topic, self._queue_id):
            parts.offsets.commit(REVIVE_GROUP, topic, self._queue_id, done, SYSTEM)

    def _forget_done(self) -> None:
        """Drop what is done from the front of both orders; now and then from everywhere."""
        points = self._points
        while self._places and points.get(self._places[0].key) is not self._places[0]:
            self._places.popleft()
        while self._due and points.get(self._due[0][2].key) is not self._due[0][2]:
            heappop(self._due)
        limit = 2 * len(points) + 1024
        if len(self._places) > limit:
            self._places = deque(p for p in self._places if points.get(p.key) is p)
        if len(self._due) > limit:
            self._due = [entry for entry in self._due if points.get(entry[2].key) is entry[2]]
            heapify(self._due)

    # ----------------------------------------------------------------- reading

    async def _read(self) -> bool:
        """Read what is new; whether all is read."""
        store, topic, queue_id = self._parts.store, self._parts.log.topic, self._queue_id
        reads = 0
        while self._is_running and self.next_offset < store.max_offset(topic, queue_id):
            asked = self.next_offset
            found: GetMessageResult = await value_of(
                store.get_message(topic, queue_id, asked, RECORDS_AT_ONCE, NO_BYTE_LIMIT, None)
            )
            for offset, message in zip(found.queue_offsets, stored_messages(found), strict=True):
                if offset < self.next_offset:
                    continue
                self.next_offset = offset + 1
                if message is not None:
                    self._read_record(message, offset)
            if not found.queue_offsets:
                # Those before are gone from the log.
                self.next_offset = max(found.next_begin_offset, asked + 1)
            reads += 1
            if reads % READS_OF_A_TURN == 0:
                await deferLater(self._clock, 0)
        return self._is_running

    def _read_record(self, message: MessageExt, offset: int) -> None:
        try:
            entry = read_entry(message)
        except BodyError as error:
            self._log.error(
                "record {offset} of revive queue {queue} is passed over: {error}",
                offset=offset,
                queue=self._queue_id,
                error=error,
            )
            return
        if entry is not None:
            self._take(entry, offset)

    def _take(self, entry: Entry, place: int) -> None:
        key = merge_key(entry, self._parts.config.broker_name)
        known = self._points.get(key)
        if isinstance(entry, PopCheckPoint):
            point = Point(entry, key, place)
            if known is not None:
                known.join(point)
            elif point.missing:
                self._points[key] = point
                self._places.append(point)
                heappush(self._due, (point.due_ms, place, point))
            return
        if known is None:
            return
        for offset in acknowledged(entry):
            if offset in known.missing:
                known.missing.remove(offset)
        if not known.missing:
            del self._points[key]

    # ----------------------------------------------------------------- reviving

    async def _revive(self) -> None:
        revived = 0
        while self._is_running:
            self._forget_done()
            now_ms = int(self._clock.seconds() * 1000)
            if not self._due or self._due[0][0] + GRACE_MS > now_ms:
                return
            _, place, point = heappop(self._due)
            offsets = tuple(point.missing)
            is_done = await self._revive_point(point)
            if done := [offset for offset in offsets if is_done or offset not in point.missing]:
                self._note_done(point, done)
            if is_done:
                self._points.pop(point.key, None)
            else:
                heappush(self._due, (now_ms + RETRY_MS - GRACE_MS, place, point))
            revived += 1
            if revived % REVIVED_OF_A_TURN == 0:
                await deferLater(self._clock, 0)

    async def _revive_point(self, point: Point) -> bool:
        """Let the messages of a check point come again; whether it is done."""
        parts = self._parts
        if (
            point.is_gone
            or parts.topics.get(normal_topic_of(point.topic, point.group)) is None
            or parts.groups.find(point.group) is None
        ):
            self._log.warn(
                "messages that group {group} popped of {topic} do not come again: one of the two is gone",
                group=point.group,
                topic=point.topic,
            )
            return True
        if parts.store.incomplete(point.topic, point.queue_id) is not None:
            # Derived from the log just now: what cannot be read is not gone.
            return False
        await self._make_retry_topic(point)
        for offset in tuple(point.missing):
            try:
                message = await self._find(point, offset)
            except (StoreError, OSError, ResponseError, BodyError) as error:
                self._log.error(
                    "message {offset} of {topic} queue {queue} cannot be read to come again: {error}",
                    offset=offset,
                    topic=point.topic,
                    queue=point.queue_id,
                    error=error,
                )
                return False
            if offset not in point.missing:
                # Acknowledged while it was read.
                continue
            if message is not None and not await self._put(point, message):
                return False
            point.missing.remove(offset)
            parts.in_flight.done((point.topic, point.group, point.queue_id), point.pop_time_ms)
        return True

    async def _make_retry_topic(self, point: Point) -> None:
        """See that there is the topic to which a check point's messages go, and that a crash does not forget it: they would be done, and gone."""
        parts = self._parts
        topic = retry_topic_of(point.topic, point.group, parts.config.enable_retry_topic_v2)
        if parts.bridge.is_local and parts.topics.get(topic) is None:
            parts.topics.create_for_group(topic, RETRY_QUEUES, PERM_READ_WRITE, False, 0)
            if parts.offsets.query(point.group, topic, 0) < 0:
                parts.offsets.commit(point.group, topic, 0, 0, SYSTEM)
            await value_of(parts.topics.file.kept(None))

    def _note_done(self, point: Point, offsets: list[int]) -> None:
        """Write down that these come again, since check points before this one may wait for long. A slave cannot."""
        parts = self._parts
        if not parts.bridge.is_local:
            return
        entry = BatchAckMsg(
            ack_offset=-1,
            ack_offset_list=offsets,
            broker_name=point.broker_name,
            consumer_group=point.group,
            pop_time=point.pop_time_ms,
            queue_id=point.queue_id,
            start_offset=point.start_offset,
            topic=point.topic,
        )
        now_ms = int(self._clock.seconds() * 1000)
        record = parts.log.ack(entry, self._queue_id, point.due_ms, now_ms)
        record.wait_store_msg_ok = False
        put = parts.store.put_message(record)
        if isinstance(put, PutMessageResult) and put.is_ok:
            self.written(entry, put)

    async def _find(self, point: Point, offset: int) -> MessageExt | None:
        """The message at an offset; None when the log has it no more."""
        broker_name = point.broker_name
        if broker_name and broker_name != self._parts.config.broker_name:
            return await self._parts.bridge.find(broker_name, point.topic, point.queue_id, offset)
        found: GetMessageResult = await value_of(
            self._parts.store.get_message(
                point.topic, point.queue_id, offset, 1, NO_BYTE_LIMIT, None
            )
        )
        for place, message in zip(found.queue_offsets, stored_messages(found), strict=True):
            if place == offset:
                return message
        self._log.warn(
            "message {offset} of {topic} queue {queue} does not come again: the log has it no more",
            offset=offset,
            topic=point.topic,
            queue=point.queue_id,
        )
        return None

    async def _put(self, point: Point, message: MessageExt) -> bool:
        """Put a message to the group's retry topic; whether it is there."""
        parts = self._parts
        topic = retry_topic_of(point.topic, point.group, parts.config.enable_retry_topic_v2)
        normal = normal_topic_of(point.topic, point.group)
        for record in self._again(point, message, topic):
            put: PutMessageResult = await value_of(
                parts.bridge.put_to_specific_queue(record, beside=normal)
            )
            if not put.is_ok:
                self._log.error(
                    "a message of {topic} cannot come again to group {group}: {status}; it is tried again",
                    topic=point.topic,
                    group=point.group,
                    status=put,
                )
                return False
            if not put.is_remote:
                parts.stats.of_topic(topic).count(put.wrote_bytes)
        self.revived += 1
        return True

    def _again(self, point: Point, message: MessageExt, topic: str) -> Iterator[MessageRecord]:
        """A message as it comes again; a batch that is one record comes as its messages, since retry topics have no queues for such."""
        host = self._parts.host
        for single in unpacked(message) if message.sys_flag & INNER_BATCH_FLAG else (message,):
            notes = {ORIGIN_GROUP: point.group}
            if message.reconsume_times == 0 or props.FIRST_POP_TIME not in single.properties:
                notes = {props.FIRST_POP_TIME: str(point.pop_time_ms), **notes}
            text = with_notes(single.properties, notes)
            record = copy_of(single, topic, 0, text, reconsume_times=message.reconsume_times + 1)
            yield msgspec.structs.replace(record, born_host=host, store_host=host)
