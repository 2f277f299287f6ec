"""Order locks of a group with replicas: most of them have to agree."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import Asked, FakeClient
from small_broker import SmallBroker

from txrocketmq.codec.bodies import (
    ClusterInfo,
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
    decode_body,
    encode_body,
)
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.message import MessageQueue
from txrocketmq.model.route import BrokerData

NAMESRV, B, C = "192.0.2.9:9876", "192.0.2.2:10911", "192.0.2.3:10911"
LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ
Q0, Q1 = (MessageQueue(topic="T", broker_name="broker-a", queue_id=n) for n in (0, 1))


class Group:
    """A master of three replicas; the test says which of them grant which queues."""

    def __init__(self, **settings: Any) -> None:
        client = FakeClient()
        client.behaviour[NAMESRV] = self._name_server
        self.granted: dict[str, list[MessageQueue]] = {B: [Q0, Q1], C: [Q0, Q1]}
        self.silent: set[str] = set()
        self.asked: list[tuple[str, int, LockBatchRequestBody]] = []
        for address in (B, C):
            client.behaviour[address] = self._replica
        settings = {"lock_in_strict_mode": True, "total_replicas": 3, **settings}
        self.broker = SmallBroker(client=client, namesrv_addr=NAMESRV, **settings)
        self.peer = self.broker.connect()

    def _name_server(self, asked: Asked) -> None:
        if asked.command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            members = {0: "192.0.2.1:10911", 1: B, 2: C}
            data = BrokerData(broker_addrs=members, broker_name="broker-a")
            asked.answer(body=encode_body(ClusterInfo(broker_addr_table={"broker-a": data})))

    def _replica(self, asked: Asked) -> None:
        body = decode_body(LockBatchRequestBody, asked.command.body)
        self.asked.append((asked.address, asked.command.code, body))
        if asked.address in self.silent:
            asked.fail()
            return
        granted = [queue for queue in body.mq_set if queue in self.granted[asked.address]]
        asked.answer(body=encode_body(LockBatchResponseBody(lock_okmq_set=granted)))

    def lock(self, *queues: MessageQueue, client: str = "a", **more: Any) -> list[MessageQueue]:
        body = LockBatchRequestBody(
            client_id=client, consumer_group="G", mq_set=list(queues), **more
        )
        answer = self.peer.ask(LOCK, None, encode_body(body))
        assert answer.code == 0, answer.remark
        return decode_body(LockBatchResponseBody, answer.body).lock_okmq_set


def test_two_of_three_are_enough() -> None:
    group = Group()
    group.granted[C] = []
    assert group.lock(Q0, Q1) == [Q0, Q1]
    assert all(body.only_this_broker for _, _, body in group.asked)
    assert [address for address, _, _ in group.asked] == [B, C]


def test_one_of_three_is_not() -> None:
    group = Group()
    group.granted[B] = [Q1]
    group.silent.add(C)
    assert group.lock(Q0, Q1) == [Q1]


def test_replicas_are_asked_for_what_is_free_here() -> None:
    group = Group()
    group.lock(Q0)
    group.asked.clear()
    assert group.lock(Q0, Q1, client="b") == [Q1]
    assert [body.mq_set for _, _, body in group.asked] == [[Q1], [Q1]]


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ({}, {"only_this_broker": True}),
        ({"lock_in_strict_mode": False}, {}),
        ({"total_replicas": 1}, {}),
    ],
)
def test_otherwise_this_broker_decides_alone(settings: Any, more: Any) -> None:
    group = Group(**settings)
    group.granted = {B: [], C: []}
    assert group.lock(Q0, **more) == [Q0]
    assert group.asked == []


def test_an_unlock_reaches_all() -> None:
    group = Group()
    group.lock(Q0)
    group.asked.clear()
    body = UnlockBatchRequestBody(client_id="a", consumer_group="G", mq_set=[Q0])
    assert group.peer.ask(UNLOCK, None, encode_body(body)).code == 0
    assert [(address, code) for address, code, _ in group.asked] == [(B, UNLOCK), (C, UNLOCK)]
    assert all(told.only_this_broker for _, _, told in group.asked)
    assert group.lock(Q0, client="b") == [Q0]


def test_without_replicas_that_can_be_found_nothing_is_locked() -> None:
    group = Group()
    group.silent |= {B, C}
    assert group.lock(Q0) == []
