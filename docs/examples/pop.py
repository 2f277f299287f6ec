"""Step 9, let the broker hand out the messages (POP, 5.x): python pop.py 127.0.0.1:9876"""

import json
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
from txrocketmq.model.codes import RequestCode


async def let_group_pop(producer, topic, group):
    """What ``mqadmin setConsumeMode -m POP`` does."""
    body = {"topic": topic, "consumerGroup": group, "mode": "POP", "popShareQueueNum": 0}
    for queue in await producer.publish_queues(topic):
        address = producer.instance.routes.master_address(queue.broker_name)
        await producer.instance.api.ask(
            address, RequestCode.SET_MESSAGE_REQUEST_MODE, body=json.dumps(body).encode()
        )


async def main(reactor, namesrv_addr="127.0.0.1:9876"):
    done = []
    all_done = Deferred()

    def handle(messages, context):
        # Each message is acknowledged by itself; what is not comes again, to whichever member asks.
        done.extend(message.body.decode() for message in messages)
        if len(done) >= 8 and not all_done.called:
            all_done.callback(None)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async with Producer(reactor, "planner", namesrv_addr=namesrv_addr) as producer:
        for number in range(8):
            await producer.send(Message(topic="Jobs", body=b"job %d" % number))
        await let_group_pop(producer, "Jobs", "workers")

    settings = PushConfig(
        client_rebalance=False,  # the broker says which queues, and whether to pull or to pop
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    async with PushConsumer(
        reactor, "workers", "Jobs", handle, settings=settings, namesrv_addr=namesrv_addr
    ):
        await all_done
    print(*sorted(done), sep=", ")


if __name__ == "__main__":
    react(main, sys.argv[1:])
