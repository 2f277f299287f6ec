"""The route table: look-ups shared by all who ask, changes, the topic that new topics copy, queues that may be used."""

from __future__ import annotations

from typing import Any

import pytest
from client_world import NAME_SERVER, ClientWorld
from small_world import start_broker, stop_broker

from txrocketmq.client.results import FoundBroker
from txrocketmq.client.routes import NoSuchTopicError, publish_queues, subscribe_queues
from txrocketmq.codec.bodies.wire import encode_body
from txrocketmq.errors import MQClientError, NoRouteError
from txrocketmq.model.message import Message, MessageQueue
from txrocketmq.model.route import BrokerData, QueueData, TopicRouteData
from txrocketmq.model.topic import TopicConfig
from txrocketmq.remoting.dispatch import Reply


def route(*brokers: tuple[str, dict[int, str], int, int, int], **more: Any) -> TopicRouteData:
    """A route of ``(name, members, permission, read queues, write queues)``."""
    return TopicRouteData(
        broker_datas=[
            BrokerData(broker_name=name, broker_addrs=members, cluster="C")
            for name, members, *_ in brokers
        ],
        queue_datas=[
            QueueData(broker_name=name, perm=perm, read_queue_nums=read, write_queue_nums=write)
            for name, _, perm, read, write in brokers
        ],
        **more,
    )


def places(queues: list[MessageQueue]) -> list[tuple[str, int]]:
    return [(queue.broker_name, queue.queue_id) for queue in queues]


def test_queues_to_send_to_need_permission_and_a_master() -> None:
    found = publish_queues(
        "T",
        route(
            ("d", {0: "d:1"}, 6, 3, 2),
            ("slave-only", {1: "s:1"}, 6, 2, 2),
            ("read-only", {0: "r:1"}, 4, 2, 2),
            ("a", {0: "a:1", 1: "a:2"}, 2, 9, 1),
        ),
    )
    assert places(found) == [("a", 0), ("d", 0), ("d", 1)]


def test_queues_to_read_need_permission_alone() -> None:
    found = subscribe_queues(
        "T",
        route(
            ("d", {0: "d:1"}, 6, 1, 5),
            ("slave-only", {1: "s:1"}, 4, 1, 2),
            ("write-only", {0: "r:1"}, 2, 2, 2),
        ),
    )
    assert places(found) == [("d", 0), ("slave-only", 0)]


def test_an_operator_may_fix_the_queues() -> None:
    found = publish_queues(
        "T", route(("d", {0: "d:1"}, 6, 3, 2), order_topic_conf="b:2;a:1;x;c:" + "9" * 5000)
    )
    assert places(found) == [("b", 0), ("b", 1), ("a", 0)]


def test_a_look_up_is_shared_by_all_who_ask() -> None:
    world = ClientWorld()
    instance = world.instance()
    asked: list[Any] = []
    table = world.name_server.dispatcher._table
    handler, *rest = table[105]
    table[105] = (lambda request: asked.append(1) or handler(request), *rest)  # type: ignore[func-returns-value]
    looked = [instance.routes.update("TBW102") for _ in range(50)]
    looked[7].cancel()
    looked[7].addErrback(lambda _: None)
    assert all(world.wait(one) for place, one in enumerate(looked) if place != 7)
    assert len(asked) == 1


def test_a_change_of_queues_reaches_all_tables_and_the_roles() -> None:
    world = ClientWorld()
    producer = world.producer()
    world.brokers[2].core.topics.update(
        [TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2)]
    )
    world.network.run(0.2)
    world.wait(producer.send(Message("T", b"x")))
    routes = producer.instance.routes
    turn = routes.publish["T"].turn
    assert len(routes.publish["T"].queues) == len(routes.subscribe["T"]) == 2
    world.brokers[2].core.topics.update(
        [TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=5)]
    )
    world.network.skip(31)
    assert len(routes.publish["T"].queues) == 5
    assert len(routes.subscribe["T"]) == 8
    assert routes.publish["T"].turn == turn


