"""Queues are derived again while the broker serves: does an operator get the true figures of a queue, or words that say why not?"""

from __future__ import annotations

import re
from typing import Any

import pytest
from small_broker import Peer, SmallBroker
from test_delay import send_delayed
from test_lost_queues import SMALL, Loss, pad

from txrocketmq.codec.bodies import KVTable, decode_body
from txrocketmq.codec.headers import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
    SearchOffsetRequestHeader,
)
from txrocketmq.model.codes import RequestCode as R
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.names import SCHEDULE_TOPIC

COUNT = 20
LAST_MS = 1 << 60

QUESTIONS: dict[R, Any] = {
    R.GET_TOPIC_STATS_INFO: GetTopicStatsInfoRequestHeader(topic="TopicA"),
    R.GET_CONSUME_STATS: GetConsumeStatsRequestHeader(consumer_group="G", topic="TopicA"),
    R.GET_BROKER_CONSUME_STATS: GetConsumeStatsInBrokerHeader(is_order=False),
    R.QUERY_CONSUME_TIME_SPAN: QueryConsumeTimeSpanRequestHeader(topic="TopicA", group="G"),
    R.QUERY_CONSUME_QUEUE: QueryConsumeQueueRequestHeader(
        topic="TopicA", queue_id=0, index=0, count=32, consumer_group=None
    ),
    R.QUERY_CORRECTION_OFFSET: QueryCorrectionOffsetHeader(
        topic="TopicA", compare_group="H", filter_groups=""
    ),
    R.GET_MAX_OFFSET: GetMaxOffsetRequestHeader(topic="TopicA", queue_id=0),
    R.GET_MIN_OFFSET: GetMinOffsetRequestHeader(topic="TopicA", queue_id=0),
    R.GET_EARLIEST_MSG_STORETIME: GetEarliestMsgStoretimeRequestHeader(topic="TopicA", queue_id=0),
    R.SEARCH_OFFSET_BY_TIMESTAMP: SearchOffsetRequestHeader(
        topic="TopicA", queue_id=0, timestamp=LAST_MS
    ),
}

#: Figures that follow the clock, or are forgotten by a stop.
PASSING = re.compile(rb'"(topicPutTps|delayTime)":[\d.]+')

#: What needs nothing but the ends of so many queues.
ENDS = {R.GET_CONSUME_STATS: 4, R.GET_BROKER_CONSUME_STATS: 4, R.GET_MAX_OFFSET: 1}


def asked(broker: SmallBroker) -> dict[R, tuple[int, Any]]:
    """What an operator is told, by question: a code with the figures, or with the words of a refusal."""
    peer: Peer = broker.connect()
    told: dict[R, tuple[int, Any]] = {}
    for code, header in QUESTIONS.items():
        answer = peer.ask(code, header)
        if answer.code:
            told[code] = (answer.code, answer.remark)
        else:
            told[code] = (0, (PASSING.sub(b"", answer.body), answer.ext_fields))
    return told


def figures(broker: SmallBroker) -> dict[str, str]:
    answer = broker.connect().ask(R.GET_BROKER_RUNTIME_INFO)
    return dict(decode_body(KVTable, answer.body).table)


@pytest.fixture
def before() -> SmallBroker:
    """A broker with a queue in the first files of its log and the last ones, and a group in the middle of it."""
    broker = SmallBroker(**SMALL)
    peer = broker.connect()
    send_delayed(peer, 2, b"late")
    for number in range(COUNT):
        peer.send(body=b"%d" % number)
        broker.clock.advance(0.01)
        if number == COUNT // 2:
            pad(broker)
    assert broker.core.groups.find("G") is not None
    broker.core.offsets.commit("G", "TopicA", 0, 7, "test")
    return broker


def test_nobody_is_told_a_part_of_the_truth(before: SmallBroker) -> None:
    before.clock.advance(6)
    whole = asked(before)
    assert all(code == 0 for code, _ in whole.values()), whole
    loss = Loss(before)
    store = loss.broker.store
    early = set()

    def is_watched() -> bool:
        for question, (code, said) in asked(loss.broker).items():
            queues = range(ENDS.get(question, 0))
            if queues and all(store.recovering("TopicA", queue) is None for queue in queues):
                early.add(question)
                assert (code, said) == whole[question], question
            else:
                assert code == ResponseCode.SYSTEM_BUSY, (question, said)
                assert said.startswith("[RECOVERY]"), said
                assert said.endswith("try again later"), said
        return False

    loss.until(lambda: not loss.lacks("TopicA") or is_watched())
    assert early == ENDS.keys()
    healed = loss.heal()
    assert asked(healed) == whole
    healed.stop()


def test_the_end_of_a_delay_level_is_shown_once_it_is_known(before: SmallBroker) -> None:
    shown = "scheduleMessageOffset_2"
    before.clock.advance(6)
    whole = figures(before)
    assert whole[shown] == "1,1"
    loss = Loss(before)
    store = loss.broker.store
    assert store.recovering(SCHEDULE_TOPIC, 1) is not None
    early = figures(loss.broker)
    assert shown not in early
    assert "recoveryOfQueues" in early
    loss.until(lambda: store.recovering(SCHEDULE_TOPIC, 1) is None)
    assert figures(loss.broker)[shown] == whole[shown]
    healed = loss.heal()
    assert "recoveryOfQueues" not in figures(healed)
    healed.stop()
