"""What does a message cost a push consumer? CPU microseconds per message of 1 KiB, handler included.

    python bench/client_consume.py [--messages N] [--body BYTES] [--batch N] [--deferred] [--profile FILE]
    python bench/client_consume.py --namesrv HOST:PORT --topic NAME
    python bench/client_consume.py --beside-official

Without ``--namesrv`` a forked server with plain sockets is name server and broker in one and has messages without end, so that the client is
all that is measured; with it a topic of a real cluster is drained. ``--beside-official`` starts the official broker 5.4.0, fills a topic, and has
our consumer and the official one (after a warm-up) drain it in turn. CPU is that of the client's process alone.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import select
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from txrocketmq.client.consumer.config import PushConfig  # noqa: E402
from txrocketmq.client.consumer.handlers import ConsumeConcurrentlyStatus  # noqa: E402
from txrocketmq.client.consumer.push import PushConsumer  # noqa: E402
from txrocketmq.codec.bodies import GetConsumerListByGroupResponseBody  # noqa: E402
from txrocketmq.codec.bodies.wire import decode_body, encode_body  # noqa: E402
from txrocketmq.codec.command import RemotingCommand, decode_command  # noqa: E402
from txrocketmq.codec.headers import (  # noqa: E402
    GetRouteInfoRequestHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetResponseHeader,
)
from txrocketmq.codec.record import encode_record  # noqa: E402
from txrocketmq.model.codes import RequestCode, ResponseCode  # noqa: E402
from txrocketmq.model.heartbeat import ConsumeFromWhere, HeartbeatData  # noqa: E402
from txrocketmq.model.message import MessageRecord  # noqa: E402
from txrocketmq.model.properties import format_properties  # noqa: E402
from txrocketmq.model.route import BrokerData, QueueData, TopicRouteData  # noqa: E402

PER_PULL = 32
QUEUE_OFFSET_POSITION = 20
SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
BESIDE_COUNT = 200_000


class Broker:
    """Answers as a broker with four queues that never end."""

    def __init__(self, listener: socket.socket, body_bytes: int) -> None:
        self.listener = listener
        self.port = listener.getsockname()[1]
        properties = {
            "UNIQ_KEY": "C0A8000100002A184E0E2F2A93F00000",
            "TAGS": "TagA",
            "WAIT": "true",
        }
        record = encode_record(
            MessageRecord(
                topic="bench",
                queue_id=0,
                body=os.urandom(body_bytes),
                properties=format_properties({**properties, "CLUSTER": "DefaultCluster"}),
            ),
            0,
            0,
            1_700_000_000_000,
        )
        self.size = len(record)
        self.records = bytearray(record * PER_PULL)
        self.client_ids: list[str] = []

    def serve(self) -> None:
        """Until the client is gone."""
        poll = select.epoll()
        poll.register(self.listener.fileno(), select.EPOLLIN)
        socks: dict[int, socket.socket] = {}
        tails: dict[int, bytes] = {}
        while True:
            for number, _ in poll.poll():
                if number == self.listener.fileno():
                    sock, _ = self.listener.accept()
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    socks[sock.fileno()], tails[sock.fileno()] = sock, b""
                    poll.register(sock.fileno(), select.EPOLLIN)
                    continue
                piece = socks[number].recv(1 << 18)
                if not piece:
                    os._exit(0)
                data = tails[number] + piece
                pos = 0
                while len(data) - pos >= 4:
                    end = pos + 4 + struct.unpack_from(">i", data, pos)[0]
                    if end > len(data):
                        break
                    socks[number].sendall(self.answer(decode_command(data[pos + 4 : end])))
                    pos = end
                tails[number] = data[pos:]

    def answer(self, asked: RemotingCommand) -> bytes:
        """One request's answer."""
        header: Any = None
        body = b""
        code = 0
        if asked.code == RequestCode.PULL_MESSAGE:
            offset = asked.decode_header(PullMessageRequestHeader).queue_offset
            for number in range(PER_PULL):
                position = number * self.size + QUEUE_OFFSET_POSITION
                struct.pack_into(">q", self.records, position, offset + number)
            following = offset + PER_PULL
            header = PullMessageResponseHeader(
                suggest_which_broker_id=0,
                next_begin_offset=following,
                min_offset=0,
                max_offset=following + 1000,
            )
            body = bytes(self.records)
        elif asked.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            if asked.decode_header(GetRouteInfoRequestHeader).topic.startswith("%RETRY%"):
                code = int(ResponseCode.TOPIC_NOT_EXIST)
            else:
                body = self._route()
        elif asked.code == RequestCode.HEART_BEAT:
            client_id = decode_body(HeartbeatData, asked.body).client_id
            self.client_ids = [client_id] if client_id else []
        elif asked.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            body = encode_body(GetConsumerListByGroupResponseBody(consumer_id_list=self.client_ids))
        elif asked.code == RequestCode.QUERY_CONSUMER_OFFSET:
            header = QueryConsumerOffsetResponseHeader(offset=0)
        if asked.flag & 2:
            return b""
        return RemotingCommand.create_response(asked, code, header, body=body).encode()

    def _route(self) -> bytes:
        brokers = [
            BrokerData(
                broker_addrs={0: f"127.0.0.1:{self.port}"}, broker_name="broker-a", cluster="C"
            )
        ]
        queues = [QueueData(broker_name="broker-a", perm=6, read_queue_nums=4, write_queue_nums=4)]
        return encode_body(TopicRouteData(broker_datas=brokers, queue_datas=queues))


