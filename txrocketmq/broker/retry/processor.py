"""What becomes of a message that a consumer sends back (CONSUMER_SEND_MSG_BACK)?

Stands for ``AbstractSendMessageProcessor.consumerSendMsgBack``. The consumer names the message by its place in the log; a copy with one
more try is put to the group's retry topic through a delay level, or to its dead letters.
"""

from __future__ import annotations

from collections.abc import Callable
from random import randrange
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.broker.queue_stats import COMMERCIAL_OWNER
from txrocketmq.broker.retry.rules import RetryRules
from txrocketmq.broker.stored import copy_of
from txrocketmq.codec.headers import ConsumerSendMsgBackRequestHeader
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.errors import ResponseError
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model import properties as props
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.flags import is_writeable
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.message import MessageExt, MessageRecord
from txrocketmq.model.names import MASTER_ID, SCHEDULE_TOPIC
from txrocketmq.model.topic import TopicConfig
from txrocketmq.remoting.dispatch import Reply, Request
from txrocketmq.store.results import PutMessageResult, PutMessageStatus

if TYPE_CHECKING:
    from txrocketmq.broker.intake import Intake
    from txrocketmq.broker.stats import BrokerStats

MAX_GIVEN_BACK = 10_000
"""Messages remembered that clients with one id gave back."""

FIRST_DELAY_LEVEL = 3
"""The delay level of the first retry; each further one waits a level longer."""

SendBack = Request[ConsumerSendMsgBackRequestHeader]


class RetryProcessor:
    """Takes messages back.

    :param is_doubled: whether two clients of a group may have the same id. Both consume each message of their queues then, and give each failed
        one back; one copy is made of it, else each try would double their number.
    """

    _log = Logger()

    def __init__(
        self,
        config: BrokerConfig,
        store: IMessageStore,
        intake: Intake,
        rules: RetryRules,
        stats: BrokerStats,
        is_doubled: Callable[[str], bool] = lambda group: False,
    ) -> None:
        self._config = config
        self._store = store
        self._intake = intake
        self._rules = rules
        self._stats = stats
        self._is_doubled = is_doubled
        self._given_back: dict[tuple[str, int], None] = {}

    def send_back(self, request: SendBack) -> Reply | Deferred[Reply]:
        """CONSUMER_SEND_MSG_BACK: try a message again later, or give it up.

        :raises ResponseError: with the official code and remark.
        """
        header = request.header
        if self._config.broker_id != MASTER_ID:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"no master available along with {self._config.broker_ip1}",
            )
        group = self._rules.group(header.group)
        if not is_writeable(self._config.broker_permission):
            raise ResponseError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] sending message is forbidden",
            )
        if group.retry_queue_nums <= 0:
            # The group wants no retries: the message counts as consumed.
            return Reply()
        topic = self._rules.retry_topic(group, header.unit_mode)
        if not is_writeable(topic.perm):
            raise ResponseError(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic.topic_name}] sending message is forbidden",
            )
        if self._was_given_back(header.group, header.offset):
            return Reply()
        message = self._store.look_message(header.offset)
        if message is None:
            self._given_back.pop((header.group, header.offset), None)
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}"
            )
        record, is_dead = self._tried_again(request, group, topic, message)
        placed, outcome = self._intake.put(record)
        if isinstance(outcome, Deferred):
            later = outcome.addCallback(self._answer, request, message, placed, is_dead)
            return self._rules.kept(later)
        return self._rules.kept(self._answer(outcome, request, message, placed, is_dead))

    def _was_given_back(self, group: str, offset: int) -> bool:
        """Whether a copy of the message is there from another client with the same id; remembers it else."""
        if not self._is_doubled(group):
            return False
        if (group, offset) in self._given_back:
            return True
        self._given_back[group, offset] = None
        if len(self._given_back) > MAX_GIVEN_BACK:
            del self._given_back[next(iter(self._given_back))]
        return False

    def _tried_again(
        self,
        request: SendBack,
        group: SubscriptionGroupConfig,
        retry_topic: TopicConfig,
        message: MessageExt,
    ) -> tuple[MessageRecord, bool]:
        """The copy for the retry topic, or for the dead letters (True)."""
        header = request.header
        found = dict(message.properties)
        found.setdefault(props.RETRY_TOPIC, message.topic)
        found[props.WAIT_STORE_MSG_OK] = "false"
        limit = self._rules.limit(group, header.max_reconsume_times, request.version)
        is_dead = message.reconsume_times >= limit or header.delay_level < 0
        if is_dead:
            topic = self._rules.dead_letter_topic(header.group).topic_name or ""
            queue_id = level = 0
        else:
            topic = retry_topic.topic_name or ""
            # The topic may be older than the group's number: nobody reads queues beyond its own.
            queues = min(group.retry_queue_nums, retry_topic.read_queue_nums)
            queue_id = randrange(max(1, queues))
            level = header.delay_level or FIRST_DELAY_LEVEL + message.reconsume_times
        found[props.DELAY_TIME_LEVEL] = str(level)
        if not found.get(props.ORIGIN_MESSAGE_ID, "").strip():
            found[props.ORIGIN_MESSAGE_ID] = message.msg_id
        record = copy_of(
            message, topic, queue_id, found, reconsume_times=message.reconsume_times + 1
        )
        return record, is_dead

    def _answer(
        self,
        result: PutMessageResult,
        request: SendBack,
        message: MessageExt,
        placed: MessageRecord,
        is_dead: bool,
    ) -> Reply:
        header = request.header
        if result.status is not PutMessageStatus.PUT_OK:
            self._given_back.pop((header.group, header.offset), None)
            return Reply(ResponseCode.SYSTEM_ERROR.value, remark=result.status.name)
        back_topic = message.properties.get(props.RETRY_TOPIC, message.topic)
        if placed.topic == SCHEDULE_TOPIC:
            self._stats.of_topic(placed.topic).count(result.wrote_bytes)
            self._stats.of_queue(placed.topic, placed.queue_id).count(result.wrote_bytes)
        self._stats.of_send_back(back_topic, header.group).count(result.wrote_bytes)
        if is_dead:
            self._stats.of_dead_letter(back_topic, header.group).count(result.wrote_bytes)
            self._stats.by_queue.given_up(
                request.ext_fields.get(COMMERCIAL_OWNER), header.origin_topic, header.group
            )
            self._log.info(
                "message {key} of {topic} given up by group {group} after {times} tries, now in {dead}",
                key=message.uniq_key or message.msg_id,
                topic=back_topic,
                group=header.group,
                times=message.reconsume_times + 1,
                dead=placed.topic,
            )
        return Reply()
