"""Heartbeats: registration, spelling, refusals of single groups; consumer lists; good-bye; expiry; change notices."""

from __future__ import annotations

import json
from typing import Any

import pytest
from small_broker import Peer, SmallBroker, properties

from txrocketmq.broker.heartbeat.processor import MAX_HEARTBEAT_BYTES, MAX_HEARTBEAT_GROUPS
from txrocketmq.codec.bodies import (
    CheckClientRequestBody,
    GetConsumerListByGroupResponseBody,
    decode_body,
    encode_body,
)
from txrocketmq.codec.headers import (
    GetConsumerListByGroupRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    UnregisterClientRequestHeader,
)
from txrocketmq.model.codes import CURRENT_VERSION, RequestCode, ResponseCode
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.heartbeat import ConsumeType, MessageModel, build_subscription
from txrocketmq.model.topic import TopicConfig

HEART_BEAT = RequestCode.HEART_BEAT
NOTIFY = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


def consumer(group: str = "G", **changes: Any) -> dict[str, Any]:
    data = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [
            {
                "topic": "TopicA",
                "subString": "*",
                "tagsSet": [],
                "codeSet": [],
                "subVersion": 1,
                "expressionType": "TAG",
                "classFilterMode": False,
            }
        ],
        "unitMode": False,
    }
    return {**data, **changes}


def beat(
    peer: Peer,
    *consumers: dict[str, Any],
    client: str = "client-1",
    producers: tuple[str, ...] = (),
    **more: Any,
) -> Any:
    body = {
        "clientID": client,
        "consumerDataSet": list(consumers),
        "producerDataSet": [{"groupName": name} for name in producers],
        **more,
    }
    return peer.ask(HEART_BEAT, None, json.dumps(body).encode())


def consumer_list(peer: Peer, group: str = "G") -> list[str] | None:
    """The members of a group, None where the answer is that there are none."""
    answer = peer.ask(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        GetConsumerListByGroupRequestHeader(consumer_group=group),
    )
    if answer.code != 0:
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == f"no consumer for this group, {group}"
        return None
    return decode_body(GetConsumerListByGroupResponseBody, answer.body).consumer_id_list


def notices(peer: Peer) -> list[str]:
    told = peer.notices()
    assert all(command.code == NOTIFY and command.flag == 2 for command in told)
    return [
        command.decode_header(NotifyConsumerIdsChangedRequestHeader).consumer_group
        for command in told
    ]


# ----------------------------------------------------------------- BR-28, WT-08


def test_a_heartbeat_registers_groups_and_tells_the_brokers_version(
    broker: SmallBroker, peer: Peer
) -> None:
    answer = beat(peer, consumer(), producers=("P", "Q"))
    assert answer.code == 0
    assert answer.version == CURRENT_VERSION
    assert answer.ext_fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    group = broker.core.consumers.get("G")
    assert group is not None
    assert group.client_ids() == ["client-1"]
    assert group.subscriptions["TopicA"].sub_string == "*"
    assert broker.core.producers.groups() == ["P", "Q"]
    assert consumer_list(peer) == ["client-1"]


def test_the_groups_retry_topic_is_made_by_its_first_heartbeat(
    broker: SmallBroker, peer: Peer
) -> None:
    broker.core.groups.update(SubscriptionGroupConfig(group_name="H", retry_queue_nums=3))
    broker.core.topics.update([TopicConfig(topic_name="TopicA", order=True)])
    beat(peer, consumer("G", unitMode=True), consumer("H"))
    retry = broker.core.topics.get("%RETRY%G")
    assert retry is not None
    assert (retry.write_queue_nums, retry.perm, retry.topic_sys_flag) == (1, 6, 2)
    assert retry.order
    other = broker.core.topics.get("%RETRY%H")
    assert other is not None
    assert other.write_queue_nums == 3


def test_a_group_that_may_not_be_created_is_left_out() -> None:
    broker = SmallBroker(auto_create_subscription_group=False)
    peer = broker.connect()
    assert beat(peer, consumer("Unknown"), consumer("TOOLS_CONSUMER")).code == 0
    assert consumer_list(peer, "Unknown") is None
    assert consumer_list(peer, "TOOLS_CONSUMER") == ["client-1"]
    broker.stop()


def test_pull_consumers_can_be_rejected_and_producers_ignored(
    broker: SmallBroker, peer: Peer
) -> None:
    broker.config.reject_pull_consumer_enable = True
    broker.config.enable_register_producer = False
    beat(peer, consumer("G", consumeType="CONSUME_ACTIVELY"), consumer("H"), producers=("P",))
    assert consumer_list(peer, "G") is None
    assert consumer_list(peer, "H") == ["client-1"]
    assert broker.core.producers.groups() == []


