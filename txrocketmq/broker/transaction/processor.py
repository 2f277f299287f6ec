"""What does a producer's outcome do: END_TRANSACTION? And an operator who wants a lost transaction asked for again?

Stands for ``EndTransactionProcessor`` and ``AdminBrokerProcessor.resumeCheckHalfMessage``. A commit puts the message to its topic, then notes
that the half message is done; a rollback only notes. Producers send outcomes one-way, so answers are for those who ask for one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.broker.send.outcome import put_refused
from txrocketmq.broker.transaction.open import OpenTransactions
from txrocketmq.broker.transaction.outcomes import Outcomes
from txrocketmq.broker.transaction.records import committed_record, half_again, real_place
from txrocketmq.broker.transaction.verdict import is_too_late
from txrocketmq.codec.headers import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig
from txrocketmq.errors import RecordError, ResponseError
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model import properties as props
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.flags import TRANSACTION_COMMIT_TYPE, TRANSACTION_NOT_TYPE
from txrocketmq.model.message import MessageExt, MessageRecord
from txrocketmq.model.message_id import parse_offset_message_id
from txrocketmq.model.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from txrocketmq.remoting.dispatch import Reply, Request
from txrocketmq.store.results import PutMessageResult

if TYPE_CHECKING:
    from txrocketmq.broker.escape.bridge import EscapeBridge
    from txrocketmq.broker.intake import Intake
    from txrocketmq.broker.stats import BrokerStats

_SLAVE = "SLAVE"

EndTransaction = Request[EndTransactionRequestHeader]
Answer = Reply | Deferred[Reply] | None


class TransactionProcessor:
    """Ends transactions."""

    _log = Logger()

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        store: IMessageStore,
        intake: Intake,
        bridge: EscapeBridge,
        outcomes: Outcomes,
        open_transactions: OpenTransactions,
        stats: BrokerStats,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._store = store
        self._intake = intake
        self._bridge = bridge
        self._outcomes = outcomes
        self._open = open_transactions
        self._stats = stats
        self._now_ms = now_ms

    def end_transaction(self, request: EndTransaction) -> Answer:
        """END_TRANSACTION: commit or roll back; a producer that does not know yet is not answered, as officially.

        :raises ResponseError: the request does not fit the half message.
        """
        header = request.header
        kind = header.commit_or_rollback
        if self._store_config.broker_role == _SLAVE:
            raise ResponseError(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                "Message store is slave mode, so end transaction is forbidden.",
            )
        if kind == TRANSACTION_NOT_TYPE:
            return None
        half = self._store.look_message(header.commit_log_offset)
        if half is None:
            self._refuse(
                ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed", request
            )
        if not header.from_transaction_check and is_too_late(half, self._now_ms(), self._config):
            self._refuse(
                ResponseCode.ILLEGAL_OPERATION,
                "the outcome comes after the time that the message asked to be left alone; the producer will be asked for it",
                request,
            )
        place = self._check(half, request)
        if self._outcomes.is_committed(half):
            # Asked twice, or asked and told: one word is enough. This copy is done with, too.
            self._outcomes.add(half.queue_id, half.queue_offset)
            return Reply()
        if kind == TRANSACTION_COMMIT_TYPE:
            return self._commit(half, place)
        self._done(half, place[0], self._open.rolled_back)
        return Reply()

    def _check(self, half: MessageExt, request: EndTransaction) -> tuple[str, int]:
        """Where the message belongs, after the check that the request means it."""
        header = request.header
        if half.properties.get(props.PRODUCER_GROUP) != header.producer_group:
            self._refuse(ResponseCode.SYSTEM_ERROR, "The producer group wrong", request)
        if half.queue_offset != header.tran_state_table_offset:
            self._refuse(
                ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong", request
            )
        place = real_place(half)
        if half.topic != TRANS_HALF_TOPIC or place is None:
            self._refuse(
                ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed", request
            )
        return place

    def _refuse(self, code: ResponseCode, remark: str, request: EndTransaction) -> NoReturn:
        # Nobody hears the answer to a one-way request.
        self._log.warn(
            "outcome {kind} from {client} for message {key} is refused: {remark}",
            kind=request.header.commit_or_rollback,
            client=request.connection.remote_text,
            key=request.header.msg_id,
            remark=remark,
        )
        raise ResponseError(code, remark)

    def _commit(self, half: MessageExt, place: tuple[str, int]) -> Answer:
        record = committed_record(half, *place)
        if self._bridge.has_moved(record):
            placed, outcome = record, self._bridge.put(record)
        else:
            placed, outcome = self._intake.put(record)
        if isinstance(outcome, Deferred):
            return outcome.addCallback(self._committed, half, place[0], placed)
        return self._committed(outcome, half, place[0], placed)

    def _committed(
        self, result: PutMessageResult, half: MessageExt, topic: str, placed: MessageRecord
    ) -> Reply:
        if not result.is_ok:
            code, remark = put_refused(result.status, self._store_config, self._store.write_refusal)
            self._log.warn(
                "committed message {key} for {topic} is not taken, its producer will be asked again: {remark}",
                key=half.uniq_key,
                topic=topic,
                remark=remark,
            )
            return Reply(code, remark=remark)
        self._stats.of_topic(placed.topic).count(result.wrote_bytes)
        self._outcomes.note_commit(half)
        self._done(half, topic, self._open.committed)
        return Reply()

    def _done(self, half: MessageExt, topic: str, ended: dict[str, int]) -> None:
        self._outcomes.add(half.queue_id, half.queue_offset)
        self._open.add(topic, -1)
        ended[topic] = ended.get(topic, 0) + 1

    def resume_check(self, request: Request[ResumeCheckHalfMessageRequestHeader]) -> Reply:
        """RESUME_CHECK_HALF_MESSAGE: put a message that was given up back among the half messages, to be asked for anew."""
        try:
            _, _, offset = parse_offset_message_id(request.header.msg_id or "")
        except RecordError as error:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        message = self._store.look_message(offset)
        place = None if message is None else real_place(message)
        if message is None or place is None:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"there is no half message with the id {request.header.msg_id}",
            )
        record = half_again(message, **{props.TRANSACTION_CHECK_TIMES: "0"})
        record.queue_id = 0
        outcome = self._store.put_message(record)
        if isinstance(outcome, Deferred) or not outcome.is_ok:
            return Reply(
                ResponseCode.SYSTEM_ERROR.value,
                remark=f"Put message back to {TRANS_HALF_TOPIC} failed.",
            )
        if message.topic == TRANS_CHECK_MAX_TIME_TOPIC:
            self._open.add(place[0], 1)
        return Reply()
