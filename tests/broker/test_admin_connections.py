"""Who is connected and consumes what; what the broker asks of clients for operators."""

from __future__ import annotations

import json

from operators import Client, commit, create_group, create_topic, refused, spelt, told
from small_broker import START_S, Peer, SmallBroker

from txrocketmq.codec.bodies import GetConsumerStatusBody, decode_body, encode_body
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.record import decode_records
from txrocketmq.model.codes import VERSION_NAMES, RequestCode, ResponseCode
from txrocketmq.model.message import MessageQueue

R = RequestCode
GO = 9
QUEUE = MessageQueue(topic="TopicA", broker_name="broker-a", queue_id=0)


def ask_later(peer: Peer, code: int, **fields: object) -> int:
    """Ask what is answered only after a client said something; the opaque."""
    return peer.tell(code, ext_fields={name: spelt(value) for name, value in fields.items()})


def answer_to(peer: Peer, opaque: int) -> RemotingCommand:
    answer = peer.answer(opaque)
    assert answer is not None
    return answer


# ----------------------------------------------------------------- BR-64


def test_members_of_a_consumer_group(broker: SmallBroker, peer: Peer) -> None:
    Client(broker, "a", port=50_001).beat(TopicA="x || y")
    Client(broker, "b", port=50_002, version=407, language=GO).beat(TopicA="x || y")
    answer = told(peer, R.GET_CONSUMER_CONNECTION_LIST, consumerGroup="G")
    assert sorted(answer["connectionSet"], key=lambda member: str(member["clientId"])) == [
        {"clientAddr": "192.0.2.10:50001", "clientId": "a", "language": "JAVA", "version": 493},
        {"clientAddr": "192.0.2.10:50002", "clientId": "b", "language": "GO", "version": 407},
    ]
    assert (answer["consumeType"], answer["messageModel"], answer["consumeFromWhere"]) == (
        "CONSUME_PASSIVELY",
        "CLUSTERING",
        "CONSUME_FROM_LAST_OFFSET",
    )
    assert answer["subscriptionTable"]["TopicA"]["subString"] == "x || y"
    assert refused(peer, R.GET_CONSUMER_CONNECTION_LIST, consumerGroup="Nobody") == (
        ResponseCode.CONSUMER_NOT_ONLINE,
        "the consumer group[Nobody] not online",
    )


def test_members_of_producer_groups(broker: SmallBroker, peer: Peer) -> None:
    body = {"clientID": "p", "consumerDataSet": [], "producerDataSet": [{"groupName": "P"}]}
    producer = broker.connect(50_003)
    assert producer.ask(R.HEART_BEAT, None, json.dumps(body).encode()).code == 0
    (member,) = told(peer, R.GET_PRODUCER_CONNECTION_LIST, producerGroup="P")["connectionSet"]
    assert (member["clientId"], member["clientAddr"]) == ("p", "192.0.2.10:50003")
    (member,) = told(peer, R.GET_ALL_PRODUCER_INFO)["data"]["P"]
    assert member["remoteIP"] == "/192.0.2.10:50003"
    assert member["lastUpdateTimestamp"] == START_S * 1000
    producer.close()
    assert refused(peer, R.GET_PRODUCER_CONNECTION_LIST, producerGroup="P") == (
        ResponseCode.SYSTEM_ERROR,
        "the producer group[P] not exist",
    )
    assert told(peer, R.GET_ALL_PRODUCER_INFO) == {"data": {}}


# ----------------------------------------------------------------- BR-65


def test_who_consumes_a_topic_is_who_subscribes_now_or_has_offsets(
    broker: SmallBroker, peer: Peer
) -> None:
    create_topic(peer, "TopicA")
    create_group(peer, "Gone")
    commit(peer, "Gone", "TopicA", 0, 0)
    Client(broker, group="Live").beat(TopicA="*")
    found = told(peer, R.QUERY_TOPIC_CONSUME_BY_WHO, topic="TopicA")["groupList"]
    assert sorted(found) == ["Gone", "Live"]
    assert told(peer, R.QUERY_TOPIC_CONSUME_BY_WHO, topic="Other") == {"groupList": []}


