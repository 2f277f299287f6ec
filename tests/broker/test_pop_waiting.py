"""Pops and notifications that wait: what wakes them, how long they wait, how many may."""

from __future__ import annotations

import pytest
from pops import COMES_AGAIN_S, PopConsumer, make_topic, pass_time, service
from small_broker import SmallBroker, properties, send_header

from txrocketmq.codec.headers import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageResponseHeader,
)
from txrocketmq.codec.record import decode_records
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.topic import TopicConfig


@pytest.fixture
def consumer(broker: SmallBroker) -> PopConsumer:
    make_topic(broker, queues=2)
    return PopConsumer(broker)


def turn(broker: SmallBroker) -> None:
    broker.clock.advance(0)


def test_a_message_wakes_one_pop_of_each_group(broker: SmallBroker, consumer: PopConsumer) -> None:
    other = PopConsumer(broker, "G2", 42_001)
    first, second = consumer.wait(), consumer.wait()
    third = other.wait()
    consumer.peer.send(body=b"one", queue_id=1)
    turn(broker)
    popped = consumer.answer(first)
    assert popped is not None
    assert popped.bodies == [b"one"]
    assert consumer.answer(second) is None
    popped = other.answer(third)
    assert popped is not None
    assert popped.bodies == [b"one"]


