"""How is it noted that a half message has its outcome?

Stands for ``TransactionalOpBatchService`` and ``deletePrepareMessage``. Outcomes are gathered and put as one record for each half queue,
every `transactionOpBatchInterval` or when they reach `transactionOpMsgMaxSize`.

A producer may be asked for a message while its own word is on its way, or twice before it answers; each question is about another copy of the half
message. Which copies are of one message, and which messages were committed, is remembered for a while, so that they come once. An official
broker commits as often as it is told to.

Crash story: outcomes that were gathered and not put are lost, and their producers are asked again; a committed message may then come
twice. An orderly stop puts them all.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from txrocketmq.broker.stats import BrokerStats
from txrocketmq.broker.transaction.records import SEPARATOR, done_record
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model.message import Host, MessageExt

REMEMBERED = 10_000
"""Copies of half messages, and committed messages, that are remembered."""


class _Half(NamedTuple):
    """One half message; where a log was cut, another one may get its offset."""

    queue_id: int
    queue_offset: int
    born_timestamp: int
    uniq_key: str | None


def _half(message: MessageExt) -> _Half:
    return _Half(message.queue_id, message.queue_offset, message.born_timestamp, message.uniq_key)


class Outcomes:
    """Half offsets that are done and not yet noted in the log, and which of them are of one message."""

    _log = Logger()

    def __init__(
        self,
        config: BrokerConfig,
        store: IMessageStore,
        store_host: Host,
        clock: IReactorTime,
        stats: BrokerStats,
    ) -> None:
        self._config = config
        self._store = store
        self._store_host = store_host
        self._clock = clock
        self._stats = stats
        # By half queue: the offsets in the order in which they came.
        self._gathered: dict[int, dict[int, None]] = {}
        self._sizes: dict[int, int] = {}
        self._timer: IDelayedCall | None = None
        self._is_stopped = False
        self._first: OrderedDict[_Half, _Half] = OrderedDict()
        self._committed: OrderedDict[_Half, None] = OrderedDict()

    def note_copy(self, half: MessageExt, copy_offset: int) -> None:
        """A half message was put to its queue's end once more."""
        copy = _half(half)._replace(queue_offset=copy_offset)
        self._first[copy] = self._first_of(half)
        if len(self._first) > REMEMBERED:
            self._first.popitem(last=False)

    def note_commit(self, half: MessageExt) -> None:
        """A half message's message is stored for its consumers."""
        self._committed[self._first_of(half)] = None
        if len(self._committed) > REMEMBERED:
            self._committed.popitem(last=False)

    def is_committed(self, half: MessageExt) -> bool:
        """Whether that message, or another copy of it, was committed lately."""
        return self._first_of(half) in self._committed

    def _first_of(self, half: MessageExt) -> _Half:
        """The copy that was there first, as far as is remembered."""
        itself = _half(half)
        return self._first.get(itself, itself)

    def add(self, queue_id: int, half_offset: int) -> None:
        """A half message has its outcome."""
        gathered = self._gathered.setdefault(queue_id, {})
        if half_offset in gathered:
            return
        gathered[half_offset] = None
        size = self._sizes.get(queue_id, 0) + len(str(half_offset)) + len(SEPARATOR)
        self._sizes[queue_id] = size
        if self._is_stopped:
            # A request that was under way when the broker was told to stop.
            self._put(queue_id)
            return
        if size > self._config.transaction_op_msg_max_size:
            self._put_some(queue_id)
        if self._timer is None and self._gathered:
            self._timer = self._clock.callLater(
                max(0.0, self._config.transaction_op_batch_interval / 1000), self._time_is_up
            )

    def has(self, queue_id: int, half_offset: int) -> bool:
        """Whether an outcome waits to be noted."""
        return half_offset in self._gathered.get(queue_id, ())

    def flush(self) -> bool:
        """Note everything now; False when the store did not take it."""
        done = [self._put(queue_id) for queue_id in tuple(self._gathered)]
        return all(done)

    def stop(self) -> None:
        """Note everything, and from now on each outcome at once; before the store stops."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.flush():
            self._log.warn(
                "outcomes of {count} transactions are not in the log: their producers will be asked again",
                count=sum(map(len, self._gathered.values())),
            )

    def _time_is_up(self) -> None:
        self._timer = None
        if not self.flush():
            self._timer = self._clock.callLater(1.0, self._time_is_up)

    def _put(self, queue_id: int) -> bool:
        """Note all outcomes of a queue, in as many records as their size asks for."""
        while queue_id in self._gathered:
            if not self._put_some(queue_id):
                return False
        return True

    def _put_some(self, queue_id: int) -> bool:
        """Note as many outcomes of a queue as go into one record."""
        gathered = self._gathered[queue_id]
        offsets: list[int] = []
        size = 0
        for offset in gathered:
            if offsets and size >= self._config.transaction_op_msg_max_size:
                break
            offsets.append(offset)
            size += len(str(offset)) + len(SEPARATOR)
        if not self._put_record(queue_id, offsets):
            return False
        self._sizes[queue_id] -= size
        for offset in offsets:
            del gathered[offset]
        if not gathered:
            del self._gathered[queue_id], self._sizes[queue_id]
        return True

    def _put_record(self, queue_id: int, offsets: list[int]) -> bool:
        body = "".join([f"{offset}{SEPARATOR}" for offset in offsets]).encode()
        now_ms = int(self._clock.seconds() * 1000)
        record = done_record(queue_id, body, self._store_host, now_ms)
        outcome = self._store.put_message(record)
        if isinstance(outcome, Deferred):
            # It is in the log; nobody waits for more.
            outcome.addErrback(lambda failure: None)
            return True
        if not outcome.is_ok:
            self._log.warn(
                "outcomes of transactions cannot be noted: {status}", status=outcome.status.name
            )
            return False
        self._stats.of_topic(record.topic).count(outcome.wrote_bytes)
        return True
