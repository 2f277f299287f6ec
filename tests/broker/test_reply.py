"""Request-reply: the reply goes to the client that asked, over its own link, and into the reply topic."""

from __future__ import annotations

import json
from typing import Any

import pytest
from golden import wire_frames
from request_headers import long_send_header
from small_broker import Peer, SmallBroker, properties, send_header
from twisted.internet.task import Clock

from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.headers import ReplyMessageRequestHeader, SendMessageResponseHeader
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.properties import parse_properties

REPLY, REPLY_V2 = RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2
PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
TOPIC = "ClusterA_REPLY_TOPIC"
TEXT = properties(
    MSG_TYPE="reply", REPLY_TO_CLIENT="asker-1", CORRELATION_ID="c-1", UNIQ_KEY="U1", TTL="3000"
)

OWN = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def beat(peer: Peer, client: str, *groups: str) -> None:
    body = {
        "clientID": client,
        "consumerDataSet": [],
        "producerDataSet": [{"groupName": name} for name in groups or ("P",)],
    }
    assert peer.ask(RequestCode.HEART_BEAT, None, json.dumps(body).encode()).code == 0


@pytest.fixture
def asker(broker: SmallBroker) -> Peer:
    peer = broker.connect(41000)
    beat(peer, "asker-1")
    return peer


def tell_reply(peer: Peer, text: str = TEXT, body: bytes = b"the answer", **fields: Any) -> int:
    return peer.tell(REPLY_V2, send_header(TOPIC, properties=text, **fields), body)


def confirm(asker: Peer, code: int = 0, remark: str | None = None) -> RemotingCommand:
    """Answer the push that the asker got; the push."""
    (push,) = asker.notices()
    assert push.code == PUSH
    asker.protocol.dataReceived(
        RemotingCommand.create_response(push, code, None, remark=remark).encode()
    )
    return push


@pytest.mark.parametrize(("code", "header"), [(REPLY, long_send_header), (REPLY_V2, send_header)])
def test_a_reply_is_pushed_to_its_asker_and_stored(
    broker: SmallBroker, asker: Peer, peer: Peer, code: int, header: Any
) -> None:
    opaque = peer.tell(code, header(TOPIC, properties=TEXT, flag=9, sys_flag=1), b"the answer")
    assert peer.answer(opaque) is None, "the replier waits for the asker"
    push = confirm(asker)
    pushed = push.decode_header(ReplyMessageRequestHeader)
    assert push.body == b"the answer"
    assert (pushed.topic, pushed.producer_group, pushed.queue_id) == (TOPIC, "P", 0)
    assert (pushed.flag, pushed.sys_flag) == (9, 1)
    assert (pushed.born_host, pushed.store_host) == ("192.0.2.10:40000", "192.0.2.1:10911")
    assert pushed.store_timestamp == broker.now_ms()
    found = parse_properties(pushed.properties or "")
    assert found.pop("PUSH_REPLY_TIME") == str(broker.now_ms())
    assert found == parse_properties(TEXT) | OWN
    answer = peer.answer(opaque)
    assert answer is not None
    assert answer.code == 0
    assert answer.ext_fields["MSG_REGION"] == "DefaultRegion"
    told = answer.decode_header(SendMessageResponseHeader)
    (stored,) = peer.pull(TOPIC).messages
    assert told.msg_id == stored.msg_id
    assert stored.body == b"the answer"
    assert stored.properties == parse_properties(TEXT) | OWN
    assert stored.flag == 9
    assert broker.core.stats.of_topic(TOPIC).messages == 1


def test_a_reply_need_not_be_stored(asker: Peer, peer: Peer, broker: SmallBroker) -> None:
    broker.config.store_reply_message_enable = False
    opaque = tell_reply(peer)
    confirm(asker)
    answer = peer.answer(opaque)
    assert answer is not None
    told = answer.decode_header(SendMessageResponseHeader)
    assert (told.msg_id, told.queue_id, told.queue_offset) == ("0", 0, 0)
    assert peer.pull(TOPIC).messages == []


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        (
            properties(REPLY_TO_CLIENT="nobody"),
            "push reply message fail, channel of <nobody> not found.",
        ),
        (properties(MSG_TYPE="reply"), "reply message properties[REPLY_TO_CLIENT] is null"),
    ],
)
def test_a_reply_without_asker_is_stored_all_the_same(peer: Peer, text: str, remark: str) -> None:
    answer = peer.answer(tell_reply(peer, text))
    assert answer is not None
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert len(peer.pull(TOPIC).messages) == 1


def test_an_asker_that_refuses_or_keeps_silent(
    broker: SmallBroker, asker: Peer, peer: Peer
) -> None:
    refused = tell_reply(peer)
    confirm(asker, 1, "no")
    silent = tell_reply(peer)
    asker.notices()
    broker.clock.pump([1.0] * 9)
    assert peer.answer(silent) is None
    broker.clock.pump([1.0] * 3)
    for opaque in (refused, silent):
        answer = peer.answer(opaque)
        assert answer is not None
        assert (answer.code, answer.remark) == (1, "push reply message to asker-1fail.")


