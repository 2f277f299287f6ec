"""What tests of timed messages ask of a small broker, and how they move its time."""

from __future__ import annotations

from typing import Any

from small_broker import Peer, SmallBroker, properties, send_header
from twisted.internet.task import Clock

from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import RecallMessageRequestHeader, SendMessageResponseHeader
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.message import MessageExt

STEP_S = 0.05
"""Turns of the reactor that these tests give the broker in a row."""


def run(clock: Clock, seconds: float, step_s: float = STEP_S) -> None:
    """Let time go by in small steps."""
    for _ in range(round(seconds / step_s)):
        clock.advance(step_s)


def ask(peer: Peer, code: int, *arguments: Any) -> RemotingCommand:
    """Ask, and wait for a flush where the answer needs one."""
    opaque = peer.tell(code, *arguments)
    for _ in range(20):
        answer = peer.answer(opaque)
        if answer is not None:
            return answer
        peer.clock.advance(0)
    raise AssertionError(f"no answer to {code}")


def timed_header(topic: str = "TopicA", **found: str) -> Any:
    """A send whose properties ask for a time."""
    values = {"UNIQ_KEY": found.pop("UNIQ_KEY", "0A"), **found}
    return send_header(topic, properties=properties(**values))


def send_timed(peer: Peer, body: bytes = b"late", topic: str = "TopicA", **found: str) -> Any:
    """Send a timed message; the answer's header."""
    answer = ask(peer, RequestCode.SEND_MESSAGE_V2, timed_header(topic, **found), body)
    assert answer.code == 0, f"{answer.code}: {answer.remark}"
    return answer.decode_header(SendMessageResponseHeader)


def refused(peer: Peer, **found: str) -> RemotingCommand:
    """Send a timed message that is refused; the answer."""
    answer = peer.ask(RequestCode.SEND_MESSAGE_V2, timed_header(**found), b"late")
    assert answer.code != 0
    return answer


def recall(peer: Peer, handle: str, topic: str = "TopicA") -> RemotingCommand:
    """Ask for a message to be taken back; the answer."""
    return ask(
        peer,
        RequestCode.RECALL_MESSAGE,
        RecallMessageRequestHeader(producer_group="P", topic=topic, recall_handle=handle),
    )


def delivered(broker: SmallBroker, topic: str = "TopicA") -> list[MessageExt]:
    """All messages of queue 0 of a topic."""
    found: list[MessageExt] = []
    peer = broker.connect(port=40999)
    while True:
        messages = peer.pull(topic, 0, len(found)).messages
        if not messages:
            peer.close()
            return found
        found += messages


def bodies(broker: SmallBroker, topic: str = "TopicA") -> list[bytes]:
    """The same, just the bodies."""
    return [message.body for message in delivered(broker, topic)]


def killed(broker: SmallBroker, **settings: Any) -> SmallBroker:
    """A new broker on what a killed one left, at the same time."""
    broker.disk.locked.clear()
    return _again(broker, settings)


def power_failed(broker: SmallBroker, **settings: Any) -> SmallBroker:
    """A new broker on what the device has."""
    broker.disk.crash()
    return _again(broker, settings)


def _again(broker: SmallBroker, settings: dict[str, Any]) -> SmallBroker:
    clock = Clock()
    clock.advance(broker.clock.seconds())
    return SmallBroker(broker.disk, clock, **settings)
