"""Delayed, transactional and retried messages of official clients and brokers, against ours.

What official clients sent is sent to our broker; what it stores, delivers and asks is compared with what the official broker stored,
delivered and asked. Masked are places in the log, and the order of properties, which is that of a Java map there.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from golden import wire_frames
from small_broker import ROOT, SmallBroker, send_header
from transactions import COMMIT, HALF, NOTES, Producer, bodies, rounds
from twisted.internet.task import Clock

from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.headers import (
    CheckTransactionStateRequestHeader,
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    SendMessageResponseHeader,
)
from txrocketmq.codec.record import decode_record, decode_records, scan_head
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.message import MessageExt, MessageRecord
from txrocketmq.model.names import SCHEDULE_TOPIC
from txrocketmq.model.properties import format_properties, parse_properties
from txrocketmq.model.topic import TopicConfig
from txrocketmq.testing.disk import MemoryDisk

STORES = Path(__file__).parent.parent / "data" / "stores"
LEVELS = "1s 2s 3s 4s 5s 6s 7s 8s 9s 10m 11m 12m 13m 14m 15m 30m 1h 2h"
OWN = ("MSG_REGION", "TRACE_ON", "CLUSTER", "REAL_TOPIC", "REAL_QID", "__transactionId__")
#: 5.x marks every message with these, 4.x does not.
ONLY_5_X = ("MSG_REGION", "TRACE_ON", "__transactionId__")

GOLDEN_SIZES = {
    "mapped_file_size_consume_queue": 6000,
    "mapper_file_size_batch_consume_queue": 4600,
    "max_hash_slot_num": 500,
    "max_index_num": 1000,
    "mapped_file_size_timer_log": 1024 * 1024,
}


# ----------------------------------------------------------------- what the 5.4.0 broker stored


def records_of(line: str) -> list[MessageExt]:
    """Every message in the log of a golden store."""
    found: list[MessageExt] = []
    with tarfile.open(STORES / f"store-{line}.tar.gz") as archive:
        names = sorted(name for name in archive.getnames() if "/commitlog/" in name)
        for name in names:
            member = archive.extractfile(name)
            assert member is not None
            data, position = member.read(), 0
            while position < len(data):
                head = scan_head(data, position)
                if head is None or head.is_blank:
                    break
                message, position = decode_record(data, position)
                found.append(message)
    return found


@pytest.fixture(scope="module")
def stored() -> list[MessageExt]:
    """The log of the 5.4.0 store."""
    return records_of("5.4.0")


def pick(stored: list[MessageExt], topic: str, body: bytes) -> MessageExt:
    (found,) = [m for m in stored if m.topic == topic and m.body == body]
    return found


def broker_of_the_era(first: MessageExt, **settings: Any) -> SmallBroker:
    clock = Clock()
    clock.advance(first.store_timestamp / 1000 - 10)
    return SmallBroker(
        clock=clock,
        broker_cluster_name="GoldenCluster",
        message_delay_level=LEVELS,
        **settings,
    )


def until(broker: SmallBroker, ms: int) -> None:
    """Let time pass; a little more than asked, for the sake of rounding."""
    broker.clock.advance(max(0.0, (ms + 0.5) / 1000 - broker.clock.seconds()))


def send_as_then(broker: SmallBroker, then: MessageExt, sys_flag: int) -> MessageExt:
    """Send what became of this record; what becomes of it here."""
    found = {name: value for name, value in then.properties.items() if name not in OWN}
    until(broker, then.store_timestamp)
    host, port = then.born_host
    header = send_header(
        then.properties["REAL_TOPIC"],
        queue_id=int(then.properties["REAL_QID"]),
        sys_flag=sys_flag,
        flag=then.flag,
        born_timestamp=then.born_timestamp,
        reconsume_times=then.reconsume_times,
        properties=format_properties(found).decode(),
    )
    peer = broker.connect(port, host)
    answer = peer.ask_for(SendMessageResponseHeader, RequestCode.SEND_MESSAGE_V2, header, then.body)
    message = broker.store.look_message(int(answer.msg_id[-16:], 16))
    assert message is not None
    return message


def described(message: MessageExt, **masked: Any) -> dict[str, Any]:
    """All of a record but its place in the log."""
    found = {
        name: getattr(message, name)
        for name in MessageExt.__struct_fields__
        if name not in ("physical_offset", "store_host", "properties_text", "_properties")
    }
    return {
        **found,
        "properties": sorted(message.properties_text.split(b"\x02")),
        **masked,
    }


def test_a_delayed_message_is_stored_and_delivered_as_the_official_broker_did(
    stored: list[MessageExt],
) -> None:
    body = b"delivered after level 1"
    waiting, came = (pick(stored, topic, body) for topic in (SCHEDULE_TOPIC, "StoreDelay"))
    broker = broker_of_the_era(waiting)
    assert described(send_as_then(broker, waiting, 0)) == described(waiting)
    for level, text in ((17, b"pending at level 17"), (18, b"pending at level 18")):
        then = pick(stored, SCHEDULE_TOPIC, text)
        now = send_as_then(broker, then, 0)
        assert now.queue_id == level - 1
        assert described(now) == described(then)
    ((_, _, due),) = broker.core.upkeep.queue_units(SCHEDULE_TOPIC, 0, 0, 1) or ()
    assert due == waiting.store_timestamp + 1000
    until(broker, due)
    (ours,) = broker.connect().pull("StoreDelay").messages
    # The official broker looks every 100 ms.
    late = came.store_timestamp - ours.store_timestamp
    assert 0 <= late < 150
    assert described(ours, store_timestamp=0) == described(came, store_timestamp=0)
    broker.stop()


def test_a_transaction_is_stored_as_the_official_broker_did(stored: list[MessageExt]) -> None:
    halves = [m for m in stored if m.topic == HALF]
    committed = pick(stored, "StoreTrans", b"committed")
    (note,) = [m for m in stored if m.topic == NOTES]
    broker = broker_of_the_era(halves[0])
    ours = [send_as_then(broker, half, 4) for half in halves]
    assert [described(m) for m in ours] == [described(m) for m in halves]
    producer = Producer(broker, "PG_storetrans")
    # The official broker noted the rollback first.
    producer.end(ours[1], 12)
    until(broker, committed.store_timestamp)
    producer.end(ours[0], COMMIT)
    (came,) = broker.connect().pull("StoreTrans").messages
    assert came.prepared_transaction_offset == ours[0].physical_offset
    assert committed.prepared_transaction_offset == halves[0].physical_offset
    masked = {"prepared_transaction_offset": 0}
    assert described(came, **masked) == described(committed, **masked)
    broker.clock.advance(3)
    (noted,) = broker.connect().pull(NOTES).messages
    # The broker speaks for itself: its own address, its own time.
    masked = {"born_timestamp": 0, "store_timestamp": 0, "born_host": None}
    assert described(noted, **masked) == described(note, **masked)
    assert noted.properties_text == note.properties_text
    broker.stop()


def test_retries_and_dead_letters_are_stored_as_the_official_broker_did(
    stored: list[MessageExt],
) -> None:
    body = b"sent back to the broker"
    original = pick(stored, "StoreRetry", body)
    then = [
        pick(stored, topic, body)
        for topic in (SCHEDULE_TOPIC, "%RETRY%CG_storeretry", "%DLQ%CG_storeretry")
    ]
    broker = broker_of_the_era(original)
    until(broker, original.store_timestamp)
    at = broker.store.max_physical_offset()
    broker.store.put_message(
        MessageRecord(
            topic="StoreRetry",
            queue_id=0,
            body=body,
            properties=original.properties_text,
            flag=original.flag,
            sys_flag=original.sys_flag,
            born_timestamp=original.born_timestamp,
            born_host=original.born_host,
            store_host=original.store_host,
        )
    )
    peer = broker.connect()

    def send_back(offset: int, moment: MessageExt) -> None:
        until(broker, moment.store_timestamp)
        header = ConsumerSendMsgBackRequestHeader(
            offset=offset, group="CG_storeretry", delay_level=0, max_reconsume_times=1
        )
        assert peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header).code == 0

    def masked(message: MessageExt, **more: Any) -> dict[str, Any]:
        # Where the original was.
        found = message.properties_text.replace(
            message.properties["ORIGIN_MESSAGE_ID"].encode(), b"x" * 32
        )
        return described(message, properties=sorted(found.split(b"\x02")), **more)

    send_back(at, then[0])
    ours = [peer.pull(SCHEDULE_TOPIC, 2).messages[0]]
    until(broker, then[1].store_timestamp)
    ours += peer.pull("%RETRY%CG_storeretry").messages
    send_back(ours[1].physical_offset, then[2])
    ours += peer.pull("%DLQ%CG_storeretry").messages
    assert len(ours) == 3
    assert masked(ours[0]) == masked(then[0])
    assert masked(ours[1], store_timestamp=0) == masked(then[1], store_timestamp=0)
    assert masked(ours[2]) == masked(then[2])
    assert ours[2].properties["ORIGIN_MESSAGE_ID"] == f"{original.msg_id[:16]}{at:016X}"
    broker.stop()


# ----------------------------------------------------------------- official stores change hands


def on_memory_disk(line: str) -> MemoryDisk:
    """A golden store where ours looks for its own."""
    disk = MemoryDisk()
    with tarfile.open(STORES / f"store-{line}.tar.gz") as archive:
        for member in archive.getmembers():
            path = ROOT + member.name.removeprefix("store")
            if member.isdir():
                disk.makedirs(path)
                continue
            file = archive.extractfile(member)
            assert file is not None
            data = io.BytesIO(file.read()).getvalue()
            disk.create(path, len(data))
            if data.strip(b"\0"):
                disk.write_at(path, 0, data)
    return disk


@pytest.mark.parametrize("line", ["5.4.0", "4.9.7"])
def test_what_waits_in_an_official_store_comes_from_ours(line: str) -> None:
    newest = max(m.store_timestamp for m in records_of(line))
    clock = Clock()
    clock.advance(newest / 1000 + 1)
    broker = SmallBroker(on_memory_disk(line), clock, message_delay_level=LEVELS, **GOLDEN_SIZES)
    producer = Producer(broker, "PG_storetrans")
    # Nothing that was delivered comes again.
    for _ in range(5):
        clock.advance(1)
    delivered = [b"delivered after level 1"]
    assert bodies(broker.connect(), "StoreDelay") == delivered
    assert bodies(broker.connect(), "StoreTrans") == [b"committed"]
    rounds(broker, 1, producer)
    assert producer.listen() == [b"still prepared"]
    producer.answer(COMMIT)
    assert bodies(broker.connect(), "StoreTrans") == [b"committed", b"still prepared"]
    rounds(broker, 1, producer)
    assert producer.listen() == []
    clock.advance(3600)
    delivered.append(b"pending at level 17")
    assert bodies(broker.connect(), "StoreDelay") == delivered
    clock.advance(3600)
    delivered.append(b"pending at level 18")
    assert bodies(broker.connect(), "StoreDelay") == delivered
    broker.stop()


# ----------------------------------------------------------------- what official clients said


def conversation(tag: str, *parts: str) -> Iterator[dict[str, Any]]:
    for frame in wire_frames():
        name = frame["conversation"]
        if name in {f"{tag}.{part}" for part in parts} and frame["link"] in (
            "broker-a",
            "broker-b",
        ):
            yield frame


def command_of(frame: dict[str, Any]) -> RemotingCommand:
    return decode_command(bytes.fromhex(frame["frame_hex"])[4:])


class Replay:
    """A broker to which a recorded client speaks."""

    def __init__(self, tag: str, *parts: str) -> None:
        self.frames = list(conversation(tag, *parts))
        self.answers = {
            (f["conversation"], f["reply_to_seq"]): command_of(f)
            for f in self.frames
            if f["reply_to_seq"] is not None
        }
        clock = Clock()
        clock.advance(self.frames[0]["t_ms"] / 1000)
        self.broker = SmallBroker(
            clock=clock,
            broker_name=self.frames[0]["link"],
            broker_cluster_name="GoldenCluster",
            message_delay_level=LEVELS,
        )
        self.is_4_9 = tag == "c49"
        self.peer = self.broker.connect()

    def topic(self, name: str, queues: int = 2) -> None:
        self.broker.core.topics.update(
            [TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)]
        )

    def asked(self, *names: str) -> Iterator[tuple[dict[str, Any], RemotingCommand]]:
        """Requests of clients, in their order."""
        for frame in self.frames:
            if frame["direction"] == "c2s" and frame["decoded"]["codeName"] in names:
                yield frame, command_of(frame)

    def pulled(self) -> list[MessageExt]:
        """What the recorded consumers got."""
        found: dict[tuple[str, int, int], MessageExt] = {}
        for frame in self.frames:
            if frame["decoded"].get("requestName") == "PULL_MESSAGE":
                for message in decode_records(command_of(frame).body):
                    found[message.topic, message.queue_id, message.queue_offset] = message
        return [message for _, message in sorted(found.items())]

    def send(self, frame: dict[str, Any], asked: RemotingCommand) -> RemotingCommand | None:
        asked.opaque += 1_000_000
        self.peer.protocol.dataReceived(asked.encode())
        return self.peer.answer(asked.opaque)

    def fields(self, command: RemotingCommand) -> dict[str, str]:
        """An answer without what two runs cannot share."""
        found = {k: v for k, v in (command.ext_fields or {}).items() if k != "msgId"}
        if self.is_4_9:
            found = {k: v for k, v in found.items() if k not in ("transactionId",)}
        return found

    def text(self, message: MessageExt) -> dict[str, str]:
        """Properties as both lines have them."""
        found = dict(message.properties)
        if self.is_4_9:
            for name in ONLY_5_X:
                found.pop(name, None)
        return found


def shared(replay: Replay, message: MessageExt) -> dict[str, Any]:
    """What a delivered message has in common with the recorded one."""
    return {
        "place": (message.topic, message.queue_id, message.queue_offset),
        "body": message.body,
        "flags": (message.flag, message.sys_flag, message.reconsume_times),
        "born": message.born_timestamp,
        "properties": replay.text(message),
    }


@pytest.mark.parametrize("tag", ["c54", "c49"])
def test_recorded_delayed_messages_come_as_they_came(tag: str) -> None:
    replay = Replay(tag, "delay-level-send", "delay-level-deliver")
    replay.topic("TopicDelay")
    sent = 0
    for frame, asked in replay.asked("SEND_MESSAGE_V2", "SEND_MESSAGE"):
        recorded = replay.answers[frame["conversation"], frame["seq"]]
        ours = replay.send(frame, asked)
        assert ours is not None
        assert (ours.code, ours.remark) == (recorded.code, recorded.remark)
        assert replay.fields(ours) == replay.fields(recorded)
        sent += 1
    assert sent >= 2
    for _ in range(100):
        replay.broker.clock.advance(0.1)
    came = replay.pulled()
    assert len(came) >= 2
    for then in came:
        (now,) = replay.peer.pull(then.topic, then.queue_id, then.queue_offset).messages[:1]
        assert shared(replay, now) == shared(replay, then)
    replay.broker.stop()


@pytest.mark.parametrize("tag", ["c54", "c49"])
def test_recorded_transactions_end_as_they_ended(tag: str) -> None:
    parts = ("commit", "rollback", "check", "consume")
    replay = Replay(tag, *(f"transaction-{part}" for part in parts))
    replay.topic("TopicTrans")
    replay.broker.config.transaction_time_out = 3000
    producer = Producer(replay.broker, "PG_trans")
    # By the place of the half message in the recorded queue: what it is in ours.
    halves: dict[int, MessageExt] = {}
    questions = [
        command_of(f)
        for f in replay.frames
        if f["decoded"]["codeName"] == "CHECK_TRANSACTION_STATE"
    ]
    asked_for: list[tuple[CheckTransactionStateRequestHeader, MessageExt]] = []
    for frame, asked in replay.asked("SEND_MESSAGE_V2", "SEND_MESSAGE", "END_TRANSACTION"):
        if frame["decoded"]["codeName"] != "END_TRANSACTION":
            if (asked.ext_fields or {}).get("f") != "4":
                continue
            ours = replay.send(frame, asked)
            recorded = replay.answers.get((frame["conversation"], frame["seq"]))
            assert ours is not None
            half = replay.broker.store.look_message(int((ours.ext_fields or {})["msgId"][-16:], 16))
            assert half is not None
            if recorded is not None:
                assert replay.fields(ours) == replay.fields(recorded)
            halves[half.queue_offset] = half
            continue
        header = asked.decode_header(EndTransactionRequestHeader)
        if header.from_transaction_check and not asked_for:
            rounds(replay.broker, 1, producer)
            producer.listen()
            asked_for = producer.asked
            halves |= {shown.queue_offset: shown for _, shown in asked_for}
        half = halves[header.tran_state_table_offset]
        fields = asked.ext_fields or {}
        fields["commitLogOffset"] = str(half.physical_offset)
        again = RemotingCommand.create_request(
            asked.code, None, ext_fields=fields, opaque=asked.opaque, flag=asked.flag
        )
        assert replay.send(frame, again) is None
    assert len(questions) == len(asked_for) == 2
    for question, (header, shown) in zip(questions, asked_for, strict=True):
        compare_questions(replay, question, header, shown)
    came = replay.pulled()
    assert [m.body for m in came][-1] == b"checked, then committed"
    for then in came:
        (now,) = replay.peer.pull(then.topic, then.queue_id, then.queue_offset).messages[:1]
        ours = shared(replay, now)
        if replay.is_4_9:
            # The 5.x broker takes the way back out of committed messages.
            then.properties = {k: v for k, v in then.properties.items() if not k.startswith("REAL")}
        assert ours == shared(replay, then)
    rounds(replay.broker, 2, producer)
    assert producer.listen() == []
    replay.broker.stop()


def compare_questions(
    replay: Replay,
    question: RemotingCommand,
    header: CheckTransactionStateRequestHeader,
    shown: MessageExt,
) -> None:
    then = question.decode_header(CheckTransactionStateRequestHeader)
    assert header.tran_state_table_offset == then.tran_state_table_offset
    assert (header.msg_id, header.transaction_id) == (then.msg_id, then.transaction_id)
    if not replay.is_4_9:
        assert (header.topic, header.broker_name) == (then.topic, then.broker_name)
    assert header.offset_msg_id is not None
    assert header.offset_msg_id.endswith(f"{header.commit_log_offset:016X}")
    recorded, end = decode_record(question.body)
    assert end == len(question.body)
    assert shared(replay, shown) == shared(replay, recorded)
    if not replay.is_4_9:
        assert shown.store_size == recorded.store_size


@pytest.mark.parametrize("tag", ["c54", "c49"])
def test_recorded_messages_back_are_answered_as_they_were(tag: str) -> None:
    replay = Replay(tag, "push-retry-and-dlq")
    replay.topic("TopicRetry")
    replay.broker.core.groups.update(SubscriptionGroupConfig(group_name="CG_retry"))
    (first,) = [m for m in replay.pulled() if m.topic == "TopicRetry"]
    broker = replay.broker
    at = broker.store.max_physical_offset()
    broker.store.put_message(
        MessageRecord(
            topic=first.topic,
            queue_id=first.queue_id,
            body=first.body,
            properties=first.properties_text,
            born_timestamp=first.born_timestamp,
            born_host=first.born_host,
        )
    )
    times = 0
    for frame, asked in replay.asked("CONSUMER_SEND_MSG_BACK"):
        fields = {**(asked.ext_fields or {}), "offset": str(at)}
        again = RemotingCommand.create_request(
            asked.code, None, ext_fields=fields, opaque=asked.opaque, version=asked.version
        )
        recorded = replay.answers[frame["conversation"], frame["seq"]]
        ours = replay.send(frame, again)
        assert ours is not None
        assert (ours.code, ours.remark, ours.ext_fields) == (0, recorded.remark, None)
        times += 1
        if times < 3:
            for _ in range(100):
                broker.clock.advance(0.1)
            (retry,) = replay.peer.pull("%RETRY%CG_retry", 0, times - 1).messages
            assert retry.reconsume_times == times
            at = retry.physical_offset
    assert times == 3
    (dead,) = replay.peer.pull("%DLQ%CG_retry").messages
    assert parse_properties(dead.properties_text)["UNIQ_KEY"] == first.uniq_key
    broker.stop()
