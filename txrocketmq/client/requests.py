"""What do brokers ask of a client, and who answers? The one table, and its handlers.

Stands for the official ``ClientRemotingProcessor``. What concerns a group goes to the role that is registered for it.
"""

from __future__ import annotations

import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.client.interfaces import IConsumerRole
from txrocketmq.client.messages import decompress_message
from txrocketmq.codec.bodies.admin import ConsumeMessageDirectlyResult
from txrocketmq.codec.bodies.offsets import GetConsumerStatusBody, ResetOffsetBody
from txrocketmq.codec.bodies.wire import decode_body, encode_body
from txrocketmq.codec.compress import decompress_body
from txrocketmq.codec.headers import (
    CheckTransactionStateRequestHeader,
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    ReplyMessageRequestHeader,
    ResetOffsetRequestHeader,
)
from txrocketmq.codec.record import decode_record
from txrocketmq.errors import RecordError, ResponseError
from txrocketmq.model import properties as props
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.message import Host, MessageExt
from txrocketmq.remoting.dispatch import Lane, Operation, Reply, Request
from txrocketmq.remoting.transport import parse_address

if TYPE_CHECKING:
    from txrocketmq.client.instance import ClientInstance

log = Logger()

OPERATIONS = (
    Operation(
        int(RequestCode.CHECK_TRANSACTION_STATE),
        CheckTransactionStateRequestHeader,
        None,
        "client.check_transaction_state",
        Lane.TRANSACTION,
    ),
    Operation(
        int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED),
        NotifyConsumerIdsChangedRequestHeader,
        None,
        "client.notify_consumer_ids_changed",
        Lane.CLIENT,
    ),
    Operation(
        int(RequestCode.RESET_CONSUMER_CLIENT_OFFSET),
        ResetOffsetRequestHeader,
        None,
        "client.reset_offset",
        Lane.OFFSET,
    ),
    Operation(
        int(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT),
        GetConsumerStatusRequestHeader,
        None,
        "client.get_consumer_status",
        Lane.OFFSET,
    ),
    Operation(
        int(RequestCode.GET_CONSUMER_RUNNING_INFO),
        GetConsumerRunningInfoRequestHeader,
        None,
        "client.get_consumer_running_info",
        Lane.CLIENT,
    ),
    Operation(
        int(RequestCode.CONSUME_MESSAGE_DIRECTLY),
        ConsumeMessageDirectlyResultRequestHeader,
        None,
        "client.consume_message_directly",
        Lane.CLIENT,
    ),
    Operation(
        int(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT),
        ReplyMessageRequestHeader,
        None,
        "client.push_reply_message",
        Lane.REPLY,
    ),
)
"""Every request that a broker sends to a client."""


