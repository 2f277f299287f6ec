"""A consumer of ours in a process of its own, for tests with real servers. Its argument is a JSON object; it prints a line for each message and
ends in good order when its input ends.

``namesrv``, ``group``, ``topic``; ``kind``: ``push``, ``orderly``, ``threads``, ``pop``, ``lite`` (polls) or ``iterate``; ``instance``; ``tags``; ``settings`` of the
consumer; ``fail_first``: handlers fail at the first try of every so many-th message; ``delay_ms``: what a handler takes.
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
from txrocketmq.client.consumer.config import PullConfig, PushConfig
from txrocketmq.client.consumer.handlers import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from txrocketmq.client.consumer.lite_pull import LitePullConsumer
from txrocketmq.client.consumer.push import PushConsumer
from txrocketmq.model.heartbeat import ConsumeFromWhere, MessageModel
from txrocketmq.model.message import MessageExt

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


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
        self.settings.setdefault("consume_from_where", FIRST)

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
            message.msg_id,
            int(self.reactor.seconds() * 1000),
        ]
        print(json.dumps(row), flush=True)

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

    def make(self) -> Any:
        told = self.told
        client = ClientConfig(namesrv_addr=told["namesrv"], **told.get("client", {}))
        common: Any = (self.reactor, told["group"])
        if told["kind"] in ("lite", "iterate"):
            lite = LitePullConsumer(*common, client, PullConfig(**self.settings))
            lite.subscribe(told["topic"], told.get("tags"))
            return lite
        return PushConsumer(
            *common,
            {told["topic"]: told.get("tags")},
            {"orderly": self.handle_orderly, "threads": self.handle_in_thread}.get(
                told["kind"], self.handle
            ),
            client,
            PushConfig(
                orderly=told["kind"] == "orderly",
                client_rebalance=told["kind"] != "pop",
                **self.settings,
            ),
        )

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
        StandardIO(given)
        async with self.make() as consumer:
            print(json.dumps({"client_id": consumer.instance.client_id}), flush=True)
            if self.told["kind"] in ("lite", "iterate"):
                reading = self.poll if self.told["kind"] == "lite" else self.iterate
                Deferred.fromCoroutine(reading(consumer)).addErrback(lambda _: None)
            await given.ended
        print(json.dumps({"stopped": True}), flush=True)


def main(reactor: Any, argument: str) -> Deferred[None]:
    """Run in a reactor."""
    globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stderr)], redirectStandardIO=False)
    return Deferred.fromCoroutine(Run(reactor, json.loads(argument)).run())


if __name__ == "__main__":
    react(main, sys.argv[1:])
