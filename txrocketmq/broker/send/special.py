"""What becomes of a send that asks for more than to be stored: a delay, a transaction, another try of a consumer?

Stands for the rest of ``SendMessageProcessor.sendMessage``: ``handleRetryAndDLQ``, prepared messages, and what official brokers leave to
their put hooks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from twisted.internet.defer import Deferred

from txrocketmq.broker.delay.levels import delay_level
from txrocketmq.broker.intake import Intake, PutOutcome
from txrocketmq.broker.retry.rules import RetryRules
from txrocketmq.broker.send.properties import is_prepared
from txrocketmq.broker.timer.times import TIMER_PROPERTIES
from txrocketmq.broker.transaction.records import MOST_PROPERTIES_BYTES, half_record
from txrocketmq.codec.headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.errors import ResponseError
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model import properties as props
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.names import SCHEDULE_TOPIC, group_of_retry_topic, is_retry_topic
from txrocketmq.model.properties import format_properties, parse_properties
from txrocketmq.remoting.dispatch import Request
from txrocketmq.store.results import PutMessageResult, PutMessageStatus

if TYPE_CHECKING:
    from txrocketmq.broker.stats import BrokerStats
    from txrocketmq.broker.transaction.open import OpenTransactions

AnySendHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2

#: What official brokers write into a dead letter that came as a send.
_NO_DELAY = "-1"


class SpecialSends:
    """Puts the messages of special sends."""

    def __init__(
        self,
        config: BrokerConfig,
        store: IMessageStore,
        intake: Intake,
        rules: RetryRules,
        open_transactions: OpenTransactions,
        stats: BrokerStats,
    ) -> None:
        self._config = config
        self._store = store
        self._intake = intake
        self._rules = rules
        self._open = open_transactions
        self._stats = stats

    def put(
        self, request: Request[AnySendHeader], record: MessageRecord
    ) -> tuple[MessageRecord, PutOutcome]:
        """Put a message where it belongs: the message as it was stored, and what the store says.

        :raises ResponseError: it is refused.
        """
        header = request.header
        is_dead = is_retry_topic(header.topic) and self._rules.is_dead(
            header.topic, header.reconsume_times or 0, header.max_reconsume_times, request.version
        )
        if is_dead:
            record = self._dead_letter(header.topic, record)
        found = parse_properties(record.properties)
        level = delay_level(found)
        if level is None:
            raise ResponseError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the delay level {found[props.DELAY_TIME_LEVEL]!r} is no number",
            )
        # What older consumers send back still has the property of the transaction that brought it.
        if is_prepared(found) and not (is_dead or (record.reconsume_times > 0 and level > 0)):
            return self._prepare(record, found, level)
        placed, outcome = self._intake.put(record)
        if placed.topic == SCHEDULE_TOPIC:
            counter = self._stats.of_queue(placed.topic, placed.queue_id)
            outcome = _once_stored(outcome, lambda put: counter.count(put.wrote_bytes))
        return placed, outcome

    def _dead_letter(self, topic: str, record: MessageRecord) -> MessageRecord:
        group = group_of_retry_topic(topic)
        dead = self._rules.dead_letter_topic(group)
        found = parse_properties(record.properties)
        found[props.DELAY_TIME_LEVEL] = _NO_DELAY
        counter = self._stats.of_dead_letter(found.get(props.RETRY_TOPIC, topic), group)
        counter.count(len(record.body))
        return msgspec.structs.replace(
            record,
            topic=dead.topic_name or "",
            queue_id=0,
            properties=format_properties(found),
        )

    def _prepare(
        self, record: MessageRecord, found: dict[str, str], level: int
    ) -> tuple[MessageRecord, PutOutcome]:
        if self._config.reject_transaction_message:
            raise ResponseError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] sending transaction message is forbidden",
            )
        if level > 0 or any(name in found for name in TIMER_PROPERTIES):
            # Official brokers put such a message where nobody finds it again.
            raise ResponseError(
                ResponseCode.MESSAGE_ILLEGAL,
                "a transactional message cannot be delayed: it has "
                f"{', '.join(n for n in (props.DELAY_TIME_LEVEL, *TIMER_PROPERTIES) if n in found)}",
            )
        half = half_record(record)
        if len(half.properties) > MOST_PROPERTIES_BYTES:
            # It could be put once, but not once more with what a question notes in it.
            return half, PutMessageResult(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        outcome = self._store.put_message(half)
        return half, _once_stored(outcome, lambda put: self._open.add(record.topic, 1))


def _once_stored(outcome: PutOutcome, note: Callable[[PutMessageResult], object]) -> PutOutcome:
    """The same outcome; noted when the message is in the log."""

    def noted(result: PutMessageResult) -> PutMessageResult:
        if result.is_ok:
            note(result)
        return result

    return outcome.addCallback(noted) if isinstance(outcome, Deferred) else noted(outcome)
