"""How does a message get into the store: who is asked, what is answered, and when do consumers see it?

Stands for the official ``CommitLog.asyncPutMessage`` and ``asyncPutMessages`` with the queue offsets of ``QueueOffsetOperator``. Runs in the
reactor thread and never blocks.
"""

from __future__ import annotations

from collections.abc import Iterable

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.codec.record import split_batch
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import RecordError
from txrocketmq.model.flags import INNER_BATCH_FLAG, transaction_type
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.names import RETRY_GROUP_TOPIC_PREFIX
from txrocketmq.store.commitlog import CommitLog
from txrocketmq.store.flush import LogFlusher
from txrocketmq.store.queuetable import QueueTable
from txrocketmq.store.refusals import WriteRefusals
from txrocketmq.store.reput import NOT_IN_QUEUE, Dispatch, Reput
from txrocketmq.store.results import PutMessageResult, PutMessageStatus

_MAX_TOPIC_BYTES = 127
_MAX_RETRY_TOPIC_BYTES = 255
_PUT_OK = PutMessageStatus.PUT_OK
_SYNC_FLUSH = "SYNC_FLUSH"
_SLAVE = "SLAVE"

PutOutcome = PutMessageResult | Deferred[PutMessageResult]


class MessagePutter:
    """Takes messages.

    :ivar is_open: False before the store is loaded and from its stop on.
    :ivar refusals: reasons for which no messages are taken.
    """

    log = Logger()

    def __init__(
        self,
        config: MessageStoreConfig,
        commit_log: CommitLog,
        queue_table: QueueTable,
        reput: Reput,
        flusher: LogFlusher,
    ) -> None:
        self._config = config
        self._commit_log = commit_log
        self._queue_table = queue_table
        self._reput = reput
        self._flusher = flusher
        self.refusals = WriteRefusals()
        self.is_open = False

    def put_message(self, record: MessageRecord) -> PutOutcome:
        """See `IMessageAppender`."""
        topic = record.topic
        sys_flag = record.sys_flag
        table = self._queue_table
        if self.refusals.reasons or not self.is_open or self._config.broker_role == _SLAVE:
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        if (len(topic) > 42 and not _topic_fits(topic)) or sys_flag & INNER_BATCH_FLAG:
            # Batch queues cannot be written yet.
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        queue = table.queues.get((topic, record.queue_id))
        if queue is None:
            result = self._commit_log.append(record, 0)
            if result.status is not _PUT_OK:
                return result
            queue = table.create(topic, record.queue_id)
        elif queue.is_batch:
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        else:
            result = self._commit_log.append(record, queue.next_index)
            if result.status is not _PUT_OK:
                return result
        if not sys_flag & NOT_IN_QUEUE:
            queue.next_index += 1
        dispatch = (
            queue,
            result.queue_offset,
            result.physical_offset,
            result.wrote_bytes,
            self._reput.delivery_time(record, result.store_timestamp_ms)
            if queue.is_schedule
            else record.tags_code,
            result.store_timestamp_ms,
            sys_flag,
            record.uniq_key,
            record.keys,
            self._reput.tag_hash(topic, record.tags_code, record.properties),
        )
        if self._config.flush_disk_type == _SYNC_FLUSH or self._reput.waiting:
            return self._synced(result, (dispatch,), record.wait_store_msg_ok)
        self._reput.dispatch(*dispatch)
        return result

    def put_batch(self, record: MessageRecord) -> PutOutcome:
        """See `IMessageAppender`."""
        if self.refusals.reasons or not self.is_open or self._config.broker_role == _SLAVE:
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        topic = record.topic
        queue = self._queue_table.queues.get((topic, record.queue_id))
        if (
            not _topic_fits(topic)
            or transaction_type(record.sys_flag)
            or (queue is not None and queue.is_batch)
        ):
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        try:
            items = split_batch(record.body)
        except RecordError as error:
            self.log.info("a batch for {topic} is refused: {error}", topic=topic, error=error)
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        first = queue.next_index if queue is not None else 0
        result = self._commit_log.append_batch(record, items, first)
        if result.status is not _PUT_OK:
            return result
        if queue is None:
            queue = self._queue_table.create(topic, record.queue_id)
        queue.next_index += len(items)
        dispatches = self._reput.batch_dispatches(queue, record, items, result)
        if self._config.flush_disk_type == _SYNC_FLUSH or self._reput.waiting:
            return self._synced(result, dispatches, record.wait_store_msg_ok)
        self._reput.dispatch_batch(dispatches)
        return result

    def _synced(
        self, result: PutMessageResult, dispatches: Iterable[Dispatch], wait: bool
    ) -> PutOutcome:
        """SYNC_FLUSH: consumers see the message, and the sender is answered, once it is on the device."""
        config = self._config
        for dispatch in dispatches:
            if config.read_un_committed:
                self._reput.dispatch(*dispatch)
            else:
                self._reput.dispatch_later(dispatch)
        if config.flush_disk_type != _SYNC_FLUSH or not wait:
            self._flusher.wake()
            return result
        end = result.physical_offset + result.wrote_bytes
        flushed = self._flusher.when_flushed(end, config.sync_flush_timeout)
        return flushed.addCallback(
            lambda done: result if done else result.with_status(PutMessageStatus.FLUSH_DISK_TIMEOUT)
        )


def _topic_fits(topic: str) -> bool:
    """Whether the record's format can name the topic; retry topics may be longer (version 2 records)."""
    limit = _MAX_TOPIC_BYTES
    if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        limit = _MAX_RETRY_TOPIC_BYTES
    return len(topic.encode("utf-8", "replace")) <= limit
