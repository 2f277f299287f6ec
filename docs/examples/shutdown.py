"""Step 10, a service that stops without losing or doubling anything: python shutdown.py 127.0.0.1:9876"""

import sys

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater, react

from txrocketmq.client import (
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    Producer,
    PullConfig,
    PushConfig,
    PushConsumer,
)


async def main(reactor, namesrv_addr="127.0.0.1:9876"):
    handled = []
    first = Deferred()

    async def handle(messages, context):
        if not first.called:
            first.callback(None)
        await deferLater(reactor, 0.2)
        handled.extend(message.body for message in messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async with Producer(reactor, "shift", namesrv_addr=namesrv_addr) as producer:
        for number in range(20):
            await producer.send(Message(topic="Work", body=b"%d" % number))

    # Producers and consumers are services: give them a parent, and they start and stop with it, as in a twistd application.
    settings = PushConfig(
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, consume_thread_max=5
    )
    application = MultiService()
    consumer = PushConsumer(
        reactor, "crew", "Work", handle, settings=settings, namesrv_addr=namesrv_addr
    )
    consumer.setServiceParent(application)
    application.startService()
    await first
    # Handlers that run may finish; exactly what they processed is committed.
    await application.stopService()

    from_first = PullConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    rest = []
    async with LitePullConsumer(
        reactor, "crew", settings=from_first, namesrv_addr=namesrv_addr
    ) as next_shift:
        next_shift.subscribe("Work")
        while len(handled) + len(rest) < 20:
            rest.extend(message.body for message in await next_shift.poll())
    print("nothing lost" if {*handled, *rest} == {b"%d" % n for n in range(20)} else "lost")
    print("nothing twice" if not {*handled} & {*rest} else "twice")


if __name__ == "__main__":
    react(main, sys.argv[1:])
