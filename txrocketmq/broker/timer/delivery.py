"""When and how are the messages of a slot delivered?

Stands for ``TimerDequeueGetService`` and the services behind it. A slot is delivered when it is over, so no message comes early; one
timer waits for the end of the present slot. Of a slot the messages that take others back are read first, then the others, oldest first.

Crash story: a slot counts as delivered when all of it was. A crash in between delivers it again, and so does a slave that ceases to act for
its master in between, by its master.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.broker.stored import value_of
from txrocketmq.broker.timer.metrics import TimerMetrics
from txrocketmq.broker.timer.pauses import Pauses
from txrocketmq.broker.timer.putting import TimerPuts
from txrocketmq.codec.record import decode_record
from txrocketmq.codec.storefiles import TIMER_MAGIC_ROLL
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import RecordError
from txrocketmq.interfaces import IStoreUpkeep
from txrocketmq.model import properties as props
from txrocketmq.model.message import MessageExt
from txrocketmq.store.timer.chain import Chain
from txrocketmq.store.timer.timer_store import TimerStore

MESSAGES_OF_A_TURN = 64
BYTES_OF_A_TURN = 4 * 1024 * 1024


class TimerDelivery:
    """Delivers slots.

    :param before: called before each look at the slots.
    """

    _log = Logger()

    def __init__(
        self,
        config: MessageStoreConfig,
        upkeep: IStoreUpkeep,
        timer: TimerStore,
        puts: TimerPuts,
        metrics: TimerMetrics,
        pauses: Pauses,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        before: Callable[[], object],
    ) -> None:
        self._config = config
        self._upkeep = upkeep
        self._timer = timer
        self._puts = puts
        self._metrics = metrics
        self._pauses = pauses
        self._clock = clock
        self._now_ms = now_ms
        self._before = before
        self._is_running = False
        self._delivers = False
        self._gives_up = False
        self._tick: IDelayedCall | None = None
        self._working: Deferred[None] | None = None
        self._when_idle: list[Deferred[None]] = []

    def start(self, *, delivers: bool) -> None:
        """Look at the slots from now on.

        :param delivers: False on a slave, which only takes.
        """
        self._is_running = True
        self._delivers = delivers
        self._tick = self._clock.callLater(0, self._look)

    def set_delivers(self, delivers: bool) -> None:
        """The broker's role changed; see `start`."""
        self._delivers = delivers

    def stop(self) -> None:
        """Begin no other slot."""
        self._is_running = False
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None

    def give_up(self) -> None:
        """Leave the slot that is being delivered; the next start delivers all of it."""
        self._gives_up = True

    def when_idle(self) -> Deferred[None]:
        """Fires when no slot is being delivered."""
        idle: Deferred[None] = Deferred()
        if self._working is None:
            idle.callback(None)
        else:
            self._when_idle.append(idle)
        return idle

    def _look(self) -> None:
        precision_ms = self._timer.precision_ms
        now = self._clock.seconds()
        end_s = (int(now * 1000) // precision_ms + 1) * precision_ms / 1000
        self._tick = self._clock.callLater(max(0.0, end_s - now), self._look)
        self._before()
        if self._working is not None or not self._delivers:
            return
        self._working = working = Deferred.fromCoroutine(self._work())
        working.addErrback(self._failed)
        working.addCallback(self._ended)

    def _failed(self, failure: Failure) -> None:
        self._log.failure("the slot {slot} could not be read", failure, slot=self._timer.read_ms)

    def _ended(self, ignored: object) -> None:
        self._working = None
        waiting, self._when_idle = self._when_idle, []
        for idle in waiting:
            idle.callback(None)

    # ------------------------------------------------------------------ slots

    async def _work(self) -> None:
        timer = self._timer
        while self._is_running and self._delivers and not self._config.timer_stop_dequeue:
            now_ms = self._now_ms()
            timer.write_ms(now_ms)
            end_ms = timer.wheel.floor(now_ms)
            if end_ms <= timer.read_ms:
                return
            slot = timer.due(end_ms)
            if slot is None or not await self._deliver(slot):
                return
            timer.done(slot)

    async def _deliver(self, slot: int) -> bool:
        """Deliver a slot; False when the broker stops, or is not to deliver any more, before all of it is."""
        chain = await self._timer.read_slot(slot)
        if chain.fault is not None:
            self._log.error("some timed messages may be missing: {fault}", fault=chain.fault)
        recalled: dict[str, str | None] = {}
        for numbers in _groups(chain, chain.deletes):
            for _, message in await self._messages(chain, numbers):
                key = message.properties.get(props.TIMER_DEL_UNIQKEY)
                if key is not None:
                    recalled[key] = message.properties.get(props.REAL_TOPIC)
        unmet = dict(recalled)
        for numbers in _groups(chain, chain.others):
            for number, message in await self._messages(chain, numbers):
                if self._gives_up or not self._delivers:
                    return False
                key = _recalled_by(message, recalled)
                if key is not None:
                    unmet.pop(key, None)
                    continue
                is_rolled = bool(chain.magics[number] & TIMER_MAGIC_ROLL)
                # A slave may have chosen another slot for one that is put again; better twice than never.
                if not is_rolled and self._timer.is_done_elsewhere(message.queue_offset, slot):
                    self._metrics.add(message.properties.get(props.REAL_TOPIC), -1)
                    continue
                if not await self._puts.put(message, chain.taken_ms[number], is_rolled=is_rolled):
                    return False
            await self._pauses.wait(0)
        for topic in unmet.values():
            # Taken off for a message that was not there.
            self._metrics.add(topic, 1)
        return True

    async def _messages(self, chain: Chain, numbers: list[int]) -> list[tuple[int, MessageExt]]:
        """Some messages of a chain, with their numbers there; without those that are gone."""
        spans = [(chain.offsets[number], chain.sizes[number]) for number in numbers]
        records = await value_of(self._upkeep.read_records(spans))
        found = []
        for number, record in zip(numbers, records, strict=True):
            if record is None:
                self._log.warn(
                    "a timed message is gone from the log at {offset}", offset=chain.offsets[number]
                )
                continue
            try:
                found.append((number, decode_record(record)[0]))
            except RecordError as error:
                self._log.error("a stored message cannot be read: {error}", error=error)
        return found


def _groups(chain: Chain, numbers: Iterable[int]) -> Iterator[list[int]]:
    """The numbers in groups that are read at a time."""
    group: list[int] = []
    size = 0
    for number in numbers:
        if group and (
            len(group) == MESSAGES_OF_A_TURN or size + chain.sizes[number] > BYTES_OF_A_TURN
        ):
            yield group
            group, size = [], 0
        group.append(number)
        size += chain.sizes[number]
    if group:
        yield group


def _recalled_by(message: MessageExt, recalled: dict[str, str | None]) -> str | None:
    """The key by which a message is taken back: its id, with or without its topic before it (`appendTopicForTimerDeleteKey`)."""
    uniq_key = message.uniq_key
    if not recalled or uniq_key is None:
        return None
    if uniq_key in recalled:
        return uniq_key
    key = f"{message.properties.get(props.REAL_TOPIC)}+{uniq_key}"
    return key if key in recalled else None
