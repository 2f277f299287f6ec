"""How do requests for logical queues find the queues of brokers, and answers the way back?

Stands for the static-topic halves of ``SendMessageProcessor``, ``PullMessageProcessor``, ``ConsumerManageProcessor`` and
``AdminBrokerProcessor``. Clients speak of logical queues (``lo`` is not false) to the broker that leads them; what older stretches hold
is asked for at their brokers, with ``lo=false``. Each class stands before the usual handler of the same name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import choice
from typing import Any, TypeVar, cast

import msgspec
from twisted.internet.defer import Deferred

from txrocketmq.broker.offset.processor import OffsetProcessor
from txrocketmq.broker.other_brokers import OtherBrokers
from txrocketmq.broker.send.processor import SendProcessor
from txrocketmq.broker.static_topics.table import LogicalQueue, StaticTopics
from txrocketmq.codec.headers import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    Header,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    UpdateConsumerOffsetRequestHeader,
    UpdateConsumerOffsetResponseHeader,
)
from txrocketmq.errors import ResponseError
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.flags import TRANSACTION_NOT_TYPE, transaction_type
from txrocketmq.model.static_topic import LogicQueueMappingItem, stretch_at
from txrocketmq.remoting.dispatch import Reply, Request

AnySendHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2
Answer = Reply | Deferred[Reply]
A = TypeVar("A", bound=Header)
_END = 2**63 - 1


def not_led_here(topic: str, queue_id: int, broker: str) -> ResponseError:
    """The refusal of a logical queue that another broker leads; clients ask for the route again."""
    return ResponseError(
        ResponseCode.NOT_LEADER_FOR_QUEUE,
        f"{topic}-{queue_id} does not exit in request process of current broker {broker}",
    )


class StaticSends:
    """Stands before the handler of sends."""

    def __init__(self, inner: SendProcessor, table: StaticTopics, broker: str) -> None:
        self._inner = inner
        self._table = table
        self._names = table.names
        self._broker = broker

    def send_message(self, request: Request[AnySendHeader]) -> Answer:
        """See `SendProcessor.send_message`."""
        if request.header.topic in self._names and request.header.logical is not False:
            return self._send(request, self._inner.send_message)
        return self._inner.send_message(request)

    def send_batch(self, request: Request[AnySendHeader]) -> Answer:
        """See `SendProcessor.send_batch`."""
        if request.header.topic in self._names and request.header.logical is not False:
            return self._send(request, self._inner.send_batch)
        return self._inner.send_batch(request)

    def _send(
        self, request: Request[AnySendHeader], send: Callable[[Request[AnySendHeader]], Answer]
    ) -> Answer:
        header = request.header
        number = header.queue_id
        if number < 0:
            number = choice(self._table.led(header.topic) or [number])
        queue = self._table.queue(header.topic, number)
        if queue is None:
            raise not_led_here(header.topic, number, self._broker)
        header.queue_id = queue.leader.queue_id
        # The offset of a half message is none of the logical queue; the outcome names it again.
        is_plain = transaction_type(header.sys_flag) == TRANSACTION_NOT_TYPE
        answer = send(request)
        if isinstance(answer, Deferred):
            return answer.addCallback(_with_logical_place, queue, is_plain)
        return _with_logical_place(answer, queue, is_plain)


def _with_logical_place(reply: Reply, queue: LogicalQueue, is_plain: bool) -> Reply:
    if isinstance(reply.header, SendMessageResponseHeader):
        reply.header.queue_id = queue.queue_id
        if is_plain:
            reply.header.queue_offset = queue.leader.logical_within(reply.header.queue_offset)
    return reply


class StaticOffsets:
    """Stands before the handler of offsets."""

    def __init__(
        self,
        inner: OffsetProcessor,
        table: StaticTopics,
        others: OtherBrokers,
        broker: str,
        committed: Callable[[str, str, int], int],
    ) -> None:
        self._inner = inner
        self._table = table
        self._names = table.names
        self._others = others
        self._broker = broker
        self._committed = committed

    def _queue_of(self, request: Request[Any]) -> LogicalQueue | None:
        """The logical queue that a request is about; None when it is about a queue of this broker."""
        header = request.header
        if header.topic not in self._names or header.logical is False:
            return None
        queue = self._table.queue(header.topic, header.queue_id)
        if queue is None:
            raise not_led_here(header.topic, header.queue_id, self._broker)
        return queue

    # ----------------------------------------------------------------- positions of groups

    def query_consumer_offset(self, request: Request[QueryConsumerOffsetRequestHeader]) -> Answer:
        """See `OffsetProcessor.query_consumer_offset`: the newest stretch in which the group stands counts."""
        queue = self._queue_of(request)
        if queue is None:
            return self._inner.query_consumer_offset(request)
        if len(queue.items) == 1 and queue.leader.logic_offset == 0:
            request.header.queue_id = queue.leader.queue_id
            return self._inner.query_consumer_offset(request)
        return Deferred.fromCoroutine(self._query(request, queue))

    async def _query(
        self, request: Request[QueryConsumerOffsetRequestHeader], queue: LogicalQueue
    ) -> Reply:
        header = request.header
        for item in reversed(queue.items):
            if not item.is_decided:
                continue
            if queue.is_here(item):
                offset = self._committed(header.consumer_group, queue.topic, item.queue_id)
            else:
                offset = await self._query_other(header, item)
            if offset >= 0:
                found = item.logical(offset)
                return Reply(header=QueryConsumerOffsetResponseHeader(offset=found))
        raise ResponseError(
            ResponseCode.QUERY_NOT_FOUND, "Not found, maybe this group consumer boot first"
        )

    async def _query_other(
        self, header: QueryConsumerOffsetRequestHeader, item: LogicQueueMappingItem
    ) -> int:
        asked = msgspec.structs.replace(_for_stretch(header, item), set_zero_if_not_found=False)
        answer = await self._others.ask(item.bname or "", RequestCode.QUERY_CONSUMER_OFFSET, asked)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return -1
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark or "")
        return answer.decode_header(QueryConsumerOffsetResponseHeader).offset

    def update_consumer_offset(self, request: Request[UpdateConsumerOffsetRequestHeader]) -> Answer:
        """See `OffsetProcessor.update_consumer_offset`: kept by the broker of the stretch."""
        queue = self._queue_of(request)
        if queue is None:
            return self._inner.update_consumer_offset(request)
        header = request.header
        item = self._decided(queue, header.commit_offset)
        header.commit_offset = max(0, item.physical(header.commit_offset))
        if queue.is_here(item):
            header.queue_id = item.queue_id
            return self._inner.update_consumer_offset(request)
        return Deferred.fromCoroutine(
            self._of_other(
                item,
                RequestCode.UPDATE_CONSUMER_OFFSET,
                header,
                UpdateConsumerOffsetResponseHeader,
            )
        ).addCallback(lambda found: Reply(header=found))

    # ----------------------------------------------------------------- beginnings and ends

    def get_max_offset(self, request: Request[GetMaxOffsetRequestHeader]) -> Answer:
        """See `OffsetProcessor.get_max_offset`."""
        queue = self._queue_of(request)
        if queue is None:
            return self._inner.get_max_offset(request)
        return Deferred.fromCoroutine(self._max(request, queue))

    async def _max(self, request: Request[GetMaxOffsetRequestHeader], queue: LogicalQueue) -> Reply:
        item = self._decided(queue, _END)
        found = await self._of_stretch(
            queue,
            item,
            request,
            self._inner.get_max_offset,
            RequestCode.GET_MAX_OFFSET,
            GetMaxOffsetResponseHeader,
        )
        found.offset = item.logical(found.offset)
        return Reply(header=found)

    def get_min_offset(self, request: Request[GetMinOffsetRequestHeader]) -> Answer:
        """See `OffsetProcessor.get_min_offset`."""
        queue = self._queue_of(request)
        if queue is None:
            return self._inner.get_min_offset(request)
        return Deferred.fromCoroutine(self._min(request, queue))

    async def _min(self, request: Request[GetMinOffsetRequestHeader], queue: LogicalQueue) -> Reply:
        item = self._decided(queue, 0)
        found = await self._of_stretch(
            queue,
            item,
            request,
            self._inner.get_min_offset,
            RequestCode.GET_MIN_OFFSET,
            GetMinOffsetResponseHeader,
        )
        found.offset = item.logical_within(found.offset)
        return Reply(header=found)

    def get_earliest_store_time(
        self, request: Request[GetEarliestMsgStoretimeRequestHeader]
    ) -> Answer:
        """See `OffsetProcessor.get_earliest_store_time`."""
        queue = self._queue_of(request)
        if queue is None:
            return self._inner.get_earliest_store_time(request)
        return Deferred.fromCoroutine(
            self._of_stretch(
                queue,
                self._decided(queue, 0),
                request,
                self._inner.get_earliest_store_time,
                RequestCode.GET_EARLIEST_MSG_STORETIME,
                GetEarliestMsgStoretimeResponseHeader,
            )
        ).addCallback(lambda found: Reply(header=found))

    def search_offset(self, request: Request[SearchOffsetRequestHeader]) -> Answer:
        """See `OffsetProcessor.search_offset`: in the first stretch that has such a message."""
        queue = self._queue_of(request)
        if queue is None:
            return self._inner.search_offset(request)
        return Deferred.fromCoroutine(self._search(request, queue))

    async def _search(
        self, request: Request[SearchOffsetRequestHeader], queue: LogicalQueue
    ) -> Reply:
        decided = [item for item in queue.items if item.is_decided]
        offset = -1
        for item in decided:
            found = await self._of_stretch(
                queue,
                item,
                request,
                self._inner.search_offset,
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                SearchOffsetResponseHeader,
            )
            if item is not decided[-1] and (
                found.offset < 0 or (item.is_ended and found.offset >= item.end_offset)
            ):
                continue
            offset = item.logical(found.offset) if found.offset >= 0 else -1
            break
        return Reply(header=SearchOffsetResponseHeader(offset=offset))

    # ----------------------------------------------------------------- stretches

    def _decided(self, queue: LogicalQueue, offset: int) -> LogicQueueMappingItem:
        item = stretch_at(queue.items, offset)
        if item is None:
            raise not_decided(queue)
        return item

    async def _of_stretch(
        self,
        queue: LogicalQueue,
        item: LogicQueueMappingItem,
        request: Request[Any],
        here: Callable[[Request[Any]], Answer],
        code: RequestCode,
        kind: type[A],
    ) -> A:
        """The header of the answer of whoever has a stretch."""
        if not queue.is_here(item):
            return await self._of_other(item, code, request.header, kind)
        asked = _for_stretch(request.header, item)
        answer = here(Request(request.command, asked, request.connection, request.arrived_ms))
        reply = await cast("Awaitable[Reply]", answer) if isinstance(answer, Deferred) else answer
        return cast("A", reply.header)

    async def _of_other(
        self, item: LogicQueueMappingItem, code: RequestCode, header: Any, kind: type[A]
    ) -> A:
        answer = await self._others.ask(item.bname or "", code, _for_stretch(header, item))
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark or "")
        return answer.decode_header(kind)


def not_decided(queue: LogicalQueue) -> ResponseError:
    """The refusal while an operator's tool has not said yet where a logical queue begins."""
    return ResponseError(
        ResponseCode.SYSTEM_ERROR,
        f"{queue.topic}-{queue.queue_id}: it is not decided yet where the logical queue begins",
    )


def _for_stretch(header: Any, item: LogicQueueMappingItem) -> Any:
    """The header of a request about a queue of the stretch's broker."""
    return msgspec.structs.replace(
        header, queue_id=item.queue_id, broker_name=item.bname, logical=False
    )
