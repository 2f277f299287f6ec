"""Recorded conversations of official consumers that pop, played to our broker: what it answers is what the 5.4.0 broker answered.

Masked are times, the turn of the revive queues, and places in the log.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from golden import frame_body, units, wire_frames
from pops import PopConsumer, make_topic, pass_time, service
from small_broker import Peer, SmallBroker
from test_golden_kinds import GOLDEN_SIZES, LEVELS, on_memory_disk, records_of
from twisted.internet.task import Clock

from txrocketmq.broker.pop.receipts import (
    Receipt,
    kind_of,
    message_offset_info,
    normal_topic_of,
    order_count_info,
    read_receipt,
    receipt_text,
    retry_topic_of,
    start_offset_info,
    topic_of_kind,
)
from txrocketmq.broker.pop.revive_log import ReviveLog, check_point
from txrocketmq.codec.bodies import AckMsg, BatchAckMsg
from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.record import decode_records
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.message import MessageExt

POP_CODES = {
    RequestCode.POP_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.PEEK_MESSAGE,
    RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO,
    RequestCode.QUERY_ASSIGNMENT,
    RequestCode.SET_MESSAGE_REQUEST_MODE,
}
MASKED = ("popTime", "reviveQid")


def frames_of(*conversations: str) -> list[dict[str, Any]]:
    return [
        frame
        for frame in wire_frames()
        if frame["conversation"] in conversations and frame["link"] == "broker-a"
    ]


def command_of(frame: dict[str, Any]) -> RemotingCommand:
    return decode_command(bytes.fromhex(frame["frame_hex"])[4:])


def masked(command: RemotingCommand) -> dict[str, Any]:
    fields = dict(command.ext_fields or {})
    for name in MASKED:
        if fields.get(name, "0") not in ("0", "999"):
            fields[name] = "masked"
    if command.ext_fields and "reviveQid" in command.ext_fields and fields["reviveQid"] == "0":
        # One turn in eight.
        fields["reviveQid"] = "masked" if fields.get("popTime") == "masked" else "0"
    remark = re.sub(r"/[\d.]+:\d+", "/peer", command.remark or "")
    return {"code": command.code, "remark": remark, "fields": fields}


def message_parts(message: MessageExt) -> dict[str, Any]:
    properties = message.properties
    for name in ("POP_CK", "1ST_POP_TIME"):
        if name in properties:
            properties[name] = re.sub(r"\d{13}", "time", properties[name])
    if "POP_CK" in properties:
        parts = properties["POP_CK"].split(" ")
        parts[3] = "queue"
        properties["POP_CK"] = " ".join(parts)
    return {
        "topic": message.topic,
        "queue": (message.queue_id, message.queue_offset),
        "body": message.body,
        "flag": (message.flag, message.sys_flag),
        "again": message.reconsume_times,
        "properties": properties,
    }


class Player:
    """Plays recorded requests at their times; receipts that the recorded broker gave are put in ours' place."""

    def __init__(self, conversations: tuple[str, ...], topic: str) -> None:
        self.frames = [
            frame
            for frame in frames_of(*conversations)
            if (frame["decoded"].get("requestCode") or frame["decoded"]["code"]) in POP_CODES
        ]
        self.pop_times: dict[str, tuple[str, str]] = {}
        clock = Clock()
        clock.advance(1_795_973_100)
        self.broker = SmallBroker(
            clock=clock,
            broker_cluster_name="GoldenCluster",
            broker_ip1="127.0.0.2",
            message_delay_level=LEVELS,
        )
        # The broker of the recording looked at the retry topic last.
        self.broker.config.pop_from_retry_probability = 0
        service(self.broker).chance.randrange = lambda bound: 97  # type: ignore[assignment,method-assign]
        make_topic(self.broker, topic, queues=2)
        self.peer: Peer = self.broker.connect(47760, "127.0.0.1")

    def until(self, ms: int) -> None:
        pass_time(self.broker, max(0.0, (ms + 0.5) / 1000 - self.broker.clock.seconds()))

    def put(self, message: MessageExt) -> None:
        """A message as the recorded broker handed it out goes where it was."""
        self.peer.send(
            message.topic,
            message.body,
            queue_id=message.queue_id,
            flag=message.flag,
            sys_flag=message.sys_flag,
            properties=message.properties_text.decode(),
        )

    def ask(self, frame: dict[str, Any]) -> int:
        command = command_of(frame)
        fields = dict(command.ext_fields or {})
        if "extraInfo" in fields:
            parts = fields["extraInfo"].split(" ")
            parts[1], parts[3] = self.pop_times.get(parts[1], (parts[1], parts[3]))
            fields["extraInfo"] = " ".join(parts)
        if "bornTime" in fields:
            fields["bornTime"] = str(self.broker.now_ms())
        body = command.body
        if command.code == RequestCode.BATCH_ACK_MESSAGE:
            data = json.loads(body)
            for ack in data["acks"]:
                pop_time, queue = self.pop_times[str(ack["pt"])]
                ack["pt"], ack["rq"] = int(pop_time), int(queue)
            body = json.dumps(data).encode()
        return self.peer.tell(command.code, None, body, ext_fields=fields)

    def note(self, ours: RemotingCommand, said: RemotingCommand) -> None:
        """Whose receipts are which."""
        mine, then = ours.ext_fields or {}, said.ext_fields or {}
        if "popTime" in then:
            self.pop_times[then["popTime"]] = (mine["popTime"], mine["reviveQid"])


