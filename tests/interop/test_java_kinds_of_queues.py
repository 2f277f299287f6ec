"""Batch queues, light queues, extensions and sealed records in one store directory, brokers of two makes: what one wrote, the other serves.

The requests are made here, byte by byte, so that both brokers are asked the same; a Java consumer unpacks the batches.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import time
from types import TracebackType

import pytest

from interop.harness.clients import Admin, PushConsumer
from interop.harness.cluster import Cluster, make_cluster
from interop.harness.columns import by_tier
from interop.harness.jvm import JvmSlots
from interop.harness.puppet import PuppetPool
from interop.harness.waiting import wait_until
from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.codec.record import decode_records, encode_batch
from txrocketmq.codec.seal import seal_fault
from txrocketmq.model.codes import RequestCode as R
from txrocketmq.model.message import MessageExt

pytestmark = pytest.mark.java

SETTINGS = {
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "enableConsumeQueueExt": "true",
    "enableCalcFilterBitMap": "true",
    "enablePropertyFilter": "true",
    "enabledAppendPropCRC": "true",
    "forceVerifyPropCRC": "true",
    "mapperFileSizeBatchConsumeQueue": str(46 * 1000),
    "mappedFileSizeConsumeQueueExt": str(64 * 1024),
}
BATCHES, PLAIN, GROUP = "Batches", "Plain", "sql-group"
ONE, TWO = "%LMQ%one", "%LMQ%two"
PATIENCE_S = 30.0


def text(**found: str) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in found.items())


class Link:
    """A client's connection to a broker."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self._splitter = FrameSplitter()
        self._opaque = 0

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def ask(self, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        """The answer to a request with these header fields."""
        self._opaque += 1
        request = RemotingCommand.create_request(
            code,
            None,
            body=body,
            ext_fields={name: str(value) for name, value in fields.items()},
            opaque=self._opaque,
            version=493,
        )
        self._socket.sendall(request.encode())
        while True:
            data = self._socket.recv(1 << 16)
            assert data, "the broker closed the connection"
            for frame in self._splitter.feed(data):
                answer = decode_command(frame)
                if answer.is_response and answer.opaque == self._opaque:
                    return answer

    def told(self, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        answer = self.ask(code, body, **fields)
        assert answer.code == 0, f"{answer.code}: {answer.remark}"
        return answer

    def create_topic(self, topic: str, attributes: str = "") -> None:
        self.told(
            R.UPDATE_AND_CREATE_TOPIC,
            topic=topic,
            defaultTopic="TBW102",
            readQueueNums=1,
            writeQueueNums=1,
            perm=6,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order="false",
            attributes=attributes,
        )

    def send(self, topic: str, body: bytes, properties: str, *, batch: bool = False) -> int:
        """The logical offset that a message got."""
        answer = self.told(
            R.SEND_BATCH_MESSAGE if batch else R.SEND_MESSAGE_V2,
            body,
            a="P",
            b=topic,
            c="TBW102",
            d=1,
            e=0,
            f=0,
            g=int(time.time() * 1000),
            h=0,
            i=properties,
            j=0,
            k="false",
            m=str(batch).lower(),
        )
        return int(answer.ext_fields["queueOffset"])

    def beat(self) -> None:
        """A consumer of `GROUP` subscribes `PLAIN` with a SQL92 expression."""
        subscription = {
            "topic": PLAIN,
            "subString": "n >= 10",
            "expressionType": "SQL92",
            "subVersion": 7,
            "tagsSet": [],
            "codeSet": [],
            "classFilterMode": False,
        }
        consumer = {
            "groupName": GROUP,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [subscription],
            "unitMode": False,
        }
        body = {"clientID": "c1", "consumerDataSet": [consumer], "producerDataSet": []}
        self.told(R.HEART_BEAT, json.dumps(body).encode())

    def pull(self, topic: str, offset: int, group: str = "G", sys_flag: int = 4) -> RemotingCommand:
        return self.ask(
            R.PULL_MESSAGE,
            consumerGroup=group,
            topic=topic,
            queueId=0,
            queueOffset=offset,
            maxMsgNums=32,
            sysFlag=sys_flag,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subscription="*",
            subVersion=7,
            expressionType="TAG" if sys_flag else "SQL92",
        )

    def pull_all(self, topic: str, end: int, **options: object) -> list[MessageExt]:
        """All messages up to an offset, once the broker has derived the queue."""
        found: list[MessageExt] = []
        offset = 0

        def is_read() -> bool:
            nonlocal offset
            while offset < end:
                answer = self.pull(topic, offset, **options)  # type: ignore[arg-type]
                following = int(answer.ext_fields.get("nextBeginOffset") or 0)
                if answer.code not in (0, 19, 20) or following <= offset:
                    return False
                found.extend(decode_records(answer.body))
                offset = following
            return True

        wait_until(is_read, f"messages of {topic} up to {end}", PATIENCE_S)
        return found


def batch(number: int) -> bytes:
    items = [
        (
            0,
            b"Batches-%d" % (number * 3 + n),
            text(UNIQ_KEY=f"B{number}.{n}", seq=str(number * 3 + n)).encode(),
        )
        for n in range(3)
    ]
    return encode_batch(items)


def put(link: Link, first: int, count: int) -> None:
    """Send messages of every kind; all get the offsets that follow."""
    for number in range(first, first + count):
        properties = text(UNIQ_KEY=f"id-batch-{number}", WAIT="true")
        assert link.send(BATCHES, batch(number), properties, batch=True) == number * 3
        names = f"{ONE},{TWO}" if number % 2 == 0 else ONE
        properties = text(
            UNIQ_KEY=f"id-{number}", n=str(number), INNER_MULTI_DISPATCH=names, WAIT="true"
        )
        assert link.send(PLAIN, b"%d" % number, properties) == number


def everything_is_served(link: Link, count: int) -> None:
    link.beat()
    batches = link.pull_all(BATCHES, count * 3)
    assert [m.body for m in batches] == [batch(number) for number in range(count)]
    assert [m.properties["INNER_BASE"] for m in batches] == [str(n * 3) for n in range(count)]
    bodies = [b"%d" % number for number in range(count)]
    assert [m.body for m in link.pull_all(PLAIN, count)] == bodies
    assert [m.body for m in link.pull_all(ONE, count)] == bodies
    two = link.pull_all(TWO, (count + 1) // 2)
    assert [m.body for m in two] == bodies[::2]
    offsets = [m.properties["INNER_MULTI_QUEUE_OFFSET"] for m in two]
    assert offsets == [f"{number},{number // 2}" for number in range(0, count, 2)]
    wanted = link.pull_all(PLAIN, count, group=GROUP, sys_flag=0)
    assert [m.body for m in wanted] == bodies[10:]
    answer = link.pull(PLAIN, 0)
    position = 0
    for message in decode_records(answer.body):
        record = answer.body[position : position + message.store_size]
        assert seal_fault(record, True) is None
        position += message.store_size


class TestKindsOfQueues:
    """A store with queues of all kinds changes hands."""

    @pytest.mark.parametrize(
        ("writer", "how", "reader"),
        by_tier(
            [("ours", "SIGKILL", "official-5.4.0")],
            [
                ("official-5.4.0", "SIGKILL", "ours"),
                ("ours", "SIGTERM", "official-5.4.0"),
                ("official-5.4.0", "SIGTERM", "ours"),
            ],
        ),
    )
    def test_the_other_make_serves_all_kinds(
        self, writer: str, how: str, reader: str, jvm_slots: JvmSlots, puppets: PuppetPool
    ) -> None:
        puppet = puppets.get("5.4.0", "JSON")
        with puppet.in_use(), make_cluster(writer, jvm_slots, broker_settings=SETTINGS) as cluster:
            Admin(puppet, cluster.namesrv).wait_broker(cluster.broker_name)
            with Link(cluster.broker_address) as link:
                link.create_topic(BATCHES, "+queue.type=BatchCQ")
                link.create_topic(PLAIN)
                link.beat()
                put(link, 0, 15)
                everything_is_served(link, 15)
            cluster.stop_broker(signal.Signals[how])
            Admin(puppet, cluster.namesrv).forget()
            other = make_cluster(reader, jvm_slots, broker_settings=SETTINGS)
            shutil.move(cluster.store, other.store)
            with other:
                self._go_on(other, puppets)

    @staticmethod
    def _go_on(other: Cluster, puppets: PuppetPool) -> None:
        puppet = puppets.get("5.4.0", "JSON")
        admin = Admin(puppet, other.namesrv)
        admin.wait_broker(other.broker_name)
        with Link(other.broker_address) as link:
            everything_is_served(link, 15)
            put(link, 15, 5)
            everything_is_served(link, 20)
        admin.wait_route(BATCHES)
        with PushConsumer(puppet, other.namesrv, "unpacking", BATCHES) as consumer:
            rows = consumer.wait_for_all(set(range(60)))
        assert sorted(row.seq for row in rows) == list(range(60))
        admin.forget()
