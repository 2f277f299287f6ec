"""Recorded questions of operators, and how a broker is brought into the state of which a recorded answer tells."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from golden import frame_body, wire_frames
from small_broker import Peer, SmallBroker
from twisted.internet.task import Clock

from txrocketmq.broker.operations import OPERATIONS
from txrocketmq.codec import bodies as b
from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.fastjson import loads
from txrocketmq.codec.record import decode_records
from txrocketmq.config.schema import NettyClientConfig, NettyServerConfig
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.message import MessageExt, MessageRecord, record_of
from txrocketmq.model.message_id import offset_message_id
from txrocketmq.model.static_topic import TopicConfigAndQueueMapping
from txrocketmq.model.topic import TopicConfig

ADMINISTRATION = {op.code for op in OPERATIONS if op.lane.name in ("ADMIN", "QUERY")}
OF_4_9 = ("adm49", "c49", "c54-s49")
UNKNOWN = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
ERA_S = 1_795_970_000
#: Compared in test_golden_conversations.py, test_replication.py, test_controller_mode.py and test_timer_golden.py.
ELSEWHERE = {
    "EXCHANGE_BROKER_HA_INFO",
    "NOTIFY_MIN_BROKER_ID_CHANGE",
    "GET_BROKER_EPOCH_CACHE",
    "NOTIFY_BROKER_ROLE_CHANGED",
    "GET_TIMER_CHECK_POINT",
    "GET_TIMER_METRICS",
    "SWITCH_TIMER_ENGINE",
    "GET_MAX_OFFSET",
    "GET_MIN_OFFSET",
    "SEARCH_OFFSET_BY_TIMESTAMP",
    "GET_EARLIEST_MSG_STORETIME",
}
#: Topics of a kind that this broker refuses; what lies where no message begins.
NOT_OURS = (*("topic-attributes", "view-message-bad-id"),)


class Case:
    """One recorded question with its answer, and what the broker asked of clients in between."""

    def __init__(self, frame: dict[str, Any], answer: dict[str, Any], tag: str) -> None:
        self.name = f"{frame['conversation']} {frame['seq']} {frame['decoded']['codeName']}"
        self.code = RequestCode[frame["decoded"]["codeName"]]
        self.asked = command_of(frame)
        self.answered = command_of(answer)
        self.body = frame_body(answer)
        self.link = frame["link"]
        self.is_4_9 = tag in OF_4_9
        self.of_clients: list[RemotingCommand] = []

    @property
    def fields(self) -> dict[str, str]:
        return self.asked.ext_fields or {}

    @property
    def json(self) -> Any:
        return loads(self.body) if self.body else {}


def command_of(frame: dict[str, Any]) -> RemotingCommand:
    return decode_command(bytes.fromhex(frame["frame_hex"])[4:])


def cases(tag: str) -> Iterator[Case]:
    frames = [
        frame
        for frame in wire_frames()
        if frame["conversation"].startswith(f"{tag}.")
        and frame["link"] in ("broker-a", "broker-b")
        and frame["kind"] == "remoting"
    ]
    answers = {
        (frame["conversation"], frame["reply_to_seq"]): frame
        for frame in frames
        if frame["reply_to_seq"] is not None
    }
    for frame in frames:
        decoded = frame["decoded"]
        if (
            frame["direction"] != "c2s"
            or decoded["flag"] & 1
            or decoded["code"] not in ADMINISTRATION
        ):
            continue
        answer = answers.get((frame["conversation"], frame["seq"]))
        if answer is None or decoded["codeName"] in ELSEWHERE:
            continue
        if (
            frame["conversation"].partition(".")[2] in NOT_OURS
            or answer["decoded"]["code"] == UNKNOWN
        ):
            continue
        case = Case(frame, answer, tag)
        for between in frames:
            told = answers.get((between["conversation"], between["seq"]))
            if (
                between["conversation"] == frame["conversation"]
                and between["direction"] == "s2c"
                and frame["seq"] < between["seq"] < answer["seq"]
                and not between["decoded"]["flag"] & 1
                and told is not None
            ):
                case.of_clients.append(command_of(told))
        yield case


class Stage:
    """A broker that is brought into the state of which a recorded answer tells."""

    def __init__(self, case: Case) -> None:
        self.case = case
        clock = Clock()
        clock.advance(ERA_S)
        self.broker = SmallBroker(
            clock=clock,
            broker_name=case.link,
            broker_cluster_name="GoldenCluster",
            use_server_side_reset_offset=not case.is_4_9,
            rocketmq_home="/opt/rocketmq",
            more_sections=(NettyServerConfig(), NettyClientConfig()),
        )
        self.core = self.broker.core
        self.members: list[Peer] = []
        self._ends: dict[tuple[str, int], int] = {}
        self._times: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)

    def topic(self, name: str, queues: int = 1, **settings: Any) -> None:
        self.core.topics.update(
            [
                TopicConfig(
                    topic_name=name, read_queue_nums=queues, write_queue_nums=queues, **settings
                )
            ]
        )

    def group(self, name: str) -> None:
        self.core.groups.update(SubscriptionGroupConfig(group_name=name))

    def stands(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.core.offsets.commit(group, topic, queue_id, offset, "an earlier run")

    def holds(self, topic: str, queue_id: int, end: int, times: dict[int, int]) -> None:
        """A queue has messages up to an offset; of some of them the time of storing is known."""
        key = (topic, queue_id)
        self._ends[key] = max(end, self._ends.get(key, 0))
        self._times[key].update({offset: ms for offset, ms in times.items() if ms > 0})

    def fill(self) -> None:
        """Put the messages of all queues, in the order of their times."""
        queues: dict[str, int] = {}
        for topic, queue_id in self._ends:
            queues[topic] = max(queue_id + 1, queues.get(topic, 0))
        for topic, count in queues.items():
            self.topic(topic, count)
        events = []
        for key, end in self._ends.items():
            known = 0
            for offset in range(end):
                known = max(known, self._times[key].get(offset, 0))
                events.append((known or ERA_S * 1000, key, offset))
        for ms, (topic, queue_id), _ in sorted(events):
            self.until(ms)
            self.put(MessageRecord(topic=topic, queue_id=queue_id, body=b"x"))

    def until(self, ms: int) -> None:
        if ms > self.broker.now_ms():
            # Past all timers, which have nothing to add; and half a millisecond on, for the sake of rounding.
            self.broker.clock.rightNow = (ms + 0.5) / 1000

    def put(self, record: MessageRecord) -> int:
        at = self.broker.store.max_physical_offset()
        self.broker.store.put_message(record)
        return at

    def put_again(self, message: MessageExt) -> int:
        """Put a recorded message; where it lies."""
        self.topic(message.topic, message.queue_id + 1)
        while self.broker.store.max_offset(message.topic, message.queue_id) < message.queue_offset:
            self.put(MessageRecord(topic=message.topic, queue_id=message.queue_id, body=b"before"))
        self.until(message.store_timestamp)
        return self.put(record_of(message))

    def member(
        self, client_id: str, group: str, table: Any = None, version: int = 493, **settings: Any
    ) -> None:
        """A consumer is online; `table` is its subscription as an answer shows it."""
        wanted = list((table or {}).values())
        text = {
            "clientID": client_id,
            "consumerDataSet": [
                {
                    "groupName": group,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": wanted,
                    "unitMode": False,
                    **settings,
                }
            ],
            "producerDataSet": [],
        }
        self._beat(text, version)

    def producer(self, client_id: str, group: str, version: int) -> None:
        text = {
            "clientID": client_id,
            "consumerDataSet": [],
            "producerDataSet": [{"groupName": group}],
        }
        self._beat(text, version)

    def _beat(self, text: Any, version: int) -> None:
        peer = self.broker.connect(50_000 + len(self.members), "192.0.2.10")
        command = RemotingCommand.create_request(
            RequestCode.HEART_BEAT, body=json.dumps(text).encode(), language=0, version=version
        )
        peer.protocol.dataReceived(command.encode())
        self.members.append(peer)

    def ask(self) -> RemotingCommand:
        """Put the question; clients that are asked something say what they said then."""
        peer = self.broker.connect(60_000)
        peer.protocol.dataReceived(self.case.asked.encode())
        said = list(self.case.of_clients)
        for member in self.members:
            for told in member.notices():
                if told.code in CALLS_OF_CLIENTS and said:
                    reply = said.pop(0)
                    reply.opaque = told.opaque
                    member.protocol.dataReceived(reply.encode())
        answer = peer.answer(self.case.asked.opaque)
        assert answer is not None, self.case.name
        return answer


CALLS_OF_CLIENTS = (
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
)


# ----------------------------------------------------------------- the state that an answer tells of


def _no_state(stage: Stage) -> None:
    """The answer tells of none."""


def _its_topic(stage: Stage) -> None:
    if stage.case.answered.code == 0:
        stage.topic(stage.case.fields["topic"])


def _one_topic(stage: Stage) -> None:
    if stage.case.answered.code == 0:
        stage.core.topics.update([b.decode_body(TopicConfig, stage.case.body)])
        static = b.decode_body(TopicConfigAndQueueMapping, stage.case.body).mapping_detail
        if static is not None:
            stage.core.static_topics.put(static)


def _all_topics(stage: Stage) -> None:
    wrapper = b.decode_body(b.TopicConfigSerializeWrapper, stage.case.body)
    stage.core.topics.update(list(wrapper.topic_config_table.values()))


def _all_groups(stage: Stage) -> None:
    wrapper = b.decode_body(b.SubscriptionGroupWrapper, stage.case.body)
    for group in wrapper.subscription_group_table.values():
        stage.core.groups.update(group)


def _members(stage: Stage) -> None:
    said = stage.case.json
    for connection in said.get("connectionSet", ()):
        stage.member(
            connection["clientId"],
            stage.case.fields["consumerGroup"],
            said["subscriptionTable"],
            connection["version"],
            consumeType=said["consumeType"],
            messageModel=said["messageModel"],
            consumeFromWhere=said["consumeFromWhere"],
        )


def _producers(stage: Stage) -> None:
    for connection in stage.case.json.get("connectionSet", ()):
        stage.producer(
            connection["clientId"], stage.case.fields["producerGroup"], connection["version"]
        )


def _all_producers(stage: Stage) -> None:
    for group, members in stage.case.json["data"].items():
        for member in members:
            stage.producer(member["clientId"], group, member["version"])


def _groups_of_topic(stage: Stage) -> None:
    for group in stage.case.json["groupList"]:
        stage.stands(group, stage.case.fields["topic"], 0, 1)


def _topics_of_group(stage: Stage) -> None:
    for topic in stage.case.json.get("topicList", ()):
        stage.stands(stage.case.fields["group"], topic, 0, 1)


def _subscription(stage: Stage) -> None:
    said = stage.case.json
    found = said.get("subscriptionData")
    if found is not None:
        stage.member("client", said["group"], {said["topic"]: found})


def _client(stage: Stage) -> None:
    fields = stage.case.fields
    if stage.case.answered.code == 0:
        stage.member(fields["clientId"], fields["consumerGroup"])


def _client_and_message(stage: Stage) -> None:
    _client(stage)
    message = CONSUMED_DIRECTLY[stage.case.link, stage.case.fields["msgId"]]
    at = stage.put_again(message)
    stage.case.fields["msgId"] = offset_message_id(*message.store_host, at)


def _half_message(stage: Stage) -> None:
    """The recorded one was any message; ours has to be one that waits for its transaction."""
    text = b"REAL_TOPIC\x01T\x02REAL_QID\x010\x02"
    at = stage.put(
        MessageRecord(topic="TRANS_CHECK_MAX_TIME_TOPIC", queue_id=0, body=b"x", properties=text)
    )
    stage.case.fields["msgId"] = offset_message_id("192.0.2.1", 10911, at)


def _delay_offsets(stage: Stage) -> None:
    for level, offset in stage.case.json["offsetTable"].items():
        stage.core.delays.offsets.put(int(level), offset)


def _clients_that_tell(stage: Stage) -> None:
    for client_id in stage.case.json["consumerTable"]:
        stage.member(client_id, stage.case.fields["group"])


def _queue_ends(stage: Stage) -> None:
    for key, offsets in stage.case.json.get("offsetTable", {}).items():
        queue = json.loads(key)
        assert offsets["minOffset"] == 0
        end = offsets["maxOffset"]
        stage.holds(
            queue["topic"], queue["queueId"], end, {end - 1: offsets["lastUpdateTimestamp"]}
        )
    stage.fill()


def _progress(stage: Stage, group: str, table: dict[str, Any]) -> None:
    for key, offsets in table.items():
        queue = json.loads(key)
        topic, queue_id, consumed = queue["topic"], queue["queueId"], offsets["consumerOffset"]
        stage.holds(
            topic, queue_id, offsets["brokerOffset"], {consumed - 1: offsets["lastTimestamp"]}
        )
        stage.stands(group, topic, queue_id, consumed)
        stage.core.offsets.note_pull(f"{topic}@{group}", queue_id, offsets.get("pullOffset", 0))


def _progress_of_group(stage: Stage) -> None:
    _progress(stage, stage.case.fields["consumerGroup"], stage.case.json.get("offsetTable", {}))
    stage.fill()


def _progress_of_all(stage: Stage) -> None:
    for groups in stage.case.json["consumeStatsList"]:
        for group, found in groups.items():
            stage.group(group)
            for stats in found:
                _progress(stage, group, stats["offsetTable"])
    stage.fill()


def _time_spans(stage: Stage) -> None:
    for span in stage.case.json.get("consumeTimeSpanSet", ()):
        queue = span["messageQueue"]
        first, last = span["minTimeStamp"], span["maxTimeStamp"]
        times = [] if last < 0 else [first] if first == last else [first, last]
        stage.holds(queue["topic"], queue["queueId"], len(times), dict(enumerate(times)))
        consumed = times.index(span["consumeTimeStamp"]) + 1 if times else 0
        stage.stands(stage.case.fields["group"], queue["topic"], queue["queueId"], consumed)
    stage.fill()


def _counted(stage: Stage) -> None:
    if stage.case.answered.code != 0:
        return
    minute, hour = stage.case.json["statsMinute"], stage.case.json["statsHour"]
    topic, _, group = stage.case.fields["statsKey"].partition("@")
    counter = stage.core.stats.of_topic(topic)
    peer = stage.broker.connect()
    count = max(minute["sum"], hour["sum"])
    if stage.core.topics.is_system(topic):
        # Clients must not send there.
        counter.messages += count
        counter.calls += count
        count = 0
    for _ in range(count):
        peer.send(topic)
    if group:
        size = int(max(minute["avgpt"], hour["avgpt"]))
        for offset in range(0, count, size):
            peer.pull(topic, offset=offset, max_msg_nums=size, consumer_group=group)
    if hour["sum"]:
        stage.core.stats.sample_for_hour()
    for _ in range(1 if minute["sum"] else 8):
        stage.broker.clock.advance(10)


def _all_positions(stage: Stage) -> None:
    for key, queues in stage.case.json["offsetTable"].items():
        topic, _, group = key.partition("@")
        for queue_id, offset in queues.items():
            stage.stands(group, topic, int(queue_id), offset)


def _targets(stage: Stage) -> None:
    fields = stage.case.fields
    group, topic = fields["group"], fields["topic"]
    if stage.case.answered.code != 0:
        return
    stage.group(group)
    stage.member("client", group)
    for key, target in stage.case.json["offsetTable"].items():
        queue = json.loads(key)
        # Where a time after the last message was looked for, 4.9 names that message and 5.x what follows it.
        is_after = stage.case.is_4_9 and int(fields["timestamp"]) > 0
        end = target + 1 if is_after else target or 3
        stage.holds(topic, queue["queueId"], end, {})
        stage.stands(group, topic, queue["queueId"], end)
    stage.fill()


def _corrections(stage: Stage) -> None:
    fields = stage.case.fields
    found = stage.case.json["correctionOffsets"]
    stage.topic(fields["topic"], 8)
    for queue_id, offset in found.items():
        stage.stands("AnotherGroup", fields["topic"], int(queue_id), offset)


def _queue_entries(stage: Stage) -> None:
    fields = stage.case.fields
    topic, queue_id = fields["topic"], int(fields["queueId"])
    said = stage.case.json
    stage.topic(topic, queue_id + 1)
    before = stage.put(MessageRecord(topic="Other", queue_id=0, body=b""))
    overhead = stage.broker.store.max_physical_offset() - before - len("Other")
    for entry in said.get("queueData") or ():
        size = entry["physicSize"] - overhead - len(topic)
        record = MessageRecord(topic=topic, queue_id=queue_id, body=b"x" * size)
        record.tags_code = entry["tagsCode"]
        stage.put(record)
    while stage.broker.store.max_offset(topic, queue_id) < said.get("maxQueueIndex", 0):
        stage.put(MessageRecord(topic=topic, queue_id=queue_id, body=b"x"))
    group = fields.get("consumerGroup")
    if group and said.get("subscriptionData"):
        stage.member("client", group, {topic: said["subscriptionData"]})


def _messages(stage: Stage) -> None:
    for message in decode_records(stage.case.body):
        stage.put_again(message)


def _message_at(stage: Stage) -> None:
    for message in decode_records(stage.case.body):
        stage.case.fields["offset"] = str(stage.put_again(message))


def _topic_of_mode(stage: Stage) -> None:
    stage.topic(loads(stage.case.asked.body)["topic"])


def _request_modes(stage: Stage) -> None:
    for topic, groups in stage.case.json["messageRequestModeMap"].items():
        stage.topic(topic)
        for mode in groups.values():
            body = json.dumps(mode).encode()
            assert (
                stage.broker.connect().ask(RequestCode.SET_MESSAGE_REQUEST_MODE, None, body).code
                == 0
            )


PREPARE: dict[RequestCode, Callable[[Stage], None]] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: _no_state,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _no_state,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: _no_state,
    RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: _no_state,
    RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: _no_state,
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: _no_state,
    RequestCode.DELETE_TOPIC_IN_BROKER: _its_topic,
    RequestCode.GET_ALL_DELAY_OFFSET: _delay_offsets,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: _half_message,
    RequestCode.GET_TOPIC_CONFIG: _one_topic,
    RequestCode.GET_ALL_TOPIC_CONFIG: _all_topics,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _no_state,
    RequestCode.CLEAN_UNUSED_TOPIC: _no_state,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _no_state,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _no_state,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _no_state,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _no_state,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _all_groups,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: _no_state,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _members,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: _producers,
    RequestCode.GET_ALL_PRODUCER_INFO: _all_producers,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _groups_of_topic,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _topics_of_group,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _subscription,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _client,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _client_and_message,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _clients_that_tell,
    RequestCode.GET_TOPIC_STATS_INFO: _queue_ends,
    RequestCode.GET_CONSUME_STATS: _progress_of_group,
    RequestCode.GET_BROKER_CONSUME_STATS: _progress_of_all,
    RequestCode.QUERY_CONSUME_TIME_SPAN: _time_spans,
    RequestCode.VIEW_BROKER_STATS_DATA: _counted,
    RequestCode.GET_BROKER_RUNTIME_INFO: _no_state,
    RequestCode.GET_ALL_CONSUMER_OFFSET: _all_positions,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _targets,
    RequestCode.CLONE_GROUP_OFFSET: _no_state,
    RequestCode.QUERY_CORRECTION_OFFSET: _corrections,
    RequestCode.GET_BROKER_CONFIG: _no_state,
    RequestCode.UPDATE_BROKER_CONFIG: _no_state,
    RequestCode.SET_COMMITLOG_READ_MODE: _no_state,
    RequestCode.QUERY_CONSUME_QUEUE: _queue_entries,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: _no_state,
    RequestCode.DELETE_EXPIRED_COMMITLOG: _no_state,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _topic_of_mode,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: _request_modes,
    RequestCode.POP_ROLLBACK: _no_state,
    RequestCode.GET_BROKER_HA_STATUS: _no_state,
    RequestCode.RESET_MASTER_FLUSH_OFFSET: _no_state,
    RequestCode.QUERY_MESSAGE: _messages,
    RequestCode.VIEW_MESSAGE_BY_ID: _message_at,
}
"""What each question needs; a question that is not here fails, so that nothing is left out unnoticed."""

CONSUMED_DIRECTLY: dict[tuple[str, str], MessageExt] = {}
"""Messages that brokers gave to clients for a trial, as they were recorded; by broker and id."""


def note_what_was_consumed_directly() -> None:
    """Fill `CONSUMED_DIRECTLY`."""
    for frame in wire_frames():
        if (
            frame["kind"] == "remoting"
            and frame["direction"] == "s2c"
            and frame["decoded"]["codeName"] == "CONSUME_MESSAGE_DIRECTLY"
            and not frame["decoded"]["flag"] & 1
        ):
            (message,) = decode_records(frame_body(frame))
            message_id = frame["decoded"]["extFields"]["msgId"]
            CONSUMED_DIRECTLY[frame["link"], message_id] = message
