"""Heartbeats: spellings of other clients, and groups that cannot be read beside groups that can (scenario S01)."""

from __future__ import annotations

import json

import pytest

from txrocketmq.codec.bodies import decode_heartbeat, encode_body
from txrocketmq.errors import BodyError
from txrocketmq.model.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    build_subscription,
)


def heartbeat(*groups: dict[str, object], **members: object) -> bytes:
    return json.dumps(
        {
            "clientID": "c@1",
            "consumerDataSet": list(groups),
            "producerDataSet": [{"groupName": "P"}],
            **members,
        }
    ).encode()


def group(
    name: str = "G",
    consume_type: object = "CONSUME_PASSIVELY",
    model: object = "CLUSTERING",
    start: object = "CONSUME_FROM_LAST_OFFSET",
) -> dict[str, object]:
    return {
        "groupName": name,
        "consumeType": consume_type,
        "messageModel": model,
        "consumeFromWhere": start,
        "subscriptionDataSet": [
            {"topic": "T", "subString": "*", "subVersion": 1, "tagsSet": [], "codeSet": []}
        ],
        "unitMode": False,
    }


@pytest.mark.parametrize(
    ("consume_type", "model"),
    [
        ("CONSUME_PASSIVELY", "CLUSTERING"),
        ("PUSH", "Clustering"),
        ("push", "clustering"),
        ("Consume_Passively", "CLUSTERING"),
        (1, 1),
    ],
)
def test_spellings_of_one_meaning_read_alike(consume_type: object, model: object) -> None:
    found = decode_heartbeat(heartbeat(group("G", consume_type, model)))
    assert found.faults == ()
    (consumer,) = found.heartbeat.consumer_data_set
    assert consumer.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert consumer.message_model is MessageModel.CLUSTERING
    assert consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


def test_all_consume_types_have_a_short_word() -> None:
    words = ("PULL", "PUSH", "POP", "CONSUME_ACTIVELY", "consume_pop")
    found = decode_heartbeat(heartbeat(*[group(word, word) for word in words]))
    assert [consumer.consume_type for consumer in found.heartbeat.consumer_data_set] == [
        ConsumeType.CONSUME_ACTIVELY,
        ConsumeType.CONSUME_PASSIVELY,
        ConsumeType.CONSUME_POP,
        ConsumeType.CONSUME_ACTIVELY,
        ConsumeType.CONSUME_POP,
    ]


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (group("BAD", "SHOVE"), "consumeType"),
        (group("BAD", model="NEARLY"), "messageModel"),
        (group("BAD", start="SOMEWHERE"), "consumeFromWhere"),
        (group("BAD", 9), "consumeType"),
        ({**group("BAD"), "subscriptionDataSet": [{"subVersion": "x"}]}, "subVersion"),
    ],
)
def test_a_bad_group_is_named_and_the_others_count(bad: dict[str, object], field: str) -> None:
    found = decode_heartbeat(heartbeat(group("G1"), bad, group("G2", "PUSH")))
    assert [c.group_name for c in found.heartbeat.consumer_data_set] == ["G1", "G2"]
    assert [p.group_name for p in found.heartbeat.producer_data_set] == ["P"]
    assert found.heartbeat.client_id == "c@1"
    (fault,) = found.faults
    assert "'BAD'" in fault
    assert field in fault


def test_groups_that_are_not_objects_are_faults_too() -> None:
    data = json.dumps({"clientID": "c", "consumerDataSet": [7], "producerDataSet": ["x"]}).encode()
    found = decode_heartbeat(data)
    assert len(found.faults) == 2
    assert found.heartbeat.consumer_data_set == []


@pytest.mark.parametrize(
    "data",
    [b"[]", b"nonsense", b'{"clientID":7}', b'{"clientID":"c","consumerDataSet":{}}', b"null"],
)
def test_what_is_no_heartbeat_is_refused(data: bytes) -> None:
    with pytest.raises(BodyError, match="HeartbeatData"):
        decode_heartbeat(data)


def test_ours_is_written_as_5x_writes_it() -> None:
    subscription = build_subscription("T", "TagA || TagB", sub_version=5)
    data = encode_body(
        HeartbeatData(
            client_id="c@1",
            consumer_data_set=[
                ConsumerData(
                    consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                    consume_type=ConsumeType.CONSUME_PASSIVELY,
                    group_name="G",
                    message_model=MessageModel.CLUSTERING,
                    subscription_data_set=[subscription],
                )
            ],
            producer_data_set=[ProducerData(group_name="P")],
        )
    )
    assert data.decode() == (
        '{"clientID":"c@1","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
        '"consumeType":"CONSUME_PASSIVELY","groupName":"G","messageModel":"CLUSTERING",'
        '"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[2598919,2598920],'
        '"expressionType":"TAG","subString":"TagA || TagB","subVersion":5,"tagsSet":["TagA","TagB"],'
        '"topic":"T"}],"unitMode":false}],"heartbeatFingerprint":0,'
        '"producerDataSet":[{"groupName":"P"}],"withoutSub":false}'
    )
