"""Operators move groups: reset here and at the clients, copies of positions, where groups stand together."""

from __future__ import annotations

import json

import pytest
from operators import (
    CPP,
    Client,
    commit,
    committed,
    create_group,
    create_topic,
    queues,
    refused,
    tell,
    told,
)
from small_broker import START_S, Peer, SmallBroker, pull_header

from txrocketmq.codec.bodies import ResetOffsetBody, decode_body
from txrocketmq.model.codes import VERSION_NAMES, RequestCode, ResponseCode

R = RequestCode
RESET = R.INVOKE_BROKER_TO_RESET_OFFSET


def ten_messages(broker: SmallBroker, peer: Peer) -> None:
    """Two queues with five messages each, one a second in each queue; a group that consumed all of them."""
    create_topic(peer, "T", 2)
    create_group(peer, "G")
    for _ in range(5):
        for queue_id in (0, 1):
            peer.send("T", queue_id=queue_id)
        broker.clock.advance(1)
    for queue_id in (0, 1):
        commit(peer, "G", "T", queue_id, 5)


def reset(peer: Peer, timestamp: int, **changes: object) -> dict[tuple[str, int], int]:
    fields = {"topic": "T", "group": "G", "timestamp": timestamp, "isForce": True, **changes}
    return queues(told(peer, RESET, **fields)["offsetTable"])


# ----------------------------------------------------------------- BR-37


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [
        (0, 0),
        ((START_S + 2) * 1000, 2),
        (START_S * 1000 + 2001, 3),
        ((START_S + 99) * 1000, 5),
        (-1, 5),
    ],
)
def test_a_group_without_members_is_moved_to_a_time(
    broker: SmallBroker, peer: Peer, timestamp: int, offset: int
) -> None:
    ten_messages(broker, peer)
    commit(peer, "G", "T", 0, 1)
    assert reset(peer, timestamp) == {("T", 0): offset, ("T", 1): offset}
    assert committed(peer, "G", "T", 0) == committed(peer, "G", "T", 1) == offset


def test_one_queue_alone_is_moved_to_an_offset(broker: SmallBroker, peer: Peer) -> None:
    ten_messages(broker, peer)
    assert reset(peer, 0, queueId=1, offset=3) == {("T", 1): 3}
    assert (committed(peer, "G", "T", 0), committed(peer, "G", "T", 1)) == (5, 3)
    assert reset(peer, 0, queueId=1, offset=-1) == {("T", 1): 0}
    fields = {"topic": "T", "group": "G", "timestamp": 0, "isForce": True, "queueId": 1}
    assert refused(peer, RESET, **fields, offset=7) == (
        ResponseCode.SYSTEM_ERROR,
        "Target offset 7 not in consume queue range [0-5]",
    )


def test_a_reset_holds_against_commits_of_members_until_their_next_pull(
    broker: SmallBroker, peer: Peer
) -> None:
    ten_messages(broker, peer)
    member = Client(broker).beat(T="*").peer
    reset(peer, (START_S + 2) * 1000)
    # The member still works on what it got before, and says so.
    answer = tell(
        member, R.UPDATE_CONSUMER_OFFSET, consumerGroup="G", topic="T", queueId=0, commitOffset=5
    )
    assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
    assert committed(peer, "G", "T", 0) == 2
    pulled = member.pull("T", 0, 5)
    assert pulled.code == ResponseCode.PULL_OFFSET_MOVED
    assert pulled.header.next_begin_offset == 2
    assert member.pull("T", 0, 2).code == 0
    commit(member, "G", "T", 0, 3)
    assert (committed(peer, "G", "T", 0), committed(peer, "G", "T", 1)) == (3, 2)


def test_a_pull_that_waits_goes_on_at_once_where_the_group_was_moved(
    broker: SmallBroker, peer: Peer
) -> None:
    ten_messages(broker, peer)
    member = Client(broker).beat(T="*").peer
    header = pull_header("T", 0, 5, sys_flag=6, suspend_timeout_millis=15_000)
    opaque = member.tell(R.PULL_MESSAGE, header)
    assert member.answer(opaque) is None
    reset(peer, 0)
    broker.clock.advance(0)
    answer = member.answer(opaque)
    assert answer is not None
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert (answer.ext_fields or {})["nextBeginOffset"] == "0"


