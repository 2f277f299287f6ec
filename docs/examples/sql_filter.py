"""Step 6, let the broker choose, by properties: python sql_filter.py 127.0.0.1:9876

The broker needs enablePropertyFilter=true. Choosing by tag ("TagA || TagB") needs nothing.
"""

import sys

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txrocketmq.client import (
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    Message,
    MessageSelector,
    Producer,
    PushConfig,
    PushConsumer,
)


async def main(reactor, namesrv_addr="127.0.0.1:9876"):
    chosen = []
    enough = Deferred()

    def handle(messages, context):
        chosen.extend(message.body.decode() for message in messages)
        if len(chosen) >= 2 and not enough.called:
            enough.callback(None)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async with Producer(reactor, "sensors", namesrv_addr=namesrv_addr) as producer:
        for place, degrees in (("roof", 31), ("cellar", 12), ("roof", 19), ("garden", 35)):
            message = Message(topic="Temperatures", body=f"{place} {degrees}".encode())
            message.put_user_property("place", place)
            message.put_user_property("degrees", str(degrees))
            await producer.send(message)

    hot = MessageSelector.by_sql("degrees > 30 AND place IN ('roof', 'garden')")
    from_first = PushConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    async with PushConsumer(
        reactor,
        "alarms",
        {"Temperatures": hot},
        handle,
        settings=from_first,
        namesrv_addr=namesrv_addr,
    ):
        await enough
    print(*sorted(chosen), sep=", ")


if __name__ == "__main__":
    react(main, sys.argv[1:])