class ClientRequests:
    """Answers brokers in the name of the groups of one client."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance

    def check_transaction_state(self, request: Request[CheckTransactionStateRequestHeader]) -> None:
        """CHECK_TRANSACTION_STATE (oneway): ask the producer of the message's group."""
        try:
            message, _ = decode_record(request.body)
        except RecordError as error:
            log.warn("a check of a transaction cannot be read: {error}", error=error)
            return
        decompress_message(message)
        group = message.properties.get(props.PRODUCER_GROUP)
        producer = self._instance.producers.get(group or "")
        if producer is None:
            log.warn("a check of a transaction is for group {group}, unknown here", group=group)
        else:
            producer.check_transaction(message, request.header, request.connection.remote_text)

    def notify_consumer_ids_changed(
        self, request: Request[NotifyConsumerIdsChangedRequestHeader]
    ) -> None:
        """NOTIFY_CONSUMER_IDS_CHANGED (oneway): divide the queues anew."""
        self._instance.rebalance_now(request.header.consumer_group)

    def reset_offset(self, request: Request[ResetOffsetRequestHeader]) -> Any:
        """RESET_CONSUMER_CLIENT_OFFSET: an operator moves a group; mostly oneway."""
        header = request.header
        role = self._instance.consumer(header.group)
        offsets = decode_body(ResetOffsetBody, request.body).offset_table if request.body else {}
        log.info(
            "group {group}: offsets of topic {topic} are reset by {peer}",
            group=header.group,
            topic=header.topic,
            peer=request.connection.remote_text,
        )
        if role is None:
            return None
        known = {queue: offset for queue, offset in offsets.items() if offset >= 0}
        done = role.reset_offsets(header.topic, known)
        return Reply() if done is None else done.addCallback(lambda _: Reply())

    def get_consumer_status(self, request: Request[GetConsumerStatusRequestHeader]) -> Reply:
        """GET_CONSUMER_STATUS_FROM_CLIENT: where the member stands."""
        role = self._instance.consumer(request.header.group)
        table = {} if role is None else dict(role.consume_status(request.header.topic))
        return Reply(body=encode_body(GetConsumerStatusBody(message_queue_table=table)))

    def get_consumer_running_info(
        self, request: Request[GetConsumerRunningInfoRequestHeader]
    ) -> Reply:
        """GET_CONSUMER_RUNNING_INFO."""
        info = self._role(request.header.consumer_group).running_info()
        if request.header.jstack_enable:
            info.jstack = _thread_dump()
        return Reply(body=encode_body(info))

    def consume_message_directly(
        self, request: Request[ConsumeMessageDirectlyResultRequestHeader]
    ) -> Any:
        """CONSUME_MESSAGE_DIRECTLY: have the handler try one message."""
        header = request.header
        role = self._role(header.consumer_group)
        try:
            message, _ = decode_record(request.body)
            message.body = decompress_body(message.body, message.sys_flag)
        except RecordError as error:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        message.broker_name = header.broker_name or ""
        outcome = role.consume_directly(message, header.broker_name)
        if isinstance(outcome, Deferred):
            return outcome.addCallback(_directly_reply)
        return _directly_reply(outcome)

    def push_reply_message(self, request: Request[ReplyMessageRequestHeader]) -> Reply:
        """PUSH_REPLY_MESSAGE_TO_CLIENT: the answer to a request-reply call."""
        message = self._reply_message(request)
        correlation_id = message.properties.get(props.CORRELATION_ID, "")
        if not self._instance.replies.arrived(correlation_id, message):
            log.warn(
                "a reply came from {peer} that nobody waits for: correlation id {id}",
                peer=request.header.born_host,
                id=correlation_id,
            )
        return Reply()

    def _reply_message(self, request: Request[ReplyMessageRequestHeader]) -> MessageExt:
        header = request.header
        message = MessageExt(
            topic=header.topic,
            queue_id=header.queue_id,
            queue_offset=0,
            physical_offset=0,
            store_size=0,
            flag=header.flag,
            sys_flag=header.sys_flag,
            body=decompress_body(request.body, header.sys_flag),
            body_crc=0,
            born_timestamp=header.born_timestamp,
            born_host=_host(header.born_host),
            store_timestamp=header.store_timestamp,
            store_host=_host(header.store_host),
            reconsume_times=header.reconsume_times or 0,
            prepared_transaction_offset=0,
            properties_text=(header.properties or "").encode("utf-8", "replace"),
        )
        message.properties[props.REPLY_MESSAGE_ARRIVE_TIME] = str(request.arrived_ms)
        return message

    def _role(self, group: str) -> IConsumerRole:
        role = self._instance.consumer(group)
        if role is None:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer Group <{group}> not exist in this consumer",
            )
        return role


def _directly_reply(result: ConsumeMessageDirectlyResult) -> Reply:
    return Reply(body=encode_body(result))


def _host(text: str) -> Host:
    """Java writes hosts as ``/1.2.3.4:5``, or with a name before the slash."""
    try:
        return parse_address(text.rpartition("/")[2])
    except ValueError:
        return ("0.0.0.0", 0)


def _thread_dump() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        stack = "".join(traceback.format_stack(frame))
        parts.append(f"TID: {ident} NAME: {names.get(ident, '?')}\n{stack}")
    return "\n".join(parts)
