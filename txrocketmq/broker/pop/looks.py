"""What would a pop find: PEEK_MESSAGE, NOTIFICATION, POLLING_INFO?

Stands for ``PeekMessageProcessor``, ``NotificationProcessor`` and ``PollingInfoProcessor``. Nothing is handed out and nothing noted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from twisted.internet.defer import Deferred

from txrocketmq.broker.pop.acks import NOT_SET
from txrocketmq.broker.pop.parts import Key, PopParts
from txrocketmq.broker.pop.waiting import ANY_QUEUE, Held, Waiting
from txrocketmq.broker.stored import value_of
from txrocketmq.codec.headers import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageResponseHeader,
)
from txrocketmq.errors import ResponseError, RocketMQError
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.names import pop_retry_topics
from txrocketmq.model.topic import TopicConfig
from txrocketmq.remoting.dispatch import Reply, Request, refusal_of
from txrocketmq.store.results import GetMessageResult, GetMessageStatus

NO_BYTE_LIMIT = 2**31 - 1
RETRY_FIRST_OF = 5
"""One look of so many begins with the retry topic."""

_STORE_IS_RIGHT = (GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.OFFSET_OVERFLOW_BADLY)
_PEEKING = "peeking message"

PeekRequest = Request[PeekMessageRequestHeader]
NotificationRequest = Request[NotificationRequestHeader]
PollingInfoRequest = Request[PollingInfoRequestHeader]
Outcome = Reply | None


class LookProcessor:
    """Answers looks.

    :ivar waiting: the notifications that are waited for.
    """

    def __init__(self, parts: PopParts, pops: Waiting, chance: random.Random) -> None:
        self._parts = parts
        self._pops = pops
        self._chance = chance
        self.waiting: Waiting

    def _queues(
        self, header: Any, topic: TopicConfig, retry_names: tuple[str, ...]
    ) -> Iterator[Key]:
        """The queues that a look looks at, in its order."""
        group, chance = header.consumer_group, self._chance.randrange(100)
        retries = [
            found for name in retry_names if (found := self._parts.topics.get(name)) is not None
        ]
        own = [topic]
        order = [*retries, topic] if chance % RETRY_FIRST_OF == 0 else [topic, *retries]
        for found in order:
            if found in own and header.queue_id >= 0:
                yield header.topic, group, header.queue_id
                continue
            count = found.read_queue_nums
            for index in range(count):
                yield found.topic_name or "", group, (chance + index) % count

    def _retry_names(self, header: Any, with_older: bool) -> tuple[str, ...]:
        newer, older = pop_retry_topics(header.topic, header.consumer_group)
        config = self._parts.config
        if not config.enable_retry_topic_v2:
            return (older,)
        if with_older and config.retrieve_message_from_pop_retry_topic_v1:
            return newer, older
        return (newer,)

    # ----------------------------------------------------------------- peek

    def peek_message(self, request: PeekRequest) -> Deferred[Reply]:
        """PEEK_MESSAGE: messages, without taking them."""
        return Deferred.fromCoroutine(self._peek(request))

    async def _peek(self, request: PeekRequest) -> Reply:
        parts, header = self._parts, request.header
        try:
            topic = parts.checks.readable(request, _PEEKING)
        except ResponseError as error:
            return Reply(error.code, _peeked(0), remark=error.remark)
        rest = count = size_bytes = 0
        begun_ms = parts.now_ms()
        records: list[bytes] = []
        for key in self._queues(header, topic, self._retry_names(header, False)):
            name, _, queue_id = key
            offset = parts.stands_at(key)
            rest += max(0, parts.store.max_offset(name, queue_id) - offset)
            if count >= header.max_msg_nums:
                continue
            found = await self._read(key, offset, header.max_msg_nums - count)
            count += len(found.queue_offsets)
            size_bytes += found.size_bytes
            records += found.records
        if not count:
            status = GetMessageStatus.NO_MESSAGE_IN_QUEUE
            return Reply(ResponseCode.PULL_NOT_FOUND.value, _peeked(rest), remark=status.name)
        counter = parts.stats.of_group(header.topic, header.consumer_group)
        counter.messages += count
        counter.calls += 1
        counter.size_bytes += size_bytes
        parts.stats.by_queue.get_took(
            header.topic, header.consumer_group, header.queue_id, parts.now_ms() - begun_ms
        )
        return Reply(
            ResponseCode.SUCCESS.value, _peeked(rest), records, GetMessageStatus.FOUND.name
        )

    async def _read(self, key: Key, offset: int, count: int) -> GetMessageResult:
        topic, _, queue_id = key
        store = self._parts.store
        found: GetMessageResult = await value_of(
            store.get_message(topic, queue_id, offset, count, NO_BYTE_LIMIT, None)
        )
        if found.status in _STORE_IS_RIGHT:
            found = await value_of(
                store.get_message(
                    topic, queue_id, found.next_begin_offset, count, NO_BYTE_LIMIT, None
                )
            )
        return found

    # ----------------------------------------------------------------- notification

    def notification(self, request: NotificationRequest) -> Outcome:
        """NOTIFICATION: whether there is something to pop; waits until there is."""
        header = request.header
        topic = self._parts.checks.readable(request, _PEEKING)
        has_message = any(
            self._has_message(header, key)
            for key in self._queues(header, topic, self._retry_names(header, True))
        )
        is_full = False
        if not has_message:
            key = (header.topic, header.consumer_group, max(ANY_QUEUE, header.queue_id))
            born_ms = header.born_time or request.arrived_ms
            held = self.waiting.hold(request, key, born_ms, header.poll_time)
            if held is Held.HELD:
                return None
            is_full = held is Held.FULL
        return Reply(
            header=NotificationResponseHeader(has_msg=has_message, polling_full=is_full),
            remark=NOT_SET,
        )

    def serve_again(self, request: NotificationRequest) -> None:
        """A notification that waited is woken."""
        try:
            outcome = self.notification(request)
        except (RocketMQError, OSError) as error:
            outcome = refusal_of(error)
        if outcome is not None:
            request.answer(outcome)

    def _has_message(self, header: NotificationRequestHeader, key: Key) -> bool:
        parts = self._parts
        topic, group, queue_id = key
        if header.order and parts.ordered.is_blocked(
            header.attempt_id, header.topic, group, queue_id, 0
        ):
            return False
        if parts.store.incomplete(topic, queue_id) is not None:
            # Nothing of it is popped now: whoever waits is woken when it can be read.
            return False
        return parts.store.max_offset(topic, queue_id) > parts.stands_at(key)

    # ----------------------------------------------------------------- figures

    def polling_info(self, request: PollingInfoRequest) -> Reply:
        """POLLING_INFO: how many pops wait."""
        header = request.header
        self._parts.checks.readable(request, _PEEKING)
        key = (header.topic, header.consumer_group, max(ANY_QUEUE, header.queue_id))
        return Reply(
            header=PollingInfoResponseHeader(polling_num=self._pops.count_of(key)), remark=NOT_SET
        )

    def pop_rollback(self, request: Request[None]) -> Reply:
        """POP_ROLLBACK: move what a database holds to the log; this broker keeps all of it in the log."""
        return Reply(remark=NOT_SET)


def _peeked(rest: int) -> PopMessageResponseHeader:
    return PopMessageResponseHeader(pop_time=0, invisible_time=0, revive_qid=0, rest_num=rest)
