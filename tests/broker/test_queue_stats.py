"""Figures by queue: latencies, reads of delay levels, slow groups; registrations, connections, dead letters by owner."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from operators import Client, create_topic, told
from pops import PopConsumer
from small_broker import START_S, Peer, SmallBroker, properties, send_header
from test_retry import back_header, send_back

from txrocketmq.broker.figures import DAY, HOUR, MINUTE, Snapshot
from txrocketmq.broker.queue_stats import QueueStats
from txrocketmq.broker.stats import Counter
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.testing.pools import ManualPool

R = RequestCode


def minute(peer: Peer, name: str, key: str) -> tuple[int, float] | None:
    """The sum and the average of the last minute; None where there is no such figure."""
    answer = peer.ask(R.VIEW_BROKER_STATS_DATA, ext_fields={"statsName": name, "statsKey": key})
    if answer.code == ResponseCode.SYSTEM_ERROR:
        assert answer.remark == f"The stats <{name}> <{key}> not exist"
        return None
    found = json.loads(answer.body)["statsMinute"]
    return found["sum"], found["avgpt"]


# ----------------------------------------------------------------- samples that cost nothing


@pytest.mark.parametrize("seed", range(20))
def test_figures_are_those_that_samples_would_have_given(seed: int) -> None:
    """A figure that takes its samples late against one that takes each in its turn."""
    rng = Random(seed)
    now_ms = START_S * 1000
    late = QueueStats("C")
    wanted: Counter | None = None
    for _ in range(rng.randrange(1, 400)):
        now_ms += rng.choice([500, 3_000, 10_000])
        if rng.random() < 0.3:
            value = rng.randrange(100)
            late.put_took("T", 0, value)
            wanted = wanted or Counter(False)
            wanted.messages += value
            wanted.calls += 1
        span = rng.choice([MINUTE, MINUTE, HOUR, DAY])
        late.sample(span, now_ms)
        if wanted is not None:
            wanted.sample(span, now_ms, int(span.period_s * 1000))
            if rng.random() < 0.2:
                assert late.find("TOPIC_PUT_LATENCY", "0@T") == wanted.figures(False)
    if wanted is None:
        assert late.find("TOPIC_PUT_LATENCY", "0@T") is None
    else:
        assert late.find("TOPIC_PUT_LATENCY", "0@T") == wanted.figures(False)


# ----------------------------------------------------------------- latencies


def test_how_long_sends_took(broker: SmallBroker, peer: Peer) -> None:
    create_topic(peer, "T", 4)
    for _ in range(2):
        peer.send("T", queue_id=3)
    broker.clock.advance(10)
    assert minute(peer, "TOPIC_PUT_LATENCY", "3@T") == (0, 0.0)
    assert minute(peer, "TOPIC_PUT_LATENCY", "0@T") is None


def test_a_send_that_waits_for_the_device_takes_that_long() -> None:
    pool = ManualPool()
    broker = SmallBroker(pool=None, flush_disk_type="SYNC_FLUSH")
    usual, broker.store.flusher._pool = broker.store.flusher._pool, pool
    peer = broker.connect()
    asked = [peer.tell(R.SEND_MESSAGE_V2, send_header("T"), b"one")]
    broker.clock.advance(0.25)
    while pool.pending:
        pool.run()
    assert peer.answer(asked[0]) is not None
    broker.clock.advance(10)
    while pool.pending:
        pool.run()
    assert minute(peer, "TOPIC_PUT_LATENCY", "0@T") == (250, 250.0)
    broker.store.flusher._pool = usual
    broker.stop()


def test_how_long_reads_took_by_queue_or_not(broker: SmallBroker, peer: Peer) -> None:
    for _ in range(4):
        peer.send("T")
    peer.pull("T", max_msg_nums=2)
    peer.pull("T", offset=2)
    peer.pull("T", offset=4)
    broker.clock.advance(10)
    # Those that find nothing are not counted.
    assert minute(peer, "GROUP_GET_LATENCY", "0@T@G") == (0, 0.0)
    latency = broker.core.stats.by_queue.find("GROUP_GET_LATENCY", "0@T@G")
    assert latency is not None
    assert broker.core.stats.by_queue._gets[0, "T", "G"].calls == 2
    assert minute(peer, "GROUP_GET_LATENCY", "T@G") is None


def test_without_details_reads_are_counted_together() -> None:
    broker = SmallBroker(enable_detail_stat=False)
    peer = broker.connect()
    peer.send("T")
    peer.send("T", properties=properties(DELAY="1"))
    peer.pull("T")
    broker.clock.advance(10)
    assert minute(peer, "GROUP_GET_LATENCY", "T@G") == (0, 0.0)
    assert minute(peer, "GROUP_GET_LATENCY", "0@T@G") is None
    assert minute(peer, "QUEUE_PUT_NUMS", "SCHEDULE_TOPIC_XXXX@0") is None
    assert minute(peer, "QUEUE_GET_NUMS", "SCHEDULE_TOPIC_XXXX@0@SCHEDULE_CONSUMER") is None
    broker.stop()


def test_pops_and_looks_are_timed_under_the_queue_they_asked_for(broker: SmallBroker) -> None:
    consumer = PopConsumer(broker)
    consumer.peer.send(queue_id=0)
    consumer.pop()
    broker.clock.advance(10)
    assert minute(consumer.peer, "GROUP_GET_LATENCY", "-1@TopicA@G") == (0, 0.0)


# ----------------------------------------------------------------- delay levels


def test_what_delay_levels_took_and_gave(broker: SmallBroker, peer: Peer) -> None:
    for _ in range(3):
        peer.send("T", properties=properties(DELAY="2"))
    broker.clock.advance(4.9)
    assert peer.pull("T").messages == []
    for _ in range(60):
        broker.clock.advance(0.1)
    assert len(peer.pull("T").messages) == 3
    broker.clock.advance(10)
    put = minute(peer, "QUEUE_PUT_NUMS", "SCHEDULE_TOPIC_XXXX@1")
    assert put == (3, 1.0)
    assert minute(peer, "QUEUE_GET_NUMS", "SCHEDULE_TOPIC_XXXX@1@SCHEDULE_CONSUMER") == (3, 1.0)
    sizes = minute(peer, "QUEUE_GET_SIZE", "SCHEDULE_TOPIC_XXXX@1@SCHEDULE_CONSUMER")
    assert sizes == minute(peer, "GROUP_GET_SIZE", "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER")
    assert sizes is not None
    assert sizes[0] > 0


# ----------------------------------------------------------------- slow groups (OBS-09)


def test_how_far_a_group_is_behind(broker: SmallBroker, peer: Peer) -> None:
    """Bytes from the last message it read to the log's end, and how old that message was then."""
    for _ in range(5):
        peer.send("T", b"x" * 100)
        broker.clock.advance(2)
    size = broker.store.max_physical_offset() // 5
    peer.pull("T", max_msg_nums=2)
    assert minute(peer, "GROUP_GET_FALL_SIZE", "0@T@G") == (4 * size, 0.0)
    assert minute(peer, "GROUP_GET_FALL_TIME", "0@T@G") == (8_000, 0.0)
    # The group rests: the figures are those of its last read.
    broker.clock.advance(100)
    assert minute(peer, "GROUP_GET_FALL_TIME", "0@T@G") == (8_000, 0.0)
    peer.pull("T", offset=2)
    assert minute(peer, "GROUP_GET_FALL_SIZE", "0@T@G") == (size, 0.0)
    assert minute(peer, "GROUP_GET_FALL_TIME", "0@T@G") == (102_000, 0.0)
    peer.pull("T", offset=5)
    assert minute(peer, "GROUP_GET_FALL_SIZE", "0@T@G") == (0, 0.0)
    assert minute(peer, "GROUP_GET_FALL_TIME", "0@T@G") == (0, 0.0)
    assert minute(peer, "GROUP_GET_FALL_SIZE", "1@T@G") is None