def test_resets_that_cannot_be_made(broker: SmallBroker, peer: Peer) -> None:
    ten_messages(broker, peer)
    fields = {"timestamp": 0, "isForce": True}
    assert refused(peer, RESET, topic="No", group="G", **fields) == (
        ResponseCode.TOPIC_NOT_EXIST,
        "Topic No does not exist",
    )
    assert refused(peer, RESET, topic="T", group="No", **fields) == (
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        "Group No does not exist",
    )
    broker.store_config.broker_role = "SLAVE"
    assert refused(peer, RESET, topic="T", group="G", **fields) == (
        ResponseCode.SYSTEM_ERROR,
        "Can not reset offset in slave broker",
    )


# ----------------------------------------------------------------- BR-68


def test_members_are_told_where_the_broker_does_not_keep_resets(
    broker: SmallBroker, peer: Peer
) -> None:
    broker.config.use_server_side_reset_offset = False
    ten_messages(broker, peer)
    members = [
        Client(broker, name, port=50_000 + port).beat(T="*") for port, name in enumerate("ab")
    ]
    assert reset(peer, (START_S + 2) * 1000) == {("T", 0): 2, ("T", 1): 2}
    for member in members:
        (notice,) = member.asked()
        assert (notice.code, notice.flag) == (R.RESET_CONSUMER_CLIENT_OFFSET, 2)
        table = decode_body(ResetOffsetBody, notice.body).offset_table
        assert {queue.queue_id: offset for queue, offset in table.items()} == {0: 2, 1: 2}
        fields = notice.ext_fields or {}
        assert (fields["topic"], fields["group"]) == ("T", "G")
    # The members commit their new positions themselves.
    assert committed(peer, "G", "T", 0) == 5


def test_without_force_nobody_is_moved_forward(broker: SmallBroker, peer: Peer) -> None:
    broker.config.use_server_side_reset_offset = False
    ten_messages(broker, peer)
    commit(peer, "G", "T", 1, 1)
    Client(broker).beat(T="*")
    at = (START_S + 3) * 1000
    assert reset(peer, at, isForce=False) == {("T", 0): 3, ("T", 1): 1}
    assert reset(peer, at, isForce=True) == {("T", 0): 3, ("T", 1): 3}


def test_operators_with_cpp_clients_get_the_form_that_those_read(
    broker: SmallBroker, peer: Peer
) -> None:
    broker.config.use_server_side_reset_offset = False
    ten_messages(broker, peer)
    member = Client(broker).beat(T="*")
    operator = Client(broker, "tool", "Tools", port=50_005, language=CPP)
    answer = operator.ask(RESET, topic="T", group="G", timestamp=0, isForce=True)
    assert answer.code == 0
    (notice,) = member.asked()
    first, _ = sorted(json.loads(notice.body)["offsetTable"], key=lambda row: int(row["queueId"]))
    assert first == {"brokerName": "broker-a", "offset": 0, "queueId": 0, "topic": "T"}


def test_members_that_cannot_be_told(broker: SmallBroker, peer: Peer) -> None:
    broker.config.use_server_side_reset_offset = False
    ten_messages(broker, peer)
    fields = {"topic": "T", "group": "G", "timestamp": 5, "isForce": True}
    assert refused(peer, RESET, **fields) == (
        ResponseCode.CONSUMER_NOT_ONLINE,
        "Consumer not online, so can not reset offset, Group: G Topic: T Timestamp: 5",
    )
    Client(broker, version=VERSION_NAMES.index("V3_0_6_SNAPSHOT")).beat(T="*")
    assert refused(peer, RESET, **fields) == (
        ResponseCode.SYSTEM_ERROR,
        "the client does not support this feature. version=V3_0_6_SNAPSHOT",
    )
    assert refused(peer, RESET, **{**fields, "group": "No"}) == (
        ResponseCode.SYSTEM_ERROR,
        "THe consumer group <No> not exist",
    )
    assert refused(peer, RESET, **{**fields, "topic": "No"}) == (
        ResponseCode.TOPIC_NOT_EXIST,
        "[reset-offset] reset offset failed, no topic in this broker. topic=No",
    )


