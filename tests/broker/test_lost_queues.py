"""Consume queues are lost, and derived again while the broker serves: do those who work on queues of the broker's own, and those who wait
for messages, go on where they stood, without losing a message or taking one twice?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pops import INVISIBLE_MS, PopConsumer, make_topic, pass_time
from small_broker import SmallBroker, pull_header
from test_broadcast_offsets import MOVED, by_proxy
from test_delay import delay_offsets, send_delayed
from test_pop_revive import batch_ack
from test_pop_waiting import notification, told
from timers import bodies as all_bodies
from timers import run, send_timed
from transactions import COMMIT, HALF, NOTES, Producer, rounds
from twisted.internet.defer import Deferred

from txrocketmq.broker.escape.bridge import EscapeBridge
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.errors import ResponseError
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.names import REVIVE_TOPIC_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.recover import RecoveryLimits
from txrocketmq.testing.pools import ManualPool

SMALL: dict[str, Any] = {"mapped_file_size_commit_log": 20_000}
REVIVE = f"{REVIVE_TOPIC_PREFIX}ClusterA"
PADDING = b"x" * 2000
LIMITS = RecoveryLimits(
    checked_bytes=20_000, halving_bytes=2000, foreground_bytes=0, index_bytes=1 << 20
)


class SlowReads(ManualPool):
    """Reads of the log happen at once, but for those with which queues are derived: they wait for the test."""

    store: MessageStore | None = None

    def submit(self, function: Callable[..., object], *args: object) -> Deferred[Any]:
        job = super().submit(function, *args)
        if self.store is None or self.store.rebuild is None:
            self.run()
        return job


class Loss:
    """A broker that starts without its consume queues.

    :param broker: what was there before; it is stopped.
    :param padding: files of the log between that and the end.
    """

    def __init__(self, broker: SmallBroker, padding: int = 12, **settings: Any) -> None:
        # What was there before is far from the log's end.
        pad(broker, padding)
        broker.stop()
        broker.disk.rmtree("/store/consumequeue")
        self.pool = SlowReads()
        made = MessageStore._begin_rebuild

        def begin(store: MessageStore, recovery: Any) -> None:
            self.pool.store = store
            made(store, recovery)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MessageStore, "_begin_rebuild", begin)
            self.broker = SmallBroker(
                broker.disk, broker.clock, read_pool=self.pool, limits=LIMITS, **SMALL, **settings
            )
        assert self.broker.store.rebuild is not None

    def lacks(self, topic: str, queue_id: int = 0) -> bool:
        """Whether a queue is not whole yet."""
        return self.broker.store.incomplete(topic, queue_id) is not None

    def until(self, is_reached: Callable[[], bool]) -> None:
        """Derive until something holds."""
        for _ in range(1000):
            if is_reached():
                return
            self.pool.run(1)
            self.broker.clock.advance(0)
            self.pass_by()
        raise AssertionError("not reached")

    def pass_by(self) -> None:
        """Let the walk go on that gives way to others; it does so for no longer than this."""
        self.broker.clock.advance(0.05)

    def heal(self) -> SmallBroker:
        """Derive all of them."""
        self.until(lambda: self.broker.store.rebuild is None)
        return self.broker


def pad(broker: SmallBroker, files: int = 12) -> None:
    """Fill files of the log with what is of no interest."""
    begun = broker.store.max_physical_offset()
    while broker.store.max_physical_offset() < begun + files * 20_000:
        broker.store.put_message(MessageRecord(topic="Pad", queue_id=0, body=PADDING))


def before() -> SmallBroker:
    return SmallBroker(**SMALL)


# --------------------------------------------------------------------------- services


def test_delay_levels_go_on_where_they_stood() -> None:
    broker = before()
    peer = broker.connect()
    send_delayed(peer, 2, b"first")
    broker.clock.advance(6)
    assert all_bodies(broker) == [b"first"]
    send_delayed(peer, 2, b"second")
    loss = Loss(broker)
    assert delay_offsets(broker)["2"] == 1
    assert loss.lacks(SCHEDULE_TOPIC, 1)
    loss.broker.clock.advance(10)
    loss.until(lambda: not loss.lacks(SCHEDULE_TOPIC, 1))
    healed = loss.heal()
    healed.clock.advance(0.15)
    assert all_bodies(healed) == [b"first", b"second"]
    healed.clock.advance(60)
    assert all_bodies(healed) == [b"first", b"second"]
    healed.stop()


def test_levels_that_begin_in_the_middle_of_it_stand_where_they_stood() -> None:
    """As when another broker had them to do until then."""
    broker = before()
    peer = broker.connect()
    for body in (b"first", b"second"):
        send_delayed(peer, 2, body)
        broker.clock.advance(6)
        pad(broker)
    send_delayed(peer, 2, b"third")
    loss = Loss(broker)
    store = loss.broker.store
    loss.until(lambda: store.queue_table.find(SCHEDULE_TOPIC, 1) is not None)
    assert store.recovering(SCHEDULE_TOPIC, 1) is not None
    delays = loss.broker.core.delays
    delays.delivery.stop()
    delays.delivery.start()
    loss.broker.clock.advance(10)
    healed = loss.heal()
    healed.clock.advance(2)
    assert all_bodies(healed) == [b"first", b"second", b"third"]
    healed.stop()


def test_timed_messages_are_taken_on_where_that_stood() -> None:
    broker = before()
    peer = broker.connect()
    send_timed(peer, b"first", TIMER_DELAY_SEC="2", UNIQ_KEY="01")
    run(broker.clock, 4)
    assert all_bodies(broker) == [b"first"]
    send_timed(peer, b"second", TIMER_DELAY_SEC="8", UNIQ_KEY="02")
    run(broker.clock, 1)
    loss = Loss(broker)
    assert loss.lacks(TIMER_TOPIC)
    run(loss.broker.clock, 3)
    healed = loss.heal()
    run(healed.clock, 10)
    assert all_bodies(healed) == [b"first", b"second"]
    send_timed(healed.connect(), b"third", TIMER_DELAY_SEC="1", UNIQ_KEY="03")
    run(healed.clock, 3)
    assert all_bodies(healed) == [b"first", b"second", b"third"]
    healed.stop()


def test_transactions_that_are_done_with_are_not_asked_about_again() -> None:
    broker = before()
    producer = Producer(broker)
    done = producer.send(b"done")
    producer.send(b"open")
    producer.end(done, COMMIT)
    rounds(broker, 3, producer)
    assert set(producer.listen()) == {b"open"}
    assert all_bodies(broker) == [b"done"]
    loss = Loss(broker)
    assert loss.lacks(HALF)
    producer = Producer(loss.broker)
    rounds(loss.broker, 3, producer)
    assert producer.listen() == []
    healed = loss.heal()
    rounds(healed, 3, producer)
    assert set(producer.listen()) == {b"open"}
    producer.answer(COMMIT)
    assert all_bodies(healed) == [b"done", b"open"]
    rounds(healed, 3, producer)
    assert producer.listen() == []
    healed.stop()


def test_transactions_are_not_asked_about_before_it_is_known_how_they_ended() -> None:
    broker = before()
    producer = Producer(broker)
    halves = [producer.send(body) for body in (b"done", b"done too")]
    pad(broker)
    for number, half in enumerate(halves):
        pad(broker, 3)
        producer.end(half, COMMIT)
        broker.clock.advance(5)
        assert broker.store.max_offset(NOTES, 0) == number + 1
    loss = Loss(broker, padding=5)
    producer = Producer(loss.broker)
    loss.until(lambda: not loss.lacks(HALF))
    assert loss.lacks(NOTES)
    assert loss.broker.store.max_offset(NOTES, 0) == 2
    rounds(loss.broker, 3, producer)
    healed = loss.heal()
    rounds(healed, 3, producer)
    assert producer.listen() == []
    assert all_bodies(healed) == [b"done", b"done too"]
    healed.stop()


# --------------------------------------------------------------------------- pops


@pytest.mark.parametrize("init_mode", [0, 1])
def test_a_group_that_never_popped_begins_where_it_would_have(init_mode: int) -> None:
    broker = before()
    make_topic(broker)
    for number in range(3):
        broker.connect().send(body=b"%d" % number)
    loss = Loss(broker)
    loss.broker.config.init_pop_offset_by_check_msg_in_mem = False
    consumer = PopConsumer(loss.broker, "New")
    assert loss.broker.store.recovering("TopicA", 0) is not None
    assert consumer.pop(init_mode=init_mode).bodies == []
    loss.heal()
    assert consumer.pop(init_mode=init_mode).bodies == [[b"0", b"1", b"2"], [b"2"]][init_mode]
    loss.broker.stop()


def test_a_pop_waits_for_its_queue_and_gets_what_it_lacks() -> None:
    broker = before()
    make_topic(broker)
    consumer = PopConsumer(broker)
    for number in range(3):
        consumer.peer.send(body=b"%d" % number)
    popped = consumer.pop(max_msg_nums=1)
    assert popped.bodies == [b"0"]
    consumer.ack(popped, popped.messages[0])
    loss = Loss(broker)
    consumer = PopConsumer(loss.broker)
    waiting = consumer.wait()
    loss.until(lambda: not loss.lacks("TopicA"))
    assert loss.broker.store.rebuild is not None
    loss.pass_by()
    answer = consumer.answer(waiting)
    assert answer is not None
    assert answer.bodies == [b"1", b"2"]
    for message in answer.messages:
        assert consumer.ack(answer, message).code in (
            ResponseCode.SUCCESS,
            ResponseCode.SYSTEM_ERROR,
        )
    loss.heal().stop()


def test_what_was_popped_before_can_be_acknowledged_meanwhile() -> None:
    broker = SmallBroker(**SMALL, revive_queue_num=1)
    pad(broker)
    make_topic(broker)
    consumer = PopConsumer(broker)
    for number in range(3):
        consumer.peer.send(body=b"%d" % number)
    popped = consumer.pop()
    receipts = [popped.receipt(message) for message in popped.messages]
    # So that the place of acknowledgements is known early.
    pad(broker, 3)
    make_topic(broker, "TopicB")
    consumer.peer.send("TopicB")
    assert len(consumer.pop("TopicB").messages) == 1
    loss = Loss(broker, padding=5, revive_queue_num=1)
    store = loss.broker.store
    consumer = PopConsumer(loss.broker)
    loss.until(lambda: store.recovering(REVIVE, 0) is None)
    assert store.recovering("TopicA", 0) is not None
    # One way of saying so, and the other.
    assert consumer.ack_receipt(receipts[0]).code == ResponseCode.SUCCESS
    assert batch_ack(consumer, popped, [1, 2]) == ResponseCode.SUCCESS
    healed = loss.heal()
    pass_time(healed, 60)
    assert consumer.pop().bodies == []
    assert consumer.pop("TopicB").bodies == [b"hello"]
    healed.stop()


def test_what_was_popped_comes_again_though_its_queue_is_derived_last() -> None:
    """The check point is due, and can be read, before the message that it speaks of can."""
    broker = before()
    make_topic(broker)
    consumer = PopConsumer(broker)
    consumer.peer.send(body=b"popped")
    assert consumer.pop().bodies == [b"popped"]
    pad(broker)
    consumer.peer.send(body=b"later")
    loss = Loss(broker)
    topics = {topic for topic, _ in loss.broker.store.queues()}
    assert "TopicA" not in topics
    loss.until(
        lambda: (
            not any(
                loss.lacks(REVIVE, number) for number in range(loss.broker.config.revive_queue_num)
            )
        )
    )
    assert loss.lacks("TopicA")
    pass_time(loss.broker, INVISIBLE_MS // 1000 + 30)
    assert loss.lacks("TopicA")
    healed = loss.heal()
    consumer = PopConsumer(healed)
    pass_time(healed, 30)
    assert sorted(consumer.pop().bodies) == [b"later", b"popped"]
    pass_time(healed, 1)
    assert consumer.pop().bodies == []
    healed.stop()


def test_nobody_is_told_to_pop_what_cannot_be_popped_yet() -> None:
    broker = before()
    make_topic(broker)
    peer = broker.connect()
    peer.send(body=b"early")
    pad(broker)
    peer.send(body=b"late")
    loss = Loss(broker, padding=1)
    assert loss.broker.store.max_offset("TopicA", 0) == 2
    assert loss.lacks("TopicA")
    consumer = PopConsumer(loss.broker)
    answer = told(consumer, notification(consumer))
    assert answer is not None
    assert not answer.has_msg
    waiting = notification(consumer, 15_000)
    assert told(consumer, waiting) is None
    loss.heal()
    loss.broker.clock.advance(0)
    answer = told(consumer, waiting)
    assert answer is not None
    assert answer.has_msg
    assert consumer.pop().bodies == [b"early", b"late"]
    loss.broker.stop()


class OneOther:
    """The only other broker there is."""

    def __init__(self, broker: SmallBroker) -> None:
        self._peer = broker.connect()

    async def ask_any(self, broker: str, code: int, header: Any) -> Any:
        return self._peer.ask(code, header)


def found_from_elsewhere(broker: SmallBroker, offset: int) -> list[Any]:
    """What a member of another group finds at an offset of TopicA, or why it does not say."""
    bridge = EscapeBridge(
        BrokerConfig(broker_name="broker-b"),
        broker.store_config,
        broker.store,
        OneOther(broker),  # type: ignore[arg-type]
        broker.now_ms,
    )
    outcome: list[Any] = []
    Deferred.fromCoroutine(bridge.find("broker-a", "TopicA", 0, offset)).addBoth(outcome.append)
    return outcome


def test_a_message_that_another_broker_derives_just_now_is_not_held_for_lost() -> None:
    broker = before()
    make_topic(broker)
    broker.connect().send(body=b"there")
    loss = Loss(broker)
    (refused,) = found_from_elsewhere(loss.broker, 0)
    assert refused.check(ResponseError)
    assert "recovery" in refused.getErrorMessage()
    healed = loss.heal()
    (message,) = found_from_elsewhere(healed, 0)
    assert message.body == b"there"
    assert found_from_elsewhere(healed, 1) == [None]
    healed.stop()


# --------------------------------------------------------------------------- pulls


@pytest.mark.parametrize("wanted", ["*", "TagA"])
def test_a_pull_is_answered_when_its_queue_is_whole(wanted: str) -> None:
    """Also where the newest messages, of which there are many, are none that it wants."""
    broker = before()
    make_topic(broker)
    peer = broker.connect()
    text = "TAGS\x01{}\x02"
    peer.send(body=b"wanted", properties=text.format("TagA"))
    for number in range(400):
        peer.send(body=b"%d" % number, properties=text.format("TagB"))
    loss = Loss(broker)
    peer = loss.broker.connect()
    header = pull_header(subscription=wanted, sys_flag=6, suspend_timeout_millis=15_000, offset=0)
    waiting = peer.tell(RequestCode.PULL_MESSAGE, header)
    assert peer.answer(waiting) is None
    loss.until(lambda: not loss.lacks("TopicA"))
    loss.broker.clock.advance(0)
    answer = peer.answer(waiting)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    assert b"wanted" in answer.body
    loss.heal().stop()


def test_a_broadcasting_client_begins_where_it_would_have() -> None:
    broker = before()
    broker.connect().send("T", body=b"early")
    pad(broker)
    broker.connect().send("T", body=b"late")
    loss = Loss(broker, padding=1)
    assert loss.lacks("T")
    peer = loss.broker.connect()
    assert by_proxy(peer, -1) == (int(ResponseCode.PULL_NOT_FOUND), -1)
    loss.heal()
    assert by_proxy(peer, -1) == (MOVED, 0)
    assert by_proxy(peer, 0) == (0, 1)
    loss.broker.stop()
