"""Where does a message go that a group could not use: to be tried again, or to the dead letters?

Stands for the topic half of ``AbstractSendMessageProcessor.consumerSendMsgBack`` and ``SendMessageProcessor.handleRetryAndDLQ``. A message
that is sent back has been consumed once more than it says; one that is sent to the retry topic has counted that already. So the first
is dead at the limit, the second beyond it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.broker.remarks import group_not_exist
from txrocketmq.errors import ResponseError
from txrocketmq.model.codes import VERSION_NAMES, ResponseCode
from txrocketmq.model.flags import PERM_READ_WRITE, topic_sys_flag
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.names import (
    dlq_topic,
    group_of_retry_topic,
    retry_topic,
)
from txrocketmq.model.topic import TopicConfig
from txrocketmq.remoting.dispatch import Reply

if TYPE_CHECKING:
    from txrocketmq.broker.groups import SubscriptionGroups
    from txrocketmq.broker.locks import QueueLocks
    from txrocketmq.broker.topics import Topics

Answer = Reply | Deferred[Reply]

DEAD_LETTER_QUEUES = 1

#: Older clients do not say how often a message may be tried.
SAYS_MAX_RECONSUME_TIMES = VERSION_NAMES.index("V3_4_9")


class RetryRules:
    """The retry and dead letter topics of groups, and the limits that lead there."""

    _log = Logger()

    def __init__(self, topics: Topics, groups: SubscriptionGroups, locks: QueueLocks) -> None:
        self._topics = topics
        self._groups = groups
        self._locks = locks

    def group(self, name: str) -> SubscriptionGroupConfig:
        """A group's settings; the group is created where the broker may.

        :raises ResponseError: there is none.
        """
        group = self._groups.find(name)
        if group is None:
            raise ResponseError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, group_not_exist(name))
        return group

    def kept(self, answer: Answer) -> Answer:
        """An answer that waits until the topics that were made for it are on disk."""
        return self._topics.file.kept(answer)

    def retry_topic(self, group: SubscriptionGroupConfig, is_unit: bool) -> TopicConfig:
        """The topic of a group's messages that are tried again; created when it is not there.

        :param is_unit: the consumer belongs to a unit.
        """
        return self._topics.create_for_group(
            retry_topic(group.group_name or ""),
            group.retry_queue_nums,
            PERM_READ_WRITE,
            False,
            topic_sys_flag(unit=False, unit_sub=is_unit),
        )

    def dead_letter_topic(self, group_name: str) -> TopicConfig:
        """The topic of a group's messages that were given up; created when it is not there."""
        return self._topics.create_for_group(
            dlq_topic(group_name), DEAD_LETTER_QUEUES, PERM_READ_WRITE, False, 0
        )

    @staticmethod
    def limit(group: SubscriptionGroupConfig, asked: int | None, version: int) -> int:
        """How often a group's messages are delivered again.

        :param asked: what the consumer says, None when it says nothing.
        :param version: the consumer's release.
        """
        if asked is not None and version >= SAYS_MAX_RECONSUME_TIMES:
            return asked
        return group.retry_max_times

    def is_dead(
        self, topic: str, reconsume_times: int, asked_limit: int | None, version: int
    ) -> bool:
        """Whether a message that is sent to a retry topic goes to the dead letters instead.

        A group that consumes in order sends there only what it gives up.

        :raises ResponseError: the topic's group does not exist.
        """
        name = group_of_retry_topic(topic)
        limit = self.limit(self.group(name), asked_limit, version)
        if self._locks.has_live_lock(name):
            self._log.info(
                "group {group} consumes in order: its message goes to the dead letters after {times} tries",
                group=name,
                times=reconsume_times,
            )
            return True
        return reconsume_times > limit