class Meter:
    """Counts messages, and takes the time between the first tenth and the last one."""

    def __init__(self, count: int, profile: str | None, deferred: bool) -> None:
        from twisted.internet.defer import Deferred, succeed

        self._succeed = succeed
        self._deferred = deferred
        self._count = count
        self._begin = count // 10
        self._seen = 0
        self._profile = cProfile.Profile() if profile else None
        self._profile_file = profile
        self.done: Deferred[None] = Deferred()
        self.cpu_us = self.per_second = 0.0

    def handle(self, messages: list[Any], context: Any) -> Any:
        """The handler: looks at each body."""
        before = self._seen
        self._seen += len([message.body for message in messages])
        if before < self._begin <= self._seen:
            self._cpu, self._wall, self._first = (
                time.process_time(),
                time.perf_counter(),
                self._seen,
            )
            if self._profile:
                self._profile.enable()
        elif self._seen >= self._count and not self.done.called:
            if self._profile:
                self._profile.disable()
                self._profile.dump_stats(self._profile_file or "")
            count = self._seen - self._first
            self.cpu_us = (time.process_time() - self._cpu) / count * 1e6
            self.per_second = count / (time.perf_counter() - self._wall)
            self.done.callback(None)
        return self._succeed(SUCCESS) if self._deferred else SUCCESS


async def measure(reactor: Any, options: argparse.Namespace, namesrv: str) -> None:
    """One run."""
    meter = Meter(options.messages, options.profile, options.deferred)
    settings = PushConfig(
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_message_batch_max_size=options.batch,
        await_termination_millis_when_shutdown=100,
    )
    group = f"bench_consumer_{os.getpid()}"
    consumer = PushConsumer(
        reactor, group, options.topic, meter.handle, settings=settings, namesrv_addr=namesrv
    )
    await consumer.start()
    await meter.done
    print(
        f"{meter.cpu_us:.2f} us of CPU a message, {1e6 / meter.cpu_us:,.0f} messages per CPU second, "
        f"{meter.per_second:,.0f} a second"
    )
    await consumer.stop()


def beside_official(options: argparse.Namespace) -> None:
    """Our consumer and the official one, the same messages from the same official broker."""
    from bench.beside_java import java_beside
    from bench.pairs import cpu_seconds

    count, topic = BESIDE_COUNT, "bench_consume"
    with java_beside(topic, "bench_producer") as (cluster, java):
        load = {"mode": "batch", "batch": 32, "threads": 4, "size": options.body}
        java.call("load.send", name="load", topic=topic, count=count, timeout_ms=300_000, **load)
        for run in range(4):
            before = cpu_seconds(java.pid)
            java.call(
                "load.drain",
                group=f"official_{run}",
                namesrv=cluster.namesrv,
                topic=topic,
                count=count,
                timeout_ms=300_000,
            )
            cpu = cpu_seconds(java.pid) - before
            print(
                f"official, drain {run + 1}: {cpu / count * 1e6:.2f} us, {count / cpu:,.0f} per CPU second"
            )
        for batch in (1, 32):
            command = [sys.executable, __file__, "--namesrv", cluster.namesrv, "--topic", topic]
            command += ["--messages", str(count), "--batch", str(batch)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f"ours, {batch} at a time: {done.stdout.strip()}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=1, help="messages a handler gets at a time")
    parser.add_argument("--deferred", action="store_true", help="the handler returns Deferreds")
    parser.add_argument("--namesrv")
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--profile")
    parser.add_argument("--beside-official", action="store_true")
    options = parser.parse_args()
    if options.beside_official:
        beside_official(options)
        return
    namesrv = options.namesrv
    if namesrv is None:
        listener = socket.create_server(("127.0.0.1", 0))
        namesrv = f"127.0.0.1:{listener.getsockname()[1]}"
        if os.fork() == 0:
            Broker(listener, options.body).serve()
        listener.close()
    from twisted.internet.defer import Deferred
    from twisted.internet.task import react

    def run(reactor: Any) -> Deferred[None]:
        return Deferred.fromCoroutine(measure(reactor, options, namesrv))

    react(run)


if __name__ == "__main__":
    main()