def test_a_group_that_pops_is_measured_too(broker: SmallBroker) -> None:
    consumer = PopConsumer(broker)
    for _ in range(3):
        consumer.peer.send(queue_id=0)
    end = broker.store.max_physical_offset()
    broker.clock.advance(1)
    consumer.pop(max_msg_nums=1)
    assert minute(consumer.peer, "GROUP_GET_FALL_SIZE", "0@TopicA@G") == (end, 0.0)
    assert minute(consumer.peer, "GROUP_GET_FALL_TIME", "0@TopicA@G") == (1_000, 0.0)


def test_nothing_is_recorded_when_that_is_switched_off(broker: SmallBroker, peer: Peer) -> None:
    broker.store_config.disk_fall_recorded = False
    peer.send("T")
    peer.pull("T")
    assert minute(peer, "GROUP_GET_FALL_SIZE", "0@T@G") is None


# ----------------------------------------------------------------- clients


def test_groups_that_were_entered_and_connections(broker: SmallBroker, peer: Peer) -> None:
    client = Client(broker, "c1", "G")
    client.beat(T="*")
    other = broker.connect(40_500)
    other.protocol.dataReceived(b"\xff\xff\xff\xff no frame")
    other.close()
    broker.connect(40_501).close()
    broker.clock.advance(10)
    assert minute(peer, "CONSUMER_REGISTER_TIME", "ClusterA") == (0, 0.0)
    assert minute(peer, "CHANNEL_ACTIVITY", "CONNECT") == (4, 1.0)
    assert minute(peer, "CHANNEL_ACTIVITY", "CLOSE") == (2, 1.0)
    assert minute(peer, "CHANNEL_ACTIVITY", "EXCEPTION") == (1, 1.0)
    assert minute(peer, "CHANNEL_ACTIVITY", "IDLE") is None
    broker.clock.advance(130)
    late = broker.connect(40_502)
    broker.clock.advance(10)
    found = minute(late, "CHANNEL_ACTIVITY", "IDLE")
    assert found is not None
    assert found[0] >= 1