# ----------------------------------------------------------------- S01


@pytest.mark.parametrize(
    ("words", "kind", "model"),
    [
        (("PUSH", "Clustering"), ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING),
        (
            ("CONSUME_PASSIVELY", "CLUSTERING"),
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
        ),
        (("PULL", "Broadcasting"), ConsumeType.CONSUME_ACTIVELY, MessageModel.BROADCASTING),
        (
            ("CONSUME_ACTIVELY", "BROADCASTING"),
            ConsumeType.CONSUME_ACTIVELY,
            MessageModel.BROADCASTING,
        ),
    ],
)
def test_spellings_of_other_languages_register_alike_and_pulls_work_at_once(
    broker: SmallBroker, peer: Peer, words: tuple[str, str], kind: ConsumeType, model: MessageModel
) -> None:
    peer.send(properties=properties(TAGS="A"))
    assert beat(peer, consumer(consumeType=words[0], messageModel=words[1])).code == 0
    group = broker.core.consumers.get("G")
    assert group is not None
    assert (group.consume_type, group.message_model) == (kind, model)
    assert peer.pull(sys_flag=0, sub_version=1, subscription=None).bodies == [b"hello"]


@pytest.mark.parametrize(
    ("field", "word"),
    [
        ("consumeType", "SOMEHOW"),
        ("messageModel", "Chaos"),
        ("consumeFromWhere", "Nowhere"),
    ],
)
def test_an_unknown_word_is_named_and_the_other_groups_count(
    peer: Peer, field: str, word: str
) -> None:
    answer = beat(
        peer,
        consumer("Before"),
        consumer("Bad", **{field: word}),
        consumer("After"),
        producers=("P",),
    )
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert field in (answer.remark or "")
    assert "Bad" in (answer.remark or "")
    assert consumer_list(peer, "Before") == ["client-1"]
    assert consumer_list(peer, "After") == ["client-1"]
    assert consumer_list(peer, "Bad") is None


def test_nonsense_is_refused_and_the_link_stays_open(peer: Peer) -> None:
    for body in (b"", b"no json", b"[]", b'{"clientID":"","consumerDataSet":[]}'):
        assert peer.ask(HEART_BEAT, None, body).code == ResponseCode.SYSTEM_ERROR
    assert beat(peer, consumer("bad name!")).code == ResponseCode.SYSTEM_ERROR
    assert beat(peer, consumer()).code == 0


def test_a_heartbeat_is_bounded(broker: SmallBroker, peer: Peer) -> None:
    answer = beat(peer, client="c" * MAX_HEARTBEAT_BYTES)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"at most {MAX_HEARTBEAT_BYTES}" in answer.remark
    names = [f"G{number}" for number in range(MAX_HEARTBEAT_GROUPS + 1)]
    answer = beat(peer, *map(consumer, names), producers=tuple(names))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == (
        "consumerDataSet: 1001 groups, at most 1000; producerDataSet: 1001 groups, at most 1000"
    )
    assert len(list(broker.core.consumers.groups())) == MAX_HEARTBEAT_GROUPS
    assert len(broker.core.producers.groups()) == MAX_HEARTBEAT_GROUPS


def test_names_that_no_client_has_are_refused(broker: SmallBroker, peer: Peer) -> None:
    answer = beat(peer, consumer(), client="c" * 1025)
    assert answer.remark == "clientID of 1025 characters, at most 1024"
    answer = beat(peer, producers=("p" * 256, "P"))
    assert answer.remark == "producerDataSet: groupName of 256 characters, at most 255"
    assert broker.core.producers.groups() == ["P"]


def test_many_faults_are_told_in_few_words(peer: Peer) -> None:
    answer = beat(peer, *[consumer(f"bad name {number}!") for number in range(500)])
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark.endswith("; and 490 more")
    assert len(answer.remark) < 2000


def test_groups_that_may_not_be_created_leave_nothing_behind() -> None:
    broker = SmallBroker(auto_create_subscription_group=False)
    beat(broker.connect(), consumer("A"), consumer("B"), heartbeatFingerprint=7)
    assert not list(broker.core.consumers.groups())
    broker.stop()


# ----------------------------------------------------------------- BR-30 to BR-33


