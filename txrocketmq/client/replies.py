"""Who waits for the reply to which request? The table of request-reply calls.

Stands for the official ``RequestFutureHolder`` and ``RequestResponseFuture``.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from txrocketmq.errors import MQClientError
from txrocketmq.model import properties as props
from txrocketmq.model.message import Message, MessageExt
from txrocketmq.model.names import reply_topic

REPLY_TYPE = "reply"
"""What the property ``MSG_TYPE`` of a reply says."""

MAX_WAITING = 65_536
"""Calls that may wait at a time."""


class RequestTimeoutError(MQClientError):
    """The message was stored, but no reply to it came in time."""


class PendingReplies:
    """Calls that wait for their reply, by correlation id."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._waiting: dict[str, tuple[Deferred[MessageExt], IDelayedCall]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait_for(self, correlation_id: str, timeout_ms: int) -> Deferred[MessageExt]:
        """A Deferred of the reply; fails with `RequestTimeoutError`. May be cancelled.

        :raises MQClientError: too many calls wait already.
        """
        if len(self._waiting) >= MAX_WAITING:
            raise MQClientError(f"{MAX_WAITING} requests wait for a reply, the limit is reached")
        deferred: Deferred[MessageExt] = Deferred(lambda _: self._forget(correlation_id))
        wait_s = max(0, timeout_ms) / 1000
        call = self._clock.callLater(wait_s, self._expire, correlation_id, timeout_ms)
        self._waiting[correlation_id] = (deferred, call)
        return deferred

    def arrived(self, correlation_id: str, reply: MessageExt) -> bool:
        """A reply is here; False when nobody waits for it."""
        deferred = self._take(correlation_id)
        if deferred is None:
            return False
        deferred.callback(reply)
        return True

    def stop(self) -> None:
        """Fail all that wait."""
        for correlation_id in list(self._waiting):
            deferred = self._take(correlation_id)
            if deferred is not None:
                deferred.errback(MQClientError("the client stops"))

    def _expire(self, correlation_id: str, timeout_ms: int) -> None:
        deferred, _ = self._waiting.pop(correlation_id)
        deferred.errback(
            RequestTimeoutError(f"no reply to request {correlation_id} within {timeout_ms} ms")
        )

    def _forget(self, correlation_id: str) -> None:
        self._take(correlation_id)

    def _take(self, correlation_id: str) -> Deferred[MessageExt] | None:
        found = self._waiting.pop(correlation_id, None)
        if found is None:
            return None
        if found[1].active():
            found[1].cancel()
        return found[0]


def create_reply(request: Message | MessageExt, body: bytes) -> Message:
    """The reply to a request that a consumer got; to be sent with any producer (official ``MessageUtil.createReplyMessage``).

    :raises MQClientError: the message is no request.
    """
    properties = request.properties
    cluster = properties.get(props.CLUSTER)
    correlation_id = properties.get(props.CORRELATION_ID)
    asker = properties.get(props.MESSAGE_REPLY_TO_CLIENT)
    if not cluster or not correlation_id or not asker:
        raise MQClientError(
            f"the message of topic {request.topic} is no request: it lacks "
            f"{props.CLUSTER}, {props.CORRELATION_ID} or {props.MESSAGE_REPLY_TO_CLIENT}"
        )
    reply = {
        props.MESSAGE_TYPE: REPLY_TYPE,
        props.CORRELATION_ID: correlation_id,
        props.MESSAGE_REPLY_TO_CLIENT: asker,
    }
    if props.MESSAGE_TTL in properties:
        reply[props.MESSAGE_TTL] = properties[props.MESSAGE_TTL]
    return Message(reply_topic(cluster), body, 0, reply)
