"""How are popped messages acknowledged, or asked for at another time: ACK_MESSAGE, BATCH_ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME?

Stands for ``AckMessageProcessor`` and ``ChangeInvisibleTimeProcessor``. To change the time of a message means a check point of its own
for it, then an acknowledgement in the old one; in this order, so that a crash in between makes it come twice and never loses it.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.broker.pop.ordered import ILLEGAL
from txrocketmq.broker.pop.parts import Key, PopParts
from txrocketmq.broker.pop.receipts import (
    ORDER_REVIVE_QUEUE,
    Receipt,
    check_revive_queue,
    check_times,
    invisible_ms_of,
    read_receipt,
    topic_of_kind,
)
from txrocketmq.broker.pop.revive_log import check_point
from txrocketmq.codec.bodies import (
    AckMsg,
    BatchAck,
    BatchAckMessageRequestBody,
    BatchAckMsg,
    decode_body,
)
from txrocketmq.codec.headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from txrocketmq.errors import ResponseError
from txrocketmq.model.codes import ResponseCode
from txrocketmq.remoting.dispatch import Reply, Request

MAX_BATCH_OFFSETS = 65_536
"""Offsets that one entry of a batch may name."""

USUAL_WEIGHT = 64
WEIGHT_OF_A_TURN = 64 * 128
"""Entries of a batch that are served before others have their turn: some hundred, fewer of those that name many offsets. An entry weighs
64, and what its set of offsets has in bytes."""

NOT_SET = "not set any response code"
"""What official brokers leave in the remark of some successes."""

AckRequest = Request[AckMessageRequestHeader]
ChangeRequest = Request[ChangeInvisibleTimeRequestHeader]


class AckProcessor:
    """Answers acknowledgements."""

    _log = Logger()

    def __init__(self, parts: PopParts) -> None:
        self._parts = parts

    # ----------------------------------------------------------------- acknowledgements

    def ack_message(self, request: AckRequest) -> Deferred[Reply]:
        """One message is done with."""
        return Deferred.fromCoroutine(self._ack(request))

    async def _ack(self, request: AckRequest) -> Reply:
        parts, header = self._parts, request.header
        parts.checks.known_queue(request)
        least, most = parts.bounds(header.topic, header.queue_id)
        if not least <= header.offset <= most:
            return Reply(
                ResponseCode.NO_MESSAGE.value,
                remark=f"offset is illegal, key:{header.topic}@{header.queue_id}, commit:{header.offset}, "
                f"store:{least}~{most}",
            )
        receipt = read_receipt(header.extra_info, parts.points.queue_count)
        key = (header.topic, header.consumer_group, header.queue_id)
        if receipt.is_ordered:
            return self._ack_ordered(request, key, header.offset, receipt.pop_time_ms)
        await self._note(key, receipt, AckMsg(ack_offset=header.offset), 1)
        return Reply()

    def batch_ack_message(self, request: Request[None]) -> Deferred[Reply]:
        """Messages of several pops are done with."""
        return Deferred.fromCoroutine(self._batch_ack(request))

    async def _batch_ack(self, request: Request[None]) -> Reply:
        acks: list[BatchAck] = []
        broker_name = None
        if request.body:
            body = decode_body(BatchAckMessageRequestBody, request.body)
            acks, broker_name = body.acks or [], body.broker_name
        if not acks:
            return Reply(ResponseCode.NO_MESSAGE.value)
        reply = Reply()
        weight = 0
        for ack in acks:
            if weight > WEIGHT_OF_A_TURN:
                weight = 0
                await self._parts.pause()
            weight += USUAL_WEIGHT + len(ack.bit_set or b"")
            answer = await self._ack_several(request, ack, broker_name)
            if answer.code != ResponseCode.SUCCESS:
                reply = answer
        return reply

    async def _ack_several(
        self, request: Request[Any], ack: BatchAck, broker_name: str | None
    ) -> Reply:
        parts = self._parts
        group = ack.consumer_group or ""
        topic = topic_of_kind(ack.topic or "", group, ack.retry)
        check_revive_queue(ack.revive_queue_id, parts.points.queue_count)
        check_times(ack.pop_time, ack.invisible_time)
        if parts.topics.get(topic) is None:
            # Nothing of it comes again; whatever name a client makes up is not to be remembered.
            return Reply()
        key = (topic, group, ack.queue_id)
        least, most = parts.bounds(topic, ack.queue_id)
        offsets = [
            offset
            for offset in (ack.start_offset + bit for bit in bits_of(ack.bit_set or b""))
            if least <= offset <= most
        ]
        if ack.revive_queue_id == ORDER_REVIVE_QUEUE:
            reply = Reply()
            for offset in offsets:
                answer = self._ack_ordered(request, key, offset, ack.pop_time)
                if answer.code != ResponseCode.SUCCESS:
                    reply = answer
            return reply
        if offsets:
            receipt = Receipt(
                ack.start_offset,
                ack.pop_time,
                ack.invisible_time,
                ack.revive_queue_id,
                broker_name or parts.config.broker_name,
            )
            entry = BatchAckMsg(ack_offset=-1, ack_offset_list=offsets)
            await self._note(key, receipt, entry, len(offsets))
        return Reply()

    async def _note(
        self, key: Key, receipt: Receipt, entry: AckMsg | BatchAckMsg, count: int
    ) -> None:
        """Write an acknowledgement down.

        :raises ResponseError: the store does not take it; the message would come again.
        """
        parts = self._parts
        topic, group, queue_id = key
        parts.stats.of_acks(topic, group).count_several(count)
        entry.topic, entry.consumer_group, entry.queue_id = topic, group, queue_id
        entry.start_offset = receipt.start_offset
        entry.pop_time = receipt.pop_time_ms
        entry.broker_name = receipt.broker_name
        put = await parts.points.acknowledge(
            entry, receipt.revive_queue, receipt.pop_time_ms + receipt.invisible_ms
        )
        if put is not None and not put.is_ok:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"the acknowledgement is not stored: {put.status.name}"
            )
        parts.in_flight.done(key, receipt.pop_time_ms, count)

    def _ack_ordered(self, request: Request[Any], key: Key, offset: int, pop_time_ms: int) -> Reply:
        parts = self._parts
        topic, group, queue_id = key
        before = parts.offsets.query(group, topic, queue_id)
        if offset < before:
            return Reply()
        parts.stats.of_acks(topic, group).count_several(1)
        if parts.ordered.find(topic, group, queue_id) is None and offset != parts.stands_at(key):
            # A crash forgot what was popped: messages before this one may not be done with.
            return Reply()
        peer = request.connection.remote_text
        after = parts.ordered.acknowledge(topic, group, queue_id, offset, pop_time_ms)
        if after == ILLEGAL:
            return Reply(
                ResponseCode.MESSAGE_ILLEGAL.value,
                remark=f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{before}, commit:{offset}, "
                f"next:{after}, /{peer}",
            )
        if after >= 0:
            if not parts.offsets.has_reset(group, topic, queue_id):
                parts.offsets.commit(group, topic, queue_id, after, peer)
            if not parts.ordered.is_blocked(None, topic, group, queue_id, 0):
                parts.free(key)
            parts.block_changed(key)
        parts.in_flight.done(key, pop_time_ms)
        return Reply()

    # ----------------------------------------------------------------- another time

    def change_invisible_time(self, request: ChangeRequest) -> Deferred[Reply]:
        """A message is to come again at another time."""
        return Deferred.fromCoroutine(self._change(request))

    async def _change(self, request: ChangeRequest) -> Reply:
        parts, header = self._parts, request.header
        parts.checks.known_queue(request)
        empty = ChangeInvisibleTimeResponseHeader(pop_time=0, invisible_time=0, revive_qid=0)
        least, most = parts.bounds(header.topic, header.queue_id)
        if not least <= header.offset < most:
            return Reply(ResponseCode.NO_MESSAGE.value, empty, remark=NOT_SET)
        receipt = read_receipt(header.extra_info, parts.points.queue_count)
        key = (header.topic, header.consumer_group, header.queue_id)
        invisible_ms = invisible_ms_of(header.invisible_time)
        if receipt.is_ordered:
            return self._change_ordered(key, header.offset, receipt, invisible_ms)
        if parts.points.is_full(receipt.revive_queue):
            raise ResponseError(
                ResponseCode.SYSTEM_BUSY,
                f"too many messages of revive queue {receipt.revive_queue} are out",
            )
        # Never the old pop's own time: the two check points would be taken for one, and the message be lost.
        pop_time_ms = max(parts.now_ms(), receipt.pop_time_ms + 1)
        point = check_point(
            header.topic,
            header.consumer_group,
            header.queue_id,
            header.offset,
            pop_time_ms,
            invisible_ms,
            receipt.broker_name,
            (header.offset,),
        )
        if not await parts.points.write_point(point, receipt.revive_queue):
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "the new time is not stored")
        parts.in_flight.popped(key, 1)
        await self._note(key, receipt, AckMsg(ack_offset=header.offset), 1)
        return Reply(
            header=ChangeInvisibleTimeResponseHeader(
                pop_time=pop_time_ms,
                invisible_time=invisible_ms,
                revive_qid=receipt.revive_queue,
            ),
            remark=NOT_SET,
        )

    def _change_ordered(self, key: Key, offset: int, receipt: Receipt, invisible_ms: int) -> Reply:
        parts = self._parts
        topic, group, queue_id = key
        if offset < parts.offsets.query(group, topic, queue_id):
            empty = ChangeInvisibleTimeResponseHeader(pop_time=0, invisible_time=0, revive_qid=0)
            return Reply(header=empty, remark=NOT_SET)
        visible_ms = parts.now_ms() + invisible_ms
        parts.ordered.change_visible_time(
            topic, group, queue_id, offset, receipt.pop_time_ms, visible_ms
        )
        parts.block_changed(key)
        return Reply(
            header=ChangeInvisibleTimeResponseHeader(
                pop_time=receipt.pop_time_ms,
                invisible_time=visible_ms - receipt.pop_time_ms,
                revive_qid=receipt.revive_queue,
            ),
            remark=NOT_SET,
        )


def bits_of(data: bytes) -> list[int]:
    """The bits that are set in the bytes of a ``java.util.BitSet``, smallest first.

    :raises ResponseError: there are too many.
    """
    if len(data) * 8 > MAX_BATCH_OFFSETS:
        raise ResponseError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a set of {len(data)} bytes, at most {MAX_BATCH_OFFSETS // 8} are served",
        )
    return [
        8 * index + bit for index, byte in enumerate(data) for bit in range(8) if byte >> bit & 1
    ]
