"""Which queues does an ordered consumer get for itself: LOCK_BATCH_MQ, UNLOCK_BATCH_MQ?

Stands for the lock half of ``AdminBrokerProcessor``.
"""

from __future__ import annotations

from txrocketmq.broker.locks import QueueLocks
from txrocketmq.codec.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
    decode_body,
    encode_body,
)
from txrocketmq.codec.headers import LockBatchMqRequestHeader
from txrocketmq.errors import ResponseError
from txrocketmq.model.codes import ResponseCode
from txrocketmq.remoting.dispatch import Reply, Request


class LockProcessor:
    """Grants and takes back order locks."""

    def __init__(self, locks: QueueLocks) -> None:
        self._locks = locks

    def lock_batch(self, request: Request[LockBatchMqRequestHeader]) -> Reply:
        """Lock the queues asked for, or renew them; the answer names those that the client now owns."""
        body = decode_body(LockBatchRequestBody, request.body)
        group, client_id = _owner(body.consumer_group, body.client_id)
        locked = self._locks.try_lock(group, body.mq_set, client_id)
        return Reply(body=encode_body(LockBatchResponseBody(lock_okmq_set=locked)))

    def unlock_batch(self, request: Request[LockBatchMqRequestHeader]) -> Reply:
        """Give queues back."""
        body = decode_body(UnlockBatchRequestBody, request.body)
        group, client_id = _owner(body.consumer_group, body.client_id)
        self._locks.unlock(group, body.mq_set, client_id)
        return Reply()


def _owner(group: str | None, client_id: str | None) -> tuple[str, str]:
    if not group or not client_id:
        raise ResponseError(
            ResponseCode.SYSTEM_ERROR, "the body must name consumerGroup and clientId"
        )
    return group, client_id
