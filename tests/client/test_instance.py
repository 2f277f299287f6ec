"""What the roles of a client share: life, heartbeats, timed work, answers to brokers."""

from __future__ import annotations

from typing import Any

import pytest
from client_world import NAME_SERVER, ClientWorld
from roles import NotingConsumer
from small_world import start_broker
from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from txrocketmq.client.config import ClientConfig
from txrocketmq.client.instance import ClientInstance, shared_instance
from txrocketmq.client.interfaces import IConsumerRole, IProducerRole
from txrocketmq.client.producer.producer import Producer
from txrocketmq.codec.bodies.clients import ConsumerRunningInfo
from txrocketmq.codec.bodies.offsets import GetConsumerStatusBody, ResetOffsetBody
from txrocketmq.codec.bodies.wire import decode_body, encode_body
from txrocketmq.codec.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    ResetOffsetRequestHeader,
)
from txrocketmq.codec.record import encode_record
from txrocketmq.errors import MQClientError
from txrocketmq.model.message import Message, MessageQueue, MessageRecord


def started(world: ClientWorld, *topics: str, **settings: Any) -> tuple[ClientInstance, Any]:
    """An instance with one consumer that subscribes to topics, known to the brokers."""
    instance = world.instance(**settings)
    world.wait(instance.acquire())
    role = NotingConsumer("CG", *topics)
    instance.register_consumer("CG", role)
    world.wait(instance.poll_routes())
    world.wait(instance.heartbeat_now())
    return instance, role


def group_of(world: ClientWorld, number: int = 2, group: str = "CG") -> Any:
    return world.brokers[number].core.consumers.get(group)


# --------------------------------------------------------------------- life


def test_default_client_ids_differ() -> None:
    ids = {ClientConfig(client_ip="192.0.2.9").client_id for _ in range(1000)}
    assert len(ids) == 1000
    assert all(one.startswith("192.0.2.9@") for one in ids)


def test_client_ids_tell_unit_and_stream() -> None:
    config = ClientConfig(
        client_ip="1.2.3.4", instance_name="i", unit_name="u", enable_stream_request_type=True
    )
    assert config.client_id == "1.2.3.4@i@u@STREAM"


def test_roles_of_one_client_id_share_an_instance_which_ends_with_the_last() -> None:
    world = ClientWorld()
    config = ClientConfig(namesrv_addr=NAME_SERVER, instance_name="shared")
    instance = shared_instance(world.clock, config)
    assert shared_instance(world.clock, config) is instance
    assert shared_instance(world.clock, ClientConfig(namesrv_addr=NAME_SERVER)) is not instance
    one, two = (Producer(world.clock, group, config) for group in ("A", "B"))
    assert one.instance is two.instance is instance
    world.wait(one.start())
    world.wait(two.start())
    world.wait(one.stop())
    assert instance.running
    world.wait(two.stop())
    assert not instance.running
    assert shared_instance(world.clock, config) is not instance


def test_a_group_is_in_a_client_once() -> None:
    world = ClientWorld()
    instance, role = started(world)
    with pytest.raises(MQClientError, match="CG is there already"):
        instance.register_consumer("CG", role)
    producer = Producer(world.clock, "PG", instance=instance)
    world.wait(producer.start())
    with pytest.raises(MQClientError, match="PG is there already"):
        world.wait(Producer(world.clock, "PG", instance=instance).start())
    world.wait(producer.stop())
    assert instance.running


def test_seams() -> None:
    world = ClientWorld()
    verifyObject(IProducerRole, world.producer())
    verifyObject(IConsumerRole, NotingConsumer("G"))


def test_no_name_server_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    world = ClientWorld()
    producer = Producer(world.clock, "PG", instance=world.instance(namesrv_addr=""))
    with pytest.raises(MQClientError, match="NAMESRV_ADDR"):
        world.wait(producer.start())
    assert not producer.instance.running
    assert world.network.connects.count(NAME_SERVER) == 1  # the broker's


def test_a_stop_says_good_bye_and_leaves_nothing_behind() -> None:
    world = ClientWorld()
    before = len(world.clock.getDelayedCalls())
    producer = world.producer()
    world.wait(producer.send(Message("T", b"x")))
    world.network.run(1.1)
    assert world.brokers[2].core.producers.groups() == ["PG"]
    world.wait(producer.stop())
    world.network.run(0.1)
    assert world.brokers[2].core.producers.groups() == []
    assert len(world.clock.getDelayedCalls()) <= before


