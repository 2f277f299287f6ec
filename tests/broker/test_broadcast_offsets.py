"""Offsets of broadcasting clients that the broker keeps, for proxies and for clients that change to one or from one."""

from __future__ import annotations

from typing import Any

from operators import Client, committed, told
from small_broker import Peer, SmallBroker

from txrocketmq.broker.pull.broadcast import FROM_PROXY
from txrocketmq.model.codes import RequestCode, ResponseCode


def by_proxy(peer: Peer, offset: int, client: str = "c1") -> tuple[int, int]:
    """The code and the next offset of a pull that a proxy makes."""
    pulled = peer.pull(
        "T",
        offset=offset,
        max_msg_nums=1,
        request_source=FROM_PROXY,
        proxy_froward_client_id=client,
    )
    return pulled.code, pulled.header.next_begin_offset


MOVED = int(ResponseCode.PULL_OFFSET_MOVED)


def filled(broker: SmallBroker) -> Peer:
    peer = broker.connect()
    for _ in range(5):
        peer.send("T")
    return peer


def test_a_client_of_a_proxy_goes_on_where_it_was(broker: SmallBroker) -> None:
    peer = filled(broker)
    assert by_proxy(peer, -1) == (MOVED, 0)
    assert by_proxy(peer, 0) == (0, 1)
    assert by_proxy(peer, 3) == (0, 4)
    # The proxy starts again, and knows nothing. A pull says what was used before it.
    assert by_proxy(peer, -1) == (MOVED, 3)
    assert by_proxy(peer, -1, "c2") == (MOVED, 0)


def test_the_slowest_of_a_group_is_remembered_over_a_restart(broker: SmallBroker) -> None:
    peer = filled(broker)
    by_proxy(peer, 4, "c1")
    by_proxy(peer, 2, "c2")
    broker.clock.advance(5)
    assert committed(peer, "G@broadcast", "T") == 2
    again = broker.restarted()
    assert by_proxy(again.connect(), -1, "c1") == (MOVED, 2)
    again.stop()


def test_a_client_that_comes_from_a_proxy_and_one_that_goes_to_it(broker: SmallBroker) -> None:
    peer = filled(broker)
    client = Client(broker, "c1", "G").beat("BROADCASTING", T="*")
    by_proxy(peer, 3, "c1")
    mine: Any = client.peer.pull("T", offset=1, max_msg_nums=1)
    assert (mine.code, mine.header.next_begin_offset) == (MOVED, 3)
    mine = client.peer.pull("T", offset=4, max_msg_nums=1)
    assert (mine.code, mine.header.next_begin_offset) == (0, 5)
    assert by_proxy(peer, 2, "c1") == (MOVED, 4)


def test_who_never_meets_a_proxy_is_left_alone(broker: SmallBroker) -> None:
    filled(broker)
    client = Client(broker, "c1", "G").beat("BROADCASTING", T="*")
    for offset in (4, 1, 3, 0):
        assert client.peer.pull("T", offset=offset, max_msg_nums=1).code == 0


def test_who_does_not_ask_any_more_is_forgotten(broker: SmallBroker) -> None:
    peer = filled(broker)
    broker.config.broadcast_offset_expire_second = 60
    by_proxy(peer, 1, "slow")
    by_proxy(peer, 4, "c1")
    for _ in range(14):
        broker.clock.advance(5)
        by_proxy(peer, 4, "c1")
    broker.clock.advance(5)
    assert committed(peer, "G@broadcast", "T") == 4


def test_it_can_be_switched_off(broker: SmallBroker) -> None:
    broker.config.enable_broadcast_offset_store = False
    peer = filled(broker)
    by_proxy(peer, 3)
    broker.clock.advance(5)
    assert committed(peer, "G@broadcast", "T") is None


def test_what_clients_of_a_deleted_topic_were_at_is_gone_with_it(broker: SmallBroker) -> None:
    peer = filled(broker)
    by_proxy(peer, 3, "c1")
    broker.clock.advance(5)
    assert committed(peer, "G@broadcast", "T") == 3
    told(peer, RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
    filled(broker)
    broker.clock.advance(5)
    assert committed(peer, "G@broadcast", "T") is None
    # Other messages are there now: nobody passes any of them over, whether he knew the old topic or not.
    assert by_proxy(peer, -1, "c1") == (MOVED, 0)
    assert by_proxy(peer, -1, "c2") == (MOVED, 0)


def test_a_group_that_goes_with_its_offsets_takes_those_of_its_broadcasting_clients(
    broker: SmallBroker,
) -> None:
    peer = filled(broker)
    by_proxy(peer, 3, "c1")
    broker.clock.advance(5)
    told(peer, RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="G", cleanOffset=True)
    assert committed(peer, "G@broadcast", "T") is None
    broker.clock.advance(5)
    assert committed(peer, "G@broadcast", "T") is None