RAW = tuple(
    f"c54.pop-raw-{name}"
    for name in (
        *("peek", "pop", "ack", "change-invisible-time", "batch-ack", "order"),
        *("long-poll-timeout", "notification", "polling-info", "errors"),
    )
)


def test_the_raw_conversations_are_answered_as_recorded() -> None:
    player = Player(RAW, "TopicPopRaw")
    messages: dict[tuple[int, int], MessageExt] = {}
    for frame in player.frames:
        if frame["decoded"]["body_kind"] == "stored-messages":
            for message in decode_records(frame_body(frame)):
                messages.setdefault((message.queue_id, message.queue_offset), message)
    assert sorted(messages) == [(queue, offset) for queue in (0, 1) for offset in range(4)]
    for _, message in sorted(messages.items()):
        player.put(message)
    compared = 0
    answers = {
        (f["conversation"], f["reply_to_seq"]): f for f in player.frames if f["reply_to_seq"]
    }
    for frame in player.frames:
        if frame["reply_to_seq"]:
            continue
        answer = answers[frame["conversation"], frame["seq"]]
        opaque = player.ask(frame)
        ours = player.peer.answer(opaque)
        if ours is None:
            pass_time(player.broker, int((command_of(frame).ext_fields or {})["pollTime"]) / 1000)
            ours = player.peer.answer(opaque)
        assert ours is not None, frame["conversation"]
        said = command_of(answer)
        player.note(ours, said)
        assert masked(ours) == masked(said), (frame["conversation"], frame["seq"])
        if answer["decoded"]["body_kind"] == "stored-messages":
            got = [message_parts(message) for message in decode_records(ours.body)]
            assert got == [message_parts(message) for message in decode_records(frame_body(answer))]
        else:
            assert ours.body == frame_body(answer)
        compared += 1
    assert compared == 19
    player.broker.stop()


def consumer_of(player: Player) -> None:
    """The recorded consumer tells of itself."""
    body = {
        "clientID": "192.0.2.10@c8",
        "consumerDataSet": [
            {
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "consumeType": "CONSUME_POP",
                "groupName": "CG_pop",
                "messageModel": "CLUSTERING",
                "subscriptionDataSet": [{"topic": "TopicPop", "subString": "*"}],
            }
        ],
        "producerDataSet": [],
    }
    assert player.peer.ask(RequestCode.HEART_BEAT, None, json.dumps(body).encode()).code == 0


