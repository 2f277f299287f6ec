"""Step 7, everything to everybody: python broadcast.py 127.0.0.1:9876"""

import sys
import tempfile

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txrocketmq.client import (
    ClientConfig,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    Message,
    MessageModel,
    Producer,
    PushConfig,
    PushConsumer,
)


async def main(reactor, namesrv_addr="127.0.0.1:9876"):
    heard = {}
    everybody = Deferred()

    def listener(name):
        def handle(messages, context):
            heard[name] = messages[-1].body.decode()
            if len(heard) == 2 and not everybody.called:
                everybody.callback(None)
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        return handle

    def member(name):
        # Members remember by their own names how far they came, in files of their own.
        client = ClientConfig(namesrv_addr=namesrv_addr, instance_name=name)
        settings = PushConfig(
            message_model=MessageModel.BROADCASTING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            offset_store_dir=tempfile.mkdtemp(),
        )
        return PushConsumer(reactor, "town", "Bells", listener(name), client, settings)

    async with Producer(reactor, "tower", namesrv_addr=namesrv_addr) as producer:
        await producer.send(Message(topic="Bells", body=b"ding dong"))
    async with member("baker"), member("smith"):
        await everybody
    print(*(f"{name}: {text}" for name, text in sorted(heard.items())), sep=", ")


if __name__ == "__main__":
    react(main, sys.argv[1:])
