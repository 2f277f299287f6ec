"""How are the messages of a queue handled in order, by one member alone?

Stands for ``ConsumeMessageOrderlyService`` and the lock half of ``RebalanceImpl``. Each queue is a line of its own::

            messages are there                      the batch was taken from the front
    idle -----------------------> waits for a place -----------------> handler --SUCCESS--> committed, next batch
     ^                                  ^                                 |
     | nothing is left                  | its time is over                | SUSPEND, ROLLBACK, exception: put back
     |                                  `----- suspended <----------------'
     `-- no lock: asked for again, 100 ms later, then every 3 s

A line is never in two of these states, so no two handlers of one queue ever run at once, whatever happens to its locks. The broker's lock is
renewed every 20 s, also while a handler runs whose queue goes to somebody else: it is given back when that handler is done and its offset is
saved, and not before, so that two owners never overlap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from txrocketmq.client.consumer.concurrent import MAX_SWEEP_S, SLICE_S
from txrocketmq.client.consumer.handlers import (
    ConsumeOrderlyStatus,
    OrderlyContext,
    ReturnType,
    cancel_handler,
)
from txrocketmq.client.consumer.parts import Parts
from txrocketmq.client.consumer.process_queue import ProcessQueue
from txrocketmq.client.hooks import ConsumeContext
from txrocketmq.client.periodic import Periodic
from txrocketmq.errors import RocketMQError
from txrocketmq.model import properties as props
from txrocketmq.model.message import MessageExt, MessageQueue

log = Logger()

LOCK_EVERY_S = 20.0
FIRST_LOCK_S = 1.0
TRY_LOCK_S = 0.1
TRY_LOCK_AGAIN_S = 3.0
MIN_SUSPEND_MS = 10
MAX_SUSPEND_MS = 30_000
MAX_INT = 2**31 - 1

_Status = ConsumeOrderlyStatus


class _Line:
    """One queue's place in the order of things."""

    def __init__(self, queue: MessageQueue, held: ProcessQueue) -> None:
        self.queue = queue
        self.held = held
        self.is_running = False
        self.is_waiting = False
        self.timer: IDelayedCall | None = None
        self.messages: list[MessageExt] = []
        self.context = OrderlyContext(queue)
        self.began_s = 0.0
        self.deferred: Deferred[Any] | None = None
        self.hooked: ConsumeContext | None = None
        self.when_idle: list[Deferred[None]] = []

    def stop_timer(self) -> None:
        timer, self.timer = self.timer, None
        if timer is not None and timer.active():
            timer.cancel()


