"""Recorded requests of official clients, answered by ours as the official broker answered them.

Requests go in byte for byte. What the answers cannot share is masked: ids and times, and offsets of queues whose earlier messages
were not all recorded. The 4.9.7 broker differs from the 5.4.0 one, whose behaviour is ours, in the few ways that `as_4_9` names.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator
from typing import Any

import pytest
from golden import wire_frames
from small_broker import Peer, SmallBroker
from twisted.internet.task import Clock

from txrocketmq.broker.operations import OPERATIONS
from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.headers import QueryConsumerOffsetRequestHeader
from txrocketmq.codec.record import decode_records
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.message import MessageExt, record_of
from txrocketmq.model.topic import TopicConfig

SERVED = {operation.code for operation in OPERATIONS}
PARTS = ("admin-create-topics", "send-", "pull-")
CONSUMING = ("push-", "lite-pull", "rebalance", "heartbeat-v2")
STATELESS = (
    "HEART_BEAT",
    "UNREGISTER_CLIENT",
    "LOCK_BATCH_MQ",
    "UNLOCK_BATCH_MQ",
    "GET_CONSUMER_LIST_BY_GROUP",
    "UPDATE_CONSUMER_OFFSET",
)
NOT_OURS = ("send-vip-channel",)
BY_5_4 = ("c54", "c54rmq", "c54v1send", "c49-s54")
BY_4_9 = ("c49", "c49rmq", "c49v1send", "c54-s49")
UNSHARED = {"msgId", "queueOffset"}
FAQ_5_4 = "https://rocketmq.apache.org/docs/bestPractice/06FAQ"
FAQ_4_9 = "http://rocketmq.apache.org/docs/faq/"
ONLY_5_X = {
    *("transactionId", "IS_SUPPORT_HEART_BEAT_V2", "IS_SUB_CHANGE"),
    *("topicSysFlag", "groupSysFlag"),
}
ERA_S = 1_795_973_000
TOPICS = ("TopicA", "TopicPush", "TopicOrder", "TopicPull", "TopicLite", "%DLQ%CG_retry")


def frames_of(tag: str, parts: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for frame in wire_frames():
        name = frame["conversation"]
        part = name[len(tag) + 1 :]
        if (
            name.startswith(f"{tag}.")
            and part.startswith(parts)
            and not part.startswith(NOT_OURS)
            and frame["link"] in ("broker-a", "broker-b")
            and frame["kind"] == "remoting"
        ):
            yield frame


class Replay:
    """A broker set up as the recorded one, and what was recorded."""

    def __init__(self, tag: str, parts: tuple[str, ...]) -> None:
        self.frames = list(frames_of(tag, parts))
        self.answers = {
            (frame["conversation"], frame["reply_to_seq"]): frame
            for frame in self.frames
            if frame["reply_to_seq"] is not None and frame["direction"] == "s2c"
        }
        name = self.frames[0]["link"]
        clock = Clock()
        clock.advance(ERA_S)
        self.broker = SmallBroker(
            clock=clock,
            broker_name=name,
            broker_cluster_name="GoldenCluster",
            max_message_size=32768,
        )
        for topic in TOPICS:
            queues = 1 if topic.startswith("%") else 4 if topic == "TopicA" else 2
            self.broker.core.topics.update(
                [TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)]
            )
        self._store_what_was_pulled()
        self._commit_what_was_known()
        self._peers: dict[int, Peer] = {}

    def _store_what_was_pulled(self) -> None:
        found: dict[tuple[str, int, int], MessageExt] = {}
        for frame in self.answers.values():
            if frame["decoded"]["requestName"] in ("PULL_MESSAGE", "LITE_PULL_MESSAGE"):
                command = command_of(frame)
                for message in decode_records(command.body):
                    found[message.topic, message.queue_id, message.queue_offset] = message
        for _, message in sorted(found.items()):
            self.broker.store.put_message(record_of(message))

    def _commit_what_was_known(self) -> None:
        seen: set[tuple[str, str, int]] = set()
        for frame in self.frames:
            if frame["decoded"]["codeName"] != "QUERY_CONSUMER_OFFSET":
                continue
            asked = command_of(frame).decode_header(QueryConsumerOffsetRequestHeader)
            key = (asked.consumer_group, asked.topic, asked.queue_id)
            answer = self.answers.get((frame["conversation"], frame["seq"]))
            if key not in seen and answer is not None and answer["decoded"]["code"] == 0:
                offset = int(answer["decoded"]["extFields"]["offset"])
                if offset:
                    self.broker.core.offsets.commit(*key, offset, "an earlier run")
            seen.add(key)

    def ask(self, frame: dict[str, Any]) -> RemotingCommand | None:
        """Our answer to a recorded request; time passes as long as it is held."""
        peer = self._peers.get(frame["conn"])
        if peer is None:
            peer = self._peers[frame["conn"]] = self.broker.connect(50_000 + frame["conn"])
        data = bytes.fromhex(frame["frame_hex"])
        request = decode_command(data[4:])
        peer.protocol.dataReceived(data)
        for _ in range(40):
            answer = peer.answer(request.opaque)
            if answer is not None or request.is_oneway:
                return answer
            self.broker.clock.advance(1)
        return None


def command_of(frame: dict[str, Any]) -> RemotingCommand:
    return decode_command(bytes.fromhex(frame["frame_hex"])[4:])


def as_data(command: RemotingCommand, request: str) -> dict[str, Any]:
    """What an answer says, without what two runs cannot share."""
    fields = dict(command.ext_fields or {})
    if request.startswith("SEND"):
        for name in UNSHARED & fields.keys():
            fields[name] = "x" * len(fields[name]) if name == "msgId" else "x"
    if request == "GET_EARLIEST_MSG_STORETIME":
        fields["timestamp"] = "x"
    remark = command.remark or ""
    for mark in ("Producer: ", "consumer:[/", "This message has a body"):
        start, found, _ = remark.partition(mark)
        remark = (start + mark if "This" not in mark else start).rstrip() if found else remark
    body: Any = command.body
    if request in ("PULL_MESSAGE", "LITE_PULL_MESSAGE"):
        body = [
            (
                message.topic,
                message.queue_id,
                message.queue_offset,
                message.body,
                message.flag,
                message.sys_flag,
                message.properties,
                message.store_size,
                message.born_timestamp,
                message.born_host,
            )
            for message in decode_records(command.body)
        ]
    if request in ("GET_CONSUMER_LIST_BY_GROUP", "LOCK_BATCH_MQ"):
        # Sets, which have no order.
        body = {name: sorted(map(str, items)) for name, items in json.loads(body).items()}
    return {"code": command.code, "remark": remark, "fields": fields, "body": body}


def as_4_9(data: dict[str, Any], asked: RemotingCommand) -> dict[str, Any]:
    """Our answer as a 4.9.7 broker would have put it."""
    searched = (asked.ext_fields or {}).get("timestamp", "0")
    if asked.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP and int(searched) > 0:
        # After the last message: its own offset, where 5.x says the next one.
        data["fields"]["offset"] = str(int(data["fields"]["offset"]) - 1)
    fields = {name: value for name, value in data["fields"].items() if name not in ONLY_5_X}
    remark = data["remark"].replace(FAQ_5_4, FAQ_4_9).replace(", attributes={}", "")
    code = data["code"]
    if code == ResponseCode.INVALID_PARAMETER:
        code = ResponseCode.SYSTEM_ERROR
    return {**data, "code": code, "remark": remark, "fields": fields}


def change_configuration(broker: SmallBroker, frame: dict[str, Any]) -> None:
    """What the recorded administrator changed at run time."""
    text = command_of(frame).body.decode()
    for line in text.splitlines():
        name, _, value = line.partition("=")
        assert name == "autoCreateTopicEnable", text
        broker.config.auto_create_topic_enable = value == "true"


def compare(tag: str, parts: tuple[str, ...], codes: Container[str]) -> int:
    """Replay the requests of some conversations; how many answers were compared."""
    replay = Replay(tag, parts)
    compared = 0
    for frame in replay.frames:
        decoded = frame["decoded"]
        if frame["direction"] != "c2s" or decoded["flag"] & 1:
            continue
        if decoded["code"] == RequestCode.UPDATE_BROKER_CONFIG:
            change_configuration(replay.broker, frame)
        request = decoded["codeName"]
        if decoded["code"] not in SERVED or request not in codes:
            continue
        ours = replay.ask(frame)
        recorded = replay.answers.get((frame["conversation"], frame["seq"]))
        if recorded is None:
            continue
        where = f"{frame['conversation']} {frame['seq']} {request}"
        assert ours is not None, where
        got, wanted = as_data(ours, request), as_data(command_of(recorded), request)
        if tag in BY_4_9:
            got = as_4_9(got, command_of(frame))
        assert got == wanted, where
        compared += 1
    replay.broker.stop()
    return compared


@pytest.mark.parametrize("tag", BY_5_4 + BY_4_9)
def test_recorded_sends_and_pulls_are_answered_as_recorded(tag: str) -> None:
    everything = {operation.name for operation in RequestCode}
    assert compare(tag, PARTS, everything) >= 10


@pytest.mark.parametrize("tag", ["c54", "c54rmq", "c49-s54", "c49", "c54-s49"])
def test_recorded_consumers_are_answered_as_recorded(tag: str) -> None:
    assert compare(tag, CONSUMING, STATELESS) >= 10
