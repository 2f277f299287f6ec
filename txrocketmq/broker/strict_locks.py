"""When does an ordered consumer own a queue that has several replicas?

Stands for the strict mode of ``AdminBrokerProcessor.lockBatchMQ`` (`lockInStrictMode`): a queue is locked once most of the group's
`totalReplicas` say so, so that two consumers that see different masters cannot both own it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import msgspec
from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.broker.feature import Feature
from txrocketmq.broker.lock_processor import LockProcessor
from txrocketmq.broker.other_brokers import OtherBrokers
from txrocketmq.codec.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
    decode_body,
    encode_body,
)
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import LockBatchMqRequestHeader
from txrocketmq.errors import BodyError
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.message import MessageQueue
from txrocketmq.remoting.dispatch import Reply, Request

if TYPE_CHECKING:
    from txrocketmq.broker.core import BrokerCore

REPLICA_TIMEOUT_MS = 1_000

Locking = Request[LockBatchMqRequestHeader]


class StrictLocks(Feature):
    """Stands before the handler of locks."""

    _log = Logger()

    def __init__(self, core: BrokerCore) -> None:
        self._config = core.config
        self._store_config = core.store_config
        self._client = core.remoting_client
        self._inner = LockProcessor(core.locks)
        self._others = OtherBrokers(core.config, core.remoting_client, core.now_ms)

    def handlers(self) -> Mapping[str, object]:
        """See `IBrokerFeature`."""
        return {"lock": self}

    def lock_batch(self, request: Locking) -> Reply | Deferred[Reply]:
        """See `LockProcessor.lock_batch`."""
        mine = self._inner.lock_batch(request)
        quorum = self._store_config.total_replicas // 2 + 1
        if quorum <= 1 or not self._config.lock_in_strict_mode:
            return mine
        body = decode_body(LockBatchRequestBody, request.body)
        if body.only_this_broker:
            return mine
        locked = decode_body(LockBatchResponseBody, cast("bytes", mine.body)).lock_okmq_set
        return Deferred.fromCoroutine(self._lock_elsewhere(body, locked, quorum))

    async def _lock_elsewhere(
        self, body: LockBatchRequestBody, locked: list[MessageQueue], quorum: int
    ) -> Reply:
        asked = msgspec.structs.replace(body, mq_set=locked, only_this_broker=True)
        votes = Counter(locked)
        for answer in await self._ask_all(RequestCode.LOCK_BATCH_MQ, encode_body(asked)):
            try:
                votes.update(decode_body(LockBatchResponseBody, answer).lock_okmq_set)
            except BodyError as error:
                self._log.warn("a replica's answer to a lock: {reason}", reason=error)
        owned = [queue for queue in locked if votes[queue] >= quorum]
        return Reply(body=encode_body(LockBatchResponseBody(lock_okmq_set=owned)))

    def unlock_batch(self, request: Locking) -> Reply | Deferred[Reply]:
        """See `LockProcessor.unlock_batch`; replicas are told, and not waited for."""
        reply = self._inner.unlock_batch(request)
        body = decode_body(UnlockBatchRequestBody, request.body)
        if self._config.lock_in_strict_mode and not body.only_this_broker:
            told = encode_body(msgspec.structs.replace(body, only_this_broker=True))
            Deferred.fromCoroutine(self._ask_all(RequestCode.UNLOCK_BATCH_MQ, told)).addErrback(
                self._not_told
            )
        return reply

    async def _ask_all(self, code: RequestCode, body: bytes) -> list[bytes]:
        """The bodies with which the other replicas answer that do."""
        config = self._config
        members = await self._others.members(config.broker_name)
        asking = []
        for broker_id, address in members.items():
            if broker_id != config.broker_id:
                asked = self._client.request(
                    address, code.value, None, body, REPLICA_TIMEOUT_MS, None
                )
                asking.append(cast("Deferred[RemotingCommand]", asked))
        found = []
        for succeeded, answer in await DeferredList(asking, consumeErrors=True):
            if succeeded and answer.code == ResponseCode.SUCCESS:
                found.append(bytes(answer.body))
        return found

    def _not_told(self, failure: Failure) -> None:
        self._log.warn("replicas are not told of an unlock: {reason}", reason=failure.value)
