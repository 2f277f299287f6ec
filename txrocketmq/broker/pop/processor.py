"""How is POP_MESSAGE answered?

Stands for ``PopMessageProcessor``. A pop takes what it finds, from the group's retry topic first or last (by chance, as
`popFromRetryProbability` says) and from the queues of the topic, one after the other, until it has enough. What it takes of a queue is
noted as a check point before the answer goes out, so that it comes again unless it is acknowledged::

    next offset of the queue -> messages -> check point in the log -> offset of the group -> answer
"""

from __future__ import annotations

import random

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.broker.pop.parts import Key, PopParts
from txrocketmq.broker.pop.receipts import (
    ORDER_REVIVE_QUEUE,
    Receipt,
    invisible_ms_of,
    message_offset_info,
    order_count_info,
    receipt_text,
    start_offset_info,
)
from txrocketmq.broker.pop.revive_log import ORIGIN_GROUP, check_point
from txrocketmq.broker.pop.waiting import ANY_QUEUE, Held, Waiting
from txrocketmq.broker.pull.subscriptions import Subscriptions
from txrocketmq.broker.stored import copy_of, stored_messages, value_of
from txrocketmq.codec.headers import PopMessageRequestHeader, PopMessageResponseHeader
from txrocketmq.codec.record import encode_record
from txrocketmq.errors import ResponseError, RocketMQError
from txrocketmq.interfaces import IMessageFilter
from txrocketmq.model import properties as props
from txrocketmq.model.attributes import MESSAGE_TYPE
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.message import MessageExt
from txrocketmq.model.names import is_retry_topic, pop_retry_topics
from txrocketmq.model.properties import MAX_PROPERTIES_BYTES, format_properties
from txrocketmq.model.topic import TopicConfig
from txrocketmq.remoting.dispatch import Reply, Request, refusal_of
from txrocketmq.store.results import GetMessageResult, GetMessageStatus

NO_BYTE_LIMIT = 2**31 - 1
MAX_MESSAGES = 32
FILTERED_OF_A_TURN = 64
"""Messages that are read for a filter before others have their turn; looked at after each queue."""
LATE_MS = 500
"""A request that comes so long after its own time is not served."""
FROM_MIN = 0
"""``initMode``: a group without an offset begins at the queue's first message; else at its last."""
PRIORITY = "PRIORITY"
"""The type of topics whose queues are priorities."""

_LESS_THAN_A_RECEIPT = (
    props.CLUSTER,
    props.MSG_REGION,
    props.TRACE_SWITCH,
    ORIGIN_GROUP,
    props.FIRST_POP_TIME,
    props.TIMER_DEQUEUE_MS,
    props.TIMER_ENQUEUE_MS,
)
_STORE_IS_RIGHT = (
    GetMessageStatus.OFFSET_TOO_SMALL,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY,
    GetMessageStatus.OFFSET_FOUND_NULL,
)
_NOTHING_WANTED = (
    GetMessageStatus.NO_MATCHED_MESSAGE,
    GetMessageStatus.OFFSET_FOUND_NULL,
    GetMessageStatus.MESSAGE_WAS_REMOVING,
    GetMessageStatus.NO_MATCHED_LOGIC_QUEUE,
)

PopRequest = Request[PopMessageRequestHeader]
Outcome = Reply | None


