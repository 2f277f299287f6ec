"""Asking a broker as operators' tools do, with the names that travel; clients that are asked something in turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from small_broker import Peer, SmallBroker

from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.fastjson import loads
from txrocketmq.model.codes import RequestCode

R = RequestCode
CPP = 1


def tell(peer: Peer, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
    """Ask; the whole answer."""
    return peer.ask(code, None, body, ext_fields={name: spelt(v) for name, v in fields.items()})


def spelt(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def told(peer: Peer, code: int, body: bytes = b"", **fields: object) -> Any:
    """Ask something that succeeds; the answer's body as data, None when there is none."""
    answer = tell(peer, code, body, **fields)
    assert answer.code == 0, f"{answer.code}: {answer.remark}"
    return loads(answer.body) if answer.body else None


def refused(peer: Peer, code: int, body: bytes = b"", **fields: object) -> tuple[int, str]:
    """Ask something that is refused; code and remark."""
    answer = tell(peer, code, body, **fields)
    assert answer.code != 0
    return answer.code, answer.remark or ""


def queues(table: Mapping[str, Any]) -> dict[tuple[str, int], Any]:
    """A table with queues for keys, by topic and queue id."""
    found = {}
    for key, value in table.items():
        queue = json.loads(key)
        assert queue["brokerName"] == "broker-a"
        found[queue["topic"], queue["queueId"]] = value
    return found


def create_topic(peer: Peer, topic: str, queues: int = 1, **changes: object) -> RemotingCommand:
    """As ``updateTopic`` does."""
    fields: dict[str, object] = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        **changes,
    }
    return tell(peer, R.UPDATE_AND_CREATE_TOPIC, **fields)


def create_group(peer: Peer, name: str, **changes: object) -> RemotingCommand:
    """As ``updateSubGroup`` does."""
    body = json.dumps({"groupName": name, **changes}).encode()
    return tell(peer, R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)


def commit(peer: Peer, group: str, topic: str, queue_id: int, offset: int) -> None:
    """A consumer says where it stands."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
    told(peer, R.UPDATE_CONSUMER_OFFSET, **fields)


def committed(peer: Peer, group: str, topic: str, queue_id: int = 0) -> int | None:
    """Where a group stands, None when the broker does not know."""
    answer = tell(
        peer,
        R.QUERY_CONSUMER_OFFSET,
        consumerGroup=group,
        topic=topic,
        queueId=queue_id,
        setZeroIfNotFound=False,
    )
    return int((answer.ext_fields or {})["offset"]) if answer.code == 0 else None


class Client:
    """A consumer that is online and answers what the broker asks of it."""

    def __init__(
        self,
        broker: SmallBroker,
        client_id: str = "client-1",
        group: str = "G",
        port: int = 50_001,
        *,
        version: int = 493,
        language: int = 0,
    ) -> None:
        self.peer = broker.connect(port)
        self.client_id = client_id
        self.group = group
        self._version = version
        self._language = language
        self._opaque = 1_000_000

    def beat(self, model: str = "CLUSTERING", **topics: str) -> Client:
        """Subscribe: topic to expression."""
        subscriptions = [
            {
                "topic": topic,
                "subString": expression,
                "tagsSet": [] if expression == "*" else expression.split(" || "),
                "codeSet": [],
                "subVersion": 1,
                "expressionType": "TAG",
            }
            for topic, expression in topics.items()
        ]
        consumer = {
            "groupName": self.group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": model,
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": subscriptions,
            "unitMode": False,
        }
        body = {"clientID": self.client_id, "consumerDataSet": [consumer], "producerDataSet": []}
        assert self.ask(R.HEART_BEAT, json.dumps(body).encode()).code == 0
        self.peer.notices()
        return self

    def ask(self, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        """Ask the broker, in the language and version of this client."""
        self._opaque += 1
        command = RemotingCommand.create_request(
            code,
            body=body,
            ext_fields={name: spelt(value) for name, value in fields.items()},
            opaque=self._opaque,
            version=self._version,
            language=self._language,
        )
        self.peer.protocol.dataReceived(command.encode())
        answer = self.peer.answer(self._opaque)
        assert answer is not None
        return answer

    def asked(self) -> list[RemotingCommand]:
        """What the broker asked since the last look; that the group changed is left out."""
        told = self.peer.notices()
        return [command for command in told if command.code != R.NOTIFY_CONSUMER_IDS_CHANGED]

    def answers(
        self, asked: RemotingCommand, body: bytes = b"", code: int = 0, remark: str | None = None
    ) -> None:
        """Answer the broker."""
        reply = RemotingCommand.create_response(asked, code, remark=remark, body=body)
        self.peer.protocol.dataReceived(reply.encode())
