"""A consumer of ours in a process of its own, for tests with real servers. Its argument is a JSON object; it prints a line for each message and
ends in good order when its input ends.

``namesrv``, ``group``, ``topic``; ``kind``: ``push``, ``orderly``, ``threads``, ``pop``, ``reply`` (as the Java puppet's replier), ``lite`` (polls), ``iterate`` or ``pull``;
``client``: settings of the client; ``acl``: access and secret key; ``tags``, or ``sql``; ``settings`` of the consumer; ``strategy``: its name;
``fail_first``: handlers fail at the first try of every so many-th message; ``delay_ms``: what a handler takes. Queues that change are told as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from typing import Any

if os.environ.get("CLIENT_REACTOR") == "asyncio":
    import asyncio

    from twisted.internet import asyncioreactor

    asyncioreactor.install(asyncio.new_event_loop())

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol
from twisted.internet.stdio import StandardIO
from twisted.internet.task import deferLater, react
from twisted.logger import globalLogBeginner, textFileLogObserver

from txrocketmq.client.config import ClientConfig
from txrocketmq.client.consumer.allocation import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConfig,
    AllocateByConsistentHash,
    AllocateByMachineRoom,
    AllocateMachineRoomNearby,
)
from txrocketmq.client.consumer.config import MessageSelector, PullConfig, PushConfig
from txrocketmq.client.consumer.handlers import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from txrocketmq.client.consumer.lite_pull import LitePullConsumer
from txrocketmq.client.consumer.pull import PullConsumer
from txrocketmq.client.consumer.push import PushConsumer
from txrocketmq.client.hooks import AclHook
from txrocketmq.client.producer.producer import Producer
from txrocketmq.client.replies import create_reply
from txrocketmq.errors import RocketMQError
from txrocketmq.model.heartbeat import ConsumeFromWhere, MessageModel
from txrocketmq.model.message import MessageExt, MessageQueue

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def say(found: object) -> None:
    """One line for the test, whole: handlers in threads speak while the reactor does."""
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def room(number: int) -> str:
    """As the Java puppet's rooms."""
    return "odd" if number % 2 else "even"


STRATEGIES: dict[str, Any] = {
    "AVG": AllocateAveragely,
    "AVG_BY_CIRCLE": AllocateAveragelyByCircle,
    "CONSISTENT_HASH": AllocateByConsistentHash,
    "MACHINE_ROOM_NEARBY": lambda: AllocateMachineRoomNearby(
        AllocateAveragely(), lambda queue: room(queue.queue_id), lambda client: room(len(client))
    ),
}


def strategy_of(told: dict[str, Any]) -> Any:
    """The strategy that the test names; as the Java puppet's."""
    name = told["strategy"]
    if name == "MACHINE_ROOM":
        return AllocateByMachineRoom(told["rooms"])
    if name == "CONFIG":
        return AllocateByConfig(
            [
                MessageQueue(topic=told["topic"], broker_name=told["broker"], queue_id=number)
                for number in told["numbers"]
            ]
        )
    return STRATEGIES[name]()


class Input(Protocol):
    """Notices the end of the input."""

    def __init__(self) -> None:
        self.ended: Deferred[None] = Deferred()

    def connectionLost(self, reason: Any = None) -> None:
        self.ended.callback(None)


