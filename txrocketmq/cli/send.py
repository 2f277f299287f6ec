"""What does ``txrocketmq send`` do? One message to one queue, and where it went."""

from __future__ import annotations

import random
from typing import Any

import attrs

from txrocketmq.cli.directory import NEW_TOPIC_QUEUES, Directory
from txrocketmq.codec.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from txrocketmq.errors import BrokerError, MQClientError, RemotingError
from txrocketmq.interfaces import IRemotingClient
from txrocketmq.model import properties as props
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.message_id import create_uniq_id
from txrocketmq.model.names import AUTO_CREATE_TOPIC_KEY_TOPIC, DEFAULT_PRODUCER_GROUP
from txrocketmq.model.properties import check_separators, format_properties

SEND_TIMEOUT_MS = 5000
MAX_BODY_BYTES = 4 * 1024 * 1024
"""The official client's limit (``maxMessageSize``)."""

#: Answers that mean the message is stored, with the official client's word for each.
_STORED = {
    int(ResponseCode.SUCCESS): "SEND_OK",
    int(ResponseCode.FLUSH_DISK_TIMEOUT): "FLUSH_DISK_TIMEOUT",
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): "FLUSH_SLAVE_TIMEOUT",
    int(ResponseCode.SLAVE_NOT_AVAILABLE): "SLAVE_NOT_AVAILABLE",
}


@attrs.frozen
class Outgoing:
    """The message to send."""

    topic: str
    body: bytes
    tag: str | None = None
    keys: str | None = None


async def send(
    reactor: Any,
    client: IRemotingClient,
    directory: Directory,
    message: Outgoing,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> str:
    """Send; one line that says where the message is.

    :param max_body_bytes: larger bodies are refused here, before anybody is asked.
    :raises MQClientError: there is nowhere to send to.
    :raises BrokerError: the broker refuses it.
    """
    if len(message.body) > max_body_bytes:
        raise MQClientError(
            f"the message for topic {message.topic} has a body of {len(message.body)} bytes, "
            f"the limit of this client is {max_body_bytes}"
        )
    uniq_key = create_uniq_id()
    properties = {
        props.KEYS: message.keys or None,
        props.UNIQ_KEY: uniq_key,
        props.WAIT_STORE_MSG_OK: "true",
        props.TAGS: message.tag or None,
    }
    for name, value in properties.items():
        check_separators(name, value or "")
    queue = random.choice(await directory.queues_to_send(message.topic))
    header = SendMessageRequestHeaderV2(
        producer_group=DEFAULT_PRODUCER_GROUP,
        topic=message.topic,
        default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
        default_topic_queue_nums=NEW_TOPIC_QUEUES,
        queue_id=queue.queue_id,
        sys_flag=0,
        born_timestamp=int(reactor.seconds() * 1000),
        flag=0,
        properties=format_properties(properties).decode(),
        reconsume_times=0,
        unit_mode=False,
        batch=False,
        broker_name=queue.broker_name,
    )
    try:
        answer = await client.request(
            queue.address,
            int(RequestCode.SEND_MESSAGE_V2),
            header,
            message.body,
            SEND_TIMEOUT_MS,
            None,
        )
    except RemotingError as error:
        raise MQClientError(f"broker {queue.broker_name} cannot be reached: {error}") from error
    status = _STORED.get(answer.code)
    if status is None:
        raise BrokerError(answer.code, answer.remark, f"{queue.broker_name} {queue.address}")
    found = answer.decode_header(SendMessageResponseHeader)
    return (
        f"{status} topic={message.topic} queue={queue.broker_name}/{found.queue_id} "
        f"offset={found.queue_offset} id={uniq_key} offsetMsgId={found.msg_id}"
    )