def test_topics_and_subscriptions_of_a_group(broker: SmallBroker, peer: Peer) -> None:
    create_topic(peer, "TopicA")
    create_group(peer, "G")
    commit(peer, "G", "TopicA", 0, 0)
    answer = told(peer, R.QUERY_TOPICS_BY_CONSUMER, group="G")
    assert answer == {"brokerAddr": "192.0.2.1:10911", "topicList": ["TopicA"]}
    asked = {"group": "G", "topic": "TopicA"}
    assert told(peer, R.QUERY_SUBSCRIPTION_BY_CONSUMER, **asked) == asked
    Client(broker).beat(TopicA="x")
    answer = told(peer, R.QUERY_SUBSCRIPTION_BY_CONSUMER, **asked)
    assert answer["subscriptionData"]["tagsSet"] == ["x"]
    assert "subscriptionData" not in told(
        peer, R.QUERY_SUBSCRIPTION_BY_CONSUMER, group="G", topic="Other"
    )


# ----------------------------------------------------------------- BR-66


def test_running_info_comes_from_the_client(broker: SmallBroker, peer: Peer) -> None:
    client = Client(broker).beat(TopicA="*")
    asked = {"consumerGroup": "G", "clientId": "client-1", "jstackEnable": True}
    opaque = ask_later(peer, R.GET_CONSUMER_RUNNING_INFO, **asked)
    assert peer.answer(opaque) is None
    (passed_on,) = client.asked()
    assert passed_on.code == R.GET_CONSUMER_RUNNING_INFO
    assert passed_on.ext_fields == {
        "consumerGroup": "G",
        "clientId": "client-1",
        "jstackEnable": "true",
    }
    client.answers(passed_on, b'{"jstack":"..."}', remark="not set any response code")
    answer = answer_to(peer, opaque)
    assert (answer.code, answer.body) == (0, b'{"jstack":"..."}')
    assert answer.remark == "not set any response code"
    # A refusal of the client's is passed back as well.
    opaque = ask_later(peer, R.GET_CONSUMER_RUNNING_INFO, **asked)
    client.answers(*client.asked(), code=1, remark="The Consumer Group <G> not exist")
    answer = answer_to(peer, opaque)
    assert (answer.code, answer.remark) == (1, "The Consumer Group <G> not exist")


def test_a_client_that_does_not_answer_is_told_after_ten_seconds(
    broker: SmallBroker, peer: Peer
) -> None:
    client = Client(broker).beat(TopicA="*")
    opaque = ask_later(peer, R.GET_CONSUMER_RUNNING_INFO, consumerGroup="G", clientId="client-1")
    assert len(client.asked()) == 1
    broker.clock.advance(9.9)
    assert peer.answer(opaque) is None
    broker.clock.advance(0.2)
    answer = answer_to(peer, opaque)
    assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert (answer.remark or "").startswith("consumer <G> <client-1> Timeout: ")


def test_a_client_that_leaves_meanwhile(broker: SmallBroker, peer: Peer) -> None:
    client = Client(broker).beat(TopicA="*")
    opaque = ask_later(peer, R.GET_CONSUMER_RUNNING_INFO, consumerGroup="G", clientId="client-1")
    client.peer.close()
    answer = answer_to(peer, opaque)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith("invoke consumer <G> <client-1> Exception: ")


def test_clients_that_cannot_be_asked(broker: SmallBroker, peer: Peer) -> None:
    asked = {"consumerGroup": "G", "clientId": "client-1"}
    offline = (ResponseCode.SYSTEM_ERROR, "The Consumer <G> <client-1> not online")
    assert refused(peer, R.GET_CONSUMER_RUNNING_INFO, **asked) == offline
    Client(broker, "client-2").beat(TopicA="*")
    assert refused(peer, R.GET_CONSUMER_RUNNING_INFO, **asked) == offline
    Client(broker, "client-1", port=50_009, version=VERSION_NAMES.index("V3_0_7_SNAPSHOT")).beat(
        TopicA="*"
    )
    assert refused(peer, R.GET_CONSUMER_RUNNING_INFO, **asked) == (
        ResponseCode.SYSTEM_ERROR,
        "The Consumer <client-1> Version <V3_0_7_SNAPSHOT> too low to finish, "
        "please upgrade it to V3_1_8_SNAPSHOT",
    )


