"""When and how does a delayed message get to its topic?

Stands for ``ScheduleMessageService``. Official brokers look at each level every 100 ms; here one timer waits for the earliest message
of all levels, and an arrival sets it::

    idle --message arrives--> waiting for its time --timer--> delivering, some messages each turn --none is due--> waiting, or idle
                                                                 `--the store takes nothing--> again in 100 ms

A queue's entries hold the delivery time where others hold the tags code, so nothing but the entry has to be read to wait. The
delivered message is the stored one under its own topic: its property text still names the level and the way back. A slave that acts for its
master hands it to another broker (`txrocketmq.broker.escape`), without the level, which would delay it again there.

Crash story: see `txrocketmq.broker.delay.offsets`. A message is in its topic before its level's offset moves.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.broker.delay.levels import DelayLevels
from txrocketmq.broker.delay.offsets import DelayOffsets
from txrocketmq.broker.escape.bridge import ASKS_FOR_DELAY, EscapeBridge, without
from txrocketmq.broker.stats import BrokerStats
from txrocketmq.broker.stored import NEVER_TAKEN, copy_of, stored_messages, value_of
from txrocketmq.interfaces import IMessageStore, IStoreUpkeep
from txrocketmq.model import properties as props
from txrocketmq.model.message import MessageExt, MessageRecord
from txrocketmq.model.names import (
    SCHEDULE_CONSUMER_GROUP,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
)
from txrocketmq.store.results import GetMessageResult, PutMessageResult

MESSAGES_OF_A_TURN = 32
"""Messages of one level that are delivered before others have their turn."""

FIRST_LOOK_S = 1.0
"""When levels are first looked at after the start, as officially: clients that come back meet no flood."""

RETRY_S = 0.1
"""When a level goes on whose message was not taken."""

FAILURE_S = 10.0
"""When a level goes on that could not be read."""

NO_BYTE_LIMIT = 2**31 - 1

_NOT_FOR_MESSAGES = (TRANS_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC)
"""What is put there would wait once more, or for ever."""


class DelayDelivery:
    """Delivers delayed messages when their time has come."""

    _log = Logger()

    def __init__(
        self,
        store: IMessageStore,
        bridge: EscapeBridge,
        upkeep: IStoreUpkeep,
        levels: DelayLevels,
        offsets: DelayOffsets,
        clock: IReactorTime,
        stats: BrokerStats,
        counts: Callable[[], bool],
    ) -> None:
        self._store = store
        self._bridge = bridge
        self._upkeep = upkeep
        self._levels = levels
        self._offsets = offsets
        self._clock = clock
        self._stats = stats
        self._counts = counts
        self._is_running = False
        self._busy: set[int] = set()
        # Levels whose offset is known to be within their queue.
        self._corrected: set[int] = set()
        # When each level that waits has to be looked at (wall-clock ms).
        self._due: dict[int, int] = {}
        self._timer: IDelayedCall | None = None
        self._timer_at_ms = 0

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Deliver from now on; what became due meanwhile comes in a second."""
        self._is_running = True
        self._corrected.clear()
        first_ms = self._now_ms() + int(FIRST_LOOK_S * 1000)
        for topic, queue_id in self._store.queues():
            if topic == SCHEDULE_TOPIC:
                self._correct(queue_id + 1)
                self._wait(queue_id + 1, first_ms)

    def stop(self) -> None:
        """Deliver nothing any more, not even what was read already."""
        self._is_running = False
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def message_arrived(
        self, topic: str, queue_id: int, next_offset: int, tags_code: int, store_timestamp_ms: int
    ) -> None:
        """Arrival listener of the store."""
        if topic != SCHEDULE_TOPIC or not self._is_running:
            return
        level = queue_id + 1
        # Levels that wait or work have an earlier message before them.
        if level not in self._due and level not in self._busy:
            self._wait(level, self._delivery_ms(level, tags_code))

    def queue_whole(self, topic: str, queue_id: int) -> None:
        """A queue that was derived again can be read: its level has to be looked at."""
        level = queue_id + 1
        if topic == SCHEDULE_TOPIC and self._is_running and level not in self._busy:
            self._wait(level, self._now_ms())

    def _correct(self, level: int) -> None:
        """Bring a level's offset into what its queue has: the file may be older or newer than the log. Not while the queue is derived
        again."""
        if self._store.incomplete(SCHEDULE_TOPIC, level - 1) is not None:
            return
        self._corrected.add(level)
        offset = self._offsets.get(level)
        least = self._store.min_offset(SCHEDULE_TOPIC, level - 1)
        most = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
        corrected = min(max(offset, least), most)
        if corrected != offset:
            self._log.warn(
                "delay level {number} goes on at {corrected}, not at {offset}: its queue has {least} to {most}",
                number=level,
                corrected=corrected,
                offset=offset,
                least=least,
                most=most,
            )
        self._offsets.put(level, corrected)

    # ------------------------------------------------------------------ time

    def _now_ms(self) -> int:
        return int(self._clock.seconds() * 1000)

    def _delivery_ms(self, level: int, stored_ms: int) -> int:
        """When a message is due. One that seems to lie farther ahead than its level was stored by a clock since set back."""
        now_ms = self._now_ms()
        return now_ms if stored_ms > now_ms + self._levels.delay_ms(level) else stored_ms

    def _wait(self, level: int, due_ms: int) -> None:
        self._due[level] = due_ms
        if self._timer is None or due_ms < self._timer_at_ms:
            self._arm(due_ms)

    def _arm(self, due_ms: int) -> None:
        delay_s = max(0.0, due_ms / 1000 - self._clock.seconds())
        self._timer_at_ms = due_ms
        if self._timer is not None:
            self._timer.reset(delay_s)
        else:
            self._timer = self._clock.callLater(delay_s, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        for level in [level for level, due_ms in self._due.items() if due_ms <= now_ms]:
            del self._due[level]
            if level in self._busy:
                # Begun before a stop: another broker has not answered yet. It goes on by itself.
                continue
            self._busy.add(level)
            working = Deferred.fromCoroutine(self._deliver(level))
            working.addCallbacks(self._go_on, self._failed, (level,), errbackArgs=(level,))
        if self._due:
            self._arm(min(self._due.values()))

    def _go_on(self, due_ms: int | None, level: int) -> None:
        """A level's turn is over; what it waits for next."""
        self._busy.discard(level)
        if not self._is_running:
            return
        if due_ms is None and self._offsets.get(level) < self._store.max_offset(
            SCHEDULE_TOPIC, level - 1
        ):
            # A message came while the level was busy.
            due_ms = self._now_ms()
        if due_ms is not None:
            self._wait(level, due_ms)

    def _failed(self, failure: Failure, level: int) -> None:
        self._log.failure("delay level {number} could not be delivered", failure, number=level)
        self._go_on(self._now_ms() + int(FAILURE_S * 1000), level)

    # ------------------------------------------------------------------ delivery

    async def _deliver(self, level: int) -> int | None:
        """Deliver some messages of a level; when it has to be looked at again, None when it is empty."""
        if level not in self._corrected:
            self._correct(level)
            if level not in self._corrected:
                return self._now_ms() + int(FIRST_LOOK_S * 1000)
        offset = self._offsets.get(level)
        entries = await value_of(
            self._upkeep.read_units(SCHEDULE_TOPIC, level - 1, offset, MESSAGES_OF_A_TURN)
        )
        now_ms = self._now_ms()
        due = 0
        for _, (_, _, stored_ms), _ in entries:
            due_ms = self._delivery_ms(level, stored_ms)
            if due_ms > now_ms:
                break
            due += 1
        else:
            # All of them, and perhaps more behind them.
            due_ms = now_ms
        if not entries:
            return None
        if not due:
            return due_ms
        first = entries[0][0]
        found = await value_of(
            self._store.get_message(SCHEDULE_TOPIC, level - 1, first, due, NO_BYTE_LIMIT, None)
        )
        if not await self._put_all(level, found):
            return self._now_ms() + int(RETRY_S * 1000)
        if not self._is_running:
            return None
        if self._offsets.get(level) <= first:
            self._offsets.put(level, max(found.next_begin_offset, first + 1))
        elif self._offsets.get(level) == first + due:
            return due_ms
        return now_ms

    async def _put_all(self, level: int, found: GetMessageResult) -> bool:
        """Put what was read, one after the other; False when the store did not take one of them."""
        messages = stored_messages(found)
        for offset, message in zip(found.queue_offsets, messages, strict=True):
            if not self._is_running:
                return True
            if message is not None and not await self._put(message, level):
                return False
            self._offsets.put(level, offset + 1)
        return True

    async def _put(self, message: MessageExt, level: int) -> bool:
        """Put a message to its topic; False when the store does not take it now."""
        record = self._time_up(message, level)
        if record is None:
            return True
        if not self._bridge.is_local:
            record = without(record, *ASKS_FOR_DELAY)
        result: PutMessageResult = await value_of(self._bridge.put(record))
        if result.is_ok:
            if not result.is_remote:
                self._count(record.topic, level, result)
            return True
        if result.status not in NEVER_TAKEN:
            return False
        # One message that never can be put must not hold up those behind it.
        self._log.error(
            "delayed message {id} for {topic} is not taken by the store and stays in the delay topic: {status}",
            id=message.msg_id,
            topic=record.topic,
            status=result.status.name,
        )
        return True

    def _time_up(self, message: MessageExt, level: int) -> MessageRecord | None:
        """The message for its own topic; None when it does not say where it belongs."""
        found = message.properties
        topic = found.get(props.REAL_TOPIC)
        queue_id = props.count_of(found.get(props.REAL_QUEUE_ID))
        if not topic or queue_id is None or topic in _NOT_FOR_MESSAGES:
            self._log.error(
                "message {id} of delay level {number} is left there: its properties name topic {topic!r} and queue {queue_id!r}",
                id=message.msg_id,
                number=level,
                topic=topic,
                queue_id=found.get(props.REAL_QUEUE_ID),
            )
            return None
        return copy_of(message, topic, queue_id, message.properties_text)

    def _count(self, topic: str, level: int, result: PutMessageResult) -> None:
        if not self._counts():
            return
        stats, size_bytes = self._stats, result.wrote_bytes
        stats.of_group(SCHEDULE_TOPIC, SCHEDULE_CONSUMER_GROUP).count(size_bytes)
        stats.of_topic(topic).count(size_bytes)
        stats.by_queue.queue_read(SCHEDULE_TOPIC, level - 1, SCHEDULE_CONSUMER_GROUP, size_bytes)
