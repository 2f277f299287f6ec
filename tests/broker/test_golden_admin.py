"""What operators asked official brokers, answered by ours as it was answered then.

Each recorded question is put, as it is, to a broker of its own that was brought into the state that the recorded answer tells of:
topics, messages, offsets, members. So what is compared is the whole answer: code, remark, header fields and body. Masked are times,
rates, addresses and places in the log. The 4.9.7 broker says less than the 5.4.0 one, whose behaviour is ours: what it says must be
among what we say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from golden_admin import (
    ADMINISTRATION,
    ELSEWHERE,
    PREPARE,
    Stage,
    cases,
    note_what_was_consumed_directly,
)

from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.fastjson import loads
from txrocketmq.codec.record import decode_records
from txrocketmq.model.codes import RequestCode

TAGS = ("adm54", "c54", "c54rmq", "adm49", "c49", "c54-s49")
X = "masked"
ONLY_4_X = {
    *("haSlaveFallbehindMax", "commercialTransCount", "isEnableBatchPush", "commercialTimerCount"),
    *("commercialBigCount", "maxDelayTime", "filterServerNums", "commercialEnable"),
    *("getTransferedTps", "brokerVersion"),
}
#: Static topics, levels of delay, and tables of the official class that no reader takes from there.
NOT_SAID = {
    "brokerPlugins",
    "topicQueueMappingDetailMap",
    "scheduleMessageOffset",
    "groupTopicMap",
    "lmqOffsetTable",
}
MASKED = {
    *("dataVersion", "mappingDataVersion", "brokerAddr", "clientAddr", "remoteIP"),
    *("lastUpdateTimestamp", "topicPutTps", "consumeTps", "tps", "delayTime", "physicOffset"),
    *("totalInflightDiff", "pullOffset", "masterCommitLogMaxOffset"),
}
MASKED_FIELDS = {"version", "indexLastUpdatePhyoffset", "indexLastUpdateTimestamp"}
PARTS_OF_MESSAGES = (
    *("topic", "queue_id", "queue_offset", "body", "flag", "sys_flag", "properties"),
    *("born_timestamp", "born_host", "store_timestamp", "store_host", "store_size"),
)
EXACT = {
    RequestCode.GET_TOPIC_STATS_INFO: {"lastUpdateTimestamp"},
    RequestCode.GET_CONSUME_STATS: {"pullOffset"},
}


@pytest.fixture(scope="module", autouse=True)
def consumed_directly() -> None:
    note_what_was_consumed_directly()


def body_of(code: RequestCode, body: bytes) -> Any:
    """A body as data, without what two runs cannot share."""
    if code in (
        RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
    ):
        return [
            {name: getattr(message, name) for name in PARTS_OF_MESSAGES}
            for message in decode_records(body)
        ]
    if code == RequestCode.GET_BROKER_CONFIG:
        return _names(line.partition("=")[0] for line in body.decode().splitlines())
    if not body:
        return None
    data = masked(loads(body), MASKED - EXACT.get(code, set()))
    if code == RequestCode.GET_BROKER_RUNTIME_INFO:
        # Some keys end in the path of a directory, or in a level of delay.
        return _names(key.partition("_")[0] for key in data["table"])
    if isinstance(data, dict):
        return {key: value for key, value in data.items() if key not in NOT_SAID}
    return data


def _names(found: Iterable[str]) -> dict[str, str]:
    return dict.fromkeys(sorted({*found} - ONLY_4_X - NOT_SAID), X)


def masked(data: Any, names: set[str]) -> Any:
    """Without what two runs cannot share; lists that have no order are sorted."""
    if isinstance(data, dict):
        return {key: X if key in names else masked(value, names) for key, value in data.items()}
    if isinstance(data, list):
        return sorted((masked(item, names) for item in data), key=repr_of)
    return data


def repr_of(data: Any) -> str:
    return json.dumps(data, sort_keys=True)


def missing(said: Any, ours: Any) -> list[str]:
    """What the older broker said and we do not."""
    if isinstance(said, dict) and isinstance(ours, dict):
        return [
            f"{key}: {what}" if key in ours else key
            for key, value in said.items()
            for what in (missing(value, ours[key]) if key in ours else [key])
        ]
    if isinstance(said, list) and isinstance(ours, list):
        lacking = [item for item in said if all(missing(item, other) for other in ours)]
        return [repr(item) for item in lacking]
    return [] if said == ours else [f"{said!r} is {ours!r}"]


def fields_of(command: RemotingCommand) -> dict[str, str]:
    fields = command.ext_fields or {}
    return {key: X if key in MASKED_FIELDS else value for key, value in fields.items()}


@pytest.mark.parametrize("tag", TAGS)
def test_recorded_questions_of_operators_are_answered_as_recorded(tag: str) -> None:
    compared = 0
    for case in cases(tag):
        stage = Stage(case)
        PREPARE[case.code](stage)
        ours = stage.ask()
        said = case.answered
        assert (ours.code, ours.remark or "") == (said.code, said.remark or ""), case.name
        got, wanted = body_of(case.code, ours.body), body_of(case.code, case.body)
        if case.is_4_9:
            assert missing(wanted, got) == [], case.name
        else:
            assert fields_of(ours) == fields_of(said), case.name
            assert got == wanted, case.name
        stage.broker.stop()
        compared += 1
    assert compared >= 3


def test_every_question_that_operators_may_ask_was_recorded() -> None:
    recorded = {case.code for tag in TAGS for case in cases(tag)}
    assert {RequestCode(code).name for code in ADMINISTRATION - recorded} - ELSEWHERE == set()
