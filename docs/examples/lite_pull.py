"""Step 8, messages when we ask for them: python lite_pull.py 127.0.0.1:9876"""

import sys

from twisted.internet.task import react

from txrocketmq.client import (
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    Producer,
    PullConfig,
)


async def main(reactor, namesrv_addr="127.0.0.1:9876"):
    async with Producer(reactor, "news", namesrv_addr=namesrv_addr) as producer:
        for number in range(5):
            await producer.send(Message(topic="News", body=b"page %d" % number))

    from_first = PullConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    pages = []
    async with LitePullConsumer(
        reactor, "paper", settings=from_first, namesrv_addr=namesrv_addr
    ) as consumer:
        consumer.subscribe("News")
        while len(pages) < 5:
            pages.extend(message.body.decode() for message in await consumer.poll())
        # What was polled is committed every 5 s and at the end; here it is now.
        await consumer.commit()
    print(*sorted(pages), sep=", ")


if __name__ == "__main__":
    react(main, sys.argv[1:])
