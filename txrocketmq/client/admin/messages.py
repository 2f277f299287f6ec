"""Messages: found by id, key, offset or time, read one after the other, tried by a consumer, sent, and looked at in the queue.

Stands for ``MQAdminImpl`` and the message commands of mqadmin.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import attrs

from txrocketmq.client.admin.core import AdminCore
from txrocketmq.client.admin.errors import NoSuchBrokerError
from txrocketmq.client.admin.results import QueriedMessages
from txrocketmq.client.admin.sending import ToolProducer
from txrocketmq.client.admin.traces import decode_traces
from txrocketmq.client.consumer.incoming import matching, unwrap_batches
from txrocketmq.client.results import PullResult, PullStatus, QueryResult, SendResult
from txrocketmq.client.trace import TraceRecord
from txrocketmq.codec.bodies.admin import (
    ConsumeMessageDirectlyResult,
    QueryConsumeQueueResponseBody,
)
from txrocketmq.codec.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    PullMessageRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from txrocketmq.errors import BrokerError, MQClientError, RecordError
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.flags import is_readable, pull_sys_flag
from txrocketmq.model.heartbeat import EXPRESSION_TAG, SUB_ALL, build_subscription
from txrocketmq.model.message import Message, MessageExt, MessageQueue
from txrocketmq.model.message_id import parse_offset_message_id
from txrocketmq.model.names import TOOLS_CONSUMER_GROUP, TRACE_TOPIC, is_lmq
from txrocketmq.remoting.transport import format_address

END_OF_TIME = 2**63 - 1
QUERY_DAYS_MS = 3 * 24 * 3600 * 1000
"""How far back unique keys are looked for where the caller does not say (official default)."""

PULLED_AT_ONCE = 32


@attrs.frozen
class MessageIdParts:
    """What an offset message id names: who stored the message, and where in its log."""

    address: str
    physical_offset: int


def decode_message_id(message_id: str) -> MessageIdParts:
    """Read an offset message id (``DecodeMessageId``). A unique id has the same form, and other meanings.

    :raises MQClientError: it is none.
    """
    try:
        host, port, offset = parse_offset_message_id(message_id)
    except RecordError as error:
        raise MQClientError(str(error)) from None
    return MessageIdParts(format_address(host, port), offset)


class MessageAdmin:
    """Messages of all brokers."""

    def __init__(self, core: AdminCore, producer: ToolProducer) -> None:
        self._core = core
        self._producer = producer

    # ----------------------------------------------------------------- by id and key

    async def by_id(
        self, topic: str, message_id: str, cluster: str | None = None
    ) -> MessageExt | None:
        """The message of an id, whether offset message id or unique id (``queryMsgById``); None when there is none.

        An id is an offset message id when the broker it names is registered; other addresses are not dialled.
        """
        try:
            parts = decode_message_id(message_id)
        except MQClientError:
            parts = None
        if parts is not None and await self._is_broker(parts.address):
            try:
                return await self._core.api.view_message(
                    parts.address, topic, parts.physical_offset, self._core.timeout_ms
                )
            except BrokerError:
                pass  # A unique id may look like that; the index knows.
        found = await self.by_unique_key(topic, message_id, cluster=cluster)
        return found.messages[0] if found.messages else None

    async def _is_broker(self, address: str) -> bool:
        table = (await self._core.cluster_info()).broker_addr_table
        return any(address in broker.broker_addrs.values() for broker in table.values())

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        max_num: int = 64,
        begin_ms: int = 0,
        end_ms: int = END_OF_TIME,
        cluster: str | None = None,
        key_type: str = "K",
        last_key: str | None = None,
    ) -> QueriedMessages:
        """Messages with a key (``queryMsgByKey``), oldest first.

        :param key_type: which index is asked, by 5.x brokers: ``K`` keys, ``T`` tags (brokers with RocksDB alone).
        :param last_key: where the page before ended, there.
        :raises PartialFailureError: some brokers failed; what the others found is in it.
        """
        header = QueryMessageRequestHeader(
            topic=cluster if cluster and is_lmq(topic) else topic,
            key=key,
            max_num=max_num,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            index_type=key_type,
            last_key=last_key,
        )
        found = await self._query(topic, header, cluster, unique=False)
        if key_type != "K":
            return found
        has_key = [m for m in found.messages if key in (m.keys or "").split(" ")]
        if not is_lmq(topic):
            has_key = [message for message in has_key if message.topic == topic]
        return attrs.evolve(found, messages=has_key)

    async def by_unique_key(
        self,
        topic: str,
        unique_key: str,
        *,
        max_num: int = 32,
        begin_ms: int | None = None,
        end_ms: int = END_OF_TIME,
        cluster: str | None = None,
    ) -> QueriedMessages:
        """The message, or copies of it, that a client gave an id (``queryMsgByUniqueKey``).

        :param begin_ms: store time from which on; three days ago when left out.
        :raises PartialFailureError: some brokers failed; what the others found is in it.
        """
        header = QueryMessageRequestHeader(
            topic=cluster if cluster and is_lmq(topic) else topic,
            key=unique_key,
            max_num=max_num,
            begin_timestamp=self._core.now_ms - QUERY_DAYS_MS if begin_ms is None else begin_ms,
            end_timestamp=end_ms,
        )
        found = await self._query(topic, header, cluster, unique=True)
        same = [message for message in found.messages if message.uniq_key == unique_key]
        return attrs.evolve(found, messages=same)

    async def _query(
        self, topic: str, header: QueryMessageRequestHeader, cluster: str | None, *, unique: bool
    ) -> QueriedMessages:
        route = await self._core.routed(topic, cluster)
        wanted = None if cluster is None or is_lmq(topic) else cluster
        addresses = [
            address
            for broker in route.broker_datas
            if wanted in (None, broker.cluster) and (address := broker.any_address()) is not None
        ]
        timeout_ms = self._core.timeout_ms * 3

        async def call(address: str) -> QueryResult:
            try:
                return await self._core.api.query_message(address, header, timeout_ms, unique)
            except BrokerError as error:
                if error.code == ResponseCode.QUERY_NOT_FOUND:
                    return QueryResult(0, [])
                raise

        found = await self._core.spread(f"query of {header.key}", addresses, call)
        messages = [message for result in found.values() for message in result.messages]
        messages.sort(key=lambda message: message.store_timestamp)
        reached = (result.index_last_update_timestamp for result in found.values())
        return QueriedMessages(messages, max(reached, default=0))

    async def traces(
        self,
        message_id: str,
        *,
        trace_topic: str = TRACE_TOPIC,
        begin_ms: int = 0,
        end_ms: int = END_OF_TIME,
        max_num: int = 64,
    ) -> list[TraceRecord]:
        """What clients with tracing did with a message, oldest first (``queryMsgTraceById``).

        :param message_id: the unique id.
        """
        found = await self.by_key(
            trace_topic, message_id, max_num=max_num, begin_ms=begin_ms, end_ms=end_ms
        )
        records = [
            record
            for message in found.messages
            for record in decode_traces(message.body.decode("utf-8", "replace"))
            if any(message_id in (bean.msg_id, bean.offset_msg_id) for bean in record.beans)
        ]
        return sorted(records, key=lambda record: record.time)

    # ----------------------------------------------------------------- by offset and time

    async def by_offset(
        self, topic: str, broker_name: str, queue_id: int, offset: int
    ) -> MessageExt | None:
        """The message at a logical offset (``queryMsgByOffset``); None when there is none."""
        queue = MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)
        address = await self._core.address_of(broker_name)
        result = await self._pull(address, queue, offset, 1, SUB_ALL)
        return result.messages[0] if result.messages else None

    async def scan(
        self,
        topic: str,
        *,
        broker_name: str | None = None,
        queue_id: int | None = None,
        expression: str = SUB_ALL,
        begin_ms: int | None = None,
        end_ms: int | None = None,
        offset: int | None = None,
        max_num: int | None = None,
        parent_topic: str | None = None,
    ) -> AsyncIterator[MessageExt]:
        """Messages of a topic, queue after queue, each in the order of its offsets (``printMsg``, ``printMsgByQueue``, ``consumeMessage``).
        No group moves.

        :param broker_name: only this broker's queues, with ``queue_id`` only this one.
        :param expression: only messages with these tags.
        :param begin_ms: from this store time on, and up to ``end_ms``; the ends are looked up once.
        :param offset: from this logical offset on, in place of a time.
        :param max_num: no more than so many.
        :param parent_topic: for a light queue: the topic whose brokers have it.
        :raises NoSuchTopicError: there is no such topic.
        """
        left = max_num
        for queue, address in await self._queues(topic, broker_name, queue_id, parent_topic):
            first, end = await self._range(address, queue, begin_ms, end_ms, offset)
            async for message in self._scan_queue(address, queue, first, end, expression):
                if left is not None:
                    if left <= 0:
                        return
                    left -= 1
                yield message

    async def _queues(
        self, topic: str, broker_name: str | None, queue_id: int | None, parent: str | None
    ) -> list[tuple[MessageQueue, str]]:
        route = await self._core.route(parent or topic)
        addresses = {item.broker_name: item.any_address() for item in route.broker_datas}
        found = []
        for data in sorted(route.queue_datas, key=lambda item: item.broker_name or ""):
            name, address = data.broker_name or "", addresses.get(data.broker_name)
            if address is None or broker_name not in (None, name) or not is_readable(data.perm):
                continue
            numbers = range(1 if is_lmq(topic) else data.read_queue_nums)
            found += [
                (MessageQueue(topic=topic, broker_name=name, queue_id=number), address)
                for number in numbers
                if queue_id in (None, number)
            ]
        if not found and broker_name is not None:
            raise NoSuchBrokerError(f"topic {topic} has no such queue: {broker_name} {queue_id}")
        return found

    async def _range(
        self,
        address: str,
        queue: MessageQueue,
        begin_ms: int | None,
        end_ms: int | None,
        offset: int | None,
    ) -> tuple[int, int]:
        api, timeout_ms = self._core.api, self._core.timeout_ms
        first, end = offset, None
        if first is None and begin_ms is not None:
            first = await api.search_offset(address, queue, begin_ms, timeout_ms)
        if first is None:
            first = await api.min_offset(address, queue, timeout_ms)
        if end_ms is not None:
            end = await api.search_offset(address, queue, end_ms, timeout_ms)
        if end is None:
            end = await api.max_offset(address, queue, timeout_ms)
        return first, end

    async def _scan_queue(
        self, address: str, queue: MessageQueue, first: int, end: int, expression: str
    ) -> AsyncIterator[MessageExt]:
        while first < end:
            result = await self._pull(address, queue, first, PULLED_AT_ONCE, expression)
            for message in result.messages:
                if message.queue_offset < end:
                    yield message
            if result.next_begin_offset <= first:
                return
            first = result.next_begin_offset
            if result.status is PullStatus.NO_NEW_MSG:
                return

    async def _pull(
        self, address: str, queue: MessageQueue, offset: int, count: int, expression: str
    ) -> PullResult:
        subscription = build_subscription(queue.topic, expression)
        header = PullMessageRequestHeader(
            consumer_group=TOOLS_CONSUMER_GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=pull_sys_flag(commit_offset=False, suspend=False, subscription=True),
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=expression,
            sub_version=0,
            expression_type=EXPRESSION_TAG,
            broker_name=queue.broker_name,
        )
        result = await self._core.api.pull_message(
            address, queue.broker_name, header, self._core.timeout_ms
        )
        result.messages = matching(unwrap_batches(result.messages), subscription)
        return result

    # ----------------------------------------------------------------- at the broker

    async def consume_directly(
        self, group: str, client_id: str, topic: str, message_id: str, cluster: str | None = None
    ) -> ConsumeMessageDirectlyResult:
        """Have one member's handler try a message now (``queryMsgById -g -d``); nothing is committed.

        :raises MQClientError: there is no such message.
        """
        message = await self.by_id(topic, message_id, cluster)
        if message is None:
            raise MQClientError(f"there is no message {message_id} in topic {topic}")
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=group, client_id=client_id, topic=topic, msg_id=message.msg_id
        )
        return await self._core.read(
            ConsumeMessageDirectlyResult,
            format_address(*message.store_host),
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            header,
            timeout_ms=self._core.timeout_ms * 3,
        )

    async def consume_queue(
        self,
        broker: str,
        topic: str,
        queue_id: int,
        index: int,
        count: int = 10,
        group: str | None = None,
    ) -> QueryConsumeQueueResponseBody:
        """A stretch of a consume queue, explained (``queryCq``).

        :param group: also whether this group's filter takes each message.
        """
        header = QueryConsumeQueueRequestHeader(
            topic=topic, queue_id=queue_id, index=index, count=count, consumer_group=group
        )
        code = RequestCode.QUERY_CONSUME_QUEUE
        return await self._core.read(QueryConsumeQueueResponseBody, broker, code, header)

    async def resume_check(self, topic: str, message_id: str) -> None:
        """Have a half message be checked again whose checks are used up.

        :param message_id: its offset message id.
        """
        address = decode_message_id(message_id).address
        header = ResumeCheckHalfMessageRequestHeader(topic=topic, msg_id=message_id)
        await self._core.ask(address, RequestCode.RESUME_CHECK_HALF_MESSAGE, header)

    # ----------------------------------------------------------------- sending

    async def send(
        self, message: Message, *, broker_name: str | None = None, queue_id: int | None = None
    ) -> SendResult:
        """Send a message (``sendMessage``).

        :param broker_name: with ``queue_id`` to this queue and no other.
        """
        queue = None
        if broker_name is not None or queue_id is not None:
            if broker_name is None or queue_id is None:
                raise MQClientError("a queue has a broker_name and a queue_id")
            queue = MessageQueue(topic=message.topic, broker_name=broker_name, queue_id=queue_id)
        return await self._producer.send(message, queue)
