"""Step 4, a message and a change of ours, both or none: python transaction.py 127.0.0.1:9876"""

import sys

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txrocketmq.client import (
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    LocalTransactionState,
    Message,
    Producer,
    PushConfig,
    PushConsumer,
)

accounts = {"alice": 10}


def check(message):
    """The broker asks what became of a transaction, when nobody told it: look it up in your database here."""
    return LocalTransactionState.ROLLBACK_MESSAGE


def pay(account, amount):
    if accounts[account] < amount:
        raise ValueError(f"{account} has only {accounts[account]}")
    accounts[account] -= amount


async def main(reactor, namesrv_addr="127.0.0.1:9876"):
    visible = Deferred()

    def handle(messages, context):
        if not visible.called:
            visible.callback(messages[0].body.decode())
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async with Producer(reactor, "bank", namesrv_addr=namesrv_addr, check=check) as producer:
        for amount in (99, 7):
            message = Message(topic="Payments", body=b"paid %d" % amount)
            try:
                # Stored at once, and seen by nobody until the block ends well.
                async with producer.transaction(message):
                    pay("alice", amount)
            except ValueError as error:
                print(f"rolled back: {error}")
            else:
                print("committed")

    from_first = PushConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    async with PushConsumer(
        reactor, "ledger", "Payments", handle, settings=from_first, namesrv_addr=namesrv_addr
    ):
        print(await visible)


if __name__ == "__main__":
    react(main, sys.argv[1:])
