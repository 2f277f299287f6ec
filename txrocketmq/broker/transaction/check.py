"""Which open transactions are asked for, and when?

Stands for ``TransactionalMessageCheckService`` and ``TransactionalMessageServiceImpl.check``. Every `transactionCheckInterval` a round goes
over each half queue, from the first message that was not settled when the last round ended::

    noted as done ------------------------------> behind us
    asked for `transactionCheckMax` times, or
    its copy is too large for the store --------> TRANS_CHECK_MAX_TIME_TOPIC
    stored since the round began, or young -----> the round ends here
    young by its own property ------------------> copied to the queue's end, nothing asked
    otherwise ----------------------------------> copied to the queue's end, and one producer of its group asked about the copy

Where the round stands is kept as the offsets of the group CID_RMQ_SYS_TRANS, as officially: a store can change hands at any time.

A slave that acts for its master has no half messages copied, and asks nobody: each one without outcome goes to another broker at once
(`txrocketmq.broker.escape`), which asks for it. One that no broker takes waits for the next round; officially it is given up after ten tries.

Crash story: a copy is in the log before the offset moves past its original; after a crash originals may be looked at again, and their
producers asked twice.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.broker.clients import Producers
from txrocketmq.broker.consumer_offsets import ConsumerOffsets
from txrocketmq.broker.escape.bridge import EscapeBridge
from txrocketmq.broker.stats import BrokerStats
from txrocketmq.broker.stored import NEVER_TAKEN, stored_messages, value_of
from txrocketmq.broker.topics import Topics
from txrocketmq.broker.transaction.notes import NO_BYTE_LIMIT, Notes
from txrocketmq.broker.transaction.open import OpenTransactions
from txrocketmq.broker.transaction.outcomes import Outcomes
from txrocketmq.broker.transaction.records import (
    check_request,
    given_up_record,
    half_again,
    java_long,
    prepared_again,
    real_place,
)
from txrocketmq.broker.transaction.verdict import Verdict, times_asked, verdict_on
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model import properties as props
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.flags import PERM_READ_WRITE
from txrocketmq.model.message import MessageExt, MessageRecord
from txrocketmq.model.names import (
    CID_SYS_RMQ_TRANS,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from txrocketmq.store.results import GetMessageResult, PutMessageResult, PutMessageStatus

HALVES_AT_ONCE = 32
MESSAGES_OF_A_TURN = 64
"""Half messages that are looked at before others have their turn."""
READS_OF_A_TURN = 8
"""Reads of notes before others have their turn."""

GIVEN_UP_QUEUES = 1


class Parts(NamedTuple):
    """What checks work with."""

    config: BrokerConfig
    store_config: MessageStoreConfig
    store: IMessageStore
    bridge: EscapeBridge
    topics: Topics
    producers: Producers
    offsets: ConsumerOffsets
    outcomes: Outcomes
    open: OpenTransactions
    stats: BrokerStats


class TransactionChecks:
    """Goes over the half queues at intervals."""

    _log = Logger()

    def __init__(self, parts: Parts, clock: IReactorTime) -> None:
        self._parts = parts
        self._clock = clock
        self._is_running = False
        self._is_busy = False
        self._timer: IDelayedCall | None = None

    def start(self) -> None:
        """Begin; the first round comes after one interval."""
        self._is_running = True
        self._wait()

    def stop(self) -> None:
        """Ask nobody any more; a round that runs ends where it is."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        interval_s = max(0.1, self._parts.config.transaction_check_interval / 1000)
        self._timer = self._clock.callLater(interval_s, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._is_busy:
            # Begun before a stop; the next one comes when it has ended.
            return
        self._is_busy = True
        running = Deferred.fromCoroutine(self._check_all())
        running.addErrback(self._failed).addCallback(self._ended)

    def _ended(self, ignored: None) -> None:
        self._is_busy = False
        if self._is_running and self._timer is None:
            self._wait()

    def _failed(self, failure: Failure) -> None:
        self._log.failure("a round over open transactions failed", failure)

    async def _check_all(self) -> None:
        half_topic = self._parts.topics.get(TRANS_HALF_TOPIC)
        queues = 1 if half_topic is None else half_topic.read_queue_nums
        for queue_id in range(queues):
            if self._is_incomplete(queue_id):
                # Derived from the log just now: where the last round stood must not be lost.
                continue
            await Round(self._parts, queue_id, self.now_ms(), self).run()

    def _is_incomplete(self, queue_id: int) -> bool:
        topics = TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
        return any(self._parts.store.incomplete(topic, queue_id) for topic in topics)

    # ------------------------------------------------------------------ what a round needs of time

    def now_ms(self) -> int:
        """Wall-clock milliseconds."""
        return int(self._clock.seconds() * 1000)

    @property
    def is_running(self) -> bool:
        """Whether rounds may go on."""
        return self._is_running

    def pause(self) -> Deferred[None]:
        """Let others have their turn."""
        return deferLater(self._clock, 0)


class Round:
    """One look at one half queue.

    :param start_ms: when the round began: what was stored since then is left to the next one.
    """

    _log = Logger()

    def __init__(
        self, parts: Parts, queue_id: int, start_ms: int, checks: TransactionChecks
    ) -> None:
        self._parts = parts
        self._queue_id = queue_id
        self._start_ms = start_ms
        self._checks = checks
        self._read: deque[tuple[int, MessageExt | None]] = deque()
        self._half_offset = self._known(TRANS_HALF_TOPIC)
        notes_start = self._known(TRANS_OP_HALF_TOPIC)
        self._committed = {TRANS_HALF_TOPIC: self._half_offset, TRANS_OP_HALF_TOPIC: notes_start}
        self._notes = Notes(parts.store, queue_id, notes_start, self._half_offset)

    def _known(self, topic: str) -> int:
        """Where the last round stood, within what the queue has."""
        store, queue_id = self._parts.store, self._queue_id
        offset = self._parts.offsets.query(CID_SYS_RMQ_TRANS, topic, queue_id)
        least, most = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        return min(max(offset, least), most)

    async def run(self) -> None:
        """Look at each half message in turn until one is too young, or there are no more."""
        # What is noted need not be asked for.
        self._parts.outcomes.flush()
        seen_until_ms = None
        looked_at = 0
        while self._checks.is_running:
            if self._notes.take(self._half_offset):
                self._half_offset += 1
            else:
                message = await self._next_half()
                if not self._checks.is_running or message is None:
                    break
                if not await self._settle(message):
                    seen_until_ms = message.store_timestamp
                    break
                self._half_offset = message.queue_offset + 1
            looked_at += 1
            if looked_at % MESSAGES_OF_A_TURN == 0:
                self._commit(TRANS_HALF_TOPIC, self._half_offset)
                await self._checks.pause()
        if not self._checks.is_running and seen_until_ms is None:
            # Cut short: what lies ahead was not seen.
            seen_until_ms = 0
        self._commit(TRANS_HALF_TOPIC, self._half_offset)
        self._commit(TRANS_OP_HALF_TOPIC, self._notes.used_up(seen_until_ms))

    def _commit(self, topic: str, offset: int) -> None:
        if offset == self._committed[topic]:
            return
        self._committed[topic] = offset
        self._parts.offsets.commit(
            CID_SYS_RMQ_TRANS, topic, self._queue_id, offset, "transaction checks"
        )

    async def _next_half(self) -> MessageExt | None:
        """The half message at the present offset, or the first one behind it that the log still has; None at the end."""
        store, queue_id = self._parts.store, self._queue_id
        while self._half_offset < store.max_offset(TRANS_HALF_TOPIC, queue_id):
            while self._read and self._read[0][0] < self._half_offset:
                self._read.popleft()
            if self._read:
                offset, message = self._read[0]
                self._half_offset = offset
                if message is not None:
                    return message
                self._half_offset += 1
                continue
            found: GetMessageResult = await value_of(
                store.get_message(
                    TRANS_HALF_TOPIC,
                    queue_id,
                    self._half_offset,
                    HALVES_AT_ONCE,
                    NO_BYTE_LIMIT,
                    None,
                )
            )
            self._read.extend(zip(found.queue_offsets, stored_messages(found), strict=True))
            if not self._read:
                self._half_offset = max(found.next_begin_offset, self._half_offset + 1)
        return None

    # ------------------------------------------------------------------ one message

    async def _settle(self, message: MessageExt) -> bool:
        """Do what has to be done about a half message; False when the round ends before it."""
        parts = self._parts
        escapes = not parts.bridge.is_local
        if message.store_timestamp >= self._start_ms and not escapes:
            return False
        verdict = self._verdict(message)
        if verdict is Verdict.WAIT and not escapes:
            return False
        reads = 0
        while self._notes.has_more:
            await self._notes.read()
            reads += 1
            if reads % READS_OF_A_TURN == 0:
                await self._checks.pause()
        if not self._checks.is_running:
            return False
        if self._is_done(message):
            return True
        if escapes:
            return await self._escape(message)
        if verdict is Verdict.GIVE_UP:
            return self._give_up(message)
        if verdict is Verdict.MOVE:
            first = message.properties.get(props.TRANSACTION_PREPARED_QUEUE_OFFSET)
            again = half_again(
                message,
                **{
                    props.TRANSACTION_PREPARED_QUEUE_OFFSET: str(message.queue_offset)
                    if first is None
                    else first
                },
            )
            put = self._put_copy(message, again)
            return put.is_ok or (put.status in NEVER_TAKEN and self._give_up(message))
        again = half_again(
            message, **{props.TRANSACTION_CHECK_TIMES: str(max(0, times_asked(message)) + 1)}
        )
        put = self._put_copy(message, again)
        if not put.is_ok:
            return put.status in NEVER_TAKEN and self._give_up(message)
        parts.open.checks += 1
        self._ask(message, again, put)
        return True

    async def _escape(self, message: MessageExt) -> bool:
        place = real_place(message)
        if place is None:
            self._log.error(
                "half message {key} is left there: it does not say for which topic it is",
                key=message.uniq_key,
            )
            return True
        return await self._parts.bridge.put_half(prepared_again(message, *place))

    def _verdict(self, message: MessageExt) -> Verdict:
        parts = self._parts
        return verdict_on(
            message, self._checks.now_ms(), parts.config, parts.store_config.file_reserved_time
        )

    def _is_done(self, message: MessageExt) -> bool:
        """Whether the message, or the one that it is a copy of, has its outcome."""
        offsets = [message.queue_offset]
        first = java_long(message.properties.get(props.TRANSACTION_PREPARED_QUEUE_OFFSET))
        if first is not None:
            offsets.append(first)
        outcomes = self._parts.outcomes
        # Both are asked, so that no note is kept for the other's sake.
        done = [
            self._notes.take(offset) or outcomes.has(self._queue_id, offset) for offset in offsets
        ]
        # What was committed by the word about another copy is as good as noted.
        return any(done) or outcomes.is_committed(message)

    def _put_copy(self, message: MessageExt, again: MessageRecord) -> PutMessageResult:
        put = self._put(again)
        if put.is_ok:
            self._parts.outcomes.note_copy(message, put.queue_offset)
        return put

    def _put(self, record: MessageRecord) -> PutMessageResult:
        """Put a record that nobody waits for."""
        put = self._parts.store.put_message(record)
        if isinstance(put, Deferred):
            put = PutMessageResult(PutMessageStatus.UNKNOWN_ERROR)
        if not put.is_ok:
            self._log.error(
                "half message {key} cannot be put to {topic}: {status}",
                key=record.uniq_key,
                topic=record.topic,
                status=put.status.name,
            )
            return put
        self._parts.stats.of_topic(record.topic).count(put.wrote_bytes)
        return put

    def _give_up(self, message: MessageExt) -> bool:
        parts = self._parts
        parts.topics.create_for_group(
            TRANS_CHECK_MAX_TIME_TOPIC, GIVEN_UP_QUEUES, PERM_READ_WRITE, False, 0
        )
        if parts.topics.file.is_saving:
            # A crash could forget the topic: the next round gives it up.
            return False
        put = self._put(given_up_record(message))
        if not put.is_ok and put.status not in NEVER_TAKEN:
            return False
        place = real_place(message)
        if place is not None:
            parts.open.add(place[0], -1)
        parts.open.given_up += 1
        self._log.error(
            "transaction of message {key} for {place} is given up after {times} questions, the message is in {topic}",
            key=message.uniq_key,
            place=place,
            times=times_asked(message),
            topic=TRANS_CHECK_MAX_TIME_TOPIC,
        )
        return True

    def _ask(self, message: MessageExt, again: MessageRecord, put: PutMessageResult) -> None:
        group = message.properties.get(props.PRODUCER_GROUP, "")
        member = self._parts.producers.pick(group)
        if member is None:
            self._log.warn(
                "nobody of producer group {group} is there to be asked for message {key}",
                group=group,
                key=message.uniq_key,
            )
            return
        header, body = check_request(message, again, put, self._parts.config.broker_name)
        member.connection.oneway(RequestCode.CHECK_TRANSACTION_STATE.value, header, body)
