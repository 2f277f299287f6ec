"""Transactions: half messages, their outcomes, the questions about them, and what a restart leaves of all that."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from small_broker import (
    ROOT,
    START_S,
    Peer,
    SmallBroker,
    assert_fired,
    properties,
    send_header,
)
from transactions import (
    COMMIT,
    GIVEN_UP,
    HALF,
    NOTES,
    ROLLBACK,
    UNKNOWN,
    Producer,
    bodies,
    killed,
    rounds,
)

from txrocketmq.codec.headers import ResumeCheckHalfMessageRequestHeader
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.message import MessageRecord
from txrocketmq.store.results import PutMessageResult
from txrocketmq.testing.pools import ManualPool

START_MS = START_S * 1000

Restart = Callable[[SmallBroker], SmallBroker]


@pytest.fixture
def producer(broker: SmallBroker) -> Producer:
    """A live producer of the group PG."""
    return Producer(broker)


def open_count(broker: SmallBroker) -> int:
    return broker.core.transactions.open.total()


# ----------------------------------------------------------------- what has no room, or is too large


def test_the_largest_properties_that_are_taken_have_room_for_questions(
    broker: SmallBroker, producer: Producer
) -> None:
    taken = []
    for length in range(32_200, 32_767):
        text = properties(UNIQ_KEY="U", TRAN_MSG="true", PGROUP="PG", X="x" * length)
        answer = producer.peer.ask(
            RequestCode.SEND_MESSAGE_V2, send_header(sys_flag=4, properties=text), b"%d" % length
        )
        if answer.code == ResponseCode.SUCCESS:
            taken.append(b"%d" % length)
        else:
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert 100 < len(taken) < 500
    rounds(broker, 1, producer)
    assert producer.listen() == taken
    rounds(broker, 1, producer)
    assert producer.listen() == taken


def test_the_outcome_of_another_half_message_is_none_of_ones_own(
    broker: SmallBroker, producer: Producer
) -> None:
    """Properties of a message that was received are passed on, with the place of its half message."""
    producer.send(b"mine", found={"TRAN_PREPARED_QUEUE_OFFSET": "1"})
    other = producer.send(b"other")
    assert other.queue_offset == 1
    producer.end(other, COMMIT)
    rounds(broker, 1, producer)
    assert producer.listen() == [b"mine"]
    producer.answer(COMMIT)
    assert bodies(producer.peer) == [b"other", b"mine"]


def test_a_half_message_that_cannot_be_put_once_more_holds_up_nobody(
    broker: SmallBroker, producer: Producer
) -> None:
    """Older and official brokers took some whose copies have no room for what a question notes; and `maxMessageSize` may get smaller."""
    full = producer.send(b"full")
    text = properties(**full.properties)
    text += properties(X="x" * (32_767 - len(text) - len(properties(X=""))))
    record = MessageRecord(topic=HALF, queue_id=0, body=b"full", properties=text.encode())
    record.born_timestamp = broker.now_ms()
    put = broker.store.put_message(record)
    assert isinstance(put, PutMessageResult)
    assert put.is_ok
    producer.send(b"large" * 1000)
    producer.send(b"small")
    broker.store_config.max_message_size = 1000
    rounds(broker, 2, producer)
    assert producer.listen() == [b"full", b"small"] * 2
    assert bodies(producer.peer, GIVEN_UP) == [b"full"]
    assert broker.core.transactions.open.given_up == 2


# ----------------------------------------------------------------- BR-48: half messages and outcomes


def test_a_half_message_is_seen_by_no_consumer(producer: Producer, peer: Peer) -> None:
    half = producer.send(queue_id=2)
    assert bodies(peer, queue_id=2) == []
    assert half.properties == {
        "UNIQ_KEY": "U-half",
        "TRAN_MSG": "true",
        "PGROUP": "PG",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "ClusterA",
        "__transactionId__": "U-half",
        "REAL_TOPIC": "TopicA",
        "REAL_QID": "2",
    }
    assert half.sys_flag == 0
    assert open_count(producer.broker) == 1
    assert producer.broker.core.stats.of_topic(HALF).messages == 1
    assert producer.broker.core.stats.of_topic("TopicA").messages == 0


def test_the_answer_to_a_half_message_names_the_queue_that_was_asked_for(
    producer: Producer,
) -> None:
    text = properties(UNIQ_KEY="U", TRAN_MSG="true", PGROUP="PG")
    answer = producer.peer.send(queue_id=3, sys_flag=4, properties=text)
    assert (answer.queue_id, answer.queue_offset, answer.transaction_id) == (3, 0, "U")


def test_a_commit_brings_the_message_to_its_queue(producer: Producer, peer: Peer) -> None:
    half = producer.send(
        b"b",
        queue_id=2,
        flag=7,
        found={"TAGS": "TagA", "KEYS": "k", "color": "blue"},
        reconsume_times=0,
    )
    producer.broker.clock.advance(2)
    assert producer.end(half, COMMIT) is None
    (came,) = peer.pull(queue_id=2, subscription="TagA").messages
    assert (came.topic, came.queue_id, came.queue_offset) == ("TopicA", 2, 0)
    assert (came.body, came.flag, came.sys_flag) == (b"b", 7, 8)
    assert came.prepared_transaction_offset == half.physical_offset
    assert came.store_timestamp == START_MS + 2000
    assert (came.born_timestamp, came.born_host) == (half.born_timestamp, half.born_host)
    expected = {**half.properties}
    del expected["REAL_TOPIC"], expected["REAL_QID"]
    assert came.properties == expected
    assert came.properties["TRAN_MSG"] == "true"
    assert open_count(producer.broker) == 0
    assert producer.broker.core.stats.of_topic("TopicA").messages == 1


def test_other_bits_of_the_sys_flag_live_through_a_transaction(
    producer: Producer, peer: Peer
) -> None:
    text = properties(UNIQ_KEY="U", TRAN_MSG="true", PGROUP="PG")
    answer = producer.peer.send(sys_flag=0x105, properties=text)
    half = producer.broker.store.look_message(int(answer.msg_id[-16:], 16))
    assert half is not None
    assert half.sys_flag == 0x101
    producer.end(half, COMMIT)
    (came,) = peer.pull().messages
    assert came.sys_flag == 0x109


def test_a_rollback_leaves_nothing_to_consumers(producer: Producer, peer: Peer) -> None:
    half = producer.send()
    assert producer.end(half, ROLLBACK) is None
    rounds(producer.broker, 3, producer)
    assert bodies(peer) == []
    assert producer.listen() == []
    assert open_count(producer.broker) == 0


def test_unknown_is_not_answered_and_leaves_the_transaction_open(
    producer: Producer, peer: Peer
) -> None:
    half = producer.send()
    assert producer.end(half, UNKNOWN, flag=0) is None
    assert producer.end(half, UNKNOWN, flag=0, checked=True) is None
    assert bodies(peer) == []
    assert open_count(producer.broker) == 1


def test_who_asks_for_an_answer_gets_one(producer: Producer) -> None:
    first, second = producer.send(b"1"), producer.send(b"2")
    for half, outcome in ((first, COMMIT), (second, ROLLBACK)):
        answer = producer.end(half, outcome, flag=0)
        assert (answer.code, answer.remark) == (0, None)


def test_what_does_not_fit_the_half_message_is_refused(producer: Producer, peer: Peer) -> None:
    half = producer.send()
    plain = peer.send("TopicB", properties=properties(PGROUP="PG"))
    offset = int(plain.msg_id[-16:], 16)
    for fields, remark in (
        ({"producer_group": "Other"}, "The producer group wrong"),
        ({"tran_state_table_offset": 1}, "The transaction state table offset wrong"),
        ({"commit_log_offset": 1}, "Find prepared transaction message failed"),
        ({"commit_log_offset": offset}, "Find prepared transaction message failed"),
    ):
        for outcome in (COMMIT, ROLLBACK):
            answer = producer.end(half, outcome, flag=0, **fields)
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert bodies(peer) == []
    assert open_count(producer.broker) == 1


def test_transactions_can_be_forbidden(producer: Producer) -> None:
    producer.broker.config.reject_transaction_message = True
    text = properties(UNIQ_KEY="U", TRAN_MSG="true", PGROUP="PG")
    answer = producer.peer.ask(RequestCode.SEND_MESSAGE_V2, send_header(properties=text), b"x")
    assert (answer.code, answer.remark) == (
        ResponseCode.NO_PERMISSION,
        "the broker[192.0.2.1] sending transaction message is forbidden",
    )


def test_a_commit_that_the_store_does_not_take_leaves_the_transaction_open(
    producer: Producer, peer: Peer
) -> None:
    half = producer.send()
    producer.broker.store.refuse_writes("test", "full")
    answer = producer.end(half, COMMIT, flag=0)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    producer.broker.store.accept_writes("test")
    rounds(producer.broker, 1, producer)
    assert producer.listen() == [b"half"]
    producer.answer(COMMIT)
    assert bodies(peer) == [b"half"]


# ----------------------------------------------------------------- BR-51: notes


def test_outcomes_are_noted_together(producer: Producer, peer: Peer) -> None:
    halves = [producer.send(b"%d" % number) for number in range(1000)]
    for half in halves:
        producer.end(half, COMMIT)
    assert len(bodies(peer)) == 1000
    producer.broker.clock.advance(3)
    notes = peer.pull(NOTES).messages
    assert 1 <= len(notes) <= 2
    named = [int(n) for note in notes for n in note.body.decode().rstrip(",").split(",")]
    assert sorted(named) == list(range(1000))


def test_a_note_has_the_official_form(producer: Producer, peer: Peer) -> None:
    first, second = producer.send(b"1"), producer.send(b"2")
    producer.end(second, ROLLBACK)
    producer.end(first, COMMIT)
    producer.end(first, COMMIT)
    producer.broker.clock.advance(2.9)
    assert peer.pull(NOTES).messages == []
    producer.broker.clock.advance(0.1)
    (note,) = peer.pull(NOTES).messages
    assert note.body == b"1,0,"
    assert note.properties_text == b"WAIT\x01true\x02TAGS\x01d\x02"
    assert note.born_host == note.store_host == ("192.0.2.1", 10911)


def test_the_size_of_notes_is_bounded(producer: Producer, peer: Peer) -> None:
    producer.broker.config.transaction_op_msg_max_size = 8
    for number in range(9):
        producer.end(producer.send(b"%d" % number), ROLLBACK)
    assert bodies(peer, NOTES) == [b"0,1,2,3,", b"4,5,6,7,"]
    producer.broker.clock.advance(3)
    assert bodies(peer, NOTES)[2:] == [b"8,"]


def test_notes_that_the_store_does_not_take_come_later(producer: Producer, peer: Peer) -> None:
    half = producer.send()
    producer.end(half, ROLLBACK)
    producer.broker.store.refuse_writes("test", "full")
    producer.broker.clock.advance(3)
    producer.broker.store.accept_writes("test")
    producer.broker.clock.advance(1)
    assert [note.body for note in peer.pull(NOTES).messages] == [b"0,"]


# ----------------------------------------------------------------- BR-49: questions


def test_an_open_transaction_is_asked_for(producer: Producer, peer: Peer) -> None:
    half = producer.send(queue_id=1, flag=3, found={"KEYS": "k"})
    rounds(producer.broker, 1, producer)
    assert producer.listen() == [b"half"]
    ((header, shown),) = producer.asked
    copy = producer.broker.store.look_message(header.commit_log_offset)
    assert copy is not None
    assert (copy.topic, copy.queue_id, copy.queue_offset) == (HALF, 0, 1)
    assert copy.properties == {**half.properties, "TRANSACTION_CHECK_TIMES": "1"}
    assert (header.topic, header.broker_name) == (HALF, "broker-a")
    assert header.tran_state_table_offset == 1
    assert header.msg_id == header.transaction_id == "U-half"
    assert header.offset_msg_id == copy.msg_id
    assert (shown.topic, shown.queue_id, shown.queue_offset) == ("TopicA", 1, 1)
    assert (shown.body, shown.flag) == (b"half", 3)
    assert shown.store_timestamp == half.store_timestamp
    assert shown.properties == {**copy.properties, "WAIT": "false"}
    producer.answer(COMMIT)
    (came,) = peer.pull(queue_id=1).messages
    assert came.prepared_transaction_offset == copy.physical_offset
    assert came.properties["TRANSACTION_CHECK_TIMES"] == "1"
    rounds(producer.broker, 3, producer)
    assert producer.listen() == []
    assert bodies(peer, queue_id=1) == [b"half"]


def test_a_young_transaction_is_left_alone(producer: Producer) -> None:
    producer.broker.clock.advance(25)
    producer.send()
    producer.broker.clock.advance(5)
    assert producer.listen() == []
    rounds(producer.broker, 1, producer)
    assert producer.listen() == [b"half"]


@pytest.mark.parametrize("note_bytes", [4096, 1])
def test_transactions_with_an_outcome_are_not_asked_for(
    producer: Producer, note_bytes: int
) -> None:
    """Whether their outcomes are noted together, as 5.x does, or one by one, as 4.x does."""
    producer.broker.config.transaction_op_msg_max_size = note_bytes
    halves = [producer.send(b"%d" % number) for number in range(200)]
    for number, half in enumerate(halves):
        if number % 3:
            producer.end(half, COMMIT if number % 2 else ROLLBACK)
    rounds(producer.broker, 1, producer)
    assert producer.listen() == [b"%d" % number for number in range(0, 200, 3)]
    assert open_count(producer.broker) == 67


@pytest.mark.parametrize("own_word", ["first", "last"])
def test_a_word_that_is_said_twice_brings_the_message_once(
    producer: Producer, peer: Peer, own_word: str
) -> None:
    """A question may overtake what a producer says by itself; and on a busy machine it may be asked again before it answers."""
    half = producer.send()
    rounds(producer.broker, 2, producer)
    assert producer.listen() == [b"half", b"half"]
    (_, once), (_, twice) = producer.asked
    words = [(once, True), (twice, True)]
    words.insert(0 if own_word == "first" else 2, (half, False))
    for message, checked in words:
        answer = producer.end(message, COMMIT, checked=checked, flag=0)
        assert (answer.code, answer.remark) == (0, None)
    assert bodies(peer) == [b"half"]
    assert open_count(producer.broker) == 0
    rounds(producer.broker, 3, producer)
    assert producer.listen() == []
    assert bodies(peer) == [b"half"]


def test_a_word_that_is_said_twice_while_the_device_stands_still_brings_the_message_once() -> None:
    """A commit does not wait for the device, as officially: after a crash that takes it the half message is asked for again."""
    broker = SmallBroker()
    producer, pool = Producer(broker), ManualPool()
    half = producer.send()
    broker.store_config.flush_disk_type = "SYNC_FLUSH"
    usual, broker.store.flusher._pool = broker.store.flusher._pool, pool
    answers = [producer.end(half, COMMIT, flag=0) for _ in range(2)]
    assert [answer and answer.code for answer in answers] == [0, 0]
    broker.clock.advance(0)
    pool.run()
    broker.store.flusher._pool = usual
    broker.clock.advance(1)
    assert bodies(broker.connect(41_001)) == [b"half"]
    assert_fired(broker.core.stop())


def test_a_copy_is_not_asked_for_when_the_first_one_has_its_outcome(
    producer: Producer, peer: Peer
) -> None:
    half = producer.send()
    rounds(producer.broker, 1, producer)
    assert producer.listen() == [b"half"]
    producer.end(half, COMMIT)
    rounds(producer.broker, 3, producer)
    assert producer.listen() == []
    assert bodies(peer) == [b"half"]


def test_two_transactions_that_look_alike_both_come(producer: Producer, peer: Peer) -> None:
    for half in [producer.send(), producer.send()]:
        producer.end(half, COMMIT)
    assert bodies(peer) == [b"half", b"half"]


def test_an_outcome_that_is_not_noted_yet_counts(producer: Producer) -> None:
    producer.broker.config.transaction_op_batch_interval = 100_000
    half = producer.send()
    producer.broker.clock.advance(29)
    producer.end(half, ROLLBACK)
    rounds(producer.broker, 2, producer)
    assert producer.listen() == []


def test_the_questions_go_to_all_members_of_the_group_in_turn(broker: SmallBroker) -> None:
    members = [Producer(broker, port=41000 + number) for number in range(3)]
    stranger = Producer(broker, "Other", 42000)
    for number in range(6):
        members[0].send(b"%d" % number)
    rounds(broker, 1, *members, stranger)
    assert [len(member.listen()) for member in members] == [2, 2, 2]
    assert stranger.listen() == []


def test_the_question_goes_to_a_producer_that_is_there(broker: SmallBroker, peer: Peer) -> None:
    gone, there = Producer(broker, port=41000), Producer(broker, port=41001)
    gone.send()
    gone.peer.close()
    rounds(broker, 1, there)
    assert there.listen() == [b"half"]
    there.answer(COMMIT)
    assert bodies(peer) == [b"half"]


def test_without_a_producer_the_question_waits_for_the_next_round(broker: SmallBroker) -> None:
    producer = Producer(broker)
    producer.send()
    producer.peer.close()
    rounds(broker, 2)
    back = Producer(broker, port=41001)
    rounds(broker, 1, back)
    assert back.listen() == [b"half"]
    assert back.asked[0][1].properties["TRANSACTION_CHECK_TIMES"] == "3"


def test_a_transaction_that_is_never_answered_is_given_up(broker: SmallBroker, peer: Peer) -> None:
    broker.config.transaction_check_max = 3
    producer = Producer(broker)
    producer.send(queue_id=1)
    rounds(broker, 3, producer)
    assert producer.listen() == [b"half"] * 3
    times = [shown.properties["TRANSACTION_CHECK_TIMES"] for _, shown in producer.asked]
    assert times == ["1", "2", "3"]
    assert GIVEN_UP not in broker.core.topics
    rounds(broker, 1, producer)
    assert producer.listen() == []
    (lost,) = peer.pull(GIVEN_UP).messages
    assert lost.properties["TRANSACTION_CHECK_TIMES"] == "3"
    assert (lost.properties["REAL_TOPIC"], lost.properties["REAL_QID"]) == ("TopicA", "1")
    topic = broker.core.topics.get(GIVEN_UP)
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
    assert open_count(broker) == 0
    rounds(broker, 2, producer)
    assert len(peer.pull(GIVEN_UP).messages) == 1


def test_one_older_than_what_the_log_keeps_is_given_up_unasked(
    producer: Producer, peer: Peer
) -> None:
    producer.send(age_ms=73 * 3_600_000)
    rounds(producer.broker, 1, producer)
    assert producer.listen() == []
    assert bodies(peer, GIVEN_UP) == [b"half"]


def test_a_producer_whose_clock_runs_ahead_is_asked(producer: Producer) -> None:
    producer.send(age_ms=-3_600_000)
    rounds(producer.broker, 1, producer)
    assert producer.listen() == [b"half"]


def test_times_and_limits_of_the_configuration_act_at_once(producer: Producer) -> None:
    broker = producer.broker
    rounds(broker, 1, producer)
    broker.config.transaction_check_interval = 2000
    broker.config.transaction_time_out = 20_000
    rounds(broker, 1, producer)
    producer.send()
    for _ in range(9):
        broker.clock.advance(2)
        assert producer.listen() == []
    for _ in range(2):
        broker.clock.advance(2)
    assert producer.listen() == [b"half"]


def test_a_round_leaves_turns_to_others(producer: Producer) -> None:
    broker = producer.broker
    for number in range(300):
        producer.send(b"%d" % number)
    seen: list[int] = []

    def look() -> None:
        seen.append(broker.core.transactions.open.checks)
        if len(seen) < 12:
            broker.clock.callLater(0, look)

    broker.clock.callLater(30, look)
    broker.clock.advance(30)
    assert seen[:6] == [64, 128, 192, 256, 300, 300]


def test_a_store_that_takes_nothing_ends_the_round_and_loses_nothing(producer: Producer) -> None:
    producer.send()
    producer.broker.store.refuse_writes("test", "full")
    rounds(producer.broker, 1, producer)
    assert producer.listen() == []
    producer.broker.store.accept_writes("test")
    rounds(producer.broker, 1, producer)
    assert producer.listen() == [b"half"]


def test_positions_of_the_rounds_are_those_of_the_official_group(
    producer: Producer, peer: Peer
) -> None:
    for number in range(4):
        half = producer.send(b"%d" % number)
        if number < 3:
            producer.end(half, COMMIT)
            producer.broker.clock.advance(4)
    rounds(producer.broker, 2, producer)
    offsets = producer.broker.core.offsets
    # Three with an outcome, one asked for, its copy asked for.
    assert offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == 5
    assert offsets.query("CID_RMQ_SYS_TRANS", NOTES, 0) == 3


def test_positions_are_kept_while_a_note_is_still_needed(producer: Producer) -> None:
    broker = producer.broker
    broker.clock.advance(1)
    producer.send(b"open", found={"CHECK_IMMUNITY_TIME_IN_SECONDS": "1000"})
    broker.clock.advance(28)
    young = producer.send(b"young")
    late = producer.send(b"late")
    producer.end(late, COMMIT)
    broker.clock.advance(1)
    # The note is about a message behind the young one.
    assert broker.core.offsets.query("CID_RMQ_SYS_TRANS", NOTES, 0) in (-1, 0)
    producer.end(young, COMMIT)
    rounds(broker, 2, producer)
    assert producer.listen() == []
    assert broker.core.offsets.query("CID_RMQ_SYS_TRANS", NOTES, 0) == 2


# ----------------------------------------------------------------- BR-50: time to be left alone


def test_a_message_may_ask_to_be_left_alone_longer(producer: Producer, peer: Peer) -> None:
    producer.send(b"slow", found={"CHECK_IMMUNITY_TIME_IN_SECONDS": "100"})
    producer.send(b"fast")
    rounds(producer.broker, 3, producer)
    assert producer.listen() == [b"fast"] * 3
    rounds(producer.broker, 1, producer)
    assert sorted(producer.listen()) == [b"fast", b"slow"]
    slow = next(shown for _, shown in producer.asked if shown.body == b"slow")
    assert slow.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
    # Being left alone is not being asked.
    assert slow.properties["TRANSACTION_CHECK_TIMES"] == "1"


def test_an_outcome_within_that_time_is_for_the_copies_too(producer: Producer) -> None:
    half = producer.send(found={"CHECK_IMMUNITY_TIME_IN_SECONDS": "100"})
    rounds(producer.broker, 2, producer)
    producer.end(half, COMMIT)
    rounds(producer.broker, 5, producer)
    assert producer.listen() == []
    assert bodies(producer.peer) == [b"half"]
    offsets = producer.broker.core.offsets
    assert offsets.query("CID_RMQ_SYS_TRANS", NOTES, 0) == 1
    assert offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == 3


@pytest.mark.parametrize("text", ["x", "-1"])
def test_a_time_that_cannot_be_read_is_the_usual_one(producer: Producer, text: str) -> None:
    producer.broker.clock.advance(25)
    producer.send(found={"CHECK_IMMUNITY_TIME_IN_SECONDS": text})
    producer.broker.clock.advance(5)
    assert producer.listen() == []
    rounds(producer.broker, 1, producer)
    assert producer.listen() == [b"half"]


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
def test_an_outcome_after_that_time_is_refused(
    producer: Producer, peer: Peer, outcome: int
) -> None:
    half = producer.send(found={"CHECK_IMMUNITY_TIME_IN_SECONDS": "10"})
    producer.broker.clock.advance(10.001)
    answer = producer.end(half, outcome, flag=0)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert bodies(peer) == []
    assert producer.end(half, outcome, flag=0, checked=True).code == 0


def test_an_outcome_is_in_time_as_long_as_nobody_would_be_asked(producer: Producer) -> None:
    """The time is at least the usual one; messages without it are never too late."""
    short = producer.send(b"1", found={"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"})
    odd = producer.send(b"2", found={"CHECK_IMMUNITY_TIME_IN_SECONDS": "x"})
    usual = producer.send(b"3")
    producer.broker.clock.advance(6)
    assert producer.end(short, COMMIT, flag=0).code == 0
    assert producer.end(odd, COMMIT, flag=0).code == 0
    producer.broker.clock.advance(100)
    assert producer.end(usual, COMMIT, flag=0).code == 0


# ----------------------------------------------------------------- BR-52


def test_a_transaction_that_was_given_up_can_be_asked_for_again(
    broker: SmallBroker, peer: Peer
) -> None:
    broker.config.transaction_check_max = 1
    producer = Producer(broker)
    producer.send()
    rounds(broker, 2, producer)
    assert producer.listen() == [b"half"]
    (lost,) = peer.pull(GIVEN_UP).messages
    header = ResumeCheckHalfMessageRequestHeader(topic=GIVEN_UP, msg_id=lost.msg_id)
    assert peer.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, header).code == 0
    assert open_count(broker) == 1
    broker.config.transaction_check_max = 15
    rounds(broker, 1, producer)
    assert producer.listen() == [b"half"]
    assert producer.asked[-1][1].properties["TRANSACTION_CHECK_TIMES"] == "1"
    producer.answer(COMMIT)
    assert bodies(peer) == [b"half"]


@pytest.mark.parametrize(
    ("msg_id", "words"),
    [
        ("nonsense", "is not 32 or 56 hexadecimal characters"),
        ("C000020100002A9F0000000000099999", "there is no half message with the id"),
        (None, "is not 32 or 56"),
    ],
)
def test_only_half_messages_can_be_asked_for_again(
    peer: Peer, msg_id: str | None, words: str
) -> None:
    header = ResumeCheckHalfMessageRequestHeader(msg_id=msg_id)
    answer = peer.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert words in (answer.remark or "")


def test_a_plain_message_is_not_put_among_the_half_messages(peer: Peer) -> None:
    plain = peer.send()
    header = ResumeCheckHalfMessageRequestHeader(msg_id=plain.msg_id)
    answer = peer.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert bodies(peer, HALF) == []


# ----------------------------------------------------------------- restarts in every state


@pytest.fixture(params=["stopped", "killed"])
def again(request: pytest.FixtureRequest) -> Restart:
    """How the broker ends before it comes back."""
    return lambda broker: broker.restarted() if request.param == "stopped" else killed(broker)


def test_an_open_transaction_survives(again: Restart) -> None:
    broker = SmallBroker()
    half = Producer(broker).send()
    broker = again(broker)
    producer, peer = Producer(broker), broker.connect()
    assert open_count(broker) in (0, 1)
    producer.end(half, COMMIT)
    rounds(broker, 2, producer)
    assert producer.listen() == []
    assert bodies(peer) == [b"half"]
    broker.stop()


def test_a_transaction_that_was_asked_for_survives(again: Restart) -> None:
    broker = SmallBroker()
    producer = Producer(broker)
    producer.send()
    rounds(broker, 1, producer)
    assert producer.listen() == [b"half"]
    broker.clock.advance(6)
    _, shown = producer.asked[-1]
    broker = again(broker)
    producer, peer = Producer(broker), broker.connect()
    producer.end(shown, COMMIT, checked=True)
    rounds(broker, 2, producer)
    assert producer.listen() == []
    assert bodies(peer) == [b"half"]
    broker.stop()


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
def test_an_outcome_survives(again: Restart, outcome: int) -> None:
    broker = SmallBroker()
    producer = Producer(broker)
    producer.end(producer.send(), outcome)
    broker.clock.advance(4)
    broker = again(broker)
    producer, peer = Producer(broker), broker.connect()
    rounds(broker, 3, producer)
    assert producer.listen() == []
    assert bodies(peer) == ([b"half"] if outcome == COMMIT else [])
    broker.stop()


def test_an_orderly_stop_notes_the_last_outcomes() -> None:
    broker = SmallBroker()
    producer = Producer(broker)
    producer.end(producer.send(), COMMIT)
    broker = broker.restarted()
    producer, peer = Producer(broker), broker.connect()
    rounds(broker, 2, producer)
    assert producer.listen() == []
    assert bodies(peer) == [b"half"]
    assert open_count(broker) == 0
    broker.stop()


def test_after_a_kill_the_last_outcomes_are_asked_for_again() -> None:
    broker = SmallBroker()
    producer = Producer(broker)
    producer.end(producer.send(), ROLLBACK)
    broker = killed(broker)
    producer = Producer(broker)
    rounds(broker, 1, producer)
    assert producer.listen() == [b"half"]
    broker.stop()


def test_one_that_was_given_up_stays_given_up(again: Restart) -> None:
    broker = SmallBroker()
    broker.config.transaction_check_max = 1
    producer = Producer(broker)
    producer.send()
    rounds(broker, 2, producer)
    broker.clock.advance(6)
    broker = again(broker)
    producer, peer = Producer(broker), broker.connect()
    rounds(broker, 2, producer)
    assert producer.listen() == []
    assert bodies(peer, GIVEN_UP) == [b"half"]
    broker.stop()


# ----------------------------------------------------------------- figures


def test_open_transactions_are_counted_by_topic_and_kept(producer: Producer, peer: Peer) -> None:
    broker = producer.broker
    for topic in ("TopicA", "TopicA", "TopicB"):
        producer.send(b"x", topic)
    producer.end(producer.send(b"y", "TopicB"), COMMIT)
    producer.end(producer.send(b"z", "TopicC"), ROLLBACK)
    broker.clock.advance(10)
    kept = json.loads(broker.disk.read_file(f"{ROOT}/config/transactionMetrics"))
    counts = {topic: metric["count"] for topic, metric in kept["transactionCount"].items()}
    assert counts == {"TopicA": 2, "TopicB": 1, "TopicC": 0}
    assert kept["transactionCount"]["TopicA"]["timeStamp"] == START_MS
    assert kept["dataVersion"]["counter"] == 7
    table = json.loads(peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    assert table["transactionsOpen"] == "3"
    assert table["transactionsCommitted"] == "1"
    assert table["transactionsRolledBack"] == "1"


def test_a_damaged_table_of_figures_does_not_stop_the_start() -> None:
    broker = SmallBroker()
    Producer(broker).send()
    broker.stop()
    for name in ("transactionMetrics", "transactionMetrics.bak"):
        broker.disk.replace_file(f"{ROOT}/config/{name}", b"{broken", False)
    again = SmallBroker(broker.disk, broker.clock)
    assert open_count(again) == 0
    again.stop()


def test_an_outcome_that_comes_while_the_broker_stops_is_noted_at_once(
    producer: Producer, peer: Peer
) -> None:
    half = producer.send()
    producer.broker.core.transactions.stop()
    producer.end(half, COMMIT)
    assert bodies(peer, NOTES) == [b"0,"]