def test_the_link_is_that_of_the_last_heartbeat(
    broker: SmallBroker, asker: Peer, peer: Peer
) -> None:
    again = broker.connect(41001)
    beat(again, "asker-1")
    asker.close()
    tell_reply(peer)
    confirm(again)
    again.close()
    answer = peer.answer(tell_reply(peer))
    assert answer is not None
    assert answer.remark == "push reply message fail, channel of <asker-1> not found."


def test_an_asker_of_two_groups_may_leave_one(asker: Peer, peer: Peer, broker: SmallBroker) -> None:
    beat(asker, "asker-1", "P", "Q")
    broker.core.producers.unregister("P", asker.protocol)
    opaque = tell_reply(peer)
    confirm(asker)
    answer = peer.answer(opaque)
    assert answer is not None
    assert answer.code == 0


def test_queues_and_topics_of_replies(asker: Peer, peer: Peer) -> None:
    answer = peer.answer(tell_reply(peer, queue_id=7))
    assert answer is not None
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert (answer.remark or "").startswith("request queueId[7] is illegal, TopicConfig")
    opaque = tell_reply(peer, queue_id=-1)
    confirm(asker)
    answer = peer.answer(opaque)
    assert answer is not None
    assert answer.decode_header(SendMessageResponseHeader).queue_id == 0
    asked = peer.ask(REPLY_V2, send_header("SCHEDULE_TOPIC_XXXX", properties=TEXT), b"x")
    assert asked.code == ResponseCode.NO_PERMISSION


# ----------------------------------------------------------------- recorded conversations

_OF_THE_ERA_S = 1_795_973_000


def _shared(command: RemotingCommand) -> tuple[Any, ...]:
    """What two brokers have in common that say the same at other times and places."""
    fields = dict(command.ext_fields or {})
    for name in ("msgId", "queueOffset", "storeTimestamp", "storeHost", "bornHost"):
        if name in fields:
            fields[name] = "?"
    found = parse_properties(fields.pop("properties", None) or "")
    for name in OWN:
        # 4.x adds them to messages, but not to replies.
        found.pop(name, None)
    if "PUSH_REPLY_TIME" in found:
        found["PUSH_REPLY_TIME"] = "?"
    return command.code, command.flag, command.remark, command.body, fields, found


@pytest.mark.parametrize("tag", ["c54", "c54v1send", "c49"])
def test_recorded_replies_are_passed_on_as_recorded(tag: str) -> None:
    """Bytes of official clients go in; pushes and answers are compared with those of official brokers."""
    frames = [
        frame
        for frame in wire_frames()
        if frame["conversation"] == f"{tag}.request-reply"
        and frame["link"] in ("broker-a", "broker-b")
    ]
    clock = Clock()
    clock.advance(_OF_THE_ERA_S)
    broker = SmallBroker(clock=clock, broker_cluster_name="GoldenCluster")
    peers = {frame["conn"]: broker.connect(41000 + frame["conn"]) for frame in frames}
    commands = [(frame, decode_command(bytes.fromhex(frame["frame_hex"])[4:])) for frame in frames]
    for frame, command in commands:
        if command.code == PUSH:
            # Its heartbeat may have come before the recording began.
            found = parse_properties((command.ext_fields or {})["properties"])
            beat(peers[frame["conn"]], found["REPLY_TO_CLIENT"])
    opaques: dict[tuple[int, int], int] = {}
    answers = pushes = 0
    for frame, command in commands:
        peer = peers[frame["conn"]]
        if frame["direction"] == "c2s":
            if command.code in (REPLY, REPLY_V2) and not command.is_response:
                peer.protocol.dataReceived(bytes.fromhex(frame["frame_hex"]))
                opaques[frame["conn"], command.opaque] = command.opaque
            elif command.is_response and (frame["conn"], command.opaque) in opaques:
                command.opaque = opaques[frame["conn"], command.opaque]
                peer.protocol.dataReceived(command.encode())
        elif command.code == PUSH:
            (push,) = peer.notices()
            assert _shared(push) == _shared(command)
            opaques[frame["conn"], command.opaque] = push.opaque
            pushes += 1
        elif command.is_response and (frame["conn"], command.opaque) in opaques:
            answer = peer.answer(command.opaque)
            assert answer is not None
            assert _shared(answer) == _shared(command)
            answers += 1
    assert pushes == 2
    assert answers in (2, 3)


def test_a_reply_brings_no_receipt_of_another_message(asker: Peer, peer: Peer) -> None:
    text = TEXT + "POP_CK\x010 1700000000000 60000 0 0 broker-a 0 0\x02__CRC32#\x0112\x02"
    opaque = tell_reply(peer, text)
    pushed = confirm(asker).decode_header(ReplyMessageRequestHeader)
    found = parse_properties(pushed.properties or "")
    assert peer.answer(opaque) is not None
    (stored,) = peer.pull(TOPIC).messages
    assert not {"POP_CK", "__CRC32#"} & {*found, *stored.properties}
