"""What a broker confirms of its topics and groups survives a kill: no answer comes before the file has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pops import PopConsumer, make_topic
from small_broker import Peer, SmallBroker, properties, send_header
from test_retry import BACK, back_header, received
from transactions import killed

from txrocketmq.client.admin.topics import create_topic_header
from txrocketmq.codec.bodies.wire import encode_body
from txrocketmq.codec.headers import (
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from txrocketmq.model.codes import RequestCode as R
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.topic import TopicConfig
from txrocketmq.store.results import PutMessageResult, PutMessageStatus
from txrocketmq.testing.pools import ManualPool

TOPIC = TopicConfig(topic_name="Made", read_queue_nums=3, write_queue_nums=3, perm=6)
GROUP = encode_body(SubscriptionGroupConfig(group_name="made-group", retry_max_times=3))


def slow_files(broker: SmallBroker) -> ManualPool:
    """From now on tables are saved when the test says so."""
    pool = ManualPool()
    broker.core.topics.file._files._pool = pool  # type: ignore[attr-defined]
    return pool


def has_topic(broker: SmallBroker, name: str = "Made") -> bool:
    return name in broker.core.topics


def has_group(broker: SmallBroker) -> bool:
    return any(group.group_name == "made-group" for group in broker.core.groups.all())


CHANGES: list[tuple[str, tuple[Any, ...], Callable[[SmallBroker], bool]]] = [
    ("topic", (R.UPDATE_AND_CREATE_TOPIC, create_topic_header(TOPIC)), has_topic),
    ("group", (R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, GROUP), has_group),
    (
        "forbidden",
        (
            R.UPDATE_AND_GET_GROUP_FORBIDDEN,
            UpdateGroupForbiddenRequestHeader(group="g", topic="TopicA", readable=False),
        ),
        lambda broker: broker.core.groups.is_forbidden("g", "TopicA", 2),
    ),
    (
        "topic of a message",
        (R.SEND_MESSAGE_V2, send_header("Made", properties=properties(UNIQ_KEY="u")), b"x"),
        has_topic,
    ),
    (
        "group deleted",
        (R.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequestHeader(group_name="old-group")),
        lambda broker: all(group.group_name != "old-group" for group in broker.core.groups.all()),
    ),
    (
        "topic deleted",
        (R.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="TopicA")),
        lambda broker: not has_topic(broker, "TopicA"),
    ),
]


@pytest.mark.parametrize(("what", "request_", "is_there"), CHANGES, ids=[c[0] for c in CHANGES])
def test_a_change_is_on_disk_before_its_answer(
    what: str, request_: tuple[Any, ...], is_there: Callable[[SmallBroker], bool]
) -> None:
    broker = SmallBroker()
    peer = broker.connect()
    peer.send()
    broker.core.groups.update(SubscriptionGroupConfig(group_name="old-group"))
    pool = slow_files(broker)
    asked = peer.tell(*request_)
    broker.clock.advance(1)
    assert peer.answer(asked) is None, "confirmed before it was saved"
    while pool.pending:
        pool.run()
    answer = peer.answer(asked)
    assert answer is not None
    assert answer.code == 0
    assert is_there(killed(broker))


def test_later_messages_wait_for_their_topic_too_and_no_longer() -> None:
    broker = SmallBroker()
    peer = broker.connect()
    pool = slow_files(broker)
    one, two = (peer.tell(R.SEND_MESSAGE_V2, send_header("Made"), b"x") for _ in range(2))
    broker.clock.advance(0)
    assert (peer.answer(one), peer.answer(two)) == (None, None)
    while pool.pending:
        pool.run()
    answers = [peer.answer(one), peer.answer(two)]
    assert [answer and answer.code for answer in answers] == [0, 0]
    assert peer.ask(R.SEND_MESSAGE_V2, send_header("Made"), b"x").code == 0
    assert not pool.pending


def test_other_topics_do_not_wait_for_a_new_one() -> None:
    broker = SmallBroker()
    peer = broker.connect()
    peer.send()
    pool = slow_files(broker)
    made = peer.tell(R.SEND_MESSAGE_V2, send_header("Made"), b"x")
    other = peer.tell(R.SEND_MESSAGE_V2, send_header(), b"x")
    broker.clock.advance(0)
    assert peer.answer(made) is None
    answer = peer.answer(other)
    assert answer is not None
    assert answer.code == 0
    assert pool.pending


def test_who_is_refused_does_not_wait_for_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SmallBroker()
    peer = broker.connect()
    slow_files(broker)
    refused = PutMessageResult(PutMessageStatus.OS_PAGE_CACHE_BUSY)
    monkeypatch.setattr(broker.store, "put_message", lambda record: refused)
    asked = peer.tell(R.SEND_MESSAGE_V2, send_header("Made"), b"x")
    broker.clock.advance(0)
    answer = peer.answer(asked)
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_BUSY


def test_a_change_during_a_save_waits_for_the_next_one() -> None:
    broker = SmallBroker()
    peer = broker.connect()
    pool = slow_files(broker)
    one = peer.tell(R.SEND_MESSAGE_V2, send_header("Made-1"), b"x")
    two = peer.tell(R.SEND_MESSAGE_V2, send_header("Made-2"), b"x")
    broker.clock.advance(0)
    pool.work()
    pool.deliver()
    assert peer.answer(one) is not None
    assert peer.answer(two) is None
    assert not has_topic(killed(broker), "Made-2")


def test_the_dead_letters_of_a_group_are_found_after_a_kill() -> None:
    broker = SmallBroker()
    peer = broker.connect()
    peer.send(body=b"hello", properties=properties(UNIQ_KEY="U1"))
    message = received(peer)
    pool = slow_files(broker)
    back = peer.tell(BACK, back_header(message, delay_level=-1))
    broker.clock.advance(0)
    assert peer.answer(back) is None
    while pool.pending:
        pool.run()
    assert peer.answer(back) is not None
    after = killed(broker)
    assert has_topic(after, "%DLQ%G")


def test_a_disk_that_takes_no_table_holds_nobody_up(broker: SmallBroker, peer: Peer) -> None:
    slow_files(broker).stop()
    assert peer.ask(R.UPDATE_AND_CREATE_TOPIC, create_topic_header(TOPIC)).code == 0


def test_popped_messages_wait_for_the_topic_in_which_they_come_again() -> None:
    broker = SmallBroker()
    consumer = PopConsumer(broker)
    make_topic(broker)
    consumer.peer.send(body=b"again")
    assert len(consumer.pop(invisible_time=1_000).messages) == 1
    pool = slow_files(broker)
    retry = "%RETRY%G_TopicA"
    for _ in range(80):
        broker.clock.advance(0.1)
        if pool.pending and has_topic(broker, retry):
            break
    assert has_topic(broker, retry)
    assert not consumer.peer.pull(retry, 0, 0).messages
    while pool.pending:
        pool.run()
    broker.clock.advance(0.1)
    assert [m.body for m in consumer.peer.pull(retry, 0, 0).messages] == [b"again"]
    assert has_topic(killed(broker), retry)