def test_a_new_broker_is_used_after_the_next_poll() -> None:
    world = ClientWorld()
    producer = world.producer()
    for _ in range(4):
        world.wait(producer.send(Message("T", b"x")))
    world.brokers[3] = start_broker(world.network, 3, namesrv_addr=NAME_SERVER)
    world.brokers[3].core.topics.update([TopicConfig(topic_name="T")])
    world.network.skip(31)
    used = {world.wait(producer.send(Message("T", b"x"))).queue.broker_name for _ in range(32)}
    assert used == {"broker-2", "broker-3"}
    # It was told of the producer at once, not with the next heartbeat.
    assert world.brokers[3].core.producers.groups() == ["PG"]


def test_a_good_route_outlives_a_name_server_that_does_not_know_it() -> None:
    world = ClientWorld()
    producer = world.producer()
    world.wait(producer.send(Message("T", b"x")))
    table = world.name_server.dispatcher._table
    _, *rest = table[105]
    for answer in (Reply(17, remark="none"), Reply(1, remark="not ready")):
        table[105] = (lambda request, a=answer: a, *rest)
        world.network.skip(31)
        world.wait(producer.send(Message("T", b"x")))
    world.network.kill(NAME_SERVER)
    world.network.skip(31)
    world.wait(producer.send(Message("T", b"x")))


def test_a_topic_that_is_not_there_has_the_queues_that_it_would_get() -> None:
    world = ClientWorld()
    instance = world.instance()
    info = world.wait(instance.routes.find_publish("New", default_queues=2))
    assert places(info.queues) == [("broker-2", 0), ("broker-2", 1)]
    with pytest.raises(NoSuchTopicError, match="knows no topic Other"):
        world.wait(instance.routes.find_subscribe("Other"))


def test_reasons_are_told() -> None:
    world = ClientWorld()
    routes = world.instance().routes
    routes.put("RO", route(("a", {0: "a:1"}, 4, 1, 1), ("b", {1: "b:1"}, 6, 1, 1)))
    world.brokers[2].core.topics.update([TopicConfig(topic_name="RO", perm=4)])
    world.network.run(0.2)
    with pytest.raises(NoRouteError, match="RO must not be written, there is no permission"):
        world.wait(routes.find_publish("RO"))
    lonely = ClientWorld(brokers=0)
    with pytest.raises(NoRouteError, match="no broker is registered"):
        lonely.wait(lonely.instance().routes.find_publish("T"))


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Reply(3, remark="what"), "is no name server"),
        (Reply(0, body=b"{"), "route of topic T"),
        (Reply(0, body=encode_body(route(("a", {0: "a:1"}, 6, 1 << 20, 1)))), "are believed"),
        (
            Reply(0, body=encode_body(route(order_topic_conf="a:1;b:900000000"))),
            "900000000 queues at broker b; at most 65536 are believed",
        ),
        (
            Reply(0, body=encode_body(route(order_topic_conf="a:65536;" * 9))),
            "589824 queues to write and to read; at most 524288 are believed",
        ),
    ],
)
def test_answers_that_are_no_route(answer: Reply, text: str) -> None:
    world = ClientWorld()
    table = world.name_server.dispatcher._table
    _, *rest = table[105]
    table[105] = (lambda request: answer, *rest)
    with pytest.raises(MQClientError, match=text):
        world.wait(world.instance().routes.fetch("T"))


def test_members_of_a_broker_group() -> None:
    routes = ClientWorld().instance().routes
    routes.put("T", route(("a", {0: "a:0", 2: "a:2"}, 6, 1, 1), ("s", {3: "s:3"}, 6, 1, 1)))
    routes.versions["a:2"] = 493
    assert routes.find_broker("a") == FoundBroker("a:0", False, 0)
    assert routes.find_broker("a", 2) == FoundBroker("a:2", True, 493)
    assert routes.find_broker("a", 1) == FoundBroker("a:2", True, 493)  # the slave after it
    assert routes.find_broker("a", 7) == FoundBroker("a:0", False, 0)
    assert routes.find_broker("a", 7, only_this=True) is None
    assert routes.find_broker("s") == FoundBroker("s:3", True, 0)
    assert routes.find_broker("gone") is None
    assert routes.master_address("s") is None


def test_brokers_without_a_topic_are_forgotten() -> None:
    world = ClientWorld(brokers=2)
    producer = world.producer()
    for _ in range(8):
        world.wait(producer.send(Message("T", b"x")))
    stop_broker(world.network, world.brokers.pop(3))
    world.network.skip(61)
    assert set(producer.instance.routes.brokers) == {"broker-2"}
