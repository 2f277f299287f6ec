"""What became of a message, told by the clients themselves: trace records, their text, and how they get to the trace topic.

Stands for ``TraceDataEncoder``, ``AsyncTraceDispatcher`` and the trace hooks of the official client. A record is one line of fields between
bytes 0x01, ended by 0x02; a trace message holds up to 20 of them, and has the ids and keys of all messages they are about as its keys, so
that the broker's index finds them::

    Pub            time region group topic id tags keys broker body-length cost type offset-id success
    SubBefore      time region group request-id id retries keys
    SubAfter       request-id id cost success keys context-code time group
    EndTransaction time region group topic id tags keys broker type transaction-id state from-check
    Recall         time region group topic id success

Traces are an extra: what cannot be sent is dropped and counted, nobody waits for it.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from typing import Any

import attrs
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from txrocketmq.client.hooks import ConsumeContext, SendContext
from txrocketmq.client.interfaces import IConsumeHook, ISendHook
from txrocketmq.client.periodic import Periodic
from txrocketmq.client.results import SendResult, SendStatus
from txrocketmq.model import properties as props
from txrocketmq.model.message import Message, MessageExt
from txrocketmq.model.message_id import create_uniq_id
from txrocketmq.model.names import TRACE_TOPIC

log = Logger()

TRACE_GROUP_PREFIX = "_INNER_TRACE_PRODUCER"
MAX_MESSAGE_BYTES = 128_000
MAX_BATCH = 20
MAX_WAITING = 2048
"""Records that wait to be sent, or for the broker's answer; further ones are dropped."""
FLUSH_S = 5.0
LOCAL = "LOCAL"
DEFAULT_REGION = "DefaultRegion"

_FIELD = "\x01"
_END = "\x02"
#: Ordinals of the official ``MessageType``.
_KINDS = {"normal": 0, "batch": 0, "reply": 0, "half": 1, "commit": 2, "delay": 3, "order": 4}
#: Ordinals of the official ``ConsumeReturnType``.
_RETURN_TYPES = {"SUCCESS": 0, "TIME_OUT": 1, "EXCEPTION": 2, "RETURNNULL": 3, "FAILED": 4}


class TraceType(enum.Enum):
    """What a record is about."""

    PUB = "Pub"
    RECALL = "Recall"
    SUB_BEFORE = "SubBefore"
    SUB_AFTER = "SubAfter"
    END_TRANSACTION = "EndTransaction"


@attrs.define(kw_only=True)
class TraceBean:
    """One message of a record; texts that are not known are written as Java writes them, ``null``."""

    topic: str = ""
    msg_id: str = ""
    offset_msg_id: str = ""
    tags: str | None = None
    keys: str | None = None
    store_host: str = ""
    body_length: int = 0
    kind: str = "normal"
    retry_times: int = 0
    transaction_id: str | None = None
    transaction_state: str = ""
    from_check: bool = False


@attrs.define(kw_only=True)
class TraceRecord:
    """What a client did with one message, or with the messages of one call of a handler.

    :ivar time: wall-clock ms.
    :ivar cost: ms for each message.
    :ivar request_id: ties the two records of a consumption.
    """

    type: TraceType
    time: int
    group: str
    region: str = DEFAULT_REGION
    cost: int = 0
    success: bool = True
    request_id: str = ""
    context_code: int = 0
    access_channel: str = LOCAL
    beans: list[TraceBean] = attrs.field(factory=list)


