"""Step 3, messages for later: python delay.py 127.0.0.1:9876"""

import sys

from twisted.internet.defer import DeferredQueue
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
    came = DeferredQueue()

    def handle(messages, context):
        for message in messages:
            came.put(message.body.decode())
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async with Producer(reactor, "reminders", namesrv_addr=namesrv_addr) as producer:
        await producer.send(Message(topic="Reminders", body=b"at once"))
        from_first = PushConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        async with PushConsumer(
            reactor, "reminded", "Reminders", handle, settings=from_first, namesrv_addr=namesrv_addr
        ):
            print(await came.get())
            later = Message(topic="Reminders", body=b"one second later")
            later.delay_time_level = 1  # 1 s, 5 s, 10 s, 30 s, 1 min ... 2 h
            began = reactor.seconds()
            await producer.send(later)
            print(await came.get())
            print("not too early" if reactor.seconds() - began > 0.9 else "too early")


if __name__ == "__main__":
    react(main, sys.argv[1:])
