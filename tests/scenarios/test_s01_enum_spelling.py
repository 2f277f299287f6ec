"""S01: clients of several languages spell the words of a heartbeat differently."""

from __future__ import annotations

import json

import pytest
from real_server import RawLink, RealServer

from txrocketmq.codec.headers import GetConsumerListByGroupRequestHeader
from txrocketmq.model.codes import RequestCode as R


def group(name: str, consume_type: object, model: object) -> dict[str, object]:
    return {
        "groupName": name,
        "consumeType": consume_type,
        "messageModel": model,
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [
            {"topic": "S01", "subString": "*", "subVersion": 7, "tagsSet": [], "codeSet": []}
        ],
        "unitMode": False,
    }


def beat(link: RawLink, *groups: dict[str, object], client: str = "c") -> tuple[int, str]:
    body = {"clientID": client, "consumerDataSet": list(groups), "producerDataSet": []}
    answer = link.ask(R.HEART_BEAT, body=json.dumps(body).encode())
    return answer.code, answer.remark or ""


def members(link: RawLink, name: str) -> list[str]:
    header = GetConsumerListByGroupRequestHeader(consumer_group=name)
    answer = link.ask(R.GET_CONSUMER_LIST_BY_GROUP, header)
    return list(json.loads(answer.body)["consumerIdList"]) if answer.code == 0 else []


@pytest.mark.parametrize(
    ("name", "consume_type", "model"),
    [
        ("S01_Go", "PUSH", "Clustering"),
        ("S01_Java", "CONSUME_PASSIVELY", "CLUSTERING"),
        ("S01_Small", "consume_passively", "clustering"),
    ],
)
def test_every_spelling_registers_and_pulls_work_at_once(
    server: RealServer, link: RawLink, name: str, consume_type: str, model: str
) -> None:
    sent = link.send_message("S01", b"for " + name.encode())
    assert beat(link, group(name, consume_type, model)) == (0, "")
    assert members(link, name) == ["c"]
    # Without a subscription of its own the pull needs the one of the heartbeat.
    found = link.pull(
        "S01",
        sent.queue_id,
        sent.queue_offset,
        consumer_group=name,
        sys_flag=0,
        subscription=None,
        sub_version=7,
    )
    assert [message.body for message in found] == [b"for " + name.encode()]


@pytest.mark.parametrize(
    ("consume_type", "model", "field"),
    [("SIDEWAYS", "CLUSTERING", "consumeType"), ("PUSH", "PERHAPS", "messageModel")],
)
def test_unknown_words_are_named_and_cost_the_others_nothing(
    server: RealServer, consume_type: str, model: str, field: str
) -> None:
    good, bad = f"S01_good_{field}", f"S01_bad_{field}"
    with server.link() as link:
        code, remark = beat(
            link, group(bad, consume_type, model), group(good, "PUSH", "CLUSTERING"), client="d"
        )
        assert code == 1
        assert field in remark
        assert bad in remark
        assert members(link, good) == ["d"]
        assert members(link, bad) == []