class Pop:
    """One request while it is served.

    :ivar rest: messages that are known to be left.
    :ivar filtered: messages that were read and not wanted since others had their turn.
    :ivar invisible_ms: how long what it takes is nobody else's.
    :ivar goes_on: it found only what the group does not want: there may be more behind it.
    :ivar log_end: where the log ended when it began.
    """

    __slots__ = (
        "count",
        "filtered",
        "goes_on",
        "header",
        "invisible_ms",
        "log_end",
        "message_infos",
        "order_infos",
        "peer",
        "pop_time_ms",
        "records",
        "rest",
        "revive_queue",
        "start_infos",
        "wanted",
    )

    def __init__(
        self,
        header: PopMessageRequestHeader,
        peer: str,
        wanted: IMessageFilter | None,
        pop_time_ms: int,
        revive_queue: int,
    ) -> None:
        self.header = header
        self.invisible_ms = invisible_ms_of(header.invisible_time)
        self.peer = peer
        self.wanted = wanted
        self.pop_time_ms = pop_time_ms
        self.revive_queue = revive_queue
        self.rest = 0
        self.filtered = 0
        self.goes_on = False
        self.log_end = 0
        self.count = 0
        self.records: list[bytes] = []
        self.start_infos: list[str] = []
        self.message_infos: list[str] = []
        self.order_infos: list[str] = []

    @property
    def room(self) -> int:
        """How many messages it may still take."""
        return self.header.max_msg_nums - self.count