# ----------------------------------------------------------------- BR-69


def test_a_group_is_put_where_another_one_stands(broker: SmallBroker, peer: Peer) -> None:
    ten_messages(broker, peer)
    create_topic(peer, "U")
    create_group(peer, "H")
    peer.send("U")
    commit(peer, "G", "U", 0, 1)
    told(peer, R.CLONE_GROUP_OFFSET, srcGroup="G", destGroup="H", topic="T", offline=True)
    assert [committed(peer, "H", "T", queue_id) for queue_id in (0, 1)] == [5, 5]
    assert committed(peer, "H", "U") is None
    told(peer, R.CLONE_GROUP_OFFSET, srcGroup="G", destGroup="H", offline=True)
    assert committed(peer, "H", "U") == 1
    commit(peer, "G", "T", 0, 4)
    assert committed(peer, "H", "T", 0) == 5


@pytest.mark.parametrize("queue_id", [2, 2**31 - 1])
def test_a_queue_that_the_topic_has_not_is_not_reset(
    broker: SmallBroker, peer: Peer, queue_id: int
) -> None:
    ten_messages(broker, peer)
    fields = {"topic": "T", "group": "G", "timestamp": -1, "isForce": True, "queueId": queue_id}
    code, remark = refused(peer, RESET, b"", **fields)
    assert code == ResponseCode.INVALID_PARAMETER
    assert f"queueId[{queue_id}]" in remark
    assert committed(peer, "G", "T", queue_id) is None


@pytest.mark.parametrize("name", ["G@broadcast", "x" * 300])
def test_no_group_of_an_impossible_name_gets_offsets(
    broker: SmallBroker, peer: Peer, name: str
) -> None:
    ten_messages(broker, peer)
    code, _ = refused(peer, R.CLONE_GROUP_OFFSET, srcGroup="G", destGroup=name, offline=True)
    assert code == ResponseCode.INVALID_PARAMETER
    assert committed(peer, name, "T") is None


def test_of_a_live_group_only_what_it_subscribes_to_is_copied(
    broker: SmallBroker, peer: Peer
) -> None:
    ten_messages(broker, peer)
    create_topic(peer, "U")
    commit(peer, "G", "U", 0, 0)
    Client(broker).beat(T="*")
    told(peer, R.CLONE_GROUP_OFFSET, srcGroup="G", destGroup="H", offline=False)
    create_group(peer, "H")
    assert (committed(peer, "H", "T"), committed(peer, "H", "U")) == (5, None)


def test_where_groups_stand_together(broker: SmallBroker, peer: Peer) -> None:
    ten_messages(broker, peer)
    for name, offsets in (("H", (2, 4)), ("I", (3, 3)), ("Slow", (0, 0))):
        create_group(peer, name)
        for queue_id, offset in enumerate(offsets):
            commit(peer, name, "T", queue_id, offset)
    answer = told(peer, R.QUERY_CORRECTION_OFFSET, topic="T", compareGroup="G", filterGroups="Slow")
    assert answer == {"correctionOffsets": {"0": 2, "1": 3}}
    # A compared group that stands before all others needs no correction.
    answer = told(
        peer, R.QUERY_CORRECTION_OFFSET, topic="T", compareGroup="Slow", filterGroups="Slow"
    )
    assert answer == {"correctionOffsets": {"0": 2**63 - 1, "1": 2**63 - 1}}
    assert committed(peer, "Slow", "T") == 0


def test_all_positions_are_listed(broker: SmallBroker, peer: Peer) -> None:
    ten_messages(broker, peer)
    answer = tell(peer, R.GET_ALL_CONSUMER_OFFSET)
    assert b'"offsetTable":{"T@G":{0:5,1:5}}' in answer.body