# ----------------------------------------------------------------- dead letters


def test_dead_letters_by_owner(broker: SmallBroker, peer: Peer) -> None:
    for number in range(2):
        peer.send()
        (message,) = peer.pull(offset=number).messages
        fields: dict[str, Any] = {"delay_level": -1}
        if number:
            answer = peer.ask(
                R.CONSUMER_SEND_MSG_BACK, back_header(message, **fields), ext_fields={"Owner": "me"}
            )
            assert answer.code == 0
        else:
            send_back(peer, message, **fields)
    peer.send()
    (message,) = peer.pull(offset=2).messages
    send_back(peer, message)
    broker.clock.advance(10)
    # All that was sent back, and what of it is given up.
    assert minute(peer, "SNDBCK_PUT_NUMS", "TopicA@G") == (3, 1.0)
    assert minute(peer, "DLQ_PUT_NUMS", "TopicA@G") == (2, 1.0)
    for owner in ("null", "me"):
        assert minute(peer, "SNDBCK2DLQ_TIMES", f"{owner}@TopicA@G@SEND_BACK_TO_DLQ") == (1, 1.0)


def test_names_that_clients_make_up_have_a_bound(
    broker: SmallBroker, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txrocketmq.broker.queue_stats.MAX_CLAIMED", 3)
    monkeypatch.setattr("txrocketmq.broker.stats.MAX_CLAIMED", 3)
    for number in range(10):
        peer.send(properties=properties(UNIQ_KEY="U", RETRY_TOPIC=f"T{number}"))
        (message,) = peer.pull(offset=number).messages
        send_back(peer, message, delay_level=-1, origin_topic=f"T{number}")
    stats = broker.core.stats
    assert list(stats.dead_letters) == ["T0@G", "T1@G", "T2@G", "others"]
    assert sum(counter.messages for counter in stats.send_backs.values()) == 10
    broker.clock.advance(10)
    assert minute(peer, "DLQ_PUT_NUMS", "T0@G") == (1, 1.0)
    assert minute(peer, "SNDBCK2DLQ_TIMES", "null@T2@G@SEND_BACK_TO_DLQ") == (1, 1.0)
    assert minute(peer, "SNDBCK2DLQ_TIMES", "null@T3@G@SEND_BACK_TO_DLQ") is None
    told(peer, R.DELETE_SUBSCRIPTIONGROUP, groupName="G")
    assert minute(peer, "SNDBCK2DLQ_TIMES", "null@T2@G@SEND_BACK_TO_DLQ") is None


# ----------------------------------------------------------------- what goes


def test_what_is_deleted_has_no_figures(broker: SmallBroker, peer: Peer) -> None:
    create_topic(peer, "T")
    peer.send("T")
    peer.pull("T")
    peer.send("U")
    peer.pull("U")
    broker.clock.advance(10)
    told(peer, R.DELETE_TOPIC_IN_BROKER, topic="T")
    for name, key in (
        ("TOPIC_PUT_LATENCY", "0@{}"),
        ("GROUP_GET_LATENCY", "0@{}@G"),
        ("GROUP_GET_FALL_SIZE", "0@{}@G"),
    ):
        assert minute(peer, name, key.format("T")) is None
        assert minute(peer, name, key.format("U")) is not None
    told(peer, R.DELETE_SUBSCRIPTIONGROUP, groupName="G")
    assert minute(peer, "GROUP_GET_LATENCY", "0@U@G") is None
    assert minute(peer, "GROUP_GET_FALL_TIME", "0@U@G") is None
    assert minute(peer, "TOPIC_PUT_LATENCY", "0@U") is not None


def test_figures_of_no_such_key(broker: SmallBroker, peer: Peer) -> None:
    for name, key in (
        ("GROUP_GET_LATENCY", "x@T@G"),
        ("GROUP_GET_LATENCY", "@"),
        ("TOPIC_PUT_LATENCY", "T"),
        ("GROUP_GET_FALL_TIME", "0@T"),
        ("GROUP_GET_FROM_DISK_NUMS", "T@G"),
        ("COMMERCIAL_SEND_TIMES", "null@T@G@SEND_SUCCESS"),
    ):
        assert minute(peer, name, key) is None


def test_zero_is_a_snapshot() -> None:
    stats = QueueStats("C")
    stats.put_took("T", 0, 7)
    found = stats.find("TOPIC_PUT_LATENCY", "0@T")
    assert found is not None
    assert found.minute == Snapshot(0, 0.0, 0.0)
