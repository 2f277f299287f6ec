"""What does a broker ask of its consumers, and what does it pass on to them?

Stands for ``Broker2Client`` and ``AdminBrokerProcessor.callConsumer``. The broker speaks over the link that the client opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.broker.clients import ConsumerGroup, Consumers, Member
from txrocketmq.codec.bodies import (
    GetConsumerStatusBody,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    decode_body,
    encode_body,
)
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import (
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    ResetOffsetRequestHeader,
)
from txrocketmq.errors import RemotingTimeoutError, ResponseError
from txrocketmq.interfaces import IConnection
from txrocketmq.model.codes import VERSION_NAMES, RequestCode, ResponseCode, version_name
from txrocketmq.model.message import MessageQueue
from txrocketmq.remoting.dispatch import Reply

CALL_TIMEOUT_MS = 10_000
STATUS_TIMEOUT_MS = 5_000

CAN_BE_CALLED = VERSION_NAMES.index("V3_1_8_SNAPSHOT")
CAN_BE_RESET = VERSION_NAMES.index("V3_0_7_SNAPSHOT")

Offsets = dict[MessageQueue, int]

log = Logger()


def notify_ids_changed(connection: IConnection, group: str) -> object:
    """Tell a consumer that its group changed, so that it divides the queues anew."""
    return connection.oneway(
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED.value,
        NotifyConsumerIdsChangedRequestHeader(consumer_group=group),
        b"",
    )


class ClientCalls:
    """Requests of the broker to consumers."""

    def __init__(self, consumers: Consumers) -> None:
        self._consumers = consumers

    def call(
        self,
        code: RequestCode,
        group: str,
        client_id: str | None,
        ext_fields: Mapping[str, str],
        body: bytes,
    ) -> Deferred[Reply]:
        """Pass a request on to one member of a group; fires with the member's own answer.

        :raises ResponseError: there is no such member, or it is too old to be asked.
        """
        member = self._member(group, client_id)
        if member is None:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            )
        if member.version < CAN_BE_CALLED:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{version_name(member.version)}> too low to "
                "finish, please upgrade it to V3_1_8_SNAPSHOT",
            )
        asked = member.connection.request(code.value, None, body, CALL_TIMEOUT_MS, ext_fields)
        asking = cast("Deferred[RemotingCommand]", asked)
        return asking.addCallbacks(
            _passed_back, _not_answered, errbackArgs=(f"<{group}> <{client_id}>",)
        )

    def _member(self, group_name: str, client_id: str | None) -> Member | None:
        group = self._consumers.get(group_name)
        return None if group is None or client_id is None else group.find_member(client_id)

    def reset_offsets(
        self, topic: str, group_name: str, timestamp_ms: int, offsets: Offsets, for_c: bool
    ) -> None:
        """Tell every member of a group where to go on in a topic.

        :param for_c: the body has the form that C++ clients read.
        :raises ResponseError: no member is online, or one is too old to be told.
        """
        group = self._consumers.get(group_name)
        if group is None:
            raise ResponseError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group_name} "
                f"Topic: {topic} Timestamp: {timestamp_ms}",
            )
        _check_versions(group)
        header = ResetOffsetRequestHeader(
            topic=topic, group=group_name, timestamp=timestamp_ms, is_force=False
        )
        body = encode_body(
            ResetOffsetBodyForC(offset_table=[_for_c(*item) for item in offsets.items()])
            if for_c
            else ResetOffsetBody(offset_table=offsets)
        )
        for member in group.members.values():
            member.connection.oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET.value, header, body)
            log.info(
                "consumer {client} told to go on elsewhere: topic {topic}, group {group}",
                client=member.client_id,
                topic=topic,
                group=group_name,
            )

    def consumer_status(
        self, topic: str, group_name: str, client_id: str | None
    ) -> Deferred[dict[str, Offsets]]:
        """Where the members of a group say that they stand in a topic; those that do not answer are left out.

        :param client_id: only this member; all when empty.
        :raises ResponseError: no member is online, or one is too old to be asked.
        """
        group = self._consumers.get(group_name)
        if group is None:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{group_name}]",
            )
        _check_versions(group)
        found: dict[str, Offsets] = {}
        header = GetConsumerStatusRequestHeader(topic=topic, group=group_name)
        asking = []
        for member in group.members.values():
            if client_id and client_id.strip() and member.client_id != client_id:
                continue
            asked = member.connection.request(
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT.value, header, b"", STATUS_TIMEOUT_MS
            )
            answered = cast("Deferred[RemotingCommand]", asked)
            answered.addCallback(_take_status, member.client_id, found)
            asking.append(answered.addErrback(_no_status, member.client_id))
        return DeferredList(asking).addCallback(lambda _: found)


def _take_status(answer: RemotingCommand, client_id: str, found: dict[str, Offsets]) -> None:
    if answer.code == ResponseCode.SUCCESS and answer.body:
        found[client_id] = decode_body(GetConsumerStatusBody, answer.body).message_queue_table


def _no_status(failure: Failure, client_id: str) -> None:
    log.warn(
        "consumer {client} does not tell where it stands: {reason}",
        client=client_id,
        reason=failure.value,
    )


def _passed_back(answer: RemotingCommand) -> Reply:
    return Reply(answer.code, None, answer.body, answer.remark, answer.ext_fields)


def _not_answered(failure: Failure, consumer: str) -> Reply:
    error = failure.value
    if isinstance(error, RemotingTimeoutError):
        return Reply(
            ResponseCode.CONSUME_MSG_TIMEOUT.value, remark=f"consumer {consumer} Timeout: {error}"
        )
    return Reply(
        ResponseCode.SYSTEM_ERROR.value, remark=f"invoke consumer {consumer} Exception: {error}"
    )


def _check_versions(group: ConsumerGroup) -> None:
    for member in group.members.values():
        if member.version < CAN_BE_RESET:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"the client does not support this feature. version={version_name(member.version)}",
            )


def _for_c(queue: MessageQueue, offset: int) -> MessageQueueForC:
    return MessageQueueForC(
        topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id, offset=offset
    )
