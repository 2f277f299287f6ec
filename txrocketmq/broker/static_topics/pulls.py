"""How is a pull from a logical queue answered whose messages lie in several brokers?

Stands for the static-topic half of ``PullMessageProcessor``. A pull is answered from one stretch; at its end the consumer is sent to the
next one at once, whatever lies between them in the numbers of the logical queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec
from twisted.internet.defer import Deferred

from txrocketmq.broker.other_brokers import OtherBrokers
from txrocketmq.broker.pull.processor import PullProcessor
from txrocketmq.broker.static_topics.rewriting import StaticOffsets, not_decided
from txrocketmq.broker.static_topics.table import LogicalQueue, StaticTopics
from txrocketmq.codec.headers import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from txrocketmq.errors import HeaderError, ResponseError
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.flags import PULL_COMMIT_OFFSET, PULL_SUSPEND
from txrocketmq.model.static_topic import LogicQueueMappingItem, stretch_after, stretch_at
from txrocketmq.remoting.dispatch import Reply, Request

if TYPE_CHECKING:
    from twisted.python.failure import Failure

_SUCCESS = ResponseCode.SUCCESS
_NOT_FOUND = ResponseCode.PULL_NOT_FOUND
_RETRY = ResponseCode.PULL_RETRY_IMMEDIATELY
_MOVED = ResponseCode.PULL_OFFSET_MOVED

Pull = Request[PullMessageRequestHeader]
Outcome = Reply | None


class StaticPull(Pull):
    """A pull from a stretch of a logical queue; its answer, also a late one, speaks of the logical queue again."""

    __slots__ = ("item", "queue")

    def __init__(
        self,
        request: Pull,
        header: PullMessageRequestHeader,
        queue: LogicalQueue,
        item: LogicQueueMappingItem,
    ) -> None:
        super().__init__(request.command, header, request.connection, request.arrived_ms)
        self.queue = queue
        self.item = item

    def answer(self, reply: Reply) -> None:
        """See `Request.answer`."""
        super().answer(self.rewritten(reply))

    def rewritten(self, reply: Reply) -> Reply:
        """An answer about the stretch as one about the logical queue."""
        found = reply.header
        if not isinstance(found, PullMessageResponseHeader):
            return reply
        queue, item, offset = self.queue, self.item, self.header.queue_offset
        following = stretch_after(queue.items, item)
        is_leader = item.gen == queue.leader.gen
        start, end = found.min_offset, found.max_offset
        following_offset = found.next_begin_offset
        code = reply.code
        if code != _SUCCESS:
            if offset < start:
                is_first = item is stretch_at(queue.items, 0)
                code, following_offset = _MOVED if is_first else _RETRY, start
            elif offset >= end and not is_leader:
                if following is None:
                    code = _NOT_FOUND
                else:
                    item, code = following, _RETRY
                    following_offset = start = end = item.start_offset
            elif offset > end and code == _MOVED:
                following_offset = end
        if item.is_ended:
            following_offset = min(following_offset, item.end_offset)
        header = msgspec.structs.replace(
            found,
            next_begin_offset=item.logical(following_offset),
            min_offset=item.logical(max(item.start_offset, start)),
            max_offset=max(item.logical(end), queue.leader.logical_end),
            offset_delta=item.logic_offset - item.start_offset,
        )
        return Reply(int(code), header, reply.body, reply.remark, reply.ext_fields)


class StaticPulls:
    """Stands before the handler of pulls."""

    def __init__(
        self,
        inner: PullProcessor,
        table: StaticTopics,
        others: OtherBrokers,
        offsets: StaticOffsets,
        broker: str,
    ) -> None:
        self._inner = inner
        self._table = table
        self._names = table.names
        self._others = others
        self._offsets = offsets
        self._broker = broker

    def pull_message(self, request: Pull) -> Outcome | Deferred[Outcome]:
        """See `PullProcessor.pull_message`."""
        header = request.header
        if header.topic not in self._names or header.logical is False:
            return self._inner.pull_message(request)
        queue = self._table.queue(header.topic, header.queue_id)
        if queue is None:
            raise ResponseError(
                ResponseCode.NOT_LEADER_FOR_QUEUE,
                f"{header.topic}-{header.queue_id} cannot find mapping item in request process of "
                f"current broker {self._broker}",
            )
        item = stretch_at(queue.items, header.queue_offset)
        if item is None:
            raise not_decided(queue)
        self._commit(request)
        following = stretch_after(queue.items, item)
        asked = msgspec.structs.replace(
            header,
            queue_id=item.queue_id,
            queue_offset=item.physical(header.queue_offset),
            sys_flag=header.sys_flag & ~PULL_COMMIT_OFFSET,
            max_msg_nums=_most(header, item),
        )
        if following is not None or not queue.is_here(item):
            # The next message comes elsewhere.
            asked.sys_flag &= ~PULL_SUSPEND
        pull = StaticPull(request, asked, queue, item)
        if asked.max_msg_nums == 0:
            if following is not None:
                return _go_on(pull, following)
            asked.max_msg_nums = header.max_msg_nums
        if not queue.is_here(item):
            return Deferred.fromCoroutine(self._pull_other(pull))
        outcome = self._inner.pull_message(pull)
        if isinstance(outcome, Deferred):
            return outcome.addCallback(lambda reply: reply and pull.rewritten(reply))
        return outcome and pull.rewritten(outcome)

    def _commit(self, request: Pull) -> None:
        """What the pull commits, in the logical queue."""
        header = request.header
        if not header.sys_flag & PULL_COMMIT_OFFSET:
            return
        commit = UpdateConsumerOffsetRequestHeader(
            consumer_group=header.consumer_group,
            topic=header.topic,
            queue_id=header.queue_id,
            commit_offset=header.commit_offset,
        )
        told = Request(request.command, commit, request.connection, request.arrived_ms)
        try:
            answer = self._offsets.update_consumer_offset(told)
        except ResponseError:
            # The pull says what is wrong with topic or group.
            return
        if isinstance(answer, Deferred):
            answer.addErrback(_not_committed)

    async def _pull_other(self, pull: StaticPull) -> Outcome:
        """Pull from the stretch's broker."""
        item = pull.item
        header = msgspec.structs.replace(pull.header, broker_name=item.bname, logical=False)
        answer = await self._others.ask(
            item.bname or "", RequestCode.PULL_MESSAGE, header, pull.body
        )
        try:
            found = answer.decode_header(PullMessageResponseHeader)
        except HeaderError:
            return Reply(answer.code, None, b"", answer.remark)
        return pull.rewritten(Reply(answer.code, found, bytes(answer.body), answer.remark))


def _most(header: PullMessageRequestHeader, item: LogicQueueMappingItem) -> int:
    """How many messages the pull may have: none from beyond the stretch's end."""
    if not item.is_ended:
        return header.max_msg_nums
    left = item.end_offset - item.physical(header.queue_offset)
    return max(0, min(header.max_msg_nums, left))


def _go_on(pull: StaticPull, following: LogicQueueMappingItem) -> Reply:
    """The answer at the end of a stretch."""
    start = following.logic_offset
    header = PullMessageResponseHeader(
        suggest_which_broker_id=0,
        next_begin_offset=start,
        min_offset=start,
        max_offset=max(start, pull.queue.leader.logical_end),
        offset_delta=following.logic_offset - following.start_offset,
        topic_sys_flag=0,
        group_sys_flag=0,
    )
    return Reply(int(_RETRY), header)


def _not_committed(failure: Failure) -> None:
    """A commit with a pull is no promise: the next one says more."""
    cast("object", failure)
