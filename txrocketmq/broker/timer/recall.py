"""How does a producer take a timed message back?

Stands for ``RecallMessageProcessor``: a message that names the other one goes into the same slot, and is read before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from txrocketmq.broker.timer.times import parse_long
from txrocketmq.codec.headers import RecallMessageRequestHeader, RecallMessageResponseHeader
from txrocketmq.codec.recall import RecallHandle
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig
from txrocketmq.errors import ResponseError
from txrocketmq.model import properties as props
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.flags import is_writeable
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message import Host, MessageRecord
from txrocketmq.model.names import TIMER_TOPIC
from txrocketmq.model.properties import format_properties
from txrocketmq.remoting.dispatch import Reply, Request
from txrocketmq.store.results import PutMessageResult, PutMessageStatus

if TYPE_CHECKING:
    from txrocketmq.broker.intake import Intake
    from txrocketmq.broker.stats import BrokerStats
    from txrocketmq.broker.topics import Topics

RECALL_TAG = "_RECALL_TAG_"
_UNAVAILABLE = "recall failed, broker service not available"
_TAKEN = (
    PutMessageStatus.PUT_OK,
    PutMessageStatus.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE,
)

Recall = Request[RecallMessageRequestHeader]


class RecallProcessor:
    """Serves RECALL_MESSAGE."""

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        topics: Topics,
        intake: Intake,
        stats: BrokerStats,
        store_host: Host,
        now_ms: Callable[[], int],
        is_slave: Callable[[], bool],
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._topics = topics
        self._intake = intake
        self._stats = stats
        self._store_host = store_host
        self._now_ms = now_ms
        self._is_slave = is_slave

    def recall(self, request: Recall) -> Reply | Deferred[Reply]:
        """Take a message back that was not delivered yet. Success says that the request is stored, not that it came in time."""
        try:
            return self._recall(request)
        except ResponseError as refused:
            return self._reply(refused.code, remark=refused.remark)

    def _recall(self, request: Recall) -> Reply | Deferred[Reply]:
        header = request.header
        self._admit(header)
        try:
            handle = RecallHandle.decode(header.recall_handle)
        except ValueError as error:
            raise ResponseError(ResponseCode.ILLEGAL_OPERATION, str(error)) from error
        if handle.topic != header.topic:
            raise ResponseError(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != self._config.broker_name:
            raise ResponseError(ResponseCode.ILLEGAL_OPERATION, _UNAVAILABLE)
        now_ms = self._now_ms()
        time_ms = parse_long(handle.deliver_time)
        left_ms = -1 if time_ms is None else time_ms - now_ms
        if not 0 < left_ms < self._store_config.timer_max_delay_sec * 1000:
            raise ResponseError(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        placed, outcome = self._intake.put(self._record(request, handle, now_ms))
        if isinstance(outcome, Deferred):
            return outcome.addCallback(self._answer, handle, placed)
        return self._answer(outcome, handle, placed)

    def _admit(self, header: RecallMessageRequestHeader) -> None:
        config = self._config
        if not config.recall_message_enable:
            raise ResponseError(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if self._is_slave():
            raise ResponseError(ResponseCode.SLAVE_NOT_AVAILABLE, _UNAVAILABLE)
        if self._now_ms() < config.start_accept_send_request_time_stamp:
            raise ResponseError(ResponseCode.SERVICE_NOT_AVAILABLE, _UNAVAILABLE)
        if (
            not is_writeable(config.broker_permission)
            and not config.allow_recall_when_broker_not_writeable
        ):
            raise ResponseError(ResponseCode.SERVICE_NOT_AVAILABLE, _UNAVAILABLE)
        if self._topics.get(header.topic) is None:
            raise ResponseError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"recall failed, the topic[{header.topic}] not exist",
            )

    def _record(self, request: Recall, handle: RecallHandle, now_ms: int) -> MessageRecord:
        key = handle.message_id
        if self._store_config.append_topic_for_timer_delete_key:
            key = f"{handle.topic}+{key}"
        found = {
            props.TAGS: RECALL_TAG,
            props.TIMER_DEL_UNIQKEY: key,
            props.UNIQ_KEY: handle.message_id,
            props.TIMER_DELIVER_MS: handle.deliver_time,
            props.BORN_TIMESTAMP: str(now_ms),
            props.TRACE_CONTEXT: "",
            props.PRODUCER_GROUP: request.header.producer_group or "",
        }
        return MessageRecord(
            topic=handle.topic,
            queue_id=0,
            body=b"0",
            properties=format_properties(found),
            tags_code=tags_code(RECALL_TAG),
            born_timestamp=now_ms,
            born_host=request.connection.remote_address,
            store_host=self._store_host,
            uniq_key=handle.message_id,
        )

    def _answer(
        self, result: PutMessageResult, handle: RecallHandle, placed: MessageRecord
    ) -> Reply:
        if result.status not in _TAKEN:
            return self._reply(
                ResponseCode.SYSTEM_ERROR.value,
                remark=f"recall failed, execute error: {result.status.name}",
            )
        if placed.topic == TIMER_TOPIC:
            self._stats.of_topic(placed.topic).count(result.wrote_bytes)
            took_ms = max(0, result.store_timestamp_ms - placed.born_timestamp)
            self._stats.by_queue.put_took(placed.topic, placed.queue_id, took_ms)
        return self._reply(0, RecallMessageResponseHeader(msg_id=handle.message_id))

    def _reply(
        self,
        code: int,
        header: RecallMessageResponseHeader | None = None,
        remark: str | None = None,
    ) -> Reply:
        fields = {props.MSG_REGION: self._config.region_id}
        return Reply(int(code), header, remark=remark, ext_fields=fields)


def recall_handle(record: MessageRecord, broker_name: str, uniq_key: str | None) -> str | None:
    """The handle of a message that was put into the timer topic; None for one that cannot be recalled. Its time is one more than
    that of the slot, as officially."""
    found = props.parse_properties(record.properties)
    out_ms, topic = found.get(props.TIMER_OUT_MS), found.get(props.REAL_TOPIC)
    if out_ms is None or topic is None or uniq_key is None or topic.startswith("%RETRY%"):
        return None
    return RecallHandle(topic, broker_name, str(int(out_ms) + 1), uniq_key).encode()
