"""Where is noted what was handed out, and where does each group stand then?

Stands for ``PopBufferMergeService``. As usual a check point goes to the revive topic at once, and the group's offset follows. With
`enablePopBufferMerge` it stays in memory for up to `popCkStayBufferTime`: when all is acknowledged by then nothing is written at all.
Offsets follow in the order of the pops, each when its check point is in the log or done.

A slave that acts for its master writes all of it to one queue of another broker (`txrocketmq.broker.escape`), which lets come again what is
not acknowledged. Acknowledgements for check points of the time before, which this slave's own log has, count here at once: they are
done when the slave says how far it is, and come again should it be killed before.

Crash story: an offset never passes a message whose check point is only in memory, so a crash makes messages come again and loses none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from twisted.logger import Logger

from txrocketmq.broker.escape.bridge import EscapeBridge
from txrocketmq.broker.pop.receipts import normal_topic_of
from txrocketmq.broker.pop.revive import ReviveQueue
from txrocketmq.broker.pop.revive_log import (
    ReviveLog,
    acknowledged,
    merge_key,
    offsets_of,
)
from txrocketmq.broker.stored import value_of
from txrocketmq.codec.bodies import AckMsg, BatchAckMsg, PopCheckPoint
from txrocketmq.model.message import MessageRecord
from txrocketmq.store.results import PutMessageResult

if TYPE_CHECKING:
    from txrocketmq.broker.consumer_offsets import ConsumerOffsets
    from txrocketmq.config.schema import BrokerConfig

Key = tuple[str, str, int]
"""Topic (as it was really popped), group, queue id."""

SYSTEM = "POP"
MAX_WAITING = 100_000
"""Check points of one revive queue that may wait in memory, about 0.5 KiB each. Then nothing more is handed out through it until consumers
acknowledge, or times are over."""
SPARE_MS = 1500
"""A check point that is due sooner than this after `popCkStayBufferTimeOut` is not kept in memory."""


class Step:
    """One pop of a queue, in the order of pops.

    :ivar next_offset: where the group stands when it is settled.
    :ivar is_settled: its check point is in the log, or nothing has to be noted.
    """

    __slots__ = ("is_settled", "next_offset")

    def __init__(self, next_offset: int, is_settled: bool) -> None:
        self.next_offset = next_offset
        self.is_settled = is_settled


class Kept:
    """A check point in memory."""

    __slots__ = ("is_writing", "key", "missing", "point", "revive_queue", "step")

    def __init__(self, point: PopCheckPoint, key: str, revive_queue: int, step: Step) -> None:
        self.point = point
        self.key = key
        self.revive_queue = revive_queue
        self.step = step
        self.missing = set(offsets_of(point))
        self.is_writing = False


class CheckPoints:
    """Notes pops and acknowledgements.

    :ivar max_waiting: see `MAX_WAITING`.
    """

    _log = Logger()

    def __init__(
        self,
        config: BrokerConfig,
        bridge: EscapeBridge,
        offsets: ConsumerOffsets,
        log: ReviveLog,
        queues: Sequence[ReviveQueue],
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._bridge = bridge
        self._offsets = offsets
        self._log_records = log
        self._queues = queues
        self._now_ms = now_ms
        self.max_waiting = MAX_WAITING
        self._kept: dict[str, Kept] = {}
        self._steps: dict[Key, deque[Step]] = {}
        self._is_stopped = False

    @property
    def kept_count(self) -> int:
        """Check points that are in memory only."""
        return len(self._kept)

    @property
    def queue_count(self) -> int:
        """How many revive queues there are."""
        return len(self._queues)

    def is_full(self, revive_queue: int) -> bool:
        """Whether so many check points of a revive queue wait that no more are taken."""
        return self._queues[revive_queue].waiting_count >= self.max_waiting

    def latest(self, key: Key) -> int:
        """The offset behind the newest pop of a queue that is not settled; -1 when all are."""
        steps = self._steps.get(key)
        return steps[-1].next_offset if steps else -1

    def forget_queue(self, key: Key) -> None:
        """An operator moved the group: older pops must not move it again."""
        self._steps.pop(key, None)

    def topic_deleted(self, topic: str) -> None:
        """Nothing of a topic is out any more, and nobody stands anywhere in it."""
        for key in [key for key in self._steps if _is_of(key, topic)]:
            del self._steps[key]
        for kept in tuple(self._kept.values()):
            if _is_of(_queue_of(kept.point), topic):
                del self._kept[kept.key]
        for queue in self._queues:
            queue.topic_deleted(topic)

    # ----------------------------------------------------------------- pops

    async def add(self, point: PopCheckPoint, revive_queue: int, next_offset: int) -> bool:
        """Messages are about to be handed out; False when that cannot be noted, so that they must not be.

        :param next_offset: where the queue is popped next.
        """
        key = merge_key(point, self._config.broker_name)
        if key in self._kept or self._queues[revive_queue].knows(key):
            # The same offset was popped in the same millisecond, before an operator moved the group back.
            return False
        if self.is_full(revive_queue):
            return False
        step = Step(next_offset, False)
        if self._may_keep(point):
            self._steps.setdefault(_queue_of(point), deque()).append(step)
            self._kept[key] = Kept(point, key, revive_queue, step)
            return True
        if not await self.write_point(point, revive_queue):
            return False
        step.is_settled = True
        self._steps.setdefault(_queue_of(point), deque()).append(step)
        self._settle(_queue_of(point))
        return True

    def skip(self, key: Key, next_offset: int) -> None:
        """A pop found nothing that the group wants up to an offset."""
        self._steps.setdefault(key, deque()).append(Step(next_offset, True))
        self._settle(key)

    def _may_keep(self, point: PopCheckPoint) -> bool:
        config = self._config
        spare_ms = point.revive_time - self._now_ms() - config.pop_ck_stay_buffer_time_out
        return (
            config.enable_pop_buffer_merge
            and not self._is_stopped
            and spare_ms >= SPARE_MS
            and len(self._kept) <= config.pop_ck_max_buffer_size
            and len(self._steps.get(_queue_of(point), ())) < config.pop_ck_offset_max_queue_size
        )

    def _settle(self, key: Key) -> None:
        """Move the group past all pops that are settled."""
        steps = self._steps[key]
        topic, group, queue_id = key
        while steps and steps[0].is_settled:
            self._offsets.commit(group, topic, queue_id, steps.popleft().next_offset, SYSTEM)
        if not steps:
            del self._steps[key]

    def _settled(self, kept: Kept) -> None:
        kept.step.is_settled = True
        key = _queue_of(kept.point)
        if key in self._steps:
            self._settle(key)

    # ----------------------------------------------------------------- acknowledgements

    async def acknowledge(
        self, entry: AckMsg | BatchAckMsg, revive_queue: int, due_ms: int
    ) -> PutMessageResult | None:
        """Note an acknowledgement; None when it need not be written down (yet).

        :param due_ms: when the messages of its check point come again.
        """
        kept = self._kept.get(merge_key(entry, self._config.broker_name))
        if kept is not None:
            kept.missing.difference_update(acknowledged(entry))
            if not kept.missing and not kept.is_writing:
                del self._kept[kept.key]
                self._settled(kept)
            return None
        queue = self._queues[revive_queue]
        if not self._bridge.is_local and queue.acknowledge(entry):
            return None
        record = self._log_records.ack(entry, revive_queue, due_ms, self._now_ms())
        put = await self._write(record)
        self._note_written(entry, revive_queue, put)
        return put

    def _note_written(
        self, entry: PopCheckPoint | AckMsg | BatchAckMsg, revive_queue: int, put: PutMessageResult
    ) -> None:
        if put.is_ok and not put.is_remote:
            self._queues[revive_queue].written(entry, put)

    async def write_point(self, point: PopCheckPoint, revive_queue: int) -> bool:
        """Write a check point to the log; whether it is there."""
        record = self._log_records.check_point(point, revive_queue, self._now_ms())
        put = await self._write(record)
        if not put.is_ok:
            self._log.error(
                "a pop of group {group} from {topic} cannot be noted: {status}",
                group=point.cid,
                topic=point.topic,
                status=put,
            )
            return False
        self._note_written(point, revive_queue, put)
        return True

    async def _write(self, record: MessageRecord) -> PutMessageResult:
        put: PutMessageResult = await value_of(self._bridge.put_to_specific_queue(record))
        return put

    # ----------------------------------------------------------------- from memory to the log

    def due(self) -> list[Kept]:
        """Check points that must not stay in memory."""
        config, now_ms = self._config, self._now_ms()
        return [
            kept
            for kept in self._kept.values()
            if not kept.is_writing
            and (
                self._is_stopped
                or not config.enable_pop_buffer_merge
                or kept.point.revive_time - now_ms < config.pop_ck_stay_buffer_time_out
                or now_ms - kept.point.pop_time > config.pop_ck_stay_buffer_time
            )
        ]

    def stop(self) -> list[Kept]:
        """Keep nothing in memory any more; what is to be written."""
        self._is_stopped = True
        return self.due()

    async def write(self, kept: Kept) -> None:
        """Write a check point that was in memory, and what of it is acknowledged."""
        point = kept.point
        kept.is_writing = True
        written = await self.write_point(point, kept.revive_queue)
        kept.is_writing = False
        if not written:
            # It stays, and is tried again.
            return
        self._kept.pop(kept.key, None)
        self._settled(kept)
        done = [offset for offset in offsets_of(point) if offset not in kept.missing]
        if not done:
            return
        for entry in self._acks(point, done):
            record = self._log_records.ack(
                entry, kept.revive_queue, point.revive_time, self._now_ms(), is_gathered=True
            )
            self._note_written(entry, kept.revive_queue, await self._write(record))

    def _acks(self, point: PopCheckPoint, done: list[int]) -> list[AckMsg | BatchAckMsg]:
        if self._config.enable_pop_batch_ack:
            return [
                BatchAckMsg(
                    ack_offset_list=done,
                    consumer_group=point.cid,
                    pop_time=point.pop_time,
                    queue_id=point.queue_id,
                    start_offset=point.start_offset,
                    topic=point.topic,
                )
            ]
        return [
            AckMsg(
                ack_offset=offset,
                broker_name=point.broker_name,
                consumer_group=point.cid,
                pop_time=point.pop_time,
                queue_id=point.queue_id,
                start_offset=point.start_offset,
                topic=point.topic,
            )
            for offset in done
        ]


def _queue_of(point: PopCheckPoint) -> Key:
    return point.topic or "", point.cid or "", point.queue_id


def _is_of(key: Key, topic: str) -> bool:
    return topic in (key[0], normal_topic_of(key[0], key[1]))
