"""A consumer that pops: asks, reads receipts, acknowledges, and lets time pass."""

from __future__ import annotations

from typing import Any

from small_broker import Peer, SmallBroker

from txrocketmq.broker.pop.service import PopService
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from txrocketmq.codec.record import decode_records
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.message import MessageExt
from txrocketmq.model.topic import TopicConfig

INVISIBLE_MS = 30_000
COMES_AGAIN_S = 33
"""Invisible time, the two seconds of grace, and a pass of revival."""


def pop_header(topic: str = "TopicA", **fields: Any) -> PopMessageRequestHeader:
    """A pop of any queue, not waiting."""
    values: dict[str, Any] = {
        "consumer_group": "G",
        "topic": topic,
        "queue_id": -1,
        "max_msg_nums": 32,
        "invisible_time": INVISIBLE_MS,
        "poll_time": 0,
        "born_time": 0,
        "init_mode": 0,
        "exp_type": "TAG",
        "exp": "*",
        **fields,
    }
    return PopMessageRequestHeader(**values)


class Popped:
    """The answer to a pop."""

    def __init__(self, command: RemotingCommand) -> None:
        self.command = command
        self.code = command.code
        self.remark = command.remark
        self.header = command.decode_header(PopMessageResponseHeader)
        self.messages: list[MessageExt] = decode_records(command.body)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    def starts(self) -> dict[tuple[str, int], int]:
        """Start offset by kind of topic and queue id."""
        found = {}
        for part in (self.header.start_offset_info or "").split(";"):
            if part:
                kind, queue_id, offset = part.split(" ")
                found[kind, int(queue_id)] = int(offset)
        return found

    def receipt(self, message: MessageExt) -> str:
        """The receipt of a message, as clients make it."""
        known = message.properties.get("POP_CK")
        if known:
            return known
        start = self.starts()["0", message.queue_id]
        header = self.header
        return (
            f"{start} {header.pop_time} {header.invisible_time} {header.revive_qid} 0 "
            f"broker-a {message.queue_id} {message.queue_offset}"
        )


class PopConsumer:
    """A member of a group."""

    def __init__(self, broker: SmallBroker, group: str = "G", port: int = 42000) -> None:
        self.broker = broker
        self.group = group
        self.peer: Peer = broker.connect(port)

    def header(self, topic: str = "TopicA", **fields: Any) -> PopMessageRequestHeader:
        return pop_header(
            topic,
            **{"consumer_group": self.group, "born_time": self.broker.now_ms(), **fields},
        )

    def pop(self, topic: str = "TopicA", **fields: Any) -> Popped:
        """Pop, not waiting."""
        return Popped(self.peer.ask(RequestCode.POP_MESSAGE, self.header(topic, **fields)))

    def wait(self, topic: str = "TopicA", poll_ms: int = 15_000, **fields: Any) -> int:
        """Begin a pop that waits; its opaque."""
        return self.peer.tell(
            RequestCode.POP_MESSAGE, self.header(topic, poll_time=poll_ms, **fields)
        )

    def answer(self, opaque: int) -> Popped | None:
        """What a pop that waited was told; None while it waits."""
        command = self.peer.answer(opaque)
        return None if command is None else Popped(command)

    def real_topic(self, topic: str, receipt: str) -> str:
        kind = receipt.split(" ")[4]
        return {
            "0": topic,
            "1": f"%RETRY%{self.group}_{topic}",
            "2": f"%RETRY%{self.group}+{topic}",
        }[kind]

    def _place(self, receipt: str, topic: str) -> dict[str, Any]:
        """What a receipt says, as headers say it."""
        parts = receipt.split(" ")
        return {
            "consumer_group": self.group,
            "topic": self.real_topic(topic, receipt),
            "queue_id": int(parts[6]),
            "extra_info": receipt,
            "offset": int(parts[7]),
        }

    def ack(self, popped: Popped, message: MessageExt, **fields: Any) -> RemotingCommand:
        """Acknowledge one message."""
        return self.ack_receipt(popped.receipt(message), message.topic, **fields)

    def ack_receipt(self, receipt: str, topic: str = "TopicA", **fields: Any) -> RemotingCommand:
        values = {**self._place(receipt, topic), **fields}
        return self.peer.ask(RequestCode.ACK_MESSAGE, AckMessageRequestHeader(**values))

    def change(self, receipt: str, invisible_ms: int, topic: str = "TopicA", **fields: Any) -> str:
        """Change the invisible time of one message; its new receipt."""
        values = {**self._place(receipt, topic), "invisible_time": invisible_ms, **fields}
        answer = self.peer.ask_for(
            ChangeInvisibleTimeResponseHeader,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            ChangeInvisibleTimeRequestHeader(**values),
        )
        parts = receipt.split(" ")
        parts[0] = parts[7]
        parts[1:4] = [str(answer.pop_time), str(answer.invisible_time), str(answer.revive_qid)]
        return " ".join(parts)


def pass_time(broker: SmallBroker, seconds: float, step_s: float = 0.5) -> None:
    """Let time pass in steps, as a reactor would."""
    end = broker.clock.seconds() + seconds
    while broker.clock.seconds() < end:
        broker.clock.advance(min(step_s, end - broker.clock.seconds()))


def service(broker: SmallBroker) -> PopService:
    """What serves POP in a broker."""
    (found,) = [feature for feature in broker.core.features if isinstance(feature, PopService)]
    return found


def make_topic(
    broker: SmallBroker, topic: str = "TopicA", queues: int = 1, **settings: Any
) -> None:
    """A topic with so many queues."""
    broker.core.topics.update(
        [TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, **settings)]
    )
