"""How do single messages become batches by themselves? A collector, emptied by size or time.

Stands for the official ``ProduceAccumulator`` (``autoBatch`` of 5.x producers). Messages that agree in topic, queue, tag and whether to wait
for the store are collected; each caller gets the result of its own message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from txrocketmq.client.results import SendResult
from txrocketmq.model.message import Message, MessageQueue

Key = tuple[str, MessageQueue | None, str | None, bool]


class _Pile:
    """Messages of one key that will be one batch."""

    __slots__ = ("call", "messages", "size", "waiting")

    def __init__(self, call: IDelayedCall) -> None:
        self.call = call
        self.messages: list[Message] = []
        self.waiting: list[Deferred[SendResult]] = []
        self.size = 0


class Accumulator:
    """Collects messages.

    :param send: sends several messages as one batch, to a queue if one is given.
    :param max_delay_s: how long a message may wait for others.
    :param max_bytes: bodies that make a batch go at once.
    :param max_total_bytes: bodies that may be held, all batches together, until they are stored.
    :ivar held: bytes held now.
    """

    def __init__(
        self,
        clock: IReactorTime,
        send: Callable[[list[Message], MessageQueue | None], Deferred[SendResult]],
        max_delay_s: float,
        max_bytes: int,
        max_total_bytes: int,
    ) -> None:
        self._clock = clock
        self._send = send
        self._max_delay_s = max_delay_s
        self._max_bytes = max_bytes
        self._max_total_bytes = max_total_bytes
        self._piles: dict[Key, _Pile] = {}
        self.held = 0

    def add(self, message: Message, queue: MessageQueue | None) -> Deferred[SendResult] | None:
        """Take a message; a Deferred of its own result, or None when it is large, or too much is held: it must go by itself."""
        size = len(message.body)
        # A large one gains nothing, could make the batch larger than brokers take, and would not be compressed.
        if size >= self._max_bytes or self.held + size > self._max_total_bytes:
            return None
        key = (message.topic, queue, message.tags, message.wait_store_msg_ok)
        pile = self._piles.get(key)
        if pile is None:
            call = self._clock.callLater(self._max_delay_s, self._go, key)
            pile = self._piles[key] = _Pile(call)
        self.held += size
        pile.size += size
        pile.messages.append(message)
        deferred: Deferred[SendResult] = Deferred(lambda _: None)
        pile.waiting.append(deferred)
        if pile.size >= self._max_bytes:
            self._go(key)
        return deferred

    def flush(self) -> None:
        """Send all that is collected, now."""
        for key in list(self._piles):
            self._go(key)

    def _go(self, key: Key) -> None:
        pile = self._piles.pop(key)
        if pile.call.active():
            pile.call.cancel()
        sent = self._send(pile.messages, key[1])
        sent.addBoth(self._sent, pile)

    def _sent(self, outcome: SendResult | Failure, pile: _Pile) -> None:
        self.held -= pile.size
        results: list[Any]
        if isinstance(outcome, Failure):
            results = [outcome] * len(pile.waiting)
        else:
            results = split_result(outcome, len(pile.waiting))
        for deferred, result in zip(pile.waiting, results, strict=True):
            # One that its caller has cancelled takes nothing more.
            if not deferred.called:
                deferred.callback(result)


def split_result(result: SendResult, count: int) -> list[SendResult]:
    """The results of a batch's messages; all alike where the broker keeps the batch as one (``BatchCQ``)."""
    ids = result.msg_id.split(",")
    offset_ids = result.offset_msg_id.split(",")
    if len(ids) != count or len(offset_ids) != count:
        return [result] * count
    return [
        msgspec.structs.replace(
            result, msg_id=own, offset_msg_id=offset_id, queue_offset=result.queue_offset + place
        )
        for place, (own, offset_id) in enumerate(zip(ids, offset_ids, strict=True))
    ]