# --------------------------------------------------------------------- heartbeats


def test_producers_tell_masters_and_consumers_tell_all() -> None:
    world = ClientWorld()
    instance = world.instance()
    instance.routes.brokers["b"] = {0: "192.0.2.2:10911", 1: "192.0.2.9:10911"}
    instance.register_producer("PG", object())  # type: ignore[arg-type]
    heartbeats = instance.heartbeats
    assert heartbeats.targets(heartbeats.build()) == ["192.0.2.2:10911"]
    instance.register_consumer("CG", NotingConsumer("CG", "T"))
    assert heartbeats.targets(heartbeats.build()) == ["192.0.2.2:10911", "192.0.2.9:10911"]


def test_one_dead_broker_keeps_no_heartbeat_from_the_others() -> None:
    world = ClientWorld(brokers=2)
    world.network.kill("192.0.2.2:10911")
    world.network.block("192.0.2.2:10911")
    instance = world.instance()
    world.wait(instance.acquire())
    instance.register_consumer("CG", NotingConsumer("CG", "TBW102"))
    world.wait(instance.poll_routes())
    instance.heartbeat_now()
    world.network.run(0.1)
    assert group_of(world, 3).client_ids() == [instance.client_id]
    assert instance.routes.versions["192.0.2.3:10911"] > 0


def test_heartbeats_come_every_half_minute_and_at_once_after_a_reconnect() -> None:
    world = ClientWorld()
    instance, role = started(world, "TBW102")
    world.network.skip(200)
    assert group_of(world).client_ids() == [instance.client_id]
    for connection in list(world.brokers[2].factory.group.connections):
        connection.close("test")
    world.network.run(0.1)
    assert not group_of(world)
    world.wait(instance.api.max_offset("192.0.2.2:10911", queue(0)))
    world.network.run(0.1)
    assert group_of(world).client_ids() == [instance.client_id]
    assert role.told[-1] == "rebalance"


def queue(number: int) -> MessageQueue:
    return MessageQueue(topic="TBW102", broker_name="broker-2", queue_id=number)


def test_the_second_version_leaves_known_subscriptions_out() -> None:
    world = ClientWorld()
    bodies: list[bytes] = []
    table = world.brokers[2].dispatcher._table
    handler, *rest = table[34]
    table[34] = (lambda request: bodies.append(request.body) or handler(request), *rest)  # type: ignore[func-returns-value]
    instance, role = started(world, "TBW102", use_heartbeat_v2=True)
    for _ in range(3):
        world.wait(instance.heartbeat_now())
    assert [b'"withoutSub":true' in body for body in bodies].count(True) >= 2
    assert b"subString" not in bodies[-1]
    role.tag = "other"
    world.wait(instance.heartbeat_now())
    assert b'"subString":"other"' in bodies[-1]
    assert group_of(world).client_ids() == [instance.client_id]
    for _ in range(2):  # the broker says once that the subscription has changed
        world.wait(instance.heartbeat_now())
    assert b"subString" not in bodies[-1]


# --------------------------------------------------------------------- timed work


def test_timed_work_of_consumers() -> None:
    world = ClientWorld()
    _, role = started(world, "TBW102")
    role.told.clear()
    world.network.skip(60)
    assert role.told.count("rebalance") == 3
    assert role.told.count("persist") == 11


def test_a_rebalance_that_takes_long_is_not_begun_again_but_right_after() -> None:
    world = ClientWorld()
    instance, role = started(world, "TBW102")
    role.told.clear()
    role.rebalancing = Deferred()
    instance.rebalance_now("CG")
    instance.rebalance_now()
    world.network.skip(50)
    assert role.told.count("rebalance") == 1
    going, role.rebalancing = role.rebalancing, None
    going.callback(None)
    assert role.told.count("rebalance") == 2


def test_a_rebalance_that_fails_comes_again() -> None:
    world = ClientWorld()
    instance, role = started(world, "TBW102")
    role.rebalancing = Deferred()
    instance.rebalance_now("CG")
    going, role.rebalancing = role.rebalancing, None
    going.errback(MQClientError("no"))
    role.told.clear()
    world.network.skip(21)
    assert role.told.count("rebalance") == 1


def test_roles_hear_of_changed_queues() -> None:
    world = ClientWorld()
    _, role = started(world, "TBW102")
    assert ("queues", "TBW102", 8) in role.told
    world.brokers[3] = start_broker(world.network, 3, namesrv_addr=NAME_SERVER)
    world.network.skip(31)
    assert ("queues", "TBW102", 16) in role.told


