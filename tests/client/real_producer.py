"""A producer of ours in a process of its own, for tests with real servers: does what its arguments say and prints one JSON object.

    python real_producer.py NAMESRV TOPIC SEED COUNT MODE SIZE [MORE]

MODE: ``async`` (64 in flight), ``oneway``, ``batch``, ``ordered``, ``compressed``, ``transaction`` (each third committed, rolled back, left to the
check, which commits), ``delay`` (level 1), ``recall`` (due in four seconds; each second one is taken back), ``traced`` (as ``async``, traces go to the topic ``TRACE-`` and the topic's name), ``request`` (a consumer of
ours replies; what it said), ``ask`` (as the Java puppet's asker, whoever replies), ``timed`` (due in four seconds), ``zstd``, ``auto`` (collected to batches).
MORE: a JSON object with ``client``, settings of the client, and ``acl``, access and secret key.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from typing import Any

if os.environ.get("CLIENT_REACTOR") == "asyncio":
    from twisted.internet import asyncioreactor

    asyncioreactor.install(asyncio.new_event_loop())
elif os.environ.get("CLIENT_REACTOR") == "select":
    from twisted.internet import selectreactor

    selectreactor.install()

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import react

from txrocketmq.client.config import ClientConfig
from txrocketmq.client.consumer.config import PushConfig
from txrocketmq.client.consumer.handlers import ConsumeConcurrentlyStatus
from txrocketmq.client.consumer.push import PushConsumer
from txrocketmq.client.hooks import AclHook
from txrocketmq.client.producer.config import ProducerConfig
from txrocketmq.client.producer.producer import Producer
from txrocketmq.client.replies import create_reply
from txrocketmq.client.results import LocalTransactionState, SendResult
from txrocketmq.model.heartbeat import ConsumeFromWhere
from txrocketmq.model.message import Message, MessageExt

COMMIT = LocalTransactionState.COMMIT_MESSAGE
VERDICTS = (COMMIT, LocalTransactionState.ROLLBACK_MESSAGE, LocalTransactionState.UNKNOW)
CHECK_PATIENCE_S = 60
RECALLED_DELAY_MS = 4000


def message(topic: str, seed: str, seq: int, size: int) -> Message:
    """The message of a sequence number, as the Java puppet checks it."""
    block = hashlib.sha256(f"{seed}:{seq}".encode()).hexdigest().encode()
    made = Message(topic, (block * (size // len(block) + 1))[:size])
    made.tags, made.keys = "TagA", f"key-{seq}"
    made.put_user_property("seq", str(seq))
    return made


def place(seq: int, result: SendResult) -> list[Any]:
    """As ``interop.harness.clients.Sent``."""
    queue = result.queue
    return [
        seq,
        result.status.value,
        queue.broker_name,
        queue.queue_id,
        result.queue_offset,
        result.msg_id,
    ]


class Run:
    """One run of messages."""

    def __init__(self, reactor: Any, arguments: list[str]) -> None:
        self.namesrv, self.topic, self.seed, count, self.mode, size, *more = arguments
        self.more: dict[str, Any] = json.loads(more[0]) if more else {}
        self.count, self.size = int(count), int(size)
        self.checked: list[str] = []
        self._all_checked: Deferred[None] = Deferred()
        self._reactor = reactor

    def check(self, asked: MessageExt) -> LocalTransactionState:
        """A broker asks."""
        self.checked.append(asked.uniq_key or "")
        if len(set(self.checked)) == self.count // 3 and not self._all_checked.called:
            self._all_checked.callback(None)
        return COMMIT

    async def run(self) -> dict[str, Any]:
        """Send, and tell what came of it."""
        group = f"pg-{self.seed}"
        settings = ProducerConfig(compress_msg_body_over_howmuch=4096, compress_type="LZ4")
        if self.mode in ("compressed", "zstd"):
            kind = "ZSTD" if self.mode == "zstd" else "ZLIB"
            settings = ProducerConfig(compress_msg_body_over_howmuch=1, compress_type=kind)
        # All is sent at once, and machines are loaded.
        settings.send_msg_timeout = 30_000
        settings.auto_batch = self.mode == "auto"
        client = ClientConfig(
            namesrv_addr=self.namesrv,
            enable_trace=self.mode == "traced",
            trace_topic=f"TRACE-{self.topic}",
            **self.more.get("client", {}),
        )
        hooks = [AclHook(*self.more["acl"])] if "acl" in self.more else []
        producer = Producer(self._reactor, group, client, settings, check=self.check, hooks=hooks)
        async with producer:
            messages = [message(self.topic, self.seed, seq, self.size) for seq in range(self.count)]
            sent = await getattr(self, f"_{self.mode}")(producer, messages)
        return {
            "sent": sent,
            "checked": len(set(self.checked)),
            "client": type(self._reactor).__name__,
        }

    async def _async(self, producer: Producer, messages: list[Message]) -> list[Any]:
        first = await producer.send(messages[0])
        sends = [producer.send(one) for one in messages[1:]]
        results = [first, *await gatherResults(sends, consumeErrors=True)]
        return [place(seq, result) for seq, result in enumerate(results)]

    _compressed = _traced = _zstd = _auto = _async

    async def _ask(self, producer: Producer, messages: list[Message]) -> list[Any]:
        asked = [
            producer.request(
                Message(self.topic, f"{self.seed}-{number}".encode()), timeout_ms=60_000
            )
            for number in range(self.count)
        ]
        replies = await gatherResults(asked, consumeErrors=True)
        return [reply.body.decode() for reply in replies]

    async def _timed(self, producer: Producer, messages: list[Message]) -> list[Any]:
        for one in messages:
            one.delay_time_ms = RECALLED_DELAY_MS
        return await self._async(producer, messages)

    async def _request(self, producer: Producer, messages: list[Message]) -> list[Any]:
        await producer.send(Message(self.topic, b"makes the topic"))

        async def reply(asked: list[MessageExt], context: object) -> ConsumeConcurrentlyStatus:
            for one in asked:
                if one.body != b"makes the topic":
                    await producer.send(create_reply(one, b"re: " + one.body))
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        settings = PushConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        group = f"cg-{self.seed}"
        consumer = PushConsumer(
            self._reactor, group, self.topic, reply, settings=settings, namesrv_addr=self.namesrv
        )
        async with consumer:
            asked = [producer.request(one, timeout_ms=20_000) for one in messages]
            replies = await gatherResults(asked, consumeErrors=True)
        return [
            reply.body == b"re: " + one.body for one, reply in zip(messages, replies, strict=True)
        ]

    async def _delay(self, producer: Producer, messages: list[Message]) -> list[Any]:
        for one in messages:
            one.delay_time_level = 1
        return await self._async(producer, messages)

    async def _recall(self, producer: Producer, messages: list[Message]) -> list[Any]:
        for one in messages:
            one.delay_time_ms = RECALLED_DELAY_MS
        results = await gatherResults([producer.send(one) for one in messages])
        recalled = [
            await producer.recall(self.topic, result.recall_handle or "") for result in results[::2]
        ]
        return [recalled, [result.msg_id for result in results[::2]]]

    async def _oneway(self, producer: Producer, messages: list[Message]) -> list[Any]:
        for one in messages:
            await producer.send_oneway(one)
        return []

    async def _batch(self, producer: Producer, messages: list[Message]) -> list[Any]:
        results = await producer.send_batch(messages)
        return [len(result.msg_id.split(",")) for result in results]

    async def _ordered(self, producer: Producer, messages: list[Message]) -> list[Any]:
        sent = []
        for seq, one in enumerate(messages):
            sent.append(place(seq, await producer.send_ordered(one, f"order-{seq % 7}")))
        return sent

    async def _transaction(self, producer: Producer, messages: list[Message]) -> list[Any]:
        states = []
        for seq, one in enumerate(messages):
            verdict = VERDICTS[seq % 3]
            outcome = await producer.send_in_transaction(one, lambda m, arg: arg, verdict)
            states.append(outcome.state.value)
        await self._all_checked.addTimeout(CHECK_PATIENCE_S, self._reactor)
        await producer.when_free()
        return states


def main(reactor: Any, *arguments: str) -> Deferred[None]:
    """Run in a reactor."""

    async def run() -> None:
        print(json.dumps(await Run(reactor, list(arguments)).run()), flush=True)

    return Deferred.fromCoroutine(run())


if __name__ == "__main__":
    react(main, sys.argv[1:])
