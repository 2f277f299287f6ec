"""Receipts of popped messages, as official clients build them."""

from __future__ import annotations

import pytest

from txrocketmq.client.receipts import add_receipts, change_receipt, topic_mark
from txrocketmq.codec.headers import (
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from txrocketmq.codec.record import decode_record, encode_record
from txrocketmq.errors import BodyError
from txrocketmq.model import properties as props
from txrocketmq.model.message import MessageExt, MessageRecord


def popped(topic: str, queue_id: int, offset: int, **properties: str) -> MessageExt:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    record = MessageRecord(topic=topic, queue_id=queue_id, body=b"x", properties=text)
    return decode_record(encode_record(record, offset, 0, 1))[0]


def asked(order: bool = False, topic: str = "T") -> PopMessageRequestHeader:
    return PopMessageRequestHeader(
        consumer_group="G",
        topic=topic,
        queue_id=-1,
        max_msg_nums=32,
        invisible_time=60_000,
        poll_time=0,
        born_time=1,
        init_mode=0,
        order=order,
    )


def header(**more: str) -> PopMessageResponseHeader:
    return PopMessageResponseHeader(
        pop_time=1700, invisible_time=60_000, revive_qid=3, rest_num=0, **more
    )


def receipts(messages: list[MessageExt]) -> list[str]:
    return [message.properties[props.POP_CK] for message in messages]


def test_each_message_gets_the_start_of_its_queue_and_its_own_offset() -> None:
    messages = [
        popped("T", 1, 7),
        popped("T", 1, 8),
        popped("%RETRY%G_T", 0, 2),
        popped("%RETRY%G+T", 0, 5),
    ]
    told = header(start_offset_info="0 1 7;1 0 2;2 0 5", msg_offset_info="0 1 7,8;1 0 2;2 0 5")
    add_receipts(messages, told, asked(), "broker-a")
    assert receipts(messages) == [
        "7 1700 60000 3 0 broker-a 1 7",
        "7 1700 60000 3 0 broker-a 1 8",
        "2 1700 60000 3 1 broker-a 0 2",
        "5 1700 60000 3 2 broker-a 0 5",
    ]
    assert {message.properties[props.FIRST_POP_TIME] for message in messages} == {"1700"}


def test_a_message_that_brings_its_receipt_keeps_it() -> None:
    message = popped("T", 1, 7, POP_CK="7 1700 60000 3 1 b 1 7")
    message.properties[props.FIRST_POP_TIME] = "5"
    add_receipts(
        [message], header(start_offset_info="1 1 7", msg_offset_info="1 1 7"), asked(), "b"
    )
    assert receipts([message]) == ["7 1700 60000 3 1 b 1 7"]
    assert message.properties[props.FIRST_POP_TIME] == "5"


@pytest.mark.parametrize("old", ["7 1600 60000 3 0 b 1 7", "7 1700 60000 3 0 b 1 6", "x", "1 2"])
def test_the_receipt_that_a_message_brings_of_an_older_pop_is_none(old: str) -> None:
    messages = [popped("T", 1, 7, POP_CK=old), popped("T", 1, 5, POP_CK=old)]
    messages[1].reconsume_times = 1
    told = header(start_offset_info="0 1 6;2 1 5", msg_offset_info="0 1 7;2 1 5")
    add_receipts(messages, told, asked(), "b")
    assert receipts(messages) == ["6 1700 60000 3 0 b 1 7", "5 1700 60000 3 2 b 1 5"]


def test_without_information_the_first_message_is_the_start() -> None:
    messages = [popped("T", 1, 7), popped("T", 1, 8)]
    add_receipts(messages, header(), asked(), "b")
    assert receipts(messages) == ["7 1700 60000 3 0 b 1 7", "7 1700 60000 3 0 b 1 8"]


def test_ordered_groups_learn_how_often_a_message_was_tried() -> None:
    messages = [popped("T", 1, 7), popped("T", 2, 9)]
    told = header(
        start_offset_info="0 1 7;0 2 9",
        msg_offset_info="0 1 7;0 2 9",
        order_count_info="0 1 4;0 qo2%9 2",
    )
    add_receipts(messages, told, asked(order=True), "b")
    assert [message.reconsume_times for message in messages] == [4, 2]


def test_information_that_does_not_fit() -> None:
    for told in (
        header(start_offset_info="0 1", msg_offset_info="0 1 7"),
        header(start_offset_info="0 2 7", msg_offset_info="0 2 7"),
        header(start_offset_info="0 1 7", msg_offset_info="0 1 7,x"),
        header(start_offset_info="0 1 x", msg_offset_info="0 1 7"),
    ):
        with pytest.raises(BodyError, match="offset information"):
            add_receipts([popped("T", 1, 7)], told, asked(), "b")


def test_light_queues_count_their_own_offsets() -> None:
    message = popped(
        "T", 3, 70, INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b", INNER_MULTI_QUEUE_OFFSET="5,6"
    )
    told = header(start_offset_info="0 0 6", msg_offset_info="0 0 6")
    add_receipts([message], told, asked(topic="%LMQ%b"), "b")
    assert receipts([message]) == ["6 1700 60000 3 0 b 0 6"]


def test_marks_and_changed_receipts() -> None:
    assert [topic_mark(topic) for topic in ("T", "%RETRY%G_T", "%RETRY%G+T")] == ["0", "1", "2"]
    request = ChangeInvisibleTimeRequestHeader(
        consumer_group="G", topic="T", queue_id=1, extra_info="old", offset=9, invisible_time=5
    )
    found = ChangeInvisibleTimeResponseHeader(pop_time=11, invisible_time=22, revive_qid=3)
    assert change_receipt(request, found, "b") == "9 11 22 3 0 b 1 9"