def _text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def encode_trace(record: TraceRecord) -> str:
    """The record's line, or lines: one for each message of a consumption."""
    lines = []
    head = (record.type.value, record.time, record.region, record.group)
    for bean in record.beans:
        fields: tuple[object, ...]
        if record.type is TraceType.PUB:
            sent = (bean.topic, bean.msg_id, bean.tags, bean.keys, bean.store_host)
            told = (bean.body_length, record.cost, _KINDS[bean.kind], bean.offset_msg_id)
            fields = (*head, *sent, *told, record.success)
        elif record.type is TraceType.SUB_BEFORE:
            fields = (*head, record.request_id, bean.msg_id, bean.retry_times, bean.keys)
        elif record.type is TraceType.SUB_AFTER:
            fields = (record.type.value, record.request_id, bean.msg_id, record.cost)
            fields = (*fields, record.success, bean.keys, record.context_code)
            if record.access_channel == LOCAL:
                fields = (*fields, record.time, record.group)
            else:
                fields = (*fields, "")
        elif record.type is TraceType.END_TRANSACTION:
            about = (bean.topic, bean.msg_id, bean.tags, bean.keys, bean.store_host)
            verdict = (bean.transaction_id, bean.transaction_state, bean.from_check)
            fields = (*head, *about, _KINDS["commit"], *verdict)
        else:
            fields = (*head, bean.topic, bean.msg_id, record.success)
        lines.append(_FIELD.join(map(_text, fields)) + _END)
    return "".join(lines)


def trace_keys(record: TraceRecord) -> set[str]:
    """Ids and keys under which the record is to be found."""
    found = set()
    for bean in record.beans:
        found.add(bean.msg_id)
        found.update((bean.keys or "").split())
    found.discard("")
    return found


class TraceDispatcher:
    """Collects records and sends them in batches.

    :param send: sends one trace message.
    :param topic: the trace topic; the official one when empty.
    :param plain_name: takes the name space off a group's name.
    :ivar dropped: records that were not sent because too many waited.
    """

    def __init__(
        self,
        clock: IReactorTime,
        send: Callable[[Message], Deferred[SendResult]],
        topic: str = "",
        batch_num: int = 10,
        plain_name: Callable[[str], str] = str,
    ) -> None:
        self._clock = clock
        self._send = send
        self._plain_name = plain_name
        self.topic = topic or TRACE_TOPIC
        self._batch_num = max(1, min(batch_num, MAX_BATCH))
        self._waiting: deque[TraceRecord] = deque()
        self._sending: dict[Deferred[Any], int] = {}
        self._under_way = 0
        self._flushing = Periodic(clock, "sending of traces", FLUSH_S, self._flush_some)
        self.dropped = 0

    def start(self) -> None:
        """Begin timed work."""
        self._flushing.start()

    def stop(self) -> Deferred[None]:
        """Send what waits; fires when that is done (or failed)."""
        self._flushing.stop()
        while self._waiting:
            self._send_batch()
        return DeferredList(list(self._sending)).addCallback(lambda _: None)

    def append(self, record: TraceRecord) -> None:
        """Take a record; sent when a batch is together, after 5 s at the latest."""
        if len(self._waiting) + self._under_way >= MAX_WAITING:
            self.dropped += 1
            return
        record.group = self._plain_name(record.group)
        self._waiting.append(record)
        if len(self._waiting) >= self._batch_num:
            self._send_batch()

    def _flush_some(self) -> None:
        while self._waiting:
            self._send_batch()

    def _send_batch(self) -> None:
        by_topic: dict[str, list[TraceRecord]] = {}
        for _ in range(min(self._batch_num, len(self._waiting))):
            record = self._waiting.popleft()
            if record.beans:
                by_topic.setdefault(record.beans[0].topic, []).append(record)
        for records in by_topic.values():
            self._send_records(records)

    def _send_records(self, records: list[TraceRecord]) -> None:
        text = ""
        count = 0
        keys: set[str] = set()
        for record in records:
            line = encode_trace(record)
            if text and len(text) + len(line) >= MAX_MESSAGE_BYTES:
                self._send_text(text, keys, count)
                text, keys, count = "", set(), 0
            text += line
            count += 1
            keys |= trace_keys(record)
        if text:
            self._send_text(text, keys, count)

    def _send_text(self, text: str, keys: set[str], count: int) -> None:
        message = Message(self.topic, text.encode("utf-8", "replace"))
        message.properties[props.KEYS] = " ".join(sorted(keys))
        sending = self._send(message)
        self._sending[sending] = count
        self._under_way += count

        def done(outcome: Any) -> None:
            self._under_way -= self._sending.pop(sending)

        def failed(failure: Any) -> None:
            log.warn("a trace could not be sent: {error}", error=failure.value)

        sending.addErrback(failed).addCallback(done)