def test_a_push_consumer_in_pop_mode_is_answered_as_recorded() -> None:
    conversations = ("c54.pop-set-message-request-mode", "c54.pop-push-consumer")
    player = Player((*conversations, "c54.pop-long-poll-wakeup"), "TopicPop")
    consumer_of(player)
    first = next(f for f in player.frames if f["decoded"].get("requestName") == "POP_MESSAGE")
    for message in decode_records(frame_body(first)):
        player.put(message)
    asked: dict[tuple[str, int], int] = {}
    answers: dict[str, list[Any]] = {"ours": [], "theirs": []}
    for frame in player.frames:
        if frame["conversation"] == "c54.pop-long-poll-wakeup" and len(asked) and frame["seq"] == 3:
            (late,) = decode_records(frame_body(frame))
            # The pop that waits is woken by a message.
            player.put(late)
            pass_time(player.broker, 0.1)
            ours = player.peer.answer(asked["c54.pop-push-consumer", 61])
        elif frame["reply_to_seq"] is None:
            asked[frame["conversation"], frame["seq"]] = player.ask(frame)
            continue
        else:
            key = (frame["conversation"], frame["reply_to_seq"])
            ours = player.peer.answer(asked[key])
            if ours is None:
                # Until the message comes again whose time was changed.
                pass_time(player.broker, 13)
                ours = player.peer.answer(asked[key])
        assert ours is not None, frame["seq"]
        said = command_of(frame)
        player.note(ours, said)
        for name, command in (("ours", ours), ("theirs", said)):
            if frame["decoded"]["body_kind"] == "stored-messages":
                body: Any = [message_parts(message) for message in decode_records(command.body)]
            else:
                body = json.loads(command.body or b"null")
            answers[name].append((masked(command), body))
    assert answers["ours"] == answers["theirs"]
    assert len(answers["ours"]) == 13
    player.broker.stop()


# ----------------------------------------------------------------- what official brokers stored


def stored(is_wanted: Any) -> MessageExt:
    (found,) = [message for message in records_of("5.4.0") if is_wanted(message)]
    return found


def test_a_check_point_is_stored_as_the_official_broker_did() -> None:
    then = stored(lambda message: message.topic.startswith("rmq_sys_REVIVE_LOG"))
    point = json.loads(then.body)
    made = check_point(
        point["t"], point["c"], point["q"], point["so"], point["pt"], point["it"], point["bn"], [0]
    )
    ours = ReviveLog(then.topic, then.store_host).check_point(made, 0, then.born_timestamp)
    assert ours.body == then.body
    left = [
        item
        for item in then.properties_text.split(b"\x02")
        # What the timer wheel added.
        if not item.startswith((b"TIMER_OUT", b"TIMER_EN", b"TIMER_DE", b"REAL_"))
        or item.startswith(b"TIMER_DELIVER")
    ]
    assert ours.properties == b"\x02".join(left)
    assert (ours.topic, ours.queue_id) == (then.topic, then.queue_id)
    assert (ours.born_host, ours.sys_flag, ours.flag) == (then.born_host, 0, 0)


def test_a_message_comes_again_as_the_official_broker_stored_it() -> None:
    then = stored(
        lambda message: message.topic.startswith("%RETRY%CG_store_long") and message.reconsume_times
    )
    group = then.properties["ORIGIN_GROUP"]
    clock = Clock()
    clock.advance(int(then.properties["1ST_POP_TIME"]) / 1000)
    broker = SmallBroker(clock=clock, broker_cluster_name="GoldenCluster")
    make_topic(broker, "StoreRetry")
    peer = broker.connect()
    own = {
        name: value
        for name, value in then.properties.items()
        if name not in ("ORIGIN_GROUP", "1ST_POP_TIME", "CLUSTER", "TRACE_ON", "MSG_REGION")
    }
    text = "".join(f"{name}\x01{value}\x02" for name, value in own.items())
    peer.send(
        "StoreRetry", then.body, properties=text, flag=then.flag, born_timestamp=then.born_timestamp
    )
    asker = PopConsumer(broker, group)
    assert len(asker.pop("StoreRetry", invisible_time=3000).messages) == 1
    pass_time(broker, 7)
    (ours,) = broker.connect(1).pull(then.topic, consumer_group="CID_RMQ_SYS_LOOK").messages
    for name in ("topic", "queue_id", "queue_offset", "body", "flag", "sys_flag"):
        assert getattr(ours, name) == getattr(then, name)
    assert (ours.reconsume_times, ours.born_timestamp) == (1, then.born_timestamp)
    assert ours.born_host == ours.store_host
    assert ours.properties == then.properties
    broker.stop()


