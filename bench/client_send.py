"""What does a send cost the client? CPU microseconds per message of a producer that keeps a number of sends in flight.

    python bench/client_send.py [--messages N] [--in-flight N] [--body BYTES] [--namesrv HOST:PORT] [--topic NAME] [--profile FILE]
    python bench/client_send.py --beside-official

Without ``--namesrv`` a forked server with plain sockets is name server and broker in one and answers with constants, so that the client
is all that is measured; with it a real cluster is used. ``--beside-official`` starts the official broker 5.4.0, to which our producer and the
official one send by turns (the first turn of the official one warms it up). CPU is that of the client's process alone.
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

from twisted.internet import reactor  # noqa: E402
from twisted.internet.defer import Deferred  # noqa: E402

from txrocketmq.client.producer.config import ProducerConfig  # noqa: E402
from txrocketmq.client.producer.producer import Producer  # noqa: E402
from txrocketmq.codec.bodies.wire import encode_body  # noqa: E402
from txrocketmq.codec.command import RemotingCommand, decode_command  # noqa: E402
from txrocketmq.codec.headers import SendMessageResponseHeader  # noqa: E402
from txrocketmq.model.codes import RequestCode  # noqa: E402
from txrocketmq.model.message import Message  # noqa: E402
from txrocketmq.model.route import BrokerData, QueueData, TopicRouteData  # noqa: E402

WARM_UP_SHARE = 0.1
TURNS = 3
ANSWER = SendMessageResponseHeader(
    msg_id="7F000002000051AF000000000000E807",
    queue_id=1,
    queue_offset=1234567,
    transaction_id="C000020A2A184E0E2F2A93F0D4270000",
)


def route_body(port: int) -> bytes:
    """One broker with four queues."""
    route = TopicRouteData(
        broker_datas=[
            BrokerData(broker_addrs={0: f"127.0.0.1:{port}"}, broker_name="broker-a", cluster="C")
        ],
        queue_datas=[
            QueueData(broker_name="broker-a", perm=6, read_queue_nums=4, write_queue_nums=4)
        ],
    )
    return encode_body(route)


def serve(listener: socket.socket) -> None:
    """Answer everything at once; sends by way of a template."""
    port = listener.getsockname()[1]
    frame = RemotingCommand.create_response(
        RemotingCommand.create_request(310, opaque=7_654_321), 0, ANSWER
    ).encode()
    before, _, after = frame[8:].partition(b"7654321")
    poll = select.epoll()
    poll.register(listener.fileno(), select.EPOLLIN)
    socks: dict[int, socket.socket] = {}
    tails: dict[int, bytes] = {}
    while True:
        for number, _ in poll.poll():
            if number == listener.fileno():
                sock, _ = listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                socks[sock.fileno()], tails[sock.fileno()] = sock, b""
                poll.register(sock.fileno(), select.EPOLLIN)
                continue
            piece = socks[number].recv(1 << 18)
            if not piece:
                os._exit(0)
            data = tails[number] + piece
            pos, out = 0, []
            while len(data) - pos >= 4:
                end = pos + 4 + struct.unpack_from(">i", data, pos)[0]
                if end > len(data):
                    break
                mark = data.find(b'"opaque":', pos, end) + 9
                opaque = data[mark : data.index(b",", mark)]
                if b'"code":310' in data[pos : pos + 40]:
                    head = before + opaque + after
                    out.append(struct.pack(">II", 4 + len(head), len(head)) + head)
                else:
                    out.append(other_answer(data[pos + 4 : end], port))
                pos = end
            tails[number] = data[pos:]
            socks[number].sendall(b"".join(out))


def other_answer(frame: bytes, port: int) -> bytes:
    """Routes and heartbeats."""
    command = decode_command(frame)
    body = route_body(port) if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC else b""
    return RemotingCommand.create_response(command, 0, body=body).encode()


class Load:
    """Keeps sends going and takes the time between the warm-up and the last one."""

    def __init__(self, producer: Producer, options: argparse.Namespace) -> None:
        self._producer = producer
        self._options = options
        self._body = os.urandom(options.body)
        self._asked = self._answered = 0
        self._begin = int(options.messages * WARM_UP_SHARE)
        self.done: Deferred[None] = Deferred()
        self.cpu_us = self.per_second = 0.0

    def start(self) -> Deferred[None]:
        """Begin."""
        for _ in range(self._options.in_flight):
            self._send()
        return self.done

    def _send(self) -> None:
        self._asked += 1
        message = Message(self._options.topic, self._body, 0, {"TAGS": "TagA"})
        self._producer.send(message).addCallbacks(self._sent, self.done.errback)

    def _sent(self, result: Any) -> None:
        self._answered += 1
        if self._answered == self._begin:
            self._cpu, self._wall = time.process_time(), time.perf_counter()
        if self._asked < self._options.messages:
            self._send()
        elif self._answered == self._options.messages:
            count = self._options.messages - self._begin
            self.cpu_us = (time.process_time() - self._cpu) / count * 1e6
            self.per_second = count / (time.perf_counter() - self._wall)
            self.done.callback(None)


async def measure(options: argparse.Namespace, namesrv: str) -> None:
    """One run."""
    settings = ProducerConfig(compress_msg_body_over_howmuch=1 << 30)
    producer = Producer(reactor, "bench_producer", settings=settings, namesrv_addr=namesrv)
    await producer.start()
    load = Load(producer, options)
    profile = cProfile.Profile()
    if options.profile:
        profile.enable()
    await load.start()
    if options.profile:
        profile.disable()
        profile.dump_stats(options.profile)
    print(
        f"{options.in_flight} in flight, {options.body} bytes: {load.cpu_us:.1f} us CPU each, "
        f"{load.per_second:,.0f} messages/s"
    )
    await producer.stop()


def beside_official(options: argparse.Namespace) -> None:
    """Our producer and the official one, by turns, to the same official broker."""
    from bench.beside_java import java_beside
    from bench.pairs import cpu_seconds

    count, topic = options.messages, options.topic
    with java_beside(topic, "official_producer") as (cluster, java):
        load = {"mode": "async", "in_flight": options.in_flight, "size": options.body}
        for turn in range(TURNS + 1):
            before, began = cpu_seconds(java.pid), time.perf_counter()
            java.call("load.send", name="load", topic=topic, count=count, **load)
            cpu, wall = cpu_seconds(java.pid) - before, time.perf_counter() - began
            print(
                f"official{' (warm-up)' if not turn else ''}: {cpu / count * 1e6:.1f} us CPU "
                f"each, {count / wall:,.0f} messages/s",
                flush=True,
            )
            command = [sys.executable, __file__, "--namesrv", cluster.namesrv]
            command += ["--topic", topic, "--messages", str(count)]
            command += ["--in-flight", str(options.in_flight), "--body", str(options.body)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f"ours: {done.stdout.strip()}", flush=True)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--namesrv", default="")
    parser.add_argument("--topic", default="BenchTopic")
    parser.add_argument("--profile", default="")
    parser.add_argument("--beside-official", action="store_true")
    options = parser.parse_args()
    if options.beside_official:
        beside_official(options)
        return
    namesrv, child = options.namesrv, 0
    if not namesrv:
        listener = socket.create_server(("127.0.0.1", 0))
        child = os.fork()
        if child == 0:
            serve(listener)
        namesrv = f"127.0.0.1:{listener.getsockname()[1]}"
        listener.close()

    def begin() -> None:
        running = Deferred.fromCoroutine(measure(options, namesrv))
        running.addErrback(lambda failure: failure.printTraceback())
        running.addBoth(lambda _: reactor.stop())  # type: ignore[attr-defined]

    reactor.callWhenRunning(begin)  # type: ignore[attr-defined]
    reactor.run()  # type: ignore[attr-defined]
    if child:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
