"""How do messages of the timer topic get into the wheel?

Stands for ``TimerEnqueueGetService`` and ``TimerEnqueuePutService``. Official brokers look at the topic every 100 ms; here an arrival
begins the work::

    idle --message arrives--> taking, some messages each turn --no more--> idle
                                 `--no room, queue not known, told to stop--> looked at again with the next slot

A message whose slot is over when it is looked at goes to its topic directly. A slave takes what its master took, and delivers nothing, unless
it acts for its master: then it takes all there is. A master that comes back leaves out what such a slave delivered.

Crash story: the place in the topic is saved with the wheel; what was taken behind it is in the timer log and is recognized.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.broker.stored import value_of
from txrocketmq.broker.timer.metrics import TimerMetrics
from txrocketmq.broker.timer.pauses import Pauses
from txrocketmq.broker.timer.putting import NEVER_TAKEN_MS, TimerPuts
from txrocketmq.broker.timer.times import parse_long
from txrocketmq.codec.record import decode_record
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import RecordError
from txrocketmq.interfaces import IMessageStore, IStoreUpkeep
from txrocketmq.model import properties as props
from txrocketmq.model.javahash import java_hash
from txrocketmq.model.message import MessageExt
from txrocketmq.model.names import TIMER_TOPIC
from txrocketmq.store.timer.timer_store import TimerStore

MESSAGES_OF_A_TURN = 64
BYTES_OF_A_TURN = 4 * 1024 * 1024
ROLL_EARLY = 3
"""A message that lies less than this share of the window behind the window is put again after half a window (official)."""


class TimerTaking:
    """Takes messages into the wheel.

    :param follows: whether only what the master took is taken.
    :ivar taken: how many were taken since the start.
    """

    _log = Logger()

    def __init__(
        self,
        config: MessageStoreConfig,
        store: IMessageStore,
        upkeep: IStoreUpkeep,
        timer: TimerStore,
        puts: TimerPuts,
        metrics: TimerMetrics,
        pauses: Pauses,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        follows: Callable[[], bool],
    ) -> None:
        self._config = config
        self._store = store
        self._upkeep = upkeep
        self._timer = timer
        self._puts = puts
        self._metrics = metrics
        self._pauses = pauses
        self._clock = clock
        self._now_ms = now_ms
        self._follows = follows
        self._is_running = False
        self._soon: IDelayedCall | None = None
        self._working: Deferred[None] | None = None
        self.taken = 0

    def start(self) -> None:
        """Take messages from now on."""
        self._is_running = True
        self.wake()

    def stop(self) -> None:
        """Take no more."""
        self._is_running = False
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    def message_arrived(
        self, topic: str, queue_id: int, next_offset: int, tags_code: int, store_timestamp_ms: int
    ) -> None:
        """Arrival listener of the store."""
        if topic == TIMER_TOPIC:
            self.wake()

    def queue_whole(self, topic: str, queue_id: int) -> None:
        """A queue that was derived again can be read."""
        if topic == TIMER_TOPIC:
            self.wake()

    def wake(self) -> None:
        """See what there is, after this turn of the reactor."""
        if self._is_running and self._soon is None and self._working is None:
            self._soon = self._clock.callLater(0, self._begin)

    @property
    def behind(self) -> int:
        """Messages of the timer topic that were not looked at."""
        return max(0, self._store.max_offset(TIMER_TOPIC, 0) - self._timer.queue_offset)

    def _begin(self) -> None:
        self._soon = None
        self._working = working = Deferred.fromCoroutine(self._work())
        working.addErrback(self._failed)
        working.addCallback(self._ended)

    def _failed(self, failure: Failure) -> None:
        self._log.failure("timed messages could not be taken", failure)

    def _ended(self, ignored: object) -> None:
        self._working = None

    # ------------------------------------------------------------------ work

    async def _work(self) -> None:
        while self._is_running and not self._config.timer_stop_enqueue:
            if not await self._take_some():
                return
            await self._pauses.wait(0)

    async def _take_some(self) -> bool:
        """Take some messages; False when there is nothing to do now."""
        timer = self._timer
        if self._store.incomplete(TIMER_TOPIC, 0) is not None:
            return False
        self._correct()
        count = MESSAGES_OF_A_TURN
        if self._follows():
            count = min(count, (timer.master_offset or 0) - timer.queue_offset)
        if count <= 0:
            return False
        entries = await value_of(self._upkeep.read_units(TIMER_TOPIC, 0, timer.queue_offset, count))
        total = 0
        for number, (_, (_, size, _), _) in enumerate(entries):
            total += size
            if total > BYTES_OF_A_TURN and number:
                entries = entries[:number]
                break
        if not entries or not self._is_running:
            return False
        records = await value_of(
            self._upkeep.read_records([(offset, size) for _, (offset, size, _), _ in entries])
        )
        for (index, (offset, size, _), _), record in zip(entries, records, strict=True):
            if not self._is_running or not await self._take(index, offset, size, record):
                return False
            timer.queue_offset = index + 1
            self.taken += 1
        return True

    def _correct(self) -> None:
        """Bring the place into what the topic has: the checkpoint may be older or newer than the log."""
        timer = self._timer
        least = self._store.min_offset(TIMER_TOPIC, 0)
        most = self._store.max_offset(TIMER_TOPIC, 0)
        corrected = min(max(timer.queue_offset, least), most)
        if corrected != timer.queue_offset:
            self._log.warn(
                "timed messages are taken from {corrected} on, not from {offset}: the topic has {least} to {most}",
                corrected=corrected,
                offset=timer.queue_offset,
                least=least,
                most=most,
            )
            timer.queue_offset = corrected

    async def _take(self, index: int, offset: int, size: int, record: bytes | None) -> bool:
        """Take one message; False when it has to be looked at again later."""
        timer = self._timer
        if offset in timer.known:
            timer.known.discard(offset)
            return True
        message = self._read(offset, record)
        if message is None:
            return True
        found = message.properties
        out_ms = parse_long(found.get(props.TIMER_OUT_MS, ""))
        if out_ms is None:
            self._log.error(
                "message {id} of the timer topic is left there: its {name} is {text!r}",
                id=message.msg_id,
                name=props.TIMER_OUT_MS,
                text=found.get(props.TIMER_OUT_MS),
            )
            return True
        slot = timer.wheel.floor(out_ms)
        if index < timer.redone_below and slot < timer.start_ms:
            return True
        if timer.is_done_elsewhere(index, slot):
            return True
        is_late = slot + timer.precision_ms <= self._now_ms()
        write_ms = timer.write_ms(self._now_ms())
        if self._follows():
            if slot < timer.read_ms:
                return True
        elif is_late:
            return await self._puts.put(message, NEVER_TAKEN_MS, is_rolled=False)
        else:
            slot = max(slot, write_ms)
        return self._wait(message, offset, size, slot, write_ms)

    def _read(self, offset: int, record: bytes | None) -> MessageExt | None:
        if record is None:
            self._log.warn(
                "a message of the timer topic is gone from the log at {offset}", offset=offset
            )
            return None
        try:
            return decode_record(record)[0]
        except RecordError as error:
            self._log.error("a stored message cannot be read: {error}", error=error)
            return None

    def _wait(self, message: MessageExt, offset: int, size: int, slot: int, write_ms: int) -> bool:
        """Let a message wait for a slot; False when there is no room."""
        timer, found = self._timer, message.properties
        window_ms = timer.roll_slots * timer.precision_ms
        is_rolled = slot - write_ms >= window_ms
        if is_rolled:
            if slot - write_ms - window_ms < timer.roll_slots // ROLL_EARLY * timer.precision_ms:
                slot = write_ms + timer.roll_slots // 2 * timer.precision_ms
            else:
                slot = write_ms + window_ms
        if not timer.has_room(slot):
            timer.flush().addCallback(lambda done: self.wake())
            return False
        is_delete = props.TIMER_DEL_UNIQKEY in found
        topic = found.get(props.REAL_TOPIC)
        timer.add(
            slot,
            write_ms,
            offset,
            size,
            java_hash(topic or ""),
            is_rolled=is_rolled,
            is_delete=is_delete,
        )
        if not self._follows():
            # A slave has its master's counts.
            self._metrics.add(topic, -1 if is_delete else 1)
        return True
