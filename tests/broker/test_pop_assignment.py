"""QUERY_ASSIGNMENT and the request modes: who consumes which queues, and how."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import FakeClient
from golden import units
from pops import make_topic, pass_time
from small_broker import ROOT, Peer, SmallBroker
from transactions import killed

from txrocketmq.broker.pop.assignment import FILE_NAME, allocate_for_pop, averagely, by_circle
from txrocketmq.codec.bodies import encode_route
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.message import MessageQueue
from txrocketmq.model.route import BrokerData, QueueData, TopicRouteData


def set_mode(peer: Peer, mode: str = "POP", shared: int = 0, topic: str = "TopicA") -> Any:
    body = {"consumerGroup": "G", "mode": mode, "popShareQueueNum": shared, "topic": topic}
    return peer.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, None, json.dumps(body).encode())


def join(broker: SmallBroker, client_id: str, port: int, topic: str = "TopicA") -> Peer:
    peer = broker.connect(port)
    body = {
        "clientID": client_id,
        "consumerDataSet": [
            {
                "groupName": "G",
                "consumeType": "CONSUME_POP",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [{"topic": topic, "subString": "*"}],
            }
        ],
    }
    assert peer.ask(RequestCode.HEART_BEAT, None, json.dumps(body).encode()).code == 0
    return peer


def question(client_id: str, topic: str = "TopicA", **fields: str) -> bytes:
    """Which queues of a topic are a client's?"""
    body = {
        "clientId": client_id,
        "consumerGroup": "G",
        "messageModel": "CLUSTERING",
        "strategyName": "AVG",
        "topic": topic,
        **fields,
    }
    return json.dumps(body).encode()


def assigned(peer: Peer, client_id: str, topic: str = "TopicA", **fields: str) -> Any:
    body = question(client_id, topic, **fields)
    answer = peer.ask(RequestCode.QUERY_ASSIGNMENT, None, body)
    assert answer.code == 0
    found = json.loads(answer.body).get("messageQueueAssignments")
    if found is None:
        return None
    return [
        (entry["messageQueue"]["brokerName"], entry["messageQueue"]["queueId"], entry["mode"])
        for entry in found
    ]


def test_members_that_pull_divide_the_queues(broker: SmallBroker) -> None:
    make_topic(broker, queues=3)
    one, two = join(broker, "c1", 1), join(broker, "c2", 2)
    name = "broker-a"
    assert assigned(one, "c1") == [(name, 0, "PULL"), (name, 1, "PULL")]
    assert assigned(two, "c2") == [(name, 2, "PULL")]
    circle = assigned(one, "c1", strategyName="AVG_BY_CIRCLE")
    assert circle == [(name, 0, "PULL"), (name, 2, "PULL")]


def test_members_that_pop_get_every_broker_as_a_whole(broker: SmallBroker) -> None:
    make_topic(broker, queues=3)
    one, two = join(broker, "c1", 1), join(broker, "c2", 2)
    assert set_mode(one).code == 0
    for peer, client_id in ((one, "c1"), (two, "c2")):
        assert assigned(peer, client_id) == [("broker-a", -1, "POP")]
    # Retry topics are always pulled.
    make_topic(broker, "%RETRY%G")
    assert assigned(one, "c1", "%RETRY%G") == [("broker-a", 0, "PULL")]
    assert set_mode(one, "PULL").code == 0
    assert assigned(two, "c2") == [("broker-a", 2, "PULL")]


def test_the_default_mode_is_configured(broker: SmallBroker) -> None:
    make_topic(broker, queues=2)
    peer = join(broker, "c1", 1)
    broker.config.default_message_request_mode = "POP"
    assert assigned(peer, "c1") == [("broker-a", -1, "POP")]


@pytest.mark.parametrize("kill", [False, True])
def test_modes_are_kept(kill: bool) -> None:
    broker = SmallBroker()
    make_topic(broker)
    assert set_mode(broker.connect(), shared=3).code == 0
    broker = killed(broker) if kill else broker.restarted()
    saved = json.loads(broker.disk.read_file(f"{ROOT}/config/{FILE_NAME}"))
    mode = {"consumerGroup": "G", "mode": "POP", "popShareQueueNum": 3, "topic": "TopicA"}
    assert saved == {"messageRequestModeMap": {"TopicA": {"G": mode}}}
    answer = broker.connect().ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    assert json.loads(answer.body) == saved
    assert assigned(join(broker, "c1", 1), "c1") == [("broker-a", -1, "POP")]
    for feature in broker.core.features:
        feature.group_deleted("G")
    answer = broker.connect().ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    assert json.loads(answer.body) == {"messageRequestModeMap": {}}
    broker.stop()


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        ("%RETRY%G", ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode"),
        ("Nowhere", ResponseCode.TOPIC_NOT_EXIST, "topic[Nowhere] not exist"),
    ],
)
def test_modes_of_what_is_not_there_are_refused(
    broker: SmallBroker, peer: Peer, topic: str, code: int, words: str
) -> None:
    answer = set_mode(peer, topic=topic)
    assert (answer.code, answer.remark) == (code, words)


def test_who_is_no_member_is_told_to_leave_everything_as_it_is(
    broker: SmallBroker, peer: Peer
) -> None:
    make_topic(broker, queues=2)
    assert assigned(peer, "c1") is None
    member = join(broker, "c1", 1)
    assert assigned(member, "c1", "Nowhere") is None
    assert assigned(member, "c1", strategyName="MACHINE_ROOM") is None
    # A member that the broker has not heard of yet gets nothing.
    assert assigned(member, "c9") == []
    everything = [("broker-a", 0, "PULL"), ("broker-a", 1, "PULL")]
    assert assigned(member, "c1", messageModel="BROADCASTING") == everything
    broker.config.server_load_balancer_enable = False
    assert assigned(member, "c9") == everything