class Run:
    """One consumer."""

    def __init__(self, reactor: Any, told: dict[str, Any]) -> None:
        self.reactor = reactor
        self.told = told
        self.settings = dict(told.get("settings", {}))
        model = self.settings.pop("message_model", "CLUSTERING")
        self.settings["message_model"] = MessageModel(model)
        where = self.settings.pop("consume_from_where", FIRST)
        self.settings["consume_from_where"] = ConsumeFromWhere(where)
        if told.get("strategy"):
            self.settings["allocate_strategy"] = strategy_of(told)
        self.client = ClientConfig(namesrv_addr=told["namesrv"], **told.get("client", {}))
        self.hooks = [AclHook(*told["acl"])] if told.get("acl") else []
        self.replier: Producer | None = None
        self.wanted: Any = told.get("tags")
        if told.get("sql"):
            self.wanted = MessageSelector.by_sql(told["sql"])

    def say(self, message: MessageExt) -> None:
        """A line as ``interop.harness.clients.Row``."""
        row = [
            message.broker_name,
            message.queue_id,
            message.queue_offset,
            int(message.properties.get("seq", -1)),
            hashlib.sha256(message.body).hexdigest()[:16],
            message.tags,
            message.keys,
            message.reconsume_times,
            message.uniq_key or message.msg_id,
            int(self.reactor.seconds() * 1000),
        ]
        say(row)

    def fails(self, message: MessageExt) -> bool:
        every = self.told.get("fail_first", 0)
        seq = int(message.properties.get("seq", -1))
        return bool(every) and message.reconsume_times == 0 and seq % every == 0

    async def handle(self, messages: list[MessageExt], context: Any) -> Any:
        """A concurrent handler."""
        if self.told.get("delay_ms"):
            await deferLater(self.reactor, self.told["delay_ms"] / 1000, lambda: None)
        if any(self.fails(message) for message in messages):
            return ConsumeConcurrentlyStatus.RECONSUME_LATER
        for message in messages:
            self.say(message)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    def handle_orderly(self, messages: list[MessageExt], context: Any) -> Any:
        """An orderly handler."""
        if any(self.fails(message) for message in messages):
            context.suspend_current_queue_time_millis = 50
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        for message in messages:
            self.say(message)
        return ConsumeOrderlyStatus.SUCCESS

    def handle_in_thread(self, messages: list[MessageExt], context: Any) -> Any:
        """A handler that may block: it is not in the reactor's thread."""
        assert threading.current_thread() is not threading.main_thread()
        time.sleep(0.001)
        for message in messages:
            self.reactor.callFromThread(self.say, message)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async def handle_request(self, messages: list[MessageExt], context: Any) -> Any:
        """Replies as the Java puppet's replier does."""
        assert self.replier is not None
        for message in messages:
            # The message that made the topic asks nothing.
            if "CORRELATION_ID" in message.properties:
                await self.replier.send(create_reply(message, b"re:" + message.body))
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    def tell_queues(self, topic: str, every: Any, mine: Any) -> None:
        """The queues of this member."""
        if topic.endswith(self.told["topic"]) and not topic.startswith("%RETRY%"):
            queues = [[queue.broker_name, queue.queue_id] for queue in mine]
            say({"queues": queues})

    def make(self) -> Any:
        told, kind = self.told, self.told["kind"]
        common: Any = (self.reactor, told["group"])
        if kind == "pull":
            return PullConsumer(*common, self.client, PullConfig(**self.settings), hooks=self.hooks)
        if kind in ("lite", "iterate"):
            lite = LitePullConsumer(
                *common, self.client, PullConfig(**self.settings), hooks=self.hooks
            )
            lite.subscribe(told["topic"], self.wanted)
            return lite
        handlers = {
            "orderly": self.handle_orderly,
            "threads": self.handle_in_thread,
            "reply": self.handle_request,
        }
        settings = PushConfig(
            orderly=kind == "orderly",
            client_rebalance=kind != "pop",
            message_queue_listener=self.tell_queues,
            **self.settings,
        )
        return PushConsumer(
            *common,
            {told["topic"]: self.wanted},
            handlers.get(kind, self.handle),
            self.client,
            settings,
            hooks=self.hooks,
        )

    async def pull(self, consumer: PullConsumer) -> None:
        """All queues by turns, from where the group stands."""
        queues = await consumer.fetch_subscribe_message_queues(self.told["topic"])
        places = {queue: await consumer.fetch_consume_offset(queue) or 0 for queue in queues}
        while consumer.is_running:
            for queue, place in places.items():
                result = await consumer.pull(queue, None, place)
                for message in result.messages:
                    self.say(message)
                places[queue] = result.next_begin_offset
                consumer.update_consume_offset(queue, result.next_begin_offset)
            await deferLater(self.reactor, 0.05, lambda: None)

    async def poll(self, consumer: LitePullConsumer) -> None:
        while consumer.is_running:
            for message in await consumer.poll(500):
                self.say(message)

    async def iterate(self, consumer: LitePullConsumer) -> None:
        async for message in consumer:
            self.say(message)

    async def run(self) -> None:
        """Consume until the input ends."""
        given = Input()
        # Its output would be made non-blocking, and what does not fit into the pipe at once would wait for the next line.
        StandardIO(given, stdout=os.pipe()[1])
        readers: dict[str, Any] = {"lite": self.poll, "iterate": self.iterate, "pull": self.pull}
        if self.told["kind"] == "reply":
            group = self.told["group"] + "-replies"
            self.replier = Producer(self.reactor, group, self.client, hooks=self.hooks)
            await self.replier.start()
        async with self.make() as consumer:
            say({"client_id": consumer.instance.client_id})
            reading = readers.get(self.told["kind"])
            if reading is not None:
                # What it was doing when the consumer stopped fails.
                done = Deferred.fromCoroutine(reading(consumer))
                done.addErrback(lambda failure: failure.trap(RocketMQError))
            await given.ended
        if self.replier is not None:
            await self.replier.stop()
        say({"stopped": True})


def main(reactor: Any, argument: str) -> Deferred[None]:
    """Run in a reactor."""
    globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stderr)], redirectStandardIO=False)
    return Deferred.fromCoroutine(Run(reactor, json.loads(argument)).run())


if __name__ == "__main__":
    react(main, sys.argv[1:])