# ----------------------------------------------------------------- BR-67


def test_one_message_is_consumed_again_by_one_client(broker: SmallBroker, peer: Peer) -> None:
    create_topic(peer, "TopicA", topicSysFlag=1)
    sent = peer.send(body=b"once more")
    client = Client(broker).beat(TopicA="*")
    asked = {"consumerGroup": "G", "clientId": "client-1", "msgId": sent.msg_id, "topic": "TopicA"}
    opaque = ask_later(peer, R.CONSUME_MESSAGE_DIRECTLY, **asked)
    (passed_on,) = client.asked()
    (message,) = decode_records(passed_on.body)
    assert (message.body, message.msg_id) == (b"once more", sent.msg_id)
    assert passed_on.ext_fields == {
        **asked,
        "brokerName": "broker-a",
        "topicSysFlag": "1",
        "groupSysFlag": "0",
    }
    client.answers(passed_on, b'{"consumeResult":"CR_SUCCESS"}')
    assert answer_to(peer, opaque).body == b'{"consumeResult":"CR_SUCCESS"}'


def test_a_message_that_is_not_there_is_given_to_nobody(broker: SmallBroker, peer: Peer) -> None:
    client = Client(broker).beat(TopicA="*")
    sent = peer.send()
    asked = {"consumerGroup": "G", "clientId": "client-1"}
    wrong = sent.msg_id[:-4] + "FFFF"
    assert refused(peer, R.CONSUME_MESSAGE_DIRECTLY, msgId=wrong, **asked) == (
        ResponseCode.SYSTEM_ERROR,
        "can not find message by the offset, 65535",
    )
    code, _ = refused(peer, R.CONSUME_MESSAGE_DIRECTLY, msgId="no id", **asked)
    assert code == ResponseCode.SYSTEM_ERROR
    assert client.asked() == []


# ----------------------------------------------------------------- BR-68, the second half


def status(offset: int) -> bytes:
    return encode_body(GetConsumerStatusBody(message_queue_table={QUEUE: offset}))


def test_members_tell_where_they_stand(broker: SmallBroker, peer: Peer) -> None:
    first = Client(broker, "a", port=50_001).beat(TopicA="*")
    second = Client(broker, "b", port=50_002).beat(TopicA="*")
    silent = Client(broker, "c", port=50_003).beat(TopicA="*")
    asked = {"topic": "TopicA", "group": "G"}
    opaque = ask_later(peer, R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, **asked, clientAddr="")
    (passed_on,) = first.asked()
    assert passed_on.code == R.GET_CONSUMER_STATUS_FROM_CLIENT
    assert {**(passed_on.ext_fields or {})}.items() >= asked.items()
    first.answers(passed_on, status(5))
    second.answers(*second.asked(), body=status(7))
    assert peer.answer(opaque) is None
    assert len(silent.asked()) == 1
    broker.clock.advance(5.1)
    table = decode_body(GetConsumerStatusBody, answer_to(peer, opaque).body).consumer_table
    assert table == {"a": {QUEUE: 5}, "b": {QUEUE: 7}}


def test_one_member_alone_is_asked(broker: SmallBroker, peer: Peer) -> None:
    first = Client(broker, "a", port=50_001).beat(TopicA="*")
    second = Client(broker, "b", port=50_002).beat(TopicA="*")
    asked = {"topic": "TopicA", "group": "G", "clientAddr": "b"}
    opaque = ask_later(peer, R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, **asked)
    second.answers(*second.asked(), body=status(7))
    assert first.asked() == []
    assert b'"b":' in answer_to(peer, opaque).body
    assert refused(peer, R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="TopicA", group="No") == (
        ResponseCode.SYSTEM_ERROR,
        "No Any Consumer online in the consumer group: [No]",
    )
