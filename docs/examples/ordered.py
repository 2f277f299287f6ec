"""Step 2, messages in order: python ordered.py 127.0.0.1:9876"""

import sys

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txrocketmq.client import (
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    Message,
    Producer,
    PushConfig,
    PushConsumer,
)

STEPS = ["ordered", "paid", "shipped"]
ORDERS = ["order-1", "order-2"]


async def main(reactor, namesrv_addr="127.0.0.1:9876"):
    seen = {order: [] for order in ORDERS}
    complete = Deferred()

    async def handle(messages, context):
        # Never twice at a time for the same queue, so the steps of an order come one after the other.
        for message in messages:
            seen[message.keys].append(message.body.decode())
        if all(len(steps) == len(STEPS) for steps in seen.values()) and not complete.called:
            complete.callback(None)
        return ConsumeOrderlyStatus.SUCCESS

    async with Producer(reactor, "shop", namesrv_addr=namesrv_addr) as producer:
        for step in STEPS:
            for order in ORDERS:
                message = Message(topic="OrderSteps", body=step.encode())
                message.keys = order
                # The same key is always the same queue.
                await producer.send_ordered(message, order)

    settings = PushConfig(
        orderly=True, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    async with PushConsumer(
        reactor, "shop-log", "OrderSteps", handle, settings=settings, namesrv_addr=namesrv_addr
    ):
        await complete
    for order, steps in seen.items():
        print(order, *steps)


if __name__ == "__main__":
    react(main, sys.argv[1:])