def test_members_of_a_group() -> None:
    world = ClientWorld()
    instance, _ = started(world, "TBW102")
    assert world.wait(instance.consumer_ids("TBW102", "CG")) == [instance.client_id]
    assert world.wait(instance.consumer_ids("TBW102", "nobody")) == []
    assert len(world.wait(instance.subscribe_queues("TBW102"))) == 8


# --------------------------------------------------------------------- requests of brokers


def ask(world: ClientWorld, code: int, header: Any, body: bytes = b"") -> Any:
    """A broker asks all its clients; the last answer."""
    answers = [
        world.wait(connection.request(code, header, body))
        for connection in list(world.brokers[2].factory.group.connections)
    ]
    return answers[-1]


def test_a_notice_of_changed_members_divides_the_queues_anew() -> None:
    world = ClientWorld()
    _, role = started(world, "TBW102")
    role.told.clear()
    for connection in list(world.brokers[2].factory.group.connections):
        connection.oneway(40, NotifyConsumerIdsChangedRequestHeader(consumer_group="CG"), b"")
    world.network.run(0.1)
    assert role.told == ["rebalance"]


def test_offsets_are_reset() -> None:
    world = ClientWorld()
    _, role = started(world, "TBW102")
    header = ResetOffsetRequestHeader(group="CG", topic="TBW102", timestamp=1, is_force=True)
    body = encode_body(ResetOffsetBody(offset_table={queue(3): 42}))
    assert ask(world, 220, header, body).code == 0
    assert role.told[-1] == ("reset", "TBW102", {queue(3): 42})


def test_status_and_running_info_are_told() -> None:
    world = ClientWorld()
    started(world, "TBW102")
    status = ask(world, 221, GetConsumerStatusRequestHeader(group="CG", topic="TBW102"))
    assert decode_body(GetConsumerStatusBody, status.body).message_queue_table == {queue(1): 7}
    header = GetConsumerRunningInfoRequestHeader(consumer_group="CG", client_id="x")
    info = decode_body(ConsumerRunningInfo, ask(world, 307, header).body)
    assert (info.properties["PROP_THREADPOOL_CORE_SIZE"], info.jstack) == ("20", None)
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group="CG", client_id="x", jstack_enable=True
    )
    info = decode_body(ConsumerRunningInfo, ask(world, 307, header).body)
    assert "MainThread" in (info.jstack or "")


def test_a_message_is_consumed_by_order() -> None:
    world = ClientWorld()
    _, role = started(world, "TBW102")
    record = encode_record(MessageRecord(topic="TBW102", queue_id=1, body=b"try me"), 0, 0, 1)
    header = ConsumeMessageDirectlyResultRequestHeader(consumer_group="CG", broker_name="broker-2")
    answer = ask(world, 309, header, record)
    assert b'"consumeResult":"CR_SUCCESS"' in answer.body
    assert role.told[-1] == ("directly", b"try me", "broker-2")
    assert ask(world, 309, header, record[:50]).code == 1


@pytest.mark.parametrize(
    ("code", "header"),
    [
        (307, GetConsumerRunningInfoRequestHeader(consumer_group="other", client_id="x")),
        (309, ConsumeMessageDirectlyResultRequestHeader(consumer_group="other")),
    ],
)
def test_a_group_that_is_not_here(code: int, header: Any) -> None:
    world = ClientWorld()
    started(world, "TBW102")
    answer = ask(world, code, header)
    assert answer.code == 1
    assert answer.remark == "The Consumer Group <other> not exist in this consumer"


def test_what_no_client_serves_is_said() -> None:
    world = ClientWorld()
    started(world, "TBW102")
    assert ask(world, 10, None).code == 3


def test_name_spaces_and_stream_marks_travel_in_every_request() -> None:
    world = ClientWorld()
    seen: list[Any] = []
    table = world.brokers[2].dispatcher._table
    handler, *rest = table[310]
    table[310] = (lambda request: seen.append(request.ext_fields) or handler(request), *rest)  # type: ignore[func-returns-value]
    client = {"namespace_v2": "NS2", "enable_stream_request_type": True}
    producer = world.producer(client=client)
    world.wait(producer.send(Message("T", b"x")))
    assert (seen[0]["ns"], seen[0]["nsd"], seen[0]["ReqT"]) == ("NS2", "true", "0")
