"""Is one message put into the light queues that it names, with the official property text, and are they derived again?"""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from txrocketmq.codec.record import decode_records, encode_batch
from txrocketmq.codec.storefiles import CQ_UNIT
from txrocketmq.model.flags import TRANSACTION_COMMIT_TYPE, TRANSACTION_PREPARED_TYPE
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message import MessageExt, MessageRecord
from txrocketmq.model.properties import format_properties
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.results import GetMessageResult, PutMessageResult
from txrocketmq.store.results import PutMessageStatus as Put
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.store import open_memory_store, small_config

LIGHT = {"enable_lmq": True, "enable_multi_dispatch": True}


def opened(disk: MemoryDisk, **keys: object) -> MessageStore:
    clock = Clock()
    clock.advance(1_700_000_000)
    return open_memory_store(disk, clock, config=small_config(**{**LIGHT, **keys}))


def message(number: int, light: str | None = None, topic: str = "T", **found: str) -> MessageRecord:
    found = {"UNIQ_KEY": f"id{number}", "TAGS": "a", **found}
    if light is not None:
        found["INNER_MULTI_DISPATCH"] = light
    return MessageRecord(
        topic=topic,
        queue_id=1,
        body=b"body %d" % number,
        properties=format_properties(found),
        tags_code=tags_code("a"),
        uniq_key=found["UNIQ_KEY"],
    )


def put(store: MessageStore, record: MessageRecord) -> PutMessageResult:
    result = store.put_message(record)
    assert isinstance(result, PutMessageResult)
    return result


def queue(store: MessageStore, name: str, queue_id: int = 0) -> list[MessageExt]:
    found = store.get_message(name, queue_id, 0, 32, 1 << 20, None)
    assert isinstance(found, GetMessageResult)
    return decode_records(b"".join(found.records))


def test_a_message_is_in_its_own_queue_and_in_those_it_names() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    heard: list[tuple[str, int, int]] = []
    store.add_arrival_listener(
        lambda topic, queue_id, next_offset, *_: heard.append((topic, queue_id, next_offset))
    )
    put(store, message(0, "%LMQ%one"))
    put(store, message(1, "%LMQ%one,%LMQ%two"))
    put(store, message(2))
    assert [m.body for m in queue(store, "T", 1)] == [b"body 0", b"body 1", b"body 2"]
    one, two = queue(store, "%LMQ%one"), queue(store, "%LMQ%two")
    assert [m.body for m in one] == [b"body 0", b"body 1"]
    assert two == one[1:]
    assert two[0].topic == "T"
    assert two[0].properties["INNER_MULTI_DISPATCH"] == "%LMQ%one,%LMQ%two"
    assert two[0].properties["INNER_MULTI_QUEUE_OFFSET"] == "1,0"
    assert store.max_offset("%LMQ%one", 0) == 2
    assert heard == [
        ("T", 1, 1), ("%LMQ%one", 0, 1), ("T", 1, 2), ("%LMQ%one", 0, 2), ("%LMQ%two", 0, 1), ("T", 1, 3),
    ]  # fmt: skip
    store.stop()
    unit = CQ_UNIT.unpack(disk.read_at(f"/store/consumequeue/%LMQ%two/0/{0:020d}", 0, 20))
    assert unit == (two[0].physical_offset, two[0].store_size, tags_code("a"))


@pytest.mark.parametrize("how", ["stop", "kill", "kill-without-queues"])
def test_light_queues_go_on_where_they_ended(how: str) -> None:
    disk = MemoryDisk()
    store = opened(disk)
    for number in range(10):
        put(store, message(number, "%LMQ%one,%LMQ%even" if number % 2 == 0 else "%LMQ%one"))
    if how == "stop":
        store.stop()
    disk.locked.clear()
    if how == "kill-without-queues":
        disk.rmtree("/store/consumequeue")
    again = opened(disk)
    assert again.max_offset("%LMQ%one", 0) == 10
    assert [m.body for m in queue(again, "%LMQ%even")] == [b"body %d" % n for n in range(0, 10, 2)]
    put(again, message(10, "%LMQ%even"))
    assert queue(again, "%LMQ%even")[-1].properties["INNER_MULTI_QUEUE_OFFSET"] == "5"


