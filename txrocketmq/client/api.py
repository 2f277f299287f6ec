"""How does one ask a broker for anything? One typed method for each operation; the answer as a value, or an error.

Stands for the official ``MQClientAPIImpl`` as far as producers and consumers need it. Addresses are ``host:port`` of one broker. Every
method returns a Deferred at once and fails with

* `BrokerError` (code, remark) when the broker refuses,
* `RemotingError` when no answer comes.

Names of topics and groups are those on the wire, with name space.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import Deferred

from txrocketmq.client.messages import decode_messages, decompress_message
from txrocketmq.client.receipts import add_receipts, change_receipt
from txrocketmq.client.results import (
    ChangedInvisibleTime,
    HeartbeatAnswer,
    PopResult,
    PopStatus,
    PullResult,
    PullStatus,
    QueryResult,
    RequestMode,
)
from txrocketmq.codec.bodies.clients import (
    CheckClientRequestBody,
    GetConsumerListByGroupResponseBody,
)
from txrocketmq.codec.bodies.offsets import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from txrocketmq.codec.bodies.pop import (
    BatchAck,
    BatchAckMessageRequestBody,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from txrocketmq.codec.bodies.wire import decode_body, encode_body
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    Header,
    HeartbeatRequestHeader,
    LockBatchMqRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UnlockBatchMqRequestHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from txrocketmq.codec.record import decode_record
from txrocketmq.errors import BrokerError
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.heartbeat import (
    HeartbeatData,
    MessageModel,
    MessageRequestMode,
    SubscriptionData,
)
from txrocketmq.model.message import MessageExt, MessageQueue
from txrocketmq.model.names import vip_address

if TYPE_CHECKING:
    from txrocketmq.client.config import ClientConfig
    from txrocketmq.interfaces import IRemotingClient

H = TypeVar("H", bound=Header)

SUCCESS = int(ResponseCode.SUCCESS)
INDEX_TYPE_UNIQUE_KEY = "_UNIQUE_KEY_QUERY"
SUPPORTS_HEARTBEAT_V2 = "IS_SUPPORT_HEART_BEAT_V2"
SUBSCRIPTION_CHANGED = "IS_SUB_CHANGE"

_PULL_STATUS = {
    SUCCESS: PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MSG,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MSG,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}
_POP_STATUS = {
    SUCCESS: PopStatus.FOUND,
    int(ResponseCode.POLLING_FULL): PopStatus.POLLING_FULL,
    int(ResponseCode.POLLING_TIMEOUT): PopStatus.POLLING_NOT_FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PopStatus.POLLING_NOT_FOUND,
}


def checked(answer: RemotingCommand, address: str) -> RemotingCommand:
    """The answer of success, else `BrokerError`."""
    if answer.code == SUCCESS:
        return answer
    raise BrokerError(answer.code, answer.remark, address)


class ClientApi:
    """Typed requests to brokers.

    :param remoting: the connections.
    :param config: time-outs, the second listener, what is decoded.
    """

    def __init__(self, remoting: IRemotingClient, config: ClientConfig) -> None:
        self.remoting = remoting
        self._config = config
        self._timeout_ms = config.mq_client_api_timeout

    def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        timeout_ms: int | None = None,
        ext_fields: Mapping[str, str] | None = None,
    ) -> Deferred[RemotingCommand]:
        """Any request; the answer of success."""
        asked: Deferred[RemotingCommand] = self.remoting.request(
            address, int(code), header, body, timeout_ms or self._timeout_ms, ext_fields
        )
        return asked.addCallback(checked, address)

    def _ask_header(
        self, address: str, code: int, header: Header, kind: type[H], timeout_ms: int | None
    ) -> Deferred[H]:
        """A request whose answer is its header."""
        return self.ask(address, code, header, b"", timeout_ms).addCallback(
            lambda answer: answer.decode_header(kind)
        )

    def via_vip(self, address: str) -> str:
        """The broker's second listener where the configuration wants it."""
        return vip_address(address) if self._config.vip_channel_enabled else address

    # ----------------------------------------------------------------- clients and groups

    def heartbeat(
        self, address: str, heartbeat: HeartbeatData, timeout_ms: int | None = None
    ) -> Deferred[HeartbeatAnswer]:
        """HEART_BEAT."""
        asked = self.ask(
            address,
            RequestCode.HEART_BEAT,
            HeartbeatRequestHeader(),
            encode_body(heartbeat),
            timeout_ms,
        )
        return asked.addCallback(_heartbeat_answer)

    def unregister_client(
        self,
        address: str,
        client_id: str,
        producer_group: str | None,
        consumer_group: str | None,
        timeout_ms: int | None = None,
    ) -> Deferred[RemotingCommand]:
        """UNREGISTER_CLIENT."""
        header = UnregisterClientRequestHeader(
            client_id=client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        return self.ask(address, RequestCode.UNREGISTER_CLIENT, header, b"", timeout_ms)

    def consumer_ids(
        self, address: str, group: str, timeout_ms: int | None = None
    ) -> Deferred[list[str]]:
        """GET_CONSUMER_LIST_BY_GROUP: client ids of a group's members. A group without members is `BrokerError` 1."""
        asked = self.ask(
            self.via_vip(address),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            GetConsumerListByGroupRequestHeader(consumer_group=group),
            b"",
            timeout_ms,
        )
        kind = GetConsumerListByGroupResponseBody
        return asked.addCallback(lambda answer: decode_body(kind, answer.body).consumer_id_list)

    def check_client_config(
        self,
        address: str,
        group: str,
        client_id: str,
        subscription: SubscriptionData,
        timeout_ms: int | None = None,
    ) -> Deferred[RemotingCommand]:
        """CHECK_CLIENT_CONFIG: whether the broker takes a filter expression; `BrokerError` when not."""
        body = CheckClientRequestBody(
            client_id=client_id, group=group, subscription_data=subscription
        )
        return self.ask(
            address, RequestCode.CHECK_CLIENT_CONFIG, None, encode_body(body), timeout_ms
        )

    # ----------------------------------------------------------------- pull

    def pull_message(
        self,
        address: str,
        broker_name: str,
        header: PullMessageRequestHeader,
        timeout_ms: int,
        lite: bool = False,
    ) -> Deferred[PullResult]:
        """PULL_MESSAGE, or LITE_PULL_MESSAGE."""
        code = RequestCode.LITE_PULL_MESSAGE if lite else RequestCode.PULL_MESSAGE
        asked: Deferred[RemotingCommand] = self.remoting.request(
            address, int(code), header, b"", timeout_ms, None
        )
        return asked.addCallback(self._pull_result, address, broker_name)

    def _pull_result(self, answer: RemotingCommand, address: str, broker_name: str) -> PullResult:
        status = _PULL_STATUS.get(answer.code)
        if status is None:
            raise BrokerError(answer.code, answer.remark, address)
        header = answer.decode_header(PullMessageResponseHeader)
        messages: list[MessageExt] = []
        following = header.next_begin_offset
        if status is PullStatus.FOUND:
            rest: list[MessageExt] = []
            delta = header.offset_delta or 0
            messages = self.decode_messages(answer.body, broker_name, delta, rest)
            following = rest[0].queue_offset if rest else following
        return PullResult(
            status,
            following,
            header.min_offset,
            header.max_offset,
            header.suggest_which_broker_id,
            messages,
            len(answer.body),
            *(header.topic_sys_flag, header.group_sys_flag, header.forbidden_type),
        )

    def decode_messages(self, body: bytes, *more: Any) -> list[MessageExt]:
        """See `messages.decode_messages`."""
        return decode_messages(body, self._config, *more)

    # ----------------------------------------------------------------- pop

    def pop_message(
        self, address: str, broker_name: str, header: PopMessageRequestHeader, timeout_ms: int
    ) -> Deferred[PopResult]:
        """POP_MESSAGE; each message gets its receipt."""
        asked: Deferred[RemotingCommand] = self.remoting.request(
            address, int(RequestCode.POP_MESSAGE), header, b"", timeout_ms, None
        )
        return asked.addCallback(self._pop_result, address, broker_name, header)

    def _pop_result(
        self,
        answer: RemotingCommand,
        address: str,
        broker_name: str,
        asked: PopMessageRequestHeader,
    ) -> PopResult:
        status = _POP_STATUS.get(answer.code)
        if status is None:
            raise BrokerError(answer.code, answer.remark, address)
        if status is not PopStatus.FOUND:
            rest = (answer.ext_fields or {}).get("restNum", "0")
            return PopResult(status, [], rest_num=int(rest) if rest.isdecimal() else 0)
        header = answer.decode_header(PopMessageResponseHeader)
        messages = self.decode_messages(answer.body, broker_name)
        add_receipts(messages, header, asked, broker_name)
        return PopResult(status, messages, header.pop_time, header.invisible_time, header.rest_num)

    def ack_message(
        self, address: str, header: AckMessageRequestHeader, timeout_ms: int | None = None
    ) -> Deferred[RemotingCommand]:
        """ACK_MESSAGE; `BrokerError` 208 when the receipt is no longer good."""
        return self.ask(address, RequestCode.ACK_MESSAGE, header, b"", timeout_ms)

    def batch_ack_message(
        self,
        address: str,
        broker_name: str,
        acks: Iterable[BatchAck],
        timeout_ms: int | None = None,
    ) -> Deferred[RemotingCommand]:
        """BATCH_ACK_MESSAGE."""
        body = BatchAckMessageRequestBody(broker_name=broker_name, acks=list(acks))
        return self.ask(address, RequestCode.BATCH_ACK_MESSAGE, None, encode_body(body), timeout_ms)

    def change_invisible_time(
        self,
        address: str,
        broker_name: str,
        header: ChangeInvisibleTimeRequestHeader,
        timeout_ms: int | None = None,
    ) -> Deferred[ChangedInvisibleTime]:
        """CHANGE_MESSAGE_INVISIBLETIME: when a popped message comes back, counted from now."""
        asked = self._ask_header(
            address,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            header,
            ChangeInvisibleTimeResponseHeader,
            timeout_ms,
        )
        return asked.addCallback(
            lambda found: ChangedInvisibleTime(
                found.pop_time, change_receipt(header, found, broker_name)
            )
        )

    # ----------------------------------------------------------------- assignment and locks

    def query_assignment(
        self,
        address: str,
        topic: str,
        group: str,
        client_id: str,
        strategy: str,
        message_model: MessageModel,
        timeout_ms: int | None = None,
    ) -> Deferred[RequestMode | None]:
        """QUERY_ASSIGNMENT: the queues that the broker gives this member; None when it knows none for the topic."""
        body = QueryAssignmentRequestBody(
            client_id=client_id,
            consumer_group=group,
            message_model=message_model,
            strategy_name=strategy,
            topic=topic,
        )
        asked = self.ask(address, RequestCode.QUERY_ASSIGNMENT, None, encode_body(body), timeout_ms)
        return asked.addCallback(_request_mode)

    def lock_batch(
        self,
        address: str,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        timeout_ms: int = 1000,
    ) -> Deferred[set[MessageQueue]]:
        """LOCK_BATCH_MQ: the queues that are ours alone for a minute."""
        body = LockBatchRequestBody(client_id=client_id, consumer_group=group, mq_set=list(queues))
        asked = self.ask(
            address,
            RequestCode.LOCK_BATCH_MQ,
            LockBatchMqRequestHeader(),
            encode_body(body),
            timeout_ms,
        )
        return asked.addCallback(
            lambda answer: set(decode_body(LockBatchResponseBody, answer.body).lock_okmq_set)
        )

    def unlock_batch(
        self,
        address: str,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        timeout_ms: int = 1000,
        oneway: bool = False,
    ) -> Deferred[None]:
        """UNLOCK_BATCH_MQ."""
        body = encode_body(
            UnlockBatchRequestBody(client_id=client_id, consumer_group=group, mq_set=list(queues))
        )
        code, header = int(RequestCode.UNLOCK_BATCH_MQ), UnlockBatchMqRequestHeader()
        if oneway:
            return self.remoting.oneway(address, code, header, body, timeout_ms)
        return self.ask(address, code, header, body, timeout_ms).addCallback(lambda _: None)

    # ----------------------------------------------------------------- offsets

    def query_consumer_offset(
        self,
        address: str,
        group: str,
        queue: MessageQueue,
        timeout_ms: int | None = None,
        zero_if_not_found: bool | None = None,
    ) -> Deferred[int]:
        """QUERY_CONSUMER_OFFSET; `BrokerError` QUERY_NOT_FOUND when the group has none there."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=zero_if_not_found,
            broker_name=queue.broker_name,
        )
        asked = self._ask_header(
            address,
            RequestCode.QUERY_CONSUMER_OFFSET,
            header,
            QueryConsumerOffsetResponseHeader,
            timeout_ms,
        )
        return asked.addCallback(lambda found: found.offset)

    def update_consumer_offset(
        self,
        address: str,
        group: str,
        queue: MessageQueue,
        offset: int,
        timeout_ms: int | None = None,
        oneway: bool = False,
    ) -> Deferred[None]:
        """UPDATE_CONSUMER_OFFSET; with ``oneway`` (the official way of consumers) nobody hears whether it was taken."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            broker_name=queue.broker_name,
        )
        code = int(RequestCode.UPDATE_CONSUMER_OFFSET)
        if oneway:
            return self.remoting.oneway(address, code, header, b"", timeout_ms or self._timeout_ms)
        return self.ask(address, code, header, b"", timeout_ms).addCallback(lambda _: None)

    def max_offset(
        self,
        address: str,
        queue: MessageQueue,
        timeout_ms: int | None = None,
        committed: bool = True,
    ) -> Deferred[int]:
        """GET_MAX_OFFSET: the next logical offset that the queue will give."""
        header = GetMaxOffsetRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            committed=committed,
            broker_name=queue.broker_name,
        )
        asked = self._ask_header(
            address, RequestCode.GET_MAX_OFFSET, header, GetMaxOffsetResponseHeader, timeout_ms
        )
        return asked.addCallback(lambda found: found.offset)

    def min_offset(
        self, address: str, queue: MessageQueue, timeout_ms: int | None = None
    ) -> Deferred[int]:
        """GET_MIN_OFFSET: the smallest logical offset that can be read."""
        header = GetMinOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        code, kind = RequestCode.GET_MIN_OFFSET, GetMinOffsetResponseHeader
        asked = self._ask_header(address, code, header, kind, timeout_ms)
        return asked.addCallback(lambda found: found.offset)

    def search_offset(
        self,
        address: str,
        queue: MessageQueue,
        timestamp_ms: int,
        timeout_ms: int | None = None,
        upper: bool | None = None,
    ) -> Deferred[int]:
        """SEARCH_OFFSET_BY_TIMESTAMP: the logical offset of a store time.

        :param upper: of several messages of that very ms the last one; None leaves the choice to the broker (the first).
        """
        header = SearchOffsetRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp_ms,
            boundary_type=None if upper is None else "UPPER" if upper else "LOWER",
            broker_name=queue.broker_name,
        )
        asked = self._ask_header(
            address,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            header,
            SearchOffsetResponseHeader,
            timeout_ms,
        )
        return asked.addCallback(lambda found: found.offset)

    def earliest_store_time(
        self, address: str, queue: MessageQueue, timeout_ms: int | None = None
    ) -> Deferred[int]:
        """GET_EARLIEST_MSG_STORETIME: store time in ms of a queue's first message, -1 when it has none."""
        header = GetEarliestMsgStoretimeRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        asked = self._ask_header(
            address,
            RequestCode.GET_EARLIEST_MSG_STORETIME,
            header,
            GetEarliestMsgStoretimeResponseHeader,
            timeout_ms,
        )
        return asked.addCallback(lambda found: found.timestamp)

    # ----------------------------------------------------------------- single messages

    def send_message_back(
        self,
        address: str,
        header: ConsumerSendMsgBackRequestHeader,
        timeout_ms: int | None = None,
    ) -> Deferred[RemotingCommand]:
        """CONSUMER_SEND_MSG_BACK: have a message delivered again later, or give it up."""
        return self.ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, header, b"", timeout_ms)

    def end_transaction(
        self, address: str, header: EndTransactionRequestHeader, remark: str | None = None
    ) -> Deferred[None]:
        """END_TRANSACTION, a oneway request: nobody hears whether it arrived; the broker's checks make up for that."""
        return self.remoting.oneway(
            address, int(RequestCode.END_TRANSACTION), header, b"", self._timeout_ms
        )

    def recall_message(
        self, address: str, header: RecallMessageRequestHeader, timeout_ms: int | None = None
    ) -> Deferred[str]:
        """RECALL_MESSAGE: take a timed message back; its message id."""
        asked = self._ask_header(
            self.via_vip(address),
            RequestCode.RECALL_MESSAGE,
            header,
            RecallMessageResponseHeader,
            timeout_ms,
        )
        return asked.addCallback(lambda found: found.msg_id)

    def view_message(
        self, address: str, topic: str, physical_offset: int, timeout_ms: int | None = None
    ) -> Deferred[MessageExt]:
        """VIEW_MESSAGE_BY_ID; `BrokerError` when there is nothing at the offset."""
        header = ViewMessageRequestHeader(topic=topic, offset=physical_offset)
        asked = self.ask(
            self.via_vip(address), RequestCode.VIEW_MESSAGE_BY_ID, header, b"", timeout_ms
        )
        return asked.addCallback(lambda answer: decompress_message(decode_record(answer.body)[0]))

    def query_message(
        self,
        address: str,
        header: QueryMessageRequestHeader,
        timeout_ms: int | None = None,
        unique_key: bool = False,
    ) -> Deferred[QueryResult]:
        """QUERY_MESSAGE: messages by key. `BrokerError` QUERY_NOT_FOUND when there is none."""
        asked = self.ask(
            self.via_vip(address),
            RequestCode.QUERY_MESSAGE,
            header,
            b"",
            timeout_ms,
            {INDEX_TYPE_UNIQUE_KEY: "true" if unique_key else "false"},
        )

        def found(answer: RemotingCommand) -> QueryResult:
            head = answer.decode_header(QueryMessageResponseHeader)
            messages = self.decode_messages(answer.body)
            return QueryResult(head.index_last_update_timestamp, messages)

        return asked.addCallback(found)


def _heartbeat_answer(answer: RemotingCommand) -> HeartbeatAnswer:
    fields = answer.ext_fields or {}
    return HeartbeatAnswer(
        answer.version,
        fields.get(SUPPORTS_HEARTBEAT_V2) == "true",
        fields.get(SUBSCRIPTION_CHANGED) == "true",
    )


def _request_mode(answer: RemotingCommand) -> RequestMode | None:
    if not answer.body:
        return None
    found = decode_body(QueryAssignmentResponseBody, answer.body).message_queue_assignments or []
    queues = [item.message_queue for item in found if item.message_queue is not None]
    return RequestMode(queues, any(item.mode is MessageRequestMode.POP for item in found))