class PopProcessor:
    """Answers pops.

    :ivar waiting: the pops that wait for messages.
    """

    _log = Logger()

    def __init__(
        self, parts: PopParts, subscriptions: Subscriptions, chance: random.Random
    ) -> None:
        self._parts = parts
        self._subscriptions = subscriptions
        self._chance = chance
        self._locked: set[Key] = set()
        self._contended: set[Key] = set()
        self._turn = 0
        self.waiting: Waiting

    def pop_message(self, request: PopRequest) -> Outcome | Deferred[Outcome]:
        """Hand out messages for a time, or keep the request until there are some."""
        try:
            topic = self._check(request)
            wanted = self._subscriptions.sent_along(
                request.header.topic, request.header.exp, request.header.exp_type
            )
        except ResponseError as error:
            return _refusal(error)
        return Deferred.fromCoroutine(self._pop(request, topic, wanted))

    def serve_again(self, request: PopRequest) -> None:
        """A request that waited is woken."""
        outcome = self.pop_message(request)
        if isinstance(outcome, Deferred):
            outcome.addCallbacks(_answer, self._failed, (request,), errbackArgs=(request,))
        else:
            _answer(outcome, request)

    def _failed(self, failure: Failure, request: PopRequest) -> None:
        if isinstance(failure.value, RocketMQError | OSError):
            request.answer(refusal_of(failure.value))
            return
        self._log.failure("a pop that waited failed", failure)
        request.answer(
            Reply(ResponseCode.SYSTEM_ERROR.value, remark=f"pop failed: {failure.value}")
        )

    def _check(self, request: PopRequest) -> TopicConfig:
        parts, header = self._parts, request.header
        address = parts.config.broker_ip1
        checks = parts.checks
        checks.not_slave()
        if parts.now_ms() - _born_ms(request) - header.poll_time > LATE_MS:
            checks.refuse(
                ResponseCode.POLLING_TIMEOUT,
                f"the broker[{address}] pop message is timeout too much",
            )

        def check_number() -> None:
            if header.max_msg_nums > MAX_MESSAGES:
                checks.refuse(
                    ResponseCode.INVALID_PARAMETER,
                    f"the broker[{address}] pop message's num is greater than {MAX_MESSAGES}",
                )

        return checks.readable(request, "pop message", check_number)

    # ----------------------------------------------------------------- one pop

    async def _pop(
        self, request: PopRequest, topic: TopicConfig, wanted: IMessageFilter | None
    ) -> Outcome:
        header, config = request.header, self._parts.config
        chance = self._chance.randrange(100)
        if header.order:
            revive_queue = ORDER_REVIVE_QUEUE
        else:
            revive_queue = self._turn % config.revive_queue_num
            self._turn += 1
        pop = Pop(
            header, request.connection.remote_text, wanted, self._parts.now_ms(), revive_queue
        )
        pop.log_end = self._parts.store.max_physical_offset()
        is_by_priority = not header.order and topic.attributes.get(MESSAGE_TYPE) == PRIORITY
        retry_first = chance < (
            config.pop_from_retry_probability_for_priority
            if is_by_priority
            else config.pop_from_retry_probability
        )
        retry = None if header.order else self._retry_topic(header, chance)
        if is_by_priority:
            # Always the same queue first: each queue is a priority.
            chance = 0
        if retry is not None and retry_first:
            await self._pop_topic(pop, retry, chance, True)
        if header.queue_id < 0:
            await self._pop_topic(pop, topic, chance, False)
        else:
            await self._pop_queue(pop, header.topic, header.queue_id, False)
        if retry is not None and not retry_first and pop.room > 0:
            await self._pop_topic(pop, retry, chance, True)
        return self._finish(request, pop)

    def _retry_topic(self, header: PopMessageRequestHeader, chance: int) -> TopicConfig | None:
        """The retry topic of this pop: half of them look under the older name while both are in use."""
        config = self._parts.config
        newer = config.enable_retry_topic_v2
        if newer and config.retrieve_message_from_pop_retry_topic_v1 and chance % 2 == 0:
            newer = False
        name = pop_retry_topics(header.topic, header.consumer_group)[0 if newer else 1]
        return self._parts.topics.get(name)

    async def _pop_topic(self, pop: Pop, topic: TopicConfig, chance: int, is_retry: bool) -> None:
        queues = topic.read_queue_nums
        order = range(queues)
        for index in reversed(order) if self._parts.config.priority_order_asc else order:
            await self._pop_queue(pop, topic.topic_name or "", (chance + index) % queues, is_retry)
            if pop.filtered >= FILTERED_OF_A_TURN:
                # Each queue is as much work as a pull.
                pop.filtered = 0
                await self._parts.pause()

    async def _pop_queue(self, pop: Pop, topic: str, queue_id: int, is_retry: bool) -> None:
        key = (topic, pop.header.consumer_group, queue_id)
        if key in self._locked:
            # Somebody pops it just now, and waits for the device.
            self._contended.add(key)
            if not pop.header.order:
                pop.rest += self._rest(key)
            return
        self._locked.add(key)
        try:
            await self._pop_locked(pop, key, is_retry)
        finally:
            self._locked.discard(key)
            if key in self._contended:
                self._contended.discard(key)
                self._parts.free(key)

    async def _pop_locked(self, pop: Pop, key: Key, is_retry: bool) -> None:
        parts, header = self._parts, pop.header
        topic, group, queue_id = key
        if parts.store.incomplete(topic, queue_id) is not None:
            # Derived from the log just now: where the group stands must not be corrected.
            return
        if (
            parts.config.enable_pop_message_threshold
            and parts.in_flight.count(key) > parts.config.pop_inflight_message_threshold
        ):
            pop.rest += self._rest(key)
            return
        offset = self._begin_at(key, header.init_mode)
        if header.order:
            if parts.ordered.is_blocked(
                header.attempt_id, topic, group, queue_id, pop.invisible_ms
            ):
                return
            parts.in_flight.clear(key)
        if pop.room <= 0:
            pop.rest += parts.store.max_offset(topic, queue_id) - offset
            return
        found = await self._read(pop, key, offset)
        if found.status in _STORE_IS_RIGHT:
            # What was noted is not what the queue has.
            parts.offsets.commit(group, topic, queue_id, found.next_begin_offset, pop.peer)
            offset = found.next_begin_offset
            found = await self._read(pop, key, offset)
        pop.filtered += found.filtered_count
        if found.queue_offsets:
            if not await self._note(pop, key, offset, found):
                pop.rest += len(found.queue_offsets)
                return
            self._hand_out(pop, key, offset, found, is_retry)
        elif found.status in _NOTHING_WANTED and found.next_begin_offset > offset:
            if header.order:
                parts.offsets.commit(group, topic, queue_id, found.next_begin_offset, pop.peer)
            else:
                parts.points.skip(key, found.next_begin_offset)
            pop.goes_on = pop.goes_on or found.next_begin_offset < found.max_offset
        pop.rest += max(0, found.max_offset - found.next_begin_offset)

    def _rest(self, key: Key) -> int:
        topic, _, queue_id = key
        return max(0, self._parts.store.max_offset(topic, queue_id) - self._parts.stands_at(key))

    async def _read(self, pop: Pop, key: Key, offset: int) -> GetMessageResult:
        topic, _, queue_id = key
        found: GetMessageResult = await value_of(
            self._parts.store.get_message(
                topic, queue_id, offset, pop.room, NO_BYTE_LIMIT, pop.wanted
            )
        )
        return found

    def _begin_at(self, key: Key, init_mode: int) -> int:
        """Where a group pops a queue next."""
        parts = self._parts
        topic, group, queue_id = key
        offsets = parts.offsets
        reset = offsets.take_reset(group, topic, queue_id)
        if reset is not None:
            parts.ordered.forget_queue(topic, group, queue_id)
            parts.points.forget_queue(key)
            offsets.commit(group, topic, queue_id, reset, "an operator's reset")
            return reset
        offset = offsets.query(group, topic, queue_id)
        if offset < 0:
            offset = self._first_offset(topic, queue_id, init_mode)
            offsets.commit(group, topic, queue_id, offset, "first pop")
        return max(offset, parts.points.latest(key))

    def _first_offset(self, topic: str, queue_id: int, init_mode: int) -> int:
        """Where a group begins that has no offset."""
        store = self._parts.store
        least = store.min_offset(topic, queue_id)
        if init_mode == FROM_MIN or is_retry_topic(topic):
            return least
        if (
            self._parts.config.init_pop_offset_by_check_msg_in_mem
            and least <= 0
            and store.is_in_memory(topic, queue_id, 0)
        ):
            return 0
        return max(0, store.max_offset(topic, queue_id) - 1)

    # ----------------------------------------------------------------- what was found

    async def _note(self, pop: Pop, key: Key, offset: int, found: GetMessageResult) -> bool:
        """Note what is handed out; False when that cannot be done."""
        parts, header = self._parts, pop.header
        topic, group, queue_id = key
        if header.order:
            counts, least = parts.ordered.popped(
                header.attempt_id,
                topic,
                group,
                queue_id,
                pop.pop_time_ms,
                pop.invisible_ms,
                found.queue_offsets,
            )
            pop.order_infos += order_count_info(topic, queue_id, counts, least)
            parts.offsets.commit(group, topic, queue_id, offset, pop.peer)
            parts.block_changed(key)
            return True
        parts.stats.of_check_points(header.topic, group).count_several(1)
        return await parts.points.add(
            check_point(
                topic,
                group,
                queue_id,
                offset,
                pop.pop_time_ms,
                pop.invisible_ms,
                parts.config.broker_name,
                found.queue_offsets,
            ),
            pop.revive_queue,
            found.next_begin_offset,
        )

    def _hand_out(
        self, pop: Pop, key: Key, offset: int, found: GetMessageResult, is_retry: bool
    ) -> None:
        parts = self._parts
        topic, group, queue_id = key
        pop.start_infos.append(start_offset_info(topic, queue_id, offset))
        pop.message_infos.append(message_offset_info(topic, queue_id, found.queue_offsets))
        count = len(found.queue_offsets)
        counter = parts.stats.of_group(topic, group)
        counter.messages += count
        counter.calls += 1
        counter.size_bytes += found.size_bytes
        # As it was before the check point was noted in the log.
        last, now_ms = found.queue_offsets[-1], parts.now_ms()
        parts.stats.by_queue.note_read(topic, group, queue_id, last, pop.log_end, now_ms)
        parts.in_flight.popped(key, count)
        pop.count += count
        if is_retry and not parts.config.pop_response_return_actual_retry_topic:
            pop.records += self._as_of_topic(pop, offset, found)
        else:
            pop.records += found.records

    def _as_of_topic(self, pop: Pop, offset: int, found: GetMessageResult) -> list[bytes]:
        """Messages of the retry topic as the consumer subscribed them, with their receipts in a property."""
        receipt = Receipt(
            offset,
            pop.pop_time_ms,
            pop.invisible_ms,
            pop.revive_queue,
            self._parts.config.broker_name,
        )
        return [
            _as_of(message, pop.header.topic, receipt)
            for message in stored_messages(found)
            if message is not None
        ]

    def _finish(self, request: PopRequest, pop: Pop) -> Outcome:
        parts, header = self._parts, pop.header
        flow = parts.throughput
        key = waiting_key(header)
        code, status = ResponseCode.SUCCESS, GetMessageStatus.FOUND
        if pop.count:
            flow.found += 1
            flow.transferred += pop.count
            took_ms = max(0, parts.now_ms() - pop.pop_time_ms)
            parts.stats.by_queue.get_took(
                header.topic, header.consumer_group, header.queue_id, took_ms
            )
            if pop.rest > 0:
                self.waiting.wake(key)
        else:
            flow.missed += 1
            held = self.waiting.hold(request, key, _born_ms(request), header.poll_time, pop.wanted)
            if held is Held.HELD:
                if pop.goes_on or parts.store.max_physical_offset() > pop.log_end:
                    # What arrived while the device was waited for woke nobody.
                    self.waiting.wake(key)
                return None
            code = ResponseCode.POLLING_FULL if held is Held.FULL else ResponseCode.POLLING_TIMEOUT
            status = GetMessageStatus.NO_MESSAGE_IN_QUEUE
        return Reply(
            code.value,
            PopMessageResponseHeader(
                pop_time=pop.pop_time_ms,
                invisible_time=pop.invisible_ms,
                revive_qid=pop.revive_queue,
                rest_num=pop.rest,
                start_offset_info=";".join(pop.start_infos),
                msg_offset_info=";".join(pop.message_infos),
                order_count_info=";".join(pop.order_infos) if header.order else None,
            ),
            pop.records,
            status.name,
        )