def test_good_bye_ends_memberships(broker: SmallBroker, peer: Peer) -> None:
    beat(peer, consumer(), producers=("P",))
    bye = UnregisterClientRequestHeader(
        client_id="client-1", producer_group="P", consumer_group="G"
    )
    answer = peer.ask(RequestCode.UNREGISTER_CLIENT, bye)
    assert (answer.code, answer.ext_fields) == (0, {})
    assert broker.core.producers.groups() == []
    assert consumer_list(peer) is None
    assert peer.ask(RequestCode.UNREGISTER_CLIENT, bye).code == 0


def test_members_hear_of_joins_leaves_and_new_topics(broker: SmallBroker, peer: Peer) -> None:
    beat(peer, consumer(), client="a")
    assert notices(peer) == ["G"]
    second = broker.connect(40001)
    beat(second, consumer(), client="b")
    assert notices(peer) == ["G"]
    assert notices(second) == ["G"]
    assert consumer_list(peer) == ["a", "b"]
    beat(second, consumer(), client="b")
    assert notices(peer) == []
    more = consumer()["subscriptionDataSet"]
    more = [*more, {**more[0], "topic": "TopicB"}]
    beat(second, consumer(subscriptionDataSet=more), client="b")
    assert notices(peer) == ["G"]
    second.close()
    assert notices(peer) == ["G"]
    assert consumer_list(peer) == ["a"]


def test_a_group_or_the_broker_can_do_without_notices(broker: SmallBroker, peer: Peer) -> None:
    broker.core.groups.update(
        SubscriptionGroupConfig(group_name="Quiet", notify_consumer_ids_changed_enable=False)
    )
    beat(peer, consumer("Quiet"))
    assert notices(peer) == []
    broker.config.real_time_notify_consumer_change = False
    beat(peer, consumer("G"))
    assert notices(peer) == []
    broker.clock.advance(15)
    assert notices(peer) == ["G"]


def test_a_silent_client_is_forgotten_after_two_minutes(broker: SmallBroker, peer: Peer) -> None:
    beat(peer, consumer(), producers=("P",), client="silent")
    lively = broker.connect(40001)
    for _ in range(13):
        beat(lively, consumer(), client="lively")
        broker.clock.advance(10)
    assert consumer_list(lively) == ["lively"]
    assert broker.core.producers.groups() == []
    assert peer.transport.disconnecting


def test_a_changed_fingerprint_is_noticed(peer: Peer) -> None:
    def changed(**fields: Any) -> str:
        return (beat(peer, consumer(), **fields).ext_fields or {})["IS_SUB_CHANGE"]

    assert changed(heartbeatFingerprint=7) == "false"
    assert changed(heartbeatFingerprint=7, withoutSub=True) == "false"
    assert changed(heartbeatFingerprint=8) == "true"


def test_a_broker_that_knows_nothing_asks_for_the_subscriptions(peer: Peer) -> None:
    answer = beat(peer, consumer(subscriptionDataSet=[]), heartbeatFingerprint=7, withoutSub=True)
    assert (answer.ext_fields or {})["IS_SUB_CHANGE"] == "true"


def test_a_client_that_lost_its_link_is_asked_for_its_subscriptions_again(
    broker: SmallBroker, peer: Peer
) -> None:
    beat(peer, consumer(), heartbeatFingerprint=7)
    peer.close()
    # The last member was gone, and the subscriptions with it. The client still thinks that the broker has them.
    again = broker.connect(40_001)
    short = consumer(subscriptionDataSet=[])
    answer = beat(again, short, heartbeatFingerprint=7, withoutSub=True)
    assert (answer.ext_fields or {})["IS_SUB_CHANGE"] == "true"
    beat(again, consumer(), heartbeatFingerprint=7)
    answer = beat(again, short, heartbeatFingerprint=7, withoutSub=True)
    assert (answer.ext_fields or {})["IS_SUB_CHANGE"] == "false"
    group = broker.core.consumers.get("G")
    assert group is not None
    assert list(group.subscriptions) == ["TopicA"]


def test_consumers_ask_first_whether_their_filter_is_served(peer: Peer) -> None:
    def check(kind: str, text: str) -> Any:
        body = CheckClientRequestBody(
            client_id="c", group="G", subscription_data=build_subscription("T", text, kind)
        )
        return peer.ask(RequestCode.CHECK_CLIENT_CONFIG, None, encode_body(body))

    assert check("TAG", "a || b").code == 0
    answer = check("SQL92", "a > 1")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "The broker does not support consumer to filter message by SQL92"
