"""May this message come in at all? The checks that known topics need not repeat for each message.

Stands for ``AbstractSendMessageProcessor.msgCheck`` and ``preSend``: names, reserved
topics, broker permission, topic creation, queue id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import gmtime, strftime
from typing import TYPE_CHECKING

from txrocketmq.broker.remarks import topic_not_exist
from txrocketmq.codec.headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.errors import ResponseError
from txrocketmq.model import properties as props
from txrocketmq.model.attributes import CLEANUP_POLICY, COMPACTION
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.flags import PERM_READ_WRITE, PERM_WRITE, perm_text, topic_sys_flag
from txrocketmq.model.names import (
    NOT_ALLOWED_SEND_TOPICS,
    is_retry_topic,
    topic_fault,
)
from txrocketmq.model.topic import TopicConfig
from txrocketmq.remoting.dispatch import Request

if TYPE_CHECKING:
    from txrocketmq.broker.topics import Topics

AnySendHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2


class Admission:
    """Finds, or creates, the topic of a send, or refuses it."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._topics = topics
        self._now_ms = now_ms

    def admit(self, request: Request[AnySendHeader]) -> TopicConfig:
        """The topic to write to.

        :raises ResponseError: with the official code and remark.
        """
        config, header = self._config, request.header
        self._check_start_time()
        name = header.topic
        topic = self._topics.get(name)
        if not config.broker_permission & PERM_WRITE and topic is not None and topic.order:
            raise ResponseError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] sending message is forbidden",
            )
        fault = topic_fault(name)
        if fault is not None:
            raise ResponseError(ResponseCode.INVALID_PARAMETER, fault)
        if name in NOT_ALLOWED_SEND_TOPICS:
            raise ResponseError(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden."
            )
        if topic is None:
            topic = self._create(request)
        return topic

    def refuse_by_kind(self, topic: TopicConfig, found: Mapping[str, str]) -> None:
        """Refuse a single message that its topic does not take.

        :raises ResponseError: with the official remark where there is one.
        """
        attributes = topic.attributes or {}
        if attributes.get(CLEANUP_POLICY) == COMPACTION and not found.get(props.KEYS, "").strip():
            raise ResponseError(ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")

    def bad_queue(self, topic: TopicConfig, request: Request[AnySendHeader]) -> ResponseError:
        """The refusal of a queue id that the topic does not have."""
        return ResponseError(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{request.header.queue_id}] is illegal, {describe(topic)} "
            f"Producer: {request.connection.remote_text}",
        )

    def _check_start_time(self) -> None:
        start_ms = self._config.start_accept_send_request_time_stamp
        if self._now_ms() < start_ms:
            moment = strftime("%Y-%m-%d %H:%M:%S", gmtime(start_ms / 1000))
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"broker unable to service, until {moment},{start_ms % 1000:03d} UTC",
            )

    def _create(self, request: Request[AnySendHeader]) -> TopicConfig:
        header = request.header
        name = header.topic
        sys_flag = 0
        if header.unit_mode:
            retry = is_retry_topic(name)
            sys_flag = topic_sys_flag(unit=not retry, unit_sub=retry)
        topic = self._topics.create_by_default(
            name, header.default_topic, header.default_topic_queue_nums, sys_flag
        )
        if topic is None and is_retry_topic(name):
            topic = self._topics.create_for_group(name, 1, PERM_READ_WRITE, False, sys_flag)
        if topic is None:
            raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, topic_not_exist(name))
        return topic


def describe(topic: TopicConfig) -> str:
    """A topic's settings in the official wording."""
    attributes = ", ".join(f"{name}={value}" for name, value in (topic.attributes or {}).items())
    return (
        f"TopicConfig [topicName={topic.topic_name}, readQueueNums={topic.read_queue_nums}, "
        f"writeQueueNums={topic.write_queue_nums}, perm={perm_text(topic.perm)}, "
        f"topicFilterType={topic.topic_filter_type}, topicSysFlag={topic.topic_sys_flag}, "
        f"order={'true' if topic.order else 'false'}, attributes={{{attributes}}}]"
    )
