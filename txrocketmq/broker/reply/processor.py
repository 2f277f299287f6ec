"""How does a reply find the client that asked?

Stands for ``ReplyMessageProcessor``. The reply names the client; the broker pushes it over the link that the client's heartbeats came
from, as a producer, and answers the replier once the client has confirmed. The reply is stored, too (`storeReplyMessageEnable`), in the
cluster's reply topic, whether it was handed over or not: nobody consumes it there, it can only be looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import randrange
from typing import TYPE_CHECKING, cast

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.broker.addresses import host_port
from txrocketmq.broker.feature import Feature
from txrocketmq.broker.send.admission import Admission
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from txrocketmq.errors import ResponseError
from txrocketmq.model import properties as props
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.message_id import offset_message_id
from txrocketmq.model.properties import format_properties, parse_properties
from txrocketmq.remoting.dispatch import Lane, Reply, Request
from txrocketmq.store.results import PutMessageResult, PutMessageStatus

if TYPE_CHECKING:
    from txrocketmq.broker.core import BrokerCore

AnySendHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2

PUSH_TIMEOUT_MS = 10_000
"""How long the asking client may take to confirm (official ``Broker2Client.callClient``)."""

_OF_BROKERS = (props.POP_CK, props.CRC32)
"""Properties that no client may set, as those of sends; a receipt of another message would be taken for the one of this."""

_STORED = (
    PutMessageStatus.PUT_OK,
    PutMessageStatus.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE,
)


class ReplyService(Feature):
    """Serves SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2."""

    _log = Logger()

    def __init__(self, core: BrokerCore) -> None:
        self._config = core.config
        self._store = core.store
        self._topics = core.topics
        self._stats = core.stats
        self._store_host = core.store_host
        self._clock = core.clock
        self._producers = core.producers
        self._admission = Admission(core.config, core.topics, self._now_ms)

    def _now_ms(self) -> int:
        return int(self._clock.seconds() * 1000)

    def handlers(self) -> Mapping[str, object]:
        """See `IBrokerFeature`."""
        return {"reply": self}

    def lane_limits(self) -> Mapping[Lane, int]:
        """See `IBrokerFeature`."""
        return {Lane.REPLY: self._config.reply_thread_pool_queue_capacity}

    def send_reply(self, request: Request[AnySendHeader]) -> Reply | Deferred[Reply]:
        """Hand a reply over to the client that it names, and store it.

        The answer says how handing over went; that the reply could not be stored is only logged, as officially.
        """
        header = request.header
        try:
            topic = self._admission.admit(request)
            queues = max(topic.write_queue_nums, topic.read_queue_nums)
            if header.queue_id >= queues:
                raise self._admission.bad_queue(topic, request)
        except ResponseError as refused:
            return self._reply(refused.code, remark=refused.remark)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = randrange(topic.write_queue_nums) if topic.write_queue_nums > 0 else 0
        found = parse_properties(header.properties or "") | self._own_properties()
        for name in _OF_BROKERS:
            found.pop(name, None)
        asker = found.get(props.MESSAGE_REPLY_TO_CLIENT)
        pushed = self._push(request, found, asker)
        if isinstance(pushed, Deferred):
            return pushed.addCallback(self._pushed, request, found, queue_id)
        return self._pushed(pushed, request, found, queue_id)

    def _push(
        self, request: Request[AnySendHeader], found: dict[str, str], asker: str | None
    ) -> str | Deferred[str | None]:
        """Why the reply could not be handed over; a Deferred of that, or of None when it was, where the client is asked."""
        if asker is None:
            return f"reply message properties[{props.MESSAGE_REPLY_TO_CLIENT}] is null"
        connection = self._producers.connection_of(asker)
        if connection is None:
            return f"push reply message fail, channel of <{asker}> not found."
        now_ms = self._now_ms()
        header = request.header
        push = ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=format_properties({**found, props.PUSH_REPLY_TIME: str(now_ms)}).decode(),
            reconsume_times=header.reconsume_times,
            unit_mode=bool(header.unit_mode),
            born_host=host_port(*request.connection.remote_address),
            store_host=host_port(*self._store_host),
            store_timestamp=now_ms,
        )
        asked = connection.request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT.value, push, request.body, PUSH_TIMEOUT_MS
        )
        answered = cast("Deferred[RemotingCommand]", asked)
        return answered.addCallbacks(
            self._confirmed, self._not_answered, callbackArgs=(asker,), errbackArgs=(asker,)
        )

    def _confirmed(self, answer: RemotingCommand, asker: str) -> str | None:
        if answer.code == ResponseCode.SUCCESS:
            return None
        self._log.warn("reply to {client} not taken: {remark}", client=asker, remark=answer.remark)
        return f"push reply message to {asker}fail."

    def _not_answered(self, failure: Failure, asker: str) -> str:
        self._log.warn(
            "reply to {client} not confirmed: {reason}", client=asker, reason=failure.value
        )
        return f"push reply message to {asker}fail."

    def _pushed(
        self,
        fault: str | None,
        request: Request[AnySendHeader],
        found: dict[str, str],
        queue_id: int,
    ) -> Reply | Deferred[Reply]:
        if fault is None:
            # Not empty, so that clients can decode it.
            header = SendMessageResponseHeader(msg_id="0", queue_id=queue_id, queue_offset=0)
            reply = self._reply(ResponseCode.SUCCESS, header)
        else:
            reply = self._reply(ResponseCode.SYSTEM_ERROR, remark=fault)
        if not self._config.store_reply_message_enable:
            return reply
        record = self._record(request, found, queue_id)
        outcome = self._store.put_message(record)
        if isinstance(outcome, Deferred):
            return outcome.addCallback(self._stored, reply, record)
        return self._stored(outcome, reply, record)

    def _record(
        self, request: Request[AnySendHeader], found: dict[str, str], queue_id: int
    ) -> MessageRecord:
        header = request.header
        return MessageRecord(
            topic=header.topic,
            queue_id=queue_id,
            body=request.body,
            properties=format_properties(found),
            flag=header.flag,
            born_timestamp=header.born_timestamp,
            born_host=request.connection.remote_address,
            store_host=self._store_host,
            reconsume_times=header.reconsume_times or 0,
            keys=found.get(props.KEYS),
            uniq_key=found.get(props.UNIQ_KEY),
        )

    def _stored(self, result: PutMessageResult, reply: Reply, record: MessageRecord) -> Reply:
        if result.status not in _STORED:
            self._log.warn(
                "reply in topic {topic} not stored: {status}",
                topic=record.topic,
                status=result.status.name,
            )
            return reply
        counter = self._stats.of_topic(record.topic)
        counter.messages += result.msg_num
        counter.calls += 1
        counter.size_bytes += result.wrote_bytes
        reply.header = SendMessageResponseHeader(
            msg_id=offset_message_id(*self._store_host, result.physical_offset),
            queue_id=record.queue_id,
            queue_offset=result.queue_offset,
        )
        return reply

    def _reply(
        self,
        code: int,
        header: SendMessageResponseHeader | None = None,
        remark: str | None = None,
    ) -> Reply:
        return Reply(int(code), header, b"", remark, self._own_properties())

    def _own_properties(self) -> dict[str, str]:
        """What brokers add to replies as to all messages, and to what they answer."""
        return {
            props.MSG_REGION: self._config.region_id,
            props.TRACE_SWITCH: "true" if self._config.trace_on else "false",
        }
