"""Who handles the messages of a concurrent consumer, how many at a time, and what becomes of those that fail?

Stands for ``ConsumeMessageConcurrentlyService``. One batch::

                                                    .--> processed: its offsets may be committed
    waiting --> handler --status, exception, time-out--> given back to the broker --> processed
       ^                                                         | neither broker nor retry topic takes it
       `----------------------- 5 s later -----------------------'

A handler that answers at once is called again at once, for up to 10 ms in a turn of the reactor; so neither heartbeats nor other queues
wait for it. One that does not is counted, and no more than ``consume_thread_max`` are under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.client.consumer.handlers import (
    ConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ReturnType,
    cancel_handler,
)
from txrocketmq.client.consumer.parts import Parts
from txrocketmq.client.consumer.process_queue import ProcessQueue
from txrocketmq.client.hooks import ConsumeContext
from txrocketmq.errors import RocketMQError
from txrocketmq.model.message import MessageExt, MessageQueue

log = Logger()

SLICE_S = 0.01
"""How long handlers run in one turn of the reactor."""
RETRY_S = 5.0
"""When messages that nobody took back are handled again."""
EXPIRED_DELAY_LEVEL = 3
MAX_SWEEP_S = 60.0

_SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS


class Held(Protocol):
    """What one queue has in the hands of this member: a `ProcessQueue`, or a `PopProcessQueue`."""

    dropped: bool
    consuming: int


class Outcomes(Protocol):
    """What becomes of messages after the handler; differs between pulled and popped ones."""

    def may_begin(self, held: Any, messages: Sequence[MessageExt]) -> bool:
        """Whether the handler may have them still."""

    def is_open(self, held: Any, message: MessageExt) -> bool:
        """Whether nobody has settled a message yet."""

    def processed(self, queue: MessageQueue, held: Any, messages: Sequence[MessageExt]) -> None:
        """They are done with."""

    async def give_back(
        self, queue: MessageQueue, held: Any, messages: Sequence[MessageExt], delay_level: int
    ) -> list[MessageExt]:
        """Have them delivered again; those that nobody took."""


class PulledOutcomes:
    """Offsets move on; failed messages go to the broker (clustering) or are lost (broadcasting)."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def may_begin(self, held: ProcessQueue, messages: Sequence[MessageExt]) -> bool:
        """See `Outcomes`."""
        return True

    def is_open(self, held: ProcessQueue, message: MessageExt) -> bool:
        """See `Outcomes`."""
        return not held.dropped and held.holds(message)

    def processed(
        self, queue: MessageQueue, held: ProcessQueue, messages: Sequence[MessageExt]
    ) -> None:
        """See `Outcomes`."""
        offset = held.remove(messages, self._parts.clock.seconds())
        if offset >= 0 and not held.dropped:
            self._parts.offsets.update(queue, offset, True)

    async def give_back(
        self,
        queue: MessageQueue,
        held: ProcessQueue,
        messages: Sequence[MessageExt],
        delay_level: int,
    ) -> list[MessageExt]:
        """See `Outcomes`."""
        parts = self._parts
        if not parts.is_clustering:
            log.warn(
                "group {group}: {count} messages of {queue} from offset {offset} on failed; in "
                "broadcasting they are not consumed again",
                group=parts.group,
                count=len(messages),
                queue=queue,
                offset=messages[0].queue_offset,
            )
            self.processed(queue, held, messages)
            return []
        refused: list[MessageExt] = []
        for message in messages:
            origin = parts.config.with_namespace(message.topic)
            try:
                await parts.brokers.send_back(
                    message, origin, delay_level, parts.settings.max_tries
                )
            except RocketMQError as error:
                refused.append(message)
                if parts.calm.may_tell("refused"):
                    log.error(
                        "group {group}: message {id} is kept and handled again here: {error}",
                        group=parts.group,
                        id=message.msg_id,
                        error=error,
                    )
            except Exception:
                # A message that its handler has bent, for one: it must not be lost for that.
                refused.append(message)
                log.failure("giving message {id} back", id=message.msg_id)
            else:
                self.processed(queue, held, [message])
        return refused


class _Work:
    """Messages of one pull that wait for the handler."""

    __slots__ = ("held", "messages", "position", "queue")

    def __init__(self, queue: MessageQueue, held: Held, messages: Sequence[MessageExt]) -> None:
        self.queue = queue
        self.held = held
        self.messages = messages
        self.position = 0


class _Run:
    """A handler that has not answered yet, or whose messages are being given back."""

    __slots__ = (
        "began_s",
        "context",
        "deferred",
        "expired",
        "held",
        "hooked",
        "messages",
        "queue",
    )

    def __init__(
        self, work: _Work, messages: list[MessageExt], context: ConcurrentlyContext, began_s: float
    ) -> None:
        self.queue = work.queue
        self.held = work.held
        self.messages = messages
        self.context = context
        self.began_s = began_s
        self.deferred: Deferred[Any] | None = None
        self.expired = False
        self.hooked: ConsumeContext | None = None


