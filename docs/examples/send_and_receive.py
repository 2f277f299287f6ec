"""Step 1, send and receive: python send_and_receive.py 127.0.0.1:9876"""

import sys

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txrocketmq.client import (
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    Message,
    Producer,
    PushConfig,
    PushConsumer,
)


async def main(reactor, namesrv_addr="127.0.0.1:9876"):
    received = Deferred()

    def handle(messages, context):
        for message in messages:
            print(f"received {message.body.decode()} with tag {message.tags}")
        if not received.called:
            received.callback(None)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async with Producer(reactor, "greeters", namesrv_addr=namesrv_addr) as producer:
        message = Message(topic="FirstSteps", body=b"hello")
        message.tags = "polite"
        sent = await producer.send(message)
        print(f"sent, {sent.status.name}")

    from_first = PushConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    async with PushConsumer(
        reactor, "readers", "FirstSteps", handle, settings=from_first, namesrv_addr=namesrv_addr
    ):
        await received


if __name__ == "__main__":
    react(main, sys.argv[1:])
