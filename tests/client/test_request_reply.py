"""Request and reply: the asking side, and the messages of the answering side."""

from __future__ import annotations

import zlib

import pytest
from client_world import ClientWorld
from twisted.internet.defer import CancelledError

from txrocketmq.client.producer.outgoing import property_text
from txrocketmq.client.producer.recall import parse_recall_handle
from txrocketmq.client.replies import RequestTimeoutError, create_reply
from txrocketmq.codec.headers import ReplyMessageRequestHeader
from txrocketmq.errors import BrokerError, MQClientError
from txrocketmq.model import properties as props
from txrocketmq.model.flags import COMPRESSED_FLAG, COMPRESSION_ZLIB_TYPE
from txrocketmq.model.message import Message
from txrocketmq.model.topic import TopicConfig


def answer_next(world: ClientWorld) -> int:
    """Do what a consumer and its broker do: read the requests, and push a reply to each to all who are connected; how many said
    that they took it."""
    broker = world.brokers[2]
    taken = 0
    for _, queue_id, body, properties in world.stored("Ask"):
        reply = create_reply(Message("Ask", body, 0, properties), b"re: " + body)
        header = ReplyMessageRequestHeader(
            producer_group="Replier",
            topic=reply.topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=COMPRESSED_FLAG | COMPRESSION_ZLIB_TYPE,
            born_timestamp=1,
            flag=0,
            properties=property_text(reply.properties),
            born_host="/192.0.2.7:1234",
            store_host="somewhere/192.0.2.8:1234",
            store_timestamp=2,
        )
        for connection in list(broker.factory.group.connections):
            pushed = connection.request(326, header, zlib.compress(reply.body))
            taken += world.wait(pushed).code == 0
    return taken


def test_a_reply_comes_back() -> None:
    world = ClientWorld()
    asker = world.producer("Asker")
    asked = asker.request(Message("Ask", b"question"), timeout_ms=3000)
    world.network.run(0.1)
    assert answer_next(world) == 1
    reply = world.wait(asked)
    assert reply.body == b"re: question"
    assert reply.properties[props.REPLY_MESSAGE_ARRIVE_TIME]
    assert (reply.topic, reply.born_host) == ("ClusterA_REPLY_TOPIC", ("192.0.2.7", 1234))
    assert reply.store_host == ("192.0.2.8", 1234)
    assert len(asker.instance.replies) == 0


def test_a_producer_that_has_sent_already_is_made_known_before_it_asks() -> None:
    """A broker that never heard of the asker could not pass the reply on, and the first heartbeat comes after a second."""
    world = ClientWorld()
    asker = world.producer("Asker")
    world.wait(asker.send(Message("Ask", b"no question")))
    asker.request(Message("Ask", b"question"), timeout_ms=3000).addErrback(lambda _: None)
    world.network.run(0.1)
    assert world.brokers[2].core.producers.connection_of(asker.instance.client_id) is not None


def test_a_request_does_not_wait_for_brokers_that_have_nothing_to_do_with_it() -> None:
    world = ClientWorld(brokers=2)
    for number, topic in ((2, "Ask"), (3, "Other")):
        broker = world.brokers[number]
        broker.core.topics.update([TopicConfig(topic_name=topic)])
    world.network.run(1)
    asker = world.producer("Asker")
    world.wait(asker.send(Message("Other", b"so that both are known")))
    table = world.brokers[3].dispatcher._table
    table[34] = (lambda request: None, *table[34][1:])
    asked = asker.request(Message("Ask", b"question"), timeout_ms=1000)
    world.network.run(0.2)
    assert answer_next(world) == 1
    assert world.wait(asked).body == b"re: question"


def test_no_reply_is_a_time_out_and_a_late_one_harms_nobody() -> None:
    world = ClientWorld()
    asker = world.producer("Asker")
    with pytest.raises(RequestTimeoutError, match="within 500 ms"):
        world.wait(asker.request(Message("Ask", b"question"), timeout_ms=500))
    assert answer_next(world) == 1
    assert len(asker.instance.replies) == 0


def test_a_request_that_cannot_be_sent_waits_for_nothing() -> None:
    world = ClientWorld(auto_create_topic_enable=False)
    asker = world.producer("Asker")
    world.brokers[2].core.topics.update([TopicConfig(topic_name="SELF")])
    world.network.run(1)
    with pytest.raises(MQClientError, match="Ask"):
        world.wait(asker.request(Message("Ask", b"question"), timeout_ms=3000))
    with pytest.raises(MQClientError, match="no body"):
        world.wait(asker.request(Message("SELF", b""), timeout_ms=3000))
    assert len(asker.instance.replies) == 0


def test_a_request_can_be_cancelled() -> None:
    world = ClientWorld()
    asker = world.producer("Asker")
    asked = asker.request(Message("Ask", b"question"), timeout_ms=3000)
    world.network.run(0.1)
    asked.cancel()
    assert isinstance(world.outcome(asked).value, CancelledError)
    assert len(asker.instance.replies) == 0


def test_a_reply_needs_a_request() -> None:
    with pytest.raises(MQClientError, match="is no request"):
        create_reply(Message("T", b"x"), b"y")


def test_recall_handles() -> None:
    found = parse_recall_handle("djEgVG9waWMgYnJva2VyLTIgMTcwMDAwMDAwMDAwMCAwQTBC")
    assert (found.topic, found.broker_name) == ("Topic", "broker-2")
    assert (found.deliver_time, found.message_id) == ("1700000000000", "0A0B")
    for bad in ("", "x", "djEgVG9waWM=", "djIgVG9waWMgYnJva2VyLTIgMTcwMDAwMDAwMDAwMCAwQTBC", "é"):
        with pytest.raises(MQClientError, match="not valid"):
            parse_recall_handle(bad)


def test_a_recall_asks_the_broker_of_the_handle() -> None:
    world = ClientWorld()
    producer = world.producer()
    handle = "djEgVG9waWMgYnJva2VyLTIgMTcwMDAwMDAwMDAwMCAwQTBC"
    with pytest.raises(BrokerError):
        world.wait(producer.recall("TopicTest", handle))
    other = "djEgVG9waWMgYnJva2VyLTkgMTcwMDAwMDAwMDAwMCAwQTBC"
    with pytest.raises(MQClientError, match="broker-9"):
        world.wait(producer.recall("TopicTest", other))
