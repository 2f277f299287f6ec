"""May this group pop this topic here? The checks that all requests of POP begin with.

Stands for the first halves of ``PopMessageProcessor``, ``PeekMessageProcessor``, ``NotificationProcessor`` and ``PollingInfoProcessor``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from txrocketmq.broker.groups import SubscriptionGroups
from txrocketmq.broker.remarks import FAQ, topic_not_exist_for_pull
from txrocketmq.broker.topics import Topics
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.errors import ResponseError
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.flags import PERM_READ
from txrocketmq.model.topic import TopicConfig
from txrocketmq.remoting.dispatch import Request


class Asks(Protocol):
    """What the headers of all these requests say."""

    @property
    def topic(self) -> str: ...

    @property
    def consumer_group(self) -> str: ...

    @property
    def queue_id(self) -> int: ...


class PopChecks:
    """Refuses what may not be popped.

    :param may_pop: whether pops can be written down at all.
    """

    def __init__(
        self,
        config: BrokerConfig,
        may_pop: Callable[[], bool],
        store: IMessageStore,
        topics: Topics,
        groups: SubscriptionGroups,
    ) -> None:
        self._config = config
        self._may_pop = may_pop
        self._store = store
        self._topics = topics
        self._groups = groups

    def readable(
        self,
        request: Request[Any],
        doing: str,
        before_topic: Callable[[], object] | None = None,
    ) -> TopicConfig:
        """The topic, if the group may read it here.

        :param doing: what is forbidden where the broker may not be read, in the official words.
        :param before_topic: more checks, that come before those of the topic.
        :raises ResponseError: it may not.
        """
        header: Asks = request.header
        if not self._config.broker_permission & PERM_READ:
            self.refuse(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] {doing} is forbidden",
            )
        if before_topic is not None:
            before_topic()
        topic = self.known_topic(header.topic)
        if not topic.perm & PERM_READ:
            self.refuse(
                ResponseCode.NO_PERMISSION,
                f"the topic[{header.topic}] peeking message is forbidden",
            )
        if header.queue_id >= topic.read_queue_nums:
            self._refuse_queue(ResponseCode.INVALID_PARAMETER, request, topic)
        group = self._groups.find(header.consumer_group)
        if group is None:
            self.refuse(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist, {FAQ}",
            )
        if not group.consume_enable:
            self.refuse(
                ResponseCode.NO_PERMISSION,
                f"subscription group no permission, {header.consumer_group}",
            )
        return topic

    def not_slave(self) -> None:
        """Pops are written down, which only a master may do, or a slave that acts for it.

        :raises ResponseError: this is a slave.
        """
        if not self._may_pop():
            self.refuse(
                ResponseCode.SYSTEM_ERROR,
                f"the broker[{self._config.broker_ip1}] is a slave, messages are popped from masters",
            )

    def known_topic(self, name: str) -> TopicConfig:
        """A topic's settings.

        :raises ResponseError: there is no such topic.
        """
        topic = self._topics.get(name)
        if topic is None:
            self.refuse(ResponseCode.TOPIC_NOT_EXIST, topic_not_exist_for_pull(name))
        return topic

    def known_queue(self, request: Request[Any]) -> None:
        """What is acknowledged must be of a queue that is there.

        :raises ResponseError: it is not.
        """
        header: Asks = request.header
        topic = self.known_topic(header.topic)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            self._refuse_queue(ResponseCode.MESSAGE_ILLEGAL, request, topic)

    def _refuse_queue(
        self, code: ResponseCode, request: Request[Any], topic: TopicConfig
    ) -> NoReturn:
        header: Asks = request.header
        self.refuse(
            code,
            f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_nums}] "
            f"consumer:[/{request.connection.remote_text}]",
        )

    @staticmethod
    def refuse(code: ResponseCode, remark: str) -> NoReturn:
        """Answer so.

        :raises ResponseError: always.
        """
        raise ResponseError(code, remark)
