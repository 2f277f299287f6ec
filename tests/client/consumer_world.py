"""Consumers on a network in memory, and what their handlers saw."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from client_world import ClientWorld
from small_broker import send_header
from small_world import remoting_client, run_until

from txrocketmq.client.consumer.config import PushConfig
from txrocketmq.client.consumer.handlers import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from txrocketmq.client.consumer.push import PushConsumer
from txrocketmq.codec.bodies import ConsumerConnection
from txrocketmq.codec.bodies.wire import decode_body
from txrocketmq.codec.headers import (
    CreateTopicRequestHeader,
    GetConsumerConnectionListRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from txrocketmq.codec.record import decode_records
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.heartbeat import ConsumeFromWhere
from txrocketmq.model.message import MessageExt, MessageQueue
from txrocketmq.model.properties import format_properties
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER
DONE = ConsumeOrderlyStatus.SUCCESS
SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
TOPIC = "TopicTest"


class Diary:
    """A handler that writes down what it sees, and answers as told.

    :ivar seen: messages in the order in which they came.
    :ivar batches: how many at a time.
    """

    def __init__(self, answer: Any = SUCCESS) -> None:
        self.answer = answer
        self.seen: list[MessageExt] = []
        self.batches: list[int] = []
        self.contexts: list[Any] = []

    def __call__(self, messages: list[MessageExt], context: Any) -> Any:
        self.seen += messages
        self.batches.append(len(messages))
        self.contexts.append(context)
        return self.answer(messages, context) if callable(self.answer) else self.answer

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.seen]


class ConsumerWorld(ClientWorld):
    """Brokers with a topic of four queues each."""

    def __init__(
        self, brokers: int = 1, topic: str = TOPIC, queues: int = 4, **settings: Any
    ) -> None:
        super().__init__(brokers, **settings)
        self.disk = MemoryDisk()
        self._operator = remoting_client(self.network)
        for number in self.brokers:
            self.create_topic(topic, queues, number)
        self.network.run(0.2)

    def ask(self, number: int, code: RequestCode, header: Any, body: bytes = b"") -> Any:
        """Ask a broker as an operator does; its answer."""
        return self.wait(
            self._operator.request(f"192.0.2.{number}:10911", int(code), header, body, 3000)
        )

    def create_topic(self, topic: str, queues: int = 4, number: int = 2) -> None:
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=False,
        )
        assert self.ask(number, RequestCode.UPDATE_AND_CREATE_TOPIC, header).code == 0

    def put(
        self,
        body: bytes,
        queue_id: int = 0,
        topic: str = TOPIC,
        number: int = 2,
        properties: dict[str, str] | None = None,
    ) -> None:
        """Store a message in a queue."""
        header = send_header(
            topic,
            queue_id=queue_id,
            properties=format_properties(properties or {}).decode(),
            born_timestamp=int(self.clock.seconds() * 1000),
        )
        answer = self.ask(number, RequestCode.SEND_MESSAGE_V2, header, body)
        assert answer.code == 0, answer.remark

    def fill(self, count: int, queues: int = 4, **where: Any) -> list[bytes]:
        """Store messages in all queues by turns; their bodies."""
        bodies = [b"%d" % number for number in range(count)]
        for number, body in enumerate(bodies):
            self.put(body, number % queues, **where)
        return bodies

    def consumer(
        self,
        handler: Any,
        group: str = "CG",
        subscriptions: Any = TOPIC,
        client: dict[str, Any] | None = None,
        start: bool = True,
        **settings: Any,
    ) -> PushConsumer:
        """A push consumer with a client of its own."""
        settings.setdefault("consume_from_where", FIRST)
        settings.setdefault("offset_store_dir", "/offsets")
        pool = settings.pop("pool", None) or ImmediatePool()
        consumer = PushConsumer(
            self.clock,
            group,
            subscriptions,
            handler,
            settings=PushConfig(**settings),
            instance=self.instance(**(client or {})),
            pool=pool,
            disk=self.disk,
        )
        if start:
            self.wait(consumer.start())
        return consumer

    def until(self, wanted: Callable[[], bool], limit_s: float = 60) -> float:
        return run_until(self.network, wanted, limit_s)

    def commit(self, offset: int, group: str = "CG", queue_id: int = 0, number: int = 2) -> None:
        """Have a broker believe that a group stands there."""
        self.brokers[number].core.groups.find(group)
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=TOPIC, queue_id=queue_id, commit_offset=offset
        )
        assert self.ask(number, RequestCode.UPDATE_CONSUMER_OFFSET, header).code == 0

    def offset(self, group: str, queue_id: int, topic: str = TOPIC, number: int = 2) -> int | None:
        """What a broker knows of a group's offset; None when nothing."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, set_zero_if_not_found=False
        )
        answer = self.ask(number, RequestCode.QUERY_CONSUMER_OFFSET, header)
        if answer.code:
            return None
        return answer.decode_header(QueryConsumerOffsetResponseHeader).offset

    def offsets(self, group: str = "CG", queues: int = 4, **where: Any) -> list[int | None]:
        return [self.offset(group, queue_id, **where) for queue_id in range(queues)]

    def members(self, group: str = "CG", number: int = 2) -> ConsumerConnection | None:
        """Who a broker thinks is in a group."""
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        answer = self.ask(number, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        return None if answer.code else decode_body(ConsumerConnection, answer.body)

    def messages(self, topic: str, number: int = 2) -> list[MessageExt]:
        """All messages of a topic at one broker."""
        store = self.brokers[number].store
        found: list[MessageExt] = []
        for name, queue_id in sorted(store.queues()):
            if name == topic:
                for offset in range(store.max_offset(topic, queue_id)):
                    result: Any = store.get_message(topic, queue_id, offset, 1, 1 << 24, None)
                    found += decode_records(b"".join(bytes(part) for part in result.records))
        return found


def queue(queue_id: int, topic: str = TOPIC, broker: str = "broker-2") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker, queue_id=queue_id)


def set_mode(world: ConsumerWorld, mode: str = "POP", number: int = 2) -> None:
    """As ``mqadmin setConsumeMode`` does."""
    body = {"topic": TOPIC, "consumerGroup": "CG", "mode": mode, "popShareQueueNum": 8}
    answer = world.ask(
        number, RequestCode.SET_MESSAGE_REQUEST_MODE, None, json.dumps(body).encode()
    )
    assert answer.code == 0, answer.remark
