"""Ordered pops: one at a time for each queue, again from the first message on that is not done, over restarts too."""

from __future__ import annotations

import json

import pytest
from pops import PopConsumer, Popped, make_topic, pass_time, service
from small_broker import ROOT, SmallBroker
from transactions import killed

from txrocketmq.broker.pop.ordered import FILE_NAME
from txrocketmq.codec.bodies import ConsumerOrderInfoTable, decode_body
from txrocketmq.codec.headers import ChangeInvisibleTimeRequestHeader
from txrocketmq.model.codes import RequestCode, ResponseCode


@pytest.fixture
def consumer(broker: SmallBroker) -> PopConsumer:
    make_topic(broker)
    made = PopConsumer(broker)
    for number in range(6):
        made.peer.send(body=b"%d" % number)
    return made


def pop(consumer: PopConsumer, count: int = 2, **fields: object) -> Popped:
    return consumer.pop(**{"queue_id": 0, "max_msg_nums": count, "order": True, **fields})


def ack(consumer: PopConsumer, popped: Popped, *indexes: int) -> list[int]:
    return [consumer.ack(popped, popped.messages[index]).code for index in indexes]


def test_a_queue_waits_until_all_of_a_pop_is_done(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    first = pop(consumer)
    assert first.bodies == [b"0", b"1"]
    assert (first.header.revive_qid, first.header.order_count_info) == (999, "0 0 0")
    assert (first.header.rest_num, first.header.msg_offset_info) == (4, "0 0 0,1")
    blocked = pop(consumer)
    assert (blocked.code, blocked.header.rest_num) == (ResponseCode.POLLING_TIMEOUT, 0)
    assert blocked.header.order_count_info == ""
    assert ack(consumer, first, 1) == [0]
    assert pop(consumer).messages == []
    assert broker.core.offsets.query("G", "TopicA", 0) == 0
    assert ack(consumer, first, 0) == [0]
    assert broker.core.offsets.query("G", "TopicA", 0) == 2
    assert pop(consumer).bodies == [b"2", b"3"]


def test_after_a_kill_nothing_is_passed_over_for_a_later_message(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    """What was popped is forgotten, and the consumer acknowledges the second message first."""
    pass_time(broker, 6)
    first = pop(consumer, 3)
    broker = killed(broker)
    consumer = PopConsumer(broker)
    assert ack(consumer, first, 1, 2) == [0, 0]
    assert broker.core.offsets.query("G", "TopicA", 0) <= 0
    assert ack(consumer, first, 0) == [0]
    assert broker.core.offsets.query("G", "TopicA", 0) == 1
    assert pop(consumer).bodies == [b"1", b"2"]
    broker.stop()


def test_what_is_not_done_in_time_is_popped_again_from_the_first_on(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    first = pop(consumer, 3)
    ack(consumer, first, 0)
    pass_time(broker, 31)
    again = pop(consumer, 3)
    assert again.bodies == [b"1", b"2", b"3"]
    assert again.header.order_count_info == "0 qo0%1 1;0 qo0%2 1;0 0 0"
    pass_time(broker, 31)
    third = pop(consumer, 2)
    assert third.header.order_count_info == "0 qo0%1 2;0 qo0%2 2;0 0 2"
    # A receipt of an older pop does nothing.
    assert ack(consumer, again, 0) == [0]
    assert broker.core.offsets.query("G", "TopicA", 0) == 1


def test_the_same_attempt_may_pop_at_once_again(broker: SmallBroker, consumer: PopConsumer) -> None:
    first = pop(consumer, attempt_id="a-1")
    assert pop(consumer, attempt_id="a-2").messages == []
    again = pop(consumer, attempt_id="a-1")
    assert again.bodies == first.bodies
    assert again.header.order_count_info == "0 0 0"
    assert ack(consumer, again, 0, 1) == [0, 0]
    assert pop(consumer, attempt_id="a-2").bodies == [b"2", b"3"]


def test_an_acknowledgement_of_what_was_not_handed_out_is_illegal(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    first = pop(consumer)
    receipt = first.receipt(first.messages[0]).split(" ")
    answer = consumer.ack_receipt(" ".join([*receipt[:7], "4"]))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "offset is illegal, key:TopicA@G@0, old:0, commit:4, next:-1" in (answer.remark or "")
    ack(consumer, first, 0, 1)
    # What is done already needs no answer but success.
    assert ack(consumer, first, 0) == [0]


def test_a_message_may_be_suspended(broker: SmallBroker, consumer: PopConsumer) -> None:
    first = pop(consumer)
    ack(consumer, first, 0)
    receipt = first.receipt(first.messages[1])
    consumer.change(receipt, 5_000)
    pass_time(broker, 4)
    assert pop(consumer).messages == []
    pass_time(broker, 2)
    assert pop(consumer).bodies == [b"1", b"2"]


def test_a_suspension_of_what_is_done_changes_nothing(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    first = pop(consumer)
    ack(consumer, first, 0, 1)
    header = ChangeInvisibleTimeRequestHeader(
        consumer_group="G",
        topic="TopicA",
        queue_id=0,
        extra_info=first.receipt(first.messages[0]),
        offset=0,
        invisible_time=60_000,
    )
    assert consumer.peer.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header).code == 0
    assert pop(consumer).bodies == [b"2", b"3"]


def test_a_pop_that_waits_is_woken_when_the_queue_is_free(
    broker: SmallBroker, consumer: PopConsumer
) -> None:
    first = pop(consumer)
    waiting = consumer.wait(queue_id=0, order=True, max_msg_nums=2)
    pass_time(broker, 1)
    assert consumer.answer(waiting) is None
    ack(consumer, first, 0, 1)
    pass_time(broker, 0.01)
    woken = consumer.answer(waiting)
    assert woken is not None
    assert woken.bodies == [b"2", b"3"]
    # Nobody acknowledges: the next one is woken when the time is over.
    waiting = consumer.wait(queue_id=-1, order=True, max_msg_nums=1, poll_ms=60_000)
    pass_time(broker, 29)
    assert consumer.answer(waiting) is None
    pass_time(broker, 1.5)
    woken = consumer.answer(waiting)
    assert woken is not None
    assert woken.bodies == [b"2"]


def test_ordered_pops_leave_no_check_points(broker: SmallBroker, consumer: PopConsumer) -> None:
    popped = pop(consumer)
    pass_time(broker, 60)
    assert all(queue.next_offset == 0 for queue in service(broker).queues)
    assert broker.core.topics.get("%RETRY%G_TopicA") is None
    assert popped.header.start_offset_info == "0 0 0"


@pytest.mark.parametrize("kill", [False, True])
def test_a_restart_keeps_the_order(kill: bool) -> None:
    broker = SmallBroker()
    make_topic(broker)
    consumer = PopConsumer(broker)
    for number in range(4):
        consumer.peer.send(body=b"%d" % number)
    first = pop(consumer, attempt_id="a-1")
    ack(consumer, first, 0)
    pass_time(broker, 6)
    broker = killed(broker) if kill else broker.restarted()
    consumer = PopConsumer(broker)
    saved = broker.disk.read_file(f"{ROOT}/config/{FILE_NAME}")
    assert b'"TopicA@G":{0:{"a":"a-1","cm":1,"i":30000,"l":' in saved
    table = decode_body(ConsumerOrderInfoTable, saved).table
    assert table["TopicA@G"][0].offset_list == [0, 1]
    assert pop(consumer).messages == []
    waiting = consumer.wait(queue_id=0, order=True, poll_ms=60_000)
    pass_time(broker, 26)
    woken = consumer.answer(waiting)
    assert woken is not None
    assert woken.bodies == [b"1", b"2", b"3"]
    broker.stop()


def test_a_reset_lets_go_of_the_queue(broker: SmallBroker, consumer: PopConsumer) -> None:
    first = pop(consumer)
    ack(consumer, first, 0, 1)
    pop(consumer)
    broker.core.offsets.reset("G", "TopicA", 0, 1, "an operator")
    assert pop(consumer).bodies == [b"1", b"2"]


def test_what_is_gone_is_forgotten(broker: SmallBroker, consumer: PopConsumer) -> None:
    pop(consumer)
    pops = service(broker)
    assert list(pops.ordered.items()) == [("TopicA", "G", 0)]
    pops.group_deleted("G")
    assert list(pops.ordered.items()) == []
    pop(consumer)
    pops.topic_deleted("TopicA")
    assert list(pops.ordered.items()) == []
    pop(consumer)
    pass_time(broker, 25 * 3600, 600)
    assert list(pops.ordered.items()) == []
    saved = json.loads(broker.disk.read_file(f"{ROOT}/config/{FILE_NAME}"))
    assert saved == {"orderedConsumptionLevel": "QUEUE", "table": {}}
