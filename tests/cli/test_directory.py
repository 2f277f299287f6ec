"""Where does the command line find a topic when its name servers do not know the same?"""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from txrocketmq.cli.directory import Directory, NoSuchTopicError
from txrocketmq.codec.bodies.routes import ClusterInfo
from txrocketmq.codec.bodies.wire import encode_body
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.errors import NoRouteError, RemotingConnectError
from txrocketmq.interfaces import IRemotingClient
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.route import BrokerData, QueueData, TopicRouteData

BROKER = BrokerData(broker_name="b", cluster="c", broker_addrs={0: "192.0.2.1:10911"})
NAMES = ["192.0.2.100:9876", "192.0.2.101:9876"]


@implementer(IRemotingClient)
class Names:
    """Name servers: each is gone (None), or has brokers and topics.

    :ivar asked: who was asked.
    """

    def __init__(self, *known: tuple[bool, tuple[str, ...]] | None) -> None:
        self._known = dict(zip(NAMES, known, strict=True))
        self.asked: list[str] = []

    def request(
        self, address: str, code: int, header: Any, *rest: object
    ) -> Deferred[RemotingCommand]:
        self.asked.append(address)
        known = self._known[address]
        if known is None:
            return fail(RemotingConnectError(address, "connection refused"))
        has_broker, topics = known
        request = RemotingCommand.create_request(code, None, opaque=1)
        if code == RequestCode.GET_BROKER_CLUSTER_INFO:
            info = ClusterInfo(broker_addr_table={"b": BROKER} if has_broker else {})
            return succeed(RemotingCommand.create_response(request, 0, body=encode_body(info)))
        if header.topic not in topics:
            return succeed(
                RemotingCommand.create_response(request, int(ResponseCode.TOPIC_NOT_EXIST))
            )
        route = TopicRouteData(
            broker_datas=[BROKER],
            queue_datas=[QueueData(broker_name="b", perm=6, read_queue_nums=1, write_queue_nums=1)],
        )
        return succeed(RemotingCommand.create_response(request, 0, body=encode_body(route)))

    def oneway(self, *arguments: object) -> Deferred[None]:
        raise AssertionError

    def close_address(self, address: str) -> None:
        raise AssertionError

    def stop(self) -> Deferred[None]:
        return succeed(None)


def outcome(names: Names) -> Any:
    found: list[Any] = []
    Deferred.fromCoroutine(Directory(names, NAMES).queues_to_read("T")).addBoth(found.append)
    return getattr(found[0], "value", found[0])


@pytest.mark.parametrize(
    "first", [None, (False, ()), (True, ())], ids=["gone", "just restarted", "without the topic"]
)
def test_one_that_does_not_know_is_no_reason_to_give_up(
    first: tuple[bool, tuple[str, ...]] | None,
) -> None:
    names = Names(first, (True, ("T",)))
    assert [queue.text for queue in outcome(names)] == ["b/0"]
    assert names.asked == NAMES


def test_one_that_knows_is_enough() -> None:
    names = Names((True, ("T",)), None)
    assert [queue.text for queue in outcome(names)] == ["b/0"]
    assert names.asked == NAMES[:1]


def test_why_there_is_none_is_what_all_of_them_say() -> None:
    assert "no broker is registered at" in str(outcome(Names((False, ()), (False, ()))))
    error = outcome(Names((False, ()), (True, ())))
    assert isinstance(error, NoSuchTopicError)
    error = outcome(Names(None, None))
    assert isinstance(error, NoRouteError)
    assert "no name server answers" in str(error)