def test_a_pop_of_one_queue_is_woken_by_that_queue(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    waiting = consumer.wait(queue_id=1)
    consumer.peer.send(body=b"zero", queue_id=0)
    turn(broker)
    assert consumer.answer(waiting) is None
    consumer.peer.send(body=b"one", queue_id=1)
    turn(broker)
    popped = consumer.answer(waiting)
    assert popped is not None
    assert popped.bodies == [b"one"]


def test_the_wait_ends_when_its_time_is_over(broker: SmallBroker, consumer: PopConsumer) -> None:
    waiting = consumer.wait(poll_ms=3_000)
    pass_time(broker, 2.9)
    assert consumer.answer(waiting) is None
    pass_time(broker, 0.1)
    popped = consumer.answer(waiting)
    assert popped is not None
    assert (popped.code, popped.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
    assert service(broker).pops.waiting.count == 0


def test_only_what_passes_the_filter_wakes(broker: SmallBroker, consumer: PopConsumer) -> None:
    waiting = consumer.wait(exp="TagA || TagB")
    consumer.peer.send(body=b"no", properties=properties(TAGS="TagC"))
    turn(broker)
    assert consumer.answer(waiting) is None
    assert service(broker).pops.waiting.count == 1
    consumer.peer.send(body=b"yes", properties=properties(TAGS="TagB"))
    turn(broker)
    popped = consumer.answer(waiting)
    assert popped is not None
    assert popped.bodies == [b"yes"]
    # Those that the group does not want are behind it.
    assert broker.core.offsets.query("G", "TopicA", 0) == 2


def test_sql_filters_are_evaluated_for_pops_and_wake_ups(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    broker.config.enable_property_filter = True
    waiting = consumer.wait(exp_type="SQL92", exp="a > 5")
    consumer.peer.send(body=b"no", properties=properties(a="3"))
    turn(broker)
    assert consumer.answer(waiting) is None
    consumer.peer.send(body=b"yes", properties=properties(a="7"))
    turn(broker)
    popped = consumer.answer(waiting)
    assert popped is not None
    assert popped.bodies == [b"yes"]


def test_many_filters_read_a_message_once(
    broker: SmallBroker, consumer: PopConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.config.enable_property_filter = True
    # The first message of a queue wakes everybody.
    consumer.peer.send(properties=properties(a="-1"))
    others = [PopConsumer(broker, f"G{number}", 42_001 + number) for number in range(5)]
    waits = [other.wait(exp_type="SQL92", exp=f"a > {n}") for n, other in enumerate(others)]
    waiting = service(broker).pops.waiting
    reads: list[tuple[str, int, int]] = []
    read = waiting._read_record

    def counted(topic: str, queue_id: int, offset: int) -> bytes | None:
        reads.append((topic, queue_id, offset))
        return read(topic, queue_id, offset)

    monkeypatch.setattr(waiting, "_read_record", counted)
    consumer.peer.send(body=b"three", properties=properties(a="3"))
    turn(broker)
    assert reads == [("TopicA", 0, 1)]
    found = [other.answer(opaque) for other, opaque in zip(others, waits, strict=True)]
    assert [popped and popped.bodies for popped in found] == [[b"three"]] * 3 + [None] * 2


def test_a_pop_that_reads_much_for_its_filter_lets_others_have_their_turn(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    broker.config.enable_property_filter = True
    for queue_id in (0, 1):
        for _ in range(100):
            consumer.peer.send(properties=properties(a="3"), queue_id=queue_id)
    waiting = consumer.wait(exp_type="SQL92", exp="a > 5", poll_ms=0)
    offsets = [broker.core.offsets.query("G", "TopicA", queue_id) for queue_id in (0, 1)]
    assert sorted(offsets) == [-1, 100]
    assert consumer.answer(waiting) is None
    for _ in range(3):
        turn(broker)
    popped = consumer.answer(waiting)
    assert popped is not None
    assert popped.messages == []
    assert [broker.core.offsets.query("G", "TopicA", queue_id) for queue_id in (0, 1)] == [100, 100]


def test_a_link_that_is_lost_while_its_pop_is_served_is_not_woken_instead_of_others(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    broker.config.enable_property_filter = True
    for _ in range(100):
        consumer.peer.send(properties=properties(a="3"))
    wants = {"exp_type": "SQL92", "exp": "a > 5"}
    gone = PopConsumer(broker, port=42_001)
    gone.wait(**wants, poll_ms=1_000_000)
    gone.peer.close()
    waiting = consumer.wait(**wants)
    for _ in range(3):
        turn(broker)
    assert service(broker).pops.waiting.count == 1
    consumer.peer.send(body=b"yes", properties=properties(a="7"))
    turn(broker)
    popped = consumer.answer(waiting)
    assert popped is not None
    assert popped.bodies == [b"yes"]


def test_a_queue_of_unwanted_messages_is_passed_over(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    for _ in range(40):
        consumer.peer.send(properties=properties(TAGS="TagC"))
    assert consumer.pop(exp="TagA").messages == []
    assert broker.core.offsets.query("G", "TopicA", 0) == 40


def test_what_comes_again_wakes_its_group(broker: SmallBroker, consumer: PopConsumer) -> None:
    consumer.peer.send(body=b"one")
    consumer.pop()
    other = PopConsumer(broker, "G2", 42_001)
    other.pop()
    waiting, others = consumer.wait(poll_ms=60_000), other.wait(poll_ms=20_000)
    pass_time(broker, COMES_AGAIN_S)
    popped = consumer.answer(waiting)
    assert popped is not None
    assert popped.bodies == [b"one"]
    told = other.answer(others)
    assert told is not None
    assert told.messages == []


def test_whoever_finds_more_than_it_takes_wakes_the_next(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    first, second = consumer.wait(max_msg_nums=1), consumer.wait(max_msg_nums=1)
    consumer.peer.send(body=b"one")
    consumer.peer.send(body=b"two")
    turn(broker)
    turn(broker)
    found = [consumer.answer(opaque) for opaque in (first, second)]
    assert [popped and popped.bodies for popped in found] == [[b"one"], [b"two"]]


def test_those_that_wait_are_counted_and_bounded(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    def polling(queue_id: int = -1) -> int:
        header = PollingInfoRequestHeader(consumer_group="G", topic="TopicA", queue_id=queue_id)
        return consumer.peer.ask_for(
            PollingInfoResponseHeader, RequestCode.POLLING_INFO, header
        ).polling_num

    broker.config.max_pop_polling_size = 3
    assert polling() == 0
    held = [consumer.wait() for _ in range(3)]
    assert (polling(), polling(0)) == (3, 0)
    full = consumer.answer(consumer.wait())
    assert full is not None
    assert full.code == ResponseCode.POLLING_FULL
    broker.config.max_pop_polling_size = 100
    broker.config.pop_polling_size = 2
    full = consumer.answer(consumer.wait())
    assert full is not None
    assert full.code == ResponseCode.POLLING_FULL
    assert [consumer.answer(opaque) for opaque in held] == [None] * 3
    consumer.peer.close()
    assert service(broker).pops.waiting.count == 0


def test_an_orderly_stop_answers_those_that_wait(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    waiting = consumer.wait()
    service(broker).stop()
    popped = consumer.answer(waiting)
    assert popped is not None
    assert popped.code == ResponseCode.POLLING_TIMEOUT


def test_a_topic_or_group_that_is_deleted_lets_nobody_wait(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    waiting = consumer.wait()
    broker.core.topics.delete("TopicA")
    service(broker).topic_deleted("TopicA")
    turn(broker)
    popped = consumer.answer(waiting)
    assert popped is not None
    assert popped.code == ResponseCode.TOPIC_NOT_EXIST


def test_a_peer_that_does_not_read_is_served_when_it_does(
    broker: SmallBroker, consumer: PopConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = consumer.wait()
    connection = next(iter(service(broker).pops.waiting._by_connection))
    later: list[object] = []
    monkeypatch.setattr(connection, "call_when_writable", later.append, raising=False)
    consumer.peer.send(body=b"one")
    turn(broker)
    assert consumer.answer(waiting) is None
    assert broker.core.offsets.query("G", "TopicA", 0) == 0
    later[0]()  # type: ignore[operator]
    popped = consumer.answer(waiting)
    assert popped is not None
    assert popped.bodies == [b"one"]


@pytest.mark.parametrize("is_lost", [True, False])
def test_what_wakes_a_peer_that_is_not_there_wakes_the_next_one(
    broker: SmallBroker, consumer: PopConsumer, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    """Its link is lost between the message and the turn in which it would be served; or it does not read."""
    other = PopConsumer(broker, port=42_001)
    consumer.wait()
    waiting = other.wait()
    connection = next(iter(service(broker).pops.waiting._by_connection))
    other.peer.send(body=b"one")
    if is_lost:
        consumer.peer.close()
    else:
        monkeypatch.setattr(type(connection), "is_writable", property(lambda it: it != connection))
        monkeypatch.setattr(connection, "call_when_writable", [].append, raising=False)
    turn(broker)
    popped = other.answer(waiting)
    assert popped is not None
    assert popped.bodies == [b"one"]


def test_a_pop_waits_for_the_device_and_others_for_it() -> None:
    broker = SmallBroker(flush_disk_type="SYNC_FLUSH")
    make_topic(broker)
    consumer = PopConsumer(broker)
    for number in range(3):
        sent = consumer.peer.tell(
            RequestCode.SEND_MESSAGE_V2, send_header("TopicA"), b"%d" % number
        )
        broker.clock.advance(0.1)
        answer = consumer.peer.answer(sent)
        assert answer is not None
        assert answer.code == 0
    # The first one is answered when its check point is on the device; meanwhile the queue is nobody else's.
    first = consumer.wait(max_msg_nums=2, poll_ms=0)
    second = consumer.wait()
    assert [consumer.answer(opaque) for opaque in (first, second)] == [None, None]
    broker.clock.advance(0.1)
    broker.clock.advance(0.1)
    found = [consumer.answer(opaque) for opaque in (first, second)]
    assert [popped and popped.bodies for popped in found] == [[b"0", b"1"], [b"2"]]
    broker.stop()


# ----------------------------------------------------------------- bounds of what is out


def test_no_more_is_out_than_allowed(broker: SmallBroker, consumer: PopConsumer) -> None:
    broker.config.enable_pop_message_threshold = True
    broker.config.pop_inflight_message_threshold = 2
    for number in range(6):
        consumer.peer.send(body=b"%d" % number, queue_id=0)
    popped = consumer.pop(max_msg_nums=3)
    assert len(popped.messages) == 3
    stopped = consumer.pop()
    assert (stopped.messages, stopped.header.rest_num) == ([], 3)
    waiting = consumer.wait()
    turn(broker)
    assert consumer.answer(waiting) is None
    consumer.ack(popped, popped.messages[0])
    turn(broker)
    woken = consumer.answer(waiting)
    assert woken is not None
    assert woken.bodies == [b"3", b"4", b"5"]


def test_what_comes_again_is_not_out_any_more(broker: SmallBroker, consumer: PopConsumer) -> None:
    consumer.peer.send(queue_id=0)
    consumer.pop()
    assert service(broker).in_flight.total() == 1
    pass_time(broker, COMES_AGAIN_S)
    assert service(broker).in_flight.total() == 0


# ----------------------------------------------------------------- looks


def notification(consumer: PopConsumer, poll_ms: int = 0, **fields: object) -> int:
    values: dict[str, object] = {
        "consumer_group": "G",
        "topic": "TopicA",
        "queue_id": -1,
        "poll_time": poll_ms,
        "born_time": consumer.broker.now_ms(),
        **fields,
    }
    header = NotificationRequestHeader(**values)  # type: ignore[arg-type]
    return consumer.peer.tell(RequestCode.NOTIFICATION, header)


def told(consumer: PopConsumer, opaque: int) -> NotificationResponseHeader | None:
    answer = consumer.peer.answer(opaque)
    return None if answer is None else answer.decode_header(NotificationResponseHeader)


def test_a_notification_tells_whether_there_is_something(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    assert told(consumer, notification(consumer)) == NotificationResponseHeader()
    consumer.peer.send(queue_id=1)
    assert told(consumer, notification(consumer, queue_id=0)) == NotificationResponseHeader()
    for queue_id in (1, -1):
        answer = told(consumer, notification(consumer, queue_id=queue_id))
        assert answer == NotificationResponseHeader(has_msg=True)
    consumer.pop()
    assert told(consumer, notification(consumer)) == NotificationResponseHeader()
    pass_time(broker, COMES_AGAIN_S)
    assert told(consumer, notification(consumer)) == NotificationResponseHeader(has_msg=True)


def test_a_notification_waits_for_the_next_message(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    waiting, idle = notification(consumer, 5_000), notification(consumer, 2_000, queue_id=0)
    pass_time(broker, 1)
    assert told(consumer, waiting) is None
    consumer.peer.send(queue_id=1)
    turn(broker)
    assert told(consumer, waiting) == NotificationResponseHeader(has_msg=True)
    assert told(consumer, idle) is None
    pass_time(broker, 1)
    assert told(consumer, idle) == NotificationResponseHeader()
    broker.config.max_pop_polling_size = 0
    answer = told(consumer, notification(consumer, 5_000, queue_id=0))
    assert answer == NotificationResponseHeader(polling_full=True)


def test_a_notification_of_an_ordered_group_knows_what_is_blocked(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    for _ in range(2):
        consumer.peer.send(queue_id=0)
    consumer.pop(queue_id=0, order=True, max_msg_nums=1, attempt_id="a")
    blocked = told(consumer, notification(consumer, order=True, attempt_id="b"))
    assert blocked == NotificationResponseHeader()
    own = told(consumer, notification(consumer, order=True, attempt_id="a"))
    assert own == NotificationResponseHeader(has_msg=True)


def test_a_peek_takes_nothing(broker: SmallBroker, consumer: PopConsumer) -> None:
    header = PeekMessageRequestHeader(
        topic="TopicA", queue_id=-1, max_msg_nums=2, consumer_group="G"
    )
    empty = consumer.peer.ask(RequestCode.PEEK_MESSAGE, header)
    assert (empty.code, empty.remark) == (ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")
    for number in range(3):
        consumer.peer.send(body=b"%d" % number, queue_id=0)
    for _ in range(2):
        answer = consumer.peer.ask(RequestCode.PEEK_MESSAGE, header)
        assert [message.body for message in decode_records(answer.body)] == [b"0", b"1"]
        assert answer.decode_header(PopMessageResponseHeader).rest_num == 3
    assert consumer.pop().bodies == [b"0", b"1", b"2"]
    assert consumer.peer.ask(RequestCode.PEEK_MESSAGE, header).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("perm", [2, 6])
def test_looks_feel_the_permission_of_the_topic(
    broker: SmallBroker, consumer: PopConsumer, perm: int
) -> None:
    consumer.peer.send(queue_id=0)
    broker.core.topics.update([TopicConfig(topic_name="TopicA", perm=perm)])
    values = {"topic": "TopicA", "queue_id": 0, "consumer_group": "G"}
    looks = (
        (RequestCode.PEEK_MESSAGE, PeekMessageRequestHeader(max_msg_nums=1, **values)),
        (
            RequestCode.NOTIFICATION,
            NotificationRequestHeader(poll_time=0, born_time=broker.now_ms(), **values),
        ),
        (RequestCode.POLLING_INFO, PollingInfoRequestHeader(**values)),
    )
    for code, header in looks:
        answer = consumer.peer.ask(code, header)
        assert (answer.code == 0) is (perm == 6), code
        if perm == 2:
            assert answer.remark == "the topic[TopicA] peeking message is forbidden"


# ----------------------------------------------------------------- where a group begins


@pytest.mark.parametrize(("in_memory", "first"), [(True, 0), (False, 4)])
def test_a_group_that_begins_at_the_end_gets_the_last_message(
    broker: SmallBroker, consumer: PopConsumer, in_memory: bool, first: int
) -> None:
    broker.config.init_pop_offset_by_check_msg_in_mem = in_memory
    for number in range(5):
        consumer.peer.send(body=b"%d" % number, queue_id=0)
    popped = consumer.pop(init_mode=1, queue_id=0)
    assert popped.messages[0].queue_offset == first


def test_an_offset_that_the_queue_has_not_is_put_right(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    for _ in range(2):
        consumer.peer.send(queue_id=0)
    broker.core.offsets.commit("G", "TopicA", 0, 77, "somebody")
    assert consumer.pop(queue_id=0).messages == []
    assert broker.core.offsets.query("G", "TopicA", 0) == 2
    consumer.peer.send(body=b"new", queue_id=0)
    assert consumer.pop(queue_id=0).bodies == [b"new"]


def test_a_reset_is_followed_by_the_next_pop(broker: SmallBroker, consumer: PopConsumer) -> None:
    for number in range(4):
        consumer.peer.send(body=b"%d" % number, queue_id=0)
    consumer.pop()
    broker.core.offsets.reset("G", "TopicA", 0, 2, "an operator")
    popped = consumer.pop(queue_id=0)
    # Within the same millisecond: the two pops do not share a check point, having begun at different offsets.
    assert popped.bodies == [b"2", b"3"]


def test_two_pops_of_one_offset_in_one_millisecond_share_no_check_point() -> None:
    broker = SmallBroker(revive_queue_num=1)
    make_topic(broker)
    consumer = PopConsumer(broker)
    consumer.peer.send(body=b"one", queue_id=0)
    first = consumer.pop(queue_id=0)
    broker.core.offsets.reset("G", "TopicA", 0, 0, "an operator")
    assert consumer.pop(queue_id=0).messages == []
    consumer.ack(first, first.messages[0])
    pass_time(broker, 0.001)
    assert consumer.pop(queue_id=0).bodies == [b"one"]
    broker.stop()
