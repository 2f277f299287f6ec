"""Step 5, ask and be answered: python request_reply.py 127.0.0.1:9876"""

import sys

from twisted.internet.task import react

from txrocketmq.client import (
    ClientConfig,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    Message,
    Producer,
    PushConfig,
    PushConsumer,
    create_reply,
)


async def main(reactor, namesrv_addr="127.0.0.1:9876"):
    # Roles with the same configuration share connections; these two are different clients.
    asker_client = ClientConfig(namesrv_addr=namesrv_addr)
    replier_client = ClientConfig(namesrv_addr=namesrv_addr)

    async with (
        Producer(reactor, "askers", asker_client) as asker,
        Producer(reactor, "repliers", replier_client) as replier,
    ):

        async def handle(messages, context):
            for message in messages:
                await replier.send(create_reply(message, message.body.upper()))
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        # The topic is made by its first message. It has no tag, so the readers of questions do not get it.
        await asker.send(Message(topic="Questions", body=b"hello"))
        from_first = PushConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        async with PushConsumer(
            reactor, "answers", {"Questions": "question"}, handle, replier_client, from_first
        ):
            question = Message(topic="Questions", body=b"how are you")
            question.tags = "question"
            reply = await asker.request(question, timeout_ms=10_000)
            print(reply.body.decode())


if __name__ == "__main__":
    react(main, sys.argv[1:])
