"""A producer of transactional messages, and a broker whose rounds the test counts."""

from __future__ import annotations

import json
from typing import Any

from small_broker import START_S, Peer, SmallBroker, properties
from twisted.internet.task import Clock

from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from txrocketmq.codec.record import decode_record
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.message import MessageExt
from txrocketmq.model.names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)

HALF, NOTES, GIVEN_UP = TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
ONEWAY = 2
ROUND_S = 30


class Producer:
    """A member of a producer group.

    :ivar asked: what it was asked: the header, and the message that came along.
    """

    def __init__(self, broker: SmallBroker, group: str = "PG", port: int = 41000) -> None:
        self.broker = broker
        self.group = group
        self.peer = broker.connect(port)
        self.asked: list[tuple[CheckTransactionStateRequestHeader, MessageExt]] = []
        self.beat()

    def beat(self) -> None:
        """A heartbeat."""
        body = {
            "clientID": f"{self.group}@{id(self)}",
            "consumerDataSet": [],
            "producerDataSet": [{"groupName": self.group}],
        }
        assert self.peer.ask(RequestCode.HEART_BEAT, None, json.dumps(body).encode()).code == 0

    def send(self, body: bytes = b"half", topic: str = "TopicA", **fields: Any) -> MessageExt:
        """Send a half message: what the broker stored."""
        found = {"UNIQ_KEY": "U-" + body.decode(), "TRAN_MSG": "true", "PGROUP": self.group}
        text = properties(**found | fields.pop("found", {}))
        born = self.broker.now_ms() - fields.pop("age_ms", 0)
        answer = self.peer.send(
            topic, body, sys_flag=4, properties=text, born_timestamp=born, **fields
        )
        half = self.broker.store.look_message(int(answer.msg_id[-16:], 16))
        assert half is not None
        assert (half.topic, half.queue_id, half.queue_offset) == (HALF, 0, answer.queue_offset)
        return half

    def end(self, half: MessageExt, outcome: int, *, checked: bool = False, **fields: Any) -> Any:
        """Tell the outcome, one-way as real producers do unless ``flag`` is 0; the answer, if there is one."""
        flag = fields.pop("flag", ONEWAY)
        values = {
            "producer_group": self.group,
            "tran_state_table_offset": half.queue_offset,
            "commit_log_offset": half.physical_offset,
            "commit_or_rollback": outcome,
            "from_transaction_check": checked,
            "msg_id": half.uniq_key,
            "transaction_id": half.uniq_key,
            **fields,
        }
        opaque = self.peer.tell(
            RequestCode.END_TRANSACTION, EndTransactionRequestHeader(**values), flag=flag
        )
        return self.peer.answer(opaque)

    def listen(self) -> list[bytes]:
        """Take what was asked since the last time; the bodies."""
        before = len(self.asked)
        for told in self.peer.notices():
            assert told.code == RequestCode.CHECK_TRANSACTION_STATE
            assert told.flag & ONEWAY
            self.asked.append(_question(told))
        return [message.body for _, message in self.asked[before:]]

    def answer(self, outcome: int) -> None:
        """Answer the last question."""
        header, message = self.asked[-1]
        assert header.commit_log_offset == message.physical_offset
        self.end(message, outcome, checked=True)


def _question(told: RemotingCommand) -> tuple[CheckTransactionStateRequestHeader, MessageExt]:
    message, end = decode_record(told.body)
    assert end == len(told.body)
    return told.decode_header(CheckTransactionStateRequestHeader), message


def rounds(broker: SmallBroker, count: int = 1, *producers: Producer) -> None:
    """Let time pass until rounds over the open transactions are through; producers stay alive."""
    for _ in range(count):
        for producer in producers:
            producer.beat()
        for _ in range(ROUND_S):
            broker.clock.advance(1)


def bodies(peer: Peer, topic: str = "TopicA", queue_id: int = 0) -> list[bytes]:
    """Everything in a queue."""
    found: list[bytes] = []
    while more := peer.pull(topic, queue_id, len(found)).bodies:
        found += more
    return found


def killed(broker: SmallBroker, **settings: Any) -> SmallBroker:
    """A new broker on what a killed one left."""
    broker.disk.locked.clear()
    clock = Clock()
    clock.advance(broker.clock.seconds())
    return SmallBroker(broker.disk, clock, **settings)


__all__ = [
    "COMMIT",
    "GIVEN_UP",
    "HALF",
    "NOTES",
    "ROLLBACK",
    "START_S",
    "UNKNOWN",
    "Producer",
    "bodies",
    "killed",
    "rounds",
]
