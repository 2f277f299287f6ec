"""What operators do with consumer groups: create, several at once, show, delete, forbid; and what their settings do."""

from __future__ import annotations

import json
from typing import Any

from operators import Client, commit, committed, create_group, create_topic, refused, tell, told
from small_broker import Peer, SmallBroker

from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.group import SubscriptionGroupConfig

R = RequestCode
FILE = "/store/config/subscriptionGroup.json"
DEFAULTS = {
    "attributes": {},
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 15,
    "groupName": "G",
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 16,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}


def shown(peer: Peer, name: str = "G") -> Any:
    return told(peer, R.GET_SUBSCRIPTIONGROUP_CONFIG, group=name)


# ----------------------------------------------------------------- BR-56


def test_a_group_is_made_changed_shown_and_survives(broker: SmallBroker, peer: Peer) -> None:
    assert create_group(peer, "G").code == 0
    assert shown(peer) == DEFAULTS
    changes = {"retryMaxTimes": 3, "retryQueueNums": 2, "consumeTimeoutMinute": 5}
    assert create_group(peer, "G", **changes).code == 0
    again = broker.restarted()
    assert shown(again.connect()) == {**DEFAULTS, **changes}
    again.stop()


def test_showing_an_unknown_group_makes_it_where_groups_are_made_by_themselves(
    broker: SmallBroker, peer: Peer
) -> None:
    assert shown(peer) == DEFAULTS
    broker.config.auto_create_subscription_group = False
    assert refused(peer, R.GET_SUBSCRIPTIONGROUP_CONFIG, group="H") == (
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        "No group in this broker",
    )


def test_a_deleted_group_is_gone_its_offsets_only_when_asked_for(
    broker: SmallBroker, peer: Peer
) -> None:
    create_topic(peer, "T")
    for name in ("G", "H"):
        create_group(peer, name)
        commit(peer, name, "T", 0, 0)
    told(peer, R.DELETE_SUBSCRIPTIONGROUP, groupName="G", cleanOffset=False)
    told(peer, R.DELETE_SUBSCRIPTIONGROUP, groupName="H", cleanOffset=True)
    table = told(peer, R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]
    assert not {"G", "H"} & table.keys()
    assert not {"G", "H"} & json.loads(broker.disk.read_file(FILE))["subscriptionGroupTable"].keys()
    assert (committed(peer, "G", "T"), committed(peer, "H", "T")) == (0, None)
    assert tell(peer, R.DELETE_SUBSCRIPTIONGROUP, groupName="NeverThere").code == 0


def test_a_live_member_brings_its_group_back(broker: SmallBroker, peer: Peer) -> None:
    client = Client(broker).beat(T="*")
    told(peer, R.DELETE_SUBSCRIPTIONGROUP, groupName="G")
    assert broker.core.groups.get("G") is None
    client.beat(T="*")
    assert broker.core.groups.get("G") == SubscriptionGroupConfig(group_name="G")


# ----------------------------------------------------------------- BR-61


def test_several_groups_are_made_at_once_or_none(broker: SmallBroker, peer: Peer) -> None:
    body = json.dumps({"groupConfigList": [{"groupName": "A"}, {"groupName": "no good"}]})
    code, remark = refused(peer, R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body.encode())
    assert code == ResponseCode.INVALID_PARAMETER
    assert "no good" in remark or "illegal" in remark
    assert broker.core.groups.get("A") is None
    body = json.dumps({"groupConfigList": [{"groupName": "A"}, {"groupName": "B"}]})
    assert tell(peer, R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body.encode()).code == 0
    assert {"A", "B"} <= {group.group_name for group in broker.core.groups.all()}


def test_a_group_has_no_more_retry_queues_than_a_topic_may_have(
    broker: SmallBroker, peer: Peer
) -> None:
    body = json.dumps({"groupName": "A", "retryQueueNums": 65_537})
    code, remark = refused(peer, R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body.encode())
    assert (code, remark) == (
        ResponseCode.INVALID_PARAMETER,
        "retryQueueNums 65537 is more than 65536",
    )
    assert broker.core.groups.get("A") is None


def test_groups_have_no_attributes_that_could_be_set(peer: Peer) -> None:
    answer = create_group(peer, "G", attributes={"+color": "red"})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "unsupported key: color")


# ----------------------------------------------------------------- BR-57


def test_a_group_that_must_not_consume_is_refused_until_it_may_again(
    broker: SmallBroker, peer: Peer
) -> None:
    peer.send()
    create_group(peer, "G", consumeEnable=False)
    answer = peer.pull()
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "subscription group no permission, G"
    create_group(peer, "G", consumeEnable=True)
    assert peer.pull().bodies == [b"hello"]


def test_a_group_that_must_not_broadcast_is_refused(broker: SmallBroker, peer: Peer) -> None:
    peer.send()
    create_group(peer, "G", consumeBroadcastEnable=False)
    client = Client(broker).beat("BROADCASTING", TopicA="*")
    answer = client.peer.pull(sys_flag=0)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "broadcast" in (answer.remark or "")


def test_the_retry_topic_gets_as_many_queues_as_the_group_wants(
    broker: SmallBroker, peer: Peer
) -> None:
    create_group(peer, "G", retryQueueNums=3)
    Client(broker).beat(TopicA="*")
    assert told(peer, R.GET_TOPIC_CONFIG, topic="%RETRY%G")["readQueueNums"] == 3


# ----------------------------------------------------------------- BR-59


def test_one_group_can_be_kept_from_one_topic(broker: SmallBroker, peer: Peer) -> None:
    for topic in ("TopicA", "TopicB"):
        peer.send(topic)
    client = Client(broker).beat(TopicA="*", TopicB="*").peer
    asked = {"group": "G", "topic": "TopicA"}
    assert told(peer, R.UPDATE_AND_GET_GROUP_FORBIDDEN, **asked) == {
        "group": "G",
        "topic": "TopicA",
        "readable": True,
    }
    answer = told(peer, R.UPDATE_AND_GET_GROUP_FORBIDDEN, **asked, readable=False)
    assert answer["readable"] is False
    pulled = client.pull("TopicA", sys_flag=0, sub_version=1)
    assert pulled.code == ResponseCode.NO_PERMISSION
    assert pulled.remark == "the consumer group[G] is forbidden for topic[TopicA]"
    assert client.pull("TopicB", sys_flag=0, sub_version=1).code == 0
    again = broker.restarted()
    peer, client = again.connect(), Client(again).beat(TopicA="*").peer
    assert told(peer, R.UPDATE_AND_GET_GROUP_FORBIDDEN, **asked)["readable"] is False
    told(peer, R.UPDATE_AND_GET_GROUP_FORBIDDEN, **asked, readable=True)
    assert client.pull("TopicA", sys_flag=0, sub_version=1).code == 0
    again.stop()
