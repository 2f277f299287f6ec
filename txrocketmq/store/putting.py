"""How does a message get into the store: who is asked, what is answered, and when do consumers see it?

Stands for the official ``CommitLog.asyncPutMessage`` and ``asyncPutMessages`` with the queue offsets of ``QueueOffsetOperator``. Runs in the
reactor thread and never blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.codec.record import split_batch
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import RecordError
from txrocketmq.interfaces import IReplicas
from txrocketmq.model import properties as props
from txrocketmq.model.attributes import BATCH_CQ, QUEUE_TYPE
from txrocketmq.model.flags import INNER_BATCH_FLAG, transaction_type
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.names import LMQ_QUEUE_ID, RETRY_GROUP_TOPIC_PREFIX
from txrocketmq.model.properties import parse_properties, with_property, without_property
from txrocketmq.store.batchqueue import MAX_BATCH_MESSAGES
from txrocketmq.store.catchup import QueueRebuild
from txrocketmq.store.commitlog import CommitLog
from txrocketmq.store.flush import LogFlusher
from txrocketmq.store.lightqueues import DISPATCH_NAME
from txrocketmq.store.queuetable import QueueTable
from txrocketmq.store.refusals import WriteRefusals
from txrocketmq.store.reput import NOT_IN_QUEUE, Dispatch, Extras, Reput
from txrocketmq.store.results import PutMessageResult, PutMessageStatus
from txrocketmq.store.settling import settle

_MAX_TOPIC_BYTES = 127
_MAX_RETRY_TOPIC_BYTES = 255
_PUT_OK = PutMessageStatus.PUT_OK
#: Properties that the store writes; a client's are dropped.
_OWN = (props.CRC32, props.INNER_MULTI_QUEUE_OFFSET)
_OWN_NAMES = tuple(name.encode() for name in _OWN)
_SYNC_FLUSH = "SYNC_FLUSH"
_SLAVE = "SLAVE"

TopicAttributes = Callable[[str], Mapping[str, str] | None]

PutOutcome = PutMessageResult | Deferred[PutMessageResult]


class MessagePutter:
    """Takes messages.

    :ivar is_open: False before the store is loaded and from its stop on.
    :ivar refusals: reasons for which no messages are taken.
    :ivar replicas: told of what is appended and asked for acknowledgements; None while nobody replicates.
    :ivar rebuild: queues whose next offset is not known yet; None when all are known.
    :ivar topic_attributes: the attributes of a topic by its name; None for a topic that nobody knows.
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
        self.replicas: IReplicas | None = None
        self.is_open = False
        self.topic_attributes: TopicAttributes = _unknown
        self.rebuild: QueueRebuild | None = None

    def put_message(self, record: MessageRecord) -> PutOutcome:
        """See `IMessageAppender`."""
        topic = record.topic
        sys_flag = record.sys_flag
        table = self._queue_table
        if self.refusals.reasons or not self.is_open or self._config.broker_role == _SLAVE:
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        if self.rebuild is not None and not self.rebuild.knows(record.topic, record.queue_id):
            return PutMessageResult(PutMessageStatus.QUEUE_RECOVERING)
        if (
            self.replicas is not None
            and record.wait_store_msg_ok
            and not self.replicas.has_enough()
        ):
            return PutMessageResult(PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)
        if len(topic) > 42 and not _topic_fits(topic):
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        if sys_flag & INNER_BATCH_FLAG:
            return self._put_inner_batch(record)
        light: list[str] | None = None
        if self._config.enable_lmq and DISPATCH_NAME in record.properties:
            wanted = self._with_light_offsets(record)
            if isinstance(wanted, PutMessageResult):
                return wanted
            record, light = wanted
        queue = (
            table.queues.get((topic, record.queue_id))
            if self.rebuild is None
            else table.appending(topic, record.queue_id)
        )
        if queue is None:
            result = self._commit_log.append(record, 0)
            if result.status is not _PUT_OK:
                return result
            queue = table.create(topic, record.queue_id, batch=self._has_batch_queues(topic))
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
            self._extras(record, light) if light or self._reput.bit_maps is not None else None,
        )
        if (
            self._config.flush_disk_type == _SYNC_FLUSH
            or self._reput.waiting
            or self.replicas is not None
        ):
            return self._synced(result, (dispatch,), record.wait_store_msg_ok)
        self._reput.dispatch(*dispatch)
        return result

    def _extras(self, record: MessageRecord, light: list[str] | None) -> Extras:
        """What has to be derived of an appended message besides its unit and its keys."""
        reput = self._reput
        return Extras(
            light=reput.light.count(light) if light else (),
            properties=None if reput.bit_maps is None else parse_properties(record.properties),
        )

    def _with_light_offsets(
        self, record: MessageRecord
    ) -> tuple[MessageRecord, list[str]] | PutMessageResult:
        """The message with its places in light queues written down, and the names of these; or why it is refused."""
        light = self._reput.light
        names = light.wanted(record)
        if isinstance(names, PutMessageStatus):
            return PutMessageResult(names)
        rebuild = self.rebuild
        if rebuild is not None and not all(rebuild.knows(name, LMQ_QUEUE_ID) for name in names):
            return PutMessageResult(PutMessageStatus.QUEUE_RECOVERING)
        if not names:
            return record, names
        text = light.offsets_text(record, names)
        return msgspec.structs.replace(record, properties=text), names

    def put_batch(self, record: MessageRecord) -> PutOutcome:
        """See `IMessageAppender`."""
        if self.refusals.reasons or not self.is_open or self._config.broker_role == _SLAVE:
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        if self.rebuild is not None and not self.rebuild.knows(record.topic, record.queue_id):
            return PutMessageResult(PutMessageStatus.QUEUE_RECOVERING)
        if (
            self.replicas is not None
            and record.wait_store_msg_ok
            and not self.replicas.has_enough()
        ):
            return PutMessageResult(PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)
        topic = record.topic
        queue = self._queue_table.appending(topic, record.queue_id)
        if not _topic_fits(topic) or transaction_type(record.sys_flag):
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        try:
            items = split_batch(record.body)
        except RecordError as error:
            self.log.info("a batch for {topic} is refused: {error}", topic=topic, error=error)
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        texts = b"".join([text for _, _, text in items])
        if any(name in texts for name in _OWN_NAMES):
            items = [(flag, body, _without_own(text)) for flag, body, text in items]
        first = queue.next_index if queue is not None else 0
        result = self._commit_log.append_batch(record, items, first)
        if result.status is not _PUT_OK:
            return result
        if queue is None:
            queue = self._queue_table.create(
                topic, record.queue_id, batch=self._has_batch_queues(topic)
            )
        queue.next_index += len(items)
        dispatches = self._reput.batch_dispatches(queue, record, items, result)
        if (
            self._config.flush_disk_type == _SYNC_FLUSH
            or self._reput.waiting
            or self.replicas is not None
        ):
            return self._synced(result, dispatches, record.wait_store_msg_ok)
        self._reput.dispatch_batch(dispatches)
        return result

    def _put_inner_batch(self, record: MessageRecord) -> PutOutcome:
        """A batch that is one record, for a batch queue: its logical offsets are those of its messages."""
        topic, queue_id = record.topic, record.queue_id
        count = props.count_of(parse_properties(record.properties).get(props.INNER_NUM)) or 0
        attributes = self.topic_attributes(topic)
        queue = self._queue_table.appending(topic, queue_id)
        if (
            transaction_type(record.sys_flag)
            or not 0 < count <= MAX_BATCH_MESSAGES
            or (attributes is not None and attributes.get(QUEUE_TYPE) != BATCH_CQ)
            or (queue is not None and not queue.is_batch)
        ):
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        first = 0 if queue is None else queue.next_index
        text = with_property(record.properties, props.INNER_BASE, str(first))
        result = self._commit_log.append(msgspec.structs.replace(record, properties=text), first)
        if result.status is not _PUT_OK:
            return result
        if queue is None:
            queue = self._queue_table.create(topic, queue_id, batch=True)
        result.msg_num = count
        queue.next_index += result.msg_num
        dispatch = (
            queue,
            first,
            result.physical_offset,
            result.wrote_bytes,
            record.tags_code,
            result.store_timestamp_ms,
            record.sys_flag,
            record.uniq_key,
            record.keys,
            self._reput.tag_hash(topic, record.tags_code, record.properties),
            Extras(messages=result.msg_num),
        )
        if (
            self._config.flush_disk_type == _SYNC_FLUSH
            or self._reput.waiting
            or self.replicas is not None
        ):
            return self._synced(result, (dispatch,), record.wait_store_msg_ok)
        self._reput.dispatch(*dispatch)
        return result

    def _has_batch_queues(self, topic: str) -> bool:
        """Whether the topic's messages come in batches only."""
        attributes = self.topic_attributes(topic)
        return attributes is not None and attributes.get(QUEUE_TYPE) == BATCH_CQ

    def _synced(
        self, result: PutMessageResult, dispatches: Iterable[Dispatch], wait: bool
    ) -> PutOutcome:
        """SYNC_FLUSH: consumers see the message, and the sender is answered, once it is on the device. Replicas: the sender is
        answered once they have it; consumers need not wait, as officially."""
        config = self._config
        is_sync = config.flush_disk_type == _SYNC_FLUSH
        must_wait = is_sync or self._reput.waiting or self._reput.confirm_offset is not None
        for dispatch in dispatches:
            if config.read_un_committed or not must_wait:
                self._reput.dispatch(*dispatch)
            else:
                self._reput.dispatch_later(dispatch)
        end = result.physical_offset + result.wrote_bytes
        flushed = replicated = None
        if is_sync and wait:
            flushed = self._flusher.when_flushed(end, config.sync_flush_timeout)
        elif is_sync or (self._reput.waiting and self._reput.confirm_offset is None):
            self._flusher.wake()
        if self.replicas is not None:
            self.replicas.appended()
            if wait:
                replicated = self.replicas.when_replicated(end)
        return settle(result, flushed, replicated)


def _topic_fits(topic: str) -> bool:
    """Whether the record's format can name the topic; retry topics may be longer (version 2 records)."""
    limit = _MAX_TOPIC_BYTES
    if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        limit = _MAX_RETRY_TOPIC_BYTES
    return len(topic.encode("utf-8", "replace")) <= limit


def _without_own(text: bytes) -> bytes:
    for name in _OWN:
        text = without_property(text, name)
    return text


def _unknown(topic: str) -> None:
    """The attributes of topics as long as nobody knows them."""