@implementer(ISendHook)
class SendTraceHook:
    """Makes a ``Pub`` record of each message that is stored."""

    name = "SendMessageTraceHook"

    def __init__(self, dispatcher: TraceDispatcher, now_ms: Callable[[], int]) -> None:
        self._dispatcher = dispatcher
        self._now_ms = now_ms

    def before_send(self, context: SendContext) -> None:
        """Note when it began."""
        if not context.message.topic.startswith(self._dispatcher.topic):
            context.trace = self._now_ms()

    def after_send(self, context: SendContext) -> None:
        """Record what is stored; a try that failed leaves no trace."""
        result = context.result
        if context.trace is None or result is None or not result.trace_on:
            return
        message = context.message
        bean = TraceBean(
            topic=message.topic,
            msg_id=result.msg_id,
            offset_msg_id=result.offset_msg_id,
            tags=message.tags,
            keys=message.keys,
            store_host=context.broker_address,
            body_length=len(message.body),
            kind=context.kind,
        )
        self._dispatcher.append(
            TraceRecord(
                type=TraceType.PUB,
                time=context.trace,
                region=result.region_id,
                group=context.producer_group,
                cost=max(0, self._now_ms() - context.trace),
                success=result.status is SendStatus.SEND_OK,
                beans=[bean],
            )
        )


@implementer(IConsumeHook)
class ConsumeTraceHook:
    """Makes a ``SubBefore`` and a ``SubAfter`` record of each call of a handler."""

    name = "ConsumeMessageTraceHook"

    def __init__(self, dispatcher: TraceDispatcher, now_ms: Callable[[], int]) -> None:
        self._dispatcher = dispatcher
        self._now_ms = now_ms

    def before_consume(self, context: ConsumeContext) -> None:
        """Record that the handler is called."""
        beans = []
        region = DEFAULT_REGION
        for message in context.messages:
            if message.properties.get(props.TRACE_SWITCH) != "false":
                region = message.properties.get(props.MSG_REGION) or region
                beans.append(consumed_bean(message))
        if beans:
            now = self._now_ms()
            context.trace = TraceRecord(
                type=TraceType.SUB_BEFORE,
                time=now,
                region=region,
                group=context.consumer_group,
                request_id=create_uniq_id(now),
                beans=beans,
            )
            self._dispatcher.append(context.trace)

    def after_consume(self, context: ConsumeContext) -> None:
        """Record what came of it."""
        before = context.trace
        if before is None:
            return
        now = self._now_ms()
        self._dispatcher.append(
            attrs.evolve(
                before,
                type=TraceType.SUB_AFTER,
                time=now,
                cost=max(0, now - before.time) // len(context.messages),
                success=context.success,
                context_code=_RETURN_TYPES.get(context.return_type, 0),
                access_channel=context.access_channel,
            )
        )


def consumed_bean(message: MessageExt) -> TraceBean:
    """What traces say of a message that is consumed."""
    return TraceBean(
        topic=message.topic,
        msg_id=message.uniq_key or message.msg_id,
        tags=message.tags,
        keys=message.keys,
        body_length=message.store_size,
        retry_times=message.reconsume_times,
    )


def end_transaction_record(
    message: Message | MessageExt,
    *,
    now_ms: int,
    group: str,
    address: str,
    msg_id: str,
    transaction_id: str | None,
    state: str,
    from_check: bool,
) -> TraceRecord:
    """The record of a transaction's verdict."""
    bean = TraceBean(
        topic=message.topic,
        msg_id=msg_id,
        tags=message.properties.get(props.TAGS),
        keys=message.properties.get(props.KEYS),
        store_host=address,
        transaction_id=transaction_id,
        transaction_state=state,
        from_check=from_check,
    )
    region = message.properties.get(props.MSG_REGION) or DEFAULT_REGION
    return TraceRecord(
        type=TraceType.END_TRANSACTION, time=now_ms, region=region, group=group, beans=[bean]
    )