class ConcurrentConsumption:
    """Hands messages to the handler, several batches at a time.

    :param outcomes: what becomes of them; `PulledOutcomes` unless given.
    """

    def __init__(self, parts: Parts, outcomes: Outcomes | None = None) -> None:
        self._parts = parts
        self._outcomes: Outcomes = outcomes or PulledOutcomes(parts)
        self._clock = parts.clock
        self._handler = parts.handler
        self._limit = parts.settings.consume_thread_max
        self._batch_size = parts.settings.consume_message_batch_max_size
        self._timeout_s = parts.settings.consume_timeout * 60
        self._waiting: deque[_Work] = deque()
        # As dicts: what happens to several follows the order in which they began, not where they lie in memory.
        self._runs: dict[_Run, None] = {}
        self._later: set[IDelayedCall] = set()
        self._pumping = False
        self._next_turn: IDelayedCall | None = None
        self._sweep: IDelayedCall | None = None
        self._stopping: Deferred[None] | None = None

    @property
    def running(self) -> int:
        """Handlers under way."""
        return len(self._runs)

    def start(self) -> None:
        """Begin to look for handlers that take too long."""
        self._sweep = self._clock.callLater(self._sweep_s, self._expire)

    @property
    def _sweep_s(self) -> float:
        return min(MAX_SWEEP_S, max(0.1, self._timeout_s / 10))

    def submit(self, queue: MessageQueue, held: Held, messages: Sequence[MessageExt]) -> None:
        """Have messages handled."""
        if self._stopping is None:
            self._waiting.append(_Work(queue, held, messages))
            self._pump()

    # ------------------------------------------------------------------ handing out

    def _pump(self) -> None:
        if self._pumping or self._next_turn is not None:
            return
        self._pumping = True
        try:
            end = self._clock.seconds() + SLICE_S
            while self._waiting and len(self._runs) < self._limit and self._stopping is None:
                work = self._waiting[0]
                if work.held.dropped:
                    self._waiting.popleft()
                    continue
                if not self._hand_out(work, end):
                    break
                # A stop from within the handler has emptied the line.
                if self._waiting and self._waiting[0] is work:
                    self._waiting.popleft()
            if self._waiting and len(self._runs) < self._limit and self._stopping is None:
                self._next_turn = self._clock.callLater(0, self._go_on)
        finally:
            self._pumping = False
            self._look_whether_stopped()

    def _go_on(self) -> None:
        self._next_turn = None
        self._pump()

    def _hand_out(self, work: _Work, end: float) -> bool:
        """Call the handler with one batch after the other; False when time is up, or too many are under way."""
        messages, size, held, queue = work.messages, self._batch_size, work.held, work.queue
        total, position = len(messages), work.position
        parts, clock, call = self._parts, self._clock, self._handler.call
        counts = parts.stats.of(queue.topic)
        hooks = parts.settings.consume_hooks
        done: list[MessageExt] = []
        calls = 0
        started = began = clock.seconds()
        while position < total and not held.dropped and self._stopping is None:
            batch = list(messages[position : position + size])
            position += size
            if not self._outcomes.may_begin(held, batch):
                continue
            context = ConcurrentlyContext(queue)
            hooked = parts.before_handler(batch, queue) if hooks else None
            result = call(batch, context)
            now = clock.seconds()
            if result is _SUCCESS and context.ack_index is None:
                done += batch
                calls += 1
                if hooked is not None:
                    parts.after_handler(hooked, result.value, ReturnType.SUCCESS.value, True)
            else:
                run = _Run(work, batch, context, began)
                run.hooked = hooked
                self._begin(run, result)
                if len(self._runs) >= self._limit:
                    break
            began = now
            if now >= end:
                break
        work.position = position
        if done:
            counts.consumes += calls
            counts.consume_rt += (began - started) * 1000
            counts.consume_ok += len(done)
            self._processed(queue, held, done)
        return position >= total

    def _processed(self, queue: MessageQueue, held: Held, messages: Sequence[MessageExt]) -> None:
        """They are done with; one that its handler has bent so that this cannot be noted harms no other."""
        try:
            self._outcomes.processed(queue, held, messages)
        except Exception:
            log.failure("noting that messages of {queue} are processed", queue=queue)

    def _begin(self, run: _Run, result: Any) -> None:
        """The handler did not simply succeed at once: it goes on, or its messages need care."""
        self._runs[run] = None
        run.held.consuming += 1
        if isinstance(result, Deferred):
            run.deferred = result
            result.addBoth(self._answered, run)
        else:
            self._answered(result, run)

    def _answered(self, result: object, run: _Run) -> None:
        run.deferred = None
        if run.expired:
            # Its messages were given back; what it says does not count any more.
            if self._handler.in_thread:
                self._end(run)
            return
        try:
            self._settle(result, run)
        except Exception:
            log.failure("settling messages of {queue}", queue=run.queue)
            self._end(run)

    def _settle(self, result: object, run: _Run) -> None:
        now = self._clock.seconds()
        status, return_type, _ = self._handler.judge(result)
        if return_type is ReturnType.SUCCESS and now - run.began_s >= self._timeout_s:
            return_type = ReturnType.TIME_OUT
        success = status is _SUCCESS
        self._parts.after_handler(run.hooked, status.value, return_type.value, success)
        good = _processed_count(success, run)
        counts = self._parts.stats.of(run.queue.topic)
        counts.consumes += 1
        counts.consume_rt += (now - run.began_s) * 1000
        counts.consume_ok += good
        counts.consume_failed += len(run.messages) - good
        if good:
            self._processed(run.queue, run.held, run.messages[:good])
        self._give_back(run, run.messages[good:], run.context.delay_level_when_next_consume)

    # ------------------------------------------------------------------ what becomes of messages

    def _give_back(self, run: _Run, messages: Sequence[MessageExt], delay_level: int) -> None:
        """Failed messages are delivered later; the handler's place is taken until that is settled."""
        # One that is not open any more was given back when its time was up, or belongs to another member.
        back = [message for message in messages if self._outcomes.is_open(run.held, message)]
        if not back:
            self._end(run)
            return
        given = Deferred.fromCoroutine(
            self._outcomes.give_back(run.queue, run.held, back, delay_level)
        )
        given.addCallbacks(self._given_back, _not_given_back, callbackArgs=(run,))
        given.addCallback(lambda _: self._end(run))

    def _given_back(self, refused: list[MessageExt], run: _Run) -> None:
        for message in refused:
            message.reconsume_times += 1
        if refused:
            self._again_later(run.queue, run.held, refused)

    def _again_later(self, queue: MessageQueue, held: Held, messages: list[MessageExt]) -> None:
        def again() -> None:
            self._later.discard(call)
            self.submit(queue, held, messages)

        if self._stopping is None:
            call = self._clock.callLater(RETRY_S, again)
            self._later.add(call)

    def _end(self, run: _Run) -> None:
        if run in self._runs:
            del self._runs[run]
            run.held.consuming -= 1
            self._look_whether_stopped()
            self._pump()

    def _look_whether_stopped(self) -> None:
        stopping = self._stopping
        # A handler that has the consumer stopped is still being called then, and is no run yet.
        if stopping is not None and not (self._runs or self._pumping or stopping.called):
            stopping.callback(None)

    # ------------------------------------------------------------------ time-outs

    def _expire(self) -> None:
        """Give back the messages of handlers that take longer than ``consume_timeout``; what can be cancelled is."""
        self._sweep = self._clock.callLater(self._sweep_s, self._expire)
        now = self._clock.seconds()
        for run in [run for run in self._runs if now - run.began_s >= self._timeout_s]:
            if run.expired or run.deferred is None:
                continue
            run.expired = True
            log.warn(
                "group {group}: the handler has not answered for {seconds} s; message {id} of {queue} is "
                "given back",
                group=self._parts.group,
                seconds=round(now - run.began_s),
                id=run.messages[0].msg_id,
                queue=run.queue,
            )
            self._parts.after_handler(
                run.hooked,
                ConsumeConcurrentlyStatus.RECONSUME_LATER.value,
                ReturnType.TIME_OUT.value,
                False,
            )
            counts = self._parts.stats.of(run.queue.topic)
            counts.consume_failed += len(run.messages)
            if self._handler.in_thread:
                # The thread cannot be stopped; its place stays taken.
                shadow = _Run(
                    _Work(run.queue, run.held, ()), run.messages, run.context, run.began_s
                )
                shadow.expired = True
                self._runs[shadow] = None
                run.held.consuming += 1
                self._give_back(shadow, run.messages, EXPIRED_DELAY_LEVEL)
            else:
                cancel_handler(run.deferred)
                self._give_back(run, run.messages, EXPIRED_DELAY_LEVEL)

    # ------------------------------------------------------------------ stop

    def stop(self, bound_s: float) -> Deferred[None]:
        """Begin nothing new; fires when all handlers have answered, or when ``bound_s`` is over: what is still under way then is
        cancelled, and its messages come again, here or at another member."""
        if self._stopping is not None:
            return succeed(None)
        self._waiting.clear()
        for call in (self._next_turn, self._sweep, *self._later):
            if call is not None and call.active():
                call.cancel()
        self._later.clear()
        stopping = self._stopping = Deferred()
        self._look_whether_stopped()
        if stopping.called:
            return succeed(None)
        bound = self._clock.callLater(bound_s, self._give_up)
        return stopping.addBoth(_cancel, bound)

    def _give_up(self) -> None:
        log.warn(
            "group {group}: {count} handlers have not answered; what they do is done again",
            group=self._parts.group,
            count=len(self._runs),
        )
        for run in list(self._runs):
            run.expired = True
            if run.deferred is not None and not self._handler.in_thread:
                cancel_handler(run.deferred)
        self._runs.clear()
        assert self._stopping is not None
        if not self._stopping.called:
            self._stopping.callback(None)


def _processed_count(success: bool, run: _Run) -> int:
    if not success:
        return 0
    ack_index = run.context.ack_index
    count = len(run.messages)
    return count if ack_index is None else max(0, min(count, ack_index + 1))


def _not_given_back(failure: Failure) -> None:
    log.failure("giving messages back", failure)


def _cancel(outcome: object, call: IDelayedCall) -> None:
    if call.active():
        call.cancel()
