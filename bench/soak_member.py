"""One member of every consumer group of the soak, in a process of its own; what its handlers see goes to standard output, a line each.

    python -m bench.soak_member NAMESRV

``{"m": [...]}`` is a message, written before the handler answers; ``{"q": topic, "g": group}`` says that queues moved; ``{"up": 1}`` that all has begun.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import react

from txrocketmq.client import (
    ClientConfig,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    MessageSelector,
    Producer,
    PushConfig,
    PushConsumer,
    create_reply,
)
from txrocketmq.errors import RocketMQError

POP_INVISIBLE_MS = 5_000
MAX_TRIES = 2
SQL = "n BETWEEN 3 AND 7 AND kind = 'sql'"

SUBSCRIPTIONS: dict[str, dict[str, Any]] = {
    "soak-plain": {"SoakPlain": None},
    "soak-order": {"SoakOrder": None},
    "soak-later": {"SoakLater": None},
    "soak-tx": {"SoakTx": None},
    "soak-retry": {"SoakRetry": None},
    "soak-dead": {"%DLQ%soak-retry": None},
    "soak-batch": {"SoakBatch": None},
    "soak-tags": {"SoakTags": "a || b"},
    "soak-sql": {"SoakTags": MessageSelector.by_sql(SQL)},
    "soak-pop": {"SoakPop": None},
    "soak-ask": {"SoakAsk": None},
}
ORDERED = ("soak-order",)


def say(**what: Any) -> None:
    """Write a line at once, so that it is there even when this process is killed next."""
    os.write(1, json.dumps(what).encode() + b"\n")


def is_processed(key: str, tries: int) -> bool:
    """What the handler of the retried messages makes of one: some succeed at once, some the second time, some never."""
    if not key.startswith("retry-"):
        return True
    fate = int(key.rpartition("-")[2]) % 4
    return fate < 2 or (fate == 2 and tries > 0)


class Member:
    """The consumers."""

    def __init__(self, reactor: Any, namesrv: str) -> None:
        self._client = ClientConfig(namesrv_addr=namesrv, heartbeat_broker_interval=5_000)
        self._replier = Producer(reactor, "soak-repliers", self._client)
        self._consumers = [self._consumer(reactor, group) for group in SUBSCRIPTIONS]

    def _consumer(self, reactor: Any, group: str) -> PushConsumer:
        is_orderly = group in ORDERED
        # Queues of which this member has had a message: it gets a dead one's when the lock is over, long after they moved.
        begun: set[int] = set()

        def moved(topic: str, everything: Any, mine: Any) -> None:
            begun.intersection_update(queue.queue_id for queue in mine)
            say(q=topic, g=group)

        settings = PushConfig(
            orderly=is_orderly,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            client_rebalance=group != "soak-pop",
            pop_invisible_time=POP_INVISIBLE_MS,
            max_reconsume_times=MAX_TRIES if group == "soak-retry" else -1,
            message_queue_listener=moved,
        )

        async def handle(messages: list[Any], context: Any) -> Any:
            is_done = True
            for message in messages:
                if is_orderly and message.queue_id not in begun:
                    begun.add(message.queue_id)
                    say(q=message.topic, g=group)
                is_done = self._look(group, message)
                if group == "soak-ask":
                    is_done = await self._reply(message)
            if is_orderly:
                return ConsumeOrderlyStatus.SUCCESS
            context.delay_level_when_next_consume = 1
            return (
                ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                if is_done
                else ConsumeConcurrentlyStatus.RECONSUME_LATER
            )

        return PushConsumer(reactor, group, SUBSCRIPTIONS[group], handle, self._client, settings)

    async def _reply(self, message: Any) -> bool:
        """Answer a question; False when the broker, or the asker's link to it, is away just now."""
        try:
            await self._replier.send(create_reply(message, message.body.upper()))
        except RocketMQError:
            return False
        return True

    def _look(self, group: str, message: Any) -> bool:
        tries = message.reconsume_times
        is_done = group == "soak-dead" or is_processed(message.keys, tries)
        place = (message.topic, message.queue_id, message.queue_offset)
        say(m=(time.time(), group, message.keys, place, tries, is_done))
        return is_done

    async def start(self) -> None:
        """Begin with everything."""
        await self._replier.start()
        await gatherResults([one.start() for one in self._consumers])
        say(up=1)

    def stop(self) -> Deferred[Any]:
        """Leave in good order."""

        async def end() -> None:
            await gatherResults([one.stop() for one in self._consumers], consumeErrors=True)
            await self._replier.stop()

        return Deferred.fromCoroutine(end())


async def main(reactor: Any, namesrv: str) -> None:
    """Run until SIGTERM."""
    member = Member(reactor, namesrv)
    reactor.addSystemEventTrigger("before", "shutdown", member.stop)
    await member.start()
    await Deferred()


if __name__ == "__main__":
    react(main, sys.argv[1:])