def test_with_sync_flush_messages_in_flight_have_offsets_of_their_own() -> None:
    store = opened(MemoryDisk(), flush_disk_type="SYNC_FLUSH")
    results: list[PutMessageResult] = []
    for number in range(3):
        outcome = store.put_message(message(number, "%LMQ%one"))
        outcome.addCallback(results.append)  # type: ignore[union-attr]
    assert store.max_offset("%LMQ%one", 0) == 0
    store._clock.advance(0)  # type: ignore[attr-defined]
    assert len(results) == 3
    offsets = [m.properties["INNER_MULTI_QUEUE_OFFSET"] for m in queue(store, "%LMQ%one")]
    assert offsets == ["0", "1", "2"]


def test_a_queue_that_is_named_twice_gets_the_message_once() -> None:
    store = opened(MemoryDisk())
    put(store, message(0, "%LMQ%one,%LMQ%one"))
    put(store, message(1, "%LMQ%one"))
    assert [m.body for m in queue(store, "%LMQ%one")] == [b"body 0", b"body 1"]


@pytest.mark.parametrize(
    "names", ["Plain", "%LMQ%one,Plain", "%LMQ%a/b", "%LMQ%one,", "%LMQ%" + "x" * 251]
)
def test_names_that_are_no_light_queues_are_refused(names: str) -> None:
    store = opened(MemoryDisk())
    assert put(store, message(0, names)).status is Put.MESSAGE_ILLEGAL
    assert store.max_physical_offset() == 0


@pytest.mark.parametrize("topic", ["%RETRY%group", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX"])
def test_topics_of_the_system_put_nothing_into_light_queues(topic: str) -> None:
    store = opened(MemoryDisk())
    assert put(store, message(0, "%LMQ%one", topic)).is_ok
    assert store.max_offset("%LMQ%one", 0) == 0


def test_a_transaction_is_put_into_light_queues_when_it_is_committed() -> None:
    store = opened(MemoryDisk())
    half = message(0, "%LMQ%one", "RMQ_SYS_TRANS_HALF_TOPIC")
    put(store, half)
    committed = message(0, "%LMQ%one")
    committed.sys_flag = TRANSACTION_COMMIT_TYPE
    put(store, committed)
    prepared = message(0, "%LMQ%two")
    prepared.sys_flag = TRANSACTION_PREPARED_TYPE
    put(store, prepared)
    assert store.max_offset("%LMQ%one", 0) == 2
    assert queue(store, "%LMQ%two") == []


def test_without_the_option_the_property_means_nothing() -> None:
    disk = MemoryDisk()
    store = opened(disk, enable_lmq=False)
    put(store, message(0, "%LMQ%one"))
    assert "INNER_MULTI_QUEUE_OFFSET" not in queue(store, "T", 1)[0].properties
    disk.locked.clear()
    assert opened(disk).max_offset("%LMQ%one", 0) == 0


def test_without_multi_dispatch_offsets_are_counted_and_nothing_is_shown() -> None:
    store = opened(MemoryDisk(), enable_multi_dispatch=False)
    for number in range(2):
        put(store, message(number, "%LMQ%one"))
    offsets = [m.properties["INNER_MULTI_QUEUE_OFFSET"] for m in queue(store, "T", 1)]
    assert offsets == ["0", "1"]
    assert store.max_offset("%LMQ%one", 0) == 0


def test_the_number_of_light_queues_is_bounded() -> None:
    disk = MemoryDisk()
    store = opened(disk, max_lmq_consume_queue_num=2)
    assert put(store, message(0, "%LMQ%one,%LMQ%two")).is_ok
    refused = put(store, message(1, "%LMQ%one,%LMQ%three"))
    assert refused.status is Put.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
    assert put(store, message(2, "%LMQ%two")).is_ok
    store.delete_topics(["%LMQ%one"])
    assert put(store, message(3, "%LMQ%three")).is_ok
    store.stop()
    again = opened(disk, max_lmq_consume_queue_num=2)
    assert put(again, message(4, "%LMQ%four")).status is Put.LMQ_CONSUME_QUEUE_NUM_EXCEEDED


def test_places_that_a_client_claims_are_not_believed() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    forged = {"INNER_MULTI_DISPATCH": "%LMQ%two", "INNER_MULTI_QUEUE_OFFSET": "0"}
    items = [(0, b"x", format_properties(forged))]
    store.put_batch(MessageRecord(topic="T", queue_id=1, body=encode_batch(items)))
    put(store, message(1, "%LMQ%one", INNER_MULTI_QUEUE_OFFSET="7"))
    assert queue(store, "%LMQ%one")[0].properties["INNER_MULTI_QUEUE_OFFSET"] == "0"
    disk.locked.clear()
    again = opened(disk)
    assert again.max_offset("%LMQ%one", 0) == 1
    assert again.max_offset("%LMQ%two", 0) == 0