def waiting_key(header: PopMessageRequestHeader) -> Key:
    """Under which key a pop waits."""
    return header.topic, header.consumer_group, max(ANY_QUEUE, header.queue_id)


def _born_ms(request: PopRequest) -> int:
    return request.header.born_time or request.arrived_ms


def _answer(outcome: Outcome, request: PopRequest) -> None:
    if outcome is not None:
        request.answer(outcome)


def _refusal(error: ResponseError) -> Reply:
    """A refusal has the answer's header too, with nothing in it, as officially."""
    empty = PopMessageResponseHeader(pop_time=0, invisible_time=0, revive_qid=0, rest_num=0)
    return Reply(error.code, empty, remark=error.remark)


def _as_of(message: MessageExt, topic: str, receipt: Receipt) -> bytes:
    """The record of a message as one of another topic."""
    found = dict(message.properties)
    if props.POP_CK not in found:
        found[props.POP_CK] = receipt_text(
            receipt, message.topic, message.queue_id, message.queue_offset
        )
    record = copy_of(message, topic, message.queue_id, _fitting(found))
    record.prepared_transaction_offset = message.prepared_transaction_offset
    return encode_record(
        record, message.queue_offset, message.physical_offset, message.store_timestamp
    )


def _fitting(found: dict[str, str]) -> bytes:
    """Properties as text that a record has room for: the receipt, without which nobody can acknowledge the message, is worth more than what
    brokers note. One such message must not make pops fail, which bring others too."""
    text = format_properties(found)
    for name in _LESS_THAN_A_RECEIPT:
        if len(text) <= MAX_PROPERTIES_BYTES:
            return text
        found.pop(name, None)
        text = format_properties(found)
    if len(text) > MAX_PROPERTIES_BYTES:
        found.pop(props.POP_CK, None)
        text = format_properties(found)
    return text