# ----------------------------------------------------------------- several brokers


def test_queues_of_all_brokers_are_divided() -> None:
    client = FakeClient()
    broker = SmallBroker(client=client, namesrv_addr="192.0.2.7:9876;192.0.2.8:9876")
    member = join(broker, "c1", 1)
    route = TopicRouteData(
        queue_datas=[
            QueueData(broker_name="broker-a", read_queue_nums=2, perm=6),
            QueueData(broker_name="broker-b", read_queue_nums=1, perm=4),
            QueueData(broker_name="broker-c", read_queue_nums=9, perm=2),
        ],
        broker_datas=[BrokerData(broker_name="broker-a", broker_addrs={0: "192.0.2.1:10911"})],
    )

    def asked() -> list[Any]:
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        return [found for found in client.asked if found.command.code == code]

    opaque = member.tell(RequestCode.QUERY_ASSIGNMENT, None, question("c1"))
    (first,) = asked()
    first.fail()
    first, second = asked()
    assert [first.address, second.address] == ["192.0.2.7:9876", "192.0.2.8:9876"]
    second.answer(body=encode_route(route, strict=False))
    answer = member.answer(opaque)
    assert answer is not None
    found = json.loads(answer.body)["messageQueueAssignments"]
    assert [
        (entry["messageQueue"]["brokerName"], entry["messageQueue"]["queueId"]) for entry in found
    ] == [("broker-a", 0), ("broker-a", 1), ("broker-b", 0)]
    # For a while nobody is asked again, and then what is known serves when nobody answers.
    assert len(assigned(member, "c1")) == 3
    assert len(asked()) == 2
    pass_time(broker, 31)
    opaque = member.tell(RequestCode.QUERY_ASSIGNMENT, None, question("c1"))
    asked()[-1].fail()
    asked()[-1].fail()
    answer = member.answer(opaque)
    assert answer is not None
    assert len(json.loads(answer.body)["messageQueueAssignments"]) == 3
    opaque = member.tell(RequestCode.QUERY_ASSIGNMENT, None, question("c1"))
    asked()[-1].answer(code=ResponseCode.TOPIC_NOT_EXIST)
    answer = member.answer(opaque)
    assert answer is not None
    assert json.loads(answer.body) == {}
    for left in client.asked:
        if not left.deferred.called:
            left.fail()
    broker.stop()


def test_a_broker_of_a_billion_queues_is_not_believed() -> None:
    client = FakeClient()
    broker = SmallBroker(client=client, namesrv_addr="192.0.2.7:9876")
    member = join(broker, "c1", 1)
    route = TopicRouteData(
        queue_datas=[
            QueueData(broker_name="broker-x", read_queue_nums=2**31 - 1, perm=6),
            QueueData(broker_name="broker-b", read_queue_nums=2, perm=6),
        ]
    )
    opaque = member.tell(RequestCode.QUERY_ASSIGNMENT, None, question("c1"))
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    (asked,) = [found for found in client.asked if found.command.code == code]
    asked.answer(body=encode_route(route, strict=False))
    answer = member.answer(opaque)
    assert answer is not None
    found = json.loads(answer.body)["messageQueueAssignments"]
    assert [(entry["messageQueue"]["brokerName"], entry["messageQueue"]["queueId"])
            for entry in found] == [("broker-b", 0), ("broker-b", 1)]  # fmt: skip
    for left in client.asked:
        if not left.deferred.called:
            left.fail()
    broker.stop()


# ----------------------------------------------------------------- how queues are divided


def queue_of(text: str) -> MessageQueue:
    topic, _, number = text.rpartition(":")
    topic, _, name = topic.rpartition("@")
    return MessageQueue(topic="T", broker_name=f"{topic}@{name}", queue_id=int(number))


@pytest.mark.parametrize(("name", "divide"), [("AVG", averagely), ("AVG_BY_CIRCLE", by_circle)])
def test_queues_are_divided_as_official_brokers_do(name: str, divide: Any) -> None:
    compared = 0
    for vector in units("5.4.0")["allocation"]:
        if vector["strategy"] != name:
            continue
        queues = [queue_of(text) for text in vector["queues"]]
        for client_id, wanted in vector["result"].items():
            got = divide(client_id, queues, vector["consumers"])
            assert got == [queue_of(text) for text in wanted]
            compared += 1
    assert compared > 5


def test_members_share_the_queues_of_those_behind_them() -> None:
    queues = [MessageQueue(topic="T", broker_name="b", queue_id=number) for number in range(4)]
    members = ["c1", "c2", "c3", "c4"]

    def ids(client_id: str, shared: int, clients: list[str] = members) -> list[int]:
        found = allocate_for_pop(averagely, client_id, queues, clients, shared)
        return [queue.queue_id for queue in found]

    assert ids("c1", 1) == [0, 1]
    assert ids("c4", 2) == [3, 0, 1]
    assert ids("c1", 3) == ids("c1", 0) == ids("c1", -1) == [-1] * 4
    assert ids("nobody", 1) == []
    # More members than queues: each has one.
    many = [f"c{number}" for number in range(1, 8)]
    assert [ids(client_id, 1, many) for client_id in many] == [[n % 4] for n in range(7)]