class OrderlyConsumption:
    """Hands messages to the handler queue by queue, and keeps the queues' locks.

    :ivar on_lost: told of a queue whose lock another member has.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._clock = parts.clock
        self._settings = parts.settings
        self._handler = parts.handler
        self._timeout_s = parts.settings.consume_timeout * 60
        self._lines: dict[MessageQueue, _Line] = {}
        self._waiting: deque[_Line] = deque()
        self._places = parts.settings.consume_thread_max
        self._pumping = False
        self._next_turn: IDelayedCall | None = None
        self._sweep: IDelayedCall | None = None
        self._stopping = False
        self.on_lost: Callable[[MessageQueue, ProcessQueue], object] = _nobody_asks
        self._locking = Periodic(
            parts.clock,
            f"locks of group {parts.group}",
            LOCK_EVERY_S,
            self.lock_all,
            FIRST_LOCK_S,
        )

    @property
    def running(self) -> int:
        """Handlers under way."""
        return self._settings.consume_thread_max - self._places

    def start(self) -> None:
        """Begin to renew locks, and to look for handlers that take too long."""
        if self._parts.is_clustering:
            self._locking.start()
        self._sweep = self._clock.callLater(self._sweep_s, self._expire)

    @property
    def _sweep_s(self) -> float:
        return min(MAX_SWEEP_S, max(0.1, self._timeout_s / 10))

    # ------------------------------------------------------------------ lines

    def enter(self, queue: MessageQueue, held: ProcessQueue) -> None:
        """A queue is ours, and locked. Whoever had it in this member before has left it."""
        self._lines[queue] = _Line(queue, held)

    def submit(self, queue: MessageQueue, held: ProcessQueue, messages: object = ()) -> None:
        """A queue has messages; they are held in its process queue."""
        line = self._lines.get(queue)
        if line is not None and line.held is held:
            self._wake(line)

    def _wake(self, line: _Line) -> None:
        if line.is_running or line.is_waiting or line.timer is not None or self._stopping:
            return
        if line.held.has_waiting and not line.held.dropped:
            line.is_waiting = True
            self._waiting.append(line)
            self._pump()

    def _later(self, line: _Line, seconds: float) -> None:
        """Wake a line when its time has come."""
        if self._stopping or line.held.dropped:
            return

        def wake() -> None:
            line.timer = None
            self._wake(line)

        line.stop_timer()
        line.timer = self._clock.callLater(seconds, wake)

    def _pump(self) -> None:
        if self._pumping or self._next_turn is not None:
            return
        self._pumping = True
        try:
            end = self._clock.seconds() + SLICE_S
            while self._waiting and self._places > 0 and not self._stopping:
                if self._clock.seconds() >= end:
                    self._next_turn = self._clock.callLater(0, self._go_on)
                    return
                line = self._waiting.popleft()
                line.is_waiting = False
                self._run(line, end)
        finally:
            self._pumping = False

    def _go_on(self) -> None:
        self._next_turn = None
        self._pump()

    def _may_run(self, line: _Line) -> bool:
        held = line.held
        if held.dropped or self._stopping or line.is_running or line.timer is not None:
            return False
        if not self._parts.is_clustering:
            return True
        now = self._clock.seconds()
        if held.locked and not held.lock_expired(now):
            return True
        line.timer = self._clock.callLater(TRY_LOCK_S, self._try_lock, line)
        return False

    def _run(self, line: _Line, end: float) -> None:
        """Handle batches of a line as long as the handler answers at once and there is time."""
        while self._may_run(line):
            now = self._clock.seconds()
            if now >= end:
                self._later(line, 0)
                return
            messages = line.held.take(self._settings.consume_message_batch_max_size, now)
            if not messages:
                return
            line.messages = messages
            line.context = OrderlyContext(line.queue)
            line.began_s = now
            line.hooked = self._parts.before_handler(messages, line.queue)
            line.is_running = True
            line.held.consuming += 1
            self._places -= 1
            result = self._handler.call(list(messages), line.context)
            if isinstance(result, Deferred):
                line.deferred = result
                result.addBoth(self._answered, line)
                return
            self._judged(line, result)

    def _answered(self, result: object, line: _Line) -> None:
        line.deferred = None
        self._judged(line, result)
        if not line.is_running:
            self._wake(line)

    def _judged(self, line: _Line, result: object) -> None:
        """The handler has answered: commit, put back, or give up. Messages that it has bent so that none of it works are tried again."""
        try:
            self._judge(line, result)
        except Exception:
            log.failure("settling messages of {queue}", queue=line.queue)
            if line.is_running:
                line.held.put_back(line.messages)
                self._suspend(line)
                self._ended(line)

    def _judge(self, line: _Line, result: object) -> None:
        now = self._clock.seconds()
        status, return_type, _ = self._handler.judge(result)
        if return_type is ReturnType.SUCCESS and now - line.began_s >= self._timeout_s:
            return_type = ReturnType.TIME_OUT
        good = status in (_Status.SUCCESS, _Status.COMMIT)
        self._parts.after_handler(line.hooked, status.value, return_type.value, good)
        counts = self._parts.stats.of(line.queue.topic)
        counts.consumes += 1
        counts.consume_rt += (now - line.began_s) * 1000
        if good:
            counts.consume_ok += len(line.messages)
        else:
            counts.consume_failed += len(line.messages)
        if line.context.auto_commit and status in (_Status.COMMIT, _Status.ROLLBACK):
            log.warn(
                "group {group}: {status} with auto_commit counts as SUCCESS, {queue}",
                group=self._parts.group,
                status=status.name,
                queue=line.queue,
            )
            status = _Status.SUCCESS
        if status is _Status.SUSPEND_CURRENT_QUEUE_A_MOMENT:
            self._suspend_or_give_up(line)
            return
        if status is _Status.ROLLBACK:
            line.held.put_back()
            self._suspend(line)
        elif line.context.auto_commit or status is _Status.COMMIT:
            self._commit(line)
        self._ended(line)

    def _commit(self, line: _Line) -> None:
        offset = line.held.commit_taken()
        # A dropped queue is still ours until its lock is given back, unless somebody moved its offset.
        if offset >= 0 and not line.held.discarded:
            self._parts.offsets.update(line.queue, offset, False)

    def _suspend(self, line: _Line) -> None:
        wanted = line.context.suspend_current_queue_time_millis
        if wanted == -1:
            wanted = self._settings.suspend_current_queue_time_millis
        self._later(line, max(MIN_SUSPEND_MS, min(wanted, MAX_SUSPEND_MS)) / 1000)

    def _suspend_or_give_up(self, line: _Line) -> None:
        """Count one more try; messages that had all of theirs go to the retry topic, whose broker makes dead letters of them."""
        limit = self._settings.max_reconsume_times
        if limit == -1:
            limit = MAX_INT
        too_often = []
        for message in line.messages:
            if message.reconsume_times >= limit:
                message.properties[props.RECONSUME_TIME] = str(message.reconsume_times)
                too_often.append(message)
            else:
                message.reconsume_times += 1
        if not too_often:
            line.held.put_back(line.messages)
            self._suspend(line)
            self._ended(line)
            return
        keep_all = len(too_often) < len(line.messages)
        sent = Deferred.fromCoroutine(self._give_up(line, too_often, limit, keep_all))
        sent.addErrback(lambda failure: log.failure("giving up messages", failure))
        sent.addCallback(lambda _: self._ended(line, wake=True))

    async def _give_up(
        self, line: _Line, messages: list[MessageExt], limit: int, keep_all: bool
    ) -> None:
        suspend = keep_all
        for message in messages:
            origin = self._parts.config.with_namespace(message.topic)
            try:
                await self._parts.brokers.send_anew(message, origin, limit)
            except RocketMQError as error:
                log.error(
                    "group {group}: message {id} could not be given up and is tried again: {error}",
                    group=self._parts.group,
                    id=message.msg_id,
                    error=error,
                )
                message.reconsume_times += 1
                suspend = True
            except Exception:
                log.failure("giving message {id} up", id=message.msg_id)
                suspend = True
        if suspend:
            line.held.put_back(line.messages)
            self._suspend(line)
        elif line.context.auto_commit:
            self._commit(line)

    def _ended(self, line: _Line, wake: bool = False) -> None:
        line.is_running = False
        line.held.consuming -= 1
        self._places += 1
        waiters, line.when_idle = line.when_idle, []
        for waiter in waiters:
            waiter.callback(None)
        if wake:
            self._wake(line)
        self._pump()

    # ------------------------------------------------------------------ locks

    def lock_all(self) -> Deferred[None]:
        """Renew the locks of all queues, those that a handler still uses among them."""
        held = {
            queue: line.held
            for queue, line in self._lines.items()
            if not line.held.dropped or line.is_running
        }
        return self.lock(held).addCallback(lambda _: None)

    def lock(self, held: dict[MessageQueue, ProcessQueue]) -> Deferred[set[MessageQueue]]:
        """Ask the brokers for queues; notes who was granted. A broker that did not answer takes no lock away: it runs out by itself."""
        if not held:
            return succeed(set())
        asked = self._parts.brokers.lock(held)
        return asked.addCallback(self._granted, held)

    def _granted(
        self,
        granted: tuple[set[MessageQueue], set[MessageQueue]],
        held: dict[MessageQueue, ProcessQueue],
    ) -> set[MessageQueue]:
        yes, no = granted
        now = self._clock.seconds()
        for queue, process_queue in held.items():
            if queue in yes:
                process_queue.locked = True
                process_queue.last_lock_s = now
            elif queue in no and process_queue.locked:
                log.warn(
                    "group {group}: the lock of {queue} is somebody else's",
                    group=self._parts.group,
                    queue=queue,
                )
                process_queue.locked = False
                self.on_lost(queue, process_queue)
        return yes

    def _try_lock(self, line: _Line) -> None:
        line.timer = None
        if self._stopping or line.held.dropped:
            return
        asked = self.lock({line.queue: line.held})
        asked.addCallback(
            lambda yes: self._later(line, 0.01 if line.queue in yes else TRY_LOCK_AGAIN_S)
        )

    def leave(self, queue: MessageQueue, held: ProcessQueue) -> Deferred[None]:
        """A queue goes to somebody else, and is dropped already; fires when its handler has answered. Then save its offset, and unlock."""
        line = self._lines.get(queue)
        if line is None or line.held is not held:
            return succeed(None)
        line.stop_timer()
        if line.is_running:
            done: Deferred[None] = Deferred()
            line.when_idle.append(done)
            return done.addCallback(self._left, queue, line)
        self._left(None, queue, line)
        return succeed(None)

    def _left(self, _: object, queue: MessageQueue, line: _Line) -> None:
        if self._lines.get(queue) is line:
            del self._lines[queue]

    # ------------------------------------------------------------------ time-outs and stop

    def _expire(self) -> None:
        """Cancel handlers that take longer than ``consume_timeout``: their messages are tried again. Threads cannot be cancelled."""
        self._sweep = self._clock.callLater(self._sweep_s, self._expire)
        now = self._clock.seconds()
        for line in list(self._lines.values()):
            if line.deferred is None or now - line.began_s < self._timeout_s:
                continue
            if self._parts.calm.may_tell(f"time-out {line.queue}"):
                log.warn(
                    "group {group}: the handler has not answered for {seconds} s, {queue} waits for it",
                    group=self._parts.group,
                    seconds=round(now - line.began_s),
                    queue=line.queue,
                )
            if not self._handler.in_thread:
                cancel_handler(line.deferred)

    def stop(self, bound_s: float) -> Deferred[None]:
        """Begin nothing new; fires when all handlers have answered, or ``bound_s`` is over: what is under way then is cancelled."""
        if self._stopping:
            return succeed(None)
        self._stopping = True
        self._locking.stop()
        for call in (self._next_turn, self._sweep):
            if call is not None and call.active():
                call.cancel()
        idle = []
        for line in self._lines.values():
            line.stop_timer()
            if line.is_running:
                done: Deferred[None] = Deferred()
                line.when_idle.append(done)
                idle.append(done)
        if not idle:
            return succeed(None)
        bound = self._clock.callLater(bound_s, self._stop_waiting)
        ended: Deferred[list[None]] = gatherResults(idle)
        return ended.addCallback(_cancel, bound)

    def _stop_waiting(self) -> None:
        for line in list(self._lines.values()):
            if not line.is_running:
                continue
            log.warn(
                "group {group}: the handler of {queue} has not answered; its messages come again",
                group=self._parts.group,
                queue=line.queue,
            )
            if line.deferred is not None and not self._handler.in_thread:
                cancel_handler(line.deferred)
            waiters, line.when_idle = line.when_idle, []
            for waiter in waiters:
                waiter.callback(None)


def _nobody_asks(queue: MessageQueue, held: ProcessQueue) -> None:
    """Until the rebalancer does."""


def _cancel(outcome: object, call: IDelayedCall) -> None:
    if call.active():
        call.cancel()