def test_a_store_of_an_official_broker_is_gone_on_with() -> None:
    records = records_of("5.4.0")
    (again,) = [m for m in records if "1ST_POP_TIME" in m.properties]
    clock = Clock()
    clock.advance(max(m.store_timestamp for m in records) / 1000 + 1)
    broker = SmallBroker(
        on_memory_disk("5.4.0"),
        clock,
        broker_cluster_name="GoldenCluster",
        message_delay_level=LEVELS,
        **{**GOLDEN_SIZES, "mapped_file_size_timer_log": 1024 * 1024},
    )
    consumer = PopConsumer(broker, again.properties["ORIGIN_GROUP"])
    # Time for a revival that should not be: what came again before does not once more.
    pass_time(broker, 10)
    pops = [popped for _ in range(4) if (popped := consumer.pop("StoreRetry")).messages]
    assert [popped.bodies for popped in pops] == [[again.body]]
    assert pops[0].header.start_offset_info == "1 0 0"
    broker.stop()


# ----------------------------------------------------------------- vectors


def test_receipts_and_infos_have_the_official_texts() -> None:
    vectors = units("5.4.0")["pop"]
    for vector in vectors["extraInfo"]:
        receipt = Receipt(
            vector["ckQueueOffset"],
            vector["popTime"],
            vector["invisibleTime"],
            vector["reviveQid"],
            vector["brokerName"],
        )
        text = receipt_text(receipt, vector["topic"], vector["queueId"], vector["queueOffset"])
        assert text == vector["extraInfo"]
        assert read_receipt(text, 8) == read_receipt(vector["extraInfoWithoutOffset"], 8) == receipt
        assert kind_of(vector["topic"]) == vector["retry"]
        assert topic_of_kind("TopicUnit", "CG", vector["retry"]) == vector["realTopic"]
        assert normal_topic_of(vector["topic"], "CG") == "TopicUnit"
    starts = [start_offset_info("T", 0, 5), start_offset_info("%RETRY%G_T", 0, 9)]
    assert ";".join(starts) == vectors["startOffsetInfo"]["text"]
    messages = [message_offset_info("T", 0, (5, 6, 8)), message_offset_info("%RETRY%G_T", 0, (9,))]
    assert ";".join(messages) == vectors["msgOffsetInfo"]["text"]
    assert order_count_info("T", 0, [(6, 2)], 1) == ["0 qo0%6 2", "0 0 1"]
    names = vectors["names"]
    assert retry_topic_of("TopicUnit", "CG", False) == names["retryTopicV1"]
    assert retry_topic_of("TopicUnit", "CG", True) == names["retryTopicV2"]
    assert retry_topic_of("%RETRY%CG_TopicUnit", "CG", True) == "%RETRY%CG_TopicUnit"


@pytest.mark.parametrize("key", ["checkPoint", "ack", "batchAck"])
def test_records_of_the_revive_topic_have_the_official_keys(key: str) -> None:
    vector = units("5.4.0")["pop"][key]
    log = ReviveLog("rmq_sys_REVIVE_LOG_GoldenCluster", ("127.0.0.1", 10911))
    values: dict[str, Any] = {
        "consumer_group": "CG",
        "pop_time": 1_700_000_000_000,
        "queue_id": 2,
        "start_offset": 100,
        "topic": "TopicUnit",
        "broker_name": "broker-u",
    }
    if key == "checkPoint":
        offsets = (100, 101, 103)
        point = check_point(
            "TopicUnit", "CG", 2, 100, values["pop_time"], 60_000, "broker-u", offsets
        )
        record = log.check_point(point, 0, 0)
    elif key == "ack":
        record = log.ack(AckMsg(ack_offset=101, **values), 0, 0, 0)
    else:
        entry = BatchAckMsg(ack_offset=-1, ack_offset_list=[100, 103], **values)
        record = log.ack(entry, 0, 0, 0, is_gathered=True)
    assert record.uniq_key == vector["uniqueId"]
