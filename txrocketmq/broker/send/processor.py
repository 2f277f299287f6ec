"""How is a message accepted: SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE?

Stands for ``SendMessageProcessor``. The straight way (known topic, valid queue, nothing special in the properties) runs without a
Deferred; everything else leaves it for `txrocketmq.broker.send.admission` or is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from random import randrange
from typing import TYPE_CHECKING, cast

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txrocketmq.broker.delay.levels import delay_level
from txrocketmq.broker.send.admission import Admission
from txrocketmq.broker.send.outcome import REJECT_REQUEST, busy, put_refused
from txrocketmq.broker.send.properties import PropertyWriter
from txrocketmq.broker.send.special import SpecialSends
from txrocketmq.broker.timer.recall import recall_handle
from txrocketmq.broker.topics import is_of_a_kind
from txrocketmq.codec.headers import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from txrocketmq.codec.record import split_batch
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig
from txrocketmq.errors import RecordError, ResponseError
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model import properties as props
from txrocketmq.model.attributes import BATCH_CQ, QUEUE_TYPE
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.flags import (
    INNER_BATCH_FLAG,
    MULTI_TAGS_FLAG,
    NEED_UNWRAP_FLAG,
    PERM_WRITE,
)
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message import Host, MessageRecord
from txrocketmq.model.message_id import offset_message_id
from txrocketmq.model.names import (
    RETRY_GROUP_TOPIC_PREFIX,
    TIMER_TOPIC,
    TOPIC_MAX_LENGTH,
    is_retry_topic,
)
from txrocketmq.model.properties import MAX_PROPERTIES_BYTES, parse_properties, with_property
from txrocketmq.model.topic import TopicConfig
from txrocketmq.remoting.dispatch import Reply, Request
from txrocketmq.store.results import PutMessageResult, PutMessageStatus

if TYPE_CHECKING:
    from txrocketmq.broker.stats import BrokerStats
    from txrocketmq.broker.throughput import Throughput
    from txrocketmq.broker.topics import Topics

AnySendHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2
Answer = Reply | Deferred[Reply]

_PUT_OK = PutMessageStatus.PUT_OK
#: In the log, though not everything that was waited for came in time.
_STORED_CODES = {
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT.value,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT.value,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE.value,
}
_CONFIRMING_CODES = frozenset({ResponseCode.SUCCESS.value, *_STORED_CODES.values()})
_MULTI_TAG = "MULTI_TAG"


class SendProcessor:
    """Accepts messages for the store.

    :param store_host: the broker's advertised address, numeric; part of records and message ids.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        store: IMessageStore,
        topics: Topics,
        special: SpecialSends,
        store_host: Host,
        now_ms: Callable[[], int],
        stats: BrokerStats,
        throughput: Throughput,
    ) -> None:
        self._config = config
        self._stats = stats
        self._throughput = throughput
        self._now_ms = now_ms
        # When the newest message was stored: whoever came long before it has waited for its turn.
        self._newest_ms = 0
        # When the sends that wait for a flush or a replica arrived, oldest first.
        self._waiting: dict[int, int] = {}
        self._sequence = 0
        self._store_config = store_config
        self._store = store
        self._sendable = topics.sendable
        self._topics = topics
        self._topic_file = topics.file
        self._special = special
        self._store_host = store_host
        self._admission = Admission(config, topics, now_ms)
        # Host and port of all message ids; the physical offset's 16 hex digits come behind.
        self._id_prefix = offset_message_id(*store_host, 0)[:-16]
        self._region = ""
        self._trace_on = False
        self._trace_fields: dict[str, str] = {}
        self._writer = PropertyWriter("", "", "")
        self._take_over_trace_settings()

    @property
    def waiting_count(self) -> int:
        """Sends that wait for a flush or a replica."""
        return len(self._waiting)

    def longest_wait_ms(self) -> int:
        """How long the oldest of them has waited."""
        return self._now_ms() - next(iter(self._waiting.values())) if self._waiting else 0

    def send_message(self, request: Request[AnySendHeader]) -> Answer:
        """Store one message, or the batch that the body is."""
        try:
            answer = self._send(request)
        except ResponseError as refused:
            return self._refuse(refused.code, refused.remark)
        return self._kept(request, answer) if self._topic_file.is_saving else answer

    def send_batch(self, request: Request[AnySendHeader]) -> Answer:
        """Store a batch: the body is several messages for one queue."""
        try:
            answer = self._send_batch(request)
        except ResponseError as refused:
            return self._refuse(refused.code, refused.remark)
        return self._kept(request, answer) if self._topic_file.is_saving else answer

    def _kept(self, request: Request[AnySendHeader], answer: Answer) -> Answer:
        """An answer, as soon as the message's topic is on disk: what a crash forgets is lost to its consumers.

        Messages of other topics do not wait for the file, and refusals confirm nothing.
        """
        name = request.header.topic
        # A send to a retry topic may have made the topic of its group's dead letters.
        if not (self._topics.is_unsaved(name) or is_retry_topic(name)):
            return answer
        if isinstance(answer, Reply) and answer.code not in _CONFIRMING_CODES:
            return answer
        return self._topic_file.kept(answer)

    def _send(self, request: Request[AnySendHeader]) -> Answer:
        header = request.header
        if header.batch:
            return self._send_batch(request)
        config = self._config
        if config.region_id is not self._region or config.trace_on is not self._trace_on:
            self._take_over_trace_settings()
        if self._newest_ms - request.arrived_ms >= config.wait_time_mills_in_send_queue or (
            self._waiting
            and request.arrived_ms - next(iter(self._waiting.values()))
            >= self._store_config.os_page_cache_busy_time_out_mills
        ):
            self._refuse_when_busy(request)
        name = header.topic
        topic = self._sendable.get(name)
        is_retry = is_picky = False
        if (
            topic is None
            or config.start_accept_send_request_time_stamp
            or not (config.broker_permission & PERM_WRITE)
        ):
            topic = self._admission.admit(request)
            is_retry = is_retry_topic(name)
            is_picky = is_of_a_kind(topic)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = _random_queue(topic)
        elif queue_id >= topic.write_queue_nums and queue_id >= topic.read_queue_nums:
            raise self._admission.bad_queue(topic, request)
        prepared = self._writer.prepare(header.properties)
        text, found, uniq_key, is_special = prepared
        if is_picky:
            self._admission.refuse_by_kind(topic, found)
        body = request.body
        if len(body) > self._store_config.max_message_size or len(text) > MAX_PROPERTIES_BYTES:
            raise self._illegal(len(body), len(text))
        record = MessageRecord(
            topic=name,
            queue_id=queue_id,
            body=body,
            properties=text,
            flag=header.flag,
            sys_flag=_sys_flag(header, topic),
            tags_code=tags_code(found.get(props.TAGS)),
            born_timestamp=header.born_timestamp,
            born_host=request.connection.remote_address,
            store_host=self._store_host,
            reconsume_times=header.reconsume_times or 0,
            wait_store_msg_ok=found.get(props.WAIT_STORE_MSG_OK, "true") == "true",
            keys=found.get(props.KEYS),
            uniq_key=uniq_key,
        )
        if is_special or is_retry:
            record, result = self._special.put(request, record)
            name = record.topic
            if name == TIMER_TOPIC:
                return self._with_recall_handle(result, request, record, queue_id)
        else:
            result = self._store.put_message(record)
        if result.__class__ is PutMessageResult:
            return self._answer(result, request, name, queue_id, uniq_key)
        return self._answer_later(result, request, name, queue_id, uniq_key)

    def _with_recall_handle(
        self,
        result: object,
        request: Request[AnySendHeader],
        record: MessageRecord,
        queue_id: int,
    ) -> Answer:
        """The answer for a timed message: it says how to take the message back."""
        handle = recall_handle(record, self._config.broker_name, record.uniq_key)
        arguments = (request, record.topic, queue_id, record.uniq_key)
        if isinstance(result, PutMessageResult):
            return _with_handle(self._answer(result, *arguments), handle)
        return self._answer_later(result, *arguments).addCallback(_with_handle, handle)

    def _send_batch(self, request: Request[AnySendHeader]) -> Answer:
        header = request.header
        if header.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            raise ResponseError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"batch request does not support retry group {header.topic}",
            )
        self._refuse_when_busy(request)
        topic = self._admission.admit(request)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = _random_queue(topic)
        elif queue_id >= topic.write_queue_nums and queue_id >= topic.read_queue_nums:
            raise self._admission.bad_queue(topic, request)
        if len(header.topic) > TOPIC_MAX_LENGTH:
            raise ResponseError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"message topic length too long {len(header.topic)}",
            )
        found = parse_properties(header.properties or "")
        if delay_level(found) != 0:
            raise ResponseError(
                ResponseCode.MESSAGE_ILLEGAL, "the messages of a batch cannot be delayed"
            )
        if len(request.body) > self._store_config.max_message_size:
            raise self._illegal(len(request.body), len(header.properties or ""))
        # Each item of the body has properties of its own; those of the request are not stored.
        record = MessageRecord(
            topic=header.topic,
            queue_id=queue_id,
            body=request.body,
            flag=header.flag,
            sys_flag=_sys_flag(header, topic),
            born_timestamp=header.born_timestamp,
            born_host=request.connection.remote_address,
            store_host=self._store_host,
            reconsume_times=header.reconsume_times or 0,
            wait_store_msg_ok=found.get(props.WAIT_STORE_MSG_OK, "true") == "true",
        )
        uniq_key = found.get(props.UNIQ_KEY)
        if (topic.attributes or {}).get(QUEUE_TYPE) == BATCH_CQ:
            uniq_key = self._make_inner_batch(record, header.properties)
            result = self._store.put_message(record)
        else:
            result = self._store.put_batch(record)
        if result.__class__ is PutMessageResult:
            answer: Answer = self._answer(result, request, header.topic, queue_id, uniq_key)
        else:
            answer = self._answer_later(result, request, header.topic, queue_id, uniq_key)
        if not record.sys_flag & INNER_BATCH_FLAG:
            return answer
        # So the producer hears that its batch is one record.
        if isinstance(answer, Deferred):
            return answer.addCallback(_with_batch_id, uniq_key)
        return _with_batch_id(answer, uniq_key)

    def _make_inner_batch(self, record: MessageRecord, properties: str | None) -> str:
        """Let a batch be stored as one record, which consumers unpack; its unique id."""
        prepared = self._writer.prepare(properties)
        try:
            count = len(split_batch(record.body))
        except RecordError as error:
            raise ResponseError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        record.sys_flag |= INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
        record.properties = with_property(prepared.text, props.INNER_NUM, str(count))
        record.tags_code = tags_code(prepared.found.get(props.TAGS))
        record.keys = prepared.found.get(props.KEYS)
        record.uniq_key = prepared.uniq_key
        return prepared.uniq_key

    def _answer_later(
        self,
        result: object,
        request: Request[AnySendHeader],
        name: str,
        queue_id: int,
        uniq_key: str | None,
    ) -> Deferred[Reply]:
        waiting = cast("Deferred[PutMessageResult]", result)
        self._sequence += 1
        number = self._sequence
        self._waiting[number] = request.arrived_ms
        return waiting.addBoth(self._waited, number, request, name, queue_id, uniq_key)

    def _waited(
        self,
        outcome: PutMessageResult | Failure,
        number: int,
        request: Request[AnySendHeader],
        name: str,
        queue_id: int,
        uniq_key: str | None,
    ) -> Reply | Failure:
        del self._waiting[number]
        if isinstance(outcome, Failure):
            return outcome
        return self._answer(outcome, request, name, queue_id, uniq_key, self._now_ms)

    def _answer(
        self,
        result: PutMessageResult,
        request: Request[AnySendHeader],
        name: str,
        queue_id: int,
        uniq_key: str | None,
        now_ms: Callable[[], int] | None = None,
    ) -> Reply:
        """What the producer hears of a message; counts it.

        :param name: the topic in which the message is stored.
        :param now_ms: for a send that waited after its message was stored.
        """
        status = result.status
        code = 0
        if status is not _PUT_OK:
            stored = _STORED_CODES.get(status)
            if stored is None:
                self._throughput.failed_puts += 1
                return self._refuse(
                    *put_refused(status, self._store_config, self._store.write_refusal)
                )
            code = stored
        counter = self._stats.topics.get(name)
        if counter is None:
            counter = self._stats.of_topic(name)
        counter.messages += result.msg_num
        counter.calls += 1
        counter.size_bytes += result.wrote_bytes
        self._newest_ms = done_ms = result.store_timestamp_ms
        if now_ms is not None:
            done_ms = now_ms()
        took_ms = done_ms - request.arrived_ms
        if took_ms > 0:
            self._throughput.put_took(took_ms)
        else:
            took_ms = 0
            self._throughput.instant_puts += 1
        self._stats.by_queue.put_took(name, queue_id, took_ms)
        prefix = self._id_prefix
        if result.batch_offsets:
            message_id = ",".join([f"{prefix}{offset:016X}" for offset in result.batch_offsets])
        else:
            message_id = f"{prefix}{result.physical_offset:016X}"
        return Reply(
            code,
            SendMessageResponseHeader(
                msg_id=message_id,
                queue_id=queue_id,
                queue_offset=result.queue_offset,
                transaction_id=uniq_key,
            ),
            b"",
            None,
            self._trace_fields,
        )

    def _refuse(self, code: int, remark: str | None) -> Reply:
        if code == ResponseCode.SYSTEM_BUSY:
            self._throughput.count_busy(remark or "")
        return Reply(code, remark=remark, ext_fields=self._trace_fields)

    def _refuse_when_busy(self, request: Request[AnySendHeader]) -> None:
        """Refuse a send that has waited too long for its turn, or behind others that wait for a disk that stands still."""
        if self._waiting:
            waited_ms = request.arrived_ms - next(iter(self._waiting.values()))
            if waited_ms >= self._store_config.os_page_cache_busy_time_out_mills:
                # It never gets into a queue: official brokers refuse such sends at the door, failing fast or not.
                raise ResponseError(ResponseCode.SYSTEM_BUSY, REJECT_REQUEST)
        config = self._config
        if not config.broker_fast_failure_enable:
            return
        # Newer than now: the clock was set back since, and nobody has waited that long.
        self._newest_ms = min(self._newest_ms, self._now_ms())
        waited_ms = self._newest_ms - request.arrived_ms
        if waited_ms >= config.wait_time_mills_in_send_queue:
            raise busy("TIMEOUT_CLEAN_QUEUE", waited_ms, len(self._waiting))

    def _illegal(self, body_bytes: int, properties_bytes: int) -> ResponseError:
        code, remark = put_refused(PutMessageStatus.MESSAGE_ILLEGAL, self._store_config)
        return ResponseError(
            code,
            f"{remark} This message has a body of {body_bytes}B and properties of "
            f"{properties_bytes}B.",
        )

    def _take_over_trace_settings(self) -> None:
        config = self._config
        self._region = config.region_id
        self._trace_on = config.trace_on
        trace = "true" if config.trace_on else "false"
        self._trace_fields = {props.MSG_REGION: config.region_id, props.TRACE_SWITCH: trace}
        self._writer = PropertyWriter(config.broker_cluster_name, config.region_id, trace)


def _with_batch_id(reply: Reply, uniq_key: str | None) -> Reply:
    if isinstance(reply.header, SendMessageResponseHeader):
        reply.header.batch_uniq_id = uniq_key
    return reply


def _with_handle(reply: Reply, handle: str | None) -> Reply:
    if isinstance(reply.header, SendMessageResponseHeader):
        reply.header.recall_handle = handle
    return reply


def _random_queue(topic: TopicConfig) -> int:
    return randrange(topic.write_queue_nums) if topic.write_queue_nums > 0 else 0


def _sys_flag(header: AnySendHeader, topic: TopicConfig) -> int:
    if topic.topic_filter_type == _MULTI_TAG:
        return header.sys_flag | MULTI_TAGS_FLAG
    return header.sys_flag
